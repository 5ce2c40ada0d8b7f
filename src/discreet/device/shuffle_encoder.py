r"""Encoder of the shuffle protocol. It converts a trajectory to one message of fixed size.

For each counter of each family, even if it was not visited, the device sends one number. It is the number of
ones among the user's own bits and ``flips`` noise bits. The user's own bits are:

- visits, transitions: one bit, which is 1 at the visited counter and 0 at the other counters;
- rewards: one bit y at the visited counter, which is 1 with probability r, and 0 at the other counters;
- centred rewards: two bits, (y, y) at the visited counter and (0, 1) at the other counters. Over n users,
  (ones - n - noise) / 2 is then the sum of y - 1/2 over the users who visited the counter.

The bit y is the reward r, rounded at random with mean r. The privacy guarantee does not depend on the
rounding. The message of a trajectory is a mixture over the values of the bits. The divergence of two mixtures
is at most the divergence for the worst pair of values.

In batches of a few users, a counter can have more than a thousand fair noise bits. These bits are not drawn
one by one. Instead, their number of ones X is drawn by inversion of its distribution function F, with a
uniform U in [0, 1). Only the necessary bits of U are drawn. ``X = #{k : F(k) <= U}`` has the distribution
binomial(m, 1/2). Let ``u = floor(2^64 U)``. X is determined by u unless ``u = floor(2^64 F(k))`` for some k.
In that case (probability 10^-16), all m bits of U are drawn, and U is compared with ``F(k) = (C(m, 0) + ... +
C(m, k)) / 2^m`` in integer arithmetic. F is tabulated with 192 binary digits. Rounding errors are at most m^2
2^-192, which is below 2^-160. The table is used only if every floor(2^64 F(k)) is certain despite these
errors.

The noise bits do not depend on the trajectory. The integer y + noise of a single user is not private, for any
distribution of the noise. Therefore the shuffler must output only the sum over users for each counter.

Sources: Tenenbaum et al. (2021); Bai et al. (2024), algorithm 4. In algorithm 4, the server receives integers
of single users; here, the shuffler must output only sums over users.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from discreet.device.message_envelope import WordCoins, drawn_nonce
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.shuffle_payload import COIN, Family, SessionConfig, write

_TABULATED = (
    1024,
    2**16,
)  # from this many fair bits in a counter on, the number of ones is drawn by inversion
_FIXED = 192  # number of bits after the binary point of a tabulated probability
_DOUBT = 1 << (_FIXED - 160)
MOST_FLIPS = 2**28  # largest number of noise bits of a user in one family: up to 32 MB if fair, and
# otherwise 1 GB

__all__ = ["BitCoins", "ShuffleEncoder", "Sizes", "SystemCoins", "checked_life"]


@runtime_checkable
class BitCoins(WordCoins, Protocol):
    """Interface of random generators that draw words of 64 bits."""


class Sizes(Protocol):
    """Interface of objects with the sizes that are used to check a trajectory.

    ``row_table`` (S, A) contains the row number of each pair, or -1 where the action is not admissible.
    """

    @property
    def states(self) -> int: ...
    @property
    def actions(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def row_table(self) -> NDArray[np.int64]: ...


class SystemCoins:
    """Cryptographic random generator of the operating system, which a device uses."""

    def words(self, size: int) -> NDArray[np.uint64]:
        """Return ``size`` independent uniform words of 64 bits."""
        return np.frombuffer(os.urandom(8 * size), np.uint64)


def noise_ones(family: Family, counters: int, coins: BitCoins) -> NDArray[np.int64]:
    """Draw, for each of the counters of a family, the number of ones among one user's noise bits.

    Returns (counters,) integers. All noise bits are independent.
    """
    m = family.flips
    if counters * m > MOST_FLIPS:
        raise ValueError(
            f"flips = {m} in each of {counters} counters: more than {MOST_FLIPS} coins of one device; form "
            "larger batches"
        )
    if (
        family.coin == COIN // 2
        and _TABULATED[0] < m <= _TABULATED[1]
        and (table := _distribution(m)) is not None
    ):
        return _inverted(m, *table, counters, coins)
    if family.coin == COIN // 2:
        width = next(w for w in (8, 16, 32, 64) if m <= w or w == 64)
        each, last = -(-m // width), (m - 1) % width + 1
        wanted = -(-counters * each * width // 64)
        bits = coins.words(wanted).view(f"u{width // 8}")[: counters * each].reshape(counters, each).copy()
        bits[:, -1] >>= width - last
        return np.asarray(np.bitwise_count(bits).sum(axis=1, dtype=np.int64))
    draws = coins.words(-(-counters * m // 2)).view(np.uint32)[: counters * m].reshape(counters, m)
    ones = (draws < np.uint32(family.coin)).astype(np.int64)
    if family.paired:
        ones[:, m // 2 :] = 1 - ones[:, m // 2 :]
    return np.asarray(ones.sum(axis=1))


@lru_cache(maxsize=16)
def _distribution(m: int) -> tuple[int, NDArray[np.uint64]] | None:
    """Tabulate the distribution function F of binomial(m, 1/2).

    Returns the first k, and the integers floor(2^64 F(k)), at most 2^64 - 1, for this k and the k after it.
    Returns None if rounding errors make one of these integers uncertain.
    """
    # central = C(2n, n) / 4^n is the product of the factors 1 - 1 / 2i; four factors are combined in a step
    n, central = m // 2, 1 << _FIXED
    for i in range(1, n + 1, 4):
        over = under = 1
        for j in range(i, min(i + 4, n + 1)):
            over, under = over * (2 * j - 1), under * (2 * j)
        central = central * over // under
    centre, half = (m - 1) // 2, 1 << (_FIXED - 1)
    chance = central * m // (m + 1) if m % 2 else central * n // (n + 1)  # P(X = centre)
    below = half if m % 2 else half - central // 2  # F(centre)
    left, k = [], centre
    while below > 0:
        left.append(below)
        below -= chance
        chance = chance * k // (m - k + 1)
        k -= 1
        if left[-1] >> (_FIXED - 64) == 0:
            break
    left.reverse()
    every = [*left, *((1 << _FIXED) - f for f in reversed(left[: len(left) - m % 2]))]
    shift = _FIXED - 64
    if any((f - _DOUBT) >> shift != (f + _DOUBT) >> shift for f in every if f > _DOUBT and f != half):
        return None
    return centre - len(left) + 1, np.array([min(f >> shift, 2**64 - 1) for f in every], np.uint64)


def _inverted(
    m: int, first: int, floors: NDArray[np.uint64], counters: int, coins: BitCoins
) -> NDArray[np.int64]:
    """Draw, for each counter, the number of ones among m fair bits. Returns (counters,) integers.

    ``first`` and ``floors`` are the result of :func:`_distribution`.
    """
    drawn = coins.words(counters)
    at = np.searchsorted(floors, drawn)
    ones = first + at
    tied = floors[np.minimum(at, floors.size - 1)] == drawn
    for i in np.flatnonzero(tied | (drawn == 0)).tolist():
        ones[i] = _by_all_bits(m, int(drawn[i]), coins)
    return np.asarray(ones, np.int64)


def _by_all_bits(m: int, leading: int, coins: BitCoins) -> int:
    """Draw the remaining m - 64 bits of U, and return X (see the module docstring).

    ``leading`` : the first 64 bits of U, as an integer.
    """
    more = m - 64
    tail = int.from_bytes(coins.words(-(-more // 64)).tobytes(), "little") & ((1 << more) - 1)
    u, term, total, k = (leading << more) | tail, 1, 1, 0
    while total <= u:
        term = term * (m - k) // (k + 1)
        total, k = total + term, k + 1
    return k


def _rounded(rewards: NDArray[np.float64], coins: BitCoins) -> NDArray[np.int64]:
    """Draw one bit for each reward. The mean of the bit is the reward, up to an error of 2^-64."""
    words = coins.words(rewards.size)
    below = np.ldexp(np.where(rewards < 1.0, rewards, 0.0), 64).astype(np.uint64)
    return ((words < below) | (rewards == 1.0)).astype(np.int64)


def checked_life(
    form: Sizes, states: Any, actions: Any, rewards: Any
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Check one trajectory. Returns copies of the states, the row numbers of the pairs, and the rewards.

    The row numbers are the entries of ``form.row_table`` for the states and actions. Raises ``ValueError`` if
    the trajectory is not valid.
    """
    parts = []
    for name, value, steps, size in (
        ("states", states, form.horizon + 1, form.states),
        ("actions", actions, form.horizon, form.actions),
    ):
        array = np.array(value)
        if array.shape != (steps,) or array.dtype.kind not in "iu":
            raise ValueError(f"{name} has shape {array.shape}: must be {steps} integers")
        if (array < 0).any() or (array >= size).any():
            raise ValueError(f"{name}: every entry must be an integer in [0, {size - 1}]")
        parts.append(array.astype(np.int64))
    earned = np.array(rewards, np.float64)
    if earned.shape != (form.horizon,) or not ((earned >= 0) & (earned <= 1)).all():
        raise ValueError(f"rewards: must be {form.horizon} numbers in [0, 1]")
    rows = form.row_table[parts[0][:-1], parts[1]]
    if (rows < 0).any():
        raise ValueError("actions: one of them is not admissible in its state")
    return parts[0], rows, earned


@dataclass(frozen=True)
class ShuffleEncoder:
    """Encoder on a user's device. Every trajectory gives one message of ``form.size`` bytes.

    ``form`` is published by the server for the batch. ``plan`` is the number of the user's plan.
    """

    form: SessionConfig
    plan: int

    def to_bytes(self) -> bytes:
        """Return the form as bytes to publish for the batch."""
        return self.form.to_bytes()

    @classmethod
    def from_bytes(cls, published: bytes, plan: int) -> ShuffleEncoder:
        """Return the encoder for a ``published`` form and the users of plan ``plan``.

        Raises ``ValueError`` if the bytes are not such a form.
        """
        return cls(SessionConfig.from_bytes(published), plan)

    @property
    def digest(self) -> bytes:
        """Digest of the form."""
        return self.form.digest

    @property
    def guarantee(self) -> MessageGuarantee:
        """Privacy loss of one message without the shuffler."""
        return self.form.guarantee

    def __call__(self, states: Any, actions: Any, rewards: Any, coins: BitCoins | None = None) -> bytes:
        """Encode the trajectory of states (H + 1,), actions (H,), and rewards (H,) in [0, 1].

        ``coins`` is the random generator of the device; the default is the operating system's. Raises
        ``ValueError``, before anything is sent, if an entry is out of range.
        """
        form, coins = self.form, SystemCoins() if coins is None else coins
        at, rows, earned = checked_life(form, states, actions, rewards)
        if form.step is not None:  # the message does not depend on the other steps
            at, rows = at[form.step : form.step + 2], rows[form.step : form.step + 1]
            earned = earned[form.step : form.step + 1]
        cells = np.arange(rows.size) * form.pairs + rows
        ones = np.empty(form.begins[-1], np.int64)
        for i, family in enumerate(form.families):
            part = noise_ones(family, form.counters[i], coins)
            if family.kind == "visits":
                part[cells] += 1
            elif family.kind == "transitions":
                part[cells * form.states + at[1:]] += 1
            elif family.kind == "rewards":
                part[cells] += _rounded(earned, coins)
            else:
                part += 1
                part[cells] += 2 * _rounded(earned, coins) - 1
            ones[form.begins[i] : form.begins[i + 1]] = part
        return write(form, self.plan, ones, drawn_nonce(coins))
