r"""Least noise that meets (epsilon, delta), by numerical privacy-loss distributions.

The noise of continuous Gaussians, and of Laplace variables at delta = 0, is set by exact closed forms. Two
cases need numerical computation. Discrete Gaussian noise has the closed form of zCDP (7 % too much noise at
epsilon = 1, delta = 1e-6). Laplace noise at delta > 0 can be far smaller than at delta = 0 if H >= 5.

Changes by one replaced user. The query lists the undominated ways to replace a user, as cells that move by
known amounts (:meth:`discreet.core.query.SumQuery.shifts`). (Smaller moves are dominated, because a smaller
shift has a smaller loss.) Every coordinate is shifted in each of the ``levels`` noisy sums that contain the
user, and the guarantee is the worst over the ways. The noise must be independent by coordinate and drawn
after the user's record was added (:mod:`discreet.core.correlated_noise`, c). This holds for batches, trees
with fresh nodes, and one user's own message. Counts pooled over steps move one cell by more than a unit and
are not covered. Users with several episodes are not covered either: they can move one cell by several units,
or several cells, and it is not known which of these ways is worst. The noise for pooled counts and for
several episodes comes from the closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from discreet.accounting import pld as numerical
from discreet.accounting import pld_convolution as convolution
from discreet.core.events import MechanismRecord
from discreet.core.families import CENTERED_REWARDS, RECORD_FAMILIES, REWARDS, TRANSITIONS
from discreet.core.query import Shift, SumQuery, shifts_of
from discreet.core.releases import Floats

T = TypeVar("T")
Pattern = tuple[Shift, ...]
"""(family, absolute shift, number of coordinates) of one way to replace a user."""

_SLACK = 3e-3  # relative to epsilon: the part that the search can leave unused
_EQUAL = 1e-9  # relative difference between two computations of the same norm

__all__ = [
    "Pattern", "check_listed", "exchanges", "extremes", "is_listed", "least_factor", "named",
    "shift_patterns",
]  # fmt: skip


def shift_patterns(query: SumQuery, levels: int) -> tuple[Pattern, ...] | None:
    """Return the undominated ways to replace a user, in all ``levels`` sums that contain the user.

    Returns None if the worst way is not known (:meth:`~discreet.core.query.SumQuery.shifts`).
    """
    return _in_levels(query.shifts(), levels)


def _in_levels(ways: Sequence[Pattern] | None, levels: int) -> tuple[Pattern, ...] | None:
    """Return the ways in the order of files, transitions first, with the cells of all ``levels`` sums."""
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
    """Return the ways as versions up to 0.2.0 listed them: they let all H steps differ in the successor."""
    moved = 2 * horizon
    return tuple(
        tuple((name, shift, moved if name == TRANSITIONS else count) for name, shift, count in way)
        for way in ways
    )


def extremes(ways: Sequence[T]) -> tuple[T, ...]:
    """Return the first and last way (k = H down to 0), and those where the slope of transitions changes.

    The worst way was among these in every case that was examined. No epsilon depends on that: the final
    epsilon is computed from all ways.
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
    """Return the patterns as coordinates of known noise and shift, the input of accounting.

    Parameters
    ----------
    patterns : see :data:`Pattern`.
    noise : family of every coordinate's noise.
    scales : (family, scale, grid) for each family. The scale is in the units of the values, and the values
        are multiples of 1 / grid (grid is 1 for continuous noise).
    factor : multiplies all scales.
    """
    by_name = {name: (scale, grid) for name, scale, grid in scales}
    return tuple(_coordinates(pattern, noise, by_name, factor) for pattern in patterns)


def is_listed(record: MechanismRecord, horizon: int) -> bool:
    """Return whether a record's exchanges are those of a user with ``horizon`` steps, given its noise and
    scales.

    Any grid of rewards is accepted. Versions up to 0.2.0 listed longer moves. These dominate the current
    ones, so the guarantees stated then are valid. Records of those versions stay readable, because ledgers
    keep them.
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

    The worst way must move exactly the joint sensitivity. If the families are those of a count query, the
    list must be the one that follows from these families, from the horizon (determined by the transitions'
    own sensitivity) and from the levels.
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
    """Return (family, scale, grid of its values) for each family, in the order of the query."""
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
    """Return the least factor <= ``high`` on all scales that meets (epsilon, delta), or ``high``.

    ``high`` is a factor that meets the budget by a closed form, ``guess`` the start of the search. A first
    search, on a coarse grid of losses, proposes a factor. The returned factor is checked on every pattern
    with the accountant that states epsilon, with at most about 0.3 % of epsilon unused.
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
    """Return ln(found epsilon / requested epsilon)."""
    return math.log(found / epsilon) if found > 0 else -math.inf


def _searched(excess: Callable[[float], float], high: float, guess: float) -> float:
    """Return a factor, at most ``high``, whose excess is slightly below 0, if there is one."""
    low, top, factor = 0.0, high, guess
    for _ in range(40):
        gap = excess(factor)
        if -_SLACK <= gap <= 0:
            break
        low, top = (max(low, factor), top) if gap > 0 else (low, min(top, factor))
        closer = factor * math.exp(gap) * (1 + _SLACK / 2)  # epsilon falls approximately as 1 / scale
        factor = closer if low < closer < top else 0.5 * (low + top)
        if top - low <= 1e-4 * top:
            return top
    return factor
