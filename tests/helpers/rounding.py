"""Rounding at random in unlimited precision: what the compiled rounding is compared with, for any grid."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.noise import discrete_samplers as exact
from discreet.core.noise.discrete_samplers import ByteSource, _Bytes


def stochastic_round(x: ArrayLike, grid: int = 1024, source: ByteSource = os.urandom) -> Any:
    """Round x in [0, 1] to k/grid with mean exactly x, and return k: floor(x grid) or one more.

    Parameters
    ----------
    x : float or array of floats in [0, 1]
    grid : int
        Steps of the grid, at least 1; the reward sum is then an integer in units of 1/grid.
    source : callable
        ``source(n)`` returns n random bytes.

    Returns
    -------
    int for a number, int64 array of the same shape for an array

    Notes
    -----
    x times grid is a dyadic rational, so that finitely many random bits decide exactly. One summand gains a
    variance of at most 1/(4 grid^2) in units of x; its sensitivity stays that of [0, 1].
    """
    grid = checks.integer("grid", grid, 1, 2**40)
    values = np.array(x, np.float64)
    if values.ndim and grid & (grid - 1) == 0:
        return (exact.round_to_grid(values, grid, source) * grid).astype(np.int64)
    inside = (values >= 0) & (values <= 1)
    if not inside.all():
        raise ValueError(f"x holds {values[~inside].flat[0]!r}: must be in [0, 1]")
    stream = _Bytes(source)
    rounded = [_round_one(value, grid, stream) for value in values.ravel().tolist()]
    if values.ndim == 0:
        return rounded[0]
    return np.array(rounded, np.int64).reshape(values.shape)


def _round_one(value: float, grid: int, stream: _Bytes) -> int:
    scaled = Fraction(value) * grid
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    if rest == 0:
        return whole
    bits = scaled.denominator.bit_length() - 1  # the denominator is 2^bits
    count = -(-bits // 8)
    return whole + int(stream.take(count) >> (8 * count - bits) < rest)
