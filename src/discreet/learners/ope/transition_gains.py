r"""Gain of deviating from the behaviour policy, estimated from next states of first visits.

:mod:`discreet.learners.ope.deviation_gains` estimates gains from the users' returns after each decision. The
variance of a return comes from all later steps, but the variance of a next state comes from one step. Both
modules assume a stationary environment and states that contain all variables relevant for actions and
outcomes. Under these assumptions, the gain is a function of transitions,

    gain(P) = J(P_pi) - J(P_b),   J(P) = sum_h e_start P^h (P w),                                      (1)

where w is the reward on arrival in a state. P_b(s, .) is the distribution of next states of all users in s,
and P_pi(s, .) is P(s, a(s), .) in changed states. Both distributions are computed from the released counts M
of first visits. Each transition count is a sum over all users who made the transition. Therefore an interval
is often a third as wide as with returns. However, there is one noise value for each next state instead of one
for each action. With many states and a small budget, returns therefore have the smaller error.

**Estimates.** Noise has mean zero if nothing is truncated at zero, and (1) is nearly linear if errors are
small. Therefore counts are not projected if they exceed four times the norm of the noise in their cells. For
these rows and states, only visits and transitions are reconciled by least squares. The counts of all other
rows and states are projected by :meth:`~discreet.learners.ope.first_visit_query.VisitSums.consistent`.

**Variance.** The variance is computed by the delta method. For a policy, let c(s, t) = sum_h d_h(s) (w(t) +
V_h+1(t)), where d_h(s) is its probability of being in s at step h. For every a, an increase of the cell M(s,
a, t) changes J(P_b) by (c_b(s, t) - E_b c_b(s, .)) / N(s). In unchanged states, it changes J(P_pi) in the
same way. In changed states, it changes J(P_pi) by (c_pi(s, t) - E c_pi(s, .)) / N(s, a(s)), and only if a is
the new action. The variance of a cell is sigma^2 + M (times the episodes per user).

Three corrections follow. A projected row is a distribution, so the error of a mean over it is at most the
range of the averaged values. If a few users all have the same outcome, the estimated variance of M is 0, and
such rows are selected most easily. The variance of a selected row is therefore at least that of all users in
its state. In addition, 1.5 hypothetical unobserved users with a different outcome are added to each half.
Each of them changes the result by b, the range of a slope. For several rows, b is sum N b^3 / sum N b^2, the
mean that determines the skewness of a sum. For a sum over hundreds of users, this term is negligible.

**Halves.** The release is split in the same way as in :mod:`discreet.learners.ope.deviation_gains`. The
halves are M + e and M - e, with e = 2 binomial(M, 1/2) - M + noise of the release's distribution. These
halves are those of :mod:`discreet.learners.ope.release_split`, times 2. Without noise, these are the two
halves of a randomly split sample, which are independent given the users' actions. All selections use the
first half (the selection half). All evaluations use the second half (the evaluation half). Their standard
deviation is the larger of the estimates from the two halves.

**Censored ends.** An episode that ends in the censored state c has an unknown outcome. A release counts this
outcome as the middle of the range of returns. For episodes that reach c from s after action a, let u(s, a) in
[-1/2, 1/2] be the mean of the true return minus the middle, in units of the range. With x(s, a) the expected
number of visits per episode,

    gain(u) = gain(0) + sum_{s, a} [x_pi(s, a) - x_b(s, a)] P(c | s, a) u(s, a).                       (2)

Visits do not depend on u, so the worst u follows from the visits. It is -1/2 where the policy visits (s, a)
more often than the users did, and 1/2 where it visits (s, a) less often. The best u has the opposite signs.
In a changed state, the policy visits the row of the new action more often and all other rows less often. In
an unchanged state, all rows have the same sign. The gains at the worst u and at the best u are estimated in
the same way as (1), from the same counts, each with a separate variance. The interval reaches from the low
end of the worst gain to the high end of the best gain. At the true u, gain(u) is between these two gains.
This holds for any reason of censoring if the users' later returns depend only on state and action. The point
of the path is chosen by the worst gain. If transitions do not exceed the noise, P(c | s, a) is unknown, and
the gain cannot be bounded.

**The path.** The gain of a single decision is (P_a - P_b) W, where W is the mean later value over first
visits. These gains are shrunk, and states are ordered by the shrunk gains, in the same way as in
:mod:`discreet.learners.ope.deviation_gains`. Point k of the path is the policy that changes the first k
states of the order. The available k are 1 to 8 and then grow by a constant factor. All points are evaluated
together: the half-width of the band is a quantile of the largest of their correlated errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.learners.ope import deviation_gains as deviations
from discreet.learners.ope.deviation_gains import (
    DEFAULT,
    LEAST_TAKEN,
    MOST_TAKEN,
    STANDS_OUT,
    Gain,
    Path,
    ProposedChanges,
    SplitRelease,
    first_visits,
    prior_of,
)
from discreet.learners.ope.first_visit_query import VisitSums
from discreet.learners.ope.release_split import ReturnSteps, thinning_errors
from discreet.utils.random_streams_kernels import ROLE_BOOTSTRAP, ROLE_SAMPLES, generator_at

_CLEAR = (
    4.0  # A row's counts are not projected if their sum exceeds this many norms of the noise in its cells.
)
UNSEEN = 1.5  # Hypothetical unobserved users per half with an outcome that no observed user had.
_SINGLE, _MORE = 8, 1.5  # The available numbers of changes are 1 to 8, and then grow by the factor 1.5.
_DRAWS = 4000  # Number of simulated error paths for the band.


class TransitionCounts(NamedTuple):
    """Transition and visit counts of a release, or of one half. Errors of a half have twice the variance."""

    moves: Floats  # (R, S + 1)
    visits: Floats  # (R,)


def halves(sums: VisitSums, key: NDArray[np.uint64]) -> tuple[TransitionCounts, TransitionCounts]:
    """Return the counts of the selection half and of the evaluation half.

    key : random key, which is derived from the release.
    """
    draw = generator_at(key, ROLE_SAMPLES, 2**33)
    drawn = thinning_errors(
        sums.consistent(), 0.5, sums.noise.moves, sums.noise.visits, draw, sums.heavy, sums.question.episodes
    )
    moves, visits = 2.0 * drawn.moves, 2.0 * drawn.visits
    return (
        TransitionCounts(sums.moves + moves, sums.visits + visits),
        TransitionCounts(sums.moves - moves, sums.visits - visits),
    )


def halves_of(path: Path) -> tuple[TransitionCounts, TransitionCounts]:
    """Return the counts from which the changes of a path were chosen, and the counts that evaluate them."""
    if path.parts is None:
        return halves(path.sums, path.key)
    first, second = path.parts
    return (
        TransitionCounts(2.0 * first.moves, 2.0 * first.visits),
        TransitionCounts(2.0 * second.moves, 2.0 * second.visits),
    )


def _least(sums: VisitSums, copies: float = 2.0) -> float:
    """Return the smallest sum of counts at which a row is not projected.

    copies : variance of the counts, as a multiple of the variance in the release.
    """
    return _CLEAR * math.sqrt(copies * sums.layout.states) * sums.noise.moves


class Chain:
    """Markov chain estimated from a release or one half of it, with the variances of the counts.

    copies : variance of the counts, as a multiple of the variance in the release; 1 for the whole release.

    Attributes with one entry per row: ``moves`` (R, S + 1) are the transition counts, and ``taken`` (R,) are
    their sums. ``clear_rows`` (R,) is True if the counts of the row are not projected. ``luck`` and ``noise``
    (R, S + 1) are the variances of the counts due to sampling and due to privacy noise.

    Attributes with one entry per state: ``usual`` (S + 1, S + 1) are the distributions of next states under
    the behaviour policy; they are 0 for terminal states. ``seen`` (S + 1,) are the sums of counts. ``clear``
    (S + 1,) is True if the counts of the state are not projected.
    """

    def __init__(self, sums: VisitSums, counts: TransitionCounts, copies: float = 2.0) -> None:
        self.sums, self.copies, layout = sums, copies, sums.layout
        noise, states = sums.noise, layout.states
        cut = sums.consistent(counts.moves, counts.visits)
        free = cut
        if noise.moves:
            gap = counts.moves.sum(axis=1) - counts.visits
            share = noise.moves**2 / (noise.visits**2 + states * noise.moves**2)
            free = counts.moves - (gap * share)[:, None]
        least = _least(sums, copies)
        together = sums.per_state(free)
        self.clear = together.sum(axis=1) > least * np.sqrt(np.diff(layout.state_ptr))
        self.clear_rows = free.sum(axis=1) > least
        whole = np.where(self.clear[:, None], together, sums.per_state(cut))
        self.moves = np.where(self.clear_rows[:, None], free, cut)
        self.taken, self.seen = (np.maximum(table.sum(axis=1), 1.0) for table in (self.moves, whole))
        self.usual = whole / self.seen[:, None]
        self.ends = list(sums.question.returns.terminal)
        self.usual[self.ends] = 0.0
        self.paid = sums.question.arrival
        self.worth, self.reached = self.followed(self.usual)
        variance = copies * sums.question.episodes * np.maximum(self.moves, 0.0)
        self.luck, self.noise = variance, np.full_like(variance, copies * noise.moves**2)

    def followed(self, moves: Floats, more: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Return the (H + 1, S + 1) values of states at each step, and the (H, S + 1) state probabilities.

        The value of a state does not include the reward on arrival in this state.

        moves : (S + 1, S + 1) next-state probabilities of the policy. more : (S + 1,) additional reward of a
        step from each state.
        """
        steps, states = self.sums.layout.horizon, self.sums.layout.states
        worth, reached = np.zeros((steps + 1, states)), np.zeros((steps, states))
        for h in range(steps - 1, -1, -1):
            worth[h] = moves @ (self.paid + worth[h + 1]) + more
        reached[0, self.sums.question.start] = 1.0
        for h in range(1, steps):
            reached[h] = reached[h - 1] @ moves
        return worth, reached

    def gains(
        self, order: Ints, action: Ints, counts: Ints, begin: int | None = None, sides: Ints | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Return the (n,) gains (1) of n policies, and two (n, n) covariances of their errors.

        The first covariance includes all errors. The second includes only privacy noise.

        - order, action : states in the order of change, and the new action of each state.
        - counts : (n,) numbers of changed states, one for each policy.
        - begin : row of a group in the start state. None: all users. A group takes this row first under both
          policies, so the start state counts as changed in both.
        - sides : (n,) integers that select the outcomes of censored ends in (2): -1 the worst, 1 the best, 0
          the middle.
        """
        layout, start = self.sums.layout, self.sums.question.start
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
        # slopes of each gain: in the cells of all rows of a state, and in the cells of the row of the new
        # action
        pooled = np.zeros((counts.size, layout.states, layout.states))
        own = np.zeros((counts.size, order.size, layout.states))
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
        return (found, *self._covariances(order, rows, own, pooled))

    def _covariances(self, order: Ints, rows: Ints, own: Floats, pooled: Floats) -> tuple[Floats, Floats]:
        """Return two (n, n) covariances of the errors of gains: all errors, and only privacy noise.

        - order, rows : changed states, and the rows of their new actions.
        - own : slopes of the gains in the cells of these rows.
        - pooled : slopes of the gains in the cells of all rows of a state.
        """
        luck = self.luck.copy()
        luck[rows] = self.luck_of(order, rows, own[-1])
        every = self.noise + luck
        alone = np.sqrt(
            capped(own * self.taken[rows][:, None], every[rows], self.taken[rows], self.clear_rows[rows])
        )
        shared = np.sqrt(
            capped(pooled * self.seen[:, None], self.sums.per_state(every), self.seen, self.clear)
        )

        def covariance(cells: Floats) -> Floats:
            root, mine = np.sqrt(self.sums.per_state(cells)) * shared, np.sqrt(cells[rows])
            x = (pooled * root).reshape(len(own), -1)
            y, z = (own * (mine * alone)), (pooled[:, order] * (mine * shared[order]))
            y, z = (table.reshape(len(own), -1) for table in (y, z))
            return np.asarray(x @ x.T + y @ z.T + z @ y.T + y @ y.T)

        of_noise = covariance(self.noise)
        return of_noise + covariance(luck) + self.unseen(rows, own), of_noise

    def _censored(
        self, changed: Ints, rows: Ints, ours: Floats, reached: Floats, half: float
    ) -> tuple[float, Floats, Floats]:
        """Return the gain (2) of the policy that changes the actions in these states, and its slopes.

        The first slopes (S + 1, S + 1) are in the cells of all rows of a state. In the rows of the new
        actions, the second slopes (K, S + 1) are added.

        - changed, rows : changed states, and the rows of their new actions.
        - ours : next-state probabilities under the policy.
        - reached : (H, S + 1) state probabilities under the policy.
        - half : outcomes of censored ends: -1/2 for those that are worst for the policy, 1/2 for the best.
        """
        start, end = self.sums.question.start, self.sums.question.returns.censored
        assert end is not None
        usual_visits, visits = self.reached.sum(axis=0), reached.sum(axis=0)
        each = half * np.sign(visits - usual_visits)  # u of all rows of a state except the new action's row
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
        """Return the (K, S + 1) sampling variances of the cells of the selected rows.

        The variance of a row is the larger of two variances: under the estimated distribution of the row, and
        under the distribution of all users in the state. The second is needed because equal outcomes of a few
        users do not prove that the outcome is certain.

        order, rows : changed states, and the rows of their new actions. slopes : (K, S + 1) slopes in the
        cells of these rows.
        """
        seen = self.luck[rows]
        among = np.maximum(self.usual[order], 0.0)
        among /= np.maximum(among.sum(axis=1, keepdims=True), 1e-300)
        usual = self.copies * self.sums.question.episodes * self.taken[rows][:, None] * among
        mean = (slopes * among).sum(axis=1, keepdims=True)
        less = (seen * slopes**2).sum(axis=1) < (usual * (slopes - mean) ** 2).sum(axis=1)
        return np.where(less[:, None], usual, seen)

    def unseen(self, rows: Ints, slopes: Floats) -> Floats:
        """Return the (n, n) covariance of n gains that is due to outcomes that no observed user had.

        The result is the covariance for ``UNSEEN`` additional users. Each of them changes a gain by the range
        of the ``slopes`` (n, K, S + 1) of a row. For several rows, this change is the mean b (see the
        module).
        """
        most = np.ptp(slopes, axis=2)
        weight = most**2 * self.taken[rows]
        each = (weight * most).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
        return self.copies**2 * UNSEEN * self.sums.question.episodes * np.outer(each, each)


def capped(slopes: Floats, cells: Floats, seen: Floats, clear: NDArray[np.bool_]) -> Floats:
    """Return (rows, 1) factors that limit the variances of means over next states.

    A projected row is a distribution over next states. Therefore the error of a mean over it is at most the
    range of the averaged values.

    - slopes : (n, rows, S + 1) averaged values, for n functions.
    - cells : (rows, S + 1) variances of the counts.
    - seen : (rows,) sums of the counts.
    - clear : (rows,) True if the row is not projected; its factor is 1.
    """
    variance = np.square(slopes * np.sqrt(cells)).sum(axis=2) / seen**2
    most = np.square(np.ptp(slopes, axis=2))
    part = (most / np.maximum(variance, 1e-300)).max(axis=0)
    return np.where(clear | (variance.max(axis=0) == 0.0), 1.0, np.minimum(part, 1.0))[:, None]


class _Judged(NamedTuple):
    """Gains of n points of the path, estimated from the evaluation half, with their standard deviations."""

    estimate: Floats  # (n,) gains
    deviation: Floats  # (n,) standard deviations of all errors
    noise: Floats  # (n,) standard deviations of the errors due to privacy noise


@dataclass(frozen=True, eq=False, kw_only=True)
class TransitionPath(Path):
    """Path of nested policies with gains that are estimated from transitions.

    kept : available numbers of changed states. ``expected``, ``risk``, ``estimate``, ``deviation`` and
    ``noise`` have one entry for each of these numbers.

    censored : gains by equation (2) of the module for two assumptions about the unknown outcomes of censored
    episodes. The first entry assumes the worst outcomes for the policy, the second the best. None if no
    episode can end censored. Otherwise ``expected`` and ``risk`` are for the worst outcomes.
    """

    kept: Ints
    censored: tuple[_Judged, _Judged] | None = None

    def _at(self, count: int) -> int:
        found = np.flatnonzero(self.kept == count)
        if not found.size:
            raise ValueError(f"count = {count}: must be 0 or one of {self.kept.tolist()}")
        return int(found[0])

    def point(self, caution: float) -> int:
        """Return the number of changed states that maximises expected gain minus ``caution`` deviations."""
        if not self.order.size or self.proposed is not None:
            return int(self.order.size)
        return int(self.kept[(self.expected - caution * self.risk).argmax()])

    def at_most(self, count: int) -> int:
        """Return the largest point of the path that changes at most ``count`` states."""
        return int(self.kept[self.kept <= count].max(initial=0))

    def clear(self, count: int) -> bool:
        """Return True if the interval of the gain of changing the first ``count`` states is above 0."""
        return count > 0 and self.gain(count).shown

    def gain(self, count: int) -> Gain:
        """Return the gain of the policy that changes the first ``count`` states.

        Raises ``ValueError`` unless ``count`` is 0 or a point of the path.
        """
        checks.integer("count", count, 0)
        if count == 0:
            return Gain(0.0, 0.0, 0.0, self.level, 0.0, 0.0, 1.0, 0.0)
        middle = self._gain_by(count, _Judged(self.estimate, self.deviation, self.noise))
        if self.censored is None:
            return middle
        worst, best = (self._gain_by(count, judged) for judged in self.censored)
        return replace(middle, low=min(worst.low, best.low), high=max(worst.high, best.high))

    def worst(self, count: int) -> Gain:
        """Return the gain under the unknown outcomes of censored episodes that are worst for the policy."""
        if self.censored is None or count == 0:
            return self.gain(count)
        return self._gain_by(count, self.censored[0])

    def _gain_by(self, count: int, judged: _Judged) -> Gain:
        at, width = self._at(count), self._width(count)
        least, most = self.sums.question.bounds
        scale = most - least
        one, sd, noise = (float(table[at]) for table in judged)
        return Gain(
            scale * float(np.clip(one, -1.0, 1.0)), scale * float(np.clip(one - width * sd, -1.0, 1.0)),
            scale * float(np.clip(one + width * sd, -1.0, 1.0)), self.level, scale * noise,
            scale * math.sqrt(max(sd * sd - noise * noise, 0.0)), 1.0, 0.0,
        )  # fmt: skip

    @property
    def measured(self) -> str:
        """Return "transitions", the kind of data from which the gains are estimated."""
        return "transitions"

    @cached_property
    def points(self) -> Ints:
        """Return all available numbers of changed states."""
        return self.kept


def forecast(path: Path) -> tuple[float, float]:
    """Return the expected gain of the default policy, and the standard deviation of its estimate.

    The gain and its standard deviation are computed from the selection half only, in units of the range of
    returns.
    """
    count = path.default
    if not count:
        return 0.0, 0.0
    if isinstance(path, TransitionPath):
        at = path._at(count)
        return float(path.expected[at]), float(path.risk[at])
    moves = path.sums.consistent(*halves_of(path)[0])
    ratio = float(path._in_model(moves, np.array([count]))[0][0])
    return ratio * float(path.expected[count - 1]), ratio * float(path.risk[count - 1])


def return_steps(sums: VisitSums) -> ReturnSteps:
    """Return the decomposition of returns into transitions, in the model of a release.

    In :class:`~discreet.learners.ope.release_split.ReturnSteps`, c(t) is the mean over steps, weighted by
    arrivals in t. Let k(s, s') be the expected number of visits to s' within the mean number of remaining
    steps. A user in s visits s' later with probability to(s, s'). This probability is the mean of min(1, k(t,
    s') / k(s', s')) over next states t. Let x(s, s') be the share of users in s who visited s' before. This
    share follows from N(s) x(s, s') = N(s') (1 - x(s', s)) to(s', s).
    """
    projected = sums.consistent()
    chain = Chain(sums, TransitionCounts(projected, projected.sum(axis=1)), 1.0)
    state, steps = sums.layout.row_state, sums.layout.horizon
    arrivals = np.concatenate([chain.reached[1:], [chain.reached[-1] @ chain.usual]])
    every = np.maximum(arrivals.sum(axis=0), 1e-300)
    worth = chain.paid + (arrivals * chain.worth[1:]).sum(axis=0) / every
    left = chain.reached.sum(axis=1) @ np.arange(steps - 1, -1, -1) / chain.reached.sum()
    ahead = np.eye(sums.layout.states)
    visits = ahead.copy()
    for _ in range(round(float(left)) - 1):
        ahead = ahead @ chain.usual
        visits += ahead
    reach = np.minimum(visits / np.maximum(np.diag(visits), 1.0), 1.0)
    to = chain.usual @ reach  # (S + 1, S + 1) probability that a user in s visits s' later
    both = to * to.T
    before = (chain.seen * to.T / chain.seen[:, None] - both) / np.maximum(1.0 - both, 1e-9)
    later = projected @ reach * (1.0 - np.clip(before, 0.0, 1.0))[state] / chain.seen
    later[np.arange(state.size), state] = 0.0  # only the first visit is counted
    return ReturnSteps(worth, np.minimum(later, 1.0))


class GroupGain(NamedTuple):
    """Gain of one group, with its standard deviation and the part that is due to privacy noise.

    The unit is the range of returns.
    """

    estimate: float
    deviation: float
    noise: float


def group_gains(path: TransitionPath, count: int, begins: Ints) -> tuple[GroupGain, ...]:
    """Return the gain of each group under the policy that changes the first ``count`` states.

    The gain of group g is sum_t P_g(t) (V_pi(t) - V_b(t)), estimated from the evaluation half. Its standard
    deviation is the larger of the estimates from the two halves.

    count : number of changed states, at least 1. begins : rows of the start state, one for each requested
    group.
    """
    choosing, judging = (Chain(path.sums, half) for half in halves_of(path))
    counts, found = np.array([count]), []
    for row in begins.tolist():
        gain, errors, noise = judging.gains(path.order, path.action, counts, row)
        others = choosing.gains(path.order, path.action, counts, row)[1]
        sizes = np.sqrt(np.maximum([errors[0, 0], others[0, 0], noise[0, 0]], 0.0))
        found.append(GroupGain(float(gain[0]), float(sizes[:2].max()), float(sizes[2])))
    return tuple(found)


def path_of(
    sums: VisitSums,
    level: float = 0.95,
    parts: SplitRelease | None = None,
    proposed: ProposedChanges | None = None,
) -> Path:
    """Return the path of nested policies, with gains estimated from returns or from transitions.

    Transitions are used if two conditions hold. A rule determines the rewards, and the gain of the default
    policy has a smaller standard deviation with transitions than with returns. Both standard deviations are
    estimated from the selection half; the expected gains do not affect this choice. If episodes can end
    censored, transitions are used whenever they exceed the noise. The reason is that returns do not show how
    many episodes end censored after an action.

    level : joint confidence level of all intervals, in (0, 1). parts, proposed : see
    :func:`discreet.learners.ope.deviation_gains.path_of`.
    """
    returns = deviations.path_of(sums, level, parts, proposed)
    return _by_transitions(returns) or returns


def _by_transitions(returns: Path) -> TransitionPath | None:
    """Return the path with gains from transitions. Return None if returns must or should be used.

    returns : path with gains from returns. :func:`path_of` states the conditions.
    """
    sums, key = returns.sums, returns.key
    if sums.question.returns.outcomes is None or not returns.order.size:
        return None
    count = np.array([returns.default])
    changed = returns.order[: returns.default]
    rows = sums.layout.row_index[changed, returns.action[changed]]
    if (
        sums.visits[rows] > 0.5 * _least(sums)
    ).mean() < 0.5:  # most transition counts do not exceed the noise
        return None
    choosing, judging = halves_of(returns)
    first = Chain(sums, choosing)
    risk = math.sqrt(float(first.gains(returns.order, returns.action, count)[1][0, 0]))
    censored = sums.question.returns.censored is not None
    if not (censored or risk < returns.default_risk):
        return None
    if returns.proposed is None:
        order, action, shrunk, spread, worth, plain = _order(returns, first)
    else:
        order, action, shrunk, spread = returns.order, returns.action, returns.shrunk, returns.spread
        worth = plain = returns.visits[order] * shrunk[order]
    if not order.size:
        return None
    kept = _kept(order.size)
    second = Chain(sums, judging)
    seen, risk_of, judged, covariance = _both_halves(first, second, order, action, kept)
    ends = None
    if censored:
        twice, sides = np.tile(kept, 2), np.repeat([-1, 1], kept.size)
        seen, risk_of, both, covariance = _both_halves(first, second, order, action, twice, sides)
        split = slice(None, kept.size), slice(kept.size, None)
        worst, best = (_Judged(*(table[part] for table in both)) for part in split)
        ends, seen, risk_of = (worst, best), seen[split[0]], risk_of[split[0]]
    # the expected gain is shrunk by the same factor as the sum of the gains of single decisions
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
    """Return the gains of n points of the path, estimated from both halves.

    The first two results are the gains and standard deviations from the selection half. The third result has
    the gains from the evaluation half, with the larger of the standard deviations from both halves. The last
    result is the (n, n) covariance of the errors in the evaluation half. The arguments are those of
    :meth:`Chain.gains`.
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
    """Return the states in the order of change, and five more arrays.

    The next three arrays have one entry for each of the S + 1 states: the new action, its shrunk gain, and
    the standard deviation of this gain. The last two arrays are in the order of change: the gain of changing
    only this state, first shrunk and then not shrunk.

    path : path with gains from returns. chain : chain of the selection half.
    """
    sums, layout = path.sums, path.sums.layout
    state, steps = layout.row_state, layout.horizon
    begin = np.eye(layout.states)[sums.question.start]
    each = first_visits(chain.usual, begin, np.arange(layout.states), steps)
    visits = np.maximum(each.sum(axis=0), 0.0)
    mean = each.T @ (chain.paid + chain.worth[1:]) / np.maximum(visits, 1e-12)[:, None]
    centred = mean - (chain.usual * mean).sum(axis=1, keepdims=True)
    gain = (chain.moves / chain.taken[:, None] * centred[state]).sum(axis=1)
    spread = np.maximum((chain.usual * centred**2).sum(axis=1), 0.0)[state]
    share = np.clip(chain.taken / chain.seen[state], 0.0, 1.0)
    variance = 2.0 * sums.question.episodes * spread / chain.taken
    variance += 2.0 * sums.noise.moves**2 * (centred**2).sum(axis=1)[state] / chain.taken**2
    variance = variance * (1.0 - share) ** 2 + 1e-12
    out = STANDS_OUT["laplace" if sums.heavy else "gaussian"]
    enough = chain.taken > max(out * math.sqrt(2.0) * sums.noise.visits, 10.0)
    offered = path.supported & enough & (share > LEAST_TAKEN) & (share < MOST_TAKEN)
    offered &= state != sums.question.start
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
    """Return the q with P(max_k |S_k| / sd_k > q) = failure for normal errors S_k with this covariance."""
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(deviation, deviation))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draw = generator_at(key, ROLE_BOOTSTRAP, 2**33)
    sums = draw.standard_normal((_DRAWS, deviation.size)) @ root.T
    return float(np.quantile(np.abs(sums).max(axis=1), 1.0 - failure, method="higher"))
