r"""UCRL-VTR and UCRL-VTR+ on noisy sums: exploration in linear mixtures by value-targeted regression.

A linear mixture has P_h(s' | s, a) = <phi(s' | s, a), w_h> with known features phi. For a function V on
states, phi_V(s, a) = sum over s' of V(s') phi(s' | s, a). Sources: Jia et al. and Ayoub et al. 2020
(UCRL-VTR), Zhou et al. 2021 (UCRL-VTR+), Luyo et al. 2021 (both with privacy).

**Planning.** At each release, the learner computes the following, backward from V_H = 0. Gram_h and u_h are
the released sums of x x^T and x y. The centre c and the scale m of V_{h+1} are defined in
:class:`~discreet.mechanisms.linear.linear_queries.MixtureQuery` (raw, centred or span targets).

    Lambda_h = repaired(Gram_h + L_h I),   w_h = Lambda_h^-1 u_h,   phi-bar = phi_{V_{h+1} - c}(s, a)

    Q_h = clip(r_h + c + <phi-bar, w_h> + bonus_scale beta_h ||phi-bar||_{Lambda_h^-1}, 0, b_h),
    V_h = max_a Q_h.

The function ``repaired`` raises eigenvalues that are too small. Subtracting c does not cause bias, because
<phi_1(s, a), w_h> = 1. Each user who follows the plan contributes x = phi_{(V - c) / m} and y = (V(s') - c) /
m. V is public, because it is a function of earlier releases.

**Ridge.** L_h = lam + ridge x 2 std sqrt(d), where 2 std sqrt(d) is the spectral edge of the noise matrix. If
``ridge`` is "bound", L_h = lam + 2 Upsilon_h, where Upsilon_h is the tail bound of the noise in this release.
If ``lam`` is "bound", lam is the square of the bound of ||x||: b^2 F01^2 for raw targets, (b F+-)^2 / 4 for
centred targets, and F+-^2 / 4 for span targets. If ``lam`` is "horizon", lam is the published H^2 F01^2.

**Width.** Let B = L I + G be the sum of the ridge and the noise G of a Gram matrix. All eigenvalues of B are
above low = L - Upsilon. The noise of the response u is g. With probability 1 - failure, for all steps and
releases,

    ||w_h - w-hat_h||_Lambda <= R sqrt(2 log(1 / p1) + log det(Lambda) - d log(low))
                                + C_w sqrt(L + 2 std sqrt(log(1 / p2))) + C_g / sqrt(low) = beta_h,

where w_h is the true parameter, w-hat_h is its estimate, and R is half of the range of y. C_w bounds ||w_h||,
and C_g bounds ||g||.

*Proof.* Lambda (w - w-hat) = B w - sum X eta - g, where eta is the error of the target y. Assume B >= low I.
(i) The norm of sum X eta is at most its norm in (Gram + low I)^-1, where Gram is without noise. The bound for
self-normalised sums applies to this norm, with the ratio det(Gram + low I) / low^d <= det(Lambda) / low^d.
(ii) ||B w||_{Lambda^-1} <= sqrt(w^T B w), and w^T G w is normal with variance at most 2 std^2 ||w||^4,
because w is constant. For Laplace noise, Upsilon replaces the bound of this normal variable. (iii) The last
term is at most ||g|| / sqrt(low). QED

The ratio in (i) is also at most (1 + k ||x||^2 / (d low))^d after k users, and the smaller bound is used.
A step has E events that share the failure probability: 1 for UCRL-VTR, 3 for UCRL-VTR+, and one more if
rewards are unknown. Let p0 = failure / (E H). With J releases, p1 = p0 / (3 J), because low changes from
release to release. With exact sums, low = lam, and p1 = p0. The bound of g fails with probability p0 / (3 J).
The bounds of Upsilon and of the normal variable each fail with probability p2 = p0 / (6 J).

The bound needs low >= lam, which ``ridge="bound"`` ensures. With a smaller ridge, low = max(lam, L -
Upsilon), and the bonus is a heuristic. The bonus is also a heuristic if ``bonus_scale`` is below 1. With
``constants="published"``, the width is 3 (C_w + 1) sqrt(lam + Upsilon) + b sqrt(2 log(3 H / p) + d log(1 + K
H)). Here b is the range of values and p is ``failure``. Further, Upsilon = std (4 sqrt(d) + 2 log(6 K H /
p)), where std is the largest standard deviation of the noise in the run.

**UCRL-VTR+.** Let V-bar = (V - c) / m, rho = sup |V-bar|, phi1 = phi_{V-bar} and phi2 = phi_{V-bar^2}. A
second pair of statistics is the regression of V-bar(s')^2 on phi2, with the solution w2 and the matrix
Lambda2. The quantities

    Var = clip(<phi2, w2>, 0, rho^2) - clip(<phi1, w>, -rho or 0, rho)^2

    E = min(rho^2, 2 rho beta1 ||phi1||_{Lambda^-1}) + min(rho^2, beta2 ||phi2||_{Lambda2^-1})

    sigma^2 = clip(Var + E, var_floor M^2, var_max M^2)

determine the weights of the first pair: x = phi1 / sigma and y = V-bar(s') / sigma. M is the largest range of
the targets. The second term of E has phi2, where the paper prints phi_V.

The widths beta1 and beta2 do not use variances. With ``constants="tight"``, they are the width above. With
"published", they are the width of Bernstein's inequality, with the range of the targets as sigma. Both widths
are multiplied by ``bonus_scale``.

The width beta of the bonus is that of Bernstein's inequality with sigma = 1 (Zhou et al.). With "tight", it
is the smaller of that width and beta1. If the cap var_max M^2 is below b^2 / 4, where b is the range of the
targets, b / (2 M sqrt(var_max)) replaces sigma = 1. The paper does not cap sigma^2.

**Unknown rewards** (``known_rewards=False``) use the share ``reward_share`` of the budget. Rewards are
estimated in one of two forms. Each form gives a bonus, which is multiplied by ``bonus_scale``.

The form "features" is for environments with reward features psi (``spec.features.rewards``), where r_h =
<psi, theta_h> and ||theta_h|| <= C_r. The statistics psi psi^T and psi (r - c) are solved in the same way as
the first pair. The bound is |r - c - <psi, theta-hat>| <= beta_r ||psi||_{Lambda_r^-1}, where beta_r is the
width above with R = 1/2 and with C_r instead of C_w. If 1 is in the span of psi, c = 1/2, and C_r + ||v|| / 2
replaces C_w. Here v is the shortest vector with 1 = <psi, v>.

The form "tabular" uses noisy visits N and noisy sums of r - 1/2 for each pair. Let E1 and E2 bound the noise
of visits and of sums, and let D = max(1, N + E1). D is at least the true number of visits n, and at most
max(1, n + 2 E1). Then

    |r - 1/2 - sum / D| <= (max(E1, 1/2) + E2) / D + sqrt(log(2 S A H D (D + 1) / p) / (2 D)).

Hoeffding's bound must hold simultaneously for every n, because the number of visits depends on observed
rewards. The failure probability for n is p / (n (n + 1)), and the sum over n is p.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, VISITS
from discreet.core.releases import Floats
from discreet.device.linear_planning import Solution, Solved, optimistic_action
from discreet.learners.estimation.linear_regression import Ridge, check_ridge, factored
from discreet.learners.online.linear_base import SHARED, LinearLearner, LinearState, PlanningResult
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Ask, ProblemSpec, Release
from discreet.mechanisms.linear.linear_queries import (
    GRAM,
    REWARD_GRAM,
    SECOND_GRAM,
    MixtureQuery,
    Pair,
    Targets,
)

Lam = float | Literal["bound", "horizon"]
RewardForm = Literal["features", "tabular"]

# Default ridges, as multiples of the spectral edge of the noise matrix. They were measured on linear
# mixtures: ridge 2 is best with central noise, and ridge 4 with local noise.
CENTRAL_RIDGE, LOCAL_RIDGE = 2.0, 4.0

_DEFAULT: Mapping[str, Any] = {
    **SHARED, "targets": "span", "clip": "remaining", "lam": "bound", "constants": "tight",
    "over_steps": "power", "reward_share": 1 / 3,
}  # fmt: skip
_PAPER: Mapping[str, Any] = {
    "targets": "raw", "clip": "horizon", "lam": "horizon", "constants": "published", "ridge": "bound",
    "bonus_scale": 1.0, "replan_every": 1, "over_steps": "flat", "tie_break": "first",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Regression(Solved):
    """Solution of the regression of one pair of statistics (x x^T, x y) at n steps.

    ``log_det`` (n,) is log det Lambda. ``floored`` is the number of eigenvalues of Lambda that were raised to
    their lower limit, over all steps.
    """

    log_det: Floats
    floored: int


@dataclass(frozen=True, eq=False)
class _PairNoise:
    """Ridge and noise of one pair of statistics in one release, for each of n steps.

    The module docstring defines the symbols. ``level`` (n,) is L, ``lam`` (n,) is lam, ``low`` (n,) is low,
    and ``failure`` is p1. ``width`` (n,) is the part of beta that is due to ridge and noise.
    """

    level: Floats
    lam: Floats
    low: Floats
    width: Floats
    failure: float


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """Estimates from one release.

    ``first`` is the regression of values, and ``second`` that of squared values (UCRL-VTR+ only). ``rewards``
    (H, S, A) are mean rewards. ``reward_bonus`` (H, S, A) is their bonus without the factor ``bonus_scale``;
    it is None if rewards are known.
    """

    first: Regression
    second: Regression | None
    rewards: Floats
    reward_bonus: Floats | None


@dataclass(frozen=True, kw_only=True)
class UCRLVTR(LinearLearner):
    """UCRL-VTR on exact or noisy sums, for linear mixtures.

    The problem must declare ``MixtureFeatures``.

    Parameters
    ----------
    preset : "default" or "paper"
        ``default``: span targets, a geometric schedule, and a smaller bonus (heuristic). ``paper``: raw
        targets, the published beta and ridge, and a new plan for every user.
    targets : "span", "centred" or "raw"
        Centre and scale of the regression targets; see
        :class:`~discreet.mechanisms.linear.linear_queries.MixtureQuery`. The noise depends on this option.
    clip : "remaining" or "horizon"
        Upper limit b_h of Q at step h (starting at 0). ``remaining``: H - h. ``horizon``: H, as published.
        The noise depends on this option.
    lam : float, "bound" or "horizon"
        Part of the ridge that does not depend on the noise; see :mod:`discreet.learners.online.ucrl_vtr`.
    ridge : float or "bound", optional
        Part of the ridge that depends on the noise, as a multiple of the spectral edge of the noise matrix.
        "bound": twice a tail bound of the noise. None: 4 if ``spec.budget`` is local, 2 otherwise.
    constants : "tight" or "published"
        Constants of the width beta.
    over_steps : "power", "flat" or "noise"
        Rule that splits the budget over steps; see :mod:`discreet.mechanisms.linear.linear_queries`.
    reward_share : float
        Share of the budget for unknown rewards.
    reward_form : "features" or "tabular", optional
        Form in which unknown rewards are estimated. None: "features" if the environment has reward features,
        otherwise "tabular". The noise depends on this option.

    For further options see :class:`~discreet.learners.online.linear_base.LinearLearner`.
    """

    targets: Targets | None = None
    clip: Literal["remaining", "horizon"] | None = None
    lam: Lam | None = None
    ridge: Ridge | None = None
    constants: Literal["tight", "published"] | None = None
    over_steps: Literal["power", "flat", "noise"] | None = None
    reward_share: float | None = None
    reward_form: RewardForm | None = None

    FEATURES: ClassVar[type[MixtureFeatures]] = MixtureFeatures
    EVENTS: ClassVar[int] = 1  # number of sampling events per step that share the failure probability
    PRINTED: ClassVar[int] = 6  # constant that is printed in the logarithms of the paper
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": _DEFAULT, "paper": _PAPER}

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        checks.choice("targets", self.targets, ("span", "centred", "raw"))
        checks.choice("clip", self.clip, ("remaining", "horizon"))
        if not (isinstance(self.lam, str) and self.lam in ("bound", "horizon")):
            put(self, "lam", checks.positive("lam", self.lam))
        if self.ridge is not None:
            put(self, "ridge", check_ridge(self.ridge))
        checks.choice("constants", self.constants, ("tight", "published"))
        checks.choice("over_steps", self.over_steps, ("power", "flat", "noise"))
        share = checks.real("reward_share", self.reward_share, 0.0, 1.0, open_low=True, open_high=True)
        put(self, "reward_share", share)
        if self.reward_form is not None:
            checks.choice("reward_form", self.reward_form, ("features", "tabular"))

    # ---------------------------------------------------------------------- schedule and query
    def _check(self, spec: ProblemSpec) -> None:
        super()._check(spec)
        if spec.horizon < 2:
            raise ValueError("spec.horizon = 1: must be at least 2, the last step has no target")
        if self.constants == "published" and spec.users is None:
            raise ValueError(
                "constants = 'published': must be 'tight' where the number of users is not known"
            )
        if self.reward_form == "features" and _features(spec).rewards is None:
            raise ValueError(
                "reward_form = 'features': must be 'tabular', the world declares no features of rewards"
            )

    def query(self, spec: ProblemSpec) -> MixtureQuery:
        """Return the query for the sums that this learner reads, with their declared bounds."""
        self._check(spec)
        return MixtureQuery(
            layout=spec.layout,
            features=_features(spec),
            targets=self.targets or "span",
            clip=self.clip or "remaining",
            rewards=self._rewards_asked(spec),
            over_steps=self.over_steps or "power",
            reward_share=float(self.reward_share or 1 / 3),
        )

    def _rewards_asked(self, spec: ProblemSpec) -> Literal["tabular"] | Features | None:
        if self.known_rewards:
            return None
        psi = None if self.reward_form == "tabular" else _features(spec).rewards
        return "tabular" if psi is None else psi

    # -------------------------------------------------------------- planning from a release
    def fitted(self, state: LinearState, release: Release) -> tuple[MixtureFit, Floats]:
        """Return the estimates from ``release``, and (n,) log determinants of the regularised Gram matrices.

        ``state`` : state after the earlier releases. ``release`` : the new release.
        """
        query = self.query(state.spec)
        solved = {pair.matrix: self._regression(state, release, pair) for pair in query.pairs}
        rewards, bonus = state.spec.known_rewards, None
        if isinstance(query.rewards, Features):
            rewards, bonus = _linear_rewards(query.rewards, solved[REWARD_GRAM])
        elif rewards is None or not self.known_rewards:
            rewards, bonus = self._rewards(state, release)
        fit = MixtureFit(solved[GRAM], solved.get(SECOND_GRAM), rewards, bonus)
        return fit, solved[GRAM].log_det

    def _regression(self, state: LinearState, release: Release, pair: Pair) -> Regression:
        matrix, vector = release.estimates[pair.matrix], release.estimates[pair.vector]
        noise = self._noise(state, release, pair, matrix.law, vector.law)
        found = factored(np.asarray(matrix.value), noise.level, noise.lam)
        half = found.factor.swapaxes(-1, -2) @ np.asarray(vector.value)[:, :, None]
        weights = (found.factor @ half)[:, :, 0]
        width, plain = self._sampling(state.spec, pair, noise, found.log_det, release.users)
        return Regression(
            weights, found.factor, noise.width + width, noise.width + plain, found.log_det, found.floored
        )

    def _noise(self, state: LinearState, release: Release, pair: Pair, gram: Any, vector: Any) -> _PairNoise:
        """Compute the ridge of one pair of statistics, and the part of the width due to ridge and noise.

        ``gram`` and ``vector`` are the noise distributions of the sums of x x^T and of x y.
        """
        spec, n, d = state.spec, pair.steps, pair.dimension
        c_w, most = _features(spec).weight_bound, (spec.horizon * _features(spec).bound) ** 2
        by_bound = self.lam == "bound" or pair.matrix == REWARD_GRAM
        if pair.matrix == REWARD_GRAM:
            c_w = _reward_weights(_features(spec))
        if isinstance(self.lam, float):
            lam = np.full(n, self.lam)
        else:
            lam = np.array([b * b if by_bound else most for b in pair.bounds])
        failure = self._failure(spec)
        if gram.family == "none" or release.number == 0:
            return _PairNoise(lam, lam, lam, c_w * np.sqrt(lam), failure)
        ridge = self.ridge
        if ridge is None:
            local = spec.budget is not None and spec.budget.trust == "local"
            ridge = LOCAL_RIDGE if local else CENTRAL_RIDGE
        failure /= 3 * state.union(release)
        level, low, width = lam.copy(), lam.copy(), np.zeros(n)
        for h in range(n):
            published = self.constants == "published"
            if published:
                tail = self._published_tail(state, gram, h, d)
            else:
                tail = gram.operator_norm_bound(failure / 2, h)
            level[h] += 2.0 * tail if ridge == "bound" else float(ridge) * gram.edge(h)
            low[h] = max(lam[h], level[h] - tail)
            if published:
                width[h] = 3.0 * (c_w + 1.0) * math.sqrt(lam[h] + tail)
                continue
            reach = tail if gram.laplace else 2.0 * gram.std(h) * math.sqrt(math.log(2 / failure))
            width[h] = c_w * math.sqrt(level[h] + reach) + vector.norm_bound(failure, h) / math.sqrt(low[h])
        return _PairNoise(level, lam, low, width, failure)

    def _failure(self, spec: ProblemSpec) -> float:
        """Return the failure probability of one sampling event at one step.

        ``failure`` is divided equally over all steps and the ``EVENTS`` events at each step.
        """
        events = self.EVENTS + (0 if self.known_rewards else 1)
        return float(self.failure or 0.05) / (events * spec.horizon)

    def _published_tail(self, state: LinearState, law: Any, h: int, d: int) -> float:
        """Return the published tail bound std (4 sqrt(d) + 2 log(6 K H / p)) of the noise at step ``h``.

        Here std is the largest standard deviation of the noise in the run. For UCRL-VTR+, 24 replaces 6.
        """
        spec = state.spec
        users = int(spec.users or 1)
        if spec.budget is not None and spec.budget.trust == "local":
            terms = users
        elif state.releases is not None and state.releases < users - 1:
            terms = state.releases
        else:
            terms = math.ceil(math.log2(users) + 1)
        log = math.log(self.PRINTED * users * spec.horizon / float(self.failure or 0.05))
        std = float(law.scales[h]) * (math.sqrt(2.0) if law.laplace else 1.0)
        return std * math.sqrt(terms) * (4 * math.sqrt(d) + 2 * log)

    def _sampling(
        self, spec: ProblemSpec, pair: Pair, noise: _PairNoise, log_det: Floats, users: int
    ) -> tuple[Floats, Floats]:
        """Return the sampling parts of the widths ``width`` and ``plain`` of :class:`Regression`, (n,)."""
        if self.constants == "published":
            log = math.log(3 * spec.horizon / float(self.failure or 0.05))
            log += pair.dimension / 2 * math.log1p(float(spec.users or 1) * spec.horizon)
            found = math.sqrt(2.0 * log) * _spans(pair)
        else:
            found = _self_normalised(pair, noise, log_det, users)
        return found, found

    def _rewards(self, state: LinearState, release: Release) -> tuple[Floats, Floats]:
        """Return estimates of mean rewards in [0, 1] in the form "tabular", and bounds on their errors.

        Both arrays are (H, S, A).
        """
        spec = state.spec
        visits, sums = release.estimates[VISITS], release.estimates[CENTERED_REWARDS]
        p = self._failure(spec) * spec.horizon / 3
        noisy = visits.law.family != "none" and release.number > 0
        e1, e2 = (law.bound(p) if noisy else 0.0 for law in (visits.law, sums.law))
        seen = np.maximum(1.0, np.asarray(visits.value) + e1)
        log = math.log(2 * spec.horizon * spec.states * spec.actions / p) + np.log(seen * (seen + 1.0))
        width = (max(e1, 0.5) + e2) / seen + np.sqrt(log / (2 * seen))
        return np.clip(0.5 + np.asarray(sums.value) / seen, 0.0, 1.0), width

    def planned(
        self, state: LinearState, fitted: MixtureFit, release: Release, ask: Ask | None
    ) -> PlanningResult:
        """Compute optimistic V and Q backward over steps, and the context of the plan.

        ``state`` : state after the earlier releases. ``fitted`` : result of :meth:`fitted` for ``release``.
        ``ask`` : not used.
        """
        spec = state.spec
        found = optimistic_action(self.query(spec).form, self._solution(spec, fitted))
        return PlanningResult(found.values, spec.layout.to_rows(found.q), found.context, fitted)

    def solution(self, state: LinearState) -> Solution:
        """Return the public data of the last plan, from which a user's device can compute the same plan.

        ``state`` : state after a release. Raises ``ValueError`` before the first release.
        """
        if state.fit is None:
            raise ValueError("state: must be after a release, nothing was estimated yet")
        return self.tuned(state.spec)._solution(state.spec, state.fit)

    def _solution(self, spec: ProblemSpec, fit: MixtureFit) -> Solution:
        horizon, scale = spec.horizon, float(self.bonus_scale or 0.0)
        rewards = fit.rewards
        if fit.reward_bonus is not None:
            rewards = np.minimum(1.0, rewards + scale * fit.reward_bonus)
        tops = tuple(float(horizon if self.clip == "horizon" else horizon - h) for h in range(horizon))
        return Solution(fit.first, rewards, scale, tops)

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.ridge != "bound":
            yield "with a ridge below 'bound' noise can move eigenvalues below lam"


@dataclass(frozen=True, kw_only=True)
class UCRLVTRPlus(UCRLVTR):
    """UCRL-VTR+: UCRL-VTR with a regression that is weighted by estimated variances.

    With privacy, regret is usually larger than for UCRL-VTR with span targets.

    Parameters
    ----------
    preset : "default" or "paper"
    var_floor, var_max : float, optional
        Smallest and largest value of sigma^2, in units of the square of the largest range of the targets. A
        smaller ``var_floor`` increases the noise. None for ``var_floor``: the smaller of 1 / d and
        ``var_max``.
    moment_share : float
        Share of the weighted regression in the budget of the two value regressions.

    For further options see :class:`UCRLVTR`.
    """

    var_floor: float | None = None
    var_max: float | None = None
    moment_share: float | None = None

    EVENTS: ClassVar[int] = 3
    PRINTED: ClassVar[int] = 24
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {**_DEFAULT, "var_max": 1.0, "moment_share": 0.7},
        "paper": {**_PAPER, "lam": 1.0, "moment_share": 0.5, "var_max": 3.0},  # Var + E is at most 3 M^2
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "var_max", checks.positive("var_max", self.var_max))
        if self.var_floor is not None:
            low = checks.real("var_floor", self.var_floor, 0.0, float(self.var_max or 1.0), open_low=True)
            put(self, "var_floor", low)
        share = checks.real("moment_share", self.moment_share, 0.0, 1.0, open_low=True, open_high=True)
        put(self, "moment_share", share)

    def _range(self, spec: ProblemSpec) -> tuple[float, float]:
        """Return the smallest and the largest allowed value of sigma^2."""
        most = float(self.var_max or 1.0)
        low = min(most, 1.0 / _features(spec).dimension) if self.var_floor is None else self.var_floor
        unit = 1.0
        if self.targets != "span":
            unit = float(spec.horizon - (0 if self.clip == "horizon" else 1)) ** 2
        return low * unit, most * unit

    def query(self, spec: ProblemSpec) -> MixtureQuery:
        """Return the query for the sums that this learner reads, with their declared bounds."""
        plain = super().query(spec)
        return replace(
            plain, second=True, largest_weight=1.0 / self._range(spec)[0],
            moment_share=float(self.moment_share or 0.7),
        )  # fmt: skip

    def _sampling(
        self, spec: ProblemSpec, pair: Pair, noise: _PairNoise, log_det: Floats, users: int
    ) -> tuple[Floats, Floats]:
        """Return the sampling parts of the widths ``width`` and ``plain`` of :class:`Regression`, (n,)."""
        if pair.matrix == REWARD_GRAM:
            return super()._sampling(spec, pair, noise, log_det, users)
        second, spans = pair.matrix == SECOND_GRAM, _spans(pair)
        if self.constants == "published":
            k, most = users + 1.0, float(spec.users or 1)  # k is the number of the next user
            log = math.log(self.PRINTED * k * k * spec.horizon / float(self.failure or 0.05))
            plain = _bernstein(pair, noise.lam, spans, log, most)
            return (plain if second else _bernstein(pair, noise.lam, 1.0, log, most)), plain
        plain = _self_normalised(pair, noise, log_det, users)
        if second:
            return plain, plain
        log = math.log(4 * max(1, users) ** 2 / noise.failure)
        least, most = self._range(spec)
        sigma = np.maximum(1.0, spans / 2 * math.sqrt(least / most))
        return np.minimum(plain, _bernstein(pair, noise.low, sigma, log, float(users))), plain

    def _solution(self, spec: ProblemSpec, fit: MixtureFit) -> Solution:
        return replace(super()._solution(spec, fit), second=fit.second, variances=self._range(spec))


def _features(spec: ProblemSpec) -> MixtureFeatures:
    assert isinstance(spec.features, MixtureFeatures)
    return spec.features


def _reward_weights(features: MixtureFeatures) -> float:
    """Return a bound on the norm of the parameter of r - c in the features psi.

    The bound is C_r, plus half of the norm of the shortest v with <psi, v> = 1 if rewards are centred.
    """
    psi, bound = features.rewards, features.reward_weight_bound
    assert psi is not None
    assert bound is not None
    if not psi.constant:
        return bound
    v = np.linalg.lstsq(psi.rows, np.ones(len(psi.rows)), rcond=None)[0]
    return bound + float(np.linalg.norm(v)) / 2


def _linear_rewards(psi: Features, solved: Regression) -> tuple[Floats, Floats]:
    """Return estimates of mean rewards in [0, 1] in the form "features", and bounds on their errors.

    Both arrays are (H, S, A). ``solved`` is the regression of rewards on the features ``psi``.
    """
    shape = (len(solved.weights), psi.states, psi.actions)
    centre = 0.5 if psi.constant else 0.0
    found = np.clip(centre + solved.weights @ psi.rows.T, 0.0, 1.0).reshape(shape)
    lengths = np.linalg.norm(psi.rows @ solved.factor, axis=2).reshape(shape)
    return found, solved.width[:, None, None] * lengths


def _spans(pair: Pair) -> Floats:
    """Return the range of the target y at each of n steps, (n,)."""
    return np.array(pair.high) - np.array(pair.low)


def _self_normalised(pair: Pair, noise: _PairNoise, log_det: Floats, users: int) -> Floats:
    """Return the Hoeffding term R sqrt(2 log(1 / p) + log(ratio)) of the width, at each of n steps, (n,)."""
    d, bound = pair.dimension, np.array(pair.bounds)
    ratio = np.minimum(log_det - d * np.log(noise.low), d * np.log1p(users * bound**2 / (d * noise.low)))
    return np.asarray(_spans(pair) / 2 * np.sqrt(2 * math.log(1 / noise.failure) + np.maximum(ratio, 0.0)))


def _bernstein(pair: Pair, low: Floats, sigma: float | Floats, log: float, users: float) -> Floats:
    """Return the Bernstein width 8 sigma sqrt(d log(1 + k L^2 / (d low)) l) + 4 R l (Zhou et al. 2021).

    Here k is ``users``, and ``log`` is l = log(4 k^2 / p).
    """
    d, bound = pair.dimension, np.array(pair.bounds)
    ratio = np.log1p(users * bound**2 / (d * low))
    return np.asarray(8 * sigma * np.sqrt(d * ratio * log) + 4 * _spans(pair) * log)
