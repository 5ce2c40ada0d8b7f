r"""UCRL-VTR and UCRL-VTR+ on noisy sums: exploration in linear mixtures by value-targeted regression.

P_h(s' | s, a) = <phi(s' | s, a), w_h> with known phi. Sources: Jia et al. and Ayoub et al. 2020 (UCRL-VTR), Zhou et
al. 2021 (UCRL-VTR+), Luyo et al. 2021 (both under privacy); specification linear-and-offline, 1.3 to 1.5, 3 to 5.

At each release, backward from V_H = 0, with c and m the centre and scale of V_{h+1} that
:class:`~discreet.privacy.linear_sums.MixtureQuery` states (raw, centred or span targets):

    Lambda_h = repaired(Gram_h + L_h I),   w_h = Lambda_h^-1 u_h,   phi-bar = phi_{V_{h+1} - c}(s, a),
    Q_h = clip(r_h + c + <phi-bar, w_h> + bonus_scale beta_h ||phi-bar||_{Lambda_h^-1}, 0, b_h),
    V_h = max_a Q_h.

Subtracting c is unbiased because <phi_1(s, a), w_h> = 1. V is the plan's context: whoever follows the plan
adds (phi_{(V - c) / m}, (V(s') - c) / m), so the targets of a user are a function of earlier releases. With
span targets that is regression with the public weights 1 / m^2, always at full scale under the noise. The
last step has no target. What is released, and at what price, is the query's; everything here is
post-processing.

Ridge. L_h = lam + ridge times the noise's spectral edge 2 std sqrt(d), or "bound": lam + 2 Upsilon_h, Upsilon the
tail bound of the noise in this release. ``lam``: the square of the bound of ||x|| ("bound": b^2 F01^2 raw, (b
F+-)^2 / 4 centred, F+-^2 / 4 span), the published H^2 F01^2 ("horizon"), or a number.

Width (section 1.5). The noise B = L I + G of a Gram matrix has its eigenvalues in [low, .], low = L -
Upsilon, and g is the response's: with probability 1 - failure, at all steps and releases,

    ||w_h - w-hat_h||_Lambda <= R sqrt(2 log(1 / p1) + log det(Lambda) - d log(low))
                                + C_w sqrt(L + 2 std sqrt(log(1 / p2))) + C_g / sqrt(low) = beta_h,

R = half the range of y. Proof: Lambda (w - w-hat) = B w - sum X eta - g. Given B >= low I, (i) the sum's norm is
at most the one in (Gram + low I)^-1, self-normalised with ratio det(Gram + low I) / low^d <= det(Lambda) /
low^d; (ii) ||B w||_{Lambda^-1} <= sqrt(w^T B w), and w^T G w is normal with variance at most 2 std^2
||w||^4, as w is constant (Laplace noise: high = L + Upsilon); (iii) the rest is ||g|| / sqrt(low). The
ratio is bounded by (1 + k ||x||^2 / (d low))^d as well, and the smaller one is used. low changes from release
to release, so p1 = failure / (3 H J) with J releases; exact sums keep low = lam and p1 = failure / H. Noise:
failure / (3 H J) for g, / (6 H J) each for Upsilon and the normal. This needs low >= lam > 0, ``ridge="bound"``;
with a smaller ridge low = max(lam, L - Upsilon) and the bonus is a heuristic, and so is a ``bonus_scale`` below 1.
``constants="published"``: the paper's beta = 3 (C_w + 1) sqrt(lam + Upsilon) + sqrt(2 b^2 (log(3 H / p) + d / 2 log(1 +
K H))), b the range, Upsilon = std (4 sqrt(d) + 2 log(6 K H / p)) at the largest std of the run.

UCRL-VTR+. With V-bar = (V - c) / m, rho = sup |V-bar|, phi1 = phi_{V-bar}, phi2 = phi_{V-bar^2}, a second
pair regresses V-bar(s')^2 on phi2 (w2, Lambda2), and

    Var = clip(<phi2, w2>, 0, rho^2) - clip(<phi1, w>, -rho or 0, rho)^2,
    E = min(rho^2, 2 rho beta1 ||phi1||_{Lambda^-1}) + min(rho^2, beta2 ||phi2||_{Lambda2^-1}),
    sigma^2 = clip(Var + E, var_floor M^2, var_max M^2),  M the largest range of targets,

weigh the first pair: x = phi1 / sigma, y = V-bar(s') / sigma. E has phi2 in its second term (the paper prints
phi_V). The weights 1 / sigma^2 <= 1 / (var_floor M^2) are a table over (s, a) in the plan's context; the floor
enters the noise. beta2 is the width above. "tight" takes the width above for beta1 too, with R = range / 2 over the
floor's root, and min with the Bernstein width of Zhou et al. for beta; "published" theirs for all.

Unknown rewards (``known_rewards=False``): noisy visits N and sums of r - 1/2 by pairs, with ``reward_share`` of the
budget. With |noise| <= E1, E2 and D = max(1, N + E1), which is at least the true visits n and at most
max(1, n + 2 E1): |r - 1/2 - sum / D| <= (max(E1, 1/2) + E2) / D + sqrt(log(2 S A H J / p) / (2 D)), a bonus too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.estimation.linear import Factored, Ridge, check_ridge, factored
from discreet.mdp.features import MixtureFeatures
from discreet.numerics import checks
from discreet.online.linear_base import SHARED, LinearLearner, LinearState, Planned
from discreet.privacy.counts import CENTERED_REWARDS, VISITS
from discreet.privacy.linear_sums import (
    FLAT_SPAN,
    GRAM,
    RESPONSE,
    SECOND_GRAM,
    SECOND_RESPONSE,
    MixtureQuery,
    Pair,
    Targets,
)
from discreet.privacy.protocol import Ask, Release, Spec

Floats = NDArray[np.float64]
Lam = float | Literal["bound", "horizon"]

_DEFAULT: Mapping[str, Any] = {
    **SHARED, "targets": "span", "clip": "remaining", "lam": "bound", "constants": "tight",
    "over_steps": "power", "reward_share": 1 / 3,
}  # fmt: skip
_PAPER: Mapping[str, Any] = {
    "targets": "raw", "clip": "horizon", "lam": "horizon", "constants": "published", "ridge": "bound",
    "bonus_scale": 1.0, "replan_every": 1, "over_steps": "flat", "tie_break": "first",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Regression:
    """One pair, solved at every step.

    weights (n, d) : w-hat; factor (n, d, d), log_det (n,) : of Lambda, see
    :class:`~discreet.estimation.linear.Factored`; width (n,) : beta at scale 1; noise (n,) : the part of beta that
    is not sampling's. floored : eigenvalues raised to their floor.
    """

    weights: Floats
    factor: Floats
    log_det: Floats
    width: Floats
    noise: Floats
    floored: int


@dataclass(frozen=True, eq=False)
class Fit:
    """What was estimated: the regression of values, of second moments (VTR+), rewards (H, S, A) and their bonus."""

    first: Regression
    second: Regression | None
    rewards: Floats
    reward_bonus: Floats | None


@dataclass(frozen=True, kw_only=True)
class UCRLVTR(LinearLearner):
    """UCRL-VTR on exact or noisy sums, for linear mixtures (``spec.features`` must be ``MixtureFeatures``).

    Parameters
    ----------
    preset : "default" or "paper"
        ``default``: span targets, geometric schedule, scaled bonus (heuristic). ``paper``: raw targets, the
        published beta and ridge, a plan for every user.
    targets : "span", "centred" or "raw"
        What is regressed; enters the noise.
    clip : "remaining" or "horizon"
        b_h: the values that are left, or H as published; enters the noise.
    lam : float, "bound" or "horizon"
    ridge : float or "bound", optional
        In spectral edges of the noise. None: 2 under a local ``spec.budget``, 1 else.
    constants : "tight" or "published"
        Of the width.
    over_steps : "power", "flat" or "noise"
        How the budget is split over steps, see :mod:`discreet.privacy.linear_sums`; enters the noise.
    reward_share : float
        Of the budget, what unknown rewards get; enters the noise.

    Further options: see :class:`~discreet.online.linear_base.LinearLearner`.
    """

    targets: Targets | None = None
    clip: Literal["remaining", "horizon"] | None = None
    lam: Lam | None = None
    ridge: Ridge | None = None
    constants: Literal["tight", "published"] | None = None
    over_steps: Literal["power", "flat", "noise"] | None = None
    reward_share: float | None = None

    FEATURES: ClassVar[type[MixtureFeatures]] = MixtureFeatures
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

    # --------------------------------------------------------------------------- public facts
    def _check(self, spec: Spec) -> None:
        super()._check(spec)
        if spec.horizon < 2:
            raise ValueError("spec.horizon = 1: must be at least 2, the last step has no target")
        if self.constants == "published" and spec.users is None:
            raise ValueError("constants = 'published': must be 'tight' where the number of users is not known")

    def query(self, spec: Spec) -> MixtureQuery:
        """The sums that this learner reads, and their contracts."""
        self._check(spec)
        return MixtureQuery(
            layout=spec.layout,
            features=_features(spec),
            targets=self.targets or "span",
            clip=self.clip or "remaining",
            rewards=None if self.known_rewards else "tabular",
            over_steps=self.over_steps or "power",
            reward_share=float(self.reward_share or 1 / 3),
        )

    # -------------------------------------------------------------------------- one release
    def fitted(self, state: LinearState, release: Release) -> tuple[Fit, Floats]:
        """The regressions, with their widths, and the rewards."""
        query = self.query(state.spec)
        solved = [
            self._regression(state, release, query, pair, gram, response)
            for pair, (gram, response) in zip(
                query.pairs, ((GRAM, RESPONSE), (SECOND_GRAM, SECOND_RESPONSE)), strict=False
            )
        ]
        rewards, bonus = state.spec.known_rewards, None
        if rewards is None or not self.known_rewards:
            rewards, bonus = self._rewards(state, release)
        fit = Fit(solved[0], solved[1] if len(solved) > 1 else None, rewards, bonus)
        return fit, solved[0].log_det

    def _regression(
        self, state: LinearState, release: Release, query: MixtureQuery, pair: Pair, gram: str, response: str
    ) -> Regression:
        spec, features = state.spec, _features(state.spec)
        matrix, vector = release.estimates[gram], release.estimates[response]
        union, n, d = state.union(release), pair.steps, pair.dimension
        failure = float(self.failure or 0.05) / (1 if len(query.pairs) == 1 else 2) / spec.horizon
        if not self.known_rewards:
            failure *= 0.5
        ridge = self.ridge
        if ridge is None:
            ridge = 2.0 if spec.budget is not None and spec.budget.trust == "local" else 1.0
        lam, level, low, high, c_g = (np.zeros(n) for _ in range(5))
        noisy = matrix.law.family != "none" and release.number > 0
        for h in range(n):
            b = pair.bounds[h]
            if isinstance(self.lam, float):
                lam[h] = self.lam
            else:
                lam[h] = b * b if self.lam == "bound" else (spec.horizon * features.bound) ** 2
            level[h] = low[h] = high[h] = lam[h]
            if not noisy:
                continue
            std = matrix.law.std(h)
            if self.constants == "published":
                tail = self._published_tail(state, matrix.law, h, d, query)
                edge = 2.0 * tail if ridge == "bound" else float(ridge) * matrix.law.edge(h)
                level[h], high[h] = lam[h] + edge, tail
                continue
            tail = matrix.law.operator_norm_bound(failure / (6 * union), h)
            level[h] += 2.0 * tail if ridge == "bound" else float(ridge) * matrix.law.edge(h)
            low[h] = max(lam[h], level[h] - tail)
            reach = 2.0 * std * math.sqrt(math.log(6 * union / failure))
            high[h] = level[h] + (tail if matrix.law.laplace else reach)
            c_g[h] = vector.law.norm_bound(failure / (3 * union), h)
        found = factored(np.asarray(matrix.value), level, lam)
        u = np.asarray(vector.value)
        weights = np.einsum("nij,nkj,nk->ni", found.factor, found.factor, u, optimize=False)
        ...
