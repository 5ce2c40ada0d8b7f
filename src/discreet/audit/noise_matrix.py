"""Noise matrix of a factorization mechanism for prefix sums, computed from the program that sessions run."""

from __future__ import annotations

import numpy as np

from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.factorization import Floats, Walk, program


def noise_matrix(walk: Walk) -> tuple[Floats, list[tuple[int, int]]]:
    """Return the noise matrix B, and the address of the draw of each column.

    Row n - 1 of B contains the weights of all draws in the noise of prefix n, for n = 1 .. N - 1. N is
    ``walk.leaves``. Each column of B belongs to one draw. Draws are in units of the base scale. Raises
    ``ValueError`` if N is unknown, or if the program draws twice at the same address.
    """
    if walk.leaves is None:
        raise ValueError("leaves = None: the matrix has no last row")
    if walk.weights is not None:
        return walk.draw_scale * walk.weights, [(n, 0) for n in range(1, walk.leaves)]
    if walk.row is not None:
        n = np.arange(walk.leaves - 1)
        lag = n[:, None] - n
        return np.where(lag >= 0, walk.row[np.maximum(lag, 0)], 0.0), [(int(i) + 1, 0) for i in n]
    code, ints, floats, links, weights = program(walk)
    held, registers = np.zeros(walk.registers + 1, np.int64), np.zeros((walk.registers, 0))
    addresses: list[tuple[int, int]] = []
    rows: list[Floats] = []
    for leaf in range(1, walk.leaves):
        at, operations = walks.next_ops(code, ints, floats, held, leaf, links, weights)
        for (target, one, two, i, j, label), (c1, c2, cd, scale) in zip(
            links[:operations].tolist(), weights[:operations].tolist(), strict=True
        ):
            value = np.zeros(registers.shape[1])
            for c, source in ((c1, one), (c2, two)):
                if source >= 0:
                    value += c * registers[source]
            if cd != 0.0:
                if (i, j) in addresses:
                    raise ValueError(f"the draw at {(i, j)} is made twice")
                addresses.append((i, j))
                registers = np.pad(registers, ((0, 0), (0, 1)))
                value = np.append(value, cd * scale)
            registers[target], held[target] = value, label
        held[-1] = at
        rows.append(registers[walks.register_of(code, ints, leaf)].copy())
    return np.array([np.pad(row, (0, len(addresses) - row.size)) for row in rows]), addresses
