"""Batches that close at fixed times (``close = "clock"``), so that no time of an answer is revealed.

Release i + 1 is made at the time tau = start + (i + 1) * ``every``. Batch i contains the answers that were
stored between release i and release i + 1, for any plan that the users hold. During batch i, users get at
most n_i = t_(i+1) - t_i places, on the plans of release i and in the order in which they ask. Places that no
user took, and users who have not answered, count as absent. If such a user answers later, the answer counts
in the batch that is open then. So the number of answers in a batch can exceed n_i.

**Privacy.** Neighbours differ in one user's record, in the time of their answer, and in whether they answer.
Reservations, plans, deadlines and release times depend on the clock and on earlier releases, never on an
answer. So the neighbours differ only in the sums to which the user's own record is added. The record c is in
batch p and the record c' in batch q >= p, or only one of the two records exists. Let M be the largest norm of
a record in units of the noise, and D the largest norm of c - c'. With separate noise for each batch, the
squared shifts of all releases sum to |c|^2 + |c'|^2 <= 2 M^2 if p < q, and to at most D^2 if p = q. With a
decay, let g_p and g_q be the columns of the two batches. Their norms are at most 1, and <g_p, g_q> = s
|g_q|^2 with s = decay^(q - p). Then |g_p c - g_q c'|^2 <= 2 (1 - s) M^2 + s D^2. The batches p and q can
depend on earlier releases, because the bound holds for every course of releases.

M and D are bounded by the same table of changed cells (:mod:`discreet.core.exchange`): two records that never
share a state-action pair change twice the cells of one record. D^2 is the largest cost over a set of pairs
that contains this pair. Therefore 2 M^2 <= D^2 for all counts per step and pooled counts, and with l1 norms 2
M <= D. The stated guarantee is the same as with the rule "all", without wider noise. The same holds for
listed privacy-loss distributions, because the noise of a cell depends only on the size of the change. The
rounding of fixed-point sums is bounded by the cells of two records, as before.

*Sums over contexts.* Let a = 1 / s_G^2 and b = 1 / s_u^2 for the noise scales s_G of the matrices and s_u of
the responses. A record has at most the squared norm M^2 = a / 2 + b / 4, because ||phi|| <= 1 and |r - 1/2|
<= 1/2. The stated squared loss is a + b / 2 + b^2 / (16 a), or b if b > 4 a (lemma 3 of
:mod:`discreet.mechanisms.linear.sensitivities`). Both are at least 2 M^2. For Laplace noise, the stated loss
is twice the largest l1 norm of a record. The sums do not depend on the plan that the user followed.

*Delayed outcomes.* The device sends one message when the outcome is known. The record counts in the batch
that is open then, so the time of the outcome is covered like the time of any answer.

The bound requires noise that does not depend on the number of answers. It does not hold if each answer adds
its own noise (local privacy, ``release = "reports"``, shuffling). The presence of an answer then also changes
the noise, so the noise cannot hide it. Two mechanisms are refused, because their columns are not derived
here: trees, and decaying sums whose scales change from release to release.

**What is not covered**: the fact that a user took a place, and everything that an observer of the network
sees. The service publishes nothing that depends on answers. In particular, it publishes no number of answers
or absences. The next plans open at a fixed time after the end of the batch: after one tenth of ``every``, but
at most 60 seconds. The release is drawn in this time. A longer draw delays the plans, and the delay could
reveal the number of answers. The service then logs a warning. The date of a release is that of the end of its
batch. The learner gets the number of *reservations* of each plan instead of answers. A user
who withdraws before the end of their batch counts as a user who never answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from discreet.core.count_mechanism import CountMechanism
from discreet.core.strategies import Batches
from discreet.mechanisms.linear.context_query import ContextQuery
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism
from discreet.service.resolved_batches import ResolvedBatches, ResolvedRequests

__all__ = ["ClockBatches", "ClockRequests", "check_mechanism", "settling_time"]

CLOSED = 0  # plan number of the row that closes a batch; plans are numbered from 1
_SETTLES = 60.0  # largest number of seconds from the end of a batch to the next plans


def check_mechanism(mechanism: Any) -> None:
    """Raise ``ValueError`` if the bound in the module docstring does not hold for the mechanism."""
    sums = isinstance(mechanism, LinearMechanism) and isinstance(mechanism.query, ContextQuery)
    if not (sums or isinstance(mechanism, CountMechanism)) or not isinstance(mechanism.strategy, Batches):
        raise ValueError(
            'serving.close = "clock": must be "resolved" or "all" with this privatizer; the time of an '
            "answer is hidden only by noise of the server on sums of batches (privatizer 'central', release "
            "'batches' or 'decaying')"
        )
    if not sums and (mechanism.query.steered or (mechanism.release_scales.size and mechanism.decay)):
        raise ValueError(
            'serving.close = "clock": must be "resolved" or "all" with noise scales that change from release '
            "to release"
        )


def settling_time(every: float) -> float:
    """Return the number of seconds from the end of a batch to the next plans.

    every : number of seconds between two releases.
    """
    return min(_SETTLES, every / 10)


@dataclass(frozen=True)
class ClockBatches(ResolvedBatches):
    """Rule "clock" of one study.

    Parameters
    ----------
    start : time at which the study began, in seconds since 1970.
    every : seconds between two releases.
    stays : seconds between a user's reservation of a place and the deadline for their answer.
    """

    start: float
    every: float
    stays: float

    def closes(self, turn: int) -> float:
        """Return the time at which batch ``turn`` closes."""
        return self.start + (turn + 1) * self.every

    def opens(self, turn: int) -> float:
        """Return the time before which the plans after batch ``turn`` are not opened."""
        return self.closes(turn) + settling_time(self.every)

    @property
    def held_turns(self) -> int:
        """Number of earlier turns whose plans stay published. This number does not depend on answers."""
        return math.ceil(self.stays / self.every) + 1

    def with_stays(self, stays: float) -> ClockBatches:
        """Return the rule if users have at least ``stays`` seconds to answer."""
        return self if stays <= self.stays else replace(self, stays=stays)

    def is_whole(self, turn: int, rows: list[dict[str, Any]]) -> bool:
        """Return True if batch ``turn`` was closed."""
        return any(row["plan"] == CLOSED for row in rows)

    def parts(
        self, turn: int, rows: list[dict[str, Any]], plan: Callable[[], Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the whole batch as one part, because sums of records do not depend on their plans."""
        users, came = self.size(turn), sum(row["came"] for row in rows)
        policy = plan()["policy"]
        return [{"number": None, "policy": policy, "users": users, "came": came, "absent": users - came}]

    def requests(self, turn: int, rows: list[dict[str, Any]], *given: Any) -> ClockRequests:
        """Return the requests of one transaction; see :class:`~discreet.service.database.BatchRule`."""
        return ClockRequests(self, turn, rows, *given)


class ClockRequests(ResolvedRequests):
    """Requests of one transaction, where each answer joins the batch that is open by the clock.

    The first transaction after the end of a batch closes it. The batch is closed before the requests of this
    transaction are processed. Therefore an answer joins the batch that was open when the transaction began.
    """

    _rule: ClockBatches

    def __init__(self, rule: ClockBatches, turn: int, rows: list[dict[str, Any]], *given: Any) -> None:
        super().__init__(rule, turn, rows, *given)
        if not self._over and not self.whole and self._now >= rule.closes(turn):
            came = sum(row["came"] for row in rows if row["batch"] == turn)
            absent = rule.size(turn) - came
            self._rows[turn, CLOSED] = {"batch": turn, "plan": CLOSED, "came": 0, "absent": absent}

    @property
    def whole(self) -> bool:
        """True if the batch before the next release is closed."""
        return (self._turn, CLOSED) in self._rows

    def vacancies(self) -> int:
        """Return the number of places that are free now; 0 between the end of a batch and the next plans."""
        if self.whole:
            return 0
        return sum(one["users"] - one["placed"] for one in self._newest())

    def free_again(self, first_due: float | None) -> float:
        """Return the number of seconds until the next plans open."""
        return max(0.0, self._rule.opens(self._turn) - self._now)

    def _resolve(self, plan: dict[str, Any], outcome: Literal["came", "absent"]) -> int:
        plan[outcome] += 1
        batch = self._turn + self.whole
        if outcome == "came":
            self._row(batch, plan)["came"] += 1
        return batch

    def _unresolve(self, number: int, batch: int | None) -> None:
        super()._unresolve(number, batch)
        assert batch is not None
        self._rows[batch, number]["absent"] = 0  # the row that closes the batch counts all absent users
