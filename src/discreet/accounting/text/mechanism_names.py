"""Names of count mechanisms in records and guarantees. No number is derived from a name."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from discreet.core.count_mechanism import CountMechanism
from discreet.core.families import POOLED_REWARDS, POOLED_TRANSITIONS


def name_of(mechanism: CountMechanism) -> str:
    """Return the name that a guarantee uses for this mechanism."""
    whole = "one noisy sum over all users" if mechanism.stored else mechanism.strategy.text()
    return "; ".join([whole, *_remarks(mechanism)])


def _remarks(mechanism: CountMechanism) -> Iterable[str]:
    query, shares = mechanism.query, mechanism.schedule.pooled_shares
    if query.groups:
        yield (
            f"returns clipped at {mechanism.counts.clip:g} are summed over public groups, and the budget of "
            "each release is split anew between them and the counts, by public shares, at the same joint loss"
        )
    if query.cut:
        yield (
            "of rewards a release holds one of two: sums over steps of each user's up to a total of C, "
            f"which is {query.cut:g} at first and never decreases, with noise in proportion to C (the "
            "composition lists it at the first one), or, from a public release on, centred ones per "
            "step; either at the same joint loss"
        )
    if shares is not None and mechanism.release_scales.size:
        first, last = (f"{share:.3g}" for share in shares[[0, -1]])
        moves = f"goes from {first} to {last} on a public schedule" if first != last else f"is {first}"
        yield (
            f"of the budget, the share of counts pooled over steps {moves}, always at the same joint "
            f"loss; the composition lists scales at share {_pooled_share(mechanism):.3g}"
        )


def _pooled_share(mechanism: CountMechanism) -> float:
    """Return the share of the privacy loss at ``scales`` that is due to counts pooled over steps."""
    names = list(mechanism.query.row_families)
    pooled = np.array([name in (POOLED_TRANSITIONS, POOLED_REWARDS) for name in names])
    power = 1.0 if mechanism.norm == "l1" else 2.0
    parts = []
    for kind in (~pooled, pooled):
        weights = dict(zip(names, (kind / mechanism.scales).tolist(), strict=True))
        parts.append(mechanism.query.sensitivity(mechanism.norm, weights) ** power)
    return parts[1] / (parts[0] + parts[1])
