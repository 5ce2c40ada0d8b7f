r"""RLSVI: tabular randomised least-squares value iteration, without a privacy guarantee.

Let N = N(h, s, a) be the number of visits so far, R the sum of their rewards and N3 their transition counts.
Before each policy update, the learner computes, backward over steps h and for every pair (s, a),

    Q_h(s, a) = [R(h, s, a) + p_h + sum_s' N3(h, s, a, s') V_{h+1}(s')] / (N + 1) + w_h(s, a),

    w_h(s, a) ~ Normal(0, sigma_h^2 / (N + 1)) independently,     V_h(s) = max_a Q_h(s, a).

The next users follow the greedy policy of Q (Osband, Van Roy and Wen 2016).

- ``preset="theory"``: p_h = 0 and sigma_h^2 = beta_k = S H^3 log(2 H S A k) / 2 before user k. Values are not
  clipped. Worst-case regret is O~(H^3 S^(3/2) sqrt(A K)) (Russo 2019).
- ``preset="default"``: sigma_h = ``noise_const`` (H - h) and p_h = ``prior_value`` (H - h), with h from 0. Q
  is clipped to [0, H - h]. The preset has no theorem.

**Privacy.** This library states no privacy guarantee for RLSVI. The abstract of Lu, Gajane, Bai and Talebi
(arXiv 2606.01952, 2026) claims that tabular RLSVI is (epsilon(delta), delta)-jointly differentially private
with

    epsilon(delta) = x + 2 sqrt(x log(1 / delta)),     x = 2 A K / (H^2 log(2 H S A)).

Only the abstract was read. If neighbouring data sets differ in one user's whole trajectory, the claim is
false for the algorithm above with sigma_h^2 = beta_k:

1. *The variance reveals the user.* One user's first visit to a pair halves the variance of w. The Renyi
   divergence of Normal(0, v) from Normal(0, v / 2) is infinite at every order >= 2. The claimed epsilon has
   the form of zero-concentrated differential privacy, which needs a finite divergence at every order.
2. *The policies reveal the user.* Along chains of states that n users visited, V_{h+1} grows to the order of
   sqrt(n beta), while the noise of an unvisited pair is sqrt(beta). Consider S = A = 2 with all rewards 0,
   and n users who stay in state 1. In one data set, the next user alternates between the states 0 and 1. In
   the neighbouring data set, this user stays in state 1. Then two more users stay in state 0. At each even
   step, the alternating user has changed the value of one unvisited action of state 0 by about sqrt(n beta)
   / 2. The number of steps at which the last two users take the same action reveals the trajectory of the
   user before them. For H = 200 and n = 64 (K = 67), the claim is epsilon = 0.22 at delta = 1e-6. A test
   shows that epsilon is above 1.3 with confidence 1 - 1e-6 (tests/learners/online/test_rlsvi.py). Because
   rewards are 0, no choice of the constant in beta makes the claim true.

With the clipping of the default preset, argument 1 still holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.randomized_base import SHARED, Draw, RandomizedLearner, RandomizedState
from discreet.learners.online.tabular_base import Theory
from discreet.mechanisms.interfaces import ProblemSpec


def claimed_epsilon(horizon: int, states: int, actions: int, users: int, delta: float) -> float:
    """Return the epsilon that arXiv 2606.01952 claims for RLSVI. It is not a privacy guarantee.

    Returns x + 2 sqrt(x log(1 / delta)) with x = 2 A K / (H^2 log(2 H S A)) and delta in (0, 1).
    """
    horizon = checks.integer("horizon", horizon, 1)
    states = checks.integer("states", states, 1)
    actions = checks.integer("actions", actions, 1)
    users = checks.integer("users", users, 1)
    delta = checks.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    x = 2.0 * actions * users / (horizon**2 * math.log(2.0 * horizon * states * actions))
    return x + 2.0 * math.sqrt(x * math.log(1.0 / delta))


def theory_variance(spec: ProblemSpec, user: int) -> float:
    """Return the noise variance beta_k = S H^3 log(2 H S A k) / 2 of Russo (2019).

    ``user`` is k = 1, 2, ..., the number of the next user. S A is the number of admissible pairs.
    """
    tables = float(spec.horizon * spec.layout.rows)
    return 0.5 * spec.states * spec.horizon**3 * math.log(2.0 * tables * user)


@dataclass(frozen=True, kw_only=True)
class RLSVI(RandomizedLearner):
    """Randomised least-squares value iteration on exact counts: a non-private baseline.

    The learner rejects every privatizer except ``NoPrivacy``, because its exploration noise is not a privacy
    mechanism.

    Parameters
    ----------
    preset : "default" or "theory"
        ``default``: smaller noise, with constants chosen on training environments (heuristic).
        ``theory``: the constants of Russo (2019).
    noise_const : float or "theory"
        The noise of an unvisited pair at step h (from 0) has standard deviation ``noise_const`` (H - h). With
        "theory" it is sqrt(beta_k) at every step.
    prior_value : float
        Value of the pseudo-visit of each pair, in [0, 1], in units of H - h with h from 0.
    cap : "H-h+1" or "none"
        Limits of Q: "H-h+1" clips Q to [0, H - h + 1] at step h (from 1), "none" does not clip.

    For further options see :class:`~discreet.learners.online.randomized_base.RandomizedLearner`.
    """

    noise_const: float | Theory | None = None
    prior_value: float | None = None
    cap: Literal["H-h+1", "none"] | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {
            **SHARED, "replan_growth": 1.1, "samples": 8, "noise_const": 0.003, "prior_value": 0.5,
            "cap": "H-h+1",
        },
        "theory": {
            "noise_const": "theory", "prior_value": 0.0, "cap": "none", "replan_growth": 1.0, "samples": 1,
        },
    }  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        if self.noise_const != "theory":
            put(self, "noise_const", checks.real("noise_const", self.noise_const, 0.0))
        put(self, "prior_value", checks.real("prior_value", self.prior_value, 0.0, 1.0))
        checks.choice("cap", self.cap, ("H-h+1", "none"))

    def _cap(self) -> int:
        return kernels.CAP_NONE if self.cap == "none" else kernels.CAP_LEFT

    def deviations(self, spec: ProblemSpec, users: int) -> Floats:
        """Return (H,) standard deviations sigma_h of the noise w at unvisited pairs after ``users`` users."""
        if self.noise_const == "theory":
            return np.full(spec.horizon, math.sqrt(theory_variance(spec, users + 1)))
        return float(self.noise_const or 0.0) * np.arange(spec.horizon, 0.0, -1.0)

    def draw(self, state: RandomizedState, coins: np.random.Generator) -> Draw:
        """Return the model estimated from the sums and one pseudo-visit, with Gaussian noise on the rewards.

        ``state`` : state with the sums of the latest release. ``coins`` : generator of the public random
        stream.
        """
        spec = state.spec
        shape = (spec.horizon, spec.layout.rows)
        denominators = state.visits + 1.0
        noise = self.deviations(spec, state.users)[:, None] / np.sqrt(denominators)
        prior = float(self.prior_value or 0.0) * np.arange(spec.horizon, 0.0, -1.0)[:, None]
        known, sums = self._known(spec), state.reward_sums
        if known is not None:
            sums = known * state.visits
        rewards = (sums + prior) / denominators + noise * coins.standard_normal(shape)
        return Draw(rewards, state.transitions, denominators)

    def heuristics(self) -> Iterator[str]:
        """Yield one string for each option value that the regret theorem does not cover."""
        yield from super().heuristics()
        if self.noise_const != "theory":
            yield f"noise_const = {self.noise_const:g} replaces the variance of the theory"
        if self.prior_value != 0.0:
            yield f"prior_value = {self.prior_value:g} is not 0"
        if self.cap != "none":
            yield f"cap = {self.cap!r} clips the values (the theorem does not)"
        if self.stationary:
            yield "stationary = True pools steps (the theorem is for one table a step)"
