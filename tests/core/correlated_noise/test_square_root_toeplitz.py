"""The square-root strategy: columns of norm one, and its quadrature."""

import numpy as np
import pytest
from every_factorization import SIZES, prefixes
from scipy import stats
from scipy.special import gammaln

from discreet.accounting.noise_distributions.prefix_variance import noise_of
from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot, quadrature


@pytest.mark.parametrize("leaves", [*SIZES, 700])
def test_columns_of_the_square_root_strategy_have_norm_one(leaves: int) -> None:
    """C = B^{-1} A by dense algebra, B from its generating coefficients: whatever the fit is like."""
    walk = SquareRoot(leaves)
    (buffers,), floats = walk.form.ints, np.asarray(walk.form.floats)
    rates, weights = floats[1 : 1 + buffers], floats[1 + buffers :]
    row = (weights * rates ** np.arange(leaves - 1)[:, None]).sum(axis=1)
    row[0] = floats[0]
    at = np.subtract.outer(np.arange(leaves - 1), np.arange(leaves - 1))
    toeplitz = np.where(at >= 0, row[at], 0.0)
    matrix, addresses = noise_matrix(walk)
    assert addresses == [(n, 0) for n in range(1, leaves)]
    np.testing.assert_allclose(matrix, toeplitz, rtol=1e-12)
    strategy = np.linalg.solve(matrix, prefixes(walk))
    assert not np.triu(np.abs(strategy) > 1e-12, 1).any()  # no row looks ahead
    norms = np.linalg.norm(strategy, axis=0)
    assert 1 - 1e-8 < norms.max() <= 1.0
    assert norms.argmax() == 0


@pytest.mark.parametrize("releases", [2, 3, 10, 100, 20_000, 10**6])
def test_the_quadrature_is_within_one_percent(releases: int) -> None:
    rates, weights = quadrature(releases)
    j = np.unique(np.geomspace(1, releases - 1, 300).astype(int))
    moments = np.exp(gammaln(2 * j + 1) - 2 * gammaln(j + 1) - j * np.log(4))
    fitted = (weights * rates ** j[:, None]).sum(axis=1)
    assert np.abs(fitted / moments - 1).max() < 0.01
    assert rates.size < 15
    assert ((rates > 0) & (rates < 1)).all()


@pytest.mark.parametrize("releases", [1, 2, 10, 20_000])
def test_the_quadrature_is_the_trapezoidal_rule_of_the_arcsine_law(releases: int) -> None:
    """lambda = 1 / (1 + e^-u) at u = -2, -1/2, ... past ln M + 3; the last node has the mass that is left."""
    rates, weights = quadrature(releases)
    u = np.log(rates / (1 - rates))
    assert u == pytest.approx(-2 + 1.5 * np.arange(rates.size), abs=1e-9)
    assert u[-2] < np.log(releases) + 3 <= u[-1] + 1e-9
    density = np.sqrt(rates * (1 - rates)) / np.pi  # of the arcsine law in u
    assert weights[:-1] == pytest.approx(1.5 * density[:-1], rel=1e-12)
    assert weights[-1] == pytest.approx(stats.arcsine.sf(1 / (1 + np.exp(0.75 - u[-1]))), rel=1e-9)


@pytest.mark.parametrize(("batches", "factor"), [(12, 1.85), (20, 2.02), (36, 2.20), (81, 2.46)])
def test_the_square_root_on_batches(batches: int, factor: float) -> None:
    """Section 2.1, third row; the exact square root has sum_{j<B} c_j^2, and nothing is far below it."""
    exact = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1.0, batches)))])
    found = noise_of(SquareRoot(batches + 1)).terms(batches) ** 0.5
    assert found == pytest.approx(factor, abs=0.006)
    assert found == pytest.approx((exact**2).sum(), rel=3e-3)
