"""Noise-aware optimistic value iteration, the default learner.

Published learners use one bound for the noise of all released sums at all times. Instead,
:class:`NoiseAwareUCBVI` uses the known standard deviation of the noise in each measurement. The formulas are
in :mod:`discreet.learners.online.noise_aware_kernels`. :func:`explorers_among` returns the number of users
who follow each exploring policy.

The default values of the options were chosen on declared training environments
(``benchmarks.studies.tuning``, benchmarks/default_constants.md). RiverSwim is not one of them.
benchmarks/default_learner.md lists the regret of late users in each environment. Posterior sampling is due to
Osband, Russo and Van Roy 2013.
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
from discreet.core.count_query import CountQuery, Pooled
from discreet.core.families import CENTERED_REWARDS, POOLED_REWARDS, POOLED_TRANSITIONS, REWARDS, TRANSITIONS
from discreet.core.releases import Floats, Ints
from discreet.learners.online import noise_aware_kernels as noise_kernels
from discreet.learners.online import return_probe as returns
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.prior import DEFAULT_STRENGTH, LEAST_STRENGTH, Prior, read_pinned
from discreet.learners.online.tabular_base import GreedyLearner, LearnerState, geometric_times
from discreet.learners.online.tabular_planning_kernels import LearnerKernel
from discreet.mechanisms.interfaces import (
    Ask,
    Measurement,
    MixedRelease,
    NoiseDistribution,
    Plan,
    ProblemSpec,
    Release,
    Schedule,
)
from discreet.mechanisms.local.choose_randomizer import reports_pay
from discreet.utils.pinned_file import pinned

_FIXED: Mapping[str, Any] = {
    "bonus_scale": 1.0, "stat_const": "theory", "constants": "tight", "cap": "H-h+1", "failure": 0.05,
    "monotone": False,
}  # fmt: skip


# benchmarks.studies.tuning chose these values for each kind of budget. replan_growth = 1.1 and explore_share
# are the exceptions: they were set by hand.
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
# Share of the budget for rewards in bandits. It was tuned separately, because a bandit has no transitions to
# learn (benchmarks/default_learner.md).
_BANDIT_SHARE, _BANDIT_LOCAL_SHARE = 0.5, 0.65
_POOLED_UNTIL = 800.0


def defaults_for(spec: ProblemSpec, reports: bool = True) -> Mapping[str, Any]:
    """Return the default options for the privacy budget of the problem.

    The options depend on the kind of budget: pure joint DP, local DP, shuffle DP, no privacy, or any other or
    unknown budget.

    ``reports`` : True if the learner can read randomized reports. A trusted server can draw such reports
    itself; the noise is then that of the local model. The function returns the options of the local model if
    the server always draws reports. The options of the local model also apply if the server may draw reports
    and public numbers show that reports have less noise.

    Under shuffle DP, every batch has separate noise. The effect of this noise is smaller with fewer and
    larger batches. The budget shares then divide variances instead of privacy losses. A share of 1/3 for
    rewards gives the same noise as a share of 1/5 with a trusted server.

    After n users, a state-action pair has about H n / (S A) visits, summed over steps. When this number
    reaches a fixed multiple of the noise H / epsilon of pooled counts, the budget share of pooled counts has
    reached its final value.

    A bandit has one state, and only its rewards must be learned. Therefore rewards get a larger share.
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


def _approximate(spec: ProblemSpec) -> bool:
    """Return True if a trusted server adds Gaussian noise, or if the budget is not known."""
    budget = spec.budget
    return budget is None or (budget.trust == "joint" and not budget.pure)


# Value of ``excess`` for an environment that is declared stationary. The learner then never assumes variation
# over steps.
_NEVER = 1.0e300
# If there are more transition counts than this, a learner of a stationary environment pools them over steps.
_MOST_CELLS = 2**23
_UNTRIED = 3.0  # factor of the bonus of untried rows if rewards are known

_NO_ROWS, _NO_CELLS = np.zeros((0, 0, 0)), np.zeros((0, 0))
# When this number of users have followed explorers 1 and 2, the share of these explorers starts to fall like
# 1 / sqrt(users).
_MANY = 1_000.0
# For each user by which the share of explorers 1 and 2 falls, the optimistic explorer gets this number of
# users.
_MORE = 2.0
# Factor n_1 / n_0: after n_1 users, the maximum-uncertainty explorer becomes the frontier explorer.
_LATE = 64.0
# Number of policies in a batch that the users of the frontier explorer follow.
_PLANS = 8
# The share of explorers 1 and 2 starts to fall after n_0 users, the share of the optimistic explorer after
# this factor times n_0. Releases with more noise need a larger factor, because correcting an optimistic
# estimate then takes more users.
_OPTIMISM_EXACT, _OPTIMISM_GAUSSIAN, _OPTIMISM_OTHER = 2.0, 16.0, 32.0


def explorer_share(spec: ProblemSpec) -> float:
    """Return the argument ``optimism`` of :func:`explorers_among`. It depends only on the public budget.

    The factor ``optimism`` determines when the share of the optimistic explorer starts to fall.
    """
    if spec.budget is not None and spec.budget.trust == "none":
        return _OPTIMISM_EXACT
    gaussian = _approximate(spec) or (spec.budget is not None and spec.budget.trust == "shuffle")
    return _OPTIMISM_GAUSSIAN if gaussian else _OPTIMISM_OTHER


def _noisy(spec: ProblemSpec) -> bool:
    """Return True if releases have privacy noise, or if the budget is not known."""
    return spec.budget is None or spec.budget.trust != "none"


def _frontier_from(share: float) -> float:
    """Return the number n_1 of users at which explorer 4 becomes the frontier explorer."""
    return _LATE * _MANY / share if share > 0.0 else math.inf


def _then_fewer(users: float, full: float) -> tuple[float, float]:
    """Return the integrals of share(n) and of n share(n) for n from 0 to ``users``.

    share(n) is 1 up to ``full`` users and then falls like 1 / sqrt(n).
    """
    if users <= full:
        return users, users * users / 2.0
    root = math.sqrt(users * full)
    return 2.0 * root - full, 2.0 * users * root / 3.0 - full * full / 6.0


@lru_cache(maxsize=4096)  # The end of a batch is the start of the next batch.
def explorers_among(
    users: int, share: float, optimism: float = _OPTIMISM_GAUSSIAN, noise: bool = True, end: float = math.inf
) -> tuple[int, int, int, int]:
    """Return the number of users who follow each of the four explorers, among the first ``users`` users.

    The numbers are public: they do not depend on data. ``end`` is the number K of users in the run, or
    infinity if K is not known. After n users, each share below is multiplied by 1 - n/K, because the results
    of exploration are useful only for the remaining users.

    - Explorers 1 and 2 together have the share ``share`` of the first n_0 = 1 000 / share users. After that,
      their share falls like 1 / sqrt(users).
    - Explorer 3, the optimistic explorer, starts when this share falls. For each user by which that share
      falls, explorer 3 gets two users, as long as enough users remain. After ``optimism`` n_0 users, its
      share also falls like 1 / sqrt(users), because a large environment always has untried pairs. This
      explorer costs little regret if no better policy is within its width.
    - Explorer 4, the maximum-uncertainty explorer, starts after n_0 users, and only if ``noise`` is True.
      With x = sqrt(n_0 / users), its share is ``share`` (x - x^2), and that of explorers 1 and 2 is ``share``
      x. For many users, the ratio of these two shares tends to 1. After n_1 = 64 n_0 users, explorer 4 is the
      frontier explorer. With y = (n_1 / users)^(1/3), it then gets the additional share ``share`` (y - y^3).
      In each batch, its users follow eight policies, in groups of equal size.
    """
    full = _MANY / share if share > 0.0 else math.inf
    (many, many_moment), (searched, moment) = _then_fewer(users, full), _then_fewer(users, optimism * full)
    drawing = math.floor(share * (many - many_moment / end))
    hoping = min(_MORE * share, 1.0 - share) * (searched - many - (moment - many_moment) / end)
    seeking = 0.0
    if noise and users > full:
        seeking = share * (many - full - full * math.log(users / full))
        seeking -= share * (many_moment - full * (users - full / 2.0)) / end
    late = _LATE * full
    if noise and users > late:  # integrals of y - y^3 and of n (y - y^3), starting at n_1
        root = (late * users * users) ** (1.0 / 3.0)
        seeking += share * (1.5 * (root - late) - late * math.log(users / late))
        seeking -= share * (0.6 * (root * users - late * late) - late * (users - late)) / end
    # Rounding errors can make the difference of two almost equal numbers negative.
    return drawing - drawing // 2, drawing // 2, max(0, math.floor(hoping)), max(0, math.floor(seeking))


@dataclass(frozen=True, kw_only=True)
class NoiseAwareUCBVI(GreedyLearner):
    """Optimistic value iteration that uses the known noise distribution of every measurement.

    After each release, the learner fits a model to all measurements and plans the policies of the next batch.
    A *row* is the vector of transition probabilities of one state-action pair.

    1. **Weights.** Measurements are combined by generalised least squares. The weight of a measurement
       follows from its known noise and from the visits of its users, which are predicted before they begin.
    2. **Flow.** The number of users who arrive at a state equals the number who leave it. Counts are
       projected onto this constraint. Counted visits are averaged with visit numbers that a rough model
       predicts.
    3. **Posterior mean of a row.** It is a weighted mean of one step's data and the average over steps. The
       weights depend on the estimated variation between steps, without noise and sampling error (empirical
       Bayes).
    4. **Posterior mean of a reward.** The prior is a mixture of a component near 0 and a normal component,
       fitted to all pairs. It is updated with the data of all steps, then with the data of the step itself.
    5. **Optimism bonus.** Most users follow the policy that maximises the value with this bonus at step h:

       c_s (sqrt(Var V) x + sqrt(r (1 - r)) x + (H - h) x^2) + c_p (sigma_p ||V - P V||_2 + sigma_r) + 0.6 s_r

       V is the next value, P the row, r the mean reward, and x = 1 / sqrt(effective visits). The noise in an
       entry of the row has standard deviation sigma_p. The error of r has two parts: sigma_r from the pair's
       own data, and s_r from differences between pairs. Untried rows have one more term if rewards are known.
    6. **Explorers.** A few users follow exploring policies, because a wrong estimate may otherwise never be
       corrected. Their number is public (:func:`explorers_among`) and falls to 0 at the end of a run of known
       length. A *width* is a number of posterior standard deviations that grows like sqrt(ln(users)).

       - Explorers 1 and 2 plan with a draw from an approximate posterior. Explorer 2 has a larger width.
       - Explorer 3 plans with upper ends of the posterior. It adds five pseudo-visits of reward 1 to a pair.
       - Explorer 4 is used with privacy noise. It assigns the maximum value to rows whose noise exceeds the
         data. After two million users, it ignores rewards and plans to reach these rows, with eight policies
         per batch.
    7. **Batches.** A batch ends when the number of users has grown by the factor ``replan_growth``. Its
       greedy policies break ties in four independent random ways.

    All steps are post-processing of releases, so privacy holds for all values of the options. No theorem
    bounds the regret. The bonus is not a confidence bound, because weights and estimates use the same noisy
    data. All constants are listed in benchmarks/default_constants.md. The effect of each part is shown in
    benchmarks/ablation.md. The privatizer must give each measurement separate noise: ``NoPrivacy``,
    ``Central`` with release ``batches``, ``decaying``, ``reports`` or ``auto``, or ``Local``.

    Parameters
    ----------
    stat_scale : float
        Factor c_s of the sampling part of the bonus.
    priv_scale : float
        Factor c_p of the privacy part of the bonus, in standard deviations of the noise.
    shrink : bool
        True: combine the data of different steps by empirical Bayes (heuristic). False: estimate each step
        separately.
    excess : float
        Threshold for variation over steps. The learner assumes variation only if the squared residuals exceed
        their expectation by more than this number of standard deviations. Expectation and standard deviation
        are those without variation.
    flow : bool
        True: when steps are pooled, weight them by visit numbers that a rough model predicts for the
        policies. False: weight them by noisy counts.
    consistent : bool
        True: project the counts per step of each measurement onto the flow constraint: the number of users
        who arrive at a state equals the number who leave it. The projection is skipped if counts differ in
        noise level or schedule. It is post-processing.
    reward_share : float
        Share of the privacy budget for rewards, in (0, 1).
    pooled : "none", "all" or "first"
        Counts, summed over steps, that are queried in addition to the counts per step
        (:class:`~discreet.core.count_query.CountQuery`).
    pooled_share : float
        Share of the privacy budget for the pooled counts at the start, in (0, 1).
    pooled_share_end, pooled_until : float, int
        The share of the pooled counts changes linearly from ``pooled_share`` to ``pooled_share_end`` over the
        first ``pooled_until`` users. If ``pooled_until`` is 0, it is ``pooled_share_end`` from the start. If
        the two shares differ, the privatizer must have separate noise for each release.
    explore_share : float
        Initial share of users who follow explorers 1 and 2, in [0, 1). The formulas for all explorers are in
        :func:`explorers_among`. With 0, there are no explorers, and wrong estimates may never be corrected.
    explore : "optimism" or "returns"
        ``optimism``: use only the explorers of ``explore_share``. ``returns``: first also try the policies
        that repeat one action, and measure their returns. The learner must then earn at least a quarter of
        the largest of these returns (:mod:`discreet.learners.online.return_probe`, docs/choose-a-learner.md).
        ``returns`` is useful if repeating one action earns a reward that the learner would otherwise find
        only after many users. In other environments, it can increase regret. ``returns`` needs ``Central``
        (``batches``, ``decaying`` or ``auto``), or ``NoPrivacy`` with seeded noise. With ``returns``, a
        simulation processes users one by one.

    prior : Prior, or path of a file
        Public model with which the learner starts (:class:`~discreet.learners.online.prior.Prior`). The file
        is a table (.csv) or an earlier release (.parquet). A prior changes neither the query nor the
        guarantee. It needs ``shrink``.
    prior_strength : float
        Strength of a prior from a table, in visits per pair, at least 2. The default is 100.

    replan_first : int
        Number of users of the first batch, at least 1. Later batches grow by ``replan_growth``. The default
        is 1.

    ``stationary`` : if True, the learner never assumes variation over steps. The query and the guarantee are
    the same as for False, with one exception. If a release would have more than 2^23 transition counts,
    counts are pooled over steps.

    The options ``replan_growth``, ``replan_every``, ``known_rewards``, ``tie_break`` and ``tie_batches`` are
    those of :class:`~discreet.learners.online.tabular_base.GreedyLearner` and its base.

    The defaults of ``replan_growth``, ``stat_scale``, ``priv_scale``, ``excess``, ``reward_share``,
    ``explore_share`` and the options of pooling are None. When the public facts of the run are known,
    :meth:`tuned` chooses their values.

    All other options of tabular learners have a fixed value. Any other value raises ``ValueError``.
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
    prior: Prior | str | None = None
    prior_strength: float | None = None
    replan_first: int | None = None

    # A service compares this number with that of the library that began a study
    # (discreet.service.frozen_mechanism). Increase it if the learner computes other plans from the same
    # releases. Number 1 is that of 0.2.0 and 0.3.0.
    learner_version: ClassVar[int] = 2
    explorers: ClassVar[int] = 3 + _PLANS
    joined: ClassVar[bool] = True
    REFUSES: ClassVar[frozenset[str]] = frozenset(_FIXED)  # inherited options that this learner does not have
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
                raise ValueError(
                    f"{name} = {given!r}: is not an option of this learner, whose own is {value!r}"
                )
        left_open = [name for name in _APPROX if getattr(self, name) is None]
        if self.replan_every is None:  # keep None, `replace` would copy the preset's 1 as a given value
            left_open.append("replan_every")
        super().__post_init__()
        put = object.__setattr__
        checks.choice("pooled", self.pooled, ("none", "all", "first"))
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
        if self.replan_first is not None:
            put(self, "replan_first", checks.integer("replan_first", self.replan_first, 1))
            if self.replan_every not in (None, 1) or self.explore == "returns":
                raise ValueError("replan_first: must not be given with replan_every or explore = 'returns'")
        self._check_prior()
        for name in left_open:
            put(self, name, None)

    def _check_prior(self) -> None:
        """Check the prior. If it is a path, append ``#`` and the start of the SHA-256 of its file.

        Raises ``ValueError`` if the prior or its strength is invalid.
        """
        prior, strength = self.prior, self.prior_strength
        if isinstance(prior, Mapping):  # the table [learner.prior] of a file
            unknown = [name for name in prior if name not in ("file", "strength")]
            if unknown or "file" not in prior:
                raise ValueError(f"prior = {checks.said(dict(prior))}: must be a table of file and strength")
            prior, strength = prior["file"], prior.get("strength", strength)
        if isinstance(prior, str):
            prior = pinned("prior", prior)
        elif prior is not None and not isinstance(prior, Prior):
            raise ValueError(f"prior = {checks.said(prior)}: must be a Prior or the path of a file")
        if strength is not None:
            strength = checks.real("prior_strength", strength, LEAST_STRENGTH)
            if not isinstance(prior, str):
                raise ValueError(
                    f"prior_strength = {strength:g}: must be given with prior, the path of a file"
                )
        if prior is not None and not self.shrink:
            raise ValueError("shrink = False: must be true with a prior")
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "prior_strength", strength)

    def tuned(self, spec: ProblemSpec) -> NoiseAwareUCBVI:
        """Return this learner with a value for every option that is None, chosen from the public ``spec``."""
        return _tuned(self, spec)

    def _tuned(self, spec: ProblemSpec) -> NoiseAwareUCBVI:
        single = self.explore != "returns" and self.pooled in (None, "none")
        values = dict(defaults_for(spec, reports=single))
        if self._pools_steps(spec):
            values["pooled"] = "none"
        if self.pooled_share is not None:  # without pooled_share_end, a given share is constant
            values["pooled_share_end"] = self.pooled_share
        if self.replan_every not in (None, 1):  # a schedule with fixed batches has no growth factor
            values.pop("replan_growth", None)
        values["replan_every"] = 1  # replan_growth determines the number of users in a batch
        open_ones = {name: value for name, value in values.items() if getattr(self, name) is None}
        return replace(self, **open_ones) if open_ones else self

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule of the releases.

        Each release has one measurement; times are geometric by default. Raises ``ValueError`` if
        ``replan_first`` is given and the number of users is not known.
        """
        mine = self.tuned(spec)
        plain = replace(GreedyLearner.schedule(mine, spec), reads="measurements")
        if mine.replan_first is not None:
            if spec.users is None:
                raise ValueError("replan_first: must be None where the number of users is not known")
            times = geometric_times(spec.users, mine.replan_first, float(mine._growth(spec) or 1.0))
            plain = replace(plain, times=times, growth=None)
        if self.explore == "returns":
            plain = returns.schedule(self, spec, plain)
        if not mine._shares_move(spec):
            return plain
        first, last = float(mine.pooled_share or 0.0), float(mine.pooled_share_end or 0.0)
        before = np.append(0, plain.release_times[:-1])  # number of users at the start of the batch
        way = np.minimum(1.0, before / mine.pooled_until)
        return replace(plain, pooled_shares=first + (last - first) * way)

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query for transition counts and reward sums, with their shares of the budget.

        Rewards are centred by default. Counts are queried per step and, optionally, also summed over steps.
        """
        mine = self.tuned(spec)
        plain = replace(
            GreedyLearner.query(mine, spec),
            reward_share=mine.reward_share,
            stationary=self._pools_steps(spec),
        )
        if self.explore == "returns":
            plain = returns.query(spec, plain)
        if mine.pooled is None or mine.pooled == "none":
            return plain
        share = mine.pooled_share if mine._shares_move(spec) else mine.pooled_share_end
        return replace(plain, pooled=mine.pooled, pooled_share=share)

    def _pools_steps(self, spec: ProblemSpec) -> bool:
        """Return True if the query sums counts over steps.

        The query is of this kind only if the environment is both stationary and very large.
        """
        layout = spec.layout
        return bool(self.stationary) and layout.horizon * layout.rows * layout.states > _MOST_CELLS

    def _slots(self, spec: ProblemSpec) -> int:
        return 1 if self._pools_steps(spec) else spec.horizon

    def _shares_move(self, spec: ProblemSpec) -> bool:
        """Return True if the budget share of the pooled counts changes from release to release."""
        if self.pooled == "none" or not self.pooled_until or spec.users is None:
            return False
        return self.pooled_share != self.pooled_share_end

    def _batch(self, users: int, spec: ProblemSpec) -> int:
        if users or self.replan_first is None:
            return GreedyLearner._batch(self.tuned(spec), users, spec)
        return min(self.replan_first, spec.users or self.replan_first)

    def _exploring(self, before: int, batch: int, spec: ProblemSpec) -> Ints:
        share = float(self.tuned(spec).explore_share or 0.0)
        optimism, noise = explorer_share(spec), _noisy(spec)
        end = math.inf if spec.users is None else float(spec.users)
        counts = (explorers_among(n, share, optimism, noise, end) for n in (before, before + batch))
        # The numbers are rounded separately, so their sum can be larger than the batch.
        left, own = max(0, batch), list[int]()
        for first, last in zip(*counts, strict=True):
            own.append(min(left, max(0, last - first)))
            left -= own[-1]
        plans = _PLANS if noise and before >= _frontier_from(share) else 1
        frontier = [own[3] * (i + 1) // plans - own[3] * i // plans for i in range(plans)]
        return np.array([*own[:3], *frontier, *[0] * (_PLANS - plans)], np.int64)

    # ------------------------------------------------------------- interface for compiled code
    def kernel(self, spec: ProblemSpec) -> LearnerKernel:
        """Return the constants that :mod:`discreet.learners.online.noise_aware_kernels` reads."""
        self._check(spec)
        mine = self.tuned(spec)
        flags, knobs = np.zeros(kernels.FLAGS, np.int64), np.zeros(noise_kernels.KNOBS)
        flags[kernels.RANDOM_TIES] = int(self.tie_break == "random")
        knobs[noise_kernels.STAT] = float(mine.stat_scale or 0.0)
        knobs[noise_kernels.PRIVACY] = float(mine.priv_scale or 0.0)
        knobs[noise_kernels.SHRINK] = float(bool(self.shrink))
        knobs[noise_kernels.CENTERED] = float(bool(self.center_rewards))
        knobs[noise_kernels.EXCESS] = _NEVER if mine.stationary else float(mine.excess or 0.0)
        knobs[noise_kernels.FLOW] = float(bool(self.flow))
        knobs[noise_kernels.CONSISTENT] = float(bool(self.consistent))
        knobs[noise_kernels.FIRST] = float(mine.pooled == "first")
        knobs[noise_kernels.FARTHER] = float(_approximate(spec))
        if mine.known_rewards:
            knobs[noise_kernels.UNTRIED] = _UNTRIED
        share = float(mine.explore_share or 0.0)
        knobs[noise_kernels.REACH_FROM] = _frontier_from(share) if _noisy(spec) else math.inf
        if self.prior is not None:
            knobs = np.concatenate([knobs, self._prior(spec).packed(spec.layout)])
        return LearnerKernel(kernels.VALUE_ITERATION, flags, knobs)

    def _check(self, spec: ProblemSpec) -> None:
        super()._check(spec)
        if self.prior is not None:
            self._prior(spec).packed(spec.layout)

    def _prior(self, spec: ProblemSpec) -> Prior:
        if isinstance(self.prior, Prior):
            return self.prior
        assert self.prior is not None
        return read_pinned(self.prior, self.prior_strength or DEFAULT_STRENGTH, spec.layout)

    def privacy_note(self, spec: ProblemSpec) -> str | None:
        """Return the sentence on the prior for the privacy statement; None without a prior."""
        return None if self.prior is None else self._prior(spec).statement

    def memory_size(self, spec: ProblemSpec) -> int:
        """Return the number of floats in memory.

        The memory holds sums for each cell, the last model, and the model's distribution of the first state.
        """
        return noise_kernels.memory_size(self._cells(spec), self._slots(spec), spec.layout.rows, spec.states)

    def begin_memory(self, spec: ProblemSpec) -> Floats:
        """Return the initial memory, (memory_size,) zeros, for the time before the first user."""
        return np.zeros(self.memory_size(spec))

    def work_size(self, spec: ProblemSpec) -> int:
        """Return the number of floats of scratch memory that one update of the model needs."""
        return noise_kernels.work_size(self._cells(spec), spec.layout.rows, spec.states)

    def _cells(self, spec: ProblemSpec) -> int:
        pooled = self.tuned(spec).pooled != "none"
        return noise_kernels.all_cells(self._slots(spec), spec.layout.rows, pooled)

    def errors(self, laws: Mapping[str, NoiseDistribution], spec: ProblemSpec) -> Floats:
        """Return an (8,) array that describes the noise of a measurement.

        ``laws`` maps the name of each measured family to its noise distribution. The entries SIGMA_T to
        REWARD_VISIT are defined in :mod:`discreet.learners.online.noise_aware_kernels`. The entry for decay
        is 0, and the entry for gain is 1; the caller replaces both by the values of the measurement.
        """
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

    # -------------------------------------------------------------- planning from a release
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> Any:
        """Return the state before the first release.

        ``ties`` : key of the public random stream, (2,) words.
        """
        state = super().begin(spec, ties)
        return returns.begin(spec, state) if self.explore == "returns" else state

    def _read(self, state: LearnerState, release: Release) -> LearnerState:
        spec, layout = state.spec, state.spec.layout
        newest: Measurement | None = release.measurement
        if newest is None:
            raise ValueError(
                "release: contains no measurement with separate noise; use release 'batches', 'decaying' or "
                "'auto'"
            )
        transitions = layout.to_rows(newest.estimates[TRANSITIONS].value)
        if transitions.shape[0] != self._slots(spec):
            raise ValueError(
                f"release has {transitions.shape[0]} steps: must have {self._slots(spec)}, as the query asks"
            )
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
        return self.stepped(
            state, release.users, release.number, transitions, rewards, errors, pooled, pooled_rewards, known,
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
    ) -> LearnerState:
        """Return the state after one more measurement. The measurement is given as arrays.

        R is the number of admissible state-action pairs; T is H, or 1 if steps are pooled.

        - users : number of users in this measurement and all earlier measurements.
        - number : number of the release.
        - transitions (T, R, S) and rewards (T, R) : transition counts and reward sums of the measurement.
        - pooled (1, R, S) and pooled_rewards (1, R) : families that are summed over steps; empty if there are
          none.
        - known (H, R) : public mean rewards; empty if rewards are not public.
        - errors : result of :meth:`errors`, with the decay and gain of the measurement.
        """
        layout = state.spec.layout
        memory, values, q = state.memory.copy(), np.empty_like(state.values), np.empty_like(state.q)
        trials = np.empty_like(state.trials)
        noise_kernels.noise_aware_step(
            state.kernel.knobs, layout.state_ptr, layout.horizon, int(users), int(number), _own(transitions),
            _own(rewards), _own(pooled), _own(pooled_rewards), known, errors, memory, values, q,
            state.ties, trials, np.empty(self.work_size(state.spec)),
        )  # fmt: skip
        return replace(state, memory=memory, values=values, q=q, trials=trials, number=number, part=0)

    def policies(
        self, state: LearnerState, users: int, batch: int
    ) -> list[tuple[NDArray[Any], int]]:  # fmt: skip
        """Return the policies of one batch, (H, S) actions each, with their numbers of users.

        users : number of users before the batch. batch : number of users in the batch.
        """
        exploring = self._exploring(users, batch, state.spec)
        sizes = kernels.part_sizes(batch, exploring, int(self.tie_batches or 1))
        return [(self._policy(state, part), size) for part, size in enumerate(sizes) if size]

    def plan(self, state: Any, release: Release, ask: Ask | None = None) -> tuple[Plan, Any]:
        """Return the policy of the next users and the new state.

        The new state contains the number of these users and their expected visits.
        """
        if self.explore == "returns":
            return returns.plan(self, state, release)
        if not isinstance(release, MixedRelease):
            plan, state = super().plan(state, release, ask)
            return plan, self._noted(state, plan.policy, plan.users)
        if release.number != state.number:
            for policy, users in release.followed:
                state = self._noted(state, policy, users)
        return super().plan(state, release, ask)

    def _noted(self, state: LearnerState, policy: NDArray[Any], users: int) -> LearnerState:
        """Return a state that also contains ``users`` users of the policy, and their expected visits."""
        layout = state.spec.layout
        rows = np.ascontiguousarray(layout.row_index[np.arange(layout.states)[None, :], policy])
        memory = state.memory.copy()
        slots = self._slots(state.spec)
        pooled = self._cells(state.spec) > slots * layout.rows
        noise_kernels.note_assignments(memory, slots, layout.rows, pooled, rows, int(users))
        return replace(state, memory=memory)

    # ---------------------------------------------------------------------------- description
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each part of the learner that no regret theorem covers.

        There is at least one string, because the bonus is not a confidence bound.
        """
        yield "the bonus is a multiple of the noise's standard deviation, no confidence bound"
        if self.explore == "returns":
            yield "explore = 'returns' deploys what is measured to earn, by a rule without a theorem"
        if self.shrink:
            yield "shrink = True shares rows over steps by empirical Bayes"
        if self.prior is not None:
            yield "prior weighs a public model by its misfit, without a theorem"


@lru_cache(maxsize=32)
def _tuned(learner: NoiseAwareUCBVI, spec: ProblemSpec) -> NoiseAwareUCBVI:
    """Return ``learner.tuned(spec)`` from a cache. Each plan needs the result several times."""
    return learner._tuned(spec)


def _own(array: Floats) -> Floats:
    """Return ``array``, or a copy if it is not writable and C-contiguous. Kernels need such arrays."""
    return array if array.flags.writeable and array.flags.c_contiguous else np.array(array)
