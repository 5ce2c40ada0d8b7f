"""Batches that close when enough reservations are resolved: sizes, sums, privacy loss, restarts."""

import json
import random
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import (
    a_key,
    a_study,
    a_writer,
    begun,
    central,
    of_an_earlier_version,
    over_http,
    placed,
    stopped,
)

from discreet.core.releases import Message, Plan
from discreet.device.http_client import PlanReservation
from discreet.mechanisms.interfaces import MixedRelease
from discreet.service import encoding as codec
from discreet.service.database import ReservationRequest, Store, hashed
from discreet.service.dry_run import people_of
from discreet.service.message_validation import CentralAdmission, admission_of
from discreet.service.resolved_batches import ResolvedBatches
from discreet.service.server import migrate, opened
from discreet.service.study_config import Study

RULE = {"close": "resolved", "in_flight_least": 7, "in_flight_share": 0.4}


def study_with(users: int = 60, trust: str = "central", **more: Any) -> Study:
    """A study with the rule "resolved" and seeded noise."""
    return a_study(users, trust, serving=RULE, **more).for_dry_run()


class Log:
    """One random sequence of events at the service, played through its store and its writer."""

    def __init__(self, study: Study, path: Path, seed: int, never: float = 0.15) -> None:
        self.study, self.rng, self.never = study, random.Random(seed), never
        self.store = begun(study, path)
        self.writer = a_writer(study, self.store)
        form = bytes(self.store.about()["form"])
        self.admission: Any = admission_of(study, form)
        self.tickets = self.store.new_tickets(2 * study.users)
        self.open: list[tuple[int, PlanReservation, float]] = []  # (user, place, time of the answer)
        self.people = 0
        self.time = stopped.time()
        self.outcomes: list[tuple[int, int, Any]] = []  # (plan, user, message body or None), in their order
        self.most, self.stays = 0, 60.0
        self.known: set[int] = set()

    def play(self) -> None:
        """Let users come, answer in any order or not at all, until the study is over."""
        for _ in range(40 * self.study.users):
            if self.store.about()["over"]:
                return
            self._come()
            self._answer()
            self.step()
        raise AssertionError("the study does not end")

    def step(self) -> None:
        self.writer.step()

    def _come(self) -> None:
        for _ in range(self.rng.randrange(4)):
            ticket = self.tickets[self.people]
            (found,) = self.store.admit([ReservationRequest(hashed(ticket))], self.time, 60.0)
            if found.status != "placed":
                assert found.status in ("full", "over", "paused")
                return
            row = next(
                one
                for turn in range(int(self.store.about()["turn"]) + 1)
                for one in self.store.policies(turn)
                if one["number"] == found.plan
            )
            book = self._book()
            place = PlanReservation(ticket, found.seconds, json.loads(row["policy"]), book)
            if found.plan not in self.known and hasattr(self.admission, "plan"):
                self.admission.plan(found.plan, place.policy)
            self.known.add(found.plan)
            never = self.rng.random() < self.never
            self.open.append((self.people, place, -1.0 if never else self.rng.expovariate(0.5)))
            self.people += 1
            self.most = max(self.most, len(self.open))

    def _book(self) -> dict[str, Any]:
        layout = self.study.layout
        world = {"states": layout.states, "actions": layout.actions, "horizon": layout.horizon}
        return {
            "world": {**world, "rewards": [0.0, 1.0]},
            "trust": self.study.trust,
            "form": codec.text_of(bytes(self.store.about()["form"])),
        }

    def _answer(self) -> None:
        self.rng.shuffle(self.open)
        stay = []
        for user, place, left in self.open:
            if left < 0.0 or left > 1.0:
                stay.append((user, place, left - 1.0 if left > 1.0 else left))
                continue
            record, coins = people_of(self.study, place, user)
            own = None if self.study.trust == "joint" else coins
            sent = place.message(record.states, record.actions, record.rewards, own)
            message = self.admission.answer(dict(sent.table))
            (told,) = self.store.admit([message], self.time, 60.0)
            assert told.status == "counted"
            assert self.store.admit([message], self.time, 60.0)[0].status == "counted"  # the same answer
            self.outcomes.append((place.number, user, message.body))
        late = [one for one in stay if one[2] < 0.0]
        if late and self.rng.random() < 0.5:
            assert self.store.mark_expired(self.time + self.stays - 1.0, None, 60.0) == 0
            count = self.store.mark_expired(self.time + self.stays + 1.0, None, 60.0)
            assert count == len(stay)  # all places were taken at the same time
            self.outcomes += [(place.number, user, None) for user, place, _ in sorted(stay, key=_ticket)]
            stay = []
        self.open = stay


class Operated(Log):
    """A log in which the operator pauses, resumes and extends at random times."""

    def step(self) -> None:
        super().step()
        kind = self.rng.choice(["pause", "resume", "resume", "extend", ""])
        if kind:
            seconds = self.stays + 10.0 * self.rng.random() if kind == "extend" else None
            self.stays = self.store.act(kind, 60.0, seconds).stays(60.0)  # type: ignore[arg-type]


def _ticket(one: tuple[int, Any, Any]) -> int:
    return one[0]


def reference(log: Log) -> list[Any]:
    """The releases of a session that gets the resolved reservations batch by batch, without a database."""
    study = log.study
    session, found = study.start(), []
    found.append(session.release())
    policies = {
        one["number"]: codec.policy_of(json.loads(one["policy"]))
        for turn in range(int(log.store.about()["turn"]) + 1)
        for one in log.store.policies(turn)
    }
    ends = [*[int(n) for n in study.times], study.users]
    for first, last in pairwise(ends[:-1]):
        batch = log.outcomes[first:last]
        numbers = sorted({plan for plan, _, _ in batch})
        for plan in numbers:
            mine = sorted((user, body) for number, user, body in batch if number == plan and body is not None)
            absent = sum(number == plan and body is None for number, _, body in batch)
            session.begin(Plan(policies[plan], len(mine) + absent, last=plan == numbers[-1]))
            for _, body in mine:
                if isinstance(log.admission, CentralAdmission):
                    session.submit_many(log.admission.records([body]), session.open_plan.number)
                else:
                    sent = log.admission.opened(plan, body)
                    session.submit(Message(session.open_plan.number, message=sent))
            if absent:
                session.absent(absent)
        found.append(session.release())
    session.close()
    return found


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_batches_have_the_sizes_and_sums_of_the_schedule(tmp_path: Path, trust: str, seed: int) -> None:
    study = study_with(trust=trust)
    log = (Log if seed < 2 else Operated)(study, tmp_path / "a.db", seed)
    with closing(log.store):
        log.play()
        assert len(log.outcomes) == study.users  # whoever has a place is counted once
        assert log.most <= max(7, int(0.4 * study.users))
        ends = [*[int(n) for n in study.times], study.users]
        mixed = 0
        for batch, (first, last) in enumerate(pairwise(ends)):
            parts, mine = log.store.batch(batch), log.outcomes[first:last]
            assert sum(one["users"] for one in parts) == last - first
            for part in parts:
                told = [body for plan, _, body in mine if plan == part["number"]]
                assert part["users"] == len(told)
                assert part["absent"] == sum(body is None for body in told)
            mixed += len({json.dumps(json.loads(one["policy"])["policy"]) for one in parts}) > 1
        assert mixed  # some batches have users of several releases' plans
        for number, release in enumerate(reference(log)):
            stored = log.store.exact_release(number)
            assert stored is not None
            assert codec.exact(codec.of_exact(stored)) == codec.exact(release)
        assert log.writer.refused == 0


@pytest.mark.parametrize("course", [Log, Operated])
def test_a_record_costs_what_it_costs_in_one_batch(tmp_path: Path, course: type[Log]) -> None:
    """With equal noise, log and other records, the squared shifts of all releases sum to at most 2 rho."""
    log = course(study_with(40), tmp_path / "a.db", 5)
    steps, rho = log.study.layout.horizon, log.study.guarantee.rho
    assert rho is not None
    with closing(log.store):
        log.play()
        answered = [at for at, (_, _, body) in enumerate(log.outcomes) if body is not None]
        ends, ratios = [int(n) for n in log.study.times], []
        for at in [one for one in answered if one < ends[-1]][::3]:
            plan, user, _ = log.outcomes[at]
            pair = []
            for state, action, reward in ((0, 0, 0.0), (2, 1, 1.0)):
                body = np.full(steps + 1, state, "<i4").tobytes() + np.full(steps, action, "<i4").tobytes()
                log.outcomes[at] = plan, user, body + np.full(steps, reward, "<f8").tobytes()
                pair.append(reference(log))
            ratios.append(_squared_shift(*pair) / (2.0 * rho))
    assert max(ratios) <= 1.0 + 1e-6
    assert min(ratios) > 0.5  # the records differ in every step


def _squared_shift(one: list[Any], other: list[Any]) -> float:
    """The sum over releases of (shift / noise scale)^2."""
    total = 0.0
    for a, b in zip(one[1:], other[1:], strict=True):
        for name, estimate in a.measurement.estimates.items():
            shift = np.asarray(estimate.value) - np.asarray(b.measurement.estimates[name].value)
            total += float(((shift / estimate.law.std()) ** 2).sum())
    return total


def test_a_killed_turn_is_repeated_bit_for_bit(tmp_path: Path) -> None:
    logs = [kind(study_with(), tmp_path / f"{kind.__name__}.db", 8) for kind in (Log, KilledLog)]
    found = []
    for log in logs:
        with closing(log.store):
            log.play()
            found.append([log.store.release(n) for n in range(log.study.releases)])
    assert [one[0] for one in found[0]] == [one[0] for one in found[1]]  # type: ignore[index]


class Killed(Exception):
    """A process dies after the noise is drawn and before it is stored."""


class KilledLog(Log):
    """A log whose writer dies at every second draw; a new writer continues."""

    draws = 0

    def _killed(self) -> None:
        self.draws += 1
        if self.draws % 2:
            raise Killed

    def step(self) -> None:
        self.writer._before_commit = self._killed
        try:
            self.writer.step()
        except Killed:
            self.writer.release_lease()
            self.writer = a_writer(self.study, self.store)
            self.step()


def test_the_learner_predicts_from_the_policies_that_were_followed() -> None:
    """Without delay, the policies that were followed are those of the last plans: equal states and plans."""
    study = study_with(200)
    learner, session = study.learner, study.start()
    ties = np.zeros(2, np.uint64)
    told, mixed = (learner.begin(study.spec, ties) for _ in range(2))
    followed: list[Any] = []
    for _ in range(5):
        release = session.release()
        shown = MixedRelease(**vars(release), followed=tuple(followed))
        followed = []
        while True:
            plan, told = learner.plan(told, release)
            same, mixed = learner.plan(mixed, shown)
            assert np.array_equal(plan.policy, same.policy)
            followed.append((plan.policy, plan.users))
            session.begin(plan)
            session.absent(plan.users)
            if plan.last:
                break
    release = session.release()
    _, told = learner.plan(told, release)
    _, mixed = learner.plan(mixed, MixedRelease(**vars(release), followed=tuple(followed)))
    assert not np.array_equal(told.memory, mixed.memory)  # ``told`` predicts the next users, too
    other, begun_again = [], learner.begin(study.spec, ties)
    _, other_state = learner.plan(begun_again, MixedRelease(**vars(session.release()), followed=()))
    other.append(other_state)
    assert not np.array_equal(other[0].memory, mixed.memory)
    session.close()


@pytest.mark.parametrize("trust", ["central", "local"])
def test_everybody_is_counted_over_http(tmp_path: Path, trust: str) -> None:
    study = a_study(50, trust, serving={"close": "resolved", "in_flight_least": 9}).for_dry_run()
    found = over_http(study, tmp_path, 20, 6)
    assert len(found) >= study.releases


def test_a_copy_of_a_counted_message_is_refused(tmp_path: Path) -> None:
    """A plan stays open after its first message is counted and removed: no other ticket can send a copy."""
    study = a_study(40, serving={"close": "resolved", "in_flight_least": 7})
    with closing(begun(study, tmp_path / "a.db")) as store:
        writer, admission = a_writer(study, store), CentralAdmission(study.layout)
        tickets = store.new_tickets(2)
        plan, same = placed(store, tickets)
        assert plan == same
        answers = [admission.answer(central(ticket, plan, 5)) for ticket in tickets]
        assert store.admit(answers[:1], stopped.time(), 60.0)[0].status == "counted"
        assert writer.step()
        assert store.sweep() == 1
        assert store.admit(answers[1:], stopped.time(), 60.0)[0].status == "replayed"
        assert store.admit(answers[:1], stopped.time(), 60.0)[0].status == "counted"


def test_plans_share_places_in_proportion() -> None:
    rule = ResolvedBatches((0, 100), 1000, 1000, 0.0)
    plans = [
        {"number": number, "turn": 0, "users": users, "placed": 0, "came": 0, "absent": 0, "opened": 0.0}
        for number, users in ((1, 60), (2, 30), (3, 10))
    ]
    tickets = {
        bytes([n]): {"id": n, "state": 0, "plan": None, "due": None, "nonce": None, "person": None}
        for n in range(50)
    }
    batch = rule.requests(0, [], plans, tickets, set(), False, 0.0, 9.0, np.inf)
    for n in range(50):
        assert batch.place(ReservationRequest(bytes([n]))).status == "placed"
        shares = [(n + 1) * one["users"] / 100 for one in plans]
        assert all(abs(one["placed"] - share) < 1.0 for one, share in zip(plans, shares, strict=True))


def test_a_place_is_free_while_few_are_open() -> None:
    rule = ResolvedBatches((0, 10, 100), 300, 4, 0.1)
    assert [rule.most_open(r) for r in (0, 39, 50, 200)] == [4, 4, 5, 20]
    assert [rule.size(turn) for turn in range(3)] == [10, 90, 200]
    assert [rule.batch_of(r) for r in (0, 9, 10, 99, 100, 299)] == [0, 0, 1, 1, 2, 2]


def test_a_database_keeps_the_rule_that_it_was_begun_with(tmp_path: Path) -> None:
    """A database of an earlier version has no rule: it goes on with "all"."""
    study = a_study(serving={})
    assert study.close_rule == "resolved"
    with closing(begun(study, tmp_path / "new.db")) as store:
        assert store.close_rule() == "resolved"
    with closing(opened(study, str(tmp_path / "new.db"))) as store:
        assert store.batches is not None
        store.batches = None
        with pytest.raises(RuntimeError, match="begun with"):
            a_writer(study, store)
    with closing(begun(a_study(), tmp_path / "old.db")):
        pass
    with closing(sqlite3.connect(tmp_path / "old.db")) as old, old:
        old.execute("ALTER TABLE messages DROP COLUMN batch")
    of_an_earlier_version(tmp_path / "old.db", "serving", "resolved")
    migrate(a_study(), str(tmp_path / "old.db"))
    with closing(opened(a_study(), str(tmp_path / "old.db"))) as store:
        assert store.close_rule() == "all"
        assert store.batches is None
        tickets = store.new_tickets(1)
        found = store.admit([ReservationRequest(hashed(tickets[0]))], stopped.time(), 60.0)
        assert found[0].status == "placed"


@pytest.mark.parametrize(
    ("serving", "people", "words"),
    [
        ({"close": "clock"}, {}, "serving.close"),
        ({"close": "resolved"}, {"closes_after": 7200}, "closes_after"),
        ({"in_flight_least": 0}, {}, "in_flight_least"),
        ({"in_flight_share": -0.1}, {}, "in_flight_share"),
        ({"quorum": 3}, {}, "serving.quorum"),
        ({"close": "all", "in_flight_least": 9}, {}, "in_flight_least = 9"),
        ({"in_flight_share": 0.2}, {"closes_after": 7200}, "in_flight_share = 0.2"),
    ],
)
def test_wrong_rules_are_refused(serving: dict[str, Any], people: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        a_study(serving=serving, people=people)
    with pytest.raises(ValueError, match="shuffler"):
        a_study(trust="shuffle", serving={"close": "resolved"})


def test_a_user_without_a_place_gets_a_policy_and_sends_nothing(tmp_path: Path) -> None:
    from discreet.device.http_client import Client, Turned
    from discreet.service.server import in_background

    study = a_study(50, serving={"close": "resolved", "in_flight_least": 1})
    with in_background(study, tmp_path / "a.db", a_key(tmp_path)) as (url, service):
        first, second = service.store.new_tickets(2)
        with Client(url, promised="central") as client:
            place = client.place(first)
            with pytest.raises(Turned) as refused:
                client.place(second)
            assert refused.value.reason == "full"
            guest = client.guest()
            assert np.array_equal(guest.policy, place.policy)
            assert not hasattr(guest, "message")
            states = [0] * (guest.horizon + 1)
            actions = [guest.action(h, 0) for h in range(guest.horizon)]
            client.send(place.message(states, actions, [0.0] * guest.horizon))
            assert client.place(second).number >= place.number  # the place is free again
            told = client.statement()
            assert "does not cover when you answer" in told["side_channels"][-1]
            assert Store(tmp_path / "a.db").close_rule() == "resolved"
