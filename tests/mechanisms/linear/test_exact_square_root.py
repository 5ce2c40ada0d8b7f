"""The exact square root measures integers and has the error of floating point."""

import numpy as np
import pytest

from discreet.accounting.noise_distributions.prefix_variance import noise_of
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.mechanisms.linear.exact_square_root import BITS, ExactSquareRoot


@pytest.mark.parametrize("leaves", [2, 3, 9, 40, 500])
def test_the_exact_square_root_measures_integers_and_estimates_prefix_sums(leaves: int) -> None:
    """A unit change in any leaf moves all measurements by at most the norm; without noise sums are exact."""
    walk, m = ExactSquareRoot(leaves), leaves - 1
    assert walk.column.dtype == np.int64
    assert walk.column[0] == 2**BITS
    strategy = np.array([[walk.column[n - i] if n >= i else 0 for i in range(m)] for n in range(m)])
    squares = (strategy.astype(object) ** 2).sum(axis=0)
    assert max(squares) * (1 + 1e-13) <= walk.norm**2
    assert walk.norm <= max(squares) ** 0.5 * (1 + 1e-11)
    values = np.random.default_rng(leaves).integers(-(2**35), 2**35, (m, 3))
    readings = np.array([walk.measured(values[: n + 1]) for n in range(m)])
    assert np.array_equal(readings, strategy @ values)
    for n in range(1, leaves):
        found = walk.prefix(readings[:n].astype(float))
        np.testing.assert_allclose(found, values[:n].sum(axis=0), rtol=0, atol=2.0**35 * 1e-9)


def test_exact_noise_has_the_error_of_the_walk_in_floating_point() -> None:
    for leaves in (6, 21, 201, 4001):
        exact, real = noise_of(ExactSquareRoot(leaves)), noise_of(SquareRoot(leaves))
        assert exact.rms() == pytest.approx(real.rms(), rel=0.04)
    with pytest.raises(ValueError, match="leaves"):
        ExactSquareRoot(5000)
