"""Compiled code that sums the stored records of one step, by pair (s, a) or by next state.

:mod:`discreet.mechanisms.linear.dataset_sums` uses it. In every function, ``wanted`` is the half of the users
whose records are summed (0 or 1), or -1 for all users.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import kernel

Ints = NDArray[np.int64]
Any1 = NDArray[Any]


@kernel
def add_visits(pairs: Any1, half: Any1, wanted: int, out: Ints) -> None:
    """Add the number of records with each pair to ``out`` (P,)."""
    for i in range(pairs.shape[0]):
        if wanted < 0 or half[i] == wanted:
            out[pairs[i]] += 1


@kernel
def add_values(pairs: Any1, to: Any1, half: Any1, wanted: int, values: Any1, out: Any1) -> None:
    """For each record, add values[s'] to the entry of ``out`` (P,) that belongs to the record's pair."""
    for i in range(pairs.shape[0]):
        if wanted < 0 or half[i] == wanted:
            out[pairs[i]] += values[to[i]]


@kernel
def add_numbers(pairs: Any1, numbers: Any1, half: Any1, wanted: int, out: Any1) -> None:
    """Add each record's entry of ``numbers`` to the entry of ``out`` (P,) that belongs to its pair."""
    for i in range(pairs.shape[0]):
        if wanted < 0 or half[i] == wanted:
            out[pairs[i]] += numbers[i]


@kernel
def add_moves(pairs: Any1, to: Any1, half: Any1, wanted: int, x: Any1, out: Any1) -> None:
    """For each record, add x[pair] to row s' of ``out`` (S, d), where s' is the record's next state."""
    for i in range(pairs.shape[0]):
        if wanted < 0 or half[i] == wanted:
            for j in range(x.shape[1]):
                out[to[i], j] += x[pairs[i], j]
