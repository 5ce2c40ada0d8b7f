"""Learner of policies from stored visits: posterior, shrinkage, and gain in a simulated world."""

from __future__ import annotations

import numpy as np
import pytest

import discreet as dr
from discreet.core.rng import Seeded
from discreet.device.feature_map import FeatureMap
from discreet.envs.vitals import VitalsWorld
from discreet.learners.offline import linear_advantage as module
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.mechanisms.linear.context_sums import ContextRelease, Visits

FEATURES = FeatureMap({"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, 2)


def release(n=4000, seed=0, epsilon=None, effect=0.3):
    """Return a release of visits in which action 1 is better where x > 0, and the exact visits."""
    rng = np.random.default_rng(seed)
    x, a = rng.uniform(-1, 1, (n, 2)), rng.integers(0, 2, n)
    y = (rng.random(n) < 0.5 + effect * x[:, 0] * (2 * a - 1)).astype(float)
    privatizer = dr.NoPrivacy() if epsilon is None else dr.Central(epsilon=epsilon, delta=1e-6)
    one = LinearAdvantage(visits=1).open(FEATURES, privatizer, Seeded(seed, 0))
    one.submit_many(Visits(np.arange(n), x, a, y))
    return one.release()


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_the_policy_finds_where_an_action_is_better(epsilon):
    policy = LinearAdvantage().learn(release(epsilon=epsilon))
    x = np.array([[-0.7, 0.3], [0.7, -0.3]])
    assert policy(x).tolist() == [0, 1]
    assert np.allclose(policy.advantages(x).sum(axis=1), 0.0)
    assert policy(x[0]).shape == ()


def test_posterior_is_a_ridge_without_noise(monkeypatch):
    monkeypatch.setattr(module, "_SHARED", (1e-9,))
    monkeypatch.setattr(module, "_OWN", (0.5,))
    one = release(300)
    found = LinearAdvantage().learn(one).theta
    for a in range(2):
        g = one.gram[a]
        # prior variance 1/4, sampling covariance g / 4: the ridge is 1
        expected = np.linalg.solve(g + np.eye(3) * module.SIGMA2 / 0.25, one.response[a])
        assert np.allclose(found[a], expected, atol=1e-5)


def test_equal_matrices_are_pooled_and_different_ones_are_not():
    rng = np.random.default_rng(0)
    base = np.diag([50.0, 20.0, 5.0])
    noise = rng.normal(size=(2, 3, 3))
    noise = (noise + np.swapaxes(noise, 1, 2)) / np.sqrt(2)
    _, variance = module._pooled(np.stack([base, base]) + noise, 1.0)
    assert variance.max() < 0.9
    apart = np.stack([base, base[::-1, ::-1]]) + noise
    kept, variance = module._pooled(apart, 1.0)
    assert variance.min() > 0.9
    assert np.abs(kept[1] - apart[1]).max() < 1.0
    assert np.array_equal(module._pooled(apart, 0.0)[1], [0.0, 0.0])


def test_noise_alone_gives_a_finite_policy():
    one = ContextRelease(FEATURES, 1, 3, -np.stack([np.eye(3)] * 2), np.ones((2, 3)), 5.0, 5.0)
    assert np.isfinite(LinearAdvantage().learn(one).theta).all()


def test_estimates_are_near_the_truth_under_noise():
    errors = []
    for seed in range(30):
        theta = LinearAdvantage(visits=1).learn(release(2000, seed, 1.0)).theta
        errors.append((theta[1] - theta[0])[0] / FEATURES.own_radius - 0.6)
    assert abs(np.mean(errors)) < 0.25  # 0.6 is the slope; noise shrinks it
    assert np.std(errors) < 0.25


def test_gain_in_a_world_of_vitals():
    world = VitalsWorld(seed=1)
    stays = world.play(3000, 5)
    rng = np.random.default_rng(0)
    keep = rng.random(len(stays.stay)) < 0.1
    order = np.flatnonzero(keep)
    _, first = np.unique(stays.stay[order], return_index=True)
    order = order[first]
    one = LinearAdvantage(visits=1).open(world.features, dr.Central(epsilon=3.0, delta=1e-6), Seeded(0, 0))
    returns = stays.returns[stays.stay[order]]
    one.submit_many(Visits(stays.stay[order], stays.vitals[order], stays.actions[order], returns), 3000)
    policy = LinearAdvantage(visits=1).learn(one.release())
    gain = world.play(4000, 9, policy).returns.mean() - world.play(4000, 9).returns.mean()
    assert gain > 0.1


def test_bad_options():
    with pytest.raises(ValueError, match="visits"):
        LinearAdvantage(visits=0)
    assert LinearAdvantage().most == 3
