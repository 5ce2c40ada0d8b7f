"""TabularMDP as an environment that passes Gymnasium's own checker."""

import sys

import numpy as np
import pytest

from discreet.envs import from_gymnasium, random_mdp, riverswim, to_gymnasium
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP

from .test_from_gymnasium import returns


def absorbing_mdp():
    transitions = np.zeros((3, 2, 3))
    transitions[0] = [[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]
    transitions[1] = [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    transitions[2, :, 2] = 1
    rewards = np.array([[0.2, 0.4], [0.6, 1.0], [0.0, 0.0]])
    return TabularMDP(transitions, rewards, [0.5, 0.5, 0], horizon=6, terminal=[2], reward_law="bernoulli")


@pytest.mark.parametrize(
    "mdp",
    [
        riverswim(),
        absorbing_mdp(),
        random_mdp(stationary=False, horizon=5),
        from_gymnasium("FrozenLake-v1", horizon=10),
        from_gymnasium("CliffWalking-v1", horizon=10, is_slippery=True),
    ],
    ids=lambda mdp: mdp.name,
)
def test_gymnasiums_checker_passes(mdp):
    from gymnasium.utils.env_checker import check_env

    check_env(to_gymnasium(mdp, seed=1), skip_render_check=True)


@pytest.mark.parametrize(
    "mdp",
    [
        riverswim(),
        absorbing_mdp(),
        random_mdp(stationary=False, horizon=5),
        from_gymnasium("FrozenLake-v1", horizon=10),
        from_gymnasium("CliffWalking-v1", horizon=10, is_slippery=True),
    ],
    ids=lambda mdp: mdp.name,
)
def test_played_returns_have_the_exact_mean(mdp):
    policy = np.random.default_rng(0).integers(mdp.actions, size=(mdp.horizon, mdp.states))
    found = returns(mdp, policy, 1500, seed=3)
    assert abs(found.mean() - policy_value(mdp, policy)) < 5 * found.std() / np.sqrt(1500)
    assert np.array_equal(found[:20], returns(mdp, policy, 20, seed=3))


def test_episodes_end_where_nothing_more_is_earned():
    env = to_gymnasium(absorbing_mdp(), seed=0)
    ends = set()
    for _ in range(50):
        _, info = env.reset()
        terminated = truncated = False
        while not (terminated or truncated):
            state, _, terminated, truncated, info = env.step(info["step"] % 2)
        ends.add((terminated, int(state) == 2))
        if terminated:
            with pytest.raises(ValueError, match="the episode has ended"):
                env.step(0)
    assert ends == {(True, True), (False, False)}
    cliff = to_gymnasium(from_gymnasium("CliffWalking-v1", horizon=20), seed=0)
    cliff.reset()
    path = [0] + [1] * 11 + [2] + [0] * 7  # up, right along the cliff, down, wait at the end
    flags = [cliff.step(action)[1:4] for action in path]
    assert [flag[1:] for flag in flags] == [(False, False)] * 19 + [(False, True)]
    assert [flag[0] for flag in flags] == [0.99] * 13 + [1.0] * 7


def test_inadmissible_actions_are_refused():
    mask = np.array([[True, False], [True, True]])
    mdp = TabularMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), horizon=3, mask=mask)
    env = to_gymnasium(mdp)
    with pytest.raises(ValueError, match="call reset first"):
        env.step(0)
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [1, 0]
    for action in (1, 2, -1):
        with pytest.raises(ValueError, match=rf"action = {action} in state 0: must be one of \[0\]"):
            env.step(action)


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    for call in (lambda: to_gymnasium(riverswim()), lambda: from_gymnasium("Taxi-v4")):
        with pytest.raises(ImportError, match=r"pip install 'discreet\[gymnasium\]'"):
            call()
