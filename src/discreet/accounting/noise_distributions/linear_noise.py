"""Noise distributions in releases of linear sums. Learners set ridges and confidence widths from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.accounting.noise_distributions import distributions as laws
from discreet.core import checks
from discreet.core.short_repr import brief

__all__ = ["GoeLaw", "VectorLaw"]


@dataclass(frozen=True)
class _LinearLaw:
    """Noise of a family at each of its steps: ``terms`` noise terms of scale s_h each.

    Parameters
    ----------
    scales : (n,) s_h for each step: the standard deviation of one noise term in one cell, or the scale of
        Laplace noise. For a matrix the cell is off the diagonal.
    terms : variance of this release's noise, in units of the variance of one term. It is public and changes
        with the release.
    terms_bound : the largest ``terms`` of all releases up to this one.
    dimension : d.
    releases : number of scheduled releases that share a failure probability in :meth:`bound`.
    """

    scales: tuple[float, ...]
    terms: float
    terms_bound: float
    dimension: int
    releases: int
    laplace: bool = False
    discrete: bool = False

    @property
    def exact(self) -> bool:
        """True: no noise depends on data."""
        return True

    @property
    def family(self) -> str:
        """``gaussian``, ``laplace`` or their ``discrete_`` variants; ``none`` for exact sums."""
        if not any(self.scales):
            return "none"
        return f"{'discrete_' if self.discrete else ''}{'laplace' if self.laplace else 'gaussian'}"

    def _scale(self, step: int | None) -> float:
        return max(self.scales) if step is None else self.scales[step]

    def std(self, step: int | None = None) -> float:
        """Return the std of one cell (in a matrix: off the diagonal) at a step; None: the largest of all."""
        spread = math.sqrt(2.0) if self.laplace else 1.0
        return spread * self._scale(step) * math.sqrt(self.terms)

    def std_bound(self) -> float:
        """Return the largest std over this and all earlier releases."""
        spread = math.sqrt(2.0) if self.laplace else 1.0
        return spread * self._scale(None) * math.sqrt(self.terms_bound)

    def _cell_bound(self, failure: float, cells: int, terms: float, scale: float) -> float:
        p = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True) / cells
        if terms == 0 or scale == 0:
            return 0.0
        if self.laplace:
            return scale * laws.chernoff_bound(math.ceil(terms - 1e-9), p)
        return scale * math.sqrt(terms) * laws.gaussian_quantile(p)


@dataclass(frozen=True)
class GoeLaw(_LinearLaw):
    """Noise of symmetric matrices: GOE(s_h), or a mirrored triangle whose variances are all s_h^2.

    diagonal : variance of a diagonal entry in units of that of an entry off the diagonal: 2 (GOE), 1
        (mirrored triangle, Laplace).
    """

    __repr__ = brief

    diagonal: float = 2.0

    def edge(self, step: int | None = None) -> float:
        """Return 2 sqrt(d) std, the edge of the spectrum and the unit of ridges."""
        return 2.0 * math.sqrt(self.dimension) * self.std(step)

    def operator_norm_bound(self, failure: float, step: int | None = None) -> float:
        """Return E with P(operator norm of the noise of one step of this release > E) <= failure.

        Gaussian: std (2 sqrt(d) + 2 sqrt(log(2 / failure))) (Sudakov and Fernique for the mean, sqrt(2)
        s-Lipschitz). This also holds for the mirrored triangle, which is a GOE without part of its diagonal.
        Laplace: d times a bound on the absolute value of all entries.
        """
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        if self.laplace:
            d = self.dimension
            return d * self._cell_bound(failure, d * (d + 1) // 2, self.terms, self._scale(step))
        width = 2.0 * math.sqrt(self.dimension) + 2.0 * math.sqrt(math.log(2.0 / failure))
        return self.std(step) * width

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E with P(any abs(noise) > E) <= failure, over cells, steps and releases.

        rows : if True, bound the noise in the sum of each row.
        """
        d = self.dimension
        if rows:
            return d * self.bound(failure)
        cells = len(self.scales) * d * (d + 1) // 2 * self.releases
        return self._cell_bound(
            failure, cells, self.terms_bound, math.sqrt(self.diagonal) * self._scale(None)
        )


@dataclass(frozen=True)
class VectorLaw(_LinearLaw):
    """Noise of arrays, independent in every cell.

    size : number of cells of one step. A row has d cells.
    """

    __repr__ = brief

    size: int = 1

    def norm_bound(self, failure: float, step: int | None = None) -> float:
        """Return E with P(Euclidean norm of the noise of one step of this release > E) <= failure.

        Gaussian: std (sqrt(size) + sqrt(2 log(1 / failure))); Laplace: sqrt(size) times a bound on the
        absolute value of all cells.
        """
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        if self.laplace:
            return math.sqrt(self.size) * self._cell_bound(failure, self.size, self.terms, self._scale(step))
        return self.std(step) * (math.sqrt(self.size) + math.sqrt(2.0 * math.log(1.0 / failure)))

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E with P(any abs(noise) > E) <= failure, over cells, steps and releases.

        rows : if True, bound the noise in the sum of each row.
        """
        cells = len(self.scales) * self.size * self.releases
        found = self._cell_bound(failure, cells, self.terms_bound, self._scale(None))
        return self.dimension * found if rows else found
