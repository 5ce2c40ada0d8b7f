"""Noise matrices of strategies."""

import numpy as np

from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits


def test_arity_2_is_the_binary_tree() -> None:
    one, two = noise_matrix(SignedDigits(200, 2, 8))[0], noise_matrix(Tree(200))[0]
    np.testing.assert_array_equal((one != 0).sum(axis=1), (two != 0).sum(axis=1))
    np.testing.assert_array_equal(one @ one.T, two @ two.T)
