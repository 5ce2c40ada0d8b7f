"""Held-out verdict about a policy of contexts."""

from __future__ import annotations

import numpy as np
import pytest

import discreet as dr
from discreet.core.rng import Seeded
from discreet.device.feature_map import FeatureMap
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.learners.ope.advantage_verdict import FLOOR, AdvantageQuestion
from discreet.mechanisms.dataset.clipped_sum import ClippedSum
from discreet.mechanisms.linear.context_sums import Visits

FEATURES = FeatureMap({"x": (-1.0, 1.0)}, 2)


def visits(n, seed, effect=0.3):
    """Return one visit of each of n users, and the probabilities of their actions, which depend on x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 1))
    chance = 0.5 + 0.3 * x[:, 0]
    a = (rng.random(n) < chance).astype(int)
    mean = 0.5 + 0.2 * x[:, 0] + effect * x[:, 0] * (2 * a - 1) * 0.5
    y = (rng.random(n) < mean).astype(float)
    return Visits(np.arange(n), x, a, y), np.where(a == 1, chance, 1 - chance)


def question(seed, effect=0.3, n=4000, epsilon=3.0):
    """Return the question about a policy that was learned from n users."""
    learner = LinearAdvantage(visits=1)
    one = learner.open(FEATURES, dr.Central(epsilon=epsilon, delta=1e-6), Seeded(seed, 0))
    one.submit_many(visits(n, [seed, 1], effect)[0])
    release = one.release()
    return AdvantageQuestion(learner.learn(release), release, 1), one.records[0]


def judged(seed, effect, n=4000, logged=False):
    """Return the verdict of n other users."""
    asked, record = question(seed, effect)
    query = ClippedSum.matching(record, AdvantageQuestion.SIZE)
    given, chance = visits(n, [seed, 2], effect)
    answers = asked.answers(given, n, chance if logged else None)
    clip = asked.clip(n, query.multiplier)
    sums = query.release(asked.vectors(answers, clip), clip, Seeded(seed, 3))
    return asked, asked.read(sums, clip, n, query.std, logged=logged)


@pytest.mark.parametrize("logged", [False, True])
def test_a_gain_is_shown_and_its_interval_holds_the_truth(logged):
    asked, found = judged(1, 0.3, logged=logged)
    x = np.random.default_rng(0).uniform(-1, 1, (200_000, 1))
    best = asked.policy(x)
    truth = (0.15 * x[:, 0] * (2 * best - 1) - 0.15 * x[:, 0] * 0.6 * x[:, 0]).mean()
    assert found.shown
    assert found.low < truth < found.high
    assert found.deviation == pytest.approx(np.hypot(np.hypot(found.sampling, found.noise), found.model))


@pytest.mark.statistics
@pytest.mark.parametrize("logged", [False, True])
def test_no_effect_is_rarely_shown(logged):
    """At most 12 of 120 with chance 2.5 % each: a false alarm in 1 run of 10 000."""
    assert sum(judged(seed, 0.0, logged=logged)[1].shown for seed in range(120)) <= 12


def test_probabilities_follow_the_context():
    asked, _ = question(0)
    found = asked.probabilities(FEATURES(np.array([[-0.9], [0.0], [0.9]])))
    assert found[0, 1] < 0.35 < 0.42 < found[1, 1] < 0.58 < found[2, 1]
    assert (found >= FLOOR).all()


def test_clipped_answers_of_users_without_visits_are_zero():
    asked, _ = question(0)
    given, _ = visits(5, 0)
    assert asked.answers(given, 7)[5:].tolist() == [0.0, 0.0]


def test_bound_grows_with_users_and_is_public():
    asked, _ = question(0)
    assert asked.clip(100, 1.0) <= asked.clip(10**6, 1.0) <= 1.0 + 1.0 / FLOOR


def test_bad_arguments():
    asked, _ = question(0)
    with pytest.raises(ValueError, match="horizon"):
        AdvantageQuestion(asked.policy, asked.release, 0)
    with pytest.raises(ValueError, match="level"):
        asked.read([0.0, 0.0], 1.0, 10, 1.0, 1.0)
    bare = FeatureMap({"x": (-1.0, 1.0)}, 2, intercept=False)
    one = LinearAdvantage().open(bare, dr.NoPrivacy(), Seeded(0, 0))
    one.submit_many(visits(5, 0)[0])
    with pytest.raises(ValueError, match="intercept"):
        AdvantageQuestion(asked.policy, one.release(), 1)


def test_clipped_answers_do_not_show_a_gain_where_there_is_none():
    """Without an effect, long answers are mostly negative here, and 75 % of such runs showed a gain.

    With a false-alarm rate of 0.04 for each run, two gains in eight have a probability below 0.04.
    """
    features = FeatureMap({"x": (-2.0, 2.0), "z": (-2.0, 2.0)}, 2)
    shown = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)

        def drawn(n, rng=rng):
            x = rng.uniform(-2, 2, (n, 2))
            chance = np.where(x[:, 0] ** 2 > 1.5, 0.9, 0.1)
            a = (rng.random(n) < chance).astype(int)
            y = (rng.random(n) < 0.1 + 0.2 * x[:, 0] ** 2).astype(float)
            return Visits(np.arange(n), x, a, y), np.where(a == 1, chance, 1 - chance)

        learner = LinearAdvantage()
        one = learner.open(features, dr.Central(epsilon=3.0, delta=1e-6), Seeded(seed, 0))
        one.submit_many(drawn(2500)[0])
        release = one.release()
        asked = AdvantageQuestion(learner.learn(release), release, 1)
        query = ClippedSum.matching(one.records[0], AdvantageQuestion.SIZE)
        given, chance = drawn(2500)
        clip = asked.clip(2500, query.multiplier)
        vectors = asked.vectors(asked.answers(given, 2500, chance), clip)
        sums = query.release(vectors, clip, Seeded(seed, 3))
        shown += asked.read(sums, clip, 2500, query.std, logged=True).shown
    assert shown <= 1


def test_the_penalty_is_at_least_what_is_cut_off():
    asked, _ = question(1, n=100)
    d = np.linspace(-20.0, 20.0, 401)
    vectors = asked.vectors(d, 3.0)
    assert (2.0 * vectors[:, 2] >= np.abs(d) - np.abs(vectors[:, 0]) - 1e-12).all()
    assert (vectors[np.abs(d) <= 1.5, 2] == 0.0).all()
