r"""Local privacy by reports of a few random steps: what one device sends, and what the server makes of it.

A device draws m of the H steps uniformly without replacement and, for each of them, with probability
q whether to report the reward or the move. Then it randomizes one element of a finite alphabet:

- a move: the triple (s, pi_h(s), s'), S^2 elements where the policy is deterministic and therefore
  public; (s, a, s') over all admissible pairs where the action is sampled;
- a reward: (s, pi_h(s)) with one bit, the reward rounded at random without bias.

A user who did not follow pi holds a triple outside the alphabet; she reports a uniform element
instead. (Sending nothing would tell that she did not follow. Her report adds 1 / d to the expectation
of each of the d cells: the estimates are unbiased for users who follow their policy.)

Privacy
-------
Steps and types are drawn by coins that see no data. Given them, each randomizer sees one record and has
likelihood ratio at most e^(epsilon/m) between any two elements, also for a uniform one (a mixture); the
m randomizers use independent coins, so the whole message (steps, types, elements) has ratio at most
e^epsilon between any two trajectories. Nothing else is sent. It is *not* private to choose a step or
a type by looking at the data, to keep quiet where the triple is outside the alphabet, or to send
anything beside the elements that depends on the record.

*Subset selection* (Ye and Barg 2018; Wang et al. 2016). The report is a set Z of w of the d elements: with
probability p one that holds the own element x, else one that does not; uniform among these. P(Z | x) is p /
C(d-1, w-1) or (1 - p) / C(d-1, w), ratio p (d - w) / ((1 - p) w), which is e^epsilon for p = w e^epsilon /
(w e^epsilon + d - w). *k-ary randomized response* is w = 1. *Optimised unary encoding* (Wang et al. 2017):
the own bit is reported 1 with probability 1/2, every other one with q' = 1 / (e^epsilon + 1), all
independent; two elements differ in two bits and the ratio is (1 - q') / q' = e^epsilon at most.

*Exactness.* e^epsilon is irrational. Every coin here has a probability on the grid of 2^-53, decided by 53
uniform random bits; p is rounded *down* and q' *up* to the grid, in integers, with a bound on
e^-epsilon from above (and from below for q'), so that the ratios of the probabilities actually used are
below e^(epsilon/m), not merely close to it. Debiasing uses these probabilities, so it is unbiased too. A
uniform integer is drawn exactly by secure coins; seeded ones have a bias of 2^-64 n (simulation).

Estimates and their noise
-------------------------
With b_e whether e is reported, P(b_e | x = e) = p, P(b_e | x != e) = q and F = H / (m (1 - q_rewards)), the
estimate of one user's count of e at step h is X_e = F 1{h reported, as a move} (b_e - q) / (p - q): unbiased.
Its variance is F v_0 where she is not in the cell, F (v_1 + 1) - 1 where she is; v_0 = q (1 - q) / (p - q)^2
and v_1 = p (1 - p) / (p - q)^2. It depends on the data through the cell she is in; but she is in exactly one
cell of a step, so the *mean over the d cells of a step*, F ((1 - 1/d) v_0 + v_1 / d) + (F - 1) / d, does not.
Its root is ``std``. Visits are the sums of the moves over s' of the same reports. For rewards, X_1 - X_0
over 2 estimates r - 1/2 (centred), and X_1 estimates r, with F = H / (m q_rewards).

Cells that no user's policy assigns hold exact zeros. The sums of a batch's noise are independent of other
batches'. ``bound`` is Bernstein's inequality for sums of n independent centred variables with the largest
variance V and the largest size M that any data give: P(|sum| > t) <= 2 exp(-t^2 / (2 (n V + M t / 3))), with
the union over cells and releases; or n M, if that is less.
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
from discreet.core.count_query import TRANSITIONS, VISITS, CountQuery, cut_to
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

_WORK_BITS = 160  # e^-epsilon to so many bits before it is rounded to the grid

__all__ = [
    "GRID", "KINDS", "MOVES", "REWARDS_BIT", "Kind", "Randomizer", "ReportEncoder", "ReportLaw",
    "StepReports", "decode", "device_of", "policy_table",
]  # fmt: skip


# ------------------------------------------------------------------------------ one randomizer


def _own_probability(epsilon: Fraction, elements: int, size: int) -> int:
    """floor(2^53 w / (w + (d - w) e^-epsilon)), e^-epsilon from above: ratio at most e^epsilon."""
    _, high = exp_minus(epsilon, _WORK_BITS)
    top = size << _WORK_BITS
    return int((top << 53) // (top + (elements - size) * high))


@lru_cache(maxsize=256)
def randomizer(kind: Kind, epsilon: Fraction, elements: int) -> Randomizer:
    """The randomizer of ``elements`` with ratio at most e^epsilon; of subsets, the size of least variance.

    Raises ``ValueError`` where epsilon is too small for the grid of 2^-53.
    """
    if elements == 1:  # nothing to hide
        return Randomizer(False, 1, 1, GRID, 0)
    if kind == "oue":
        low, high = exp_minus(epsilon, _WORK_BITS)
        # q' = e^-eps / (1 + e^-eps) rises in e^-eps; rounded up
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
    """Everything public about the reports of one query: bound before anybody comes.

    kind : mechanism. steps : m. share : numerator over 2^53 of the probability that a report is about the
    reward (0: there is no reward family). moves, rewards : randomizers of a deterministic and of a
    stochastic policy. shift : what is subtracted from a reward. step : the one step that is asked for (then
    ``horizon`` is 1, and devices cut their records to it), or None.
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
        """The reports that answer ``query`` at ``epsilon``: m = ``steps`` of them at epsilon / m each.

        kind : of the randomizers, as in the class. reward_share : how often a report is of rewards, in
        (0, 1); without effect where rewards are known.
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
        """Raise ``ValueError`` unless these reports tell of what ``query`` asks, and hide it."""
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
            if type(getattr(self, name)) is not tuple:  # a list could hold weaker ones once people come
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
        """Of moves (0) or rewards (1), under a deterministic or a stochastic policy."""
        return (self.moves, self.rewards)[about][int(stochastic)]

    @property
    def counted(self) -> int:
        """How many steps may be reported: those of ``horizon``."""
        return self.horizon

    @property
    def reward_share(self) -> float:
        """Probability that a report is about the reward."""
        return self.share / GRID

    def factor(self, about: int) -> float:
        """F: one over the probability that a given step is reported, and about this."""
        share = self.reward_share if about else 1.0 - self.reward_share
        return self.horizon / (self.steps * share)

    def unit_std(self, stochastic: bool = False) -> float:
        """Noise of a transition count per square root of a user: root mean square over a step's cells.

        Of a sum of rewards in [-1/2, 1/2] where a move has nothing to hide: in the only state, by plan.
        """
        one, factor = self.randomizer(MOVES, stochastic), self.factor(MOVES)
        if one.elements > 1 or not self.share:
            return math.sqrt(factor * one.spread + (factor - 1.0) / one.elements)
        bit, factor = self.randomizer(REWARDS_BIT, stochastic), self.factor(REWARDS_BIT)
        apart = 2.0 if bit.unary else 4.0  # of one element drawn: one bit's noise is the other's, negated
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
        """(codes, values) for :mod:`discreet.mechanisms.local.randomized_response_kernels`: copies."""
        codes, values = self._arrays
        return codes.copy(), values.copy()

    def words(self) -> str:
        """What the devices do, for the guarantee."""
        name = {"subset": "subset selection", "oue": "optimised unary encoding", "krr": "randomized response"}
        which = "1 random step" if self.steps == 1 else f"{self.steps} random steps"
        which = "the one step" if self.horizon == 1 else f"{which} of {self.horizon}"
        rewards = f", of its reward with probability {self.reward_share:.4g}" if self.share else ""
        return f"reports of {which} by {name[self.kind]}{rewards}"


def policy_table(plan: Plan, layout: Layout) -> tuple[bool, Ints]:
    """(stochastic, rows (H, S)): the public rows of a deterministic policy, zeros for a stochastic one.

    Raises ``ValueError`` if the policy plays what is not admissible.
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
    """What people's devices must know of these reports, and what they do."""
    rows = None if layout.mask is None else tuple(map(tuple, layout.row_index.tolist()))
    sizes = layout.states, layout.actions, layout.horizon
    return ReportDevice(
        *sizes, reports.steps, reports.share, reports.moves, reports.rewards, plans, rows, reports.step,
        shuffled, session,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ReportEncoder:
    """Do what a device does (:mod:`discreet.device.randomized_response_device`). A pure function of its
    arguments.

    Where one step is asked for, everything is as in a problem of that step alone: it is step 0, and
    ``policy_rows`` are (1, S).

    The message is int64: for each reported step, ascending, (step, 0 for a move or 1 for a reward,
    how many elements, the elements ascending).
    """

    __repr__ = brief

    layout: Layout
    reports: StepReports
    stochastic: bool
    policy_rows: Ints
    number: int
    secure: bool = False  # the guarantee promises exact coins

    @property
    def guarantee(self) -> MessageGuarantee:
        """What one message gives away under a policy of the open plan's kind."""
        plans: Plans = "stochastic" if self.stochastic else "deterministic"
        return device_of(self.layout, self.reports, plans, 0).guarantee

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Randomize one checked trajectory. Raises ``ValueError`` on a broken record, on the device."""
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


def reported_tables(reports: StepReports, layout: Layout, sums: Mapping[str, Any], users: int) -> list[Ints]:
    """(T, R, S) and (T, R, 2) what simulated users' reports were about before they were randomized.

    Raises ``ValueError`` unless ``sums`` holds the tables of
    :func:`discreet.envs.rollouts.rollout.reported_counts`, of so many users.
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
    """(step, about, marks (d,)) of each report of a message.

    Raises ``ValueError`` on anything that no device makes: other dtypes, steps, types, sizes or order.
    """
    words = np.array(message)
    if words.ndim != 1 or words.dtype.kind not in "iu":
        raise ValueError(f"message: must be a vector of integers, not {words.dtype} {words.shape}")
    return decoded(reports, stochastic, words.astype(np.int64))


# ------------------------------------------------------------------------------ the noise's law


def _unit(
    variance: float, cross: float, idle: float, visit: float, worst: float, reach: float, row_worst: float,
    row_reach: float,
) -> ReportLaw:  # fmt: skip
    """The law of one user in one cell."""
    return ReportLaw(variance, cross, idle, visit, worst, reach, row_worst, row_reach, 1, 1, 1, 1)


def _most(one: ReportLaw, other: ReportLaw) -> ReportLaw:
    """A law whose bounds hold for both, with the moments of the noisier."""
    first = one if one.variance >= other.variance else other
    bounds = ("worst", "reach", "row_worst", "row_reach")
    return replace(first, **{name: max(getattr(one, name), getattr(other, name)) for name in bounds})


def _indicator(
    reports: StepReports, pooled: bool, out: float, own: float, high: float, low: float
) -> tuple[float, float]:
    """(worst, reach) of an estimated indicator with debiased variance ``out`` (record elsewhere) or ``own``.

    ``high``, ``low`` : most and least that a debiased bit sum can be. One step: F out, or F (own + 1) -
    1. Pooled steps with c records in the cell: the m steps drawn are a sample without replacement, so
    the variance is F ((H - c) out + c own) + (F - H/m) c + (H/m) c (1 - c/H) (H - m) / (H - 1).
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
    """Second moments of w1 X_1 + w0 X_0, (w1, w0) = (1/2, -1/2) centred or (1, 0): bounds on the variance."""
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
        worst = h * worst + h * h / (4 * m) * (h - m) / max(1, h - 1)  # drawn steps, from a range of 1
        reach = m * factor * size + h
    times = reports.horizon if pooled else 1
    return _unit(variance, 0.0, times * factor * out, factor * (inside - out), worst, reach, worst, reach)


@lru_cache(maxsize=64)
def _units(reports: StepReports, size: int, pooled: bool, plans: str) -> tuple[ReportLaw, ReportLaw]:
    """(moves, rewards) under the plans that the schedule allows."""
    allowed = {"deterministic": (False,), "stochastic": (True,)}.get(plans, (False, True))
    moves = [_move_unit(reports, stochastic, size, pooled) for stochastic in allowed]
    bits = [_reward_unit(reports, stochastic, pooled) for stochastic in allowed] if reports.share else moves
    return _most(moves[0], moves[-1]), _most(bits[0], bits[-1])


def law(
    reports: StepReports, query: CountQuery, name: str, plans: str, terms: int, terms_bound: int, share: float
) -> ReportLaw:
    """The law of one family after ``terms`` users reported."""
    size = query.layout.states
    moves, rewards = _units(reports, size, query.stationary, plans)
    rows = query.slots * query.layout.rows
    one, cells = rewards, rows
    if name == TRANSITIONS:
        one, cells = moves, rows * size
    elif name == VISITS:  # the sum over a row of the moves
        variance = moves.variance * size + moves.cross * size * (size - 1)
        worst, reach = moves.row_worst, moves.row_reach
        one = _unit(variance, 0.0, variance, 0.0, worst, reach, worst, reach)
    return replace(one, terms=terms, terms_bound=terms_bound, cells=cells, rows=rows, share=share)
