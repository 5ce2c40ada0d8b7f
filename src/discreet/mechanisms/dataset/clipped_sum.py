r"""Noisy sum of clipped vectors, one per user, with the same privacy loss as a release about other users.

Users are in two groups, and each user is in one group. The group of a user is a function of the user's
identifier and of a key, and not of the user's record. Neighbouring data sets differ in the whole record of
one user, and the user's identifier stays the same. Therefore the users in each group are the same in both
data sets, and all records in one of the groups are the same. The first group answers a release with record R.
The query to the second group can depend on everything that was released from the first group:

- if the changed record is in the first group, the loss is that of R. Given this release, the sum of the
  second group has the same distribution in both data sets, so it is post-processing;
- if the changed record is in the second group, the first release has the same distribution in both data sets.
  Given any value of this release, the query is a fixed function, and the loss is that of the sum.

The loss of one user is thus the larger of the two losses (parallel composition). :meth:`ClippedSum.matching`
makes them equal. If the identifier changes too, the user can leave one group and enter the other. The two
losses are then added.

**Sensitivity.** For every user, the query computes a vector y of k numbers. Let v = y / C. If the norm of v
is above 1, v is scaled down to norm 1. The norm is l2 for Gaussian noise and l1 for Laplace noise. C > 0 is
public, and can depend on the first release. Coordinates are then truncated towards 0 to multiples of 1 /
GRID. Truncation does not increase a norm. So each user adds an integer vector of norm at most GRID. If one
user's record is replaced, the triangle inequality gives

    ||v - v'|| <= ||v|| + ||v'|| <= 2,

This bound holds for any k and for both norms. The bound is attained at v = -v'. In units of y, the bound is 2
C. The noise scale and the loss do not depend on C, so the privacy record is known before any data are read. A
vector with an entry that is not finite counts as zero.

The sums are integers below 2^52 in units of the grid (:meth:`ClippedSum.check_people`). Secure noise is
discrete, on the same grid (:func:`~discreet.core.rng.checked_on_grid`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.events import MechanismRecord, NoiseFamily
from discreet.core.releases import Floats
from discreet.core.rng import Randomness, Secure, SecureRng, Seeded, checked_on_grid
from discreet.core.short_repr import brief
from discreet.mechanisms.seeded_rng import SeededRng

Ints = NDArray[np.int64]

GRID = 2**20
_MOST_UNITS = 2**52
_TAIL = 60  # Bound on the noise in units of its scale. A draw exceeds it with probability below e^-60.
_MARGIN = 1.0 - 2.0**-40  # larger than the relative error of a norm of at most 10^4 coordinates
_MOST_SIZE = 10**4
_SCALES = (2.0**-20, 2.0**18)  # range of the scale of exact noise on this grid


@dataclass(frozen=True)
class ClippedSum:
    """Noisy sum over users. The vector of each user is divided by C and clipped to norm 1.

    Parameters
    ----------
    size : int
        Number k of coordinates, from 1 to 10 000.
    noise : str
        ``gaussian``, ``laplace``, ``discrete_gaussian`` or ``discrete_laplace``.
    scale : float
        Scale of the noise, in units of C: the standard deviation, or the Laplace scale.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    __repr__ = brief

    size: int
    noise: NoiseFamily
    scale: float

    FAMILY: ClassVar[str] = "clipped_answers"
    SENSITIVITY: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        checks.integer("size", self.size, 1, _MOST_SIZE)
        checks.choice("noise", self.noise, ("gaussian", "laplace", "discrete_gaussian", "discrete_laplace"))
        checks.real("scale", self.scale, *_SCALES)

    @classmethod
    def matching(cls, record: MechanismRecord, size: int = 1) -> ClippedSum:
        """Return the sum whose noise has the same kind and the same privacy loss as a record.

        record : privacy record of the release of the other group, without a list of exchanges. size : number
            k of coordinates.

        Raises ``ValueError`` if the record lists exchanges, because its epsilon is then below the closed form
        of its loss. Also raises ``ValueError`` if the noise cannot be drawn.
        """
        checks.exactly("record", record, MechanismRecord)
        if record.exchanges:
            raise ValueError(
                "record: must not list exchanges; the epsilon of a clipped sum follows from its loss only"
            )
        return cls(size, record.noise, cls.SENSITIVITY / record.loss * (1.0 + 1e-12))

    @property
    def laplace(self) -> bool:
        """True for Laplace noise, which uses the l1 norm."""
        return self.noise.endswith("laplace")

    @property
    def record(self) -> MechanismRecord:
        """Privacy record of the sum."""
        return MechanismRecord(
            "clipped sum of one vector per user",
            self.noise,
            {self.FAMILY: self.scale},
            {self.FAMILY: self.SENSITIVITY},
            self.SENSITIVITY / self.scale,
        )

    @property
    def multiplier(self) -> float:
        """Standard deviation of the noise for sensitivity 1."""
        return self.scale / self.SENSITIVITY * (math.sqrt(2.0) if self.laplace else 1.0)

    @property
    def std(self) -> float:
        """Standard deviation of the noise of a coordinate, in units of C."""
        return self.SENSITIVITY * self.multiplier

    def check_people(self, people: int) -> None:
        """Raise ``ValueError`` unless sums over this number of users and their noise are exact.

        people : number of users.
        """
        most = math.floor(_MOST_UNITS / GRID - _TAIL * self.scale)
        if checks.integer("people", people, 1) > most:
            raise ValueError(f"people = {people}: must be at most {most} for a clipped sum to stay exact")

    def clipped(self, vectors: ArrayLike, clip: float) -> Ints:
        """Return the (n, k) clipped vectors of n users, in units of C / GRID. The result is **raw data**.

        vectors : (n, k) numbers, one row per user. clip : C > 0.

        Raises ``ValueError`` if an argument is out of range or has another shape.
        """
        clip = checks.positive("clip", clip)
        given = np.asarray(vectors, np.float64)
        if given.ndim != 2 or given.shape[1] != self.size:
            raise ValueError(f"vectors has shape {given.shape}: must be (n, {self.size})")
        given = np.where(np.isfinite(given).all(axis=1, keepdims=True), given, 0.0)
        most = np.abs(given).max(axis=1, initial=0.0)
        # division by the largest entry avoids overflow and underflow
        parts = given / np.where(most > 0.0, most, 1.0)[:, None]
        own = np.abs(parts).sum(axis=1) if self.laplace else np.sqrt((parts * parts).sum(axis=1))
        # a warning would reveal data; a vector with infinite norm is scaled down like any long vector
        with np.errstate(all="ignore"):
            length = most / clip * own
            factor = np.where(length <= _MARGIN, most / clip, _MARGIN / np.where(own > 0.0, own, 1.0))
        return np.trunc(parts * factor[:, None] * GRID).astype(np.int64)

    def release(self, vectors: ArrayLike, clip: float, randomness: Randomness) -> Floats:
        """Return the (k,) noisy sum, in units of C. Each call has the privacy loss of the record.

        vectors : (n, k) numbers, one row per user. clip : C > 0. randomness : source of the noise that fits
            ``noise``.

        Raises ``ValueError`` if an argument is out of range or does not fit the noise.
        """
        checks.exactly("randomness", randomness, Seeded, Secure)
        secure = isinstance(randomness, Secure)
        if secure != self.noise.startswith("discrete_"):
            raise ValueError(
                f"randomness = {randomness!r}: must be of the kind that draws {self.noise} noise"
            )
        units = self.clipped(vectors, clip)
        self.check_people(len(units))
        whole = checked_on_grid(units.sum(axis=0), 1).astype(np.float64) / GRID
        if not isinstance(randomness, Seeded):
            coins = SecureRng()
            draw = coins.laplace if self.laplace else coins.normal
            return checked_on_grid(checked_on_grid(whole, GRID) + draw(self.scale, self.size, GRID), GRID)
        # the stream of another batch: the noise of the first group is drawn from the stream of the run
        simulated = SeededRng(randomness.of_batch(1).keys.noise, 0)
        return whole + (simulated.laplace if self.laplace else simulated.normal)(self.scale, self.size)
