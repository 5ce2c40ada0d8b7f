"""What a module rests on: everything that it imports, directly or not, and how many lines of code that is."""

import ast
import io
import tokenize
from functools import cache
from pathlib import Path

import grimp

SOURCE = Path(__file__).parents[2] / "src"
_NO_CODE = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
)  # fmt: skip


def code_lines(text: str) -> int:
    """Lines that hold code: no comments, no blanks, no strings that stand alone (docstrings)."""
    alone: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                alone.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - alone)


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("discreet", exclude_type_checking_imports=True, cache_dir=None)


def closure(module: str) -> dict[str, int]:
    """Name to lines of code of a module and all that it imports, inside functions too, but not for types."""
    found = {}
    for name in {module, *_graph().find_upstream_modules(module)}:
        path = SOURCE.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found[name] = code_lines(file.read_text())
    return found
