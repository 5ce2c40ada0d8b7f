"""LSVI-UCB for linear MDPs, batched, with or without privacy: in model form, or by queries about values.

Sources: Jin, Yang, Wang and Jordan (2020), LSVI-UCB; Luyo et al. (2021), algorithm 2, its private batched
form; Ngo, Vietri and Wu (2022), when to switch.
With b_h = H - h (code: h from 0) the bound of values at step h and Lambda = sum phi phi^T + noise + L I of
the last release, backward over h,

    Q_h = clip(estimate_h + bonus_scale beta_h ||phi||_{Lambda^-1}, 0, b_h),   V_h = max_a Q_h,

Users play greedily. ``response`` chooses the data of the estimate.

* ``"requery"``: c + phi^T Lambda^-1 u, u the sum of phi (r + V_{h+1}(s') - c) over *all* users so far,
  queried again for each V (``ask``; the trusted core stores trajectories). Without privacy and with c = 0
  this is LSVI-UCB. Each of J rounds of queries gets a J-th of the answers' budget: their noise grows as
  sqrt(J).
* ``"model"``: M = sum phi (e_{s'} - 1/S)^T and sum phi (r - 1/2) are released as running sums, in addition to
  the Gram matrix. Planning uses r^ + P^ V from them
  (:func:`~discreet.learners.estimation.linear_regression.model_values`). Any V is free, and local users can
  send these sums. The error of M V grows with ||V - mean V||_2: for small S.

Centring causes no bias if 1 is in the span of the features, 1 = phi^T v. Without noise sum phi = (Lambda
- L I) v, so that a response centred at c and one centred at c' predict values that differ by L (c - c') phi^T
Lambda^-1 v. Except for ``project``, the model form is the response centred at 1/2 + mean V, up to that
difference. Centring matters to optimism: unseen pairs are predicted as c, so that raw targets need a larger
bonus.

Schedules. A theorem covers a release after every user and static batches (an extra O~(d H^2 K / B)).
Without noise one covers switches triggered by the determinant too. Under noise the released matrices need
not grow from one release to the next, and the usual analysis of these switches fails (Zhou 2026, arXiv
2605.23131, abstract; it proposes another rule, which is not implemented). The default is geometric, with
growth 1 + min(1/2, 2.5 / d), and under privacy at least 1.25: that has no theorem, and 1.3 says where it
fails. ``switching="determinant"`` keeps the policy until det Lambda_h of the *released* matrices has
doubled for some h. This is a function of releases at scheduled times, so it costs no budget. Released sums
cost the same if they are not used. With ``switches`` given, at most that many rounds of queries are planned,
and each gets a larger share of the budget.

Privacy: all of this is post-processing. The schedule and six options choose what the privatizer is asked for,
and it charges for that. The options are ``response``, ``centre``, ``span``, ``over_steps``, ``answer_share``
and ``known_rewards``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.linear_noise import GoeLaw
from discreet.core import checks
from discreet.learners.estimation.linear_regression import (
    Factored,
    Project,
    Ridge,
    check_ridge,
    factored,
    model_rewards,
    model_values,
)
from discreet.learners.online import bonuses
from discreet.learners.online.linear_base import SHARED, LinearLearner, LinearState, PlanningResult
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import Ask, ProblemSpec, Release, Response, Schedule
from discreet.mechanisms.linear.linear_queries import GRAM, MODEL_REWARDS, SUCCESSORS, GramQuery

Floats = NDArray[np.float64]
Form = Literal["model", "requery"]

_MOST_ROWS = 2**20  # largest number of entries of P^ whose rows are projected onto the simplex by default

# Chosen by measurement: benchmarks/linear.md, "LSVI-UCB".
_FIRST = 32  # under privacy a first release after K / 32 users
_LEAST_GROWTH = 1.25  # under privacy: more releases mean more noise
_FEW_STATES = 50  # largest S for which the model form is the default under central noise

__all__ = ["LSVIUCB"]


@dataclass(frozen=True, kw_only=True)
class LSVIUCB(LinearLearner):
    """Optimistic least-squares value iteration on features of pairs (``spec.features`` must be ``Features``).

    :meth:`tuned` chooses the options that are None from the public spec.

    Parameters
    ----------
    preset : "default" or "paper"
        ``paper``: LSVI-UCB as printed by Jin et al., raw responses, a plan for every user; under privacy with
        ridge "bound". What Luyo et al. print for private sums, lam = d, a ridge of (d + 1) bounds of the
        noise and beta = 24 H sqrt(d ridge) log(chi), is not offered: that ridge exceeds K by four orders.
    lam : float
        Ridge parameter without noise, > 0.
    ridge : float or "bound"
        Added to lam, in multiples of the noise's spectral edge 2 s sqrt(n d); "bound": twice a bound of its
        operator norm at ``failure``. None: 1 (model), 2 (requery, or local noise).
    beta : "range" or "published"
        beta_h = b_h, or d H sqrt(log(2 d K H / failure)) at all steps; ``bonus_scale`` multiplies it.
    response : "model" or "requery"
        None: the model, which every privatizer has; under central noise "requery" above 50 states.
    project : "simplex", "range" or "none"
        Projection of the model: rows of P^ onto the simplex, P^ V into the range of V, or neither. None: the
        simplex if P^ has at most 2^20 entries, else the range.
    centre : bool
        Centre the responses. None: if 1 is in the span of the features.
    span : "values" or "declared"
        Scale of the responses' noise: the range of V_{h+1}, or always b_h.
    over_steps : "power", "flat" or "noise"
        How the budget is split over steps (:class:`~discreet.mechanisms.linear.linear_queries.GramQuery`).
    answer_share : float
        Share of the budget for responses (requery).
    replan_first : int
        Users before the first release of a geometric schedule. If there is more than one, they play uniformly
        at random. With a noisy mechanism earlier releases would be mostly noise. None: 1 without privacy or
        with K unknown, else K / 32.

    Further options: see :class:`~discreet.learners.online.linear_base.LinearLearner`. With ``known_rewards``
    (not the default here) Q = r + clip(estimate + bonus, 0, b_h - 1), and the last step has nothing to learn.
    """

    lam: float | None = None
    ridge: Ridge | None = None
    beta: Literal["range", "published"] | None = None
    response: Form | None = None
    project: Project | None = None
    centre: bool | None = None
    span: Literal["values", "declared"] | None = None
    over_steps: Literal["power", "flat", "noise"] | None = None
    answer_share: float | None = None
    replan_first: int | None = None

    FEATURES: ClassVar[type[Features]] = Features
    THEOREM: ClassVar[str] = " of Jin et al. (2020), which is without privacy"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            **SHARED, "known_rewards": False, "tie_batches": 1, "lam": 1.0, "beta": "range", "span": "values",
            "over_steps": "power", "answer_share": 0.5,
        },
        "paper": {
            "beta": "published", "bonus_scale": 1.0, "ridge": "bound", "response": "requery", "centre": False,
            "span": "declared", "over_steps": "flat", "replan_every": 1,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "lam", checks.positive("lam", self.lam))
        if self.ridge is not None:
            put(self, "ridge", check_ridge(self.ridge))
        share = checks.real("answer_share", self.answer_share, 0.0, 1.0, open_low=True, open_high=True)
        put(self, "answer_share", share)
        for name, allowed in (
            ("beta", ("range", "published")),
            ("response", ("model", "requery")),
            ("project", ("simplex", "range", "none")),
            ("span", ("values", "declared")),
            ("over_steps", ("power", "flat", "noise")),
        ):
            if getattr(self, name) is not None:
                checks.choice(name, getattr(self, name), allowed)
        if self.centre is not None:
            put(self, "centre", checks.flag("centre", self.centre))
        if self.replan_first is not None:
            put(self, "replan_first", checks.integer("replan_first", self.replan_first, 1))

    # --------------------------------------------------------------------------- public facts
    def tuned(self, spec: ProblemSpec) -> Self:
        """Return this learner with every option that is None chosen from the public spec.

        Raises ``ValueError`` if it does not fit: no features of pairs, or 1 is not in their span although
        targets are centred.
        """
        mine = super().tuned(spec)
        features = _features(spec)
        trust = "none" if spec.budget is None else spec.budget.trust
        if self.replan_every is None and self.replan_growth is None and trust != "none":
            mine = replace(mine, replan_growth=max(_LEAST_GROWTH, mine.replan_growth or 1.0))
        chosen: dict[str, Any] = {
            "response": "requery" if trust == "joint" and spec.states > _FEW_STATES else "model",
            "centre": features.constant,
            "project": "simplex" if spec.layout.rows * spec.states <= _MOST_ROWS else "range",
            "replan_first": math.ceil((spec.users or 1) / _FIRST) if trust != "none" else 1,
        }
        quiet = trust != "local" and (mine.response or chosen["response"]) == "model"
        chosen["ridge"] = 1.0 if quiet else 2.0
        open_ones = {name: value for name, value in chosen.items() if getattr(mine, name) is None}
        mine = replace(mine, **open_ones) if open_ones else mine
        if (mine.centre or mine.response == "model") and not features.constant:
            name = "response = 'model'" if mine.response == "model" else "centre = True"
            raise ValueError(f"{name}: needs 1 in the span of the features, or estimates are biased")
        return mine

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the release times: geometric by default, with a long first batch under privacy."""
        mine = self.tuned(spec)
        plain = mine._times(spec)
        if mine.response != "requery" or mine.switching != "determinant" or mine.switches is None:
            return plain
        return replace(plain, answers=min(mine.switches, plain.releases or mine.switches))

    def _times(self, spec: ProblemSpec) -> Schedule:
        first, growth = int(self.replan_first or 1), self.replan_growth
        if growth is None or first == 1:
            return super().schedule(spec)
        if spec.users is None:
            raise ValueError(f"replan_first = {first}: must be 1 where the number of users is not known")
        times, users = [0], first
        while users < spec.users:
            times.append(users)
            users = max(users + 1, math.ceil(growth * users))
        return Schedule(spec.users, times=np.array(times, np.int64))

    def _batch(self, users: int, spec: ProblemSpec) -> int:
        first = int(self.replan_first or 1)
        if users or self.replan_growth is None or first == 1:
            return super()._batch(users, spec)
        return first if spec.users is None else min(first, spec.users)

    def query(self, spec: ProblemSpec) -> GramQuery:
        """Return the sums that this learner reads."""
        mine = self.tuned(spec)
        return GramQuery(
            layout=spec.layout,
            features=_features(spec),
            model=mine.response == "model",
            rewards=not mine.known_rewards,
            over_steps=mine.over_steps or "power",
            answer_share=mine.answer_share or 0.5,
            centre=bool(mine.centre),
            span=mine.span or "values",
        )

    # -------------------------------------------------------------------------- one release
    def fitted(self, state: LinearState, release: Release) -> tuple[Factored, Floats]:
        """Return Lambda_h at every step with something to learn, and its log det.

        state : after the earlier releases. release : the new one.
        """
        gram, lam = release.estimates[GRAM], float(self.lam or 1.0)
        steps, failure = len(gram.value), float(self.failure or 0.05)
        assert isinstance(gram.law, GoeLaw)
        levels = np.full(steps, lam)
        if gram.law.family != "none" and release.number:
            for h in range(steps):
                if self.ridge == "bound":
                    each = failure / (steps * state.union(release))
                    levels[h] += 2.0 * gram.law.operator_norm_bound(each, h)
                else:
                    levels[h] += float(self.ridge or 0.0) * gram.law.edge(h)
        found = factored(gram.value, levels, np.full(steps, lam))
        return found, found.log_det

    def planned(
        self, state: LinearState, fitted: Factored, release: Release, ask: Ask | None
    ) -> PlanningResult:
        """Return optimistic values, computed backward; ``response="requery"`` queries each of them.

        state : after the earlier releases. fitted : result of :meth:`fitted` for ``release``. ask : the
        session's ``answer``, needed with ``response="requery"``.
        """
        spec = state.spec
        layout, horizon = spec.layout, spec.horizon
        phi = _features(spec).table[layout.row_state, layout.row_action]
        values, q = np.zeros((horizon + 1, spec.states)), np.zeros((horizon, layout.rows))
        if self.known_rewards:
            assert spec.known_rewards is not None
            q += layout.to_rows(spec.known_rewards)
        estimate = self._modelled if self.response == "model" else self._answered
        for h in reversed(range(horizon)):
            if h < len(fitted.factor):
                inverse = fitted.factor[h] @ fitted.factor[h].T
                bonus = self._width(spec, h) * np.linalg.norm(phi @ fitted.factor[h], axis=1)
                top = float(horizon - h - bool(self.known_rewards))
                q[h] += np.clip(estimate(release, h, phi, inverse, values[h + 1], ask) + bonus, 0.0, top)
            values[h] = np.maximum.reduceat(q[h], layout.state_ptr[:-1])
        return PlanningResult(values, q, {}, fitted)

    def _width(self, spec: ProblemSpec, step: int) -> float:
        """Return beta_h."""
        scale = float(self.bonus_scale or 0.0)
        if self.beta == "range":
            return scale * (spec.horizon - step)
        size = _features(spec).dimension * spec.horizon
        return (
            scale * size * math.sqrt(math.log(2 * size * bonuses.users(spec) / float(self.failure or 0.05)))
        )

    def _modelled(
        self, release: Release, step: int, phi: Floats, inverse: Floats, after: Floats, ask: Ask | None
    ) -> Floats:
        """Return r^ + P^ V, (R,)."""
        found = np.zeros(len(phi))
        if MODEL_REWARDS in release.estimates:
            found += model_rewards(phi, inverse, release.estimates[MODEL_REWARDS].value[step])
        if SUCCESSORS in release.estimates and step < len(release.estimates[SUCCESSORS].value):
            moved = release.estimates[SUCCESSORS].value[step]
            found += model_values(phi, inverse, moved, after, self.project or "simplex")
        return found

    def _answered(
        self, release: Release, step: int, phi: Floats, inverse: Floats, after: Floats, ask: Ask | None
    ) -> Floats:
        """Return c + phi^T Lambda^-1 u, (R,); the range of targets is computed from V at all states."""
        high = float(len(release.estimates[GRAM].value) - step)
        low, top = 0.0, high
        if self.span == "values":
            low, top = float(after.min()), float(after.max()) + (not self.known_rewards)
        centre = 0.5 * (low + top) if self.centre else 0.0
        if not release.users:
            return np.full(len(phi), centre)  # before the first user
        if ask is None:
            raise ValueError("ask = None: response = 'requery' needs a session that answers")
        return np.asarray(centre + phi @ (inverse @ ask(Response(step, after, (0.0, high))).value))

    def _policy(self, state: LinearState, part: int) -> NDArray[Any]:
        layout = state.spec.layout
        if state.number or int(self.replan_first or 1) == 1 or self.replan_growth is None:
            return super()._policy(state, part)
        chance = 1.0 / np.diff(layout.state_ptr)[layout.row_state]
        return layout.from_rows(np.tile(chance, (layout.horizon, 1)))

    # ------------------------------------------------------------------------------- in words
    def heuristics(self) -> Iterator[str]:
        """Yield the options whose values void the regret theorem, each with the reason."""
        yield from super().heuristics()
        if self.beta == "range":
            yield "beta = 'range' is measured, not that of the theorem"
        if self.ridge != "bound":
            yield "the ridge under noise is below twice a bound of its norm"
        if self.response != "requery":
            yield "the model form has no theorem of its own"


def _features(spec: ProblemSpec) -> Features:
    assert isinstance(spec.features, Features)
    return spec.features
