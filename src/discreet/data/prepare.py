"""Conversion of raw records to trajectory rows, as declared in a TOML file.

:func:`prepare` reads the sources once and partitions users so that each partition fits into memory. From each
user's rows, in order of time, it makes steps on the declared grid. A step has values, state, action, reward,
next state and outcome (:mod:`.prepare_config` specifies how). Every step is a function of one user's own rows
and of the declaration. Every user who has a row with a time is in the result. Therefore protecting the users
of the result protects the users of the records.

The new folder is created only if every row obeys the declaration and :mod:`.validate` has read the result
back. Rows that violate the declaration are written to a private file next to the folder.
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
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROWS, SCHEMA, DECLARATION, COUNTS = "rows.parquet", "schema.toml", "prepare.toml", "private-counts.json"
MEMORY = 2**31
LATE = 0.01  # if the share of steps with readings after the action exceeds this, a warning is issued
_PARTITIONS = 256
_NONE = np.iinfo(np.int64).max  # stands for the time of a missing action


class Refused(ValueError):
    """Error: records violate the declaration. No result was made.

    The message gives advice. It quotes no user data (except well-known words for an empty cell). The counts
    in it describe users and have no noise, so they are only for the data's owner.

    Parameters
    ----------
    counts : number of offences by reason
    path : the private file that holds all offending rows
    seen : mapping of a reason to the well-known words for an empty cell that occur in offending cells
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
            f"{sum(counts.values()):,} places in the records break the declaration, nothing was made: "
            f"{listed}. All of them are in {path}, which is private"
            + ("; what helps:" if helps else "")
            + ";".join(helps)  # the command line puts all in one paragraph
        )


@dataclass(frozen=True, eq=False)
class PreparedFolder:
    """Result of :func:`prepare`: a folder with ``rows.parquet``, ``schema.toml``, the declaration and its
    files.

    Counts and notes are PRIVATE, like the rows.

    Parameters
    ----------
    people, episodes, steps : numbers of users, episodes and steps in the result.
    counts : number of cases for each kind of change that was made.
    notes : other facts for the owner, each as a sentence.
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
    """Make trajectory rows and a finished schema from records, as declared.

    Parameters
    ----------
    where, sql, reads, delimiter, decimal, encoding : as for :func:`discreet.data.row_batches.open_source`
        If there are several files, their columns can differ. A file without the time column holds facts about
        users or episodes.
    declaration : Declaration, or the file that holds it
    out : folder that does not exist or is empty
    offending : file for offending rows (mode 0600); default ``OUT.offending.csv``
    memory, scratch : bytes that a partition of the records may take, and the folder for temporary files (as
        large as the records), if there is more than one partition
    progress : callable, optional

    Raises
    ------
    Refused
        If records violate the declaration; the private file holds all these records.
    ValueError
        If a file cannot be read, or lacks a column, or an argument is not allowed.
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
        if rule is not None:  # the rows stay under it
            shutil.copyfile(rule, hidden / RULE)
        _write_rows(hidden / ROWS, map(maker, parts(reader, memory, scratch, progress)))
        if reader.offences.counts:
            refuse(reader.offences, private)
        maker.refuse_late()
        if not maker.people:
            raise ValueError("records: must hold a row of at least one user")
        counts = {**reader.counts, **maker.counts}
        counts = {name: int(count) for name, count in counts.items() if count}
        schema = _write_documents(hidden, declared, counts)
        _check_rows(hidden / ROWS, schema, progress)
    maker.warn()
    notes = (*_rule_of_ends(declared), *_censored_ends(maker, schema))
    return PreparedFolder(out, schema, maker.people, maker.episodes, maker.steps, counts, notes)


def _write_rows(path: Path, tables: Iterable[pa.Table | None]) -> None:
    with _writer(path) as writer:
        for table in tables:
            if table is not None:
                writer.write_table(table.cast(_COLUMNS))


def _check_rows(path: Path, schema: Schema, progress: Progress | None) -> None:
    try:
        check(open_source(path, schema), progress=progress)
    except DataError as error:
        raise ValueError(f"the prepared rows break their own schema, nothing was kept: {error}") from None


def _owner_rule(places: Sequence[TableSource], dataset: str) -> Path | None:
    """Return a file with the owner's rule over the records; raise ``ValueError`` if rules differ."""
    rules = rules_over(local_files(places))
    for path, rule in rules.items():
        check_dataset(path, rule, dataset)
    if len(set(rules.values())) > 1:
        raise ValueError(f"{next(iter(rules))}: the owner's rules for these records differ")
    return next(iter(rules), None)


def _write_documents(folder: Path, declared: Declaration, counts: Mapping[str, int]) -> Schema:
    """Write schema, declaration and counts beside the rows. Return the schema that was written."""
    write_schema(declared.schema, folder / SCHEMA)
    _say_origin(folder / SCHEMA, declared)
    (folder / DECLARATION).write_text(declared.text, "utf-8")
    for path in declared.files:
        shutil.copyfile(path, folder / path.name)
    text = json.dumps(counts, indent=2, ensure_ascii=False) + "\n"
    write_aside(folder / COUNTS, text.encode(), 0o600)
    return read_schema(folder / SCHEMA)


def _rule_of_ends(declared: Declaration) -> Iterator[str]:
    """Yield a note if the schema has a rule that the declaration did not name."""
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
    """Yield a note with the number of censored ends and the consequences."""
    if schema.censored is None:
        return
    least, most = schema.returns.bounds(schema.horizon)
    yield (
        f"{maker.censored / maker.episodes:.1%} of the episodes end censored ({maker.censored:,} of "
        f"{maker.episodes:,}). Nobody is left out: in a release such an episode counts as the middle, "
        f"{0.5 * least + 0.5 * most:g}, and a gain is shown only if it holds whatever these people went on "
        f"to earn between {least:g} and {most:g}."
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


# ------------------------------------------------------------------------------------------- files
@contextmanager
def _writer(path: Path) -> Iterator[Any]:
    with (
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        parquet.ParquetWriter(file, _COLUMNS) as writer,
    ):
        yield writer


def refuse(offences: Offences, private: Path) -> None:
    """Write the private file, and raise :class:`Refused`."""
    write_aside(private, offences.text.getvalue().encode(), 0o600)
    raise Refused(offences.counts, private, offences.seen)


def _say_origin(path: Path, declared: Declaration) -> None:
    head = (
        "# Made by `discreet prepare`. The declaration that it follows lies beside it: prepare.toml,\n"
        f"# SHA-256 {declared.hash}\n"
    )
    path.write_text(head + path.read_text("utf-8"), "utf-8")


# --------------------------------------------------------------------------------------- partitions
def parts(
    reader: Reader, memory: int, scratch: str | Path | None, progress: Progress | None
) -> Iterator[pa.Table]:
    """Yield tables of whole users."""
    size = sum(place.size for place in reader.places)
    row = 8 * (8 + len(reader.values)) * 4  # bytes, including temporary values
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
    """Maker of trajectory rows of whole users, one partition after the other.

    Within a partition, *rows* are the rows of the table, and *order* lists the rows by episode and time.
    *Cells* are the steps of an episode and one additional cell for the state after the last step. The cells
    of episode i are start[i], .., start[i + 1] - 1.
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
        self.absorbing = np.zeros(schema.layout.states + 1, bool)  # the last entry: no state
        self.absorbing[list(schema.terminal)] = True
        words = schema.state_labels or (), schema.action_labels or ()
        self.state_words, self.action_words = (pa.array(one, pa.string()) for one in words)

    def __call__(self, table: pa.Table) -> pa.Table | None:
        """Return the finished rows, or None if the partition has no users."""
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
        """Return the warning about readings that are later than actions; "" if there are only few such
        readings.
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
        """Raise ``ValueError`` if the declaration is strict and states hold readings after actions."""
        if self.declared.strict and (said := self._said_of_late()):
            raise ValueError(f"records: {said} (refused by strict = true in [prepare])")

    def warn(self) -> None:
        """Warn of readings taken after actions, values without a cell, and users with similar names."""
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
        """Set ``episode`` (rows,), the episode number of each row (-1 for facts of a user), and ``owner`` and
        ``names`` (episodes,).
        """
        names = _array(self.table, "episode").dictionary_encode()
        code = names.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        width = len(names.dictionary) + 1
        named = code >= 0
        known, index = np.unique((user * width + code)[named], return_inverse=True)
        self.user, self.episode = user, np.full(len(user), -1)
        self.episode[named] = index
        self.owner, self.names = known // width, names.dictionary.take(pa.array(known % width))
        self.dated = np.zeros(len(known), bool)  # users without such rows have facts only
        self.dated[self.episode[dated]] = True
        self.counts["episodes with facts only, left out"] += int((~self.dated).sum())
        self.bad = np.zeros(len(known), bool)
        self.bad[self.episode[_plain(self.table, "bad").astype(bool) & named]] = True

    def _note_episodes(self, reason: str, which: Any, column: str = "") -> None:
        """Note offending episodes, except those with an offending cell, which may be the cause."""
        which = np.asarray(which)[~self.bad[which]]
        users = self.user_names.take(pa.array(self.owner[which])).to_pylist()
        names = self.names.take(pa.array(which)).to_pylist()
        rows = ((user, name) for user, name in zip(users, names, strict=True))
        self.offences.add(reason, (("", None, user, name, None, column, None) for user, name in rows))

    def _note_rows(self, reason: str, rows: Ints, column: str, cells: Floats | None = None) -> None:
        """Note offending rows, except those with another offending cell.

        ``cells`` : the offending cell of each row.
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
        """Return the rows in order, without rows that equal another row in all columns that are read."""
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
        by_content = np.lexsort(columns)  # stable: the first of equal rows is kept
        same = np.ones(len(rows) - 1, bool)
        for column in columns:
            same &= column[by_content][1:] == column[by_content][:-1]
        copies = where[by_content[1:][same]]
        if self.declared.duplicates == "refuse":
            self._note_rows("row that is there twice", order[copies], "")
        self.counts["duplicate rows, removed"] += len(copies)
        return np.delete(order, copies)

    def _grid(self, order: Ints) -> tuple[Ints, Ints]:
        """Return the ordered rows that belong to a cell, and their cells; set ``start``, ``of`` and
        ``last``.
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
            self.since = self.since[inside]  # time since the step began, of each row in a cell
        return order[inside], (self.start[episode] + number)[inside]

    def _begins(self, first: Ints) -> Ints:
        """Return the start times of episodes from the declared column, or from their first row if that column
        has an offence.
        """
        column = _plain(self.table, "begin")
        value = ColumnValue("begin", str(self.declared.begin), of="episode", within="same")
        found = self._fact(value, np.where(column == NEVER, np.nan, column.astype(np.float64)))
        gone = np.isnan(found)
        self._note_episodes("episode without a begin", np.flatnonzero(gone & self.dated), value.column)
        return np.where(gone, first, np.where(gone, 0, found).astype(np.int64))

    def _rows_of_cells(self, order: Ints, cell: Ints) -> Ints:
        """Return, for messages, the (cells,) last row in or before each cell, or the first row of the episode
        if there is none.
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
        """Set ``first`` (cells,): time of the first action since the step began; ``_NONE`` without an action.

        These times, and all limits computed from them, are functions of one user's rows and the declaration.
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
            if value.lag:  # the action of a step is then a row of an earlier one
                here = np.arange(len(own))
                source = here - value.lag
                there = (source >= self.start[self.of]) & (own[np.maximum(source, 0)] != _NONE)
                own = np.where(there, -1, _NONE)
            self.first = np.minimum(self.first, own)

    def _found(self, value: ColumnValue, order: Ints, cell: Ints) -> tuple[Floats, Floats]:
        """Return (cells,) values of steps, and (cells,) values of all rows that later steps may carry on."""
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
        # all rows of these values are before the action
        more[np.setdiff1d(np.arange(size), cell[~early])] = False
        return found, np.where(more, gathered(more[cell]), found)

    def _watch_late(self, value: ColumnValue, column: Floats, found: Floats, cell: Ints) -> None:
        """Mark the cells in which a value of the state has a reading later than the first action of
        the step.
        """
        if self.declared.step is None or value.lag or value not in self.declared.states.reads:
            return
        used = ~np.isnan(column)
        if value.within in ("min", "max"):
            used &= column == found[cell]
        when = np.full(len(found), -1)
        if value.within in ("first", "min", "max"):  # the earliest row that determines the value
            when[cell[used][::-1]] = self.since[used][::-1]
        else:
            when[cell[used]] = self.since[used]  # rows are in order of time: the last one
        self.late[value.name] = when > self.first

    def _carriers(self, gone: Flags, held: Flags, carry: int) -> tuple[Flags, Ints]:
        """Return the cells that are filled from an earlier cell, and for each of them the last cell that
        ``held`` a value.
        """
        here, begin = np.arange(len(gone)), self.start[self.of]
        source = np.maximum.accumulate(np.where(held, here, -1))
        source = np.concatenate([[-1], source[:-1]])
        return gone & (source >= begin) & (here - source <= carry), source

    # ------------------------------------------------------------------------------------- values
    def _fact(self, value: ColumnValue, column: Floats) -> Floats:
        """Return (episodes,) values, one per episode, from rows with a time and from facts about the episode
        or its user.
        """
        which = self.order[~np.isnan(column[self.order])]
        group = self.episode[which]
        facts = self.undated[~np.isnan(column[self.undated])]
        if len(facts):
            own, shared = facts[self.episode[facts] >= 0], facts[self.episode[facts] < 0]
            begin = np.searchsorted(self.owner, self.user[shared], "left")  # owners are sorted
            count = np.searchsorted(self.owner, self.user[shared], "right") - begin
            offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            group = np.concatenate([group, self.episode[own], np.repeat(begin, count) + offset])
            which = np.concatenate([which, own, np.repeat(shared, count)])
            order = np.argsort(group, kind="stable")  # facts come after rows with a time
            which, group = which[order], group[order]
        return self._gathered(value, column[which], group, self.moment[which], which, len(self.owner))

    def _gathered(
        self, value: ColumnValue, column: Floats, group: Ints, time: Ints, rows: Ints, size: int
    ) -> Floats:
        """Return (size,) values, one per group; ``column`` and ``rows`` are sorted by group and time."""
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
        """Note rows that can be facts about a user who has several episodes."""
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
        """Set the first or last value of each group.

        The tie rule combines several values at the same time.
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
        """Return (cells,) values: lagged, then carried forward from ``whole``, then replaced by the constant
        if missing.
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
        """Return the rows of all steps, including the state after the last step."""
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
        # rewards follow from a rule in the schema and are not read
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
        return self.finished(at, s, a, reward, after)

    def _first_terminal(self, state: Ints) -> Ints:
        """Return the (episodes,) numbers of the first cell in a terminal state; larger than any cell number
        if there is none.
        """
        first = np.full(len(self.owner), np.iinfo(np.int64).max)
        ended = self.absorbing[state]
        np.minimum.at(first, self.of[ended], self.number[ended])
        return first

    def _ends(self, state: Ints, outcome: Floats | None, first: Ints) -> tuple[Ints, Ints]:
        """Return the (episodes,) numbers of steps, and the states after the last step; -1 means the state of
        the next cell.
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
        """Check that every index that is used is valid, and note missing values."""
        unknown = used & (codes < 0)
        told = np.zeros(len(codes), bool)
        for value in partition.needs:
            gone = used & np.isnan(cells[value.name]) & (value.missing == "refuse")
            if gone.any():
                self._note_rows(f"{value.name}: missing", self.row_of_cell[gone], value.column)
            told |= gone
        if (unknown & ~told).any():
            self._note_rows(f"no rule for the {what}", self.row_of_cell[unknown & ~told], "")

    def _check_counts(self) -> None:
        schema = self.declared.schema
        own = np.flatnonzero(self.dated)
        before = np.searchsorted(self.owner[own], self.owner[own], "left")  # owners are sorted
        if schema.contribute == "error":
            many = np.arange(len(own)) - before >= schema.episodes_per_user
            most = schema.episodes_per_user
            said = f"more than {most} episode{'s' if most > 1 else ''} of one {schema.unit}"
            self._note_episodes(said, own[many])

    def finished(self, at: Ints, s: Ints, a: Ints, reward: Floats, after: Ints) -> pa.Table | None:
        """Return the rows of the steps in the cells ``at``."""
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
    """Return (n,) numbers that order rows by time, then by ``then`` if given; equal if both are equal."""
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
    """Return the stable order by group, then time."""
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
