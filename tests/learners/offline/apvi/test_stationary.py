"""One model for all steps: the sums of released steps, their noise, and what must be declared."""

from __future__ import annotations

import numpy as np
import pytest

import discreet as dr
from discreet.envs.mdp.planning import optimal_values, policy_value
from discreet.experiments.offline_runs import SimulatedDataset, make_release
from discreet.learners.offline.apvi import APVI, DPAPVI

H, S, A = 6, 4, 2


def world(seed: int = 0) -> dr.TabularMDP:
    draw = np.random.default_rng(seed)
    return dr.TabularMDP(draw.dirichlet(np.full(S, 0.3), (S, A)), draw.uniform(size=(S, A)), horizon=H)


MDP = world()
SPEC = dr.mechanisms.ProblemSpec(MDP.layout, stationary=True)


def release(learner: APVI | DPAPVI, privatizer: dr.Central | dr.NoPrivacy, users: int = 3000) -> dr.Release:
    data = SimulatedDataset(MDP, dr.envs.uniform_policy(MDP), users)
    return make_release(data, learner.query(SPEC), learner.schedule(users), privatizer, dr.Seeded(2))


def test_without_noise_the_model_is_that_of_all_steps() -> None:
    found = release(APVI(), dr.NoPrivacy())
    pooled = APVI(stationary=True, c1=0.0, c3=0.0).learn(found, SPEC)
    moves = np.asarray(found.estimates["transition_counts"].value).sum(axis=0)
    visits = moves.sum(axis=-1)
    np.testing.assert_allclose(pooled.visits, np.broadcast_to(visits, (H, S, A)))
    rewards = np.asarray(found.estimates["centered_reward_sums"].value).sum(axis=0) / visits + 0.5
    after = np.zeros(S)
    for h in range(H - 1, -1, -1):
        q = rewards + (moves / visits[..., None]) @ after
        np.testing.assert_allclose(pooled.q[h], q, atol=1e-9)
        after = q.max(axis=1)


def test_noise_grows_by_the_root_of_the_steps() -> None:
    private = dr.Central(rho=0.5)
    found = release(DPAPVI(), private)
    one = DPAPVI(threshold=1.0).learn(found, SPEC)
    all_steps = DPAPVI(threshold=1.0, stationary=True).learn(found, SPEC)
    assert all_steps.threshold == pytest.approx(np.sqrt(H) * one.threshold)
    assert all_steps.noise_error < np.sqrt(H) * one.noise_error  # fewer cells to be right about
    assert all_steps.noise_error > 0.8 * np.sqrt(H) * one.noise_error


def test_pooling_learns_more_from_the_same_release() -> None:
    """Twenty worlds would do; one seed is fixed, so there is no false alarm to state."""
    best = policy_value(MDP, optimal_values(MDP)[2])
    found = release(DPAPVI(), dr.Central(rho=0.02), 2000)
    gaps = [
        best - policy_value(MDP, DPAPVI(stationary=stationary).learn(found, SPEC).policy)
        for stationary in (False, True)
    ]
    assert gaps[1] < gaps[0]


def test_it_must_be_declared() -> None:
    found = release(DPAPVI(), dr.Central(rho=1.0))
    with pytest.raises(ValueError, match="stationary = True: must be declared"):
        DPAPVI(stationary=True).learn(found, dr.mechanisms.ProblemSpec(MDP.layout))
    with pytest.raises(ValueError, match="stationary = 2"):
        DPAPVI(stationary=2)  # type: ignore[arg-type]
