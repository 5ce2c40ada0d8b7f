r"""Gain of a linear learner's policy over the behaviour policy, estimated from a held-out half of the users.

**Halves.** The policy is learned from answers to queries on one half of the users. On the other half (the
held-out half), a model of each step is queried. The model consists of the Gram matrix L = sum phi phi^T, next
states M = sum phi (e_{s'} - 1/S)^T, and rewards r = sum phi (R - 1/2). When the policy is known, sum V(s_0)
over first states is queried too. Each user is in only one half, so each half can use the whole budget. The
halves have different users and independent noise, so the estimate has no selection bias. The gain is
estimated for one policy only. Other policies computed from the same release could have been selected with the
help of the answers on the held-out half, so their gains are not estimated.

**Estimate.** Let c be a vector with phi^T c = 1, and let K = L^-1. Starting with V_H = 0, from the last step
to the first,

    w_h = K_h (r_h + M_h (V_h+1 - v)),   Q_h = 1/2 + v + phi^T w_h,   V_h(s) = Q_h(s, pi_h(s)),           (1)

where v is the mean of V_h+1 over states. The value of the behaviour policy needs no model, because sum (R -
1/2) = c^T r. Let N be the mean of c^T L_h c over steps, which estimates the number of episodes. If H/2 is
subtracted from both values,

    gain = (sum V_0(s_0) - H/2 N - sum_h c^T r_h) / N.                                                   (2)

**Errors.** Standard deviations follow from the delta method. Let x_h = E_pi phi_h, computed in the same model
from the first step to the last, and let u_h = K_h x_h. Because (2) is an average over episodes,

    d gain = sum_h u_h^T (dr_h + dM_h V_h+1 - dL_h w_h) - c^T dr_h,                                       (3)

plus terms for the error of N. If the policy equals the behaviour policy, u_h = c, and the noise of rewards
cancels. The noise distributions of the release are known. The contribution of one episode to (2) is the sum
over steps of

    (u_h^T phi - 1) (R + V_h+1(s') - Q_h(s, a))   and   V_h(s) - Q_h(s, a).                              (4)

The first terms are martingale differences. Their variance is the sum over steps of E (u_h^T phi - 1)^2
Var(R + V_h+1 | s, a). The first factor is computed from L. The second factor is at most the largest variance
in the model. The second terms can be correlated over all steps. A number between a and b with mean m has
standard deviation at most sqrt((b - m)(m - a)). This bound is computed for the second term of each step. The
sum of these bounds is added to the standard deviation of the first terms. The stated sampling error is
therefore an upper bound.

**Bias of the inverse.** Noise in a matrix affects its inverse beyond the first order. With noise E of
variance s^2 off the diagonal and 2 s^2 on the diagonal,

    mean of (L + E)^-1  =  K + s^2 (tr(K) K^2 + K^3)  and higher orders.

Therefore w_h would be too large at every step, but the return of the behaviour policy, c^T r, would not. If
rewards are high in all states, every policy would then appear to have a gain. K in (1) is therefore the
inverse of the noisy matrix minus the term with s^2, computed from this inverse. (Laplace noise has variance
s^2 on the diagonal too, so the term is smaller.) This correction changes (2). To allow for higher orders, the
interval is widened on both sides by the size of this change.

**Unvisited features.** A direction in feature space is used in K only if its eigenvalue of L exceeds both the
noise (twice the edge of the noise spectrum) and ten episodes. All other directions are called unvisited.
Their value is assumed to be half of the largest remaining return. Let e be the component of the policy's
features x_h in the unvisited directions. The value of a pair differs from half of the remaining steps by at
most half of the remaining steps: |phi^T w| <= (H - h) / 2. Therefore |e^T w| is at most (H - h) / 2 times the
smallest sum of |a_i| with e = sum a_i phi_i over all pairs. The interval is widened by this bound on both
sides.

Noise rotates eigenvectors. Therefore x_h appears to have a component e in the unvisited directions even if
its true component is 0. To first order, this effect cancels the effect of noise on the other directions. The
estimate of |e|^2 is the measured value minus the mean that noise alone causes, plus four standard deviations.
The four standard deviations are added because noise can hide a signal of this size. If the policy differs
much from the behaviour policy, this bound is most of the width of the interval.

Assumption: the environment is a linear MDP with these features, and the features contain all variables that
affect both actions and outcomes. A release cannot test this assumption.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.mechanisms.features import Features
from discreet.mechanisms.linear.adaptive_queries import Answer

_CLEAR = 2.0  # The eigenvalue of a visited direction exceeds this multiple of the edge of the noise spectrum.
_REWEIGHTED = 8
_LEAST = (
    10.0  # It also exceeds this number of episodes, of which each adds at most the squared feature bound.
)
_RARELY = 4.0  # Noise can hide a component of this many standard deviations in unvisited directions.


@dataclass(frozen=True)
class LinearGain:
    """Gain of a policy over the behaviour policy, in units in which the reward of a step is in [0, 1].

    Attributes
    ----------
    estimate, low, high : float
        Estimate and two-sided interval at ``level``.
    level : float
        Confidence level of the interval.
    noise, sampling : float
        Standard deviation due to privacy noise, and upper bound on the standard deviation due to sampling of
        users.
    lacking : float
        Amount by which each end of the interval is moved to allow for unvisited features.
    bent : float
        Amount by which each end of the interval is moved because of the effect of noise on inverses beyond
        the first order. The estimate is corrected for this effect too.
    usual, usual_error : float
        Value of the behaviour policy, and its standard deviation.
    episodes : float
        Approximate number of episodes in the held-out half.
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
        """Return True if the whole interval is above 0."""
        return self.low > 0.0

    @property
    def unseen(self) -> bool:
        """Return True if the interval is mainly due to unvisited features and biased inverses.

        The result is True if unvisited features and biased inverses widen the interval more than noise and
        sampling do. In this case, no estimate is reported.
        """
        return self.lacking + self.bent > -float(ndtri((1.0 - self.level) / 2)) * math.hypot(
            self.noise, self.sampling
        )

    def at(self, level: float, most: float) -> LinearGain:
        """Return the same gain with an interval at another confidence ``level``, clipped to [-most, most]."""
        width = -float(ndtri((1.0 - level) / 2)) * math.hypot(self.noise, self.sampling)
        width += self.lacking + self.bent
        low, high = max(self.estimate - width, -most), min(self.estimate + width, most)
        return replace(self, low=low, high=high, level=level)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as built-in types. The estimate is None if ``unseen`` is True."""
        estimate = None if self.unseen else self.estimate
        return asdict(self) | {"estimate": estimate, "shown": self.shown, "unseen": self.unseen}


class _StepModel(NamedTuple):
    """Model of one step, estimated from the held-out half."""

    gram: Floats  # (d, d) noisy Gram matrix L.
    inverse: Floats  # (d, d) inverse of L on the visited directions, without correction for bias.
    seen: Floats  # (d, d) projection onto the visited directions.
    rewards: Floats  # (d,) noisy r.
    moved: Floats  # (d, S) noisy M; 0 at the last step.
    weights: Floats  # (d,) vector w of (1).
    hidden: int  # Number of unvisited directions.
    answer: Answer  # Answer from which the model was computed.


@dataclass(frozen=True, eq=False)
class Follow:
    """Values (1) of one policy in the model that was estimated from the held-out half.

    Attributes
    ----------
    policy : (H, S)
        The policy.
    values : (H + 1, S)
        Values V of states.
    bent : (S,)
        Values of step 0 if inverses are not corrected for bias.
    steps : tuple of H models
        Models of the steps.
    ones : (d,)
        The vector c.
    admissible : (rows, d)
        Features of admissible pairs.
    pairs : (d, rows)
        Pseudoinverse of the matrix of these features.
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
        """Return the gain (2). Return None if the held-out half has too few episodes.

        - begun : answer to the query on first states.
        - level : confidence level of the interval, in (0, 1).
        - episodes : largest number of episodes of one user.
        - pure : True if the noise is Laplace noise.
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
        """Yield (model, x_h, u_h) for each step, starting at the first step.

        begun : answer to the query on first states. many : number of episodes N.
        """
        assert begun.vector is not None
        states, actions = self.layout.states, self.layout.actions
        chance = begun.vector / many
        for step, policy in zip(self.steps, self.policy, strict=True):
            x = chance @ self.features.rows[np.arange(states) * actions + policy]
            u = many * (step.inverse @ x)
            yield step, x, u
            chance = (u @ step.moved) / many + chance.sum() / states

    def _noise(self, begun: Answer, many: float, of_many: float, pure: bool) -> tuple[float, float]:
        """Return the standard deviation of (2) due to noise, and the margin for unvisited features.

        - begun : answer to the query on first states.
        - many : number of episodes N.
        - of_many : derivative of the gain with respect to the number of episodes, times N.
        - pure : True if the noise is Laplace noise.
        """
        c, horizon, first = self.ones, self.layout.horizon, self.values[0]
        total = begun.vector_scale**2 * float(np.square(first - first.mean()).sum())
        lacking = 0.0
        for h, (step, x, u) in enumerate(self._reached(begun, many)):
            # The error dL affects both the model and the number of episodes.
            slope = of_many / horizon * np.outer(c, c) - np.outer(u, step.weights)
            total += _of_gram(step.answer, slope, pure)
            total += step.answer.successors_scale**2 * float(u @ u) * self._spread(h)
            total += _rewards_scale(step.answer) ** 2 * float((u - c) @ (u - c))
            lacking += 0.5 * (horizon - h) * self._hidden(step, x, u, many)
        return math.sqrt(total) / many, lacking

    def _hidden(self, step: _StepModel, x: Floats, u: Floats, many: float) -> float:
        """Return the margin for the unvisited component of x, as a multiple of the largest |phi^T w|."""
        part = x - step.seen @ x
        size = float(part @ part)
        each = (step.answer.gram_scale / many) ** 2 * float(u @ u)
        luck = _RARELY * each * math.sqrt(2.0 * step.hidden)
        if not size > 0.0:
            return 0.0
        return math.sqrt((max(0.0, size - each * step.hidden) + luck) / size) * self._mixture(part)

    def _mixture(self, x: Floats) -> float:
        """Return approximately the smallest sum of |a_i| with x = sum a_i phi_i over admissible pairs.

        If |phi^T w| is at most 1 for all pairs, the result is an upper bound on |x^T w|.
        """
        rows = self.admissible
        found = self.pairs.T @ x
        least = float(np.abs(found).sum())
        for _ in range(_REWEIGHTED):  # iteratively reweighted least squares approximates the l1 minimum
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
        """Return an upper bound on the standard deviation of the contribution (4) of one episode."""
        assert begun.vector is not None
        layout, rows, c = self.layout, self.features.rows, self.ones
        admissible = layout.row_index.ravel() >= 0
        usual = begun.vector / many  # distribution of the users' states at this step
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
            # mean of V over the users' states, minus mean of Q over the users' state-action pairs
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
    """Return the variance of tr(slope^T E), where E is the symmetric noise of the Gram matrix in ``answer``.

    pure : True if the noise is Laplace noise.
    """
    both = slope + slope.T
    found = 0.5 * float((both * both).sum())
    if pure:  # all entries of Laplace noise have the same variance; the diagonal of GOE noise has twice
        found -= float(np.square(np.diag(slope)).sum())
    return answer.gram_scale**2 * found


def ones_of(features: Features) -> Floats:
    """Return the (d,) vector c of smallest norm with phi^T c = 1 for all pairs.

    Raises ``ValueError`` if 1 is not in the span of the features.
    """
    if not features.constant:
        raise ValueError("judged = True: needs 1 in the span of the features")
    return np.asarray(np.linalg.lstsq(features.rows, np.ones(len(features.rows)), rcond=None)[0], np.float64)


def followed(
    layout: Layout, features: Features, policy: Ints, answers: Sequence[Answer], pure: bool = False
) -> Follow:
    """Return the values of a policy (H, S) in the model that is estimated from the held-out half.

    answers : H answers, one for each step. The answer for the last step has a Gram matrix and a response
    instead of a model. pure : True if the noise is Laplace noise.
    """
    states, actions, horizon = layout.states, layout.actions, layout.horizon
    values, c = np.zeros((horizon + 1, states)), ones_of(features)
    bent = np.zeros(states)  # values that result if inverses are not corrected
    admissible: Floats = features.rows[layout.row_index.ravel() >= 0]
    pairs = np.asarray(np.linalg.pinv(admissible, rcond=1e-9), np.float64)  # (d, rows)
    span = np.linalg.svd(admissible, full_matrices=False)
    span_basis = span.Vh[1e-9 * span.S.max() < span.S].T
    steps: list[_StepModel] = []
    for h in reversed(range(horizon)):
        answer = answers[h]
        rewards = answer.rewards if answer.rewards is not None else answer.vector
        moved = answer.successors if answer.successors is not None else np.zeros((features.dimension, states))
        assert answer.gram is not None
        assert rewards is not None
        inverse, seen, hidden = _seen(answer, span_basis, features.bound)
        own = features.rows[np.arange(states) * actions + policy[h]]
        # In unvisited directions, the value is assumed to be half of the largest remaining return.
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
    """Return the inverse of a noisy matrix, corrected to second order for the bias that noise causes.

    inverse : uncorrected inverse. scale : scale of the noise. pure : True if the noise is Laplace noise.
    """
    of_noise = np.trace(inverse) * np.eye(len(inverse)) + inverse
    if pure:
        of_noise -= np.diag(np.diag(inverse))
    return np.asarray(inverse - scale**2 * (inverse @ of_noise @ inverse))


def _seen(answer: Answer, span: Floats, bound: float) -> tuple[Floats, Floats, Floats]:
    """Return the inverse of a noisy Gram matrix on visited directions, and two sets of directions.

    The second result is the projection onto the visited directions, whose eigenvalue exceeds the noise. The
    third result is an orthonormal basis of the unvisited directions. The unvisited directions are all other
    directions in the span of the features.

    span : orthonormal basis of the span of the features. bound : largest norm of a feature vector.
    """
    assert answer.gram is not None
    edge = 2.0 * answer.gram_scale * math.sqrt(len(answer.gram))
    size, basis = np.linalg.eigh(span.T @ answer.gram @ span)
    kept = size > max(_CLEAR * edge, _LEAST * bound**2)
    basis = span @ basis
    own = basis[:, kept]
    return (own / size[kept]) @ own.T, own @ own.T, basis[:, ~kept]
