r"""Renyi divergence of integer sums with Skellam noise, and the epsilon that follows from it.

A vector of integers is released with independent noise. Coordinate j has Skellam noise of variance v_j. One
replaced user changes coordinate j by the integer d_j. The bound below has the main term of the theorem of
Agarwal, Kairouz and Liu (arXiv 2110.04995). It holds for every real order a > 1, and is proved here.

*One coordinate.* Let P(k) = e^-v I_|k|(v) be the probability of k, and d > 0 the shift. The loss L(k) = ln
P(k - d) / P(k) is the sum of e_i over i = k - d .. k - 1, where e_i = ln P(i) / P(i + 1). The bounds of Amos
(1974) on I_{i+1} / I_i give, for i >= 0,

    asinh((i + 1/2) / v) <= e_i <= asinh((i + 1) / v),

and e_{-i-1} = -e_i. Therefore L(d - k) = -L(k). With t - t^3 / 6 <= asinh(t) <= t for t >= 0:

- for k >= d / 2, terms of opposite sign cancel, and L(k) <= d (k - d / 2) / v + d / (2 v);
- for k < d / 2, L(k) <= 0 and L(k) <= d (k - d / 2) / v + d (d - k)^3 / (6 v^3).

For y >= x with y <= 0, e^{a y} - e^{a x} <= a (y - x). For X with distribution P, E e^{t X} = exp(v (cosh t -
1)), and E |d - X|^3 <= m = (d^4 + 6 d^2 v + 3 v^2 + v)^(3/4). Therefore

    E e^{a L(X)} <= exp(v (cosh(a d / v) - 1) - a d^2 / (2 v) + a d / (2 v)) + a d m / (6 v^3).

The first summand is at least 1, so ln(x + y) <= ln x + y. As cosh t - 1 <= t^2 / 2 e^{t^2 / 12},

    (a - 1) D_a <= a (a - 1) d^2 / (2 v) + R,

    R = a^2 d^2 / (2 v) (e^{(a d / v)^2 / 12} - 1) + a (d / v) (1/2 + m / (6 v^2)).

*All coordinates.* Divergences of independent coordinates are summed. The following bounds hold for every
replaced user. The sum of d_j^2 / v_j is at most mu^2. The sum of |d_j| / v_j is at most l1. Each |d_j| / v_j
is at most step. Let v be at most every v_j, and d at least every |d_j|. The number m / v^2 decreases in v and
increases in d. Therefore

    D_a <= a mu^2 / 2 + a / (a - 1) (a mu^2 / 2 (e^{(a step)^2 / 12} - 1) + l1 (1/2 + m / (6 v^2))).

Additional noise from users who are not counted as honest is post-processing, so it does not increase the
loss.

*Epsilon.* By proposition 12 of Canonne, Kamath and Steinke (2020), for every a,
epsilon = D_a + ln(1 - 1/a) - ln(a delta) / (a - 1).

*Rejected messages.* A shuffler rejects messages with a cell that an honest device sends with probability at
most 2^-160. The release then differs from the release that is analysed here. Delta is therefore reduced by
2^-60. This exceeds (1 + e^epsilon) times the probability of such an event in 2^60 cells, for epsilon up to
25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.core import checks

_ORDERS = 1.0 + np.exp(np.linspace(math.log(1e-3), math.log(1e6), 4001))
_RESERVE = 2.0**-60
_MOST_EPSILON = 25.0


@dataclass(frozen=True)
class SkellamLoss:
    """Numbers that bound the privacy loss of a vector of integers with Skellam noise.

    Parameters
    ----------
    mu : float
        Bound of the square root of the sum of d_j^2 / v_j.
    l1 : float
        Bound of the sum of the |d_j| / v_j.
    step : float
        Bound of every |d_j| / v_j.
    shift : float
        Bound of every |d_j|.
    variance : float
        Lower bound of every v_j.

    Raises
    ------
    ValueError
        If a number is not finite and above 0.
    """

    mu: float
    l1: float
    step: float
    shift: float
    variance: float

    def __post_init__(self) -> None:
        for name in ("mu", "l1", "step", "shift", "variance"):
            object.__setattr__(self, name, checks.positive(name, getattr(self, name)))

    def renyi(self, order: float) -> float:
        """Return the bound of the Renyi divergence at an ``order`` above 1. It can be infinite."""
        half, v, d = 0.5 * order * self.mu**2, self.variance, self.shift
        power = (order * self.step) ** 2 / 12.0
        third = (d**4 + 6 * d**2 * v + 3 * v**2 + v) ** 0.75 / v**2 / 6.0
        if power > 700.0:
            return math.inf
        return half + order / (order - 1.0) * (half * math.expm1(power) + self.l1 * (0.5 + third))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at ``delta`` over the orders, or infinity.

        delta : in (2^-59, 1). Raises ``ValueError`` for another number.
        """
        delta = checks.real("delta", delta, 2.0**-59, 1.0, open_low=True, open_high=True) - _RESERVE
        found = min(self._at(order, delta) for order in _near(self, delta))
        return max(0.0, found) if found <= _MOST_EPSILON else math.inf

    def _at(self, order: float, delta: float) -> float:
        rest = math.log(delta) + math.log(order)
        return self.renyi(order) + math.log1p(-1.0 / order) - rest / (order - 1.0)


def _near(loss: SkellamLoss, delta: float) -> list[float]:
    """Return orders around the best order on a coarse grid."""
    at = [loss._at(float(order), delta) for order in _ORDERS[::40]]
    best = 40 * int(np.argmin(at))
    return [float(order) for order in _ORDERS[max(0, best - 40) : best + 41]]
