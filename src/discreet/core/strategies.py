"""Strategies over time, which determine the sums and the noise of each release.

The *column* of a user contains the coefficients that multiply the user's records in the noisy sums. The
privacy loss is the joint sensitivity of the query times the largest norm of a column
(:meth:`Strategy.column_norm`). Both use the l1 norm for Laplace noise and the l2 norm for Gaussian noise. The
strategies are:

- :class:`Exact`: no noise, and therefore no guarantee.
- :class:`Prefixes`: correlated noise is added to prefix sums, and a user is in one time step
  (:mod:`discreet.core.correlated_noise.factorization`). Signed-digit trees use some draws before the records
  that the draws protect exist, so only pure-epsilon accounting is valid. The Toeplitz factorization has a
  large l1 norm, so it is used only with Gaussian noise.
- :class:`Batches`: fresh noise is added at each scheduled release to the batch, or to a decaying sum of
  batches. The l2 norm of a column is at most 1 (:mod:`discreet.core.correlated_noise.decaying_sum`). The l1
  norm of a column is 1 only without decay. The norm for a user who returns is that of all columns together.
- :class:`OnDevice`: each user's counters get independent noise, so each user contributes to one noisy sum.

A strategy is a frozen object. The class of a strategy must be registered (:data:`STRATEGIES`), because the
class computes the norms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from discreet.core import checks
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.correlated_noise.factorization import Norm, Walk
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.short_repr import brief

if TYPE_CHECKING:
    from discreet.core.protocols import Record
    from discreet.core.query import SumQuery
    from discreet.core.releases import Schedule

Stream = Literal["exact", "walk", "local", "decaying", "reports"]
STRATEGIES: list[type[Strategy]] = []
"""Classes whose norms this library derives. Subclasses are rejected: they could state other norms."""
MOST_PARTICIPATIONS = 100
"""Largest number of batches that can contain records of one user."""
WALKS: list[type[Walk]] = [OptimalTree, SignedDigits, SquareRoot, Tree]
"""Classes of factorizations that :class:`Prefixes` can use."""
T = TypeVar("T", bound="type[Strategy | Walk]")


def registered(kind: T, kinds: list[Any] = STRATEGIES) -> T:
    """Add a class of this library to :data:`STRATEGIES`, or to :data:`WALKS` if ``kinds`` is that list.

    Raises ``ValueError`` for a class of another package, and if another class has its name.
    """
    # the record of such a class would state a price that this library does not derive
    if not kind.__module__.startswith("discreet."):
        raise ValueError(f"strategy {kind.__name__}: must be a class of this library")
    if kind.__name__ in {known.__name__ for known in kinds}:
        raise ValueError(f"strategy {kind.__name__}: is registered already")
    kinds.append(kind)
    return kind


class Strategy(ABC):
    """Base class of strategies over time.

    stream : name of the strategy in sessions and audits. noisy : True if noise is added to sums.
    """

    stream: ClassVar[Stream]
    noisy: ClassVar[bool] = True

    @abstractmethod
    def column_norm(self, norm: Norm) -> float:
        """Return the largest norm of a user's column, or infinity if the guarantee does not allow noise of
        this norm.
        """

    @property
    def fresh(self) -> bool:
        """True if the losses of single draws can be composed numerically.

        True requires that every draw is made after the records that it protects, and that all entries of a
        user's column are 0 or 1. It also requires that a user has one record.
        """
        return True

    @property
    def weighted(self) -> bool:
        """True if noise terms have non-integer coefficients. The noise then cannot be exact."""
        return False

    def plain(self) -> Self:
        """Return a copy of the strategy that is built from plain values.

        Raises ``ValueError`` if a value has an unexpected class.
        """
        return self

    @property
    def on_device(self) -> bool:
        """True if the user's device draws the randomness, so that no other party sees raw data."""
        return False

    def check(self, query: SumQuery) -> None:  # noqa: B027 - most strategies answer every query
        """Raise ``ValueError`` unless the strategy can answer the query."""

    def record(self, schedule: Schedule) -> Record | None:
        """Return the privacy record of a user's whole loss under this ``schedule``.

        The result is None if the noise in sums determines the loss.
        """
        return None

    @abstractmethod
    def text(self) -> str:
        """Return text that describes the mechanism in a guarantee."""


@registered
@dataclass(frozen=True)
class Exact(Strategy):
    """Strategy that releases sums without noise. The strategy has no privacy guarantee."""

    stream: ClassVar[Stream] = "exact"
    noisy: ClassVar[bool] = False

    def column_norm(self, norm: Norm) -> float:
        return math.inf

    def text(self) -> str:
        return "exact sums"


@registered
@dataclass(frozen=True)
class Prefixes(Strategy):
    """Prefix sums with correlated noise: each release covers all users so far.

    Parameters
    ----------
    walk : factorization :class:`Tree`, :class:`OptimalTree`, :class:`SignedDigits`, :class:`SquareRoot` or a
        strategy matrix (:mod:`discreet.core.correlated_noise.matrix_factorization`). It has the number of
        time steps of the schedule. A mechanism raises ``ValueError`` for another number.
    leaf : unit of a time step: "batch" for the users between two scheduled releases, or "user" for one user.
    """

    __repr__ = brief

    walk: Walk
    leaf: Literal["batch", "user"] = "batch"
    stream: ClassVar[Stream] = "walk"

    def column_norm(self, norm: Norm) -> float:
        return self.walk.column_norm(norm)

    @property
    def fresh(self) -> bool:
        return self.walk.fresh

    @property
    def weighted(self) -> bool:
        return self.walk.weighted and not self.walk.integral

    def plain(self) -> Prefixes:
        return Prefixes(
            plain_walk(self.walk, WALKS), checks.choice("strategy.leaf", self.leaf, ("batch", "user"))
        )

    def text(self) -> str:
        return self.walk.text(self.leaf)


@registered
@dataclass(frozen=True)
class Batches(Strategy):
    """Fresh noise at each scheduled release, on the batch since the previous release or on a decaying sum.

    A mechanism raises ``ValueError`` for a decay outside [0, 1), or within 1e-8 of 1.

    Parameters
    ----------
    decay : factor in [0, 1). The earlier sum is multiplied by it before a batch is added. With 0 the sum
        contains only the batch.
    participations : largest number of batches with records of one user, 1 to 100. All these records are
        replaced together.
    separation : least difference between the numbers of two batches with records of the same user.
    """

    __repr__ = brief

    decay: float = 0.0
    participations: int = 1
    separation: int = 1
    stream: ClassVar[Stream] = "decaying"

    def column_norm(self, norm: Norm) -> float:
        if norm == "l2":
            return Decaying(self.decay).norm_of_returning(self.participations, self.separation)
        return math.inf if self.decay else float(self.participations)

    @property
    def fresh(self) -> bool:
        return not self.decay and self.participations == 1

    def plain(self) -> Batches:
        return Batches(
            Decaying(self.decay).decay,
            checks.integer("strategy.participations", self.participations, 1, MOST_PARTICIPATIONS),
            checks.integer("strategy.separation", self.separation, 1),
        )

    def text(self) -> str:
        if not self.decay:
            return f"one noisy sum for each scheduled batch of users{self._returning()}"
        return (
            f"one noisy sum for each scheduled release, of all batches decaying by {self.decay:g} a "
            "release (a user's column has l2 norm below 1, so it costs no more than one sum)"
            f"{self._returning()}"
        )

    def _returning(self) -> str:
        m, s = self.participations, self.separation
        if m == 1:
            return ""
        apart = f"at most {m} times, at least {s} release{'s' if s > 1 else ''} apart"
        together = f", and their columns have together l2 norm at most {self.column_norm('l2'):.6g}"
        return f"; each user takes part {apart}{together if self.decay else ''}"


@registered
@dataclass(frozen=True)
class OnDevice(Strategy):
    """Noise in every counter of each user, drawn on the user's device."""

    stream: ClassVar[Stream] = "local"

    @property
    def on_device(self) -> bool:
        return True

    def column_norm(self, norm: Norm) -> float:
        return 1.0

    def text(self) -> str:
        return "each user's own counters on the device"


def plain_walk(walk: Any, allowed: Sequence[type[Walk]]) -> Walk:
    """Rebuild the factorization from plain numbers, so that the caller's objects cannot change the
    factorization later.

    Raises ``ValueError`` for a factorization of another class, and for a number that its class does not
    accept.
    """
    checks.exactly("strategy.walk", walk, *allowed)
    numbers: dict[str, Any] = {item.name: getattr(walk, item.name) for item in fields(walk) if item.init}
    for name, value in numbers.items():
        if name == "gaussian":  # otherwise the check and the program could read a value such as 2 differently
            numbers[name] = checks.flag("strategy.walk.gaussian", value)
        elif value is not None and name != "strategy":  # a strategy matrix is copied and checked by its class
            numbers[name] = checks.integer(f"strategy.walk.{name}", value)
    made: Walk = type(walk)(**numbers)
    return made
