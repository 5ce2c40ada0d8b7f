"""AdditiveNoise as a value: what the shift of one coordinate costs, and how a draw is made.

A noise of norm l1 costs cost(x) = the privacy loss (pure epsilon) of a coordinate that moves by x; the costs
of independent coordinates are summed. A noise of norm l2 costs mu^2 = 2 rho, which is also summed: continuous
Gaussian noise is then exactly mu-GDP, discrete Gaussian noise is rho-zCDP. Discrete noise on a grid costs as
much as continuous noise of its scale.

A noise of one's own is a subclass of :class:`AdditiveNoise`. This library has not derived its cost, so a
guarantee that uses it says on what it rests (:attr:`AdditiveNoise.rests_on`). Trust is a matter of the exact
class: a subclass of :class:`Laplace` is a noise of one's own too.

**Price of a declared cost.** The largest shift need not be the dearest one. (Doubled integer noise hides
shifts of two units and reveals shifts of one unit.) A record that moves by at most x can move by less, so the
price of x is the largest cost of all shifts up to x on the grid (:func:`price`). Sums over steps and episodes
use the triangle inequality, which needs cost(x + y) <= cost(x) + cost(y) (l2: of its root).
:func:`check_declared` examines this, monotone prices and homogeneity on all shifts up to the largest of a
query.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core.count_kernels import GAUSSIAN as _GAUSSIAN
from discreet.core.count_kernels import LAPLACE as _LAPLACE

if TYPE_CHECKING:
    from discreet.core.events import NoiseFamily
    from discreet.core.protocols import Coins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Norm = Literal["l1", "l2"]

__all__ = ["GAUSSIAN", "LAPLACE", "NOISES", "Gaussian", "Laplace", "AdditiveNoise", "is_declared", "price"]

_MOST_SHIFTS = 2**16  # a declared cost is evaluated at every shift of the grid up to the largest one
_FINE, _MOST_REACH = 1024, 2**24  # grid of continuous noise, and largest integer, in sums of probabilities
_NEAR = 1e-9  # relative difference of two computations of one cost


@dataclass(frozen=True)
class AdditiveNoise(ABC):
    """Distribution of independent noise in every cell.

    name : in records, guarantees and files. norm : "l1" if ``cost`` is a pure epsilon, "l2" if it is mu^2.
    code : number of compiled noise, -1 without compiled code. homogeneous : True if cost(a x) is a cost(x)
    (l1) or a^2 cost(x) (l2) for every a, so that a weighted column of a strategy has a price.
    """

    name: ClassVar[str]
    norm: ClassVar[Norm]
    code: ClassVar[int] = -1
    homogeneous: ClassVar[bool] = False

    @abstractmethod
    def cost(self, shift: float, scale: float) -> float:
        """Return the cost of one coordinate that moves by ``shift`` >= 0, under noise of this scale."""

    @abstractmethod
    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> Floats:
        """Return ``size`` independent draws of scale ``scale``, multiples of 1 / grid if there is a grid.

        coins : random generator (:class:`~discreet.core.protocols.Coins`), the only source of randomness.
        """

    def log_mass(self, values: Ints, scale: float, grid: int) -> Floats:
        """Return ln P(noise = k / grid) for integers k in ``values`` at noise scale ``scale``; optional.

        Logarithms of small probabilities must be exact: minus infinity means that a value cannot occur.

        Raises ``NotImplementedError`` if the class does not define it.
        """
        raise NotImplementedError(f"noise {self.name!r} states no probabilities")

    def std(self, scale: float, grid: int | None) -> float:
        """Return the standard deviation of one draw; by default, computed from :meth:`log_mass`.

        The sum over integers ends where it has all mass except 1e-12. Raises ``NotImplementedError`` if the
        class defines no probabilities.
        """
        unit, reach = grid or _FINE, 2**10
        while True:
            values = np.arange(-reach, reach + 1)
            masses = np.exp(self.log_mass(values, scale, unit))
            if masses.sum() > 1.0 - 1e-12 or reach > _MOST_REACH:
                return math.sqrt(float((masses * (values / unit) ** 2).sum()))
            reach *= 4

    def record_name(self, grid: int | None) -> NoiseFamily:
        """Return the name in records: discrete noise has another one than continuous noise."""
        raise ValueError(f"noise {self.name!r}: is not derived by this library")

    @property
    def rests_on(self) -> tuple[str, ...]:
        """What a guarantee with this noise rests on beside this library's derivations."""
        if not is_declared(self):
            return ()
        return (
            f"the noise {self.name!r} has the declared distribution and its cost bounds the privacy loss",
        )


@dataclass(frozen=True)
class Laplace(AdditiveNoise):
    """Laplace noise of scale b: density proportional to exp(-abs(x) / b); discrete on a grid."""

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
    """Gaussian noise of standard deviation sigma; discrete on a grid."""

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
"""Noises whose cost this library derives."""


def is_declared(noise: AdditiveNoise) -> bool:
    """Return whether the noise is one of a user's own, whose cost this library has not derived."""
    return type(noise) not in NOISES


def price(noise: AdditiveNoise, scale: float, unit: int) -> Callable[[float], float]:
    """Return the price of a coordinate that moves by at most x on the grid of 1 / ``unit``.

    For a declared noise it is the largest cost of all shifts up to x. Raises ``ValueError`` if a cost is
    negative or not finite, or if x has more than 65 536 shifts.
    """
    if not is_declared(noise):
        return lambda shift: noise.cost(shift, scale)

    def worst(shift: float) -> float:
        steps = math.ceil(shift * unit - _NEAR)
        if steps > _MOST_SHIFTS:
            raise ValueError(
                f"noise {noise.name!r}: a coordinate moves by {steps} units, at most {_MOST_SHIFTS}"
            )
        costs = [float(noise.cost(k / unit, scale)) for k in range(1, steps + 1)]
        if not all(math.isfinite(cost) and cost >= 0.0 for cost in costs):
            raise ValueError(f"noise {noise.name!r}: cost must be finite and not negative at every shift")
        return max(costs, default=0.0)

    return worst
