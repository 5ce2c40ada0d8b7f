"""A pytest plugin: which test runs which lines of the core, and how long each test takes.

``python -m pytest -p benchmarks.studies.mutants.covered``, with two variables of the environment:
``MUTANTS_FILES`` (the files that are followed, one a line) and ``MUTANTS_COVERED`` (the JSON file that is
written: outcome, CPU seconds and lines a test). What runs while modules are imported or tests are collected
belongs to no test. Kernels that run as Python code (``NUMBA_DISABLE_JIT=1``) are timed only: it takes too
long to follow each of their lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

_files = os.environ["MUTANTS_FILES"].split("\n")
_followed = os.environ.get("NUMBA_DISABLE_JIT") != "1"
_tests: dict[str, dict[str, Any]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Follow one test with its fixtures, by a tracer of its own: tests may set one themselves."""
    seen = coverage.Coverage(data_file=None, config_file=False, include=_files, messages=False)
    seen.set_option("run:disable_warnings", ["trace-changed", "no-data-collected", "module-not-measured"])
    began = _cpu_seconds()
    if _followed:
        seen.start()
    try:
        return (yield)
    finally:
        if _followed:
            seen.stop()
        data = seen.get_data()
        lines = {name: sorted(data.lines(file) or ()) for name, file in _named(data.measured_files())}
        one = _tests.setdefault(item.nodeid, {"passed": False})
        one |= {
            "seconds": round(_cpu_seconds() - began, 4),
            "lines": {f: v for f, v in lines.items() if v},
        }


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it waited for: other work on the machine does not count."""
    return sum(os.times()[:4])


def _named(files: Iterable[str]) -> list[tuple[str, str]]:
    """Each file with its name below the folder of sources."""
    return [(file.rpartition("/src/")[2], file) for file in files]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test counts as passed where its body did; a skipped one did not."""
    if report.when == "call":
        _tests.setdefault(report.nodeid, {})["passed"] = report.passed
    elif report.failed:
        _tests.setdefault(report.nodeid, {})["passed"] = False


def pytest_sessionfinish() -> None:
    """Write what was seen."""
    Path(os.environ["MUTANTS_COVERED"]).write_text(json.dumps(_tests))
