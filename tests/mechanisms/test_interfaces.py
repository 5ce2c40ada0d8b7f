"""Public facts of problems: probabilities and budgets."""

import numpy as np
import pytest

from discreet.mechanisms.interfaces import Budget, probabilities


def test_probabilities_may_be_off_by_the_tolerance_alone() -> None:
    table = np.array([[0.5, 0.5], [0.25, 0.75 + 5e-10]])
    assert probabilities("p", table) is table
    with pytest.raises(ValueError, match=r"p\[1\] sums to"):
        probabilities("p", np.array([[0.5, 0.5], [0.25, 0.76]]))
    with pytest.raises(ValueError, match="at least 0"):
        probabilities("p", np.array([[1.5, -0.5]]))
    assert probabilities("p", np.zeros((0, 3))).size == 0


def test_a_budget_is_pure_where_delta_is_0() -> None:
    assert Budget("central", epsilon=1.0).pure
    assert not Budget("central", epsilon=1.0, delta=1e-6).pure
    assert not Budget("central", mu=1.0).pure
    assert Budget("local", rho=1.0).private
    assert not Budget("none").private
