"""Noise distributions as immutable objects, each with its privacy cost and a method that draws noise.

The cost of a noise distribution is a function cost(x) of the shift x of one coordinate. If the norm is l1,
the cost is the privacy loss (pure epsilon) of the coordinate. If the norm is l2, the cost is mu^2 = 2 rho.
The costs of independent coordinates are summed in both cases. For l2, continuous Gaussian noise is exactly
mu-GDP, and discrete Gaussian noise is rho-zCDP. Discrete noise on a grid has the same cost as continuous
noise of the same scale.

A plug-in can define its own noise as a subclass of :class:`AdditiveNoise`. This library has not derived the
cost of such a noise. A guarantee with such a noise therefore states that it depends on the declared cost
(:attr:`AdditiveNoise.rests_on`). The library derives costs only for the exact classes in this module. A
subclass of :class:`Laplace` also counts as declared noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_kernels import GAUSSIAN as _GAUSSIAN
from discreet.core.count_kernels import LAPLACE as _LAPLACE

if TYPE_CHECKING:
    from discreet.core.events import NoiseFamily
    from discreet.core.protocols import Coins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Norm = Literal["l1", "l2"]

_FINE, _MOST_REACH = 1024, 2**24  # grid of continuous noise, and largest integer, in sums of probabilities


@dataclass(frozen=True)
class AdditiveNoise(ABC):
    """Distribution of independent noise in every cell.

    name : name in records, guarantees and files.

    norm : "l1" if ``cost`` is a pure epsilon, "l2" if it is mu^2.

    code : code of the noise in compiled functions, or -1 without compiled code.

    homogeneous : True if cost(a x) equals a cost(x) (l1) or a^2 cost(x) (l2) for every a > 0. Strategies with
        weighted columns need this property.
    """

    name: ClassVar[str]
    norm: ClassVar[Norm]
    code: ClassVar[int] = -1
    homogeneous: ClassVar[bool] = False

    @abstractmethod
    def cost(self, shift: float, scale: float) -> float:
        """Return the cost of one coordinate that changes by ``shift`` >= 0, with noise of scale ``scale``."""

    @abstractmethod
    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> Floats:
        """Return ``size`` independent draws of scale ``scale``. With a grid, they are multiples of 1 / grid.

        ``coins`` is the random generator (:class:`~discreet.core.protocols.Coins`). Use no other randomness.
        """

    def log_mass(self, values: Ints, scale: float, grid: int) -> Floats:
        """Return ln P(noise = k / grid) for integers k in ``values`` at noise scale ``scale``.

        Logarithms of small probabilities must be exact. Minus infinity means that a value cannot occur.

        A class need not define this method. The default raises ``NotImplementedError``.
        """
        raise NotImplementedError(f"noise {self.name!r} states no probabilities")

    def std(self, scale: float, grid: int | None) -> float:
        """Return the standard deviation of one draw at this ``scale``, on multiples of 1 / ``grid``.

        The default method computes it from :meth:`log_mass`. The sum over integers ends when the remaining
        mass is at most 1e-12. Raises ``NotImplementedError`` if the class defines no probabilities, and
        ``ValueError`` if more than 1e-12 of the mass is beyond 2^24 multiples.
        """
        unit, reach = grid or _FINE, 2**10
        while reach <= _MOST_REACH:
            values = np.arange(-reach, reach + 1)
            masses = np.exp(self.log_mass(values, scale, unit))
            if masses.sum() > 1.0 - 1e-12:
                return math.sqrt(float((masses * (values / unit) ** 2).sum()))
            reach *= 4
        raise ValueError(f"noise {self.name!r}: log_mass has mass beyond {_MOST_REACH} units: define std")

    def record_name(self, grid: int | None) -> NoiseFamily:
        """Return the name of a derived noise in records. The name depends on whether there is a ``grid``.

        Raises ``ValueError`` for a declared noise.
        """
        raise ValueError(f"noise {self.name!r}: is not derived by this library")

    @property
    def rests_on(self) -> tuple[str, ...]:
        """Declarations that a guarantee with this noise depends on.

        Empty if this library derives the cost.
        """
        if not is_declared(self):
            return ()
        return (
            f"the noise {self.name!r} has the declared distribution and its cost bounds the privacy loss",
        )


@dataclass(frozen=True)
class Laplace(AdditiveNoise):
    """Laplace noise of scale b, with density proportional to exp(-abs(x) / b). With a grid, it is
    discrete.
    """

    name: ClassVar[str] = "laplace"
    norm: ClassVar[Norm] = "l1"
    code: ClassVar[int] = _LAPLACE
    homogeneous: ClassVar[bool] = True

    def cost(self, shift: float, scale: float) -> float:
        return shift / scale

    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> Floats:
        return coins.laplace(scale, size, grid)

    def std(self, scale: float, grid: int | None) -> float:
        """Return the standard deviation of continuous noise of this scale."""
        return math.sqrt(2.0) * scale

    def record_name(self, grid: int | None) -> NoiseFamily:
        return "laplace" if grid is None else "discrete_laplace"


@dataclass(frozen=True)
class Gaussian(AdditiveNoise):
    """Gaussian noise of standard deviation sigma. With a grid, it is discrete."""

    name: ClassVar[str] = "gaussian"
    norm: ClassVar[Norm] = "l2"
    code: ClassVar[int] = _GAUSSIAN
    homogeneous: ClassVar[bool] = True

    def cost(self, shift: float, scale: float) -> float:
        return (shift / scale) * (shift / scale)

    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> Floats:
        return coins.normal(scale, size, grid)

    def std(self, scale: float, grid: int | None) -> float:
        """Return the standard deviation of continuous noise of this scale."""
        return scale

    def record_name(self, grid: int | None) -> NoiseFamily:
        return "gaussian" if grid is None else "discrete_gaussian"


LAPLACE, GAUSSIAN = Laplace(), Gaussian()
NOISES: tuple[type[AdditiveNoise], ...] = (Laplace, Gaussian)
"""Noise distributions whose cost this library derives."""


def is_declared(noise: AdditiveNoise) -> bool:
    """Return True if the author of the noise declares its cost, so that this library does not derive it."""
    return not checks.is_exactly(noise, *NOISES)
