"""Compiled simulation of many users who each report a few of their steps.

Every user reports m of the H steps, drawn uniformly without replacement. A report is about the reward of its
step with probability ``share``, and otherwise about the transition. At step h, a user with k remaining
reports sends one with probability k / (H - h). Users in the same state with the same k are exchangeable, so
their counts can be drawn step by step as in :func:`discreet.envs.mdp.tabular_kernels.flow`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.envs.mdp.tabular_kernels import FEW_USERS, World, _draw
from discreet.utils.random_streams_kernels import ROLE_BATCH, binomial, next_word, open_stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


@inlined
def report_flow(
    world: World, n: int, stochastic: bool, policy_rows: Ints, probabilities: Floats, steps: int,
    share: float, state: Words, moves: Ints, bits: Ints, starts: Floats, step_visits: Floats, work: Ints,
) -> None:  # fmt: skip
    """Draw the reported records of n users with the same policy, and write their counts into arrays.

    ``moves (H, R, S)`` is overwritten with the number of reported transitions. ``bits (H, R, 2)`` is
    overwritten with the number of reported rewards, rounded at random to 0 or 1. ``step_visits (H, R)`` is
    overwritten with the visits of all users. The initial states are added to ``starts (S,)``. ``work`` has
    :func:`work_size` int64. ``steps`` is the number of reports of each user.
    """
    row_ptr, successor, ratio = world.row_ptr, world.successor, world.ratio
    threshold, alias, state_ptr = world.threshold, world.alias, world.state_ptr
    reward_value, support, reward_ratio = world.reward_value, world.reward_support, world.reward_ratio
    outcomes, by_entry, size = world.reward_outcomes, world.reward_by_entry, world.states
    horizon = world.horizon
    move_stride, reward_stride = world.transition_stride, world.reward_stride
    here = work[: (steps + 1) * size].reshape((steps + 1, size))
    after = work[(steps + 1) * size : 2 * (steps + 1) * size].reshape((steps + 1, size))
    drawn = work[2 * (steps + 1) * size : 2 * (steps + 1) * size + size]
    split = work[2 * (steps + 1) * size + size :]  # (R,) users with the same k and state, by row
    moves[:] = 0
    bits[:] = 0
    step_visits[:] = 0.0
    here[:] = 0
    here[steps, 0] = n  # all users are put into state 0; the pass h = -1 draws their initial states
    for h in range(-1, horizon):
        after[:] = 0
        for k in range(steps + 1):
            chance = k / (horizon - h) if h >= 0 else 0.0
            for s in range(size):
                users = here[k, s]
                if users == 0:
                    continue
                first, last = 0, 1
                if h >= 0 and stochastic:
                    first, last = state_ptr[s], state_ptr[s + 1]
                    left = users
                    for row in range(first, last):
                        # At the last row with p > 0, the ratio p / (p + later) is exactly 1.
                        p, later = probabilities[h, row], 0.0
                        for other in range(last - 1, row, -1):
                            later += probabilities[h, other]
                        x = binomial(state, left, p / (p + later)) if p > 0.0 else 0
                        split[row] = x
                        left -= x
                elif h >= 0:
                    first = policy_rows[h, s]
                    last = first + 1
                    split[first] = users
                for row in range(first, last):
                    m = split[row] if h >= 0 else users
                    if m == 0:
                        continue
                    reporting = binomial(state, m, chance)
                    of_rewards = binomial(state, reporting, share)
                    if h >= 0:
                        step_visits[h, row] += m
                    i = h * move_stride + row if h >= 0 else row_ptr.shape[0] - 2
                    ptr, end = row_ptr[i], row_ptr[i + 1]
                    width = end - ptr
                    for part in range(3):  # users who send no report, a transition report, a reward report
                        group = m - reporting
                        rest = k
                        if part > 0:
                            rest = k - 1
                            group = of_rewards if part == 2 else reporting - of_rewards
                        if group == 0:
                            continue
                        for j in range(width):
                            drawn[j] = 0
                        if width > 3 and group < FEW_USERS * width:
                            for _ in range(group):
                                drawn[_draw(ptr, end, threshold, alias, next_word(state)) - ptr] += 1
                        else:
                            left = group
                            for j in range(width - 1):
                                if left == 0:
                                    break
                                x = binomial(state, left, ratio[ptr + j])
                                drawn[j] = x
                                left -= x
                            drawn[width - 1] += left
                        for j in range(width):
                            after[rest, successor[ptr + j]] += drawn[j]
                        if part == 1:
                            for j in range(width):
                                moves[h, row, successor[ptr + j]] += drawn[j]
                        if part < 2:
                            continue
                        base = ptr if by_entry else h * reward_stride + row
                        ones = 0
                        for c in range(width if by_entry else 1):
                            left = drawn[c] if by_entry else group
                            if outcomes == 0:
                                ones += binomial(state, left, reward_value[base + c])
                            for j in range(outcomes):
                                if left == 0:
                                    break
                                x = binomial(state, left, reward_ratio[(base + c) * outcomes + j])
                                ones += binomial(state, x, support[j])
                                left -= x
                        bits[h, row, 1] += ones
                        bits[h, row, 0] += group - ones
        if h < 0:
            for s in range(size):
                starts[s] += after[steps, s]
        here, after = after, here


@kernel
def draw_reported(
    world: World, n: int, stochastic: bool, policy_rows: Ints, probabilities: Floats, steps: int,
    share: float, key: Words, batch: int, moves: Ints, bits: Ints, starts: Floats, step_visits: Floats,
    work: Ints,
) -> None:  # fmt: skip
    """Call :func:`report_flow` with the random stream (ROLE_BATCH, ``batch``, 0) of ``key``."""
    state = np.empty(4, np.uint64)
    open_stream(key, ROLE_BATCH, batch, 0, state)
    report_flow(
        world, n, stochastic, policy_rows, probabilities, steps, share, state, moves, bits, starts,
        step_visits, work,
    )  # fmt: skip


def work_size(world: World, steps: int) -> int:
    """Return the size of the int64 array that :func:`report_flow` needs as work space."""
    return (2 * (steps + 1) + 1) * world.states + world.rows
