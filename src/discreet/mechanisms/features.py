"""Public feature maps with bounds that are certified at construction. The bounds determine sensitivities.

:class:`Features` are the features phi(s, a) of linear MDPs. :class:`MixtureFeatures` are the features phi(s'
| s, a) of linear mixtures. The attributes ``bound``, ``signed_bound``, ``l1``, ``signed_l1`` and ``nonneg``
are certified. The tables contain every pair, including pairs that no user visited. A certified bound is
therefore a maximum over a public array and reveals nothing about data. The trusted core uses only these types
and never the model from which the features come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.short_repr import brief
from discreet.device.context_policy import chosen_actions as chosen_actions
from discreet.device.feature_map import FeatureMap as FeatureMap

Floats = NDArray[np.float64]

_SLACK = 1e-12  # Relative rounding error of a norm.
# Range of bounds. In this range, fourth powers are float64 numbers of full precision.
_LEAST, _MOST = 1e-50, 1e50
_SPAN = 1e-9  # Largest residual of 1 = phi^T v that counts as rounding.
_ENUMERATED = 12  # Largest number of successors with which all 2^11 sign vectors are tried.
_CHUNK = 2**22  # Largest number of array entries in memory while these sign vectors are tried.
_KEPT_BYTES = 2**20  # Largest table whose proved bounds are kept.


def declared_ranges(columns: Any) -> dict[str, tuple[Any, Any]]:
    """Return the range of each column in the table ``[context.columns]`` of a TOML file.

    columns : mapping of each name to ``{range = [least, largest]}``. Raises ``ValueError`` for another form.
        :class:`FeatureMap` checks the numbers.
    """
    if not isinstance(columns, Mapping):
        raise ValueError(f"context.columns = {checks.said(columns)}: must be a table")
    found = {}
    for name, column in columns.items():
        where = f"context.columns.{name}"
        if not isinstance(column, Mapping):
            raise ValueError(f"{where} = {checks.said(column)}: must be a table")
        for key in column:
            if key != "range":
                raise ValueError(f"unknown key {where}.{key}: must be range")
        if "range" not in column:
            raise ValueError(f"{where}.range is missing: must be given")
        ends = column["range"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise ValueError(
                f"{where}.range = {checks.said(ends)}: must be [least, largest], declared without the data"
            )
        found[name] = (ends[0], ends[1])
    return found


@dataclass(frozen=True, eq=False, init=False)
class Features:
    """Feature table phi (S, A, d) with ||phi(s, a)||_2 <= bound, checked for every pair.

    Parameters
    ----------
    table : (S, A, d), finite
    bound : float
        Bound b > 0 on the Euclidean norm. All bounds must be from 1e-50 to 1e50.
    l1 : float, optional
        Bound a on the sum of absolute values. None: sqrt(d) b, which is always valid.
    nonneg : bool
        Declares that every coordinate is at least 0. The constructor checks this. Some sensitivities are then
        smaller.

    Raises
    ------
    ValueError
        If a declared bound is violated at some (s, a). The error message names this pair.
    """

    __repr__ = brief

    table: Floats
    bound: float
    l1: float
    nonneg: bool

    def __init__(
        self, table: ArrayLike, bound: float = 1.0, *, l1: float | None = None, nonneg: bool = False
    ) -> None:
        shape = np.shape(table)
        if len(shape) != 3 or 0 in shape:
            raise ValueError(f"table has shape {shape}: must be (S, A, d), none of them 0")
        own = checks.floats("table", table, shape)
        bound = checks.real("bound", bound, _LEAST, _MOST)
        norms = np.linalg.norm(own, axis=2)
        _certify("bound", norms, bound, "Euclidean norm")
        most = bound * float(np.sqrt(shape[2])) if l1 is None else checks.real("l1", l1, _LEAST, _MOST)
        _certify("l1", np.abs(own).sum(axis=2), most, "sum of absolute values")
        if checks.flag("nonneg", nonneg) and own.min() < 0:
            s, a, i = np.argwhere(own < 0)[0]
            raise ValueError(f"table[{s}, {a}, {i}] = {own[s, a, i]}: must be at least 0, as nonneg declares")
        own.flags.writeable = False
        self.__dict__.update(table=own, bound=bound, l1=most, nonneg=bool(nonneg))

    @property
    def states(self) -> int:
        """Number of states S."""
        return int(self.table.shape[0])

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return int(self.table.shape[1])

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return int(self.table.shape[2])

    @cached_property
    def rows(self) -> Floats:
        """Features as a read-only (S A, d) array. Row s A + a belongs to the pair (s, a)."""
        return self.table.reshape(-1, self.dimension)

    @cached_property
    def constant(self) -> bool:
        """True if 1 is in the span of the features: there is a v with phi(s, a)^T v = 1 for all pairs.

        Targets may then be centred by any public constant without bias.
        """
        ones = np.ones(len(self.rows))
        v = np.linalg.lstsq(self.rows, ones, rcond=None)[0]
        return bool(np.abs(self.rows @ v - ones).max() <= _SPAN)

    @cached_property
    def dead(self) -> tuple[int, ...]:
        """Coordinates that are 0 at every pair.

        For any data, the Gram matrix is singular in these coordinates.
        """
        return tuple(np.flatnonzero(~self.table.any(axis=(0, 1))).tolist())

    def copy(self) -> Features:
        """Return a copy with a separate table. The bounds of the copy are certified again."""
        return Features(self.table, self.bound, l1=self.l1, nonneg=self.nonneg)

    def scaled(self, factor: float) -> Features:
        """Return features that are multiplied by ``factor``, with bounds multiplied by the same factor.

        Raises ``ValueError`` unless ``factor`` is above 0.
        """
        factor = checks.positive("factor", factor)
        return Features(self.table * factor, self.bound * factor, l1=self.l1 * factor, nonneg=self.nonneg)

    def __setstate__(self, state: dict[str, Any]) -> None:
        _restore(self, state)


def _certify(name: str, measured: Floats, bound: float, words: str) -> None:
    if measured.max() > bound * (1 + _SLACK):
        s, a = np.unravel_index(int(measured.argmax()), measured.shape)
        raise ValueError(f"{name} = {bound!r}: table[{s}, {a}] has {words} {measured[s, a]:.17g}")


def one_hot(states: int, actions: int) -> Features:
    """Return one-hot features phi(s, a) = e_{s A + a} with d = S A. One-hot features are the tabular special
    case.

    Both bounds are 1: b = a = 1.
    """
    s, a = checks.integer("states", states, 1), checks.integer("actions", actions, 1)
    return Features(np.eye(s * a).reshape(s, a, s * a), 1.0, l1=1.0, nonneg=True)


@dataclass(frozen=True, eq=False, init=False)
class MixtureFeatures:
    """Features phi(s' | s, a) in R^d of a linear mixture, with certified bounds.

    The mixture is P_h(s' | s, a) = <phi(s' | s, a), w_h>. For a value function v, a user contributes phi_v(s,
    a) = sum_s' phi(s' | s, a) v(s'). The bounds are therefore suprema over v, for every (s, a):

    * ``bound`` = F01 >= sup over v in [0, 1]^S of ||phi_v(s, a)||_2;
    * ``signed_bound`` = F+- >= sup over v in [-1, 1]^S of ||phi_v(s, a)||_2;
    * ``l1``, ``signed_l1``: the same two suprema of ||phi_v(s, a)||_1, for Laplace noise.

    Therefore values V in [0, b] give ||phi_V|| <= b F01. Values V in [c - m / 2, c + m / 2] give ||phi_{V -
    c}|| <= m F+- / 2.

    Parameters
    ----------
    table : (S, A, S, d), finite
        Entry [s, a, s'] is phi(s' | s, a).
    weight_bound : float
        Declared (public) bound C_w > 0 of ||w_h||_2. Confidence widths depend on C_w, but noise does not.
    bound, signed_bound, l1, signed_l1 : float, optional
        Declared bounds. None: the smallest value that is proved. ``exact`` is True if that value is the
        supremum.
    rewards : Features, optional
        Public features psi (S, A, p) of the mean rewards: r_h(s, a) = <psi(s, a), theta_h>. Learners that do
        not know the rewards use them.
    reward_weight_bound : float, optional
        Declared bound C_r > 0 of ||theta_h||_2. None: sqrt(p) / ``rewards.bound``. Only confidence widths
        depend on it.

    Raises
    ------
    ValueError
        If a declared bound is smaller than the proved value at some (s, a). The error message names this
        pair. Also if a bound is outside [1e-50, 1e50]; a table of zeros is therefore rejected.

    Notes
    -----
    *Proof.* Norms of phi_v are convex in v, so the suprema are attained at vertices, v in {0, 1}^S and
    v in {-1, 1}^S, and only successors with phi(s' | s, a) != 0 matter. Write p_i, n_i for the sums
    over s' of the positive and of the negative parts (as numbers >= 0) of coordinate i. Then
    |phi_{v,i}| <= p_i + n_i for v in [-1, 1]^S, and <= max(p_i, n_i) for v in [0, 1]^S.

    1. If p_i n_i = 0 for every i (features of one sign: mixtures of base models, one-hot tables), v = 1
       attains all these bounds simultaneously: the norms of phi_1 are the four suprema.
    2. Otherwise, if there are at most 12 such successors, every sign vector e is tried. Half of the sign
       vectors are enough, because phi_{-e} = -phi_e. The vertices of [0, 1]^S are (1 + e) / 2 and (1 - e) /
       2, so phi_v = (phi_1 +- phi_e) / 2.
    3. Otherwise the coordinatewise bounds are upper bounds. Three more bounds are valid, and the smallest
       bound is used:
       F+- <= sqrt(n) ||M||_op for the (n, d) matrix M of the pair, as ||v||_2 <= sqrt(n);
       F01 <= (||phi_1|| + F+-) / 2, as v = 1/2 + u / 2 with u in [-1, 1]^S;
       ||.||_1 <= sqrt(d) ||.||_2.
    """

    __repr__ = brief

    columns: Floats
    weight_bound: float
    bound: float
    signed_bound: float
    l1: float
    signed_l1: float
    exact: bool
    rewards: Features | None
    reward_weight_bound: float | None

    def __init__(
        self,
        table: ArrayLike,
        weight_bound: float,
        *,
        bound: float | None = None,
        signed_bound: float | None = None,
        l1: float | None = None,
        signed_l1: float | None = None,
        rewards: Features | None = None,
        reward_weight_bound: float | None = None,
    ) -> None:
        shape = np.shape(table)
        if len(shape) != 4 or 0 in shape or shape[0] != shape[2]:
            raise ValueError(f"table has shape {shape}: must be (S, A, S, d), none of them 0")
        own = checks.floats("table", table, shape)
        flat = (shape[0] * shape[1], *shape[2:])
        small = own.nbytes <= _KEPT_BYTES
        proved, exact = _proved(own.tobytes(), flat) if small else _suprema(own.reshape(flat))
        declared = {"bound": bound, "signed_bound": signed_bound, "l1": l1, "signed_l1": signed_l1}
        for (name, value), measured in zip(declared.items(), proved, strict=True):
            if value is None:
                self.__dict__[name] = checks.real(f"table: its {name}", measured.max(), _LEAST, _MOST)
                continue
            self.__dict__[name] = checks.real(name, value, _LEAST, _MOST)
            _certify(name, measured.reshape(shape[:2]), self.__dict__[name], "a proved supremum of")
        columns = np.ascontiguousarray(own.transpose(0, 1, 3, 2))
        columns.flags.writeable = False
        self.__dict__.update(
            columns=columns, weight_bound=checks.positive("weight_bound", weight_bound), exact=exact
        )
        if rewards is not None:
            if type(rewards) is not Features:
                raise ValueError(f"rewards = {checks.said(rewards)}: must be Features(table, bound) or None")
            if (rewards.states, rewards.actions) != shape[:2]:
                raise ValueError(
                    f"rewards are of S = {rewards.states}, A = {rewards.actions}: must be of S = {shape[0]}, "
                    f"A = {shape[1]}"
                )
            if reward_weight_bound is None:
                reward_weight_bound = rewards.dimension**0.5 / rewards.bound
            reward_weight_bound = checks.positive("reward_weight_bound", reward_weight_bound)
        elif reward_weight_bound is not None:
            raise ValueError(
                f"reward_weight_bound = {reward_weight_bound!r}: must be None where rewards is None"
            )
        self.__dict__.update(rewards=rewards, reward_weight_bound=reward_weight_bound)

    @property
    def states(self) -> int:
        """Number of states S."""
        return int(self.columns.shape[0])

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return int(self.columns.shape[1])

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return int(self.columns.shape[2])

    @property
    def table(self) -> Floats:
        """Table (S, A, S, d) with entries phi(s' | s, a).

        The table is a read-only view of ``columns`` (S, A, d, S).
        """
        return self.columns.transpose(0, 1, 3, 2)

    @cached_property
    def nonneg(self) -> bool:
        """True if every coordinate is at least 0.

        Then phi_v >= 0 for all v >= 0. Uncentred targets have v >= 0, but centred targets do not.
        """
        return bool(self.columns.min() >= 0)

    def values_features(self, values: ArrayLike) -> Floats:
        """Return the features phi_v (..., S, A, d) for the values v (..., S).

        The method computes one matrix product and needs no further temporary array. The last bit of a result
        can depend on the number of vectors in the call. Raises ``ValueError`` if the last axis of ``values``
        does not have length S.
        """
        v = np.asarray(values, dtype=np.float64)
        if v.ndim < 1 or v.shape[-1] != self.states:
            raise ValueError(f"values has shape {v.shape}: must be (..., {self.states})")
        rows = self.columns.reshape(-1, self.states)
        found = rows @ v if v.ndim == 1 else v @ rows.T
        return np.asarray(found.reshape(*v.shape[:-1], *self.columns.shape[:3]))

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        _restore(self, state)


def fitting_features(
    features: Features | MixtureFeatures | FeatureMap | None, layout: Layout
) -> Features | MixtureFeatures | FeatureMap | None:
    """Return ``features``. Raises ``ValueError`` if their sizes differ from those of the layout."""
    if features is None:
        return None
    if isinstance(features, FeatureMap):
        if (layout.states, layout.actions, layout.horizon) != (1, features.actions, 1):
            raise ValueError(
                f"features are a FeatureMap: the layout must be Layout(1, {features.actions}, 1)"
            )
        return features
    if not isinstance(features, Features | MixtureFeatures):
        raise ValueError(
            f"features = {checks.said(features)}: must be FeatureMap, Features, MixtureFeatures or None"
        )
    if (features.states, features.actions) != (layout.states, layout.actions):
        raise ValueError(
            f"features are of S = {features.states}, A = {features.actions}: must be of S = {layout.states}, "
            f"A = {layout.actions}"
        )
    return features


def _restore(features: Features | MixtureFeatures, state: dict[str, Any]) -> None:
    """Set the state and make the arrays read-only again. Unpickled arrays are writeable."""
    features.__dict__.update(state)
    for value in state.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


@lru_cache(maxsize=4)
def _proved(table: bytes, shape: tuple[int, int, int]) -> tuple[Floats, bool]:
    """Return :func:`_suprema` of the (P, S, d) features with these bytes.

    Every copy of a query proves its bounds again, of the same table.
    """
    found, exact = _suprema(np.frombuffer(table).reshape(shape).copy())
    found.flags.writeable = False
    return found, exact


def _suprema(pairs: Floats) -> tuple[Floats, bool]:
    """Return proved bounds for the features of P pairs, and True if all these bounds are suprema.

    pairs : (P, S, d) features. The (4, P) bounds are F01 and F+- of the l2 norm, then F01 and F+- of the l1
        norm.
    """
    positive = np.maximum(pairs, 0.0).sum(axis=1)
    negative = np.maximum(-pairs, 0.0).sum(axis=1)
    found = np.array(_norms(np.maximum(positive, negative), positive + negative))
    mixed = (np.minimum(positive, negative) > 0).any(axis=1)
    successors = np.asarray(pairs.any(axis=2))
    count = successors.sum(axis=1)
    for n in set(count[mixed & (count <= _ENUMERATED)].tolist()):
        at = np.flatnonzero(mixed & (count == n))
        # the last entry of each sign vector is +1
        signs = 1.0 - 2.0 * ((np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1)
        for part in np.array_split(at, -(-at.size * len(signs) * pairs.shape[2] // _CHUNK)):
            own = np.stack([pairs[i, successors[i]] for i in part])
            whole, turned = own.sum(axis=1, keepdims=True), signs @ own
            halves = np.concatenate([whole + turned, whole - turned], axis=1) / 2
            found[:, part] = [norms.max(axis=1) for norms in _norms(halves, turned)]
    hard = np.flatnonzero(mixed & (count > _ENUMERATED))
    for i in hard.tolist():
        own = pairs[i, successors[i]]
        found[1, i] = min(found[1, i], float(np.linalg.norm(own, 2)) * len(own) ** 0.5)
        found[0, i] = min(found[0, i], (float(np.linalg.norm(own.sum(axis=0))) + found[1, i]) / 2)
        found[2:, i] = np.minimum(found[2:, i], found[:2, i] * pairs.shape[2] ** 0.5)
    return found, hard.size == 0


def _norms(halves: Floats, wholes: Floats) -> list[Floats]:
    """Return the Euclidean norms of ``halves`` and of ``wholes`` along the last axis, then their l1 norms."""
    return [
        *(np.linalg.norm(x, axis=-1) for x in (halves, wholes)),
        *(np.abs(x).sum(axis=-1) for x in (halves, wholes)),
    ]
