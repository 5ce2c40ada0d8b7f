"""``discreet serve``: the statement before anybody comes, tickets, the ledger, a rehearsal."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from late_requests import requests_are_never_late  # noqa: F401 - a fixture for all tests of this file
from serving import ENV, table
from typer.testing import CliRunner

import discreet as dr
from discreet.cli import app, service
from discreet.service import database
from discreet.service.database import ReservationRequest, Store, hashed
from discreet.service.server import database_of, key_of, opened
from discreet.service.study_config import read_study
from discreet.utils.toml_file import to_toml


@pytest.fixture(autouse=True)
def _nobody_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_SYNCHRONOUS", "OFF")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study file with a ledger."""
    content = table(20, ledger={"dataset": "people-1", "path": "ledger.sqlite"})
    path = tmp_path / "study.toml"
    path.write_text(to_toml(content))
    assert read_study(path).rehearsal["options"] == ENV
    return path


def said(*words: Any, status: int = 0) -> str:
    found = CliRunner().invoke(app, ["serve", *map(str, words)])
    assert found.exit_code == status, found.output
    return found.output if status else found.stdout


def test_check_prints_the_statement_and_writes_nothing(study: Path) -> None:
    text = said(study, "--check")
    assert "Joint differential privacy" in text
    assert "You must trust the operator." in text
    assert "6 releases, after 0, 1, 2, 4, 8, 16 users" in text
    assert f"identity {read_study(study).identity}" in text
    table = json.loads(said(study, "--check", "--json"))
    assert table["guarantee"]["epsilon"] <= 1.0 + 1e-12
    assert [path.name for path in study.parent.iterdir()] == ["study.toml"]


def test_tickets_are_issued_after_the_ledger_knows_the_study(study: Path) -> None:
    tickets = said(study, "--tickets", 3).split()
    more = json.loads(said(study, "--tickets", 2, "--json"))["tickets"]
    assert len({*tickets, *more}) == 5
    token = said(study, "--operator").strip()
    found = read_study(study)
    store = opened(found, database_of(found, None))
    assert store.knows_token(token)
    assert [one.status for one in store.admit([ReservationRequest(hashed(tickets[0]))], 1.0, 60.0)] == [
        "placed"
    ]
    with dr.Ledger.open(study.parent / "ledger.sqlite") as ledger:
        (entry,) = [one for one in ledger.entries("people-1") if one.kind == "reserve"]  # once
        assert ledger.totals("people-1").epsilon == pytest.approx(found.guarantee.epsilon)
        assert json.loads(store.about()["ledger"])["hash"] == entry.hash


def test_tickets_for_persons_who_return(tmp_path: Path) -> None:
    path, names = tmp_path / "study.toml", tmp_path / "names.txt"
    people = {"participations": 2, "separation": 2}
    path.write_text(to_toml(table(20, people=people, serving={"close": "resolved"})))
    text = said(path, "--check")
    assert "Each person takes part at most 2 times, at least 2 releases apart." in text
    assert "at least 12 persons are needed" in text  # batches of 1, 1, 2, 4, 8, 4
    names.write_text("p-1\np-1\np-2\n")
    tickets = said(path, "--persons", names).split()
    assert len(set(tickets)) == 3
    assert "--persons FILE" in said(path, "--tickets", 3, status=2)
    found = read_study(path)
    with closing(opened(found, database_of(found, None))) as store:
        asked = [ReservationRequest(hashed(one)) for one in (tickets[0], tickets[1])]
        assert [one.status for one in store.admit(asked, 1.0, 60.0)] == ["placed", "again"]
    names.write_text("p-1\n\n")
    assert "persons: each must be a text" in said(path, "--persons", names, status=2)


def test_the_operator_withdraws_a_user_by_their_ticket(study: Path) -> None:
    first, second = said(study, "--tickets", 2).split()
    found = read_study(study)
    with closing(opened(found, database_of(found, None))) as store:
        asked = [ReservationRequest(hashed(first))]
        assert store.admit(asked, time.time(), 3600.0)[0].status == "placed"
    for _ in range(2):
        assert json.loads(said(study, "--withdraw", first, "--json")) == {"status": "withdrawn"}
    assert "must have a place" in said(study, "--withdraw", second, status=2)
    assert "must be a ticket of this study" in said(study, "--withdraw", "none", status=2)


def test_options_of_one_study_are_refused_with_several(study: Path) -> None:
    assert "must be one study file" in said(study, study, "--check", status=2)
    assert "must be in folders of their own" in said(study, study, status=2)


def test_a_study_beyond_the_ledgers_limit_is_not_begun(study: Path) -> None:
    with dr.Ledger.open(study.parent / "ledger.sqlite") as ledger:
        ledger.set_limit("people-1", 0.5, 1e-6)
    assert "0.5" in said(study, "--tickets", 1, status=2)
    found = read_study(study)
    assert not Store(database_of(found, None)).created(found.identity)


def test_a_rehearsal_and_what_does_not_go_together(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = json.loads(said(study, "--dry-run", 8, "--json"))
    assert (table["people"], table["releases"]) == (8, 3)
    stayed: list[float] = []
    monkeypatch.setattr(service, "time", SimpleNamespace(sleep=stayed.append))
    text = said(study, "--dry-run", 8, "--stay", 3)
    assert stayed == [3]
    assert "the study has 20 users" in text
    said(study, "--stay", 3, status=2)
    said(study, "--dry-run", 8, "--stay", -1, status=2)
    said(study, "--dry-run", 8, "--check", status=2)
    said(study.parent / "none.toml", "--check", status=2)


def test_the_key_is_made_once(study: Path) -> None:
    found = read_study(study)
    assert key_of(found).public == key_of(found).public
    assert (study.parent / "service.key").stat().st_mode & 0o777 == 0o600


def test_a_shuffler_has_a_key_before_the_study_names_it(tmp_path: Path) -> None:
    def shuffler(*words: Any, status: int = 0) -> str:
        found = CliRunner().invoke(app, ["shuffler", *map(str, words)])
        assert found.exit_code == status, found.output
        return found.output if status else found.stdout

    path = tmp_path / "study.toml"
    key = shuffler(path, "--key").strip()
    assert json.loads(shuffler(path, "--key", "--json")) == {"key": key}
    path.write_text(to_toml(table(20, "shuffle", shuffler={"url": "https://shuffler", "key": key})))
    text = said(path, "--check")
    assert "Shuffle differential privacy" in text
    assert "The operator sees sums of batches" in text
    assert len(set(shuffler(path, "--tickets", 3).split())) == 3
    assert len(json.loads(shuffler(path, "--operator", "--json"))["token"]) > 20
    assert "are of `discreet shuffler`" in said(path, "--tickets", 1, status=2)
    assert "the service of this shuffler" in shuffler(path, status=2)
    assert "64 hexadecimal digits" in shuffler(path, "--service", "http://a", "--service-key", "no", status=2)
    assert "an address" in shuffler(path, "--service", "a", "--service-key", key, status=2)
    assert "give one of them" in shuffler(path, "--key", "--operator", status=2)
    assert len(json.loads(said(path, "--dry-run", 5, "--json"))) > 3
