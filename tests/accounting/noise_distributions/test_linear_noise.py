"""Noise of linear sums: bounds against exact quantiles and seeded matrices."""

import math

import numpy as np
import pytest
from scipy import stats

from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw


def test_bounds_of_gaussian_vectors_are_above_the_exact_quantiles() -> None:
    law = VectorLaw((0.5, 2.0), 3.0, 4.0, dimension=3, releases=5, size=6)
    std = 2.0 * math.sqrt(3.0)
    assert law.std() == pytest.approx(std)
    assert law.std(0) == pytest.approx(std / 4)
    assert law.std_bound() == pytest.approx(4.0)
    for failure in (1e-6, 0.01, 0.5):
        assert law.norm_bound(failure) >= std * math.sqrt(stats.chi2.isf(failure, 6))
        each = failure / (2 * 6 * 5)
        assert law.bound(failure) >= 4.0 * stats.norm.isf(each / 2) * (1 - 1e-12)
        assert law.bound(failure, rows=True) == pytest.approx(3 * law.bound(failure))


def test_laplace_noise_is_wider_and_its_bound_holds_for_one_draw() -> None:
    law = VectorLaw((1.5,), 1.0, 1.0, dimension=1, releases=1, laplace=True)
    assert law.std() == pytest.approx(stats.laplace(scale=1.5).std())
    for failure in (1e-9, 0.05):
        assert law.bound(failure) >= stats.laplace(scale=1.5).isf(failure / 2)


def test_operator_norms_of_symmetric_noise_are_rarely_above_the_bound() -> None:
    law, rng = GoeLaw((2.0,), 1.0, 1.0, dimension=8, releases=1), np.random.default_rng(5)
    upper = np.triu(rng.normal(0.0, 2.0, (400, 8, 8)), 1)
    diagonal = rng.normal(0.0, 2.0 * math.sqrt(2.0), (400, 8))
    noise = upper + upper.swapaxes(1, 2) + np.eye(8) * diagonal[:, None]
    norms = np.abs(np.linalg.eigvalsh(noise)).max(axis=1)
    assert (norms <= law.operator_norm_bound(0.05)).mean() >= 0.95
    assert np.abs(noise).max(axis=(1, 2)).mean() < law.bound(0.05)
    assert law.edge() == pytest.approx(2 * math.sqrt(8) * 2.0)


def test_exact_sums_have_no_noise_and_failures_are_probabilities() -> None:
    none = VectorLaw((0.0, 0.0), 2.0, 2.0, dimension=2, releases=3)
    assert (none.family, none.std(), none.bound(0.1)) == ("none", 0.0, 0.0)
    families = {(False, False): "gaussian", (True, True): "discrete_laplace"}
    for (laplace, discrete), name in families.items():
        one = GoeLaw((1.0,), 1.0, 1.0, 2, 1, laplace=laplace, discrete=discrete)
        assert one.family == name
        for failure in (0.0, 1.0, math.nan):
            with pytest.raises(ValueError, match="failure = "):
                one.operator_norm_bound(failure)
