"""Reader of trajectory rows from any supported source, in batches that always have the same columns.

For every source, a batch is an Arrow table with these columns:

* ``user``, ``episode`` (int64 or text);
* ``step``, ``state``, ``action``, ``next_state`` (int64: indices, steps from 0);
* ``reward`` (float64, in the file's units);
* ``number`` (int64: the row's position in the whole source).

If the schema has contexts, ``state`` and ``next_state`` are 0, and the columns ``context 0``, ``context 1``
and so on (float64, NaN for a cell that is empty or not a number) follow. If the schema has groups of users,
the table also has the column ``group`` (int64). A cell that is not a number or not a label of the schema is
replaced by a code that every check rejects. Such cells are never corrected; :mod:`.validate` counts them.
Only a few batches are in memory at the same time. The supported sources are Minari and the
sources of :mod:`.sources`.

The names of users or episodes are integers if their column has an integer type in every source; otherwise
they are strings. ``7`` in a CSV file and 7 in a Parquet file are the same user, but ``07`` and `` 7`` are
different users. If a data set has two spellings of a user's name, the user counts as two users
(:mod:`.near_duplicate_ids` counts such names). Empty CSV cells and the CSV strings ``NA``, ``NaN`` and
``null`` are read as empty cells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.data.cell_texts import positions
from discreet.data.number_parsing import parsed
from discreet.data.schema import Schema
from discreet.data.sources import (
    EMPTY,
    MISSING,
    Broken,
    TableSource,
    Text,
    TextFile,
    instead,
    local_files,
    mark_of,
    places_of,
    whole_names,
)
from discreet.data.synthetic_mark import MARK, Facts, check_mark, facts_in

__all__ = [
    "BATCH_ROWS", "CONTEXT", "UNREAD", "UNREADABLE", "Broken", "Progress", "Source", "open_source",
]  # fmt: skip

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[str, int, int | None], None]
"""Function that is called as ``progress(what, rows done, total rows or None)`` after every batch."""

BATCH_ROWS = 2**17
CONTEXT = "context "  # prefix of the names of context columns in a batch; the number of the column follows
# Column of a batch that is 1 where a cell of a context is neither empty nor a number.
UNREAD = "unread"
UNREADABLE = -1  # code for a cell that is neither an index nor a label of the schema
_EXACT = 2.0**53
_PARTS = ("user", "episode", "step", "state", "action", "reward", "next_state")


@dataclass
class Source:
    """Source of rows: files and tables in a fixed order, or one Minari dataset.

    A source reads the files again for every pass, and keeps none of their rows in memory. ``synthetic``
    contains the facts of synthetic users (:mod:`.synthetic_mark`); it is empty for real users.
    """

    __repr__ = brief

    schema: Schema
    places: tuple[TableSource, ...] = field(default=(), repr=False)
    minari: str | None = None
    synthetic: tuple[Facts, ...] = ()

    @property
    def malformed(self) -> list[tuple[str, int]]:
        """Lines that the last pass skipped because of a wrong number of fields, as pairs (file, line number).

        Line numbers start at 1, and 0 means that the number is unknown. Skipped lines have no row number.
        """
        return [(place.name, line) for place in self.places for line in place.malformed]

    @property
    def files(self) -> list[Path]:
        """Files on this machine that this source reads."""
        if self.minari is not None:
            folder = Path(_minari(self.minari).storage.data_path)
            return [folder / "metadata.json", *folder.rglob("*")]
        return local_files(self.places)

    @cached_property
    def rows(self) -> int | None:
        """Number of rows, if it is known without reading the source."""
        counts = [place.rows for place in self.places]
        if self.minari is not None or None in counts:
            return None
        return sum(count or 0 for count in counts)

    @cached_property
    def size(self) -> int:
        """Number of rows, or an upper estimate from the file sizes."""
        if self.minari is not None:
            return int(_minari(self.minari).total_steps)
        return sum(place.size for place in self.places)

    @cached_property
    def _text(self) -> tuple[bool, bool]:
        """Two flags: True if the names of users, and of episodes, are read as text instead of integers."""
        if self.minari is not None:
            return False, False
        names = self.schema.columns
        stated = [place.types() for place in self.places]
        user, episode = (
            all(types is not None and name in types and pa.types.is_integer(types[name]) for types in stated)
            for name in (names.user, names.episode)
        )
        return not user, not episode

    def batches(
        self,
        batch_rows: int = BATCH_ROWS,
        progress: Progress | None = None,
        what: str = "read",
        users_only: bool = False,
        pool: Pool | None = None,
    ) -> Iterator[pa.Table]:
        """Yield all rows in order, in batches of about ``batch_rows`` rows.

        - users_only : True to yield only the column ``user``, which is fast.
        - pool : threads that convert batches while other batches are read and processed.

        Raises the same errors as :meth:`worked`.
        """
        for table, _ in self.worked(lambda _: None, batch_rows, progress, what, users_only, pool):
            yield table

    def worked(
        self,
        work: Callable[[pa.Table], R],
        batch_rows: int,
        progress: Progress | None,
        what: str,
        users_only: bool,
        pool: Pool | None,
    ) -> Iterator[tuple[pa.Table, R]]:
        """Yield pairs of a batch, as in :meth:`batches`, and the result of ``work`` for this batch.

        ``work`` runs in the same thread as the conversion of the batch.

        Raises
        ------
        ValueError
            If a file does not have the stated format or lacks a column, or if a column has a wrong type.
        """
        done = 0
        try:
            for table, found in self._tables(work, batch_rows, users_only, pool):
                done += table.num_rows
                if found is not None:
                    yield table, found[0]
                if progress is not None:
                    progress(what, done, self.rows)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise Broken(f"the rows after row {done} cannot be read: {error}") from None

    def _tables(
        self, work: Callable[[pa.Table], R], batch_rows: int, users_only: bool, pool: Pool | None
    ) -> Iterator[tuple[pa.Table, tuple[R] | None]]:
        """Yield pairs of a batch and a tuple with the result of ``work``.

        If the batch is empty, the second entry is None instead of a tuple.
        """

        def one(part: tuple[pa.Table, int]) -> tuple[pa.Table, tuple[R] | None]:
            table = self._users(part[0]) if users_only else self._canonical(*part)
            return table, (work(table),) if table.num_rows else None

        yield from in_order(
            pool, one, _numbered(ahead(_gathered(self._raw(batch_rows, users_only, pool), batch_rows)))
        )

    def _raw(self, batch_rows: int, users_only: bool, pool: Pool | None = None) -> Iterator[pa.Table]:
        if self.minari is not None:
            yield from _minari_batches(self.minari, batch_rows)
            return
        wanted = _wanted(self.schema, users_only)
        types = {"user": pa.string(), "episode": pa.string(), "step": pa.int64(), "reward": pa.float64()}
        types |= {
            part: pa.int64() if labels is None else pa.string()
            for part, labels in (
                ("state", self.schema.state_labels),
                ("next_state", self.schema.state_labels),
                ("action", self.schema.action_labels),
                *((("group", self.schema.groups.labels),) if self.schema.groups is not None else ()),
            )
        }
        asked = {name: types.get(part, pa.float64()) for name, part in wanted.items()}
        spread = None if pool is None or pool.workers == 1 else partial(in_order, pool)
        for place in self.places:
            for table in place.batches(list(wanted), batch_rows, asked, spread):
                yield table.rename_columns(list(wanted.values()))

    def _users(self, raw: pa.Table) -> pa.Table:
        return pa.table({"user": self._part("user", _one(raw, "user"))})

    def _canonical(self, raw: pa.Table, first: int) -> pa.Table:
        parts = {name: self._part(name, _one(raw, name)) for name in raw.column_names}
        step = parts["step"]
        if self.schema.first_step:
            parts["step"] = np.where(step > MISSING, step - (step > MISSING) * self.schema.first_step, step)
        if "reward" not in parts:
            parts["reward"] = np.full(raw.num_rows, np.nan)
        numbers = np.arange(first, first + raw.num_rows)
        named = _PARTS if self.schema.groups is None else (*_PARTS, "group")
        if self.schema.context is not None:  # one state, until the episode ends
            parts |= dict.fromkeys(("state", "next_state"), np.zeros(raw.num_rows, np.int64))
            contexts = [name for name in raw.column_names if name.startswith(CONTEXT)]
            named = (*_PARTS, *contexts, UNREAD)
            parts[UNREAD] = np.zeros(raw.num_rows, np.uint8)
            for name in contexts:
                parts[UNREAD] |= self._unread(raw, name, parts[name])
        return pa.table({**{name: parts[name] for name in named}, "number": numbers})

    def _part(self, name: str, column: Any) -> Any:
        """Convert one column of a file to the type that it has in batches.

        - name : name in the batch.
        """
        self._check_type(name, column.type)
        if name in ("user", "episode"):
            return _key(column, self._text[name == "episode"])
        if name == "step":
            return _whole(column)
        return _reals(column) if _is_real(name) else _codes(column, self._labels(name))

    def _labels(self, name: str) -> tuple[str, ...] | None:
        """Return the labels of a column of the batch; None if the schema has none for this column."""
        if name == "action":
            return self.schema.action_labels
        if name == "group" and self.schema.groups is not None:
            return self.schema.groups.labels
        return self.schema.state_labels if name in ("state", "next_state") else None

    def _check_type(self, name: str, kind: Any) -> None:
        """Raise :class:`Broken` if the column ``name`` of a batch cannot be read from cells of this type."""
        if _textual(kind) or pa.types.is_null(kind) or pa.types.is_integer(kind):
            return
        if name in ("user", "episode"):
            raise Broken(f"users and episodes must be integers or text, not {kind}{whole_names(kind)}")
        if self._labels(name) is not None:
            raise Broken(f"the column of {name} must hold labels, not {kind}")
        if not pa.types.is_floating(kind):
            held = "numbers" if _is_real(name) else "integers"
            column = repr(self._named(name)) if name.startswith(CONTEXT) else f"of {name}"
            raise Broken(f"the column {column} must hold {held}, not {kind}")

    def check_types(self) -> None:
        """Raise :class:`Broken` if a column of a source has a type that this module cannot read."""
        wanted = _wanted(self.schema, users_only=False)
        for place in self.places:
            stated = place.types() or {}
            for name, part in wanted.items():
                if name not in stated:
                    continue
                kind = stated[name]
                try:
                    self._check_type(part, kind.value_type if pa.types.is_dictionary(kind) else kind)
                except Broken as error:
                    raise Broken(f"{place.name}: {error}") from None

    def place(self, number: int) -> str:
        """Return a string with the location and content of row ``number``.

        The string is private: show it only on the data owner's terminal.
        """
        for row in self._row(number):
            cells = row.to_pylist()[0].items()
            held = ", ".join(f"{self._named(name)} = {checks.said(value)}" for name, value in cells)
            return f"{self._file_of(number)} ({held})"
        return f"row {number}"

    def unread_column(self, number: int) -> str:
        """Return the name of the first context column whose cell in row ``number`` has another text."""
        for row in self._row(number):
            for name in row.column_names:
                if name.startswith(CONTEXT) and self._unread(row, name, self._part(name, _one(row, name)))[0]:
                    return repr(self._named(name))
        return "[context]"

    def _row(self, number: int) -> Iterator[pa.Table]:
        """Yield the table of row ``number``, if the source still has it."""
        before = 0
        for raw in self._raw(BATCH_ROWS, users_only=False):
            if number < before + raw.num_rows:
                yield raw.slice(number - before, 1)
                return
            before += raw.num_rows

    @staticmethod
    def _unread(raw: pa.Table, name: str, values: Any) -> Any:
        """Return True for each cell of a context column that is neither empty nor a number."""
        return np.isnan(values) & _written(_one(raw, name))

    def _named(self, part: str) -> str:
        """Return the name in the file of a context column, and the name in the batch of any other column."""
        if self.schema.context is None or not part.startswith(CONTEXT):
            return part
        return self.schema.context.read[int(part.removeprefix(CONTEXT))]

    def _file_of(self, number: int) -> str:
        if self.minari is not None:
            return f"{self.minari} row {number}"
        before = 0
        for place in self.places:
            if len(self.places) == 1:
                break
            count = sum(
                raw.num_rows for raw in Source(self.schema, (place,))._raw(BATCH_ROWS, users_only=True)
            )
            if number < before + count:
                break
            before += count
        return f"{Path(place.name).name} row {number - before}"


def open_source(
    where: Any,
    schema: Schema,
    *,
    sql: str | None = None,
    reads: Sequence[str | Path] | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    synthetic_input: bool = False,
) -> Source:
    """Open trajectory rows in files, folders, object stores, data frames, a DuckDB database, or Minari.

    Parameters
    ----------
    where : path, URI, frame, or a list of these
        A file (``.parquet``, ``.csv``, ``.tsv``, also ``.csv.gz``, ``.bz2``, ``.zst``), or a folder including
        its subfolders. The source can also be ``s3://bucket/folder`` or any other store that
        :mod:`pyarrow.fs` reads, an Arrow, pandas or Polars table, ``duckdb://file.db?table=visits``, or
        ``minari:NAME`` for a local dataset. In a Minari dataset, every episode is one user, and observations
        and actions must be integers. Files are read in the given order; the files of a folder are read in the
        order of their paths.
    schema : Schema
    sql : str, optional
        DuckDB query that replaces ``?table=``.
    reads : list of files, optional
        Required for ``duckdb://`` without a path: all files that the query reads. The query cannot read other
        files. A query on a database file can read only that database.
    delimiter, decimal, encoding : str
        Format of CSV files. If no delimiter is given, comma, semicolon, tab and bar are tried. The delimiter
        is the one with which the first line has the schema's columns.
    synthetic_input : bool True if all sources contain synthetic users (``discreet synthesize``), which are
        not real users.

    Raises
    ------
    ValueError
        If a source contains synthetic users and ``synthetic_input`` is False, or if a source does not and it
        is True. Also if a file does not exist or has an unsupported format, if a column of the schema is
        missing, or if a label of the schema cannot be distinguished from an empty cell.
    ImportError
        If Minari or DuckDB is needed but not installed.
    """
    if isinstance(where, str) and where.startswith("minari:"):
        name = where.removeprefix("minari:")
        text = _minari(name).storage.metadata.get(MARK)
        mark = None if text is None else facts_in(text)
        synthetic = check_mark([(where, mark)], schema.dataset, synthetic_input)
        if schema.groups is not None:
            raise Broken(f"{where}: has no column of groups, [groups] must be left out of the schema")
        if schema.context is not None:
            raise Broken(f"{where}: has no columns of contexts, [context] must be left out of the schema")
        return Source(schema, minari=name, synthetic=synthetic)
    places = places_of(where, Text(delimiter, decimal, encoding), sql, reads, synthetic_input=True)
    marks = ((place.name, mark_of(place)) for place in places)
    source = Source(schema, places, synthetic=check_mark(marks, schema.dataset, synthetic_input))
    wanted = _wanted(schema, users_only=False)
    for place in source.places:
        if isinstance(place, TextFile):
            groups = () if schema.groups is None else schema.groups.labels
            for label in (*(schema.state_labels or ()), *(schema.action_labels or ()), *groups):
                if label in EMPTY:  # as a last next state, this text would be read as an empty cell
                    raise Broken(
                        f"{place.name}: the label {label!r} is an empty cell in CSV: give it in Parquet"
                    )
        _require(place, wanted)
    source.check_types()
    return source


def _wanted(schema: Schema, users_only: bool) -> dict[str, str]:
    """Return the columns to read, as a mapping of names in the file to names in a batch."""
    wanted = {getattr(schema.columns, part.name): part.name for part in fields(schema.columns)}
    if not schema.reads_rewards:
        del wanted[schema.columns.reward]
    if schema.groups is not None:
        wanted[schema.groups.column] = "group"
    if schema.context is not None:
        del wanted[schema.columns.state], wanted[schema.columns.next_state]
        wanted |= {name: f"{CONTEXT}{i}" for i, name in enumerate(schema.context.read)}
    return {schema.columns.user: "user"} if users_only else wanted


def _require(place: TableSource, wanted: dict[str, str]) -> None:
    names = place.names(list(wanted))
    for name, part in wanted.items():
        if names.count(name) != 1:
            key = "groups.column" if part == "group" else f"{part}_column"
            key = "[context]" if part.startswith(CONTEXT) else key
            raise Broken(
                f"{place.name}: must have one column {name!r} ({key}), has {names.count(name)}"
                f"{instead(place, name, list(wanted)) if name not in names else ''}"
            )


def _is_real(part: str) -> bool:
    """Return True if a column of a batch has real numbers."""
    return part == "reward" or part.startswith(CONTEXT)


def _gathered(tables: Iterable[pa.Table], batch_rows: int) -> Iterator[pa.Table]:
    """Join small tables with equal column types, and yield the same rows in the same order.

    A joined table has at most ``batch_rows`` rows; larger tables are yielded unchanged.
    """
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        if held and (rows + table.num_rows > batch_rows or not table.schema.equals(held[0].schema)):
            yield held[0] if len(held) == 1 else pa.concat_tables(held)
            held, rows = [], 0
        held.append(table)
        rows += table.num_rows
    if held:
        yield held[0] if len(held) == 1 else pa.concat_tables(held)


def _numbered(tables: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, int]]:
    """Yield pairs of a table and the number of its first row, counted over all tables."""
    done = 0
    for table in tables:
        yield table, done
        done += table.num_rows


class Pool:
    """Pool of threads for work that mostly runs without Python's global interpreter lock.

    The pool has no threads if ``workers`` is 1.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._threads = ThreadPoolExecutor(workers, "rows") if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def submit(self, work: Callable[[T], R], item: T) -> Future[R]:
        """Start ``work(item)`` in a thread. Do not call this method if the pool has no threads."""
        assert self._threads is not None
        return self._threads.submit(work, item)


def in_order(pool: Pool | None, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield the result of ``work`` for every item, in order.

    At most one more item is started than there are threads. A result is yielded as soon as it and all earlier
    results are finished. An error from ``items`` or ``work`` is raised after all earlier results, as with a
    single thread.
    """
    if pool is None or pool.workers == 1:
        yield from map(work, items)
        return
    waiting: deque[Future[R]] = deque()
    coming, failed = iter(items), None
    while True:
        try:
            item = next(coming)
        except StopIteration:
            break
        except Exception as error:
            failed = error
            break
        waiting.append(pool.submit(work, item))
        while waiting and (len(waiting) > pool.workers or waiting[0].done()):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
    if failed is not None:
        raise failed


def ahead(items: Iterator[T], most: int = 1) -> Generator[T, None, None]:
    """Yield the items unchanged. A separate thread fetches up to ``most`` items in advance."""
    reader = ThreadPoolExecutor(1, "ahead")
    try:
        coming = deque(reader.submit(next, items, None) for _ in range(most))
        while (item := coming.popleft().result()) is not None:
            coming.append(reader.submit(next, items, None))
            yield item
    finally:
        reader.shutdown(cancel_futures=True)


def _one(table: pa.Table, name: str) -> Any:
    """Return a column as one Arrow array without dictionary encoding."""
    column = table[name]
    if pa.types.is_dictionary(column.type) and column.num_chunks > 1:
        # Each chunk has its own dictionary. A merged dictionary could have more entries than the index type
        # allows.
        return pa.concat_arrays([_plain(chunk) for chunk in column.chunks])
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return _plain(column)


def _plain(column: Any) -> Any:
    if not pa.types.is_dictionary(column.type):
        return column
    words = column.dictionary
    if pa.types.is_string_view(words.type):  # Polars' type; Arrow's take does not support it
        words = words.cast(pa.large_string())
    return words.take(column.indices)


def _key(column: Any, as_text: bool) -> Any:
    """Convert names of users or episodes to int64 or text. Nulls become ``MISSING`` or an empty string."""
    if not as_text:
        try:
            return _filled(column.cast(pa.int64()), MISSING)
        except pa.ArrowInvalid:  # Arrow's message is not shown, because it quotes a private number
            raise Broken("users and episodes must be integers below 2^63, or text") from None
    return _filled(column.cast(pa.large_string()), "")


def _filled(column: Any, value: Any) -> Any:
    return pc.fill_null(column, value) if column.null_count else column


def _textual(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _whole(column: Any) -> Ints:
    """Convert a column to (n,) integers.

    An empty cell becomes ``MISSING``, and a cell that is not a whole number becomes ``UNREADABLE``.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), MISSING)
    if pa.types.is_integer(kind):
        filled = _filled(column.cast(pa.int64(), safe=False), MISSING)
        whole = np.asarray(filled.to_numpy(zero_copy_only=False))
        if (
            np.count_nonzero(whole == MISSING) > column.null_count
        ):  # a cell contains the number that is used as the code for an empty cell
            whole = np.where((whole == MISSING) & column.is_valid().to_numpy(False), UNREADABLE, whole)
        return whole
    empty = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    if _textual(kind):
        values = parsed(column)
    else:
        values = np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
        empty |= np.isnan(values)
    out = np.full(len(column), UNREADABLE)
    whole = (values == np.floor(values)) & (np.abs(values) < _EXACT)
    out[whole] = values[whole].astype(np.int64)
    out[empty] = MISSING
    return out


def _codes(column: Any, labels: tuple[str, ...] | None) -> Ints:
    """Convert a column of labels, or of indices if ``labels`` is None, to (n,) indices."""
    if labels is None or pa.types.is_null(column.type):
        return _whole(column)
    text = column.cast(pa.large_string())
    codes = np.array(positions(text, labels))
    codes[codes < 0] = UNREADABLE
    codes[pc.fill_null(pc.equal(text, ""), True).to_numpy(zero_copy_only=False)] = MISSING
    return np.asarray(codes)


def _reals(column: Any) -> Floats:
    """Convert a column to (n,) rewards. A cell that is empty or not a number becomes NaN."""
    if _textual(column.type):
        return parsed(column)
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _written(column: Any) -> Any:
    """Return an array that is 1 where a cell of a column of text is not empty."""
    if not _textual(column.type):
        return np.zeros(len(column), np.uint8)
    trimmed = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    empty = pc.is_in(trimmed, pa.array([*EMPTY, None], pa.large_string()))
    return np.asarray(empty.to_numpy(zero_copy_only=False) == 0, np.uint8)


def _minari(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise ImportError("Minari datasets need the package minari: pip install 'discreet[minari]'") from None
    try:
        return minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise Broken(f"minari:{name}: no such local dataset ({error})") from None


def _minari_batches(name: str, batch_rows: int) -> Iterator[pa.Table]:
    """Yield the rows of a Minari dataset, with every episode as the only episode of one user."""
    held: list[pa.Table] = []
    rows = 0
    for episode in _minari(name).iterate_episodes():
        seen, actions = np.asarray(episode.observations), np.asarray(episode.actions)
        for what, values, length in (("observations", seen, actions.size + 1), ("actions", actions, None)):
            if values.dtype.kind not in "iu" or values.ndim != 1 or length not in (None, values.size):
                raise Broken(
                    f"minari:{name}: {what} of episode {episode.id} are {values.dtype} of shape "
                    f"{values.shape}: must be one integer a step (Discrete spaces)"
                )
        n = len(actions)
        held.append(
            pa.table(
                {
                    "user": np.full(n, episode.id),
                    "episode": np.zeros(n, np.int64),
                    "step": np.arange(n),
                    "state": seen[:-1].astype(np.int64),
                    "action": actions.astype(np.int64),
                    "reward": np.asarray(episode.rewards, np.float64),
                    "next_state": seen[1:].astype(np.int64),
                }
            )
        )
        rows += n
        if rows >= batch_rows:
            yield pa.concat_tables(held)
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held)
