"""Functions that match cell texts to declared texts, and words that mean an empty cell.

A text matches the declared text that is identical. Otherwise, it matches a declared text with the same
meaning if there is exactly one. Examples of texts with the same meaning are ``True``, ``TRUE`` and ``true``,
or ``1``, ``1.`` and ``1.0``; programs write whole numbers like this if a column has gaps. Parquet holds such
cells with a type, CSV without one; both are read in the same way. Case, inner spaces and leading zeros are
never repaired: ``01`` and ``1`` can be different codes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["NOTHING", "SENTINELS", "positions", "usual"]

NOTHING = (
    ".", "..", "?", "-", "--", "*", "<NA>", "<na>", "na", "Na", "n/a", "N/a", "n.a.", "N.A.", "#N/A", "#NA",
    "#NULL!", "\\N", "NaT", "nil", "none", "NONE", "Null", "missing", "Missing", "MISSING", "unknown",
    "Unknown", "UNKNOWN",
)  # fmt: skip
"""Words that often mean an empty cell; they are read as one only if declared."""

SENTINELS = (-9.0, *(-float(digit * length) for digit in "987" for length in range(2, 7)))
"""Numbers that often mean an empty cell: -9, -99, -88, -77, -999 and so on."""

_WHOLE = re.compile(r"([+-]?\d+)\.0*")


def usual(text: str) -> str:
    """Return the usual form of a truth value or a whole number; any other text unchanged."""
    if text.lower() in ("true", "false"):
        return text.lower()
    found = _WHOLE.fullmatch(text)
    return text if found is None else found.group(1)


def positions(texts: Any, declared: Sequence[str]) -> NDArray[np.int64]:
    """Return (n,) indices of the declared texts that the texts of an Arrow array match; -1 for none."""
    index = pc.index_in(texts, value_set=pa.array(declared, pa.large_string()))
    found = pc.fill_null(index.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero((found < 0) & texts.is_valid().to_numpy(zero_copy_only=False))
    if not len(rest):
        return np.asarray(found)
    meant: dict[str, int] = {}
    for number, text in enumerate(declared):
        key = usual(text)
        meant[key] = -1 if key in meant else number  # texts with equal meaning must match as written
    others = texts.take(pa.array(rest)).dictionary_encode()
    own = np.array([meant.get(usual(word), -1) for word in others.dictionary.to_pylist()], np.int64)
    found = found.copy()
    found[rest] = own[others.indices.to_numpy(zero_copy_only=False)]
    return np.asarray(found)
