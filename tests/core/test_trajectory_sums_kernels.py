"""Sums over many users are those of one user after the other."""

from typing import Any

import numpy as np
import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.raw_encoder import add_record, family_begins
from discreet.core.trajectories import Trajectory
from discreet.core.trajectory_sums_kernels import add_trajectories

LAYOUT = Layout(3, 2, 4)


@pytest.mark.parametrize("options", [{}, {"stationary": True}, {"pooled": "first"}])
@pytest.mark.parametrize("restricted", [False, True])
def test_many_at_once_are_one_by_one(options: dict[str, Any], restricted: bool) -> None:
    query, rng = CountQuery(LAYOUT, **options), np.random.default_rng(7)
    states, actions = rng.integers(3, size=(30, 5)), rng.integers(2, size=(30, 4))
    rewards, begins = rng.integers(9, size=(30, 4)) / 8, family_begins(query)
    played = (rng.random((4, LAYOUT.rows)) < 0.5) if restricted else None
    cells, expected = np.zeros(query.cells), np.zeros(query.cells)
    allowed = np.zeros((0, LAYOUT.rows)) if played is None else played.astype(float)
    add_trajectories(
        states, actions, rewards, LAYOUT.row_index, 0, 4, query.slots, LAYOUT.rows, begins,
        query.reward_shift, 0.0, allowed, cells, cells,
    )  # fmt: skip
    for one in zip(states, actions, rewards, strict=True):
        add_record(query, begins, Trajectory(*one), expected, played)
    np.testing.assert_array_equal(cells, expected)
