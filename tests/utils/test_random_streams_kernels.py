"""Addressed streams: golden words, NumPy's Philox, and the laws of every sampler."""

import math

import interpreted_kernels as interpreted
import numpy as np
import pytest
from kept_kernels import kept
from numba import njit
from scipy import stats

from discreet.utils import random_streams_kernels as streams

FALSE_ALARM = 1e-7  # of each statistical check below; seeds are fixed


def _state(i: int = 0, j: int = 0) -> np.ndarray:
    return streams.open_at(streams.run_key(20261120, 3), streams.ROLE_AUDIT, i, j)


def test_stream_opens_at_numpys_philox_words() -> None:
    key = streams.run_key(3, 1)
    for role, i, j in [(4, 7, 2), (0, 2**40, 0), (3, 0, 5)]:
        counter = (i + (j << 64) + (role << 128) - 1) % (1 << 256)  # NumPy steps before it draws
        words = np.array([(counter >> (64 * b)) & (2**64 - 1) for b in range(4)], dtype=np.uint64)
        expected = np.random.Philox(key=key, counter=words).random_raw(4)
        expected[3] |= np.uint64(1)
        assert (streams.open_at(key, role, i, j) == expected).all()


def test_golden_words_never_change() -> None:
    state = streams.open_at(np.array([1, 2], np.uint64), 3, 4, 5)
    words = streams.draw_words(state, 3)
    assert words.tolist() == [8908565852092771434, 4069674889343345254, 6088081842393664399]


def test_keys_of_runs_and_addresses_differ() -> None:
    firsts = {int(streams.draw_words(_state(i, j), 1)[0]) for i in range(50) for j in range(50)}
    assert len(firsts) == 2500


def test_logarithm_is_within_one_ulp_of_libm() -> None:
    x = np.random.default_rng(1).lognormal(0, 5, 200_000)
    assert np.max(np.abs(streams.logs(x) - np.log(x)) / np.spacing(np.abs(np.log(x)))) <= 1.0


def test_normal_quantile_matches_scipy() -> None:
    p = np.concatenate([np.geomspace(1e-15, 0.5, 400), 1 - np.geomspace(1e-12, 0.5, 400)])
    quantile = kept(streams.inverse_normal)
    ours = np.array([quantile(v) for v in p])
    np.testing.assert_allclose(ours, stats.norm.ppf(p), rtol=2e-14, atol=1e-15)


@pytest.mark.parametrize("gaussian", [False, True])
def test_whole_arrays_are_the_scalar_draws_bit_for_bit(gaussian: bool) -> None:
    for n in (1, 255, 256, 257, 100_000):
        out = np.empty(n)
        fill = streams.fill_normal if gaussian else streams.fill_laplace
        state, other = _state(5, n), _state(5, n)
        fill(state, 1.7, out)
        assert (out == streams.scalar_draws(other, 1.7, gaussian, n)).all()
        assert (state == other).all()


@pytest.mark.parametrize("law", ["laplace", "normal", "uniform"])
def test_continuous_laws(law: str) -> None:
    out = np.empty(400_000)
    if law == "laplace":
        streams.fill_laplace(_state(1), 3.0, out)
        cdf = stats.laplace(scale=3.0).cdf
    elif law == "normal":
        streams.fill_normal(_state(2), 3.0, out)
        cdf = stats.norm(scale=3.0).cdf
    else:
        out = streams.draw_uniforms(_state(3), out.size)
        cdf = stats.uniform.cdf
    assert stats.kstest(out, cdf).pvalue > FALSE_ALARM
    assert abs(np.corrcoef(out[:-1], out[1:])[0, 1]) < 6 / np.sqrt(out.size)


@pytest.mark.parametrize(
    ("n", "p"), [(5, 0.3), (9, 0.4), (100, 0.05), (100, 0.35), (1000, 0.65), (100_000, 0.4)]
)
def test_binomial_law(n: int, p: float) -> None:
    draws = streams.draw_binomials(_state(n, int(1000 * p)), n, p, 200_000)
    mean, sd = n * p, np.sqrt(n * p * (1 - p))
    edges = np.unique(np.round(mean + sd * np.linspace(-3, 3, 25)).clip(0, n))
    cdf = np.concatenate([[0.0], stats.binom.cdf(edges, n, p), [1.0]])
    expected = np.diff(cdf) * draws.size
    counts = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=edges.size + 1)
    keep = expected > 10
    observed = np.append(counts[keep], counts[~keep].sum())
    wanted = np.append(expected[keep], expected[~keep].sum())
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    assert stats.chisquare(observed, wanted).pvalue > FALSE_ALARM


@pytest.mark.parametrize("n", [10**9, 10**10])
def test_binomial_of_huge_counts(n: int) -> None:
    draws = streams.draw_binomials(_state(7), n, 0.35, 100_000).astype(float)
    z = (draws - 0.35 * n) / np.sqrt(n * 0.35 * 0.65)
    assert abs(z.mean()) < 6 / np.sqrt(z.size)
    assert abs(z.var() - 1) < 6 * np.sqrt(2 / z.size)


def test_binomial_edges() -> None:
    assert (streams.draw_binomials(_state(), 10, 0.0, 5) == 0).all()
    assert (streams.draw_binomials(_state(), 10, 1.0, 5) == 10).all()
    assert (streams.draw_binomials(_state(), 0, 0.5, 5) == 0).all()


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_laplace_sum_law(n: int) -> None:
    draws = streams.draw_laplace_sums(_state(n, 9), n, 2.0, 200_000)
    direct = np.random.default_rng(n).laplace(scale=2.0, size=(20_000, n)).sum(axis=1)
    assert stats.ks_2samp(draws, direct).pvalue > FALSE_ALARM
    assert abs(draws.var() / (8.0 * n) - 1) < 6 * np.sqrt(5.0 / draws.size)


def test_machine_instructions_are_those_of_their_descriptions() -> None:
    @njit
    def high(a: int, b: int) -> int:
        return streams._mul_high(a, b)

    @njit
    def bits(x: float) -> int:
        return streams._float_bits(x)

    @njit
    def real(x: int) -> float:
        return streams._bits_float(x)

    for a, b in ((2**64 - 1, 2**64 - 1), (2**63, 3), (0xD2E7470EE14C6C93, 0xCA5A826395121157), (1, 1)):
        wanted = interpreted.mul_high(np.uint64(a), np.uint64(b))
        assert high(np.uint64(a), np.uint64(b)) == wanted == (a * b) >> 64
    for x in (1.0, -0.1, 5e-324, 1e308, np.inf):
        assert bits(x) == interpreted.float_bits(x) == np.float64(x).view(np.int64)
        assert real(bits(x)) == interpreted.bits_float(bits(x)) == x


def test_integers_below_a_bound_are_the_high_part_of_a_product() -> None:
    below = kept(streams.below)
    state, other = _state(8), _state(8)
    drawn = [below(state, n) for n in (1, 6, 2**31 - 1)]
    words = streams.draw_words(other, 3).tolist()
    assert drawn == [(word * n) >> 64 for word, n in zip(words, (1, 6, 2**31 - 1), strict=True)]


@pytest.mark.parametrize(("n", "p"), [(9, 0.01), (9, 0.3), (10, 0.07), (11, 0.01)])
def test_a_binomial_variable_is_drawn_again_behind_the_rounded_mass(n: int, p: float) -> None:
    """The first uniform number is 1 - 2^-53, which is more than the sum of all rounded probabilities."""
    state = np.array([0, 1, 2, 2**64 - 1], np.uint64)
    assert streams.draw_uniforms(state.copy(), 1)[0] == 1.0 - 2.0**-53
    again = state.copy()
    streams.draw_words(again, 1)
    assert streams.draw_binomials(state, n, p, 1) == streams.draw_binomials(again, n, p, 1)


def test_numpy_generators_have_addresses_of_their_own() -> None:
    key = streams.run_key(5)
    first = streams.generator_at(key, streams.ROLE_BOOTSTRAP, 1, 2)
    counter = np.array([0, 1, 2, 6 + 2**32], np.uint64)
    again = np.random.Generator(np.random.Philox(key=key, counter=counter))
    assert (first.random(4) == again.random(4)).all()
    assert (streams.generator_at(key, 6).random(4) == streams.generator_at(key, 6, 0, 0).random(4)).all()
    assert (streams.generator_at(key, 6, 1).random(4) != streams.generator_at(key, 6, 0, 1).random(4)).all()


def test_the_noise_of_nobody_is_zero() -> None:
    state = _state(9)
    assert not streams.draw_laplace_sums(state, 0, 2.0, 3).any()
    assert (state == _state(9)).all()


def test_the_tail_of_stirlings_series_is_that_of_factorials() -> None:
    tail = kept(streams._stirling_tail)
    for k in (*range(30), 1000):
        main = (k + 0.5) * math.log(k + 1.0) - (k + 1.0) + 0.5 * math.log(2.0 * math.pi)
        assert tail(float(k)) == pytest.approx(math.lgamma(k + 1.0) - main, abs=2e-12)
