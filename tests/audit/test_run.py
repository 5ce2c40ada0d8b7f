"""The report of an audit: it attacks the mechanism that was asked for, or says that it does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from discreet.audit import linear_games as audit_linear
from discreet.audit import replay_audit as replay
from discreet.audit import run as experiment
from discreet.audit.black_box import People, reactive
from discreet.audit.run import as_asked, audit_privatizer
from discreet.core.correlated_noise.matrix_factorization import MatrixFactorization
from discreet.core.layout import Layout
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.mechanisms.interfaces import ProblemSpec
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local

MATRIX = MatrixFactorization(np.tril(np.triu(np.ones((60, 60)), -3)))
FULL, SHORT = ProblemSpec(Layout(6, 2, 20), 16), People(2).spec


def fixed(privatizer: Any) -> Any:
    return as_asked(privatizer, reactive(privatizer.start), FULL, SHORT)


def test_a_budget_with_delta_is_not_attacked_as_a_pure_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """At H = 1 and two users the privatizer itself would choose Laplace noise, whose claim has no delta."""
    monkeypatch.setattr(replay, "_FIRST", 6)  # how many there are is test_replay.py's
    monkeypatch.setattr(replay, "_SEEDS", 24)
    asked = Central(epsilon=1.0, delta=1e-6)
    learner = reactive(asked.start)
    alone = asked.start(learner.query(SHORT), learner.schedule(SHORT), experiment.Seeded(0))
    assert alone.guarantee.delta == 0.0
    plays, words, notes = fixed(asked)
    assert (plays.noise, plays.release) == ("gaussian", "square-root")
    assert words == ("gaussian noise, square-root",) * 2
    assert notes == []
    found = audit_privatizer(asked, runs=800, layout=Layout(3, 2, 4))
    assert found.guarantee.delta == 1e-6
    assert found.guarantee.mu is not None
    shown = found.to_json()
    assert [one["claimed"]["delta"] for one in shown["games"]] == [1e-6] * 3
    assert shown["mechanism"]["games"] == shown["mechanism"]["asked"]
    assert found.failures == ()
    names = " ".join(one.name for one in found.identities)
    assert "exact noise" in names
    assert "replayed" in names


@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (Central(epsilon=1.0), {"release": "reports"}),
        (Central(mu=1.0, release="decaying"), {"noise": "gaussian", "release": "decaying"}),
        (Central(epsilon=1.0, release="tree"), {"noise": "laplace", "release": "tree"}),
        (Central(epsilon=1.0, release=MATRIX), {"noise": "laplace", "release": MATRIX}),
        (Local(epsilon=1.0), {"randomizer": "subset"}),
        (Local(epsilon=1.0, delta=1e-6, randomizer="gaussian"), {"randomizer": "gaussian"}),
    ],
)
def test_the_games_play_what_the_full_size_chooses(asked: Any, options: dict[str, Any]) -> None:
    plays, words, notes = fixed(asked)
    assert {name: getattr(plays, name) for name in options} == options
    assert words[0] == words[1]
    assert notes == []


def test_linear_learners_play_what_they_were_asked_for() -> None:
    asked, learner = Central(epsilon=1.0, delta=1e-6), LSVIUCB()
    full = audit_linear.game_of(learner, 16, asked.budget, horizon=4)
    short = audit_linear.game_of(learner, 2, asked.budget)
    assert full is not None
    assert short is not None
    plays, words, _ = as_asked(asked, learner, full.spec, short.spec)
    session = plays.start(learner.query(short.spec), learner.schedule(short.spec), experiment.Seeded(0))
    assert session.guarantee.delta == 1e-6
    assert "gaussian" in words[0]


@dataclasses.dataclass(frozen=True)
class Small:
    """A privatizer with no options, that takes another mechanism for short horizons."""

    def mechanism(self, query: Any, schedule: Any, randomness: Any) -> Any:
        large = query.layout.horizon > 5
        one = Central(mu=1.0, release="square-root") if large else Central(epsilon=1.0, release="batches")
        return one.mechanism(query, schedule, randomness)

    def start(self, query: Any, schedule: Any, randomness: Any) -> Any:
        return session_of(self.mechanism(query, schedule, randomness), randomness)


def test_another_mechanism_in_the_games_is_said_plainly() -> None:
    learner = reactive(Small().start)
    plays, words, notes = as_asked(Small(), learner, FULL, SHORT)
    assert isinstance(plays, Small)
    assert words == ("gaussian noise, square-root", "laplace noise, batches")
    first, second = notes
    assert first.startswith("Asked for was gaussian noise, square-root, the black box played laplace noise")
    assert "delta = 1e-06 is claimed, in the games delta = 0" in second


@pytest.mark.statistics
def test_what_was_not_played_is_in_the_verdict_and_the_document() -> None:
    found = audit_privatizer(Local(epsilon=1.0, randomizer="krr"), runs=800, layout=Layout(3, 2, 4))
    assert found.notes == ()
    told = dataclasses.replace(found, notes=("The games played something else",))
    assert "The games played something else." in told.verdict
    assert told.to_json()["notes"] == ["The games played something else"]
    assert len(found.games) == len(found.evidence) == 3
    refused = audit_privatizer(Central(mu=1.0, release="batches"), runs=800, layout=Layout(3, 2, 4))
    assert refused.games == ("one release", "five releases")
    assert "No game with an unknown number of users: users = None" in refused.verdict
    assert refused.failures == ()


@pytest.mark.statistics
@pytest.mark.parametrize("delta", [None, 1e-6])
def test_a_matrix_is_audited_as_other_factorizations(delta: float | None) -> None:
    """Its false alarms are those of every audit, 1e-6; the seed is fixed."""
    asked = Central(epsilon=1.0, delta=delta, release=MATRIX)
    found = audit_privatizer(asked, runs=800, layout=Layout(3, 2, 4))
    assert found.failures == ()
    assert found.mechanisms[0].endswith("matrix")
    passed = {one.name: one.passed for one in found.identities}
    assert passed["realised loss is at most the claimed"]
    assert passed["noise has the claimed law and scale"]
    assert "needs a known number of users" in found.verdict
