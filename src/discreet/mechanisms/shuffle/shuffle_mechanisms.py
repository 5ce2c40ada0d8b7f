"""Mechanisms of the shuffle model: the flips or the reports that the devices of each batch send.

These mechanisms correspond to :class:`~discreet.core.count_mechanism.CountMechanism`, which is for trusted
servers and single devices. Each user is in one batch, and the noise of that batch determines the privacy of
the shuffler's output (:mod:`discreet.accounting.binomial_noise`,
:mod:`discreet.accounting.shuffle_amplification`). The privacy loss of all batches together is the largest
loss of one batch.

Sources: Bai, Talebi, Zhao and Cheng 2024; Feldman, McMillan and Talwar 2021.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.accounting import binomial_noise as accountant
from discreet.accounting.binomial_noise import Flips, Noise
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.accounting.noise_distributions.binomial import BinomialLaw, Components, merged
from discreet.accounting.noise_distributions.randomized_response import joined
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.accounting.shuffle_amplification_event import AmplifiedRecord
from discreet.core import checks
from discreet.core.count_mechanism import Stated, SumMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, REWARDS, TRANSITIONS, VISITS
from discreet.core.protocols import Record
from discreet.core.releases import Ints, Schedule, Trust
from discreet.core.short_repr import brief
from discreet.device.shuffle_payload import COIN, Family, Kind, SessionConfig
from discreet.mechanisms.local import randomized_response as local_reports
from discreet.mechanisms.local.randomized_response import StepReports

_KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        VISITS: "visits",
        TRANSITIONS: "transitions",
        REWARDS: "rewards",
        CENTERED_REWARDS: "centered_rewards",
    }
)


def batch_ends(schedule: Schedule) -> Ints:
    """Return the number of users that have arrived at the end of each batch, shape (batches,).

    The users after the last release form one more batch. Raises ``ValueError`` if the batch sizes are not
    known in advance.
    """
    if schedule.pooled_shares is not None:
        raise ValueError("schedule.pooled_shares: must be None, there are no pooled counts here")
    if schedule.users is None:
        raise ValueError(
            "schedule.users = None: the shuffle protocol needs the size of every batch in advance; state "
            "the number of users"
        )
    ends = schedule.release_times[1:]
    if not schedule.final:  # users after the last release are protected too
        ends = np.append(ends, schedule.users)
    return np.asarray(ends, np.int64)


def form_of(query: CountQuery, noise: Noise, session: int) -> SessionConfig:
    """Return the public parameters of a batch, which the devices and the shuffler use."""
    layout = query.layout
    rows = None if layout.mask is None else tuple(map(tuple, layout.row_index.tolist()))
    families = tuple(Family(_KINDS[name], f.each, f.coin, f.paired) for name, f in noise)
    return SessionConfig(layout.states, layout.actions, layout.horizon, families, rows, session, query.step)


def flips_of(family: Family, users: int) -> Components:
    """Return the random bits that ``users`` users add to one counter of a family.

    Each item is (number of bits, probability that a bit is 1). Paired flips have two items, and the two
    probabilities sum to 1.
    """
    n, p = users * family.flips, family.coin / COIN
    return ((n // 2, p), (n // 2, 1.0 - p)) if family.paired else ((n, p),)


@dataclass(frozen=True, eq=False)
class ShuffledMechanism(SumMechanism):
    """Base class of the two mechanisms of the shuffle model.

    The sizes of all batches are known, and one privacy record covers all batches.
    """

    query: Any
    schedule: Schedule
    source: Literal["seeded", "secure"]
    stated: Stated

    asks: ClassVar[type] = CountQuery  # class of the query

    def __post_init__(self) -> None:
        checks.exactly("query", self.query, self.asks)
        checks.exactly("schedule", self.schedule, Schedule)
        checks.choice("source", self.source, ("seeded", "secure"))
        checks.exactly("stated", self.stated, Stated)
        checks.real("stated.delta", self.stated.delta, accountant.LEAST_DELTA, 1.0, open_high=True)
        if getattr(self.query, "episodes", 1) > 1:
            raise ValueError(f"query.episodes = {self.query.episodes}: must be 1, a user sends one message")
        object.__setattr__(self, "query", self.query.copy())
        object.__setattr__(self, "schedule", replace(self.schedule))
        _ = self.ends

    @cached_property
    def ends(self) -> Ints:
        """Number of users that have arrived at the end of each batch, shape (batches,)."""
        return batch_ends(self.schedule)

    @property
    def sizes(self) -> list[int]:
        """Number of users in each batch."""
        sizes: list[int] = np.diff(self.ends, prepend=0).tolist()
        return sizes

    @property
    def trust(self) -> Trust:
        """Trust model "shuffle": no party sees a trajectory, and the shuffler sees single messages."""
        return "shuffle"

    def check_source(self, randomness: Any) -> None:
        """Raise ``ValueError`` unless the noise can be drawn from ``randomness`` (Seeded, Secure)."""
        self._check_drawn(randomness, None)

    @property
    @abstractmethod
    def batches(self) -> tuple[tuple[int, Any], ...]:
        """Pair (number of users, parameters of their messages) for every scheduled batch, in order."""

    # ----------------------------------------------------------------- noise distributions
    @abstractmethod
    def scheduled(self, batch: int, users: int) -> list[Any]:
        """Return the noise components of each family in a batch, if all users of the batch send a message."""

    @abstractmethod
    def merged(self, old: Any, new: Any) -> Any:
        """Return the noise components of the sum of two batches, from the components of each batch."""

    @abstractmethod
    def law(self, family: int, components: Any) -> Any:
        """Return the noise distribution of a family from the components of its noise.

        family : index of the family. components : components of its noise, as :meth:`merged` returns them.
        """

    def laws_at(self, n: int) -> dict[str, Any]:
        """Return the noise distribution of each family in the release after n users.

        These distributions are valid if all users send their messages.

        Raises ``ValueError`` unless n is one of ``schedule.release_times``.
        """
        if n not in self.schedule.release_times:
            raise ValueError(f"n = {n}: is not one of the scheduled times of release")
        found: list[Any] = [() for _ in self.query.row_families]
        for batch, (end, users) in enumerate(zip(self.ends.tolist(), self.sizes, strict=True)):
            if end > n:
                break
            fresh = self.scheduled(batch, users)
            found = [self.merged(old, new) for old, new in zip(found, fresh, strict=True)]
        return {name: self.law(i, found[i]) for i, name in enumerate(self.query.row_families)}


@dataclass(frozen=True, eq=False)
class FlipMechanism(ShuffledMechanism):
    """Mechanism with random bits (flips) in every counter of every message.

    The mechanism corrects the mechanism of Bai, Talebi, Zhao and Cheng 2024. ``Shuffle()`` chooses this
    mechanism. ``guarantee`` is computed from the flips of each batch. The guarantee states the largest loss
    of any batch, since each user is in one batch.

    Parameters
    ----------
    query : CountQuery
        Query that defines the counts. Each user has one episode.
    schedule : Schedule
        Public times of release, which are the ends of the batches. The number of users must be known.
    source : "seeded" or "secure"
        Source of randomness: the seed of a simulation, or the operating system of each device.
    stated : Stated
        The delta in (0, 1) at which epsilon is stated.
    noises : tuple, one for each batch
        (family, flips) pairs in the order of the query. A batch is released only if at least ``flips.users``
        messages arrived.
    words : str
        Text that describes the choice of the flips.

    Raises
    ------
    ValueError
        If a part has another type or does not fit, or the noises do not match the batches.
    """

    __repr__ = brief
    __reduce__ = checks.by_constructor

    noises: tuple[Noise, ...] = ()
    words: str = "bits and coin flips"

    bits: ClassVar[bool] = True  # rewards are rounded to bits, so simulated sums must be sums of bits

    def __post_init__(self) -> None:
        super().__post_init__()
        query, sizes = self.query, self.sizes
        if query.steered or query.stationary or query.pooled != "none":
            raise ValueError("query: must be of bits, not with pooled steps, group returns or cut rewards")
        # Tuples are used at every level, because a list could be changed after the first user.
        noises = tuple(tuple((name, flips) for name, flips in noise) for noise in self.noises)
        object.__setattr__(self, "noises", noises)
        if len(self.noises) != len(sizes):
            raise ValueError(
                f"noises has {len(self.noises)} entries: must have {len(sizes)}, one for each batch"
            )
        for i, (noise, size) in enumerate(zip(self.noises, sizes, strict=True)):
            if [name for name, _ in noise] != list(query.row_families):
                raise ValueError(f"noises[{i}]: must name the families of the query, in their order")
            for name, flips in noise:
                checks.exactly(f"noises[{i}][{name!r}]", flips, Flips)
            if any(flips.paired != (name == CENTERED_REWARDS) for name, flips in noise):
                raise ValueError(f"noises[{i}]: flips must be paired for centred rewards, and for them only")
            if len({flips.users for _, flips in noise}) > 1 or noise[0][1].users > size:
                raise ValueError(
                    f"noises[{i}]: must count on the flips of at most {size} users, the same in all"
                )

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """Privacy record of the flips of all batches.

        A batch is omitted if another batch has the same flips from fewer users. The privacy loss of the
        omitted batch is then not larger.
        """
        return (BinomialRecord(self.words, undominated(self.noises), accountant.ways(self.query)),)

    @property
    def batches(self) -> tuple[tuple[int, Noise], ...]:
        """Pair (users, flips) for every scheduled batch, in order."""
        return tuple(zip(self.sizes, self.noises, strict=True))

    def scheduled(self, batch: int, users: int) -> list[Any]:
        """Return the flips of each family that ``users`` users of a batch add to one counter."""
        families = form_of(self.query, self.noises[batch], 0).families
        return [flips_of(family, users) for family in families]

    def merged(self, old: Any, new: Any) -> Any:
        """Return the flips of ``old`` and ``new`` together, as tuples of (number of flips, probability)."""
        return merged((*old, *new))

    def law(self, family: int, components: Any) -> BinomialLaw:
        """Return the distribution of the sum of the flips in ``components``, minus its mean.

        family : index of a family of the query, starting at 0.
        """
        name = list(self.query.row_families)[family]
        shape = self.query.row_families[name]
        inside, cells = name == TRANSITIONS, math.prod(shape)
        return BinomialLaw(
            components,
            0.5 if name == CENTERED_REWARDS else 1.0,
            cells,
            cells // shape[-1] if inside else cells,
            shape[-1] if inside else 1,
            1.0 / (self.schedule.releases or 1),
        )


def undominated(noises: Iterable[Noise]) -> tuple[Noise, ...]:
    """Return the noise of the batch with the fewest honest users, for each kind of flips.

    The other batches have more noise of the same kind, so their privacy loss is not larger.
    """
    least: dict[tuple[tuple[str, int, int], ...], Noise] = {}
    for noise in dict.fromkeys(noises):
        key = tuple((name, f.each, f.coin) for name, f in noise)
        if key not in least or noise[0][1].users < least[key][0][1].users:
            least[key] = noise
    return tuple(least.values())


@dataclass(frozen=True, eq=False)
class AmplifiedMechanism(ShuffledMechanism):
    """Mechanism with reports of a few steps of each user, amplified by shuffling.

    The source is Feldman, McMillan and Talwar 2021. ``Shuffle(randomizer="amplified")`` chooses this
    mechanism. ``guarantee`` is computed from the reports and the sizes of the batches. The guarantee states
    the largest loss of any batch, since each user is in one batch.

    Parameters
    ----------
    query, schedule, source, stated : as for :class:`FlipMechanism`
        The query must have counts per step, without pooled steps and group returns.
    choices : tuple of (int, StepReports), one for each batch
        Number of honest users, from 1 to the batch's size, and the parameters of each user's report. A batch
        is released only if at least that number of reports arrived.

    Raises
    ------
    ValueError
        If a part has another type or does not fit, or the choices do not match the batches.
    """

    __repr__ = brief
    __reduce__ = checks.by_constructor

    choices: tuple[tuple[int, StepReports], ...] = ()

    bits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        query, sizes = self.query, self.sizes
        if query.stationary or query.pooled != "none" or query.steered:
            raise ValueError(
                "query: reports of random steps hold counts per step; counts pooled over steps (stationary, "
                "pooled) and group returns are not"
            )
        # Tuples are used at every level, because a list could be changed after the first user.
        object.__setattr__(self, "choices", tuple((honest, reports) for honest, reports in self.choices))
        if len(self.choices) != len(sizes):
            raise ValueError(
                f"choices has {len(self.choices)} entries: must have {len(sizes)}, one for each batch"
            )
        for i, ((honest, reports), size) in enumerate(zip(self.choices, sizes, strict=True)):
            checks.integer(f"choices[{i}]: honest users", honest, 1, size)
            checks.exactly(f"choices[{i}]", reports, StepReports)
            reports.check(query)

    @cached_property
    def records(self) -> tuple[AmplifiedRecord, ...]:
        """Privacy record with the number of honest users of each batch and the loss of one message."""
        batches = tuple(sorted({(honest, _loss(reports)) for honest, reports in self.choices}))
        most, steps = max(reports.steps for _, reports in self.choices), self.query.counted_steps
        words = f"{'1' if most == 1 else f'up to {most}'} random step{'s'[: most - 1]} of {steps}"
        return (AmplifiedRecord(f"amplified reports of {words if steps > 1 else 'the one step'}", batches),)

    def parts(self, reports: StepReports, users: int) -> list[Any]:
        """Return the noise distributions of the reports of ``users`` users, by family."""
        share = 1.0 / (self.schedule.releases or 1)
        return [
            (local_reports.law(reports, self.query, name, "stochastic", users, users, share),)
            for name in self.query.row_families
        ]

    @property
    def batches(self) -> tuple[tuple[int, StepReports], ...]:
        """Pair (users, reports) for every scheduled batch, in order."""
        return tuple(zip(self.sizes, (reports for _, reports in self.choices), strict=True))

    def scheduled(self, batch: int, users: int) -> list[Any]:
        """Return the noise distributions of the reports of a batch, by family."""
        return self.parts(self.choices[batch][1], users)

    def merged(self, old: Any, new: Any) -> Any:
        """Return a tuple with the distribution of the reports in ``old`` and ``new`` together.

        The tuple is empty if ``old`` and ``new`` are empty.
        """
        laws = (*old, *new)
        return (joined(laws),) if laws else ()

    def law(self, family: int, components: Any) -> Any:
        """Return the noise distribution in ``components``, a tuple that :meth:`merged` returns.

        An empty tuple gives the distribution for 0 users.

        family : index of a family of the query, starting at 0.
        """
        return components[0] if components else self.parts(self.choices[0][1], 0)[family][0]


def _loss(reports: StepReports) -> float:
    """Return the privacy loss of one message without the shuffler: m * ln(largest likelihood ratio)."""
    alphabets = {}
    for about in range(2 if reports.share else 1):
        one = reports.randomizer(about, True)
        kind = "unary" if one.unary else "subset"
        alphabets[str(about)] = (kind, one.elements, one.size, one.own, one.other)
    return ReportRecord("reports", reports.steps, alphabets).loss
