"""Plans, messages and releases, the values that are passed between users, a session and a learner.

A :class:`Plan` contains everything that is published before users act. A :class:`Schedule` sets the times of
releases. A :class:`Message` is the value that a user's device sends. A :class:`Release` contains everything
that is ever published about users. This module does not use learners or environments. The types of learners
and environments are in :mod:`discreet.mechanisms.interfaces`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.events import Trust as Trust
from discreet.core.query import Norm as Norm
from discreet.core.query import SumQuery
from discreet.core.registry import parts
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory

if TYPE_CHECKING:
    from discreet.core.guarantee import Guarantee
    from discreet.core.protocols import NoiseDistribution

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = [
    "Estimate", "Floats", "Ints", "Measurement", "Message", "Norm", "Plan", "Release", "Schedule", "Trust",
]  # fmt: skip


# ------------------------------------------------------------------------------ before users act
@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that the server publishes before users act. A plan depends only on releases and public data.

    Parameters
    ----------
    policy : (H, S) integer actions, or (H, S, A) probabilities.
    users : number of users who follow the plan, at least 1.
    context : mapping from names to the public arrays that devices need to encode trajectories (for example
        values of a linear learner).
    last : True if a release follows after these users. If False, the next plan belongs to the same batch, so
        one batch can contain several policies (for exploration or for ties).
    number : set by ``session.begin``. Messages contain this number, and a session rejects messages for other
        plans.
    group : for a query with group returns: the public group of these users.
    return_share : for a query with group returns: the share of the budget, in [0, 1), for group returns in
        the release that closes this batch. The share of the last plan of a batch applies. With 0 the returns
        are not released. None is the share in the query.
    forget : if True, the release that closes this batch is the last one that includes any user so far. Later
        releases contain only later users.
    cut : for a query with clipped rewards: the threshold C of this batch. It is at least that of the last
        batch and at most H. If it is infinite, centred rewards replace clipped rewards permanently, starting
        with the release of this batch. None keeps the threshold. The first plan of a batch sets the value;
        further plans of the batch contain the same value or None.
    """

    __repr__ = brief

    policy: NDArray[Any]
    users: int = 1
    context: Mapping[str, Floats] = field(default_factory=dict)
    last: bool = True
    number: int = 0
    group: int | None = None
    return_share: float | None = None
    forget: bool = False
    cut: float | None = None


# Text of the error that rejects raw data.
ON_DEVICE = "what begin's encoder makes: encoder = session.begin(plan), then encoder(trajectory, plan, coins)"

MOST_RELEASES = 50_000_000  # largest number of releases, because their times are stored in memory (400 MB)


@dataclass(frozen=True, eq=False)
class Schedule:
    """Public times of release.

    The times are fixed before data are read, or limited in number in advance and triggered by releases.

    ``users`` is the number K of users, or None if K is unknown. If neither ``times`` nor ``growth`` is given,
    there is a release after every user. ``max_releases`` limits the number of releases that earlier releases
    trigger. ``answers`` is the number of answers about offline data. ``reads`` ("sums", "measurements") is
    the part of a release that the learner will use. ``plans`` ("any", "deterministic", "stochastic") is the
    kind of the learner's policies. The choice of the mechanism depends on ``reads`` and ``plans``.

    ``times`` contains the number of users submitted at each release, in ascending order, starting with 0.
    Release 0 is made before any user, and its values are 0 without noise. ``growth`` sets geometric times:
    next = max(k + 1, ceil(growth * k)). 1.0 means a release after every user.

    ``pooled_shares`` has one value in (0, 1) for each of ``release_times``: the share of the budget for the
    pooled families of the query in that release (the first value is for release 0, without noise). Only
    mechanisms with separate noise for each release support ``pooled_shares``.

    ``queries`` : one query for each batch between consecutive times of release, instead of the learner's
        standing query. No user is in two batches, so every query is answered with the full budget. The
        session then has a :class:`~discreet.mechanisms.batch_queries.BatchChannel`. Users after the last
        release are in no batch.

    ``final`` : if True, the last of ``times`` may equal ``users``. Offline data sets need a release after the
        last user (:meth:`one_shot`). An online session raises ``ValueError`` for such a release, since no
        user remains who could use it.
    """

    __repr__ = brief

    users: int | None
    times: Ints | None = None
    growth: float | None = None
    max_releases: int | None = None
    answers: int = 0
    reads: Literal["sums", "measurements"] = "sums"  # part that the learner uses; determines the mechanism
    plans: Literal["any", "deterministic", "stochastic"] = "any"  # kind of the learner's policies
    pooled_shares: Floats | None = None
    final: bool = False
    queries: tuple[SumQuery, ...] | None = None

    @classmethod
    def one_shot(cls, users: int, plans: Literal["any", "deterministic", "stochastic"] = "any") -> Schedule:
        """Return the schedule of offline learners: one release after all ``users`` (at least 1).

        plans : kind of policies that these users follow, as in the class. Raises ``ValueError`` for other
            values.
        """
        users = checks.integer("users", users, 1)
        return cls(users, np.array([0, users], np.int64), plans=plans, final=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "final", checks.flag("final", self.final))
        if self.final and (self.times is None or self.users is None):
            raise ValueError("final = True: must be given with users and the times of release")
        checks.choice("reads", self.reads, ("sums", "measurements"))
        checks.choice("plans", self.plans, ("any", "deterministic", "stochastic"))
        if self.users is not None:
            object.__setattr__(self, "users", checks.integer("users", self.users, 1))
        if self.growth is not None:
            object.__setattr__(self, "growth", checks.real("growth", self.growth, 1.0))
        if self.times is not None:
            times = np.array(self.times, np.int64)  # copied, so that no other code can change it
            if times.ndim != 1 or times.size == 0 or times[0] != 0 or (np.diff(times) <= 0).any():
                raise ValueError("times must be ascending integers that start with 0")
            if self.users is not None and times[-1] >= self.users + self.final:
                allowed = "at most" if self.final else "below"
                raise ValueError(
                    f"times[-1] = {times[-1]}: must be {allowed} users = {self.users} (no user is left)"
                )
            times.flags.writeable = False
            object.__setattr__(self, "times", times)
        if self.max_releases is not None:
            most = checks.integer("max_releases", self.max_releases, 1)
            object.__setattr__(self, "max_releases", most)
        if self.queries is not None:
            object.__setattr__(self, "queries", tuple(self.queries))
            parts().query_checks.check_queries(self)
        if self.pooled_shares is not None:
            shares = checks.floats("pooled_shares", self.pooled_shares, self.release_times.shape).copy()
            if shares.min() <= 0.0 or shares.max() >= 1.0:
                raise ValueError("pooled_shares: every entry must be in (0, 1)")
            shares.flags.writeable = False
            object.__setattr__(self, "pooled_shares", shares)

    @cached_property
    def release_times(self) -> Ints:
        """Number of users who were submitted before each release, starting with 0. The array is read-only.

        Raises ``ValueError`` if K is unknown.
        """
        if self.times is not None:
            return self.times
        if self.users is None:
            raise ValueError("users = None: release times of an open-ended schedule are not a list")
        if self.growth is None or self.growth == 1.0:
            if self.users > MOST_RELEASES:
                raise ValueError(
                    f"users = {self.users}: must be at most {MOST_RELEASES} with a release after every user; "
                    "use a public schedule (replan_growth = 1.1)"
                )
            times = np.arange(self.users, dtype=np.int64)
        else:
            points, k = [], 0
            while k < self.users:
                points.append(k)
                k = max(k + 1, int(np.ceil(self.growth * k)))
            times = np.array(points, np.int64)
        times.flags.writeable = False
        return times

    def leaf_at(self, n: int, leaf: Literal["batch", "user"] = "batch") -> int:
        """Return the number of time steps in the first n users.

        ``leaf`` : unit of a time step, "batch" or "user". Raises ``RuntimeError`` between scheduled releases.
        """
        if self.users is None:
            return n
        times = self.release_times
        at = int(np.searchsorted(times, n))
        if at == times.size or times[at] != n:
            raise RuntimeError(f"release: {n} users is not one of the scheduled times of release")
        return n if leaf == "user" else at

    @property
    def releases(self) -> int | None:
        """Largest number of noisy releases (release 0 is not counted), or None if the number is unlimited."""
        if self.max_releases is not None:
            return self.max_releases
        if self.users is None and self.times is None:
            return None
        return max(1, self.release_times.size - 1)


# ------------------------------------------------------------------------------ releases


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimate of one family in a release: the value, its noise distribution, and the estimand."""

    __repr__ = brief

    value: Floats
    law: NoiseDistribution
    estimand: Literal["sum", "weighted"] = "sum"
    covers: int = 0  # Number of users in the value.
    effective: float = 0.0  # Effective sample size (sum w)^2 / sum w^2; equals covers for unweighted sums.


@dataclass(frozen=True, eq=False)
class Measurement:
    """Part of a release that describes the newest batch. Other measurements do not share its noise.

    The values estimate gain * S_i with S_i = x_i + decay * S_{i-1} over the batches x_j. The weights are
    public, so rates can be fitted to all measurements by generalised least squares. With decay 0 the
    measurement is the sum of the batch, and ``covers`` is the number of users in the batch. Otherwise it is a
    weighted sum over all users so far.

    If rewards are clipped, the measurement has one of the two reward families. The measurement has group
    returns only if they have a share of the budget.
    """

    __repr__ = brief

    estimates: Mapping[str, Estimate]
    decay: float
    gain: float


@dataclass(frozen=True, eq=False)
class Release:
    """Everything that a learner sees about users: noisy sums, their noise distributions, and the guarantee.

    Parameters
    ----------
    estimates : one :class:`Estimate` for each family of the query ("transition_counts" (H, S, A, S), "visits"
        and "reward_sums" (H, S, A), ...). ``value`` includes noise and can be negative. ``law`` is the
        distribution of that noise. ``covers`` is the number of users.
    users : number of users who were submitted so far. It is public.
    number : index of the release. Release 0 is made before any user. Its values are 0, without noise.
    guarantee : guarantee of the whole session, not only of this release.
    measurement : noisy sums of the users since the last release, with separate noise. None if releases share
        noise (trees).
    """

    __repr__ = brief

    estimates: Mapping[str, Estimate]
    users: int  # number of users who were submitted so far; it is public
    number: int  # release 0 is made before any user; its values are 0, without noise
    guarantee: Guarantee
    measurement: Measurement | None = None  # None if releases share noise (trees)


# ------------------------------------------------------------------------------ on a user's device


@dataclass(frozen=True, eq=False)
class Message:
    """Value that a user's device sends.

    The value is a raw trajectory, or an encoded message for the trust models "local" and "shuffle".

    plan : number of the plan that the user followed.

    trajectory, message : exactly one of these two is set. A local message is an array. A shuffle message is
        the bytes of an envelope (:class:`~discreet.device.message_envelope.Envelope`).
    """

    plan: int
    trajectory: Trajectory | None = None
    message: Floats | Ints | bytes | None = None


def read_only(tables: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """Make the arrays of a release read-only and return the mapping."""
    for table in tables.values():
        table.flags.writeable = False
    return tables
