r"""UCRL-VTR and UCRL-VTR+ on noisy sums: exploration in linear mixtures by value-targeted regression.

P_h(s' | s, a) = <phi(s' | s, a), w_h> with known phi. Sources: Jia et al. and Ayoub et al. 2020
(UCRL-VTR), Zhou et al. 2021 (UCRL-VTR+), Luyo et al. 2021 (both under privacy).

At each release, backward from V_H = 0, with c and m the centre and scale of V_{h+1} that
:class:`~discreet.mechanisms.linear.linear_queries.MixtureQuery` states (raw, centred or span targets):

    Lambda_h = repaired(Gram_h + L_h I),   w_h = Lambda_h^-1 u_h,   phi-bar = phi_{V_{h+1} - c}(s, a)

    Q_h = clip(r_h + c + <phi-bar, w_h> + bonus_scale beta_h ||phi-bar||_{Lambda_h^-1}, 0, b_h),
    V_h = max_a Q_h.

Subtracting c is unbiased because <phi_1(s, a), w_h> = 1. V is the plan's context: each user who follows the
plan contributes (phi_{(V - c) / m}, (V(s') - c) / m), so a user's targets are a function of earlier releases.
With span targets, this is a regression with the public weights 1 / m^2, in which targets always use their
full range relative to the noise. The last step has no target. The query defines the released sums and their
privacy cost; all computations here are post-processing.

Ridge. L_h = lam + ridge x 2 std sqrt(d), where 2 std sqrt(d) is the spectral edge of the noise matrix. If
``ridge`` is "bound", L_h = lam + 2 Upsilon_h, with Upsilon_h the tail bound of the noise in this release.
``lam`` "bound" is the square of the bound of ||x||: b^2 F01^2 raw, (b F+-)^2 / 4 centred, F+-^2 / 4 span.
``lam`` "horizon" is the published H^2 F01^2, or ``lam`` is a number.

Width. The sum B = L I + G of ridge and noise in a Gram matrix has all eigenvalues above low = L - Upsilon.
The noise of the response is g. With probability 1 - failure, at all steps and releases,

    ||w_h - w-hat_h||_Lambda <= R sqrt(2 log(1 / p1) + log det(Lambda) - d log(low))
                                + C_w sqrt(L + 2 std sqrt(log(1 / p2))) + C_g / sqrt(low) = beta_h,

R = half the range of y. Proof: Lambda (w - w-hat) = B w - sum X eta - g. Given B >= low I, (i) the sum's norm
is at most that in (Gram + low I)^-1, self-normalised with ratio det(Gram + low I) / low^d <= det(Lambda) /
low^d; (ii) ||B w||_{Lambda^-1} <= sqrt(w^T B w), and w^T G w is normal with variance at most 2 std^2 ||w||^4,
as w is constant (Laplace noise: Upsilon in its place); (iii) the last term is at most ||g|| / sqrt(low). The
ratio is also at most (1 + k ||x||^2 / (d low))^d, and the smaller bound is used. The bound low changes from
release to release, so p1 = failure / (3 H J) with J releases; exact sums keep low = lam and p1 = failure / H.
The failure probability of noise is failure / (3 H J) for g, and half of that for each of Upsilon and the
normal variable. The bound needs low >= lam, which ``ridge="bound"`` ensures. With a smaller ridge, low =
max(lam, L - Upsilon) and the bonus is a heuristic. The bonus is also a heuristic if ``bonus_scale`` is below
1. With ``constants="published"`` the width is 3 (C_w + 1) sqrt(lam + Upsilon) + b sqrt(2 log(3 H / p) + d
log(1 + K H)). In this formula b is the range of values and Upsilon = std (4 sqrt(d) + 2 log(6 K H / p)) at
the largest std of the run.

UCRL-VTR+. Let V-bar = (V - c) / m, rho = sup |V-bar|, phi1 = phi_{V-bar} and phi2 = phi_{V-bar^2}. A second
pair regresses V-bar(s')^2 on phi2 (w2, Lambda2). The quantities

    Var = clip(<phi2, w2>, 0, rho^2) - clip(<phi1, w>, -rho or 0, rho)^2

    E = min(rho^2, 2 rho beta1 ||phi1||_{Lambda^-1}) + min(rho^2, beta2 ||phi2||_{Lambda2^-1})

    sigma^2 = clip(Var + E, var_floor M^2, var_max M^2),  M the largest range of targets,

determine the weights of the first pair: x = phi1 / sigma, y = V-bar(s') / sigma. E has phi2 in its second
term (the paper prints phi_V). The weights 1 / sigma^2 <= 1 / (var_floor M^2) are a table over (s, a) in the
plan's context; the floor affects the noise. The widths beta1 and beta2 need no variances. With "tight" they
are the width above; with "published" they are the width of Bernstein's inequality with the range as sigma.
Both are multiplied by ``bonus_scale``. The width beta is Bernstein's with sigma = 1 (Zhou et al.); with
"tight" it is the smaller of that width and beta1. The choice sigma = 1 requires that sigma^2 is above the
variances. Targets of range b have variance at most b^2 / 4. If the cap var_max M^2 is below that, sigma is b
/ (2 M sqrt(var_max)) instead. The paper has no cap, which is the same as the cap 3 M^2.

Unknown rewards (``known_rewards=False``) use the share ``reward_share`` of the budget, and are estimated in
one of two forms. Each form gives a bonus, which is multiplied by ``bonus_scale``.

"features" is for environments with psi (``spec.features.rewards``), where r_h = <psi, theta_h> and
||theta_h|| <= C_r. A separate pair, psi psi^T and psi (r - c), is solved like the first pair, with |r - c -
<psi, theta-hat>| <= beta_r ||psi||_{Lambda_r^-1}. Here beta_r is the width above with R = 1/2 and C_r for
C_w. If 1 = <psi, v>, then c = 1/2 and C_r + ||v|| / 2 replaces C_w, with the shortest v, as the target's
weights are theta - v / 2.

"tabular" has noisy visits N and sums of r - 1/2 by pairs. Let |noise| <= E1, E2 and D = max(1, N + E1). D is
at least the true visits n and at most max(1, n + 2 E1). Then

    |r - 1/2 - sum / D| <= (max(E1, 1/2) + E2) / D + sqrt(log(2 S A H D (D + 1) / p) / (2 D)).

The number of visits of a pair depends on the rewards seen there. Therefore Hoeffding's bound must hold
simultaneously for every n. The failure probability for n is p / (n (n + 1)), and these sum to p.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.families import CENTERED_REWARDS, VISITS
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

Floats = NDArray[np.float64]
Lam = float | Literal["bound", "horizon"]
RewardForm = Literal["features", "tabular"]

# Default ridge, in spectral edges of the noise. On mixtures with seeds 11 to 15 (30 runs each), central
# noise, epsilon = 1, regret was 369 +- 18 at ridge 1 and 325 +- 21 at ridge 2. It was the same at epsilon =
# 10. Under local noise at epsilon = 10, regret was 663 +- 42 at ridge 2 and 460 +- 30 at ridge 4; 3 and 6 are
# as good as 4.
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
    """Solution of one pair at n steps; log_det (n,) is log det Lambda, floored counts raised eigenvalues."""

    log_det: Floats
    floored: int


@dataclass(frozen=True, eq=False)
class _PairNoise:
    """Noise of one pair in one release, by step: ridge level L, lam, low, and the noise part of beta.

    failure : failure probability of each sampling event at one step.
    """

    level: Floats
    lam: Floats
    low: Floats
    width: Floats
    failure: float


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """Estimates: values, second moments (VTR+), rewards (H, S, A) and their bonus at scale 1."""

    first: Regression
    second: Regression | None
    rewards: Floats
    reward_bonus: Floats | None


@dataclass(frozen=True, kw_only=True)
class UCRLVTR(LinearLearner):
    """UCRL-VTR on exact or noisy sums, for linear mixtures (needs ``MixtureFeatures`` in the spec).

    Parameters
    ----------
    preset : "default" or "paper"
        ``default``: span targets, geometric schedule, scaled bonus (heuristic). ``paper``: raw targets, the
        published beta and ridge, a plan for every user.
    targets : "span", "centred" or "raw"
        Regression targets. This option affects the noise.
    clip : "remaining" or "horizon"
        b_h: the largest remaining value, or H as published. This option affects the noise.
    lam : float, "bound" or "horizon"
    ridge : float or "bound", optional
        Ridge in spectral edges of the noise matrix. None: 4 under a local ``spec.budget``, 2 otherwise.
    constants : "tight" or "published"
        Constants of the width.
    over_steps : "power", "flat" or "noise"
        Rule that splits the budget over steps, see :mod:`discreet.mechanisms.linear.linear_queries`. This
        option affects the noise.
    reward_share : float
        Share of the budget for unknown rewards. This option affects the noise.
    reward_form : "features" or "tabular", optional
        Form in which unknown rewards are estimated. This option affects the noise. None: "features" if the
        environment has reward features, else "tabular".

    Further options: see :class:`~discreet.learners.online.linear_base.LinearLearner`.
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
    EVENTS: ClassVar[int] = 1  # number of sampling events whose failure probabilities are summed
    PRINTED: ClassVar[int] = 6  # constant in the paper's logarithms
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

    # --------------------------------------------------------------------------- public facts
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

    # -------------------------------------------------------------------------- one release
    def fitted(self, state: LinearState, release: Release) -> tuple[MixtureFit, Floats]:
        """Return the regressions with their widths, the rewards, and log determinants of the Gram matrices.

        state : state after the earlier releases. release : the new release.
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
        """Return the ridge levels, and the part of the width from ridge and noise."""
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

        All such events have equal failure probabilities; unknown rewards count as one more event.
        """
        events = self.EVENTS + (0 if self.known_rewards else 1)
        return float(self.failure or 0.05) / (events * spec.horizon)

    def _published_tail(self, state: LinearState, law: Any, h: int, d: int) -> float:
        """Return Upsilon as printed: the run's largest std times 4 sqrt(d) + 2 log(6 K H / p).

        The number of summed noises is ceil(log2 K + 1) for a tree over users, K for local noise, and J for a
        schedule of J releases. For UCRL-VTR+ the 6 is replaced by 24.
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
        """Return the sampling part of ``width`` and ``plain`` of :class:`Regression`."""
        if self.constants == "published":
            log = math.log(3 * spec.horizon / float(self.failure or 0.05))
            log += pair.dimension / 2 * math.log1p(float(spec.users or 1) * spec.horizon)
            found = math.sqrt(2.0 * log) * _spans(pair)
        else:
            found = _self_normalised(pair, noise, log_det, users)
        return found, found

    def _rewards(self, state: LinearState, release: Release) -> tuple[Floats, Floats]:
        """Return (H, S, A) estimates of mean rewards in [0, 1], and bounds of their errors."""
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
        """Compute optimistic values backward over steps, and return them with the plan's context.

        state : state after the earlier releases. fitted : result of :meth:`fitted` for ``release``. ask : not
        used, because users' contributions depend on the values already.
        """
        spec = state.spec
        found = optimistic_action(self.query(spec).form, self._solution(spec, fitted))
        return PlanningResult(found.values, spec.layout.to_rows(found.q), found.context, fitted)

    def solution(self, state: LinearState) -> Solution:
        """Return the public data of the last plan in ``state``, from which a user's device can plan itself.

        Raises ``ValueError`` before the first release.
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

    # ------------------------------------------------------------------------------- in words
    def heuristics(self) -> Iterator[str]:
        """Yield the options whose values invalidate the regret theorem, each with the reason."""
        yield from super().heuristics()
        if self.ridge != "bound":
            yield "with a ridge below 'bound' noise can move eigenvalues below lam"


@dataclass(frozen=True, kw_only=True)
class UCRLVTRPlus(UCRLVTR):
    """UCRL-VTR+: regression weighted by estimated variances.

    Under privacy, expect larger regret than for UCRL-VTR with span targets: a weight shrinks the signal but
    not the noise, and the second pair needs a share of the budget.

    Parameters
    ----------
    preset : "default" or "paper"
    var_floor, var_max : float, optional
        Range of sigma^2, in units of the square of the largest range of targets; ``var_floor`` affects the
        noise: with a smaller value, weights adapt more but the noise is larger. None: the smaller of 1 / d
        and ``var_max``.
    moment_share : float
        Share of the values' budget for the weighted pair. This option affects the noise.

    Further options: see :class:`UCRLVTR`.
    """

    var_floor: float | None = None
    var_max: float | None = None
    moment_share: float | None = None

    EVENTS: ClassVar[int] = 3
    PRINTED: ClassVar[int] = 24
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {**_DEFAULT, "var_max": 1.0, "moment_share": 0.7},
        "paper": {**_PAPER, "lam": 1.0, "moment_share": 0.5, "var_max": 3.0},  # Var + E is never above 3
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
        """Return the smallest and the largest sigma^2."""
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
        """Return the sampling part of ``width`` and ``plain`` of :class:`Regression`."""
        if pair.matrix == REWARD_GRAM:
            return super()._sampling(spec, pair, noise, log_det, users)
        second, spans = pair.matrix == SECOND_GRAM, _spans(pair)
        if self.constants == "published":
            k, most = users + 1.0, float(spec.users or 1)  # number of the planned episode
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
    """Return a bound on the norm of the weights of r - c.

    It is C_r; if rewards are centred, half the norm of the shortest v with <psi, v> = 1 is added.
    """
    psi, bound = features.rewards, features.reward_weight_bound
    assert psi is not None
    assert bound is not None
    if not psi.constant:
        return bound
    v = np.linalg.lstsq(psi.rows, np.ones(len(psi.rows)), rcond=None)[0]
    return bound + float(np.linalg.norm(v)) / 2


def _linear_rewards(psi: Features, solved: Regression) -> tuple[Floats, Floats]:
    """Return (H, S, A) estimates of mean rewards in [0, 1], and bounds of their errors."""
    shape = (len(solved.weights), psi.states, psi.actions)
    centre = 0.5 if psi.constant else 0.0
    found = np.clip(centre + solved.weights @ psi.rows.T, 0.0, 1.0).reshape(shape)
    lengths = np.linalg.norm(psi.rows @ solved.factor, axis=2).reshape(shape)
    return found, solved.width[:, None, None] * lengths


def _spans(pair: Pair) -> Floats:
    """Return the (n,) ranges of y."""
    return np.array(pair.high) - np.array(pair.low)


def _self_normalised(pair: Pair, noise: _PairNoise, log_det: Floats, users: int) -> Floats:
    """Return R sqrt(2 log(1 / p) + log det): the Hoeffding term of the width, at each step."""
    d, bound = pair.dimension, np.array(pair.bounds)
    ratio = np.minimum(log_det - d * np.log(noise.low), d * np.log1p(users * bound**2 / (d * noise.low)))
    return np.asarray(_spans(pair) / 2 * np.sqrt(2 * math.log(1 / noise.failure) + np.maximum(ratio, 0.0)))


def _bernstein(pair: Pair, low: Floats, sigma: float | Floats, log: float, users: float) -> Floats:
    """Return 8 sigma sqrt(d log(1 + k L^2 / (d low)) log) + 4 R log (Zhou et al. 2021).

    log = log(4 k^2 / p).
    """
    d, bound = pair.dimension, np.array(pair.bounds)
    ratio = np.log1p(users * bound**2 / (d * low))
    return np.asarray(8 * sigma * np.sqrt(d * ratio * log) + 4 * _spans(pair) * log)
