"""Linear mixtures: contracts against enumeration and adversaries, and tables that are the same worlds."""

import itertools
import pickle

import numpy as np
import pytest
from tables_as_linear import as_linear, as_mixture

from discreet.core.layout import Layout
from discreet.envs import random_mdp
from discreet.envs.mdp.linear_mixture import LinearMixtureMDP
from discreet.envs.mdp.planning import optimal_values
from discreet.envs.mdp.tabular import TabularMDP
from discreet.mechanisms.features import Features, MixtureFeatures, one_hot
from discreet.mechanisms.interfaces import ProblemSpec


def test_a_table_is_a_mixture():
    table = random_mdp(states=4, actions=2, horizon=5, seed=1, stationary=False)
    mixture, linear = as_mixture(table), as_linear(table)
    features = mixture.features
    assert (features.dimension, features.bound, features.signed_bound) == (32, 1.0, 1.0)
    assert (features.l1, features.signed_l1, features.weight_bound) == (2.0, 2.0, 4 * 2**0.5)
    assert features.exact
    assert features.nonneg
    v = np.random.default_rng(0).uniform(-1, 1, 4)
    phi = features.values_features(v).reshape(4, 2, 4, 2, 4)
    for s, a in itertools.product(range(4), range(2)):  # v / sqrt(S) in the cells of (s, a), 0 elsewhere
        np.testing.assert_array_equal(phi[s, a, s, a], v / 2)
        assert np.count_nonzero(phi[s, a]) == 4
    plans = [optimal_values(m)[1] for m in (table, mixture.to_tabular(), linear.to_tabular())]
    np.testing.assert_allclose(plans[1], plans[0], atol=1e-12)
    np.testing.assert_allclose(plans[2], plans[0], atol=1e-12)
    with pytest.raises(ValueError, match="entries of features: at most"):
        as_mixture(random_mdp(states=40, actions=4))


def test_vtr_on_a_table_is_one_hot_regression():
    """One fixed V: ridge on (phi_V, V(s')) predicts sum V(s'_i) / (n + lambda S / ||V||^2) (spec 12, 10)."""
    features = as_mixture(random_mdp(states=4, actions=2, horizon=3, seed=0)).features
    rng, lam = np.random.default_rng(3), 0.7
    v = rng.uniform(size=4)
    phi = features.values_features(v)
    s, a, to = rng.integers(4, size=60), rng.integers(2, size=60), rng.integers(4, size=60)
    x, y = phi[s, a], v[to]
    w = np.linalg.solve(lam * np.eye(32) + x.T @ x, x.T @ y)
    n, total = np.zeros((4, 2)), np.zeros((4, 2))
    np.add.at(n, (s, a), 1.0)
    np.add.at(total, (s, a), y)
    np.testing.assert_allclose(phi @ w, total / (n + lam * 4 / (v @ v)), atol=1e-10)


def test_features_travel_with_the_table_and_stay_frozen():
    mdp = as_mixture(random_mdp(states=3, actions=2, horizon=3)).to_tabular()
    for world in (mdp, pickle.loads(pickle.dumps(mdp))):
        assert world.features.signed_bound == 1.0
        np.testing.assert_array_equal(world.features.table, mdp.features.table)
        with pytest.raises(ValueError, match="read-only"):
            world.features.columns[0] = 0.0
        with pytest.raises(ValueError, match="read-only"):
            world.features.table[0] = 0.0
    again = pickle.loads(pickle.dumps(one_hot(2, 2)))
    with pytest.raises(ValueError, match="read-only"):
        again.table[0] = 1.0
    assert random_mdp().features is None


def test_a_spec_tells_the_features():
    from discreet.experiments.simulate import Setup
    from discreet.learners.online.ucbvi import UCBVI
    from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

    mdp = as_mixture(random_mdp(states=3, actions=2, horizon=3)).to_tabular()
    assert Setup(mdp, UCBVI(), NoPrivacy(), 10).spec.features is mdp.features
    assert ProblemSpec(Layout(3, 2, 3)).features is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t, f, w: MixtureFeatures(t, 1.0, bound=0.5), r"bound = 0.5: table\[0, 0\] has a proved"),
        (lambda t, f, w: MixtureFeatures(t, 1.0, signed_l1=0.5), "signed_l1 = 0.5"),
        (lambda t, f, w: MixtureFeatures(t, 0.0), "weight_bound = 0.0"),
        (lambda t, f, w: MixtureFeatures(t * np.nan, 1.0), "must be finite everywhere"),
        (lambda t, f, w: MixtureFeatures(t[:1], 1.0), r"must be \(S, A, S, d\)"),
        (lambda t, f, w: LinearMixtureMDP(t, w, np.zeros((3, 2, 2))), "must be MixtureFeatures"),
        (lambda t, f, w: LinearMixtureMDP(f, w * 1.1, np.zeros((3, 2, 2))), "must be at most weight_bound"),
        (lambda t, f, w: LinearMixtureMDP(f, w * 0.9, np.zeros((3, 2, 2))), "must sum to 1"),
        (lambda t, f, w: LinearMixtureMDP(f, -w, np.zeros((3, 2, 2))), "probabilities must be at least 0"),
        (lambda t, f, w: LinearMixtureMDP(f, w[0], np.zeros((3, 2, 2))), r"must be \(H, d\)"),
        (lambda t, f, w: LinearMixtureMDP(f, w, np.full((3, 2, 2), 1.2)), r"must be in \[0, 1\]"),
        (lambda t, f, w: ProblemSpec(Layout(3, 2, 3), features=f), "must be of S = 3, A = 2"),
        (lambda t, f, w: ProblemSpec(Layout(2, 2, 3), features=t),
         "must be FeatureMap, Features, MixtureFeatures or None"),
        (
            lambda t, f, w: TabularMDP(np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), horizon=2, features=f),
            "must be of S = 3, A = 2",
        ),
        (lambda t, f, w: as_mixture(random_mdp(states=2).__class__(
            np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=2, mask=[[1, 1], [1, 0]])), "all actions"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(make, message):
    table = np.full((2, 2, 2, 4), 0.5)  # w = (1/4, ...) makes every row (1/2, 1/2)
    features, weights = MixtureFeatures(table, 0.5), np.full((3, 4), 0.25)
    assert LinearMixtureMDP(features, weights, np.zeros((3, 2, 2))).horizon == 3
    with pytest.raises(ValueError, match=message):
        make(table, features, weights)


def test_features_of_pairs_are_no_mixture():
    assert not isinstance(one_hot(2, 2), MixtureFeatures)
    assert isinstance(as_linear(random_mdp()).to_tabular().features, Features)
