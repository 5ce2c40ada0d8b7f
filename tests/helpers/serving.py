"""A study of a few people, and the database of its service, for tests."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import wait_until

import discreet as dr

MISSING = [
    name for name in ("fastapi", "uvicorn", "sqlalchemy", "httpx", "prometheus_client") if not find_spec(name)
]
if MISSING:
    pytest.skip(f"no {', '.join(MISSING)}: pip install 'discreet[serve]'", allow_module_level=True)

from discreet.device import http_client as people  # noqa: E402
from discreet.ledger.signatures import PrivateKey, new_key, read_private_key  # noqa: E402
from discreet.service import encoding as codec  # noqa: E402
from discreet.service.database import ReservationRequest, Store, hashed  # noqa: E402
from discreet.service.dry_run import people_of, promised_by  # noqa: E402
from discreet.service.release_worker import Writer, begin_study  # noqa: E402
from discreet.service.server import all_in_background  # noqa: E402
from discreet.service.study_config import Study, study_of  # noqa: E402
from discreet.service.system_io import Io  # noqa: E402


class Clocked(Io):
    """A system whose clock is a function."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.time = clock

    def now(self) -> float:
        return self.time()


stopped = Clocked(lambda: 1.8e9)  # a lease ends when a test says so

WORLD = {"states": 3, "actions": 2, "horizon": 4}
ENV = {"states": 3, "actions": 2, "horizon": 4, "rewards": "bernoulli", "seed": 5}


def table(users: int = 40, trust: str = "central", **more: Any) -> dict[str, Any]:
    """A study's file."""
    budget = {"epsilon": 4.0} if trust == "local" else {"epsilon": 1.0, "delta": 1e-6}
    if trust == "shuffle":
        more = {"shuffler": {"url": "http://127.0.0.1:1", "key": "0" * 64}, **more}
    return {
        "name": "a test",
        "world": {**WORLD, "users": users},
        "learner": {"name": "noise-aware"},
        "privatizer": {"name": trust, **budget},
        "schedule": {"replan_growth": 2.0},
        "rehearsal": {"env": "random", "options": ENV, "seed": 3},
        **({} if trust == "shuffle" else {"serving": {"close": "all"}}),
        **more,
    }


def context_table(users: int = 60, trust: str = "central", **more: Any) -> dict[str, Any]:
    """A study's file with real-valued contexts."""
    budget = {"epsilon": 4.0} if trust == "local" else {"epsilon": 3.0, "delta": 1e-6}
    if trust == "shuffle":
        more = {"shuffler": {"url": "http://127.0.0.1:1", "key": "0" * 64}, **more}
    return {
        "name": "a test of contexts",
        "world": {"actions": 3, "users": users},
        "context": {"columns": {f"x{i}": {"range": [-1, 1]} for i in range(4)}},
        "learner": {"name": "linear-bandit", "first": 8, "growth": 1.5, "explore_share": 0.5},
        "privatizer": {"name": trust, **budget},
        "rehearsal": {"env": "action-contexts", "options": {"columns": 4, "actions": 3}, "seed": 3},
        "serving": {"close": "all"},
        **more,
    }


def a_study(users: int = 40, trust: str = "central", **more: Any) -> Study:
    """The study of :func:`table`."""
    return study_of(table(users, trust, **more))


def a_key(folder: Path) -> PrivateKey:
    """A new service's key."""
    new_key(folder / "service.key")
    return read_private_key(folder / "service.key")


def begun(study: Study, path: Path) -> Store:
    """The study's database, with release 0."""
    store = Store(path)
    begin_study(study, store, io=stopped)
    return store


def of_an_earlier_version(path: Path, *tables: str) -> None:
    """Take from a SQLite database what version 0.3.0 did not have, and more tables."""
    with closing(sqlite3.connect(path)) as old, old:
        for name in ("links", "beats", "program", "schema", "key_rows", "persons", "person_key", *tables):
            old.execute(f"DROP TABLE {name}")
        old.execute("DROP INDEX person_tickets")
        old.execute("ALTER TABLE tickets DROP COLUMN person")


def a_writer(study: Study, store: Store, **more: Any) -> Writer:
    """The one that holds the lease."""
    writer = Writer(study, store, "a test", stopped, **more)
    assert writer.hold()
    return writer


def central(ticket: str, plan: int, nonce: int = 0, **other: Any) -> dict[str, Any]:
    """A message of a person of :data:`WORLD`."""
    return {
        "ticket": ticket, "plan": plan, "nonce": f"{nonce:032x}", "states": [0, 1, 2, 1, 0],
        "actions": [0, 1, 0, 1], "rewards": [0.0, 1.0, 0.5, 0.0], **other,
    }  # fmt: skip


def placed(store: Store, tickets: list[str]) -> list[int]:
    """The plans in which these tickets get places."""
    results = store.admit([ReservationRequest(hashed(one)) for one in tickets], stopped.time(), 60.0)
    assert {one.status for one in results} == {"placed"}
    return [one.plan for one in results]


class Recorded:
    """A learner, and all plans that it makes."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.plans = learner, list[Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)

    def schedule(self, spec: Any) -> Any:
        return self.learner.schedule(spec)

    def query(self, spec: Any) -> Any:
        return self.learner.query(spec)

    def begin(self, spec: Any, ties: Any) -> Any:
        return self.learner.begin(spec, ties)

    def plan(self, state: Any, release: Any, ask: Any) -> Any:
        plan, state = self.learner.plan(state, release, ask)
        self.plans.append(plan)
        return plan, state


def simulated(study: Study) -> list[Any]:
    """The plans of ``dr.simulate`` step by step, of the study's world, noise and people."""
    recorded = Recorded(study.learner)
    setup = dr.experiments.Setup(study.world, recorded, study.privatizer, study.users, "episode", True)
    setup.run(study.randomness.seed, 0)  # type: ignore[union-attr]
    return recorded.plans


def over_http(study: Study, folder: Path, at_once: int, threads: int) -> list[tuple[Any, int]]:
    """The same people through the service, each by requests of her own, in any order: (policy, users)."""
    with all_in_background(study, folder, a_key(folder)) as (url, front, _, service):
        tickets, came, shuffler = front.store.new_tickets(study.users), 0, url if study.shuffled else None
        with (
            people.Client(url, promised=promised_by(study), shuffler=shuffler) as client,
            ThreadPoolExecutor(threads) as pool,
        ):
            while came < study.users:
                places = [
                    one
                    for one in client.places(tickets[came : came + at_once])
                    if isinstance(one, people.PlanReservation)
                ]
                messages = []
                for user, place in enumerate(places, came):
                    record, coins = people_of(study, place, user)
                    device = None if study.trust == "joint" else coins
                    messages.append(place.message(record.states, record.actions, record.rewards, device))
                random.Random(came).shuffle(messages)
                assert all(one["status"] == "counted" for one in pool.map(client.send, messages))
                came += len(places)
                if not places:
                    time.sleep(0.002)
        wait_until(lambda: service.store.about()["over"])
        store, found = service.store, list[tuple[Any, int]]()
        for turn in range(int(store.about()["turn"]) + 1):
            found += [
                (codec.policy_of(json.loads(one["policy"])), one["users"]) for one in store.policies(turn)
            ]
    return found


def same_plans(found: list[tuple[Any, int]], wanted: list[Any]) -> None:
    """The same policies for as many people, bit for bit."""
    assert len(found) == len(wanted)
    for (policy, users), plan in zip(found, wanted, strict=True):
        assert users == plan.users
        assert np.array_equal(policy, plan.policy)
        assert policy.dtype == plan.policy.dtype
