"""Compiled enumeration of policies against brute force."""

import itertools

import numpy as np
import pytest

from discreet.core.layout import Layout
from discreet.learners.online.policy_elimination import Enumeration

from .test_policy_elimination import problem, value_of

MASK = np.array([[True, True, True], [True, False, True], [False, True, False]])


def all_policies(layout, start):
    """(H, S) rows of every policy, by plain loops: the digit of (0, 0) varies fastest."""
    choices = []
    for h, s in itertools.product(range(layout.horizon), range(layout.states)):
        rows = range(layout.state_ptr[s], layout.state_ptr[s + 1])
        choices.append(rows if h > 0 or start[s] > 0 else rows[:1])
    for digits in itertools.product(*reversed(choices)):
        yield np.array(digits[::-1]).reshape(layout.horizon, layout.states)


LAYOUTS = [
    (Layout(2, 2, 3), True),
    (Layout(2, 2, 2), False),
    (Layout(3, 3, 2, MASK), False),
    (Layout(3, 3, 3, MASK), True),
    (Layout(3, 2, 1), False),
    (Layout(1, 3, 3), True),
]


@pytest.mark.parametrize(("layout", "fixed"), LAYOUTS)
def test_every_policy_once_and_its_value(layout, fixed):
    p, r, start = problem(1, layout, fixed, missing=0.3)
    everyone, expected = Enumeration.of(layout, start), list(all_policies(layout, start))
    assert everyone.count == len(expected)
    for i, rows in enumerate(expected):
        np.testing.assert_array_equal(everyone.rows(i), rows)
        np.testing.assert_array_equal(everyone.policy(i), layout.row_action[rows])
    found = everyone.values(p, r)
    np.testing.assert_allclose(found, [value_of(rows, p, r, start) for rows in expected], atol=1e-13)


@pytest.mark.parametrize(("layout", "fixed"), LAYOUTS)
def test_best_visitors_are_those_of_brute_force(layout, fixed):
    p, _, start = problem(2, layout, fixed, missing=0.3)
    p[:, 0] = 0.0  # unreachable things: ties
    everyone = Enumeration.of(layout, start)
    active = np.random.default_rng(0).random(everyone.count) < 0.4
    active[-1] = True
    for h in range(layout.horizon):
        unread = p.copy()
        unread[h:] = np.nan
        lowest, visits = everyone.visitors(unread, h, active)
        for row in range(layout.rows):
            best, tied = -1.0, []
            for i in np.flatnonzero(active):
                rows = everyone.rows(i)
                mass = start
                for t in range(h):
                    mass = mass @ p[t, rows[t]]
                s = layout.row_state[row]
                if rows[h, s] != row:
                    continue
                if mass[s] > best + 1e-14:
                    best, tied = mass[s], []
                if mass[s] >= best - 1e-14:
                    tied.append(i)
            assert lowest[row] == (tied[0] if tied else -1)
            assert visits[row] == pytest.approx(max(best, 0.0), abs=1e-14)
            if len(tied) > 1:  # coins at the middle of each of n equal parts find all n of them
                drawn = [
                    everyone.visitors(p, h, active, np.full(layout.rows, (j + 0.5) / len(tied)))[0][row]
                    for j in range(len(tied))
                ]
                assert sorted(drawn) == tied
