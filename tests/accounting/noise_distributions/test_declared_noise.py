"""Standard deviations and bounds of sums with a declared noise."""

import math

import pytest

from discreet.accounting.noise_distributions.declared_noise import DeclaredSumLaw


def test_std_and_bounds() -> None:
    law = DeclaredSumLaw(2.0, 4.0, 9, cells=12, rows=3, row_size=4, share=0.5)
    assert (law.std(), law.std_bound(), law.family, law.exact) == (4.0, 6.0, "declared", True)
    assert law.bound(0.1) == pytest.approx(6.0 * math.sqrt(12 / 0.05))
    assert law.bound(0.1, rows=True) == pytest.approx(6.0 * math.sqrt(4 * 3 / 0.05))
    with pytest.raises(ValueError, match="failure"):
        law.bound(0.0)
