r"""Payload of messages in the shuffle protocol.

This module packs one user's bits, and reads payloads strictly.

*Content of a message.* For every counter of a batch, a message has the user's ``own`` bits (one bit, or two
for a centred reward) and ``flips`` noise bits. Only the number of ones among these bits leaves the device.
The bits of a counter are interchangeable, so shuffling them would reveal the same number.

*Layout of the payload.* Words are little-endian. The size is public, and the same for every user of a batch.
For each family in order, the number of ones of each counter is a digit in [0, own + flips]. The digits are
written in base own + flips + 1. Each word of 64 bits contains as many digits as fit, and the first digit is
the lowest. The last word of a family is padded with digits 0. The payload is in the common envelope of all
messages (:mod:`discreet.device.message_envelope`).

An encoding that lists only the bits with value 1 would often be shorter, but its length would reveal their
number. The reader rejects all bytes that do not have exactly the layout above, including digits that are not
below the base. Therefore no user can change a counter by more than the bits of one user.

*Privacy loss of one message without the shuffler* (:attr:`SessionConfig.guarantee`). No finite epsilon holds.
All m noise bits of a counter are 1 with probability top, and all are 0 with probability bottom. These
probabilities are p^m and (1 - p)^m, or (p (1 - p))^(m/2) for both if the bits are paired. In these cases, the
counter has a value that is impossible for a user with other own bits. This is called a visible change. At
each step, two trajectories differ in one of the following ways. The affected counters have independent noise.

- different pairs: in each family, the own bit of one counter changes from 1 to 0, and the own bit of another
  counter from 0 to 1. For centred rewards, the sum of the own bits changes from 2 y to 1 in one counter and
  from 1 to 2 y' in another. The worst case is taken over all y and y'. In each counter, the change is visible
  with probability max(top, bottom);
- the same pair and different next states: two counters of the transitions and the counter of the reward
  differ. All own bits of the reward's counter can change. The change is visible with probability max(top,
  bottom). For both bits of a centred reward, it is visible with the probability of at least m - 1 ones (or of
  at most one).

``shows`` is 1 minus the product over the steps of the smallest probability that no change is visible. No pair
of trajectories has a larger probability of a visible change. The bound is attained if the first way is the
worst at every step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.device import session_config as forms
from discreet.device.message_envelope import HEADER, TAIL, Envelope, MessageRejected, integer, opened
from discreet.device.message_guarantee import MessageGuarantee

COIN = 2**32  # the probability that a noise bit is 1 is a multiple of 1 / COIN

Kind = Literal["visits", "transitions", "rewards", "centered_rewards"]
KINDS: tuple[Kind, ...] = ("visits", "transitions", "rewards", "centered_rewards")

__all__ = ["COIN", "KINDS", "Family", "SessionConfig", "Kind", "pack", "payload", "read", "unpack", "write"]


@dataclass(frozen=True)
class Family:
    """Family of counters, with the noise that each user adds to each counter.

    Parameters
    ----------
    kind : counted quantity: "visits" (h, s, a), "transitions" (h, s, a, s'), or "rewards" or
        "centered_rewards" (h, s, a). Rewards are rounded to bits at random.
    flips : number m >= 1 of noise bits of one user in one counter.
    coin : integer in [1, 2^31]; a noise bit is 1 with probability coin / 2^32.
    paired : if True, ``flips`` is even, and the second half of the noise bits are 1 with probability 1 - coin
        / 2^32. The noise is then symmetric. Must be True for centred rewards, and False for other kinds.
    """

    kind: Kind
    flips: int
    coin: int
    paired: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}: must be one of {', '.join(KINDS)}")
        object.__setattr__(self, "flips", integer("flips", self.flips, 1, 2**31))
        object.__setattr__(self, "coin", integer("coin", self.coin, 1, COIN // 2))
        if (self.kind == "centered_rewards") != self.paired:
            raise ValueError(f"paired = {self.paired!r}: must be true for centred rewards, false for others")
        if self.paired and self.flips % 2:
            raise ValueError(f"flips = {self.flips}: must be even where they are paired")

    @property
    def own(self) -> int:
        """Number of the user's own bits in one counter: 2 for centred rewards, and otherwise 1."""
        return 2 if self.kind == "centered_rewards" else 1

    @property
    def messages(self) -> int:
        """Number of one user's bits for one counter: own bits and noise bits."""
        return self.own + self.flips

    @property
    def mean(self) -> float:
        """Expected number of ones among one user's noise bits of a counter."""
        return 0.5 * self.flips if self.paired else self.flips * self.coin / COIN

    @property
    def extremes(self) -> tuple[float, float, float]:
        """Probabilities of extreme noise in one counter.

        They are P(all noise bits are 1), P(all noise bits are 0), and the largest probability that a change
        of all own bits is visible.
        """
        m, p = self.flips, self.coin / COIN
        if not self.paired:
            top, bottom = p**m, (1.0 - p) ** m
            return top, bottom, max(top, bottom)
        one = (p * (1.0 - p)) ** (m // 2)  # P(all noise bits are 1), equal to P(all are 0)
        # P(exactly one noise bit is 0): this bit is in the first half (P(1) = p) or in the second
        nearly = m // 2 * one * ((1.0 - p) / p + p / (1.0 - p))
        return one, one, one + nearly

    @cached_property
    def powers(self) -> NDArray[np.uint64]:
        """(k,) place values of the k digits in a word of 64 bits, where k is as large as possible."""
        base, most = self.messages + 1, 1
        while base ** (most + 1) <= 2**64:
            most += 1
        return np.array([base**j for j in range(most)], np.uint64)

    @property
    def digits(self) -> int:
        """Number of digits, one per counter, that fit into a word of 64 bits."""
        return int(self.powers.size)


@dataclass(frozen=True)
class SessionConfig(forms.OfPairs):
    """Public form of a session. A device encodes messages with it, and a shuffler reads them with it.

    The form is fixed before any data are seen.

    Parameters
    ----------
    states, actions, horizon : S, A, H.
    families : families of counters, in the order of the message.
    rows : (S, A) row numbers of the pairs as tuples, -1 for inadmissible actions. If None, every action is
        admissible, and the row is s A + a.
    session : number in [0, 2^64). Each session must have a unique number.
    step : the only step in [0, H) whose counters are sent, or None to send the counters of all steps.
    """

    KIND: ClassVar[str] = "bits"

    states: int
    actions: int
    horizon: int
    families: tuple[Family, ...]
    rows: tuple[tuple[int, ...], ...] | None = None
    session: int = 0
    step: int | None = None

    def __post_init__(self) -> None:
        self.check_sizes()
        object.__setattr__(self, "families", tuple(self.families))
        if not self.families or len({family.kind for family in self.families}) < len(self.families):
            raise ValueError("families: must hold at least one, and none of them twice")

    @cached_property
    def counters(self) -> tuple[int, ...]:
        """Number of counters of each family."""
        pairs = self.counted * self.pairs
        return tuple(pairs * (self.states if f.kind == "transitions" else 1) for f in self.families)

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """Number of the first counter of each family in the flat vector, and the total number of counters."""
        return tuple(int(x) for x in np.concatenate([[0], np.cumsum(self.counters)]))

    def to_bytes(self) -> bytes:
        """Return the form as bytes to publish, in the layout of :mod:`discreet.device.session_config`."""
        families = [[f.kind, f.flips, f.coin, f.paired] for f in self.families]
        fields = {name: getattr(self, name) for name in ("states", "actions", "horizon", "rows", "step")}
        return forms.published(self.KIND, fields | {"families": families, "session": f"{self.session:016x}"})

    @classmethod
    def from_bytes(cls, published: bytes) -> SessionConfig:
        """Return the form from its ``published`` bytes. Raises ``ValueError`` if the bytes are not such a
        form.
        """
        _, fields = forms.taken_apart(published, (cls.KIND,))
        try:
            fields["families"] = tuple(Family(*family) for family in fields["families"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"published: is not a form of bits ({error!r})") from None
        return forms.built(cls, fields, published)

    @cached_property
    def guarantee(self) -> MessageGuarantee:
        """Privacy loss of one message without the shuffler, as derived in the module docstring."""
        other, same = 1.0, 1.0  # probabilities that no change is visible, for another and for the same pair
        for family in self.families:
            top, bottom, near = family.extremes
            if family.kind == "visits":
                other *= (1.0 - top) * (1.0 - bottom)
            elif family.kind == "transitions":
                other *= (1.0 - top) * (1.0 - bottom)
                same *= (1.0 - top) * (1.0 - bottom) if self.states > 1 else 1.0
            else:
                ends = (1.0 - top) * (1.0 - bottom) if family.own == 1 else (1.0 - max(top, bottom)) ** 2
                other, same = other * ends, same * (1.0 - near)
        nothing = min(other, same) if self.pairs > 1 else same
        return MessageGuarantee(epsilon=math.inf, shows=1.0 - nothing**self.counted, shuffled=True)

    @cached_property
    def words(self) -> tuple[int, ...]:
        """Number of 64-bit words of each family."""
        return tuple(-(-n // f.digits) for n, f in zip(self.counters, self.families, strict=True))

    @cached_property
    def size(self) -> int:
        """Size of every message in bytes."""
        return HEADER + 8 * sum(self.words) + TAIL


def pack(form: SessionConfig, ones: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Pack the (counters,) numbers of ones as digits into 64-bit words. Returns (words,) integers."""
    parts = []
    for i, family in enumerate(form.families):
        digits = np.zeros((form.words[i], family.digits), np.uint64)
        digits.ravel()[: form.counters[i]] = ones[form.begins[i] : form.begins[i + 1]]
        parts.append(digits @ family.powers)
    return np.concatenate(parts)


def write(form: SessionConfig, plan: int, ones: NDArray[np.int64], nonce: bytes) -> bytes:
    """Return the bytes of one user's message: the packed numbers of ones in their envelope."""
    return Envelope("bits", plan, form.digest, nonce, pack(form, ones).astype("<u8").tobytes()).to_bytes()


def unpack(form: SessionConfig, words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Unpack the numbers of ones from the (n, words) payloads of n messages.

    Returns (n, counters) numbers of ones, and an (n,) mask that is True for well-formed messages.
    """
    n = words.shape[0]
    ones = np.empty((n, form.begins[-1]), np.int64)
    good = np.ones(n, bool)
    at = 0
    for i, family in enumerate(form.families):
        k, base = family.digits, np.uint64(family.messages + 1)
        rest = words[:, at : at + form.words[i]]
        at += form.words[i]
        digits = np.empty((n, form.words[i], k), np.int64)
        for j in range(k):
            quotient = rest // base
            digits[:, :, j] = rest - quotient * base
            rest = quotient
        flat = digits.reshape(n, form.words[i] * k)  # NumPy could not infer the second size if n = 0
        good &= ~rest.any(axis=1) & ~flat[:, form.counters[i] :].any(axis=1)
        ones[:, form.begins[i] : form.begins[i + 1]] = flat[:, : form.counters[i]]
    return ones, good


def payload(form: SessionConfig, plan: int, message: Any) -> tuple[bytes, bytes]:
    """Return the nonce and the payload, before it is unpacked, of a message of plan ``plan``.

    Raises :class:`MessageRejected` if the bytes are not such a message.
    """
    found = opened(message, "bits", form.digest, plan)
    if len(message) != form.size:
        raise MessageRejected("malformed", f"has {len(message)} bytes: must have {form.size}")
    return found.nonce, found.payload


def read(form: SessionConfig, plan: int, message: Any) -> tuple[bytes, NDArray[np.int64]]:
    """Return the nonce and the (counters,) numbers of ones of a message of plan ``plan``.

    Raises :class:`MessageRejected` if the bytes are not such a message.
    """
    nonce, packed = payload(form, plan, message)
    ones, good = unpack(form, np.frombuffer(packed, "<u8").astype(np.uint64)[None])
    if not good[0]:
        raise MessageRejected("malformed", "a counter has more ones than a user has bits")
    return nonce, ones[0]
