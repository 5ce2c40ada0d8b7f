"""Hashes of texts, against FNV-1a and splitmix64 in Python's integers."""

import numpy as np

from discreet.data.row_kernels import hash_texts


def slow(text: bytes) -> int:
    word, last = 0xCBF29CE484222325, 2**64 - 1
    for letter in text:
        word = ((word ^ letter) * 0x100000001B3) & last
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & last
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & last
    return word ^ (word >> 31)


def test_hashes_of_texts_are_those_of_their_bytes() -> None:
    texts = [b"", b"a", b"ab", "ä".encode(), bytes(range(256))]
    ends = np.cumsum([0, *map(len, texts)])
    out = np.zeros(len(texts), np.uint64)
    hash_texts(ends, np.frombuffer(bytearray(b"".join(texts)), np.uint8), out)
    assert out.tolist() == [slow(text) for text in texts]
