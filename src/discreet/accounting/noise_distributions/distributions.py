"""Exact distributions of the noise in a cell of a release, and numerically exact bounds.

The noise of a released cell is the sum of ``terms`` independent centred terms with the same distribution (for
example the nodes of a tree, or the messages of local-privacy users). Let m be the largest number of terms in
this and all earlier releases. A distribution has these methods:

- ``std``: the standard deviation of the noise in one cell of this release;
- ``bound(failure)``: a number E. With probability at least 1 - failure, no absolute noise in any cell of this
  family and in any scheduled release exceeds E. E is the two-sided quantile at p = failure * share / cells.
  ``share`` is the part of the failure probability that is assigned to this release. The share is 1/releases
  if the number of releases is known, and otherwise 1/(n (n + 1)) for release n (these shares sum to 1);
- ``bound(failure, rows=True)``: the same bound for the noise in the sum of a row over its S successors. This
  bound is the quantile for S m terms. It applies to the estimated visits, N-hat = sum over s' of N3-hat.

All these values are functions of public parameters, never of data.

Laplace sums. Let y >= 0, and let Y be the sum of m independent standard Laplace variables. Then

    P(|Y| > y) = 2 sum_{j=1..m} a_j Q(j, y),

    a_j = C(2m-j-1, m-1) 2^{-(2m-j)},      Q(j, y) = P(Poisson(y) < j).

Exchanging the order of summation, with A_i = sum_{j > i} a_j, gives

    P(|Y| > y) = 2 sum_{i >= 0} Poisson(i; y) A_i                                            (1)

Here A_i does not depend on y. The sequence a_j is log-concave with ratio r_j = 2 (m-j) / (2m-1-j) and falls
like exp(-j^2/(4m)). Therefore only the first J = O(sqrt m) terms are computed. The sum of the later terms is
at most the geometric series a_J r_J / (1 - r_J), which is *added*. So the computed value of (1) is never
below the exact value. The function ln P is concave in y, because the density of a sum of log-concave
variables is log-concave. Newton's method on ln P therefore converges from the right, and the computed
quantile is never below the exact quantile. The only exception is rounding errors (relative error 1e-11;
verified to 1e-9 against mpmath). For m > 4e6 the quantile uses the first two terms of the Cornish-Fisher
expansion with cumulants 2m, 0, 12m. The two terms are sqrt(2m) (z + (z^3 - 3z)/(8m)). The error is
O(z^5/m^2), far below 1e-8 relative, and z^5/m^2 is added to the quantile. A comparison with (1) up to m = 1e9
shows no result below the exact quantile. This observation is not a proof.

Discrete Laplace sums. One term X has P(x) proportional to exp(-unit |x| / b) on the grid unit * Z. The
continuous Laplace(b) variable L has the same distribution as X + W, with W independent of X. Proof: let q =
e^{-unit/b}. The quotient of the characteristic functions of L and X is the characteristic function of the
density (e^{-|x|/b} - q^2 e^{|x|/b})/(2b(1-q)^2) on |x| <= unit. This density is not negative. The sum Z of m
independent copies of X is symmetric and unimodal on the grid, because convolutions of log-concave
distributions are log-concave. Let k be a grid point. Among all intervals of length 2k, the centred one
therefore has the largest probability: P(|Z + w| <= k) <= P(|Z| <= k) for every w. Therefore P(|Z| > k) <=
P(|Y b| > k) at every grid point k. The continuous quantile, rounded up to the grid, is therefore a valid
bound. This bound exceeds the discrete quantile by about one grid unit.

Discrete Gaussian sums. In grid units, one term has P(x) proportional to exp(-x^2/(2 s^2)) on Z with s =
sigma/unit. For the sum Z of m such terms, P(Z = k) is exp(-k^2/(2 m s^2)) times the Gaussian mass of a
shifted lattice. This mass is largest without a shift, so P(Z = k) <= P(Z = 0) exp(-k^2/(2 m s^2)). Comparing
the sum over k > K with an integral gives P(|Z| > K) <= C P(|N(0, m s^2)| > K) with C = P(Z = 0) s sqrt(2 pi
m). P(Z = 0) is the mean of phi(theta)^m over theta, where phi >= 0 is the characteristic function of one
term. The mean over n equidistant angles is the sum of P(Z = n j) over all integers j, so it is never below
P(Z = 0). With n = 12 s sqrt(m) its error is 1e-15. For s >= 1, C - 1 < 2e-4, which is negligible.

Weighted Laplace sums, sum_i w_i Y_i with |w_i| <= 1 and v = sum w_i^2. The function -ln(1 - x u^2) is convex
in x and is 0 at x = 0. The moment generating function prod_i 1/(1 - w_i^2 u^2) is therefore at most (1 -
u^2)^{-v}. So Chernoff's bound for v terms of weight 1 is valid, where v is rounded up to an integer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.short_repr import brief

Floats = NDArray[np.float64]

_LARGE = 4_000_000  # above this number of terms, an expansion gives the quantile of a Laplace sum

__all__ = [
    "GaussianSumLaw", "LaplaceSumLaw", "NoNoise", "SubGaussianSumLaw", "WeightedLaplaceLaw", "chan_bound",
    "chernoff_bound", "discrete_gaussian_bound", "discrete_gaussian_variance",
    "discrete_laplace_variance", "gaussian_quantile", "laplace_quantile", "open_share",
]  # fmt: skip


# ------------------------------------------------------------------- tails of Laplace sums


def _log_half_central(n: int) -> float:
    """Return ln(C(2n, n) / 2^{2n+1}). The result is ln a_1 of the module docstring for m = n + 1."""
    if n < 64:
        return math.log(math.comb(2 * n, n)) - (2 * n + 1) * math.log(2)
    r = 1.0 / n  # Stirling's series; the first omitted term is below 2e-3 n^-7
    return -0.5 * math.log(4 * math.pi * n) - r / 8 + r**3 / 192 - r**5 / 640


@lru_cache(maxsize=8)
def _tail_weights(m: int, cut: int) -> tuple[Floats, float]:
    """Return the parts of (1) in the module docstring that do not depend on y.

    The parts are ln A_i - ln i! for i < cut, and the logarithm of a bound on A_cut.
    """
    # imported here because SciPy is slow to import, and most runs do not need it
    from scipy.special import gammaln

    j = np.arange(1, cut, dtype=np.float64)
    log_a = np.empty(cut)  # log_a[j - 1] = ln a_j
    log_a[0] = _log_half_central(m - 1)
    np.cumsum(np.log(2 * (m - j) / (2 * m - 1 - j)), out=log_a[1:])
    log_a[1:] += log_a[0]
    rest = -math.inf
    if cut < m:
        ratio = 2 * (m - cut) / (2 * m - 1 - cut)
        rest = float(log_a[-1]) + math.log(ratio / (1 - ratio))
    log_tail = np.logaddexp.accumulate(np.append(rest, log_a[::-1]))[:0:-1]  # ln A_i, i = 0..cut-1
    log_tail -= gammaln(np.arange(1, cut + 1, dtype=np.float64))
    log_tail.flags.writeable = False
    return log_tail, rest


def _log_tail_and_slope(weights: Floats, rest: float, y: float) -> tuple[float, float]:
    """Return ln P(|Y| > y), by (1) in the module docstring, and its derivative with respect to y."""
    i = np.arange(weights.size)
    terms = weights + (i * math.log(y) - y)
    top = float(terms.max())
    terms = np.exp(terms - top)
    total = float(terms.sum())
    # d/dy Poisson(i; y) = Poisson(i; y) (i/y - 1)
    slope = float((terms * (i / y - 1.0)).sum())
    left_out = math.exp(min(rest - top, 700.0))
    return math.log(2 * (total + left_out)) + top, slope / (total + left_out)


def _cut(m: int, log_p: float) -> int:
    """Return the number of a_j that equation (1) of the module docstring needs at a tail probability p.

    The sum of the later a_j is below e^-35 p.
    """
    return min(m, 1 + math.ceil(2 * math.sqrt(m * (35.0 - log_p))))


@lru_cache(maxsize=65536)
def _laplace_quantile(m: int, p: float) -> float:
    if m > _LARGE:
        z = gaussian_quantile(p)
        return math.sqrt(2 * m) * (z + max(0.0, z * z - 3) * z / (8 * m) + z * (1 + z**4) / m / m)
    return _exact_quantile(m, p)


def _exact_quantile(m: int, p: float) -> float:
    """Return the y with P(|Y| > y) = p, by Newton's method on the logarithm of equation (1)."""
    from scipy.special import ndtri

    log_p = math.log(p)
    weights, rest = _tail_weights(m, _cut(m, log_p))
    y = max(-log_p, -math.sqrt(2 * m) * float(ndtri(0.5 * p)))
    for _ in range(60):
        log_tail, slope = _log_tail_and_slope(weights, rest, y)
        step = (log_tail - log_p) / slope
        # If y is far too large, the root of the tangent can be negative. This never happens for p < 1.
        y = max(y - step, 0.5 * y)
        if abs(step) <= 1e-13 * y:
            break
    return y


def laplace_quantile(m: int, p: float) -> float:
    """Return the y at which P(|sum of m independent standard Laplace variables| > y) = p.

    Parameters
    ----------
    m : int
        Number of variables, at least 0. For m = 0 the result is 0.
    p : float
        Tail probability in (0, 1).

    Notes
    -----
    For Laplace variables of scale b, multiply the result by b. The result is computed from (1) in the module
    docstring. The relative error is below 1e-9, and the cost is O(sqrt m) operations. Results are cached.
    """
    m = checks.integer("m", m, 0)
    p = checks.real("p", p, 0.0, 1.0, open_low=True, open_high=True)
    return 0.0 if m == 0 else _laplace_quantile(m, p)


def _log_chernoff(m: int, y: float) -> float:
    """Return ln of Chernoff's bound on P(|Y| > y) for the sum Y of m standard Laplace variables.

    The bound is 2 exp(-y u) (1 - u^2)^{-m} at the best u = (sqrt(m^2 + y^2) - m) / y.
    """
    u = y / (math.sqrt(m * m + y * y) + m)
    return math.log(2) - y * u - m * math.log1p(-u * u) if u < 1 else -math.inf


def chernoff_bound(m: int, p: float) -> float:
    """Return the y at which Chernoff's bound on P(|Y| > y) is p.

    Y is the sum of m independent standard Laplace variables.
    """
    m = checks.integer("m", m, 1)
    log_p = math.log(checks.real("p", p, 0.0, 1.0, open_low=True, open_high=True))
    low, high = 0.0, chan_bound(m, p)
    while _log_chernoff(m, high) > log_p:
        low, high = high, 2 * high
    for _ in range(200):  # the loop ends when no float is between low and high
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if _log_chernoff(m, middle) > log_p else (low, middle)
    return high


def chan_bound(m: int, p: float) -> float:
    """Return the tail bound of Chan, Shi and Song 2011, lemma 2.8, for a sum of m standard Laplace variables.

    The bound is sqrt(8 L) max(sqrt m, sqrt L) with L = ln(2/p), where p is the tail probability.
    """
    m = checks.integer("m", m, 1)
    log_term = math.log(2 / checks.real("p", p, 0.0, 1.0, open_low=True, open_high=True))
    return math.sqrt(8 * log_term) * math.sqrt(max(m, log_term))


def discrete_laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise on the integers.

    The noise has P(x) proportional to exp(-|x|/scale). The variance is 1 / (2 sinh^2(1/(2 scale))).
    """
    half = 0.5 / checks.positive("scale", scale)
    if half > 300.0:
        return 0.0
    return 0.5 / math.sinh(half) ** 2


# ------------------------------------------------------------------- tails of Gaussian sums


def gaussian_quantile(p: float) -> float:
    """Return the z with P(|N(0, 1)| > z) = p, for p in (0, 1)."""
    from scipy.special import ndtri

    return -float(ndtri(0.5 * checks.real("p", p, 0.0, 1.0, open_low=True, open_high=True)))


@lru_cache(maxsize=1024)
def discrete_gaussian_variance(sigma: float) -> float:
    """Return the variance of discrete Gaussian noise, which is at most sigma^2.

    The noise has P(x) proportional to exp(-x^2/(2 sigma^2)) on the integers.
    """
    sigma = checks.positive("sigma", sigma)
    # the variance differs from sigma^2 by less than 4 pi^2 sigma^4 e^{-2 pi^2 sigma^2} < 1e-130
    if sigma > 4.0:
        return sigma * sigma
    x = np.arange(1, 60, dtype=np.float64)
    mass = np.exp(-0.5 * (x / sigma) ** 2)
    return float(2 * (x * x * mass).sum() / (1 + 2 * mass.sum()))


def _log_characteristic(theta: Floats, sigma: float) -> Floats:
    """Return ln E cos(theta X) of a discrete Gaussian X for 0 <= theta <= pi, by Poisson summation."""
    j = np.arange(-40, 41, dtype=np.float64)
    shifted = -0.5 * (sigma * (theta[:, None] + 2 * np.pi * j)) ** 2
    top = shifted.max(axis=1)
    centre = np.exp(-0.5 * (2 * np.pi * sigma * j) ** 2).sum()
    return np.asarray(top + np.log(np.exp(shifted - top[:, None]).sum(axis=1)) - np.log(centre))


@lru_cache(maxsize=4096)
def _centre_factor(m: int, sigma: float) -> float:
    """Return C = P(Z = 0) sigma sqrt(2 pi m) of the module docstring. The result is never below the exact
    value.
    """
    if sigma < 0.05:  # use P(Z = 0) <= 1; each term is 0 except with probability e^{-1/(2 sigma^2)} < 1e-86
        return sigma * math.sqrt(2 * math.pi * m)
    spread = sigma * math.sqrt(m)
    nodes = 2 * (math.ceil(6 * spread) + 20)  # even number of angles 2 pi j / nodes
    used = min(nodes // 2, 200)
    values = np.exp(m * _log_characteristic(2 * np.pi * np.arange(used + 1) / nodes, sigma))
    # Every angle except 0 and pi counts twice. phi falls on [0, pi], so its value at the last evaluated angle
    # is an upper bound at all larger angles.
    total = values[0] + 2 * values[1:].sum() + (nodes - 2 * used - 1) * values[-1]
    return float(total / nodes * sigma * math.sqrt(2 * math.pi * m) * (1 + 1e-12))


@lru_cache(maxsize=65536)
def _discrete_gaussian_bound(m: int, sigma: float, p: float) -> int:
    factor = max(_centre_factor(m, sigma), 1e-300)
    ratio = p / factor
    if ratio >= 1.0:
        return 0
    return math.ceil(sigma * math.sqrt(m) * gaussian_quantile(ratio))


def discrete_gaussian_bound(m: int, sigma: float, p: float) -> int:
    """Return an integer K with P(|sum of m discrete Gaussians on the integers| > K) <= p.

    The module docstring proves the bound. For sigma >= 1 the result exceeds the smallest such K by at most 1.
    For sigma < 1 the bound uses sigma^2, although the variance is smaller. At sigma = 0.4, K is therefore 1.4
    times too large.
    """
    m = checks.integer("m", m, 0)
    sigma = checks.positive("sigma", sigma)
    p = checks.real("p", p, 0.0, 1.0, open_low=True, open_high=True)
    return 0 if m == 0 else _discrete_gaussian_bound(m, sigma, p)


# ------------------------------------------------------------------------------ the laws


def open_share(number: int) -> float:
    """Return the share of the failure probability for release n >= 1 if the number of releases is unknown.

    The share is 1 / (n (n + 1)).
    """
    number = checks.integer("number", number, 1)
    return 1.0 / (number * (number + 1.0))


@dataclass(frozen=True)
class NoNoise:
    """Noise distribution of exact sums, which contain no noise."""

    __repr__ = brief

    family: str = "none"
    exact: bool = True

    def std(self) -> float:
        """Return 0."""
        return 0.0

    def std_bound(self) -> float:
        """Return 0."""
        return 0.0

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return 0."""
        checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        return 0.0


@dataclass(frozen=True)
class _SumLaw(ABC):
    """Sum of ``terms`` independent noise terms in each cell.

    The parameters are described in :class:`LaplaceSumLaw`.
    """

    scale: float
    terms: float
    terms_bound: int
    cells: int
    rows: int
    row_size: int = 1
    share: float = 1.0
    unit: float | None = None

    def __post_init__(self) -> None:
        checks.positive("scale", self.scale)
        checks.real("terms", self.terms, 0.0)
        checks.integer("terms_bound", self.terms_bound, math.ceil(self.terms - 1e-6))
        checks.integer("cells", self.cells, 1)
        checks.integer("rows", self.rows, 1, self.cells)
        checks.integer("row_size", self.row_size, 1)
        checks.real("share", self.share, 0.0, 1.0, open_low=True)
        if self.unit is not None:
            checks.positive("unit", self.unit)

    @property
    def exact(self) -> bool:
        """True, because the distribution does not depend on data."""
        return True

    @abstractmethod
    def _variance(self) -> float:
        """Return the variance of one term."""

    @abstractmethod
    def _quantile(self, terms: int, p: float) -> float:
        """Return a value that |sum of ``terms`` noise terms| exceeds with probability at most p."""

    def std(self) -> float:
        """Return the standard deviation of the noise in one cell of this release, in units of the values."""
        return math.sqrt(self.terms * self._variance())

    def std_bound(self) -> float:
        """Return a bound on the standard deviation of one cell in this and every earlier release."""
        return math.sqrt(self.terms_bound * self._variance())

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E such that, with probability at least 1 - failure, no |noise| exceeds E.

        The bound holds for all cells of all releases at the same time. If ``rows`` is True, it holds for the
        noise in the sums of all rows instead. ``failure`` is in (0, 1).
        """
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        if self.terms_bound == 0:
            return 0.0
        if rows:
            return self._quantile(self.row_size * self.terms_bound, failure * self.share / self.rows)
        return self._quantile(self.terms_bound, failure * self.share / self.cells)


@dataclass(frozen=True)
class LaplaceSumLaw(_SumLaw):
    """Sum of independent (discrete) Laplace variables in every cell.

    Parameters
    ----------
    scale : float
        b > 0, in the units of the released values: density proportional to exp(-|x| / b).
    terms : float
        Number of noise terms in each cell of this release. It is 0 before the first user, when cells are
        exactly 0. A noise term of smaller scale c < b counts as (c/b)^2 terms here and as one term in
        ``terms_bound``. This is valid because shrinking a symmetric unimodal summand never makes the tail of
        the sum heavier.
    terms_bound : int
        Upper bound on the number of terms in this and any earlier release.
    cells, rows, row_size : int
        Number of cells of the family that contain noise, number of rows among these cells, and number S of
        successors in a row. For a family without successors, ``rows = cells`` and ``row_size = 1``.
    share : float
        Share in (0, 1] of the failure probability that is assigned to this release. It is 1/releases if the
        number of releases is known, and otherwise :func:`open_share`.
    unit : float, optional
        None for continuous noise. Otherwise the noise and the values are multiples of ``unit``, and each
        noise term is ``unit`` times a discrete Laplace variable of scale b/unit.
    """

    __repr__ = brief

    @property
    def family(self) -> str:
        """``laplace`` or ``discrete_laplace``."""
        return "laplace" if self.unit is None else "discrete_laplace"

    def _variance(self) -> float:
        if self.unit is None:
            return 2 * self.scale * self.scale
        return self.unit**2 * discrete_laplace_variance(self.scale / self.unit)

    def _quantile(self, terms: int, p: float) -> float:
        return _on_grid(self.scale * laplace_quantile(terms, p), self.unit)


@dataclass(frozen=True)
class WeightedLaplaceLaw(LaplaceSumLaw):
    """Weighted sum of independent Laplace variables in every cell, with weights of absolute value at most 1.

    ``terms`` is the sum of the squared weights in this release. ``terms_bound`` is an upper bound on this sum
    in this and any earlier release. The other parameters are those of :class:`LaplaceSumLaw`, and ``unit``
    must be None. ``bound`` uses Chernoff's bound.
    """

    __repr__ = brief

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit is not None:
            raise ValueError(f"unit = {self.unit!r}: must be None, weighted noise lies on no grid")

    def _quantile(self, terms: int, p: float) -> float:
        return self.scale * chernoff_bound(terms, p)


@dataclass(frozen=True)
class GaussianSumLaw(_SumLaw):
    """Sum of independent Gaussian or discrete Gaussian variables in every cell.

    ``scale`` is the sigma of one variable. The other parameters are those of :class:`LaplaceSumLaw`.
    """

    __repr__ = brief

    @property
    def family(self) -> str:
        """``gaussian`` or ``discrete_gaussian``."""
        return "gaussian" if self.unit is None else "discrete_gaussian"

    def _variance(self) -> float:
        if self.unit is None:
            return self.scale * self.scale
        return self.unit**2 * discrete_gaussian_variance(self.scale / self.unit)

    def _quantile(self, terms: int, p: float) -> float:
        if self.unit is None:
            return self.scale * math.sqrt(terms) * gaussian_quantile(p)
        return self.unit * discrete_gaussian_bound(terms, self.scale / self.unit, p)


@dataclass(frozen=True)
class SubGaussianSumLaw(_SumLaw):
    """Weighted sum of independent discrete Gaussian variables on a fine grid.

    ``scale`` is the sigma of one variable, and ``terms`` is the sum of the squared weights. A discrete
    Gaussian X with parameter sigma has variance at most sigma^2 and E exp(t X) <= exp(t^2 sigma^2 / 2)
    (Canonne, Kamath and Steinke 2020, corollary 17). The probability that the sum exceeds x in absolute value
    is therefore at most 2 exp(-x^2 / (2 terms sigma^2)). At p <= 1e-6 this bound is at most 1.1 times as wide
    as the normal quantile. The standard deviation is sigma sqrt(terms), accurate to 1e-100 if the grid is 100
    times finer than sigma.
    """

    __repr__ = brief

    @property
    def family(self) -> str:
        """``discrete_gaussian``."""
        return "discrete_gaussian"

    def _variance(self) -> float:
        return self.scale * self.scale

    def _quantile(self, terms: int, p: float) -> float:
        return self.scale * math.sqrt(2 * terms * math.log(2 / p))


def _on_grid(value: float, unit: float | None) -> float:
    """Return the smallest multiple of ``unit`` that is at least ``value``.

    If ``unit`` is None, the result is ``value``.
    """
    return value if unit is None else unit * math.ceil(value / unit)
