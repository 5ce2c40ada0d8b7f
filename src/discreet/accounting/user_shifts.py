"""Ways to replace a user, as lists of changed cells, for numerical privacy losses.

The lists follow from the cases of :mod:`discreet.core.exchange` and from the changed cells that each family
states (:attr:`~discreet.core.families.RecordFamily.moves`). Closed forms of the loss do not use these lists.
"""

from __future__ import annotations

from collections.abc import Sequence

from discreet.core.exchange import Moves, mixes
from discreet.core.families import RecordFamily
from discreet.core.query import SumQuery

Shift = tuple[str, float, int]
"""Cells of one family with the same change: (family, absolute change of each cell, number of cells)."""


def shifts(query: SumQuery) -> tuple[tuple[Shift, ...], ...] | None:
    """Return the ways to replace a user that can have the largest loss.

    A way lists the cells that change. Ways with fewer steps in OTHER come first. The result is None if the
    worst way is not known. There are three such cases: several records of a user can be in one cell, users
    can have several episodes, or a family has a separate bound.
    """
    records = [family for family in query.listed if isinstance(family, RecordFamily)]
    steps = {family.over.steps(query.layout.horizon) for family in records}
    if query.episodes > 1 or len(records) < len(query.listed) or len(steps) != 1:
        return None
    (counted,) = steps
    return None if counted is None else shifts_of(records, len(counted))


def shifts_of(families: Sequence[RecordFamily], steps: int) -> tuple[tuple[Shift, ...], ...]:
    """Return the ways to replace a user that can have the largest loss, for families of counts per step.

    steps : number of counted steps. Compare OTHER with SUCCESSOR in every family. If OTHER always changes at
        least as many cells by at least as much, the only way is OTHER at all steps. Otherwise there is one
        way for each number of steps in OTHER.
    """
    worst = all(_reaches(family.moves) for family in families)
    found = []
    for mix in mixes(steps)[-1:] if worst else mixes(steps):
        moved: dict[tuple[str, float], int] = {}
        for family in families:
            for number, moves in zip(
                (mix.other, mix.successor, mix.successor + mix.same), family.moves, strict=True
            ):
                for cells, change in moves:
                    moved[family.name, change] = moved.get((family.name, change), 0) + cells * number
        found.append(tuple((*key, cells) for key, cells in moved.items() if cells))
    return tuple(dict.fromkeys(found))


def _reaches(moves: tuple[Moves, Moves, Moves]) -> bool:
    """Return True if OTHER changes at least as many cells by at least as much as SUCCESSOR does."""
    other, (extra, same) = moves[0], moves[1:]

    def reached(moved: Moves, change: float) -> int:
        return sum(cells for cells, x in moved if x >= change)

    return all(reached(other, x) >= reached((*extra, *same), x) for _, x in (*extra, *same))
