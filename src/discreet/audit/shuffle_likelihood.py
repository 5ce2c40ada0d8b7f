r"""Exact likelihood ratio of a batch that a shuffler releases.

Each counter of a batch is the sum of the users' bits and of random flips. The flips have a sum of binomial
distributions (:class:`~discreet.accounting.noise_distributions.binomial.BinomialLaw`), and are independent
between counters and batches. Given the records, the likelihood ratio is a product over counters. Rewards must
be 0 or 1, because devices round other rewards at random.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import stats

from discreet.accounting.noise_distributions.binomial import BinomialLaw, Components
from discreet.core.count_query import CountQuery
from discreet.core.releases import Floats, Measurement

_NEVER = -700.0  # logarithm that replaces ln 0 if a probability is 0 after rounding


@lru_cache(maxsize=256)
def log_law(components: Components) -> Floats:
    """Return the (N + 1,) values ln P(X = k) of a sum X of independent variables Bin(N_j, p_j).

    N is the sum of N_j.
    """
    law = np.ones(1)
    for number, p in components:
        law = np.convolve(law, stats.binom.pmf(np.arange(number + 1), number, p))
    with np.errstate(divide="ignore"):
        found = np.maximum(np.log(law), _NEVER)
    found.flags.writeable = False
    return np.asarray(found)


def _at(law: BinomialLaw, noise: Floats) -> Floats:
    """Return the log-probability of the given noise in each cell."""
    components = law.components
    if not components:
        return np.where(np.abs(noise) < 1e-9, 0.0, _NEVER)
    table = log_law(components)
    ones = np.rint(noise / law.unit + sum(n * p for n, p in components)).astype(np.int64)
    inside = (ones >= 0) & (ones < table.size)
    return np.where(inside, table[np.clip(ones, 0, table.size - 1)], _NEVER)


def flips_ratio(query: CountQuery, measured: Sequence[Measurement], batches: Floats) -> float:
    """Return the log-likelihood ratio ln(P_1 / P_0) of the released sums of all batches.

    batches : (T, 2, cells) sums of the users' own bits in each batch, under hypotheses 0 and 1.
    """
    total = 0.0
    for made, both in zip(measured, batches, strict=True):
        values = query.to_cells({name: e.value for name, e in made.estimates.items()})
        for f, estimate in enumerate(made.estimates.values()):
            part = slice(query.offsets[f], query.offsets[f + 1])
            law: Any = estimate.law
            zero, one = (_at(law, values[part] - world[part]) for world in both)
            total += float((one - zero).sum())
    return total


def half_flips(
    query: CountQuery, laws: Sequence[BinomialLaw], change: Floats, world: int, runs: int, luck: Any
) -> Floats:
    """Return (runs,) simulated likelihood ratios of one batch with half of the flips in each counter.

    The ratios are computed with the distribution of this smaller noise.

    Parameters
    ----------
    change : (cells,) the target's contribution under hypothesis 1 minus the contribution under hypothesis 0.
    world : true hypothesis, 0 or 1.
    """
    total = np.zeros(runs)
    for f, law in enumerate(laws):
        half = dataclasses.replace(law, components=tuple((max(1, n // 2), p) for n, p in law.components))
        moved = change[query.offsets[f] : query.offsets[f + 1]]
        for by in moved[moved != 0].tolist():
            noise = np.zeros(runs)
            for n, p in half.components:
                noise += half.unit * (luck.binomial(n, p, runs) - n * p)
            total += _at(half, noise + (world - 1) * by) - _at(half, noise + world * by)
    return total
