"""The tree's geometry: partitions, levels, one noise per node; K known and not."""

import math

import numpy as np
import pytest
from every_factorization import SIZES, prefixes

from discreet.accounting.noise_distributions.count_noise import bound_of, bound_steps
from discreet.accounting.noise_distributions.prefix_variance import noise_of, tree_nodes
from discreet.audit.noise_matrix import noise_matrix
from discreet.core import count_kernels as kernels
from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import program


def node_start(end: int, users: int | None) -> int:
    return int(kernels.tree_parent(end, users is None))


@pytest.mark.parametrize("users", [2, 3, 4, 5, 8, 9, 100, 1000, 1024, None])
def test_nodes_partition_every_prefix(users: int | None) -> None:
    tree = Tree(users)
    for n in range(users or 700):
        end = n
        for node_end, _ in tree_nodes(tree, n):
            assert node_end == end
            end = node_start(node_end, users)
        assert end == 0


@pytest.mark.parametrize("users", [2, 3, 4, 5, 8, 9, 100, 1000, 1024])
def test_a_user_lies_in_at_most_levels_released_nodes(users: int) -> None:
    tree = Tree(users)
    nodes = {end for n in range(users) for end, _ in tree_nodes(tree, n)}
    touched = np.zeros(users, int)
    for end in nodes:
        touched[node_start(end, users) : end] += 1
    assert tree.levels == (users - 1).bit_length()
    assert touched.max() == touched[0] == tree.levels


def test_open_ended_tree_charges_each_epoch_its_own_levels() -> None:
    tree = Tree(None)
    spent: dict[int, float] = {}
    for end, epoch in {node for n in range(600) for node in tree_nodes(tree, n)}:
        for user in range(node_start(end, None), end):
            spent[user] = spent.get(user, 0.0) + 1 / noise_of(tree).scale(2**epoch)
            assert 2**epoch <= user + 1 < 2 ** (epoch + 1)
    assert max(spent.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("users", [1000, None])
def test_terms_and_slots(users: int | None) -> None:
    tree, most = Tree(users), 0
    for n in range(1000):
        most = max(most, len(tree_nodes(tree, n)))
        assert most <= bound_of(tree, n)
        if users is not None:
            assert most == bound_of(tree, n)
            assert len(tree_nodes(tree, n)) == n.bit_count()
    if users is not None:
        assert bound_steps(tree) == [0, 2, 6, 14, 30, 62, 126, 254, 510, 999]


@pytest.mark.parametrize("users", [1000, None])
@pytest.mark.parametrize(("jumps", "gaussian"), [(1, False), (7, True), (97, False)])
def test_running_noise_is_the_sum_of_the_nodes(users: int | None, jumps: int, gaussian: bool) -> None:
    """The walk keeps one noise per node whatever releases are skipped, and never draws one twice.

    Its scale grows with the epoch where the number of users is not known.
    """
    tree = Tree(users, gaussian)
    held = np.zeros(tree.registers + 1, np.int64)
    code, ints, floats, links, weights = program(tree)
    stack: dict[int, frozenset[int]] = {}
    drawn: set[int] = set()
    for n in range(jumps, 1000, jumps):
        at, count = walks.next_ops(code, ints, floats, held, n, links, weights)
        assert at == n
        epochs = dict(tree_nodes(tree, n))
        for (slot, parent, _, end, level, label), row in zip(
            links[:count].tolist(), weights[:count].tolist(), strict=True
        ):
            assert end not in drawn
            assert (level, label) == (0, end)
            scale = epochs[end] + 1.0 if users is None else 1.0  # so many nodes of its epoch hold a user
            assert row == pytest.approx([1.0, 0.0, 1.0, math.sqrt(scale) if gaussian else scale])
            drawn.add(end)
            stack[slot] = frozenset({end}) | (stack[parent] if parent >= 0 else frozenset())
            held[slot] = end
        assert stack[walks.register_of(code, ints, n)] == {end for end, _ in tree_nodes(tree, n)}


@pytest.mark.parametrize("leaves", SIZES)
def test_binary_nodes_factor_the_prefixes(leaves: int) -> None:
    tree = Tree(leaves)
    matrix, addresses = noise_matrix(tree)
    strategy = np.zeros((len(addresses), leaves - 1))
    for row, (end, _) in enumerate(addresses):
        strategy[row, end & (end - 1) : end] = 1.0
    np.testing.assert_array_equal(matrix @ strategy, prefixes(tree))
    assert strategy.sum(axis=0).max() == tree.levels
