"""One report is added debiased: a hit counts its gain, every other element of its step the same miss."""

import numpy as np
import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.raw_encoder import family_begins
from discreet.mechanisms.local.randomized_response_kernels import add_report

LAYOUT = Layout(3, 2, 4)
QUERY = CountQuery(LAYOUT)
POLICY_ROWS = np.array([[0, 3, 4]] * 4)
GAIN, MISS = 4.0, -0.25
VALUES = np.array([GAIN, MISS] * 4)


@pytest.mark.parametrize("step", [0, 2])
def test_a_reported_move_is_counted_in_its_step_and_rows_of_the_policy_alone(step: int) -> None:
    marks, cells = np.zeros(9, np.int64), np.zeros(QUERY.cells)
    marks[1 * 3 + 2] = 1  # from state 1 to state 2
    add_report(
        np.zeros(16, np.int64), VALUES, 0, step, False, POLICY_ROWS, marks, 3, LAYOUT.rows, QUERY.slots,
        family_begins(QUERY), 0.0, cells,
    )  # fmt: skip
    visits, moves = (
        cells[QUERY.offsets[f] : QUERY.offsets[f + 1]].reshape(4, LAYOUT.rows, -1) for f in (0, 1)
    )
    expected = np.zeros((4, LAYOUT.rows, 3))
    expected[step, POLICY_ROWS[step]] = MISS
    expected[step, 3, 2] += GAIN
    np.testing.assert_array_equal(moves, expected)
    np.testing.assert_array_equal(visits[..., 0], expected.sum(axis=2))
    assert not cells[QUERY.offsets[2] :].any()


def test_rewards_are_counted_as_their_rounded_bit_less_the_shift() -> None:
    marks, cells = np.zeros(6, np.int64), np.zeros(QUERY.cells)
    marks[2 * 1 + 1] = 1  # reward 1 in state 1
    add_report(
        np.zeros(16, np.int64), VALUES, 1, 1, False, POLICY_ROWS, marks, 3, LAYOUT.rows, QUERY.slots,
        family_begins(QUERY), 0.5, cells,
    )  # fmt: skip
    rewards = cells[QUERY.offsets[2] :].reshape(4, LAYOUT.rows)
    assert rewards[1, 3] == pytest.approx(0.5 * (GAIN + MISS) - 0.5 * MISS)
    assert rewards[1, [0, 4]].tolist() == [0.0, 0.0]  # both bits have the same miss
    assert np.count_nonzero(cells) == 1
