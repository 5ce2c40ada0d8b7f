"""The optimal estimate of a tree against generalised least squares."""

import numpy as np
import pytest
from every_factorization import SIZES

from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise.optimal_tree import OptimalTree, node_variances


@pytest.mark.parametrize("leaves", SIZES)
def test_the_optimal_estimate_is_generalised_least_squares(leaves: int) -> None:
    """Best linear unbiased estimate of each prefix from all nodes complete by then, by dense algebra."""
    walk = OptimalTree(leaves)
    matrix, addresses = noise_matrix(walk)
    nodes = np.zeros((len(addresses), leaves - 1))
    for row, (end, level) in enumerate(addresses):
        nodes[row, end - 2**level : end] = 1.0
    ends = np.array([end for end, _ in addresses])
    for n in range(1, leaves):
        seen = nodes[ends <= n][:, :n]
        weights = np.ones(n) @ np.linalg.solve(seen.T @ seen, seen.T)
        np.testing.assert_allclose(matrix[n - 1][ends <= n], weights, atol=1e-12)
        assert not matrix[n - 1][ends > n].any()
    columns = nodes.sum(axis=0)
    assert columns.max() == columns[0] == walk.levels


def test_node_variances() -> None:
    assert node_variances(4) == pytest.approx((1.0, 2 / 3, 4 / 7, 8 / 15))
    assert node_variances(40)[-1] == pytest.approx(0.5)
