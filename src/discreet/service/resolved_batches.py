"""Batches that close when enough reservations are resolved (``close = "resolved"``).

A reservation is resolved when its user answers or is marked absent. This happens only once. Let r be the
number of resolved reservations, and 0 = t_0 < t_1 < ... < t_B = K the schedule. Batch i consists of the
reservations that are resolved as number t_i + 1, ..., t_(i+1), for any plan that their users hold. The
transaction that resolves a reservation increases r and counts the reservation in its batch. Therefore batches
have exactly the sizes of the schedule, and no batch waits for a particular user while two or more
reservations can be open.

**Privacy.** Neighbours differ in the whole record of one user. Fix the log: the sequence of events
"reservation given, plan" and "reservation resolved, answered or absent". The user's record enters exactly one
batch, and this batch is a function of the log. Everything else in a release is a function of the log, of
other users' records and of earlier releases. So the squared shifts of all releases sum to at most the squared
sensitivity of one batch. This holds for any dependence of the log on earlier releases. The privacy loss is
the same as if plans closed the batches. Plans, and the policies that users without a place follow, are
post-processing of releases. (For sums with decay: adaptive lower-triangular mechanisms, arXiv 2202.08312,
Theorem 2.1.)

The guarantee covers neither the time of a user's answer nor the fact that the user answers. If the time of an
answer depends on its content, other users can fall into other batches and get other plans.

**Places.** A reservation is for a plan of the newest release. A new one is given while fewer than K were
given and fewer than max(``least``, ``share`` r) are open. Users who find no place can follow a published
policy. They send no message.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.engine import Connection

from discreet.service.database import BatchRule, Requests, RowUpdate, resolved_table

__all__ = ["ResolvedBatches", "ResolvedRequests"]

_UPDATE = RowUpdate(resolved_table, ("batch", "plan"), ("came", "absent"))


@dataclass(frozen=True)
class ResolvedBatches(BatchRule):
    """Rule "resolved" of one study.

    Parameters
    ----------
    times : numbers of users before each batch, in ascending order, starting with 0.
    users : K, the number of all users.
    least, share : a place is free while fewer than max(least, share r) reservations are open.
    """

    times: tuple[int, ...]
    users: int
    least: int
    share: float

    def size(self, turn: int) -> int:
        """Return the number of users in batch ``turn``."""
        return (*self.times, self.users)[turn + 1] - self.times[turn]

    def batch_of(self, resolved: int) -> int:
        """Return the batch of the reservation that is resolved after ``resolved`` others."""
        return bisect_right(self.times, resolved) - 1

    def most_open(self, resolved: int) -> int:
        """Return the largest allowed number of open reservations after ``resolved`` resolved ones."""
        return max(self.least, math.floor(self.share * resolved))

    def is_whole(self, turn: int, rows: list[dict[str, Any]]) -> bool:
        """Return True if all users of batch ``turn`` have answered or are absent."""
        return sum(row["came"] + row["absent"] for row in rows) >= self.size(turn)

    def requests(self, turn: int, rows: list[dict[str, Any]], *given: Any) -> ResolvedRequests:
        """Return the requests of one transaction; see :class:`~discreet.service.database.BatchRule`."""
        return ResolvedRequests(self, turn, rows, *given)


class ResolvedRequests(Requests):
    """Requests of one transaction, where each reservation that is resolved joins the open batch."""

    def __init__(self, rule: ResolvedBatches, turn: int, rows: list[dict[str, Any]], *given: Any) -> None:
        super().__init__(*given)
        self._rule, self._turn = rule, turn
        self._rows = {(int(row["batch"]), int(row["plan"])): row for row in rows}
        self._stored = {key: dict(row) for key, row in self._rows.items()}
        self._resolved = rule.times[turn] + sum(row["came"] + row["absent"] for row in rows)
        self._open = sum(one["placed"] - one["came"] - one["absent"] for one in self._plans.values())

    @property
    def whole(self) -> bool:
        """True if the batch before the next release is complete."""
        return self._resolved >= self._rule.times[self._turn] + self._rule.size(self._turn)

    def vacancies(self) -> int:
        """Return the number of places that are free now."""
        most, left = self._rule.most_open(self._resolved), self._rule.users - self._resolved
        return max(0, min(most, left) - self._open)

    def _vacancy(self) -> dict[str, Any] | None:
        """Return the plan of the next place.

        The plans of a release share the reservations in proportion to their numbers of users: the n-th
        reservation goes to the plan that is furthest below its share (the lowest number at ties).
        """
        if not self.vacancies():
            return None
        newest = self._newest()
        users = sum(plan["users"] for plan in newest)
        n = 1 + sum(plan["placed"] for plan in newest)
        found = max(newest, key=lambda plan: (n * plan["users"] - users * plan["placed"], -plan["number"]))
        self._open += 1
        return found

    def _newest(self) -> list[dict[str, Any]]:
        """Return the plans of the newest release."""
        return [plan for plan in self._plans.values() if plan["turn"] == self._turn]

    def _row(self, batch: int, plan: dict[str, Any]) -> dict[str, Any]:
        """Return the counts of a plan in a batch."""
        new = {"batch": batch, "plan": int(plan["number"]), "came": 0, "absent": 0}
        return self._rows.setdefault((batch, new["plan"]), new)

    def _resolve(self, plan: dict[str, Any], outcome: Literal["came", "absent"]) -> int:
        super()._resolve(plan, outcome)
        batch = self._rule.batch_of(self._resolved)
        self._row(batch, plan)[outcome] += 1
        self._resolved, self._open = self._resolved + 1, self._open - 1
        return batch

    def _open_batch(self) -> int:
        return self._rule.batch_of(self._resolved)

    def _is_open(self, plan: dict[str, Any] | None, batch: int | None) -> bool:
        if batch is None or batch < self._turn:
            return False
        return not self._rule.is_whole(batch, [row for (own, _), row in self._rows.items() if own == batch])

    def _unresolve(self, number: int, batch: int | None) -> None:
        super()._unresolve(number, batch)
        assert batch is not None
        row = self._rows[batch, number]
        row["came"], row["absent"] = row["came"] - 1, row["absent"] + 1

    def write(self, connection: Connection) -> None:
        """Write the changed rows."""
        super().write(connection)
        if new := [row for key, row in self._rows.items() if key not in self._stored]:
            connection.execute(resolved_table.insert(), new)
        _UPDATE.write(connection, (self._rows[k] for k, row in self._stored.items() if self._rows[k] != row))
