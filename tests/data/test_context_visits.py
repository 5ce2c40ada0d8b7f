"""Visits with contexts from files: targets, strange values, refusals, private coins."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from discreet.core.rng import Secure, Seeded
from discreet.data.context_visits import _later, read_visits
from discreet.data.row_batches import open_source
from discreet.data.validate import DataError
from tests.helpers import vitals_files as files


def small(**changes):
    """Return three rows of two users, out of order."""
    rows = {
        "user": ["b", "a", "a"], "episode": [0, 0, 0], "step": [0, 1, 0], "action": ["two", "none", "one"],
        "reward": [1.0, 0.25, 0.5], "chance": [0.5, 0.25, 1.0],
        **{f"vital {i}": [10.0 + i, 20.0 + i, 30.0 + i] for i in range(files.VITALS)}, **changes,
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
    assert found.visits.contexts[first][:, 0].tolist() == [30.0, 20.0]
    assert found.propensities[first].tolist() == [1.0, 0.25]
    assert found.visits.targets[second].tolist() == [1.0]


def test_strange_contexts_are_kept_and_never_refused():
    found = read(small(**{"vital 0": [np.nan, np.inf, 1e308], "vital 1": ["x", None, "3"]}))
    assert np.isnan(found.visits.contexts[:, 1]).sum() == 2
    assert np.isinf(found.visits.contexts[:, 0]).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward": [1.5, 0.0, 0.0]}, "reward"),
        ({"action": ["three", "none", "one"]}, "action"),
        ({"step": [0, 2, 0]}, "step"),
        ({"step": [0, 0, 0]}, "step"),
        ({"chance": [0.0, 0.5, 0.5]}, "propensity"),
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
    with pytest.raises(ValueError, match="finite number"):
        read(small(**{"vital 3": ["a", "b", "c"]}))
    with pytest.raises(ValueError, match="must hold numbers"):
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
