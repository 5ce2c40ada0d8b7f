"""Synthetic users of a release's model: their distribution, their files, and what verification does."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from counted import count
from scipy import stats

from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.data.prepare_config import read_prepare_config
from discreet.data.row_batches import open_source
from discreet.data.schema import Groups, Schema, read_schema
from discreet.data.validate import episodes
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.offline.apvi import DPAPVI
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.offline.linear_pevi import PEVI
from discreet.learners.offline.release_files import read_release
from discreet.mechanisms.privatizers.central import Central
from discreet.pipeline.federated import FederatedSite, FederationPlan
from discreet.pipeline.learn import LearnConfig, learn, replan
from discreet.pipeline.partial_aggregates import aggregate_part, merge_aggregates
from discreet.pipeline.synthetic_users import POSTPROCESSING, synthesize
from discreet.pipeline.trajectory_files import write_cohort
from discreet.pipeline.verify import verify
from discreet.pipeline.world_model import world_model

pytestmark = pytest.mark.usefixtures("figures_are_sketched")
USERS = 6000
MASK = np.array([[1, 1, 1]] * 3 + [[1, 1, 0], [0, 1, 1]], bool)
PLAIN = Schema(
    "ward", "person", Layout(5, 3, 4, MASK), stationary=True, terminal=(3, 4), low=-1.0, high=2.0,
    outcomes={3: 2.0, 4: -1.0},
)  # fmt: skip
SCHEMAS = {
    "first visits": PLAIN,
    "labels": replace(
        PLAIN, state_labels=("a", "b,", 'c"', "d", "e"), action_labels=("no", "yes", "so"), first_step=1,
        episodes_per_user=2,
    ),
    "pooled": PLAIN,
    "per step": replace(PLAIN, stationary=False, outcomes=None, low=0.0, high=4.0),
    "known": replace(PLAIN, outcomes=None, known=np.full((1, 5, 3), 0.25)),
}  # fmt: skip


def world() -> tuple[TabularMDP, np.ndarray]:
    draw = np.random.default_rng(4)
    moves = draw.dirichlet(np.ones(5), (5, 3))
    moves[3:] = np.eye(5)[3:, None]
    rewards = np.where(np.arange(5)[:, None] < 3, draw.uniform(size=(5, 3)), 0.0)
    mdp = TabularMDP(moves, rewards, [0.5, 0.3, 0.2, 0, 0], horizon=4, mask=MASK, terminal=(3, 4))
    behaviour = np.where(MASK, draw.dirichlet(np.full(3, 4.0), 5), 0.0)
    return mdp, np.repeat((behaviour / behaviour.sum(axis=1, keepdims=True))[None], 4, axis=0)


def folder(name: str, place: Path) -> Path:
    """Folder of a release."""
    schema, rows = SCHEMAS[name], place / "people.parquet"
    write_cohort(*world(), USERS, rows, schema, seed=1, trim=True)
    learner: Any = DPAPVI() if name in ("pooled", "per step") else DecisionPoints()
    central = Central(epsilon=3.0, delta=1e-6)
    how = {"privatizer": central, "ledger": None, "randomness": Seeded(2)}
    learn(open_source(rows, schema), learner, place / name, **how)
    return place / name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: folder(name, tmp_path_factory.mktemp("made")) for name in SCHEMAS}


def rows_of(path: Path) -> Any:
    source = open_source(path, read_schema(path.with_suffix(".toml")), synthetic_input=True)
    return [part.trajectories for part in episodes(source)]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_files_fit_the_schema_of_the_release(
    name: str, suffix: str, made: dict[str, Path], tmp_path: Path
) -> None:
    schema, path = SCHEMAS[name], tmp_path / f"s{suffix}"
    found = synthesize(made[name], path, 300, seed=5)
    own = read_schema(found.schema)
    assert replace(own, dataset="ward").hash == schema.hash
    assert own.dataset == "synthetic of ward"
    source = open_source(path, own, synthetic_input=True)
    counts = count(source)
    assert (counts.users, counts.episodes) == (300, 300 * schema.episodes_per_user)
    facts = found.facts
    assert source.synthetic == (facts,)
    statement = json.loads((made[name] / "statement.json").read_text())
    assert facts["release"] == statement["files"]["release.parquet"]
    assert (facts["epsilon"], facts["delta"]) == tuple(
        statement["guarantee"][x] for x in ("epsilon", "delta")
    )
    assert (facts["model"], facts["seed"], facts["users"], facts["share"]) == (1, 5, 300, 0.5)
    assert found.utility is not None
    table = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path)
    returns = table.groupby(["user", "episode"])["reward"].sum()
    error = returns.std() / np.sqrt(len(returns))
    assert abs(found.utility.values["behaviour"].synthetic - returns.mean()) <= 5 * error + 1e-9
    assert set(found.utility.to_dict()) == {"states", "pairs", "transitions", "values", "level"}


def test_equal_seeds_give_equal_bytes(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for number, (seed, members, chunk) in enumerate(
        [(1, 3, 2**14), (1, 3, 70), (2, 3, 2**14), (1, 1, 2**14)]
    ):
        monkeypatch.setattr("discreet.pipeline.synthetic_users._CHUNK", chunk)
        path = tmp_path / f"{number}.csv"
        synthesize(made["first visits"], path, 500, seed=seed, members=members)
        texts.append(path.read_text().split("\n", 2)[2])  # without the mark, which states the seed
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


@pytest.mark.parametrize("name", ["first visits", "pooled", "per step"])
def test_users_have_the_distribution_of_the_model(name: str, made: dict[str, Path], tmp_path: Path) -> None:
    """Chi-square of first states, actions and next states, at all steps. False alarm: 1e-5, seeded."""
    path = tmp_path / "s.parquet"
    synthesize(made[name], path, 40_000, seed=7)
    model = world_model(read_release(made[name] / "release.parquet"), SCHEMAS[name].spec())
    mdp, behaviour = model.mean, model.behaviour
    chi, free = 0.0, 0

    def add(seen: np.ndarray, expected: np.ndarray) -> None:
        nonlocal chi, free
        assert not seen[expected == 0.0].any()
        kept = expected > 0.0
        total = seen.sum()
        if total * expected[kept].min() < 5.0:
            return
        chi += float(((seen[kept] - total * expected[kept]) ** 2 / (total * expected[kept])).sum())
        free += int(kept.sum()) - 1

    people = rows_of(path)
    states = np.concatenate([one.states for one in people])
    actions = np.concatenate([one.actions for one in people])
    add(np.bincount(states[:, 0], minlength=5), mdp.initial)
    for h in range(4):
        live = ~np.isin(states[:, h], mdp.terminal)
        for s in range(3):
            at = live & (states[:, h] == s)
            add(np.bincount(actions[at, h], minlength=3), behaviour[h, s])
            for a in range(3):
                here = at & (actions[:, h] == a)
                law = mdp.transitions[h if len(mdp.transitions) > 1 else 0, s, a]
                add(np.bincount(states[here, h + 1], minlength=5), law)
    assert free > 40
    assert stats.chi2.sf(chi, free) > 1e-5


def test_members_are_blocks_of_users(made: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    found = synthesize(made["first visits"], path, 20_000, members=2, seed=3, share=1.0)
    assert found.utility is None
    model = world_model(read_release(made["first visits"] / "release.parquet"), PLAIN.spec(), part="whole")
    states = np.concatenate([one.states for one in rows_of(path)])
    actions = np.concatenate([one.actions for one in rows_of(path)])
    for block, mdp in enumerate(model.members(2, 3)):
        mine = slice(10_000 * block, 10_000 * (block + 1))
        here = (states[mine, :-1] == 0) & (actions[mine] == 0)
        seen = np.bincount(states[mine, 1:][here], minlength=5)
        expected = here.sum() * mdp.transitions[0, 0, 0]
        assert stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), 4) > 1e-5


def test_rewards_are_those_of_the_schema(made: dict[str, Path], tmp_path: Path) -> None:
    for name in ("first visits", "known", "per step"):
        path = tmp_path / f"{name}.csv"
        synthesize(made[name], path, 200, seed=1)
        lines = [line.split(",") for line in path.read_text().splitlines()[1:]]
        reward, after = np.array([float(x[5]) for x in lines]), np.array([int(x[6]) for x in lines])
        live = np.array([int(x[3]) < 3 for x in lines])  # an episode can begin in a terminal state
        if name == "first visits":
            paid = np.select([live & (after == 3), live & (after == 4)], [2.0, -1.0], 0.0)
            np.testing.assert_array_equal(reward, paid)
        elif name == "known":
            np.testing.assert_allclose(reward, -1.0 + 0.25 * 3.0)
        else:
            assert len(np.unique(reward)) > 9  # of pairs and steps
            assert ((reward >= 0.0) & (reward <= 4.0)).all()


def test_verification_writes_the_file_again(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = made["labels"]
    (own / POSTPROCESSING).unlink(missing_ok=True)
    path = tmp_path / "s.csv"
    synthesize(own, path, 100, seed=9, members=2)
    synthesize(own, tmp_path / "t.parquet", 100, seed=9)
    listed = own / POSTPROCESSING
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    assert [line["file"] for line in lines] == ["s.csv", "t.parquet"]
    assert str(tmp_path) not in listed.read_text()

    def failed() -> list[str]:
        return [check.name for check in verify(own) if not check.ok]

    assert failed() == []
    compared = [check for check in verify(own) if check.name.startswith(f"{POSTPROCESSING}: ")]
    assert [check.stated for check in compared] == [line["sha256"] for line in lines]
    for change in (
        {"sha256": "0" * 64},
        {"seed": 8},
        {"epsilon": 0.5},
        {"release": "0" * 64},
        {"users": "x"},
        {"readings": {"x": [1]}},
    ):
        listed.write_text(json.dumps({**lines[0], **change}) + "\n")
        assert len(failed()) == 1, change
    listed.write_text(json.dumps({**lines[0], "pyarrow": "1.0", "sha256": "0" * 64}) + "\n")
    assert failed() == []  # another version wrote it, so it is not compared
    listed.write_text("[]\n")
    assert failed() == [POSTPROCESSING]
    listed.unlink()
    assert failed() == []


def test_readings_are_columns(made: dict[str, Path], tmp_path: Path) -> None:
    """States a and b, of a declaration, get the readings of their bins; the file still fits its schema."""
    declaration = tmp_path / "P.toml"
    declaration.write_text(
        'dataset = "ward"\nunit = "person"\nhorizon = 4\nreward = { low = 0.0, high = 1.0 }\n'
        '[prepare]\nuser = "user"\nstates = { product = ["lactate"] }\n'
        'actions = { product = ["drug"] }\nreward = { value = "paid" }\n'
        '[prepare.values.lactate]\ncolumn = "x"\ncuts = [2.0, 4.0]\n'
        '[prepare.values.drug]\ncolumn = "action"\ncategories = ["no", "yes"]\n'
        '[prepare.values.paid]\ncolumn = "reward"\n'
    )
    public = read_prepare_config(declaration).schema
    rows = tmp_path / "people.parquet"
    mdp = TabularMDP(np.full((3, 2, 3), 1 / 3), np.full((3, 2), 0.5), horizon=4)
    write_cohort(mdp, np.full((4, 3, 2), 0.5), 500, rows, public, seed=1)
    own = tmp_path / "own"
    central = Central(epsilon=3.0, delta=1e-6)
    learn(open_source(rows, public), DPAPVI(), own, privatizer=central, ledger=None, randomness=Seeded(1))
    path = tmp_path / "s.parquet"
    found = synthesize(own, path, 50, declaration=declaration)
    table = pd.read_parquet(path)
    cells = dict(zip(public.state_labels or (), [np.nextafter(2.0, 0.0), 3.0, 4.0], strict=True))
    assert table["lactate"].tolist() == [cells[label] for label in table["state"]]
    assert count(open_source(path, read_schema(found.schema), synthetic_input=True)).users == 50
    assert [check.name for check in verify(own) if not check.ok] == []
    with pytest.raises(ValueError, match="must be that of the states of the release"):
        synthesize(made["first visits"], tmp_path / "t.csv", 10, declaration=declaration)
    declaration.write_text(declaration.read_text().replace("lactate", "action"))
    with pytest.raises(ValueError, match="must be that of the states|is a column of the schema"):
        synthesize(own, tmp_path / "t.csv", 10, declaration=declaration)


def test_what_is_refused(made: dict[str, Path], tmp_path: Path) -> None:
    own, out = made["first visits"], tmp_path / "s.parquet"
    for arguments, message in (
        ({"users": 0}, "users = 0"),
        ({"members": 11}, "members = 11: must be at most users = 10"),
        ({"seed": -1}, "seed = -1"),
        ({"share": 0.0}, "share = 0"),
        ({"share": 1.5}, "share = 1.5"),
        ({"level": 1.0}, "level = 1"),
        ({"out": tmp_path / "s.tsv"}, "must end in .parquet or .csv"),
        ({"out": own / "s.csv"}, "must be outside the folder of the release"),
        ({"release": tmp_path / "no"}, "must be a folder that `discreet learn` made"),
    ):
        given: dict[str, Any] = {"release": own, "out": out, "users": 10, **arguments}
        with pytest.raises(ValueError, match=message):
            synthesize(**given)
        assert not out.exists()
    synthesize(own, out, 10)
    with pytest.raises(ValueError, match="exists already"):
        synthesize(own, out, 10)
    grouped = replace(PLAIN, groups=Groups("sex", ("f", "m")))
    for schema, learner, message in (
        (PLAIN, PEVI(), "release.parquet"),
        (grouped, DecisionPoints(), "groups: must be left out of the schema"),
    ):
        other = tmp_path / type(learner).__name__
        learn(open_source(tmp_path_rows(tmp_path, schema), schema), learner, other, ledger=None)
        with pytest.raises(ValueError, match=message):
            synthesize(other, tmp_path / "l.csv", 10)
    shutil.copyfile(made["per step"] / "schema.toml", other / "schema.toml")
    with pytest.raises(ValueError, match="is not the schema of the release"):
        synthesize(other, tmp_path / "l.csv", 10)


def tmp_path_rows(place: Path, schema: Schema) -> Path:
    rows = place / "rows.parquet"
    write_cohort(*world(), 50, rows, schema, seed=1, trim=True)
    return rows


def test_learning_from_synthetic_users_says_so(made: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    facts = synthesize(made["first visits"], path, 2000, seed=5).facts
    schema = read_schema(path.with_suffix(".toml"))
    source, central = open_source(path, schema, synthetic_input=True), Central(epsilon=1.0, delta=1e-6)
    how: dict[str, Any] = {"privatizer": central, "ledger": None, "randomness": Seeded(1)}
    with pytest.raises(ValueError, match="synthetic_input = False: the source holds synthetic users"):
        learn(source, DecisionPoints(), tmp_path / "no", **how)
    people = open_source(tmp_path_rows(tmp_path, PLAIN), PLAIN)
    with pytest.raises(ValueError, match="synthetic_input = True: the source holds people"):
        learn(people, DecisionPoints(), tmp_path / "no", settings=LearnConfig(synthetic_input=True), **how)
    settings = LearnConfig(synthetic_input=True)
    found = learn(source, DecisionPoints(), tmp_path / "out", settings=settings, **how)
    key = b"k" * 32
    part = aggregate_part(source, DecisionPoints(), key)
    assert part.synthetic == (facts,)
    part.save(tmp_path / "p.tally")
    merged = merge_aggregates([tmp_path / "p.tally"])
    counted = learn(merged, DecisionPoints(), tmp_path / "sum", settings=settings, schema=schema, **how)
    with pytest.raises(ValueError, match="synthetic_input = False"):
        learn(merged, DecisionPoints(), tmp_path / "no", schema=schema, **how)
    again = replan(tmp_path / "out" / "release.parquet", DecisionPoints(), tmp_path / "again")
    with pytest.raises(ValueError, match="must be of real users; it is of synthetic users"):
        synthesize(tmp_path / "out", tmp_path / "t.csv", 10)
    for one in (found, counted, again):
        document = one.statement.to_dict()
        assert document["synthetic"] is True
        assert document["configuration"]["options"]["synthetic_input"] == [facts]
        assert "intervals describe this model, not people" in document["warnings"][0]
        assert facts["release"] in document["warnings"][0]
        assert "not people" in document["purpose"]
        assert one.report.startswith("**SYNTHETIC INPUT: intervals describe the model of an earlier release")
        assert "not people" in (one.folder / "officer.md").read_text()
        assert [check.name for check in verify(one.folder) if not check.ok] == []


def test_parts_of_people_and_of_synthetic_users_do_not_mix(made: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    synthesize(made["first visits"], path, 50)
    schema = read_schema(path.with_suffix(".toml"))
    part = aggregate_part(open_source(path, schema, synthetic_input=True), DecisionPoints(), b"k" * 32)
    other = aggregate_part(
        replace(open_source(path, schema, synthetic_input=True), synthetic=()), DecisionPoints(), b"k" * 32
    )
    for parts in ([part, other], [other, part]):
        with pytest.raises(ValueError, match="another synthetic_input"):
            merge_aggregates(parts)
    plan = FederationPlan(schema, DecisionPoints(), Central(epsilon=1.0, delta=1e-6), 2)
    with pytest.raises(ValueError, match="part: holds synthetic users; a site must count real users"):
        FederatedSite(plan, part, b"k" * 32, None)


def test_minari_datasets_are_marked(made: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    try:
        import minari  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="Minari dataset needs the package minari"):
            synthesize(made["first visits"], tmp_path / "ward-v0", 30)
        pytest.skip("Minari is not installed")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(ValueError, match="each episode of a Minari dataset is one user"):
        synthesize(made["labels"], tmp_path / "two-v0", 30)
    facts = synthesize(made["first visits"], tmp_path / "ward-v0", 30, seed=3).facts
    schema = read_schema(tmp_path / "ward-v0.toml")
    with pytest.raises(ValueError, match="not real users"):
        open_source("minari:ward-v0", schema)
    source = open_source("minari:ward-v0", schema, synthetic_input=True)
    assert source.synthetic == (facts,)
    synthesize(made["first visits"], tmp_path / "s.parquet", 30, seed=3)
    assert read_schema(tmp_path / "s.toml").hash == schema.hash
    one, other = (
        np.concatenate([part.trajectories.states for part in episodes(x)])
        for x in (source, open_source(tmp_path / "s.parquet", schema, synthetic_input=True))
    )
    np.testing.assert_array_equal(one, other)
    assert [check.name for check in verify(made["first visits"]) if not check.ok] == []
