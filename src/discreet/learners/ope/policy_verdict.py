r"""Verdict on any policy that is evaluated with a release of first visits.

The gain is that of :func:`discreet.learners.ope.policy_gains.evaluate_policies`. The consistency test and the
order of the conditions are those of :mod:`discreet.learners.ope.verdict`. The test reads the whole release
and all states for every policy, so the choice of a policy does not invalidate it.

**Hidden causes** (unobserved confounders). Let policy pi take action a with probability w_h(s, a), and act as
before with probability u_h(s). The lowest value under a hidden cause of strength L that is drawn again at
each step is

    V_h(s) = sum_a w_h(s, a) [e P_a y + (1 - e) min_g sum_t g(t) P_a(t) y(t)] + u_h(s) P_b y,  y = w + V_h+1.

The proof is the induction for bound A of :mod:`discreet.learners.ope.hidden_cause`. In that module, w is 0 or
1 and does not depend on the step. The behaviour policy's value is identified, so the loss is J(pi) -
J_low(L). Its standard deviation is measured by fitting the model again to drawn releases. The bound for
lasting causes is for each decision separately. Instead of first visits, this bound uses the expected number
of visits at which pi takes action a.
"""

from __future__ import annotations

import numpy as np

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.learners.ope.consistency_test import Consistency, ProjectedModel, covered
from discreet.learners.ope.count_estimates import ValueEstimate
from discreet.learners.ope.deviation_gains import Gain, path_of
from discreet.learners.ope.first_visit_query import VisitSums
from discreet.learners.ope.hidden_cause import (
    LARGEST,
    ConfoundingLoss,
    HiddenCause,
    largest_strength,
    lowest,
    recorded_factor,
)
from discreet.learners.ope.policy_comparison import lost_once, with_errors
from discreet.learners.ope.policy_gains import PolicySteps, first_visit_weights, used_rows
from discreet.learners.ope.verdict import ASKED, COVERED, Verdict, kind_of


def _steps(sums: VisitSums, model: ProjectedModel, table: PolicySteps) -> tuple[Floats, Floats]:
    """Return the (H + 1, R) weights of used rows, and the (H + 1, S + 1) probabilities of "as before"."""
    weights, before = first_visit_weights(sums, table)
    used = used_rows(sums)
    lacking = np.array([sums.per_state(np.where(used, 0.0, row)) for row in weights])
    return np.where(used, weights, 0.0), np.where(before, 1.0, lacking) * ~model.terminal


def _moves(sums: VisitSums, model: ProjectedModel, weights: Floats, mixed: Floats) -> Floats:
    """Return the (S + 1, S + 1) distribution of next states of one step."""
    return np.asarray(sums.per_state(weights[:, None] * model.moves) + mixed[:, None] * model.usual)


def loss_of_policy(sums: VisitSums, model: ProjectedModel, table: PolicySteps, strength: float) -> float:
    """Return the loss of a policy's gain under confounding that is drawn again at each step.

    - sums : released sums. model : their projected counts.
    - table : the policy.
    - strength : strength L of the confounder, at least 1.

    The unit is the range of returns.
    """
    weights, mixed = _steps(sums, model, table)
    rows = np.flatnonzero(weights.any(axis=0))
    laws, state = model.moves[rows], sums.layout.row_state[rows]
    rest = 1.0 - np.clip(model.share[rows], 0.0, 1.0)[:, None]
    paid, states = sums.question.arrival, sums.layout.states
    value, low = np.zeros((2, states))
    for h in range(sums.layout.horizon - 1, -1, -1):
        y, worst = paid + value, paid + low
        each = (((1.0 - rest) + rest * lowest(worst, laws, strength)[0]) * laws) @ worst
        low = np.bincount(state, weights[h, rows] * each, states) + mixed[h] * (model.usual @ worst)
        value = _moves(sums, model, weights[h], mixed[h]) @ y
    start = sums.question.start
    return float(value[start] - low[start])


def visited_rows(sums: VisitSums, model: ProjectedModel, table: PolicySteps) -> Floats:
    """Return the (R,) expected number of decisions per episode that take the action of each row.

    - sums : released sums. model : their projected counts.
    - table : the policy. Decisions that follow the behaviour policy do not count.
    """
    weights, mixed = _steps(sums, model, table)
    here, found = np.eye(sums.layout.states)[sums.question.start], np.zeros(sums.layout.rows)
    for h in range(sums.layout.horizon):
        found += here[sums.layout.row_state] * weights[h]
        here = here @ _moves(sums, model, weights[h], mixed[h])
    return found


def policy_verdict(
    sums: VisitSums, table: PolicySteps, gain: ValueEstimate, found: Consistency, asked: float = ASKED
) -> Verdict:
    """Return the verdict on a policy with this gain.

    Parameters
    ----------
    sums : VisitSums
        The whole release.
    table : PolicySteps
        The policy.
    gain : ValueEstimate
        Gain of the policy, in the user's units.
    found : Consistency
        Result of the consistency test of the release.
    asked : float
        Strength of an unobserved confounder, in [1, 50]. The gain must stay above 0 under such a confounder.

    Raises
    ------
    ValueError
        If ``asked`` is out of range.
    """
    asked = checks.real("hidden_cause", asked, 1.0, LARGEST)
    plain = Gain(gain.estimate, gain.low, gain.high, gain.level, gain.noise, gain.sampling, 1.0, 0.0)
    model, path = found.model, path_of(sums)
    visits = visited_rows(sums, model, table)
    rows = np.flatnonzero(visits)
    if not rows.size or not plain.shown:
        cause = HiddenCause(1.0, 1.0, 1.0)
    else:
        loss = with_errors(sums, path.key, lambda m, s: loss_of_policy(sums, m, table, s), plain, model)
        cause = HiddenCause(
            largest_strength(plain, sums, loss),
            largest_strength(plain, sums, lambda s: ConfoundingLoss(*lost_once(path, model, visits, s))),
            recorded_factor(path, rows),
        )
    share = covered(found.rows, visits[rows], rows)
    checked = found.tested and share >= COVERED
    kind = kind_of(int(rows.size), plain, found, cause.each_step >= asked, checked)
    return Verdict(kind, plain, asked, cause, found, share, False)
