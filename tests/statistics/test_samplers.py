"""Exact noise and binomials against their exact laws, at 1e7 and 2e7 draws a case, from fixed sources.

False alarms: each test divides 1e-6 among its checks (Bonferroni). The last check of each table says what
so many draws can see: a scale wrong by 1 % (a success probability wrong by 0.1 %) is rejected outright.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.core.noise.discrete_samplers import discrete_gaussian, discrete_laplace
from discreet.utils import random_streams_kernels as streams

ALARM = 1e-6
REJECTED = 1e-9
DRAWS = 10**7
CHUNK = 10**6

SCALES = (0.3, 1.0, Fraction(7, 3), 46.0, 460.0)
SIGMAS = (0.5, 1.0, 2.5, 28.0, Fraction(200, 3))
BINOMIALS = ((9, 0.4), (100, 0.05), (100, 0.35), (1000, 0.65), (1_000_000, 0.4))


def masses(weight, reach):
    """P(0), P(1), ..., P(reach - 1), P(abs(x) >= reach) / 2 of a symmetric law on the integers."""
    w = weight(np.arange(reach + 60_000, dtype=float))
    w /= w[0] + 2 * w[1:].sum()
    return np.append(w[:reach], w[reach:].sum())


def counts_of(sampler, scale, seed, reach):
    """Counts of -reach .. reach (ends: and beyond), the sum of neighbours' products, and the extremes."""
    source = np.random.default_rng(seed).bytes
    seen, pairs, largest = np.zeros(2 * reach + 1, np.int64), 0.0, 0
    for _ in range(DRAWS // CHUNK):
        draws = sampler(scale, CHUNK, source)
        largest = max(largest, int(np.abs(draws).max()))
        seen += np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
        values = draws.astype(float)
        pairs += float(values[1:] @ values[:-1])
    return seen, pairs, largest


def p_value(seen, expected):
    return stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), seen.size - 1)


def check_law(sampler, scale, weight_of, variance, seed, checks):
    """chi-square of every value, an exact test of each far tail, no memory, and power."""

    def two_sided(size):
        half = masses(weight_of(size), reach)
        return np.concatenate([half[:0:-1], half]) * DRAWS

    reach = 1
    half = masses(weight_of(float(scale)), 20_000)
    while half[reach] * DRAWS > 50 and reach < 19_999:
        reach += 1
    seen, pairs, largest = counts_of(sampler, scale, seed, reach)
    expected = two_sided(float(scale))
    assert abs(expected.sum() / DRAWS - 1) < 1e-9
    assert p_value(seen, expected) > ALARM / checks
    for tail, mean in ((seen[0], expected[0]), (seen[-1], expected[-1])):
        assert min(
            stats.binom.cdf(tail, DRAWS, mean / DRAWS), stats.binom.sf(tail - 1, DRAWS, mean / DRAWS)
        ) > (ALARM / checks / 2)
    beyond = 2 * np.cumsum(half[:-1][::-1])[::-1] * DRAWS  # expected number of abs(x) >= k
    assert largest < int(np.argmax(beyond < ALARM / checks)) or beyond[-1] > ALARM / checks
    assert largest >= int(np.argmax(beyond < -math.log(ALARM / checks))) - 1
    normal = pairs / (variance * math.sqrt(DRAWS - DRAWS // CHUNK))
    assert abs(normal) < stats.norm.isf(ALARM / checks / 2)
    assert p_value(seen, two_sided(1.01 * float(scale))) < REJECTED


@pytest.mark.statistics
def test_discrete_laplace_at_ten_million_draws():
    for seed, scale in enumerate(SCALES):
        q = math.exp(-1 / float(scale))
        variance = 2 * q / (1 - q) ** 2
        check_law(
            discrete_laplace, scale, lambda b: lambda x: np.exp(-x / b), variance, seed, 6 * len(SCALES)
        )


@pytest.mark.statistics
def test_discrete_gaussian_at_ten_million_draws():
    for seed, sigma in enumerate(SIGMAS):
        half = masses(lambda x, s=float(sigma): np.exp(-0.5 * (x / s) ** 2), 2000)
        variance = 2 * float((np.arange(2000.0) ** 2 * half[:-1]).sum())
        check_law(
            discrete_gaussian,
            sigma,
            lambda s: lambda x: np.exp(-0.5 * (x / s) ** 2),
            variance,
            100 + seed,
            6 * len(SIGMAS),
        )


@pytest.mark.statistics
def test_binomial_sampler_at_twenty_million_draws():
    draws, checks = 2 * 10**7, 3 * len(BINOMIALS)
    for n, p in BINOMIALS:
        low, high = (int(v) for v in stats.binom.ppf([1e-14, 1 - 1e-14], n, p))
        seen = np.zeros(high - low + 1, np.int64)
        for chunk in range(20):
            state = streams.open_at(streams.run_key(7, n), streams.ROLE_AUDIT, chunk, int(1000 * p))
            out = streams.draw_binomials(state, n, p, draws // 20)
            assert out.min() >= 0
            assert out.max() <= n
            seen += np.bincount(np.clip(out, low, high) - low, minlength=seen.size)
        values = np.arange(low, high + 1)
        middle = stats.binom.cdf(values, n, p) < 0.5

        def cells(mass, seen=seen, middle=middle, common=None):
            """Values of expectation 50 and more one by one, the two tails as one cell each."""
            parts = [
                np.append(part[common], [part[~common & middle].sum(), part[~common & ~middle].sum()])
                for part in (seen, mass * draws)
            ]
            return [part[parts[1] > 0] for part in parts]

        mass = stats.binom.pmf(values, n, p)
        common = mass * draws >= 50
        got, expected = cells(mass, common=common)
        few = expected < 50
        for tail, mean in zip(got[few], expected[few], strict=True):
            assert min(stats.poisson.cdf(tail, mean), stats.poisson.sf(tail - 1, mean)) > ALARM / checks / 2
        assert p_value(got[~few], expected[~few] * got[~few].sum() / expected[~few].sum()) > ALARM / checks
        got, expected = cells(stats.binom.pmf(values, n, p * 1.001), common=common)
        assert p_value(got[~few], expected[~few] * got[~few].sum() / expected[~few].sum()) < REJECTED
