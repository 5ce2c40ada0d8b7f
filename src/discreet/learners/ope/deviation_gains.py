r"""Gain of deviating from the behaviour policy in some states, from one release of first visits.

The gain is estimated as a difference of actions, not as a difference of two policy values. Let b be the
behaviour policy. Policy pi acts like b except in a set D of states s, where it takes the action a(s). Let
A_h(s) = Q_b,h(s, a(s)) - V_b,h(s). This is the gain of one such decision at step h if users otherwise follow
b. Then

    value(pi) - value(b) = sum_h sum_{s in D} d_pi,h(s) A_h(s)                                         (1)

(the performance difference lemma). Here d_pi,h(s) is the probability that pi is in s at step h. States
outside D do not enter the sum. Both policies take the same actions there, so errors cancel.

**Gain at first visits.** A(s) is the mean of A_h(s) over first visits. The estimates are Q_b(s, a) = 1/2 + G
g(N) and V_b(s) = 1/2 + sum_a G / sum_a N. Both estimates are linear in the centred sums of returns G. Here
g(N) is the unbiased estimate of 1 / N for the number of visits N
(:func:`~discreet.learners.ope.count_estimates.reciprocal`). Let x(s) = N(s) / n be the mean number of first
visits to s per episode. Then the gain of deviating only at first visits is, to first order,

    g_1 = sum_{s in D} x(s) A(s).                                                                      (2)

The variance of each G has three terms: sigma_G^2 for noise, N v for sampling, and (Q - 1/2)^2 sigma_N^2 for
the noise of the visits. Here v = (1 - V) V >= Var(G_h) (Bhatia and Davis 2000). Errors of different
states are uncorrelated. For sampling errors the reason is that the centred decision indicators of one user at
different states are martingale differences.

**Selection and evaluation.** If the same estimates were used to select D and to evaluate it, the evaluation
would be biased. Therefore the release is split into a selection half and an evaluation half, by adding and
subtracting new errors. Let (x, y) be the errors of visits and returns in the release, and let (u, w) be a new
draw from the same distribution. Then

    N_choose = N + u,  G_choose = G + w,     N_judge = N - u,  G_judge = G - w.                        (3)

Because x and u are exchangeable, E[x - u | x + u] = 0. For the same reason, E[y - w | y + w] = 0. This holds
for every error distribution, including skewed and heavy-tailed distributions. Even if the errors of one half
influence the selection, the mean error of the other half is therefore 0. For normal errors, the halves are
independent (Rasines and Young 2022; Leiner et al. 2023, data fission). The new noise u has the noise
distribution of the release. The new error w has the noise distribution of the release plus the sampling error
of binomial(N, V_b) outcomes, which have the largest variance of returns between 0 and 1.

All selections use the selection half, including the selection of rows whose visits exceed the noise. All
evaluations use the evaluation half. Selected errors also have a larger variance. The variance of an
evaluation therefore uses the mean of V (1 - V) and Q (1 - Q) in the selection half, where this mean is
larger. (u, w) are derived from the hash of the released table, so that planning again from the same release
gives the same halves.

**The path.** The gains A_choose are shrunk towards 0 by empirical Bayes, with a normal prior. The variance of
the prior is estimated by moments, and its standard deviation is at least 0.02 of the range of returns. In
each state, the offered action is the one with the largest shrunk gain. States are sorted by gain per unit of
variance of the evaluation, in decreasing order. Point k of the path is the policy that changes the first k
states of this order. The default k maximises the gain minus 1.3 standard deviations. All k are evaluated
together. The default k uses 0.8 of the failure probability. All other k use the remaining 0.2 in a band that
holds for every k simultaneously (quantiles of max_k |S_k| / sd_k by simulation). The intervals therefore hold
for all points of the path together, and any point can be selected later.

**Visits under pi, and the remaining steps.** Because episodes end at step H, the gain A_h(s) of a decision in
(1) depends on the step h. Let f_h(s) be the probability that the first visit to s is at step h, with x =
sum_h f_h. Then

    E g_1 = sum_{s in D} sum_h f_h(s) A_h(s)                                                           (4)

This equation is exact if the behaviour policy depends only on the state. A model is fitted to the released
transitions. The full gain (1) and the gain (4) are both computed in this model. The measured g_1 is
multiplied by their ratio r. Visits after the first one increase r. Changes at earlier steps decrease r. If
visits come late, the remaining gain is small. The mean of A_h(s) over first visits is set to the shrunk gain.
Only the differences between steps, (P_a - P_b) V_h+1, come from the model. Therefore r is consistent: with
infinitely many users and no noise, the product r g_1 equals (1).

**Uncertain transitions.** If few users took action a, P_a is uncertain. Let Delta = P_a - P_b have a normal
prior with mean 0 and covariance tau^2 (diag P_b - P_b P_b'), which is proportional to that of one user's next
state. Let W be the mean of V_h+1 over first visits, so that tau^2 Var_b(W) is the prior variance of gains.
The posterior mean of Delta W is the estimate of Delta W times tau^2 Var_b(W) / (tau^2 Var_b(W) + error^2).
The remaining part of the shrunk gain varies over steps in proportion to Cov_b(V_h+1, W) / Var_b(W). This is
the slope in a regression of a change of V_h+1 on a change of W. Rewards that no rule determines are assumed
constant over steps. They are fitted so that the model reproduces the measured returns of first visits.

**Error of r.** The error is measured by fitting the model again to releases that are drawn from the model.
The shrunk gains determine the weights of the states in r. Their errors are independent of the errors of the
evaluation half, and their variance is added. This procedure does not show effects that are hidden by noise.
The projection removes next states whose counts are below the noise, including death and discharge. In the
model, users therefore return to states more often than in reality, and r is too far from 1. Let the
reliability t of the model's transitions be the factor tau^2 Var_b(W) / (tau^2 Var_b(W) + error^2) above,
averaged over gains. The true ratio is assumed to be between 1 + t (r - 1) and r, and the estimate is the
midpoint. The interval of the gain allows for this whole range. Each end of the interval is the product of an
end of g_1 and an end of r. The ends of r are moved outwards by two standard deviations.

Assumptions: the environment is the same at every step, and the state contains all variables that affect
actions and outcomes. benchmarks/decision_points.md measures the coverage of the intervals.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.learners.ope.censored_share import censored_share, ends_censored
from discreet.learners.ope.count_estimates import reciprocal
from discreet.learners.ope.first_visit_query import VisitSums
from discreet.utils.random_streams_kernels import ROLE_BOOTSTRAP, ROLE_SAMPLES, generator_at

Bools = NDArray[np.bool_]

CAUTION = 1.3
STANDS_OUT = {"gaussian": 6.0, "laplace": 9.0}  # A count is used if it exceeds this many std of its noise.
LEAST_TAKEN, MOST_TAKEN = (
    0.03,
    0.95,
)  # Bounds on the share of a state's decisions that take an offered action.
_LEAST_PRIOR = 0.02  # Smallest prior std of the gain of one decision, in units of the range of returns.
DEFAULT = 0.8  # Share of the failure probability that is used by the default point of the path.
_REFITS = 5
_POINTS = 16
_DRAWS, _AT_ONCE = 4000, 50  # number of simulated error paths for the band; number drawn in one call
_LEAST_SPREAD = 0.02  # smallest assumed variance of a return, as a share of the squared range of returns


@dataclass(frozen=True)
class Gain:
    """Gain of a policy over the behaviour policy, with a two-sided interval, in the user's units of return.

    Attributes
    ----------
    estimate : float
        Estimate of the full gain (1).
    low, high : float
        Interval at confidence ``level``. The interval holds for all points of the path together.
    noise, sampling : float
        Standard deviation due to privacy noise, and standard deviation due to sampling of users. Both include
        the errors that were added to split the release into halves.
    revisits, revisits_error : float
        Ratio r of the full gain to the gain at first visits, and its standard deviation.
    """

    estimate: float
    low: float
    high: float
    level: float
    noise: float
    sampling: float
    revisits: float
    revisits_error: float

    @property
    def shown(self) -> bool:
        """Return True if the whole interval is above 0."""
        return self.low > 0.0


class _Half(NamedTuple):
    """Estimates from one half of a release; each row is a pair (s, a)."""

    used: Bools  # (R,) True for rows whose visits exceed the noise.
    visits: Floats  # (S + 1,) first visits per episode.
    share: Floats  # (R,) share of the decisions in the row's state that take the row's action.
    q: Floats  # (R,) mean return of first visits with this action, Q_b.
    value: Floats  # (S + 1,) mean return of first visits to the state, V_b.
    gain: Floats  # (R,) gain of the action over the behaviour policy, q - value.
    variance: Floats  # (R,) variance of the gain.
    noise: Floats  # (R,) part of this variance that is due to privacy noise.


class ProposedChanges(NamedTuple):
    """Changes chosen by another planner. Gains are in units of the range of returns."""

    order: Ints  # (K,) states in the order of change.
    action: Ints  # (S + 1,) new action of each state.
    gain: Floats  # (S + 1,) expected gain of one decision, which is above 0 in these states.
    spread: Floats  # (S + 1,) standard deviation of this gain


class SplitRelease(NamedTuple):
    """Training part and held-out part of a release.

    Changes are chosen from one part and evaluated by the other. The parts are those of
    :func:`~discreet.learners.ope.release_split.split_release` with the share 1/2 and
    :class:`~discreet.learners.ope.release_split.ReturnSteps`.
    """

    train: VisitSums
    held_out: VisitSums


@dataclass(frozen=True, eq=False)
class Path:
    """Nested policies that change the first k states of a common order, with estimates of their gains.

    Attributes
    ----------
    order : (K,)
        States in the order in which they are changed.
    action : (S + 1,)
        New action for each state.
    expected : (K,)
        Entry k is the gain of changing the first k + 1 states, estimated from the selection half, in units of
        the range of returns.
    estimate, deviation : (K,)
        Estimate of (2) from the evaluation half, and its standard deviation.
    risk : (K,)
        Standard deviation of the estimate, computed from the selection half only.
    band : float
        Half-width of the simultaneous band, in standard deviations.
    visits : (S + 1,)
        First visits per episode.
    share : (R,)
        Share of the decisions in the row's state that take the row's action.
    shrunk, spread : (S + 1,)
        Expected gain of the new action of each state, and its standard deviation.
    prior : float
        Prior variance of the gain of one decision.
    supported : (R,)
        True for rows whose visits exceed the noise.
    parts : SplitRelease, optional
        Parts of the release from which the changes were chosen and evaluated. None: the selection half and
        the evaluation half are derived from ``key``.
    proposed : ProposedChanges, optional
        Changes in their order, if another planner chose them. The default policy then makes all changes.
    """

    __repr__ = brief

    sums: VisitSums
    order: Ints
    action: Ints
    expected: Floats
    risk: Floats
    estimate: Floats
    deviation: Floats
    noise: Floats
    band: float
    level: float
    visits: Floats
    share: Floats
    shrunk: Floats
    spread: Floats
    supported: Bools
    whole: _Half
    prior: float
    key: NDArray[np.uint64]
    parts: SplitRelease | None = None
    proposed: ProposedChanges | None = None

    def point(self, caution: float) -> int:
        """Return the number of changed states that maximises the expected gain minus ``caution`` deviations.

        The result is between 0 and K.
        """
        if not self.order.size or self.proposed is not None:
            return int(self.order.size)
        return int((self.expected - caution * self.risk).argmax()) + 1

    @property
    def default(self) -> int:
        """Return the number of states that the default policy changes."""
        return self.point(CAUTION)

    def at_most(self, count: int) -> int:
        """Return the largest point of the path that changes at most ``count`` states."""
        return min(count, int(self.order.size))

    @property
    def measured(self) -> str:
        """Return "returns", the kind of data from which the gains are estimated."""
        return "returns"

    def changed(self, count: int) -> Bools:
        """Return an (S + 1,) mask of the first ``count`` states in the order of change."""
        found = np.zeros(self.sums.layout.states, bool)
        found[self.order[:count]] = True
        return found

    def clear(self, count: int) -> bool:
        """Return True if the interval of the gain of changing the first ``count`` states is above 0.

        Intervals of other points of the path are not computed.
        """
        if self.sums.question.returns.censored is not None:
            return False
        if not count or not self.estimate[count - 1] > self._width(count) * self.deviation[count - 1]:
            return False
        return self._gain(count, self._revisits(np.array([count]))[0]).shown

    def _width(self, count: int) -> float:
        """Return the half-width, in standard deviations, of the interval of point ``count``.

        For all points except the default point, this is the half-width of the band.
        """
        return -float(ndtri(DEFAULT * (1.0 - self.level) / 2)) if count == self.default else self.band

    def gain(self, count: int) -> Gain:
        """Return the gain of the policy that changes the first ``count`` states."""
        checks.integer("count", count, 0, self.order.size)
        if count == 0:
            return Gain(0.0, 0.0, 0.0, self.level, 0.0, 0.0, 1.0, 0.0)
        known = self._ratios.get(count)
        found = self._gain(count, self._revisits(np.array([count]))[0] if known is None else known)
        if self.sums.question.returns.censored is None:
            return found
        # If episodes can end censored, the interval is the whole range, because returns do not show how many
        # episodes end censored after an action.
        least, most = self.sums.question.bounds
        return replace(found, low=least - most, high=most - least)

    def worst(self, count: int) -> Gain:
        """Return the gain under the unknown outcomes of censored episodes that are worst for the policy.

        The result equals that of :meth:`gain` if no episode can end censored.
        """
        return self.gain(count)

    def _gain(self, count: int, revisits: tuple[float, float, float]) -> Gain:
        """Return the gain of the policy that changes the first ``count`` states.

        revisits : r and its two standard deviations, from :meth:`_revisits`.
        """
        least, most = self.sums.question.bounds
        width = self._width(count)
        one, sd = float(self.estimate[count - 1]), float(self.deviation[count - 1])
        ratio, error, weights = revisits
        luck = weights / max(ratio, 1e-9)
        both = width * math.hypot(sd, one * luck)
        at_first = one - both, one + both
        if one > width * sd:  # r is not negative, so an error of r cannot change a gain into a loss
            at_first = max(at_first[0], (one - width * sd) * max(1.0 - 2.0 * luck, 0.0)), at_first[1]
        ends = [end * max(ratio + side * 2.0 * error, 0.0) for end in at_first for side in (-1.0, 1.0)]
        scale = most - least
        noise = float(self.noise[count - 1])
        return Gain(
            scale * one * ratio, max(scale * min(ends), -scale), min(scale * max(ends), scale), self.level,
            scale * ratio * noise, scale * ratio * math.sqrt(max(sd * sd - noise * noise, 0.0)), ratio,
            math.hypot(error, weights),
        )  # fmt: skip

    @cached_property
    def default_risk(self) -> float:
        """Return the standard deviation of the full gain of the default point.

        The result is computed from the selection half and from the ratio r in the model.
        """
        found = self._in_model(self.sums.consistent(), np.array([self.default]))[0]
        return float(found[0] * self.risk[self.default - 1])

    @cached_property
    def points(self) -> Ints:
        """Return the numbers of changed states for which a report shows gains.

        The numbers are evenly spaced from 1 to K. The default is included.
        """
        if not self.order.size:
            return np.zeros(0, np.int64)
        even = np.linspace(1, self.order.size, min(self.order.size, _POINTS)).round().astype(np.int64)
        return np.unique([*even, self.default])

    @cached_property
    def _ratios(self) -> dict[int, tuple[float, float, float]]:
        return dict(zip(self.points.tolist(), self._revisits(self.points), strict=True))

    def _revisits(self, counts: Ints) -> list[tuple[float, float, float]]:
        """Return, for each point in ``counts``, the ratio r and two standard deviations of r.

        The first standard deviation is due to errors of the model. It is measured by fitting the model again
        to releases that are drawn from the model. The second is due to errors of the shrunk gains, which
        determine the weights of the states.
        """
        sums = self.sums
        moves = sums.consistent()
        found, weights, believed = self._in_model(moves, counts)
        draw = generator_at(self.key, ROLE_BOOTSTRAP)
        off = np.zeros(len(counts))
        for _ in range(_REFITS):
            again, visits = sums.sampled(moves, draw)
            off += np.square(self._in_model(sums.consistent(again, visits), counts)[0] - found) / _REFITS
        hidden = 0.5 * (1.0 - believed) * (found - 1.0)  # half of the largest error of r that noise can hide
        error = np.sqrt(off) + 0.5 * np.abs(hidden)
        return list(zip((found - hidden).tolist(), error.tolist(), np.sqrt(weights).tolist(), strict=True))

    def _in_model(self, moves: Floats, counts: Ints) -> tuple[Floats, Floats, Floats]:
        """Return the ratio r of the full gain to the gain at first visits, for each point in ``counts``.

        The model has the transition counts ``moves`` (R, S + 1). The function also returns two other results.
        The first is the variance of r due to errors of the shrunk gains, which determine the weights of the
        states. The second is the reliability of the transitions, in [0, 1].
        """
        sums = self.sums
        layout, order = sums.layout, self.order[: int(counts.max())]
        usual, begin = self._usual(moves)
        taken = moves[layout.row_index[order, self.action[order]]]
        many = np.maximum(taken.sum(axis=1), 1e-9)
        taken = taken / many[:, None]
        first = first_visits(usual, begin, order, layout.horizon)
        gains, trust = self._by_step(usual, taken, many, first, order)
        once = (first * gains).sum(axis=0)
        ours, found, weights, done = usual, np.ones(len(counts)), np.zeros(len(counts)), 0
        believed = np.ones(len(counts))
        for i, count in enumerate(counts.tolist()):
            ours[order[done:count]], done = taken[done:count], count
            reached, full = begin, np.zeros(count)
            for gain in gains:
                full += reached[order[:count]] * gain[:count]
                reached = reached @ ours
            at_first = float(once[:count].sum())
            if at_first > 0.0:
                found[i] = float(full.sum()) / at_first
                believed[i] = float(np.clip(once[:count] @ trust[:count] / at_first, 0.0, 1.0))
                off = (
                    (full - found[i] * once[:count]) * self.spread[order[:count]] / self.shrunk[order[:count]]
                )
                weights[i] = float(off @ off) / at_first**2
        return found, weights, believed

    def _usual(self, moves: Floats) -> tuple[Floats, Floats]:
        """Return the distributions of next states and of the first state in the model of counts ``moves``.

        The distributions of next states are (S + 1, S + 1), under the behaviour policy, and 0 in terminal
        states. The distribution of the first state is (S + 1,).
        """
        whole = self.sums.per_state(moves)
        usual = whole / np.maximum(whole.sum(axis=1), 1e-9)[:, None]
        usual[list(self.sums.question.returns.terminal)] = 0.0
        return usual, np.eye(len(usual))[self.sums.question.start]

    def _by_step(
        self, usual: Floats, taken: Floats, many: Floats, first: Floats, order: Ints
    ) -> tuple[Floats, Floats]:
        """Return the (H + 1, K) gain of one decision in each changed state at each step.

        The mean of these gains over first visits, as in (4), is ``shrunk``. The second result is the (K,)
        reliability of the transitions of each decision.

        - usual : (S + 1, S + 1) next-state probabilities under the behaviour policy.
        - taken : (K, S + 1) next-state probabilities after the new actions.
        - many : (K,) counts of the new actions.
        - first : (H + 1, K) probabilities of first visits.
        - order : (K,) changed states.
        """
        arrival, paid = self._rewards
        after, steps = arrival, []
        for _ in range(len(first)):
            steps.append(after)
            after = arrival + np.where(usual.any(axis=1), paid, 0.0) + usual @ after
        worth = np.array(steps[::-1])  # (H + 1, S + 1) value of each next state, by the step of the decision
        weight = (first / np.maximum(first.sum(axis=0), 1e-300)).T  # (K, H + 1)
        mean = weight @ worth  # (K, S + 1)
        behind = usual[order]
        spread = behind * (mean - (behind * mean).sum(axis=1, keepdims=True))
        alike = spread @ worth.T  # (K, H + 1) covariance under b of the next value at each step with its mean
        variance = np.maximum((spread * mean).sum(axis=1), 0.0)
        moved = (taken - behind) @ worth.T
        centred = mean - (behind * mean).sum(axis=1, keepdims=True)
        error = variance / many + np.square(self.sums.noise.moves / many) * np.square(centred).sum(axis=1)
        trust = self.prior / (self.prior + error)
        own = np.zeros_like(variance) if self.sums.question.returns.outcomes is not None else variance
        rest = (1.0 - trust) * variance + own
        # the part of a gain that is not explained by the transitions of the action varies over steps as for b
        known = rest > 1e-12
        rest = np.where(known, rest, 1.0)
        profile = np.where(
            known[:, None], ((1.0 - trust)[:, None] * alike + own[:, None]) / rest[:, None], 1.0
        )
        through = trust[:, None] * moved
        left = self.shrunk[order] - (weight * through).sum(axis=1)
        return np.asarray((through + left[:, None] * profile).T), trust

    @cached_property
    def _rewards(self) -> tuple[Floats, Floats]:
        """Return the (S + 1,) rewards on arrival in a state, and the (S + 1,) rewards of a step from a state.

        All rewards are in units of the range of returns. The rewards of a step are means under the behaviour
        policy. If a rule determines the rewards on arrival, they are 0. Otherwise the rewards of a step are
        fitted so that the model reproduces the measured returns of first visits.
        """
        sums, question = self.sums, self.sums.question
        returns, states = question.returns, sums.layout.states
        least, most = question.bounds
        arrival, paid = question.arrival, np.zeros(states)
        if returns.outcomes is not None:
            return arrival, paid
        usual, begin = self._usual(sums.consistent())
        live = np.asarray(usual.any(axis=1))
        live[question.start] = False
        first = first_visits(usual, begin, np.arange(states), sums.layout.horizon)
        once = first.sum(axis=0)
        often = np.zeros((states, states))  # expected number of visits to each state in the remaining steps
        from_first = np.zeros((states, states))
        for here in first[::-1]:
            often = np.eye(states) * live[:, None] + usual @ often
            from_first += here[:, None] * often
        seen = live & (self.whole.visits > 0.0) & (once > 0.0)
        low, high = returns.low / (most - least), returns.high / (most - least)
        earned = np.clip(self.whole.value, 0.0, 1.0) + least / (most - least)
        steps = from_first[question.start][live].sum()
        paid[live] = np.clip(earned[question.start] / max(steps, 1e-9), low, high)
        visits = from_first[seen] / once[seen][:, None]
        rest = earned[seen] - visits[:, ~seen] @ paid[~seen]
        paid[seen] = np.clip(np.linalg.lstsq(visits[:, seen], rest, rcond=1e-9)[0], low, high)
        return arrival, paid

    # --------------------------------------------------------------- policies not chosen from these returns
    def plain(self, weights: Floats) -> tuple[Gain | None, float]:
        """Return the gain at first visits of a policy, and the share of its decisions that lack support.

        The policy must not be chosen from these returns. A decision lacks support if it takes an action with
        too few users. If the share is above 0.05, the gain is None.

        weights : (R,) action probabilities of the policy.
        """
        least, most = self.sums.question.bounds
        layout, scale = self.sums.layout, most - least
        visits = np.where(self.sums.decided, self.visits[layout.row_state], 0.0)
        weight = visits * weights
        lacking = float(weight[~self.supported].sum() / weight.sum()) if weight.any() else 1.0
        if lacking > 0.05:
            return None, lacking
        weight = np.where(self.supported, weight, 0.0)
        off = self._open(weights)
        one = float(weight @ self.whole.gain)
        sd = math.sqrt(float((weight * weight) @ self.whole.variance))
        noise = math.sqrt(float((weight * weight) @ self.whole.noise))
        width = -float(ndtri((1.0 - self.level) / 2))
        return Gain(
            scale * one, max(scale * (one - off - width * sd), -scale),
            min(scale * (one + off + width * sd), scale),
            self.level, scale * noise, scale * math.sqrt(max(sd * sd - noise * noise, 0.0)), 1.0, 0.0,
        ), lacking  # fmt: skip

    def _open(self, weights: Floats) -> float:
        """Return the largest change of the gain at first visits that unknown outcomes can cause.

        The outcomes of episodes that end censored are unknown. weights : (R,) action probabilities of the
        policy.
        """
        sums = self.sums
        if sums.question.returns.censored is None:
            return 0.0
        moves = sums.consistent()
        laws = moves / np.maximum(moves.sum(axis=1, keepdims=True), 1e-9)
        chance = ends_censored(sums, laws, self._usual(moves)[0])
        visits = np.where(self.supported, self.visits[sums.layout.row_state], 0.0)
        return 0.5 * float((visits * np.abs(weights - self.share)) @ chance)

    def behaviour(self) -> Gain:
        """Return the value of the behaviour policy with its interval, in the user's units.

        The value is the mean return of the first visits to the start state.
        """
        least, most = self.sums.question.bounds
        sums, scale = self.sums, most - least
        if not self.whole.visits[sums.question.start] > 0.0:  # there are too few users
            return Gain(0.5 * (least + most), least, most, self.level, scale, scale, 1.0, 0.0)
        mean = float(np.clip(self.whole.value[sums.question.start], 0.0, 1.0))
        noise = math.hypot(sums.noise.returns, (mean - 0.5) * sums.noise.visits) / sums.episodes
        noise *= math.sqrt(sums.question.groups)  # the value is computed from the sum of one cell per group
        spread = max(mean * (1.0 - mean), 0.25 / sums.episodes) * sums.question.episodes
        sampling = math.sqrt(spread / sums.episodes)
        many = -float(ndtri((1.0 - self.level) / 2))  # half-width of the interval in standard deviations
        width = many * math.hypot(noise, sampling)
        left = censored_share(sums)
        if left is not None:
            width += 0.5 * (left.share + max(many, 2.0) * left.deviation)
        low, high = max(mean - width, 0.0), min(mean + width, 1.0)
        return Gain(
            least + scale * mean, least + scale * low, least + scale * high, self.level, scale * noise,
            scale * sampling, 1.0, 0.0,
        )  # fmt: skip


def first_visits(usual: Floats, begin: Floats, states: Ints, steps: int) -> Floats:
    """Return the (H + 1, K) probabilities that the first visit to a state happens at a step.

    usual : next-state probabilities. begin : distribution of the first state. states : (K,) the states. steps
    : number of steps, H + 1.
    """
    fresh, own = np.repeat(begin[None], states.size, axis=0), (np.arange(states.size), states)
    found = np.empty((steps, states.size))
    for step in range(steps):
        found[step] = fresh[own]
        fresh[own] = 0.0  # remove the probability of episodes that have already visited the state
        fresh = fresh @ usual
    return found


def _half(
    sums: VisitSums, visits: Floats, returns: Floats, copies: float, used: Bools | None, luck: Floats | None
) -> _Half:
    """Return the estimates from one half of a release, or from the whole release.

    - visits, returns : (R,) sums of this half.
    - copies : variance of their errors, as a multiple of the variance in the release.
    - used : (R,) mask of the rows to use. None: rows whose visits exceed the noise.
    - luck : (R,) lower limit of the variance of one return. None: no limit.
    """
    layout, per_state = sums.layout, sums.per_state
    state, cells = layout.row_state, np.diff(layout.state_ptr)
    sigma = math.sqrt(copies) * sums.noise.visits
    out = STANDS_OUT["laplace" if sums.heavy else "gaussian"]
    whole = per_state(visits)
    if used is None:
        enough = whole > np.maximum(out * sigma * np.sqrt(cells), 10.0)
        used = (visits > max(out * sigma, 10.0)) & enough[state]
    else:
        enough = per_state(used.astype(np.float64)) > 0.0
    whole = np.where(enough, np.maximum(whole, 1.0), 1.0)
    inverse = np.where(used, reciprocal(visits, sigma), 0.0)
    value = np.where(enough, per_state(returns) * reciprocal(whole, sigma * np.sqrt(cells)), 0.0)
    q = np.where(used, returns * inverse, value[state])
    middle, own = np.clip(value, -0.5, 0.5), np.clip(q, -0.5, 0.5)
    spread = np.clip(0.25 - middle * middle, _LEAST_SPREAD, 0.25)[state]
    if luck is not None:
        spread = np.maximum(spread, luck)
    of_noise = copies * (sums.noise.returns**2 + (own * sums.noise.visits) ** 2)
    variance = of_noise + copies * np.maximum(sums.visits, 0.0) * spread * sums.question.episodes
    share = np.clip(visits / whole[state], 0.0, 1.0)

    def of_gain(t: Floats) -> Floats:
        """Return the variance of q - V from the variances ``t`` (R,) of the sums of returns.

        V is a mean over actions, so the errors of V and q are correlated.
        """
        rest = (per_state(t)[state] - t) / whole[state] ** 2
        return np.asarray(np.where(used, t * inverse**2 * (1.0 - share) ** 2 + rest, 0.0))

    reached = np.maximum(np.where(enough, whole, 0.0), 0.0) / sums.episodes
    return _Half(
        used, reached, share, q + 0.5, value + 0.5, q - value[state], of_gain(variance), of_gain(of_noise)
    )


def _halves(sums: VisitSums, key: NDArray[np.uint64]) -> tuple[_Half, _Half, _Half]:
    """Return the estimates from the whole release, the selection half and the evaluation half, by (3)."""
    plain = _half(sums, sums.visits, sums.returns, 1.0, None, None)
    draw = generator_at(key, ROLE_SAMPLES)
    drawn = draw.laplace if sums.heavy else draw.normal
    of_scale = math.sqrt(0.5) if sums.heavy else 1.0
    size = sums.visits.size
    u = drawn(0.0, of_scale * sums.noise.visits, size) if sums.noise.visits else np.zeros(size)
    w = drawn(0.0, of_scale * sums.noise.returns, size) if sums.noise.returns else np.zeros(size)
    many = np.rint(np.maximum(sums.visits, 0.0)).astype(np.int64)
    mean = np.clip(plain.value, 0.0, 1.0)[sums.layout.row_state]
    w = w + math.sqrt(sums.question.episodes) * (draw.binomial(many, mean) - many * mean)
    return plain, *_judged(sums, (sums.visits + u, sums.returns + w), (sums.visits - u, sums.returns - w))


def _parts(sums: VisitSums, parts: SplitRelease) -> tuple[_Half, _Half, _Half]:
    """Return the estimates from the whole release, the training part and the held-out part."""
    doubled = ((2.0 * part.visits, 2.0 * part.returns) for part in parts)
    return _half(sums, sums.visits, sums.returns, 1.0, None, None), *_judged(sums, *doubled)


def _judged(
    sums: VisitSums, first: tuple[Floats, Floats], second: tuple[Floats, Floats]
) -> tuple[_Half, _Half]:
    """Return the estimates from the visits and returns of two halves. Rows are selected by the first half."""
    choosing = _half(sums, *first, 2.0, None, None)
    seen = np.clip(choosing.q, 0.0, 1.0)
    usual = np.clip(choosing.value, 0.0, 1.0)[sums.layout.row_state]
    luck = 0.5 * (seen * (1.0 - seen) + usual * (1.0 - usual))
    return choosing, _half(sums, *second, 2.0, choosing.used, luck)


def rows_in_use(sums: VisitSums, train: VisitSums) -> Bools:
    """Return an (R,) mask of the rows whose visits exceed the noise in the training part of a release."""
    return _half(sums, 2.0 * train.visits, 2.0 * train.returns, 2.0, None, None).used


def path_of(
    sums: VisitSums,
    level: float = 0.95,
    parts: SplitRelease | None = None,
    proposed: ProposedChanges | None = None,
) -> Path:
    """Return the path of nested policies, with their gains estimated from returns.

    - level : joint confidence level of all intervals, in (0, 1).
    - parts : see :class:`Path`.
    - proposed : changes chosen by another planner, in rows that are in use (:func:`rows_in_use`).
    """
    level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    layout = sums.layout
    state = layout.row_state
    content = hashlib.sha256(np.ascontiguousarray(sums.returns, "<f8").tobytes())
    key = np.frombuffer(content.digest()[:16], "<u8").astype(np.uint64)
    whole, choosing, judging = _halves(sums, key) if parts is None else _parts(sums, parts)
    visits, share = choosing.visits, choosing.share
    offered = choosing.used & (share > LEAST_TAKEN) & (share < MOST_TAKEN) & (state != sums.question.start)
    prior = prior_of(choosing.gain, choosing.variance, visits[state], offered)
    shrunk = np.where(offered, choosing.gain * prior / (prior + choosing.variance), -1.0)
    table = np.full((layout.states, layout.actions), -1.0)
    table[state, layout.row_action] = shrunk
    action = table.argmax(axis=1)
    best = table.max(axis=1)
    row = layout.row_index[np.arange(layout.states), action]
    row = np.where(row < 0, 0, row)
    worth = np.where(best > 0.0, visits * best, 0.0)
    cost = np.where(best > 0.0, visits**2 * choosing.variance[row], 0.0)
    order = np.argsort(-np.where(best > 0.0, worth / (cost + 1e-18), -1.0), kind="stable")
    order = order[best[order] > 0.0]
    spread = np.sqrt(prior * choosing.variance[row] / (prior + choosing.variance[row]))
    if proposed is not None:
        order, action, best, spread = proposed.order, proposed.action, proposed.gain, proposed.spread
        row = np.maximum(layout.row_index[np.arange(layout.states), action], 0)
        worth, cost = visits * best, visits**2 * choosing.variance[row]
    judged = (visits**2 * judging.variance[row])[order]
    noise = np.cumsum((visits**2 * judging.noise[row])[order])
    return Path(
        sums=sums,
        order=order,
        action=action,
        expected=np.cumsum(worth[order]),
        risk=np.sqrt(np.cumsum(cost[order])),
        estimate=np.cumsum((visits * judging.gain[row])[order]),
        deviation=np.sqrt(np.cumsum(judged)),
        noise=np.sqrt(noise),
        band=_band(judged, (1.0 - DEFAULT) * (1.0 - level), key),
        level=level,
        visits=whole.visits,
        share=whole.share,
        shrunk=np.maximum(best, 0.0),
        spread=spread,
        supported=whole.used,
        whole=whole,
        prior=prior,
        key=key,
        parts=parts,
        proposed=proposed,
    )


def prior_of(gain: Floats, variance: Floats, visits: Floats, offered: Bools) -> float:
    """Return the prior variance of the gain of one decision, estimated by moments.

    gain, variance : (R,) estimated gains and the variances of their errors. visits : (R,) visits to the row's
    state. offered : (R,) mask of the rows to use.
    """
    weight = np.where(offered, visits / (variance + 0.003), 0.0)
    if not weight.sum() > 0.0:
        return _LEAST_PRIOR**2
    found = float((weight * (gain**2 - variance)).sum() / weight.sum())
    return max(found, _LEAST_PRIOR**2)


def _band(variances: Floats, failure: float, key: NDArray[np.uint64]) -> float:
    """Return the quantile q with P(max_k |S_k| / sd_k > q) = failure.

    S_k is the sum of the first k of several independent normal errors with these ``variances``, and sd_k is
    its standard deviation.
    """
    if not variances.size:
        return math.inf
    deviation = np.sqrt(np.cumsum(variances))
    draw = generator_at(key, ROLE_BOOTSTRAP, 2**32)
    most = []
    for _ in range(_DRAWS // _AT_ONCE):
        sums = np.cumsum(np.sqrt(variances) * draw.standard_normal((_AT_ONCE, variances.size)), axis=1)
        most.append(np.abs(sums / deviation).max(axis=1))
    return float(np.quantile(np.concatenate(most), 1.0 - failure, method="higher"))
