"""Noise strategy of randomized reports for a count mechanism: checks, privacy loss, noise distributions.

The derivations are in :mod:`discreet.mechanisms.local.randomized_response`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from discreet.accounting.randomized_response_event import ReportRecord
from discreet.core import checks
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.protocols import NoiseDistribution
from discreet.core.query import Norm, SumQuery
from discreet.core.releases import Schedule
from discreet.core.strategies import Strategy, Stream, registered
from discreet.mechanisms.local import randomized_response as local_reports
from discreet.mechanisms.local.randomized_response import StepReports


@registered
@dataclass(frozen=True)
class Reported(Strategy):
    """Noise strategy of randomized reports of a few steps of each user.

    reports : :class:`StepReports` with the number of steps and the randomizer. by : party that draws the
    reports: the "device" (local privacy), or the "server" that receives raw data (joint privacy with the same
    noise).
    """

    reports: StepReports
    by: Literal["device", "server"]
    stream: ClassVar[Stream] = "reports"
    noisy: ClassVar[bool] = False

    def column_norm(self, norm: Norm) -> float:
        return math.inf  # no noise is added to sums; :meth:`record` states the privacy loss instead

    @property
    def on_device(self) -> bool:
        return self.by == "device"

    def text(self) -> str:
        return self.reports.words()

    def plain(self) -> Reported:
        """Return a checked copy. Raises ``ValueError`` unless ``reports`` is exactly a ``StepReports``."""
        checks.exactly("strategy.reports", self.reports, StepReports)
        return Reported(self.reports, checks.choice("strategy.by", self.by, ("device", "server")))

    def check(self, query: SumQuery) -> None:
        """Raise ``ValueError`` unless the reports fit this query and meet the privacy bound."""
        if not isinstance(query, CountQuery):
            raise ValueError(f"query = {query!r}: must be a CountQuery, reports hold its families only")
        if query.pooled != "none":
            raise ValueError(f"query.pooled = {query.pooled!r}: reports hold no pooled counts")
        self.reports.check(query)

    def record(self, schedule: Schedule) -> ReportRecord:
        """Return the privacy record of the reports.

        The record contains the randomizers for each kind of policy (deterministic, stochastic) that the
        schedule allows.
        """
        reports, alphabets = self.reports, {}
        plans = {"deterministic": (False,), "stochastic": (True,)}.get(schedule.plans, (False, True))
        for about, name in enumerate(("moves", "rewards")[: 2 if reports.share else 1]):
            for stochastic in plans:
                one = reports.randomizer(about, stochastic)
                kind = "stochastic" if stochastic else "public"
                label = name if len(plans) == 1 else f"{name} of a {kind} policy"
                numbers = (one.elements, one.size, one.own, one.other)
                alphabets[label] = ("unary" if one.unary else "subset", *numbers)
        return ReportRecord(reports.words(), reports.steps, alphabets)

    def law(
        self, query: CountQuery, name: str, plans: str, terms: int, terms_bound: int, share: float
    ) -> NoiseDistribution:
        """Return the noise distribution of one family after ``terms`` users reported.

        Parameters
        ----------
        query : CountQuery
            Query whose families the reports answer.
        name : str
            Name of the family.
        plans : "deterministic" or "stochastic"
            Kind of policies: "deterministic" for public functions of the state, or "stochastic".
        terms, terms_bound : int
            Number of users who reported, and the largest such number in all releases up to this one.
        share : float
            Share in (0, 1] of the failure probability that is assigned to this release.
        """
        return local_reports.law(self.reports, query, name, plans, terms, terms_bound, share)


def reports_of(mechanism: CountMechanism) -> StepReports | None:
    """Return the randomized reports of ``mechanism``, or None if it has another strategy."""
    return mechanism.strategy.reports if isinstance(mechanism.strategy, Reported) else None
