"""Worlds with features: regression values at seed 0, contracts, and that a good policy matters."""

import numpy as np
import pytest

from discreet.envs import (
    hypercube,
    hypercube_mdp,
    linear_mixture,
    linear_mixture_mdp,
    random_linear,
    random_linear_mdp,
    wide_linear,
    wide_linear_mdp,
)
from discreet.envs.mdp.linear_mixture import LinearMixtureMDP
from discreet.envs.mdp.planning import (
    evaluate_policy,
    occupancy,
    optimal_values,
    policy_value,
    uniform_policy,
)
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.experiments.simulate import Setup
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.mechanisms.features import MixtureFeatures, one_hot
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.registry import make


def values(mdp):
    """v* and the values of the uniform and the myopic policy."""
    myopic = np.tile(mdp.rewards.argmax(axis=2), (mdp.horizon // len(mdp.rewards), 1))
    best = float(mdp.initial @ optimal_values(mdp)[0][0])
    return [best, policy_value(mdp, uniform_policy(mdp)), policy_value(mdp, myopic)]


@pytest.fixture(scope="module")
def wide():
    return wide_linear()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear-mixture", [1.4770761792127147, 0.370017276992779, 1.274859668431801]),
        ("hypercube", [2.7119140625, 2.009387860082305, 1.8856608072916665]),
        ("linear-mdp", [2.9929559951934515, 2.654157739268282, 2.9818923093253145]),
    ],
)
def test_regression_values_of_seed_0(name, expected):
    mdp = make(name)
    assert values(mdp) == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(mdp.transitions.sum(axis=-1), 1.0, atol=1e-12)
    assert mdp.rewards.min() >= 0
    assert mdp.rewards.max() <= 1


def test_reference_regrets_of_the_mixture_benchmark():
    """Spec 11.2, instance 0: regret per episode 1.10 (uniform) and 0.20 (myopic); ours 1.107 and 0.202."""
    best, uniform, myopic = values(linear_mixture())
    assert best - uniform == pytest.approx(1.10, abs=0.01)
    assert best - myopic == pytest.approx(0.20, abs=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_the_mixture_is_a_mixture(seed):
    model = linear_mixture_mdp(states=6, actions=3, horizon=4, models=3, seed=seed)
    phi = model.features
    assert (phi.exact, phi.nonneg, phi.bound, phi.signed_bound) == (True, True, 1.0, 1.0)
    assert (phi.weight_bound, phi.l1) == (3**0.5, 3**0.5)
    draw = np.random.default_rng(seed)
    base = draw.dirichlet(np.full(6, 0.15), (3, 6, 3))
    shares = draw.dirichlet(np.full(3, 0.5), 4)
    np.testing.assert_allclose(
        model.to_tabular().transitions, np.einsum("hm,msap->hsap", shares, base), atol=1e-12
    )
    v = np.random.default_rng(9).choice([-1.0, 1.0], (500, 6))
    assert np.linalg.norm(phi.values_features(v), axis=-1).max() <= 1 + 1e-12
    assert linear_mixture(seed=seed).features.dimension == 5


def test_rewards_of_the_mixture_can_be_a_mixture_too():
    model = linear_mixture_mdp(horizon=6, reward_models=3, seed=2)
    psi = model.features.rewards
    assert (psi.dimension, psi.bound, psi.nonneg, psi.constant) == (3, 1.0, True, False)
    assert np.linalg.matrix_rank(model.rewards.reshape(6, -1)) == 3
    theta = np.linalg.lstsq(psi.rows, model.rewards.reshape(6, -1).T, rcond=None)[0]
    np.testing.assert_allclose(theta.sum(axis=0), 3**0.5)
    assert np.linalg.norm(theta, axis=0).max() <= model.features.reward_weight_bound == 3**0.5
    plain = linear_mixture_mdp(horizon=6, seed=2)
    np.testing.assert_array_equal(plain.weights, model.weights)
    with pytest.raises(ValueError, match="not linear"):
        LinearMixtureMDP(model.features, model.weights, plain.rewards)
    short = MixtureFeatures(model.features.table, 3.0, rewards=psi, reward_weight_bound=0.1)
    with pytest.raises(ValueError, match="reward_weight_bound"):
        LinearMixtureMDP(short, model.weights, model.rewards)
    for bad in ({"rewards": model.features}, {"reward_weight_bound": 1.0}, {"rewards": one_hot(2, 2)}):
        with pytest.raises(ValueError, match="reward"):
            MixtureFeatures(model.features.table, 3.0, **bad)


@pytest.mark.parametrize(("dimension", "horizon"), [(2, 2), (4, 5), (6, 12)])
def test_the_hypercube_keeps_its_contracts(dimension, horizon):
    model = hypercube_mdp(dimension=dimension, horizon=horizon, seed=3)
    delta, total = 1 / horizon, 0.5 / horizon
    phi = model.features
    assert phi.exact
    assert phi.bound <= 1
    assert phi.signed_bound**2 == pytest.approx(max(1, (1 - 2 * delta) ** 2 + 4 * total) / (1 + total))
    assert phi.signed_bound**2 <= (1 + 4 * total) / (1 + total)
    np.testing.assert_allclose(np.linalg.norm(model.weights, axis=1), phi.weight_bound)
    mdp = model.to_tabular()
    won = mdp.transitions[:, 0, :, horizon + 1]
    np.testing.assert_allclose(won.max(axis=1), delta + total)
    np.testing.assert_allclose(won.min(axis=1), delta - total)
    # The goal reached at move j pays H - 1 - j; the best corner reaches it with probability delta + D a move.
    chance = delta + total
    by_hand = sum(chance * (1 - chance) ** j * (horizon - 1 - j) for j in range(horizon))
    assert optimal_values(mdp)[0][0, 0] == pytest.approx(by_hand)
    assert hypercube(dimension=dimension, horizon=horizon, seed=3).actions == 2 ** (dimension - 1)


def test_a_gap_that_leaves_no_probability_is_refused():
    with pytest.raises(ValueError, match="gap = 0.2"):
        hypercube_mdp(dimension=3, horizon=6, gap=0.2)
    assert hypercube_mdp(dimension=3, horizon=6, gap=1 / 12).to_tabular().transitions.min() == 0


def test_features_of_the_random_linear_mdp():
    model = random_linear_mdp(seed=4)
    assert (model.features.bound, model.features.l1, model.features.nonneg) == (1.0, 1.0, True)
    assert model.features.constant
    mdp = random_linear(seed=4)
    np.testing.assert_allclose(
        mdp.transitions, np.einsum("sad,hdp->hsap", model.features.table, model.measures), atol=1e-12
    )
    q = optimal_values(mdp)[1]  # Q* is linear in the features
    for h in range(mdp.horizon):
        rows, target = model.features.rows, q[h].ravel()
        np.testing.assert_allclose(rows @ np.linalg.lstsq(rows, target, rcond=None)[0], target, atol=1e-10)


def test_the_wide_world(wide):
    assert values(wide) == pytest.approx(
        [1.132107434249121, 0.13337685420825435, 0.2598271055831478], abs=1e-9
    )
    assert (wide.states, wide.actions, wide.horizon, wide.features.dimension) == (2000, 4, 8, 24)
    assert wide.stationary
    assert wide.probability.size < 4 * 60 * 8000 + 2001
    assert wide.features.constant
    assert wide.features.l1 == 1.0
    reached = occupancy(wide, uniform_policy(wide)).sum(axis=(0, 2)) > 0
    assert reached.all()


def test_a_flow_of_the_wide_world_is_refused(wide):
    assert not Setup(wide, LSVIUCB(), NoPrivacy(), 10**6).batched
    with pytest.raises(ValueError, match="by = 'batch'.*128000000"):
        Setup(wide, LSVIUCB(), NoPrivacy(), 10**6, by="batch")


def test_people_of_the_wide_world_walk_its_levels(wide):
    values_, _, best = optimal_values(wide)
    people = rollout_batch(wide, best, 4000, seed=2)
    levels = people.states % 6
    assert (np.diff(levels, axis=1) <= 1).all()
    # Returns lie in [0, 8]: the mean of 4000 is within 8 sqrt(log(2 / 1e-7) / 8000) of v* (Hoeffding, 1e-7).
    mean = float(people.rewards.sum(axis=1).mean())
    assert abs(mean - wide.initial @ values_[0]) < 8 * (np.log(2e7) / 8000) ** 0.5


def test_what_a_state_tells_of_another_is_in_the_features_only():
    """Effects are permuted by state; the same feature vector means the same row and reward."""
    model = wide_linear_mdp(states=60, levels=3, actions=3, support=20, blend=0.0, horizon=4)
    mdp = model.to_tabular()
    rows, phi = mdp.transitions[0].reshape(180, 60), model.features.rows
    kinds = phi.argmax(axis=1)
    assert set(kinds) == set(range(9))
    for kind in range(9):
        same = rows[kinds == kind]
        np.testing.assert_array_equal(same, np.broadcast_to(same[0], same.shape))
    advance = kinds.reshape(60, 3) % 3 == 0
    assert set(advance.argmax(axis=1)) == {0, 1, 2}
    np.testing.assert_allclose(evaluate_policy(mdp, advance.argmax(axis=1)[None].repeat(4, 0))[0], 0.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: wide_linear(levels=1), "levels = 1"),
        (lambda: wide_linear(blend=0.7), "blend = 0.7"),
        (lambda: wide_linear(actions=2), "actions = 2"),
        (lambda: wide_linear(support=0), "support = 0"),
        (lambda: linear_mixture(rewarding=1.5), "rewarding = 1.5"),
        (lambda: linear_mixture(models=0), "models = 0"),
        (lambda: hypercube(dimension=1), "dimension = 1"),
        (lambda: random_linear(seed=-1), "seed = -1"),
    ],
)
def test_bad_options_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
