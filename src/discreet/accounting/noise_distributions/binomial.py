r"""Noise distribution of sums of random bits: exact tails of independent binomial variables.

A released cell contains the noise unit (X - E X). X is the sum of independent Bin(N_j, p_j): the flips of all
batches so far. P(|X - E X| > t) is computed from the probabilities of X, which are the inverse Fourier
transform of the characteristic function

    prod_j (1 + p_j (e^{i theta} - 1))^{N_j},

The means are removed from the phases, so that the phases stay small. The transform is exact on a window,
except for rounding and for the probability that X is outside, which is below 1e-18 by Chernoff's bound.
Because of these two errors, 1e-12 is added to the tail. For p below 1e-9 the quantile is Chernoff's bound
(1.07 times the exact quantile).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import fft

from discreet.core import checks
from discreet.core.short_repr import brief

Components = tuple[tuple[int, float], ...]
"""(flips, probability of a one) of each batch."""

_ROUNDING = 1e-12
_LEAST = 1e-9  # a smaller tail is hidden by rounding

__all__ = ["BinomialLaw", "Components", "binomial_quantile", "merged"]


def merged(components: Components) -> Components:
    """Merge flips of equal probability; the distribution is unchanged."""
    totals: dict[float, int] = {}
    for number, p in components:
        totals[p] = totals.get(p, 0) + number
    return tuple((number, p) for p, number in totals.items())


def _log_moment(components: Components, t: float) -> float:
    """Return ln E exp(t (X - E X))."""
    if t <= 0:
        return sum(n * (math.log1p(p * math.expm1(t)) - p * t) for n, p in components)
    # e^t may overflow: factor it out of the logarithm
    return sum(n * (t + math.log(p + (1 - p) * math.exp(-t)) - p * t) for n, p in components)


def _chernoff(components: Components, p: float) -> float:
    """Return the least x at which Chernoff's bound on each of the two tails of X - E X is at most p / 2."""
    variance = sum(n * q * (1 - q) for n, q in components)
    wanted = -math.log(0.5 * p)
    worst = 0.0
    for sign in (-1.0, 1.0):
        best = math.inf
        t = 0.25 * math.sqrt(2 * wanted / variance)
        for _ in range(60):  # the bound is convex around its minimum: search a fine geometric grid
            bound = (_log_moment(components, sign * t) + wanted) / t
            if bound > best:
                break
            best, t = bound, t * 1.05
        worst = max(worst, best)
    return worst


@lru_cache(maxsize=65536)
def binomial_quantile(components: Components, p: float) -> float:
    """Return the least x with P(|X - E X| > x) <= p, X the sum of independent Bin(N_j, p_j).

    components : at least one pair (N >= 1, p in (0, 1)). p : in (0, 1). The result is never below the exact
        quantile.
    """
    p = checks.real("p", p, 0.0, 1.0, open_low=True, open_high=True)
    components = merged(components)
    if p < _LEAST:
        return _chernoff(components, p)
    width = math.ceil(_chernoff(components, 1e-18)) + 2
    mean = sum(n * q for n, q in components)
    size = fft.next_fast_len(2 * width + 3, real=True)
    theta = 2 * np.pi * np.arange(size // 2 + 1) / size
    real, phase = np.zeros(theta.size), np.zeros(theta.size)
    for n, q in components:
        with np.errstate(divide="ignore"):  # fair flips at theta = pi: the product is 0
            real += 0.5 * n * np.log1p(-2 * q * (1 - q) * (1 - np.cos(theta)))
        phase += n * (np.arctan2(q * np.sin(theta), 1 - q + q * np.cos(theta)) - q * theta)
    first = math.floor(mean) - width  # index 0
    transform = np.exp(real) * np.exp(1j * (phase + (mean - first) * theta))
    mass = np.maximum(fft.irfft(np.conj(transform), size), 0.0)
    away = np.abs(first + np.arange(size) - mean)
    order = np.argsort(away, kind="stable")
    # mass strictly farther away than each point; points at the same distance are counted together
    beyond = mass.sum() - np.cumsum(mass[order]) + _ROUNDING
    at = int(np.argmax(beyond <= p))
    return float(away[order][at])


@dataclass(frozen=True)
class BinomialLaw:
    """Distribution of unit (X - E X) in each cell, X a sum of independent random bits of that cell.

    Parameters
    ----------
    components : (N, p) of each batch in the released value. Empty: no noise yet.
    unit : change of a cell by one bit (1; 1/2 for centred rewards).
    cells, rows, row_size : sizes of the family, for the union bound and for sums over a row.
    share : this release's part of a failure probability.
    """

    __repr__ = brief

    components: Components
    unit: float
    cells: int
    rows: int
    row_size: int = 1
    share: float = 1.0
    family: str = "binomial"
    exact: bool = True

    def __post_init__(self) -> None:
        for number, p in self.components:
            checks.integer("components", number, 1)
            checks.real("components", p, 0.0, 1.0, open_low=True, open_high=True)
        checks.positive("unit", self.unit)
        checks.integer("cells", self.cells, 1)
        checks.integer("rows", self.rows, 1, self.cells)
        checks.integer("row_size", self.row_size, 1)
        checks.real("share", self.share, 0.0, 1.0, open_low=True)

    def std(self) -> float:
        """Standard deviation of one cell."""
        return self.unit * math.sqrt(sum(n * p * (1 - p) for n, p in self.components))

    def std_bound(self) -> float:
        """Bound on the std over all releases so far.

        It equals ``std``, because earlier sums contain fewer flips.
        """
        return self.std()

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E with P(any |noise| > E, over cells, or row sums with ``rows``) <= failure * share."""
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        if not self.components:
            return 0.0
        if rows:
            components = tuple((self.row_size * n, p) for n, p in self.components)
            return self.unit * binomial_quantile(components, failure * self.share / self.rows)
        return self.unit * binomial_quantile(self.components, failure * self.share / self.cells)
