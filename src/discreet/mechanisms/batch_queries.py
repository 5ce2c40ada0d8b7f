"""Session with a separate query for each batch of users. Policy elimination needs such a session.

A learner that eliminates policies uses a different query for every batch (first the transitions of one step,
later all counts) and does not use earlier answers. ``Schedule.queries`` declares the queries, one for each
batch between two times of release. A :class:`BatchChannel` starts a session of the privatizer for each batch,
with that batch's query and :meth:`~discreet.mechanisms.interfaces.Schedule.one_shot` of the batch size. The
release of a batch is therefore equal, bit for bit, to the release of the privatizer's one-shot session.

Guarantee. Batch sizes are fixed before any data are read, and users are numbered on arrival. A user's batch
is therefore public, and each user is in at most one batch. A plan cannot extend beyond the end of its batch.
The session of a batch accepts at most the declared number of users. It is closed after its release and is
never opened again. Every batch has its own randomness: secure draws are always fresh, and seeded draws use a
key that is derived from the run and the batch (:meth:`~discreet.core.rng.Seeded.of_batch`).

Suppose that one user is replaced. Given the earlier releases, the releases of batches without that user have
the same distribution, because policies are functions of releases. The guarantee of all releases together is
therefore that of the batch with the weakest guarantee (parallel composition;
:func:`~discreet.core.guarantee.parallel`), and every batch gets the full budget. Users after the last release
are counted. Their devices send nothing, so no data of these users are stored.

A privatizer can refuse to release a batch
(:class:`~discreet.mechanisms.shuffle.shuffle_session.BatchTooSmall`). The data of that batch are lost. The
call of ``release`` raises this exception. The next call returns the previous release again, and the next
batch can begin.

Source: Bai, Talebi, Zhao, Cheng and Chen 2024, the protocol of SDP-PE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

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
from discreet.core.session import Channel, ChannelSession, Released, State
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device.message_envelope import MessageRejected
from discreet.mechanisms.local.randomized_response import StepReports
from discreet.mechanisms.open_stream import stream_of
from discreet.mechanisms.query_checks import check_source, continual_query, private_query, private_schedule
from discreet.mechanisms.saved_state.state_file import resume, state_of
from discreet.mechanisms.saved_state.version_2 import converted
from discreet.mechanisms.shuffle.shuffle_mechanisms import AmplifiedMechanism, FlipMechanism


@dataclass(frozen=True)
class BatchKind:
    """Group of batches that have the same guarantee.

    words : text that describes the batches. batches : number of batches. guarantee : guarantee of each batch.
    """

    words: str
    batches: int
    guarantee: Guarantee


@dataclass(frozen=True, eq=False)
class BatchMechanism:
    """Mechanisms of all batches of users. No user is in two batches.

    Parameters
    ----------
    query
        The learner's main query. The batches have their own queries.
    schedule
        Schedule with ``queries``.
    parts
        One mechanism for each batch: the mechanism of the batch's query on
        :meth:`~discreet.mechanisms.interfaces.Schedule.one_shot` of its size.

    Raises
    ------
    ValueError
        If the parts do not match the batches.
    """

    __repr__ = brief
    __reduce__ = checks.by_constructor

    query: CountQuery
    schedule: Schedule
    parts: tuple[Any, ...]

    leaf: ClassVar[Literal["batch"]] = "batch"

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
            checks.exactly(f"parts[{i}]", part, CountMechanism, FlipMechanism, AmplifiedMechanism)
            times = part.schedule.release_times.tolist()
            if not part.schedule.final or times != [0, size]:
                raise ValueError(f"parts[{i}].schedule: must be one release of all {size} users of the batch")
            if _asked(part.query) != _asked(asked[i]):
                raise ValueError(f"parts[{i}].query: must be schedule.queries[{i}], the query of the users")
        own = {id(part): replace(part) for part in self.parts}  # copies that other code cannot change
        object.__setattr__(self, "parts", tuple(own[id(part)] for part in self.parts))

    @property
    def trust(self) -> Trust:
        """Trust model: the party that sees raw data.

        The trust model is the same in all batches. Otherwise ``guarantee`` raises ``ValueError``.
        """
        trust: Trust = self.parts[0].trust
        return trust

    @property
    def bits(self) -> bool:
        """True if rewards are rounded to bits. Simulated sums must then be sums of bits."""
        return bool(getattr(self.parts[0], "bits", False))

    @property
    def records(self) -> tuple[Record, ...]:
        """Distinct privacy records of all batches."""
        return tuple(dict.fromkeys(record for part in self.parts for record in part.records))

    @cached_property
    def kinds(self) -> tuple[BatchKind, ...]:
        """Groups of batches with the same guarantee. The session has the guarantee of the worst group."""
        groups: dict[tuple[str, str], list[Any]] = {}
        for part in self.parts:
            what = "counts of every step" if part.query.step is None else "counts of one step"
            groups.setdefault((what, part.guarantee.to_json()), []).append(part)
        return tuple(
            BatchKind(
                f"{_of([part.schedule.users for part in parts])}, {what}", len(parts), parts[0].guarantee
            )
            for (what, _), parts in groups.items()
        )

    @cached_property
    def guarantee(self) -> Guarantee:
        """Guarantee of the worst batch."""
        return parallel([(kind.words, kind.guarantee) for kind in self.kinds])

    def shared(self, law: Any) -> NoiseDistribution:
        """Return a batch's noise distribution ``law`` with a smaller failure probability of its bounds.

        The mechanism of a batch does not take the other batches into account. Therefore this method divides
        the failure probability by the number of batches.
        """
        if isinstance(law, NoNoise):
            return law
        shared: NoiseDistribution = replace(law, share=law.share / len(self.parts))
        return shared

    def laws_at(self, n: int) -> dict[str, NoiseDistribution]:
        """Return the noise distribution of each family after ``n`` users if all of them send their messages.

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
    """Encoder of the open batch. Each message contains the plan's number in the whole session.

    inner : encoder of the batch's session. None if users are outside all batches. The devices of these users
        send nothing.
    """

    __repr__ = brief

    inner: Encoder | None
    plan: Plan  # the plan with its number in the batch's session
    number: int

    @property
    def guarantee(self) -> Any:
        """Guarantee of one message. None if devices send trajectories or send nothing."""
        return getattr(self.inner, "guarantee", None)

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Return the device's message for ``trajectory``.

        plan : the open plan, or a plan without a number.

        ``coins`` : random generator of the device.

        Raises ``ValueError`` if the record is invalid or the plan is another plan.
        """
        if plan.number not in (0, self.number):
            raise ValueError(f"plan.number = {plan.number}: must be {self.number}, the plan of this encoder")
        if self.inner is None:
            return Message(plan=self.number)
        made = self.inner(trajectory, self.plan, coins)
        return Message(self.number, made.trajectory, made.message)


class BatchChannel(Channel):
    """Channel that answers one query for each batch by one release.

    A batch can contain several plans. All of them except the last have ``Plan.last = False``. A release
    covers only its batch:

    - ``estimates`` : sums over the users of the newest batch, for each family of its query. ``covers`` is the
      number of these users. The failure probability of the noise bounds is divided equally among the batches.
      Therefore the bounds of all batches are valid simultaneously with the stated probability. Each bound is
      for one batch.
    - ``measurement`` : the same sums, with decay 0 and gain 1.
    - ``users`` : all users so far.
    - ``number`` : number of the batch, starting at 1. The release before the first user has number 0 and
      contains zeros for the families of the first query.

    ``begin`` raises ``ValueError`` for a plan with more users than remain in its batch. It also raises
    ``ValueError`` for a plan that fills its batch and has ``last = False``.
    """

    def __init__(self, mechanism: BatchMechanism, randomness: Randomness) -> None:
        checks.exactly("mechanism", mechanism, BatchMechanism)
        mechanism = replace(mechanism)  # a new object; its constructor checks all fields again
        check_source(randomness)
        for part in mechanism.parts:
            part.check_source(randomness)
        self.mechanism, self.randomness = mechanism, randomness
        self.times = mechanism.schedule.release_times

    # ------------------------------------------------------------------------------- state
    def start(self) -> State:
        """Return the state before the first user.

        - inner : session of the open batch, or None if no batch is open. Only this session counts the users
          of the
          open batch.
        - open : index of the batch that was opened last.
        - before : number of users before the open batch.
        """
        return {"open": -1, "inner": None, "before": 0}

    def plain(self, state: State) -> State:
        """Return ``state`` in the form that a file contains.

        ``inside`` is the state of ``inner``, or empty.
        """
        inner = state["inner"]
        return {"open": state["open"], "inside": {} if inner is None else state_of(inner)}

    def from_plain(self, s: ChannelSession, state: State) -> State:
        """Return the state read from a file. Raises ``ValueError`` if the state is invalid."""
        batch, inside, inner = state["open"], state["inside"], None
        if inside:
            inner = self.started(checks.integer("open", batch, 0, len(self.mechanism.parts) - 1))
            resume(inner, converted(inside, inner))
        return {"open": batch, "inner": inner, "before": s._users}

    def drop(self, s: ChannelSession) -> State:
        """Close the session of the open batch and keep the number of its users, which is public."""
        if (inner := s.state.get("inner")) is not None:
            users = self.users(s)
            inner.close()
            s._users, s.state = users, {}  # one statement without a call: no user is counted twice
        return {}

    def started(self, batch: int) -> ChannelSession:
        """Return a new session for the batch with index ``batch``."""
        return stream_of(self.mechanism.parts[batch], self.randomness.of_batch(batch))

    # ------------------------------------------------------------------------ public facts
    def users(self, s: ChannelSession) -> int:
        """Return the number of users counted so far, including those of the open batch.

        The state is read once. Therefore another thread cannot count a user twice while a batch is closed.
        """
        state = s.state
        inner = state.get("inner")
        return s._users if inner is None else int(state["before"] + inner.users)

    def batch_at(self, users: int) -> int | None:
        """Return the index of the batch of user number ``users`` + 1. None if this user
        is in no batch.
        """
        at = int(np.searchsorted(self.times, users, side="right")) - 1
        return at if at < len(self.mechanism.parts) else None

    def query_now(self, s: ChannelSession) -> CountQuery:
        """Return the query of the next user's batch.

        After the last batch, return the learner's main query.
        """
        at = self.batch_at(s.users)
        query: CountQuery = self.mechanism.query if at is None else self.mechanism.parts[at].query
        return query

    def reports_now(self, s: ChannelSession) -> StepReports | None:
        """Return the randomized responses of the open batch's users; None if they send other messages."""
        inner = s.state.get("inner")
        found: StepReports | None = None if inner is None else inner.reports
        return found

    def plan_of_devices(self, s: ChannelSession) -> Plan:
        """Return the open plan, with its number in the batch's session.

        Raises ``RuntimeError`` if no plan is open.
        """
        if s.state.get("inner") is None:
            raise RuntimeError("no batch is open: call begin first")
        plan: Plan = s.state["inner"].open_plan
        return plan

    def device(self, s: ChannelSession) -> Any:
        """Return the device program for the open batch's users. The session of the batch provides the
        program.

        Messages of these devices contain the number of :meth:`plan_of_devices`. Raises ``RuntimeError`` if no
        batch is open, and ``ValueError`` if the batch's users send trajectories.
        """
        _ = self.plan_of_devices(s)
        return s.state["inner"].device

    # ------------------------------------------------------------------------------ users
    def admit(self, s: ChannelSession, plan: Plan, users: int) -> tuple[Plan, State]:
        """Begin the plan in the session of its batch, and return it with the number from that session."""
        self.first(s)
        last, before, inner = checks.flag("plan.last", plan.last), s.users, s.state["inner"]
        if inner is not None and before == self.times[s.state["open"] + 1]:
            raise RuntimeError(f"begin: all {before} users of a batch have arrived, call release first")
        plan = replace(plan, users=users, last=last, number=0)
        batch = self.batch_at(before)
        if batch is None:
            return plan, {}
        end = int(self.times[batch + 1])
        if before + users > end:
            raise ValueError(
                f"plan.users = {users}: must be at most {end - before}, what is left of batch "
                f"{batch + 1}; each user is in one batch"
            )
        if before + users == end and not last:
            raise ValueError("plan.last = False: this plan fills its batch, so a release follows")
        if inner is None:
            if batch <= s.state["open"]:
                raise RuntimeError(f"begin: batch {batch + 1} was interrupted, it is not opened again")
            s.state = {**s.state, "open": batch}  # if an interrupt occurs here, the batch is not opened again
            inner = self.started(batch)
            s.state = {"open": batch, "inner": inner, "before": before}
        inner.begin(plan)
        return inner.open_plan, {}

    def encoder(self, s: ChannelSession) -> BatchEncoder:
        """Return the encoder for devices of the newest plan's users."""
        inner = s.state["inner"]
        if inner is None:
            return BatchEncoder(None, s.open_plan, s._plans)
        return BatchEncoder(inner.open_encoder, inner.open_plan, s._plans)

    def randomizer(self, s: ChannelSession) -> BatchEncoder:
        """Return the randomizer of the open batch's session, for audits."""
        inner = s.state["inner"]
        return self.encoder(s) if inner is None else replace(self.encoder(s), inner=inner.open_randomizer)

    def check_in_time(self, s: ChannelSession, message: Message) -> None:
        """Raise ``MessageRejected`` with a reason if the message's plan is full or its batch is closed."""
        if s._awaited or s._plan is None or not isinstance(message.message, bytes):
            return s._check_plan(message)
        inner = s.state["inner"]
        if inner is None or message.plan != s._plans:
            raise MessageRejected("late", f"was made for plan {message.plan}, which is over")
        inner.submit(Message(inner._plans, message=message.message))

    def add(self, s: ChannelSession, message: Message) -> None:
        """Pass a message to the session of its batch, which counts its user."""
        trajectory, sent, inner = message.trajectory, message.message, s.state["inner"]
        if inner is not None:
            inner.submit(Message(inner.open_plan.number, trajectory, sent))
        elif trajectory is not None or sent is not None:
            raise ValueError("message: must be empty, these users are in no batch and send nothing")
        else:
            s._count(1)

    def add_many(self, s: ChannelSession, records: Trajectories) -> None:
        """Pass records to the session of their batch. Users outside all batches are only counted."""
        inner = s.state["inner"]
        if inner is None:
            s._count(len(records))
        else:
            inner.submit_many(records, inner.open_plan.number)

    def add_absent(self, s: ChannelSession, users: int) -> None:
        """Count users who sent nothing. The session of their batch counts them."""
        inner = s.state["inner"]
        if inner is None:
            super().add_absent(s, users)
        else:
            inner.absent(users)

    def add_sum(self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Pass simulated sums to the session of their batch.

        Sums of users outside all batches are not read.
        """
        inner = s.state["inner"]
        if inner is None:
            s._count(users)
        else:
            inner.submit_sum(sums, users)

    # ---------------------------------------------------------------------------- releases
    def release(self, s: ChannelSession, n: int, leaf: int) -> Released:
        """Release the completed batch, close its session, and return the batch's sums."""
        first = self.first(s)
        if n == 0:
            return first.estimates, first.measurement, {}
        inner, empty = s.state["inner"], s.state | {"inner": None}
        try:
            made = inner.release()
        finally:  # also after an error: this batch is never opened again
            # This is one statement without a function call, so an interrupt cannot split it. Each
            # user is
            # then counted exactly once, either here or in the batch's session.
            s._users, s.state, s._fresh = n, empty, True
            inner.close()
        # the number of a release is the number of its batch, even if earlier batches were lost
        s._number = leaf - 1
        estimates = self.described(made)
        return estimates, Measurement(estimates, 0.0, 1.0), {}

    def first(self, s: ChannelSession) -> Release:
        """Return the last release. Before the first batch, return the release before all users."""
        if s._last is None:
            with self.started(0) as session:
                nothing = self.described(session.release())
            s._last = Release(nothing, 0, 0, s.guarantee, Measurement(nothing, 0.0, 1.0))
        return s._last

    def described(self, made: Release) -> dict[str, Estimate]:
        """Return the estimates of a batch's release. :meth:`BatchMechanism.shared` changes their noise
        bounds.
        """
        return {
            name: replace(one, law=self.mechanism.shared(one.law)) for name, one in made.estimates.items()
        }


# ------------------------------------------------------------------------------------- start


def batch_mechanism(
    privatizer: Any, query: Any, schedule: Schedule, randomness: Randomness
) -> BatchMechanism:
    """Return the mechanism that ``privatizer`` uses for each batch of a ``schedule`` with queries.

    query : the learner's main query. randomness : source of the noise.

    Raises ``ValueError`` if a query is not a :class:`CountQuery`, has groups or has another layout, and if
    the privatizer rejects a batch.
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
    """Return the values that determine the noise and guarantee of a query, except the layout."""
    return (
        query.stationary, query.visits, query.center_rewards, query.known_rewards, query.reward_share,
        query.pooled, query.pooled_share, query.episodes, query.step is None, query.first,
    )  # fmt: skip


def _asked(query: Any) -> tuple[Any, ...] | None:
    """Return all contents of a batch's query, or None if the query is not a CountQuery."""
    if type(query) is not CountQuery:
        return None
    return (query.layout, *_facts(query), query.step, query.cut, query.groups)


def _of(sizes: Sequence[int]) -> str:
    low, high = min(sizes), max(sizes)
    batches = "1 batch" if len(sizes) == 1 else f"{len(sizes)} batches"
    return f"{batches} of {low} users" if low == high else f"{batches} of {low} to {high} users"
