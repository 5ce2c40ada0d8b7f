"""Contexts under shuffle trust: devices add their shares of noise, and only sums reach the service."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import a_key, context_table

from discreet.core.releases import Message, Plan
from discreet.device.http_client import Client
from discreet.device.published_device import device_from_bytes
from discreet.device.skellam_device import SkellamDevice
from discreet.ledger.ledger import BudgetError, Ledger
from discreet.service import database as stores
from discreet.service import encoding as codec
from discreet.service.batch_sums import ShuffledBatches, opened_sum
from discreet.service.dry_run import run_dry
from discreet.service.ledger_reservation import reserve
from discreet.service.message_validation import Malformed
from discreet.service.server import all_in_background
from discreet.service.study_config import Study, study_of

from .test_shuffler import Parties

LENIENT = {"name": "shuffle", "epsilon": 3.0, "delta": 1e-6, "dishonest": 0.5}
SHARED: dict[str, Any] = {
    "context": {"form": "shared", "columns": {f"x{i}": {"range": [-1, 1]} for i in range(4)}, "radius": 1.0,
                "intercept": False},
    "rehearsal": {"env": "shared-contexts", "options": {"dimension": 4, "actions": 3}, "seed": 3},
}  # fmt: skip


def a_study(users: int = 60, trust: str = "shuffle", **more: Any) -> Study:
    """The study of :func:`context_table`, with real noise."""
    return study_of(context_table(users, trust, **more))


def seeded(users: int = 60, trust: str = "shuffle", **more: Any) -> Study:
    """The same study with a session that is the same in every process."""
    return a_study(users, trust, **more).for_dry_run()


def whole(parties: Parties, answers: Any, died: Any = lambda _: None) -> dict[int, list[bytes]]:
    """All batches of a study: the messages of each turn."""
    sent = {}
    while not parties.service.over:
        parties.adopted()
        turn = int(parties.shuffler.store.about()["turn"])
        sent[turn] = parties.people(lambda i, turn=turn: answers(turn, i))
        died(turn)
        parties.adopted()
        parties.turn()
    return sent


def repeated(study: Study, store: Any, sent: dict[int, list[bytes]]) -> tuple[list[bytes], list[str]]:
    """Releases and plans of a run with the same messages: no service, one session and one learner."""
    session = study.start()
    state = study.learner.begin(study.spec, np.frombuffer(bytes(store.about()["ties"]), np.uint64))
    releases, plans = [], []
    for turn in range(len(sent)):
        release = session.release()
        releases.append(codec.exact(release))
        made = list[Plan]()
        while not made or not made[-1].last:
            plan, state = study.learner.plan(state, release)
            made.append(plan)
            plans.append(codec.canonical(codec.plan_table(plan, len(plans) + 1)).decode())
            if release.users + sum(one.users for one in made) >= study.users:
                break
        for plan in made if turn + 1 < len(sent) else ():  # no release follows the last batch
            session.begin(plan)
            number = session.open_plan.number
            own = [one for one in sent[turn] if int.from_bytes(one[8:16], "little") == number]
            for body in own:
                session.submit(Message(number, message=body))
            if plan.users > len(own):
                session.absent(plan.users - len(own))
    return releases, plans


@pytest.mark.parametrize("more", [{}, SHARED], ids=["per_action", "shared"])
def test_releases_and_plans_are_those_of_a_run_bit_for_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    """In every batch but the first, some people are absent."""
    parties = Parties(tmp_path, 60, seeded, privatizer=LENIENT, **more)
    sent = whole(parties, lambda turn, i: turn == 0 or i % 5 != 2)
    store = parties.service.store
    releases, plans = repeated(parties.study, store, sent)
    turns = range(int(store.about()["turn"]) + 1)
    assert [store.exact_release(n) for n in turns] == releases
    assert [one["policy"] for n in turns for one in store.policies(n)] == plans
    assert len(releases) >= 5
    assert any("root" in one for one in plans)
    covered = {one["covers"] for one in json.loads(store.release(turns[-1])[0])["sums"].values()}  # type: ignore[index]
    assert covered == {sum(len(sent[turn]) for turn in turns[:-1])}


def test_only_sums_reach_the_service_and_no_message_outlives_its_batch(tmp_path: Path) -> None:
    parties = Parties(tmp_path, 60, a_study, privatizer=LENIENT)
    seen: list[bytes] = []
    ask = parties.http.request

    def watched(method: str, url: str, **how: Any) -> Any:
        seen.append(how.get("content", b""))
        return ask(method, url, **how)

    parties.http.request = watched  # type: ignore[method-assign]
    parties.adopted()
    form = device_from_bytes(bytes(parties.shuffler.store.about()["form"]))
    assert isinstance(form, SkellamDevice)
    sent = parties.people(lambda i: i != 3)
    plans = [(int(one["number"]), int(one["users"])) for one in parties.shuffler.store.plans()]
    parties.adopted()
    content = json.loads(parties.service.store.sum_of(0) or b"")["content"]
    assert (content["users"], content["absent"]) == (7, 1)
    numbers = [form.read(int.from_bytes(one[8:16], "little"), one)[1] for one in sent]
    assert np.array_equal(np.frombuffer(base64.b64decode(content["counts"]), "<i8"), np.sum(numbers, axis=0))
    assert all(parties.shuffler.store.messages(number) == [] for number, _ in plans)
    parties.turn()
    held = b"".join(path.read_bytes() for path in tmp_path.glob("service.db*")) + b"".join(seen)
    for one in sent:  # neither messages nor what would tell them apart
        assert one[32:48] not in held
        assert one[32:48].hex().encode() not in held
        assert one[52:-4] not in held
    with parties.service.store._reading() as connection:
        for table in (stores._tickets, stores._messages):
            assert connection.execute(stores.sql.select(table)).first() is None


@pytest.mark.parametrize("where", ["before_commit", "before_send"])
def test_a_shuffler_that_dies_loses_and_doubles_nothing(tmp_path: Path, where: str) -> None:
    """It dies twice in every batch; the releases are those of a run without deaths."""
    parties = Parties(tmp_path, 60, seeded, privatizer=LENIENT)

    class Died(BaseException):
        pass

    def dies() -> None:
        raise Died

    def died(_: int) -> None:
        setattr(parties.forwarder, where, dies)
        for _ in range(2):
            with pytest.raises(Died):
                parties.forwarder.step()
        parties.killed()

    sent = whole(parties, lambda turn, i: turn == 0 or i % 4 != 1, died)
    store = parties.service.store
    releases, _ = repeated(parties.study, store, sent)
    assert [store.exact_release(n) for n in range(int(store.about()["turn"]) + 1)] == releases


def test_too_few_messages_are_not_let_out_and_the_study_goes_on(tmp_path: Path) -> None:
    parties = Parties(tmp_path, 60, a_study)  # the noise of a whole batch is needed
    sent = whole(parties, lambda turn, i: turn != 1 or i != 0)
    contents = [json.loads(parties.service.store.sum_of(n) or b"")["content"] for n in range(len(sent))]
    assert [one["counts"] is None for one in contents] == [turn == 1 for turn in range(len(sent))]
    first, second = (json.loads(parties.http.get(f"/releases/{n}").content) for n in (1, 2))
    assert second["sums"] == first["sums"]
    assert all(one["covers"] == 0 for one in second["newest"].values())
    last = json.loads(parties.http.get(f"/releases/{parties.service.turn}").content)
    assert {one["covers"] for one in last["sums"].values()} == {last["users"] - len(sent[1]) - 1}


def test_messages_and_sums_that_nobody_sends_are_refused(tmp_path: Path) -> None:
    parties = Parties(tmp_path, 60, a_study, privatizer=LENIENT)
    parties.adopted()
    form = bytes(parties.shuffler.store.about()["form"])
    device: Any = device_from_bytes(form)
    cells = np.zeros(int(device.form.offsets[-1]), np.int64)
    plan = int(parties.shuffler.store.plans()[0]["number"])
    answer = parties.shuffler.admission.answer
    send = lambda body: answer({"ticket": "a", "message": base64.b64encode(body).decode()})  # noqa: E731
    good = device.write(plan, cells, b"0" * 16)
    assert send(good).body == good
    for at, reach in zip(device.form.offsets[:-1].tolist(), device.reach.tolist(), strict=True):
        for far in (reach + 1, -reach - 1):
            cells[at] = far
            with pytest.raises(Malformed, match="not of the form"):
                send(device.write(plan, cells, b"0" * 16))
            cells[at] = 0
    other = SkellamDevice(device.form, tuple(v + 2 for v in device.variances), device.session)
    with pytest.raises(Malformed, match="another session"):
        send(other.write(plan, cells, b"0" * 16))
    parties.people()
    parties.adopted()
    content = json.loads(parties.service.store.sum_of(0) or b"")["content"]
    shuffler = ShuffledBatches(parties.study, device.session).shuffler
    assert opened_sum(dict(content), parties.study.identity, shuffler(0), 8) is not None
    far = np.zeros(cells.size, np.int64)
    for value in (8 * int(device.reach.max()) + 1, -(2**63), 2**63 - 1):
        far[0] = value
        wrong = {**content, "counts": base64.b64encode(far.tobytes()).decode()}
        with pytest.raises(ValueError, match="must be sums of the messages of 8 users"):
            opened_sum(wrong, parties.study.identity, shuffler(0), 8)
    for text in ("", base64.b64encode(far.tobytes()[:-8]).decode()):
        with pytest.raises(ValueError, match=f"counts: must be {cells.size} integers"):
            opened_sum({**content, "counts": text}, parties.study.identity, shuffler(0), 8)


def test_a_dry_run_over_http_counts_everybody() -> None:
    result = run_dry(a_study(80, privatizer=LENIENT).for_dry_run())
    assert sum(users for users, _ in result.values) == result.users == 80
    assert 0.0 < result.uniform < result.optimal < 1.0


def test_people_over_http_are_told_what_protects_them(tmp_path: Path) -> None:
    study = a_study(40, privatizer=LENIENT)
    with all_in_background(study, tmp_path, a_key(tmp_path)) as (url, front, _, service):
        (ticket,) = front.store.new_tickets(1)
        with Client(url, service._key.public, promised="shuffle", shuffler=url) as client:
            place = client.place(ticket)
            assert place.guarantee is not None
            assert place.guarantee.shuffled
            x = np.random.default_rng(0).uniform(-2, 2, 4).tolist()
            message = place.message([x], [place.action(0, x)], [0.3])
            assert client.send(message) == client.send(message) == {"status": "counted", "plan": place.number}
            said = " ".join(client.statement()["who_sees_what"])
    assert "Your device adds random noise" in said
    assert "no epsilon holds" in said


def test_a_study_is_charged_to_its_ledger(tmp_path: Path) -> None:
    """Two studies of one population: the total is that of both, and a limit stops a third one."""
    ledger: dict[str, Any] = {"dataset": "ward", "path": str(tmp_path / "ledger.sqlite")}
    one, two, three = (a_study(600, privatizer=LENIENT, ledger=ledger, name=name) for name in "abc")
    for number, study, epsilon in ((1, one, 3.0), (2, two, 4.4)):
        assert reserve(study)
        with Ledger.open(ledger["path"]) as book:
            found = book.certified("ward", 1e-6)
        assert found.reservations == number
        assert found.epsilon == pytest.approx(epsilon, abs=0.2)
    with Ledger.open(ledger["path"]) as book:
        book.set_limit("ward", 4.8, 1e-6)
    with pytest.raises(BudgetError):
        reserve(three)
