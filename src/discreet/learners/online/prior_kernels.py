r"""Compiled combination of a public prior model with noisy estimates, by empirical Bayes.

A public prior gives for each state-action pair a row of transition probabilities q (S), a mean reward, and a
strength n (:mod:`discreet.learners.online.prior`). The difference between q and the true row p, called
*misfit*, is estimated from the data of all pairs.

**Hypotheses about a pair.** Hypothesis k = 1, 2, ... says that p - q has mean square omega_k^2 =
min(1/2, 4^(k-1) / n). The *empty* hypothesis, index 0, says that the prior has no information about the pair.

**Evidence.** The estimate of p has squared distance D from q, squared distance D_0 from the uniform row, and
mean squared error e. The log density of hypothesis k is -(nu / 2) (ln(e + omega_k^2) + D / (e + omega_k^2))
with nu = min(4, max(1, S - 1)). The log density of the empty hypothesis has 1/2 instead of omega_k^2 and D_0
instead of D. The shares of all hypotheses over pairs are estimated by the expectation-maximisation (EM)
algorithm.

**Combination.** Let p_k be the posterior probabilities of a pair. Under hypothesis k, the estimate has weight
o_k = omega_k^2 / (omega_k^2 + e), and q has the rest. Under the empty hypothesis, the estimate has weight 1.
The weight of the estimate is O = p_0 + sum p_k o_k. The error of q adds sum p_k (1 - o_k)^2 omega_k^2, and
uncertainty about the hypothesis adds (p_0 + sum p_k o_k^2 - O^2) times the squared distance between the
estimate and q.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined
from discreet.utils.random_streams_kernels import log

Floats = NDArray[np.float64]

_EMPTY = 0.3  # Initial share of the empty hypothesis.
_FALL = 0.6  # Ratio of the initial shares of hypotheses k + 1 and k.
_IMAGINED = 2.0  # Weight of the initial shares, as a number of pairs.
_ROUNDS = 20  # Number of iterations of the EM algorithm.
_HYPOTHESES = 13  # Largest number of hypotheses, with the empty one.
_WIDEST, _WIDEST_REWARD = 0.5, 1.0 / 16.0  # Mean square of the largest misfit of a row and of a reward.
_REWARD_STRENGTH = 4.0  # A visit with a reward in [0, 1] has at most a quarter of the variance of a row.
_MOST_DIRECTIONS = 4.0  # Upper limit of nu.


class Given(NamedTuple):
    """Public prior of each pair."""

    strength: Floats  # (R,) weight of the row, in visits; 0 for a pair without a prior
    reward_strength: Floats  # (R,) the same for the mean reward
    rewards: Floats  # (R,) mean rewards
    rows: Floats  # (R, S) transition probabilities


class Weight(NamedTuple):
    """Weight of the data of a pair, and the error that the prior adds."""

    data: float  # Weight O of the estimate from data; the prior has the rest.
    variance: float  # Mean squared error that the prior adds.
    between: float  # Factor of the squared distance between estimate and prior, for the mean squared error.
    empty: float  # Probability that the prior has no information about the pair.


def work_size(rows: int, states: int) -> int:
    """Return the number of floats of scratch space to combine a prior with estimates."""
    return 3 * rows + states + (rows + 1) * _HYPOTHESES


@inlined
def read_prior(given: Floats, rows: int, states: int) -> Given:
    """Return the prior that is stored in ``given`` (rows * (states + 3),)."""
    part = given[: 3 * rows].reshape(3, rows)
    return Given(part[0], part[1], part[2], given[3 * rows : (3 + states) * rows].reshape(rows, states))


@inlined
def scale(strength: float, k: int, widest: float) -> float:
    """Return omega_k^2, the mean square of the misfit under hypothesis k = 1, 2, ...

    strength : n of the module docstring; hypothesis 1 has mean square 1 / n.

    widest : upper limit of the result.
    """
    return min(widest, 4.0 ** (k - 1) / strength)


@inlined
def count_hypotheses(strength: Floats, widest: float) -> int:
    """Return the number of hypotheses, including the empty one, at most _HYPOTHESES.

    widest : mean square of the last hypothesis.

    strength : (R,) inverse of the smallest misfit of each pair; 0 for a pair without a prior.
    """
    most = 0.0
    for r in range(strength.shape[0]):
        most = max(most, strength[r])
    many = 2
    while many < _HYPOTHESES and most > 0.0 and 4.0 ** (many - 2) / most < widest:
        many += 1
    return many


@inlined
def log_density(square: float, variance: float, directions: float) -> float:
    """Return the log density of a squared distance, up to a constant."""
    return -0.5 * directions * (log(variance) + square / variance)


@inlined
def first_shares(many: int, shares: Floats) -> None:
    """Write into ``shares`` the initial shares, which do not depend on data."""
    total = 0.0
    for k in range(1, many):
        shares[k] = _FALL ** (k - 1)
        total += shares[k]
    for k in range(1, many):
        shares[k] *= (1.0 - _EMPTY) / total
    shares[0] = _EMPTY


@inlined
def posterior(logs: Floats, shares: Floats, found: Floats) -> None:
    """Write into ``found`` the posterior probabilities of all hypotheses, given their log densities."""
    high, total = -np.inf, 0.0
    for k in range(logs.shape[0]):
        high = max(high, logs[k])
    for k in range(logs.shape[0]):
        found[k] = shares[k] * np.exp(logs[k] - high)
        total += found[k]
    for k in range(logs.shape[0]):
        found[k] /= total


@inlined
def fit_shares(logs: Floats, seen: Floats, shares: Floats) -> None:
    """Estimate the shares of all hypotheses by the EM algorithm.

    logs : (R, K) log densities of the data of each pair.

    seen : (R,) mean squared errors. A pair with an infinite value has no data and is skipped.

    shares : (K,) overwritten with the estimate.
    """
    many = logs.shape[1]
    first, sums, found = np.empty(many), np.empty(many), np.empty(many)
    first_shares(many, first)
    shares[:] = first
    for _ in range(_ROUNDS):
        pairs = _IMAGINED
        for k in range(many):
            sums[k] = _IMAGINED * first[k]
        for r in range(logs.shape[0]):
            if seen[r] == np.inf:
                continue
            posterior(logs[r], shares, found)
            pairs += 1.0
            for k in range(many):
                sums[k] += found[k]
        for k in range(many):
            shares[k] = sums[k] / pairs


@inlined
def measure_rows(
    strength: Floats, misfit: Floats, near: Floats, error: Floats, states: int, work: Floats
) -> Floats:
    """Return the log densities (R, K) of rows, in the scratch space ``work``.

    The four arrays (R,) are n, D, D_0 and e of the module docstring.
    """
    many = count_hypotheses(strength, _WIDEST)
    logs = work[: strength.shape[0] * many].reshape(strength.shape[0], many)
    directions = min(_MOST_DIRECTIONS, max(1.0, states - 1.0))
    for r in range(strength.shape[0]):
        if error[r] == np.inf:
            continue
        logs[r, 0] = log_density(near[r], error[r] + _WIDEST, directions)
        for k in range(1, many):
            logs[r, k] = log_density(misfit[r], error[r] + scale(strength[r], k, _WIDEST), directions)
    return logs


@inlined
def measure_rewards(strength: Floats, misfit: Floats, near: Floats, error: Floats, work: Floats) -> Floats:
    """Return the log densities (R, K) of mean rewards, in the scratch space ``work``.

    ``near`` (R,) is the log density under the empty hypothesis. The other arrays are as in
    :func:`measure_rows`, for mean rewards.
    """
    many = count_hypotheses(_REWARD_STRENGTH * strength, _WIDEST_REWARD)
    logs = work[: strength.shape[0] * many].reshape(strength.shape[0], many)
    for r in range(strength.shape[0]):
        if error[r] == np.inf:
            continue
        logs[r, 0] = near[r]
        for k in range(1, many):
            omega2 = scale(_REWARD_STRENGTH * strength[r], k, _WIDEST_REWARD)
            logs[r, k] = log_density(misfit[r], error[r] + omega2, 1.0)
    return logs


@inlined
def weigh_row(strength: float, error: float, chances: Floats) -> Weight:
    """Return the weight of the estimated row of a pair.

    strength, error : n and e of the module docstring.

    chances : (K,) posterior probabilities, or the shares if e is infinite.
    """
    data, square, variance = chances[0], chances[0], 0.0
    for k in range(1, chances.shape[0]):
        omega2 = scale(strength, k, _WIDEST)
        own = omega2 / (omega2 + error)
        data += chances[k] * own
        square += chances[k] * own * own
        variance += chances[k] * (1.0 - own) * (1.0 - own) * omega2
    return Weight(data, variance, max(0.0, square - data * data), chances[0])


@inlined
def believe_reward(
    strength: float, public: float, estimate: float, error: float, empty: float, wide: float, chances: Floats
) -> tuple[float, float]:
    """Return the posterior mean and variance of a mean reward.

    - strength, public : weight and mean reward of the prior.
    - estimate, error : mean reward of the data, and its mean squared error, which is infinite without data.
    - empty, wide : posterior mean and variance under the empty hypothesis.
    - chances : (K,) posterior probabilities of the hypotheses.
    """
    mean, square = chances[0] * empty, chances[0] * (empty * empty + wide)
    for k in range(1, chances.shape[0]):
        omega2 = scale(_REWARD_STRENGTH * strength, k, _WIDEST_REWARD)
        own = omega2 / (omega2 + error)
        value = public + (own * (estimate - public) if own > 0.0 else 0.0)
        mean += chances[k] * value
        square += chances[k] * (value * value + (1.0 - own) * omega2)
    return mean, max(0.0, square - mean * mean)
