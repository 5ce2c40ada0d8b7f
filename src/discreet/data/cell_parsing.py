"""Conversion of record cells to numbers. Cells that cannot be read are recorded as offences.

A batch of rows from any source is converted to a table with these columns:

* ``user`` and ``episode``: text; ``episode`` is null if the row has none;
* ``time`` and ``begin``: int64, in microseconds; :data:`NEVER` for a missing time;
* ``then``: float64, the second sort key of rows; NaN if it is missing;
* ``dated``: False if the source has no time column, so that the row states a fact about a user or episode;
* ``place`` and ``row``: the number of the source, and the number of the row in it;
* ``bad``: True if a cell of the row is an offence;
* one float64 column for each declared value: NaN if the value is missing, and the index of the category if
  the value has categories.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from discreet.core.releases import Floats, Ints
from discreet.data.cell_texts import NOTHING, SENTINELS, positions
from discreet.data.near_duplicate_ids import JOINT, folded
from discreet.data.number_parsing import parsed
from discreet.data.prepare_config import UNITS, ColumnValue, Declaration, Time
from discreet.data.sources import EMPTY, MISSING, Broken, TableSource, TextFile, instead, whole_names
from discreet.utils.system import optional as of_extra

Flags = NDArray[np.bool_]

NEVER = MISSING
"""Number that marks a missing time in time columns."""

HEAD = ("reason", "file", "row", "user", "episode", "time", "column", "cell")
_LONGEST = 300


@dataclass
class Offences:
    """Collection of the rows that violate the declaration.

    This object is private: it quotes user data, and its counts have no noise.

    counts : number of offences for each reason.
    text : the offending rows as CSV text.
    seen : mapping of a reason to the words for an empty cell (:data:`.cell_texts.NOTHING`) that were found.
    """

    counts: Counter[str] = field(default_factory=Counter)
    text: io.StringIO = field(default_factory=io.StringIO)
    seen: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._writer = csv.writer(self.text, lineterminator="\n")
        self._writer.writerow(HEAD)

    def add(self, reason: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add ``rows``, tuples ``(file, row, user, episode, time, column, cell)`` with None for missing
        entries.
        """
        for file, row, user, episode, time, column, cell in rows:
            self.counts[reason] += 1
            said = "" if cell is None else str(cell)
            if said.strip() in NOTHING:
                self.seen.setdefault(reason, set()).add(said.strip())
            name = "" if user is None else str(user).replace(JOINT, " / ")
            own = "" if episode is None else str(episode).replace(JOINT, " / ")
            self._writer.writerow(
                [reason, file, "" if row is None else row, name, own, stamp(time), column, said[:_LONGEST]]
            )


def stamp(time: Any) -> str:
    """Return a time as text.

    - time : microseconds since 1970, or None or :data:`NEVER` for no time.
    """
    if time is None or time == NEVER:
        return ""
    try:
        return np.datetime64(int(time), "us").item().isoformat(sep=" ")
    except (ValueError, OverflowError, AttributeError, OSError):
        return str(time)


class Reader:
    """Converter of the rows of all sources to tables, as a declaration specifies."""

    def __init__(self, declaration: Declaration, places: Sequence[TableSource]) -> None:
        self.declaration, self.places = declaration, places
        self.offences = Offences()
        self.counts: Counter[str] = Counter()
        self.found: Counter[str] = Counter()  # number of non-empty cells that were read for each value
        self.values = dict(declaration.values)
        if declaration.end is not None:
            self.values["end"] = declaration.end
        self._lows: dict[str, tuple[float, Counter[float]]] = {}
        self.own = [self._columns(place) for place in places]
        self._check_columns()

    def _columns(self, place: TableSource) -> list[str]:
        """Return the names of the columns of ``place`` that the declaration uses."""
        declared = self.declaration
        wanted = [*declared.user, *declared.episode, *declared.columns]
        wanted += [declared.time.column] if declared.time is not None else []
        wanted += [declared.begin] if declared.begin is not None else []
        wanted += [declared.time.then] if declared.time is not None and declared.time.then is not None else []
        names = place.names(declared.user)
        for name in dict.fromkeys(wanted):
            if names.count(name) > 1:
                raise Broken(f"{place.name}: must have one column {name!r}, has {names.count(name)}")
        return [name for name in dict.fromkeys(wanted) if name in names]

    def _dated(self, own: Sequence[str]) -> bool:
        """Return True if the rows of a source have a time or need no time. ``own`` : columns of the source.

        If the declaration has a time column, rows of sources without this column are facts.
        """
        time = self.declaration.time
        return time is None or time.column in own

    def _check_columns(self) -> None:
        declared = self.declaration
        for place, own in zip(self.places, self.own, strict=True):
            for name in declared.user:
                if name not in own:
                    hint = instead(place, name, declared.user)
                    raise Broken(f"{place.name}: must have the column {name!r} (prepare.user){hint}")
            for name in declared.episode if self._dated(own) else ():
                if name not in own:
                    hint = instead(place, name, declared.user)
                    raise Broken(f"{place.name}: must have the column {name!r} (prepare.episode){hint}")
        every = {name for own in self.own for name in own}
        asked = {name: f"prepare.values.{one.name}" for one in self.values.values() for name in one.where}
        asked |= {one.column: f"prepare.values.{one.name}" for one in declared.values.values()}
        if declared.end is not None:
            asked[declared.end.column] = "prepare.end"
        if declared.time is not None:
            asked[declared.time.column] = "prepare.time"
            if declared.time.then is not None:
                asked[declared.time.then] = "prepare.time.then"
        if declared.begin is not None:
            asked[declared.begin] = "prepare.begin"
        for name, key in asked.items():
            if name not in every:
                hints = [instead(place, name, declared.user) for place in self.places]
                raise Broken(f"no file has the column {name!r} ({key}){next(filter(None, hints), '')}")
        for one in declared.values.values():
            if one.of == "step" and not any(one.column in own for own in self.own if self._dated(own)):
                raise Broken(
                    f"prepare.values.{one.name}: no file with times has the column {one.column!r} "
                    "(declare of = 'episode' for a value of a whole episode)"
                )

    def tables(self, batch_rows: int) -> Iterator[pa.Table]:
        """Yield the rows of all sources as tables with the columns that the module docstring lists."""
        for number, (place, own) in enumerate(zip(self.places, self.own, strict=True)):
            declared = self.declaration
            plain = declared.time is not None and declared.time.numbers is not None
            types = {
                name: pa.float64()
                if declared.columns.get(name) == "number"
                or (plain and declared.time is not None and name in (declared.time.column, declared.begin))
                else pa.string()
                for name in own
            }
            done = 0
            for raw in place.batches(own, batch_rows, types):
                yield self._table(number, place, raw, done)
                done += raw.num_rows
            self.counts["rows"] += done
            for line in place.malformed:
                self.offences.add(
                    "line with a wrong number of fields",
                    [(place.name, None, None, None, None, "", f"line {line}")],
                )
        self._note_codes()

    def _written_otherwise(self, cells: Mapping[str, Any]) -> Iterator[tuple[str, Flags, str]]:
        """Find rows that differ from a string of ``where`` only in case or spaces.

        Such rows would be skipped without a message. Yields the name of the value, an (n,) mask of the rows,
        and the name of the column. A string is not reported if it is identical to a string in the ``where``
        of any value.
        """
        every: dict[str, list[str]] = {}
        for value in self.values.values():
            for column, texts in value.where.items():
                every.setdefault(column, []).extend(texts)
        for column in every.keys() & cells.keys():
            coded = pc.utf8_trim_whitespace(_text(cells[column])).dictionary_encode()
            words = coded.dictionary
            other = np.flatnonzero(positions(words, every[column]) < 0)
            plain = {int(i): _plain(words[int(i)].as_py()) for i in other}
            place = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
            for name, value in self.values.items():
                meant = {_plain(text) for text in value.where.get(column, ())}
                near = [i for i, word in plain.items() if word in meant]
                if near:
                    yield name, np.isin(place, near), column

    def _note_codes(self) -> None:
        """Report negative numbers such as -9 as offences, because they may mean an empty cell.

        They are reported only if all other numbers of the value are nonnegative and the value has no declared
        range.
        """
        for name, (least, codes) in self._lows.items():
            if codes and 0 <= least < np.inf:
                column = self.values[name].column
                self.offences.add(
                    f"{name}: perhaps a code for nothing",
                    [
                        (None, None, None, None, None, column, f"{code:g}, {count} times")
                        for code, count in sorted(codes.items())
                    ],
                )

    def _watch(self, name: str, value: ColumnValue, found: Floats) -> None:
        """Count the numbers in ``found`` that often mean an empty cell, and update the smallest other number.

        Does nothing for a value with categories, with a lower limit, or with the rule ``count``.
        """
        if value.categories is not None or value.within == "count" or value.low > -np.inf:
            return
        codes = np.isin(found, SENTINELS)
        least, seen = self._lows.get(name, (np.inf, Counter[float]()))
        seen.update(found[codes].tolist())
        rest = found[~codes & ~np.isnan(found)]
        self._lows[name] = min(least, float(rest.min(initial=np.inf))), seen

    def _table(self, number: int, place: TableSource, raw: pa.Table, first: int) -> pa.Table:
        size = raw.num_rows
        cells = {name: flat(raw[name]) for name in raw.column_names}
        comma = isinstance(place, TextFile) and place.text.decimal == ","
        rows = self._named_rows(place, cells, first, size)
        dated = self._dated(list(cells))
        begin, then = self._read_clock(rows, number, dated, comma)
        for name, which, column in self._written_otherwise(cells):
            rows.note(f"{name}: text of where, written otherwise", which, column)
        columns = self._read_values(rows, comma)
        table = pa.table(
            {
                "user": rows.user,
                "episode": rows.episode,
                "time": rows.stamps,
                "begin": begin,
                "then": then,
                "dated": np.full(size, dated),
                "place": np.full(size, number, np.int32),
                "row": np.arange(first, first + size),
                "bad": rows.bad,
                **columns,
            }
        )
        return table.filter(pa.array(~rows.drop)) if rows.drop.any() else table

    def _named_rows(self, place: TableSource, cells: dict[str, Any], first: int, size: int) -> _Rows:
        """Return the rows with the names of their users and episodes.

        Rows without a user name, or without a declared episode name, are marked to be dropped.
        """
        declared = self.declaration
        user = _joined([cells[name] for name in declared.user], declared)
        named = all(name in cells for name in declared.episode)
        if not declared.episode:
            episode = pa.array(["0"], pa.large_string()).take(pa.array(np.zeros(size, np.int64)))
        elif named:
            episode = _joined([cells[name] for name in declared.episode], declared)
        else:
            episode = pa.nulls(size, pa.large_string())
        rows = _Rows(self.offences, place, cells, first, user, episode)
        empty = np.asarray(user.is_null().to_numpy(zero_copy_only=False))
        rows.note("user without a name", empty, declared.user[0])
        rows.drop |= empty
        if declared.episode and named:
            empty = np.asarray(episode.is_null().to_numpy(zero_copy_only=False))
            rows.note("episode without a name", empty & ~rows.drop, declared.episode[0])
            rows.drop |= empty
        return rows

    def _read_clock(self, rows: _Rows, number: int, dated: bool, comma: bool) -> tuple[Ints, Floats]:
        """Set the times ``rows.stamps``.

        Returns (n,) start times of the rows' episodes, and (n,) numbers from the column ``then``.
        """
        declared, cells, size, name = self.declaration, rows.cells, len(rows.bad), rows.place.name
        time, begin = declared.time, np.full(size, NEVER)
        if time is None:
            # rows are sorted by the number of the source, then by the position in the source
            rows.stamps = (number << 40) + np.arange(rows.first, rows.first + size)
        elif dated:
            rows.stamps, fault = times(name, cells[time.column], time, False, comma, declared.empty)
            if time.unreadable == "leave out":
                self.counts["rows without a readable time, left out"] += int(np.count_nonzero(fault))
            else:
                for code, said in WRONG.items():
                    rows.note(f"time that {said}", fault == code, time.column)
        if time is not None and declared.begin is not None and declared.begin in cells:
            begin, fault = times(name, cells[declared.begin], time, True, comma, declared.empty)
            for code, said in WRONG.items():
                rows.note(f"begin that {said}", fault == code, declared.begin)
        then = np.full(size, np.nan)
        if time is not None and time.then is not None and time.then in cells:
            then, unread = _number(time.then, cells[time.then], comma, declared.empty)
            rows.note(f"{time.then}: number that cannot be read", unread & dated, time.then)
        return begin, then

    def _read_values(self, rows: _Rows, comma: bool) -> dict[str, Floats]:
        """Return one (n,) float64 column for each declared value, and report offending cells."""
        columns: dict[str, Floats] = {}
        for name, value in self.values.items():
            found, wrong, outside = _value(value, rows.cells, len(rows.bad), comma)
            if value.unreadable == "missing":
                self.counts[f"{name}: cells that cannot be read, missing"] += int(wrong.sum())
            elif wrong.any():
                reason = "number that cannot be read" if value.categories is None else "unknown category"
                rows.note(f"{name}: {reason}", wrong, value.column)
            if value.outside == "missing":
                self.counts[f"{name}: outside of its range, missing"] += int(outside.sum())
            elif outside.any():
                rows.note(f"{name}: outside of its range", outside, value.column)
            self._watch(name, value, found)
            self.found[name] += int(np.count_nonzero(~np.isnan(found)))
            columns[f"v.{name}"] = found
        return columns


class _Rows:
    """Batch of rows from one source, with masks of offending rows (``bad``) and dropped rows (``drop``)."""

    def __init__(
        self,
        offences: Offences,
        place: TableSource,
        cells: dict[str, Any],
        first: int,
        user: Any,
        episode: Any,
    ) -> None:
        self.offences, self.place, self.cells, self.first = offences, place, cells, first
        self.user, self.episode = user, episode
        size = len(user)
        self.bad, self.drop = np.zeros(size, bool), np.zeros(size, bool)
        self.stamps: Ints = np.full(size, NEVER)

    def note(self, reason: str, which: Flags, column: str) -> None:
        """Mark the rows in the mask ``which`` as bad and add them to the offences."""
        rows = np.flatnonzero(which)
        if not len(rows):
            return
        self.bad[rows] = True
        taken = pa.array(rows)
        held = [None] * len(rows)
        shown = self.cells[column].take(taken).to_pylist() if column in self.cells else held
        self.offences.add(
            reason,
            zip(
                [self.place.name] * len(rows), (rows + self.first).tolist(),
                self.user.take(taken).to_pylist(), self.episode.take(taken).to_pylist(),
                self.stamps[rows].tolist(), [column] * len(rows), shown, strict=True,
            ),
        )  # fmt: skip


# --------------------------------------------------------------------------------------------- cells
def flat(column: Any) -> Any:
    """Convert a chunked Arrow column to one array without dictionary encoding; text becomes large text."""
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        words = column.dictionary
        column = (words.cast(pa.large_string()) if _is_text(words) else words).take(column.indices)
    return column.cast(pa.large_string()) if _is_text(column) else column


def _is_text(column: Any) -> bool:
    kind = column.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _text(column: Any) -> Any:
    """Convert an Arrow array to large text. Whole numbers get no decimal point, and nulls stay null."""
    if not _is_text(column):
        kind = column.type
        if pa.types.is_floating(kind):
            values = column.to_numpy(zero_copy_only=False)
            if not np.any(values != np.floor(values), where=np.isfinite(values)) and np.all(
                np.abs(values[np.isfinite(values)]) < 2.0**53
            ):
                column = pa.array(
                    np.where(np.isfinite(values), values, 0).astype(np.int64), mask=~np.isfinite(values)
                )
        column = column.cast(pa.large_string())
    return column


def _joined(columns: list[Any], declared: Declaration) -> Any:
    """Join the columns that together name a user or an episode, and return the names as large text.

    A name is null if one of its parts is empty, has no visible character, or is a word for an empty cell.
    """
    parts = []
    for column in columns:
        kind = column.type
        if not (_is_text(column) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise Broken(f"users and episodes must be integers or text, not {kind}{whole_names(kind)}")
        text = column.cast(pa.large_string())
        # integers are never empty and have only one notation
        if pa.types.is_integer(kind) and not declared.empty:
            parts.append(text)
            continue
        coded = text.dictionary_encode()
        gone = _empty(coded.dictionary, declared.empty) | _unseen(coded.dictionary)
        names = folded(coded.dictionary) if declared.folded else coded.dictionary
        names = pc.if_else(pa.array(gone), pa.scalar(None, text.type), names)
        parts.append(names.take(coded.indices))
    return (
        parts[0]
        if len(parts) == 1
        else pc.binary_join_element_wise(*parts, pa.scalar(JOINT, pa.large_string()))
    )


def _unseen(names: Any) -> Flags:
    """Return a mask of names that have no visible character."""
    out = np.zeros(len(names), bool)
    at = np.flatnonzero(
        ~np.asarray(pc.match_substring_regex(names, "[!-~]").to_numpy(zero_copy_only=False), bool)
    )
    out[at] = [name == "" for name in folded(names.take(pa.array(at))).to_pylist()]
    return out


def _plain(text: str) -> str:
    """Return a string with case and spaces removed, in the Unicode form NFKC."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _empty(text: Any, more: Sequence[str] = ()) -> Flags:
    """Return an (n,) mask of cells that are empty or contain a word for an empty cell.

    The words are the standard ones and the strings in ``more``.
    """
    words, trimmed = pa.array(EMPTY, pa.large_string()), pc.utf8_trim_whitespace(text)
    gone = pc.or_kleene(pc.is_null(text), pc.is_in(trimmed, value_set=words))
    found = np.asarray(gone.to_numpy(zero_copy_only=False), bool)
    return found | (positions(trimmed, more) >= 0) if more else found


def _value(
    value: ColumnValue, cells: Mapping[str, Any], size: int, comma: bool
) -> tuple[Floats, Flags, Flags]:
    """Return the (n,) numbers of a declared value, a mask of unreadable cells, and a mask of cells outside
    the declared range.
    """
    nothing = np.zeros(size, bool)
    if value.column not in cells or any(name not in cells for name in value.where):
        return np.full(size, np.nan), nothing, nothing
    column = cells[value.column]
    if value.within == "count":
        found = np.where(_empty(_text(column), value.empty), np.nan, 1.0)
        wrong = nothing
    elif value.categories is not None:
        found, wrong = _category(column, value.categories, value.empty)
    else:
        found, wrong = _number(value.column, column, comma, value.empty)
    for name, texts in value.where.items():
        word = pc.utf8_trim_whitespace(_text(cells[name]))
        other = positions(word, texts) < 0
        found, wrong = np.where(other, np.nan, found), wrong & ~other
    outside = (found < value.low) | (found > value.high)
    if outside.any():
        found = np.where(outside, np.nan, found)
    return found, wrong, outside


def _category(column: Any, categories: Mapping[str, int], empty: Sequence[str] = ()) -> tuple[Floats, Flags]:
    text = pc.utf8_trim_whitespace(_text(column))
    codes = np.array([*categories.values(), np.nan])
    found = codes[positions(text, list(categories))]
    return found, np.isnan(found) & ~_empty(text, empty)


def _number(name: str, column: Any, comma: bool, empty: Sequence[str] = ()) -> tuple[Floats, Flags]:
    kind = column.type
    if _is_text(column):
        text = pc.utf8_trim_whitespace(column)
        gone = _empty(text, empty)
        text = pc.if_else(pa.array(gone), pa.scalar(None, text.type), text)
        if comma:
            text = pc.replace_substring(text, ",", ".")
        try:
            found = text.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            truth = positions(text, ("false", "true"))  # 0 or 1, the same as for boolean columns of Parquet
            found = np.where(truth < 0, parsed(text), truth)
    elif pa.types.is_null(kind):
        return np.full(len(column), np.nan), np.zeros(len(column), bool)
    elif (
        pa.types.is_floating(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        number = (
            column.cast(pa.float64())
            if not pa.types.is_boolean(kind)
            else column.cast(pa.int8()).cast(pa.float64())
        )
        found = number.to_numpy(zero_copy_only=False)
        gone = np.isnan(found)
    else:
        raise Broken(f"the column {name!r} must hold numbers, not {kind}")
    found = np.asarray(found, np.float64)
    numbers = [one for one in parsed(pa.array(empty, pa.string())) if np.isfinite(one)]
    if numbers and (coded := np.isin(found, numbers)).any():
        found, gone = np.where(coded, np.nan, found), gone | coded
    good = np.isfinite(found)
    if good.all():
        return found, ~good
    return np.where(good, found, np.nan), ~good & ~gone


# ---------------------------------------------------------------------------------------------- time
UNREADABLE, TWICE, SKIPPED = 1, 2, 3
WRONG = {UNREADABLE: "cannot be read", TWICE: "exists twice", SKIPPED: "does not exist"}
"""Fault codes of times, with their texts. ``TWICE`` and ``SKIPPED`` are clock times that occur twice or never
because daylight saving time begins or ends."""

_LAST = 253_402_300_800 * UNITS["second"]
"""Largest time in microseconds, the end of the year 9999 if the origin is 1970. A larger number is a fault,
because it probably has another unit than declared.
"""

_OFFSET = r"(Z|z|[+-]\d\d:?\d\d)\s*$"


def times(
    name: str, column: Any, time: Time, optional: bool = False, comma: bool = False, empty: Sequence[str] = ()
) -> tuple[Ints, Ints]:
    """Convert a column of n cells to times.

    Returns (n,) times in microseconds, with ``NEVER`` for an empty cell, and (n,) fault codes. A code is 0 or
    a key of ``WRONG``. An empty cell is a fault unless ``optional`` is True.
    """
    kind = column.type
    if time.numbers is not None:
        found, wrong = _number(time.column, column, comma, empty)
        unit = UNITS[time.numbers.removesuffix("s")]
        far = np.abs(found) > _LAST / unit
        wrong = wrong | far
        gone = np.isnan(found)
        stamps = np.full(len(column), NEVER)
        good = ~gone & ~far
        stamps[good] = np.round(found[good] * unit).astype(np.int64)
        return stamps, (wrong | (gone if not optional else False)).astype(np.int64)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zoned = pa.types.is_timestamp(kind) and kind.tz is not None
        if zoned and time.zone is None:
            raise Broken(f"{name}: {time.column!r} has time zones: declare prepare.time.zone")
        plain = column.cast(pa.timestamp("us", tz="UTC" if zoned else None), safe=False)
        gone = np.asarray(plain.is_null().to_numpy(zero_copy_only=False))
        return _placed(plain, gone, zoned, time, optional)
    if not (_is_text(column) or pa.types.is_null(kind)):
        raise Broken(
            f"{name}: {time.column!r} holds {kind}: must be times or text, or declare prepare.time.numbers"
        )
    return _read_times(column, time, optional, empty)


def _read_times(column: Any, time: Time, optional: bool, empty: Sequence[str]) -> tuple[Ints, Ints]:
    """Convert a column of text as :func:`times` does. Each distinct text is parsed only once."""
    text = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    coded = text.dictionary_encode()
    words = coded.dictionary
    gone = _empty(words, empty)
    offset = np.asarray(
        pc.fill_null(pc.match_substring_regex(words, _OFFSET), False).to_numpy(zero_copy_only=False), bool
    )
    bare_date = np.asarray(
        pc.fill_null(pc.match_substring_regex(words, r"^\d{4}-\d\d-\d\d$"), False).to_numpy(
            zero_copy_only=False
        ),
        bool,
    )
    offset &= ~bare_date  # a date without a clock time ends in digits that look like a UTC offset
    if time.format is not None:
        offset[:] = "%z" in time.format
    stamps, wrong = np.full(len(words) + 1, NEVER), np.zeros(len(words) + 1, np.int64)
    for zoned in (False, True):
        own = np.flatnonzero((offset == zoned) & ~gone)
        if not len(own):
            continue
        if zoned and time.zone is None:
            wrong[own] = UNREADABLE  # these texts have a UTC offset, but the declaration has no time zone
            continue
        pandas: Any = of_extra("pandas", "pandas", "a time in text")
        read = pandas.to_datetime(
            pandas.Series(words.take(pa.array(own)).to_pylist(), dtype=object),
            format=time.format or "ISO8601", errors="coerce", utc=zoned,
        )  # fmt: skip
        instants = pa.array(read.to_numpy("datetime64[us]"), pa.timestamp("us"))
        unread = np.asarray(instants.is_null().to_numpy(zero_copy_only=False))
        if zoned:
            instants = instants.cast(pa.timestamp("us", tz="UTC"))
        stamps[own], wrong[own] = _placed(instants, unread, zoned, time, False)
    wrong[:-1][gone] = not optional
    wrong[-1] = not optional
    place = pc.fill_null(coded.indices.cast(pa.int64()), len(words)).to_numpy(zero_copy_only=False)
    return stamps[place], wrong[place]


def _placed(instants: Any, gone: Flags, zoned: bool, time: Time, optional: bool) -> tuple[Ints, Ints]:
    """Convert clock times in the declared zone to microseconds since 1970 in UTC, with fault codes.

    A clock time that does not exist is a fault. A clock time that occurs twice is a fault if
    ``time.ambiguous`` is "refuse". ``gone`` is the mask of missing times. ``zoned`` is True if the times are
    in UTC.
    """
    wrong = np.where(gone & (not optional), UNREADABLE, 0)
    if time.zone is not None and not zoned:
        early, late = (
            pc.assume_timezone(instants, time.zone, ambiguous=which, nonexistent=which).cast(pa.int64())
            for which in ("earliest", "latest")
        )
        first, last = (
            np.asarray(pc.fill_null(one, 0).to_numpy(zero_copy_only=False)) for one in (early, late)
        )
        # Arrow gives the last microsecond before a gap, and the first microsecond after the gap
        skipped = ~gone & (last - first == 1)
        twice = ~gone & (last != first) & ~skipped
        stamps = np.where(twice & (time.ambiguous == "later"), last, first)
        wrong[skipped] = SKIPPED
        wrong[twice & (time.ambiguous == "refuse")] = TWICE
    else:
        stamps = np.array(pc.fill_null(instants.cast(pa.int64()), 0).to_numpy(zero_copy_only=False))
    return np.where(gone | (wrong > 0), NEVER, stamps), wrong
