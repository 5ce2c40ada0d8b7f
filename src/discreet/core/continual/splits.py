r"""Splitting the budget anew at every release: group returns or not, cut rewards or centred ones.

A release of all families with scales sigma costs the user of one of its batches a joint loss L(sigma): for
Laplace noise the weighted l1 change l1(1 / b), for Gaussian noise its square, l2(1 / sigma)^2 = mu^2. Counts
and group returns add in L (:mod:`discreet.core.counts`), so for any share s in [0, 1)

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

**A cut that grows, and rewards that take turns.** Of a query with a cut a release holds transitions and one
reward family: sums over steps of rewards counted up to a total of C (:mod:`discreet.core.counts`), or
centred rewards per step. With L the loss above (Gaussian: its square), s the share of rewards, and C_i the
cut of the newest batch at release i,

    Laplace:   transitions 2 H / ((1 - s) L),       cut rewards 2 C_i / (s L),        centred H / (s L);
    Gaussian:  sqrt(2 H / ((1 - s) L)),             C_i sqrt(2 / (s L)),              sqrt(H / (s L)),

which is (1 - s) L + s L = L in either mode, by the joint sensitivities there: transitions keep their scale,
and the family that is left out has an infinite one (nothing is said of it; its sums go on inside).

- *C may follow earlier releases, if it never decreases.* The C of a batch is fixed before its users act, and
  holds for all of them. A user of batch j adds x with ||x||_1 <= C_j, so she moves release i >= j by
  a lambda^(i-j) times at most 2 C_j in l1 and sqrt(2) C_j in l2, against noise in proportion to C_i >= C_j:
  by (a lambda^(i-j))^2 s L of the loss at most. (Laplace: lambda = 0, so i = j alone.) A smaller C_i would
  give users of earlier batches, who are still in the decaying sum, too little noise: it is refused.
- *The family may change for good by a choice that follows earlier releases.* Both running sums hold every
  user with the same weights. Given the past, release i is one mechanism on what a user of batch j moves in
  it, which costs (a lambda^(i-j))^2 L at most whichever family it holds: constants that are fixed in
  advance, with sum at most L. (Releases before the change say nothing of her centred rewards, those after it
  nothing of her cut ones.) That is all that adaptive composition asks for, as above; under exact discrete
  noise it is that of zCDP, with rounding in fixed point charged for all three families at the smallest scales
  (:mod:`discreet.core.continual.decaying`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.core import kernels
from discreet.core.counts import CENTERED_REWARDS, CUT_REWARDS, GROUP_RETURNS, CountQuery
from discreet.core.releases import Floats

if TYPE_CHECKING:
    from discreet.core.mechanism import CountMechanism


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


def taking_turns(query: CountQuery, scales: Floats, cut: float) -> Floats:
    """Scales of a release of a query with a cut: of its two reward families one is left out.

    scales : (families,) finite ones, that of cut rewards at the first C; cut : C of the newest batch, at
    least the first one; infinite: centred rewards are released.
    """
    names = list(query.row_families)
    out = np.array(scales)
    if math.isinf(cut):
        out[names.index(CUT_REWARDS)] = math.inf
    else:
        out[names.index(CUT_REWARDS)] *= cut / query.cut
        out[names.index(CENTERED_REWARDS)] = math.inf
    return out


def at_share(mechanism: CountMechanism, scales: Floats, share: float | None) -> Floats:
    """:func:`split_scales` of a mechanism's query; None: at its own share, where nothing is split anew."""
    if share is None:
        return scales
    return split_scales(mechanism.query, scales, share, mechanism.family == kernels.LAPLACE)
