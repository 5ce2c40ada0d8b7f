"""Client of the policy service.

The client fetches the plan, selects actions, and encodes the message on the user's device. It sends the
message with retries.

It needs NumPy, httpx and cryptography (``pip install 'discreet[client]'``). It uses only the device code of
this library (:mod:`discreet.device`). ::

    from discreet.device.http_client import Client

    with Client("https://study.example", key="9f3c...", promised=4.0) as client:
        place = client.place(ticket)

        states, actions, rewards = [first], [], []

        for h in range(place.horizon):
            actions.append(place.action(h, states[-1]))
            ...  # act, observe

        message = place.message(states, actions, rewards)  # call this only once
        client.send(message)  # repeats the same bytes until the service answers

**Encoded once.** :meth:`PlanReservation.message` encodes a trajectory only once, with random numbers drawn on
the device. The message is stored, and is sent again until the service answers. Two different messages about
one trajectory would add their privacy losses. Under local trust, ``place.guarantee`` states the privacy loss
of the message. The device computes it from the form that the server publishes. The client rejects a plan
whose privacy loss is above ``promised``.

**Receiver.** Under shuffle trust, messages go to the shuffler that the plan names, and ``url`` is the
shuffler's address. The shuffler relays the service's plans, so users never connect to the service. A user who
was promised a shuffler sets ``promised="shuffle"`` and ``shuffler="https://..."``. The client then rejects
plans that name another shuffler, or none. The privacy guarantee of the released sums depends on the random
bits of all devices of a batch. Therefore the shuffler checks that the devices draw as many random bits as the
study requires.

**Origin of a plan.** If ``key``, the service's public key, is given, the client rejects plans that are not
signed with this key. Without a key, any party that can answer at the address can supply any plan. A plan is
fetched and checked before a ticket is sent.

The client accepts an answer as an answer of the service only if it is JSON that names the service
(``"service": "discreet/1"``). Any other answer comes from an intermediary, for example an error page of a
proxy or the login page of a network. The client treats neither such an answer nor a broken connection as a
refusal or a receipt. The client then sends the same bytes again after a random wait. The upper bound of this
wait doubles each time, up to one minute. If the answer asks for a wait (``Retry-After``), this wait is added.
A message is repeated until its place expires. After that, the exception :class:`NoAnswer` contains the
message, which can be stored (:meth:`PendingMessage.to_bytes`) and sent later.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, Self

import httpx
import numpy as np
from numpy.typing import NDArray

from discreet.device.context_form import checked_contexts
from discreet.device.context_policy import chosen_actions
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_device import LinearDevice
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.published_device import PublishedDevice, device_from_bytes
from discreet.device.randomized_response_device import ReportDevice
from discreet.device.shuffle_encoder import ShuffleEncoder, checked_life
from discreet.device.shuffle_payload import SessionConfig
from discreet.device.skellam_device import SkellamDevice

__all__ = ["SERVICE", "Client", "Guest", "PendingMessage", "NoAnswer", "Pace", "PlanReservation", "Turned"]

SERVICE = "discreet/1"  # value of "service" in every answer of the service

_FIRST, _LONGEST = 0.1, 60.0  # seconds: upper bound of the first wait, and largest upper bound of a wait
_MOST_AFTER = 300.0  # seconds: a longer Retry-After is reduced to this limit
_STALE = (
    0.0,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
)  # seconds to wait before each new download while a cache returns an older plan
# Number of downloads until a plan that is earlier than the last one is rejected.
_EARLIER = 4
_COME_AGAIN = frozenset({408, 425, 429})  # 4xx codes after which the same request can succeed later
_KEPT = "message, 1"
_SPKI = bytes.fromhex("302a300506032b6570032100")  # DER prefix before the 32 bytes of an Ed25519 public key
_PEM = re.compile(r"\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*")


class Turned(RuntimeError):
    """Error that is raised if the service refuses a request.

    * reason : one word, such as full, late, spent, foreign or malformed.
    * status : the HTTP status code.
    * after : number of seconds to wait, or None if the service names no time.
    * release : for the reason ``again``, the number of the release from which the user can take part again.
      If it is None, the user took part as often as allowed, or has an open place.

    Every reason except ``full``, ``paused`` and ``again`` is final. After ``full`` and ``paused``, ask for a
    place again, not before ``after`` seconds have passed.
    """

    def __init__(
        self, status: int, reason: str, words: str, after: float | None = None, release: Any = None
    ) -> None:
        super().__init__(f"{reason}: {words}")
        self.status, self.reason, self.after = status, reason, after
        self.release = release if type(release) is int else None

    @property
    def final(self) -> bool:
        """True if the service will always refuse the same request."""
        return self.reason not in ("full", "paused", "again")


@dataclass(frozen=True)
class PendingMessage:
    """Message to send, with the JSON content ``table``.

    It must be stored until the service answers, and sent unchanged.

    ``plan`` is the number of the plan, which the answer must also state. ``until`` is the time at which the
    place expires, in seconds since 1970 on the device's clock; 0 if it is unknown.
    """

    table: Mapping[str, Any] = field(repr=False)
    plan: int = 0
    until: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the message as bytes for a file or a browser's storage.

        The bytes require the same protection as the message.
        """
        kept = {"discreet": _KEPT, "plan": self.plan, "until": self.until, "table": dict(self.table)}
        return json.dumps(kept, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> PendingMessage:
        """Return the message from bytes of :meth:`to_bytes` or of the JavaScript client.

        Raises ``ValueError`` if the bytes are not such a message.
        """
        try:
            kept = json.loads(content)
            table, plan, until = kept["table"], kept["plan"], kept["until"]
            good = kept["discreet"] == _KEPT and isinstance(table, dict) and type(plan) is int
            good = good and type(until) in (int, float) and math.isfinite(until)
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            raise ValueError("content: must be the bytes of a message, from PendingMessage.to_bytes")
        return cls(table, plan, float(until))


class NoAnswer(ConnectionError):
    """Error that is raised if the service does not answer. The service may have received the request.

    ``messages`` are the messages that were sent without an answer. Store them, and send the same messages
    again later. If a message was already counted, the service does not count it again and sends the same
    answer.
    """

    def __init__(self, words: str, messages: Sequence[PendingMessage] = ()) -> None:
        super().__init__(words)
        self.messages = tuple(messages)

    @property
    def message(self) -> PendingMessage | None:
        """The first message without an answer; None if the request contained no message."""
        return self.messages[0] if self.messages else None


@dataclass(frozen=True)
class Pace:
    """Time functions of a client.

    ``now`` returns the seconds since 1970, ``sleep`` waits for a number of seconds, and ``random`` returns
    random numbers in [0, 1) for the lengths of waits.
    """

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.SystemRandom().random


class Guest:
    """Published policy for a user without a place. The user sends nothing.

    Attributes
    ----------
    number : number of the plan.
    policy : (H, S) actions, (H, S, A) probabilities, or (blocks, p) coefficients of contexts.
    context : arrays for the exploration of users with contexts (:mod:`discreet.device.context_policy`).
    features : public map of contexts; None in a study with states.
    horizon : H, the number of steps.
    """

    def __init__(self, plan: Mapping[str, Any], book: Mapping[str, Any]) -> None:
        self.number = int(plan["number"])
        self.policy = np.array(plan["policy"])
        self.context = {name: np.array(one, np.float64) for name, one in plan.get("context", {}).items()}
        self.features = _features_of(book)
        self.horizon = int(book["world"]["horizon"])
        self._seed = secrets.randbits(128)  # a user explores with the same draw at all steps

    def action(self, h: int, state: Any) -> int:
        """Return the action of the policy at step h in a state, or for a context.

        If the policy is stochastic, the action is drawn with the operating system's random generator. In a
        study with contexts, ``state`` has the numbers of one context, in the order of the feature map. Then
        all calls use the same random numbers.
        """
        if self.features is not None:
            phi, shared = self.features(state)[None], self.features.form == "shared"
            rng = np.random.default_rng(self._seed)
            return int(chosen_actions(self.policy, self.context, phi, shared, rng)[0])
        if self.policy.ndim == 2:
            return int(self.policy[h, state])
        at = secrets.randbits(53) / 2**53
        sums = np.cumsum(self.policy[h, state])
        played = np.flatnonzero(self.policy[h, state])
        found = int(np.searchsorted(sums / sums[-1], at, side="right"))
        return found if found in played else int(played[-1])


@dataclass(frozen=True)
class _World:
    """Sizes of a study, and the (S, A) table of admissible pairs, which has -1 where an action is not
    admissible.
    """

    states: int
    actions: int
    horizon: int
    row_table: NDArray[np.int64]

    @classmethod
    def of(cls, world: Mapping[str, Any]) -> _World:
        """Return the sizes that a plan states."""
        sizes = int(world["states"]), int(world["actions"]), int(world["horizon"])
        mask = world.get("mask")
        admissible = np.ones(sizes[:2], bool) if mask is None else np.array(mask, bool)
        return cls(*sizes, np.where(admissible, 0, -1))


class PlanReservation(Guest):
    """Place of one user in a plan, with the policy to follow and the encoder of the user's message.

    Attributes
    ----------
    number : number of the plan.
    policy : (H, S) actions, (H, S, A) probabilities, or (blocks, p) coefficients of contexts.
    seconds : time in seconds after which the place expires and the user counts as absent.
    """

    def __init__(
        self,
        ticket: str,
        seconds: float,
        plan: Mapping[str, Any],
        book: Mapping[str, Any],
        until: float = 0.0,
    ) -> None:
        super().__init__(plan, book)
        self._ticket, self._book, self._until = ticket, book, until
        self.seconds = float(seconds)
        self._encoded = False

    @property
    def device(self) -> PublishedDevice | None:
        """Encoder that randomizes the message on this machine, under local or shuffle trust.

        It is None under central trust, because the server then receives the trajectory unchanged.
        """
        return _device_of(self._book)

    @property
    def guarantee(self) -> MessageGuarantee | None:
        """Privacy loss of the user's message for a reader of this message, without a shuffler.

        It is None under central trust, because the server then receives the trajectory unchanged.
        """
        device = self.device
        return None if device is None else device.guarantee

    def message(
        self, states: Sequence[Any], actions: Sequence[int], rewards: Sequence[float], coins: Any = None
    ) -> PendingMessage:
        """Encode the message about one trajectory.

        The trajectory has H + 1 states, H actions, and H rewards in the study's units. In a study with
        contexts, ``states`` has one context, whose numbers are clipped to their ranges. ``coins`` is the
        random generator of the device; the default is the operating system's. Raises ``RuntimeError`` if a
        message was encoded before, and ``ValueError`` for an entry out of range.
        """
        if self._encoded:
            raise RuntimeError(
                "message: was encoded already; send the same message again, never a second one"
            )
        device = self.device
        if device is None and self._book["trust"] != "joint":
            raise ValueError("plan: states that no party is trusted, but requests the unchanged record")
        low, high = self._book["world"]["rewards"]
        earned = np.array(rewards, np.float64)
        if not ((earned >= low) & (earned <= high)).all():
            raise ValueError(f"rewards: every entry must be a number in [{low:g}, {high:g}]")
        if device is None:
            made = {
                "ticket": self._ticket,
                "plan": self.number,
                "nonce": secrets.token_hex(16),
                **self._raw(states, actions, np.zeros(earned.shape)),
                "actions": [int(one) for one in actions],
                "rewards": earned.tolist(),
            }
        else:
            if (low, high) != (0.0, 1.0):
                earned = np.clip((earned - low) / (high - low), 0.0, 1.0)
            sent = self._sent(device, states, actions, earned, coins)
            made = {"ticket": self._ticket, "message": base64.b64encode(sent).decode()}
        self._encoded = True
        return PendingMessage(made, self.number, self._until)

    def _sent(self, device: Any, states: Any, actions: Any, earned: Any, coins: Any) -> bytes:
        """Encode a record as the bytes that the device sends. Rewards are in [0, 1]."""
        if isinstance(device, LinearDevice):
            return device(self.number, {}, states, actions, earned, coins)
        if isinstance(device, SkellamDevice):
            return device(self.number, states, actions, earned, coins)
        own, acts = np.array(states, np.int64), np.array(actions, np.int64)
        if isinstance(device, SessionConfig):
            return ShuffleEncoder(device, self.number)(own, acts, earned, coins)
        sent: bytes = (
            device(self.number, self.policy, own, acts, earned, coins)
            if isinstance(device, ReportDevice)
            else device(self.number, own, acts, earned, coins)
        )
        return sent

    def _raw(self, states: Any, actions: Any, zeros: Any) -> dict[str, Any]:
        """Check the states, or the context, and the actions; return the first as JSON values."""
        if self.features is None:
            own, _, _ = checked_life(_World.of(self._book["world"]), states, actions, zeros)
            return {"states": own.tolist()}
        contexts, _, _ = checked_contexts(self.features, states, actions, zeros, (1,), "record")
        clipped = self.features.clipped(contexts)
        sent = clipped.astype(object)
        sent[np.isnan(clipped)] = None
        return {"contexts": sent.tolist()}


def _promise(promised: Any) -> tuple[float, float] | None:
    """Check the argument ``promised`` of :class:`Client`, and return its (epsilon, delta) for one message.

    Returns None for "central" and "shuffle".
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


def _features_of(book: Mapping[str, Any]) -> FeatureMap | None:
    plain = book["world"].get("features")
    return None if plain is None else FeatureMap.from_dict(plain)


def _device_of(book: Mapping[str, Any]) -> PublishedDevice | None:
    return None if book["form"] is None else device_from_bytes(base64.b64decode(book["form"]))


def _public_key(key: Any) -> bytes:
    """Return the 32 bytes of a public key.

    ``key`` is 64 hexadecimal digits, PEM text, or the path of a file that contains one of these.
    """
    wrong = (
        "must be the service's public key: 64 hexadecimal digits, PEM text, or the path of service.key.pub"
    )
    text, shown = key if isinstance(key, str) else "", repr(key if key is None else str(key)[:100])
    if isinstance(key, os.PathLike) or (text and "\n" not in text and len(text) != 64):
        try:
            text = Path(key).read_text(encoding="ascii")
        except (OSError, ValueError):
            raise ValueError(f"key = {shown}: {wrong}; no such file can be read") from None
    if "PRIVATE KEY" in text:  # the key is not printed, because it is a secret
        raise ValueError(f"key: is a private key; {wrong}")
    if re.fullmatch(r"\s*[0-9a-fA-F]{64}\s*", text):
        return bytes.fromhex(text)
    pem = _PEM.fullmatch(text)
    try:
        content = base64.b64decode("".join(pem[1].split()), validate=True) if pem else b""
    except ValueError:
        content = b""
    if not content.startswith(_SPKI) or len(content) != len(_SPKI) + 32:
        raise ValueError(f"key = {shown}: {wrong}")
    return content[len(_SPKI) :]


def _retry_after(answer: httpx.Response, now: float) -> float | None:
    """Return the number of seconds that the header Retry-After asks the client to wait.

    The header is a number or a date. Returns None if it is missing or cannot be read.
    """
    said = answer.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", said):
        return min(float(said), _MOST_AFTER)
    try:
        at = parsedate_to_datetime(said)
    except (ValueError, TypeError, IndexError):
        return None
    if at.tzinfo is None:  # the time zone "-0000" means UTC
        at = at.replace(tzinfo=UTC)
    return min(max(at.timestamp() - now, 0.0), _MOST_AFTER)


def _table(answer: httpx.Response) -> dict[str, Any]:
    """Return the JSON object in an answer; empty if the answer is not a JSON object."""
    try:
        found = answer.json()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_plan(found: Mapping[str, Any]) -> bool:
    signed = isinstance(found.get("content"), dict), isinstance(found.get("signature"), str)
    return all(signed) and found["content"].keys() >= {"identity", "trust", "plans", "world", "form"}


def _is_log(found: Mapping[str, Any]) -> bool:
    """Return True if an answer has the form of a log: a signed content with links of releases."""
    content = found.get("content")
    links = content.get("links") if isinstance(content, dict) else None
    pairs = isinstance(links, list) and all(isinstance(one, list) and len(one) == 2 for one in links)
    return pairs and isinstance(found.get("signature"), str)


def _is_place(found: Any) -> bool:
    good = isinstance(found, dict) and found.get("status") == "placed" and type(found.get("plan")) is int
    return good and type(found.get("seconds")) in (int, float) and math.isfinite(found["seconds"])


def _are_results(found: Mapping[str, Any], count: int) -> bool:
    results = found.get("results")
    if not isinstance(results, list) or len(results) != count:
        return False
    return all(isinstance(one, dict) and isinstance(one.get("status"), str) for one in results)


def _is_of(found: Mapping[str, Any], message: PendingMessage) -> bool:
    """Return True if the plan in a receipt is the plan of the message."""
    return type(found.get("plan")) is int and message.plan in (0, found["plan"])


class Client:
    """Client of the policy service at a given address.

    Parameters
    ----------
    url : address of the service, or of the shuffler under shuffle trust.
    key : public key of the service: 64 hexadecimal digits, PEM text, or the path of ``service.key.pub``.
        Plans that are not signed with this key are rejected.
    promised : what the user was promised about the data that are sent. It is ``"central"`` if the server is
        allowed to see trajectories unchanged, or ``"shuffle"`` if the message goes to ``shuffler``, which
        must release only sums. Under local trust, it is the largest epsilon of a message, or (epsilon,
        delta). A plan determines what is sent, and a plan that exceeds this promise is rejected, even if it
        is signed.
    shuffler : address of the shuffler that was promised to the user, without a final /. Plans that name
        another shuffler are rejected.
    identity : identity of the study, from its statement. Plans of other studies are rejected.
    tries : smallest number of tries of a request before :class:`NoAnswer` is raised. A message is sent again
        until its place expires, even if that takes more tries.
    timeout : number of seconds after which one try fails.
    http : an ``httpx.Client`` to use instead of a new client.
    pace : functions for the time, for waiting, and for random numbers.
    witness : (number, link) of the newest release that this user has seen; the attribute ``witness`` is
        updated after each plan. A plan with a smaller number is rejected. A service whose log does not
        contain this link is also rejected, because it was restored from an older database.

    Raises ``ValueError`` for an invalid argument, and ``ImportError`` if ``key`` is given and
    ``cryptography`` is not installed.
    """

    def __init__(
        self,
        url: str,
        key: str | os.PathLike[str] | None = None,
        *,
        promised: Literal["central", "shuffle"] | float | tuple[float, float],
        shuffler: str | None = None,
        identity: str | None = None,
        tries: int = 8,
        timeout: float = 30.0,
        http: httpx.Client | None = None,
        pace: Pace = Pace(),
        witness: tuple[int, str] | None = None,
    ) -> None:
        self._known = None if key is None else _public_key(key)
        self._verify = None if self._known is None else _verifier(self._known)
        self.witness: tuple[int, str] | None = None
        if witness is not None:
            number, link = witness  # can be a list, if it was stored as JSON
            self.witness = number, link
        if type(tries) is not int or tries < 1:
            raise ValueError(f"tries = {tries!r}: must be a positive integer")
        self._http = http or httpx.Client(base_url=url, timeout=timeout)
        self._tries, self._pace = tries, pace
        self._promised, self._identity = _promise(promised), identity
        self._shuffled, self._shuffler = promised == "shuffle", shuffler
        if self._shuffled and not shuffler:
            raise ValueError(
                'shuffler = None: must be the address that was promised to the user, with promised="shuffle"'
            )
        self._places: dict[str, PlanReservation] = {}
        self._tag = ""
        self._book: Mapping[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    # --------------------------------------------------------------------------- what is public
    def plan(self) -> Mapping[str, Any]:
        """Return the current publication of the service. It is downloaded only if its ETag has changed.

        The publication has the entries ``turn``, ``plans``, ``world``, ``form`` and ``over``. Raises
        ``ValueError`` if it exceeds the promise or is not signed with the key, and :class:`NoAnswer` if the
        service does not answer.
        """
        for left in reversed(range(_EARLIER)):
            headers = {"If-None-Match": self._tag} if self._tag else {}
            answer, signed = self._asked(
                "GET", "/plan", 200, _is_plan, cached=bool(self._tag), headers=headers
            )
            if answer.status_code == 304:
                return self._book
            self._check(signed)
            self._check_promise(signed["content"])
            # a cache, or a second process, can have an earlier plan for a moment
            if left and self._is_earlier(signed["content"]):
                self._pace.sleep(1.0)
                continue
            self._check_chain(signed["content"])
            self._book, self._tag = signed["content"], answer.headers.get("etag", "")
            break
        return self._book

    def statement(self) -> Mapping[str, Any]:
        """Download the study's privacy statement for users."""
        return self._asked("GET", "/statement", 200, lambda found: "identity" in found)[1]

    def release(self, number: int) -> Mapping[str, Any]:
        """Download the sums that the service published in release ``number``."""
        return self._asked("GET", f"/releases/{number}", 200, lambda found: found.get("number") == number)[1]

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
            # The tolerance is needed because two computations of epsilon can differ in the last digits.
            epsilon = guarantee.epsilon_at(delta) * (1.0 - 1e-9) if delta > 0.0 else pure
        if not epsilon <= most:
            given = "the record as it is" if guarantee is None else f"epsilon = {epsilon:g}"
            raise ValueError(f"plan: asks for {given}, but epsilon = {most:g} was promised")

    def _check(self, signed: Mapping[str, Any], what: str = "plan") -> None:
        if self._verify is None or self._is_signed(signed, what):
            return
        followed = self._followed()
        if followed is not None:
            self._verify = followed
        if followed is None or not self._is_signed(signed, what):
            raise ValueError(f"{what}: is not signed with the service's key")

    def _is_signed(self, signed: Mapping[str, Any], what: str) -> bool:
        assert self._verify is not None
        text = json.dumps(
            signed["content"], sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
        try:
            good = self._verify(bytes.fromhex(signed["signature"]), f"discreet {what}, 1\n{text}".encode())
        except ValueError:
            good = False
        return good

    def _followed(self) -> Callable[[bytes, bytes], bool] | None:
        """Return the verifier of the service's current key, reached by signatures from the known key.

        Returns None if the service has no rows from the known key to another one.
        """
        if self._shuffled or self._known is None:  # a shuffler has no rows
            return None
        try:
            rows = self._asked("GET", "/keys", 200, lambda found: isinstance(found.get("keys"), list), True)[
                1
            ]
            public = followed_key(rows["keys"], self._known.hex(), self._identity)
        except (Turned, NoAnswer):
            return None
        return None if public is None else _verifier(bytes.fromhex(public))

    def _is_earlier(self, book: Mapping[str, Any]) -> bool:
        chain = book.get("chain")
        turn = chain.get("turn") if isinstance(chain, dict) else None
        return self.witness is not None and type(turn) is int and turn < self.witness[0]

    def _check_chain(self, book: Mapping[str, Any]) -> None:
        """Check that the service was not restored from an older database, and remember its newest release."""
        chain, seen = book.get("chain"), self.witness
        if seen is None and chain is None:  # a service of version 0.3.0 has no log
            return
        if not isinstance(chain, dict) or type(chain.get("turn")) is not int or not chain.get("link"):
            raise ValueError("plan: has no chain of releases, which earlier plans had")
        turn, link = chain["turn"], str(chain["link"])
        if seen is not None and seen != (turn, link):
            if turn <= seen[0]:
                raise ValueError(
                    f"plan: is of release {turn}, after one of release {seen[0]}: it was set back"
                )
            if not self._shuffled:  # the log of a shuffler has no links
                path = f"/log?from={seen[0]}"
                found = self._asked("GET", path, 200, _is_log, True)[1]
                self._check(found, "log")
                if found["content"].get("identity") != book["identity"]:
                    raise ValueError("log: is of another study")
                if not {(*seen,), (turn, link)} <= {(one[0], one[1]) for one in found["content"]["links"]}:
                    raise ValueError(f"plan: its log does not contain release {seen[0]} as it was seen")
        self.witness = turn, link

    # --------------------------------------------------------------------------- taking part
    def place(self, ticket: str) -> PlanReservation:
        """Reserve a place for one user.

        The plan is fetched and checked first, so that no ticket is used if the plan is rejected. Raises
        :class:`Turned` if the service refuses. If the reason of the refusal is ``full``, ask again later.
        """
        self.plan()
        asked = self._pace.now()
        _, given = self._asked("POST", self._to("/places"), 201, _is_place, True, json={"ticket": ticket})
        return self._placed(ticket, given, asked)

    def places(self, tickets: Sequence[str]) -> list[PlanReservation | Turned]:
        """Reserve places for many users with one request.

        ``tickets`` has one ticket per user. The results are in the same order. A result is a place, or an
        object :class:`Turned` if the service refuses. The plan is checked first, as in :meth:`place`.
        """
        self.plan()
        asked, many = self._pace.now(), list(tickets)

        def complete(found: Mapping[str, Any]) -> bool:
            """Return True if the answer has a result for each ticket, and if all its places are complete."""
            if not _are_results(found, len(many)):
                return False
            return all(one["status"] != "placed" or _is_place(one) for one in found["results"])

        _, given = self._asked("POST", self._to("/places"), 201, complete, True, json={"tickets": many})
        return [
            self._placed(ticket, one, asked)
            if one["status"] == "placed"
            else Turned(409, one["status"], str(one.get("words", "")), release=one.get("release"))
            for ticket, one in zip(many, given["results"], strict=True)
        ]

    def guest(self) -> Guest:
        """Return a policy for a user who found no place (reason ``full``). No ticket is used.

        The policy is the newest published one. If a release has several plans, it is that of the plan with
        the most users. The plan is checked as in :meth:`place`. Raises :class:`Turned` if no plan is
        published, and the errors of :meth:`plan`.
        """
        book = self.plan()
        plans = {one["number"]: one for one in book["plans"]}
        if not plans:
            raise Turned(410, "over", "no plan is published")
        number = book.get("fallback")
        return Guest(plans[max(plans) if number is None else number], book)

    def _to(self, path: str, messages: Sequence[PendingMessage] = ()) -> str:
        """Return the address to which tickets and messages are sent.

        If the plan names a shuffler, this is an address of the shuffler.
        """
        at = self._shuffler
        if at is None and self._promised is not None:
            try:  # the message can come from an earlier process, so this client may have no plan yet
                named = (self._book or self.plan()).get("shuffler")
            except NoAnswer as error:
                raise NoAnswer(str(error), messages) from None
            at = None if named is None else named["url"]
        return path if at is None else f"{at}{path}"

    def _placed(self, ticket: str, given: Mapping[str, Any], asked: float) -> PlanReservation:
        for wait in _STALE:  # the stored publication, or a publication from a cache, can be out of date
            for plan in self._book.get("plans", ()):
                if plan["number"] == given["plan"]:
                    place = PlanReservation(
                        ticket, given["seconds"], plan, self._book, asked + given["seconds"]
                    )
                    return self._places.setdefault(ticket, place)
            self._pace.sleep(wait)
            self.plan()
        raise Turned(410, "late", "the plan of this place is not published any more")

    def send(self, message: PendingMessage) -> Mapping[str, Any]:
        """Send a message repeatedly until the service answers, and return the receipt.

        The receipt has the entries ``status`` and ``plan``. Raises :class:`Turned` if the service refuses the
        message. Raises :class:`NoAnswer`, which contains the message, if the place expires without an answer.
        """

        def counted(found: Mapping[str, Any]) -> bool:
            return found.get("status") == "counted" and _is_of(found, message)

        path, sent = self._to("/messages", [message]), dict(message.table)
        return self._asked("POST", path, 202, counted, True, messages=[message], json=sent)[1]

    def withdraw(self, ticket: str) -> Mapping[str, Any]:
        """Withdraw a user's place or message, and return the receipt.

        The service removes the message, and the user counts as absent. The receipt has the signed ``content``
        with the SHA-256 of the ticket. Keep it. A repeated call gets the same receipt. Raises :class:`Turned`
        if the service refuses: with the reason ``closed`` if the user's batch is complete, so that their
        message is counted.
        """

        def withdrawn(found: Mapping[str, Any]) -> bool:
            receipt = found.get("receipt")
            content = receipt.get("content") if isinstance(receipt, dict) else None
            own = hashlib.sha256(ticket.encode()).hexdigest()
            return isinstance(content, dict) and (content.get("status"), content.get("ticket")) == (
                "withdrawn", own,
            )  # fmt: skip

        path = self._to("/withdrawals")
        receipt = self._asked("POST", path, 200, withdrawn, True, json={"ticket": ticket})[1]["receipt"]
        return dict(receipt)

    def send_all(self, messages: Sequence[PendingMessage]) -> list[Mapping[str, Any]]:
        """Send many messages with one request, and return the result of each message.

        Raises the same errors as :meth:`send`.
        """

        def complete(found: Mapping[str, Any]) -> bool:
            if not _are_results(found, len(messages)):
                return False
            pairs = zip(found["results"], messages, strict=True)
            return all(one["status"] != "counted" or _is_of(one, sent) for one, sent in pairs)

        many = {"messages": [dict(one.table) for one in messages]}
        path = self._to("/messages", messages)
        found = self._asked("POST", path, 202, complete, True, messages=messages, json=many)[1]
        return list(found["results"])

    def _asked(
        self,
        method: str,
        path: str,
        good: int,
        complete: Callable[[Mapping[str, Any]], bool],
        named: bool = False,
        *,
        cached: bool = False,
        messages: Sequence[PendingMessage] = (),
        **values: Any,
    ) -> tuple[httpx.Response, dict[str, Any]]:
        """Send a request repeatedly until the service answers. Returns the answer and its JSON content.

        The entry "service" is removed from the content.

        Parameters
        ----------
        good : HTTP status of success, in addition to 200.
        complete : function that returns True if the JSON has the requested content.
        named : True if the JSON must name the service.
        cached : True if the status 304 is accepted, because the content is known already.
        messages : the messages in this request. Their places determine how long the request is repeated.
        """
        until = max((one.until for one in messages), default=0.0)
        count, pace = 0, self._pace
        while True:
            count, after = count + 1, 0.0
            try:
                answer = self._http.request(method, path, follow_redirects=False, **values)
            except httpx.RequestError as error:
                last = type(error).__name__
            else:
                if cached and answer.status_code == 304:
                    return answer, {}
                found, said = _table(answer), _retry_after(answer, pace.now())
                ours = found.pop("service", None) == SERVICE
                if answer.status_code in (good, 200) and (ours or not named) and complete(found):
                    return answer, found
                refused = 400 <= answer.status_code < 500 and answer.status_code not in _COME_AGAIN
                if refused and ours and {"reason", "words"} <= found.keys():
                    given = str(found["reason"]), str(found["words"]), said, found.get("release")
                    raise Turned(answer.status_code, *given)
                last, after = f"HTTP status {answer.status_code}", said or 0.0
                last += "" if ours else ", not from the service"
            left = until - pace.now()
            if left <= 0.0 and count >= self._tries:
                kept = "; keep the message, and send the same one again" if messages else ""
                raise NoAnswer(
                    f"{method} {path}: no answer after {count} tries (the last: {last}){kept}", messages
                )
            wait = after + pace.random() * min(_LONGEST, _FIRST * 2.0 ** min(count - 1, 30))
            # the last try is made when the place expires
            pace.sleep(wait if left <= 0.0 else min(wait, left))


def followed_key(rows: Any, known: str, identity: str | None = None) -> str | None:
    """Return the current public key of a service, or None if the rows do not lead to it from a known key.

    Parameters
    ----------
    rows : rows of ``GET /keys``. Each has a ``content`` with ``identity``, ``number``, ``public`` and
        ``recovery``, the signature ``own`` by its public key, and the ``signature`` by ``signer``: the public
        key of the row before, or its recovery key.
    known : public key that the client has, 64 hexadecimal digits.
    identity : identity of the study; None for any.
    """
    trusted: set[Any] = set()
    current = None
    try:
        for row in rows:
            content = row["content"]
            if not trusted and content["public"] != known:
                continue
            if identity not in (None, content["identity"]):
                return None
            text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
            message = f"discreet key, 1\n{text}".encode()
            signers = [(content["public"], row["own"])]
            if trusted:
                if row["signer"] not in trusted:
                    return None
                signers.append((row["signer"], row["signature"]))
            if not all(_verifier(bytes.fromhex(one))(bytes.fromhex(sign), message) for one, sign in signers):
                return None
            current, trusted = str(content["public"]), {content["public"], content["recovery"]} - {None}
    except (KeyError, TypeError, ValueError):
        return None
    return current


def _verifier(key: bytes) -> Callable[[bytes, bytes], bool]:
    """Return a function of (signature, content) that verifies an Ed25519 signature with this public key."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise ImportError("key: needs cryptography: pip install 'discreet[client]'") from None
    public = Ed25519PublicKey.from_public_bytes(key)

    def verify(signature: bytes, content: bytes) -> bool:
        try:
            public.verify(signature, content)
        except InvalidSignature:
            return False
        return True

    return verify
