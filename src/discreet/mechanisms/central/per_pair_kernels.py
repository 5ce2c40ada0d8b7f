"""Schedule on which each row is measured: :mod:`discreet.core.correlated_noise.per_pair_schedule`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

Floats = NDArray[np.float64]


@inlined
def tick_rows(growth: float, pending: Floats, counted: Floats, fresh: Floats) -> None:
    """Mark the rows to measure (``fresh`` 1 or 0) by assigned users alone, and advance their clocks."""
    for c in range(pending.shape[0]):
        fresh[c] = 0.0
        if pending[c] > 0.0 and pending[c] >= growth * counted[c]:
            fresh[c] = 1.0
            counted[c] += pending[c]
            pending[c] = 0.0


@kernel
def tick(growth: float, pending: Floats, counted: Floats, fresh: Floats) -> None:
    """Call :func:`tick_rows`."""
    tick_rows(growth, pending, counted, fresh)
