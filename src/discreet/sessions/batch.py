"""Batches of other people, each with a question of its own: the session of policy elimination.

A learner that eliminates policies asks something else of every batch of people (the transitions of one step,
then everything), and forgets what it was told before. ``Schedule.queries`` declares the questions, one for
each batch between two times of release. A :class:`BatchSession` starts the privatizer anew for each of
them, with that batch's query and :meth:`~discreet.protocol.Schedule.one_shot` of its size, so that a
batch is, bit for bit, the privatizer's own one-shot session.

What is guaranteed. Sizes of batches are fixed before data, and people are counted as they come: which batch a
person is in is public, and she is in exactly one. A plan ends where its batch ends, the session of a batch
takes no more people than the batch has, and it is closed after its release and never opened again. Every
batch has randomness of its own: secure draws are always fresh, seeded ones come from a key of the run and
the batch (:meth:`~discreet.core.randomness.Seeded.of_batch`). Exchange one person: given what was released
before, batches other than hers have the same law, and policies are functions of releases. So everything that
leaves the session together is as private as the batch that costs most (parallel composition;
:func:`~discreet.core.guarantee.parallel`), and every batch gets the full budget. People after the last
release are counted as users, and nothing is kept of them: their devices send nothing.

A batch that a privatizer does not let out (:class:`~discreet.shuffle.session.BatchTooSmall`) is lost: its
release raises, the next one gives the last release again, and the next batch may begin.

Source: Bai, Talebi, Zhao, Cheng and Chen 2024, the protocol of SDP-PE; specification of tabular learners, 3.5
and 7.10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from discreet.core import checks
from discreet.core.counts import CountQuery
from discreet.core.guarantee import Guarantee, Record, parallel
from discreet.core.lifecycle import Guarded
from discreet.core.mechanism import CountMechanism
from discreet.core.randomness import Randomness, Secure
from discreet.core.releases import (
    Coins,
    Encoder,
    Floats,
    Measurement,
    NoiseLaw,
    Plan,
    Release,
    Report,
    Response,
    Schedule,
    Trust,
    numbered,
)
from discreet.core.shown import brief
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.laws.noise import NoNoise
from discreet.local.reports import StepReports
from discreet.sessions.opening import session_of
from discreet.sessions.queries import continual_query, private_query, private_schedule
from discreet.shuffle.mechanism import AmplifiedMechanism, FlipMechanism

__all__ = [
    "BatchEncoder", "BatchKind", "BatchMechanism", "BatchSession", "batch_mechanism", "has_batches",
    "standing_batch",
]  # fmt: skip


@dataclass(frozen=True)
class BatchKind:
    """Batches that one mechanism serves: how they are called, how many, and what each of them guarantees."""

    words: str
    batches: int
    guarantee: Guarantee


@dataclass(frozen=True, eq=False)
class BatchMechanism:
    """What is done to each batch of people; nobody is in two.

    query : the learner's standing one. schedule : with ``queries``. parts : of each batch, the mechanism of
    its query on :meth:`~discreet.protocol.Schedule.one_shot` of its size.

    Raises
    ------
    ValueError
        If the parts are not those of the batches.
    """

    __repr__ = brief

    query: CountQuery
    schedule: Schedule
    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        if type(self.schedule) is not Schedule or self.schedule.queries is None:
            raise ValueError("schedule: must be a Schedule with queries")
        object.__setattr__(self, "schedule", replace(self.schedule))
        object.__setattr__(self, "parts", tuple(self.parts))
        sizes, asked = np.diff(self.schedule.release_times).tolist(), self.schedule.queries
        if len(self.parts) != len(sizes):
            raise ValueError(
                f"parts has {len(self.parts)} entries: must have {len(sizes)}, one for each batch"
            )
        for i, (part, size) in enumerate(zip(self.parts, sizes, strict=True)):
            if type(part) not in (CountMechanism, FlipMechanism, AmplifiedMechanism):
                raise ValueError(f"parts[{i}] = {part!r}: must be a mechanism of counts, no subclass")
            times = part.schedule.release_times.tolist()
            if not part.schedule.final or times != [0, size]:
                raise ValueError(f"parts[{i}].schedule: must be one release of all {size} users of the batch")
            if _asked(part.query) != _asked(asked[i]):
                raise ValueError(f"parts[{i}].query: must be schedule.queries[{i}], what people are asked")

    @property
    def trust(self) -> Trust:
        """Who sees raw data: the same in all batches, or there is no guarantee."""
        trust: Trust = self.parts[0].trust
        return trust

    @property
    def bits(self) -> bool:
        """True if rewards are rounded to bits: simulated sums must be sums of bits."""
        return bool(getattr(self.parts[0], "bits", False))

    @property
    def records(self) -> tuple[Record, ...]:
        """What is done to the people of each kind of batch."""
        return tuple(dict.fromkeys(record for part in self.parts for record in part.records))

    @cached_property
    def kinds(self) -> tuple[BatchKind, ...]:
        """The kinds of batches that the guarantee is the worst of."""
        told: dict[tuple[str, str], list[Any]] = {}
        for part in self.parts:
            what = "counts of every step" if part.query.step is None else "counts of one step"
            told.setdefault((what, part.guarantee.to_json()), []).append(part)
        return tuple(
            BatchKind(
                f"{_of([part.schedule.users for part in parts])}, {what}", len(parts), parts[0].guarantee
            )
            for (what, _), parts in told.items()
        )

    @cached_property
    def guarantee(self) -> Guarantee:
        """That of the worst batch."""
        return parallel([(kind.words, kind.guarantee) for kind in self.kinds])

    def shared(self, law: Any) -> NoiseLaw:
        """The law with a batch's part of a failure probability, of which its own mechanism knows nothing."""
        if isinstance(law, NoNoise):
            return law
        shared: NoiseLaw = replace(law, share=law.share / len(self.parts))
        return shared

    def laws_at(self, n: int) -> dict[str, NoiseLaw]:
        """The laws of the release after n users, a scheduled time, if all of them send their reports."""
        times = self.schedule.release_times
        if n not in times:
            raise ValueError(f"n = {n}: is not one of the scheduled times of release")
        part = self.parts[max(0, int(np.searchsorted(times, n)) - 1)]
        laws = part.laws_at(part.schedule.users if n else 0)
        return {name: self.shared(law) for name, law in laws.items()}


@dataclass(frozen=True, eq=False)
class BatchEncoder:
    """The encoder of a plan of a batch: that of the batch's own session, under the number of this one.

    inner : None for people of no batch, whose devices send nothing.
    """

    __repr__ = brief

    inner: Encoder | None
    plan: Plan  # as the batch's session numbers it
    number: int

    @property
    def guarantee(self) -> Any:
        """What one message gives away; None where devices send trajectories, or nothing."""
        return getattr(self.inner, "guarantee", None)

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Report:
        """What the device sends. Raises ``ValueError`` on a broken record or another plan."""
        if plan.number not in (0, self.number):
            raise ValueError(f"plan.number = {plan.number}: must be {self.number}, the plan of this encoder")
        if self.inner is None:
            return Report(plan=self.number)
        made = self.inner(trajectory, self.plan, coins)
        return Report(self.number, made.trajectory, made.message)


class BatchSession(Guarded):
    """One release for each batch of people, each of a query of its own; made by ``privatizer.start``.

    The calls are those of :class:`~discreet.protocol.Session`. Several plans may share a batch, all
    but the last of them with ``Plan.last = False``. A release is about its batch alone:

    - ``estimates`` : sums over the people of the newest batch, in the families of its query; ``covers`` is
      their number. The laws' failure probabilities are shared equally by the batches, so that the bounds of
      all of them hold together with the stated probability; each is a bound for its own batch.
    - ``measurement`` : the same, with decay 0 and gain 1.
    - ``users`` : everybody who came so far; ``number`` : of the batch, from 1 on; 0 before anybody came:
      zeros, in the families of the first query.

    Raises
    ------
    RuntimeError
        On calls out of order, on a closed session, and in another process than the one that started it.
    ValueError
        On a broken record (nothing is added), on more users than the batch has, and on a plan that fills its
        batch with ``last = False``.
    """

    def __init__(self, mechanism: BatchMechanism, randomness: Randomness) -> None:
        if type(mechanism) is not BatchMechanism:  # a subclass could state any loss
            raise ValueError(f"mechanism = {mechanism!r}: must be a BatchMechanism, and no subclass of it")
        super().__init__()
        mechanism = replace(mechanism)  # checked anew
        self._mechanism, self._randomness = mechanism, randomness
        self._schedule, self._guarantee = mechanism.schedule, mechanism.guarantee
        self._times = mechanism.schedule.release_times
        self._inner: Any = None  # the session of the batch that is open
        self._open = -1  # its index
        self._closed_users = 0  # of closed batches; of those after the last one, all who came
        self._until = 0  # users when the open plan is done
        self._plan: Plan | None = None  # as numbered here
        self._plans = 0
        with self._started(0) as session:  # what a release of nobody looks like
            self._last = self._described(session.release(), 0, 0)

    # ------------------------------------------------------------------------ public facts
    @property
    def guarantee(self) -> Guarantee:
        """Known before any data; never changes. That of the worst batch."""
        return self._guarantee

    @property
    def kinds(self) -> tuple[BatchKind, ...]:
        """The kinds of batches that the guarantee is the worst of."""
        return self._mechanism.kinds

    @property
    def mechanism(self) -> BatchMechanism:
        """What is done to each batch, and what that costs."""
        return self._mechanism

    @property
    def users(self) -> int:
        """Users who came or were absent so far (public)."""
        return self._closed_users + (0 if self._inner is None else int(self._inner.users))

    @property
    def schedule(self) -> Schedule:
        """The public times of release, and the queries."""
        return self._schedule

    @property
    def query(self) -> CountQuery:
        """What is summed of the person who comes next; after the last batch, the learner's standing query."""
        at = self._batch_at(self.users)
        return (self._mechanism.query if at is None else self._mechanism.parts[at].query).copy()

    @property
    def reports(self) -> StepReports | None:
        """What people of the open batch report of their steps; None where they send something else."""
        found: StepReports | None = getattr(self._inner, "reports", None)
        return found

    @property
    def bits(self) -> bool:
        """True if rewards are rounded to bits: simulated sums must be sums of bits."""
        return self._mechanism.bits

    def laws_at(self, n: int) -> Mapping[str, NoiseLaw]:
        """As the mechanism's: laws of the release after n users, if all of them send their reports."""
        return self._mechanism.laws_at(n)

    @property
    def device(self) -> Any:
        """What devices of the open batch's users must know and do, as its own session publishes it.

        Their messages carry the number of ``batch_plan``. ``RuntimeError`` if no batch is open,
        ``ValueError`` if its people send trajectories.
        """
        _ = self.batch_plan
        found = getattr(self._inner, "device", None)
        if found is None:
            raise ValueError(
                "device: must be asked of a local or shuffle session, users of others send trajectories"
            )
        return found

    @property
    def batch_plan(self) -> Plan:
        """The open plan as the batch's own session numbers it. ``RuntimeError`` if none is open."""
        if self._inner is None:
            raise RuntimeError("no batch is open: call begin first")
        plan: Plan = self._inner.open_plan
        return plan

    def _drop(self) -> None:
        super()._drop()
        if self._inner is not None:
            self._inner.close()

    def _batch_at(self, users: int) -> int | None:
        """The batch of the person who comes after so many; None: of none."""
        at = int(np.searchsorted(self._times, users, side="right")) - 1
        return at if at < len(self._mechanism.parts) else None

    @property
    def _awaited(self) -> int:
        """Users of the open plan who have not come yet."""
        return max(0, self._until - self.users)

    def _started(self, batch: int) -> Any:
        return session_of(self._mechanism.parts[batch], self._randomness.of_batch(batch))

    # ------------------------------------------------------------------------------ people
    def begin(self, plan: Plan) -> Encoder:
        """Open a plan for its users; the encoder is what their devices get."""
        with self._call():
            self._check_open()
            if self._awaited:
                raise RuntimeError(f"begin: {self._awaited} users of the open plan have not been submitted")
            if type(plan) is not Plan:
                raise ValueError(f"plan = {plan!r}: must be a Plan, and no subclass of it")
            if plan.query is not None:
                raise ValueError("plan.query: must be None, the schedule says what a batch is asked")
            users, last = checks.integer("plan.users", plan.users, 1), checks.flag("plan.last", plan.last)
            before, most = self.users, int(self._schedule.users or 0)
            if before + users > most:
                raise ValueError(
                    f"plan.users = {users}: {before} of {most} declared users have come, at most "
                    f"{most - before} are left"
                )
            if self._inner is not None and before == self._times[self._open + 1]:
                raise RuntimeError(f"begin: all {before} users of a batch have come, call release first")
            plan = replace(plan, users=users, last=last, number=0)
            batch = self._batch_at(before)
            if batch is None:
                return self._open_plan(None, plan, before)
            end = int(self._times[batch + 1])
            if before + users > end:
                raise ValueError(
                    f"plan.users = {users}: must be at most {end - before}, what is left of batch "
                    f"{batch + 1}; each user is in one batch"
                )
            if before + users == end and not last:
                raise ValueError("plan.last = False: this plan fills its batch, so a release follows")
            if self._inner is None:
                if batch <= self._open:
                    raise RuntimeError(f"begin: batch {batch + 1} was interrupted, it is not opened again")
                self._open = batch
                self._inner = self._started(batch)
            return self._open_plan(self._inner.begin(plan), self._inner.open_plan, before)

    def _open_plan(self, encoder: Encoder | None, plan: Plan, before: int) -> Encoder:
        """A number for the plan, and an encoder that knows it."""
        self._plans += 1
        self._plan = numbered(plan, self._plans)
        self._until = before + plan.users
        return BatchEncoder(encoder, plan, self._plans)

    @property
    def open_plan(self) -> Plan:
        """The plan whose users are coming, with its number. Raises ``RuntimeError`` if none is open."""
        if self._plan is None or not self._awaited:
            raise RuntimeError("no plan is open: call begin first")
        return self._plan

    def submit(self, report: Report) -> None:
        """Add one user's report. Raises ``ValueError`` (and adds nothing) if it is broken or late."""
        with self._call():
            self._check_open()
            number = self.open_plan.number
            if report.plan != number:
                raise ValueError(f"report.plan = {report.plan}: must be {number}, the plan that is open")
            trajectory, message = report.trajectory, report.message
            if self._inner is None:
                if trajectory is not None or message is not None:
                    raise ValueError("report: must be empty, these users are in no batch and send nothing")
                self._closed_users += 1
                return
            self._inner.submit(Report(self._inner.open_plan.number, trajectory, message))

    def submit_many(self, trajectories: Trajectories, plan: int) -> None:
        """Add the trajectories of many users of the open plan at once: as one by one.

        Raises ``ValueError``, and adds nothing, as :meth:`CountSession.submit_many
        <discreet.core.session.CountSession.submit_many>` does; in local and shuffle sessions always.
        Of users in no batch nothing is looked at but how many they are.
        """
        with self._call():
            self._check_open()
            number = self.open_plan.number
            if plan != number:
                raise ValueError(f"plan = {plan!r}: must be {number}, the plan that is open")
            if self._mechanism.trust in ("local", "shuffle"):
                raise ValueError("submit_many: this session takes the messages of devices only, one by one")
            if self._inner is None:
                users = checks.integer("len(trajectories)", len(trajectories), 1, self._awaited)
                self._closed_users += users
                return
            self._inner.submit_many(trajectories, self._inner.open_plan.number)

    def absent(self, users: int = 1) -> None:
        """Count people who sent nothing: the null contribution, still among the public users."""
        with self._call():
            self._check_open()
            _ = self.open_plan
            if self._inner is None:
                self._closed_users += checks.integer("users", users, 1, self._awaited)
                return
            self._inner.absent(users)

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add the exact sums of simulated users at once; noise of a local or shuffle model by its exact law.

        Raises ``ValueError`` under secure randomness: it is for simulation only. Sums of users in no batch
        are not looked at.
        """
        with self._call():
            self._check_open()
            _ = self.open_plan
            if isinstance(self._randomness, Secure):
                raise ValueError("submit_sum: must not be used with secure randomness (it is for simulation)")
            if self._inner is None:
                self._closed_users += checks.integer("users", users, 1, self._awaited)
                return
            self._inner.submit_sum(sums, users)

    # ---------------------------------------------------------------------------- releases
    def release(self) -> Release:
        """The sums of the batch that is complete; its arrays are read-only.

        After a plan with ``last=False``, and when nobody came since, the previous release again.
        """
        with self._call():
            self._check_open()
            if self._awaited:
                raise RuntimeError(f"release: {self._awaited} users of the open plan have not been submitted")
            users = self.users
            if self._inner is None or users < self._times[self._open + 1]:
                fresh = self._plan is None or users in self._times  # the last batch closed just now
                if fresh or not self._plan.last:  # type: ignore[union-attr]
                    return self._last
                if users == self._schedule.users:
                    raise RuntimeError(
                        f"release: all {users} declared users have come, nobody is left to use it"
                    )
                raise RuntimeError(f"release: {users} users is not one of the scheduled times of release")
            batch, inner = self._open, self._inner
            try:
                made = inner.release()
            finally:  # whatever came of it: this batch is never opened again
                self._closed_users = users
                self._inner = None
                inner.close()
            self._last = self._described(made, users, batch + 1)
            return self._last

    def _described(self, made: Release, users: int, number: int) -> Release:
        """A batch's own release as one of this session."""
        estimates = {
            name: replace(one, law=self._mechanism.shared(one.law)) for name, one in made.estimates.items()
        }
        return Release(estimates, users, number, self._guarantee, Measurement(estimates, 0.0, 1.0))

    @staticmethod
    def save(path: Any) -> NoReturn:
        """Only sessions of one query are saved; nothing is written and this session goes on."""
        raise ValueError(
            f"path = {str(path)!r}: a session that asks each batch a question of its own cannot be saved, "
            "only one of a learner with one query can"
        )

    @staticmethod
    def answer(question: Response) -> NoReturn:
        """Re-evaluated sums need stored users; a count session stores none."""
        raise ValueError("answer: a session of counts stores no users, so it answers no new question")


# ------------------------------------------------------------------------------------- start


def has_batches(schedule: Any) -> bool:
    """Does a schedule ask a question of its own of each batch?"""
    return getattr(schedule, "queries", None) is not None


def standing_batch(schedule: Schedule) -> Schedule:
    """The one-shot schedule of the last batch where each has a question of its own; else the schedule."""
    if not has_batches(schedule):
        return schedule
    times = private_schedule(schedule).release_times
    return Schedule.one_shot(int(times[-1] - times[-2]), schedule.plans)


def batch_mechanism(
    privatizer: Any, query: Any, schedule: Schedule, randomness: Randomness
) -> BatchMechanism:
    """What a privatizer does to each batch of a schedule with queries.

    Raises ``ValueError`` on a query that is no :class:`CountQuery`, has groups or another layout, and on what
    the privatizer refuses of one batch.
    """
    query, schedule = continual_query(query), private_schedule(schedule)
    queries = [_own_query(i, one, query) for i, one in enumerate(schedule.queries or ())]
    schedule = replace(schedule, queries=tuple(queries))
    made: dict[tuple[Any, ...], Any] = {}
    keys = []
    for one, size in zip(queries, np.diff(schedule.release_times).tolist(), strict=True):
        keys.append((*_facts(one), one.step, size))
        if keys[-1] not in made:
            once = Schedule.one_shot(size, schedule.plans)
            made[keys[-1]] = privatizer.mechanism(one, once, randomness)
    return BatchMechanism(query, schedule, tuple(made[key] for key in keys))


def _own_query(i: int, given: Any, standing: CountQuery) -> CountQuery:
    try:
        query = private_query(given)
    except ValueError as error:
        raise ValueError(f"queries[{i}]: {error}") from None
    if query.layout != standing.layout:
        raise ValueError(f"queries[{i}].layout: must be that of the learner's query")
    if query.groups:
        raise ValueError(f"queries[{i}].groups = {query.groups}: must be 0 in batches with queries")
    return query


def _facts(query: CountQuery) -> tuple[Any, ...]:
    """All that noise and guarantee depend on beside the layout, which is one for all."""
    return (
        query.stationary, query.visits, query.center_rewards, query.known_rewards, query.reward_share,
        query.pooled, query.pooled_share, query.episodes, query.step is None,
    )  # fmt: skip


def _asked(query: Any) -> tuple[Any, ...] | None:
    """All that a batch's query says; None: it is no CountQuery."""
    if type(query) is not CountQuery:
        return None
    return (query.layout, *_facts(query), query.step, query.cut, query.groups)


def _of(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    batches = "1 batch" if len(sizes) == 1 else f"{len(sizes)} batches"
    return f"{batches} of {low} users" if low == high else f"{batches} of {low} to {high} users"
