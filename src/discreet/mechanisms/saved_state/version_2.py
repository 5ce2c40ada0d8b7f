"""Reader of format version 2, in which each strategy has its own kind of session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from discreet.core.session import ChannelSession

STREAMS = (
    "counts", "prefix counts", "decaying counts", "group counts", "cut counts", "device counts",
    "reported counts", "linear", "shuffle", "amplified", "batches",
)  # fmt: skip
"""Kinds of sessions in files of version 2 that are streams now."""

_NAMES = {"before": "_filtered"}  # all other names are the names in the state after an underscore
_UNUSED = {
    "_filtered", "_measured", "_measurements", "_draws", "_scales_now", "_squares", "_forgotten", "_weights",
}  # fmt: skip


def converted(values: Mapping[str, Any], session: ChannelSession) -> Mapping[str, Any]:
    """Return the attributes of a stream in the form of version 3.

    values : attributes of version 2 or 3. session : new session of the same mechanism.

    Raises ``KeyError`` or ``ValueError`` if an attribute is missing or new.
    """
    if "_table" in values:
        return values
    names = {name: _NAMES.get(name, f"_{name}") for name in session._table}
    left = set(values) - set(ChannelSession._STATE) - set(names.values()) - _UNUSED
    if left:
        raise ValueError(f"{min(left)} is new")
    kept = {name: values[name] for name in ChannelSession._STATE if name != "_table"}
    return kept | {"_table": {name: values[old] for name, old in names.items()}}
