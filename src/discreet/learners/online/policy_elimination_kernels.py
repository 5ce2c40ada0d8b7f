"""Values of all deterministic policies of a small problem, and the policy that visits each pair most often.

A *rule* is the part of a policy for one step: it chooses a row, which is an admissible pair, for every state.
With n_0 rules at the first step and n rules at each later step, the number of a policy is

    policy = rule_0 + n_0 (rule_1 + n (rule_2 + n (...))).

Values are computed backward, once for each choice of later rules (*suffix*). Occupancies are computed
forward, once for each choice of earlier rules (*prefix*).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rules = NDArray[np.int32]
Flags = NDArray[np.bool_]


@inlined
def _back_up(transitions: Floats, rewards: Floats, h: int, values: Floats, j: int, q: Floats) -> None:
    """Write q[r] = r_h(r) + sum_s' P_h(s' | r) values[j, s'] for every row r."""
    rows, states = q.shape[0], values.shape[1]
    for r in range(rows):
        total = rewards[h, r]
        for s in range(states):
            total += transitions[h, r, s] * values[j, s]
        q[r] = total


@kernel
def evaluate_all(
    transitions: Floats, rewards: Floats, initial: Floats, first: Rules, rules: Rules, out: Floats
) -> None:
    """Write into out[i] the value of policy i.

    If the transition probabilities of a row sum to less than 1, the missing mass has value 0.

    Parameters
    ----------
    transitions, rewards, initial : (H, R, S), (H, R) and (S,)
        Model, and distribution of the first state.
    first, rules : (n_0, S) and (n, S)
        Rules for the first step and for each later step.
    out : (n_0 n^(H-1),)
        Overwritten with the values.
    """
    horizon, rows, states = transitions.shape
    starts, n = first.shape[0], rules.shape[0]
    values, suffixes = np.zeros((1, states)), 1
    q, q_first, v = np.empty(rows), np.empty(rows), np.zeros((1, states))
    for h in range(horizon - 1, 1, -1):
        longer = np.empty((suffixes * n, states))
        for j in range(suffixes):
            _back_up(transitions, rewards, h, values, j, q)
            for d in range(n):
                for s in range(states):
                    longer[j * n + d, s] = q[rules[d, s]]
        values, suffixes = longer, suffixes * n
    seconds = n if horizon > 1 else 1
    policy = 0
    for j in range(suffixes):
        if horizon > 1:
            _back_up(transitions, rewards, 1, values, j, q)
        for d in range(seconds):
            if horizon > 1:
                for s in range(states):
                    v[0, s] = q[rules[d, s]]
            _back_up(transitions, rewards, 0, v, 0, q_first)
            for i in range(starts):
                total = 0.0
                for s in range(states):
                    if initial[s] > 0.0:
                        total += initial[s] * q_first[first[i, s]]
                out[policy] = total
                policy += 1


@kernel
def occupancies(transitions: Floats, initial: Floats, first: Rules, rules: Rules, h: int) -> Floats:
    """Return the distribution of the state at step h, (prefixes, S), for every choice of earlier rules.

    Steps h and later of ``transitions`` are not read. Prefixes are numbered in the same way as policies.
    """
    states = initial.shape[0]
    mass, prefixes = np.empty((1, states)), 1
    mass[0] = initial
    for t in range(h):
        table = first if t == 0 else rules
        n = table.shape[0]
        longer = np.zeros((prefixes * n, states))
        for d in range(n):
            for p in range(prefixes):
                for s in range(states):
                    share = mass[p, s]
                    if share > 0.0:
                        for after in range(states):
                            longer[p + prefixes * d, after] += share * transitions[t, table[d, s], after]
        mass, prefixes = longer, prefixes * n
    return mass


@kernel
def best_visitors(
    mass: Floats, table: Rules, active: Flags, coins: Floats, random: bool, found: Ints, visits: Floats
) -> None:
    """Find, for every row r, the active policy that visits r at step h with the largest probability.

    ``mass`` (prefixes, S) is the result of :func:`occupancies` for step h, ``table`` (n, S) holds the rules
    of this step, and ``active`` (policies,) is True for active policies. The function writes the number of
    the policy into ``found`` (R,), or -1 if no active policy chooses r. It writes the probability into
    ``visits`` (R,). If ``random`` is True, uniform ``coins`` (R,) in [0, 1) break ties; otherwise the policy
    with the lowest number is found.
    """
    prefixes, states = mass.shape
    n, rows = table.shape[0], found.shape[0]
    here = prefixes * n
    suffixes = active.shape[0] // here
    many, lowest = np.zeros(here, np.int64), np.zeros(here, np.int64)
    for m in range(suffixes - 1, -1, -1):
        for q in range(here):
            if active[m * here + q]:
                many[q] += 1
                lowest[q] = m
    tied, best = np.zeros(rows, np.int64), np.full(rows, -1.0)
    found[:] = -1
    for d in range(n):
        for s in range(states):
            r = table[d, s]
            for p in range(prefixes):
                q = p + prefixes * d
                if many[q] == 0 or mass[p, s] < best[r]:
                    continue
                policy = q + here * lowest[q]
                if mass[p, s] > best[r]:
                    best[r], tied[r], found[r] = mass[p, s], many[q], policy
                else:
                    tied[r] += many[q]
                    found[r] = min(found[r], policy)
    for r in range(rows):
        visits[r] = max(0.0, best[r])
    if not random:
        return
    left = np.empty(rows, np.int64)
    for r in range(rows):
        left[r] = min(tied[r] - 1, np.int64(coins[r] * tied[r]))
    for d in range(n):
        for s in range(states):
            r = table[d, s]
            for p in range(prefixes):
                q = p + prefixes * d
                if left[r] < 0 or many[q] == 0 or mass[p, s] != best[r]:
                    continue
                if left[r] >= many[q]:
                    left[r] -= many[q]
                    continue
                for m in range(lowest[q], suffixes):
                    if active[m * here + q]:
                        if left[r] == 0:
                            found[r] = q + here * m
                            break
                        left[r] -= 1
                left[r] = -1
