"""Texts of cells against declared texts, and words that stand for an empty cell.

A text matches the declared text that is written the same. Otherwise it matches the only declared text that
means the same: ``True``, ``TRUE`` and ``true``; ``1``, ``1.`` and ``1.0``, as programs write whole numbers of
a column that had gaps. Parquet holds such cells with a type, CSV does not, and both are read
alike. Case, spaces within and leading zeros are never repaired: ``01`` and ``1`` may be two codes.
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
"""Words that often stand for an empty cell and are not read as one unless they are declared."""

SENTINELS = (-9.0, *(-float(digit * length) for digit in "987" for length in range(2, 7)))
"""Numbers that often stand for an empty cell: -9, -99, -88, -77, -999 and so on."""

_WHOLE = re.compile(r"([+-]?\d+)\.0*")


def usual(text: str) -> str:
    """Return the usual way to write a truth value or a whole number; any other text as it is."""
    if text.lower() in ("true", "false"):
        return text.lower()
    found = _WHOLE.fullmatch(text)
    return text if found is None else found.group(1)


def positions(texts: Any, declared: Sequence[str]) -> NDArray[np.int64]:
    """Return (n,) the index of the declared text that each text of an Arrow array matches; -1 for none."""
    index = pc.index_in(texts, value_set=pa.array(declared, pa.large_string()))
    found = pc.fill_null(index.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero((found < 0) & texts.is_valid().to_numpy(zero_copy_only=False))
    if not len(rest):
        return np.asarray(found)
    meant: dict[str, int] = {}
    for number, text in enumerate(declared):
        key = usual(text)
        meant[key] = -1 if key in meant else number  # two that mean the same are told apart as written
    others = texts.take(pa.array(rest)).dictionary_encode()
    own = np.array([meant.get(usual(word), -1) for word in others.dictionary.to_pylist()], np.int64)
    found = found.copy()
    found[rest] = own[others.indices.to_numpy(zero_copy_only=False)]
    return np.asarray(found)
