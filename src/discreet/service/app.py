"""HTTP application of the policy service.

Everything that the service sends to a device is first stored in the database. An answer that rejects a
request does not repeat any content of the request. Requests are not logged.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import logging
import math
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pydantic_core
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from discreet.device import http_client as client
from discreet.ledger.signatures import PrivateKey
from discreet.names import __version__
from discreet.service import encoding as codec
from discreet.service import openapi as described
from discreet.service.activity import GIVEN, Activity
from discreet.service.batch_sums import opened_sum, written_sum
from discreet.service.connection_limits import HEAD_BYTES
from discreet.service.database import AnyRequest, RequestResult, StaleWriter, Store, TicketMessage, hashed
from discreet.service.error_causes import cause, where
from discreet.service.frozen_mechanism import frozen
from discreet.service.ingest import Busy, Intake
from discreet.service.key_history import set_first_row
from discreet.service.message_validation import (
    CentralAdmission,
    LocalAdmission,
    Malformed,
    ShuffleAdmission,
    admission_of,
    place_of,
    withdrawal_of,
)
from discreet.service.operator_page import POLICY, operation_section, page, trouble_page
from discreet.service.participant_statement import make_participant_statement
from discreet.service.release_chain import OldDatabase, head_of
from discreet.service.release_worker import LEASE, Writer
from discreet.service.study_config import MOST_RELEASES, Study
from discreet.service.system_io import SYSTEM, Io

__all__ = ["Door", "Service", "application"]

log = logging.getLogger("discreet.service")

MOST_BYTES = 4 * 2**20  # Largest number of bytes in the body of a request.
MOST_MANY = 1_000  # Largest number of messages or tickets in one request.
MOST_ISSUED = 10_000  # Largest number of tickets that one request can create.
BODY_SECONDS = 10.0  # Seconds within which the body of a request must arrive.
MOST_SECONDS = 366 * 86_400.0  # Largest time to answer to which an operator can extend.
MOST_AFTER = 3600  # Largest number of seconds in the header Retry-After.
LATE = 60.0  # Seconds after which a complete batch without a release is late.
_PAUSED_AFTER = 60.0  # Seconds in the header Retry-After while the study is paused.
_POLL = 0.2  # Seconds between two checks for changes by other processes.
_SWEEP = 0.02  # Seconds between two removals of counted messages; a removal blocks other requests.

_CODES = {
    "counted": 202, "placed": 201, "full": 409, "spent": 409, "replayed": 409, "placeless": 409, "late": 410,
    "over": 410, "closed": 410, "foreign": 403, "malformed": 400, "oversized": 413, "slow": 408, "busy": 503,
    "paused": 503, "unauthorized": 401, "unknown": 404, "headers": 431, "again": 403,
}  # fmt: skip
_WORDS = {
    "full": "no place is free now: ask again later",
    "again": "this person took part as often as the study allows, too recently, or has an open place",
    "spent": "this ticket was used",
    "replayed": "these bytes came with another ticket",
    "placeless": "this ticket has no place: ask for one before you act",
    "late": "this plan is over, or the time of this place is",
    "over": "the study is over",
    "paused": "the operator has paused the study: ask again in a minute",
    "closed": "the message is counted: its batch is complete, and a sum cannot be changed",
    "foreign": "no such ticket was issued by this study, or the message was made for another one",
    "busy": "nothing is known of this request: send it again",
    "slow": "the request did not arrive in time",
    "unauthorized": "an operator's token is needed",
    "unknown": "there is no such thing here",
    "headers": f"the headers of a request must have at most {HEAD_BYTES} bytes",
}


class ServiceError(Exception):
    """Exception with which a request is rejected. It contains the reason and the text of the answer."""

    def __init__(self, reason: str, words: str = "") -> None:
        super().__init__(reason)
        self.reason, self.words = reason, words or _WORDS.get(reason, reason)


def _json(code: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """Return a JSON answer that names this service.

    The name distinguishes the answer from the error page of a proxy and from the login page of a network.
    """
    body = pydantic_core.to_json({**content, "service": client.SERVICE})
    return Response(body, code, headers, "application/json")


def _refused(reason: str, words: str = "", seconds: float = 0.0) -> Response:
    """Return the answer to a rejected request.

    seconds : if all places are taken, the time in seconds after which a new request can succeed.
    """
    seconds = _PAUSED_AFTER if reason == "paused" else seconds
    headers = {"Retry-After": str(_after(seconds))} if reason in ("busy", "full", "paused") else None
    if reason == "unauthorized":
        headers = {"WWW-Authenticate": "Bearer"}
    return _json(_CODES[reason], {"reason": reason, "words": words or _WORDS.get(reason, reason)}, headers)


def _after(seconds: float) -> int:
    """Return a waiting time in seconds, rounded up to whole seconds.

    A time above one minute is rounded up to whole minutes, so that it reveals less about the times of other
    requests.
    """
    known = min(max(1, math.ceil(seconds)), MOST_AFTER)
    return known if known <= 60 else 60 * math.ceil(known / 60)


def _only(table: Any, name: str) -> Any:
    """Return the value of a JSON object's only key; None if it has another form."""
    return table.get(name) if isinstance(table, dict) and len(table) == 1 else None


class Service:
    """Process of a study's service.

    It answers the requests of all users. While it holds the lease, it also makes releases.
    """

    def __init__(self, study: Study, store: Store, key: PrivateKey, io: Io = SYSTEM) -> None:
        self.study, self.store, self._key, self.io = frozen(study, store), store, key, store.clocked(io)
        holder = f"{socket.gethostname()}:{os.getpid()}:{io.random_bytes(4).hex()}"[-64:]
        self.admission, self.writer = self._parts(holder)
        self.writer.head = head_of(study, store, self.io)
        self._wake = asyncio.Event()
        self.intake = Intake(store, study.answer_within, self._wrote, study.closes_after, self.io)
        self.turn, self.over, self.newest = -1, False, 0
        self.stays = 0.0  # published seconds between a reservation and its deadline
        self.shown = b"", ""  # the published plans, and their ETag
        self._refreshing = io.lock()
        self._clean = False  # True if all counted messages have been removed
        self._due = math.inf  # seconds from the last check to the next time of the rule "clock"
        store.bind_key(key.public)
        if isinstance(self.writer, Writer):
            set_first_row(self.study, store, key)
        self.content, self.statement = dict[str, Any](), b""
        self._state(store.standing().stays(study.answer_within))
        self._tasks: list[asyncio.Task[None]] = []
        self.failed = ""  # reason why no more releases are made
        self._stopped = False  # True if the database is older than its head
        self.activity = Activity(io)
        self._made = self.io.monotonic()  # time at which this object was made
        self._whole: tuple[int, float] | None = None  # turn of a complete batch, and since when it is known
        self._make_metrics()

    def _make_metrics(self) -> None:
        """Make the metrics of this process."""
        self.registry = CollectorRegistry()
        self.messages = Counter(
            "discreet_messages", "Messages by what became of them", ["outcome"], registry=self.registry
        )
        self.given = Counter(
            "discreet_places", "Places asked for, by what became of that", ["outcome"], registry=self.registry
        )
        self.lost = Counter("discreet_absent", "People who did not answer in time", registry=self.registry)
        self.seconds = Histogram(
            "discreet_message_seconds", "From a request with messages to its answer", registry=self.registry,
            buckets=(0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 5),
        )  # fmt: skip
        self.turns = Gauge("discreet_turn", "Releases made", registry=self.registry)
        self.holds = Gauge(
            "discreet_holds_lease", "1 where this process makes releases", registry=self.registry
        )
        self.bad = Counter(
            "discreet_refused_by_session", "Admitted, but refused by the session", registry=self.registry
        )

        self.sums = Counter(
            "discreet_sums", "A shuffler's sums by what became of them", ["outcome"], registry=self.registry
        )
        self.ticketed = Counter(
            "discreet_tickets", "Requests for tickets, by what became of them", ["outcome"],
            registry=self.registry,
        )  # fmt: skip
        self.refusals = Counter(
            "discreet_refusals", "Refused requests, by reason", ["reason"], registry=self.registry
        )
        self.guests = Counter("discreet_guests", "Requests that found no place", registry=self.registry)
        self._now_gauges = {
            name: Gauge(f"discreet_{name}", words, registry=self.registry)
            for name, words in (
                ("batch_age_seconds", "Time since the newest plans opened"),
                ("batch_resolved", "People of the open batch who answered or are absent"),
                ("in_flight", "People who took a place and have not answered"),
                ("lease_held", "1 where this process makes releases"),
            )
        }
        self._counted = {
            "/messages": self.messages, "/places": self.given, "/sums": self.sums, "/tickets": self.ticketed,
        }  # fmt: skip

    def _parts(self, holder: str) -> tuple[Any, Any]:
        """Return the checker of messages and the object that makes releases."""
        form = bytes(self.store.about()["form"])
        shuffled = self.study.shuffled  # under shuffle trust, devices send messages to the shuffler
        admission = ShuffleAdmission() if shuffled else admission_of(self.study, form)
        return admission, Writer(self.study, self.store, holder, self.io)

    def _state(self, stays: float) -> None:
        """Sign the statement for participants; ``stays`` is the time in seconds that they have to answer."""
        content = self._content()
        if "absent" in content:
            content["absent"]["answer_within_seconds"] = stays
        signature = self._key.sign("discreet service, 1", content)
        self.content, self.statement = content, codec.canonical({**content, "signature": signature})
        self.stays = stays

    def _content(self) -> dict[str, Any]:
        """Return the statement for participants, without a signature."""
        return make_participant_statement(
            self.study,
            pydantic_core.from_json(self.store.about()["ledger"]),
            self._key.public,
            self.store.close_rule(),
            self.store.programs(),
        )

    @property
    def takes_people(self) -> bool:
        """True if this process assigns places and receives messages; False if a separate shuffler does so."""
        return not isinstance(self.writer, Writer) or not self.study.shuffled

    @property
    def takes_sums(self) -> bool:
        """True if a shuffler sends its sums to this process."""
        return isinstance(self.writer, Writer) and self.study.shuffled

    def _pause(self) -> float:
        """Return the seconds until the next check for changes by other processes."""
        return min(_POLL if self._clean else _SWEEP, self._due)

    def _wrote(self) -> None:
        """Wake the release loop if the last write completed a batch.

        The loop also polls, so a missed wake-up only delays a release. With the rule "clock", no answer wakes
        the loop, because the time of the next plans would then depend on answers.
        """
        if self.store.whole and self.study.every is None:
            self._wake.set()

    # ----------------------------------------------------------------------------- start and stop
    async def start(self) -> None:
        """Read the stored state, then start to accept messages and to make releases."""
        await self.io.in_thread(self._hold)
        await self.io.in_thread(self.refresh)
        self.intake.start()
        self._tasks = [asyncio.create_task(self._turns()), asyncio.create_task(self._kept())]

    async def stop(self) -> None:
        """Write the waiting requests, then release the lease."""
        await self.intake.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.io.in_thread(self.writer.release_lease)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the service, and stop it at the end."""
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    def _hold(self) -> None:
        held = self.writer.hold()
        self.holds.set(held)

    def _expire(self) -> None:
        study = self.study
        self.lost.inc(self.store.mark_expired(self.io.now(), study.closes_after, study.answer_within))

    async def _kept(self) -> None:
        """Extend the lease regularly, even while the next turn is computed."""
        while True:
            await self.io.sleep(LEASE / 3)
            try:
                await self.io.in_thread(self._hold)
            except Exception as error:  # the next round tries again
                self.activity.fail(f"the lease could not be kept: {cause(error)}")
                log.error("the lease could not be kept: %s", cause(error))

    async def _turns(self) -> None:
        checked = self.io.monotonic()
        while True:
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            now = self.io.monotonic()
            try:
                if now - checked >= min(1.0, self.study.answer_within / 4):
                    checked = now
                    # take the lease before expired places are marked, because a new lease moves users'
                    # deadlines
                    await self.io.in_thread(self._hold)
                    if self.takes_people:
                        await self.io.in_thread(self._expire)
                    await self.io.in_thread(self._watch)
                await self.io.in_thread(self._turn)
            except StaleWriter:
                self.holds.set(0)
            except Exception as error:  # the next round tries again; the operator's page and /health report
                # the failure
                self.failed = cause(error)
                self._stopped = isinstance(error, OldDatabase)
                self.activity.fail(self.failed)
                log.error(
                    "no %s could be made: %s",
                    "release" if isinstance(self.writer, Writer) else "sum",
                    self.failed,
                )
                await self.io.sleep(1.0)

    def _turn(self) -> None:
        before = self.writer.refused
        self.writer.step()
        self.bad.inc(self.writer.refused - before)
        self.refresh()
        self.failed, self._stopped = "", False
        if not self._clean:
            self._clean = self.store.sweep() == 0
        rule = self.store.batches
        if rule is not None and self.study.every is not None:
            now, times = self.io.now(), (rule.closes(self.turn), rule.opens(self.turn))
            self._due = min((at - now for at in times if at > now), default=math.inf)

    def refresh(self) -> None:
        """Publish the plans of the current turn in the database."""
        with self._refreshing:
            self._refresh()

    def _refresh(self) -> None:
        about = self.store.about()
        turn, over = int(about["turn"]), bool(about["over"])
        stays = self.store.standing().stays(self.study.answer_within)
        if (turn, over, stays) == (self.turn, self.over, self.stays):
            return
        if stays != self.stays:
            self._state(stays)
        rows = self.store.policies(turn)
        # users without a place can follow this plan; they send nothing
        fallback = max(rows, key=lambda row: int(row["users"]))["number"] if rows else None
        # devices with a place in an earlier plan can request this plan again
        rows += self.store.held_policies(turn)
        plans = [pydantic_core.from_json(row["policy"]) for row in rows]
        if isinstance(self.admission, LocalAdmission):
            for plan in plans:
                self.admission.plan(plan["number"], codec.policy_of(plan))
        study, form = self.study, bytes(about["form"])
        if self.writer.batches is not None:
            form = self.writer.batches.form(self.store.people_before(turn))
        content = {
            "study": study.name,
            "identity": study.identity,
            "trust": study.trust,
            "turn": turn,
            "over": over,
            "plans": plans,
            "world": study.sizes,
            "form": codec.text_of(form),
            "shuffler": None if study.shuffler is None else dict(study.shuffler),
            "answer_within": stays,
            "fallback": fallback,
            "chain": {"turn": turn, "link": self.store.link(turn)},
        }
        signed = {
            "content": content, "key": self._key.public,
            "signature": self._key.sign("discreet plan, 1", content),
        }  # fmt: skip
        body = codec.canonical(signed)
        self.shown = body, self._tag(body)
        self.turn, self.over, self._clean = turn, over, False
        self.newest = max((plan["number"] for plan in plans), default=0)
        self.turns.set(turn)

    @staticmethod
    def _tag(body: bytes) -> str:
        """Return the ETag of a body, for caches."""
        return f'"{hashlib.sha256(body).hexdigest()[:32]}"'

    # ----------------------------------------------------------------------------- requests
    async def body(self, request: Request, most: int = MOST_BYTES) -> Any:
        """Return the parsed JSON body of a request.

        most : largest number of bytes. Raises :class:`ServiceError` if the body is too large, arrives too
            slowly, or is
        not JSON.
        """
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise ServiceError("oversized", f"a request must have at most {most} bytes")
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise ServiceError("oversized", f"a request must have at most {most} bytes")
                    parts.append(part)
        # a client that has disconnected does not receive this answer
        except (TimeoutError, ClientDisconnect):
            raise ServiceError("slow") from None
        try:
            return pydantic_core.from_json(b"".join(parts), allow_inf_nan=False)
        except ValueError:
            raise ServiceError("malformed", "the body must be JSON") from None

    def count(self, path: str, reason: str) -> None:
        """Count a rejected request to the given address."""
        self._outcome(self._counted.get(path), reason)

    def _outcome(self, counter: Any, status: str) -> None:
        """Count the result of a request."""
        if counter is not None:
            counter.labels(status).inc()
        self.activity.add(status)
        if status == "full":
            self.guests.inc()
        elif status not in GIVEN:
            self.refusals.labels(status).inc()

    async def put(self, requests: list[AnyRequest]) -> list[RequestResult]:
        """Store requests and return their results. Raises :class:`ServiceError` if the database is too slow
        or fails.
        """
        try:
            return await self.intake.put(requests)
        except Busy:
            raise ServiceError("busy") from None

    async def _known(self, tables: list[Any]) -> None:
        """Read the newest plans if a message is for a plan that this process does not know yet."""
        admission = self.admission
        if not isinstance(admission, CentralAdmission) and any(map(admission.is_newer, tables)):
            await self.io.in_thread(self.refresh)

    def _checked(self, table: Any) -> TicketMessage | Malformed:
        try:
            return self.admission.answer(table)
        except Malformed as error:
            return error
        except OverflowError:  # an integer in the message has more than 64 bits
            return Malformed("a number is out of range")

    async def answered(self, request: Request) -> Response:
        """Handle POST /messages."""
        begun = self.io.monotonic()
        table = await self.body(request)
        many = table.get("messages") if isinstance(table, dict) else None
        if many is None:
            await self._known([table])
            checked = self._checked(table)
            if isinstance(checked, Malformed):
                self._outcome(self.messages, checked.reason)
                return _refused(checked.reason, str(checked))
            (result,) = await self.put([checked])
            self._outcome(self.messages, result.status)
            self.seconds.observe(self.io.monotonic() - begun)
            if result.status != "counted":
                return _refused(result.status)
            return _json(202, {"status": "counted", "plan": result.plan})
        if not isinstance(many, list) or not 0 < len(many) <= MOST_MANY or len(table) != 1:
            raise ServiceError("malformed", f"messages: must be a list of 1 to {MOST_MANY}, and nothing else")
        await self._known(many)
        found = [self._checked(one) for one in many]
        good = [one for one in found if isinstance(one, TicketMessage)]
        results = iter(await self.put(list(good)) if good else [])
        said: list[dict[str, Any]] = []
        for one in found:
            if isinstance(one, Malformed):
                said.append({"status": one.reason, "words": str(one)})
            else:
                result = next(results)
                counted = result.status == "counted"
                more = {"plan": result.plan} if counted else {"words": _WORDS[result.status]}
                said.append({"status": result.status, **more})
            self._outcome(self.messages, said[-1]["status"])
        self.seconds.observe(self.io.monotonic() - begun)
        return _json(202, {"results": said})

    async def summed(self, request: Request) -> Response:
        """Handle POST /sums: store the shuffler's sum of a batch. Only the first sum of a batch counts."""
        study, batches = self.study, self.writer.batches
        try:
            assert study.shuffler is not None
            table = await self.body(request, MOST_BYTES + 32 * self.writer.cells)
            content = written_sum(table, study.shuffler["key"])
            turn = content.get("turn")
            if type(turn) is not int or not 0 <= turn <= MOST_RELEASES:
                raise ValueError("content.turn: must be the number of a release")
            before, after = await self.io.in_thread(self._people, turn)
            opened_sum(content, study.identity, batches.shuffler(before), after - before)
            outcome = await self.io.in_thread(self.store.take_sum, turn, codec.canonical(table))
        except PermissionError as error:
            raise ServiceError("unauthorized", str(error)) from None
        except ValueError as error:
            raise ServiceError("malformed", str(error)) from None
        self.sums.labels(outcome).inc()
        if outcome != "counted":
            return _refused(outcome)
        self._wake.set()
        return _json(202, {"status": "counted", "turn": turn})

    def _people(self, turn: int) -> tuple[int, int]:
        """Return the number of users before the batch of a turn, and the number including the batch.

        Raises :class:`ServiceError` if the batch has not been opened yet.
        """
        before, after = self.store.people_before(turn), self.store.people_before(turn + 1)
        if before == after:
            raise ServiceError("late", "no such batch was opened")
        return before, after

    def example(self) -> dict[str, Any] | None:
        """Return an example of an encoded message for the first open plan.

        Returns None if no plan is open, or if devices send plain JSON (central trust).
        """
        content = pydantic_core.from_json(self.shown[0])["content"] if self.shown[0] else {"plans": []}
        if isinstance(self.admission, CentralAdmission) or not content["plans"]:
            return None
        place = client.PlanReservation(described.TICKET, 0.0, content["plans"][0], content)
        first, low = described.first_record(self.study), self.study.rewards[0]
        actions = [place.action(h, first[h]) for h in range(place.horizon)]
        return dict(place.message(first, actions, [low] * place.horizon).table)

    async def placed(self, request: Request) -> Response:
        """Handle POST /places."""
        table = await self.body(request)
        many = table.get("tickets") if isinstance(table, dict) else None
        try:
            if many is None:
                (result,) = await self.put([place_of(table)])
                self._outcome(self.given, result.status)
                if result.status == "again":
                    words = {"reason": "again", "words": _WORDS["again"], "release": result.release}
                    return _json(_CODES["again"], words)
                if result.status != "placed":
                    return _refused(result.status, seconds=result.seconds)
                await self._published([result])
                return _json(201, {"status": "placed", "plan": result.plan, "seconds": result.seconds})
            if not isinstance(many, list) or not 0 < len(many) <= MOST_MANY or len(table) != 1:
                raise ServiceError(
                    "malformed", f"tickets: must be a list of 1 to {MOST_MANY}, and nothing else"
                )
            asked: list[AnyRequest] = [place_of({"ticket": one}) for one in many]
        except Malformed as error:
            raise ServiceError(error.reason, str(error)) from None
        said = []
        results = await self.put(asked)
        await self._published(results)
        for result in results:
            self._outcome(self.given, result.status)
            if result.status == "placed":
                said.append({"status": "placed", "plan": result.plan, "seconds": result.seconds})
            else:
                more = {"release": result.release} if result.status == "again" else {}
                said.append({"status": result.status, "words": _WORDS[result.status], **more})
        return _json(201, {"results": said})

    async def withdrawn(self, request: Request) -> Response:
        """Handle POST /withdrawals. A repeated request gets the same receipt."""
        table = await self.body(request)
        try:
            (result,) = await self.put([withdrawal_of(table)])
        except Malformed as error:
            raise ServiceError(error.reason, str(error)) from None
        if result.status != "withdrawn":
            return _refused("closed" if result.status == "counted" else result.status)
        self._clean = False  # the log of the database can contain the message
        content = {
            "status": "withdrawn", "identity": self.study.identity,
            "ticket": hashed(table["ticket"]).hex(),
        }  # fmt: skip
        signature = self._key.sign("discreet withdrawal, 1", content)
        receipt = {"content": content, "key": self._key.public, "signature": signature}
        return _json(200, {"status": "withdrawn", "receipt": receipt})

    async def _published(self, results: list[RequestResult]) -> None:
        """Publish the newest plans in this process if a result names a plan that it has not published."""
        if any(one.status == "placed" and one.plan > self.newest for one in results):
            await self.io.in_thread(self.refresh)

    async def issued(self, request: Request) -> Response:
        """Handle POST /tickets, which needs an operator's token."""
        await self._check_operator(request)
        table = await self.body(request)
        table = table if isinstance(table, dict) and len(table) == 1 else {}
        count, persons = table.get("count"), table.get("persons")
        if persons is not None and self.study.shuffled:
            raise ServiceError(
                "malformed", "persons: must be left out with a shuffler, which learns no names"
            )
        if isinstance(persons, list) and 0 < len(persons) <= MOST_ISSUED:
            asked: tuple[Any, Any] = self.store.tickets_for, persons
        elif type(count) is int and 0 < count <= MOST_ISSUED and persons is None:
            asked = self.store.new_tickets, count
        else:
            raise ServiceError(
                "malformed",
                f"count: must be an integer in [1, {MOST_ISSUED}], or persons: a list of 1 to {MOST_ISSUED} "
                "pseudonyms",
            )
        try:
            made = await self.io.in_thread(*asked)
        except ValueError as error:
            raise ServiceError("malformed", str(error)) from None
        self._outcome(self.ticketed, "issued")
        return _json(201, {"tickets": made})

    async def operated(self, request: Request, verb: str) -> Response:
        """Handle POST /operator/pause, resume, extend and revoke, which need an operator's token."""
        await self._check_operator(request)
        store, stays = self.store, self.study.answer_within
        if verb == "revoke":
            name = _only(await self.body(request), "token")
            if not isinstance(name, str) or not await self.io.in_thread(store.revoke_token, name):
                raise ServiceError("malformed", "token: must be the name of a token, 16 hexadecimal digits")
            return _json(200, {"tokens": await self.io.in_thread(store.tokens)})
        seconds = None
        if verb == "extend":
            seconds = self._longer(_only(await self.body(request), "answer_within"))
        standing = await self.io.in_thread(store.act, verb, stays, seconds, self.study.closes_after)
        if seconds is not None and seconds < standing.stays(stays):
            words = f"answer_within: must be at least {standing.stays(stays):g}, which users were told"
            raise ServiceError("malformed", words)
        await self.io.in_thread(self.refresh)
        more = "" if seconds is None else f" to {seconds:g} seconds"
        log.info("operator of %s: %s%s", self.study.name, verb, more)
        return _json(200, {"paused": standing.paused, "answer_within": standing.stays(stays)})

    def _longer(self, seconds: Any) -> float:
        """Return the time of an extension. Raises :class:`ServiceError` if the value is not allowed."""
        most = self.study.closes_after or MOST_SECONDS
        if type(seconds) not in (int, float) or not 0 < seconds <= most:
            raise ServiceError("malformed", f"answer_within: must be a number of seconds in (0, {most:g}]")
        return float(seconds)

    async def _check_operator(self, request: Request) -> None:
        """Raise :class:`ServiceError` unless a request has an operator's token."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not await self.io.in_thread(self.store.knows_token, token.strip()):
            raise ServiceError("unauthorized")

    async def metrics(self, request: Request) -> Response:
        """Handle GET /metrics, which needs a token with the rule "clock": counts of answers are private."""
        if self.study.every is not None:
            await self._check_operator(request)
        await self.io.in_thread(self._gauge)
        shown = generate_latest(_Uncreated(self.registry))
        return Response(shown, 200, media_type="text/plain; version=0.0.4")

    def _gauge(self) -> None:
        """Set the metrics of the open batch."""
        found = self.store.open_batch(self.turn, self.io.now())
        values = (found.age, found.resolved, found.in_flight, self.writer.token is not None)
        for gauge, value in zip(self._now_gauges.values(), values, strict=True):
            gauge.set(value)

    async def operator_page(self, request: Request) -> Response:
        """Handle GET /operator: the page of the study, with a section that needs an operator's token.

        A browser asks for the token as a password. Commands accept no password, because a browser would also
        send it with a request that another site makes.
        """
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        try:
            if kind.lower() == "basic":
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            given = ""
        if not await self.io.in_thread(self.store.knows_token, given.strip()):
            response = _refused("unauthorized")
            response.headers["WWW-Authenticate"] = 'Basic realm="operator"'
            return response
        return await self.front(operation=True)

    async def front(self, *, operation: bool = False) -> Response:
        """Handle GET /. operation : True to show the operator's section too."""
        study, code = self.study, 200

        def made() -> str:
            more = operation_section(self.store, self.activity, self.io.now()) if operation else ""
            return page(study, self.store, self.content, self.failed, more)

        try:
            text = await self.io.in_thread(made)
        except SQLAlchemyError as error:
            text, code = trouble_page(study, cause(error)), 503
        headers = {
            "Content-Security-Policy": POLICY,
            "X-Frame-Options": "DENY",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        return Response(text, code, headers, "text/html; charset=utf-8")

    async def plan(self, request: Request) -> Response:
        """Handle GET /plan."""
        body, tag = self.shown
        if not body:  # this process is a shuffler that has not received plans from the service yet
            raise ServiceError("busy")
        headers = {"ETag": tag, "Cache-Control": "public, max-age=1, must-revalidate"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        return Response(body, 200, headers, "application/json")

    async def released(self, number: str) -> Response:
        """Handle GET /releases/N. A stored release never changes, so caches can keep the answer."""
        known = number.isascii() and number.isdigit() and len(number) < 10
        found = await self.io.in_thread(self.store.release, int(number)) if known else None
        if found is None:
            raise ServiceError("unknown")
        headers = {"ETag": f'"{found[1][:32]}"', "Cache-Control": "public, max-age=31536000, immutable"}
        return Response(found[0], 200, headers, "application/json")

    async def log(self, first: str) -> Response:
        """Handle GET /log: signed links of published releases, versions and keys, for witnesses.

        The log of a shuffler has versions and acts of its operator, without links and keys.
        """
        known = first.isascii() and first.isdigit() and len(first) < 10
        if not known:
            raise ServiceError("malformed", "from: must be the number of a release")
        links = await self.io.in_thread(self.store.log, int(first))
        programs = await self.io.in_thread(self.store.programs)
        rows = await self.io.in_thread(self.store.key_rows)
        acts = await self.io.in_thread(self.store.acts)
        content = {
            "identity": self.study.identity, "links": links, "programs": programs, "keys": rows, "acts": acts,
        }  # fmt: skip
        signed = {
            "content": content, "key": self._key.public,
            "signature": self._key.sign("discreet log, 1", content),
        }  # fmt: skip
        return _json(200, signed, {"Cache-Control": "no-cache"})

    async def keys(self) -> Response:
        """Handle GET /keys: all keys of the service, with their signatures."""
        rows = await self.io.in_thread(self.store.key_rows)
        return _json(200, {"identity": self.study.identity, "keys": rows}, {"Cache-Control": "no-cache"})

    def _watch(self) -> None:
        """Note since when the batch of the newest release is complete."""
        turn = self.turn
        if self.over or turn < 0 or not self.store.is_whole(turn):
            self._whole = None
        elif self._whole is None or self._whole[0] != turn:
            self._whole = turn, self.io.monotonic()

    def releases(self) -> str:
        """Return the state of releases: "ok", "waiting" (for the next release), "late" or "stopped"."""
        without = min(self.io.now() - self.store.lease_end(), self.io.monotonic() - self._made)
        if self._stopped or (not self.over and without > 3 * LEASE):
            return "stopped"
        if self._whole is None:
            return "ok"
        turn, since = self._whole
        rule = self.store.batches
        settling = 0.0 if rule is None or not rule.opens(turn) else rule.opens(turn) - rule.closes(turn)
        return "late" if self.io.monotonic() - since > LATE + settling else "waiting"

    async def _answers(self) -> bool:
        """Return True if the database answers within a second."""
        try:
            async with asyncio.timeout(1.0):
                await self.io.in_thread(self.store.about)
        except Exception:  # a database driver can raise any exception
            return False
        return True

    async def ready(self) -> Response:
        """Handle GET /ready."""
        good = bool(self.shown[0]) and await self._answers()
        return _json(200 if good else 503, {"ready": good})

    async def healthy(self) -> Response:
        """Handle GET /health."""
        database = await self._answers()
        releases = await self.io.in_thread(self.releases) if database else "stopped"
        good = database and not self.failed and releases != "stopped"
        health = {
            "releases": releases,
            "status": "ok" if good else "failing", "version": __version__, "turn": self.turn,
            "over": self.over, "database": database,
            "makes_releases": self.writer.token is not None, "failed": self.failed,
        }  # fmt: skip
        return _json(200 if good else 503, health)


Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def unknown() -> Response:
    """Return the answer to a request for an unknown address."""
    return _refused("unknown")


def _head(scope: Scope) -> int:
    """Return the number of bytes in a request's address and headers."""
    named = sum(len(name) + len(value) for name, value in scope["headers"])
    return named + len(scope.get("raw_path") or b"") + len(scope["query_string"])


class Door:
    """Outermost layer of the application.

    It rejects requests whose head is too large. It answers an internal error with a fixed text. The log entry
    of the error has no content of the request.
    """

    def __init__(self, inside: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection's request."""
        if scope["type"] != "http":
            await self._inside(scope, receive, send)
            return
        if _head(scope) > HEAD_BYTES:
            await _refused("headers")(scope, receive, send)
            return
        begun = False

        async def sending(event: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(event)

        try:
            await self._inside(scope, receive, sending)
        except Exception as error:
            log.error("a request could not be answered: %s %s", type(error).__name__, where(error))
            if not begun:
                words = {
                    "reason": "broken",
                    "words": "the service failed at this request; its log says where",
                }
                await _json(500, words)(scope, receive, send)


def _error_response(service: Service, request: Request, error: ServiceError | SQLAlchemyError) -> Response:
    """Count a failed request, and return its answer."""
    reason = error.reason if isinstance(error, ServiceError) else "busy"
    root = getattr(request, "scope", {}).get("root_path", "")
    service.count(request.url.path.removeprefix(root), reason)
    if isinstance(error, ServiceError):
        return _refused(reason, error.words)
    log.error("the database does not answer: %s", cause(error))
    return _refused("busy")


class Lane:
    """Fast path for messages and plans, without the web framework.

    The framework takes more time than the requests themselves.

    The fast path calls the same functions as the routes, which document these addresses. Other methods and
    addresses use the routes. If the study allows web pages of other sites to use the service, all requests
    use the routes.
    """

    def __init__(self, service: Service, inside: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._service, self._inside = service, inside
        self._short: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {}
        if not service.study.origins:
            self._short["GET", "/plan"] = service.plan
            if service.takes_people:
                self._short["POST", "/messages"] = service.answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection's request."""
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        short = self._short.get((scope.get("method", ""), path))
        if short is None or scope["type"] != "http":
            await self._inside(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await short(request)
        except (ServiceError, SQLAlchemyError) as error:
            response = _error_response(self._service, request, error)
        await response(scope, receive, send)


class Heads:
    """Layer that answers a HEAD request in the same way as a GET request, but without a body."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection's request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def headed(event: MutableMapping[str, Any]) -> None:
            await send({**event, "body": b""} if event["type"] == "http.response.body" else event)

        await self._app({**scope, "method": "GET"}, receive, headed)


class _Uncreated:
    """Registry of metrics without their creation times, which the text format would list as gauges."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric


def _without_telemetry() -> dict[str, Any]:
    """Return the arguments that disable FastAPI's telemetry.

    Some versions of FastAPI export traces if environment variables request this.
    """
    if "telemetry" not in inspect.signature(FastAPI.__init__).parameters:
        return {}
    return {"telemetry": {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}}


def _people(app: FastAPI, service: Service, texts: described.Texts) -> None:
    """Add the routes for participants."""

    @app.post("/places", **texts.places)
    async def places(request: Request) -> Response:
        return await service.placed(request)

    @app.post("/messages", **texts.messages)
    async def messages(request: Request) -> Response:
        return await service.answered(request)

    @app.post("/withdrawals", **texts.withdrawals)
    async def withdrawals(request: Request) -> Response:
        return await service.withdrawn(request)

    @app.post("/tickets", **texts.tickets)
    async def tickets(request: Request) -> Response:
        return await service.issued(request)

    def verb(name: str) -> None:
        @app.post(f"/operator/{name}", name=name, **texts.operator[name])
        async def operated(request: Request) -> Response:
            return await service.operated(request, name)

    for name in texts.operator:
        verb(name)


def _public(app: FastAPI, service: Service, texts: described.Texts) -> None:
    """Add the routes of the process that makes releases."""

    @app.get("/releases/{number}", **texts.releases)
    async def releases(request: Request) -> Response:
        return await service.released(request.path_params["number"])

    @app.get("/keys", **texts.keys)
    async def keys() -> Response:
        return await service.keys()

    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return await service.front()

    @app.get("/operator", include_in_schema=False)
    async def operator_page(request: Request) -> Response:
        return await service.operator_page(request)


def _handle_errors(app: FastAPI, service: Service) -> None:
    """Add handlers that convert exceptions to answers."""

    @app.exception_handler(ServiceError)
    async def refusal(request: Request, error: ServiceError) -> Response:
        return _error_response(service, request, error)

    @app.exception_handler(SQLAlchemyError)
    async def broken(request: Request, error: SQLAlchemyError) -> Response:
        return _error_response(service, request, error)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        words = {404: _WORDS["unknown"], 405: "this method is not for this address"}
        said = {"reason": "unknown", "words": words.get(error.status_code, "the request is not understood")}
        headers = dict(error.headers) if error.headers else None
        return _json(error.status_code, said, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return _refused("malformed", "the request is not of the form that is described")


def _describe(app: FastAPI, service: Service) -> None:
    """Extend the application's OpenAPI description by the operator's token and an example message for an open
    plan.
    """
    original = app.openapi

    def openapi() -> dict[str, Any]:
        """Return the OpenAPI description with an example message for an open plan."""
        found = original()
        if service.takes_people:
            described.declare_operator(found)
        example = service.example() if service.takes_people else None
        if example is not None:
            described.show_example(found, example)
        return found

    app.openapi = openapi


def _own_state(app: FastAPI, service: Service, texts: described.Texts) -> None:
    """Add the routes of the statement, the log, the health check and the metrics."""

    @app.get("/log", **texts.log)
    async def log(request: Request) -> Response:
        return await service.log(request.query_params.get("from", "0"))

    @app.get("/statement", **texts.statement)
    async def statement() -> Response:
        return Response(service.statement, 200, media_type="application/json")

    @app.get("/live", **texts.live)
    async def live() -> Response:
        return _json(200, {"live": True})

    @app.get("/ready", **texts.ready)
    async def ready() -> Response:
        return await service.ready()

    @app.get("/health", **texts.health)
    async def health() -> Response:
        return await service.healthy()

    @app.get("/metrics", **texts.metrics)
    async def metrics(request: Request) -> Response:
        return await service.metrics(request)


def application(service: Service) -> FastAPI:
    """Return the web application of a service, with all its routes."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title=f"Discreet: {service.study.name}",
        version=__version__,
        description=described.SUMMARY,
        lifespan=life,
        # documentation pages would load scripts from other hosts, which would reveal readers of the pages to
        # these hosts
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # behind a proxy, a redirect would lead to an address without TLS
        **_without_telemetry(),
    )

    # Only requests that devices make are allowed. Cookies and the operator's token are not allowed.
    if service.study.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.study.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["content-type", "if-none-match"],
            expose_headers=["etag", "retry-after"],
            max_age=600,
        )
    app.add_middleware(Heads)

    _handle_errors(app, service)
    _describe(app, service)
    texts = described.Texts(service.study, service.study.trust != "joint")

    @app.get("/plan", **texts.plan)
    async def plan(request: Request) -> Response:
        return await service.plan(request)

    if service.takes_people:
        _people(app, service, texts)
    if service.takes_sums:

        @app.post("/sums", **texts.sums)
        async def sums(request: Request) -> Response:
            return await service.summed(request)

    if isinstance(service.writer, Writer):
        _public(app, service, texts)

    _own_state(app, service, texts)
    return app
