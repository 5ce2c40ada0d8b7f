"""Noise distributions in releases of linear sums.

Learners use them to set ridge parameters and confidence widths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.accounting.noise_distributions import distributions as laws
from discreet.core import checks
from discreet.core.short_repr import brief


@dataclass(frozen=True)
class _LinearLaw:
    """Noise of a family of linear sums. At step h it is the sum of ``terms`` noise terms of scale s_h.

    Parameters
    ----------
    scales : shape (n,), the scale s_h of one noise term for each of the n steps of the family. It is the
        standard deviation in one cell or, for Laplace noise, the Laplace scale. For a matrix it is the scale
        of an off-diagonal cell.
    terms : variance of the noise in this release, in units of the variance of one term. It is public and
        differs between releases.
    terms_bound : largest ``terms`` of this and all earlier releases.
    dimension : number d of features.
    releases : number of scheduled releases that share a failure probability in :meth:`bound`.
    laplace : True for Laplace noise, False for Gaussian noise.
    discrete : True for noise on a grid.
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
        """True, because the noise does not depend on data."""
        return True

    @property
    def family(self) -> str:
        """Name of the distribution: ``gaussian``, ``laplace``, a ``discrete_`` variant, or ``none``."""
        if not any(self.scales):
            return "none"
        return f"{'discrete_' if self.discrete else ''}{'laplace' if self.laplace else 'gaussian'}"

    def _scale(self, step: int | None) -> float:
        return max(self.scales) if step is None else self.scales[step]

    def std(self, step: int | None = None) -> float:
        """Return the standard deviation of one cell at a step, or the largest over all steps if step is None.

        For a matrix, the result is for an off-diagonal cell.
        """
        spread = math.sqrt(2.0) if self.laplace else 1.0
        return spread * self._scale(step) * math.sqrt(self.terms)

    def std_bound(self) -> float:
        """Return the largest standard deviation of one cell over this and all earlier releases."""
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
    """Noise of symmetric matrices.

    The matrix has one of two forms. Either it is from the Gaussian orthogonal ensemble GOE(s_h), or it has
    independent entries of variance s_h^2 on and above the diagonal, which are copied to the other triangle.

    diagonal : variance of a diagonal entry, relative to the variance of an entry outside the diagonal. The
        value is 2 for GOE, and 1 for the copied triangle and for Laplace noise.
    """

    __repr__ = brief

    diagonal: float = 2.0

    def edge(self, step: int | None = None) -> float:
        """Return 2 sqrt(d) std, the edge of the spectrum of the noise. Ridge parameters use this unit."""
        return 2.0 * math.sqrt(self.dimension) * self.std(step)

    def operator_norm_bound(self, failure: float, step: int | None = None) -> float:
        """Return a bound on the operator norm of the noise at one step of this release.

        The norm exceeds the bound with probability at most ``failure``. For Gaussian noise the bound is std
        (2 sqrt(d) + 2 sqrt(log(2 / failure))). This bound follows from the inequality of Sudakov and Fernique
        for the mean of the norm, and from the Lipschitz constant sqrt(2) s. The bound also holds for the
        copied triangle, which is a GOE without part of its diagonal. For Laplace noise the bound is d times a
        bound on the absolute value of all entries.
        """
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        if self.laplace:
            d = self.dimension
            return d * self._cell_bound(failure, d * (d + 1) // 2, self.terms, self._scale(step))
        width = 2.0 * math.sqrt(self.dimension) + 2.0 * math.sqrt(math.log(2.0 / failure))
        return self.std(step) * width

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E such that, with probability at least 1 - failure, no abs(noise) exceeds E.

        The bound holds for all cells, steps and scheduled releases at the same time.

        rows : if True, bound the noise in the sum of each row instead.
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
    """Noise of arrays in which the noise of different cells is independent.

    size : number of cells at one step. A row has d cells.
    """

    __repr__ = brief

    size: int = 1

    def norm_bound(self, failure: float, step: int | None = None) -> float:
        """Return a bound on the Euclidean norm of the noise at one step of this release.

        The norm exceeds the bound with probability at most ``failure``. For Gaussian noise the bound is std
        (sqrt(size) + sqrt(2 log(1 / failure))). For Laplace noise it is sqrt(size) times a bound on the
        absolute value of all cells.
        """
        failure = checks.real("failure", failure, 0.0, 1.0, open_low=True, open_high=True)
        if self.laplace:
            return math.sqrt(self.size) * self._cell_bound(failure, self.size, self.terms, self._scale(step))
        return self.std(step) * (math.sqrt(self.size) + math.sqrt(2.0 * math.log(1.0 / failure)))

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E such that, with probability at least 1 - failure, no abs(noise) exceeds E.

        The bound holds for all cells, steps and scheduled releases at the same time.

        rows : if True, bound the noise in the sum of each row instead.
        """
        cells = len(self.scales) * self.size * self.releases
        found = self._cell_bound(failure, cells, self.terms_bound, self._scale(None))
        return self.dimension * found if rows else found
