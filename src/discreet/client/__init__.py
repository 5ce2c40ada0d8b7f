"""A person's side of the policy service: fetch the plan, act, encode on her own device, send, try again.

NumPy and httpx (``pip install 'discreet[client]'``), and what runs on a device (:mod:`discreet.device`);
nothing of the server. ::

    from discreet.client import Client

    with Client("https://study.example", key="9f3c...", promised=4.0) as client:
        place = client.place(ticket)
        states, actions, rewards = [first], [], []
        for h in range(place.horizon):
            actions.append(place.action(h, states[-1]))
            ...  # act, observe
        message = place.message(states, actions, rewards)  # encoded once
        client.send(message)  # as often as it takes: the same bytes

**Once.** :meth:`Place.message` encodes one trajectory one time, with the device's own randomness; what it
gives is kept and sent again until there is an answer. Two messages about one trajectory would cost what two
people's cost. Under local trust ``place.guarantee`` says what the message gives away, computed here from
what the server published; a plan that asks for more than ``promised`` is refused.

**To whom.** Under shuffle trust messages go to the shuffler that the plan names, and the address to give is
the shuffler's: it passes the service's plans on, so that the service hears of nobody. A person who was told
of a shuffler says ``promised="shuffle"`` and ``shuffler="https://..."``: plans that name another one, or no
shuffler, are refused. The guarantee of the sums rests on what is flipped on all devices of a batch, which
the shuffler compares with the study.

**Whose plan.** With ``key``, the service's public key in 64 hexadecimal digits, a plan that is not signed
with it is refused (``pip install cryptography``). Without, whoever can answer at the address can give any
plan.
"""

from __future__ import annotations

import base64
import json
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import httpx
import numpy as np

from discreet.device.counts import CountDevice
from discreet.device.encoders import ShuffleEncoder
from discreet.device.guarantee import MessageGuarantee
from discreet.device.messages import Form
from discreet.device.reports import ReportDevice

__all__ = ["Client", "Message", "Place", "Turned"]

_WAITS: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds between tries


class Turned(RuntimeError):
    """The service refuses. reason : full, late, spent, foreign, malformed, ...; status : HTTP's.

    After ``full`` another plan comes: ask for a place again. After the others nothing more is to be sent.
    """

    def __init__(self, status: int, reason: str, words: str) -> None:
        super().__init__(f"{reason}: {words}")
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Message:
    """What is sent: ``table`` as JSON. To be kept until it is answered, and sent as it is."""

    table: Mapping[str, Any] = field(repr=False)


class Place:
    """A place in a plan: what to do, and how to tell of it once.

    number : of the plan. policy : (H, S) actions, or (H, S, A) probabilities. seconds : until she is absent.
    """

    def __init__(self, ticket: str, seconds: float, plan: Mapping[str, Any], book: Mapping[str, Any]) -> None:
        self._ticket, self._book = ticket, book
        self.number, self.seconds = int(plan["number"]), float(seconds)
        self.policy = np.array(plan["policy"])
        self.horizon = int(book["world"]["horizon"])
        self._told = False

    def action(self, h: int, state: int) -> int:
        """What the policy does at step h in a state; of probabilities, a draw by the system's coins."""
        if self.policy.ndim == 2:
            return int(self.policy[h, state])
        at = secrets.randbits(53) / 2**53
        sums = np.cumsum(self.policy[h, state])
        played = np.flatnonzero(self.policy[h, state])
        found = int(np.searchsorted(sums / sums[-1], at, side="right"))
        return found if found in played else int(played[-1])

    @property
    def device(self) -> CountDevice | ReportDevice | Form | None:
        """What randomizes here, under local and shuffle trust; None where the server is trusted with the
        record.
        """
        return _device_of(self._book)

    @property
    def guarantee(self) -> MessageGuarantee | None:
        """What her message gives away by itself; None under central trust: all of it, to the server."""
        device = self.device
        return None if device is None else device.guarantee

    def message(
        self, states: Sequence[int], actions: Sequence[int], rewards: Sequence[float], coins: Any = None
    ) -> Message:
        """The message about one trajectory: H + 1 states, H actions, H rewards in the study's units.

        coins : of the device; by default the operating system's. Raises ``RuntimeError`` the second time.
        """
        if self._told:
            raise RuntimeError("message: was made already; send the same one again, never a second one")
        device = self.device
        if device is None and self._book["trust"] != "joint":
            raise ValueError("plan: says that nobody need be trusted, and asks for the record as it is")
        low, high = self._book["world"]["rewards"]
        earned = np.array(rewards, np.float64)
        if not ((earned >= low) & (earned <= high)).all():
            raise ValueError(f"rewards: every entry must be a number in [{low:g}, {high:g}]")
        if device is None:
            made = {
                "ticket": self._ticket,
                "plan": self.number,
                "nonce": secrets.token_hex(16),
                "states": [int(one) for one in states],
                "actions": [int(one) for one in actions],
                "rewards": earned.tolist(),
            }
        else:
            if (low, high) != (0.0, 1.0):
                earned = np.clip((earned - low) / (high - low), 0.0, 1.0)
            own, acts = np.array(states, np.int64), np.array(actions, np.int64)
            if isinstance(device, Form):
                sent = ShuffleEncoder(device, self.number)(own, acts, earned, coins)
            elif isinstance(device, ReportDevice):
                sent = device(self.number, self.policy, own, acts, earned, coins)
            else:
                sent = device(self.number, own, acts, earned, coins)
            made = {"ticket": self._ticket, "message": base64.b64encode(sent).decode()}
        self._told = True
        return Message(made)


def _promise(promised: Any) -> tuple[float, float] | None:
    """(epsilon, delta) of a message; None where the record itself may be sent, or what a shuffler is to
    hide.
    """
    if isinstance(promised, str) and promised in ("central", "shuffle"):
        return None
    given = promised if isinstance(promised, tuple) else (promised, 0.0)
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in given)
    if len(given) != 2 or not numbers or not 0.0 < given[0] < math.inf or not 0.0 <= given[1] < 1.0:
        raise ValueError(
            f'promised = {promised!r}: must be "central", "shuffle", a positive epsilon, or (epsilon, delta) '
            "with delta in [0, 1)"
        )
    return float(given[0]), float(given[1])


def _device_of(book: Mapping[str, Any]) -> CountDevice | ReportDevice | Form | None:
    if book["form"] is None:
        return None
    content = base64.b64decode(book["form"])
    kinds: dict[bytes, Any] = {b'"kind":"reports"': ReportDevice, b'"kind":"bits"': Form}
    kind = next((kind for name, kind in kinds.items() if name in content), CountDevice)
    found: CountDevice | ReportDevice | Form = kind.from_bytes(content)
    return found


class Client:
    """A policy service at an address.

    Parameters
    ----------
    url : where it is; under shuffle trust, where the shuffler is.
    key : the service's public key, 64 hexadecimal digits; plans that it did not sign are refused.
    promised : what the person was told: ``"central"`` if the server may see records as they are;
        ``"shuffle"`` if her message goes to ``shuffler``, which is to let out sums alone; under local trust
        the largest epsilon that a message may give away, or (epsilon, delta). Whoever serves the study
        signs its plans, and plans say what is sent: one that asks for more than this is refused.
    shuffler : its address, without / at the end, as the person was told it; plans that name another are
    refused.
    identity : of the study, from its statement; plans of another one are refused.
    tries : how often a request is sent that nobody answered.
    http : an ``httpx.Client`` to use in place of an own one.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        promised: Literal["central", "shuffle"] | float | tuple[float, float],
        shuffler: str | None = None,
        identity: str | None = None,
        tries: int = 8,
        timeout: float = 30.0,
        http: httpx.Client | None = None,
    ) -> None:
        self._http = http or httpx.Client(base_url=url, timeout=timeout)
        self._key, self._tries = key, tries
        self._promised, self._identity = _promise(promised), identity
        self._shuffled, self._shuffler = promised == "shuffle", shuffler
        if self._shuffled and not shuffler:
            raise ValueError(
                'shuffler = None: must be the address that the person was told, with promised="shuffle"'
            )
        self._places: dict[str, Place] = {}
        self._tag = ""
        self._book: Mapping[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    # --------------------------------------------------------------------------- what is public
    def plan(self) -> Mapping[str, Any]:
        """What is published now: ``turn``, ``plans``, ``world``, ``form``, ``over``; asked by its ETag."""
        answer = self._asked("GET", "/plan", headers={"If-None-Match": self._tag} if self._tag else {})
        if answer.status_code != 304:
            signed = answer.json()
            self._check(signed)
            self._check_promise(signed["content"])
            self._book, self._tag = signed["content"], answer.headers.get("etag", "")
        return self._book

    def statement(self) -> Mapping[str, Any]:
        """What is promised to people."""
        found: Mapping[str, Any] = self._asked("GET", "/statement").json()
        return found

    def release(self, number: int) -> Mapping[str, Any]:
        """The sums that release ``number`` made public."""
        found: Mapping[str, Any] = self._asked("GET", f"/releases/{number}").json()
        return found

    def _check_promise(self, book: Mapping[str, Any]) -> None:
        if self._identity is not None and book["identity"] != self._identity:
            raise ValueError("plan: is of another study")
        named = book.get("shuffler")
        if self._shuffler is not None and (named is None or named["url"] != self._shuffler):
            raise ValueError(f"plan: names another shuffler than {self._shuffler}, or none")
        if self._shuffled and book["trust"] != "shuffle":
            raise ValueError("plan: is not of shuffle trust, which was promised")
        if self._promised is None:
            if book["trust"] == "shuffle" and not self._shuffled:
                raise ValueError('plan: is of shuffle trust; say promised="shuffle", and whose shuffler')
            return
        device = _device_of(book)
        guarantee = None if device is None else device.guarantee
        (most, delta), epsilon = self._promised, math.inf
        if guarantee is not None:
            pure = math.inf if guarantee.epsilon is None else guarantee.epsilon
            # at a delta two computations may differ in their last digits
            epsilon = guarantee.epsilon_at(delta) * (1.0 - 1e-9) if delta > 0.0 else pure
        if not epsilon <= most:
            given = "the record as it is" if guarantee is None else f"epsilon = {epsilon:g}"
            raise ValueError(f"plan: asks for {given}, but epsilon = {most:g} was promised")

    def _check(self, signed: Mapping[str, Any]) -> None:
        if self._key is None:
            return
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        text = json.dumps(
            signed["content"], sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self._key))
            key.verify(bytes.fromhex(signed["signature"]), f"discreet plan, 1\n{text}".encode())
        except (InvalidSignature, ValueError):
            raise ValueError("plan: is not signed with the service's key") from None

    # --------------------------------------------------------------------------- taking part
    def place(self, ticket: str) -> Place:
        """A place for one person. Raises :class:`Turned` where there is none (``full``: ask again later)."""
        given = self._asked("POST", self._to("/places"), json={"ticket": ticket}).json()
        return self._placed(ticket, given)

    def places(self, tickets: Sequence[str]) -> list[Place | Turned]:
        """Places for many, in their order, by one request."""
        given = self._asked("POST", self._to("/places"), json={"tickets": list(tickets)}).json()["results"]
        return [
            self._placed(ticket, one)
            if one["status"] == "placed"
            else Turned(409, one["status"], one["words"])
            for ticket, one in zip(tickets, given, strict=True)
        ]

    def _to(self, path: str) -> str:
        """Where tickets and messages go: to the shuffler, where there is one."""
        at = self._shuffler
        if at is None and self._promised is not None:
            named = (self._book or self.plan()).get("shuffler")
            at = None if named is None else named["url"]
        return path if at is None else f"{at}{path}"

    def _placed(self, ticket: str, given: Mapping[str, Any]) -> Place:
        for wait in (0.0, *_WAITS[:6]):  # what is in hand, or in a cache on the way, may be an older one
            for plan in self._book.get("plans", ()):
                if plan["number"] == given["plan"]:
                    return self._places.setdefault(ticket, Place(ticket, given["seconds"], plan, self._book))
            time.sleep(wait)
            self.plan()
        raise Turned(410, "late", "the plan of this place is not published any more")

    def send(self, message: Message) -> Mapping[str, Any]:
        """Send a message, again and again until there is an answer. Raises :class:`Turned`."""
        found: Mapping[str, Any] = self._asked("POST", self._to("/messages"), json=dict(message.table)).json()
        return found

    def send_all(self, messages: Sequence[Message]) -> list[Mapping[str, Any]]:
        """Many messages by one request: what became of each."""
        many = {"messages": [dict(one.table) for one in messages]}
        found: list[Mapping[str, Any]] = self._asked("POST", self._to("/messages"), json=many).json()[
            "results"
        ]
        return found

    def _asked(self, method: str, path: str, **values: Any) -> httpx.Response:
        """One request, sent until it is answered by more than "come again"."""
        for wait in (*_WAITS, *[_WAITS[-1]] * self._tries)[: self._tries]:
            try:
                answer = self._http.request(method, path, **values)
            except httpx.TransportError:
                time.sleep(wait)
                continue
            if answer.status_code in (429, 503):
                time.sleep(wait)
                continue
            if answer.status_code >= 400:
                try:
                    said = answer.json()
                    reason, words = str(said["reason"]), str(said["words"])
                except (ValueError, KeyError, TypeError):
                    reason, words = "refused", f"HTTP status {answer.status_code}"
                raise Turned(answer.status_code, reason, words)
            return answer
        raise ConnectionError(f"{method} {path}: no answer after {self._tries} tries")
