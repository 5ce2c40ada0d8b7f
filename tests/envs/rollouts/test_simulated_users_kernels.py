"""Compiled sums of users who are played one by one, against a plain count of the same users."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.rng import Seeded
from discreet.envs.rollouts.rollout import policy_rows, rollout
from discreet.envs.rollouts.simulated_users_kernels import episode_sums

KEY = Seeded(3, 1).keys.environment
FIRST, CLIP, CUT = 7, 1.25, 0.75


def mixed(mdp: dr.TabularMDP) -> np.ndarray:
    layout = mdp.layout
    return np.random.default_rng(0).dirichlet(np.ones(layout.actions), (layout.horizon, layout.states))


def fixed(mdp: dr.TabularMDP) -> np.ndarray:
    layout = mdp.layout
    return np.random.default_rng(1).integers(layout.actions, size=(layout.horizon, layout.states))


def plain(mdp: dr.TabularMDP, policy: np.ndarray, n: int) -> tuple[dict[str, np.ndarray], float]:
    """Counts and the sum of clipped returns, user by user and step by step."""
    horizon, rows, states = mdp.layout.horizon, mdp.layout.rows, mdp.layout.states
    found = {
        "visits": np.zeros((horizon, rows)), "moves": np.zeros((horizon, rows, states)),
        "rewards": np.zeros((horizon, rows)), "cut": np.zeros(rows), "starts": np.zeros(states),
    }  # fmt: skip
    returns = 0.0
    for user in range(FIRST, FIRST + n):
        one = rollout(mdp, policy, KEY, user)
        found["starts"][one.states[0]] += 1
        left, total = CUT, 0.0
        for h in range(horizon):
            row, reward = mdp.layout.row_index[one.states[h], one.actions[h]], float(one.rewards[h])
            found["visits"][h, row] += 1
            found["moves"][h, row, one.states[h + 1]] += 1
            found["rewards"][h, row] += reward
            found["cut"][row] += min(reward, left)
            left -= min(reward, left)
            total += reward
        returns += min(total, CLIP)
    return found, returns


def compiled(
    mdp: dr.TabularMDP, policy: np.ndarray, parts: tuple[int, ...]
) -> tuple[dict[str, np.ndarray], float]:
    """The same by the kernel, in one call for each part."""
    horizon, rows, states = mdp.layout.horizon, mdp.layout.rows, mdp.layout.states
    shapes: dict[str, Any] = {
        "visits": (horizon, rows), "moves": (horizon, rows, states), "rewards": (horizon, rows), "cut": rows,
    }  # fmt: skip
    ends = np.cumsum([np.prod(shape) for shape in shapes.values()])
    begins = np.array([0, ends[0], ends[1], -1, -1, 0, ends[2]], np.int64)
    cells, starts, returns, first = np.zeros(ends[-1]), np.zeros(states), 0.0, FIRST
    for n in parts:
        returns += episode_sums(
            mdp.world, *policy_rows(mdp.layout, policy), KEY, first, n, CLIP, CUT, begins, starts, cells
        )
        first += n
    tables = zip(shapes, np.split(cells, ends[:-1]), strict=True)
    return {name: table.reshape(shapes[name]) for name, table in tables} | {"starts": starts}, returns


@pytest.mark.parametrize("policy", [fixed, mixed])
@pytest.mark.parametrize(
    "mdp",
    [
        dr.make("riverswim", states=3, horizon=5),
        dr.make("random", states=3, actions=2, horizon=4, seed=3),
        dr.make("random", states=3, actions=2, horizon=4, stationary=False, rewards="deterministic", seed=4),
    ],
    ids=["riverswim", "random", "deterministic"],
)
def test_sums_are_those_of_the_users(mdp: dr.TabularMDP, policy: Any) -> None:
    wanted, returns = plain(mdp, policy(mdp), 40)
    for parts in ((40,), (1, 0, 13, 26)):
        found, total = compiled(mdp, policy(mdp), parts)
        for table in ("starts", "visits", "moves"):
            assert np.array_equal(found[table], wanted[table])
        for table in ("rewards", "cut"):
            assert found[table] == pytest.approx(wanted[table], abs=1e-12)
        assert total == pytest.approx(returns, abs=1e-12)
    assert wanted["visits"].sum(axis=1).tolist() == [40] * mdp.layout.horizon
    assert wanted["cut"].sum() <= CUT * 40 + 1e-9
    assert 0.0 < returns <= CLIP * 40
