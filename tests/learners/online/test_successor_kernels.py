"""Rows with stored successors, against plain sums over all states."""

import numpy as np
import pytest
from kept_kernels import kept

from discreet.learners.online import successor_kernels as rows

CLOSE = {"rtol": 1e-12, "atol": 1e-12}
KERNELS = {
    name: kept(getattr(rows, name))
    for name in (
        "successors", "project_in_place", "add_row", "fill", "middle", "moments", "flow_from",
    )
}  # fmt: skip


def on_simplex(v: np.ndarray) -> np.ndarray:
    """Euclidean projection onto the probability simplex, by sorting."""
    ordered = np.sort(v)[::-1]
    levels = (np.cumsum(ordered) - 1.0) / np.arange(1, v.size + 1)
    return np.maximum(v - levels[ordered > levels][-1], 0.0)


def tables(states: int, seed: int) -> tuple[rows.Successors, np.ndarray, np.ndarray]:
    """A table of six rows, the same rows with all entries, and noisy rows that three were projected from."""
    draw = np.random.default_rng(seed)
    noisy = draw.normal(size=(3, states)) * np.array([[0.01], [1.0 / np.sqrt(states)], [3.0]])
    noisy[:, :3] += draw.dirichlet(np.ones(3), 3)[:, : min(3, states)]
    table = KERNELS["successors"](np.zeros(rows.table_size(6, states)), 6, states)
    one = np.zeros((1, states))
    one[0, states // 2] = 1.0
    dense = np.concatenate([[on_simplex(v) for v in noisy], one, np.full((1, states), 1.0 / states)])
    kinds = np.array([*[rows.PROJECTED] * 3, rows.GIVEN, rows.UNIFORM], np.int8)
    KERNELS["fill"](table, np.concatenate([noisy, one, np.full((1, states), np.nan)]), kinds)
    KERNELS["add_row"](table, 5, dense, 1)
    return table, np.concatenate([dense, dense[1:2]]), noisy


@pytest.mark.compiles
@pytest.mark.parametrize("states", [3, rows.FEW - 1, rows.FEW, 200])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_projections_and_store_no_zeros(states: int, seed: int) -> None:
    table, dense, noisy = tables(states, seed)
    for i, row in enumerate(dense):
        mine = slice(table.ends[i], table.ends[i + 1])
        found = np.zeros(states)
        found[table.state[mine]] = table.chance[mine]
        assert (np.diff(table.state[mine]) > 0).all()
        if states < rows.FEW:
            assert mine.stop - mine.start == states
        elif i == 4:
            assert mine.stop == mine.start
            continue
        else:
            assert (table.chance[mine] > 0.0).all()
        np.testing.assert_allclose(found, row, **CLOSE)
    inside = noisy.copy()
    KERNELS["project_in_place"](inside, 1)
    np.testing.assert_allclose(inside[1], dense[1], **CLOSE)


@pytest.mark.compiles
@pytest.mark.parametrize("states", [3, rows.FEW, 200])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_moments_are_the_sums_over_all_states(states: int, offset: float) -> None:
    """The offset of the values is large, so that a formula with cancellation would show."""
    table, dense, _ = tables(states, 7)
    values = offset + np.random.default_rng(8).uniform(0.0, 20.0, (2, states))
    centre, std, square = KERNELS["middle"](values, 1)
    v = values[1]
    scale = {"rtol": 1e-12, "atol": 1e-12 * max(1.0, offset)}
    np.testing.assert_allclose([centre, std], [v.mean(), v.std()], **scale)
    np.testing.assert_allclose(square, ((v - v.mean()) ** 2).sum(), **scale)
    for i, row in enumerate(dense):
        if i == 4 and states >= rows.FEW:  # no plan reads a row without entries
            continue
        found = KERNELS["moments"](table, i, values, 1, centre, square)
        mean = row @ v
        np.testing.assert_allclose(found[0], mean, **scale)
        np.testing.assert_allclose(found[1], row @ (v - mean) ** 2, **scale)
        np.testing.assert_allclose(found[2], ((v - mean) ** 2).sum(), **scale)


@pytest.mark.compiles
@pytest.mark.parametrize("states", [3, rows.FEW, 200])
def test_users_flow_to_the_successors(states: int) -> None:
    table, dense, _ = tables(states, 9)
    for i, row in enumerate(dense):
        after = np.zeros(states)
        rest = KERNELS["flow_from"](table, i, 7.0, after)
        assert rest == (7.0 if i == 4 and states >= rows.FEW else 0.0)
        np.testing.assert_allclose(after + rest / states, 7.0 * row, **CLOSE)
