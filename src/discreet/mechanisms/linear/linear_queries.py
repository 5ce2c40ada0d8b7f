"""Sums of linear statistics that grow with the users: what UCRL-VTR and LSVI ask for, and what it can cost.

A user's contribution uses public arrays of the plan that she follows (``Plan.context``), so it is a summand
made once: local noise, batches and trees apply.

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

F01, F+- are certified by :class:`~discreet.mechanisms.features.MixtureFeatures`; range and mid-range are read
off V_{h+1} over *all* states, by the core. A range of at most 1e-9 b contributes zeros (below, rounding
decides). Values are projected to [0, b], then x and y to their contracts; what is not a number becomes 0. The
map is fixed in advance and never raises, so that each sensitivity holds for any context and any device.

With weights w(s, a) in [0, W] (``context["weights"]`` (H - 1, S, A), W = ``largest_weight``) the pair is
(sqrt(w) x, sqrt(w) y), its bounds times sqrt(W). ``second`` adds the pair of V-bar^2, V-bar = (V - c) / m,
unweighted, with x2 = phi_{V-bar^2}, y2 = V-bar(s')^2 in [0, q], ||x2|| <= q F01; q = b^2 (raw), b^2/4
(centred), 1/4 (span).

:class:`GramQuery` (linear MDPs, LSVI). phi phi^T; with ``model`` also phi (e_{s'} - 1/S)^T (steps 0 .. H - 2:
V_H = 0) and phi (r - 1/2), from which any later V is planned with, free.

Sensitivities. Each step of a query, or each of its pairs at a step, is a :class:`Unit`: lemma 3 (a pair) or
5 (the model form) of :mod:`discreet.mechanisms.linear.sensitivities` gives its exact mu at given scales,
whatever the arrays are. The units of a user are independent Gaussian releases given earlier ones, so mu^2
adds; where two units share a step (weighted and second pair) the sum is an upper bound. For Laplace noise the
l1 sensitivities of :mod:`discreet.mechanisms.linear.sensitivities` add, with the bound a of ||x||_1 for the x
that is released.

Budget. A unit gets a share of mu^2 (of epsilon), ``over_steps``: "power" b_{h+1}^{4/3} (raw, centred; their
noise is then s_h ~ b_{h+1}^{4/3}), b_h^{2/3} (model form), flat (span); "flat"; "noise": shares such that s_h
is one for all steps; or a tuple of shares.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_query import CENTERED_REWARDS, VISITS
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints, Norm
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory, checked
from discreet.device import linear_sensitivity as lemmas
from discreet.device.linear_device import (
    GRAM,
    GRAMS,
    MODEL_REWARDS,
    RESPONSE,
    REWARD_GRAM,
    REWARD_RESPONSE,
    SECOND_GRAM,
    SECOND_RESPONSE,
    SUCCESSORS,
    GramForm,
    MixtureForm,
    PairForm,
    Prepared,
    projected,
)
from discreet.mechanisms.features import Features, MixtureFeatures, fitting_features
from discreet.mechanisms.linear import sensitivities as gram

Targets = Literal["raw", "centred", "span"]
Noise = Literal["goe", "triangle", "laplace"]
"""GOE(s) of the lemmas; all of the upper triangle N(0, s^2), mirrored (Luyo et al.); Laplace(s) there."""

_WEIGHTS = 1e-30, 1e30  # what the largest weight can be: powers of it are taken, as of features' bounds
OverSteps = str | tuple[float, ...]

__all__ = [
    "GRAM", "MODEL_REWARDS", "RESPONSE", "REWARD_GRAM", "REWARD_RESPONSE", "SECOND_GRAM", "SECOND_RESPONSE",
    "SUCCESSORS", "GramQuery", "LinearQuery", "MixtureQuery", "Noise", "Pair", "Prepared",
    "Targets", "Unit", "projected",
]  # fmt: skip


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

    matrix, vector : names of the families; bounds : of ||x||_2; l1 : of ||x||_1; low, high : of y; target :
    the row of lemma 3; share : of the budget.
    ratio : of the matrix's noise scale to the vector's: the bound of the features themselves, so that their
    unit does not matter (features times c: scales times c^2 and c).
    """

    matrix: str
    vector: str
    bounds: tuple[float, ...]
    l1: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    target: gram.Target
    dimension: int
    share: float
    ratio: float

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
        """One scale for both where features have bound 1."""
        b, c, a = self.bounds[step], self.high[step] - self.low[step], self.l1[step]
        scale = self.loss(step, self.ratio, 1.0, noise)
        if noise == "laplace":
            own = {self.matrix: gram.gram_l1(b, a), self.vector: gram.vector_l1(a, c, self.target)}
        else:
            matrix = b * b * (math.sqrt(2.0) if noise == "triangle" else 1.0)
            own = {self.matrix: matrix, self.vector: gram.vector_sensitivity(b, c, self.target)}
        return Unit(step, share, {self.matrix: self.ratio * scale, self.vector: scale}, own)


class LinearQuery(ABC):
    """What mixture and linear queries share: families, cells, and the price of noise on them.

    A family is a symmetric matrix (its upper triangle: d diagonal cells, then the others, row by row) or an
    array, at each of its steps. Cells of all families and steps form one flat vector.
    """

    layout: Layout
    simulated: ClassVar[tuple[str, ...]] = ("visits", "transition_counts", "reward_sums")
    """Exact tables of a batch, (H, S, A), (H, S, A, S), (H, S, A), that ``session.submit_sum`` takes."""

    @property
    def requeries(self) -> bool:
        """Are stored users asked again (``session.answer``)?"""
        return False

    # -------------------------------------------------------------------- what subclasses say
    @property
    @abstractmethod
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Name to shape, the first axis is the step: gram families (n, d, d), others (n, ...)."""

    @abstractmethod
    def losses(self, noise: Noise, scales: Mapping[str, Floats]) -> tuple[float, ...]:
        """mu (epsilon for Laplace noise) of every unit under noise of these scales, (n,) by family."""

    @abstractmethod
    def units(self, noise: Noise) -> tuple[Unit, ...]:
        """What is priced together, with shares that sum to 1, in the order of :meth:`losses`."""

    @abstractmethod
    def copy(self) -> LinearQuery:
        """The same query from private copies of its arrays, certified again."""

    @property
    @abstractmethod
    def form(self) -> MixtureForm | GramForm:
        """What a device must know to make its contribution; made once."""

    @abstractmethod
    def sum_tables(self, prepared: Prepared, sums: Mapping[str, Floats]) -> dict[str, Floats]:
        """The summands of a batch, all under one context, matrices as their upper triangles.

        prepared : the plan's public arrays. sums : its exact count tables, by the names ``simulated``.
        """

    def unit(self, family: str, step: int, grid: int) -> float:
        """The unit of a cell of ``family`` at ``step``, exact noise, rewards on multiples of 1 / ``grid``."""
        return self.form.unit(family, step, grid)

    # ------------------------------------------------------------------ contributions: the device's
    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        """The plan's public arrays. Raises ``ValueError`` if the context lacks them or a shape is wrong."""
        return self.form.prepared(context)

    def user_tables(
        self, prepared: Prepared, record: Trajectory, grid: int | None = None
    ) -> dict[str, Floats]:
        """One user's summand by family, matrices as their upper triangles (n, d (d + 1) / 2).

        prepared : the plan's public arrays (:meth:`prepared`). record : her trajectory. grid : rewards lie on
        multiples of 1 / grid (exact noise), and cells are integers, in the units of :meth:`unit`.
        """
        return self.form.tables(prepared, record.states, record.actions, record.rewards, grid)

    # --------------------------------------------------------------------------- the flat vector
    @property
    def support(self) -> Mapping[str, NDArray[np.bool_]]:
        """Every cell gets noise."""
        return {name: np.ones(shape, bool) for name, shape in self.families.items()}

    def is_gram(self, family: str) -> bool:
        """Is it a symmetric matrix at each step?"""
        return family in GRAMS

    @property
    def blocks(self) -> tuple[tuple[str, int, bool], ...]:
        """(family, step, diagonal) of each run of cells that share a scale, in the order of the cells."""
        return self.form.blocks

    @property
    def offsets(self) -> Ints:
        """(blocks + 1,) where each block begins in the flat vector."""
        return self.form.offsets

    @property
    def cells(self) -> int:
        """Length of the flat vector."""
        return int(self.offsets[-1])

    def block_scales(self, scales: Mapping[str, Floats], noise: Noise) -> Floats:
        """(blocks,) the scale of one draw in each: on a GOE's diagonal sqrt(2) s.

        scales : by family, (n,) one a step. noise : "goe", "triangle" or "laplace".
        """
        return np.array(
            [
                scales[name][step] * (math.sqrt(2.0) if diagonal and noise == "goe" else 1.0)
                for name, step, diagonal in self.blocks
            ]
        )

    def block_units(self, grid: int) -> Floats:
        """(blocks,) of exact noise, with rewards on multiples of 1 / ``grid``: see :meth:`unit`."""
        return self.form.units(grid)

    def to_cells(self, tables: Mapping[str, Floats]) -> Floats:
        """The flat vector (cells,) of ``tables`` that :meth:`user_tables` or :meth:`sum_tables` made."""
        return self.form.to_cells(tables)

    def from_cells(self, cells: Floats) -> dict[str, Floats]:
        """Arrays of the shapes of ``families``, matrices mirrored."""
        found: dict[str, Floats] = {}
        begin = 0
        for name, shape in self.families.items():
            if not self.is_gram(name):
                size = math.prod(shape)
                found[name] = cells[begin : begin + size].reshape(shape).copy()
            else:
                n, d = shape[:2]
                size = n * d * (d + 1) // 2
                found[name] = _mirrored(cells[begin : begin + size].reshape(n, -1), d)
            begin += size
        return found

    # --------------------------------------------------------------------------------- the door
    def contribution(
        self, trajectory: Trajectory, context: Mapping[str, Any] | None = None
    ) -> Mapping[str, Floats]:
        """What one user's ``trajectory`` adds to every family under a plan's ``context`` (dense; for tests).

        Raises ``ValueError`` if the record is broken, or the context lacks what the query needs.
        """
        record = checked(trajectory, self.layout)
        return self.from_cells(self.to_cells(self.user_tables(self.prepared(context or {}), record)))

    def sensitivity(self, norm: Norm, weight: Mapping[str, float]) -> float:
        """Sup over replaced trajectories of the norm of (weight of family) x (its change), jointly.

        l2 of a matrix: in the metric of GOE noise, Frobenius norm over sqrt(2).
        """
        scales = {name: np.full(shape[0], 1.0 / weight[name]) for name, shape in self.families.items()}
        found = self.losses("laplace" if norm == "l1" else "goe", scales)
        return math.fsum(found) if norm == "l1" else math.hypot(*found)

    def calibrated(self, noise: Noise, loss: float, levels: int) -> dict[str, Floats]:
        """(n,) scales by family at which a user in ``levels`` noisy sums loses mu = loss (epsilon)."""
        scales = {name: np.zeros(shape[0]) for name, shape in self.families.items()}
        for unit in self.units(noise):
            if noise == "laplace":
                factor = levels / (loss * unit.share)
            else:
                factor = math.sqrt(levels / unit.share) / loss
            for name, scale in unit.scales.items():
                scales[name][unit.step] = factor * scale
        return scales


def _mirrored(upper: Floats, d: int) -> Floats:
    """(n, d, d) from (n, d (d + 1) / 2): the diagonal, then what is above it."""
    out = np.empty((len(upper), d, d))
    above = np.triu_indices(d, 1)
    diagonal = np.arange(d)
    out[:, diagonal, diagonal] = upper[:, :d]
    out[:, above[0], above[1]] = upper[:, d:]
    out[:, above[1], above[0]] = upper[:, d:]
    return out


def _upper(matrices: Floats) -> Floats:
    """The other way."""
    d = matrices.shape[-1]
    above = np.triu_indices(d, 1)
    diagonal = np.arange(d)
    return np.concatenate([matrices[..., diagonal, diagonal], matrices[..., above[0], above[1]]], axis=-1)


def _shares(over_steps: OverSteps, single: Sequence[float], power: Sequence[float], noise: Noise) -> Floats:
    """(n,) shares by step that sum to 1: ``single`` the loss of each at scale 1, ``power`` of the default."""
    if isinstance(over_steps, tuple):
        return np.array(over_steps)
    if over_steps == "flat":
        weights = np.ones(len(single))
    elif over_steps == "noise":
        weights = np.array(single) ** (1.0 if noise == "laplace" else 2.0)
    else:
        weights = np.array(power)
    return weights / weights.sum()


def _checked_over(over_steps: Any, steps: int) -> OverSteps:
    if isinstance(over_steps, str):
        return checks.choice("over_steps", over_steps, ("power", "flat", "noise"))
    shares = tuple(checks.positive("over_steps", share) for share in over_steps)
    if len(shares) != steps or abs(math.fsum(shares) - 1.0) > 1e-9:
        raise ValueError(f"over_steps = {over_steps!r}: must be {steps} shares that sum to 1")
    return shares


# ------------------------------------------------------------------------------ mixture models


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureQuery(LinearQuery):
    """Gram matrix and response of value-targeted regression, and what else its learner asks for.

    Parameters
    ----------
    layout : Layout
        H at least 2.
    features : MixtureFeatures
    targets : "span", "centred" or "raw"
    clip : "remaining" or "horizon"
        b_{h+1}: H - 1 - h for the code's h, the values that are left; or H, as printed.
    second : bool
        The pair of second moments (UCRL-VTR+).
    largest_weight : float
        W, the bound of ``context["weights"]``; weights outside [0, W] are projected.
    rewards : None, "tabular" or Features
        Unknown rewards: noisy visits and sums of r - 1/2; or a pair of its own, psi psi^T and psi (r - c),
        c = 1/2 where 1 is in the span of psi (``psi.constant``), else 0 (the estimate would be biased), at
        the price of lemma 3's centred or raw row.
    over_steps : "power", "flat", "noise" or tuple
        How the budget of each pair is split over steps: the module's docstring.
    moment_share : float in (0, 1)
        Of the budget of values, what the first pair gets where there are two.
    reward_share : float in (0, 1)
        Of the budget, what rewards get.

    Raises ``ValueError`` on values that are not allowed, or features of other sizes than the layout's.

    Families: "gram" (H - 1, d, d), "response" (H - 1, d); with ``second`` "second_gram", "second_response" of
    the same shapes; rewards: "visits", "centered_reward_sums" (H, S, A), or "reward_gram" (H, p, p),
    "reward_response" (H, p).
    """

    __repr__ = brief

    layout: Layout
    features: MixtureFeatures
    targets: Targets = "span"
    clip: Literal["remaining", "horizon"] = "remaining"
    second: bool = False
    largest_weight: float = 1.0
    rewards: Literal["tabular"] | Features | None = None
    over_steps: OverSteps = "power"
    moment_share: float = 0.7
    reward_share: float = 1 / 3

    def __post_init__(self) -> None:
        if type(self.features) is not MixtureFeatures:  # a subclass could declare any bound
            raise ValueError(f"features = {checks.said(self.features)}: must be MixtureFeatures(...)")
        layout = self.layout
        fitting_features(self.features, layout)
        if layout.horizon < 2:
            raise ValueError(
                f"layout.horizon = {layout.horizon}: must be at least 2, the last step has no target"
            )
        checks.choice("targets", self.targets, ("span", "centred", "raw"))
        checks.choice("clip", self.clip, ("remaining", "horizon"))
        checks.flag("second", self.second)
        weight = checks.real("largest_weight", self.largest_weight, *_WEIGHTS)
        object.__setattr__(self, "largest_weight", weight)
        if self.rewards is not None and self.rewards != "tabular":
            if type(self.rewards) is not Features:
                raise ValueError(
                    f"rewards = {checks.said(self.rewards)}: must be None, 'tabular' or Features"
                )
            if (self.rewards.states, self.rewards.actions) != (layout.states, layout.actions):
                raise ValueError("rewards: features must be of the layout's states and actions")
        put = object.__setattr__
        put(self, "over_steps", _checked_over(self.over_steps, layout.horizon - 1))
        for name in ("moment_share", "reward_share"):
            share = checks.real(name, getattr(self, name), 0.0, 1.0, open_low=True, open_high=True)
            put(self, name, share)

    def copy(self) -> MixtureQuery:
        """From private copies of its arrays, certified again."""
        own, rewards = self.features, self.rewards
        features = MixtureFeatures(
            own.table, own.weight_bound, bound=own.bound, signed_bound=own.signed_bound, l1=own.l1,
            signed_l1=own.signed_l1,
        )  # fmt: skip
        if isinstance(rewards, Features):
            rewards = rewards.copy()
        layout = Layout(self.layout.states, self.layout.actions, self.layout.horizon, self.layout.mask)
        return replace(self, layout=layout, features=features, rewards=rewards)

    @property
    def bounds(self) -> tuple[float, ...]:
        """(H - 1) b_{h+1}, of the values of the next step."""
        horizon = self.layout.horizon
        return tuple(
            float(horizon if self.clip == "horizon" else horizon - 1 - h) for h in range(horizon - 1)
        )

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs, with their contracts."""
        own, d = self.features, self.features.dimension
        values = 1.0 if self.rewards is None else 1.0 - self.reward_share
        raw: gram.Target = "raw-nonneg" if own.nonneg else "raw"
        root = math.sqrt(self.largest_weight)
        b = self.bounds
        if self.targets == "raw":
            half, size, low, target = own.bound, own.l1, 0.0, raw
            reach = [root * r for r in b]
        else:
            half, size, low, target = own.signed_bound / 2, own.signed_l1 / 2, -0.5, "centred"
            reach = [root * (1.0 if self.targets == "span" else r) for r in b]
        first = Pair(
            GRAM, RESPONSE,
            tuple(half * r for r in reach), tuple(size * r for r in reach),
            tuple(low * r for r in reach), tuple((1.0 + low) * r for r in reach),
            target, d, values * (self.moment_share if self.second else 1.0),
            own.bound if self.targets == "raw" else own.signed_bound,
        )  # fmt: skip
        found = [first]
        if self.second:
            q = tuple(
                0.25 if self.targets == "span" else r * r / (4.0 if self.targets == "centred" else 1.0)
                for r in b
            )
            found.append(
                Pair(
                    SECOND_GRAM,
                    SECOND_RESPONSE,
                    tuple(own.bound * r for r in q),
                    tuple(own.l1 * r for r in q),
                    (0.0,) * len(q),
                    q,
                    raw,
                    d,
                    values * (1.0 - self.moment_share),
                    own.bound,
                )
            )
        if isinstance(self.rewards, Features):
            psi, n = self.rewards, self.layout.horizon
            centre = 0.5 if psi.constant else 0.0
            uncentred: gram.Target = "raw-nonneg" if psi.nonneg else "raw"
            found.append(
                Pair(
                    REWARD_GRAM,
                    REWARD_RESPONSE,
                    (psi.bound,) * n,
                    (psi.l1,) * n,
                    (-centre,) * n,
                    (1.0 - centre,) * n,
                    "centred" if psi.constant else uncentred,
                    psi.dimension,
                    self.reward_share,
                    psi.bound,
                )
            )
        return tuple(found)

    @cached_property
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Name to shape."""
        found: dict[str, tuple[int, ...]] = {}
        for pair in self.pairs:
            found[pair.matrix] = (pair.steps, pair.dimension, pair.dimension)
            found[pair.vector] = (pair.steps, pair.dimension)
        if self.rewards == "tabular":
            shape = (self.layout.horizon, self.layout.states, self.layout.actions)
            found |= {VISITS: shape, CENTERED_REWARDS: shape}
        return found

    def losses(self, noise: Noise, scales: Mapping[str, Floats]) -> tuple[float, ...]:
        """Lemma 3 of every pair at every step, then of tabular rewards."""
        found = [
            pair.loss(h, float(scales[pair.matrix][h]), float(scales[pair.vector][h]), noise)
            for pair in self.pairs
            for h in range(pair.steps)
        ]
        if self.rewards == "tabular":
            found += [
                lemmas.tabular_loss(float(n), float(r), noise == "laplace")
                for n, r in zip(scales[VISITS], scales[CENTERED_REWARDS], strict=True)
            ]
        return tuple(found)

    def units(self, noise: Noise) -> tuple[Unit, ...]:
        """A unit for each pair and step."""
        found: list[Unit] = []
        for pair in self.pairs:
            single = [pair.loss(h, pair.ratio, 1.0, noise) for h in range(pair.steps)]
            over: OverSteps = "flat" if pair.matrix == REWARD_GRAM else self.over_steps
            power = [x ** (0.5 if noise == "laplace" else 2 / 3) for x in single]
            for h, share in enumerate(_shares(over, single, power, noise).tolist()):
                found.append(pair.unit(h, noise, pair.share * share))
        if self.rewards == "tabular":
            n, scale = self.layout.horizon, lemmas.tabular_loss(1.0, 1.0, noise == "laplace")
            own = {VISITS: 2.0 if noise == "laplace" else math.sqrt(2.0), CENTERED_REWARDS: 1.0}
            at = {VISITS: scale, CENTERED_REWARDS: scale}
            found += [Unit(h, self.reward_share / n, at, own) for h in range(n)]
        return tuple(found)

    @cached_property
    def form(self) -> MixtureForm:
        """What a device must know."""
        return MixtureForm(
            states=self.layout.states,
            actions=self.layout.actions,
            horizon=self.layout.horizon,
            mask=self.layout.mask,
            names=tuple(self.families),
            columns=self.features.columns,
            pairs=tuple(
                PairForm(one.matrix, one.vector, one.bounds, one.l1, one.low, one.high, one.target)
                for one in self.pairs
            ),
            targets=self.targets,
            bounds=self.bounds,
            largest_weight=self.largest_weight,
            psi=self.rewards.rows if isinstance(self.rewards, Features) else None,
            tabular=self.rewards == "tabular",
        )

    def _rows(self, pair: Pair, prepared: Prepared, step: int, at: Ints) -> Floats:
        """x (n, d) of the pairs ``at`` of one step."""
        if pair.matrix == REWARD_GRAM:
            assert isinstance(self.rewards, Features)
            return self.rewards.rows[at]
        x = self.features.values_features(prepared.values[pair.vector][step])
        x = x.reshape(-1, pair.dimension)[at]
        if prepared.roots is not None and pair.matrix == GRAM:
            x = x * prepared.roots[step].ravel()[at][:, None]
        return x

    def sum_tables(self, prepared: Prepared, sums: Mapping[str, Floats]) -> dict[str, Floats]:
        """The summands of a batch by family, matrices as their upper triangles (n, d (d + 1) / 2).

        prepared : the plan's public arrays (:meth:`prepared`). sums : the batch's exact count tables, by the
        names ``simulated``.
        """
        visits, moves, rewards = _count_tables(self.layout, sums)
        found: dict[str, Floats] = {}
        for pair in self.pairs:
            matrices = np.zeros((pair.steps, pair.dimension * (pair.dimension + 1) // 2))
            vectors = np.zeros((pair.steps, pair.dimension))
            for h in range(pair.steps):
                seen = np.flatnonzero(visits[h])
                x = self._rows(pair, prepared, h, seen)
                x, _ = projected(x, np.zeros(1), pair.bounds[h], pair.low[h], pair.high[h])
                if pair.matrix == REWARD_GRAM:
                    y = rewards[h, seen] + pair.low[0] * visits[h, seen]
                else:
                    y = moves[h, seen] @ prepared.values[pair.vector][h]
                    if prepared.roots is not None and pair.matrix == GRAM:
                        y = y * prepared.roots[h].ravel()[seen]
                matrices[h] = _upper((x * visits[h, seen, None]).T @ x)
                vectors[h] = y @ x
            found |= {pair.matrix: matrices, pair.vector: vectors}
        if self.rewards == "tabular":
            found |= {VISITS: visits, CENTERED_REWARDS: rewards - 0.5 * visits}
        return found


def _count_tables(layout: Layout, sums: Mapping[str, Floats]) -> tuple[Floats, Floats, Floats]:
    """(H, P), (H, P, S), (H, P) of the batch's exact tables."""
    horizon, pairs = layout.horizon, layout.states * layout.actions
    shape = (horizon, layout.states, layout.actions)
    found = []
    for name, last in (("visits", ()), ("transition_counts", (layout.states,)), ("reward_sums", ())):
        if name not in sums:
            raise ValueError(f"sums lacks {name!r}: must hold {', '.join(LinearQuery.simulated)}")
        found.append(
            checks.floats(f"sums[{name!r}]", sums[name], (*shape, *last)).reshape(horizon, pairs, *last)
        )
    return found[0], found[1], found[2]


# ------------------------------------------------------------------------------ linear models


@dataclass(frozen=True, kw_only=True, eq=False)
class GramQuery(LinearQuery):
    """phi phi^T of linear MDPs, with next states and rewards (model form), or with responses asked later.

    Parameters
    ----------
    layout : Layout
    features : Features
    model : bool
        True: "gram" (n, d, d), "successors" (H - 1, d, S), and "rewards" (H, d) unless they are known. False:
        "gram" alone; responses of values to come are asked by ``session.answer``.
    rewards : bool
        Rewards are unknown: n = H; else n = H - 1, the last step has nothing to learn.
    over_steps : "power", "flat", "noise" or tuple (n,)
    shares : tuple
        Of a step's budget: Gram, next states, rewards (model). Without rewards the last is dropped.
    answer_share : float in (0, 1)
        Of the budget, what responses get where ``model`` is False; the Gram matrices get the rest.
    centre : bool
        Of responses: subtract the middle of the range (unbiased where ``Features.constant``).
    span : "values" or "declared"
        Of responses: the range is that of the values handed in, or always [0, b_h].

    Raises ``ValueError`` on values that are not allowed, or features of other sizes than the layout's.
    """

    __repr__ = brief

    layout: Layout
    features: Features
    model: bool = True
    rewards: bool = True
    over_steps: OverSteps = "power"
    shares: tuple[float, float, float] = (0.4, 0.3, 0.3)
    answer_share: float = 0.5
    centre: bool = True
    span: Literal["values", "declared"] = "values"

    def __post_init__(self) -> None:
        if type(self.features) is not Features:
            raise ValueError(f"features = {checks.said(self.features)}: must be Features(...)")
        layout = self.layout
        fitting_features(self.features, layout)
        for name in ("model", "rewards", "centre"):
            checks.flag(name, getattr(self, name))
        if self.steps < 1:
            raise ValueError("layout.horizon = 1: must be at least 2 where rewards are known")
        if self.model and layout.states < 2:
            raise ValueError("model = True: must be False, there is one state only")
        object.__setattr__(self, "over_steps", _checked_over(self.over_steps, self.steps))
        parts = tuple(checks.positive("shares", share) for share in self.shares)
        if len(parts) != 3 or abs(math.fsum(parts) - 1.0) > 1e-9:
            raise ValueError(f"shares = {self.shares!r}: must be three numbers that sum to 1")
        object.__setattr__(self, "shares", parts)
        share = checks.real("answer_share", self.answer_share, 0.0, 1.0, open_low=True, open_high=True)
        object.__setattr__(self, "answer_share", share)
        checks.choice("span", self.span, ("values", "declared"))

    def copy(self) -> GramQuery:
        """From private copies of its arrays, certified again."""
        layout = Layout(self.layout.states, self.layout.actions, self.layout.horizon, self.layout.mask)
        return replace(self, layout=layout, features=self.features.copy())

    @property
    def steps(self) -> int:
        """n, how many steps have a Gram matrix."""
        return self.layout.horizon - (0 if self.rewards else 1)

    @property
    def requeries(self) -> bool:
        """Are stored users asked again (``session.answer``)?"""
        return not self.model

    @cached_property
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Name to shape."""
        d = self.features.dimension
        found: dict[str, tuple[int, ...]] = {GRAM: (self.steps, d, d)}
        if self.model and self.layout.horizon > 1:
            found[SUCCESSORS] = (self.layout.horizon - 1, d, self.layout.states)
        if self.model and self.rewards:
            found[MODEL_REWARDS] = (self.layout.horizon, d)
        return found

    def _parts(self, step: int) -> dict[str, float]:
        """The families of a step and their shares of its budget."""
        named = dict(zip((GRAM, SUCCESSORS, MODEL_REWARDS), self.shares, strict=True))
        found = {name: named[name] for name, shape in self.families.items() if step < shape[0]}
        total = math.fsum(found.values())
        return {name: share / total for name, share in found.items()}

    def losses(self, noise: Noise, scales: Mapping[str, Floats]) -> tuple[float, ...]:
        """Lemma 5 of every step (lemma 3 where nothing follows, lemma 1 of a Gram matrix alone)."""
        return tuple(
            self._loss(noise, h, {n: float(scales[n][h]) for n in self._parts(h)}) for h in range(self.steps)
        )

    def _loss(self, noise: Noise, step: int, at: Mapping[str, float]) -> float:
        if noise == "laplace":
            return math.fsum(self._own(noise)[name] / scale for name, scale in at.items())
        b, states = self.features.bound, max(2, self.layout.states)
        alpha = b**4 / at[GRAM] ** 2 * (2.0 if noise == "triangle" else 1.0)
        beta = b * b / at[SUCCESSORS] ** 2 if SUCCESSORS in at else 0.0
        gamma = b * b / at[MODEL_REWARDS] ** 2 if MODEL_REWARDS in at else 0.0
        return gram.model_mu(alpha, beta, gamma, states, self.features.nonneg)

    def _own(self, noise: Noise) -> dict[str, float]:
        b, a, states = self.features.bound, self.features.l1, max(2, self.layout.states)
        if noise == "laplace":
            return {
                GRAM: gram.gram_l1(b, a),
                SUCCESSORS: gram.successor_l1(a, states),
                MODEL_REWARDS: gram.vector_l1(a, 1.0, "centred"),
            }
        return {
            GRAM: b * b * (math.sqrt(2.0) if noise == "triangle" else 1.0),
            SUCCESSORS: gram.successor_sensitivity(b, states, self.features.nonneg),
            MODEL_REWARDS: gram.vector_sensitivity(b, 1.0, "centred"),
        }

    def _unit_scales(self, noise: Noise, step: int) -> dict[str, float]:
        """Parts spend their shares if each were alone; then all shrink to what they cost together."""
        own, root = self._own(noise), 1.0 if noise == "laplace" else 0.5
        at = {name: own[name] / share**root for name, share in self._parts(step).items()}
        joint = self._loss(noise, step, at)
        return {name: scale * joint for name, scale in at.items()}

    def units(self, noise: Noise) -> tuple[Unit, ...]:
        """A unit for each step."""
        b = [float(self.layout.horizon - h) for h in range(self.steps)]
        power = [x ** (0.5 if noise == "laplace" else 2 / 3) for x in b]
        shares = _shares(self.over_steps, [1.0] * self.steps, power, noise).tolist()
        own = self._own(noise)
        return tuple(
            Unit(h, shares[h], self._unit_scales(noise, h), {name: own[name] for name in self._parts(h)})
            for h in range(self.steps)
        )

    @cached_property
    def form(self) -> GramForm:
        """What a device must know."""
        return GramForm(
            states=self.layout.states,
            actions=self.layout.actions,
            horizon=self.layout.horizon,
            mask=self.layout.mask,
            names=tuple(self.families),
            rows=self.features.rows,
            bound=self.features.bound,
            l1=self.features.l1,
            nonneg=self.features.nonneg,
            steps=self.steps,
        )

    def sum_tables(self, prepared: Prepared, sums: Mapping[str, Floats]) -> dict[str, Floats]:
        """The summands of a batch by family, matrices as their upper triangles (n, d (d + 1) / 2).

        prepared : the plan's public arrays (:meth:`prepared`). sums : the batch's exact count tables, by the
        names ``simulated``.
        """
        visits, moves, rewards = _count_tables(self.layout, sums)
        d, states = self.features.dimension, self.layout.states
        found = {name: np.zeros(shape) for name, shape in self.families.items()}
        found[GRAM] = np.zeros((self.steps, d * (d + 1) // 2))
        for h in range(self.layout.horizon):
            seen = np.flatnonzero(visits[h])
            x, n = self.features.rows[seen], visits[h, seen]
            if h < self.steps:
                found[GRAM][h] = _upper((x * n[:, None]).T @ x)
            if SUCCESSORS in found and h < len(found[SUCCESSORS]):
                found[SUCCESSORS][h] = x.T @ (moves[h, seen] - n[:, None] / states)
            if MODEL_REWARDS in found:
                found[MODEL_REWARDS][h] = (rewards[h, seen] - 0.5 * n) @ x
        return found
