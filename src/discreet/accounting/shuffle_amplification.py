r"""Numerical privacy amplification by shuffling the responses of a local randomizer ("clones").

Each of n users sends one response of a randomizer R that is eps0-locally private. A shuffler removes the
order of the responses. One user's input x0 is replaced by x1. The inputs of all other users are arbitrary.
Let E = e^eps0, let a be the density of R(x0), and let b be the density of R(x1).

``Q0 = (E a - b) / (E - 1)`` and ``Q1 = (E b - a) / (E - 1)`` are not negative, because a and b differ by at
most a factor E. Therefore both are densities. R(x0) is a mixture of Q0 and Q1 with odds E : 1, and R(x1) is a
mixture with odds 1 : E. The density of any other user's response is at least max(a, b) / E >= (a + b) / (2 E)
= (Q0 + Q1) / (2 E). Therefore, with probability 1 / E, this user sends a *clone*, for any input of the user.
A clone is a sample of Q0 or of Q1, each with probability 1/2. Responses that are not clones are
post-processing. Let C ~ Bin(n - 1, 1 / E) be the number of clones, and A ~ Bin(C, 1/2) the number of samples
of Q0 among them. Let D be 1 if the replaced user's response is a sample of Q0, and 0 otherwise. The shuffled
responses are dominated by the pair ``(A + D, C - A + 1 - D)``, where D is 1 with odds E : 1 for x0 and 1 : E
for x1. The divergence between the two distributions of this pair is summed exactly. The sum is simple,
because the likelihood ratio increases with the first number of the pair.

Source: Feldman, McMillan and Talwar 2021 (theorem 3.1, with the argument above). In their stronger theorem of
2022, a response is a clone with probability 2 / (E + 1). ``stronger`` selects that theorem. The theorem of
2022 is not proved here, and no guarantee depends on it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from discreet.core import checks

_MOST = 100.0  # above this epsilon0 the result is delta = 1, because e^epsilon0 could overflow


def clones_of(epsilon0: float, stronger: bool = False) -> float:
    """Return the probability that another user's response is a clone.

    The probability is that of the theorem of 2021, or of the theorem of 2022 if ``stronger`` is True.
    """
    return 2.0 / (math.exp(epsilon0) + 1.0) if stronger else math.exp(-epsilon0)


def amplified_delta(epsilon0: float, users: int, epsilon: float, stronger: bool = False) -> float:
    """Return a delta for which the shuffled responses of n users are (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon0 : local epsilon of each response, above 0.
    users : number n >= 1 of users who follow the protocol.
    epsilon : epsilon at which delta is computed, at least 0.
    stronger : if True, use the probability of clones in the theorem of 2022.
    """
    from scipy import stats

    epsilon0 = checks.positive("epsilon0", epsilon0)
    users = checks.integer("users", users, 1)
    epsilon = checks.real("epsilon", epsilon, 0.0)
    if epsilon >= epsilon0:
        return 0.0
    if epsilon0 > _MOST:
        return 1.0
    odds, n, clones = math.exp(epsilon0), users - 1, clones_of(epsilon0, stronger)
    mean, deviation = n * clones, math.sqrt(n * clones * (1 - clones))
    c = np.arange(max(0, int(mean - 12 * deviation - 20)), min(n, int(mean + 12 * deviation + 40)) + 1)
    weight = stats.binom.pmf(c, n, clones)
    own, other, factor = odds / (odds + 1), 1 / (odds + 1), math.exp(epsilon)
    # Suppose that a of the c + 1 responses are samples of Q0. An outcome counts if
    # P / Q = (own a + other (c + 1 - a)) / (other a + own (c + 1 - a)) > factor.
    least = np.floor((c + 1) * (own * factor - other) / ((own - other) * (1 + factor))) + 1
    above = stats.binom.sf(least - 2, c, 0.5), stats.binom.sf(least - 1, c, 0.5)
    likely, unlikely = own * above[0] + other * above[1], other * above[0] + own * above[1]
    left_out = stats.binom.cdf(c[0] - 1, n, clones) + stats.binom.sf(c[-1], n, clones)
    return float(weight @ np.maximum(likely - factor * unlikely, 0.0) + left_out)


@lru_cache(maxsize=8192)
def amplified_epsilon(epsilon0: float, users: int, delta: float, stronger: bool = False) -> float:
    """Return the least epsilon at which :func:`amplified_delta` is at most ``delta``.

    The result is too large by at most 1e-7 of epsilon0.
    """
    delta = checks.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    low, high = 0.0, checks.positive("epsilon0", epsilon0)
    while high - low > 1e-7 * epsilon0:
        middle = 0.5 * (low + high)
        fits = amplified_delta(epsilon0, users, middle, stronger) <= delta
        low, high = (low, middle) if fits else (middle, high)
    return high


@lru_cache(maxsize=8192)
def local_epsilon(epsilon: float, delta: float, users: int, stronger: bool = False) -> float:
    """Return the largest local epsilon0 such that n shuffled responses meet (epsilon, delta).

    The result is accurate to 1e-5 and never too large. It is at least epsilon, because epsilon0 = epsilon
    meets the budget without shuffling. At the result, :func:`amplified_epsilon` (which rounds up) is at most
    epsilon.
    """
    low = checks.positive("epsilon", epsilon)
    high = low + math.log(users + 1.0) + 3.0
    while high - low > 1e-5:
        middle = 0.5 * (low + high)
        aim = epsilon - 1e-7 * middle  # amplified_epsilon can be too large by 1e-7 * epsilon0
        fits = aim > 0.0 and amplified_delta(middle, users, aim, stronger) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return low
