"""Repeat every test whose end is not fixed: ``make test-chance RUNS=30``.

These are the tests that ``tests/chance.toml`` lists, and those that wait for another thread or process. All
others draw fixed bytes and look at no clock. Every second run has busy processes beside it, two for each
processor.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from chance import listed

TESTS = Path(__file__).parents[1]
FAST = "not statistics and not engines and not docs and not service"
SERVERS = {"in_background", "all_in_background", "both_in_background"}
WAITS = {"wait_until", "LIMIT"}


def _functions(path: Path) -> dict[str, tuple[ast.AST, set[str]]]:
    """Functions, methods as ``Class::name``, and all names in each of them."""
    found: dict[str, tuple[ast.AST, set[str]]] = {}

    def visit(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                names = {one.id for one in ast.walk(child) if isinstance(one, ast.Name)}
                names |= {one.arg for one in ast.walk(child) if isinstance(one, ast.arg)}  # fixtures
                found[within + child.name] = child, names
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{child.name}::")

    visit(ast.parse(path.read_text("utf-8")), "")
    return found


def _spread(functions: dict[str, tuple[ast.AST, set[str]]], names: set[str]) -> set[str]:
    """Functions that use one of the names, or one that does."""
    found: set[str] = set()
    while more := {one for one, (_, used) in functions.items() if used & names} - found:
        found |= more
        names = names | {one.rpartition("::")[2] for one in more}
    return found


def chosen() -> list[str]:
    """The tests, as pytest names them."""
    entries = [test for kind in ("draws", "clocks") for entry in listed()[kind] for test in entry["tests"]]
    by_file: dict[str, set[str]] = {}
    for test in entries:
        file, _, name = test.partition("::")
        by_file.setdefault(file, set()).add(name.partition("[")[0].rpartition("::")[2])
    watching = set(SERVERS)
    for path in sorted((TESTS / "helpers").glob("*.py")):
        names = watching | by_file.get(f"tests/helpers/{path.name}", set())
        if path.name not in ("waiting.py", Path(__file__).name):
            watching |= _spread(_functions(path), names | WAITS) | names
    found = list[str]()
    for path in sorted(TESTS.rglob("test_*.py")):
        file = str(path.relative_to(TESTS.parent))
        functions = _functions(path)
        own = by_file.get(file, set())
        if file in entries:
            own = own | {one for one in functions if one.startswith("test_")}
        waits = WAITS if "from waiting import" in path.read_text("utf-8") else set()
        tests = own & set(functions) | _spread(functions, watching | waits | own)
        found += [f"{file}::{one}" for one in sorted(tests) if one.rpartition("::")[2].startswith("test_")]
    return found


def run(tests: Iterable[str], busy: int, workers: int) -> bool:
    """One run. Whether all passed."""
    with ExitStack() as stack:
        for _ in range(busy):
            one = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(one.wait)
            stack.callback(one.kill)
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-m", FAST, *tests]
        done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr)
    return not done.returncode


def main() -> None:
    """Say how each run ended; exit 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--busy", type=int, default=2 * (os.cpu_count() or 1), help="in every second run")
    parser.add_argument("--list", action="store_true", help="name the tests and run none")
    given = parser.parse_args()
    tests, failed = chosen(), 0
    if given.list:
        print("\n".join(tests))
        return
    for number in range(given.runs):
        begin, busy = time.monotonic(), given.busy * (number % 2)
        passed = run(tests, busy, given.workers)
        failed += not passed
        seconds = time.monotonic() - begin
        words = f"with {busy} busy processes beside it" if busy else "alone"
        print(f"run {number + 1}, {words}: {'passed' if passed else 'FAILED'}, {seconds:.0f} s", flush=True)
    print(f"{failed} of {given.runs} runs failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
