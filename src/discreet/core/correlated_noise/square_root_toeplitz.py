r"""Square-root Toeplitz: correlated Gaussian noise with std about sqrt(1.07 + ln(n)/pi) at release n.

The matrix of prefix sums has the symbol 1/(1-x). The best factorization (up to lower order terms) has two
equal factors with the symbol (1-x)^{-1/2} = sum_j binom(2j, j) 4^{-j} x^j (Fichtenberger, Henzinger and
Upadhyay 2022; Henzinger, Upadhyay and Upadhyay 2023). In a stream, the noise of this factorization needs all
earlier draws. Here B is a buffered linear Toeplitz matrix (McMahan, Krichene et al. 2024) that approximates
the factor:

    b_0 = 1,   b_j = sum_k w_k lambda_k^j  (j >= 1),    S_k <- lambda_k (S_k + z_{n-1}),
    noise(n) = b_0 z_n + sum_k w_k S_k.

Weights and nodes. binom(2j, j) 4^{-j} is the j-th moment of the arcsine distribution on (0, 1). With lambda =
1/(1 + e^{-u}) it is (1/pi) int lambda^{j+1/2} (1 - lambda)^{1/2} du. The integrand is analytic, so the
trapezoidal rule with step h = 3/2 has a relative error of about 2 exp(-pi^2/h) < 1 %. The weight of the last
node includes the remaining mass of the distribution up to 1.

Privacy does not depend on the quality of this approximation. The strategy is C = B^{-1} A, Toeplitz with the
column c(x) = 1 / ((1-x) b(x)), computed up to the number M of releases. Then b is multiplied by the l2 norm
of (c_0, .., c_{M-1}), so every column of the strategy has l2 norm at most 1. The release is B (C x + z). C is
lower triangular and z_n is fresh at release n, so the sequence C x + z is (Delta_2/sigma)-GDP for any data of
later users (:mod:`discreet.core.correlated_noise`, b). Multiplying by the known B is post-processing. Effect
of rounding: the computed c solves B c = 1 up to residuals of about 1e-15 each, and B^{-1} has l1 norm at most
2 c_0 (c decreases). These errors change the norm by less than 1e-14 sqrt(M). The computed norm is therefore
increased by a factor of 1 + 1e-9.

Use the factorization only with Gaussian noise, because its columns have a large l1 norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from discreet.core import checks
from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.factorization import Floats, Form, Norm, Walk
from discreet.core.short_repr import brief

MOST_LEAVES = 10**7  # largest N, because the column and the variances are stored as arrays

_STEP, _FIRST, _BEYOND = 1.5, -2.0, 3.0  # values of u: step, first node, distance of the last node above ln M


def quadrature(releases: int) -> tuple[Floats, Floats]:
    """Return nodes lambda_k and weights w_k of the quadrature.

    sum_k w_k lambda_k^j is within 1 % of binom(2j, j) / 4^j for 1 <= j < releases.
    """
    nodes = 1 + max(1, math.ceil((math.log(releases) + _BEYOND - _FIRST) / _STEP))
    u = _FIRST + _STEP * np.arange(nodes)
    rates = 1 / (1 + np.exp(-u))
    weights = _STEP / math.pi * np.sqrt(rates * (1 - rates))
    weights[-1] = 2 / math.pi * math.asin(1 / math.sqrt(1 + math.exp(u[-1] - _STEP / 2)))
    return rates, weights


@lru_cache(maxsize=16)
def _program(releases: int) -> Floats:
    """Return the coefficients of the recurrence that computes the noise.

    The coefficients are scaled so that every column of the strategy has l2 norm at most 1.
    """
    rates, weights = quadrature(releases)
    plain = np.concatenate([[1.0], rates, weights])
    column = walks.inverse_column(plain, rates.size, releases)
    norm = float(np.sqrt(np.sum(column**2))) * (1 + 1e-9)
    floats = np.concatenate([[norm], rates, norm * weights])
    floats.flags.writeable = False
    return floats


@dataclass(frozen=True)
class Toeplitz(Walk):
    """Toeplitz factorization over N time steps. The columns of its strategy have l2 norm at most 1.

    The last time step is never released.
    """

    __repr__ = brief

    leaves: int

    weighted: ClassVar[bool] = True
    most_leaves: ClassVar[int]

    def __post_init__(self) -> None:
        checks.integer("leaves", self.leaves, 1, self.most_leaves)

    @property
    def releases(self) -> int:
        """Number of releases M = N - 1, but at least 1."""
        return max(1, self.leaves - 1)

    @property
    def levels(self) -> int:
        """Bound on the l2 norm of a column, which is 1."""
        return 1

    def column_norm(self, norm: Norm) -> float:
        """Return 1 for the l2 norm.

        For the l1 norm the result is infinity, because that norm grows with the number of releases.
        """
        return 1.0 if norm == "l2" else math.inf

    def text(self, leaf: str) -> str:
        return (
            f"noise correlated by a Toeplitz matrix near the square root of summation, a leaf is a {leaf} (a "
            "user's column of the strategy has l2 norm at most 1, so it costs no more than one sum)"
        )


@dataclass(frozen=True)
class SquareRoot(Toeplitz):
    """Buffered square-root Toeplitz noise (Fichtenberger, Henzinger and Upadhyay 2022). Gaussian only.

    The standard deviation of the noise in the prefix sum at release n is about sqrt(1.07 + ln(n) / pi) times
    that of one draw.

    ``leaves`` is the number N of batches of users, from 1 to 10^7. The last batch is never released. Raises
    ``ValueError`` outside this range.
    """

    code: ClassVar[int] = walks.TOEPLITZ
    most_leaves: ClassVar[int] = MOST_LEAVES

    @property
    def form(self) -> Form:
        """Program of the noise. Registers: the buffers, the newest draw and the noise.

        Operations: one for the draw, one for the noise, and two for each buffer (its update and its part of
        the noise). Parameters: (buffers,), (b_0, the lambdas, the weights).
        """
        floats = _program(self.releases)
        buffers = (floats.size - 1) // 2
        return Form(buffers + 2, 2 * buffers + 2, (buffers,), floats)
