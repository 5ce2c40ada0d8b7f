"""Shuffler, a process that another operator runs.

It receives single messages, and sends only sums of batches.

The shuffler is between devices and the service (:mod:`discreet.service.app`). It has these tasks:

- It **relays** the service's signed plans unchanged. Before this, it checks that the plans are batches of the
  study's schedule. It also checks that devices draw as many random bits as the study's guarantee requires. It
  derives the mechanism from the same study file as the service. Therefore the service cannot use less noise
  or smaller batches than the study file states.
- It **provides tickets and marks them as used**, assigns places, and receives messages. It uses the same code
  for its database as the service. One transaction marks a ticket and stores its message. It is on the disk
  before the shuffler answers with code 202. The service never sees a ticket. Therefore a party that knows
  which user has which ticket learns nothing from the service.
- When every user of a batch has answered or is absent, it **sums the messages**
  (:class:`discreet.mechanisms.shuffle.shuffle_session.Shuffler`). It stores the sum and removes the messages
  in one transaction. If fewer messages arrived than the guarantee of the batch requires, the shuffler makes
  no sum, and the messages of the batch are lost.
- It **sends the signed sum** to the service repeatedly, until the service confirms that the sum is on its
  disk. The service keeps the first sum of a turn permanently, and accepts the same bytes again. Therefore no
  sum is lost or counted twice, even if one of the two processes is killed.

The addresses and times of messages are not stored. Only the shuffler's database links tickets to messages,
and only until the batch is summed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pydantic_core

from discreet.device.http_client import SERVICE
from discreet.device.published_device import device_from_bytes
from discreet.ledger.signatures import PrivateKey, is_valid, short
from discreet.service import encoding as codec
from discreet.service.app import Service
from discreet.service.batch_sums import AnyShuffler, ShuffledBatches, sum_of
from discreet.service.database import StaleWriter, Store
from discreet.service.message_validation import ShuffleAdmission
from discreet.service.participant_statement import make_participant_statement
from discreet.service.release_worker import LeaseHolder
from discreet.service.study_config import Study
from discreet.service.system_io import SYSTEM, Io

__all__ = ["Forwarder", "ShufflerService", "check_plans"]

# seconds between two requests for the next plans, after every user of the open plans answered or is absent
_WAIT = 0.05


def check_plans(
    study: Study, content: Any, before: int, known: bytes
) -> tuple[bytes, list[tuple[int, int, str]]]:
    """Check the plans that the service published for a turn, and return their form and their rows.

    Parameters
    ----------
    content : the publication, after its signature was checked.
    before : number of users of all earlier plans.
    known : form that was adopted for an earlier turn of this session; empty if there is none.

    Raises ``ValueError`` if the publication does not follow the study. In this case, no user is asked to take
    part.
    """
    if content["trust"] != "shuffle" or content["shuffler"] != dict(study.shuffler or {}):
        raise ValueError("plans: are of another kind of trust, or name another shuffler")
    form = codec.of_text(content["form"])
    session = device_from_bytes(form).session
    if known and device_from_bytes(known).session != session:
        raise ValueError("plans: are of another session than those before")
    rows = [(one["number"], one["users"], codec.canonical(one).decode()) for one in content["plans"]]
    if any(type(value) is not int or value < 1 for number, users, _ in rows for value in (number, users)):
        raise ValueError("plans: must be numbered, and each have at least one user")
    batches = ShuffledBatches(study, session)
    batches.check(before, [users for _, users, _ in rows])
    if batches.form(before) != form:
        raise ValueError("plans: devices would add other noise than the study's guarantee assumes")
    return form, rows


def _is_receipt(content: bytes, turn: int) -> bool:
    """Return True if the answer is the service's own confirmation of the sum, not an answer of a proxy."""
    try:
        found = pydantic_core.from_json(content)
    except ValueError:
        return False
    return bool(found == {"status": "counted", "turn": turn, "service": SERVICE})


class Forwarder(LeaseHolder):
    """Writer of a shuffler: it adopts plans, sums batches and sends the sums, while it holds the lease.

    The attributes ``before_commit`` and ``before_send`` are functions for tests. ``before_commit`` is called
    after a sum is made and before it is stored. ``before_send`` is called after the sum is stored and before
    it is sent.
    """

    def __init__(
        self,
        study: Study,
        store: Store,
        key: PrivateKey,
        service_key: str,
        http: httpx.Client,
        holder: str,
        io: Io,
    ) -> None:
        super().__init__(store, holder, io)
        self._study, self._key, self._service_key, self._http = study, key, service_key, http
        self._lock = io.lock()
        self._tag = ""
        self.before_commit: Callable[[], None] = lambda: None
        self.before_send: Callable[[], None] = lambda: None
        self.refused = 0  # number of admitted messages that could not be added to a sum; must stay 0

    # ------------------------------------------------------------------------- one step
    def step(self) -> bool:
        """Run the next step: sum a batch, send a sum, or adopt the next plans.

        Returns True if a step was run.

        Raises ``ConnectionError`` if the service does not answer, and ``ValueError`` if the service's answer
        is invalid. Raises :class:`~discreet.service.database.StaleWriter` if another process did the step
        first.
        """
        with self._lock:
            token = self.token
            if token is None or self._store.about()["over"]:
                return False
            try:
                summed = self._sum(token)
                sent = self._send()
                return self._adopt(token) or sent or summed
            except StaleWriter:
                if self.token == token:
                    self.token = None
                raise

    def _sum(self, token: int) -> bool:
        """Sum the open batch, if every user of the batch has answered or is absent."""
        plans = self._store.plans()
        if not plans or any(one["came"] + one["absent"] < one["users"] for one in plans):
            return False
        turn = int(plans[0]["turn"])
        if self._store.sum_of(turn) is not None:
            return False
        session = device_from_bytes(bytes(self._store.about()["form"])).session
        shuffler = ShuffledBatches(self._study, session).shuffler(self._store.people_before(turn))
        for plan in plans:
            self._receive(shuffler, plan)
        people = sum(int(one["users"]) for one in plans)
        body = codec.canonical(sum_of(self._key, self._study.identity, turn, shuffler, people))
        self.before_commit()
        self._store.summed(token, turn, body)
        return True

    def _receive(self, shuffler: AnyShuffler, plan: dict[str, Any]) -> None:
        bodies, before = self._store.messages(int(plan["number"])), shuffler.received
        if len(bodies) != plan["came"]:
            raise RuntimeError(f"plan {plan['number']}: {len(bodies)} messages are stored of {plan['came']}")
        shuffler.open(int(plan["number"]), int(plan["users"]))
        shuffler.receive_many(bodies)
        self.refused += len(bodies) - (shuffler.received - before)

    def _send(self) -> bool:
        """Send a sum that the service has not confirmed; return False if there is none."""
        kept = self._store.unsent()
        if kept is None:
            return False
        turn, body = kept
        self.before_send()
        answer = self._asked("POST", "/sums", content=body, headers={"Content-Type": "application/json"})
        if answer.status_code != 202 or not _is_receipt(answer.content, turn):
            raise ValueError(f"service: answers {answer.status_code} to the sum of turn {turn}")
        self._store.was_sent(turn)
        return True

    def _adopt(self, token: int) -> bool:
        """Adopt the service's next plans if they are published.

        The sum for the current plans must be stored and confirmed before. Returns False if nothing was
        adopted.
        """
        about, plans = self._store.about(), self._store.plans()
        turn = int(about["turn"])
        if plans and (self._store.sum_of(turn) is None or self._store.unsent() is not None):
            return False
        answer = self._asked("GET", "/plan", headers={"If-None-Match": self._tag} if self._tag else {})
        if answer.status_code == 304:
            return False
        if answer.status_code != 200:
            raise ValueError(f"service: answers {answer.status_code} to GET /plan")
        signed = json.loads(answer.content)
        content = signed["content"]
        if not is_valid(self._service_key, "discreet plan, 1", content, signed["signature"]):
            raise ValueError(f"plans: are not signed by {short(self._service_key)}, the service's key")
        if content["identity"] != self._study.identity:
            raise ValueError("plans: are of another study, or of this one with another file")
        if content["turn"] not in (turn, turn + 1):
            raise ValueError(
                f"plans: are of turn {content['turn']}, and this database is at {turn}: one was lost, "
                "or set back; no user is asked to take part"
            )
        if content["turn"] == turn and not content["over"]:
            self._tag = answer.headers.get("etag", "")
            return False
        form, rows = bytes(about["form"]), list[tuple[int, int, str]]()
        if not content["over"]:
            form, rows = check_plans(self._study, content, self._store.people_before(turn + 1), form)
        self._store.adopt(
            token, int(content["turn"]), form, answer.content, rows, bool(content["over"]), self._io.now()
        )
        self._tag = answer.headers.get("etag", "")
        return True

    def _asked(self, method: str, path: str, **how: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **how)
        except httpx.TransportError as error:
            raise ConnectionError(f"service: {type(error).__name__}") from None
        if answer.status_code >= 500:
            raise ConnectionError(f"service: answers {answer.status_code}")
        return answer


class ShufflerService(Service):
    """Process of a shuffler.

    It answers the requests of all users. While it holds the lease, it also sums batches and forwards the sums
    (:class:`Forwarder`).
    """

    admission: ShuffleAdmission

    def __init__(
        self,
        study: Study,
        store: Store,
        key: PrivateKey,
        service: str,
        service_key: str,
        io: Io = SYSTEM,
    ) -> None:
        if study.shuffler is None or study.shuffler["key"] != key.public:
            raise ValueError(f"shuffler.key: is not this shuffler's, {key.public}")
        body = store.relayed()
        if body:  # the study has begun, and the database holds its plans
            signed = json.loads(body)
            if not is_valid(service_key, "discreet plan, 1", signed["content"], signed["signature"]):
                raise ValueError(
                    f"service_key = {service_key}: did not sign the plans that this database holds: must be "
                    "the key of the service whose shuffler this is"
                )
        self._http = io.http(service, 10.0)
        self._service_key = service_key
        super().__init__(study, store, key, io)

    def _parts(self, holder: str) -> tuple[Any, Any]:
        forwarder = Forwarder(
            self.study, self.store, self._key, self._service_key, self._http, holder, self.io
        )
        return ShuffleAdmission(), forwarder

    def _content(self) -> dict[str, Any]:
        programs = self.store.programs()
        return make_participant_statement(self.study, None, self._key.public, programs=programs)

    def _pause(self) -> float:
        """Return the seconds until the next check for work.

        The time is short if no open plan waits for a user, because all other users then wait for the next
        plans.
        """
        return _WAIT if self.store.whole else super()._pause()

    async def stop(self) -> None:
        """Stop in the same way as the service, then close the HTTP connection to the service."""
        await super().stop()
        self._http.close()

    def _refresh(self) -> None:
        """Publish the service's signed plans for the current turn, as stored in this database."""
        about = self.store.about()
        turn, over = int(about["turn"]), bool(about["over"])
        stays = self.store.standing().stays(self.study.answer_within)
        if stays != self.stays:  # plans have the signature of the service, and keep its time
            self._state(stays)
        if turn < 0 or (turn, over) == (self.turn, self.over):
            return
        body = self.store.relayed()
        content = pydantic_core.from_json(body)["content"]
        # the turn changed between the two reads of the database
        if (content["turn"], content["over"]) != (turn, over):
            return
        numbers = [int(one["number"]) for one in content["plans"]]
        if not over:
            self.admission.batch(device_from_bytes(bytes(about["form"])), numbers)
        self.newest = max(numbers, default=self.newest)
        self.shown = body, self._tag(body)
        self.turn, self.over, self._clean = turn, over, False
        self.turns.set(turn)
