"""Sources of tables of rows: files, folders, object stores, frames in memory, SQL.

A *place* is one table with named columns. :func:`places_of` makes places from the user's argument:

==========================  ==============================================================================
``.parquet``                a file of columns; its types are in its footer

``.csv``, ``.tsv``, ``.txt``  text, optionally compressed (``.csv.gz``, ``.bz2``, ``.zst``); any delimiter
a folder                    all such files except ``.txt`` in it and below it, in the order of their paths

``s3://``, ``gs://``, ...   the same on an object store that :mod:`pyarrow.fs` reads
a frame                     an Arrow table, a pandas or Polars frame, or another object with Arrow columns

``duckdb://file.db``        a table (``?table=visits``) or a query of a DuckDB data base, opened for reading
``duckdb://``               a query over files that are named beside it (``reads``)
==========================  ==============================================================================

Extensions may be in capitals. In a folder, names that begin with a dot or an underscore are left out, because
tools put their own notes there. A place can be read any number of times, always in the same order.

A query reads only the named files: a data base its own file, ``duckdb://`` the files in
``reads``. So an owner's rule over those files (:mod:`discreet.ledger.owner_rules`) holds for the results of
a query. DuckDB itself enforces this (``enable_external_access``, ``lock_configuration``): views over other
files, ``ATTACH``, network addresses and ``SET`` are rejected.

The delimiter of a text file is declared, or is the only one of comma, semicolon, tab and bar under which its
first line holds the requested columns. That line alone decides, never a row.
"""

from __future__ import annotations

import atexit
import codecs
import csv
import difflib
import itertools
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import fs as arrow_fs
from pyarrow import parquet

from discreet.core import checks

T = TypeVar("T")
R = TypeVar("R")

EMPTY = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""Texts that mean an empty cell."""

MISSING = -(2**63)
"""Value of an empty cell in integer columns. Compiled code holds it: it never changes."""

COUNTED = ".tally"  # extension of partial aggregates (discreet.pipeline.partial_aggregates)
DELIMITERS = (",", ";", "\t", "|")
_SMALL = 2**16  # rows of a file whose columns one thread reads faster than several
_LONGEST_LINE = 2**20  # least bytes of a block of text
_TEXT = re.compile(r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$", re.IGNORECASE)
_NOTES = re.compile(r"\.txt(\.\w+)?$", re.IGNORECASE)  # in a folder, these may be a licence or notes
_DELIMITER_LINE = re.compile(r"^\"?sep=(.)\"?$", re.IGNORECASE)  # written by spreadsheets above the names
_LINE_END = re.compile(r"\r\n|\r|\n")
_LOOKED_THROUGH = 30  # lines that are searched for the names of columns
_PARQUET = re.compile(r"\.parquet$", re.IGNORECASE)
_URI = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_DUCKDB = "duckdb://"
_COLUMNS = 8  # columns of a batch of :mod:`.row_batches`
_BYTE_ORDER = b"\xef\xbb\xbf"


class Broken(ValueError):
    """Source that cannot be read at all: not a table, or a column is missing or of the wrong type."""


class Spread(Protocol):
    """Function that applies ``work`` to every item, in order, optionally in threads. Exceptions propagate."""

    def __call__(self, work: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


class TableSource(Protocol):
    """One table with named columns."""

    @property
    def name(self) -> str:
        """Name for messages; never holds a key to a store."""
        ...

    @property
    def rows(self) -> int | None:
        """Number of rows, if known without reading."""
        ...

    @property
    def size(self) -> int:
        """Number of rows, or a generous estimate."""
        ...

    @property
    def malformed(self) -> list[int]:
        """Lines of text (from 1; 0: not known) skipped in the last pass for a wrong number of fields."""
        ...

    def types(self) -> Mapping[str, Any] | None:
        """Arrow types by column, if the place states them; text does not."""
        ...

    def names(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return all columns, in their order; ``wanted`` helps to find a delimiter."""
        ...

    def batches(
        self,
        wanted: Sequence[str],
        batch_rows: int,
        types: Mapping[str, Any] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the wanted columns, in pieces.

        Text is read as ``types``, and as text from the first cell on that does not have its type.
        ``spread`` : reads parts of a file in threads, in order.
        """
        ...


@dataclass(frozen=True)
class Text:
    """Format of text files.

    Parameters
    ----------
    delimiter : one character; None: found from the first line
    decimal : "." or ","
    encoding : Python's name of it
    """

    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ValueError(f"delimiter = {checks.said(self.delimiter)}: must be one character, as ';'")
        checks.choice("decimal", self.decimal, (".", ","))
        if self.delimiter == self.decimal:
            raise ValueError(f"decimal = {self.decimal!r}: must not be the delimiter too")
        try:
            "".encode(self.encoding)
        except (LookupError, TypeError):
            raise ValueError(
                f"encoding = {checks.said(self.encoding)}: must be one that Python knows, as 'latin-1'"
            ) from None

    @property
    def plain(self) -> bool:
        """True if the encoding is UTF-8, which is read directly."""
        return codecs.lookup(self.encoding).name == "utf-8"


def _file_size(fs: Any, path: str) -> int:
    return int(fs.get_file_info(path).size or 0)


@dataclass
class ParquetFile:
    """File of columns."""

    name: str
    fs: Any
    path: str
    malformed: list[int] = field(default_factory=list)

    def _open(self) -> tuple[Any, Any, Any]:
        """Return bytes, the file, columns and types."""
        try:
            content = self.fs.open_input_file(self.path)
            file = parquet.ParquetFile(content, page_checksum_verification=True)
            return content, file, file.schema_arrow  # names are decoded here, and may be invalid text
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise Broken(f"{self.name}: not a Parquet file ({error})") from None

    @cached_property
    def _footer(self) -> tuple[Any, int]:
        """Return (columns and types, number of rows)."""
        _, file, columns = self._open()
        with file:
            return columns, int(file.metadata.num_rows)

    @property
    def rows(self) -> int:
        """Number of rows in the footer."""
        return self._footer[1]

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.rows

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {one.name: one.type for one in self._footer[0]}

    def types(self) -> Mapping[str, Any]:
        """Types in the footer."""
        return self._types

    def names(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the names in the footer."""
        return list(self._footer[0].names)

    def batches(
        self,
        wanted: Sequence[str],
        batch_rows: int,
        types: Mapping[str, Any] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[pa.Table]:
        """Yield row group by row group.

        With threads and a single column, several row groups are read at once, if they are at most as large as
        a batch of all columns. With many columns, reading row groups in sequence, one thread per column, is
        faster.
        """
        content, file, columns = self._open()
        with file:
            if not columns.equals(self._footer[0]):
                raise Broken(f"{self.name}: its columns are not what they were a moment ago")
            facts = file.metadata

            def read(groups: list[int]) -> pa.Table:
                one = parquet.ParquetFile(  # a reader belongs to one thread
                    content, metadata=facts, page_checksum_verification=True
                )
                return _sound(self.name, one.read_row_groups(groups, list(wanted), use_threads=False))

            try:
                parts = _groups(facts, batch_rows * _COLUMNS) if spread and len(wanted) == 1 else []
                if spread is not None and len(parts) > 1:
                    for table in spread(read, parts):
                        for start in range(0, table.num_rows, batch_rows):
                            yield table.slice(start, batch_rows)
                    return
                threads = self.rows > _SMALL
                for batch in file.iter_batches(batch_rows, columns=list(wanted), use_threads=threads):
                    yield _sound(self.name, pa.Table.from_batches([batch]).select(list(wanted)))
            except OSError as error:  # pyarrow's exception for a damaged page
                raise Broken(f"{self.name}: cannot be read ({error})") from None


def _sound(name: str, table: pa.Table) -> pa.Table:
    """Return the table; raise :class:`Broken` if a column does not have its stated type.

    The program that wrote or made a text does not guarantee that it is UTF-8.
    """
    for column, cells in zip(table.column_names, table.columns, strict=True):
        try:
            cells.validate(full=True)
        except pa.ArrowException as error:
            found = "text that is not UTF-8" if "UTF8" in str(error) else "damaged cells"
            raise Broken(f"{name}: the column {column!r} holds {found}") from None
    return table


def _groups(facts: Any, most: int) -> list[list[int]]:
    """Return row groups in order, joined up to ``most`` rows; none if one has more."""
    parts: list[list[int]] = []
    held = 0
    for number in range(facts.num_row_groups):
        rows = facts.row_group(number).num_rows
        if rows > most:
            return []
        if not parts or held + rows > most:
            parts.append([])
            held = 0
        parts[-1].append(number)
        held += rows
    return parts


@dataclass
class TextFile:
    """File of lines; the first names the columns."""

    name: str
    fs: Any
    path: str
    text: Text
    malformed: list[int] = field(default_factory=list)
    rows: int | None = None

    @cached_property
    def size(self) -> int:
        """Estimate of rows: a row takes at least ten bytes, or two if compressed."""
        found = _TEXT.search(self.path)
        return _file_size(self.fs, self.path) // (2 if found is not None and found.group(2) else 10)

    def _stream(self) -> Any:
        ending = self.path.rsplit(".", 1)[-1].lower()
        packed = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}.get(ending)
        return self.fs.open_input_stream(self.path, compression=packed)

    @cached_property
    def _first_lines(self) -> list[str]:
        """Return the first lines, as many as are available when the first one is."""
        held = b""
        try:
            with self._stream() as stream:
                while b"\n" not in held and len(held) < _LONGEST_LINE:
                    more = stream.read(2**14)
                    if not more:
                        break
                    held += more
            if self.text.plain:
                whole = held[: held.rfind(b"\n") + 1] or held  # its end may lie within a character
                text = whole.decode("utf-8-sig")
            else:
                text = held.decode(self.text.encoding, errors="ignore")  # may end within a character
        except (UnicodeDecodeError, pa.ArrowException, OSError, EOFError) as error:
            raise Broken(f"{self.name}: not a CSV file ({error})") from None
        return _LINE_END.split(text, _LOOKED_THROUGH)[:_LOOKED_THROUGH]

    @property
    def _said_delimiter(self) -> str | None:
        """Return the delimiter in a first line ``sep=;`` of a spreadsheet, which is not a line of names."""
        found = _DELIMITER_LINE.match(self._first_lines[0])
        return None if found is None else found.group(1)

    @property
    def _above(self) -> int:
        """Return the number of lines above the names of columns."""
        return 0 if self._said_delimiter is None else 1

    @property
    def _head(self) -> str:
        """Return the line of names."""
        lines = self._first_lines
        return lines[self._above] if len(lines) > self._above else ""

    def line_of(self, wanted: Sequence[str]) -> int | None:
        """Return the number (from 1) of a line below the first that names these columns, or None."""
        for number, line in enumerate(self._first_lines[1:], 2):
            for delimiter in DELIMITERS if self.text.delimiter is None else (self.text.delimiter,):
                try:
                    cells = next(csv.reader([line], delimiter=delimiter), [])
                except csv.Error:
                    continue
                if {*wanted} <= {cell.strip() for cell in cells}:
                    return number
        return None

    def wider_line(self) -> int | None:
        """Return the number (from 1) of a line with more than one field, if the line of names has one."""
        for number, line in enumerate(self._first_lines[self._above + 1 :], self._above + 2):
            if any(one in line for one in DELIMITERS if self.text.delimiter in (None, one)):
                return number
        return None

    def _split(self, delimiter: str) -> list[str]:
        try:
            return next(csv.reader([self._head], delimiter=delimiter), [])
        except csv.Error as error:
            raise Broken(f"{self.name}: not a CSV file ({error})") from None

    def delimiter(self, wanted: Sequence[str]) -> str:
        """Return the declared one, or the only one that fits the first line; a comma if none does."""
        known = self.text.delimiter or self._said_delimiter
        if known is not None:
            return known
        heads = {delimiter: self._split(delimiter) for delimiter in DELIMITERS}
        if wanted:
            fits = [one for one, head in heads.items() if all(head.count(name) == 1 for name in wanted)]
        else:
            most = max(map(len, heads.values()))
            fits = [one for one, head in heads.items() if len(head) == most] if most > 1 else [","]
        if len(fits) > 1:
            listed = ", ".join(repr(one) for one in fits)
            raise Broken(f"{self.name}: its first line can be read with {listed}: declare the delimiter")
        return fits[0] if fits else ","

    def types(self) -> None:
        """None: text has no types."""
        return

    def names(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the names in the first line."""
        return self._split(self.delimiter(wanted))

    def batches(
        self,
        wanted: Sequence[str],
        batch_rows: int,
        types: Mapping[str, Any] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[pa.Table]:
        """Yield numbers at full speed; after the first invalid cell, text that identifies it.

        With threads, blocks of lines are read independently while they are valid. If a block is invalid, one
        thread reads again from the first line, because only it can number the lines.
        """
        done = 0
        ways: list[Callable[[], Iterator[pa.Table]]] = [lambda: self._pass(wanted, batch_rows, {})]
        if types is not None:
            ways.insert(0, lambda: self._pass(wanted, batch_rows, types))
            if spread is not None and self.text.plain and not self._above:
                ways.insert(0, lambda: self._in_blocks(wanted, batch_rows, types, spread))
        for way in ways:
            self.malformed.clear()
            skip = done
            try:
                for batch in way():
                    rest = batch.slice(min(skip, batch.num_rows))
                    skip -= batch.num_rows - rest.num_rows
                    done += rest.num_rows
                    yield rest
                return
            except pa.ArrowInvalid as error:
                if way is ways[-1]:
                    if "straddl" in str(error):
                        most = self._block_size(batch_rows)
                        raise pa.ArrowInvalid(
                            f"quotes that are never closed, or a line longer than {most:,} bytes"
                        ) from None
                    raise

    def _in_blocks(
        self, wanted: Sequence[str], batch_rows: int, types: Mapping[str, Any], spread: Spread
    ) -> Iterator[pa.Table]:
        """Yield rows of plain blocks of lines, parsed in threads; ``ArrowInvalid`` at the first other one."""
        delimiter = self.delimiter(wanted)
        parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=False)
        convert = self._convert_options(wanted, types)

        def parsed(block: bytes) -> pa.Table:
            if b'"' in block or block.startswith(_BYTE_ORDER):  # a line may end within quotes
                raise pa.ArrowInvalid("not plain")
            read = arrow_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names)
            return arrow_csv.read_csv(pa.BufferReader(block), read, parse, convert)

        with self._stream() as stream:
            blocks = _blocks_of_lines(stream, self._block_size(batch_rows))
            head = next(blocks, b"")
            line = head[: head.find(b"\n") + 1]
            first = arrow_csv.read_csv(pa.BufferReader(line), parse_options=parse)
            if first.num_rows:  # two kinds of line ends
                raise pa.ArrowInvalid("not plain")
            names = first.column_names
            rest = itertools.chain([head[len(line) :]], blocks)
            for table in spread(parsed, (block for block in rest if block)):
                for start in range(0, table.num_rows, batch_rows):
                    yield table.slice(start, batch_rows)

    @staticmethod
    def _block_size(batch_rows: int) -> int:
        """Return the number of bytes parsed at once."""
        return max(_LONGEST_LINE, 40 * batch_rows)

    def _convert_options(self, wanted: Sequence[str], types: Mapping[str, Any]) -> Any:
        return arrow_csv.ConvertOptions(
            include_columns=list(wanted),
            column_types={name: types.get(name, pa.string()) for name in wanted},
            null_values=EMPTY,
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            decimal_point=self.text.decimal,
        )

    def _pass(self, wanted: Sequence[str], batch_rows: int, types: Mapping[str, Any]) -> Iterator[pa.Table]:
        def skipped(row: Any) -> str:
            self.malformed.append(int(row.number or 0))
            return "skip"

        # Arrow reads ahead in its own thread, even if the rest is not needed. So Arrow keeps the stream: if
        # it were closed here, its file descriptor could be reused for the next file, and the pending read
        # would take bytes of that file.
        with (
            arrow_csv.open_csv(
                self._stream(),
                read_options=arrow_csv.ReadOptions(
                    block_size=self._block_size(batch_rows),
                    use_threads=False,
                    skip_rows=self._above,
                    encoding="utf8" if self.text.plain else self.text.encoding,  # else it is decoded twice
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.delimiter(wanted), newlines_in_values=True, invalid_row_handler=skipped
                ),
                convert_options=self._convert_options(wanted, types),
            ) as reader,
        ):
            for batch in reader:
                table = pa.table(batch)
                for start in range(0, table.num_rows, batch_rows):
                    yield table.slice(start, batch_rows)


def _blocks_of_lines(stream: Any, size: int) -> Iterator[bytes]:
    """Yield all bytes, in blocks of about ``size`` that end at a line end.

    Raises ``ArrowInvalid`` without a line end, or if the bytes cannot be read.
    """
    held = b""
    try:
        while more := stream.read(size):
            end = more.rfind(b"\n") + 1
            if not end and len(more) >= size:
                raise pa.ArrowInvalid("a line is longer than a block")
            if end:
                yield held + more[:end]
                held = b""
            held += more[end:]
    except OSError as error:  # pyarrow's exception for a failed decompression
        raise pa.ArrowInvalid(str(error)) from None
    if held:
        yield held


@dataclass
class Frame:
    """Table in memory."""

    name: str
    table: pa.Table
    malformed: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.rows

    def types(self) -> Mapping[str, Any]:
        """Types of the columns."""
        return {one.name: one.type for one in self.table.schema}

    def names(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the names of the columns."""
        return list(self.table.column_names)

    def batches(
        self,
        wanted: Sequence[str],
        batch_rows: int,
        types: Mapping[str, Any] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[pa.Table]:
        """Yield slices, without a copy."""
        chosen = _sound(self.name, self.table.select(list(wanted)))
        for start in range(0, chosen.num_rows, batch_rows):
            yield chosen.slice(start, batch_rows)


@dataclass
class QuerySource:
    """Table or query of a DuckDB data base; rows come in the order of the wanted columns.

    path : path of the data base. Empty: none, and ``reads`` are the files that the query may read.
    """

    name: str
    path: str
    sql: str
    reads: tuple[str, ...] = ()
    malformed: list[int] = field(default_factory=list)

    def _read(self, sql: str, batch_rows: int = 2**16) -> Iterator[pa.RecordBatch]:
        duckdb = _duckdb()
        try:
            with self._connected(duckdb) as base:
                found = base.sql(sql)
                newer = hasattr(type(found), "to_arrow_reader")  # since DuckDB 1.4
                reader = (found.to_arrow_reader if newer else found.fetch_arrow_reader)(batch_rows)
                yield pa.RecordBatch.from_arrays(
                    [pa.nulls(0, one.type) for one in reader.schema], schema=reader.schema
                )
                yield from reader
        except duckdb.PermissionException as error:
            files = ", ".join(self.reads)
            may = "its data base alone" if self.path else f"{files} alone" if files else "no file"
            raise Broken(
                f"{self.name}: the query may read {may} ({' '.join(str(error).split())}): name each file "
                "that it reads, with duckdb:// in place of a data base (--reads FILE; reads = [FILE])"
            ) from None
        except duckdb.Error as error:
            raise Broken(f"{self.name}: {' '.join(str(error).split())}") from None

    def _connected(self, duckdb: Any) -> Any:
        """Return a connection that reaches only the named files; no query can widen its access."""
        # Names are tables, never variables of Python; spilled rows go to a folder of this process alone.
        shut = {"python_enable_replacements": False, "temp_directory": _scratch()}
        if self.path:  # given to connect: other readers of the same file in this process share it
            shut |= {"enable_external_access": False, "lock_configuration": True}
            return duckdb.connect(self.path, read_only=True, config=shut)
        base = duckdb.connect(":memory:", config=shut)
        # DuckDB before 1.4 compares paths as they are written.
        forms = {form for file in self.reads for form in (file, os.path.abspath(file), os.path.relpath(file))}
        listed = ", ".join("'" + form.replace("'", "''") + "'" for form in sorted(forms))
        base.execute(f"SET allowed_paths = [{listed}]")  # while access is on
        base.execute("SET enable_external_access = false")
        base.execute("SET lock_configuration = true")
        return base

    @cached_property
    def rows(self) -> int:
        """Number of rows, counted by the data base."""
        return sum(
            batch.column(0)[0].as_py()
            for batch in self._read(f"SELECT count(*) FROM ({self.sql})")
            if batch.num_rows
        )

    @property
    def size(self) -> int:
        """Number of rows, counted by the data base."""
        return self.rows

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {one.name: one.type for one in next(self._read(f"SELECT * FROM ({self.sql}) LIMIT 0")).schema}

    def types(self) -> Mapping[str, Any]:
        """Types that DuckDB gives to Arrow."""
        return self._types

    def names(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the names of the query's columns."""
        return list(self._types)

    def batches(
        self,
        wanted: Sequence[str],
        batch_rows: int,
        types: Mapping[str, Any] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[pa.Table]:
        """Yield rows in a fixed order: a query alone has none, and two passes have to agree."""
        listed = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
        for batch in self._read(f"SELECT {listed} FROM ({self.sql}) ORDER BY {listed}", batch_rows):
            yield pa.table(batch)


@cache
def _scratch() -> str:
    """Return a folder of this process (mode 0700) for DuckDB's spill; queries could read DuckDB's own."""
    folder = tempfile.mkdtemp(prefix="discreet-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise ImportError("SQL needs the package duckdb: pip install 'discreet[sql]'") from None
    return duckdb


def instead(place: TableSource, name: str, wanted: Sequence[str]) -> str:
    """Return the end of a message: which similar column a place has; "" if there is none."""
    names = place.names(wanted)
    plain = [one for one in names if _likeness(one) == _likeness(name)]
    near = plain or difflib.get_close_matches(name, names, 1, 0.8)
    if near:
        return f"; it has {near[0]!r}: write it as there"
    if isinstance(place, TextFile) and (line := place.line_of(wanted)) is not None:
        return f"; its line {line} names the columns: take out the lines above it"
    return ""


def whole_names(kind: Any) -> str:
    """Return the end of a message: what to do if users are numbered by floating point."""
    if not pa.types.is_floating(kind):
        return ""
    return "; give whole numbers or text (in pandas dtype 'Int64' or str), as before a gap made 17.0 of 17"


def _likeness(name: str) -> str:
    """Return a column's name without case, spaces and signs."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", name).casefold())


# ------------------------------------------------------------------------------------- naming places
def places_of(
    where: Any,
    text: Text | None = None,
    sql: str | None = None,
    reads: Sequence[str | Path] | None = None,
) -> tuple[TableSource, ...]:
    """Return the places in an argument: one of the kinds above, or a list of them.

    Parameters
    ----------
    where : path, URI, frame, or a list of them
    text : Text, optional
    sql : str, optional
        A query, for ``duckdb://file.db``, or for ``duckdb://`` alone, which reads files.
    reads : list of files, optional
        All files that a query of ``duckdb://`` alone may read, each by its name: no folder, no pattern.

    Raises
    ------
    Broken
        If there is no such file, or it is of another kind, or one is given twice.
    ImportError
        If DuckDB is requested and not installed.
    """
    text = text or Text()
    given = list(where) if isinstance(where, list | tuple) else [where]
    found: list[TableSource] = []
    for number, item in enumerate(given):
        if not isinstance(item, str | Path):
            found.append(_frame(item, "the table" if len(given) == 1 else f"table {number}"))
        elif isinstance(item, str) and item.startswith(_DUCKDB):
            found.append(_query(item, sql, reads))
        elif isinstance(item, str) and _URI.match(item):
            found += _stored(item, text)
        else:
            found += _local(Path(item), text)
    if sql is not None and not any(isinstance(place, QuerySource) for place in found):
        raise Broken("sql: must be given with duckdb://file.db, the data base that it is asked of")
    if reads and not any(isinstance(place, QuerySource) for place in found):
        raise Broken("reads: must be given with duckdb:// and the query (sql) that reads these files")
    if not found:
        raise Broken(f"{', '.join(map(_plain, given)) or 'no file'}: must be Parquet or CSV files")
    folders: dict[str, str] = {}
    keys = [key for place in found if (key := _identity(place, folders)) is not None]
    if len(set(keys)) < len(keys):
        raise Broken("a file is given twice: its people would count twice")
    return tuple(found)


def local_files(places: Iterable[TableSource]) -> list[Path]:
    """Return the files on this machine that places read; an object store or a table in memory has none."""
    found: list[Path] = []
    for place in places:
        if isinstance(place, QuerySource):
            found += [Path(one) for one in (place.path, *place.reads) if one]
        elif isinstance(place, ParquetFile | TextFile) and isinstance(place.fs, arrow_fs.LocalFileSystem):
            found.append(Path(place.path))
    return found


def _plain(item: Any) -> str:
    """Return the named source without a store key that a URI may hold."""
    return re.sub(r"://[^/@]*@", "://", str(item)) if isinstance(item, str | Path) else type(item).__name__


def _real(path: str, folders: dict[str, str]) -> str:
    """Return a file's real path, whatever its name; ``folders`` holds those that were looked up."""
    if os.path.islink(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    return os.path.join(folders[folder], name)


def _identity(place: TableSource, folders: dict[str, str]) -> tuple[str, str] | None:
    if isinstance(place, ParquetFile | TextFile):
        local = isinstance(place.fs, arrow_fs.LocalFileSystem)
        return ("local", _real(place.path, folders)) if local else (place.fs.type_name, place.path)
    return (place.path, place.sql) if isinstance(place, QuerySource) else None


def _file(name: str, fs: Any, path: str, text: Text) -> TableSource:
    if _PARQUET.search(path):
        return ParquetFile(name, fs, path)
    if _TEXT.search(path):
        return TextFile(name, fs, path, text)
    raise Broken(
        f"{name}: must end in .parquet or .csv (or .tsv, .txt; .csv.gz, .csv.bz2, .csv.zst); save a file of "
        "another kind (a spreadsheet, SPSS, SAS, Stata, R) as one of these, or hand on a frame of it"
    )


def _shown(parts: Iterable[str]) -> bool:
    return not any(part.startswith((".", "_")) for part in parts)


def _readable(path: str) -> bool:
    return bool(_PARQUET.search(path) or (_TEXT.search(path) and not _NOTES.search(path)))


def _local(path: Path, text: Text) -> list[TableSource]:
    fs = arrow_fs.LocalFileSystem()
    if path.is_dir():
        return [_file(one, fs, one, text) for one in _below(str(path))]
    place = _file(str(path), fs, str(path), text)
    if not path.is_file():
        raise Broken(f"{path}: no such file")
    return [place]


def _below(folder: str) -> list[str]:
    """Return files in a folder and below it, in the order of their paths, part by part."""
    found: list[str] = []
    for within, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _shown([name])]
        found += [os.path.join(within, name) for name in names if _readable(name) and _shown([name])]
    return sorted(filter(os.path.isfile, found), key=lambda path: path.split(os.sep))


def _stored(uri: str, text: Text) -> list[TableSource]:
    """Return the files that a URI names; a name in a message holds only the path, never a key."""
    scheme = uri.split("://", 1)[0]
    try:
        fs, path = arrow_fs.FileSystem.from_uri(uri)
        info = fs.get_file_info(path)
        if info.type == arrow_fs.FileType.File:
            return [_file(f"{scheme}://{path}", fs, path, text)]
        if info.type != arrow_fs.FileType.Directory:
            raise Broken(f"{scheme}://{path}: no such file")
        inside = fs.get_file_info(arrow_fs.FileSelector(path, recursive=True))
    except (pa.ArrowException, OSError) as error:
        said = " ".join(str(error).replace(uri, _plain(uri)).split())
        raise Broken(f"{_plain(uri).split('?', 1)[0]}: cannot be read ({said})") from None
    paths = sorted(one.path for one in inside if one.type == arrow_fs.FileType.File and _readable(one.path))
    own = [one for one in paths if _shown(one[len(path) :].strip("/").split("/"))]
    return [_file(f"{scheme}://{one}", fs, one, text) for one in own]


def _frame(item: Any, name: str) -> Frame:
    if isinstance(item, pa.Table):
        return Frame(name, item)
    if isinstance(item, pa.RecordBatch):
        return Frame(name, pa.table(item))
    if isinstance(item, pa.RecordBatchReader):
        return Frame(name, item.read_all())
    try:
        if type(item).__module__.split(".")[0] == "pandas" and hasattr(item, "columns"):
            return Frame(name, pa.Table.from_pandas(item, preserve_index=False))
        if hasattr(item, "__arrow_c_stream__"):
            return Frame(name, pa.table(item))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Broken(f"{name}: cannot be read as columns ({error})") from None
    raise Broken(
        f"{name} is a {type(item).__name__}: must be a path, a URI, an Arrow table, a pandas frame or a "
        "Polars frame (a lazy one collected)"
    )


def _query(uri: str, sql: str | None, reads: Sequence[str | Path] | None) -> QuerySource:
    path, _, asked = uri.removeprefix(_DUCKDB).partition("?")
    options = parse_qs(asked, keep_blank_values=True)
    unknown = sorted(set(options) - {"table"})
    if unknown:
        raise Broken(f"{uri}: {unknown[0]!r} is unknown, must be table")
    if ("table" in options) == (sql is not None):
        raise Broken(f"{uri}: must have either ?table=NAME or a query (sql)")
    if path and not Path(path).is_file():
        raise Broken(f"{path}: no such file")
    if sql is None:
        parts = options["table"][-1].split(".")
        sql = "SELECT * FROM " + ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    if path and reads:
        raise Broken(f"{uri}: reads must be given with duckdb:// alone, a data base is all that is read here")
    if isinstance(reads, str | Path):
        raise Broken(f"reads = {str(reads)!r}: must be a list of files")
    named = tuple(str(one) for one in reads or ())
    for one in named:
        if not os.path.isfile(one):
            raise Broken(f"reads = {one!r}: must be a file on this machine, not a folder or a pattern")
    _duckdb()
    return QuerySource(f"{_DUCKDB}{path}", path, sql.strip().rstrip(";"), named)
