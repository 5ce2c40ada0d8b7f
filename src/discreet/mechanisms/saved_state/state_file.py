r"""Saved state: one file that contains a session's whole state and can be restored once.

The file uses little-endian integers and no pickle, so reading the file runs no code from it. It contains:

1. 16 bytes: ``\x89discreet-state\n``.
2. uint32: version of this layout, 3. Version 2 had a kind of session for each strategy
   (:mod:`discreet.mechanisms.saved_state.version_2`). Version 1 stored guarantees as sentences.
3. uint64: n, length of the header.
4. n bytes: the header, JSON in UTF-8. The header has ``id`` (32 hexadecimal digits), ``library``, ``values``
   and ``arrays`` ([dtype, shape, writeable] of each array, in order).
5. The arrays, one after the other, in C order, little-endian.
6. 32 bytes: SHA-256 of all bytes before.

In ``values``, numbers, strings, truth values, null and lists represent themselves. An object with one key
represents one of the following values:

- ``{"array": i}``, ``{"tuple": [...]}``, ``{"map": [[key, value], ...]}`` or ``{"float": "inf"}``;
- ``{"<class>": {argument: value, ...}}`` of a class that the reader lists. The attributes of the class have
  the names of its constructor's arguments.

The checksum detects accidental damage. The checksum is not a signature: anyone who can write the file can
also compute a valid checksum. The file contains exact sums of users' data and the noise on them, or the
records of users if the session stores records. The file is created with mode 0600. Store it only where raw
data are allowed.

Only one usable copy of a state may exist. Two sessions that continued from the same state would contain the
same earlier users and noise. Each session would add other users and fresh noise. The guarantee of one session
does not cover the releases of both. Two protocols, for writing a file and for taking a state from it, ensure
that a crash or interrupt never creates two usable copies. The protocols also ensure that this copy is never
lost, except as stated below.

*Writing* (:class:`Draft`):

1. The session is set to reject all calls.
2. The bytes are written to a hidden file in the target's folder and flushed to the disk (fsync).
3. One rename gives the file its visible name.
4. The session's data are deleted from memory.

If anything fails before the rename, the hidden file is removed and the session remains open. A crash leaves
nothing or a hidden file ``.<name>.<token>.part``. The hidden file is a saved state if it is complete.

*Taking* (:class:`Claim`). The whole file is read and checked. The following steps are in one exclusive SQLite
transaction:

1. The file's id is inserted into the table of restored states. If the table already has this id, this file or
   a copy of it was restored before, and the restore fails.
2. The file is renamed to ``<name>.taken-<token>``.
3. The checksum is compared, because another file could have been renamed to that name.
4. The transaction is committed.

Then the file is deleted. If the process crashes before the commit, the id is not stored. The file then has
one of the two names and can be restored. After the commit, the state exists only in the process that restored
it, and is lost if this process ends. If an interrupt does not end the process, all steps are undone: first
the file is restored, then the id is removed.

The following cases are not detected:

- a copy restored on another machine, by another user of this machine or with another table;
- a disk image or a virtual machine that is reset to an earlier state, including the table;
- a deleted table.

The detection of a second restore depends on SQLite's locks. SQLite's locks are only as reliable as the locks
of the file system. Network file systems can lack locks.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import secrets
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from discreet.core import checks
from discreet.core.noise.noises import GAUSSIAN, LAPLACE
from discreet.core.user_data_dir import user_folder
from discreet.utils.sync_folder import sync_folder

TABLE = "restored.sqlite3"
FOLDER_VARIABLE = "DISCREET_STATE_DIR"

_PRELUDE = struct.Struct("<16sIQ")
_DIGEST = 32
_KINDS = "biuf"
_WAIT_SECONDS = 60.0
_SYNCHRONOUS = "EXTRA"  # SQLite mode in which a commit also flushes the folder's entries to the disk

WRITTEN_NAMES = {"SessionConfig": "Form"}
"""Map from the name of a class to its name in files, for classes that had another name before."""


def _current_fields(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Convert the stored ``fields`` of the class ``kind`` to the arguments of its present constructor.

    Only files of versions up to 0.2.0 need this conversion, because they store the noise of a mechanism as a
    number.
    """
    if kind == "CountMechanism" and "family" in fields:
        codes = {0: None, LAPLACE.code: LAPLACE, GAUSSIAN.code: GAUSSIAN}
        return {
            **{key: item for key, item in fields.items() if key != "family"},
            "noise": codes[fields["family"]],
        }
    return fields


REMOVED = {
    "Clocks": "a schedule for each state-action pair (clocks = 'rows')",
    "Batches.clocks": "a schedule for each state-action pair (clocks = 'rows')",
    "Plan.query": "a question of a plan's own",
    "Measurement.fresh": "a schedule for each state-action pair (clocks = 'rows')",
}
"""Classes and arguments in files of version 0.2 that are no longer supported.

An argument with the value None is ignored. Everything else in this list makes the file unreadable.
"""

Classes = Mapping[str, type]
PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class FileLayout:
    """Start of a file: 16 bytes that identify its format, and a version.

    what : name of the format in error messages. earlier : earlier versions that can be read.
    """

    magic: bytes
    version: int
    what: str
    earlier: tuple[int, ...] = ()


STATE = FileLayout(b"\x89discreet-state\n", 3, "a saved state", (2,))


# ------------------------------------------------------------------------------ values as JSON


@cache
def _parameters(kind: type) -> tuple[str, ...]:
    return tuple(inspect.signature(kind).parameters)


def _encode(name: str, value: Any, classes: Classes, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in _KINDS:
            raise ValueError(f"{name}: an array of {value.dtype} cannot be saved, only numbers can")
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, list | tuple):
        items = [_encode(f"{name}[{i}]", item, classes, arrays) for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Mapping):
        pairs = [
            [_encode(name, key, classes, arrays), _encode(f"{name}[{key!r}]", item, classes, arrays)]
            for key, item in value.items()
        ]
        return {"map": pairs}
    kind = WRITTEN_NAMES.get(type(value).__name__, type(value).__name__)
    if classes.get(kind) is not type(value):
        raise ValueError(f"{name}: a {kind} cannot be saved")
    fields = {key: getattr(value, key) for key in _parameters(classes[kind])}
    return {
        kind: {key: _encode(f"{name}.{key}", item, classes, arrays) for key, item in fields.items()},
    }


def _decode(value: Any, classes: Classes, arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, list):
        return [_decode(item, classes, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "array":
        return arrays[inside]
    if kind == "float":
        return float(inside)
    if kind == "tuple":
        return tuple(_decode(item, classes, arrays) for item in inside)
    if kind == "map":
        return {_decode(k, classes, arrays): _decode(item, classes, arrays) for k, item in inside}
    if kind in REMOVED:
        raise _removed(kind)
    given = {key: _decode(item, classes, arrays) for key, item in inside.items()}
    for key in [key for key in given if f"{kind}.{key}" in REMOVED]:
        if given.pop(key) is not None:
            raise _removed(f"{kind}.{key}")
    return classes[kind](**_current_fields(kind, given))


def _removed(name: str) -> ValueError:
    return ValueError(f"{REMOVED[name]}: version 0.2 was the last that continues it")


# ------------------------------------------------------------------------------ the file


@dataclass(frozen=True)
class SavedState:
    """Contents of a file.

    path : path of the file.

    identity : id of the state. The id is equal in every copy of the file.

    values : stored values by name.

    seal : last 32 bytes of the file, which are its checksum.
    """

    path: Path
    identity: str
    values: Mapping[str, Any]
    seal: bytes


def _library() -> str:
    from discreet.names import __version__

    return f"discreet {__version__}"


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path = {path!r}: must be the name of a file")
    return Path(os.path.abspath(path))


def write_content(
    file: BinaryIO, identity: str, values: Mapping[str, Any], classes: Classes, layout: FileLayout = STATE
) -> None:
    """Write the whole content of a file.

    Raises ``ValueError`` for a value that is not a number, text, array or object of a listed class.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    encoded = {name: _encode(name, value, classes, arrays) for name, value in values.items()}
    stored = [np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for array in arrays]
    described = [
        [array.dtype.str, list(original.shape), bool(original.flags.writeable)]
        for array, original in zip(stored, arrays, strict=True)
    ]
    header = {"id": identity, "library": _library(), "values": encoded, "arrays": described}
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    digest = hashlib.sha256()
    parts: list[Any] = [_PRELUDE.pack(layout.magic, layout.version, len(text)), text]
    for part in [*parts, *(array.reshape(-1).view(np.uint8).data for array in stored)]:
        digest.update(part)
        file.write(part)
    file.write(digest.digest())


def read(path: PathLike, classes: Classes, layout: FileLayout = STATE) -> SavedState:
    """Read and check a whole file without changing it.

    Raises ``FileNotFoundError`` if the file does not exist. Raises ``ValueError`` if the file has another
    format, is damaged or incomplete, or was written by a version with another layout or other classes.
    """
    where = Path(os.path.realpath(_path(path)))  # if the path is a link, this is the target of the link
    with open(where, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        identity, values = read_content(file, size, f"path = {str(path)!r}", classes, layout)
        return SavedState(where, identity, values, _seal(file))


def _seal(file: BinaryIO) -> bytes:
    """Return the stored SHA-256 at the end of a file, or empty bytes if the file is too short."""
    if file.seek(0, os.SEEK_END) < _DIGEST:
        return b""
    file.seek(-_DIGEST, os.SEEK_END)
    return file.read()


def read_content(
    file: BinaryIO, size: int, said: str, classes: Classes, layout: FileLayout = STATE
) -> tuple[str, Mapping[str, Any]]:
    """Read and check ``size`` bytes of ``file``, and return (id, values by name).

    ``said`` : name of the source in error messages. Raises the ``ValueError`` of :func:`read`.
    """
    head = file.read(_PRELUDE.size)
    if size == 0 or not head.startswith(layout.magic):
        raise ValueError(f"{said}: is not {layout.what} of this library")
    if len(head) < _PRELUDE.size:
        raise ValueError(f"{said}: is cut short")
    _, version, length = _PRELUDE.unpack(head)
    if version not in (layout.version, *layout.earlier):
        raise ValueError(
            f"{said}: has version {version} of the file's layout (or is damaged); this library reads version "
            f"{layout.version}"
        )
    damaged = ValueError(f"{said}: is damaged or cut short (its checksum does not fit)")
    if _PRELUDE.size + length + _DIGEST > size:
        raise damaged
    digest = hashlib.sha256(head)
    text = file.read(length)
    digest.update(text)
    body = bytearray(size - _PRELUDE.size - length - _DIGEST)
    file.readinto(body)  # type: ignore[attr-defined]
    digest.update(body)
    if file.read() != digest.digest():
        raise damaged
    try:
        header = json.loads(text)
        arrays, at = [], 0
        for dtype, shape, writeable in header["arrays"]:
            kind, count = np.dtype(dtype), math.prod(shape)
            if kind.kind not in _KINDS or count < 0:
                raise ValueError(f"an array {shape} of {kind}")
            raw = body[at : at + count * kind.itemsize]
            array = np.frombuffer(raw, np.uint8).view(kind).reshape(shape)
            array = array.astype(kind.newbyteorder("="), copy=False)  # no other array uses ``raw``
            array.flags.writeable = writeable
            arrays.append(array)
            at += count * kind.itemsize
        if at != len(body):
            raise ValueError("bytes are left over")
        values = {name: _decode(value, classes, arrays) for name, value in header["values"].items()}
        identity = str(header["id"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(f"{said}: was written by another version of the library ({error!r})") from error
    return identity, values


class Draft:
    """New file that has a hidden name until ``publish`` is called. No existing file is overwritten.

    Raises ``ValueError`` if the folder does not exist, or if a file with the visible name exists.
    """

    def __init__(self, path: PathLike, layout: FileLayout = STATE) -> None:
        self._path, self._layout = _path(path), layout
        if not self._path.parent.is_dir():
            raise ValueError(f"path = {str(path)!r}: its folder does not exist")
        if os.path.lexists(self._path):
            raise ValueError(f"path = {str(path)!r}: exists already, {layout.what} overwrites nothing")
        token = secrets.token_hex(8)
        self._part = self._path.with_name(f".{self._path.name}.{token}.part")
        self._renaming = False

    def write(self, identity: str, values: Mapping[str, Any], classes: Classes) -> None:
        """Write the content to a hidden file with mode 0600 in the target's folder, and flush it to disk."""
        with open(self._part, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            write_content(file, identity, values, classes, self._layout)
            file.flush()
            os.fsync(file.fileno())

    def publish(self) -> None:
        """Rename the file to its visible name. Raises ``ValueError`` if this name now exists."""
        try:  # an empty file reserves the name, so that no other state is overwritten
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise ValueError(
                f"path = {str(self._path)!r}: exists already, {self._layout.what} overwrites nothing"
            ) from None
        self._renaming = True
        os.replace(self._part, self._path)
        sync_folder(self._path.parent)

    @property
    def published(self) -> bool:
        """True if the file has its visible name.

        The property tests whether the hidden name still exists, because another program could have created a
        file with the visible name.
        """
        return self._renaming and not self._part.exists()

    def withdraw(self) -> None:
        """Remove the hidden file. Call this method only if the file was not published."""
        self._part.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            if self._path.stat().st_size == 0:  # only the empty file that reserves the name is removed
                self._path.unlink()


# ------------------------------------------------------------------------------ restored once


def state_folder(folder: PathLike | None = None) -> Path:
    """Return the folder of the table of restored states.

    The folder is the first of these that is given: ``folder``, ``$DISCREET_STATE_DIR``,
    ``$XDG_STATE_HOME/discreet``, ``~/.local/state/discreet``. Raises ``ValueError`` if none is available.
    """
    chosen = folder if folder is not None else os.environ.get(FOLDER_VARIABLE)
    if chosen is not None and chosen != "":
        return Path(os.path.abspath(chosen))
    try:
        return user_folder("state")
    except ValueError:
        raise ValueError(f"folder = None: there is no home folder, set {FOLDER_VARIABLE}") from None


def _connect(folder: Path) -> sqlite3.Connection:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    table = folder / TABLE
    os.close(os.open(table, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(table, timeout=_WAIT_SECONDS, isolation_level=None)
    try:
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS restored (id TEXT PRIMARY KEY, claim TEXT NOT NULL, at TEXT NOT NULL)"
        )
        return connection
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise RuntimeError(f"the table of restored states, {table}, cannot be used: {error}") from error
        raise


class Claim:
    """Attempt to take a saved state from its file permanently.

    ``undo`` reverses only changes of this attempt.
    """

    def __init__(self, saved: SavedState, folder: PathLike | None = None) -> None:
        self._saved = saved
        self._folder = state_folder(folder)
        self._token = secrets.token_hex(8)
        self._taken = saved.path.with_name(f"{saved.path.name}.taken-{self._token}")
        self._committed = False

    def take(self) -> None:
        """Insert the id into the table of restored states, and remove the file.

        Raises ``RuntimeError`` if the table already contains the id, or if another file has replaced the file
        that was read. In the second case, the other file was renamed, and :meth:`undo` restores its name. In
        all other cases nothing is changed.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with closing(_connect(self._folder)) as connection:  # closing undoes changes that are not committed
            row = (self._saved.identity, self._token, now)
            known = connection.execute("SELECT at FROM restored WHERE id = ?", row[:1]).fetchone()
            if known is not None:
                raise RuntimeError(
                    f"path = {str(self._saved.path)!r}: this state, or a copy of it, was restored at "
                    f"{known[0]}: a second session from it would release more than the guarantee covers"
                )
            connection.execute("INSERT INTO restored VALUES (?, ?, ?)", row)
            os.rename(self._saved.path, self._taken)
            with open(self._taken, "rb") as file:
                if _seal(file) != self._saved.seal:
                    raise RuntimeError(
                        f"path = {str(self._saved.path)!r}: another file took its place while it was read"
                    )
            self._committed = True  # set before the commit, so that ``undo`` then deletes the row
            connection.execute("COMMIT")
        self._taken.unlink()

    def undo(self, values: Mapping[str, Any], classes: Classes) -> None:
        """Undo this attempt after an interrupt: restore the file, remove the id, and rename the file back.

        If the file was already deleted, it is written again from ``values``. The session of this attempt must
        be closed. A second interrupt inside this method can lose the state (if the id stays in the table) or
        leave the state under another file name. A second interrupt never creates two usable copies.
        """
        draft = None
        if self._committed and not self._taken.exists() and not os.path.lexists(self._saved.path):
            draft = Draft(self._saved.path)
            draft.write(self._saved.identity, values, classes)
        if self._committed:
            with closing(_connect(self._folder)) as connection:
                row = (self._saved.identity, self._token)
                connection.execute("DELETE FROM restored WHERE id = ? AND claim = ?", row)
                connection.execute("COMMIT")
        if draft is not None:
            draft.publish()
        elif self._taken.exists() and not os.path.lexists(self._saved.path):
            os.rename(self._taken, self._saved.path)


# ------------------------------------------------------------------------------ contents of a file


def state_of(thing: Any) -> dict[str, Any]:
    """Return the attributes of an object that its ``_STATE`` lists, by name."""
    return {name: getattr(thing, name) for name in thing._STATE}


def whole_of(thing: Any) -> dict[str, Any]:
    """Return the state and the constructor arguments (``_BOUND``). An equal object can be built from them."""
    return {name: getattr(thing, name) for name in thing._BOUND} | state_of(thing)


def resume(thing: Any, state: Mapping[str, Any]) -> None:
    """Set the state of an object from :func:`state_of`. Raises ``ValueError`` if the state does not fit."""
    _check_names(state, thing._STATE)
    for name in thing._STATE:
        check_same_kind(name, state[name], getattr(thing, name))
    for name in thing._STATE:
        setattr(thing, name, state[name])


def made_of(kind: Any, whole: Mapping[str, Any]) -> Any:
    """Return a new object from the result of :func:`whole_of`.

    Raises ``ValueError`` in the same cases as :func:`resume`.
    """
    _check_names(whole, (*kind._BOUND, *kind._STATE))
    new = kind(**{name.removeprefix("_"): whole[name] for name in kind._BOUND})
    resume(new, {name: whole[name] for name in kind._STATE})
    return new


def _check_names(values: Mapping[str, Any], table: Sequence[str]) -> None:
    if set(values) != set(table):
        raise ValueError(f"{min(set(values).symmetric_difference(table), key=str)} is missing or new")


# Attributes that are None in a new session, and the types that they can have in a stored state.
_SOMETIMES = {"_plan": ("Plan",), "_last": ("Release", "tuple")}


def check_same_kind(name: str, value: Any, fresh: Any) -> None:
    """Raise ``ValueError`` unless a stored ``value`` is of the same kind as the value in a new session.

    - Arrays must have the same dtype and shape.
    - Tuples and lists must have items of the same kinds.
    - Dictionaries must have the same keys, unless the dictionary of the new session is empty.
    - Integers must be valid counts (-1 to 2^64 - 1).
    """
    if isinstance(fresh, np.ndarray):
        if not isinstance(value, np.ndarray) or (value.dtype, value.shape) != (fresh.dtype, fresh.shape):
            raise ValueError(f"{name}: must be an array {fresh.shape} of {fresh.dtype}")
        return
    allowed = _SOMETIMES.get(name, ()) if fresh is None else (type(fresh).__name__,)
    if type(value).__name__ not in (*allowed, *(("NoneType",) if fresh is None else ())):
        raise ValueError(
            f"{name} = {checks.said(value)}: must be of type {' or '.join(allowed or ('NoneType',))}"
        )
    if type(value) is int:
        checks.integer(name, value, -1, 2**64 - 1)
    if isinstance(fresh, tuple):
        kinds = [[(type(one), getattr(one, "dtype", None)) for one in items] for items in (value, fresh)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"{name} = {checks.said(value)}: must hold other kinds of values")
    if isinstance(fresh, dict) and fresh and set(value) != set(fresh):
        raise ValueError(f"{name}: must say {', '.join(map(str, fresh))}")
    if name == "_table":
        for key in fresh:
            check_same_kind(key, value[key], fresh[key])
    if isinstance(fresh, list) and fresh and not {type(one) for one in value} <= {type(one) for one in fresh}:
        raise ValueError(f"{name}: must hold other kinds of values")
