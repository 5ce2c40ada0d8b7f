"""Batched LSVI-UCB for linear MDPs, with or without privacy.

Let b_h = H - h be the upper bound of V_h, with steps h from 0. Let Lambda = sum phi phi^T + noise + L I,
where the noisy Gram matrix comes from the last release and L is the ridge. V and Q are computed backward over
h:

    Q_h = clip(estimate_h + bonus_scale beta_h ||phi||_{Lambda^-1}, 0, b_h),   V_h = max_a Q_h.

The option ``response`` selects the computation of ``estimate_h``.

* ``"requery"``: the estimate is c + phi^T Lambda^-1 u, where c is the centre of the targets and u is the sum
  of phi (r + V_{h+1}(s') - c) over all users so far. The session computes a noisy u for each V (argument
  ``ask``). Each of J rounds of queries gets 1 / J of the budget for responses.
* ``"model"``: M = sum phi (e_{s'} - 1/S)^T and sum phi (r - 1/2) are released with the Gram matrix. The
  estimate is r^ + P^ V (:func:`~discreet.learners.estimation.linear_regression.model_values`). The error of M
  V grows with ||V - mean V||_2, so this form is suitable for small S.

Centring (subtracting c from the targets) does not cause bias if 1 is in the span of the features.

**First batch.** Until the first release, users act at random. After n users, a Gram matrix has a mean
eigenvalue of about n x, where x is the mean of ||phi||^2 / d over all pairs. Let m be the number of users at
which this eigenvalue is 2.4 times the spectral edge of the noise; in the form "requery", m is doubled. The
first release is made after max(m, sqrt(m K) / 32) users, and at the latest after K / 32.

**Theorems.** A theorem covers a release after every user, and B static batches (with an additional regret of
O~(d H^2 K / B)). Without noise, a theorem also covers ``switching="determinant"``; with noise, its usual
analysis fails (abstract of Zhou 2026, arXiv 2605.23131). The default schedule has no theorem.

**Privacy.** The learner only post-processes releases. The schedule and the options ``response``, ``centre``,
``span``, ``over_steps``, ``answer_share`` and ``known_rewards`` determine the queries.

Sources: Jin, Yang, Wang and Jordan (2020) for LSVI-UCB; Luyo et al. (2021), algorithm 2, for the private
batched form; Ngo, Vietri and Wu (2022) for the rule that changes the policy.
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
from discreet.core.releases import Floats
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
from discreet.learners.online.joint_posterior import noise_unit
from discreet.learners.online.linear_base import SHARED, LinearLearner, LinearState, PlanningResult
from discreet.learners.online.tabular_base import geometric_times
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import Ask, ProblemSpec, Release, Response, Schedule
from discreet.mechanisms.linear.linear_queries import GRAM, MODEL_REWARDS, SUCCESSORS, GramQuery, Noise

Form = Literal["model", "requery"]

# By default, rows of P^ are projected onto the simplex only if P^ has at most this number of entries.
_MOST_ROWS = 2**20

# These values were chosen by measurement: benchmarks/linear.md, "LSVI-UCB".
_FIRST = 32  # With privacy, the first release is after at most K / 32 users.
_EDGES = 2.4  # Mean eigenvalue of a Gram matrix at the first release, in spectral edges of its noise.
_LEAST_GROWTH = 1.25  # Smallest default growth factor with privacy, because more releases have more noise.
_FEW_STATES = 50  # With central noise, the model form is the default up to this number of states.


@dataclass(frozen=True, kw_only=True)
class LSVIUCB(LinearLearner):
    """Optimistic least-squares value iteration on features of state-action pairs, for linear MDPs.

    The problem must declare ``Features``.

    Parameters
    ----------
    preset : "default" or "paper"
        ``paper``: LSVI-UCB as printed by Jin et al., with raw responses and a new plan for every user. With
        privacy, the ridge is "bound".
    lam : float
        Ridge parameter without noise, > 0.
    ridge : float or "bound"
        Amount that is added to lam if there is noise, as a multiple of the spectral edge 2 s sqrt(n d) of the
        noise matrix. "bound": twice a bound on the operator norm of the noise matrix. This bound fails with
        probability at most ``failure``. None: 1 for the model form with central noise, 2 for the requery form
        or for local noise.
    beta : "range" or "published"
        Width beta_h. ``range``: b_h. ``published``: d H sqrt(log(2 d K H / failure)) at all steps. The factor
        ``bonus_scale`` multiplies the width.
    response : "model" or "requery"
        Form of the estimates; see :mod:`discreet.learners.online.lsvi_ucb`. None: "requery" for central noise
        with more than 50 states, otherwise "model". Every privatizer supports "model".
    project : "simplex", "range" or "none"
        Projection in the model form. ``simplex``: project each row of P^ onto the probability simplex.
        ``range``: clip P^ V to the range of V. ``none``: no projection. None: "simplex" if P^ has at most
        2^20 entries, otherwise "range".
    centre : bool
        True: centre the targets of the responses. None: True if 1 is in the span of the features.
    span : "values" or "declared"
        Range of the targets, which determines the noise of responses. ``values``: the range of V_{h+1}.
        ``declared``: always b_h.
    over_steps : "power", "flat" or "noise"
        Rule that splits the budget over steps
        (:class:`~discreet.mechanisms.linear.linear_queries.GramQuery`).
    answer_share : float
        Share of the budget for responses, in the requery form.
    replan_first : int
        Number of users before the first release of a geometric schedule. If it is above 1, these users choose
        their actions uniformly at random. None: min(K / 32, max(m, sqrt(m K) / 32)), rounded up, with m from
        the module docstring. Under local privacy, m is squared. None means 1 without privacy, or if K is not
        known.
    stationary : bool
        True: all steps share one regression, from the sums over the steps 0 to H - 2. The query and its noise
        are the same as for False. It is allowed only if the problem is declared stationary, and only with the
        model form, which is then the default. The default is False.

    For further options see :class:`~discreet.learners.online.linear_base.LinearLearner`. If ``known_rewards``
    is True, Q = r + clip(estimate + bonus, 0, b_h - 1), and no estimate is made for the last step.
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
    stationary: bool | None = None

    FEATURES: ClassVar[type[Features]] = Features
    THEOREM: ClassVar[str] = " of Jin et al. (2020), which is without privacy"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            **SHARED, "known_rewards": False, "stationary": False, "tie_batches": 1, "lam": 1.0,
            "beta": "range", "span": "values", "over_steps": "power", "answer_share": 0.5,
        },
        "paper": {
            "beta": "published", "bonus_scale": 1.0, "ridge": "bound", "response": "requery", "centre": False,
            "span": "declared", "over_steps": "flat", "replan_every": 1,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "stationary", checks.flag("stationary", self.stationary))
        if self.stationary and self.response == "requery":
            raise ValueError("stationary = True: must be False if response is 'requery'")
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

    # ---------------------------------------------------------------------- schedule and query
    def tuned(self, spec: ProblemSpec) -> Self:
        """Return this learner with a value for every option that is None, chosen from the public ``spec``.

        Raises ``ValueError`` if the spec has no features of pairs. Raises ``ValueError`` if 1 is not in the
        span of the features and ``response`` is "model" or ``centre`` is True.
        """
        mine = super().tuned(spec)
        features = _features(spec)
        trust = "none" if spec.budget is None else spec.budget.trust
        if self.replan_every is None and self.replan_growth is None and trust != "none":
            mine = replace(mine, replan_growth=max(_LEAST_GROWTH, mine.replan_growth or 1.0))
        asked = trust == "joint" and spec.states > _FEW_STATES and not self.stationary
        chosen: dict[str, Any] = {
            "response": "requery" if asked else "model",
            "centre": features.constant,
            "project": "simplex" if spec.layout.rows * spec.states <= _MOST_ROWS else "range",
        }
        quiet = trust != "local" and (mine.response or chosen["response"]) == "model"
        chosen["ridge"] = 1.0 if quiet else 2.0
        open_ones = {name: value for name, value in chosen.items() if getattr(mine, name) is None}
        mine = replace(mine, **open_ones) if open_ones else mine
        if (mine.centre or mine.response == "model") and not features.constant:
            name = "response = 'model'" if mine.response == "model" else "centre = True"
            raise ValueError(f"{name}: needs 1 in the span of the features, or estimates are biased")
        if mine.replan_first is None:
            mine = replace(mine, replan_first=1 if trust == "none" else mine._first(spec))
        return mine

    def _check(self, spec: ProblemSpec) -> None:
        super()._check(spec)
        if self.stationary and not spec.stationary:
            raise ValueError("stationary = True: must be False, the problem is not declared stationary")

    def _first(self, spec: ProblemSpec) -> int:
        """Return the default number of users before the first noisy release, from public values only."""
        most = math.ceil((spec.users or 1) / _FIRST)
        law, query = self._noise_of_one_sum(spec), self._query(spec)
        d, size = query.features.dimension, float((_features(spec).rows ** 2).sum(axis=1).mean())
        if law is None or self.replan_growth is None or not size:
            return most
        edges = np.array([law.edge(h) for h in range(query.steps)])
        if self.stationary:
            shared = max(1, spec.horizon - 1)
            edge = float(np.linalg.norm(edges[:shared])) / shared
        else:
            edge = float(edges.mean())
        needed = (2.0 if query.requeries else 1.0) * _EDGES * edge * d / size
        if spec.budget is not None and spec.budget.trust == "local":
            needed **= 2
        return max(1, math.ceil(min(most, max(needed, math.sqrt(needed * (spec.users or 1)) / _FIRST))))

    def _noise_of_one_sum(self, spec: ProblemSpec) -> GoeLaw | None:
        """Return the noise distribution of one noisy sum of Gram matrices, or None without noise."""
        budget, unit, query = spec.budget, noise_unit(spec), self._query(spec)
        if budget is None or not unit:
            return None
        kept = 1.0 - query.answer_share if query.requeries else 1.0
        if budget.pure:
            scales = query.calibrated("laplace", float(budget.epsilon or 0.0) * kept, 1)[GRAM]
        else:
            noise: Noise = "triangle" if budget.trust == "local" else "goe"
            scales = query.calibrated(noise, math.sqrt(kept) / unit, 1)[GRAM]
        return GoeLaw(tuple(scales.tolist()), 1.0, 1.0, query.features.dimension, 1, budget.pure)

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule with the public release times."""
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
        return Schedule(spec.users, times=geometric_times(spec.users, first, growth))

    def _batch(self, users: int, spec: ProblemSpec) -> int:
        first = int(self.replan_first or 1)
        if users or self.replan_growth is None or first == 1:
            return super()._batch(users, spec)
        return first if spec.users is None else min(first, spec.users)

    def query(self, spec: ProblemSpec) -> GramQuery:
        """Return the query for the sums that this learner reads."""
        return self.tuned(spec)._query(spec)

    def _query(self, spec: ProblemSpec) -> GramQuery:
        return GramQuery(
            layout=spec.layout,
            features=_features(spec),
            model=self.response == "model",
            rewards=not self.known_rewards,
            over_steps=self.over_steps or "power",
            answer_share=self.answer_share or 0.5,
            centre=bool(self.centre),
            span=self.span or "values",
        )

    # -------------------------------------------------------------- planning from a release
    def fitted(self, state: LinearState, release: Release) -> tuple[Factored, Floats]:
        """Return the factored matrices Lambda_h and their log determinants, (n,).

        There are n = H steps, or H - 1 if rewards are known. With ``stationary``, n = 1. ``state`` : state
        after the earlier releases. ``release`` : the new release.
        """
        gram, lam = release.estimates[GRAM], float(self.lam or 1.0)
        added, grams = self._added(state, release), gram.value
        assert isinstance(gram.law, GoeLaw)
        if self.stationary:
            shared = _shared(release)
            grams = grams[:shared].sum(axis=0)[None]
            # The bounds of Laplace matrices are not standard deviations, so only their sum without squares is
            # a bound.
            order = 1 if self.ridge == "bound" and gram.law.laplace else 2
            added = np.array([np.linalg.norm(added[:shared], order)])
        found = factored(grams, lam + added, np.full(len(grams), lam))
        return found, found.log_det

    def _added(self, state: LinearState, release: Release) -> Floats:
        """Return the ridges that are added to ``lam`` because of noise, (n,) for the n steps."""
        law, steps = release.estimates[GRAM].law, len(release.estimates[GRAM].value)
        assert isinstance(law, GoeLaw)
        if law.family == "none" or not release.number:
            return np.zeros(steps)
        if self.ridge != "bound":
            return np.array([float(self.ridge or 0.0) * law.edge(h) for h in range(steps)])
        each = float(self.failure or 0.05) / (steps * state.union(release))
        return np.array([2.0 * law.operator_norm_bound(each, h) for h in range(steps)])

    def planned(
        self, state: LinearState, fitted: Factored, release: Release, ask: Ask | None
    ) -> PlanningResult:
        """Compute optimistic V and Q backward over steps.

        ``state`` : state after the earlier releases. ``fitted`` : result of :meth:`fitted` for ``release``.
        ``ask`` : method ``answer`` of the session, needed with ``response="requery"``.
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
            if h < horizon - bool(self.known_rewards):
                factor = fitted.factor[0 if self.stationary else h]
                inverse = factor @ factor.T
                bonus = self._width(state, release, h) * np.linalg.norm(phi @ factor, axis=1)
                top = float(horizon - h - bool(self.known_rewards))
                q[h] += np.clip(estimate(release, h, phi, inverse, values[h + 1], ask) + bonus, 0.0, top)
            values[h] = np.maximum.reduceat(q[h], layout.state_ptr[:-1])
        return PlanningResult(values, q, {}, fitted)

    def _width(self, state: LinearState, release: Release, step: int) -> float:
        """Return the width beta_h at ``step`` h, multiplied by ``bonus_scale``."""
        spec, scale = state.spec, float(self.bonus_scale or 0.0)
        if self.beta == "range":
            return scale * (spec.horizon - step)
        size = _features(spec).dimension * spec.horizon
        return (
            scale * size * math.sqrt(math.log(2 * size * bonuses.users(spec) / float(self.failure or 0.05)))
        )

    def _modelled(
        self, release: Release, step: int, phi: Floats, inverse: Floats, after: Floats, ask: Ask | None
    ) -> Floats:
        """Return the estimates r^ + P^ V of the model form, (R,), for the R admissible pairs."""
        found = np.zeros(len(phi))
        if MODEL_REWARDS in release.estimates:
            sums = release.estimates[MODEL_REWARDS].value
            found += model_rewards(
                phi, inverse, sums[: _shared(release)].sum(axis=0) if self.stationary else sums[step]
            )
        if SUCCESSORS in release.estimates and step < len(release.estimates[SUCCESSORS].value):
            moves = release.estimates[SUCCESSORS].value
            moved = moves.sum(axis=0) if self.stationary else moves[step]
            found += model_values(phi, inverse, moved, after, self.project or "simplex")
        return found

    def _answered(
        self, release: Release, step: int, phi: Floats, inverse: Floats, after: Floats, ask: Ask | None
    ) -> Floats:
        """Return the estimates c + phi^T Lambda^-1 u of the requery form, (R,) for R pairs."""
        high = float(len(release.estimates[GRAM].value) - step)
        low, top = 0.0, high
        if self.span == "values":
            low, top = float(after.min()), float(after.max()) + (not self.known_rewards)
        centre = 0.5 * (low + top) if self.centre else 0.0
        if not release.users:
            return np.full(len(phi), centre)  # Nothing can be queried before the first user.
        if ask is None:
            raise ValueError("ask = None: response = 'requery' needs a session that answers")
        return np.asarray(centre + phi @ (inverse @ ask(Response(step, after, (0.0, high))).value))

    def _policy(self, state: LinearState, part: int) -> NDArray[Any]:
        layout = state.spec.layout
        if state.number or int(self.replan_first or 1) == 1 or self.replan_growth is None:
            return super()._policy(state, part)
        chance = 1.0 / np.diff(layout.state_ptr)[layout.row_state]
        return layout.from_rows(np.tile(chance, (layout.horizon, 1)))

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.beta == "range":
            yield "beta = 'range' is measured, not that of the theorem"
        if self.ridge != "bound":
            yield "the ridge under noise is below twice a bound of its norm"
        if self.stationary:
            yield "stationary = True: all steps share one regression (the theorem has one for each step)"
        if self.response != "requery":
            yield "the model form has no theorem of its own"


def _features(spec: ProblemSpec) -> Features:
    assert isinstance(spec.features, Features)
    return spec.features


def _shared(release: Release) -> int:
    """Return the number of steps that are added for a stationary problem: H - 1, or 1 if H = 1."""
    return len(release.estimates[SUCCESSORS].value) if SUCCESSORS in release.estimates else 1
