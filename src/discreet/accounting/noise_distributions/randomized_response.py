"""Noise distribution of sums of randomized responses.

The distribution is derived in :mod:`discreet.mechanisms.local.randomized_response`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from discreet.core import checks
from discreet.core.short_repr import brief


@dataclass(frozen=True)
class ReportLaw:
    """Distribution of a sum of debiased responses minus the sum of the records that they describe.

    Parameters
    ----------
    variance, cross : float
        Variance of one cell and covariance of two cells of one row, both per user. The variance is the mean
        over the cells of a step that the user's policy assigns (with pooled steps: over all H of them at the
        even rate). The covariance is at the even rate.
    idle, visit : float
        The two parts of that variance: the variance from a user whose policy assigns the cell but who does
        not visit it, and the amount that each record in the cell adds (mostly from the steps that were not
        drawn). A count of x among n users has the variance n idle + x visit.
    worst, reach : float
        Largest variance and largest absolute value of one user's term in one cell, for any data.
    row_worst, row_reach : float
        The same for the sum over a row.
    terms, terms_bound : int
        Number of users who responded; a number not below that at this and any earlier release.
    cells, rows : int
        Cells and rows of the family, for the union bound.
    share : float
        Share of a failure probability that is assigned to this release.
    """

    __repr__ = brief

    variance: float
    cross: float
    idle: float
    visit: float
    worst: float
    reach: float
    row_worst: float
    row_reach: float
    terms: int
    terms_bound: int
    cells: int
    rows: int
    share: float = 1.0
    family: str = "report"
    exact: bool = False

    def std(self) -> float:
        """Return the root mean square over the cells of a step, if every user's policy assigned them."""
        return math.sqrt(self.terms * self.variance)

    def std_bound(self) -> float:
        """Return a bound on one cell's standard deviation, for any data, at this and all earlier releases."""
        return math.sqrt(self.terms_bound * self.worst)

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return Bernstein's E with P(any |noise| > E, over cells (or row sums) and releases) <= failure."""
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        n = self.terms_bound
        worst, reach, many = self.worst, self.reach, self.cells
        if rows:
            worst, reach, many = self.row_worst, self.row_reach, self.rows
        log_term = math.log(2.0 * many / (failure * self.share))
        slope = reach * log_term / 3.0
        return min(n * reach, slope + math.sqrt(slope * slope + 2.0 * n * worst * log_term))


def joined(laws: Sequence[ReportLaw]) -> ReportLaw:
    """Return the distribution of a sum of independent sums of responses by different randomizers.

    Numbers of users and variances are summed. laws : at least one, all of the same family. Bernstein's
    inequality needs the sum of the largest variances and the largest absolute value of one user's term.
    ``idle`` and ``visit`` are means over users.
    """
    if len(laws) == 1:
        return laws[0]
    terms = sum(law.terms for law in laws)

    def mean(values: Sequence[float]) -> float:
        if not terms:
            return max(values)
        return math.fsum(law.terms * value for law, value in zip(laws, values, strict=True)) / terms

    return replace(
        laws[0],
        variance=mean([law.variance for law in laws]),
        cross=mean([law.cross for law in laws]),
        idle=mean([law.idle for law in laws]),
        visit=mean([law.visit for law in laws]),
        worst=mean([law.worst for law in laws]),
        reach=max(law.reach for law in laws),
        row_worst=mean([law.row_worst for law in laws]),
        row_reach=max(law.row_reach for law in laws),
        terms=terms,
        terms_bound=terms,
    )
