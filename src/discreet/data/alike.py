"""Names of people that differ by spaces, case or leading zeros only: perhaps one person, counted as two.

A user is protected as one name. Whoever is in a file as ``7`` and as ``07`` is two people to every mechanism,
and is protected half as well as the statement says. Nobody but the data's owner knows whether two such names
are one person, so nothing is merged unasked: names that fold to one text are counted, and the count, never a
name, is told.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.data import kernels

__all__ = ["Alike", "Folded", "distinct", "folded", "hashed"]


def folded(names: Any) -> Any:
    """Text without spaces at its ends, in lower case, its numbers without leading zeros: P007 is p7."""
    low = pc.utf8_lower(pc.utf8_trim_whitespace(names.cast(pa.large_string())))
    return pc.replace_substring_regex(low, r"(^|[^0-9])0+([0-9])", r"\1\2")


def hashed(keys: Any) -> NDArray[np.uint64]:
    """(n,) numbers as they are, and hashes of texts: equal keys have equal ones."""
    if pa.types.is_integer(keys.type):
        return np.asarray(keys.to_numpy(zero_copy_only=False)).view(np.uint64)
    out = np.empty(len(keys), np.uint64)
    kernels.hash_texts(*_letters(keys.cast(pa.large_string())), out)
    return out


def _letters(texts: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """(n + 1,) where each text begins and ends, and the bytes of all."""
    if not len(texts):  # Arrow may hold nothing at all
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, offsets, letters = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return ends, np.empty(0, np.uint8) if letters is None else np.frombuffer(letters, np.uint8)


def distinct(values: NDArray[np.uint64]) -> int:
    """How many different ones there are; by sorting, many times faster than :func:`numpy.unique`'s table."""
    ordered = np.sort(values)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, ordered.size)


@dataclass(frozen=True)
class Folded:
    """Hashes of folded names, and whether folding changed any."""

    hashes: NDArray[np.uint64]
    differ: bool


class Alike:
    """Counts names that look like another one. Holds 8 bytes a person, none of them a name."""

    def __init__(self) -> None:
        self._hashes: list[NDArray[np.uint64]] = []
        self._differ = False

    @staticmethod
    def looked_at(names: Any) -> Folded:
        """Of an Arrow array of names, in any thread."""
        if pa.types.is_integer(names.type) or not len(names):  # numbers cannot look alike
            return Folded(np.empty(0, np.uint64), False)
        texts = names.cast(pa.large_string())
        ends, letters = _letters(texts)
        if (letters[ends[0] : ends[-1]] < 128).all():
            out = np.empty(len(texts), np.uint64)
            differ = kernels.hash_folded(ends, letters, out)
            return Folded(out, differ)
        plain = folded(texts)
        return Folded(hashed(plain), not plain.equals(texts))

    def add(self, names: Any) -> None:
        """An Arrow array of names; each person once over all calls."""
        self.take(self.looked_at(names))

    def take(self, names: Folded) -> None:
        """The same, of names that were looked at before."""
        self._hashes.append(names.hashes)
        self._differ |= names.differ

    @property
    def count(self) -> int:
        """People whose name looks like that of somebody before them."""
        if not self._differ:
            return 0
        every = np.concatenate(self._hashes)
        return every.size - distinct(every)

    def warn(self, unit: str, column: str) -> None:
        """Say it, if there are any."""
        count = self.count
        if count:
            warnings.warn(
                f"{count:,} of the names in {column!r} differ from another one by spaces, case or leading "
                f"zeros only: if they are one {unit}, that {unit} counts as two and is protected half as "
                "well; write names in one way",
                UserWarning,
                stacklevel=2,
            )
