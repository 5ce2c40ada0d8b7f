"""Releases as files: the same result as from memory, readable by pandas, and refused when damaged."""

import json
import os
import re
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import discreet as dr
from discreet.accounting.noise_distributions.distributions import (  # fmt: skip
    GaussianSumLaw,
    LaplaceSumLaw,
    NoNoise,
    SubGaussianSumLaw,
    WeightedLaplaceLaw,
)
from discreet.core.guarantee import no_guarantee
from discreet.core.layout import Layout
from discreet.data.schema import Schema, write_schema
from discreet.experiments.offline_runs import SimulatedDataset, make_release
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.learners.offline.release_files import (
    KEY,
    ReleaseFacts,
    StoredRelease,
    aside,
    read_release,
    read_tables,
    write_release,
    write_tables,
)  # fmt: skip
from discreet.mechanisms.interfaces import Estimate, ProblemSpec, Release, StepSums

S, A, H = 5, 3, 4
MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]], bool)
USERS = 3000


def world(masked: bool) -> dr.TabularMDP:
    draw = np.random.default_rng(3)
    mask = MASK if masked else np.ones((S, A), bool)
    means = draw.uniform(size=(H, S, A))
    return dr.TabularMDP(draw.dirichlet(np.full(S, 0.5), (H, S, A)), means, horizon=H, mask=mask)


def noisy(
    learner: object, spec: ProblemSpec, privatizer: object, masked: bool, randomness: object | None = None
) -> Release:
    mdp = world(masked)
    behaviour = MASK / MASK.sum(axis=1, keepdims=True) if masked else np.full((S, A), 1 / A)
    data = SimulatedDataset(mdp, np.repeat(behaviour[None], H, axis=0), USERS, seed=4)
    query, schedule = learner.query(spec), learner.schedule(USERS)  # type: ignore[attr-defined]
    return make_release(data, query, schedule, privatizer, randomness or dr.Seeded(5))  # type: ignore[arg-type]


def steps_of(release: Release, layout: Layout) -> Iterator[StepSums]:
    tables = {name: layout.to_rows(kept.value) for name, kept in release.estimates.items()}
    for h in range(layout.horizon):
        visits, rewards = tables.get("visits"), tables.get("centered_reward_sums")
        yield StepSums(
            h, tables["transition_counts"][h], None if visits is None else visits[h],
            None if rewards is None else rewards[h],
        )  # fmt: skip


def facts_of(release: Release, layout: Layout, **more: object) -> ReleaseFacts:
    laws = {name: kept.law for name, kept in release.estimates.items()}
    return ReleaseFacts(
        layout=layout, users=release.users, guarantee=release.guarantee, laws=laws, **more
    )  # type: ignore[arg-type]  # fmt: skip


def made(path: Path, masked: bool = True) -> tuple[Release, ProblemSpec, StoredRelease]:
    spec = ProblemSpec(world(masked).layout)
    release = noisy(DPAPVI(), spec, dr.Central(rho=0.5), masked, dr.Secure())
    write_release(path, steps_of(release, spec.layout), facts_of(release, spec.layout))
    return release, spec, read_release(path)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("releases") / "release.parquet"
    made(path)
    return path


# --------------------------------------------------------------------------- the same as from memory
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("visits", ["released", "derived"])
@pytest.mark.parametrize("noise", ["gaussian", "laplace", "discrete", "none"])
def test_a_file_teaches_what_memory_teaches(
    tmp_path: Path, masked: bool, known: bool, visits: str, noise: str
) -> None:
    mdp = world(masked)
    rewards = np.where(MASK, mdp.rewards, 0) if masked else mdp.rewards
    spec = ProblemSpec(mdp.layout, known_rewards=rewards if known else None)
    learner = DPAPVI(visits=visits)
    privatizer = {
        "gaussian": dr.Central(rho=0.5), "laplace": dr.Central(epsilon=2.0), "none": dr.NoPrivacy(),
        "discrete": dr.Central(rho=0.5),
    }[noise]  # fmt: skip
    release = noisy(learner, spec, privatizer, masked, dr.Secure() if noise == "discrete" else None)
    path = tmp_path / "release.parquet"
    write_release(path, steps_of(release, mdp.layout), facts_of(release, mdp.layout))
    stored = read_release(path)
    stored.check()
    assert (stored.layout, stored.users, stored.guarantee) == (mdp.layout, USERS, release.guarantee)
    assert dict(stored.laws) == {name: kept.law for name, kept in release.estimates.items()}
    others = (learner, DPAPVI(preset="theory"), DPAPVI(c1=1.0, width=0.0, combine=False), APVI())
    for spec_now in (spec, ProblemSpec(mdp.layout, known_rewards=np.full((H, S, A), 0.25))):
        for other in others:
            one, two = other.learn(release, spec_now), other.learn(stored, spec_now)
            for name in ("policy", "q", "values", "supported", "visits", "behaviour"):
                np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
            assert (one.threshold, one.noise_error) == (two.threshold, two.noise_error)


def test_one_step_at_a_time_is_held(sample: Path) -> None:
    """Backward, each step once; its tables are gone before the next step is read."""
    stored, asked, held = read_release(sample), [], []

    class Watched:
        layout, users, laws, guarantee = stored.layout, stored.users, stored.laws, stored.guarantee

        def step(self, h: int) -> StepSums:
            assert all(table() is None for table in held)
            sums = stored.step(h)
            asked.append(h)
            held[:] = [weakref.ref(sums.transitions), weakref.ref(sums)]
            return sums

    DPAPVI().learn(Watched(), ProblemSpec(stored.layout))
    assert asked == [3, 2, 1, 0]


def test_steps_in_any_order_and_again(sample: Path) -> None:
    stored = read_release(sample)
    first = [stored.step(h) for h in range(H)]
    for h in (3, 0, 2, 2, 1):
        again = stored.step(h)
        assert again.step == h
        for name in ("transitions", "visits", "rewards"):
            np.testing.assert_array_equal(getattr(again, name), getattr(first[h], name))
    for h in (-1, H, 1.5):
        with pytest.raises(ValueError, match="h = "):
            stored.step(h)  # type: ignore[arg-type]


def test_pandas_reads_it(tmp_path: Path) -> None:
    release, spec, stored = made(tmp_path / "release.parquet")
    frame = pd.read_parquet(tmp_path / "release.parquet")
    assert list(frame) == ["family", "step", "state", "action", "next_state", "value"]
    assert len(frame) == H * spec.layout.rows * (S + 2)
    moves = release.estimates["transition_counts"].value
    part = frame[frame.family == "transition_counts"]
    place = tuple(part[name].astype(int) for name in ("step", "state", "action", "next_state"))
    np.testing.assert_array_equal(part["value"], moves[place])
    part = frame[frame.family == "visits"]
    assert part.next_state.isna().all()
    place = tuple(part[name] for name in ("step", "state", "action"))
    np.testing.assert_array_equal(part["value"], release.estimates["visits"].value[place])
    assert MASK[part.state, part.action].all()
    assert parquet.ParquetFile(stored.path).num_row_groups == 3 * H


def test_facts_come_back(tmp_path: Path) -> None:
    laws = {
        "visits": LaplaceSumLaw(3.5, 2.0, 3, 40, 40, 1, 0.5, 1.0),
        "transition_counts": WeightedLaplaceLaw(0.1, 0.5, 1, 200, 40, 5),
        "centered_reward_sums": SubGaussianSumLaw(1 / 3, 1.0, 1, 40, 40),
    }
    layout = Layout(S, A, H, MASK)
    facts = ReleaseFacts(
        layout=layout, users=7, guarantee=no_guarantee("seeded"), laws=laws, records=({"a": [1, 2.5]},),
        episodes=3, dataset="Å, 2024", schema="sha256:ab", known_rewards=None, algorithm="dp-apvi",
        options={"visits": "auto"}, query={"reward_share": 0.1}, library="0.0.9",
    )  # fmt: skip
    again = ReleaseFacts.from_dict(json.loads(json.dumps(facts.to_dict())))
    assert again.to_dict() == facts.to_dict()
    assert (again.layout, again.laws, again.guarantee) == (layout, laws, facts.guarantee)
    for law, kept in zip(laws.values(), again.laws.values(), strict=True):
        assert kept.bound(0.05) == law.bound(0.05)
    assert ReleaseFacts.from_dict(facts.to_dict() | {"laws": {}}).laws == {}


# ------------------------------------------------------------------------------------ any other tables
def test_named_tables_of_steps(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    tables = {
        ("gram", 2): draw.normal(size=(3, 3)), ("successors", 2): draw.normal(size=(3, 7)),
        ("rewards", 2): draw.normal(size=3), ("scale", 0): np.array(2.5),
        ("gram", 0): draw.normal(size=(3, 3)),
    }  # fmt: skip
    facts = ReleaseFacts(layout=Layout(7, 2, 3), users=5, guarantee=no_guarantee("seeded"))
    path = tmp_path / "linear.parquet"
    write_tables(path, ((*name, table) for name, table in tables.items()), facts)
    stored = read_tables(path)
    stored.check()
    assert stored.families == ("gram", "successors", "rewards", "scale")
    assert stored.steps("gram") == (2, 0)
    assert list(stored.tables()) == list(tables)
    for name, table in tables.items():
        np.testing.assert_array_equal(stored.table(*name), table)
        np.testing.assert_array_equal(stored.tables()[name], table)
    frame = pd.read_parquet(path)
    assert list(frame) == ["family", "step", "i", "j", "value"]
    part = frame[(frame.family == "successors") & (frame.step == 2)]
    np.testing.assert_array_equal(
        part["value"], tables["successors", 2][part.i.astype(int), part.j.astype(int)]
    )
    with pytest.raises(ValueError, match="holds no table"):
        stored.table("gram", 1)
    with pytest.raises(ValueError, match="linear.parquet: kind"):
        read_release(path)


def test_many_families(tmp_path: Path) -> None:
    facts = ReleaseFacts(layout=Layout(7, 2, 3), users=5, guarantee=no_guarantee("seeded"))
    path = tmp_path / "many.parquet"
    write_tables(path, ((f"{n:04d}.gram", n % 3, np.full((2, 2), n)) for n in range(300)), facts)
    stored = read_tables(path)
    stored.check()
    assert [table[0, 0] for table in stored.tables().values()] == list(range(300))
    frame = pd.read_parquet(path)
    assert (frame.family.str[:4].astype(int) == frame.value).all()


@pytest.mark.parametrize(
    ("tables", "match"),
    [
        ([], "at least one"),
        ([("a", 0, [1.0]), ("a", 0, [1.0])], "given twice"),
        ([("a", 3, [1.0])], "step of a = 3"),
        ([("a", 0, [np.nan])], "finite"),
        ([("a", 0, np.zeros((1, 1, 1)))], "0 to 2 dimensions"),
        ([("a", 0, [])], "not empty"),
        ([("", 0, [1.0])], "family"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, tables: list, match: str) -> None:
    facts = ReleaseFacts(layout=Layout(2, 2, 3), users=5, guarantee=no_guarantee("seeded"))
    with pytest.raises(ValueError, match=match):
        write_tables(tmp_path / "x.parquet", tables, facts)
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------- writing, and failing
def test_wrong_steps_leave_nothing_and_keep_the_old(tmp_path: Path) -> None:
    path = tmp_path / "release.parquet"
    release, spec, _ = made(path)
    before, facts = path.read_bytes(), facts_of(release, spec.layout)
    good = list(steps_of(release, spec.layout))
    rows = spec.layout.rows
    bad = good[0].transitions.copy()
    bad[0, 0] = np.inf
    wrong = {
        "steps: must be": good[:-1],
        "step 1 after 0": good[1:],
        "step 3 after 4": [*good, good[-1]],
        "must hold": [StepSums(0, good[0].transitions)],
        "has shape": [StepSums(0, good[0].transitions[:, :-1], good[0].visits, good[0].rewards)],
        "finite": [StepSums(0, bad, np.zeros(rows), np.zeros(rows))],
    }
    for match, steps in wrong.items():
        match = match.replace("steps: must be", "end after 3 steps")
        with pytest.raises(ValueError, match=match):
            write_release(path, steps, facts)
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["release.parquet"]

    def interrupted() -> Iterator[StepSums]:
        yield good[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_release(path, interrupted(), facts)
    assert os.listdir(tmp_path) == ["release.parquet"]


def test_facts_are_checked() -> None:
    layout, guarantee = Layout(2, 2, 2), no_guarantee("seeded")

    class Odd(NoNoise):
        pass

    for match, wrong in {
        "layout": {"layout": None}, "users": {"users": 0}, "episodes": {"episodes": 0},
        "dataset": {"dataset": 3}, "options": {"options": []}, "laws": {"laws": {"visits": Odd()}},
        "guarantee": {"guarantee": "private"},
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=match):
            ReleaseFacts(**{"layout": layout, "users": 1, "guarantee": guarantee, **wrong})


def test_laws_must_name_the_families(tmp_path: Path) -> None:
    facts = ReleaseFacts(layout=Layout(2, 2, 2), users=1, guarantee=no_guarantee("seeded"), laws={})
    with pytest.raises(ValueError, match="must name transition_counts"):
        write_release(tmp_path / "x", [], facts)
    with pytest.raises(ValueError, match="JSON"):
        write_tables(
            tmp_path / "x", [("a", 0, [1.0])],
            ReleaseFacts(layout=Layout(2, 2, 2), users=1, guarantee=facts.guarantee, query={"a": object()}),
        )  # fmt: skip


def test_aside_leaves_no_trace_of_a_failure(tmp_path: Path) -> None:
    def fail() -> None:
        with aside(tmp_path / "a") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(tmp_path.iterdir())
    with aside(tmp_path / "a") as file:
        file.write(b"whole")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"whole"


# ------------------------------------------------------------------------------------ what is refused
def everything(path: Path) -> list[np.ndarray]:
    stored = read_release(path)
    found = [stored.step(h) for h in range(stored.layout.horizon)]
    stored.check()
    return [table for step in found for table in (step.transitions, step.visits, step.rewards)]  # type: ignore[misc]


def rewritten(sample: Path, path: Path, change: object, metadata: object = None) -> None:
    """The file again, row group by row group, with changed columns and a changed JSON object."""
    old = parquet.ParquetFile(sample)
    document = json.loads(old.metadata.metadata[KEY])
    if metadata is not None:
        metadata(document)  # type: ignore[operator]
    with parquet.ParquetWriter(path, old.schema_arrow) as writer:
        for n in range(old.num_row_groups):
            writer.write_table(change(n, old.read_row_group(n)))  # type: ignore[operator]
        writer.add_key_value_metadata({KEY: json.dumps(document)})


def same(_: int, table: pa.Table) -> pa.Table:
    return table


def test_a_faithful_copy_is_read(sample: Path, tmp_path: Path) -> None:
    rewritten(sample, tmp_path / "copy.parquet", same)
    for one, two in zip(everything(sample), everything(tmp_path / "copy.parquet"), strict=True):
        np.testing.assert_array_equal(one, two)


def changed_value(n: int, table: pa.Table) -> pa.Table:
    values = table["value"].to_numpy().copy()
    values[n % len(values)] += 1
    return table.set_column(5, "value", pa.array(values))


def missing_value(n: int, table: pa.Table) -> pa.Table:
    values = table["value"].to_pylist()
    values[0] = None
    return table.set_column(5, "value", pa.array(values, pa.float64()))


def changed_state(n: int, table: pa.Table) -> pa.Table:
    return table.set_column(2, "state", pa.array(table["state"].to_numpy()[::-1]))


def changed_step(n: int, table: pa.Table) -> pa.Table:
    return table.set_column(1, "step", pa.array(table["step"].to_numpy() + 1))


def without_a_row(n: int, table: pa.Table) -> pa.Table:
    return table.slice(1)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (changed_value, "not those that were written"),
        (missing_value, "missing"),
        (changed_state, "column state"),
        (changed_step, "column step"),
        (without_a_row, "rows of its shape"),
    ],
)
def test_an_edited_file_is_refused(sample: Path, tmp_path: Path, change: object, match: str) -> None:
    rewritten(sample, tmp_path / "edited.parquet", change)
    with pytest.raises(ValueError, match=f"edited.parquet.*{match}"):
        everything(tmp_path / "edited.parquet")


def with_more_users(document: dict) -> None:
    document["facts"]["users"] = 10**6


def of_version_1(document: dict) -> None:
    document["version"] = 1


def without_groups(document: dict) -> None:
    del document["groups"]


def with_a_foreign_key(document: dict) -> None:
    document["more"] = 1


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (with_more_users, "hash"),
        (of_version_1, "version = 1"),
        (without_groups, "must have"),
        (with_a_foreign_key, "must have"),
    ],
)
def test_changed_facts_are_refused(sample: Path, tmp_path: Path, change: object, match: str) -> None:
    rewritten(sample, tmp_path / "edited.parquet", same, change)
    with pytest.raises(ValueError, match=f"edited.parquet: .*{match}"):
        read_release(tmp_path / "edited.parquet")


def test_what_is_no_release_is_refused(sample: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd.parquet"
    with pytest.raises(ValueError, match="odd.parquet: no such file"):
        read_release(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="odd.parquet"):
        read_release(path)
    pd.DataFrame({"value": [1.0]}).to_parquet(path)
    with pytest.raises(ValueError, match="is not a release"):
        read_release(path)
    for text in ('{"version": 1', "[]", "3", '{"version": 1, "facts": NaN}', "\xff"):
        with parquet.ParquetWriter(path, pa.schema([("value", pa.float64())])) as writer:
            writer.add_key_value_metadata({KEY: text})
        with pytest.raises(ValueError, match="odd.parquet"):
            read_release(path)
    half = sample.read_bytes()[: sample.stat().st_size // 2]
    path.write_bytes(half)
    with pytest.raises(ValueError, match="odd.parquet"):
        read_release(path)


@given(data=st.data())
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_damaged_file_is_refused_or_reads_the_same(
    sample: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole = bytearray(sample.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "zero"]))
    at = data.draw(st.integers(0, len(whole) - 1))
    if kind == "flip":
        whole[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del whole[at : at + data.draw(st.integers(1, 200))]
    elif kind == "zero":
        whole[at : at + 16] = bytes(len(whole[at : at + 16]))
    else:
        whole[at:at] = data.draw(st.binary(min_size=1, max_size=20))
    path = tmp_path / "damaged.parquet"
    path.write_bytes(whole)
    try:
        found = everything(path)
    except ValueError as error:
        assert "damaged.parquet" in str(error)  # noqa: PT017
        return
    for one, two in zip(found, everything(sample), strict=True):
        np.testing.assert_array_equal(one, two)


# -------------------------------------------------------------------------------- at the learner's door
def test_a_release_of_another_problem_is_refused(sample: Path) -> None:
    stored = read_release(sample)
    with pytest.raises(ValueError, match="layout"):
        DPAPVI().learn(stored, ProblemSpec(Layout(S, A, H)))
    release = Release(
        {"visits": Estimate(np.zeros((H, S, A)), NoNoise())}, 10, 1, no_guarantee("seeded")
    )  # fmt: skip
    with pytest.raises(ValueError, match="must hold transition_counts"):
        DPAPVI().learn(release, ProblemSpec(Layout(S, A, H)))
    short = Release(
        {"transition_counts": Estimate(np.zeros((H - 1, S, A, S)), GaussianSumLaw(1.0, 1.0, 1, 10, 10))},
        10, 1, no_guarantee("seeded"),
    )  # fmt: skip
    with pytest.raises(ValueError, match="must have H = 4"):
        DPAPVI().learn(short, ProblemSpec(Layout(S, A, H), known_rewards=np.zeros((H, S, A))))


def test_the_page_on_files_runs(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "files.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "release.parquet").write_bytes(sample.read_bytes())
    write_schema(Schema("sample", "person", read_release(sample).layout), tmp_path / "schema.toml")
    found: dict = {}
    exec(code, found)
    np.testing.assert_array_equal(found["actions"] >= 0, found["supported"])
