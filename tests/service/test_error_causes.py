"""Causes of errors are named without anything of a message."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from typing import Any

import pytest
import sqlalchemy as sql
from sqlalchemy.exc import OperationalError

from discreet.ledger.ledger import LedgerError
from discreet.service import database as stores
from discreet.service.app import Service
from discreet.service.database import ReservationRequest
from discreet.service.error_causes import cause
from discreet.service.ingest import Busy, Intake


def failure(code: str, kind: str = "sqlite_errorname") -> Exception:
    inner = sqlite3.OperationalError("of a person's 0.47")
    setattr(inner, kind, code)
    return OperationalError("INSERT 0.47", None, inner)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (failure("SQLITE_FULL"), "the disk of the database is full (OperationalError, SQLITE_FULL)"),
        (failure("SQLITE_IOERR_WRITE"), "the disk of the database fails"),
        (failure("SQLITE_READONLY"), "the database is read-only"),
        (failure("SQLITE_BUSY"), "another process keeps the database"),
        (failure("53100", "sqlstate"), "the disk of the database is full"),
        (failure("57P01", "sqlstate"), "the database server does not answer"),
        (failure("SQLITE_MISUSE"), "OperationalError"),
        (OSError(errno.ENOSPC, "of 0.47"), "the disk is full"),
        (LedgerError("ledger 'a': is not in order"), "ledger 'a': is not in order"),
        (RuntimeError("of 0.47"), "RuntimeError"),
    ],
)  # fmt: skip
def test_causes_are_named_and_nothing_of_a_message_is(error: Exception, words: str) -> None:
    assert cause(error).startswith(words)
    assert "0.47" not in cause(error)


def test_a_full_disk_is_named_as_such_once(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """By SQLite itself: the database may not grow, as on a disk that is full."""
    caplog.set_level(logging.INFO, "discreet.service")
    engine = service.store._engine
    connection = engine.raw_connection()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.close()

    def small(one: Any, _: Any) -> None:
        one.execute(f"PRAGMA max_page_count = {pages}")

    sql.event.listen(engine, "connect", small)
    engine.dispose()
    with pytest.raises(OperationalError) as found:
        service.store.new_tickets(10_000)
    assert cause(found.value) == "the disk of the database is full (OperationalError, SQLITE_FULL)"

    class Full:
        calls = 0

        def admit(self, requests: list[Any], *_: Any) -> Any:
            self.calls += 1
            if self.calls < 4:
                raise found.value
            return [stores.RequestResult("counted") for _ in requests]

    async def run() -> None:
        intake = Intake(Full(), 1.0, lambda: None)  # type: ignore[arg-type]
        intake.start()
        for _ in range(3):
            with pytest.raises(Busy):
                await intake.put([ReservationRequest(b"")])
        await intake.put([ReservationRequest(b"")])
        await intake.stop()

    asyncio.run(run())
    said = [one.getMessage() for one in caplog.records]
    assert said == [
        f"nothing that users send can be stored: {cause(found.value)}",
        "what users send is stored again",
    ]
