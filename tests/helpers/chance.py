"""No test fails by chance: a test's random bytes are fixed by its name, or the test is listed.

The bytes of the operating system decide how a test of secure noise ends. Within a test, ``os.urandom`` and
all that rests on it therefore give a stream that the test's name fixes: ``secrets``, ``uuid``,
``SystemRandom``, an unseeded ``random.Random``, NumPy's ``default_rng()`` and ``SeedSequence()``, the
library's secure noise. The global generators of ``random`` and NumPy start from the name too. A fixture
that tests share has a stream of its own, as the first test that asks for it is another in every run. So has
each thread.

The operating system's own bytes are drawn in three cases:

- by functions under ``[[harmless]]`` in ``tests/chance.toml``: names of files and identities;
- in child processes, forked or started, as fixed bytes would repeat those of their parent;
- by tests that ask for the fixture ``system_randomness``, as the source is what they test.

In the last two cases the test fails unless ``[[draws]]`` lists it with its probability of a false alarm. So
it does where two threads beside the main one draw, as their order differs from run to run.
``tests/contracts/test_chance.py`` adds the probabilities up, and looks for wall clocks in the tests.

Not seen: generators of other languages (OpenSSL's keys, opendp's noise, SQLite's and DuckDB's ``random()``),
children that are not Python or that have an environment of their own, the order of threads, and the hashes of
strings (``make`` fixes PYTHONHASHSEED).
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Generator, Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import numpy.random  # now, as it draws when it is imported
import pytest

LISTED = Path(__file__).parents[1] / "chance.toml"
CHILDREN = Path(__file__).parent / "chance_in_children"
# modules that draw for their callers
_THROUGH = "random", "secrets", "uuid", "discreet.service.system_io", __name__
FREE = "engines", "docs", "service"  # suites of processes and pages, whose alarms nobody adds up
_LOG = "DISCREET_TESTS_CHANCE"


@cache
def listed() -> dict[str, list[dict[str, Any]]]:
    """The tables of ``chance.toml``: ``harmless``, ``draws``, ``clocks``."""
    return tomllib.loads(LISTED.read_text("utf-8"))


@cache
def is_harmless(place: str) -> bool:
    """Whether draws of this function, ``module.name``, cannot change how a test ends."""
    return any(fnmatchcase(place, one) for entry in listed()["harmless"] for one in entry["places"])


def entry_of(test: str) -> dict[str, Any] | None:
    """The entry of ``[[draws]]`` that lists this test: its file, its name, or its name with parameters."""
    names = {test, test.partition("[")[0], test.partition("::")[0]}
    for entry in listed()["draws"]:
        if names & set(entry["tests"]):
            return entry
    return None


class Scope:
    """What is drawn during one test, or while one shared fixture is set up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.system = False
        self.places: set[str] = set()  # that drew bytes that differ from run to run
        self.bytes = 0
        self._own = threading.local()  # a thread's stream; its number may be another's later
        self._others = count(1)

    def drawn(self, size: int, place: str) -> bytes:
        """The next bytes of the stream of this thread."""
        stream: tuple[Any, Iterator[int]] | None = getattr(self._own, "stream", None)
        if stream is None:
            thread = 0 if threading.current_thread() is threading.main_thread() else next(self._others)
            if thread > 1:
                self.places.add(f"{place} (in several threads)")
            stream = self._own.stream = hashlib.shake_128(f"{self.name}/{thread}/".encode()), count()
        key, blocks = stream
        self.bytes += size
        block = key.copy()
        block.update(b"%d" % next(blocks))
        return bytes(block.digest(size))


class Chance:
    """The plug-in. One per process."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.of_fixtures: dict[Any, set[str]] = {}
        self.child = False  # forked
        self.report: Path | None = None
        descriptor, self.log = tempfile.mkstemp(prefix="chance-")
        os.close(descriptor)
        self.read = 0
        self.late: dict[str, set[str]] = {}
        self._code: dict[int, tuple[str, bool, CodeType]] = {}  # by the code's address; it lives on
        self._before: list[Callable[[], None]] = []

    # ------------------------------------------------------------------ the source

    def _place(self, frame: FrameType | None) -> tuple[str, bool]:
        """The function that draws, and whether it is harmless."""
        while frame.f_back is not None and frame.f_globals.get("__name__") in _THROUGH:
            frame = frame.f_back
        code = frame.f_code
        known = self._code.get(id(code))  # a code's own hash is made anew each time
        if known is None:
            place = f"{frame.f_globals.get('__name__')}.{code.co_name}"
            known = self._code[id(code)] = place, is_harmless(place), code
        return known[0], known[1]

    def _write(self, place: str) -> None:
        """For the parent, from a forked child."""
        if place not in (seen := self.scopes[-1].places):
            seen.add(place)
            log = os.open(self.log, os.O_WRONLY | os.O_APPEND)
            os.write(log, f"{self.scopes[-1].name}\t{place}\n".encode())
            os.close(log)

    def _forked(self) -> None:
        self.child = True
        for scope in self.scopes:
            scope.places = set()

    def _urandom(self, size: int, caller: FrameType | None) -> bytes:
        if not self.scopes or size < 0:
            return self.system(size)
        place, harmless = self._place(caller)
        if harmless:
            return self.system(size)
        if self.child:
            self._write(place)
            return self.system(size)
        scope = self.scopes[-1]
        if scope.system:
            scope.places.add(place)
            return self.system(size)
        return scope.drawn(size, place)

    def install(self) -> None:
        """Put the plug-in's source in place of the system's. Call it before the library is imported."""
        self.system: Callable[[int], bytes] = getattr(os.urandom, "system", os.urandom)
        patch = pytest.MonkeyPatch()

        def urandom(size: int, /) -> bytes:
            return self._urandom(size, sys._getframe(1))

        urandom.system = self.system  # type: ignore[attr-defined]
        patch.setattr(os, "urandom", urandom)
        patch.setattr(random, "_urandom", urandom)
        if hasattr(os, "getrandom"):
            patch.setattr(os, "getrandom", lambda size, flags=0: urandom(size))

        seeded = random.Random.seed

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            seeded(generator, int.from_bytes(urandom(32)) if a is None else a, version)

        patch.setattr(random.Random, "seed", seed)
        patch.setenv(_LOG, self.log)
        patch.setenv("PYTHONPATH", str(CHILDREN), prepend=os.pathsep)
        os.register_at_fork(after_in_child=self._forked)
        self._before = [patch.undo, Path(self.log).unlink]

    # ------------------------------------------------------------------ tests

    def _enter(self, name: str) -> Scope:
        scope = Scope(name)
        self.scopes.append(scope)
        return scope

    def _children(self) -> None:
        if os.stat(self.log).st_size == self.read:
            return
        with open(self.log, encoding="utf-8") as log:
            log.seek(self.read)
            for line in log.read().splitlines():
                name, _, place = line.partition("\t")
                if not (is_harmless(place) or is_harmless(place := f"{place} (in a child)")):
                    self.late.setdefault(name, set()).add(place)
            self.read = log.tell()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        self._enter(collector.nodeid)
        try:
            return (yield)
        finally:
            self.scopes.pop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._enter(item.nodeid)
        states = random.getstate(), np.random.get_state()  # noqa: NPY002
        number = int.from_bytes(hashlib.sha256(item.nodeid.encode()).digest()[:4])
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002
        try:
            return (yield)
        finally:
            self.scopes.pop()
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        index = getattr(request, "param_index", 0)
        scope = self._enter(f"{fixturedef.baseid}::{fixturedef.argname}[{index}]")
        try:
            return (yield)
        finally:
            self.scopes.pop()
            self._children()
            self.of_fixtures[fixturedef] = scope.places | self.late.pop(scope.name, set())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        result = yield
        scope = self.scopes[-1]
        self._children()
        drew = scope.places | self.late.pop(item.nodeid, set())
        for fixture in getattr(getattr(item, "_request", None), "_fixture_defs", {}).values():
            drew |= self.of_fixtures.get(fixture, set())
        if self.report is not None and (drew or scope.bytes):
            with open(self.report, "a", encoding="utf-8") as report:
                report.write(f"{item.nodeid}\t{scope.bytes}\t{', '.join(sorted(drew))}\n")
        if drew and entry_of(item.nodeid) is None and not any(map(item.get_closest_marker, FREE)):
            places = ", ".join(sorted(drew))
            pytest.fail(
                f"bytes differ from run to run, and tests/chance.toml does not list the test: {places}",
                pytrace=False,
            )
        return result

    @pytest.fixture
    def system_randomness(self) -> None:
        """The operating system's own bytes for this test, which ``tests/chance.toml`` lists."""
        self.scopes[-1].system = True

    # ------------------------------------------------------------------ runs

    def pytest_configure(self, config: pytest.Config) -> None:
        report = config.getoption("--chance-report")
        self.report = None if report is None else Path(report).absolute()

    def pytest_unconfigure(self) -> None:
        for undo in self._before:
            undo()
        self._before = []


def add_option(parser: pytest.Parser) -> None:
    """``--chance-report FILE``: tests that drew, the bytes that were fixed, and what drew others."""
    parser.addoption(
        "--chance-report", metavar="FILE", help="append which tests drew random bytes, and where"
    )
