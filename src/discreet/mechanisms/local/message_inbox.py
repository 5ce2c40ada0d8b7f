"""Messages of people's devices at a local session: opened, checked, and each counted once.

A message comes as the bytes that a device made (:mod:`discreet.device.message_envelope`), or, in simulations
and within one process, as the bare numbers of the session's own encoder, which have no nonce and stand for
one message each time. Of a plan every nonce counts once; what is late is refused before its nonce is looked
at, so the nonces of plans that are over need not be kept. They are part of what a session saves.

A nonce is taken before its sender is counted: an interrupt between the two loses a message, and its place is
still open (``absent`` closes it), where the other order could count one person twice.
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

REACH = 40.0  # scales of noise: a Laplace draw is beyond with probability 4e-18


def local_message(message: Any, reach: Floats) -> Floats:
    """(cells,) a local user's noisy cells, or ``ValueError`` where no honest device sends so much.

    reach : (cells,) what a contribution is at most, and :data:`REACH` scales of noise. Without it one message
    could drown everybody's.
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
    """Which session a message is for, in [0, 2^64); no secret.

    key : of a seeded run's noise, None: drawn by the system. Equal seeds have equal numbers; other seeds,
    runs and batches of a run have others, so that a message to one of them is foreign to the rest. The number
    is a hash: it does not show the key.
    """
    if key is None:
        return secrets.randbits(64)
    digest = hashlib.blake2b(key.astype("<u8").tobytes(), digest_size=8, person=b"discreet/session")
    return int.from_bytes(digest.digest(), "little")


class FromDevices(StreamSession):
    """Base of sessions whose users' devices may send bytes."""

    _SAVED = ("_messages",)  # of its attributes
    _OWN = ("_made_device", "_number_of_session", "_came")  # the last two stand in ``_messages``

    def _take_no_messages_yet(self) -> None:
        """To be called by the constructor: nobody has sent anything."""
        self._number_of_session = session_number(self._key)
        self._came: tuple[int, set[bytes]] = (0, set())  # a plan, and the nonces that came to it
        self._made_device: Any = None

    @property
    def _messages(self) -> tuple[int, int, NDArray[np.uint8]]:
        """For a saved file: the session's number, the plan that messages came to, (n, 16) their nonces."""
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
        """What the devices of a session with this number run."""

    @property
    def _device(self) -> Any:
        """Made once for each number; a restored session has that of the saved one."""
        if self._made_device is None or self._made_device.session != self._number_of_session:
            self._made_device = self._device_for(self._number_of_session)
        return self._made_device

    @property
    def device(self) -> Any:
        """What a local user's device must know and does, to be published once (a copy).

        Raises ``ValueError`` unless the session is local.
        """
        if self._guarantee.trust != "local":
            raise ValueError("device: must be asked of a local session, users of others send trajectories")
        own = self._device
        return type(own).from_bytes(own.to_bytes())

    def _check_in_time(self, message: Message) -> None:
        """Bytes are answered by a reason, also once all users of the plan have come: a copy is a copy."""
        if self._plan is None or not isinstance(message.message, bytes):
            return super()._check_in_time(message)
        if message.plan != self._plans:
            raise MessageRejected("late", f"was made for plan {message.plan}, not {self._plans}")
        if not self._awaited:
            self._sent(message)
            raise MessageRejected("full", "all users of the plan have come")

    def _sent(self, message: Message) -> tuple[Any, bytes | None]:
        """The numbers that a local user sent, and their nonce; bare numbers have none.

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
        """What a local user sent."""
        if message.message is None:
            raise ValueError(f"message.message = None: takes randomized messages only, {ON_DEVICE}")
        if message.trajectory is not None:
            raise ValueError(f"message.trajectory: must be None, not raw data but {ON_DEVICE}")
        return message.message

    def _read(self, plan: int, message: bytes) -> tuple[bytes, Any]:
        """Nonce and numbers of a message to the open plan."""
        found: tuple[bytes, Any] = self._device.read(plan, message)
        return found

    def _count_sender(self, nonce: bytes | None) -> None:
        """Her message is taken, then she is counted: before anything of hers is added."""
        if nonce is not None:
            if self._came[0] != self._plans:  # those of the last plan are late now
                self._came = self._plans, set()
            self._came[1].add(nonce)
        self._count(1)
