"""Processes of a study: open or create the database, read the key, use the ledger, and run uvicorn."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import uvicorn
from sqlalchemy.engine import make_url

from discreet.core import checks
from discreet.ledger.signatures import PrivateKey, is_key, new_key, read_private_key, short
from discreet.service import schema_migrations
from discreet.service.app import App, Service
from discreet.service.connection_limits import HEAD_BYTES, protocol
from discreet.service.database import Store
from discreet.service.embedding import Studies, asgi
from discreet.service.frozen_mechanism import first_program, note_program
from discreet.service.key_history import finish_rotation, rotate_key
from discreet.service.ledger_reservation import publish, reserve
from discreet.service.release_chain import OldDatabase, check_head, head_of, new_head
from discreet.service.release_worker import begin_study
from discreet.service.shuffler import ShufflerService
from discreet.service.study_config import Study
from discreet.service.system_io import SYSTEM, Io

__all__ = [
    "all_in_background", "begin_new_head", "both_in_background", "database_of", "in_background", "key_of",
    "migrate", "opened", "opened_shuffler", "rotate", "serve", "serve_all", "serve_shuffler",
    "shuffler_key_at", "without_password",
]  # fmt: skip

log = logging.getLogger("discreet.service")
AnyService = TypeVar("AnyService", bound=Service)


def database_of(study: Study, database: str | None) -> str:
    """Return ``database``, or the path of ``study.sqlite`` in the folder of the study file if ``database`` is
    empty or None.
    """
    return database or str(study.path("study.sqlite"))


def without_password(database: str) -> str:
    """Return a database's address without its password, for display."""
    return make_url(database).render_as_string() if "://" in database else database


def key_of(study: Study, store: Store | None = None) -> PrivateKey:
    """Return the service's private key, and create it if it does not exist.

    store : the service's database.

    Raises ``ValueError`` if the key file is missing but users received its public key or have taken part.
    Their devices would reject all signatures of a new key.
    """
    path = study.path(study.key)
    if store is not None:
        finish_rotation(path, store)
    if store is not None and not path.exists() and (store.public_key() or store.has_people()):
        known = store.public_key()
        whose = "" if known is None else f", {short(known)}"
        raise ValueError(
            f"service.key = {str(path)!r}: is missing, and this study was begun with a key{whose}: put the "
            "file back from a backup; no new key is made, because users' devices would reject it"
        )
    return _key_at(path, "service.key")


def shuffler_key_at(path: Path, *, make: bool = True) -> PrivateKey:
    """Return a shuffler's private key from its file.

    make : if True, a missing key is created. If False, a missing key raises ``ValueError``, because the study
        already names a public key.
    """
    if not make and not path.exists():
        raise ValueError(
            f"shuffler.key = {str(path)!r}: is missing: put the file back whose public key the study names"
        )
    return _key_at(path, "shuffler key")


def _key_at(path: Path, name: str) -> PrivateKey:
    if not path.exists():
        new_key(path)
    return read_private_key(path, name)


def opened(study: Study, database: str, io: Io = SYSTEM) -> Store:
    """Open the database of a study.

    If the database is empty, the study starts: its cost is reserved in the ledger, and release 0 is made.

    Raises ``ValueError`` if the database belongs to another study, or if the ledger's limit would be
    exceeded. Under local trust, raises ``LedgerError`` if another database of the study has already marked
    the same reservation.
    """
    store = Store(database, io)
    try:
        study.adopt(store.stored_identity())
        if not _is_begun(study, store, io):
            _begin(study, store, io)
        _note_time(study, store)
        store.batches = study.batches(store.close_rule(), store.begun())
        store.participation = study.participation
        if store.is_shuffler():
            raise ValueError("database: is that of the shuffler; the service needs one of its own, elsewhere")
        if study.local:  # each message reveals information to the server when it arrives
            about = store.about()
            publish(study, json.loads(about["ledger"]), bytes(about["ties"]))
        return store
    except BaseException:
        store.close()
        raise


def migrate(study: Study, database: str) -> tuple[int, Path | None]:
    """Change the tables of a database to this library's version (:mod:`discreet.service.schema_migrations`).

    Returns the previous version of the tables, and the path of a copy of the SQLite file, or None. Raises the
    ``ValueError`` of :func:`discreet.service.schema_migrations.migrate`.
    """
    store = Store(database)
    try:
        study.adopt(store.stored_identity())
        return schema_migrations.migrate(study, store)
    finally:
        store.close()


def rotate(study: Study, database: str, recovery_key: Path | None = None) -> str:
    """Replace the service's key; see :func:`discreet.service.key_history.rotate_key`."""
    store = Store(database)
    try:
        study.adopt(store.stored_identity())
        if not _is_begun(study, store):
            raise ValueError(f"database = {without_password(database)!r}: does not hold this study")
        return rotate_key(study, store, recovery_key)
    finally:
        store.close()


def begin_new_head(study: Study, database: str) -> tuple[Path, Path | None]:
    """Replace a lost head by a new one. The operator must be sure that no later database exists.

    Returns the path of the head, and the new name of the old file or None. Raises ``ValueError`` if the
    database does not contain the study, or is in memory, and :class:`OldDatabase` if it is older than its
    head.
    """
    store = Store(database)
    try:
        study.adopt(store.stored_identity())
        head = head_of(study, store)
        if head is None or not store.created(study.identity):
            raise ValueError(f"database = {without_password(database)!r}: does not hold this study")
        return head.path, new_head(store, head)
    finally:
        store.close()


def _note_time(study: Study, store: Store) -> None:
    """Record the study file's time to answer, if it is the first one or longer than before."""
    store.add_tables()
    known = store.standing().extended
    if study.answer_within > known:
        store.act("extend", known or study.answer_within, study.answer_within, study.closes_after)


def _is_begun(study: Study, store: Store, io: Io = SYSTEM) -> bool:
    """Return True if the database contains the study, and check that it is not older than its head.

    Raises :class:`OldDatabase` if it is, or if the database is empty and its head is not.
    """
    head = head_of(study, store, io)
    if head is None:
        return store.created(study.identity)
    seen = head.last()  # before the database
    head.check()
    begun = store.created(study.identity)
    if begun:
        check_head(store, head, seen)
    elif seen is not None:
        raise OldDatabase(f"database: is missing, but {head} has release {seen.number}: put it back")
    return begun


def _begin(study: Study, store: Store, io: Io) -> None:
    """Reserve the study's cost in the ledger, then make release 0.

    If another process makes release 0 first, this call stores nothing.
    """
    entry = reserve(study)
    try:
        begin_study(study, store, entry, io)
    except ValueError:
        if not store.created(study.identity):
            raise


def opened_shuffler(study: Study, database: str) -> Store:
    """Open the database of a study's shuffler; if the database is empty, create its tables.

    Raises ``ValueError`` if the database belongs to another study or to a service.
    """
    if not study.shuffled:
        raise ValueError("privatizer: must be 'shuffle', a shuffler is for no other")
    store = Store(database)
    try:
        study.adopt(store.stored_identity())
        if not _is_begun(study, store):
            store.create_shuffler(study.identity, first_program(study))
        elif not store.is_shuffler():
            raise ValueError("database: is that of the service; the shuffler needs one of its own, elsewhere")
        _note_time(study, store)
        return store
    except BaseException:
        store.close()
        raise


def _config(app: App, host: str, port: int, **more: Any) -> uvicorn.Config:
    logging.getLogger("discreet.service").setLevel(logging.INFO)
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,  # an access log would record the times of requests, which are private
        log_level="warning",
        http=protocol(),
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
        limit_concurrency=4_000,
        server_header=False,
        lifespan="on",
        **more,
    )


class Lines(logging.Formatter):
    """Formatter of log lines that begin with the time (UTC) and the level."""

    converter = staticmethod(lambda seconds: datetime.fromtimestamp(seconds, UTC).timetuple())

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": Lines}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": level, "propagate": False}
        for name, level in (("uvicorn", "WARNING"), ("discreet.service", "INFO"))
    },
}


class _Server(uvicorn.Server):
    """Server that reports its address when it begins to listen, and closes the database when it stops.

    After :meth:`shutdown`, uvicorn raises the signal again that ended the process.
    """

    def __init__(
        self, config: uvicorn.Config, listens: Callable[[str], None], close: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._listens, self._close = listens, close

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server like uvicorn, then close the database."""
        try:
            await super().shutdown(sockets)
        finally:
            self._close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server like uvicorn.

        On return, its port is bound, or uvicorn has decided to end the process.
        """
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            self._listens(f"http://{self.config.host}:{port}")


def serve(
    study: Study,
    database: str,
    host: str,
    port: int,
    listens: Callable[[str], None] = lambda _: None,
    *,
    accept_learner: bool = False,
) -> None:
    """Run the service of a study until a signal ends it.

    If the database is empty, the study starts: its cost is reserved in its ledger, and release 0 is made.

    Parameters
    ----------
    study : Study
        Study, as returned by :func:`read_study`. The service's key is created if it does not exist.
    database : str
        Path of a SQLite file, or SQLAlchemy URL of a SQLite or PostgreSQL database.
    host : str
        Address on which the server listens.
    port : int
        Port on which the server listens, 0 to 65535; 0 for any free port.
    listens : function of str
        Function that is called with the address when the port is bound.
    accept_learner : bool
        True if the operator accepts a learner that makes other plans of the stored releases than before
        (:mod:`discreet.service.frozen_mechanism`).

    Raises
    ------
    OldDatabase
        If the database is older than its head (:mod:`discreet.service.release_chain`).
    ValueError
        If the port is outside its range, the database is neither SQLite nor PostgreSQL, or the database
        belongs to another study. Also raised if the service's key file is missing although the study has
        started, or if the ledger's limit would be exceeded.
    LedgerError
        If the ledger cannot be used. Also raised, under local trust, if another database of the study has
        already marked the reservation.
    RuntimeError
        If the write-ahead log of a SQLite database cannot be emptied at the end, because another process
        reads it.
    """
    serve_all({"": (study, database)}, host, port, listens, accept_learner=accept_learner)


def serve_all(
    studies: Mapping[str, tuple[Study, str]],
    host: str,
    port: int,
    listens: Callable[[str], None] = lambda _: None,
    *,
    accept_learner: bool = False,
) -> None:
    """Run the services of several studies in this process until a signal ends it; see :func:`serve`.

    studies : study and database by name. A study has the address ``/name``, and one with an empty name ``/``.
    """
    checks.integer("port", port, 0, 65535)
    stores, made = dict[str, Store](), dict[str, Callable[[], Service]]()
    try:
        for name, (study, database) in studies.items():
            stores[name] = store = opened(study, database)
            made[name] = partial(_made, study, store, accept_learner=accept_learner)
    except BaseException:
        _closed(stores)
        raise
    _serve(stores, made, host, port, listens)


def _made(study: Study, store: Store, *, accept_learner: bool) -> Service:
    note_program(study, store, accept_learner=accept_learner)
    return Service(study, store, key_of(study, store))


def _closed(stores: Mapping[str, Store]) -> None:
    """Close all stores, and raise the first error afterwards."""
    with ExitStack() as stack:
        for store in stores.values():
            stack.callback(store.close)


def serve_shuffler(
    study: Study,
    database: str,
    key: PrivateKey,
    service: str,
    service_key: str,
    host: str,
    port: int,
    listens: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the shuffler of a study until a signal ends it.

    The shuffler receives single messages, and sends sums of whole batches to the service.

    Parameters
    ----------
    study : Study
        Study, as returned by :func:`read_study`. Its privatizer must have shuffle trust.
    database : str
        Path of a SQLite file, or SQLAlchemy URL of a SQLite or PostgreSQL database. It must not be the
        database of the service.
    key : PrivateKey
        The shuffler's private key; the study names its public key.
    service : str
        Address of the service, http or https.
    service_key : str
        The service's public key, 64 hexadecimal digits.
    host : str
        Address on which the server listens.
    port : int
        Port on which the server listens, 0 to 65535; 0 for any free port.
    listens : function of str
        Function that is called with the address when the port is bound.

    Raises
    ------
    ValueError
        If the port is outside its range, ``service`` is not an address, or ``service_key`` is not a public
        key or did not sign the plans in the database. Also raised if ``key`` is not the key in the study, if
        the study does not have shuffle trust, or if the database belongs to another study or to a service.
    RuntimeError
        If the write-ahead log of a SQLite database cannot be emptied at the end, because another process
        reads it.
    """
    checks.integer("port", port, 0, 65535)
    if not is_key(service_key):
        raise ValueError(f"service_key = {checks.said(service_key)}: must be 64 hexadecimal digits")
    if not service.startswith(("http://", "https://")):
        raise ValueError(f"service = {checks.said(service)}: must be an address, http(s)://...")
    store = opened_shuffler(study, database)
    made = {"": lambda: ShufflerService(study, store, key, service, service_key)}
    _serve({"": store}, made, host, port, listens)


def _serve(
    stores: Mapping[str, Store],
    made: Mapping[str, Callable[[], Service]],
    host: str,
    port: int,
    listens: Callable[[str], None],
) -> None:
    try:
        services = {name: one() for name, one in made.items()}
        app = asgi(services[""]) if "" in services else Studies(services)
        config = _config(app, host, port, log_config=LOGGING)
        for name, service in services.items():
            head, file = service.writer.head, stores[name].file
            if head is not None and file is not None and file.parent == head.path.parent:
                words = "%s is on the disk of the database: give [chain] head = a path on another one"
                log.warning(words, head)
        gc.collect()
        # the garbage collector no longer scans the imported objects, because that would delay requests
        gc.freeze()
        _Server(config, listens, partial(_closed, stores)).run()
    finally:
        _closed(stores)


@contextmanager
def in_background(
    study: Study, database: str | Path, key: PrivateKey, **more: Any
) -> Iterator[tuple[str, Service]]:
    """Run a service on a free port of this machine, in a thread. Yields the service's address and the
    service.
    """
    store = opened(study, str(database))
    with _in_background(store, Service(study, store, key, **more)) as found:
        yield found


@contextmanager
def both_in_background(
    study: Study, folder: Path, key: PrivateKey
) -> Iterator[tuple[str, ShufflerService, str, Service]]:
    """Run a service and its shuffler in threads; the two communicate over HTTP.

    Yields (the shuffler's address, shuffler, the service's address, service). The address and key of this
    shuffler replace those in the study.
    """
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        own = shuffler_key_at(folder / "shuffler.key")
        named = replace(study, shuffler={"url": url, "key": own.public})
        with in_background(named, folder / "study.sqlite", key) as (address, service):
            store = opened_shuffler(named, str(folder / "shuffler.sqlite"))
            shuffler = ShufflerService(named, store, own, address, key.public)
            with _in_background(store, shuffler, listening):
                until = SYSTEM.monotonic() + 300
                while shuffler.turn < 0:
                    if SYSTEM.monotonic() > until:
                        raise RuntimeError(f"the shuffler has no plans: {shuffler.failed}")
                    SYSTEM.pause(0.005)
                yield url, shuffler, address, service


@contextmanager
def all_in_background(
    study: Study, folder: Path, key: PrivateKey, io: Io = SYSTEM
) -> Iterator[tuple[str, Service, str, Service]]:
    """Run the service of a study and, under shuffle trust, its shuffler.

    Yields (address for users, process at this address, the service's address, service).

    io : system of a service without a shuffler.
    """
    if study.shuffled:
        with both_in_background(study, folder, key) as found:
            yield found
    else:
        with in_background(study, folder / "study.sqlite", key, io=io) as (url, service):
            yield url, service, url, service


@contextmanager
def _in_background(
    store: Store, service: AnyService, listening: socket.socket | None = None
) -> Iterator[tuple[str, AnyService]]:
    # No log configuration is passed, because uvicorn would then close all log handlers of the process.
    server = uvicorn.Server(_config(asgi(service), "127.0.0.1", 0, log_config=None))
    sockets = None if listening is None else [listening]
    thread = Thread(target=lambda: asyncio.run(server.serve(sockets)), daemon=True)
    thread.start()
    try:
        until = SYSTEM.monotonic() + 300
        while not server.started:
            if not thread.is_alive() or SYSTEM.monotonic() > until:
                raise RuntimeError("the service did not start")
            SYSTEM.pause(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", service
    finally:
        server.should_exit = True
        thread.join(30)
        store.close()
