"""Sums over many stored records, against the definition, record by record."""

import numpy as np
import pytest

from discreet.mechanisms.dataset.partial_aggregate_kernels import add_stored

ROWS = np.array([[0, 1], [2, -1], [3, 4]])


@pytest.mark.parametrize("first_visits", [False, True])
def test_sums_are_those_of_the_definition(first_visits: bool) -> None:
    rng = np.random.default_rng(6)
    states, rewards = rng.integers(3, size=(40, 5)), rng.integers(9, size=(40, 4)) / 8
    actions = np.where(states[:, :4] == 1, 0, rng.integers(2, size=(40, 4)))
    counts, sums = np.zeros(5 * 3, np.uint32), np.zeros(5)
    add_stored(states, actions, rewards, ROWS, 0, 4, first_visits, 0.5, counts, sums)
    expected, total = np.zeros((5, 3), np.int64), np.zeros(5)
    for user in range(40):
        for h in range(4):
            state = states[user, h]
            if first_visits and state in states[user, :h]:
                continue
            row = ROWS[state, actions[user, h]]
            expected[row, states[user, h + 1]] += 1
            total[row] += rewards[user, h] - 0.5
    np.testing.assert_array_equal(counts.reshape(5, 3), expected)
    np.testing.assert_array_equal(sums, total)
