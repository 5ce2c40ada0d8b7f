r"""Probability that the privacy loss of a mechanism exceeds the epsilon that is stated at a delta.

P and P' are the distributions of the release for two neighbouring data sets. L = ln(P/P') at an outcome drawn
from P. (epsilon, delta)-privacy does not say P(L > epsilon) <= delta: Gaussian noise at (1, 1e-6) has P(L >
1) = 2.0e-5. A valid bound follows from the whole curve delta(.) of the mechanism. For every real number e

    delta(e) >= sup over events E of P(E) - e^e P'(E) = E[(1 - e^{e - L})_+],

and for L > epsilon > e the bracket is at least 1 - e^{e - epsilon}. Therefore

    P(L > epsilon)  <=  delta(e) / (1 - e^{e - epsilon})       for every e < epsilon,                (1)

The least of these bounds is used. Every e gives a valid bound, so validity does not depend on the search.

Choice of e. Suppose that delta(.) falls like e^{-s e} near epsilon. Then (1) is least at e = epsilon - ln(1 +
1/s). There delta(e) = (1 + 1/s)^s delta(epsilon), which is between 1 and 2.718 times delta. The logarithm of
a noise curve is concave, which changes the best e only slightly. Therefore the values of e are taken where
the curve is between 1 and 4 times delta.

For rho-zCDP the curve is the least over orders alpha of c_alpha e^{(alpha - 1)(alpha rho - e)} with c_alpha =
(1 - 1/alpha)^alpha / (alpha - 1). For one alpha, with y = epsilon - e, (1) is

    e^{(alpha - 1)(alpha rho - epsilon)} c_alpha e^{(alpha - 1) y} / (1 - e^{-y}),

and (1 - e^{-y}) e^{-(alpha - 1) y} is largest at e^{-y} = 1 - 1/alpha, where it is c_alpha. The result is
Chernoff's bound e^{(alpha - 1)(alpha rho - epsilon)}, which is least at alpha = (epsilon + rho) / (2 rho):

    P(L > epsilon)  <=  e^{-(epsilon - rho)^2 / (4 rho)}       for epsilon > rho.                    (2)

At (1, 1e-6) the bound is 5.2e-5 by the Gaussian curve. For discrete Gaussian noise whose epsilon was computed
from its exchanges (the listed ways to replace a user), it is 2.2e-4 by rho and 5.3e-5 by these exchanges.

For mechanisms on the same users the curve is that of their composition. If there are several kinds of
batches, each user is in one of them. The bound is then the largest bound of any batch, at the epsilon that is
stated for all batches.
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

__all__ = ["bound", "exceeds"]

_FINE = tuple(1.0 + 0.1 * i for i in range(31))  # multiples of delta where a closed-form curve is evaluated
_FEW = (1.7, 2.2, 2.6, 3.0)  # multiples for a numerical curve
Curve = Callable[[float], float]
"""Function from a delta to an epsilon."""


def exceeds(guarantee: Guarantee) -> dict[str, float] | None:
    """Return ``{"epsilon", "at_most"}`` with P(L > epsilon) <= at_most, rounded up to three digits.

    Returns None without a guarantee.
    """
    if guarantee.epsilon is None:
        return None
    found = _chance(guarantee, guarantee.epsilon)
    return {"epsilon": guarantee.epsilon, "at_most": min(1.0, float(up(found, 3)))}


def bound(curve: Curve, epsilon: float, delta: float, multiples: tuple[float, ...] = _FINE) -> float:
    """Return the least bound (1) at these multiples of delta, at most 1. ``curve`` maps delta to epsilon."""
    found = [1.0]
    for multiple in multiples:
        if multiple * delta < 1.0:
            order = curve(multiple * delta)
            if order < epsilon:
                found.append(multiple * delta / -math.expm1(order - epsilon))
    return min(found)


@lru_cache(maxsize=1024)
def _chance(guarantee: Guarantee, epsilon: float) -> float:
    """Return a bound on P(L > epsilon) for an epsilon not below that of the guarantee."""
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
    """Return the curve (delta to epsilon) of a record whose epsilon is computed numerically.

    For listed exchanges the curve is computed on the coarse grid, which gives an upper bound.
    """
    if isinstance(record, MechanismRecord):
        from discreet.accounting import pld as numerical

        return lambda delta: max(numerical.coarse_epsilons(record.exchanges, delta))
    return cast("Composable", record).epsilon
