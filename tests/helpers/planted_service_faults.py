"""Faults of the service, planted one at a time, that a simulation must find.

Faults of the database are planted in the real one. Each is a patch of a method, and is undone at the end.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import sqlalchemy as sql
from service_simulation import Served, User, World
from simulated_stores import DictionaryStore, SqliteStore
from simulated_system import SimulatedIo

from discreet.service import database, release_chain, release_worker, server
from discreet.service.clock_batches import ClockBatches, ClockRequests
from discreet.service.database import ABSENT, PLACED, RequestResult, Requests, Store, TicketMessage
from discreet.service.operator_acts import standing_of
from discreet.service.release_chain import Head, OldDatabase
from discreet.service.release_worker import LeaseHolder
from discreet.service.resolved_batches import ResolvedRequests
from discreet.service.returning_users import Returning, code_of

Put = Callable[..., None]  # patch.object, undone at the end

STORES: tuple[Any, ...] = (SqliteStore, DictionaryStore)


def around(real: Any, new: Any) -> Any:
    """The method ``new``, which gets the method that it replaces first."""
    return lambda *given, **more: new(real, *given, **more)


def _answer_before_commit(put: Put) -> None:
    async def early(self: Any, requests: Any, real: Any = Served.put) -> Any:
        if not isinstance(requests[0], TicketMessage):
            return await real(self, requests)
        self.io.process.spawn(self.intake.put(requests))
        return [RequestResult("counted", one.plan) for one in requests]

    put(Served, "put", early)


def _ticket_read_outside(put: Put) -> None:
    def admit(self: Any, requests: Any, *given: Any, real: Any = Store.admit) -> Any:
        with self._reading() as connection:
            known = self._known(connection, {one.ticket for one in requests})
        other = copy.copy(self)
        other._known = lambda *_: known
        found = real(other, requests, *given)
        self.whole = other.whole
        return found

    put(SqliteStore, "admit", admit)


def _batch_read_outside(put: Put) -> None:
    def admit(self: Any, requests: Any, *given: Any, real: Any = Store.admit) -> Any:
        if self.batches is None:
            return real(self, requests, *given)
        with self._reading() as connection:
            turn = connection.execute(sql.select(database._study.c.turn)).scalar_one()
            query = sql.select(database.resolved_table).where(database.resolved_table.c.batch >= turn)
            rows = [dict(row) for row in connection.execute(query).mappings()]
        rule, other = self.batches, copy.copy(self)
        other.batches = copy.copy(rule)
        object.__setattr__(other.batches, "requests", lambda _, __, *more: rule.requests(turn, rows, *more))
        found = real(other, requests, *given)
        self.whole = other.whole
        return found

    put(SqliteStore, "admit", admit)


def _shown_before_commit(put: Put) -> None:
    early: dict[Any, Any] = {}  # by world and number

    def drew(real: Any, self: Any, token: Any, turn: int, new: Any, *given: Any) -> None:
        early[self.committed.__self__.seed, new.number] = new.body, new.sha256
        real(self, token, turn, new, *given)

    def release(real: Any, self: Any, number: int) -> Any:
        return early.get((self.committed.__self__.seed, number)) or real(self, number)

    for store in STORES:
        put(store, "drew", around(store.drew, drew))
        put(store, "release", around(store.release, release))


def _absent_is_counted(put: Put) -> None:
    def answer(self: Any, given: Any, real: Any = Requests.answer) -> Any:
        ticket = self._tickets.get(given.ticket)
        if ticket is not None and ticket["state"] == ABSENT:
            ticket["state"] = PLACED
        return real(self, given)

    put(Requests, "answer", answer)


def _absent_counts_twice(put: Put) -> None:
    def expire(self: Any, ticket: Any, real: Any = Requests.expire) -> None:
        self._resolve(self._plans[int(ticket["plan"])], "absent")
        real(self, ticket)

    put(Requests, "expire", expire)


def _closed_in_a_second_transaction(put: Put) -> None:
    left: list[Any] = []

    def write(self: Any, connection: Any) -> None:
        Requests.write(self, connection)
        left.append(self)

    def admit(self: Any, *given: Any, real: Any = Store.admit, rows: Any = ResolvedRequests.write) -> Any:
        found = real(self, *given)
        with self._writing() as connection, patch.object(Requests, "write", lambda *_: None):
            while left:
                rows(left.pop(), connection)
        return found

    put(ResolvedRequests, "write", write)
    put(SqliteStore, "admit", admit)


def _closed_one_early(put: Put) -> None:
    def is_whole(self: Any, turn: int) -> bool:
        if self.batches is None:
            return all(one["came"] + one["absent"] >= one["users"] - 1 for one in self.batch(turn))
        return sum(one["users"] for one in self.batch(turn)) >= max(1, self.batches.size(turn) - 1)

    for store in STORES:
        put(store, "is_whole", is_whole)


def _open_batch_is_swept(put: Put) -> None:
    def sweep(self: Any, real: Any = Store.sweep) -> int:
        with self._writing() as connection:
            connection.execute(database._messages.delete())
        return real(self)

    put(SqliteStore, "sweep", sweep)


def _state_apart(put: Put) -> None:
    def drew(real: Any, self: Any, token: int, turn: int, new: Any, *given: Any) -> None:
        before = self.session()[1]
        real(self, token, turn, replace(new, session=before), *given)
        if isinstance(self, Store):
            with self._writing() as connection:
                connection.execute(database._state.update().values(session=new.session))
        else:
            self.about()
            self.d["session"] = new.session

    for store in STORES:
        put(store, "drew", around(store.drew, drew))


def _second_draw_overwrites(put: Put) -> None:
    def drew(self: Any, token: int, turn: int, new: Any, *_: Any) -> None:
        with self._writing() as connection:
            for table in (database._releases, database._links):
                connection.execute(table.delete().where(table.c.number == new.number))
            self._keep_release(connection, new)
            connection.execute(database._state.update().values(session=new.session))

    put(SqliteStore, "drew", drew)


def _clock_of_the_process(put: Put) -> None:
    for store in STORES:
        put(store, "clocked", lambda _, io: io)


def _lease_in_the_future(put: Put) -> None:
    put(database, "_AHEAD", 1e9)


def _long_reservation(put: Put) -> None:
    def mark_expired(self: Any, now: float, closes: Any, stays: float, real: Any = Store.mark_expired) -> int:
        return int(real(self, now, closes))

    put(SqliteStore, "mark_expired", mark_expired)


# ------------------------------------------------------------------------- head and beats
def _no_beats(put: Put) -> None:
    for store in STORES:
        put(store, "keep", around(store.keep, lambda real, self, *given, beat=False: real(self, *given)))


def _beats_not_in_head(put: Put) -> None:
    def append(real: Any, self: Any, mark: Any) -> bool:
        last = self.last()
        return bool((last is not None and last.number == mark.number) or real(self, mark))

    put(Head, "append", around(Head.append, append))


def _head_not_compared(put: Put) -> None:
    for module in (server, release_worker):
        put(module, "check_head", lambda *_: None)


def _beat_not_compared(put: Put) -> None:
    def contains(store: Any, head: Any, seen: Any) -> Any:
        if store.link(seen.number) != seen.link:
            raise OldDatabase("link")
        return store.mark()

    put(release_chain, "_contains", contains)


def _missing_head_accepted(put: Put) -> None:
    def check_head(real: Any, store: Any, head: Any, seen: Any) -> None:
        if seen is not None:
            real(store, head, seen)

    for module in (server, release_worker):
        put(module, "check_head", around(release_chain.check_head, check_head))


def _head_read_after(put: Put) -> None:
    """The head is read after the database, and both grow."""

    def check_head(store: Any, head: Any, seen: Any) -> None:
        newest = store.mark()
        store.about()
        seen = head.last()
        if seen is not None and (seen.number, seen.beat) > (newest.number, newest.beat):
            raise OldDatabase("order")

    for module in (server, release_worker):
        put(module, "check_head", check_head)


def _head_read_once(put: Put) -> None:
    """The head is not read again, so it seems to be behind a database that grew in the meantime."""

    def check_head(real: Any, store: Any, head: Any, seen: Any) -> None:
        other = copy.copy(head)
        if seen is not None:
            other.last = lambda: seen
        real(store, other, seen)

    for module in (server, release_worker):
        put(module, "check_head", around(release_chain.check_head, check_head))


def _head_before_commit(put: Put) -> None:
    def drew(real: Any, self: Any, token: Any, turn: int, new: Any, *given: Any) -> None:
        io = self._io if isinstance(self, Store) else self.io
        study = World.now.study
        mark = replace(self.mark(), number=new.number, link=self.link_after(new))
        Head(study.path("head"), study.identity, io).append(mark)
        real(self, token, turn, new, *given)

    for store in STORES:
        put(store, "drew", around(store.drew, drew))


def _head_after_plans(put: Put) -> None:
    """A release is shown, and only the next beat writes it to the head."""

    def write_head(real: Any, self: Any) -> None:
        if self._store.mark().number == self._store.about()["turn"]:
            real(self)

    put(LeaseHolder, "write_head", around(LeaseHolder.write_head, write_head))


def _failed_head_ignored(put: Put) -> None:
    def write_head(real: Any, self: Any) -> None:
        try:
            token = self.token
            real(self)
        except OSError:
            self.token = token

    put(LeaseHolder, "write_head", around(LeaseHolder.write_head, write_head))


def _torn_line_kept(put: Put) -> None:
    append = SimulatedIo.append
    put(SimulatedIo, "append", lambda self, path, content, at=None: append(self, path, content))


# ------------------------------------------------------------------------- clock
def _closed_when_answered(put: Put) -> None:
    """A batch by the clock closes as soon as everyone has answered."""

    def whole(self: Any, *given: Any, init: Any = ClockRequests.__init__) -> None:
        init(self, *given)
        newest = self._newest()
        if newest and not self.whole and all(one["came"] >= one["users"] for one in newest):
            with patch.object(ClockBatches, "closes", lambda *_: 0.0):
                init(self, *given)

    put(ClockRequests, "__init__", whole)


def _answer_joins_the_batch_of_its_plan(put: Put) -> None:
    def resolve(self: Any, plan: Any, outcome: str) -> int:
        plan[outcome] += 1
        if outcome == "came":
            self._row(int(plan["turn"]), plan)["came"] += 1
        return int(plan["turn"])

    put(ClockRequests, "_resolve", resolve)


def _withdrawn_after_closing(put: Put) -> None:
    """Only the turn is looked at, and not whether the batch is complete."""
    put(Requests, "_is_open", lambda _, plan, __: plan is not None)
    put(ResolvedRequests, "_is_open", lambda self, plan, batch: batch >= self._turn)


def _withdrawn_message_stays(put: Put) -> None:
    def withdraw(self: Any, asked: Any, real: Any = Requests.withdraw) -> Any:
        found = real(self, asked)
        self._removed.clear()
        return found

    put(Requests, "withdraw", withdraw)


# ------------------------------------------------------------------------- users who return
def _open_place_ignored(put: Put) -> None:
    """Only what was counted is looked at when a place is given."""

    def refusal(self: Any, ticket: Any, batch: int, real: Any = Returning.refusal) -> Any:
        return real(replace(self, reserved={}), ticket, batch)

    put(Returning, "refusal", refusal)


def _person_checked_at_the_answer(put: Put) -> None:
    """Places are given to everyone, and who may not take part hears of it after they acted."""

    def answer(self: Any, given: Any, real: Any = Requests.answer) -> Any:
        ticket = self._tickets.get(given.ticket)
        if ticket is not None and ticket["state"] == PLACED and ticket["person"] is not None:
            others = replace(self._people, reserved={})
            if refusal(others, ticket, self._open_batch()) is not None:
                return RequestResult("again")
        return real(self, given)

    refusal = Returning.refusal
    put(Returning, "refusal", lambda *_: None)
    put(Requests, "answer", answer)


def _key_changes(put: Put) -> None:
    """Each call has a key of its own."""

    def tickets_for(self: Any, persons: Any, real: Any = Store.tickets_for) -> Any:
        key = self._io.random_bytes(32)
        with patch.object(database, "code_of", lambda _, name: code_of(key, name)):
            return real(self, persons)

    put(SqliteStore, "tickets_for", tickets_for)


def _last_batch_not_updated(put: Put) -> None:
    def take_part(self: Any, ticket: Any, batch: int, real: Any = Returning.take_part) -> None:
        row = self.rows.get(ticket["person"])
        known = None if row is None else row["last_batch"]
        real(self, ticket, batch)
        if row is not None and known is not None:
            row["last_batch"] = known
        elif row is not None:
            row["last_batch"] = 0

    put(Returning, "take_part", take_part)


def _absent_took_part(put: Put) -> None:
    def resolve_expired(self: Any, now: float, stays: float, real: Any = Store._resolve_expired) -> int:
        with self._reading() as connection:
            late = sql.select(database._tickets.c.person).where(
                database._tickets.c.state == PLACED, database._tickets.c.due <= now
            )
            persons = [one for one in connection.execute(late).scalars() if one is not None]
        found = int(real(self, now, stays))
        with self._writing() as connection:
            row = database._persons
            for one in persons:
                connection.execute(row.update().where(row.c.id == one).values(taken=row.c.taken + 1))
        return found

    put(SqliteStore, "_resolve_expired", resolve_expired)


def _person_read_outside(put: Put) -> None:
    def admit(self: Any, requests: Any, *given: Any, real: Any = Store.admit) -> Any:
        with self._reading() as connection:
            tickets = self._known(connection, {one.ticket for one in requests})
            people = self._people(connection, requests, tickets)
        other = copy.copy(self)
        other._people = lambda *_: people
        found = real(other, requests, *given)
        self.whole = other.whole
        return found

    put(SqliteStore, "admit", admit)


def _person_not_written(put: Put) -> None:
    def write(self: Any, connection: Any, real: Any = Requests.write) -> None:
        self._people.changed.clear()
        real(self, connection)

    put(Requests, "write", write)


# ------------------------------------------------------------------------- acts of the operator
def _pause_ignored(put: Put) -> None:
    def place(self: Any, asked: Any, real: Any = Requests.place) -> Any:
        self._paused = False
        return real(self, asked)

    put(Requests, "place", place)


def _pause_by_the_process(put: Put) -> None:
    """A process knows the acts as it first read them, until it is started again."""

    def standing(real: Any, self: Any, connection: Any) -> Any:
        io = self._io
        if not isinstance(io, SimulatedIo):
            return real(self, connection)
        known = io.process.__dict__
        return known.setdefault("standing", real(self, connection))

    put(SqliteStore, "_standing", around(Store._standing, standing))


def _extended_for_new_places_only(put: Put) -> None:
    def act(
        self: Any, kind: str, stays: float, seconds: Any = None, ends: Any = None, real: Any = Store.act
    ) -> Any:
        before, tickets = self.standing().stays(stays), database._tickets
        found = real(self, kind, stays, seconds)
        with self._writing() as connection:
            more = found.stays(stays) - before
            connection.execute(tickets.update().values(due=tickets.c.due - more))
        return found

    put(SqliteStore, "act", act)


def _extension_shortened(put: Put) -> None:
    """Reservations that were extended look as if a fast clock had made them."""

    def shorten(self: Any, connection: Any, now: float, stays: float) -> None:
        due = database._tickets.c.due
        connection.execute(database._tickets.update().where(due > now + stays).values(due=now + stays))

    put(SqliteStore, "_shorten", shorten)


def _act_not_stored(put: Put) -> None:
    def act(real: Any, self: Any, kind: str, stays: float, seconds: Any = None, ends: Any = None) -> Any:
        before = [] if not self.standing().paused else [("pause", None)]
        return standing_of([*before, (kind, seconds)])

    for store in STORES:
        put(store, "act", around(store.act, act))


def _no_token(put: Put) -> None:
    """The turn and the key of the row hold without it: this is harmless."""

    def unchecked(real: Any, self: Any, _: int, *given: Any) -> None:
        if isinstance(self, Store):
            token = self.raw.execute("SELECT token FROM lease").fetchone()[0]
        else:
            token = self.d["lease"][1]
        real(self, token, *given)

    for store in STORES:
        for name in ("drew", "turned", "ended"):
            put(store, name, around(getattr(store, name), unchecked))


class NewNonce(User):
    """A client that makes a new message at each try."""

    async def send(self, table: dict[str, Any]) -> tuple[int, Any]:
        while True:
            table = {**table, "nonce": self.world.rng.randbytes(16).hex()}
            code, found = await self.world.call("/messages", table)
            if isinstance(found, dict) and found.get("reason") != "busy":
                return code, found


class GivesUp(User):
    """A client to which an error of a proxy is final."""

    async def send(self, table: dict[str, Any]) -> tuple[int, Any]:
        code, found = await self.world.call("/messages", table)
        while not code:
            code, found = await self.world.call("/messages", table)
        return code, found if isinstance(found, dict) else {"reason": f"status {code}"}


PLANTED: dict[str, Callable[[Put], None] | type[User]] = {
    "202 before the commit": _answer_before_commit,
    "ticket read outside the transaction": _ticket_read_outside,
    "batch read outside the transaction": _batch_read_outside,
    "release shown before the commit": _shown_before_commit,
    "absent, then counted": _absent_is_counted,
    "absent counted twice": _absent_counts_twice,
    "batch counted in a second transaction": _closed_in_a_second_transaction,
    "batch closed one early": _closed_one_early,
    "messages of the open batch removed": _open_batch_is_swept,
    "state stored apart from the release": _state_apart,
    "second draw overwrites": _second_draw_overwrites,
    "clock of the process": _clock_of_the_process,
    "lease in the future believed": _lease_in_the_future,
    "reservation in the future kept": _long_reservation,
    "beats not written": _no_beats,
    "beats not in the head": _beats_not_in_head,
    "head not compared": _head_not_compared,
    "only the release compared with the head": _beat_not_compared,
    "missing head accepted": _missing_head_accepted,
    "head read after the database": _head_read_after,
    "head read only once": _head_read_once,
    "head written before the commit": _head_before_commit,
    "head written after the release is shown": _head_after_plans,
    "failed line of the head ignored": _failed_head_ignored,
    "torn line of the head kept": _torn_line_kept,
    "clock: closed when all have answered": _closed_when_answered,
    "clock: an answer joins the batch of its plan": _answer_joins_the_batch_of_its_plan,
    "withdrawal after the batch is complete": _withdrawn_after_closing,
    "withdrawal: the message stays": _withdrawn_message_stays,
    "person: open place ignored": _open_place_ignored,
    "person: checked at the answer": _person_checked_at_the_answer,
    "person: key changes": _key_changes,
    "person: last batch not updated": _last_batch_not_updated,
    "person: absent counts as taking part": _absent_took_part,
    "person: read outside the transaction": _person_read_outside,
    "person: not written": _person_not_written,
    "pause ignored": _pause_ignored,
    "pause: other processes do not read it": _pause_by_the_process,
    "extension for new places only": _extended_for_new_places_only,
    "extension shortened at an expiry": _extension_shortened,
    "act of the operator not stored": _act_not_stored,
    "client: new nonce at a retry": NewNonce,
    "client: 502 is final": GivesUp,
}
HARMLESS: dict[str, Callable[[Put], None]] = {
    "none": lambda _: None,
    "token of the lease unchecked": _no_token,
}
REAL_ONLY = {
    "ticket read outside the transaction", "batch read outside the transaction", "absent, then counted",
    "absent counted twice", "batch counted in a second transaction", "messages of the open batch removed",
    "second draw overwrites", "lease in the future believed", "reservation in the future kept",
    "clock: closed when all have answered", "clock: an answer joins the batch of its plan",
    "withdrawal after the batch is complete", "withdrawal: the message stays",
    "person: open place ignored", "person: checked at the answer", "person: key changes",
    "person: last batch not updated", "person: absent counts as taking part",
    "person: read outside the transaction", "person: not written",
    "pause ignored", "pause: other processes do not read it", "extension for new places only",
    "extension shortened at an expiry",
}  # fmt: skip


@contextmanager
def planted_fault(name: str) -> Iterator[dict[str, Any]]:
    """Plant a fault, and yield what ``simulate`` needs for it."""
    fault = {**PLANTED, **HARMLESS}[name]
    if isinstance(fault, type):
        yield {"client": fault}
        return
    with ExitStack() as stack:

        def put(where: Any, attribute: str, value: Any) -> None:
            stack.enter_context(patch.object(where, attribute, value))

        fault(put)
        yield {}
