"""Exact samplers: the law, the tail, ties, and nothing else than bytes."""

import subprocess
import sys
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from rounding import stochastic_round
from scipy.stats import chi2, chi2_contingency

from discreet.core.noise import discrete_samplers as exact
from discreet.core.noise import discrete_samplers_kernels as exact_kernels
from discreet.core.noise.discrete_samplers import discrete_gaussian, discrete_laplace

ALARM = 1e-7  # false-alarm rate of each chi-square test here
DRAWS = 400_000


def generator_bytes(seed):
    """A repeatable source, for tests only."""
    return np.random.default_rng(seed).bytes


def scripted(script):
    """A source that hands out ``script``, then bytes 0x55; a second element counts what was asked."""
    left = bytearray(script)

    def source(n):
        taken = bytes(left[:n])
        del left[:n]
        return taken + b"\x55" * (n - len(taken))

    return source


def chi_square(draws, mass_of):
    """p-value of draws against a symmetric law on the integers; cells of small expectation are pooled."""
    reach = 1
    total = mass_of(np.arange(0, 200_000)).sum() * 2 - mass_of(np.zeros(1))[0]
    while mass_of(np.array([reach]))[0] / total * draws.size > 10:
        reach += 1
    x = np.arange(-reach, reach + 1)
    expected = mass_of(np.abs(x)) / total * draws.size
    seen = (
        np.array([(draws == k).sum() for k in x])
        if reach < 40
        else np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)[1:-1]
    )
    rest = draws.size - expected.sum()
    expected, seen = np.append(expected, rest), np.append(seen, draws.size - seen.sum())
    statistic = ((seen - expected) ** 2 / expected).sum()
    return chi2.sf(statistic, expected.size - 1)


@pytest.mark.parametrize("scale", [0.3, 1.0, 46.0, 460.0, Fraction(7, 3)])
def test_discrete_laplace_has_its_law(scale):
    draws = discrete_laplace(scale, DRAWS, generator_bytes(1))
    assert draws.dtype == np.int64
    assert chi_square(draws, lambda x: np.exp(-x / float(scale))) > ALARM


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.5, 28.0, Fraction(200, 3)])
def test_discrete_gaussian_has_its_law(sigma):
    draws = discrete_gaussian(sigma, DRAWS, generator_bytes(2))
    assert chi_square(draws, lambda x: np.exp(-0.5 * (x / float(sigma)) ** 2)) > ALARM


@pytest.mark.parametrize("bits", [1, 3, 6, 9])
@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_low_bits_leave_the_law_as_it_is(sampler, bits, monkeypatch):
    """More low bits than are ever used at this scale: rejections are frequent, the law is the same."""
    monkeypatch.setattr(exact, "_low_bits", lambda scale: bits)
    draws = sampler(28.0, DRAWS, generator_bytes(20 + bits))
    power = 1 if sampler is discrete_laplace else 2
    assert chi_square(draws, lambda x: np.exp(-((x / 28.0) ** power) / power)) > ALARM


@pytest.mark.parametrize("scale", [2.0**11 - 1, 2.0**11, 2.0**20, 2.0**40])
def test_low_bits_stay_far_below_the_scale(scale):
    bits = exact._low_bits(Fraction(scale))
    assert bits == 0 or (bits >= 8 and 2**bits <= scale / 8 < 2 ** (bits + 1))
    assert bits <= 37


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("scale", [50_000.0, 2.0**26 + 0.3])
def test_large_scales_have_the_continuous_law(sampler, scale):
    """At these scales the integers are a continuum: Kolmogorov-Smirnov; and low bits are fair."""
    from scipy import stats

    draws = sampler(scale, DRAWS, generator_bytes(30))
    law = stats.laplace if sampler is discrete_laplace else stats.norm
    assert stats.kstest(draws / scale, law().cdf).pvalue > ALARM
    for bit in range(8):
        ones = ((np.abs(draws) >> bit) & 1).mean()
        assert abs(ones - 0.5) < 5.5 * 0.5 / np.sqrt(draws.size)


@pytest.mark.parametrize("side", [-1, 0, 1])
@pytest.mark.parametrize("further", [-1, 1])
@pytest.mark.parametrize("gaussian", [False, True])
def test_forced_ties_of_the_acceptance_of_low_bits(side, further, gaussian, monkeypatch):
    """64 bits next to the acceptance probability of |x| = 2^3 + 5, r = 5; on it, 64 more decide."""
    monkeypatch.setattr(exact, "_low_bits", lambda scale: 3)
    t = Fraction(20)
    sigma = Fraction(79, 4)  # t = 20
    exponent = Fraction(5, 20) + ((13 - sigma**2 / t) ** 2 / (2 * sigma**2) if gaussian else 0)
    p = exponential(exponent)
    digits = b"\x00\xff\xff\xff"  # 2^B >= 4 * 20/8: B = 4; h = 1
    candidate = b"\x00" + b"\xff" + digits + b"\x05"
    after = wide(digits_of(p, 128) % 2**64 + further)
    again = b"\x00" + b"\xff" + digits + b"\x00" + b"\x00" * 8  # |x| = 8, accepted
    accept = side < 0 or (side == 0 and further < 0)
    script = candidate + wide(digits_of(p, 64) + side) + (after if side == 0 else b"") + again
    sampler, scale = (discrete_gaussian, sigma) if gaussian else (discrete_laplace, t)
    assert int(sampler(scale, 1, scripted(script))[0]) == (13 if accept else 8)


def test_tail_beyond_the_digits_is_reached_and_right():
    """b = 1 has two digits: values of 4 and 8 and more need the coin of 2^B, once and twice."""
    draws = np.abs(discrete_laplace(1.0, 1_000_000, generator_bytes(3)))
    q = np.exp(-1.0)
    for k in (4, 8, 12):
        p = 2 * q**k / (1 + q)
        assert abs(np.mean(draws >= k) - p) < 5 * np.sqrt(p / draws.size)
    assert np.abs(discrete_laplace(2.0**40, 2000, generator_bytes(4))).max() > 2**42


def test_neighbouring_draws_and_signs_are_independent():
    for draws in (
        discrete_laplace(5.0, DRAWS, generator_bytes(5)),
        discrete_gaussian(5.0, DRAWS, generator_bytes(6)),
    ):
        values = draws / draws.std()
        assert abs(values.mean()) < 5 / np.sqrt(DRAWS)
        for lag in (1, 2, 7):
            assert abs(np.mean(values[lag:] * values[:-lag])) < 5 / np.sqrt(DRAWS)
            assert abs(np.corrcoef(np.abs(values[lag:]), np.abs(values[:-lag]))[0, 1]) < 5 / np.sqrt(DRAWS)


@pytest.mark.parametrize(("scale", "variance"), [(1e6, 2e12), (2.0**40, 2.0**81)])
def test_large_scales(scale, variance):
    draws = discrete_laplace(scale, 200_000, generator_bytes(7)).astype(float)
    assert draws.var() == pytest.approx(variance, rel=5 * np.sqrt(5 / 200_000))
    normal = discrete_gaussian(scale, 200_000, generator_bytes(8)).astype(float)
    assert normal.var() == pytest.approx(scale**2, rel=5 * np.sqrt(2 / 200_000))


def test_tiny_scales_are_zero_in_effect():
    assert not discrete_laplace(0.01, 1000, generator_bytes(9)).any()
    assert not discrete_gaussian(0.01, 1000, generator_bytes(10)).any()
    assert not discrete_laplace(2.0**-20, 10, generator_bytes(11)).any()


# --------------------------------------------------------------------- thresholds and ties


def digits_of(p, bits):
    """floor(2^bits p) of a Decimal."""
    return int(p * (Decimal(2) ** bits))


def exponential(x):
    """e^-x with 120 digits."""
    getcontext().prec = 120
    return (-(Decimal(x.numerator) / Decimal(x.denominator))).exp()


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 46.0, Fraction(1, 7), 1e6, 2.0**40])
def test_thresholds_are_the_exact_binary_digits(scale):
    exponents, table = exact._coins(Fraction(scale))
    assert exponents[0] >= 4 or len(exponents) == 1
    for i, x in enumerate(exponents):
        small = exponential(x)
        p = small if i == 0 else small / (1 + small)
        assert int(table[i]) == digits_of(p, 64)
        if x < 200:
            assert exact._prefix(x, i > 0, 256) == digits_of(p, 256)


def test_interval_of_the_exponential_holds():
    getcontext().prec = 120
    for x in (
        Fraction(0),
        Fraction(1, 10**9),
        Fraction(1, 3),
        Fraction(1),
        Fraction(355, 113),
        Fraction(10**6, 7),
    ):
        low, high = exact.exp_minus(x, 200)
        true = exponential(x) * Decimal(2) ** 200
        assert low <= true <= high
        assert high - low <= 4


def wide(value, size=8):
    return int(value).to_bytes(size, "big")


@pytest.mark.parametrize("phase", [0, 1, 2])
@pytest.mark.parametrize("ties", [1, 2, 3])
@pytest.mark.parametrize("side", [-1, 1])
def test_forced_ties_are_decided_by_further_digits(phase, ties, side):
    """Bytes equal to the coin's own first 64, 128, 192 bits, then one digit below or above."""
    scale = 1.0  # coins: G >= 4, then the digits of 1 and of 2
    x = [Fraction(4), Fraction(1), Fraction(2)][phase]
    small = exponential(x)
    p = small if phase == 0 else small / (1 + small)
    bits = 64 * (ties + 1)
    coin = wide(digits_of(p, bits) + side, bits // 8)
    positive, no = b"\x00", b"\xff"
    script = positive + no * phase + coin + no * 8
    value = int(discrete_laplace(scale, 1, scripted(script))[0])
    assert value == ([4, 1, 2][phase] if side < 0 else 0)


@pytest.mark.parametrize("side", [-1, 0, 1])
@pytest.mark.parametrize("further", [-1, 1])
def test_forced_ties_of_the_gaussian_acceptance(side, further):
    """64 bits next to the acceptance probability, where floats cannot decide; on it, 64 more decide."""
    sigma = Fraction(5, 2)  # t = 3, so 2^4 >= 12: coins G >= 16, then four digits
    value = 2
    p = exponential((value - sigma**2 / 3) ** 2 / (2 * sigma**2))
    candidate = b"\x00" + b"\xff" + b"\xff\x00\xff\xff"
    after = wide(digits_of(p, 128) % 2**64 + further)
    again = b"\x00" + b"\xff" + b"\x00\xff\xff\xff" + b"\x00" * 8  # value 1, accepted
    accept = side < 0 or (side == 0 and further < 0)
    script = candidate + wide(digits_of(p, 64) + side) + (after if side == 0 else b"") + again
    assert int(discrete_gaussian(sigma, 1, scripted(script))[0]) == (2 if accept else 1)


def test_certain_acceptance_needs_no_digits():
    """sigma^2 / t an integer that is drawn: p = 1, which no binary expansion below 1 has."""
    assert exact._decide(Fraction(0), False, 2**64 - 1, 64, lambda: 0)


def test_filter_is_within_its_stated_error():
    from discreet.core.noise.discrete_samplers_kernels import MARGIN, exp_minus

    getcontext().prec = 50
    a = np.concatenate([np.linspace(0, 3, 2000), np.linspace(3, 45, 1000), [0.34657, 0.34658, 40.0, 41.0]])
    off = max(abs(Decimal(float(exp_minus(v))) - (-Decimal(float(v))).exp()) for v in a)
    assert off < Decimal(2) ** -50
    assert MARGIN >= 2.0**-46


def test_negative_zero_is_rejected():
    """Sign -, value 0, then sign +, value 0: one draw."""
    negative_zero, zero = b"\x01\xff\xff\xff", b"\x00\xff\xff\xff"
    assert discrete_laplace(1.0, 1, scripted(negative_zero + zero + b"\xff" * 8))[0] == 0
    minus_one = b"\x01\xff\x00\xff"
    assert discrete_laplace(1.0, 1, scripted(negative_zero + minus_one + b"\xff" * 8))[0] == -1


# ------------------------------------------------------------------------------- the source


@pytest.mark.parametrize("low", [None, 16, 39])
@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_draws_depend_on_the_bytes_only_not_on_how_they_are_cut(sampler, low, monkeypatch):
    scale = 9.0 if low is None else 2.0**low
    whole = sampler(scale, 3000, generator_bytes(12))
    stream = np.random.default_rng(12).bytes(1_000_000)
    at = 0

    def source(n):
        nonlocal at
        at += n
        return stream[at - n : at]

    assert np.array_equal(sampler(scale, 3000, source), sampler(scale, 3000, scripted(stream)))
    at = 0
    once = sampler(scale, 3000, source)
    monkeypatch.setattr(exact, "_BLOCK", 9)
    at = 0
    assert np.array_equal(sampler(scale, 3000, source), once)
    assert whole.shape == once.shape


def test_default_source_is_the_operating_system_and_nothing_repeats():
    first, second = discrete_laplace(1e6, (2, 500)), discrete_laplace(1e6, (2, 500))
    assert first.shape == (2, 500)
    assert (first != second).mean() > 0.99
    assert discrete_gaussian(1e6, 0).shape == (0,)


def test_a_source_that_returns_too_little_is_refused():
    with pytest.raises(ValueError, match=r"source\(.*\) returned 3 bytes"):
        discrete_laplace(1.0, 10, lambda n: b"abc")


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, 2.0**41, 2.0**-21, "1", True, None])
def test_bad_scales_are_refused(bad):
    with pytest.raises(ValueError, match="scale = "):
        discrete_laplace(bad, 1)
    with pytest.raises(ValueError, match="sigma = "):
        discrete_gaussian(bad, 1)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="size = -1"):
        discrete_laplace(1.0, -1)
    with pytest.raises(ValueError, match=r"size\[1\] = 2.5"):
        discrete_laplace(1.0, (2, 2.5))


def test_values_beyond_int64_are_refused_not_wrapped():
    """A source of zeros lets the coin of 2^B succeed for ever."""
    with pytest.raises(OverflowError, match="2\\^61"):
        discrete_laplace(2.0**40, 1, bytes)


def test_low_bits_are_fresh_bytes_in_their_order():
    """b = 2^40 has 37 low bits: five bytes, of which the first loses three bits."""
    source = scripted(b"\x00" + b"\xff" * 6 + b"\xe1\x02\x03\x04\x05" + b"\x00" * 13)
    assert discrete_laplace(2.0**40, 1, source)[0] == 0x0102030405


@pytest.mark.parametrize(("events", "fits"), [(2**19, True), (2**19 + 1, False)])
def test_values_up_to_2_to_61_are_drawn(events, fits):
    """b = 2^40 has 37 low bits and 5 digits: each success of the coin of G >= 2^5 adds 2^42; e^-4 > 0/256."""
    source = scripted(b"\x00" + b"\x00" * events + b"\xff" * 6 + b"\x00" * 13)
    if fits:
        assert discrete_laplace(2.0**40, 1, source)[0] == 2**61
    else:
        with pytest.raises(OverflowError, match="2\\^61"):
            discrete_laplace(2.0**40, 1, source)


@pytest.mark.parametrize("scale", [0.3, 1.0, 1.001, 7.0, 46.0, Fraction(1, 4), Fraction(257, 4), 2.0**11])
def test_there_are_as_few_digits_as_the_proof_takes(scale):
    """The least B with 2^B >= 4 b, and nobody writes to thresholds that later draws share."""
    exponents, table = exact._coins(Fraction(scale))
    digits = len(exponents) - 1
    assert table.shape == (digits + 1,)
    assert 2**digits >= 4 * Fraction(scale)
    assert digits == 0 or 2 ** (digits - 1) < 4 * Fraction(scale)
    assert exponents == (2**digits / Fraction(scale), *(2**i / Fraction(scale) for i in range(digits)))
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0


def test_compiled_code_is_loaded_only_when_a_number_is_drawn():
    code = (
        "import sys; from discreet.core.noise import discrete_samplers as exact; "
        "exact.exp_minus(exact.Fraction(1, 3), 64); "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------- rounding


def test_stochastic_rounding_is_exactly_unbiased():
    """x = (k + 3/8)/1024 needs three bits: of the 256 values of a byte, 96 round up."""
    x = (700 + 3 / 8) / 1024
    for at in (x, [x]):  # by whole fractions, and compiled
        up = [int(np.sum(stochastic_round(at, 1024, scripted(bytes([byte]))))) for byte in range(256)]
        assert sorted(set(up)) == [700, 701]
        assert sum(value - 700 for value in up) == 96


@pytest.mark.parametrize("fraction", [1, 96, 255])
def test_stochastic_rounding_decides_ties_by_further_digits(fraction):
    """A byte below the first digit rounds up, one above it down; one that is equal leaves it to the rest."""
    for rest, further in ((0, None), (7, 6), (7, 7)):
        x = (700 + (fraction * 256 + rest) / 2**16) / 1024
        for byte in {0, fraction - 1, fraction, fraction + 1, 255} - {256}:
            script = bytes([byte] if further is None else [byte, further])
            below = byte < fraction or (byte == fraction and further is not None and further < rest)
            compiled, plain = (stochastic_round(at, 1024, scripted(script)) for at in ([x], x))
            assert compiled == [plain] == [700 + below]


def test_rounding_ends_with_its_values():
    """What lies behind them in memory is neither read nor written."""
    behind, state = np.array([0.5, 7.0]), np.zeros(exact_kernels.STATE_WORDS, np.int64)
    assert exact_kernels.round_draws(np.zeros(8, np.uint8), 4.0, state, behind[:1]) == exact_kernels.DONE
    assert state[exact_kernels.INDEX] == 1
    assert behind.tolist() == [0.5, 7.0]


def test_stochastic_rounding_of_grid_points_and_arrays():
    refuse = pytest.fail
    assert stochastic_round(0.0, source=refuse) == 0
    assert stochastic_round(1.0, source=refuse) == 1024
    assert stochastic_round(0.5, source=refuse) == 512
    assert stochastic_round(5e-324, source=generator_bytes(0)) == 0
    x = np.full((3, 4000), 0.1)
    rounded = stochastic_round(x, 4, generator_bytes(13))
    assert rounded.shape == x.shape
    assert rounded.dtype == np.int64
    assert abs(rounded.mean() / 4 - 0.1) < 5 * np.sqrt(0.4 * 0.6 / 12_000) / 4
    for bad in (-1e-9, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"x holds .*\[0, 1\]"):
            stochastic_round([0.5, bad])
    with pytest.raises(ValueError, match="grid = 0"):
        stochastic_round(0.5, 0)


# -------------------------------------------------------------------------------- OpenDP


def homogeneity(ours, theirs, width):
    """p-value of two samples coming from one law, in cells of ``width``.

    The statistic adds D^2 / m over k cells; given its sum m, the difference D of a cell is sub-Gaussian with
    variance m at most. If cells were independent, t would be passed with probability e^{(k - t) / 2}
    (t / k)^{k / 2} at most, however small the sums are.
    """
    edges = np.arange(-12, 14) * width - width / 2
    edges[0], edges[-1] = -np.inf, np.inf
    table = np.array([np.histogram(sample, edges)[0] for sample in (ours, theirs)])
    return chi2_contingency(table[:, table.sum(axis=0) > 10]).pvalue


@pytest.mark.parametrize("scale", [0.7, 46.0])
def test_same_law_as_opendp(scale):
    """opendp's noise cannot be fixed: a false alarm has 1e-8 by the bound above, from 10 cells on."""
    alarm = 1e-10
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    n = 40_000
    domain = dp.vector_domain(dp.atom_domain(T="i64"))  # T=int would be 32 bits
    laplace = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)
    gaussian = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
    width = max(1, round(scale / 2))
    assert (
        homogeneity(discrete_laplace(scale, n, generator_bytes(14)), np.array(laplace([0] * n)), width)
        > alarm
    )
    assert (
        homogeneity(discrete_gaussian(scale, n, generator_bytes(15)), np.array(gaussian([0] * n)), width)
        > alarm
    )
    assert laplace.map(d_in=1) == pytest.approx(1 / scale)
    assert gaussian.map(d_in=1.0) == pytest.approx(1 / (2 * scale**2))
