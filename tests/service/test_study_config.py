"""What a study file may say, and what is refused before anybody comes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import WORLD, a_study, context_table, table

from discreet.service.participant_statement import make_participant_statement
from discreet.service.study_config import read_study, study_of

SHUFFLE = {"privatizer": {"name": "shuffle", "epsilon": 1.0}}
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "service" / "study.toml"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"privatizer": {"name": "none"}}, "must have a guarantee"),
        ({"privatizer": {"name": "shuffle", "epsilon": 1.0}}, "shuffler: must be given"),
        ({"shuffler": {"url": "https://a", "key": "0" * 64}}, "and no other"),
        ({"shuffler": {"url": "https://a", "secret": 1}}, "shuffler.secret"),
        ({**SHUFFLE, "shuffler": {"url": "a", "key": "0" * 64}}, "shuffler.url"),
        ({**SHUFFLE, "shuffler": {"url": "https://a", "key": "0" * 63}}, "shuffler.key"),
        ({"learner": {"name": "nobody"}}, "learner = 'nobody'"),
        ({"schedule": {"growth": 2.0}}, "schedule.growth: is unknown"),
        ({"learner": {"name": "noise-aware", "replan_growth": 2.0}}, "given in \\[learner\\], too"),
        ({"schedule": {"replan_every": 1}, "world": {**WORLD, "users": 20_000}}, "at most 10000 are served"),
        (
            {"schedule": {"replan_growth": 2.0, "replan_first": 40}},
            r"schedule\.replan_first = 40: must be below world\.users = 40",
        ),
        ({"schedule": {"replan_every": 99}}, r"schedule\.replan_every = 99: must be below world\.users = 40"),
        ({"world": {"states": 3, "actions": 2, "horizon": 4}}, "world.users is missing"),
        ({"world": {"states": 3, "actions": 2, "horizon": 4, "users": 5, "rewards": [1.0, 0.0]}}, "below"),
        ({"world": {"states": 3, "actions": 2, "horizon": 4, "users": 5, "mask": [[True, False]]}}, "mask"),
        ({"world": {"states": 3, "actions": 2, "horizon": 4, "users": 5, "color": 1}}, "world.color"),
        ({"people": {"answer_within": 0.0}}, "answer_within"),
        ({"people": {"closes_after": 60.0}}, "closes_after"),
        ({"ledger": {"path": "x"}}, "ledger.dataset is missing"),
        ({"colour": {}}, "'colour'"),
        ({"name": ""}, "name"),
        ({"service": {"origins": "https://a.example"}}, "must be a list of origins"),
        ({"service": {"origins": ["*"]}}, "service.origins"),
        ({"service": {"origins": ["https://a.example/"]}}, "service.origins"),
    ],
)  # fmt: skip
def test_what_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        study_of({**table(), **change})


COLUMNS = {f"x{i}": {"range": [-1, 1]} for i in range(4)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"context": {}}, "context.columns is missing"),
        ({"context": {"columns": {}}}, "context: ranges = {}: must map at least one column"),
        ({"context": {"columns": {"x": [0, 1]}}}, r"context\.columns\.x"),
        ({"context": {"columns": {"x": {"range": [1, 0]}}}}, r"context: ranges\['x'\] = \(1, 0\): must be"),
        ({"context": {"columns": {"x": {"range": "data"}}}}, "declared without the data"),
        ({"context": {"columns": {"x": {}}}}, r"context\.columns\.x\.range"),
        ({"context": {"columns": COLUMNS, "basis": ["poly", 3]}}, "context: basis"),
        ({"context": {"columns": COLUMNS, "radius": -1.0}}, "context: radius = -1.0: must be"),
        ({"context": {"columns": COLUMNS, "form": "both"}}, "context: form = 'both'"),
        ({"context": {"columns": COLUMNS, "force": True}}, r"context\.force: is unknown"),
        ({"context": {"columns": COLUMNS, "basis": ["fourier", 300, 1.0, 0]}}, "at most 200 without"),
        ({"world": {"actions": 1, "users": 9}}, "context: actions = 1"),
        ({"world": {"users": 9}}, "world.actions is missing"),
        ({"world": {"actions": 3, "users": 9, "states": 2}}, "world.states: must be left out"),
        ({"learner": {"name": "noise-aware"}}, "context: must be left out with learner NoiseAware"),
        ({"learner": {"name": "lsvi-ucb"}}, "learner.name = 'lsvi-ucb': learns from features"),
        ({"learner": {"name": "linear-bandit", "final_share": 0.2}}, "learner.final_share: must be 0"),
        ({"privatizer": {"name": "none"}}, "must have a guarantee"),
        ({"privatizer": {"name": "shuffle", "epsilon": 1.0, "delta": 1e-6}}, "shuffler: must be given"),
    ],
)
def test_what_is_refused_with_contexts(change: dict[str, Any], words: str) -> None:
    study_of(context_table())
    with pytest.raises(ValueError, match=words):
        study_of({**context_table(), **change})
    with pytest.raises(ValueError, match=r"linear-bandit.*needs \[context\]"):
        study_of({**table(), "learner": {"name": "linear-bandit"}, "schedule": {}})
    other = context_table()["rehearsal"] | {"options": {"columns": 3, "actions": 3}}
    with pytest.raises(ValueError, match="rehearsal.options: .* number of columns = 4: must be 3"):
        _ = study_of({**context_table(), "rehearsal": other}).world
    states = {"env": "bandit", "options": {"actions": 3}}
    with pytest.raises(ValueError, match=r"rehearsal.env = 'bandit': must have contexts"):
        _ = study_of({**context_table(), "rehearsal": states}).world


def test_a_dry_run_uses_the_names_and_ranges_of_the_study() -> None:
    columns = {"age": {"range": [18, 90]}, "price": {"range": [0, 500]}, "hour": {"range": [0, 24]}}
    columns["x"] = {"range": [-1, 1]}
    study = study_of({**context_table(), "context": {"columns": columns, "basis": ["poly", 2]}})
    x = study.world.draw(1000, np.random.default_rng(0))
    assert study.world.features == study.features
    assert x.min(axis=0) == pytest.approx([18, 0, 0, -1], abs=0.2)
    assert x.max(axis=0) == pytest.approx([90, 500, 24, 1], abs=0.2)


@pytest.mark.parametrize("content", [context_table(trust="local"), table(trust="local") | {
    "privatizer": {"name": "local", "epsilon": 4.0, "randomizer": "laplace"}}])  # fmt: skip
def test_a_dry_run_with_exact_noise_of_devices_says_so(content: dict[str, Any]) -> None:
    study = study_of(content)
    simulated = study.for_dry_run()
    assert simulated.randomness.kind == "secure"
    assert simulated.identity != study.identity
    assert make_participant_statement(simulated, None, "0" * 64)["rehearsal"]
    assert not make_participant_statement(study, None, "0" * 64)["rehearsal"]


def test_the_identity_is_of_all_that_a_database_is_made_for() -> None:
    same = a_study(
        service={"key": "other.key", "origins": ["http://localhost:5"]}, rehearsal={"env": "riverswim"}
    )
    assert same.identity == a_study().identity
    assert a_study(people={"answer_within": 5.0}).identity == a_study().identity  # it can become longer
    others = [a_study(users=41), a_study(trust="local"), a_study(people={"closes_after": 5000.0})]
    others += [a_study().for_dry_run(), a_study().for_dry_run(10)]
    assert len({one.identity for one in (a_study(), *others)}) == 6


def test_a_prior_beside_the_file(tmp_path: Path) -> None:
    """Its path is relative to the file. Its content is part of the identity. The statement tells of it."""
    learner = {"name": "noise-aware", "prior": {"file": "prior.csv", "strength": 20.0}}
    given, prior = {**table(), "learner": learner}, tmp_path / "prior.csv"
    identities = set()
    for reward in (0.5, 0.25):
        prior.write_text(f"state,action,next,probability,reward\n0,0,0,1.0,{reward}\n")
        study = study_of(given, tmp_path)
        identities.add(study.identity)
        assert study_of(study.table, tmp_path).identity == study.identity
        assert study.learner.prior_strength == 20.0
        statement = make_participant_statement(study, None, "")
        assert "does not cover the people that the prior was made from" in statement["prior"]
    assert len(identities) == 2
    assert "prior" not in make_participant_statement(a_study(), None, "")
    prior.write_text("state,action,next,probability,reward\n0,0,0,1.0,0.75\n")
    with pytest.raises(ValueError, match="the file has changed"):
        study_of(study.table, tmp_path)
    with pytest.raises(ValueError, match="option 'prior': unknown to dp-ucbvi"):
        study_of({**given, "learner": {"name": "dp-ucbvi", "prior": {"file": "prior.csv"}}}, tmp_path)


def test_the_example_of_the_documentation_is_one() -> None:
    study = read_study(EXAMPLE)
    assert study.guarantee.epsilon is not None
    assert study.world.layout == study.layout
    assert tomllib.loads(EXAMPLE.read_text())["name"] == study.name


def test_without_the_extra_a_clear_word_is_said() -> None:
    code = (
        "import sys\nfrom importlib import util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name in ('fastapi', 'uvicorn') else find(name, *a)\n"
        "sys.argv = ['discreet', 'serve', 'study.toml']\nfrom discreet.cli import main\nmain()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "the service needs fastapi, uvicorn: pip install 'discreet[serve]'" in ended.stderr


def test_an_epsilon_that_rests_on_a_declaration_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A privatizer of one's own that proposes a noise of one's own: its cost is a declaration."""
    from dataclasses import replace

    from discreet.core.noise.noises import Laplace
    from discreet.mechanisms.privatizers.central import Central

    class Own(Laplace):
        name = "own"

    right = Central.mechanism

    def proposed(self: Central, *given: Any) -> Any:
        found = right(self, *given)
        return replace(found, noise=Own(), release_scales=None, stated=replace(found.stated, numerical=False))

    monkeypatch.setattr(Central, "mechanism", proposed)
    with pytest.raises(ValueError, match="rests on a declaration"):
        study_of({**table(), "privatizer": {"name": "central", "epsilon": 1.0, "release": "batches"}})
