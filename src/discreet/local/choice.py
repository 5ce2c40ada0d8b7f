"""Which randomized reports meet a budget best, and when they beat noise in sums: public arithmetic.

Noise of a fresh sum has a scale 2 H / epsilon, whatever the number n of users. Noise of reports has a
standard deviation u sqrt(n) in a transition count, u being
:meth:`~discreet.local.reports.StepReports.unit_std`, which falls steeply while e^epsilon grows to
S^2. Reports are less noisy for few users, a noisy sum for many. What matters is who is less noisy while the
learner does not yet know what to do:

- :func:`weighed_error` weighs reports at the last release, or where a rate's standard deviation, u / sqrt(n),
  has fallen to 1 %, if that is earlier: their noise is then 100 u^2. What comes later decides nothing.
- :func:`reports_pay` is the same rule for who must decide before there is a query: 100 u^2 against the noise
  of batches that grow by 2 %, 10 sqrt(2) 2 H / (0.8 epsilon) and hence u^2 epsilon <= 0.35 H, with a margin.

The 1 % was measured: over the training worlds (:data:`discreet.experiments.suite.TRAINING`), at epsilon 1 to
14 and 20,000 users, no other bound on u^2 epsilon / H did better by regret than 0.375, for a learner that
else asks for counts pooled over steps (:mod:`discreet.online.noise_aware`).

Learners may call this: it sees sizes and epsilon only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from discreet.core.counts import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Schedule
from discreet.local.reports import KINDS, Kind, StepReports

__all__ = ["NAMES", "best_reports", "report_candidates", "reports_of", "reports_pay", "weighed_error"]

NAMES: Mapping[str, str] = {
    "subset": "subset selection", "oue": "unary encoding", "krr": "randomized response",
}  # fmt: skip
_REWARD_SHARE = 0.15  # of the reports that are about rewards, where the query states none
_KNOWN_RATE = 0.01  # standard deviation of a rate from which on its noise decides nothing
_PAYS = 0.33  # bound on u^2 epsilon / H


def reports_of(
    query: CountQuery, kind: Kind, epsilon: float, steps: int, reward_share: float | None = None
) -> StepReports:
    """Reports of so many steps; the share of rewards is the one given, else the query's, else 0.15."""
    return StepReports.of(query, kind, epsilon, steps, reward_share or query.reward_share or _REWARD_SHARE)


def report_candidates(
    query: CountQuery,
    kind: Kind,
    epsilon: float,
    stochastic: bool,
    steps: int | None = None,
    reward_share: float | None = None,
) -> Iterator[StepReports]:
    """Reports of 1, 2, ... steps until their noise is far past the least; of ``steps`` alone if given.

    Raises ``ValueError`` if there are not so many steps.
    """
    horizon = query.counted_steps
    if steps is not None and steps > horizon:
        most = f"H = {horizon}" if query.step is None else f"1, only step {query.step} is counted"
        raise ValueError(f"steps = {steps}: must be at most {most}")
    last = math.inf
    for m in range(1, horizon + 1) if steps is None else (steps,):
        reports = reports_of(query, kind, epsilon, m, reward_share)
        error = reports.unit_std(stochastic)
        yield reports
        if error > 1.5 * last:
            return
        last = min(last, error)


def best_reports(query: CountQuery, epsilon: float, stochastic: bool) -> StepReports:
    """The reports with the least noise in a transition count, of all kinds and numbers of steps.

    Raises ``ValueError`` where epsilon is too small for the grid of their coins (below about 1e-14).
    """
    every = [one for kind in KINDS for one in report_candidates(query, kind, epsilon, stochastic)]
    return min(every, key=lambda one: one.unit_std(stochastic))


def weighed_error(reports: StepReports, query: CountQuery, schedule: Schedule) -> float:
    """Noise of a transition count where it is weighed against noise in sums: see the module's head.

    The count is one of n users, who all were assigned its action, or of their H n records where the query
    pools steps (whose reports are as good as independent). An open-ended schedule has no last release.
    """
    one = reports.unit_std(schedule.plans == "stochastic")
    each = reports.horizon if query.stationary else 1
    last = math.inf if schedule.users is None else each * float(schedule.release_times[-1])
    return one * math.sqrt(min(last, (one / _KNOWN_RATE) ** 2))


def reports_pay(layout: Layout, epsilon: float, reward_share: float | None = None) -> bool:
    """Do reports of public policies beat batches with noise of their own, where learning takes place?"""
    query = CountQuery(layout, visits=False, reward_share=reward_share)
    try:
        one = best_reports(query, epsilon, stochastic=False).unit_std()
    except ValueError:  # an epsilon too small for the grid of their coins
        return False
    return one * one * epsilon <= _PAYS * layout.horizon
