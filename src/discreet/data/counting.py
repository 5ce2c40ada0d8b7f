"""Exact sums over all people's steps: what a mechanism adds its noise to.

One pass checks and counts; the tables exist only if every row was good. Transitions are counted, visits are
their sums over the next state. Rewards are rounded to a public grid of 2^-20 before they are summed, so that
every sum is exact in float64 (below 2^33 visits a cell) and does not depend on the order of rows or
files, and exact discrete noise can be laid on the same grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.data import kernels
from discreet.data.readers import Source
from discreet.data.validate import episodes
from discreet.mdp.layout import Layout
from discreet.mdp.trajectories import Trajectories
from discreet.numerics import checks

Floats = NDArray[np.float64]

REWARD_GRID = 2**20


@dataclass(frozen=True, eq=False)
class Counts:
    """Exact counts by admissible pair (row of the layout), raw: they leave the trusted core only with noise.

    visits : (T, R); transitions : (T, R, S); reward_sums : (T, R) float64
        T = H, or 1 if pooled over steps. ``layout.from_rows`` turns them into (T, S, A, ..).
    users, episodes, rows : int
        A step that an ended episode spends in its terminal state counts as any other, but is no row.
    centered : bool
        Whether ``reward_sums`` are of (r - 1/2).
    """

    layout: Layout
    visits: Floats
    transitions: Floats
    reward_sums: Floats
    users: int
    episodes: int
    rows: int
    centered: bool


class Counter:
    """Adds checked episodes to tables of T R S + T R cells of eight bytes.

    pooled : sums over steps; centered : of r - 1/2; grid : rewards count as multiples of 1 / grid, a power
    of two.
    """

    def __init__(
        self, layout: Layout, *, pooled: bool = False, centered: bool = False, grid: int = REWARD_GRID
    ) -> None:
        grid = checks.integer("grid", grid, 2, REWARD_GRID)
        if grid & (grid - 1):
            raise ValueError(f"grid = {grid}: must be a power of two")
        self.layout, self.grid, self.centered = layout, float(grid), checks.flag("centered", centered)
        self.slots = 1 if checks.flag("pooled", pooled) else layout.horizon
        self.transitions = np.zeros(self.slots * layout.rows * layout.states)
        self.sums = np.zeros(self.slots * layout.rows)
        self.episodes = 0

    def add(self, trajectories: Trajectories) -> None:
        """Count episodes that were checked against the layout."""
        layout, kept = self.layout, trajectories
        kernels.count_episodes(
            kept.states, kept.actions, kept.rewards, layout.row_index, self.slots, layout.rows,
            0.5 if self.centered else 0.0, self.grid, self.transitions, self.sums,
        )  # fmt: skip
        self.episodes += len(trajectories)

    def counts(self, users: int, rows: int) -> Counts:
        """The tables so far; they are the counter's own."""
        shape = (self.slots, self.layout.rows)
        transitions = self.transitions.reshape(*shape, self.layout.states)
        return Counts(
            self.layout, transitions.sum(axis=2), transitions, self.sums.reshape(shape), users, self.episodes,
            rows, self.centered,
        )  # fmt: skip


def count(
    source: Source, *, pooled: bool = False, centered: bool = False, grid: int = REWARD_GRID, **how: Any
) -> Counts:
    """Check and count all rows of a source; ``how`` and errors: :func:`discreet.data.validate.episodes`."""
    counter = Counter(source.schema.layout, pooled=pooled, centered=centered, grid=grid)
    users = rows = 0
    for part in episodes(source, **how):
        counter.add(part.trajectories)
        users, rows = int(part.user[-1]) + 1, part.rows
    return counter.counts(users, rows)
