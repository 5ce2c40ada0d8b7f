"""Check of every row against the schema, and assembly of rows into episodes, in bounded memory.

Budget must not be spent on data that violate a declaration. The noise is calibrated to the declared
sensitivity. Undetected errors, such as a step beyond the horizon, a second episode or a reward of 1.2, would
exceed this sensitivity. Therefore :func:`episodes` checks every row that it reads. If a row violates the
schema, it raises a :class:`DataError` at the end, with the number of all offending rows. The yielded episodes
are provisional until the function ends without an error.

The rows of a user can be anywhere in the source. A first pass over the user column finds out whether the rows
of every user are contiguous (users can be in any order). If they are, the rows are streamed; the steps and
episodes of a user can be in any order. Many small files are read only once and kept in memory if they need at
most ``memory`` bytes, because opening a small file takes longer than reading it. If the rows of users are not
contiguous, they are divided into partitions by a hash of the user. Each partition is small enough to be
sorted in memory. Partitions are temporary files without a name and with mode 0600. If the system allows it,
they are unlinked as soon as they are opened, so that no file remains even after kill -9. Each thread needs
memory for a few batches. The further memory depends on the case. If rows are streamed, it is the rows of a
single user and 8 bytes per user. Otherwise, it is the partitions or the small files, about ``memory`` bytes
in total.

The rows are divided into units, which are tables of complete users. Threads sort, check and assemble the
units (:class:`~discreet.data.row_batches.Pool`). Their results are combined in order. The offending rows and
the episodes that count do not depend on the number of threads.

Under ``contribute = "random"``, the choice of m episodes of a user depends only on a secret key and on the
names of the user's episodes. It does not depend on the order of rows, their contents, or other users.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.releases import Ints
from discreet.core.trajectories import Trajectories
from discreet.data import row_kernels as kernels
from discreet.data.near_duplicate_ids import Alike, Folded, distinct, hashed
from discreet.data.row_batches import BATCH_ROWS, UNREAD, Pool, Progress, Source, ahead, in_order
from discreet.data.schema import Schema
from discreet.data.sources import MISSING
from discreet.utils.system import processors

Flags = NDArray[np.uint8]

MEMORY = 2**28
_SMALL = 2**15  # A file with fewer rows is faster to keep in memory than to open a second time.
_HELD = 64  # Approximate number of bytes per row of a batch.
_ROW = 160  # Approximate number of bytes per row while a partition is sorted and checked.
_PARTITIONS = 256  # Largest number of partitions, which are files that are open at the same time.
# Largest number of users for which hashes are kept (256 MB). If users are not sorted, the hashes show whether
# the rows of every user are contiguous.
_MOST_HASHES = 2**25

KINDS = (
    "empty cell", "state", "action", "reward", "inadmissible action", "step", "repeated step", "missing step",
    "broken chain", "short episode", "left terminal", "too many episodes", "group", "two groups",
    "context", "malformed line",
)  # fmt: skip
"""Kinds of offences. The first are in the order of the codes in :mod:`.row_kernels`. They are followed by the
kinds of the codes :data:`GROUP`, :data:`TWO_GROUPS` and :data:`CONTEXT_CELL`. The last kind is found by the
CSV reader.
"""
GROUP, TWO_GROUPS = kernels.KINDS, kernels.KINDS + 1
CONTEXT_CELL = kernels.KINDS + 2
_CODES = kernels.KINDS + 3


class DataError(ValueError):
    """Error that is raised if rows violate the schema.

    It states the first offending row, and the number of offending rows of each kind.

    The text and the attributes are PRIVATE. They quote a user's row and contain counts without noise. Show
    them only to the data owner, on the owner's terminal, and do not store them.

    Attributes
    ----------
    counts : mapping of a kind (one of ``KINDS``) to the number of offending rows
    first : (kind, number)
        The kind and the row number, in the whole source from 0, of the first offending row. If all offences
        are malformed lines, it is the number of the first such line.
    """

    def __init__(self, text: str, counts: Mapping[str, int], first: tuple[str, int]) -> None:
        super().__init__(text)
        self.counts = dict(counts)
        self.first = first


@dataclass(frozen=True)
class Checked:
    """Batch of checked episodes: all counted episodes of some users, with rewards scaled to [0, 1].

    Attributes
    ----------
    trajectories : n episodes
    user : (n,) int64
        The number of the user of each episode. Users are numbered 0, 1, .. over all batches, and the numbers
        never decrease.
    rows : int
        Number of rows read so far.
    names : Arrow array
        Names of the users of this batch in the file, in the order of their numbers.
    group : (n,) int64, optional
        The index of the group of each episode's user, if the schema has groups.
    """

    trajectories: Trajectories
    user: Ints
    rows: int
    names: Any = None
    group: Ints | None = None


def episodes(
    source: Source,
    *,
    batch_rows: int = BATCH_ROWS,
    memory: int = MEMORY,
    scratch: str | Path | None = None,
    key: bytes | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> Iterator[Checked]:
    """Check all rows and yield the episodes.

    The episodes are provisional until the iterator has ended without an error.

    Parameters
    ----------
    batch_rows : int
        Number of rows per batch that is read.
    memory : int
        Approximate number of bytes for the partitions that are sorted at the same time. Small files are read
        only once if all their rows fit into ``memory``.
    scratch : folder, optional
        Folder for the partitions, which are about as large as the data; default: the system's temporary
        folder.
    key : bytes, optional
        Secret that determines the chosen episodes under ``contribute = "random"``; default: a new random key.
        Anyone who knows the key can determine which episodes were left out.
    progress : callable, optional
        Called in the caller's thread as ``progress(what, rows done, total rows or None)``.
    workers : int, optional
        Number of threads; default: one for each processor. The offending rows and the episodes that count do
        not depend on this number. The order in which users are numbered can depend on it if the rows of users
        are not contiguous.

    Raises
    ------
    DataError
        After the last row, if any row violates the schema. No episodes are yielded after the first offending
        row.
    ValueError
        If the source cannot be read.
    """
    checks.integer("batch_rows", batch_rows, 1)
    checks.integer("memory", memory, 1)
    workers = processors() if workers is None else checks.integer("workers", workers, 1)
    key = secrets.token_bytes(32) if key is None else key
    check = _Check(source.schema, key)
    _keep_freed_memory()
    later = _Messages(progress)
    with ExitStack() as stack:
        pool = stack.enter_context(Pool(workers))
        units = _units(source, batch_rows, memory, scratch, stack, progress, later.add, pool)
        found = in_order(pool, check.looked_at, units)
        if workers > 1:  # the threads then continue to work while the caller processes a batch
            found = stack.enter_context(closing(ahead(found, workers + 1)))
        for unit in found:
            later.tell()
            checked = check.taken(unit)
            if checked is not None:
                yield checked
        later.tell()
    check.finish(source)


class _Messages:
    """Queue of progress messages from worker threads, which the caller's thread delivers."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._waiting: deque[tuple[str, int, int | None]] = deque()

    def add(self, *now: Any) -> None:
        self._waiting.append(now)

    def tell(self) -> None:
        """Pass all waiting messages to ``progress``. Call this method only from the caller's thread."""
        while self._waiting and self._progress is not None:
            self._progress(*self._waiting.popleft())


def _keep_freed_memory() -> None:
    """Make the allocator keep up to 64 MB of freed memory, which avoids page faults.

    glibc returns the free end of a heap to the system if it is more than twice as large as the largest block
    freed before. Arrays of some MB that are allocated and freed repeatedly would then cause page faults each
    time. Threads wait for each other during page faults. Therefore this function allocates and frees a large
    block without using it. On other systems, the call has no effect.
    """
    np.empty(2**25 - 2**16, np.uint8)


@dataclass(frozen=True)
class DatasetSize:
    """Numbers of users, episodes and rows that :func:`check` has counted.

    These numbers are private until the data owner declares them. The guarantees assume that the number of
    users is public.
    """

    users: int
    episodes: int
    rows: int


def check(source: Source, **how: Any) -> DatasetSize:
    """Check every row and count the episodes, without keeping them.

    This function has the same keyword arguments and errors as :func:`episodes`.
    """
    users = kept = rows = 0
    for part in episodes(source, **how):
        users, kept, rows = int(part.user[-1]) + 1, kept + len(part.user), part.rows
    return DatasetSize(users, kept, rows)


# ------------------------------------------------------------------------------------- the order of users
def _rising(keys: Any, free: Flags | None = None) -> tuple[bool, bool]:
    """Test whether an Arrow array of keys is sorted.

    Returns two flags. The first is True if the keys never decrease in the order by value. The second is True
    if the keys are strings that never decrease in the order by length, then by value.

    ``free`` : array that is 1 where a key can be smaller than the previous key. If several consecutive keys
    are equal, it is enough to pass the first of them.
    """
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


class _Look(NamedTuple):
    """Facts about the order of users in a batch.

    Attributes
    ----------
    rising : result of :func:`_rising` for the users of all blocks; a block is a run of rows of the same user
    first, last : the users of the first and of the last row, as Arrow arrays of length 1
    begins : the first row of each block
    hashes : the hash of the user of each block
    back : True if the users are not sorted, and two blocks have the same hash
    """

    rising: tuple[bool, bool]
    first: Any
    last: Any
    begins: Ints
    hashes: NDArray[np.uint64]
    back: bool


def _look(keys: Any) -> _Look:
    """Return the facts about the user keys of a batch. This function can be called from any thread."""
    begins = _where(_changes(keys))
    firsts = keys.take(pa.array(begins))
    rising, own = _rising(firsts), hashed(firsts)
    back = not any(rising) and distinct(own) < len(own)
    return _Look(rising, keys.slice(0, 1), keys.slice(len(keys) - 1), begins, own, back)


_Batch = tuple[pa.Table, _Look]


class _Together:
    """Test of whether the rows of every user are contiguous.

    They are contiguous if the users are sorted, or if no user occurs again after another user. The second
    test needs 8 bytes per user and is limited to :data:`_MOST_HASHES` users. It compares the users' numbers,
    or hashes of their names. If two users have the same hash, the rows are treated as not contiguous.
    """

    def __init__(self) -> None:
        self._rising = (True, True)
        self._last: Any = None
        self._seen: list[NDArray[np.uint64]] | None = []
        self._users = 0

    def add(self, found: _Look) -> bool:
        """Add the facts about the next batch. Returns False if the test has certainly failed."""
        ends = found.first if self._last is None else pa.concat_arrays([self._last, found.first])
        self._rising = tuple(  # type: ignore[assignment]
            all(both) for both in zip(self._rising, _rising(ends), found.rising, strict=True)
        )
        if self._seen is not None:
            own = found.hashes if _changes(ends)[-1] else found.hashes[1:]
            self._seen.append(own)
            self._users += len(own)
            if (found.back and not any(self._rising)) or self._users > _MOST_HASHES:
                self._seen = None
        self._last = found.last
        return any(self._rising) or self._seen is not None

    def __bool__(self) -> bool:
        if any(self._rising) or self._seen is None:
            return any(self._rising)
        return distinct(np.concatenate(self._seen)) == self._users


def _looked(
    source: Source, batch_rows: int, progress: Progress | None, what: str, users_only: bool, pool: Pool
) -> Iterator[tuple[pa.Table, _Look]]:
    """Yield pairs of a batch and the facts about the order of its users."""
    return source.worked(
        lambda table: _look(_array(table, "user")), batch_rows, progress, what, users_only, pool
    )


def _together(
    source: Source, batch_rows: int, progress: Progress | None, pool: Pool, held: deque[_Batch] | None
) -> bool:
    """Return True if the rows of every user are contiguous.

    ``held`` : queue to which all batches are appended, so that they are read only once; None to keep none.
    """
    users = _Together()
    for table, found in _looked(source, batch_rows, progress, "look at the order", held is None, pool):
        if not users.add(found):
            return False
        if held is not None:
            held.append((table, found))
    return bool(users)


def _units(
    source: Source, batch_rows: int, memory: int, scratch: str | Path | None, stack: ExitStack,
    progress: Progress | None, later: Progress, pool: Pool,
) -> Iterator[Callable[[], pa.Table]]:  # fmt: skip
    """Return functions that each return a table of complete users.

    The order of the rows determines how users are collected.

    ``progress`` is called while the order is determined, and ``later`` while rows are read again.
    """
    many = len(source.places) - 1
    small = many > 0 and source.size < many * _SMALL and source.size * _HELD <= memory
    held: deque[_Batch] | None = deque() if small else None
    if not _together(source, batch_rows, progress, pool, held):
        return _partitioned(source, batch_rows, memory, scratch, stack, later, pool)
    again = _looked(source, batch_rows, later, "check", False, pool)
    return _streamed(again if held is None else _kept(held, later, source.rows))


def _kept(held: deque[_Batch], progress: Progress, rows: int | None) -> Iterator[_Batch]:
    """Yield batches that were kept in memory, and remove each batch from ``held``.

    ``rows`` : total number of rows, for ``progress``.
    """
    done = 0
    while held:
        table, found = held.popleft()
        done += table.num_rows
        yield table, found
        progress("check", done, rows)


def _streamed(batches: Iterator[_Batch]) -> Iterator[Callable[[], pa.Table]]:
    """Yield functions that each return a table of complete users.

    The rows of every user must be contiguous in ``batches``. Raises ``ValueError`` if they are not.
    """
    users, held = _Together(), list[pa.Table]()

    def check() -> None:
        if not users:
            raise ValueError("the order of users changed: did a file change while it was read?")

    for table, found in batches:
        if not users.add(found):
            check()
        cut = int(found.begins[-1])  # the first row of the last user in the batch
        if cut == 0 and held and _array(held[-1], "user")[-1] == found.first[0]:
            held.append(table)
            continue
        if held or cut:
            yield partial(_joined, [*held, table.slice(0, cut)])
        held = [table.slice(cut)]
    if held:
        yield partial(_joined, held)
    check()


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def _partitioned(
    source: Source, batch_rows: int, memory: int, scratch: str | Path | None, stack: ExitStack,
    progress: Progress | None, pool: Pool,
) -> Iterator[Callable[[], pa.Table]]:  # fmt: skip
    """Yield functions that each return a table of complete users. Rows can be in any order."""
    at_once = pool.workers + 1 if pool.workers > 1 else 1
    parts = min(_PARTITIONS, max(1, -(-source.size * _ROW * at_once // memory)))
    if source.size * _ROW <= memory:  # all rows fit into memory
        number = min(_PARTITIONS, at_once) if source.size > batch_rows else 1
        kept: list[list[pa.Table]] = [[] for _ in range(number)]
        for table, ends in _spread(source, batch_rows, len(kept), progress, pool):
            for part, (begin, end) in zip(kept, ends, strict=True):
                if begin < end:
                    part.append(table.slice(begin, end - begin))
        while kept:
            tables = kept.pop(0)
            if tables:
                yield partial(_joined, tables)
        return
    files = [stack.enter_context(tempfile.TemporaryFile(dir=scratch)) for _ in range(parts)]  # noqa: SIM115
    writers: list[Any] = []
    for table, ends in _spread(source, batch_rows, parts, progress, pool):
        if not writers:
            writers = [pa.ipc.new_stream(file, table.schema) for file in files]
        for writer, (begin, end) in zip(writers, ends, strict=True):
            if begin < end:
                writer.write_table(table.slice(begin, end - begin))
    done = 0
    for writer, file in zip(writers, files, strict=True) if writers else ():
        writer.close()
        file.seek(0)
        table = pa.ipc.open_stream(file).read_all()
        file.truncate(0)
        done += table.num_rows
        if table.num_rows:
            yield partial(_joined, [table])
        if progress is not None:
            progress("check", done, source.rows)


def _spread(
    source: Source, batch_rows: int, parts: int, progress: Progress | None, pool: Pool
) -> Iterator[tuple[pa.Table, list[tuple[int, int]]]]:
    """Yield batches with their rows sorted by the partition of the user.

    Each batch comes with a list of the (begin, end) rows of the partitions.
    """

    def work(table: pa.Table) -> tuple[pa.Table, list[tuple[int, int]]]:
        if parts == 1:
            return table, [(0, table.num_rows)]
        part = partition_of(_array(table, "user"), parts)
        ends = np.cumsum(np.bincount(part, minlength=parts)).tolist()
        order = np.argsort(part, kind="stable")
        return table.take(pa.array(order)), list(zip([0, *ends[:-1]], ends, strict=True))

    for _, found in source.worked(work, batch_rows, progress, "sort by user", False, pool):
        yield found


def partition_of(users: Any, parts: int) -> NDArray[np.uint8]:
    """Return the (n,) partitions of an Arrow array of n user names, which are computed from hashes.

    The partitions are numbered from 0 to ``parts`` - 1.
    """
    # the multiplication puts users with consecutive numbers into different partitions
    mixed = hashed(users) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(parts)).astype(np.uint8)


def _array(table: pa.Table, name: str) -> Any:
    column = table[name]
    if column.num_chunks == 1:
        return column.chunk(0)
    column = column.combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _changes(keys: Any) -> Flags:
    """Return an (n,) array that is 1 at the first key and at each key that differs from the previous key."""
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
@dataclass(frozen=True)
class _Unit:
    """Result of the check of one unit of complete users.

    ``found`` and ``first`` describe the offending rows, as in :func:`.row_kernels.check_rows`. If there are
    none, ``trajectories`` has the episodes.
    """

    rows: int
    users: int
    found: Ints
    first: Ints
    alike: Folded
    names: Any
    trajectories: Trajectories | None = None
    user: Ints | None = None  # the number of each episode's user, from 0 within this unit
    group: Ints | None = None


class _Check:
    """Checker that sorts, checks and assembles units of complete users, and combines their results."""

    def __init__(self, schema: Schema, key: bytes) -> None:
        self.schema, self.key = schema, key
        layout = schema.layout
        self.absorbing = np.zeros(layout.states, np.uint8)
        self.absorbing[list(schema.terminal)] = 1
        self.idle = layout.row_action[layout.state_ptr[:-1]]
        known = schema.known
        if known is None:
            known = np.empty((0, layout.states, layout.actions))
        # a read-only array would be of another type, for which the kernel is compiled again
        self.known = np.require(known, requirements=("C", "W"))
        self.arrival = np.zeros(0 if schema.outcomes is None else layout.states)
        for state, reward in (schema.outcomes or {}).items():
            self.arrival[state] = reward
        self.found = np.zeros(_CODES, np.int64)
        self.first = np.full(_CODES, -1, np.int64)
        self.users = self.rows = 0
        self.alike = Alike()

    def looked_at(self, unit: Callable[[], pa.Table]) -> _Unit:
        """Check the rows of a unit of complete users, and assemble their episodes.

        The result does not depend on other units. This method can be called from any thread.
        """
        table, new_user, new_episode = _sorted(unit(), self.schema.horizon)
        schema, layout = self.schema, self.schema.layout
        found, first = np.zeros(_CODES, np.int64), np.full(_CODES, -1, np.int64)
        step, state, action, after, number = (
            _read_only(table, name) for name in ("step", "state", "action", "next_state", "number")
        )
        reward = _read_only(table, "reward")
        users = _array(table, "user")
        keyless = _nameless(users) | _nameless(_array(table, "episode"))
        group = None
        if schema.groups is not None:
            group = _read_only(table, "group")
            keyless |= (group == MISSING).astype(np.uint8)
            _check_groups(group, number, new_user, found, first)
        if schema.context is not None and (unread := _read_only(table, UNREAD) != 0).any():
            found[CONTEXT_CELL] = unread.sum()
            first[CONTEXT_CELL] = number[unread].min()
        terminal = schema.terminal[0] if schema.terminal else -1
        most = schema.episodes_per_user if schema.contribute == "error" else 2**62
        kernels.check_rows(
            step, state, action, reward, after, number, keyless, new_user, new_episode,
            layout.row_index, layout.horizon, float(schema.low), float(schema.high), self.absorbing, terminal,
            schema.unfinished == "terminal", schema.reads_rewards, most, found, first,
        )  # fmt: skip
        names = users.take(pa.array(_where(new_user)))
        alike = self.alike.looked_at(names)
        unit_of = partial(_Unit, table.num_rows, int(new_user.sum()), found, first, alike, names)
        if found.any():
            return unit_of()
        starts = _where(new_episode)
        user = np.cumsum(new_user)[starts] - 1
        keep = np.ones(len(starts), np.uint8)
        if schema.contribute == "random":
            self._choose(table, starts, user, keep)
        n = int(keep.sum())
        states = np.empty((n, layout.horizon + 1), np.int64)
        actions, rewards = np.empty((n, layout.horizon), np.int64), np.empty((n, layout.horizon))
        kernels.assemble(
            state, action, reward, after, new_episode, keep, float(schema.low), float(schema.high),
            self.absorbing, terminal, self.idle, self.known, self.arrival, states, actions, rewards,
        )  # fmt: skip
        own = None if group is None else np.array(group[starts[keep != 0]])
        return unit_of(Trajectories(states, actions, rewards), user[keep != 0], own)

    def taken(self, unit: _Unit) -> Checked | None:
        """Add the result of the next unit, and return its episodes.

        Users are numbered consecutively over all units. Returns None if this or an earlier unit has an
        offending row.
        """
        self.rows += unit.rows
        self.found += unit.found
        for kind in np.flatnonzero(unit.first >= 0):
            old = self.first[kind]
            self.first[kind] = unit.first[kind] if old < 0 else min(old, unit.first[kind])
        self.alike.take(unit.alike)
        if self.found.any() or unit.trajectories is None or unit.user is None:
            return None
        user = unit.user + self.users
        self.users += unit.users
        return Checked(unit.trajectories, user, self.rows, unit.names, unit.group)

    def _choose(self, table: pa.Table, starts: Ints, user: NDArray[Any], keep: Flags) -> None:
        """Choose m episodes of each user who has more, and set ``keep`` to 0 for the user's other episodes.

        Episodes are chosen if the keyed hashes of their names are the smallest.
        """
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
        """Raise a :class:`DataError` if rows violate the schema.

        Otherwise emit a warning if the name of a user looks like the name of another user.
        """
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
            column = f"column {source.unread_column(number)} " if code == CONTEXT_CELL else ""
            text = f"{source.place(number)}: {column}{self._reason(code)}"
        else:
            kind = "malformed line"
            name, number = source.malformed[0]
            text = f"{Path(name).name} line {number}: must have as many fields as the header"
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise DataError(f"{text}. Offending rows in total: {listed}", counts, (kind, number))

    def _reason(self, code: int) -> str:
        """Return the text that describes the offence with this code and the accepted values."""
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
            GROUP: "the group must be one of the schema's labels (groups.labels): declare the label, or "
            "replace it in the file by one that is declared, such as 'other'",
            TWO_GROUPS: f"the {schema.unit} is of another group in an earlier row: give all rows of a "
            f"{schema.unit} one label, such as that of the first episode",
            CONTEXT_CELL: "must be a number with a decimal point, or empty; for decimal commas in CSV give "
            "--source decimal=,",
        }[code]


def _check_groups(group: Ints, number: Ints, new_user: Flags, found: Ints, first: Ints) -> None:
    """Check the groups of all rows, and count offending rows in ``found`` and ``first``.

    A row is offending if its group is not a label, or differs from the first label in the rows of its user.
    """
    good = group >= 0
    user = np.cumsum(new_user) - 1
    begins = np.flatnonzero(good)
    own = np.full(len(new_user), -1)
    own[user[begins][::-1]] = group[begins][::-1]  # written in reverse order, so that the first label is kept
    for code, wrong in ((GROUP, ~good & (group != MISSING)), (TWO_GROUPS, good & (group != own[user]))):
        if wrong.any():
            found[code] += int(wrong.sum())
            first[code] = int(number[wrong].min())


def _read_only(table: pa.Table, name: str) -> NDArray[Any]:
    """Return a column as a read-only array.

    The kernels are compiled for read-only arrays, because Arrow's arrays are read-only and need no copy.
    """
    values: NDArray[Any] = _array(table, name).to_numpy(zero_copy_only=False)
    values.flags.writeable = False
    return values


def _where(flags: Flags) -> Ints:
    """Return the indices at which the flags are 1.

    The array is searched as an array of bool, which is much faster than a search of uint8.
    """
    return np.flatnonzero(flags.view(np.bool_))


def _nameless(keys: Any) -> Flags:
    if pa.types.is_integer(keys.type):
        return (keys.to_numpy(zero_copy_only=False) == MISSING).astype(np.uint8)
    return np.asarray(pc.equal(keys, "").to_numpy(zero_copy_only=False)).astype(np.uint8)


def _sorted(table: pa.Table, horizon: int) -> tuple[pa.Table, Flags, Flags]:
    """Sort a table by user, episode, step and row number.

    Returns the table, and two arrays that are 1 at the first row of each user and of each episode. If the
    rows are already grouped and the steps sorted, the table is returned unchanged.
    """
    users, names = _array(table, "user"), _array(table, "episode")
    new_user = _changes(users)
    new_episode = new_user | _changes(names)
    step = _array(table, "step").to_numpy(zero_copy_only=False)
    steps_rise = bool(((step[1:] >= step[:-1]) | (new_episode[1:] != 0)).all())
    begins, one_each = _where(new_episode), int(new_user.sum()) == int(new_episode.sum())
    if (
        steps_rise
        and _apart(users.take(pa.array(_where(new_user))))
        and (one_each or any(_rising(names.take(pa.array(begins)), new_user[begins])))
    ):
        return table, new_user, new_episode
    user, name = _code(users), _code(names)
    # A user's episodes are put in the order of their first rows. The order of their name codes cannot be
    # used, because it depends on other users' episodes with the same names.
    one = _code(pa.array(user * (int(name.max(initial=0)) + 1) + name))
    pair = user * (int(one.max(initial=0)) + 1) + one
    clipped = np.clip(
        step, -1, horizon
    )  # steps outside this range are offences, so their order is irrelevant
    order = np.lexsort((clipped, pair))  # this sort is stable, so row numbers stay in ascending order
    table = table.take(pa.array(order))
    user, pair = user[order], pair[order]
    new_user, new_episode = np.ones(len(user), np.uint8), np.ones(len(user), np.uint8)
    new_user[1:], new_episode[1:] = user[1:] != user[:-1], pair[1:] != pair[:-1]
    return table, new_user, new_episode


def _apart(firsts: Any) -> bool:
    """Return True if the rows of every user are contiguous.

    ``firsts`` : one key for each block of consecutive rows of a user.
    """
    # Users with different hashes are different. If two hashes are equal, the names are compared.
    return (
        any(_rising(firsts))
        or distinct(hashed(firsts)) == len(firsts)
        or bool(pc.count_distinct(firsts).as_py() == len(firsts))
    )


def _code(keys: Any) -> Ints:
    """Return an (n,) array with the number of each key. Keys are numbered 0, 1, .. by first occurrence."""
    return np.asarray(keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)).astype(np.int64)
