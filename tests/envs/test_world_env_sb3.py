"""Stable-Baselines3's own checks, and its conventions about the ends of episodes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.envs.test_world_env import HORIZON, STATES, tables

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

from discreet.envs.world_env import VectorWorld, WorldEnv, observations
from discreet.envs.world_env_sb3 import SB3World

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def world(n: int, observation: Any = "one-hot", time: bool = False) -> SB3World:
    return SB3World(VectorWorld(tables(), n, observations(STATES, observation), time, {"release": "0"}))


@pytest.mark.parametrize(("observation", "time"), [("index", False), ("one-hot", True)])
def test_its_checker_accepts_one_environment(observation: str, time: bool) -> None:
    check_env(WorldEnv(tables(), observations(STATES, observation), time, {}))


@pytest.mark.parametrize("time", [False, True])
def test_episodes_are_those_of_gymnasiums_environment(time: bool) -> None:
    ours, theirs = world(32, time=time), world(32, time=time).world
    ours.seed(4)
    assert np.array_equal(ours.reset(), theirs.reset(seed=4)[0])
    draw, cut = np.random.default_rng(0), 0
    for _ in range(4 * HORIZON):
        actions = draw.integers(3, size=32)
        seen, rewards, dones, infos = ours.step(actions)
        after, paid, terminated, truncated, info = theirs.step(actions)
        assert np.array_equal(seen, after)
        assert rewards.dtype == np.float32
        np.testing.assert_array_equal(rewards, paid.astype(np.float32))
        assert np.array_equal(dones, terminated | truncated)
        assert len(infos) == 32
        for i, own in enumerate(infos):
            assert bool(own) == dones[i]
            if own:
                assert np.array_equal(own["terminal_observation"], info["final_obs"][i])
                assert own["TimeLimit.truncated"] == truncated[i]
        cut += truncated.sum()
    assert bool(cut) != time
    first = ours.reset()
    assert not np.array_equal(ours.reset(), first)  # the seed was used once


def test_attributes_belong_to_the_common_world() -> None:
    env = world(3)
    assert env.get_attr("made_from", [0, 2]) == [{"release": "0"}] * 2
    env.set_attr("made_from", {"release": "1"})
    assert env.get_attr("made_from") == [{"release": "1"}] * 3
    assert env.has_attr("tables")
    assert not env.has_attr("pixels")
    assert env.env_is_wrapped(VecMonitor) == [False] * 3
    env.reset()
    assert len(env.env_method("step", np.zeros(3, int), indices=1)) == 1
    assert env.render_mode is None
    assert env.close() is None


def test_a_copy_by_pickle_goes_on_in_the_same_way() -> None:
    env = world(8)
    env.seed(1)
    env.reset()
    env.step(np.zeros(8, int))
    again = pickle.loads(pickle.dumps(env))
    for _ in range(10):
        one, other = env.step(np.ones(8, int)), again.step(np.ones(8, int))
        assert all(np.array_equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))
    with pytest.raises(ValueError, match=r"actions\[0\] = 5"):
        env.step(np.full(8, 5))


@pytest.mark.parametrize("kind", ["PPO", "DQN"])
def test_agents_learn_in_it(kind: str, tmp_path: Path) -> None:
    """Both kinds of algorithms run, are saved and loaded, and choose better than at random."""
    env = VecMonitor(world(8, time=True))
    if kind == "PPO":
        agent = PPO("MlpPolicy", env, n_steps=64, batch_size=128, gamma=1.0, seed=0, device="cpu")
    else:
        agent = DQN(
            "MlpPolicy", env, 1e-3, learning_starts=200, gamma=1.0, seed=0, device="cpu", gradient_steps=4,
            target_update_interval=200, exploration_fraction=0.5,
        )  # fmt: skip
    agent.learn(8_000)
    agent.save(tmp_path / "agent")
    again = type(agent).load(tmp_path / "agent", env=world(8, time=True))
    again.env.seed(3)
    found, _ = evaluate_policy(again, again.env, 400)
    assert found > np.mean([random_return(s) for s in range(5)]) + 0.1


def random_return(seed: int) -> float:
    """Mean return of an episode of random actions."""
    env = world(64, time=True)
    env.seed(seed)
    env.reset()
    draw, paid, ends = np.random.default_rng(seed), 0.0, 0
    for _ in range(200):
        _, rewards, dones, _ = env.step(draw.integers(3, size=64))
        paid, ends = paid + rewards.sum(), ends + dones.sum()
    return float(paid / ends)
