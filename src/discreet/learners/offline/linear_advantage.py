"""Offline learner for real-valued contexts, such as vital signs: one private regression on stored visits.

At most m visits of each user are used. A visit has a context x, the action a that was taken, and the later
return of the episode, scaled to [0, 1], as target y. One noisy release
(:mod:`discreet.mechanisms.linear.context_sums`) has the sums G_a of phi phi^T and u_a of phi (y - 1/2) over
the visits with action a. The policy is computed from this release:

1. Model: E[y | x, a] = 1/2 + phi(x) theta_a with theta_a = beta + d_a. The prior of beta is N(0, t0^2 I), and
   that of d_a is N(0, t1^2 I).
2. Each G_a is shrunk towards r_a T by the James-Stein factor, where T is the sum of all G_a and r_a is the
   share of action a. The factor is at least 0. It is one minus the expected squared norm of the noise in the
   differences, divided by their squared norm. Negative eigenvalues are set to 0.
3. The noisy response is u_a = G_a theta_a + e - E theta_a + w with the privacy noises E and w. Its covariance
   given theta is C_a = G_a / 4 + s_u^2 I + s_E^2 (||theta_a||^2 I + theta_a theta_a^T).
4. The coefficients are the posterior mean over a grid of pairs (t0, t1), weighted by the likelihood of the
   release.
5. The policy takes the action with the highest mean. The estimate assumes that later decisions follow the
   behaviour policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.rng import Randomness
from discreet.core.short_repr import brief
from discreet.device.feature_map import FeatureMap
from discreet.mechanisms.linear.context_sums import ContextRelease, ContextSums
from discreet.utils.config import Knobs

SIGMA2 = 0.25  # largest variance of a target in [0, 1]
_SHARED = (0.1, 0.3, 1.0, 3.0)  # t0
_OWN = (0.06, 0.12, 0.24, 0.48)  # t1; smaller values would flatten what depends on the context
_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class AdvantagePolicy:
    """Policy of :class:`LinearAdvantage`. It is public.

    Attributes
    ----------
    features : FeatureMap
    theta : (A, p) coefficients of each action.
    """

    __repr__ = brief

    features: FeatureMap
    theta: Floats

    def advantages(self, contexts: ArrayLike) -> Floats:
        """Return (..., A) predicted targets of each action minus their mean over actions.

        contexts : (..., q). Raises ``ValueError`` on another shape.
        """
        found: Floats = self.features(contexts) @ (self.theta - self.theta.mean(axis=0)).T
        return found

    def __call__(self, contexts: ArrayLike) -> Ints:
        """Return the action (...) in each of the contexts (..., q).

        Raises ``ValueError`` on another shape.
        """
        chosen: Ints = self.advantages(contexts).argmax(axis=-1)
        return chosen

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain values, for JSON; :meth:`from_dict` is the inverse."""
        return {"features": self.features.to_dict(), "theta": self.theta.tolist()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> AdvantagePolicy:
        """Return the policy with the values ``plain``. Raises ``ValueError`` if they describe no policy."""
        try:
            features = FeatureMap.from_dict(plain["features"])
            shape = (features.actions, features.dimension)
            return cls(features, checks.floats("theta", np.array(plain["theta"], np.float64), shape))
        except (KeyError, TypeError) as error:
            raise ValueError(f"policy: is not written as to_dict writes it ({error!r})") from None


@dataclass(frozen=True, kw_only=True)
class LinearAdvantage(Knobs):
    """Learner that computes a policy from stored visits with real-valued contexts (see the module docstring).

    Parameters
    ----------
    visits : int
        m, the largest number of visits per user that are used, at least 1. The noise is proportional to m.

    Raises
    ------
    ValueError
        If an option is out of its range.
    """

    visits: int | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {"visits": 3}}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "visits", checks.integer("visits", self.visits, 1, 1000))

    @property
    def most(self) -> int:
        """Largest number m of visits per user that are used."""
        return int(self.visits or 1)

    def open(self, features: FeatureMap, privatizer: Any, randomness: Randomness) -> ContextSums:
        """Return the session to which visits are submitted.

        features : public map of contexts. privatizer : Central(...) or NoPrivacy(). randomness : source of
        the noise. Raises ``ValueError`` as :class:`ContextSums` does.
        """
        return ContextSums(features, self.most, privatizer, randomness)

    def learn(self, release: ContextRelease) -> AdvantagePolicy:
        """Return the policy computed from a release."""
        blocks, response = len(release.response), release.response.ravel()
        gram, variances = _pooled(release.gram, release.gram_std**2)
        noise = variances, release.response_std**2
        found = []
        for shared in _SHARED:
            for own in _OWN:
                prior = shared**2 * np.ones((blocks, blocks)) + own**2 * np.eye(blocks)
                found.append(_fitted(gram, response, prior, noise))
        likely = np.array([one[0] for one in found])
        weights = np.exp(likely - likely.max())
        theta = np.tensordot(weights / weights.sum(), np.stack([one[1] for one in found]), 1)
        return AdvantagePolicy(release.features, theta)


def _pooled(gram: Floats, variance: float) -> tuple[Floats, Floats]:
    """Return matrices shrunk towards their shares of the sum, and the noise variance (A,) of their entries.

    gram : (A, p, p) noisy matrices. variance : variance of the noise off the diagonal.
    """
    blocks, p = gram.shape[:2]
    if not variance:
        return _nonnegative(gram), np.zeros(blocks)
    total = gram.sum(axis=0)
    size = np.maximum(np.trace(gram, axis1=1, axis2=2), 0.0)
    share = size / size.sum() if size.sum() > 0.0 else np.full(blocks, 1.0 / blocks)
    central = share[:, None, None] * total
    lost = variance * p * (p + 1) * float((1.0 - 2.0 * share + blocks * share**2).sum())
    found = float(((gram - central) ** 2).sum())
    kept = max(0.0, 1.0 - lost / found) if found > 0.0 else 0.0
    rest = 1.0 - kept
    noise = variance * (kept**2 + 2.0 * kept * rest * share + blocks * (rest * share) ** 2)
    return _nonnegative(central + kept * (gram - central)), noise


def _fitted(
    gram: Floats, response: Floats, prior: Floats, noise: tuple[Floats, float]
) -> tuple[float, Floats]:
    """Return the logarithm of the marginal likelihood, without constants, and the posterior mean (A, p).

    noise : noise variances of the entries of ``gram`` by action, and of ``response``.
    """
    blocks, p = gram.shape[:2]
    one, at = np.eye(p), [slice(a * p, (a + 1) * p) for a in range(blocks)]
    spread = np.zeros((blocks * p, blocks * p))  # covariance of theta and G theta
    through = np.zeros((blocks * p, blocks * p))  # covariance of G theta
    for a in range(blocks):
        for b in range(blocks):
            spread[at[a], at[b]] = prior[a, b] * gram[b]
            through[at[a], at[b]] = prior[a, b] * (gram[a] @ gram[b])
    second = prior[0, 0] * np.broadcast_to(one, gram.shape)  # E theta theta^T of each action
    rounds = _ROUNDS if noise[0].any() else 1
    for step in range(rounds):
        whole = through + (noise[1] + 1e-9) * np.eye(blocks * p)
        for a in range(blocks):
            whole[at[a], at[a]] += SIGMA2 * gram[a]
            whole[at[a], at[a]] += noise[0][a] * (np.trace(second[a]) * one + second[a])
        factor = np.linalg.cholesky(whole)
        z = np.linalg.solve(factor, response)
        mean = (spread @ np.linalg.solve(factor.T, z)).reshape(blocks, p)
        likely = float(-0.5 * z @ z - np.log(np.diag(factor)).sum())
        if step + 1 < rounds:
            half = np.linalg.solve(factor, spread.T)
            second = np.stack([
                prior[a, a] * one - half[:, at[a]].T @ half[:, at[a]] + np.outer(mean[a], mean[a])
                for a in range(blocks)
            ])  # fmt: skip
    return likely, mean


def _nonnegative(matrices: Floats) -> Floats:
    """Return symmetric matrices with negative eigenvalues set to 0."""
    values, vectors = np.linalg.eigh(matrices)
    found: Floats = (vectors * np.maximum(values, 0.0)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return found
