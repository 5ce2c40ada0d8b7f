"""Visits with contexts from files: targets, strange values, refusals, private coins."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from discreet.core.rng import Secure, Seeded
from discreet.data.context_visits import StoredVisits, _later, read_visits
from discreet.data.row_batches import open_source
from discreet.data.schema import parse_schema
from discreet.data.validate import DataError
from discreet.mechanisms.linear.context_sums import Visits
from tests.helpers import vitals_files as files


def small(**changes):
    """Return three rows of two users, out of order."""
    rows = {
        "user": ["b", "a", "a"], "episode": [0, 0, 0], "step": [0, 1, 0], "action": ["two", "none", "one"],
        "reward": [1.0, 0.25, 0.5], "chance": [0.5, 0.25, 1.0],
        **{f"vital {i}": [1.0 + i / 10, 2.0 + i / 10, 3.0 + i / 10] for i in range(files.VITALS)}, **changes,
    }  # fmt: skip
    return pd.DataFrame(rows)


def read(rows, propensity=False):
    """Read rows with the schema of the helper."""
    return read_visits(open_source(rows, files.schema(propensity)), workers=1)


@pytest.mark.parametrize("kind", ["frame", "csv"])
def test_rows_are_sorted_and_targets_are_later_returns(kind, tmp_path):
    rows = small()
    if kind == "csv":
        rows.to_csv(tmp_path / "rows.csv", index=False)
        rows = tmp_path / "rows.csv"
    found = read(rows, propensity=True)
    order = [found.names.index(name) for name in "ab"]
    first, second = (np.flatnonzero(found.visits.users == number) for number in order)
    assert found.visits.actions[first].tolist() == [1, 0]
    assert found.visits.targets[first].tolist() == [0.75, 0.25]
    assert found.visits.contexts[first][:, 0].tolist() == [3.0, 2.0]
    assert found.propensities[first].tolist() == [1.0, 0.25]
    assert found.visits.targets[second].tolist() == [1.0]


def test_strange_contexts_are_kept_and_never_refused():
    with pytest.warns(UserWarning, match="private: .*'vital 1': 66.67% missing, 0.00% out of range"):
        found = read(small(**{"vital 0": [np.nan, np.inf, 3.0], "vital 1": ["", None, "3"]}))
    assert np.isnan(found.visits.contexts[:, 1]).sum() == 2
    assert np.isinf(found.visits.contexts[:, 0]).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward": [1.5, 0.0, 0.0]}, "reward"),
        ({"action": ["three", "none", "one"]}, "action"),
        (
            {"vital 0": ["4,2", "", "3"]},
            "= '4,2'.*column 'vital 0' must.*decimal point.*context: 1",
        ),
        ({"vital 0": ["4.2", "1", "x"]}, "vital 0 = 'x'"),
        ({"vital 0": ["4.2", "", "1"], "vital 2": ["1", "2", "°F"]}, "column 'vital 2' must be a number"),
        ({"vital 2": [400.0, 300.0, 1.0]}, "'vital 2': 67% of its numbers are out of the declared range"),
        ({"vital 3": [np.nan, np.inf, np.nan]}, "'vital 3': must have a number"),
        ({"step": [0, 2, 0]}, "step"),
        ({"step": [0, 0, 0]}, "step"),
        ({"chance": [0.0, 0.5, 0.5]}, r"column 'chance': 1 rows have a propensity that is not in \(0, 1\]"),
        ({"chance": [np.nan, 0.5, 0.5]}, "propensity"),
        ({"chance": [0.5, 1.5, 0.5]}, "propensity"),
    ],
)
def test_rows_that_violate_the_schema_are_refused(change, words):
    with pytest.raises(DataError, match=words):
        read(small(**change), propensity=True)


def test_columns_are_required_and_must_have_numbers():
    with pytest.raises(ValueError, match="vital 2"):
        read(small().drop(columns="vital 2"))
    with pytest.raises(ValueError, match="the column 'vital 3' must hold numbers"):
        read(small(**{"vital 3": [True, False, True]}))


def test_some_visits_of_each_user():
    found = read(files.frame(60))
    for randomness in (Seeded(0, 0), Secure()):
        some = found.some(2, randomness)
        assert (np.diff(some.users) >= 0).all()
        assert np.bincount(some.users).max() == 2
        assert set(some.users.tolist()) == set(range(60))
    one, other = (found.some(2, Seeded(1, 0)) for _ in range(2))
    assert np.array_equal(one.contexts, other.contexts)
    # a draw of m visits is uniform: no step is preferred
    assert found.some(100, Seeded(0, 0)).users.size == found.visits.users.size


def test_users_can_be_chosen():
    found = read(files.frame(50), propensity=True)
    chosen = np.arange(50) % 2 == 0
    half = found.of(chosen)
    assert len(half.names) == 25
    assert half.names == found.names[::2]
    assert half.visits.users.max() == 24
    assert len(half.propensities) == len(half.visits)
    again = found.of(~chosen)
    assert len(half.visits) + len(again.visits) == len(found.visits)


def test_a_schema_without_contexts_is_refused():
    from discreet.core.layout import Layout
    from discreet.data.schema import Schema

    rows = pd.DataFrame({
        "user": [0], "episode": [0], "step": [0], "state": [0], "action": [0], "reward": [0.0],
        "next_state": [0],
    })  # fmt: skip
    with pytest.raises(ValueError, match=r"context\.columns"):
        read_visits(open_source(rows, Schema("d", "p", Layout(2, 2, 1))))


def test_rounding_of_a_target_does_not_depend_on_other_users():
    own, other = [0.1, 0.2, 0.3], np.full(1000, 0.7)
    alone = _later(np.zeros(3, np.int64), np.array(own))
    users = np.repeat([0, 1], [1000, 3])
    assert _later(users, np.concatenate([other, own]))[1000:].tolist() == alone.tolist()


def test_keys_of_the_schema_below_its_columns_are_named():
    for where in ("context", "columns"):
        made = files.content()
        table = made["context"] if where == "context" else made["context"]["columns"]
        table["dataset"] = made.pop("dataset")
        with pytest.raises(ValueError, match=r"dataset: must be written above \[context"):
            parse_schema(made)


def test_random_visits_are_uniform_with_the_system_source():
    """Each of 3 visits of 6000 users is drawn with probability 1/3; six standard deviations."""
    users = np.repeat(np.arange(6000), 3)
    visits = Visits(users, np.tile(np.arange(3.0), 6000)[:, None], np.zeros(18000, np.int64), np.zeros(18000))
    some = StoredVisits(visits, None, tuple(range(6000))).some(1, Secure())
    counts = np.bincount(some.contexts[:, 0].astype(int), minlength=3)
    assert (np.abs(counts - 2000) < 6 * np.sqrt(6000 * 2 / 9)).all()
