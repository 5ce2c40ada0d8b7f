"""Logged decisions: sensitivity by brute force, estimates without noise, coverage, forecasts, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from discreet.core.rng import Seeded
from discreet.learners.ope.logged_values import LogQuestion, means_of_users
from discreet.mechanisms.dataset.clipped_sum import ClippedSum

QUESTIONS = [LogQuestion(1.0), LogQuestion(10.0, 0.004), LogQuestion(50.0, 0.9, 0.02)]
QUIET = ClippedSum(LogQuestion.SIZE, "gaussian", 2.0**-20)  # almost no noise


def world(seed=0, n=4000, effect=0.3):
    """Return weights, rewards, and the true value and gain of the policy that takes the best action."""
    draw = np.random.default_rng(seed)
    best, logged = draw.integers(3, size=n), np.array([0.1, 0.3, 0.6])
    a = draw.choice(3, n, p=logged)
    y = (draw.random(n) < 0.3 + effect * (a == best)).astype(float)
    return (a == best) / logged[a], y, 0.3 + effect, effect * 2 / 3


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_two_units_are_further_apart_than_the_sensitivity(question):
    grid = np.linspace(0.0, 1.0, 21)
    u, y = np.array(list(itertools.product(grid, grid))).T
    vectors = question.vectors(u * question.cap, y)
    apart = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    bound = ClippedSum.SENSITIVITY * question.clip
    assert apart.max() == pytest.approx(bound, rel=1e-12)  # attained, by (0, 0) and (1, 1)
    assert np.linalg.norm(vectors, axis=1).max() <= question.clip * (1 + 1e-12)
    units = QUIET.clipped(vectors, question.clip).astype(float)
    assert np.linalg.norm(units[:, None] - units[None], axis=2).max() <= 2.0 * 2**20
    # nothing is clipped: entries differ from the vectors by less than one unit of the grid
    assert np.abs(units / 2**20 - vectors / question.clip).max() < 1.001 / 2**20


@pytest.mark.parametrize("question", QUESTIONS)
def test_means_of_several_rows_are_no_further_apart(question):
    """Users with one to five rows, at corners of the rows' values and inside."""
    draw, users = np.random.default_rng(3), 400
    owner = np.sort(np.concatenate([np.arange(users), draw.integers(users, size=4 * users)]))
    u, y = draw.random((2, owner.size)) ** draw.choice([0.0, 1.0, 1e9], (2, owner.size))
    means = means_of_users(question.vectors(u * question.cap, y), owner)
    assert means.shape == (users, LogQuestion.SIZE)
    for user in (0, 1, 17, users - 1):
        own = question.vectors(u[owner == user] * question.cap, y[owner == user]).mean(axis=0)
        assert np.allclose(means[user], own, atol=1e-15)
    apart = np.linalg.norm(means[:, None] - means[None], axis=2)
    bound = ClippedSum.SENSITIVITY * question.clip
    assert 0.8 * bound < apart.max() <= bound * (1 + 1e-12)
    assert np.linalg.norm(means, axis=1).max() <= question.clip * (1 + 1e-12)
    assert np.abs(QUIET.clipped(means, question.clip) / 2**20 - means / question.clip).max() < 1.001 / 2**20


@pytest.mark.statistics
@pytest.mark.parametrize("epsilon_rho", [0.005, 0.05])
def test_intervals_with_correlated_rows_of_a_user(epsilon_rho):
    """400 runs: a user's reward rate and actions are common to all rows; the binomial tail is below 1e-6."""
    question, query = LogQuestion(10.0, 0.4, 0.1), ClippedSum(5, "gaussian", math.sqrt(2.0 / epsilon_rho))
    logged, users, held = np.array([0.1, 0.3, 0.6]), 1500, np.zeros(2)
    for run in range(400):
        draw = np.random.default_rng([run, 77])
        count = draw.integers(1, 8, users)
        owner = np.repeat(np.arange(users), count)
        best, a = draw.integers(3, size=users), draw.choice(3, users, p=logged)  # drawn once for all rows
        rate = np.repeat(draw.beta(1.0, 1.0, users) * 0.6 + 0.3 * (a == best), count)
        y = (draw.random(owner.size) < rate).astype(float)
        w = np.repeat((a == best) / logged[a], count)
        means = means_of_users(question.vectors(w, y), owner)
        verdict = question.read(query.release(means, question.clip, Seeded(run, 1)), users, query.std)
        truth = (0.6, 0.3 * 2 / 3)  # the value, and the gain over the log
        held += [
            one.low <= x <= one.high for one, x in zip((verdict.value, verdict.gain), truth, strict=True)
        ]
    assert (held / 400 >= 0.9).all(), held


def test_the_sums_of_w_y_and_w_alone_have_the_sensitivity_root_two_m():
    corners = np.array([[0.0, 0.0], [0.0, 7.0], [7.0, 7.0]])  # (w y, w) for y in [0, 1] and w in [0, 7]
    apart = np.linalg.norm(corners[:, None] - corners[None], axis=2).max()
    assert apart == pytest.approx(math.sqrt(2.0) * 7.0)


@pytest.mark.parametrize("least", [0.1, None])
def test_estimates_without_noise(least):
    weights, y, _, _ = world()
    question = LogQuestion(10.0, 0.4, least)
    sums = QUIET.release(question.vectors(weights, y), question.clip, Seeded(0, 0))
    found = question.read(sums, len(y), QUIET.std)
    assert found.ips == pytest.approx((weights * y).mean(), abs=1e-4)
    assert found.snips == pytest.approx((weights * y).sum() / weights.sum(), abs=1e-4)
    assert found.logged == pytest.approx(y.mean(), abs=1e-4)
    assert found.method == ("snips" if least else "ips")
    if least:
        # the delta method, for rewards 0 and 1
        w = weights / weights.mean()
        influence = w * (y - found.snips) - (y - y.mean())
        assert found.gain.sampling == pytest.approx(influence.std() / math.sqrt(len(y)), rel=0.02)
        assert found.value.sampling == pytest.approx(
            (w * (y - found.snips)).std() / math.sqrt(len(y)), rel=0.02
        )
    assert found.shown == (found.gain.low > 0.0)


def test_tiny_probabilities_give_the_cap_without_a_warning():
    found = LogQuestion(10.0).weights([1.0, 0.5, 0.0, 0.3], [5e-324, 1e-310, 5e-324, 0.6])
    assert found.tolist() == [10.0, 10.0, 0.0, 0.5]


def test_a_wrong_least_probability_is_not_used():
    weights, y, _, _ = world()
    question = LogQuestion(10.0, 0.4, 0.1)
    sums = QUIET.release(question.vectors(weights / 2.0, y), question.clip, Seeded(0, 0))
    found = question.read(sums, len(y), QUIET.std)
    assert found.method == "ips"
    assert found.refuted
    assert found.value.high > found.ips + 0.4  # the half that the weights lack can have any reward


@pytest.mark.parametrize(("least", "factor"), [(0.1, 0.5), (0.1, 1.5), (None, 1.5)])
def test_a_mean_weight_that_right_probabilities_cannot_have_shows_nothing(least, factor):
    weights, y, _, _ = world(effect=0.6)
    question = LogQuestion(15.0, 0.4, least)
    for scale, refuted in ((1.0, False), (factor, True)):
        sums = QUIET.release(question.vectors(weights * scale, y), question.clip, Seeded(0, 0))
        found = question.read(sums, len(y), QUIET.std)
        assert found.refuted == refuted
        assert found.shown != refuted
    low = question.read(  # a mean weight below 1 refutes nothing if weights may be cut
        QUIET.release(question.vectors(weights / 2, y), question.clip, Seeded(0, 0)), len(y), QUIET.std
    )
    assert low.refuted == (least is not None)


@pytest.mark.parametrize("least", [0.002, None])
@pytest.mark.parametrize("rows", [50, 2000])
def test_rare_large_weights_refute_nothing(least, rows):
    """Weights are 500 with chance 1/500. 20 000 runs without noise have no false alarm.

    The exact chance of one is below 1e-5 (Poisson: no weight at 2000 rows has e^-4, and is not refuted).
    """
    question = LogQuestion(500.0, 0.5, least)
    counts = np.random.default_rng(0).binomial(rows, 1 / 500, 20_000)
    for k in np.unique(counts):
        weights = np.repeat([500.0, 0.0], [k, rows - k])
        sums = question.vectors(weights, np.zeros(rows)).sum(axis=0) / question.clip
        assert not question.read(sums, rows, 1e-9).refuted


def test_noise_alone_refutes_nothing():
    """2000 runs; one has a false alarm with chance below 1e-4, so that 4 or more have less than 1e-4."""
    query, question = ClippedSum(LogQuestion.SIZE, "gaussian", 30.0), LogQuestion(10.0, 0.4, 0.1)
    weights, y, _, _ = world(n=500)
    fair = weights / weights.mean()
    alarms = 0
    for seed in range(2000):
        sums = query.release(question.vectors(np.minimum(fair, 10.0), y), question.clip, Seeded(seed, 2))
        alarms += question.read(sums, 500, query.std).refuted
    assert alarms < 4


@pytest.mark.parametrize(("least", "effect"), [(0.1, 0.3), (None, 0.3), (0.1, 0.0), (None, 0.0)])
def test_intervals_hold_value_and_gain_and_nothing_is_shown_without_effect(least, effect):
    """Each share of 200 runs is at least 95 %. If it is below 90 %, the chance is below 0.002 (binomial)."""
    query, question = ClippedSum(LogQuestion.SIZE, "gaussian", 4.0), LogQuestion(10.0, 0.4, least)
    held = np.zeros(3)
    for seed in range(200):
        weights, y, value, gain = world(seed, 2000, effect)
        sums = query.release(question.vectors(weights, y), question.clip, Seeded(seed, 1))
        found = question.read(sums, len(y), query.std)
        held += (
            found.value.low <= value <= found.value.high, found.gain.low <= gain <= found.gain.high,
            found.shown and not effect,
        )  # fmt: skip
    assert held[0] >= 180
    assert held[1] >= 180
    assert held[2] <= 12


def test_rare_outcomes_are_hopeless_at_a_small_budget():
    question = LogQuestion(10.0, 0.004)
    noisy, quiet = (ClippedSum(LogQuestion.SIZE, "gaussian", scale) for scale in (9.0, 0.1))
    assert question.forecast(10_000, noisy.std).hopeless
    found = question.forecast(1_000_000, quiet.std)
    assert not found.hopeless
    assert found.most is None  # weights may be cut
    found = LogQuestion(10.0, 0.004, 0.1).forecast(1_000_000, quiet.std)
    assert 0.0 < found.least <= found.most
    assert LogQuestion(10.0, 0.996).forecast(10_000, noisy.std).hopeless


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cap": 0.5}, "cap"), ({"cap": math.inf}, "cap"), ({"expected": 0.0}, "expected"),
        ({"expected": 1.0}, "expected"), ({"least": 0.0}, "least"), ({"least": 1.5}, "least"),
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        LogQuestion(**{"cap": 10.0, **change})


def test_sums_and_levels_are_checked():
    question = LogQuestion(10.0)
    with pytest.raises(ValueError, match="sums"):
        question.read(np.zeros(4), 10, 1.0)
    for level in (0.0, 1.0):
        with pytest.raises(ValueError, match="level"):
            question.read(np.zeros(5), 10, 1.0, level)
        with pytest.raises(ValueError, match="level"):
            question.forecast(10, 1.0, level)
    with pytest.raises(ValueError, match="users"):
        question.forecast(0, 1.0)
