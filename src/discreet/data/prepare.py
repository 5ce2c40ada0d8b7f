"""Conversion of raw records to trajectory rows, as declared in a TOML file.

:func:`prepare` reads the sources once and partitions the records by user, so that each partition fits into
memory. It assigns each user's rows, in order of time, to steps of the declared length. It then computes the
values, state, action, reward and next state of each step (see :mod:`.prepare_config`). Every step depends
only on one user's rows and on the declaration. Every user who has a row with a time is in the result.
Therefore a guarantee for the users of the result holds for the users of the records too.

The new folder is created only if every row obeys the declaration and :mod:`.validate` has checked the written
rows. Rows that violate the declaration are written to a private file next to the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.data.cell_parsing import NEVER, Offences, Reader
from discreet.data.near_duplicate_ids import Alike
from discreet.data.prepare_config import ColumnValue, Declaration, Partition, read_prepare_config
from discreet.data.remedies import remedy
from discreet.data.row_batches import BATCH_ROWS, Progress, open_source
from discreet.data.schema import Schema, quoted, read_schema, write_schema
from discreet.data.sources import TableSource, Text, local_files, places_of
from discreet.data.validate import DataError, check, partition_of
from discreet.ledger.owner_rules import NAME as RULE
from discreet.ledger.owner_rules import check_dataset, rules_over
from discreet.utils.atomic_file import write_aside
from discreet.utils.atomic_folder import aside, claims_out

Flags = NDArray[np.bool_]

ROWS, SCHEMA, DECLARATION, COUNTS = "rows.parquet", "schema.toml", "prepare.toml", "private-counts.json"
MEMORY = 2**31
LATE = 0.01  # a warning is issued if more than this share of steps has readings taken after the action
_PARTITIONS = 256
_NONE = np.iinfo(np.int64).max  # time of the first action of a step that has no action


class Refused(ValueError):
    """Error that is raised if records violate the declaration. No result is written.

    The message gives advice. It quotes no user data, except well-known words for an empty cell. Its counts
    describe users and have no noise, so only the data owner may see them.

    Parameters
    ----------
    counts : number of offences for each reason
    path : the private file that contains all offending rows
    seen : mapping of a reason to well-known words for an empty cell, found in the offending cells
    """

    def __init__(
        self, counts: Mapping[str, int], path: Path, seen: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        self.counts, self.path = dict(counts), path
        helps = []
        for reason in sorted(counts):
            words = ", ".join(repr(word) for word in sorted((seen or {}).get(reason, ())))
            found = f" (some hold {words}, perhaps words for an empty cell)" if words else ""
            if remedy(reason):
                helps.append(f"\n  {reason}: {remedy(reason)}{found}")
        listed = "; ".join(f"{reason}: {count:,}" for reason, count in sorted(counts.items()))
        super().__init__(
            f"{sum(counts.values()):,} places in the records violate the declaration, nothing was written: "
            f"{listed}. All of them are in {path}, which is private"
            + ("; what helps:" if helps else "")
            # ";" separates the lines, because the command line prints them as one paragraph
            + ";".join(helps)
        )


@dataclass(frozen=True, eq=False)
class PreparedFolder:
    """Result of :func:`prepare`.

    The folder contains ``rows.parquet``, ``schema.toml``, the declaration, and the files that the declaration
    names. The numbers, the counts, the notes and the rows are PRIVATE.

    Parameters
    ----------
    people, episodes, steps : numbers of users, episodes and steps in the result.
    counts : number of cases for each kind of change that :func:`prepare` made.
    notes : other facts for the data owner, each as a sentence.
    """

    __repr__ = brief

    folder: Path
    schema: Schema
    people: int
    episodes: int
    steps: int
    counts: Mapping[str, int] = field(repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)


@claims_out
def prepare(
    where: Any,
    declaration: Declaration | str | Path,
    out: str | Path,
    *,
    sql: str | None = None,
    reads: Sequence[str | Path] | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    offending: str | Path | None = None,
    memory: int = MEMORY,
    scratch: str | Path | None = None,
    progress: Progress | None = None,
) -> PreparedFolder:
    """Convert records to trajectory rows with a complete schema, as declared.

    Parameters
    ----------
    where, sql, reads, delimiter, decimal, encoding : see :func:`discreet.data.row_batches.open_source`. If
        there are several files, their columns can differ. A file without the time column contains facts about
        users or episodes.
    declaration : Declaration, or the file that contains it
    out : folder that does not exist or is empty
    offending : file for offending rows (mode 0600); default ``OUT.offending.csv``
    memory : approximate number of bytes that one partition of the records may use
    scratch : folder for temporary files, which are about as large as the records; used only if there is more
        than one partition
    progress : function that is called with the name of the stage, the amount of finished work, and the total
        or None

    Raises
    ------
    Refused
        If records violate the declaration; the private file contains all these records.
    ValueError
        If a file cannot be read or lacks a column, or if an argument is not allowed.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out = {str(out)!r}: exists already, must be a new folder")
    private = Path(offending) if offending is not None else out.with_name(f"{out.name}.offending.csv")
    checks.integer("memory", memory, 1)
    declared = declaration if isinstance(declaration, Declaration) else read_prepare_config(declaration)
    places = places_of(where, Text(delimiter, decimal, encoding), sql, reads)
    rule = _owner_rule(places, declared.schema.dataset)
    reader = Reader(declared, places)
    maker = Maker(declared, reader)
    with aside(out) as hidden:
        if rule is not None:  # the data owner's rule for the records applies to the prepared rows too
            shutil.copyfile(rule, hidden / RULE)
        _write_rows(hidden / ROWS, map(maker, parts(reader, memory, scratch, progress)), columns_of(declared))
        if reader.offences.counts:
            refuse(reader.offences, private)
        maker.refuse_late()
        if not maker.people:
            raise ValueError("records: must hold a row of at least one user")
        counts = {name: int(n) for name, n in {**reader.counts, **maker.counts}.items() if n}
        schema = _write_documents(hidden, declared, counts)
        _check_rows(hidden / ROWS, schema, progress)
    maker.warn()
    notes = (*_rule_of_ends(declared), *_censored_ends(maker, schema))
    return PreparedFolder(out, schema, maker.people, maker.episodes, maker.steps, counts, notes)


def _write_rows(path: Path, tables: Iterable[pa.Table | None], columns: Any) -> None:
    with _writer(path, columns) as writer:
        for table in tables:
            if table is not None:
                writer.write_table(table.select(columns.names).cast(columns))


def _check_rows(path: Path, schema: Schema, progress: Progress | None) -> None:
    try:
        check(open_source(path, schema), progress=progress)
    except DataError as error:
        raise ValueError(f"the prepared rows violate their schema, so nothing was kept: {error}") from None


def _owner_rule(places: Sequence[TableSource], dataset: str) -> Path | None:
    """Return the path of the file with the owner's rule for the records, or None without a rule.

    Raises ``ValueError`` if the rules of the sources differ.
    """
    rules = rules_over(local_files(places))
    for path, rule in rules.items():
        check_dataset(path, rule, dataset)
    if len(set(rules.values())) > 1:
        raise ValueError(f"{next(iter(rules))}: the owner's rules for these records differ")
    return next(iter(rules), None)


def _write_documents(folder: Path, declared: Declaration, counts: Mapping[str, int]) -> Schema:
    """Write the schema, the declaration, its files and the counts to ``folder``. Returns the schema."""
    write_schema(declared.published, folder / SCHEMA)
    _say_origin(folder / SCHEMA, declared)
    (folder / DECLARATION).write_text(declared.text, "utf-8")
    for path in declared.files:
        shutil.copyfile(path, folder / path.name)
    text = json.dumps(counts, indent=2, ensure_ascii=False) + "\n"
    write_aside(folder / COUNTS, text.encode(), 0o600)
    return read_schema(folder / SCHEMA)


def _rule_of_ends(declared: Declaration) -> Iterator[str]:
    """Yield a note if the schema's rewards for outcomes were derived from ``prepare.reward.on``."""
    schema, labels = declared.schema, declared.schema.state_labels or ()
    if not declared.ruled or schema.outcomes is None or schema.return_bound is None:
        return
    paid = ", ".join(f"{quoted(labels[end])} = {amount:g}" for end, amount in schema.outcomes.items())
    least, most = schema.return_bound
    yield (
        f"prepare.reward.on pays at ends only, so the schema has reward.outcomes = {{ {paid} }} and "
        f"return_bound = [{least:g}, {most:g}]: rewards follow from where an episode ends, and the noise is "
        f"for one of them rather than for {schema.horizon}."
    )


def _censored_ends(maker: Maker, schema: Schema) -> Iterator[str]:
    """Yield a note with the number of episodes whose end is censored, and the effect on releases."""
    if schema.censored is None:
        return
    least, most = schema.returns.bounds(schema.horizon)
    yield (
        f"{maker.censored / maker.episodes:.1%} of the episodes end censored ({maker.censored:,} of "
        f"{maker.episodes:,}). They are not removed: in a release, the return of such an episode is "
        f"{0.5 * least + 0.5 * most:g}, the middle of the range. A gain is shown only if it holds for every "
        f"possible return of these episodes, from {least:g} to {most:g}."
    )


_COLUMNS = pa.schema(
    [
        ("user", pa.int64()),
        ("episode", pa.int64()),
        ("step", pa.int64()),
        ("state", pa.dictionary(pa.int32(), pa.string())),
        ("action", pa.dictionary(pa.int32(), pa.string())),
        ("reward", pa.float64()),
        ("next_state", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def columns_of(declared: Declaration) -> Any:
    """Return the names and types of the columns of the prepared rows."""
    if declared.context is None:
        return _COLUMNS
    kept = [field for field in _COLUMNS if field.name not in ("state", "next_state")]
    return pa.schema([*kept, *(pa.field(name, pa.float64()) for name in declared.context.read)])


# ------------------------------------------------------------------------------------------- files
@contextmanager
def _writer(path: Path, columns: Any) -> Iterator[Any]:
    with (
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        parquet.ParquetWriter(file, columns) as writer,
    ):
        yield writer


def refuse(offences: Offences, private: Path) -> None:
    """Write the offending rows to the file ``private``, then raise :class:`Refused`."""
    write_aside(private, offences.text.getvalue().encode(), 0o600)
    raise Refused(offences.counts, private, offences.seen)


def _say_origin(path: Path, declared: Declaration) -> None:
    head = (
        "# Made by `discreet prepare`. Its declaration is in the same folder: prepare.toml,\n"
        f"# SHA-256 {declared.hash}\n"
    )
    path.write_text(head + path.read_text("utf-8"), "utf-8")


# --------------------------------------------------------------------------------------- partitions
def parts(
    reader: Reader, memory: int, scratch: str | Path | None, progress: Progress | None
) -> Iterator[pa.Table]:
    """Partition the records by user, and yield one table per partition.

    If a user is in a table, all rows of the user are in this table. The number of partitions, at most 256, is
    chosen so that each needs about ``memory`` bytes.

    - scratch : folder for temporary files, None for the system's default.
    """
    size = sum(place.size for place in reader.places)
    row = 8 * (8 + len(reader.values)) * 4  # estimated bytes per row, including temporary arrays
    number = min(_PARTITIONS, max(1, -(-size * row // memory)))
    known = [place.rows for place in reader.places]
    total = None if None in known else sum(count or 0 for count in known)

    def read() -> Iterator[pa.Table]:
        done = 0
        for table in reader.tables(BATCH_ROWS):
            done += table.num_rows
            if progress is not None:
                progress("read", done, total)
            yield table

    if number == 1:
        tables = list(read())
        if tables:
            yield pa.concat_tables(tables).combine_chunks()
        return
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile(dir=scratch)) for _ in range(number)]
        writers: list[Any] = []
        for table in read():
            if not writers:
                writers = [pa.ipc.new_stream(file, table.schema) for file in files]
            part = partition_of(table["user"].combine_chunks(), number)
            order = np.argsort(part, kind="stable")
            ends = np.cumsum(np.bincount(part, minlength=number))
            table = table.take(pa.array(order))
            for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                if begin < end:
                    writers[i].write_table(table.slice(begin, end - begin))
        for i, (writer, file) in enumerate(zip(writers, files, strict=False)):
            writer.close()
            file.seek(0)
            table = pa.ipc.open_stream(file).read_all().combine_chunks()
            file.truncate(0)
            if table.num_rows:
                yield table
            if progress is not None:
                progress("make steps", i + 1, number)


# -------------------------------------------------------------------------------------- making steps
class Maker:
    """Converter of records to trajectory rows. It processes one partition of users at a time.

    *Rows* are the rows of the partition's table, and *order* is an array of row numbers sorted by episode and
    time. An episode has one *cell* for each step and one more cell for the state after the last step. The
    cells of episode i have the numbers start[i], .., start[i + 1] - 1.
    """

    def __init__(self, declared: Declaration, reader: Reader) -> None:
        self.declared, self.reader = declared, reader
        self.offences: Offences = reader.offences
        self.places: Sequence[TableSource] = reader.places
        self.alike = Alike()
        self.counts: Counter[str] = Counter()
        self.people = self.episodes = self.steps = self.acted_steps = self.censored = 0
        self.late_steps: Counter[str] = Counter()
        schema = declared.schema
        self.absorbing = np.zeros(schema.layout.states + 1, bool)  # the last entry is for index -1, no state
        self.absorbing[list(schema.terminal)] = True
        words = schema.state_labels or (), schema.action_labels or ()
        self.state_words, self.action_words = (pa.array(one, pa.string()) for one in words)

    def __call__(self, table: pa.Table) -> pa.Table | None:
        """Convert the records of one partition, and return its trajectory rows.

        Returns None if the partition has no steps, or if this or an earlier partition has an offence.
        """
        if not table.num_rows:
            return None
        self.table = table
        users = _array(table, "user").dictionary_encode()
        self.user_names = users.dictionary
        self.alike.add(users.dictionary)
        dated = _plain(table, "dated").astype(bool)
        self._number_episodes(users.indices.to_numpy(zero_copy_only=False).astype(np.int64), dated)
        self.time = _plain(table, "time")
        self.moment = _moments(self.time, _plain(table, "then"))
        use = np.flatnonzero(dated & (self.time != NEVER))
        self.undated = np.flatnonzero(~dated)
        self.order = self._distinct(use[_by(self.episode[use], self.moment[use])])
        order, cell = self._grid(self.order)
        self._first_actions(order, cell)
        facts = {
            name: self._fact(value, _plain(table, f"v.{name}"))
            for name, value in self.reader.values.items()
            if value.of == "episode"
        }
        cells: dict[str, Floats] = {}
        for name, value in self.declared.values.items():
            if value.of == "episode":
                found = facts[name][self.of]
            else:
                found, whole = self._found(value, order, cell)
            cells[name] = self._filled(value, found, found if value.of == "episode" else whole)
        self.row_of_cell = self._rows_of_cells(order, cell)
        self.cells = cells
        return self._rows(cells, facts.get("end"))

    def _said_of_late(self) -> str:
        """Return the warning about states that contain readings taken after the action.

        Returns "" if no value has such readings in more than a share ``LATE`` of the steps with an action.
        """
        acted = self.acted_steps
        shares = {name: self.late_steps[name] / acted for name in self.late_steps if acted}
        many = [f"{name} in {share:.1%}" for name, share in shares.items() if share > LATE]
        if not many:
            return ""
        return (
            f"readings taken after the action form states: of steps with an action, {', '.join(many)}. Such "
            "a state depends on the effect of its action, so the policy's gain may be zero. Declare "
            'before = "action" for such values and decision in [prepare], or lag = 1'
        )

    def refuse_late(self) -> None:
        """Raise ``ValueError`` if ``strict`` is declared and too many states contain readings taken after the
        action.
        """
        if self.declared.strict and (said := self._said_of_late()):
            raise ValueError(f"records: {said} (refused by strict = true in [prepare])")

    def warn(self) -> None:
        """Emit warnings about readings taken after the action, values for which no cell was read, and users
        with similar names.
        """
        if said := self._said_of_late():
            warnings.warn(said, UserWarning, stacklevel=4)
        declared, found = self.declared, self.reader.found
        if unread := [name for name, value in declared.values.items() if value.where and not found[name]]:
            warnings.warn(
                f"no cell was read of {', '.join(unread)}, which is missing everywhere: compare the texts of "
                "`where` with those of the records",
                UserWarning,
                stacklevel=4,
            )
        remedy = "write names in one way"
        if not declared.folded:
            remedy += ', or declare names = "folded" in [prepare] (docs/prepare.md says what that makes one)'
        self.alike.warn(declared.schema.unit, declared.user[0], remedy)

    # ------------------------------------------------------------------------ people and episodes
    def _number_episodes(self, user: Ints, dated: Flags) -> None:
        """Number the episodes of the partition.

        Sets the (rows,) array ``episode`` with the episode number of each row, which is -1 for facts about a
        user. Sets the (episodes,) arrays ``owner`` (user number), ``names``, ``dated`` (True if a row has a
        time) and ``bad`` (True if a row has an offending cell).
        """
        names = _array(self.table, "episode").dictionary_encode()
        code = names.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        width = len(names.dictionary) + 1
        named = code >= 0
        known, index = np.unique((user * width + code)[named], return_inverse=True)
        self.user, self.episode = user, np.full(len(user), -1)
        self.episode[named] = index
        self.owner, self.names = known // width, names.dictionary.take(pa.array(known % width))
        self.dated = np.zeros(len(known), bool)  # False for an episode that has only facts
        self.dated[self.episode[dated]] = True
        self.counts["episodes with facts only, left out"] += int((~self.dated).sum())
        self.bad = np.zeros(len(known), bool)
        self.bad[self.episode[_plain(self.table, "bad").astype(bool) & named]] = True

    def _note_episodes(self, reason: str, which: Any, column: str = "") -> None:
        """Add the episodes ``which`` to the offences.

        Episodes that have an offending cell are omitted, because that cell can be the cause.
        """
        which = np.asarray(which)[~self.bad[which]]
        users = self.user_names.take(pa.array(self.owner[which])).to_pylist()
        names = self.names.take(pa.array(which)).to_pylist()
        rows = ((user, name) for user, name in zip(users, names, strict=True))
        self.offences.add(reason, (("", None, user, name, None, column, None) for user, name in rows))

    def _note_rows(self, reason: str, rows: Ints, column: str, cells: Floats | None = None) -> None:
        """Add rows to the offences, except rows of an episode that already has an offending cell.

        ``cells`` : the value of the offending cell of each row, or None.
        """
        good = ~self.bad[self.episode[rows]]
        held = [None] * int(good.sum()) if cells is None else cells[good].tolist()
        rows = rows[good]
        place, number = _plain(self.table, "place")[rows], _plain(self.table, "row")[rows]
        users = self.user_names.take(pa.array(self.user[rows])).to_pylist()
        names = self.names.take(pa.array(self.episode[rows])).to_pylist()
        time = self.time[rows] if self.declared.time is not None else np.full(len(rows), NEVER)
        self.offences.add(
            reason,
            zip(
                [self.places[i].name for i in place.tolist()], number.tolist(), users, names, time.tolist(),
                [column] * len(rows), held, strict=True,
            ),
        )  # fmt: skip

    # ------------------------------------------------------------------------------- rows in time
    def _distinct(self, order: Ints) -> Ints:
        """Return ``order`` without duplicate rows.

        A row is a duplicate if it equals an earlier row in every column that is read. If the declaration has
        no time column, no row is removed.
        """
        episode, time = self.episode[order], self.moment[order]
        again = np.zeros(len(order), bool)
        again[1:] = (episode[1:] == episode[:-1]) & (time[1:] == time[:-1])
        tied = again.copy()
        tied[:-1] |= again[1:]
        where = np.flatnonzero(tied)
        if self.declared.time is None or not len(where):
            return order
        rows = order[where]
        columns = [episode[where], time[where], _plain(self.table, "begin")[rows]]
        columns += [
            (_plain(self.table, f"v.{name}")[rows] + 0.0).view(np.int64) for name in self.reader.values
        ]
        by_content = np.lexsort(columns)  # this sort is stable, so the first of several equal rows is kept
        same = np.ones(len(rows) - 1, bool)
        for column in columns:
            same &= column[by_content][1:] == column[by_content][:-1]
        copies = where[by_content[1:][same]]
        if self.declared.duplicates == "refuse":
            self._note_rows("row that is there twice", order[copies], "")
        self.counts["duplicate rows, removed"] += len(copies)
        return np.delete(order, copies)

    def _grid(self, order: Ints) -> tuple[Ints, Ints]:
        """Assign the rows in ``order`` to cells. Returns the rows in a cell, and the cell of each row.

        Sets ``start``, the (cells,) arrays ``of`` (episode) and ``number`` (number of the cell in its
        episode), and the (episodes,) array ``last``, the number of the step that contains the last row. If
        steps have a length, also sets ``since``, the time of each returned row since the start of its step.
        """
        declared, most = self.declared, self.declared.schema.horizon
        episode, time = self.episode[order], self.time[order]
        first = np.ones(len(order), bool)
        first[1:] = episode[1:] != episode[:-1]
        heads = np.flatnonzero(first)
        if declared.step is None:
            number = np.arange(len(order)) - heads[np.cumsum(first) - 1]
            tied = ~first
            moment = self.moment[order]
            tied[1:] &= moment[1:] == moment[:-1]
            if declared.time is not None and tied.any():
                self._note_rows("two rows at one time", order[tied], declared.time.column)
        else:
            begin = np.zeros(len(self.owner), np.int64)
            begin[episode[heads]] = time[heads]
            if declared.begin is not None:
                begin = self._begins(begin)
            number, self.since = np.divmod(time - begin[episode], declared.step)
            early = number < 0
            if early.any() and declared.before == "refuse":
                self._note_rows("row before its episode begins", order[early], str(declared.begin))
            self.counts["rows before their episode begins, left out"] += int(early.sum())
            order, episode, number = order[~early], episode[~early], number[~early]
            self.since = self.since[~early]
        self.last = np.full(len(self.owner), -1)
        np.maximum.at(self.last, episode, number)
        self._note_episodes(
            "episode of which no row is left", np.flatnonzero(self.dated & (self.last < 0)), ""
        )
        size = np.minimum(self.last, most) + 1
        self.start = np.concatenate([[0], np.cumsum(size)])
        self.of = np.repeat(np.arange(len(size)), size)
        self.number = np.arange(len(self.of)) - self.start[self.of]
        inside = number <= most
        if declared.step is not None:
            self.since = self.since[inside]  # for each row in a cell, the time since the start of its step
        return order[inside], (self.start[episode] + number)[inside]

    def _begins(self, first: Ints) -> Ints:
        """Return the (episodes,) start times from the declared column.

        An episode without a start time in this column is an offence, and starts at the time ``first`` of its
        first row.
        """
        column = _plain(self.table, "begin")
        value = ColumnValue("begin", str(self.declared.begin), of="episode", within="same")
        found = self._fact(value, np.where(column == NEVER, np.nan, column.astype(np.float64)))
        gone = np.isnan(found)
        self._note_episodes("episode without a begin", np.flatnonzero(gone & self.dated), value.column)
        return np.where(gone, first, np.where(gone, 0, found).astype(np.int64))

    def _rows_of_cells(self, order: Ints, cell: Ints) -> Ints:
        """Return the (cells,) row that error messages name for each cell.

        The row is the last row of the episode in or before the cell. If all rows are after the cell, it is
        the first row of the episode.
        """
        place = np.full(len(self.of), -1)
        place[cell] = np.arange(len(order))
        place = np.maximum.accumulate(place) if len(place) else place
        first = np.full(len(self.owner), -1)
        first[self.episode[order][::-1]] = np.arange(len(order))[::-1]
        other = (place < 0) | (self.episode[order[place]] != self.of)
        return np.asarray(order[np.where(other, first[self.of], place)])

    # ------------------------------------------------------------------------- before the action
    def _first_actions(self, order: Ints, cell: Ints) -> None:
        """Set the (cells,) array ``first``: the time from the start of the step to its first action.

        The time is ``_NONE`` for a step without an action. These times, and all limits computed from them,
        are functions of one user's rows and the declaration.
        """
        self.late: dict[str, Flags] = {}
        self.first = np.full(int(self.start[-1]), _NONE)
        if self.declared.step is None:
            return
        for value in self.declared.actions.reads:
            if value.of == "episode":
                continue
            x = _plain(self.table, f"v.{value.name}")[order]
            acts = ~np.isnan(x) & ((x != 0) | (value.within != "sum"))
            own = np.full(len(self.first), _NONE)
            np.minimum.at(own, cell[acts], self.since[acts])
            if value.lag:  # the action of a step is then in the rows of an earlier step
                here = np.arange(len(own))
                source = here - value.lag
                there = (source >= self.start[self.of]) & (own[np.maximum(source, 0)] != _NONE)
                own = np.where(there, -1, _NONE)
            self.first = np.minimum(self.first, own)

    def _found(self, value: ColumnValue, order: Ints, cell: Ints) -> tuple[Floats, Floats]:
        """Return the (cells,) values of steps, and the (cells,) values that can be carried forward.

        These arrays can differ if ``before`` is declared. A reading after the action of a step does not count
        for that step, but its value can be carried forward to a later step.

        - order : row numbers.
        - cell : cell of each of these rows.
        """
        column, size = _plain(self.table, f"v.{value.name}")[order], int(self.start[-1])

        def gathered(used: Flags) -> Floats:
            return self._gathered(
                value, np.where(used, column, np.nan), cell, self.moment[order], order, size
            )

        if value.before is None:
            found = gathered(np.ones(len(order), bool))
            self._watch_late(value, column, found, cell)
            return found, found
        limit = np.where(self.first == _NONE, self.declared.decision or 0, self.first)
        early = self.since < limit[cell]
        found = gathered(early)
        gone = np.isnan(found)
        if not value.carry or not gone.any():
            return found, found
        # A reading after the action of an earlier step can be before the action of this step.
        held = np.zeros(size, bool)
        held[cell[~np.isnan(column)]] = True
        near, source = self._carriers(gone, held, value.carry)
        more = np.zeros(size, bool)
        more[source[near]] = True
        # if all rows of a cell are before the action, `found` already uses all of them
        more[np.setdiff1d(np.arange(size), cell[~early])] = False
        return found, np.where(more, gathered(more[cell]), found)

    def _watch_late(self, value: ColumnValue, column: Floats, found: Floats, cell: Ints) -> None:
        """Mark the cells in which a value of the state comes from a reading after the step's first action.

        Sets ``late`` of this value to a (cells,) mask.
        """
        if self.declared.step is None or value.lag or value not in self.declared.states.reads:
            return
        used = ~np.isnan(column)
        if value.within in ("min", "max"):
            used &= column == found[cell]
        when = np.full(len(found), -1)
        if value.within in ("first", "min", "max"):  # the time of the earliest row that has this value
            when[cell[used][::-1]] = self.since[used][::-1]
        else:
            when[cell[used]] = self.since[used]  # rows are sorted by time: the last time of a cell is kept
        self.late[value.name] = when > self.first

    def _carriers(self, gone: Flags, held: Flags, carry: int) -> tuple[Flags, Ints]:
        """Find the missing cells ``gone`` that can be filled from an earlier cell of the same episode.

        Returns a (cells,) mask of these cells. For each cell, also returns the number of the last earlier
        cell in ``held``, the mask of cells that have a value.

        - carry : largest distance between the two cells.
        """
        here, begin = np.arange(len(gone)), self.start[self.of]
        source = np.maximum.accumulate(np.where(held, here, -1))
        source = np.concatenate([[-1], source[:-1]])
        return gone & (source >= begin) & (here - source <= carry), source

    # ------------------------------------------------------------------------------------- values
    def _fact(self, value: ColumnValue, column: Floats) -> Floats:
        """Return the (episodes,) values of a value that is declared per episode.

        They are computed from rows with a time and from facts about the episode or its user.
        """
        which = self.order[~np.isnan(column[self.order])]
        group = self.episode[which]
        facts = self.undated[~np.isnan(column[self.undated])]
        if len(facts):
            own, shared = facts[self.episode[facts] >= 0], facts[self.episode[facts] < 0]
            # the episodes are sorted by their users, so the episodes of a user are consecutive
            begin = np.searchsorted(self.owner, self.user[shared], "left")
            count = np.searchsorted(self.owner, self.user[shared], "right") - begin
            offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            group = np.concatenate([group, self.episode[own], np.repeat(begin, count) + offset])
            which = np.concatenate([which, own, np.repeat(shared, count)])
            order = np.argsort(group, kind="stable")  # within an episode, facts come after rows with a time
            which, group = which[order], group[order]
        return self._gathered(value, column[which], group, self.moment[which], which, len(self.owner))

    def _gathered(
        self, value: ColumnValue, column: Floats, group: Ints, time: Ints, rows: Ints, size: int
    ) -> Floats:
        """Combine the values of each group by the rule ``value.within``.

        Returns (size,) values: one per group, NaN for a group without a value, or 0 if the rule is ``count``.
        All arrays have one entry per row and are sorted by group, then by time.
        """
        good = ~np.isnan(column)
        x, group, time, rows = column[good], group[good], time[good], rows[good]
        out = np.zeros(size) if value.within == "count" else np.full(size, np.nan)
        if not len(x):
            return out
        starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        at = group[starts]
        if value.within in ("sum", "count", "mean"):
            out[at] = np.add.reduceat(x, starts)
            if value.within == "mean":
                out[at] /= np.diff(starts, append=len(x))
        elif value.within == "min":
            out[at] = np.minimum.reduceat(x, starts)
        elif value.within == "max":
            out[at] = np.maximum.reduceat(x, starts)
        elif value.within == "same":
            out[at] = x[starts]
            other = x != out[group]
            if other.any():
                what = "an episode" if value.of == "episode" else "a step"
                self._note_facts(f"{value.name}: two values in {what}", rows[other], group[other], value)
        else:
            self._at_one_time(value, x, group, time, rows, at, out)
        return out

    def _note_facts(self, reason: str, rows: Ints, group: Ints, value: ColumnValue) -> None:
        """Add rows to the offences. Some of the rows may be facts about a user with several episodes.

        For a fact about a user, the episode in ``group`` is added to the offences instead of the row.
        """
        column = _plain(self.table, f"v.{value.name}") if value.name in self.reader.values else None
        own = self.episode[rows] >= 0
        held = None
        if column is not None and value.categories is None:
            held = column[rows[own]]
        self._note_rows(reason, rows[own], value.column, held)
        self._note_episodes(reason, group[~own], value.column)

    def _at_one_time(
        self, value: ColumnValue, x: Floats, group: Ints, time: Ints, rows: Ints, at: Ints, out: Floats
    ) -> None:
        """Write the first or last value of each group to ``out``.

        If several rows of the group have the first or last time, their values are combined by the rule
        ``value.ties``.
        """
        change = np.concatenate([[True], (group[1:] != group[:-1]) | (time[1:] != time[:-1])])
        runs = np.flatnonzero(change)
        ends = np.append(runs[1:], len(x))
        of = group[runs]
        differ = of[1:] != of[:-1]
        edge = np.append(differ, True) if value.within == "last" else np.concatenate([[True], differ])
        chosen = np.flatnonzero(edge)
        rule = {"mean": np.add, "min": np.minimum, "max": np.maximum}.get(value.ties)
        if rule is not None:
            out[at] = rule.reduceat(x, runs)[chosen]
            if value.ties == "mean":
                out[at] /= (ends - runs)[chosen]
            return
        out[at] = x[ends[chosen] - 1]
        if value.ties == "refuse":
            clash = np.minimum.reduceat(x, runs)[chosen] != np.maximum.reduceat(x, runs)[chosen]
            if clash.any():
                last = rows[ends[chosen[clash]] - 1]
                held = x[ends[chosen[clash]] - 1] if value.categories is None else None
                good = self.episode[last] >= 0
                self._note_rows(
                    f"{value.name}: two values at one time", last[good], value.column,
                    None if held is None else held[good],
                )  # fmt: skip
                self._note_episodes(f"{value.name}: two values at one time", at[clash][~good], value.column)

    def _filled(self, value: ColumnValue, found: Floats, whole: Floats) -> Floats:
        """Apply the declared lag, then fill missing values. Returns (cells,) values.

        The last value in ``whole`` replaces a missing value for at most ``carry`` steps. After that, the
        declared constant replaces it, if there is one.
        """
        if value.lag:
            source = np.arange(len(found)) - value.lag
            found = np.where(source >= self.start[self.of], found[np.maximum(source, 0)], np.nan)
            whole = found
        gone = np.isnan(found)
        if value.carry and gone.any():
            near, source = self._carriers(gone, ~np.isnan(whole), value.carry)
            self.counts[f"{value.name}: carried on"] += int(near.sum())
            found = np.where(near, whole[np.maximum(source, 0)], found)
            gone = np.isnan(found)
        if isinstance(value.missing, float) and gone.any():
            self.counts[f"{value.name}: missing, replaced by the declared value"] += int(gone.sum())
            found = np.where(gone, value.missing, found)
        elif value.missing == "category":
            self.counts[f"{value.name}: missing, a category of its own"] += int(gone.sum())
        return found

    # --------------------------------------------------------------------------------- trajectories
    def _rows(self, cells: Mapping[str, Floats], outcome: Floats | None) -> pa.Table | None:
        """Compute states, actions and rewards, and return the trajectory rows of all steps.

        ``outcome`` : (episodes,) indices of outcomes, None if no outcome is declared. Returns None if the
        partition has no steps, or if this or an earlier partition has an offence.
        """
        declared, schema = self.declared, self.declared.schema
        most = schema.horizon
        state = declared.states.codes(cells)
        steps, final = self._ends(state, outcome, self._first_terminal(state))
        inner = self.number < steps[self.of]
        self.acted_steps += int((inner & (self.first != _NONE)).sum())
        for name, late in self.late.items():
            self.late_steps[name] += int((inner & late).sum())
            self.counts[f"{name}: steps whose reading is later than the action"] = self.late_steps[name]
        seen = inner | ((self.number == steps[self.of]) & (final < 0)[self.of])
        self._check_known(declared.states, cells, state, seen, "state")
        action = declared.actions.codes(cells)
        self._check_known(declared.actions, cells, action, inner, "action")
        at = np.flatnonzero(inner)
        last = self.number[at] + 1 == steps[self.of[at]]
        after = np.where(last & (final >= 0)[self.of[at]], final[self.of[at]], np.append(state, -1)[at + 1])
        s, a = state[at], action[at]
        reward = np.zeros(len(at))
        if declared.reward is not None:
            paid = cells[declared.reward][at]
            value = declared.values[declared.reward]
            self._note_rows(f"{value.name}: missing", self.row_of_cell[at[np.isnan(paid)]], value.column)
            reward += np.where(np.isnan(paid), 0.0, paid)
        for label, amount in declared.on.items():
            reward[after == label] += amount
        # the schema has a rule for rewards, so readers of the rows ignore the column of rewards
        if declared.reward is None and not declared.on:
            reward[:] = min(max(0.0, schema.low), schema.high)
        wrong = ~((reward >= schema.low) & (reward <= schema.high))
        self._note_rows("reward outside of its range", self.row_of_cell[at[wrong]], "reward", reward[wrong])
        fit = (s >= 0) & (a >= 0)
        barred = fit & (schema.layout.row_index[s, a] < 0)
        self._note_rows("action that the mask does not admit", self.row_of_cell[at[barred]], "action")
        self._check_counts()
        limit = f"{most} step{'s' if most > 1 else ''}"
        self.counts[f"episodes of more than {limit}, {declared.long}"] += int((self._beyond > 0).sum())
        if self.offences.counts:
            return None
        found = self.finished(at, s, a, reward, after)
        if found is not None and declared.context is not None:
            for name in declared.context.read:
                found = found.append_column(name, pa.array(cells[name][at]))
        return found

    def _first_terminal(self, state: Ints) -> Ints:
        """Return, for each episode, the number of the first cell in a terminal state.

        The number is larger than every cell number if no cell is in a terminal state.
        """
        first = np.full(len(self.owner), np.iinfo(np.int64).max)
        ended = self.absorbing[state]
        np.minimum.at(first, self.of[ended], self.number[ended])
        return first

    def _ends(self, state: Ints, outcome: Floats | None, first: Ints) -> tuple[Ints, Ints]:
        """Return the (episodes,) numbers of steps, and the (episodes,) states after the last step.

        A state of -1 means that the state after the last step is the state of the next cell.

        - first : number of the first cell of each episode in a terminal state.
        """
        declared, most = self.declared, self.declared.schema.horizon
        held = self.last + 1
        final = np.full(len(held), -1)
        ended = first <= np.minimum(held - 1, most)
        if declared.end is not None:
            assert outcome is not None
            steps = np.minimum(held, most)
            label = np.append(np.asarray(declared.end_states), -1)[
                np.where(np.isnan(outcome), -1, outcome).astype(np.int64)
            ]
            if declared.end_missing is not None:
                label[label < 0] = declared.end_states[declared.end_missing]
            beyond = held > most
            asked = self.dated & ~ended & (~beyond | (declared.long == "end")) & (held > 0)
            self._note_episodes(
                "episode without an outcome", np.flatnonzero(asked & (label < 0)), declared.end.column
            )
            final = np.where(asked, label, final)
        else:
            steps = np.minimum(held - 1, most)
            beyond = held > most + 1
            short = self.dated & (steps < most) & ~ended & (held > 0)
            if declared.schema.unfinished == "error":
                self._note_episodes(
                    "episode that ends before the horizon, without an end", np.flatnonzero(short)
                )
            else:
                self._note_episodes(
                    "episode of one step, without a next state", np.flatnonzero(short & (steps < 1))
                )
        begun = self.dated & (first == 0)
        self._note_episodes("episode that begins in a terminal state", np.flatnonzero(begun))
        steps = np.where(ended, np.minimum(first, steps), steps)
        final = np.where(ended, -1, final)
        self._beyond = np.where(beyond & ~ended, held - most, 0)
        if declared.long == "refuse":
            said = f"episode of more than {most} step{'s' if most > 1 else ''}"
            self._note_episodes(said, np.flatnonzero(self.dated & (self._beyond > 0)))
        late = ended & (held - 1 > first)
        self.counts["episodes with rows after a terminal state, left out"] += int(late.sum())
        return np.maximum(steps, 0), final

    def _check_known(
        self, partition: Partition, cells: Mapping[str, Floats], codes: Ints, used: Flags, what: str
    ) -> None:
        """Check that every cell in the mask ``used`` has a valid index in ``codes``.

        Adds missing values, and cells for which no rule holds, to the offences.
        """
        unknown = used & (codes < 0)
        noted = np.zeros(len(codes), bool)
        for value in partition.needs:
            gone = used & np.isnan(cells[value.name]) & (value.missing == "refuse")
            if gone.any():
                self._note_rows(f"{value.name}: missing", self.row_of_cell[gone], value.column)
            noted |= gone
        if (unknown & ~noted).any():
            self._note_rows(f"no rule for the {what}", self.row_of_cell[unknown & ~noted], "")

    def _check_counts(self) -> None:
        schema = self.declared.schema
        own = np.flatnonzero(self.dated)
        # the episodes are sorted by their users, so the episodes of a user are consecutive
        before = np.searchsorted(self.owner[own], self.owner[own], "left")
        if schema.contribute == "error":
            many = np.arange(len(own)) - before >= schema.episodes_per_user
            most = schema.episodes_per_user
            said = f"more than {most} episode{'s' if most > 1 else ''} of one {schema.unit}"
            self._note_episodes(said, own[many])

    def finished(self, at: Ints, s: Ints, a: Ints, reward: Floats, after: Ints) -> pa.Table | None:
        """Return the trajectory rows of the steps in the cells ``at``, and update the counts.

        ``s``, ``a``, ``reward`` and ``after`` are the (n,) state indices, action indices, rewards and indices
        of next states. Returns None if n = 0.
        """
        if not len(at):
            return None
        episode = self.of[at]
        begins = np.concatenate([[True], episode[1:] != episode[:-1]])
        user = self.owner[episode]
        new = np.concatenate([[True], user[1:] != user[:-1]])
        table = pa.table(
            {
                "user": self.people + np.cumsum(new) - 1,
                "episode": self.episodes + np.cumsum(begins) - 1,
                "step": self.number[at],
                "state": pa.DictionaryArray.from_arrays(pa.array(s, pa.int32()), self.state_words),
                "action": pa.DictionaryArray.from_arrays(pa.array(a, pa.int32()), self.action_words),
                "reward": reward,
                "next_state": pa.DictionaryArray.from_arrays(pa.array(after, pa.int32()), self.state_words),
            }
        )
        censored = self.declared.schema.censored
        self.censored += 0 if censored is None else int((after == censored).sum())
        self.counts["episodes with a censored end"] = self.censored
        self.people += int(new.sum())
        self.episodes += int(begins.sum())
        self.steps += len(at)
        return table


def _moments(time: Ints, then: Floats) -> Ints:
    """Return (n,) numbers that sort rows by ``time``, then by ``then``.

    Two rows have the same number if ``time`` and ``then`` are equal, or if ``then`` is missing in both.
    """
    if np.isnan(then).all():
        return time
    order = np.lexsort((then, time))
    later, after = time[order], then[order]
    new = np.ones(len(order), bool)
    new[1:] = (later[1:] != later[:-1]) | ~(
        (after[1:] == after[:-1]) | (np.isnan(after[1:]) & np.isnan(after[:-1]))
    )
    out = np.empty(len(order), np.int64)
    out[order] = np.cumsum(new)
    return out


def _by(group: Ints, time: Ints) -> Ints:
    """Return the (n,) row numbers, sorted by group and then by time. Ties keep the order of the rows."""
    if not len(group):
        return np.zeros(0, np.int64)
    low, span = int(time.min()), int(time.max()) - int(time.min()) + 1
    if (int(group.max()) + 1) * span >= 2**63:
        return np.asarray(np.lexsort((time, group)))
    key = group * span + (time - low)
    if (key[1:] >= key[:-1]).all():
        return np.arange(len(key))
    return np.argsort(key, kind="stable")


def _array(table: pa.Table, name: str) -> Any:
    column = table[name].combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _plain(table: pa.Table, name: str) -> NDArray[Any]:
    return np.asarray(_array(table, name).to_numpy(zero_copy_only=False))
