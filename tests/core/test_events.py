"""Records of noise: how families add up, and what rounding adds."""

import functools
import math
import re

import pytest

from discreet.core.events import joint_loss
from discreet.core.guarantee import (
    MechanismRecord,
)


@pytest.mark.parametrize(("noise", "most"), [("laplace", 7.0), ("gaussian", 5.0), ("discrete_gaussian", 5.0)])
def test_a_joint_change_lies_between_the_largest_family_and_all_together(noise, most):
    """Families that move by 3 and 4 scales: together by 4 at least, by 7 in l1 and by 5 in l2 at most."""
    made = functools.partial(
        MechanismRecord, "sum", noise, {"visits": 2.0, "rewards": 0.5}, {"visits": 6.0, "rewards": 2.0}
    )
    for inside in (4.0, most):
        made(joint=inside)
    for outside in (4.0 - 1e-6, most + 1e-6):
        with pytest.raises(ValueError, match=re.escape(f"must be in [4, {most:g}]")):
            made(joint=outside)
    with pytest.raises(ValueError, match="must be those of sensitivities"):
        MechanismRecord("sum", noise, {}, {}, 1.0)
    with pytest.raises(ValueError, match=r"sensitivities\['visits'\]"):
        MechanismRecord("sum", noise, {"visits": 1.0}, {"visits": 0.0}, 1.0)


@pytest.mark.parametrize(
    ("norm", "moves", "loss"),
    [
        ("l2", [(3, 4)], math.hypot(4, 5)),
        ("l2", [(3, 0), (0, 4)], 4 + math.hypot(1, 1)),
        ("l1", [(3, 0), (0, 4)], 6),
    ],
)
def test_rounding_adds_the_smaller_of_two_bounds(norm, moves, loss):
    """Two families that move as said, together or never together; each is rounded by 1 beside it."""

    class Moving:
        def sensitivity(self, norm, weights):
            sizes = (
                [weights.get(name, 0.0) * x for name, x in zip("ab", move, strict=True)] for move in moves
            )
            return max(sum(size) if norm == "l1" else math.hypot(*size) for size in sizes)

    for double in (1.0, 2.0):
        found = joint_loss(Moving(), norm, dict.fromkeys("ab", double), 1.0)
        assert found == pytest.approx(loss / double, rel=1e-12)
