"""Choice of randomized reports for a budget, and comparison with noise in sums. Uses only public numbers.

For any number n of users, the noise of a fresh sum has scale 2 H / epsilon. The noise of reports in a
transition count has standard deviation u sqrt(n), where u is
:meth:`~discreet.mechanisms.local.randomized_response.StepReports.unit_std`. u decreases fast with epsilon
until e^epsilon is about S^2. For few users reports are less noisy. For many users a noisy sum is less noisy.
The comparison is made at a number of users at which the learner cannot yet distinguish good actions:

- :func:`weighed_error` usually compares at the n for which the standard deviation of a rate, u / sqrt(n), is
  1 % (the noise of reports is then 100 u^2). If 1/20 of all users is a larger number, the comparison is made
  at that number. If the last release is earlier, it is made at the last release. With many users, only a
  small share of them arrives before the learner has useful estimates. Later errors increase the regret of all
  remaining users.
- :func:`reports_pay` applies the same rule before the query is known. The function compares 100 u^2, or the
  value at 1/20 of the users, with 10 sqrt(2) 2 H / (0.8 epsilon), the noise of batches that grow by 2 %. For
  few users the rule is u^2 epsilon <= 0.35 H. The code uses 0.33 H as a margin.

The values 1 % and 1/20 were chosen by measurements on the training environments
(``benchmarks.leaderboard.env_suites.TRAINING``).

Learners are allowed to call this module, because it uses only sizes and epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Schedule
from discreet.mechanisms.local.randomized_response import KINDS, Kind, StepReports

NAMES: Mapping[str, str] = {
    "subset": "subset selection", "oue": "unary encoding", "krr": "randomized response",
}  # fmt: skip
_REWARD_SHARE = 0.15  # Share of the reports that are about rewards, if the query sets no share.
# With few users, noise is compared at the number of users at which the std of a rate has this value.
_KNOWN_RATE = 0.01
_OF_USERS = 1 / 20  # With many users, noise is compared at this share of all users.
_PAYS = 0.33  # With few users, reports are used if u^2 epsilon / H is at most this value.


def reports_of(
    query: CountQuery, kind: Kind, epsilon: float, steps: int, reward_share: float | None = None
) -> StepReports:
    """Return the parameters of reports about ``steps`` random steps.

    reward_share : share of the reports that are about rewards. None: the share that the query sets, or 0.15
        if the query sets no share.
    """
    return StepReports.of(query, kind, epsilon, steps, reward_share or query.reward_share or _REWARD_SHARE)


def report_candidates(
    query: CountQuery,
    kind: Kind,
    epsilon: float,
    stochastic: bool,
    steps: int | None = None,
    reward_share: float | None = None,
) -> Iterator[StepReports]:
    """Yield reports of 1, 2, ... steps until their noise exceeds 1.5 times the least noise so far.

    If ``steps`` is given, yield only reports of that number of steps. Raises ``ValueError`` if ``steps``
    exceeds the number of counted steps.
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
    """Return the reports with the least noise in a transition count, over all kinds and numbers of steps.

    Raises ``ValueError`` if epsilon is too small for the grid of probabilities (below about 1e-14).
    """
    every = [one for kind in KINDS for one in report_candidates(query, kind, epsilon, stochastic)]
    return min(every, key=lambda one: one.unit_std(stochastic))


def weighed_error(reports: StepReports, query: CountQuery, schedule: Schedule) -> float:
    """Return the noise std of a transition count, for the comparison with noisy sums (module docstring).

    The module docstring defines the number n of users. All n users are assumed to follow policies that play
    the action of the count. If the query sums counts over steps, the count is over the H n records of these
    users. The reports of these records are nearly independent. A schedule without an end has no last release.
    """
    one = reports.unit_std(schedule.plans == "stochastic")
    each = reports.horizon if query.stationary else 1
    last = math.inf if schedule.users is None else each * float(schedule.release_times[-1])
    return one * math.sqrt(min(last, _learning(one, schedule.users)))


def _learning(unit: float, users: int | None) -> float:
    """Return the number of users at which noise is compared.

    unit : noise std that one user's report adds. The total std grows with the square root of the number of
        users.

    users : total number of users, or None if unknown.
    """
    return max((unit / _KNOWN_RATE) ** 2, 0.0 if users is None else _OF_USERS * users)


def reports_pay(
    layout: Layout, epsilon: float, reward_share: float | None = None, users: int | None = None
) -> bool:
    """Return True if reports under deterministic policies are less noisy than batches with fresh noise.

    The comparison is made at the number of users that the module docstring defines.
    """
    query = CountQuery(layout, visits=False, reward_share=reward_share)
    try:
        one = best_reports(query, epsilon, stochastic=False).unit_std()
    except ValueError:  # epsilon is too small for the grid of probabilities
        return False
    return one * math.sqrt(_learning(one, users)) * _KNOWN_RATE * epsilon <= _PAYS * layout.horizon
