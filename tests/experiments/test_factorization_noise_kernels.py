"""Compiled noise of prefixes against a plain evaluation of the program, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_factorization import WALKS, name
from kept_kernels import kept

from discreet.core.correlated_noise import factorization_kernels as programs
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk, program
from discreet.core.rng import Seeded
from discreet.experiments import factorization_noise_kernels
from discreet.mechanisms.seeded_noise_kernels import fill_noise

walk_advance = kept(factorization_noise_kernels.walk_advance)
KEY = Seeded(3, 1).keys.noise
OFFSETS, SCALES = np.array([0, 2, 5]), np.array([1.5, 0.25])
CELLS = 5


def drawn(family: int, i: int, j: int, factor: float) -> np.ndarray:
    out = np.empty(CELLS)
    fill_noise(family, KEY, i, j, factor, OFFSETS, SCALES, out)
    return out


def advanced(walk: Walk, family: int, leaves: list[int]) -> list[np.ndarray]:
    """The compiled noise of these prefixes, one after the other in the same registers."""
    arguments = program(walk)
    held, registers = np.zeros(walk.registers + 1, np.int64), np.full((walk.registers, CELLS), np.nan)
    state, noise, found = np.empty(4, np.uint64), np.empty(CELLS), []
    for leaf in leaves:
        at = walk_advance(*arguments, leaf, family, KEY, OFFSETS, SCALES, held, registers, state, noise)
        assert held[-1] == leaf
        found.append(registers[at].copy())
    return found


def plain(walk: Walk, family: int, last: int) -> list[np.ndarray]:
    """The same for prefixes 1 .. ``last``: operation by operation, in Python."""
    code, ints, floats, links, weights = program(walk)
    held, made, found = np.zeros(walk.registers + 1, np.int64), {}, []
    for leaf in range(1, last + 1):
        _, count = programs.next_ops(code, ints, floats, held, leaf, links, weights)
        for (target, one, two, i, j, label), (c1, c2, cd, scale) in zip(
            links[:count].tolist(), weights[:count].tolist(), strict=True
        ):
            total: Any = None
            for factor, source in ((c1, one), (c2, two)):
                if source >= 0:
                    total = factor * made[source] if total is None else total + factor * made[source]
            if cd != 0.0:
                fresh = cd * drawn(family, i, j, scale)
                total = fresh if total is None else total + fresh
            made[target], held[target] = total, label
        held[-1] = leaf
        found.append(made[programs.register_of(code, ints, leaf)])
    return found


@pytest.mark.compiles
@pytest.mark.parametrize("family", [0, 1], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("walk", [w for w in WALKS if w.code >= 0 and w.leaves in (5, 17)], ids=name)
def test_every_prefix_has_the_noise_of_its_program(walk: Walk, family: int) -> None:
    assert walk.leaves is not None
    leaves = list(range(1, walk.leaves))
    wanted = plain(walk, family, leaves[-1])
    assert np.array_equal(advanced(walk, family, leaves), wanted)
    assert np.isfinite(wanted).all()
    assert np.unique(wanted).size == np.size(wanted)
    assert np.array_equal(advanced(walk, family, leaves[2::3]), wanted[2::3])  # time steps between are made


def test_the_trees_noise_is_the_sum_over_the_binary_digits() -> None:
    """Prefix 13 = 8 + 4 + 1: the nodes that end at 8, 12 and 13."""
    for leaf in (1, 2, 7, 8, 13, 16):
        ends = [leaf]
        while ends[0] & (ends[0] - 1):
            ends.insert(0, ends[0] & (ends[0] - 1))
        wanted = np.zeros(CELLS)
        for end in ends:
            wanted += drawn(0, end, 0, 1.0)
        (found,) = advanced(Tree(17), 0, [leaf])
        assert np.array_equal(found, wanted)
