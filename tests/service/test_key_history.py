"""Keys that replace keys, and clients that follow them and notice a service that was set back."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import a_study, a_writer, begun, table
from typer.testing import CliRunner

from discreet.cli import app as commands
from discreet.device import http_client
from discreet.device.http_client import Client, Pace, followed_key
from discreet.ledger.signatures import is_valid, new_key, read_private_key
from discreet.service.app import Service, application
from discreet.service.key_history import first_row, key_row, rotate_key, set_first_row
from discreet.service.server import key_of, opened
from discreet.service.study_config import Study, read_study
from discreet.utils.toml_file import to_toml

from .test_database import a_batch

STILL = Pace(lambda: 1.8e9, lambda _: None, lambda: 0.5)


class Direct(httpx.BaseTransport):
    """A transport to an application in this process."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx.ASGITransport(app)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def answered() -> tuple[httpx.Response, bytes]:
            found = await self._inner.handle_async_request(request)
            return found, await found.aread()

        found, content = asyncio.run(answered())
        return httpx.Response(found.status_code, headers=found.headers, content=content)


def asked(service: Service) -> httpx.Client:
    return httpx.Client(transport=Direct(application(service)), base_url="http://testserver")


def a_file(folder: Path, **service: Any) -> Study:
    """A study file in a folder, with its database."""
    path = folder / "study.toml"
    path.write_text(to_toml({**table(40), "service": service} if service else table(40)))
    return read_study(path)


def key(folder: Path, name: str) -> Any:
    new_key(folder / name)
    return read_private_key(folder / name)


@contextmanager
def answering(study: Study, folder: Path) -> Iterator[tuple[Service, Any]]:
    """A service, and clients that ask it without a network."""
    with closing(opened(study, str(folder / "study.sqlite"))) as store:
        service = Service(study, store, key_of(study, store))
        service.refresh()
        http = asked(service)
        yield (
            service,
            lambda *known, **more: Client(
                "http://testserver", *known, promised="central", http=http, pace=STILL, **more
            ),
        )


def test_rows_lead_from_any_key_to_the_current_one(tmp_path: Path) -> None:
    one, two, three, recovery, other = (key(tmp_path, name) for name in ("1", "2", "3", "r", "o"))
    rows = [
        key_row("id", 0, one, recovery.public, one),
        key_row("id", 1, two, recovery.public, one),
        key_row("id", 2, three, None, recovery),
    ]
    for known in (one, two, three):
        assert followed_key(rows, known.public) == three.public
        assert followed_key(rows, known.public, "id") == three.public
    assert followed_key(rows[:2], one.public) == two.public
    assert followed_key(rows, other.public) is None
    assert followed_key(rows, one.public, "another study") is None
    # nobody without the key before or its recovery key makes a row
    assert followed_key([*rows, key_row("id", 3, other, None, other)], one.public) is None
    assert followed_key([*rows, key_row("id", 3, other, None, recovery)], one.public) is None
    assert followed_key([rows[0], rows[2]], two.public) is None
    for bad in ([{}], [None], [{"content": {"public": one.public}}], [{**rows[0], "own": "zz"}]):
        assert followed_key(bad, one.public) is None


def test_a_row_that_was_changed_is_refused(tmp_path: Path) -> None:
    one, two, recovery = (key(tmp_path, name) for name in ("1", "2", "r"))
    rows = [key_row("id", 0, one, recovery.public, one), key_row("id", 1, two, recovery.public, recovery)]
    for place in (0, 1):
        for name, value in (
            ("recovery", two.public),
            ("number", 7),
            ("identity", "other"),
            ("public", "ab" * 32),
        ):
            changed = copy.deepcopy(rows)
            changed[place]["content"][name] = value
            assert followed_key(changed, one.public) is None, (place, name)
    for name in ("own", "signature", "signer"):
        changed = copy.deepcopy(rows)
        changed[1][name] = rows[0][name]
        assert followed_key(changed, one.public) is None, name


def test_a_client_follows_a_new_key(tmp_path: Path) -> None:
    study = a_file(tmp_path)
    with answering(study, tmp_path) as (service, client):
        old = service._key.public
        assert client(old).plan()["turn"] == 0
    found = CliRunner().invoke(commands, ["serve", str(tmp_path / "study.toml"), "--rotate-key"])
    assert found.exit_code == 0, found.output
    assert (tmp_path / "service.key.0").exists()
    with answering(study, tmp_path) as (service, client):
        assert service._key.public != old
        assert client(old).plan()["turn"] == 0
        assert client(service._key.public).plan()["turn"] == 0
        with pytest.raises(ValueError, match="is not signed with the service's key"):
            client("ab" * 32).plan()
        assert [one["content"]["number"] for one in service.store.key_rows()] == [0, 1]


def test_a_lost_key_is_replaced_with_the_recovery_key(tmp_path: Path) -> None:
    recovery, stranger = key(tmp_path, "recovery"), key(tmp_path, "stranger")
    study = a_file(tmp_path, recovery=recovery.public)
    with answering(study, tmp_path) as (service, _):
        old = service._key.public
    for name in ("service.key", "service.key.pub"):
        (tmp_path / name).unlink()
    with (
        pytest.raises(ValueError, match="is missing, and this study was begun with a key"),
        answering(study, tmp_path),
    ):
        pass
    words = ["serve", str(tmp_path / "study.toml"), "--rotate-key", "--recovery-key"]
    found = CliRunner().invoke(commands, [*words, str(tmp_path / "stranger")])
    assert found.exit_code == 2
    assert "is neither the current key" in " ".join(found.output.split()), stranger
    assert CliRunner().invoke(commands, [*words, str(tmp_path / "recovery")]).exit_code == 0
    with answering(study, tmp_path) as (service, client):
        assert client(old).plan()["turn"] == 0


def test_a_rotation_that_was_killed_is_finished(tmp_path: Path) -> None:
    """The database has the new key, and the files have not been renamed."""
    study = a_file(tmp_path)
    with answering(study, tmp_path) as (service, _):
        old = service._key.public
    files = {one: (tmp_path / one).read_bytes() for one in ("service.key", "service.key.pub")}
    with closing(opened(study, str(tmp_path / "study.sqlite"))) as store:
        public = rotate_key(study, store)
        for name, content in files.items():
            (tmp_path / name).rename(tmp_path / name.replace("service.key", "service.key.new"))
            (tmp_path / name.replace("service.key", "service.key.0")).rename(tmp_path / name)
            assert (tmp_path / name).read_bytes() == content
        assert key_of(study, store).public == public
        assert read_private_key(tmp_path / "service.key.0").public == old


@pytest.mark.parametrize("renamed", range(4))
@pytest.mark.parametrize("again", [False, True])
def test_a_rotation_killed_between_two_renames_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: int, again: bool
) -> None:
    class Killed(BaseException):
        pass

    study, left = a_file(tmp_path), [renamed]
    with answering(study, tmp_path) as (service, _):
        old = service._key.public
    replace = os.replace

    def killed(source: Path, target: Path) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        replace(source, target)

    with closing(opened(study, str(tmp_path / "study.sqlite"))) as store:
        monkeypatch.setattr(os, "replace", killed)
        with pytest.raises(Killed):
            rotate_key(study, store)
        monkeypatch.undo()
        if again:  # the operator repeats the command, instead of a start
            assert rotate_key(study, store) == store.public_key()
        public = key_of(study, store).public
        assert public == store.public_key() != old
        assert len(store.key_rows()) == 2
        assert read_private_key(tmp_path / "service.key.0").public == old
        assert http_client._public_key(tmp_path / "service.key.pub").hex() == public
        assert http_client._public_key(tmp_path / "service.key.0.pub").hex() == old
    assert not list(tmp_path.glob("service.key.new*"))


@pytest.mark.parametrize("calls", range(14))
@pytest.mark.parametrize("partial", [False, True])
def test_a_rotation_killed_while_its_key_is_made_leaves_one_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, partial: bool
) -> None:
    """Killed before any system call that makes, fills or renames a file of the new key, or within a write."""

    class Killed(BaseException):
        pass

    study, left = a_file(tmp_path), [calls]
    with answering(study, tmp_path) as (service, _):
        old = service._key.public

    def counted(name: str) -> Any:
        real = getattr(os, name)

        def called(*given: Any, **more: Any) -> Any:
            mine = any("service.key" in str(one) for one in given) or name == "fsync"
            if mine and not left[0]:
                if partial and name == "fsync":
                    with suppress(OSError):  # a folder
                        os.truncate(given[0], 10)
                raise Killed
            left[0] -= mine
            return real(*given, **more)

        return called

    with closing(opened(study, str(tmp_path / "study.sqlite"))) as store:
        for name in ("open", "fsync", "rename", "replace"):
            monkeypatch.setattr(os, name, counted(name))
        with suppress(Killed):
            rotate_key(study, store)
        left[0] = 10**6
        monkeypatch.undo()
        # a start in between has the old key or the new one, as the database says
        assert key_of(study, store).public == store.public_key()
        public = store.public_key() if store.public_key() != old else rotate_key(study, store)
        assert key_of(study, store).public == public == store.public_key() != old
        rows = store.key_rows()
        assert [one["content"]["public"] for one in rows] == [old, public]
        assert followed_key(rows, old) == public
        assert read_private_key(tmp_path / "service.key.0").public == old
        assert http_client._public_key(tmp_path / "service.key.pub").hex() == public
        assert http_client._public_key(tmp_path / "service.key.0.pub").hex() == old
    assert not [*tmp_path.glob("service.key.new*"), *tmp_path.glob("service.key.making*")]


@pytest.mark.parametrize("name", ["service.key", "service.key.new"])
def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path, name: str) -> None:
    study = a_file(tmp_path)
    with answering(study, tmp_path):
        pass
    if name.endswith("new"):
        new_key(tmp_path / name)
    (tmp_path / name).chmod(0o644)
    with closing(opened(study, str(tmp_path / "study.sqlite"))) as store:
        with pytest.raises(ValueError, match=r"mode 0644\), must have mode 0600"):
            key_of(study, store)
        with pytest.raises(ValueError, match=r"mode 0644\), must have mode 0600"):
            rotate_key(study, store)
        assert len(store.key_rows()) == 1


def test_the_recovery_key_changes_only_with_a_signature(tmp_path: Path) -> None:
    study = a_file(tmp_path)
    with answering(study, tmp_path):
        pass
    recovery = key(tmp_path, "recovery")
    other = a_file(tmp_path, recovery=recovery.public)
    assert other.identity == study.identity
    with pytest.raises(ValueError, match="--rotate-key changes it"), answering(other, tmp_path):
        pass
    with closing(opened(other, str(tmp_path / "study.sqlite"))) as store:
        rotate_key(other, store)
        set_first_row(other, store, key_of(other, store))
        assert store.key_rows()[-1]["content"]["recovery"] == recovery.public
    with pytest.raises(ValueError, match=r"service\.recovery = 'ab'"):
        a_file(tmp_path, recovery="ab")


def test_a_served_study_and_a_shuffled_one_keep_their_key(tmp_path: Path) -> None:
    study = a_file(tmp_path)
    with answering(study, tmp_path) as (service, _):
        assert service.writer.hold()
        with pytest.raises(ValueError, match="is being served"):
            rotate_key(study, service.store)
        assert first_row(study, service._key) == service.store.key_rows()[0]
        with pytest.raises(ValueError, match="not for shuffle trust"):
            rotate_key(a_study(40, "shuffle"), service.store)


def test_a_client_notices_a_service_that_was_set_back(tmp_path: Path) -> None:
    study = a_study()
    path = tmp_path / "a.db"
    with closing(begun(study, path)) as store:
        service = Service(study, store, key(tmp_path, "service.key"))
        http = asked(service)
        service.refresh()
        client = Client("http://testserver", promised="central", http=http, pace=STILL)
        assert client.plan()["chain"] == {"turn": 0, "link": store.link(0)}
        store.close()
        shutil.copy(path, tmp_path / "backup")
        writer = a_writer(study, store)
        for turn in (1, 2):
            a_batch(study, store)
            assert writer.step()
            service.refresh()
            assert client.plan()["turn"] == turn
            assert client.witness == (turn, store.link(turn))
        kept = client.witness
        stored = json.loads(json.dumps(kept))  # a list
        same = Client("http://testserver", promised="central", http=http, pace=STILL, witness=stored)
        assert same.plan()["turn"] == 2
        assert same.witness == kept
        signed = http.get("/log?from=1").json()
        log = signed["content"]
        assert is_valid(service._key.public, "discreet log, 1", log, signed["signature"])
        assert log["identity"] == study.identity
        assert log["links"] == [[1, store.link(1)], [2, store.link(2)]]
        assert log["programs"] == store.programs()
        assert [one["content"]["number"] for one in log["keys"]] == [0]
        assert http.get("/log?from=x").status_code == 400
    shutil.copy(tmp_path / "backup", path)
    with closing(opened(study, str(path))) as store:
        service = Service(study, store, read_private_key(tmp_path / "service.key"))
        http = asked(service)
        service.refresh()
        again = Client("http://testserver", promised="central", http=http, pace=STILL, witness=kept)
        with pytest.raises(ValueError, match="is of release 0, after one of release 2: it was set back"):
            again.plan()
        assert again.witness == kept
        writer = a_writer(study, store)
        for _ in range(3):  # it draws noise again, and goes further than before
            a_batch(study, store)
            assert writer.step()
        service.refresh()
        with pytest.raises(ValueError, match="does not contain release 2 as it was seen"):
            again.plan()
        fresh = Client("http://testserver", promised="central", http=http, pace=STILL)
        assert fresh.plan()["turn"] == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda log: log["content"]["links"].append([9, "a" * 64]),
            "log: is not signed with the service's key",
        ),
        (lambda log: log.update(signature="00" * 64), "log: is not signed with the service's key"),
        (lambda log: None, None),
    ],
)
def test_a_client_with_a_key_reads_only_a_signed_log(tmp_path: Path, change: Any, words: str | None) -> None:
    study = a_study()
    with closing(begun(study, tmp_path / "a.db")) as store:
        service = Service(study, store, key(tmp_path, "service.key"))
        inner = Direct(application(service))

        def between(request: httpx.Request) -> httpx.Response:
            found = inner.handle_request(request)
            if request.url.path != "/log":
                return found
            log = found.json()
            change(log)
            return httpx.Response(200, json=log)

        http = httpx.Client(transport=httpx.MockTransport(between), base_url="http://testserver")
        known = service._key.public
        client = Client("http://testserver", known, promised="central", http=http, pace=STILL)
        service.refresh()
        client.plan()
        a_batch(study, store)
        assert a_writer(study, store).step()
        service.refresh()
        if words is None:
            assert client.plan()["turn"] == 1
        else:
            with pytest.raises(ValueError, match=words):
                client.plan()


def test_an_earlier_plan_of_a_cache_is_asked_for_again() -> None:
    content = {"identity": "i", "trust": "joint", "plans": [], "world": {}, "form": None}
    turns = iter([5, 4, 4, 5])

    def answer(request: httpx.Request) -> httpx.Response:
        chain = {"turn": next(turns), "link": "a"}
        chain["link"] = f"{chain['turn']:064x}"
        return httpx.Response(200, json={"content": {**content, "chain": chain}, "signature": ""})

    http = httpx.Client(transport=httpx.MockTransport(answer), base_url="http://testserver")
    client = Client("http://testserver", promised="central", http=http, pace=STILL)
    client.plan()
    client.plan()
    assert client.witness == (5, f"{5:064x}")
    assert list(turns) == []
    assert http_client._EARLIER == 4
