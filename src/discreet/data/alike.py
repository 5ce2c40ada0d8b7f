"""Names of people that differ by spaces, case or leading zeros only: perhaps one person, counted as two.

A user is protected as one name. Whoever is in a file as ``7`` and as ``07`` is two people to every mechanism,
and is protected half as well as the statement says. Nobody but the data's owner knows whether two such names
are one person, so nothing is merged unasked: names that fold to one text are counted, and the count, never a
name, is told.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Alike", "folded"]


def folded(names: Any) -> Any:
    """Text without spaces at its ends, in lower case, its numbers without leading zeros: P007 is p7."""
    low = pc.utf8_lower(pc.utf8_trim_whitespace(names.cast(pa.large_string())))
    return pc.replace_substring_regex(low, r"(^|[^0-9])0+([0-9])", r"\1\2")


class Alike:
    """Counts names that look like another one. Holds 8 bytes a person, none of them a name."""

    def __init__(self) -> None:
        self._hashes: list[np.ndarray[Any, np.dtype[np.uint64]]] = []
        self._differ = False

    def add(self, names: Any) -> None:
        """An Arrow array of names; each person once over all calls. Numbers cannot collide."""
        if pa.types.is_integer(names.type) or not len(names):
            return
        plain = folded(names)
        self._differ |= not plain.equals(names.cast(pa.large_string()))
        self._hashes.append(pd.util.hash_array(plain.to_numpy(zero_copy_only=False), categorize=False))

    @property
    def count(self) -> int:
        """People whose name looks like that of somebody before them."""
        if not self._differ:
            return 0
        every = np.concatenate(self._hashes)
        return int(every.size - np.unique(every).size)

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
