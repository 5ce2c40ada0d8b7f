"""The skeleton of a declaration, from the names and types of columns alone.

Nothing here reads a cell: of Parquet files the footer's names and types, of text the first line, of frames
and data bases their columns. So a skeleton can be shown to anybody who may know how a table is laid out. A
first line that looks like data is refused, since it would be copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from discreet.data.places import Broken, Place, Text, TextFile, places_of
from discreet.data.schema import quoted

__all__ = ["skeleton"]

_TRAJECTORY = ("user", "episode", "step", "state", "action", "reward", "next_state")
_HINTS = {
    "user": r"patient|subject|person|user|pid|mrn|case_?no|insured|client|customer",
    "episode": r"stay|episode|admission|encounter|hadm|visit|session|case",
    "time": r"time|date|stamp|chart|when|hour|day|minute|step",
    "end": r"outcome|status|discharge|dead|death|died|mort|surviv|end",
    "action": r"action|drug|dose|medic|treat|therapy|rate_given|infus|vaso|fluid|intervention",
    "reward": r"reward|return|utility|cost",
}
_DATA = re.compile(r"^\s*[-+]?\d+([.,:/-]\d+)*([ T].*)?$")


def skeleton(
    where: Any,
    *,
    sql: str | None = None,
    reads: Sequence[str | Path] | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8",
) -> str:
    """A declaration (or, for rows that are trajectories already, a schema) to be filled in.

    Parameters
    ----------
    where, sql, reads, delimiter, encoding : as for :func:`discreet.data.readers.open_source`

    Raises
    ------
    ValueError
        If nothing can be read, or a text file has no line of names.
    """
    columns: dict[str, str] = {}
    for place in places_of(where, Text(delimiter, encoding=encoding), sql, reads):
        for name, kind in _columns(place).items():
            columns.setdefault(name, kind)
    lower = {name.lower(): name for name in columns}
    if all(name in lower for name in _TRAJECTORY):
        return _schema({name: lower[name] for name in _TRAJECTORY})
    return _declaration(columns)


def _columns(place: Place) -> dict[str, str]:
    """Names and what is known of their types."""
    names = place.names()
    if isinstance(place, TextFile):
        suspects = [name for name in names if not name.strip() or _DATA.match(name)]
        if suspects or len(set(names)) < len(names) or not names:
            raise Broken(
                f"{place.name}: its first line must name the columns, each by its own name; it looks like "
                "a row of data, of which nothing is shown"
            )
    types = place.types()
    for name in names:
        if not name.isprintable() or not name.strip():
            raise Broken(f"{place.name}: has a column without a printable name")
    return {name: "text file, no type" if types is None else _said(types[name]) for name in names}


def _said(kind: Any) -> str:
    """A type in a word; never more than its family, since an enumeration's type may hold values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for test, word in (
        (pa.types.is_integer, "integer"),
        (pa.types.is_floating, "number"),
        (pa.types.is_decimal, "number"),
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_temporal, "time"),
        (pa.types.is_string, "text"),
        (pa.types.is_large_string, "text"),
        (pa.types.is_string_view, "text"),
    ):
        if test(kind):
            return word
    return "of another type"


def _like(role: str, columns: Mapping[str, str], taken: Sequence[str] = ()) -> list[str]:
    return [name for name in columns if name not in taken and re.search(_HINTS[role], name, re.IGNORECASE)]


_TOP = """\
# A skeleton from the names and types of columns; no row was read. Everything marked FILL IN is yours to say,
# from the study's protocol or the literature, never from these data: the noise rests on it; it is published.

dataset = "FILL IN"          # the population: a ledger adds up what its people have paid
unit = "FILL IN"             # what one person is called, as "patient"
horizon = 0                  # FILL IN: most steps of an episode
episodes_per_user = 1        # most episodes of one person
{sizes}reward = {{ low = 0.0, high = 0.0 }}   # FILL IN: the range of the reward of one step
# reward = {{ outcomes = {{ home = 1.0 }} }}  # instead, where only ends pay: no other rewards, and less noise
# stationary = true          # if the world is the same at every step
"""
_SOURCES = """
[provenance]                 # of each: "protocol", "literature", "other data", or "this data", which leaks
states = "FILL IN"
actions = "FILL IN"
horizon = "FILL IN"
episodes_per_user = "FILL IN"
reward = "FILL IN"
# terminal = "FILL IN"       # of ends, and so of stationary: where they are declared
features = "protocol"        # one-hot, nothing to say

# [declared]                 # for the data protection officer's page; what is left out is "not stated"
# controller = ""            # who answers for these data
# purpose = ""               # of the processing
# legal_basis = ""
# recipients = ""            # who gets what is released
"""


def _schema(names: Mapping[str, str]) -> str:
    """The columns are those of trajectories."""
    own = [f"{part}_column = {quoted(name)}" for part, name in names.items() if part != name]
    sizes = 'states = 0                   # FILL IN: how many, or ["healthy", "ill"]\n'
    sizes += "actions = 0                  # FILL IN\n"
    tail = "# terminal = [0]             # states in which episodes end\n"
    head = _TOP.format(sizes=sizes) + tail
    return head + ("\n".join(own) + "\n" if own else "") + _SOURCES


def _declaration(columns: Mapping[str, str]) -> str:
    """Records: everything is to be made of them."""
    users = _like("user", columns)
    episodes = _like("episode", columns, users)
    times = [name for name, kind in columns.items() if kind == "time" and name not in (*users, *episodes)]
    times += [name for name in _like("time", columns, (*users, *episodes)) if name not in times]
    ends = _like("end", columns, (*users, *episodes, *times))
    rewards = _like("reward", columns, (*users, *episodes, *times, *ends))
    taken = [*users[:1], *episodes[:1], *times[:1], *ends[:1], *rewards[:1]]
    rest = [name for name in columns if name not in taken]
    actions = _like("action", columns, taken)

    def guess(found: Sequence[str]) -> str:
        return quoted(found[0]) if found else '"FILL IN"'

    def others(found: Sequence[str]) -> str:
        return f"   # or {', '.join(found[1:4])}?" if len(found) > 1 else ""

    lines = [
        _TOP.format(sizes=""),
        "[prepare]                    # how records become states, actions and rewards: docs/prepare.md",
        f"user = {guess(users)}{others(users)}",
        f"{'' if episodes else '# '}episode = {guess(episodes)}{others(episodes)}",
        f"time = {{ column = {guess(times)} }}   # format, zone, numbers{others(times).replace('   #', ';')}",
        'step = "FILL IN"             # as "4 hours"; left out: every row is a step',
        'long = "refuse"              # episodes of more than `horizon` steps: "refuse", "cut", "end"',
        "",
        "# One table for each column that states, actions or rewards are made of; delete the others.",
    ]
    used: dict[str, str] = {}
    for name in rest:
        value = _name(name, used)
        used[value] = name
        lines += [
            f"[prepare.values.{value}]     # {columns[name]}",
            f"column = {quoted(name)}",
            'within = "FILL IN"           # of several in one step: last, first, mean, min, max, sum, count',
            '# range = [0, 0]             # what is possible; outside = "missing" or "refuse"',
            "# carry = 0                  # steps for which a value stands in for missing ones",
            'missing = "refuse"           # or "category", or { value = 0 }',
            '# cuts = [0]                 # public cut points, or: categories = ["a", "b"]',
            "",
        ]
    made = [value for value, name in used.items() if name not in actions]
    lines += [
        "[prepare.states]             # or rules, or a public codebook",
        f"product = {json.dumps(made)}   # FILL IN: those that describe the {{unit}}".replace(
            "{unit}", "person"
        ),
        "",
        "[prepare.actions]",
        f"product = {json.dumps([value for value, name in used.items() if name in actions])}   # FILL IN",
        "",
        f"[prepare.end]                # the outcome of an episode{others(ends).replace('   #', ':')}",
        f"column = {guess(ends)}",
        'states = { "FILL IN" = "FILL IN" }   # text of the file = label of a terminal state',
        "",
        "[prepare.reward]",
        f"value = {quoted('FILL IN')}             # one of the values, or",
        'on = { "FILL IN" = 0.0 }     # the reward on arrival in a state',
    ]
    if rewards:
        lines.append(f"# perhaps of the column {rewards[0]}")
    return "\n".join(lines) + "\n" + _SOURCES


def _name(column: str, used: Mapping[str, str]) -> str:
    """A value's name: letters, digits and _."""
    plain = re.sub(r"\W+", "_", column, flags=re.ASCII).strip("_").lower() or "value"
    plain = f"v_{plain}" if plain[0].isdigit() or plain in ("and", "or", "not", "missing") else plain
    name, number = plain, 2
    while name in used:
        name, number = f"{plain}_{number}", number + 1
    return name
