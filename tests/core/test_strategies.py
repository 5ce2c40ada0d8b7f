"""Strategies over time: the norms that price a user, and what is refused."""

import math

import pytest

from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.matrix_factorization import MatrixFactorization
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.strategies import (
    STRATEGIES,
    WALKS,
    Batches,
    Exact,
    OnDevice,
    Prefixes,
    Strategy,
    registered,
)

NORMS = {
    Exact(): (math.inf, math.inf),
    Prefixes(Tree(5)): (3.0, math.sqrt(3)),
    Prefixes(OptimalTree(5)): (3.0, math.sqrt(3)),
    Prefixes(SignedDigits(5, 3, 2)): (2.0, math.inf),
    Prefixes(SquareRoot(5)): (math.inf, 1.0),
    Prefixes(Tree(None)): (1.0, math.inf),
    Prefixes(Tree(None, gaussian=True)): (math.inf, 1.0),
    Prefixes(MatrixFactorization([[1, 0], [3, 1]])): (1.0, math.inf),
    Prefixes(MatrixFactorization([[1, 0], [3, 1]], gaussian=True)): (math.inf, 1.0),
    Batches(): (1.0, 1.0),
    Batches(0.5): (math.inf, 1.0),
    OnDevice(): (1.0, 1.0),
}


@pytest.mark.parametrize("strategy", NORMS, ids=str)
def test_norms_of_a_column(strategy: Strategy) -> None:
    assert (strategy.column_norm("l1"), strategy.column_norm("l2")) == NORMS[strategy]
    assert strategy.plain() == strategy
    assert strategy.text()
    fresh = strategy in (
        Exact(), Prefixes(Tree(5)), Prefixes(OptimalTree(5)), Batches(), OnDevice(),
    )  # fmt: skip
    assert strategy.fresh == fresh
    assert strategy.weighted == (strategy in (Prefixes(OptimalTree(5)), Prefixes(SquareRoot(5))))
    assert strategy.on_device == (strategy == OnDevice())


def test_a_name_is_registered_once() -> None:
    before = list(STRATEGIES)
    with pytest.raises(ValueError, match="Batches"):
        registered(type("Batches", (Batches,), {}))
    assert before == STRATEGIES


def test_a_strategy_of_another_package_is_not_registered() -> None:
    other = type("Other", (Strategy,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match="strategy Other: must be a class of this library"):
        registered(other)
    assert other not in STRATEGIES


def test_two_strategies_have_no_common_name() -> None:
    for name, kinds in (("Batches", STRATEGIES), ("Tree", WALKS)):
        before = list(kinds)
        with pytest.raises(ValueError, match=f"strategy {name}: is registered already"):
            registered(type(name, (), {"__module__": "discreet.another"}), kinds)
        assert kinds == before
