r"""Probability that the privacy loss of a mechanism exceeds the epsilon that is stated at a delta.

P and P' are the distributions of the release for two neighbouring data sets. The privacy loss of an outcome
is L = ln(P/P'), where the outcome is drawn from P. (epsilon, delta)-privacy does not imply P(L > epsilon) <=
delta. For example, Gaussian noise at (1, 1e-6) has P(L > 1) = 2.0e-5. A valid bound follows from the whole
privacy curve delta(.) of the mechanism. For every real number t

    delta(t) >= sup over events A of P(A) - e^t P'(A) = E[(1 - e^{t - L})_+].

For L > epsilon > t the bracket is at least 1 - e^{t - epsilon}. Therefore

    P(L > epsilon)  <=  delta(t) / (1 - e^{t - epsilon})       for every t < epsilon.                (1)

The function uses the least of these bounds that it finds. Every t gives a valid bound, so the result is valid
even if the search does not find the best t.

Choice of t. Suppose that delta(.) falls like e^{-s t} near epsilon. Then (1) is least at t = epsilon - ln(1 +
1/s). At this t, delta(t) = (1 + 1/s)^s delta(epsilon), which is between 1 and 2.718 times delta. The
logarithm of a privacy curve is concave, which changes the best t only slightly. Therefore only values of t at
which the curve is between 1 and 4 times delta are used.

For rho-zCDP the curve is the least over orders alpha of c_alpha e^{(alpha - 1)(alpha rho - t)} with c_alpha =
(1 - 1/alpha)^alpha / (alpha - 1). For one alpha, with y = epsilon - t, the right side of (1) is

    e^{(alpha - 1)(alpha rho - epsilon)} c_alpha e^{(alpha - 1) y} / (1 - e^{-y}),

The factor (1 - e^{-y}) e^{-(alpha - 1) y} is largest at e^{-y} = 1 - 1/alpha, where it is c_alpha. The result
is Chernoff's bound e^{(alpha - 1)(alpha rho - epsilon)}, which is least at alpha = (epsilon + rho) / (2 rho):

    P(L > epsilon)  <=  e^{-(epsilon - rho)^2 / (4 rho)}       for epsilon > rho.                    (2)

Examples at (1, 1e-6): the Gaussian curve gives the bound 5.2e-5. Suppose that the epsilon of discrete
Gaussian noise was computed from the listed ways to replace a user (its exchanges). In this case (2) gives
2.2e-4, and the privacy curve computed from these exchanges gives 5.3e-5.

For several mechanisms on the same users, the curve of their composition is used. If there are several kinds
of batches, each user is in only one batch. The result is then the largest bound of any batch, at the epsilon
that is stated for all batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from discreet.accounting.text.guarantee_sentences import up
from discreet.core.epsilon_conversions import gdp_epsilon
from discreet.core.events import MechanismRecord
from discreet.core.guarantee import Guarantee

if TYPE_CHECKING:
    from discreet.core.protocols import Composable

_FINE = tuple(1.0 + 0.1 * i for i in range(31))  # multiples of delta at which a closed form is evaluated
_FEW = (1.7, 2.2, 2.6, 3.0)  # multiples of delta at which a numerical curve, which is slower, is evaluated
Curve = Callable[[float], float]
"""Privacy curve: function from a delta to an epsilon that holds at this delta."""


def exceeds(guarantee: Guarantee) -> dict[str, float] | None:
    """Return the epsilon of the guarantee and a bound on the probability that the privacy loss L exceeds it.

    The result is ``{"epsilon": epsilon, "at_most": bound}`` with P(L > epsilon) <= bound. The bound is
    rounded up to three digits. The result is None if the guarantee states no epsilon.
    """
    if guarantee.epsilon is None:
        return None
    found = _chance(guarantee, guarantee.epsilon)
    return {"epsilon": guarantee.epsilon, "at_most": min(1.0, float(up(found, 3)))}


def bound(curve: Curve, epsilon: float, delta: float, multiples: tuple[float, ...] = _FINE) -> float:
    """Return the least value of bound (1) in the module docstring, or 1 if that value exceeds 1.

    The values t in (1) are the epsilons of ``curve`` at these multiples of delta.
    """
    found = [1.0]
    for multiple in multiples:
        if multiple * delta < 1.0:
            order = curve(multiple * delta)
            if order < epsilon:
                found.append(multiple * delta / -math.expm1(order - epsilon))
    return min(found)


@lru_cache(maxsize=1024)
def _chance(guarantee: Guarantee, epsilon: float) -> float:
    """Return a bound on P(L > epsilon). ``epsilon`` must be at least the epsilon of the guarantee."""
    if guarantee.kinds:
        return max(_chance(one, epsilon) for _, one in guarantee.kinds)
    if guarantee.delta == 0.0:
        return 0.0
    return min(_bounds(guarantee, epsilon))


def _bounds(guarantee: Guarantee, epsilon: float) -> Iterator[float]:
    delta, records = guarantee.delta, guarantee.records
    yield 1.0
    if guarantee.mu is not None:
        mu = guarantee.mu
        yield bound(lambda at: gdp_epsilon(mu, at), epsilon, delta)
    elif guarantee.rho is not None and epsilon > guarantee.rho:
        yield math.exp(-((epsilon - guarantee.rho) ** 2) / (4.0 * guarantee.rho))
    if any(record.numerical for record in records):
        (record,) = records
        yield bound(_numerical(record), epsilon, delta, _FEW)
        if isinstance(record, MechanismRecord) and record.norm == "l1" and record.loss <= epsilon:
            yield 0.0


def _numerical(record: Any) -> Curve:
    """Return the privacy curve of a record whose epsilon is computed numerically.

    If the record lists its exchanges, the curve is computed on a coarse grid, which gives an upper bound.
    """
    if isinstance(record, MechanismRecord):
        from discreet.accounting import pld as numerical

        return lambda delta: max(numerical.coarse_epsilons(record.exchanges, delta))
    return cast("Composable", record).epsilon
