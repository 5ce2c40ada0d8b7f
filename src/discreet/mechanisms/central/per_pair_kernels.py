"""When rows are measured by clocks of their own: :mod:`discreet.core.correlated_noise.per_pair_schedule`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

Floats = NDArray[np.float64]


@inlined
def tick_rows(growth: float, pending: Floats, counted: Floats, fresh: Floats) -> None:
    """Which rows are measured now (``fresh`` 1 or 0), by assigned users alone; their clocks move on."""
    for c in range(pending.shape[0]):
        fresh[c] = 0.0
        if pending[c] > 0.0 and pending[c] >= growth * counted[c]:
            fresh[c] = 1.0
            counted[c] += pending[c]
            pending[c] = 0.0


@kernel
def tick(growth: float, pending: Floats, counted: Floats, fresh: Floats) -> None:
    """Door to :func:`tick_rows`."""
    tick_rows(growth, pending, counted, fresh)
