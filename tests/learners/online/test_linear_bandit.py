"""The contextual learner: its posterior against plain references, schedules, plans."""

import itertools
import math

import numpy as np
import pytest

import discreet as dr
from discreet.core.layout import Layout
from discreet.device.feature_map import FeatureMap
from discreet.learners.online.linear_bandit import SIGMA2, BatchSums, LinearBandit, posterior, shrunk
from discreet.mechanisms.interfaces import ProblemSpec
from discreet.mechanisms.linear.context_query import ContextRecords

FEATURES = FeatureMap({"a": (-1, 1), "b": (-1, 1)}, 3)


def spec(users=10_000, budget=None, features=FEATURES):
    return ProblemSpec(Layout(1, features.actions, 1), users, budget=budget, features=features)


def goe(p, scale, rng):
    noise = rng.normal(size=(p, p)) * scale
    return (noise + noise.T) / math.sqrt(2)


def data(n, theta, rng):
    phi = rng.normal(size=(n, theta.size))
    phi /= np.maximum(1.0, np.linalg.norm(phi, axis=1))[:, None]
    y = (rng.random(n) < 0.5 + phi @ theta) - 0.5
    return phi.T @ phi, phi.T @ y


def test_without_noise_the_posterior_is_ridge_regression():
    rng, theta = np.random.default_rng(0), np.array([0.2, -0.1, 0.05])
    gram, response = data(500, theta, rng)
    mean, cov = posterior(gram[None], response[None], gram[None], (0.0, 0.0), 0.7)
    precision = gram / SIGMA2 + np.eye(3) / 0.7
    assert mean[0] == pytest.approx(np.linalg.solve(precision, response / SIGMA2), abs=1e-10)
    assert cov[0] == pytest.approx(np.linalg.inv(precision), abs=1e-10)


def plain_posterior(gram, response, squared, noise, prior):
    """The rounds of the docstring with explicit inverses, for one block."""
    p = len(response)
    values, vectors = np.linalg.eigh(gram)
    g = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
    values, vectors = np.linalg.eigh(squared)
    s = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
    mean, cov = np.zeros(p), prior * np.eye(p)
    for _ in range(3):
        second = cov + np.outer(mean, mean)
        c = SIGMA2 * s + (noise[1] + noise[0] * np.trace(second)) * np.eye(p) + noise[0] * second
        cov = np.linalg.inv(np.eye(p) / prior + g @ np.linalg.inv(c) @ g)
        mean = cov @ g @ np.linalg.inv(c) @ response
    return mean, cov


def test_the_posterior_is_that_of_the_docstring():
    rng = np.random.default_rng(1)
    blocks = [data(300, 0.3 * rng.normal(size=4) / 4, rng) for _ in range(3)]
    gram = np.stack([g + goe(4, 9.0, rng) for g, _ in blocks])
    response = np.stack([u + 9.0 * rng.normal(size=4) for _, u in blocks])
    squared = gram + np.stack([goe(4, 1.0, rng) for _ in range(3)])
    mean, cov = posterior(gram, response, squared, (81.0, 64.0), 0.4)
    for block in range(3):
        own = plain_posterior(gram[block], response[block], squared[block], (81.0, 64.0), 0.4)
        assert mean[block] == pytest.approx(own[0], abs=1e-8)
        assert cov[block] == pytest.approx(own[1], abs=1e-8)


@pytest.mark.parametrize("scale", [2.0, 10.0])
def test_errors_are_as_large_as_the_posterior_says(scale):
    """Standardised errors of 300 releases have a standard deviation of .8 to 1.25.

    1 200 errors; the standard error of the deviation is about .03 (five of them are .15): below 1e-6.
    """
    rng, p, errors = np.random.default_rng(2), 4, []
    for _ in range(300):
        theta = rng.normal(size=p) * 0.15
        gram, response = data(2000, np.clip(theta, -0.2, 0.2), rng)
        mean, cov = posterior(
            (gram + goe(p, scale, rng))[None], (response + scale * rng.normal(size=p))[None], gram[None],
            (scale**2, scale**2), 0.15**2,
        )  # fmt: skip
        errors.append((mean[0] - np.clip(theta, -0.2, 0.2)) / np.sqrt(np.diag(cov[0])))
    assert 0.8 < np.std(errors) < 1.25


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("scale", [5.0, 40.0])
def test_shrunk_matrices_are_nearer_and_their_variance_is_stated(blocks, scale):
    """200 releases: the squared error is below the raw one, and within .3 of the raw one of what is stated.

    The raw error of 200 releases has a standard error of at most 2 %: the margins are over five of them, so
    chance fails the test less often than once in 1e6.
    """
    rng, p = np.random.default_rng(4), 5
    phi = rng.normal(size=(blocks, 600, p)) * 0.4
    true = np.swapaxes(phi, 1, 2) @ phi
    errors, raws, stated = [], [], []
    for _ in range(200):
        noise = np.stack([goe(p, scale, rng) for _ in range(blocks)])
        found, variance = shrunk(true + noise, scale**2)
        errors.append(((found - true) ** 2).mean())
        raws.append((noise**2).mean())
        stated.append(variance * (p + 1) / p)  # the diagonal has twice the variance
    assert np.mean(errors) <= np.mean(raws)
    assert abs(np.mean(errors) - np.mean(stated)) < 0.3 * np.mean(raws)


def test_exact_matrices_are_not_shrunk():
    gram = np.random.default_rng(5).normal(size=(2, 3, 3))
    found, variance = shrunk(gram, 0.0)
    assert found is gram
    assert variance == 0.0


def test_scales_of_the_noise_pay_for_the_loss():
    """mu^2 = (4 a + b)^2 / (16 a) with a = 1 / s_G^2, b = 1 / s_u^2 (lemma 3, centred), at s_G = 1.5 s_u."""
    privatizer, own = dr.Central(mu=0.7), spec(users=1000)
    learner = LinearBandit()
    mechanism = privatizer.mechanism(learner.query(own), learner.schedule(own), dr.Seeded(0))
    gram, response = (float(mechanism.scales[name].min()) for name in ("gram", "response"))
    assert gram == pytest.approx(1.5 * response)
    a, b = gram**-2, response**-2
    assert (4 * a + b) ** 2 / (16 * a) == pytest.approx(0.7**2)


def test_larger_batches_get_more_weight_where_noise_is_the_same():
    """One small batch and one large one, with noise like the small batch's sums."""
    rng, theta = np.random.default_rng(3), np.array([0.3, 0.0, -0.2])
    batches = []
    for n in (50, 5000):
        gram, response = data(n, theta, rng)
        noisy = (gram + goe(3, 30.0, rng))[None], (response + 30.0 * rng.normal(size=3))[None]
        batches.append(BatchSums(n, *noisy, 900.0, 900.0))
    learner = LinearBandit()
    both, alone = (learner.fit(tuple(one), 0.3)[1] for one in (batches, batches[1:]))
    assert np.trace(both[0]) <= 1.02 * np.trace(alone[0])


def test_the_schedule_is_public_and_longer_under_noise():
    learner, wide = LinearBandit(), dr.Central(epsilon=1.0, delta=1e-6).budget
    plain, private = learner.schedule(spec()).release_times, learner.schedule(spec(budget=wide)).release_times
    assert plain[1] == 72  # 8 coefficients of each of nine
    assert private[1] == math.floor(72 * 0.75 * 1.5625 / 0.23670)  # 3/4 of the noise scale 6.60 at mu .2367
    assert (np.diff(plain[1:]) >= 1).all()
    assert plain[2] == math.ceil(1.5 * plain[1])
    local = learner.schedule(spec(budget=dr.Local(epsilon=1.0, delta=1e-6).budget)).release_times
    assert local[1] <= 10_000 // 128
    assert local[-1] / local[-2] == pytest.approx(1.2, abs=0.01)
    assert private[-1] / private[-2] == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize("options", [{}, {"explore_share": 0.0}, {"explore_share": 1.0}, {"first": 5}])
def test_no_option_changes_the_guarantee(options):
    privatizer = dr.Central(epsilon=1.0, delta=1e-6)
    learner, own = LinearBandit(**options), spec(budget=privatizer.budget)
    found = privatizer.mechanism(learner.query(own), learner.schedule(own), dr.Seeded(0))
    assert found.guarantee.epsilon == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"explore_share": 1.5}, "explore_share"),
        ({"thompson_scale": -1.0}, "thompson_scale"),
        ({"growth": 1.0}, "growth"),
        ({"first": 0}, "first"),
        ({"final_share": 1.0}, "final_share"),
        ({"final_share": -0.1}, "final_share"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LinearBandit(**options)


def test_other_problems_are_refused():
    table = ProblemSpec(Layout(1, 3, 1), 100)
    with pytest.raises(ValueError, match="spec.features = NoneType: must be FeatureMap"):
        LinearBandit().query(table)
    with pytest.raises(ValueError, match="spec.users"):
        LinearBandit().schedule(spec(users=None))
    with pytest.raises(ValueError, match=r"must be Layout\(1, 3, 1\)"):
        ProblemSpec(Layout(2, 3, 1), 100, features=FEATURES)


def test_explorers_become_fewer():
    """After n users, explorers are half of (1 - n/K)^2 of the batch; all other users are greedy."""
    learner, own, rng = LinearBandit(), spec(1000), np.random.default_rng(0)
    state, explorers, begins = learner.begin(own, np.zeros(2, np.uint64)), {}, [0]
    with dr.NoPrivacy().start(learner.query(own), learner.schedule(own), dr.Seeded(0)) as session:
        while session.users < 1000:
            release = session.release()
            plan, state = learner.plan(state, release)
            session.begin(plan)
            if "root" in plan.context:
                explorers[release.users] = plan.users
            x, a, r = rng.normal(size=(plan.users, 1, 2)), rng.integers(0, 3, (plan.users, 1)), np.ones
            session.submit_many(ContextRecords(x, a, r(a.shape)), session.open_plan.number)
            if plan.last:
                begins.append(session.users)
    for first, end in itertools.pairwise(begins[1:]):
        assert explorers.get(first, 0) == round((end - first) * 0.5 * (1 - first / 1000) ** 2)


@pytest.mark.parametrize(
    ("privatizer", "scale"),
    [
        (dr.NoPrivacy(), 1.0), (dr.Central(epsilon=100.0, delta=1e-6), 1.0),
        (dr.Central(epsilon=10.0, delta=1e-6), 0.5), (dr.Central(epsilon=1.0, delta=1e-6), 0.5),
        (dr.Local(epsilon=10.0, delta=1e-6), 0.5), (dr.Central(epsilon=1.0), 0.5),
    ],
)  # fmt: skip
def test_large_noise_needs_smaller_draws(privatizer, scale):
    """Noise of scale 1.04 / mu of a response, or of its Laplace law, is at least 1/2 or below it."""
    learner, own = LinearBandit(), spec(1000, budget=getattr(privatizer, "budget", None))
    assert learner._scale(own) == scale
    assert LinearBandit(thompson_scale=0.3)._scale(own) == 0.3


def test_final_users_are_a_batch_of_their_own():
    plain, learner = LinearBandit(), LinearBandit(final_share=0.2)
    own, usual = (one.schedule(spec(1000)) for one in (learner, plain))
    assert own.final
    assert not usual.final
    assert own.release_times[-2:].tolist() == [800, 1000]
    assert own.release_times[:-2].tolist() == [t for t in usual.release_times if t < 800]
    with pytest.raises(ValueError, match="final_share = 0.95: must leave the 72 users of the first batch"):
        LinearBandit(final_share=0.95, first=72).schedule(spec(1000))
    assert LinearBandit(final_share=0.5, first=500).schedule(spec(1000)).release_times.tolist() == [
        0,
        500,
        1000,
    ]


def test_batches_know_their_policy_and_their_explorers():
    """The coefficients in a batch are those of the plans that its users had."""
    learner, own, rng = LinearBandit(final_share=0.2), spec(1000), np.random.default_rng(0)
    state, plans = learner.begin(own, np.zeros(2, np.uint64)), []
    with dr.NoPrivacy().start(learner.query(own), learner.schedule(own), dr.Seeded(0)) as session:
        while session.users < 1000:
            plan, state = learner.plan(state, session.release())
            plans.append((plan, session.users))
            session.begin(plan)
            x, a = rng.normal(size=(plan.users, 1, 2)), rng.integers(0, 3, (plan.users, 1))
            session.submit_many(ContextRecords(x, a, 1.0 * (a == 1)), session.open_plan.number)
        release = session.release()
    read = learner.read(state, release)
    assert read.seen[0] == 1000
    assert learner.read(read, release) is read
    with pytest.raises(ValueError, match="no user is left"):
        learner.plan(read, release)
    begun = 0
    for batch in read.batches:
        mine = [one for one, at in plans if begun <= at < begun + batch.users]
        begun += batch.users
        assert sum(one.users for one in mine) == batch.users
        assert sum(one.users for one in mine if "root" in one.context) == batch.explorers
        for one in mine:
            assert batch.policy is None or np.array_equal(one.policy, batch.policy)
        assert (batch.policy is None) == bool(mine[0].context["random"][0])
    assert begun == 1000
    assert read.batches[-1].explorers == 0
