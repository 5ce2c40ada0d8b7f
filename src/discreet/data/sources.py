"""Sources of tables: files, folders, object stores, data frames in memory, and SQL queries.

A *place* is one table with named columns. :func:`places_of` creates places from the user's argument:

==========================  ==============================================================================
``.parquet``                a Parquet file; the column types are in its footer

``.csv``, ``.tsv``, ``.txt``  text, optionally compressed (``.csv.gz``, ``.bz2``, ``.zst``); any delimiter
a folder                    all such files except ``.txt`` in it and its subfolders, in the order of paths

``s3://``, ``gs://``, ...   such a file or folder on an object store that :mod:`pyarrow.fs` reads
a frame                     an Arrow table, a pandas or Polars frame, or another object with Arrow columns

``duckdb://file.db``        a table (``?table=visits``) or a query of a DuckDB database, opened read-only
``duckdb://``               a query on files that are listed in the argument ``reads``
==========================  ==============================================================================

Upper-case extensions are accepted. In a folder, names that begin with a dot or an underscore are skipped,
because tools use such names for their own metadata. A place can be read any number of times, and always
yields its rows in the same order.

A query can read only the named files: the database file, or for ``duckdb://`` the files in ``reads``.
Therefore an owner's rule for these files (:mod:`discreet.ledger.owner_rules`) also applies to the results of
a query. DuckDB enforces this (``enable_external_access``, ``lock_configuration``). It rejects views over
other files, ``ATTACH``, network addresses and ``SET``.

If the delimiter of a text file is not declared, comma, semicolon, tab and bar are tried. Exactly one of them
must give a first line with the requested columns. Rows of data are never used to find the delimiter.
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
from discreet.data.synthetic_mark import MARK, Facts, check_mark, facts_in

T = TypeVar("T")
R = TypeVar("R")

EMPTY = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
"""Texts that mean an empty cell."""

MISSING = -(2**63)
"""Integer that stands for an empty cell in integer columns. It must never change, because cached compiled
code contains it.
"""

COUNTED = ".tally"  # file extension of partial aggregates (discreet.pipeline.partial_aggregates)
DELIMITERS = (",", ";", "\t", "|")
_SMALL = 2**16  # up to this many rows, one thread reads the columns of a file faster than several threads
_LONGEST_LINE = 2**20  # smallest size in bytes of a block of text
_TEXT = re.compile(r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$", re.IGNORECASE)
# Text files with these names are skipped in folders, because they can be a licence or notes.
_NOTES = re.compile(r"\.txt(\.\w+)?$", re.IGNORECASE)
# Spreadsheet programs write a line like this above the line of column names.
_DELIMITER_LINE = re.compile(r"^\"?sep=(.)\"?$", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n|\r|\n")
_LOOKED_THROUGH = 30  # number of lines that are searched for the column names, to give advice in an error
_PARQUET = re.compile(r"\.parquet$", re.IGNORECASE)
_URI = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_DUCKDB = "duckdb://"
_COLUMNS = 8  # number of columns in a batch of :mod:`.row_batches`
_BYTE_ORDER = b"\xef\xbb\xbf"


class Broken(ValueError):
    """Error that is raised if a source cannot be read.

    The source is not a table, or one of its columns is missing or has a wrong type.
    """


class Spread(Protocol):
    """Function that applies ``work`` to every item, in order, optionally in threads. Exceptions propagate."""

    def __call__(self, work: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


@dataclass(frozen=True)
class Text:
    """Format of text files.

    Parameters
    ----------
    delimiter : one character, or None if the delimiter is found from the first line
    decimal : decimal separator, "." or ","
    encoding : name of the encoding in Python
    """

    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ValueError(f"delimiter = {checks.said(self.delimiter)}: must be one character, such as ';'")
        checks.choice("decimal", self.decimal, (".", ","))
        if self.delimiter == self.decimal:
            raise ValueError(f"decimal = {self.decimal!r}: must not be the delimiter too")
        try:
            "".encode(self.encoding)
        except (LookupError, TypeError):
            raise ValueError(
                f"encoding = {checks.said(self.encoding)}: must be one that Python knows, such as 'latin-1'"
            ) from None

    @property
    def plain(self) -> bool:
        """True if the encoding is UTF-8, which Arrow reads without conversion."""
        return codecs.lookup(self.encoding).name == "utf-8"


def _file_size(fs: Any, path: str) -> int:
    return int(fs.get_file_info(path).size or 0)


@dataclass
class ParquetFile:
    """Parquet file as a table source."""

    name: str
    fs: Any
    path: str
    malformed: list[int] = field(default_factory=list)

    def _open(self) -> tuple[Any, Any, Any]:
        """Open the file, and return the open stream, the Parquet reader, and the Arrow schema."""
        try:
            content = self.fs.open_input_file(self.path)
            file = parquet.ParquetFile(content, page_checksum_verification=True)
            return content, file, file.schema_arrow  # this decodes the column names, which can fail
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise Broken(f"{self.name}: not a Parquet file ({error})") from None

    @cached_property
    def _footer(self) -> tuple[Any, int]:
        """The Arrow schema (column names and types) and the number of rows, from the footer of the file."""
        _, file, columns = self._open()
        with file:
            return columns, int(file.metadata.num_rows)

    @property
    def arrow_schema(self) -> Any:
        """Arrow schema with metadata, from the footer of the file."""
        return self._footer[0]

    @property
    def rows(self) -> int:
        """Number of rows, from the footer of the file."""
        return self._footer[1]

    @property
    def size(self) -> int:
        """Number of rows, the same as ``rows``."""
        return self.rows

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {one.name: one.type for one in self._footer[0]}

    def types(self) -> Mapping[str, Any]:
        """Return a mapping of column names to Arrow types, from the footer of the file."""
        return self._types

    def names(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the column names, from the footer of the file."""
        return list(self._footer[0].names)

    def batches(
        self,
        wanted: Sequence[str],
        batch_rows: int,
        types: Mapping[str, Any] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[pa.Table]:
        """Yield batches of rows, one Parquet row group after the other.

        If one column is requested and no row group is larger than a batch with all columns, ``spread`` reads
        several row groups in parallel. With many columns, it is faster to read one row group at a time, with
        one thread per column.
        """
        content, file, columns = self._open()
        with file:
            if not columns.equals(self._footer[0]):
                raise Broken(f"{self.name}: its columns changed a moment ago")
            facts = file.metadata

            def read(groups: list[int]) -> pa.Table:
                one = parquet.ParquetFile(  # each thread needs a separate reader
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
            except OSError as error:  # pyarrow raises this exception for a damaged page
                raise Broken(f"{self.name}: cannot be read ({error})") from None


def _sound(name: str, table: pa.Table) -> pa.Table:
    """Check that all cells are valid for their column types, and return the table unchanged.

    Raises :class:`Broken` otherwise. For example, a program can write text that is not valid UTF-8.
    """
    for column, cells in zip(table.column_names, table.columns, strict=True):
        try:
            cells.validate(full=True)
        except pa.ArrowException as error:
            found = "text that is not UTF-8" if "UTF8" in str(error) else "damaged cells"
            raise Broken(f"{name}: the column {column!r} holds {found}") from None
    return table


def _groups(facts: Any, most: int) -> list[list[int]]:
    """Divide the row groups of a Parquet file into lists of consecutive row groups.

    The row groups in a list have at most ``most`` rows in total. Returns an empty list if a single row group
    has more rows.
    """
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
    """Text file of rows as a table source. Its first line contains the names of the columns."""

    name: str
    fs: Any
    path: str
    text: Text
    malformed: list[int] = field(default_factory=list)
    rows: int | None = None

    @cached_property
    def size(self) -> int:
        """Upper estimate of the number of rows.

        It assumes that each row has at least ten bytes, or two bytes if the file is compressed.
        """
        found = _TEXT.search(self.path)
        return _file_size(self.fs, self.path) // (2 if found is not None and found.group(2) else 10)

    def _stream(self) -> Any:
        ending = self.path.rsplit(".", 1)[-1].lower()
        packed = {"gz": "gzip", "bz2": "bz2", "zst": "zstd"}.get(ending)
        return self.fs.open_input_stream(self.path, compression=packed)

    @cached_property
    def _first_lines(self) -> list[str]:
        """The first line of the file and some lines after it, at most 30 lines."""
        held = b""
        try:
            with self._stream() as stream:
                while b"\n" not in held and len(held) < _LONGEST_LINE:
                    more = stream.read(2**14)
                    if not more:
                        break
                    held += more
            if self.text.plain:
                # the block can end in the middle of a character, so an incomplete last line is removed
                whole = held[: held.rfind(b"\n") + 1] or held
                text = whole.decode("utf-8-sig")
            else:
                # the block can end in the middle of a character, which is ignored
                text = held.decode(self.text.encoding, errors="ignore")
        except (UnicodeDecodeError, pa.ArrowException, OSError, EOFError) as error:
            raise Broken(f"{self.name}: not a CSV file ({error})") from None
        return _LINE_END.split(text, _LOOKED_THROUGH)[:_LOOKED_THROUGH]

    @property
    def _said_delimiter(self) -> str | None:
        """Delimiter in a first line such as ``sep=;``, which spreadsheet programs write.

        It is None if the first line has another form.
        """
        found = _DELIMITER_LINE.match(self._first_lines[0])
        return None if found is None else found.group(1)

    @property
    def _above(self) -> int:
        """Number of lines above the line of column names, 0 or 1."""
        return 0 if self._said_delimiter is None else 1

    @property
    def head(self) -> str:
        """The line of column names, or "" if the file has no such line."""
        lines = self._first_lines
        return lines[self._above] if len(lines) > self._above else ""

    def line_of(self, wanted: Sequence[str]) -> int | None:
        """Return the number (from 1) of a line after the first line that contains all ``wanted`` names.

        Only the first lines of the file are searched. Returns None if no line contains all names.
        """
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
        """Return the number (from 1) of a line below the column names that contains a delimiter, or None.

        Call this method if the line of column names has only one field.
        """
        for number, line in enumerate(self._first_lines[self._above + 1 :], self._above + 2):
            if any(one in line for one in DELIMITERS if self.text.delimiter in (None, one)):
                return number
        return None

    def _split(self, delimiter: str) -> list[str]:
        try:
            return next(csv.reader([self.head], delimiter=delimiter), [])
        except csv.Error as error:
            raise Broken(f"{self.name}: not a CSV file ({error})") from None

    def delimiter(self, wanted: Sequence[str]) -> str:
        """Return the declared delimiter, or the only delimiter with which the first line has all ``wanted``
        names.

        If ``wanted`` is empty, the result is the delimiter that gives most names. If no delimiter fits, the
        result is a comma. Raises :class:`Broken` if several delimiters fit.
        """
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
        """Return None, because text files have no column types."""
        return

    def names(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the column names, from the first line of the file."""
        return self._split(self.delimiter(wanted))

    def batches(
        self,
        wanted: Sequence[str],
        batch_rows: int,
        types: Mapping[str, Any] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[pa.Table]:
        """Yield batches with cells of the declared types.

        From the batch with the first invalid cell on, yield text, so that the caller can find the invalid
        cell.

        If ``spread`` is given, threads read blocks of lines independently, as long as the blocks are valid.
        If a block is invalid, a single thread reads the file again from the first line, because otherwise the
        line numbers are unknown.
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
        """Divide the file into blocks of lines, parse the blocks in threads, and yield their rows in order.

        Raises ``ArrowInvalid`` at the first block that cannot be parsed independently of other blocks.
        """
        delimiter = self.delimiter(wanted)
        parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=False)
        convert = self._convert_options(wanted, types)

        def parsed(block: bytes) -> pa.Table:
            if b'"' in block or block.startswith(_BYTE_ORDER):  # a quoted cell can contain a line end
                raise pa.ArrowInvalid("not plain")
            read = arrow_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names)
            return arrow_csv.read_csv(pa.BufferReader(block), read, parse, convert)

        with self._stream() as stream:
            blocks = _blocks_of_lines(stream, self._block_size(batch_rows))
            head = next(blocks, b"")
            line = head[: head.find(b"\n") + 1]
            first = arrow_csv.read_csv(pa.BufferReader(line), parse_options=parse)
            if first.num_rows:  # the file mixes two kinds of line ends
                raise pa.ArrowInvalid("not plain")
            names = first.column_names
            rest = itertools.chain([head[len(line) :]], blocks)
            for table in spread(parsed, (block for block in rest if block)):
                for start in range(0, table.num_rows, batch_rows):
                    yield table.slice(start, batch_rows)

    @staticmethod
    def _block_size(batch_rows: int) -> int:
        """Return the number of bytes of a block that one thread parses."""
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

        # Arrow reads ahead in its own thread, even if the caller stops early. Therefore Arrow must close the
        # stream. If this method closed it, the file descriptor could be reused for the next file, and the
        # pending read of Arrow would consume bytes of that file.
        with (
            arrow_csv.open_csv(
                self._stream(),
                read_options=arrow_csv.ReadOptions(
                    block_size=self._block_size(batch_rows),
                    use_threads=False,
                    skip_rows=self._above,
                    # with another name for UTF-8, Arrow would decode the text twice
                    encoding="utf8" if self.text.plain else self.text.encoding,
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
    """Yield all bytes of a stream, in blocks of about ``size`` bytes. Each block ends at a line end.

    Raises ``ArrowInvalid`` if a block has no line end, or if the bytes cannot be read.
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
    except OSError as error:  # pyarrow raises this exception if decompression fails
        raise pa.ArrowInvalid(str(error)) from None
    if held:
        yield held


@dataclass
class Frame:
    """Table in memory as a table source."""

    name: str
    table: pa.Table
    malformed: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    @property
    def size(self) -> int:
        """Number of rows, the same as ``rows``."""
        return self.rows

    def types(self) -> Mapping[str, Any]:
        """Return a mapping of column names to Arrow types."""
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
        """Yield slices of the table without copying."""
        chosen = _sound(self.name, self.table.select(list(wanted)))
        for start in range(0, chosen.num_rows, batch_rows):
            yield chosen.slice(start, batch_rows)


@dataclass
class QuerySource:
    """Result of a DuckDB query as a table source. Its rows are sorted by the columns that are read.

    ``path`` : path of the database. If it is empty, the query can use only the files in ``reads``.
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
            may = "only its database" if self.path else f"only {files}" if files else "no file"
            raise Broken(
                f"{self.name}: the query may read {may} ({' '.join(str(error).split())}): name each file "
                "that it reads, with duckdb:// instead of a database (FILE beside --sql; reads = [FILE])"
            ) from None
        except duckdb.Error as error:
            raise Broken(f"{self.name}: {' '.join(str(error).split())}") from None

    def _connected(self, duckdb: Any) -> Any:
        """Return a connection that can access only the named files. No query can extend this access."""
        # The first setting prevents names in a query from referring to Python variables. The second is the
        # folder for rows that do not fit into memory; only this process uses it.
        shut = {"python_enable_replacements": False, "temp_directory": _scratch()}
        # These settings are passed to connect, because all connections of this process to the same file
        # share one database instance and its settings.
        if self.path:
            shut |= {"enable_external_access": False, "lock_configuration": True}
            return duckdb.connect(self.path, read_only=True, config=shut)
        base = duckdb.connect(":memory:", config=shut)
        # DuckDB before 1.4 compares paths as they are written.
        forms = {form for file in self.reads for form in (file, os.path.abspath(file), os.path.relpath(file))}
        listed = ", ".join("'" + form.replace("'", "''") + "'" for form in sorted(forms))
        base.execute(f"SET allowed_paths = [{listed}]")  # must precede the next setting, which locks it
        base.execute("SET enable_external_access = false")
        base.execute("SET lock_configuration = true")
        return base

    @cached_property
    def rows(self) -> int:
        """Number of rows, counted by DuckDB."""
        return sum(
            batch.column(0)[0].as_py()
            for batch in self._read(f"SELECT count(*) FROM ({self.sql})")
            if batch.num_rows
        )

    @property
    def size(self) -> int:
        """Number of rows, the same as ``rows``."""
        return self.rows

    @cached_property
    def _types(self) -> dict[str, Any]:
        return {one.name: one.type for one in next(self._read(f"SELECT * FROM ({self.sql}) LIMIT 0")).schema}

    def types(self) -> Mapping[str, Any]:
        """Return a mapping of column names to the Arrow types of DuckDB's result."""
        return self._types

    def names(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the column names of the query's result."""
        return list(self._types)

    def batches(
        self,
        wanted: Sequence[str],
        batch_rows: int,
        types: Mapping[str, Any] | None = None,
        spread: Spread | None = None,
    ) -> Iterator[pa.Table]:
        """Yield batches of rows, sorted by the wanted columns.

        DuckDB returns rows in an arbitrary order, but each pass over a source must give the same order.
        """
        listed = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
        for batch in self._read(f"SELECT {listed} FROM ({self.sql}) ORDER BY {listed}", batch_rows):
            yield pa.table(batch)


TableSource = ParquetFile | TextFile | Frame | QuerySource
"""One table with named columns."""


@cache
def _scratch() -> str:
    """Create a folder (mode 0700) for DuckDB's temporary files, and return its path.

    Only this process uses the folder. It replaces DuckDB's default folder, because queries could read the
    files in that folder.
    """
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
    """Return the end of an error message about a missing column ``name``; "" without a hint.

    The hint is a column with a similar name, or the line of a text file that has the column names.
    """
    names = place.names(wanted)
    plain = [one for one in names if _likeness(one) == _likeness(name)]
    near = plain or difflib.get_close_matches(name, names, 1, 0.8)
    if near:
        return f"; it has {near[0]!r}: write it in the same way"
    if isinstance(place, TextFile) and (line := place.line_of(wanted)) is not None:
        return f"; its line {line} names the columns: take out the lines above it"
    return ""


def whole_names(kind: Any) -> str:
    """Return the end of an error message with advice on user or episode numbers stored as floating-point
    numbers.

    Returns "" if the Arrow type ``kind`` is not floating-point.
    """
    if not pa.types.is_floating(kind):
        return ""
    return "; give whole numbers or text (in pandas dtype 'Int64' or str): a gap turned 17 into 17.0"


def _likeness(name: str) -> str:
    """Return the name of a column in lower case, without spaces and punctuation."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", name).casefold())


# ------------------------------------------------------------------------------------- naming places
def places_of(
    where: Any,
    text: Text | None = None,
    sql: str | None = None,
    reads: Sequence[str | Path] | None = None,
    *,
    synthetic_input: bool = False,
) -> tuple[TableSource, ...]:
    """Return the places that an argument describes. The module docstring lists the kinds of places.

    Parameters
    ----------
    where : path, URI, frame, or a list of them
    text : Text, optional
    sql : str, optional
        Query for ``duckdb://file.db``, or query on files for ``duckdb://`` without a path.
    reads : list of files, optional
        All files that a query of ``duckdb://`` without a path is allowed to read. Name each file; folders and
        patterns are not allowed.
    synthetic_input : bool
        True if the caller checks the marks of synthetic users (:func:`mark_of`).

    Raises
    ------
    Broken
        If a file does not exist, has an unsupported format, or is given twice.
    ValueError
        If a place holds synthetic users (:mod:`.synthetic_mark`) and ``synthetic_input`` is False.
    ImportError
        If DuckDB is needed but not installed.
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
        raise Broken("sql: must be given with duckdb://file.db, the database that it queries")
    if reads and not any(isinstance(place, QuerySource) for place in found):
        raise Broken("reads: must be given with duckdb:// and the query (sql) that reads these files")
    if not found:
        raise Broken(f"{', '.join(map(_plain, given)) or 'no file'}: must be Parquet or CSV files")
    folders: dict[str, str] = {}
    keys = [key for place in found if (key := _identity(place, folders)) is not None]
    if len(set(keys)) < len(keys):
        raise Broken("a file is given twice: its users would count twice")
    if not synthetic_input:
        check_mark(((place.name, mark_of(place)) for place in found), None, False)
    return tuple(found)


def mark_of(place: TableSource) -> Facts | None:
    """Return the facts of synthetic users in a place, or None if the place has no mark.

    The mark is in the metadata of the table or in a column. A query also has the marks of all files that it
    reads.
    """
    metadata = None
    if isinstance(place, ParquetFile):
        metadata = place.arrow_schema.metadata
    elif isinstance(place, Frame):
        metadata = place.table.schema.metadata
    elif isinstance(place, QuerySource):
        for path in place.reads:
            for one in _local(Path(path), Text()) if _readable(path) else ():
                if (facts := mark_of(one)) is not None:
                    return facts
    if metadata and MARK.encode() in metadata:
        return facts_in(metadata[MARK.encode()])
    if MARK not in (place.head if isinstance(place, TextFile) else place.names()):
        return None
    if isinstance(place, TextFile) and MARK not in place.names():
        return {}  # the line of column names cannot be split without a declared delimiter
    tables = place.batches([MARK], 1024, {MARK: pa.string()})
    first = next((table for table in tables if table.num_rows), None)
    cells = [] if first is None else first.column(0).drop_null()
    return facts_in(str(cells[0])) if len(cells) else {}


def local_files(places: Iterable[TableSource]) -> list[Path]:
    """Return the files on this machine that the places read.

    Places on object stores and in memory read no such files.
    """
    found: list[Path] = []
    for place in places:
        if isinstance(place, QuerySource):
            found += [Path(one) for one in (place.path, *place.reads) if one]
        elif isinstance(place, ParquetFile | TextFile) and isinstance(place.fs, arrow_fs.LocalFileSystem):
            found.append(Path(place.path))
    return found


def _plain(item: Any) -> str:
    """Return the name of a source without the access key that a URI can contain."""
    return re.sub(r"://[^/@]*@", "://", str(item)) if isinstance(item, str | Path) else type(item).__name__


def _real(path: str, folders: dict[str, str]) -> str:
    """Return the path of a file with symbolic links resolved.

    ``folders`` : cache of resolved folders, which this function updates.
    """
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
        "another kind (a spreadsheet, SPSS, SAS, Stata, R) as one of these, or pass it as a frame"
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
    """Return the readable files in a folder and its subfolders, sorted by their path components."""
    found: list[str] = []
    for within, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _shown([name])]
        found += [os.path.join(within, name) for name in names if _readable(name) and _shown([name])]
    return sorted(filter(os.path.isfile, found), key=lambda path: path.split(os.sep))


def _stored(uri: str, text: Text) -> list[TableSource]:
    """Return the files that a URI names. Their names contain only the path, never an access key."""
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
        "Polars frame (collect a lazy one first)"
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
        raise Broken(
            f"{uri}: reads must be given only with duckdb://, because only the database is read here"
        )
    if isinstance(reads, str | Path):
        raise Broken(f"reads = {str(reads)!r}: must be a list of files")
    named = tuple(str(one) for one in reads or ())
    for one in named:
        if not os.path.isfile(one):
            raise Broken(f"reads = {one!r}: must be a file on this machine, not a folder or a pattern")
    _duckdb()
    return QuerySource(f"{_DUCKDB}{path}", path, sql.strip().rstrip(";"), named)
