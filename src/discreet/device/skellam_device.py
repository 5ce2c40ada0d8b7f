r"""Device of the shuffle model for sums over contexts.

It sends integers with one device's share of the noise.

A shuffler publishes the sums of a batch and nothing else. The noise of the sums is the sum of all devices'
noise. Each device adds Skellam noise (:mod:`discreet.device.skellam_noise`) of variance v_j to cell j, so n
devices that follow the protocol add Skellam noise of variance n v_j.

*Contribution.* phi is truncated toward 0 to multiples of 2^-k, so its norm does not grow and stays at most 1.
The reward is rounded at random, without bias, to y in {0, 1/g, .., 1}. The contribution is the upper triangle
of phi phi^T in units of 2^-2k, and phi (y - 1/2) in units of 2^-k / g, in the cells of the user's block. All
other cells are 0. These numbers are integers.

*Neighbouring relation and sensitivity.* One user's whole record (context, action, reward) is replaced. For
every value of the rounded rewards, the contributions are within the bounds of
:class:`~discreet.device.context_form.ContextForm`, so rounding adds nothing to the sensitivities:

- l2, in units of the noise: lemma 3 of :mod:`discreet.mechanisms.linear.sensitivities`;
- l1 of the matrices: the triangle of phi phi^T has l1 norm at most ||phi||^2 + (||phi||_1^2 - ||phi||^2) / 2
<=
  (p + 1) / 2. A replaced user changes at most p + 1;
- l1 of the responses: at most sqrt(p) / 2 for a user, so sqrt(p) for a replaced user;
- largest change of one cell: at most 1 in a matrix (entries on the diagonal are in [0, 1], others in [-1/2,
1/2])
  and at most 1 in a response.

*Message.* Each cell is written with the same public number of bytes, as a residue. The length of a message is
therefore the same for all users. A reader rejects a message with a cell that is larger than ``reach``: the
largest contribution plus a bound that noise exceeds with probability at most 2^-160. Sums of accepted
messages fit into 64-bit integers, so they do not wrap around.

*Privacy loss of one message.* No pure epsilon holds for Skellam noise, and the noise of one device is small.
The stated guarantee is the guarantee of the sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.device import session_config as forms
from discreet.device.context_form import ContextForm
from discreet.device.linear_forms import GRAM, RESPONSE
from discreet.device.message_envelope import (
    Envelope,
    MessageRejected,
    WordCoins,
    drawn_nonce,
    integer,
    opened,
)
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.shuffle_encoder import SystemCoins
from discreet.device.skellam_noise import MOST_VARIANCE, skellam

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REWARD_LEVELS = 64
"""Rounded rewards are multiples of 1 / 64."""

__all__ = ["REWARD_LEVELS", "SkellamDevice", "levels_of", "noise_reach"]

_TAIL_BITS = 160


def levels_of(dimension: int) -> int:
    """Return an integer k >= 7. The coordinates of phi are rounded to multiples of 2^-k."""
    return max(7, math.ceil(math.log2(32.0 * math.sqrt(dimension))))


def noise_reach(variance: int) -> int:
    """Return t such that Skellam noise of this variance exceeds t with probability at most 2^-160.

    By Chernoff's bound, P(|X| >= t) <= 2 exp(-t asinh(t / v) + sqrt(t^2 + v^2) - v).
    """
    v, high = float(variance), 64.0
    wanted = (_TAIL_BITS + 1) * math.log(2.0)

    def exponent(t: float) -> float:
        return t * math.asinh(t / v) - t * t / (math.hypot(t, v) + v)

    while exponent(high) < wanted:
        high *= 1.25
    return math.ceil(high)


@dataclass(frozen=True, eq=False)
class SkellamDevice(forms.Published):
    """Public form of one batch, and the encoder that devices use for this batch.

    Parameters
    ----------
    form : ContextForm
        The contributions.
    variances : tuple of int
        Variance of one device's noise in each block of cells, in squared units: even integers of at least 2.
    session : int
        Number in [0, 2^64) of the session.

    Raises
    ------
    ValueError
        If a number is out of range.
    """

    form: ContextForm
    variances: tuple[int, ...]
    session: int = 0

    KIND = "skellam-contexts"

    def __post_init__(self) -> None:
        if len(self.variances) != len(self.form.blocks):
            raise ValueError(f"variances has {len(self.variances)} numbers: must be {len(self.form.blocks)}")
        found = tuple(integer(f"variances[{i}]", v, 2, MOST_VARIANCE) for i, v in enumerate(self.variances))
        if any(v % 2 for v in found):
            raise ValueError(f"variances = {found}: must be even")
        object.__setattr__(self, "variances", found)
        object.__setattr__(self, "session", integer("session", self.session, 0, 2**64 - 1))
        if self.width > 7:
            raise ValueError(f"variances = {found}: must give messages of at most 7 bytes a cell")

    # ------------------------------------------------------------------------- public numbers
    @cached_property
    def levels(self) -> int:
        """Number k: coordinates of phi are multiples of 2^-k."""
        return levels_of(self.form.features.dimension)

    @cached_property
    def units(self) -> Floats:
        """(blocks of cells,) value of one unit."""
        unit = 2.0**-self.levels
        own = {GRAM: unit * unit, RESPONSE: unit / REWARD_LEVELS}
        return np.array([own[name] for name, _, _ in self.form.blocks])

    @cached_property
    def cell_units(self) -> Floats:
        """(cells,) value of one unit."""
        return np.repeat(self.units, np.diff(self.form.offsets))

    @cached_property
    def reach(self) -> Ints:
        """(blocks of cells,) largest absolute value in an accepted message."""
        return np.array(
            [round(1.0 / unit) + noise_reach(v) for unit, v in zip(self.units, self.variances, strict=True)],
            np.int64,
        )

    @cached_property
    def width(self) -> int:
        """Number of bytes of a cell."""
        return (int(self.reach.max()).bit_length() + 1 + 7) // 8

    @property
    def guarantee(self) -> MessageGuarantee:
        """Privacy loss of one message without the shuffler. It has no pure epsilon."""
        return MessageGuarantee(epsilon=math.inf, shuffled=True)

    # -------------------------------------------------------------------------- contributions
    def contributions(self, contexts: Floats, actions: Ints, levels: Ints) -> Ints:
        """Return the (cells,) sum of the contributions of n users, in units.

        contexts, actions : as in :meth:`~discreet.device.context_form.ContextForm.rows`.

        levels : (n,) integers in [0, 64], 64 times the rounded rewards.
        """
        (blocks, p), (phi, block) = self.form.shapes[RESPONSE], self.form.rows(contexts, actions)
        phi = np.trunc(phi * 2.0**self.levels)
        y = levels.astype(np.float64) - REWARD_LEVELS / 2
        above = np.triu_indices(p, 1)
        gram, response = np.zeros((blocks, p * (p + 1) // 2)), np.zeros((blocks, p))
        for i in range(blocks):
            mine = phi[block == i]
            full = mine.T @ mine  # sums of integers below 2^53 are exact
            gram[i] = np.concatenate([np.diag(full), full[above]])
            response[i] = y[block == i] @ mine
        return self.form.to_cells({GRAM: gram, RESPONSE: response}).astype(np.int64)

    def sums(self, records: Any) -> dict[str, Floats]:
        """Return the sums of the contributions of simulated users by family, for ``session.submit_sum``.

        records : ContextRecords. Rewards must be multiples of 1 / 64, so that no random rounding is
        necessary.

        Raises ``ValueError`` for other rewards.
        """
        levels = records.rewards[:, 0] * REWARD_LEVELS
        if (levels != np.rint(levels)).any():
            raise ValueError(f"records.rewards: must be multiples of 1 / {REWARD_LEVELS}")
        own = (records.contexts[:, 0], records.actions[:, 0], levels.astype(np.int64))
        cells = self.contributions(*own) * self.cell_units
        n, p = self.form.shapes[RESPONSE]
        return {GRAM: cells[: -n * p].reshape(n, -1), RESPONSE: cells[-n * p :].reshape(n, p)}

    def __call__(
        self, plan: int, contexts: Any, actions: Any, rewards: Any, source: WordCoins | None = None
    ) -> bytes:
        """Encode the message of one user of plan ``plan``.

        contexts : (1, *features.shape).

        actions, rewards : shape (1,). Rewards are in [0, 1].

        source : random generator of the device. None: the operating system's.

        Raises ``ValueError`` for an invalid record. Nothing is sent then.
        """
        x, action, reward = self.form.checked_record(contexts, actions, rewards)
        source = SystemCoins() if source is None else source
        cells = self.contributions(x, action, _rounded(reward, source))
        sizes = np.diff(self.form.offsets).tolist()
        cells += np.concatenate([skellam(v, n, source) for v, n in zip(self.variances, sizes, strict=True)])
        return self.write(plan, cells, drawn_nonce(source))

    # ------------------------------------------------------------------------------- in bytes
    def write(self, plan: int, cells: Ints, nonce: bytes) -> bytes:
        """Return the bytes of a message with the integers ``cells``. nonce : 16 random bytes."""
        payload = cells.astype("<i8").view(np.uint8).reshape(-1, 8)[:, : self.width].tobytes()
        return Envelope("sums", plan, self.digest, nonce, payload).to_bytes()

    def read(self, plan: int, message: Any) -> tuple[bytes, Ints]:
        """Return the nonce and the (cells,) integers of a message of plan ``plan``.

        Raises :class:`~discreet.device.message_envelope.MessageRejected` if no honest device sends the bytes.
        """
        found, w, cells = opened(message, "sums", self.digest, plan), self.width, int(self.form.offsets[-1])
        if len(found.payload) != cells * w:
            raise MessageRejected("malformed", f"has {len(found.payload)} bytes: must have {cells * w}")
        raw = np.frombuffer(found.payload, np.uint8).reshape(cells, w)
        full = np.empty((cells, 8), np.uint8)
        full[:, :w], full[:, w:] = raw, np.where(raw[:, -1:] >= 128, 255, 0)
        values = full.reshape(-1).view("<i8").astype(np.int64)
        if (np.abs(values) > np.repeat(self.reach, np.diff(self.form.offsets))).any():
            raise MessageRejected("malformed", "has a number that no device sends")
        return found.nonce, values

    def to_bytes(self) -> bytes:
        """Return the form as bytes to publish, in the layout of :mod:`discreet.device.session_config`."""
        plain = {"form." + name: value for name, value in self.form.to_plain().items()}
        rest = {"variances": self.variances, "session": f"{self.session:016x}"}
        return forms.published(self.KIND, plain | rest)

    @classmethod
    def from_bytes(cls, published: bytes) -> SkellamDevice:
        """Return the device of a ``published`` form. Raises ``ValueError`` for other bytes."""
        _, plain = forms.taken_apart(published, (cls.KIND,))
        own = {name.removeprefix("form."): value for name, value in plain.items() if name.startswith("form.")}
        try:
            form = ContextForm.from_plain(own)
        except (KeyError, TypeError) as error:
            raise ValueError(f"published: is not a form of contexts ({error!r})") from None
        rest = {name: value for name, value in plain.items() if not name.startswith("form.")}
        return forms.built(cls, rest | {"form": form}, published)


def _rounded(rewards: Floats, source: WordCoins) -> Ints:
    """Return 64 times the rewards, rounded at random to integers in [0, 64].

    The mean is exact up to 2^-64. The guarantee does not depend on this error.
    """
    scaled = rewards * REWARD_LEVELS  # exact, because 64 is a power of two
    whole = np.floor(scaled)
    below = np.ldexp(scaled - whole, 64).astype(np.uint64)
    return whole.astype(np.int64) + (np.asarray(source.words(rewards.size)) < below)
