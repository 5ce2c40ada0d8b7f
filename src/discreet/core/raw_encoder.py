"""Encoder of raw records, and functions that add users' records and noise to a flat vector of cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from discreet.core import trajectory_sums_kernels as kernels
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import (
    CENTERED_REWARDS,
    CUT_REWARDS,
    GROUP_RETURNS,
    POOLED_REWARDS,
    POOLED_TRANSITIONS,
    REWARDS,
    TRANSITIONS,
    VISITS,
)
from discreet.core.query import SumQuery
from discreet.core.releases import Floats, Ints, Message, Plan
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories, Trajectory

if TYPE_CHECKING:
    from discreet.core.protocols import Coins

_CODES = {
    VISITS: 0,
    TRANSITIONS: 1,
    REWARDS: 2,
    CENTERED_REWARDS: 2,
    POOLED_TRANSITIONS: 3,
    POOLED_REWARDS: 4,
    CUT_REWARDS: 6,
}


def family_begins(query: CountQuery) -> Ints:
    """Return (7,) integers: the first cell of each family in the flat vector, or -1 for an absent family.

    Entries 0 to 4 are for visits, transitions, rewards, pooled transitions and pooled rewards. Entry 6 is for
    clipped rewards. Entry 5 is 1 if only first visits to a state are pooled, 2 if only first visits are
    counted, otherwise 0.
    """
    begins = np.full(7, -1, np.int64)
    for f, name in enumerate(query.row_families):
        if name != GROUP_RETURNS:
            begins[_CODES[name]] = query.offsets[f]
    begins[5] = 2 if query.first else int(query.pooled == "first")
    return begins


def noise_vector(
    query: SumQuery, mechanism: CountMechanism, factor: float, coins: Coins, scales: Floats
) -> Floats:
    """Return independent noise for every cell, in the order of families.

    Family f has scale factor * scales[f]. Raises ``RuntimeError`` if a user-declared noise returns another
    number of draws than requested, or a draw that is not finite.
    """
    noise = mechanism.noise
    assert noise is not None
    sizes = np.diff(query.offsets)
    parts = [
        noise.draw(coins, factor * float(scale), int(size), mechanism.grid(name))
        for name, scale, size in zip(query.row_families, scales, sizes, strict=True)
    ]
    for part, size in zip(parts, sizes.tolist(), strict=True):
        if np.shape(part) != (size,) or not np.isfinite(part).all():
            raise RuntimeError(
                f"noise {noise.name!r}: drew {np.shape(part)} values, must be ({size},) finite numbers"
            )
    return np.concatenate(parts)


def add_records(
    query: CountQuery, begins: Ints, records: Trajectories, cells: Floats, cut: float = 0.0
) -> None:
    """Add the counted records of checked users to a flat vector of cells, one user after another.

    ``cut`` : upper limit of a user's total in clipped rewards.
    """
    layout = query.layout
    kernels.add_trajectories(
        records.states, records.actions, records.rewards, layout.row_index, query.counted.start,
        query.counted_steps, query.slots, layout.rows, begins, query.reward_shift, cut, cells, cells,
    )  # fmt: skip


def same_plan(number: int, plan: Plan) -> int:
    """Return ``number``, the plan number of an encoder. Raises ``ValueError`` if ``plan`` has another
    number.
    """
    if plan.number not in (0, number):
        raise ValueError(f"plan.number = {plan.number}: must be {number}, the plan of this encoder")
    return number


@dataclass(frozen=True, eq=False)
class RawEncoder:
    """Encoder for a trusted server: it returns the trajectory unchanged."""

    __repr__ = brief

    number: int  # number of the encoder's plan; messages that are made after that plan are rejected as late
    guarantee: ClassVar[None] = None  # no guarantee: the server is trusted with raw data

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Return the raw trajectory, tagged with the user's plan."""
        return Message(plan=same_plan(self.number, plan), trajectory=trajectory)
