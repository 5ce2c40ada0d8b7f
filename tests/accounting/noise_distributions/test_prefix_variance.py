"""Variances of prefix sums: the program's own, their bounds, and the best arity."""

import numpy as np
import pytest
from every_factorization import every_walk, name

from discreet.accounting.noise_distributions.count_noise import bound_of
from discreet.accounting.noise_distributions.prefix_variance import best_digits, noise_of
from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot


@every_walk
def test_variances_are_those_of_the_program(walk: Walk) -> None:
    """Each address is drawn once (or noise_matrix raises); registers and operations suffice."""
    matrix, addresses = noise_matrix(walk)
    assert len(set(addresses)) == matrix.shape[1]
    variances = (matrix**2).sum(axis=1)
    assert [noise_of(walk).terms(n) for n in range(1, len(matrix) + 1)] == pytest.approx(variances.tolist())
    assert noise_of(walk).rms() == pytest.approx(np.sqrt(variances.mean()))
    assert noise_of(walk).terms(0) == noise_of(walk).most(0) == bound_of(walk, 0) == 0


K = 20_000


def factors(walk: Walk, laplace: bool) -> tuple[float, float, float]:
    """Std at k = K, rms and largest over k = 1 .. K, in units of one release's noise."""
    exposure = walk.levels if laplace else np.sqrt(walk.levels)
    noise = noise_of(walk)
    return tuple(round(exposure * x, 10) for x in (noise.terms(K) ** 0.5, noise.rms(), noise.most(K) ** 0.5))


@pytest.mark.parametrize(
    ("walk", "laplace", "expected"),
    [
        (Tree(K + 1), True, (33.5, 39.6, 56.1)),
        (Tree(K + 1), False, (8.66, 10.2, 14.5)),
        (OptimalTree(K + 1), True, (23.8, 29.6, 41.9)),
        (OptimalTree(K + 1), False, (6.13, 7.63, 10.8)),
        (best_digits(K + 1, 12), True, (18.8, 15.4, 21.5)),
        (best_digits(K + 1, 16), True, (12.0, 15.2, 21.2)),
        (best_digits(K + 1, 19), True, (17.9, 15.9, 21.9)),
        (best_digits(K + 1, 28), True, (20.6, 15.5, 21.6)),
        (SquareRoot(K + 1), False, (4.22, 4.06, 4.22)),
    ],
    ids=lambda x: name(x) if isinstance(x, Walk) else "",
)
def test_factors_of_the_document(walk: Walk, laplace: bool, expected: tuple[float, ...]) -> None:
    assert factors(walk, laplace) == pytest.approx(expected, abs=0.051 if laplace else 0.0051, rel=3e-3)


def test_the_best_arity_is_the_best() -> None:
    best = best_digits(K + 1)
    assert (best.arity, best.levels) == (14, 4)
    assert best.levels * noise_of(best).rms() == pytest.approx(14.99, abs=0.005)
    for arity in range(2, 65):
        for levels in range(1, 8):
            other = SignedDigits(K + 1, arity, levels)
            assert best.levels * noise_of(best).rms() <= other.levels * noise_of(other).rms()


def test_rms_of_many_leaves_is_exact() -> None:
    walk = SignedDigits(300_000, 22, 4)
    noise = noise_of(walk)
    assert noise.rms() == pytest.approx(np.sqrt(np.mean([noise.terms(n) for n in range(1, 300_000)])))


@pytest.mark.parametrize(
    "walk", [Tree(1), OptimalTree(1), SquareRoot(1), best_digits(1)], ids=lambda one: type(one).__name__
)
def test_a_walk_of_one_leaf_releases_nothing_and_charges_one_level(walk: Walk) -> None:
    assert walk.levels == 1
    assert np.isfinite(noise_of(walk).rms())
    assert noise_of(walk).terms(0) == 0.0
