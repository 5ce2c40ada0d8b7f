"""Largest change of sums of records when one trajectory is replaced, by an automaton over its steps.

A user contributes one record (s, a, r, s') per step. The neighbouring relation replaces the user's whole
trajectory by any other one. At one step the two records are in one of three cases:

- OTHER: the pairs (s, a) differ;
- SUCCESSOR: the pairs are equal, the next states s' differ;
- SAME: (s, a, s') are equal, and the rewards may differ.

Two users in different states are in different pairs. After SUCCESSOR the users are in different states, after
SAME in one state, after OTHER in any states. Every pair of trajectories is therefore a walk through two
nodes, *one* (both users in one state) and *two*::

    one: OTHER -> one or two;   SUCCESSOR -> two;   SAME -> one;        two: OTHER -> one or two;

and it starts at any node. The maximum of a sum of costs over all walks bounds the change for every layout.
The bound is attained if two states have two admissible actions each.

A family of sums declares which of its cells move in each case, and by how much (:data:`Moves`). A noise
declares the cost of a moved cell: a number that is added over cells (the loss of pure epsilon, or a squared
shift in units of the noise). A case then has a cost, the sum over all moved cells. If every step has cells of
its own, the price of a user is the cost of the heaviest walk. Costs do not depend on the step, so only the
number of steps in each case matters. Among walks with k steps of OTHER, those with the most steps of
SUCCESSOR cost most, since SUCCESSOR moves all that SAME moves: min(H - k, k + 1) steps of SUCCESSOR, because
each of them, except the last step, is followed by OTHER before the next one.

How records reach cells (:class:`Over`) decides how the costs of steps add. With C the largest cost of a case
and m = min(S, H):

- a separate cell for each step: the heaviest walk;
- all steps in one cell: H C if costs are linear in the shift, H^2 C if they are squares (triangle
  inequality);
- only the first visit to each state: m C. Suppose that the two users visit u <= m and v <= m states, c of
  them in common. A common state changes as one step does, by at most C. A state that only one of them visits
  removes one record, which is half of OTHER, so at most C / 2. The sum is at most
  (c + (u - c) / 2 + (v - c) / 2) C <= m C. Whether a visit is the first one is decided before its action and
  successor are known, so the counted transitions still follow the transition probabilities.

Families that reach cells in different ways are priced separately, and the prices are summed: the changes are
in different cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

Moves = tuple[tuple[int, float], ...]
"""(number of cells, absolute change of each)."""
Cost = Callable[[float], float]
"""Cost of one cell that moves by this absolute change."""


class CaseCosts(NamedTuple):
    """Costs of one step in each case. SUCCESSOR costs ``extra + same``."""

    other: float
    extra: float  # of cells that move in SUCCESSOR but not in SAME
    same: float

    @property
    def largest(self) -> float:
        """C: cost of the costliest case."""
        return max(self.other, self.extra + self.same)


class Mix(NamedTuple):
    """Numbers of steps in each case."""

    other: int
    successor: int
    same: int


def mixes(steps: int) -> tuple[Mix, ...]:
    """Return the mix with the most steps of SUCCESSOR for each number of steps in OTHER, from 0 on."""
    most = [(k, min(steps - k, k + 1)) for k in range(steps + 1)]
    return tuple(Mix(k, n, steps - k - n) for k, n in most)


def heaviest(costs: CaseCosts, steps: int) -> float:
    """Return the cost of the heaviest walk of ``steps`` steps with the same costs at each step."""
    if costs.other >= costs.extra + costs.same:
        return steps * costs.other
    return max(
        k.other * costs.other + k.successor * costs.extra + (k.successor + k.same) * costs.same
        for k in mixes(steps)
    )


def heaviest_of(costs: Sequence[CaseCosts]) -> float:
    """Return the cost of the heaviest walk whose step h has the costs ``costs[h]``."""
    one = two = 0.0  # heaviest walk so far that ends with both users in one state, and in two states
    for step in costs:
        apart = max(one, two) + step.other
        one, two = max(apart, one + step.same), max(apart, one + step.extra + step.same)
    return max(one, two)


# ------------------------------------------------------------------------------ from records to cells


@dataclass(frozen=True)
class Over:
    """Way in which the records of one user reach cells. Use one of the subclasses."""

    def slots(self, horizon: int) -> int:
        """Return the size of the family's first axis."""
        return 1

    def records(self, horizon: int, states: int) -> int:
        """Return the largest number of one user's records that are counted."""
        return horizon

    def in_one_cell(self, horizon: int) -> int:
        """Return the largest number of one user's records that one cell can contain."""
        return 1

    def steps(self, horizon: int) -> range | None:
        """Return the counted steps if each step has cells of its own, otherwise None."""
        return None

    def counts(self, states: Ints, step: int) -> bool:
        """Return whether the record of this step is counted. ``states`` : (H + 1,) states of the user."""
        return True

    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        """Return the largest total cost of one user. ``squares``: costs are squares of changes."""
        return self.records(horizon, states) * costs.largest


@dataclass(frozen=True)
class EachStep(Over):
    """Every step has cells of its own."""

    def slots(self, horizon: int) -> int:
        return horizon

    def steps(self, horizon: int) -> range:
        return range(horizon)

    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        return heaviest(costs, horizon)


@dataclass(frozen=True)
class OneStep(Over):
    """Only the records of one step are counted (0-based)."""

    step: int

    def records(self, horizon: int, states: int) -> int:
        return 1

    def steps(self, horizon: int) -> range:
        return range(self.step, self.step + 1)

    def counts(self, states: Ints, step: int) -> bool:
        return step == self.step

    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        return heaviest(costs, 1)


@dataclass(frozen=True)
class AllSteps(Over):
    """All records of a user are added to the same cells, whatever their step."""

    def in_one_cell(self, horizon: int) -> int:
        return horizon

    def price(self, costs: CaseCosts, horizon: int, states: int, squares: bool) -> float:
        return (horizon * horizon if squares else horizon) * costs.largest


@dataclass(frozen=True)
class FirstVisitRecords(Over):
    """Only the record of a user's first visit to each state is counted, whatever its step."""

    def records(self, horizon: int, states: int) -> int:
        return min(states, horizon)

    def counts(self, states: Ints, step: int) -> bool:
        return not bool((states[:step] == states[step]).any())


EACH_STEP, ALL_STEPS, FIRST_VISITS = EachStep(), AllSteps(), FirstVisitRecords()
