"""Compiled sparse rows of transition probabilities.

The Euclidean projection of a noisy row onto the probability simplex sets most entries to exactly 0. Only the
positive entries of each row are stored. With fewer than ``FEW`` states, all entries are stored.

The sum over all states of (V(s) - m)^2, for a value m that depends on the row, is sum_s (V(s) - V')^2 + S (m
- V')^2. Here V' is the mean of V over states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined
from discreet.learners.estimation.model_kernels import level

Floats = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])


def spliced(function: F) -> F:
    """Inline a small compiled function into its callers."""
    made: Any = numba.njit(inline="always", nogil=True, error_model="numpy", fastmath=False)(function)
    return made


FEW = 32  # With fewer states, rows are stored with all their entries.
PROJECTED, GIVEN, UNIFORM = range(3)  # Kinds of rows, see `fill`.


class Successors(NamedTuple):
    """Sparse rows of transition probabilities. A row without entries is uniform."""

    ends: NDArray[np.int64]  # (rows + 1,)
    state: NDArray[np.int32]  # Successor of each entry, increasing within a row.
    chance: Floats  # Probability of each entry.


def table_size(rows: int, states: int) -> int:
    """Return the number of floats that :func:`successors` needs for a table."""
    return rows + 1 + rows * states + (rows * states + 1) // 2


@spliced
def successors(memory: Floats, rows: int, states: int) -> Successors:
    """Return the table that occupies the ``table_size`` floats of ``memory``."""
    at = rows + 1
    end = at + rows * states
    return Successors(memory[:at].view(np.int64), memory[end:].view(np.int32), memory[at:end])


@spliced
def project_in_place(v: Floats, i: int) -> None:
    """Replace v[i] by its projection onto the simplex."""
    states = v.shape[1]
    high = v[i, 0]
    total = 0.0
    for s in range(states):
        high = max(high, v[i, s])
        total += v[i, s]
    theta = level(v, i, 1.0, max(high - 1.0, (total - 1.0) / states))
    for s in range(states):
        excess = v[i, s] - theta
        v[i, s] = excess if excess > 0.0 else 0.0


@spliced
def add_row(table: Successors, row: int, v: Floats, i: int) -> None:
    """Store v[i], which is a probability distribution, as the next row, ``row``."""
    at = table.ends[row]
    state, chance = table.state, table.chance
    for s in range(v.shape[1]):
        state[at] = s
        chance[at] = v[i, s]
        at += 1 if v[i, s] > 0.0 or v.shape[1] < FEW else 0
    table.ends[row + 1] = at


@inlined
def fill(table: Successors, v: Floats, kinds: NDArray[np.int8]) -> None:
    """Store the rows of ``v`` as the first rows of the table.

    ``kinds[i]`` is UNIFORM for a uniform row, GIVEN if v[i] is a probability distribution, and PROJECTED to
    store the projection of v[i] onto the simplex. The projection is Newton's method of
    :func:`~discreet.learners.estimation.model_kernels.level`. An entry that is below the level in one pass
    stays below it, so each pass reads only the entries that the previous pass kept. The loop has no calls of
    other functions. Calls for each row took three times as long, because of reference counts.
    """
    ends, state, chance = table.ends, table.state, table.chance
    states = v.shape[1]
    dense = states < FEW
    at = 0
    ends[0] = 0
    for i in range(kinds.shape[0]):
        if kinds[i] == UNIFORM:
            if dense:
                for s in range(states):
                    state[at + s] = s
                    chance[at + s] = 1.0 / states
                at += states
        elif kinds[i] == GIVEN:
            for s in range(states):
                state[at] = s
                chance[at] = v[i, s]
                at += 1 if v[i, s] > 0.0 or dense else 0
        else:
            high = v[i, 0]
            total = 0.0
            for s in range(states):
                high = max(high, v[i, s])
                total += v[i, s]
            theta = max(high - 1.0, (total - 1.0) / states)
            total = 0.0
            count = 0
            for s in range(
                states
            ):  # Each entry is written, and overwritten by the next one if it is not kept.
                value = v[i, s]
                above = value > theta
                state[at + count] = s
                chance[at + count] = value
                total += value if above else 0.0
                count += 1 if above else 0
            before = states + 1
            while 0 < count < before:
                theta = (total - 1.0) / count
                before = count
                total = 0.0
                count = 0
                for j in range(at, at + before):
                    value = chance[j]
                    above = value > theta
                    state[at + count] = state[j]
                    chance[at + count] = value
                    total += value if above else 0.0
                    count += 1 if above else 0
            if dense:
                for s in range(states):
                    excess = v[i, s] - theta
                    state[at + s] = s
                    chance[at + s] = excess if excess > 0.0 else 0.0
                at += states
            else:
                for j in range(at, at + count):
                    chance[j] -= theta
                at += count
        ends[i + 1] = at


@spliced
def middle(values: Floats, h: int) -> tuple[float, float, float]:
    """Return mean, standard deviation, and sum of squared deviations from the mean, of values[h] (S,)."""
    states = values.shape[1]
    centre, square, total = 0.0, 0.0, 0.0
    for s in range(states):
        centre += values[h, s] / states
    for s in range(states):
        d = values[h, s] - centre
        square += d * d / states
        total += d * d
    return centre, np.sqrt(square), total


@spliced
def moments(
    table: Successors, row: int, values: Floats, h: int, centre: float, square: float
) -> tuple[float, float, float]:
    """Return the mean and variance of values[h] at the successor of ``row``, and a squared distance.

    The squared distance is the sum over all states of the squared deviations of values[h] from the returned
    mean. ``centre`` and ``square`` are the first and last result of :func:`middle`.
    """
    first, end, states = table.ends[row], table.ends[row + 1], values.shape[1]
    state, chance = table.state, table.chance
    mean = 0.0
    for j in range(first, end):
        mean += chance[j] * values[h, state[j]]
    variance = 0.0
    distance = 0.0
    for j in range(first, end):
        d = values[h, state[j]] - mean
        distance += d * d
        variance += chance[j] * (d * d)
    if end - first < states:
        distance = square + states * (mean - centre) ** 2
    return mean, variance, distance


@spliced
def flow_from(table: Successors, row: int, users: float, after: Floats) -> float:
    """Add the successors of ``users`` users at ``row`` to ``after`` (S,).

    Returns the number of users to divide evenly over all states: ``users`` if the row is uniform, else 0.
    """
    first, end = table.ends[row], table.ends[row + 1]
    state, chance = table.state, table.chance
    for j in range(first, end):
        after[state[j]] += users * chance[j]
    return 0.0 if end > first else users
