r"""Gain of a policy from linear sums over the behaviour policy, estimated on the holdout half of the users.

Halves. The policy is learned from the answers about one half of the users. About the other half (the holdout
half), a model of each step is queried. It has the Gram matrix L = sum phi phi^T, next states
M = sum phi (e_{s'} - 1/S)^T, and rewards r = sum phi (R - 1/2). Once the policy is known, sum V(s_0) over
first states is queried too. A user is in one half, so each half has the whole budget. The halves have
different users and independent noise, so the estimate has no selection bias from the learning half. One
policy is estimated, that of the first planning. Another policy planned from the same release could be
selected by the holdout answers, so it gets no estimate.

Estimate. With phi^T c = 1 and K = L^-1, backward from V_H = 0,

    w_h = K_h (r_h + M_h (V_h+1 - v)),   Q_h = 1/2 + v + phi^T w_h,   V_h(s) = Q_h(s, pi_h(s)),           (1)

where v is the mean of V_h+1 over states. The behaviour policy needs no model, as sum (R - 1/2) = c^T r. Let N
be the mean of c^T L_h c over steps, which is the number of episodes. With H/2 subtracted from both,

    gain = (sum V_0(s_0) - H/2 N - sum_h c^T r_h) / N.                                                   (2)

Errors, by the delta method. With x_h = E_pi phi_h (forward, by the same model), u_h = K_h x_h and (2) an
average over episodes,

    d gain = sum_h u_h^T (dr_h + dM_h V_h+1 - dL_h w_h) - c^T dr_h,                                       (3)

plus the terms that move N. If the policy equals the behaviour policy, u_h = c, and the noise of rewards
cancels. The noise distributions of the release are known. One episode contributes to (2) the sum over steps
of

    (u_h^T phi - 1) (R + V_h+1(s') - Q_h(s, a))   and   V_h(s) - Q_h(s, a).                              (4)

The first terms are martingale differences. Their variance is the sum of
E (u_h^T phi - 1)^2 Var(R + V_h+1 | s, a). The first factor is computed from L, and the second is at most the
largest of the model. The second terms may be correlated over all steps. Each has standard deviation at most
sqrt((b - m)(m - a)), for a number between a and b with mean m. These are added up, and added to that of the
first terms. The stated sampling error is therefore an upper bound.

Noise in an inverse has effects beyond the first order. With noise E of variance s^2, and twice that on the
diagonal,

    mean of (L + E)^-1  =  K + s^2 (tr(K) K^2 + K^3)  and higher orders.

Therefore w_h is inflated at every step, while the return of the behaviour policy, c^T r, is not. With high
rewards everywhere, each policy would seem to have a gain. K in (1) is therefore the inverse minus that term,
evaluated at the known inverse. (Laplace noise has variance s^2 on the diagonal too, so the term is smaller.)
The change of (2) by this correction is added to both sides of the interval, for higher orders.

Unvisited features. A direction of features is left out of K if its eigenvalue of L does not exceed its noise
(two edges of the noise's spectrum) and ten episodes. It is assumed to have half of the largest remaining
return. Let e be the part of the policy's own features x_h in these directions. The value of a pair differs
from half of the remaining steps by at most half of them: |phi^T w| <= (H - h) / 2. Therefore |e^T w| is at
most that times the least sum of |a_i| with e = sum a_i phi_i over all pairs. This is added to both sides of
the interval.

Noise rotates directions, so x_h seems to have a part there even if it has none. To first order this cancels
with the effect of noise on the rest. The estimate of |e|^2 is therefore the measured value minus its mean
under noise alone, plus four standard deviations, which noise may have hidden. If the policy deviates far from
the behaviour policy, this is most of the interval.

Assumption: the environment is a linear MDP with these features, and they contain all variables that affect
both actions and outcomes. No release can test it.
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

_CLEAR = 2.0  # Edges of the noise's spectrum that an eigenvalue must exceed.
_REWEIGHTED = 8
_LEAST = 10.0  # An eigenvalue must also exceed this number of episodes with all features in its direction.
_RARELY = 4.0  # Standard deviations of the noise in unvisited features that are counted as signal.

__all__ = ["Follow", "LinearGain", "followed", "ones_of"]


@dataclass(frozen=True)
class LinearGain:
    """Gain of a policy over the behaviour policy, in rewards of [0, 1] per step, with a two-sided interval.

    Attributes
    ----------
    estimate, low, high : float
        Estimate and interval at ``level``.
    level : float
        Level of the interval.
    noise, sampling : float
        Standard deviations due to privacy, and (at most) due to the sample of users.
    lacking : float
        Amount by which both ends were moved for unvisited features.
    bent : float
        Amount by which both ends were moved for the effect of noise on inverses beyond the first order. The
        estimate is corrected for this effect.
    usual, usual_error : float
        Value of the behaviour policy, and its standard deviation.
    episodes : float
        Approximate number of episodes in the holdout half.
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
        """True if the whole interval is above 0."""
        return self.low > 0.0

    @property
    def unseen(self) -> bool:
        """True if unvisited features and biased inverses widen the interval more than noise and sampling.

        Then no point estimate is reported.
        """
        return self.lacking + self.bent > -float(ndtri((1.0 - self.level) / 2)) * math.hypot(
            self.noise, self.sampling
        )

    def at(self, level: float, most: float) -> LinearGain:
        """Return the gain with an interval at ``level``, within [-most, most]."""
        width = -float(ndtri((1.0 - level) / 2)) * math.hypot(self.noise, self.sampling)
        width += self.lacking + self.bent
        low, high = max(self.estimate - width, -most), min(self.estimate + width, most)
        return replace(self, low=low, high=high, level=level)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; the estimate is None if no point estimate is reported."""
        told = None if self.unseen else self.estimate
        return asdict(self) | {"estimate": told, "shown": self.shown, "unseen": self.unseen}


class _StepModel(NamedTuple):
    """Model of one step."""

    gram: Floats  # (d, d).
    inverse: Floats  # (d, d), uncorrected, on the directions that exceed the noise.
    seen: Floats  # (d, d), projection onto these directions.
    rewards: Floats  # (d,).
    moved: Floats  # (d, S), 0 at the last step.
    weights: Floats  # (d,), w of (1).
    hidden: int  # Number of other directions.
    answer: Answer


@dataclass(frozen=True, eq=False)
class Follow:
    """Values (1) of one policy in the model of one half.

    Attributes
    ----------
    policy : (H, S)
    values : (H + 1, S)
    bent : (S,)
        Values of step 0 with uncorrected inverses.
    steps : tuple of H models
    ones : (d,)
        The vector c.
    admissible : (rows, d)
        Features of admissible pairs.
    pairs : (d, rows)
        Right inverse of these features, in their span.
    """

    layout: Layout
    features: Features
    policy: Ints
    values: Floats
    bent: Floats
    steps: tuple[_StepModel, ...]
    ones: Floats
    admissible: Floats
    pairs: Floats

    def gain(self, begun: Answer, level: float, episodes: int, pure: bool) -> LinearGain | None:
        """Return (2) from the distribution of first states; None if the half is too small for an estimate.

        begun : answer to the start question. level : in (0, 1). episodes : largest number of episodes of one
        user. pure : whether the noise is Laplace noise.
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

    def _reached(self, begun: Answer, many: float) -> Iterator[tuple[_StepModel, Floats, Floats]]:
        """Yield (model, x_h, u_h) for each step."""
        assert begun.vector is not None
        states, actions = self.layout.states, self.layout.actions
        chance = begun.vector / many
        for step, policy in zip(self.steps, self.policy, strict=True):
            x = chance @ self.features.rows[np.arange(states) * actions + policy]
            u = many * (step.inverse @ x)
            yield step, x, u
            chance = (u @ step.moved) / many + chance.sum() / states

    def _noise(self, begun: Answer, many: float, of_many: float, pure: bool) -> tuple[float, float]:
        """Return the standard deviation of (2) due to noise, and the margin for unvisited features."""
        c, horizon, first = self.ones, self.layout.horizon, self.values[0]
        total = begun.vector_scale**2 * float(np.square(first - first.mean()).sum())
        lacking = 0.0
        for h, (step, x, u) in enumerate(self._reached(begun, many)):
            # dL changes the model and the number of episodes.
            slope = of_many / horizon * np.outer(c, c) - np.outer(u, step.weights)
            total += _of_gram(step.answer, slope, pure)
            total += step.answer.successors_scale**2 * float(u @ u) * self._spread(h)
            total += _rewards_scale(step.answer) ** 2 * float((u - c) @ (u - c))
            lacking += 0.5 * (horizon - h) * self._hidden(step, x, u, many)
        return math.sqrt(total) / many, lacking

    def _hidden(self, step: _StepModel, x: Floats, u: Floats, many: float) -> float:
        """Return the margin for unvisited features of x, as a multiple of the largest |phi^T w|."""
        part = x - step.seen @ x
        size = float(part @ part)
        each = (step.answer.gram_scale / many) ** 2 * float(u @ u)
        luck = _RARELY * each * math.sqrt(2.0 * step.hidden)
        if not size > 0.0:
            return 0.0
        return math.sqrt((max(0.0, size - each * step.hidden) + luck) / size) * self._mixture(part)

    def _mixture(self, x: Floats) -> float:
        """Return about the least sum of |a_i| with x = sum a_i phi_i over pairs.

        It is an upper bound of |x^T w| if |phi^T w| is at most 1.
        """
        rows = self.admissible
        found = self.pairs.T @ x
        least = float(np.abs(found).sum())
        for _ in range(_REWEIGHTED):  # reweighted least squares, to approach least absolute values
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
        """Return an upper bound of the standard deviation of one episode's contribution (4)."""
        assert begun.vector is not None
        layout, rows, c = self.layout, self.features.rows, self.ones
        admissible = layout.row_index.ravel() >= 0
        usual = begun.vector / many  # state distribution of users
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
            # mean of V over the users' states, minus the mean of Q over their state-action pairs
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
    """Return the variance of tr(slope^T noise) for the symmetric noise of a Gram matrix."""
    both = slope + slope.T
    found = 0.5 * float((both * both).sum())
    if pure:  # all entries have equal variance; the diagonal of GOE has twice the variance
        found -= float(np.square(np.diag(slope)).sum())
    return answer.gram_scale**2 * found


def ones_of(features: Features) -> Floats:
    """Return the shortest (d,) c with phi^T c = 1; ``ValueError`` if 1 is not in the span of the features."""
    if not features.constant:
        raise ValueError("judged = True: needs 1 in the span of the features")
    return np.asarray(np.linalg.lstsq(features.rows, np.ones(len(features.rows)), rcond=None)[0], np.float64)


def followed(
    layout: Layout, features: Features, policy: Ints, told: Sequence[Answer], pure: bool = False
) -> Follow:
    """Return the values of a policy (H, S) in the model of one half.

    told : H answers; that of the last step is a pair. pure : whether the noise is Laplace noise.
    """
    states, actions, horizon = layout.states, layout.actions, layout.horizon
    values, c = np.zeros((horizon + 1, states)), ones_of(features)
    bent = np.zeros(states)  # values with uncorrected inverses
    admissible: Floats = features.rows[layout.row_index.ravel() >= 0]
    pairs = np.asarray(np.linalg.pinv(admissible, rcond=1e-9), np.float64)  # (d, rows)
    span = np.linalg.svd(admissible, full_matrices=False)
    span_basis = span.Vh[1e-9 * span.S.max() < span.S].T
    steps: list[_StepModel] = []
    for h in reversed(range(horizon)):
        answer = told[h]
        rewards = answer.rewards if answer.rewards is not None else answer.vector
        moved = answer.successors if answer.successors is not None else np.zeros((features.dimension, states))
        assert answer.gram is not None
        assert rewards is not None
        inverse, seen, hidden = _seen(answer, span_basis, features.bound)
        own = features.rows[np.arange(states) * actions + policy[h]]
        # Unvisited features are assumed to have half of the largest remaining return.
        rest, unseen = 0.5 * (horizon - h), hidden @ (hidden.T @ c)
        unbent = _unbent(inverse, answer.gram_scale, pure)
        middle = float(values[h + 1].mean())
        weights = unbent @ (rewards + moved @ (values[h + 1] - middle)) + (rest - 0.5 - middle) * unseen
        values[h] = 0.5 + middle + own @ weights
        middle = float(bent.mean())
        as_is = inverse @ (rewards + moved @ (bent - middle)) + (rest - 0.5 - middle) * unseen
        bent = 0.5 + middle + own @ as_is
        steps.append(_StepModel(answer.gram, inverse, seen, rewards, moved, weights, hidden.shape[1], answer))
    return Follow(layout, features, policy, values, bent, tuple(reversed(steps)), c, admissible, pairs)


def _unbent(inverse: Floats, scale: float, pure: bool) -> Floats:
    """Return the inverse of a noisy matrix minus its bias due to noise, to second order."""
    of_noise = np.trace(inverse) * np.eye(len(inverse)) + inverse
    if pure:
        of_noise -= np.diag(np.diag(inverse))
    return np.asarray(inverse - scale**2 * (inverse @ of_noise @ inverse))


def _seen(answer: Answer, span: Floats, bound: float) -> tuple[Floats, Floats, Floats]:
    """Return (inverse, projection, basis of the rest) for a noisy Gram matrix.

    The inverse and the projection are on directions whose eigenvalue exceeds the noise. The basis spans the
    remaining directions in the span of the features.
    """
    assert answer.gram is not None
    edge = 2.0 * answer.gram_scale * math.sqrt(len(answer.gram))
    size, basis = np.linalg.eigh(span.T @ answer.gram @ span)
    kept = size > max(_CLEAR * edge, _LEAST * bound**2)
    basis = span @ basis
    own = basis[:, kept]
    return (own / size[kept]) @ own.T, own @ own.T, basis[:, ~kept]
