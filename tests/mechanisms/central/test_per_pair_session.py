"""Rows that a policy may play, by the definition; others than policies are refused."""

import numpy as np
import pytest

from discreet.core.layout import Layout
from discreet.mechanisms.central.per_pair_session import played_rows

MASK = np.array([[True, True], [True, False], [True, True]])
LAYOUT = Layout(3, 2, 2, MASK)


def test_played_are_rows_of_actions_and_of_positive_probabilities() -> None:
    actions = np.array([[0, 0, 1], [1, 0, 0]])
    played = played_rows(LAYOUT, actions)
    for h in range(2):
        rows = {int(LAYOUT.row_index[s, actions[h, s]]) for s in range(3)}
        assert set(np.flatnonzero(played[h]).tolist()) == rows
    chances = np.eye(2)[actions]
    np.testing.assert_array_equal(played_rows(LAYOUT, chances), played)
    chances[0, 0] = [0.5, 0.5]
    assert played_rows(LAYOUT, chances).sum() == played.sum() + 1


def test_what_is_no_policy_is_refused() -> None:
    for actions in ([[0, 1, 0]] * 2, [[0, 0, 2]] * 2, [[0, 0, -1]] * 2, [[0.0, 0.0, 1.0]] * 2):
        with pytest.raises(ValueError, match=r"plan\.policy: "):
            played_rows(LAYOUT, np.array(actions))
    chances = np.full((2, 3, 2), 0.5)  # also where an action is not admissible
    with pytest.raises(ValueError, match="not admissible"):
        played_rows(LAYOUT, chances)
