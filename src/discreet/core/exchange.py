"""Largest change of sums of records if one trajectory is replaced, computed by an automaton over steps.

A user contributes one record (s, a, r, s') per step. The neighbouring relation replaces the user's whole
trajectory by any other trajectory. The records of the two trajectories at one step are in one of three cases:

- OTHER: the pairs (s, a) differ;
- SUCCESSOR: the pairs are equal, the next states s' differ;
- SAME: (s, a, s') are equal, and the rewards may differ.

In what follows, the two trajectories belong to two users. Users in different states are in different pairs.
After SUCCESSOR the two users are in different states. After SAME they are in the same state. After OTHER both
are possible. Every pair of trajectories is therefore a path on two nodes, *one* (both users are in the same
state) and *two* (they are in different states)::

    one: OTHER -> one or two;   SUCCESSOR -> two;   SAME -> one;        two: OTHER -> one or two;

A path starts at any node. The maximum of a sum of costs over all paths bounds the change for every layout.
The bound is attained if two states have two admissible actions each.

A family of sums declares which of its cells change in each case, and by how much (:data:`Moves`). A noise
distribution declares the cost of a changed cell. The cost of a cell is its loss of pure epsilon, or its
squared shift in units of the noise. The cost of a case is the sum over all changed cells. The *price* is the
largest cost of replacing a user. If every step has separate cells, the price is the cost of the path with the
largest cost. Costs do not depend on the step, so only the number of steps in each case matters. SUCCESSOR
changes all cells that SAME changes. Therefore, among paths with k steps of OTHER, those with the most steps
of SUCCESSOR cost most. There are at most min(H - k, k + 1) steps of SUCCESSOR, because a step of OTHER must
occur between two of them.

The way in which records are added to cells (:class:`Over`) determines how the costs of steps are combined.
Let C be the largest cost of a case, and m = min(S, H). The price is:

- with separate cells for each step: the cost of the path with the largest cost;
- with the same cells for all steps: H C if costs are linear in the shift, or H^2 C if they are squares (by
  the triangle inequality);
- with only the first visit to each state: m C. Proof: suppose that the two users visit u <= m and v <= m
  states, and that both of them visit c of these states. The records of a state that both visit change as in
  one step, which costs at most C. A state that only one of them visits has one record more or less. Such a
  record is half of OTHER, so it costs at most C / 2. The sum is at most (c + (u - c) / 2 + (v - c) / 2) C <=
  m C. A visit is classified as first or later before its action and successor are known, so the counted
  transitions still follow the transition probabilities.

If families of a query add records to cells in different ways, their prices are computed separately and
summed, because the changes are in different cells.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

Moves = tuple[tuple[int, float], ...]
"""Changed cells of a family: pairs (number of cells, absolute change of each of them)."""
Cost = Callable[[float], float]
"""Function from the absolute change of one cell to its cost."""


class CaseCosts(NamedTuple):
    """Costs of one step in each case. The cost of SUCCESSOR is ``extra + same``."""

    other: float
    extra: float  # cost of the cells that change in SUCCESSOR but not in SAME
    same: float

    @property
    def largest(self) -> float:
        """Largest cost C of the three cases."""
        return max(self.other, self.extra + self.same)


class Mix(NamedTuple):
    """Numbers of steps in each case."""

    other: int
    successor: int
    same: int


def mixes(steps: int) -> tuple[Mix, ...]:
    """Return, for each number of OTHER steps (0, 1, ...), the step counts with the most SUCCESSOR steps."""
    most = [(k, min(steps - k, k + 1)) for k in range(steps + 1)]
    return tuple(Mix(k, n, steps - k - n) for k, n in most)


def heaviest(costs: CaseCosts, steps: int) -> float:
    """Return the largest cost of a path of ``steps`` steps if the costs are the same at each step."""
    if costs.other >= costs.extra + costs.same:
        return steps * costs.other
    return max(
        k.other * costs.other + k.successor * costs.extra + (k.successor + k.same) * costs.same
        for k in mixes(steps)
    )


def heaviest_of(costs: Sequence[CaseCosts]) -> float:
    """Return the largest cost of a path if step h has the costs ``costs[h]``."""
    one = two = 0.0  # largest cost of a path that ends at node one, and at node two
    for step in costs:
        apart = max(one, two) + step.other
        one, two = max(apart, one + step.same), max(apart, one + step.extra + step.same)
    return max(one, two)


# ------------------------------------------------------------------------------ from records to cells


@dataclass(frozen=True)
class Over(ABC):
    """Base class of the rules that add the records of one user to cells."""

    def slots(self, horizon: int) -> int:
        """Return the size of the first axis of the family."""
        return 1

    def in_one_cell(self, horizon: int) -> int:
        """Return the largest number of records of one user that one cell can contain."""
        return 1

    def steps(self, horizon: int) -> range | None:
        """Return the counted steps if each step has separate cells, otherwise None."""
        return None

    def counts(self, states: Ints, step: int) -> bool:
        """Return True if the record of this step is counted. ``states`` : (H + 1,) states of the user."""
        return True

    @abstractmethod
    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        """Return the largest total cost of replacing one user.

        squares : True if costs are squares of changes, False if they are linear in the change.
        """


@dataclass(frozen=True)
class EachStep(Over):
    """Every step has separate cells."""

    def slots(self, horizon: int) -> int:
        return horizon

    def steps(self, horizon: int) -> range:
        return range(horizon)

    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        return heaviest(costs, horizon)


@dataclass(frozen=True)
class OneStep(Over):
    """Only the records of one step (0-based) are counted."""

    step: int

    def steps(self, horizon: int) -> range:
        return range(self.step, self.step + 1)

    def counts(self, states: Ints, step: int) -> bool:
        return step == self.step

    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        return heaviest(costs, 1)


@dataclass(frozen=True)
class AllSteps(Over):
    """Records of all steps are added to the same cells."""

    def in_one_cell(self, horizon: int) -> int:
        return horizon

    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        return (horizon * horizon if squares else horizon) * costs.largest


@dataclass(frozen=True)
class FirstVisitRecords(Over):
    """Only the record of a user's first visit to each state is counted. The visit can occur at any step."""

    def counts(self, states: Ints, step: int) -> bool:
        return not bool((states[:step] == states[step]).any())

    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        return min(states, horizon) * costs.largest


EACH_STEP, ALL_STEPS, FIRST_VISITS = EachStep(), AllSteps(), FirstVisitRecords()
OVERS: tuple[type[Over], ...] = (EachStep, OneStep, AllSteps, FirstVisitRecords)
"""Classes whose price this module derives. Subclasses are rejected: they could state another price."""
