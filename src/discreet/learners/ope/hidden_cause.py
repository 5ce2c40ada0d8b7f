r"""Bounds on the part of an estimated gain that an unobserved confounder can explain.

The model is due to Tan 2006. A hidden cause u is an unobserved confounder: an unrecorded variable that
affects both action and outcome. Among users in a recorded state, the odds of an action given u differ from
the recorded odds by a factor in [1/L, L]. L is the strength of the cause. The *loss* is the largest amount by
which a cause of strength L can reduce the estimated gain. Two bounds on the loss follow. L* is the largest L
at which the interval of the gain, minus this loss, is still above 0. Dorn and Guo 2021 (arXiv 2102.04543)
give sharp bounds for one decision.

Bound A (cause at each step): u is drawn again at each step given the recorded state. Let e be the share of
action a in state s. Then P(t | s, do a) = e P(t | s, a) + (1 - e) h(t) P(t | s, a). The factor h(t) =
E[recorded odds / odds given u | s, a, t] is in [1/L, L], with sum_t h(t) P(t | s, a) = 1. The lowest value of
the policy is computed by backward induction,

    V_h(s) = e P_a y + (1 - e) min_h sum_t h(t) P_a(t) y(t),    y = w + V_h+1,                          (1)

in changed states, and V_h(s) = P_b(s) y in all other states. In the minimum, h(t) = L for the lowest y(t), up
to a total probability of 1 / (1 + L). For all higher y(t), h(t) = 1/L. The true h satisfies the constraints
at each step and state, and the operators are monotone. By induction, V_h is therefore at most the true value.
The value of the behaviour policy is identified, because u is drawn again at each step. The loss is
J(policy) - J_low(L), which is 0 at L = 1 (Kallus and Zhou 2020, arXiv 2002.04518; Bruns-Smith 2021, arXiv
2204.00956).

Bound B (one decision): u is any cause, including lasting causes. Let q in [0, 1] be the mean return of first
visits to s with action a. Suppose that the users who took another action had taken a. Then the mean return of
these users would be at least l(q) = max(q / L, 1 - L (1 - q)). This mean return is E[h Y | a] with h in [1/L,
L] and E h = 1. Therefore h Y >= Y / L and 1 - E[h (1 - Y)] >= 1 - L (1 - q). The loss of single changes at
first visits is max(r, 1) sum_s x(s) (1 - e) (q - l(q)), where r is the factor for later visits. No useful
bound is known for repeated changes under a lasting cause (Namkoong et al. 2020, arXiv 2003.05623).

**Censored ends.** The outcome of an episode that ends censored can be any value in the range of returns
(:mod:`discreet.learners.ope.transition_gains`). This also holds for users whose episode would have ended
censored under another action. The loss is compared with the gain at the worst outcomes. In (1), the
counterfactual part (1 - e) h P_a has the lowest outcome. The recorded part has one outcome for each state and
action, which is the same for the policy and for the behaviour policy. This outcome is the lowest if, under
the cause, the policy visits the pair more often than the behaviour policy does. The outcomes affect the worst
cause, and the cause affects the visits. Therefore outcomes and cause are updated alternately until neither
changes. The loss is the gain with the worst outcomes without a cause, minus the gain with this cause and
these outcomes. In bound B, the error of q can be up to half the probability that an episode ends censored.
The loss is the largest loss for all such q.

**Errors.** The loss is an estimate, like the gain. Its standard deviation is computed by the delta method,
with the worst h held fixed. Its variance is added to the variance of the gain. By the envelope theorem, the
derivative of the minimum in (1) with respect to P_a(t) is h(t) (y(t) - m), where m is the value of y at which
h changes.

Special case: one state, one decision, outcomes 0 and 1, and no errors. Then L* of bound B is Cornfield's
ratio max(q_a / q_rest, (1 - q_rest) / (1 - q_a)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.ope.censored_share import ends_censored
from discreet.learners.ope.consistency_test import Consistency, ProjectedModel, model_of
from discreet.learners.ope.count_estimates import reciprocal
from discreet.learners.ope.deviation_gains import Gain, Path
from discreet.learners.ope.first_visit_query import VisitSums

LARGEST = 50.0  # largest L* that the search can return
_HALVINGS = 16  # number of bisection steps; L* is then too small by a relative error of at most 6e-5


@dataclass(frozen=True)
class ConfoundingLoss:
    """Possible reduction of the gain by an unobserved confounder, in units of the range of returns."""

    value: float
    deviation: float


@dataclass(frozen=True, eq=False)
class HiddenCause:
    """Largest strengths L* of unobserved confounding under which a gain remains above 0.

    - each_step : L* for confounders that are drawn again at each step.
    - one_decision : L* for any confounder if each user has only one changed decision.
    - recorded : median factor by which the recorded state changes the odds of the policy's new actions. This
      factor is given for comparison.

    Both L* are at most ``LARGEST``. Both are 1 if the gain is not above 0 without confounding.
    """

    __repr__ = brief

    each_step: float
    one_decision: float
    recorded: float


def hidden_cause(path: Path, count: int, gain: Gain, found: Consistency) -> HiddenCause:
    """Return L* of both bounds for the policy that changes the first ``count`` states of a path.

    gain : gain of that policy. found : result of the consistency test of the release. The function uses the
    projected counts in ``found``.
    """
    if not count:
        return HiddenCause(1.0, 1.0, 1.0)
    rows = _rows(path, count)
    if path.sums.question.returns.censored is not None:
        gain = path.worst(count)
    return HiddenCause(
        largest_strength(
            gain, path.sums, lambda strength: loss_each_step(path, count, strength, found.model)
        ),
        largest_strength(
            gain,
            path.sums,
            lambda strength: loss_one_decision(path, count, strength, gain.revisits, found.model),
        ),
        recorded_factor(path, rows),
    )


def largest_strength(
    gain: Gain, sums: VisitSums, loss: Callable[[float], ConfoundingLoss], most: float = LARGEST
) -> float:
    """Return the largest strength of confounding in [1, most] at which the gain is shown.

    The gain is shown if its interval, minus the loss, is above 0. loss : function that returns the loss at a
    strength.
    """
    bounds = sums.question.bounds
    scale = bounds[1] - bounds[0]
    estimate, below = gain.estimate / scale, (gain.estimate - gain.low) / scale
    width = below / max(math.hypot(gain.noise, gain.sampling) / scale, 1e-300)

    def stays(strength: float) -> bool:
        lost = loss(strength)
        return estimate - lost.value - math.hypot(below, width * lost.deviation) > 0.0

    if gain.low <= 0.0:
        return 1.0
    if stays(most):
        return most
    low, high = 0.0, math.log(most)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if stays(math.exp(middle)) else (low, middle)
    return math.exp(low)


def _rows(path: Path, count: int) -> Ints:
    own = path.order[:count]
    return np.asarray(path.sums.layout.row_index[own, path.action[own]])


def recorded_factor(path: Path, rows: Ints) -> float:
    """Return the median of exp |logit e(a | s) - logit e(a)| over changed states, weighted by visits.

    e(a | s) is the share of the new action a in state s, and e(a) is its share in all states. rows : rows of
    the new actions.
    """
    sums, layout = path.sums, path.sums.layout
    weight = np.maximum(sums.visits, 0.0) * sums.decided
    of_action = np.bincount(layout.row_action, weight, layout.actions)
    overall = np.clip(of_action / max(float(of_action.sum()), 1e-300), 1e-3, 1.0 - 1e-3)
    own = np.clip(path.share[rows], 1e-3, 1.0 - 1e-3)
    off = np.abs(np.log(own / (1.0 - own)) - np.log(overall / (1.0 - overall))[layout.row_action[rows]])
    visits = np.maximum(path.visits[layout.row_state[rows]], 0.0)
    order = np.argsort(off)
    half = np.searchsorted(np.cumsum(visits[order]), 0.5 * float(visits.sum()))
    return float(np.exp(off[order][min(int(half), off.size - 1)]))


# ---------------------------------------------------------------------------------- each step
def loss_each_step(path: Path, count: int, strength: float, model: ProjectedModel) -> ConfoundingLoss:
    """Return the loss by (1) for the policy that changes the first ``count`` states.

    strength : strength L of an unobserved confounder that is drawn again at each step. model : projected
    counts of the release.
    """
    sums = path.sums
    own, rows = path.order[:count], _rows(path, count)
    alone = now = _OpenEnds.of(sums, model, own, rows)
    if alone is None or now is None:
        return _loss(sums, own, rows, strength, model)[0]
    for _ in range(_ROUNDS):
        found, visits = _loss(sums, own, rows, strength, model, alone, now)
        again = now.against(visits)
        if again == now:
            break
        now = again
    return found


_ROUNDS = 8  # Largest number of alternating updates of the cause and of the outcomes of censored episodes.


@dataclass(frozen=True, eq=False)
class _OpenEnds:
    """Assumed outcomes of episodes that end censored, minus the middle of the range, in units of the range.

    Attributes
    ----------
    end : int
        The censored state.
    visits : (S + 1,) floats
        Expected number of visits under the behaviour policy.
    own : (K,) ints
        Changed states.
    state : (S + 1,) floats
        Outcome after each state, for all actions except the new actions.
    new : (K,) floats
        Outcome after the new action of each changed state, for users who took this action.
    """

    end: int
    visits: Floats
    own: Ints
    state: Floats
    new: Floats

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _OpenEnds)
            and np.array_equal(self.state, other.state)
            and np.array_equal(self.new, other.new)
        )

    @classmethod
    def of(cls, sums: VisitSums, model: ProjectedModel, own: Ints, rows: Ints) -> _OpenEnds | None:
        """Return the worst outcomes of censored episodes without confounding; None without censored episodes.

        own : changed states. rows : rows of their new actions.
        """
        end = sums.question.returns.censored
        if end is None:
            return None
        policy = model.usual.copy()
        policy[own] = model.moves[rows]
        usual, ours = (_visits(sums, chain) for chain in (model.usual, policy))
        none = cls(end, usual, own, np.zeros(usual.size), np.zeros(own.size))
        state = -0.5 * np.sign(ours - usual)
        state[own] = 0.5
        share = np.clip(model.share[rows], 0.0, 1.0)
        return replace(none, state=state, new=-0.5 * np.sign(ours[own] - share * usual[own]))

    def against(self, visits: Floats) -> _OpenEnds:
        """Return the worst outcomes of censored episodes under an unobserved confounder.

        visits : (S + 1,) expected number of visits of the policy under this confounder.
        """
        state = -0.5 * np.sign(visits - self.visits)
        new = state[self.own]
        state[self.own] = 0.5
        return replace(self, state=state, new=new)


def _visits(sums: VisitSums, chain: Floats) -> Floats:
    """Return the (S + 1,) expected number of visits per episode in a Markov chain (S + 1, S + 1)."""
    here = np.eye(sums.layout.states)[sums.question.start]
    total = here.copy()
    for _ in range(sums.layout.horizon - 1):
        here = here @ chain
        total += here
    return np.asarray(total)


def _loss(
    sums: VisitSums, own: Ints, rows: Ints, strength: float, model: ProjectedModel,
    alone: _OpenEnds | None = None, ends: _OpenEnds | None = None,
) -> tuple[ConfoundingLoss, Floats]:  # fmt: skip
    """Return the loss by (1), and the (S + 1,) expected number of visits under confounding.

    own : changed states. rows : rows of their new actions. alone : outcomes of censored episodes without the
    cause. ends : these outcomes with the cause. Both are None if no episode can end censored.
    """
    change = _Change(sums, own, rows, model, ends)
    whole = np.zeros(sums.layout.states)
    if ends is not None and alone is not None:
        whole = model.usual[:, ends.end] * alone.state
        whole[own] = change.laws[:, ends.end] * alone.new
    bounds = _lower_values(change, strength, whole)
    reached, least, slopes = _slopes(change, bounds)
    start = sums.question.start
    lost = float(bounds.value[0, start] - bounds.low[0, start])
    visits = least.sum(axis=0)
    if ends is not None and alone is not None:
        lost += _add_open_ends(change, alone, ends, reached.sum(axis=0), visits, slopes)
    variance = _variance(sums, model, rows, slopes.usual, slopes.changed, slopes.share)
    return ConfoundingLoss(lost, math.sqrt(variance)), visits


class _Change:
    """Policy that changes some states, in the model, with the assumed outcomes of censored episodes."""

    def __init__(
        self, sums: VisitSums, own: Ints, rows: Ints, model: ProjectedModel, ends: _OpenEnds | None
    ) -> None:
        self.sums, self.own, self.model, self.ends = sums, own, model, ends
        self.laws, self.share = model.moves[rows], np.clip(model.share[rows], 0.0, 1.0)[:, None]
        self.policy = model.usual.copy()
        self.policy[own] = self.laws
        self.shift = np.zeros(sums.layout.states)  # -1/2 for the censored state, 0 for all others
        self.more, self.of_new = np.zeros(sums.layout.states), np.zeros(own.size)
        if ends is not None:
            self.shift[ends.end] = -0.5
            self.more = model.usual[:, ends.end] * ends.state
            self.of_new = self.laws[:, ends.end] * ends.new
            self.more[own] = 0.0


class _Bounds(NamedTuple):
    """Values of the policy without confounding, and its lowest values under confounding."""

    value: Floats  # Values without the cause, (H + 1, S + 1).
    low: Floats  # Lowest values under the cause, (H + 1, S + 1).
    worst: Floats  # The minimising h of (1), (H, K, S + 1).
    border: Floats  # Values of y at which h changes, (H, K).


class _SlopesOfLoss(NamedTuple):
    """Derivatives of the loss with respect to the estimated probabilities."""

    changed: Floats  # Derivatives in the next-state distributions of the new actions, (K, S + 1).
    usual: Floats  # Derivatives in the next-state distributions of states, (S + 1, S + 1).
    share: Floats  # Derivatives in the shares of the new actions, (K,).


def _lower_values(change: _Change, strength: float, whole: Floats) -> _Bounds:
    """Return the values without confounding, and the lowest values under confounding of this strength.

    whole : (S + 1,) additional reward of a step without confounding. This reward accounts for the outcomes of
    censored episodes.
    """
    sums, own, laws, share, shift = change.sums, change.own, change.laws, change.share, change.shift
    arrival, usual = sums.question.arrival, change.model.usual
    steps, states, count = sums.layout.horizon, sums.layout.states, own.size
    value, low = np.zeros((steps + 1, states)), np.zeros((steps + 1, states))
    worst = np.empty((steps, count, states))  # the minimising h at each step
    border = np.empty((steps, count))
    for h in range(steps - 1, -1, -1):
        value[h] = change.policy @ (arrival + value[h + 1]) + whole
        y = arrival + low[h + 1]
        worst[h], border[h] = lowest(y + shift, laws, strength)
        low[h] = usual @ y + change.more
        low[h][own] = ((share + (1.0 - share) * worst[h]) * laws) @ y
        if change.ends is not None:
            low[h][own] += share[:, 0] * change.of_new + (1.0 - share[:, 0]) * ((worst[h] * laws) @ shift)
    return _Bounds(value, low, worst, border)


def _slopes(change: _Change, bounds: _Bounds) -> tuple[Floats, Floats, _SlopesOfLoss]:
    """Return the expected visits (H, S + 1) without and with confounding, and the slopes of the loss.

    The slopes do not include the effect of outcomes of censored episodes.
    """
    sums, own, laws, share, shift = change.sums, change.own, change.laws, change.share, change.shift
    arrival, model, (value, low, worst, border) = sums.question.arrival, change.model, bounds
    steps, states, start = sums.layout.horizon, sums.layout.states, sums.question.start
    reached, least = np.zeros((2, steps, states))
    reached[0, start] = least[0, start] = 1.0
    changed, of_share = np.zeros((own.size, states)), np.zeros(own.size)
    y = arrival + low[1:]
    for h in range(steps):
        tilted = worst[h] * (y[h] + shift - border[h][:, None])
        changed -= least[h, own, None] * tilted
        of_share -= least[h, own] * (((1.0 - worst[h]) * laws) @ y[h])
        if change.ends is not None:
            of_share -= least[h, own] * (change.of_new - (worst[h] * laws) @ shift)
        if h + 1 < steps:
            there = (share + (1.0 - share) * worst[h]) * laws
            reached[h + 1] = reached[h] @ change.policy
            least[h + 1] = least[h] @ model.usual + least[h, own] @ (there - model.usual[own])
    changed = (
        (1.0 - share) * changed + reached[:, own].T @ (arrival + value[1:]) - share * (least[:, own].T @ y)
    )
    usual = reached.T @ (arrival + value[1:]) - least.T @ y
    usual[own] = 0.0
    return reached, least, _SlopesOfLoss(changed, usual, of_share)


def _add_open_ends(
    change: _Change, alone: _OpenEnds, ends: _OpenEnds, ours: Floats, visits: Floats, slopes: _SlopesOfLoss
) -> float:
    """Add the effect of outcomes of censored episodes to ``slopes``. Returns the loss due to these outcomes.

    ours, visits : (S + 1,) expected visits without and with confounding. alone, ends : outcomes without and
    with confounding.
    """
    own, laws, share, model, end = change.own, change.laws, change.share, change.model, ends.end
    changed, usual, of_share = slopes
    moved, of_moved = (ends.state - alone.state, ends.new - alone.new)  # changes of the outcomes
    changed[:, end] += ours[own] * alone.new - share[:, 0] * visits[own] * ends.new
    changed[:, end] += share[:, 0] * ends.visits[own] * of_moved
    usual[:, end] += ours * alone.state - visits * ends.state + ends.visits * moved
    usual[own, end] = 0.0
    of_share += ends.visits[own] * laws[:, end] * of_moved
    paid = model.usual[:, end] * moved
    paid[own] = share[:, 0] * laws[:, end] * of_moved
    visited = _slopes_of_paid(change.sums, model.usual, paid)
    usual += visited
    # In a changed state, the usual next states are a mixture of those of the new action and those of all
    # other actions, weighted by shares.
    rest = np.maximum(1.0 - share, 1e-9)
    others = (model.usual[own] - share * laws) / rest
    changed += share * visited[own]
    of_share += ((laws - others) * visited[own]).sum(axis=1)
    usual[own] = np.sqrt(rest) * visited[own]
    return float(ends.visits @ paid)


def _slopes_of_paid(sums: VisitSums, chain: Floats, paid: Floats) -> Floats:
    """Return the derivatives of the expected sum of rewards with respect to the next-state probabilities.

    chain : (S + 1, S + 1) next-state probabilities. paid : (S + 1,) reward of a step from each state.
    """
    steps, states = sums.layout.horizon, sums.layout.states
    worth = np.zeros((steps + 1, states))
    for h in range(steps - 1, -1, -1):
        worth[h] = chain @ worth[h + 1] + paid
    here, found = np.eye(states)[sums.question.start], np.zeros((states, states))
    for h in range(steps):
        found += np.outer(here, worth[h + 1])
        here = here @ chain
    return found


def lowest(y: Floats, laws: Floats, strength: float) -> tuple[Floats, Floats]:
    """Return the (K, S + 1) factors h in (1) that minimise sum_t h(t) P(t) y(t), for each row P of ``laws``.

    The second result is (K,): the value of y at which h changes from L to 1/L. strength : L.
    """
    order = np.argsort(y, kind="stable")
    mass = laws[:, order]
    before = np.cumsum(mass, axis=1) - mass
    room = np.clip(1.0 / (1.0 + strength) - before, 0.0, mass)  # probability in each cell that gets h = L
    part = np.divide(room, mass, out=np.zeros_like(room), where=mass > 0.0)
    h = np.empty_like(laws)
    h[:, order] = part * strength + (1.0 - part) / strength
    at = np.minimum((before + mass < 1.0 / (1.0 + strength)).sum(axis=1), y.size - 1)
    return h, y[order][at]


def _variance(
    sums: VisitSums, model: ProjectedModel, rows: Ints, usual: Floats, changed: Floats, of_share: Floats
) -> float:
    """Return the variance of a function of the model due to errors of the released transitions.

    usual, changed, of_share : slopes of the function, defined in :class:`_SlopesOfLoss`. rows : rows of new
    actions.
    """
    layout, noise, episodes = sums.layout, sums.noise, sums.question.episodes
    state, laws = layout.row_state[rows], model.moves[rows]
    taken = np.maximum(model.taken, 1.0)
    seen = np.maximum(sums.per_state(model.taken), 1.0)
    cells = np.diff(layout.state_ptr)
    centred = changed - (laws * changed).sum(axis=1, keepdims=True)
    squared = np.square(centred)
    of_rows = episodes * (laws * squared).sum(axis=1) / taken[rows]
    of_rows += noise.moves**2 * squared.sum(axis=1) / taken[rows] ** 2
    of_rows = np.minimum(of_rows, np.square(np.ptp(changed, axis=1)))  # a mean's error is at most its range
    usual = usual - (model.usual * usual).sum(axis=1, keepdims=True)
    usual[model.terminal] = 0.0
    squared = np.square(usual)
    of_states = episodes * (model.usual * squared).sum(axis=1) / seen
    of_states += noise.moves**2 * cells * squared.sum(axis=1) / seen**2
    of_states = np.minimum(of_states, np.square(np.ptp(usual, axis=1)))
    e = np.clip(model.share[rows], 0.0, 1.0)
    of_e = episodes * e * (1.0 - e) / seen[state]
    of_e += noise.visits**2 * ((1.0 - e) ** 2 + (cells[state] - 1) * e**2) / seen[state] ** 2
    return float(of_rows.sum() + of_states.sum() + (of_share**2 * np.minimum(of_e, 0.25)).sum())


# ---------------------------------------------------------------------------------- one decision
def loss_one_decision(
    path: Path, count: int, strength: float, revisits: float, model: ProjectedModel | None = None
) -> ConfoundingLoss:
    """Return the loss by bound B, for changes of single decisions at first visits under any confounder.

    - strength : strength L of the confounder.
    - revisits : r, the ratio of the gain at all visits to the gain at first visits.
    - model : projected counts of the release. None: they are computed here.
    """
    sums, rows = path.sums, _rows(path, count)
    own = sums.layout.row_state[rows]
    noise, episodes = sums.noise, sums.question.episodes
    known = path.supported[rows]
    visits = np.maximum(sums.visits[rows], 1.0)
    inverse = np.where(known, reciprocal(visits, noise.visits), 1.0)
    q = np.where(known, np.clip(path.whole.q[rows], 0.0, 1.0), 0.5)
    model = model_of(sums) if model is None else model
    half = 0.5 * ends_censored(sums, model.moves, model.usual)[rows]
    # the loss increases with q up to q = L / (1 + L) and decreases above it
    q = np.clip(strength / (1.0 + strength), np.maximum(q - half, 0.0), np.minimum(q + half, 1.0))
    by_ratio, by_rest = q / strength, 1.0 - strength * (1.0 - q)
    least = np.maximum(by_ratio, by_rest)
    slope = 1.0 - np.where(by_ratio >= by_rest, 1.0 / strength, strength)
    share, reached = np.clip(path.share[rows], 0.0, 1.0), path.visits[own]
    factor = max(revisits, 1.0)
    lost = factor * float((reached * (1.0 - share) * (q - least)).sum())
    of_q = (noise.returns**2 + ((q - 0.5) * noise.visits) ** 2) * inverse**2
    of_q += episodes * np.maximum(q * (1.0 - q), 0.02) * inverse
    of_q = np.minimum(of_q, 0.25)
    seen = np.maximum(sums.per_state(sums.visits)[own], 1.0)
    cells = np.diff(sums.layout.state_ptr)[own]
    of_e = episodes * share * (1.0 - share) / seen
    of_e += noise.visits**2 * ((1.0 - share) ** 2 + (cells - 1) * share**2) / seen**2
    variance = reached**2 * (((1.0 - share) * slope) ** 2 * of_q + (q - least) ** 2 * of_e)
    return ConfoundingLoss(lost, factor * math.sqrt(float(variance.sum())))
