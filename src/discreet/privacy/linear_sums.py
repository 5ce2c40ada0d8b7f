"""Sums of linear statistics that grow with the users: what UCRL-VTR and LSVI ask for, and what it can cost.

Specification: linear-and-offline, 0, 1, 4 to 6. A user's contribution uses public arrays of the plan that she
follows (``Plan.context``), so it is a summand made once: local noise, batches and trees apply.

:class:`MixtureQuery` (value-targeted regression, Luyo et al. 2021). At steps h = 0 .. H - 2, with V =
``context["values"]`` (H + 1, S), b = b_{h+1} the bound of V_{h+1} and a public centre c and scale m,

    x = phi_{(V_{h+1} - c) / m}(s_h, a_h),   y = (V_{h+1}(s_{h+1}) - c) / m;   released: x x^T and x y.

=========  =====================  ==================  ==========================
targets    c, m                   ||x|| <=            y in
=========  =====================  ==================  ==========================
raw        0, 1                   b F01               [0, b]
centred    b / 2, 1               b F+- / 2           [-b/2, b/2]
span       mid-range, range of V  F+- / 2             [-1/2, 1/2]
=========  =====================  ==================  ==========================

F01, F+- are certified by :class:`~discreet.mdp.features.MixtureFeatures`; range and mid-range are read off
V_{h+1} over *all* states, by the core. A range of at most 1e-9 b contributes zeros (below, rounding decides).
Values are projected to [0, b], then x and y to their contracts; what is not a number becomes 0. The map is
fixed in advance and never raises, so that each sensitivity holds for any context and any device.

With weights w(s, a) in [0, W] (``context["weights"]`` (H - 1, S, A), W = ``largest_weight``) the pair is
(sqrt(w) x, sqrt(w) y), its bounds times sqrt(W). ``second`` adds the pair of V-bar^2, V-bar = (V - c) / m,
unweighted, with x2 = phi_{V-bar^2}, y2 = V-bar(s')^2 in [0, q], ||x2|| <= q F01; q = b^2 (raw), b^2/4
(centred), 1/4 (span).

:class:`GramQuery` (linear MDPs, LSVI). phi phi^T; with ``model`` also phi (e_{s'} - 1/S)^T (steps 0 .. H - 2:
V_H = 0) and phi (r - 1/2), from which any later V is planned with, free.

Sensitivities. Each step of a query, or each of its pairs at a step, is a :class:`Unit`: lemma 3 (a pair) or
5 (the model form) of :mod:`discreet.privacy.gram` gives its exact mu at given scales, whatever
the arrays are. The units of a user are independent Gaussian releases given earlier ones, so mu^2 adds; where
two units share a step (weighted and second pair) the sum is an upper bound. For Laplace noise the l1
sensitivities of section 1.6 add, with the bound a of ||x||_1 for the x that is released.

Budget. A unit gets a share of mu^2 (of epsilon), ``over_steps``: "power" b_{h+1}^{4/3} (raw, centred; their
noise is then s_h ~ b_{h+1}^{4/3}), b_h^{2/3} (model form), flat (span); "flat"; "noise": shares such that s_h
is one for all steps; or a tuple of shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.mdp.features import Features, MixtureFeatures
from discreet.mdp.layout import Layout
from discreet.mdp.trajectories import Trajectory, checked
from discreet.numerics import checks
from discreet.privacy import gram
from discreet.privacy.noise import laws
from discreet.privacy.protocol import Floats, Ints, Norm

Targets = Literal["raw", "centred", "span"]
Noise = Literal["goe", "triangle", "laplace"]
"""GOE(s) of the lemmas; all of the upper triangle N(0, s^2), mirrored (Luyo et al.); Laplace(s) there."""

GRAM, RESPONSE = "gram", "response"
SECOND_GRAM, SECOND_RESPONSE = "second_gram", "second_response"
REWARD_GRAM, REWARD_RESPONSE = "reward_gram", "reward_response"
SUCCESSORS, MODEL_REWARDS = "successors", "rewards"

FLAT_SPAN = 1e-9  # of b: a smaller range of values contributes nothing
_GRID = 2.0**-12  # of contributions under exact noise, in units of a power of two above their bound

__all__ = [
    "GRAM", "MODEL_REWARDS", "RESPONSE", "REWARD_GRAM", "REWARD_RESPONSE", "SECOND_GRAM", "SECOND_RESPONSE",
    "SUCCESSORS", "GoeLaw", "GramQuery", "LinearQuery", "MixtureQuery", "Noise", "Pair", "Prepared",
    "Targets", "Unit", "VectorLaw", "projected",
]  # fmt: skip


# ------------------------------------------------------------------------------ contributions


def projected(x: NDArray[Any], y: NDArray[Any], bound: float, low: float, high: float) -> tuple[Floats, Floats]:
    """x (..., d) scaled back to ||x|| <= bound, y (...) clipped to [low, high]; what is not finite becomes 0.

    The map of contributions into their contract: fixed in advance, it never raises.
    """
    x = np.array(x, np.float64)
    x[~np.isfinite(x).all(axis=-1)] = 0.0
    top = np.abs(x).max(axis=-1, initial=0.0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        norms = np.where(top > 0, top * np.linalg.norm(x / np.where(top > 0, top, 1.0), axis=-1, keepdims=True), 0)
        x = np.where(norms > bound, x * (bound * (1 - 1e-15) / norms), x)
    y = np.array(y, np.float64)
    return x, np.clip(np.where(np.isfinite(y), y, min(max(0.0, low), high)), low, high)


# ---------------------------------------------------------------------------------- the price


@dataclass(frozen=True)
class Unit:
    """Statistics of one step that are priced together.

    step : h; share : of mu^2 (of epsilon, in Laplace noise) of the whole query.
    scales : by family, at which the unit is exactly 1-GDP (1-DP). own : by family, its sensitivity alone, in
    the metric in which noise of scale s costs own / s.
    """

    step: int
    share: float
    scales: Mapping[str, float]
    own: Mapping[str, float]


@dataclass(frozen=True)
class Pair:
    """x x^T and x y of one kind, at steps 0 .. ``steps`` - 1, with their contracts at each.

    bounds : of ||x||_2; l1 : of ||x||_1; low, high : of y; target : the row of lemma 3; share : of the budget.
    """

    gram: str
    response: str
    bounds: tuple[float, ...]
    l1: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    target: gram.Target
    dimension: int
    share: float

    @property
    def steps(self) -> int:
        """How many steps have the pair."""
        return len(self.bounds)

    def loss(self, step: int, gram_scale: float, response_scale: float, noise: Noise) -> float:
        """mu (epsilon for Laplace noise) of the pair at one step under noise of these scales."""
        b, c = self.bounds[step], self.high[step] - self.low[step]
        if noise == "laplace":
            a = self.l1[step]
            return gram.gram_l1(b, a) / gram_scale + gram.vector_l1(a, c, self.target) / response_scale
        alpha, beta = b**4 / gram_scale**2, (b * c / response_scale) ** 2
        return gram.pair_mu(2 * alpha if noise == "triangle" else alpha, beta, self.target)

    def unit(self, step: int, noise: Noise, share: float) -> Unit:
        """One scale for both, as in the specification's section 4."""
        b, c, a = self.bounds[step], self.high[step] - self.low[step], self.l1[step]
        scale = self.loss(step, 1.0, 1.0, noise)
        if noise == "laplace":
            own = {self.gram: gram.gram_l1(b, a), self.response: gram.vector_l1(a, c, self.target)}
        else:
            matrix = b * b * (math.sqrt(2.0) if noise == "triangle" else 1.0)
            own = {self.gram: matrix, self.response: gram.vector_sensitivity(b, c, self.target)}
        return Unit(step, share, {self.gram: scale, self.response: scale}, own)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan's public arrays as contributions use them: read once from its context, into private copies.

    values : by family of the response, (n, S) what y is at each next state.
    roots : (n, S, A) square roots of weights, of the first pair; None: 1.
    """

    values: Mapping[str, Floats]
    roots: Floats | None = None


def _norm_of(noise: Noise) -> Norm:
    return "l1" if noise == "laplace" else "l2"


class LinearQuery:
    """What mixture and linear queries share: families, cells, and the price of noise on them.

    A family is a symmetric matrix (its upper triangle: d diagonal cells, then the others) or an array at
    each of its steps. Cells of all families and steps form one flat vector; ``blocks`` cut it up.
    """

    layout: Layout
    over_steps: Any
    gram_families: ClassVar[frozenset[str]] = frozenset({GRAM, SECOND_GRAM, REWARD_GRAM})
    requeries: ClassVar[bool] = False
    simulated: ClassVar[tuple[str, ...]] = ("transition_counts", "reward_sums", "visits")
    """Exact count tables of a batch, (H, S, A, S), (H, S, A), (H, S, A): what ``submit_sum`` takes."""

    # subclasses say
    @property
    def families(self) -> Mapping[str, tuple[int, ...]]:
        raise NotImplementedError

    def units(self, noise: Noise) -> tuple[Unit, ...]:
        raise NotImplementedError

    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        raise NotImplementedError
