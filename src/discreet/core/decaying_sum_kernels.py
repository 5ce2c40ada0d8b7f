"""Compiled release of a decaying sum, cell by cell.

The derivation is in :mod:`discreet.core.correlated_noise.decaying_sum`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@inlined
def decay_cell(
    x: float, before: float, measured: float, noise: float, out: bool, decay: float, gain: float, fine: float
) -> tuple[float, float, float]:
    """Return one cell of a release: the decaying sum, its measurement, and the implied prefix sum.

    Parameters
    ----------
    x : value of the batch.
    before : decaying sum so far.
    measured : sum of all measurements so far.
    out : True if the cell is released. If False, the cell has no noise and its measurement is 0.
    fine : number of fixed-point units in 1, or 0 for floating point. In fixed point the sum and its noise are
        exact, and all later steps use only the noisy sum.
    """
    held = x + (np.rint(decay * (before * fine)) / fine if fine > 0.0 else decay * before)
    fresh = (gain * (held + noise) if fine > 0.0 else gain * held + noise) if out else 0.0
    return held, fresh, (fresh + (1.0 - decay) * measured) / gain


@kernel
def decay_cells(
    x: Floats, before: Floats, measured: Floats, noise: Floats, out: Bools, decay: float, gain: float,
    fine: float, held: Floats, fresh: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Apply :func:`decay_cell` to every cell of a release."""
    for c in range(x.shape[0]):
        cell = decay_cell(x[c], before[c], measured[c], noise[c], out[c], decay, gain, fine)
        held[c], fresh[c], sums[c] = cell
