"""Shapes, bounds and moves of families."""

import numpy as np
import pytest

from discreet.core.exchange import ALL_STEPS, CaseCosts, OneStep
from discreet.core.families import (
    RECORD_FAMILIES,
    ClippedRewards,
    GroupReturns,
    RecordFamily,
    rewards,
    transitions,
    visits,
)
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectory

LAYOUT = Layout(3, 2, 4)


def test_shapes_and_largest_values() -> None:
    assert [family.shape(LAYOUT) for family in (visits(), transitions(), rewards(over=OneStep(1)))] == [
        (4, 6), (4, 6, 3), (1, 6),
    ]  # fmt: skip
    assert [visits(ALL_STEPS).most(LAYOUT), visits().most(LAYOUT)] == [4.0, 1.0]
    groups, clipped = GroupReturns("returns", 3, 2.5), ClippedRewards("clipped", 1.5)
    assert (groups.shape(LAYOUT), groups.most(LAYOUT), groups.by_pair) == ((3,), 2.5, False)
    assert (clipped.shape(LAYOUT), clipped.most(LAYOUT), clipped.by_pair) == ((1, 6), 4.0, True)
    assert [f.integral for f in (visits(), transitions(), rewards(), groups)] == [True, True, False, False]


def test_costs_of_the_cases() -> None:
    assert visits().costs(lambda x: x) == CaseCosts(2.0, 0.0, 0.0)
    assert transitions().costs(lambda x: x) == CaseCosts(2.0, 2.0, 0.0)
    assert rewards().costs(lambda x: x * x) == CaseCosts(2.0, 0.0, 1.0)
    assert rewards(0.5).costs(lambda x: x * x) == CaseCosts(0.5, 0.0, 1.0)
    assert rewards(0.2).costs(lambda x: x) == CaseCosts(1.6, 0.0, 1.0)
    assert GroupReturns("returns", 3, 2.5).price(lambda x: x, LAYOUT, False) == 2.5
    assert ClippedRewards("clipped", 1.5).price(lambda x: x * x, LAYOUT, True) == 4.5
    assert list(RECORD_FAMILIES) == ["visits", "transition_counts", "reward_sums", "centered_reward_sums"]


def test_sums_of_rewards_by_successor_are_refused() -> None:
    with pytest.raises(ValueError, match="by_successor"):
        RecordFamily("r", by_successor=True, center=0.5)
    with pytest.raises(ValueError, match="center"):
        rewards(1.5)


def test_values_that_plans_set_are_added_by_compiled_code_only() -> None:
    record = Trajectory(np.zeros(5, np.int64), np.zeros(4, np.int64), np.zeros(4))
    with pytest.raises(ValueError, match="family 'returns': is summed only as an option of CountQuery"):
        GroupReturns("returns", 3, 2.5).add(record, LAYOUT, {}, None, np.zeros(3))
