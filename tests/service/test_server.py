"""The server: keys, charges, log lines and its address."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from serving import a_key, begun, of_an_earlier_version, placed, table
from typer.testing import CliRunner

from discreet.cli import app as commands
from discreet.service import server as running
from discreet.service.app import Service
from discreet.service.server import key_of, migrate, opened, shuffler_key_at
from discreet.service.study_config import read_study
from discreet.utils.toml_file import to_toml

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def test_a_lost_key_is_never_replaced_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(to_toml(table(20)))
    study = read_study(path)
    with closing(opened(study, str(tmp_path / "a.db"))) as store:
        key = key_of(study, store)  # nobody was given one yet
        Service(study, store, key)
        assert store.public_key() == key.public
        Service(study, store, key_of(study, store))
        for name in ("service.key", "service.key.pub"):
            (tmp_path / name).unlink()
        with pytest.raises(ValueError, match=rf"is missing, and .*{key.public[:16]}.*no new key is made"):
            key_of(study, store)
        assert not (tmp_path / "service.key").exists()
        with pytest.raises(ValueError, match="is not the one that this study was begun with"):
            Service(study, store, a_key(tmp_path))
    with closing(opened(study, str(tmp_path / "a.db"))) as store:
        assert store.public_key() == key.public


def test_a_database_of_an_earlier_version_learns_its_key(tmp_path: Path) -> None:
    """It has no table of keys. Who took part was given one, so none is made."""
    path = tmp_path / "study.toml"
    path.write_text(to_toml(table(20, learner={"name": "private-ucb-vi"})))
    study = read_study(path)
    begun(study, tmp_path / "a.db").close()
    of_an_earlier_version(tmp_path / "a.db", "keys")
    migrate(study, str(tmp_path / "a.db"))
    with closing(opened(study, str(tmp_path / "a.db"))) as store:
        assert store.public_key() is None
        placed(store, store.new_tickets(1))
        with pytest.raises(ValueError, match="is missing, and this study was begun with a key: put"):
            key_of(study, store)
        key = a_key(tmp_path)
        Service(study, store, key_of(study, store))
        assert store.public_key() == key.public


def test_a_shuffler_makes_no_key_that_its_study_does_not_name(tmp_path: Path) -> None:
    own = shuffler_key_at(tmp_path / "elsewhere")
    path = tmp_path / "study.toml"
    path.write_text(to_toml(table(20, "shuffle", shuffler={"url": "https://shuffler", "key": own.public})))
    words = ["shuffler", str(path), "--service", "http://127.0.0.1:1", "--service-key", "ab" * 32]
    found = CliRunner().invoke(commands, words)
    assert found.exit_code == 2
    assert "put the file back whose public key the study names" in " ".join(found.output.split())
    assert not (tmp_path / "shuffler.key").exists()


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application."""


def test_log_lines_begin_with_time_and_level() -> None:
    record = logging.LogRecord("discreet.service", logging.ERROR, "", 1, "it %s", ("failed",), None)
    record.created, record.msecs = NOW, 7.0
    assert running.Lines().format(record) == "2023-11-14T22:13:20.007Z ERROR it failed"
    assert {"uvicorn", "discreet.service"} == set(running.LOGGING["loggers"])


def test_an_address_is_told_once_it_is_bound(service: Service) -> None:
    import socket

    told: list[str] = []

    async def run(port: int) -> None:
        config = uvicorn.Config(nothing, host="127.0.0.1", port=port, log_config=None, lifespan="off")
        server = running._Server(config, told.append, lambda: None)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        server.should_exit = True
        await server.shutdown()

    asyncio.run(run(0))
    (one,) = told
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9][0-9]+", one)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit):
            asyncio.run(run(taken.getsockname()[1]))
    assert told == [one]


def test_a_terminated_service_leaves_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write-ahead log is in the database before uvicorn raises the signal again."""
    (tmp_path / "study.toml").write_text(to_toml(table(20)))
    study, database = read_study(tmp_path / "study.toml"), tmp_path / "study.sqlite"
    monkeypatch.setattr(running, "LOGGING", None)
    left = list[list[str]]()

    def raised(*_: object) -> None:
        left.append([one.name for one in tmp_path.glob("study.sqlite-*") if one.stat().st_size])

    before = signal.signal(signal.SIGTERM, raised)
    try:
        running.serve(study, str(database), "127.0.0.1", 0, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
        gc.unfreeze()
    assert left == [[]]


def test_a_new_head_says_what_it_did(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(to_toml(table(20)))
    opened(read_study(path), str(tmp_path / "study.sqlite")).close()
    for words in ("there was none before", "study.sqlite.head.1' now"):
        found = CliRunner().invoke(commands, ["serve", str(path), "--new-head"])
        assert found.exit_code == 0, found.output
        assert words in "".join(found.output.split("\n")), found.output
    assert (tmp_path / "study.sqlite.head.1").exists()
