"""Families of sums: what one user adds to which cells, and how much of it another trajectory moves.

A query (:mod:`discreet.core.query`) is a tuple of families. A :class:`RecordFamily` counts records, so its
price follows from the cases of :mod:`discreet.core.exchange`:

==================  ===================  ===========  ======
family              OTHER                SUCCESSOR    SAME
==================  ===================  ===========  ======
visits              2 cells by 1         none         none
transitions         2 cells by 1         2 by 1       none
rewards r - c       2 by max(c, 1 - c)   1 by 1       1 by 1
==================  ===================  ===========  ======

since rewards are in [0, 1]. Other families have bounds of their own:

- :class:`GroupReturns` moves one cell by at most C, as a return that is clipped at C is in [0, C];
- :class:`ClippedRewards` adds x >= 0 with a total of at most C, so ||x - x'||_1 <= 2 C, and ||x - x'||_2^2 <=
  2 C^2 because <x, x'> >= 0: at most the cost of two cells that move by C each, in both norms.

:class:`OneOf` is a choice of families, one of which is in a release. Its price is that of the costliest
choice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.exchange import ALL_STEPS, EACH_STEP, FIRST_VISITS, CaseCosts, Cost, Moves, Over
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectory

Floats = NDArray[np.float64]
Context: TypeAlias = Mapping[str, NDArray[Any]]
"""Public arrays of a plan, by name."""

__all__ = [
    "CENTERED_REWARDS", "COUNTS", "CUT_REWARDS", "GROUP_RETURNS", "POOLED_REWARDS", "POOLED_TRANSITIONS",
    "RECORD_FAMILIES", "REWARDS", "TRANSITIONS", "VISITS", "ClippedRewards", "SumFamily", "GroupReturns",
    "OneOf", "OwnBound", "RecordFamily", "pooled", "rewards", "transitions", "visits",
]  # fmt: skip

VISITS = "visits"
TRANSITIONS = "transition_counts"
REWARDS = "reward_sums"
CENTERED_REWARDS = "centered_reward_sums"
POOLED_TRANSITIONS = "pooled_transition_counts"
POOLED_REWARDS = "pooled_reward_sums"
GROUP_RETURNS = "group_returns"
CUT_REWARDS = "cut_reward_sums"
COUNTS = (VISITS, TRANSITIONS, POOLED_TRANSITIONS)  # families of integers


@dataclass(frozen=True)
class SumFamily(ABC):
    """Public constants of one family of sums. ``name`` : its key in releases, scales and files."""

    name: str

    @property
    def by_pair(self) -> bool:
        """True if the cells belong to steps and admissible pairs; tables then have axes for (s, a)."""
        return True

    @property
    def integral(self) -> bool:
        """True if a user adds integers; other values are rounded to the grid of exact noise."""
        return False

    @property
    def rests_on(self) -> tuple[str, ...]:
        """What the sensitivity rests on beside this library's derivations."""
        return ()

    @abstractmethod
    def shape(self, layout: Layout) -> tuple[int, ...]:
        """Return the shape over rows (admissible pairs) of ``layout``, e.g. (H, R, S)."""

    @abstractmethod
    def most(self, layout: Layout) -> float:
        """Return the largest absolute value that one user adds to a cell, for this ``layout``."""

    def add(
        self, record: Trajectory, layout: Layout, context: Context, grid: int | None, cells: Floats
    ) -> None:
        """Add one user's checked ``record`` to the flat ``cells`` of this family.

        layout, context : sizes, and public arrays of the plan. grid : of values that are no counts, under
            exact noise.

        Raises ``ValueError`` if plans set values that the sum needs: such a family is added by compiled code.
        """
        raise ValueError(f"family {self.name!r}: is summed only as an option of CountQuery")


@dataclass(frozen=True)
class RecordFamily(SumFamily):
    """Sums of one number per counted record, in the cell of its pair, or of its pair and successor.

    over : how records reach cells. by_successor : one cell for each (s, a, s'), otherwise for each (s, a).
    center : c, so that the family sums r - c. None: it counts records.
    """

    over: Over = EACH_STEP
    by_successor: bool = False
    center: float | None = None

    def __post_init__(self) -> None:
        if self.center is not None:
            checks.real("center", self.center, 0.0, 1.0)
            if self.by_successor:  # SAME would move what SUCCESSOR does not: the list of mixes would not do
                raise ValueError("by_successor = True: must be False for sums of rewards")

    @property
    def integral(self) -> bool:
        return self.center is None

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """Return (T, R) or (T, R, S)."""
        rows = (self.over.slots(layout.horizon), layout.rows)
        return (*rows, layout.states) if self.by_successor else rows

    def most(self, layout: Layout) -> float:
        return float(self.over.in_one_cell(layout.horizon))

    def add(
        self, record: Trajectory, layout: Layout, context: Context, grid: int | None, cells: Floats
    ) -> None:
        rows = layout.row_index[record.states[:-1], record.actions]
        table = cells.reshape(self.shape(layout))
        for h, row in enumerate(rows.tolist()):
            if self.over.counts(record.states, h):
                at = (h if table.shape[0] > 1 else 0, row)
                cell = (*at, record.states[h + 1]) if self.by_successor else at
                table[cell] += 1.0 if self.center is None else record.rewards[h] - self.center

    @property
    def moves(self) -> tuple[Moves, Moves, Moves]:
        """Cells that move in OTHER, in SUCCESSOR but not in SAME, and in SAME."""
        if self.center is not None:
            return ((2, max(self.center, 1.0 - self.center)),), (), ((1, 1.0),)
        return ((2, 1.0),), (((2, 1.0),) if self.by_successor else ()), ()

    def costs(self, cost: Cost) -> CaseCosts:
        """Return the costs of one step if a cell that moves by x costs ``cost(x)``."""
        other, extra, same = (sum(n * cost(x) for n, x in moves) for moves in self.moves)
        return CaseCosts(other, extra, same)


def visits(over: Over = EACH_STEP, name: str = VISITS) -> RecordFamily:
    """Return the family of visits N(h, s, a).

    over : way in which records reach cells. name : key of the family in releases.
    """
    return RecordFamily(name, over)


def transitions(over: Over = EACH_STEP, name: str = TRANSITIONS) -> RecordFamily:
    """Return the family of transitions N(h, s, a, s').

    over : way in which records reach cells. name : key of the family in releases.
    """
    return RecordFamily(name, over, by_successor=True)


def rewards(center: float = 0.0, over: Over = EACH_STEP, name: str | None = None) -> RecordFamily:
    """Return the family of sums of r - ``center`` per pair, with ``center`` in [0, 1].

    over : way in which records reach cells. name : key of the family in releases.
    """
    return RecordFamily(name or (CENTERED_REWARDS if center else REWARDS), over, center=center)


RECORD_FAMILIES: Mapping[str, RecordFamily] = {
    family.name: family for family in (visits(), transitions(), rewards(), rewards(0.5))
}
"""Families per step by the names that files use."""


class OwnBound(SumFamily):
    """SumFamily whose price is not a walk over records."""

    @abstractmethod
    def price(self, cost: Cost, layout: Layout, squares: bool) -> float:
        """Return the largest cost of one replaced user if a cell that moves by x costs ``cost(x)``.

        layout : public sizes. squares : True if costs are squares of changes in units of the noise, False if
        they are linear.
        """


@dataclass(frozen=True)
class GroupReturns(OwnBound):
    """Sum of min(return, clip) over the users of each public group (``Plan.group``); shape (groups,)."""

    groups: int
    clip: float

    @property
    def by_pair(self) -> bool:
        return False

    def shape(self, layout: Layout) -> tuple[int, ...]:
        return (self.groups,)

    def most(self, layout: Layout) -> float:
        return self.clip

    def price(self, cost: Cost, layout: Layout, squares: bool) -> float:
        return cost(self.clip)


@dataclass(frozen=True)
class ClippedRewards(OwnBound):
    """Rewards per pair, summed over steps, of each user until their total reaches a threshold.

    clip : C of the first batch. Plans may raise it (:mod:`discreet.core.clipped_returns`).
    """

    clip: float

    def shape(self, layout: Layout) -> tuple[int, ...]:
        return (1, layout.rows)

    def most(self, layout: Layout) -> float:
        return float(layout.horizon)

    def price(self, cost: Cost, layout: Layout, squares: bool) -> float:
        return 2 * cost(self.clip)


@dataclass(frozen=True)
class OneOf:
    """Families of which a release contains one."""

    families: tuple[SumFamily, ...]


def pooled(over: str) -> Over:
    """Return the way of pooled families: "all" records of a user, or those of "first" visits to states."""
    return FIRST_VISITS if over == "first" else ALL_STEPS
