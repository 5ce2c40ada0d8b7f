"""The JavaScript client: its own tests, its types, and people in Node against the real service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from serving import a_key, a_study, context_table
from waiting import wait_until

from discreet.service.dry_run import promised_by
from discreet.service.server import both_in_background, in_background
from discreet.service.study_config import study_of

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


def test_the_package_is_whole_and_every_kind_of_module_takes_it(tmp_path: Path) -> None:
    """What npm would publish: a licence, ``import``, ``require``, and bundles of each format for browsers."""
    npm, tools = shutil.which("npm"), FOLDER / "node_modules" / ".bin"
    if npm is None or not (tools / "esbuild").exists():
        pytest.skip("no tools: npm ci in clients/js")
    subprocess.run(
        [npm, "pack", "--silent", "--pack-destination", tmp_path], cwd=FOLDER, check=True, capture_output=True
    )
    (packed,) = tmp_path.glob("*.tgz")
    home = tmp_path / "node_modules"
    home.mkdir()
    with tarfile.open(packed) as archive:
        archive.extractall(home, filter="data")
    (home / "package").rename(home / "discreet-client")
    kept = home / "discreet-client"
    assert (kept / "LICENSE").read_text() == (FOLDER.parents[1] / "LICENSE").read_text()
    subprocess.run([tools / "publint", "--strict", kept], check=True, capture_output=True)
    names = (
        "Client,ContextDevice,CountDevice,FeatureMap,Guarantee,Guest,Message,NoAnswer,Place,ReportDevice,"
        "ShuffleEncoder,SkellamDevice,Turned,deviceOf"
    )
    show = "console.log(Object.keys(found).sort().join());"
    (tmp_path / "a.cjs").write_text(f'const found = require("discreet-client"); {show}')
    (tmp_path / "a.mjs").write_text(f'import * as found from "discreet-client"; {show}')
    for name in ("a.cjs", "a.mjs"):
        assert node("--no-experimental-require-module", tmp_path / name).strip() == names
    for form in ("esm", "cjs", "iife"):
        bundle = tmp_path / f"bundle.{form}.js"
        made = subprocess.run(
            [tools / "esbuild", tmp_path / "a.mjs", "--bundle", "--platform=browser", f"--format={form}",
             "--log-level=warning", f"--outfile={bundle}"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert made.stderr == ""
    # as a browser runs a script: no module, no require, no process
    text = "require('fs').readFileSync(process.argv[1], 'utf8')"
    run = f"require('vm').runInNewContext({text}, {{ console, crypto }})"
    assert node("-e", run, tmp_path / "bundle.iife.js").strip() == names


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


@pytest.mark.parametrize("form", ["per_action", "shared"])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_people_in_node_with_contexts_are_counted(tmp_path: Path, trust: str, form: str) -> None:
    content = context_table(40, trust)
    content["context"]["form"] = form
    study, users = study_of(content), 12
    key = a_key(tmp_path)
    with in_background(study, tmp_path / "a.db", key) as (url, service):
        tickets = service.store.new_tickets(users)
        said = node("example/person.js", url, key.public, promised_by(study), *tickets)
        answers = [json.loads(line) for line in said.splitlines()]
        assert [one["status"] for one in answers] == ["counted"] * users
        wait_until(lambda: int(service.store.about()["turn"]) >= 2, lambda: service.failed)  # 8, 12 people
        release = service.store.release(2)
        assert release is not None
        assert json.loads(release[0])["users"] == users
        assert service.writer.refused == 0


@pytest.mark.parametrize("kind", ["bits", "amplified", "per_action", "shared"])
def test_people_in_node_are_counted_by_a_shuffler(tmp_path: Path, kind: str) -> None:
    """All noise of each batch is needed, so that a lost message would lose it."""
    if kind in ("bits", "amplified"):  # batches of 1, 1, 2 and 4 people
        users, last = 8, 4
        privatizer = {"name": "shuffle", "epsilon": 1.0, "delta": 1e-6, "randomizer": kind}
        study = a_study(users + 1, "shuffle", privatizer=privatizer)
    else:  # of 8 and 4 people with contexts
        users, last = 12, 2
        content = context_table(40, "shuffle")
        content["context"]["form"] = kind
        study = study_of(content)
    key = a_key(tmp_path)
    with both_in_background(study, tmp_path, key) as (url, shuffler, address, service):
        tickets = shuffler.store.new_tickets(users)
        said = node("example/person.js", url, key.public, promised_by(study), *tickets)
        answers = [json.loads(line) for line in said.splitlines()]
        assert [one["status"] for one in answers] == ["counted"] * users
        failed = lambda: (service.failed, shuffler.failed)  # noqa: E731
        wait_until(lambda: int(service.store.about()["turn"]) >= last, failed)
        release = service.store.release(int(service.store.about()["turn"]))
        assert release is not None
        found = json.loads(release[0])
        assert (found["users"], {one["covers"] for one in found["sums"].values()}) == (users, {users})
        assert shuffler.writer.refused == service.writer.refused == 0
        with pytest.raises(AssertionError, match="names another shuffler"):  # not where plans are published
            node("example/person.js", address, key.public, promised_by(study), tickets[0])
