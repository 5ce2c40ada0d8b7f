"""Fused driver: one compiled loop over releases, for every learner and every privatizer.

The loop calls the same kernels as the stepwise Python loop, in the same order and with the same random
numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.core.correlated_noise.factorization_kernels import Program
from discreet.core.count_kernels import add_records
from discreet.core.decaying_sum_kernels import decay_cell
from discreet.envs.mdp.tabular_kernels import World, evaluate, flow, simulate_episode
from discreet.envs.rollouts.local_reports_kernels import report_flow
from discreet.experiments.factorization_noise_kernels import walk_advance
from discreet.learners.estimation.model_kernels import REWARD_SUMS, assemble
from discreet.learners.online.noise_aware_kernels import (
    DECAY,
    GAIN,
    noise_aware_step,
    note_assignments,
)
from discreet.learners.online.tabular_planning_kernels import LearnerKernel, choose, part_size, plan_step
from discreet.mechanisms.local.randomized_response_kernels import (
    SHARE,
    STEPS,
    ReportArrays,
    add_batch,
    report_episode,
)
from discreet.mechanisms.seeded_noise_kernels import draw_noise, draw_noise_sum
from discreet.utils.random_streams_kernels import (
    ROLE_BATCH,
    ROLE_ENVIRONMENT,
    ROLE_NOISE,
    ROLE_POLICY,
    ROLE_TIES,
    open_stream,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

EXACT, WALK, LOCAL, DECAYING, REPORTS = range(5)


class Truth(NamedTuple):
    """True environment and its optimal values."""

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
    by_user: bool  # True: a step of the factorization is one user; False: one batch.
    begins: Ints
    slots: int
    reward_shift: float
    cells: Floats
    ends: Ints
    # Registers of the factorization. Without a factorization, row 0 has the filtered or last sums, and row 1
    # has the sums of measurements.
    stack: Floats
    decay: float
    gain: float
    program: Program  # program of the factorization
    reports: ReportArrays
    # (releases + 1, families) scales that replace `scales` at each release; without rows if not used.
    release_scales: Floats


class Side(NamedTuple):
    """Public state of the learner: its kernel, schedule, error bounds, and memory."""

    kernel: LearnerKernel
    measures: bool  # True if the learner reads the newest measurement instead of the sums
    stochastic: bool
    joined: bool  # True if consecutive sub-batches with the same policy are one sub-batch
    tie_batches: int
    state_ptr: Ints
    reward_family: int
    known_rewards: Floats
    error_ends: Ints  # Row i of error_table is valid for at most error_ends[i] users.
    error_table: Floats
    exploring: Ints  # (releases, E) number of users in a batch who follow an explorer.
    trials: Floats  # (E, H, R) action values from which the explorers choose.
    times: Ints  # Number of users before each release, and finally K.
    ties_key: Words
    memory: Floats
    values: Floats
    q: Floats
    policy_rows: Ints
    probabilities: Floats


class Scratch(NamedTuple):
    """Work arrays."""

    released: Floats  # (cells,)
    noise: Floats  # (cells,)
    visits: Floats
    transitions: Floats
    reward_sums: Floats
    plan: Floats
    policies: Ints  # (P, H, S) policies of the at most P sub-batches of a batch
    sizes: Ints  # (P,) number of users of each policy
    before: Ints  # (H, S) policy whose values are in policy_values.
    policy_values: Floats  # (H + 1, S)
    states: Ints
    rows: Ints
    rewards: Floats
    starts: Floats  # (S,) number of users who start in each state.
    step_visits: Floats  # (H, R) number of visits at each step.
    batch_visits: Floats  # (T, R) number of visits in a batch.
    batch_rewards: Floats  # (T, R) reward sums of a batch.
    batch_transitions: Floats  # (T, R, S) if pooled sums are released too; otherwise empty.
    pooled_transitions: Floats  # Empty array for a learner without pooled families.
    pooled_rewards: Floats  # (0, 0)
    flow: Ints
    errors: Floats


class Record(NamedTuple):
    """Cumulative regret at the recorded numbers of users.

    ``running`` holds the current (regret, gap regret).
    """

    users: Ints
    regret: Floats
    gap_regret: Floats
    running: Floats
    position: Ints  # (1,) index of the next entry to write


@inlined
def _same(a: Ints, b: Ints) -> bool:
    for h in range(a.shape[0]):
        for s in range(a.shape[1]):
            if a[h, s] != b[h, s]:
                return False
    return True


@kernel
def run_releases(
    truth: Truth, stream: Stream, side: Side, scratch: Scratch, record: Record, environment: Words,
    first: int, last: int, by_batch: bool,
) -> None:  # fmt: skip
    """Simulate the releases ``first`` to ``last - 1``, and the users after each release."""
    # Arrays are read from their tuples only once, because each access in a loop would update reference
    # counts.
    world, start_values, gaps = truth.world, truth.start_values, truth.gaps
    horizon, all_rows, all_states = world.horizon, world.rows, world.states
    code, family, noise_key = stream.code, stream.family, stream.key
    offsets, scales, begins = stream.offsets, stream.scales, stream.begins
    sums, ends, stack = stream.cells, stream.ends, stream.stack
    release_scales = stream.release_scales
    slots, reward_shift, cells = stream.slots, stream.reward_shift, stream.cells.shape[0]
    walk_code, walk_ints, walk_floats = stream.program.code, stream.program.ints, stream.program.floats
    links, link_weights = stream.program.links, stream.program.weights
    lk, state_ptr, times, ties_key = side.kernel, side.state_ptr, side.times, side.ties_key
    error_ends, error_table, errors = side.error_ends, side.error_table, scratch.errors
    policy_rows, probabilities, q = side.policy_rows, side.probabilities, side.q
    before, policy_values, noise = scratch.before, scratch.policy_values, scratch.noise
    states, rows, rewards = scratch.states, scratch.rows, scratch.rewards
    recorded, regret, gap_regret = record.users, record.regret, record.gap_regret
    total, gap_total, position = record.running[0], record.running[1], record.position[0]
    stochastic, parts = side.stochastic, side.tie_batches
    trials, exploring = side.trials, side.exploring
    policies, sizes = scratch.policies, scratch.sizes
    env_state = np.empty(4, np.uint64)
    policy_state = np.empty(4, np.uint64)
    tie_state = np.empty(4, np.uint64)
    noise_state = np.empty(4, np.uint64)
    in_place = begins[0] >= 0 and side.reward_family == REWARD_SUMS  # the cells have the layout of the tables
    table = 0
    known = False  # True if policy_values holds the values of the policy `before`
    for release in range(first, last):
        n = times[release]
        # ------------------------------------------------------------------ the release of noisy sums
        released = sums
        if code == WALK and n > 0:
            slot = walk_advance(
                walk_code, walk_ints, walk_floats, links, link_weights, n if stream.by_user else release,
                family, noise_key, offsets, scales, ends, stack, noise_state, noise,
            )  # fmt: skip
            released = scratch.released
            for c in range(cells):
                released[c] = sums[c] + stack[slot, c]
        elif code == DECAYING and n > 0:
            if release_scales.shape[0] > 0:
                now = release_scales[release]
                draw_noise(family, noise_key, release, 0, 1.0, offsets, now, noise_state, noise)
            else:
                draw_noise(family, noise_key, release, 0, 1.0, offsets, scales, noise_state, noise)
            released = scratch.released
            decay, gain = stream.decay, stream.gain
            for c in range(cells):
                held, fresh, prefix = decay_cell(
                    sums[c], stack[0, c], stack[1, c], noise[c], True, decay, gain, 0.0
                )
                stack[0, c] = held
                sums[c] = 0.0
                released[c] = fresh if side.measures else prefix
                stack[1, c] += fresh
        elif side.measures:
            released = scratch.released
            for c in range(cells):
                released[c] = sums[c] - stack[0, c]
                stack[0, c] = sums[c]
        # ----------------------------------------------------------------------- the learner
        visits, transitions, reward_sums = scratch.visits, scratch.transitions, scratch.reward_sums
        pooled_transitions, pooled_rewards = scratch.pooled_transitions, scratch.pooled_rewards
        if side.measures:
            transitions = released[begins[1] : begins[1] + slots * all_rows * all_states].reshape(
                (slots, all_rows, all_states)
            )
            if begins[2] >= 0:
                end = begins[2] + slots * all_rows
                reward_sums = released[begins[2] : end].reshape((slots, all_rows))
            if begins[3] >= 0:
                end = begins[3] + all_rows * all_states
                pooled_transitions = released[begins[3] : end].reshape((1, all_rows, all_states))
            if begins[4] >= 0:
                pooled_rewards = released[begins[4] : begins[4] + all_rows].reshape((1, all_rows))
        elif in_place:
            visits = released[: slots * all_rows].reshape((slots, all_rows))
            transitions = released[begins[1] : begins[2]].reshape((slots, all_rows, all_states))
            reward_sums = released[begins[2] :].reshape((slots, all_rows))
        else:
            assemble(released, begins[0] >= 0, side.reward_family, visits, transitions, reward_sums)
        while error_ends[table] < n:
            table += 1
        for i in range(errors.shape[0]):
            errors[i] = error_table[table, i]
        if side.measures:
            errors[DECAY], errors[GAIN] = stream.decay, stream.gain
            plans = 0  # Later explorers have no users in this batch, so they need no plan.
            for e in range(trials.shape[0]):
                if exploring[release, e] > 0:
                    plans = e + 1
            noise_aware_step(
                lk.knobs, state_ptr, horizon, n, release, transitions, reward_sums, pooled_transitions,
                pooled_rewards, side.known_rewards, errors, side.memory, side.values, q, ties_key,
                trials[:plans], scratch.plan,
            )  # fmt: skip
        else:
            plan_step(
                lk, state_ptr, horizon, n, release, visits, transitions, reward_sums, side.known_rewards,
                errors, side.memory, side.values, q, probabilities, scratch.plan,
            )  # fmt: skip
        # ------------------------------------------------------------------------- the users
        length = times[release + 1] - n
        user = n
        count = 0
        for j in range(parts + trials.shape[0]):
            size = part_size(length, exploring[release], parts, j)
            if size == 0:
                continue
            if not stochastic:
                open_stream(ties_key, ROLE_TIES, release, j, tie_state)
                if j < parts:
                    choose(lk, state_ptr, horizon, q, tie_state, policies[count])
                else:
                    choose(lk, state_ptr, horizon, trials[j - parts], tie_state, policies[count])
                if side.joined and count > 0 and _same(policies[count], policies[count - 1]):
                    sizes[count - 1] += size
                    continue
            sizes[count] = size
            count += 1
        for j in range(count):
            size = sizes[j]
            if not stochastic:
                policy_rows[:, :] = policies[j]
                if side.measures:
                    note_assignments(side.memory, slots, all_rows, begins[3] >= 0, policy_rows, size)
            if stochastic or not known or not _same(policy_rows, before):
                evaluate(world, stochastic, policy_rows, probabilities, policy_values)
                before[:, :] = policy_rows
                known = True
            if by_batch:
                open_stream(environment, ROLE_BATCH, user, 0, env_state)
                lost, gap = _batch(truth, stream, side, scratch, size, env_state)
                total += lost
                gap_total += gap
                if code == LOCAL:
                    draw_noise_sum(family, noise_key, user, size, offsets, scales, noise_state, noise)
                    for c in range(cells):
                        sums[c] += noise[c]
                elif code == REPORTS:
                    add_batch(
                        stream.reports, stochastic, policy_rows, noise_key, user, noise_state, all_states,
                        all_rows, slots, begins, reward_shift, sums,
                    )  # fmt: skip
                user += size
                if position < recorded.shape[0] and recorded[position] == user:
                    regret[position], gap_regret[position] = total, gap_total
                    position += 1
                continue
            for k in range(user, user + size):
                open_stream(environment, ROLE_ENVIRONMENT, k, 0, env_state)
                if stochastic:
                    open_stream(environment, ROLE_POLICY, k, 0, policy_state)
                simulate_episode(
                    world,
                    stochastic,
                    policy_rows,
                    probabilities,
                    env_state,
                    policy_state,
                    states,
                    rows,
                    rewards,
                )
                if code == LOCAL:
                    draw_noise(family, noise_key, k, 0, 1.0, offsets, scales, noise_state, noise)
                    add_records(
                        states, rows, rewards, slots, all_rows, all_states, begins, reward_shift, 0.0, noise,
                        noise,
                    )  # fmt: skip
                    for c in range(cells):
                        sums[c] += noise[c]
                elif code == REPORTS:
                    open_stream(noise_key, ROLE_NOISE, k, 0, noise_state)
                    report_episode(
                        stream.reports, states, rows, rewards, stochastic, policy_rows, noise_state,
                        all_states, all_rows, slots, begins, reward_shift, sums,
                    )  # fmt: skip
                else:
                    add_records(
                        states, rows, rewards, slots, all_rows, all_states, begins, reward_shift, 0.0, sums,
                        sums,
                    )  # fmt: skip
                gap = 0.0
                for h in range(horizon):
                    gap += gaps[h, rows[h]]
                total += start_values[states[0]] - policy_values[0, states[0]]
                gap_total += gap
                if position < recorded.shape[0] and recorded[position] == k + 1:
                    regret[position], gap_regret[position] = total, gap_total
                    position += 1
            user += size
    record.running[0], record.running[1], record.position[0] = total, gap_total, position


@inlined
def _batch(
    truth: Truth, stream: Stream, side: Side, scratch: Scratch, users: int, state: Words
) -> tuple[float, float]:
    """Add the exact sums of one sub-batch of users to the stream's cells.

    Returns the regret and the gap regret of these users.
    """
    # Arrays are read from their tuples only once, as in `run_releases`.
    world, start_values, gaps = truth.world, truth.start_values, truth.gaps
    horizon, rows, size = world.horizon, world.rows, world.states
    cells, begins, slots, reward_shift = stream.cells, stream.begins, stream.slots, stream.reward_shift
    batch_visits, batch_rewards = scratch.batch_visits, scratch.batch_rewards
    starts, step_visits, policy_values = scratch.starts, scratch.step_visits, scratch.policy_values
    starts[:] = 0.0
    for t in range(slots):
        for r in range(rows):
            batch_visits[t, r] = 0.0
            batch_rewards[t, r] = 0.0
    transitions = cells[begins[1] : begins[1] + slots * rows * size].reshape((slots, rows, size))
    pooled = begins[3] >= 0
    if pooled:
        transitions = scratch.batch_transitions
        transitions[:] = 0.0
    if stream.code == REPORTS:  # these exact sums are randomized before they are added to the cells
        reports = stream.reports
        report_flow(
            world, users, side.stochastic, side.policy_rows, side.probabilities, reports.codes[STEPS],
            reports.codes[SHARE] / 9007199254740992.0, state, reports.moves, reports.bits, starts,
            step_visits, reports.flow,
        )  # fmt: skip
        slots = 0
    else:
        flow(
            world, users, side.stochastic, side.policy_rows, side.probabilities, state, batch_visits,
            transitions, batch_rewards, starts, step_visits, scratch.flow,
        )  # fmt: skip
    for t in range(slots):
        for r in range(rows):
            at = t * rows + r
            if begins[0] >= 0:
                cells[begins[0] + at] += batch_visits[t, r]
            if begins[2] >= 0:
                cells[begins[2] + at] += batch_rewards[t, r] - reward_shift * batch_visits[t, r]
    if pooled:
        for r in range(rows):
            for s in range(size):
                moves = 0.0
                for t in range(slots):
                    cells[begins[1] + (t * rows + r) * size + s] += transitions[t, r, s]
                    moves += transitions[t, r, s]
                cells[begins[3] + r * size + s] += moves
            if begins[4] >= 0:
                earned = 0.0
                for t in range(slots):
                    earned += batch_rewards[t, r] - reward_shift * batch_visits[t, r]
                cells[begins[4] + r] += earned
    regret = 0.0
    for s in range(size):
        regret += starts[s] * (start_values[s] - policy_values[0, s])
    gap = 0.0
    for h in range(horizon):
        for r in range(rows):
            gap += step_visits[h, r] * gaps[h, r]
    return regret, gap
