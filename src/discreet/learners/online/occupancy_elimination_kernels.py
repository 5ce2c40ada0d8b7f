r"""Compute the mixture of policies that visits a pair most often, subject to a lower bound on its value.

The linear programme is max q_h(s, a) over occupancy measures q of the model with <q, r> >= level. By duality,
its optimum is the minimum over lambda >= 0 of max_pi [visit(pi) + lambda (value(pi) - level)], where
visit(pi) is the probability that pi visits the pair. Backward induction computes the inner maximum.

Each policy is a point (value, visit) in the plane. The search follows the concave upper hull of these points
from its two ends, with one policy below the level and one policy above the level. Each step finds a new
vertex of the hull, so the search is finite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.utils.random_streams_kernels import below

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Coins = NDArray[np.uint64]

# Largest number of steps of the search. More than 20 steps were never observed, because each step must
# improve the optimum by more than rounding errors.
_MOST_STEPS = 1000
# A policy reaches the level if its value is below the level by at most this relative difference.
_ROUNDING = 1e-12


@kernel
def plan_best(
    columns: Floats, rewards: Floats, state_ptr: Ints, coins: Coins, values: Floats, q: Floats, rows: Ints
) -> None:
    """Run backward induction, and break exact ties at random.

    The function writes the optimal values (H + 1, S) and q (H, R), and the greedy rows (H, S). ``columns``
    (H, S', R) holds the transition probabilities P_h(s' | r). ``rewards`` (H, R) need not be in [0, 1].
    ``coins`` (4,) is the state of a random stream, which is advanced in place.
    """
    horizon, states, pairs = columns.shape
    values[horizon] = 0.0
    for h in range(horizon - 1, -1, -1):
        for r in range(pairs):
            q[h, r] = rewards[h, r]
        for after in range(states):
            v = values[h + 1, after]
            for r in range(pairs):
                q[h, r] += columns[h, after, r] * v
        for s in range(states):
            best, tied = state_ptr[s], 1
            for r in range(state_ptr[s] + 1, state_ptr[s + 1]):
                if q[h, r] > q[h, best]:
                    best, tied = r, 1
                elif q[h, r] == q[h, best]:
                    tied += 1
                    if below(coins, tied) == 0:
                        best = r
            rows[h, s], values[h, s] = best, q[h, best]


@inlined
def _respond(
    columns: Floats,
    rewards: Floats,
    state_ptr: Ints,
    initial: Floats,
    values: Floats,
    q: Floats,
    best_rows: Ints,
    h: int,
    state: int,
    target: int,
    on_visit: float,
    on_reward: float,
    coins: Coins,
    rows: Ints,
    scratch: Floats,
) -> tuple[float, float]:
    """Find a policy that maximises on_visit * visit + on_reward * value.

    The function writes the rows that the policy chooses into ``rows`` (H, S), and returns its (visit, value).
    """
    states, pairs = columns.shape[1], columns.shape[2]
    x, v, qx, qv = scratch[0], scratch[1], scratch[2], scratch[3]
    for t in range(h, rows.shape[0]):
        for s in range(states):
            rows[t, s] = best_rows[t, s]
    for s in range(states):
        x[s], v[s] = 0.0, values[h, s]
    if on_visit + on_reward * q[h, target] >= on_reward * values[h, state]:
        x[state], v[state], rows[h, state] = 1.0, q[h, target], target
    for t in range(h - 1, -1, -1):
        for r in range(pairs):
            qx[r], qv[r] = 0.0, rewards[t, r]
        for after in range(states):
            of_x, of_v = x[after], v[after]
            for r in range(pairs):
                p = columns[t, after, r]
                qx[r] += p * of_x
                qv[r] += p * of_v
        for s in range(states):
            best, tied = state_ptr[s], 1
            score = on_visit * qx[best] + on_reward * qv[best]
            other = qv[best] if on_reward == 0.0 else qx[best]
            for r in range(state_ptr[s] + 1, state_ptr[s + 1]):
                mine = on_visit * qx[r] + on_reward * qv[r]
                second = qv[r] if on_reward == 0.0 else qx[r]
                if mine > score or (mine == score and second > other):
                    best, tied, score, other = r, 1, mine, second
                elif mine == score and second == other:
                    tied += 1
                    if below(coins, tied) == 0:
                        best = r
            rows[t, s], x[s], v[s] = best, qx[best], qv[best]
    visit, value = 0.0, 0.0
    for s in range(states):
        visit += initial[s] * x[s]
        value += initial[s] * v[s]
    return visit, value


@kernel
def constrained_visit(
    columns: Floats,
    rewards: Floats,
    state_ptr: Ints,
    initial: Floats,
    values: Floats,
    q: Floats,
    best_rows: Ints,
    h: int,
    state: int,
    target: int,
    level: float,
    coins: Coins,
    low_rows: Ints,
    high_rows: Ints,
) -> tuple[float, float, int]:
    """Find a mixture of policies with value >= ``level`` that maximises the probability of a visit to a pair.

    The pair is row ``target``, which belongs to state ``state``, at step h. ``values``, ``q`` and
    ``best_rows`` are results of :func:`plan_best` for the same model. The function writes the two policies of
    the mixture into ``low_rows`` and ``high_rows`` (H, S). It returns the weight of the second policy, the
    probability that the mixture visits the pair, and the number of backward inductions.

    If ``level`` exceeds the largest value, the largest value is used as the level.
    """
    states, pairs = columns.shape[1], columns.shape[2]
    best = 0.0
    for s in range(states):
        best += initial[s] * values[0, s]
    level = min(level, best) - _ROUNDING * max(1.0, abs(best))
    scratch, rows = np.empty((4, max(states, pairs))), np.empty_like(low_rows)
    visit0, value0 = _respond(
        columns, rewards, state_ptr, initial, values, q, best_rows, h, state, target, 1.0, 0.0, coins,
        low_rows, scratch,
    )  # fmt: skip
    if value0 >= level:
        high_rows[:] = low_rows
        return 0.0, visit0, 1
    visit1, value1 = _respond(
        columns, rewards, state_ptr, initial, values, q, best_rows, h, state, target, 0.0, 1.0, coins,
        high_rows, scratch,
    )  # fmt: skip
    steps = 2
    while value1 > value0 and visit0 > visit1 and steps < _MOST_STEPS:
        price = (visit0 - visit1) / (value1 - value0)
        visit, value = _respond(
            columns, rewards, state_ptr, initial, values, q, best_rows, h, state, target, 1.0, price, coins,
            rows, scratch,
        )  # fmt: skip
        steps += 1
        reached = visit0 + price * value0
        if visit + price * value <= reached + 1e-13 * max(1.0, abs(reached)):
            break
        if value >= level:
            high_rows[:] = rows
            visit1, value1 = visit, value
        else:
            low_rows[:] = rows
            visit0, value0 = visit, value
    weight = 1.0
    if value1 > level and visit0 > visit1:
        weight = (level - value0) / (value1 - value0)
    return weight, visit0 + weight * (visit1 - visit0), steps
