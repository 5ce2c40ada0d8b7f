"""Random streams for simulation that are addressed by keys.

Philox derives the start of a stream from its address, and xoshiro256++ generates the numbers in the stream.
Every draw of a simulation has an address (seed, run, role, i, j) and does not depend on earlier draws.
Therefore any number of threads or processes gives the same bits, in any order, and also after a resume. The
last bit of libm results differs between machines. Therefore the distributions do not call libm. They use only
basic arithmetic, sqrt and comparisons; this module has its own logarithm and inverse normal function.

Sources:

* Salmon et al. 2011 (Philox4x64-10), Blackman and Vigna 2021 (xoshiro256++);
* Wichura 1988 (AS 241), Hormann 1993 (BTRS), Marsaglia and Tsang 2000 (gamma);
* fdlibm (logarithm).

These streams are for simulation only. Noise for real users is drawn by
:mod:`discreet.core.noise.discrete_samplers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

# Roles: the second coordinate of an address. Never reuse a number.
ROLE_ENVIRONMENT = 0  # i = episode
ROLE_BATCH = 1  # i = first user of a sub-batch: outcomes of the environment for a whole batch.
ROLE_POLICY = 2  # Here i = episode: actions of stochastic policies.
ROLE_TIES = 3  # i = replan, j = sub-batch: tie-breaking.
ROLE_NOISE = 4  # Here i = end of a tree node, or user; j = 0, or 1 for the sum of a local sub-batch.
ROLE_AUDIT = 5
ROLE_BOOTSTRAP = 6
ROLE_MODEL = 7  # Random MDPs.
ROLE_SAMPLES = 8  # Here i = replan, j = sub-batch: sampled models. From j = 2^20: fits.
ROLE_EXPLORE = 9  # Here i = replan, j = explorer: sampled model of the explorer.

U64 = np.uint64
_M0 = U64(0xD2E7470EE14C6C93)
_M1 = U64(0xCA5A826395121157)
_W0 = U64(0x9E3779B97F4A7C15)
_W1 = U64(0xBB67AE8584CAA73B)
_ONE = U64(1)
_S11, _S12, _S17, _S23, _S41, _S45, _S19 = U64(11), U64(12), U64(17), U64(23), U64(41), U64(45), U64(19)
_2P53 = 1.0 / 9007199254740992.0
_2P52 = 1.0 / 4503599627370496.0


_MANTISSA = 0x000FFFFFFFFFFFFF
_UNIT_EXPONENT = 0x3FF0000000000000
_MAGIC = 0x4330000000000000  # bits of the float 2^52; bitwise "or" with an integer n < 2^52 gives the float 2^52 + n
_TWO_52 = 4503599627370496.0


@intrinsic
def _mul_high(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the high 64 bits of the 128-bit product of two uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _float_bits(typingctx: Any, x: Any) -> Any:
    """Return the 64 bits of a float64 as an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _bits_float(typingctx: Any, x: Any) -> Any:
    """Return the float64 with the bits of an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


# ------------------------------------------------------------------------------ streams


@inlined
def open_stream(key: NDArray[np.uint64], role: int, i: int, j: int, state: NDArray[np.uint64]) -> None:
    """Fill ``state`` (4 words) with the stream at address (role, i, j) under ``key`` (2 words)."""
    c0, c1, c2, c3 = U64(i), U64(j), U64(role), U64(0)
    k0, k1 = key[0], key[1]
    for _ in range(10):
        h0, l0 = _mul_high(_M0, c0), _M0 * c0
        h1, l1 = _mul_high(_M1, c2), _M1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0 = k0 + _W0
        k1 = k1 + _W1
    state[0], state[1], state[2], state[3] = c0, c1, c2, c3 | _ONE


@inlined
def next_word(state: NDArray[np.uint64]) -> Any:
    """Return the next 64 random bits of the stream (xoshiro256++)."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    total = s0 + s3
    result = ((total << _S23) | (total >> _S41)) + s0
    t = s1 << _S17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= t
    state[0], state[1], state[2], state[3] = s0, s1, s2, (s3 << _S45) | (s3 >> _S19)
    return result


@inlined
def uniform(state: NDArray[np.uint64]) -> float:
    """Return a uniform float64 in [0, 1), a multiple of 2^-53."""
    return np.float64(np.int64(next_word(state) >> _S11)) * _2P53


@inlined
def uniform_open(state: NDArray[np.uint64]) -> float:
    """Return a uniform float64 in (0, 1). It is never 0 or 1, and its distribution is symmetric about 1/2."""
    return (np.float64(np.int64(next_word(state) >> _S12)) + 0.5) * _2P52


@inlined
def below(state: NDArray[np.uint64], n: int) -> int:
    """Return a uniform integer in [0, n) for n < 2^31, by multiplication. The bias is below n * 2^-64."""
    return np.int64(_mul_high(next_word(state), U64(n)))


# ------------------------------------------------------------------------ distributions


@inlined
def log(x: float) -> float:
    """Return the natural logarithm of a positive normal float64, with an error of at most 1 ulp.

    The algorithm is that of fdlibm; libm is not called. The function has no branches and no conversions of
    integers, so the compiler uses vector registers for loops over it.
    """
    bits = _float_bits(x)
    mantissa = _bits_float((bits & _MANTISSA) | _UNIT_EXPONENT)
    k = _bits_float((bits >> 52) | _MAGIC) - (_TWO_52 + 1023.0)
    high = mantissa > 1.4142135623730951
    mantissa = mantissa * 0.5 if high else mantissa
    k = k + 1.0 if high else k
    f = mantissa - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    t2 = z * (
        6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    half = 0.5 * f * f
    return k * 6.93147180369123816490e-01 - (
        (half - (s * (half + t1 + t2) + k * 1.90821492927058770002e-10)) - f
    )


@inlined
def _laplace_of(word: Any, scale: float) -> float:
    magnitude = -log((np.float64(np.int64(word >> _S12)) + 0.5) * _2P52) * scale
    return magnitude if (word & _ONE) == U64(0) else -magnitude


@inlined
def laplace(state: NDArray[np.uint64], scale: float) -> float:
    """Return a centred Laplace variable of this scale, computed from one word. The lowest bit is the sign."""
    return _laplace_of(next_word(state), scale)


@inlined
def _normal_centre(q: float) -> float:
    """Return the normal quantile at q + 1/2 for abs(q) <= 0.425 (AS 241)."""
    r = 0.180625 - q * q
    top = (
        (((((((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r
        + 45921.953931549871457) * r + 13731.693765509461125) * r + 1971.5909503065514427) * r
        + 133.14166789178437745) * r + 3.387132872796366608)
    )  # fmt: skip
    bottom = (
        (((((((5226.495278852545925 * r + 28729.085735721942674) * r + 39307.89580009271061) * r
        + 21213.794301586595867) * r + 5394.1960214247511077) * r + 687.1870074920579083) * r
        + 42.313330701600911252) * r + 1.0)
    )  # fmt: skip
    return q * top / bottom


@inlined
def _tail_root(p: float) -> float:
    """Return sqrt(-log(min(p, 1 - p))) for p in (0, 1)."""
    return np.sqrt(-log(p if p - 0.5 < 0.0 else 1.0 - p))


@inlined
def _normal_near(r: float) -> float:
    """Return the absolute normal quantile for abs(p - 1/2) > 0.425 and r = :func:`_tail_root` <= 5 (AS 241)."""
    r -= 1.6
    top = (
        (((((((7.7454501427834140764e-4 * r + 0.0227238449892691845833) * r + 0.24178072517745061177) * r
        + 1.27045825245236838258) * r + 3.64784832476320460504) * r + 5.7694972214606914055) * r
        + 4.6303378461565452959) * r + 1.42343711074968357734)
    )  # fmt: skip
    bottom = (
        (((((((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r + 0.0151986665636164571966) * r
        + 0.14810397642748007459) * r + 0.68976733498510000455) * r + 1.6763848301838038494) * r
        + 2.05319162663775882187) * r + 1.0)
    )  # fmt: skip
    return top / bottom


@inlined
def _normal_far(r: float) -> float:
    """Return the absolute normal quantile for r = :func:`_tail_root` > 5 (AS 241)."""
    r -= 5.0
    top = (
        (((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 0.0012426609473880784386) * r
        + 0.026532189526576123093) * r + 0.29656057182850489123) * r + 1.7848265399172913358) * r
        + 5.4637849111641143699) * r + 6.6579046435011037772)
    )  # fmt: skip
    bottom = (
        (((((((2.04426310338993978564e-15 * r + 1.4215117583164458887e-7) * r + 1.8463183175100546818e-5) * r
        + 7.868691311456132591e-4) * r + 0.0148753612908506148525) * r + 0.13692988092273580531) * r
        + 0.59983220655588793769) * r + 1.0)
    )  # fmt: skip
    return top / bottom


@inlined
def inverse_normal(p: float) -> float:
    """Return the quantile of the standard normal distribution at p in (0, 1), by AS 241.

    The relative error is below 1.2e-15.
    """
    q = p - 0.5
    if abs(q) <= 0.425:
        return _normal_centre(q)
    r = _tail_root(p)
    value = _normal_near(r) if r <= 5.0 else _normal_far(r)
    return -value if q < 0.0 else value


@inlined
def normal(state: NDArray[np.uint64]) -> float:
    """Return a standard normal variable, computed from one word by inversion."""
    return inverse_normal(uniform_open(state))


@inlined
def gamma_integer(state: NDArray[np.uint64], n: int) -> float:
    """Return a Gamma(n, 1) variable for an integer n >= 1 (Marsaglia and Tsang 2000)."""
    d = np.float64(n) - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        x = normal(state)
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        u = uniform_open(state)
        if u < 1.0 - 0.0331 * x * x * x * x:
            return d * v
        if log(u) < 0.5 * x * x + d * (1.0 - v + log(v)):
            return d * v


@inlined
def laplace_sum(state: NDArray[np.uint64], n: int, scale: float) -> float:
    """Return one draw from the exact distribution of the sum of n independent Laplace variables."""
    if n == 0:
        return 0.0
    first = gamma_integer(state, n)
    return scale * (first - gamma_integer(state, n))


@inlined
def _stirling_tail(k: float) -> float:
    """Return log k! minus Stirling's main terms: k log k - k + log(2 pi k)/2 at k + 1, to 1e-12."""
    if k < 10.0:
        i = int(k)
        if i == 0:
            return 0.08106146679532726
        if i == 1:
            return 0.04134069595540929
        if i == 2:
            return 0.02767792568499834
        if i == 3:
            return 0.02079067210376509
        if i == 4:
            return 0.01664469118982119
        if i == 5:
            return 0.01387612882307075
        if i == 6:
            return 0.01189670994589177
        if i == 7:
            return 0.01041126526197209
        if i == 8:
            return 0.009255462182712733
        return 0.008330563433362871
    r = 1.0 / (k + 1.0)
    r2 = r * r
    return (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - r2 / 1680.0) * r2) * r2) * r


@inlined
def _binomial_half(state: NDArray[np.uint64], n: int, p: float) -> int:
    """Return a Binomial(n, p) draw for 0 < p <= 1/2."""
    if n <= 8:
        hits = 0
        for _ in range(n):
            if uniform(state) < p:
                hits += 1
        return hits
    mean = n * p
    q = 1.0 - p
    if mean < 10.0:
        start, base, left = 1.0, q, n
        while left > 0:
            if left & 1:
                start *= base
            base *= base
            left >>= 1
        odds = p / q
        while True:
            mass, u, x = start, uniform(state), 0
            while u > mass and x <= 110 and x <= n:
                u -= mass
                x += 1
                mass *= odds * (n - x + 1) / x
            if x <= 110 and x <= n:
                return x
    spread = np.sqrt(mean * q)
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = mean + 0.5
    alpha = (2.83 + 5.1 / b) * spread
    squeeze = 0.92 - 4.2 / b
    mode = np.floor((n + 1) * p)
    ratio = p / q
    while True:
        v = uniform_open(state)
        u = uniform_open(state) - 0.5
        us = 0.5 - abs(u)
        k = np.floor((2.0 * a / us + b) * u + c)
        if k < 0.0 or k > n:
            continue
        if us >= 0.07 and v <= squeeze:
            return np.int64(k)
        v = log(v * alpha / (a / (us * us) + b))
        bound = (
            (mode + 0.5) * log((mode + 1.0) / (ratio * (n - mode + 1.0)))
            + _stirling_tail(mode)
            + _stirling_tail(n - mode)
            + (n + 1.0) * log((n - mode + 1.0) / (n - k + 1.0))
            + (k + 0.5) * log(ratio * (n - k + 1.0) / (k + 1.0))
            - _stirling_tail(k)
            - _stirling_tail(n - k)
        )
        if v <= bound:
            return np.int64(k)


@inlined
def binomial(state: NDArray[np.uint64], n: int, p: float) -> int:
    """Return an exact Binomial(n, p) draw for 0 <= n <= 1e10 and 0 <= p <= 1."""
    if n <= 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return n
    if p > 0.5:
        return n - _binomial_half(state, n, 1.0 - p)
    return _binomial_half(state, n, p)


# ------------------------------------------------------------------------- whole arrays
# The functions below make two passes over each block. The first pass generates the words, in a chain of
# dependent steps. The second pass transforms the words. The transforms are independent of each other and have
# no branches or integer-to-float conversions, so the compiler uses vector registers. Every entry is equal to
# that of the scalar sampler, bit for bit.

_BLOCK = 256


@inlined
def _words(state: NDArray[np.uint64], words: NDArray[np.int64], count: int) -> None:
    """Write the next ``count`` words of the stream to ``words``. The state stays in processor registers."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    for i in range(count):
        total = s0 + s3
        words[i] = np.int64(((total << _S23) | (total >> _S41)) + s0)
        t = s1 << _S17
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= t
        s3 = (s3 << _S45) | (s3 >> _S19)
    state[0], state[1], state[2], state[3] = s0, s1, s2, s3


@inlined
def _open_uniform(word: int) -> float:
    """Return the value of :func:`uniform_open` for this word, which is (upper 52 bits + 1/2) / 2^52."""
    return (_bits_float(((word >> 12) & _MANTISSA) | _UNIT_EXPONENT) - 1.0) + 0.5 * _2P52


@inlined
def laplace_range(
    state: NDArray[np.uint64], scale: float, out: NDArray[np.float64], first: int, last: int
) -> None:
    """Set out[first:last] to independent Laplace variables, equal to successive calls of :func:`laplace`."""
    words = np.empty(_BLOCK, np.int64)
    for start in range(first, last, _BLOCK):
        count = min(_BLOCK, last - start)
        _words(state, words, count)
        for i in range(count):
            magnitude = -log(_open_uniform(words[i])) * scale
            out[start + i] = magnitude if words[i] & 1 == 0 else -magnitude


@inlined
def normal_range(
    state: NDArray[np.uint64], scale: float, out: NDArray[np.float64], first: int, last: int
) -> None:
    """Set out[first:last] to independent normal variables.

    They are equal to ``scale`` times the results of successive calls of :func:`normal`.
    """
    words, places = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    tails, roots, near = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(first, last, _BLOCK):
        count = min(_BLOCK, last - start)
        _words(state, words, count)
        for i in range(count):  # formula of the centre; entries in the tails are overwritten below
            out[start + i] = scale * _normal_centre(_open_uniform(words[i]) - 0.5)
        many = 0
        for i in range(count):  # collect the tails without a branch, which the processor would mispredict
            p = _open_uniform(words[i])
            tails[many], places[many] = p, start + i
            many += 1 if abs(p - 0.5) > 0.425 else 0
        for j in range(many):
            roots[j] = _tail_root(tails[j])
        for j in range(many):
            near[j] = _normal_near(roots[j])
        for j in range(many):
            value = near[j] if roots[j] <= 5.0 else _normal_far(roots[j])
            out[places[j]] = scale * (-value if tails[j] - 0.5 < 0.0 else value)


@kernel
def fill_laplace(state: NDArray[np.uint64], scale: float, out: NDArray[np.float64]) -> None:
    """Fill a flat array with independent Laplace variables of this scale."""
    laplace_range(state, scale, out, 0, out.shape[0])


@kernel
def fill_normal(state: NDArray[np.uint64], scale: float, out: NDArray[np.float64]) -> None:
    """Fill a flat array with independent centred normal variables of this standard deviation."""
    normal_range(state, scale, out, 0, out.shape[0])


# -------------------------------------------------------- entry points for Python code and tests


@kernel
def open_at(key: NDArray[np.uint64], role: int, i: int, j: int) -> NDArray[np.uint64]:
    """Return the stream at an address, as a new array of 4 words."""
    state = np.empty(4, np.uint64)
    open_stream(key, role, i, j, state)
    return state


@kernel
def draw_words(state: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """Return the next n words of the stream."""
    out = np.empty(n, np.uint64)
    for c in range(n):
        out[c] = next_word(state)
    return out


@kernel
def draw_uniforms(state: NDArray[np.uint64], n: int) -> NDArray[np.float64]:
    """Return the next n uniform variables in [0, 1)."""
    out = np.empty(n, np.float64)
    for c in range(n):
        out[c] = uniform(state)
    return out


@kernel
def draw_binomials(state: NDArray[np.uint64], n: int, p: float, draws: int) -> NDArray[np.int64]:
    """Return ``draws`` independent Binomial(n, p) variables."""
    out = np.empty(draws, np.int64)
    for c in range(draws):
        out[c] = binomial(state, n, p)
    return out


@kernel
def draw_laplace_sums(state: NDArray[np.uint64], n: int, scale: float, draws: int) -> NDArray[np.float64]:
    """Return ``draws`` independent sums of n independent Laplace variables each."""
    out = np.empty(draws, np.float64)
    for c in range(draws):
        out[c] = laplace_sum(state, n, scale)
    return out


@kernel
def scalar_draws(state: NDArray[np.uint64], scale: float, gaussian: bool, n: int) -> NDArray[np.float64]:
    """Return n draws of a scalar sampler, for tests. The array samplers must give the same bits."""
    out = np.empty(n, np.float64)
    for c in range(n):
        out[c] = scale * normal(state) if gaussian else laplace(state, scale)
    return out


@kernel
def logs(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return :func:`log` of every entry."""
    out = np.empty_like(x)
    for c in range(x.shape[0]):
        out[c] = log(x[c])
    return out


def run_key(seed: int, run: int = 0) -> NDArray[np.uint64]:
    """Return the 128-bit key of one run. All random streams of the run are derived from it."""
    return np.random.SeedSequence(seed, spawn_key=(run,)).generate_state(2, np.uint64)


def generator_at(key: NDArray[np.uint64], role: int, i: int = 0, j: int = 0) -> np.random.Generator:
    """Return a NumPy generator at an address. Its role is role + 2^32, so it differs from all kernel streams."""
    counter = np.array([0, i, j, role + 2**32], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
