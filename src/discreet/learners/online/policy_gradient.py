r"""DP policy gradient and DP natural policy gradient for tables, with one noisy vector per batch of users.

All users of a batch follow the softmax policy pi of public logits theta[t, s, a]. Here t is the step, or 0 if
all steps share their logits. Let G_h be the sum of a user's rewards from step h on, b the public baseline,
and c_h = G_h - b_h. The vector of a user has up to three parts:

    gradient   sum over h of c_h (e_a - pi[t, s]) in row (t, s) of step h

    residuals  w c_h

    visits     v N(t, s), for the natural gradient only

Here e_a is the unit vector of the action. The vector is clipped to the l2 norm B
(:mod:`discreet.core.vectors`), and noise is added to the sum over the batch. Let g be the released mean of
the gradients divided by B, and d that of the visits divided by v. At each release, theta changes by

    eta g                                           (policy gradient),
    eta (d (diag(pi) - pi pi^T) + zeta I)^{-1} g    (natural policy gradient, for each (t, s)).

**Source.** He and Zhou (2025, arXiv 2510.21060) analyse both methods. Their theorems do not cover this
module, which adds horizons above 1, clipping, a learned baseline, growing batches, shrinking logits and noisy
visits.

**Privacy.** Each user is in one batch, so the guarantee is that of one noisy sum (parallel composition). The
sensitivity is 2 B, derived in :mod:`discreet.core.vectors`. The guarantee depends on one condition
(``Guarantee.rests_on``): :func:`user_vector` reads only one trajectory and public arrays. The ledger,
verification and the service reject such guarantees.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.families import Context
from discreet.core.query import FamilyQuery
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory
from discreet.core.vectors import BoundedVector
from discreet.learners.online.summary import summary_of
from discreet.mechanisms.interfaces import Ask, Plan, ProblemSpec, Release, Schedule
from discreet.utils.config import Knobs

Floats = NDArray[np.float64]

VECTOR = "policy_gradient"  # name of the family in releases
BASELINE_WEIGHT = 0.3  # The weight w of residuals.
BASELINE_RATE = 0.4  # Share of the estimated residual that is added to the baseline at a release.
_LEAST_NOISE = 1e-3  # smallest noise of a released mean for the damping of natural gradients


def user_vector(trajectory: Trajectory, context: Context) -> Floats:
    """Return the vector of one user before clipping, as defined in the module docstring.

    trajectory : record of the user.

    context : public arrays of the plan, which are ``policy`` (T, S, A), ``baseline`` (H,) and ``weights``.
        The weights are w and v.
    """
    policy, (residual, visit) = context["policy"], context["weights"]
    states, actions = trajectory.states[:-1], trajectory.actions
    slots = np.arange(actions.size) if policy.shape[0] > 1 else np.zeros(actions.size, np.int64)
    left = trajectory.rewards[::-1].cumsum()[::-1] - context["baseline"]
    scores = np.zeros(policy.shape)
    np.add.at(scores, (slots, states), -left[:, None] * policy[slots, states])
    np.add.at(scores, (slots, states, actions), left)
    parts = [scores.ravel(), residual * left]
    if visit > 0.0:
        visits = np.zeros(policy.shape[:2])
        np.add.at(visits, (slots, states), visit)
        parts.append(visits.ravel())
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class PolicyGradientState:
    """Public state of the learner between releases.

    Attributes
    ----------
    spec : ProblemSpec
    logits : (T, S, A), T = 1 if all steps share their logits.
    baseline : (H,) estimated mean sum of rewards from each step on.
    number : number of the last release that the learner has read.
    """

    __repr__ = brief

    spec: ProblemSpec
    logits: Floats
    baseline: Floats
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class VectorGradientLearner(Knobs):
    """Base class of both policy gradient learners.

    The privatizer must be ``Central`` (with ``release`` "auto" or "batches") or ``NoPrivacy``.

    Parameters
    ----------
    preset : "default"
    stationary : bool, optional
        True: all steps share their logits. None: the value that the problem declares.
    batches : int, optional
        Largest number of batches, at least 1. None: 60 for 20 000 users; for other numbers, in proportion to
        the cube root of the number of users.
    batch_growth : float
        Size of the last batch divided by the size of the first batch, at least 1.
    step : float
        Step size eta, above 0.
    bound : float
        Norm B to which vectors are clipped, in units of sqrt(H), above 0.
    shrink : float
        Share in [0, 1) by which logits shrink at a release.

    Raises
    ------
    ValueError
        If an option is out of its range. ``schedule``, ``query`` and ``begin`` also raise it if the number of
        users is unknown.
    """

    stationary: bool | None = None
    batches: int | None = None
    batch_growth: float | None = None
    step: float | None = None
    bound: float | None = None
    shrink: float | None = None

    visit_weight: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        if self.stationary is not None:
            put(self, "stationary", checks.flag("stationary", self.stationary))
        if self.batches is not None:
            put(self, "batches", checks.integer("batches", self.batches, 1))
        put(self, "batch_growth", checks.real("batch_growth", self.batch_growth, 1.0))
        for name in ("step", "bound"):
            put(self, name, checks.positive(name, getattr(self, name)))
        put(self, "shrink", checks.real("shrink", self.shrink, 0.0, 1.0, open_high=True))

    # ---------------------------------------------------------------------- schedule and query
    def tuned(self, spec: ProblemSpec) -> Self:
        """Return this learner with a value for every option that is None, chosen from the public ``spec``.

        Raises ``ValueError`` if the number of users is unknown.
        """
        if spec.users is None:
            raise ValueError("users = None: must be known, because batches depend on it")
        stationary = spec.stationary if self.stationary is None else self.stationary
        batches = max(1, round(60 * (spec.users / 20_000) ** (1 / 3)))
        return replace(self, stationary=stationary, batches=self.batches or batches)

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule for the problem ``spec``, with batches of growing size.

        Raises ``ValueError`` if the number of users is unknown.
        """
        users, growth = spec.users or 0, float(self.batch_growth or 1.0)
        shares = np.linspace(0.0, 1.0, int(self.tuned(spec).batches or 1) + 1)[:-1]
        if growth > 1.0:
            shares = np.expm1(shares * math.log(growth)) / (growth - 1.0)
        times = np.unique(np.rint(users * shares).astype(np.int64))
        return Schedule(spec.users, times[times < users], reads="measurements", plans="stochastic")

    def query(self, spec: ProblemSpec) -> FamilyQuery:
        """Return the query for the problem ``spec``: a sum of vectors.

        Raises ``ValueError`` if the number of users is unknown.
        """
        slots = 1 if self.tuned(spec).stationary else spec.horizon
        size = slots * spec.states * (spec.actions + (self.visit_weight > 0.0)) + spec.horizon
        vector = BoundedVector(VECTOR, size, self._norm(spec), user_vector)
        return FamilyQuery(spec.layout, (vector,))

    def _norm(self, spec: ProblemSpec) -> float:
        return float(self.bound or 1.0) * math.sqrt(spec.horizon)

    # ------------------------------------------------------------------------ plans
    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> PolicyGradientState:
        """Return the first state for the problem ``spec``, with the uniform policy.

        ``ties`` is not used. Raises ``ValueError`` if the number of users is unknown.
        """
        slots = 1 if self.tuned(spec).stationary else spec.horizon
        logits = np.zeros((slots, spec.states, spec.actions))
        return PolicyGradientState(spec, logits, np.zeros(spec.horizon))

    def plan(
        self, state: PolicyGradientState, release: Release, ask: Ask
    ) -> tuple[Plan, PolicyGradientState]:
        """Return the plan for the users until the next release, and the new state.

        state : state before the release.

        release : latest release.

        ask : not used.
        """
        if release.number > state.number:
            state = self._updated(state, release)
        spec = state.spec
        policy = softmax(state.logits, spec.layout.mask)
        times = np.append(self.schedule(spec).release_times, spec.users or 0)
        end = int(times[np.searchsorted(times, release.users, "right")])
        context = {
            "policy": policy, "baseline": state.baseline,
            "weights": np.array([BASELINE_WEIGHT, self._visit_weight(spec)]),
        }  # fmt: skip
        policy = np.broadcast_to(policy, (spec.horizon, spec.states, spec.actions)).copy()
        return Plan(policy, end - release.users, context=context), state

    def _visit_weight(self, spec: ProblemSpec) -> float:
        return self.visit_weight * float(self.bound or 1.0)

    def _updated(self, state: PolicyGradientState, release: Release) -> PolicyGradientState:
        """Return the state after one step with the vector of the latest batch."""
        assert release.measurement is not None
        estimate, spec = release.measurement.estimates[VECTOR], state.spec
        norm, users, cells = self._norm(spec), max(1, estimate.covers), state.logits.size
        mean, noise = estimate.value / (users * norm), estimate.law.std() / (users * norm)
        gradient, left = mean[:cells].reshape(state.logits.shape), mean[cells : cells + spec.horizon]
        visits = mean[cells + spec.horizon :] / (self._visit_weight(spec) or 1.0) * norm
        policy = softmax(state.logits, spec.layout.mask)
        logits = (1.0 - float(self.shrink or 0.0)) * state.logits
        logits = logits + self._move(gradient, noise, policy, visits)
        logits -= (logits * policy).sum(axis=-1, keepdims=True)
        rate = BASELINE_RATE if state.number else 1.0
        baseline = state.baseline + rate * left * norm / BASELINE_WEIGHT
        baseline = baseline.clip(0.0, np.arange(spec.horizon, 0, -1.0))
        return replace(state, logits=logits, baseline=baseline, number=release.number)

    @abstractmethod
    def _move(self, gradient: Floats, noise: float, policy: Floats, visits: Floats) -> Floats:
        """Return the change of the logits.

        gradient : (T, S, A) mean g.

        noise : standard deviation of g.

        policy : (T, S, A) policy of the batch.

        visits : (T S,) mean d, or empty.
        """

    # ---------------------------------------------------------------------- description as text
    def heuristics(self) -> Iterator[str]:
        """Yield at least one string on the parts of the learner that no regret theorem covers."""
        yield "vectors are clipped, the baseline is learned, and batches and steps are chosen by experiments"

    def summary(self) -> str:
        """Return a string that lists the options."""
        return summary_of(self, self.heuristics())


@dataclass(frozen=True, kw_only=True)
class DPPolicyGradient(VectorGradientLearner):
    """DP policy gradient (He and Zhou 2025): one noisy sum of clipped gradients for each batch of users.

    Parameters
    ----------
    noise_limit : float
        Largest standard deviation of the noise in one step of a logit, above 0. If the noise is larger, the
        step is reduced.

    For further options see :class:`VectorGradientLearner`.
    """

    noise_limit: float | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"batch_growth": 4.0, "step": 60.0, "bound": 1.0, "shrink": 0.01, "noise_limit": 0.6}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "noise_limit", checks.positive("noise_limit", self.noise_limit))

    def _move(self, gradient: Floats, noise: float, policy: Floats, visits: Floats) -> Floats:
        step, limit = float(self.step or 0.0), float(self.noise_limit or 0.0)
        return (min(step, limit / noise) if noise > 0.0 else step) * gradient


@dataclass(frozen=True, kw_only=True)
class DPNaturalPolicyGradient(VectorGradientLearner):
    """DP natural policy gradient (He and Zhou 2025): a ridge regression on noisy sums of scores and visits.

    Parameters
    ----------
    damping : float
        Factor of zeta, above 0. With factor 1, zeta is the standard deviation of the noise in g, and at least
        0.001.

    For further options see :class:`VectorGradientLearner`.
    """

    damping: float | None = None

    visit_weight: ClassVar[float] = 0.3
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"batch_growth": 4.0, "step": 8.0, "bound": 0.7, "shrink": 0.02, "damping": 8.0}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "damping", checks.positive("damping", self.damping))

    def _move(self, gradient: Floats, noise: float, policy: Floats, visits: Floats) -> Floats:
        each = np.eye(policy.shape[-1])
        fisher = policy[..., None] * each - policy[..., None] * policy[..., None, :]
        seen = np.maximum(visits, 0.0).reshape(policy.shape[:2])[..., None, None]
        zeta = float(self.damping or 0.0) * max(noise, _LEAST_NOISE)
        found = np.linalg.solve(seen * fisher + zeta * each, gradient[..., None])[..., 0]
        return np.asarray(float(self.step or 0.0) * found, np.float64)


def softmax(logits: Floats, mask: NDArray[np.bool_] | None) -> Floats:
    """Return probabilities proportional to exp(logits), over the admissible actions of each state.

    logits : (..., S, A). mask : (S, A) admissible pairs; None if all pairs are admissible.
    """
    allowed = logits if mask is None else np.where(mask, logits, -np.inf)
    weights = np.exp(allowed - allowed.max(axis=-1, keepdims=True))
    found: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return found
