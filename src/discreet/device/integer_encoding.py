"""Encoding of vectors of noisy integers as bytes: the payload of messages with counts or linear sums.

A block is a run of cells whose noise has the same scale. It is written as one byte w, from 1 to 8, followed
by the integers of the block with w bytes each. Integers are signed (two's complement) and little-endian. The
number w is the smallest width in which all integers of the block fit. The length of the payload depends only
on the noisy integers, so it reveals no more than these integers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.device.message_envelope import MessageRejected

Ints = NDArray[np.int64]

__all__ = ["packed", "unpacked"]


def packed(cells: Ints, offsets: Ints) -> bytes:
    """Encode (cells,) integers as bytes, block by block.

    ``offsets`` (blocks + 1,) contains the first cell of each block and the number of cells.
    """
    parts = []
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        block = cells[begin:end]
        width = next(w for w in range(1, 9) if _fits(block, w))
        parts.append(bytes([width]))
        parts.append(block.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes())
    return b"".join(parts)


def unpacked(payload: bytes, offsets: Ints) -> Ints:
    """Decode the (cells,) integers that :func:`packed` has encoded.

    Raises :class:`~discreet.device.message_envelope.MessageRejected` for bytes that :func:`packed` never
    returns.
    """
    found, at = np.empty(int(offsets[-1]), np.int64), 0
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        width = payload[at] if at < len(payload) else 0
        size = (end - begin) * width
        if not 1 <= width <= 8 or at + 1 + size > len(payload):
            raise MessageRejected("malformed", "ends too early, or a width is not in 1 .. 8")
        raw = np.frombuffer(payload, np.uint8, size, at + 1).reshape(-1, width)
        block = np.zeros((end - begin, 8), np.uint8)
        block[:, :width] = raw
        block[:, width:] = np.where(raw[:, -1:] >= 128, 255, 0)
        found[begin:end] = block.reshape(-1).view("<i8")
        if width > 1 and _fits(found[begin:end], width - 1):
            raise MessageRejected("malformed", "a block is wider than it must be")
        at += 1 + size
    if at != len(payload):
        raise MessageRejected("malformed", "goes on after the last block")
    return found


def _fits(block: Ints, width: int) -> bool:
    """Return True if all values are in the range of signed integers of ``width`` bytes."""
    half = 1 << (8 * width - 1)
    return bool(block.size == 0 or (block.min() >= -half and block.max() <= half - 1))
