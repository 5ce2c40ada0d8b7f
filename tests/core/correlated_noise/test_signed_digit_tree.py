"""Signed digit trees against brute-force matrices."""

import numpy as np
import pytest
from every_factorization import DIGITS, WALKS, Floats, name, prefixes

from discreet.accounting.noise_distributions.prefix_variance import digits as digits_of
from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot


def incidence(addresses: list[tuple[int, int]], arity: int, leaves: int) -> Floats:
    """C of blocks (end, level): block of arity^level leaves that ends at end blocks; its leaves below N."""
    out = np.zeros((len(addresses), leaves))
    for row, (end, level) in enumerate(addresses):
        out[row, (end - 1) * arity**level : end * arity**level] = 1.0
    return out


@pytest.mark.parametrize("walk", [w for w in WALKS if isinstance(w, SignedDigits)], ids=name)
def test_signed_digits_factor_the_prefixes(walk: SignedDigits) -> None:
    """B C = A with 0/1 blocks, a leaf in at most L of them: what the pure guarantee needs, and no more."""
    matrix, addresses = noise_matrix(walk)
    strategy = incidence(addresses, walk.arity, walk.leaves - 1)
    np.testing.assert_array_equal(matrix @ strategy, prefixes(walk))
    assert set(np.unique(matrix)) <= {-1.0, 0.0, 1.0}
    columns = strategy.sum(axis=0)
    assert columns.max() <= walk.levels
    if walk.arity ** (walk.levels - 1) < walk.leaves:  # every level is in use
        assert columns[0] == walk.levels


@pytest.mark.parametrize("walk", DIGITS[-10:], ids=name)
def test_signed_digits_are_balanced(walk: SignedDigits) -> None:
    for n in range(walk.leaves):
        digits = digits_of(walk, n)
        assert sum(d * walk.arity**level for level, d in enumerate(digits)) == n
        assert digits[-1] >= 0
        assert all(-walk.arity / 2 < d <= walk.arity / 2 for d in digits[:-1])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SignedDigits(10, 1), "arity = 1"),
        (lambda: SignedDigits(10, 2000), "arity = 2000"),
        (lambda: SignedDigits(10, 3, 0), "levels = 0"),
        (lambda: SquareRoot(10**7 + 1), "leaves = 10000001"),
        (lambda: OptimalTree(0), "leaves = 0"),
    ],
)
def test_bad_parameters(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]
