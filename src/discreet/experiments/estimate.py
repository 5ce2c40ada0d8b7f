"""Forecast of the guarantee and the noise of a run, before any budget is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from discreet.core.query import FamilyQuery
from discreet.core.rng import Seeded
from discreet.core.short_repr import brief
from discreet.experiments.simulate import Setup
from discreet.mechanisms.interfaces import NoiseDistribution
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local


@dataclass(frozen=True)
class MechanismChoice:
    """Mechanism that meets the privacy budget.

    Parameters
    ----------
    release : name of the release mechanism.
    noise : name of the noise distribution.
    error : value of the criterion for this mechanism.
    ratio : ``error`` divided by the error of the best mechanism.
    """

    release: str
    noise: str
    error: float
    ratio: float


@dataclass(frozen=True)
class Forecast:
    """Guarantee and noise of a run, computed before the first user arrives.

    Parameters
    ----------
    statement : guarantee, as a sentence.
    users : number of users, K.
    releases : number of noisy releases.
    cells : number of sums to which noise is added at each release.
    at : numbers of users at two releases: the first release at or after half of the users, and the last
    release. std : for each family of sums, the standard deviations of the noise in one released sum at these
    two
        releases.
    choices : mechanisms that meet the budget, best first.
    criterion : name of the quantity by which ``choices`` are ordered.
    per : quantity to which the errors in ``choices`` refer: a transition count or, for sums of features, one
    sum.
    """

    __repr__ = brief

    statement: str
    users: int
    releases: int
    cells: int
    at: tuple[int, int]
    std: dict[str, tuple[float, float]]
    choices: tuple[MechanismChoice, ...]
    criterion: str
    per: str = "transition count"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dictionary of JSON values."""
        return {**asdict(self), "choices": [asdict(choice) for choice in self.choices]}


def estimate_run(setup: Setup) -> Forecast:
    """Compute the forecast of the prepared run ``setup`` from public settings.

    Raises ``ValueError`` if the privatizer does not support the learner.
    """
    mechanism = setup.mechanism
    times = setup.times[:-1]
    half = min(int(np.searchsorted(times, setup.episodes / 2)), times.size - 1)
    at = (int(times[half]), int(times[-1]))
    laws: list[Mapping[str, NoiseDistribution]] = [mechanism.laws_at(users) for users in at]
    # if each batch has its own query, the two releases can have different families
    std = {name: (laws[0][name].std(), laws[1][name].std()) for name in laws[0] if name in laws[1]}
    choices: tuple[MechanismChoice, ...] = ()
    counted = not isinstance(setup.query, FamilyQuery)  # the only mechanism is fresh noise in every batch
    if counted and isinstance(setup.privatizer, Central | Local) and setup.privatizer.calibration == "exact":
        found = setup.privatizer.choices(setup.query, setup.schedule, Seeded(0, 0))
        best = found[0].error or 1.0
        choices = tuple(MechanismChoice(c.name, c.noise, c.error, c.error / best) for c in found)
    reads = {
        "sums": "root mean square over the releases of a sum's noise",
        "measurements": "noise of the equivalent count that all measurements together give at the end",
    }
    criterion = reads[setup.schedule.reads]
    if any(choice.release.startswith("reports") for choice in choices):
        criterion += "; of reports at the last release, or where their noise in a rate is 1 %, if earlier"
    if isinstance(setup.privatizer, Local):
        criterion = "noise of a transition count per square root of a user"
    per = "transition count"
    if isinstance(mechanism, LinearMechanism):
        per = "noise of one sum"
        criterion = "noise of the release that a user sees, root mean square over users"
        if isinstance(setup.privatizer, Local):
            criterion = "noise of a cell per square root of a user"
    return Forecast(
        statement=" ".join(filter(None, (setup.guarantee.statement, setup.privacy_note))),
        users=setup.episodes,
        releases=max(0, int(times.size) - 1),
        cells=setup.query.cells,
        at=at,
        std=std,
        choices=choices,
        criterion=criterion,
        per=per,
    )
