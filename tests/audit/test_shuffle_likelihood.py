"""Logarithms of the law of a shuffler's flips, against SciPy's binomials."""

import numpy as np
import pytest
from scipy import stats

from discreet.audit.shuffle_likelihood import log_law


def test_the_law_of_a_sum_of_flips_is_the_convolution() -> None:
    np.testing.assert_allclose(
        log_law(((7, 0.3), (5, 0.3))), stats.binom.logpmf(np.arange(13), 12, 0.3), rtol=1e-10
    )
    law = np.exp(log_law(((4, 0.25), (4, 0.75))))
    assert law.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(law, law[::-1])  # half of the flips are of the complement


def test_what_never_happens_has_a_finite_logarithm_and_tables_are_read_only() -> None:
    sure = log_law(((3, 1.0),))
    assert sure[3] == pytest.approx(0.0)
    assert (sure[:3] == -700.0).all()
    with pytest.raises(ValueError, match="read-only"):
        sure[0] = 0.0
