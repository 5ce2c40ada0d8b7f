"""Local privatizer: every user's device randomizes its own message.

Calibration and sources are described in :mod:`discreet.mechanisms.privatizers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from discreet.core import checks
from discreet.core.count_mechanism import CountMechanism, Stated, grid_of
from discreet.core.count_query import CountQuery
from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise
from discreet.core.releases import Floats, Schedule, Trust
from discreet.core.rng import Randomness, Secure
from discreet.core.strategies import OnDevice
from discreet.mechanisms.interfaces import Mechanism
from discreet.mechanisms.local.choose_randomizer import NAMES, report_candidates, reports_of
from discreet.mechanisms.local.randomized_response import KINDS, Kind
from discreet.mechanisms.local.randomized_response_strategy import Reported
from discreet.mechanisms.open_session import Proposes
from discreet.mechanisms.privatizers.base import Budgeted
from discreet.mechanisms.query_checks import (
    check_source,
    continual_query,
    has_batches,
    is_linear,
    private_schedule,
)

if TYPE_CHECKING:
    from discreet.mechanisms.privatizers.linear_sums import LinearChoice

LocalRandomizer = Literal["auto", "laplace", "gaussian", "subset", "oue", "krr"]
_VECTORS = ("laplace", "gaussian")


@dataclass(frozen=True)
class LocalChoice:
    """One local mechanism that meets a budget.

    Attributes
    ----------
    randomizer : str
        "laplace" or "gaussian" (noise in every counter), or a randomizer of reports: "subset", "oue" or
        "krr".
    steps : int
        Number m of random steps that a user reports. 0 for a noisy vector.
    reward_share : float
        Share of the reports that are about rewards.
    error : float
        Standard deviation of the noise that one user adds to a transition count. The total grows with the
        square root of the number of users. For reports the value is the root mean square over the cells of a
        step. It does not depend on data.
    scales : (families,)
        Noise scales of a noisy vector. Empty for reports.
    """

    randomizer: str
    steps: int
    reward_share: float
    error: float
    scales: Floats

    @property
    def name(self) -> str:
        """Text that describes the content of a message: every counter, or a number of random steps."""
        if not self.steps:
            return "every counter"
        return f"{self.steps} random step{'s' if self.steps > 1 else ''}"

    @property
    def noise(self) -> str:
        """Name of the noise distribution or of the randomizer, as text."""
        return {"laplace": "Laplace", "gaussian": "Gaussian", **NAMES}[self.randomizer]

    def __str__(self) -> str:
        return f"{self.name}, {self.noise}: error {self.error:.4g} per transition count and sqrt(user)"


@dataclass(frozen=True, kw_only=True)
class Local(Budgeted, Proposes):
    """Privatizer of local differential privacy: devices randomize their messages, so no party sees raw data.

    Parameters
    ----------
    epsilon, delta, rho, mu, noise, calibration, weights
        Budget, noise family, calibration and shares, as for :class:`Central`. ``noise`` and ``weights`` apply
        only if a device sends a noisy vector of all counters. If one of them is given, this kind of message
        is selected. The published scale is 3 H / epsilon per counter, which is 2 epsilon-LDP.
    randomizer : "auto", "laplace", "gaussian", "subset", "oue" or "krr"
        ``laplace``, ``gaussian``: noise in every counter of the user, as in the papers. ``subset``, ``oue``,
        ``krr``: reports of a few random steps by subset selection, optimised unary encoding or k-ary
        randomized response, at a pure epsilon (:mod:`discreet.mechanisms.local.randomized_response`).
        ``auto`` (default): the randomizer with the least noise in a transition count, computed from public
        numbers before any data (:meth:`choices`).
    steps : int, optional
        Number m of steps, out of H, that a user reports. Each report has the budget epsilon / m. None: the
        number with the least noise.
    reward_share : float, optional
        Probability in (0, 1) that a report is about the reward. None: the share of rewards that the query
        sets, or 0.15 if the query sets no share.
    preset : "default" or "paper"
        ``paper``: Laplace noise in every counter, published calibration.

    Source: Chowdhury and Zhou 2021 (vectors); :mod:`discreet.mechanisms.local.randomized_response` (reports).
    """

    randomizer: LocalRandomizer | None = None
    steps: int | None = None
    reward_share: float | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"noise": "auto", "calibration": "exact", "randomizer": "auto"},
        "paper": {"noise": "laplace", "calibration": "published", "randomizer": "laplace"},
    }

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.randomizer is None:
            if self.noise in _VECTORS:
                put(self, "randomizer", self.noise)
            elif self.calibration == "published":
                put(self, "randomizer", "laplace")
            elif self.epsilon is None:
                put(self, "randomizer", "gaussian")
        elif self.randomizer in _VECTORS and self.noise is None:
            put(self, "noise", self.randomizer)
        super().__post_init__()
        checks.choice("randomizer", self.randomizer, ("auto", *_VECTORS, *KINDS))
        if self.randomizer in _VECTORS and self.noise not in ("auto", self.randomizer):
            raise ValueError(f"noise = {self.noise!r}: must be {self.randomizer!r}, the randomizer")
        if self.calibration == "published" and self.randomizer != "laplace":
            raise ValueError(
                f"randomizer = {self.randomizer!r}: must be 'laplace' under calibration 'published'"
            )
        if self.randomizer in KINDS:
            self._check_reports()
        if self.steps is not None:
            put(self, "steps", checks.integer("steps", self.steps, 1))
        if self.reward_share is not None:
            share = checks.real("reward_share", self.reward_share, 0.0, 1.0, open_low=True, open_high=True)
            put(self, "reward_share", share)
        given = next((n for n in ("steps", "reward_share") if getattr(self, n) is not None), None)
        if given is not None and (self.randomizer in _VECTORS or self.weights is not None):
            raise ValueError(
                f"{given} = {getattr(self, given)!r}: goes with randomizer 'auto', 'subset', 'oue' or 'krr' "
                "and without weights, not with noise in every counter"
            )

    def _check_reports(self) -> None:
        if self.epsilon is None:
            raise ValueError(f"randomizer = {self.randomizer!r}: its budget is a pure epsilon; give epsilon")
        if self.weights is not None:
            raise ValueError(f"weights = {self.weights}: reports have none; give reward_share")
        if self.noise != "auto":
            raise ValueError(f"noise = {self.noise!r}: randomizer = {self.randomizer!r} adds no noise")

    @property
    def trust(self) -> Trust:
        """Trust model "local": no party is trusted with raw trajectories."""
        return "local"

    def choices(
        self, query: Any, schedule: Schedule, randomness: Randomness
    ) -> list[LocalChoice] | list[LinearChoice]:
        """Return every mechanism that meets the budget for ``query``, in order of increasing noise.

        Reports have the number of steps with the least noise, unless ``steps`` is given. The result depends
        only on public numbers.

        schedule : schedule of releases. randomness : source of the noise, which determines whether noise must
            be exact. Raises ``ValueError`` if no mechanism fits.
        """
        if is_linear(query):
            from discreet.mechanisms.privatizers.linear_sums import local_choices

            return local_choices(self, query, randomness)
        return self._count_choices(query, schedule, randomness)

    def _count_choices(self, query: Any, schedule: Schedule, randomness: Randomness) -> list[LocalChoice]:
        query, schedule = continual_query(query), private_schedule(schedule)
        check_source(randomness)
        found: list[LocalChoice] = []
        steps_only = self.steps is not None or self.reward_share is not None
        if self.randomizer in ("auto", *_VECTORS) and not steps_only:
            for noise, scales, std in self._options(query, 1, isinstance(randomness, Secure)):
                name = noise.name
                found.append(LocalChoice(name, 0, 0.0, std, scales))
        kinds = KINDS if self.randomizer == "auto" else tuple(k for k in KINDS if k == self.randomizer)
        if query.pooled != "none":  # reports contain no pooled counts, so these sums would wrongly be zero
            if steps_only or self.randomizer in KINDS:
                raise ValueError(
                    f"pooled = {query.pooled!r}: reports of random steps hold no pooled counts; use "
                    "randomizer 'laplace' or 'gaussian', or pooled 'none'"
                )
            kinds = ()
        if self.epsilon is not None and self.weights is None:
            stochastic = schedule.plans == "stochastic"
            for kind in kinds:
                found.append(min(self._step_choices(query, kind, stochastic), key=lambda c: c.error))
        if not found:
            raise ValueError(
                f"randomizer = {self.randomizer!r}, noise = {self.noise!r}: do not meet this budget"
            )
        return sorted(found, key=lambda choice: choice.error)

    def _step_choices(self, query: CountQuery, kind: Kind, stochastic: bool) -> Iterator[LocalChoice]:
        assert self.epsilon is not None
        for reports in report_candidates(
            query, kind, self.epsilon, stochastic, self.steps, self.reward_share
        ):
            error = reports.unit_std(stochastic)
            yield LocalChoice(kind, reports.steps, reports.reward_share, error, np.zeros(0))

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Return the mechanism of users' devices with its privacy guarantee.

        Raises ``ValueError`` if ``query``, ``schedule``, ``randomness`` and the options do not fit together.
        """
        check_source(randomness)
        if has_batches(schedule):
            from discreet.mechanisms.batch_queries import batch_mechanism

            return batch_mechanism(self, query, schedule, randomness)
        if is_linear(query):
            from discreet.mechanisms.privatizers.linear_sums import linear_local

            self._check_linear()
            return linear_local(self, query, schedule, randomness)
        query, schedule = continual_query(query), private_schedule(schedule)
        if query.groups:
            raise ValueError(
                "explore = 'returns': sums of groups' returns need a trusted server; use privatizer "
                "'central' or 'none', or explore = 'optimism'"
            )
        if schedule.pooled_shares is not None:
            raise ValueError("schedule.pooled_shares: must be None, a device's noise has one scale")
        if self.calibration == "published":
            drawn: AdditiveNoise = LAPLACE
            scales = np.full(len(query.row_families), self._published(query))
        else:
            choice = self._count_choices(query, schedule, randomness)[0]
            if choice.randomizer in KINDS:
                assert self.epsilon is not None
                kind: Kind = choice.randomizer
                reports = reports_of(query, kind, self.epsilon, choice.steps, self.reward_share)
                stated = Stated(epsilon=self.epsilon)
                strategy = Reported(reports, "device")
                return CountMechanism(query, schedule, randomness.kind, strategy, stated=stated)
            drawn = LAPLACE if choice.randomizer == "laplace" else GAUSSIAN
            scales = choice.scales
        stated = self._stated(query, drawn, randomness, True)
        scales = self._least_scales(query, drawn, scales, 1, stated, randomness)
        return CountMechanism(
            query, schedule, randomness.kind, OnDevice(), drawn, scales, grid_of(randomness), stated=stated
        )

    def _check_linear(self) -> None:
        """Raise ``ValueError`` if an option does not apply to linear sums."""
        if self.randomizer in KINDS or self.steps is not None or self.reward_share is not None:
            given = "randomizer" if self.randomizer in KINDS else "steps" if self.steps else "reward_share"
            raise ValueError(
                f"{given} = {getattr(self, given)!r}: is for counts; under linear sums randomizer must be "
                "'gaussian', 'laplace' or 'auto', and steps and reward_share must not be given"
            )

    def _published(self, query: CountQuery) -> float:
        assert self.epsilon is not None
        return 3 * query.layout.horizon / self.epsilon
