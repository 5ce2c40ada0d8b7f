"""Noise distribution of sums with user-declared noise: standard deviation, and bounds by Chebyshev."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from discreet.core import checks


@dataclass(frozen=True)
class DeclaredSumLaw:
    """Sum of independent draws of a declared noise. Only the variance of the noise is known.

    Parameters
    ----------
    scale : float
        Standard deviation of one draw.
    terms, terms_bound : float, int
        Number of draws in the sum, and the largest such number in all releases so far.
    cells, rows, row_size : int
        Number of cells of the family, number of its rows, and number of cells of one row.
    share : float
        Share of a failure probability that is assigned to this release, in (0, 1].
    unit : float, optional
        Spacing of the values, if they are on a grid.
    """

    scale: float
    terms: float
    terms_bound: int
    cells: int
    rows: int
    row_size: int
    share: float
    unit: float | None = None
    family: ClassVar[str] = "declared"
    exact: ClassVar[bool] = True

    def std(self) -> float:
        """Return the standard deviation of one cell."""
        return self.scale * math.sqrt(self.terms)

    def std_bound(self) -> float:
        """Return a bound on the standard deviation at this and every earlier release."""
        return self.scale * math.sqrt(self.terms_bound)

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E with P(any abs(noise) > E, over cells and releases) <= failure, by Chebyshev.

        rows : True for the noise in the sum of each row.
        """
        checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        number, terms = (self.rows, self.row_size) if rows else (self.cells, 1)
        return self.std_bound() * math.sqrt(terms * number / (failure * self.share))
