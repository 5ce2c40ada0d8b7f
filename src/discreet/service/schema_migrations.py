"""Migrations of databases of earlier library versions. A migration cannot be undone.

The table ``schema`` has the version of the tables. A database without it has version 0. Migration n changes
version n to n + 1. Only ``discreet serve --migrate`` runs migrations, in one transaction, while no process
serves the database. A SQLite file is copied first. The copy can contain users' messages, so the operator must
delete it when the study runs again.

Migrations are functions in a list. They use no tool such as Alembic, because there is one line of versions
and no way back.

- Versions 0.2.0 and 0.3.0 of the library made version 0. Some of these databases have the tables ``keys``,
  ``resolved`` and ``serving``.
- Version 1 has all of these tables, and the column ``batch`` of ``messages``.
- Version 2 has the chain, the keys and the versions of the library. The mechanism is taken from the stored
  session.
- Version 3 has pseudonyms of users who return, and their key.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from discreet.device.published_device import device_from_bytes
from discreet.mechanisms.restore_session import brought_back
from discreet.service import database as tables
from discreet.service.batch_sums import ShuffledBatches
from discreet.service.database import SCHEMA, Store
from discreet.service.frozen_mechanism import first_program

if TYPE_CHECKING:
    from discreet.service.study_config import Study

__all__ = ["MIGRATIONS", "migrate"]

# All learners of versions 0.2.0 and 0.3.0 have the learner version 1.
_UNKNOWN = {"version": "unknown", "learner_version": 1, "python": "", "numpy": "", "numba": ""}
_TOLERANCE = 1e-9


def _to_1(store: Store, connection: Connection, study: Study) -> None:
    """Add the tables and the column that came after 0.2.0."""
    found = sql.inspect(connection)
    for name in ("keys", "resolved", "serving"):
        tables.TABLES[name].create(connection, checkfirst=True)
    if "batch" not in {one["name"] for one in found.get_columns("messages")}:
        connection.exec_driver_sql("ALTER TABLE messages ADD COLUMN batch INTEGER")


def _to_2(store: Store, connection: Connection, study: Study) -> None:
    """Add the chain of all stored releases, and freeze the mechanism of the stored session."""
    for name in ("links", "beats", "program", "schema", "key_rows", "acts"):
        tables.TABLES[name].create(connection, checkfirst=True)
    store.link_all(connection)
    state = connection.execute(sql.select(tables.TABLES["state"].c.session)).scalar()
    mechanism = None
    if state is not None:  # a shuffler has no session
        session: Any = brought_back(bytes(state))
        with closing(session):
            mechanism = session.mechanism
        guarantee = mechanism.guarantee
        asked, own = guarantee.epsilon_nominal, guarantee.epsilon
        if asked is not None and (own is None or own > asked * (1.0 + _TOLERANCE)):
            raise ValueError(
                f"epsilon = {own!r}: the noise of this database loses more than the study asks for, {asked!r}"
            )
    store.start_program(connection, {**first_program(study, mechanism), **_UNKNOWN})
    connection.execute(tables.TABLES["schema"].insert().values(id=1, number=0))


def _to_3(store: Store, connection: Connection, study: Study) -> None:
    """Add the tables of persons with a new key, and the column that connects tickets with them."""
    for name in ("persons", "person_key"):
        tables.TABLES[name].create(connection, checkfirst=True)
    connection.exec_driver_sql("ALTER TABLE tickets ADD COLUMN person BIGINT")
    tables.PERSON_INDEX.create(connection)
    store.keep_person_key(connection)


MIGRATIONS: tuple[Callable[[Store, Connection, Study], None], ...] = (_to_1, _to_2, _to_3)


def migrate(study: Study, store: Store) -> tuple[int, Path | None]:
    """Change the tables of a database to the version that this library needs.

    Returns the previous version, and the path of the copy of a SQLite file; None if nothing was copied.

    Raises ``ValueError`` if the database does not contain this study, is being served, or was made by a later
    version; or if a copy already exists.
    """
    before = store.schema()
    identity = store.stored_identity()
    if identity != study.identity:
        what = "is empty" if identity is None else "serves another study"
        raise ValueError(f"database = {store.url.render_as_string()!r}: {what}")
    if before > SCHEMA:
        raise ValueError(f"database: has tables of version {before}, this library knows {SCHEMA} at most")
    if before == SCHEMA:
        return before, None
    _check_shuffler(study, store)
    with store.migrating() as connection:  # no process serves the database, even while it is copied
        copy = None if store.file is None else _copied(store.file, before)
        for step in MIGRATIONS[before:]:
            step(store, connection, study)
        connection.execute(tables.TABLES["schema"].update().values(number=SCHEMA))
    return before, copy


def _check_shuffler(study: Study, store: Store) -> None:
    """Check that this library computes the noise of a shuffler's open batch in the same way as the earlier
    version.

    A shuffler stores no session, so its mechanism is computed from the study file. Raises ``ValueError`` if
    the mechanism differs.
    """
    about = store.about()
    form = bytes(about["form"])
    if not store.is_shuffler() or not form:
        return
    batches = ShuffledBatches(study, device_from_bytes(form).session)
    if batches.form(store.people_before(int(about["turn"]))) != form:
        raise ValueError(
            "database: this version of the library calibrates the study's noise in another way, and a "
            "shuffler has no record of it: finish the study with the version that began it"
        )


def _copied(file: Path, number: int) -> Path:
    """Copy a SQLite database, with the content of its write-ahead log, to a file in the same folder."""
    path = file.with_name(f"{file.name}.version-{number}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise ValueError(
            f"{str(path)!r}: exists: an earlier migration made this copy; move it away"
        ) from None
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    return path
