"""The JavaScript client: its own tests, its types, and people in Node against the real service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from serving import a_key, a_study
from waiting import wait_until

from discreet.serve.rehearsal import promised_by
from discreet.serve.running import both_in_background, in_background

NODE = os.environ.get("DISCREET_NODE") or shutil.which("node")  # of another version, by its path
pytestmark = [pytest.mark.service, pytest.mark.skipif(NODE is None, reason="no node")]
FOLDER = Path(__file__).parents[2] / "clients" / "js"


def node(*arguments: Any) -> str:
    found = subprocess.run(
        [str(NODE), *map(str, arguments)], cwd=FOLDER, capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]
    return found.stdout


def test_its_own_tests_pass() -> None:
    said = node("--test", "--test-reporter=tap")
    assert "\n# fail 0\n" in said
    assert int(said.split("\n# pass ")[1].split("\n")[0]) > 70


def test_its_types_are_right_and_are_delivered(tmp_path: Path) -> None:
    tsc = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
    if not tsc.exists():
        pytest.skip("no TypeScript: npm ci in clients/js")
    node(tsc)
    node(tsc, "--project", "tsconfig.types.json", "--outDir", tmp_path)
    assert "class Client" in (tmp_path / "client.d.ts").read_text()
    assert "Client" in (tmp_path / "index.d.ts").read_text()


@pytest.mark.parametrize("randomizer", ["subset", "oue", "krr", "laplace"])
def test_people_in_node_are_counted(tmp_path: Path, randomizer: str) -> None:
    users = 8
    study = a_study(
        users + 1, "local", privatizer={"name": "local", "epsilon": 4.0, "randomizer": randomizer}
    )
    key = a_key(tmp_path)
    with in_background(study, tmp_path / "a.db", key) as (url, service):
        tickets = service.store.new_tickets(users)
        said = node("example/person.js", url, key.public, promised_by(study), *tickets)
        answers = [json.loads(line) for line in said.splitlines()]
        assert [one["status"] for one in answers] == ["counted"] * users
        wait_until(
            lambda: int(service.store.about()["turn"]) >= 4, lambda: service.failed
        )  # 1, 2, 4, 8 people
        release = service.store.release(int(service.store.about()["turn"]))
        assert release is not None
        assert json.loads(release[0])["users"] == users
        assert service.writer.refused == 0


@pytest.mark.parametrize("randomizer", ["bits", "amplified"])
def test_people_in_node_are_counted_by_a_shuffler(tmp_path: Path, randomizer: str) -> None:
    """Batches of 1, 1, 2 and 4 people; all flips of each are needed, so that a lost message would lose it."""
    users = 8
    privatizer = {"name": "shuffle", "epsilon": 1.0, "delta": 1e-6, "randomizer": randomizer}
    study = a_study(users + 1, "shuffle", privatizer=privatizer)
    key = a_key(tmp_path)
    with both_in_background(study, tmp_path, key) as (url, shuffler, address, service):
        tickets = shuffler.store.new_tickets(users)
        said = node("example/person.js", url, key.public, promised_by(study), *tickets)
        answers = [json.loads(line) for line in said.splitlines()]
        assert [one["status"] for one in answers] == ["counted"] * users
        failed = lambda: (service.failed, shuffler.failed)  # noqa: E731
        wait_until(lambda: int(service.store.about()["turn"]) >= 4, failed)
        release = service.store.release(int(service.store.about()["turn"]))
        assert release is not None
        found = json.loads(release[0])
        assert (found["users"], {one["covers"] for one in found["sums"].values()}) == (users, {users})
        assert shuffler.writer.refused == service.writer.refused == 0
        with pytest.raises(AssertionError, match="names another shuffler"):  # not where plans are published
            node("example/person.js", address, key.public, promised_by(study), tickets[0])
