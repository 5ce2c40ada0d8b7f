"""Functions that match cell strings to declared strings, and words that mean an empty cell.

A cell text matches the identical declared text. Otherwise, it matches a declared text with the same
meaning, if exactly one exists. For example, ``True``, ``TRUE`` and ``true`` have the same
meaning, and so do ``1``, ``1.`` and ``1.0``. Many programs write a whole number as ``1.0`` if its column has
empty cells. Columns have a type in Parquet files and no type in CSV files; both are read in the same way.
Case, inner spaces and leading zeros of other strings are never changed, because ``01`` and ``1`` can be
different codes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NOTHING = (
    ".", "..", "?", "-", "--", "*", "<NA>", "<na>", "na", "Na", "n/a", "N/a", "n.a.", "N.A.", "#N/A", "#NA",
    "#NULL!", "\\N", "NaT", "nil", "none", "NONE", "Null", "missing", "Missing", "MISSING", "unknown",
    "Unknown", "UNKNOWN",
)  # fmt: skip
"""Words that often mean an empty cell. They are read as an empty cell only if the declaration says so."""

SENTINELS = (-9.0, *(-float(digit * length) for digit in "987" for length in range(2, 7)))
"""Numbers that often mean an empty cell: -9, -99, -88, -77, -999 and similar numbers."""

_WHOLE = re.compile(r"([+-]?\d+)\.0*")


def usual(text: str) -> str:
    """Normalize truth values to lower case and whole numbers to digits without a point. Other strings are
    unchanged.
    """
    if text.lower() in ("true", "false"):
        return text.lower()
    found = _WHOLE.fullmatch(text)
    return text if found is None else found.group(1)


def positions(texts: Any, declared: Sequence[str]) -> NDArray[np.int64]:
    """Return the index of the declared string that each of the n strings in an Arrow array matches.

    The index is -1 if no declared string matches.
    """
    index = pc.index_in(texts, value_set=pa.array(declared, pa.large_string()))
    found = pc.fill_null(index.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero((found < 0) & texts.is_valid().to_numpy(zero_copy_only=False))
    if not len(rest):
        return np.asarray(found)
    meant: dict[str, int] = {}
    for number, text in enumerate(declared):
        key = usual(text)
        # if two declared texts have the same meaning, a cell must be identical to one of them
        meant[key] = -1 if key in meant else number
    others = texts.take(pa.array(rest)).dictionary_encode()
    own = np.array([meant.get(usual(word), -1) for word in others.dictionary.to_pylist()], np.int64)
    found = found.copy()
    found[rest] = own[others.indices.to_numpy(zero_copy_only=False)]
    return np.asarray(found)
