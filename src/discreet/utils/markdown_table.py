"""Tables of text in Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

Table = Sequence[Sequence[str]]


def markdown(table: Iterable[Sequence[str]]) -> str:
    """Return a table of text in Markdown. The first row is the header.

    The caller must escape the character ``|`` in cells, because it ends a cell.
    """
    head, *rest = table
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rest)])


def html(table: Iterable[Sequence[str]], head: bool = True) -> str:
    """Return a table of text in HTML. The text of the cells is escaped.

    If ``head`` is True, the first row is the header.
    """
    lines = []
    for i, row in enumerate(table):
        kind = "th" if head and i == 0 else "td"
        lines.append("".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
