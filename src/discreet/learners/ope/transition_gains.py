r"""Gain of deviating from the behaviour policy, estimated from next states of first visits.

:mod:`discreet.learners.ope.deviation_gains` uses users' returns after each decision. A return has the
variance of all later steps, a next state that of one step. If the environment is the same at every step and
the states contain everything that matters (both are assumed there too), the gain is a function of
transitions,

    gain(P) = J(P_pi) - J(P_b),   J(P) = sum_h e_start P^h (P w),                                      (1)

where w is the reward of an arrival. P_b(s, .) is the distribution of next states of all users in s, and
P_pi(s, .) is P(s, a(s), .) in changed states. Both come from the released counts M of first visits. Each
transition sums over all users who took it, so an interval is often a third as wide. But noise counts once for
each next state instead of once for each action, so that with many states and a small budget returns are more
informative.

Estimates. Noise has mean zero as long as nothing is truncated at zero, and (1) is nearly linear if errors
are small. Rows and states whose count exceeds four times the norm of the noise in their cells are used as
released (with the noise of visits and transitions reconciled by least squares, without a
projection). All others are used after the projection of
:meth:`~discreet.learners.ope.first_visit_query.Told.consistent`.

Variance, by the delta method. Let c(s, t) = sum_h d_h(s) (w(t) + V_h+1(t)) of a policy, with d its
probability of s at step h. For every a, a cell M(s, a, t) moves J(P_b) by (c_b(s, t) - E_b c_b(s, .)) / N(s).
It moves J(P_pi) in the same way. In changed states it moves J(P_pi) by (c_pi(s, t) - E c_pi(s, .)) / N(s,
a(s)), in the row of the new action only. The variance of a cell is sigma^2 + M (times the episodes per user).
A projected row is a distribution, so that the error of a mean over it is at most its range. Few users with
equal outcomes have M of variance 0, and are selected most easily. The variance of a selected row is therefore
at least that of all users in its state. In addition, 1.5 unobserved users of a half with a different outcome
are added, b each, with b the range of a slope. Over many rows b is the mean that determines a sum's skewness,
sum N b^3 / sum N b^2. For a sum over hundreds of users this is negligible.

Halves. As in :mod:`discreet.learners.ope.deviation_gains`, errors are doubled: M + e and M - e, with
e = 2 binomial(M, 1/2) - M + noise of the release's distribution. Without noise these are the two halves of a
thinned sample, independent given the users' actions. All selections use the first, all evaluations the
second. Their deviation is the larger of the estimates of both halves.

Censored ends. The outcome of episodes that end in the censored state c is not known. A release counts it as
the middle of the range of returns. For episodes that reach c from s after a, let u(s, a) in [-1/2, 1/2] be
the mean of the true return minus that middle, in units of the range. With x(s, a) the expected visits of an
episode,

    gain(u) = gain(0) + sum_{s, a} [x_pi(s, a) - x_b(s, a)] P(c | s, a) u(s, a).                       (2)

Visits do not depend on u, so the worst u is known: -1/2 where the policy visits (s, a) more often than users
did, and 1/2 where it visits less often. The best u is the reverse. In a changed state the policy visits every
row less often, except that of the new action. In an unchanged state all rows have the same sign. Both gains
are evaluated like (1), by the same counts, with their own variances. An interval reaches from the low end of
the worst gain to the high end of the best. At the true u, gain(u) is between both, for any reason of
leaving, if the users' later returns depend on state and action alone. The point of the path is chosen by the
worst gain. If transitions do not exceed the noise, P(c | s, a) is unknown and a gain has no bound.

The path. Single decisions are weighted by (P_a - P_b) W with W the mean later value over first visits,
shrunk and ordered as there. Policies are the first k states of the order, for some k (each k up to eight,
then growing steps). All are evaluated together: the band is the quantile of the largest of their correlated
errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.noise.random_streams_kernels import ROLE_BOOTSTRAP, ROLE_SAMPLES, generator_at
from discreet.learners.ope import deviation_gains as deviations
from discreet.learners.ope.deviation_gains import (
    DEFAULT,
    LEAST_TAKEN,
    MOST_TAKEN,
    STANDS_OUT,
    Gain,
    Path,
    first_visits,
    prior_of,
)
from discreet.learners.ope.first_visit_query import Told

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = [
    "Chain", "TransitionCounts", "GroupGain", "TransitionPath", "capped", "group_gains", "halves", "path_of",
]  # fmt: skip

_CLEAR = 4.0  # Norms of the noise in a row's cells above which its count is used as released.
UNSEEN = 1.5  # Unobserved users of a half, with an outcome different from all observed ones.
_SINGLE, _MORE = 8, 1.5  # Points of the path: each number of changes up to this, then by this factor.
_DRAWS = 4000  # Draws of the path's errors, for the band.


class TransitionCounts(NamedTuple):
    """Transitions and visits of a release, or of one half of it, with twice the release's variance."""

    moves: Floats  # (R, S + 1)
    visits: Floats  # (R,)


def halves(told: Told, key: NDArray[np.uint64]) -> tuple[TransitionCounts, TransitionCounts]:
    """Return the counts of the choosing half and of the judging half; key : the release's key."""
    draw = generator_at(key, ROLE_SAMPLES, 2**33)
    many = np.rint(told.consistent()).astype(np.int64)
    luck = math.sqrt(told.question.episodes) * (2.0 * draw.binomial(many, 0.5) - many)
    drawn, scale = (draw.laplace, math.sqrt(0.5)) if told.heavy else (draw.normal, 1.0)

    def noise(deviation: float, shape: tuple[int, ...]) -> Floats:
        return np.asarray(drawn(0.0, scale * deviation, shape) if deviation else np.zeros(shape))

    moves = luck + noise(told.noise.moves, luck.shape)
    visits = luck.sum(axis=1) + noise(told.noise.visits, told.visits.shape)
    return (
        TransitionCounts(told.moves + moves, told.visits + visits),
        TransitionCounts(told.moves - moves, told.visits - visits),
    )


def _least(told: Told, copies: float = 2.0) -> float:
    """Return the least count of a row used as released, at ``copies`` times the release's variance."""
    return _CLEAR * math.sqrt(copies * told.layout.states) * told.noise.moves


class Chain:
    """Next-state distributions of one half, their values, and the precision of both.

    copies : variance of the counts, as a multiple of the variance of the release; 1 for the whole release.

    Rows have moves (R, S + 1), counts of transitions, and taken (R,), their sums. The rows of clear_rows (R,)
    are used as released. States have usual (S + 1, S + 1), distributions of next states; rows of terminal
    states are 0.

    clear and seen (S + 1,) are clear_rows and taken by state. luck and noise (R, S + 1) are variances of
    counts.
    """

    def __init__(self, told: Told, counts: TransitionCounts, copies: float = 2.0) -> None:
        self.told, self.copies, layout = told, copies, told.layout
        noise, states = told.noise, layout.states
        cut = told.consistent(counts.moves, counts.visits)
        free = cut
        if noise.moves:
            gap = counts.moves.sum(axis=1) - counts.visits
            share = noise.moves**2 / (noise.visits**2 + states * noise.moves**2)
            free = counts.moves - (gap * share)[:, None]
        least = _least(told, copies)
        together = told.per_state(free)
        self.clear = together.sum(axis=1) > least * np.sqrt(np.diff(layout.state_ptr))
        self.clear_rows = free.sum(axis=1) > least
        whole = np.where(self.clear[:, None], together, told.per_state(cut))
        self.moves = np.where(self.clear_rows[:, None], free, cut)
        self.taken, self.seen = (np.maximum(table.sum(axis=1), 1.0) for table in (self.moves, whole))
        self.usual = whole / self.seen[:, None]
        self.ends = list(told.question.returns.terminal)
        self.usual[self.ends] = 0.0
        self.paid = told.question.arrival
        self.worth, self.reached = self.followed(self.usual)
        variance = copies * told.question.episodes * np.maximum(self.moves, 0.0)
        self.luck, self.noise = variance, np.full_like(variance, copies * noise.moves**2)

    def followed(self, moves: Floats, more: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Return (H + 1, S + 1) values by step, rewards on arrival excluded, and (H, S + 1) probabilities.

        more : (S + 1,) value of a step from each state in addition to its arrivals.
        """
        steps, states = self.told.layout.horizon, self.told.layout.states
        worth, reached = np.zeros((steps + 1, states)), np.zeros((steps, states))
        for h in range(steps - 1, -1, -1):
            worth[h] = moves @ (self.paid + worth[h + 1]) + more
        reached[0, self.told.question.start] = 1.0
        for h in range(1, steps):
            reached[h] = reached[h - 1] @ moves
        return worth, reached

    def gains(
        self, order: Ints, action: Ints, counts: Ints, begin: int | None = None, sides: Ints | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Return (n,) gains (1) with the first ``counts`` states changed, and two (n, n) covariances.

        The first covariance is that of all errors, the second that of the noise of privacy alone.

        begin : row of a group in the start state. By default all users count. A group takes that row first
        under both policies: the row enters as one of a state that is changed in both.

        sides : (n,) integers. -1 takes the worst outcomes of censored ends in (2), 1 the best, 0 the middle.
        """
        layout, start = self.told.layout, self.told.question.start
        order = order[: int(counts.max())]
        rows = layout.row_index[order, action[order]]
        theirs, worth_before, reached_before = self.usual, self.worth, self.reached
        if begin is not None:
            order, rows = np.concatenate([[start], order]), np.concatenate([[begin], rows])
            counts = counts + 1
            theirs = theirs.copy()
            theirs[start] = self.moves[begin] / self.taken[begin]
            worth_before, reached_before = self.followed(theirs)
        taken = self.moves[rows] / self.taken[rows][:, None]
        ours, done, found = theirs.copy(), 0, np.zeros(counts.size)
        pooled = np.zeros((counts.size, layout.states, layout.states))  # by a cell of any row of a state
        own = np.zeros((counts.size, order.size, layout.states))  # and by one of the new action's row
        before = reached_before.T @ (self.paid + worth_before[1:])
        for i, count in enumerate(counts.tolist()):
            if count < done:
                ours, done = theirs.copy(), 0
            ours[order[done:count]], done = taken[done:count], count
            worth, reached = self.followed(ours)
            side = 0 if sides is None else int(sides[i])
            if side:
                found[i], pooled[i], own[i, :count] = self._censored(
                    order[:count], rows[:count], ours, reached, 0.5 * side
                )
                continue
            found[i] = worth[0, start] - worth_before[0, start]
            after = reached.T @ (self.paid + worth[1:])
            changed = after[order[:count]]
            if begin is not None:
                changed[0] -= before[start]
            changed = changed - (taken[:count] * changed).sum(axis=1, keepdims=True)
            own[i, :count] = changed / self.taken[rows[:count]][:, None]
            after[order[:count]] = 0.0
            both = after - before
            if begin is not None:
                both[start] = 0.0
            both -= (self.usual * both).sum(axis=1, keepdims=True)
            both[self.ends] = 0.0
            pooled[i] = both / self.seen[:, None]

        luck = self.luck.copy()
        luck[rows] = self.luck_of(order, rows, own[-1])
        every = self.noise + luck
        alone = np.sqrt(
            capped(own * self.taken[rows][:, None], every[rows], self.taken[rows], self.clear_rows[rows])
        )
        shared = np.sqrt(
            capped(pooled * self.seen[:, None], self.told.per_state(every), self.seen, self.clear)
        )

        def covariance(cells: Floats) -> Floats:
            root, mine = np.sqrt(self.told.per_state(cells)) * shared, np.sqrt(cells[rows])
            x = (pooled * root).reshape(counts.size, -1)
            y, z = (own * (mine * alone)), (pooled[:, order] * (mine * shared[order]))
            y, z = (table.reshape(counts.size, -1) for table in (y, z))
            return np.asarray(x @ x.T + y @ z.T + z @ y.T + y @ y.T)

        of_noise = covariance(self.noise)
        return found, of_noise + covariance(luck) + self.unseen(rows, own), of_noise

    def _censored(
        self, changed: Ints, rows: Ints, ours: Floats, reached: Floats, half: float
    ) -> tuple[float, Floats, Floats]:
        """Return the gain (2) of the policy that changes these states, and its slopes.

        The outcomes of censored ends are the worst for the policy (half < 0) or the best. The slopes are
        (S + 1, S + 1) in cells of any row of a state, and (K, S + 1) additions in cells of the new actions.

        rows : rows of the new actions. ours : transitions under the policy. reached : its visits by step.
        """
        start, end = self.told.question.start, self.told.question.returns.censored
        assert end is not None
        usual_visits, visits = self.reached.sum(axis=0), reached.sum(axis=0)
        each = half * np.sign(visits - usual_visits)  # u of a state's rows, except new actions
        each[changed] = -half
        per_person = visits[changed] / self.taken[rows] - usual_visits[changed] / self.seen[changed]
        new = half * np.sign(per_person)
        of_new = usual_visits[changed] * (new - each[changed]) / self.seen[changed]
        usual_more = self.usual[:, end] * each
        usual_more[changed] += self.moves[rows, end] * (new - each[changed]) / self.seen[changed]
        more = usual_more.copy()
        more[changed] = ours[changed, end] * new
        worth = self.followed(ours, more)[0]
        usual_worth = self.followed(self.usual, usual_more)[0]
        after = reached.T @ (self.paid + worth[1:])
        after[:, end] += visits * each
        own = after[changed]
        own[:, end] += visits[changed] * (new - each[changed])
        own = (own - (ours[changed] * own).sum(axis=1, keepdims=True)) / self.taken[rows][:, None]
        own[:, end] -= of_new
        after[changed] = 0.0
        both = after - self.reached.T @ (self.paid + usual_worth[1:])
        both[:, end] -= usual_visits * each
        mean = (self.usual * both).sum(axis=1, keepdims=True)
        mean[changed, 0] -= of_new * self.moves[rows, end]
        both -= mean
        both[self.ends] = 0.0
        gain = float(worth[0, start] - usual_worth[0, start])
        return gain, both / self.seen[:, None], own

    def luck_of(self, order: Ints, rows: Ints, slopes: Floats) -> Floats:
        """Return (K, S + 1) sampling variance of the cells of the selected rows.

        It is that of the row's distribution or, if less certain, that of all users in the state. A few equal
        outcomes do not imply certainty.
        """
        seen = self.luck[rows]
        among = np.maximum(self.usual[order], 0.0)
        among /= np.maximum(among.sum(axis=1, keepdims=True), 1e-300)
        usual = self.copies * self.told.question.episodes * self.taken[rows][:, None] * among
        mean = (slopes * among).sum(axis=1, keepdims=True)
        less = (seen * slopes**2).sum(axis=1) < (usual * (slopes - mean) ** 2).sum(axis=1)
        return np.where(less[:, None], usual, seen)

    def unseen(self, rows: Ints, slopes: Floats) -> Floats:
        """Return (n, n) covariance of unobserved outcomes.

        It is that of a few additional users, each of whom moves a gain by the range of a row's (n, K, S + 1)
        slopes. A mean over rows is moved by the amount that their users can move together.
        """
        most = np.ptp(slopes, axis=2)
        weight = most**2 * self.taken[rows]
        each = (weight * most).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
        return self.copies**2 * UNSEEN * self.told.question.episodes * np.outer(each, each)


def capped(slopes: Floats, cells: Floats, seen: Floats, clear: NDArray[np.bool_]) -> Floats:
    """Return (rows, 1) parts of the variance of (n, rows, S + 1) slopes in next states that can be errors.

    A projected row is a distribution over next states. The error of a mean over it is at most its range.
    """
    variance = np.square(slopes * np.sqrt(cells)).sum(axis=2) / seen**2
    most = np.square(np.ptp(slopes, axis=2))
    part = (most / np.maximum(variance, 1e-300)).max(axis=0)
    return np.where(clear | (variance.max(axis=0) == 0.0), 1.0, np.minimum(part, 1.0))[:, None]


class _Judged(NamedTuple):
    """Gains (n,) of points of the path. deviation, noise : of all errors, and of privacy's noise alone."""

    estimate: Floats
    deviation: Floats
    noise: Floats


@dataclass(frozen=True, eq=False)
class TransitionPath(Path):
    """Path that is evaluated by transitions.

    kept : the available numbers of changed states; ``expected``, ``risk``, ``estimate``,
    ``deviation`` and ``noise`` belong to them.

    censored : the gains (2) with the worst and the best outcomes of censored ends; None if the release has no
    such ends. With it, ``expected`` and ``risk`` belong to the worst outcomes.
    """

    kept: Ints
    censored: tuple[_Judged, _Judged] | None = None

    def _at(self, count: int) -> int:
        found = np.flatnonzero(self.kept == count)
        if not found.size:
            raise ValueError(f"count = {count}: must be 0 or one of {self.kept.tolist()}")
        return int(found[0])

    def point(self, caution: float) -> int:
        """Return how many states to change for the largest expected gain - caution x its deviation."""
        if not self.order.size:
            return 0
        return int(self.kept[(self.expected - caution * self.risk).argmax()])

    def at_most(self, count: int) -> int:
        """Return the largest point of the path that changes at most ``count`` states."""
        return int(self.kept[self.kept <= count].max(initial=0))

    def clear(self, count: int) -> bool:
        """Return True if the interval of the gain of the first ``count`` states is above 0."""
        return count > 0 and self.gain(count).shown

    def gain(self, count: int) -> Gain:
        """Return the gain of the first ``count`` changed states; ``count`` is 0 or a point of the path."""
        checks.integer("count", count, 0)
        if count == 0:
            return Gain(0.0, 0.0, 0.0, self.level, 0.0, 0.0, 1.0, 0.0)
        middle = self._gain_by(count, _Judged(self.estimate, self.deviation, self.noise))
        if self.censored is None:
            return middle
        worst, best = (self._gain_by(count, judged) for judged in self.censored)
        return replace(middle, low=min(worst.low, best.low), high=max(worst.high, best.high))

    def worst(self, count: int) -> Gain:
        """Return the gain with the worst outcomes of censored ends."""
        if self.censored is None or count == 0:
            return self.gain(count)
        return self._gain_by(count, self.censored[0])

    def _gain_by(self, count: int, judged: _Judged) -> Gain:
        at, width = self._at(count), self._width(count)
        least, most = self.told.question.bounds
        scale = most - least
        one, sd, noise = (float(table[at]) for table in judged)
        return Gain(
            scale * float(np.clip(one, -1.0, 1.0)), scale * float(np.clip(one - width * sd, -1.0, 1.0)),
            scale * float(np.clip(one + width * sd, -1.0, 1.0)), self.level, scale * noise,
            scale * math.sqrt(max(sd * sd - noise * noise, 0.0)), 1.0, 0.0,
        )  # fmt: skip

    @property
    def measured(self) -> str:
        """Return the source of the gains."""
        return "transitions"

    @cached_property
    def points(self) -> Ints:
        """Return all available numbers of changed states."""
        return self.kept


class GroupGain(NamedTuple):
    """Gain of a group's users, in units of the range of returns: estimate, deviation, part due to privacy."""

    estimate: float
    deviation: float
    noise: float


def group_gains(path: TransitionPath, count: int, begins: Ints) -> tuple[GroupGain, ...]:
    """Return the gain of each group by the policy that changes the first ``count`` states, at least 1.

    begins : rows of the start state, one for each group asked for. The gain is sum_t P_g(t) (V_pi(t) -
    V_b(t)), by the judging half; its deviation is the larger of the estimates of both halves.
    """
    choosing, judging = (Chain(path.told, half) for half in halves(path.told, path.key))
    counts, found = np.array([count]), []
    for row in begins.tolist():
        gain, errors, noise = judging.gains(path.order, path.action, counts, row)
        others = choosing.gains(path.order, path.action, counts, row)[1]
        sizes = np.sqrt(np.maximum([errors[0, 0], others[0, 0], noise[0, 0]], 0.0))
        found.append(GroupGain(float(gain[0]), float(sizes[:2].max()), float(sizes[2])))
    return tuple(found)


def path_of(told: Told, level: float = 0.95) -> Path:
    """Return the policies that change more and more states, with their gains by returns or by transitions.

    level : in (0, 1), of all intervals. Transitions are used if rewards have a rule and the choosing halves
    expect a smaller deviation with them, for the policy that returns take by default. The gains expected by
    either do not enter this choice. With censored ends transitions are always used if these exceed the noise:
    returns do not show how many censored ends an action led to.
    """
    returns = deviations.path_of(told, level)
    return _by_transitions(returns) or returns


def _by_transitions(returns: Path) -> TransitionPath | None:
    """Return the path by transitions of the same release; None if unavailable or less informative."""
    told, key = returns.told, returns.key
    if told.question.returns.outcomes is None or not returns.order.size:
        return None
    count = np.array([returns.default])
    changed = returns.order[: returns.default]
    rows = told.layout.row_index[changed, returns.action[changed]]
    if (told.visits[rows] > 0.5 * _least(told)).mean() < 0.5:  # the noise exceeds most counts of transitions
        return None
    choosing, judging = halves(told, key)
    first = Chain(told, choosing)
    risk = math.sqrt(float(first.gains(returns.order, returns.action, count)[1][0, 0]))
    censored = told.question.returns.censored is not None
    if not (censored or risk < returns.default_risk):
        return None
    order, action, shrunk, spread, worth, plain = _order(returns, first)
    if not order.size:
        return None
    kept = _kept(order.size)
    second = Chain(told, judging)
    seen, risk_of, judged, covariance = _both_halves(first, second, order, action, kept)
    ends = None
    if censored:
        twice, sides = np.tile(kept, 2), np.repeat([-1, 1], kept.size)
        seen, risk_of, both, covariance = _both_halves(first, second, order, action, twice, sides)
        split = slice(None, kept.size), slice(kept.size, None)
        worst, best = (_Judged(*(table[part] for table in both)) for part in split)
        ends, seen, risk_of = (worst, best), seen[split[0]], risk_of[split[0]]
    # gains at first visits are shrunk for each decision, so the whole gain is shrunk too
    expected = seen * (np.cumsum(worth) / np.maximum(np.cumsum(plain), 1e-300))[kept - 1]
    fields = {name: getattr(returns, name) for name in Path.__dataclass_fields__}
    return TransitionPath(**{
        **fields, "order": order, "action": action, "expected": expected, "risk": risk_of,
        **judged._asdict(), "shrunk": shrunk, "spread": spread,
        "band": _band(covariance, (1.0 - DEFAULT) * (1.0 - returns.level), key), "kept": kept,
        "censored": ends,
    })  # fmt: skip


def _both_halves(
    choosing: Chain, judging: Chain, order: Ints, action: Ints, counts: Ints, sides: Ints | None = None
) -> tuple[Floats, Floats, _Judged, Floats]:
    """Return gains of points of the path by both halves.

    The result is the gains and deviations of the choosing half, the gains of the judging half with the larger
    deviation of both, and the covariance of the errors of the judging half.
    """
    seen, errors, _ = choosing.gains(order, action, counts, sides=sides)
    judged, covariance, noise = judging.gains(order, action, counts, sides=sides)
    risk = np.sqrt(np.diag(errors))
    deviation = np.maximum(np.sqrt(np.diag(covariance)), risk)
    return seen, risk, _Judged(judged, deviation, np.sqrt(np.diag(noise))), covariance


def _kept(most: int) -> Ints:
    found = [*range(1, min(most, _SINGLE) + 1)]
    while found[-1] < most:
        found.append(min(most, math.ceil(_MORE * found[-1])))
    return np.array(found, np.int64)


def _order(path: Path, chain: Chain) -> tuple[Ints, Ints, Floats, Floats, Floats, Floats]:
    """Return the states in order of change, and each state's offered action, shrunk gain and deviation.

    Also returned, in that order: the gain of changing each state alone, shrunk and not shrunk.
    """
    told, layout = path.told, path.told.layout
    state, steps = layout.row_state, layout.horizon
    begin = np.eye(layout.states)[told.question.start]
    each = first_visits(chain.usual, begin, np.arange(layout.states), steps)
    visits = np.maximum(each.sum(axis=0), 0.0)
    mean = each.T @ (chain.paid + chain.worth[1:]) / np.maximum(visits, 1e-12)[:, None]
    centred = mean - (chain.usual * mean).sum(axis=1, keepdims=True)
    gain = (chain.moves / chain.taken[:, None] * centred[state]).sum(axis=1)
    spread = np.maximum((chain.usual * centred**2).sum(axis=1), 0.0)[state]
    share = np.clip(chain.taken / chain.seen[state], 0.0, 1.0)
    variance = 2.0 * told.question.episodes * spread / chain.taken
    variance += 2.0 * told.noise.moves**2 * (centred**2).sum(axis=1)[state] / chain.taken**2
    variance = variance * (1.0 - share) ** 2 + 1e-12
    out = STANDS_OUT["laplace" if told.heavy else "gaussian"]
    enough = chain.taken > max(out * math.sqrt(2.0) * told.noise.visits, 10.0)
    offered = path.supported & enough & (share > LEAST_TAKEN) & (share < MOST_TAKEN)
    offered &= state != told.question.start
    prior = prior_of(gain, variance, visits[state], offered)
    believed = np.where(offered, gain * prior / (prior + variance), -1.0)
    table = np.full((layout.states, layout.actions), -1.0)
    table[state, layout.row_action] = believed
    action, best = table.argmax(axis=1), table.max(axis=1)
    row = np.maximum(layout.row_index[np.arange(layout.states), action], 0)
    worth = np.where(best > 0.0, visits * best, 0.0)
    cost = visits**2 * variance[row]
    order = np.argsort(-np.where(best > 0.0, worth / (cost + 1e-18), -1.0), kind="stable")
    order = order[best[order] > 0.0]
    deviation = np.sqrt(prior * variance[row] / (prior + variance[row]))
    return order, action, np.maximum(best, 0.0), deviation, worth[order], (visits * gain[row])[order]


def _band(covariance: Floats, failure: float, key: NDArray[np.uint64]) -> float:
    """Return q with P(max_k |S_k| / sd_k > q) = failure, for normal errors of this covariance."""
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(deviation, deviation))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draw = generator_at(key, ROLE_BOOTSTRAP, 2**33)
    sums = draw.standard_normal((_DRAWS, deviation.size)) @ root.T
    return float(np.quantile(np.abs(sums).max(axis=1), 1.0 - failure, method="higher"))
