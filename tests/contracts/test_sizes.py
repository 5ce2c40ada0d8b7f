"""Functions of the library fit on one screen, except for a number of them that may only fall."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "discreet"
LINES = 60  # with the signature; a docstring, which lists every argument, is not counted
CEILING = 18  # functions that are longer; lower it when one is shortened, never raise it


def _lengths(path: Path) -> list[tuple[int, str]]:
    tree = ast.parse(path.read_text("utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1 - _docstring(node), node.name)
        for node in functions
    ]


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function's docstring."""
    if ast.get_docstring(node) is None:
        return 0
    return (node.body[0].end_lineno or 0) - node.body[0].lineno + 1


def test_long_functions_only_become_fewer() -> None:
    longer = sorted(
        (
            (lines, path.relative_to(ROOT).as_posix(), name)
            for path in ROOT.rglob("*.py")
            for lines, name in _lengths(path)
            if lines > LINES
        ),
        reverse=True,
    )
    shown = "\n".join(f"{lines} lines: {path}, {name}" for lines, path, name in longer)
    assert len(longer) <= CEILING, f"{len(longer)} functions are longer than {LINES} lines:\n{shown}"
