"""Contributions of one user to linear sums. Devices and servers compute them with the same code.

A *form* contains the public parameters of a query: shapes of its families, bounds of x and y, and grids. See
:mod:`discreet.device.linear_device` for the contract that contributions satisfy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.device import linear_sensitivity as lemmas
from discreet.device.shuffle_encoder import checked_life

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Target = Literal["centred", "raw", "raw-nonneg"]

GRAM, RESPONSE = "gram", "response"
SECOND_GRAM, SECOND_RESPONSE = "second_gram", "second_response"
REWARD_GRAM, REWARD_RESPONSE = "reward_gram", "reward_response"
SUCCESSORS, MODEL_REWARDS = "successors", "rewards"
VISITS, CENTERED_REWARDS = "visits", "centered_reward_sums"

GRAMS = frozenset({GRAM, SECOND_GRAM, REWARD_GRAM})  # families that are symmetric matrices

FLAT_SPAN = 1e-9  # the target is 0 if the range of a value function is at most this share of its bound

_SLACK = 1e-12  # relative tolerance for rounding errors of a norm
GRID = 2.0**-12
"""Factor of the grid under exact noise: x is a multiple of ``GRID`` times the smallest power of two that is
not below its bound.
"""

__all__ = [
    "CENTERED_REWARDS", "FLAT_SPAN", "GRAM", "GRAMS", "GRID", "MODEL_REWARDS", "RESPONSE", "REWARD_GRAM",
    "REWARD_RESPONSE", "SECOND_GRAM", "SECOND_RESPONSE", "SUCCESSORS", "VISITS", "GramForm", "LinearForm",
    "MixtureForm", "PairForm", "Prepared", "Scales", "outer", "power_of_two", "projected",
]  # fmt: skip


# ------------------------------------------------------------------------------ contributions


def projected(
    x: NDArray[Any], y: NDArray[Any], bound: ArrayLike, low: ArrayLike, high: ArrayLike
) -> tuple[Floats, Floats]:
    """Scale each x (..., d) down to ||x|| <= bound if it is longer, and clip y (...) to [low, high].

    A vector with a non-finite entry becomes 0, and a non-finite y becomes the number in [low, high] that is
    nearest to 0. This function never raises, so every contribution satisfies its bounds.
    """
    x = np.array(x, np.float64)
    x[~np.isfinite(x).all(axis=-1)] = 0.0
    top = np.maximum(np.abs(x).max(axis=-1, initial=0.0, keepdims=True), np.finfo(np.float64).tiny)
    unit = x / top  # this scaling prevents overflow and underflow of the norm
    length = np.linalg.norm(unit, axis=-1, keepdims=True)
    far = length > np.asarray(bound) / np.maximum(top, 1e-200)  # entries below 1e-200 satisfy every bound
    shrunk = unit * (np.asarray(bound) * (1 - 1e-15) / np.where(far, length, 1.0))
    x = np.where(far, shrunk, x)
    y = np.array(y, np.float64)
    return x, np.clip(np.where(np.isfinite(y), y, np.clip(0.0, low, high)), low, high)


def within_l1(x: Floats, most: Floats) -> Floats:
    """Scale each x (..., d) down to ||x||_1 <= most if its norm exceeds this bound by more than rounding
    errors.

    Features that satisfy the bound are never changed. With this projection, noise that is calibrated to l1
    sensitivities also protects features that violate the bound.
    """
    size = np.abs(x).sum(axis=-1, keepdims=True)
    far = size > most * (1 + _SLACK)
    return np.where(far, x * (most / np.where(far, size, 1.0)), x) if far.any() else x


def power_of_two(bound: float) -> float:
    """Return the least power of two that is not below the bound."""
    return 2.0 ** math.ceil(math.log2(bound))


def outer(x: Floats) -> Floats:
    """Return the (n, d (d + 1) / 2) upper triangles of x x^T for each row of x (n, d).

    The diagonal entries come first, then the entries above the diagonal.
    """
    above = _above(x.shape[1])
    return np.concatenate([x * x, x[:, above[0]] * x[:, above[1]]], axis=1)


@lru_cache(maxsize=8)
def _above(d: int) -> tuple[Ints, Ints]:
    rows, columns = np.triu_indices(d, 1)
    return rows, columns


@dataclass(frozen=True, eq=False)
class Prepared:
    """Public arrays of a plan that all contributions use. They are computed once from the plan's context.

    Parameters
    ----------
    values : mapping of the name of each response vector to the (n, S) targets y, one per next state.
    values : mapping of the name of each response vector to the (n, S) targets y, one per next state.
    """

    values: Mapping[str, Floats]
    roots: Floats | None = None


Scales = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class PairForm:
    """Bounds of a pair of statistics x x^T and x y at steps 0 .. n - 1.

    Parameters
    ----------
    matrix, vector : names of the families x x^T and x y
    bounds, l1 : bounds of ||x||_2 and of ||x||_1, at each step
    low, high : range of y, at each step
    target : property of x and y that selects the formula of lemma 3
    """

    matrix: str
    vector: str
    bounds: tuple[float, ...]
    l1: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    target: Target

    def __post_init__(self) -> None:
        sizes = {len(part) for part in (self.bounds, self.l1, self.low, self.high)}
        positive = all(0.0 < x < math.inf for x in (*self.bounds, *self.l1))
        ordered = all(-math.inf < a <= b < math.inf for a, b in zip(self.low, self.high, strict=False))
        if len(sizes) != 1 or 0 in sizes or not positive or not ordered:
            raise ValueError(
                f"pair {self.matrix!r}: bounds, l1, low, high must be as many numbers, norms above 0, ranges "
                "in order"
            )

    def target_unit(self, step: int, grid: int) -> float:
        """Return the unit of y at this step: under exact noise, y is a multiple of this number."""
        if self.matrix == REWARD_GRAM:
            return 1.0 / grid
        return GRID * power_of_two(self.high[step])


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearForm(ABC):
    """Base class of the public parameters of linear queries (Gram matrices, mixtures, contexts)."""

    KIND: ClassVar[str]

    states: int
    actions: int
    horizon: int
    mask: NDArray[np.bool_] | None
    names: tuple[str, ...]

    @cached_property
    def row_table(self) -> Ints:
        """(S, A) array that is 0 where the action is admissible, and -1 elsewhere."""
        if self.mask is None:
            return np.zeros((self.states, self.actions), np.int64)
        return np.where(self.mask, 0, -1).astype(np.int64)

    # ------------------------------------------------------------------ what subclasses say
    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Mapping of each family to its shape: (n, d, d) for matrices, and (n, ...) for others.

        The first axis is the step.
        """

    @abstractmethod
    def unit(self, family: str, step: int, grid: int) -> float:
        """Return the unit of a family's cells at a step: under exact noise, cells are multiples of this
        number.

        Rewards are multiples of 1 / grid.
        """

    @abstractmethod
    def losses(self, scales: Scales, laplace: bool) -> list[float]:
        """Return the privacy losses of the independent parts of a message, as mu, or as epsilon for Laplace
        noise.

        ``scales`` maps (family, step) to the noise scale. For a matrix with Gaussian noise, ``scales`` has
        the scale of GOE noise that is not larger than the noise in the message. Raises ``ValueError`` if the
        contributions can violate the bounds that the form claims.
        """

    @abstractmethod
    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        """Return the arrays that contributions use, from the context of a plan.

        Raises ``ValueError`` if an array is missing in the context.
        """

    @abstractmethod
    def tables(
        self, prepared: Prepared, states: Any, actions: Ints, rewards: Floats, grid: int | None = None
    ) -> dict[str, Floats]:
        """Return the contribution of one user without noise, as a mapping of family to array.

        Matrices are given by their upper triangles. If ``grid`` is given, the entries are integers that count
        the units of :meth:`unit`.
        """

    def checked_record(self, states: Any, actions: Any, rewards: Any) -> tuple[Any, Ints, Floats]:
        """Check one user's record and return copies of its parts. Raises ``ValueError`` if it is invalid."""
        life = checked_life(self, states, actions, rewards)
        return life[0], np.asarray(actions, np.int64), life[2]

    def to_plain(self) -> dict[str, Any]:
        """Return the fields of the form, to be published."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the form with these published fields."""
        return cls(**plain)

    # ------------------------------------------------------------------ the flat vector
    @cached_property
    def blocks(self) -> tuple[tuple[str, int, bool], ...]:
        """(family, step, diagonal) of each block of cells with the same noise scale, in the order of cells.

        ``diagonal`` is True for the diagonal entries of a matrix.
        """
        found: list[tuple[str, int, bool]] = []
        for name, shape in self.shapes.items():
            for step in range(shape[0]):
                if name in GRAMS:
                    found.append((name, step, True))
                if name not in GRAMS or shape[1] > 1:
                    found.append((name, step, False))
        return tuple(found)

    @cached_property
    def offsets(self) -> Ints:
        """(blocks + 1,) array: first cell of each block in the flat vector, and number of cells."""
        sizes = []
        for name, _, diagonal in self.blocks:
            shape = self.shapes[name][1:]
            d = shape[0]
            sizes.append((d if diagonal else d * (d - 1) // 2) if name in GRAMS else math.prod(shape))
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def units(self, grid: int) -> Floats:
        """Return the (blocks,) units of the cells under exact noise: see :meth:`unit`."""
        return np.array([self.unit(name, step, grid) for name, step, _ in self.blocks])

    def to_cells(self, tables: Mapping[str, Floats]) -> Floats:
        """Join the tables of all families to one flat vector of cells."""
        return np.concatenate([np.asarray(tables[name], np.float64).ravel() for name in self.names])


@dataclass(frozen=True, eq=False, kw_only=True)
class MixtureForm(LinearForm):
    """Form of contributions to value-targeted regression; see ``MixtureQuery``.

    Parameters
    ----------
    columns : (S, A, d, S) table of the features.
    pairs : bounds of each pair of statistics.
    targets : "raw", "centred" or "span": centre and scale of the regression targets.
    bounds : the H - 1 upper bounds b_{h+1} of the values of the next step.
    largest_weight : largest weight W of a record in the first pair of statistics.
    psi : (S A, p) features of rewards, or None.
    tabular : True if the message has visits and reward sums of every state-action pair.
    """

    KIND: ClassVar[str] = "mixture"

    columns: Floats
    pairs: tuple[PairForm, ...]
    targets: str
    bounds: tuple[float, ...]
    largest_weight: float = 1.0
    psi: Floats | None = None
    tabular: bool = False

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Mapping of each family to its shape."""
        found: dict[str, tuple[int, ...]] = {}
        for pair in self.pairs:
            n, d = len(pair.bounds), self._features_of(pair).shape[1]
            found |= {pair.matrix: (n, d, d), pair.vector: (n, d)}
        if self.tabular:
            shape = (self.horizon, self.states, self.actions)
            found |= {VISITS: shape, CENTERED_REWARDS: shape}
        return found

    def to_plain(self) -> dict[str, Any]:
        """Return the fields of the form; each pair is a list of its fields."""
        pairs = [[getattr(pair, part.name) for part in fields(pair)] for pair in self.pairs]
        return super().to_plain() | {"pairs": pairs}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the form with these published fields."""
        return cls(**{**plain, "pairs": tuple(PairForm(*pair) for pair in plain["pairs"])})

    def _features_of(self, pair: PairForm) -> Floats:
        """Return the features from which x of this pair of statistics is computed.

        Their shape is (S A, d, S), or (S A, p) for rewards.
        """
        if pair.matrix == REWARD_GRAM:
            assert self.psi is not None
            return self.psi
        return self.columns.reshape(-1, *self.columns.shape[2:])

    def unit(self, family: str, step: int, grid: int) -> float:
        """Return the unit of the cells of a family at a step, as described for the base class."""
        for pair in self.pairs:
            ux = GRID * power_of_two(pair.bounds[min(step, len(pair.bounds) - 1)])
            if family == pair.matrix:
                return ux * ux
            if family == pair.vector:
                return ux * pair.target_unit(step, grid)
        return 1.0 if family == VISITS else 1.0 / grid

    def losses(self, scales: Scales, laplace: bool) -> list[float]:
        """Return the privacy losses of every pair of statistics at every step, and of tabular rewards.

        Under Gaussian noise, lemma 3 gives the loss of a pair.
        """
        found = []
        for pair in self.pairs:
            self._check(pair)
            for h, (b, a) in enumerate(zip(pair.bounds, pair.l1, strict=True)):
                c, matrix, vector = pair.high[h] - pair.low[h], scales[pair.matrix, h], scales[pair.vector, h]
                if laplace:
                    own = lemmas.gram_l1(b, a) / matrix + lemmas.vector_l1(a, c, pair.target) / vector
                else:
                    own = lemmas.pair_mu(b**4 / matrix**2, (b * c / vector) ** 2, pair.target)
                found.append(own)
        if self.tabular:
            for h in range(self.horizon):
                found.append(lemmas.tabular_loss(scales[VISITS, h], scales[CENTERED_REWARDS, h], laplace))
        return found

    def _check(self, pair: PairForm) -> None:
        """Raise ``ValueError`` unless contributions satisfy the conditions of lemma 3 for ``pair.target``.

        The projection enforces only the norms and ranges in the form. This method checks the other
        conditions: the lemma requires a certain lower end of the range of y, and x >= 0.
        """
        low, high = np.array(pair.low), np.array(pair.high)
        centred = pair.target == "centred"
        if not np.array_equal(low, -high if centred else np.zeros(low.size)):
            raise ValueError(f"form: y of {pair.vector!r} do not begin where {pair.target!r} says")
        if pair.target == "raw-nonneg":
            moved = pair.matrix == GRAM and self.targets != "raw"
            if moved or self._features_of(pair).min() < 0:
                raise ValueError(f"form: x of {pair.matrix!r} can be below 0, against 'raw-nonneg'")

    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        """Compute the arrays that contributions use from the context of a plan.

        The entry ``values`` (H + 1, S) is projected to [0, b], centred and scaled. The entry ``weights``
        (H - 1, S, A) is projected to [0, W]. Raises ``ValueError`` if an entry that is needed is missing, has
        another shape, or is not finite.
        """
        steps = self.horizon - 1
        if "values" not in context:
            raise ValueError("plan.context lacks 'values' (H + 1, S): the targets of its users")
        values = _floats("values", context["values"], (self.horizon + 1, self.states))
        bar = np.empty((steps, self.states))
        for h, b in enumerate(self.bounds):
            v = np.clip(values[h + 1], 0.0, b)
            if self.targets == "raw":
                bar[h] = v
            elif self.targets == "centred":
                bar[h] = v - b / 2
            else:
                low, high = float(v.min()), float(v.max())
                flat = high - low <= FLAT_SPAN * b
                bar[h] = 0.0 if flat else np.clip((v - (low + high) / 2) / (high - low), -0.5, 0.5)
        found = {RESPONSE: bar}
        if any(pair.vector == SECOND_RESPONSE for pair in self.pairs):
            found[SECOND_RESPONSE] = bar * bar
        roots = None
        if "weights" in context:
            weights = _floats("weights", context["weights"], (steps, self.states, self.actions))
            roots = np.sqrt(np.clip(weights, 0.0, self.largest_weight))
        elif self.largest_weight != 1.0:
            raise ValueError("plan.context lacks 'weights' (H - 1, S, A), which the query declares")
        return Prepared(found, roots)

    def tables(
        self, prepared: Prepared, states: Ints, actions: Ints, rewards: Floats, grid: int | None = None
    ) -> dict[str, Floats]:
        """Return the contribution of one user without noise, as a mapping of family to array.

        Matrices are given by their upper triangles. If ``grid`` is given, the entries are integers that count
        the units of :meth:`unit`.
        """
        found: dict[str, Floats] = {}
        every = states[:-1] * self.actions + actions
        for pair in self.pairs:
            n = len(pair.bounds)
            at, steps = every[:n], np.arange(n)
            if pair.matrix == REWARD_GRAM:
                assert self.psi is not None
                x, y = self.psi[at], rewards + pair.low[0]
            else:
                v = prepared.values[pair.vector]
                flat = self.columns.reshape(-1, *self.columns.shape[2:])
                x = np.einsum("nds,ns->nd", flat[at], v)
                y = v[steps, states[1 : n + 1]]
                if prepared.roots is not None and pair.matrix == GRAM:
                    root = prepared.roots.reshape(n, -1)[steps, at]
                    x, y = x * root[:, None], y * root
            low, high = np.array(pair.low), np.array(pair.high)
            x, y = projected(x, y, np.array(pair.bounds)[:, None], low, high)
            x = within_l1(x, np.array(pair.l1)[:, None])
            if grid is not None:
                ux = np.array([GRID * power_of_two(b) for b in pair.bounds])
                uy = np.array([pair.target_unit(h, grid) for h in range(n)])
                x = np.trunc(x / ux[:, None])
                y = np.clip(np.rint(y / uy), -np.floor(-low / uy), np.floor(high / uy))
            found[pair.matrix] = outer(x)
            found[pair.vector] = x * y[:, None]
        if self.tabular:
            shape = (self.horizon, self.states * self.actions)
            steps = np.arange(shape[0])
            visits, sums = np.zeros(shape), np.zeros(shape)
            visits[steps, every] = 1.0
            sums[steps, every] = (rewards - 0.5) * (grid or 1)
            found |= {VISITS: visits, CENTERED_REWARDS: sums}
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class GramForm(LinearForm):
    """Form of contributions for the estimate of a model of a linear MDP; see ``GramQuery``.

    Parameters
    ----------
    rows : (S A, d) features.
    bound, l1 : upper bounds of the l2 and l1 norms of the features.
    nonneg : True if all coordinates of the features are nonnegative.
    steps : number of steps that have a Gram matrix.
    """

    KIND: ClassVar[str] = "gram"

    rows: Floats
    bound: float
    l1: float
    nonneg: bool
    steps: int

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Mapping of each family to its shape."""
        d = self.rows.shape[1]
        every = {
            GRAM: (self.steps, d, d), SUCCESSORS: (self.horizon - 1, d, self.states),
            MODEL_REWARDS: (self.horizon, d),
        }  # fmt: skip
        return {name: every[name] for name in self.names}

    def unit(self, family: str, step: int, grid: int) -> float:
        """Return the unit of the cells of a family at a step, as described for the base class."""
        ux = GRID * power_of_two(self.bound)
        return ux * {GRAM: ux, SUCCESSORS: 1.0 / self.states, MODEL_REWARDS: 1.0 / grid}[family]

    def losses(self, scales: Scales, laplace: bool) -> list[float]:
        """Return the privacy loss of every step, for the families that the step has.

        Under Gaussian noise, lemma 5 gives this loss.
        """
        b, a, states = self.bound, self.l1, max(2, self.states)
        kept = np.linalg.norm(self.rows, axis=1).max() <= b * (1 + _SLACK)
        kept &= np.abs(self.rows).sum(axis=1).max() <= a * (1 + _SLACK)
        if not kept or (self.nonneg and self.rows.min() < 0):
            raise ValueError("form: its features do not keep the bound, l1 and nonneg that it claims")
        own = {
            GRAM: lemmas.gram_l1(b, a), SUCCESSORS: lemmas.successor_l1(a, states),
            MODEL_REWARDS: lemmas.vector_l1(a, 1.0, "centred"),
        }  # fmt: skip
        found = []
        for h in range(max(shape[0] for shape in self.shapes.values())):
            at = {name: scales[name, h] for name, shape in self.shapes.items() if h < shape[0]}
            if laplace:
                found.append(math.fsum(own[name] / scale for name, scale in at.items()))
                continue
            alpha = b**4 / at[GRAM] ** 2 if GRAM in at else 0.0
            beta = b * b / at[SUCCESSORS] ** 2 if SUCCESSORS in at else 0.0
            gamma = b * b / at[MODEL_REWARDS] ** 2 if MODEL_REWARDS in at else 0.0
            found.append(lemmas.model_mu(alpha, beta, gamma, states, self.nonneg))
        return found

    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        """Return an empty object, because these contributions need no context."""
        return Prepared({})

    def tables(
        self, prepared: Prepared, states: Ints, actions: Ints, rewards: Floats, grid: int | None = None
    ) -> dict[str, Floats]:
        """Return the contribution of one user without noise, as a mapping of family to array.

        Matrices are given by their upper triangles. If ``grid`` is given, the entries are integers that count
        the units of :meth:`unit`.
        """
        x = self.rows[states[:-1] * self.actions + actions]
        if grid is not None:
            x = np.trunc(x / (GRID * power_of_two(self.bound)))
        found, moved = {GRAM: outer(x[: self.steps])}, self.horizon - 1
        if SUCCESSORS in self.names:
            one = np.zeros((moved, self.states))
            one[np.arange(moved), states[1 : moved + 1]] = 1.0
            centred = one - 1.0 / self.states if grid is None else self.states * one - 1.0
            found[SUCCESSORS] = x[:moved, :, None] * centred[:, None, :]
        if MODEL_REWARDS in self.names:
            y = rewards - 0.5
            found[MODEL_REWARDS] = x * (y if grid is None else np.rint(y * grid))[:, None]
        return found


def _floats(name: str, value: Any, shape: tuple[int, ...]) -> Floats:
    found = np.array(value, np.float64)
    if found.shape != shape or not np.isfinite(found).all():
        raise ValueError(
            f"plan.context[{name!r}] has shape {found.shape}: must be {shape}, of finite numbers"
        )
    return found
