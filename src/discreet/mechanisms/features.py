"""Public feature maps, with the bounds that sensitivities rest on certified at construction.

:class:`Features` are phi(s, a) of linear MDPs, :class:`MixtureFeatures` phi(s' | s, a) of linear mixtures.
Certified are ``feature_bound``, ``signed_feature_bound``, ``feature_l1`` and ``nonneg``. The tables hold
every pair, visited or not, so a certificate is a maximum over a public array and says nothing of data. The
trusted core knows these types and never the model behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.short_repr import brief

Floats = NDArray[np.float64]

_SLACK = 1e-12  # relative: rounding of a norm
_LEAST, _MOST = 1e-50, 1e50  # of bounds: beyond, their fourth powers are no float64, or one of few digits
_SPAN = 1e-9  # largest residual of 1 = phi^T v that counts as rounding
_ENUMERATED = 12  # successors up to which all sign vectors are tried, 2^11 of them
_CHUNK = 2**22  # numbers held at once while they are


@dataclass(frozen=True, eq=False, init=False)
class Features:
    """phi (S, A, d) with ||phi(s, a)||_2 <= bound, checked for every pair.

    Parameters
    ----------
    table : (S, A, d), finite
    bound : float
        b > 0, of the Euclidean norm, from 1e-50 to 1e50 like every other bound here.
    l1 : float, optional
        a, of the sum of absolute values; None: sqrt(d) b, which always holds.
    nonneg : bool
        Declare (and check) that every coordinate is at least 0: some sensitivities are then smaller.

    Raises
    ------
    ValueError
        If a declared contract does not hold at some (s, a), which is named.
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
        """S."""
        return int(self.table.shape[0])

    @property
    def actions(self) -> int:
        """A."""
        return int(self.table.shape[1])

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.table.shape[2])

    @cached_property
    def rows(self) -> Floats:
        """(S A, d) read-only, row s A + a."""
        return self.table.reshape(-1, self.dimension)

    @cached_property
    def constant(self) -> bool:
        """Is 1 in the span of the features, phi(s, a)^T v = 1 for all pairs and one v?

        Where it is, targets may be centred by any public constant without bias.
        """
        ones = np.ones(len(self.rows))
        v = np.linalg.lstsq(self.rows, ones, rcond=None)[0]
        return bool(np.abs(self.rows @ v - ones).max() <= _SPAN)

    @cached_property
    def dead(self) -> tuple[int, ...]:
        """Coordinates that are 0 at every pair: the Gram matrix is singular along them for any data."""
        return tuple(np.flatnonzero(~self.table.any(axis=(0, 1))).tolist())

    def copy(self) -> Features:
        """From a private copy of the table, certified again: who writes to the one moves not the other."""
        return Features(self.table, self.bound, l1=self.l1, nonneg=self.nonneg)

    def scaled(self, factor: float) -> Features:
        """The features times ``factor``, with contracts to match; ``ValueError`` unless it is above 0."""
        factor = checks.positive("factor", factor)
        return Features(self.table * factor, self.bound * factor, l1=self.l1 * factor, nonneg=self.nonneg)

    def __setstate__(self, state: dict[str, Any]) -> None:
        _restore(self, state)


def _certify(name: str, measured: Floats, bound: float, words: str) -> None:
    if measured.max() > bound * (1 + _SLACK):
        s, a = np.unravel_index(int(measured.argmax()), measured.shape)
        raise ValueError(f"{name} = {bound!r}: table[{s}, {a}] has {words} {measured[s, a]:.17g}")


def one_hot(states: int, actions: int) -> Features:
    """phi(s, a) = e_{s A + a}, d = S A: the tabular special case, with b = a = 1."""
    s, a = checks.integer("states", states, 1), checks.integer("actions", actions, 1)
    return Features(np.eye(s * a).reshape(s, a, s * a), 1.0, l1=1.0, nonneg=True)


@dataclass(frozen=True, eq=False, init=False)
class MixtureFeatures:
    """phi(s' | s, a) in R^d of a linear mixture, P_h(s' | s, a) = <phi(s' | s, a), w_h>, with its contracts.

    What a user contributes is phi_v(s, a) = sum_s' phi(s' | s, a) v(s') at values v, so the contracts are
    suprema over v, for every (s, a):

    * ``bound`` = F01 >= sup over v in [0, 1]^S of ||phi_v(s, a)||_2;
    * ``signed_bound`` = F+- >= sup over v in [-1, 1]^S of ||phi_v(s, a)||_2;
    * ``l1``, ``signed_l1``: the same two of ||phi_v(s, a)||_1, for Laplace noise.

    So values in [0, b] give ||phi_V|| <= b F01, and values within m / 2 of their centre c give
    ||phi_{V - c}|| <= m F+- / 2.

    Parameters
    ----------
    table : (S, A, S, d), finite
        Entry [s, a, s'] is phi(s' | s, a).
    weight_bound : float
        C_w > 0, the declared (public) bound of ||w_h||_2. No noise depends on it, widths do.
    bound, signed_bound, l1, signed_l1 : float, optional
        Contracts to declare; None: the smallest value that is proved (``exact`` says if it is the supremum).
    rewards : Features, optional
        psi (S, A, p) in which mean rewards are linear, r_h(s, a) = <psi(s, a), theta_h>: public, for learners
        that do not know them.
    reward_weight_bound : float, optional
        C_r > 0, the declared bound of ||theta_h||_2; None: sqrt(p) / ``rewards.bound``. For widths only.

    Raises
    ------
    ValueError
        If a declared contract is smaller than what is proved at some (s, a), which is named, or one is
        outside [1e-50, 1e50] (a table of zeros has no bound).

    Notes
    -----
    *Proof.* Norms of phi_v are convex in v, so the suprema are attained at vertices, v in {0, 1}^S and
    v in {-1, 1}^S, and only successors with phi(s' | s, a) != 0 matter. Write p_i, n_i for the sums
    over s' of the positive and of the negative parts (as numbers >= 0) of coordinate i. Then
    |phi_{v,i}| <= p_i + n_i for v in [-1, 1]^S, and <= max(p_i, n_i) for v in [0, 1]^S.

    1. If p_i n_i = 0 for every i (features of one sign: mixtures of base models, one-hot tables), v = 1
       attains all these bounds at once: the norms of phi_1 are the four suprema.
    2. Else, with at most 12 such successors, every sign vector e is tried; phi_{-e} = -phi_e halves their
       number, and the vertices of [0, 1]^S are (1 + e) / 2 and (1 - e) / 2: phi_v = (phi_1 +- phi_e) / 2.
    3. Else the coordinatewise bounds are upper bounds; so are F+- <= sqrt(n) ||M||_op for the (n, d) matrix M
       of the pair, as ||v||_2 <= sqrt(n), and F01 <= (||phi_1|| + F+-) / 2, as v = 1/2 + u / 2 with u in
       [-1, 1]^S; and ||.||_1 <= sqrt(d) ||.||_2. The smaller ones are taken.
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
        proved, exact = _suprema(own.reshape(-1, *shape[2:]))
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
        """S."""
        return int(self.columns.shape[0])

    @property
    def actions(self) -> int:
        """A."""
        return int(self.columns.shape[1])

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.columns.shape[2])

    @property
    def table(self) -> Floats:
        """(S, A, S, d) read-only, entry [s, a, s'] is phi(s' | s, a); a view of ``columns`` (S, A, d, S)."""
        return self.columns.transpose(0, 1, 3, 2)

    @cached_property
    def nonneg(self) -> bool:
        """Is every coordinate at least 0? Then so is phi_v for v >= 0 (raw targets, never centred ones)."""
        return bool(self.columns.min() >= 0)

    def values_features(self, values: ArrayLike) -> Floats:
        """phi_v (..., S, A, d) of values v (..., S): one matrix product, no other temporary.

        One vector at a time and several at once may differ in the last bit. Raises ``ValueError`` if the last
        axis is not of the S states.
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
    features: Features | MixtureFeatures | None, layout: Layout
) -> Features | MixtureFeatures | None:
    """The features, or None, of a problem of these sizes; ``ValueError`` if they are of another."""
    if features is None:
        return None
    if not isinstance(features, Features | MixtureFeatures):
        raise ValueError(f"features = {checks.said(features)}: must be Features, MixtureFeatures or None")
    if (features.states, features.actions) != (layout.states, layout.actions):
        raise ValueError(
            f"features are of S = {features.states}, A = {features.actions}: must be of S = {layout.states}, "
            f"A = {layout.actions}"
        )
    return features


def _restore(features: Features | MixtureFeatures, state: dict[str, Any]) -> None:
    """Unpickled arrays are writeable: freeze them again."""
    features.__dict__.update(state)
    for value in state.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


def _suprema(pairs: Floats) -> tuple[Floats, bool]:
    """(4, P) proved F01, F+-, and both in l1, of (P, S, d) successor features; are all of them suprema?"""
    positive = np.maximum(pairs, 0.0).sum(axis=1)
    negative = np.maximum(-pairs, 0.0).sum(axis=1)
    found = np.array(_norms(np.maximum(positive, negative), positive + negative))
    mixed = (np.minimum(positive, negative) > 0).any(axis=1)
    successors = np.asarray(pairs.any(axis=2))
    count = successors.sum(axis=1)
    for n in set(count[mixed & (count <= _ENUMERATED)].tolist()):
        at = np.flatnonzero(mixed & (count == n))
        signs = 1.0 - 2.0 * ((np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1)  # the last one is +1
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
    """Euclidean norms of both, then sums of absolute values, along the last axis."""
    return [
        *(np.linalg.norm(x, axis=-1) for x in (halves, wholes)),
        *(np.abs(x).sum(axis=-1) for x in (halves, wholes)),
    ]
