"""Widths: the failure probability that they are for, and constants that are given."""

import math

import pytest

from discreet.core.layout import Layout
from discreet.learners.online.bonuses import UNKNOWN_USERS, hoeffding, logarithm, pooling, steps, users
from discreet.mechanisms.interfaces import ProblemSpec

SPEC = ProblemSpec(Layout(4, 3, 5), 1000)


def test_tight_widths_fail_with_their_share_of_the_probability() -> None:
    assert steps(SPEC) == 4 * 3 * 5 * 1000
    for failure in (1e-6, 0.05):
        outer, inner = hoeffding(SPEC, "tight", failure, l1=False)
        assert outer == inner
        assert steps(SPEC) * 2 * math.exp(-2 * outer**2) == pytest.approx(failure)
        assert hoeffding(SPEC, "published", failure, l1=True) > hoeffding(SPEC, "tight", failure, l1=True)


def test_a_given_constant_replaces_the_logarithm() -> None:
    assert math.sqrt(2 * logarithm(SPEC, False, 30.0, 0.1, 1.7)) == pytest.approx(1.7)
    pooled, apart = (logarithm(SPEC, stationary, 30.0, 0.1, None) for stationary in (True, False))
    assert apart - pooled == pytest.approx(math.log(5))
    assert (pooling(SPEC, True), pooling(SPEC, False)) == (1.0, 5.0)


def test_an_unknown_number_of_users_is_taken_as_huge() -> None:
    assert users(ProblemSpec(Layout(4, 3, 5))) == UNKNOWN_USERS
    assert users(SPEC) == 1000
