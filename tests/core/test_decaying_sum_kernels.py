"""Compiled decaying sums."""

import numpy as np
import pytest

from discreet.core import decaying_sum_kernels as decaying_kernels


@pytest.mark.parametrize("released", [True, False])
def test_a_cell_without_noise_of_its_own_says_nothing(released):
    """Whatever was in it: what is released of it is 0, and its sum goes on inside."""
    arrays = [np.array([x]) for x in (5.0, 3.0, 2.0, 0.25)]
    for fine in (0.0, 1024.0):
        held, fresh, sums = (np.full(1, np.nan) for _ in range(3))
        decaying_kernels.decay_cells(*arrays, np.array([released]), 0.5, 0.8, fine, held, fresh, sums)
        assert held[0] == 6.5
        expected = (0.8 * (6.5 + 0.25) if fine else 0.8 * 6.5 + 0.25) if released else 0.0
        assert fresh[0] == pytest.approx(expected, rel=1e-12)
        assert sums[0] == pytest.approx((expected + 0.5 * 2.0) / 0.8, rel=1e-12)
