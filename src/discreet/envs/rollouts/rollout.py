"""Rollouts of simulated users: trajectories of single users, and total counts of many users.

The numbers (seed, run, role, index) determine a random stream. User ``i`` has the same random numbers in
every function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.envs.mdp import tabular_kernels as world_kernels
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts import local_reports_kernels as report_flow_kernels
from discreet.mechanisms.policy_rows import PolicyRows, policy_rows
from discreet.utils.random_streams_kernels import ROLE_BATCH, open_at, run_key

MOST_USERS = 10**10  # up to this number, rounding errors in the binomial sampler are negligible


def rollout(
    mdp: TabularMDP, policy: ArrayLike | PolicyRows, key: NDArray[np.uint64], episode: int
) -> Trajectory:
    """Return the trajectory of user number ``episode`` in ``mdp`` under a (H, S) or (H, S, A) policy.

    ``key`` (2,) uint64 is any two numbers, or the result of ``random_streams_kernels.run_key(seed, run)``.
    The same key and user number give the same trajectory. Raises ``ValueError`` if the policy does not fit
    ``mdp``, or if ``episode`` is below 0.
    """
    played = _play(mdp, policy, environment_key(key), checks.integer("episode", episode, 0), 1)
    return played[0]


def rollout_batch(
    mdp: TabularMDP, policy: ArrayLike | PolicyRows, n: int, seed: int = 0, run: int = 0, first: int = 0
) -> Trajectories:
    """Return the trajectories of users ``first`` .. ``first + n - 1`` of a run.

    ``mdp`` : TabularMDP. ``policy`` : (H, S) int or (H, S, A). ``seed`` : seed of the run. States are
    (n, H + 1); actions and rewards are (n, H). Raises ``ValueError`` if the policy does not fit, or if a
    number is below 0.
    """
    key = run_key(checks.integer("seed", seed, 0), checks.integer("run", run, 0))
    return _play(mdp, policy, key, checks.integer("first", first, 0), checks.integer("n", n, 0))


def batch_counts(
    mdp: TabularMDP,
    policy: ArrayLike | PolicyRows,
    n: int,
    key: NDArray[np.uint64],
    batch: int = 0,
    sub_batch: int = 0,
    *,
    pooled: bool = False,
) -> dict[str, NDArray[np.float64]]:
    """Draw the counts of ``n <= 1e10`` users with the same policy from their exact joint distribution.

    Returns ``visits (T, S, A)``, ``transition_counts (T, S, A, S)`` and ``reward_sums (T, S, A)``, with T = 1
    if ``pooled`` is True, otherwise H. Also returns ``step_visits (H, S, A)`` and ``starts (S,)``.
    """
    n = checks.integer("n", n, 0, MOST_USERS)
    state = open_at(
        environment_key(key),
        ROLE_BATCH,
        checks.integer("batch", batch, 0),
        checks.integer("sub_batch", sub_batch, 0),
    )
    layout, slots = mdp.layout, 1 if pooled else mdp.horizon
    visits, rewards = np.zeros((slots, layout.rows)), np.zeros((slots, layout.rows))
    transitions = np.zeros((slots, layout.rows, layout.states))
    starts, steps = np.zeros(layout.states), np.empty((layout.horizon, layout.rows))
    world_kernels.flow(
        mdp.world,
        n,
        *policy_rows(layout, policy),
        state,
        visits,
        transitions,
        rewards,
        starts,
        steps,
        np.empty(world_kernels.work_size(mdp.world), np.int64),
    )
    return {
        "visits": layout.from_rows(visits),
        "transition_counts": layout.from_rows(transitions),
        "reward_sums": layout.from_rows(rewards),
        "step_visits": layout.from_rows(steps),
        "starts": starts,
    }


def reward_bits(
    mdp: TabularMDP, counts: dict[str, NDArray[np.float64]], key: NDArray[np.uint64], batch: int = 0
) -> NDArray[np.float64]:
    """Draw (H, S, A) sums of rewards that users round at random to 0 or 1.

    counts : tables of :func:`batch_counts` for these users, not pooled over steps. A rounded reward is 1 with
    probability equal to the mean reward of (s, a), or of (s, a, s') if rewards depend on the successor.
    """
    if mdp.reward_law == "bernoulli":
        return counts["reward_sums"]
    address = [*environment_key(key).tolist(), checks.integer("batch", batch, 0), 0x62697473]
    source = np.random.Generator(np.random.Philox(np.random.SeedSequence(address)))
    by_successor = mdp.successor_rewards
    if by_successor is None:
        bits = source.binomial(counts["visits"].astype(np.int64), np.clip(mdp.rewards, 0.0, 1.0))
    else:
        moves = counts["transition_counts"].astype(np.int64)
        bits = source.binomial(moves, np.clip(by_successor, 0.0, 1.0)).sum(axis=-1)
    return bits.astype(np.float64)


def reported_counts(
    mdp: TabularMDP,
    policy: ArrayLike | PolicyRows,
    n: int,
    steps: int,
    share: float,
    key: NDArray[np.uint64],
    batch: int = 0,
) -> dict[str, NDArray[np.float64]]:
    """Draw the number of reports of each kind from n users who each report ``steps`` random steps.

    The draw is from the exact joint distribution. With probability ``share``, a report is about the reward,
    rounded at random to 0 or 1, and otherwise about the transition. Returns ``reported_moves (H, S, A, S)``
    and ``reported_bits (H, S, A, 2)``. Also returns the visits ``step_visits (H, S, A)`` and the numbers of
    first states ``starts (S,)`` of all users.
    """
    n = checks.integer("n", n, 0, MOST_USERS)
    steps = checks.integer("steps", steps, 1, mdp.horizon)
    share = checks.real("share", share, 0.0, 1.0)
    layout = mdp.layout
    moves = np.zeros((mdp.horizon, layout.rows, layout.states), np.int64)
    bits = np.zeros((mdp.horizon, layout.rows, 2), np.int64)
    starts, visits = np.zeros(layout.states), np.empty((mdp.horizon, layout.rows))
    report_flow_kernels.draw_reported(
        mdp.world, n, *policy_rows(layout, policy), steps, share, environment_key(key),
        checks.integer("batch", batch, 0), moves, bits, starts, visits,
        np.zeros(report_flow_kernels.work_size(mdp.world, steps), np.int64),
    )  # fmt: skip
    return {
        "reported_moves": layout.from_rows(moves.astype(np.float64)),
        "reported_bits": layout.from_rows(bits.astype(np.float64)),
        "step_visits": layout.from_rows(visits),
        "starts": starts,
    }


def reported_step(
    mdp: TabularMDP,
    counts: dict[str, NDArray[np.float64]],
    step: int,
    share: float,
    key: NDArray[np.uint64],
    batch: int = 0,
) -> dict[str, NDArray[np.float64]]:
    """Draw the number of reports of each kind from users who all report the same step.

    counts : tables of :func:`batch_counts` for these users. With probability ``share``, a report is about the
        reward, rounded at random to 0 or 1, and otherwise about the transition. Returns ``reported_moves (1,
        S, A, S)`` and ``reported_bits (1, S, A, 2)``.
    """
    share = checks.real("share", share, 0.0, 1.0)
    address = [*environment_key(key).tolist(), checks.integer("batch", batch, 0), 0x73746570]
    source = np.random.Generator(np.random.Philox(np.random.SeedSequence(address)))
    moves = counts["transition_counts"][step].astype(np.int64)
    asked = source.binomial(moves, share)  # number of users who report a reward
    by_successor = mdp.successor_rewards
    if by_successor is None:
        ones = source.binomial(asked.sum(axis=-1), np.clip(mdp.rewards[step], 0.0, 1.0))
    else:
        ones = source.binomial(asked, np.clip(by_successor[step], 0.0, 1.0)).sum(axis=-1)
    bits = np.stack([asked.sum(axis=-1) - ones, ones], axis=-1)
    tables = {"reported_moves": moves - asked, "reported_bits": bits}
    return {name: table[None].astype(np.float64) for name, table in tables.items()}


def environment_key(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return ``key``. Raises ``ValueError`` unless it is a (2,) array of uint64."""
    if not isinstance(key, np.ndarray) or key.shape != (2,) or key.dtype != np.uint64:
        raise ValueError(f"key = {checks.said(key)}: must be two 64-bit words, an array (2,) of uint64")
    return key


def _play(
    mdp: TabularMDP, policy: ArrayLike | PolicyRows, key: NDArray[np.uint64], first: int, n: int
) -> Trajectories:
    states = np.empty((n, mdp.horizon + 1), np.int64)
    rows = np.empty((n, mdp.horizon), np.int64)
    rewards = np.empty((n, mdp.horizon))
    world_kernels.episodes(mdp.world, *policy_rows(mdp.layout, policy), key, first, states, rows, rewards)
    return Trajectories(states, mdp.layout.row_action[rows], rewards)
