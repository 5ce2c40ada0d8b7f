"""A study's service as a process: the database made or opened, the key, the ledger, uvicorn."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn

from discreet.core import checks
from discreet.serve.app import Door, Service, application
from discreet.serve.store import Store
from discreet.serve.study import Study
from discreet.serve.turns import begin_study
from discreet.storage.ledger import Ledger
from discreet.storage.signatures import PrivateKey, new_key, read_private_key

__all__ = ["database_of", "in_background", "key_of", "opened", "serve"]


def database_of(study: Study, database: str | None) -> str:
    """The database that is meant: beside the study file unless it is named."""
    return database or str(study.path("study.sqlite"))


def key_of(study: Study) -> PrivateKey:
    """The service's key; made where there is none."""
    path = study.path(study.key)
    if not path.exists():
        new_key(path)
    return read_private_key(path, "service.key")


def opened(study: Study, database: str) -> Store:
    """The database of a study, begun where it is empty: the ledger first, then release 0.

    Raises ``ValueError`` where it serves another study, or the ledger's limit would be passed.
    """
    store = Store(database)
    try:
        if not store.created(study.identity):
            begin_study(study, store, time.time(), _reserved(study))
        return store
    except BaseException:
        store.close()
        raise


def _reserved(study: Study) -> dict[str, Any] | None:
    """The whole study's cost, in the ledger before any noise is drawn."""
    if study.ledger is None:
        return None
    path = study.ledger.get("path")
    guarantee = study.guarantee
    with Ledger.open(None if path is None else study.path(str(path))) as ledger:
        made = ledger.reserve(
            study.ledger["dataset"],
            guarantee.records,  # type: ignore[arg-type]  # a ledger refuses others
            delta=guarantee.delta,
            users=study.users,
            purpose=f"service, study {study.identity[:16]}",
        )
        return {
            "dataset": made.dataset, "number": made.number, "hash": made.hash, "identity": ledger.identity,
        }  # fmt: skip


def _config(service: Service, host: str, port: int) -> uvicorn.Config:
    logging.getLogger("discreet.serve").setLevel(logging.INFO)
    return uvicorn.Config(
        Door(application(service)),
        host=host,
        port=port,
        access_log=False,  # who asked when is nobody's business
        log_level="warning",
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
        limit_concurrency=4_000,
        server_header=False,
        lifespan="on",
    )


def serve(study: Study, database: str, host: str, port: int) -> None:
    """Serve until a signal ends it."""
    checks.integer("port", port, 0, 65535)
    store = opened(study, database)
    try:
        service = Service(study, store, key_of(study))
        config = _config(service, host, port)
        gc.collect()
        gc.freeze()  # what was imported stays: looking through it again would hold requests up
        uvicorn.Server(config).run()
    finally:
        store.close()


@contextmanager
def in_background(
    study: Study, database: str | Path, key: PrivateKey, **more: Any
) -> Iterator[tuple[str, Service]]:
    """A running service on a free port of this machine, in a thread: (its address, it)."""
    store = opened(study, str(database))
    service = Service(study, store, key, **more)
    server = uvicorn.Server(_config(service, "127.0.0.1", 0))
    thread = Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not server.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the service did not start")
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", service
    finally:
        server.should_exit = True
        thread.join(30)
        store.close()
