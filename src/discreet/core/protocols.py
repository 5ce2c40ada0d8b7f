"""Protocol types at the kernel's interfaces, for type checkers only.

The kernel imports them only under ``TYPE_CHECKING``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class NoiseDistribution(Protocol):
    """Interface of a noise distribution: the distribution of (released value - estimand).

    The distribution depends on data only if ``exact`` is False.
    """

    @property
    def family(self) -> str:
        """Name of the distribution, e.g. none, laplace, gaussian or discrete_laplace."""
        ...

    @property
    def exact(self) -> bool:
        """True unless the variance depends on data.

        A variance that depends on data is bounded or estimated.
        """
        ...

    def std(self) -> float:
        """Return the standard deviation of one cell in this release. All cells have the same value."""
        ...

    def std_bound(self) -> float:
        """Return a bound on the standard deviation of one cell at this and every earlier release."""
        ...

    def bound(self, failure: float, rows: bool = False) -> float:
        """Return E such that, with probability at least 1 - failure, no abs(noise) exceeds E.

        The bound holds for all cells and all scheduled releases so far at the same time. If ``rows`` is True,
        it holds for the noise in the sum of each row over s' instead.
        """
        ...


class Coins(Protocol):
    """Interface of the random generator of one user's device.

    The generator comes from :mod:`discreet.core.rng` or from the device. With a ``grid``, noise and rewards
    are multiples of 1 / grid (secure generators only). ``exact`` : True if every draw has exactly the named
    distribution and comes from a cryptographic source.
    """

    @property
    def exact(self) -> bool: ...

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """Return ``size`` independent centred Laplace variables."""
        ...

    def normal(self, scale: float, size: int, grid: int | None = None) -> Floats:
        """Return ``size`` independent centred normal variables."""
        ...

    def rounded(self, rewards: Floats, grid: int | None) -> Floats:
        """Round rewards at random to multiples of 1 / grid, without bias."""
        ...

    def below(self, n: int) -> int:
        """Return a uniform integer in [0, n)."""
        ...

    def flip(self, numerator: int) -> bool:
        """Return True with probability exactly numerator / 2^53."""
        ...


class Sensitive(Protocol):
    """Interface of a query that can compute sensitivities for privacy records."""

    def sensitivity(self, norm: Any, weight: Mapping[str, float]) -> float: ...


class Record(Protocol):
    """Public record of the effect of one mechanism on one user, for guarantees and their sentences.

    norm : rule that composes the losses of several records. ``l1``: losses are summed. ``l2``: squares are
        summed. ``losses``: no closed form applies, and the record must be the only one of its guarantee.

    levels : number of noisy sums, messages or batches to which one user can contribute.
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
        """True if :meth:`epsilon` uses privacy-loss distributions. False if epsilon has a closed form."""
        ...

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of a numerical record at this delta in (0, 1), or infinity if there is none."""
        ...

    def line(self, delta: float) -> str:
        """Return one line of text about the mechanism and its loss, for ``Guarantee.composition``."""
        ...

    def sentence(self, trust: Any) -> str:
        """Return a sentence that explains to participating users how their data are protected."""
        ...

    def to_dict(self) -> dict[str, Any]: ...


class Composable(Record, Protocol):
    """Record that can be composed with other records on the same users: ``norm`` is l1 or l2."""

    @property
    def loss(self) -> float:
        """Privacy loss: epsilon for l1; mu or sqrt(2 rho) for l2."""
        ...
