"""Types of what meets at the kernel's borders: declarations for type checkers, of which nothing runs.

The kernel itself imports them for its type checker only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from discreet.core.count_query import Norm
    from discreet.core.trajectories import Trajectory

    Floats = NDArray[np.float64]

__all__ = ["Coins", "Composable", "NoiseLaw", "Query", "Record", "Sensitive"]


class Query(Protocol):
    """A sum over users of bounded contributions in named families, declared before data."""

    @property
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Name to shape, e.g. ``"visits": (H, S, A)``; the first axis is 1 where steps are pooled."""
        ...

    @property
    def support(self) -> Mapping[str, NDArray[np.bool_]]:
        """Cells that can be non-zero, from public facts only; noise goes to all of them."""
        ...

    def contribution(self, trajectory: Trajectory) -> Mapping[str, Floats]:
        """One user's summand in every family (dense; for tests and slow paths)."""
        ...

    def sensitivity(self, norm: Norm, weight: Mapping[str, float]) -> float:
        """Sup over replaced trajectories of the norm of (weight of family) x (its change), jointly."""
        ...


class NoiseLaw(Protocol):
    """The law of (value - estimand). Data-independent, unless ``exact`` is False."""

    @property
    def family(self) -> str:
        """none, laplace, gaussian, discrete_laplace, discrete_gaussian, ..."""
        ...

    @property
    def exact(self) -> bool:
        """False where the variance depends on data and is bounded or estimated."""
        ...

    def std(self) -> float:
        """Standard deviation of one cell of this release (cells of one family are alike)."""
        ...

    def std_bound(self) -> float:
        """A bound on the standard deviation of one cell at this and every earlier release."""
        ...

    def bound(self, failure: float, rows: bool = False) -> float:
        """E with P(any abs(noise) > E, over cells and all scheduled releases so far) <= failure.

        ``rows=True``: the same for the sum of a row's noise over s'.
        """
        ...


class Coins(Protocol):
    """Random draws of one person's device: :mod:`discreet.core.rng` or the device's own.

    With a ``grid``, noise and rewards are multiples of 1 / grid (secure coins only). ``exact`` : every
    draw has exactly its law, from a cryptographic source.
    """

    @property
    def exact(self) -> bool: ...

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """``size`` independent centred Laplace variables."""
        ...

    def normal(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """``size`` independent centred normals."""
        ...

    def rounded(self, rewards: Floats, grid: int | None) -> Floats:
        """Rewards on the grid, without bias."""
        ...

    def below(self, n: int) -> int:
        """A uniform integer in [0, n)."""
        ...

    def flip(self, numerator: int) -> bool:
        """True with probability numerator / 2^53, exactly."""
        ...


class Sensitive(Protocol):
    """What a record asks of a query."""

    def sensitivity(self, norm: Any, weight: Mapping[str, float]) -> float: ...


class Record(Protocol):
    """What one mechanism did to one user: what a guarantee and its sentences ask of it.

    ``norm`` : how losses of several records add: ``l1`` as they are, ``l2`` as squares; ``losses``: not by a
    closed form, so such a record is the only one of its guarantee. ``levels`` : in how many noisy sums,
    messages or batches a user can be.
    """

    @property
    def mechanism(self) -> str: ...
    @property
    def noise(self) -> str: ...
    @property
    def norm(self) -> Literal["l1", "l2", "losses"]: ...
    @property
    def levels(self) -> int: ...
    @property
    def numerical(self) -> bool:
        """Is epsilon to be had from laws of loss, by :meth:`epsilon`, and not from closed forms?"""
        ...

    def epsilon(self, delta: float) -> float:
        """Of a numerical record, at this delta in (0, 1); infinity where there is none."""
        ...

    def line(self, delta: float) -> str:
        """What was done, with its loss, in a line of a composition."""
        ...

    def sentence(self, trust: Any) -> str:
        """What hides the data, for who takes part."""
        ...

    def to_dict(self) -> dict[str, Any]: ...


class Composable(Record, Protocol):
    """A record of which several on the same users add up: ``norm`` is l1 or l2."""

    @property
    def loss(self) -> float:
        """Epsilon under l1, mu or sqrt(2 rho) under l2."""
        ...
