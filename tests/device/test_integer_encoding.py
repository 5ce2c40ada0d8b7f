"""Vectors of integers as bytes: the least width, both ends of each, and nothing else is read."""

import numpy as np
import pytest

from discreet.device.integer_encoding import packed, unpacked
from discreet.device.message_envelope import MessageRejected


@pytest.mark.parametrize("width", range(1, 9))
def test_each_width_holds_both_of_its_ends_and_no_more(width: int) -> None:
    half = 1 << (8 * width - 1)
    offsets = np.array([0, 2])
    payload = packed(np.array([-half, half - 1]), offsets)
    assert payload == bytes([width]) + b"".join(
        n.to_bytes(width, "little", signed=True) for n in (-half, half - 1)
    )
    assert unpacked(payload, offsets).tolist() == [-half, half - 1]
    if width < 8:
        assert packed(np.array([0, half]), offsets)[0] == width + 1
        assert packed(np.array([-half - 1, 0]), offsets)[0] == width + 1


def test_blocks_have_widths_of_their_own() -> None:
    cells, offsets = np.array([1, -1, 300, 0, 2**40]), np.array([0, 2, 2, 4, 5])
    payload = packed(cells, offsets)
    assert len(payload) == (1 + 2) + 1 + (1 + 4) + (1 + 6)
    np.testing.assert_array_equal(unpacked(payload, offsets), cells)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "ends too early"),
        (b"\x00", "ends too early"),
        (b"\x09" + bytes(9), "ends too early"),
        (b"\x01", "ends too early"),
        (b"\x02\x01\x00", "wider than it must be"),
        (b"\x01\x01\x00", "goes on"),
    ],
)
def test_bytes_that_nothing_writes_are_refused(payload: bytes, words: str) -> None:
    with pytest.raises(MessageRejected, match=words):
        unpacked(payload, np.array([0, 1]))
