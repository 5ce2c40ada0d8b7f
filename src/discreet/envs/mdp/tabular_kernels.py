"""Compiled functions of tabular MDPs: single episodes, exact counts of many users, and exact values.

A :class:`World` stores every transition row sparsely, with successors sorted by decreasing probability. One
user's successor or reward is drawn from an alias table (Walker 1977, Vose 1991) with one 64-bit word. For
many users, :func:`flow` draws how many users move from each row to each successor, as a sequence of
conditional binomials.

Helper functions that take arrays must have no branches and no loops; otherwise Numba updates reference
counts at every call.

Alias tables. A row with k entries has k columns. The high half of the product of the word and k selects the
column, and the low half w selects one of the two entries of this column. The condition ``(w | 1) <= t`` holds
with probability t / 2^64 for even t, never for t = 0, and always for t = 2^64 - 1. Therefore probabilities 0
and 1 are exact, and all others are exact within k 2^-63.

Correctness of :func:`flow`. Users in the same state move independently and are exchangeable, so the counts of
their successors are multinomial. Induction on the steps gives the joint distribution.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.utils.random_streams_kernels import (
    ROLE_ENVIRONMENT,
    ROLE_POLICY,
    _mul_high,
    binomial,
    next_word,
    open_stream,
    uniform,
)

U64 = np.uint64
CERTAIN = U64(0xFFFFFFFFFFFFFFFF)
_ONE = U64(1)
_2P63 = 9223372036854775808.0
FEW_USERS = 8  # if m users are at a row with k > 3 successors and m < 8 k, they are drawn one by one


class World(NamedTuple):
    """Tabular MDP as the arrays that the kernels read; ``TabularMDP.world`` builds it.

    The successors of pair ``row`` at step h are the entries ``row_ptr[i] .. row_ptr[i + 1]`` with ``i = h *
    transition_stride + row``. The stride is 0 if transitions are stationary. The last row of the table is the
    initial distribution. Rewards are indexed by ``h * reward_stride + row``; if ``reward_by_entry``, they are
    indexed by the transition entry instead. For deterministic rewards, ``reward_outcomes`` is 0, and
    ``reward_value`` has the rewards. Otherwise ``reward_outcomes`` is the number M of values in
    ``reward_support``, and the last three arrays have M entries for each index.
    """

    states: int
    rows: int
    horizon: int
    transition_stride: int
    reward_stride: int
    reward_outcomes: int
    reward_by_entry: bool
    state_ptr: NDArray[np.int64]  # (S + 1,)
    row_ptr: NDArray[np.int64]  # (T R + 2,)
    successor: NDArray[np.int64]  # (entries,)
    probability: NDArray[np.float64]  # (entries,)
    ratio: NDArray[np.float64]  # (entries,) p_j / sum_{i >= j} p_i within the row.
    threshold: NDArray[np.uint64]  # (entries,) threshold t of an alias column.
    alias: NDArray[np.int64]  # (2 entries,) the two entries that share each alias column
    mean_reward: NDArray[np.float64]  # (T R,)
    reward_value: NDArray[np.float64]  # (T R,) or (entries,)
    reward_support: NDArray[np.float64]  # (M,)
    reward_ratio: NDArray[np.float64]  # (T R M,) or (entries M,); the next two arrays have the same size
    reward_threshold: NDArray[np.uint64]
    reward_alias: NDArray[np.int64]


# ------------------------------------------------------------------------------- tables


@inlined
def _threshold_of(p: float) -> Any:
    if p >= 1.0:
        return CERTAIN
    return U64(np.int64(p * _2P63)) << _ONE


@kernel
def build_tables(
    row_ptr: NDArray[np.int64],
    probability: NDArray[np.float64],
    ratio: NDArray[np.float64],
    threshold: NDArray[np.uint64],
    alias: NDArray[np.int64],
) -> None:
    """Compute the conditional ratios and the alias table (Vose's method) of every row.

    ``row_ptr`` is (rows + 1,), ``alias`` is (2 entries,), and the other arrays are (entries,). The results
    are written to ``ratio``, ``threshold`` and ``alias``. Rows of ``probability`` need not sum to 1.
    """
    longest = 0
    for row in range(row_ptr.shape[0] - 1):
        longest = max(longest, row_ptr[row + 1] - row_ptr[row])
    scaled = np.empty(longest, np.float64)
    stack = np.empty(longest, np.int64)  # columns with mass below 1 from the left, all others from the right
    for row in range(row_ptr.shape[0] - 1):
        ptr, end = row_ptr[row], row_ptr[row + 1]
        k = end - ptr
        suffix = 0.0  # suffix sums instead of 1 - prefix sums, which would lose the digits of small numbers
        for e in range(end - 1, ptr - 1, -1):
            suffix += probability[e]
            ratio[e] = probability[e] / suffix if suffix > 0.0 else 0.0
        low, high = 0, k
        for j in range(k):
            scaled[j] = probability[ptr + j] / suffix * k
            threshold[ptr + j] = CERTAIN
            alias[2 * (ptr + j)] = ptr + j
            alias[2 * (ptr + j) + 1] = ptr + j
            if scaled[j] < 1.0:
                stack[low] = j
                low += 1
            else:
                high -= 1
                stack[high] = j
        # When one side of the stack is empty, the remaining columns have mass 1 up to rounding errors.
        while low > 0 and high < k:
            low -= 1
            under, over = stack[low], stack[high]
            threshold[ptr + under] = _threshold_of(scaled[under])
            alias[2 * (ptr + under) + 1] = ptr + over
            scaled[over] = (scaled[over] + scaled[under]) - 1.0
            if scaled[over] < 1.0:
                high += 1
                stack[low] = over
                low += 1


# ------------------------------------------------------------------------------ one draw


@inlined
def _draw(ptr: int, end: int, threshold: NDArray[np.uint64], alias: NDArray[np.int64], word: Any) -> int:
    """Return the index of the entry that the random ``word`` selects from row ``ptr .. end`` of a table."""
    k = U64(end - ptr)
    e = ptr + np.int64(_mul_high(word, k))
    # The index is computed without a branch, because the processor would often mispredict the branch.
    return alias[2 * e + np.int64((word * k) | _ONE > threshold[e])]


@inlined
def simulate_episode(
    world: World,
    stochastic: bool,
    policy_rows: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    env_state: NDArray[np.uint64],
    policy_state: NDArray[np.uint64],
    states: NDArray[np.int64],
    rows: NDArray[np.int64],
    rewards: NDArray[np.float64],
) -> None:
    """Simulate one episode, and write it to ``states (H + 1,)``, ``rows (H,)`` and ``rewards (H,)``.

    If ``stochastic`` is False, ``policy_rows (H, S)`` has the row that the policy takes at (h, s). If
    ``stochastic`` is True, the row is drawn from ``probabilities (H, R)`` with one word per step of the
    stream ``policy_state``. ``env_state`` is the stream of the environment.
    """
    row_ptr, successor, threshold, alias = world.row_ptr, world.successor, world.threshold, world.alias
    state_ptr, reward_value, support = world.state_ptr, world.reward_value, world.reward_support
    reward_threshold, reward_alias = world.reward_threshold, world.reward_alias
    outcomes, by_entry = world.reward_outcomes, world.reward_by_entry
    move_stride, reward_stride = world.transition_stride, world.reward_stride
    start = row_ptr.shape[0] - 2
    s = successor[_draw(row_ptr[start], row_ptr[start + 1], threshold, alias, next_word(env_state))]
    states[0] = s
    for h in range(world.horizon):
        if stochastic:
            u, total, row = uniform(policy_state), 0.0, state_ptr[s]
            for candidate in range(state_ptr[s], state_ptr[s + 1]):
                p = probabilities[h, candidate]
                if p > 0.0:  # if rounding keeps the total below u, the last row with p > 0 is taken
                    row = candidate
                    total += p
                    if u < total:
                        break
        else:
            row = policy_rows[h, s]
        i = h * move_stride + row
        e = _draw(row_ptr[i], row_ptr[i + 1], threshold, alias, next_word(env_state))
        index = e if by_entry else h * reward_stride + row
        if outcomes == 0:
            rewards[h] = reward_value[index]
        else:
            base = index * outcomes
            j = _draw(base, base + outcomes, reward_threshold, reward_alias, next_word(env_state))
            rewards[h] = support[j - base]
        rows[h] = row
        s = successor[e]
        states[h + 1] = s


@kernel
def episodes(
    world: World,
    stochastic: bool,
    policy_rows: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    key: NDArray[np.uint64],
    first: int,
    states: NDArray[np.int64],
    rows: NDArray[np.int64],
    rewards: NDArray[np.float64],
) -> None:
    """Simulate users ``first .. first + n - 1``, each with separate random streams of ``key``.

    The trajectories are written to ``states (n, H + 1)``, ``rows (n, H)`` and ``rewards (n, H)``.
    """
    env_state = np.empty(4, np.uint64)
    policy_state = np.empty(4, np.uint64)
    for i in range(states.shape[0]):
        open_stream(key, ROLE_ENVIRONMENT, first + i, 0, env_state)
        if stochastic:
            open_stream(key, ROLE_POLICY, first + i, 0, policy_state)
        simulate_episode(
            world,
            stochastic,
            policy_rows,
            probabilities,
            env_state,
            policy_state,
            states[i],
            rows[i],
            rewards[i],
        )


# -------------------------------------------------------------------------------- flow


@kernel
def flow(
    world: World,
    n: int,
    stochastic: bool,
    policy_rows: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    state: NDArray[np.uint64],
    visits: NDArray[np.float64],
    transitions: NDArray[np.float64],
    reward_sums: NDArray[np.float64],
    starts: NDArray[np.float64],
    step_visits: NDArray[np.float64],
    work: NDArray[np.int64],
) -> None:
    """Add the counts of ``n <= 1e10`` users with the same policy, drawn from their exact joint distribution.

    The counts are added to ``visits (T, R)``, ``transitions (T, R, S)``, ``reward_sums (T, R)`` and ``starts
    (S,)``. T is H, or 1 to pool the steps. If ``transitions`` has the shape (0, R, S), transitions are not
    counted. ``step_visits (H, R)`` is overwritten with the visits of these users at each step. ``work`` is
    work space of 3 S int64 (:func:`work_size`).
    """
    row_ptr, successor, ratio = world.row_ptr, world.successor, world.ratio
    threshold, alias, state_ptr = world.threshold, world.alias, world.state_ptr
    reward_value, support, reward_ratio = world.reward_value, world.reward_support, world.reward_ratio
    outcomes, by_entry, size = world.reward_outcomes, world.reward_by_entry, world.states
    move_stride, reward_stride = world.transition_stride, world.reward_stride
    pooled, counted = visits.shape[0] == 1, transitions.shape[0] > 0
    here, after, drawn = work[:size], work[size : 2 * size], work[2 * size :]
    step_visits[:] = 0.0
    # All users are put into state 0. The pass h = -1 draws their initial states from the initial
    # distribution.
    here[:] = 0
    here[0] = n
    for h in range(-1, world.horizon):
        t = 0 if pooled else h
        after[:] = 0
        for s in range(size):
            users = here[s]
            if users == 0:
                continue
            first, last = 0, 1
            if h >= 0 and stochastic:
                # N(s, .) ~ Multinomial(N(s), pi(. | s)). Each cell of step_visits has the suffix sum of the
                # probabilities until its count is drawn. At the last row with p > 0, the ratio is exactly 1.
                first, last = state_ptr[s], state_ptr[s + 1]
                suffix = 0.0
                for row in range(last - 1, first - 1, -1):
                    suffix += probabilities[h, row]
                    step_visits[h, row] = suffix
                left = users
                for row in range(first, last):
                    suffix = step_visits[h, row]
                    x = binomial(state, left, probabilities[h, row] / suffix) if suffix > 0.0 else 0
                    step_visits[h, row] = x
                    left -= x
            elif h >= 0:
                first = policy_rows[h, s]
                last = first + 1
                step_visits[h, first] = users
            for row in range(first, last):
                m = np.int64(step_visits[h, row]) if h >= 0 else users
                if m == 0:
                    continue
                # `N(s, a, .) ~ Multinomial(m, P(. | s, a))`, drawn user by user or by conditional binomials.
                # The choice between the two depends only on m and k, so the distribution is the same.
                i = h * move_stride + row if h >= 0 else row_ptr.shape[0] - 2
                ptr, end = row_ptr[i], row_ptr[i + 1]
                k = end - ptr
                for j in range(k):
                    drawn[j] = 0
                if k > 3 and m < FEW_USERS * k:
                    for _ in range(m):
                        drawn[_draw(ptr, end, threshold, alias, next_word(state)) - ptr] += 1
                else:
                    left = m
                    for j in range(k - 1):
                        if left == 0:
                            break
                        x = binomial(state, left, ratio[ptr + j])
                        drawn[j] = x
                        left -= x
                    drawn[k - 1] += left
                for j in range(k):
                    after[successor[ptr + j]] += drawn[j]
                if h < 0:
                    continue
                visits[t, row] += m
                if counted:
                    for j in range(k):
                        transitions[t, row, successor[ptr + j]] += drawn[j]
                # Draw the rewards of the m visits to the pair, or of the visits to each of its successors.
                base = ptr if by_entry else h * reward_stride + row
                total = 0.0
                for c in range(k if by_entry else 1):
                    left = drawn[c] if by_entry else m
                    if outcomes == 0:
                        total += left * reward_value[base + c]
                    for j in range(outcomes):
                        if left == 0:
                            break
                        x = binomial(state, left, reward_ratio[(base + c) * outcomes + j])
                        total += x * support[j]
                        left -= x
                reward_sums[t, row] += total
        if h < 0:
            for s in range(size):
                starts[s] += after[s]
        here, after = after, here


def work_size(world: World) -> int:
    """Return the size of the int64 array that :func:`flow` needs as work space."""
    return 3 * world.states


# ------------------------------------------------------------------------------- values


@inlined
def _row_value(
    ptr: int,
    end: int,
    mean: float,
    successor: NDArray[np.int64],
    probability: NDArray[np.float64],
    after: NDArray[np.float64],
) -> float:
    """Return the mean reward plus the expected value of the successor, given ``after`` (S,) values."""
    expected = 0.0
    for e in range(ptr, end):
        expected += probability[e] * after[successor[e]]
    return mean + expected


@kernel
def evaluate(
    world: World,
    stochastic: bool,
    policy_rows: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    values: NDArray[np.float64],
) -> None:
    """Compute the exact values of a policy by backward induction, and write them to ``values (H + 1, S)``."""
    row_ptr, successor, probability = world.row_ptr, world.successor, world.probability
    state_ptr, mean = world.state_ptr, world.mean_reward
    horizon, states = world.horizon, world.states
    move_stride, reward_stride = world.transition_stride, world.reward_stride
    values[horizon] = 0.0
    for h in range(horizon - 1, -1, -1):
        move, reward, after = h * move_stride, h * reward_stride, values[h + 1]
        for s in range(states):
            first, last = state_ptr[s], state_ptr[s + 1]
            if not stochastic:
                first = policy_rows[h, s]
                last = first + 1
            total = 0.0
            for row in range(first, last):
                weight = probabilities[h, row] if stochastic else 1.0
                if weight > 0.0:
                    ptr, end = row_ptr[move + row], row_ptr[move + row + 1]
                    total += weight * _row_value(ptr, end, mean[reward + row], successor, probability, after)
            values[h, s] = total


@kernel
def optimal(
    world: World, values: NDArray[np.float64], q: NDArray[np.float64], policy_rows: NDArray[np.int64]
) -> None:
    """Compute the optimal values and an optimal policy by backward induction.

    The results are written to ``values (H + 1, S)``, ``q (H, R)`` and ``policy_rows (H, S)``.
    """
    row_ptr, successor, probability = world.row_ptr, world.successor, world.probability
    state_ptr, mean = world.state_ptr, world.mean_reward
    values[world.horizon] = 0.0
    for h in range(world.horizon - 1, -1, -1):
        move, reward = h * world.transition_stride, h * world.reward_stride
        for s in range(world.states):
            best = state_ptr[s]
            for row in range(state_ptr[s], state_ptr[s + 1]):
                ptr, end = row_ptr[move + row], row_ptr[move + row + 1]
                q[h, row] = _row_value(ptr, end, mean[reward + row], successor, probability, values[h + 1])
                if q[h, row] > q[h, best]:
                    best = row
            values[h, s] = q[h, best]
            policy_rows[h, s] = best
