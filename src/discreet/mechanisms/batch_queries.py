"""Batches of other people, each with a question of its own: the session of policy elimination.

A learner that eliminates policies asks something else of every batch of people (the transitions of one step,
then everything), and forgets what it was told before. ``Schedule.queries`` declares the questions, one for
each batch between two times of release. A :class:`BatchSession` starts the privatizer anew for each of
them, with that batch's query and :meth:`~discreet.mechanisms.interfaces.Schedule.one_shot` of its size, so
that a batch is, bit for bit, the privatizer's own one-shot session.

What is guaranteed. Sizes of batches are fixed before data, and people are counted as they come: which batch a
person is in is public, and she is in exactly one. A plan ends where its batch ends, the session of a batch
takes no more people than the batch has, and it is closed after its release and never opened again. Every
batch has randomness of its own: secure draws are always fresh, seeded ones come from a key of the run and
the batch (:meth:`~discreet.core.rng.Seeded.of_batch`). Exchange one person: given what was released
before, batches other than hers have the same law, and policies are functions of releases. So everything that
leaves the session together is as private as the batch that costs most (parallel composition;
:func:`~discreet.core.guarantee.parallel`), and every batch gets the full budget. People after the last
release are counted as users, and nothing is kept of them: their devices send nothing.

A batch that a privatizer does not let out
(:class:`~discreet.mechanisms.shuffle.shuffle_session.BatchTooSmall`) is lost: its release raises, the next
one gives the last release again, and the next batch may begin.

Source: Bai, Talebi, Zhao, Cheng and Chen 2024, the protocol of SDP-PE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from discreet.accounting.noise_distributions.distributions import NoNoise
from discreet.core import checks
from discreet.core.call_protocols import Encoder
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee, parallel
from discreet.core.protocols import Coins, NoiseDistribution, Record
from discreet.core.releases import (
    Estimate,
    Floats,
    Measurement,
    Message,
    Plan,
    Release,
    Schedule,
    Trust,
)
from discreet.core.rng import Key, Randomness
from discreet.core.short_repr import brief
from discreet.core.stream_session import StreamSession
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device.message_envelope import MessageRejected
from discreet.mechanisms.local.randomized_response import StepReports
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.query_checks import continual_query, private_query, private_schedule
from discreet.mechanisms.saved_state.state_file import resume, state_of
from discreet.mechanisms.shuffle.shuffle_mechanisms import AmplifiedMechanism, FlipMechanism

__all__ = ["BatchEncoder", "BatchKind", "BatchMechanism", "BatchSession", "batch_mechanism"]


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
    its query on :meth:`~discreet.mechanisms.interfaces.Schedule.one_shot` of its size.

    Raises
    ------
    ValueError
        If the parts are not those of the batches.
    """

    __repr__ = brief
    __reduce__ = checks.by_constructor

    query: CountQuery
    schedule: Schedule
    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        if type(self.schedule) is not Schedule or self.schedule.queries is None:
            raise ValueError("schedule: must be a Schedule with queries")
        object.__setattr__(self, "schedule", replace(self.schedule))
        object.__setattr__(self, "query", self.query.copy())
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
        own = {id(part): replace(part) for part in self.parts}  # nobody else may change them
        object.__setattr__(self, "parts", tuple(own[id(part)] for part in self.parts))

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

    def shared(self, law: Any) -> NoiseDistribution:
        """The law with a batch's part of a failure probability, of which its own mechanism knows nothing."""
        if isinstance(law, NoNoise):
            return law
        shared: NoiseDistribution = replace(law, share=law.share / len(self.parts))
        return shared

    def laws_at(self, n: int) -> dict[str, NoiseDistribution]:
        """The laws of the release after n users, by family, if all of them send their reports.

        Raises ``ValueError`` unless n is one of ``schedule.release_times``.
        """
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

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """What the device sends. Raises ``ValueError`` on a broken record or another plan."""
        if plan.number not in (0, self.number):
            raise ValueError(f"plan.number = {plan.number}: must be {self.number}, the plan of this encoder")
        if self.inner is None:
            return Message(plan=self.number)
        made = self.inner(trajectory, self.plan, coins)
        return Message(self.number, made.trajectory, made.message)


class BatchSession(StreamSession):
    """One release for each batch of people, each of a query of its own; made by ``privatizer.start``.

    The calls are those of :class:`~discreet.mechanisms.interfaces.Session`. Several plans may share a batch,
    all but the last of them with ``Plan.last = False``. A release is about its batch alone:

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

    _kind = "batches"
    _STATE = (*StreamSession._STATE, "_open", "_inside")
    _DERIVED = (*StreamSession._DERIVED, "_inner", "_times")

    def __init__(self, mechanism: BatchMechanism, randomness: Randomness) -> None:
        if type(mechanism) is not BatchMechanism:  # a subclass could state any loss
            raise ValueError(f"mechanism = {mechanism!r}: must be a BatchMechanism, and no subclass of it")
        mechanism = replace(mechanism)  # checked anew
        super().__init__(mechanism.query.layout, mechanism.schedule, randomness, mechanism.guarantee)
        self._mechanism, self._randomness = mechanism, randomness
        self._times = mechanism.schedule.release_times
        self._inner: Any = None  # the session of the batch that is open: who is in it is counted there alone
        self._open = -1  # its index
        with self._started(0) as session:  # what a release of nobody looks like
            nobody = self._told(session.release())
        self._last = Release(nobody, 0, 0, self._guarantee, Measurement(nobody, 0.0, 1.0))

    # ------------------------------------------------------------------------ public facts
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
        return self._users + (0 if self._inner is None else int(self._inner.users))

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

    def laws_at(self, n: int) -> Mapping[str, NoiseDistribution]:
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

    def _started(self, batch: int) -> Any:
        return session_of(self._mechanism.parts[batch], self._randomness.of_batch(batch))

    @property
    def _inside(self) -> dict[str, Any]:
        """What a saved file holds of the batch that is open; empty where none is."""
        return {} if self._inner is None else state_of(self._inner)

    @_inside.setter
    def _inside(self, state: Mapping[str, Any]) -> None:
        if state:
            inner = self._started(checks.integer("_open", self._open, 0, len(self._mechanism.parts) - 1))
            resume(inner, state)
            self._inner = inner

    # ------------------------------------------------------------------------------ people
    def _admitted(self, plan: Plan, users: int) -> Plan:
        """The plan as the session of its batch has it: that is begun here."""
        last, before = checks.flag("plan.last", plan.last), self.users
        if self._inner is not None and before == self._times[self._open + 1]:
            raise RuntimeError(f"begin: all {before} users of a batch have come, call release first")
        plan = replace(plan, users=users, last=last, number=0)
        batch = self._batch_at(before)
        if batch is None:
            return plan
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
        self._inner.begin(plan)
        opened: Plan = self._inner.open_plan
        return opened

    def _encoder(self) -> Encoder:
        if self._inner is None:
            return BatchEncoder(None, self.open_plan, self._plans)
        return BatchEncoder(self._inner.open_encoder, self._inner.open_plan, self._plans)

    def _check_in_time(self, message: Message) -> None:
        """What comes to a plan that is full, or to a batch that is over, is refused by a reason."""
        if self._awaited or self._plan is None or not isinstance(message.message, bytes):
            return super()._check_in_time(message)
        if self._inner is None or message.plan != self._plans:
            raise MessageRejected("late", f"was made for plan {message.plan}, which is over")
        self._inner.submit(Message(self._inner._plans, message=message.message))

    def _add(self, message: Message) -> None:
        trajectory, sent = message.trajectory, message.message
        if self._inner is not None:
            self._inner.submit(Message(self._inner.open_plan.number, trajectory, sent))
        elif trajectory is not None or sent is not None:
            raise ValueError("message: must be empty, these users are in no batch and send nothing")
        else:
            self._count(1)

    def submit_many(self, trajectories: Trajectories, plan: int) -> None:
        """Add the trajectories of many users of the open plan at once: as one by one.

        Raises ``ValueError``, and adds nothing, as :meth:`CountSession.submit_many
        <discreet.core.count_sessions.CountSession.submit_many>` does; in local and shuffle sessions always.
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
                self._count(checks.integer("len(trajectories)", len(trajectories), 1, self._awaited))
            else:
                self._inner.submit_many(trajectories, self._inner.open_plan.number)

    def _count_absent(self, users: int) -> None:
        if self._inner is None:
            super()._count_absent(users)
        else:
            self._inner.absent(users)

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add the exact sums of simulated users at once; noise of a local or shuffle model by its exact law.

        Raises ``ValueError`` under secure randomness: it is for simulation only. Sums of users in no batch
        are not looked at.
        """
        super().submit_sum(sums, users)

    def _add_sum(self, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        if self._inner is None:
            self._count(users)
        else:
            self._inner.submit_sum(sums, users)

    # ---------------------------------------------------------------------------- releases
    def _made(self, n: int, leaf: int) -> tuple[Mapping[str, Estimate], Measurement]:
        """The sums of the batch that is complete."""
        inner = self._inner
        try:
            made = inner.release()
        finally:  # whatever came of it: this batch is never opened again
            # one statement, no call: its users are counted once, here or there
            self._users, self._inner, self._fresh = n, None, True
            inner.close()
        self._number = leaf - 1  # a release has its batch's number, also after batches that were lost
        estimates = self._told(made)
        return estimates, Measurement(estimates, 0.0, 1.0)

    def _told(self, made: Release) -> dict[str, Estimate]:
        """A batch's own release, with its part of the failure probability."""
        return {
            name: replace(one, law=self._mechanism.shared(one.law)) for name, one in made.estimates.items()
        }


# ------------------------------------------------------------------------------------- start


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
        query.pooled, query.pooled_share, query.episodes, query.step is None, query.first,
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
