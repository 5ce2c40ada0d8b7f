r"""The device of a local user of linear sums: her contribution, noise of her own on every cell, one message.

Source: Luyo et al. 2021 (local algorithms); specification linear-and-offline, 0 and 4 to 6. Who takes part
gets three public things: the form of the session (:class:`LinearDevice`: features, contracts, noise), once;
a plan's number; and either the plan itself, a policy with its context, or what it can be computed from
(:mod:`discreet.device.planning`). What leaves the device is the noisy message alone.

    device = LinearDevice.from_bytes(published)         # session.device.to_bytes()
    message = device(number, context, states, actions, rewards)   # the session takes the bytes

Contributions. With x, y of :class:`~discreet.linear.sums.MixtureQuery` or ``GramQuery``, the
statistics are upper triangles of x x^T and vectors x y. They are projected into the contracts that the form
states, by a map that never raises, and every cell, visited or not, gets noise: whatever the context says, a
message is as private as the contracts and scales of the form make it. The server's own sessions and
simulations use this code, so there is one encoder.

Exact noise. With a ``grid`` rewards are rounded at random to multiples of 1 / grid, x and y are truncated to
public grids (:data:`GRID`), so that a contribution is a vector of integers that breaks no contract, and noise
is discrete. A message in bytes needs that. Layout, little-endian::

    0   4  magic b"dsl" and the version, 1
    4   8  number of the plan
    12  8  digest of the form
    20  .. for each block of the form: one byte w in 1 .. 8, then its integers, w bytes each, signed, where
           w is the least in which all of them fit

The length depends on the noisy integers and on nothing else: it tells no more than the message does.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.device.encoders import checked_life
from discreet.device.messages import Refused
from discreet.device.noise import ExactCoins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Target = Literal["centred", "raw", "raw-nonneg"]

GRAM, RESPONSE = "gram", "response"
SECOND_GRAM, SECOND_RESPONSE = "second_gram", "second_response"
REWARD_GRAM, REWARD_RESPONSE = "reward_gram", "reward_response"
SUCCESSORS, MODEL_REWARDS = "successors", "rewards"
VISITS, CENTERED_REWARDS = "visits", "centered_reward_sums"

FLAT_SPAN = 1e-9  # of b: a smaller range of values contributes nothing
GRID = 2.0**-12  # of contributions under exact noise, in units of a power of two above their bound
MAGIC, HEADER = b"dsl\x01", 20

__all__ = [
    "CENTERED_REWARDS", "FLAT_SPAN", "GRAM", "GRID", "MODEL_REWARDS", "RESPONSE", "REWARD_GRAM",
    "REWARD_RESPONSE", "SECOND_GRAM", "SECOND_RESPONSE", "SUCCESSORS", "VISITS", "GramForm", "LinearCoins",
    "LinearDevice", "MixtureForm", "PairForm", "Prepared", "drawn", "outer", "power_of_two", "projected",
]  # fmt: skip


class LinearCoins(Protocol):
    """A device's draws: :class:`~discreet.device.noise.ExactCoins`, or those of the house."""

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Floats: ...
    def normal(self, scale: float, size: int, grid: int | None = None) -> Floats: ...
    def rounded(self, rewards: Floats, grid: int | None) -> Floats: ...


# ------------------------------------------------------------------------------ contributions


def projected(
    x: NDArray[Any], y: NDArray[Any], bound: ArrayLike, low: ArrayLike, high: ArrayLike
) -> tuple[Floats, Floats]:
    """x (..., d) scaled back to ||x|| <= bound, y (...) clipped to [low, high]; what is not finite becomes 0.

    The map of contributions into their contract: fixed in advance, it never raises.
    """
    x = np.array(x, np.float64)
    x[~np.isfinite(x).all(axis=-1)] = 0.0
    top = np.maximum(np.abs(x).max(axis=-1, initial=0.0, keepdims=True), np.finfo(np.float64).tiny)
    unit = x / top  # norms of it neither overflow nor vanish
    length = np.linalg.norm(unit, axis=-1, keepdims=True)
    far = length > np.asarray(bound) / np.maximum(top, 1e-200)  # that small is inside any bound
    shrunk = unit * (np.asarray(bound) * (1 - 1e-15) / np.where(far, length, 1.0))
    x = np.where(far, shrunk, x)
    y = np.array(y, np.float64)
    return x, np.clip(np.where(np.isfinite(y), y, np.clip(0.0, low, high)), low, high)


def power_of_two(bound: float) -> float:
    """The least power of two that is at least the bound."""
    return 2.0 ** math.ceil(math.log2(bound))


def outer(x: Floats) -> Floats:
    """(n, d (d + 1) / 2) upper triangles of x x^T for rows x (n, d): the diagonal, then what is above it."""
    above = _above(x.shape[1])
    return np.concatenate([x * x, x[:, above[0]] * x[:, above[1]]], axis=1)


@lru_cache(maxsize=8)
def _above(d: int) -> tuple[Ints, Ints]:
    rows, columns = np.triu_indices(d, 1)
    return rows, columns


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan's public arrays as contributions use them: read once from its context, into private copies.

    values : by family of the response, (n, S) what y is at each next state.
    roots : (n, S, A) square roots of weights, of the first pair; None: 1.
    """

    values: Mapping[str, Floats]
    roots: Floats | None = None


@dataclass(frozen=True)
class PairForm:
    """x x^T and x y at steps 0 .. n - 1: names, bounds of ||x||, and the range of y at each."""

    matrix: str
    vector: str
    bounds: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    target: Target

    def target_unit(self, step: int, grid: int) -> float:
        """The unit of y under exact noise."""
        if self.matrix == REWARD_GRAM:
            return 1.0 / grid
        return GRID * power_of_two(self.high[step])


@dataclass(frozen=True, eq=False, kw_only=True)
class _Form:
    """What both kinds share: sizes, the public mask (S, A) of admissible actions, families in order."""

    KIND: ClassVar[str]

    states: int
    actions: int
    horizon: int
    mask: NDArray[np.bool_] | None
    names: tuple[str, ...]

    @cached_property
    def row_table(self) -> Ints:
        """(S, A) 0 where an action is admissible, else -1."""
        if self.mask is None:
            return np.zeros((self.states, self.actions), np.int64)
        return np.where(self.mask, 0, -1).astype(np.int64)

    def to_cells(self, tables: Mapping[str, Floats]) -> Floats:
        """One flat vector."""
        return np.concatenate([np.asarray(tables[name], np.float64).ravel() for name in self.names])


@dataclass(frozen=True, eq=False, kw_only=True)
class MixtureForm(_Form):
    """Contributions of value-targeted regression: see ``MixtureQuery``.

    columns : (S, A, d, S) of the features. targets : "raw", "centred" or "span". bounds : (H - 1) b_{h+1}.
    largest_weight : W. psi : (S A, p) features of rewards, or None. tabular : rewards by pairs.
    """

    KIND: ClassVar[str] = "mixture"

    columns: Floats
    pairs: tuple[PairForm, ...]
    targets: str
    bounds: tuple[float, ...]
    largest_weight: float = 1.0
    psi: Floats | None = None
    tabular: bool = False

    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        """``values`` (H + 1, S), projected to [0, b], centred and scaled; ``weights`` (H - 1, S, A).

        Raises ``ValueError`` if one is missing, of another shape, or not finite.
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
        """One user's summand by family, matrices as their upper triangles; on a grid: integers, in units."""
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
class GramForm(_Form):
    """Contributions of linear MDPs, model form: see ``GramQuery``.

    rows : (S A, d) features. bound : of their norms. steps : that have a Gram matrix.
    """

    KIND: ClassVar[str] = "gram"

    rows: Floats
    bound: float
    steps: int

    def prepared(self, context: Mapping[str, Any]) -> Prepared:
        """Contributions need no context."""
        return Prepared({})

    def tables(
        self, prepared: Prepared, states: Ints, actions: Ints, rewards: Floats, grid: int | None = None
    ) -> dict[str, Floats]:
        """One user's summand by family, matrices as their upper triangles; on a grid: integers, in units."""
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


# ------------------------------------------------------------------------------------- noise


def drawn(
    family: str, scales: Floats, offsets: Ints, coins: LinearCoins, grid: int | None, factor: float = 1.0
) -> Floats:
    """Noise for every cell, block after block; of block i the scale is factor * scales[i]."""
    draw = coins.laplace if family == "laplace" else coins.normal
    sizes = np.diff(offsets).tolist()
    return np.concatenate(
        [draw(factor * scale, size, grid) for scale, size in zip(scales.tolist(), sizes, strict=True)]
    )


@dataclass(frozen=True, eq=False)
class LinearDevice:
    """The form of a local session, and what a device does with it: public, fixed before data.

    Parameters
    ----------
    form : MixtureForm or GramForm
    family : "gaussian" or "laplace"
    offsets : (blocks + 1,) where each block of cells with one scale begins.
    scales : (blocks,) of one device's noise, in ``units``.
    units : (blocks,) of the cells: 1 without a grid.
    grid : of rewards, with exact noise; None: noise in floating point, for simulation.
    session : a number in [0, 2^64) that tells this session from any other one.
    """

    form: MixtureForm | GramForm
    family: str
    offsets: Ints
    scales: Floats
    units: Floats
    grid: int | None = None
    session: int = 0

    def __repr__(self) -> str:
        form, noise = type(self.form).__name__, f"{self.family}, {self.offsets.size - 1} scales"
        grid = "" if self.grid is None else f", grid = {self.grid}"
        return f"<LinearDevice of {form}: {noise}{grid}, session {self.session:#018x}>"

    def cells(
        self, prepared: Prepared, states: Ints, actions: Ints, rewards: Floats, coins: LinearCoins
    ) -> Floats:
        """One user's noisy cells, in units; rounds rewards first, if there is a grid."""
        if self.grid is not None:
            rewards = coins.rounded(rewards, self.grid)
        exact = None if self.grid is None else 1
        noisy = drawn(self.family, self.scales, self.offsets, coins, exact)
        noisy += self.form.to_cells(self.form.tables(prepared, states, actions, rewards, self.grid))
        return noisy

    def __call__(
        self,
        plan: int,
        context: Mapping[str, Any],
        states: Any,
        actions: Any,
        rewards: Any,
        coins: LinearCoins | None = None,
    ) -> bytes:
        """The message to plan ``plan``: states (H + 1,), actions (H,), rewards (H,) in [0, 1].

        By default with the operating system's coins. Raises ``ValueError``, on the device, on a record or
        context out of range, and where the session has no exact noise.
        """
        if self.grid is None:
            raise ValueError("grid = None: a message in bytes needs a session with exact noise (Secure())")
        life = checked_life(self.form, states, actions, rewards)
        own = ExactCoins() if coins is None else coins
        found = self.cells(self.form.prepared(context), life[0], np.asarray(actions, np.int64), life[2], own)
        return self.write(plan, found.astype(np.int64))

    # ------------------------------------------------------------------------------ in bytes
    def write(self, plan: int, cells: Ints) -> bytes:
        """The message with these integers: see the module."""
        parts = [MAGIC, int(plan).to_bytes(8, "little"), self.digest]
        for begin, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            block = cells[begin:end]
            width = next(w for w in range(1, 9) if _fits(block, w))
            parts.append(bytes([width]))
            parts.append(block.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes())
        return b"".join(parts)

    def read(self, plan: int, message: bytes) -> Ints:
        """(cells,) integers of a message to plan ``plan``, or :class:`Refused`."""
        if type(message) is not bytes or len(message) < HEADER or message[:4] != MAGIC:
            raise Refused("malformed", f"must be bytes that begin with {MAGIC!r}")
        if message[12:HEADER] != self.digest:
            raise Refused("foreign", "was made for another session")
        number = int.from_bytes(message[4:12], "little")
        if number != plan:
            raise Refused("late", f"was made for plan {number}, not {plan}")
        found, at = np.empty(int(self.offsets[-1]), np.int64), HEADER
        for begin, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            width = message[at] if at < len(message) else 0
            size = (end - begin) * width
            if not 1 <= width <= 8 or at + 1 + size > len(message):
                raise Refused("malformed", "ends too early, or a width is not in 1 .. 8")
            raw = np.frombuffer(message, np.uint8, size, at + 1).reshape(-1, width)
            block = np.zeros((end - begin, 8), np.uint8)
            block[:, :width] = raw
            block[:, width:] = np.where(raw[:, -1:] >= 128, 255, 0)
            found[begin:end] = block.reshape(-1).view("<i8")
            if width > 1 and _fits(found[begin:end], width - 1):
                raise Refused("malformed", "a block is wider than it must be")
            at += 1 + size
        if at != len(message):
            raise Refused("malformed", "goes on after the last block")
        return found

    @cached_property
    def digest(self) -> bytes:
        """Eight bytes that tell this form from any other one."""
        return hashlib.blake2b(self.to_bytes(), digest_size=8, person=b"discreet/linear").digest()

    def to_bytes(self) -> bytes:
        """The form, to be published: a JSON head and arrays, readable without any code of this package."""
        plain: dict[str, Any] = {"kind": self.form.KIND}
        arrays: list[NDArray[Any]] = []
        for owner, prefix in ((self.form, "form."), (self, "")):
            for field in fields(owner):
                value = getattr(owner, field.name)
                if field.name == "form":
                    continue
                if isinstance(value, np.ndarray):
                    arrays.append(np.ascontiguousarray(value, _KINDS[value.dtype.kind]))
                    value = {"array": [_KINDS[value.dtype.kind], list(value.shape)]}
                elif field.name == "pairs":
                    value = [[getattr(pair, part.name) for part in fields(pair)] for pair in value]
                plain[prefix + field.name] = value
        head = json.dumps(plain, sort_keys=True).encode()
        return b"".join([MAGIC, len(head).to_bytes(8, "little"), head, *(a.tobytes() for a in arrays)])

    @classmethod
    def from_bytes(cls, published: bytes) -> LinearDevice:
        """The other way. Raises ``ValueError`` if the bytes are not such a form."""
        try:
            return cls._from_bytes(published)
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            raise ValueError(
                f"published: must be the bytes of LinearDevice.to_bytes() ({error!r})"
            ) from error

    @classmethod
    def _from_bytes(cls, published: bytes) -> LinearDevice:
        if published[:4] != MAGIC:
            raise ValueError(f"begins with {published[:4]!r}")
        at = 12 + int.from_bytes(published[4:12], "little")
        plain = json.loads(published[12:at])
        kind = next(one for one in (MixtureForm, GramForm) if plain["kind"] == one.KIND)
        parts: dict[str, dict[str, Any]] = {"form.": {}, "": {}}
        for owner, prefix in ((kind, "form."), (cls, "")):
            for field in fields(owner):
                if field.name == "form":
                    continue
                value = plain[prefix + field.name]
                if isinstance(value, dict):
                    dtype, shape = value["array"]
                    size = math.prod(shape)
                    value = np.frombuffer(published, dtype, size, at).reshape(shape)
                    at += value.nbytes
                elif field.name == "pairs":
                    value = tuple(PairForm(*(_tuples(part) for part in pair)) for pair in value)
                parts[prefix][field.name] = _tuples(value)
        if at != len(published):
            raise ValueError(f"has {len(published)} bytes in place of {at}")
        return cls(form=kind(**parts["form."]), **parts[""])


_KINDS = {"f": "<f8", "i": "<i8", "b": "|b1"}


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _fits(block: Ints, width: int) -> bool:
    """Are all of them in the range of signed integers of so many bytes?"""
    half = 1 << (8 * width - 1)
    return bool(block.size == 0 or (block.min() >= -half and block.max() <= half - 1))
