"""Compiled code for local reports: randomize one report, debias it, and draw sums of many reports.

The distribution and the order of draws of one report are those of
:class:`discreet.mechanisms.local.randomized_response.ReportEncoder`. Given the same random stream, the class
and this module draw the same bits. ``codes`` and ``values`` are the arrays of
:meth:`discreet.mechanisms.local.randomized_response.StepReports.arrays`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.utils.random_streams_kernels import ROLE_NOISE, below, binomial, next_word, open_stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

SUBSET, UNARY = 0, 1
MOVES, REWARDS = 0, 1  # values of ``about``: the report is about the transition or about the reward
# Positions in ``codes``. The numbers (elements, size, own, other) of each alphabet start at position FIRST.
# The alphabets are in the order of 2 * about + stochastic.
(KIND, STEPS, SHARE, FIRST) = range(4)
_GRID = 9007199254740992.0  # 2^53, the denominator of all probabilities
_S11 = np.uint64(11)


class ReportArrays(NamedTuple):
    """Public parameters of the reports, and work arrays for one report and for the records of one batch.

    - codes, values : parameters. The latter are ``gain`` and ``miss`` of each alphabet (:func:`add_hits`).
    - chosen : 1 for each step that is reported, else 0.
    - marks : 1 for each element that a report contains, else 0.
    - hits : number of users whose report contains each element.
    - counts : number of users with each element.
    - moves, bits : number of users in a batch who report each move and each reward bit.
    - flow : work array for the simulation of many users.
    """

    codes: Ints  # (FIRST + 16,)
    values: Floats  # (8,)
    chosen: Ints  # (H,)
    marks: Ints  # (elements,)
    hits: Ints  # (elements,)
    counts: Ints  # (elements,)
    moves: Ints  # (H, R, S)
    bits: Ints  # (H, R, 2)
    flow: Ints


@inlined
def flip(state: Words, numerator: int) -> bool:
    """Return True with probability exactly numerator / 2^53."""
    return np.int64(next_word(state) >> _S11) < numerator


@inlined
def choose_steps(state: Words, steps: int, chosen: Ints) -> None:
    """Choose ``steps`` steps uniformly at random: set their entries of ``chosen`` to 1 and the others to 0.

    This is Floyd's algorithm.
    """
    size = chosen.shape[0]
    for h in range(size):
        chosen[h] = 0
    for j in range(size - steps, size):
        t = below(state, j + 1)
        if chosen[t] == 1:
            t = j
        chosen[t] = 1


@inlined
def randomize(
    state: Words, kind: int, elements: int, size: int, own: int, other: int, element: int, marks: Ints
) -> None:
    """Draw the randomized report of ``element``: set marks[e] to 1 if the report contains e, else to 0."""
    if kind == UNARY:
        for e in range(elements):
            marks[e] = 1 if flip(state, own if e == element else other) else 0
        return
    for e in range(elements):
        marks[e] = 0
    kept = 1 if flip(state, own) else 0
    others = elements - 1
    for j in range(others - size + kept, others):
        t = below(state, j + 1)
        t += 1 if t >= element else 0
        if marks[t] == 1:
            t = j + (1 if j >= element else 0)
        marks[t] = 1
    if kept == 1:
        marks[element] = 1


@inlined
def add_hits(
    about: int, step: int, stochastic: bool, policy_rows: Ints, users: int, gain: float, miss: float,
    hits: Ints, states: int, rows: int, slots: int, begins: Ints, shift: float, cells: Floats,
) -> None:  # fmt: skip
    """Add the debiased counts of ``users`` reports about one step to ``cells``.

    hits[e] of these reports contain the element e. The debiased count of e is users * miss + gain * hits[e].
    """
    base = 0 if slots == 1 else step * rows
    offset = users * miss
    for g in range(rows if stochastic else states):
        row = base + (g if stochastic else policy_rows[step, g])
        if about == MOVES:
            cell = begins[1] + row * states
            for t in range(states):
                x = offset + gain * hits[g * states + t]
                cells[cell + t] += x
                if begins[0] >= 0:
                    cells[begins[0] + row] += x
        else:
            high = offset + gain * hits[2 * g + 1]
            low = offset + gain * hits[2 * g]
            cells[begins[2] + row] += (1.0 - shift) * high - shift * low


@kernel
def add_report(
    codes: Ints, values: Floats, about: int, step: int, stochastic: bool, policy_rows: Ints, marks: Ints,
    states: int, rows: int, slots: int, begins: Ints, shift: float, cells: Floats,
) -> None:  # fmt: skip
    """Add the debiased counts of one decoded report to ``cells``.

    marks[e] is 1 if the report contains the element e, else 0.
    """
    a = 2 * about + (1 if stochastic else 0)
    add_hits(
        about, step, stochastic, policy_rows, 1, values[2 * a], values[2 * a + 1], marks, states, rows, slots,
        begins, shift, cells,
    )  # fmt: skip


@inlined
def report_episode(
    arrays: ReportArrays, trajectory_states: Ints, trajectory_rows: Ints, rewards: Floats, stochastic: bool,
    policy_rows: Ints, state: Words, states: int, rows: int, slots: int, begins: Ints, shift: float,
    cells: Floats,
) -> None:  # fmt: skip
    """Randomize the episode of one user who followed the policy, and add its debiased counts to ``cells``."""
    codes, values, chosen, marks = arrays.codes, arrays.values, arrays.chosen, arrays.marks
    kind, share = codes[KIND], codes[SHARE]
    choose_steps(state, codes[STEPS], chosen)
    for h in range(chosen.shape[0]):
        if chosen[h] == 0:
            continue
        about = MOVES
        if share > 0 and flip(state, share):
            about = REWARDS
        group = trajectory_rows[h] if stochastic else trajectory_states[h]
        if about == MOVES:
            element = group * states + trajectory_states[h + 1]
        else:
            element = 2 * group + (1 if flip(state, np.int64(rewards[h] * _GRID)) else 0)
        a = 2 * about + (1 if stochastic else 0)
        at = FIRST + 4 * a
        randomize(
            state, kind, codes[at], codes[at + 1], codes[at + 2], codes[at + 3], element, marks
        )  # fmt: skip
        add_hits(
            about, h, stochastic, policy_rows, 1, values[2 * a], values[2 * a + 1], marks, states, rows,
            slots, begins, shift, cells,
        )  # fmt: skip


@inlined
def randomize_sum(
    state: Words, kind: int, elements: int, size: int, own: int, other: int, counts: Ints, marks: Ints,
    hits: Ints,
) -> int:  # fmt: skip
    """Draw ``hits`` from its exact joint distribution and return the number of users.

    counts[e] is the number of users whose element is e, and hits[e] is the number of users whose report
    contains e. In unary encoding, the bits are independent, so their sums are binomial. In subset selection,
    the subsets of few users are drawn one by one. The subsets of many users with the same element e are drawn
    together: the number of subsets that contain e is binomial, and the rest of the subsets is filled element
    by element. Suppose that a user's subset has k free places, and that r elements remain. Then the subset
    gets the next element with probability k / r. ``marks[k]`` is the number of users with k free places.
    """
    users = 0
    for e in range(elements):
        users += counts[e]
        hits[e] = 0
    if kind == UNARY:
        for e in range(elements):
            hits[e] = binomial(state, counts[e], own / _GRID) + binomial(
                state, users - counts[e], other / _GRID
            )
        return users
    for e in range(elements):
        many = counts[e]
        if many < elements * size:
            for _ in range(many):
                randomize(state, kind, elements, size, own, other, e, marks)
                for x in range(elements):
                    hits[x] += marks[x]
            continue
        for k in range(size):
            marks[k] = 0
        kept = binomial(state, many, own / _GRID)
        hits[e] += kept
        marks[size - 1] = kept
        if size < elements:  # otherwise every subset contains the user's own element
            marks[size] = many - kept
        left = elements - 1
        for x in range(elements):
            if x == e:
                continue
            for k in range(1, min(size, left) + 1):
                taken = binomial(state, marks[k], k / left)
                hits[x] += taken
                marks[k] -= taken
                marks[k - 1] += taken
            left -= 1
    return users


@inlined
def add_batch(
    arrays: ReportArrays, stochastic: bool, policy_rows: Ints, key: Words, first_user: int, state: Words,
    states: int, rows: int, slots: int, begins: Ints, shift: float, cells: Floats,
) -> None:  # fmt: skip
    """Randomize the reported records of a batch, and add the debiased counts to ``cells``.

    The random numbers are from the stream (ROLE_NOISE, first_user, 1).
    """
    codes, values, moves, bits = arrays.codes, arrays.values, arrays.moves, arrays.bits
    counts, marks, hits = arrays.counts, arrays.marks, arrays.hits
    open_stream(key, ROLE_NOISE, first_user, 1, state)
    groups = rows if stochastic else states
    for h in range(moves.shape[0]):
        for about in range(2 if codes[SHARE] > 0 else 1):
            present = 0
            for g in range(groups):
                row = g if stochastic else policy_rows[h, g]
                if about == MOVES:
                    for t in range(states):
                        counts[g * states + t] = moves[h, row, t]
                        present += moves[h, row, t]
                else:
                    counts[2 * g] = bits[h, row, 0]
                    counts[2 * g + 1] = bits[h, row, 1]
                    present += bits[h, row, 0] + bits[h, row, 1]
            if present == 0:
                continue
            a = 2 * about + (1 if stochastic else 0)
            at = FIRST + 4 * a
            randomize_sum(
                state, codes[KIND], codes[at], codes[at + 1], codes[at + 2], codes[at + 3], counts, marks,
                hits,
            )  # fmt: skip
            add_hits(
                about, h, stochastic, policy_rows, present, values[2 * a], values[2 * a + 1], hits, states,
                rows, slots, begins, shift, cells,
            )  # fmt: skip


@kernel
def add_reported(
    arrays: ReportArrays, stochastic: bool, policy_rows: Ints, key: Words, first_user: int,
    states: int, rows: int, slots: int, begins: Ints, shift: float, cells: Floats,
) -> None:  # fmt: skip
    """Allocate the stream state, then call :func:`add_batch`."""
    add_batch(
        arrays, stochastic, policy_rows, key, first_user, np.empty(4, np.uint64), states, rows, slots, begins,
        shift, cells,
    )  # fmt: skip


@kernel
def draw_sums(
    state: Words, kind: int, elements: int, size: int, own: int, other: int, counts: Ints, draws: int,
    singly: bool,
) -> Ints:  # fmt: skip
    """Return ``draws`` random vectors of hits, with shape (draws, elements); for tests.

    singly : True randomizes user by user, False draws the sums from their joint distribution.
    """
    out = np.zeros((draws, elements), np.int64)
    marks, hits = np.zeros(elements, np.int64), np.zeros(elements, np.int64)
    for i in range(draws):
        if not singly:
            randomize_sum(state, kind, elements, size, own, other, counts, marks, hits)
            out[i, :] = hits
            continue
        for e in range(elements):
            for _ in range(counts[e]):
                randomize(state, kind, elements, size, own, other, e, marks)
                out[i, :] += marks
    return out
