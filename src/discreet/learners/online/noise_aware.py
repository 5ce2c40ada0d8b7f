r"""Noise-aware optimistic value iteration: bonuses, beliefs and estimates from the noise law itself.

The papers' learners guard against noise by one uniform bound E for all cells and all times. This one
knows the standard deviation of every measurement. It

- fits visit and transition rates to all measurements by generalised least squares, with weights from
  the public numbers of users who were expected to come to each action, by their policies and by what was
  believed when these were planned (:mod:`discreet.learners.online.noise_aware_kernels`);
- shrinks each step's transition row towards the row pooled over steps, by empirical Bayes: the
  variation over steps, tau^2, is what the squared residuals exceed their known noise and sampling
  variance by, for each row and, where its own steps tell little, over all rows. A step weighs by how well
  it is known, not by its visits. A stationary world is pooled almost wholly, one that varies is left alone;
  no stationarity is assumed. What a step takes from the pool is uncertain by tau^2, which bonus and
  explorers know: a step that differs is looked at, and its own data win as they grow.
  ``shrink=False`` is the plain estimator;
- believes of mean rewards what Bayes' rule says: a law over pairs, a mixture of one that pays next to nothing
  and of five over [0, 1] whose shares are learned from all pairs, then the pair's own data, wrong by the
  noise of its reward sum and, as far as its mean is not 1/2, of its visits. Where few pairs pay, what is
  hardly more than noise is taken to be nothing; a pair that noise hides is worth what pairs are worth in this
  world, not nothing, and may be worth more;
- adds to Q the bonus c_s (sqrt(Var V) x + sqrt(r (1 - r)) x + (H - h) x^2) + c_p (sigma_p ||V - P V||_2 +
  sigma_r) + 0.6 s_r, x = 1 / sqrt(effective visits), sigma_p the noise of one entry of the row, sigma_r the
  standard deviation of the mean reward that its data leave, s_r the one that other pairs leave;
- lets one user in 32 (one in 16 without noise) follow *explorers*, with a width that grows like
  sqrt(ln(users)). Two of them act on a draw from those beliefs, the second one's 1.5 times as wide as the
  first one's; after 1 000 such users their share falls like 1 / sqrt(users), and twice what they give up
  goes to the third, *hopeful* one. It draws nothing: it plans with the upper end of every belief, at twice
  the first one's width, as if each pair had paid 1 five times more, and carries half of a hope to the step
  before. Under a trusted server's Gaussian noise it does so at every second try, and in between tries single
  steps away from what everybody does; its width is one and a half times the first one's, and three times at
  one in four of its tries: a pair that the noise of few releases made look far worse than it is gets tried
  again. The bonus alone commits to a wrong belief for ever. A belief that is wrong by d of its standard
  deviations is drawn away with a probability of about Phi(-d / width), but draws are few, one in two
  releases, and each serves few users. The hopeful one goes back to the same place until data say no. Where
  nothing within its width can be better it acts as everybody does, so that it costs what there is to hope
  for, which falls with what is known; in a large world there is no end of it, and so its share falls like
  1 / sqrt(users) as well, later, and the later the noisier the releases are (:func:`hope_for`). Under
  noise there is a fourth one, *seeking*: it carries all of its hope along, and what noise hides, since
  hardly anybody was there, is worth the most there can be to it. Of a place where nobody was one believes
  what is usual elsewhere; that is no reason to go there, and the best policy may need it;
- replans geometrically, and mixes several random tie-breaks within a batch.

What is proved: privacy, whatever the knobs, since all of this is post-processing of releases. What is
not: the bonus is no confidence bound (weights, rows and shrinkage come from the same noisy data) and the
explorers' beliefs are no exact posterior, so there is no regret theorem. docs/tuning.md has the regret of
late users, world by world.

The defaults were chosen on declared training worlds, RiverSwim not among them
(:mod:`studies.tuning`, docs/tuning.md).

Source of posterior sampling: Osband, Russo and Van Roy 2013.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.randomized_response import ReportLaw
from discreet.core import checks
from discreet.core.count_query import (
    CENTERED_REWARDS,
    POOLED_REWARDS,
    POOLED_TRANSITIONS,
    REWARDS,
    TRANSITIONS,
    CountQuery,
    Pooled,
)
from discreet.learners.online import noise_aware_kernels as noise_kernels
from discreet.learners.online import return_probe as returns
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.tabular_base import GreedyLearner, LearnerState
from discreet.learners.online.tabular_planning_kernels import LearnerKernel
from discreet.mechanisms.interfaces import Ask, Measurement, NoiseLaw, Plan, Release, Schedule, Spec
from discreet.mechanisms.local.choose_randomizer import reports_pay

Floats = NDArray[np.float64]

_FIXED: Mapping[str, Any] = {
    "bonus_scale": 1.0, "stat_const": "theory", "constants": "tight", "cap": "H-h+1", "failure": 0.05,
    "monotone": False,
}  # fmt: skip


# Chosen by studies.tuning, kind by kind; replan_growth 1.1 and explore_share by hand
_APPROX: Mapping[str, Any] = {
    "replan_growth": 1.1, "stat_scale": 0.1, "priv_scale": 0.12, "excess": 4.0, "reward_share": 0.35,
    "pooled": "none", "pooled_share": 0.9, "pooled_share_end": 0.1, "pooled_until": 0,
    "explore_share": 1 / 32,
}  # fmt: skip
_PURE: Mapping[str, Any] = {
    **_APPROX, "replan_growth": 1.1, "priv_scale": 0.25, "excess": 8.0, "reward_share": 0.3, "pooled": "all",
}  # fmt: skip
_LOCAL: Mapping[str, Any] = {
    **_APPROX, "replan_growth": 1.02, "priv_scale": 0.06, "excess": 5.0, "reward_share": 0.2,
}  # fmt: skip
_SHUFFLE: Mapping[str, Any] = {
    **_APPROX, "replan_growth": 1.2, "priv_scale": 0.25, "reward_share": 1 / 3,
}  # fmt: skip
_NONE: Mapping[str, Any] = {
    **_APPROX, "replan_growth": 1.02, "stat_scale": 0.05, "excess": 5.0,
    "explore_share": 1 / 16,
}  # fmt: skip
# In a bandit there are no rows to learn: what rewards get is chosen anew (docs/tuning.md)
_BANDIT_SHARE, _BANDIT_LOCAL_SHARE = 0.5, 0.65
_POOLED_UNTIL = 800.0


def chosen(spec: Spec, reports: bool = True) -> Mapping[str, Any]:
    """The knobs that depend on the budget: pure joint, local, shuffle, none, or all others (and unknown).

    A trusted server that draws randomized reports itself has the noise of the local model, and its knobs:
    where it always does, or may and public numbers say that it pays; ``reports``: can the learner read them?

    Under shuffle every batch has noise of its own, which weighs the less the fewer and larger they are; and
    its shares divide variances, not losses: 1/3 of rewards is the noise of a server's 1/5.

    Pooled counts are known well enough when H n / (S A), the visits to a pair, are some multiple of the noise
    H / epsilon in them: then their share of the budget can fall.

    In the only state of a bandit rewards are all that there is to learn, and get the larger share.
    """
    budget, alone = spec.budget, spec.layout.states == 1
    most = {"reward_share": _BANDIT_SHARE} if alone else {}
    local = {**_LOCAL, "reward_share": _BANDIT_LOCAL_SHARE} if alone else _LOCAL
    if budget is not None and budget.trust in ("local", "shuffle", "none"):
        return {"local": local, "shuffle": {**_SHUFFLE, **most}, "none": _NONE}[budget.trust]
    if budget is None or _approximate(spec):
        return {**_APPROX, **most}
    assert budget.epsilon is not None
    pays = budget.reports is None and reports_pay(
        spec.layout, budget.epsilon, local["reward_share"], spec.users
    )
    if reports and (budget.reports or pays):
        return local
    until = math.ceil(_POOLED_UNTIL * spec.layout.rows / budget.epsilon)
    return {**_PURE, **most, "pooled_until": min(until, 2**53)}


def _approximate(spec: Spec) -> bool:
    """A trusted server's Gaussian noise, or noise of which nothing is known."""
    budget = spec.budget
    return budget is None or (budget.trust == "joint" and not budget.pure)


_NO_ROWS, _NO_CELLS, _NONE_DUE = np.zeros((0, 0, 0)), np.zeros((0, 0)), np.zeros(0)
_MANY = 1_000.0  # followers of drawing explorers after whom their share falls like the inverse square root
_MORE = 2.0  # users of the hopeful explorer for each that they give up
# After so many times the users at whom theirs begins to fall, the hopeful one's share falls too: the noisier
# the releases, the later data say no to what it hopes for
_HOPE_EXACT, _HOPE_GAUSSIAN, _HOPE_LONG = 2.0, 16.0, 32.0


def hope_for(spec: Spec) -> float:
    """When the hopeful explorer's share falls, from the public budget; see :func:`explorers_among`."""
    if spec.budget is not None and spec.budget.trust == "none":
        return _HOPE_EXACT
    gaussian = _approximate(spec) or (spec.budget is not None and spec.budget.trust == "shuffle")
    return _HOPE_GAUSSIAN if gaussian else _HOPE_LONG


def _then_fewer(users: float, full: float) -> float:
    """All of the first ``full`` users, and of those after them a share that falls like 1 / sqrt(users)."""
    return users if users <= full else 2.0 * math.sqrt(users * full) - full


def explorers_among(
    users: int, share: float, hope: float = _HOPE_GAUSSIAN, noise: bool = True
) -> tuple[int, int, int, int]:
    """How many of the first ``users`` users follow each explorer: public numbers.

    The two who draw have ``share`` of the users at first, which falls after 1 000 of them; what they give
    up goes to the hopeful one, twice as many where that many are left. That one costs little where there
    is nothing to hope for, but early on there is everything to hope for. After ``hope`` times the users
    at whom theirs began to fall its share falls in the same way: in a large world there is no end of
    hopes. The seeking one, where there is ``noise``, comes when theirs begins to fall: of x = sqrt(that
    time / users) it has the share x - x^2 where they have x, so that in the end it has as much.
    """
    full = _MANY / share if share > 0.0 else math.inf
    many, searched = _then_fewer(users, full), _then_fewer(users, hope * full)
    drawing, hoping = math.floor(share * many), min(_MORE * share, 1.0 - share) * (searched - many)
    seeking = share * (many - full - full * math.log(users / full)) if noise and users > full else 0.0
    # a difference of numbers that are about equal can be below 0 by rounding
    return drawing - drawing // 2, drawing // 2, max(0, math.floor(hoping)), max(0, math.floor(seeking))


@dataclass(frozen=True, kw_only=True)
class NoiseAwareUCBVI(GreedyLearner):
    """Optimistic value iteration that knows the law of its noise.

    Needs a privatizer whose releases carry a measurement with noise of its own: ``NoPrivacy``,
    ``Central`` with release ``batches``, ``decaying``, ``reports`` or ``auto``, ``Local``.

    Parameters
    ----------
    stat_scale : float
        c_s, of what comes from sampling.
    priv_scale : float
        c_p, in standard deviations of the noise.
    shrink : bool
        Empirical-Bayes sharing over steps (heuristic); False: each step on its own.
    excess : float
        By how many null standard deviations the residuals must exceed their expectation before
        variation over steps is believed.
    flow : bool
        Weigh steps in the pooling by the visits that the policies lead to in a rough model, in place
        of noisy counts.
    consistent : bool
        Project each measurement's per-step counts onto the flow of people (who arrives at a state leaves
        from it) where all have one noise and one clock. Post-processing.
    reward_share : float
        Share of the privacy budget that rewards get, in (0, 1).
    pooled : "none", "all" or "first"
        Ask for counts pooled over steps too (:class:`~discreet.core.count_query.CountQuery`).
    pooled_share : float
        Share of the privacy budget that the pooled counts get at first, in (0, 1).
    pooled_share_end, pooled_until : float, int
        The share moves in a line to this one while so many users come (0: it is this one from the start).
        Needs a privatizer with noise of its own for each release; equal shares need none.
    explore_share : float
        In [0, 1): share of the users who follow explorers, until there were 1 000 of them. Then that of those
        who draw falls like the inverse square root of the users, and the hopeful one gets what they give up,
        twice over while that many are left, until its share falls as well; under noise the seeking one comes,
        and in the end has as many as they have. 0: nobody, and wrong beliefs may stay for ever.
    explore : "optimism" or "returns"
        ``returns``: first try every action repeated, measure what users earn, and hold the learner to a
        quarter of it (:mod:`discreet.learners.online.return_probe`, docs/returns.md). Where repeating an
        action earns a reward that the learner does not find for long, regret falls to .3 of it (RiverSwim at
        (1, 1e-6)); elsewhere it was .8 to 1.6 times the plain learner's at that and other budgets of one
        mechanism. Needs ``Central`` (``batches``, ``decaying`` or ``auto``) or ``NoPrivacy`` with seeded
        noise; a simulation plays its users one by one.
    replan_growth, replan_every, stationary, known_rewards, tie_break, tie_batches
        As for every tabular learner.

    ``replan_growth``, ``stat_scale``, ``priv_scale``, ``excess``, ``reward_share``, ``explore_share`` and the
    four of pooling stay None where they are not given: public facts choose them when those are known
    (:meth:`tuned`).

    The remaining options of the other learners do not apply and are refused.
    """

    priv_scale: float | None = None
    shrink: bool | None = None
    excess: float | None = None
    flow: bool | None = None
    consistent: bool | None = None
    reward_share: float | None = None
    pooled: Pooled | None = None
    pooled_share: float | None = None
    pooled_share_end: float | None = None
    pooled_until: int | None = None
    explore_share: float | None = None
    explore: Literal["optimism", "returns"] | None = None

    explorers: ClassVar[int] = 4
    REFUSES: ClassVar[frozenset[str]] = frozenset(_FIXED)  # inherited fields that are no options here
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            **_FIXED, "derive_visits": True, "center_rewards": True, "known_rewards": False,
            "stationary": False, "replan_every": 1, "tie_break": "random", "shrink": True, "flow": True,
            "consistent": True, "explore": "optimism", **_APPROX,
        },
        "plain": {"shrink": False},
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.replan_every == 1 and self.replan_growth is None:
            object.__setattr__(self, "replan_growth", 1.0)
        for name, value in _FIXED.items():
            given = getattr(self, name)
            if given is not None and given != value:
                raise ValueError(f"{name} = {given!r}: is no option of this learner, whose own is {value!r}")
        left_open = [name for name in _APPROX if getattr(self, name) is None]
        if self.replan_every is None:  # stays open too: given back by `replace` it would mean every user
            left_open.append("replan_every")
        super().__post_init__()
        put = object.__setattr__
        checks.choice("pooled", self.pooled, ("none", "all", "first"))
        if self.stationary and self.pooled != "none" and "pooled" not in left_open:
            raise ValueError(f"pooled = {self.pooled!r}: must be 'none' when stationary is true")
        for name in ("reward_share", "pooled_share", "pooled_share_end"):
            put(self, name, checks.real(name, getattr(self, name), 0.0, 1.0, open_low=True, open_high=True))
        put(self, "pooled_until", checks.integer("pooled_until", self.pooled_until, 0))
        put(self, "priv_scale", checks.real("priv_scale", self.priv_scale, 0.0))
        put(self, "excess", checks.real("excess", self.excess, 0.0))
        share = checks.real("explore_share", self.explore_share, 0.0, 1.0, open_high=True)
        put(self, "explore_share", share)
        for name in ("shrink", "flow", "consistent"):
            put(self, name, checks.flag(name, getattr(self, name)))
        checks.choice("explore", self.explore, ("optimism", "returns"))
        for name in left_open:
            put(self, name, None)

    def tuned(self, spec: Spec) -> NoiseAwareUCBVI:
        """This learner with every knob that was left open chosen from the public ``spec.budget``."""
        return _tuned(self, spec)

    def _tuned(self, spec: Spec) -> NoiseAwareUCBVI:
        single = self.explore != "returns" and self.pooled in (None, "none")
        values = dict(chosen(spec, reports=single))
        if self.stationary:
            values["pooled"] = "none"
        if self.pooled_share is not None:  # one share is given: the same one for ever, unless told otherwise
            values["pooled_share_end"] = self.pooled_share
        if self.replan_every not in (None, 1):  # its own schedule: no growth
            values.pop("replan_growth", None)
        values["replan_every"] = 1  # users of one policy are set by the growth
        open_ones = {name: value for name, value in values.items() if getattr(self, name) is None}
        return replace(self, **open_ones) if open_ones else self

    def schedule(self, spec: Spec) -> Schedule:
        """Geometric by default; the learner reads measurements."""
        mine = self.tuned(spec)
        plain = replace(GreedyLearner.schedule(mine, spec), reads="measurements")
        if self.explore == "returns":
            plain = returns.schedule(self, spec, plain)
        if not mine._shares_move(spec):
            return plain
        first, last = float(mine.pooled_share or 0.0), float(mine.pooled_share_end or 0.0)
        before = np.append(0, plain.release_times[:-1])  # users when the batch begins
        way = np.minimum(1.0, before / mine.pooled_until)
        return replace(plain, pooled_shares=first + (last - first) * way)

    def query(self, spec: Spec) -> CountQuery:
        """Transitions and rewards (centred by default), per step and perhaps pooled, with their shares."""
        mine = self.tuned(spec)
        plain = replace(GreedyLearner.query(mine, spec), reward_share=mine.reward_share)
        if self.explore == "returns":
            plain = returns.query(spec, plain)
        if mine.pooled is None or mine.pooled == "none":
            return plain
        share = mine.pooled_share if mine._shares_move(spec) else mine.pooled_share_end
        return replace(plain, pooled=mine.pooled, pooled_share=share)

    def _shares_move(self, spec: Spec) -> bool:
        """Does the pooled counts' share of the budget change from release to release?"""
        if self.pooled == "none" or not self.pooled_until or spec.users is None:
            return False
        return self.pooled_share != self.pooled_share_end

    def _batch(self, users: int, spec: Spec) -> int:
        return GreedyLearner._batch(self.tuned(spec), users, spec)

    def _exploring(self, before: int, batch: int, spec: Spec) -> NDArray[np.int64]:
        share = float(self.tuned(spec).explore_share or 0.0)
        hope, noise = hope_for(spec), spec.budget is None or spec.budget.trust != "none"
        first, last = (np.array(explorers_among(n, share, hope, noise)) for n in (before, before + batch))
        # each count is rounded down by itself: of one user, several explorers may claim a part
        return np.diff(np.minimum(max(0, batch), np.cumsum(last - first)), prepend=0)

    # ------------------------------------------------------------------------ compiled face
    def kernel(self, spec: Spec) -> LearnerKernel:
        """Constants of this learner, as :mod:`discreet.learners.online.noise_aware_kernels` reads them."""
        self._check(spec)
        mine = self.tuned(spec)
        flags, knobs = np.zeros(kernels.FLAGS, np.int64), np.zeros(noise_kernels.KNOBS)
        flags[kernels.RANDOM_TIES] = int(self.tie_break == "random")
        knobs[noise_kernels.STAT] = float(mine.stat_scale or 0.0)
        knobs[noise_kernels.PRIVACY] = float(mine.priv_scale or 0.0)
        knobs[noise_kernels.SHRINK] = float(bool(self.shrink))
        knobs[noise_kernels.CENTERED] = float(bool(self.center_rewards))
        knobs[noise_kernels.EXCESS] = float(mine.excess or 0.0)
        knobs[noise_kernels.FLOW] = float(bool(self.flow))
        knobs[noise_kernels.CONSISTENT] = float(bool(self.consistent))
        knobs[noise_kernels.FIRST] = float(mine.pooled == "first")
        knobs[noise_kernels.FARTHER] = float(_approximate(spec))
        return LearnerKernel(kernels.VALUE_ITERATION, flags, knobs)

    def memory_size(self, spec: Spec) -> int:
        """Per cell: expected visits, weights, weighted sums; the last model, and where users begin."""
        slots = 1 if self.stationary else spec.horizon
        return noise_kernels.memory_size(self._cells(spec), slots, spec.layout.rows, spec.states)

    def begin_memory(self, spec: Spec) -> Floats:
        """Zeros: nothing was assigned or measured."""
        return np.zeros(self.memory_size(spec))

    def work_size(self, spec: Spec) -> int:
        """Floats of scratch."""
        return noise_kernels.work_size(self._cells(spec), spec.layout.rows, spec.states)

    def _cells(self, spec: Spec) -> int:
        slots = 1 if self.stationary else spec.horizon
        return noise_kernels.all_cells(slots, spec.layout.rows, self.tuned(spec).pooled != "none")

    def errors(self, laws: Mapping[str, NoiseLaw], spec: Spec) -> Floats:
        """(8,) noise of a measurement's families, per step and pooled; places for decay and gain."""
        errors = np.zeros(noise_kernels.ERRORS)
        moves = laws[TRANSITIONS]
        rewards = next((laws[name] for name in (CENTERED_REWARDS, REWARDS) if name in laws), None)
        errors[noise_kernels.SIGMA_T] = moves.std()
        if rewards is not None:
            errors[noise_kernels.SIGMA_R] = rewards.std()
        if isinstance(moves, ReportLaw):
            errors[noise_kernels.SIGMA_T] = np.sqrt(moves.idle)
            errors[noise_kernels.INFLATION] = 1.0 + moves.visit
            if isinstance(rewards, ReportLaw):
                errors[noise_kernels.SIGMA_R] = np.sqrt(rewards.idle)
                errors[noise_kernels.REWARD_VISIT] = max(0.0, rewards.visit)
        if POOLED_TRANSITIONS in laws:
            errors[noise_kernels.POOLED_SIGMA_T] = laws[POOLED_TRANSITIONS].std()
        if POOLED_REWARDS in laws:
            errors[noise_kernels.POOLED_SIGMA_R] = laws[POOLED_REWARDS].std()
        errors[noise_kernels.GAIN] = 1.0
        return errors

    # -------------------------------------------------------------------------- one release
    def begin(self, spec: Spec, ties: NDArray[np.uint64]) -> Any:
        """The state before the first release."""
        state = super().begin(spec, ties)
        return returns.begin(spec, state) if self.explore == "returns" else state

    def _read(self, state: LearnerState, release: Release) -> LearnerState:
        spec, layout = state.spec, state.spec.layout
        newest: Measurement | None = release.measurement
        if newest is None:
            raise ValueError(
                "release: carries no measurement with noise of its own; use release 'batches', 'decaying' or "
                "'auto'"
            )
        transitions = layout.to_rows(newest.estimates[TRANSITIONS].value)
        rewards = np.zeros(transitions.shape[:2])
        for name in (CENTERED_REWARDS, REWARDS):
            if name in newest.estimates:
                rewards = layout.to_rows(newest.estimates[name].value)
        pooled, pooled_rewards = np.zeros((0, 0, 0)), np.zeros((0, 0))
        if POOLED_TRANSITIONS in newest.estimates:
            pooled = layout.to_rows(newest.estimates[POOLED_TRANSITIONS].value)
        if POOLED_REWARDS in newest.estimates:
            pooled_rewards = layout.to_rows(newest.estimates[POOLED_REWARDS].value)
        known = np.zeros((0, 0))
        if self.known_rewards and spec.known_rewards is not None:
            known = layout.to_rows(spec.known_rewards)
        errors = self.errors({name: e.law for name, e in newest.estimates.items()}, spec)
        errors[noise_kernels.DECAY], errors[noise_kernels.GAIN] = newest.decay, newest.gain
        due = np.zeros(0)
        if newest.fresh is not None:
            due = layout.to_rows(newest.fresh.astype(np.float64)).ravel()
        return self.stepped(
            state, release.users, release.number, transitions, rewards, errors, pooled, pooled_rewards, known,
            due,
        )  # fmt: skip

    def stepped(
        self,
        state: LearnerState,
        users: int,
        number: int,
        transitions: Floats,
        rewards: Floats,
        errors: Floats,
        pooled: Floats = _NO_ROWS,
        pooled_rewards: Floats = _NO_CELLS,
        known: Floats = _NO_CELLS,
        due: Floats = _NONE_DUE,
    ) -> LearnerState:
        """The state after one more measurement, given over rows: (T, R, S) and (T, R).

        users : so many are in it or in earlier ones; number : of the release; transitions (T, R, S) and
        rewards (T, R) : the newest measurement; pooled (1, R, S), pooled_rewards (1, R) : the pooled
        families, empty without; known (H, R) : mean rewards if they are public, else empty; errors : as
        :meth:`errors` gives them, with decay and gain; due (T R,) : 0 where a row was not measured, empty if
        all were.
        """
        layout = state.spec.layout
        memory, values, q = state.memory.copy(), np.empty_like(state.values), np.empty_like(state.q)
        trials = np.empty_like(state.trials)
        noise_kernels.noise_aware_step(
            state.kernel.knobs, layout.state_ptr, layout.horizon, int(users), int(number), _own(transitions),
            _own(rewards), _own(pooled), _own(pooled_rewards), known, errors, due, memory, values, q,
            state.ties, trials, np.empty(self.work_size(state.spec)),
        )  # fmt: skip
        return replace(state, memory=memory, values=values, q=q, trials=trials, number=number, part=0)

    def policies(
        self, state: LearnerState, users: int, batch: int
    ) -> list[tuple[NDArray[Any], int]]:  # fmt: skip
        """(H, S) policies of the batch that begins after so many users, and how many follow each."""
        exploring = self._exploring(users, batch, state.spec)
        sizes = kernels.part_sizes(batch, exploring, int(self.tie_batches or 1))
        return [(self._policy(state, part), size) for part, size in enumerate(sizes) if size]

    def plan(self, state: Any, release: Release, ask: Ask | None = None) -> tuple[Plan, Any]:
        """The next users' policy; remembers how many are assigned it and where they are expected to come."""
        if self.explore == "returns":
            return returns.plan(self, state, release)
        plan, state = super().plan(state, release, ask)
        return plan, self._noted(state, plan.policy, plan.users)

    def _noted(self, state: LearnerState, policy: NDArray[Any], users: int) -> LearnerState:
        """The state that knows that so many users are assigned the policy, and where it leads them."""
        layout = state.spec.layout
        rows = np.ascontiguousarray(layout.row_index[np.arange(layout.states)[None, :], policy])
        memory = state.memory.copy()
        slots = 1 if self.stationary else layout.horizon
        pooled = self._cells(state.spec) > slots * layout.rows
        noise_kernels.note_assignments(memory, slots, layout.rows, pooled, rows, int(users))
        return replace(state, memory=memory)

    # ------------------------------------------------------------------------------- in words
    def heuristics(self) -> Iterator[str]:
        """Always some: the bonus of this learner is no confidence bound."""
        yield "the bonus is a multiple of the noise's standard deviation, no confidence bound"
        if self.explore == "returns":
            yield "explore = 'returns' deploys what is measured to earn, by a rule without a theorem"
        if self.shrink:
            yield "shrink = True shares rows over steps by empirical Bayes"


@lru_cache(maxsize=32)
def _tuned(learner: NoiseAwareUCBVI, spec: Spec) -> NoiseAwareUCBVI:
    """A run asks several times for each plan: one spec object, one answer."""
    return learner._tuned(spec)


def _own(array: Floats) -> Floats:
    """A writable contiguous array: kernels are compiled for no other kind."""
    return array if array.flags.writeable and array.flags.c_contiguous else np.array(array)
