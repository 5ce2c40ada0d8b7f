r"""Envelope around the payload of every message that a device sends.

A message is bytes with the following layout. Integers are little-endian and unsigned::

    0   4  magic b"dscr"
    4   1  version of this layout, 1
    5   1  kind of the payload: 1 counts, 2 reports, 3 bits, 4 sums
    6   2  zero

    8   8  number of the user's plan
    16  16 digest of the form that the payload was made for (:mod:`discreet.device.session_config`)
    32  16 nonce: fresh random bytes of the device

    48  4  n, the number of bytes of the payload
    52  n  payload
    .   4  CRC-32 (the variant of zlib and PNG) of all preceding bytes

The payloads are defined by their modules: counts in :mod:`discreet.device.count_device`, reports in
:mod:`discreet.device.randomized_response_device`, bits in :mod:`discreet.device.shuffle_payload`, sums in
:mod:`discreet.device.linear_device`. A reader rejects all bytes that do not have exactly this layout. The
last four bytes (a CRC-32) detect any single bit that was flipped in transmission. They protect against
accidents and not against forgery, because anyone can compute a CRC-32.

**Repeated messages.** A device that loses the connection sends the same bytes again. A session accepts each
pair (number of the plan, nonce) only once, even after the session is saved and loaded again. For a copy, the
session raises :class:`MessageRejected` with the reason ``replayed``, and a service answers "already counted".
A device keeps the bytes until it has an answer. It never encodes the same trajectory twice. Otherwise, the
privacy losses of two messages about one trajectory would be added. The nonce distinguishes a repeated message
from a second message. It does not identify the sender. Therefore the service must ensure that every user
sends only one message. If all devices follow the protocol, the probability that two of n messages have the
same nonce is below n^2 / 2^129.

**The envelope adds nothing to the privacy loss.** Write m for the payload, x for the trajectory, and v for
the nonce. The nonce is drawn from randomness that is independent of the data and of all other random draws.
Therefore P(m, v | x) = P(m | x) P(v). It follows that every ratio P(m, v | x) / P(m, v | x') and every
divergence has the same value as for the payload. The rest of the envelope is a function of public values
(kind, plan, form) and of the payload (its length and the CRC-32). The envelope does not contain the sender or
the time, but the network connection can reveal them.

In the shuffle model, the nonce would link a message to the connection that delivered it. The shuffler removes
the whole envelope, including the nonce. It releases only sums over a batch.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION = b"dscr", 1
HEADER, TAIL = 52, 4
NONCE = DIGEST = 16
MOST_BYTES = 2**32 - 1  # largest payload, in bytes

Kind = Literal["counts", "reports", "bits", "sums"]
KINDS: tuple[Kind, ...] = ("counts", "reports", "bits", "sums")  # the codes of the kinds start at 1
Reason = Literal["malformed", "foreign", "late", "replayed", "full"]

__all__ = [
    "DIGEST", "HEADER", "KINDS", "MAGIC", "NONCE", "TAIL", "VERSION", "Envelope", "Kind", "MessageRejected",
    "Reason", "WordCoins", "drawn_nonce", "integer", "opened",
]  # fmt: skip


class MessageRejected(ValueError):
    """Error that is raised if a message is rejected.

    ``reason`` is malformed, foreign, late, replayed, or full. ``words`` describes the reason.
    """

    def __init__(self, reason: Reason, words: str) -> None:
        super().__init__(f"message: {words}")
        self.reason: Reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, str(self).removeprefix("message: "))


class WordCoins(Protocol):
    """Interface of random generators that draw words of 64 bits."""

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` independent uniform words of 64 bits."""


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Check that ``value`` is an integer in [low, high], and return it. Raises ``ValueError`` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ValueError(f"{name} = {value!r}: must be an integer in [{low}, {high}]")
    return int(value)


def drawn_nonce(coins: WordCoins) -> bytes:
    """Draw the 16 random bytes of a nonce. Call this function after all draws for the payload."""
    return np.asarray(coins.words(NONCE // 8)).astype("<u8").tobytes()


@dataclass(frozen=True)
class Envelope:
    """Message as an object: kind of the payload, plan, digest of the form, nonce and payload.

    Parameters
    ----------
    kind : "counts", "reports", "bits" or "sums".
    plan : number of the user's plan, in [0, 2^64).
    form : digest of the form, 16 bytes.
    nonce : random bytes of the device, 16 bytes.
    payload : at most 2^32 - 1 bytes.

    Raises
    ------
    ValueError
        If a value is not allowed.
    """

    kind: Kind
    plan: int
    form: bytes
    nonce: bytes
    payload: bytes

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}: must be one of {', '.join(KINDS)}")
        object.__setattr__(self, "plan", integer("plan", self.plan, 0, 2**64 - 1))
        for name, size in (("form", DIGEST), ("nonce", NONCE)):
            value = getattr(self, name)
            if type(value) is not bytes or len(value) != size:
                raise ValueError(f"{name} = {value!r}: must be {size} bytes")
        if type(self.payload) is not bytes or len(self.payload) > MOST_BYTES:
            raise ValueError(f"payload: must be at most {MOST_BYTES} bytes")

    def __repr__(self) -> str:
        return (
            f"<Envelope of {self.kind}: plan {self.plan}, form {self.form.hex()}, nonce {self.nonce.hex()}, "
            f"{len(self.payload)} bytes>"
        )

    def to_bytes(self) -> bytes:
        """Return the bytes of the message."""
        head = b"".join(
            [
                MAGIC, bytes([VERSION, KINDS.index(self.kind) + 1, 0, 0]), self.plan.to_bytes(8, "little"),
                self.form, self.nonce, len(self.payload).to_bytes(4, "little"),
            ]
        )  # fmt: skip
        check = zlib.crc32(self.payload, zlib.crc32(head))
        return b"".join([head, self.payload, check.to_bytes(4, "little")])

    @classmethod
    def from_bytes(cls, message: Any) -> Envelope:
        """Parse a message.

        Raises :class:`MessageRejected` with the reason ``malformed`` for bytes that :meth:`to_bytes` never
        returns.
        """
        if type(message) is not bytes or len(message) < HEADER + TAIL or message[:4] != MAGIC:
            raise MessageRejected(
                "malformed", f"must be at least {HEADER + TAIL} bytes that begin with {MAGIC!r}"
            )
        version, code, *zeros = message[4:8]
        if version != VERSION:
            raise MessageRejected("malformed", f"is of version {version}: this reader knows {VERSION}")
        if not 1 <= code <= len(KINDS) or any(zeros):
            raise MessageRejected(
                "malformed", f"kind {code}: must be in 1 .. {len(KINDS)}, and zeros after it"
            )
        size = int.from_bytes(message[48:HEADER], "little")
        if len(message) != HEADER + size + TAIL:
            raise MessageRejected(
                "malformed", f"has {len(message)} bytes: its header says {HEADER + size + TAIL}"
            )
        if zlib.crc32(message[:-TAIL]) != int.from_bytes(message[-TAIL:], "little"):
            raise MessageRejected(
                "malformed", "was changed on the way: its last four bytes are not its CRC-32"
            )
        plan = int.from_bytes(message[8:16], "little")
        return cls(KINDS[code - 1], plan, message[16:32], message[32:48], message[HEADER:-TAIL])


def opened(message: Any, kind: Kind, form: bytes, plan: int) -> Envelope:
    """Parse a message of plan ``plan`` that was encoded for the form with digest ``form``.

    Raises :class:`MessageRejected` with the first reason that applies: malformed, foreign (encoded for
    another session or other parameters), or late (encoded for another plan).
    """
    found = Envelope.from_bytes(message)
    if found.kind != kind or found.form != form:
        raise MessageRejected("foreign", "was made for another session or batch, or for other parameters")
    if found.plan != plan:
        raise MessageRejected("late", f"was made for plan {found.plan}, not {plan}")
    return found
