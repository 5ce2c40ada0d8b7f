"""Simulated stays with vital signs."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.envs.vitals import VitalsWorld


def test_stays_are_ordered_and_complete():
    stays = VitalsWorld(vitals=5).play(200, 0)
    assert stays.returns.shape == (200,)
    assert set(np.unique(stays.returns)) <= {0.0, 1.0}
    assert (np.diff(stays.stay) >= 0).all()
    starts = np.flatnonzero(np.r_[True, np.diff(stays.stay) > 0])
    assert (stays.step[starts] == 0).all()
    assert len(starts) == 200
    assert stays.vitals.shape == (len(stays.stay), 5)
    assert ((stays.propensities > 0) & (stays.propensities <= 1)).all()


def test_propensities_are_those_of_the_actions():
    stays = VitalsWorld(vitals=3, skill=0.5, swayed=0.3).play(4000, 1)
    # E[1 / p(a)] over taken actions is the number of actions
    assert np.mean(1.0 / stays.propensities) == pytest.approx(3.0, abs=0.1)


def test_seeds_repeat_and_the_best_rule_gains():
    world = VitalsWorld(vitals=4, readings="nonlinear")
    assert np.array_equal(world.play(50, 2).vitals, world.play(50, 2).vitals)
    assert world.play(3000, 3, best=True).returns.mean() > world.play(3000, 3).returns.mean() + 0.15


def test_a_policy_can_decide_once():
    world = VitalsWorld(vitals=2, skill=0.0)
    whole = world.play(2000, 4, lambda x: np.ones(len(x), np.int64))
    once = world.play(2000, 4, lambda x: np.ones(len(x), np.int64), once=True)
    assert (whole.actions == 1).all()
    assert 0.3 < (once.actions == 1).mean() < 0.5


def test_no_effect_means_no_gain():
    world = VitalsWorld(vitals=2, effect=0.0)
    best = world.play(3000, 5, best=True).returns.mean()
    assert best == pytest.approx(world.play(3000, 5).returns.mean(), abs=0.05)


@pytest.mark.parametrize("options", [{"readings": "x"}, {"effect": -1.0}, {"skill": 1.0}, {"swayed": 0.9},
                                     {"vitals": 1}, {"horizon": 0}, {"seed": -1}])  # fmt: skip
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        VitalsWorld(**options)
