"""Queries of linear statistics summed over arriving users, for UCRL-VTR and LSVI, with their sensitivities.

A user's contribution depends only on the user's trajectory and on public arrays of the user's plan
(``Plan.context``). The contribution does not change after the user's episode. The contributions can therefore
be summed with local noise, batches or trees.

:class:`MixtureQuery` is for value-targeted regression (Luyo et al. 2021). Let V = ``context["values"]`` (H +
1, S), let b = b_{h+1} be the bound of V_{h+1}, and let c and m be a public centre and a public scale. At
steps h = 0 .. H - 2,

    x = phi_{(V_{h+1} - c) / m}(s_h, a_h),   y = (V_{h+1}(s_{h+1}) - c) / m.

The sums of x x^T and of x y over users are released. The argument ``targets`` determines c and m, and
therefore the bounds of x and y (their *contract*):

- "raw": c = 0, m = 1; ||x|| <= b F01, y in [0, b].
- "centred": c = b / 2, m = 1; ||x|| <= b F+- / 2, y in [-b/2, b/2].
- "span": c = mid-range of V_{h+1}, m = its range; ||x|| <= F+- / 2, y in [-1/2, 1/2].

:class:`~discreet.mechanisms.features.MixtureFeatures` certifies F01 and F+-. The trusted core computes range
and mid-range from V_{h+1} over *all* states. If the range is at most 1e-9 b, users contribute zeros, because
rounding errors would dominate. Values are projected to [0, b]. After that, x and y are projected to the sets
of their contracts. Values that are not finite become 0. The map is fixed in advance and never raises an
exception, so each sensitivity holds for any context and any device.

Weights w(s, a) in [0, W] are given as ``context["weights"]`` (H - 1, S, A), with W = ``largest_weight``. The
pair is then (sqrt(w) x, sqrt(w) y), and its bounds are multiplied by sqrt(W).

``second`` adds a pair for second moments, without weights. With V-bar = (V - c) / m, this pair is

    x2 = phi_{V-bar^2},   y2 = V-bar(s')^2 in [0, q],   ||x2|| <= q F01.

Here q = b^2 (raw), b^2/4 (centred) or 1/4 (span).

:class:`GramQuery` (linear MDPs, LSVI) releases phi phi^T. With ``model`` it also releases phi (e_{s'} -
1/S)^T (steps 0 .. H - 2, since V_H = 0) and phi (r - 1/2). Planning with any later V then has no further
privacy cost.

Sensitivities. A :class:`Unit` is one step of a query, or one pair of a query at one step. For any arrays,
lemma 3 (a pair) or lemma 5 (the model form) of :mod:`discreet.mechanisms.linear.sensitivities` gives its
exact mu at given scales. The units of a user are independent Gaussian releases given earlier ones, so their
values of mu^2 are summed. If two units share a step (weighted and second pair), the sum is an upper bound.
For Laplace noise, the l1 sensitivities of :mod:`discreet.mechanisms.linear.sensitivities` are summed. These
sensitivities use the bound a on ||x||_1 for the released x.

Budget. ``over_steps`` gives each unit a share of mu^2 (for Laplace noise: of epsilon):

- "power": for Gaussian noise and the targets "raw" and "centred", the shares are proportional to
  b_{h+1}^{4/3} (the noise scale s_h is then also proportional to b_{h+1}^{4/3}). In the model form, the
  shares are proportional to b_h^{2/3}. For the targets "span", all shares are equal.
- "flat": equal shares.
- "noise": shares such that s_h is the same for all steps.
- A tuple: the shares themselves.
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
from discreet.core.families import CENTERED_REWARDS, VISITS
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints, Norm
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory, checked
from discreet.device import linear_sensitivity as lemmas
from discreet.device.linear_forms import (
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
    LinearForm,
    MixtureForm,
    PairForm,
    Prepared,
    projected,
)
from discreet.mechanisms.features import Features, MixtureFeatures, fitting_features
from discreet.mechanisms.linear import sensitivities as gram

Targets = Literal["raw", "centred", "span"]
Noise = Literal["goe", "triangle", "laplace"]
"""Noise on symmetric matrices.

- "goe": GOE(s), as in the lemmas.
- "triangle": N(0, s^2) in the upper triangle, mirrored (Luyo et al.).
- "laplace": Laplace(s) in the upper triangle, mirrored.
"""

_WEIGHTS = 1e-30, 1e30  # range of largest_weight; its powers are finite in this range
OverSteps = str | tuple[float, ...]

__all__ = [
    "GRAM", "MODEL_REWARDS", "RESPONSE", "REWARD_GRAM", "REWARD_RESPONSE", "SECOND_GRAM", "SECOND_RESPONSE",
    "SUCCESSORS", "GramQuery", "LinearQuery", "MixtureQuery", "Noise", "Pair", "Prepared",
    "Targets", "Unit", "projected",
]  # fmt: skip


# ---------------------------------------------------------------------------------- privacy loss


@dataclass(frozen=True)
class Unit:
    """Statistics of one step with a jointly computed privacy loss.

    Parameters
    ----------
    step
        Step h, or the indices of several blocks with common scales.
    share
        Share of the unit in mu^2 of the whole query (Laplace noise: in its epsilon).
    scales
        Noise scales by family at which the unit is exactly 1-GDP (Laplace noise: 1-DP).
    own
        Sensitivity of each family alone. With noise of scale s, the privacy loss of the family alone is own /
        s.
    """

    step: int | tuple[int, ...]
    share: float
    scales: Mapping[str, float]
    own: Mapping[str, float]

    @property
    def steps(self) -> list[int]:
        """Indices at which the unit has statistics."""
        return list(self.step) if isinstance(self.step, tuple) else [self.step]


@dataclass(frozen=True)
class Pair:
    """Statistics x x^T and x y of one kind at steps 0 .. ``steps`` - 1, with their bounds at each step.

    Parameters
    ----------
    matrix, vector
        Names of the families.
    bounds, l1
        Bounds on ||x||_2 and ||x||_1.
    low, high
        Bounds of y.
    target
        Case of lemma 3 that applies.
    dimension
        Length d of x.
    share
        Share of the pair in the budget of the query.
    ratio
        Ratio of the noise scale of the matrix to that of the vector, equal to the bound of the features. With
        this ratio, the result does not depend on the unit of the features (if features are multiplied by c,
        the scales are multiplied by c^2 and c).
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
        """Number of steps at which the pair is released."""
        return len(self.bounds)

    def loss(self, step: int, gram_scale: float, response_scale: float, noise: Noise) -> float:
        """Return the mu of the pair at one step under noise of these scales (Laplace noise: its epsilon)."""
        b, c = self.bounds[step], self.high[step] - self.low[step]
        if noise == "laplace":
            a = self.l1[step]
            return gram.gram_l1(b, a) / gram_scale + gram.vector_l1(a, c, self.target) / response_scale
        alpha, beta = b**4 / gram_scale**2, (b * c / response_scale) ** 2
        return gram.pair_mu(2 * alpha if noise == "triangle" else alpha, beta, self.target)

    def unit(self, step: int, noise: Noise, share: float) -> Unit:
        """Return the unit of the pair at one step. If features have bound 1, its two scales are equal."""
        b, c, a = self.bounds[step], self.high[step] - self.low[step], self.l1[step]
        scale = self.loss(step, self.ratio, 1.0, noise)
        if noise == "laplace":
            own = {self.matrix: gram.gram_l1(b, a), self.vector: gram.vector_l1(a, c, self.target)}
        else:
            matrix = b * b * (math.sqrt(2.0) if noise == "triangle" else 1.0)
            own = {self.matrix: matrix, self.vector: gram.vector_sensitivity(b, c, self.target)}
        return Unit(step, share, {self.matrix: self.ratio * scale, self.vector: scale}, own)


class LinearQuery(ABC):
    """Base class of mixture and linear queries: families, cells, and the privacy loss of noise.

    At each step, a family is a symmetric matrix or an array. A matrix is stored as its upper triangle: d
    diagonal cells, then the cells above the diagonal, row by row. Cells of all families and steps form one
    flat vector.
    """

    layout: Layout
    simulated: ClassVar[tuple[str, ...]] = ("visits", "transition_counts", "reward_sums")
    """Names of the exact tables of a batch that ``session.submit_sum`` needs.

    Their shapes are (H, S, A), (H, S, A, S) and (H, S, A).
    """

    @property
    def requeries(self) -> bool:
        """True if stored trajectories are queried again (``session.answer``)."""
        return False

    # -------------------------------------------------------------------- defined by subclasses
    @property
    @abstractmethod
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each family, by name.

        The first axis is the step. Matrices have the shape (n, d, d), and other families have the shape (n,
        ...).
        """

    @abstractmethod
    def losses(self, noise: Noise, scales: Mapping[str, Floats]) -> tuple[float, ...]:
        """Return mu of every unit (epsilon for Laplace noise) under ``noise`` of these ``scales``.

        scales : (n,) noise scales of each family, one for each step.
        """

    @abstractmethod
    def units(self, noise: Noise) -> tuple[Unit, ...]:
        """Return the units for this kind of ``noise``, in the order of :meth:`losses`.

        The shares sum to 1.
        """

    @abstractmethod
    def copy(self) -> LinearQuery:
        """Return an equal query with copies of all arrays. The bounds of the copies are certified again."""

    @property
    @abstractmethod
    def form(self) -> LinearForm:
        """Public configuration that a device needs to compute its contribution. The configuration is computed
        once.
        """

    @abstractmethod
    def sum_tables(self, prepared: Prepared, sums: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return the sum of contributions by family, for a batch of users with the same context.

        Matrices are returned as upper triangles.

        prepared : the plan's public arrays. sums : the batch's exact count tables, named as in ``simulated``.
        """

    # ---------------------------------------------------------------------------- users' records
    def checked(self, given: Any, users: int | None = None) -> Any:
        """Check one trajectory, or the trajectories of ``users`` users, and return copies.

        ``given`` : Trajectory or Trajectories. Raises ``ValueError`` if a record is invalid.
        """
        return checked(given, self.layout) if users is None else checked(given, self.layout, users)

    def parts(self, record: Any) -> tuple[Any, Ints, Floats]:
        """Return states, actions and rewards of a checked record."""
        return record.states, record.actions, record.rewards

    def unit(self, family: str, step: int, grid: int) -> float:
        """Return the size of one grid step in the cells of ``family`` at ``step``, for exact noise.

        grid : rewards are multiples of 1 / grid.
        """
        return self.form.unit(family, step, grid)

    # ------------------------------------------------------------------ contributions of devices
    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        """Return the plan's public arrays from its ``context``.

        Raises ``ValueError`` if the context lacks them or a shape is wrong.
        """
        return self.form.prepared(context)

    def user_tables(
        self, prepared: Prepared, record: Trajectory, grid: int | None = None
    ) -> dict[str, Floats]:
        """Return one user's contribution by family. Matrices are returned as upper triangles (n, d (d + 1) /
        2).

        prepared : the plan's public arrays (:meth:`prepared`).

        record : the user's trajectory.

        grid : None for real numbers. Otherwise the contribution is for exact noise: rewards are multiples of
            1 / grid, and cells are integers in units of the grid step (:meth:`unit`).
        """
        return self.form.tables(prepared, *self.parts(record), grid)

    # --------------------------------------------------------------------------- the flat vector
    @property
    def support(self) -> Mapping[str, NDArray[np.bool_]]:
        """Boolean array for each family, True for the cells with noise. All cells have noise."""
        return {name: np.ones(shape, bool) for name, shape in self.families.items()}

    def is_gram(self, family: str) -> bool:
        """Return True if the ``family`` is a symmetric matrix at each step."""
        return family in GRAMS

    @property
    def blocks(self) -> tuple[tuple[str, int, bool], ...]:
        """(family, step, diagonal) of each block, in order.

        A block is consecutive cells with the same scale.
        """
        return self.form.blocks

    @property
    def offsets(self) -> Ints:
        """First cell of each block in the flat vector, and the length of the vector, shape (blocks + 1,)."""
        return self.form.offsets

    @property
    def cells(self) -> int:
        """Length of the flat vector."""
        return int(self.offsets[-1])

    def block_scales(self, scales: Mapping[str, Floats], noise: Noise) -> Floats:
        """Return the (blocks,) scale of one noise draw in each block.

        On the diagonal of a GOE matrix, this scale is sqrt(2) s.

        scales : (n,) noise scales of each family, one for each step.

        noise : "goe", "triangle" or "laplace".
        """
        return np.array(
            [
                scales[name][step] * (math.sqrt(2.0) if diagonal and noise == "goe" else 1.0)
                for name, step, diagonal in self.blocks
            ]
        )

    def block_units(self, grid: int) -> Floats:
        """Return the (blocks,) grid step of the cells in each block, for exact noise (:meth:`unit`)."""
        return self.form.units(grid)

    def to_cells(self, tables: Mapping[str, Floats]) -> Floats:
        """Return the flat vector (cells,) of ``tables`` from :meth:`user_tables` or :meth:`sum_tables`."""
        return self.form.to_cells(tables)

    def from_cells(self, cells: Floats) -> dict[str, Floats]:
        """Return arrays with the shapes of ``families`` from flat ``cells``.

        Matrices are complete (mirrored).
        """
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

    # --------------------------------------------------------------------------------- sensitivity
    def contribution(
        self, trajectory: Trajectory, context: Mapping[str, Any] | None = None
    ) -> Mapping[str, Floats]:
        """Return the contribution of one ``trajectory`` to every family as complete arrays, for tests.

        context : public arrays of the plan.

        Raises ``ValueError`` if the record is invalid or the context lacks an array that the query needs.
        """
        record = self.checked(trajectory)
        return self.from_cells(self.to_cells(self.user_tables(self.prepared(context or {}), record)))

    def sensitivity(self, norm: Norm, weight: Mapping[str, float]) -> float:
        """Return the joint sensitivity of all families to one replaced trajectory.

        The result is the supremum of the norm of all changes, each multiplied by the weight of its family.

        norm : "l1" or "l2". The l2 norm of a matrix is its Frobenius norm divided by sqrt(2), which is the
            metric of GOE noise.

        weight : weight of each family.
        """
        scales = {name: np.full(shape[0], 1.0 / weight[name]) for name, shape in self.families.items()}
        found = self.losses("laplace" if norm == "l1" else "goe", scales)
        return math.fsum(found) if norm == "l1" else math.hypot(*found)

    def calibrated(self, noise: Noise, loss: float, levels: int) -> dict[str, Floats]:
        """Return the noise scales for which a user in ``levels`` noisy sums has the loss ``loss``.

        ``loss`` is the total privacy loss of the user in these sums.

        Each family has (n,) scales, one for each step.

        noise : "goe", "triangle" or "laplace". For "laplace" the loss is epsilon, otherwise mu.
        """
        scales = {name: np.zeros(shape[0]) for name, shape in self.families.items()}
        for unit in self.units(noise):
            if noise == "laplace":
                factor = levels / (loss * unit.share)
            else:
                factor = math.sqrt(levels / unit.share) / loss
            for name, scale in unit.scales.items():
                scales[name][unit.steps] = factor * scale
        return scales


def _mirrored(upper: Floats, d: int) -> Floats:
    """Return symmetric matrices (n, d, d) from their upper triangles (n, d (d + 1) / 2).

    An upper triangle is stored as the diagonal, followed by the cells above it.
    """
    out = np.empty((len(upper), d, d))
    above = np.triu_indices(d, 1)
    diagonal = np.arange(d)
    out[:, diagonal, diagonal] = upper[:, :d]
    out[:, above[0], above[1]] = upper[:, d:]
    out[:, above[1], above[0]] = upper[:, d:]
    return out


def _upper(matrices: Floats) -> Floats:
    """Return the upper triangles of matrices: the inverse of :func:`_mirrored`."""
    d = matrices.shape[-1]
    above = np.triu_indices(d, 1)
    diagonal = np.arange(d)
    return np.concatenate([matrices[..., diagonal, diagonal], matrices[..., above[0], above[1]]], axis=-1)


def _shares(over_steps: OverSteps, single: Sequence[float], power: Sequence[float], noise: Noise) -> Floats:
    """Return (n,) shares of the steps, which sum to 1.

    single : privacy loss of each step alone, at noise scale 1.

    power : weights of the steps for over_steps = "power".
    """
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
    """Gram matrix and response of value-targeted regression, with optional second moments and rewards.

    Parameters
    ----------
    layout : Layout
        Layout with H of at least 2.
    features : MixtureFeatures
        Features with certified bounds.
    targets : "span", "centred" or "raw"
        Centre and scale of the targets; see the module docstring.
    clip : "remaining" or "horizon"
        Bound b_{h+1} of the values. "remaining": the number of remaining steps, H - 1 - h, where h starts at
        0. "horizon": H, as in the paper.
    second : bool
        Add the pair of second moments (UCRL-VTR+).
    largest_weight : float
        W, the bound of ``context["weights"]``. Weights outside [0, W] are projected onto this interval.
    rewards : None, "tabular" or Features
        None: rewards are known. "tabular": noisy visits and noisy sums of r - 1/2 are released. Features psi:
        a separate pair is released, the sums of psi psi^T and psi (r - c). If 1 is in the span of psi
        (``psi.constant``), c = 1/2, and the sensitivity is that of the centred case of lemma 3. Otherwise
        centring would bias the estimate. Then c = 0, and the sensitivity is that of the raw case.
    over_steps : "power", "flat", "noise" or tuple
        Rule or shares that split each pair's budget over steps; see the module docstring.
    moment_share : float in (0, 1)
        Used with ``second``. The two pairs of values have a common budget, and this is the share of the first
        pair.
    reward_share : float in (0, 1)
        Share of the rewards in the budget. Used only if rewards are unknown.

    Raises ``ValueError`` for values that are not allowed, or if the sizes of the features differ from those
    of the layout.

    The families are "gram" (H - 1, d, d) and "response" (H - 1, d). With ``second`` there are also
    "second_gram" and "second_response" of the same shapes. Tabular rewards add "visits" and
    "centered_reward_sums" (H, S, A). Features of rewards add "reward_gram" (H, p, p) and "reward_response"
    (H, p).
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
        """Return an equal query with copies of all arrays. The bounds of the copies are certified again."""
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
        """Bounds b_{h+1} of the values of the next step, as a tuple of H - 1 numbers."""
        horizon = self.layout.horizon
        return tuple(
            float(horizon if self.clip == "horizon" else horizon - 1 - h) for h in range(horizon - 1)
        )

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs (matrix and vector) of statistics that are released, with their bounds."""
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
        """Shape of each family, by name."""
        found: dict[str, tuple[int, ...]] = {}
        for pair in self.pairs:
            found[pair.matrix] = (pair.steps, pair.dimension, pair.dimension)
            found[pair.vector] = (pair.steps, pair.dimension)
        if self.rewards == "tabular":
            shape = (self.layout.horizon, self.layout.states, self.layout.actions)
            found |= {VISITS: shape, CENTERED_REWARDS: shape}
        return found

    def losses(self, noise: Noise, scales: Mapping[str, Floats]) -> tuple[float, ...]:
        """Return the loss of every pair at every step (lemma 3), and then the losses of tabular rewards."""
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
        """Return one unit for each pair and step, and then the units of tabular rewards."""
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
        """Public configuration that a device needs to compute its contribution."""
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
        """Return x (n, d) at one step for n state-action pairs. ``at`` has the indices of these pairs."""
        if pair.matrix == REWARD_GRAM:
            assert isinstance(self.rewards, Features)
            return self.rewards.rows[at]
        x = self.features.values_features(prepared.values[pair.vector][step])
        x = x.reshape(-1, pair.dimension)[at]
        if prepared.roots is not None and pair.matrix == GRAM:
            x = x * prepared.roots[step].ravel()[at][:, None]
        return x

    def sum_tables(self, prepared: Prepared, sums: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return the sums of a batch by family. Matrices are returned as upper triangles (n, d (d + 1) / 2).

        prepared : the plan's public arrays (:meth:`prepared`).

        sums : the batch's exact count tables, named as in ``simulated``. Raises ``ValueError`` if a table is
            missing.
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
    """Return the batch's exact tables: visits (H, P), transitions ``(H, P, S)`` and rewards (H, P)."""
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
    """Gram matrices of linear MDPs, with statistics of next states and rewards, or with later responses.

    Parameters
    ----------
    layout : Layout
        S, A, H and the mask of admissible actions.
    features : Features
        Features phi (S, A, d) with certified bounds.
    model : bool
        True: the families are "gram" (n, d, d), "successors" (H - 1, d, S) and, unless rewards are known,
        "rewards" (H, d). False: the only family is "gram", and ``session.answer`` answers response queries.
    rewards : bool
        True if rewards are unknown. The number n of steps with a Gram matrix is H if ``rewards`` is True.
        Otherwise n = H - 1, since nothing is learned from the last step.
    over_steps : "power", "flat", "noise" or tuple (n,)
        Rule or shares that split the budget over steps; see the module docstring.
    shares : tuple
        Shares of Gram matrix, next states and rewards in the budget of a step (with ``model``). If rewards
        are known, the last share is not used.
    answer_share : float in (0, 1)
        Share of responses in the budget if ``model`` is False. The Gram matrices have the remaining share.
    centre : bool
        For responses only. True: the middle of the range is subtracted from targets. This is unbiased if
        ``Features.constant`` is True.
    span : "values" or "declared"
        For responses only. "values": the range is that of the values in the query. "declared": the range is
        always [0, b_h].

    Raises ``ValueError`` for values that are not allowed, or if the sizes of the features differ from those
    of the layout.
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
        """Return an equal query with copies of all arrays. The bounds of the copies are certified again."""
        layout = Layout(self.layout.states, self.layout.actions, self.layout.horizon, self.layout.mask)
        return replace(self, layout=layout, features=self.features.copy())

    @property
    def steps(self) -> int:
        """Number n of steps with a Gram matrix."""
        return self.layout.horizon - (0 if self.rewards else 1)

    @property
    def requeries(self) -> bool:
        """True if stored trajectories are queried again (``session.answer``)."""
        return not self.model

    @cached_property
    def families(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each family, by name."""
        d = self.features.dimension
        found: dict[str, tuple[int, ...]] = {GRAM: (self.steps, d, d)}
        if self.model and self.layout.horizon > 1:
            found[SUCCESSORS] = (self.layout.horizon - 1, d, self.layout.states)
        if self.model and self.rewards:
            found[MODEL_REWARDS] = (self.layout.horizon, d)
        return found

    def _parts(self, step: int) -> dict[str, float]:
        """Return the share of each family of a step in the step's budget."""
        named = dict(zip((GRAM, SUCCESSORS, MODEL_REWARDS), self.shares, strict=True))
        found = {name: named[name] for name, shape in self.families.items() if step < shape[0]}
        total = math.fsum(found.values())
        return {name: share / total for name, share in found.items()}

    def losses(self, noise: Noise, scales: Mapping[str, Floats]) -> tuple[float, ...]:
        """Return the loss of every step by lemma 5.

        Lemma 3 is used for a step without next state, and lemma 1 for a Gram matrix alone.
        """
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
        """Return the noise scales of a step's families at which their joint privacy loss is 1.

        Each scale is first set from the family's share alone. A common factor then makes the joint loss 1.
        """
        own, root = self._own(noise), 1.0 if noise == "laplace" else 0.5
        at = {name: own[name] / share**root for name, share in self._parts(step).items()}
        joint = self._loss(noise, step, at)
        return {name: scale * joint for name, scale in at.items()}

    def units(self, noise: Noise) -> tuple[Unit, ...]:
        """Return one unit for each step."""
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
        """Public configuration that a device needs to compute its contribution."""
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
        """Return the sums of a batch by family. Matrices are returned as upper triangles (n, d (d + 1) / 2).

        prepared : the plan's public arrays (:meth:`prepared`).

        sums : the batch's exact count tables, named as in ``simulated``. Raises ``ValueError`` if a table is
            missing.
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
