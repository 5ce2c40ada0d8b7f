r"""Largest visit probability of a pair among policies (mixtures of them) whose value reaches a level.

The linear programme max q_h(s, a) over occupancy measures q of the model with <q, r> >= level has one
coupling constraint. By duality its optimum is min over lambda >= 0 of max_pi [visit(pi) + lambda (value(pi) -
level)], where the inner maximum is a backward induction. The points (value, visit) of all policies have a
concave upper hull, which is searched from its two ends. The chord between a policy below the level and one
above it gives lambda. The maximiser for this lambda is a vertex above the chord and replaces the end on its
side. When no vertex is above the chord, the chord's point at the level is the optimum. Each step finds a new
vertex, so that the search is finite; five to ten steps are usual.

After step h only the reward matters. Every candidate then plays an optimal policy of the model, which is
found once. Tables are (H, S', R), with the pair last: sums over s' then use vector registers without changing
the order of additions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.core.noise.random_streams_kernels import below

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Coins = NDArray[np.uint64]

_MOST_STEPS = 1000  # never seen above 20: each step must improve by more than rounding
_ROUNDING = 1e-12  # relative shortfall of a policy's value from the level that still counts as reaching it


@kernel
def plan_best(
    columns: Floats, rewards: Floats, state_ptr: Ints, coins: Coins, values: Floats, q: Floats, rows: Ints
) -> None:
    """Run backward induction, with exact ties broken by random words.

    The results are values (H + 1, S), q (H, R) and greedy rows (H, S). ``coins`` are 4 random words. columns
    (H, S', R) holds P_h(s' | r); rewards (H, R) need not be in [0, 1].
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
    """Write a maximiser of on_visit * visit + on_reward * value to rows (H, S); return (visit, value).

    If only one of the two counts, ties go to the larger of the other, then to the random stream.
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
    """Maximise the probability of row ``target`` (a pair of ``state``) at step h, given value >= level.

    values, q, best_rows : from :func:`plan_best` for the same model. Written: low_rows, high_rows (H, S), the
    two policies of the optimal mixture. Returns the weight of the second, the mixture's visit probability,
    and the number of backward inductions. A level above the best value is read as the best value. Policies
    that miss it only by rounding reach it: if all values are equal, all policies are in.
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
