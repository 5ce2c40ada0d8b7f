r"""Estimated gain of a policy for contexts, from held-out users, and the verdict.

Estimand: the gain if one decision of each user followed the policy and all other decisions stayed the same.
The step of this decision is drawn in advance, uniformly from the H steps. If the episode has already ended at
this step, nothing changes. With the later return y in [0, 1] and the policy pi, a user's answer is

    d = 1/H sum over visits of  q(x, pi) - y + 1{a = pi} / e(a | x) (y - q(x, a)),

with a model q of y and a model e of the probability of the action that was taken. If e or q is correct, the
mean of d is the gain (doubly robust). Both models are public:

- q(x, a) = 1/2 + phi(x) theta_a, clipped to [0, 1], from the release of the other users.
- e(a | x): a logged probability, if the data have one. Otherwise phi(x) g_a / phi_0(x), from the same
  release. The last feature is the intercept phi_0, so the last column of G_a is the sum of phi phi_0 over
  visits with action a. Its regression on the sum of all Gram matrices, shrunk to the share of the action, is
  g_a. The result is at least ``FLOOR``.

Each user contributes d, d^2 and a penalty (:meth:`AdvantageQuestion.vectors`). The contributions are clipped
and summed with noise by :class:`~discreet.mechanisms.dataset.clipped_sum.ClippedSum`, which states the
neighbouring relation and the sensitivity. The clipping bound C is public: it depends only on theta, the
number of users and the noise.

Clipping at C biases the mean, often in one direction: if most outcomes are good, the values d with the
largest absolute values are negative. For |d| > C/2 the penalty (|d| - C/2)^2 / (2 C) is at least |d| - C. The
mean of the penalty is added to the standard deviation in the interval.

Without logged probabilities, the interval is widened by :attr:`AdvantageQuestion.model_error`, the expected
size of the bias from errors of both models.

A gain is *shown* if the lower end of its interval is above 0. This verdict has conditions that no release can
test:

- no unobserved confounder affects both action and outcome, unless probabilities were logged;
- in the contexts where the policy takes an action, this action has at least the probability ``FLOOR``
  (positivity);
- without logged probabilities, e and q are both correct. If only one is correct, the estimate is unbiased,
  but the interval can be too short. With q correct and e wrong, 6 to 8 % of simulations without any effect
  showed a gain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.core.short_repr import brief
from discreet.learners.offline.linear_advantage import AdvantagePolicy
from discreet.learners.ope.verdict import PolicyAnswer
from discreet.mechanisms.linear.context_sums import ContextRelease, Visits

FLOOR = 0.05  # least probability of an action
_REACH = 2.0  # least C, in standard deviations of an answer
_SPREAD = 0.2  # prior spread of probabilities and outcomes
_SECOND = 0.25  # weight of d^2 / C
_THIRD = 0.5  # weight of the penalty


@dataclass(frozen=True, eq=False)
class AdvantageVerdict(PolicyAnswer):
    """Estimated gain over the behaviour policy for one of H decisions, in the units of the target.

    Attributes
    ----------
    beyond : estimated bias of the mean due to clipping. The interval is widened by it.
    level : confidence level of the interval.
    users : number of users who contributed.
    """

    __repr__ = brief

    beyond: float
    level: float
    users: int


@dataclass(frozen=True, eq=False)
class AdvantageQuestion:
    """Query that evaluates a policy: a public function of one user's visits.

    Parameters
    ----------
    policy : AdvantagePolicy
    release : ContextRelease
        Release from which the policy was learned. Its feature map has an intercept.
    horizon : int
        H, the largest number of visits of a user, at least 1.

    Raises
    ------
    ValueError
        If the feature map has no intercept, or the horizon is below 1.
    """

    __repr__ = brief

    policy: AdvantagePolicy
    release: ContextRelease
    horizon: int

    SIZE = 3

    def __post_init__(self) -> None:
        checks.integer("horizon", self.horizon, 1)
        if not self.release.features.intercept:
            raise ValueError("features.intercept = False: must be True for a verdict, which needs counts")

    @cached_property
    def shares(self) -> Floats:
        """(A,) estimated shares of the actions, each at least ``FLOOR``."""
        found = np.maximum(self.release.gram[:, -1, -1], 0.0)
        total = found.sum()
        shares = found / total if total > 0.0 else np.full(len(found), 1.0 / len(found))
        return np.maximum(shares, FLOOR)

    @cached_property
    def _taken(self) -> Floats:
        """(A, p) coefficients of action probabilities minus shares of actions, shrunk because of noise."""
        weight, cov = self._regression(_SPREAD / self.release.features.own_radius)
        total = self.release.gram.sum(axis=0)
        shares = (self.shares / self.shares.sum())[:, None]
        found: Floats = (self.release.gram[:, :, -1] - shares * total[:, -1]) @ weight @ cov
        return found

    def _regression(self, spread: float) -> tuple[Floats, Floats]:
        """Return W and S (p, p). For a response u, the coefficients have posterior mean S W u and covariance
        S.

        spread : prior standard deviation of a coefficient. The target has the variance 1/4, and the Gram
        matrix is the noisy sum over actions.
        """
        release = self.release
        (blocks, p), noise = release.response.shape, release.gram_std**2
        values, vectors = np.linalg.eigh(release.gram.sum(axis=0))
        values = np.maximum(values, 0.0)
        prior = spread**2
        c = 0.25 * values + noise * (1.0 + blocks * prior * p) + 1e-9
        cov = (vectors / (1.0 / prior + values**2 / c)) @ vectors.T
        return (vectors * (values / c)) @ vectors.T, cov

    @cached_property
    def model_error(self) -> float:
        """Standard deviation of the bias from errors of both models, for one decision of each user.

        The bias is the mean of the product of the errors of e and q, divided by e. The errors are taken as
        independent, with the posterior covariances of regressions on the sum of all Gram matrices. A priori,
        both functions vary over contexts with a standard deviation of about ``_SPREAD``.
        """
        gram = self.release.gram.sum(axis=0)
        scale = float(gram[-1, -1])
        if scale <= 0.0:
            return 1.0
        values, vectors = np.linalg.eigh(gram / scale)
        spread = (vectors * np.maximum(values, 0.0)) @ vectors.T
        radius = self.release.features.own_radius
        taken, outcome = (spread @ self._regression(one)[1] for one in (_SPREAD / radius, _SPREAD))
        squared = max(0.0, float(np.trace(taken @ outcome)))
        return min(1.0, math.sqrt(squared) / radius / float(np.mean(self.shares / self.shares.sum())))

    def probabilities(self, phi: Floats) -> Floats:
        """Return (n, A) estimated probabilities of the actions for features (n, p), at least ``FLOOR``."""
        raw = self.shares + (phi @ self._taken.T) / np.maximum(phi[:, -1:], 1e-12)
        raw = np.clip(raw, FLOOR, 1.0)
        return np.maximum(raw / raw.sum(axis=1, keepdims=True), FLOOR)

    def answers(self, visits: Visits, users: int, logged: ArrayLike | None = None) -> Floats:
        """Return d (users,) of each user. The values are raw data.

        visits : all visits of these users, numbered from 0. ``users`` : number of users. logged : (n,)
        probabilities with which the actions of the visits were taken, if they are known.
        """
        phi = self.release.features(visits.contexts)
        each = np.arange(len(phi))
        q = np.clip(0.5 + phi @ self.policy.theta.T, 0.0, 1.0)
        best, taken = self.policy(visits.contexts), visits.actions
        if logged is None:
            chance = self.probabilities(phi)[each, taken]
        else:
            chance = np.maximum(np.asarray(logged, np.float64), FLOOR)
        y = visits.targets
        d = q[each, best] - y + (best == taken) / chance * (y - q[each, taken])
        found: Floats = np.bincount(visits.users, d, minlength=users) / self.horizon
        return found

    def clip(self, users: int, multiplier: float) -> float:
        """Return the public clipping bound C, which balances noise and clipping bias.

        users : number of users who contribute. multiplier : standard deviation of the noise for sensitivity
        1.

        The standard deviation of d is predicted for H visits with independent errors of 1/2. The probability
        of each action is assumed to be the smallest share. If noise is small, the bound is the largest
        possible d.
        """
        most = 1.0 + 1.0 / FLOOR
        usual = math.sqrt((1.0 + 1.0 / float(self.shares.min())) / (4.0 * self.horizon))
        reach = max(_REACH, math.sqrt(users) / (8.0 * max(multiplier, 1e-9)))
        return min(most, reach * usual)

    def vectors(self, answers: Floats, clip: float) -> Floats:
        """Return the (n, 3) vectors whose clipped sum is released: (d, d^2 / (4 C), half the penalty).

        answers : d of each user. clip : C. The first two entries use d clipped to [-C, C].
        """
        d = np.clip(answers, -clip, clip)
        penalty = np.maximum(np.abs(answers) - clip / 2.0, 0.0) ** 2 / (2.0 * clip)
        return np.stack([d, _SECOND * d**2 / clip, _THIRD * penalty], axis=1)

    def read(
        self, sums: ArrayLike, clip: float, users: int, std: float, level: float = 0.95, logged: bool = False
    ) -> AdvantageVerdict:
        """Return the verdict from the noisy sums.

        Parameters
        ----------
        sums : (3,) noisy sums of the vectors, in units of C.
        clip : C.
        users : number of users who contributed.
        std : standard deviation of the noise of a sum, in units of C.
        level : confidence level of the interval, in (0, 1).
        logged : True if d was computed from logged probabilities.

        Raises
        ------
        ValueError
            If the level is out of its range.
        """
        level = checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
        first, second, third = (float(one) * clip / users for one in np.asarray(sums, np.float64))
        noise = std * clip / users
        square = second * clip / _SECOND
        # at least the noise of the second sum; otherwise a low draw could make the interval almost empty
        variance = max(square - first**2, 0.0) + noise * clip / _SECOND
        sampling = math.sqrt(variance / users)
        model = 0.0 if logged else self.model_error
        beyond = max(third, 0.0) / _THIRD
        deviation = math.hypot(sampling, noise, model)
        reach = NormalDist().inv_cdf(0.5 + level / 2.0) * (deviation + beyond)
        return AdvantageVerdict(
            first, first - reach, first + reach, deviation, sampling, noise, model, beyond, level, users
        )
