"""Sums that many simulated users submit to a session in one call, for all trust models.

Sums over n users with the same policy are drawn from their joint distribution, in two parts:

====================  ================================  ===========================================
trusted party         drawn in this module, exactly     drawn by the session
====================  ================================  ===========================================
the server, or none   counts of n users                 the session's noise
a device, counters    counts of n users                 the sum of n devices' noise, exactly

a device, reports     which records are reported        the random responses to reports, exactly

a shuffler, bits      counts, rewards rounded to bits   the sum of n devices' random bits
a shuffler, reports   which records are reported        the random responses to reports
====================  ================================  ===========================================

Clipped returns and clipped rewards are not functions of counts; for these sums, users are simulated one by
one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.count_channels import is_of_counts
from discreet.core.count_query import CountQuery
from discreet.core.families import (
    CENTERED_REWARDS,
    CUT_REWARDS,
    GROUP_RETURNS,
    POOLED_REWARDS,
    POOLED_TRANSITIONS,
    REWARDS,
    TRANSITIONS,
    VISITS,
)
from discreet.core.releases import Floats
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts import simulated_users_kernels as crowd_kernels
from discreet.envs.rollouts.rollout import (
    MOST_USERS,
    batch_counts,
    environment_key,
    reported_counts,
    reported_step,
    reward_bits,
)
from discreet.mechanisms.policy_rows import PolicyRows, policy_rows

Key = NDArray[np.uint64]

_CHUNK = 2**16  # users per chunk; the simulation can be interrupted between chunks


@dataclass(frozen=True, eq=False)
class SimulatedUsers:
    """Totals of a batch of simulated users with the same policy.

    sums : the argument for ``session.submit_sum``. starts : (S,) number of users with each initial state.
    visits : (H, R) number of users at each row (s, a) at each step.
    """

    sums: Mapping[str, Floats]
    starts: Floats
    visits: Floats


def reports_of(session: Any) -> Any:
    """Return the report mechanism of a session; None if users do not send reports."""
    return getattr(session, "reports", None)


def _asked(session: Any, query: Any) -> Any:
    schedule = getattr(session, "schedule", None)
    return query if schedule is None or schedule.queries is None else session.query


def simulate_users(
    mdp: TabularMDP,
    session: Any,
    query: Any,
    policy: ArrayLike | PolicyRows,
    users: int,
    key: Key,
    address: int = 0,
    group: int | None = None,
) -> SimulatedUsers:
    """Simulate the next ``users`` users of a session, and return the sum of what they submit.

    - policy : (H, S) or (H, S, A) policy that all these users follow.
    - query : the session's query. If a session has a query for each batch, the query of the open batch is
      used.
    - key : random key of the environment in this run.
    - address : index of the random stream, for example the number of the first user.
    - group : index of the group of the users' plan, if the query has groups.
    """
    query = _asked(session, query)
    reports = reports_of(session)
    step = getattr(query, "step", None)
    if reports is not None and step is None:
        share = reports.reward_share
        return _crowd(mdp, reported_counts(mdp, policy, users, reports.steps, share, key, address))
    # names of the count tables from which the session computes its sums
    simulated = getattr(query, "simulated", None)
    if simulated is not None:
        return _crowd(mdp, batch_counts(mdp, policy, users, key, address), simulated)
    cut = session.cut if is_of_counts(session) else 0.0
    bits = getattr(session, "bits", False)
    found, counts = _counted(mdp, query, policy, users, key, address, group or 0, cut, bits)
    if reports is None or step is None:
        return found
    asked = reported_step(mdp, counts, step, reports.reward_share, key, address)
    return SimulatedUsers(asked, found.starts, found.visits)


def simulate_counts(
    mdp: TabularMDP, query: CountQuery, policy: ArrayLike | PolicyRows, users: int, key: Key, address: int = 0
) -> SimulatedUsers:
    """Return the exact sums of every family of ``query`` for ``users`` simulated users."""
    return _counted(mdp, query, policy, users, key, address, 0, query.cut, False)[0]


def played_counts(
    mdp: TabularMDP,
    policy: ArrayLike | PolicyRows,
    n: int,
    key: Key,
    first: int,
    clip: float = 0.0,
    *,
    cut: float = 0.0,
    pooled: bool = False,
) -> tuple[dict[str, Floats], float]:
    """Simulate users ``first .. first + n - 1`` one by one. Returns their counts and sum of clipped returns.

    The counts are the tables of :func:`discreet.envs.rollouts.rollout.batch_counts` and the table
    ``cut_reward_sums (1, S, A)``. In this table, each user's rewards are added in time order and clipped at a
    total of ``cut``. The second result is the sum over users of min(return, ``clip``).
    """
    n = checks.integer("n", n, 0, MOST_USERS)
    first, clip, cut = (
        checks.integer("first", first, 0), checks.real("clip", clip, 0.0), checks.real("cut", cut, 0.0),
    )  # fmt: skip
    layout = mdp.layout
    shape, starts = (layout.horizon, layout.rows), np.zeros(layout.states)
    sizes = np.array([math.prod(shape), math.prod(shape) * layout.states, math.prod(shape), layout.rows])
    ends = np.cumsum(sizes).tolist()
    # first cell of each family, indexed by the family's code
    begins = np.array([0, ends[0], ends[1], -1, -1, 0, ends[2]], np.int64)
    cells = np.zeros(ends[3])
    played, key, returns = policy_rows(layout, policy), environment_key(key), 0.0
    for begin in range(0, n, _CHUNK):
        returns += crowd_kernels.episode_sums(
            mdp.world, *played, key, first + begin, min(_CHUNK, n - begin), clip, cut, begins, starts, cells
        )
    visits, moves, rewards, up_to_cut = np.split(cells, ends[:-1])
    steps = visits.reshape(shape)
    moves, rewards = moves.reshape(*shape, layout.states), rewards.reshape(shape)
    tables = {VISITS: steps, TRANSITIONS: moves, REWARDS: rewards}
    if pooled:
        tables = {name: table.sum(axis=0, keepdims=True) for name, table in tables.items()}
    tables |= {"step_visits": steps, CUT_REWARDS: up_to_cut[None]}
    return {name: layout.from_rows(table) for name, table in tables.items()} | {"starts": starts}, returns


def _crowd(mdp: TabularMDP, counts: Mapping[str, Floats], names: Any = None) -> SimulatedUsers:
    """Return the sums ``counts[name]`` for each name in ``names``, or for all names."""
    sums = counts if names is None else {name: counts[name] for name in names}
    return SimulatedUsers(sums, counts["starts"], mdp.layout.to_rows(counts["step_visits"]))


def _counted(
    mdp: TabularMDP,
    query: CountQuery,
    policy: ArrayLike | PolicyRows,
    users: int,
    key: Key,
    address: int,
    group: int,
    cut: float,
    bits: bool,
) -> tuple[SimulatedUsers, dict[str, Floats]]:
    """Simulate users. Returns their sums of each family of ``query``, and the count tables of all steps.

    ``cut`` : clipping threshold C of the batch; 0 or infinite if rewards are not clipped. ``bits`` : True if
    rewards are rounded at random to 0 or 1.
    """
    if query.groups:
        counts, returns = played_counts(mdp, policy, users, key, address, query.clip, pooled=query.stationary)
        counts[GROUP_RETURNS] = np.zeros(query.groups)
        counts[GROUP_RETURNS][group] = returns
    elif cut and math.isfinite(cut):
        counts, _ = played_counts(mdp, policy, users, key, address, cut=cut)
    else:
        counts = batch_counts(mdp, policy, users, key, address, pooled=query.stationary)
    if cut and math.isinf(cut):  # no reward is clipped, so the sums of all families follow from counts
        counts[CUT_REWARDS] = np.zeros(query.families[CUT_REWARDS])
    if bits:
        counts[REWARDS] = reward_bits(mdp, counts, key, address)
    counts[CENTERED_REWARDS] = counts[REWARDS] - query.reward_shift * counts[VISITS]
    if POOLED_TRANSITIONS in query.families:
        counts[POOLED_TRANSITIONS] = counts[TRANSITIONS].sum(axis=0, keepdims=True)
    if POOLED_REWARDS in query.families:
        rewards = counts[CENTERED_REWARDS] if query.center_rewards else counts[REWARDS]
        counts[POOLED_REWARDS] = rewards.sum(axis=0, keepdims=True)
    sums = {name: counts[name] for name in query.families}
    if query.step is not None:
        sums = {name: table[query.counted] for name, table in sums.items()}
    return SimulatedUsers(sums, counts["starts"], mdp.layout.to_rows(counts["step_visits"])), counts
