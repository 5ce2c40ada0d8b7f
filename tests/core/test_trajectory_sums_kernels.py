"""Sums over many users are those of one user after the other."""

from typing import Any

import numpy as np
import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.raw_encoder import add_records, family_begins
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.core.trajectory_sums_kernels import add_trajectories

LAYOUT = Layout(3, 2, 4)


@pytest.mark.parametrize("options", [{}, {"stationary": True}, {"pooled": "first"}])
def test_many_at_once_are_one_by_one(options: dict[str, Any]) -> None:
    query, rng = CountQuery(LAYOUT, **options), np.random.default_rng(7)
    states, actions = rng.integers(3, size=(30, 5)), rng.integers(2, size=(30, 4))
    rewards, begins = rng.integers(9, size=(30, 4)) / 8, family_begins(query)
    cells, expected = np.zeros(query.cells), np.zeros(query.cells)
    add_trajectories(
        states, actions, rewards, LAYOUT.row_index, 0, 4, query.slots, LAYOUT.rows, begins,
        query.reward_shift, 0.0, cells, cells,
    )  # fmt: skip
    for one in zip(states, actions, rewards, strict=True):
        add_records(query, begins, Trajectories.of(Trajectory(*one)), expected)
    np.testing.assert_array_equal(cells, expected)
