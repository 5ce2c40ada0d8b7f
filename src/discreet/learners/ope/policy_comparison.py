r"""Gain of an external policy from a release of first visits, and its comparison with a learned policy.

An external policy pi is supplied by the operator, for example a rule that is in use. It is stationary and
stochastic, with action probabilities pi(a | s) in the states that it names. In all other states, it follows
the behaviour policy b. Its gain is estimated by the direct method, in one Markov chain that is estimated from
the transitions of first visits,

    gain = J(P_pi) - J(P_b),   P_pi(s) = sum_a pi(a | s) P_a(s) + u(s) P_b(s),                          (1)

with J(P) = sum_h e_start P^h (P w) as in :mod:`discreet.learners.ope.transition_gains`. P_b is the
distribution of next states under the behaviour policy, and u = 1 in states that are not named. For counts by
state and action, marginalised importance sampling and the doubly robust method give the same estimate (Xie,
Ma and Wang 2019, arXiv 1906.03393; Yin and Wang 2020, arXiv 2001.10742). Counts of states and rows are
projected unless they exceed the noise.

**Variance.** The variance is computed by the delta method. For pi, let c(s, t) = sum_h d_h(s) (w(t) +
V_h+1(t)), where d_h(s) is the probability that pi is in s at step h. An increase of the cell M(s, a, t)
changes J(P_pi) by

    pi(a | s) [c(s, t) - P_a c(s, .)] / N(s, a) + u(s) [c(s, t) - P_b c(s, .)] / N(s)                   (2)

and changes J(P_b) by the same expression with pi = 0 and u = 1. The slopes of a difference are differences of
slopes, so errors cancel where both policies take the same actions. The variance of a cell is sigma^2 + M.
Three rules are those of :mod:`discreet.learners.ope.transition_gains`. The error of a mean over a projected
row is at most the range of the averaged values. If a few users have equal outcomes, the variance is at least
that of all users in the state. A few hypothetical users with other outcomes are added. The release is not
split into halves, because the policy was not chosen from this release.

**Rows that do not exceed the noise.** The count of some actions of pi can be too small. A count is too small
if it is below six standard deviations of its noise (nine for Laplace noise), or at most ten. For these
actions, the estimate uses P_b instead of P_a. Up to the first such decision, an episode has the same
distribution in the estimated chain as under pi, and the range of returns is 1. The error of the gain is
therefore at most the probability that an episode has such a decision. This probability is at most the
expected number of such decisions per episode. The interval is widened by this number on each side. If more
than one twentieth of the decisions are of this kind, no gain is reported.

**Learned minus external.** The learned policy L was chosen from the selection half M + e. The added errors e
have the same distribution as the errors x of the release. Conditional on this choice, the mean of x is not 0:
E[x | x + e] = (x + e) / 2. Therefore L must be evaluated from the evaluation half M - e, for which E[x - e |
x + e] = 0. The external policy R was not chosen, but L was chosen *instead of R*: L differs from R where the
estimates of R's actions were too low. Conditional on this choice, an estimate of R from the whole of M would
be too low by half of that error, and the difference would be too high. Therefore both policies are evaluated
from the evaluation half, in one chain:

    D(M - e) = J_L(M - e) - J_R(M - e),   Var = sum over cells (slope_L - slope_R)^2 2 (sigma^2 + M).   (3)

The variance is estimated from both halves, and the larger estimate is used. Where both policies take the same
actions, the errors of the release and the added errors cancel. In these states, the added errors have no
effect. The default point of the path uses 0.8 of the failure probability. The remaining probability is
divided equally among all other points.

If the gain of L is estimated from returns, (3) cannot be used. The reason is that returns and transitions are
correlated, and the released sums do not determine the correlation. In this case, the interval of D is the
interval of L minus the interval of R, each at half of the failure probability. This interval is valid for any
correlation.

**Hidden causes** (unobserved confounders). The difference of two policies needs separate bounds. Consider
causes of strength lambda that are drawn again at each step (:mod:`discreet.learners.ope.hidden_cause`). Let
low and high be the lowest and highest values of a policy under such causes. Let W_h(s) be a lower bound of
V_L - V_R if both policies are in s at step h. In states where both policies take the same actions, the same
cause affects both, and W_h(s) = min_h sum_a pi(a) [e + (1 - e) h] P_a W_h+1. In all other states, W_h(s) is
the larger of two bounds: low_L - high_R, and

    min P_L W_h+1 + min P_+ m - max P_- m
        - sum_t r(t) [|P_+ - P_-| + (lambda - 1) sum_a |pi_L - pi_R| (1 - e) P_a](t).

Here P_+ is the mixture of the P_a with the positive parts of pi_L - pi_R as weights, and P_- that with the
negative parts. The interval of w + V_R at the next step is m -+ r. The bound follows from V_L - V_R = P_L
(V_L' - V_R') + (P_L - P_R)(w + V_R'), where V' is the value at the next step. The cause changes P_a by at
most (1 - e)(lambda - 1) P_a. By induction, W is at most the true difference; at lambda = 1 it equals the
difference.

For lasting causes, the bound is for single changes at first visits, as in
:mod:`discreet.learners.ope.hidden_cause`. The outcome of the learned action is bounded from below, and the
outcome of the external policy's action from above. To measure the error of the bound for causes that act at
each step, the model is fitted again to releases that are simulated from it. The delta method gives the error
of the bound for lasting causes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.ope import deviation_gains as deviations
from discreet.learners.ope.consistency_test import ProjectedModel, covered, model_of
from discreet.learners.ope.deviation_gains import DEFAULT, STANDS_OUT, Gain, Path, first_visits
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.hidden_cause import ConfoundingLoss, largest_strength, lowest
from discreet.learners.ope.transition_gains import Chain, TransitionCounts, TransitionPath, capped, halves_of
from discreet.learners.ope.verdict import COVERED, Verdict, kind_of
from discreet.utils.random_streams_kernels import ROLE_BOOTSTRAP, generator_at

Bools = NDArray[np.bool_]

_LACKING = 0.05  # No gain is reported if a larger share of decisions is in rows that do not exceed the noise.
_LEAST = 10.0  # A count is used only if it also exceeds this number of users.
_REFITS = 8


class Policy(NamedTuple):
    """A stationary stochastic policy that is defined in some states.

    It follows the behaviour policy in all other states.

    - weights : (R,) action probabilities, one for each row of :attr:`FirstVisits.layout`. States that are not
      named have 0.
    - named : (S + 1,) mask of the states in which the policy is defined.
    """

    weights: Floats
    named: Bools


def policy_of(question: FirstVisits, table: Floats, named: Bools) -> Policy:
    """Convert a table of action probabilities to a policy in the layout of the query.

    table : (S, A) probabilities, which sum to 1 over the actions of each named state. named : (S,) mask of
    the named states.

    Named states that have only one action, including terminal states, follow the behaviour policy. Raises
    ``ValueError`` if a probability is negative, if an inadmissible action has a positive probability, or if
    the probabilities of a named state do not sum to 1 within 1e-9.
    """
    own, layout = question.spec.layout, question.layout
    table = checks.floats("table", table, (own.states, own.actions))
    named = np.asarray(named, bool)
    if (table[named] < 0.0).any() or (table[named] * (own.row_index[named] < 0) > 0.0).any():
        raise ValueError("table: must hold probabilities of at least 0, above 0 for admissible actions only")
    if (np.abs(table[named].sum(axis=1) - 1.0) > 1e-9).any():
        raise ValueError("table: must sum to 1 within 1e-9 in every named state")
    chosen = np.zeros(layout.states, bool)
    chosen[:-1] = named & (np.diff(layout.state_ptr)[:-1] > 1)
    whole = np.zeros((layout.states, layout.actions))
    whole[:-1, : own.actions] = table  # there can be more groups of users than actions
    weights = np.where(chosen[layout.row_state], whole[layout.row_state, layout.row_action], 0.0)
    return Policy(weights, chosen)


def learned_policy(path: Path, count: int) -> Policy:
    """Return the policy that changes the first ``count`` states of a path."""
    layout, weights = path.sums.layout, np.zeros(path.sums.layout.rows)
    own = path.order[:count]
    weights[layout.row_index[own, path.action[own]]] = 1.0
    return Policy(weights, path.changed(count))


@dataclass(frozen=True)
class Judgement:
    """Gain of a policy over the behaviour policy, estimated from one release.

    Attributes
    ----------
    gain, value : Gain, optional
        Gain and value of the policy, with intervals, in the user's units. None if more than 5 % of the
        decisions lack support.
    lacking : float
        Share of the policy's decisions that lack support: the count of the chosen action does not exceed the
        noise. Only decisions in states with several actions are included.
    effective : float
        Effective number of the users' decisions on which the estimate is based (Kish's effective sample
        size).
    """

    gain: Gain | None
    value: Gain | None
    lacking: float
    effective: float


class _Side(NamedTuple):
    """Value, slopes (2) and visits of one policy in a chain.

    Attributes
    ----------
    value : float
        Value of the policy, in units of the range of returns. A return of 0 has the value 0.
    own : (R, S + 1) floats
        First term of (2), the slopes in the cells of each row.
    pooled : (S + 1, S + 1) floats
        Second term of (2), the slopes in the cells of all rows of each state.
    visits : (S + 1,) floats
        Expected number of visits, including later visits.
    lacking : (S + 1,) floats
        Probability that a decision in the state lacks support.
    """

    value: float
    own: Floats
    pooled: Floats
    visits: Floats
    lacking: Floats


class _Part(NamedTuple):
    """Estimated difference of the values of two policies, in units of the range of returns."""

    value: float
    deviation: float  # standard deviation of all errors
    noise: float  # standard deviation of the errors due to privacy noise
    off: float  # amount by which the interval is widened on each side because of rows that lack support


def known_rows(sums: VisitSums) -> Bools:
    """Return an (R,) mask of the rows whose count exceeds the noise."""
    out = STANDS_OUT["laplace" if sums.heavy else "gaussian"]
    return np.asarray(sums.visits > max(out * sums.noise.visits, _LEAST))


def _side(chain: Chain, policy: Policy | None, known: Bools) -> _Side:
    """Return the value, slopes and visits of a policy in this chain.

    policy : the policy; None means the behaviour policy. known : (R,) mask of the rows whose count exceeds
    the noise.
    """
    sums, layout = chain.sums, chain.sums.layout
    state = layout.row_state
    live = np.ones(layout.states)
    live[chain.ends] = 0.0
    laws = chain.moves / chain.taken[:, None]
    weights, mixed, lacking = np.zeros(layout.rows), live.copy(), np.zeros(layout.states)
    moves = chain.usual
    if policy is not None:
        weights = np.where(known, policy.weights, 0.0)
        lacking = sums.per_state(np.where(known, 0.0, policy.weights)) * live
        mixed = np.where(policy.named, lacking, live)
        moves = sums.per_state(weights[:, None] * laws) + mixed[:, None] * chain.usual
    worth, reached = chain.followed(moves)
    slopes = reached.T @ (chain.paid + worth[1:])  # (S + 1, S + 1)
    own = slopes[state] - (laws * slopes[state]).sum(axis=1, keepdims=True)
    own *= (weights / chain.taken)[:, None]
    pooled = slopes - (chain.usual * slopes).sum(axis=1, keepdims=True)
    pooled *= (mixed / chain.seen)[:, None]
    return _Side(float(worth[0, sums.question.start]), own, pooled, reached.sum(axis=0), lacking)


def _less(chain: Chain, one: _Side, other: _Side | None) -> _Part:
    """Return the value of one policy minus that of another policy in the same chain.

    If ``other`` is None, return the value of the first policy.
    """
    value, own, pooled = one.value, one.own, one.pooled
    off = float((np.maximum(one.visits, 0.0) * one.lacking).sum())
    if other is not None:
        value, own, pooled = value - other.value, own - other.own, pooled - other.pooled
        off += float((np.maximum(other.visits, 0.0) * other.lacking).sum())
    deviation, noise = _deviation(chain, own, pooled)
    return _Part(value, deviation, noise, min(1.0, off))


def _deviation(chain: Chain, own: Floats, pooled: Floats) -> tuple[float, float]:
    """Return the standard deviation of an estimate, and the part that is due to privacy noise.

    own, pooled : slopes of the estimate, defined in :class:`_Side`.
    """
    errors = cell_errors(chain, own, pooled)
    squared = np.square(errors.slopes)
    noise = float((squared * chain.noise).sum())
    return math.sqrt(noise + float((squared * errors.luck).sum()) + errors.unseen), math.sqrt(noise)


class CellErrors(NamedTuple):
    """Slopes of an estimate in all cells, with the sampling variances of the cells."""

    slopes: Floats  # (R, S + 1)
    luck: Floats  # (R, S + 1)
    unseen: float  # additional variance for outcomes that no observed user had


def cell_errors(chain: Chain, own: Floats, pooled: Floats) -> CellErrors:
    """Return the slopes of an estimate, limited in projected rows, and the variances of the cells.

    own : (R, S + 1) slopes in the cells of each row. pooled : (S + 1, S + 1) slopes in the cells of all rows
    of each state.
    """
    sums, state = chain.sums, chain.sums.layout.row_state
    luck = chain.luck.copy()
    rows = np.flatnonzero(own.any(axis=1))
    luck[rows] = chain.luck_of(state[rows], rows, own[rows])
    every = chain.noise + luck
    taken, seen = chain.taken, chain.seen
    alone = np.ones((state.size, 1))
    alone[rows] = np.sqrt(
        capped((own[rows] * taken[rows][:, None])[None], every[rows], taken[rows], chain.clear_rows[rows])
    )
    shared = np.sqrt(capped((pooled * seen[:, None])[None], sums.per_state(every), seen, chain.clear))
    unseen = float(chain.unseen(rows, own[rows][None])[0, 0]) if rows.size else 0.0
    return CellErrors(own * alone + (pooled * shared)[state], luck, unseen)


def _whole(sums: VisitSums) -> Chain:
    return Chain(sums, TransitionCounts(sums.moves, sums.visits), 1.0)


def _gain(sums: VisitSums, part: _Part, width: float, level: float, least: float = -1.0) -> Gain:
    """Convert a difference or a value to the user's units, with an interval.

    - part : the difference, or the value.
    - width : half-width of the interval in standard deviations.
    - least : smallest possible result, -1 for a difference and 0 for a value.
    """
    low, high = sums.question.bounds
    scale, zero = high - low, 0.0 if least < 0.0 else low
    off = width * part.deviation + part.off
    value, bottom, top = (zero + scale * float(np.clip(x, least, 1.0)) for x in (
        part.value, part.value - off, part.value + off,
    ))  # fmt: skip
    sampling = math.sqrt(max(part.deviation**2 - part.noise**2, 0.0))
    return Gain(value, bottom, top, level, scale * part.noise, scale * sampling, 1.0, 0.0)


def check_paid(sums: VisitSums) -> None:
    """Raise ``ValueError`` if the schema has no rewards by final state, or has censored ends."""
    if sums.question.returns.outcomes is None:
        raise ValueError(
            "sums: must be of returns that a rule pays by the state in which an episode ends (outcomes); "
            "otherwise transitions contain no information about returns"
        )
    if sums.question.returns.censored is not None:
        raise ValueError("sums: must have no censored ends; the intervals do not allow for their outcomes")


def judge(sums: VisitSums, policy: Policy, level: float = 0.95) -> Judgement:
    """Return the gain of a policy over the behaviour policy. See the module for the method.

    policy : a policy that was not computed from this release. level : confidence level of the intervals, in
    (0, 1).

    Raises ``ValueError`` if the schema has no rewards by final state, or has censored ends.
    """
    check_paid(sums)
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    chain, known = _whole(sums), known_rows(sums)
    ours, usual = _side(chain, policy, known), _side(chain, None, known)
    visits, free = np.maximum(ours.visits, 0.0), _free(sums)
    decisions = float(visits[free].sum())
    lacking = float((visits * ours.lacking)[free].sum()) / decisions if decisions > 0.0 else 0.0
    if lacking > _LACKING:
        return Judgement(None, None, lacking, 0.0)
    width = -float(ndtri(0.5 * (1.0 - level)))
    least, most = sums.question.bounds
    base = (min(max(0.0, least), most) - least) / (most - least)
    value = _less(chain, ours, None)
    return Judgement(
        _gain(sums, _less(chain, ours, usual), width, level),
        _gain(sums, value._replace(value=base + value.value), width, level, 0.0),
        lacking,
        _effective(sums, policy, visits, known),
    )


def _free(sums: VisitSums) -> Bools:
    """Return an (S + 1,) mask of the states in which users choose between several actions."""
    return np.asarray(sums.per_state(sums.decided.astype(np.float64)) > 0.0)


def _effective(sums: VisitSums, policy: Policy, visits: Floats, known: Bools) -> float:
    """Return the effective sample size (sum N rho)^2 / sum N rho^2, with rho = d(s) pi(a | s) / N(s, a).

    The sums are over all actions of the states in which users have a choice.

    visits : (S + 1,) expected visits d(s) of the policy. known : (R,) mask of the rows whose count exceeds
    the noise.
    """
    layout, counts, free = sums.layout, np.maximum(sums.visits, 0.0), _free(sums)
    seen = np.maximum(sums.per_state(counts), 1.0)
    weights = np.where(policy.named[layout.row_state], np.where(known, policy.weights, 0.0), 0.0)
    of_rows = visits[layout.row_state] * weights
    of_people = np.where(policy.named, 0.0, visits) * free
    squared = float((of_rows**2 / np.maximum(counts, 1.0)).sum() + (of_people**2 / seen).sum())
    return float(of_rows.sum() + of_people.sum()) ** 2 / squared if squared > 0.0 else 0.0


# ---------------------------------------------------------------------- values in changed states
class StateValues(NamedTuple):
    """Mean return after first visits to changed states, under the policy that makes all changes.

    All fields are (S + 1,) floats in the user's units. Unchanged states and states without visits have NaN.
    An interval from low to high holds at the confidence level of the path for each state separately.
    """

    value: Floats
    low: Floats
    high: Floats
    deviation: Floats


def state_values(path: Path, count: int, within: float = math.inf) -> StateValues:
    """Return the mean return after first visits to each changed state s, sum_h f_h(s) V_h(s) / x(s).

    V_h is the value of the policy that changes the first ``count`` states of the path. Under this policy, the
    first visit to s is at step h with probability f_h(s), and x(s) is the sum of f_h(s) over h. ``value`` is
    computed from the projected counts of the whole release. The changes were chosen from these counts.
    Therefore the interval is computed from the evaluation half (see
    :mod:`discreet.learners.ope.transition_gains`). Its standard deviation is the larger of the estimates from
    both halves. The interval is widened to contain ``value``. Standard deviations are computed by the delta
    method, with f and x held fixed.

    within : largest standard deviation, as a share of the range of returns. Values with a larger one are left
    out.

    Raises ``ValueError`` if the schema has no rewards by final state, or has censored ends.
    """
    sums = path.sums
    check_paid(sums)
    least, most = sums.question.bounds
    scale, empty = most - least, np.full(sums.layout.states, np.nan)
    if not count:
        return StateValues(empty, empty, empty, empty)
    own = path.order[:count]
    rows = sums.layout.row_index[own, path.action[own]]
    projected = sums.consistent()
    whole = Chain(sums, TransitionCounts(projected, projected.sum(axis=1)), 1.0)
    value, deviation = _values(whole, own, rows, np.ones(count, bool))
    known = deviation <= within
    value, deviation = np.where(known, value, np.nan), np.where(known, deviation, np.nan)
    choosing, judging = (_values(Chain(sums, counts), own, rows, known) for counts in halves_of(path))
    off = -float(ndtri(0.5 * (1.0 - path.level))) * np.maximum(choosing[1], judging[1])
    middle = np.where(np.isfinite(judging[0]), judging[0], value)
    off = np.where(
        np.isfinite(off), off, 1.0
    )  # if a half has no visits to the state, the interval is the whole range
    zero = min(max(0.0, least), most)
    found = []
    for one in (value, np.minimum(middle - off, value), np.maximum(middle + off, value)):
        table = empty.copy()
        table[own] = np.clip(zero + scale * one, least, most)
        found.append(table)
    table = empty.copy()
    table[own] = scale * deviation
    return StateValues(found[0], found[1], found[2], table)


def _values(chain: Chain, own: Ints, rows: Ints, wanted: Bools) -> tuple[Floats, Floats]:
    """Return the (K,) values of :func:`state_values` for K states, and their standard deviations.

    The unit is the range of returns. Standard deviations are computed only for the states in ``wanted`` (K,);
    they are NaN for all other states.

    own : (K,) states that the policy changes. rows : (K,) rows of its new actions.
    """
    sums, size = chain.sums, chain.sums.layout.states
    steps, taken = sums.layout.horizon, chain.moves[rows] / chain.taken[rows][:, None]
    moves = chain.usual.copy()
    moves[own] = taken
    worth, _ = chain.followed(moves)
    # noise can make probabilities negative; the weights of a state must be non-negative and sum to 1
    first = np.maximum(first_visits(moves, np.eye(size)[sums.question.start], own, steps), 0.0)
    once = first.sum(axis=0)
    weight = np.where(once > 1e-12, first / np.where(once > 1e-12, once, 1.0), np.nan)
    value = (weight * worth[:-1, own]).sum(axis=0)

    # variances of counts: changed states use the new action's row, other states use all users
    every = sums.per_state(chain.luck + chain.noise)
    seen, clear, law = chain.seen.copy(), chain.clear.copy(), chain.usual.copy()
    every[own], seen[own], clear[own] = chain.luck[rows] + chain.noise[rows], chain.taken[rows], False
    clear[own], law[own] = chain.clear_rows[rows], taken
    episodes = sums.question.episodes
    among = np.maximum(chain.usual[own], 0.0)
    among /= np.maximum(among.sum(axis=1, keepdims=True), 1e-300)
    noise, ahead = chain.noise[rows], chain.paid + worth[1:]
    reached = np.zeros((steps, own.size, size))
    each, there = np.arange(own.size), np.zeros((own.size, size))
    for h in range(steps):
        there = there @ moves
        there[each, own] += np.nan_to_num(weight[h])
        reached[h] = there
    deviation = np.full(own.size, np.nan)
    for i in np.flatnonzero(wanted).tolist():
        slopes = reached[:, i].T @ ahead
        slopes -= (law * slopes).sum(axis=1, keepdims=True)
        variance = (slopes**2 * every).sum(axis=1) / seen**2
        changed = slopes[own] - (among * slopes[own]).sum(axis=1, keepdims=True)
        usual = chain.copies * episodes * (among * changed**2).sum(axis=1) / seen[own]
        usual += (slopes[own] ** 2 * noise).sum(axis=1) / seen[own] ** 2
        # equal outcomes of a few users do not prove that the outcome is certain
        variance[own] = np.maximum(variance[own], usual)
        most = np.ptp(slopes, axis=1)
        variance = np.where(clear, variance, np.minimum(variance, most**2))
        variance[chain.ends] = 0.0
        unseen = float(chain.unseen(rows, (slopes[own] / seen[own][:, None])[None])[0, 0])
        deviation[i] = math.sqrt(float(variance.sum()) + unseen)
    return value, np.where(np.isfinite(value), deviation, np.nan)


# ------------------------------------------------------------------- learned minus external policy
@dataclass(frozen=True, eq=False)
class PolicyComparison:
    """Comparison of a learned policy with an external policy.

    Attributes
    ----------
    policy : Policy
        The external policy.
    rule : Judgement
        Gain of the external policy over the behaviour policy.
    difference : Gain, optional
        Value of the learned policy minus that of the external policy. None if the learned policy changes no
        state, or if the external policy lacks support.
    differs : (S + 1,) bool
        Mask of the states in which the two policies act differently.
    each_step, lasting : float
        Largest strength of unobserved confounding under which the difference stays above 0. ``each_step`` is
        for confounders that are drawn again at each step, and ``lasting`` is for confounders that stay the
        same over the steps.
    kind : str
        Kind of the verdict on the difference, by the rules for a verdict on a gain. It is "not shown" if the
        gain of the learned policy is not shown.
    """

    __repr__ = brief

    policy: Policy
    rule: Judgement
    difference: Gain | None
    differs: Bools
    each_step: float
    lasting: float
    kind: str

    @property
    def shown(self) -> bool:
        """Return True if the learned policy is shown to be better than the external policy.

        The result is valid for unobserved confounders whose strength is at most ``each_step``.
        """
        return self.kind == "shown"


def compare(path: Path, count: int, verdict: Verdict, policy: Policy, level: float) -> PolicyComparison:
    """Compare the policy that changes the first ``count`` states of a path with an external policy.

    - verdict : verdict on the learned policy.
    - policy : the external policy. This policy must not be computed from this release.
    - level : confidence level of the intervals, in (0, 1).

    Raises ``ValueError`` if the schema has no rewards by final state, or has censored ends.
    """
    sums = path.sums
    rule = judge(sums, policy, level)
    learned = learned_policy(path, count)
    differs = _differ(sums, learned, policy)
    found = None
    if count and rule.gain is not None:
        same = Gain(0.0, 0.0, 0.0, level, 0.0, 0.0, 1.0, 0.0)  # the difference of equal policies is exactly 0
        found = _difference(path, count, learned, policy, level) if differs.any() else same
    if found is None or not verdict.shown or found.low <= 0.0:
        return PolicyComparison(policy, rule, found, differs, 1.0, 1.0, "not shown")
    test = verdict.consistency
    model = test.model
    each_step = largest_strength(
        found,
        sums,
        with_errors(sums, path.key, lambda m, s: _lost(sums, m, learned, policy, s), found, model),
    )
    lasting = largest_strength(
        found, sums,
        lambda s: ConfoundingLoss(*_lost_once(path, model, learned, policy, s, found.revisits)),
    )  # fmt: skip
    apart = np.abs(learned.weights - policy.weights)
    rows = np.flatnonzero(apart)
    share = covered(test.rows, np.maximum(path.visits, 0.0)[sums.layout.row_state[rows]] * apart[rows], rows)
    kind = kind_of(
        1, found, test, each_step >= verdict.asked, test.tested and share >= COVERED and not verdict.hinted
    )
    return PolicyComparison(policy, rule, found, differs, each_step, lasting, kind)


def _differ(sums: VisitSums, one: Policy, other: Policy) -> Bools:
    apart = sums.per_state(np.abs(one.weights - other.weights)) > 0.0
    apart |= one.named != other.named
    apart[list(sums.question.returns.terminal)] = False
    return np.asarray(apart)


def _difference(path: Path, count: int, learned: Policy, policy: Policy, level: float) -> Gain:
    """Return the value of the learned policy minus that of the external policy, with its interval.

    If the gain of the learned policy is estimated from transitions, the difference is (3). Otherwise its
    interval is computed from the intervals of both policies.
    """
    sums = path.sums
    if not isinstance(path, TransitionPath):
        half = 0.5 * (1.0 + level)
        ours, theirs = (
            deviations.path_of(sums, half, path.parts, path.proposed).gain(count),
            judge(sums, policy, half).gain,
        )
        assert theirs is not None
        least, most = sums.question.bounds
        scale = most - least
        estimate, low, high = (float(np.clip(x, -scale, scale)) for x in (
            ours.estimate - theirs.estimate, ours.low - theirs.high, ours.high - theirs.low,
        ))  # fmt: skip
        return Gain(
            estimate, low, high, level, math.hypot(ours.noise, theirs.noise),
            math.hypot(ours.sampling, theirs.sampling), ours.revisits, ours.revisits_error,
        )  # fmt: skip
    known = known_rows(sums)
    parts = []
    for counts in halves_of(path):
        chain = Chain(sums, counts)
        parts.append(_less(chain, _side(chain, learned, known), _side(chain, policy, known)))
    choosing, judging = parts
    part = judging._replace(deviation=max(choosing.deviation, judging.deviation))
    failure = 1.0 - level
    share = DEFAULT if count == path.default else (1.0 - DEFAULT) / max(path.points.size - 1, 1)
    return _gain(sums, part, -float(ndtri(0.5 * failure * share)), level)


# -------------------------------------------------------------------------------- hidden causes
def with_errors(
    sums: VisitSums, key: NDArray[np.uint64], loss: Callable[[ProjectedModel, float], float], found: Gain,
    model: ProjectedModel,
) -> Callable[[float], ConfoundingLoss]:  # fmt: skip
    """Return a function that returns the loss at a strength, with its standard deviation.

    The model is fitted again to releases that are drawn from it. The relative standard deviation of the loss
    is measured at one strength: the strength that reduces the difference ``found`` to 0. The measured value
    is used at all strengths.

    - sums, key : the released sums, and the key of the random numbers.
    - loss : function that returns the loss under a model, for a strength of the cause.
    - model : model of the release.
    - found : estimated difference of the two policies.
    """
    plain = largest_strength(found, sums, lambda s: ConfoundingLoss(loss(model, s), 0.0))
    at = max(plain, 1.0 + 1e-3)
    draw, moves = generator_at(key, ROLE_BOOTSTRAP, 2**35), sums.consistent()
    here, off = loss(model, at), 0.0
    for _ in range(_REFITS):
        off += (loss(_refitted(sums, *sums.sampled(moves, draw)), at) - here) ** 2 / _REFITS
    relative = math.sqrt(off) / max(here, 1e-12)

    def both(strength: float) -> ConfoundingLoss:
        lost = loss(model, strength)
        return ConfoundingLoss(lost, relative * lost)

    return both


def _refitted(sums: VisitSums, moves: Floats, visits: Floats) -> ProjectedModel:
    return model_of(
        sums.question.sums_of(visits, moves, sums.returns, *sums.noise, people=sums.people, heavy=sums.heavy)
    )


def _lost(sums: VisitSums, model: ProjectedModel, one: Policy, other: Policy, strength: float) -> float:
    """Return the loss of the difference of two policies under confounding that is drawn again at each step.

    The loss is the difference without confounding minus the bound W_0 of the module, in the start state.

    strength : strength lambda of the confounder.
    """
    layout, arrival, start = sums.layout, sums.question.arrival, sums.question.start
    known = known_rows(sums)
    rows = np.flatnonzero(known & ((one.weights > 0.0) | (other.weights > 0.0)))
    laws, state = model.moves[rows], layout.row_state[rows]
    rest = 1.0 - np.clip(model.share[rows], 0.0, 1.0)[:, None]
    live = (~model.terminal).astype(np.float64)

    def side(policy: Policy) -> tuple[Floats, Floats]:
        weights = policy.weights[rows]
        taken = np.bincount(state, weights, layout.states)
        return weights, np.where(policy.named, np.clip(1.0 - taken, 0.0, 1.0), 1.0) * live

    def least(weights: Floats, mixed: Floats, y: Floats) -> Floats:
        """Return the (S + 1,) lowest means of y over next states under confounding.

        weights, mixed : probabilities of the actions ``rows``, and of following the behaviour policy.
        """
        each = (((1.0 - rest) + rest * lowest(y, laws, strength)[0]) * laws) @ y
        return np.asarray(np.bincount(state, weights * each, layout.states) + mixed * (model.usual @ y))

    (w_one, u_one), (w_other, u_other) = side(one), side(other)
    plus, minus = np.maximum(w_one - w_other, 0.0), np.maximum(w_other - w_one, 0.0)
    u_plus, u_minus = np.maximum(u_one - u_other, 0.0), np.maximum(u_other - u_one, 0.0)
    alike = (np.bincount(state, plus + minus, layout.states) == 0.0) & (u_plus + u_minus == 0.0)

    def mixture(weights: Floats, mixed: Floats) -> Floats:
        found = mixed[:, None] * model.usual
        np.add.at(found, state, weights[:, None] * laws)
        return np.asarray(found)

    ours, theirs = mixture(w_one, u_one), mixture(w_other, u_other)
    moved = np.abs(mixture(plus, u_plus) - mixture(minus, u_minus))
    np.add.at(moved, state, (strength - 1.0) * (plus + minus)[:, None] * rest * laws)
    size = layout.states
    v_one, v_other, low_one, low, high, gap = (np.zeros(size) for _ in range(6))
    for _ in range(layout.horizon):
        y_low, y_high = arrival + low, arrival + high
        middle, radius = 0.5 * (y_low + y_high), 0.5 * (y_high - y_low)
        together = least(w_one, u_one, gap)
        apart = together + least(plus, u_plus, middle) + least(minus, u_minus, -middle) - moved @ radius
        v_one, v_other = ours @ (arrival + v_one), theirs @ (arrival + v_other)
        low_one = least(w_one, u_one, arrival + low_one)
        low, high = least(w_other, u_other, y_low), -least(w_other, u_other, -y_high)
        gap = np.where(alike, together, np.maximum(apart, low_one - high))
    return float(v_one[start] - v_other[start] - gap[start])


def _lost_once(
    path: Path, model: ProjectedModel, one: Policy, other: Policy, strength: float, revisits: float
) -> tuple[float, float]:
    """Return the loss of the difference of two policies under any confounder, and its standard deviation.

    The loss is for single changes at first visits. strength : strength of the confounder. revisits : ratio of
    the gain at all visits to the gain at first visits.
    """
    apart = one.weights - other.weights
    visits = np.maximum(path.visits[path.sums.layout.row_state], 0.0)
    return lost_once(path, model, visits * apart, strength, max(revisits, 1.0))


def lost_once(
    path: Path, model: ProjectedModel, apart: Floats, strength: float, factor: float = 1.0
) -> tuple[float, float]:
    """Return the loss of single changes of decisions under any confounder, and its standard deviation.

    - path : path of the release, which contains mean returns and support.
    - model : projected counts of the release.
    - apart : (R,) expected number of decisions that are changed to the action of a row. Negative numbers
      count decisions that are changed from this action.
    - strength : strength of the confounder. factor : number by which the loss is multiplied.
    """
    sums = path.sums
    rows = np.flatnonzero(apart)
    known = path.supported[rows]
    q = np.where(known, np.clip(path.whole.q[rows], 0.0, 1.0), 0.5)
    # a lower bound of 1 - q gives an upper bound of q
    outcome = np.where(apart[rows] > 0.0, q, 1.0 - q)
    by_ratio, by_rest = outcome / strength, 1.0 - strength * (1.0 - outcome)
    lost = np.where(known, outcome - np.maximum(by_ratio, by_rest), 1.0)
    slope = np.where(known, 1.0 - np.where(by_ratio >= by_rest, 1.0 / strength, strength), 0.0)
    weight = np.abs(apart[rows]) * (1.0 - np.clip(model.share[rows], 0.0, 1.0)) * factor
    visits = np.maximum(sums.visits[rows], 1.0)
    noise = sums.noise
    of_q = (noise.returns**2 + ((q - 0.5) * noise.visits) ** 2) / visits**2
    of_q += sums.question.episodes * np.maximum(q * (1.0 - q), 0.02) / visits
    variance = np.square(weight * slope) * np.minimum(of_q, 0.25)
    return float(weight @ lost), math.sqrt(float(variance.sum()))
