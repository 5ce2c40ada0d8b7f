"""Names of count mechanisms in records and guarantees. No number is derived from a name."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from discreet.core import count_kernels as kernels
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.count_mechanism import Batches, CountMechanism, OnDevice
from discreet.core.count_query import POOLED_REWARDS, POOLED_TRANSITIONS

__all__ = ["name_of"]


def name_of(mechanism: CountMechanism) -> str:
    """Return the name of the mechanism in its guarantee."""
    return "; ".join([_core_words(mechanism), *_remarks(mechanism)])


def _core_words(mechanism: CountMechanism) -> str:
    strategy, walk, leaf = mechanism.strategy, mechanism.walk, mechanism.leaf
    if mechanism.stored:
        return "one noisy sum over all users"
    if isinstance(strategy, OnDevice):
        return "each user's own counters on the device"
    if isinstance(strategy, Batches) and not strategy.decay:
        return "one noisy sum for each scheduled batch of users"
    if isinstance(strategy, Batches):
        return (
            f"one noisy sum for each scheduled release, of all batches decaying by {strategy.decay:g} a "
            "release (a user's column has l2 norm below 1, so it costs no more than one sum)"
        )
    if isinstance(walk, SignedDigits):
        return (
            f"signed-digit trees of arity {walk.arity}, a leaf is a {leaf} (noise of blocks ahead of "
            "their data, which a pure epsilon allows)"
        )
    if isinstance(walk, SquareRoot):
        return (
            f"noise correlated by a Toeplitz matrix near the square root of summation, a leaf is a {leaf} (a "
            "user's column of the strategy has l2 norm at most 1, so it costs no more than one sum)"
        )
    if isinstance(walk, OptimalTree):
        return f"binary tree, a leaf is a {leaf}, released as least-squares estimates from its nodes"
    if mechanism.schedule.users is not None:
        return f"binary tree, a leaf is a {leaf}"
    growth = "e + 1" if mechanism.family == kernels.LAPLACE else "sqrt(e + 1)"
    return (
        "binary trees over epochs of 1, 2, 4, ... users, a leaf is a user; in epoch e = 0, 1, ... "
        f"with e + 1 levels and {growth} times the scales of epoch 0, which are given here"
    )


def _remarks(mechanism: CountMechanism) -> Iterable[str]:
    query, shares = mechanism.query, mechanism.schedule.pooled_shares
    if query.groups:
        yield (
            f"returns clipped at {query.clip:g} are summed over public groups, and the budget of each "
            "release is split anew between them and the counts, by public shares, at the same joint loss"
        )
    if query.cut:
        yield (
            "of rewards a release holds one of two: sums over steps of each user's up to a total of C, "
            f"which is {query.cut:g} at first and never decreases, with noise in proportion to C (the "
            "composition lists it at the first one), or, from a public release on, centred ones per "
            "step; either at the same joint loss"
        )
    if shares is not None and mechanism.by_release.size:
        first, last = (f"{share:.3g}" for share in shares[[0, -1]])
        moves = f"goes from {first} to {last} on a public schedule" if first != last else f"is {first}"
        yield (
            f"of the budget, the share of counts pooled over steps {moves}, always at the same joint "
            f"loss; the composition lists scales at share {_pooled_share(mechanism):.3g}"
        )


def _pooled_share(mechanism: CountMechanism) -> float:
    """Return the part of the loss at ``scales`` that is due to counts pooled over steps."""
    names = list(mechanism.query.row_families)
    pooled = np.array([name in (POOLED_TRANSITIONS, POOLED_REWARDS) for name in names])
    power = 1.0 if mechanism.norm == "l1" else 2.0
    parts = []
    for kind in (~pooled, pooled):
        weights = dict(zip(names, (kind / mechanism.noise_scales).tolist(), strict=True))
        parts.append(mechanism.query.sensitivity(mechanism.norm, weights) ** power)
    return parts[1] / (parts[0] + parts[1])
