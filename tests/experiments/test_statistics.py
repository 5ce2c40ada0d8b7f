import math

import numpy as np
import pytest
from scipy import stats

from discreet.experiments.statistics import (
    bands,
    mean_interval,
    median_interval,
    name_of_test,
    number,
    paired,
    ratio_interval,
    sign_flip_test,
)

VALUES = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.5])


def test_mean_interval_is_students() -> None:
    interval = mean_interval(VALUES)
    low, high = stats.t.interval(0.95, 9, loc=VALUES.mean(), scale=stats.sem(VALUES))
    assert interval.estimate == VALUES.mean()
    assert (interval.low, interval.high) == pytest.approx((low, high), rel=1e-12)
    assert interval.method == "Student's t"
    assert interval.count == 10


def test_median_interval_of_ten_is_second_and_ninth() -> None:
    # P(Binomial(10, 1/2) < 2) = 11/1024 = 1.07 % on each side; < 3 would be 5.5 %: too much.
    interval = median_interval(VALUES)
    ordered = np.sort(VALUES)
    assert (interval.estimate, interval.low, interval.high) == (np.median(VALUES), ordered[1], ordered[8])


@pytest.mark.parametrize("n", range(6, 41))
def test_median_interval_is_the_narrowest_that_covers(n: int) -> None:
    values = np.arange(1.0, n + 1)
    interval = median_interval(values)
    assert interval.low is not None
    rank = int(interval.low)
    assert stats.binom.cdf(rank - 1, n, 0.5) <= 0.025
    assert stats.binom.cdf(rank, n, 0.5) > 0.025
    assert interval.high == n + 1 - rank


def test_too_few_values_have_no_interval_rather_than_a_wrong_one() -> None:
    assert median_interval(VALUES[:5]).low is None
    one = mean_interval([7.0])
    assert (one.estimate, one.low, one.high) == (7.0, None, None)
    assert str(one) == "7.000 —"
    assert median_interval([7.0]).brackets() == "—"
    assert paired(np.array([1.0]), np.array([3.0])).p_value is None
    mean, half = bands(np.ones((1, 4)))
    assert mean.shape == (4,)
    assert half is None


def test_paired_differences_and_their_test() -> None:
    rng = np.random.default_rng(0)
    ours = rng.normal(size=8)
    theirs = ours + 0.3 + 0.1 * rng.normal(size=8)
    found = paired(ours, theirs)
    assert (found.below, found.above) == (8, 0)
    assert found.mean.estimate == pytest.approx(float(np.mean(ours - theirs)))
    assert found.p_value == 2 / 2**8  # only all signs flipped is as far out
    reference = stats.permutation_test(
        (ours, theirs), lambda a, b: np.mean(a - b), permutation_type="samples"
    )
    assert found.p_value == pytest.approx(reference.pvalue)


def test_sign_flips_hand_over_to_students_t() -> None:
    differences = np.random.default_rng(1).normal(0.2, 1.0, 40)
    assert sign_flip_test(differences) == pytest.approx(stats.ttest_1samp(differences, 0.0).pvalue)
    assert sign_flip_test(np.zeros(5)) == 1.0
    assert sign_flip_test(np.zeros(40)) == 1.0


def test_bands_are_pointwise_t_intervals() -> None:
    curves = np.random.default_rng(2).normal(size=(6, 3))
    mean, half = bands(curves)
    assert half is not None
    for j in range(3):
        interval = mean_interval(curves[:, j])
        assert mean[j] + half[j] == pytest.approx(interval.high)


def test_ratio_of_means_with_its_interval() -> None:
    other = 2.0 * VALUES[::-1] + 1.0
    found = ratio_interval(VALUES, other)
    assert found.estimate == pytest.approx(VALUES.mean() / other.mean())
    assert found.low * found.high == pytest.approx(found.estimate**2)
    assert ratio_interval(3.0 * VALUES, VALUES).low == pytest.approx(3.0)  # paired: nothing is left to chance
    assert ratio_interval([2.0], [1.0]).low is None
    for this, that, words in (([1.0], [1.0, 2.0], "must have 1"), ([1.0, -1.0], [1.0, 2.0], "above 0")):
        with pytest.raises(ValueError, match=words):
            ratio_interval(this, that)


@pytest.mark.parametrize("correlated", [False, True])
def test_ratio_interval_covers(correlated: bool) -> None:
    """2000 times 64 lognormal pairs with ratio 1.3: coverage .95 within 5 s.e. and 1 %."""
    rng, hits, runs = np.random.default_rng(4), 0, 2000
    for _ in range(runs):
        shared = rng.standard_normal(64)
        one, two = (0.5 * (shared if correlated else rng.standard_normal(64)) for _ in range(2))
        found = ratio_interval(
            1.3 * np.exp(one + 0.2 * rng.standard_normal(64)), np.exp(two + 0.2 * rng.standard_normal(64))
        )
        hits += found.low <= 1.3 <= found.high
    assert abs(hits / runs - 0.95) < 5 * math.sqrt(0.95 * 0.05 / runs) + 0.01


def test_bad_values_are_refused() -> None:
    for bad in ([], [1.0, math.nan], [[1.0]]):
        with pytest.raises(ValueError, match="values"):
            mean_interval(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level = 1.5"):
        mean_interval([1.0, 2.0], level=1.5)
    with pytest.raises(ValueError, match="must have 2"):
        paired(np.ones(2), np.ones(3))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (66247.3, "66,247"),
        (1.5, "1.500"),
        (0.0437890, "0.04379"),
        (0.0, "0"),
        (-12.34, "-12.34"),
        (math.nan, "—"),
    ],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number(value) == text


def test_the_test_is_named_as_it_was_made() -> None:
    assert name_of_test(16) == "sign flips"
    assert name_of_test(17) == "Student's t"
