"""Sensitivity of the query about contexts, by brute force; sums, records, refusals."""

import itertools
import math

import numpy as np
import pytest

import discreet as dr
from discreet.core.releases import Schedule
from discreet.core.rng import Seeded
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM, RESPONSE
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecord, ContextRecords
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism


def feature_map(p, form, actions=2):
    """A map whose phi is any point of the unit ball of R^p."""
    return FeatureMap({f"x{i}": (-1, 1) for i in range(p)}, actions, form, radius=1.0, intercept=False)


def directions(p):
    """Unit vectors, dense in the plane of the first two coordinates; shorter ones too."""
    angles = np.linspace(0, 2 * np.pi, 181)
    out = np.zeros((angles.size, p))
    out[:, 0] = np.cos(angles)
    if p > 1:
        out[:, 1] = np.sin(angles)
    return np.concatenate([out, 0.5 * out[::20], np.zeros((1, p))])


def record(form, x, action, reward):
    full = x if form == "per_action" else np.stack([x] * 2)
    return ContextRecord(full[None], np.array([action]), np.array([reward]))


def worst(query, norm, gram_scale, response_scale):
    """Largest loss over pairs of records: one at each of the dense directions, the other fixed."""
    form, p, found = query.features.form, query.features.dimension, 0.0
    ends = [0.0, 1.0]
    first = directions(p)[0]
    a = {
        (act, y): query.contribution(record(form, first, act, y))
        for act, y in itertools.product([0, 1], ends)
    }
    for x, act, y in itertools.product(directions(p), [0, 1], [*ends, 0.3]):
        b = query.contribution(record(form, x, act, y))
        for mine in a.values():
            gram, response = mine[GRAM] - b[GRAM], mine[RESPONSE] - b[RESPONSE]
            if norm == "l2":
                loss = (gram**2).sum() / 2 / gram_scale**2 + (response**2).sum() / response_scale**2
                found = max(found, math.sqrt(loss))
            else:
                upper = sum(np.abs(np.triu(one)).sum() for one in gram)
                found = max(found, upper / gram_scale + np.abs(response).sum() / response_scale)
    return found


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("form", ["per_action", "shared"])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.5, 1.0), (2.0, 1.0), (4.0, 1.0)])
def test_the_loss_of_gaussian_noise_is_the_largest_over_all_pairs_of_records(p, form, scales):
    query = ContextQuery(features=feature_map(p, form))
    blocks = query.features.blocks
    at = {GRAM: np.full(blocks, scales[0]), RESPONSE: np.full(blocks, scales[1])}
    (stated,) = query.losses("goe", at)
    found = worst(query, "l2", *scales)
    assert found <= stated * (1 + 1e-9)
    if p > 1:  # on a line, shared features are never orthogonal
        assert found >= stated * (1 - 1e-3)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("form", ["per_action", "shared"])
def test_the_loss_of_laplace_noise_is_at_least_that_of_all_pairs_of_records(p, form):
    query = ContextQuery(features=feature_map(p, form))
    at = {GRAM: np.full(query.features.blocks, 1.0), RESPONSE: np.full(query.features.blocks, 2.0)}
    (stated,) = query.losses("laplace", at)
    assert worst(query, "l1", 1.0, 2.0) <= stated * (1 + 1e-9)


@pytest.mark.parametrize("actions", [2, 5, 50])
def test_the_scale_at_mu_does_not_depend_on_the_number_of_actions(actions):
    query = ContextQuery(features=feature_map(3, "per_action", actions))
    scales = query.calibrated("goe", 0.5, 1)
    assert scales[GRAM] == pytest.approx(np.full(actions, 2.5), rel=1e-12)
    assert scales[RESPONSE] == pytest.approx(np.full(actions, 2.5), rel=1e-12)


@pytest.mark.parametrize("noise", ["goe", "triangle", "laplace"])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 4.0])
def test_calibrated_scales_have_the_loss_that_was_asked_for(noise, ratio):
    query = ContextQuery(features=feature_map(2, "per_action", 3), gram_ratio=ratio)
    scales = query.calibrated(noise, 0.7, 1)
    assert query.losses(noise, scales) == pytest.approx((0.7,), rel=1e-12)
    assert scales[GRAM][0] / scales[RESPONSE][0] == pytest.approx(ratio, rel=1e-12)


def test_a_smaller_scale_of_one_block_counts_for_all():
    query = ContextQuery(features=feature_map(2, "per_action", 3))
    at = {GRAM: np.array([1.0, 1.0, 0.5]), RESPONSE: np.ones(3)}
    assert query.losses("goe", at) == query.losses("goe", {GRAM: np.full(3, 0.5), RESPONSE: np.ones(3)})


def test_noise_of_one_sign_in_the_triangle_is_priced_by_its_diagonal():
    """N(0, s^2) on the diagonal is GOE(s / sqrt 2), also measured at one-dimensional features."""
    query = ContextQuery(features=feature_map(1, "per_action"))
    at = {GRAM: np.ones(2), RESPONSE: np.full(2, 1e9)}
    one, other = (query.contribution(record("per_action", np.array([1.0]), a, 0.5)) for a in (0, 1))
    exact = math.sqrt(((one[GRAM] - other[GRAM]) ** 2).sum())
    assert exact == pytest.approx(query.losses("triangle", at)[0], rel=1e-6)


@pytest.mark.parametrize("form", ["per_action", "shared"])
def test_sums_of_many_are_sums_of_each(form):
    query = ContextQuery(features=FeatureMap({"a": (-1, 1), "b": (0, 3)}, 3, form))
    rng, n = np.random.default_rng(4), 50
    people = ContextRecords(
        rng.normal(size=(n, 1, *query.features.shape)), rng.integers(0, 3, (n, 1)), rng.random((n, 1))
    )
    whole = query.checked(people, n)
    total = query.from_cells(query.to_cells(query.sum_tables(query.prepared({}), query.sums_of(whole))))
    for name in (GRAM, RESPONSE):
        assert total[name] == pytest.approx(sum(query.contribution(one)[name] for one in whole), abs=1e-12)


def test_records_are_copied_and_of_their_own_type():
    query = ContextQuery(features=feature_map(2, "per_action"))
    contexts = np.zeros((1, 2))
    mine = query.checked(ContextRecord(contexts, np.array([0]), np.array([0.5])))
    contexts[0, 0] = 7.0
    assert not mine.contexts.any()
    with pytest.raises(ValueError, match="record is a Trajectory: must be ContextRecord"):
        query.checked(dr.Trajectory(np.zeros(2, int), np.zeros(1, int), np.zeros(1)))
    with pytest.raises(ValueError, match=r"sums lacks 'gram'"):
        query.sum_tables(query.prepared({}), {})
    with pytest.raises(ValueError, match="features = 3"):
        ContextQuery(features=3)
    with pytest.raises(ValueError, match="gram_ratio"):
        ContextQuery(features=query.features, gram_ratio=0.0)


def test_batches_of_different_users_cost_what_one_costs():
    query = ContextQuery(features=feature_map(2, "per_action"))
    losses = set()
    for releases in (1, 5, 20):
        schedule = Schedule(100, times=np.arange(releases + 1), reads="measurements")
        found = dr.Central(epsilon=1.0, delta=1e-6).mechanism(query, schedule, Seeded(0, 0))
        assert isinstance(found, LinearMechanism)
        losses.add(found.guarantee.mu)
    assert len(losses) == 1


def test_trees_are_refused_where_each_batch_is_read():
    query = ContextQuery(features=feature_map(2, "per_action"))
    schedule = Schedule(100, times=np.arange(9), reads="measurements")
    with pytest.raises(ValueError, match="release = 'tree': must be 'auto' or 'batches'"):
        dr.Central(epsilon=1.0, delta=1e-6, release="tree").mechanism(query, schedule, Seeded(0, 0))
