"""Compiled backward induction, against NumPy; ties are drawn from the given words."""

import numpy as np

from discreet.learners.online.occupancy_elimination_kernels import plan_best

COINS = np.array([1, 2, 3, 4], np.uint64)


def planned(columns: np.ndarray, rewards: np.ndarray, coins: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return values, q and rows; two rows for each state."""
    horizon, states, pairs = columns.shape
    values, q = np.zeros((horizon + 1, states)), np.zeros((horizon, pairs))
    rows = np.zeros((horizon, states), np.int64)
    plan_best(columns, rewards, np.arange(0, pairs + 1, 2), coins.copy(), values, q, rows)
    return values, q, rows


def test_values_are_those_of_backward_induction() -> None:
    rng = np.random.default_rng(4)
    columns = rng.dirichlet(np.ones(3), (5, 6)).swapaxes(1, 2).copy()
    rewards = rng.normal(size=(5, 6))
    values, q, rows = planned(columns, rewards, COINS)
    after = np.zeros(3)
    for h in range(4, -1, -1):
        expected = rewards[h] + after @ columns[h]
        np.testing.assert_allclose(q[h], expected, rtol=1e-12)
        after = expected.reshape(3, 2).max(axis=1)
        np.testing.assert_allclose(values[h], after, rtol=1e-12)
        np.testing.assert_array_equal(rows[h], 2 * np.arange(3) + expected.reshape(3, 2).argmax(axis=1))


def test_ties_take_each_row_for_some_words() -> None:
    columns, rewards = np.full((1, 1, 2), 1.0), np.zeros((1, 2))
    words = np.random.default_rng(5).integers(2**64, size=(40, 4), dtype=np.uint64)
    found = {int(planned(columns, rewards, coins)[2][0, 0]) for coins in words}
    assert found == {0, 1}
    first = planned(columns, rewards, COINS)[2]
    np.testing.assert_array_equal(first, planned(columns, rewards, COINS)[2])
