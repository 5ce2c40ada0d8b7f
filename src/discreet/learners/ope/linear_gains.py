r"""What a policy from sums of features gains over what people did, judged by people it was not learned from.

Halves. The policy is learned from the answers about one half of the people. About the other half a model
of each step is asked (Gram matrix L = sum phi phi^T, next states M = sum phi (e_{s'} - 1/S)^T, rewards r
= sum phi (R - 1/2)), and, once the policy is known, sum V(s_0) over where people began. A person is in
one half, so each half has the whole budget; and as the halves are of different people and have noise of
their own, nothing that was chosen for its luck in one is judged by it. What is judged is one policy: that
of the first planning. Another one, planned from the same release, could be chosen for what this half says
of it, and gets no judgement.

Estimate. With phi^T c = 1 and K = L^-1, backward from V_H = 0,

    w_h = K_h (r_h + M_h (V_h+1 - v)),   Q_h = 1/2 + v + phi^T w_h,   V_h(s) = Q_h(s, pi_h(s)),           (1)

v the mean of V_h+1 over states. What people did needs no model, as sum (R - 1/2) = c^T r. With N the mean
of c^T L_h c over steps, which is the number of episodes, and H/2 taken off both,

    gain = (sum V_0(s_0) - H/2 N - sum_h c^T r_h) / N.                                                   (2)

Errors, by the delta method. With x_h = E_pi phi_h (forward, by the same model), u_h = K_h x_h and (2) an
average over episodes,

    d gain = sum_h u_h^T (dr_h + dM_h V_h+1 - dL_h w_h) - c^T dr_h,                                       (3)

and what moves N. Where the policy does as people did u_h = c, and noise of rewards cancels. Noise of the
release has known laws. One episode contributes to (2) the sum over steps of

    (u_h^T phi - 1) (R + V_h+1(s') - Q_h(s, a))   and   V_h(s) - Q_h(s, a).                              (4)

The first ones are martingale differences: their variance is the sum of E (u_h^T phi - 1)^2 Var(R + V_h+1
| s, a), of which the first factor is read off L and the second is at most the largest of the model. The
second ones can go together at all steps: their deviations, each at most sqrt((b - m)(m - a)) for a number
between a and b of mean m, are added up, and to that of the first. So what is said of sampling is an upper
bound.

Noise in an inverse is no error of the first order alone: with noise E of variance s^2, and twice that on
the diagonal,

    mean of (L + E)^-1  =  K + s^2 (tr(K) K^2 + K^3)  and higher orders,

so that w_h is inflated at every step, while what people did, c^T r, is not: where everything pays well each
policy would seem to gain. K in (1) is therefore the inverse less that term, at the inverse that is known
(Laplace noise has s^2 on the diagonal, too, and the term is less there). By how much this moves (2) is
added to both sides of the interval, for what higher orders do.

What nobody did. Directions of features whose eigenvalue of L does not stand out of its noise (two edges of
its spectrum, and ten episodes) are left out of K, and held to be worth half of what can still be earned. Say
the policy's own features x_h have a part e there. A pair is worth no more than half of the rest more or
less, |phi^T w| <= (H - h) / 2, so that |e^T w| is at most that times the least sum of |a_i| with
e = sum a_i phi_i over all pairs: it is added to both sides of the interval. Noise tilts directions, so that
x_h seems to have a part there where it has none; to first order this cancels with what noise does to the
rest. So |e|^2 is what is seen less what noise alone shows in the mean, and four standard deviations of that
more, which noise may have hidden. Where the policy goes far from what people did this is most of the
interval.

What is supposed: the world is a linear MDP with these features, and they hold what matters for action and
outcome. No release can test it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from discreet.core.layout import Layout
from discreet.mechanisms.features import Features
from discreet.mechanisms.linear.adaptive_queries import Answer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CLEAR = 2.0  # edges of the noise's spectrum that an eigenvalue must exceed
_REWEIGHTED = 8
_LEAST = 10.0  # and so many episodes whose features are all of it
_RARELY = 4.0  # standard deviations of what noise shows in hidden features that are held to be there

__all__ = ["Follow", "LinearGain", "followed", "ones_of"]


@dataclass(frozen=True)
class LinearGain:
    """What a policy gains over what people did, in rewards of [0, 1] a step, with a two-sided interval.

    estimate, low, high : at ``level``. noise, sampling : standard deviations due to privacy, and (at most) to
    who was in the data. lacking : what both ends were moved by for features that nobody had. bent : the same
    for what noise does to inverses beyond the first order, which was taken off the estimate. usual : the
    value of what people did, usual_error its deviation. episodes : of the half that judged, about.
    """

    estimate: float
    low: float
    high: float
    level: float
    noise: float
    sampling: float
    lacking: float
    bent: float
    usual: float
    usual_error: float
    episodes: float

    @property
    def shown(self) -> bool:
        """Is the whole interval above 0?"""
        return self.low > 0.0

    @property
    def unseen(self) -> bool:
        """Is the interval wide for features that nobody had, or for bent inverses, more than for all else?

        Then no point is told.
        """
        return self.lacking + self.bent > -float(ndtri((1.0 - self.level) / 2)) * math.hypot(
            self.noise, self.sampling
        )

    def at(self, level: float, most: float) -> LinearGain:
        """The same with another interval, within [-most, most]."""
        width = -float(ndtri((1.0 - level) / 2)) * math.hypot(self.noise, self.sampling)
        width += self.lacking + self.bent
        low, high = max(self.estimate - width, -most), min(self.estimate + width, most)
        return replace(self, low=low, high=high, level=level)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the estimate is None where no point is told."""
        told = None if self.unseen else self.estimate
        return asdict(self) | {"estimate": told, "shown": self.shown, "unseen": self.unseen}


class _Step(NamedTuple):
    """One step's model."""

    gram: Floats  # (d, d)
    inverse: Floats  # (d, d) of what stands out, as it is
    seen: Floats  # (d, d) projection to that
    rewards: Floats  # (d,)
    moved: Floats  # (d, S), 0 at the last step
    weights: Floats  # (d,) w of (1)
    hidden: int  # dimensions that do not stand out
    answer: Answer


@dataclass(frozen=True, eq=False)
class Follow:
    """Values (1) of one policy in the model of one half.

    policy : (H, S). values : (H + 1, S). bent : (S,) of step 0 with inverses as they are. steps : H models.
    ones : (d,) c. pairs : (d, S A) a right inverse of the features of admissible pairs, in their span.
    """

    layout: Layout
    features: Features
    policy: Ints
    values: Floats
    bent: Floats
    steps: tuple[_Step, ...]
    ones: Floats
    admissible: Floats
    pairs: Floats

    def gain(self, begun: Answer, level: float, episodes: int, pure: bool) -> LinearGain | None:
        """(2), once it is known where people began; None where the half is too small to say anything.

        begun : of the start question. level : in (0, 1). episodes : of a person at most. pure : noise is
        Laplace's.
        """
        horizon, c = self.layout.horizon, self.ones
        assert begun.vector is not None
        many = float(np.mean([c @ step.gram @ c for step in self.steps]))
        if not many > _LEAST:
            return None
        middle = float(self.values[0].mean())
        paid = sum(float(c @ step.rewards) for step in self.steps)
        usual = horizon / 2 + paid / many
        worth = middle + float(begun.vector @ (self.values[0] - middle)) / many
        gain = worth - usual
        moved = self.bent - self.values[0]
        centre = float(moved.mean())
        bent = abs(centre + float(begun.vector @ (moved - centre)) / many)
        noise, lacking = self._noise(begun, many, middle - horizon / 2 - gain, pure)
        sampling = math.sqrt(episodes / many) * self._deviation(begun, many)
        luck = math.sqrt(episodes / many * max(usual * (horizon - usual), 0.25))
        of_usual = math.hypot(self._noise_of_usual(usual, many, pure), luck)
        found = LinearGain(gain, gain, gain, level, noise, sampling, lacking, bent, usual, of_usual, many)
        return found.at(level, float(horizon))

    def _reached(self, begun: Answer, many: float) -> Iterator[tuple[_Step, Floats, Floats]]:
        """Step by step: the model, x_h, u_h."""
        assert begun.vector is not None
        states, actions = self.layout.states, self.layout.actions
        chance = begun.vector / many
        for step, policy in zip(self.steps, self.policy, strict=True):
            x = chance @ self.features.rows[np.arange(states) * actions + policy]
            u = many * (step.inverse @ x)
            yield step, x, u
            chance = (u @ step.moved) / many + chance.sum() / states

    def _noise(self, begun: Answer, many: float, of_many: float, pure: bool) -> tuple[float, float]:
        """Deviation of (2) by noise; and what features that nobody had may be worth."""
        c, horizon, first = self.ones, self.layout.horizon, self.values[0]
        total = begun.vector_scale**2 * float(np.square(first - first.mean()).sum())
        lacking = 0.0
        for h, (step, x, u) in enumerate(self._reached(begun, many)):
            # what dL moves: the model, and how many episodes there are
            slope = of_many / horizon * np.outer(c, c) - np.outer(u, step.weights)
            total += _of_gram(step.answer, slope, pure)
            total += step.answer.successors_scale**2 * float(u @ u) * self._spread(h)
            total += _rewards_scale(step.answer) ** 2 * float((u - c) @ (u - c))
            lacking += 0.5 * (horizon - h) * self._hidden(step, x, u, many)
        return math.sqrt(total) / many, lacking

    def _hidden(self, step: _Step, x: Floats, u: Floats, many: float) -> float:
        """How much of what a pair can be worth is in the features of x that are not seen."""
        part = x - step.seen @ x
        size = float(part @ part)
        each = (step.answer.gram_scale / many) ** 2 * float(u @ u)
        luck = _RARELY * each * math.sqrt(2.0 * step.hidden)
        if not size > 0.0:
            return 0.0
        return math.sqrt((max(0.0, size - each * step.hidden) + luck) / size) * self._mixture(part)

    def _mixture(self, x: Floats) -> float:
        """About the least sum of sizes of numbers by which features of pairs add up to x: an upper bound of
        |x^T w| wherever |phi^T w| is at most 1.
        """
        rows = self.admissible
        found = self.pairs.T @ x
        least = float(np.abs(found).sum())
        for _ in range(_REWEIGHTED):  # least squares, with weights that make it least absolute values
            size = np.abs(found)
            weight = size + 1e-3 * size.max() + 1e-300
            found = weight * (rows @ (np.linalg.pinv((rows.T * weight) @ rows, hermitian=True) @ x))
            least = min(least, float(np.abs(found).sum()))
        return least

    def _spread(self, h: int) -> float:
        after = self.values[h + 1]
        return float(np.square(after - after.mean()).sum())

    def _noise_of_usual(self, usual: float, many: float, pure: bool) -> float:
        c, horizon = self.ones, self.layout.horizon
        slope = (horizon / 2 - usual) / horizon * np.outer(c, c)
        total = sum(
            _of_gram(step.answer, slope, pure) + _rewards_scale(step.answer) ** 2 * float(c @ c)
            for step in self.steps
        )
        return math.sqrt(total) / many

    def _deviation(self, begun: Answer, many: float) -> float:
        """At most: of what one episode contributes (4)."""
        assert begun.vector is not None
        layout, rows, c = self.layout, self.features.rows, self.ones
        admissible = layout.row_index.ravel() >= 0
        usual = begun.vector / many  # where people are
        martingale = together = 0.0
        for h, (step, _, u) in enumerate(self._reached(begun, many)):
            after = self.values[h + 1]
            centred = after - after.mean()
            moved = rows @ (step.inverse @ step.moved)
            first, second = moved @ centred, moved @ np.square(centred)
            second = second + np.square(centred).mean()
            of_next = np.clip(second - first**2, 0.0, 0.25 * np.ptp(after) ** 2)
            mean = np.clip(0.5 + rows @ (step.inverse @ step.rewards), 0.0, 1.0)
            of_both = (np.sqrt(of_next) + np.sqrt(mean * (1.0 - mean))) ** 2
            far = max(float((u - c) @ step.gram @ (u - c)) / many, 0.0)
            martingale += far * float(of_both[admissible].max())
            q = 0.5 + after.mean() + rows @ step.weights
            less = (self.values[h][:, None] - q.reshape(layout.states, -1)).ravel()[admissible]
            # mean of V over where people are, less that of Q over what they did
            mean_less = float(usual @ self.values[h]) - float(
                c @ step.gram @ step.weights / many + usual.sum() * (0.5 + after.mean())
            )
            low, high = float(less.min()), float(less.max())
            mean_less = min(max(mean_less, low), high)
            together += math.sqrt((high - mean_less) * (mean_less - low))
            usual = c @ step.moved / many + usual.sum() / layout.states
        return math.sqrt(martingale) + together


def _rewards_scale(answer: Answer) -> float:
    return answer.rewards_scale if answer.rewards is not None else answer.vector_scale


def _of_gram(answer: Answer, slope: Floats, pure: bool) -> float:
    """Variance of tr(slope^T noise) for the symmetric noise of a Gram matrix."""
    both = slope + slope.T
    found = 0.5 * float((both * both).sum())
    if pure:  # all entries alike, where GOE's diagonal has twice the variance
        found -= float(np.square(np.diag(slope)).sum())
    return answer.gram_scale**2 * found


def ones_of(features: Features) -> Floats:
    """(d,) c with phi^T c = 1, the shortest. Raises ``ValueError`` where 1 is not in their span."""
    if not features.constant:
        raise ValueError("judged = True: needs 1 in the span of the features")
    return np.asarray(np.linalg.lstsq(features.rows, np.ones(len(features.rows)), rcond=None)[0], np.float64)


def followed(
    layout: Layout, features: Features, policy: Ints, told: Sequence[Answer], pure: bool = False
) -> Follow:
    """Values of a policy (H, S) in the model of one half; told : H answers, of the last step a pair.

    pure : noise is Laplace's.
    """
    states, actions, horizon = layout.states, layout.actions, layout.horizon
    values, c = np.zeros((horizon + 1, states)), ones_of(features)
    bent = np.zeros(states)  # values with inverses as they are
    admissible: Floats = features.rows[layout.row_index.ravel() >= 0]
    pairs = np.asarray(np.linalg.pinv(admissible, rcond=1e-9), np.float64)  # (d, rows)
    span = np.linalg.svd(admissible, full_matrices=False)
    span_basis = span.Vh[1e-9 * span.S.max() < span.S].T
    steps: list[_Step] = []
    for h in reversed(range(horizon)):
        answer = told[h]
        rewards = answer.rewards if answer.rewards is not None else answer.vector
        moved = answer.successors if answer.successors is not None else np.zeros((features.dimension, states))
        assert answer.gram is not None
        assert rewards is not None
        inverse, seen, hidden = _seen(answer, span_basis, features.bound)
        own = features.rows[np.arange(states) * actions + policy[h]]
        # what nobody had is held to be worth half of what can still be earned
        rest, unseen = 0.5 * (horizon - h), hidden @ (hidden.T @ c)
        unbent = _unbent(inverse, answer.gram_scale, pure)
        middle = float(values[h + 1].mean())
        weights = unbent @ (rewards + moved @ (values[h + 1] - middle)) + (rest - 0.5 - middle) * unseen
        values[h] = 0.5 + middle + own @ weights
        middle = float(bent.mean())
        as_is = inverse @ (rewards + moved @ (bent - middle)) + (rest - 0.5 - middle) * unseen
        bent = 0.5 + middle + own @ as_is
        steps.append(_Step(answer.gram, inverse, seen, rewards, moved, weights, hidden.shape[1], answer))
    return Follow(layout, features, policy, values, bent, tuple(reversed(steps)), c, admissible, pairs)


def _unbent(inverse: Floats, scale: float, pure: bool) -> Floats:
    """The inverse of a noisy matrix less what noise adds to it in the mean, to second order."""
    of_noise = np.trace(inverse) * np.eye(len(inverse)) + inverse
    if pure:
        of_noise -= np.diag(np.diag(inverse))
    return np.asarray(inverse - scale**2 * (inverse @ of_noise @ inverse))


def _seen(answer: Answer, span: Floats, bound: float) -> tuple[Floats, Floats, Floats]:
    """The inverse of a Gram matrix where it stands out of its noise, the projection to there, and a basis of
    what is left of the span of the features.
    """
    assert answer.gram is not None
    edge = 2.0 * answer.gram_scale * math.sqrt(len(answer.gram))
    size, basis = np.linalg.eigh(span.T @ answer.gram @ span)
    kept = size > max(_CLEAR * edge, _LEAST * bound**2)
    basis = span @ basis
    own = basis[:, kept]
    return (own / size[kept]) @ own.T, own @ own.T, basis[:, ~kept]
