"""Ledger of all releases about the users of a dataset, their total privacy cost, and the owner's limit.

A ledger is one SQLite file with one append-only table. The entries of the table have these kinds:

==========  ==========================================================================================
``begin``   the first entry: a random identity and the version of the library

``limit``   the owner's total (epsilon, delta) for one dataset, optionally signed; the latest applies

``reserve`` budget to be spent on one dataset: the records of all mechanisms of one release
``mark``    the files of a reservation were published; the entry has their SHA-256 hashes

``owner``   control of the limit of one dataset was transferred to another key
==========  ==========================================================================================

A release has these steps: reserve budget, draw the noise, write the files under a hidden name, rename the
files, and mark the reservation. A reservation is on the disk before :meth:`Ledger.reserve` returns, so the
ledger contains every release before its noise is drawn. After a crash, a reservation can remain unmarked. An
unmarked reservation counts as spent, because its noise may have been drawn and seen. No function removes an
entry.

*Datasets* are populations. Entries with the same name are composed, and entries with different names are not.
The total of a dataset therefore bounds the privacy loss of a user only if no user is in two datasets. A
dataset with a new name starts with a total of zero. The owner is responsible for ensuring that its users are
new, because no other party knows this. New rows about the same users belong to the same dataset. A new name
that differs from a name in the ledger only by case, spaces or Unicode form is rejected, because its total
would start at zero without a warning.

*Stored content* is public. The content consists of noise scales, sensitivities, limits, numbers of users, and
times. Hashes of published files are also stored. Names and purposes are stored as the owner typed them. The
ledger contains no row of data, no drawn noise and no seed.

*The limit* is enforced by a privacy filter (:mod:`discreet.accounting.privacy_filter`). If the composition
with a new reservation would exceed the owner's total, :class:`BudgetError` is raised and nothing is recorded.

*The chain.* The text of an entry contains its number and the SHA-256 hash of the previous entry. The hash of
the text is stored in the same row. A second file, the *head* ``<ledger>.head``, contains ``<number> <hash>``
of the last entry. After each commit, the head is written under a temporary name and renamed, while the ledger
is locked. When a ledger is opened, all hashes are checked, and the head must be in the chain. Therefore an
edited, shortened, replaced or missing ledger raises :class:`LedgerError`. A crash between the commit and the
writing of the head leaves a chain that is longer than its head states. Such a ledger is valid, and the next
writer updates the head. A missing head is an error, unless the ledger has only its first entry (after a crash
during creation). If a missing head were accepted, anyone could delete the head and shorten the chain without
detection. A repair command does not exist. If the last hash equals the hash in the latest privacy statement,
the ledger is complete, and an operator can write the line of the head by hand.

*Signed limits.* A limit can be signed with the owner's key (:mod:`discreet.ledger.signatures`). The signature
covers the ledger's identity and all other fields of the entry, including its number and the hash of the entry
before it. The signature is therefore valid only in this ledger and at this position. After a signed limit,
the ledger rejects every unsigned limit of that dataset, and every limit signed with another key. The ledger
also rejects a reservation that bypasses the limit. A chain that contains such an entry counts as damaged.
Operators can spend budget, but cannot change the limit. A ledger with signed limits cannot be opened without
the package ``cryptography``.

*Transfer of control.* Keys can be lost, and owners can leave. An entry ``owner`` names the key that can
change the limit of a dataset after this entry. The entry is signed with the previous key of the limit or with
the *recovery key*. A signed limit can declare the public part of the recovery key once, and the declaration
cannot be changed. Therefore a party that can write the ledger but has neither key cannot take control of a
limit, because it cannot sign an entry. If it removes entries, the head and the statements reveal this. The
holder of a key can check whether the limit was transferred from this key to the present owner, directly or
through other keys (:meth:`Ledger.successors`). This check uses only entries after an entry that the holder
signed, because that signature covers all earlier entries. An entry that names the key but is not signed with
it can be forged, so it does not count.

*What this module cannot detect.* Other entries are not signed. A party that can write both files can forge
reservations and marks, restore an older copy of both files from before a limit, or delete both files. The
statements are the evidence against this. Each statement contains the hash of its reservation, and the key of
the limit that applied to the reservation. :meth:`Ledger.contains` returns True if that hash is in this
ledger. Locks and durability depend on the file system. A network file system may have neither, so keep the
ledger on a local disk.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import secrets
import sqlite3
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

from discreet.accounting import privacy_filter as filters
from discreet.accounting.budget import check_epsilon
from discreet.accounting.privacy_filter import Record
from discreet.accounting.serialization import records_from_dict
from discreet.accounting.text.guarantee_sentences import up
from discreet.core import checks
from discreet.core.guarantee import MechanismRecord
from discreet.core.short_repr import brief
from discreet.core.user_data_dir import user_folder
from discreet.ledger import signatures
from discreet.ledger.signatures import PrivateKey
from discreet.utils.sync_folder import sync_folder

PATH_VARIABLE = "DISCREET_LEDGER"
VERSION = 1
COLUMNS = (
    "number", "time", "dataset", "entry", "epsilon", "delta", "rho", "users", "mechanisms", "purpose",
    "state", "hash",
)  # fmt: skip

ONE_ROW = "(unit: one row)"
"""End of the purpose of a reservation whose unit of privacy is one row, for users without identifiers."""

_ROUNDING = 1e-9  # relative tolerance, so that three reservations of one third of the limit each are accepted
_WAIT_SECONDS = 60.0
_SYNCHRONOUS = "EXTRA"  # a commit returns after it is on the disk, including the removal of the journal

PathLike = str | os.PathLike[str]
Kind = Literal["begin", "limit", "reserve", "mark", "owner"]
_TEXTS = (
    "previous", "time", "dataset", "method", "purpose", "key", "signature", "recovery", "to", "identity",
    "library",
)  # fmt: skip


class LedgerError(ValueError):
    """Error for a ledger that is missing, damaged, shortened, replaced, locked or not writable."""


class BudgetError(ValueError):
    """Error for a reservation that would exceed the owner's limit. Nothing was recorded.

    Parameters
    ----------
    dataset : name of the dataset.
    spent : epsilon of the reservations in the ledger, at the delta of the limit.
    asked : epsilon of the new reservation, at the same delta.
    together : epsilon of all these reservations by the privacy filter, at the same delta.
    rule : name of the rule that the privacy filter used for ``together``.
    limit : the owner's (epsilon, delta).
    """

    def __init__(
        self, dataset: str, spent: float, asked: float, together: float, rule: str, limit: tuple[float, float]
    ) -> None:
        self.dataset, self.limit = dataset, limit
        self.spent, self.asked, self.together = spent, asked, together
        hint = (
            "" if math.isfinite(together) else " (Gaussian noise has no finite epsilon at so small a delta)"
        )
        super().__init__(
            f"dataset = {dataset!r}: {_epsilon(spent)} is spent, {_epsilon(asked)} is asked for, together "
            f"{_epsilon(together)} (by the filter: {rule}), all at delta {limit[1]:g}{hint}; the owner's "
            f"limit is epsilon {limit[0]:.6g} at delta {limit[1]:g}. Nothing was recorded."
        )


def _epsilon(value: float) -> str:
    return f"epsilon {value:.6g}" if math.isfinite(value) else "no finite epsilon"


def default_path() -> Path:
    """Return the path of the ledger that is used if none is given.

    The path is ``$DISCREET_LEDGER`` if this variable is set, and otherwise ``discreet/ledger.sqlite`` in the
    folder for user data. That folder is ``$XDG_DATA_HOME`` or ``~/.local/share``. On Windows it is
    ``%LOCALAPPDATA%``, and on macOS ``~/Library/Application Support``. Raises ``LedgerError`` if no home
    folder exists.
    """
    chosen = os.environ.get(PATH_VARIABLE)
    if chosen:
        return Path(os.path.abspath(chosen))
    try:
        return user_folder("data") / "ledger.sqlite"
    except ValueError:
        raise LedgerError(f"ledger: there is no home folder, set {PATH_VARIABLE}") from None


# ------------------------------------------------------------------------------ entries


@dataclass(frozen=True)
class LedgerEntry:
    """Entry of the ledger. The other fields are parsed from ``text``, and ``hash`` is the hash of ``text``.

    Parameters
    ----------
    number : position in the ledger, from 1
    hash, previous : SHA-256 hashes of this entry and of the entry before it, in hexadecimal
    time : time in UTC, as ISO 8601
    kind : "begin", "limit", "reserve", "mark" or "owner"
    dataset : name of the dataset; empty for "begin"
    epsilon, delta : values of a limit or of a reservation. Epsilon of a reservation is computed from the
    reservation's records, at the delta of the statement. It is None if no finite epsilon exists.
    method : method that computed the epsilon of a reservation
    records : records of the mechanisms of a reservation
    users, purpose : number of users and purpose of a reservation
    checked : False if a reservation bypassed the owner's limit
    reservation, files : for a mark, the number of its reservation, and the hashes of the published files
    key, signature : for a signed limit and for "owner", the public key in hexadecimal and the signature.
        Otherwise empty
    recovery : for a signed limit, the public recovery key, or "". The holder of this key can also transfer
        control of the limit
    to : for "owner", the public key that can change the limit after this entry
    parallel : records of mechanisms on other users, for a reservation that divides the users into two groups.
        No user is in both groups, and the loss of ``records`` is at least that of ``parallel``
        (:func:`discreet.accounting.privacy_filter.covers`). Totals therefore contain ``records`` only.
    """

    number: int
    hash: str
    previous: str
    time: str
    kind: Kind
    dataset: str
    text: str = field(repr=False)
    epsilon: float | None = None
    delta: float | None = None
    method: str = ""
    records: tuple[Record, ...] = ()
    users: int | None = None
    purpose: str = ""
    checked: bool = True
    reservation: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    signature: str = ""
    recovery: str = ""
    to: str = ""
    parallel: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Reservation:
    """Result of :meth:`Ledger.reserve`: dataset, number and hash of the entry, for the privacy statement."""

    __repr__ = brief

    dataset: str
    number: int
    hash: str


@dataclass(frozen=True)
class TotalCost:
    """Total cost of all reservations of one dataset, including unmarked reservations.

    Parameters
    ----------
    reservations : number of reservations
    unmarked : number of reservations that are not marked as published. They count as spent
    epsilon, delta : the smallest known epsilon at this delta. It is infinite if no finite epsilon is known
    method : method that computed epsilon
    pure : sum of pure epsilons. None if some noise has no pure epsilon
    mu : mu of Gaussian DP if all noise is continuous Gaussian. Otherwise None
    rho : rho of zCDP. None if some noise has no rho
    limit : the owner's (epsilon, delta). None if no limit was set
    filtered : epsilon of the privacy filter at the delta of the limit. None without a limit
    rule : rule that the privacy filter used for ``filtered``. None without a limit
    limit_key : public key that must sign changes of the limit. None if the limit is not signed
    """

    __repr__ = brief

    dataset: str
    reservations: int
    unmarked: int
    epsilon: float
    delta: float
    method: str
    pure: float | None
    mu: float | None
    rho: float | None
    limit: tuple[float, float] | None
    filtered: float | None
    rule: str | None
    limit_key: str | None = None


@dataclass(frozen=True)
class Certified:
    """Guarantee of the privacy filter for the reservations of one dataset.

    The guarantee is valid even if the parameters of a release depend on earlier releases.

    Parameters
    ----------
    reservations : number of reservations
    epsilon, delta : the smallest certified epsilon at this delta. It is infinite if no rule of the filter
        applies
    rule : rule that the privacy filter used for epsilon
    pure : sum of pure epsilons. None if some noise has no pure epsilon
    mu : mu of Gaussian DP if the Gaussian filter applies to this dataset. Otherwise None
    rho : sum of the rho of zCDP. None if some noise has no rho
    """

    __repr__ = brief

    reservations: int
    epsilon: float
    delta: float
    rule: str
    pure: float | None
    mu: float | None
    rho: float | None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _parse(where: str, number: int, text: Any, stored: Any, previous: str) -> LedgerEntry:
    """Parse the text of entry ``number``, and check its hash, its number and the hash of the previous entry.

    ``stored`` : the stored hash. ``where`` : start of error messages. Raises ``LedgerError`` if a check
        fails.
    """
    if not isinstance(text, str) or _digest(text) != stored:
        raise LedgerError(f"{where}: entry {number} was changed (its hash does not match)")
    try:
        content = json.loads(text)
        if _canonical(content) != text or not text.isprintable():  # also rejects duplicate keys and NaN
            raise ValueError("its text is not in the form that ledgers write")
        values = {
            name: value for name, value in content.items() if name not in ("version", "identity", "library")
        }
        for key in ("records", "parallel"):
            values[key] = filters.check_records(records_from_dict(content.get(key, ())))
        entry = LedgerEntry(hash=stored, text=text, **values)
        _check_types(entry, content)
        fits = (entry.number, entry.previous, content["version"]) == (number, previous, VERSION)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise LedgerError(
            f"{where}: entry {number} is not one that this version can read ({error!r})"
        ) from error
    if not fits:
        raise LedgerError(
            f"{where}: entry {number} does not follow the entry before it (of another chain or version)"
        )
    return entry


def _check_types(entry: LedgerEntry, content: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` if a value is invalid for this kind of entry.

    This check is necessary because an entry with invalid values can have a correct hash.
    """
    checks.choice("kind", entry.kind, get_args(Kind))
    for name in _TEXTS:
        _line(name, content.get(name, ""))
    checks.integer("version", content["version"], VERSION)
    number = checks.integer("number", entry.number, 1)
    if entry.users is not None:
        checks.integer("users", entry.users, 0)
    if entry.reservation is not None or entry.kind == "mark":
        checks.integer("reservation", entry.reservation, 1, number - 1)
    for name in ("epsilon", "delta"):
        value = getattr(entry, name)
        if value is None and entry.kind != "limit" and (entry.kind, name) != ("reserve", "delta"):
            continue
        checks.real(name, value, 0.0, math.inf if name == "epsilon" else 1.0, open_high=name == "delta")
    for record in entry.records:
        filters.zcdp_loss(record)  # this call raises ValueError if a number in the record is out of range
    if type(entry.checked) is not bool:
        raise ValueError(f"checked = {checks.said(entry.checked)}: must be true or false")
    lists = all(isinstance(content.get(name, []), list) for name in ("records", "parallel"))
    if not isinstance(entry.files, Mapping) or not lists:
        raise ValueError("files, records: must be a table and a list")
    if "parallel" in content and not filters.covers(entry.records, entry.parallel):
        raise ValueError("parallel: must cost at most as much as records")
    for name, value in entry.files.items():
        _line("files", name)
        _line(f"files[{name!r}]", value)


def _parse_chain(
    where: str, rows: Sequence[tuple[Any, Any, Any]], known: Sequence[LedgerEntry] = ()
) -> list[LedgerEntry]:
    """Parse and check ``rows`` (number, text, hash) that follow the ``known`` entries.

    Returns all entries, including the known entries. Raises ``LedgerError`` if a check fails.
    """
    found = list(known)
    owners = _owners(found)
    for row_number, text, stored in rows:
        if row_number != len(found) + 1:
            raise LedgerError(f"{where}: entry {len(found) + 1} is missing")
        entry = _parse(where, row_number, text, stored, found[-1].hash if found else "")
        if (entry.kind == "begin") != (not found):
            raise LedgerError(
                f"{where}: entry {entry.number} is a {entry.kind!r}: only the first one begins a ledger"
            )
        found.append(entry)
        _check_signed(where, entry, found[0], owners.get(entry.dataset, _NOBODY))
        owners |= _owners([entry], owners)
    return found


@dataclass(frozen=True)
class _Owner:
    """Public keys that control the limit of a dataset: the owner's key and the recovery key (or "")."""

    key: str = ""
    recovery: str = ""


_NOBODY = _Owner()
_SIGNED: dict[str, signatures.Kind] = {"limit": "discreet limit, 1", "owner": "discreet owner, 1"}


def _owners(entries: Sequence[LedgerEntry], before: Mapping[str, _Owner] | None = None) -> dict[str, _Owner]:
    """Return the keys that control the limit of each dataset after these entries.

    The owner's key is the key that signed the limit or received control of it. ``before`` : the mapping
    before these entries.
    """
    found = dict(before or {})
    for entry in entries:
        if entry.key:
            recovery = found.get(entry.dataset, _NOBODY).recovery or entry.recovery
            found[entry.dataset] = _Owner(entry.to or entry.key, recovery)
    return found


def _signed_part(content: Mapping[str, Any], identity: str) -> dict[str, Any]:
    """Return the content that is signed: the ledger's identity and all fields except the signature."""
    return {**{key: value for key, value in content.items() if key != "signature"}, "ledger": identity}


def _check_signed(where: str, entry: LedgerEntry, first: LedgerEntry, owner: _Owner) -> None:
    """Check the signature of an entry, and that the entry does not violate a signed limit.

    An entry violates a signed limit if it changes the limit without its key, or if it is a reservation that
    bypasses the limit. ``first`` is the first entry of the ledger, and ``owner`` has the keys of the dataset.
    Raises ``LedgerError`` if a check fails.
    """
    if entry.kind == "reserve" and owner.key and not entry.checked:
        raise LedgerError(
            f"{where}: entry {entry.number} ignores a limit that was signed with the key {owner.key}"
        )
    if entry.kind == "limit" and owner.key and entry.key != owner.key:
        raise LedgerError(
            f"{where}: entry {entry.number} changes a limit that was signed with the key {owner.key}, "
            "but is not signed with it"
        )
    if entry.kind == "owner":
        wrong = _cannot_hand_over(owner, entry.key, entry.to)
        if wrong:
            raise LedgerError(f"{where}: entry {entry.number} hands a limit over, but {wrong}")
    elif entry.to:
        raise LedgerError(f"{where}: entry {entry.number} names a new key, but does not hand a limit over")
    if entry.recovery:
        wrong = _cannot_declare(owner, entry.key, entry.recovery) if entry.kind == "limit" else "is no limit"
        if wrong:
            raise LedgerError(f"{where}: entry {entry.number} declares a recovery key, but {wrong}")
    if not entry.key and not entry.signature:
        return
    content = json.loads(entry.text)
    try:
        fits = entry.kind in _SIGNED and signatures.is_valid(
            entry.key, _SIGNED[entry.kind], _signed_part(content, _identity_of(first)), entry.signature
        )
    except signatures.SigningMissing as missing:
        raise LedgerError(f"{where}: holds a signed limit, and {missing}") from None
    if not fits:
        raise LedgerError(
            f"{where}: the signature of entry {entry.number} is not valid (the entry was changed, or is from "
            "another place or ledger)"
        )


def _cannot_hand_over(owner: _Owner, key: str, to: str) -> str:
    """Return the reason why the holder of ``key`` cannot transfer the limit to ``to``. "" if they can."""
    if not owner.key:
        return "it is not signed"
    if not key or key not in (owner.key, owner.recovery):
        other = f", or the recovery key {owner.recovery}" if owner.recovery else ""
        return f"its signature must be that of {owner.key}{other}"
    if not signatures.is_key(to) or to in (owner.key, owner.recovery):
        return f"{checks.said(to)} must be a public key other than the owner's and the recovery key"
    return ""


def _cannot_declare(owner: _Owner, key: str, recovery: str) -> str:
    """Return the reason why a limit signed with ``key`` cannot declare this recovery key. "" if it can."""
    if not key:
        return "it is not signed"
    if owner.recovery:
        return f"{owner.recovery} is declared already, and cannot be changed"
    if not signatures.is_key(recovery) or recovery == key:
        return f"{checks.said(recovery)} must be a public key other than the one that signs"
    return ""


def _identity_of(first: LedgerEntry) -> str:
    return str(json.loads(first.text).get("identity", ""))


# ------------------------------------------------------------------------------ the ledger


class Ledger:
    """Open ledger file: releases about the users of datasets, their total cost, and the limits.

    Create the object with :meth:`open`, which checks the whole ledger. The object is a context manager. Any
    number of processes can use the same ledger at the same time. Each object must be used by only one thread
    of one process.

    Parameters
    ----------
    path, connection, readonly, timeout
        Set only by :meth:`open`. ``timeout`` is the time in seconds to wait for the lock of another process.

    Raises
    ------
    LedgerError
        If the ledger is missing, damaged, shortened, replaced, locked for too long or not writable.
        ``LedgerError`` and ``BudgetError`` are subclasses of ``ValueError``.
    BudgetError
        If a reservation of :meth:`reserve` would exceed the limit. Nothing was recorded.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, readonly: bool, timeout: float) -> None:
        self._path, self._connection, self._readonly, self._timeout = path, connection, readonly, timeout
        self._file = _identity(path)
        self._entries: list[LedgerEntry] = []

    def __repr__(self) -> str:
        return f"<Ledger {str(self._path)!r}{', read-only' if self._readonly else ''}>"

    # -------------------------------------------------------------- opening

    @classmethod
    def open(
        cls,
        path: PathLike | None = None,
        *,
        create: bool = True,
        readonly: bool = False,
        timeout: float = _WAIT_SECONDS,
    ) -> Ledger:
        """Open a ledger and check all entries.

        Parameters
        ----------
        path : path of the file. The default is :func:`default_path`
        create : True to create a ledger with mode 0600 if neither the ledger nor its head exists
        readonly : True to write nothing. Then an outdated head is not updated and no ledger is created
        timeout : number of seconds to wait for the lock of another process

        Raises
        ------
        LedgerError
            If the ledger is missing, and its head exists or ``create`` is False. Also if the ledger is
            damaged, edited, shortened, replaced, without a head, locked for too long or not writable.
        """
        chosen = path if path is not None else default_path()
        # the real path, so that all symbolic links to a ledger use the same head
        where = Path(os.path.realpath(chosen))
        timeout = checks.real("timeout", timeout, 0.0)
        create = create and not readonly
        with _clear_errors(where, timeout):
            _check_there(where, create)
            if create:
                where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(where, os.O_CREAT | os.O_RDWR, 0o600))
            elif not readonly:
                # raises now if the file is not writable; SQLite would open it read-only and fail later
                os.close(os.open(where, os.O_RDWR))
            uri = f"{where.as_uri()}?mode={'ro' if readonly else 'rw'}"
            connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)
        ledger = cls(where, connection, readonly, timeout)
        try:
            with _clear_errors(where, timeout):
                connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
                if readonly:
                    ledger.check()
                else:
                    ledger._begin(create)
        except BaseException:
            connection.close()
            raise
        return ledger

    def _begin(self, create: bool) -> None:
        """Create the table and the first entry if they are missing. Then check all entries and update the
        head.
        """
        with self._locked():
            names = [row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")]
            if "entries" not in names:
                if names or not create or _read_head(self._path) is not None:
                    raise LedgerError(f"{self}: holds no ledger (it is empty, truncated or another file)")
                self._connection.execute(
                    "CREATE TABLE entries (number INTEGER PRIMARY KEY, text TEXT NOT NULL, hash TEXT)"
                )
                self._append("begin", "", identity=secrets.token_hex(16), library=_library())
                self._connection.execute("COMMIT")
        sync_folder(self._path.parent)
        with self._locked():
            self._reload()
            if _read_head(self._path) != self._head():
                self._write_head()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Unmarked reservations still count as spent."""
        self._connection.close()

    def __str__(self) -> str:
        return f"ledger {str(self._path)!r}"

    @property
    def path(self) -> Path:
        """Path of the SQLite file."""
        return self._path

    @property
    def head(self) -> str:
        """Hash of the last entry that this object has read."""
        return self._entries[-1].hash

    @property
    def identity(self) -> str:
        """Identity of the ledger: 32 hexadecimal digits that were drawn at random when it was created."""
        return _identity_of(self._entries[0])

    # -------------------------------------------------------------- reading

    def check(self) -> None:
        """Read and check the whole chain again, and check that it contains the head.

        Raises ``LedgerError`` if a check fails.
        """
        with _clear_errors(self._path, self._timeout):
            if self._readonly:
                self._reload(tries=2)
            else:
                with self._locked():
                    self._reload()

    def entries(self, dataset: str | None = None) -> tuple[LedgerEntry, ...]:
        """Return all entries, or the entries of one dataset, in order.

        The ledger is read and checked again, so new entries of other processes are included.
        """
        self.check()
        return tuple(entry for entry in self._entries if dataset is None or entry.dataset == dataset)

    def _of(self, dataset: str) -> list[LedgerEntry]:
        return [entry for entry in self._entries if entry.dataset == dataset]

    def contains(self, hash: str) -> bool:
        """Return True if an entry with this hash is in the chain. ``discreet verify`` calls this method."""
        return any(entry.hash == hash for entry in self.entries())

    def limit(self, dataset: str) -> tuple[float, float] | None:
        """Return the owner's limit (epsilon, delta) for this dataset, or None if no limit was set."""
        return _limit(self.entries(_name(dataset)))

    def totals(self, dataset: str, *, delta: float | None = None, upto: int | None = None) -> TotalCost:
        """Return the total cost of the reservations of a dataset.

        Raises ``ValueError`` if the name is invalid, or if ``delta`` is not in [0, 1).

        Parameters
        ----------
        dataset : name of the dataset.
        delta : delta of the returned epsilon. The default is the delta of the limit. Without a limit, it is
            the smallest positive delta of the reservations.
        upto : number of the last entry to use. Statements use it for totals before and after a release.
        """
        if delta is not None:
            delta = checks.real("delta", delta, 0.0, 1.0, open_high=True)
        entries = [entry for entry in self.entries(_name(dataset)) if upto is None or entry.number <= upto]
        return _totals(dataset, entries, delta)

    def certified(self, dataset: str, delta: float, *, upto: int | None = None) -> Certified:
        """Return the privacy filter's guarantee at ``delta`` for the reservations of a dataset.

        ``upto`` : number of the last entry to use. If there is only one reservation and ``delta`` is its
            delta, the result has the recorded epsilon. Raises ``ValueError`` if the dataset's name is
            invalid, or if ``delta`` is not in [0, 1).
        """
        delta = checks.real("delta", delta, 0.0, 1.0, open_high=True)
        made = [
            entry
            for entry in self.entries(_name(dataset))
            if entry.kind == "reserve" and (upto is None or entry.number <= upto)
        ]
        records = [record for entry in made for record in entry.records]
        if len(made) == 1 and made[0].delta == delta and made[0].epsilon is not None:
            epsilon, rule = made[0].epsilon, made[0].method
        else:
            epsilon, rule = filters.filtered(_reserved(made), delta)
        losses = [filters.pure_loss(record) for record in records]
        squares = [filters.gdp_loss(record) for record in records]
        first = made[0].records if made else ()
        gaussian = all(isinstance(one, MechanismRecord) and one.noise == "gaussian" for one in first)
        return Certified(
            reservations=len(made),
            epsilon=epsilon,
            delta=delta,
            rule=rule,
            pure=None if None in losses else math.fsum(loss for loss in losses if loss is not None),
            mu=math.sqrt(math.fsum(one for one in squares if one is not None))
            if made and gaussian and None not in squares
            else None,
            rho=filters.total_rho(records),
        )

    def export(self, to: PathLike | TextIO, format: Literal["jsonl", "csv"] = "jsonl") -> None:
        """Write all entries to a new file or to an open text stream.

        A file is written under a hidden name and then renamed. Raises ``ValueError`` if the path exists, or
        if ``format`` is not allowed.

        The format "jsonl" has one line ``{"hash": ..., "text": ...}`` for each entry. :func:`read_export`
        reads the entries from these lines and checks the chain. The format "csv" has the columns of
        :func:`table`.
        """
        checks.choice("format", format, ("jsonl", "csv"))
        text = io.StringIO()
        entries = self.entries()
        if format == "csv":
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(table(entries))
        else:
            for entry in entries:
                text.write(json.dumps({"hash": entry.hash, "text": entry.text}, ensure_ascii=False) + "\n")
        if isinstance(to, str | os.PathLike):
            target = Path(os.path.abspath(to))
            if os.path.lexists(target):
                raise ValueError(f"to = {str(to)!r}: exists already, must be a new file")
            _write_aside(target, text.getvalue())
        else:
            to.write(text.getvalue())

    # -------------------------------------------------------------- writing

    def set_limit(
        self,
        dataset: str,
        epsilon: float,
        delta: float = 0.0,
        *,
        key: PrivateKey | None = None,
        recovery: str | None = None,
    ) -> LedgerEntry:
        """Set the owner's limit for a dataset: a total of at most ``epsilon`` > 0 at ``delta`` in [0, 1).

        The limit applies to later reservations, even if spending already exceeds it. If ``key`` is given
        (:func:`discreet.ledger.signatures.read_private_key`), the limit is signed. Afterwards, only the
        holder of the key can change the limit or transfer control of it (:meth:`hand_over`). ``recovery`` is
        a public key in hexadecimal. The holder of this key can also transfer control of the limit. A recovery
        key can be declared only once, with a signed limit. Raises ``ValueError`` if the name is nearly that
        of another dataset, if the present limit is signed with another key, or if the recovery key cannot be
        declared.
        """
        dataset, epsilon = _name(dataset), check_epsilon(epsilon)
        delta = checks.real("delta", delta, 0.0, 1.0, open_high=True)
        if key is not None and not isinstance(key, PrivateKey):
            raise ValueError(f"key = {checks.said(key)}: must be a PrivateKey, as read_private_key gives it")
        with self._writing():
            self._check_name(dataset)
            owner = _owners(self._entries).get(dataset, _NOBODY)
            if owner.key and (key is None or key.public != owner.key):
                given = "none was given" if key is None else f"that of {key.public} was given"
                raise ValueError(
                    f"key: must be that of {owner.key}, with which the limit of {dataset!r} is signed; "
                    f"{given}"
                )
            more = {}
            if recovery is not None:
                wrong = _cannot_declare(owner, "" if key is None else key.public, recovery)
                if wrong:
                    raise ValueError(f"recovery = {checks.said(recovery)}: cannot be declared, {wrong}")
                more = {"recovery": recovery}
            return self._append("limit", dataset, key, epsilon=epsilon, delta=delta, **more)

    def hand_over(self, dataset: str, to: str, key: PrivateKey) -> LedgerEntry:
        """Transfer control of a dataset's limit to the holder of the public key ``to`` (in hexadecimal).

        ``key`` must be the present key of the limit or the declared recovery key, and ``to`` must differ from
        both. Raises ``ValueError`` otherwise. Reservations are not affected.
        """
        dataset = _name(dataset)
        if not isinstance(key, PrivateKey):
            raise ValueError(f"key = {checks.said(key)}: must be a PrivateKey, as read_private_key gives it")
        with self._writing():
            wrong = _cannot_hand_over(_owners(self._entries).get(dataset, _NOBODY), key.public, to)
            if wrong:
                raise ValueError(f"hand over the limit of {dataset!r}: cannot be done, {wrong}")
            return self._append("owner", dataset, key, to=to)

    def owner(self, dataset: str) -> str | None:
        """Return the public key, in hexadecimal, that must sign changes of a dataset's limit.

        The result is None if every operator can change the limit.
        """
        return _owners(self.entries(_name(dataset))).get(dataset, _NOBODY).key or None

    def recovery(self, dataset: str) -> str | None:
        """Return the public recovery key of ``dataset``, whose holder can transfer control of the limit.

        The result is None if no recovery key was declared.
        """
        return _owners(self.entries(_name(dataset))).get(dataset, _NOBODY).recovery or None

    def successors(self, dataset: str, key: str) -> tuple[str, ...]:
        """Return the public key ``key`` and all keys that received control of the limit after it signed.

        The result is an empty tuple if ``key`` signed no entry of the dataset.
        """
        entries = self.entries(_name(dataset))
        own = next((i for i, entry in enumerate(entries) if entry.key == key != ""), None)
        if own is None:
            return ()
        return tuple(dict.fromkeys([key, *(entry.to for entry in entries[own:] if entry.to)]))

    def reserve(
        self,
        dataset: str,
        records: Sequence[Record],
        *,
        delta: float = 0.0,
        users: int | None = None,
        purpose: str = "",
        limit_check: bool = True,
        once: bool = False,
        parallel: Sequence[Record] = (),
    ) -> Reservation:
        """Record budget on the disk before it is spent. Draw no noise before this call returns.

        Parameters
        ----------
        dataset : name of the population, as in the schema
        records : records of all mechanisms of this release. Reserve mechanisms together if their parameters
            are decided together.
        delta : delta of the release's own statement, in [0, 1)
        users : number of users, if it is public
        purpose : one public line for readers of the ledger, for example the command
        limit_check : False to bypass the owner's limit for this reservation. The entry records this
            permanently. The reservation is rejected if the limit is signed.
        once : if True and an unmarked reservation has the same records, delta, users and purpose, that
            reservation is returned and nothing is recorded. Use this only if ``purpose`` identifies the
            release, and if a release is marked before its noise is drawn. Then no noise was drawn for an
            unmarked reservation.
        parallel : records of mechanisms on other users of the dataset. Every user is in ``records`` or in
            ``parallel``, never in both, and the group of a user does not depend on the user's record. Totals
            contain ``records`` only, so the loss of ``records`` must be at least that of ``parallel``
            (parallel composition).

        Raises
        ------
        BudgetError
            If the total of the dataset with this reservation would exceed the owner's limit. Nothing is
            recorded.
        ValueError
            If an argument is not allowed, or if the dataset's name is nearly that of another dataset. Also if
            reservations of the dataset have another unit (a purpose that ends with :data:`ONE_ROW`).
        LedgerError
            If the ledger is invalid or cannot be written. If the entry was written before the error (for
            example because the disk became full before the head was written), the entry counts as spent.
        """
        dataset, records = _name(dataset), filters.check_records(tuple(records))
        if not records:
            raise ValueError("records is empty: must have at least one record")
        parallel = tuple(parallel)
        if parallel and not filters.covers(records, parallel):
            raise ValueError(
                "parallel: must have the noise of records, cost at most as much, and list no exchanges"
            )
        delta = checks.real("delta", delta, 0.0, 1.0, open_high=True)
        if users is not None:
            users = checks.integer("users", users, 0)
        limit_check, once = checks.flag("limit_check", limit_check), checks.flag("once", once)
        if once and not purpose:
            raise ValueError("purpose = '': must name the release if once = True")
        _line("purpose", purpose)
        # this can take seconds, so it is computed before the ledger is locked
        epsilon, method = filters.composed(records, delta)
        alone = {delta: epsilon}
        if limit_check:
            with _clear_errors(self._path, self._timeout), self._locked():
                self._catch_up()
            alone |= _alone(self._of(dataset), records, alone)
        content: dict[str, Any] = {
            "records": [record.to_dict() for record in records],
            "epsilon": epsilon if math.isfinite(epsilon) else None, "delta": delta, "method": method,
            "users": users, "purpose": purpose, "checked": limit_check,
        }  # fmt: skip
        if parallel:
            content["parallel"] = [record.to_dict() for record in parallel]
        return self._reserved(dataset, records, content, alone, once)

    def _reserved(
        self, dataset: str, records: tuple[Record, ...], content: Mapping[str, Any],
        alone: Mapping[float, float], once: bool,
    ) -> Reservation:  # fmt: skip
        """Append the entry of a reservation, or find the earlier reservation if ``once`` is True.

        ``alone`` : mapping of delta to the epsilon of these records without any other reservation.
        """
        with self._writing():
            self._check_name(dataset)
            self._check_unit(dataset, content["purpose"])
            if once and (known := self._unmarked(dataset, content)) is not None:
                return Reservation(dataset, known.number, known.hash)
            owner = _owners(self._entries).get(dataset, _NOBODY)
            if owner.key and not content["checked"]:
                raise ValueError(
                    f"limit_check = False: must be True, because the limit of {dataset!r} is signed with the "
                    f"key {owner.key}"
                )
            if content["checked"]:
                _check_limit(dataset, self._of(dataset), records, alone)
            entry = self._append("reserve", dataset, **content)
        return Reservation(dataset, entry.number, entry.hash)

    def _unmarked(self, dataset: str, content: Mapping[str, Any]) -> LedgerEntry | None:
        """Return the last unmarked reservation of the dataset with the same content, or None."""
        marked = {entry.reservation for entry in self._entries}
        for entry in reversed(self._entries):
            if entry.kind != "reserve" or entry.dataset != dataset or entry.number in marked:
                continue
            held = json.loads(entry.text)
            same = all(held.get(name) == value for name, value in content.items())
            if same and ("parallel" in held) == ("parallel" in content):
                return entry
        return None

    def mark(self, reservation: Reservation, files: Mapping[str, str]) -> LedgerEntry:
        """Record that the files of a reservation were published.

        ``files`` maps the name of each file to its SHA-256 hash (64 hexadecimal digits). Raises
        ``ValueError`` if the reservation is not in this ledger, or is already marked.
        """
        for name, digest in files.items():
            _line("files", name)
            if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
                raise ValueError(f"files[{name!r}] = {checks.said(digest)}: must be a SHA-256 in hexadecimal")
        with self._writing():
            number = checks.integer("reservation", reservation.number, 1)
            known = self._entries[number - 1] if number <= len(self._entries) else None
            if known is None or known.kind != "reserve" or known.hash != reservation.hash:
                raise ValueError(f"reservation = {reservation!r}: is not in this ledger")
            if any(entry.reservation == number for entry in self._entries):
                raise ValueError(f"reservation = {reservation!r}: is marked already")
            return self._append("mark", known.dataset, reservation=number, files=dict(files))

    # -------------------------------------------------------------- one transaction

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file exclusively. At exit, changes that were not committed are rolled back."""
        if self._readonly:
            raise LedgerError(f"{self}: was opened for reading only")
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if _identity(self._path) != self._file:
                raise LedgerError(f"{self}: was moved or replaced while it was open")
            yield
        finally:
            if self._connection.in_transaction:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Lock the file, read new entries and check the head. At exit, commit the caller's entries.

        The head is then written under a second lock, from the last entry at that time. Therefore the number
        in the head never decreases.
        """
        with _clear_errors(self._path, self._timeout):
            before = len(self._entries)
            try:
                with self._locked():
                    self._catch_up()
                    yield
                    self._connection.execute("COMMIT")
            except BaseException:
                del self._entries[before:]  # it is unknown whether these entries were committed
                raise
            with self._locked():
                self._catch_up()
                self._write_head()

    def _check_name(self, dataset: str) -> None:
        """Raise ``ValueError`` if a new name is nearly the name of a dataset in the ledger."""
        held = {entry.dataset for entry in self._entries if entry.dataset}
        alike = sorted(name for name in held if _key(name) == _key(dataset))
        if dataset not in held and alike:
            raise ValueError(
                f"dataset = {dataset!r}: differs from {alike[0]!r}, which this ledger holds, only by case, "
                "spaces or Unicode form; must be that name, or one that differs clearly (two names never "
                "compose, so the total would start at zero)"
            )

    def _check_unit(self, dataset: str, purpose: str) -> None:
        """Raise ``ValueError`` if the total would add the losses of rows to the losses of users."""
        rows = purpose.endswith(ONE_ROW)
        if any(one.purpose.endswith(ONE_ROW) != rows for one in self._of(dataset) if one.kind == "reserve"):
            held, unit = ("users", "one row") if rows else ("single rows", "one user")
            raise ValueError(
                f"dataset = {dataset!r}: must be the name of another population for a release whose unit is "
                f"{unit}, because this ledger has releases of {held} under this name, and losses of "
                "different units do not add up"
            )

    def _append(self, kind: Kind, dataset: str, key: PrivateKey | None = None, **values: Any) -> LedgerEntry:
        number, previous = len(self._entries) + 1, self._entries[-1].hash if self._entries else ""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        content: dict[str, Any] = {"version": VERSION, "number": number, "previous": previous}
        content |= {"time": now, "kind": kind, "dataset": dataset, **values}
        if key is not None:
            content["key"] = key.public
            content["signature"] = key.sign(_SIGNED[kind], _signed_part(content, self.identity))
        text = _canonical(content)
        entry = _parse(str(self), number, text, _digest(text), previous)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (number, text, entry.hash))
        self._entries.append(entry)
        return entry

    def _catch_up(self) -> None:
        """Read entries that other processes have added, and check that the chain contains the head."""
        last = len(self._entries)
        query = "SELECT number, text, hash FROM entries WHERE number >= ? ORDER BY number"
        rows = self._connection.execute(query, (last,)).fetchall()
        if last and (not rows or (rows[0][0], rows[0][2]) != (last, self._entries[-1].hash)):
            raise LedgerError(f"{self}: entry {last} was removed or changed while the ledger was open")
        self._entries = _parse_chain(str(self), rows[1:] if last else rows, self._entries)
        self._check_head(_read_head(self._path))

    def _reload(self, tries: int = 1) -> None:
        """Read and check all entries again.

        The head is read before the entries, because the chain can grow between the two reads if the file is
        not locked. ``tries`` : number of attempts if the head is missing.
        """
        for left in reversed(range(tries)):
            head = _read_head(self._path)
            rows = self._connection.execute(
                "SELECT number, text, hash FROM entries ORDER BY number"
            ).fetchall()
            self._entries = _parse_chain(str(self), rows)
            if head is None and left and len(rows) != 1:
                continue  # another process may have written the head after the attempt to read it
            return self._check_head(head)

    def _check_head(self, head: tuple[int, str] | None) -> None:
        number = len(self._entries)
        if number == 0:
            raise LedgerError(f"{self}: holds no entries, not even the first one")
        if head is None and number > 1:
            raise LedgerError(
                f"{self}: its head, {str(_head_path(self._path))!r}, is missing, so removed entries at the "
                "end could not be detected. Put it back. If it is lost: compare the last entry with the "
                "latest privacy statement; if the ledger is complete, write the line "
                f"'{number} {self._entries[-1].hash}' into that file"
            )
        if head is not None and (head[0] > number or self._entries[head[0] - 1].hash != head[1]):
            raise LedgerError(
                f"{self}: entry {head[0]}, which its head {str(_head_path(self._path))!r} names, is not in "
                "it: the ledger was shortened, edited or replaced. Put the right one back"
            )

    def _head(self) -> tuple[int, str]:
        return len(self._entries), self._entries[-1].hash

    def _write_head(self) -> None:
        number, digest = self._head()
        _write_aside(_head_path(self._path), f"{number} {digest}\n")


# ------------------------------------------------------------------------------ files


def _head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def _read_head(path: Path) -> tuple[int, str] | None:
    """Return the (number, hash) in the head of the ledger ``path``, or None if the head does not exist."""
    head = _head_path(path)
    try:
        with open(head, encoding="utf-8") as file:
            number, digest = file.read(1000).split()
            return checks.integer("number", int(number), 1), digest
    except FileNotFoundError:
        return None
    except ValueError:
        raise LedgerError(
            f"head {str(head)!r}: must be one line, the number and the hash of an entry"
        ) from None


def _write_aside(target: Path, text: str) -> None:
    """Write a temporary file (mode 0600, synced to disk) and rename it to ``target``.

    Only one writer may call this function at the same time.
    """
    aside = target.with_name(f".{target.name}.part")
    with open(aside, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, target)
    sync_folder(target.parent)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if it does not exist.

    If the result changes, the path names another file than before.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _check_there(path: Path, create: bool) -> None:
    if path.is_dir():
        raise LedgerError(f"ledger {str(path)!r}: is a folder, must be a file")
    # the head is read first, because a new ledger is created before its head
    if _read_head(path) is not None and not path.exists():
        raise LedgerError(
            f"ledger {str(path)!r}: is missing, but its head {str(_head_path(path))!r} is there: put it back"
        )
    if not path.exists() and not create:
        raise LedgerError(f"ledger {str(path)!r}: does not exist")


@contextmanager
def _clear_errors(path: Path, timeout: float) -> Iterator[None]:
    """Convert errors of SQLite and of the file system inside the context to ``LedgerError``."""
    try:
        yield
    except sqlite3.Error as error:
        said = str(error)
        if "locked" in said:
            said = f"another process has held it for more than {timeout:g} seconds ({said})"
        elif "readonly" in said:
            said = f"cannot be written ({said})"
        elif "no such table" in said:
            said = "holds no ledger (it is empty, truncated or another file)"
        raise LedgerError(f"ledger {str(path)!r}: {said}") from error
    except OSError as error:
        raise LedgerError(f"ledger {str(path)!r}: cannot be used ({error})") from error


def _library() -> str:
    from discreet.names import __version__

    return f"discreet {__version__}"


def read_export(lines: Iterator[str] | TextIO) -> tuple[LedgerEntry, ...]:
    """Read the entries of an export in the format "jsonl", and check the chain.

    Raises ``LedgerError`` if a line or the chain is invalid.
    """
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            rows.append((number, row["text"], row["hash"]))
        except (ValueError, KeyError, TypeError):
            raise LedgerError(f"export: line {number} is not a line of an exported ledger") from None
    return tuple(_parse_chain("export", rows))


# ------------------------------------------------------------------------------ what it adds to


def _name(dataset: Any) -> str:
    _line("dataset", dataset)
    if not dataset.strip():
        raise ValueError(f"dataset = {dataset!r}: must name the population")
    if dataset != unicodedata.normalize(
        "NFC", dataset.strip()
    ):  # two such names could look the same, but their entries would not be composed
        raise ValueError(
            f"dataset = {dataset!r}: must have no space at its ends, and be in Unicode's normal form C"
        )
    return str(dataset)


def _key(dataset: str) -> str:
    """Return a normalized form of a name.

    Names that differ only by case, spaces or Unicode form have equal normalized forms.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", dataset).casefold())
    return "".join(folded.split())


def _line(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{name} = {checks.said(value)}: must be text on one line")


def _limit(entries: Sequence[LedgerEntry]) -> tuple[float, float] | None:
    for entry in reversed(entries):
        if entry.kind == "limit" and entry.epsilon is not None and entry.delta is not None:
            return entry.epsilon, entry.delta
    return None


def _reserved(entries: Sequence[LedgerEntry]) -> list[tuple[Record, ...]]:
    return [entry.records for entry in entries if entry.kind == "reserve"]


def _alone(
    entries: Sequence[LedgerEntry], records: tuple[Record, ...], known: Mapping[float, float]
) -> dict[float, float]:
    """Compute the epsilon of a first reservation at the delta of the limit if the closed forms reject it.

    The result is {delta: epsilon}. The result is {} if this computation is not necessary or if its result is
    already in ``known``. The numerical epsilon can be smaller than the epsilon of the closed forms.
    """
    limit = _limit(entries)
    if limit is None or limit[1] in known or _reserved(entries):
        return {}
    if filters.closed(records, limit[1])[0] <= limit[0]:
        return {}
    return {limit[1]: filters.composed(records, limit[1])[0]}


def _check_limit(
    dataset: str, entries: Sequence[LedgerEntry], records: tuple[Record, ...], alone: Mapping[float, float]
) -> None:
    limit = _limit(entries)
    if limit is None:
        return
    most = limit[0] * (1 + _ROUNDING)
    spent, delta = _reserved(entries), limit[1]
    together, rule = filters.filtered([*spent, records], delta, numerical=False)
    # the epsilon is in `alone`, and is computed under the lock only if the limit has changed
    if together > most and not spent:
        together = {**alone, **_alone(entries, records, alone)}.get(delta, together)
    if together > most:
        before = filters.filtered(spent, delta, numerical=False)[0]
        asked = filters.closed(records, delta)[0] if spent else together
        raise BudgetError(dataset, before, asked, together, rule, limit)


def _totals(dataset: str, entries: Sequence[LedgerEntry], delta: float | None) -> TotalCost:
    reserved, limit = _reserved(entries), _limit(entries)
    records = [record for group in reserved for record in group]
    if delta is None:
        own = [entry.delta for entry in entries if entry.kind == "reserve" and entry.delta]
        delta = limit[1] if limit is not None else min(own, default=0.0)
    made = [entry for entry in entries if entry.kind == "reserve"]
    if len(made) == 1 and made[0].delta == delta and made[0].epsilon is not None:
        epsilon, method = made[0].epsilon, made[0].method  # these were computed when budget was reserved
    else:
        epsilon, method = filters.composed(records, delta)
    pure = [filters.pure_loss(record) for record in records]
    gaussian = all(isinstance(record, MechanismRecord) and record.noise == "gaussian" for record in records)
    found: float | None = None
    rule: str | None = None
    if limit is not None and len(made) == 1 and delta == limit[1]:
        found, rule = epsilon, method
    elif limit is not None:
        found, rule = filters.filtered(reserved, limit[1])
    return TotalCost(
        dataset=dataset,
        reservations=len(reserved),
        unmarked=len(reserved) - sum(entry.kind == "mark" for entry in entries),
        epsilon=epsilon,
        delta=delta,
        method=method,
        pure=None if None in pure else sum(loss for loss in pure if loss is not None),
        mu=sum(filters.gdp_loss(one) or 0.0 for one in records) ** 0.5 if gaussian and records else None,
        rho=filters.total_rho(records),
        limit=limit,
        filtered=found,
        rule=rule,
        limit_key=_owners(entries).get(dataset, _NOBODY).key or None,
    )


@contextmanager
def spent(ledger: Ledger | None, reservation: Reservation | None) -> Iterator[None]:
    """Add a note to every exception inside the context.

    The note says that the reservation counts as spent.
    """
    try:
        yield
    except BaseException as error:
        if ledger is not None and reservation is not None:
            error.add_note(f"Entry {reservation.number} of the ledger {ledger.path} counts as spent.")
        raise


def _mechanisms(entry: LedgerEntry) -> str:
    """Return the names of an entry's mechanisms. Mechanisms on other users follow the text "other users:"."""
    own, others = ("; ".join(one.mechanism for one in some) for some in (entry.records, entry.parallel))
    return f"{own} | other users: {others}" if others else own


def table(entries: Sequence[LedgerEntry]) -> list[tuple[str, ...]]:
    """Return one row of strings per entry, with the columns :data:`COLUMNS`.

    A string is empty if the column does not apply to the entry. The epsilon of a reservation is the epsilon
    of this reservation alone, at its own delta. The state of a reservation is ``published`` or ``SPENT, NOT
    PUBLISHED``.
    """
    marked = {entry.reservation for entry in entries if entry.kind == "mark"}
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        epsilon = rho = state = ""
        if entry.kind == "reserve":
            epsilon = "none" if entry.epsilon is None else up(entry.epsilon, 6)
            squared = filters.total_rho(entry.records)
            rho = "" if squared is None else up(squared, 6)
            state = "published" if entry.number in marked else "SPENT, NOT PUBLISHED"
            state += "" if entry.checked else "; LIMIT SET ASIDE"
        elif entry.kind == "limit":
            epsilon = f"{entry.epsilon:.6g}"
            state = f"signed: {signatures.short(entry.key)}" if entry.key else ""
            state += f", recovery: {signatures.short(entry.recovery)}" if entry.recovery else ""
        elif entry.kind == "owner":
            state = f"to {signatures.short(entry.to)}, signed: {signatures.short(entry.key)}"
        elif entry.kind == "mark":
            state = f"of {entry.reservation}: {', '.join(sorted(entry.files))}"
        rows.append(
            (
                str(entry.number), entry.time, entry.dataset, entry.kind, epsilon,
                "" if entry.delta is None else f"{entry.delta:g}", rho,
                "" if entry.users is None else str(entry.users),
                _mechanisms(entry), entry.purpose, state,
                entry.hash[:16],
            )
        )  # fmt: skip
    return rows
