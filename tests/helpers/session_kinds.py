"""Every kind of session, small and fast, for the tests of what all of them promise.

A kind is built by public functions alone: a privatizer chooses the mechanism, and ``session_of`` opens its
session. ``Run`` plays one fixed course of calls and records all that is released. It can stop at a named
moment, and go on with a restored session.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device.feature_map import FeatureMap
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Message, Plan, Response, Schedule
from discreet.mechanisms.linear.adaptive_queries import Question, ResponseSession
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecord, ContextRecords
from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.seeded_rng import SeededRng

S, A, H, D = 2, 2, 2, 2
LAYOUT = Layout(S, A, H)
POLICY = np.zeros((H, S), np.int64)
SOURCES = {"seeded": Seeded(5), "secure": Secure()}
USERS = 7
TIMES = np.array([0, 2, 4, 6])

_RNG = np.random.default_rng(5)
_TABLE = _RNG.uniform(-1, 1, (S, A, S, D)) / 4
_PHI = Features(_RNG.dirichlet(np.ones(D), (S, A)), 1.0, l1=1.0, nonneg=True)
_PSI = Features(_RNG.dirichlet(np.ones(2), (S, A)), 1.0, l1=1.0)
_VALUES = np.array([_RNG.uniform(0, H - h, S) for h in range(H + 1)])
_CONTEXT = {"values": _VALUES, "weights": np.full((H - 1, S, A), 1.5)}

_PLAIN = CountQuery(LAYOUT)
_CENTRED = CountQuery(LAYOUT, visits=False, center_rewards=True)
_CRUDE = CountQuery(LAYOUT, step=1, known_rewards=True)
_GROUPS = CountQuery(LAYOUT, visits=False, center_rewards=True, groups=2, clip=1.5)
_CUT = CountQuery(LAYOUT, visits=False, center_rewards=True, cut=1.0)
_MIXTURE = MixtureQuery(
    layout=LAYOUT, features=MixtureFeatures(_TABLE, 2.0), second=True, rewards="tabular", largest_weight=2.0
)
_AIMED = MixtureQuery(
    layout=LAYOUT, features=MixtureFeatures(_TABLE, 2.0, rewards=_PSI), rewards=_PSI, targets="centred"
)
_MODEL = GramQuery(layout=LAYOUT, features=_PHI)
_ASKING = GramQuery(layout=LAYOUT, features=_PHI, model=False)

_CONTEXTS = ContextQuery(features=FeatureMap({"x": (-1.0, 1.0)}, A))

_EVERY = Schedule(USERS, times=TIMES)
_MEASURED = Schedule(USERS, times=TIMES, reads="measurements")
_QUERIES = Schedule(USERS, times=TIMES, queries=(_CRUDE, _CENTRED, _CENTRED))


def record(i: int) -> Trajectory:
    """Return the trajectory of user i, who follows ``POLICY`` and whose rewards are bits."""
    rng = np.random.default_rng(i)
    return Trajectory(rng.integers(0, S, H + 1), np.zeros(H, np.int64), rng.integers(0, 2, H) * 1.0)


def records(users: range) -> Trajectories:
    """Return the trajectories of several users."""
    rows = [record(i) for i in users]
    return Trajectories(*(np.stack([vars(one)[name] for one in rows]) for name in vars(rows[0])))


@dataclass(frozen=True)
class Shown:
    """What one call returned: public facts, and values that hold noise."""

    facts: tuple[Any, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of session.

    redraws : a release that follows an interrupted one may draw fresh noise. loses : an interrupted release
        may lose its batch.
    """

    name: str
    privatizer: Any
    query: Any
    sources: tuple[str, ...] = ("seeded", "secure")
    redraws: bool = False
    loses: bool = False

    #: moments of the course at which a session can be saved, in their order
    moments = ()  # type: tuple[str, ...]
    #: the moment before :meth:`last`
    midway = ""
    #: how many users :meth:`last` adds
    adds = 1

    @property
    def noisy(self) -> bool:
        return not isinstance(self.privatizer, dr.NoPrivacy)

    def open(self, source: str, randomness: Any = None) -> Any:
        """Return a new session. ``randomness`` : used instead of the named source."""
        raise NotImplementedError

    def course(self, run: Run) -> Iterator[str]:
        """Play the course, and yield each moment."""
        raise NotImplementedError

    def calls(self, session: Any, source: str, path: Path) -> dict[str, Callable[[], Any]]:
        """Return all calls of the session at ``midway`` that read or change private data."""
        raise NotImplementedError

    def last(self, session: Any, source: str) -> Callable[[], Any]:
        """Return the call that adds the last users before the next release."""
        raise NotImplementedError

    def end(self, session: Any) -> list[Shown]:
        """Release what stands after :meth:`last`, and ask what can be asked."""
        raise NotImplementedError

    def wrong(self, session: Any, source: str) -> list[Callable[[], Any]]:
        """Return calls at ``midway`` that must raise ``ValueError`` and change nothing."""
        raise NotImplementedError


@dataclass
class Run:
    """One session on its course, and all that it showed."""

    kind: Kind
    source: str
    randomness: Any = None
    shown: list[Shown] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = self.kind.open(self.source, self.randomness)
        self._course = self.kind.course(self)

    def until(self, moment: str) -> Self:
        """Play until a moment."""
        assert moment in self._course
        return self

    def finish(self, pause: Callable[[Any, str], Any] = lambda session, _: session) -> list[Shown]:
        """Play to the end and close the session. ``pause`` returns the session to go on with."""
        for moment in self._course:
            self.session = pause(self.session, moment)
        self.session.close()
        return self.shown


def _estimates(estimates: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for name, one in estimates.items():
        yield (name, one.law, one.estimand, one.covers, one.effective, one.value.shape), one.value


def shown(release: Any) -> Shown:
    """Return all that is in a release, whose arrays must be read-only."""
    facts: list[Any] = [release.users, release.number, release.guarantee]
    found = list(_estimates(release.estimates))
    if release.measurement is not None:
        facts += [release.measurement.decay, release.measurement.gain]
        found += _estimates(release.measurement.estimates)
    for _, value in found:
        assert not value.flags.writeable
    return Shown((*facts, *(one for one, _ in found)), tuple(value for _, value in found))


# ------------------------------------------------------------------------------------ streams


@dataclass(frozen=True, eq=False)
class Stream(Kind):
    """Plans of two users each, and a release after each plan. ``plans`` : more fields of each plan."""

    schedule: Schedule = _EVERY
    plans: tuple[dict[str, Any], ...] = ({}, {}, {})
    asks: bool = False

    moments = (
        *(f"{k} {where}" for k in range(3) for where in ("due", "told", "open", "midway")), "3 due", "3 told",
    )  # fmt: skip
    midway = "0 midway"

    #: the policy of every plan
    policy = POLICY

    def record(self, i: int) -> Any:
        """Return the data of user i."""
        return record(i)

    def records(self, users: range) -> Any:
        """Return the data of several users."""
        return records(users)

    @property
    def ends(self) -> bool:
        """Return whether the number of users is declared."""
        return self.schedule.users is not None

    @cache  # noqa: B019
    def mechanism(self, source: str) -> Any:
        """Return the mechanism, which is a frozen value, calibrated once."""
        return self.privatizer.mechanism(self.query, self.schedule, SOURCES[source])

    def open(self, source: str, randomness: Any = None) -> Any:
        return session_of(self.mechanism(source), randomness or SOURCES[source])

    def plan(self, k: int, users: int = 2) -> Plan:
        """Return the plan of the k-th batch."""
        return Plan(self.policy, users, **self.plans[k])

    def coins(self, source: str, i: int) -> Any:
        """Return the random generator of user i's device."""
        return SecureRng() if source == "secure" else SeededRng(SOURCES["seeded"].keys.noise, i)  # type: ignore[attr-defined]

    def message(self, session: Any, source: str, i: int) -> Message:
        """Return what user i of the open plan sends."""
        made: Message = session.open_encoder(self.record(i), session.open_plan, self.coins(source, i))
        return made

    def sealed(self, session: Any, source: str, i: int) -> Message:
        """Return what the device of user i sends as bytes."""
        made = self.message(session, source, i)
        if isinstance(made.message, bytes):
            return made
        plan = session.plan_of_devices
        told = {"policy": self.policy, "context": plan.context}
        names = inspect.signature(session.device).parameters
        values = [told[name] for name in names if name in told]
        return replace(made, message=session.device(plan.number, *values, *vars(self.record(i)).values()))

    def course(self, run: Run) -> Iterator[str]:
        for k in range(4):
            yield f"{k} due"
            run.shown.append(shown(run.session.release()))
            if self.asks and k:
                run.shown.append(self.answered(run.session, H - 1))
                yield f"{k} asked"
                run.shown += [self.answered(run.session, h) for h in reversed(range(H - 1))]
            yield f"{k} told"
            run.shown.append(shown(run.session.release()))
            if k < 2:
                encode = run.session.begin(self.plan(k))
                yield f"{k} open"
                plan = run.session.open_plan
                run.session.submit(encode(self.record(2 * k), plan, self.coins(run.source, 2 * k)))
                yield f"{k} midway"
                if k == 1:
                    run.session.absent()
                else:
                    run.session.submit(self.message(run.session, run.source, 1))
            elif k == 2:  # a batch of two plans
                run.session.begin(replace(self.plan(2, 1), last=False))
                yield "2 open"
                run.session.submit(self.message(run.session, run.source, 4))
                yield "2 midway"
                run.shown.append(shown(run.session.release()))
                run.session.begin(self.plan(2, 1))
                raw = self.raw(run.session)  # a trusted server takes trajectories as they are
                run.session.submit(self.record(5) if raw else self.message(run.session, run.source, 5))

    def end(self, session: Any) -> list[Shown]:
        found = [shown(session.release())]
        if self.asks and found[0].facts[0]:
            found += [self.answered(session, h) for h in reversed(range(H))]
        return found

    def answered(self, session: Any, h: int) -> Shown:
        """Ask the question about step h."""
        one = session.answer(self.question(h))
        return Shown((one.law, one.covers, one.effective), (one.value,))

    def question(self, h: int) -> Response:
        """Return the question about step h."""
        return Response(h, np.minimum(_VALUES[h + 1], H - h - 1), (0.0, float(H - h)))

    def last(self, session: Any, source: str) -> Callable[[], Any]:
        message = self.message(session, source, 1)
        return lambda: session.submit(message)

    def raw(self, session: Any) -> bool:
        """Return whether users send their trajectories."""
        return session.guarantee.trust in ("none", "joint", "central")

    def calls(self, session: Any, source: str, path: Path) -> dict[str, Callable[[], Any]]:
        message, number = self.message(session, source, 1), session.open_plan.number
        found: dict[str, Callable[[], Any]] = {
            "begin": lambda: session.begin(self.plan(1)),
            "submit": lambda: session.submit(message),
            "absent": session.absent,
            "submit_sum": lambda: session.submit_sum({}, 1),
            "release": session.release,
            "save": lambda: session.save(path),
        }
        if hasattr(session, "submit_many"):
            found["submit_many"] = lambda: session.submit_many(self.records(range(1, 2)), number)
        if hasattr(session, "submit_counted"):
            found["submit_counted"] = lambda: session.submit_counted(None)
        return found

    def wrong(self, session: Any, source: str) -> list[Callable[[], Any]]:
        good, number = self.message(session, source, 1), session.open_plan.number
        sent: list[Any] = [None, (1, 2), "x", Message(number)]
        if self.raw(session):
            bad = list(broken(self.record(1)))
            sent += [*bad, *(Message(number, one) for one in bad)]
            sent += [Message(number, message=np.zeros(3)), Message(number, message=b"x")]
        else:
            sent += [
                self.record(1),
                Message(number, self.record(1)),
                Message(number, self.record(1), good.message),
            ]
            sent += [Message(number, message=b"x"), Message(number, message="x")]  # type: ignore[arg-type]
            sent += [Message(number, message=one) for one in spoiled(good.message)]
        found = [lambda one=one: session.submit(one) for one in sent]
        found += [lambda n=n: session.absent(n) for n in (0, -1, 2, 1.0, True, None)]
        found += [lambda n=n: session.submit_sum({}, n) for n in (0, 2, None)]
        if hasattr(session, "submit_many"):
            two = self.records(range(2))
            found += [
                lambda: session.submit_many(two, number),  # more than are awaited
                lambda: session.submit_many(self.records(range(1)), number + 1),
                lambda: session.submit_many([self.record(1)], number),
            ]
        return found


@dataclass(frozen=True, eq=False)
class ContextStream(Stream):
    """Plans of two users each with real-valued contexts."""

    policy = np.zeros((A, 2))

    def record(self, i: int) -> Any:
        """Return the context, action and reward of user i."""
        rng = np.random.default_rng(i)
        return ContextRecord(rng.normal(size=(1, 1)), rng.integers(0, A, 1), rng.integers(0, 2, 1) * 1.0)

    def records(self, users: range) -> Any:
        """Return the data of several users."""
        rows = [self.record(i) for i in users]
        return ContextRecords(*(np.stack([vars(one)[name] for one in rows]) for name in vars(rows[0])))


def broken(one: Trajectory) -> Iterator[Trajectory]:
    """Yield records that no user of the layout can have."""
    for name, at, value in (("states", 1, S), ("states", 0, -1), ("actions", 1, A), ("actions", 0, -1),
                            ("rewards", 0, 1.5), ("rewards", 1, -0.1), ("rewards", 1, np.nan)):  # fmt: skip
        table = np.array(vars(one)[name])
        table[at] = value
        yield Trajectory(**{**vars(one), name: table})
    yield Trajectory(one.states[:-1], one.actions, one.rewards)
    yield Trajectory(one.states, one.actions.astype(float), one.rewards)
    yield Trajectory(one.states, one.actions, one.rewards[None])


def spoiled(message: Any) -> Iterator[Any]:
    """Yield messages that no device makes, near one that a device made."""
    yield message[:-1]
    if isinstance(message, bytes):
        yield message + b"\0"
        yield b"x" + message[1:]
        yield bytes(len(message))
        return
    yield np.append(message, message[-1:])
    yield message[None]
    yield np.full(message.shape, np.nan)
    yield np.full(message.shape, 1e300)


# -------------------------------------------------------------------------------- stored users


@dataclass(frozen=True, eq=False)
class Stored(Kind):
    """Users of a data set: two chunks, one absent user, then all that is asked of them."""

    moments = ("begun", "midway", "due")
    midway = "midway"
    adds = 2

    def open(self, source: str, randomness: Any = None) -> Any:
        return self.privatizer.stored(self.query, randomness or SOURCES[source])

    def course(self, run: Run) -> Iterator[str]:
        yield "begun"
        self.add(run.session, range(3))
        yield "midway"
        self.add(run.session, range(3, 5))
        run.session.absent()
        yield "due"
        run.shown += self.end(run.session)

    def add(self, session: Any, users: range) -> None:
        """Add a chunk of users."""
        session.submit_many(records(users), np.array(users))

    def end(self, session: Any) -> list[Shown]:
        with session.release() as release:
            facts = (release.users, release.guarantee, dict(release.laws))
            steps = [
                Shown(
                    (one.step,), tuple(x for x in (one.transitions, one.visits, one.rewards) if x is not None)
                )
                for one in release
            ]
        return [Shown(facts, ()), *steps]

    def last(self, session: Any, source: str) -> Callable[[], Any]:
        return lambda: self.add(session, range(3, 5))

    def calls(self, session: Any, source: str, path: Path) -> dict[str, Callable[[], Any]]:
        return {
            "submit_many": lambda: self.add(session, range(3, 5)),
            "submit_tally": lambda: session.submit_tally(None),
            "absent": session.absent,
            "release": session.release,
            "save": lambda: session.save(path),
        }

    def wrong(self, session: Any, source: str) -> list[Callable[[], Any]]:
        found = [lambda n=n: session.absent(n) for n in (0, -1, 1.0, True, None)]
        who = np.array([3, 4])
        for one in itertools.islice(broken(record(3)), 7):
            good = record(4)
            rows = {name: np.stack([vars(one)[name], vars(good)[name]]) for name in vars(one)}
            found.append(lambda rows=rows: session.submit_many(Trajectories(**rows), who))
        good_ones = records(range(3, 5))
        users: tuple[Any, ...] = ([4, 3], [2, 2], [1, 2], [3.0, 4.0], [3], [[3, 4]])
        found += [lambda user=user: session.submit_many(good_ones, np.array(user)) for user in users]
        return [*found, lambda: session.submit_many([record(3)], [3])]


@dataclass(frozen=True, eq=False)
class Answered(Stored):
    """Stored users, about whom planned questions are asked. ``privatizer`` : None, or mu of each question."""

    @property
    def noisy(self) -> bool:
        return self.privatizer is not None

    def open(self, source: str, randomness: Any = None) -> Any:
        plan = [
            Question(kind="gram", step=1, mu=self.privatizer),
            Question(kind="response", step=0, high=float(H), mu=self.privatizer),
        ]
        return ResponseSession(LAYOUT, self.query, plan, randomness or SOURCES[source])

    def end(self, session: Any) -> list[Shown]:
        found = [session.gram(1), session.response(0, np.minimum(_VALUES[1], H - 1))]
        values = [tuple(x for x in (one.gram, one.vector) if x is not None) for one in found]
        return [Shown((session.users, session.guarantee, session.asked), value) for value in values]

    def calls(self, session: Any, source: str, path: Path) -> dict[str, Callable[[], Any]]:
        return {
            "submit_many": lambda: self.add(session, range(3, 5)),
            "absent": session.absent,
            "gram": lambda: session.gram(1),
            "answer": lambda: session.answer(Response(1, np.zeros(S), (0.0, 1.0))),
            "save": lambda: session.save(path),
        }


# ------------------------------------------------------------------------------------ registry

_SPLIT = ({"group": 0}, {"group": 1, "return_share": 0.5}, {"group": 0, "forget": True})
_RAISED: tuple[dict[str, Any], ...] = ({}, {"cut": 1.5}, {"cut": np.inf})
_GROUPED: dict[str, Any] = {"schedule": _MEASURED, "plans": _SPLIT}
_CLIPPED: dict[str, Any] = {"schedule": _MEASURED, "plans": _RAISED}
_LINEAR: dict[str, Any] = {"plans": ({"context": _CONTEXT},) * 3}
_ASKED: dict[str, Any] = {"schedule": _QUERIES, "loses": True}
_FRESH: dict[str, Any] = {"redraws": True}

_TREE = dr.Central(epsilon=1.0, release="tree")
_BATCHES = dr.Central(mu=1.0, release="batches")
_DECAYING = dr.Central(mu=1.0, release="decaying", decay=0.7)
_ROOT = dr.Central(mu=1.0, release="square-root")
_VECTORS = dr.Local(epsilon=1.0, randomizer="laplace")
_REPORTS = dr.Local(epsilon=1.0, randomizer="subset")
_FLIPS = dr.Shuffle(epsilon=1.0, delta=1e-2, dishonest=0.5)
_SUMS = dr.Shuffle(epsilon=20.0, delta=1e-2, dishonest=0.5)
_AMPLIFIED = dr.Shuffle(epsilon=1.0, delta=1e-2, dishonest=0.5, randomizer="amplified")

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Stream("exact", dr.NoPrivacy(), _PLAIN),
        Stream("tree", _TREE, _PLAIN),
        Stream("endless tree", _TREE, _PLAIN, schedule=Schedule(None)),
        Stream("endless reports", _REPORTS, _PLAIN, schedule=Schedule(None)),
        Stream("signed digits", dr.Central(epsilon=1.0, release="signed-digits"), _PLAIN),
        Stream("square root", _ROOT, _PLAIN, ("seeded",)),
        Stream("batches", _BATCHES, _PLAIN, **_FRESH),
        Stream("decaying", _DECAYING, _PLAIN, **_FRESH),
        Stream("groups", _DECAYING, _GROUPS, ("seeded",), **_GROUPED, **_FRESH),
        Stream("exact groups", dr.NoPrivacy(), _GROUPS, **_GROUPED),
        Stream("cut", _BATCHES, _CUT, **_CLIPPED, **_FRESH),
        Stream("exact cut", dr.NoPrivacy(), _CUT, **_CLIPPED),
        Stream("vectors", _VECTORS, _PLAIN),
        Stream("reports", _REPORTS, _PLAIN),
        Stream("server reports", dr.Central(epsilon=1.0, release="reports"), _PLAIN),
        Stream("shuffle", _FLIPS, _CENTRED, loses=True),
        Stream("amplified", _AMPLIFIED, _CENTRED, loses=True),
        ContextStream("shuffled contexts", _SUMS, _CONTEXTS, schedule=_MEASURED, loses=True),
        Stream("exact linear", dr.NoPrivacy(), _MIXTURE, **_LINEAR),
        Stream("linear batches", _BATCHES, _AIMED, **_LINEAR, **_FRESH),
        Stream("linear laplace", dr.Central(epsilon=1.0, release="batches"), _MODEL, **_LINEAR, **_FRESH),
        Stream("linear tree", dr.Central(mu=1.0, release="tree"), _MIXTURE, **_LINEAR),
        Stream("linear square root", _ROOT, _MODEL, **_LINEAR),
        Stream("linear local", dr.Local(epsilon=1.0, delta=1e-6), _AIMED, **_LINEAR),
        Stream("answers", dr.Central(mu=1.0), _ASKING, asks=True, **_LINEAR),
        Stream("exact answers", dr.NoPrivacy(), _ASKING, asks=True, **_LINEAR),
        Stream("exact queries", dr.NoPrivacy(), _CENTRED, **_ASKED),
        Stream("queries", dr.Central(mu=1.0), _CENTRED, **_ASKED),
        Stream("laplace queries", dr.Central(epsilon=1.0), _CENTRED, **_ASKED),
        Stream("queries to vectors", _VECTORS, _CENTRED, **_ASKED),
        Stream("queries to reports", _REPORTS, _CENTRED, **_ASKED),
        Stream("shuffled queries", _FLIPS, _CENTRED, **_ASKED),
        Stream("amplified queries", _AMPLIFIED, _CENTRED, **_ASKED),
        Stored("data set", dr.Central(mu=1.0), _CENTRED),
        Stored("exact data set", dr.NoPrivacy(), _CENTRED),
        Answered("responses", 0.3, _PHI),
        Answered("exact responses", None, _PHI),
    )
}
