"""Checks of a message before it is stored.

The session repeats these checks. Errors never quote the content of a message.

Under central trust, a message is JSON with ``ticket``, ``plan`` and ``nonce`` (32 hexadecimal digits, drawn
by the device). It also has the lists ``states`` (H + 1 entries), ``actions`` (H entries) and ``rewards`` (H
entries, in the study's units). In a study with contexts, ``contexts`` replaces ``states``: one context, whose
numbers are in their declared ranges, with null for a missing number. Under local trust, a message is JSON
with ``ticket`` and ``message``.
``message`` is an envelope (:mod:`discreet.device.message_envelope`) in base64. The header of the envelope
contains plan and nonce. Under shuffle trust, the shuffler receives the same JSON. Under central trust, the
database stores bytes of a fixed size. Otherwise, it stores the envelope.

An error states the location of the fault and the accepted values, but never the value itself. A value in a
trajectory is private, but errors are logged by proxies, shown on screens and copied into mails.
"""

from __future__ import annotations

import base64
import binascii
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectories
from discreet.device import shuffle_payload as messages
from discreet.device.count_device import CountDevice
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_device import LinearDevice
from discreet.device.message_envelope import Envelope, MessageRejected
from discreet.device.published_device import PublishedDevice, device_from_bytes
from discreet.device.randomized_response_device import ReportDevice
from discreet.device.shuffle_payload import SessionConfig
from discreet.device.skellam_device import SkellamDevice
from discreet.mechanisms.linear.context_query import ContextRecords
from discreet.mechanisms.local.message_inbox import REACH
from discreet.service.database import ReservationRequest, TicketMessage, WithdrawalRequest, hashed
from discreet.service.study_config import Study

__all__ = [
    "Admission",
    "CentralAdmission",
    "ContextAdmission",
    "LocalAdmission",
    "Malformed",
    "ShuffleAdmission",
    "admission_of",
]

_LONGEST_TICKET = 100
NONCE = 16


class Malformed(ValueError):
    """Error for a message that no client of this library would send.

    reason : "malformed", "foreign" (made for another session) or "late" (made for no known plan).
    """

    def __init__(self, words: str, reason: str = "malformed") -> None:
        super().__init__(words)
        self.reason = reason


def _ticket(table: Any) -> bytes:
    if not isinstance(table, dict):
        raise Malformed("must be an object")
    ticket = table.get("ticket")
    if not isinstance(ticket, str) or not 0 < len(ticket) <= _LONGEST_TICKET or not ticket.isascii():
        raise Malformed("ticket: must be a text, as it was issued")
    return hashed(ticket)


def place_of(table: Any) -> ReservationRequest:
    """Return the request for a place in the parsed JSON ``{"ticket": ...}``."""
    ticket = _ticket(table)
    if len(table) != 1:
        raise Malformed("must hold a ticket, and nothing else")
    return ReservationRequest(ticket)


def withdrawal_of(table: Any) -> WithdrawalRequest:
    """Return the withdrawal in the parsed JSON ``{"ticket": ...}``."""
    return WithdrawalRequest(place_of(table).ticket)


def _integers(table: Mapping[str, Any], name: str, count: int, size: int) -> list[int]:
    found = table.get(name)
    if not isinstance(found, list) or len(found) != count:
        raise Malformed(f"{name}: must be a list of {count} integers")
    if set(map(type, found)) != {int} or min(found) < 0 or max(found) >= size:
        raise Malformed(f"{name}: every entry must be an integer in [0, {size - 1}]")
    return found


@dataclass(frozen=True)
class CentralAdmission:
    """Checker of trajectories under central trust.

    - rewards : range (low, high) of rewards, which is mapped to [0, 1].
    """

    layout: Layout
    rewards: tuple[float, float] = (0.0, 1.0)

    _FIELDS: ClassVar[tuple[str, ...]] = ("actions", "nonce", "plan", "rewards", "states", "ticket")
    _TYPE: ClassVar[str] = "<i4"  # type of a state in the database

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rows", self.layout.row_index.tolist())

    def answer(self, table: Any) -> TicketMessage:
        """Return the checked message. Raises :class:`Malformed` if it is invalid."""
        ticket, layout = _ticket(table), self.layout
        if len(table) != len(self._FIELDS) or not all(name in table for name in self._FIELDS):
            raise Malformed(f"must hold {', '.join(self._FIELDS)}, and nothing else")
        plan, nonce = table["plan"], table["nonce"]
        if type(plan) is not int or not 0 < plan < 2**63:
            raise Malformed("plan: must be the number of a plan")
        try:
            mark = bytes.fromhex(nonce) if isinstance(nonce, str) and len(nonce) == 2 * NONCE else b""
        except ValueError:
            mark = b""
        if len(mark) != NONCE:
            raise Malformed(f"nonce: must be {2 * NONCE} hexadecimal digits")
        states = self._states(table)
        actions = _integers(table, "actions", layout.horizon, layout.actions)
        if layout.mask is not None:
            rows: list[list[int]] = self._rows  # type: ignore[attr-defined]
            if any(rows[s][a] < 0 for s, a in zip(states, actions, strict=False)):
                raise Malformed("actions: one of them is not admissible in its state")
        earned, (low, high) = table["rewards"], self.rewards
        if not isinstance(earned, list) or len(earned) != layout.horizon:
            raise Malformed(f"rewards: must be a list of {layout.horizon} numbers")
        if not set(map(type, earned)) <= {int, float} or not all(low <= one <= high for one in earned):
            raise Malformed(f"rewards: every entry must be a number in [{low:g}, {high:g}]")
        values = np.array(earned, np.float64)
        if (low, high) != (0.0, 1.0):
            # rounding in the last bit can give a value slightly outside [0, 1]
            values = np.clip((values - low) / (high - low), 0.0, 1.0)
        if not np.isfinite(values).all():
            raise Malformed("rewards: every entry must be a finite number")
        body = b"".join(
            [
                np.array(states, self._TYPE).tobytes(),
                np.array(actions, "<i4").tobytes(),
                values.astype("<f8").tobytes(),
            ]
        )
        return TicketMessage(ticket, plan, mark, body)

    def _states(self, table: Mapping[str, Any]) -> list[Any]:
        """Return the checked states."""
        return _integers(table, "states", self.layout.horizon + 1, self.layout.states)

    def records(self, bodies: Sequence[bytes]) -> Trajectories | ContextRecords:
        """Return the records of n stored messages, in the format of the session.

        The arrays of trajectories are ``(n, H + 1)`` states, ``(n, H)`` actions and ``(n, H)`` rewards in
        [0, 1].
        """
        steps, n = self.layout.horizon, len(bodies)
        table = np.frombuffer(b"".join(bodies), np.uint8).reshape(n, -1)
        ends = table.shape[1] - 12 * steps, table.shape[1] - 8 * steps
        states = np.ascontiguousarray(table[:, : ends[0]]).view(self._TYPE)
        actions = np.ascontiguousarray(table[:, ends[0] : ends[1]]).view("<i4").astype(np.int64)
        rewards = np.ascontiguousarray(table[:, ends[1] :]).view("<f8").astype(np.float64)
        return self._records(states, actions, rewards)

    def _records(self, states: Any, actions: Any, rewards: Any) -> Trajectories | ContextRecords:
        return Trajectories(states.astype(np.int64), actions, rewards)


@dataclass(frozen=True)
class ContextAdmission(CentralAdmission):
    """Checker of records with real-valued contexts under central trust.

    - features : public feature map. A device clips each number of a context to its declared range.
    """

    features: FeatureMap = field(kw_only=True)

    _FIELDS: ClassVar[tuple[str, ...]] = ("actions", "contexts", "nonce", "plan", "rewards", "ticket")
    _TYPE: ClassVar[str] = "<f8"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_ranges", tuple(self.features.ranges.items()))

    def _states(self, table: Mapping[str, Any]) -> list[Any]:
        """Return the numbers of the checked context, with NaN for missing numbers."""
        given = table["contexts"]
        if not isinstance(given, list) or len(given) != 1:
            raise Malformed("contexts: must be a list with one context")
        if self.features.form == "per_action":
            return self._row(given[0])
        if not isinstance(given[0], list) or len(given[0]) != self.features.actions:
            raise Malformed(
                f"contexts: the context must have a list for each of {self.features.actions} actions"
            )
        return [one for row in given[0] for one in self._row(row)]

    def _row(self, row: Any) -> list[float]:
        ranges: tuple[tuple[str, tuple[float, float]], ...] = self._ranges  # type: ignore[attr-defined]
        if not isinstance(row, list) or len(row) != len(ranges):
            raise Malformed(f"contexts: a list must have {len(ranges)} entries, one for each column")
        for one, (name, (low, high)) in zip(row, ranges, strict=True):
            if one is not None and not (type(one) in (int, float) and low <= one <= high):
                raise Malformed(f"contexts: {name} must be null or a number in [{low:g}, {high:g}]")
        return [math.nan if one is None else float(one) for one in row]

    def _records(self, states: Any, actions: Any, rewards: Any) -> ContextRecords:
        contexts = states.astype(np.float64).reshape(-1, 1, *self.features.shape)
        return ContextRecords(contexts, actions, rewards)


def _enveloped(table: Any) -> tuple[bytes, bytes]:
    """Return the hash of the ticket, and the bytes of the envelope."""
    ticket = _ticket(table)
    text = table.get("message")
    if len(table) != 2 or not isinstance(text, str):
        raise Malformed("must hold ticket and message, and nothing else")
    try:
        return ticket, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("message: must be base64") from None


class _EnvelopeAdmission(ABC):
    """Checker of envelopes, for the plans that this process knows."""

    _newest = 0  # largest plan number that this process knows

    def is_newer(self, table: Any) -> bool:
        """Return True if a message is for a plan that another process opened and this process does not know
        yet.
        """
        try:
            return Envelope.from_bytes(base64.b64decode(table["message"])).plan > self._newest
        except (ValueError, TypeError, KeyError):
            return False

    def answer(self, table: Any) -> TicketMessage:
        """Return the checked message. Raises :class:`Malformed` if it is invalid."""
        ticket, body = _enveloped(table)
        try:
            found = Envelope.from_bytes(body)
            if found.plan > self._newest:
                raise Malformed("message: was made for no plan of this study", "late")
            self._check(found.plan, body)
        except MessageRejected as refusal:
            words = {"foreign": "was made for another session"}.get(refusal.reason, "is not of the form")
            raise Malformed(f"message: {words}", refusal.reason) from None
        except Malformed:
            raise
        except (ValueError, OverflowError):
            raise Malformed("message: is not of the form") from None
        return TicketMessage(ticket, found.plan, found.nonce, body)

    @abstractmethod
    def _check(self, plan: int, body: bytes) -> None:
        """Raise an error if the device cannot have sent the envelope for this plan."""


class ShuffleAdmission(_EnvelopeAdmission):
    """Checker of the envelopes that devices send to a shuffler. It accepts envelopes for the newest batch."""

    def __init__(self) -> None:
        self._open: tuple[PublishedDevice | None, frozenset[int]] = None, frozenset()

    def batch(self, device: PublishedDevice, plans: Iterable[int]) -> None:
        """Set the form and the plans of the current batch; older plans are closed."""
        self._open = device, frozenset(plans)
        self._newest = max(self._open[1], default=0)

    def _check(self, plan: int, body: bytes) -> None:
        device, plans = self._open
        if plan not in plans:  # the plan is closed, so the message does not count, for any content
            if plan == 0:
                raise Malformed("message: was made for no plan of this study", "late")
        elif isinstance(device, SessionConfig):
            messages.read(device, plan, body)
        elif isinstance(device, SkellamDevice):
            device.read(plan, body)
        elif isinstance(device, ReportDevice):
            device.read(plan, body, True)


class LocalAdmission(_EnvelopeAdmission):
    """Checker of the envelopes that devices send under local trust, for the plans that this process knows."""

    def __init__(self, device: PublishedDevice) -> None:
        if not isinstance(device, CountDevice | ReportDevice | LinearDevice):
            raise ValueError("form: is for a shuffler, which this study does not have")
        self._device = device
        self._reach: np.ndarray[Any, np.dtype[np.float64]] | None = None
        if isinstance(device, CountDevice):
            scales = np.array([scale for _, scale in device.families])
            self._reach = np.repeat(device.horizon + REACH * scales, np.diff(device.offsets))
        elif isinstance(device, LinearDevice):  # the products of features and rewards are at most 1
            self._reach = np.repeat(1.0 / device.units + REACH * device.scales, np.diff(device.offsets))
        self._stochastic: dict[int, bool] = {}

    def plan(self, number: int, policy: Any) -> None:
        """Add a plan that this process knows. Messages for plans with a larger number are rejected."""
        stochastic = isinstance(self._device, ReportDevice) and self._device.policy_rows(policy) is None
        self._stochastic[number] = stochastic
        self._newest = max(self._newest, number)

    def opened(self, plan: int, body: bytes) -> Any:
        """Return the content of a stored envelope, in the form in which a session accepts it.

        plan : number of the plan that the envelope answers. Raises ``ValueError`` if the envelope is invalid.
        """
        device = self._device
        found = device.words(plan, body) if isinstance(device, ReportDevice) else device.read(plan, body)
        return found[1]

    def _check(self, plan: int, body: bytes) -> None:
        device = self._device
        if not isinstance(device, ReportDevice):
            # as floats, because the least 64-bit integer has no absolute value among integers
            if (np.abs(device.read(plan, body)[1].astype(np.float64)) > self._reach).any():
                raise Malformed("message: holds more than any device sends")
        elif plan in self._stochastic:
            device.read(plan, body, self._stochastic[plan])
        else:  # the plan of the message is closed, so the message does not count
            device.words(plan, body)
        if plan == 0:
            raise Malformed("message: is of no plan", "late")


Admission = CentralAdmission | LocalAdmission | ShuffleAdmission


def admission_of(study: Study, form: bytes) -> Admission:
    """Return the checker of messages for a study; ``form`` is empty under central trust."""
    if form:
        return LocalAdmission(device_from_bytes(form))
    if study.features is not None:
        return ContextAdmission(study.layout, study.rewards, features=study.features)
    return CentralAdmission(study.layout, study.rewards)
