"""The fused driver: one compiled loop over releases, for every learner and every privatizer.

It calls the kernels that stepwise Python calls (noise, assembly, planning, tie-breaking, episodes,
flow), in the same order and at the same random addresses, so that a fused run equals a stepwise
run bit for bit. Bonus, mechanism and speed are chosen by integer codes: one compilation for all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.estimation.kernels import REWARD_SUMS, assemble
from discreet.mdp.world_kernels import World, evaluate, flow, simulate_episode
from discreet.numerics.compile import inlined, kernel
from discreet.numerics.streams_kernels import (
    ROLE_BATCH,
    ROLE_ENVIRONMENT,
    ROLE_POLICY,
    ROLE_TIES,
    open_stream,
)
from discreet.online.kernels import LearnerKernel, choose, plan_step
from discreet.privacy.kernels import add_records, draw_noise, draw_noise_sum, tree_advance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

EXACT, TREE, LOCAL = 0, 1, 2


class Truth(NamedTuple):
    """What only the experimenter knows: the world and its optimal values."""

    world: World
    start_values: Floats  # (S,) V*_0
    gaps: Floats  # (H, R) V*_h(s) - Q*_h(s, a)


class Stream(NamedTuple):
    """Public parameters of the mechanism, and its private sums and noise."""

    code: int
    family: int
    key: Words
    offsets: Ints
    scales: Floats
    by_user: bool  # a leaf of the tree is a user, else a batch
    begins: Ints
    slots: int
    reward_shift: float
    cells: Floats
    ends: Ints
    stack: Floats


class Side(NamedTuple):
    """The learner's public side: its kernel, schedule, error bounds, and what it carries along."""

    kernel: LearnerKernel
    stochastic: bool
    tie_batches: int
    state_ptr: Ints
    reward_family: int
    known_rewards: Floats
    error_ends: Ints  # error_table[i] holds up to error_ends[i] users
    error_table: Floats
    times: Ints  # users at each release, then K
    ties_key: Words
    memory: Floats
    values: Floats
    q: Floats
    policy_rows: Ints
    probabilities: Floats


class Scratch(NamedTuple):
    """Work arrays: nothing in them outlives a release."""

    released: Floats  # (cells,)
    noise: Floats  # (cells,)
    visits: Floats
    transitions: Floats
    reward_sums: Floats
    plan: Floats
    before: Ints  # (H, S) the policy whose value is known
    policy_values: Floats  # (H + 1, S)
    states: Ints
    rows: Ints
    rewards: Floats
    starts: Floats  # (S,)
    step_visits: Floats  # (H, R)
    batch_visits: Floats  # (T, R)
    batch_rewards: Floats  # (T, R)
    flow: Ints
    chain: Ints
    errors: Floats


class Record(NamedTuple):
    """Cumulative regret at the recorded numbers of users; ``running`` = (regret, gap regret)."""

    users: Ints
    regret: Floats
    gap_regret: Floats
    running: Floats
    position: Ints  # (1,) next entry to write


@inlined
def _same(a: Ints, b: Ints) -> bool:
    for h in range(a.shape[0]):
        for s in range(a.shape[1]):
            if a[h, s] != b[h, s]:
                return False
    return True


@inlined
def _note(record: Record, users: int) -> None:
    """Write the running regrets if this number of users is one to record."""
    at = record.position[0]
    if at < record.users.shape[0] and record.users[at] == users:
        record.regret[at] = record.running[0]
        record.gap_regret[at] = record.running[1]
        record.position[0] = at + 1


@inlined
def _add_noise_of_user(stream: Stream, user: int, state: Words, message: Floats) -> None:
    draw_noise(stream.family, stream.key, user, 0, 1.0, stream.offsets, stream.scales, state, message)


@kernel
def run_releases(
    truth: Truth, stream: Stream, side: Side, scratch: Scratch, record: Record, environment: Words,
    first: int, last: int, by_batch: bool,
) -> None:  # fmt: skip
    """Releases ``first`` .. ``last - 1`` and the users who follow each of them.

    Everything that must outlive the call stands in the arrays of ``stream``, ``side.memory`` and
    ``record``: a run may be cut into calls anywhere.
    """
    world = truth.world
    horizon = world.horizon
    cells = stream.cells.shape[0]
    env_state = np.empty(4, np.uint64)
    policy_state = np.empty(4, np.uint64)
    tie_state = np.empty(4, np.uint64)
    noise_state = np.empty(4, np.uint64)
    has_visits = stream.begins[0] >= 0
    has_rewards = stream.begins[2] >= 0
    slots, all_rows, all_states = stream.slots, world.rows, world.states
    table = 0
    known = False  # does scratch.policy_values hold the value of scratch.before?
    for release in range(first, last):
        n = side.times[release]
        # ------------------------------------------------------------------ the trusted core
        if stream.code == TREE and n > 0:
            slot = tree_advance(
                n if stream.by_user else release, stream.family, stream.key, stream.offsets, stream.scales, stream.ends, stream.stack,
                scratch.chain, noise_state, scratch.noise,
            )  # fmt: skip
            for c in range(cells):
                scratch.released[c] = stream.cells[c] + stream.stack[slot, c]
            released = scratch.released
        else:
            released = stream.cells
        # ----------------------------------------------------------------------- the learner
        visits, transitions, reward_sums = scratch.visits, scratch.transitions, scratch.reward_sums
        if has_visits and side.reward_family == REWARD_SUMS:  # the tables stand in the cells as they are
            visits = released[: slots * all_rows].reshape((slots, all_rows))
            transitions = released[stream.begins[1] : stream.begins[2]].reshape((slots, all_rows, all_states))
            reward_sums = released[stream.begins[2] :].reshape((slots, all_rows))
        else:
            assemble(released, has_visits, side.reward_family, visits, transitions, reward_sums)
        while side.error_ends[table] < n:
            table += 1
        for i in range(scratch.errors.shape[0]):
            scratch.errors[i] = side.error_table[table, i]
        plan_step(
            side.kernel, side.state_ptr, horizon, n, release, visits, transitions, reward_sums, side.known_rewards, scratch.errors, side.memory, side.values, side.q,
            side.probabilities, scratch.plan,
        )  # fmt: skip
        # ------------------------------------------------------------------------- the users
        length = side.times[release + 1] - n
        user = n
        for j in range(side.tie_batches):
            size = length * (j + 1) // side.tie_batches - length * j // side.tie_batches
            if size == 0:
                continue
            if not side.stochastic:
                open_stream(side.ties_key, ROLE_TIES, release, j, tie_state)
                choose(side.kernel, side.state_ptr, horizon, side.q, tie_state, side.policy_rows)
            if side.stochastic or not known or not _same(side.policy_rows, scratch.before):
                evaluate(world, side.stochastic, side.policy_rows, side.probabilities, scratch.policy_values)
                scratch.before[:, :] = side.policy_rows
                known = True
            if by_batch:
                open_stream(environment, ROLE_BATCH, user, 0, env_state)
                _batch(truth, stream, side, scratch, record, size, env_state)
                if stream.code == LOCAL:
                    draw_noise_sum(
                        stream.family, stream.key, user, size, stream.offsets, stream.scales, noise_state,
                        scratch.noise,
                    )  # fmt: skip
                    for c in range(cells):
                        stream.cells[c] += scratch.noise[c]
                user += size
                _note(record, user)
                continue
            for k in range(user, user + size):
                open_stream(environment, ROLE_ENVIRONMENT, k, 0, env_state)
                if side.stochastic:
                    open_stream(environment, ROLE_POLICY, k, 0, policy_state)
                simulate_episode(
                    world, side.stochastic, side.policy_rows, side.probabilities, env_state, policy_state,
                    scratch.states, scratch.rows, scratch.rewards,
                )  # fmt: skip
                if stream.code == LOCAL:
                    _add_noise_of_user(stream, k, noise_state, scratch.noise)
                    add_records(
                        scratch.states, scratch.rows, scratch.rewards, slots, all_rows, all_states,
                        stream.begins, stream.reward_shift, scratch.noise,
                    )  # fmt: skip
                    for c in range(cells):
                        stream.cells[c] += scratch.noise[c]
                else:
                    add_records(
                        scratch.states, scratch.rows, scratch.rewards, slots, all_rows, all_states,
                        stream.begins, stream.reward_shift, stream.cells,
                    )  # fmt: skip
                start = scratch.states[0]
                gap = 0.0
                for h in range(horizon):
                    gap += truth.gaps[h, scratch.rows[h]]
                record.running[0] += truth.start_values[start] - scratch.policy_values[0, start]
                record.running[1] += gap
                _note(record, k + 1)
            user += size


@inlined
def _batch(
    truth: Truth, stream: Stream, side: Side, scratch: Scratch, record: Record, users: int, state: Words
) -> None:
    """Exact sums of one sub-batch into the stream's cells, its regret into the record."""
    world = truth.world
    rows, size = world.rows, world.states
    begins, slots = stream.begins, stream.slots
    scratch.starts[:] = 0.0
    for t in range(slots):
        for r in range(rows):
            scratch.batch_visits[t, r] = 0.0
            scratch.batch_rewards[t, r] = 0.0
    transitions = stream.cells[begins[1] : begins[1] + slots * rows * size].reshape((slots, rows, size))
    flow(
        world, users, side.stochastic, side.policy_rows, side.probabilities, state, scratch.batch_visits,
        transitions, scratch.batch_rewards, scratch.starts, scratch.step_visits, scratch.flow,
    )  # fmt: skip
    for t in range(slots):
        for r in range(rows):
            at = t * rows + r
            if begins[0] >= 0:
                stream.cells[begins[0] + at] += scratch.batch_visits[t, r]
            if begins[2] >= 0:
                stream.cells[begins[2] + at] += (
                    scratch.batch_rewards[t, r] - stream.reward_shift * scratch.batch_visits[t, r]
                )
    regret = 0.0
    for s in range(size):
        regret += scratch.starts[s] * (truth.start_values[s] - scratch.policy_values[0, s])
    gap = 0.0
    for h in range(world.horizon):
        for r in range(rows):
            gap += scratch.step_visits[h, r] * truth.gaps[h, r]
    record.running[0] += regret
    record.running[1] += gap

