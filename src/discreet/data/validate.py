"""Every row against the schema, and rows of people put together as episodes, in bounded memory.

Nothing may be spent on data that break a declaration: an undetected 21st step, a second episode or a
reward of 1.2 is more than the noise was calibrated for. So :func:`episodes` checks every row while it
reads, and ends with a :class:`DataError` that counts all offences if there was one; what it has yielded
before is provisional until it ends.

One person's rows may lie anywhere. If users come in a rising order (as numbers, as texts, or as texts by
length), which a first pass over their column alone tells, the rows stream through; steps and episodes
of one user may be in any order. Otherwise rows are spread by a hash of their user over partitions, each
small enough to be sorted in memory: temporary files without a name (mode 0600, unlinked as soon as they
are opened where the system can), so that nothing stays behind, even after kill -9. Memory is a few
batches, plus the rows of one user, or one partition of about ``memory`` bytes.

Which m episodes of a user count under ``contribute = "random"`` depends on a secret key and on the names
of the user's episodes alone, not on the order of rows, their contents, or other people.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.trajectories import Trajectories
from discreet.data import kernels
from discreet.data.alike import Alike
from discreet.data.places import MISSING
from discreet.data.readers import BATCH_ROWS, Progress, Source
from discreet.data.schema import Schema

Ints = NDArray[np.int64]
Flags = NDArray[np.uint8]

MEMORY = 2**28
_ROW = 160  # bytes a row takes while a partition is sorted and checked, about
_PARTITIONS = 256  # files open at once

KINDS = (
    "empty cell", "state", "action", "reward", "inadmissible action", "step", "repeated step", "missing step",
    "broken chain", "short episode", "left terminal", "too many episodes", "malformed line",
)  # fmt: skip
"""The kinds of offences, in the order of the kernel's codes; the last is the CSV reader's."""


class DataError(ValueError):
    """Rows that break the schema: the first of them, and how many of each kind.

    The text and the attributes are PRIVATE. They quote a person's row and count people's errors, which
    no noise covers: show them to the data's owner, on his terminal, and store them nowhere.

    Attributes
    ----------
    counts : mapping of a kind (one of ``KINDS``) to the number of offending rows
    first : (kind, row number in the whole source, from 0)
        The least row number of all; of a malformed line, the number of the line.
    """

    def __init__(self, text: str, counts: Mapping[str, int], first: tuple[str, int]) -> None:
        super().__init__(text)
        self.counts = dict(counts)
        self.first = first


@dataclass(frozen=True)
class Checked:
    """Whole episodes of whole users, rewards in [0, 1].

    trajectories : n episodes
    user : (n,) int64
        Which user an episode is of: 0, 1, .. over all batches, never falling.
    rows : int
        Rows read so far.
    """

    trajectories: Trajectories
    user: Ints
    rows: int


def episodes(
    source: Source,
    *,
    batch_rows: int = BATCH_ROWS,
    memory: int = MEMORY,
    scratch: str | Path | None = None,
    key: bytes | None = None,
    progress: Progress | None = None,
) -> Iterator[Checked]:
    """Check all rows and yield the episodes; provisional until the iterator has ended without an error.

    Parameters
    ----------
    batch_rows : int
        Rows read at once.
    memory : int
        Bytes that a partition may take while it is sorted, if users are not in order.
    scratch : folder, optional
        Where the partitions go (as large as the data); the system's temporary folder.
    key : bytes, optional
        Chooses the episodes under ``contribute = "random"``; default: fresh from the system. A key
        that is known to others says who was left out.
    progress : callable, optional

    Raises
    ------
    DataError
        After the last row, if any broke the schema; from the first offence on nothing more is yielded.
    ValueError
        If the source cannot be read.
    """
    checks.integer("batch_rows", batch_rows, 1)
    checks.integer("memory", memory, 1)
    key = secrets.token_bytes(32) if key is None else key
    check = _Check(source.schema, key)
    with ExitStack() as stack:
        if _in_order(source, batch_rows, progress):
            units = _streamed(source, batch_rows, progress)
        else:
            parts = min(_PARTITIONS, max(1, -(-source.size * _ROW // memory)))
            units = _partitioned(source, batch_rows, parts, scratch, stack, progress)
        for unit in units:
            checked = check(unit)
            if checked is not None:
                yield checked
    check.finish(source)


@dataclass(frozen=True)
class Totals:
    """What a check found: all of it private until declared (the number of users is public by assumption)."""

    users: int
    episodes: int
    rows: int


def check(source: Source, **how: Any) -> Totals:
    """Check every row, keep nothing; parameters and errors of :func:`episodes`."""
    users = kept = rows = 0
    for part in episodes(source, **how):
        users, kept, rows = int(part.user[-1]) + 1, kept + len(part.user), part.rows
    return Totals(users, kept, rows)


# ------------------------------------------------------------------------------------- the order of users
def _rising(keys: Any, free: Flags | None = None) -> tuple[bool, bool]:
    """Whether keys never fall: by value, and (texts only) by length then value. ``free``: where they may."""
    if len(keys) < 2:
        return True, True
    if pa.types.is_integer(keys.type):
        values = keys.to_numpy(zero_copy_only=False)
        good = values[1:] >= values[:-1]
        return bool((good if free is None else good | (free[1:] != 0)).all()), False
    before, after = keys.slice(0, len(keys) - 1), keys.slice(1)
    by_value = pc.greater_equal(after, before).to_numpy(zero_copy_only=False)
    length = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    by_length = (length[1:] > length[:-1]) | ((length[1:] == length[:-1]) & by_value)
    if free is not None:
        by_value, by_length = by_value | (free[1:] != 0), by_length | (free[1:] != 0)
    return bool(by_value.all()), bool(by_length.all())


class _Order:
    """Follows the users of a stream, batch by batch."""

    def __init__(self) -> None:
        self.good = (True, True)
        self.last: Any = None

    def __call__(self, keys: Any) -> bool:
        whole = keys if self.last is None else pa.concat_arrays([self.last, keys])
        now = _rising(whole)
        self.good = self.good[0] and now[0], self.good[1] and now[1]
        self.last = keys.slice(len(keys) - 1)
        return any(self.good)


def _in_order(source: Source, batch_rows: int, progress: Progress | None) -> bool:
    order = _Order()
    return all(
        order(_array(table, "user"))
        for table in source.batches(batch_rows, progress, "look at the order", users_only=True)
    )


def _streamed(source: Source, batch_rows: int, progress: Progress | None) -> Iterator[pa.Table]:
    """Tables of whole users, from rows whose users come in order."""
    order, held = _Order(), list[pa.Table]()
    for table in source.batches(batch_rows, progress, "check"):
        users = _array(table, "user")
        if not order(users):
            raise ValueError("the order of users is not what it was: did a file change while it was read?")
        cut = int(np.flatnonzero(_changes(users))[-1])  # where the last user of the batch begins
        if cut == 0 and held and _array(held[-1], "user")[-1] == users[0]:
            held.append(table)
            continue
        if held or cut:
            yield pa.concat_tables([*held, table.slice(0, cut)]).combine_chunks()
        held = [table.slice(cut)]
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _partitioned(
    source: Source, batch_rows: int, parts: int, scratch: str | Path | None, stack: ExitStack,
    progress: Progress | None,
) -> Iterator[pa.Table]:  # fmt: skip
    """Tables of whole users, from rows in any order."""
    if parts == 1:
        tables = list(source.batches(batch_rows, progress, "check"))
        if tables:
            yield pa.concat_tables(tables).combine_chunks()
        return
    files = [stack.enter_context(tempfile.TemporaryFile(dir=scratch)) for _ in range(parts)]  # noqa: SIM115
    writers: list[Any] = []
    for table in source.batches(batch_rows, progress, "sort by user"):
        if not writers:
            writers = [pa.ipc.new_stream(file, table.schema) for file in files]
        part = partition_of(_array(table, "user"), parts)
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=parts))
        table = table.take(pa.array(order))
        for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if begin < end:
                writers[i].write_table(table.slice(begin, end - begin))
    done = 0
    for writer, file in zip(writers, files, strict=True) if writers else ():
        writer.close()
        file.seek(0)
        table = pa.ipc.open_stream(file).read_all()
        file.truncate(0)
        done += table.num_rows
        if table.num_rows:
            yield table
        if progress is not None:
            progress("check", done, source.rows)


def partition_of(users: Any, parts: int) -> NDArray[np.uint8]:
    """The partition of each user, by a hash of its name."""
    if pa.types.is_integer(users.type):
        hashes = pd.util.hash_array(users.to_numpy(zero_copy_only=False))
    else:
        coded = users.dictionary_encode()
        names = np.array(coded.dictionary.to_pylist(), dtype=object)
        hashes = pd.util.hash_array(names, categorize=False)[coded.indices.to_numpy(zero_copy_only=False)]
    return ((hashes >> np.uint64(7)) % np.uint64(parts)).astype(np.uint8)


def _array(table: pa.Table, name: str) -> Any:
    column = table[name]
    if column.num_chunks == 1:
        return column.chunk(0)
    column = column.combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _changes(keys: Any) -> Flags:
    """(n,) 1 where a key differs from the one before; 1 at the first."""
    out = np.ones(len(keys), np.uint8)
    if len(keys) > 1:
        if pa.types.is_integer(keys.type):
            values = keys.to_numpy(zero_copy_only=False)
            out[1:] = values[1:] != values[:-1]
        else:
            differ = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
            out[1:] = differ.to_numpy(zero_copy_only=False)
    return out


# ------------------------------------------------------------------------------------------ whole users
class _Check:
    """Sorts, checks and assembles one table of whole users after the other."""

    def __init__(self, schema: Schema, key: bytes) -> None:
        self.schema, self.key = schema, key
        layout = schema.layout
        self.absorbing = np.zeros(layout.states, np.uint8)
        self.absorbing[list(schema.terminal)] = 1
        self.idle = layout.row_action[layout.state_ptr[:-1]]
        known = schema.known
        if known is None:
            known = np.empty((0, layout.states, layout.actions))
        self.known = np.ascontiguousarray(known)
        self.found = np.zeros(kernels.KINDS, np.int64)
        self.first = np.full(kernels.KINDS, -1, np.int64)
        self.users = self.rows = 0
        self.alike = Alike()

    def __call__(self, table: pa.Table) -> Checked | None:
        table, new_user, new_episode = _sorted(table, self.schema.horizon)
        schema, layout = self.schema, self.schema.layout
        step, state, action, after, number = (
            _writable(table, name) for name in ("step", "state", "action", "next_state", "number")
        )
        reward = _writable(table, "reward")
        keyless = _nameless(_array(table, "user")) | _nameless(_array(table, "episode"))
        terminal = schema.terminal[0] if schema.terminal else -1
        most = schema.episodes_per_user if schema.contribute == "error" else 2**62
        kernels.check_rows(
            step, state, action, reward, after, number, keyless, new_user, new_episode,
            layout.row_index, layout.horizon, float(schema.low), float(schema.high), self.absorbing, terminal,
            schema.unfinished == "terminal", schema.reads_rewards, most, self.found, self.first,
        )  # fmt: skip
        self.rows += table.num_rows
        self.alike.add(_array(table, "user").take(pa.array(np.flatnonzero(new_user))))
        if self.found.any():
            return None
        starts = np.flatnonzero(new_episode)
        user = np.cumsum(new_user)[starts] - 1
        keep = np.ones(len(starts), np.uint8)
        if schema.contribute == "random":
            self._choose(table, starts, user, keep)
        n = int(keep.sum())
        states = np.empty((n, layout.horizon + 1), np.int64)
        actions, rewards = np.empty((n, layout.horizon), np.int64), np.empty((n, layout.horizon))
        kernels.assemble(
            state, action, reward, after, new_episode, keep, float(schema.low), float(schema.high),
            self.absorbing, terminal, self.idle, self.known, states, actions, rewards,
        )  # fmt: skip
        user = user[keep != 0] + self.users
        self.users += int(new_user.sum())
        if schema.outcomes is not None:
            rewards = _earned(schema, states)
        return Checked(Trajectories(states, actions, rewards), user, self.rows)

    def _choose(self, table: pa.Table, starts: Ints, user: NDArray[Any], keep: Flags) -> None:
        """Of users with more than m episodes keep the m whose keyed hashes are the least."""
        begins = np.flatnonzero(np.diff(user, prepend=-1))
        sizes = np.diff(begins, append=len(user))
        users, names = table["user"], table["episode"]
        for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True):
            if size <= self.schema.episodes_per_user:
                continue
            who = str(users[int(starts[begin])].as_py()).encode()
            own = hashlib.blake2b(who, key=self.key, digest_size=32).digest()
            luck = [
                hashlib.blake2b(str(names[int(start)].as_py()).encode(), key=own).digest()
                for start in starts[begin : begin + size]
            ]
            order = sorted(range(size), key=luck.__getitem__)
            keep[begin + np.array(order[self.schema.episodes_per_user :])] = 0

    def finish(self, source: Source) -> None:
        """Raise the one error that tells of all."""
        counts = {KINDS[i]: int(count) for i, count in enumerate(self.found) if count}
        if source.malformed:
            counts["malformed line"] = len(source.malformed)
        if not counts:
            self.alike.warn(self.schema.unit, self.schema.columns.user)
            return
        offences = [(int(row), code) for code, row in enumerate(self.first) if row >= 0]
        if offences:
            number, code = min(offences)
            kind = KINDS[code]
            text = f"{source.place(number)}: {self._reason(code)}"
        else:
            kind = "malformed line"
            name, number = source.malformed[0]
            text = f"{Path(name).name} line {number}: must have as many fields as the header"
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise DataError(f"{text}. Offending rows in all: {listed}", counts, (kind, number))

    def _reason(self, code: int) -> str:
        """What is wrong, and what is allowed."""
        schema, layout = self.schema, self.schema.layout

        def index(labels: tuple[str, ...] | None, size: int) -> str:
            return f"in [0, {size - 1}]" if labels is None else "one of the schema's labels"

        first = schema.first_step
        return {
            kernels.EMPTY: "a cell is empty: every one must be given"
            + (", but for the last next state" if schema.terminal else ""),
            kernels.STATE: f"state and next state must be {index(schema.state_labels, layout.states)}",
            kernels.ACTION: f"the action must be {index(schema.action_labels, layout.actions)}",
            kernels.REWARD: f"the reward must be a number in [{schema.low!r}, {schema.high!r}]",
            kernels.INADMISSIBLE: "the schema's mask does not admit this action in this state",
            kernels.STEP: f"the step must be an integer in [{first}, {first + layout.horizon - 1}]",
            kernels.TWICE: "the episode has this step already",
            kernels.GAP: "the step before it is missing",
            kernels.BROKEN: "the state is not the next state of the step before",
            kernels.SHORT: f"the episode ends here, before step {first + layout.horizon - 1}: must "
            + ("end in a terminal state" if schema.terminal else "go on, no terminal state is declared"),
            kernels.LEFT: "the episode leaves a terminal state",
            kernels.MANY: f"the {schema.unit} has more than episodes_per_user = {schema.episodes_per_user}",
        }[code]


def _writable(table: pa.Table, name: str) -> NDArray[Any]:
    """A column for a kernel, which is compiled for arrays that may be written."""
    values = _array(table, name).to_numpy(zero_copy_only=False)
    return values if values.flags.writeable else values.copy()


def _nameless(keys: Any) -> Flags:
    if pa.types.is_integer(keys.type):
        return (keys.to_numpy(zero_copy_only=False) == MISSING).astype(np.uint8)
    return np.asarray(pc.equal(keys, "").to_numpy(zero_copy_only=False)).astype(np.uint8)


def _sorted(table: pa.Table, horizon: int) -> tuple[pa.Table, Flags, Flags]:
    """The table by user, episode, step, row number; where users and where episodes begin."""
    users, names = _array(table, "user"), _array(table, "episode")
    new_user = _changes(users)
    new_episode = new_user | _changes(names)
    step = _array(table, "step").to_numpy(zero_copy_only=False)
    steps_rise = bool(((step[1:] >= step[:-1]) | (new_episode[1:] != 0)).all())
    if steps_rise and any(_rising(users)) and any(_rising(names, new_user)):
        return table, new_user, new_episode
    user, name = _code(users), _code(names)
    pair = user * (int(name.max(initial=0)) + 1) + name
    clipped = np.clip(step, -1, horizon)  # beyond them the order does not matter
    order = np.lexsort((clipped, pair))  # stable: rows come by rising number
    table = table.take(pa.array(order))
    user, pair = user[order], pair[order]
    new_user, new_episode = np.ones(len(user), np.uint8), np.ones(len(user), np.uint8)
    new_user[1:], new_episode[1:] = user[1:] != user[:-1], pair[1:] != pair[:-1]
    return table, new_user, new_episode


def _code(keys: Any) -> Ints:
    """Numbers 0, 1, .. of keys in the order of their first appearance."""
    return np.asarray(keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _earned(schema: Schema, states: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n, H) rewards in [0, 1] by the rule of the outcomes: on arrival, once."""
    arrival = np.zeros(schema.layout.states)
    for state, reward in (schema.outcomes or {}).items():
        arrival[state] = reward
    ended = np.isin(states[:, :-1], schema.terminal)
    earned = np.where(ended, 0.0, arrival[states[:, 1:]])
    return np.asarray((earned - schema.low) / (schema.high - schema.low))
