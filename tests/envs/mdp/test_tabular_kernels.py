"""The tables of a world: alias columns and conditional ratios that hold the probabilities exactly."""

import numpy as np
import pytest

from discreet.envs import riverswim
from discreet.envs.mdp import tabular_kernels as world_kernels
from discreet.envs.mdp.tabular import TabularMDP

CERTAIN = 2**64 - 1


def tables(*rows):
    ptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    p = np.concatenate(rows).astype(float)
    ratio, threshold = np.empty(p.size), np.empty(p.size, np.uint64)
    alias = np.empty(2 * p.size, np.int64)
    world_kernels.build_tables(ptr, p, ratio, threshold, alias)
    return ptr, p, ratio, threshold, alias


def drawn_probabilities(ptr, threshold, alias):
    """What the alias tables draw, entry by entry, in exact integers over 2^64 k."""
    out = []
    for row in range(ptr.size - 1):
        k = int(ptr[row + 1] - ptr[row])
        mass = [0] * k
        for e in range(ptr[row], ptr[row + 1]):
            t = int(threshold[e])
            keep = 2**64 if t == CERTAIN else t
            mass[int(alias[2 * e] - ptr[row])] += keep
            mass[int(alias[2 * e + 1] - ptr[row])] += 2**64 - keep
        out.append([m / (2**64 * k) for m in mass])
    return out


@pytest.mark.parametrize("k", [1, 2, 3, 6, 50, 716])
@pytest.mark.parametrize("concentration", [0.02, 0.3, 1.0, 50.0])
def test_alias_tables_hold_the_probabilities(k, concentration):
    rows = np.random.default_rng(k).dirichlet(np.full(k, concentration), 20)
    ptr, _, ratio, threshold, alias = tables(*rows)
    found = np.array(drawn_probabilities(ptr, threshold, alias))
    assert np.abs(found - rows).max() < 3e-16 * k
    assert not found[rows == 0].any()
    left = np.ones(20)
    by_ratio = np.empty_like(rows)
    for j in range(k):
        by_ratio[:, j] = left * ratio.reshape(20, k)[:, j]
        left = left - by_ratio[:, j]
    assert np.abs(by_ratio - rows).max() < 1e-14
    assert (np.abs(left) < 1e-14).all()


def test_certain_and_impossible_are_exact():
    ptr, _, ratio, threshold, alias = tables([1.0, 0.0], [0.0, 1.0], [0.3, 0.7, 0.0], [1.0])
    found = drawn_probabilities(ptr, threshold, alias)
    assert found[0] == [1, 0]
    assert found[1] == [0, 1]
    assert found[2][2] == 0
    assert found[3] == [1]
    assert ratio[[0, 3, 5, 7]].tolist() == [1, 1, 1, 1]
    assert ratio[[1, 2, 6]].tolist() == [0, 0, 0]


def test_small_probabilities_survive_in_the_ratios():
    """Suffix sums: the ratio of a 1e-20 among 1e-20s is right, where 1 - prefix would be 0 / 0."""
    _, _, ratio, _, _ = tables([1.0, 1e-20, 1e-20])
    assert ratio.tolist() == [1.0, 0.5, 1.0]


def test_entries_fall_and_the_start_is_the_last_row():
    mdp = TabularMDP(
        riverswim().transitions[0], riverswim().rewards[0], [0.1, 0.2, 0.3, 0.4, 0, 0], horizon=2
    )
    for row in range(mdp.row_ptr.size - 1):
        p = mdp.probability[mdp.row_ptr[row] : mdp.row_ptr[row + 1]]
        assert (p > 0).all()
        assert (np.diff(p) <= 0).all()
    last = slice(*mdp.row_ptr[-2:])
    assert mdp.successor[last].tolist() == [3, 2, 1, 0]
    assert mdp.probability[last].tolist() == [0.4, 0.3, 0.2, 0.1]
    assert mdp.world.transition_stride == mdp.world.reward_stride == 0
