"""Skellam noise: certified tables, ties, and the law of draws from seeded and from secure words."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.core.rng import SecureRng, Seeded
from discreet.device import skellam_noise
from discreet.device.shuffle_encoder import SystemCoins
from discreet.mechanisms.seeded_rng import SeededRng

MEANS = [1, 3, 40, 5000]


class Scripted:
    """Coins that return the given words, and then zeros."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, size: int):
        return np.array([self.left.pop(0) if self.left else 0 for _ in range(size)], np.uint64)


@pytest.mark.parametrize("mean", MEANS)
def test_tables_are_the_distribution_function(mean):
    first, values = skellam_noise._table(mean, 64)
    expected = stats.poisson.cdf(np.arange(first, first + len(values)), mean)
    np.testing.assert_allclose([value / 2**64 for value in values], expected, atol=1e-14)
    assert values[-1] == 2**64 - 1
    assert list(values) == sorted(values)


def test_table_of_mean_one_to_the_last_bit():
    bits, term, total, floors = 128, Fraction(1), Fraction(0), []
    whole = sum(
        (Fraction(1, int(np.prod(np.arange(1, k + 1, dtype=object)))) for k in range(1, 60)), Fraction(1)
    )
    for k in range(36):
        total += term
        term /= k + 1
        floors.append(int(total / whole * 2**bits))
    first, values = skellam_noise._table(1, bits)
    assert first == 0
    assert list(values[:30]) == floors[:30]


@pytest.mark.parametrize("mean", [*MEANS, skellam_noise.LARGEST_MEAN])
def test_many_words_are_read_as_few(mean):
    """Many words are found by their leading bits, also beside boundaries of the table and of these bits."""
    _, values = skellam_noise._table(mean, 64)
    taken, starts = set(values), [i << 50 for i in range(1, 2**14, 37)]
    near = [value + one for value in (*values, *starts) for one in (-1, 1)]
    words = [word for word in near if 0 < word < 2**64 and word not in taken]
    many = skellam_noise.poisson(mean, len(words), Scripted(*words))
    parts = [words[i : i + 100] for i in range(0, len(words), 100)]
    few = [skellam_noise.poisson(mean, len(part), Scripted(*part)) for part in parts]
    assert len(words) > 600
    assert many.tolist() == np.concatenate(few).tolist()


def test_ties_are_resolved_by_more_bits():
    first, values = skellam_noise._table(7, 64)
    _, longer = skellam_noise._table(7, 128)
    for i in (3, 9):
        rest = longer[[value >> 64 for value in longer].index(values[i])] & (2**64 - 1)
        below = skellam_noise.poisson(7, 1, Scripted(values[i], rest - 1))[0]
        above = skellam_noise.poisson(7, 1, Scripted(values[i], rest + 1))[0]
        assert (below, above) == (first + i, first + i + 1)
    assert skellam_noise.poisson(7, 1, Scripted(2**64 - 1, 5, 1))[0] > first + 40  # far in the upper tail
    assert skellam_noise.poisson(100, 1, Scripted(0, 1, 7))[0] < 20  # far in the lower tail


def coins(source: str):
    return SeededRng(Seeded(5, 0).keys.noise, 0) if source == "seeded" else SecureRng()


@pytest.mark.statistics
@pytest.mark.parametrize("source", ["seeded", "secure"])
@pytest.mark.parametrize(("variance", "largest"), [(2, 2**17), (14, 2**17), (600, 2**17), (14, 3), (600, 7)])
def test_law_of_draws(source, variance, largest, monkeypatch):
    """Chi-square test at level 1e-6; the secure source is not seeded, so it can alarm by chance.

    With a small largest mean, several variables are added, and they are drawn in several calls.
    """
    monkeypatch.setattr(skellam_noise, "LARGEST_MEAN", largest)
    n = 40_000
    drawn = skellam_noise.skellam(variance, n, coins(source))
    values = np.arange(-200, 201)
    expected = n * stats.skellam.pmf(values, variance / 2, variance / 2)
    kept = expected > 10
    observed = np.array([(drawn == value).sum() for value in values[kept]])
    rest = np.array([n - observed.sum()]), np.array([n - expected[kept].sum()])
    if rest[1][0] > 10:
        observed, expected = np.append(observed, rest[0]), np.append(expected[kept], rest[1])
    else:
        expected = expected[kept] * observed.sum() / expected[kept].sum()
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, observed.size - 1) > 1e-6


def test_large_variances_add_several_draws():
    mean = 3 * skellam_noise.LARGEST_MEAN + 5
    drawn = skellam_noise.poisson(mean, 4000, SeededRng(Seeded(1, 0).keys.noise, 0))
    assert abs(drawn.mean() - mean) < 6 * np.sqrt(mean / 4000)
    assert abs(drawn.var() / mean - 1) < 6 * np.sqrt(2 / 4000)


def test_parts_are_drawn_in_their_order(monkeypatch):
    """The larger means first, cell by cell, as many at once as fit."""
    largest, calls = skellam_noise.LARGEST_MEAN, []

    def inverted(mean, size, source):
        calls.append((mean, size))
        return np.arange(size)

    monkeypatch.setattr(skellam_noise, "_inverted", inverted)
    found = skellam_noise.poisson(5 * largest - 2, 7000, None)
    assert calls == [(largest, 14000), (largest, 7000), (largest - 1, 14000)]
    assert found[:2].tolist() == [14000, 14005]
    assert skellam_noise.poisson(0, 3, None).tolist() == [0, 0, 0]


def test_variances_that_are_refused():
    for variance in (0, 3, -2, 2.0, True, 2**62 + 2):
        with pytest.raises(ValueError, match="variance = "):
            skellam_noise.skellam(variance, 1, SystemCoins())
