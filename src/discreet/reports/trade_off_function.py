r"""Bounds on attackers who test which of two users' data were used.

The attacker sees all releases and knows all other users' data. The attacker tests whether the dataset x or
its neighbour x' was the input. All such tests are described by a curve: the largest true positive rate t at
each false positive rate f. If several privacy notions are known for a mechanism, the smallest bound is used.

- (epsilon, delta): t <= min(e^epsilon f + delta, 1 - e^{-epsilon} (1 - delta - f)) (Kairouz, Oh and Viswanath
  2015);
- mu-GDP: t <= Phi(mu + Phi^{-1}(f)), exactly (Dong, Roth and Su 2022);
- rho-zCDP: for every order a > 1, the Renyi divergences between the
  Bernoulli distributions with means t and f satisfy D_a(t || f) <= a rho and D_a(f || t) <= a rho. The bound
  is found by bisection in t, for many orders; each single order gives a valid bound.

Let H(epsilon) be the supremum over all tests of t - e^epsilon f. This is the hockey-stick divergence at
epsilon, which equals the smallest delta at this epsilon. Then:

- The attacker's advantage is sup t - f = H(0). For zCDP, the set of possible pairs (f, t) is convex and
  symmetric under (f, t) -> (1 - t, 1 - f), so the largest difference has t = 1 - f.
- At prior p <= 1/2 or 1 - p, the best guess is right with probability 1 - p + p H(ln((1 - p) / p)).
- The posterior after a positive answer is p t / (p t + (1 - p) f). The largest t is concave in f. Therefore,
  among all tests whose false positive rate is at least f, the posterior is largest at f. At a pure epsilon,
  no outcome raises the odds between the two records by more than a factor of e^epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from discreet.accounting import budget
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.core import checks
from discreet.core.guarantee import Guarantee, MechanismRecord

_ORDERS = 1.0 + np.geomspace(1e-4, 1e6, 401)


@dataclass(frozen=True)
class TradeOff:
    """Bounds on every test that distinguishes two neighbouring datasets.

    Parameters
    ----------
    points : pairs (epsilon >= 0, delta in [0, 1)); the mechanism satisfies every pair. If ``points`` is empty
        and ``mu`` and ``rho`` are None, there is no guarantee.
    mu, rho : parameters of Gaussian DP and of zCDP; None if no parameter is known.
    """

    points: tuple[tuple[float, float], ...] = ()
    mu: float | None = None
    rho: float | None = None

    @classmethod
    def of(cls, guarantee: Guarantee, records: Sequence[MechanismRecord | ReportRecord] = ()) -> TradeOff:
        """Return all bounds that are known from a guarantee and its mechanism records.

        If the noise of all records is calibrated to the l1 norm, the sum of their losses is a pure epsilon.
        """
        if guarantee.epsilon is None:
            return cls()
        points = [(guarantee.epsilon, guarantee.delta)]
        if guarantee.delta and records and all(record.norm == "l1" for record in records):
            points.append((math.fsum(record.loss for record in records), 0.0))
        return cls(tuple(points), guarantee.mu, guarantee.rho)

    @property
    def pure(self) -> float | None:
        """Smallest epsilon at delta = 0; None if no pure epsilon is known."""
        return min((epsilon for epsilon, delta in self.points if delta == 0.0), default=None)

    def group(self, people: int) -> TradeOff:
        """Return the bounds for a group of ``people`` users whose data are all replaced at once.

        The bounds follow from group privacy (:func:`discreet.accounting.budget.group`).
        """
        people = checks.integer("people", people, 1)
        points = []
        for epsilon, delta in self.points:
            if epsilon == 0.0:
                points.append((0.0, min(people * delta, 1.0)))
                continue
            try:
                many: Any = budget.group(budget.stated(epsilon, delta), people)
            except ValueError:  # delta of the group would be 1 or more: no bound from this point
                continue
            points.append((many.epsilon, getattr(many, "delta", 0.0)))
        mu = None if self.mu is None else people * self.mu
        rho = None if self.rho is None else people**2 * self.rho
        return TradeOff(tuple(point for point in points if point[1] < 1.0), mu, rho)

    def epsilon(self, delta: float) -> float | None:
        """Return the smallest known epsilon at this delta in [0, 1); None if no epsilon is known."""
        found = [e for e, d in self.points if d <= delta]
        if delta > 0.0 and self.mu is not None:
            found.append(budget.gdp_epsilon(self.mu, delta))
        if delta > 0.0 and self.rho is not None:
            found.append(budget.zcdp_epsilon(self.rho, delta))
        return min(found, default=None)

    def power(self, false_positives: float) -> float:
        """Return the largest true positive rate at this false positive rate in (0, 1)."""
        f = checks.real("false_positives", false_positives, 0.0, 1.0, open_low=True, open_high=True)
        found = [1.0]
        for e, d in self.points:
            if e < 700.0:
                found.append(math.exp(e) * f + d)
            found.append(1.0 - math.exp(-e) * (1.0 - d - f))
        if self.mu is not None:
            found.append(float(ndtr(self.mu + ndtri(f))))
        if self.rho is not None:
            found.append(_largest(self.rho, f))
        return max(f, min(found))

    def excess(self, epsilon: float) -> float:
        """Return H(epsilon), an upper bound on t - e^epsilon f over all tests.

        The bound is a valid delta at this ``epsilon``, which must be at least 0.
        """
        epsilon = checks.real("epsilon", epsilon, 0.0)
        found = [1.0]
        for e, d in self.points:
            # In the worst pair of distributions under (e, d), the record is revealed with probability d.
            # Otherwise, the outcome is a randomized bit whose odds are exp(e).
            gain = max(0.0, -math.expm1(epsilon - e)) / (1.0 + math.exp(-e)) if e > epsilon else 0.0
            found.append(d + (1.0 - d) * gain)
        if self.mu is not None:
            found.append(budget.gdp_delta(self.mu, epsilon))
        if self.rho is not None:
            found.append(budget.zcdp_delta(self.rho, epsilon))
            if epsilon == 0.0:
                found.append(2.0 * _largest(self.rho) - 1.0)
        return min(found)

    @property
    def advantage(self) -> float:
        """Largest value of t - f (the attacker's advantage)."""
        return self.excess(0.0)

    def right_guess(self, prior: float) -> float:
        """Return the largest probability of a correct guess by the attacker, at this prior in (0, 1)."""
        p = checks.real("prior", prior, 0.0, 1.0, open_low=True, open_high=True)
        p = min(p, 1.0 - p)
        return 1.0 - p + p * self.excess(math.log((1.0 - p) / p))

    def posterior(self, prior: float, false_positives: float | None = None) -> float | None:
        """Return the largest posterior after a positive answer of a test.

        false_positives : least false positive rate of the test. None: the bound holds after
            any outcome, and the result is None if no pure epsilon is known
        """
        p = checks.real("prior", prior, 0.0, 1.0, open_low=True, open_high=True)
        if false_positives is None:
            return None if self.pure is None else p / (p + (1.0 - p) * math.exp(-self.pure))
        t = self.power(false_positives)
        return p * t / (p * t + (1.0 - p) * false_positives)


@lru_cache(maxsize=1024)
def _largest(rho: float, false_positives: float | None = None) -> float:
    """Return the largest true positive rate t that rho-zCDP allows at a false positive rate f.

    If ``false_positives`` is None, f = 1 - t. The result is the minimum over all orders. The Renyi
    divergences D(t || f) and D(f || t) increase in t for t >= f, or for t >= 1/2 if f = 1 - t. The result is
    rounded up.
    """
    low = 0.5 if false_positives is None else false_positives
    below, above = np.full(_ORDERS.shape, low), np.ones(_ORDERS.shape)
    for _ in range(60):
        t = 0.5 * (below + above)
        f = 1.0 - t if false_positives is None else np.full_like(t, low)
        allowed = np.maximum(_divergence(t, f), _divergence(f, t)) <= _ORDERS * rho
        below, above = np.where(allowed, t, below), np.where(allowed, above, t)
    return float(above.min())


def _divergence(p: Any, q: Any) -> Any:
    """Return the Renyi divergence between Bernoulli distributions with means p and q for every order."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = _ORDERS * np.log(p) + (1.0 - _ORDERS) * np.log(q)
        tails = _ORDERS * np.log1p(-p) + (1.0 - _ORDERS) * np.log1p(-q)
        found = np.logaddexp(heads, tails) / (_ORDERS - 1.0)
    return np.where(np.isnan(found), np.inf, found)
