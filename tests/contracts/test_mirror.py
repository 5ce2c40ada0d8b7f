"""Tests mirror sources: ``tests/a/test_b.py`` or ``tests/a/b/test_*.py`` tests ``src/discreet/a/b.py``.

Two lists beside this file name the exceptions. Both may only shrink.
"""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent
SOURCES = TESTS.parent / "src" / "discreet"
WITHOUT_TESTS = HERE / "without_tests.txt"
WITHOUT_MODULES = HERE / "without_modules.txt"
# Folders whose tests are about the library as a whole, or about folders beside it.
FREE = {
    *("attacks", "benchmarks", "contracts", "docs", "engines", "goldens"),
    *("helpers", "papers", "service", "slow", "statistics"),
}


def is_code(statement: ast.stmt) -> bool:
    """Return whether a statement of a function does something: no docstring, ``...``, ``pass``, ``raise``."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Raise():
            return False
    return True


def holds_code(source: str) -> bool:
    """Return whether a file defines a function that does something.

    Files of constants, of re-exports, of interfaces and of plain records do not.
    """
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(
        any(map(is_code, node.body)) for node in ast.walk(ast.parse(source)) if isinstance(node, functions)
    )


def modules() -> dict[str, Path]:
    """Return files of modules by their path below the package, without suffix."""
    return {
        path.relative_to(SOURCES).with_suffix("").as_posix(): path
        for path in SOURCES.rglob("*.py")
        if not path.name.startswith("__")
    }


def mirrored(test: Path) -> set[str]:
    """Return the two modules whose test a file can be, of which at most one exists."""
    relative = test.relative_to(TESTS)
    folder = relative.parent.as_posix()
    return {relative.with_name(relative.stem.removeprefix("test_")).as_posix(), folder}


def files_of_tests() -> list[Path]:
    """Return all files of tests."""
    return sorted(TESTS.rglob("test_*.py"))


def listed(path: Path) -> list[str]:
    """Return the lines of a list."""
    return path.read_text("utf-8").splitlines()


def compare(found: set[str], path: Path, advice: str) -> None:
    """Check that a list has exactly what was found, in order."""
    lines = listed(path)
    assert not found - set(lines), f"{advice}: {sorted(found - set(lines))}"
    assert not set(lines) - found, f"remove from {path.name}: {sorted(set(lines) - found)}"
    assert lines == sorted(found), f"{path.name} must be sorted, without repetition"


def test_every_module_with_code_has_a_test_of_its_name() -> None:
    with_tests = set().union(*map(mirrored, files_of_tests()))
    missing = {name for name, path in modules().items() if holds_code(path.read_text("utf-8"))} - with_tests
    compare(missing, WITHOUT_TESTS, "add tests/a/test_b.py for src/discreet/a/b.py")


def test_every_test_file_has_the_name_of_a_module() -> None:
    known = modules()
    strangers = {
        path.relative_to(TESTS).as_posix()
        for path in files_of_tests()
        if path.relative_to(TESTS).parts[0] not in FREE and not mirrored(path) & set(known)
    }
    compare(strangers, WITHOUT_MODULES, "name the file after the module that it tests")


def test_what_holds_code() -> None:
    assert holds_code("def f(x):\n    return x")
    assert holds_code("class C:\n    def f(self):\n        'Say.'\n        return 1")
    assert not holds_code("from a import b as b\nC = {1: 2}\n")
    assert not holds_code("class P(Protocol):\n    def f(self) -> int:\n        'Return.'\n        ...")
    assert not holds_code("@dataclass\nclass R:\n    x: int\n")
