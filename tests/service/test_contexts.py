"""Studies of users with real-valued contexts: the service repeats a run, refuses what no device sends, and
goes on after a death.
"""

from __future__ import annotations

import base64
import json
import math
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import a_key, a_writer, begun, context_table, placed
from serving import stopped as time
from waiting import wait_until

from discreet.core.releases import Message, Plan
from discreet.core.rng import Seeded
from discreet.device.feature_map import FeatureMap
from discreet.device.http_client import Client, PlanReservation, Turned
from discreet.device.published_device import device_from_bytes
from discreet.mechanisms.interfaces import followed_release
from discreet.mechanisms.linear.context_query import ContextRecord, ContextRecords
from discreet.service import encoding as codec
from discreet.service.database import Store
from discreet.service.dry_run import people_of, promised_by, run_dry
from discreet.service.message_validation import (
    ContextAdmission,
    LocalAdmission,
    Malformed,
    admission_of,
)
from discreet.service.server import all_in_background
from discreet.service.study_config import Study, study_of

from .test_fuzzed import changed

TRUSTS = ["central", "local"]
RESOLVED = {"close": "resolved"}


def a_study(users: int = 60, trust: str = "central", seeded: bool = True, **more: Any) -> Study:
    """The study of :func:`context_table`, with seeded noise if it is central."""
    found = study_of(context_table(users, trust, **more))
    return found.for_dry_run() if seeded and trust == "central" else found


def book_of(study: Study, store: Store) -> dict[str, Any]:
    """What a device reads of a plan."""
    form = codec.text_of(bytes(store.about()["form"]))
    return {"world": study.sizes, "form": form, "trust": study.trust}


def a_batch(study: Study, store: Store, came: int) -> list[tuple[int, ContextRecord, dict[str, Any]]]:
    """Everybody of the open plans takes part: (plan, record, message) in the order of tickets."""
    size = min(sum(one["users"] for one in store.plans()), study.users - came)
    tickets = store.new_tickets(size)
    numbers = placed(store, tickets)
    rows = store.policies(int(store.about()["turn"])) + store.held_policies(int(store.about()["turn"]))
    tables = {one["number"]: json.loads(one["policy"]) for one in rows}
    admission = admission_of(study, bytes(store.about()["form"]))
    if isinstance(admission, LocalAdmission):
        for number, table in tables.items():
            admission.plan(number, codec.policy_of(table))
    found, sent = [], []
    for user, (ticket, number) in enumerate(zip(tickets, numbers, strict=True), came):
        place = PlanReservation(ticket, 60.0, tables[number], book_of(study, store))
        record, _ = people_of(study, place, user)
        message = dict(place.message(record.contexts, record.actions, record.rewards).table)
        sent.append(admission.answer(json.loads(json.dumps(message))))
        found.append((number, record, message))
    random.Random(came).shuffle(sent)
    assert {one.status for one in store.admit(sent, time.time(), 60.0)} == {"counted"}
    return found


def served(study: Study, store: Store) -> list[Any]:
    """All people of a study, batch after batch, and a writer for each: what they sent."""
    people: list[Any] = []
    while not store.about()["over"]:
        people += a_batch(study, store, len(people))
        writer = a_writer(study, store)
        assert writer.step()
        assert writer.refused == 0
        writer.release_lease()
    return people


def repeated(study: Study, store: Store, people: list[Any]) -> tuple[list[bytes], list[str]]:
    """Releases and plans of a run with the same messages: no service, one session and one learner."""
    about, session = store.about(), study.start()
    device = device_from_bytes(bytes(about["form"])) if study.local else None
    state = study.learner.begin(study.spec, np.frombuffer(bytes(about["ties"]), np.uint64))
    releases, plans, waiting, followed = [], [], list(people), None
    resolved = store.batches is not None
    known: dict[int, Plan] = {}
    while True:
        release = session.release()
        releases.append(codec.exact(release))
        if resolved:
            release = followed_release(release, followed or ())
        made = list[Plan]()
        while not made or not made[-1].last:
            plan, state = study.learner.plan(state, release)
            made.append(plan)
            known[len(plans) + 1] = plan
            plans.append(codec.canonical(codec.plan_table(plan, len(plans) + 1)).decode())
            if release.users + sum(one.users for one in made) >= study.users:
                break
        size = sum(one.users for one in made)
        if session.users + size >= study.users:
            return releases, plans
        batch, waiting = waiting[:size], waiting[size:]
        parts = {
            number: [one for one in batch if one[0] == number] for number in sorted({b[0] for b in batch})
        }
        followed = [(known[number].policy, len(part)) for number, part in parts.items()]
        for at, (number, part) in enumerate(parts.items(), 1):
            session.begin(Plan(known[number].policy, len(part), known[number].context, last=at == len(parts)))
            number_now = session.open_plan.number
            if device is None:
                every = [
                    [getattr(one[1], name) for one in part] for name in ("contexts", "actions", "rewards")
                ]
                session.submit_many(ContextRecords(*map(np.array, every)), number_now)
                continue
            for _, _, message in part:
                sent = base64.b64decode(message["message"])
                noisy = device.read(number, sent)[1].astype(float)  # type: ignore[union-attr]
                session.submit(Message(number_now, message=noisy))


@pytest.mark.parametrize("close", ["all", "resolved"])
@pytest.mark.parametrize("form", ["per_action", "shared"])
@pytest.mark.parametrize("trust", TRUSTS)
def test_releases_and_plans_are_those_of_a_run_bit_for_bit(
    tmp_path: Path, trust: str, form: str, close: str
) -> None:
    """Each batch by another process, which recomputes the learner's state from the stored releases."""
    more: dict[str, Any] = {"serving": {"close": close}}
    if form == "shared":
        more["context"] = {
            "form": "shared", "columns": {f"x{i}": {"range": [-1, 1]} for i in range(4)}, "radius": 1.0,
            "intercept": False,
        }  # fmt: skip
        more["rehearsal"] = {"env": "shared-contexts", "options": {"dimension": 4, "actions": 3}, "seed": 3}
    study = a_study(trust=trust, **more)
    store = begun(study, tmp_path / "a.db")
    people = served(study, store)
    releases, plans = repeated(study, store, people)
    turns = range(int(store.about()["turn"]) + 1)
    assert [store.exact_release(n) for n in turns] == releases
    assert [one["policy"] for n in turns for one in store.policies(n)] == plans
    assert len(releases) >= 5
    assert any("root" in one for one in plans)


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_death_between_noise_and_commit_changes_no_release(tmp_path: Path, trust: str) -> None:
    """Every second writer dies after the draw; seeded noise, and the noise of devices, is what it was."""
    study = a_study(trust=trust)
    store = begun(study, tmp_path / "a.db")
    people: list[Any] = []

    class Killed(BaseException):
        pass

    def dies() -> None:
        raise Killed

    while not store.about()["over"]:
        people += a_batch(study, store, len(people))
        if len(people) < study.users:  # after the last batch nothing is drawn
            dying = a_writer(study, store, before_commit=dies)
            with pytest.raises(Killed):
                dying.step()
            dying.release_lease()  # as if it had run out
        store.close()
        store = Store(tmp_path / "a.db")
        later = a_writer(study, store)
        assert later.step()
        later.release_lease()
    releases, _ = repeated(study, store, people)
    assert [store.exact_release(n) for n in range(int(store.about()["turn"]) + 1)] == releases


CONTEXT: dict[str, Any] = {"ticket": "a", "plan": 1, "nonce": "0" * 32, "actions": [1], "rewards": [0.5]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contexts": [[0.0, 1.0]]}, r"contexts: a list must have 4 entries"),
        ({"contexts": [0.0] * 4}, r"contexts: must be a list with one context"),
        ({"contexts": None}, r"contexts: must be a list with one context"),
        ({"contexts": [[0, 0, 0, 1.0000001]]}, r"contexts: x3 must be null or a number in \[-1, 1\]"),
        ({"contexts": [[True, 0, 0, 0]]}, r"contexts: x0 must be null or a number"),
        ({"contexts": [["0", 0, 0, 0]]}, r"contexts: x0 must be null"),
        ({"contexts": [[10**400, 0, 0, 0]]}, r"contexts: x0 must be null"),
        ({"actions": [3]}, r"actions: every entry must be an integer in \[0, 2\]"),
        ({"actions": [0, 1]}, r"actions: must be a list of 1 integers"),
        ({"rewards": [1.5]}, r"rewards: every entry must be a number in \[0, 1\]"),
        ({"states": [0, 0]}, r"must hold actions, contexts, nonce, plan, rewards, ticket"),
    ],
)
def test_what_the_service_refuses_names_the_field_and_what_is_allowed(
    change: dict[str, Any], words: str
) -> None:
    admission = admission_of(a_study(), b"")
    good = {**CONTEXT, "contexts": [[0.0, None, 1, -1.0]]}
    stored = admission.answer(good)
    (record,) = admission.records([stored.body])  # type: ignore[union-attr]
    assert np.array_equal(record.contexts, [[0.0, math.nan, 1.0, -1.0]], equal_nan=True)
    with pytest.raises(Malformed, match=words):
        admission.answer({**good, **change})


def is_good(table: Any) -> bool:
    """Would this have been a proper message? Written apart from the service."""
    if not isinstance(table, dict) or set(table) != {*CONTEXT, "contexts"}:
        return False
    x = table["contexts"]
    rows = isinstance(x, list) and len(x) == 1 and isinstance(x[0], list) and len(x[0]) == 4
    number = lambda one, low, high: type(one) in (int, float) and low <= one <= high  # noqa: E731
    return (
        rows
        and all(one is None or number(one, -1, 1) for one in x[0])
        and isinstance(table["ticket"], str)
        and table["ticket"].isascii()
        and 0 < len(table["ticket"]) <= 100
        and type(table["plan"]) is int
        and 0 < table["plan"] < 2**63
        and isinstance(table["nonce"], str)
        and len(table["nonce"]) == 32
        and all(one in "0123456789abcdefABCDEF" for one in table["nonce"])
        and isinstance(table["actions"], list)
        and len(table["actions"]) == 1
        and type(table["actions"][0]) is int
        and 0 <= table["actions"][0] <= 2
        and isinstance(table["rewards"], list)
        and len(table["rewards"]) == 1
        and number(table["rewards"][0], 0, 1)
    )


def test_messages_that_no_device_sends_are_refused_and_others_are_taken() -> None:
    """5 000 changed messages; what is taken is a record of the session, with features of norm at most 1."""
    admission, luck, taken = admission_of(a_study(), b""), random.Random(8), 0
    for _ in range(5000):
        x = [luck.choice([None, luck.uniform(-1, 1), -1, 1.0]) for _ in range(4)]
        table: Any = {**CONTEXT, "contexts": [x]}
        table = changed(luck, table) if luck.random() < 0.9 else table
        if luck.random() < 0.3 and isinstance(table, dict) and isinstance(table.get("contexts"), list):
            table["contexts"] = [changed(luck, {"x": x}).get("x")]
        try:
            stored = admission.answer(table)
        except (Malformed, OverflowError):
            assert not is_good(table)
            continue
        assert is_good(table)
        taken += 1
        (record,) = admission.records([stored.body])  # type: ignore[union-attr]
        assert isinstance(admission, ContextAdmission)
        assert np.linalg.norm(admission.features(record.contexts)) <= 1.0
    assert taken > 400


def test_sums_that_no_device_sends_are_refused(tmp_path: Path) -> None:
    study = a_study(trust="local")
    store = begun(study, tmp_path / "a.db")
    form = bytes(store.about()["form"])
    device, admission = device_from_bytes(form), admission_of(study, form)
    assert isinstance(admission, LocalAdmission)
    admission.plan(1, np.zeros((3, 5)))
    cells = np.zeros(int(device.offsets[-1]), np.int64)  # type: ignore[union-attr]
    send = lambda body: admission.answer({"ticket": "a", "message": base64.b64encode(body).decode()})  # noqa: E731
    send(device.write(1, cells, b"0" * 16))  # type: ignore[union-attr, call-arg, arg-type]
    for at, value in ((0, 2**40), (5, -(2**40)), (len(cells) - 1, -(2**63))):
        far = cells.copy()
        far[at] = value
        with pytest.raises(Malformed, match="more than any device sends"):
            send(device.write(1, far, b"0" * 16))  # type: ignore[union-attr, call-arg, arg-type]


@pytest.mark.parametrize("x", [[5.0, -7, math.inf, math.nan], [0.1, 1e308, -1.0, -0.0]])
def test_a_device_clips_the_context_and_the_features_are_the_same(x: list[float]) -> None:
    study = a_study()
    plan = {"number": 1, "policy": np.zeros((3, 5)).tolist(), "context": {"random": [1.0]}}
    place = PlanReservation("a", 60.0, plan, {"world": study.sizes, "form": None, "trust": "joint"})
    sent = json.loads(json.dumps(dict(place.message([x], [place.action(0, x)], [1.0]).table)))
    assert all(one is None or -1 <= one <= 1 for one in sent["contexts"][0])
    (record,) = admission_of(study, b"").records([admission_of(study, b"").answer(sent).body])  # type: ignore[union-attr]
    features: FeatureMap = study.features  # type: ignore[assignment]
    assert np.array_equal(features(record.contexts), features([x]))


def test_an_explorer_keeps_the_coefficients_of_the_place() -> None:
    world = a_study().sizes
    plan = {
        "number": 1, "policy": np.zeros((3, 5)).tolist(),
        "context": {"random": [0.0], "root": [np.eye(5).tolist()] * 3},
    }  # fmt: skip
    book, x = {"world": world, "form": None, "trust": "joint"}, [0.3, -0.2, 0.9, 0.1]
    places = [PlanReservation("a", 60.0, plan, book) for _ in range(60)]
    assert len({one.action(0, x) for one in places}) == 3
    assert all(one.action(0, x) == one.action(0, x) for one in places)


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_dry_run_over_http_counts_everybody(trust: str) -> None:
    result = run_dry(study_of(context_table(80, trust, serving=RESOLVED)).for_dry_run())
    assert sum(users for users, _ in result.values) == result.users == 80
    assert 0.0 < result.uniform < result.optimal < 1.0


@pytest.mark.parametrize("trust", TRUSTS)
def test_people_over_http_and_what_is_published(tmp_path: Path, trust: str) -> None:
    study = study_of(context_table(40, trust))
    with all_in_background(study, tmp_path, a_key(tmp_path)) as (url, front, _, service):
        tickets = front.store.new_tickets(8)
        with Client(url, promised=promised_by(study)) as client:
            for ticket in tickets:
                place = client.place(ticket)
                x = np.random.default_rng(0).uniform(-2, 2, 4).tolist()
                message = place.message([x], [place.action(0, x)], [1.0])
                assert client.send(message) == {"status": "counted", "plan": place.number}
            assert client.guest().action(0, [0.0] * 4) in (0, 1, 2)
            statement = client.statement()
            assert statement["world"]["features"]["ranges"][0] == ["x0", -1.0, 1.0]
            import httpx

            schema = httpx.get(f"{url}/openapi.json").json()
            body = schema["paths"]["/messages"]["post"]["requestBody"]["content"]["application/json"]
            example = body["examples"]["one"]["value"]
            assert ("contexts" in example) == (trust == "central")
            assert isinstance(service.admission.answer({**example, "ticket": "a"}).body, bytes)
            assert "coefficients" in httpx.get(url).text
        assert not isinstance(study.randomness, Seeded)
        with Client(url, promised=promised_by(study)) as client, pytest.raises(Turned, match="spent|counted"):
            client.send(client.place(tickets[0]).message([[0.0] * 4], [0], [0.0]))


@pytest.mark.service
@pytest.mark.timeout(1800)
def test_killed_processes_make_the_releases_of_a_run(tmp_path: Path) -> None:
    """``kill -9`` under load: all who were told 202 are counted once, and no release differs in a bit."""
    from .test_killed import Process, everybody

    content = context_table(120)
    process, luck = Process(tmp_path, content, "seeded"), random.Random(9)
    study, counted = study_of(content).for_dry_run(), dict[int, tuple[int, Any]]()
    process.start()
    try:
        store, failed = Store(process.database), list[BaseException]()
        tickets = store.new_tickets(120)

        def load() -> None:
            try:
                everybody(process.url, study, tickets, counted)
            except BaseException as error:
                failed.append(error)

        people = threading.Thread(target=load)
        people.start()
        kills = 0
        while kills < 4 and people.is_alive():
            people.join(luck.expovariate(1.0))
            process.kill()
            process.start()
            kills += 1
        people.join(1200)
        wait_until(lambda: store.about()["over"])
    finally:
        process.kill()
    if failed:
        raise failed[0]
    assert len(counted) == 120
    assert kills >= 1
    sent = [(number, record, {}) for number, record in (counted[user] for user in range(120))]
    releases, _ = repeated(study, store, sent)
    assert [store.exact_release(n) for n in range(int(store.about()["turn"]) + 1)] == releases
