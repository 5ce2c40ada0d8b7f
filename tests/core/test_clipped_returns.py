"""Returns and rewards are clipped on the public grid, and thresholds lie on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.core import clipped_returns as steered
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.noise.noises import LAPLACE
from discreet.core.releases import Schedule
from discreet.core.strategies import Batches
from discreet.core.trajectories import Trajectory

LAYOUT = Layout(3, 2, 4)


def asked(**options: Any) -> CountQuery:
    return CountQuery(LAYOUT, **options)


def cut(value: float) -> CountQuery:
    return asked(visits=False, center_rewards=True, cut=value)


def groups(clip: float, **more: Any) -> CountQuery:
    return asked(groups=2, clip=clip, **more)


def test_returns_are_clipped_and_cuts_lie_on_the_grid() -> None:
    record = Trajectory(np.zeros(5, int), np.zeros(4, int), np.array([0.5, 0.5, 0.25, 0.0]))
    assert groups(1.0).contribution(record)["group_returns"].tolist() == [1.0, 0.0]
    assert groups(1.5).contribution(record)["group_returns"].tolist() == [1.25, 0.0]
    steered.check_on_grid("x", 1.5, 2)
    steered.check_on_grid("x", 1.3, None)
    with pytest.raises(ValueError, match=r"x = 1\.25: must be a multiple of 1 / 2, as rewards are"):
        steered.check_on_grid("x", 1.25, 2)
    with pytest.raises(ValueError, match="query.cut = 1.25"):
        CountMechanism(
            cut(1.25), Schedule(9), "secure", Batches(), LAPLACE, np.full(3, 20.0), reward_grid=2
        )  # fmt: skip
    made = CountMechanism(
        cut(1.25), Schedule(9), "secure", Batches(), LAPLACE, np.full(3, 20.0), reward_grid=4
    )
    assert replace(made, query=cut(1.5)).query.cut == 1.5


QUERY = CountQuery(LAYOUT)


CUT = CountQuery(LAYOUT, visits=False, center_rewards=True, cut=2.0)


def test_cut_rewards_are_judged_at_their_widest() -> None:
    """A cut of 2 of H = 4 may double; the other families stay."""
    names = list(CUT.row_families)
    scales = np.arange(1.0, len(names) + 1)
    wide = steered.widest_scales(CUT, scales)
    assert (wide / scales).tolist() == [2.0 if name == "cut_reward_sums" else 1.0 for name in names]
    assert (steered.widest_scales(QUERY, scales[:3]) == scales[:3]).all()
