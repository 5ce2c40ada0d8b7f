"""Database of a study. Accepted input is on the disk before the client receives the answer.

The database is SQLite (write-ahead log, ``synchronous = FULL``) or PostgreSQL. It has these tables:

==============  ========================================================================================
``study``       one row: the study's identity, its turn (number of the current release), whether it is over.
``state``       one row: the session's exact state. These are raw data, as private as the trajectories.
``lease``       one row: the process that can make releases, the end of its lease, an increasing token.

``plans``       number, turn, users, and how many of these users took a place, answered, or are absent.

``releases``    number, the exact release, the served JSON and its SHA-256. A row never changes.
``tickets``     SHA-256 of each ticket (unique), and the ticket's status.

``messages``    ticket (unique) and message of users in the open batch. Rows are removed when counted.
``sums``        under shuffle trust: for each turn, the sum that the shuffler signed.

``relayed``     one row, only at a shuffler: the service's signed publication.
``persons``     code of each pseudonym, and how often and in which batch the person took part.
``person_key``  one row: the random key of these codes (:mod:`discreet.service.returning_users`).

``tokens``      SHA-256 of the operators' tokens.
``keys``        one row: the public key of the service's signatures, which users' devices know.

``key_rows``    all keys of the service, each signed by the one before (:mod:`discreet.service.key_history`).

``serving``     one row: the rule that closes batches, "all", "resolved" or "clock".
``resolved``    without the rule "all": for each batch and plan, how many users answered or are absent.

``links``       for each release, its link of the chain (:mod:`discreet.service.release_chain`).
``beats``       numbers and nonces of the last beats of the process that can make releases.

``acts``        acts of the operator: pause, resume, extend (:mod:`discreet.service.operator_acts`).

``program``     versions that served the study; the first row has the mechanism and the guarantee.
``schema``      one row: the version of these tables (:mod:`discreet.service.schema_migrations`).
==============  ========================================================================================

**Withdrawal.** Users can withdraw with their ticket until their batch is complete
(:meth:`Requests.withdraw`). Their reservation or message becomes an absence in the batch in which it counts,
and the message is removed.
The number of resolved reservations of a batch does not change. So a release is drawn from the same table as
if the user had been absent, and its distribution does not depend on the reason. The rows do not distinguish a
withdrawal from an absence, except that a withdrawn message keeps its nonce: another ticket cannot send a copy
of it.

**One answer per ticket.** A ticket is a one-time code with which one user takes part. The user first uses it
to reserve a place in a plan. Then the user answers in time, or the ticket is marked as absent. These changes
are never undone. The row of the ticket, the message and the counts of the plan change in one transaction.
Therefore a message counts once or not at all, even if the process is killed. If the same message (with the
same nonce) is sent again, it gets the same answer.

**Batches.** Batch t closes between release t and release t + 1. With the rule "all", batch t consists of the
places of the plans of release t. With the rule "resolved", each reservation joins the open batch when its
user answers or is marked absent (:class:`~discreet.service.resolved_batches.ResolvedRequests`). The
transaction that resolves the reservation also counts it in its batch. With the rule "clock", batches close at
fixed times (:mod:`discreet.service.clock_batches`).

**One release per turn.** :meth:`Store.drew` stores the next release and, in the same transaction, replaces
the session's state by the state after this release. The transaction fails unless three conditions hold: the
turn is the one for which the release was made, the turn has no release yet, and the writer holds the lease.
If a writer's transaction fails, or the writer dies before it, no one has seen its draw. The draw is not
stored, and the next writer begins from the earlier state. Therefore all published noise was drawn once, and
at most one of two writers publishes. The transaction guarantees this without the lease. The lease only
prevents a second process from computing the same release. The plans that follow from the stored release open
in a second transaction (:meth:`Store.turned`).

**Two databases under shuffle trust.** A shuffler keeps tickets, plans and messages in its own database, but
no releases. The service keeps releases and sums, but no tickets and no messages. The messages of a batch are
removed in the transaction that stores their sum. Each of the two databases has one sum per turn.

**Removed data are erased.** ``secure_delete`` overwrites removed data in the database. The write-ahead log is
truncated to zero bytes after the messages of a batch have been removed (:meth:`Store.sweep`), and when the
store is closed (:meth:`Store.close`).

**Locks** are always taken in the same order: lease, study, plans, persons. Tickets and messages follow.
Therefore no two transactions can deadlock.

**Order.** Messages enter the session in the order of their ticket numbers and not in the order of arrival.
Therefore sums and noise do not depend on arrival times. The arrival times are not stored.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from discreet.core import checks
from discreet.service.operator_acts import ActKind, Standing, standing_of
from discreet.service.release_chain import BEATS, NO_LINK, ChainMark, link_of
from discreet.service.returning_users import Participation, Returning, code_of, pseudonym_of
from discreet.service.system_io import SYSTEM, Io

__all__ = [
    "SCHEMA",
    "TABLES",
    "BatchRule",
    "OpenBatch",
    "TicketMessage",
    "Drawn",
    "Requests",
    "ReservationRequest",
    "RequestResult",
    "RowUpdate",
    "WithdrawalRequest",
    "StaleWriter",
    "Store",
    "hashed",
    "new_ticket",
    "resolved_table",
]

SCHEMA = 3  # version of the tables
_SYNCHRONOUS = "FULL"  # SQLite's setting under which a commit is on the disk when it returns.
_MANY = 500  # Largest number of values in one SQL statement.
# An expiry more than this many lease durations in the future is invalid. (The factor is above 1, because a
# process can wait for the database's lock after it has read the clock.)
_AHEAD = 2
# Largest number of messages that one transaction removes; it is small, so that each lock is short.
_SWEPT = 500
_DUE_SHOWN = 10  # number of reservations that the operator's page shows
_PATIENCE_MS = 60_000  # Number of milliseconds that a connection waits for SQLite's locks.

UNSPENT, PLACED, ANSWERED, ABSENT = range(4)  # status of a ticket

_meta = sql.MetaData()
_study = sql.Table(
    "study",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("identity", sql.String(64), nullable=False),
    sql.Column("turn", sql.Integer, nullable=False),
    sql.Column("over", sql.Boolean, nullable=False),
    sql.Column("ties", sql.LargeBinary, nullable=False),
    sql.Column("form", sql.LargeBinary, nullable=False),
    sql.Column("ledger", sql.Text, nullable=False),
)
_state = sql.Table(
    "state",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("session", sql.LargeBinary, nullable=False),
)
_lease = sql.Table(
    "lease",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("holder", sql.String(64), nullable=False),
    sql.Column("token", sql.BigInteger, nullable=False),
    sql.Column("expires", sql.Float, nullable=False),
)
_plans = sql.Table(
    "plans",
    _meta,
    sql.Column("number", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("turn", sql.Integer, nullable=False, index=True),
    sql.Column("users", sql.BigInteger, nullable=False),
    sql.Column("policy", sql.Text, nullable=False),
    sql.Column("placed", sql.BigInteger, nullable=False),  # number of places that are taken
    sql.Column("came", sql.BigInteger, nullable=False),
    sql.Column("absent", sql.BigInteger, nullable=False),
    sql.Column("opened", sql.Float, nullable=False),
)
_releases = sql.Table(
    "releases",
    _meta,
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("exact", sql.LargeBinary, nullable=False),
    sql.Column("body", sql.LargeBinary, nullable=False),
    sql.Column("sha256", sql.String(64), nullable=False),
)
_tickets = sql.Table(
    "tickets",
    _meta,
    sql.Column("id", sql.BigInteger().with_variant(sql.Integer, "sqlite"), primary_key=True),
    sql.Column("hash", sql.LargeBinary(32), nullable=False, unique=True),
    sql.Column("state", sql.SmallInteger, nullable=False),
    sql.Column("plan", sql.BigInteger),
    sql.Column("due", sql.Float),
    sql.Column("nonce", sql.LargeBinary(16)),
    sql.Column("person", sql.BigInteger),  # null for a ticket without a pseudonym
)
_messages = sql.Table(
    "messages",
    _meta,
    sql.Column("ticket", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("plan", sql.BigInteger, nullable=False, index=True),
    sql.Column("nonce", sql.LargeBinary(16), nullable=False, unique=True),
    sql.Column("body", sql.LargeBinary, nullable=False),
    sql.Column("batch", sql.Integer),  # batch in which the message counts; null with the rule "all"
)
resolved_table = sql.Table(
    "resolved",
    _meta,
    sql.Column("batch", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("plan", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("came", sql.BigInteger, nullable=False),
    sql.Column("absent", sql.BigInteger, nullable=False),
)
_persons = sql.Table(
    "persons",
    _meta,
    sql.Column("id", sql.BigInteger().with_variant(sql.Integer, "sqlite"), primary_key=True),
    sql.Column("code", sql.LargeBinary(32), nullable=False, unique=True),
    sql.Column("taken", sql.Integer, nullable=False),
    sql.Column("last_batch", sql.Integer),
)
_person_key = sql.Table(
    "person_key",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("key", sql.LargeBinary(32), nullable=False),
)
_key_rows = sql.Table(
    "key_rows",
    _meta,
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("body", sql.Text, nullable=False),
)
_serving = sql.Table(
    "serving",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("close", sql.String(16), nullable=False),
)
_sums = sql.Table(
    "sums",
    _meta,
    sql.Column("turn", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("body", sql.LargeBinary, nullable=False),
    sql.Column("sent", sql.Boolean, nullable=False),
)
_relayed = sql.Table(
    "relayed", _meta, sql.Column("id", sql.Integer, primary_key=True), sql.Column("body", sql.LargeBinary)
)
_tokens = sql.Table(
    "tokens", _meta, sql.Column("hash", sql.LargeBinary(32), primary_key=True, nullable=False)
)
_keys = sql.Table(
    "keys",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("public", sql.String(64), nullable=False),
)
_links = sql.Table(
    "links",
    _meta,
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("link", sql.String(64), nullable=False),
)
_beats = sql.Table(
    "beats",
    _meta,
    sql.Column("number", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("nonce", sql.String(16), nullable=False),
)
_acts = sql.Table(  # Store.add_tables adds it to a database that has the other tables
    "acts",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("kind", sql.String(16), nullable=False),
    sql.Column("seconds", sql.Float),  # answer_within, of "extend"
    sql.Column("at_turn", sql.Integer, nullable=False),
)
_program = sql.Table(
    "program",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("at_turn", sql.Integer, nullable=False),
    sql.Column("version", sql.String(64), nullable=False),
    sql.Column("schema", sql.Integer, nullable=False),
    sql.Column("learner", sql.String(100), nullable=False),
    sql.Column("learner_version", sql.Integer, nullable=False),
    sql.Column("accepted", sql.Boolean, nullable=False),  # the operator accepted its learner
    sql.Column("mechanism_json", sql.Text),
    sql.Column("guarantee_json", sql.Text),
    sql.Column("python", sql.String(32), nullable=False),
    sql.Column("numpy", sql.String(32), nullable=False),
    sql.Column("numba", sql.String(32), nullable=False),
)
_schema = sql.Table(
    "schema",
    _meta,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("number", sql.Integer, nullable=False),
)
sql.Index(
    "answered_nonces",
    _tickets.c.nonce,
    sqlite_where=_tickets.c.nonce.isnot(None),
    postgresql_where=_tickets.c.nonce.isnot(None),
)
PERSON_INDEX = sql.Index(
    "person_tickets",
    _tickets.c.person,
    sqlite_where=_tickets.c.person.isnot(None),
    postgresql_where=_tickets.c.person.isnot(None),
)
sql.Index(
    "due_tickets",
    _tickets.c.due,
    sqlite_where=_tickets.c.due.isnot(None),
    postgresql_where=_tickets.c.due.isnot(None),
)

TABLES = _meta.tables
_COUNTS = [column for column in _plans.c if column.name != "policy"]


class RowUpdate:
    """Statement that sets columns of single rows.

    It is built once, because building a statement takes longer than executing it.

    Parameters
    ----------
    table : table of the rows.
    key : names of the columns that identify a row.
    values : names of the columns that are set.
    """

    def __init__(self, table: sql.Table, key: Sequence[str], values: Sequence[str]) -> None:
        self._key, self._values = key, values
        own = [table.c[name] == sql.bindparam(f"own_{name}") for name in key]
        self._statement = table.update().where(*own).values({n: sql.bindparam(f"new_{n}") for n in values})

    def write(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Set the columns of these rows."""
        given = [
            {f"own_{n}": row[n] for n in self._key} | {f"new_{n}": row[n] for n in self._values}
            for row in rows
        ]
        if given:
            connection.execute(self._statement, given)


# Statements of each transaction with requests; they are built once, as in RowUpdate.
_TICKETS_OF = sql.select(_tickets).where(_tickets.c.hash.in_(sql.bindparam("hashes", expanding=True)))
_KNOWN_NONCES = sql.union_all(  # an open plan can have removed messages, so tickets are asked as well
    *(
        sql.select(table.c.nonce).where(table.c.nonce.in_(sql.bindparam("nonces", expanding=True)))
        for table in (_messages, _tickets)
    )
)
_TURN = sql.select(_study.c.turn).scalar_subquery()
_STUDY_NOW = sql.select(_study.c.turn, _study.c.over)
_TURN_PLANS = sql.select(*_COUNTS).where(_plans.c.turn == _TURN).order_by(_plans.c.number)
_OPEN_PLANS = (
    sql.select(*_COUNTS)
    .where((_plans.c.turn == _TURN) | (_plans.c.placed > _plans.c.came + _plans.c.absent))
    .order_by(_plans.c.number)
)
_ACTS = sql.select(_acts.c.kind, _acts.c.seconds).order_by(_acts.c.id)
_RESOLVED_SINCE = sql.select(resolved_table).where(resolved_table.c.batch >= sql.bindparam("turn"))
_LOCKED = {one: one.with_for_update() for one in (_STUDY_NOW, _TURN_PLANS, _OPEN_PLANS)}
_TICKET_UPDATE = RowUpdate(_tickets, ("id",), ("state", "plan", "due", "nonce"))
_PLAN_UPDATE = RowUpdate(_plans, ("number",), ("placed", "came", "absent"))
_PERSON_UPDATE = RowUpdate(_persons, ("id",), ("taken", "last_batch"))
Status = Literal[
    "placed", "counted", "full", "paused", "late", "spent", "foreign", "replayed", "placeless", "over",
    "withdrawn", "again",
]  # fmt: skip


class StaleWriter(RuntimeError):
    """Error that is raised if another process now makes the releases, or has already made this release.

    The failed transaction stored nothing.
    """


@dataclass(frozen=True)
class ReservationRequest:
    """Request for a place in an open plan.

    - ticket : hash of the ticket.
    """

    ticket: bytes


@dataclass(frozen=True)
class WithdrawalRequest:
    """Request to remove a user's reservation or message.

    - ticket : hash of the ticket.
    """

    ticket: bytes


@dataclass(frozen=True)
class TicketMessage:
    """Checked message of a user, for the session.

    Parameters
    ----------
    ticket : hash of the ticket.
    plan : number of the plan that the message answers.
    nonce : random bytes that identify a message if it is sent again.
    body : bytes that the database stores.
    """

    ticket: bytes
    plan: int
    nonce: bytes
    body: bytes


@dataclass(frozen=True)
class RequestResult:
    """Result of a request. It is stored on the disk.

    For a place, ``plan`` is the number of the plan, and ``seconds`` is the time in seconds for which the
    place is reserved.

    For the result ``full``, ``seconds`` is the time in seconds until the first user without an answer counts
    as absent.

    For the result ``again``, ``release`` is the number of the release from which the user can ask again; None
    if it is not known, or if the user took part as often as allowed.
    """

    status: Status
    plan: int = 0
    seconds: float = 0.0
    release: int | None = None


@dataclass(frozen=True)
class Drawn:
    """One draw of noise: a release, and the state of the session after the release."""

    number: int
    exact: bytes
    body: bytes
    sha256: str
    session: bytes  # exact state of the session after the release


@dataclass(frozen=True)
class OpenBatch:
    """Numbers about the open batch.

    Parameters
    ----------
    age : seconds since the newest plans were opened.
    resolved, size : users of the batch who answered or are absent, and planned users.
    in_flight : users who took a place and have not answered.
    due : the next reservations that end, as pairs (row number of the ticket, time).
    """

    age: float
    resolved: int
    size: int
    in_flight: int
    due: tuple[tuple[int, float], ...]


AnyRequest = ReservationRequest | TicketMessage | WithdrawalRequest
Plans = Sequence[tuple[int, int, str]]  # for each plan: its number, its number of users, its policy as JSON


def hashed(secret: str) -> bytes:
    """Return the SHA-256 of a ticket or token.

    Tickets and tokens have 128 random bits, so a slower hash is not needed.
    """
    return hashlib.sha256(secret.encode()).digest()


def new_ticket(io: Io = SYSTEM) -> str:
    """Return a new ticket: 128 random bits, written as 22 characters."""
    return io.random_text(16)


class Store:
    """Database of a study.

    - url : database URL in the form of SQLAlchemy, or the path of a SQLite file.
    - io : source of random bytes for tickets and tokens.
    """

    def __init__(self, url: str | Path, io: Io = SYSTEM) -> None:
        self._io = io
        text = str(url)
        if "://" not in text:
            text = f"sqlite:///{text}"
        self.url = sql.make_url(text)
        backend = self.url.get_backend_name()
        if backend not in ("sqlite", "postgresql"):
            raise ValueError(f"database = {backend!r}: must be SQLite or PostgreSQL")
        self.sqlite = backend == "sqlite"
        if self.sqlite and self.url.database not in (None, "", ":memory:"):
            _own_file(Path(str(self.url.database)))
        extra: dict[str, Any] = (
            {"connect_args": {"timeout": 60.0}}
            if self.sqlite
            else {"pool_pre_ping": True, "isolation_level": "READ COMMITTED"}
        )
        self._engine: Engine = sql.create_engine(self.url, hide_parameters=True, **extra)
        self._logged = False  # True if the write-ahead log can contain removed data
        self.whole = False  # True if no open plan waited for a user after the last :meth:`admit`
        # rule "resolved" or "clock"; None: the rule "all"
        self.batches: BatchRule | None = None
        self.participation = Participation()  # limits of a person
        # with SQLite, threads of this process write one after the other
        self._lock = io.lock() if self.sqlite else None
        if self.sqlite:
            sql.event.listen(self._engine, "connect", lambda raw, _: _sqlite_connected(raw, io))
            sql.event.listen(self._engine, "begin", _sqlite_begun)
        else:
            sql.event.listen(self._engine, "connect", _postgresql_connected)

    def close(self) -> None:
        """Empty the write-ahead log, and close all connections.

        Raises ``RuntimeError`` if the log cannot be emptied because another process reads for more than a
        minute.
        """
        try:
            if not self._emptied(_PATIENCE_MS):
                raise RuntimeError(
                    "database: its write-ahead log could not be emptied, another process is reading; it may "
                    "hold messages that are counted: close the last process, or run PRAGMA wal_checkpoint"
                )
        finally:
            self._engine.dispose()

    def clocked(self, io: Io) -> Io:
        """Return the system with the clock that all processes of this database share.

        It is the clock of PostgreSQL's server. For SQLite, it is the clock of the machine.
        """
        return io if self.sqlite else io.with_clock(self._server_time)

    def _server_time(self) -> float:
        with self._reading() as connection:
            time = sql.extract("epoch", sql.func.clock_timestamp())
            return float(connection.execute(sql.select(time)).scalar_one())

    def _emptied(self, patience_ms: int) -> bool:
        """Copy SQLite's write-ahead log into the database and truncate the log.

        Returns True if the log is empty then.

        Returns False if another connection reads or writes for longer than the given time. Writers must wait
        while this method runs. The log must be emptied because ``secure_delete`` overwrites removed data only
        in the database, not in the log.
        """
        if not self._logged:
            return True
        with self._lock or _nothing(), self._engine.connect() as connection:
            # the raw connection is outside any transaction, as a checkpoint requires
            raw: Any = connection.connection.dbapi_connection
            raw.execute(f"PRAGMA busy_timeout = {patience_ms}")
            try:
                busy = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                raw.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
            self._logged = bool(busy)
        return not busy

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Open one write transaction. At its end, all changes are stored, or no change is stored."""
        with self._lock or _nothing(), self._engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            self._logged = self.sqlite
            with connection.begin():
                yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._engine.connect() as connection, connection.begin():
            yield connection

    # ------------------------------------------------------------------------- the study
    def created(self, identity: str) -> bool:
        """Return True if the database contains this study, and False if the database is empty.

        Raises ``ValueError`` if the database contains another study.
        """
        with self._engine.connect() as connection:
            if not sql.inspect(connection).has_table("study"):
                return False
        number = self.schema()
        if number != SCHEMA:
            raise ValueError(
                f"database = {self.url.render_as_string()!r}: has tables of version {number}, and this "
                f"library needs version {SCHEMA}: "
                + ("run once with --migrate" if number < SCHEMA else "use the later library that made them")
            )
        with self._reading() as connection:
            found = connection.execute(sql.select(_study.c.identity)).scalar()
        if found is None:
            return False
        if found != identity:
            raise ValueError(
                f"database = {self.url.render_as_string()!r}: serves another study, or this one as it was "
                "before its file was changed; what is fixed before users take part cannot change later"
            )
        return True

    def stored_identity(self) -> str | None:
        """Return the identity of the study in the database, or None if the database is empty."""
        with self._engine.connect() as connection:
            if not sql.inspect(connection).has_table("study"):
                return None
            return connection.execute(sql.select(_study.c.identity)).scalar()

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """Open a write transaction in which tables can change.

        Raises ``ValueError`` if a process serves the database.
        """
        with self._writing() as connection:
            lease = connection.execute(sql.select(_lease.c.expires).with_for_update()).scalar_one()
            now = self.clocked(self._io).now()  # the lease was written with this clock
            if now < lease <= now + 60.0:
                raise ValueError("database: is being served: stop every process of it, then wait 5 seconds")
            yield connection

    def link_all(self, connection: Connection) -> None:
        """Store the links of all releases, in a migration."""
        rows = connection.execute(sql.select(_releases).order_by(_releases.c.number)).mappings().all()
        for row in rows:
            self._keep_link(connection, int(row["number"]), bytes(row["body"]), bytes(row["exact"]))

    def start_program(self, connection: Connection, program: Mapping[str, Any]) -> None:
        """Store the first row of the table ``program``, in a migration."""
        turn = -1 if connection.execute(sql.select(_state.c.id)).first() is None else 0
        self._keep_program(connection, program, turn)

    def schema(self) -> int:
        """Return the version of the tables; 0 for a database without a stored version."""
        with self._engine.connect() as connection:
            if not sql.inspect(connection).has_table("schema"):
                return 0
            return int(connection.execute(sql.select(_schema.c.number)).scalar_one())

    def programs(self) -> list[dict[str, Any]]:
        """Return the versions that served the study, in order, without mechanism and guarantee."""
        columns = [one for one in _program.c if not one.name.endswith("_json")]
        with self._reading() as connection:
            rows = connection.execute(sql.select(*columns).order_by(_program.c.id)).mappings()
            return [{name: row[name] for name in row if name != "id"} for row in rows]

    def frozen(self) -> tuple[str, str]:
        """Return the mechanism and the stated guarantee with which the study began, as JSON texts."""
        query = sql.select(_program.c.mechanism_json, _program.c.guarantee_json).order_by(_program.c.id)
        with self._reading() as connection:
            row = connection.execute(query.limit(1)).one()
        return str(row[0]), str(row[1])

    def add_program(self, program: Mapping[str, Any], *, accepted: bool = False) -> None:
        """Store the versions with which the study continues.

        accepted : True if the operator accepted the learner of this version.
        """
        with self._writing() as connection:
            turn = connection.execute(sql.select(_study.c.turn)).scalar_one()
            self._keep_program(connection, program, turn, accepted=accepted)

    def _keep_program(
        self, connection: Connection, program: Mapping[str, Any], turn: int, *, accepted: bool = False
    ) -> None:
        row = {"schema": SCHEMA, "at_turn": turn, "accepted": accepted, **program}
        connection.execute(_program.insert().values(row))

    def create(
        self,
        identity: str,
        ties: bytes,
        form: bytes,
        ledger: str,
        first: Drawn,
        plans: Plans,
        now: float,
        close: str,
        program: Mapping[str, Any],
    ) -> None:
        """Store a study, its release 0 and the plans of this release in an empty database.

        close : rule that closes batches, "all", "resolved" or "clock". It never changes.
        program : row of the table ``program``, with mechanism and guarantee.

        Raises ``ValueError`` if the database is not empty.
        """

        def keep(connection: Connection) -> None:
            connection.execute(_serving.insert().values(id=1, close=close))
            self._keep_program(connection, program, first.number)
            connection.execute(_state.insert().values(id=1, session=first.session))
            self._keep_release(connection, first)
            self._open_plans(connection, first.number, plans, now)

        self._create(identity, first.number, ties, form, ledger, keep)

    def create_shuffler(self, identity: str, program: Mapping[str, Any]) -> None:
        """Store a study without releases and plans in the empty database of a shuffler.

        program : row of the table ``program``, with mechanism and guarantee.

        Raises ``ValueError`` if the database is not empty.
        """

        def keep(connection: Connection) -> None:
            connection.execute(_relayed.insert().values(id=1, body=b""))
            self._keep_program(connection, program, -1)

        self._create(identity, -1, b"", b"", "null", keep)

    def is_shuffler(self) -> bool:
        """Return True if this is the database of a shuffler, and False if it is the database of a service."""
        with self._reading() as connection:
            return connection.execute(sql.select(_state.c.id)).first() is None

    def _create(
        self,
        identity: str,
        turn: int,
        ties: bytes,
        form: bytes,
        ledger: str,
        keep: Callable[[Connection], None],
    ) -> None:
        try:
            with self._writing() as connection:
                _meta.create_all(connection)
                connection.execute(
                    _study.insert().values(
                        id=1, identity=identity, turn=turn, over=False, ties=ties, form=form, ledger=ledger
                    )
                )
                connection.execute(_lease.insert().values(id=1, holder="", token=0, expires=0.0))
                connection.execute(_schema.insert().values(id=1, number=SCHEMA))
                self.keep_person_key(connection)
                keep(connection)
        # another process created the rows or tables in the meantime
        except (sql.exc.IntegrityError, sql.exc.ProgrammingError):
            if not sql.inspect(self._engine).has_table("study"):
                raise
            raise ValueError("database: holds a study already") from None

    def close_rule(self) -> str:
        """Return the rule that closes batches.

        It is "all" in a database that an earlier version began.
        """
        with self._reading() as connection:
            return str(connection.execute(sql.select(_serving.c.close)).scalar() or "all")

    def begun(self) -> float:
        """Return the time at which the first plans were opened; 0 if there are none."""
        with self._reading() as connection:
            query = sql.select(sql.func.min(_plans.c.opened)).where(_plans.c.turn == 0)
            return float(connection.execute(query).scalar() or 0.0)

    def about(self) -> Mapping[str, Any]:
        """Return the row of the table ``study``; its columns include turn, over, ties, form and ledger."""
        with self._reading() as connection:
            return dict(connection.execute(sql.select(_study)).mappings().one())

    def public_key(self) -> str | None:
        """Return the public key of the service's signatures, as 64 hexadecimal digits.

        Returns None if the study has never been served.
        """
        with self._reading() as connection:
            found = connection.execute(sql.select(_keys.c.public)).scalar()
        return None if found is None else str(found)

    def bind_key(self, public: str) -> None:
        """Set the public key of the service's signatures.

        Raises ``ValueError`` if the study has been served with another key.
        """
        known = self.public_key()
        if known is None:
            try:
                with self._writing() as connection:
                    connection.execute(_keys.insert().values(id=1, public=public))
                return
            except sql.exc.IntegrityError:  # another process has set the key since this check began
                known = self.public_key()
        if known != public:
            raise ValueError(
                f"key = {public}: is not the one that this study was begun with, {known}; users' devices "
                "have that one, and would reject signatures of another key: put its file back"
            )

    def key_rows(self) -> list[dict[str, Any]]:
        """Return all keys of the service, in order."""
        with self._reading() as connection:
            rows = connection.execute(sql.select(_key_rows.c.body).order_by(_key_rows.c.number)).scalars()
            return [json.loads(one) for one in rows]

    def add_key_row(self, row: Mapping[str, Any]) -> None:
        """Store the next key of the service. The first key can be stored at any time.

        Every later key becomes the current key. For a later key, raises ``ValueError`` if a process serves
        the database.
        """
        number, public = int(row["content"]["number"]), row["content"]["public"]
        values = {"number": number, "body": json.dumps(row)}
        try:
            with self.migrating() if number else self._writing() as connection:
                connection.execute(_key_rows.insert().values(values))
                connection.execute(_keys.update().values(public=public))
        except sql.exc.IntegrityError:
            if number:
                raise

    def log(self, first: int) -> list[tuple[int, str]]:
        """Return the links of all published releases from number ``first``."""
        with self._reading() as connection:
            turn = sql.select(_study.c.turn).scalar_subquery()
            known = _links.c.number >= first, _links.c.number <= turn
            rows = connection.execute(sql.select(_links).where(*known).order_by(_links.c.number))
            return [(int(row.number), str(row.link)) for row in rows]

    def has_people(self) -> bool:
        """Return True if a user has taken a place, or if a release of users' data exists."""
        with self._reading() as connection:
            taken = sql.select(_plans.c.number).where((_plans.c.placed > 0) | (_plans.c.turn > 0)).limit(1)
            return connection.execute(taken).first() is not None

    def _keep_release(self, connection: Connection, new: Drawn) -> None:
        connection.execute(
            _releases.insert().values(number=new.number, exact=new.exact, body=new.body, sha256=new.sha256)
        )
        self._keep_link(connection, new.number, new.body, new.exact)

    def _keep_link(self, connection: Connection, number: int, body: bytes, exact: bytes) -> None:
        """Store the link of a release. The links of all earlier releases must be stored."""
        identity = str(connection.execute(sql.select(_study.c.identity)).scalar_one())
        query = sql.select(_links.c.link).where(_links.c.number == number - 1)
        before = connection.execute(query).scalar_one() if number else NO_LINK
        link = link_of(str(before), identity, number, body, exact)
        connection.execute(_links.insert().values(number=number, link=link))

    def _open_plans(self, connection: Connection, turn: int, plans: Plans, now: float) -> None:
        for number, users, policy in plans:
            connection.execute(
                _plans.insert().values(
                    number=number, turn=turn, users=users, policy=policy, placed=0, came=0, absent=0,
                    opened=now,
                )
            )  # fmt: skip

    # ------------------------------------------------------------------------- tickets, tokens
    def keep_person_key(self, connection: Connection) -> None:
        """Store the random key of pseudonyms, when the tables are created. It never changes."""
        connection.execute(_person_key.insert().values(id=1, key=self._io.random_bytes(32)))

    def tickets_for(self, persons: Sequence[Any]) -> list[str]:
        """Create one ticket for each pseudonym and return them. The database keeps only hashes and codes.

        Raises ``ValueError`` for a value that is not a pseudonym
        (:func:`~discreet.service.returning_users.pseudonym_of`).
        """
        names = [pseudonym_of(one) for one in persons]
        made = [new_ticket(self._io) for _ in names]
        insert = (sqlite if self.sqlite else postgresql).insert
        with self._writing() as connection:
            key = bytes(connection.execute(sql.select(_person_key.c.key)).scalar_one())
            codes = [code_of(key, one) for one in names]
            found = dict[bytes, int]()
            for part in _parts(sorted(set(codes)), _MANY):  # in one order, so that no two of them deadlock
                rows = [{"code": one, "taken": 0} for one in part]
                connection.execute(insert(_persons).on_conflict_do_nothing(), rows)
                query = sql.select(_persons.c.code, _persons.c.id).where(_persons.c.code.in_(part))
                found |= {bytes(row.code): int(row.id) for row in connection.execute(query)}
            pairs = zip(made, codes, strict=True)
            new = [{"hash": hashed(one), "state": UNSPENT, "person": found[code]} for one, code in pairs]
            connection.execute(_tickets.insert(), new)
        return made

    def new_tickets(self, count: int) -> list[str]:
        """Create ``count`` tickets and return them; the database keeps only their hashes.

        Raises ``ValueError`` if users can return, because their tickets need pseudonyms.
        """
        count = checks.integer("tickets", count, 1, 10**7)
        if self.participation.most > 1:
            raise ValueError(
                f"tickets = {count}: must be made for pseudonyms, as people.participations = "
                f"{self.participation.most}: give --persons FILE, or POST /tickets with persons"
            )
        made = [new_ticket(self._io) for _ in range(count)]
        with self._writing() as connection:
            for part in _parts(made, 10_000):
                rows = [{"hash": hashed(one), "state": UNSPENT} for one in part]
                connection.execute(_tickets.insert(), rows)
        return made

    def new_token(self) -> str:
        """Create an operator's token and return it; the database keeps only its hash."""
        token = self._io.random_text(32)
        with self._writing() as connection:
            connection.execute(_tokens.insert().values(hash=hashed(token)))
        return token

    def knows_token(self, token: str) -> bool:
        """Return True if the text is an operator's token.

        Tokens are looked up by their hash, so timing does not reveal near matches.
        """
        with self._reading() as connection:
            query = sql.select(_tokens.c.hash).where(_tokens.c.hash == hashed(token))
            return connection.execute(query).first() is not None

    def tokens(self) -> list[str]:
        """Return the names of all operators' tokens: the first 16 hexadecimal digits of their hashes."""
        with self._reading() as connection:
            return sorted(
                bytes(one).hex()[:16] for one in connection.execute(sql.select(_tokens.c.hash)).scalars()
            )

    def revoke_token(self, name: str) -> bool:
        """Remove the token with this name. Returns False if there is none."""
        with self._writing() as connection:
            known = [bytes(one) for one in connection.execute(sql.select(_tokens.c.hash)).scalars()]
            gone = [one for one in known if one.hex()[:16] == name]
            connection.execute(_tokens.delete().where(_tokens.c.hash.in_(gone)))
        return bool(gone)

    # ------------------------------------------------------------------------- people
    def admit(
        self,
        requests: Sequence[AnyRequest],
        now: float,
        stays: float,
        closes_after: float | None = None,
    ) -> list[RequestResult]:
        """Store places, answers and withdrawals in one transaction.

        They are on the disk when this method returns.

        Parameters
        ----------
        stays : seconds between a reservation and the deadline for its answer.
        closes_after : seconds for which a plan is open; None for no limit.
        """
        with self._writing() as connection:
            ends = math.inf if closes_after is None else closes_after
            batch = self._requests(connection, requests, now, stays, ends)
            results = [batch.result(one) for one in requests]
            batch.write(connection)
            if any(one.status == "full" for one in results):
                after = batch.free_again(
                    connection.execute(sql.select(sql.func.min(_tickets.c.due))).scalar()
                )
                results = [replace(one, seconds=after) if one.status == "full" else one for one in results]
        self.whole = batch.whole
        return results

    def _requests(
        self,
        connection: Connection,
        requests: Sequence[AnyRequest],
        now: float,
        stays: float = 0.0,
        ends: float = math.inf,
    ) -> Requests:
        """Read and lock the rows that the requests can change.

        Tickets and nonces are read after the lock is held, so that no other transaction changes them.
        """
        # without the rule "all", one transaction at a time, because each counts in the same batch; the
        # operator acts under the same lock
        places = any(isinstance(one, ReservationRequest) for one in requests)
        study = connection.execute(_LOCKED[_STUDY_NOW] if places or self.batches is not None else _STUDY_NOW)
        study = study.one()
        standing = self._standing(connection) if places else Standing()
        stays = standing.stays(stays)
        plans = [] if study.over else self._open(connection, lock=True)
        tickets = self._known(connection, {one.ticket for one in requests})
        nonces = self._nonces(connection, [one.nonce for one in requests if isinstance(one, TicketMessage)])
        stored = dict[int, int | None]()
        leaving = [tickets[one.ticket] for one in requests if _withdraws(one) and one.ticket in tickets]
        if leaving:
            numbers = [one["id"] for one in leaving]
            query = sql.select(_messages.c.ticket, _messages.c.batch).where(_messages.c.ticket.in_(numbers))
            stored = {int(row.ticket): row.batch for row in connection.execute(query)}
            if self.batches is not None:  # a message can count in the open batch after its plan is closed
                known = {one["number"] for one in plans}
                plans += self._plan_rows(connection, {one["plan"] for one in leaving} - known - {None})
        people = self._people(connection, requests, tickets)
        paused = standing.paused
        given = plans, tickets, nonces, bool(study.over), now, stays, ends, stored, people, paused
        if self.batches is None:
            return Requests(*given)
        rows = connection.execute(_RESOLVED_SINCE, {"turn": study.turn}).mappings()
        return self.batches.requests(int(study.turn), [dict(row) for row in rows], *given)

    def _people(
        self,
        connection: Connection,
        requests: Sequence[AnyRequest],
        tickets: Mapping[bytes, Mapping[str, Any]],
    ) -> Returning:
        """Read the persons of tickets, and their open reservations."""
        own = {tickets[one.ticket]["person"] for one in requests if one.ticket in tickets} - {None}
        rows, reserved = dict[int, dict[str, Any]](), {person: set[int]() for person in own}
        for part in _parts(sorted(own), _MANY):
            query = sql.select(_persons).where(_persons.c.id.in_(part))
            if not self.sqlite:
                query = query.with_for_update()
            rows |= {int(row["id"]): dict(row) for row in connection.execute(query).mappings()}
            query = sql.select(_tickets.c.person, _tickets.c.id).where(
                _tickets.c.person.in_(part), _tickets.c.state == PLACED
            )
            for row in connection.execute(query):
                reserved[row.person].add(int(row.id))
        return Returning(self.participation, rows, reserved)

    def _open(self, connection: Connection, *, lock: bool = False) -> list[dict[str, Any]]:
        """Return the open plans: the plans of the current turn, and earlier plans that hold reservations."""
        query = _TURN_PLANS if self.batches is None else _OPEN_PLANS
        rows = connection.execute(_LOCKED[query] if lock else query).mappings()
        return [dict(row) for row in rows]

    def _plan_rows(self, connection: Connection, numbers: set[int]) -> list[dict[str, Any]]:
        """Return rows of plans in the form of :meth:`_open`, and lock them."""
        query = sql.select(*_COUNTS).where(_plans.c.number.in_(numbers)).with_for_update()
        return [dict(row) for row in connection.execute(query).mappings()] if numbers else []

    def _known(self, connection: Connection, hashes: set[bytes]) -> dict[bytes, dict[str, Any]]:
        found: dict[bytes, dict[str, Any]] = {}
        for part in _parts(sorted(hashes), _MANY):
            rows = connection.execute(_TICKETS_OF, {"hashes": part}).mappings()
            found |= {bytes(row["hash"]): dict(row) for row in rows}
        return found

    def _nonces(self, connection: Connection, nonces: Sequence[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        for part in _parts(nonces, _MANY):
            known = connection.execute(_KNOWN_NONCES, {"nonces": part}).scalars()
            found |= {bytes(nonce) for nonce in known}
        return found

    def mark_expired(self, now: float, closes_after: float | None, stays: float = math.inf) -> int:
        """Mark expired reservations, and places that no user took in time, as absent. Returns the number of
        marked places.

        stays : seconds between a reservation and the deadline for its answer. A reservation with more time
            left than ``stays`` was written while the clock was fast, and is shortened.
        """
        with self._reading() as connection:  # usually nothing has expired, so no lock is needed
            most = now + self._standing(connection).stays(stays)
            late = (_tickets.c.due <= now) | (_tickets.c.due > most)
            due = connection.execute(sql.select(_tickets.c.id).where(late).limit(1)).first()
            old = closes_after is not None and any(
                one["opened"] + closes_after <= now and one["came"] + one["absent"] < one["users"]
                for one in self._open(connection)
            )
        if due is None and not old:
            return 0
        if self.batches is not None:
            return self._resolve_expired(now, stays)
        count = 0
        with self._writing() as connection:
            connection.execute(_LOCKED[_STUDY_NOW])
            for one in self._open(connection, lock=True):
                closed = closes_after is not None and one["opened"] + closes_after <= now
                own = [_tickets.c.plan == one["number"], _tickets.c.state == PLACED]
                if not closed:
                    own.append(_tickets.c.due <= now)
                gone = connection.execute(
                    _tickets.update().where(*own).values(state=ABSENT, due=None)
                ).rowcount
                free = one["users"] - one["placed"] if closed else 0
                if gone or free:
                    connection.execute(
                        _plans.update().where(_plans.c.number == one["number"]).values(
                            absent=_plans.c.absent + gone + free, placed=_plans.c.placed + free
                        )
                    )  # fmt: skip
                count += gone + free
            self._shorten(connection, now, stays)
        return count

    def _shorten(self, connection: Connection, now: float, stays: float) -> None:
        last = now + self._standing(connection).stays(stays)
        if last < math.inf:
            connection.execute(_tickets.update().where(_tickets.c.due > last).values(due=last))

    def _resolve_expired(self, now: float, stays: float) -> int:
        """Mark expired reservations as absent, in the order of their tickets, and count them in batches."""
        with self._writing() as connection:
            batch = self._requests(connection, (), now)
            late = sql.select(_tickets).where(_tickets.c.state == PLACED, _tickets.c.due <= now)
            rows = [dict(row) for row in connection.execute(late.order_by(_tickets.c.id)).mappings()]
            for row in rows:
                batch.expire(row)
            batch.write(connection)
            self._shorten(connection, now, stays)
        self.whole = batch.whole
        return len(rows)

    # ------------------------------------------------------------------------- acts of the operator
    def add_tables(self) -> None:
        """Add the table ``acts`` to a database of an earlier version, without a new version of the tables."""
        with suppress(sql.exc.IntegrityError, sql.exc.ProgrammingError):  # another process has added it
            _acts.create(self._engine, checkfirst=True)

    def _standing(self, connection: Connection) -> Standing:
        return standing_of((row.kind, row.seconds) for row in connection.execute(_ACTS))

    def standing(self) -> Standing:
        """Return the result of all acts of the operator."""
        with self._reading() as connection:
            return self._standing(connection)

    def acts(self) -> list[dict[str, Any]]:
        """Return all acts of the operator in their order: ``kind``, ``seconds`` and ``at_turn``."""
        query = sql.select(_acts.c.kind, _acts.c.seconds, _acts.c.at_turn).order_by(_acts.c.id)
        with self._reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def act(
        self, kind: ActKind, stays: float, seconds: float | None = None, closes_after: float | None = None
    ) -> Standing:
        """Record an act of the operator, and return the result of all acts. An act without effect is not
        recorded.

        Parameters
        ----------
        stays : seconds between a reservation and its deadline, by the study file.
        seconds : with "extend", the new time. The deadlines of open reservations move by the difference.
        closes_after : seconds for which a plan is open. No deadline is later. None for no limit.
        """
        with self._writing() as connection:
            turn = connection.execute(_LOCKED[_STUDY_NOW]).one().turn
            rows = [(row.kind, row.seconds) for row in connection.execute(_ACTS)]
            before, new = standing_of(rows), standing_of([*rows, (kind, seconds)])
            more = new.stays(stays) - before.stays(stays)
            first = seconds is not None and not before.extended and seconds >= stays
            if more > 0.0 or first or new.paused != before.paused:
                row = {"kind": kind, "seconds": seconds, "at_turn": turn}
                connection.execute(_acts.insert().values(row))
                if more > 0.0:
                    plans = self._open(connection, lock=True)  # locked before the rows of tickets
                    due = _tickets.c.due
                    connection.execute(_tickets.update().where(due.isnot(None)).values(due=due + more))
                    for one in plans if closes_after is not None else ():
                        own, ends = _tickets.c.plan == one["number"], one["opened"] + closes_after
                        connection.execute(_tickets.update().where(own, due > ends).values(due=ends))
            return new

    def plans(self) -> list[dict[str, Any]]:
        """Return the rows of the open plans, with their counts of users but without their policies."""
        with self._reading() as connection:
            return self._open(connection)

    def vacancies(self) -> int:
        """Return the number of places that are free now.

        With the rule "clock", none is free from the time at which the batch closes, whether or not a
        transaction has closed it.
        """
        now = self.clocked(self._io).now()
        with self._reading() as connection:
            return self._requests(connection, (), now).vacancies()

    def open_batch(self, turn: int, now: float) -> OpenBatch:
        """Return numbers about the open batch. With the rule "clock", they are for the operator only."""
        with self._reading() as connection:
            plans = [one for one in self._open(connection) if one["turn"] == turn]
            due = _tickets.c.due
            query = sql.select(_tickets.c.id, due).where(due.isnot(None)).order_by(due, _tickets.c.id)
            waiting = connection.execute(query.limit(_DUE_SHOWN)).all()
            count = connection.execute(sql.select(sql.func.count()).where(due.isnot(None))).scalar_one()
        parts = plans if self.batches is None else self.batch(turn)
        resolved = sum(one["came"] + one["absent"] for one in parts)
        if self.batches is not None and self.batches.held_turns is not None and not self.is_whole(turn):
            with self._reading() as connection:  # the rule "clock" counts absent users when a batch closes
                query = sql.select(sql.func.sum(resolved_table.c.came)).where(resolved_table.c.batch == turn)
                resolved = int(connection.execute(query).scalar() or 0)
        size = sum(one["users"] for one in plans)
        opened = max((float(one["opened"]) for one in plans), default=now)
        rows = tuple((int(row.id), float(row.due)) for row in waiting)
        return OpenBatch(max(0.0, now - opened), resolved, size, int(count), rows)

    def lease_end(self) -> float:
        """Return the time at which the lease of the process that makes releases ends."""
        with self._reading() as connection:
            return float(connection.execute(sql.select(_lease.c.expires)).scalar_one())

    def given(self) -> int:
        """Return the number of places that were given so far, in all plans."""
        with self._reading() as connection:
            return int(connection.execute(sql.select(sql.func.sum(_plans.c.placed))).scalar() or 0)

    def waiting(self) -> tuple[int, float]:
        """Return the number of users who have a place but have not answered, and the latest of their
        deadlines.
        """
        with self._reading() as connection:
            query = sql.select(sql.func.count(), sql.func.max(_tickets.c.due)).where(
                _tickets.c.due.isnot(None)
            )
            count, last = connection.execute(query).one()
        return int(count), float(last or 0.0)

    def people_before(self, turn: int) -> int:
        """Return the number of places in the plans of all earlier turns."""
        with self._reading() as connection:
            query = sql.select(sql.func.coalesce(sql.func.sum(_plans.c.users), 0)).where(_plans.c.turn < turn)
            return int(connection.execute(query).scalar_one())

    # ------------------------------------------------------------------------- sums of a shuffler
    def sum_of(self, turn: int) -> bytes | None:
        """Return the shuffler's sum for the batch of a turn; None if the sum has not arrived."""
        with self._reading() as connection:
            found = connection.execute(sql.select(_sums.c.body).where(_sums.c.turn == turn)).scalar()
        return None if found is None else bytes(found)

    def take_sum(self, turn: int, body: bytes) -> Literal["counted", "late", "spent"]:
        """Store the checked sum of the current turn.

        The first sum of a turn is permanent. A repetition of the same sum is accepted.
        """
        with self._writing() as connection:
            study = connection.execute(sql.select(_study.c.turn, _study.c.over).with_for_update()).one()
            found = connection.execute(sql.select(_sums.c.body).where(_sums.c.turn == turn)).scalar()
            if found is not None:
                return "counted" if bytes(found) == body else "spent"
            if study.turn != turn or study.over:
                return "late"
            connection.execute(_sums.insert().values(turn=turn, body=body, sent=True))
            return "counted"

    def summed(self, token: int, turn: int, body: bytes) -> None:
        """Store the sum of a whole batch and remove the batch's messages, in one transaction of a shuffler.

        Raises :class:`StaleWriter` and changes nothing if another process holds the lease, the batch was
        already summed, or the turn is over.
        """
        stale = StaleWriter(f"turn {turn}: is summed, or another process holds the lease")
        try:
            with self._writing() as connection:
                self._check_own(connection, token, turn, stale)
                connection.execute(_sums.insert().values(turn=turn, body=body, sent=False))
                numbers = sql.select(_plans.c.number).where(_plans.c.turn == turn)
                connection.execute(_messages.delete().where(_messages.c.plan.in_(numbers)))
        except sql.exc.IntegrityError:
            raise stale from None

    def unsent(self) -> tuple[int, bytes] | None:
        """Return the turn and the bytes of a sum that the service has not confirmed to this shuffler.

        Returns None if every sum was confirmed.
        """
        with self._reading() as connection:
            found = connection.execute(sql.select(_sums.c.turn, _sums.c.body).where(~_sums.c.sent)).first()
        return None if found is None else (int(found.turn), bytes(found.body))

    def was_sent(self, turn: int) -> None:
        """Mark the sum of a turn, in the database of a shuffler, as stored by the service."""
        with self._writing() as connection:
            connection.execute(_sums.update().where(_sums.c.turn == turn).values(sent=True))

    def adopt(
        self, token: int, turn: int, form: bytes, published: bytes, plans: Plans, over: bool, now: float
    ) -> None:
        """Replace the plans in a shuffler's database by the service's next publication.

        The publication belongs to the next turn, or to the end of the study.

        published : bytes of the signed publication. Raises :class:`StaleWriter`, and changes nothing, if
            another process holds the lease or has already replaced the plans.
        """
        with self._writing() as connection:
            before = turn if over else turn - 1
            self._check_own(
                connection, token, before, StaleWriter(f"turn {turn}: is open, or the lease is over")
            )
            connection.execute(_study.update().values(turn=turn, form=form, over=over))
            connection.execute(_relayed.update().values(body=published))
            if not over:
                self._open_plans(connection, turn, plans, now)

    def relayed(self) -> bytes:
        """Return the service's signed publication for the current turn, from the database of a shuffler."""
        with self._reading() as connection:
            return bytes(connection.execute(sql.select(_relayed.c.body)).scalar_one())

    def _check_own(self, connection: Connection, token: int, turn: int, stale: StaleWriter) -> None:
        """Lock the row of the lease and the row of the study, and check both rows.

        Raises ``stale`` unless the lease has the token ``token`` and the study is at turn ``turn``.
        """
        lease, study = _lease.update().where(_lease.c.token == token), _study.update()
        own = connection.execute(lease.values(expires=_lease.c.expires)).rowcount
        same = connection.execute(
            study.where(_study.c.turn == turn, ~_study.c.over).values(turn=turn)
        ).rowcount
        if own != 1 or same != 1:
            raise stale

    # ------------------------------------------------------------------------- releases
    def is_whole(self, turn: int) -> bool:
        """Return True if batch ``turn`` is complete, so that each user of the batch has answered or is
        absent.
        """
        with self._reading() as connection:
            if self.batches is None:
                query = sql.select(_plans).where(_plans.c.turn == turn)
                rows = connection.execute(query).mappings().all()
                return bool(rows) and all(one["came"] + one["absent"] >= one["users"] for one in rows)
            query = sql.select(resolved_table).where(resolved_table.c.batch == turn)
            return self.batches.is_whole(turn, [dict(row) for row in connection.execute(query).mappings()])

    def close_due(self, turn: int, now: float) -> None:
        """Close batch ``turn`` if its time is over. Only the rule "clock" has such times."""
        if self.batches is None or now < self.batches.closes(turn) or self.is_whole(turn):
            return
        with self._writing() as connection:
            self._requests(connection, (), now).write(connection)

    def batch(self, turn: int) -> list[dict[str, Any]]:
        """Return the parts of batch ``turn``, in the order of their plans.

        A part has the users of the batch who followed one plan: the plan's ``number`` and ``policy``, the
        numbers of ``users``, of users who ``came``, and of users who are ``absent``. If the number is None,
        the part has users of all plans.
        """
        if self.batches is None:
            query = sql.select(
                _plans.c.number, _plans.c.users, _plans.c.policy, _plans.c.came, _plans.c.absent
            ).where(_plans.c.turn == turn)
        else:
            parts = resolved_table.c
            query = sql.select(
                _plans.c.number, (parts.came + parts.absent).label("users"), _plans.c.policy, parts.came,
                parts.absent,
            ).where(parts.batch == turn, parts.plan == _plans.c.number)  # fmt: skip
        with self._reading() as connection:
            rows = [dict(row) for row in connection.execute(query.order_by(_plans.c.number)).mappings()]
        if self.batches is None:
            return rows
        return self.batches.parts(turn, rows, lambda: self.policies(turn)[0])

    def followed(self, turn: int) -> list[dict[str, Any]]:
        """Return the plans that the users of batch ``turn`` followed: ``policy``, and number of ``users``.

        With the rule "clock", these are the users who took a place, because answers are not public.
        """
        if self.batches is None or self.batches.held_turns is None:
            return self.batch(turn)
        query = sql.select(_plans.c.number, _plans.c.placed.label("users"), _plans.c.policy).where(
            _plans.c.turn == turn, _plans.c.placed > 0
        )
        with self._reading() as connection:
            return [dict(row) for row in connection.execute(query.order_by(_plans.c.number)).mappings()]

    def held_policies(self, turn: int) -> list[dict[str, Any]]:
        """Return plans of earlier turns that can hold reservations, in the form of :meth:`policies`."""
        if self.batches is None:
            return []
        turns = self.batches.with_stays(self.standing().extended).held_turns
        held = (
            _plans.c.placed > _plans.c.came + _plans.c.absent
            if turns is None
            else (_plans.c.placed > 0) & (_plans.c.turn >= turn - turns)
        )
        query = sql.select(_plans.c.number, _plans.c.users, _plans.c.policy).where(_plans.c.turn < turn, held)
        with self._reading() as connection:
            return [dict(row) for row in connection.execute(query.order_by(_plans.c.number)).mappings()]

    def policies(self, turn: int) -> list[dict[str, Any]]:
        """Return the plans of a turn.

        Each entry has the plan's number, number of users, and policy as JSON.
        """
        with self._reading() as connection:
            query = (
                sql.select(_plans.c.number, _plans.c.users, _plans.c.policy)
                .where(_plans.c.turn == turn)
                .order_by(_plans.c.number)
            )
            return [dict(row) for row in connection.execute(query).mappings()]

    def release(self, number: int) -> tuple[bytes, str] | None:
        """Return the served bytes of a release and their SHA-256; None if no release has this number.

        A release is shown only after its plans are open (:meth:`turned`).
        """
        with self._reading() as connection:
            turn = sql.select(_study.c.turn).scalar_subquery()
            query = sql.select(_releases.c.body, _releases.c.sha256).where(
                _releases.c.number == number, _releases.c.number <= turn
            )
            row = connection.execute(query).first()
        return None if row is None else (bytes(row[0]), str(row[1]))

    def exact_release(self, number: int) -> bytes | None:
        """Return the exact encoding of a release; None if the release has not been drawn yet."""
        with self._reading() as connection:
            query = sql.select(_releases.c.exact).where(_releases.c.number == number)
            found = connection.execute(query).scalar()
        return None if found is None else bytes(found)

    def session(self) -> tuple[int, bytes]:
        """Return the current turn, and the stored state of the session."""
        with self._reading() as connection:
            turn = connection.execute(sql.select(_study.c.turn)).scalar_one()
            return int(turn), bytes(connection.execute(sql.select(_state.c.session)).scalar_one())

    def messages(self, plan: int | None, batch: int | None = None) -> list[bytes]:
        """Return the messages of one plan, in the order of their tickets.

        plan : number of the plan; None: all plans, one after the other.
        batch : only messages that count in this batch; None: all messages of the plan.
        """
        with self._reading() as connection:
            query = sql.select(_messages.c.body).order_by(_messages.c.plan, _messages.c.ticket)
            if plan is not None:
                query = query.where(_messages.c.plan == plan)
            if batch is not None:
                query = query.where(_messages.c.batch == batch)
            return [bytes(body) for body in connection.execute(query).scalars()]

    def drew(self, token: int, turn: int, new: Drawn, now: float, lasts: float) -> None:
        """Store permanently the release after ``turn``. ``token`` is the caller's token of the lease.

        Raises :class:`StaleWriter` and stores nothing if another process holds the lease, the turn is over,
        or its release was already drawn.
        """
        stale = StaleWriter(f"turn {turn}: is over or drawn, or another process holds the lease")
        try:
            with self._writing() as connection:
                own = connection.execute(
                    _lease.update().where(_lease.c.token == token).values(expires=now + lasts)
                ).rowcount
                same = connection.execute(
                    _study.update().where(_study.c.turn == turn).values(turn=turn)
                ).rowcount
                if own != 1 or same != 1 or new.number != turn + 1:
                    raise stale
                self._keep_release(connection, new)
                connection.execute(_state.update().values(session=new.session))
        except sql.exc.IntegrityError:
            raise stale from None

    def turned(self, token: int, turn: int, plans: Plans, now: float, lasts: float) -> None:
        """Open the plans of the release after ``turn``. ``token`` is the caller's token of the lease.

        Raises :class:`StaleWriter` and stores nothing if another process holds the lease, the turn is over,
        or the release of this turn has not been drawn.
        """
        with self._writing() as connection:
            own = connection.execute(
                _lease.update().where(_lease.c.token == token).values(expires=now + lasts)
            ).rowcount
            moved = connection.execute(
                _study.update().where(_study.c.turn == turn).values(turn=turn + 1)
            ).rowcount
            drawn = connection.execute(
                sql.select(_releases.c.number).where(_releases.c.number == turn + 1)
            ).first()
            if own != 1 or moved != 1 or drawn is None:
                raise StaleWriter(f"turn {turn}: is over or not drawn, or another process holds the lease")
            self._open_plans(connection, turn + 1, plans, now)

    def ended(self, token: int, turn: int) -> None:
        """Record that the study is over: no further release is made, and no further user gets a place.

        Raises :class:`StaleWriter` and stores nothing if another process holds the lease or the turn is over.
        """
        with self._writing() as connection:
            own = connection.execute(
                _lease.update().where(_lease.c.token == token).values(expires=_lease.c.expires)
            ).rowcount
            moved = connection.execute(
                _study.update().where(_study.c.turn == turn).values(over=True)
            ).rowcount
            if own != 1 or moved != 1:
                raise StaleWriter(f"turn {turn}: is over, or another process holds the lease")

    def sweep(self) -> int:
        """Remove at most 500 of the counted messages.

        Returns the number of removed messages. 0 means that no message is left, neither in the tables nor in
        SQLite's log.

        The result is 1 if no message was removed but another connection prevents emptying the log. Then call
        this method again.
        """
        with self._writing() as connection:
            turn = sql.select(_study.c.turn).scalar_subquery()
            still = sql.select(sql.func.min(_plans.c.number)).where(_plans.c.turn == turn).scalar_subquery()
            over = connection.execute(sql.select(_study.c.over)).scalar()
            old = sql.select(_messages.c.ticket)
            if not over:  # when over, remove all: the last batch has no release
                counted = _messages.c.plan < still if self.batches is None else _messages.c.batch < turn
                old = old.where(counted)
            gone = connection.execute(
                _messages.delete().where(_messages.c.ticket.in_(old.limit(_SWEPT).scalar_subquery()))
            ).rowcount
        return int(gone) or int(not self._emptied(0))

    # ------------------------------------------------------------------------- lease of the only writer
    def lease(self, holder: str, now: float, lasts: float) -> int | None:
        """Take a new lease and return its token. Returns None if the last lease is not over.

        The time during which no process held a lease is added to all users' deadlines. If the stored lease
        ends later than any lease can last, it was written with a fast clock, and counts as over. Deadlines
        that were written with this clock are then moved to an earlier time.
        """
        with self._writing() as connection:
            row = connection.execute(sql.select(_lease).with_for_update()).mappings().one()
            if now < row["expires"] <= now + _AHEAD * lasts:
                return None
            token = int(row["token"]) + 1
            changed = connection.execute(
                _lease.update()
                .where(_lease.c.token == row["token"])
                .values(holder=holder, token=token, expires=now + lasts)
            ).rowcount
            if changed != 1:
                return None
            gap = now - row["expires"]
            if row["expires"] > 0.0 and gap != 0.0:
                # rows of plans are locked before rows of tickets, as in all transactions
                self._open(connection, lock=True)
                connection.execute(
                    _tickets.update().where(_tickets.c.due.isnot(None)).values(due=_tickets.c.due + gap)
                )
                if self.batches is None:  # other rules use this time only as the start of the study
                    turn = sql.select(_study.c.turn).scalar_subquery()
                    connection.execute(
                        _plans.update().where(_plans.c.turn == turn).values(opened=_plans.c.opened + gap)
                    )
            return token

    def keep(self, token: int, now: float, lasts: float, *, beat: bool = False) -> bool:
        """Extend the lease, and store a new beat if ``beat`` is True.

        Returns False if another process holds the lease, or if the lease is over. In these cases,
        :meth:`lease` will move users' deadlines later.

        Also returns False if the stored lease ends later than any lease can last. This happens if the clock
        was set back (:meth:`lease`).
        """
        with self._writing() as connection:
            own = connection.execute(
                _lease.update()
                .where(
                    _lease.c.token == token,
                    _lease.c.expires > now,
                    _lease.c.expires <= now + _AHEAD * lasts,
                )
                .values(expires=now + lasts)
            ).rowcount
            if own == 1 and beat:
                self._beat(connection)
        return own == 1

    def _beat(self, connection: Connection) -> None:
        """Store a new beat. Only the last :data:`BEATS` beats are kept."""
        number = int(connection.execute(sql.select(sql.func.max(_beats.c.number))).scalar() or 0) + 1
        connection.execute(_beats.insert().values(number=number, nonce=self._io.random_bytes(8).hex()))
        connection.execute(_beats.delete().where(_beats.c.number <= number - BEATS))

    # ------------------------------------------------------------------------- chain
    @property
    def file(self) -> Path | None:
        """Path of a SQLite file, or None if the database is in memory or of PostgreSQL."""
        known = self.sqlite and self.url.database not in (None, "", ":memory:")
        return Path(str(self.url.database)) if known else None

    def mark(self) -> ChainMark:
        """Return the newest release, the link of this release, and the newest beat."""
        with self._reading() as connection:
            beat = connection.execute(sql.select(_beats).order_by(_beats.c.number.desc()).limit(1)).first()
            link = connection.execute(sql.select(_links).order_by(_links.c.number.desc()).limit(1)).first()
        number, text = (-1, NO_LINK) if link is None else (int(link.number), str(link.link))
        newest = (0, NO_LINK[:16]) if beat is None else (int(beat.number), str(beat.nonce))
        return ChainMark(number, text, *newest)

    def link(self, number: int) -> str | None:
        """Return the link of a release; None if no release has this number."""
        if number < 0:
            return NO_LINK
        with self._reading() as connection:
            return connection.execute(sql.select(_links.c.link).where(_links.c.number == number)).scalar()

    def nonce(self, beat: int) -> str | None:
        """Return the nonce of a beat; None if the database does not have this beat."""
        if not beat:
            return NO_LINK[:16]
        with self._reading() as connection:
            return connection.execute(sql.select(_beats.c.nonce).where(_beats.c.number == beat)).scalar()

    def release_lease(self, token: int, now: float) -> None:
        """End the lease now, if ``token`` is still its token."""
        with self._writing() as connection:
            connection.execute(_lease.update().where(_lease.c.token == token).values(expires=now))


class Requests:
    """Requests of one transaction, with the database rows that they change.

    The rows are read at the beginning of the transaction, changed in memory, and written at its end.
    """

    def __init__(
        self,
        plans: list[dict[str, Any]],
        tickets: dict[bytes, dict[str, Any]],
        nonces: set[bytes],
        over: bool,
        now: float,
        stays: float,
        ends: float,
        stored: Mapping[int, int | None] | None = None,
        people: Returning | None = None,
        paused: bool = False,
    ) -> None:
        self._people, self._paused = people or Returning(), paused
        self._stored_messages = dict(stored or {})  # batches of messages that a request withdraws
        self._removed: list[int] = []
        self._plans = {int(plan["number"]): plan for plan in plans}
        self._read = {number: dict(plan) for number, plan in self._plans.items()}  # as they are stored
        self._tickets, self._nonces = tickets, nonces
        self._over, self._now = over, now
        self._stays, self._ends = stays, ends
        self._changed: dict[int, dict[str, Any]] = {}
        self._messages: list[dict[str, Any]] = []
        self._ended: dict[int, int] = {}  # after the end of the study: plans, and users who are now absent

    def vacancies(self) -> int:
        """Return the number of places that are free now."""
        return sum(max(0, plan["users"] - plan["placed"]) for plan in self._plans.values())

    def _vacancy(self) -> dict[str, Any] | None:
        """Return the plan in which the next place is free; None if no place is free."""
        return next((plan for plan in self._plans.values() if plan["placed"] < plan["users"]), None)

    def _resolve(self, plan: dict[str, Any], outcome: Literal["came", "absent"]) -> int | None:
        """Count the outcome of a reservation in its plan.

        Returns the batch to which the reservation is assigned; None if the plan determines it.
        """
        plan[outcome] += 1
        return None

    def free_again(self, first_due: float | None) -> float:
        """Return the time in seconds until the first open reservation ends, when a place can become free.

        first_due : time at which the first open reservation ends; None if no reservation is open.
        """
        return 0.0 if first_due is None else max(0.0, first_due - self._now)

    @property
    def whole(self) -> bool:
        """True if every user of the open plans has answered or is absent."""
        return all(plan["came"] + plan["absent"] >= plan["users"] for plan in self._plans.values())

    def result(self, request: AnyRequest) -> RequestResult:
        """Carry out one request, and return the result."""
        if isinstance(request, ReservationRequest):
            return self.place(request)
        return self.answer(request) if isinstance(request, TicketMessage) else self.withdraw(request)

    def withdraw(self, asked: WithdrawalRequest) -> RequestResult:
        """Count a reservation or a message as absent, and remove the message.

        The result is "withdrawn" if no message of this ticket is or will be in a sum. This includes users who
        were already marked absent. The result is "counted" if the batch of the message is complete. The sum
        of this batch can then be drawn, or was drawn, and nothing changes.
        """
        ticket = self._tickets.get(asked.ticket)
        if ticket is None:
            return RequestResult("foreign")
        if ticket["state"] == UNSPENT:
            return RequestResult("placeless")
        if ticket["state"] == ABSENT:
            return RequestResult("withdrawn")
        plan, own = self._plans.get(int(ticket["plan"])), ticket["id"]
        if ticket["state"] == PLACED:
            if plan is None:
                return RequestResult("over")
            self._people.take_part(ticket, self._open_batch())
            self.expire(ticket)
            return RequestResult("withdrawn")
        new = [one for one in self._messages if one["ticket"] == own]
        batch = new[0]["batch"] if new else self._stored_messages.get(own)
        if not (new or own in self._stored_messages) or not self._is_open(plan, batch):
            return RequestResult("counted")
        self._unresolve(int(ticket["plan"]), batch)
        self._messages = [one for one in self._messages if one["ticket"] != own]
        self._removed.append(own)
        self._change(ticket, state=ABSENT)
        return RequestResult("withdrawn")

    def _open_batch(self) -> int:
        """Return the number of the batch in which a reservation that is resolved now counts."""
        return max((int(plan["turn"]) for plan in self._plans.values()), default=0)

    def _is_open(self, plan: dict[str, Any] | None, batch: int | None) -> bool:
        """Return True if the batch of a message is not complete.

        plan : plan of the message, if this plan is open.
        """
        return plan is not None and not self.whole

    def _unresolve(self, number: int, batch: int | None) -> None:
        """Count a message of plan ``number`` as absent."""
        plan = self._plans.get(number)
        assert plan is not None
        plan["came"], plan["absent"] = plan["came"] - 1, plan["absent"] + 1

    def place(self, asked: ReservationRequest) -> RequestResult:
        ticket = self._tickets.get(asked.ticket)
        if ticket is None or self._people.is_foreign(ticket):
            return RequestResult("foreign")
        if ticket["state"] == PLACED and ticket["plan"] in self._plans:
            return RequestResult("placed", int(ticket["plan"]), max(0.0, ticket["due"] - self._now))
        if ticket["state"] != UNSPENT:
            return RequestResult("spent")
        if self._over or self._paused:
            return RequestResult("over" if self._over else "paused")
        refused = self._people.refusal(ticket, self._open_batch())
        if refused is not None:
            return RequestResult("again", release=refused[0])
        plan = self._vacancy()
        if plan is None:
            return RequestResult("full")
        plan["placed"] += 1
        self._people.reserve(ticket)
        due = min(self._now + self._stays, plan["opened"] + self._ends)
        self._change(ticket, state=PLACED, plan=plan["number"], due=due)
        return RequestResult("placed", int(plan["number"]), max(0.0, due - self._now))

    def answer(self, given: TicketMessage) -> RequestResult:
        ticket = self._tickets.get(given.ticket)
        if ticket is None:
            return RequestResult("foreign")
        if ticket["state"] == ANSWERED:
            same = ticket["nonce"] is not None and bytes(ticket["nonce"]) == given.nonce
            return RequestResult("counted", int(ticket["plan"])) if same else RequestResult("spent")
        if ticket["state"] == ABSENT:
            return RequestResult("late")
        plan = self._plans.get(given.plan)
        if plan is None:
            return RequestResult("over" if self._over else "late")
        if given.nonce in self._nonces:
            return RequestResult("replayed")
        if ticket["state"] == UNSPENT:
            return RequestResult("placeless")
        if ticket["plan"] != given.plan:
            return RequestResult("late")
        self._nonces.add(given.nonce)
        self._people.take_part(ticket, self._open_batch())
        batch = self._resolve(plan, "came")
        self._change(ticket, state=ANSWERED, plan=given.plan, due=None, nonce=given.nonce)
        self._messages.append(
            {
                "ticket": ticket["id"], "plan": given.plan, "nonce": given.nonce, "body": given.body,
                "batch": batch,
            }
        )  # fmt: skip
        return RequestResult("counted", given.plan)

    def expire(self, ticket: dict[str, Any]) -> None:
        """Mark a reservation as absent. When the study is over, only its plan counts it, and no batch."""
        number = int(ticket["plan"])
        if self._over:
            self._ended[number] = self._ended.get(number, 0) + 1
        else:
            self._resolve(self._plans[number], "absent")
        self._change(ticket, state=ABSENT, due=None)

    def _change(self, ticket: dict[str, Any], **values: Any) -> None:
        ticket.update(values)
        self._changed[ticket["id"]] = ticket

    def write(self, connection: Connection) -> None:
        if self._messages:
            connection.execute(_messages.insert(), self._messages)
        if self._removed:
            connection.execute(_messages.delete().where(_messages.c.ticket.in_(self._removed)))
        _TICKET_UPDATE.write(connection, self._changed.values())
        _PLAN_UPDATE.write(connection, (one for n, one in self._plans.items() if one != self._read[n]))
        _PERSON_UPDATE.write(connection, (self._people.rows[one] for one in self._people.changed))
        for number, gone in self._ended.items():
            connection.execute(
                _plans.update().where(_plans.c.number == number).values(absent=_plans.c.absent + gone)
            )


class BatchRule(ABC):
    """Rule that closes batches when reservations are resolved, or at fixed times, instead of by plans."""

    @property
    def held_turns(self) -> int | None:
        """Number of earlier turns whose plans stay published; None: plans with open reservations stay."""
        return None

    def with_stays(self, stays: float) -> BatchRule:
        """Return the rule if users have at least ``stays`` seconds to answer."""
        return self

    @abstractmethod
    def size(self, turn: int) -> int:
        """Return the number of users in batch ``turn``."""

    @abstractmethod
    def is_whole(self, turn: int, rows: list[dict[str, Any]]) -> bool:
        """Return True if batch ``turn`` is complete. rows : rows of the table ``resolved`` for this batch."""

    def closes(self, turn: int) -> float:
        """Return the time at which batch ``turn`` closes; infinity without such a time."""
        return math.inf

    def opens(self, turn: int) -> float:
        """Return the time before which the plans after batch ``turn`` are not opened; 0 without one."""
        return 0.0

    def parts(
        self, turn: int, rows: list[dict[str, Any]], plan: Callable[[], Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the parts of batch ``turn`` in the form of :meth:`Store.batch`.

        rows : one part for each plan. plan : function that returns the first plan of the turn.
        """
        return rows

    @abstractmethod
    def requests(self, turn: int, rows: list[dict[str, Any]], *given: Any) -> Requests:
        """Return the requests of one transaction.

        turn : number of the newest release. rows : rows of the table ``resolved`` for batches that have no
        release yet. given : arguments of :class:`Requests`.
        """


def _withdraws(request: AnyRequest) -> bool:
    return isinstance(request, WithdrawalRequest)


def _parts(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(values), size):
        yield values[first : first + size]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _own_file(path: Path) -> None:
    """Create a database file that only its owner can read, because it contains users' messages."""
    if not path.parent.is_dir():
        raise ValueError(f"database = {str(path)!r}: its folder does not exist")
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _sqlite_connected(connection: Any, io: Io) -> None:
    connection.isolation_level = None  # this module begins transactions, because the driver does not
    connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
    for left in reversed(range(_PATIENCE_MS // 10)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        # SQLite does not wait if another connection sets the mode of a new database at the same time
        except sqlite3.OperationalError:
            if not left:
                raise
            io.pause(0.01)
    for pragma in (f"synchronous = {_SYNCHRONOUS}", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _postgresql_connected(connection: Any, _: Any) -> None:
    """Make commits durable on the server's disk, even if the server's default differs."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
        synced, commits = cursor.fetchone()
        if synced != "on":
            raise ValueError(
                "database: PostgreSQL runs with fsync = off, so that nothing is certain to be kept"
            )
        if commits == "off":
            cursor.execute("SET synchronous_commit = on")
    connection.commit()


def _sqlite_begun(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
