"""Compiled evaluation of the program of a factorization mechanism with seeded noise, for the fused driver."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined
from discreet.core.correlated_noise.factorization_kernels import (
    C1,
    C2,
    CD,
    DRAW,
    LABEL,
    LEVEL,
    SCALE,
    SOURCE1,
    SOURCE2,
    TARGET,
    walk_next,
    walk_ops,
    walk_register,
)
from discreet.mechanisms.seeded_noise_kernels import draw_noise

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


@inlined
def walk_advance(
    code: int, ints: Ints, floats: Floats, links: Ints, weights: Floats, leaf: int, family: int, key: Words,
    offsets: Ints, scales: Floats, held: Ints, registers: Floats, state: Words, noise: Floats,
) -> int:  # fmt: skip
    """Compute the noise of the prefix with ``leaf`` > 0 steps.

    Returns the index of the register that contains this noise.
    """
    done, cells = held.shape[0] - 1, noise.shape[0]
    while held[done] < leaf:
        at = walk_next(code, held, leaf)
        for o in range(walk_ops(code, ints, floats, held, at, links, weights)):
            target, one, two = links[o, TARGET], links[o, SOURCE1], links[o, SOURCE2]
            c1, c2, cd = weights[o, C1], weights[o, C2], weights[o, CD]
            if cd != 0.0:
                i, level, scale = links[o, DRAW], links[o, LEVEL], weights[o, SCALE]
                draw_noise(family, key, i, level, scale, offsets, scales, state, noise)
            if cd == 0.0:
                if two < 0:
                    for c in range(cells):
                        registers[target, c] = c1 * registers[one, c]
                elif one < 0:
                    for c in range(cells):
                        registers[target, c] = c2 * registers[two, c]
                else:
                    for c in range(cells):
                        registers[target, c] = c1 * registers[one, c] + c2 * registers[two, c]
            elif one < 0:
                for c in range(cells):
                    registers[target, c] = cd * noise[c]
            elif two < 0:
                for c in range(cells):
                    registers[target, c] = c1 * registers[one, c] + cd * noise[c]
            else:
                for c in range(cells):
                    registers[target, c] = (c1 * registers[one, c] + c2 * registers[two, c]) + cd * noise[c]
            held[target] = links[o, LABEL]
        held[done] = at
    return walk_register(code, ints, leaf)
