"""A learner's own plans, replayed: what is right stays below its claim, what its laws hide is found.

Every verdict here has a false-alarm probability of 1e-6; 20 of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from discreet.audit import black_box as audit
from discreet.audit.black_box import Reactive, endless
from discreet.audit.replay_audit import replay_box
from discreet.audit.white_box import white_box
from discreet.core.count_channels import CountChannel
from discreet.core.count_query import CountQuery
from discreet.core.fresh_noise_channel import FreshNoiseChannel
from discreet.core.layout import Layout
from discreet.device import count_device as counts
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.learners.online.ucrl_vtr import UCRLVTR
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local

RETURNS = NoiseAwareUCBVI(explore="returns")
FORGETS = Central(mu=1.0, release="decaying", decay=0.9)


def box(privatizer: Any, learner: Any = None, users: int | None = 24) -> Any:
    return replay_box(privatizer.start, learner, users, budget=privatizer.budget)


def bound(found: Any) -> float:
    """The lower bound that it states."""
    return float(found.found.split("at least ")[1].split(" of")[0])


RIGHT = {
    "batches laplace": (Central(epsilon=1.0, release="batches"), None, 0.7),
    "batches gaussian": (Central(mu=1.0, release="batches"), None, 0.7),
    "decaying": (Central(mu=1.0, release="decaying"), None, 0.7),
    "tree": (Central(epsilon=1.0, release="tree"), None, 0.25),
    "square root": (Central(mu=1.0, release="square-root"), None, 0.7),
    "local": (Local(mu=1.0), None, 0.7),
    "vtr": (Central(mu=1.0), UCRLVTR(), 0.4),
    "lsvi, asked again": (Central(mu=1.0), LSVIUCB(response="requery"), 0.4),
    "noise-aware": (Central(mu=1.0), NoiseAwareUCBVI(), 0.7),
}


QUICK = ("tree", "batches gaussian", "decaying", "vtr")
EACH = [name if name in QUICK else pytest.param(name, marks=pytest.mark.statistics) for name in RIGHT]


@pytest.mark.parametrize("name", EACH)
def test_what_is_right_passes_and_is_seen(name: str) -> None:
    """A bound of nothing would pass for ever."""
    privatizer, learner, least = RIGHT[name]
    found = box(privatizer, learner)
    assert found.passed, str(found)
    assert bound(found) > least, str(found)


def keeps(self: Any, right: Any, s: Any, n: int) -> Any:
    """``forget`` says that a stream ends, prices it so, and leaves everybody in the decaying sum."""
    held = s.state["cells"] + self.mechanism.decay * s.state["filtered"]
    assert not self.mechanism.fixed_point
    sums, fresh, changes = right(self, s, n)
    return sums, fresh, changes | ({"filtered": held} if n and self.forgets(s, n) else {})


@pytest.mark.statistics
def test_plans_that_forget_and_are_not_obeyed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the learner's own plans, at a size at which it makes such."""
    honest = box(FORGETS, RETURNS, None)
    assert honest.passed
    assert "2 that forget" in honest.found
    assert bound(honest) > 0.8
    right = FreshNoiseChannel.measure
    monkeypatch.setattr(FreshNoiseChannel, "measure", lambda self, s, n: keeps(self, right, s, n))
    wrong = box(FORGETS, RETURNS, None)
    assert wrong.passed is False


def test_plans_of_the_bench_that_forget_and_are_not_obeyed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Groups(Reactive):
        def query(self, spec: Any) -> CountQuery:
            return CountQuery(spec.layout, visits=False, center_rewards=True, groups=2, clip=1.0)

        def schedule(self, spec: Any) -> Schedule:
            return Schedule(spec.users, reads="measurements")

        def plan(self, state: Any, release: Any, ask: Any) -> Any:
            plan, state = super().plan(state, release, ask)
            return dataclasses.replace(plan, group=release.number % 2), state

    def bench() -> set[str]:
        found = white_box(FORGETS.start, Groups(), Layout(3, 2, 4), 8)
        return {one.name for one in found if one.passed is False}

    assert bench() == set()
    right = FreshNoiseChannel.measure
    monkeypatch.setattr(FreshNoiseChannel, "measure", lambda self, s, n: keeps(self, right, s, n))
    assert "realised loss is at most the claimed" in bench()


def test_less_noise_than_claimed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but outputs and the guarantee is used."""
    draw = CountChannel.node_noise
    monkeypatch.setattr(CountChannel, "node_noise", lambda self, *at: 0.6 * draw(self, *at))
    for privatizer in (Central(mu=1.0, release="square-root"), Central(epsilon=1.0, release="batches")):
        assert box(privatizer).passed is False
    monkeypatch.undo()
    drawn = counts.drawn
    monkeypatch.setattr(counts, "drawn", lambda *given: drawn(*given, factor=0.6))
    assert box(Local(mu=1.0)).passed is False


def test_cells_without_noise_and_batches_counted_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = FreshNoiseChannel.measure

    def sparse(self: Any, s: Any, n: int) -> Any:
        empty = s.state["cells"] + s.state["filtered"] == 0
        sums, fresh, changes = measure(self, s, n)
        return np.where(empty, 0.0, sums), np.where(empty, 0.0, fresh), changes

    monkeypatch.setattr(FreshNoiseChannel, "measure", sparse)
    found = box(Central(mu=1.0, release="batches"))
    assert found.passed is False
    assert "at least inf" in found.found

    def again(self: Any, s: Any, n: int) -> Any:
        batch = s.state["cells"].copy()
        sums, fresh, changes = measure(self, s, n)
        left = changes.get("cells", s.state["cells"]) + batch * (n > 0)  # it comes again
        return sums, fresh, changes | {"cells": left}

    monkeypatch.setattr(FreshNoiseChannel, "measure", again)
    assert box(Central(mu=1.0, release="batches")).passed is False


# --------------------------------------------------------------------------- an unknown number of users
OPEN = {"laplace": Central(epsilon=1.0, release="tree"), "gaussian": Central(mu=1.0), "local": Local(mu=1.0)}


@pytest.mark.parametrize(
    "name", ["laplace", *(pytest.param(name, marks=pytest.mark.statistics) for name in ("gaussian", "local"))]
)
def test_an_unknown_number_of_users_is_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs whose scales grow: right they pass; with the first one's scale in all, not."""
    start, learner = OPEN[name].start, endless(OPEN[name].start)
    assert isinstance(learner, Reactive)
    assert learner.schedule(audit.People(2).spec).users is None
    found = replay_box(start, learner, 40)
    assert found.passed, str(found)
    assert bound(found) > 0.7
    people = audit.People(4)
    assert not audit.black_box(start, learner, 400, people=people).exceeded
    if name == "local":
        return
    draw = CountChannel.node_noise

    def first(self: Any, end: int, factor: float, level: int = 0) -> Any:
        return draw(self, end, 1.0, level)

    monkeypatch.setattr(CountChannel, "node_noise", first)
    assert replay_box(start, learner, 40).passed is False


def test_what_cannot_be_replayed_is_said() -> None:
    told = endless(Central(mu=1.0, release="batches").start)
    assert isinstance(told, str)
    assert "users = None" in told
    for privatizer in (
        Local(epsilon=1.0, randomizer="subset"),
        Central(epsilon=1.0, delta=1e-6, noise="laplace"),
    ):
        assert box(privatizer).passed is None
