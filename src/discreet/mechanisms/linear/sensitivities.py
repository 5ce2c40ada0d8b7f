"""Sensitivities and noise of linear statistics: phi phi^T, phi y, phi (e_{s'} - 1/S)^T.

Two data sets are neighbours if one user's trajectory is replaced. At each step (x, y) becomes (x', y') with
||x||, ||x'|| <= b. All values below are suprema over such pairs. These values are therefore valid for any
data that satisfy the bounds on x and y (the *contract*).

Noise on a symmetric statistic is GOE(s): a symmetric matrix with off-diagonal entries N(0, s^2) and diagonal
entries N(0, 2 s^2). The density of GOE(s) is proportional to exp(-||G||_F^2 / (4 s^2)), which is isotropic in
the Frobenius product. A change A of the statistic is therefore exactly (||A||_F / (sqrt(2) s))-GDP.

Lemma 1. ||x x^T - x' x'^T||_F^2 = ||x||^4 + ||x'||^4 - 2 <x, x'>^2 <= 2 b^4, attained at orthogonal vectors.
Therefore GOE(s) on the Gram matrix is (b^2 / s)-GDP.

Lemma 2. ||x y - x' y'|| is at most

- 2 b c for |y| <= c, attained at x' = -x;
- sqrt(2) b c for y in [0, c] and x, x' >= 0 coordinate by coordinate, as then <x y, x' y'> >= 0;
- b c for |y| <= c/2 (centred, range c).

Lemma 3 (joint). Let alpha = b^4 / s_G^2 and beta = b^2 c^2 / s_u^2, where s_u is the vector's standard
deviation. Let t = <x, x'> / b^2. The Gram matrix and the vector together are mu-GDP with the following mu^2,
and this value is tight:

- y in [0, c]: the maximum over t of alpha (1 - t^2) + 2 beta (1 - t). The maximum is (alpha + beta)^2 / alpha
  if beta <= alpha (at t = -beta / alpha), else 4 beta (at t = -1).
- y in [0, c] and x >= 0, which implies t >= 0: alpha + 2 beta (at t = 0).
- Centred, |y| <= c/2: the maximum over t of alpha (1 - t^2) + beta (1 + |t|) / 2. The maximum is (4 alpha +
  beta)^2 / (16 alpha) if beta <= 4 alpha (at |t| = beta / (4 alpha)), else beta (at |t| = 1).

(For fixed t, each term increases with the norms and with |y|, |y'|, so unit vectors and the ends of the
range are worst.)

Lemma 4. This lemma is for the sum of phi (e_{s'} - 1/S)^T. With t = <x, x'> / b^2 the squared change is

- 2 b^2 (1 - 1/S)(1 - t) for equal successors,
- b^2 (2 (1 - 1/S) + 2 t / S) for different successors.

The supremum is 4 b^2 (1 - 1/S) at t = -1 in general, and at most 2 b^2 for x >= 0. Both are attained.

Lemma 5. Let alpha = b^4 / s_G^2, beta = b^2 / s_M^2 and gamma = b^2 / s_r^2 (reward minus 1/2). For all three
statistics together, mu^2 is the maximum over t in [t0, 1] of

    alpha (1 - t^2) + gamma (1 + |t|) / 2 + 2 beta max{(1 - 1/S)(1 - t), 1 - 1/S + t / S}

Here t0 = 0 for x >= 0, and otherwise t0 = -1.

Pure epsilon needs l1 norms. Let ||x||_1 <= a. Replacing a user changes

- the upper triangle of x x^T with its diagonal by at most a^2 + b^2, as its l1 norm is
  (||x||_1^2 + ||x||_2^2) / 2;
- x y by at most 2 a c for |y| <= c, and by at most a c if centred;
- x (e_{s'} - 1/S)^T by at most 4 a (1 - 1/S), as its l1 norm is ||x||_1 (2 - 2/S).

The noise is Laplace noise of scale sensitivity / epsilon on every entry. In the Gram matrix it is drawn only
for the upper triangle. (Luyo et al. 2021 use the l2 sensitivity there. That gives too little noise.)

Public weights w(s, a) in (0, 1] replace (x, y) by (sqrt(w) x, sqrt(w) y). This pair satisfies the same
bounds.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.protocols import Coins
from discreet.device import linear_sensitivity as lemmas

Floats = NDArray[np.float64]
Target = Literal["centred", "raw", "raw-nonneg"]
"""Range of y: |y| <= c/2 ("centred"), [0, c] ("raw"), or [0, c] with x >= 0 ("raw-nonneg")."""

TARGETS: tuple[Target, ...] = ("centred", "raw", "raw-nonneg")

# ------------------------------------------------------------------------ sensitivities


def gram_mu(bound: float, scale: float) -> float:
    """Return mu = b^2 / s, the privacy loss of the sum of phi phi^T with noise GOE(s) (lemma 1)."""
    return checks.positive("bound", bound) ** 2 / checks.positive("scale", scale)


def gram_scale(bound: float, mu: float) -> float:
    """Return the GOE scale s = b^2 / mu that makes the Gram matrix mu-GDP (lemma 1)."""
    return checks.positive("bound", bound) ** 2 / checks.positive("mu", mu)


def vector_sensitivity(bound: float, span: float, target: Target) -> float:
    """Return the l2 sensitivity of the sum of phi y, where y has the range ``span`` = c (lemma 2).

    The result is b c for centred y, 2 b c for raw y, and sqrt(2) b c for raw y with nonnegative features.
    """
    factor = {"centred": 1.0, "raw": 2.0, "raw-nonneg": math.sqrt(2.0)}[
        checks.choice("target", target, TARGETS)
    ]
    return factor * checks.positive("bound", bound) * checks.positive("span", span)


def pair_mu(alpha: float, beta: float, target: Target) -> float:
    """Return the exact mu of a Gram matrix and a vector that are released together (lemma 3).

    alpha : b^4 / s_G^2 > 0.

    beta : b^2 c^2 / s_u^2 >= 0.
    """
    checks.choice("target", target, TARGETS)
    alpha, beta = checks.positive("alpha", alpha), checks.real("beta", beta, 0.0)
    return lemmas.pair_mu(alpha, beta, target)


class PairScales(NamedTuple):
    """Noise scales of a Gram matrix and a vector that are released together.

    ``gram`` is the GOE scale. ``vector`` is the standard deviation of the vector's noise for a range c = 1.
    """

    gram: float
    vector: float


def pair_scales(bound: float, mu: float, share: float, target: Target) -> PairScales:
    """Return the scales at which a Gram matrix and a vector together are exactly mu-GDP.

    The Gram matrix has ``share`` in (0, 1) of the budget: alpha = share x and beta = (1 - share) x, where
    lemma 3 determines x. The scales are s_G = b^2 / sqrt(alpha) and s_u = b / sqrt(beta).
    """
    bound, mu = checks.positive("bound", bound), checks.positive("mu", mu)
    share = checks.real("share", share, 0.0, 1.0, open_low=True, open_high=True)
    x = (mu / pair_mu(share, 1.0 - share, target)) ** 2
    return PairScales(bound**2 / math.sqrt(share * x), bound / math.sqrt((1.0 - share) * x))


def successor_sensitivity(bound: float, states: int, nonneg: bool = False) -> float:
    """Return the l2 sensitivity of the sum of phi (e_{s'} - 1/S)^T (lemma 4)."""
    bound, states = checks.positive("bound", bound), checks.integer("states", states, 1)
    if states == 1:
        return 0.0
    return bound * (math.sqrt(2.0) if nonneg else 2.0 * math.sqrt(1.0 - 1.0 / states))


def model_mu(alpha: float, beta: float, gamma: float, states: int, nonneg: bool = False) -> float:
    """Return the exact mu of Gram matrix, next-state matrix and centred rewards together (lemma 5).

    alpha : b^4 / s_G^2. beta : b^2 / s_M^2. gamma : b^2 / s_r^2. All three must be at least 0, and at least
        one must be above 0. states : S. nonneg : True if features are nonnegative.
    """
    return lemmas.model_mu(alpha, beta, gamma, checks.integer("states", states, 1), nonneg)


class ModelScales(NamedTuple):
    """Noise scales of the three statistics of a model.

    ``gram`` is the GOE scale of the Gram matrix. ``successors`` and ``rewards`` are the standard deviations
    of the noise in the next-state matrix and in the rewards.
    """

    gram: float
    successors: float
    rewards: float


def model_scales(
    bound: float, mu: float, shares: tuple[float, float, float], states: int, nonneg: bool = False
) -> ModelScales:
    """Return the scales at which Gram matrix, next states and rewards together are exactly mu-GDP (lemma 5).

    The ``shares`` sum to 1. The shares divide mu^2 among the separate worst cases of the three statistics
    (lemmas 1, 4 and 2). The joint supremum is smaller, so all three scales are reduced until it equals mu. If
    rewards are known, the last share is 0. The scale of rewards is then infinite, and rewards must not be
    released.
    """
    bound, mu = checks.positive("bound", bound), checks.positive("mu", mu)
    parts = tuple(checks.real("shares", share, 0.0) for share in shares)
    if len(parts) != 3 or abs(sum(parts) - 1) > 1e-9 or min(parts[:2]) <= 0:
        raise ValueError(
            f"shares = {shares!r}: must be three numbers that sum to 1, of which the last may be 0"
        )
    own = successor_sensitivity(1.0, max(2, states), nonneg) ** 2
    alpha, beta, gamma = parts[0], parts[1] / own, parts[2]
    x = (mu / model_mu(alpha, beta, gamma, states, nonneg)) ** 2
    rewards = bound / math.sqrt(gamma * x) if gamma else math.inf
    return ModelScales(bound**2 / math.sqrt(alpha * x), bound / math.sqrt(beta * x), rewards)


def gram_l1(bound: float, l1: float) -> float:
    """Return the l1 sensitivity a^2 + b^2 of the upper triangle of the sum of phi phi^T."""
    return lemmas.gram_l1(checks.positive("bound", bound), checks.positive("l1", l1))


def vector_l1(l1: float, span: float, target: Target) -> float:
    """Return the l1 sensitivity of the sum of phi y: a c for centred y, 2 a c for raw y (also if x >= 0)."""
    checks.choice("target", target, TARGETS)
    return lemmas.vector_l1(checks.positive("l1", l1), checks.positive("span", span), target)


def successor_l1(l1: float, states: int) -> float:
    """Return the l1 sensitivity 4 a (1 - 1/S) of the sum of phi (e_{s'} - 1/S)^T."""
    return lemmas.successor_l1(checks.positive("l1", l1), checks.integer("states", states, 1))


# -------------------------------------------------------------------------------- noise


def goe(scale: float, dimension: int, coins: Coins, grid: int | None = None) -> Floats:
    """Return (d, d) symmetric noise GOE(s): variance s^2 off the diagonal and 2 s^2 on the diagonal.

    The entries on and above the diagonal are independent. With a ``grid`` the entries are discrete Gaussians
    on multiples of 1 / grid. The privacy loss as zCDP is unchanged:

        rho = sum over the upper triangle of A_ij^2 / (2 sigma_ij^2) = ||A||_F^2 / (4 s^2) = mu^2 / 2.
    """
    d = checks.integer("dimension", dimension, 1)
    matrix = np.zeros((d, d))
    above = np.triu_indices(d, 1)
    matrix[np.diag_indices(d)] = coins.normal(math.sqrt(2.0) * scale, d, grid)
    if d > 1:
        matrix[above] = coins.normal(scale, above[0].size, grid)
        matrix[above[::-1]] = matrix[above]
    return matrix


def vector_noise(scale: float, shape: tuple[int, ...], coins: Coins, grid: int | None = None) -> Floats:
    """Return independent normal noise with mean 0 and standard deviation ``scale``.

    If a ``grid`` is given, the noise is discrete Gaussian on multiples of 1 / grid.
    """
    return coins.normal(scale, math.prod(shape), grid).reshape(shape)


def symmetric_laplace(scale: float, dimension: int, coins: Coins, grid: int | None = None) -> Floats:
    """Return (d, d) symmetric noise: independent Laplace(scale) on and above the diagonal, mirrored."""
    d = checks.integer("dimension", dimension, 1)
    matrix, upper = np.zeros((d, d)), np.triu_indices(d)
    matrix[upper] = coins.laplace(scale, upper[0].size, grid)
    matrix[upper[::-1]] = matrix[upper]
    return matrix
