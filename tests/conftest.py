"""Tests need not wait for the disk: what is in the system's cache outlives a killed process.

That files and tables are synchronised is tested by those that ask for ``disk_is_waited_for``. Tests of
folders whose subject is no figure ask for ``figures_are_sketched``.

Nor need they look for garbage among what the collected tests and all libraries hold, a tenth of a second each
time, or put the command line together for every call of a command.
"""

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from chance import Chance, add_option

sys.dont_write_bytecode = False  # else every call compiles all test files again
# Each worker has one core, on which further threads of BLAS only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
chance = Chance()
chance.install()  # before the library is imported, which takes the source of random bytes as a default

from hypothesis import HealthCheck, settings  # noqa: E402
from typer import testing  # noqa: E402

from discreet.ledger import ledger  # noqa: E402
from discreet.mechanisms.saved_state import state_file as saved_state  # noqa: E402

# The same examples in every run, and no clock: neither a deadline nor the check for slow generation.
settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")

_WAITS = os.fsync, *(module._SYNCHRONOUS for module in (ledger, saved_state))


def _patched(patch: pytest.MonkeyPatch, sync: object, *modes: str) -> None:
    patch.setattr(os, "fsync", sync)
    for module, mode in zip((ledger, saved_state), modes, strict=True):
        patch.setattr(module, "_SYNCHRONOUS", mode)


@pytest.fixture(scope="session", autouse=True)
def _nobody_waits_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _patched(patch, lambda _: None, "OFF", "OFF")
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_are_put_together_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing, "_get_command", cache(testing._get_command))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(chance, "chance")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture
def disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it."""
    _patched(monkeypatch, *_WAITS)


@pytest.fixture(scope="module")
def figures_are_sketched() -> Iterator[None]:
    """Reports of stored people write small pictures of what they hold (``tests/helpers/drawn.py``)."""
    from drawn import sketched

    with pytest.MonkeyPatch.context() as patch:
        sketched(patch.setattr)
        yield


@pytest.fixture
def figures_by_matplotlib(figures_are_sketched: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it, for one test of such a module."""
    from drawn import by_matplotlib

    by_matplotlib(monkeypatch.setattr)


@pytest.fixture
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's ledger, for this test alone."""
    path = tmp_path / "home" / "ledger.sqlite"
    monkeypatch.setenv("DISCREET_LEDGER", str(path))
    return path
