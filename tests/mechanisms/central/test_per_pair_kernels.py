"""Clocks of rows: due are those whose assigned users grew enough, and only their clocks advance."""

import numpy as np

from discreet.mechanisms.central.per_pair_kernels import tick


def test_only_rows_that_grew_enough_are_due() -> None:
    pending, counted = np.array([0.0, 3.0, 5.0, 2.0]), np.array([0.0, 10.0, 10.0, 0.0])
    fresh = np.full(4, 9.0)
    tick(0.5, pending, counted, fresh)
    assert fresh.tolist() == [0.0, 0.0, 1.0, 1.0]
    assert pending.tolist() == [0.0, 3.0, 0.0, 0.0]
    assert counted.tolist() == [0.0, 10.0, 15.0, 2.0]
    tick(0.0, pending, counted, fresh)  # no growth is asked for, but somebody must have come
    assert fresh.tolist() == [0.0, 1.0, 0.0, 0.0]
