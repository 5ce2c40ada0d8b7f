"""Policies as rows of admissible pairs, and the plan for users of an unknown policy."""

import numpy as np
import pytest

from discreet.core.layout import Layout
from discreet.mechanisms.policy_rows import anybody, policy_rows

MASK = np.array([[True, True], [True, False]])
LAYOUT = Layout(2, 2, 3, MASK)


def test_rows_are_those_of_the_layout() -> None:
    policy = np.array([[0, 0], [1, 0], [1, 0]])
    found = policy_rows(LAYOUT, policy)
    assert not found.stochastic
    assert found.rows.tolist() == [[0, 2], [1, 2], [1, 2]]
    assert policy_rows(LAYOUT, found) is found
    chances = policy_rows(LAYOUT, np.eye(2)[policy])
    assert chances.stochastic
    assert chances.probabilities.tolist() == [[1, 0, 1], [0, 1, 1], [0, 1, 1]]


def test_anybody_plays_admissible_actions_alike() -> None:
    plan = anybody(LAYOUT, 7)
    assert plan.users == 7
    assert plan.policy.tolist() == [[[0.5, 0.5], [1.0, 0.0]]] * 3
    assert policy_rows(LAYOUT, plan.policy).probabilities.sum() == 2 * 3


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (np.zeros((3, 3), int), "policy has shape"),
        (np.zeros((3, 2)), "policy has shape"),
        (np.array([[0, 0], [2, 0], [0, 0]]), r"policy\[1, 0\] = 2"),
        (np.array([[0, 0], [0, 1], [0, 0]]), r"policy\[1, 1\] = 1: not admissible"),
        (np.full((3, 2, 2), 0.5), r"policy\[0, 1, 1\] = 0\.5: action 1 is not admissible"),
        (np.full((3, 2, 2), 0.4), "must sum to 1"),
    ],
)
def test_what_is_no_policy_is_refused(policy: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        policy_rows(LAYOUT, policy)
