"""Release of sums over visits with contexts: sensitivity by brute force, noise, order of calls."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from scipy import optimize, stats

import discreet as dr
from discreet.core.rng import Secure, Seeded
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM, RESPONSE
from discreet.mechanisms.linear.context_sums import (
    GRAM_FAMILY,
    RESPONSE_FAMILY,
    ContextSums,
    Visits,
)

CENTRAL = dr.Central(epsilon=1.0, delta=1e-6)


def session(visits=2, privatizer=CENTRAL, randomness=None, columns=2, actions=2):
    """Return a session over ``columns`` columns."""
    features = FeatureMap({f"x{i}": (-1.0, 1.0) for i in range(columns)}, actions)
    return ContextSums(features, visits, privatizer, randomness or Seeded(0, 0))


def some(seed=0, people=3, each=2, columns=2, actions=2):
    """Return ``each`` random visits of each of ``people`` users."""
    rng, n = np.random.default_rng(seed), people * each
    return Visits(
        np.repeat(np.arange(people), each), rng.normal(size=(n, columns)), rng.integers(0, actions, n),
        rng.random(n),
    )  # fmt: skip


def squared_loss(change, scales):
    """Return the squared shift of a change of Gram matrices and responses, in units of the noise."""
    gram, response = change
    return (gram**2).sum() / (2 * scales[GRAM] ** 2) + (response**2).sum() / scales[RESPONSE] ** 2


def sums(phi, actions, y, blocks=2):
    """Return the contribution of one user's visits."""
    gram, response = np.zeros((blocks, phi.shape[1], phi.shape[1])), np.zeros((blocks, phi.shape[1]))
    for x, a, target in zip(phi, actions, y, strict=True):
        gram[a] += np.outer(x, x)
        response[a] += x * (target - 0.5)
    return gram, response


@pytest.mark.parametrize("visits", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_largest_change_is_the_stated_loss(visits, p):
    one = session(visits)
    (record,) = one.records
    scales = {GRAM: record.scales[GRAM_FAMILY], RESPONSE: record.scales[RESPONSE_FAMILY]}
    rng, most = np.random.default_rng([visits, p]), 0.0

    def loss(z, actions):
        phi = z[: 2 * visits * p].reshape(2, visits, p)
        phi = phi / np.maximum(1.0, np.linalg.norm(phi, axis=2, keepdims=True))
        y = np.clip(z[2 * visits * p :].reshape(2, visits), 0.0, 1.0)
        parts = [sums(phi[i], actions[i], y[i]) for i in range(2)]
        return squared_loss([one - two for one, two in zip(*parts, strict=True)], scales)

    for _ in range(6):
        actions = rng.integers(0, 2, (2, visits))
        begin = np.concatenate([2.0 * rng.normal(size=2 * visits * p), rng.random(2 * visits)])
        found = optimize.minimize(lambda z, a=actions: -loss(z, a), begin, method="Nelder-Mead",
                                  options={"maxiter": 300})  # fmt: skip
        most = max(most, -found.fun)
    # users whose visits are all equal, at the angle of lemma 3 or with other actions
    for t in np.linspace(-1.0, 1.0, 201):
        for other in (0, 1):
            first, second = np.zeros((visits, p)), np.zeros((visits, p))
            first[:, 0], second[:, 0] = 1.0, t if p > 1 else math.copysign(1.0, t)
            if p > 1:
                second[:, 1] = math.sqrt(1.0 - t * t)
            parts = [
                sums(first, [0] * visits, [1.0] * visits),
                sums(second, [other] * visits, [0.0] * visits),
            ]
            change = [one - two for one, two in zip(*parts, strict=True)]
            most = max(most, squared_loss(change, scales))
    assert most <= record.joint**2 * (1 + 1e-9)
    if p > 1:  # vectors of one dimension do not have the worst angle
        assert most >= record.joint**2 * (1 - 1e-4)


def test_fewer_visits_of_a_user_are_within_the_bound():
    record = session(3).records[0]
    scales = {GRAM: record.scales[GRAM_FAMILY], RESPONSE: record.scales[RESPONSE_FAMILY]}
    whole = sums(np.array([[1.0, 0.0]] * 3), [0] * 3, [1.0] * 3)
    assert squared_loss(whole, scales) < record.joint**2


@pytest.mark.parametrize("randomness", [Seeded(0, 0), Secure()])
def test_scale_of_the_noise_and_guarantee(randomness):
    one = session(3, randomness=randomness)
    (record,) = one.records
    assert record.scales[GRAM_FAMILY] == pytest.approx(3 * 1.25 / record.joint)
    assert one.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert one.guarantee.delta == 1e-6


@pytest.mark.statistics
@pytest.mark.parametrize("kind", ["seeded", "secure"])
def test_law_of_the_noise(kind):
    """Five tests at 1e-4 each: a false alarm in 1 run of 2000."""
    draws = []
    for run in range(400):
        one = session(2, randomness=Seeded(5, run) if kind == "seeded" else Secure(), columns=3)
        draws.append(one.release())
    scale = one.records[0].scales
    gram = np.array([release.gram for release in draws])
    response = np.array([release.response for release in draws])
    assert np.array_equal(gram, np.swapaxes(gram, 2, 3))
    first, second = np.triu_indices(4, 1)
    off = gram[:, :, first, second].ravel()
    diagonal = np.diagonal(gram, axis1=2, axis2=3).ravel()
    for values, s in ((off, scale[GRAM_FAMILY]), (diagonal, math.sqrt(2) * scale[GRAM_FAMILY]),
                      (response.ravel(), scale[RESPONSE_FAMILY])):  # fmt: skip
        assert stats.kstest(values / s, "norm").pvalue > 1e-4
    assert draws[0].gram_std == pytest.approx(scale[GRAM_FAMILY])
    assert draws[0].response_std == pytest.approx(scale[RESPONSE_FAMILY])
    # entries of one release are uncorrelated
    for one, other in ((gram[:, 0, 0, 1], gram[:, 1, 0, 1]), (gram[:, 0, 0, 0], response[:, 0, 0])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 3.9 / math.sqrt(400)


def test_exact_sums():
    visits, one = some(), session(privatizer=dr.NoPrivacy())
    one.submit_many(visits)
    found = one.release()
    phi = one.features(visits.contexts)
    expected = sums(phi, visits.actions, visits.targets)
    assert np.allclose(found.gram, expected[0])
    assert np.allclose(found.response, expected[1])
    assert (found.users, found.gram_std, found.response_std) == (3, 0.0, 0.0)
    assert one.guarantee.epsilon is None


def test_secure_sums_are_on_the_grid_and_near():
    one, exact = (
        session(randomness=Secure(), privatizer=dr.Central(epsilon=1e3, delta=0.5)),
        session(privatizer=dr.NoPrivacy()),
    )
    for part in (one, exact):
        part.submit_many(some(people=50))
    released, expected = one.release(), exact.release()
    assert np.array_equal(released.gram * 2.0**24, np.rint(released.gram * 2.0**24))
    assert np.abs(released.gram - expected.gram).max() < 8 * released.gram_std + 0.05
    assert np.abs(released.response - expected.response).max() < 8 * released.response_std + 0.05


def test_laplace_noise():
    one = session(2, dr.Central(epsilon=1.0), Seeded(0, 0))
    (record,) = one.records
    assert one.guarantee.epsilon == pytest.approx(1.0)
    assert one.guarantee.delta == 0.0
    # the l1 change of one visit is at most (p + 1) / s_G + sqrt(p) / s_u
    p, s = 3, record.scales
    assert record.joint == pytest.approx(2 * ((p + 1) / s[GRAM_FAMILY] + math.sqrt(p) / s[RESPONSE_FAMILY]))


def test_strange_values_are_allowed_and_bounded():
    one = session(1, dr.NoPrivacy())
    one.submit_many(Visits(np.arange(4), np.array([[np.nan, np.inf], [-np.inf, 1e308], [5e-324, 0], [9, 9]]),
                           np.zeros(4, int), np.ones(4)))  # fmt: skip
    assert np.trace(one.release().gram[0]) <= 4.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"users": np.array([0, 0, 0, 1, 1, 2])}, "more than visits"),
        ({"users": np.array([1, 1, 0, 0, 2, 2])}, "never decrease"),
        ({"actions": np.full(6, 2)}, "actions"),
        ({"targets": np.full(6, 1.5)}, "rewards"),
        ({"contexts": np.zeros((6, 3))}, "contexts"),
        ({"users": np.zeros(5, int)}, "users"),
    ],
)
def test_bad_visits_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        session().submit_many(Visits(**{**vars(some()), **change}))


def test_a_user_is_in_one_call():
    one = session()
    one.submit_many(some())
    with pytest.raises(ValueError, match="earlier calls"):
        one.submit_many(some())


def test_one_release():
    one = session()
    one.submit_many(some())
    one.release()
    with pytest.raises(RuntimeError, match="closed"):
        one.release()
    with pytest.raises(RuntimeError, match="closed"):
        one.submit_many(some())
    with pytest.raises(TypeError, match="copied"):
        copy.copy(one)


def test_bad_arguments():
    shared = FeatureMap({"x": (0.0, 1.0)}, 2, "shared")
    with pytest.raises(ValueError, match=r"features\.form"):
        ContextSums(shared, 1, CENTRAL, Seeded(0, 0))
    with pytest.raises(ValueError, match="visits"):
        session(0)
    with pytest.raises(ValueError, match="privatizer"):
        session(privatizer=dr.Local(epsilon=1.0))


def test_users_without_visits_count():
    one = session()
    one.submit_many(some(), 10)
    assert one.users == 10
    assert one.release().users == 10
