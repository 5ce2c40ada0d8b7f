"""Published bytes of a form. Readers do not need the code of this package.

A form contains all information that a device needs to encode a message. It is public and is fixed before any
data are seen. Its bytes have the following layout. Integers are little-endian and unsigned::

    0   4  magic b"dscf"
    4   1  version of this layout, 1
    5   3  zero
    8   4  n, the number of bytes of the head

    12  n  head: JSON object in UTF-8 with "kind" (a string), "fields" (an object) and "arrays" (a list)
    .   .  the arrays, one after the other

An entry of "arrays" is [name of its field, type, shape]. The type is "<f8" (64-bit floats), "<i8" (64-bit
signed integers) or "|b1" (one byte per flag). The elements are in C order. **The digest of a form** is the
first 16 bytes of the SHA-256 hash of the form's bytes. A device computes it from the form that it received,
and writes it into every envelope.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from discreet.device.message_envelope import DIGEST, integer

MAGIC, VERSION, HEADER = b"dscf", 1, 12
_TYPES = {"f": "<f8", "i": "<i8", "b": "|b1"}

__all__ = ["MAGIC", "OfPairs", "Published", "built", "published", "taken_apart", "tuples"]


def published(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a form with these fields.

    Each field is a simple value (number, text, flag, None, or tuple of such values) or an array.
    """
    arrays: list[list[Any]] = []
    plain, parts = {}, []
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            kept = np.ascontiguousarray(value, _TYPES[value.dtype.kind])
            arrays.append([name, _TYPES[value.dtype.kind], list(kept.shape)])
            parts.append(kept.tobytes())
        else:
            plain[name] = value
    head = {"kind": kind, "fields": plain, "arrays": arrays}
    text = json.dumps(head, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    start = MAGIC + bytes([VERSION, 0, 0, 0]) + len(text).to_bytes(4, "little")
    return b"".join([start, text, *parts])


def taken_apart(data: bytes, kinds: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the kind and the fields of a form from its bytes.

    Lists become tuples, and arrays are read-only. Raises ``ValueError`` if the bytes are not a form of one of
    these kinds.
    """
    try:
        return _taken_apart(bytes(data), kinds)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"published: must be the bytes of a form of {' or '.join(kinds)}, as to_bytes() writes ({error})"
        ) from None


def _taken_apart(data: bytes, kinds: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    if data[:8] != MAGIC + bytes([VERSION, 0, 0, 0]) or len(data) < HEADER:
        raise ValueError(f"begins with {data[:8]!r}")
    at = HEADER + int.from_bytes(data[8:HEADER], "little")
    head = json.loads(data[HEADER:at].decode())
    if set(head) != {"kind", "fields", "arrays"} or head["kind"] not in kinds:
        raise ValueError("its head is another one")
    fields: dict[str, Any] = {name: tuples(value) for name, value in head["fields"].items()}
    for name, dtype, shape in head["arrays"]:
        if name in fields or dtype not in _TYPES.values():
            raise ValueError(f"array {name!r} of {dtype!r}")
        size = math.prod(integer("shape", n, 0, 2**40) for n in shape)
        found: NDArray[Any] = np.frombuffer(data, dtype, size, at).reshape(shape)
        fields[name] = found
        at += found.nbytes
    if at != len(data):
        raise ValueError(f"has {len(data)} bytes instead of {at}")
    return head["kind"], fields


class Published(ABC):
    """Base class of forms that can be published as bytes."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the form as bytes to publish."""

    @cached_property
    def digest(self) -> bytes:
        """Digest of the form: 16 bytes that identify it."""
        return hashlib.sha256(self.to_bytes()).digest()[:DIGEST]


class OfPairs(Published):
    """Base class of forms that number the admissible pairs (state, action). The numbers are called rows."""

    states: int
    actions: int
    horizon: int
    rows: tuple[tuple[int, ...], ...] | None  # (S, A), -1 if not admissible. If None, the row is s A + a.
    session: int
    step: int | None

    def check_sizes(self) -> None:
        """Check the sizes and convert them to Python integers.

        Raises ``ValueError`` if a size is out of range, or if the rows are not numbered 0, 1, ...
        """
        put = object.__setattr__
        for name in ("states", "actions", "horizon"):
            put(self, name, integer(name, getattr(self, name), 1, 2**31))
        put(self, "session", integer("session", self.session, 0, 2**64 - 1))
        if self.step is not None:
            put(self, "step", integer("step", self.step, 0, self.horizon - 1))
        if self.rows is not None:
            table = np.array(self.rows)
            given = np.sort(table[table >= 0]) if table.shape == (self.states, self.actions) else table[:0]
            if not given.size or not np.array_equal(given, np.arange(given.size)):
                raise ValueError(f"rows: must number the admissible pairs of {(self.states, self.actions)}")

    @cached_property
    def row_table(self) -> NDArray[np.int64]:
        """(S, A) array of the row of each pair, -1 for inadmissible pairs."""
        if self.rows is None:
            return np.arange(self.states * self.actions, dtype=np.int64).reshape(self.states, self.actions)
        return np.array(self.rows, np.int64)

    @cached_property
    def pairs(self) -> int:
        """Number of admissible pairs (state, action)."""
        return int((self.row_table >= 0).sum())

    @property
    def counted(self) -> int:
        """Number of steps that can be counted or reported: 1 if ``step`` is given, and otherwise H."""
        return self.horizon if self.step is None else 1


Built = TypeVar("Built", bound=Published)


def built(kind: Callable[..., Built], fields: Mapping[str, Any], data: bytes) -> Built:
    """Create a form from the fields of a published document.

    The field "session" is a number in hexadecimal digits. The form must publish exactly the bytes ``data``,
    so that each form has only one digest. Raises ``ValueError`` if it does not, or if ``kind`` has other
    fields.
    """
    try:
        found = kind(**{**fields, "session": int(fields["session"], 16)})
        same = found.to_bytes() == bytes(data)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"published: is not a form of its kind ({error!r})") from None
    if not same:
        raise ValueError("published: is not written as to_bytes() writes it")
    return found


def tuples(value: Any) -> Any:
    """Convert all lists in a value to tuples, including nested lists."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value
