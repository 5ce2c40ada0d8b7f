"""Acts of the operator: pause, resume, a longer time to answer. (The guarantee: tests of the rules.)"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import a_key, a_study, begun, central, stopped

from discreet.device.http_client import Turned
from discreet.service.database import TABLES, ReservationRequest, Store, hashed
from discreet.service.message_validation import CentralAdmission
from discreet.service.operator_acts import Standing, standing_of
from discreet.service.operator_page import page
from discreet.service.participant_statement import make_participant_statement
from discreet.service.server import in_background, opened
from discreet.service.study_config import Study

RULES: dict[str, dict[str, Any]] = {
    "all": {"close": "all"}, "resolved": {"close": "resolved", "in_flight_least": 40},
    "clock": {"close": "clock", "every": 100.0},
}  # fmt: skip
NOW = stopped.time()


def study_with(rule: str) -> Study:
    schedule = {"replan_every": 8}
    return a_study(24, serving=RULES[rule], people={"answer_within": 500.0}, schedule=schedule).for_dry_run()


def asked(store: Store, ticket: str, at: float = NOW) -> Any:
    return store.admit([ReservationRequest(hashed(ticket))], at, 500.0)[0]


def test_the_standing_is_the_last_pause_and_the_longest_time() -> None:
    acts: list[tuple[str, float | None]] = [("extend", 5.0), ("pause", None), ("extend", 3.0)]
    assert standing_of([]) == Standing(False, 0.0)
    assert standing_of(acts) == Standing(True, 5.0)
    assert standing_of([*acts, ("resume", None)]) == Standing(False, 5.0)
    assert [Standing(extended=5.0).stays(one) for one in (4.0, 6.0)] == [5.0, 6.0]


@pytest.mark.parametrize("rule", RULES)
def test_a_pause_stops_new_places_only_and_survives_a_restart(tmp_path: Path, rule: str) -> None:
    study, path = study_with(rule), tmp_path / "a.db"
    admission = CentralAdmission(study.layout)
    with closing(begun(study, path)) as store:
        first, second = store.new_tickets(2)
        plan = asked(store, first).plan
        assert store.act("pause", 500.0) == store.act("pause", 500.0) == Standing(True)
    with closing(opened(study, str(path))) as store:  # as another process, or later
        assert asked(store, second).status == "paused"
        assert asked(store, first).status == "placed"
        assert store.admit([admission.answer(central(first, plan, 1))], NOW, 500.0)[0].status == "counted"
        store.act("resume", 500.0)
        assert asked(store, second).status == "placed"
        assert [one["kind"] for one in store.acts()] == ["pause", "extend", "resume"]  # the study file's time
        assert store.mark_expired(NOW + 499.0, None, 500.0) == 0
        assert store.mark_expired(NOW + 501.0, None, 500.0) == 1  # clocks went on


@pytest.mark.parametrize("rule", RULES)
def test_an_extension_is_for_open_places_too_and_never_shorter(tmp_path: Path, rule: str) -> None:
    study = study_with(rule)
    with closing(begun(study, tmp_path / "a.db")) as store:
        first, second = store.new_tickets(2)
        assert asked(store, first).status == "placed"
        assert store.act("extend", 500.0, 900.0).extended == 900.0
        assert store.act("extend", 500.0, 600.0).extended == 900.0
        assert store.act("extend", 1000.0, 950.0).stays(1000.0) == 1000.0  # shorter than in the study file
        assert len(store.acts()) == 1
        assert asked(store, second, NOW + 50.0).seconds == 900.0
        assert store.mark_expired(NOW + 899.0, None, 500.0) == 0
        assert asked(store, first, NOW + 899.0).seconds == 1.0
        assert store.mark_expired(NOW + 901.0, None, 500.0) == 1
        assert asked(store, second, NOW + 901.0).seconds == 49.0  # not shortened as by a fast clock
        assert store.mark_expired(NOW + 951.0, None, 500.0) == 1


def test_no_deadline_is_after_the_end_of_a_plan(tmp_path: Path) -> None:
    people = {"answer_within": 500.0, "closes_after": 600.0}
    study = a_study(24, people=people, schedule={"replan_every": 8}).for_dry_run()
    with closing(begun(study, tmp_path / "a.db")) as store:
        first, second, third = store.new_tickets(3)
        begins = store.plans()[0]["opened"]

        def seconds(ticket: str) -> float:
            request = ReservationRequest(hashed(ticket))
            return store.admit([request], begins + 50.0, 500.0, 600.0)[0].seconds

        assert seconds(first) == 500.0
        store.act("extend", 500.0, 520.0, 600.0)
        assert (seconds(first), seconds(second)) == (520.0, 520.0)
        store.act("extend", 500.0, 590.0, 600.0)
        assert (seconds(first), seconds(second), seconds(third)) == (550.0, 550.0, 550.0)


def test_plans_by_the_clock_stay_published_for_the_longer_time(tmp_path: Path) -> None:
    with closing(begun(study_with("clock"), tmp_path / "a.db")) as store:
        assert store.batches is not None
        before = store.batches.with_stays(store.standing().extended)
        store.act("extend", 500.0, 900.0)
        after = store.batches.with_stays(store.standing().extended)
        assert (before.held_turns, after.held_turns) == (6, 10)


@pytest.mark.parametrize("rule", RULES)
def test_the_page_says_that_the_study_is_paused(tmp_path: Path, rule: str) -> None:
    study = study_with(rule)
    with closing(begun(study, tmp_path / "a.db")) as store:
        shown = lambda: page(study, store, make_participant_statement(study, None, ""), "")  # noqa: E731
        assert ("People can take part" in shown(), "paused" in shown()) == (True, False)
        store.act("pause", 500.0)
        assert ("People can take part" in shown(), "The operator has paused the study" in shown()) == (
            False, True,
        )  # fmt: skip


def test_a_database_without_the_table_is_continued(tmp_path: Path) -> None:
    study, path = study_with("resolved"), tmp_path / "a.db"
    with closing(begun(study, path)) as store:
        TABLES["acts"].drop(store._engine)
    with closing(opened(study, str(path))) as store:
        assert store.standing() == Standing(extended=500.0)
        assert store.act("pause", 500.0).paused


@pytest.mark.parametrize("rule", RULES)
def test_the_study_file_can_give_more_time_and_never_less(tmp_path: Path, rule: str) -> None:
    path = tmp_path / "a.db"

    def with_time(seconds: float) -> Study:
        people = {"answer_within": seconds}
        return a_study(24, serving=RULES[rule], people=people, schedule={"replan_every": 8}).for_dry_run()

    with closing(opened(with_time(500.0), str(path), stopped)) as store:
        (ticket,) = store.new_tickets(1)
        assert asked(store, ticket).status == "placed"
    for seconds, left in ((800.0, 800.0), (500.0, 800.0), (900.0, 900.0)):
        with closing(opened(with_time(seconds), str(path), stopped)) as store:
            assert asked(store, ticket).seconds == left


def test_a_database_whose_identity_binds_the_time_is_continued(tmp_path: Path) -> None:
    study, path = study_with("resolved"), tmp_path / "a.db"
    before = study._hash(study.table)
    assert before != study.identity
    study.adopt("0" * 64)
    assert before != study.identity
    study.adopt(before)  # as an earlier version begins it
    with closing(begun(study, path)) as store:
        assert store.stored_identity() == before
    with closing(opened(again := study_with("resolved"), str(path))):
        assert again.identity == before
    other = a_study(
        24, serving=RULES["resolved"], people={"answer_within": 501.0}, schedule={"replan_every": 8}
    )
    with pytest.raises(ValueError, match="serves another study"):
        opened(other.for_dry_run(), str(path))


# ------------------------------------------------------------------------- over HTTP
def test_the_operator_acts_over_http(tmp_path: Path) -> None:
    study = a_study(24, people={"answer_within": 500.0})
    with in_background(study, tmp_path / "a.db", a_key(tmp_path)) as (url, service):
        token = service.store.new_token()
        mine = {"Authorization": f"Bearer {token}"}
        post = lambda verb, body=None, **more: httpx.post(f"{url}/operator/{verb}", json=body, **more)  # noqa: E731
        for verb in ("pause", "resume", "extend", "revoke"):
            assert post(verb).status_code == 401
        assert post("pause", headers=mine).json()["paused"] is True
        (ticket,) = service.store.new_tickets(1)
        said = httpx.post(f"{url}/places", json={"ticket": ticket})
        assert (said.status_code, said.json()["reason"], said.headers["retry-after"]) == (503, "paused", "60")
        assert post("resume", headers=mine).json()["paused"] is False
        assert httpx.post(f"{url}/places", json={"ticket": ticket}).status_code == 201
        for bad in ({}, {"answer_within": "1"}, {"answer_within": 1e99}, {"answer_within": 499}):
            assert post("extend", bad, headers=mine).status_code == 400
        assert post("extend", {"answer_within": 900}, headers=mine).json()["answer_within"] == 900.0
        assert httpx.get(f"{url}/plan").json()["content"]["answer_within"] == 900.0
        assert httpx.get(f"{url}/statement").json()["absent"]["answer_within_seconds"] == 900.0
        acts = httpx.get(f"{url}/log").json()["content"]["acts"]
        assert [(one["kind"], one["seconds"]) for one in acts] == [
            ("extend", 500.0), ("pause", None), ("resume", None), ("extend", 900.0),
        ]  # fmt: skip
        other = service.store.new_token()
        names = service.store.tokens()
        assert names == sorted(hashed(one).hex()[:16] for one in (token, other))
        assert post("revoke", {"token": "0" * 16}, headers=mine).status_code == 400
        assert len(post("revoke", {"token": hashed(other).hex()[:16]}, headers=mine).json()["tokens"]) == 1
        assert [service.store.knows_token(one) for one in (other, token)] == [False, True]


def test_the_operators_page_needs_a_token_and_shows_rows_without_tickets(tmp_path: Path) -> None:
    study = a_study(24, people={"answer_within": 500.0})
    with in_background(study, tmp_path / "a.db", a_key(tmp_path)) as (url, service):
        token = service.store.new_token()
        (ticket,) = service.store.new_tickets(1)
        assert httpx.post(f"{url}/places", json={"ticket": ticket}).status_code == 201
        assert httpx.post(f"{url}/places", json={"ticket": "none"}).status_code == 403
        refused = httpx.get(f"{url}/operator")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Basic realm="operator"')
        assert httpx.get(f"{url}/operator", auth=("operator", "wrong")).status_code == 401
        assert httpx.get(f"{url}/operator", headers={"Authorization": b"Basic \xff"}).status_code == 401
        shown = httpx.get(f"{url}/operator", auth=("operator", token))
        assert shown.status_code == 200
        assert "Operation" not in httpx.get(f"{url}/").text
        for words in ("Operation", "Not paused", "The next places that end", "foreign: 1", "none.", "Tokens"):
            assert words in shown.text, words
        assert ticket not in shown.text
        assert hashed(token).hex()[:16] in shown.text
        # a browser would send its password with another site's request
        assert httpx.post(f"{url}/operator/pause", auth=("operator", token)).status_code == 401
        mine = {"Authorization": f"Bearer {token}"}
        httpx.post(f"{url}/operator/pause", headers=mine)
        assert "Paused: no new places are given" in httpx.get(f"{url}/operator", headers=mine).text


def test_health_says_what_releases_wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = a_study(24)
    with in_background(study, tmp_path / "a.db", a_key(tmp_path)) as (url, service):
        for path in ("live", "ready", "health"):
            assert httpx.get(f"{url}/{path}").status_code == httpx.head(f"{url}/{path}").status_code == 200
        assert service.releases() == "ok"
        metrics = httpx.get(f"{url}/metrics").text
        for name in ("batch_age_seconds", "batch_resolved", "in_flight", "guests_total", "lease_held"):
            assert f"\ndiscreet_{name} " in metrics, name
        httpx.post(f"{url}/places", json={"ticket": "none"})
        assert 'discreet_refusals_total{reason="foreign"} 1' in httpx.get(f"{url}/metrics").text
        service._whole = service.turn, service.io.monotonic() - 10.0
        assert service.releases() == "waiting"
        service._whole = service.turn, service.io.monotonic() - 61.0
        assert service.releases() == "late"
        with monkeypatch.context() as patch:
            patch.setattr(service.store, "lease_end", lambda: service.io.now() - 16.0)
            patch.setattr(service, "_made", service.io.monotonic() - 16.0)
            assert service.releases() == "stopped"
            assert httpx.get(f"{url}/health").status_code == 503
            assert httpx.get(f"{url}/ready").status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr(service, "shown", (b"", ""))
            assert httpx.get(f"{url}/ready").status_code == 503


def test_a_client_asks_again_after_a_pause() -> None:
    assert not Turned(503, "paused", "words").final
