"""Sessions of randomized reports, wherever the randomizer runs.

*What* is reported, its law and its debiasing stand in :mod:`discreet.privacy.local_reports`. *Where* the
randomizer runs is the trust model of the session. Under ``"local"`` it runs on the device, and the report
leaves it. Under ``"joint"`` a trusted server is sent the trajectory, draws the very same report from it, once
and with coins that are used for nothing else, and keeps nothing else of it.

That the second is epsilon-jointly private: each user is in exactly one report, drawn by coins of its own, and
for any two trajectories of hers the laws of the report differ by a factor of at most e^epsilon. Everything
that the session holds from then on, releases or decides is a function of her report and of other people's
data. So exchanging her trajectory changes the probability of anything that the others see by at most that
factor (post-processing), however many releases there are.

It covers what a trajectory holds, not whether there is one: of a person who is ``absent`` there is no report,
and the laws of the releases say how many reports there are. Sums with noise hide that too; here it is public.

Source: privacy-mechanisms, sections 1 and 4.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from discreet.privacy import kernels
from discreet.privacy.counts import CountQuery
from discreet.privacy.guarantee import ReportRecord, guarantee_of
from discreet.privacy.local_reports import StepReports
from discreet.privacy.mechanism import Mechanism
from discreet.privacy.protocol import Schedule
from discreet.privacy.randomness import Randomness
from discreet.privacy.session import CountSession

__all__ = ["start_reports"]


def start_reports(
    trust: Literal["joint", "local"],
    reports: StepReports,
    query: CountQuery,
    schedule: Schedule,
    randomness: Randomness,
    epsilon: float,
) -> CountSession:
    """A session of reports that devices (``"local"``) or the trusted server (``"joint"``) randomize.

    epsilon : what was asked for; the guarantee states what the reports really lose.
    """
    alphabets = {}
    plans = {"deterministic": (False,), "stochastic": (True,)}.get(schedule.plans, (False, True))
    for about, name in enumerate(("moves", "rewards")[: 2 if reports.share else 1]):
        for stochastic in plans:
            one = reports.randomizer(about, stochastic)
            kind = "stochastic" if stochastic else "public"
            label = name if len(plans) == 1 else f"{name} of a {kind} policy"
            numbers = (one.elements, one.size, one.own, one.other)
            alphabets[label] = ("unary" if one.unary else "subset", *numbers)
    record = ReportRecord(reports.words(), reports.steps, alphabets)
    guarantee = guarantee_of(trust, [record], randomness=randomness.kind, epsilon_nominal=epsilon)
    mechanism = Mechanism("reports", kernels.NO_NOISE, np.zeros(len(query.row_families)), reports=reports)
    return CountSession(trust, mechanism, query, schedule, randomness, guarantee)
