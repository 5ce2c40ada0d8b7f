"""Inbox of a local session: opens and checks the messages of users' devices and counts each once.

A message consists of the bytes that a device made (:mod:`discreet.device.message_envelope`). In simulations
and within one process it may also be the bare numbers of the session's own encoder. These have no nonce, and
each one counts as a new message. Within a plan every nonce counts once. Late messages are refused before
their nonce is read, so the nonces of closed plans need not be kept. The nonces are part of the saved state.

A nonce is recorded before its sender is counted. An interrupt between the two loses a message, whose place
stays open (``absent`` closes it). The other order could count one user twice.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.releases import ON_DEVICE, Floats, Message
from discreet.core.rng import Key
from discreet.core.stream_session import StreamSession
from discreet.device.message_envelope import NONCE, MessageRejected

__all__ = ["REACH", "FromDevices", "local_message", "session_number"]

REACH = 40.0  # in noise scales; a Laplace draw is larger with probability 4e-18


def local_message(message: Any, reach: Floats) -> Floats:
    """Return the (cells,) noisy cells of a local user; ``ValueError`` if no honest device sends such values.

    reach : (cells,) largest contribution plus :data:`REACH` noise scales. Without this bound one message
    could dominate the sum of all users.
    """
    message = checks.floats("message.message", message, reach.shape)
    far = np.flatnonzero(np.abs(message) > reach)
    if far.size:
        raise ValueError(
            f"message.message[{far[0]}] = {message[far[0]]:.6g}: must be within {reach[far[0]]:.6g}, no "
            "device sends more"
        )
    return message


def session_number(key: Key | None) -> int:
    """Return the number in [0, 2^64) that identifies a session in its messages; it is not secret.

    key : key of a seeded run's noise; None: the operating system draws the number. Equal seeds give equal
    numbers. Different seeds, runs and batches of a run give different numbers, so that a message to one of
    them is foreign to the others. The number is a hash and does not reveal the key.
    """
    if key is None:
        return secrets.randbits(64)
    digest = hashlib.blake2b(key.astype("<u8").tobytes(), digest_size=8, person=b"discreet/session")
    return int.from_bytes(digest.digest(), "little")


class FromDevices(StreamSession):
    """Base of sessions whose users' devices may send bytes."""

    _SAVED = ("_messages",)  # attribute that is saved
    _OWN = ("_made_device", "_number_of_session", "_came")  # ``_messages`` contains the last two

    def _take_no_messages_yet(self) -> None:
        """Initialize without messages; called by the constructor."""
        self._number_of_session = session_number(self._key)
        self._came: tuple[int, set[bytes]] = (0, set())  # a plan, and the nonces received for it
        self._made_device: Any = None

    @property
    def _messages(self) -> tuple[int, int, NDArray[np.uint8]]:
        """State for a saved file: session number, plan of the received messages, (n, 16) their nonces."""
        plan, nonces = self._came
        rows = np.frombuffer(b"".join(sorted(nonces)), np.uint8).reshape(-1, NONCE)
        return self._number_of_session, plan, rows

    @_messages.setter
    def _messages(self, state: tuple[int, int, NDArray[np.uint8]]) -> None:
        number, plan, rows = state
        self._number_of_session = checks.integer("_messages[0]", number, 0, 2**64 - 1)
        checks.integer("_messages[1]", plan, 0, self._plans)
        if rows.ndim != 2 or rows.shape[1] != NONCE:
            raise ValueError(f"_messages[2]: must be rows of {NONCE} bytes")
        self._came = plan, {row.tobytes() for row in rows}

    @abstractmethod
    def _device_for(self, session: int) -> Any:
        """Return the program that devices of a session with this number run."""

    @property
    def _device(self) -> Any:
        """Device program, created once for each session number; a restored session has the saved number."""
        if self._made_device is None or self._made_device.session != self._number_of_session:
            self._made_device = self._device_for(self._number_of_session)
        return self._made_device

    @property
    def device(self) -> Any:
        """Copy of the program and parameters of a local user's device, to be published once.

        Raises ``ValueError`` unless the session is local.
        """
        if self._guarantee.trust != "local":
            raise ValueError("device: must be asked of a local session, users of others send trajectories")
        own = self._device
        return type(own).from_bytes(own.to_bytes())

    def _check_in_time(self, message: Message) -> None:
        """Refuse bytes, with a reason, if they are late or all users of the plan have sent a message.

        In the second case a copy is still refused as a copy.
        """
        if self._plan is None or not isinstance(message.message, bytes):
            return super()._check_in_time(message)
        if message.plan != self._plans:
            raise MessageRejected("late", f"was made for plan {message.plan}, not {self._plans}")
        if not self._awaited:
            self._sent(message)
            raise MessageRejected("full", "all users of the plan have come")

    def _sent(self, message: Message) -> tuple[Any, bytes | None]:
        """Return the numbers that a local user sent, and their nonce; bare numbers have no nonce.

        Raises :class:`~discreet.device.message_envelope.MessageRejected` on bytes that do not count.
        """
        payload = self._payload(message)
        if not isinstance(payload, bytes):
            return payload, None
        nonce, numbers = self._read(message.plan, payload)
        if self._came[0] == self._plans and nonce in self._came[1]:
            raise MessageRejected("replayed", "came before, and counts already")
        return numbers, nonce

    @staticmethod
    def _payload(message: Message) -> Any:
        """Return what a local user sent: bytes or bare numbers."""
        if message.message is None:
            raise ValueError(f"message.message = None: takes randomized messages only, {ON_DEVICE}")
        if message.trajectory is not None:
            raise ValueError(f"message.trajectory: must be None, not raw data but {ON_DEVICE}")
        return message.message

    def _read(self, plan: int, message: bytes) -> tuple[bytes, Any]:
        """Return the nonce and the numbers of a message to the open plan."""
        found: tuple[bytes, Any] = self._device.read(plan, message)
        return found

    def _count_sender(self, nonce: bytes | None) -> None:
        """Record the nonce, then count the sender; both before the message is added to the sums."""
        if nonce is not None:
            if self._came[0] != self._plans:  # messages to the previous plan are late now
                self._came = self._plans, set()
            self._came[1].add(nonce)
        self._count(1)
