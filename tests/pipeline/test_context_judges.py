"""Users who judge a policy of contexts: groups, the answer, its words, and stopped runs."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import discreet as dr
from discreet.core.rng import Seeded
from discreet.data.context_visits import read_visits
from discreet.data.row_batches import open_source
from discreet.learners.offline.linear_advantage import LinearAdvantage
from discreet.ledger.ledger import Ledger
from discreet.pipeline import learn as learning
from discreet.pipeline.context_judges import ContextJudges, context_verdict
from discreet.pipeline.learn import learn
from discreet.pipeline.recovery import finish, lost
from discreet.pipeline.verify import verify
from tests.helpers import vitals_files as files

CENTRAL = dr.Central(epsilon=3.0, delta=1e-4)


def judges(share=0.5, seed=0, privatizer=CENTRAL):
    """Return a group of users, and the visits of all."""
    source = open_source(files.frame(), files.schema())
    made = ContextJudges(source, source.schema, LinearAdvantage(), privatizer, share, Seeded(seed, 0))
    return made, read_visits(source, workers=1)


def test_each_user_is_in_one_group():
    group, people = judges(0.3)
    others = group.others(people)
    held = set(group._held.names)
    assert held | set(others.names) == set(people.names)
    assert not held & set(others.names)
    assert 0.2 < group.users / len(people.names) < 0.4


def test_the_group_depends_on_identifiers_only():
    first, people = judges()
    second, _ = judges()
    changed = people.of(np.ones(len(people.names), bool))
    changed.visits.contexts[:] = 0.0
    first.others(people)
    second.others(changed)
    assert first._held.names == second._held.names


def test_bad_arguments():
    with pytest.raises(ValueError, match="judge_share"):
        judges(0.0)
    with pytest.raises(ValueError, match="without privacy"):
        judges(privatizer=dr.NoPrivacy())
    with pytest.raises(ValueError, match="counted before"):
        ContextJudges(None, files.schema(), LinearAdvantage(), CENTRAL, 0.5, Seeded(0, 0))
    group, people = judges(1e-9)
    group.others(people)
    with pytest.raises(ValueError, match="no user"):
        group.public_facts(())


def test_words_of_the_verdict():
    one = {"steps": 6, "estimate": 0.1, "low": 0.05, "high": 0.15, "level": 0.95, "shown": True,
           "logged_probabilities": False}  # fmt: skip
    assert context_verdict(one, "patient").startswith(
        "If nothing but the columns influenced both what patients"
    )
    logged = {**one, "logged_probabilities": True}
    assert context_verdict(logged, "patient").startswith("If every action of the policy has a probability")
    assert context_verdict({**one, "shown": False, "low": -0.1}, "patient").startswith("No gain is shown")
    assert "worse" in context_verdict({**one, "shown": False, "low": -0.2, "high": -0.1}, "patient")


def test_a_stopped_run_is_finished_with_its_answer(tmp_path, monkeypatch):
    source = open_source(files.frame(), files.schema())

    def stop(*_, **__):
        raise KeyboardInterrupt

    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(learning, "fill", stop)
            with pytest.raises(KeyboardInterrupt):
                learn(source, LinearAdvantage(), tmp_path / "out", privatizer=CENTRAL, ledger=ledger,
                      judge_share=0.5, workers=1)  # fmt: skip
        (one,) = lost(tmp_path, ledger)
        folder = finish(one, ledger)
        assert [check.name for check in verify(folder, ledger) if not check.ok] == []
    assert json.loads((folder / "judgement.json").read_text())["kind"] == "contexts"
    shutil.rmtree(folder)


@pytest.mark.parametrize("logged", [False, True])
def test_both_verdicts_state_their_conditions(logged):
    """Better and worse rest on the same conditions; an interval that includes 0 claims neither."""
    document = {"steps": 12, "level": 0.95, "logged_probabilities": logged}
    words = {
        "better": {"estimate": 0.2, "low": 0.1, "high": 0.3, "shown": True},
        "worse": {"estimate": -0.2, "low": -0.3, "high": -0.1, "shown": False},
    }
    for word, numbers in words.items():
        said = context_verdict(document | numbers, "patient")
        assert f"one decision by the policy is {word} than what patients did" in said
        assert "has a probability of at least 0.05" in said
        assert ("are both right" in said) != logged
    neither = {"estimate": 0.0, "low": -0.1, "high": 0.1, "shown": False}
    assert context_verdict(document | neither, "patient").startswith("No gain is shown")
