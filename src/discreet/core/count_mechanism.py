r"""Mechanisms of counts: a query, a strategy over time, a noise distribution and its scales.

These parts determine the privacy loss. A :class:`CountMechanism` is a frozen object. A privatizer creates the
mechanism, and the mechanism computes its records, guarantee and noise distributions.
:class:`~discreet.core.count_channels.CountChannel` draws the noise. The guarantee is always computed and
never passed in. Other scales therefore give another stated epsilon. Parts that do not fit together are
rejected.

The privacy loss is a product of two factors. The first factor is the joint sensitivity of the query. The
noise determines the norm and the unit of this sensitivity. The second factor is the largest norm of a user's
column of the strategy (:mod:`discreet.core.strategies`). If scales change from release to release, the loss
of each release must be at most the loss with ``scales``. The total loss is then a weighted sum of losses. The
weights sum to at most 1. A new split of the budget at each release does not change the joint sensitivity
(:mod:`discreet.core.clipped_returns`).

With exact noise (``source = "secure"``) all values are on a grid. Rewards are multiples of 1 /
``reward_grid``, and counts are integers. The noise is discrete on the same grid, and its size is within the
range that can be drawn exactly.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from discreet.core import checks
from discreet.core import clipped_returns as steered
from discreet.core.correlated_noise.decaying_sum import FINE, Decaying
from discreet.core.correlated_noise.factorization import Walk
from discreet.core.count_query import CountQuery
from discreet.core.events import Coordinate
from discreet.core.guarantee import Guarantee, MechanismRecord, guarantee_of, no_guarantee
from discreet.core.noise.noises import AdditiveNoise, is_declared
from discreet.core.query import FamilyQuery
from discreet.core.registry import parts
from discreet.core.releases import Floats, Norm, Schedule, Trust
from discreet.core.rng import Randomness, Secure, Seeded
from discreet.core.short_repr import brief
from discreet.core.strategies import STRATEGIES, Batches, Exact, Prefixes, Strategy, Stream

if TYPE_CHECKING:
    from discreet.core.part_protocols import ReleaseDistributions
    from discreet.core.protocols import NoiseDistribution, Record

FINEST_ACCOUNTED = 4096  # finest grid of rewards for numerical accounting; finer grids have too many values


@dataclass(frozen=True)
class Stated:
    """Options that determine how a privacy loss is stated. The options do not change the loss.

    A mechanism raises ``ValueError`` for a delta outside (0, 1), and if the noise needs a delta but ``delta``
    is None.

    Parameters
    ----------
    delta : delta in (0, 1) at which epsilon is stated if the noise has no pure epsilon.
    epsilon : nominal epsilon that was requested, or None.
    numerical : if True, epsilon is computed from privacy-loss distributions instead of a closed form.
    """

    delta: float | None = None
    epsilon: float | None = None
    numerical: bool = False


# ------------------------------------------------------------------------------ the mechanism


class SumMechanism(ABC):
    """Common base class of mechanisms of sums. The guarantee is computed from the privacy records."""

    query: Any
    strategy: Any  # shuffled mechanisms have no strategy
    source: Literal["seeded", "secure"]
    stated: Stated

    @property
    @abstractmethod
    def trust(self) -> Trust:
        """Trust model: the party that sees raw data."""

    @property
    @abstractmethod
    def records(self) -> tuple[Record, ...]:
        """Privacy records from which the guarantee is computed. The tuple is empty without privacy."""

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of every participating user, computed from the records."""
        episodes = max(getattr(self.query, "episodes", 1), self.participations)
        if not self.records:
            return no_guarantee(self.source, episodes=episodes)
        pure = all(record.norm == "l1" and not record.numerical for record in self.records)
        return guarantee_of(
            self.trust, self.records, randomness=self.source, delta=None if pure else self.stated.delta,
            epsilon_nominal=self.stated.epsilon, episodes=episodes,
        )  # fmt: skip

    @property
    def walk(self) -> Walk | None:
        """Factorization of prefix sums, or None if the strategy does not use one."""
        strategy = getattr(self, "strategy", None)
        return strategy.walk if isinstance(strategy, Prefixes) else None

    @property
    def leaf(self) -> Literal["batch", "user"]:
        """Unit of a time step: "batch" (users between two releases), or "user" for some prefix sums."""
        strategy = getattr(self, "strategy", None)
        return strategy.leaf if isinstance(strategy, Prefixes) else "batch"

    @property
    def levels(self) -> int:
        """Largest number of noisy sums that contain the records of one user."""
        return self.participations if self.walk is None else self.walk.levels

    @property
    def participations(self) -> int:
        """Largest number of batches with records of one user. All these records are replaced together."""
        strategy = getattr(self, "strategy", None)
        return strategy.participations if isinstance(strategy, Batches) else 1

    def _check_drawn(self, randomness: Any, own: int | None) -> None:
        """Raise ``ValueError`` unless ``randomness`` can draw noise on the grid ``own`` of rewards."""
        checks.exactly("randomness", randomness, Seeded, Secure)
        grid = None if own is None else grid_of(randomness)
        if randomness.kind != self.source or grid != own:
            raise ValueError(
                f"randomness = {randomness!r}: this mechanism is of a {self.source} source"
                + (f" with reward_grid = {own}" if own else "")
            )


@dataclass(frozen=True, eq=False)
class CountMechanism(SumMechanism):
    """Mechanism of counts: the query, the strategy, the noise and its scales, all fixed before data are read.

    Parameters
    ----------
    query : CountQuery or FamilyQuery
    schedule : Schedule
        Public times of release.
    source : "seeded" or "secure"
        Source of the random bits of the noise. With ``secure``, the noise is exact and discrete.
    strategy : Exact, Prefixes, Batches, OnDevice or Reported
    noise : noise distribution of every cell (:mod:`discreet.core.noise.noises`), or None if no noise is added
        to sums.
    scales : (families,) scale of one draw for each family, in the order of the query. It is the Laplace scale
        or the standard deviation.
    reward_grid : integer g if noise is secure: rewards are multiples of 1 / g. None if noise is seeded.
    release_scales : (releases + 1, families) scales of each release, used instead of ``scales``. With shape
        (0, families), ``scales`` are used at every release.
    stated : options that determine how the privacy loss is stated.
    stored : if True, the users are an offline data set, which is released once. A user can then have several
        episodes.

    Raises
    ------
    ValueError
        If the parts do not fit together, so that the loss differs from the one derived in the module
        docstring.
    """

    __repr__ = brief
    __reduce__ = checks.by_constructor

    query: CountQuery | FamilyQuery
    schedule: Schedule
    source: Literal["seeded", "secure"]
    strategy: Strategy
    noise: AdditiveNoise | None = None
    scales: Floats = None  # type: ignore[assignment]  # the constructor replaces None by an array
    reward_grid: int | None = None
    release_scales: Floats = None  # type: ignore[assignment]
    stated: Stated = field(default_factory=Stated)
    stored: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        checks.exactly("query", self.query, CountQuery, FamilyQuery)
        checks.exactly("schedule", self.schedule, Schedule)
        checks.exactly("stated", self.stated, Stated)
        checks.exactly("strategy", self.strategy, *STRATEGIES)
        checks.choice("source", self.source, ("seeded", "secure"))
        checks.flag("stored", self.stored)
        checks.flag("stated.numerical", self.stated.numerical)
        if self.noise is not None:
            if not isinstance(self.noise, AdditiveNoise):
                raise ValueError(
                    f"noise = {self.noise!r}: must be Laplace(), Gaussian() or another AdditiveNoise"
                )
            # a declared noise is copied, so that later changes of the caller's object change no draw
            put(self, "noise", deepcopy(self.noise) if is_declared(self.noise) else type(self.noise)())
        if self.reward_grid is not None:
            put(self, "reward_grid", checks.integer("reward_grid", self.reward_grid, 2))
        put(self, "strategy", self.strategy.plain())
        put(self, "query", self.query.copy())
        put(self, "schedule", replace(self.schedule))
        families = len(self.query.row_families)
        own = np.zeros(families) if self.scales is None else self.scales
        put(self, "scales", checks.floats("scales", own, (families,)))
        given = self.release_scales
        if given is None or not np.size(given):  # an array without rows sets no scales
            given = np.zeros((0, families))
        put(self, "release_scales", checks.floats("release_scales", given, np.shape(given)))
        self.scales.flags.writeable = self.release_scales.flags.writeable = False
        self._check_parts()
        if self.noisy:
            self._check_noise()

    # -------------------------------------------------------------------------- compatibility checks
    def _check_parts(self) -> None:
        """Raise ``ValueError`` if the strategy cannot answer the query on the schedule."""
        query, strategy = self.query, self.strategy
        if self.stored or self.strategy.on_device:
            _ = self.counts
        if query.stored_only and not self.stored:
            raise ValueError(
                f"query.episodes = {query.episodes}, first visits: only for offline data (stored = True)"
            )
        if query.steered:
            steered.check_mechanism(self)
        if self.stored and (strategy not in (Exact(), Batches()) or self.release_scales.size):
            raise ValueError("stored = True: offline data are released once, by plain Exact() or Batches()")
        if isinstance(strategy, Prefixes):
            leaves = leaves_of(self.schedule, strategy.leaf)
            if strategy.walk.leaves != leaves:
                raise ValueError(
                    f"strategy.walk: has {strategy.walk.leaves} leaves, not the {leaves} of the schedule"
                )
        if isinstance(strategy, Batches):
            if not self.stored and self.schedule.users is None:
                raise ValueError("schedule.users = None: Batches(...) need a known number of users")
            if strategy.participations > 1 and (type(query) is not CountQuery or query.steered):
                raise ValueError(
                    f"strategy.participations = {strategy.participations}: must be 1 unless the query is a "
                    "CountQuery without groups and cut"
                )
        strategy.check(query)
        if not self.noisy:
            if self.noise is not None or np.any(self.scales) or self.release_scales.size:
                raise ValueError(f"noise, scales: {type(strategy).__name__}() has no noise in sums")
            if self.reward_grid is not None:
                raise ValueError(f"reward_grid = {self.reward_grid}: must be None without noise in sums")

    def _check_noise(self) -> None:
        """Raise ``ValueError`` if the privacy loss of the noise differs from the loss in the records."""
        scales = self.scales
        if self.noise is None:
            raise ValueError("noise = None: must be LAPLACE or GAUSSIAN")
        if not (scales > 0).all():
            raise ValueError(f"scales = {scales}: must be positive")
        if (self.reward_grid is not None) != (self.source == "secure"):
            raise ValueError(
                f"reward_grid = {self.reward_grid}: must be given with source 'secure', and only then"
            )
        if not math.isfinite(self.strategy.column_norm(self.norm)):
            raise ValueError(
                f"noise = {self.noise!r}: must be of the other norm, since a user's column of "
                f"{self.strategy!r} has no finite {self.norm} norm that prices it"
            )
        if not isinstance(self.strategy, Batches) and not math.isclose(self.overlap, 1.0, rel_tol=1e-12):
            raise ValueError(f"strategy = {self.strategy!r}: its column norm is not that of its levels")
        if self.strategy.weighted and self.source == "secure":
            raise ValueError(
                "source = 'secure': must be 'seeded' with least-squares trees and square roots, since "
                "coefficients of their sums are not integers"
            )
        if self.release_scales.size:
            self._check_release_scales(self.release_scales)
        if self.declared:
            parts().declared.check(self)
        if self.stated.numerical:
            self._check_accounted()
        if self.source == "secure":
            self._check_exact()

    def _check_release_scales(self, by_release: Floats) -> None:
        if not isinstance(self.strategy, Batches) or self.query.cut:
            raise ValueError("release_scales: are for Batches(...), and not for cut rewards")
        shape = (self.schedule.release_times.size, self.scales.size)
        if by_release.shape != shape:
            raise ValueError(f"release_scales has shape {by_release.shape}: must be {shape}")
        if self.fixed_point:
            raise ValueError("release_scales: rounding of a decaying sum is charged at one set of scales")
        if not (by_release > 0).all():
            raise ValueError("release_scales: must be positive")
        whole = self._joint(self.scales)
        for release, scales in enumerate(by_release[1:], 1):
            if self._joint(scales) > whole * (1 + 1e-9):
                raise ValueError(f"release_scales[{release}]: must not cost more than scales, {whole:.6g}")

    def _joint(self, scales: Floats) -> float:
        return self.query.sensitivity(
            self.norm, dict(zip(self.query.row_families, (1.0 / scales).tolist(), strict=True))
        )

    def _check_accounted(self) -> None:
        """Raise ``ValueError`` if privacy-loss distributions of single draws do not give a valid bound."""
        if (
            not self.strategy.fresh
            or parts().calibration.shift_patterns(self.query, 1) is None
            or self.release_scales.size
        ):
            raise ValueError(
                "stated.numerical = True: needs noise that is drawn after the records that it hides, and a "
                "query of counts per step"
            )
        if (self.reward_grid or 1) > FINEST_ACCOUNTED:
            raise ValueError(f"reward_grid = {self.reward_grid}: must be at most {FINEST_ACCOUNTED} here")

    def _check_exact(self) -> None:
        """Raise ``ValueError`` if exact noise of these scales, or a sum of such noise, would be rounded."""
        for family in self.query.listed:
            center = getattr(family, "center", None)
            if center is not None and not (center * (self.reward_grid or 0)).is_integer():
                raise ValueError(
                    f"family {family.name!r}: center = {center}: must be a multiple of 1 / {self.reward_grid}"
                    ", as rewards are under secure randomness"
                )
        Secure(self.reward_grid or 0)  # raises unless the grid is a power of two
        epochs = self.schedule.users is None and not self.stored
        # A tree adds at most 63 draws. If more draws are added, their sum exceeds 2^52 units with probability
        # e^-8000 at most.
        many = 1.0 if self.walk is None else self.walk.spread
        widest = self.scales
        if self.query.steered:
            widest = steered.widest_scales(self.counts, widest)
        others = ((scales, False) for scales in (widest, *self.release_scales[1:]))
        for scales, growing in ((self.scales, epochs), *others):
            # the scale of an epoch is at most 52 times this scale
            low, high = 2.0**-20, min(2.0 ** (32 if growing else 38), 2.0**44 / many)
            for name, scale in zip(self.query.row_families, scales.tolist(), strict=True):
                units = scale * self.noise_factor * (self.grid(name) or 1)
                if not low <= units <= high:
                    raise ValueError(
                        f"{name}: exact noise of scale {scale:.6g} is {units:.6g} grid units, must be in "
                        f"[{low:.3g}, {high:.3g}]; use another budget, weight or reward_grid"
                    )
        if self.fixed_point:
            users, horizon = self.schedule.users or 0, self.query.layout.horizon
            if not all(Decaying(self.decay).fits(users, horizon, b) for b in (*self.scales, *widest)):
                raise ValueError(
                    f"strategy.decay = {self.decay:g}: sums of {users} users and noise of scales "
                    f"{self.scales} do not stay exact in fixed point"
                )

    # -------------------------------------------------------------------------- named parts
    @property
    def stream(self) -> Stream:
        """Name of the strategy that sessions and audits use."""
        return self.strategy.stream

    @property
    def asks(self) -> Literal["plain", "group", "cut"]:
        """Value that plans can set: "group", "cut" (clipping threshold of rewards) or "plain" (none)."""
        if self.query.steered:
            return "group" if self.query.groups else "cut"
        return "plain"

    @property
    def noisy(self) -> bool:
        """True if noise is added to sums."""
        return self.strategy.noisy

    @property
    def decay(self) -> float:
        """Decay of a batch strategy, or 0 for other strategies."""
        return self.strategy.decay if isinstance(self.strategy, Batches) else 0.0

    @property
    def reports(self) -> object | None:
        """Parameters of the randomized responses that devices or the server draw, or None."""
        return getattr(self.strategy, "reports", None)

    def scales_at(self, release: int) -> Floats:
        """Return the noise scales of a scheduled release, shape (families,). The first release is 1."""
        return self.release_scales[release] if self.release_scales.size else self.scales

    @property
    def fixed_point(self) -> bool:
        """True for a decaying sum with exact noise. The sums and the noise are then multiples of 2^-20."""
        return self.reward_grid is not None and self.decay > 0.0

    @property
    def noise_factor(self) -> float:
        """Scale of one draw, relative to ``scales``. In fixed point the noise is divided by the gain."""
        return 1.0 / Decaying(self.decay).gain if self.fixed_point else 1.0

    def grid(self, name: str) -> int | None:
        """Return g if released values of the family ``name`` are multiples of 1 / g.

        The result is None if these values are continuous (seeded noise).
        """
        if self.fixed_point:
            return FINE
        return self.data_grid(name)

    def data_grid(self, name: str) -> int | None:
        """Return g if a user's values of family ``name`` are multiples of 1 / g.

        The result is None if the values are continuous.
        """
        if self.reward_grid is None:
            return None
        return 1 if self.query.integral(name) else self.reward_grid

    # -------------------------------------------------------------------------- privacy loss
    @property
    def norm(self) -> Norm:
        """Norm of the change that one user causes in the sums: l1 or l2, as required by the noise."""
        return "l2" if self.noise is None else self.noise.norm

    @property
    def overlap(self) -> float:
        """Norm of a user's columns relative to ``levels`` columns without overlap. Above 1 if a user returns
        to a decaying sum.
        """
        power = 1.0 if self.norm == "l1" else 0.5
        return self.strategy.column_norm(self.norm) / self.levels**power

    @property
    def counts(self) -> CountQuery:
        """Query of this mechanism, which must be a :class:`CountQuery`. Raises ``ValueError`` for other
        queries.
        """
        if not isinstance(self.query, CountQuery):
            raise ValueError(f"query = {self.query!r}: must be a CountQuery for {self.strategy!r}")
        return self.query

    @property
    def declared(self) -> bool:
        """True if the privacy loss depends on declarations that this library has not derived."""
        return self.noise is not None and bool(self.noise.rests_on or self.query.rests_on)

    @property
    def family(self) -> int:
        """Number that identifies the noise distribution in compiled code; 0 without noise.

        Raises ``ValueError`` for a user-declared noise, because compiled code cannot draw it.
        """
        if self.noise is None:
            return 0
        if is_declared(self.noise):
            raise ValueError(f"noise {self.noise.name!r}: has no compiled code, only its own draws")
        return self.noise.code

    @property
    def trust(self) -> Trust:
        """Trust model: the party that sees raw data."""
        if isinstance(self.strategy, Exact):
            return "none"
        if self.strategy.on_device:
            return "local"
        return "central" if self.stored else "joint"

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """Public privacy records of the mechanism. The tuple is empty without noise."""
        whole = self.strategy.record(self.schedule)
        if whole is not None or self.noise is None:
            return () if whole is None else (whole,)
        grid = self.reward_grid
        exchanges: tuple[tuple[Coordinate, ...], ...] = ()
        if self.stated.numerical:
            calibration = parts().calibration
            patterns = calibration.shift_patterns(self.query, self.levels) or ()
            named = calibration.named(self.query, self.scales, grid)
            exchanges = calibration.exchanges(patterns, self.noise.record_name(grid), named)
        rounding = 0.0
        if self.fixed_point:
            releases = self.schedule.release_times.size - 1
            rounding = Decaying(self.decay).rounding(releases, self.query.layout.horizon)
        scales = dict(zip(self.query.row_families, self.scales.tolist(), strict=True))
        words = parts().mechanism_names.name_of(self)
        if self.declared:
            return (parts().declared.record_of(self, words),)
        name = self.noise.record_name(grid)
        return (
            MechanismRecord.of(
                self.query, words, name, scales, self.levels, exchanges, rounding, self.overlap
            ),
        )

    @cached_property
    def laws(self) -> ReleaseDistributions:
        """Noise distributions of every release, known before any data are read."""
        return parts().count_laws(self)

    def laws_at(self, n: int) -> dict[str, NoiseDistribution]:
        """Return the noise distribution of every family in the sums over the first n users."""
        return self.laws.at(n)

    def check_source(self, randomness: Any) -> None:
        """Raise ``ValueError`` unless ``randomness`` can draw the noise of this mechanism."""
        self._check_drawn(randomness, self.reward_grid)


# ------------------------------------------------------------------------------ public values


def grid_of(randomness: Randomness) -> int | None:
    """Return g if noise is exact: rewards are then multiples of 1 / g. Otherwise return None."""
    return randomness.reward_grid if isinstance(randomness, Secure) else None


def leaves_of(schedule: Schedule, leaf: Literal["batch", "user"]) -> int | None:
    """Return the number of time steps in a schedule, or None if the number of users is unknown."""
    if schedule.users is None:
        return None
    if leaf == "user":
        return schedule.users + schedule.final
    return int(schedule.release_times.size)
