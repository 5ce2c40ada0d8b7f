r"""Local privacy by randomized reports of a few random steps: messages and estimates.

A device draws m of the H steps uniformly without replacement. For each drawn step, the report is about the
reward with probability q_rewards, and otherwise about the move (the transition). The device then randomizes
one element of a finite alphabet:

- a move: for a deterministic policy, the triple (s, pi_h(s), s'), with S^2 elements (the action is then
  public). For a stochastic policy, the triple (s, a, s') over all admissible pairs;
- a reward: (s, pi_h(s)) with one bit, which is the reward rounded randomly and without bias.

If a user did not follow pi, the triple can be outside the alphabet. The device then reports a uniform element
instead. (Sending nothing would reveal that the user did not follow pi.) The uniform report adds 1 / d to the
expectation of each of the d cells. The estimates are therefore unbiased only for users who follow their
policy.

Privacy
-------
The random choice of steps and types does not depend on data. Given steps and types, each randomizer uses one
record, and its likelihood ratio between any two elements is at most e^(epsilon/m). The bound also holds for a
uniform element, since its output is a mixture over the elements. The m randomizers use independent
randomness. The likelihood ratio of the whole message (steps, types, elements) is therefore at most e^epsilon
between any two trajectories. Nothing else is sent.

Choosing a step or a type from the data would *not* be private. Sending nothing if the triple is outside the
alphabet, or sending any other value that depends on the record, would not be private either.

*Subset selection* (Ye and Barg 2018; Wang et al. 2016). The report is a set Z of w of the d elements. With
probability p, Z is uniform among the sets that contain the user's element x; otherwise it is uniform among
the other sets. P(Z | x) is p / C(d-1, w-1) or (1 - p) / C(d-1, w). The ratio is p (d - w) / ((1 - p) w),
which is e^epsilon for p = w e^epsilon / (w e^epsilon + d - w). *k-ary randomized response* is the case w = 1.

*Optimised unary encoding* (Wang et al. 2017). The user's own bit is reported as 1 with probability 1/2, and
every other bit with q' = 1 / (e^epsilon + 1), all independently. Two elements differ in two bits, and the
ratio is at most (1 - q') / q' = e^epsilon.

*Exactness.* e^epsilon is irrational. Every binary draw here has a probability on the grid of 2^-53 and uses
53 uniform random bits. In integer arithmetic, p is rounded *down* with an upper bound on e^-epsilon, and q'
is rounded *up*. The ratios of the probabilities actually used are therefore below e^(epsilon/m), not only
close to it. Debiasing uses the same probabilities, so the estimates are unbiased. Secure random generators
draw uniform integers in [0, n) exactly. Seeded generators, for simulation, have a bias of 2^-64 n.

Estimates and their noise
-------------------------
Let b_e be 1 if e is reported, with P(b_e | x = e) = p and P(b_e | x != e) = q.

Let F = H / (m (1 - q_rewards)). The estimate of one user's count of e at step h is X_e = F 1{h reported, as a
move} (b_e - q) / (p - q). This estimate is unbiased.

The variance of the estimate is F (v_1 + 1) - 1 if the user's record is in the cell, and F v_0 otherwise. Here
v_0 = q (1 - q) / (p - q)^2 and v_1 = p (1 - p) / (p - q)^2. The variance in a cell depends on whether the
user's record is in the cell, and therefore on the data. The record is in exactly one cell of a step, so the
*mean over the d cells of a step* does not depend on the data. This mean is F ((1 - 1/d) v_0 + v_1 / d) + (F -
1) / d, and its square root is ``std``.

Visits are the sums of the same move estimates over s'. For rewards, F = H / (m q_rewards): (X_1 - X_0) / 2
estimates r - 1/2 (centred), and X_1 estimates r.

Cells that no user's policy assigns are exactly zero. The noise of a batch's sums is independent of the noise
of other batches. ``bound`` is Bernstein's inequality for sums of n independent centred variables: P(|sum| >
t) <= 2 exp(-t^2 / (2 (n V + M t / 3))). V is the largest variance and M the largest absolute value for any
data. A union bound covers cells and releases. If n M is smaller, the bound is n M.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.randomized_response import ReportLaw
from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.noise.discrete_samplers import exp_minus
from discreet.core.protocols import Coins
from discreet.core.releases import Floats, Ints, Message, Plan
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory, checked
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.randomized_response_device import (
    GRID,
    MOVES,
    REWARDS_BIT,
    Plans,
    Randomizer,
    ReportDevice,
    decoded,
    drawn,
)

Kind = Literal["subset", "oue", "krr"]
KINDS: tuple[Kind, ...] = ("subset", "oue", "krr")

_WORK_BITS = 160  # precision of e^-epsilon before it is rounded to the grid

__all__ = [
    "GRID", "KINDS", "MOVES", "REWARDS_BIT", "Kind", "Randomizer", "ReportEncoder", "ReportLaw",
    "StepReports", "decode", "device_of", "policy_table",
]  # fmt: skip


# ------------------------------------------------------------------------------ one randomizer


def _own_probability(epsilon: Fraction, elements: int, size: int) -> int:
    """Return the probability p of subset selection, as a numerator over 2^53 that is rounded down.

    Let d = ``elements`` and w = ``size``. The result is floor(2^53 w / (w + (d - w) x)), where x is an upper
    bound on e^-epsilon. The likelihood ratio is then at most e^epsilon.
    """
    _, high = exp_minus(epsilon, _WORK_BITS)
    top = size << _WORK_BITS
    return int((top << 53) // (top + (elements - size) * high))


@lru_cache(maxsize=256)
def randomizer(kind: Kind, epsilon: Fraction, elements: int) -> Randomizer:
    """Return the randomizer for an alphabet of ``elements`` elements, with ratio at most e^epsilon.

    For subset selection, the subset size is the one with the least variance. Raises ``ValueError`` if epsilon
    is too small for the grid of 2^-53.
    """
    if elements == 1:  # a single element contains no information
        return Randomizer(False, 1, 1, GRID, 0)
    if kind == "oue":
        low, high = exp_minus(epsilon, _WORK_BITS)
        # q' = e^-eps / (1 + e^-eps) increases with e^-eps, so the upper bound on e^-eps is used here.
        other = -((-high << 53) // ((1 << _WORK_BITS) + high))
        found = [Randomizer(True, elements, 0, GRID // 2, int(other))]
    else:
        best = elements * math.exp(-float(epsilon)) / (1 + math.exp(-float(epsilon)))  # d / (e^eps + 1)
        low = min(max(1, math.floor(best)), elements - 1)
        sizes = {1} if kind == "krr" else {low, min(low + 1, elements - 1)}
        found = [Randomizer(False, elements, w, _own_probability(epsilon, elements, w), 0) for w in sizes]
    if any(one.p <= one.q or one.p == 1 for one in found):
        raise ValueError(
            f"epsilon = {float(epsilon):g} for each report: must be larger, so that probabilities differ on "
            "the grid of 2^-53"
        )
    return min(found, key=lambda one: one.spread)


# ------------------------------------------------------------------------------ the whole message


@dataclass(frozen=True, eq=False)
class StepReports:
    """Public parameters of the reports of one query, fixed before the first user.

    Attributes
    ----------
    kind : "subset", "oue" or "krr"
        Mechanism of the randomizers.
    steps : int
        m, the number of steps that a user reports.
    share : int
        Numerator over 2^53 of the probability that a report is about the reward. 0 if there is no reward
        family.
    horizon : int
        Number of steps that can be reported.
    shift : float
        Number that is subtracted from a reward.
    moves, rewards : tuple of Randomizer
        Each tuple has two randomizers. The first is for deterministic policies, the second for stochastic
        policies.
    step : int or None
        Index of the counted step if the query counts only one step. ``horizon`` is then 1, and devices use
        only the record of this step.
    """

    __repr__ = brief

    kind: Kind
    steps: int
    share: int
    horizon: int
    shift: float
    moves: tuple[Randomizer, Randomizer]
    rewards: tuple[Randomizer, Randomizer]
    step: int | None = None

    @classmethod
    def of(
        cls, query: CountQuery, kind: Kind, epsilon: float, steps: int, reward_share: float
    ) -> StepReports:
        """Return the reports that answer ``query`` at ``epsilon``: m = ``steps`` reports at epsilon / m each.

        kind : mechanism of the randomizers, as in the class. reward_share : probability in (0, 1) that a
            report is about the reward. The argument has no effect if rewards are known.
        """
        layout = query.layout
        each = Fraction(epsilon) / steps
        pairs = (layout.states, layout.rows)
        public, sampled = (randomizer(kind, each, n * layout.states) for n in pairs)
        bits, sampled_bits = (randomizer(kind, each, 2 * n) for n in pairs)
        share = 0 if query.known_rewards else max(1, min(GRID - 1, round(reward_share * GRID)))
        moves, rewards = (public, sampled), (bits, sampled_bits)
        return cls(kind, steps, share, query.counted_steps, query.reward_shift, moves, rewards, query.step)

    def check(self, query: CountQuery) -> None:
        """Raise ``ValueError`` unless these reports fit ``query`` and meet the privacy bound."""
        facts = {
            "kind": (self.kind, KINDS), "horizon": (self.horizon, (query.counted_steps,)),
            "shift": (self.shift, (query.reward_shift,)), "step": (self.step, (query.step,)),
            "steps": (self.steps, range(1, self.horizon + 1)),
            "share": (self.share, (0,) if query.known_rewards else range(1, GRID)),
        }  # fmt: skip
        for name, (value, allowed) in facts.items():
            if value not in allowed:
                raise ValueError(f"reports.{name} = {value!r}: does not fit the query")
        layout = query.layout
        for name in ("moves", "rewards"):
            if type(getattr(self, name)) is not tuple:  # a list could be changed later
                raise ValueError(f"reports.{name}: must be a tuple of two Randomizers")
        for randomizers, times in ((self.moves, layout.states), (self.rewards, 2)):
            for one, pairs in zip(randomizers, (layout.states, layout.rows), strict=True):
                d = times * pairs
                unary = self.kind == "oue" and d > 1
                if type(one) is not Randomizer or one.elements != d or one.unary != unary:
                    raise ValueError(f"reports: {one!r} does not randomize {d} elements by {self.kind!r}")
                inside = one.size == 0 and 1 <= one.other < GRID if unary else 1 <= one.size < max(2, d)
                if not (inside and 1 <= one.own < GRID + (d == 1)):
                    raise ValueError(f"reports: {one!r} has probabilities that hide nothing")

    def randomizer(self, about: int, stochastic: bool) -> Randomizer:
        """Return the randomizer of moves (``about`` = 0) or rewards (1).

        stochastic : True for the randomizer of stochastic policies.
        """
        return (self.moves, self.rewards)[about][int(stochastic)]

    @property
    def counted(self) -> int:
        """Number of steps that can be reported, which is equal to ``horizon``."""
        return self.horizon

    @property
    def reward_share(self) -> float:
        """Probability that a report is about the reward."""
        return self.share / GRID

    def factor(self, about: int) -> float:
        """Return F, the inverse of the probability that a given step is reported with type ``about``."""
        share = self.reward_share if about else 1.0 - self.reward_share
        return self.horizon / (self.steps * share)

    def unit_std(self, stochastic: bool = False) -> float:
        """Return the noise std that one user adds to a transition count (RMS over the cells of a step).

        The noise std of n users is sqrt(n) times this value. If only one move is possible (a single state and
        public actions), the result is for a sum of rewards in [-1/2, 1/2].

        stochastic : True if the policy is stochastic.
        """
        one, factor = self.randomizer(MOVES, stochastic), self.factor(MOVES)
        if one.elements > 1 or not self.share:
            return math.sqrt(factor * one.spread + (factor - 1.0) / one.elements)
        bit, factor = self.randomizer(REWARDS_BIT, stochastic), self.factor(REWARDS_BIT)
        apart = 2.0 if bit.unary else 4.0  # in a subset of one element, the two bits have opposite noise
        return math.sqrt((apart * factor * bit.spread + (factor - 1.0)) / 4.0)

    @cached_property
    def _arrays(self) -> tuple[Ints, Floats]:
        codes, values = [int(self.kind == "oue"), self.steps, self.share], []
        for about in (MOVES, REWARDS_BIT):
            for stochastic in (False, True):
                one = self.randomizer(about, stochastic)
                codes += [one.elements, one.size, one.own, one.other]
                if about == REWARDS_BIT and not self.share:
                    values += [0.0, 0.0]
                    continue
                gain = self.factor(about) / one.moments[0]
                values += [gain, -gain * float(one.q)]
        return np.array(codes, np.int64), np.array(values)

    def arrays(self) -> tuple[Ints, Floats]:
        """Return copies of the arrays ``codes`` and ``values`` that the compiled code reads.

        See :mod:`discreet.mechanisms.local.randomized_response_kernels`.
        """
        codes, values = self._arrays
        return codes.copy(), values.copy()

    def words(self) -> str:
        """Return a description of the randomization on devices, for the guarantee."""
        name = {"subset": "subset selection", "oue": "optimised unary encoding", "krr": "randomized response"}
        which = "1 random step" if self.steps == 1 else f"{self.steps} random steps"
        which = "the one step" if self.horizon == 1 else f"{which} of {self.horizon}"
        rewards = f", of its reward with probability {self.reward_share:.4g}" if self.share else ""
        return f"reports of {which} by {name[self.kind]}{rewards}"


def policy_table(plan: Plan, layout: Layout) -> tuple[bool, Ints]:
    """Return True if the plan's policy is stochastic, and the (H, S) rows that a deterministic policy plays.

    A row is the index of an admissible state-action pair. For a stochastic policy the rows are zero.

    Raises ``ValueError`` if the policy plays an action that is not admissible.
    """
    policy = np.asarray(plan.policy)
    if policy.ndim == 3:
        return True, np.zeros((layout.horizon, layout.states), np.int64)
    if policy.dtype.kind not in "iu" or policy.min() < 0 or policy.max() >= layout.actions:
        raise ValueError(f"plan.policy: must hold integer actions in [0, {layout.actions - 1}]")
    rows = layout.row_index[np.arange(layout.states)[None, :], policy]
    if rows.min() < 0:
        h, s = np.argwhere(rows < 0)[0]
        raise ValueError(f"plan.policy[{h}, {s}] = {policy[h, s]}: is not admissible in state {s}")
    return False, np.ascontiguousarray(rows, np.int64)


def device_of(
    layout: Layout, reports: StepReports, plans: Plans, session: int, shuffled: bool = False
) -> ReportDevice:
    """Return the device program for these reports, with its public parameters."""
    rows = None if layout.mask is None else tuple(map(tuple, layout.row_index.tolist()))
    sizes = layout.states, layout.actions, layout.horizon
    return ReportDevice(
        *sizes, reports.steps, reports.share, reports.moves, reports.rewards, plans, rows, reports.step,
        shuffled, session,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ReportEncoder:
    """Encoder that runs the device's program. The message depends only on the arguments.

    The program is :mod:`discreet.device.randomized_response_device`. If the query has one step, the encoder
    treats that step as step 0 of a problem with one step, and ``policy_rows`` has the shape (1, S).

    The message is an int64 array. For each reported step, in ascending order, it contains (step, 0 for a move
    or 1 for a reward, number of elements, the elements in ascending order).
    """

    __repr__ = brief

    layout: Layout
    reports: StepReports
    stochastic: bool
    policy_rows: Ints
    number: int
    secure: bool = False  # True if the guarantee requires exact randomness

    @property
    def guarantee(self) -> MessageGuarantee:
        """Privacy guarantee of one message under a policy of the open plan's kind."""
        plans: Plans = "stochastic" if self.stochastic else "deterministic"
        return device_of(self.layout, self.reports, plans, 0).guarantee

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Check and randomize one trajectory. An invalid record raises ``ValueError`` on the device."""
        if plan.number not in (0, self.number):
            raise ValueError(f"plan.number = {plan.number}: must be {self.number}, the plan of this encoder")
        if self.secure and not coins.exact:
            raise ValueError("coins: must be exact (SecureRng); seeded coins have none of the promised law")
        record, index = cut_to(checked(trajectory, self.layout), self.reports.step), self.layout.row_index
        message = drawn(
            self.reports, index, None if self.stochastic else self.policy_rows, record.states,
            index[record.states[:-1], record.actions], record.rewards, coins,
        )  # fmt: skip
        return Message(plan=self.number, message=np.array(message, np.int64))


def cut_to(trajectory: Trajectory, step: int | None) -> Trajectory:
    """Return the part of a checked trajectory that a query counts.

    For a query with ``step`` (0-based), the part is a trajectory with only this step. No sum or message uses
    the other steps. If ``step`` is None, the part is the whole trajectory.
    """
    if step is None:
        return trajectory
    states, actions, rewards = trajectory.states, trajectory.actions, trajectory.rewards
    return Trajectory(states[step : step + 2], actions[step : step + 1], rewards[step : step + 1])


def reported_tables(reports: StepReports, layout: Layout, sums: Mapping[str, Any], users: int) -> list[Ints]:
    """Return the number of simulated users who report each element, before randomization.

    The first table (T, R, S) counts moves. The second table (T, R, 2) counts reward bits. T is the number of
    steps that can be reported, and R is the number of admissible pairs.

    Raises ``ValueError`` unless ``sums`` contains the tables of
    :func:`discreet.envs.rollouts.rollout.reported_counts` for ``users`` users.
    """
    pair = (reports.horizon, layout.states, layout.actions)
    tables: list[Ints] = []
    for name, last in (("reported_moves", layout.states), ("reported_bits", 2)):
        if name not in sums:
            raise ValueError(
                f"sums lacks {name!r}: users report {reports.steps} of their steps, and sums over all "
                "steps do not say which; see discreet.envs.rollouts.rollout.reported_counts"
            )
        table = checks.floats(f"sums[{name!r}]", sums[name], (*pair, last))
        if (table < 0).any() or (table != np.round(table)).any():
            raise ValueError(f"sums[{name!r}]: must hold counts")
        tables.append(layout.to_rows(table).astype(np.int64))
    made = int(tables[0].sum() + tables[1].sum())
    if made != users * reports.steps or (not reports.share and tables[1].any()):
        raise ValueError(f"sums hold {made} reports: must be {reports.steps} of each of {users} users")
    return tables


def decode(reports: StepReports, stochastic: bool, message: Any) -> list[tuple[int, int, NDArray[np.int64]]]:
    """Return (step, about, marks) for each report in a message.

    ``about`` is 0 for a move and 1 for a reward. ``marks`` (d,) is 1 for each element that the report
    contains, and 0 for all others. Raises ``ValueError`` if no device creates such a message: wrong dtype,
    steps, types, sizes or order.
    """
    words = np.array(message)
    if words.ndim != 1 or words.dtype.kind not in "iu":
        raise ValueError(f"message: must be a vector of integers, not {words.dtype} {words.shape}")
    return decoded(reports, stochastic, words.astype(np.int64))


# -------------------------------------------------------------------------- noise distribution


def _unit(
    variance: float, cross: float, idle: float, visit: float, worst: float, reach: float, row_worst: float,
    row_reach: float,
) -> ReportLaw:  # fmt: skip
    """Return the distribution of the noise that one user's report adds to one cell."""
    return ReportLaw(variance, cross, idle, visit, worst, reach, row_worst, row_reach, 1, 1, 1, 1)


def _most(one: ReportLaw, other: ReportLaw) -> ReportLaw:
    """Return a distribution with bounds that are valid for both arguments.

    The variances of the result are those of the argument with the larger variance.
    """
    first = one if one.variance >= other.variance else other
    bounds = ("worst", "reach", "row_worst", "row_reach")
    return replace(first, **{name: max(getattr(one, name), getattr(other, name)) for name in bounds})


def _indicator(
    reports: StepReports, pooled: bool, out: float, own: float, high: float, low: float
) -> tuple[float, float]:
    """Return the largest variance and the largest absolute error of one user's estimated count.

    The count is the number of the user's records in a cell (or in a row) at one step, or at all steps if
    ``pooled``. The estimate of a record is a sum of debiased bits. The variance of this estimate is ``own``
    if the record is in the cell, and ``out`` otherwise. The largest and smallest possible values of the
    estimate are ``high`` and ``low``.

    For one step, the variance of the count is F out or F (own + 1) - 1. For pooled steps, let c records be in
    the cell. The m drawn steps are a sample without replacement. The variance is therefore F ((H - c) out + c
    own) + (F - H/m) c + (H/m) c (1 - c/H) (H - m) / (H - 1).
    """
    factor, horizon, m = reports.factor(MOVES), reports.horizon, reports.steps
    if not pooled:
        return max(factor * out, factor * (own + 1.0) - 1.0), max(factor * high, 1.0 - factor * low)
    c = np.arange(horizon + 1)
    drawn = horizon / m * c * (1 - c / horizon) * (horizon - m) / max(1, horizon - 1)
    worst = factor * ((horizon - c) * out + c * own) + (factor - horizon / m) * c + drawn
    return float(worst.max()), m * factor * max(high, -low) + horizon


def _move_unit(reports: StepReports, stochastic: bool, size: int, pooled: bool) -> ReportLaw:
    one, factor = reports.randomizer(MOVES, stochastic), reports.factor(MOVES)
    gap, own, other, both, others = one.moments
    d, square, q = one.elements, gap * gap, float(one.q)
    variance = factor * one.spread + (factor - 1.0) / d
    elsewhere = factor * (d - size) / d * others / square
    inside = factor * (2 * both + (size - 2) * others) / (d * square)
    cross = elsewhere + inside
    times = reports.horizon if pooled else 1
    worst, reach = _indicator(
        reports, pooled, other / square, own / square, (1 - q) / gap, -q / gap
    )  # fmt: skip
    most = size if one.unary else min(size, one.size)
    row_worst, row_reach = _indicator(
        reports,
        pooled,
        (size * other + size * (size - 1) * others) / square,
        (own + (size - 1) * (other + 2 * both + (size - 2) * others)) / square,
        (most - size * q) / gap,
        -size * q / gap,
    )
    idle, visit = factor * other / square, factor * (own - other) / square + factor - 1.0
    return _unit(times * variance, times * cross, times * idle, visit, worst, reach, row_worst, row_reach)


def _reward_unit(reports: StepReports, stochastic: bool, pooled: bool) -> ReportLaw:
    """Return the noise distribution of one user's estimate of a reward sum.

    The estimate is w1 X_1 + w0 X_0. For centred rewards (w1, w0) is (1/2, -1/2), and otherwise (1, 0). The
    second moment of the estimate is used as a bound on its variance.
    """
    one, factor = reports.randomizer(REWARDS_BIT, stochastic), reports.factor(REWARDS_BIT)
    gap, own, other, both, others = one.moments
    high, low, square, q = 1.0 - reports.shift, -reports.shift, gap * gap, float(one.q)
    out = ((high * high + low * low) * other + 2 * high * low * others) / square
    inside = max(
        (a * a * own + b * b * other + 2 * a * b * both) / square + a * a
        for a, b in ((high, low), (low, high))
    )
    pairs = one.elements / 2
    variance = factor * ((pairs - 1) * out + inside) / pairs
    size = max(abs(high * (x - q) + low * (y - q)) / gap for x in (0, 1) for y in (0, 1))
    worst, reach = factor * max(out, inside), factor * size + 1.0
    if pooled:
        h, m = reports.horizon, reports.steps
        variance *= h
        # The second term is the variance from drawing m of the h steps, for rewards with a range of 1.
        worst = h * worst + h * h / (4 * m) * (h - m) / max(1, h - 1)
        reach = m * factor * size + h
    times = reports.horizon if pooled else 1
    return _unit(variance, 0.0, times * factor * out, factor * (inside - out), worst, reach, worst, reach)


@lru_cache(maxsize=64)
def _units(reports: StepReports, size: int, pooled: bool, plans: str) -> tuple[ReportLaw, ReportLaw]:
    """Return one user's noise distributions (moves, rewards). The result is valid for all policies in
    ``plans``.

    size : number of states. pooled : True if steps are pooled. plans : kind of policies.
    """
    allowed = {"deterministic": (False,), "stochastic": (True,)}.get(plans, (False, True))
    moves = [_move_unit(reports, stochastic, size, pooled) for stochastic in allowed]
    bits = [_reward_unit(reports, stochastic, pooled) for stochastic in allowed] if reports.share else moves
    return _most(moves[0], moves[-1]), _most(bits[0], bits[-1])


def law(
    reports: StepReports, query: CountQuery, name: str, plans: str, terms: int, terms_bound: int, share: float
) -> ReportLaw:
    """Return the noise distribution of one family after ``terms`` users reported.

    The arguments are those of :meth:`~discreet.mechanisms.local.randomized_response_strategy.Reported.law`.
    """
    size = query.layout.states
    moves, rewards = _units(reports, size, query.stationary, plans)
    rows = query.slots * query.layout.rows
    one, cells = rewards, rows
    if name == TRANSITIONS:
        one, cells = moves, rows * size
    elif name == VISITS:  # a count of visits is the sum of the transition counts in its row
        variance = moves.variance * size + moves.cross * size * (size - 1)
        worst, reach = moves.row_worst, moves.row_reach
        one = _unit(variance, 0.0, variance, 0.0, worst, reach, worst, reach)
    return replace(one, terms=terms, terms_bound=terms_bound, cells=cells, rows=rows, share=share)
