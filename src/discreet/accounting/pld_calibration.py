r"""Least noise that meets (epsilon, delta), by numerical privacy-loss distributions.

Exact closed forms determine the least noise for continuous Gaussian noise, and for Laplace noise at delta =
0. In two other cases numerical computation gives less noise. For discrete Gaussian noise, the closed form of
zCDP gives 7 % too much noise at epsilon = 1, delta = 1e-6. Laplace noise at delta > 0 can be far smaller than
at delta = 0 if H >= 5.

A *way* to replace a user is a list of cells that change by known amounts
(:func:`discreet.accounting.user_shifts.shifts`). The ways that can have the largest loss are listed. Ways
with smaller changes have smaller losses and are not listed. Every cell of a way changes in each of the
``levels`` noisy sums that contain the user, and the guarantee uses the worst way. The noise must be
independent in every cell, and it must be drawn after the user's record was added (condition c in
:mod:`discreet.core.correlated_noise`). The conditions hold for batches, for trees with fresh nodes, and for
the message of one user. Two cases are not supported. Counts pooled over steps change one cell by more than
one unit. Users with several episodes can change one cell by several units, or several cells, and it is not
known which of these ways is worst. In these two cases the closed forms determine the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from discreet.accounting import pld as numerical
from discreet.accounting import pld_convolution as convolution
from discreet.accounting.user_shifts import Shift, shifts, shifts_of
from discreet.core.events import MechanismRecord
from discreet.core.families import CENTERED_REWARDS, RECORD_FAMILIES, REWARDS, TRANSITIONS
from discreet.core.query import SumQuery
from discreet.core.releases import Floats

T = TypeVar("T")
Pattern = tuple[Shift, ...]
"""One way to replace a user: (family, absolute shift, number of coordinates) for each kind of coordinate."""

_SLACK = 3e-3  # share of epsilon that the search may leave unused
_EQUAL = 1e-9  # largest relative difference between two computations of the same norm


def shift_patterns(query: SumQuery, levels: int) -> tuple[Pattern, ...] | None:
    """Return the ways to replace a user that can have the largest loss.

    The number of coordinates in a way counts all ``levels`` sums that contain the user. The result is None if
    the worst way is not known (:func:`~discreet.accounting.user_shifts.shifts`).
    """
    return _in_levels(shifts(query), levels)


def _in_levels(ways: Sequence[Pattern] | None, levels: int) -> tuple[Pattern, ...] | None:
    """Return the ways, with the number of cells in all ``levels`` sums.

    The families of a way are in the order that files use: transitions come first.
    """
    if ways is None:
        return None
    return tuple(
        tuple(
            (name, shift, count * levels)
            for name, shift, count in sorted(way, key=lambda move: move[0] != TRANSITIONS)
        )
        for way in ways
    )


def _listed_before(ways: Sequence[Pattern], horizon: int) -> tuple[Pattern, ...]:
    """Return the ways to replace a user, as versions up to 0.2.0 listed them.

    Those versions assumed that the next state can differ at all H steps.
    """
    moved = 2 * horizon
    return tuple(
        tuple((name, shift, moved if name == TRANSITIONS else count) for name, shift, count in way)
        for way in ways
    )


def extremes(ways: Sequence[T]) -> tuple[T, ...]:
    """Return the ways that usually include the worst way: first, last, and one or two in the middle.

    The ways are ordered by k, from H down to 0. The middle ways are those at which the slope of the number of
    changed transition counts (as a function of k) changes. The worst way was among the returned ways in every
    examined case. No stated epsilon depends on this, because the final epsilon is computed from all ways.
    """
    steps = len(ways) - 1
    return tuple(dict.fromkeys(ways[i] for i in (0, steps // 2, max(0, steps - 1) // 2, steps)))


def _coordinates(
    pattern: Pattern, noise: str, scales: dict[str, tuple[float, int]], factor: float
) -> tuple[numerical.Coordinate, ...]:
    return tuple(
        (noise, factor * scales[name][0] * scales[name][1], shift * scales[name][1], count)
        for name, shift, count in pattern
    )


def exchanges(
    patterns: Sequence[Pattern], noise: str, scales: Sequence[tuple[str, float, int]], factor: float = 1.0
) -> tuple[tuple[numerical.Coordinate, ...], ...]:
    """Return the ways to replace a user as coordinates with known noise and shift, for numerical accounting.

    Parameters
    ----------
    patterns : ways to replace a user; see :data:`Pattern`.
    noise : name of the noise distribution of every coordinate.
    scales : (family, scale, grid) for each family. The scale is in the units of the values, and the values
        are multiples of 1 / grid. For continuous noise, grid is 1.
    factor : factor by which all scales are multiplied.
    """
    by_name = {name: (scale, grid) for name, scale, grid in scales}
    return tuple(_coordinates(pattern, noise, by_name, factor) for pattern in patterns)


def is_listed(record: MechanismRecord, horizon: int) -> bool:
    """Return True if the exchanges in a record are the ways to replace a user with ``horizon`` steps.

    The listed exchanges are compared with the exchanges that follow from the noise and scales in the record.
    Any grid of rewards is accepted. Versions up to 0.2.0 listed larger changes. The loss of such a list is at
    least as large, so the guarantees that these versions stated are valid. Such records are also accepted,
    because ledgers contain them.
    """
    families = [family for name, family in RECORD_FAMILIES.items() if name in record.scales]
    ways = shifts_of(families, horizon)
    return any(
        _is_list(record, _in_levels(listed, record.levels) or ())
        for listed in (ways, _listed_before(ways, horizon))
    )


def _is_list(record: MechanismRecord, patterns: Sequence[Pattern]) -> bool:
    rewards = next((name for name in (CENTERED_REWARDS, REWARDS) if name in record.scales), None)
    grids = {1}
    if rewards is not None:
        units = {scale for way in record.exchanges for _, scale, _, _ in way}
        grids |= {round(scale / record.scales[rewards]) for scale in units}
    return any(
        record.exchanges
        == exchanges(
            patterns,
            record.noise,
            [(name, scale, grid if name == rewards else 1) for name, scale in record.scales.items()],
        )
        for grid in sorted(grids)
        if grid >= 1
    )


def check_listed(record: MechanismRecord) -> None:
    """Raise ``ValueError`` unless a record's exchanges match its own noise, scales and sensitivities.

    The largest norm of a change must be equal to the joint sensitivity. For the families of a count query,
    the list must also equal the list that follows from these families, the horizon and the levels. The
    horizon is determined by the sensitivity of the transition counts.
    """
    power = 1 if record.norm == "l1" else 2
    moved = max((convolution.loss_norm(way, power) for way in record.exchanges if way), default=0.0)
    if not math.isclose(moved, record.loss, rel_tol=_EQUAL):
        raise ValueError(
            f"exchanges: the worst moves {moved!r} in units of its noise, must be {record.loss!r}, by "
            "scales, joint and levels"
        )
    if {noise for way in record.exchanges for noise, *_ in way} != {record.noise}:
        raise ValueError(f"exchanges: must be of {record.noise} noise, as the record")
    if set(record.scales) <= set(RECORD_FAMILIES) and TRANSITIONS in record.scales:
        horizon = round(record.sensitivities[TRANSITIONS] ** power / 2)
        if not is_listed(record, max(horizon, 1)):
            raise ValueError(f"exchanges: must be those of a user of {horizon} steps under these scales")


def named(query: SumQuery, scales: Floats, grid: int | None) -> tuple[tuple[str, float, int], ...]:
    """Return (name, noise scale, grid of the values) for each family, in the order of the query."""
    return tuple(
        (family.name, float(scale), 1 if grid is None or family.integral else grid)
        for family, scale in zip(query.listed, scales, strict=True)
    )


@lru_cache(maxsize=64)
def least_factor(
    patterns: tuple[Pattern, ...],
    noise: str,
    scales: tuple[tuple[str, float, int], ...],
    epsilon: float,
    delta: float,
    high: float,
    guess: float,
) -> float:
    """Return the least factor <= ``high`` such that all scales times this factor meet (epsilon, delta).

    ``high`` is a factor that meets the budget by a closed form. The factor ``high`` is returned if no smaller
    factor is found. ``guess`` is the start of the search. A first search on a coarse grid of losses proposes
    a factor. The accountant that states epsilon then checks this factor on every pattern. At most about 0.3 %
    of the requested epsilon remains unused.
    """
    most = max(sum(count for *_, count in pattern) for pattern in patterns)
    ends = extremes(patterns)

    def coarse(factor: float) -> float:
        found = exchanges(ends, noise, scales, factor)
        return _over(max(numerical.coarse_epsilons(found, delta, most)), epsilon)

    def exact(factor: float) -> float:
        found = exchanges(patterns, noise, scales, factor)
        return _over(numerical.worst_epsilon(found, delta, most), epsilon)

    factor = _searched(coarse, high, min(guess, high))
    gap = exact(factor)
    if not -1.5 * _SLACK <= gap <= 0:
        factor = _searched(exact, high, factor)
        gap = exact(factor)
    return factor if gap <= 0 else high


def _over(found: float, epsilon: float) -> float:
    """Return ln(found / epsilon), which is positive if the epsilon found exceeds the requested epsilon."""
    return math.log(found / epsilon) if found > 0 else -math.inf


def _searched(excess: Callable[[float], float], high: float, guess: float) -> float:
    """Return a factor <= ``high`` at which ``excess`` is slightly below 0, if such a factor is found."""
    low, top, factor = 0.0, high, guess
    for _ in range(40):
        gap = excess(factor)
        if -_SLACK <= gap <= 0:
            break
        low, top = (max(low, factor), top) if gap > 0 else (low, min(top, factor))
        closer = factor * math.exp(gap) * (1 + _SLACK / 2)  # epsilon is nearly proportional to 1 / scale
        factor = closer if low < closer < top else 0.5 * (low + top)
        if top - low <= 1e-4 * top:
            return top
    return factor
