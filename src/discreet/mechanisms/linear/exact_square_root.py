r"""Square-root factorization mechanism with exact noise: prefix sums are estimated from noisy integers.

:mod:`discreet.core.correlated_noise.square_root_toeplitz` adds correlated noise to prefix sums. The weights
of that noise are real numbers, so that noise is not on a grid and cannot be exact. This module adds noise to
integer combinations of the sums:

    y_n = sum_{j < n} k_j x_{n - j} + z_n,      k_j = round(2^m c_j),  c_j = binom(2j, j) 4^{-j},  m = 6.

x_i are the integer sums of the time steps (batches of users). z_n is fresh discrete Gaussian noise of
parameter 2^m nu s, with nu = ||k||_2 / 2^m over the M releases, rounded up. Replacing a user changes x_i of
one time step i by an integer vector v. The combination y_n then changes by the integer vector k_{n - i} v.
Since these changes are integers (Canonne, Kamath and Steinke 2020), all releases together satisfy
zero-concentrated DP with

    rho = sum_n sum_cells (k_{n-i} v)^2 / (2 (2^m nu s)^2) <= sum_cells v^2 / (2 s^2),

This is the loss of one sum with noise of scale s. ``levels`` is therefore 1. The noise z_n is fresh at
release n. The data of a time step are first used in the release after this time step. Therefore the data of
later users may depend on earlier releases. All computation with y is post-processing, including
floating-point arithmetic. Let b(x) = 1 / ((1 - x) c(x)) for the rounded c. Then sum_j b_j y_{n - j} / 2^m is
the prefix sum plus noise of variance (nu s)^2 sum_{j < n} b_j^2.

Rounding c increases the noise only slightly. At M = 4000, the root mean square of the noise std over the
releases is 3.674 s with rounded c, 3.544 s with exact c and 8.44 s for the binary tree.

The sums of all time steps are stored in the trusted core: M vectors of cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from discreet.core.correlated_noise.factorization import Floats, Form, Ints
from discreet.core.correlated_noise.square_root_toeplitz import Toeplitz

BITS = 6  # m; more bits need integer noise of a larger scale, and fewer bits give a worse approximation of c
MOST_LEAVES = 4097


@lru_cache(maxsize=16)
def _tables(releases: int) -> tuple[Ints, Floats]:
    """Return two arrays for M = ``releases``: k_0 .. k_{M-1}, and nu b_0 .. nu b_{M-1}."""
    steps = np.arange(1, releases)
    column = np.concatenate([[1.0], np.cumprod((2 * steps - 1) / (2 * steps))])
    integers = np.rint(2.0**BITS * column).astype(np.int64)
    column, row = integers / 2.0**BITS, np.ones(releases)
    for n in range(1, releases):
        row[n] = 1.0 - column[1 : n + 1] @ row[n - 1 :: -1]
    squares = sum(k * k for k in integers.tolist())
    nu = math.sqrt(squares) * (1 + 1e-12) / 2.0**BITS
    noise = nu * row
    tables = integers, noise
    for table in tables:
        table.flags.writeable = False
    return tables


@dataclass(frozen=True)
class ExactSquareRoot(Toeplitz):
    """Toeplitz factorization with integer coefficients, for at most 4097 time steps.

    ``form`` is empty, because this factorization has no compiled program.
    """

    most_leaves = MOST_LEAVES
    form = Form(0, 0)

    @property
    def column(self) -> Ints:
        """(M,) integer coefficients k_j."""
        return _tables(self.releases)[0]

    @property
    def row(self) -> Floats:
        """(M,) weights nu b_j of the draws in the noise of a prefix sum, starting with the newest draw."""
        return _tables(self.releases)[1]

    @property
    def norm(self) -> float:
        """Factor nu 2^m between the scale s and the scale of an integer draw."""
        return float(self.row[0]) * 2.0**BITS

    def measured(self, leaves: Ints) -> Ints:
        """Return the (cells,) combination sum_j k_j x_{n - j} of the sums x_1 .. x_n of n time steps.

        ``leaves`` : (n, cells) sums of the time steps. The result is exact if it is below 2^63.
        """
        return np.asarray(self.column[: len(leaves)][::-1] @ leaves)

    def prefix(self, measurements: Floats) -> Floats:
        """Return the (cells,) estimate of the prefix sum x_1 + .. + x_n.

        measurements : (n, cells) the noisy combinations y_1 .. y_n.
        """
        weights = self.row[: len(measurements)][::-1] / self.norm
        return np.asarray(weights @ measurements)
