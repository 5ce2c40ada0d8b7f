"""Heavy-tailed environments: means with and without truncation, distributions, and bad values."""

import numpy as np
import pytest
from scipy import integrate, stats

import discreet as dr
from discreet.envs import heavy_riverswim, heavy_tailed, rollout_batch
from discreet.envs.mdp.tabular import TabularMDP


def _mean(density, bound):
    """E max(-B, min(X, B)) by numerical integration, for a continuous distribution."""
    inner = integrate.quad(lambda x: x * density.pdf(x), -bound, bound, limit=500, points=[0.0, 1.0])[0]
    return inner + bound * (density.sf(bound) - density.cdf(-bound))


@pytest.mark.parametrize("bound", [1.0, 8.0, 50.0])
def test_drawn_means_are_those_of_the_truncated_rewards(bound):
    for tail, density in (
        ("student", stats.t(1.7, loc=1.0, scale=0.8)),
        ("pareto", stats.lomax(1.7, scale=0.7)),
    ):
        mdp = heavy_riverswim(threshold=bound, tail=tail, index=1.7, scale=0.8)
        mapped = (mdp.rewards[0, 5, 1] - 0.5) * 2.0 * bound
        assert mapped == pytest.approx(_mean(density, bound), abs=1e-6)
        true = (mdp.judge.rewards[0] - 0.5) * 2.0 * bound
        assert true == pytest.approx(dr.make("riverswim").rewards[0], abs=1e-12)
        assert mdp.reward_map.original_return(1.0, 1) == pytest.approx(bound)


def test_tail_probabilities_are_those_of_the_distribution():
    mdp = heavy_riverswim(threshold=20.0, index=1.7, scale=0.8)
    grid = (mdp.reward_support - 0.5) * 40.0
    law = mdp.outcome_probabilities.reshape(6, 2, -1)[5, 1]
    for k in (-10.0, -2.0, 3.0, 12.0):
        near = law[grid > k].sum()
        low, high = (stats.t.sf((x - 1.0) / 0.8, 1.7) for x in (k * 0.8 + 0.4, k * 1.2 - 0.4))
        assert min(low, high) - 0.02 <= near <= max(low, high) + 0.02


def test_a_pair_without_reward_has_none_under_pareto():
    mdp = heavy_tailed(dr.make("gamble"), threshold=4.0, tail="pareto")
    played = rollout_batch(mdp, np.zeros((10, 3), np.int64), 50)
    assert ((played.rewards >= 0.5) & (played.rewards <= 1.0)).all()
    zero = mdp.judge.rewards[0] == 0.5
    assert (mdp.rewards[0][zero] == 0.5).all()


def test_regret_counts_the_rewards_before_truncation():
    world = heavy_riverswim(threshold=1.0, tail="pareto", index=1.5)
    values = dr.envs.optimal_values(world.judge)[0][0]
    plain = dr.envs.optimal_values(dr.make("riverswim"))[0][0]
    assert (values - 10.0) * 2.0 == pytest.approx(plain)
    setup = dr.experiments.simulate.Setup(world, dr.learners.UCBVI(), dr.NoPrivacy(), 50)
    assert not setup.fused
    assert (setup.optimal_value - 10.0) * 2.0 == pytest.approx(plain[0])
    assert dr.make("riverswim").judge is not world.judge


def test_bad_values_are_refused():
    for options, message in (
        ({"threshold": 0.5}, "threshold = 0.5"),
        ({"index": 1.0}, "index = 1"),
        ({"scale": 0.0}, "scale = 0"),
        ({"tail": "normal"}, "tail = 'normal'"),
    ):
        with pytest.raises(ValueError, match=message):
            heavy_riverswim(**options)
    by_successor = TabularMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2, 2)), horizon=3)
    with pytest.raises(ValueError, match="successor"):
        heavy_tailed(by_successor, threshold=2.0)
    with pytest.raises(ValueError, match="rewards"):
        TabularMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=3, true_rewards=np.full((2, 2), 1.5))
