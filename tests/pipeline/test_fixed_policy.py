"""The question about a fixed policy: its sensitivity, its mean with endless users, and its errors."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.accounting.noise_distributions.distributions import GaussianSumLaw, NoNoise
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import no_guarantee
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectories
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.mechanisms.dataset.clipped_sum import GRID, ClippedSum
from discreet.mechanisms.dataset.dataset_release import KeptRelease
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds, StepSums
from discreet.mechanisms.policy_rows import policy_rows
from discreet.pipeline import fixed_policy
from discreet.pipeline.fixed_policy import PolicyQuestion, kappa, policy_question

ENDS = ReturnBounds(terminal=(3, 4), outcomes={4: 10.0})
SPEC = ProblemSpec(Layout(5, 3, 8), stationary=True, returns=ENDS)
POLICY = np.full((8, 5), -1)
POLICY[:, 2] = 2
POLICY[2:, 0] = 1


def world(effect: float = 0.25) -> tuple[TabularMDP, Any]:
    """Action 2 sends state 2 to the good end; elsewhere all actions are alike."""
    moves = np.zeros((5, 3, 5))
    for s, a in itertools.product(range(3), range(3)):
        good = 0.15 + (effect if (s, a) == (2, 2) else 0.0)
        moves[s, a] = [0.25, 0.2, 0.15, 0.4 - good, good]
    moves[3, :, 3] = moves[4, :, 4] = 1.0
    paid = np.zeros_like(moves)
    paid[:3, :, 4] = 1.0
    mdp = TabularMDP(moves, paid, np.array([0.3, 0.3, 0.4, 0.0, 0.0]), horizon=8, terminal=(3, 4))
    return mdp, np.repeat(np.array([[0.5, 0.3, 0.2]] * 5)[None], 8, axis=0)


def people(n: int, run: int, effect: float = 0.25) -> Trajectories:
    mdp, behaviour = world(effect)
    return rollout_batch(mdp, policy_rows(mdp.layout, behaviour), n, run, 3, 0)


def release_of(
    told: Trajectories, sigma: float = 0.0, spec: ProblemSpec = SPEC, seed: int = 0
) -> KeptRelease:
    """First visits of these people, with Gaussian noise."""
    question, rng = FirstVisits(spec), np.random.default_rng(seed)
    tally = PartialAggregate(question.query(), None)
    tally.add(question.to_records(told))
    cells, rows = tally.cells(), question.layout.rows
    tables = [
        table + sigma * rng.standard_normal(table.shape)
        for table in (cells[:rows], cells[rows:-rows].reshape(rows, -1), cells[-rows:])
    ]
    laws = {
        name: GaussianSumLaw(sigma, 1.0, 1, table.size, rows) if sigma else NoNoise()
        for name, table in zip((VISITS, TRANSITIONS, CENTERED_REWARDS), tables, strict=True)
    }
    why = no_guarantee("seeded", reason="a test")
    sums = StepSums(0, tables[1], tables[0], tables[2])
    return KeptRelease(question.query(), len(told), laws, why, (), (sums,))


def true_gain(policy: Any, effect: float = 0.25) -> float:
    """In the user's units: the good end is worth 10."""
    mdp, behaviour = world(effect)
    table = behaviour.copy()
    h, s = np.nonzero(policy >= 0)
    table[h, s] = np.eye(3)[policy[h, s]]
    return 10.0 * (policy_value(mdp, table) - policy_value(mdp, behaviour))


# ------------------------------------------------------------------------------ sensitivity


@pytest.mark.parametrize("noise", ["discrete_gaussian", "discrete_laplace"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_record_of_a_small_problem_moves_the_sum_by_more_than_2_c(noise: Any, k: int) -> None:
    """All records of S = 2, A = 2, H = 2, for policies and coefficients of every size, also wrong ones."""
    rng = np.random.default_rng(k)
    spec = ProblemSpec(
        Layout(2, 2, 2), stationary=True, returns=ReturnBounds(terminal=(1,), outcomes={1: 1.0})
    )
    world_of = policy_question(release_of(small_people(60), spec=spec), spec, np.zeros((1, 2, 2), int)).world
    states = np.array(list(itertools.product(range(2), repeat=3)))
    actions = np.array(list(itertools.product(range(2), repeat=2)))
    every = Trajectories(
        np.repeat(states, len(actions), axis=0), np.tile(actions, (len(states), 1)), np.zeros((32, 2))
    )
    norm, most = 2 if noise.endswith("gaussian") else 1, 0.0
    for _ in range(40):
        shape = (k, 2, 2)
        question = PolicyQuestion(
            world_of, rng.integers(-1, 2, shape), rng.uniform(0, 4, shape), rng.uniform(0.01, 1, shape),
            rng.normal(0, 10.0 ** rng.integers(-3, 4), shape), 1.0, np.eye(k), np.zeros(k), np.eye(k),
        )  # fmt: skip
        clip, laplace = float(10.0 ** rng.uniform(-2, 2)), norm == 1
        given = question.contributions(every, clip, laplace)
        assert np.linalg.norm(given, norm, axis=1).max() <= kappa(laplace) * clip * (1 + 1e-12)
        units = ClippedSum(2 * k, noise, 3.0).clipped(given, kappa(laplace) * clip).astype(float)
        moved = np.linalg.norm(units[:, None] - units[None], norm, axis=2).max() / GRID
        assert moved <= 2.0
        most = max(most, moved)
    # the squares of opposite answers are equal, so the bound 2 kappa C is attained up to kappa only
    assert most > 1.99 / kappa(norm == 1)


def small_people(n: int) -> Trajectories:
    rng = np.random.default_rng(0)
    states = np.zeros((n, 3), np.int64)
    states[:, 1:] = np.maximum.accumulate(rng.integers(0, 2, (n, 2)), axis=1)
    return Trajectories(states, rng.integers(0, 2, (n, 2)), np.zeros((n, 2)))


def test_an_answer_depends_on_one_record_only() -> None:
    question = policy_question(release_of(people(4000, 1)), SPEC, POLICY[None])
    some = people(50, 2)
    whole = question.answers(some)
    for i in (0, 7, 49):
        one = Trajectories(some.states[i : i + 1], some.actions[i : i + 1], some.rewards[i : i + 1])
        assert (question.answers(one) == whole[i : i + 1]).all()


# ------------------------------------------------------------------------------ the mean


def test_an_answer_by_hand() -> None:
    """omega (1{a = pi} / b - 1) (G - Q), summed over the steps at which the policy acts."""
    question = policy_question(release_of(people(4000, 1)), SPEC, POLICY[None])
    states = np.array([[2, 0, 0, 4, 4, 4, 4, 4, 4]])
    actions = np.array([[2, 1, 1, 0, 0, 0, 0, 0]])
    expected = 0.0
    for h, s, a in ((0, 2, 2), (2, 0, 1)):  # at step 1 the policy goes on as before in state 0
        weight = (a == POLICY[h, s]) / question.chance[0, h, s] - 1.0
        expected += question.ratio[0, h, s] * weight * (1.0 - question.own[0, h, s])
    found = question.answers(Trajectories(states, actions, np.zeros((1, 8))))
    assert math.isclose(found[0, 0], expected, rel_tol=1e-12)


def test_the_mean_is_the_gain_with_endless_users() -> None:
    """Within 4 standard errors of 200 000 users; the model has 200 000 other users and no noise."""
    policies = np.stack([POLICY, np.where(POLICY >= 0, POLICY, -1) * 0 - 1, POLICY.copy()])
    policies[2, :, 1] = 1
    question = policy_question(release_of(people(200_000, 1)), SPEC, policies)
    answers = question.answers(people(200_000, 2))
    mean, error = 10.0 * answers.mean(axis=0), 10.0 * answers.std(axis=0) / math.sqrt(200_000)
    for j, policy in enumerate(policies):
        assert abs(mean[j] - true_gain(policy)) <= 4 * error[j] + 2e-3
    assert not answers[:, 1].any()  # a policy that changes nothing
    assert true_gain(POLICY) > 0.5


def test_a_wrong_behaviour_policy_is_forgiven_to_second_order() -> None:
    question = policy_question(release_of(people(200_000, 1)), SPEC, POLICY[None])
    wrong = replace(question, chance=1.15 * question.chance)
    some = people(200_000, 2)
    right, other = (10.0 * one.answers(some).mean() for one in (question, wrong))
    assert abs(other - right) < 0.03 < 0.15 * true_gain(POLICY)


@pytest.mark.parametrize("sigma", [0.0, 40.0])
def test_variance_and_model_error_are_those_of_the_answers(sigma: float) -> None:
    """The stated variance within a tenth; the spread of the model over 30 releases within a factor of two."""
    some, found = people(100_000, 2), []
    for draw in range(30):
        question = policy_question(release_of(people(8_000, 10 + draw), sigma, seed=draw), SPEC, POLICY[None])
        answers = question.answers(some)[:, 0]
        found.append((answers.var(), question.variance, answers.mean(), math.sqrt(question.error[0, 0])))
    variance, stated, mean, error = np.array(found).T
    assert abs(stated.mean() / variance.mean() - 1.0) < 0.1
    assert 0.5 < error.mean() / max(mean.std(), 1e-9) < 2.0 or mean.std() < 0.3 * math.sqrt(
        stated.mean() / 8_000
    )


@pytest.mark.parametrize("effect", [0.25, 0.0])
def test_intervals_hold_the_gain(effect: float) -> None:
    """40 draws; fewer than 33 of 40 would hold by chance with probability 3e-4 at 95 %. Seeds are fixed."""
    held = shown = 0
    for draw in range(40):
        release = release_of(people(6_000, 100 + draw, effect), 30.0, seed=draw)
        question = policy_question(release, SPEC, POLICY[None])
        query = ClippedSum(2, "gaussian", 6.0)
        clip = question.clip(6_000, query.multiplier)
        some = people(6_000, 500 + draw, effect)
        noise = query.scale * np.random.default_rng(draw).standard_normal(2)
        bound = kappa(False) * clip
        sums = query.clipped(question.contributions(some, clip), bound).sum(axis=0) / GRID + noise
        (answer,) = question.read(sums, clip, 6_000, query.std)
        held += answer.low <= true_gain(POLICY, effect) <= answer.high
        shown += answer.shown
    assert held >= 33
    assert shown >= 30 if effect else shown <= 5


def test_several_policies_have_wider_intervals_and_the_clip_is_the_formula() -> None:
    question = policy_question(release_of(people(4_000, 1)), SPEC, np.stack([POLICY] * 3))
    alone = policy_question(release_of(people(4_000, 1)), SPEC, POLICY[None])
    three, one = (q.read(np.full(2 * len(q.policies), 9.0), 2.0, 900, 5.0) for q in (question, alone))
    assert three[0].high - three[0].low > one[0].high - one[0].low
    assert math.isclose(three[0].deviation, one[0].deviation, rel_tol=1e-6)
    p = alone.variance
    assert alone.clip(900, 1e9) == 6 * math.sqrt(p)
    n, clip = 10**8, alone.clip(10**8, 2.0)
    noise = 2 * 2.0 * kappa(False) * clip / n
    assert math.isclose(noise, 0.25 * math.sqrt(p / n))  # a quarter of sampling
    assert alone.clip(n, 2.0, True) < clip


def test_the_variance_is_measured_and_a_policy_that_changes_nothing_gains_nothing() -> None:
    policies = np.stack([POLICY, np.full_like(POLICY, -1)])
    question = policy_question(release_of(people(4_000, 1)), SPEC, policies)
    wrong = replace(question, covariance=0.5 * question.covariance)
    some = people(50_000, 2)
    clip = question.clip(50_000, 1.0)
    sums = question.contributions(some, clip).sum(axis=0) / (kappa(False) * clip)
    for asked in (question, wrong):
        one, nothing = asked.read(sums, clip, 50_000, 0.0)
        assert math.isclose(
            one.sampling, 10.0 * question.answers(some)[:, 0].std() / math.sqrt(50_000), rel_tol=0.01
        )
        assert nothing.estimate == nothing.low == nothing.high == 0.0
        assert not nothing.shown


# ------------------------------------------------------------------------------ refusals


def test_what_does_not_fit_is_refused() -> None:
    release = release_of(people(500, 1))
    for wrong, words in (
        (POLICY, "policies has shape"),
        (POLICY[None].astype(float), "policies has shape"),
        (POLICY[None] + 1, "must be in"),
        (POLICY[None, :4], "policies has shape"),
    ):
        with pytest.raises(ValueError, match=words):
            policy_question(release, SPEC, wrong)
    for spec in (
        replace(SPEC, returns=ReturnBounds(terminal=(3, 4))),
        replace(SPEC, returns=ReturnBounds(terminal=(3, 4), outcomes={4: 10.0, 3: 5.0}, censored=3)),
    ):
        with pytest.raises(ValueError, match="rewards that a rule pays"):
            policy_question(release, spec, POLICY[None])
    with pytest.raises(ValueError, match="must be of first visits"):
        policy_question(release, replace(SPEC, stationary=False), POLICY[None])
    assert fixed_policy.MEMBERS == 24
