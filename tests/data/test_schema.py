"""The public schema at its door."""

import tomllib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from discreet.core.layout import Layout
from discreet.data.schema import Schema, parse_schema, read_schema, write_schema
from tests.helpers import vitals_files

TEXT = """
dataset = "icu-2024"
horizon = 20
unit = "patient"
user_column = "patient_id"
episodes_per_user = 2
contribute = "random"
states = 6
actions = { count = 3, mask = "admissible.parquet" }
terminal = 5
reward = { low = -1.0, high = 1.0, known = false }
features = "one-hot"
[provenance]
states = "literature"
reward = "this data"
"""


@pytest.fixture
def content():
    return tomllib.loads(TEXT)


@pytest.fixture
def folder(tmp_path):
    pairs = {"state": [0, 1, 2, 3, 4, 5, 5], "action": [0, 1, 2, 0, 1, 2, 0]}
    parquet.write_table(pa.table(pairs), tmp_path / "admissible.parquet")
    return tmp_path


def test_the_schema_of_the_guide(folder) -> None:
    (folder / "SCHEMA.toml").write_text(TEXT)
    schema = read_schema(folder / "SCHEMA.toml")
    mask = np.zeros((6, 3), bool)
    mask[[0, 1, 2, 3, 4, 5, 5], [0, 1, 2, 0, 1, 2, 0]] = True
    assert schema.layout == Layout(6, 3, 20, mask)
    assert (schema.dataset, schema.unit, schema.horizon) == ("icu-2024", "patient", 20)
    assert (schema.columns.user, schema.columns.next_state) == ("patient_id", "next_state")
    assert (schema.episodes_per_user, schema.contribute) == (2, "random")
    assert (schema.terminal, schema.unfinished) == ((5,), "error")
    assert (schema.low, schema.high, schema.known, schema.features) == (-1.0, 1.0, None, None)
    assert schema.from_this_data == ("reward",)
    assert schema.unstated == ("actions", "mask", "horizon", "episodes_per_user", "terminal")


WRONG = {
    "dataset": ["", 3, "two\nlines"],
    "horizon": [0, 2.0, True, "20"],
    "unit": [""],
    "user_column": ["", 1, "state"],
    "first_step": [2, -1],
    "episodes_per_user": [0, 1.5],
    "contribute": ["all", 1],
    "states": [0, -3, 2.5, [], ["a", "a"], ["a", 1], {"count": 6, "labels": ["a"]},
               {"labels": 6}, {"size": 6}],
    "actions": [{"count": 2, "mask": "none.parquet"}, {"count": 4, "mask": "mask.txt"}, {"mask": "x"}],
    "terminal": [6, -1, "5", [5, 5], {"unfinished": "error"}, {"states": 5, "unfinished": "no"},
                 {"state": 5}],
    "reward": [1.0, {"low": 0.0}, {"low": 1.0, "high": 1.0}, {"low": 0.0, "high": float("inf")},
               {"low": 0.0, "high": 1.0, "known": True}, {"low": 0.0, "high": 1.0, "known": "r.npy"},
               {"low": 0.5, "high": 1.0}, {"low": 0.0, "high": 1.0, "unit": 1}],
    "features": ["one_hot", 3, {"file": "phi.npy"}, {"file": "phi.npy", "bound": 1.0}],
    "provenance": [3, {"weather": "protocol"}, {"states": "hearsay"}],
    "colour": ["red"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values]
)
def test_what_is_wrong_is_named(content, folder, key, value) -> None:
    content[key] = value
    with pytest.raises(ValueError, match="column" if value == "state" else key):
        parse_schema(content, folder)


@pytest.mark.parametrize("key", ["dataset", "horizon", "unit", "states", "actions", "reward"])
def test_what_is_missing_is_named(content, folder, key) -> None:
    del content[key]
    with pytest.raises(ValueError, match=f"{key} is missing"):
        parse_schema(content, folder)


def test_no_toml_is_an_error_that_names_the_file(tmp_path) -> None:
    for text in (b"horizon = ", b"\xff\xfe"):
        (tmp_path / "S.toml").write_bytes(text)
        with pytest.raises(ValueError, match=r"S\.toml"):
            read_schema(tmp_path / "S.toml")


def test_the_hash_is_of_facts_not_of_words(content, folder) -> None:
    first = parse_schema(content, folder)
    np.save(folder / "mask.npy", first.layout.mask)
    content["actions"]["mask"] = "mask.npy"
    assert parse_schema(dict(reversed(content.items())), folder).hash == first.hash
    assert first.hash.startswith("sha256:")
    assert len(first.hash) == 71
    changed = [
        replace(first, dataset="other"),
        replace(first, layout=replace(first.layout, mask=None)),
        replace(first, high=1.5),
        replace(first, terminal=()),
        replace(first, contribute="error"),
        replace(first, provenance={}),
        replace(first, known=np.zeros((1, 6, 3))),
        replace(first, columns=replace(first.columns, step="t")),
    ]
    assert len({first.hash, *(schema.hash for schema in changed)}) == 1 + len(changed)


def test_a_censored_end(tmp_path) -> None:
    """It is a terminal state without an outcome, which counts as the middle; schemas without one keep their
    hashes.
    """
    text = """
    dataset = "d"
    unit = "u"
    horizon = 3
    states = ["ill", "home", "dead", "left"]
    actions = 2
    terminal = ["home", "dead", "left"]
    reward = { outcomes = { home = 1.0, dead = -2.0 } }
    """
    plain = parse_schema(tomllib.loads(text))
    schema = parse_schema(tomllib.loads(text + 'censored = "left"'))
    assert schema.censored == 3
    assert schema.hash != plain.hash
    assert schema.returns.outcomes == {1: 1.0, 2: -2.0, 3: -0.5}
    assert schema.returns.bounds(3) == plain.returns.bounds(3)
    assert replace(schema.returns, low=-3.0).outcomes == schema.returns.outcomes
    write_schema(schema, tmp_path / "S.toml")
    assert read_schema(tmp_path / "S.toml").hash == schema.hash
    for old, new, said in (
        ('"left"', '"lost"', "censored = 'lost': must be one of"),
        ('"left"', '"ill"', "censored = 'ill'|censored = 0: must be a terminal state"),
        ('"left"', '"dead"', "reward.outcomes: must not name the censored state"),
        ('"left"', "[]", r"censored = \[\]: must be one of"),
    ):
        with pytest.raises(ValueError, match=said):
            parse_schema(tomllib.loads(text + 'censored = "left"'.replace(old, new)))
    with pytest.raises(ValueError, match="censored: must be given with reward.outcomes"):
        parse_schema(tomllib.loads(text.replace("outcomes = { home = 1.0, dead = -2.0 }", "low = 0, high = 1")
                                   + 'censored = "left"'))  # fmt: skip
    with pytest.raises(ValueError, match="censored = 7: must be a terminal state"):
        replace(schema.returns, censored=7)
    with pytest.raises(ValueError, match="outcome of a censored end is open"):
        replace(schema.returns, outcomes={1: 1.0, 3: 0.1})


def test_labels_and_their_tables(content, folder) -> None:
    content["states"] = ["a", "b", "c"]
    content["actions"] = {"labels": ["x", "y"], "mask": "m.csv"}
    content["terminal"] = {"states": ["c", "b"], "unfinished": "terminal"}
    content["reward"] = {"low": -2, "high": 2, "known": "r.csv"}
    (folder / "m.csv").write_text("state,action\na,x\nb,y\nc,x\n")
    (folder / "r.csv").write_text("state,action,reward\na,x,1.0\nb,y,-2.0\nc,x,0\n")
    schema = parse_schema(content, folder)
    assert schema.terminal == (2, 1)
    assert schema.known.tolist() == [[[0.75, 0.0], [0.0, 0.0], [0.5, 0.0]]]
    (folder / "r.csv").write_text("state,action,reward\na,x,1.0\nb,y,-2.0\n")
    with pytest.raises(ValueError, match="state 2, action 0"):
        parse_schema(content, folder)
    (folder / "m.csv").write_text("state,action\na,x\nb,q\n")
    with pytest.raises(ValueError, match="'q' in row 1"):
        parse_schema(content, folder)


def test_features_keep_their_bound(content, folder) -> None:
    phi = np.zeros((6, 3, 2))
    phi[..., 0] = 0.5
    np.save(folder / "phi.npy", phi)
    content["features"] = {"file": "phi.npy", "bound": 0.5}
    schema = parse_schema(content, folder)
    assert np.array_equal(schema.features, phi)
    assert schema.feature_bound == 0.5
    content["features"]["bound"] = 0.4
    with pytest.raises(ValueError, match="must be at least 0.5, the norm"):
        parse_schema(content, folder)
    np.save(folder / "phi.npy", phi[:5])
    with pytest.raises(ValueError, match=r"must be \(6, 3, d\)"):
        parse_schema(content, folder)
    (folder / "phi.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"not a \.npy"):
        parse_schema(content, folder)


def test_what_is_written_is_the_same_schema(content, folder, schema) -> None:
    np.save(folder / "mask.npy", parse_schema(content, folder).layout.mask)
    content["actions"]["mask"] = "mask.npy"
    content["states"] = ["a", 'b"', "c\\", "é", "e", "f"]
    content["terminal"] = {"states": ["f"], "unfinished": "terminal"}
    first = parse_schema(content, folder)
    rich = replace(
        first, low=0.0, known=np.full((20, 6, 3), 1 / 3), features=np.ones((6, 3, 2)), feature_bound=1.5
    )
    for each in (first, rich, schema):
        write_schema(each, folder / "made.toml")
        assert read_schema(folder / "made.toml").hash == each.hash


@pytest.mark.parametrize(
    ("make", "said"),
    [
        # a header of 56 bytes that claims 7 TiB; found by fuzzing, as are the others
        (lambda path: path.write_bytes(
            b"\x93NUMPY\x01\x00\x76\x00"
            + b"{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }".ljust(117) + b"\n"
        ), "not a .npy file"),
        (lambda path: np.save(path, np.ones((6, 3, 2), complex)), "real numbers"),
        (lambda path: np.save(path, np.full((6, 3, 2), "1")), "real numbers"),
    ],
)  # fmt: skip
def test_features_that_are_no_real_numbers(content, folder, make, said) -> None:
    make(folder / "phi.npy")
    with pytest.raises(ValueError, match=said):
        parse_schema({**content, "features": {"file": "phi.npy", "bound": 10.0}}, folder)


def test_public_tables_with_a_column_twice_and_names_too_long(content, folder) -> None:
    (folder / "twice.csv").write_text("state,action,state\n0,0,0\n")
    for mask, said in (("twice.csv", "twice"), ("a" * 5000, "must be a file")):
        with pytest.raises(ValueError, match=said):
            parse_schema({**content, "actions": {"count": 3, "mask": mask}}, folder)


def test_scaled_needs_known_rewards(tmp_path) -> None:
    text = 'dataset = "d"\nhorizon = 1\nunit = "u"\nstates = 1\nactions = 1\n'
    text += "reward = { low = 0, high = 2, %s }\n"
    np.save(tmp_path / "r.npy", np.array([[0.5]]))
    path = tmp_path / "s.toml"
    path.write_text(text % "scaled = true")
    with pytest.raises(ValueError, match=r"reward.scaled = True: must be false"):
        read_schema(path)
    found = []
    for scaled in ("true", "false"):
        path.write_text(text % f'known = "r.npy", scaled = {scaled}')
        known = read_schema(path).known
        assert known is not None
        found.append(known.item())
    assert found == [0.5, 0.25]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"context": {"columns": {"age": {}}}}, "range is missing"),
        ({"context": {"columns": {"age": {"range": "data"}}}}, "declared without the data"),
        ({"context": {"columns": {"age": {"range": [90, 18]}}}}, "low < high"),
        ({"context": {"columns": {}}}, "at least one column"),
        ({"context": {"columns": {"reward": {"range": [0, 1]}}}}, "named already"),
        ({"context": {"columns": {"age": {"range": [0, 1]}}, "propensity": "age"}}, "context column"),
        ({"context": {"columns": {"age": {"range": [0, 1]}}, "basis": "cubic"}}, "basis"),
        ({"context": {"columns": {"age": {"range": [0, 1]}}, "radius": -1.0}}, "radius"),
        ({"context": {"columns": {"age": {"range": [0, 1]}}, "ranges": 1}}, "unknown key"),
        ({"states": 3}, "instead of states"),
        ({"terminal": [1]}, "instead of states"),
        ({"reward": {"outcomes": {"1": 1.0}}}, "without outcomes"),
        ({"provenance": {"context": "guess"}}, "provenance.context"),
    ],
)
def test_bad_contexts_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        parse_schema(vitals_files.content(**change))


def test_contexts_in_a_schema():
    schema = vitals_files.schema(propensity=True)
    assert schema.context.columns == ("vital 0", "vital 1", "vital 2", "vital 3")
    assert schema.context.read[-1] == "chance"
    assert set(schema.unstated) == {"actions", "horizon", "episodes_per_user", "reward"}
    assert schema.hash != vitals_files.schema().hash
    with pytest.raises(ValueError, match="provenance key"):
        Schema("d", "p", Layout(2, 2, 1), provenance={"context": "protocol"})
