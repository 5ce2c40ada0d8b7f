r"""Exact Poisson and Skellam noise on a device, computed only from integers and random words.

A Skellam variable with variance v is X - Y for two independent Poisson variables of mean v / 2. It is
symmetric with mean 0. A sum of independent Skellam variables is a Skellam variable, and variances add up.

*Method.* A Poisson variable X of integer mean m is drawn by inversion of its distribution function F. With a
uniform U in [0, 1), X = #{k : F(k) <= U}. Only as many bits of U as necessary are drawn, 64 at a time. If the
first b bits of U, as an integer u, differ from floor(2^b F(k)) for every k, they determine X. Otherwise 64
more bits are drawn. This ends with probability 1. The distribution is neither truncated nor rounded.

*Certified tables.* Let w_k = 2^B m^(k - m) m! / k!. F(k) is the sum of w_0 .. w_k divided by the sum of all
w. The weights are computed from w_m = 2^B outwards, in integers, and rounded down. Each step multiplies by a
factor of at most 1, so the weight at distance n from m is too small by at most n. Weights are computed until
they are 0 at distance n. Let r be the ratio of the last two weights. The omitted weights on a side sum to at
most n / (1 - r), and 1 / (1 - r) <= (m + n + 1) / n. All sums are therefore too small by at most E = (n +
1)^2 + 2 (m + n + 1) on each side. The table is accepted if floor(2^b F(k)) is the same for both ends of the
error interval, at every k. Otherwise B is doubled.

For means above :data:`LARGEST_MEAN`, several Poisson variables with smaller means are added, which is exact.
Means of the parts are two adjacent integers; the larger ones are drawn first.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.device.message_envelope import WordCoins

LARGEST_MEAN = 2**17
"""Largest mean with a table of its own."""
MOST_VARIANCE = 2**36

Ints = NDArray[np.int64]

__all__ = ["LARGEST_MEAN", "MOST_VARIANCE", "poisson", "skellam"]

_WORD = 64
_LEADING = 14
_AT_ONCE = 2**14  # words that are drawn together
_GUIDED = 128  # for this many words or more, the table of leading bits is faster than a search


@lru_cache(maxsize=64)
def _table(mean: int, bits: int) -> tuple[int, tuple[int, ...]]:
    """Return the first k, and floor(2^bits F(k)) for this k and the k after it.

    For smaller k the value is 0, and for larger k it is 2^bits - 1.
    """
    precision = 2 * bits + 64
    while True:
        found = _certified(mean, bits, precision)
        if found is not None:
            return found
        precision *= 2


def _certified(mean: int, bits: int, precision: int) -> tuple[int, tuple[int, ...]] | None:
    one = 1 << precision
    below, k, w = [], mean, one
    while k > 0:
        w = w * k // mean
        k -= 1
        if not w:
            break
        below.append(w)
    above, up, w = [], mean, one
    while True:
        up += 1
        w = w * mean // up
        if not w:
            break
        above.append(w)
    n = max(len(below), len(above)) + 1
    error = (n + 1) ** 2 + 2 * (mean + n + 1)
    whole, first = sum(below) + one + sum(above), mean - len(below)
    found, total, last = [], 0, (1 << bits) - 1
    for w in [*reversed(below), one, *above]:
        total += w
        low = (total << bits) // (whole + 2 * error)
        high = min(((total + 2 * error) << bits) // whole, last)  # F(k) < 1
        if low != high:
            return None
        found.append(low)
    if found[-1] != last:
        return None
    zeros = next(i for i, value in enumerate(found) if value)
    return first + zeros, tuple(found[zeros:])


@lru_cache(maxsize=64)
def _floors(mean: int) -> tuple[int, NDArray[np.uint64], NDArray[np.int32]]:
    """Return the first k, the table of 64 bits, and, for each i, the number of table entries of at most i
    2^50.
    """
    first, values = _table(mean, _WORD)
    table = np.array(values, np.uint64)
    starts = np.arange(2**_LEADING, dtype=np.uint64) << np.uint64(_WORD - _LEADING)
    guide = np.append(np.searchsorted(table, starts, side="right"), table.size).astype(np.int32)
    table.flags.writeable = guide.flags.writeable = False
    return first, table, guide


def poisson(mean: int, size: int, source: WordCoins) -> Ints:
    """Return ``size`` independent Poisson variables of an integer ``mean`` of at least 0.

    source : object that draws words of 64 bits.
    """
    parts, total = -(-mean // LARGEST_MEAN), np.zeros(size, np.int64)
    if not parts or not size:
        return total
    each, more = divmod(mean, parts)
    for own, left in ((each + 1, more), (each, parts - more)):
        while left:
            now = min(left, max(1, _AT_ONCE // size))
            total += _inverted(own, now * size, source).reshape(now, size).sum(axis=0)
            left -= now
    return total


def _inverted(mean: int, size: int, source: WordCoins) -> Ints:
    first, floors, guide = _floors(mean)
    drawn = np.asarray(source.words(size), np.uint64)
    if size < _GUIDED:
        at = np.searchsorted(floors, drawn, side="right")
    else:  # the leading bits determine most results
        part = (drawn >> np.uint64(_WORD - _LEADING)).astype(np.int64)
        at = guide[part].astype(np.int64)
        split = np.flatnonzero(guide[part + 1] != at)
        at[split] = np.searchsorted(floors, drawn[split], side="right")
    found = (first + at).astype(np.int64)
    tied = (floors[np.maximum(at, 1) - 1] == drawn) | (drawn == 0)
    for i in np.flatnonzero(tied).tolist():
        found[i] = _by_more_bits(mean, int(drawn[i]), source)
    return found


def _by_more_bits(mean: int, drawn: int, source: WordCoins) -> int:
    """Return X from the first 64 bits ``drawn`` of U and as many further bits as are necessary."""
    bits = _WORD
    while True:
        drawn, bits = (drawn << _WORD) | int(np.asarray(source.words(1))[0]), bits + _WORD
        first, values = _table(mean, bits)
        if drawn and drawn not in values:
            return first + sum(value < drawn for value in values)


def skellam(variance: int, size: int, source: WordCoins) -> Ints:
    """Return ``size`` independent Skellam variables of mean 0.

    variance : an even integer from 2 to 2^36.

    source : object that draws words of 64 bits.

    Raises ``ValueError`` for another variance.
    """
    allowed = isinstance(variance, int) and 2 <= variance <= MOST_VARIANCE and variance % 2 == 0
    if isinstance(variance, bool) or not allowed:
        raise ValueError(f"variance = {variance!r}: must be an even integer in [2, 2^36]")
    return poisson(variance // 2, size, source) - poisson(variance // 2, size, source)
