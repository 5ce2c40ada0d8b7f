r"""One user's message of the shuffle protocol, in bytes: layout, packing, and a strict reader.

What a message says. For every counter of a batch the user has ``own`` bits of her own (one; two for a
centred reward) and ``flips`` bits of noise. Only how many of these bits are 1 leaves the device: the bits
of a counter are interchangeable, so that is all that shuffling them would leave anyway.

Layout, little-endian, the size of which is public and the same for every user of a batch::

    0   4  magic b"dsb" and the version, 1
    4   8  number of the plan that the user was given
    12  8  digest of the form (:class:`Form`): sizes, families, flips, and the session
    20  16 nonce: fresh random bytes; a message that comes twice is counted once
    36  .. for each family in order: the number of ones of each counter, a digit in [0, own + flips],
           packed in base own + flips + 1 into words of 64 bits, the first digit the lowest; as many digits in
           a word as fit; the last word of a family is filled up with digits 0

A packing that wrote only the ones would be shorter where they are few, and its length would tell how many.
The reader refuses whatever is not exactly of this form, digits beyond the base included: nobody can shift a
counter by more than the bits that one user has.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

MAGIC = b"dsb\x01"
HEADER = 36
NONCE = 16
COIN = 2**32  # probabilities of noise bits are multiples of 1 / COIN

Kind = Literal["visits", "transitions", "rewards", "centered_rewards"]
KINDS: tuple[Kind, ...] = ("visits", "transitions", "rewards", "centered_rewards")
Reason = Literal["malformed", "foreign", "late", "replayed", "full"]

__all__ = [
    "COIN", "HEADER", "KINDS", "NONCE", "Family", "Form", "Kind", "Reason", "Refused", "check_header", "pack",
    "read", "unpack", "write",
]  # fmt: skip


class Refused(ValueError):
    """A message that was not added. ``reason`` : malformed, foreign, late, replayed, or full."""

    def __init__(self, reason: Reason, words: str) -> None:
        super().__init__(f"message: {words}")
        self.reason: Reason = reason


def _integer(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ValueError(f"{name} = {value!r}: must be an integer in [{low}, {high}]")
    return int(value)


@dataclass(frozen=True)
class Family:
    """One family of counters, and the noise that each user adds to each of them.

    Parameters
    ----------
    kind : what is counted: "visits" (h, s, a), "transitions" (h, s, a, s'), "rewards" or "centered_rewards"
        (h, s, a), rounded at random to bits.
    flips : m >= 1, noise bits of one user in one counter.
    coin : in [1, 2^31]; a noise bit is 1 with probability coin / 2^32.
    paired : the second half of an even number of flips is 1 with probability 1 - coin / 2^32 instead: then
        the noise is symmetric. Always so for centred rewards.
    """

    kind: Kind
    flips: int
    coin: int
    paired: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}: must be one of {', '.join(KINDS)}")
        object.__setattr__(self, "flips", _integer("flips", self.flips, 1, 2**31))
        object.__setattr__(self, "coin", _integer("coin", self.coin, 1, COIN // 2))
        if (self.kind == "centered_rewards") != self.paired:
            raise ValueError(f"paired = {self.paired!r}: must be true for centred rewards, false for others")
        if self.paired and self.flips % 2:
            raise ValueError(f"flips = {self.flips}: must be even where they are paired")

    @property
    def own(self) -> int:
        """Bits of the user's own in one counter: a centred reward has two, (0, 1) or (y, y)."""
        return 2 if self.kind == "centered_rewards" else 1

    @property
    def messages(self) -> int:
        """Bits that one user sends for one counter."""
        return self.own + self.flips

    @property
    def mean(self) -> float:
        """Expected number of ones among one user's noise bits of a counter."""
        return 0.5 * self.flips if self.paired else self.flips * self.coin / COIN

    @cached_property
    def powers(self) -> NDArray[np.uint64]:
        """(k,) what the digits of a word of 64 bits stand for: as many as fit."""
        base, most = self.messages + 1, 1
        while base ** (most + 1) <= 2**64:
            most += 1
        return np.array([base**j for j in range(most)], np.uint64)

    @property
    def digits(self) -> int:
        """How many counters fit into a word of 64 bits."""
        return int(self.powers.size)


@dataclass(frozen=True)
class Form:
    """All that a device must know to make its message, and a shuffler to read it: public, fixed before data.

    Parameters
    ----------
    states, actions, horizon : S, A, H.
    families : in the order of the message.
    rows : (S, A) row numbers, -1 where the action is not admissible, as tuples; None: every action is, and
        row = s A + a.
    session : a number in [0, 2^64) that tells this session from any other one.
    step : h in [0, H): only the counters of that step are sent; None: those of every step.
    """

    states: int
    actions: int
    horizon: int
    families: tuple[Family, ...]
    rows: tuple[tuple[int, ...], ...] | None = None
    session: int = 0
    step: int | None = None

    def __post_init__(self) -> None:
        for name in ("states", "actions", "horizon"):
            object.__setattr__(self, name, _integer(name, getattr(self, name), 1, 2**31))
        object.__setattr__(self, "session", _integer("session", self.session, 0, 2**64 - 1))
        if self.step is not None:
            object.__setattr__(self, "step", _integer("step", self.step, 0, self.horizon - 1))
        object.__setattr__(self, "families", tuple(self.families))
        if not self.families or len({family.kind for family in self.families}) < len(self.families):
            raise ValueError("families: must hold at least one, and none of them twice")
        if self.rows is not None:
            table = np.array(self.rows)
            given = np.sort(table[table >= 0]) if table.shape == (self.states, self.actions) else table[:0]
            if not given.size or not np.array_equal(given, np.arange(given.size)):
                raise ValueError(f"rows: must number the admissible pairs of {(self.states, self.actions)}")

    @cached_property
    def row_table(self) -> NDArray[np.int64]:
        """(S, A) the row of each pair; -1: not admissible."""
        if self.rows is None:
            return np.arange(self.states * self.actions, dtype=np.int64).reshape(self.states, self.actions)
        return np.array(self.rows, np.int64)

    @cached_property
    def pairs(self) -> int:
        """Admissible (state, action)."""
        return int((self.row_table >= 0).sum())

    @cached_property
    def counters(self) -> tuple[int, ...]:
        """Counters of each family."""
        pairs = (self.horizon if self.step is None else 1) * self.pairs
        return tuple(pairs * (self.states if f.kind == "transitions" else 1) for f in self.families)

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """First counter of each family in the flat vector, then how many there are in all."""
        return tuple(int(x) for x in np.concatenate([[0], np.cumsum(self.counters)]))

    @cached_property
    def digest(self) -> bytes:
        """Eight bytes that tell this form from any other one."""
        facts = (self.states, self.actions, self.horizon, self.families, self.rows, self.session)
        text = repr(facts if self.step is None else (*facts, self.step))
        return hashlib.blake2b(text.encode(), digest_size=8, person=b"discreet/form").digest()

    @cached_property
    def words(self) -> tuple[int, ...]:
        """Words of 64 bits that each family takes."""
        return tuple(-(-n // f.digits) for n, f in zip(self.counters, self.families, strict=True))

    @cached_property
    def size(self) -> int:
        """Bytes of every message."""
        return HEADER + 8 * sum(self.words)


def pack(form: Form, ones: NDArray[np.int64]) -> NDArray[np.uint64]:
    """(words,) the packed digits of (counters,) numbers of ones."""
    parts = []
    for i, family in enumerate(form.families):
        digits = np.zeros((form.words[i], family.digits), np.uint64)
        digits.ravel()[: form.counters[i]] = ones[form.begins[i] : form.begins[i + 1]]
        parts.append(digits @ family.powers)
    return np.concatenate(parts)


def write(form: Form, plan: int, ones: NDArray[np.int64], nonce: bytes) -> bytes:
    """The message of one user: :func:`pack` behind the header."""
    number = _integer("plan", plan, 0, 2**64 - 1)
    if len(nonce) != NONCE:
        raise ValueError(f"nonce has {len(nonce)} bytes: must have {NONCE}")
    head = MAGIC + number.to_bytes(8, "little") + form.digest + nonce
    return head + pack(form, ones).astype("<u8").tobytes()


def unpack(form: Form, words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(n, words) to (n, counters) numbers of ones, and (n,) whether a message is well formed."""
    n = words.shape[0]
    ones = np.empty((n, form.begins[-1]), np.int64)
    good = np.ones(n, bool)
    at = 0
    for i, family in enumerate(form.families):
        k, base = family.digits, np.uint64(family.messages + 1)
        rest = words[:, at : at + form.words[i]]
        at += form.words[i]
        digits = np.empty((n, form.words[i], k), np.int64)
        for j in range(k):
            quotient = rest // base
            digits[:, :, j] = rest - quotient * base
            rest = quotient
        flat = digits.reshape(n, -1)
        good &= ~rest.any(axis=1) & ~flat[:, form.counters[i] :].any(axis=1)
        ones[:, form.begins[i] : form.begins[i + 1]] = flat[:, : form.counters[i]]
    return ones, good


def check_header(form: Form, plan: int, message: bytes) -> None:
    """Raise :class:`Refused` unless a message has the size and the header of the plan that is open."""
    if type(message) is not bytes or len(message) != form.size or message[:4] != MAGIC:
        raise Refused("malformed", f"must be {form.size} bytes that begin with {MAGIC!r}")
    if message[12:20] != form.digest:
        raise Refused("foreign", "was made for another session or batch")
    if int.from_bytes(message[4:12], "little") != plan:
        raise Refused("late", f"was made for plan {int.from_bytes(message[4:12], 'little')}, not {plan}")


def read(form: Form, plan: int, message: bytes) -> tuple[bytes, NDArray[np.int64]]:
    """The nonce and the (counters,) numbers of ones of a message to the open plan, or :class:`Refused`."""
    check_header(form, plan, message)
    words = np.frombuffer(message, "<u8", offset=HEADER).astype(np.uint64)
    ones, good = unpack(form, words[None])
    if not good[0]:
        raise Refused("malformed", "a counter has more ones than a user has bits")
    return message[20:HEADER], ones[0]
