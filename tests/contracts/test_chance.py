"""No test fails by chance: what is drawn and which clocks are looked at is listed in ``tests/chance.toml``.

The sum of the listed alarms is the probability that a run of the fast suite fails though nothing is wrong.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chance import entry_of, is_harmless, listed

HERE = Path(__file__).parents[1]
LIMIT = 1e-6  # a run
SHORT = 300.0  # seconds: a shorter limit may pass on a busy machine


# ------------------------------------------------------------------------------------- the list


def test_a_run_fails_by_chance_at_most_once_in_a_million() -> None:
    for suites in ({"fast"}, {"fast", "statistics"}):
        entries = [one for one in listed()["draws"] if one.get("suite", "fast") in suites]
        assert 0 <= sum(one["alarm"] for one in entries) <= LIMIT


def functions(path: Path) -> set[str]:
    """Names of functions and methods of a file, as pytest has them."""
    found: set[str] = set()

    def visit(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(within + child.name)
                visit(child, f"{within}{child.name}::")
            else:
                visit(child, within)

    visit(ast.parse(path.read_text("utf-8")), "")
    return found


def test_what_is_listed_exists() -> None:
    known: dict[str, set[str]] = {}
    for kind in ("draws", "clocks"):
        for entry in listed()[kind]:
            assert entry["why"]
            for test in entry["tests"]:
                file, _, name = test.partition("::")
                path = HERE.parent / file
                assert path.is_file(), test
                if name:
                    known.setdefault(file, functions(path))
                    assert name.partition("[")[0] in known[file], test


@pytest.mark.parametrize("kind", ["draws", "clocks"])
def test_nothing_is_listed_twice(kind: str) -> None:
    tests = [test for entry in listed()[kind] for test in entry["tests"]]
    assert len(tests) == len(set(tests))
    assert not [test for test in tests if "::" in test and test.partition("::")[0] in tests]


# ------------------------------------------------------------------------------------- clocks

CLOCKS = {"sleep", "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
WAITS = {"wait", "join", "wait_for", "wait_for_timeout", "result", "acquire", "poll"}


def is_short(node: ast.AST) -> bool:
    """Whether this is a number of seconds that a busy machine may need."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value < SHORT


def clocks(node: ast.AST) -> bool:
    """Whether one node, itself only, reads the time, spends it, or limits it to less than 300 seconds."""
    match node:
        case ast.Attribute(value=ast.Name(id="time"), attr=attr):
            return attr in CLOCKS
        case ast.ImportFrom(module="time"):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="sleep"), args=[first]):
            return not (isinstance(first, ast.Constant) and first.value == 0)
        case ast.Call(func=ast.Attribute(attr="timeout", value=ast.Attribute(attr="mark")), args=args):
            return any(map(is_short, args))
        case ast.Call(func=func, args=args, keywords=keywords):
            waits = isinstance(func, ast.Attribute) and func.attr in WAITS
            return (waits and any(map(is_short, args))) or any(
                one.arg == "timeout" and is_short(one.value) for one in keywords
            )
    return False


def watched(path: Path) -> set[str]:
    """Functions and methods of a file that look at a clock; ``""`` for what stands in none."""
    tree = ast.parse(path.read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    stopped = any(one.asname == "time" for node in imports for one in node.names)  # a clock of the tests' own
    found: set[str] = set()

    def visit(node: ast.AST, within: str, inside: bool) -> None:
        if clocks(node) and not (stopped and isinstance(node, ast.Attribute)):
            found.add(within)
        for child in ast.iter_child_nodes(node):
            if inside or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visit(child, within, inside)
            else:
                name = f"{within}::{child.name}" if within else child.name
                visit(child, name, not isinstance(child, ast.ClassDef))

    visit(tree, "", False)
    return found


def test_every_clock_is_listed() -> None:
    tests = {test for entry in listed()["clocks"] for test in entry["tests"]}
    found = set()
    for path in HERE.rglob("*.py"):
        if path.name != "waiting.py":
            file = str(path.relative_to(HERE.parent))
            found |= {f"{file}::{name}".removesuffix("::") for name in watched(path)}
    missing = {one for one in found if not {one, one.partition("::")[0]} & tests}
    assert not missing, "list them in tests/chance.toml, or wait by tests/helpers/waiting.py:\n" + "\n".join(
        sorted(missing)
    )
    assert not {one for one in tests if not any(f"{other}::".startswith(f"{one}::") for other in found)}


def test_what_counts_as_a_clock(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        "import time\n"
        "def reads(): return time.time()\n"
        "def waits(event): event.wait(10)\n"
        "def asks(process): process.communicate(timeout=60)\n"
        "def patient(process): process.communicate(timeout=300)\n"
        "def joins(words): return ', '.join(words)\n"
        "@pytest.mark.timeout(10)\n"
        "def hurried(): pass\n"
        "class Test:\n"
        "    def test_it(self):\n"
        "        def inner(): time.sleep(1)\n"
    )
    assert watched(path) == {"reads", "waits", "asks", "hurried", "Test::test_it"}


# ------------------------------------------------------------------------------------- the plug-in

CONFTEST = """
import pytest
from chance import Chance, add_option
chance = Chance()
chance.install()
def pytest_addoption(parser): add_option(parser)
def pytest_configure(config): config.pluginmanager.register(chance, "chance")
"""
DRAWING = """
import os, random, secrets, subprocess, sys, threading, uuid
from pathlib import Path
import numpy as np
import pytest

def say(*drawn):
    with open(os.environ["SAID"], "a") as said: print(*drawn, file=said)

@pytest.fixture(scope="module")
def shared(): return secrets.token_hex(8)

def test_fixed(shared):
    say(os.urandom(4).hex(), secrets.randbits(40), uuid.uuid4(), random.SystemRandom().random(), shared)
    say(random.Random().random(), random.random(), np.random.rand(), np.random.default_rng().random())
    say(np.random.SeedSequence().entropy)

def test_fixed_too(shared): say(secrets.randbits(40), shared)

def test_system(system_randomness): say(secrets.randbits(40))

def test_child():
    subprocess.run([sys.executable, "-c", "import secrets; secrets.token_hex(8)"], check=True)

def test_fork():
    child = os.fork()
    if not child:
        secrets.token_hex(8)
        os._exit(0)
    os.waitpid(child, 0)

def test_threads():
    for _ in range(2):
        one = threading.Thread(target=os.urandom, args=(1,))
        one.start()
        one.join()
"""


def test_bytes_are_fixed_or_the_test_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_drawing.py").write_text(DRAWING)
    said = tmp_path / "said"
    helpers = str(HERE / "helpers")
    for only in ("", "not fixed or too"):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-q", "-k", only, tmp_path],
            env={**os.environ, "PYTHONPATH": helpers, "SAID": str(said)},
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        words = done.stdout
        assert "PASSED test_drawing.py::test_fixed_too" in words, words
        for test in ("system", "child", "fork", "threads"):
            assert f"ERROR test_drawing.py::test_{test} " in words, words
        assert "ERROR test_drawing.py::test_fixed" not in words
    first, second, third, too, system, again, system_again = said.read_text().splitlines()
    assert too == again  # whichever test is the first
    assert system != system_again  # equal with probability 2^-40
    assert len({*first.split(), *second.split(), third}) == 10


def test_classes_of_draws() -> None:
    assert is_harmless("tempfile.__init__")
    assert is_harmless("discreet.utils.atomic_file.write_aside")
    assert not is_harmless("discreet.core.noise.discrete_samplers._draw")
    assert entry_of("tests/no/file.py::test_it") is None
