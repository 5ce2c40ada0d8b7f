"""Programs of factorizations take the room that their form states."""

import numpy as np
import pytest
from every_factorization import WALKS, name

from discreet.core.correlated_noise import factorization_kernels as walks
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk, program
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits


@pytest.mark.parametrize("walk", [w for w in WALKS if w.code >= 0 and w.leaves in (5, 17, 40)], ids=name)
def test_a_form_has_the_room_that_its_program_takes(walk: Walk) -> None:
    """All registers are used, and all operations but one; trees also from any prefix right to the last."""
    assert walk.leaves is not None
    code, ints, floats, *_ = program(walk)
    links, weights = np.zeros((999, 6), np.int64), np.zeros((999, 4))
    registers, operations = 0, 0
    for end in range(1, walk.leaves) if isinstance(walk, Tree) else [walk.leaves - 1]:
        held = np.zeros(walk.registers + 1, np.int64)
        while held[-1] < end:
            at, count = walks.next_ops(code, ints, floats, held, end, links, weights)
            registers = max(registers, 1 + int(links[:count, walks.TARGET].max(initial=-1)))
            operations, held[-1] = max(operations, count), at
    assert operations <= walk.form.operations
    assert registers <= walk.registers
    if not isinstance(walk, SignedDigits):  # of theirs some may have nothing to do
        assert operations >= walk.form.operations - 1
        assert registers == walk.registers


def test_an_open_tree_has_room_for_all_users_that_there_can_be() -> None:
    tree = Tree(None)
    code, ints, floats, links, weights = program(tree)
    for n in (2**60 - 1, 2**60, 2**61 - 2):
        held = np.zeros(tree.registers + 1, np.int64)
        _, count = walks.next_ops(code, ints, floats, held, n, links, weights)
        assert count <= tree.form.operations
        assert links[:count, walks.TARGET].max() < tree.registers


@pytest.mark.parametrize("walk", [w for w in WALKS if w.code >= 0 and w.leaves == 17], ids=name)
def test_the_register_of_a_prefix_holds_it(walk: Walk) -> None:
    """Labels of signed digits are those of prefixes with fewer digits, if a digit adds nothing."""
    assert walk.leaves is not None
    code, ints, floats, links, weights = program(walk)
    held = np.zeros(walk.registers + 1, np.int64)
    for leaf in range(1, walk.leaves):
        while held[-1] < leaf:
            at, count = walks.next_ops(code, ints, floats, held, leaf, links, weights)
            for target, *_, label in links[:count].tolist():
                held[target] = label
            held[-1] = at
        register = walks.register_of(code, ints, leaf)
        assert register == links[count - 1, walks.TARGET] or isinstance(walk, SignedDigits)
        assert held[register] == leaf or isinstance(walk, SignedDigits)
        assert 0 < held[register] <= leaf
