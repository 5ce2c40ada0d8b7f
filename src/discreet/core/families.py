"""Families of sums: values that a user adds to cells, and bounds on their change if a user is replaced.

A query (:mod:`discreet.core.query`) is a tuple of families. The *price* of a family is the largest cost of
replacing a user. A :class:`RecordFamily` counts records, so its price follows from the cases of
:mod:`discreet.core.exchange`. Two cells of visits change by 1 in OTHER, and no cell changes in the other
cases. Two cells of transitions change by 1 in OTHER and in SUCCESSOR, and no cell changes in SAME. For sums
of r - c, two cells change by at most max(c, 1 - c) in OTHER, and one cell changes by at most 1 in SUCCESSOR
and SAME. (Rewards are in [0, 1].) Other families have separate bounds:

- in :class:`GroupReturns` one cell changes by at most C, because a return that is clipped at C is in [0, C];
- in :class:`ClippedRewards` a user adds x >= 0 with a total of at most C. Therefore ||x - x'||_1 <= 2 C, and
  ||x - x'||_2^2 <= 2 C^2 because <x, x'> >= 0. In both norms, this is at most the cost of two cells that
  change by C each.

A release contains only one of the families in a :class:`OneOf`. The price is then the price of the costliest
family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.exchange import ALL_STEPS, EACH_STEP, FIRST_VISITS, OVERS, CaseCosts, Cost, Moves, Over
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectory

Floats = NDArray[np.float64]
Context: TypeAlias = Mapping[str, NDArray[Any]]
"""Public arrays of a plan, by name."""

VISITS = "visits"
TRANSITIONS = "transition_counts"
REWARDS = "reward_sums"
CENTERED_REWARDS = "centered_reward_sums"
POOLED_TRANSITIONS = "pooled_transition_counts"
POOLED_REWARDS = "pooled_reward_sums"
GROUP_RETURNS = "group_returns"
CUT_REWARDS = "cut_reward_sums"
COUNTS = (VISITS, TRANSITIONS, POOLED_TRANSITIONS)  # families whose values are integers


@dataclass(frozen=True)
class SumFamily(ABC):
    """Public constants of one family of sums.

    name : key of the family in releases, scales and files.

    by_pair : True if each cell belongs to a step and an admissible pair. Tables then have axes for (s, a).
    """

    name: str
    by_pair: ClassVar[bool] = True

    @property
    def integral(self) -> bool:
        """True if users add integers. If noise is exact, other values are rounded to a grid."""
        return False

    @property
    def rests_on(self) -> tuple[str, ...]:
        """Declarations that the sensitivity depends on, as text. Empty if this library derives the
        sensitivity.
        """
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

        layout, context : sizes, and public arrays of the plan.

        grid : grid of values that are not counts, or None. Exact noise needs a grid.

        Raises ``ValueError`` if the sum needs values that plans set. Compiled code adds records to such a
        family.
        """
        raise ValueError(f"family {self.name!r}: is summed only as an option of CountQuery")


@dataclass(frozen=True)
class RecordFamily(SumFamily):
    """Family that sums one number per counted record, in a cell for each (s, a) or for each (s, a, s').

    over : way in which records are added to cells.

    by_successor : True if there is one cell for each (s, a, s'). False if there is one cell for each (s, a).

    center : constant c if the family sums r - c over records. None if the family counts records.
    """

    over: Over = EACH_STEP
    by_successor: bool = False
    center: float | None = None

    def __post_init__(self) -> None:
        checks.exactly("over", self.over, *OVERS)
        if self.center is not None:
            checks.real("center", self.center, 0.0, 1.0)
            if self.by_successor:  # otherwise SAME would change cells that SUCCESSOR does not change
                raise ValueError("by_successor = True: must be False for sums of rewards")

    @property
    def integral(self) -> bool:
        return self.center is None

    def shape(self, layout: Layout) -> tuple[int, ...]:
        """Return the shape: (T, R), or (T, R, S) if the family has a cell for each successor."""
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
        """Cells that change in OTHER, cells that change in SUCCESSOR but not in SAME, and cells in SAME."""
        if self.center is not None:
            return ((2, max(self.center, 1.0 - self.center)),), (), ((1, 1.0),)
        return ((2, 1.0),), (((2, 1.0),) if self.by_successor else ()), ()

    def costs(self, cost: Cost) -> CaseCosts:
        """Return the costs of one step if the cost of a cell that changes by x is ``cost(x)``."""
        other, extra, same = (sum(n * cost(x) for n, x in moves) for moves in self.moves)
        return CaseCosts(other, extra, same)


def visits(over: Over = EACH_STEP, name: str = VISITS) -> RecordFamily:
    """Return the family of visits N(h, s, a).

    over : way in which records are added to cells. name : key of the family in releases.
    """
    return RecordFamily(name, over)


def transitions(over: Over = EACH_STEP, name: str = TRANSITIONS) -> RecordFamily:
    """Return the family of transitions N(h, s, a, s').

    over : way in which records are added to cells. name : key of the family in releases.
    """
    return RecordFamily(name, over, by_successor=True)


def rewards(center: float = 0.0, over: Over = EACH_STEP, name: str | None = None) -> RecordFamily:
    """Return the family of sums of r - ``center`` per pair, with ``center`` in [0, 1].

    over : way in which records are added to cells. name : key of the family in releases.
    """
    return RecordFamily(name or (CENTERED_REWARDS if center else REWARDS), over, center=center)


RECORD_FAMILIES: Mapping[str, RecordFamily] = {
    family.name: family for family in (visits(), transitions(), rewards(), rewards(0.5))
}
"""Families of counts per step, by their names in files."""


class OwnBound(SumFamily):
    """Family with its own bound on the price. The bound does not use the cases of records."""

    @abstractmethod
    def price(self, cost: Cost, layout: Layout, squares: bool) -> float:
        """Return the largest cost of replacing a user if the cost of a cell that changes by x is ``cost(x)``.

        layout : public sizes. squares : True if costs are squares of changes in units of the noise, False if
        they are linear.
        """


@dataclass(frozen=True)
class GroupReturns(OwnBound):
    """Family with the sum of min(return, clip) over the users in each public group, shape (groups,).

    The plan of a user sets the group (``Plan.group``).
    """

    groups: int
    clip: float
    by_pair: ClassVar[bool] = False

    def shape(self, layout: Layout) -> tuple[int, ...]:
        return (self.groups,)

    def most(self, layout: Layout) -> float:
        return self.clip

    def price(self, cost: Cost, layout: Layout, squares: bool) -> float:
        return cost(self.clip)


@dataclass(frozen=True)
class ClippedRewards(OwnBound):
    """Family of sums of rewards for each (s, a) over all steps, clipped at a total of C per user.

    clip : threshold C of the first batch. Plans can increase C (:mod:`discreet.core.clipped_returns`).
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
    """Several families of which each release contains exactly one."""

    families: tuple[SumFamily, ...]


def pooled(over: str) -> Over:
    """Return the rule by which pooled families count records: "all" records, or only "first" visits."""
    return FIRST_VISITS if over == "first" else ALL_STEPS


COMBINED: list[type[SumFamily]] = [RecordFamily]
"""Classes that a :class:`~discreet.core.query.FamilyQuery` can combine. Subclasses are rejected."""
