r"""Public map from real-valued contexts to features phi with ||phi||_2 <= 1.

The map is declared before any data are read: ranges of columns, basis, radius. It runs on a user's device, or
on the trusted server before other code reads the context. It accepts every number and raises no error that
depends on a value. Therefore the bound on ||phi|| holds for every context.

1. Each column x with the declared range [low, high] becomes z = clip(2 (x - low) / (high - low) - 1, -1, 1).
   A value that is not finite becomes 0, the middle of the range.
2. g = (basis(z), 1), with the last entry for the intercept.
3. phi = g / R, then phi / max(1, ||phi||). The radius R is public.

Ranges, radius and basis must not be computed from the data, because the guarantee treats them as public.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Form = Literal["per_action", "shared"]
Basis = str | tuple[Any, ...]

MOST_DIMENSION = 200  # limit on p, because each action has p^2 noisy cells
_MOST_SIZE = 10_000  # limit on features and on actions; it applies to a form from a server too
LEAST_RADIUS = 1e-100  # with a smaller radius, ||g / R||^2 could overflow

__all__ = ["MOST_DIMENSION", "FeatureMap", "as_floats"]


@dataclass(frozen=True)
class FeatureMap:
    """Public feature map of contexts, for learners with real-valued contexts.

    Parameters
    ----------
    ranges : mapping of each column's name to its declared range (low, high), with finite low < high.
    actions : int
        Number of actions A, at least 2.
    form : "per_action" or "shared"
        ``per_action``: a context has one value for each column, shape (q,), and each action has its own
        coefficients; phi has shape (p,). ``shared``: a context has one value for each action and column,
        shape (A, q), and all actions share coefficients; phi has shape (A, p).
    basis : "linear", ("poly", 2), ("fourier", m, scale, seed) or ("tiles", n, seed)
        ``linear``: z. ``poly``: z and all products z_i z_j with i <= j. ``fourier``: z and m random Fourier
        features sqrt(2/m) cos(omega z + beta), where omega has independent N(0, scale^2) entries. ``tiles``:
        for each column, the indicators of n + 1 tiles of width 2/n with a random offset, divided by sqrt(q).
        The public ``seed`` (int, at least 0) determines the random numbers.
    radius : float, optional
        R, at least 1e-100. If None, R is the root mean square of ||g|| for independent z with the triangular
        density on [-1, 1], for which the mean of z^2 is 1/6. This R is smaller than the largest ||g||; longer
        vectors are scaled down.
    intercept : bool
        If True, the last entry of g is 1.
    force : bool
        If True, more than 200 features are allowed.

    Raises
    ------
    ValueError
        If a range, size, basis or radius is not allowed, or if there are more than 200 features and ``force``
        is False. Calling the map raises it only if the context has a wrong shape.
    """

    ranges: Mapping[str, tuple[float, float]]
    actions: int
    form: Form = "per_action"
    basis: Basis = "linear"
    radius: float | None = None
    intercept: bool = True
    force: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "actions", _integer("actions", self.actions, 2))
        if self.actions > _MOST_SIZE:
            raise ValueError(f"actions = {self.actions}: must be at most {_MOST_SIZE}")
        if self.form not in ("per_action", "shared"):
            raise ValueError(f"form = {self.form!r}: must be 'per_action' or 'shared'")
        put(self, "ranges", _checked_ranges(self.ranges))
        put(self, "basis", _checked_basis(self.basis))
        for name in ("intercept", "force"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} = {getattr(self, name)!r}: must be True or False")
        if self.radius is not None:
            put(self, "radius", _real("radius", self.radius))
            if not LEAST_RADIUS <= float(self.radius) < math.inf:
                raise ValueError(f"radius = {self.radius!r}: must be finite, at least {LEAST_RADIUS:g}")
        if self.dimension > _MOST_SIZE:
            raise ValueError(f"basis = {self.basis!r}: gives {self.dimension} features, at most {_MOST_SIZE}")
        if self.dimension > MOST_DIMENSION and not self.force:
            raise ValueError(
                f"basis = {self.basis!r}: gives {self.dimension} features, at most {MOST_DIMENSION} without "
                "force=True (each action has the square of this number of noisy cells)"
            )

    # ---------------------------------------------------------------------------------- sizes
    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the order of a context's values."""
        return tuple(self.ranges)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one context: (q,) for "per_action", (A, q) for "shared"."""
        q = len(self.ranges)
        return (q,) if self.form == "per_action" else (self.actions, q)

    @property
    def blocks(self) -> int:
        """Number of coefficient vectors: A for "per_action", 1 for "shared"."""
        return self.actions if self.form == "per_action" else 1

    @property
    def dimension(self) -> int:
        """Length p of phi."""
        q, kind = len(self.ranges), self.basis[0] if isinstance(self.basis, tuple) else self.basis
        size = {"linear": q, "poly": q + q * (q + 1) // 2}.get(kind, 0)
        if kind == "fourier":
            size = q + int(self.basis[1])
        elif kind == "tiles":
            size = q * (int(self.basis[1]) + 1)
        return size + int(self.intercept)

    @property
    def bound(self) -> float:
        """Bound on ||phi||_2."""
        return 1.0

    @cached_property
    def own_radius(self) -> float:
        """R: the declared radius, or its default value."""
        if self.radius is not None:
            return float(self.radius)
        q, kind = len(self.ranges), self.basis[0] if isinstance(self.basis, tuple) else self.basis
        squared = 0.0 if kind == "tiles" else q / 6.0
        if kind == "poly":
            squared += q * (q - 1) / 72.0 + q / 15.0  # E z^4 is 1/15 for the triangular density
        elif kind in ("fourier", "tiles"):
            squared += 1.0
        return math.sqrt(squared + float(self.intercept))

    # --------------------------------------------------------------------------------- the map
    @cached_property
    def _limits(self) -> tuple[Floats, Floats]:
        low, high = np.array(list(self.ranges.values()), np.float64).T
        return low, high

    @cached_property
    def _randoms(self) -> tuple[Floats, Floats]:
        """Public random numbers of the basis: (m, q) omega and (m,) beta, or offsets of the tiles."""
        q = len(self.ranges)
        if isinstance(self.basis, tuple) and self.basis[0] == "fourier":
            _, m, scale, seed = self.basis
            u = _uniforms(seed, 2 * m * q + m)
            normal = np.sqrt(-2.0 * np.log(u[: m * q])) * np.cos(2.0 * np.pi * u[m * q : 2 * m * q])
            return scale * normal.reshape(m, q), 2.0 * np.pi * u[2 * m * q :]
        if isinstance(self.basis, tuple) and self.basis[0] == "tiles":
            return _uniforms(self.basis[2], q)[None], np.zeros(0)
        return np.zeros((0, q)), np.zeros(0)

    def __call__(self, x: ArrayLike) -> Floats:
        """Return phi of shape (..., p) for contexts x (..., q).

        If ``form`` is "shared", both x and phi have one more axis of length A.

        Raises ``ValueError`` if the last axes of x do not have the shape of a context. All values of x are
        accepted.
        """
        given = self._given(x)
        low, high = self._limits
        with np.errstate(all="ignore"):
            # Numbers are halved first, so that the width of a range near the largest float does not overflow.
            z = (given / 2 - low / 2) / (high / 2 - low / 2) * 2.0 - 1.0
            z = np.clip(np.where(np.isfinite(given), z, 0.0), -1.0, 1.0)
            parts = [*self._parts(z)]
            if self.intercept:
                parts.append(np.ones((*z.shape[:-1], 1)))
            phi = np.concatenate(parts, axis=-1) / self.own_radius
            length = np.linalg.norm(phi, axis=-1, keepdims=True)
            # the factor keeps the norm of the quotient at most 1 in spite of rounding
            return np.where(length > 1.0, phi / np.maximum(length, 1.0) * (1.0 - 1e-15), phi)

    def clipped(self, x: ArrayLike) -> Floats:
        """Return contexts with each number clipped to its range, and NaN for numbers that are not finite.

        The features of the result are equal to the features of x, bit for bit. Raises ``ValueError`` in the
        same cases as a call of the map.
        """
        given = self._given(x)
        return np.where(np.isfinite(given), np.clip(given, *self._limits), np.nan)

    def _given(self, x: ArrayLike) -> Floats:
        given = as_floats(x)
        if given.shape[given.ndim - len(self.shape) :] != self.shape or given.ndim < len(self.shape):
            raise ValueError(f"x has shape {given.shape}: must end with {self.shape}")
        return given

    def _parts(self, z: Floats) -> list[Floats]:
        if self.basis == "linear":
            return [z]
        if self.basis[0] == "poly":
            first, second = np.triu_indices(z.shape[-1])
            return [z, z[..., first] * z[..., second]]
        if self.basis[0] == "fourier":
            omega, beta = self._randoms
            return [z, math.sqrt(2.0 / len(beta)) * np.cos(z @ omega.T + beta)]
        n, offsets = int(self.basis[1]), self._randoms[0][0]
        tile = np.minimum(((z + 1.0) / 2.0 * n + offsets).astype(np.int64), n)
        one = np.eye(n + 1)[tile] / math.sqrt(z.shape[-1])
        return [one.reshape(*z.shape[:-1], -1)]

    # ---------------------------------------------------------------------------------- as text
    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain values, for JSON; :meth:`from_dict` is the inverse."""
        return {
            "ranges": [[name, *limits] for name, limits in self.ranges.items()], "actions": self.actions,
            "form": self.form, "basis": list(self.basis) if isinstance(self.basis, tuple) else self.basis,
            "radius": self.own_radius, "intercept": self.intercept,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> FeatureMap:
        """Return the map with these plain values. Raises ``ValueError`` for invalid values."""
        try:
            ranges = {name: (low, high) for name, low, high in plain["ranges"]}
            basis = plain["basis"] if isinstance(plain["basis"], str) else tuple(plain["basis"])
            rest = {name: plain[name] for name in ("actions", "form", "radius", "intercept")}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"feature map: is not written as to_dict writes it ({error!r})") from None
        return cls(ranges, basis=basis, force=True, **rest)


def as_floats(x: ArrayLike) -> Floats:
    """Return a copy of x as float64. An integer that is too large for a float becomes infinite."""
    try:
        return np.array(x, np.float64)
    except OverflowError:
        whole = np.array(x, object)
        return np.array([_float(one) for one in whole.ravel()]).reshape(whole.shape)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _integer(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} = {value!r}: must be an integer, at least {least}")
    return int(value)


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{name} = {value!r}: must be a number")
    return float(value)


def _checked_ranges(ranges: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(ranges, Mapping) or not ranges:
        raise ValueError(f"ranges = {ranges!r}: must map at least one column to (low, high)")
    found = {}
    for name, limits in ranges.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"ranges has the column {name!r}: must be a name")
        if isinstance(limits, str) or not hasattr(limits, "__len__") or len(limits) != 2:
            raise ValueError(f"ranges[{name!r}] = {limits!r}: must be (low, high), declared without the data")
        low, high = (_real(f"ranges[{name!r}]", limit) for limit in limits)
        # the map divides by high / 2 - low / 2, which is 0 for neighbouring numbers near 0
        if not (-math.inf < low < high < math.inf and low / 2 < high / 2):
            raise ValueError(f"ranges[{name!r}] = ({low:g}, {high:g}): must be finite numbers, low < high")
        found[name] = (low, high)
    return found


def _checked_basis(basis: Any) -> Basis:
    if basis == "linear":
        return "linear"
    given = tuple(basis) if isinstance(basis, list | tuple) else (basis,)
    if given[:1] == ("poly",) and len(given) == 2 and given[1] == 2:
        return ("poly", 2)
    if given[:1] == ("fourier",) and len(given) == 4:
        scale = _real("basis scale", given[2])
        if not 0 < scale < 1e100:
            raise ValueError(f"basis scale = {scale!r}: must be a number above 0")
        return ("fourier", _integer("basis m", given[1], 1), scale, _integer("basis seed", given[3], 0))
    if given[:1] == ("tiles",) and len(given) == 3:
        return ("tiles", _integer("basis n", given[1], 1), _integer("basis seed", given[2], 0))
    raise ValueError(
        f"basis = {basis!r}: must be 'linear', ('poly', 2), ('fourier', m, scale, seed) or ('tiles', n, seed)"
    )


def _uniforms(seed: int, count: int) -> Floats:
    """Return public random numbers in (0, 1), from SHA-256 of the seed and a counter."""
    blocks = (
        hashlib.sha256(f"discreet features {seed} {i}".encode()).digest() for i in range(-(-count // 4))
    )
    words = np.frombuffer(b"".join(blocks), "<u8")[:count] >> np.uint64(11)
    return (words.astype(np.float64) + 0.5) * 2.0**-53
