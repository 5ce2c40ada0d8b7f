r"""Privacy loss of group returns and clipped rewards, whose noise scales depend on plans.

Group returns and clipped rewards are two optional families of sums in a query of counts. A query without
these families does not use this module. In code, ``cut`` is the clipping threshold C of rewards.

**Definition and sensitivity of the two families.**

Group returns. The plan that a user follows assigns the user to a public group. The user's data have no
influence on the group. For each group, min(return, C) is summed over its users. Rewards are in [0, 1], so a
clipped return is in [0, C]. Replacing one user does not change the user's group. The replacement changes the
sum of this group by at most C, in addition to the changes of the counts. The l1 sensitivity increases by w_g
C and the squared l2 sensitivity by (w_g C)^2. Both bounds are attained by two users, one without any reward
and one with reward 1 at every step (C <= H).

Clipped rewards (``cut``). This family contains uncentred rewards, summed over steps. (The family of centred
rewards has a separate sum for each step.) Each user's rewards are counted in order of time until their total
reaches C. The reward with which the total would exceed C is clipped, and later rewards count as 0. One user
adds a vector x >= 0 with ||x||_1 <= C to this family. Replacing x by x' gives

    ||x - x'||_1 <= ||x||_1 + ||x'||_1 <= 2 C,
    ||x - x'||_2^2 = ||x||_2^2 + ||x'||_2^2 - 2 <x, x'> <= ||x||_1^2 + ||x'||_1^2 <= 2 C^2,

The second line uses <x, x'> >= 0. Two users attain both bounds: each has the total reward C in one pair, and
the two pairs differ. C is fixed by the user's plan, before the user acts. A release contains transitions and
**one** of the two reward families, never both (see below). The joint sensitivity is the larger of the
sensitivities in these two cases:

    transitions, cut rewards:       l1 = H 2 w_t + 2 C w_c,      l2^2 = H 2 w_t^2 + 2 C^2 w_c^2;

    transitions, centred rewards:   l1 = H (2 w_t + w_r),        l2^2 <= H (2 w_t^2 + w_r^2),

The second case follows from the table of :mod:`discreet.core.count_query` (the square is less for H >= 2, as
shown there). In the first case, the changes in different families are summed: l1 changes for l1, squared
changes for l2^2. Two users attain both sums at the same time. These two users stay in two different pairs.
Each of them has reward 1 at each step until the total is C (C <= H; the last reward can be a fraction).

**A new split of the budget at every release.**

Consider a release of all families with scales sigma. Each user in one of its batches has a joint privacy loss
L(sigma). For Laplace noise L is the weighted l1 change l1(1 / b). For Gaussian noise L is the square of the
weighted l2 change, l2(1 / sigma)^2 = mu^2. L is the loss of the counts plus the loss of the group returns.
Let L_counts be the loss of the counts. For any share s in [0, 1), consider the following scales:

    counts: scales times L_counts / ((1 - s) L); Gaussian: its root,

    returns: C / (s L);                          Gaussian: C / sqrt(s L),

With these scales, the loss is (1 - s) L + s L = L as before. With s = 0 the returns are not released, and
their scale is infinite. If scales differ by release (``release_scales``), sigma and L are those of the same
release. No such L exceeds the L of ``scales``. The statements below are therefore valid with the L of
``scales``.

The shares may be chosen from earlier releases. Given the earlier releases, a release is one Laplace or
Gaussian mechanism. The sensitivity of a release is the change that one user causes in it. This change is a
lambda^m times the user's own change, where m is the number of releases since the user's batch. The loss is
the same for every share. Adaptive composition of Gaussian DP (Dong, Roth and Su 2022) and of pure epsilon
requires only that the losses of the single releases are bounded by constants fixed in advance. Noise that is
calibrated by privacy-loss distributions is rejected, because its losses are not summed in this way.

``forget``. A release can close the stream of all users before it. The gain of this release is 1 instead of a
= sqrt(1 - lambda^2), and the decaying sum is set to zero after the release. Consider a user whose batch is m
releases old at that time. The squared norm of this user's column is a^2 (1 + lambda^2 + ... +
lambda^{2(m-1)}) + lambda^{2m} = 1. This equals the bound for a stream that continues forever. A separate
batch is therefore measured with the whole budget.

**Increasing clipping thresholds, and a change of the reward family.** For a query with a threshold, a release
contains transitions and one reward family. The family is either clipped rewards (counted up to a total of C
and summed over steps) or centred rewards per step. Let L be the loss above, s the
share of rewards, and C_i the threshold of the newest batch at release i:

    Laplace:   transitions 2 H / ((1 - s) L),       cut rewards 2 C_i / (s L),        centred H / (s L);
    Gaussian:  sqrt(2 H / ((1 - s) L)),             C_i sqrt(2 / (s L)),              sqrt(H / (s L)),

The loss is at most (1 - s) L + s L = L with either reward family, by the joint sensitivities above. The scale
of transitions does not change. The reward family that is not released has an infinite scale. The internal
sums of this family continue.

- *C may depend on earlier releases if it never decreases.* The C of a batch is fixed before its users act and
  is the same for all of them. A user of batch j adds x with ||x||_1 <= C_j. Replacing x changes release i >=
  j by a lambda^(i-j) times at most 2 C_j in l1 and sqrt(2) C_j in l2. The noise of release i is proportional
  to C_i >= C_j. The replacement therefore uses at most (a lambda^(i-j))^2 s L of the loss. (Laplace: lambda =
  0, so only i = j.) A smaller C_i is rejected: users of earlier batches are still in the decaying sum and
  would have too little noise.
- *The family may change permanently, by a choice that depends on earlier releases.* Both running sums contain
  every user with the same weights. Given the earlier releases, release i is one mechanism. The sensitivity of
  release i is the change that a user of batch j causes in it. The loss is at most (a lambda^(i-j))^2 L for
  either family. The constants are fixed in advance, and their sum is at most L. (Releases before the change
  do not depend on the user's centred rewards, and releases after the change do not depend on the user's
  clipped rewards.) Adaptive composition requires only this, as above. With exact discrete noise the
  composition is that of zCDP, with fixed-point rounding charged for all three families at the smallest scales
  (:mod:`discreet.core.correlated_noise.decaying_sum`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from discreet.core import checks
from discreet.core import count_kernels as kernels
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, CUT_REWARDS, GROUP_RETURNS
from discreet.core.releases import Floats, Plan
from discreet.core.trajectories import Trajectories

if TYPE_CHECKING:
    from discreet.core.count_channels import CountChannel
    from discreet.core.count_mechanism import CountMechanism
    from discreet.core.session import ChannelSession, State

# ------------------------------------------------------------------------------ their mechanisms


def check_mechanism(mechanism: CountMechanism) -> None:
    """Raise ``ValueError`` if the strategy or the noise does not support group returns or clipped rewards."""
    if mechanism.stream not in ("exact", "decaying"):
        raise ValueError("query: group returns and cut rewards need Exact() or Batches(...)")
    if mechanism.query.groups and mechanism.noisy and mechanism.source == "secure":
        raise ValueError("source = 'secure': group returns are released with seeded noise only")
    if mechanism.query.cut and mechanism.noisy:
        check_on_grid("query.cut", mechanism.query.cut, mechanism.reward_grid)


def check_on_grid(name: str, cut: float, grid: int | None) -> None:
    """Raise ``ValueError`` unless the clipping threshold is a multiple of 1 / ``grid``.

    Otherwise a clipped reward could be off the grid of rewards, because clipping reduces it to the remaining
    part of the threshold.
    """
    if grid is not None and not (cut * grid).is_integer():  # exact: grids are powers of two
        raise ValueError(
            f"{name} = {cut!r}: must be a multiple of 1 / {grid}, as rewards are under secure randomness"
        )


def widest_scales(query: CountQuery, scales: Floats) -> Floats:
    """Return the largest noise scale of each family that plans can choose, shape (families,).

    The scale of clipped rewards is the scale for C = H.
    """
    if not query.cut:
        return scales
    grown = [query.layout.horizon / query.cut if name == CUT_REWARDS else 1.0 for name in query.row_families]
    return np.asarray(scales * np.array(grown))


# ------------------------------------------------------------------------------ budget splits


def split_scales(query: CountQuery, scales: Floats, share: float, laplace: bool) -> Floats:
    """Return the noise scales with which group returns use ``share`` of the budget, shape (families,).

    scales : (families,) finite noise scales in the order of the query. Together they use the whole budget.
    share : share of the budget for group returns, in [0, 1). The counts use the remaining budget.
    laplace : True for Laplace noise, False for Gaussian noise.
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
    """Return the noise scales of a release with a clipping threshold C, shape (families,).

    A release contains one of the two reward families. The scale of the family that is not released is
    infinite.

    scales : (families,) finite noise scales. The scale of clipped rewards is the scale for the first C.
    cut : C of the newest batch, at least the first C. If C is infinite, centred rewards are released.
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
    """Apply :func:`split_scales` to the query of a mechanism.

    If ``share`` is None, return ``scales`` unchanged.
    """
    if share is None:
        return scales
    return split_scales(mechanism.counts, scales, share, mechanism.family == kernels.LAPLACE)


# ------------------------------------------------------------------------------ sessions


def plain_plan(channel: CountChannel, s: ChannelSession, plan: Plan) -> tuple[Plan, State]:
    """Return the plan with plain values in the fields of these families, and the changes of the state.

    Raises ``ValueError`` if a value is invalid, or if a field is set for a family that the query does not
    have.
    """
    query = channel.query
    if query.cut:
        s._check_no_group(replace(plan, cut=None))
        cut = _plain_cut(channel, s, plan.cut)
        plain = replace(plan, group=None, return_share=None, forget=False, cut=cut)
        return plain, {} if cut is None else {"cut": cut}
    share = plan.return_share
    if plan.cut is not None:
        raise ValueError(f"plan.cut = {plan.cut!r}: must be None, it is for queries with a cut only")
    group = checks.integer("plan.group", plan.group, 0, query.groups - 1)
    if share is not None:
        share = checks.real("plan.return_share", share, 0.0, 1.0, open_high=True)
    forget = checks.flag("plan.forget", plan.forget)
    return replace(plan, group=group, return_share=share, forget=forget), {}


def _plain_cut(channel: CountChannel, s: ChannelSession, given: float | None) -> float | None:
    """Check a plan's C and return it as a plain number. Privacy requires that C never decreases."""
    if given is None:
        return None
    stands, cut = s.cut, math.inf
    if not (isinstance(given, float) and math.isinf(given) and given > 0.0):
        if math.isinf(stands):
            raise ValueError(
                f"plan.cut = {checks.said(given)}: must be None or infinite, centred rewards have taken "
                "the place of cut ones for good"
            )
        cut = checks.real("plan.cut", given, stands, float(channel.query.layout.horizon))
        check_on_grid("plan.cut", cut, channel.mechanism.reward_grid)
    if cut != stands and not s._fresh:
        raise ValueError(
            f"plan.cut = {cut:g}: must be {stands:g} or None, as it stood when the first plan of this "
            "batch was begun"
        )
    return cut


def wanted_scales(mechanism: CountMechanism, scales: Floats, s: ChannelSession) -> Floats:
    """Return the (families,) noise scales of the next release. A family with an infinite scale is not
    released.

    The scales follow from the split of the budget in the newest plan. Without a split, only the present
    reward family has a finite scale.
    """
    if mechanism.query.cut:
        return taking_turns(mechanism.counts, scales, s.cut)
    return at_share(mechanism, scales, None if s._plan is None else s._plan.return_share)


def add_returns(query: CountQuery, s: ChannelSession, records: Trajectories) -> None:
    """Add users' returns to the cell of the newest plan's group. The users have been counted already."""
    returns = np.minimum(records.rewards.sum(axis=1), query.clip).sum()
    s.state["cells"][_cell(query, s)] += returns


def _cell(query: CountQuery, s: ChannelSession) -> int:
    """Return the index of the cell that sums the returns of the newest plan's users."""
    group = 0 if s._plan is None or s._plan.group is None else s._plan.group
    return query.cells - query.groups + group


def check_sums(query: CountQuery, cells: Floats, users: int, up_to: float) -> None:
    """Raise ``ValueError`` if ``users`` users with rewards clipped at ``up_to`` cannot have these sums."""
    at = list(query.row_families).index(CUT_REWARDS)
    table, most = cells[query.offsets[at] : query.offsets[at + 1]], users * up_to
    if table.min() < 0.0 or table.sum() > most * (1.0 + 1e-9):
        raise ValueError(
            f"sums[{CUT_REWARDS!r}]: must be at least 0, and at most {most:g} in all, of {users} users "
            f"cut at {up_to:g}"
        )
