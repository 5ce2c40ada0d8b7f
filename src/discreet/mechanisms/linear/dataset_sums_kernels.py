"""Compiled sums by pair (s, a) over stored records of one step.

Used by :mod:`discreet.mechanisms.linear.dataset_sums`.
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
    """Add to out (P,) the number of times each pair occurs among records of a half (-1: all)."""
    for i in range(pairs.shape[0]):
        if wanted < 0 or half[i] == wanted:
            out[pairs[i]] += 1


@kernel
def add_values(pairs: Any1, to: Any1, half: Any1, wanted: int, values: Any1, out: Any1) -> None:
    """Add values[s'] to out (P,) by pair."""
    for i in range(pairs.shape[0]):
        if wanted < 0 or half[i] == wanted:
            out[pairs[i]] += values[to[i]]


@kernel
def add_numbers(pairs: Any1, numbers: Any1, half: Any1, wanted: int, out: Any1) -> None:
    """Add numbers to out (P,) by pair."""
    for i in range(pairs.shape[0]):
        if wanted < 0 or half[i] == wanted:
            out[pairs[i]] += numbers[i]


@kernel
def add_moves(pairs: Any1, to: Any1, half: Any1, wanted: int, x: Any1, out: Any1) -> None:
    """Add x[pair] to row s' of out (S, d)."""
    for i in range(pairs.shape[0]):
        if wanted < 0 or half[i] == wanted:
            for j in range(x.shape[1]):
                out[to[i], j] += x[pairs[i], j]
