"""Worlds of contexts: shapes, ranges, what is the same for all users, refusals."""

import pickle

import numpy as np
import pytest

from discreet.device.feature_map import FeatureMap
from discreet.envs.context_worlds import ContextWorld, fixed_arms, per_action_contexts, shared_contexts

WORLDS = {
    "shared": shared_contexts(4, 3, seed=1),
    "arms": fixed_arms(4, 6, seed=1),
    "per action": per_action_contexts(5, 3, seed=1),
    "logit": per_action_contexts(5, 3, link="logit", seed=1),
}


@pytest.mark.parametrize("name", WORLDS)
def test_means_are_probabilities_of_every_action(name):
    world = WORLDS[name]
    x = world.draw(1000, np.random.default_rng(0))
    means = world.means(x)
    assert x.shape == (1000, *world.features.shape)
    assert means.shape == (1000, world.actions)
    assert means.min() >= 0
    assert means.max() <= 1
    assert (world.horizon, world.layout.actions) == (1, world.actions)


@pytest.mark.parametrize("name", ["shared", "arms"])
def test_shared_worlds_are_linear_in_their_features(name):
    world = WORLDS[name]
    x = world.draw(500, np.random.default_rng(0))
    phi, y = world.features(x).reshape(-1, 4), world.means(x).ravel() - 0.5
    theta = np.linalg.lstsq(phi, y, rcond=None)[0]
    assert phi @ theta == pytest.approx(y, abs=1e-12)
    assert np.linalg.norm(theta) == pytest.approx(0.45)


def test_worlds_of_a_seed_are_the_same_and_can_be_sent_to_other_processes():
    for world in WORLDS.values():
        again = pickle.loads(pickle.dumps(world))
        x = world.draw(5, np.random.default_rng(3))
        assert np.array_equal(x, again.draw(5, np.random.default_rng(3)))
        assert np.array_equal(world.means(x), again.means(x))
    one, other = shared_contexts(4, 3, seed=1), shared_contexts(4, 3, seed=2)
    x = one.draw(5, np.random.default_rng(0))
    assert not np.array_equal(one.means(x), other.means(x))


@pytest.mark.parametrize("name", ["shared", "per action"])
def test_other_ranges_change_neither_rewards_nor_features(name):
    world = pickle.loads(pickle.dumps(WORLDS[name]))
    own = world.features
    ranges = {f"c{i}": (10.0 * i, 100.0 + i) for i in range(len(own.ranges))}
    other = FeatureMap(ranges, own.actions, own.form, radius=own.own_radius, intercept=own.intercept)
    found = pickle.loads(pickle.dumps(world.with_features(other)))
    x, z = (one.draw(50, np.random.default_rng(2)) for one in (world, found))
    assert found.means(z) == pytest.approx(world.means(x), abs=1e-12)
    assert other(z) == pytest.approx(own(x), abs=1e-12)
    assert world.with_features(own) is world
    for wrong, words in (
        (FeatureMap(ranges, own.actions + 1, own.form), "actions"),
        (FeatureMap({"a": (0, 1)}, own.actions, own.form), "number of columns = 1"),
        (FeatureMap(ranges, own.actions, "shared" if own.form != "shared" else "per_action"), "form"),
    ):
        with pytest.raises(ValueError, match=words):
            world.with_features(wrong)


def test_fixed_arms_are_the_same_for_all_users():
    x = WORLDS["arms"].draw(3, np.random.default_rng(0))
    assert np.array_equal(x[0], x[2])


def test_what_is_not_a_world_is_refused():
    features = FeatureMap({"a": (-1, 1)}, 2)
    with pytest.raises(ValueError, match=r"draw\(2\) has shape \(2, 3\): must be \(2, 1\)"):
        ContextWorld("x", features, lambda n, _: np.zeros((n, 3)), lambda x: np.zeros((len(x), 2)))
    with pytest.raises(ValueError, match=r"must be \(2, 2\), in \[0, 1\]"):
        ContextWorld("x", features, lambda n, _: np.zeros((n, 1)), lambda x: np.full((len(x), 2), 2.0))
    for make, bad in ((shared_contexts, {"scale": 0.6}), (per_action_contexts, {"link": "probit"})):
        with pytest.raises(ValueError, match=next(iter(bad))):
            make(**bad)
