r"""RLSVI: randomised least-squares value iteration on tables, without a privacy guarantee.

Let N = N(h, s, a) be the visits so far. Before each policy update, the learner computes backward, for every
step h and pair (s, a),

    Q_h(s, a) = [R(h, s, a) + p_h + sum_s' N3(h, s, a, s') V_{h+1}(s')] / (N + 1) + w_h(s, a),

    w_h(s, a) ~ Normal(0, sigma_h^2 / (N + 1)) independently,     V_h(s) = max_a Q_h(s, a),

The next users follow the greedy policy. This is least squares on targets with Gaussian noise of variance
sigma_h^2 each, regularised towards one pseudo-visit of value p_h (Osband, Van Roy and Wen 2016).

- ``preset="theory"``: p_h = 0 and sigma_h^2 = beta_k = S H^3 log(2 H S A k) / 2 before user k. Values are not
  clipped. Worst-case regret is O~(H^3 S^(3/2) sqrt(A K)) (Russo 2019). This preset learns almost nothing from
  20 000 users: sqrt(beta_k) is about 600 at RiverSwim, where no value is above 20.
- ``preset="default"``: sigma_h = ``noise_const`` (H - h), h from 0, p_h = ``prior_value`` (H - h), Q clipped
  to [0, H - h]. The constants were chosen on ``benchmarks.leaderboard.env_suites.TRAINING`` under
  ``NoPrivacy`` (benchmarks/baselines.py, ``--part tuning``), at 20 000 users. The pseudo-visit at half the
  range causes the exploration. Regret decreases with ``noise_const`` down to the smallest value of the grid.
  This preset is a heuristic without a theorem.

**Privacy.** This library states no privacy guarantee for RLSVI. Lu, Gajane, Bai and Talebi wrote "Randomized
Least Squares Value Iteration itself is Joint Differentially Private" (arXiv 2606.01952, 2026). The abstract
claims that tabular RLSVI "as is" is (epsilon(delta), delta)-jointly differentially private with

    epsilon(delta) = x + 2 sqrt(x log(1 / delta)),     x = 2 A K / (H^2 log(2 H S A)).

:func:`claimed_epsilon` computes that number. The claim is the authors'. We have read only the abstract and
could not derive the claim. In this library neighbours differ in one user's whole trajectory. Under this
relation the claim is false for the algorithm above with beta_k (the claim has the logarithm of beta_k):

1. *The variance reveals the user.* One user's first visit to a pair halves the variance of w. The Renyi
   divergence of Normal(0, v) from Normal(0, v / 2) is infinite at every order >= 2. The claim has the form of
   zero-concentrated privacy, rho + 2 sqrt(rho log(1 / delta)), which bounds every order. It therefore cannot
   be derived by treating the table of randomised values as a Gaussian mechanism.
2. *The policies reveal the user.* Regression targets are not bounded by H, because V_{h+1} is a maximum of
   Gaussians. Along chains that n users visited, V_{h+1} grows to the order of sqrt(n beta), while the noise
   of a new pair is sqrt(beta). Let S = A = 2 and all rewards be 0, and let n users stay in state 1. The next
   user either alternates between the states 0 and 1, or (the neighbour) stays in state 1. Two more users
   follow, who stay in state 0. At each even step the alternating user has moved one new action of state 0 by
   about sqrt(n beta) / 2, and both later users tend to take this action. The number of steps at which the two
   later users agree reveals which trajectory the user had. For H = 200 and n = 64, so K = 67, the claim is
   epsilon = 0.22 at delta = 1e-6. At least 67 agreements in 100 steps were seen in 363 of 400 runs with one
   trajectory and in 47 of 400 with the other. Therefore epsilon is above 1.3 with confidence 1 - 1e-6
   (tests/learners/online/test_rlsvi.py), and about 2 by the frequencies. For larger H the claim falls to 0
   and the evidence grows. Because rewards are 0, the policies do not depend on the scale of beta. Therefore
   no choice of the constant makes the claim true.

Clipping, as in the default preset, bounds the targets but does not remove the first objection. The smaller
noise of that preset protects less. This learner is therefore a baseline on exact sums without a privacy
guarantee. For a guarantee, add noise to the counts, whose sensitivity is known, and plan from the noisy
counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from discreet.core import checks
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.learners.online.randomized_base import SHARED, Draw, Floats, RandomizedLearner, RandomizedState
from discreet.learners.online.tabular_base import Theory
from discreet.mechanisms.interfaces import ProblemSpec


def claimed_epsilon(horizon: int, states: int, actions: int, users: int, delta: float) -> float:
    """Return the epsilon that arXiv 2606.01952 claims for RLSVI, which is not a guarantee.

    It is x + 2 sqrt(x log(1 / delta)) with x = 2 A K / (H^2 log(2 H S A)), delta in (0, 1). See the module
    docstring.
    """
    horizon = checks.integer("horizon", horizon, 1)
    states = checks.integer("states", states, 1)
    actions = checks.integer("actions", actions, 1)
    users = checks.integer("users", users, 1)
    delta = checks.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    x = 2.0 * actions * users / (horizon**2 * math.log(2.0 * horizon * states * actions))
    return x + 2.0 * math.sqrt(x * math.log(1.0 / delta))


def theory_variance(spec: ProblemSpec, user: int) -> float:
    """Return beta_k = S H^3 log(2 H S A k) / 2 of Russo (2019), before user k = 1, 2, ...; A is R / S."""
    tables = float(spec.horizon * spec.layout.rows)
    return 0.5 * spec.states * spec.horizon**3 * math.log(2.0 * tables * user)


@dataclass(frozen=True, kw_only=True)
class RLSVI(RandomizedLearner):
    """Randomised least-squares value iteration on exact counts: a non-private baseline.

    The learner refuses private privatizers. Its own noise is not a privacy mechanism: see
    :mod:`discreet.learners.online.rlsvi`, which also discusses the epsilon claimed in the literature.

    Parameters
    ----------
    preset : "default" or "theory"
        ``default``: scaled down, chosen on training environments (heuristic). ``theory``: Russo (2019).
    noise_const : float or "theory"
        The noise of an unvisited pair has standard deviation ``noise_const`` (H - h), h from 0; "theory":
        sqrt(beta_k) at every step.
    prior_value : float
        Value of the one pseudo-visit of each pair, in [0, 1], in units of H - h.
    cap : "H-h+1" or "none"
        Clip Q to [0, H - h + 1] at step h (from 1), or do not clip.

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
        """Return the (H,) sigma_h after ``users`` users: the standard deviation of w at unvisited pairs."""
        if self.noise_const == "theory":
            return np.full(spec.horizon, math.sqrt(theory_variance(spec, users + 1)))
        return float(self.noise_const or 0.0) * np.arange(spec.horizon, 0.0, -1.0)

    def draw(self, state: RandomizedState, coins: np.random.Generator) -> Draw:
        """Return the empirical model with one pseudo-visit, with Gaussian noise added to the rewards.

        ``state`` : state with the sums of the newest release. ``coins`` : public random generator, made from
        the state's ties.
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
        """Yield the options whose values invalidate the regret theorem, each with the reason."""
        yield from super().heuristics()
        if self.noise_const != "theory":
            yield f"noise_const = {self.noise_const:g} replaces the variance of the theory"
        if self.prior_value != 0.0:
            yield f"prior_value = {self.prior_value:g} is not 0"
        if self.cap != "none":
            yield f"cap = {self.cap!r} clips the values (the theorem does not)"
        if self.stationary:
            yield "stationary = True pools steps (the theorem is for one table a step)"
