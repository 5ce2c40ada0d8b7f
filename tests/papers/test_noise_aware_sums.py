"""Noise-aware from sums alone: the same learner where nothing is lost, and one that runs on trees."""

import numpy as np
import pytest

import discreet as dr
from discreet.experiments.simulate import Setup
from papers.price_of_privacy.noise_aware_sums import NoiseAwareOnSums


def test_without_noise_it_is_the_learner_inside() -> None:
    mdp = dr.make("random", states=4, horizon=5, seed=3)
    ours = Setup(mdp, dr.NoiseAwareUCBVI(), dr.NoPrivacy(), 3000, "batch")
    sums = Setup(mdp, NoiseAwareOnSums(), dr.NoPrivacy(), 3000, "batch")
    assert (ours.fused, sums.fused) == (True, False)
    # exact sums weigh all users alike, in one measurement or in many: equal but for rounding
    assert np.allclose(ours.run(1, 0).regret, sums.run(1, 0).regret, rtol=1e-9)


def test_it_learns_on_a_tree_where_noise_is_small() -> None:
    mdp = dr.make("random", states=4, horizon=5, seed=3)
    tree = dr.Central(epsilon=200.0, release="tree", leaf="user", noise="laplace")
    learner = NoiseAwareOnSums(derive_visits=False, center_rewards=False)
    setup = Setup(mdp, learner, tree, 3000, "batch")
    assert "tree" in setup.guarantee.statement
    assert setup.guarantee.epsilon == pytest.approx(200.0)
    lost = 3000 * (setup.optimal_value - setup.uniform_value)
    assert setup.run(0, 0).regret[-1] < 0.3 * lost


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="priv_scale = -1"):
        NoiseAwareOnSums(priv_scale=-1)
