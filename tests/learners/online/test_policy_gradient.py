"""Policy gradients on noisy vectors: a plain reference, the sensitivity, the guarantee, and refusals."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from commands import call, document

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.releases import Measurement
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectory
from discreet.envs import random_mdp
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments.simulate import Setup
from discreet.learners.online import policy_gradient as gradients
from discreet.mechanisms.interfaces import Estimate, ProblemSpec, Release
from discreet.mechanisms.seeded_rng import SeededRng

MASK = np.array([[True, True, False], [True, False, False], [False, True, True]])
BOTH = (dr.learners.DPPolicyGradient, dr.learners.DPNaturalPolicyGradient)
CENTRAL = dr.Central(epsilon=1.0, delta=1e-6)
KEPT = 1.0 - 2.0**-40  # what the core multiplies a clipped vector by


def masked_world(horizon: int = 4, stationary: bool = True) -> dr.TabularMDP:
    rng = np.random.default_rng(3)
    transitions = rng.dirichlet(np.ones(3), (1 if stationary else horizon, 3, 3)) * MASK[..., None]
    return dr.TabularMDP(
        transitions, rng.random((1 if stationary else horizon, 3, 3)) * MASK, 0, horizon=horizon, mask=MASK,
        reward_law="bernoulli",
    )  # fmt: skip


# ------------------------------------------------------------------------------ a plain reference
def plain_policy(logits: np.ndarray, mask: np.ndarray) -> np.ndarray:
    policy = np.zeros_like(logits)
    for t, s in np.ndindex(logits.shape[:2]):
        allowed = np.flatnonzero(mask[s])
        top = max(logits[t, s, a] for a in allowed)
        weights = [math.exp(logits[t, s, a] - top) for a in allowed]
        for a, weight in zip(allowed, weights, strict=True):
            policy[t, s, a] = weight / sum(weights)
    return policy


def plain_vector(
    record: Trajectory, policy: np.ndarray, baseline: np.ndarray, visit: float, bound: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, residuals and visits of one user, clipped together."""
    scores, residuals, visits = np.zeros(policy.shape), np.zeros(baseline.size), np.zeros(policy.shape[:2])
    for h in range(baseline.size):
        t = h if policy.shape[0] > 1 else 0
        s, a = record.states[h], record.actions[h]
        left = sum(record.rewards[h:]) - baseline[h]
        for b in range(policy.shape[2]):
            scores[t, s, b] += left * ((b == a) - policy[t, s, b])
        residuals[h] = 0.3 * left
        visits[t, s] += visit
    norm = math.sqrt((scores**2).sum() + (residuals**2).sum() + (visits**2).sum())
    factor = bound / norm * KEPT if norm > bound * KEPT else 1.0
    return scores * factor, residuals * factor, visits * factor


def plain_step(learner: Any, logits: np.ndarray, baseline: np.ndarray, first: bool, records: list) -> tuple:
    """Logits and baseline after one batch without noise."""
    horizon, natural = baseline.size, isinstance(learner, dr.learners.DPNaturalPolicyGradient)
    bound, visit = learner.bound * math.sqrt(horizon), 0.3 * learner.bound if natural else 0.0
    policy = plain_policy(logits, MASK)
    sums = [np.zeros(logits.shape), np.zeros(horizon), np.zeros(logits.shape[:2])]
    for record in records:
        for total, part in zip(sums, plain_vector(record, policy, baseline, visit, bound), strict=True):
            total += part
    scores, residuals, visits = (total / len(records) for total in sums)
    moved = (1.0 - learner.shrink) * logits
    for t, s in np.ndindex(logits.shape[:2]):
        if natural:
            pi = policy[t, s]
            matrix = visits[t, s] / visit * (
                np.diag(pi) - np.outer(pi, pi)
            ) + learner.damping * 1e-3 * np.eye(3)
            moved[t, s] += learner.step * np.linalg.inv(matrix) @ scores[t, s] / bound
        else:
            moved[t, s] += learner.step * scores[t, s] / bound
    for h in range(horizon):
        found = baseline[h] + (1.0 if first else 0.4) * residuals[h] / 0.3
        baseline[h] = min(max(found, 0.0), horizon - h)
    return moved, baseline


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("kind", BOTH)
def test_without_noise_policies_are_those_of_a_plain_reference(kind: Any, stationary: bool) -> None:
    world = masked_world(stationary=stationary)
    learner, randomness = kind(batches=5, bound=0.6, step=3.0), Seeded(4, 0)
    setup = Setup(world, learner, dr.NoPrivacy(), 240)
    state, logits = learner.begin(setup.spec, randomness.keys.ties), np.zeros((1 if stationary else 4, 3, 3))
    baseline, users, plans = np.zeros(4), 0, 0
    with setup.start(randomness) as session:
        while users < 240:
            plan, state = learner.plan(state, session.release(), session.answer)
            expected = np.broadcast_to(plain_policy(logits, MASK), plan.policy.shape)
            np.testing.assert_allclose(plan.policy, expected, rtol=0, atol=1e-12)
            session.begin(plan)
            records = [
                rollout(world, plan.policy, randomness.keys.environment, users + i) for i in range(plan.users)
            ]
            for record in records:
                session.submit(record)
            logits, baseline = plain_step(learner, logits, baseline, plans == 0, records)
            users, plans = users + plan.users, plans + 1
    assert plans == 5
    assert np.ptp(plan.policy[0][MASK]) > 0.05  # it moved


@pytest.mark.parametrize("kind", BOTH)
def test_one_by_one_and_together_give_the_same_bits(kind: Any) -> None:
    world, learner = masked_world(), kind(batches=3)
    setup = Setup(world, learner, CENTRAL, 60)
    assert not setup.fused
    assert not setup.batched
    policies: list[list[np.ndarray]] = [[], []]
    for together in (0, 1):
        randomness = Seeded(5, 0)
        state, users = learner.begin(setup.spec, randomness.keys.ties), 0
        with setup.start(randomness) as session:
            while users < 60:
                plan, state = learner.plan(state, session.release(), session.answer)
                encoder = session.begin(plan)
                records = [
                    rollout(world, plan.policy, randomness.keys.environment, users + i)
                    for i in range(plan.users)
                ]
                if together:
                    fields = (
                        np.stack([getattr(r, f) for r in records]) for f in ("states", "actions", "rewards")
                    )
                    session.submit_many(dr.Trajectories(*fields), session.open_plan.number)
                else:
                    for i, record in enumerate(records):
                        session.submit(encoder(record, plan, SeededRng(randomness.keys.noise, users + i)))
                policies[together].append(plan.policy)
                users += plan.users
    assert len(policies[0]) == 3
    assert all(np.array_equal(*pair) for pair in zip(*policies, strict=True))
    runs = [Setup(world, learner, CENTRAL, 60, stepwise=stepwise).run(5, 0) for stepwise in (False, True)]
    assert runs[0].agrees(runs[1])


# ------------------------------------------------------------------------------ privacy
@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("kind", BOTH)
def test_no_two_users_differ_by_more_than_the_sensitivity(kind: Any, stationary: bool) -> None:
    """All 128 records of two states, two actions and two steps with rewards 0 or 1, for several contexts."""
    layout, learner = Layout(2, 2, 2), kind(bound=0.5, stationary=stationary)
    query = learner.query(ProblemSpec(layout, 100, stationary=True))
    (vector,), stated = query.parts, query.sensitivity("l2", {gradients.VECTOR: 1.0})
    assert stated == pytest.approx(2.0 * 0.5 * math.sqrt(2.0))
    records = [
        Trajectory(np.array(states), np.array(actions), np.array(rewards, float))
        for states in itertools.product((0, 1), repeat=3)
        for actions in itertools.product((0, 1), repeat=2)
        for rewards in itertools.product((0, 1), repeat=2)
    ]
    rng, widest = np.random.default_rng(1), 0.0
    for _ in range(8):
        policy = rng.dirichlet(np.ones(2), (1 if stationary else 2, 2))
        weights = np.array([0.3, learner.visit_weight * 0.5])
        context = {"policy": policy, "baseline": rng.uniform(0.0, 2.0, 2), "weights": weights}
        found = np.array([query.contribution(record, context)[gradients.VECTOR] for record in records])
        assert found.shape == (128, vector.size)
        assert np.linalg.norm(found, axis=1).max() <= vector.bound
        change = np.linalg.norm(found[:, None] - found[None], axis=-1).max()
        assert change <= stated
        widest = max(widest, change)
    assert widest > 0.8 * stated


def gaussian_delta(mu: float, epsilon: float) -> float:
    def normal(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2.0))

    return normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("kind", BOTH)
def test_the_guarantee_is_that_of_one_gaussian_release(kind: Any) -> None:
    setup = Setup(masked_world(), kind(), dr.Central(epsilon=2.0, delta=1e-6, noise="gaussian"), 1000)
    (scale,) = setup.mechanism.scales
    mu = 2.0 * setup.learner.bound * math.sqrt(4.0) / scale
    assert gaussian_delta(mu, 2.0) == pytest.approx(1e-6, rel=1e-6)
    assert (setup.guarantee.epsilon, setup.guarantee.delta) == (pytest.approx(2.0), 1e-6)
    assert setup.guarantee.rests_on == setup.query.rests_on
    assert "public arrays only" in setup.guarantee.statement.split(".")[0]


def test_a_pure_epsilon_has_laplace_noise() -> None:
    setup = Setup(masked_world(), dr.learners.DPPolicyGradient(), dr.Central(epsilon=2.0), 1000)
    (scale,) = setup.mechanism.scales
    size = setup.query.cells
    assert 2.0 * math.sqrt(4.0) * math.sqrt(size) / scale == pytest.approx(2.0)
    assert (setup.guarantee.epsilon, setup.guarantee.delta) == (pytest.approx(2.0), 0.0)


@pytest.mark.parametrize("kind", BOTH)
def test_secure_noise_is_exact_and_learned_from(kind: Any) -> None:
    world, learner, users = masked_world(), kind(batches=3), 0
    spec = ProblemSpec(world.layout, 30, stationary=True)
    with CENTRAL.start(learner.query(spec), learner.schedule(spec), Secure(64)) as session:
        assert session.guarantee.randomness == "secure"
        assert session.guarantee.epsilon == pytest.approx(1.0)
        state = learner.begin(spec, np.zeros(2, np.uint64))
        while users < 30:
            release = session.release()
            plan, state = learner.plan(state, release, session.answer)
            if release.number:
                value = release.measurement.estimates[gradients.VECTOR].value
                assert np.array_equal(value * 64, np.rint(value * 64))
                assert np.abs(value).max() > 0
            session.begin(plan)
            session.absent(plan.users // 2)
            for i in range(plan.users - plan.users // 2):
                session.submit(rollout(world, plan.policy, Seeded(1, 0).keys.environment, users + i))
            users += plan.users
    assert state.number == 2


@pytest.mark.parametrize("kind", BOTH)
def test_the_vector_passes_its_checks(kind: Any) -> None:
    layout = Layout(3, 2, 4)
    learner = kind(stationary=False)
    (vector,) = learner.query(ProblemSpec(layout, 100)).parts
    policy = np.random.default_rng(2).dirichlet(np.ones(2), (4, 3))
    context = {"policy": policy, "baseline": np.ones(4), "weights": np.array([0.3, learner.visit_weight])}
    found = dr.audit.check_vector(vector, layout, context, records=20, fresh_process=False)
    assert found.passed, str(found)


# ------------------------------------------------------------------------------ learning
@pytest.mark.parametrize(
    ("kind", "privatizer", "most"),
    [
        (kind, *case)
        for kind in BOTH
        for case in ((dr.NoPrivacy(), 0.3), (dr.Central(epsilon=10.0, delta=1e-6), 0.5))
    ],
)
def test_it_learns_a_small_world(kind: Any, privatizer: Any, most: float) -> None:
    """The seed is fixed, so the run is always the same."""
    world = random_mdp(states=3, actions=3, horizon=5, rewarding=9, seed=8)
    setup = Setup(world, kind(batches=25), privatizer, 3000)
    regret = setup.run(2, 0).regret[-1] / 3000
    assert regret < most * (setup.optimal_value - setup.uniform_value)


def test_noise_bounds_the_step() -> None:
    learner = dr.learners.DPPolicyGradient(step=10.0, noise_limit=0.5)
    gradient, policy, none = np.ones((1, 1, 2)), np.full((1, 1, 2), 0.5), np.zeros(0)
    assert np.array_equal(learner._move(gradient, 0.0, policy, none), 10.0 * gradient)
    assert np.array_equal(learner._move(gradient, 0.01, policy, none), 10.0 * gradient)
    assert np.array_equal(learner._move(gradient, 0.1, policy, none), 5.0 * gradient)


def test_damping_follows_the_noise_and_no_visits_are_negative() -> None:
    learner = dr.learners.DPNaturalPolicyGradient(step=6.0, damping=3.0)
    gradient, policy = np.array([[[1.0, -1.0]]]), np.full((1, 1, 2), 0.5)
    for visits, noise, factor in ((-5.0, 0.1, 0.3), (0.4, 0.1, 0.3 + 0.2), (0.4, 0.0, 0.003 + 0.2)):
        found = learner._move(gradient, noise, policy, np.array([visits]))
        np.testing.assert_allclose(found, 6.0 / factor * gradient, rtol=1e-12)


def test_one_release_changes_the_state_once_by_a_step_that_its_noise_limits(bounded: Any) -> None:
    """100 users, B = 2: the mean of the gradient has noise 30 / 200, which allows a step of 2."""
    spec = ProblemSpec(Layout(1, 2, 4), 200, stationary=True)
    learner = dr.learners.DPPolicyGradient(batches=2, batch_growth=1.0, noise_limit=0.3)
    told = Estimate(np.array([20.0, -20.0, 1e3, -1e3, 1e3, 1e3]), bounded(60.0), covers=100)
    release = Release({}, 100, 1, None, Measurement({gradients.VECTOR: told}, 0.0, 1.0))
    first = learner.begin(spec, np.zeros(2, np.uint64))
    plan, state = learner.plan(first, release, None)
    assert plan.users == 100
    np.testing.assert_allclose(state.logits, [[[0.2, -0.2]]], rtol=1e-12)
    assert state.baseline.tolist() == [4.0, 0.0, 2.0, 1.0]  # at most the number of steps that are left
    again, same = learner.plan(state, release, None)
    assert same is state
    assert np.array_equal(again.policy, plan.policy)


def test_options_left_out_come_from_public_facts() -> None:
    spec = ProblemSpec(Layout(2, 2, 3), 160_000, stationary=True)
    tuned = dr.learners.DPPolicyGradient().tuned(spec)
    assert (tuned.batches, tuned.stationary) == (120, True)
    assert dr.learners.DPPolicyGradient().tuned(replace(spec, users=1)).batches == 2
    sizes = np.diff([*tuned.schedule(spec).release_times, 160_000])
    assert sizes.size == 120
    assert sizes[-1] / sizes[0] == pytest.approx(4.0, rel=0.02)
    even = dr.learners.DPPolicyGradient(batches=4, batch_growth=1.0).schedule(replace(spec, users=10))
    assert even.release_times.tolist() == [0, 2, 5, 8]
    assert "does not cover" in tuned.summary()


@pytest.mark.parametrize("users", [1, 2, 5])
@pytest.mark.parametrize("kind", BOTH)
def test_few_users_run(kind: Any, users: int) -> None:
    assert Setup(masked_world(), kind(), CENTRAL, users).run(0, 0).episodes[-1] == users


def test_on_the_command_line() -> None:
    budget = ("--privatizer", "central", "--epsilon", "2", "--delta", "1e-6", "--env-option", "horizon=4")
    for name in ("dp-pg", "dp-npg"):
        run = ("--learner", name, *budget, "--episodes", "60", "--seeds", "2")
        first, again = (document("run", *run)["final_regret"] for _ in range(2))
        assert first == again
        told = document("estimate", "--learner", name, *budget, "--episodes", "60")
        assert (told["choices"], list(told["std"])) == ([], [gradients.VECTOR])
        assert name in call("list").stdout
        assert "clipped" in call("describe", name).stdout
        refused = call("run", *run[:2], "--privatizer", "local", "--epsilon", "1", code=2)
        assert "privatizer: must be 'central'" in refused.stderr


# ------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize("kind", BOTH)
def test_who_cannot_carry_a_vector_says_what_can(kind: Any) -> None:
    for privatizer in (dr.Local(epsilon=1.0), dr.Shuffle(epsilon=1.0, delta=1e-6)):
        with pytest.raises(ValueError, match="^privatizer: must be 'central' .* or 'none'"):
            dr.simulate(masked_world(), kind(), privatizer, 60)
    with pytest.raises(ValueError, match="^release = 'tree'.*: must be 'auto' or 'batches'"):
        dr.simulate(masked_world(), kind(), dr.Central(epsilon=1.0, release="tree"), 60)
    for method in (kind().query, kind().schedule, lambda spec: kind().begin(spec, np.zeros(2, np.uint64))):
        with pytest.raises(ValueError, match="users = None: must be known"):
            method(ProblemSpec(Layout(2, 2, 2)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("batches", 0),
        ("batch_growth", 0.5),
        ("step", 0.0),
        ("bound", -1.0),
        ("shrink", 1.0),
        ("stationary", 2),
    ],
)
@pytest.mark.parametrize("kind", BOTH)
def test_bad_options_are_named(kind: Any, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{option} = "):
        kind(**{option: value})


def test_bad_options_of_one_method_are_named() -> None:
    with pytest.raises(ValueError, match="^noise_limit = 0"):
        dr.learners.DPPolicyGradient(noise_limit=0.0)
    with pytest.raises(ValueError, match="^damping = 0"):
        dr.learners.DPNaturalPolicyGradient(damping=0.0)
