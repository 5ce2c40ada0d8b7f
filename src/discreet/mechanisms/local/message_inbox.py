"""Inbox of a local session, which decodes, checks and counts messages of users' devices. Each message counts
once.

A message consists of bytes that a device created (:mod:`discreet.device.message_envelope`). In simulations
and within one process, it can also be the array of numbers from the session's own encoder. Such an array has
no nonce and always counts as a new message. Within a plan every nonce is accepted once. Late messages are
rejected before their nonce is read, so the nonces of closed plans need not be stored. The nonces are part of
the saved state.

A nonce is recorded before its sender is counted. An interrupt between these two steps loses a message, and
the plan still expects one user (``absent`` can count that user). With the opposite order, one user could be
counted twice.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.core.releases import ON_DEVICE, Floats, Message
from discreet.core.rng import Key
from discreet.core.session import ChannelSession, State
from discreet.device.message_envelope import NONCE, MessageRejected

REACH = 40.0  # in noise scales; the probability that a Laplace draw is larger is 4e-18


def local_message(message: Any, reach: Floats) -> Floats:
    """Return the (cells,) noisy cells of a local-privacy user.

    reach : (cells,) largest contribution plus :data:`REACH` noise scales. Without this bound one message
    could dominate the sum of all users.

    Raises ``ValueError`` if no honest device sends such values.
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
    """Return the number in [0, 2^64) that identifies a session in its messages. The number is not secret.

    key : noise key of a seeded run, or None. With None, the operating system draws the number. Equal seeds
        give equal numbers. Different seeds, runs and batches of a run give different numbers, so that other
        sessions reject a message to one session. The number is a hash and does not reveal the key.
    """
    if key is None:
        return secrets.randbits(64)
    digest = hashlib.blake2b(key.astype("<u8").tobytes(), digest_size=8, person=b"discreet/session")
    return int.from_bytes(digest.digest(), "little")


class DeviceMessages(ABC):
    """Messages in bytes from users' devices, for channels of local privacy.

    The state of a session has two entries. ``session`` is the number of the session in messages. ``came``
    contains the number of the newest plan with messages, and the nonces of these messages.
    """

    key: Key | None

    def __init__(self) -> None:
        self._made: Any = None

    def start_messages(self) -> State:
        """Return the entries of the state before the first message."""
        return {"session": session_number(self.key), "came": (0, set[bytes]())}

    @staticmethod
    def plain_messages(state: State) -> State:
        """Return the entries of the state for a file: session number, plan, (n, 16) nonces.

        These entries are stored under the key ``messages``.
        """
        plan, nonces = state["came"]
        rows = np.frombuffer(b"".join(sorted(nonces)), np.uint8).reshape(-1, NONCE)
        rest = {name: value for name, value in state.items() if name not in ("session", "came")}
        return rest | {"messages": (state["session"], plan, rows)}

    @staticmethod
    def messages_from_plain(s: ChannelSession, state: State) -> State:
        """Return the entries of the state read from a file. Raises ``ValueError`` if they are invalid."""
        number, plan, rows = state["messages"]
        number = checks.integer("messages[0]", number, 0, 2**64 - 1)
        checks.integer("messages[1]", plan, 0, s._plans)
        if rows.ndim != 2 or rows.shape[1] != NONCE:
            raise ValueError(f"messages[2]: must be rows of {NONCE} bytes")
        rest = {name: value for name, value in state.items() if name != "messages"}
        return rest | {"session": number, "came": (plan, {row.tobytes() for row in rows})}

    @abstractmethod
    def device_for(self, session: int) -> Any:
        """Return the device program for the session with the number ``session``."""

    def own_device(self, s: ChannelSession) -> Any:
        """Return the device program. The program is created once for each session number.

        A restored session has its own device program.
        """
        if self._made is None or self._made.session != s.state["session"]:
            self._made = self.device_for(s.state["session"])
        return self._made

    def device(self, s: ChannelSession) -> Any:
        """Return a copy of the device program. Raises ``ValueError`` unless the session is local."""
        if s.guarantee.trust != "local":
            raise ValueError("device: must be asked of a local session, users of others send trajectories")
        own = self.own_device(s)
        return type(own).from_bytes(own.to_bytes())

    def check_in_time(self, s: ChannelSession, message: Message) -> None:
        """Raise an error if a message of bytes is late, or if all users of the plan have already sent a
        message.

        In the second case, a copy of an earlier message is rejected with the reason "replayed".
        """
        if s._plan is None or not isinstance(message.message, bytes):
            return s._check_plan(message)
        if message.plan != s._plans:
            raise MessageRejected("late", f"was made for plan {message.plan}, not {s._plans}")
        if not s._awaited:
            self.sent(s, message)
            raise MessageRejected("full", "all users of the plan have come")

    def sent(self, s: ChannelSession, message: Message) -> tuple[Any, bytes | None]:
        """Return the numbers that a local-privacy user sent, and the message's nonce (None for an array).

        Raises :class:`~discreet.device.message_envelope.MessageRejected` if the bytes are rejected.
        """
        payload = _payload(message)
        if not isinstance(payload, bytes):
            return payload, None
        nonce, numbers = self.read(s, message.plan, payload)
        plan, nonces = s.state["came"]
        if plan == s._plans and nonce in nonces:
            raise MessageRejected("replayed", "came before, and counts already")
        return numbers, nonce

    def read(self, s: ChannelSession, plan: int, message: bytes) -> tuple[bytes, Any]:
        """Return the nonce and the numbers in a message to the open plan."""
        found: tuple[bytes, Any] = self.own_device(s).read(plan, message)
        return found

    def count_sender(self, s: ChannelSession, nonce: bytes | None) -> None:
        """Record the nonce and then count the sender, before the message is added to the sums."""
        if nonce is not None:
            if s.state["came"][0] != s._plans:  # messages to the previous plan are late now
                s.state["came"] = s._plans, set()
            s.state["came"][1].add(nonce)
        s._count(1)


def _payload(message: Message) -> Any:
    """Return the content of a local-privacy user's message: bytes or an array of numbers."""
    if message.message is None:
        raise ValueError(f"message.message = None: takes randomized messages only, {ON_DEVICE}")
    if message.trajectory is not None:
        raise ValueError(f"message.trajectory: must be None, not raw data but {ON_DEVICE}")
    return message.message
