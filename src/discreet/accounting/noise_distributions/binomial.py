r"""Noise distribution of sums of random bits, with exact tails of sums of independent binomial variables.

The noise of a released cell is ``unit * (X - E X)``, where ``unit`` is a constant. X is the sum of all flips
in all batches so far. X is a sum of independent variables Bin(N_j, p_j). P(|X - E X| > t) is computed from
the probabilities of X. These probabilities are the inverse Fourier transform of the characteristic function

    prod_j (1 + p_j (e^{i theta} - 1))^{N_j}.

The mean is subtracted before the transform, so that the phases are small. The transform is exact on a window,
except for rounding errors and for the probability that X is outside the window. By Chernoff's bound, this
probability is below 1e-18. Because of these two errors, 1e-12 is added to the tail. At tail probabilities p
below 1e-9 the quantile is Chernoff's bound (1.07 times the exact quantile).
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
"""For each batch: (number of flips, probability that a flip is 1)."""

_ROUNDING = 1e-12
_LEAST = 1e-9  # smaller tail probabilities are not resolved because of rounding errors


def merged(components: Components) -> Components:
    """Merge components of equal probability. The distribution of their sum does not change."""
    totals: dict[float, int] = {}
    for number, p in components:
        totals[p] = totals.get(p, 0) + number
    return tuple((number, p) for p, number in totals.items())


def _log_moment(components: Components, t: float) -> float:
    """Return ln E exp(t (X - E X)), with X the sum of independent Bin(N_j, p_j)."""
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
        # stop when the bound starts to increase, because the bound is convex near its minimum
        for _ in range(60):
            bound = (_log_moment(components, sign * t) + wanted) / t
            if bound > best:
                break
            best, t = bound, t * 1.05
        worst = max(worst, best)
    return worst


@lru_cache(maxsize=65536)
def binomial_quantile(components: Components, p: float) -> float:
    """Return the two-sided quantile of a sum X of independent variables Bin(N_j, p_j).

    The quantile is the least x with P(|X - E X| > x) <= p. The result is never below the exact quantile.

    components : at least one pair (N_j, p_j), with N_j >= 1 and p_j in (0, 1).

    p : tail probability in (0, 1).
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
        with np.errstate(divide="ignore"):  # for fair flips the product is 0 at theta = pi
            real += 0.5 * n * np.log1p(-2 * q * (1 - q) * (1 - np.cos(theta)))
        phase += n * (np.arctan2(q * np.sin(theta), 1 - q + q * np.cos(theta)) - q * theta)
    first = math.floor(mean) - width  # value of X at index 0
    transform = np.exp(real) * np.exp(1j * (phase + (mean - first) * theta))
    mass = np.maximum(fft.irfft(np.conj(transform), size), 0.0)
    away = np.abs(first + np.arange(size) - mean)
    order = np.argsort(away, kind="stable")
    # probability of all points that come later in this order: an upper bound on P(|X - E X| > distance)
    beyond = mass.sum() - np.cumsum(mass[order]) + _ROUNDING
    at = int(np.argmax(beyond <= p))
    return float(away[order][at])


@dataclass(frozen=True)
class BinomialLaw:
    """Distribution of the noise ``unit * (X - E X)`` in each cell. X is the sum of the cell's random bits.

    Parameters
    ----------
    components : (number of bits N, probability p that a bit is 1) for each batch in the released value. Empty
        if there is no noise yet.
    unit : amount by which one bit changes the value of a cell: 1, or 1/2 for centred rewards.
    cells, rows, row_size : number of cells of the family, number of rows, and number of cells in a row. They
        are used in the union bound and in bounds on sums over a row.
    share : part of a failure probability that is assigned to this release.
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
        """Return the standard deviation of the noise in one cell."""
        return self.unit * math.sqrt(sum(n * p * (1 - p) for n, p in self.components))

    def std_bound(self) -> float:
        """Return the largest standard deviation of one cell over this and all earlier releases.

        The result is equal to ``std``, because earlier sums contain fewer flips.
        """
        return self.std()

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E such that, with probability at least 1 - failure * share, no |noise| exceeds E.

        The bound holds for the noise of all cells at the same time. If ``rows`` is True, it holds for the
        noise in the sums of all rows instead.
        """
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        if not self.components:
            return 0.0
        if rows:
            components = tuple((self.row_size * n, p) for n, p in self.components)
            return self.unit * binomial_quantile(components, failure * self.share / self.rows)
        return self.unit * binomial_quantile(self.components, failure * self.share / self.cells)
