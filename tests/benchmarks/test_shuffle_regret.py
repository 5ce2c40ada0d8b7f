"""The comparison of shuffle with a trusted server is like for like, and prints what it measured."""

import numpy as np
import pytest

import discreet as dr
from benchmarks.studies.shuffle_regret import compare, noise_per_cell, setups, table


def test_arms_differ_in_the_privatizer_alone():
    runs = setups(dr.make("riverswim", rewards="bernoulli"), 2_000, 1.0, 1e-6)
    central, shuffle = runs["central, batches"], runs["shuffle"]
    assert central.learner.replan_growth == shuffle.learner.replan_growth
    assert (central.times == shuffle.times).all()
    spec = shuffle.spec
    mine, other = central.learner.tuned(central.spec), shuffle.learner.tuned(spec)
    for knob in ("stat_scale", "priv_scale", "excess", "pooled", "replan_growth", "consistent"):
        assert getattr(mine, knob) == getattr(other, knob)
    assert noise_per_cell(shuffle) == pytest.approx(noise_per_cell(central), rel=5e-3)
    assert shuffle.guarantee.epsilon == pytest.approx(central.guarantee.epsilon, rel=1e-3)
    default = dr.NoiseAwareUCBVI().tuned(spec)  # the arm is what a user gets who gives no knob
    assert default == shuffle.learner.tuned(spec)


def test_the_table_has_a_ratio_for_every_arm():
    world = dr.make("random", states=3, actions=2, horizon=3, seed=1)
    found = compare(setups(world, 300, 5.0, 1e-4, growth=1.5), 3, 2)
    lines = table(found).splitlines()
    assert len(lines) == 2 + 4
    assert "| 1 |" in lines[2]
    assert all(np.isfinite(arm.regret).all() and arm.regret.shape == (2,) for arm in found)
