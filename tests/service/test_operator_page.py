"""The operator's page: what it waits for, and that it is a page without the database."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from serving import a_key, a_study, a_writer, begun, central
from sqlalchemy.exc import OperationalError

from discreet.service.app import Service
from discreet.service.database import ReservationRequest, hashed
from discreet.service.message_validation import admission_of
from discreet.service.operator_page import page

from .test_operations import asked

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


def text_of(service: Service) -> str:
    return re.sub(r"<[^>]+>", " ", page(service.study, service.store, service.content, service.failed))


def test_the_page_says_what_it_waits_for_and_until_when(tmp_path: Path) -> None:
    study = a_study(2, people={"answer_within": 600, "closes_after": 7200})
    with closing(begun(study, tmp_path / "a.db")) as store:
        service = Service(study, store, a_key(tmp_path))
        assert store.lease("one", NOW, 5.0) == 1
        assert "Working. People can take part. Places that are not taken by 20" in text_of(service)
        tickets = store.new_tickets(3)
        store.admit([ReservationRequest(hashed(tickets[0]))], NOW, 600.0)
        text = text_of(service)
        assert (
            "Waiting. All places are taken. The next release waits for one person who took a place and has"
            in text
        )
        assert (
            "The next plan opens at 2023-11-14 22:24 UTC at the latest" in text
        )  # 22:23:20, in whole minutes
        assert "People can take part" not in text
        assert "Plan 1, for one person" in text
        answer = admission_of(study, b"").answer(central(tickets[0], 1))
        store.admit([answer], NOW, 600.0)
        assert "The next release is being made" in text_of(service)
        writer = a_writer(study, store)
        assert writer.step()
        assert "Working. People can take part." in text_of(service)
        store.admit([ReservationRequest(hashed(tickets[1]))], NOW, 600.0)
        answer = admission_of(study, b"").answer(central(tickets[1], 2, 7))
        store.admit([answer], NOW, 600.0)
        writer.step()  # the last of all people: no release follows
        assert store.about()["over"]
        text = text_of(service)
        assert "The study is over." in text
        assert "What the policy did last" in text
        for wrong in ("next release waits", "follow now", "does now", "1 people"):
            assert wrong not in text


def test_the_page_is_a_page_while_the_database_is_gone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = sqlite3.OperationalError("a secret of the driver's")
    inner.sqlite_errorname = "SQLITE_CANTOPEN"

    def gone(*_: Any) -> Any:
        raise OperationalError("SELECT a secret", None, inner)

    monkeypatch.setattr(service.store, "about", gone)
    answer = asked(service, "GET", "/")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "content-security-policy" in answer.headers
    assert "The database does not answer: the file of the database cannot be opened" in answer.text
    assert "secret" not in answer.text


def test_the_page_of_a_study_whose_batches_close_by_resolved_reservations(tmp_path: Path) -> None:
    study = a_study(50, serving={"close": "resolved", "in_flight_least": 1})
    with closing(begun(study, tmp_path / "a.db")) as store:
        service = Service(study, store, a_key(tmp_path))
        assert "People can take part" in text_of(service)
        (ticket,) = store.new_tickets(1)
        store.admit([ReservationRequest(hashed(ticket))], NOW, 600.0)
        shown = text_of(service)
        assert "one person took a place and has not answered" in shown
        assert "people of the open batch" in shown


def test_the_page_promises_no_place_after_all_were_taken(tmp_path: Path) -> None:
    study = a_study(2, serving={"close": "resolved"})
    with closing(begun(study, tmp_path / "a.db")) as store:
        service = Service(study, store, a_key(tmp_path))
        asked_for = [ReservationRequest(hashed(one)) for one in store.new_tickets(2)]
        store.admit(asked_for, NOW, 600.0)
        shown = text_of(service)
        assert "All places of the study are taken. 2 people took a place" in shown
        assert "The study ends at 2023-11-14 22:24 UTC at the latest" in shown
        assert "is free again" not in shown
