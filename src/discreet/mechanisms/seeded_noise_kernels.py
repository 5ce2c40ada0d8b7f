"""Compiled functions that draw seeded noise for every cell, for simulation only.

Anyone who knows the seed can remove the noise. A draw has an address (key, i, j), for example that of a node
of a tree. The same address always gives the same noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.core.count_kernels import LAPLACE
from discreet.utils.random_streams_kernels import (
    ROLE_NOISE,
    laplace_range,
    laplace_sum,
    normal,
    normal_range,
    open_stream,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


@inlined
def draw_noise(
    family: int, key: Words, i: int, j: int, factor: float, offsets: Ints, scales: Floats,
    state: Words, out: Floats,
) -> None:  # fmt: skip
    """Fill every cell with independent noise from the stream at address (noise, i, j).

    The scale of the noise in family f is factor * scales[f].
    """
    open_stream(key, ROLE_NOISE, i, j, state)
    for f in range(scales.shape[0]):
        scale = factor * scales[f]
        if family == LAPLACE:
            laplace_range(state, scale, out, offsets[f], offsets[f + 1])
        else:
            normal_range(state, scale, out, offsets[f], offsets[f + 1])


@kernel
def fill_noise(
    family: int, key: Words, i: int, j: int, factor: float, offsets: Ints, scales: Floats, out: Floats
) -> None:
    """Call :func:`draw_noise` with a new array for the state of the stream."""
    draw_noise(family, key, i, j, factor, offsets, scales, np.empty(4, np.uint64), out)


@inlined
def draw_noise_sum(
    family: int, key: Words, i: int, users: int, offsets: Ints, scales: Floats, state: Words, out: Floats
) -> None:
    """Fill every cell with a draw from the exact distribution of the sum of the noise of ``users`` users.

    The draws are from the stream at address (noise, i, 1).
    """
    open_stream(key, ROLE_NOISE, i, 1, state)
    root = np.sqrt(np.float64(users))
    for f in range(scales.shape[0]):
        for c in range(offsets[f], offsets[f + 1]):
            if family == LAPLACE:
                out[c] = laplace_sum(state, users, scales[f])
            else:
                out[c] = scales[f] * root * normal(state)


@kernel
def fill_noise_sum(
    family: int, key: Words, i: int, users: int, offsets: Ints, scales: Floats, out: Floats
) -> None:
    """Call :func:`draw_noise_sum` with a new array for the state of the stream."""
    draw_noise_sum(family, key, i, users, offsets, scales, np.empty(4, np.uint64), out)
