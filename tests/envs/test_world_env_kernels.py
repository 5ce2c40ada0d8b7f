"""Compiled steps: rewards, ends, members and rows of several steps, by hand."""

from __future__ import annotations

import numpy as np

from discreet.envs import world_env_kernels as kernels
from discreet.envs.world_env import world_tables
from discreet.envs.world_env_kernels import WorldState
from discreet.utils.random_streams_kernels import run_key


def state_of(n: int) -> WorldState:
    return WorldState(
        *(np.zeros(n, np.int64) for _ in range(3)), np.zeros((n, 4), np.uint64), np.zeros(n),
        np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, np.int64),
    )  # fmt: skip


def test_rows_and_rewards_of_each_step_are_used() -> None:
    """Two steps with other rows and other rewards; two members that lead to other states."""
    first = np.zeros((2, 2, 4))
    first[0, 0, 1] = first[0, 1, 2] = first[1, 0, 3] = first[1, 1, 3] = 1.0
    second = first.copy()
    second[0, 0] = np.eye(4)[2]
    possible = (first + second) > 0
    action_row = np.zeros((2, 4, 2), np.int64)
    action_row[..., 1] = 1
    rewards = np.array([[0.25, 0.5], [1.0, 2.0]]), np.array([0.0, 10.0, 20.0, 30.0])
    ended = np.array([False, False, False, False])
    tables = world_tables([first, second], possible, action_row, rewards, ended, np.eye(4)[0], 2)
    now = state_of(200)
    kernels.seed_environments(run_key(1), now)
    kernels.begin_episodes(tables, now)
    assert (now.state == 0).all()
    assert 50 < now.member.sum() < 150  # binomial(200, 1/2): outside with probability below 1e-12
    actions = np.repeat([0, 1], 100)
    member = now.member.copy()
    assert kernels.step_environments(tables, actions, False, now) == -1
    expected = np.where(actions == 1, 2, 1 + member)
    assert np.array_equal(now.state, expected)
    assert np.array_equal(now.reward, np.array([0.25, 0.5])[actions] + 10.0 * expected)
    assert not now.truncated.any()
    before = [x.copy() for x in now]
    assert kernels.step_environments(tables, np.where(np.arange(200) == 7, 2, 0), False, now) == 7
    assert all(np.array_equal(x, y) for x, y in zip(before, now, strict=True))
    assert kernels.step_environments(tables, actions, False, now) == -1
    assert np.array_equal(now.reward, np.array([1.0, 2.0])[actions] + 30.0)
    assert now.truncated.all()
    assert not now.terminated.any()
    assert (now.final == 3).all()
    assert (now.state == 0).all()
    assert (now.step == 0).all()
    for _ in range(2):
        kernels.step_environments(tables, actions, True, now)
    assert now.terminated.all()
    assert not now.truncated.any()
