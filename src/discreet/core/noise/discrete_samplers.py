r"""Exact discrete noise from random bytes, without floating-point error and without truncation.

:func:`discrete_laplace` draws P(x) proportional to e^{-|x|/b}. :func:`discrete_gaussian` draws P(x)
proportional to e^{-x^2/(2 sigma^2)}. Both draw integers, with rational b and sigma (a float is a rational
number). The source of bytes is a function ``source(n) -> n bytes``. The default is :func:`os.urandom`, which
is cryptographic and safe after a fork. No state is kept between calls. If the bytes are independent and
uniform, each draw is independent and has exactly this distribution. The running time depends on the values
drawn, and the samplers do not hide this.

Proof
-----
*Digits.* Let G >= 0 be geometric, P(G >= x) = e^{-x/b}. The mass (1 - e^{-1/b}) e^{-x/b} of G factors over
the binary digits of x = sum_i d_i 2^i into prod_i e^{-d_i 2^i / b} / (1 + e^{-2^i / b}). The digits are
therefore independent, and digit i is 1 with probability 1/(1 + e^{2^i / b}). The digits i < B of G given G <
2^B are also independent and have the same distribution.

*No truncation.* G is memoryless: given G >= 2^B, G - 2^B is distributed as G. The algorithm repeats a
Bernoulli trial with P = e^{-2^B / b}. The algorithm adds 2^B for each success, and the B digits after the
first failure. B can be any integer. The code uses the least B with 2^B >= 4b, so less than one trial in 54
succeeds. Values above 2^61 raise :class:`OverflowError` instead of overflowing silently. The probability of
such values is e^{-2^61 / b} <= e^{-2^21}, as b <= 2^40.

*Two sides.* The sign s is fair, and outcomes (s = -, G = 0) are rejected, so that zero is counted once. Then
P(x) is proportional to e^{-|x|/b} for every integer x.

*A bit of probability p from bytes.* In base 256, a uniform U in [0, 1) is an infinite sequence of independent
uniform bytes. The first byte in which U and p differ determines whether U < p. (The number p is irrational.
Therefore p has one expansion, and U differs from p with probability one.) Only the necessary bytes are drawn:
one byte suffices for 255 of 256 bits. The first 64 bits of p, floor(2^64 p), are computed in integers with an
error interval, which is refined until both ends agree (Ziv). The refinement ends because e^r is irrational
for every rational r other than 0 (Lambert). If all eight bytes agree (probability 2^-64 per bit) the
comparison continues in Python, with 64 more binary digits at a time.

*Low bits.* The digits far below the scale are nearly fair bits. Choose m of these with 2^m <= b/8, and write
G = 2^m h + r. Draw h from the geometric distribution of scale b/2^m, as above, and r uniform among 2^m
integers, and accept with probability e^{-r/b} >= e^{-1/8}. The accepted value has P(x) proportional to
e^{-2^m h/b} e^{-r/b} = e^{-x/b}. A Gaussian's acceptance test (below) includes this factor.

*Gaussian.* The method is algorithm 3 of Canonne, Kamath and Steinke 2020. With t = floor(sigma) + 1, draw x
from the discrete Laplace distribution of scale t and accept x with probability exp(-(|x| - sigma^2/t)^2 / (2
sigma^2)). Then P(x accepted) is proportional to exp(-|x|/t - x^2/(2 sigma^2) + |x|/t - const) = exp(-x^2/(2
sigma^2)) const'. With low bits r, the proposal has the factor e^{-(|x| - r)/t} instead of e^{-|x|/t}, and the
acceptance probability has the further factor e^{-r/t}. The test is again U < p. A float evaluation of p has
an error below 2^-49. The comparison with this float is conclusive if the known 8 or 64 bits of U differ from
it by at least 2^-45. Otherwise (probability 2^-44 for each draw) integer arithmetic compares the same U with
p. Error of the float: with d = |x|
- sigma^2/t and a = d^2/(2 sigma^2),
rounding changes a by at most (5a + sqrt(2a)) 2^-53, as sigma^2/t <= sigma. The term r/t <= 1/8 and the sum
add (a + 1/2) 2^-53. Therefore p = e^-a changes by at most 4 * 2^-53. The exponential itself uses only +, -,
*, / and is within 2^-50.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from numbers import Rational, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks

ByteSource = Callable[[int], bytes]

_LOW, _HIGH = Fraction(1, 2**20), Fraction(2**40)
_BLOCK = 1 << 20  # largest number of bytes in one request to the source
_WORD = 64


# ---------------------------------------------------------------------- exact thresholds


def exp_minus(x: Fraction, bits: int) -> tuple[int, int]:
    """Return integers (low, high) with low <= 2^bits e^-x <= high, for x >= 0. The two differ by a few
    units.
    """
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 2)  # x / 2^halvings < 1/2
    work = bits + halvings + 16
    numerator, denominator = x.numerator << work, x.denominator << halvings
    y_low = numerator // denominator
    y_high = y_low + 1
    # e^y = sum y^k / k! is rounded down for ``low`` and up for ``high``; the remainder is below its first
    # term
    low = term_low = high = term_high = one = 1 << work
    k = 0
    while term_high > 1:
        k += 1
        term_low = (term_low * y_low) // (k << work)
        term_high = -((-term_high * y_high) // (k << work))
        low += term_low
        high += term_high
    high += term_high
    low, high = (one << work) // high, -((-one << work) // low)
    for _ in range(halvings):  # e^-x = (e^-y)^(2^halvings); squaring at most doubles the error
        low, high = (low * low) >> work, -((-high * high) >> work)
    shift = work - bits
    return low >> shift, -(-high >> shift)


@lru_cache(maxsize=4096)
def _prefix(x: Fraction, logistic: bool, bits: int) -> int:
    """Return floor(2^bits p) for a rational x > 0.

    p is 1/(1 + e^x) if ``logistic`` is True, otherwise e^-x.
    """
    guard = 16
    while True:
        work = bits + guard
        low, high = exp_minus(x, work)
        if logistic:  # e^-x / (1 + e^-x) increases with e^-x
            low, high = (low << bits) // ((1 << work) + low), (high << bits) // ((1 << work) + high)
        else:
            low, high = low >> guard, high >> guard
        if low == high:
            return low
        guard *= 2


def _decide(x: Fraction, logistic: bool, drawn: int, bits: int, more: Callable[[], int]) -> bool:
    """Return True if a uniform U in [0, 1) is below p; see :func:`_prefix` for p.

    drawn : first ``bits`` bits of U, as an integer. more : function that returns 64 further bits of U.
    """
    if x == 0 and not logistic:
        return True  # p = 1
    while True:
        limit = _prefix(x, logistic, bits)
        if drawn != limit:
            return drawn < limit
        drawn = (drawn << _WORD) | more()
        bits += _WORD


# ---------------------------------------------------------------------- plans and bytes


class _Bytes:
    """Buffer of random bytes that are requested in blocks. Unused bytes are kept for the next call."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self.data = np.empty(0, np.uint8)
        self.position = 0

    def refill(self, wanted: int) -> None:
        """Extend the buffer by at least ``wanted`` bytes."""
        block = self.source(wanted)
        if len(block) != wanted:
            raise ValueError(
                f"source({wanted}) returned {len(block)} bytes: must return exactly as many as asked"
            )
        fresh = np.frombuffer(block, np.uint8)
        self.data = np.concatenate((self.data[self.position :], fresh))
        self.position = 0

    def take(self, count: int) -> int:
        """Return the next ``count`` bytes as one integer, with the most significant byte first."""
        if self.position + count > self.data.size:
            self.refill(max(count, 64))
        taken = self.data[self.position : self.position + count].tobytes()
        self.position += count
        return int.from_bytes(taken, "big")


@lru_cache(maxsize=256)
def _coins(scale: Fraction) -> tuple[tuple[Fraction, ...], NDArray[np.uint64]]:
    """Return the exponents and thresholds of the random bits of one geometric draw of scale b.

    The exponents are 2^B/b, 2^0/b, .., 2^(B-1)/b. The thresholds are floor(2^64 p) of the bits.
    """
    digits = max(0, math.ceil(4 * scale) - 1).bit_length()  # least B with 2^B >= 4 b
    exponents = (Fraction(2**digits) / scale, *(Fraction(2**i) / scale for i in range(digits)))
    table = np.array([_prefix(x, i > 0, _WORD) for i, x in enumerate(exponents)], np.uint64)
    table.flags.writeable = False
    return exponents, table


@lru_cache(maxsize=256)
def _acceptance(scale: Fraction, sigma: Fraction | None) -> tuple[Fraction, Fraction, float, float]:
    """Return sigma^2/t and 1/(2 sigma^2) for the acceptance test, as exact numbers and then as floats.

    All four values are 0 for Laplace noise.
    """
    if sigma is None:
        return Fraction(0), Fraction(0), 0.0, 0.0
    centre, half_precision = sigma * sigma / scale, 1 / (2 * sigma * sigma)
    return centre, half_precision, float(centre), float(half_precision)


def _low_bits(scale: Fraction) -> int:
    """Return the number m of low bits, the largest with 2^m <= scale / 8.

    If this number is below 8, the result is 0, because fewer than 8 low bits would save no time.
    """
    bits = math.floor(scale).bit_length() - 4
    return bits if bits >= 8 else 0


def _draw(
    scale: Fraction, sigma: Fraction | None, size: int | tuple[int, ...], source: ByteSource
) -> NDArray[np.int64]:
    from discreet.core.noise import discrete_samplers_kernels as kernels

    out = np.empty(size, np.int64)
    flat = out.reshape(-1)
    low_bits = _low_bits(scale)
    exponents, thresholds = _coins(scale / 2**low_bits)
    centre, half_precision, float_centre, float_precision = _acceptance(scale, sigma)
    low_rate = float(1 / scale)
    state = np.zeros(kernels.STATE_WORDS, np.int64)
    state[kernels.PHASE], state[kernels.FORCED] = kernels.SIGN, -1
    stream = _Bytes(source)
    coins = 2 + thresholds.size + -(-low_bits // 8)  # approximate number of bytes per draw
    expected = 1.01 * coins if sigma is None and not low_bits else 1.5 * (1 + coins)
    while True:
        state[kernels.POSITION] = stream.position
        status = kernels.exact_draws(
            stream.data, thresholds, low_bits, sigma is not None, float_centre, float_precision, low_rate,
            state, flat,
        )  # fmt: skip
        stream.position = int(state[kernels.POSITION])
        if status == kernels.DONE:
            return out
        if status == kernels.NEED_BYTES:
            left = flat.size - int(state[kernels.INDEX])
            stream.refill(min(_BLOCK, int(left * expected) + 64))
        elif status == kernels.OVERFLOW:
            raise OverflowError("a noise value above 2^61 was drawn: no int64 holds sums of such values")
        elif status == kernels.TIE:
            # the last eight bytes equal the threshold
            phase = int(state[kernels.PHASE])
            decided = _decide(
                exponents[phase],
                phase != kernels.EVENT,
                int(thresholds[phase]),
                _WORD,
                lambda: stream.take(8),
            )
            state[kernels.FORCED] = int(decided)
        else:
            offset = int(state[kernels.VALUE]) - centre
            drawn = stream.take(8)
            exponent = offset * offset * half_precision
            if low_bits:
                exponent += int(state[kernels.LOW]) / scale
            state[kernels.FORCED] = int(_decide(exponent, False, drawn, _WORD, lambda: stream.take(8)))


# ---------------------------------------------------------------------- public functions


def _scale(name: str, value: Any) -> Fraction:
    """Return the exact rational value of a scale inside [2^-20, 2^40]."""
    finite = isinstance(value, Rational) or (isinstance(value, Real) and math.isfinite(float(value)))
    if isinstance(value, bool) or not finite:
        raise ValueError(f"{name} = {value!r}: must be a finite number in [2^-20, 2^40]")
    exact = Fraction(value) if isinstance(value, Rational) else Fraction(float(value))
    if not _LOW <= exact <= _HIGH:
        raise ValueError(f"{name} = {value!r}: must be a finite number in [2^-20, 2^40]")
    return exact


def _size(size: int | tuple[int, ...]) -> int | tuple[int, ...]:
    if isinstance(size, tuple):
        return tuple(checks.integer(f"size[{i}]", n, 0) for i, n in enumerate(size))
    return checks.integer("size", size, 0)


def discrete_laplace(
    scale: float | Fraction, size: int | tuple[int, ...], source: ByteSource = os.urandom
) -> NDArray[np.int64]:
    """Draw independent integers with P(x) exactly proportional to exp(-|x|/scale).

    Parameters
    ----------
    scale : float or Fraction
        b in [2^-20, 2^40]; a float is used as an exact rational number.
    size : int or tuple of int
        Shape of the result.
    source : callable
        ``source(n)`` returns n random bytes.

    Returns
    -------
    int64 array of shape ``size``

    Raises
    ------
    ValueError
        If scale or size is out of range, or the source returns a wrong number of bytes.

    Notes
    -----
    If this noise is added to an integer sum of l1 sensitivity D, the release is epsilon-DP with exactly
    epsilon = D / b.
    """
    return _draw(_scale("scale", scale), None, _size(size), source)


def discrete_gaussian(
    sigma: float | Fraction, size: int | tuple[int, ...], source: ByteSource = os.urandom
) -> NDArray[np.int64]:
    """Draw independent integers with P(x) exactly proportional to exp(-x^2/(2 sigma^2)).

    Parameters and errors are those of :func:`discrete_laplace`, with sigma in [2^-20, 2^40). If this noise is
    added to an integer sum of l2 sensitivity D, the release is rho-zCDP with rho = D^2 / (2 sigma^2)
    (Canonne, Kamath and Steinke 2020).
    """
    exact = _scale("sigma", sigma)
    return _draw(Fraction(math.floor(exact) + 1), exact, _size(size), source)


def round_to_grid(x: ArrayLike, grid: int, source: ByteSource = os.urandom) -> NDArray[np.float64]:
    """Round x in [0, 1] randomly to an adjacent multiple of 1 / grid, so that the mean is exactly x.

    Parameters
    ----------
    x : array of floats in [0, 1]
    grid : int
        A power of two. Sums of rounded values are integers in units of 1 / grid.
    source : callable
        ``source(n)`` returns n random bytes; about one byte is used for each value that is off the grid.

    Notes
    -----
    x times grid is a dyadic rational, so finitely many random bits give the exact probability. The variance
    of one summand increases by at most 1/(4 grid^2). Rounded values remain in [0, 1], so the
    sensitivity of a summand does not change.
    """
    from discreet.core.noise import discrete_samplers_kernels as kernels

    grid = checks.integer("grid", grid, 1, 2**40)
    if grid & (grid - 1):
        raise ValueError(f"grid = {grid}: must be a power of two")
    out = np.array(x, np.float64, order="C")
    flat = out.reshape(-1)
    stream = _Bytes(source)
    state = np.zeros(kernels.STATE_WORDS, np.int64)
    while True:
        state[kernels.POSITION] = stream.position
        status = kernels.round_draws(stream.data, float(grid), state, flat)
        stream.position = int(state[kernels.POSITION])
        if status == kernels.DONE:
            return out
        left = flat.size - int(state[kernels.INDEX])
        if status == kernels.OUTSIDE:
            raise ValueError(f"x holds {float(flat[-left])!r}: must be in [0, 1]")
        stream.refill(min(_BLOCK, int(1.01 * left) + 160))  # the digits of a float end within 136 bytes
