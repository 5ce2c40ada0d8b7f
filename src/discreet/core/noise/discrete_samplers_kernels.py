"""Compiled inner loop of the exact samplers; the proof is in :mod:`discreet.core.noise.discrete_samplers`.

The loop can be interrupted and resumed. It stops if random bytes run out, or if 64 bits do not decide a
comparison. Its complete state is then in ``state``. Python supplies more bytes, or decides the comparison in
unlimited precision, and calls the loop again. Floating point is used in one place only: the fast acceptance
test of the discrete Gaussian, whose error bound is far below the margin of the test.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

# indices of the words in ``state``
POSITION, INDEX, PHASE, VALUE, NEGATIVE, FORCED, LOW = 0, 1, 2, 3, 4, 5, 6
STATE_WORDS = 7
# reasons for which a loop returns
DONE, NEED_BYTES, TIE, NEAR, OVERFLOW, OUTSIDE = 0, 1, 2, 3, 4, 5
# phases of a draw: the sign, the event G >= 2^B, digit i (phase i + 1), the low bits, the acceptance test
SIGN, EVENT = -1, 0

LARGEST = 1 << 61
MARGIN = 2.0**-45

_U64 = np.uint64
_BYTE = np.uint64(255)
_LN2_HIGH = 6.93147180369123816490e-01  # 20 trailing zero bits: n * _LN2_HIGH is exact for n < 2^20
_LN2_LOW = 1.90821492927058770002e-10


@inlined
def exp_minus(a: float) -> float:
    """Return e^-a for a >= 0 with an absolute error of at most 2^-50, using only +, -, * and /.

    The result is 0 for a > 40.
    """
    if a > 40.0:
        return 0.0
    n = np.int64(a * 1.4426950408889634 + 0.5)
    r = n * _LN2_HIGH - a + n * _LN2_LOW  # r is in [-0.35, 0.35], and the first difference is exact
    # Horner's scheme for the sum of r^k/k! with k <= 13; the omitted terms are below 6e-18
    total = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0)
    total = 1.0 / 3628800.0 + r * (1.0 / 39916800.0 + r * total)
    total = 1.0 / 40320.0 + r * (1.0 / 362880.0 + r * total)
    total = 1.0 / 720.0 + r * (1.0 / 5040.0 + r * total)
    total = 1.0 / 24.0 + r * (1.0 / 120.0 + r * total)
    total = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * total)))
    return total / np.float64(np.int64(1) << n)


@kernel
def exact_draws(
    data: NDArray[np.uint8],
    thresholds: NDArray[np.uint64],
    low_bits: int,
    gaussian: bool,
    centre: float,
    half_precision: float,
    low_rate: float,
    state: NDArray[np.int64],
    out: NDArray[np.int64],
) -> int:
    """Continue to draw noise into ``out``, starting from ``state``. Return the reason for stopping.

    Parameters
    ----------
    data : random bytes. Those from index state[POSITION] on are not used yet.
    thresholds : (1 + B,) values floor(2^64 p) for the event G >= 2^B and for the digits 0..B-1.
    low_bits : number of uniform low bits r below the digits, 0 to 64.
    gaussian : True to draw discrete Gaussian noise. A proposal x is then accepted with probability
        exp(-half_precision (|x| - centre)^2 - low_rate r). If False, it is accepted with probability
        exp(-low_rate r).
    """
    available = data.shape[0]
    finish = thresholds.shape[0]
    position, index, phase = state[POSITION], state[INDEX], state[PHASE]
    value, negative, forced, low = state[VALUE], state[NEGATIVE], state[FORCED], state[LOW]
    accepting = finish + 1 if low_bits > 0 else finish
    largest = LARGEST >> low_bits
    status = DONE
    while index < out.shape[0]:
        if position + 8 > available:
            status = NEED_BYTES
            break
        if phase == SIGN:
            negative = np.int64(data[position]) & 1
            position += 1
            value = 0
            phase = EVENT
        elif phase < finish:
            threshold = thresholds[phase]
            if forced >= 0:
                success = forced
                forced = -1
            else:
                drawn = _U64(data[position])
                position += 1
                limit = threshold >> _U64(56)
                shift = _U64(56)
                while drawn == limit and shift > _U64(0):
                    shift -= _U64(8)
                    drawn = _U64(data[position])
                    position += 1
                    limit = (threshold >> shift) & _BYTE
                if drawn == limit:
                    status = TIE
                    break
                success = np.int64(drawn < limit)
            if phase == EVENT:
                value += success << (finish - 1)
                phase += 1 - success
                if value > largest:
                    status = OVERFLOW
                    break
            else:
                value += success << (phase - 1)
                phase += 1
        elif phase < accepting:
            low = 0
            for _ in range((low_bits + 7) // 8):
                low = (low << 8) | np.int64(data[position])
                position += 1
            low &= (1 << low_bits) - 1
            value = (value << low_bits) | low
            phase = accepting
        else:
            accepted = True
            if negative == 1 and value == 0:
                accepted = False  # zero is accepted with only one of the two signs
            elif gaussian or low_bits > 0:
                if forced >= 0:
                    accepted = forced == 1
                    forced = -1
                else:
                    offset = np.float64(value) - centre
                    chance = exp_minus(offset * offset * half_precision + low * low_rate)
                    u = np.float64(data[position])
                    if chance - MARGIN >= (u + 1.0) / 256.0:
                        position += 1
                    elif chance + MARGIN <= u / 256.0:
                        position += 1
                        accepted = False
                    else:
                        u = 0.0
                        for k in range(7, -1, -1):
                            u = (u + data[position + k]) / 256.0
                        if chance - MARGIN > u:
                            position += 8
                        elif chance + MARGIN < u:
                            position += 8
                            accepted = False
                        else:
                            status = NEAR
                            break
            if accepted:
                out[index] = -value if negative == 1 else value
                index += 1
            phase = SIGN
    state[POSITION], state[INDEX], state[PHASE] = position, index, phase
    state[VALUE], state[NEGATIVE], state[FORCED], state[LOW] = value, negative, forced, low
    return status


@kernel
def round_draws(
    data: NDArray[np.uint8], grid: float, state: NDArray[np.int64], values: NDArray[np.float64]
) -> int:
    """Continue to round ``values`` in [0, 1] at random to multiples of 1 / grid, in place.

    ``grid`` is a power of two. All arithmetic is exact, because it only scales by powers of two and subtracts
    integer parts. A value is rounded up if a uniform U is below its fractional part. The next base-256 digit
    of the fraction is compared with the next random byte until they differ or the fraction ends. If the
    fraction ends first, U is not below it.
    """
    position, index = state[POSITION], state[INDEX]
    unit = 1.0 / grid
    status = DONE
    while index < values.shape[0]:
        if not 0.0 <= values[index] <= 1.0:
            status = OUTSIDE
            break
        at = position
        rest = values[index] * grid
        whole = np.floor(rest)
        rest -= whole
        decided = rest == 0.0
        while not decided and at < data.shape[0]:
            rest *= 256.0
            digit = np.floor(rest)
            rest -= digit
            drawn = np.float64(data[at])
            at += 1
            if drawn < digit:
                whole += 1.0
            decided = drawn != digit or rest == 0.0
        if not decided:
            status = NEED_BYTES  # the next call starts this value again, with the same bytes
            break
        values[index] = whole * unit
        position = at
        index += 1
    state[POSITION], state[INDEX] = position, index
    return status
