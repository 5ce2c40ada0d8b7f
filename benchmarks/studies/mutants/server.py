"""One process that has the libraries loaded and forks for every mutant: pytest runs in the child.

A mutant is a file in a tree of its own (a copy of sources and tests), so that processes which tests start see
it too. Byte code is kept by the digest of its source, never by its date. Numba's cache folder is named by the
digest of all kernel sources: a mutant of a kernel is run as Python code, with a folder that is thrown away;
one of the code that keeps the cache gets a copy.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOADED = (
    "numpy", "scipy.optimize", "scipy.stats", "scipy.special", "scipy.signal", "scipy.sparse", "numba",
    "pytest", "_pytest.assertion.rewrite", "pytest_timeout", "hypothesis", "pandas", "pyarrow.parquet",
    "dp_accounting.pld.privacy_loss_distribution", "opendp.prelude", "typer", "rich.table",
)  # fmt: skip
SECONDS = 400  # for one test of a mutant, on a machine that does much else
CPU_SECONDS = 25  # for all tests of a mutant: those of the first look take 10 on the unchanged code


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: ``killed``, ``timeout``, ``survived``, or ``unloadable``, and what ran.

    by : the test that failed first. tests : how many were chosen.
    """

    outcome: str
    by: str
    tests: int
    seconds: float


@dataclass(frozen=True)
class Look:
    """Which tests run, and in which order.

    tests : by node, in their order; they run last. files : all of whose tests run, but those in ``known``.
    """

    tests: Sequence[str]
    files: Sequence[str] = ()
    known: Collection[str] = ()

    def rank(self, nodeid: str, ranks: Mapping[str, int]) -> int | None:
        """Place of a test, None: it does not run."""
        if nodeid in ranks:
            return ranks[nodeid]
        return -1 if nodeid.split("::")[0] in self.files and nodeid not in self.known else None


class _Chosen:
    """Keeps the tests of a look, in their order, and notes the first that fails."""

    def __init__(self, look: Look, note: Path) -> None:
        self.look, self.note = look, note

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        ranks = {test: i for i, test in enumerate(self.look.tests)}
        placed = [(self.look.rank(item.nodeid, ranks), item) for item in items]
        kept = [(rank, item) for rank, item in placed if rank is not None]
        items[:] = [item for _, item in sorted(kept, key=lambda one: one[0])]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.note.write_text(json.dumps({"running": nodeid}))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.note.write_text(json.dumps({"failed": report.nodeid}))


def load() -> None:
    """Load what children need and no mutant touches."""
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _child(tree: Path, module: str, look: Look, note: Path, work: Path, interpreted: bool) -> int:
    os.setsid()
    log = os.open(work / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(tree)
    sys.path[:0] = [str(tree / "src"), str(tree)]
    sys.dont_write_bytecode = True
    os.environ |= {
        "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(work / "hypothesis"),
    }
    plugins: list[str] = []
    if interpreted:
        import numba

        plugins = ["-p", "tests.helpers.interpreted_kernels"]
        os.environ["NUMBA_DISABLE_JIT"] = "1"
        numba.core.config.DISABLE_JIT = True
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    assert "discreet" not in sys.modules, "the mutant would not be loaded"
    try:
        importlib.import_module(module)
        assert str(sys.modules[module].__file__).startswith(str(tree)), "another tree was loaded"
    except AssertionError:
        raise
    except BaseException:
        note.write_text(json.dumps({"unloadable": module}))
        return 1
    import pytest

    files = sorted({test.split("::")[0] for test in look.tests} | set(look.files))
    return pytest.main(
        ["-x", "-q", "-m", "not statistics", "--assert=plain", "--tb=no", "-p", "no:cacheprovider",
         "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning", f"--timeout={SECONDS}",
         f"--basetemp={work / 'tmp'}", *plugins, *files],
        plugins=[_Chosen(look, note)],
    )  # fmt: skip


def judge(
    tree: Path,
    module: str,
    look: Look,
    work: Path,
    limit: float,
    cache: Path | None,
    interpreted: bool = False,
) -> Verdict:
    """Run the tests of a look, up to the first failure, on the tree as it stands.

    module : is loaded first, by name. work : a folder that is emptied. limit : seconds, then the child and
    all that it started are ended. cache : in place of the usual folder of compiled kernels. interpreted : run
    kernels as Python code.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    note = work / "note.json"
    began = time.monotonic()
    child = os.fork()
    if not child:
        code = 70
        try:
            if cache is not None:
                os.environ["NUMBA_CACHE_DIR"] = str(cache)
            code = int(_child(tree, module, look, note, work, interpreted))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    status = None
    while status is None and time.monotonic() - began < limit:
        done, found = os.waitpid(child, os.WNOHANG)
        status = found if done else None
        time.sleep(0.02)
    if status is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    said = json.loads(note.read_text()) if note.exists() and note.stat().st_size else {}
    seconds = round(time.monotonic() - began, 2)
    by = said.get("failed") or said.get("running") or ""
    if status is None:
        return Verdict("timeout", by, len(look.tests), seconds)
    if "unloadable" in said:
        return Verdict("unloadable", module, len(look.tests), seconds)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return Verdict("timeout", by, len(look.tests), seconds)
    if code in (70, -signal.SIGKILL):  # ended by nothing that the mutant did
        raise RuntimeError(f"the child of {module} broke: {(work / 'log.txt').read_text()[-2000:]}")
    if code in (0, 5):
        return Verdict("survived", "", len(look.tests) if code == 0 else 0, seconds)
    return Verdict("killed", by or "collection", len(look.tests), seconds)
