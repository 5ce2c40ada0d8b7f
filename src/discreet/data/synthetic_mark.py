"""Mark in files of synthetic users. Readers of user data recognise such files by the mark.

``discreet synthesize`` marks a file in three ways. The metadata (Parquet, Minari) contain facts about the
model. A column named :data:`MARK` contains the same facts in its first cell. The name of the dataset in the
schema begins with :data:`PREFIX`. The column survives conversion to CSV, a data frame or a database. If the
column and the metadata are removed, only the name in the schema remains.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

MARK = "discreet.synthetic"
"""Key of the metadata, and name of the column."""
PREFIX = "synthetic of "
"""First words of the name of a dataset of synthetic users."""
SYNTHETIC_INPUT = "synthetic_input"
"""Key for the facts of synthetic users, in the options of a statement and in partial aggregates."""

Facts = Mapping[str, Any]
_LONGEST = 500  # largest number of characters in an entry


def packed(facts: Facts) -> str:
    """Return facts as one line of JSON text."""
    return json.dumps(dict(facts), separators=(",", ":"), sort_keys=True, allow_nan=False)


def facts_in(text: Any) -> dict[str, Any]:
    """Return the facts in the text of a mark; an empty mapping if the text was lost or changed.

    Only entries that are short strings, numbers or null are kept.
    """
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    plain = found.items() if isinstance(found, dict) else ()
    return {
        name: value
        for name, value in plain
        if isinstance(value, str | int | float | None) and len(f"{name}{value}") <= _LONGEST
        if not isinstance(value, float) or math.isfinite(value)
    }


def check_mark(
    marks: Iterable[tuple[str, Facts | None]], dataset: str | None, allowed: bool
) -> tuple[Facts, ...]:
    """Return the distinct facts of synthetic sources; empty if the sources contain real users.

    Parameters
    ----------
    marks : pairs of the name of a source and its facts. The facts are None if the source has no mark
    dataset : name of the dataset in the schema; None if there is no schema
    allowed : True if synthetic users are expected

    Raises
    ------
    ValueError
        If ``allowed`` does not match the sources, or if the name of the dataset does not match them.
    """
    found = list(marks)
    named = dataset is not None and dataset.startswith(PREFIX)
    for name, facts in found:
        if not allowed and (facts is not None or named):
            raise ValueError(
                f"{name}: holds synthetic users of a release's model, not real users; only `discreet learn` "
                "and `discreet aggregate` read them, with --source synthetic=true (synthetic_input=True)"
            )
        if allowed and facts is None:
            raise ValueError(
                f"{name}: holds no mark of `discreet synthesize`: must be read without --source "
                "synthetic=true (synthetic_input=True)"
            )
    if allowed and not named:
        raise ValueError(
            f"dataset = {dataset!r}: must begin with {PREFIX!r} for synthetic users; give the schema that "
            "`discreet synthesize` wrote"
        )
    return tuple({packed(facts): facts for _, facts in found if facts is not None}.values())
