"""Counts equal a slow reference, whatever the files' order."""

import numpy as np
import pytest

from discreet.data.counting import Counter, count
from discreet.data.readers import open_source
from discreet.data.validate import DataError, episodes
from discreet.mdp.layout import Layout
from discreet.mdp.trajectories import Trajectories


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("centered", [False, True])
def test_counts_are_exact_in_any_order(schema, make, tmp_path, pooled, centered) -> None:
    rows = make.people(300)
    rng = np.random.default_rng(1)
    for row in rows:
        row["reward"] = 0.0 if row["state"] == 4 else float(rng.uniform(-1, 3))
    layout, slots = schema.layout, 1 if pooled else schema.horizon
    visits = np.zeros((slots, layout.rows))
    moves = np.zeros((slots, layout.rows, layout.states))
    sums = np.zeros((slots, layout.rows))
    first = open_source(make.save(rows, tmp_path / "a.parquet"), schema)
    for part in episodes(first):
        for one in part.trajectories:
            for h in range(schema.horizon):
                t, r = 0 if pooled else h, layout.row_index[one.states[h], one.actions[h]]
                visits[t, r] += 1
                moves[t, r, one.states[h + 1]] += 1
                sums[t, r] += round(one.rewards[h] * 2**20) / 2**20 - (0.5 if centered else 0)
    second = open_source(make.save(make.shuffled(rows), tmp_path / "b.csv"), schema)
    for source, how in ((first, {}), (second, {"batch_rows": 9, "memory": 4000})):
        counts = count(source, pooled=pooled, centered=centered, **how)
        assert np.array_equal(counts.visits, visits)
        assert np.array_equal(counts.transitions, moves)
        assert np.array_equal(counts.reward_sums, sums)
        assert (counts.users, counts.episodes, counts.rows) == (300, 300, len(rows))


def test_many_blocks() -> None:
    rng = np.random.default_rng(2)
    n, layout = 2000, Layout(7, 3, 5)
    some = Trajectories(
        rng.integers(0, 7, (n, 6)), rng.integers(0, 3, (n, 5)), rng.integers(0, 2, (n, 5)) / 1.0
    )
    counter = Counter(layout)
    counter.add(some)
    counts = counter.counts(n, n * 5)
    cells = (some.states[:, :-1] * 3 + some.actions) * 7 + some.states[:, 1:] + 147 * np.arange(5)
    assert np.array_equal(counts.transitions.ravel(), np.bincount(cells.ravel(), minlength=735))
    assert counts.reward_sums.sum() == some.rewards.sum()


def test_broken_rows_give_no_counts(schema, make, tmp_path) -> None:
    rows = make.people(10)
    rows[-1]["reward"] = 7.0
    with pytest.raises(DataError):
        count(open_source(make.save(rows, tmp_path / "a.parquet"), schema))


@pytest.mark.parametrize("grid", [3, 1, 2**21])
def test_the_grid_is_checked(grid) -> None:
    with pytest.raises(ValueError, match="grid"):
        Counter(Layout(2, 2, 2), grid=grid)
