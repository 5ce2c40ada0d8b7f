"""Which randomized reports meet a budget best, and when they beat noise in sums: public arithmetic.

Noise of a fresh sum has a scale 2 H / epsilon, whatever the number n of users. Noise of reports has a
standard deviation u sqrt(n) in a transition count, u being
:meth:`~discreet.mechanisms.local.randomized_response.StepReports.unit_std`, which falls steeply while
e^epsilon grows to S^2. Reports are less noisy for few users, a noisy sum for many. What matters is who is
less noisy while the learner does not yet know what to do:

- :func:`weighed_error` weighs reports where a rate's standard deviation, u / sqrt(n), has fallen to 1 %
  (their noise is then 100 u^2) or at a twentieth of the users if that is later, or at the last release if
  that is earlier. Of many users few are there while the learner knows nothing; the others pay for what it
  does not know later on.
- :func:`reports_pay` is the same rule for who must decide before there is a query: 100 u^2, or what it is at
  a twentieth of the users, against the noise of batches that grow by 2 %, 10 sqrt(2) 2 H / (0.8 epsilon). For
  few users that is u^2 epsilon <= 0.35 H, with a margin.

The 1 % was measured: over the training worlds (``benchmarks.leaderboard.env_suites.TRAINING``), at epsilon 1
to 14 and 20,000 users, no other bound on u^2 epsilon / H did better by regret than 0.375, for a learner that
else asks for counts pooled over steps (:mod:`discreet.learners.online.noise_aware`). So was the twentieth, at
epsilon 10: over those worlds and four random lakes noisy sums have 1.05 times the regret of reports at 20,000
users, 1.03 times at 200,000 (.66 times in the last quarter), .65 times at two million (.27 times).

Learners may call this: it sees sizes and epsilon only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Schedule
from discreet.mechanisms.local.randomized_response import KINDS, Kind, StepReports

__all__ = ["NAMES", "best_reports", "report_candidates", "reports_of", "reports_pay", "weighed_error"]

NAMES: Mapping[str, str] = {
    "subset": "subset selection", "oue": "unary encoding", "krr": "randomized response",
}  # fmt: skip
_REWARD_SHARE = 0.15  # of the reports that are about rewards, where the query states none
_KNOWN_RATE = 0.01  # standard deviation of a rate from which on its noise decides nothing, if users are few
_OF_USERS = 1 / 20  # where noise is weighed if they are many
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
    return one * math.sqrt(min(last, _learning(one, schedule.users)))


def _learning(unit: float, users: int | None) -> float:
    """Users at whom noise is weighed: of a report's unit of noise, and of how many there will be."""
    return max((unit / _KNOWN_RATE) ** 2, 0.0 if users is None else _OF_USERS * users)


def reports_pay(
    layout: Layout, epsilon: float, reward_share: float | None = None, users: int | None = None
) -> bool:
    """Do reports of public policies beat batches with noise of their own, where learning takes place?"""
    query = CountQuery(layout, visits=False, reward_share=reward_share)
    try:
        one = best_reports(query, epsilon, stochastic=False).unit_std()
    except ValueError:  # an epsilon too small for the grid of their coins
        return False
    return one * math.sqrt(_learning(one, users)) * _KNOWN_RATE * epsilon <= _PAYS * layout.horizon
