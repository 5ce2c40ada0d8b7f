"""Gymnasium environments of an ensemble: Gymnasium's checks, streams, ends of episodes, speed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from discreet.envs.world_env import VectorWorld, WorldEnv, observations, world_tables

STATES, ACTIONS, HORIZON = 6, 3, 5


def tables(seed: int = 0, members: int = 3, initial: np.ndarray | None = None) -> Any:
    draw = np.random.default_rng(seed)
    rows = draw.dirichlet(np.full(STATES, 0.5), (members, 1, STATES * ACTIONS))
    rows[:, 0, -ACTIONS:] = np.eye(STATES)[-1]
    index = np.arange(STATES * ACTIONS).reshape(1, STATES, ACTIONS)
    rewards = draw.uniform(size=(1, STATES * ACTIONS)), np.zeros(STATES)
    start = np.array([0.5, 0.25, 0.25, 0, 0, 0]) if initial is None else initial
    ended = np.arange(STATES) == STATES - 1
    return world_tables(rows, (rows > 0).any(axis=0), index, rewards, ended, start, HORIZON)


@pytest.mark.compiles
@pytest.mark.parametrize("observation", ["index", "one-hot", np.arange(12.0).reshape(6, 2)])
@pytest.mark.parametrize("timed", [False, True])
def test_gymnasiums_checker_passes(observation: Any, timed: bool) -> None:
    table = observations(STATES, observation)
    if table is None and timed:
        with pytest.raises(ValueError, match="time = True"):
            VectorWorld(tables(), 2, table, timed, {})
        return
    env = WorldEnv(tables(), table, timed, {"release": "0"})
    check_env(env)
    assert env.spec is not None
    assert env.spec.kwargs == {"made_from": {"release": "0"}}
    assert env.spec.make().reset(seed=1)[0].shape == env.reset(seed=1)[0].shape
    vector = VectorWorld(tables(), 4, table, timed, {})
    seen, info = vector.reset(seed=3)
    assert vector.observation_space.contains(seen)
    mode = vector.metadata["autoreset_mode"]
    assert getattr(mode, "value", mode) == "SameStep"  # Gymnasium 1.0 has no AutoresetMode
    assert info == {}
    vector.action_space.seed(0)
    for _ in range(20):
        seen, rewards, terminated, truncated, info = vector.step(vector.action_space.sample())
        assert vector.observation_space.contains(seen)
        assert rewards.dtype == np.float64
        assert terminated.dtype == truncated.dtype == np.bool_
        if info:
            assert vector.observation_space.contains(info["final_obs"])


def test_episodes_do_not_depend_on_the_number_of_environments() -> None:
    """Equal seeds, equal bits: one environment, the first of 64, and the single environment."""
    table = observations(STATES, "one-hot")
    one, many = VectorWorld(tables(), 1, table, True, {}), VectorWorld(tables(), 64, table, True, {})
    single = WorldEnv(tables(), table, True, {})
    seen = [env.reset(seed=9)[0] for env in (one, many)]
    assert np.array_equal(seen[0][0], seen[1][0])
    assert np.array_equal(single.reset(seed=9)[0], seen[0][0])
    actions = np.random.default_rng(2).integers(ACTIONS, size=(200, 64))
    for row in actions:
        a, b = one.step(row[:1]), many.step(row)
        c = single.step(row[0])
        for x, y in zip(a[:4], b[:4], strict=True):
            assert np.array_equal(x[0], y[0])
        assert (float(a[1][0]), bool(a[2][0]), bool(a[3][0])) == c[1:4]
        if c[2] or c[3]:
            assert np.array_equal(c[0], a[4]["final_obs"][0])
            with pytest.raises(ValueError, match="the episode has ended"):
                single.step(row[0])
            assert np.array_equal(single.reset()[0], a[0][0])
        else:
            assert np.array_equal(c[0], a[0][0])
    again, same = many.reset(seed=9)[0], many.reset(seed=9)[0]
    assert np.array_equal(again, same)
    assert not np.array_equal(many.reset()[0], same)
    assert not np.array_equal(VectorWorld(tables(), 64, table, True, {}).reset()[0], same)


def test_ends_of_episodes() -> None:
    """A terminal state terminates; the horizon truncates, or terminates if the time is observed."""
    table = observations(STATES, "one-hot")
    for timed in (False, True):
        env = VectorWorld(tables(), 256, table, timed, {})
        env.reset(seed=1)
        steps, draw = np.zeros(256, int), np.random.default_rng(0)
        for _ in range(30):
            seen, _, terminated, truncated, info = env.step(draw.integers(ACTIONS, size=256))
            steps += 1
            ends = terminated | truncated
            last = info["final_obs"] if info else seen
            absorbed = ends & (last[:, STATES - 1] == 1.0)
            assert np.array_equal(absorbed | (steps == HORIZON), ends)
            assert not (terminated & truncated).any()
            if timed:
                assert not truncated.any()
                np.testing.assert_allclose(last[:, -1], steps / HORIZON, rtol=1e-6)
                assert (seen[ends, -1] == 0.0).all()
            else:
                assert np.array_equal(terminated, absorbed)
            if info:
                assert np.array_equal(info["_final_obs"], ends)
            assert (seen[:, STATES - 1] == 0.0).all()  # nobody starts there
            steps[ends] = 0


def test_returned_arrays_are_copies() -> None:
    env = VectorWorld(tables(), 8, None, False, {})
    first = env.reset(seed=1)[0]
    kept = first.copy()
    one = env.step(np.zeros(8, int))
    copies = [np.array(x) for x in one[:4]]
    assert np.array_equal(first, kept)
    env.step(np.ones(8, int))
    assert all(np.array_equal(x, y) for x, y in zip(copies, one[:4], strict=True))
    one[0][:] = -1
    env.step(np.ones(8, int))


def test_bad_arguments_are_refused() -> None:
    env = VectorWorld(tables(), 2, None, False, {})
    with pytest.raises(ValueError, match="call reset first"):
        env.step([0, 0])
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions\[1\] = 3: must be in \[0, 2\]"):
        env.step([0, 3])
    with pytest.raises(ValueError, match="must be 2 integers"):
        env.step([0.0, 1.0])
    with pytest.raises(ValueError, match="must be 2 integers"):
        env.step([0])
    with pytest.raises(ValueError, match="n = 0"):
        VectorWorld(tables(), 0, None, False, {})
    with pytest.raises(ValueError, match="seed = -1"):
        env.reset(seed=-1)
    with pytest.raises(ValueError, match="call reset first"):
        WorldEnv(tables(), None, False, {}).step(np.int64(0))
