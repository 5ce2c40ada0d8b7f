r"""What it gains to act otherwise, by where first visits went on to.

:mod:`discreet.offline.deviations` asks what people earned after each decision. A return holds the luck of all
that came later; where a state goes on to holds that of one step. In a world that is the same at every step,
whose states hold all that matters (both are supposed there, too), the gain is a function of transitions,

    gain(P) = J(P_pi) - J(P_b),   J(P) = sum_h e_start P^h (P w),                                      (1)

w being what an arrival pays, P_b(s, .) where people in s went on to, P_pi(s, .) = P(s, a(s), .) in changed
states. Both come from the released counts M of first visits. Each transition sums over everybody who came
that way, so an interval is often a third as wide; but noise counts once for each next state and not once for
each action, so that with many states and a small budget returns say more.

Estimates. Noise has mean zero as long as nothing is cut off at zero, and (1) is nearly linear where errors
are small: rows and states whose count exceeds four times the norm of the noise in their cells are taken as
they were released (with the noise of visits and transitions reconciled by least squares, without a
projection), all others after the projection of :meth:`~discreet.offline.first_visits.Told.consistent`.

Variance, by the delta method. With c(s, t) = sum_h d_h(s) (w(t) + V_h+1(t)) of a policy, d its chance to be
in s at step h, a cell M(s, a, t) moves J(P_b) by (c_b(s, t) - E_b c_b(s, .)) / N(s), whatever a, and J(P_pi)
so too; in changed states by (c_pi(s, t) - E c_pi(s, .)) / N(s, a(s)), in the row of the new action alone. The
variance of a cell is sigma^2 + M (times the episodes of a person). A projected row is a law, so that a mean
over it errs by its range at most. Few people who all fared alike have M of variance 0, and are most readily
chosen: a row that is taken is held to be no surer than all that people did in its state, and to what was
seen some 1.5 people of a half are added who fared otherwise, b each with b the range of a slope; over many
rows b is the mean that a sum's skewness goes by, sum N b^3 / sum N b^2. A sum over hundreds does not notice.

Halves. As in :mod:`discreet.offline.deviations`, errors are doubled: M + e and M - e, with
e = 2 binomial(M, 1/2) - M + noise of the release's law. Without noise these are the two halves of a thinned
sample, independent given what people did. All choices are made by the first, all judgements by the second;
their deviation is the larger of what both halves say it is.

The path. Single decisions are weighed by (P_a - P_b) W with W the mean of what follows over first visits,
shrunk and ordered as there. Policies are some of the first k states of the order (each of the first eight,
then ever more). All are judged together: the band is the quantile of the largest of their correlated errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.noise.streams_kernels import ROLE_BOOTSTRAP, ROLE_SAMPLES, generator_at
from discreet.offline import deviations
from discreet.offline.deviations import (
    DEFAULT,
    LEAST_TAKEN,
    MOST_TAKEN,
    STANDS_OUT,
    Gain,
    Path,
    first_visits,
    prior_of,
)
from discreet.offline.first_visits import Told

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

__all__ = ["Chain", "Counts", "TransitionPath", "capped", "halves", "path_of"]

_CLEAR = 4.0  # norms of the noise in a row's cells that its count exceeds, where it is taken as released
UNSEEN = 1.5  # people in a half whom nobody met, who fared otherwise than all that were seen
_SINGLE, _MORE = 8, 1.5  # each of so many changes is a point of the path; then that many times more
_DRAWS = 4000  # of the path's errors, for the band


class Counts(NamedTuple):
    """Transitions and visits of a release, or of one half of it, with twice the release's variance."""

    moves: Floats  # (R, S + 1)
    visits: Floats  # (R,)


def halves(told: Told, key: NDArray[np.uint64]) -> tuple[Counts, Counts]:
    """Return the counts of the half that chooses and of the half that judges; key : of the release."""
    draw = generator_at(key, ROLE_SAMPLES, 2**33)
    many = np.rint(told.consistent()).astype(np.int64)
    luck = math.sqrt(told.question.episodes) * (2.0 * draw.binomial(many, 0.5) - many)
    drawn, scale = (draw.laplace, math.sqrt(0.5)) if told.heavy else (draw.normal, 1.0)

    def noise(deviation: float, shape: tuple[int, ...]) -> Floats:
        return np.asarray(drawn(0.0, scale * deviation, shape) if deviation else np.zeros(shape))

    moves = luck + noise(told.noise.moves, luck.shape)
    visits = luck.sum(axis=1) + noise(told.noise.visits, told.visits.shape)
    return (
        Counts(told.moves + moves, told.visits + visits),
        Counts(told.moves - moves, told.visits - visits),
    )


def _least(told: Told, copies: float = 2.0) -> float:
    """The count of a row, with ``copies`` times the release's variance, from which on it is taken as
    released.
    """
    return _CLEAR * math.sqrt(copies * told.layout.states) * told.noise.moves


class Chain:
    """Where people go on to in one half, what that is worth, and how sure both are.

    copies : the counts hold so many times the variance of the release, 1 for all that was released.
    moves (R, S + 1) counts by row, clear_rows (R,) those that are taken as released, taken (R,) their sums;
    usual (S + 1, S + 1) where people go on to, 0 in terminal states; clear, seen (S + 1,) the same by state.
    luck, noise : (R, S + 1) variances of counts.
    """

    def __init__(self, told: Told, counts: Counts, copies: float = 2.0) -> None:
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

    def followed(self, moves: Floats) -> tuple[Floats, Floats]:
        """(H + 1, S + 1) what is still to come at each step, arrivals paid; chance to be there."""
        steps, states = self.told.layout.horizon, self.told.layout.states
        worth, reached = np.zeros((steps + 1, states)), np.zeros((steps, states))
        for h in range(steps - 1, -1, -1):
            worth[h] = moves @ (self.paid + worth[h + 1])
        reached[0, self.told.question.start] = 1.0
        for h in range(1, steps):
            reached[h] = reached[h - 1] @ moves
        return worth, reached

    def gains(self, order: Ints, action: Ints, counts: Ints) -> tuple[Floats, Floats, Floats]:
        """(n,) of (1) where the first so many states are changed, and two (n, n) covariances of their errors:
        of all, and of privacy's noise alone.
        """
        layout, start = self.told.layout, self.told.question.start
        order = order[: int(counts.max())]
        rows = layout.row_index[order, action[order]]
        taken = self.moves[rows] / self.taken[rows][:, None]
        ours, done, found = self.usual.copy(), 0, np.zeros(counts.size)
        pooled = np.zeros((counts.size, layout.states, layout.states))  # by a cell of any row of a state
        own = np.zeros((counts.size, order.size, layout.states))  # and by one of the new action's row
        ahead = self.paid + self.worth[1:]
        before = self.reached.T @ ahead
        for i, count in enumerate(counts.tolist()):
            ours[order[done:count]], done = taken[done:count], count
            worth, reached = self.followed(ours)
            found[i] = worth[0, start] - self.worth[0, start]
            after = reached.T @ (self.paid + worth[1:])
            changed = after[order[:count]]
            changed = changed - (taken[:count] * changed).sum(axis=1, keepdims=True)
            own[i, :count] = changed / self.taken[rows[:count]][:, None]
            after[order[:count]] = 0.0
            both = after - before
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

    def luck_of(self, order: Ints, rows: Ints, slopes: Floats) -> Floats:
        """(K, S + 1) luck of the cells of rows that are taken: of their own law or, where it is less sure, of
        what all did in that state. Few who were lucky alike are no sure thing.
        """
        seen = self.luck[rows]
        among = np.maximum(self.usual[order], 0.0)
        among /= np.maximum(among.sum(axis=1, keepdims=True), 1e-300)
        usual = self.copies * self.told.question.episodes * self.taken[rows][:, None] * among
        mean = (slopes * among).sum(axis=1, keepdims=True)
        less = (seen * slopes**2).sum(axis=1) < (usual * (slopes - mean) ** 2).sum(axis=1)
        return np.where(less[:, None], usual, seen)

    def unseen(self, rows: Ints, slopes: Floats) -> Floats:
        """(n, n) covariance of what was not met: as of some people more, each of whom moves a gain by the
        range of a row's (n, K, S + 1) slopes, a mean over rows by what their people can move together.
        """
        most = np.ptp(slopes, axis=2)
        weight = most**2 * self.taken[rows]
        each = (weight * most).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
        return self.copies**2 * UNSEEN * self.told.question.episodes * np.outer(each, each)


def capped(slopes: Floats, cells: Floats, seen: Floats, clear: NDArray[np.bool_]) -> Floats:
    """(rows, 1) parts of the variance of (n, rows, S + 1) slopes in next states that can be errors.

    A row that was projected is a law over next states: a mean over it is wrong by no more than its range.
    """
    variance = np.square(slopes * np.sqrt(cells)).sum(axis=2) / seen**2
    most = np.square(np.ptp(slopes, axis=2))
    part = (most / np.maximum(variance, 1e-300)).max(axis=0)
    return np.where(clear | (variance.max(axis=0) == 0.0), 1.0, np.minimum(part, 1.0))[:, None]


@dataclass(frozen=True, eq=False)
class TransitionPath(Path):
    """A path that is judged by transitions.

    kept : the numbers of changed states that can be taken; ``expected``, ``risk``, ``estimate``,
    ``deviation`` and ``noise`` are theirs.
    """

    kept: Ints

    def _at(self, count: int) -> int:
        found = np.flatnonzero(self.kept == count)
        if not found.size:
            raise ValueError(f"count = {count}: must be 0 or one of {self.kept.tolist()}")
        return int(found[0])

    def point(self, caution: float) -> int:
        """How many states to change so that expected gain - caution x its deviation is largest."""
        if not self.order.size:
            return 0
        return int(self.kept[(self.expected - caution * self.risk).argmax()])

    def at_most(self, count: int) -> int:
        """The largest point of the path that changes at most so many states."""
        return int(self.kept[self.kept <= count].max(initial=0))

    def clear(self, count: int) -> bool:
        """Is the interval of the gain above 0, for the first so many states?"""
        return count > 0 and self.gain(count).shown

    def gain(self, count: int) -> Gain:
        """Of the policy that changes the first so many states; ``count`` is 0 or a point of the path."""
        checks.integer("count", count, 0)
        if count == 0:
            return Gain(0.0, 0.0, 0.0, self.level, 0.0, 0.0, 1.0, 0.0)
        at, width = self._at(count), self._width(count)
        least, most = self.told.question.bounds
        scale = most - least
        one, sd, noise = (float(table[at]) for table in (self.estimate, self.deviation, self.noise))
        return Gain(
            scale * float(np.clip(one, -1.0, 1.0)), scale * float(np.clip(one - width * sd, -1.0, 1.0)),
            scale * float(np.clip(one + width * sd, -1.0, 1.0)), self.level, scale * noise,
            scale * math.sqrt(max(sd * sd - noise * noise, 0.0)), 1.0, 0.0,
        )  # fmt: skip

    @property
    def measured(self) -> str:
        """What gains are read off."""
        return "transitions"

    @cached_property
    def points(self) -> Ints:
        """All numbers of changed states that can be taken."""
        return self.kept


def path_of(told: Told, level: float = 0.95) -> Path:
    """The policies that change more and more states, and what they gain, by returns or by transitions.

    level : in (0, 1), of all intervals. By transitions where rewards are a rule and the choosing halves of
    both expect a smaller deviation of one policy, that which returns take by default. What either thinks to
    gain has no part in that.
    """
    returns = deviations.path_of(told, level)
    return _by_transitions(returns) or returns


def _by_transitions(returns: Path) -> TransitionPath | None:
    """The path by transitions of the same release; None where it is not to be had, or says less."""
    told, key = returns.told, returns.key
    if told.question.returns.outcomes is None or not returns.order.size:
        return None
    count = np.array([returns.default])
    changed = returns.order[: returns.default]
    rows = told.layout.row_index[changed, returns.action[changed]]
    if (told.visits[rows] > 0.5 * _least(told)).mean() < 0.5:  # noise drowns what transitions would tell
        return None
    choosing, judging = halves(told, key)
    first = Chain(told, choosing)
    risk = math.sqrt(float(first.gains(returns.order, returns.action, count)[1][0, 0]))
    if not risk < returns.default_risk:
        return None
    order, action, shrunk, spread, worth, plain = _order(returns, first)
    if not order.size:
        return None
    kept = _kept(order.size)
    seen, errors, _ = first.gains(order, action, kept)
    judged, covariance, noise = Chain(told, judging).gains(order, action, kept)
    # what first visits gain is shrunk decision by decision: so is the whole
    expected = seen * (np.cumsum(worth) / np.maximum(np.cumsum(plain), 1e-300))[kept - 1]
    risk_of = np.sqrt(np.diag(errors))
    deviation = np.maximum(np.sqrt(np.diag(covariance)), risk_of)
    fields = {name: getattr(returns, name) for name in Path.__dataclass_fields__}
    return TransitionPath(**{
        **fields, "order": order, "action": action, "expected": expected, "risk": risk_of, "estimate": judged,
        "deviation": deviation, "noise": np.sqrt(np.diag(noise)), "shrunk": shrunk, "spread": spread,
        "band": _band(covariance, (1.0 - DEFAULT) * (1.0 - returns.level), key), "kept": kept,
    })  # fmt: skip


def _kept(most: int) -> Ints:
    found = [*range(1, min(most, _SINGLE) + 1)]
    while found[-1] < most:
        found.append(min(most, math.ceil(_MORE * found[-1])))
    return np.array(found, np.int64)


def _order(path: Path, chain: Chain) -> tuple[Ints, Ints, Floats, Floats, Floats, Floats]:
    """States in the order in which they are changed, what each offers, its shrunk gain and deviation by
    state; and by the order, what changing it alone is worth, shrunk and not.
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
    """q with P(max_k |S_k| / sd_k > q) = failure, for normal errors of this covariance."""
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(deviation, deviation))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draw = generator_at(key, ROLE_BOOTSTRAP, 2**33)
    sums = draw.standard_normal((_DRAWS, deviation.size)) @ root.T
    return float(np.quantile(np.abs(sums).max(axis=1), 1.0 - failure, method="higher"))
