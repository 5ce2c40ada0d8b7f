"""A study of a few people, and the database of its service, for tests."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

MISSING = [
    name for name in ("fastapi", "uvicorn", "sqlalchemy", "httpx", "prometheus_client") if not find_spec(name)
]
if MISSING:
    pytest.skip(f"no {', '.join(MISSING)}: pip install 'discreet[serve]'", allow_module_level=True)

from discreet.serve.store import Place, Store, hashed  # noqa: E402
from discreet.serve.study import Study, study_of  # noqa: E402
from discreet.serve.turns import Writer, begin_study  # noqa: E402
from discreet.storage.signatures import PrivateKey, new_key, read_private_key  # noqa: E402

WORLD = {"states": 3, "actions": 2, "horizon": 4}
ENV = {"states": 3, "actions": 2, "horizon": 4, "rewards": "bernoulli", "seed": 5}


def table(users: int = 40, trust: str = "central", **more: Any) -> dict[str, Any]:
    """A study's file."""
    budget = {"epsilon": 1.0, "delta": 1e-6} if trust == "central" else {"epsilon": 4.0}
    return {
        "name": "a test",
        "world": {**WORLD, "users": users},
        "learner": {"name": "noise-aware"},
        "privatizer": {"name": trust, **budget},
        "schedule": {"replan_growth": 2.0},
        "rehearsal": {"env": "random", "options": ENV, "seed": 3},
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
    begin_study(study, store, time.time())
    return store


def a_writer(study: Study, store: Store, **more: Any) -> Writer:
    """The one that holds the lease."""
    writer = Writer(study, store, "a test", time.time, **more)
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
    results = store.admit([Place(hashed(one)) for one in tickets], time.time(), 60.0)
    assert {one.status for one in results} == {"placed"}
    return [one.plan for one in results]
