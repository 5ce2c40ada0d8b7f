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
    """Distribution of the error in a sum of debiased randomized responses.

    The error is the sum of the responses minus the sum of the true records.

    Parameters
    ----------
    variance, cross : float
        Variance of one cell, and covariance of two cells in the same row, both per user. The variance is a
        mean over the cells of one step that the policy of the user assigns. For pooled steps, it is a mean
        over the cells of all H steps, with records spread evenly over the cells. The covariance is for
        records that are spread evenly.
    idle, visit : float
        The two parts of that variance. ``idle`` is the variance from a user who does not visit the cell,
        although the user's policy assigns it. ``visit`` is the additional variance from each record in the
        cell, mostly from the steps that were not drawn. A count of x among n users has the variance n idle +
        x visit.
    worst, reach : float
        Largest variance and largest absolute value of one user's term in one cell, over all possible data.
    row_worst, row_reach : float
        Largest variance and largest absolute value of one user's term in the sum over a row.
    terms, terms_bound : int
        Number of users who responded, and an upper bound on this number in this and any earlier release.
    cells, rows : int
        Number of cells and number of rows of the family, for the union bound.
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
        """Return the root mean square of the error over the cells of one step.

        The value is valid if the policy of every user assigned these cells.
        """
        return math.sqrt(self.terms * self.variance)

    def std_bound(self) -> float:
        """Return a bound on the standard deviation of one cell at this and all earlier releases.

        The bound holds for all possible data.
        """
        return math.sqrt(self.terms_bound * self.worst)

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E such that, with probability at least 1 - failure, no |error| exceeds E.

        The bound holds for all cells and all releases at the same time. If ``rows`` is True, it holds for the
        sums of all rows instead. The bound follows from Bernstein's inequality.
        """
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        n = self.terms_bound
        worst, reach, many = self.worst, self.reach, self.cells
        if rows:
            worst, reach, many = self.row_worst, self.row_reach, self.rows
        log_term = math.log(2.0 * many / (failure * self.share))
        slope = reach * log_term / 3.0
        return min(n * reach, slope + math.sqrt(slope * slope + 2.0 * n * worst * log_term))


def joined(laws: Sequence[ReportLaw]) -> ReportLaw:
    """Return the distribution of the error in a sum of responses of several randomizers.

    laws : error distributions of the sums of each randomizer, at least one, all of the same family.

    The numbers of users are summed. Variances per user are means over all users, weighted by these numbers.
    ``reach`` and ``row_reach`` are maxima, because Bernstein's inequality needs the largest absolute value of
    one user's term.
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
