"""Databases of earlier versions are migrated by the operator only, and go on bit for bit.

``old/`` holds databases that versions 0.2.0 and 0.3.0 made, at release 3 with two people in the open batch,
and digests of what these versions released and planned afterwards (seeded noise, the same people).
"""

from __future__ import annotations

import hashlib
import json
import lzma
import socket
import sqlite3
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from serving import Clocked, a_study, a_writer, begun, of_an_earlier_version, stopped, table
from typer.testing import CliRunner
from waiting import wait_until

from discreet.cli import app as commands
from discreet.device.http_client import Client, PlanReservation
from discreet.ledger.signatures import read_private_key
from discreet.service import server
from discreet.service.database import SCHEMA, Store
from discreet.service.dry_run import people_of, promised_by
from discreet.service.frozen_mechanism import note_program
from discreet.service.schema_migrations import MIGRATIONS, migrate
from discreet.service.server import in_background, opened, opened_shuffler
from discreet.service.shuffler import ShufflerService
from discreet.service.study_config import Study, study_of
from discreet.utils.toml_file import to_toml

from .test_database import a_batch

OLD = Path(__file__).parent / "old"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in OLD.glob("*.json.xz"))


class Old:
    """An unpacked database of an earlier version, with its study and its keys."""

    def __init__(self, name: str, folder: Path) -> None:
        self.facts = json.loads(lzma.decompress((OLD / f"{name}.json.xz").read_bytes()))
        for part in OLD.glob(f"{name}.*.xz"):
            if part.suffixes[-2] != ".json":
                target = folder / f"{part.suffixes[-2][1:]}.sqlite"
                target.write_bytes(lzma.decompress(part.read_bytes()))
        self.study = replace(study_of(self.facts["table"]).for_dry_run(), shuffler=self.facts["shuffler"])
        self.folder, self.database = folder, str(folder / "study.sqlite")

    def key(self, name: str) -> Any:
        path = self.folder / f"{name}.key"
        path.touch(0o600)
        path.write_text(self.facts[name])
        return read_private_key(path)


def digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def come(study: Study, client: Client, tickets: list[str], first: int, until: int, ran: list[Any]) -> None:
    """The same people as in the earlier version's run."""
    while first < until:
        assert not any(one.failed for one in ran), [one.failed for one in ran]
        (place,) = client.places([tickets[first]])
        if not isinstance(place, PlanReservation):
            assert place.reason == "full", place
            time.sleep(0.02)
            continue
        record, draws = people_of(study, place, first)
        own = None if study.trust == "joint" else draws
        assert client.send(place.message(record.states, record.actions, record.rewards, own))
        first += 1


def continued(old: Old, users: int = 50) -> None:
    """Migrate a database, serve it to more people, and compare with what its own version did."""
    study, facts = old.study, old.facts
    with pytest.raises(ValueError, match="has tables of version 0.*run once with --migrate"):
        opened(study, old.database)
    before, copy = server.migrate(study, old.database)
    assert (before, copy) == (0, Path(f"{old.database}.version-0"))
    with ExitStack() as stack:
        url, service = stack.enter_context(in_background(study, old.database, old.key("private")))
        ran: list[Any] = [service]
        if study.shuffled:
            where, own = str(old.folder / "shuffler.sqlite"), old.key("shuffler_private")
            server.migrate(study, where)
            store = opened_shuffler(study, where)
            shuffler = ShufflerService(study, store, own, url, service._key.public)
            ran.append(shuffler)
            listening = stack.enter_context(socket.socket())
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("127.0.0.1", urlsplit(study.shuffler["url"]).port))  # plans name this address
            url, _ = stack.enter_context(server._in_background(store, shuffler, listening))
        named = study.shuffler["url"] if study.shuffler else None
        with Client(url, service._key.public, promised=promised_by(study), shuffler=named) as client:
            come(study, client, facts["tickets"], facts["came"], facts["came"] + users, ran)
        wait_until(lambda: service.store.about()["turn"] >= 6)
        for number in range(1, 7):
            body = json.loads(service.store.release(number)[0])  # type: ignore[index]
            body.pop("time")
            assert digest(body) == facts["releases"][str(number)], number
        for number in range(7):
            plans = [json.loads(row["policy"]) for row in service.store.policies(number)]
            assert digest(plans) == facts["plans"][str(number)], number
        assert [one["version"] for one in service.store.programs()] == ["unknown"]


def test_a_shuffler_of_another_calibration_is_not_migrated(tmp_path: Path) -> None:
    """0.2.0 chose other noise bits. The service has them in its session, the shuffler nowhere."""
    old = Old("0_2_0-shuffle", tmp_path)
    server.migrate(old.study, old.database)
    with pytest.raises(ValueError, match="finish the study with the version that began it"):
        server.migrate(old.study, str(tmp_path / "shuffler.sqlite"))
    with closing(Store(tmp_path / "shuffler.sqlite")) as store:
        assert store.schema() == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "0_2_0-shuffle"])
def test_a_database_of_an_earlier_version_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    continued(Old(name, tmp_path))


def test_every_trust_of_both_versions_is_there() -> None:
    wanted = {
        f"{version}-{trust}" for version in ("0_2_0", "0_3_0") for trust in ("central", "local", "shuffle")
    }
    assert wanted <= set(NAMES)


def test_nothing_is_migrated_while_a_process_serves(tmp_path: Path) -> None:
    study, path = a_study(), tmp_path / "a.db"
    with closing(begun(study, path)) as store:
        a_batch(study, store)
    of_an_earlier_version(path)
    with closing(Store(path, stopped)) as store:
        assert store.schema() == 0
        token = store.lease("one", stopped.now(), 5.0)
        assert token is not None
        with pytest.raises(ValueError, match="is being served"):
            migrate(study, store)
        store.release_lease(token, stopped.now())
        assert not Path(f"{path}.version-0").exists()
        with pytest.raises(ValueError, match="serves another study"):
            migrate(a_study(41), store)
        assert migrate(study, store) == (0, Path(f"{path}.version-0"))
        assert migrate(study, store) == (SCHEMA, None)
        assert store.schema() == SCHEMA == len(MIGRATIONS)
        assert store.link(0) is not None
    with closing(sqlite3.connect(f"{path}.version-0")) as copy:
        assert copy.execute("SELECT count(*) FROM messages").fetchone()[0] > 0
        assert copy.execute("SELECT name FROM sqlite_master WHERE name = 'schema'").fetchone() is None
    assert Path(f"{path}.version-0").stat().st_mode & 0o777 == 0o600


def test_a_study_whose_learner_makes_other_plans_now_needs_the_operator(tmp_path: Path) -> None:
    """noise-aware explores otherwise than in 0.3.0, whose databases hold no version of a learner."""
    study, path = a_study(), tmp_path / "a.db"
    begun(study, path).close()
    of_an_earlier_version(path)
    with closing(Store(path, stopped)) as store:
        migrate(study, store)
        assert [one["learner_version"] for one in store.programs()] == [1]
        with pytest.raises(
            ValueError, match="of noise-aware cannot go on .* start once with --accept-learner"
        ):
            note_program(study, store)
        note_program(study, store, accept_learner=True)
        a_batch(study, store)
        assert a_writer(study, store).step()


def test_the_lease_is_read_with_the_clock_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine whose clock is an hour fast does not migrate a database that another machine serves."""
    study, path = a_study(), tmp_path / "a.db"
    begun(study, path).close()
    of_an_earlier_version(path)
    fast = Clocked(lambda: stopped.now() + 3600.0)
    with closing(Store(path, fast)) as store:
        token = store.lease("one", stopped.now(), 5.0)
        assert token is not None
        monkeypatch.setattr(store, "clocked", lambda io: stopped)
        with pytest.raises(ValueError, match="is being served"):
            migrate(study, store)
        assert not Path(f"{path}.version-0").exists()
        monkeypatch.undo()
        assert migrate(study, store) == (0, Path(f"{path}.version-0"))


def test_a_copy_is_never_overwritten_and_a_failed_migration_changes_nothing(tmp_path: Path) -> None:
    study, path = a_study(), tmp_path / "a.db"
    begun(study, path).close()
    of_an_earlier_version(path)
    (tmp_path / "a.db.version-0").write_bytes(b"kept")
    with closing(Store(path)) as store, pytest.raises(ValueError, match="move it away"):
        migrate(study, store)
    (tmp_path / "a.db.version-0").unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE state SET session = x'00'")
    with closing(Store(path)) as store:
        with pytest.raises(ValueError, match="is not a saved state"):
            migrate(study, store)
        assert store.schema() == 0


def test_a_later_version_and_an_empty_database_are_refused(tmp_path: Path) -> None:
    study, path = a_study(), tmp_path / "a.db"
    with closing(Store(path)) as store, pytest.raises(ValueError, match="is empty"):
        migrate(study, store)
    begun(study, path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE schema SET number = 99")
    with pytest.raises(ValueError, match="use the later library"):
        opened(study, str(path))
    with closing(Store(path)) as store, pytest.raises(ValueError, match=f"knows {SCHEMA} at most"):
        migrate(study, store)


def test_the_command_migrates_a_million_tickets_in_seconds(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(to_toml(table(40)))
    begun(study_of(table(40)), tmp_path / "study.sqlite").close()
    with closing(sqlite3.connect(tmp_path / "study.sqlite")) as connection, connection:
        rows = ((number.to_bytes(32, "big"),) for number in range(1_000_000))
        connection.executemany("INSERT INTO tickets (hash, state) VALUES (?, 0)", rows)
    of_an_earlier_version(tmp_path / "study.sqlite")
    found = CliRunner().invoke(commands, ["serve", str(study), "--tickets", "1"])
    assert found.exit_code == 2
    assert "run once with --migrate" in " ".join(found.output.split())
    begun_at = time.monotonic()
    found = CliRunner().invoke(commands, ["serve", str(study), "--migrate"])
    assert found.exit_code == 0, found.output
    assert time.monotonic() - begun_at < 30  # 5 s on an idle machine
    assert "delete it when all is well" in " ".join(found.output.split())
    found = CliRunner().invoke(commands, ["serve", str(study), "--migrate"])
    assert "nothing to do" in found.output
    assert CliRunner().invoke(commands, ["serve", str(study), "--tickets", "1"]).exit_code == 0
