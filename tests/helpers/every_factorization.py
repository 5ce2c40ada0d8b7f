"""Strategies of every kind and several sizes, and the prefix sums that they factor."""

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.prefix_variance import best_digits
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.mechanisms.linear.exact_square_root import ExactSquareRoot

Floats = NDArray[np.float64]
SIZES = [2, 3, 4, 5, 8, 9, 17, 40, 100]
DIGITS = [
    SignedDigits(n, k, levels)
    for n in SIZES
    for k, levels in ((2, 1), (2, 7), (3, 2), (3, 5), (4, 3), (5, 2), (6, 3), (7, 2), (16, 2), (50, 2))
]
WALKS: list[Walk] = [
    *(kind(n) for n in SIZES for kind in (Tree, OptimalTree, SquareRoot, ExactSquareRoot)),
    *DIGITS,
    *(best_digits(n) for n in SIZES),
]


def name(walk: Walk) -> str:
    """Return the name of a case."""
    more = f"-{walk.arity}-{walk.levels}" if isinstance(walk, SignedDigits) else ""
    return f"{type(walk).__name__}-{walk.leaves}{more}"


every_walk = pytest.mark.parametrize("walk", WALKS, ids=name)


def prefixes(walk: Walk) -> Floats:
    """Return the matrix A of prefixes 1 .. N - 1 of N - 1 leaves."""
    assert walk.leaves is not None
    return np.tril(np.ones((walk.leaves - 1, walk.leaves - 1)))
