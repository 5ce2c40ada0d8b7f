r"""Factorization with a user-supplied strategy matrix. The library computes its privacy loss.

The strategy is a lower triangular (M, M) matrix C with a positive diagonal, for M time steps. Let x be the
sums of the time steps, A the lower triangular matrix of ones, and z independent noise. The mechanism releases
A x + B z with B = A C^{-1}.

Privacy does not depend on the rounding of B. The computed B is lower triangular and has a positive diagonal,
so it has an inverse. The release is B (S x + z) with S = B^{-1} A. The loss depends on the columns of S and
not on those of C. S is lower triangular and z_n is fresh at release n. Therefore S x + z is a stream as in
statements (a) and (b) of :mod:`discreet.core.correlated_noise`, for any data of later users. Multiplying by
the known B is post-processing. The loss of a user is a norm of a column of S times the loss of one draw. For
Laplace noise this is the l1 norm, for Gaussian noise the l2 norm.

Bound on the columns of S. Let R = A - B C be the residual and E = A^{-1} R. Then B^{-1} R = S E, and
therefore C = S (I - E). Let e be the largest l1 norm of a column of E. If e < 1, then S = C (I - E)^{-1}, and
the columns of (I - E)^{-1} have l1 norms of at most 1 / (1 - e). A column of S is a sum of columns of C with
these coefficients. In the l1 and in the l2 norm, the largest column of S is therefore at most 1 / (1 - e)
times the largest column of C. A^{-1} subtracts consecutive rows, so e is at most 2 times the largest l1 norm
of a column of R.

Rounding of R. Let u = 2^{-53} be the unit roundoff. In any order of summation, the error of the computed
product B C is at most M u / (1 - M u) times |B| |C|, entry by entry (Higham 2002). Therefore 8 (M + 2) u
times the computed |B| |C| is added to the computed |R|, which covers all rounding errors in R. A factor of 1
+ 1e-9 covers rounding in the norms of C, in the sum of R and in the scale of a draw. No bound depends on the
method that computes B. Matrices with e >= 1e-6 are rejected.

Scaling. The draws have a scale of w times the base scale, where w is the bound on the columns of S. In units
of the draws, the columns have norm at most 1, so the privacy loss of a user is at most the loss of one sum.

Exact noise. z and the released sums are multiples of one grid unit. Two neighbouring streams with changes d
of one time step need noise vectors that differ by S d. The vector S d must be on the grid too. An integer B
is not enough: for C = A / 2 and B = 2 I, the remainder of a release modulo 2 would equal the remainder of the
data. Exact noise is therefore allowed only if C is an integer matrix with a diagonal of ones. Then B is an
integer matrix. The matrix B is used only if B C = A holds exactly in integers below 2^52, so S = C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import ClassVar

import numpy as np

from discreet.core import checks
from discreet.core.correlated_noise.factorization import Floats, Form, Norm, Walk
from discreet.core.short_repr import brief
from discreet.core.strategies import WALKS, registered

MOST_STEPS = 1024  # Largest M. The limit exists because every draw is kept and B is a dense matrix.
_WORST = 1e-6  # Largest accepted e.
_SPREAD = 2.0**6  # Draws of scale 2^38 units exceed 2^52 units with probability exp(-2^14).


@lru_cache(maxsize=8)
def _solved(content: bytes, steps: int) -> tuple[bytes, tuple[float, float], bool]:
    """Return B, bounds on the largest l1 and l2 norm of a column of S, and True if noise can be exact.

    B is returned as bytes, because bytes are immutable.
    """
    strategy = np.frombuffer(content).reshape(steps, steps)
    prefixes = np.tril(np.ones((steps, steps)))
    whole = bool((strategy == np.rint(strategy)).all() and (np.diag(strategy) == 1).all())
    with np.errstate(all="ignore"):  # infinities and NaN are rejected below
        weights = np.tril(np.linalg.solve(strategy.T, prefixes.T).T)
        weights = np.rint(weights) if whole else weights
        sizes, residual = np.abs(weights) @ np.abs(strategy), np.abs(prefixes - weights @ strategy)
        exact = bool(whole and sizes.max() < 2.0**52 and not residual.any())
        error = (residual + 8 * (steps + 2) * 2.0**-53 * sizes).sum(axis=0).max()
        l1, squared = (float((np.abs(strategy) ** p).sum(axis=0).max()) for p in (1, 2))
        change, largest = 0.0 if exact else 2 * float(error), float(np.abs(weights).max()) * l1
    if not (change < _WORST and 1e-100 < l1 < 1e100 and largest < 1e100 and (np.diag(weights) > 0).all()):
        raise ValueError(
            f"strategy: its columns have norms up to {l1:.3g}, and its inverse has a relative error of "
            f"{change:.3g}: must be at most {_WORST:g}, so that the privacy loss can be computed"
        )
    slack = (1 + 1e-9) / (1 - change)
    return weights.tobytes(), (l1 * slack, math.sqrt(squared) * slack), exact


@dataclass(frozen=True, eq=False)
class MatrixFactorization(Walk):
    """Correlated noise from a user-supplied strategy matrix. The library computes its privacy loss.

    Parameters
    ----------
    strategy : (M, M) lower triangular matrix C with a positive diagonal, 1 <= M <= 1024. Row n belongs to
        time step n (a batch of users between two scheduled releases, or a single user). The noise of prefix
        sums is A C^{-1} z, where A is the lower triangular matrix of ones. The scale of C does not matter,
        except that exact noise needs a diagonal of ones.
        After time step M + 1 nothing is released.
    gaussian : True for Gaussian noise, False for Laplace noise. It selects the l2 or l1 norm of the columns.
        :class:`~discreet.mechanisms.privatizers.central.Central` sets it.

    Attributes
    ----------
    leaves : int
        M + 1, the number of time steps of the schedule.
    weights : (M, M) array
        Computed matrix B, read-only.
    draw_scale : float
        Scale w of a draw: the bound on the columns in the norm of the noise.
    integral : bool
        True if C and B are integer matrices and C has a diagonal of ones. Noise can then be exact.

    Raises
    ------
    ValueError
        If the matrix is not such a matrix, or is so ill-conditioned that rounding errors could change the
        privacy loss by a factor of more than 1 + 1e-6.
    """

    __repr__ = brief
    __reduce__ = checks.by_constructor

    strategy: Floats
    gaussian: bool = False
    leaves: int = field(init=False, repr=False)
    weights: Floats = field(init=False, repr=False)
    draw_scale: float = field(init=False, repr=False)
    integral: bool = field(init=False, repr=False)

    weighted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # np.atleast_1d also accepts a ragged list
        steps = len(np.atleast_1d(np.asarray(self.strategy, object)))
        checks.integer("strategy: number of rows", steps, 1, MOST_STEPS)
        strategy = checks.floats("strategy", self.strategy, (steps, steps))
        if np.triu(strategy, 1).any() or not (np.diag(strategy) > 0).all():
            raise ValueError("strategy: must be a lower triangular matrix with a positive diagonal")
        gaussian, content = checks.flag("gaussian", self.gaussian), strategy.tobytes()
        solved, bounds, integral = _solved(content, steps)
        strategy, weights = (np.frombuffer(one).reshape(steps, steps) for one in (content, solved))
        values = strategy, gaussian, steps + 1, weights, bounds[gaussian], integral
        for item, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, item.name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MatrixFactorization):
            return NotImplemented
        return self.gaussian == other.gaussian and np.array_equal(self.strategy, other.strategy)

    def __hash__(self) -> int:
        return hash((self.leaves, self.gaussian, self.draw_scale))

    def first(self, steps: int, gaussian: bool) -> MatrixFactorization:
        """Return the factorization of the first ``steps`` time steps, for Gaussian or Laplace noise.

        Raises ``ValueError`` if the matrix has fewer rows.
        """
        if steps > len(self.strategy):
            raise ValueError(
                f"strategy has {len(self.strategy)} rows: must have at least {steps}, one for each time step "
                "before the last scheduled release"
            )
        return MatrixFactorization(self.strategy[:steps, :steps], gaussian)

    @property
    def levels(self) -> int:
        """Bound on the norm of a column in units of the draws, which is 1."""
        return 1

    def column_norm(self, norm: Norm) -> float:
        """Return 1 for the norm of the noise, in units of the draws, and infinity for the other norm."""
        return 1.0 if self.gaussian == (norm == "l2") else math.inf

    @property
    def spread(self) -> float:
        return _SPREAD * self.draw_scale * float(np.abs(self.weights).sum(axis=1).max())

    def text(self, leaf: str) -> str:
        return (
            f"noise correlated by a matrix of the operator's own over {self.leaves - 1} time steps, a leaf "
            f"is a {leaf} (a user's column of the strategy has {'l2' if self.gaussian else 'l1'} norm at "
            "most 1, computed from the matrix, so it costs no more than one sum)"
        )

    @property
    def form(self) -> Form:
        """Size of the memory: one register for each draw. The program is empty."""
        return Form(self.leaves - 1, 0)


registered(MatrixFactorization, WALKS)
