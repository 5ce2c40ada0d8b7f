"""The comparison of schedules is of one thing alone, and its table says what each side has."""

import numpy as np
import pytest

import discreet as dr
from benchmarks.studies.schedules import SIDES, WORLDS, rows, table


def test_sides_differ_in_their_schedule_alone() -> None:
    side = next(one for one in SIDES if one[1] is dr.DPUCBVI)
    (row,) = rows(WORLDS[1:], [side], 300, seed=1, seeds=2)
    (arm,) = row.growths.values()
    assert list(row.growths) == [1.1]
    assert (row.every.plans, arm.plans) == (300, 42)
    assert row.every.noise is not None
    assert arm.noise is not None
    assert arm.noise < row.every.noise
    world = dr.make("random", states=6, seed=1001)
    each = dr.simulate(world, dr.DPUCBVI(replan_every=1), side[3], 300, seeds=2, seed=1)
    assert row.every.shares == pytest.approx(each.final_regret / each.uniform_regret, rel=1e-9)
    assert np.isfinite(arm.shares).all()
    lines = table([row]).splitlines()
    assert lines[2].startswith("| dense S=6 #1001 | DP-UCBVI | joint (1, 1e-6) | 1.1 | 42 |")


def test_without_privacy_there_is_no_noise_and_a_finer_schedule() -> None:
    (row,) = rows(WORLDS[:1], SIDES[:1], 100, seed=1, seeds=2)
    assert list(row.growths) == [1.02]
    assert row.every.noise is None
    assert " - | - |" in table([row])
