"""Feature contracts against enumeration: suprema, closed forms, bounds, and refusals."""

import itertools

import numpy as np
import pytest

from discreet.mechanisms.features import Features, MixtureFeatures, one_hot

NAMES = ("bound", "signed_bound", "l1", "signed_l1")


def enumerated(table):
    """The four suprema over all vertices of the two cubes of values, one by one."""
    s = len(table)
    found = dict.fromkeys(NAMES, 0.0)
    for low, euclidean, absolute in ((0.0, "bound", "l1"), (-1.0, "signed_bound", "signed_l1")):
        for v in itertools.product((low, 1.0), repeat=s):
            phi = np.tensordot(table, v, axes=(2, 0))
            found[euclidean] = max(found[euclidean], np.linalg.norm(phi, axis=2).max())
            found[absolute] = max(found[absolute], np.abs(phi).sum(axis=2).max())
    return found


@pytest.mark.parametrize(("states", "seed"), [(2, 0), (3, 1), (5, 2), (8, 3)])
def test_contracts_are_the_enumerated_suprema(states, seed):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(states, 2, states, 3)) * (rng.uniform(size=(states, 2, states, 1)) < 0.7)
    features = MixtureFeatures(table, 1.0)
    assert features.exact
    for name, value in enumerated(table).items():
        assert getattr(features, name) == pytest.approx(value, rel=1e-12)
    assert features.signed_bound <= 2 * features.bound * (1 + 1e-12)


def test_features_of_one_sign_have_closed_forms_at_any_size():
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.full(30, 0.2), (30, 2, 4)).transpose(0, 1, 3, 2) * [1, -1, 1, -1]
    features = MixtureFeatures(table, 1.0)  # phi_1 = (1, -1, 1, -1): the norms are 2 and 4
    assert features.exact
    assert not features.nonneg
    np.testing.assert_allclose([getattr(features, name) for name in NAMES], [2, 2, 4, 4], rtol=1e-12)


@pytest.mark.parametrize("shape", [(20, 5), (40, 40)])  # the spectral bound wins in the second
def test_bounds_of_large_mixed_features_are_never_passed(shape):
    """More than 12 successors of both signs: upper bounds, tried with random and hill-climbing values."""
    (states, d), rng = shape, np.random.default_rng(1)
    table = rng.normal(size=(states, 1, states, d))
    features = MixtureFeatures(table, 1.0)
    assert not features.exact
    rows, best = table[:, 0], np.zeros(4)
    v = rng.choice([-1.0, 1.0], (states, 50, states))
    for _ in range(20):  # v <- sign(M M^T v) raises ||M^T v||, its vertex of [0, 1]^S likewise
        phi = np.einsum("snp,spd->snd", v, rows)
        half = np.einsum("snp,spd->snd", (1 + v) / 2, rows)
        best = np.maximum(
            best,
            [
                np.linalg.norm(half, axis=2).max(), np.linalg.norm(phi, axis=2).max(),
                np.abs(half).sum(axis=2).max(), np.abs(phi).sum(axis=2).max(),
            ],
        )  # fmt: skip
        v = np.where(np.einsum("snd,spd->snp", phi, rows) >= 0, 1.0, -1.0)
    proved = np.array([getattr(features, name) for name in NAMES])
    assert (best <= proved).all()
    assert (proved <= 2.5 * best).all()  # and of use
    coordinates = np.linalg.norm(np.abs(rows).sum(axis=1), axis=1).max()
    assert (features.signed_bound < 0.5 * coordinates) == (d == 40)


def test_values_features_are_sums_over_successors():
    rng = np.random.default_rng(2)
    table = rng.normal(size=(4, 3, 4, 5))
    features, v = MixtureFeatures(table, 1.0), rng.normal(size=(2, 6, 4))
    expected = np.einsum("sapd,...p->...sad", table, v)
    np.testing.assert_allclose(features.values_features(v), expected, atol=1e-13)
    np.testing.assert_allclose(features.values_features(v[1, 2]), expected[1, 2], atol=1e-13)
    np.testing.assert_array_equal(features.table, table)
    with pytest.raises(ValueError, match=r"values has shape \(5,\): must be \(\.\.\., 4\)"):
        features.values_features(np.zeros(5))


def test_lsvi_on_one_hot_features_is_tabular():
    """Gram diag(n), estimate = sum (r + V(s')) / (n + lambda), bonus = beta / sqrt(n + lambda) (2.3)."""
    phi, rng, lam = one_hot(4, 2).rows, np.random.default_rng(4), 1.3
    at, y = rng.integers(8, size=50), rng.uniform(size=50)
    gram = phi[at].T @ phi[at]
    n = np.bincount(at, minlength=8)
    np.testing.assert_array_equal(gram, np.diag(n))
    inverse = np.linalg.inv(gram + lam * np.eye(8))
    np.testing.assert_allclose(
        phi @ inverse @ (phi[at].T @ y), np.bincount(at, y, minlength=8) / (n + lam), atol=1e-12
    )
    np.testing.assert_allclose(
        np.sqrt(np.einsum("id,de,ie->i", phi, inverse, phi)), 1 / np.sqrt(n + lam), atol=1e-12
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: Features(t, 0.5), "bound = 0.5"),
        (lambda t: Features(t, 2.0, l1=1.0), "l1 = 1.0"),
        (lambda t: Features(-t, 2.0, nonneg=True), "must be at least 0, as nonneg declares"),
        (lambda t: Features(t * np.nan, 2.0), "must be finite everywhere"),
        (lambda t: Features(t[0], 2.0), "must be"),
    ],
)
def test_false_contracts_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(np.full((2, 3, 2), 0.9))


def test_features_without_a_constant_are_told_apart():
    rng = np.random.default_rng(0)
    assert not Features(rng.normal(size=(4, 4, 3)), 10.0).constant
