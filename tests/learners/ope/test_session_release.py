"""Releases of sessions as releases of offline data: the same sums, coverage of an online study, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.releases import Release
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.ope.policy_gains import evaluate_policies
from discreet.learners.ope.release_split import split_release
from discreet.learners.ope.session_release import SessionRelease
from discreet.mechanisms.interfaces import ProblemSpec, Schedule

MDP = dr.make("random", states=4, actions=2, horizon=4)
SPEC = ProblemSpec(MDP.layout)


def study(users: int, run: int, epsilon: float) -> tuple[Release, np.ndarray]:
    """Return the last release of the default learner, and the mixture of the policies that users followed."""
    central, learner = dr.Central(epsilon=epsilon, delta=1e-6), dr.NoiseAwareUCBVI(replan_growth=1.3)
    spec, seeded = replace(SPEC, users=users, budget=central.budget), dr.Seeded(5, run)
    session = central.start(learner.query(spec), learner.schedule(spec), seeded)
    state, release, done = learner.begin(spec, seeded.keys.environment), session.release(), 0
    followed, counted = np.zeros((2, 4, 4, 2))
    while done < users:
        plan, state = learner.plan(state, release, None)  # type: ignore[arg-type]
        session.begin(plan)
        session.submit_many(
            rollout_batch(MDP, plan.policy, plan.users, 77, run, done), session.open_plan.number
        )
        followed += plan.users * occupancy(np.asarray(plan.policy))
        done += plan.users
        if plan.last and done < users:
            release, counted = session.release(), followed.copy()
    whole = counted.sum(axis=-1, keepdims=True)
    return release, np.where(whole > 0.0, counted / np.maximum(whole, 1e-300), 0.5)


def occupancy(policy: np.ndarray) -> np.ndarray:
    table = np.eye(2)[policy] if policy.ndim == 2 else policy
    found, here = np.zeros((4, 4, 2)), np.asarray(MDP.initial)
    for h in range(4):
        found[h] = here[:, None] * table[h]
        here = np.einsum("sa,sat->t", found[h], np.broadcast_to(MDP.transitions, (4, 4, 2, 4))[h])
    return found


def true_gain(mdp: TabularMDP, behaviour: np.ndarray, policy: np.ndarray) -> float:
    table = np.where((policy >= 0)[..., None], np.eye(2)[policy], behaviour)
    return policy_value(mdp, table) - policy_value(mdp, behaviour)


@pytest.mark.parametrize(("epsilon", "users"), [(4.0, 20_000), (10.0, 3000)])
def test_intervals_from_an_online_study_hold_the_truth(epsilon: float, users: int) -> None:
    """Three policies in each of 20 studies, at most 8 misses of 60: a false alarm of 1e-2 for all settings.

    Seeds are fixed. Policies: the plan from the training part, and other actions at one step and state or at
    half of them, which were fixed before the study.
    """
    draw, missed, informative = np.random.default_rng(1), 0, 0
    for run in range(20):
        release, behaviour = study(users, run, epsilon)
        plan = dr.learners.world_model(release, SPEC).plan()
        one = np.full((4, 4), -1)
        one[draw.integers(4), draw.integers(4)] = draw.integers(2)
        outside = {"one": one, "half": draw.integers(-1, 2, size=(4, 4))}
        found = {
            **evaluate_policies(release, {"plan": plan}, SPEC).gains,
            **evaluate_policies(release, outside, SPEC, made="outside").gains,
        }
        for name, policy in {"plan": plan, **outside}.items():
            gain = found[name]
            missed += not gain.low <= true_gain(MDP, behaviour, np.asarray(policy)) <= gain.high
            informative += gain.known
    assert missed <= 8
    assert informative >= 20
    assert 2 * stats.binom.sf(8, 60, 0.05) < 1e-2


USERS = rollout_batch(MDP, np.full((4, 4, 2), 0.5), 500, 3, 0)


def of_session(query: CountQuery) -> Release:
    """Return a session's release without noise."""
    one = Schedule.one_shot(500, plans="stochastic")
    return dr.learners.make_release(USERS, query, one, dr.NoPrivacy(), dr.Seeded(0))


def test_sums_and_estimates_are_those_of_a_stored_release() -> None:
    query = dr.DPAPVI().query(SPEC)
    release = of_session(query)
    with dr.NoPrivacy().stored(query, dr.Seeded(0)) as session:
        session.submit_many(USERS, np.arange(500))
        kept = session.release().keep()
    found = SessionRelease(release, MDP.layout)
    assert (found.users, found.slots, found.episodes) == (500, 4, 1)
    assert found.guarantee == release.guarantee
    for h in range(4):
        for name in ("transitions", "rewards"):
            np.testing.assert_allclose(getattr(found.step(h), name), getattr(kept.step(h), name), atol=1e-9)
    policies = {"x": np.zeros((4, 4), int)}
    online = evaluate_policies(release, policies, SPEC, made="outside").gains["x"]
    stored = evaluate_policies(kept, policies, SPEC, made="outside").gains["x"]
    assert online.estimate == pytest.approx(stored.estimate, abs=1e-12)
    assert (online.low, online.high) == pytest.approx((stored.low, stored.high), abs=1e-12)
    assert split_release(found)[1].users == 250


def test_other_releases_are_refused() -> None:
    release = of_session(dr.DPAPVI().query(SPEC))
    with pytest.raises(ValueError, match=r"must be SessionRelease\(release, spec.layout\)"):
        split_release(release)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="release.users = 0"):
        SessionRelease(replace(release, users=0), MDP.layout)
    with pytest.raises(ValueError, match="release = "):
        SessionRelease({}, MDP.layout)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="episodes = 0"):
        SessionRelease(release, MDP.layout, 0)
    plain = of_session(CountQuery(MDP.layout))
    with pytest.raises(ValueError, match="release holds reward_sums: must hold centered_reward_sums"):
        evaluate_policies(plain, {"x": np.zeros((4, 4), int)}, SPEC)
    pooled = of_session(CountQuery(MDP.layout, stationary=True, center_rewards=True))
    with pytest.raises(ValueError, match="release holds 1 table for H = 4 steps"):
        evaluate_policies(pooled, {"x": np.zeros((4, 4), int)}, SPEC)
    with pytest.raises(ValueError, match="h = 4"):
        SessionRelease(release, MDP.layout).step(4)
