r"""Composition of all releases about the same users, and a privacy filter for further releases.

The module answers two different questions.

*What is the total privacy loss of these mechanisms?* :func:`composed` answers this question. The mechanisms
are fixed in advance, but the output of one can be an input of the next. The result is the least of these
values, each of which is valid:

- the sum of the pure epsilons, if every mechanism has a pure epsilon (at delta = 0 this is the only value);
- the epsilon at delta of Gaussian noise whose mu^2 is the sum of all mu^2, by the exact curve. A mechanism
  that is epsilon-DP can be included with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)). Proof: its trade-off
  function is convex and at least that of randomized response. Let a = 1 / (1 + e^epsilon). The trade-off
  function of randomized response is a polygon with the corners (0, 1), (a, a) and (1, 0). The convex curve
  G_mu is below this polygon if it is below the corner (a, a) (Dong, Roth and Su 2022);
- the epsilon of zCDP with the sum of all rho (Bun and Steinke 2016), by the best Renyi order at delta.
  Gaussian noise, discrete or not, has rho = mu^2 / 2. A mechanism that is epsilon-DP has rho = epsilon
  tanh(epsilon / 2) (:func:`pure_rho`);
- the epsilon by numerical privacy-loss distributions of all coordinates (:mod:`discreet.accounting.pld`), if
  the records list their coordinates and the number of coordinates is not too large. Suppose that one of
  several records lists several ways to replace a user. The coordinates of all its ways are then combined into
  one way. The way that applies can depend on the other releases, so the worst single combination of ways
  would give an epsilon that is too small.

A record that has Laplace noise in several sums and lists no exchanges counts as one mechanism. The epsilon of
this mechanism is the total of the epsilons of these sums. The reason is that the record does not state when
its noise was drawn. If noise is drawn before the records that it protects
(:mod:`discreet.core.correlated_noise.signed_digit_tree`), the sums cannot be composed one by one. An attacker
who knows the releases before a user arrives knows all differences of the L noises that protect the user. The
attacker can choose cells for the user in which the L noises are nearly equal. Then the protection of the user
is that of one noise of scale b / L, not that of L noises of scale b.

Shuffled sums over contexts (Skellam noise) have no rho, because their Renyi divergence D_a grows faster than
a. For orders a from 1.25 to 256, D_a <= a rho with rho = max(D_a / a at both ends). Proof: D_a / a is the sum
of a constant, of terms c a^(2 k + 1) / (a - 1), and of c / (a - 1), with c >= 0. All terms are convex in a >
1. The divergences of one order add up, also for adaptively chosen mechanisms. So the rules of zCDP hold with
this rho, if epsilon is computed from these orders only. Each user is in one batch, so rho is that of the
worst batch. The shuffler can reject the messages of honest users, with probability below 2^-60
(:mod:`discreet.accounting.skellam_loss`). Delta is reduced by 2^-40, which is enough for 2^20 records.

*Is one more release allowed?* :func:`filtered` answers this question. In this case earlier releases can
influence the next mechanism and its noise, and the decision to have a next mechanism. Composition theorems
for mechanisms that are fixed in advance then do not apply, and a numerical privacy-loss distribution is not a
filter. Privacy filters do apply. A filter has a bound that is set in advance, and it stops before the total
loss exceeds this bound. The guarantee of the whole interaction is then the bound. There are these filters:

- pure: sum of epsilons (Rogers, Roth, Ullman and Vadhan 2016);
- zCDP: sum of rho (Feldman and Zrnic 2021; Lecuyer 2021);
- Gaussian: sum of mu^2 (Smith and Thakurta 2022).

These filters are also valid for interactive mechanisms that run at the same time (Haney et al. 2023), because
a reservation is made before its mechanism receives data.

This module uses the following rule. A reservation in the ledger is accepted in two cases: the pure filter
certifies (epsilon, delta), or the one *approximate* rule of the data set certifies (epsilon, delta). The
losses of the two rules are not summed. Proof: let A be the set of transcripts that end inside the pure bound.
Let B be the set of all other transcripts, which end inside the approximate bound. Stopping at a bound changes
no probability inside it. So for every event E, P(E) = P(E in A) + P(E in B) <= e^epsilon P'(E in A) +
e^epsilon P'(E in B) + delta, because the pure rule has no delta. Each data set has only one approximate rule.
The *first* reservation determines this rule, because no release has influenced that reservation:

- all mechanisms of the first reservation are continuous Gaussian: the Gaussian filter, which excludes
  discrete Gaussian noise (it has no mu);
- a mechanism of the first reservation has Skellam noise: the filter of the Renyi orders of this module. If
  the first reservation has no Skellam noise, no later reservation with Skellam noise is certified, because
  its rule would be another one;
- otherwise: the zCDP filter. In addition, the first reservation (but no later one) is accepted if
  :func:`composed` certifies it. The result of :func:`composed` is tighter (7 % for discrete Gaussian noise).
  It is valid because the mechanism of the first reservation is fixed in advance. If the rho of this mechanism
  is within the bound of the filter, the filter covers all reservations. Otherwise no second reservation is
  accepted.

Mechanisms that are chosen together should therefore be reserved together. If a limit is increased after
releases were seen, only the higher limit is guaranteed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.special import expit, ndtri

from discreet.accounting import budget
from discreet.accounting import pld as numerical
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.accounting.skellam_event import SkellamRecord
from discreet.core import checks
from discreet.core.guarantee import MechanismRecord

Record = MechanismRecord | ReportRecord | SkellamRecord

_MOST_COORDINATES = 2000  # with more coordinates, only closed forms are used
_ORDERS = np.exp(np.linspace(math.log(1.25), math.log(256.0), 4001))  # for records without rho
_RESERVE = 2.0**-40
_MOST_EPSILON = 25.0

PURE, GAUSSIAN, ZCDP, NUMERICAL, NONE, RENYI = (
    "sum of epsilons", "Gaussian curve of mu", "zCDP, best Renyi order of rho",
    "numerical privacy-loss distributions", "none at this delta", "best Renyi order of the record",
)  # fmt: skip


def check_records(records: Sequence[object]) -> tuple[Record, ...]:
    """Return the records. Raises ``ValueError`` for counts of shuffled batches, which no rule composes."""
    found = [one for one in records if isinstance(one, MechanismRecord | ReportRecord | SkellamRecord)]
    if len(found) < len(records):
        raise ValueError(
            "records: must be of MechanismRecord, ReportRecord or SkellamRecord (counts of shuffled batches "
            "have a separate guarantee, which no ledger composes)"
        )
    return tuple(found)


# ------------------------------------------------------------------------------ one mechanism


def pure_rho(epsilon: float) -> float:
    r"""Return epsilon tanh(epsilon / 2), the rho for which every epsilon-DP mechanism is rho-zCDP.

    Randomized response dominates the mechanism (Kairouz, Oh and Viswanath 2015). The divergence of order
    alpha of randomized response is 1/(alpha - 1) ln[cosh((alpha - 1/2) epsilon) / cosh(epsilon / 2)]. This
    divergence is epsilon times the mean of tanh over [epsilon / 2, (alpha - 1/2) epsilon]. The function tanh
    is concave on this interval. The mean is therefore at most its value at the middle, tanh(alpha epsilon /
    2), which is at most alpha tanh(epsilon / 2). The bound is tight as alpha decreases to 1.
    """
    return epsilon * math.tanh(0.5 * epsilon)


def pure_mu(epsilon: float) -> float:
    """Return the least mu such that every epsilon-DP mechanism is mu-GDP.

    This mu is 2 Phi^-1(e^epsilon / (1 + e^epsilon)).
    """
    return float(-2.0 * ndtri(expit(-epsilon)))


def _pure_parts(record: Record) -> tuple[float, int] | None:
    """Return the epsilon of one part of a record with independent noise, and the number of parts.

    The result is None for Gaussian noise, which has no pure epsilon.
    """
    if isinstance(record, SkellamRecord):
        return None
    if isinstance(record, ReportRecord):
        return record.loss / record.reports, record.reports
    return (record.loss, 1) if record.norm == "l1" else None


def pure_loss(record: Record) -> float | None:
    """Return the epsilon of a record at delta = 0, or None for Gaussian noise, which has no pure epsilon."""
    return None if isinstance(record, SkellamRecord) or record.norm != "l1" else record.loss


def gdp_loss(record: Record) -> float | None:
    """Return the mu^2 of a record in Gaussian DP, or None for other noise in integers (no mu is proved)."""
    if isinstance(record, SkellamRecord):
        return None
    parts = _pure_parts(record)
    if parts is not None:
        return parts[1] * pure_mu(parts[0]) ** 2
    return record.loss**2 if record.noise == "gaussian" else None


def zcdp_loss(record: Record) -> float:
    """Return the rho of a record in zCDP.

    The rho follows from the joint sensitivity, or from the worst listed exchange if that gives a smaller rho.
    For Skellam noise, it holds for the orders of this module only.
    """
    if isinstance(record, SkellamRecord):
        return max(record.renyi(float(order)) / float(order) for order in (_ORDERS[0], _ORDERS[-1]))
    parts = _pure_parts(record)
    rho = 0.5 * record.loss**2 if parts is None else parts[1] * pure_rho(parts[0])
    if isinstance(record, MechanismRecord) and record.exchanges:
        rho = min(rho, max(math.fsum(map(_coordinate_rho, moved)) for moved in record.exchanges))
    return rho


def total_rho(records: Sequence[Record]) -> float | None:
    """Return the rho of zCDP of all records together, or None if a record has no rho for all orders."""
    return None if _has_skellam(records) else math.fsum(map(zcdp_loss, records))


def _coordinate_rho(coordinate: numerical.Coordinate) -> float:
    noise, scale, shift, count = coordinate
    unit = abs(shift) / scale
    return count * (0.5 * unit**2 if noise.endswith("gaussian") else pure_rho(unit))


def covers(records: Sequence[Record], others: Sequence[Record]) -> bool:
    """Return True if ``records`` have at least the loss of ``others`` in every rule of this module.

    ``records`` and ``others`` are about different users, and no user is in both. For Gaussian noise, every
    rule is monotone in the sum of the squared losses. For Laplace noise, the sum of the epsilons is not
    enough: in zCDP and Gaussian DP, ten mechanisms of epsilon 0.1 have a smaller loss than one of epsilon 1.
    Each record in ``others`` must therefore be matched with a different record in ``records`` that has at
    least the same loss. A total that contains ``records`` is then valid for the users of ``others`` too. The
    result is False if the kinds of noise differ. The result is also False if a record lists exchanges,
    because its epsilon is then below the closed form.
    """
    both = [record for record in (*records, *others) if type(record) is MechanismRecord]
    if not records or not others or len(both) < len(records) + len(others):
        return False
    if len({record.noise for record in both}) > 1 or any(record.numerical for record in both):
        return False
    sides = both[: len(records)], both[len(records) :]
    own, least = (sorted((record.loss for record in side), reverse=True) for side in sides)
    if both[0].norm == "l1":
        return len(least) <= len(own) and all(a >= b for a, b in zip(own, least, strict=False))
    return math.fsum(loss**2 for loss in least) <= math.fsum(loss**2 for loss in own)


# ------------------------------------------------------------------------------ given mechanisms


def composed(records: Sequence[Record], delta: float) -> tuple[float, str]:
    """Return the total epsilon at ``delta`` of mechanisms on the same users, and the name of the method.

    The method with the least epsilon is used. If no method gives a bound, epsilon is infinity (for example
    for Gaussian noise at delta = 0). Raises ``ValueError`` for an invalid delta.

    records : records of the mechanisms, in any order. Without records epsilon is 0.
    delta : delta of the guarantee, in [0, 1).
    """
    delta = checks.real("delta", delta, 0.0, 1.0, open_high=True)
    found = closed(records, delta)
    if records and all(
        isinstance(record, MechanismRecord) and record.noise == "gaussian" for record in records
    ):
        return found  # the closed form is exact for Gaussian noise
    if len(records) == 1 and isinstance(records[0], SkellamRecord) and delta > _RESERVE:
        return min(found, (records[0].epsilon(delta), RENYI), key=lambda pair: pair[0])
    if delta >= numerical.LEAST_DELTA and found[1] != NONE and found[0] > 0:
        ways = _coordinates(records)
        if ways:
            found = min(found, (numerical.worst_epsilon(ways, delta), NUMERICAL), key=lambda pair: pair[0])
    return found


def closed(records: Sequence[Record], delta: float) -> tuple[float, str]:
    """Return the result of :func:`composed` from closed forms only.

    The numerical method, which can take seconds, is not used. The epsilon is never below that of
    :func:`composed`.
    """
    delta = checks.real("delta", delta, 0.0, 1.0, open_high=True)
    return min(_pure(records), _gaussian(records, delta), _zcdp(records, delta), key=lambda pair: pair[0])


def _pure(records: Sequence[Record]) -> tuple[float, str]:
    losses = [pure_loss(record) for record in records]
    known = [loss for loss in losses if loss is not None]
    return (math.fsum(known), PURE) if len(known) == len(losses) else (math.inf, NONE)


def _gaussian(records: Sequence[Record], delta: float) -> tuple[float, str]:
    losses = [gdp_loss(record) for record in records]
    known = [loss for loss in losses if loss is not None]
    if not delta or not known or len(known) < len(losses):
        return math.inf, NONE
    squared = math.fsum(known)
    return (
        (budget.gdp_epsilon(math.sqrt(squared), delta), GAUSSIAN)
        if 0 < squared < math.inf
        else (squared, GAUSSIAN)
    )


def _zcdp(records: Sequence[Record], delta: float) -> tuple[float, str]:
    rho = math.fsum(map(zcdp_loss, records))
    if not delta or not records:
        return math.inf, NONE
    if _has_skellam(records):
        return _of_orders(rho, delta)
    return (budget.zcdp_epsilon(rho, delta) if rho > 0 else 0.0, ZCDP)


def _has_skellam(records: Sequence[Record]) -> bool:
    return any(isinstance(record, SkellamRecord) for record in records)


def _of_orders(rho: float, delta: float) -> tuple[float, str]:
    """Return the epsilon at ``delta`` from the orders of this module, and the name of the method."""
    if delta <= 2.0 * _RESERVE:
        return math.inf, NONE
    rest = (math.log(delta - _RESERVE) + np.log(_ORDERS)) / (_ORDERS - 1.0)
    found = max(0.0, float((_ORDERS * rho + np.log1p(-1.0 / _ORDERS) - rest).min()))
    return (found, ZCDP) if found <= _MOST_EPSILON else (math.inf, NONE)


def _coordinates(records: Sequence[Record]) -> tuple[tuple[numerical.Coordinate, ...], ...] | None:
    """Return the ways to replace a user in all records together, or None if they are unknown or too many."""
    if len(records) == 1 and isinstance(records[0], MechanismRecord) and records[0].exchanges:
        return records[0].exchanges  # the same tuple as in calibration, so that its cached result is used
    together: Counter[tuple[str, float, float]] = Counter()
    for record in records:
        parts = _pure_parts(record)
        if isinstance(record, MechanismRecord) and record.exchanges:
            together += _all_ways(record.exchanges)
        elif parts is not None:
            together["pure", 1.0, parts[0]] += parts[1]
        # a shift of a Gaussian vector has the same loss as a shift of one coordinate
        elif not isinstance(record, SkellamRecord) and record.noise == "gaussian":
            together["gaussian", 1.0, record.loss] += 1
        else:
            return None
    if together.total() > _MOST_COORDINATES:
        return None
    moved = tuple((*kind, count) for kind, count in together.items() if kind[2])
    return (moved,) if moved else ()


def _all_ways(
    exchanges: Sequence[tuple[numerical.Coordinate, ...]],
) -> Counter[tuple[str, float, float]]:
    """Return, for each kind of coordinate, the largest number of such coordinates in any way.

    All these coordinates together have at least the loss of any single way.
    """
    found: Counter[tuple[str, float, float]] = Counter()
    for way in exchanges:
        counts: Counter[tuple[str, float, float]] = Counter()
        for noise, scale, shift, count in way:
            counts[noise, scale, abs(shift)] += count
        found |= counts
    return found


# ------------------------------------------------------------------------------ adaptively chosen mechanisms


def filtered(
    reservations: Sequence[Sequence[Record]], delta: float, *, numerical: bool = True
) -> tuple[float, str]:
    """Return the least epsilon at ``delta`` that a filter certifies for these reservations, and its rule.

    Epsilon is infinity if no rule covers the reservations. Raises ``ValueError`` for an invalid delta.

    Parameters
    ----------
    reservations : the records of each reservation, in order of time.
    delta : delta of the limit, in [0, 1).
    numerical : if False, only closed forms are used, even for the first reservation.
    """
    delta = checks.real("delta", delta, 0.0, 1.0, open_high=True)
    records = [record for reservation in reservations for record in reservation]
    if len(reservations) <= 1:
        return composed(records, delta) if numerical else closed(records, delta)
    if all(isinstance(record, MechanismRecord) and record.noise == "gaussian" for record in reservations[0]):
        rule = _gaussian(records, delta)
    elif _has_skellam(records) and not _has_skellam(reservations[0]):
        rule = (math.inf, NONE)  # the first reservation has determined the rule of all orders
    else:
        rule = _zcdp(records, delta)
    return min(_pure(records), rule, key=lambda pair: pair[0])
