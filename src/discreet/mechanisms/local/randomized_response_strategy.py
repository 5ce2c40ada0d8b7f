"""The strategy of randomized reports, as a mechanism of counts asks it: what fits, what it costs, its laws.

Derivations: :mod:`discreet.mechanisms.local.randomized_response`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from discreet.accounting.randomized_response_event import ReportRecord
from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.protocols import NoiseDistribution
from discreet.core.releases import Schedule
from discreet.mechanisms.local import randomized_response as local_reports
from discreet.mechanisms.local.randomized_response import StepReports

__all__ = ["Reported"]


@dataclass(frozen=True)
class Reported:
    """Randomized reports of a few steps of each user.

    reports : :class:`StepReports`, how many steps and by which randomizer. by : where they are drawn, on the
    "device" (local privacy) or by the "server" that holds raw data (joint privacy with the same noise).
    """

    reports: StepReports
    by: Literal["device", "server"]

    def plain(self) -> Reported:
        """The same from plain parts, of exact classes. Raises ``ValueError`` on others."""
        if type(self.reports) is not StepReports:  # a subclass could randomize otherwise than it says
            raise ValueError(f"strategy.reports = {self.reports!r}: must be StepReports, no subclass")
        return Reported(self.reports, checks.choice("strategy.by", self.by, ("device", "server")))

    def check(self, query: CountQuery) -> None:
        """Raise ``ValueError`` unless the reports are exact randomizers of this query's records."""
        if query.pooled != "none":
            raise ValueError(f"query.pooled = {query.pooled!r}: reports hold no pooled counts")
        self.reports.check(query)

    def record(self, schedule: Schedule) -> ReportRecord:
        """The randomizers that the schedule's policies can lead to."""
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
        """The law of one family's noise after ``terms`` users reported.

        query : whose families they answer. name : of the family. plans : "deterministic" (policies are public
        functions of the state) or "stochastic". terms_bound : the most terms of any release up to it. share :
        part of a failure probability that falls to this release, in (0, 1].
        """
        return local_reports.law(self.reports, query, name, plans, terms, terms_bound, share)
