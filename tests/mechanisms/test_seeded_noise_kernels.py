"""Seeded noise of families: addressed, in proportion to its scales, and sums as of one user."""

import math

import numpy as np
import pytest

from discreet.core.count_kernels import GAUSSIAN, LAPLACE
from discreet.mechanisms.seeded_noise_kernels import fill_noise, fill_noise_sum

KEY, OFFSETS, SCALES = np.array([1, 2], np.uint64), np.array([0, 4, 10]), np.array([1.0, 3.0])


def noise(family: int, i: int, j: int, factor: float = 1.0, key: np.ndarray = KEY) -> np.ndarray:
    out = np.full(10, np.nan)
    fill_noise(family, key, i, j, factor, OFFSETS, SCALES, out)
    return out


@pytest.mark.parametrize("family", [LAPLACE, GAUSSIAN])
def test_noise_is_that_of_its_address_and_scales(family: int) -> None:
    first = noise(family, 5, 2)
    np.testing.assert_array_equal(first, noise(family, 5, 2))
    np.testing.assert_allclose(noise(family, 5, 2, 4.0), 4.0 * first, rtol=1e-14)
    others = [noise(family, 6, 2), noise(family, 5, 3), noise(family, 5, 2, key=KEY + np.uint64(1))]
    assert all((first != other).all() for other in others)
    assert len(np.unique(first)) == 10


def test_the_noise_of_many_users_has_the_spread_of_their_number() -> None:
    one, many = np.empty(10), np.empty(10)
    fill_noise_sum(GAUSSIAN, KEY, 7, 1, OFFSETS, SCALES, one)
    fill_noise_sum(GAUSSIAN, KEY, 7, 400, OFFSETS, SCALES, many)
    np.testing.assert_allclose(many, 20.0 * one, rtol=1e-14)
    offsets, scales, out = np.array([0, 4000]), np.array([2.0]), np.empty(4000)
    fill_noise_sum(LAPLACE, KEY, 7, 50, offsets, scales, out)
    assert out.std() == pytest.approx(2.0 * math.sqrt(2 * 50), rel=0.05)
