"""Mean outcome of users by state and action, with intervals, from a release of first visits.

Let q = 1/2 + G / N be the mean return of the first visits to a state in which users took a given action. N is
the number of these visits and G the sum of their centred returns. The variance of q is (sigma_G^2 + (q -
1/2)^2 sigma_N^2) / N^2 + q (1 - q) / N. The last term assumes outcomes 0 and 1, which have the largest
possible variance. A second estimate is computed from the next states of these users
(:mod:`discreet.learners.ope.consistency_test`). The confidence level holds for each interval separately.
Among many intervals, some do not contain the true value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.learners.ope.consistency_test import LEAST_USERS, STANDS_OUT, Consistency
from discreet.learners.ope.count_estimates import reciprocal
from discreet.learners.ope.first_visit_query import VisitSums

_LEAST_SPREAD = 0.02  # smallest assumed variance of an outcome, as a share of the squared range of returns


class MeanOutcome(NamedTuple):
    """Mean outcome of the users who took one action in one state. Returns are in the user's units.

    - row : row of this pair in the layout.
    - users : noisy number of first visits. deviation : standard deviation of its noise.
    - share : share of the decisions in the state that take this action.
    - mean, low, high : mean return of these users, and its interval.
    - expected, expected_low, expected_high : estimate of the mean return from the next states, and its
      interval; NaN if the row was not tested.
    - apart : difference of the two estimates in standard errors; NaN if the row was not tested.
    """

    row: int
    users: float
    deviation: float
    share: float
    mean: float
    low: float
    high: float
    expected: float
    expected_low: float
    expected_high: float
    apart: float


def mean_outcome(sums: VisitSums, row: int) -> tuple[float, float]:
    """Return the mean return of first visits in a row, scaled to [0, 1], and its standard deviation."""
    noise = sums.noise
    inverse = float(reciprocal(sums.visits[row : row + 1], noise.visits)[0])
    q = float(np.clip(sums.returns[row] * inverse + 0.5, 0.0, 1.0))
    spread = sums.question.episodes * max(q * (1.0 - q), _LEAST_SPREAD) * inverse
    return q, math.sqrt((noise.returns**2 + ((q - 0.5) * noise.visits) ** 2) * inverse**2 + spread)


def outcomes_of(
    sums: VisitSums, found: Consistency, level: float = 0.95
) -> dict[int, tuple[MeanOutcome, ...]]:
    """Return a dict from states to the mean outcomes of their actions.

    The dict contains all states that have several actions and whose visits exceed the noise. Actions with
    counts that do not exceed the noise are left out. States and actions are in the order of the layout.

    found : result of the consistency test of the same release. level : confidence level of each interval, in
    (0, 1).
    """
    layout, noise = sums.layout, sums.noise
    least, most = sums.question.bounds
    scale, width = most - least, -float(ndtri(0.5 * (1.0 - level)))
    state, cells = layout.row_state, np.diff(layout.state_ptr)
    visits = sums.per_state(sums.visits)
    known = visits > np.maximum(STANDS_OUT * noise.visits * np.sqrt(cells), LEAST_USERS)
    known &= (cells > 1) & ~found.model.terminal
    known[sums.question.start] = False  # the start state has no decision of users
    rows = np.flatnonzero((sums.visits > max(STANDS_OUT * noise.visits, LEAST_USERS)) & known[state])
    apart: NDArray[np.float64] = np.full(layout.rows, np.nan)
    apart[found.contrasts.where] = found.contrasts.value / found.contrasts.deviation
    table: dict[int, list[MeanOutcome]] = {}
    for row in rows.tolist():
        s = int(state[row])
        q, deviation = mean_outcome(sums, row)
        off = width * deviation
        step = q - float(found.by_returns[row]) + float(found.by_transitions[row])
        step_off = width * float(found.step_deviation[row])
        mean, low, high, expected, least_step, most_step = (
            least + scale * np.clip([q, q - off, q + off, step, step - step_off, step + step_off], 0.0, 1.0)
        ).tolist()
        one = MeanOutcome(
            row, float(sums.visits[row]), noise.visits, float(sums.visits[row] / visits[s]), mean, low, high,
            expected, least_step, most_step, float(apart[row]),
        )  # fmt: skip
        table.setdefault(s, []).append(one)
    return {s: tuple(found) for s, found in table.items()}
