"""LSVI-UCB for linear MDPs, batched, with or without privacy: in model form, or by questions about values.

Sources: Jin, Yang, Wang and Jordan (2020), LSVI-UCB; Luyo et al. (2021), algorithm 2, its private batched
form; Ngo, Vietri and Wu (2022), when to switch. Specification: linear-and-offline, 1.3 to 1.5, 3, 6 and 14.
With b_h = H - h (code: h from 0) the bound of values at step h, Lambda = sum phi phi^T + noise + L I of the last
release and backward over h,

    Q_h = clip(estimate_h + beta_h ||phi||_{Lambda^-1}, 0, b_h),   V_h = max_a Q_h,   played greedily.

``response`` says what the estimate is made from.

* ``"requery"``: w = Lambda^-1 u, u the sum of phi (r + V_{h+1}(s') - c) over *all* users so far, asked anew for
  each V (``ask``; a trusted core stores the trajectories). Without privacy and with c = 0 this is LSVI-UCB.
  Each of J releases with questions is a J-th of the answers' budget, so their noise grows as sqrt(J).
* ``"model"``: M = sum phi (e_{s'} - 1/S)^T and sum phi (r - 1/2) are released as running sums, beside
  the Gram matrix, and P^ V + r^ is planned from them (:func:`~discreet.estimation.linear.model_values`): any V is
  free, and a local user can send them. The error of M V grows with ||V - mean V||_2: for small S.

Centring is without bias where 1 is in the span of the features, 1 = phi^T v; then the model form and centred
responses are one estimate without noise: sum phi (V(s') - V-bar) Lambda^-1 and the same of V - c differ by
(c - V-bar)(1 - phi^T Lambda^-1 sum phi), which is L phi^T Lambda^-1 v (c - V-bar), nothing as L goes to 0.

Schedules. A theorem covers a release after every user, static batches (an extra Õ(d H^2 K / B)), and switches
triggered by the determinant. The default is geometric with growth 1 + min(1/2, 2.5 / d), which has no theorem:
1.3 says where it fails. ``switch="determinant"`` keeps the policy until det Lambda_h of the *released* matrices has
doubled for some h (:func:`switches`): a function of releases, at scheduled times, hence free. The released sums
cost the same whether they are used or not, so it saves planning and switches, not budget.

Privacy: all here is post-processing. ``response``, ``centre``, ``span``, ``over_steps``, ``answer_share``,
``known_rewards`` and the schedule choose what the privatizer is asked for, and it charges for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.estimation.linear import (
    Project,
    Ridge,
    check_ridge,
    model_rewards,
    model_values,
    norms,
    repaired,
)
from discreet.mdp.features import Features
from discreet.numerics import checks
from discreet.numerics.knobs import Knobs
from discreet.numerics.streams_kernels import ROLE_TIES, open_at
from discreet.online import bonuses, kernels
from discreet.online.kernels import LearnerKernel
from discreet.privacy.linear_sums import GRAM, MODEL_REWARDS, SUCCESSORS, GramQuery
from discreet.privacy.protocol import Ask, Plan, Release, Response, Schedule, Spec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Form = Literal["model", "requery"]

_MOST_ROWS = 2**20  # numbers of P^ up to which its rows are projected onto the simplex by default

__all__ = ["LSVIUCB", "LSVIState", "default_growth", "switches"]


def default_growth(dimension: int) -> float:
    """1 + min(1/2, 2.5 / d), fitted to a bandit and a river (section 1.3)."""
    return 1.0 + min(0.5, 2.5 / dimension)


def switches(log_dets: Floats, last: Floats, factor: float = 2.0) -> bool:
    """Has some determinant grown by ``factor`` since the last switch? (n,) logarithms, of released matrices.

    Without noise at most d H log_factor(1 + K / (lam d)) switches are possible (Abbasi-Yadkori et al. 2011).
    """
    return bool((log_dets > last + math.log(factor)).any())


def _grown(users: int, growth: float) -> int:
    return max(users + 1, math.ceil(growth * users))


class _MatrixLaw(Protocol):
    """What a ridge is measured in: :class:`discreet.privacy.linear_laws.GoeLaw`."""

    def edge(self, step: int | None = None) -> float: ...
    def operator_norm_bound(self, failure: float, step: int | None = None) -> float: ...


@dataclass(frozen=True, eq=False)
class LSVIState:
    """What the learner carries from release to release: public, and a function of releases alone.

    number : of the last release that was read (-1: none); part : sub-batches handed out since.
    values (H + 1, S), q (H, R) : optimistic, of the last switch. log_dets (n,) : log det Lambda_h then.
    switched : switches so far. floored : eigenvalues that the last repair raised.
    """

    spec: Spec
    ties: NDArray[np.uint64]
    values: Floats
    q: Floats
    log_dets: Floats
    number: int = -1
    part: int = 0
    switched: int = 0
    floored: int = 0


@dataclass(frozen=True, kw_only=True)
class LSVIUCB(Knobs):
    """Optimistic least-squares value iteration on linear features.

    Knobs that are left open (None) are chosen by :meth:`tuned` from the public specification.

    Parameters
    ----------
    preset : "default" or "paper"
        ``paper``: lam 1, beta of the theorem, raw responses, a release after every user.
    lam : float
        Ridge parameter without noise, > 0.
    ridge : float or "bound"
        Added to lam, in multiples of the noise's spectral edge 2 s sqrt(n d); "bound": twice a bound of its
        operator norm at ``failure``. Open: 1 (model), 2 (requery).
    beta : float or "theory"
        beta_h = beta b_h, or d H sqrt(log(2 d K H / failure)) at all steps. Open: by the budget.
    bonus_scale : float
        Multiplies the bonus.
    failure : float
        In (0, 1), of ``beta`` and ``ridge``.
    response : "model" or "requery"
        Open: the model, which every privatizer has; under central noise the one with less noise (:meth:`tuned`).
    project : "simplex", "range" or "none"
        Of the model: rows of P^ onto the simplex, P^ V into the range of V, or neither. Open: the
        simplex if P^ has at most 2^20 entries, else the range.
    centre : bool
        Of responses. Open: where 1 is in the span of the features.
    span : "values" or "declared"
        Of responses: noise follows the range of V_{h+1}, or always b_h.
    known_rewards : bool
        Use the public rewards of the specification: Q = r + clip(estimate + bonus, 0, b_h - 1), and nothing
        is to be learned at the last step.
    over_steps : "power", "flat" or "noise"
        How the budget is split over steps (:class:`~discreet.privacy.linear_sums.GramQuery`).
    answer_share : float
        Of the budget, what responses get (requery).
    replan_every, replan_growth : int, float
        Release after every so many users, or when they have grown by this factor. Open: geometric with
        :func:`default_growth`.
    replan_first : int
        Users before the first release of a geometric schedule; they play uniformly at random if there is
        more than one. Open: 1 without privacy, else a share of K (:meth:`tuned`).
    switch : "release" or "determinant"
        Plan anew at each release, or where a determinant has doubled.
    max_switches : int or None
        Cap of switches by determinant (the first plan is none).
    tie_break : "random" or "first"
        Among exact maximisers: by public coins, or the lowest action.
    tie_batches : int
        Sub-batches of a batch, each with a tie-break of its own.
    """

    lam: float | None = None
    ridge: Ridge | None = None
    beta: float | Literal["theory"] | None = None
    bonus_scale: float | None = None
    failure: float | None = None
    response: Form | None = None
    project: Project | None = None
    centre: bool | None = None
    span: Literal["values", "declared"] | None = None
    known_rewards: bool | None = None
    over_steps: Literal["power", "flat", "noise"] | None = None
    answer_share: float | None = None
    replan_every: int | None = None
    replan_growth: float | None = None
    replan_first: int | None = None
    switch: Literal["release", "determinant"] | None = None
    max_switches: int | None = None
    tie_break: Literal["random", "first"] | None = None
    tie_batches: int | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            "lam": 1.0, "bonus_scale": 1.0, "failure": 0.05, "span": "values", "known_rewards": False,
            "over_steps": "power", "answer_share": 0.5, "switch": "release", "tie_break": "random",
            "tie_batches": 1,
        },
        "paper": {
            "beta": "theory", "ridge": "bound", "response": "requery", "centre": False, "span": "declared",
            "over_steps": "flat", "replan_every": 1,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        if self.replan_every is not None and self.replan_growth is not None:
            raise ValueError(
                f"replan_growth = {self.replan_growth!r}: must not be given together with replan_every"
            )
        scheduled = self.replan_growth is not None
        super().__post_init__()
        put = object.__setattr__
        if scheduled:
            put(self, "replan_every", None)
        checks.positive("lam", self.lam)
        put(self, "bonus_scale", checks.real("bonus_scale", self.bonus_scale, 0.0))
        for name in ("failure", "answer_share"):
            put(self, name, checks.real(name, getattr(self, name), 0.0, 1.0, open_low=True, open_high=True))
        if self.ridge is not None:
            put(self, "ridge", check_ridge(self.ridge))
        if self.beta is not None and self.beta != "theory":
            put(self, "beta", checks.real("beta", self.beta, 0.0))
        for name, allowed in (
            ("response", ("model", "requery")),
            ("project", ("simplex", "range", "none")),
            ("span", ("values", "declared")),
            ("over_steps", ("power", "flat", "noise")),
            ("switch", ("release", "determinant")),
            ("tie_break", ("random", "first")),
        ):
            if getattr(self, name) is not None:
                checks.choice(name, getattr(self, name), allowed)
        put(self, "known_rewards", checks.flag("known_rewards", self.known_rewards))
        if self.centre is not None:
            put(self, "centre", checks.flag("centre", self.centre))
        for name in ("replan_every", "replan_first", "max_switches", "tie_batches"):
            if getattr(self, name) is not None:
                put(self, name, checks.integer(name, getattr(self, name), 1))
        if self.replan_growth is not None:
            put(self, "replan_growth", checks.real("replan_growth", self.replan_growth, 1.0))

    # --------------------------------------------------------------------------- public facts
    def tuned(self, spec: Spec) -> LSVIUCB:
        """This learner with every open knob chosen from the public specification.

        Raises ``ValueError`` if it does not fit: no features of pairs, or 1 is not in their span where
        targets are centred.
        """
        features = self._features(spec)
        trust = "none" if spec.budget is None else spec.budget.trust
        chosen: dict[str, Any] = {
            "beta": _BETA[trust],
            "response": "requery" if trust == "joint" and spec.states > _FEW_STATES else "model",
            "centre": features.constant,
            "project": "simplex" if spec.layout.rows * spec.states <= _MOST_ROWS else "range",
        }
        if self.replan_every is None and self.replan_growth is None:
            chosen["replan_growth"] = default_growth(features.dimension)
        if self.replan_every is None:
            private = spec.users is not None and trust != "none"
            chosen["replan_first"] = math.ceil((spec.users or 0) / _FIRST) if private else 1
        open_ones = {name: value for name, value in chosen.items() if getattr(self, name) is None}
        mine = replace(self, **open_ones) if open_ones else self
        if mine.ridge is None:
            mine = replace(mine, ridge=1.0 if mine.response == "model" else 2.0)
        if (mine.centre or mine.response == "model") and not features.constant:
            name = "response = 'model'" if mine.response == "model" else "centre = True"
            raise ValueError(f"{name}: needs 1 in the span of the features, or estimates are biased")
        return mine

    def _features(self, spec: Spec) -> Features:
        if not isinstance(spec.features, Features):
            raise ValueError(
                f"spec.features = {checks.said(spec.features)}: LSVIUCB needs Features of pairs (s, a), "
                "such as linear-mdp and wide-linear have"
            )
        if self.known_rewards and spec.known_rewards is None:
            raise ValueError("known_rewards = True: must be false, the specification declares no rewards")
        return spec.features

    def schedule(self, spec: Spec) -> Schedule:
        """Times of release."""
        mine = self.tuned(spec)
        kind: Literal["deterministic"] = "deterministic"
        growth, first, every = mine.replan_growth, mine.replan_first or 1, mine.replan_every or 1
        if growth is not None and first == 1:
            return Schedule(spec.users, growth=growth, plans=kind)
        if growth is not None:
            if spec.users is None:
                raise ValueError(f"replan_first = {first}: must be 1 where the number of users is not known")
            times, users = [0], first
            while users < spec.users:
                times.append(users)
                users = _grown(users, growth)
            return Schedule(spec.users, times=np.array(times, np.int64))
        if spec.users is None or every == 1:
            return Schedule(spec.users, growth=None if every > 1 else 1.0, plans=kind)
        return Schedule(spec.users, times=np.arange(0, spec.users, every, dtype=np.int64), plans=kind)

    def query(self, spec: Spec) -> GramQuery:
        """The sums that this learner reads."""
        mine = self.tuned(spec)
        return GramQuery(
            layout=spec.layout,
            features=self._features(spec),
            model=mine.response == "model",
            rewards=not mine.known_rewards,
            over_steps=mine.over_steps or "power",
            answer_share=mine.answer_share or 0.5,
            centre=bool(mine.centre),
            span=mine.span or "values",
        )

    def _batch(self, users: int, spec: Spec) -> int:
        """How many users follow the release made after ``users`` of them."""
        mine = self.tuned(spec)
        later = users + int(mine.replan_every or 1)
        if mine.replan_growth is not None:
            later = _grown(users, mine.replan_growth) if users else mine.replan_first or 1
        return later - users if spec.users is None else min(later, spec.users) - users

    # -------------------------------------------------------------------------- one release
    def begin(self, spec: Spec, ties: NDArray[np.uint64]) -> LSVIState:
        """The state before the first release. ``ties`` is the key (2 words) of the tie-breaking coins."""
        self.tuned(spec)
        horizon = spec.horizon
        return LSVIState(
            spec,
            np.array(ties, dtype=np.uint64),
            np.zeros((horizon + 1, spec.states)),
            np.zeros((horizon, spec.layout.rows)),
            np.zeros(horizon - bool(self.known_rewards)),
        )

    def plan(self, state: LSVIState, release: Release, ask: Ask | None = None) -> tuple[Plan, LSVIState]:
        """The next users' policy, and the state after it; ``state`` is left as it was.

        A release that is new is read once; while it is the same, the next sub-batch is handed out.
        ``ask`` is called for ``response="requery"`` only, for each step from the last to the first.
        """
        if release.number != state.number:
            state = self._read(state, release, ask)
        parts = int(self.tie_batches or 1)
        users = self._batch(release.users, state.spec)
        if users < 1:
            raise ValueError(f"release.users = {release.users}: nobody is left of {state.spec.users} users")
        part = state.part
        while part < parts and users * (part + 1) // parts == users * part // parts:
            part += 1
        if part >= parts:
            raise ValueError(f"release.number = {release.number}: its last plan was handed out already")
        size = users * (part + 1) // parts - users * part // parts
        plan = Plan(self._policy(state, part), size, last=part == parts - 1)
        return plan, replace(state, part=part + 1)

    def _read(self, state: LSVIState, release: Release, ask: Ask | None) -> LSVIState:
        spec, mine = state.spec, self.tuned(state.spec)
        lam = float(mine.lam or 1.0)
        gram = release.estimates[GRAM]
        matrices = [
            repaired(table, self._level(mine, gram.law, h), lam)  # type: ignore[arg-type]
            for h, table in enumerate(gram.value)
        ]
        log_dets = np.array([np.linalg.slogdet(one.matrix)[1] for one in matrices])
        if mine.switch == "determinant" and state.number >= 0:
            spent = mine.max_switches is not None and state.switched >= mine.max_switches
            if spent or not switches(log_dets, state.log_dets):
                return replace(state, number=release.number, part=0)
        inverses = [one.inverse for one in matrices]
        values, q = self._planned(mine, spec, release, inverses, ask)
        return replace(
            state, values=values, q=q, log_dets=log_dets, number=release.number, part=0,
            switched=state.switched + (state.number >= 0), floored=sum(one.floored for one in matrices),
        )  # fmt: skip

    def _level(self, mine: LSVIUCB, law: _MatrixLaw, step: int) -> float:
        """L_h, what is added to the diagonal."""
        lam = float(mine.lam or 1.0)
        if mine.ridge == "bound":
            return lam + 2.0 * law.operator_norm_bound(mine.failure or 0.05, step)
        return lam + float(mine.ridge or 0.0) * law.edge(step)

    def _planned(
        self, mine: LSVIUCB, spec: Spec, release: Release, inverses: list[Floats], ask: Ask | None
    ) -> tuple[Floats, Floats]:
        """(H + 1, S) values and (H, R) Q, backward."""
        layout, horizon = spec.layout, spec.horizon
        phi = self._features(spec).table[layout.row_state, layout.row_action]
        values, q = np.zeros((horizon + 1, spec.states)), np.zeros((horizon, layout.rows))
        known = None if spec.known_rewards is None else layout.to_rows(spec.known_rewards)
        for h in reversed(range(horizon)):
            base = known[h] if mine.known_rewards and known is not None else 0.0
            q[h] = base
            if h < len(inverses):
                inverse = inverses[h]
                bonus = self._width(mine, spec, h) * norms(phi, inverse)
                if mine.response == "model":
                    estimate = self._modelled(mine, release, h, phi, inverse, values[h + 1])
                else:
                    estimate = self._answered(mine, release, h, phi, inverse, values[h + 1], ask)
                top = float(horizon - h - bool(mine.known_rewards))
                q[h] = base + np.clip(estimate + bonus, 0.0, top)
            values[h] = np.maximum.reduceat(q[h], layout.state_ptr[:-1])
        return values, q

    def _width(self, mine: LSVIUCB, spec: Spec, step: int) -> float:
        scale = float(mine.bonus_scale or 0.0)
        if mine.beta == "theory":
            d, horizon = self._features(spec).dimension, spec.horizon
            log = math.log(2 * d * bonuses.users(spec) * horizon / (mine.failure or 0.05))
            return scale * d * horizon * math.sqrt(log)
        return scale * float(mine.beta or 0.0) * (spec.horizon - step)

    @staticmethod
    def _modelled(
        mine: LSVIUCB, release: Release, step: int, phi: Floats, inverse: Floats, after: Floats
    ) -> Floats:
        """(R,) r^ + P^ V."""
        found = np.zeros(len(phi))
        if MODEL_REWARDS in release.estimates:
            found += model_rewards(phi, inverse, release.estimates[MODEL_REWARDS].value[step])
        if step < len(release.estimates[SUCCESSORS].value):
            moved = release.estimates[SUCCESSORS].value[step]
            found += model_values(phi, inverse, moved, after, mine.project or "simplex")
        return found

    @staticmethod
    def _answered(
        mine: LSVIUCB,
        release: Release,
        step: int,
        phi: Floats,
        inverse: Floats,
        after: Floats,
        ask: Ask | None,
    ) -> Floats:
        """(R,) c + phi^T Lambda^-1 u; the range of targets is read off V at all states."""
        reward = float(not mine.known_rewards)
        high = len(release.estimates[GRAM].value) - step
        low, top = (
            (0.0, float(high)) if mine.span == "declared" else (float(after.min()), float(after.max()) + reward)
        )
        centre = 0.5 * (low + top) if mine.centre else 0.0
        if not release.users:
            return np.full(len(phi), centre)  # nobody to ask about
        if ask is None:
            raise ValueError("ask = None: response = 'requery' needs a session that answers")
        sums = ask(Response(step, after, (0.0, float(high)))).value
        return np.asarray(centre + phi @ (inverse @ sums))

    def _policy(self, state: LSVIState, part: int) -> NDArray[Any]:
        layout = state.spec.layout
        if not state.number and (self.tuned(state.spec).replan_first or 1) > 1:
            chance = 1.0 / np.diff(layout.state_ptr)[layout.row_state]
            return layout.from_rows(np.tile(chance, (layout.horizon, 1)))
        rows = np.empty((layout.horizon, layout.states), np.int64)
        flags = np.zeros(kernels.FLAGS, np.int64)
        flags[kernels.RANDOM_TIES] = int(self.tie_break == "random")
        greedy = LearnerKernel(kernels.VALUE_ITERATION, flags, np.zeros(kernels.KNOBS))
        ties = open_at(state.ties, ROLE_TIES, state.number, part)
        kernels.choose(greedy, layout.state_ptr, layout.horizon, state.q, ties, rows)
        return np.asarray(layout.row_action[rows])

    # ------------------------------------------------------------------------------- in words
    def heuristics(self) -> Iterator[str]:
        """Knobs whose values void the regret theorem, each with the reason."""
        if self.beta != "theory":
            yield "beta is measured, not that of the theorem"
        if self.bonus_scale is not None and self.bonus_scale < 1.0:
            yield f"bonus_scale = {self.bonus_scale:g} is below 1"
        if self.ridge != "bound":
            yield "the ridge under noise is below twice a bound of its norm"
        if self.response != "requery":
            yield "the model form has no theorem of its own"
        if self.replan_growth is not None or self.replan_every is None:
            yield "a geometric schedule has no theorem"

    def summary(self) -> str:
        """The options, and whether the regret theorem holds with them. Privacy never depends on them."""
        said = ", ".join(
            f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) is not None
        )
        reasons = tuple(self.heuristics())
        verdict = (
            "The regret theorem does not cover these options: " + "; ".join(reasons) + "."
            if reasons
            else "The options are those of the regret theorem."
        )
        return f"{type(self).__name__}({said})\n{verdict} None of them touches privacy."


# Chosen by measurement: docs/linear.md, "LSVI-UCB".
_BETA: Mapping[str, float] = {"none": 0.1, "joint": 0.03, "local": 0.03, "shuffle": 0.03}
_FIRST = 50  # private: a first release after K / 50 users
_FEW_STATES = 50  # up to which the model form is asked for under central noise
