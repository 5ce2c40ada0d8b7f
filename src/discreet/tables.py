"""Tables of words in Markdown: written in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["Table", "markdown"]

Table = Sequence[Sequence[str]]


def markdown(table: Iterable[Sequence[str]]) -> str:
    """A table of words, its head first, in Markdown. A bar in a cell would end it: escape it before."""
    head, *rest = table
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rest)])
