"""Walks: programs against brute-force matrices, columns of strategies, tables of the specification."""

import pytest

from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.factorization import Walk
from discreet.core.correlated_noise.optimal_tree import OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.mechanisms.linear.exact_square_root import ExactSquareRoot

# ------------------------------------------------------------------------------ trees of nodes


def test_a_walk_says_its_levels_and_its_program_or_is_none() -> None:
    """What it costs is no default that one could forget."""
    for missing in ("levels", "form", "column_norm", "text"):
        rest = {"levels": 1, "form": 1, "column_norm": 1, "text": 1}
        half = type("Half", (Walk,), {name: rest[name] for name in rest if name != missing})
        with pytest.raises(TypeError, match="abstract"):
            half()
    whole = type("Whole", (Walk,), {"levels": 1, "form": Tree(5).form, "column_norm": 1, "text": 1})()
    assert (whole.row, whole.registers, whole.code, whole.weighted) == (None, 4, -1, False)
    assert (whole.fresh, whole.spread) == (False, 1.0)
    assert (whole.weights, whole.draw_scale, whole.integral) == (None, 1.0, False)
    assert [kind.weighted for kind in (Tree, SignedDigits, OptimalTree, SquareRoot)] == [False] * 2 + [
        True
    ] * 2
    with pytest.raises(ValueError, match="read-only"):
        SquareRoot(9).form.floats[0] = 0.0  # type: ignore[index]


# ----------------------------------------------------------- tables of privacy-mechanisms, section 2


@pytest.mark.parametrize("kind", [Tree, OptimalTree, SquareRoot, ExactSquareRoot, SignedDigits])
@pytest.mark.parametrize("leaves", [0, -3, 2.5, True, "8"])
def test_a_number_of_leaves_that_is_none_is_refused(kind: type[Walk], leaves: object) -> None:
    """No levels would be charged for it."""
    with pytest.raises(ValueError, match="leaves = "):
        kind(leaves) if kind is not SignedDigits else SignedDigits(leaves, 3)  # type: ignore[call-arg, arg-type]
