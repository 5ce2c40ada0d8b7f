r"""Bound how far a hidden cause of action and outcome can explain a gain.

The model (Tan 2006): among users in a recorded state, the odds of an action given a hidden cause u differ
from the recorded odds by a factor in [1/L, L]. Both bounds below give the largest loss of a gain under a
cause of strength L; L* is the largest L at which the whole interval of the gain, less that loss, stays above
0. Sharp bounds for one decision: Dorn and Guo 2021 (arXiv 2102.04543).

Each step (bound A): u is drawn again at each step given the recorded state. Let e be the share of action a in
state s. Then P(t | s, do a) = e P(t | s, a) + (1 - e) h(t) P(t | s, a). The factor h(t) = E[recorded odds /
odds given u | s, a, t] is in [1/L, L], with sum_t h(t) P(t | s, a) = 1. The least value of the policy is
found by backward induction,

    V_h(s) = e P_a y + (1 - e) min_h sum_t h(t) P_a(t) y(t),    y = w + V_h+1,                          (1)

in changed states, and V_h(s) = P_b(s) y elsewhere. The minimum takes h = L on the lowest y, up to the mass 1
/ (1 + L), and 1/L above. The true h is feasible at each step and state and the operators are monotone. By
induction V_h is therefore at most the true value. The behaviour policy's value is identified, since u is
drawn again. The loss is J(policy) - J_low(L), and 0 at L = 1 (Kallus and Zhou 2020, arXiv 2002.04518;
Bruns-Smith 2021, arXiv 2204.00956).

One decision (bound B): u may be any cause, also one that lasts. Let q in [0, 1] be the mean return of first
visits to s with action a. If the others had taken a, their mean return would be at least
l(q) = max(q / L, 1 - L (1 - q)). It is E[h Y | a] with h in [1/L, L] and E h = 1. Therefore h Y >= Y / L and
1 - E[h (1 - Y)] >= 1 - L (1 - q). The loss of single changes at first visits is
max(r, 1) sum_s x(s) (1 - e) (q - l(q)), with r the factor for later visits. Repeated changes under a cause
that lasts have no useful bound (Namkoong et al. 2020, arXiv 2003.05623).

Censored ends. Their outcome may be any in the range of returns
(:mod:`discreet.learners.ope.transition_gains`), also for users who would have left under another action. The
loss is compared with the gain at the worst outcomes. In (1) the counterfactual part, (1 - e) h P_a, takes the
lowest outcome. The recorded part takes one outcome per state and action, the same under the policy and under
the behaviour policy. It is low where the policy under the cause visits more often than the behaviour policy.
The outcomes change the worst cause, and the cause changes the visits, so both are improved in turn until
neither changes. The loss is the gain with the worst outcomes without a cause, less the gain with the cause
and the outcomes found. In bound B, q may be off by half the probability that an episode ends censored, and
the loss is the largest over such q.

Errors. The loss is estimated too. Its standard deviation follows by the delta method with the worst h held
fixed, and is added to that of the gain by squares. By the envelope theorem, the derivative of the minimum in
(1) by P_a(t) is h(t) (y(t) - m), where m is the y at which h changes.

With one state, one decision, an outcome of 0 or 1, and neither noise nor errors, L* of bound B is Cornfield's
ratio max(q_a / q_rest, (1 - q_rest) / (1 - q_a)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from discreet.core.short_repr import brief
from discreet.learners.ope.censored_share import ends_censored
from discreet.learners.ope.consistency_test import Consistency, ProjectedModel, model_of
from discreet.learners.ope.count_estimates import reciprocal
from discreet.learners.ope.deviation_gains import Gain, Path
from discreet.learners.ope.first_visit_query import Told

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = [
    "LARGEST", "HiddenCause", "ConfoundingLoss", "hidden_cause", "largest_strength", "loss_each_step",
    "loss_one_decision", "lowest",
]  # fmt: skip

LARGEST = 50.0  # L* is not searched above
_HALVINGS = 16  # L* to 6e-5 of itself, rounded down


@dataclass(frozen=True)
class ConfoundingLoss:
    """Loss of a gain under a hidden cause, in units of the range of returns, and its standard deviation."""

    value: float
    deviation: float


@dataclass(frozen=True, eq=False)
class HiddenCause:
    """Strength of a hidden cause that would be enough to explain a gain.

    each_step : L* of a cause that is drawn again at each step; one_decision : L* of any cause, for single
    changes. Both are 1 if the gain is not above 0 without any cause, and at most ``LARGEST``. recorded : the
    median factor by which the recorded state itself moves the odds of the asked-for actions.
    """

    __repr__ = brief

    each_step: float
    one_decision: float
    recorded: float


def hidden_cause(path: Path, count: int, gain: Gain, found: Consistency) -> HiddenCause:
    """Return L* of both bounds for the policy that changes the first ``count`` states of a path.

    gain : of that policy. found : the consistency test of the release, for its projected counts.
    """
    if not count:
        return HiddenCause(1.0, 1.0, 1.0)
    rows = _rows(path, count)
    if path.told.question.returns.censored is not None:
        gain = path.worst(count)
    return HiddenCause(
        largest_strength(gain, path, lambda strength: loss_each_step(path, count, strength, found.model)),
        largest_strength(
            gain,
            path,
            lambda strength: loss_one_decision(path, count, strength, gain.revisits, found.model),
        ),
        _recorded(path, rows),
    )


def largest_strength(
    gain: Gain, path: Path, loss: Callable[[float], ConfoundingLoss], most: float = LARGEST
) -> float:
    """Return the largest L in [1, most] at which the interval of the gain less the loss is above 0."""
    bounds = path.told.question.bounds
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
    return np.asarray(path.told.layout.row_index[own, path.action[own]])


def _recorded(path: Path, rows: Ints) -> float:
    """Return the median, by visits, of exp |logit e(a | s) - logit e(a)| over changed states."""
    told, layout = path.told, path.told.layout
    weight = np.maximum(told.visits, 0.0) * told.decided
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
    """Return the loss by (1) of the policy that changes the first ``count`` states, at strength L."""
    told = path.told
    own, rows = path.order[:count], _rows(path, count)
    alone = now = _OpenEnds.of(told, model, own, rows)
    if alone is None or now is None:
        return _loss(told, own, rows, strength, model)[0]
    for _ in range(_ROUNDS):
        found, visits = _loss(told, own, rows, strength, model, alone, now)
        again = now.against(visits)
        if again == now:
            break
        now = again
    return found


_ROUNDS = 8  # in which a cause and outcomes of censored ends are improved in turn


@dataclass(frozen=True, eq=False)
class _OpenEnds:
    """Outcomes of censored ends beyond the middle, in units of the range.

    Attributes
    ----------
    end : int
        The censored state.
    visits : (S + 1,) floats
        Expected visits under the behaviour policy.
    own : (K,) ints
        Changed states.
    state : (S + 1,) floats
        Outcomes in rows other than those of new actions.
    new : (K,) floats
        Outcomes in the rows of new actions, as far as recorded.
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
    def of(cls, told: Told, model: ProjectedModel, own: Ints, rows: Ints) -> _OpenEnds | None:
        """Return the worst outcomes without a hidden cause; None where no end is censored."""
        end = told.question.returns.censored
        if end is None:
            return None
        policy = model.usual.copy()
        policy[own] = model.moves[rows]
        usual, ours = (_visits(told, chain) for chain in (model.usual, policy))
        none = cls(end, usual, own, np.zeros(usual.size), np.zeros(own.size))
        state = -0.5 * np.sign(ours - usual)
        state[own] = 0.5
        share = np.clip(model.share[rows], 0.0, 1.0)
        return replace(none, state=state, new=-0.5 * np.sign(ours[own] - share * usual[own]))

    def against(self, visits: Floats) -> _OpenEnds:
        """Return the worst outcomes under a cause with which the policy's users make these visits."""
        state = -0.5 * np.sign(visits - self.visits)
        new = state[self.own]
        state[self.own] = 0.5
        return replace(self, state=state, new=new)


def _visits(told: Told, chain: Floats) -> Floats:
    """Return (S + 1,) expected visits of an episode in a chain."""
    here = np.eye(told.layout.states)[told.question.start]
    total = here.copy()
    for _ in range(told.layout.horizon - 1):
        here = here @ chain
        total += here
    return np.asarray(total)


def _loss(
    told: Told, own: Ints, rows: Ints, strength: float, model: ProjectedModel,
    alone: _OpenEnds | None = None, ends: _OpenEnds | None = None,
) -> tuple[ConfoundingLoss, Floats]:  # fmt: skip
    """Return the loss by (1), and (S + 1,) visits under the cause.

    alone, ends : outcomes of censored ends without and with the cause.
    """
    layout, arrival = told.layout, told.question.arrival
    laws, share = model.moves[rows], np.clip(model.share[rows], 0.0, 1.0)[:, None]
    policy = model.usual.copy()
    policy[own] = laws
    steps, states, start, count = layout.horizon, layout.states, told.question.start, own.size
    value, low = np.zeros((steps + 1, states)), np.zeros((steps + 1, states))
    worst = np.empty((steps, count, states))  # h of each step
    border = np.empty((steps, count))
    shift = np.zeros(states)  # of the counterfactual part: the lowest outcome of a censored end
    more, of_new = np.zeros(states), np.zeros(count)
    whole = more
    if ends is not None and alone is not None:
        shift[ends.end] = -0.5
        more, of_new = model.usual[:, ends.end] * ends.state, laws[:, ends.end] * ends.new
        more[own] = 0.0
        whole = model.usual[:, ends.end] * alone.state
        whole[own] = laws[:, ends.end] * alone.new
    for h in range(steps - 1, -1, -1):
        value[h] = policy @ (arrival + value[h + 1]) + whole
        y = arrival + low[h + 1]
        worst[h], border[h] = lowest(y + shift, laws, strength)
        low[h] = model.usual @ y + more
        low[h][own] = ((share + (1.0 - share) * worst[h]) * laws) @ y
        if ends is not None:
            low[h][own] += share[:, 0] * of_new + (1.0 - share[:, 0]) * ((worst[h] * laws) @ shift)
    lost = float(value[0, start] - low[0, start])

    # Slopes in the distribution of a changed row, in a state's usual distribution, and in the share of the
    # action.
    reached, least = np.zeros((2, steps, states))
    reached[0, start] = least[0, start] = 1.0
    changed, of_share = np.zeros((count, states)), np.zeros(count)
    y = arrival + low[1:]
    for h in range(steps):
        tilted = worst[h] * (y[h] + shift - border[h][:, None])
        changed -= least[h, own, None] * tilted
        of_share -= least[h, own] * (((1.0 - worst[h]) * laws) @ y[h])
        if ends is not None:
            of_share -= least[h, own] * (of_new - (worst[h] * laws) @ shift)
        if h + 1 < steps:
            there = (share + (1.0 - share) * worst[h]) * laws
            reached[h + 1] = reached[h] @ policy
            least[h + 1] = least[h] @ model.usual + least[h, own] @ (there - model.usual[own])
    changed = (
        (1.0 - share) * changed + reached[:, own].T @ (arrival + value[1:]) - share * (least[:, own].T @ y)
    )
    usual = reached.T @ (arrival + value[1:]) - least.T @ y
    visits = least.sum(axis=0)
    usual[own] = 0.0
    if ends is not None and alone is not None:
        ours, end = reached.sum(axis=0), ends.end
        moved, of_moved = ends.state - alone.state, ends.new - alone.new  # of the behaviour policy
        changed[:, end] += ours[own] * alone.new - share[:, 0] * visits[own] * ends.new
        changed[:, end] += share[:, 0] * ends.visits[own] * of_moved
        usual[:, end] += ours * alone.state - visits * ends.state + ends.visits * moved
        usual[own, end] = 0.0
        of_share += ends.visits[own] * laws[:, end] * of_moved
        paid = model.usual[:, end] * moved
        paid[own] = share[:, 0] * laws[:, end] * of_moved
        lost += float(ends.visits @ paid)
        visited = _slopes_of_paid(told, model.usual, paid)
        usual += visited
        # next states of a changed state: a mixture of those of the action, by its share, and of the others
        rest = np.maximum(1.0 - share, 1e-9)
        others = (model.usual[own] - share * laws) / rest
        changed += share * visited[own]
        of_share += ((laws - others) * visited[own]).sum(axis=1)
        usual[own] = np.sqrt(rest) * visited[own]
    return ConfoundingLoss(lost, math.sqrt(_variance(told, model, rows, usual, changed, of_share))), visits


def _slopes_of_paid(told: Told, chain: Floats, paid: Floats) -> Floats:
    """Return (S + 1, S + 1) slopes of a sum of rewards on arrival in next-state probabilities."""
    steps, states = told.layout.horizon, told.layout.states
    worth = np.zeros((steps + 1, states))
    for h in range(steps - 1, -1, -1):
        worth[h] = chain @ worth[h + 1] + paid
    here, found = np.eye(states)[told.question.start], np.zeros((states, states))
    for h in range(steps):
        found += np.outer(here, worth[h + 1])
        here = here @ chain
    return found


def lowest(y: Floats, laws: Floats, strength: float) -> tuple[Floats, Floats]:
    """Return (K, S + 1) the h that makes sum h P y least, and (K,) the y where h changes."""
    order = np.argsort(y, kind="stable")
    mass = laws[:, order]
    before = np.cumsum(mass, axis=1) - mass
    room = np.clip(1.0 / (1.0 + strength) - before, 0.0, mass)  # of each cell at the largest h
    part = np.divide(room, mass, out=np.zeros_like(room), where=mass > 0.0)
    h = np.empty_like(laws)
    h[:, order] = part * strength + (1.0 - part) / strength
    at = np.minimum((before + mass < 1.0 / (1.0 + strength)).sum(axis=1), y.size - 1)
    return h, y[order][at]


def _variance(
    told: Told, model: ProjectedModel, rows: Ints, usual: Floats, changed: Floats, of_share: Floats
) -> float:
    """Return the variance that the released transitions make of a function with these slopes."""
    layout, noise, episodes = told.layout, told.noise, told.question.episodes
    state, laws = layout.row_state[rows], model.moves[rows]
    taken = np.maximum(model.taken, 1.0)
    seen = np.maximum(told.per_state(model.taken), 1.0)
    cells = np.diff(layout.state_ptr)
    centred = changed - (laws * changed).sum(axis=1, keepdims=True)
    squared = np.square(centred)
    of_rows = episodes * (laws * squared).sum(axis=1) / taken[rows]
    of_rows += noise.moves**2 * squared.sum(axis=1) / taken[rows] ** 2
    of_rows = np.minimum(of_rows, np.square(np.ptp(changed, axis=1)))  # a mean errs by at most its range
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
    """Return the loss of single changes at first visits under any cause of strength L.

    revisits : r, the factor by which later visits multiply the gain of first ones. model : projected counts
    of the release, if available, for the probability that an episode ends censored.
    """
    told, rows = path.told, _rows(path, count)
    own = told.layout.row_state[rows]
    noise, episodes = told.noise, told.question.episodes
    known = path.supported[rows]
    visits = np.maximum(told.visits[rows], 1.0)
    inverse = np.where(known, reciprocal(visits, noise.visits), 1.0)
    q = np.where(known, np.clip(path.whole.q[rows], 0.0, 1.0), 0.5)
    model = model_of(told) if model is None else model
    half = 0.5 * ends_censored(told, model.moves, model.usual)[rows]
    # the loss rises up to q = L / (1 + L) and falls above it
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
    seen = np.maximum(told.per_state(told.visits)[own], 1.0)
    cells = np.diff(told.layout.state_ptr)[own]
    of_e = episodes * share * (1.0 - share) / seen
    of_e += noise.visits**2 * ((1.0 - share) ** 2 + (cells - 1) * share**2) / seen**2
    variance = reached**2 * (((1.0 - share) * slope) ** 2 * of_q + (q - least) ** 2 * of_e)
    return ConfoundingLoss(lost, factor * math.sqrt(float(variance.sum())))
