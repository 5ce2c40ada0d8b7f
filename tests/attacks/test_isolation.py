"""What a learner gets: whatever it is walked by, no session, no exact sums and nobody's record is found."""

import copy
import dataclasses
import gc
import os
import threading
import traceback
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from waiting import wait_until

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.lifecycle import Guarded
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.envs.rollouts.fused_session import SessionKernel
from discreet.experiments import build_run, simulate
from discreet.experiments.run_config import RunConfig
from discreet.experiments.simulate import Setup
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import Message, Plan, Response, Schedule
from discreet.mechanisms.linear.dataset_sums import Stored
from discreet.mechanisms.linear.linear_queries import GramQuery
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.mechanisms.shuffle.shuffle_session import Shuffler

PRIVATE = (Guarded, Stored, Shuffler, SessionKernel, Trajectory, Trajectories, Message, types.FrameType)


def reached(*roots: object) -> Iterator[object]:
    """Everything that can be had from these: fields, items, bases of arrays, closures, bound methods,
    weak references, pending items of queues; but for classes, modules and the globals of functions.
    """
    seen: dict[int, object] = {}
    left = list(roots)
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType | types.CodeType):
            continue
        seen[id(one)] = one
        yield one
        if isinstance(one, types.FunctionType):
            left += [one.__closure__, one.__defaults__, one.__kwdefaults__, one.__dict__]
            continue
        if isinstance(one, np.ndarray):
            left.append(one.base)
        if isinstance(one, memoryview):
            left.append(one.obj)
        if isinstance(one, weakref.ref):
            left.append(one())
        if isinstance(one, BaseException):
            left += [one.__traceback__, one.__context__, one.__cause__]
        left += gc.get_referents(one)


def sums(session: Any) -> list[np.ndarray]:
    """The arrays that a session adds people up in, its own and those of the sessions in it."""
    found = []
    for one in reached(session):
        if isinstance(one, Guarded | Stored | Shuffler):
            for name, value in (vars(one) | getattr(one, "state", {})).items():
                if name.strip("_") in (
                    "cells",
                    "before",
                    "filtered",
                    "sums",
                    "ones",
                    "counts",
                    "held",
                    "root",
                ):
                    found += [a for a in reached(value) if isinstance(a, np.ndarray) and a.size]
    return found


def check(session: Any, *got: object) -> int:
    """Returns how many objects were looked at."""
    private, looked = sums(session), 0
    for one in reached(*got):
        looked += 1
        assert not isinstance(one, PRIVATE), type(one)
        if isinstance(one, np.ndarray):
            assert not any(np.may_share_memory(one, other) for other in private)
    return looked


def test_the_walk_finds_what_is_hidden() -> None:
    session = dr.Central(epsilon=1.0).start(CountQuery(Layout(2, 2, 2)), Schedule(4), Seeded(0))
    cells = session.state["cells"]
    hidden = [
        session.release, lambda: session, weakref.ref(session), {"a": [(session,)]}, cells[1:].reshape(-1, 1),
        memoryview(cells),
    ]  # fmt: skip
    for one in hidden:
        with pytest.raises(AssertionError):
            check(session, one)


SMALL = {"env.states": 3, "env.horizon": 2}
KINDS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "exact": ("riverswim", "dp-ucbvi", "none", {}),
    "tree": ("riverswim", "dp-ucbvi", "central", {"privatizer.release": "tree"}),
    "batches": ("riverswim", "noise-aware", "central", {"privatizer.release": "batches"}),
    "decaying": ("riverswim", "noise-aware", "central", {"privatizer.release": "decaying", "delta": 1e-6}),
    "server reports": ("riverswim", "dp-ucbvi", "central", {"privatizer.release": "reports"}),
    "local": ("riverswim", "dp-ucbvi", "local", {"privatizer.randomizer": "laplace"}),
    "local reports": ("riverswim", "dp-ucbvi", "local", {}),
    "joint": ("riverswim", "joint", "central", {}),
    "elimination": ("riverswim", "sdp-pe", "central", SMALL),
    "shuffle": ("riverswim", "sdp-pe", "shuffle", SMALL),
    "shuffled sums": ("riverswim", "dp-ucbvi", "shuffle", {"learner.replan_growth": 2.0}),
    "amplified": (
        "riverswim", "dp-ucbvi", "shuffle",
        {"privatizer.randomizer": "amplified", "learner.replan_growth": 2.0},
    ),
    "linear sums": ("linear-mixture", "ucrl-vtr", "central", {"delta": 1e-6}),
    "linear local": ("linear-mixture", "ucrl-vtr", "local", {"delta": 1e-6}),
    "answers": ("linear-mdp", "lsvi-ucb", "central", {"delta": 1e-6, "learner.response": "requery"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_session_is_handed_to_a_learner(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env, learner, privatizer, options = KINDS[kind]
    budget = {} if privatizer == "none" else {"epsilon": 1.0, "delta": options.get("delta", 0.0)}
    if privatizer == "shuffle":
        budget["delta"] = 1e-6
    world = {name.removeprefix("env."): x for name, x in options.items() if name.startswith("env.")}
    given = {name: x for name, x in options.items() if name.partition(".")[0] in ("learner", "privatizer")}
    table = {"env": env, "learner": learner, "privatizer": privatizer, "episodes": 200, **budget}
    config = RunConfig.from_table({**table, "env_options": world, "options": given})
    setup = dataclasses.replace(build_run.prepare(build_run.resolved(config)), by="episode", stepwise=True)
    sessions, got = [], []
    start, plan = Setup.start, type(setup.learner).plan

    def started(self: Setup, randomness: Any) -> Any:
        sessions.append(start(self, randomness))
        return sessions[-1]

    def planned(self: Any, state: Any, release: Any, ask: Any) -> Any:
        if len(got) < 12:
            got.append(check(sessions[-1], release, ask))
        return plan(self, state, release, ask)

    monkeypatch.setattr(Setup, "start", started)
    monkeypatch.setattr(type(setup.learner), "plan", planned)
    simulate._run_stepwise(setup, Seeded(0, 0), lambda users: None)
    assert len(got) > 1
    assert min(got) > 10
    asked = [getattr(getattr(one, "_mechanism", None), "questions", ()) for one in sessions]
    assert any(len(questions) > 0 for questions in asked) == (kind == "answers")


def test_nothing_of_a_one_shot_session_is_handed_to_a_learner() -> None:
    query = CountQuery(Layout(2, 2, 2), center_rewards=True)
    session = dr.Central(rho=1.0).stored(query, Secure())
    session.submit_many(
        Trajectories(np.zeros((3, 3), int), np.zeros((3, 2), int), np.zeros((3, 2))), range(3)
    )
    release = session.release()
    private = copy.copy(release._tally._counts), release._tally._sums
    kept = release.keep()
    assert check(session, kept) > 10
    counts = [one for one in reached(private) if isinstance(one, np.ndarray) and one.size]
    for one in reached(kept):
        if isinstance(one, np.ndarray):
            assert not any(np.may_share_memory(one, other) for other in counts)


# ------------------------------------------------------------------------------- re-asked responses
FEATURES = Features(np.full((2, 2, 2), 0.5), 1.0)
REQUERY = GramQuery(layout=Layout(2, 2, 2), features=FEATURES, model=False)
QUESTION = Response(1, np.zeros(2), (0.0, 1.0))
LIFE = Trajectory(np.array([0, 1, 0]), np.array([1, 0]), np.array([1.0, 0.25]))


def asked(users: int = 2) -> Any:
    session = dr.Central(mu=1.0).start(REQUERY, Schedule(8, times=np.array([0, 2, 4])), Seeded(0))
    session.release()
    encoder = session.begin(Plan(np.zeros((2, 2), int), users=users))
    for _ in range(users):
        session.submit(encoder(LIFE, session.open_plan, SeededRng(Seeded(0).keys.noise, 0)))
    return session


def test_a_refusal_brings_nothing_of_the_session() -> None:
    session = asked()
    with pytest.raises(RuntimeError, match="due") as refusal:
        session.answer(QUESTION)
    frames = traceback.walk_tb(refusal.value.__traceback__)
    inside = [frame for frame, _ in frames if frame.f_code.co_filename.endswith("linear_session.py")]
    assert not inside
    refusal.value.__traceback__ = None
    check(session, refusal.value)


def test_a_question_out_of_a_running_call_is_refused() -> None:
    session = asked()
    session.release()
    ask = session.answer

    class Asks:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            ask(QUESTION)
            return np.zeros(3, int)

    encoder = session.begin(Plan(np.zeros((2, 2), int), users=2))
    report = encoder(LIFE, session.open_plan, SeededRng(Seeded(0).keys.noise, 0))
    life = Trajectory(Asks(), LIFE.actions, LIFE.rewards)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="is running"):
        session.submit(dataclasses.replace(report, trajectory=life))


def test_the_end_of_a_session_ends_its_answers() -> None:
    before = set(threading.enumerate())  # some of which may be ending
    session = asked()
    session.release()
    ask = session.answer
    assert session.answer is ask
    assert len(set(threading.enumerate()) - before) == 1
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        ask(QUESTION)
    gone = weakref.ref(session)
    del session
    assert gone() is None
    with pytest.raises(RuntimeError, match="closed"):
        ask(QUESTION)
    with pytest.raises(ValueError, match="must be a Response"):
        ask(None)
    del ask
    wait_until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_gets_no_answer() -> None:
    session = asked()
    session.release()
    ask = session.answer
    child = os.fork()
    if not child:
        try:
            ask(QUESTION)
        except RuntimeError:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert ask(QUESTION).covers == 2


# --------------------------------------------------------------------------------- what is published
@pytest.mark.parametrize(
    "privatizer",
    [
        dr.Central(epsilon=1.0), dr.Local(randomizer="laplace", epsilon=1.0), dr.Local(epsilon=1.0),
        dr.Shuffle(epsilon=1.0), dr.Shuffle(epsilon=1.0, randomizer="amplified"),
    ],
    ids=["central", "local", "local reports", "shuffle", "amplified"],
)  # fmt: skip
def test_query_and_encoders_are_copies(privatizer: Any) -> None:
    """Who writes to the offsets of a session's query moved the cells that its noise went to."""
    query = CountQuery(Layout(2, 2, 2), visits=False)
    session = privatizer.start(query, Schedule(8, times=np.array([0, 4])), Seeded(0))
    session.release()
    encoder = session.begin(Plan(np.zeros((2, 2), int), users=4))
    randomizer = getattr(session, "open_randomizer", encoder)
    own = session._mechanism.query
    live = own, own.layout, own.offsets, own.layout.row_index
    for one in reached(session.query, encoder, randomizer):
        assert not any(one is other for other in live)
    session.query.offsets[:] = 0
    assert own.offsets[-1] == query.offsets[-1] > 0
