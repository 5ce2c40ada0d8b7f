"""Databases of a simulated service: the real one on SQLite, and a model of it that is a dictionary.

At each transaction of both, the simulation lets something happen: before it, before its commit and after it.
Both show what they hold in the same form (:class:`Held`), after every commit.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import math
import pickle
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql
from simulated_system import SimulatedIo
from sqlalchemy.pool import StaticPool

from discreet.service import database
from discreet.service.database import (
    ABSENT,
    ANSWERED,
    PLACED,
    UNSPENT,
    Drawn,
    RequestResult,
    ReservationRequest,
    StaleWriter,
    Store,
    WithdrawalRequest,
    hashed,
)
from discreet.service.frozen_mechanism import first_program
from discreet.service.operator_acts import Standing, standing_of
from discreet.service.release_chain import NO_LINK, ChainMark, link_of
from discreet.service.study_config import Study
from discreet.service.system_io import SYSTEM, Io


@dataclass
class Held:
    """What a database holds.

    tickets : for each hash, (number, state, plan). plans : (number, placed, came, absent, turn).
    resolved : (batch, plan, came, absent). messages : (ticket, plan, batch, body).
    releases : SHA-256 of each release, by its number. persons : (taken, last batch), by the person's row.
    owners : the person's row of each ticket that has one. standing : result of the operator's acts.
    """

    turn: int
    over: bool
    tickets: dict[int, tuple[int, int | None]]
    plans: list[tuple[int, int, int, int, int]]
    resolved: list[tuple[int, int, int, int]]
    messages: list[tuple[int, int, int | None, bytes]]
    releases: dict[int, str]
    persons: dict[int, tuple[int, int | None]]
    owners: dict[int, int]
    standing: Standing


def unavailable() -> sql.exc.OperationalError:
    """The error of a database that cannot be written."""
    return sql.exc.OperationalError("", {}, sqlite3.OperationalError("disk I/O error"))


class SqliteStore(Store):
    """The real database, in memory. All simulated processes use one connection, one after the other."""

    _shared: sql.Engine | None = None

    def __init__(self, io: Io = SYSTEM) -> None:
        super().__init__("sqlite://", io)
        cls = SqliteStore
        if cls._shared is None:  # one for all seeds, because it holds compiled statements
            cls._shared = sql.create_engine(
                "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
            )
            sql.event.listen(cls._shared, "connect", lambda raw, _: database._sqlite_connected(raw, SYSTEM))
            sql.event.listen(cls._shared, "begin", database._sqlite_begun)
        self._engine = cls._shared
        self.committed: Callable[[], None] = lambda: None

    @functools.cached_property
    def raw(self) -> sqlite3.Connection:
        """The one connection."""
        with self._engine.connect() as connection:
            return connection.connection.dbapi_connection  # type: ignore[return-value]

    def saved(self) -> bytes:
        """A backup."""
        return self.raw.serialize()

    def restore(self, content: bytes) -> None:
        """Replace everything by a backup."""
        self.raw.deserialize(content)

    def contains(self, mark: ChainMark) -> bool:
        """True if the database has the release and the beat of a line of its head."""
        ask = self.raw.execute
        links = ask("SELECT link FROM links WHERE number = ?", (mark.number,)).fetchall()
        beats = ask("SELECT nonce FROM beats WHERE number = ?", (mark.beat,)).fetchall()
        return links == [(mark.link,)] and (not mark.beat or beats == [(mark.nonce,)])

    def beats(self) -> int:
        """The number of beats."""
        return int(self.raw.execute("SELECT count(*) FROM beats").fetchone()[0])

    def link_after(self, new: Drawn) -> str:
        """The link of the next release."""
        before = self.link(new.number - 1)
        assert before is not None
        return link_of(before, str(self.stored_identity()), new.number, new.body, new.exact)

    def of_process(self, io: Io, study: Study) -> SqliteStore:
        """The database as another process opens it."""
        other = copy.copy(self)
        other._io, other.whole, other._lock = io, False, None
        other.batches = study.batches(other.close_rule(), other.begun())
        other.participation = study.participation
        return other

    def clocked(self, io: Io) -> Io:
        """The system with the clock of the database."""
        return io.with_clock(io.system.time) if isinstance(io, SimulatedIo) else io

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        io = self._io
        if not isinstance(io, SimulatedIo):
            with super()._writing() as connection:
                yield connection
            return
        io.at("begin", True, unavailable)
        with super()._writing() as connection:
            yield connection
            io.at("commit", True, unavailable)
        self.committed()
        io.at("end", True, unavailable)

    @contextmanager
    def _reading(self) -> Iterator[sql.Connection]:
        io = self._io
        if isinstance(io, SimulatedIo):
            io.at("begin", False, unavailable)
        with super()._reading() as connection:
            yield connection

    def held(self) -> Held:
        """What the database holds."""
        ask = self.raw.execute
        turn, over = ask("SELECT turn, over FROM study").fetchone()
        return Held(
            turn,
            bool(over),
            {number: (state, plan) for number, state, plan in ask("SELECT id, state, plan FROM tickets")},
            ask("SELECT number, placed, came, absent, turn FROM plans").fetchall(),
            ask("SELECT batch, plan, came, absent FROM resolved").fetchall(),
            ask("SELECT ticket, plan, batch, body FROM messages").fetchall(),
            dict(ask("SELECT number, sha256 FROM releases").fetchall()),
            {own: (n, last) for own, n, last in ask("SELECT id, taken, last_batch FROM persons")},
            dict(ask("SELECT id, person FROM tickets WHERE person IS NOT NULL").fetchall()),
            standing_of(ask("SELECT kind, seconds FROM acts ORDER BY id").fetchall()),
        )

    def number_of(self, ticket: str) -> int:
        """The row of a ticket."""
        found = self.raw.execute("SELECT id FROM tickets WHERE hash = ?", (hashed(ticket),)).fetchone()
        return int(found[0])


def transaction(write: bool, shown: bool = True) -> Callable[[Any], Any]:
    """A method of the dictionary store that is one transaction."""

    def wrap(method: Any) -> Any:
        @functools.wraps(method)
        def called(self: DictionaryStore, *given: Any, **more: Any) -> Any:
            io = self.io
            if not isinstance(io, SimulatedIo):
                return method(self, *given, **more)
            io.at("begin", write, unavailable)
            if not write:
                return method(self, *given, **more)
            io.at("commit", True, unavailable)
            found = method(self, *given, **more)
            if shown:
                self.committed()
            io.at("end", True, unavailable)
            return found

        return called

    return wrap


class DictionaryStore:
    """A model of the database of a study: it stores in a dictionary what :class:`Store` stores in tables.

    It is written from the description of the database and not from its code.
    """

    def __init__(self, study: Study, first: Drawn, plans: Sequence[tuple[int, int, str]], io: Io) -> None:
        self.io, self.study, self.whole = io, study, False
        self.program = first_program(study)
        self.clock = study.close_rule == "clock"
        times = [int(one) for one in study.times]
        self.sizes = [b - a for a, b in zip(times, [*times[1:], study.users], strict=True)]
        self.committed: Callable[[], None] = lambda: None
        self.d: dict[str, Any] = {
            "turn": 0, "over": False, "plans": {}, "releases": {}, "tickets": {}, "messages": {},
            "resolved": {}, "count": 0, "session": first.session, "lease": ["", 0, 0.0], "rows": [],
            "links": {}, "beats": {}, "persons": {}, "acts": [],
        }  # fmt: skip
        self._keep(first)
        self._open(0, plans, io.now())
        self.batches, self.participation = study.batches(study.close_rule, io.now()), study.participation

    def of_process(self, io: Io, study: Study) -> DictionaryStore:
        """The database as another process opens it."""
        other = copy.copy(self)
        other.io, other.whole = io, False
        return other

    def held(self) -> Held:
        """What the database holds."""
        d = self.d
        return Held(
            d["turn"],
            d["over"],
            {row["id"]: (row["state"], row["plan"]) for row in d["rows"]},
            [(n, p["placed"], p["came"], p["absent"], p["turn"]) for n, p in d["plans"].items()],
            [(*key, *value) for key, value in d["resolved"].items()],
            [(number, *one) for number, one in d["messages"].items()],
            {number: one.sha256 for number, one in d["releases"].items()},
            {
                one["id"]: (len(one["batches"]), max(one["batches"], default=None))
                for one in d["persons"].values()
            },
            {row["id"]: d["persons"][row["person"]]["id"] for row in d["rows"] if row["person"] is not None},
            self._stands(),
        )

    def number_of(self, ticket: str) -> int:
        """The row of a ticket."""
        return int(self.d["tickets"][hashed(ticket)]["id"])

    def new_tickets(self, count: int) -> list[str]:
        return self.tickets_for([None] * count)

    def tickets_for(self, persons: Sequence[Any]) -> list[str]:
        made = [self.io.random_text(16) for _ in persons]
        known = self.d["persons"]
        for one, person in zip(made, persons, strict=True):
            row = {
                "id": len(self.d["rows"]) + 1, "state": UNSPENT, "plan": None, "due": None, "nonce": None,
                "person": person,
            }  # fmt: skip
            self.d["rows"].append(row)
            self.d["tickets"][hashed(one)] = row
            if person is not None:
                known.setdefault(person, {"id": len(known) + 1, "batches": []})
        return made

    def _waits(self, row: dict[str, Any]) -> bool:
        """True if the person of a ticket has a place, or cannot take part again yet."""
        if row["person"] is None:
            return False
        own = [one for one in self.d["rows"] if one["person"] == row["person"] and one["state"] == PLACED]
        batches = self.d["persons"][row["person"]]["batches"]
        recent = batches and self._batch_of(self.d["count"] + 1) < batches[-1] + self.study.separation
        return bool(own or recent or len(batches) >= self.study.participations)

    def _take_part(self, row: dict[str, Any]) -> None:
        if row["person"] is not None:
            self.d["persons"][row["person"]]["batches"].append(self._batch_of(self.d["count"] + 1))

    # ------------------------------------------------------------------------- the study
    sqlite, file = True, None  # in memory

    def saved(self) -> bytes:
        """A backup."""
        return pickle.dumps(self.d)

    def restore(self, content: bytes) -> None:
        """Replace everything by a backup."""
        found = pickle.loads(content)
        self.d.clear()
        self.d.update(found)

    def created(self, identity: str) -> bool:
        return True

    def frozen(self) -> tuple[str, str]:
        return str(self.program["mechanism_json"]), str(self.program["guarantee_json"])

    def programs(self) -> list[dict[str, Any]]:
        return [{**self.program, "at_turn": 0, "accepted": False}]

    def key_rows(self) -> list[dict[str, Any]]:
        return []

    def add_key_row(self, row: dict[str, Any]) -> None:
        pass

    def link_after(self, new: Drawn) -> str:
        """The link of the next release."""
        before = self.d["links"].get(new.number - 1, NO_LINK)
        content = f"{before} {new.number} {new.sha256}".encode()
        return digest(content + hashlib.sha256(new.exact).digest())

    def contains(self, mark: ChainMark) -> bool:
        """True if the database has the release and the beat of a line of its head."""
        links, beats = self.d["links"], self.d["beats"]
        same = not mark.beat or beats.get(mark.beat) == mark.nonce
        return links.get(mark.number) == mark.link and same

    def beats(self) -> int:
        """The number of beats."""
        return len(self.d["beats"])

    @transaction(False)
    def link(self, number: int) -> str | None:
        found: str | None = self.d["links"].get(number)
        return found

    @transaction(False)
    def nonce(self, beat: int) -> str | None:
        found: str | None = self.d["beats"].get(beat) if beat else NO_LINK[:16]
        return found

    @transaction(False)
    def mark(self) -> ChainMark:
        number, beat = max(self.d["links"]), max(self.d["beats"], default=0)
        nonce = self.d["beats"].get(beat, NO_LINK[:16])
        return ChainMark(number, self.d["links"][number], beat, nonce)

    def close_rule(self) -> str:
        return self.study.close_rule

    def begun(self) -> float:
        return float(self.d["plans"][1]["opened"])

    def clocked(self, io: Io) -> Io:
        """The system with the clock of the database."""
        return io.with_clock(io.system.time) if isinstance(io, SimulatedIo) else io

    def bind_key(self, public: str) -> None:
        pass

    @transaction(False)
    def about(self) -> dict[str, Any]:
        d = self.d
        ties = bytes(16)
        return {"turn": d["turn"], "over": d["over"], "ties": ties, "form": b"", "ledger": "null"}

    @transaction(False)
    def session(self) -> tuple[int, bytes]:
        return self.d["turn"], self.d["session"]

    @transaction(False)
    def exact_release(self, number: int) -> bytes | None:
        found = self.d["releases"].get(number)
        return None if found is None else found.exact

    @transaction(False)
    def release(self, number: int) -> tuple[bytes, str] | None:
        found = self.d["releases"].get(number)
        shown = found is not None and number <= self.d["turn"]
        return (found.body, found.sha256) if shown else None

    def _keep(self, new: Drawn) -> None:
        self.d["links"][new.number] = self.link_after(new)
        self.d["releases"][new.number] = new

    def _open(self, turn: int, plans: Sequence[tuple[int, int, str]], now: float) -> None:
        for number, users, policy in plans:
            self.d["plans"][number] = {
                "number": number, "turn": turn, "users": users, "policy": policy, "placed": 0, "came": 0,
                "absent": 0, "opened": now,
            }  # fmt: skip

    # ------------------------------------------------------------------------- plans
    def _current(self, turn: int) -> list[dict[str, Any]]:
        return [one for one in self.d["plans"].values() if one["turn"] == turn]

    # ------------------------------------------------------------------------- acts of the operator
    def _stands(self) -> Standing:
        last = [kind for kind, _ in self.d["acts"] if kind != "extend"][-1:]
        return Standing(last == ["pause"], max((s for _, s in self.d["acts"] if s is not None), default=0.0))

    @transaction(False)
    def standing(self) -> Standing:
        return self._stands()

    @transaction(True)
    def act(
        self, kind: str, stays: float, seconds: float | None = None, closes_after: float | None = None
    ) -> Standing:
        before, ends = self._stands().stays(stays), math.inf if closes_after is None else closes_after
        self.d["acts"].append((kind, seconds))
        for row in self.d["rows"]:
            if row["due"] is not None:
                last = self.d["plans"][row["plan"]]["opened"] + ends
                row["due"] = min(row["due"] + self._stands().stays(stays) - before, last)
        return self._stands()

    @transaction(False)
    def policies(self, turn: int) -> list[dict[str, Any]]:
        return [dict(one) for one in self._current(turn)]

    @transaction(False)
    def held_policies(self, turn: int) -> list[dict[str, Any]]:
        if self.batches is None:
            return []
        if self.clock:
            stays = self._stands().stays(self.study.answer_within)
            first = turn - 1 - math.ceil(stays / self.study.every)
            return [dict(p) for p in self.d["plans"].values() if first <= p["turn"] < turn and p["placed"]]
        return [dict(p) for p in self.d["plans"].values() if p["turn"] < turn and _open(p)]

    def _is_open(self, plan: dict[str, Any]) -> bool:
        if self.d["over"]:
            return False
        return plan["turn"] == self.d["turn"] or (self.batches is not None and _open(plan) > 0)

    def _batch_is_whole(self, turn: int) -> bool:
        if self.batches is None:
            return all(one["came"] + one["absent"] >= one["users"] for one in self._current(turn))
        if self.clock:
            return (turn, 0) in self.d["resolved"]
        count = sum(sum(value) for (batch, _), value in self.d["resolved"].items() if batch == turn)
        return count >= self.sizes[turn]

    @transaction(False)
    def is_whole(self, turn: int) -> bool:
        return self._batch_is_whole(turn)

    @transaction(False)
    def batch(self, turn: int) -> list[dict[str, Any]]:
        plans = self.d["plans"]
        if self.batches is None:
            return [{**one} for one in self._current(turn)]
        if self.clock:
            came = self._came(turn)
            part = {"number": None, "users": self.sizes[turn], "policy": self._current(turn)[0]["policy"]}
            return [{**part, "came": came, "absent": self.sizes[turn] - came}]
        return [
            {
                "number": plan, "users": came + absent, "policy": plans[plan]["policy"], "came": came,
                "absent": absent,
            }
            for (batch, plan), (came, absent) in sorted(self.d["resolved"].items())
            if batch == turn
        ]  # fmt: skip

    def _came(self, batch: int) -> int:
        return sum(came for (own, _), (came, _) in self.d["resolved"].items() if own == batch)

    @transaction(False)
    def followed(self, turn: int) -> list[dict[str, Any]]:
        if not self.clock:
            return DictionaryStore.batch.__wrapped__(self, turn)  # type: ignore[attr-defined,no-any-return]
        return [{**one, "users": one["placed"]} for one in self._current(turn) if one["placed"]]

    @transaction(False)
    def messages(self, plan: int | None, batch: int | None = None) -> list[bytes]:
        found = sorted(self.d["messages"].items(), key=lambda one: (one[1][0], one[0]))
        return [body for _, (own, at, body) in found if plan in (None, own) and batch in (None, at)]

    def close_due(self, turn: int, now: float) -> None:
        if self.clock and not self._batch_is_whole(turn) and now >= self._end(turn):
            self._close_batch(now)

    def _end(self, turn: int) -> float:
        return self.begun() + (turn + 1) * float(self.study.every)

    @transaction(True)
    def _close_batch(self, now: float) -> None:
        self._closed(now)

    def _closed(self, now: float) -> bool:
        """Close the batch of the turn if its time is over, and say whether it is closed."""
        turn = self.d["turn"]
        if self.clock and not self.d["over"] and not self._batch_is_whole(turn) and now >= self._end(turn):
            self.d["resolved"][turn, 0] = 0, self.sizes[turn] - self._came(turn)
        return self.clock and self._batch_is_whole(turn)

    # ------------------------------------------------------------------------- people
    @transaction(True)
    def admit(
        self, requests: Sequence[Any], now: float, stays: float, closes_after: float | None = None
    ) -> list[RequestResult]:
        self._closed(now)
        stays = self._stands().stays(stays)
        found = [self._result(one, now, stays) for one in requests]
        self.whole = not self.d["over"] and self._batch_is_whole(self.d["turn"])
        return found

    def _result(self, one: Any, now: float, stays: float) -> RequestResult:
        if isinstance(one, WithdrawalRequest):
            return self._withdraw(one)
        return self._place(one, now, stays) if isinstance(one, ReservationRequest) else self._answer(one)

    def _withdraw(self, asked: Any) -> RequestResult:
        d, row = self.d, self.d["tickets"].get(asked.ticket)
        if row is None or row["state"] in (UNSPENT, ABSENT):
            return RequestResult(
                "foreign" if row is None else "placeless" if row["state"] == UNSPENT else "withdrawn"
            )
        if row["state"] == PLACED:
            if d["over"] and not self.clock:
                return RequestResult("over")
            row.update(state=ABSENT, due=None)
            self._take_part(row)
            self._resolved(d["plans"][row["plan"]], 1)
            return RequestResult("withdrawn")
        _, at, _ = d["messages"].get(row["id"], (0, -1, b""))
        plan = d["plans"][row["plan"]]
        batch = plan["turn"] if at is None else at
        if row["id"] not in d["messages"] or batch < d["turn"] or self._batch_is_whole(batch):
            return RequestResult("counted")
        del d["messages"][row["id"]]
        row.update(state=ABSENT)
        plan["came"], plan["absent"] = plan["came"] - 1, plan["absent"] + 1
        if at is not None:
            came, gone = d["resolved"][at, plan["number"]]
            d["resolved"][at, plan["number"]] = came - 1, gone + (not self.clock)
        return RequestResult("withdrawn")

    def _place(self, asked: Any, now: float, stays: float) -> RequestResult:
        d, row = self.d, self.d["tickets"].get(asked.ticket)
        if row is None:
            return RequestResult("foreign")
        if row["state"] == PLACED and self._is_open(d["plans"][row["plan"]]):
            return RequestResult("placed", row["plan"], max(0.0, row["due"] - now))
        if row["state"] != UNSPENT:
            return RequestResult("spent")
        if d["over"] or self._stands().paused:
            return RequestResult("over" if d["over"] else "paused")
        if self._waits(row):
            return RequestResult("again")
        newest = self._current(d["turn"])
        if self.clock:
            full = all(one["placed"] >= one["users"] for one in newest)
            free = [] if full or self._closed(now) else self._in_order(newest)
        elif self.batches is None:
            free = [one for one in newest if one["placed"] < one["users"]]
        else:
            free = self._shares(newest)
        if not free:
            return RequestResult("full", seconds=self._first_due(now))
        plan = free[0]
        plan["placed"] += 1
        row.update(state=PLACED, plan=plan["number"], due=now + stays)
        return RequestResult("placed", plan["number"], stays)

    def _first_due(self, now: float) -> float:
        dues = [row["due"] for row in self.d["rows"] if row["due"] is not None]
        return max(0.0, min(dues, default=now) - now)

    def _shares(self, newest: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The plan of the next place, if one is free."""
        study, plans = self.study, self.d["plans"].values()
        given = sum(one["placed"] for one in plans)
        resolved = sum(one["came"] + one["absent"] for one in plans)
        most = max(study.in_flight_least, int(study.in_flight_share * resolved))
        if given >= study.users or given - resolved >= most:
            return []
        return self._in_order(newest)

    def _in_order(self, newest: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The plans of a release that are furthest below their share come first."""
        n, total = 1 + sum(one["placed"] for one in newest), sum(one["users"] for one in newest)
        return sorted(newest, key=lambda one: (one["placed"] * total - n * one["users"], one["number"]))

    def _answer(self, given: Any) -> RequestResult:
        d, row = self.d, self.d["tickets"].get(given.ticket)
        if row is None:
            return RequestResult("foreign")
        if row["state"] == ANSWERED:
            same = row["nonce"] == given.nonce
            return RequestResult("counted", row["plan"]) if same else RequestResult("spent")
        if row["state"] == ABSENT:
            return RequestResult("late")
        plan = d["plans"].get(given.plan)
        if plan is None or not self._is_open(plan):
            return RequestResult("over" if d["over"] else "late")
        if any(one["nonce"] == given.nonce for one in d["rows"]):
            return RequestResult("replayed")
        if row["state"] == UNSPENT:
            return RequestResult("placeless")
        if row["plan"] != given.plan:
            return RequestResult("late")
        row.update(state=ANSWERED, due=None, nonce=given.nonce)
        self._take_part(row)
        batch = self._resolved(plan, 0)
        d["messages"][row["id"]] = given.plan, batch, given.body
        return RequestResult("counted", given.plan)

    def _resolved(self, plan: dict[str, Any], absent: int) -> int | None:
        plan["absent" if absent else "came"] += 1
        if self.batches is None:
            return None
        if self.clock:
            batch = self.d["turn"] + self._batch_is_whole(self.d["turn"])
            if not absent:
                came, _ = self.d["resolved"].get((batch, plan["number"]), (0, 0))
                self.d["resolved"][batch, plan["number"]] = came + 1, 0
            return int(batch)
        self.d["count"] += 1
        batch = self._batch_of(self.d["count"])
        came, gone = self.d["resolved"].get((batch, plan["number"]), (0, 0))
        self.d["resolved"][batch, plan["number"]] = came + 1 - absent, gone + absent
        return batch

    def _batch_of(self, number: int) -> int:
        """The batch of the reservation that is resolved as this number."""
        batch, left = 0, number
        while left > self.sizes[batch] and batch < len(self.sizes) - 1:
            left -= self.sizes[batch]
            batch += 1
        return batch

    def mark_expired(self, now: float, closes_after: float | None, stays: float) -> int:
        dues = [row["due"] for row in self.d["rows"] if row["due"] is not None]
        stays = self._stands().stays(stays)
        return self._expire(now, stays) if any(not now < due <= now + stays for due in dues) else 0

    @transaction(True)
    def _expire(self, now: float, stays: float) -> int:
        self._closed(now)
        stays = self._stands().stays(stays)
        for row in self.d["rows"]:
            if row["due"] is not None:
                row["due"] = min(row["due"], now + stays)
        late = [row for row in self.d["rows"] if row["state"] == PLACED and row["due"] <= now]
        for row in late:
            row.update(state=ABSENT, due=None)
            self._resolved(self.d["plans"][row["plan"]], 1)
        self.whole = not self.d["over"] and self._batch_is_whole(self.d["turn"])
        return len(late)

    # ------------------------------------------------------------------------- releases, lease
    def _own(self, token: int, turn: int) -> None:
        if self.d["lease"][1] != token or self.d["turn"] != turn:
            raise StaleWriter("turn or lease")

    @transaction(True)
    def drew(self, token: int, turn: int, new: Drawn, now: float, lasts: float) -> None:
        self._own(token, turn)
        if turn + 1 in self.d["releases"]:
            raise StaleWriter("drawn")
        self._keep(new)
        self.d["session"] = new.session
        self.d["lease"][2] = now + lasts

    @transaction(True)
    def turned(self, token: int, turn: int, plans: Any, now: float, lasts: float) -> None:
        self._own(token, turn)
        if turn + 1 not in self.d["releases"]:
            raise StaleWriter("not drawn")
        self.d["turn"] = turn + 1
        self.d["lease"][2] = now + lasts
        self._open(turn + 1, plans, now)

    @transaction(True)
    def ended(self, token: int, turn: int) -> None:
        self._own(token, turn)
        self.d["over"] = True

    def sweep(self) -> int:
        d = self.d
        old = [
            number
            for number, (plan, batch, _) in d["messages"].items()
            if d["over"] or (d["plans"][plan]["turn"] if batch is None else batch) < d["turn"]
        ]
        return self._sweep(old) if old else 0

    @transaction(True)
    def _sweep(self, old: list[int]) -> int:
        for number in old:
            self.d["messages"].pop(number, None)
        return len(old)

    @transaction(True, shown=False)
    def lease(self, holder: str, now: float, lasts: float) -> int | None:
        lease = self.d["lease"]
        if now < lease[2] <= now + 2 * lasts:
            return None
        gap = now - lease[2] if lease[2] > 0.0 else 0.0
        lease[:] = holder, lease[1] + 1, now + lasts
        for row in self.d["rows"]:
            if row["due"] is not None:
                row["due"] += gap
        for plan in self._current(self.d["turn"]) if self.batches is None else ():
            plan["opened"] += gap
        return int(lease[1])

    @transaction(True, shown=False)
    def keep(self, token: int, now: float, lasts: float, *, beat: bool = False) -> bool:
        lease = self.d["lease"]
        if lease[1] != token or not now < lease[2] <= now + 2 * lasts:
            return False
        lease[2] = now + lasts
        if beat:
            beats = self.d["beats"]
            beats[max(beats, default=0) + 1] = self.io.random_bytes(8).hex()
        return True

    @transaction(True, shown=False)
    def release_lease(self, token: int, now: float) -> None:
        if self.d["lease"][1] == token:
            self.d["lease"][2] = now


def _open(plan: dict[str, Any]) -> int:
    return int(plan["placed"] - plan["came"] - plan["absent"])


def digest(content: bytes) -> str:
    """The SHA-256 of bytes."""
    return hashlib.sha256(content).hexdigest()
