"""Parser of numbers stored as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_NUMBER = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity)$"


def parsed(texts: Any) -> NDArray[np.float64]:
    """Convert an Arrow column of n strings to (n,) float64; a string that is not a number becomes NaN.

    Blanks around a number are ignored.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    kinds = pc.dictionary_encode(texts.cast(pa.large_string()))
    trimmed = pc.utf8_trim_whitespace(kinds.dictionary)
    numbers = pc.match_substring_regex(trimmed, _NUMBER)
    found = [
        float(text) if good else np.nan
        for text, good in zip(trimmed.to_pylist(), numbers.to_pylist(), strict=True)
    ]
    places = pc.fill_null(kinds.indices.cast(pa.int64()), len(found)).to_numpy(zero_copy_only=False)
    return np.asarray([*found, np.nan], np.float64)[places]
