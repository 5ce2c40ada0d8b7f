"""Statistics over seeds: means, medians and paired differences, each with a 95 % interval.

The interval of a mean is Student's t interval. The ends of the interval of a median are two order statistics,
with at least the stated coverage for every distribution. At 95 %, the interval of a median needs at least six
seeds, and is otherwise omitted.

Sources: Conover, Practical Nonparametric Statistics, section 3.2 (order statistics); Fisher (1935; sign
flips).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks

LEVEL = 0.95
# Largest number of pairs for which the test enumerates all sign patterns (2^15 by symmetry). For more pairs,
# the t test is used.
_EXACT_FLIPS = 16
_T = "Student's t"
_ORDER = "order statistics"


@dataclass(frozen=True)
class Interval:
    """Point estimate with a confidence interval.

    Parameters
    ----------
    estimate : point estimate, in the units of the values.
    low, high : ends of the interval; None if there are too few values.
    level : coverage probability of the interval, 0.95 by default.
    method : name of the method that computed the interval.
    count : number of values.
    """

    estimate: float
    low: float | None
    high: float | None
    level: float
    method: str
    count: int

    def __str__(self) -> str:
        return f"{number(self.estimate)} {self.brackets()}"

    def brackets(self) -> str:
        """Return ``[low, high]`` as text, or a dash if the interval is omitted."""
        if self.low is None or self.high is None:
            return "—"
        return f"[{number(self.low)}, {number(self.high)}]"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary of JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Paired:
    """Statistics of the differences between two results, seed by seed.

    Parameters
    ----------
    mean, median : mean and median of the differences (this result minus the other), with intervals.
    below, above : numbers of seeds for which this result was lower, and higher, than the other.
    p_value : p-value of the two-sided test that the differences are symmetric about 0; None with one seed.
        See :func:`sign_flip_test`.
    """

    mean: Interval
    median: Interval
    below: int
    above: int
    p_value: float | None
    differences: tuple[float, ...]

    def __str__(self) -> str:
        test = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        return f"{self.mean} (mean difference, {self.mean.count} seeds{test})"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary of JSON values."""
        return {**asdict(self), "mean": self.mean.to_json(), "median": self.median.to_json()}


def number(value: float) -> str:
    """Format a number for display, with four significant figures and commas between thousands."""
    if not math.isfinite(value):
        return "—"
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 6)}f}"


def _values(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"values = {values!r}: must be a non-empty list of finite numbers")
    return array


def mean_interval(values: Sequence[float] | NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Return the mean of n values with a Student's t interval. The interval is omitted if n = 1."""
    array = _values(values)
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    centre, n = float(array.mean()), array.size
    if n == 1:
        return Interval(centre, None, None, level, _T, n)
    half = _t_quantile(n - 1, level) * float(array.std(ddof=1)) / math.sqrt(n)
    return Interval(centre, centre - half, centre + half, level, _T, n)


def ratio_interval(
    this: Sequence[float] | NDArray[np.float64],
    other: Sequence[float] | NDArray[np.float64],
    level: float = LEVEL,
) -> Interval:
    """Return the ratio of the means of two vectors of n paired values, with an interval.

    The interval is a Student's t interval of the logarithm of the ratio, by the delta method. The interval is
    omitted if n = 1. Raises ``ValueError`` if the lengths differ or a mean is not above 0.
    """
    mine, theirs = _values(this), _values(other)
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    if mine.size != theirs.size:
        raise ValueError(f"other has {theirs.size} values: must have {mine.size}, one for each of ours")
    means = float(mine.mean()), float(theirs.mean())
    if min(means) <= 0.0:
        raise ValueError(f"means are {means[0]:g} and {means[1]:g}: must be above 0")
    ratio, n = means[0] / means[1], mine.size
    method = _T + ", on logarithms"
    if n == 1:
        return Interval(ratio, None, None, level, method, n)
    errors = mine / means[0] - theirs / means[1]
    half = _t_quantile(n - 1, level) * float(errors.std(ddof=1)) / math.sqrt(n)
    return Interval(ratio, ratio * math.exp(-half), ratio * math.exp(half), level, method, n)


def _t_quantile(freedom: int, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + level / 2))


def median_interval(values: Sequence[float] | NDArray[np.float64], level: float = LEVEL) -> Interval:
    """Return the median of n values, with an interval between the order statistics r and n + 1 - r.

    Here r is the largest integer with P(Binomial(n, 1/2) < r) <= (1 - level) / 2. If no such r exists, the
    interval is omitted.
    """
    array = np.sort(_values(values))
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    n, rank, below = array.size, 0, 0.0
    for r in range(1, n // 2 + 1):
        below += math.exp(math.lgamma(n + 1) - math.lgamma(r) - math.lgamma(n - r + 2) - n * math.log(2))
        if below > (1 - level) / 2:
            break
        rank = r
    low, high = (None, None) if rank == 0 else (float(array[rank - 1]), float(array[n - rank]))
    return Interval(float(np.median(array)), low, high, level, _ORDER, n)


def bands(
    curves: NDArray[np.float64], level: float = LEVEL
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return the mean curve of several seeds, and the half-width of its pointwise t interval.

    ``curves`` has shape (seeds, M); the mean and the half-width have shape (M,). The half-width is None if
    there is only one seed.
    """
    mean = curves.mean(axis=0)
    n = curves.shape[0]
    if n == 1:
        return mean, None
    return mean, _t_quantile(n - 1, level) * curves.std(axis=0, ddof=1) / math.sqrt(n)


def name_of_test(count: int) -> str:
    """Return the name of the test that :func:`paired` uses for ``count`` pairs."""
    return "sign flips" if count <= _EXACT_FLIPS else _T


def sign_flip_test(differences: Sequence[float] | NDArray[np.float64]) -> float | None:
    """Return the two-sided p-value of the hypothesis that n differences are symmetric about 0; None if n = 1.

    If n is at most 16, the test is exact: the mean is computed under all 2^n sign patterns. For larger n, the
    test is Student's t test.
    """
    array = _values(differences)
    n = array.size
    if n == 1:
        return None
    if n <= _EXACT_FLIPS:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=n - 1)))
        flipped = np.abs(array[0] + signs @ array[1:])
        scale = np.abs(array).sum()
        return float(np.mean(flipped >= np.abs(array.sum()) - 1e-12 * scale))
    from scipy.special import stdtr

    spread = float(array.std(ddof=1))
    if spread == 0.0:
        return 1.0 if array[0] == 0.0 else 0.0
    return float(2 * stdtr(n - 1, -abs(float(array.mean())) / (spread / math.sqrt(n))))


def paired(this: NDArray[np.float64], other: NDArray[np.float64], level: float = LEVEL) -> Paired:
    """Return statistics of the differences between two vectors of n paired values."""
    mine, theirs = _values(this), _values(other)
    if mine.size != theirs.size:
        raise ValueError(f"other has {theirs.size} values: must have {mine.size}, one for each of ours")
    differences = mine - theirs
    return Paired(
        mean_interval(differences, level),
        median_interval(differences, level),
        int((differences < 0).sum()),
        int((differences > 0).sum()),
        sign_flip_test(differences),
        tuple(differences.tolist()),
    )
