"""Intervals after adaptive studies: plain references, bounds by brute force, coverage, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom

import discreet as dr
from discreet.core.layout import Layout
from discreet.device.feature_map import FeatureMap
from discreet.envs.context_worlds import (
    ContextWorld,
    SameForAll,
    SharedMeans,
    fixed_arms,
    per_action_contexts,
)
from discreet.experiments.context_runs import ContextSetup
from discreet.learners.online.linear_bandit import BatchSums, ContextState, LinearBandit
from discreet.learners.ope.study_inference import StudyInference, _longest
from discreet.mechanisms.interfaces import ProblemSpec

LEARNER = LinearBandit(final_share=0.15)
WORLD = per_action_contexts(2, 3, 0.3, radius=math.sqrt(3.0), seed=4)
CENTRAL = dr.Central(epsilon=10.0, delta=1e-6)
CONTEXTS = WORLD.draw(50, np.random.default_rng(1))


def studied(privatizer=CENTRAL, world=WORLD, users=3000, seed=0, learner=LEARNER):
    return ContextSetup(world, learner, privatizer, users).study(seed)[1]


def state(features, gram, response, users, noise=(0.0, 0.0), budget=None, policy=None, batches=None):
    """The state of a learner that has read one release with these sums."""
    spec = ProblemSpec(Layout(1, features.actions, 1), users, budget=budget, features=features)
    mean = np.zeros_like(response)
    one = BatchSums(users, gram, response, *noise, policy=policy)
    return ContextState(spec, mean, None, batches or (one,), (users, gram, response, *noise), 1)


def sums(features, theta, users, rng):
    """Exact sums of users with random actions, whose mean rewards are linear in the features."""
    p, blocks = features.dimension, features.blocks
    x = rng.uniform(-1, 1, (users, p - 1))
    phi, a = features(x), rng.integers(0, blocks, users)
    y = (rng.random(users) < 0.5 + (phi * theta[a]).sum(axis=1)) - 0.5
    gram = np.stack([phi[a == i].T @ phi[a == i] for i in range(blocks)])
    return gram, np.stack([phi[a == i].T @ y[a == i] for i in range(blocks)])


FEATURES = FeatureMap({"a": (-1, 1), "b": (-1, 1)}, 2, radius=math.sqrt(3.0))
THETA = np.array([[0.2, -0.1, 0.1], [-0.2, 0.3, 0.05]])


def noisy(seed, users=400, matrix=3.0, vector=2.0):
    rng = np.random.default_rng(seed)
    gram, response = sums(FEATURES, THETA, users, rng)
    e = rng.normal(size=gram.shape) * matrix
    return gram + (e + np.swapaxes(e, 1, 2)) / math.sqrt(2), response + vector * rng.normal(
        size=response.shape
    )


# ------------------------------------------------------------------------------- references
def plain_set(study, theta):
    """Return (left side, right side) of the bound for coefficients (blocks, p), with full matrices."""
    users, gram, response, matrix, vector = study.state.seen
    blocks, p = response.shape
    size, bound, alpha = blocks * p, study.bound, 1.0 - study.level
    full, one = np.zeros((size, size)), np.eye(size)
    for i in range(blocks):
        full[i * p : (i + 1) * p, i * p : (i + 1) * p] = gram[i]
    missed = 0.1 * alpha if matrix else 0.0
    tail = (
        math.sqrt(matrix) * (2 * math.sqrt(p) + 2 * math.sqrt(math.log(2 * blocks / missed))) if matrix else 0
    )
    values, vectors = np.linalg.eigh(full)
    v = 0.25 * vectors @ np.diag(np.maximum(values + tail, 0)) @ vectors.T
    noise = vector + 2 * matrix * bound**2
    h = 0.5 * (noise + 0.25 * users / size)
    v = v + (noise + h) * one
    m = response.ravel() - full @ theta.ravel()
    left = math.sqrt(m @ np.linalg.inv(v) @ m)
    right = math.sqrt(2 * math.log(1 / (alpha - missed)) + np.linalg.slogdet(v / h)[1])
    return left, right + 2 * study.misfit * math.sqrt(users)


@pytest.mark.parametrize("misfit", [0.0, 0.02])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_interval_is_what_the_ellipsoid_and_the_ball_allow(seed, misfit):
    """The ends from a general solver, which does not know how the interval is computed.

    The interval is never inside the solver's, and longer by at most 1 %.
    """
    gram, response = noisy(seed)
    study = StudyInference(state(FEATURES, gram, response, 400, (9.0, 4.0)), bound=0.9, misfit=misfit)
    x = np.array([[0.5, -0.2]])
    found = study.effect(0, 1, x)
    c = np.stack([FEATURES(x)[0], -FEATURES(x)[0]]).ravel()
    ends = []
    for sign in (1.0, -1.0):
        solved = minimize(
            lambda t, sign=sign: sign * float(c @ t), np.linalg.lstsq(
                np.block([[gram[0], np.zeros((3, 3))], [np.zeros((3, 3)), gram[1]]]), response.ravel(),
                rcond=None,
            )[0],
            constraints=[
                {"type": "ineq", "fun": lambda t: np.subtract(*plain_set(study, t.reshape(2, 3))[::-1])},
                {"type": "ineq", "fun": lambda t: 2 * study.bound**2 - t @ t},
            ],
            options={"maxiter": 500},
        )  # fmt: skip
        assert solved.success
        ends.append(sign * solved.fun)
    low, high = ends[0] - 2 * misfit, ends[1] + 2 * misfit
    low, high, rest = max(low, -1.0), min(high, 1.0), 0.01 * (high - low)
    assert low - rest <= found.low <= low + 1e-6
    assert high - 1e-6 <= found.high <= high + rest


def test_coefficients_that_the_set_contains_are_never_outside_an_interval():
    """2 000 random coefficients of the set, in intervals of values and effects of random contrasts."""
    rng = np.random.default_rng(3)
    gram, response = noisy(2, matrix=6.0)
    study = StudyInference(state(FEATURES, gram, response, 400, (36.0, 4.0)), bound=0.8)
    x = rng.uniform(-1, 1, (8, 2))
    phi = FEATURES(x)
    found = [(study.effect(0, 1, one), study.value(0, one), study.value(1, one)) for one in x]
    inside = 0
    for _ in range(2000):
        theta = rng.normal(size=(2, 3))
        theta *= 0.8 * rng.random() ** (1 / 3) / np.linalg.norm(theta, axis=1).max()
        left, right = plain_set(study, theta)
        if left > right:
            continue
        inside += 1
        for i, (effect, zero, one) in enumerate(found):
            a, b = phi[i] @ theta[0], phi[i] @ theta[1]
            assert effect.low - 1e-9 <= np.clip(a - b, -1, 1) <= effect.high + 1e-9
            assert zero.low - 1e-9 <= np.clip(0.5 + a, 0, 1) <= zero.high + 1e-9
            assert one.low - 1e-9 <= np.clip(0.5 + b, 0, 1) <= one.high + 1e-9
    assert inside > 200


def test_without_noise_the_centre_is_least_squares_and_the_width_is_textbook():
    """Without noise, the width is that of theorem 2 of Abbasi-Yadkori, Pal and Szepesvari, with G^-1 c."""
    rng = np.random.default_rng(5)
    gram, response = sums(FEATURES, THETA, 50_000, rng)
    study = StudyInference(state(FEATURES, gram, response, 50_000), bound=20.0)
    x = np.array([0.3, 0.4])
    found, phi = study.effect(0, 1, x), FEATURES(x)
    theta = np.stack([np.linalg.solve(g, u) for g, u in zip(gram, response, strict=True)])
    assert found.estimate == pytest.approx(phi @ (theta[0] - theta[1]), abs=1e-6)
    h = 0.5 * 0.25 * 50_000 / 6
    v = [g / 4 + h * np.eye(3) for g in gram]
    radius = math.sqrt(2 * math.log(20) + sum(np.linalg.slogdet(one / h)[1] for one in v))
    g = [np.linalg.solve(one, phi) for one in gram]
    half = radius * math.sqrt(sum(a @ b @ a for a, b in zip(g, v, strict=True)))
    assert found.high - found.estimate == pytest.approx(half, rel=1e-3)


def test_the_covariance_of_noise_is_below_its_bound():
    """Brute force: x^T (w - E theta) over directions, for the two forms of noisy matrices.

    200 000 draws: a variance has a relative standard error of .0032, and the margin is six of these (2e-9).
    """
    rng, s, t = np.random.default_rng(6), 1.5, 1.0
    theta = np.array([0.5, -0.3, 0.2])
    bound = t**2 + 2 * s**2 * float(theta @ theta)
    raw = rng.normal(size=(200_000, 3, 3)) * s
    goe = (raw + np.swapaxes(raw, 1, 2)) / math.sqrt(2)
    upper = np.triu(raw)
    copied = upper + np.swapaxes(np.triu(raw, 1), 1, 2)
    w = t * rng.normal(size=(200_000, 3))
    for e in (goe, copied):
        errors = w - e @ theta
        assert np.linalg.eigvalsh(np.cov(errors.T)).max() <= bound * (1 + 6 * 0.0032)
    assert np.linalg.eigvalsh(np.cov((w - goe @ theta).T)).max() >= bound * (1 - 6 * 0.0032)  # attained


def test_singular_and_contradictory_sums():
    """Without information, the interval is that of the ball. Impossible sums are refuted."""
    gram, response = np.zeros((2, 3, 3)), np.zeros((2, 3))
    study = StudyInference(state(FEATURES, gram, response, 100, (1e6, 1e6)), bound=0.25)
    phi = FEATURES([1.0, 1.0])
    found = study.effect(0, 1, [1.0, 1.0])
    most = math.sqrt(2) * 0.25 * math.sqrt(2) * float(np.linalg.norm(phi))
    assert found.high == pytest.approx(most, rel=1e-3)
    assert found.low == pytest.approx(-most, rel=1e-3)
    assert not found.shown
    gram, response = sums(FEATURES, THETA, 10_000, np.random.default_rng(7))
    wrong = StudyInference(state(FEATURES, gram, 5 * response, 10_000), bound=0.1).effect(0, 1, [0.0, 0.0])
    assert wrong.refuted
    assert (wrong.low, wrong.high) == (-1.0, 1.0)
    assert "contradict" in str(wrong)


# --------------------------------------------------------------------------- without a model
def test_sums_without_noise_give_the_mean_rewards_of_a_batch():
    rng = np.random.default_rng(8)
    setup = ContextSetup(WORLD, LEARNER, dr.NoPrivacy(), 3000)
    seen = []
    submit = setup._submit
    object.__setattr__(
        setup, "_submit", lambda s, records, *rest: (seen.append(records), submit(s, records, *rest))
    )
    final = setup.study(2)[1]
    study = StudyInference(final)
    last = np.concatenate([one.rewards[:, 0] for one in seen])[-450:]
    assert final.batches[-1].users == 450
    found = study.last_value()
    assert found.estimate == pytest.approx(last.mean())
    half = 1.959964 * math.sqrt(0.25 / 450)
    assert 0.9 * half < found.high - found.estimate <= half * 1.0001
    n = final.batches[0].users
    a, y = (np.concatenate([getattr(one, name)[:, 0] for one in seen])[:n] for name in ("actions", "rewards"))
    assert study.last_gain().estimate == pytest.approx(last.mean() - y.mean())
    effect = study.random_effect(2, 0)
    assert effect.estimate == pytest.approx(3 * (((a == 2) * 1.0 - (a == 0)) * (y - 0.5)).mean())
    assert effect.high - effect.estimate == pytest.approx(1.959964 * math.sqrt(1.5 / n), rel=1e-4)
    contexts = np.concatenate([one.contexts[:, 0] for one in seen])[-450:]
    actions = np.concatenate([one.actions[:, 0] for one in seen])[-450:]
    assert np.array_equal(study.policy(contexts), actions)  # no user of the last batch explored
    assert rng is not None


@pytest.mark.parametrize("basis", ["linear", ("poly", 2), ("fourier", 3, 0.5, 1), ("tiles", 4, 2)])
def test_no_features_are_longer_than_the_longest(basis):
    """Brute force over a grid of contexts with the corners; a shortened intercept is at least its bound."""
    features = FeatureMap({"a": (-1, 1), "b": (-1, 1)}, 2, basis=basis)
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 41), repeat=2)))
    whole = FeatureMap({"a": (-1, 1), "b": (-1, 1)}, 2, basis=basis, radius=100.0)
    length = 100.0 * np.linalg.norm(whole(grid), axis=1)
    assert length.max() <= _longest(features) * (1 + 1e-12)
    if basis in ("linear", ("poly", 2), ("tiles", 4, 2)):
        assert length.max() == pytest.approx(_longest(features))
    shortened = features(grid)[:, -1] * features.own_radius
    assert shortened.min() >= min(1.0, features.own_radius / _longest(features)) * (1 - 1e-12)


@pytest.mark.parametrize("form", ["per_action", "shared"])
def test_shortened_users_are_within_the_margin(form):
    """Brute force: rewards 0 or 1 for all shortened users, the worst cases for the mean."""
    features = FeatureMap({"a": (-1, 1), "b": (-1, 1)}, 2, form, radius=1.0)
    rng = np.random.default_rng(9)
    x = rng.uniform(-1, 1, (500, 2) if form == "per_action" else (500, 2, 2))
    phi, a = features(x), rng.integers(0, 2, 500)
    own = phi if form == "per_action" else phi[np.arange(500), a]
    block = a if form == "per_action" else np.zeros(500, int)
    gram = np.stack([own[block == i].T @ own[block == i] for i in range(features.blocks)])
    for y in (own[:, -1] < 0.7, own[:, -1] >= 0.7, np.ones(500)):
        y = np.asarray(y, float)
        response = np.stack([own[block == i].T @ (y - 0.5)[block == i] for i in range(features.blocks)])
        study = StudyInference(state(features, gram, response, 500))
        found = study.last_value()
        margin = study._shortened(study.state.batches[0])
        assert abs(y.mean() - found.estimate) <= margin
        assert found.low <= y.mean() <= found.high
    assert margin < 0.25


# ------------------------------------------------------------------------------------- coverage
def equal_arms():
    features = FeatureMap({f"x{i}": (-1, 1) for i in range(3)}, 3, "shared", radius=1.0, intercept=False)
    return ContextWorld("equal arms", features, SameForAll(np.eye(3)), SharedMeans(np.full(3, 0.1)))


def covered(world, privatizer, learner, runs, users=1200, **options):
    """Return (runs, k) whether intervals contain the truth: effect, naive effect, value, and without a model.

    naive : least squares with its usual interval.
    """
    setup, found = ContextSetup(world, learner, privatizer, users), []
    x = world.draw(40, np.random.default_rng(0))
    many = world.draw(20_000, np.random.default_rng(1))
    means, wide, every = world.means(x), world.means(many), np.arange(40)
    for seed in range(runs):
        study = StudyInference(setup.study(seed)[1], **options)
        policy, true = study.policy(x), means[0, 0] - means[0, 1]
        pairs = [(study.effect(0, 1, x[0]), true), (study.value(policy, x), means[every, policy].mean())]
        if study.features.intercept:
            own = wide[np.arange(len(wide)), study.policy(many)].mean()
            pairs += [(study.last_value(), own), (study.last_gain(), own - wide.mean())]
            pairs.append((study.random_effect(0, 1), (wide[:, 0] - wide[:, 1]).mean()))
        _, gram, response, _, _ = study.state.seen
        inverse = np.linalg.pinv(gram)
        c = study._mean_features(0, x[0]) - study._mean_features(1, x[0])
        middle = np.einsum("bi,bij,bj->", c, inverse, response)
        half = 0.98 * math.sqrt(abs(np.einsum("bi,bij,bj->", c, inverse, c)))
        inside = [one.low - 1e-9 <= truth <= one.high + 1e-9 for one, truth in pairs]
        found.append([*inside, abs(middle - true) <= half])
    return np.array(found).mean(axis=0)


SMALL = LinearBandit(first=30, growth=1.1, final_share=0.15)
CASES = {
    "fixed arms": (fixed_arms(4, 4, seed=3), dr.NoPrivacy(), LEARNER, {}),
    "equal arms, small batches": (equal_arms(), dr.NoPrivacy(), SMALL, {}),
    "equal arms, epsilon 10": (equal_arms(), CENTRAL, SMALL, {}),
    "linear, epsilon 10": (WORLD, CENTRAL, LEARNER, {}),
    "linear, epsilon 0.3": (WORLD, dr.Central(epsilon=0.3, delta=1e-6), LEARNER, {}),
    "linear, shuffle": (WORLD, dr.Shuffle(epsilon=10.0, delta=1e-6), LEARNER, {}),
    "linear, local": (WORLD, dr.Local(epsilon=10.0, delta=1e-6), LEARNER, {}),
    "not linear": (
        per_action_contexts(2, 3, link="logit", radius=math.sqrt(3.0), seed=4), dr.NoPrivacy(), LEARNER,
        {"misfit": 0.05, "bound": 1.5},
    ),
}  # fmt: skip


@pytest.mark.statistics
@pytest.mark.parametrize("name", CASES)
def test_intervals_cover_the_truth_in_93_of_100_studies(name):
    """500 studies each. At a coverage of 95 %, fewer than 450 hits have a probability of 7e-7 per interval.

    450 of 500 exclude a coverage of 85 % (chance 4e-4 to pass). With at most 5 intervals in 8 cases, a false
    alarm is rarer than 3e-5.
    """
    world, privatizer, learner, options = CASES[name]
    runs = 500
    found = covered(world, privatizer, learner, runs, **options)
    assert binom.cdf(449, runs, 0.95) < 2e-6
    assert (found[:-1] >= 450 / runs).all(), found
    assert (found[:2] >= 0.98).all(), found  # the linear model's intervals are wide: measured 1.0


@pytest.mark.statistics
@pytest.mark.parametrize(("name", "most"), [("linear, epsilon 0.3", 0.5), ("equal arms, epsilon 10", 0.93)])
def test_least_squares_does_not_cover(name, most):
    """Least squares needs what the intervals do. 500 studies of fixed seeds; also measured in benchmarks."""
    world, privatizer, learner, options = CASES[name]
    assert covered(world, privatizer, learner, 500, **options)[-1] < most


@pytest.mark.statistics
def test_adaptive_choices_alone_make_least_squares_wrong():
    """No noise and equal arms: 500 studies of fixed seeds; the benchmark has 86 % with other seeds."""
    assert covered(equal_arms(), dr.NoPrivacy(), LEARNER, 500, 4000)[-1] < 0.92


def test_a_few_studies_are_covered():
    """Fixed seeds. Five studies of three cases, to run always."""
    for name in ("fixed arms", "equal arms, epsilon 10", "linear, epsilon 0.3"):
        world, privatizer, learner, options = CASES[name]
        found = covered(world, privatizer, learner, 5, users=600, **options)
        assert (found[:2] == 1.0).all(), name


# ------------------------------------------------------------------------------------ the study
@pytest.mark.parametrize(
    "privatizer",
    [dr.NoPrivacy(), CENTRAL, dr.Local(epsilon=10.0, delta=1e-6), dr.Shuffle(epsilon=10.0, delta=1e-6)],
    ids=["none", "central", "local", "shuffle"],
)
def test_the_last_users_are_released_and_all_follow_one_policy(privatizer):
    final = studied(privatizer, users=1000)
    assert final.seen[0] == 1000
    assert final.batches[-1].users == 150
    assert final.batches[-1].explorers == 0
    assert final.batches[0].policy is None
    assert any(one.explorers for one in final.batches[1:-1])
    assert StudyInference(final).value(0, CONTEXTS).users == 1000
    text = str(StudyInference(final).last_value())
    assert "150 users in a release (all followed the last policy)" in text
    assert "Users without an outcome are included with a reward of 1/2" in text


def test_absent_users_count_as_a_reward_of_one_half():
    """As a batch of 100 users of whom 60 have an outcome: the sums are those of 60, all without noise."""
    gram, response = np.zeros((2, 3, 3)), np.zeros((2, 3))
    gram[0, -1, -1], response[0, -1] = 60 / 3, 60 * 0.5 / math.sqrt(3)  # all rewards are 1, R is sqrt(3)
    study = StudyInference(state(FEATURES, gram, response, 100))
    assert study.last_value().estimate == pytest.approx(0.6 * 1.0 + 0.4 * 0.5)


def test_inference_costs_nothing_and_a_final_share_costs_nothing():
    """The guarantee of a study is that of one without final users, since every user is in one batch."""
    plain = ContextSetup(WORLD, LinearBandit(), CENTRAL, 1000).guarantee
    judged = ContextSetup(WORLD, LEARNER, CENTRAL, 1000).guarantee
    assert judged.epsilon == pytest.approx(plain.epsilon, rel=1e-9)
    assert judged.epsilon <= 10.0 + 1e-9


def test_a_study_without_final_users_is_judged_by_its_releases():
    final = studied(learner=LinearBandit(), users=1000)
    study = StudyInference(final)
    assert study.last_value().users == final.batches[-1].users
    assert final.seen[0] < 1000
    assert "explored" in study.last_value().conditions


def test_pairs_chosen_before_are_narrower_than_joint_ones():
    study = StudyInference(studied(seed=3))
    own, joint = (study.effect(0, 1, CONTEXTS[0], joint=one) for one in (False, True))
    assert own.high - own.low < joint.high - joint.low
    assert study.effect(1, 1, CONTEXTS).low == study.effect(1, 1, CONTEXTS).high == 0.0
    policy = study.policy(CONTEXTS)
    rows = np.eye(3)[policy]
    assert study.value(policy, CONTEXTS).low == pytest.approx(study.value(rows, CONTEXTS).low)
    uniform = study.value(np.full((50, 3), 1 / 3), CONTEXTS)
    assert study.value("uniform", CONTEXTS).high == pytest.approx(uniform.high)


def test_a_higher_level_is_wider():
    final = studied(seed=4)
    widths = []
    for level in (0.8, 0.95, 0.999):
        study = StudyInference(final, level=level)
        all_of = (study.effect(0, 1, CONTEXTS), study.value(0, CONTEXTS), study.last_value())
        widths.append([one.high - one.low for one in (*all_of, study.last_gain(), study.random_effect(0, 1))])
    assert (np.diff(widths, axis=0) >= 0).all()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s.effect(0, 3, CONTEXTS), "actions"),
        (lambda s: s.effect(True, 1, CONTEXTS), "actions"),
        (lambda s: s.effect(0, 1, CONTEXTS, joint=2), "joint"),
        (lambda s: s.value("best", CONTEXTS), "actions"),
        (lambda s: s.value(np.zeros(50, int) - 1, CONTEXTS), "actions"),
        (lambda s: s.value(np.zeros(49, int), CONTEXTS), "actions has shape"),
        (lambda s: s.value(np.full((50, 3), 0.5), CONTEXTS), "add up to 1"),
        (lambda s: s.value(0, np.zeros((5, 3))), "contexts has shape"),
        (lambda s: s.value(0, np.zeros((0, 2))), "contexts has shape"),
        (lambda s: s.random_effect(0, 3), "second"),
    ],
)
def test_wrong_questions_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(StudyInference(studied(users=500)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "level"), ({"level": 0.0}, "level"), ({"bound": 0.0}, "bound"),
        ({"misfit": -0.1}, "misfit"), ({"misfit": 1.1}, "misfit"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        StudyInference(studied(users=500), **options)


def test_states_that_cannot_be_judged_are_refused():
    spec = ProblemSpec(Layout(1, 3, 1), 100, features=WORLD.features)
    with pytest.raises(ValueError, match="must be that of a learner that has read a release"):
        StudyInference(LinearBandit().begin(spec, np.zeros(2, np.uint64)))
    with pytest.raises(ValueError, match="state"):
        StudyInference(None)
    with pytest.raises(ValueError, match="Laplace"):
        StudyInference(studied(dr.Central(epsilon=10.0), users=500))
    with pytest.raises(ValueError, match="intercept = False"):
        StudyInference(studied(world=equal_arms(), users=500)).last_value()
    with pytest.raises(ValueError, match="form = 'shared'"):
        StudyInference(studied(world=equal_arms(), users=500)).random_effect(0, 1)
    random = StudyInference(studied(learner=LinearBandit(first=300), users=400))
    with pytest.raises(ValueError, match="all actions were random"):
        random.policy(CONTEXTS)
    with pytest.raises(ValueError, match="all actions were random"):
        random.last_gain()
    assert "all had random actions" in random.last_value().conditions
