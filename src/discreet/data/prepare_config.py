"""Declaration for ``discreet prepare``: a TOML file that is written before records are seen.

The file is a SCHEMA.toml (:mod:`.schema`) without ``states``, ``actions`` and column names. Its section
``[prepare]`` declares how states, actions and columns are computed from raw records. ::

    dataset = "ward-2024"
    unit = "patient"
    horizon = 12
    reward = { low = 0.0, high = 1.0 }

    [prepare]
    user = "patient"                  # or a list of columns that together identify a person
    episode = "stay"                  # without this key, each person has one episode

    time = { column = "charted", format = "%d.%m.%Y %H:%M", zone = "Europe/Berlin" }

    step = "4 hours"                  # without this key, every row is a step
    long = "cut"                      # episodes of more than `horizon` steps: "refuse", "cut", or "end"

    [prepare.values.pressure]         # a number or a category for every step
    column = "mbp"
    within = "last"                   # rule for several cells in one step
    range = [20, 250]
    outside = "missing"               # or "refuse"

    carry = 2                         # for at most two steps, a missing value is replaced by the last one
    missing = "category"              # rule for values still missing; or "refuse", or { value = 80 }

    cuts = [65, 75]

    [prepare.states]
    product = ["pressure", "lactate"] # or rules = [...], or codebook = {...}

    [prepare.actions]
    product = ["dose"]

    [prepare.end]
    column = "outcome"
    states = { home = "discharged", died = "dead" }
    censored = ["transferred", ""]    # unknown outcomes; they lead to the terminal state "censored"

    [prepare.reward]
    on = { discharged = 1.0 }

With ``[context.columns]`` (:mod:`.schema`), the section ``[prepare.states]`` must be left out. Each context
column is the name of a declared number. The prepared rows have these numbers instead of states.
``[prepare.end]`` is required, and each person has one episode.

The declaration is not computed from the records, so it uses no privacy budget. Its author chooses cut points,
codebooks and scalings, and declares their origin under ``[provenance]``. Users are never removed because of
their values, since the number of users is published.

Several strings of a column can have the same label. All labels, cut points and files that the declaration
names are public. Files are in the folder of the declaration. Every key is described in ``docs/prepare.md``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.data.conditions import Condition, condition
from discreet.data.schema import (
    Contexts,
    Schema,
    check_keys,
    parse_context,
    parse_schema,
    read_public_table,
    read_toml,
    table_of,
    text_of,
)

WITHIN = ("last", "first", "mean", "min", "max", "sum", "count", "same")
TIES = ("refuse", "later row", "mean", "min", "max")
SECOND = 1_000_000  # in microseconds, the unit of all times
UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
    "day": 86400 * SECOND,
}
MOST_LABELS = 100_000
PRESENT = "present"  # the state of steps of episodes with contexts
_OF_STATES = ("states", "mask", "stationary", "terminal", "features")
CENSORED = "censored"  # terminal state of episodes whose outcome is unknown

_LENGTH = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day)s?\s*$")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True)
class Time:
    """Column with the time of each row, and the format of the cells in this column.

    Parameters
    ----------
    column : name of the column
    format : format of text, as in ``strftime``; None for ISO 8601
    zone : time zone of clock times that are given without a zone
    numbers : unit of the times if they are numbers
    ambiguous : "earlier" or "later", the meaning of a clock time that occurs twice when daylight saving time
        ends; "refuse" makes such a time an offence
    unreadable : "refuse" or "leave out", the treatment of rows whose time cannot be read
    then : column of numbers that sorts rows with equal times
    """

    column: str
    format: str | None = None
    zone: str | None = None
    numbers: str | None = None
    ambiguous: str = "refuse"
    unreadable: str = "refuse"
    then: str | None = None


@dataclass(frozen=True)
class ColumnValue:
    """Declared value: one number or category per step or per episode, computed from the cells of one column.

    Parameters
    ----------
    name : name of the value
    column : name of the column
    where : mapping of column names to strings. A row is used only if its cell in each of these columns is one
        of the strings for the column. An example is item codes in tables with one row per measurement
    within : rule that combines several cells of a step or episode, one of ``WITHIN``
    of : "step" or "episode"
    ties : rule for several cells at the same time, one of ``TIES``
    low, high : limits of the allowed range
    outside : "refuse" or "missing", the treatment of numbers outside this range
    unreadable : "refuse" or "missing", the treatment of cells that are not numbers or not categories
    lag : number of steps by which a value is delayed
    before : "action" if only rows before the step's first action count; None if all rows of the step count
    carry : number of later steps for which a value can replace a missing value
    missing : "refuse", "category", or the number (for categories, the index) that replaces a missing value
    categories : mapping of strings in the file to indices; None for numbers
    labels : names of the bins or categories
    cuts : cut points between bins
    closed : "left" or "right", the end point that belongs to the bin
    empty : strings that mean an empty cell, in addition to the standard strings
    """

    __repr__ = brief

    name: str
    column: str
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    within: str = "same"
    of: str = "step"
    ties: str = "refuse"
    low: float = -np.inf
    high: float = np.inf
    outside: str = "refuse"
    unreadable: str = "refuse"
    lag: int = 0
    before: str | None = None
    carry: int = 0
    missing: str | float = "refuse"
    categories: Mapping[str, int] | None = None
    labels: tuple[str, ...] | None = None
    cuts: tuple[float, ...] | None = None
    closed: str = "left"
    empty: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Labels of the bins or categories, and a last label "missing" if ``missing`` is "category"."""
        own = self.labels or ()
        return (*own, "missing") if self.missing == "category" else own

    def codes(self, values: Floats) -> Ints:
        """Return the (n,) indices in ``names`` of the bins or categories of the numbers ``values``.

        NaN gives the index of "missing" if ``names`` has this label, and otherwise -1.
        """
        gone = np.isnan(values)
        if self.categories is not None:
            found = np.where(gone, 0, values).astype(np.int64)
        else:
            side = "right" if self.closed == "left" else "left"
            found = np.searchsorted(np.asarray(self.cuts), values, side=side)  # type: ignore[call-overload]
        found[gone] = len(self.names) - 1 if self.missing == "category" else -1
        return np.asarray(found, np.int64)

    def readings(self) -> Floats:
        """Return the (k, d) readings of the k ``names``: centres of bins, or an indicator of each category.

        The centre of a bin that is open at one end is its cut. If there is only one cut, the centres of the
        two bins are 0 and 1. Missing numbers are 0; the last column indicates them.
        """
        if self.cuts is None or self.categories is not None:
            return np.eye(len(self.names))
        edges = np.array([self.cuts[0], *self.cuts, self.cuts[-1]], np.float64)
        found = 0.5 * (edges[1:] + edges[:-1])[:, None] if len(self.cuts) > 1 else np.array([[0.0], [1.0]])
        if self.missing != "category":
            return np.asarray(found)
        table = np.zeros((len(found) + 1, 2))
        table[:-1, :1], table[-1, 1] = found, 1.0
        return table


@dataclass(frozen=True, eq=False)
class Partition:
    """Map from declared values to the index of a state or an action.

    Exactly one of ``product``, ``rules`` and ``centres`` is set.

    Parameters
    ----------
    labels : labels of the states or actions, by index
    reads : values from which the index is computed
    product : values whose bins or categories are combined; those of the last value vary fastest
    rules : conditions; the index is that of the first condition that holds, and None always holds
    centres : (k, d) cluster centres for the d values ``reads``, in the units (value − shift) / scale
    shift, scale : (d,)
    """

    __repr__ = brief

    labels: tuple[str, ...]
    reads: tuple[ColumnValue, ...]
    product: tuple[ColumnValue, ...] | None = None
    rules: tuple[Condition | None, ...] | None = None
    centres: Floats | None = None
    shift: Floats | None = None
    scale: Floats | None = None

    @property
    def needs(self) -> tuple[ColumnValue, ...]:
        """Values that must not be missing where an index is computed."""
        if self.rules is None:
            return self.reads
        compared = frozenset[str]().union(*(rule.names for rule in self.rules if rule is not None))
        return tuple(value for value in self.reads if value.name in compared)

    def readings(self, states: int) -> Floats:
        """Return an (S, d) vector for each state, which agents can use as observation.

        For a product, the vector concatenates the readings of its values. For a codebook, it is the centre,
        in the units (value − shift) / scale. States without a label in this partition, such as terminal
        states, are 0.

        states : number S of states, at least the number of labels. Raises ``ValueError`` if ``states`` is
            less, or if
        the states are defined by rules.
        """
        checks.integer("states", states, len(self.labels))
        if self.product is not None:
            tables = [value.readings() for value in self.product]
            places = np.indices([len(table) for table in tables]).reshape(len(tables), -1)
            found = np.concatenate([table[at] for table, at in zip(tables, places, strict=True)], axis=1)
        elif self.centres is not None:
            found = self.centres
        else:
            raise ValueError("prepare.states.rules: states that rules define have no readings")
        return np.pad(found, ((0, states - len(found)), (0, 0)))

    def columns(self, states: int) -> dict[str, list[float | str | None]]:
        """Return one cell of each value for each of S states, by the name of the value.

        A number is the centre of the bin or, in a codebook, of the cluster, in the units of the records. In a
        bin that is open at one end, it is the number nearest to the cut. A category is its label. Missing
        values, and states without a label in this partition, are None.

        states : number S of states. Raises ``ValueError`` in the same cases as :meth:`readings`.
        """
        found: dict[str, list[float | str | None]] = {}
        table = self.readings(states)
        if self.product is None:
            assert self.shift is not None and self.scale is not None
            raw = self.shift + self.scale * table[: len(self.labels)]
            for value, cells in zip(self.reads, raw.T.tolist(), strict=True):
                found[value.name] = cells
        else:
            places = np.indices([len(value.names) for value in self.product]).reshape(len(self.product), -1)
            for value, at in zip(self.product, places, strict=True):
                own: list[float | str | None] = list(value.names)
                if value.categories is None and value.cuts is not None:
                    centres = value.readings()[: len(value.cuts) + 1, 0]
                    end = 0 if value.closed == "left" else -1  # the bin that does not contain its only cut
                    centres[end] = np.nextafter(centres[end], np.inf * (-1.0 if end == 0 else 1.0))
                    own[: len(centres)] = centres.tolist()
                if value.missing == "category":
                    own[-1] = None
                found[value.name] = [own[place] for place in at]
        rest = [None] * (states - len(self.labels))
        return {name: [*cells, *rest] for name, cells in found.items()}

    def codes(self, values: Mapping[str, Floats]) -> Ints:
        """Return (n,) indices of states or actions. An index is -1 if a needed value is missing or no rule
        holds.

        ``values`` : mapping of the name of each value to an (n,) array.
        """
        if self.product is not None:
            out = np.zeros(len(values[self.reads[0].name]), np.int64)
            bad = np.zeros(len(out), bool)
            for value in self.product:
                part = value.codes(values[value.name])
                bad |= part < 0
                out = out * len(value.names) + part
            out[bad] = -1
            return out
        if self.rules is not None:
            size = len(values[self.reads[0].name]) if self.reads else len(next(iter(values.values())))
            out = np.full(size, -1, np.int64)
            for i, rule in enumerate(self.rules):
                holds = np.ones(size, bool) if rule is None else rule.of(values)
                out[holds & (out < 0)] = i
            return out
        assert self.centres is not None and self.shift is not None and self.scale is not None
        return nearest(
            (np.stack([values[one.name] for one in self.reads], axis=1) - self.shift) / self.scale,
            self.centres,
        )


def nearest(points: Floats, centres: Floats, rows: int = 2**14) -> Ints:
    """Return the (n,) indices of the centres (k, d) that are nearest to the points (n, d).

    If several centres are equally near, the first is returned. A point with NaN has the index -1. ``rows``
    points are processed together.
    """
    middle = centres.mean(axis=0)  # subtracting the mean reduces cancellation errors
    own = centres - middle
    squares = (own**2).sum(axis=1)
    out = np.empty(len(points), np.int64)
    for begin in range(0, len(points), rows):
        part = points[begin : begin + rows] - middle
        out[begin : begin + rows] = np.argmin(squares - 2 * (part @ own.T), axis=1)
    out[np.isnan(points).any(axis=1)] = -1
    return out


@dataclass(frozen=True, eq=False)
class Declaration:
    """Checked content of a section ``[prepare]``, with the schema that is derived from it.

    Parameters
    ----------
    schema : Schema
        The complete schema, which ``discreet learn`` reads.
    user, episode : names of the columns that identify a user and an episode
    folded : True if names are normalized by :func:`.near_duplicate_ids.folded` before they are compared
    empty : strings that mean an empty cell in every column, in addition to the standard strings
    time : Time, or None if rows are used in the order of the files
    step : length of a step in microseconds; None if every row is a step
    begin : column with the start time of an episode; None if an episode starts at its first row
    before : treatment of rows before the start of their episode
    duplicates : treatment of rows that equal another row
    long : treatment of episodes with more than ``schema.horizon`` steps
    values : mapping of names to declared values
    states, actions : Partition
    end : ColumnValue of the outcome of an episode, or None
    end_states : state indices of the terminal states for the outcomes
    end_missing : index in ``end_states`` for a missing outcome; None if a missing outcome is an offence
    reward : name of the value that is the reward, or None
    on : mapping of a state index to the reward for reaching this state
    ruled : True if ``outcomes`` in the schema was derived from ``on``, because ``on`` has rewards only for
        terminal states
    decision : time limit in microseconds after the start of a step; None if no value has ``before``. In a
        step without an action, values with ``before`` use only rows before this limit
    strict : True if readings after the action are rejected; False if they only cause a warning
    files : public files that the declaration reads
    context : real-valued contexts instead of states, or None
    origin : declared origin of the contexts, or None
    text : text of the declaration
    """

    __repr__ = brief

    schema: Schema
    user: tuple[str, ...]
    episode: tuple[str, ...]
    folded: bool
    time: Time | None
    step: int | None
    begin: str | None
    before: str
    duplicates: str
    long: str
    values: Mapping[str, ColumnValue]
    states: Partition
    actions: Partition
    end: ColumnValue | None
    end_states: tuple[int, ...]
    end_missing: int | None
    reward: str | None
    on: Mapping[int, float]
    empty: tuple[str, ...] = ()
    decision: int | None = None
    strict: bool = False
    ruled: bool = False
    files: tuple[Path, ...] = ()
    context: Contexts | None = None
    origin: str | None = None
    text: str = field(default="", repr=False)

    @property
    def published(self) -> Schema:
        """Schema of the prepared rows; not ``schema`` if there are contexts instead of states."""
        schema = self.schema
        if self.context is None:
            return schema
        origins = {name: origin for name, origin in schema.provenance.items() if name not in _OF_STATES}
        if self.origin is not None:
            origins["context"] = self.origin
        return Schema(
            dataset=schema.dataset, unit=schema.unit,
            layout=Layout(2, schema.layout.actions, schema.horizon), action_labels=schema.action_labels,
            terminal=(1,), unfinished="terminal", low=schema.low, high=schema.high, provenance=origins,
            return_bound=schema.returns.bounds(schema.horizon), declared=schema.declared,
            context=self.context,
        )  # fmt: skip

    @property
    def hash(self) -> str:
        """SHA-256 of the declaration's text, 64 hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def columns(self) -> dict[str, str]:
        """Mapping of each column from which values are computed to its kind, "number" or "text"."""
        found: dict[str, str] = {}
        for value in (*self.values.values(), *(() if self.end is None else (self.end,))):
            kind = "number" if value.categories is None and value.within != "count" else "text"
            found[value.column] = "text" if found.get(value.column, kind) != kind else kind
            for column in value.where:
                found[column] = "text"
        if self.time is not None and self.time.then is not None:
            found.setdefault(self.time.then, "number")
        return found


# ------------------------------------------------------------------------------------------- reading
def read_prepare_config(path: str | Path, *, fitting: bool = False) -> Declaration:
    """Read and check the declaration in ``path`` and the files that it names.

    ``fitting`` : True if the codebook of states does not exist yet; a single centre is then used instead.

    Raises
    ------
    ValueError
        If the file is not TOML, or if a key is unknown, is missing, or has a value that is not allowed.
    """
    return read_toml(path, partial(parse_declaration, fitting=fitting))


_KEYS = (
    "user", "episode", "names", "empty", "time", "step", "begin", "before", "decision", "strict",
    "duplicates", "long", "values", "states", "actions", "end", "reward",
)  # fmt: skip
_MADE = (
    "user_column", "episode_column", "step_column", "state_column", "action_column", "reward_column",
    "next_state_column", "first_step", "states",
)  # fmt: skip


def parse_declaration(
    content: Mapping[str, Any], folder: str | Path = ".", text: str = "", *, fitting: bool = False
) -> Declaration:
    """Check the content of a TOML document, and return the declaration.

    Files that the declaration names are read from ``folder``.

    - text : text of the document.
    - fitting : see :func:`read_prepare_config`.
    """
    folder = Path(folder)
    asked, origin = _section(content), None
    if "context" in content:
        content, asked, origin = _without_context(content, asked)
    empty = _texts("prepare.empty", asked["empty"]) if "empty" in asked else ()
    values = {
        name: _value(name, one, "step" in asked, empty)
        for name, one in table_of("prepare.values", asked["values"]).items()
    }
    files: list[Path] = []
    if "states" in asked:
        states = _partition("prepare.states", asked["states"], values, folder, files, fitting)
    else:
        states = Partition((PRESENT,), (), rules=(None,))
    actions = _partition("prepare.actions", asked["actions"], values, folder, files)
    end, end_labels, end_missing = _end(asked.get("end"), empty)
    labels = (*states.labels, *end_labels)
    censored = end is not None and "censored" in asked["end"]
    if censored and CENSORED in states.labels:
        raise ValueError(
            f"prepare.states: has a label {CENSORED!r}, which stands for censored ends: must be another one"
        )
    twice = sorted({label for label in end_labels if label in states.labels})
    if twice:
        raise ValueError(f"prepare.end.states: {twice[0]!r} is a state already: must be another label")
    plain = _schema_content(content, labels, actions.labels, end_labels, censored)
    ruled = _rule_of_ends(asked.get("reward"), plain)
    schema = parse_schema({**plain, **ruled}, folder)
    reward, on = _reward(asked.get("reward"), values, labels, schema, plain)
    context = None
    if "states" not in asked:
        context = _context(content["context"], values, schema)
    folded = checks.choice("prepare.names", asked.get("names", "as written"), ("as written", "folded"))
    time, step, begin = _clock(asked)
    decision = _decision(asked, values, actions, step)
    long = checks.choice("prepare.long", asked.get("long", "refuse"), ("refuse", "cut", "end"))
    if long == "end" and end is None:
        raise ValueError("prepare.long = 'end': must be given with prepare.end, whose state it leads to")
    user = _columns("prepare.user", asked["user"])
    episode = _columns("prepare.episode", asked["episode"]) if "episode" in asked else ()
    if "columns" not in schema.declared:
        clock = () if time is None else (time.column, *(() if time.then is None else (time.then,)))
        named = [("person", user), ("episode", episode), ("time", clock)]
        columns = _declared_columns([*named, ("begin", () if begin is None else (begin,))], values, end)
        schema = replace(schema, declared={**schema.declared, "columns": columns})
    before = checks.choice("prepare.before", asked.get("before", "refuse"), ("refuse", "leave out"))
    twins = checks.choice("prepare.duplicates", asked.get("duplicates", "remove"), ("remove", "refuse"))
    return Declaration(
        schema=schema, user=user, episode=episode, folded=folded == "folded", time=time, step=step,
        begin=begin, before=before, duplicates=twins, long=long, values=values, states=states,
        actions=actions, end=end, end_states=tuple(range(len(states.labels), len(labels))),
        end_missing=end_missing, reward=reward, on=on, empty=empty, decision=decision,
        strict=checks.flag("prepare.strict", asked.get("strict", False)), ruled=bool(ruled),
        files=tuple(files), context=context, origin=origin, text=text,
    )  # fmt: skip


def _section(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the section [prepare].

    Raises ``ValueError`` if the document has a key of the schema that is derived from this section.
    """
    if "prepare" not in content:
        raise ValueError("prepare is missing: must be a section [prepare] that says how records are prepared")
    asked = table_of("prepare", content["prepare"])
    needed = ("user", "values", "actions", "end" if "context" in content else "states")
    check_keys("prepare.", asked, _KEYS, needed)
    for key in _MADE:
        if key in content:
            raise ValueError(f"{key}: must be left out, [prepare] makes it")
    if "groups" in content:
        raise ValueError(
            "groups: must be left out, [prepare] makes no column of groups; add the column to the prepared "
            "rows, and [groups] to their schema"
        )
    return asked


def _without_context(
    content: Mapping[str, Any], asked: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any], str | None]:
    """Return the content without contexts, the section [prepare], and the declared origin of the contexts.

    Raises ``ValueError`` if the section has keys that do not fit contexts.
    """
    if "states" in asked:
        raise ValueError("prepare.states: must be left out with [context], contexts are instead of states")
    if "censored" in table_of("prepare.end", asked["end"]):
        raise ValueError("prepare.end.censored: must be left out with [context]")
    if content.get("episodes_per_user", 1) != 1 or content.get("contribute", "error") != "error":
        raise ValueError("episodes_per_user, contribute: must be 1 and 'error' with [context]")
    origins = dict(table_of("provenance", content.get("provenance", {})))
    origin = origins.pop("context", None)
    return {**content, "provenance": origins}, asked, origin


def _context(value: Any, values: Mapping[str, ColumnValue], schema: Schema) -> Contexts:
    """Return the declared contexts. Raises ``ValueError`` if a column is not a declared number."""
    found = parse_context(value, schema.layout.actions)
    assert found is not None
    for name in found.read:
        if values[checks.choice("context.columns", name, values)].categories is not None:
            raise ValueError(
                f"context.columns.{name}: must be a number, prepare.values.{name} has categories"
            )
    return found


def _schema_content(
    content: Mapping[str, Any], states: Sequence[str], actions: Sequence[str], ends: Sequence[str],
    censored: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return the content of the schema file, with the labels and terminal states of the declaration.

    Reward keys that are derived from ``prepare.reward.on`` are not included.
    """
    plain = {key: value for key, value in content.items() if key not in ("prepare", "context")}
    given = plain.get("actions", {})
    check_keys("actions.", table_of("actions", given), ("mask",), ())
    plain["states"] = {"labels": list(states)}
    plain["actions"] = {"labels": list(actions), **given}
    plain["terminal"] = _terminal(plain.get("terminal", []), ends)
    if not _listed(plain["terminal"]):
        del plain["terminal"]
    if censored:
        if "censored" in plain:
            raise ValueError("censored: must be left out if prepare.end.censored names the state")
        plain["censored"] = CENSORED
    return plain


def _clock(asked: Mapping[str, Any]) -> tuple[Time | None, int | None, str | None]:
    """Return the settings ``time``, ``step`` and ``begin``; each is None if it is not declared."""
    time = _time(asked["time"]) if "time" in asked else None
    step = _length("prepare.step", asked["step"]) if "step" in asked else None
    if step is not None and time is None:
        raise ValueError("prepare.step: must be given with prepare.time")
    begin = None if "begin" not in asked else text_of("prepare.begin", asked["begin"])
    if begin is not None and step is None:
        raise ValueError("prepare.begin: must be given with prepare.step")
    return time, step, begin


def _declared_columns(
    named: Sequence[tuple[str, Sequence[str]]], values: Mapping[str, ColumnValue], end: ColumnValue | None
) -> str:
    """Return one line that lists the columns of the records and their use, for readers of the schema.

    If the list is too long or has unprintable characters, the line states only the number of columns.
    """
    parts = [f"{what}: {', '.join(columns)}" for what, columns in named if columns]
    for one in (*values.values(), *([] if end is None else [end])):
        rows = "; ".join(f"{column} is {' or '.join(texts)}" for column, texts in one.where.items())
        parts.append(f"{one.name}: {one.column}{f' where {rows}' if rows else ''}")
    whole = ", ".join(" ".join(part.split()) for part in parts)
    return whole if len(whole) <= 400 and whole.isprintable() else f"{len(parts)} columns, in prepare.toml"


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} = {checks.said(value)}: must be a list, not empty")
    found = tuple(text_of(name, one) for one in value)
    if len(set(found)) < len(found):
        raise ValueError(f"{name} = {checks.said(value)}: must not name an item twice")
    return found


def _columns(name: str, value: Any) -> tuple[str, ...]:
    return _texts(name, value if isinstance(value, list) else [value])


def _listed(terminal: Any) -> Any:
    return terminal.get("states", []) if isinstance(terminal, Mapping) else terminal


def _terminal(given: Any, end_labels: Sequence[str]) -> Any:
    """Return the schema's entry ``terminal``, with the labels of outcomes inserted before its states."""
    own = _listed(given)
    own = own if isinstance(own, list) else [own]
    every = [*end_labels, *(one for one in own if one not in end_labels)]
    return {**given, "states": every} if isinstance(given, Mapping) else every


def _time(value: Any) -> Time:
    given = {"column": value} if isinstance(value, str) else table_of("prepare.time", value)
    allowed = ("column", "format", "zone", "numbers", "ambiguous", "unreadable", "then")
    check_keys("prepare.time.", given, allowed, ("column",))
    for key in ("column", "format", "zone", "then"):
        if key in given:
            text_of(f"prepare.time.{key}", given[key])
    if "numbers" in given:
        units = [f"{unit}s" for unit in UNITS]
        checks.choice("prepare.time.numbers", given["numbers"], units)
        if "format" in given or "zone" in given:
            raise ValueError(
                "prepare.time.numbers: must be given without format and zone, which numbers do not have"
            )
    if "zone" in given:
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(given["zone"])
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"prepare.time.zone = {given['zone']!r}: must be a zone's name, such as 'Europe/Berlin'"
            ) from None
    choices = {"ambiguous": ("refuse", "earlier", "later"), "unreadable": ("refuse", "leave out")}
    for key, options in choices.items():
        checks.choice(f"prepare.time.{key}", given.get(key, "refuse"), options)
    return Time(**given)


def _decision(
    asked: Mapping[str, Any], values: Mapping[str, ColumnValue], actions: Partition, step: int | None
) -> int | None:
    """Check the settings that values with ``before = "action"`` need, and return ``prepare.decision``.

    Returns microseconds, or None if no value has ``before``.

    - step : length of a step in microseconds.
    """
    early = [value for value in values.values() if value.before is not None]
    if not early:
        if "decision" in asked:
            raise ValueError('prepare.decision: must be left out unless a value has before = "action"')
        return None
    where = f'prepare.values.{early[0].name}.before = "action"'
    if step is None:
        raise ValueError(f"{where}: must be given with prepare.step (where every row is a step, use lag = 1)")
    forming = [value for value in actions.reads if value.of == "step"]
    if not forming:
        raise ValueError(f"{where}: must have a value of steps in [prepare.actions], whose rows have times")
    for value in early:
        if value in forming:
            raise ValueError(
                f"prepare.values.{value.name}.before = 'action': must be left out of a value that forms "
                "actions, which has no reading before itself (use lag = 1 for a state of earlier actions)"
            )
    for value in forming:
        if value.lag:
            raise ValueError(
                f"prepare.values.{value.name}.lag = {value.lag}: must be 0 with before = 'action', because "
                "an action of an earlier step is before every reading"
            )
    if "decision" not in asked:
        raise ValueError(
            "prepare.decision is missing: must be a length of time, such as '1 hour', if a value has before "
            "= 'action'. In a step without an action, only readings up to this time count. If all readings "
            "of such a step counted, a reading would depend on whether there was an action; if the limit "
            "were computed from other users, a user's rows would depend on the records of others"
        )
    found = _length("prepare.decision", asked["decision"])
    if found > step:
        raise ValueError(f"prepare.decision = {asked['decision']!r}: must be at most prepare.step")
    return found


def _length(name: str, value: Any) -> int:
    found = _LENGTH.match(value) if isinstance(value, str) else None
    length = round(float(found.group(1)) * UNITS[found.group(2)]) if found is not None else 0
    if length < 1:
        raise ValueError(
            f"{name} = {checks.said(value)}: must be a length of time, such as '4 hours' or '30 minutes'"
        )
    return length


_VALUE = (
    "column", "where", "within", "of", "ties", "range", "outside", "unreadable", "lag", "before", "carry",
    "missing", "categories", "labels", "cuts", "closed", "empty",
)  # fmt: skip


def _value(name: str, asked: Any, grid: bool, empty: tuple[str, ...] = ()) -> ColumnValue:
    where = f"prepare.values.{name}"
    given = table_of(where, asked)
    check_keys(f"{where}.", given, _VALUE, ("column",))
    if not _NAME.match(name) or name in ("and", "or", "not", "missing", "True", "False", "None"):
        raise ValueError(f"{where}: a value's name must consist of letters, digits and _")
    of = checks.choice(f"{where}.of", given.get("of", "step"), ("step", "episode"))
    if grid and of == "step" and "within" not in given:
        raise ValueError(
            f"{where}.within is missing: must say which of several values in one step counts, one of "
            f"{', '.join(WITHIN)}"
        )
    within = checks.choice(f"{where}.within", given.get("within", "same"), WITHIN)
    low, high = _range(f"{where}.range", given.get("range"))
    categories, names, cuts = _classes(where, name, given, within)
    lag = checks.integer(f"{where}.lag", given.get("lag", 0), 0)
    before = None
    if "before" in given:
        before = checks.choice(f"{where}.before", given["before"], ("action",))
        if lag:
            raise ValueError(f"{where}.before: must be given without lag, which takes an earlier step")
        if of == "episode":
            raise ValueError(f"{where}.before: must be left out, a value of an episode belongs to no step")
    own = _texts(f"{where}.empty", given["empty"]) if "empty" in given else ()
    missing = _missing(f"{where}.missing", given.get("missing", "refuse"), categories, names)
    if missing == "category" and names is None:
        raise ValueError(
            f"{where}.missing = 'category': must be given with cuts or categories, to be one more of them"
        )
    return ColumnValue(
        name=name,
        column=text_of(f"{where}.column", given["column"]),
        where={
            text_of(f"{where}.where", column): _columns(f"{where}.where.{column}", texts)
            for column, texts in table_of(f"{where}.where", given.get("where", {})).items()
        },
        within=within,
        of=of,
        ties=checks.choice(f"{where}.ties", given.get("ties", "refuse"), TIES),
        low=low,
        high=high,
        outside=checks.choice(f"{where}.outside", given.get("outside", "refuse"), ("refuse", "missing")),
        unreadable=checks.choice(
            f"{where}.unreadable", given.get("unreadable", "refuse"), ("refuse", "missing")
        ),
        lag=lag,
        before=before,
        carry=checks.integer(f"{where}.carry", given.get("carry", 0), 0),
        missing=missing,
        categories=categories,
        labels=names,
        cuts=cuts,
        closed=checks.choice(f"{where}.closed", given.get("closed", "left"), ("left", "right")),
        empty=tuple(dict.fromkeys((*empty, *own))),
    )


def _classes(
    where: str, name: str, given: Mapping[str, Any], within: str
) -> tuple[Mapping[str, int] | None, tuple[str, ...] | None, tuple[float, ...] | None]:
    """Return the categories, labels and cut points of a value; each is None if it is not declared."""
    categories, names = _categories(f"{where}.categories", given.get("categories"))
    if categories is not None:
        for key in ("range", "cuts", "labels", "closed"):
            if key in given:
                raise ValueError(f"{where}.{key}: must be left out, a category has none")
        if within not in ("last", "first", "same") or given.get("ties") in ("mean", "min", "max"):
            raise ValueError(f"{where}: categories have no sum, mean or order")
    cuts = _cuts(f"{where}.cuts", given.get("cuts"))
    if cuts is not None:
        names = _bins(where, name, given, cuts)
    elif "labels" in given or "closed" in given:
        raise ValueError(f"{where}: labels and closed must be given with cuts")
    return categories, names, cuts


def _range(name: str, value: Any) -> tuple[float, float]:
    if value is None:
        return -np.inf, np.inf
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{name} = {checks.said(value)}: must be two numbers, [least, largest]")
    low, high = (checks.real(name, one) for one in value)
    if not low < high:
        raise ValueError(f"{name} = {checks.said(value)}: the largest must be above the least")
    return low, high


def _categories(name: str, value: Any) -> tuple[Mapping[str, int] | None, tuple[str, ...] | None]:
    """Return a mapping of strings to the indices of their labels, and the labels.

    Both are None if ``value`` is None.
    """
    if value is None:
        return None, None
    if isinstance(value, Mapping):
        if not value:
            raise ValueError(f"{name} = {{}}: must have at least one text")
        named = {text_of(name, text): text_of(f"{name}.{text}", label) for text, label in value.items()}
    else:
        named = {text: text for text in _texts(name, value)}
    labels = tuple(dict.fromkeys(named.values()))
    return {text: labels.index(label) for text, label in named.items()}, labels


def _cuts(name: str, value: Any) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} = {checks.said(value)}: must be a list of numbers, not empty")
    cuts = tuple(checks.real(name, one) for one in value)
    if any(not a < b for a, b in pairwise(cuts)):
        raise ValueError(f"{name} = {checks.said(value)}: must increase strictly")
    return cuts


def _bins(where: str, name: str, given: Mapping[str, Any], cuts: tuple[float, ...]) -> tuple[str, ...]:
    if "labels" in given:
        labels = _texts(f"{where}.labels", given["labels"])
        if len(labels) != len(cuts) + 1:
            raise ValueError(
                f"{where}.labels has {len(labels)} entries: must be {len(cuts) + 1}, one per bin"
            )
        return labels
    below, above = ("<", ">=") if given.get("closed", "left") == "left" else ("<=", ">")
    mirrored = {"<": "<=", "<=": "<"}[below]
    middle = [f"{a:g}{mirrored}{name}{below}{b:g}" for a, b in pairwise(cuts)]
    labels = (f"{name}{below}{cuts[0]:g}", *middle, f"{name}{above}{cuts[-1]:g}")
    if len({f"{cut:g}" for cut in cuts}) < len(cuts):
        raise ValueError(f"{where}.cuts: must differ in their first six digits, or be given with labels")
    return labels


def _missing(
    name: str, value: Any, categories: Mapping[str, int] | None, labels: tuple[str, ...] | None
) -> str | float:
    if isinstance(value, Mapping):
        check_keys(f"{name}.", value, ("value",), ("value",))
        if categories is None:
            return checks.real(f"{name}.value", value["value"])
        return float((labels or ()).index(checks.choice(f"{name}.value", value["value"], labels or ())))
    if value not in ("refuse", "category"):
        raise ValueError(
            f"{name} = {checks.said(value)}: must be 'refuse', 'category', or a table {{ value = ... }}"
            f"{'; declare words for an empty cell with empty' if isinstance(value, list) else ''}"
        )
    return str(value)


def _partition(
    where: str,
    asked: Any,
    values: Mapping[str, ColumnValue],
    folder: Path,
    files: list[Path],
    fitting: bool = False,
) -> Partition:
    given = table_of(where, asked)
    check_keys(f"{where}.", given, ("product", "rules", "codebook"), ())
    if len(given) != 1:
        raise ValueError(f"{where}: must have one of product, rules and codebook")
    if "product" in given:
        return _product(f"{where}.product", given["product"], values)
    if "rules" in given:
        return _rules(f"{where}.rules", given["rules"], values)
    return _codebook(f"{where}.codebook", given["codebook"], values, folder, files, fitting)


def _product(where: str, asked: Any, values: Mapping[str, ColumnValue]) -> Partition:
    chosen = []
    for name in _texts(where, asked):
        value = values[checks.choice(where, name, values)]
        if value.labels is None:
            raise ValueError(f"{where}: {name} must have cuts or categories, to be a factor of a product")
        chosen.append(value)
    size = int(np.prod([float(len(value.names)) for value in chosen]))
    if size > MOST_LABELS:
        raise ValueError(f"{where}: has {size:,} combinations: must be at most {MOST_LABELS:,}")
    labels = [""]
    for value in chosen:
        own = [one if _tells(value, one) else f"{value.name}={one}" for one in value.names]
        if len(chosen) == 1:
            own = list(value.names)
        labels = [f"{head} / {one}" if head else one for head in labels for one in own]
    return Partition(tuple(labels), tuple(chosen), product=tuple(chosen))


def _tells(value: ColumnValue, label: str) -> bool:
    """Return True if a label of a value with cut points already contains the name of the value.

    This is the case for labels that are made from cut points.
    """
    return value.cuts is not None and value.name in label and label != "missing"


def _rules(where: str, asked: Any, values: Mapping[str, ColumnValue]) -> Partition:
    if not isinstance(asked, list) or not asked:
        raise ValueError(f"{where} = {checks.said(asked)}: must be a list of tables with label and when")
    kinds = {name: value.labels if value.categories is not None else None for name, value in values.items()}
    labels, conditions = [], list[Condition | None]()
    for i, one in enumerate(asked):
        given = table_of(f"{where}[{i}]", one)
        check_keys(f"{where}[{i}].", given, ("label", "when"), ("label",))
        labels.append(text_of(f"{where}[{i}].label", given["label"]))
        if "when" not in given and i + 1 < len(asked):
            raise ValueError(f"{where}[{i}].when is missing: only the last rule may have no condition")
        conditions.append(condition(f"{where}[{i}].when", given["when"], kinds) if "when" in given else None)
    if len(set(labels)) < len(labels):
        raise ValueError(f"{where}: every label must occur once (join conditions with 'or')")
    read = frozenset[str]().union(
        *(rule.names | rule.asked_missing for rule in conditions if rule is not None)
    )
    reads = tuple(value for name, value in values.items() if name in read)
    return Partition(tuple(labels), reads, rules=tuple(conditions))


def _codebook(
    where: str, asked: Any, values: Mapping[str, ColumnValue], folder: Path, files: list[Path], fitting: bool
) -> Partition:
    given = table_of(where, asked)
    check_keys(f"{where}.", given, ("file", "scale", "shift", "scaled"), ("file", "scale"))
    scale = table_of(f"{where}.scale", given["scale"])
    shift = table_of(f"{where}.shift", given.get("shift", {}))
    if not scale:
        raise ValueError(f"{where}.scale: must name the values and the length of one unit of distance")
    for name in (*scale, *shift):
        if name not in values or values[name].categories is not None:
            raise ValueError(f"{where}: {name!r} must be one of the values that are numbers")
        if name not in scale:
            raise ValueError(f"{where}.shift: {name!r} must be in scale too")
    for name in scale:
        if values[name].missing == "category":
            raise ValueError(f"{where}: {name} must not have missing = 'category', which has no distance")
    path = folder / text_of(f"{where}.file", given["file"])
    widths = np.array([checks.positive(f"{where}.scale.{name}", one) for name, one in scale.items()])
    shifts = np.array([checks.real(f"{where}.shift.{name}", shift.get(name, 0.0)) for name in scale])
    reads = tuple(values[name] for name in scale)
    if fitting:
        return Partition(("any",), reads, centres=np.zeros((1, len(scale))), shift=shifts, scale=widths)
    if not path.is_file():
        raise ValueError(
            f"{where}.file = {given['file']!r}: must be a file, in the folder of the declaration"
        )
    columns = read_public_table(f"{where}.file", path, (*scale, "label"), tuple(scale))
    centres = np.empty((len(columns[next(iter(scale))]), len(scale)))
    for i, name in enumerate(scale):
        if columns[name].dtype.kind not in "iuf":
            raise ValueError(f"{where}.file: column {name!r} must hold numbers")
        centres[:, i] = columns[name]
    if not len(centres) or not np.isfinite(centres).all():
        raise ValueError(f"{where}.file: must have at least one centre, and numbers everywhere")
    if not checks.flag(f"{where}.scaled", given.get("scaled", False)):
        centres = (centres - shifts) / widths
    if "label" in columns:
        labels = _texts(f"{where}.file: label", [str(one) for one in columns["label"].tolist()])
    else:
        labels = tuple(f"centre {i}" for i in range(len(centres)))
    files.append(path)
    return Partition(labels, reads, centres=centres, shift=shifts, scale=widths)


def _end(asked: Any, empty: tuple[str, ...] = ()) -> tuple[ColumnValue | None, tuple[str, ...], int | None]:
    """Return the value of the outcome, the labels of terminal states, and the index of the label for a
    missing outcome.

    The index is None if a missing outcome is an offence.
    """
    if asked is None:
        return None, (), None
    given = table_of("prepare.end", asked)
    allowed = ("column", "states", "censored", "missing", "where", "within", "unreadable", "empty")
    check_keys("prepare.end.", given, allowed, ("column", "states"))
    categories, labels = _categories("prepare.end.states", given["states"])
    assert categories is not None and labels is not None
    texts = {text: labels[index] for text, index in categories.items()}
    none = given.get("missing", "refuse")
    if "censored" in given:
        if CENSORED in labels:
            raise ValueError(
                f"prepare.end.states: {CENSORED!r} is the state of censored ends: must be another label"
            )
        labels = (*labels, CENSORED)
        left = _censored(given["censored"], texts)
        texts |= dict.fromkeys((text for text in left if text), CENSORED)
        if "" in left:
            if given.get("missing", CENSORED) != CENSORED:
                raise ValueError(
                    f"prepare.end.missing = {checks.said(none)}: must be left out, prepare.end.censored "
                    "names the empty cell"
                )
            none = CENSORED
    missing = None
    if none != "refuse":
        label = text_of("prepare.end.missing", none)
        labels = labels if label in labels else (*labels, label)
        missing = labels.index(label)
    plain = {key: value for key, value in given.items() if key not in ("states", "censored", "missing")}
    value = _value("end", {**plain, "of": "episode", "categories": texts}, False, empty)
    return value, labels, missing


def _censored(asked: Any, states: Mapping[str, str]) -> list[str]:
    """Return the strings in the outcome column that mark a censored end.

    An empty string means an empty cell.
    """
    name = "prepare.end.censored"
    if not isinstance(asked, list) or not asked:
        raise ValueError(f"{name} = {checks.said(asked)}: must be a list of texts of the column, not empty")
    found = [text.strip() if isinstance(text, str) else text for text in asked]
    for text in found:
        if text != "":
            text_of(name, text)
    if len(set(found)) < len(found):
        raise ValueError(f"{name} = {checks.said(asked)}: must not name an item twice")
    both = sorted(set(found) & {text.strip() for text in states})
    if both:
        raise ValueError(f"{name}: {both[0]!r} is in prepare.end.states too: must be in one of them")
    return found


def _rule_of_ends(asked: Any, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema's keys ``reward`` and ``return_bound`` for rewards that depend only on the outcome.

    Returns {} if ``prepare.reward.on`` has a reward for a state that is not terminal, or if it does not
    determine all rewards. With these keys, a learner knows bounds on the return of an episode, not only on
    the reward of a step.
    """
    on, ends = _named_table(asked, "on"), _listed(plain.get("terminal", []))
    reward, censored = _named_table(plain, "reward"), plain.get("censored")
    ranged = {"low", "high"} <= set(reward) and "outcomes" not in reward
    if not on or not ranged or reward.get("known", False) is not False or "value" in asked:
        return {}
    if not isinstance(ends, list) or any(label not in ends for label in on):
        return {}
    paid = {label: checks.real(f"prepare.reward.on.{label}", amount) for label, amount in on.items()}
    if any(label == censored for label in paid):
        raise ValueError(
            f"prepare.reward.on.{censored}: must be left out, the outcome of a censored end is unknown"
        )
    if not any(paid.values()):
        return {}
    low, high = (checks.real(f"reward.{key}", reward[key]) for key in ("low", "high"))
    for label, amount in paid.items():
        if not low <= amount <= high:
            raise ValueError(
                f"prepare.reward.on.{label} = {amount!r}: must be in the range of reward, [{low!r}, {high!r}]"
            )
    outcomes = {label: paid.get(label, 0.0) for label in ends if label != censored}
    bound = [min(0.0, *outcomes.values()), max(0.0, *outcomes.values())]
    return {"reward": {**reward, "outcomes": outcomes}, "return_bound": plain.get("return_bound", bound)}


def _named_table(asked: Any, key: str) -> Mapping[str, Any]:
    """Return the table ``asked[key]``.

    Returns {} if ``asked`` or the entry is not a table. Other checks report this error.
    """
    found = asked.get(key) if isinstance(asked, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _reward(
    asked: Any,
    values: Mapping[str, ColumnValue],
    labels: Sequence[str],
    schema: Schema,
    plain: Mapping[str, Any],
) -> tuple[str | None, dict[int, float]]:
    ruled = schema.known is not None or "outcomes" in plain["reward"]
    if asked is None:
        if not ruled:
            raise ValueError(
                "prepare.reward is missing: must be given where the schema's reward has no rule of its own"
            )
        return None, {}
    given = table_of("prepare.reward", asked)
    check_keys("prepare.reward.", given, ("value", "on"), ())
    if not given:
        raise ValueError("prepare.reward: must have value, or on, or both")
    name = None
    if "value" in given:
        name = str(checks.choice("prepare.reward.value", given["value"], values))
        if values[name].categories is not None or values[name].missing == "category":
            raise ValueError(f"prepare.reward.value = {name!r}: must be a number, also where it is missing")
    on = {}
    for label, amount in table_of("prepare.reward.on", given.get("on", {})).items():
        on[labels.index(checks.choice("prepare.reward.on", label, labels))] = checks.real(
            f"prepare.reward.on.{label}", amount
        )
    return name, on
