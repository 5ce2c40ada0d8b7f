"""The local privatizer: every user's device randomizes what it sends.

Calibration and sources: :mod:`discreet.privacy.privatizers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.numerics import checks
from discreet.privacy import kernels
from discreet.privacy.batch_session import BatchSession, has_batches, start_batches
from discreet.privacy.budgeted import (
    Budgeted,
    check_source,
    continual_query,
    private_schedule,
)
from discreet.privacy.counts import CountQuery
from discreet.privacy.linear_session import LinearSession
from discreet.privacy.linear_start import LinearChoice, is_linear, local_choices, start_local
from discreet.privacy.local_reports import KINDS, Kind
from discreet.privacy.mechanism import Mechanism
from discreet.privacy.protocol import Floats, Schedule, Trust
from discreet.privacy.randomness import Randomness, Secure
from discreet.privacy.report_choice import NAMES, report_candidates, reports_of
from discreet.privacy.report_start import start_reports
from discreet.privacy.session import CountSession

LocalMechanism = Literal["auto", "laplace", "gaussian", "subset", "oue", "krr"]
_VECTORS = ("laplace", "gaussian")


@dataclass(frozen=True)
class LocalChoice:
    """One local mechanism that meets a budget.

    mechanism : "laplace" or "gaussian" (noise in every counter), or reports by "subset", "oue" or "krr".
    steps : m, how many random steps a user reports; 0 for a vector. reward_share : of the reports.
    error : noise of a transition count per square root of a user: its standard deviation, of reports the
    root mean square over the cells of a step under a deterministic policy, which no data change.
    scales : of a vector's noise.
    """

    mechanism: str
    steps: int
    reward_share: float
    error: float
    scales: Floats

    @property
    def name(self) -> str:
        """What a device sends."""
        if not self.steps:
            return "every counter"
        return f"{self.steps} random step{'s' if self.steps > 1 else ''}"

    @property
    def noise(self) -> str:
        """How it is randomized."""
        return {"laplace": "Laplace", "gaussian": "Gaussian", **NAMES}[self.mechanism]

    def __str__(self) -> str:
        return f"{self.name}, {self.noise}: error {self.error:.4g} per transition count and sqrt(user)"


@dataclass(frozen=True, kw_only=True)
class Local(Budgeted):
    """Local differential privacy: each user's device randomizes what it sends; nobody sees raw data.

    Parameters
    ----------
    epsilon, delta, rho, mu, noise, calibration, weights
        The budget, and the noise of a noisy vector of all counters, as :class:`Central` takes them. ``noise``
        and ``weights`` belong to that vector, and to give one of them chooses it; the published scale is
        3 H / epsilon per counter, which is 2 epsilon-LDP.
    mechanism : "auto", "laplace", "gaussian", "subset", "oue" or "krr"
        ``laplace``, ``gaussian``: noise in every counter of the user, as in the papers. ``subset``, ``oue``,
        ``krr``: reports of a few random steps by subset selection, optimised unary encoding or k-ary
        randomized response, pure epsilon (:mod:`discreet.privacy.local_reports`). ``auto`` (default): the
        least noise in a transition count, computed from public numbers before any data (:meth:`choices`).
    steps : int, optional
        m of the H steps that a user reports, at epsilon / m each; None: the best.
    reward_share : float, optional
        Probability in (0, 1) that a report is about the reward; None: the query's share of rewards, or 0.15.
    preset : "default" or "paper"
        ``paper``: Laplace noise in every counter, calibration published.

    Sources: Chowdhury and Zhou 2021 (vectors); privacy-mechanisms, section 4 (reports).
    """

    mechanism: LocalMechanism | None = None
    steps: int | None = None
    reward_share: float | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"noise": "auto", "calibration": "exact", "mechanism": "auto"},
        "paper": {"noise": "laplace", "calibration": "published", "mechanism": "laplace"},
    }

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.mechanism is None:
            if self.noise in _VECTORS:
                put(self, "mechanism", self.noise)
            elif self.calibration == "published":
                put(self, "mechanism", "laplace")
            elif self.epsilon is None:
                put(self, "mechanism", "gaussian")
        elif self.mechanism in _VECTORS and self.noise is None:
            put(self, "noise", self.mechanism)
        super().__post_init__()
        checks.choice("mechanism", self.mechanism, ("auto", *_VECTORS, *KINDS))
        if self.mechanism in _VECTORS and self.noise not in ("auto", self.mechanism):
            raise ValueError(f"noise = {self.noise!r}: must be {self.mechanism!r}, the mechanism")
        if self.calibration == "published" and self.mechanism != "laplace":
            raise ValueError(
                f"mechanism = {self.mechanism!r}: must be 'laplace' under calibration 'published'"
            )
        if self.mechanism in KINDS:
            self._check_reports()
        if self.steps is not None:
            put(self, "steps", checks.integer("steps", self.steps, 1))
        if self.reward_share is not None:
            share = checks.real("reward_share", self.reward_share, 0.0, 1.0, open_low=True, open_high=True)
            put(self, "reward_share", share)
        given = next((n for n in ("steps", "reward_share") if getattr(self, n) is not None), None)
        if given is not None and (self.mechanism in _VECTORS or self.weights is not None):
            raise ValueError(
                f"{given} = {getattr(self, given)!r}: goes with mechanism 'auto', 'subset', 'oue' or 'krr' "
                "and without weights, not with noise in every counter"
            )

    def _check_reports(self) -> None:
        if self.epsilon is None:
            raise ValueError(f"mechanism = {self.mechanism!r}: its budget is a pure epsilon; give epsilon")
        if self.weights is not None:
            raise ValueError(f"weights = {self.weights}: reports have none; give reward_share")
        if self.noise != "auto":
            raise ValueError(f"noise = {self.noise!r}: mechanism = {self.mechanism!r} adds no noise")

    @property
    def trust(self) -> Trust:
        """Nobody is trusted with raw trajectories."""
        return "local"

    def choices(
        self, query: Any, schedule: Schedule, randomness: Randomness
    ) -> list[LocalChoice] | list[LinearChoice]:
        """Every mechanism that meets the budget for this query, least noise first; of reports, the best m.

        Computed from public numbers alone. Raises ``ValueError`` if none fits.
        """
        if is_linear(query):
            return local_choices(self, query, randomness)
        return self._count_choices(query, schedule, randomness)

    def _count_choices(self, query: Any, schedule: Schedule, randomness: Randomness) -> list[LocalChoice]:
        query, schedule = continual_query(query), private_schedule(schedule)
        check_source(randomness)
        found: list[LocalChoice] = []
        steps_only = self.steps is not None or self.reward_share is not None
        if self.mechanism in ("auto", *_VECTORS) and not steps_only:
            for family, scales, std in self._options(query, 1, isinstance(randomness, Secure)):
                name = "laplace" if family == kernels.LAPLACE else "gaussian"
                found.append(LocalChoice(name, 0, 0.0, std, scales))
        kinds = KINDS if self.mechanism == "auto" else tuple(k for k in KINDS if k == self.mechanism)
        if query.pooled != "none":  # reports say nothing of them: they would be zeros under a false law
            if steps_only or self.mechanism in KINDS:
                raise ValueError(
                    f"pooled = {query.pooled!r}: reports of random steps hold no pooled counts; use "
                    "mechanism 'laplace' or 'gaussian', or pooled 'none'"
                )
            kinds = ()
        if self.epsilon is not None and self.weights is None:
            stochastic = schedule.plans == "stochastic"
            for kind in kinds:
                found.append(min(self._step_choices(query, kind, stochastic), key=lambda c: c.error))
        if not found:
            raise ValueError(
                f"mechanism = {self.mechanism!r}, noise = {self.noise!r}: do not meet this budget"
            )
        return sorted(found, key=lambda choice: choice.error)

    def _step_choices(self, query: CountQuery, kind: Kind, stochastic: bool) -> Iterator[LocalChoice]:
        assert self.epsilon is not None
        for reports in report_candidates(
            query, kind, self.epsilon, stochastic, self.steps, self.reward_share
        ):
            error = reports.unit_std(stochastic)
            yield LocalChoice(kind, reports.steps, reports.reward_share, error, np.zeros(0))

    def start(
        self, query: Any, schedule: Schedule, randomness: Randomness
    ) -> CountSession | LinearSession | BatchSession:
        """A session that sums randomized messages. Raises ``ValueError`` if they do not fit."""
        if has_batches(schedule):
            return start_batches(self, query, schedule, randomness)
        if is_linear(query):
            if self.mechanism in KINDS or self.steps is not None or self.reward_share is not None:
                given = "mechanism" if self.mechanism in KINDS else "steps" if self.steps else "reward_share"
                raise ValueError(
                    f"{given} = {getattr(self, given)!r}: is for counts; under linear sums mechanism must be "
                    "'gaussian', 'laplace' or 'auto', and steps and reward_share must not be given"
                )
            return start_local(self, query, schedule, randomness)
        query, schedule = continual_query(query), private_schedule(schedule)
        check_source(randomness)
        if query.groups:
            raise ValueError(
                "explore = 'returns': sums of groups' returns need a trusted server; use privatizer "
                "'central' or 'none', or explore = 'optimism'"
            )
        grid = randomness.reward_grid if isinstance(randomness, Secure) else None
        if schedule.pooled_shares is not None:
            raise ValueError("schedule.pooled_shares: must be None, a device's noise has one scale")
        if self.calibration == "published":
            assert self.epsilon is not None
            family, scales = kernels.LAPLACE, np.full(len(query.row_families), self._published(query))
        else:
            choice = self._count_choices(query, schedule, randomness)[0]
            if choice.mechanism in KINDS:
                assert self.epsilon is not None
                kind: Kind = choice.mechanism
                reports = reports_of(query, kind, self.epsilon, choice.steps, self.reward_share)
                return start_reports("local", reports, query, schedule, randomness, self.epsilon)
            family = kernels.LAPLACE if choice.mechanism == "laplace" else kernels.GAUSSIAN
            scales = choice.scales
        mechanism = Mechanism("local", family, scales, grid)
        words = "each user's own counters on the device"
        mechanism, _, guarantee = self._calibrated("local", mechanism, words, query, schedule, randomness, 1)
        return CountSession("local", mechanism, query, schedule, randomness, guarantee)

    def _published(self, query: CountQuery) -> float:
        assert self.epsilon is not None
        return 3 * query.layout.horizon / self.epsilon
