r"""Splitting the budget anew at every release, between counts and group returns.

A release of all families with scales sigma costs the user of one of its batches a joint loss L(sigma): for
Laplace noise the weighted l1 change l1(1 / b), for Gaussian noise its square, l2(1 / sigma)^2 = mu^2. Counts
and group returns add in L (:mod:`discreet.privacy.counts`), so for any share s in [0, 1)

    counts: scales times L_counts / ((1 - s) L), Gaussian: its root,
    returns: C / (s L),                          Gaussian: C / sqrt(s L),

have the loss (1 - s) L + s L = L as before. s = 0 leaves the returns out: their scale is infinite and
nothing is said of them.

Privacy with shares chosen from earlier releases. Given the past, a release is one Laplace or Gaussian
mechanism on what a user moves in it, a lambda^m times her change, with the same loss whatever the
share. Adaptive composition of Gaussian DP (Dong, Roth and Su 2022) and of pure epsilon asks for no more than
that: losses of the single releases that are bounded by constants fixed in advance. Noise that is
calibrated by privacy-loss distributions has no such additive loss and is refused.

``forget``. At a release that closes the stream of everybody before it, the gain is 1 in place of
a = sqrt(1 - lambda^2), and the decaying sum is emptied after it. A user who is m ticks old then has the
squared column a^2 (1 + lambda^2 + ... + lambda^{2(m-1)}) + lambda^{2m} = 1, no more than with the infinite
future that it gives up. A batch that stands alone is so measured with all of its budget.

Source: privacy-mechanisms, section 2.1 (lambda that varies), 10.2 (families of the hybrid).
"""

from __future__ import annotations

import math

import numpy as np

from discreet.privacy.counts import GROUP_RETURNS, CountQuery
from discreet.privacy.protocol import Floats


def split_scales(query: CountQuery, scales: Floats, share: float, laplace: bool) -> Floats:
    """Scales of the query's families, in their order, at which group returns get ``share`` of the budget.

    scales : (families,) finite ones that meet the budget jointly; share : in [0, 1); laplace : else Gaussian.
    """
    names = list(query.row_families)
    inverse = dict(zip(names, (1.0 / scales).tolist(), strict=True))
    counts = {name: weight for name, weight in inverse.items() if name != GROUP_RETURNS}
    norm = "l1" if laplace else "l2"
    whole = query.sensitivity(norm, inverse)  # type: ignore[arg-type]
    ratio = query.sensitivity(norm, counts) / whole  # type: ignore[arg-type]
    power = 1.0 if laplace else 0.5
    out = scales * (ratio / (1.0 - share) ** power)
    out[names.index(GROUP_RETURNS)] = query.clip / (share**power * whole) if share > 0.0 else math.inf
    return np.asarray(out)
