"""Batches that close by the clock: sums, privacy loss with times of answers, restarts, publications."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from serving import (
    Clocked,
    a_key,
    a_study,
    central,
    context_table,
)

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan
from discreet.core.trajectories import Trajectory
from discreet.device.feature_map import FeatureMap
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.service import encoding as codec
from discreet.service import release_worker
from discreet.service.app import Service
from discreet.service.clock_batches import ClockBatches, settling_time
from discreet.service.database import ReservationRequest, Store, hashed
from discreet.service.dry_run import run_dry
from discreet.service.message_validation import CentralAdmission, admission_of
from discreet.service.operator_page import page
from discreet.service.participant_statement import make_participant_statement
from discreet.service.release_worker import Writer, begin_study
from discreet.service.server import in_background, opened
from discreet.service.study_config import Study, study_of

START, EVERY, STAYS = 1.8e9, 100.0, 150.0


@pytest.fixture(autouse=True)
def long_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of these tests jumps, and a lease must not end."""
    monkeypatch.setattr(release_worker, "LEASE", 1e6)


def study_with(users: int = 40, **more: Any) -> Study:
    """A study with the rule "clock" and seeded noise."""
    serving, people = {"close": "clock", "every": EVERY}, {"answer_within": STAYS}
    return a_study(users, serving=serving, people=people, **more).for_dry_run()


def contexts_with(users: int = 40, **more: Any) -> Study:
    """The same for users with contexts."""
    serving, people = {"close": "clock", "every": EVERY}, {"answer_within": STAYS}
    return study_of(context_table(users, serving=serving, people=people, **more)).for_dry_run()


class Person:
    """What one user will do: when they ask, when they answer (None: never), and what."""

    def __init__(self, rng: random.Random) -> None:
        self.asks = rng.uniform(0.0, 700.0)
        self.waits: float | None = None if rng.random() < 0.15 else rng.expovariate(1 / 60)
        self.record = [rng.randrange(3) for _ in range(5)], [rng.randrange(2) for _ in range(4)]
        self.rewards = [rng.choice((0.0, 0.5, 1.0)) for _ in range(4)]
        self.context = [rng.uniform(-1, 1) for _ in range(4)]


def people(seed: int, count: int = 70) -> list[Person]:
    """Users, more than the study has places."""
    rng = random.Random(seed)
    return [Person(rng) for _ in range(count)]


class Course:
    """Users who come to a service whose clock moves in steps of two seconds."""

    def __init__(self, study: Study, path: Path, crowd: list[Person], processes: int = 1) -> None:
        self.study, self.time, self.crowd = study, START, crowd
        io = Clocked(lambda: self.time)
        self.stores = [Store(path, io)]
        begin_study(study, self.stores[0], io=io)
        self.stores += [opened(study, str(path), io) for _ in range(processes - 1)]
        self.io, self.turns = io, 0
        self.tickets = self.stores[0].new_tickets(len(crowd))
        self.told: list[Any] = []  # what users hear, except that an answer is counted
        self.log: dict[int, tuple[int, int, bytes]] = {}  # (batch by the clock, plan, body) of each user
        self.writer = self.new_writer(0)

    def new_writer(self, at: int) -> Writer:
        """A process that takes the lease."""
        writer = Writer(self.study, self.stores[at], f"process {at}", self.io)
        assert writer.hold()
        return writer

    def play(self) -> list[bytes]:
        """Let everybody come, until the study is over. Returns the exact releases."""
        admission, open_now = admission_of(self.study, b""), dict[int, tuple[int, float]]()
        first = self.stores[0]
        for tick in range(600):
            self.time, store = START + 2.0 * tick, self.stores[tick % len(self.stores)]
            for user, one in enumerate(self.crowd):
                if 2.0 * tick <= one.asks < 2.0 * tick + 2.0:
                    (found,) = store.admit([ReservationRequest(hashed(self.tickets[user]))], self.time, STAYS)
                    self.told.append((tick, user, found.status, found.plan, found.seconds))
                    if found.status == "placed":
                        end = np.inf if one.waits is None else self.time + one.waits
                        open_now[user] = found.plan, end
            for user, (plan, end) in list(open_now.items()):
                if end <= self.time:
                    del open_now[user]
                    message = admission.answer(self.table(user, plan))
                    (found,) = store.admit([message], self.time, STAYS)
                    if found.status == "counted":
                        self.log[user] = int((self.time - START) // EVERY), plan, message.body
                    else:
                        assert found.status in ("late", "over")
            store.mark_expired(self.time, None, STAYS)
            self.step(tick)
            about = first.about()
            self.turns = int(about["turn"])
            if about["over"]:
                return [bytes(first.exact_release(n) or b"") for n in range(self.turns + 1)]
        raise AssertionError("the study does not end")

    def table(self, user: int, plan: int) -> dict[str, Any]:
        """What a user sends."""
        one, (ticket, nonce) = self.crowd[user], (self.tickets[user], f"{user:032x}")
        if self.study.features is None:
            states, actions = one.record
            return central(ticket, plan, user, states=states, actions=actions, rewards=one.rewards)
        return {
            "ticket": ticket, "plan": plan, "nonce": nonce, "contexts": [one.context],
            "actions": one.record[1][:1], "rewards": one.rewards[:1],
        }  # fmt: skip

    def step(self, tick: int) -> None:
        """Make releases that are due."""
        self.writer.step()

    def close(self) -> None:
        for store in self.stores:
            store.close()


class Operated(Course):
    """Users of a study whose operator pauses, resumes and extends at fixed times."""

    def step(self, tick: int) -> None:
        super().step(tick)
        acts = {20: ("extend", 170.0), 60: ("pause", None), 90: ("resume", None), 100: ("extend", 230.0)}
        if tick in acts:
            kind, seconds = acts[tick]
            self.stores[0].act(kind, STAYS, seconds)  # type: ignore[arg-type]


def reference(course: Course) -> list[bytes]:
    """The releases of a session that gets the answers of each period, without a database."""
    study, admission = course.study, admission_of(course.study, b"")
    session, times = study.start(), [*map(int, study.times), study.users]
    found = [codec.exact(session.release())]
    policy = np.zeros((study.layout.horizon, study.layout.states), np.int64)
    if study.features is not None:
        policy = np.zeros((study.features.blocks, study.features.dimension))
    for batch in range(study.releases - 1):
        size = times[batch + 1] - times[batch]
        mine = sorted((plan, user, body) for user, (own, plan, body) in course.log.items() if own == batch)
        bodies = [body for *_, body in mine]
        session.begin(Plan(policy, size))
        number = session.open_plan.number
        if bodies[size:]:
            session.submit_many(admission.records(bodies[size:]), number, late=True)
        if bodies:
            session.submit_many(admission.records(bodies[:size]), number)
        if len(bodies) < size:
            session.absent(size - len(bodies))
        found.append(codec.exact(session.release()))
    session.close()
    return found


@pytest.mark.parametrize("made", [study_with, contexts_with])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_batch_holds_the_answers_of_its_period(tmp_path: Path, seed: int, made: Any) -> None:
    study = made()
    course = Course(study, tmp_path / "a.db", people(seed))
    with closing(course):
        found = course.play()
        assert found == reference(course)
        assert course.time == START + study.releases * EVERY
        times = [*map(int, study.times), study.users]
        for turn in range(study.releases):
            placed = sum(one["users"] for one in course.stores[0].followed(turn))
            assert placed <= times[turn + 1] - times[turn]
            assert codec.of_exact(found[turn]).users == times[turn]


@pytest.mark.parametrize("contexts", [False, True])
def test_more_answers_than_places_count_in_one_batch(tmp_path: Path, contexts: bool) -> None:
    """All users of two periods answer in the second one."""
    study, crowd = study_with(schedule={"replan_every": 10}), people(4, 40)
    if contexts:
        study = contexts_with(learner={"name": "linear-bandit", "first": 10, "growth": 2.0})
    for n, one in enumerate(crowd):
        one.asks, one.waits = 100.0 * (n // 10) + 15.0, (120.0 if n < 10 else 5.0)
    course = Course(study, tmp_path / "a.db", crowd)
    with closing(course):
        found = course.play()
        assert [own for own, *_ in course.log.values()].count(1) == 20  # its plans have ten places
        assert found == reference(course)


class RestartedCourse(Course):
    """The writer dies at its draws, and another process goes on."""

    def step(self, tick: int) -> None:
        def dies() -> None:
            raise ConnectionError

        self.writer._before_commit = dies if tick % 3 else lambda: None
        try:
            self.writer.step()
        except ConnectionError:
            self.writer.release_lease()
            self.writer = self.new_writer(tick % len(self.stores))


def test_restarts_and_processes_agree_bit_for_bit(tmp_path: Path) -> None:
    study, found = study_with(), []
    for name, kind, processes in (("one", Course, 1), ("two", Course, 2), ("restarted", RestartedCourse, 2)):
        course = kind(study, tmp_path / f"{name}.db", people(7), processes)
        with closing(course):
            found.append((course.play(), course.told))
    # a draw that died was made again later, at most some steps after the end of its batch
    assert found[0] == found[1]
    assert found[0][0] == found[2][0]


# ------------------------------------------------------------------------- privacy
def changed(crowd: list[Person], user: int, waits: float | None) -> list[Person]:
    """The same users, except that one has another record and answers at another time."""
    other = [Person(random.Random(0)) for _ in crowd]
    for new, old in zip(other, crowd, strict=True):
        vars(new).update(vars(old))
    states, actions = crowd[user].record
    other[user].record = [(s + 1) % 3 for s in states], [1 - a for a in actions]
    other[user].rewards = [1.0 - r for r in crowd[user].rewards]
    other[user].context = [1.0 if x < 0 else -1.0 for x in crowd[user].context]
    other[user].waits = waits
    return other


def squared_shift(one: list[bytes], other: list[bytes]) -> float:
    """The sum over releases of (shift / noise scale)^2."""
    total = 0.0
    for a, b in zip(one[1:], other[1:], strict=True):
        for name, estimate in codec.of_exact(a).measurement.estimates.items():  # type: ignore[union-attr]
            value = codec.of_exact(b).measurement.estimates[name].value  # type: ignore[union-attr]
            total += float(
                (((np.asarray(estimate.value) - np.asarray(value)) / estimate.law.std()) ** 2).sum()
            )
    return total


@pytest.mark.parametrize(
    ("release", "course_type"), [("batches", Course), ("decaying", Course), ("decaying", Operated)]
)
def test_record_and_time_of_an_answer_cost_what_is_stated(
    tmp_path: Path, release: str, course_type: type[Course]
) -> None:
    """Nobody else hears anything else, and the squared shifts sum to at most 2 rho."""
    privatizer = {"name": "central", "epsilon": 1.0, "delta": 1e-6, "release": release}
    if release == "decaying":
        privatizer["decay"] = 0.6
    study, crowd = study_with(privatizer=privatizer), people(11)
    rho = study.guarantee.rho
    assert rho is not None
    base = course_type(study, tmp_path / "base.db", crowd)
    with closing(base):
        released = base.play()
    early = [user for user, (batch, *_) in sorted(base.log.items()) if batch < study.releases - 3]
    ratios, moved = [], 0
    for user in early[:: max(1, len(early) // 2)]:
        late = 149.0 if course_type is Course else 220.0  # before the end of the place, or of the longer one
        for n, waits in enumerate((crowd[user].waits, 0.0, 110.0, late, None)):
            course = course_type(study, tmp_path / f"{user} {n}.db", changed(crowd, user, waits))
            with closing(course):
                found = course.play()
            assert course.told == base.told
            moved += course.log.get(user, (None,))[0] != base.log[user][0]
            ratios.append(squared_shift(released, found) / (2.0 * rho))
    assert max(ratios) <= 1.0 + 1e-6
    assert moved >= 3  # answers in another batch, or none
    assert min(ratios) > 0.1
    if release == "batches":
        assert max(ratios) > 0.5


def context_shift(one: list[bytes], other: list[bytes]) -> float:
    """The same for contexts, whose releases are sums of the batches with separate noise."""
    total, seen = 0.0, [(0.0, 0.0)] * 2
    for a, b in zip(one[1:], other[1:], strict=True):
        releases = [codec.of_exact(one).estimates for one in (a, b)]
        for at, (name, diagonal) in enumerate((("gram", 2.0), ("response", 1.0))):
            shift, before = releases[0][name].value - releases[1][name].value, seen[at]
            variance = float(releases[0][name].law.std(0)) ** 2  # type: ignore[call-arg, arg-type]
            new, own = shift - before[0], variance - before[1]
            seen[at] = shift, variance
            if name == "gram":
                i, j = np.triu_indices(new.shape[-1])
                total += float((new[:, i, j] ** 2 / np.where(i == j, diagonal, 1.0)).sum()) / own
            else:
                total += float((new**2).sum()) / own
    return total


def test_record_and_time_of_an_outcome_cost_what_is_stated(tmp_path: Path) -> None:
    """As above, with contexts: the outcome of one user is known at another time, or never."""
    study, crowd = contexts_with(), people(11)
    mu = study.guarantee.mu
    assert mu is not None
    base = Course(study, tmp_path / "base.db", crowd)
    with closing(base):
        released = base.play()
    early = [user for user, (batch, *_) in sorted(base.log.items()) if batch < study.releases - 3]
    ratios, moved = [], 0
    for user in early[:: max(1, len(early) // 2)]:
        for n, waits in enumerate((crowd[user].waits, 0.0, 110.0, 149.0, None)):
            course = Course(study, tmp_path / f"{user} {n}.db", changed(crowd, user, waits))
            with closing(course):
                found = course.play()
            assert course.told == base.told
            moved += course.log.get(user, (None,))[0] != base.log[user][0]
            ratios.append(context_shift(released, found) / mu**2)
    assert max(ratios) <= 1.0 + 1e-6
    assert moved >= 3  # answers in another batch, or none
    assert min(ratios) > 0.01


@pytest.mark.parametrize("noise", ["goe", "triangle", "laplace"])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 1.5, 4.0])
def test_two_contexts_in_two_batches_cost_no_more_than_a_replaced_context(noise: Any, ratio: float) -> None:
    """Brute force over features of norm at most 1, actions and rewards: 2 M^2 <= the stated mu^2."""
    features = FeatureMap({"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, 2)
    query, p = ContextQuery(features=features, gram_ratio=ratio), features.dimension
    scales = {"gram": np.full(2, ratio), "response": np.ones(2)}
    (stated,) = query.losses(noise, scales)
    rng = np.random.default_rng(0)
    phi = np.concatenate([np.eye(p), np.full((1, p), p**-0.5), rng.normal(size=(3000, p))])
    phi /= np.maximum(1.0, np.linalg.norm(phi, axis=1, keepdims=True))
    i, j = np.triu_indices(p)
    gram, response = phi[:, i] * phi[:, j] / ratio, phi / 2.0
    if noise == "laplace":
        largest = (np.abs(gram).sum(axis=1) + np.abs(response).sum(axis=1)).max()
        assert 2.0 * largest == pytest.approx(stated, rel=1e-12)
        return
    width = np.where(i == j, 2.0, 1.0) if noise == "goe" else 1.0
    squared = ((gram**2 / width).sum(axis=1) + (response**2).sum(axis=1)).max()
    assert 0.3 * stated**2 < 2.0 * squared <= stated**2 * (1 + 1e-12)


def all_records(layout: Layout) -> list[Trajectory]:
    steps = layout.horizon
    found = []
    for states in itertools.product(range(layout.states), repeat=steps + 1):
        for actions in itertools.product(range(layout.actions), repeat=steps):
            if layout.mask is None or all(layout.mask[s, a] for s, a in zip(states, actions, strict=False)):
                for rewards in itertools.product((0.0, 1.0), repeat=steps):
                    found.append(
                        Trajectory(np.array(states), np.array(actions), np.array(rewards, np.float64))
                    )
    return found


def flat(query: CountQuery, record: Trajectory, weight: Mapping[str, float]) -> Any:
    table = query.contribution(record)
    return np.concatenate([np.ravel(table[name]) * weight[name] for name in query.row_families])


@pytest.mark.parametrize(
    "options",
    [
        {}, {"visits": False, "center_rewards": True}, {"known_rewards": True}, {"stationary": True},
        {"visits": False, "center_rewards": True, "pooled": "all"}, {"pooled": "first"},
        {"stationary": True, "visits": False, "center_rewards": True},
    ],
)  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_two_records_in_two_batches_cost_no_more_than_a_replaced_record(
    options: dict[str, Any], masked: bool
) -> None:
    """Brute force: 2 M^2 <= D^2, 2 M <= D in l1, and the columns of decaying sums."""
    layout = Layout(2, 2, 2, np.array([[True, True], [True, False]]) if masked else None)
    query, rng = CountQuery(layout, **options), np.random.default_rng(5)
    weight = {name: float(w) for name, w in zip(query.row_families, rng.uniform(0.2, 2.0, 9), strict=False)}
    records = np.array([flat(query, one, weight) for one in all_records(layout)])
    stated = {norm: query.sensitivity(norm, weight) for norm in ("l1", "l2")}  # type: ignore[arg-type]
    assert 2.0 * np.abs(records).sum(axis=1).max() <= stated["l1"] * (1 + 1e-12)
    squares = (records**2).sum(axis=1)
    assert 2.0 * squares.max() <= stated["l2"] ** 2 * (1 + 1e-12)
    gram = records @ records.T
    for decay in (0.0, 0.3, 0.85, 0.99):
        gain, releases = np.sqrt(1.0 - decay**2), 6
        columns = [
            np.array([gain * decay ** (k - p) if k >= p else 0.0 for k in range(releases)])
            for p in range(releases)
        ]
        for p, q in itertools.combinations_with_replacement(range(releases), 2):
            own, other, both = (float(columns[x] @ columns[y]) for x, y in ((p, p), (q, q), (p, q)))
            worst = (own * squares[:, None] + other * squares[None, :] - 2.0 * both * gram).max()
            assert worst <= stated["l2"] ** 2 * (1 + 1e-9), (decay, p, q)


# ------------------------------------------------------------------------- study file, what is published
@pytest.mark.parametrize(
    ("serving", "more", "words"),
    [
        ({"close": "clock"}, {}, "serving.every"),
        ({"close": "clock", "every": 0.0}, {}, "serving.every"),
        ({"close": "resolved", "every": 60}, {}, "serving.every"),
        ({"close": "clock", "every": 60, "in_flight_least": 9}, {}, "in_flight_least = 9"),
        ({"close": "clock", "every": 60}, {"people": {"closes_after": 7200}}, "closes_after"),
        ({"close": "clock", "every": 60}, {"trust": "local"}, "only by noise of the server"),
        ({"close": "clock", "every": 60}, {"trust": "shuffle"}, "shuffler"),
    ],
)
def test_wrong_rules_are_refused(serving: dict[str, Any], more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        a_study(serving=serving, **more)
    if more.get("trust") != "shuffle":
        with pytest.raises(ValueError, match=words):
            study_of(context_table(**more, serving=serving))


@pytest.mark.parametrize("release", ["reports", "tree"])
def test_other_noise_is_refused(release: str) -> None:
    learner = {"name": "ucb-vi"} if release == "tree" else {"name": "noise-aware"}
    privatizer = {"name": "central", "epsilon": 1.0, "release": release}
    with pytest.raises(ValueError, match="only by noise of the server"):
        study_with(privatizer=privatizer, learner=learner, schedule={"replan_every": 10})


def test_nothing_published_depends_on_answers(tmp_path: Path) -> None:
    """Statement, page, plan and metrics are the same, whether or not users answer."""
    study, seen = study_with(), []
    for waits in (1.0, None):
        folder = tmp_path / str(waits)
        folder.mkdir()
        clock = [START]
        io = Clocked(lambda clock=clock: clock[0])  # type: ignore[misc]
        with in_background(study, folder / "a.db", a_key(folder), io=io) as (url, service):
            store = service.store
            clock[0] = store.begun() + 1.0
            (ticket,) = store.new_tickets(1)
            (place,) = store.admit([ReservationRequest(hashed(ticket))], clock[0], STAYS)
            if waits:
                admission = CentralAdmission(study.layout)
                store.admit([admission.answer(central(ticket, place.plan))], clock[0], STAYS)
            shown = page(study, store, service.content, "")
            body = json.loads(httpx.get(f"{url}/plan").content)["content"]
            with_token = {"Authorization": f"Bearer {store.new_token()}"}
            assert httpx.get(f"{url}/metrics").status_code == 401
            assert "discreet_messages" in httpx.get(f"{url}/metrics", headers=with_token).text
            (full,) = store.admit([ReservationRequest(hashed(store.new_tickets(1)[0]))], clock[0], STAYS)
            seen.append((_without_key(shown), body["plans"], full.status, full.seconds, store.vacancies()))
            told = " ".join(service.content["side_channels"])
            assert "when you answer, and whether you answer" in told
            assert "how many people have answered" not in told
            assert "every 100 seconds" in service.content["absent"]["meaning"]
    assert seen[0] == seen[1]
    assert seen[0][2] == "full"
    assert seen[0][3] == pytest.approx(EVERY - 1.0 + settling_time(EVERY))  # until the next plans open


def test_the_end_of_a_study_does_not_show_who_has_not_answered(tmp_path: Path) -> None:
    """A reservation that is open at the end is marked absent like any other."""
    study, crowd = study_with(), people(3)
    for one in crowd:
        one.waits = None
    course = Course(study, tmp_path / "a.db", crowd)
    with closing(course):
        course.play()
        store = course.stores[0]
        assert store.waiting()[0] > 0
        course.time += STAYS
        assert store.mark_expired(course.time, None, STAYS) > 0
        assert store.waiting()[0] == 0
        assert store.mark_expired(course.time, None, STAYS) == 0
        assert not [one for one in store.plans() if one["placed"] != one["absent"]]


def test_plans_open_at_a_time_that_depends_on_no_answer(tmp_path: Path) -> None:
    """The service looks at the times at which a batch closes and plans open, and answers do not wake it."""
    study, clock = study_with(schedule={"replan_every": 10}), [START]
    io = Clocked(lambda: clock[0])
    store = opened(study, str(tmp_path / "a.db"), io)
    with closing(store):
        service = Service(study, store, a_key(tmp_path), io)
        service._hold()
        tickets = store.new_tickets(2)
        places = store.admit([ReservationRequest(hashed(one)) for one in tickets[:1]], START, STAYS)
        admission = CentralAdmission(study.layout)
        for at, pause, turn in ((EVERY - 0.01, 0.01, 0), (EVERY, 0.2, 0), (EVERY + 9.995, 0.005, 0)):
            clock[0] = START + at
            # whether or not a transaction came after the end of the batch, nobody gets a place
            assert (store.vacancies() > 0) == (at < EVERY)
            service._turn()
            assert service._pause() == pytest.approx(pause, abs=1e-6)
            assert service.turn == turn
        store.admit([admission.answer(central(tickets[0], places[0].plan))], clock[0], STAYS)
        assert store.whole
        service._wrote()
        assert not service._wake.is_set()
        clock[0] = START + EVERY + settling_time(EVERY)
        service._turn()
        assert service.turn == 1
        service.writer.release_lease()


def _without_key(text: str) -> str:
    return text.split("Signed with the key")[0]


def test_the_settling_time_and_the_date_do_not_depend_on_the_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A draw that is longer than the settling time is logged; the date is that of the end of the batch."""
    assert [settling_time(every) for every in (5.0, 100.0, 86_400.0)] == [0.5, 10.0, 60.0]
    day = 86_400.0
    study, clock = study_with(), [day * 20_000 - EVERY - 5.0]
    io = Clocked(lambda: clock[0])
    dates = []
    for seconds in (1.0, 11.0):
        path = tmp_path / str(seconds)
        clock[0] = day * 20_000 - EVERY - 5.0  # the batch ends 5 s before midnight
        store = opened(study, str(path), io)
        with closing(store):
            writer = Writer(study, store, "a test", io)
            assert writer.hold()
            clock[0] += EVERY + 1.0

            def drawn(seconds: float = seconds) -> None:
                clock[0] += seconds

            monkeypatch.setattr(writer, "_before_commit", drawn)
            writer.step()
            clock[0] += 10.0
            writer.step()
            body = store.release(1)
            assert body is not None
            dates.append(json.loads(body[0])["time"])
            assert ("took longer" in caplog.text) == (seconds > 9.0)
    assert dates == ["2024-10-03"] * 2


def test_plans_stay_published_by_the_clock(tmp_path: Path) -> None:
    """Earlier plans are shown while one of their reservations can be open, whether or not one is."""
    study = study_with()
    course = Course(study, tmp_path / "a.db", people(3))
    with closing(course):
        course.play()
        store = course.stores[0]
        assert isinstance(store.batches, ClockBatches)
        assert store.batches.held_turns == 3
        held = {row["number"] for row in store.held_policies(course.turns)}
        wanted = {row["number"] for t in range(course.turns - 3, course.turns) for row in store.followed(t)}
        assert held == wanted


def test_other_rules_say_what_they_do_not_cover() -> None:
    for close, words in (("resolved", "does not cover when you answer"), ("all", "how many people have")):
        told = make_participant_statement(a_study(serving={"close": close}), None, "")
        assert words in " ".join(told["side_channels"])
        assert told["every_seconds"] is None


@pytest.mark.parametrize("made", [study_with, contexts_with])
def test_a_dry_run_jumps_from_release_to_release(made: Any) -> None:
    study = made(60)
    result = run_dry(study)
    assert (result.users, result.releases) == (60, study.releases - 1)
    assert sum(users for users, _ in result.values) == 60
    assert result.seconds < 600.0
