r"""Confidence intervals after an adaptive study with contexts, from its noisy sums alone.

:class:`~discreet.learners.online.linear_bandit.LinearBandit` chooses actions based on the rewards of earlier
users, and the sums have privacy noise. Least squares and its usual interval are then wrong for two reasons.
The design depends on earlier errors, and noise in Gram matrices biases the inverse. All intervals here are
post-processing of released sums, so they cost no privacy budget.

**Linear model.** Suppose that the mean reward of action a is 1/2 + phi^T theta_a + b, with ||theta_a|| <= B.
The root mean square of the model error b is at most z. This bound holds for the mean over users with their
actions, and for the mean over the given contexts with each action. B and z are public. Let G and u be the
exact sums of phi phi^T and phi (y - 1/2) over all users, and G + E and u + w their noisy values. For the true
theta,

    M = (u + w) - (G + E) theta = sum phi (e + b) + (w - E theta).                                      (1)

1. A plan is a function of earlier releases. Given context and action, the error e has mean 0 and range 1. The
   noise of the next release is independent of all earlier data and releases. Let V = G / 4 + v I and b = 0.
   Then exp(x^T M - x^T V x / 2) is a supermartingale for each vector x. G / 4 follows from Hoeffding's lemma.
   v = s_u^2 + 2 s_G^2 B^2 follows from the covariance s_G^2 (||theta||^2 I + theta theta^T) of E theta in a
   block.
2. With the mixture x ~ N(0, I / h) and Markov's inequality, with probability at least 1 - alpha,

       M^T (V + h I)^-1 M <= 2 log(1 / alpha) + log det(V + h I) - log det(h I)                         (2)

   (self-normalised bound; Abbasi-Yadkori, Pal and Szepesvari 2011, theorem 1). It holds for every larger V.
   With probability 1 - alpha / 10, G is at most G + E + t I, where t bounds the norm of E.
3. V is at least G / 4, and the sum of b^2 over n users is at most n z^2. Therefore the part of M that is due
   to b has a norm of at most 2 z sqrt(n). This bound is added to the square root of (2). Under shuffle
   privacy, devices round phi towards 0 to multiples of g, which adds B g sqrt(p) to z.
4. By (1) and (2), theta is in an ellipsoid, even if G + E is singular. Because ||theta||^2 <= m B^2 for the m
   blocks, theta is also in a ball. It is therefore in every ellipsoid that is a convex combination of the two
   constraints. The interval of c^T theta is the intersection of the intervals from these ellipsoids. The
   intervals hold for all c at the same time, so a policy may be chosen from the same study.

The Skellam noise of shuffle privacy counts as Gaussian noise of the same variance.

**Without a model.** Let the last feature be an intercept. It is f / R with f = min(1, R / ||g||). The last
entry of u, times R, is then the sum of f (y - 1/2). Users within a batch are independent draws, because their
plan was fixed in advance. The mean of f (y - 1/2) has a variance of at most 1 / (4 n) plus that of the noise.
The mean of 1 - f is at most (1 - mean of f^2) / (1 + least f), where the mean of f^2 comes from the Gram
matrices. It is 0 if R is at least the largest ||g||. Half of this bound is added on both sides. (Under
shuffle privacy, R is the inverse of the rounded intercept.)

- Last batch: the mean reward of the policy that these users followed.
- First batch: each of A actions has the probability 1 / A. The mean of A f (y - 1/2) (1[a] - 1[b]) is the
  mean effect of a instead of b over users.

Intervals without a model use the normal approximation for the sampling error of one batch. Users who were
reported as absent add nothing to the sums but are included in n. Such a user therefore has the same effect as
a reward of 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.device.feature_map import FeatureMap
from discreet.device.skellam_device import levels_of
from discreet.learners.estimation.linear_regression import goe_tail
from discreet.learners.online.linear_bandit import SIGMA2, BatchSums, ContextState, context_features

Actions = int | Literal["uniform"] | ArrayLike

_NORM_SHARE = 0.1  # share of alpha for the norm of E
_MIXTURE = 0.5  # h, as a share of the mean eigenvalue of V that is expected under random actions
_WEIGHTS = 1.0 / (1.0 + np.exp(-np.linspace(-14.0, 14.0, 57)))  # of the first ellipsoid


@dataclass(frozen=True, eq=False)
class StudyInterval:
    """Estimate with its confidence interval, in units of a reward in [0, 1].

    Attributes
    ----------
    estimate, low, high : float
        Centre of the interval, and its ends, clipped to the possible values.
    level : float
        Confidence level.
    method : "linear model", "random users" or "last users"
    users : int
        Number of users whose sums were used.
    conditions : str
        Sentences that state the assumptions of the interval.
    refuted : bool
        True if the sums contradict the conditions. The interval then contains all possible values.
    """

    __repr__ = brief

    estimate: float
    low: float
    high: float
    level: float
    method: str
    users: int
    conditions: str
    refuted: bool = False

    @property
    def shown(self) -> bool:
        """True if the interval excludes 0 and the sums do not contradict the conditions. For effects."""
        return not self.refuted and (self.low > 0.0 or self.high < 0.0)

    def __str__(self) -> str:
        found = f"{self.estimate:+.4f} ({100 * self.level:g} % interval {self.low:+.4f} to {self.high:+.4f}; "
        found += f"{self.method}, {self.users} users)"
        if self.refuted:
            return f"{found}. The sums contradict these conditions. {self.conditions}"
        return f"{found}. {self.conditions}"


class _Ellipsoid(NamedTuple):
    """Set of coefficients that (2) allows, in the basis of the eigenvectors of its quadratic form.

    The set covers only the requested blocks.
    """

    vectors: Floats  # (m, p, p)
    values: Floats  # (m, p)
    linear: Floats  # (m, p)
    constant: float
    radius2: float


@dataclass(frozen=True, eq=False)
class StudyInference:
    """Confidence intervals for effects and policies, from the releases of a finished study.

    Intervals cost no privacy budget. See the module for their derivation.

    Parameters
    ----------
    state : ContextState
        State of the learner after the last release, from ``plan``, or from
        :meth:`~discreet.learners.online.linear_bandit.LinearBandit.read` with ``final_share``.
    level : float in (0, 1)
        Confidence level of each interval.
    bound : float, optional
        Largest norm B of the coefficients of one action, above 0. None: R / 2 (per action) or 1/2 (shared). A
        linear basis with an intercept has norms of at most R / 2 if the model's means are in [0, 1] for all
        contexts within the ranges. This number must be public: do not compute it from the data.
    misfit : float in [0, 1]
        Largest root mean square z of the distance between mean rewards and the linear model, over users and
        over given contexts. Public. If the map rescales long feature vectors (``radius``), linear rewards are
        not linear in the rescaled features.

    Raises
    ------
    ValueError
        If ``state`` is not that of a LinearBandit or is before its first release, or a number is out of its
        range. Also if the noise is Laplace noise, for which bound (2) does not hold.
    """

    __repr__ = brief

    state: ContextState
    level: float = 0.95
    bound: float | None = None
    misfit: float = 0.0

    def __post_init__(self) -> None:
        put = object.__setattr__
        checks.exactly("state", self.state, ContextState)
        if self.state.seen is None:
            raise ValueError("state: must be that of a learner that has read a release of users")
        if self._budget_is("pure", True):
            raise ValueError("state: has Laplace noise; must have Gaussian noise (a budget with delta)")
        put(self, "level", checks.real("level", self.level, 0.0, 1.0, open_low=True, open_high=True))
        put(self, "misfit", checks.real("misfit", self.misfit, 0.0, 1.0))
        features = self.features
        usual = (features.own_radius if features.form == "per_action" else 1.0) / 2.0
        put(self, "bound", usual if self.bound is None else checks.positive("bound", self.bound))

    def _budget_is(self, name: str, value: object) -> bool:
        return getattr(self.state.spec.budget, name, None) == value

    @property
    def features(self) -> FeatureMap:
        """Public feature map of the study."""
        return context_features(self.state.spec)

    # ------------------------------------------------------------------------- linear model
    def effect(
        self, first: Actions, second: Actions, contexts: ArrayLike, joint: bool = False
    ) -> StudyInterval:
        """Return the mean reward of ``first`` minus that of ``second`` in contexts, by the linear model.

        Parameters
        ----------
        first, second : int, "uniform", (n,) integers or (n, A) floats
            An action for all contexts, all actions with equal probability, the action of each context, or the
            probabilities of actions in each context.
        contexts : (*features.shape) or (n, *features.shape)
            One context, or contexts over which the effect is averaged. They must be public, such as a
            typical user or a published sample.
        joint : bool
            If True, the interval holds for all pairs of actions at the same time. Use it if the two actions
            were chosen after the study. Effects of policies are always joint. Intervals of different
            contexts are joint in both cases.

        Raises
        ------
        ValueError
            If actions or contexts have a wrong shape or range.
        """
        one, other = (self._mean_features(part, contexts) for part in (first, second))
        pair = sorted({int(part) for part in (first, second) if isinstance(part, int | np.integer)})
        together = checks.flag("joint", joint) or len(pair) < 2 or self.features.form == "shared"
        return self._linear(one - other, None if together else pair, 0.0, (-1.0, 1.0))

    def value(self, actions: Actions, contexts: ArrayLike) -> StudyInterval:
        """Return the mean reward of a policy in given contexts, by the linear model.

        The policy may be chosen from the same study: the intervals of all policies hold at the same time.

        actions : policy, in one of the forms of :meth:`effect`, such as the result of :meth:`policy`.

        contexts : as in :meth:`effect`.

        Raises ``ValueError`` if actions or contexts have a wrong shape or range.
        """
        return self._linear(self._mean_features(actions, contexts), None, 0.5, (0.0, 1.0))

    def policy(self, contexts: ArrayLike) -> Ints:
        """Return the action of the last policy that users followed, for contexts (n, *features.shape).

        The result has shape (n,) and entries in [0, A). Raises ``ValueError`` if contexts have a wrong shape,
        or if all actions of the study were random.
        """
        coefficients = self.state.batches[-1].policy
        if coefficients is None:
            raise ValueError("state: must have two releases: until now, all actions were random")
        phi = self._phi(contexts)
        scores = phi @ coefficients[0] if self.features.form == "shared" else phi @ coefficients.T
        found: Ints = scores.argmax(axis=1)
        return found

    def _phi(self, contexts: ArrayLike) -> Floats:
        """Return features (n, p) or (n, A, p)."""
        given, shape = np.asarray(contexts), self.features.shape
        if given.shape == shape:
            given = given[None]
        if given.ndim != 1 + len(shape) or given.shape[1:] != shape or not len(given):
            raise ValueError(
                f"contexts has shape {given.shape}: must be {shape} or (n, *{shape}), with n >= 1"
            )
        return self.features(given)

    def _mean_features(self, actions: Actions, contexts: ArrayLike) -> Floats:
        """Return c (blocks, p), so that c^T theta is the mean of phi^T theta_a over contexts and actions."""
        phi, many = self._phi(contexts), self.features.actions
        chance = _probabilities(actions, len(phi), many)
        if self.features.form == "shared":
            return (np.einsum("na,nap->p", chance, phi) / len(phi))[None]
        return chance.T @ phi / len(phi)

    def _linear(
        self, c: Floats, blocks: list[int] | None, centre: float, limits: tuple[float, float]
    ) -> StudyInterval:
        blocks = list(range(len(c))) if blocks is None else blocks
        assert self.bound is not None
        found = self._ellipsoid(blocks)
        level, tau = len(blocks) * self.bound**2, _WEIGHTS[:, None, None]
        rotated = np.einsum("bij,bi->bj", found.vectors, c[blocks])
        weight = tau * found.values / found.radius2 + (1.0 - tau) / level
        linear = tau * found.linear / found.radius2
        left = 1.0 - _WEIGHTS * found.constant / found.radius2 + (linear**2 / weight).sum(axis=(1, 2))
        middle = (rotated * linear / weight).sum(axis=(1, 2))
        half = np.sqrt(np.maximum(left, 0.0) * (rotated**2 / weight).sum(axis=(1, 2)))
        low, high = float((middle - half).max()), float((middle + half).min())
        refuted = bool((left < -1e-9).any()) or low > high + 1e-9
        rest = self.misfit * (2.0 if centre == 0.0 else 1.0)
        least, most = limits
        if refuted:
            low, high = least, most
        else:
            low = min(max(centre + low - rest, least), most)
            high = max(min(centre + high + rest, most), least)
        return self._interval((low + high) / 2.0, low, high, "linear model", self._seen[0], refuted)

    @property
    def _seen(self) -> tuple[int, Floats, Floats, float, float]:
        assert self.state.seen is not None
        return self.state.seen

    def _ellipsoid(self, blocks: list[int]) -> _Ellipsoid:
        """Return the set of coefficients of these blocks that (2) allows."""
        users, grams, responses, matrix, vector = self._seen
        gram, response, many = grams[blocks], responses[blocks], len(blocks)
        p, alpha = gram.shape[-1], 1.0 - self.level
        assert self.bound is not None
        noise = vector + 2.0 * matrix * self.bound**2
        missed = _NORM_SHARE * alpha if matrix else 0.0
        tail = goe_tail(math.sqrt(matrix), p, missed / many) if matrix else 0.0
        values, vectors = np.linalg.eigh(gram)
        spread = SIGMA2 * np.maximum(values + tail, 0.0) + noise  # eigenvalues of V
        mix = _MIXTURE * (noise + SIGMA2 * users / (p * len(grams)))  # h
        spread += mix
        inflation = float(np.log(spread / mix).sum())
        radius = math.sqrt(2.0 * math.log(1.0 / (alpha - missed)) + inflation)
        radius += 2.0 * math.sqrt(users) * (self.misfit + self._rounding)
        inner = (vectors / spread[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        curved, turned = np.linalg.eigh(gram @ inner @ gram)
        linear = np.einsum("bij,bik,bkl,bl->bj", turned, gram, inner, response)
        constant = float(np.einsum("bi,bij,bj->", response, inner, response))
        return _Ellipsoid(turned, np.maximum(curved, 0.0), linear, constant, radius**2)

    @property
    def _rounding(self) -> float:
        """Largest change of phi^T theta that rounding of phi on devices can cause under shuffle privacy."""
        if not self._budget_is("trust", "shuffle"):
            return 0.0
        assert self.bound is not None
        p = self.features.dimension
        return self.bound * math.sqrt(p) * 2.0 ** -levels_of(p)

    # ------------------------------------------------------------------------- without a model
    def last_value(self) -> StudyInterval:
        """Return the mean reward of users in the last released batch, without a model of rewards.

        With ``final_share``, all of them followed the policy of :meth:`policy`. Otherwise the value is that
        of greedy users and explorers together. Raises ``ValueError`` if the map has no intercept.
        """
        return self._played(self.state.batches[-1], None)

    def last_gain(self) -> StudyInterval:
        """Return the mean reward of the last released batch minus that of the first, with random actions.

        No model of rewards is needed. Raises ``ValueError`` if the map has no intercept, or there is one
        batch.
        """
        first, last = self.state.batches[0], self.state.batches[-1]
        if last.policy is None:
            raise ValueError("state: must have two releases: until now, all actions were random")
        return self._played(last, first)

    def random_effect(self, first: int, second: int) -> StudyInterval:
        """Return the mean effect of action ``first`` instead of ``second`` over users, without a model.

        Only the first batch, with random actions, is used. The two actions must be chosen before the study.

        first, second : actions in [0, A). Raises ``ValueError`` for other actions, or unless the map has the
            form "per_action" and an intercept.
        """
        if self.features.form != "per_action":
            raise ValueError("form = 'shared': must be 'per_action' for an effect without a model")
        many = self.features.actions
        pair = [checks.integer(n, i, 0, many - 1) for n, i in (("first", first), ("second", second))]
        batch = self.state.batches[0]
        scale = many * self._intercept / batch.users
        mean = scale * float(batch.response[pair[0], -1] - batch.response[pair[1], -1])
        if pair[0] == pair[1]:
            return self._interval(0.0, 0.0, 0.0, "random users", batch.users)
        variance = many / (2.0 * batch.users) + 2.0 * scale**2 * batch.response_variance
        half = self._z * math.sqrt(variance) + 2.0 * self._shortened(batch)
        low, high = max(mean - half, -1.0), min(mean + half, 1.0)
        return self._interval(mean, low, high, "random users", batch.users)

    def _played(self, batch: BatchSums, other: BatchSums | None) -> StudyInterval:
        mean, variance, slack = self._mean_reward(batch)
        least, users = (0.0 if other is None else -1.0), batch.users
        if other is None:
            mean += 0.5
        else:
            usual, more, too = self._mean_reward(other)
            mean, variance, slack, users = mean - usual, variance + more, slack + too, users + other.users
        half = self._z * math.sqrt(variance) + slack
        low, high = min(max(mean - half, least), 1.0), max(min(mean + half, 1.0), least)
        return self._interval(mean, low, high, "last users", users)

    def _mean_reward(self, batch: BatchSums) -> tuple[float, float, float]:
        """Return the mean of f (y - 1/2), its variance, and the margin for 1 - f."""
        scale = self._intercept / batch.users
        mean = scale * float(batch.response[:, -1].sum())
        noise = scale**2 * len(batch.response) * batch.response_variance
        sure = max(0.0, abs(mean) - self._z * math.sqrt(SIGMA2 / batch.users + noise))
        return mean, max(SIGMA2 - sure**2, 0.0) / batch.users + noise, self._shortened(batch)

    def _shortened(self, batch: BatchSums) -> float:
        """Return half of an upper bound on the mean of 1 - f."""
        length = max(1.0, _longest(self.features), self.features.own_radius)
        least = self._intercept * self._rounded(1.0 / length)
        if least == 1.0:
            return 0.0
        scale = self._intercept**2 / batch.users
        squares = scale * float(batch.gram[:, -1, -1].sum())
        noise = scale * math.sqrt(2.0 * len(batch.gram) * batch.gram_variance)
        missing = max(1.0 - squares + self._z * math.hypot(noise, 0.5 / math.sqrt(batch.users)), 0.0)
        return 0.5 * min(missing / (1.0 + least), 1.0 - least)

    @property
    def _intercept(self) -> float:
        """Reciprocal of the largest value of the last feature. ``ValueError`` if the map has no intercept.

        The result is R. Under shuffle privacy it differs from R, because features are rounded towards 0.
        """
        if not self.features.intercept:
            raise ValueError("intercept = False: must be True for an estimate without a model")
        largest = self._rounded(1.0 / max(1.0, self.features.own_radius))
        if largest == 0.0:
            raise ValueError(
                f"radius = {self.features.own_radius:g}: must be smaller for an estimate without a "
                "model, because devices round the intercept to 0"
            )
        return 1.0 / largest

    def _rounded(self, feature: float) -> float:
        """Return a feature as devices send it."""
        if not self._budget_is("trust", "shuffle"):
            return feature
        unit = 2.0 ** -levels_of(self.features.dimension)
        return math.floor(feature / unit) * unit

    @cached_property
    def _z(self) -> float:
        return NormalDist().inv_cdf(0.5 + self.level / 2.0)

    # ------------------------------------------------------------------------------ sentences
    def _interval(
        self, estimate: float, low: float, high: float, method: str, users: int, refuted: bool = False
    ) -> StudyInterval:
        model = method == "linear model"
        said = self._model_conditions if model else self._other_conditions(method)
        said += " Rewards are in [0, 1], and no user's reward depends on the actions of other users. "
        said += "Users without an outcome are "
        said += "like all others, in each context." if model else "included with a reward of 1/2."
        return StudyInterval(estimate, low, high, self.level, method, users, said, refuted)

    @property
    def _model_conditions(self) -> str:
        apart = f" up to a root mean square of {self.misfit:g}" if self.misfit else ""
        return (
            f"It holds for the given contexts if mean rewards are linear in the features{apart}, there and "
            f"for all users, and the coefficients of each action have norm at most {self.bound:g}. Nothing "
            "in the sums can prove this."
        )

    def _other_conditions(self, method: str) -> str:
        first, last = self.state.batches[0], self.state.batches[-1]
        if method == "random users":
            return (
                f"It holds for the population of the first {first.users} users, who had random actions, if "
                "they are independent draws from it. No model of rewards is assumed."
            )
        greedy = f"{last.explorers} of them explored" if last.explorers else "all followed the last policy"
        if last.policy is None:
            greedy = "all had random actions"
        return (
            f"It holds for the population of the last {last.users} users in a release ({greedy}), if they "
            "are independent draws from it. A gain also needs the same population in the first batch. No "
            "model of rewards is assumed."
        )


def _longest(features: FeatureMap) -> float:
    """Return the largest ||g||, the length of the features before the division by R."""
    q, kind = len(features.ranges), features.basis[0] if isinstance(features.basis, tuple) else features.basis
    squared = {"tiles": 1.0, "poly": q + q * (q + 1) / 2.0, "fourier": q + 2.0}.get(kind, float(q))
    return math.sqrt(squared + float(features.intercept))


def _probabilities(actions: Actions, users: int, many: int) -> Floats:
    """Return the (users, A) probabilities of actions. Raises ``ValueError`` for other shapes or values."""
    if isinstance(actions, str):
        checks.choice("actions", actions, ("uniform",))
        return np.full((users, many), 1.0 / many)
    given = np.asarray(actions)
    if given.ndim == 0:
        given = np.full(users, checks.integer("actions", actions, 0, many - 1))
    if given.shape == (users,) and given.dtype.kind in "iu":
        if given.min() < 0 or given.max() >= many:
            raise ValueError(f"actions from {given.min()} to {given.max()}: must be in [0, {many})")
        return np.eye(many)[given]
    if given.shape != (users, many) or given.dtype.kind != "f":
        raise ValueError(
            f"actions has shape {given.shape} and type {given.dtype}: must be ({users},) integers or "
            f"({users}, {many}) probabilities"
        )
    if not (given >= 0.0).all() or np.abs(given.sum(axis=1) - 1.0).max() > 1e-9:
        raise ValueError("actions: must be probabilities that add up to 1 in each context")
    found: Floats = given.astype(np.float64)
    return found
