"""Sums by pair over stored records of one step, against NumPy's unbuffered additions."""

import numpy as np
import pytest

from discreet.mechanisms.linear import dataset_sums_kernels as kernels


@pytest.mark.parametrize("wanted", [-1, 0, 1])
def test_sums_of_a_half_are_those_of_its_records(wanted: int) -> None:
    rng, pairs, states = np.random.default_rng(8), 6, 4
    pair, to, half = (
        rng.integers(n, size=50).astype(kind)
        for n, kind in ((pairs, np.int32), (states, np.int32), (2, np.int8))
    )
    of = slice(None) if wanted < 0 else half == wanted
    visits = np.zeros(pairs, np.int64)
    kernels.add_visits(pair, half, wanted, visits)
    np.testing.assert_array_equal(visits, np.bincount(pair[of], minlength=pairs))

    numbers, values, x = rng.integers(9, size=50) / 8, rng.random(states), rng.random((pairs, 3))
    found, expected = np.zeros(pairs), np.zeros(pairs)
    kernels.add_numbers(pair, numbers, half, wanted, found)
    np.add.at(expected, pair[of], numbers[of])
    np.testing.assert_array_equal(found, expected)

    found[:], expected[:] = 0.0, 0.0
    kernels.add_values(pair, to, half, wanted, values, found)
    np.add.at(expected, pair[of], values[to[of]])
    np.testing.assert_allclose(found, expected, rtol=1e-14)

    moves, wide = np.zeros((states, 3)), np.zeros((states, 3))
    kernels.add_moves(pair, to, half, wanted, x, moves)
    np.add.at(wide, to[of], x[pair[of]])
    np.testing.assert_allclose(moves, wide, rtol=1e-14)
