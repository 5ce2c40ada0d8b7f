"""One session class for all streams of sums. Each mechanism has its own channel.

A privatizer fixes everything that determines the noise scale, and then starts a session. The order of calls
is: release, begin, submit (once per user), release, ... The session decides which users are allowed to
submit, counts them (the number is public), and decides when a release is due. If no user was added, the
session repeats the last release. The :class:`Channel` of a session checks messages, adds them to sums and
draws the noise.

The guarantee depends on two rules. First, only one call runs at a time (:mod:`discreet.core.lifecycle`),
because two simultaneous releases would draw two noises for one sum. Second, a user is counted before the
user's record is added. An interrupt (Ctrl-C) between these two steps loses the record. In the opposite order,
the record could be added without belonging to any time step.

A session cannot be copied, pickled, or continued in another process, because a second copy would draw the
same noise. Saving ends the session, and the file can be restored once
(:mod:`discreet.mechanisms.saved_state.state_file`). Everything that a channel computes during a run is in the
session's attribute ``state``, a table of arrays and numbers by name. A release writes its changes to a new
table. When the release is made, one statement replaces the table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias

import numpy as np

from discreet.core import checks
from discreet.core.guarantee import Guarantee
from discreet.core.lifecycle import Saveable
from discreet.core.releases import (
    ON_DEVICE,
    Estimate,
    Floats,
    Measurement,
    Message,
    Plan,
    Release,
    Schedule,
)
from discreet.core.rng import Key, Randomness, Seeded
from discreet.core.trajectories import Trajectories, Trajectory, checked

if TYPE_CHECKING:
    from discreet.core.call_protocols import Encoder
    from discreet.core.protocols import NoiseDistribution

State: TypeAlias = dict[str, Any]
"""Arrays and numbers by name: all that a channel computes during a run."""

Released: TypeAlias = tuple[Mapping[str, Estimate], "Measurement | None", State]
"""Sums over all users, the newest measurement, and the changes of the state."""


class Channel(ABC):
    """Channel of one kind of mechanism: the path from users' messages to releases.

    A channel has the public values of one mechanism, and no sum. The sums are in the state of the session.

    mechanism : the mechanism. The channel stores a checked copy, so that no other code can change the
        mechanism. randomness : source of the noise.
    """

    mechanism: Any
    randomness: Randomness
    record: ClassVar[type] = Trajectory  # type of one user's record
    records: ClassVar[type] = Trajectories  # type of the records of many users

    # ------------------------------------------------------------------------------- state
    @abstractmethod
    def start(self) -> State:
        """Return the state before the first user."""

    def plain(self, state: State) -> State:
        """Return ``state`` in the form that a file contains."""
        return state

    def from_plain(self, s: ChannelSession, state: State) -> State:
        """Return the state read from a file. The method is the inverse of :meth:`plain`.

        Raises ``ValueError`` if it is invalid.
        """
        return state

    def drop(self, s: ChannelSession) -> State:
        """Return the part of the state that remains after closing: public numbers only.

        Objects inside the state are closed. After an interrupt, the method can be called again.
        """
        return {}

    # ------------------------------------------------------------------------ public facts
    @property
    def most_users(self) -> int | None:
        """Largest total number of users; None if it is unknown."""
        users: int | None = self.mechanism.schedule.users
        return users

    def users(self, s: ChannelSession) -> int:
        """Return the number of users counted so far."""
        return s._users

    def query_now(self, s: ChannelSession) -> Any:
        """Return the query that the next user's message answers."""
        return self.mechanism.query

    def reports_now(self, s: ChannelSession) -> Any:
        """Return the randomized responses for the next user; None if users send other messages."""
        return getattr(self.mechanism, "reports", None)

    def plan_of_devices(self, s: ChannelSession) -> Plan:
        """Return the open plan with the number that devices put in their messages."""
        return s.open_plan

    def refused(self, state: State) -> Mapping[Any, int]:
        """Return the number of messages rejected so far, by reason."""
        return {}

    # ------------------------------------------------------------------------------- users
    def checked(self, s: ChannelSession, given: Any, users: int | None = None) -> Any:
        """Check one record, or the records of ``users`` users, and return copies.

        Raises ``ValueError`` if a record is invalid.
        """
        return checked(given, s._layout) if users is None else checked(given, s._layout, users)

    def check_policy(self, s: ChannelSession, plan: Plan) -> None:
        """Raise ``ValueError`` unless the policy of a plan has the shape (H, S) or (H, S, A)."""
        shape = (s._layout.horizon, s._layout.states)
        if np.shape(plan.policy) not in (shape, (*shape, s._layout.actions)):
            raise ValueError(
                f"plan.policy has shape {np.shape(plan.policy)}: must be {shape} or "
                f"{(*shape, s._layout.actions)}"
            )

    @abstractmethod
    def admit(self, s: ChannelSession, plan: Plan, users: int) -> tuple[Plan, State]:
        """Return the plan to store, and the changes of the state when the plan is opened.

        Raises ``ValueError`` if the plan does not fit the mechanism.
        """

    @abstractmethod
    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices of the newest plan's users."""

    def randomizer(self, s: ChannelSession) -> Encoder:
        """Return the function that maps a trajectory of the newest plan to its contribution to the sums."""
        return self.encoder(s)

    def device(self, s: ChannelSession) -> Any:
        """Return a copy of the device program. Raises ``ValueError`` if users send trajectories."""
        raise ValueError("device: must be asked of a local session, users of others send trajectories")

    def check_in_time(self, s: ChannelSession, message: Message) -> None:
        """Raise ``ValueError`` unless a message is for the open plan."""
        s._check_plan(message)

    @abstractmethod
    def add(self, s: ChannelSession, message: Message) -> None:
        """Check a message of the open plan, count its user, and then add the message."""

    @abstractmethod
    def add_many(self, s: ChannelSession, records: Trajectories) -> None:
        """Count the users of checked records, and then add all records."""

    def add_late(self, s: ChannelSession, records: Trajectories) -> None:
        """Add checked records of users who were counted as absent. Raises ``ValueError`` by default."""
        raise ValueError("late = True: must be False without separate noise for each batch")

    def add_absent(self, s: ChannelSession, users: int) -> None:
        """Count users who sent nothing."""
        # One statement without a function call. An interrupt between two statements could leave a
        # counted
        # absent user recorded as one who sent a message.
        s._users, s._absent = s._users + users, s._absent + users

    @abstractmethod
    def add_sum(self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Check simulated sums, count their users, and then add the sums."""

    def add_counted(self, s: ChannelSession, counted: Any) -> None:
        """Add the output of a shuffler in another process. Raises ``ValueError`` without a shuffler."""
        raise ValueError("submit_counted: must be called on a shuffle session, others have no shuffler")

    # ----------------------------------------------------------------------------- releases
    @abstractmethod
    def release(self, s: ChannelSession, n: int, leaf: int) -> Released:
        """Draw the noise and make the release after n users, who belong to ``leaf`` time steps.

        The method returns the changes that close the batch. The session applies these changes when the
        release is made, not before. (Otherwise an interrupt could leave a closed batch without a release, and
        the next measurement would contain no user.)
        """

    def answer(self, s: ChannelSession) -> Callable[[Any], Estimate]:
        """Return the function that answers queries about offline data."""
        return _no_answer

    def answered(self, s: ChannelSession, question: Any) -> Estimate:
        """Answer a query. The caller must hold the lock."""
        return _no_answer(question)


def _no_answer(question: Any) -> NoReturn:
    raise ValueError("answer: this session stores no users, so it answers no new question")


class ChannelSession(Saveable):
    """Stream of releases of one mechanism, computed by its :class:`Channel`.

    :func:`discreet.mechanisms.open_session.session_of` opens the session of a mechanism.
    :class:`~discreet.mechanisms.interfaces.Session` describes the calls.

    Raises
    ------
    RuntimeError
        If calls come in the wrong order, after the session was closed, or from another process than the one
        that started the session. If exact noise would not protect a sum
        (:func:`~discreet.core.rng.checked_on_grid`). Nothing is released in these cases.
    ValueError
        If a record is invalid (nothing is added), or if there are more users than the schedule declares.
    """

    _kind = "stream"
    _BOUND: ClassVar[tuple[str, ...]] = ("_mechanism", "_randomness")
    _STATE: ClassVar[tuple[str, ...]] = (
        "_users", "_absent", "_until", "_plan", "_plans", "_fresh", "_last", "_number", "_table",
    )  # fmt: skip
    _DERIVED: ClassVar[tuple[str, ...]] = (
        *Saveable._DERIVED, "_key", "_layout", "_schedule", "_guarantee", "_leaf", "_most_users", "channel",
        "state",
    )  # fmt: skip

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        mechanism, randomness = channel.mechanism, channel.randomness
        self._mechanism, self._randomness, self.channel = mechanism, randomness, channel
        self._layout, self._schedule, self._guarantee = (
            mechanism.query.layout, mechanism.schedule, mechanism.guarantee,
        )  # fmt: skip
        # "user": a release after n users covers n time steps; "batch": it covers the closed batches
        self._leaf = mechanism.leaf
        self._key: Key | None = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None
        self._most_users = channel.most_users
        self._users = 0
        self._absent = 0
        self._until = 0  # number of users at which the open plan is complete
        self._plan: Plan | None = None
        self._plans = 0
        self._fresh = True  # True if no plan was opened after the last release
        self._last: Release | None = None
        self._number = 0
        self.state = channel.start()

    def _drop(self) -> None:
        super()._drop()
        left = self.channel.drop(self)
        self.state, self._last = left, None

    @property
    def _table(self) -> State:
        """State in the form that a file contains."""
        return self.channel.plain(self.state)

    @_table.setter
    def _table(self, state: State) -> None:
        self.state = self.channel.from_plain(self, state)

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the session, known before any data are read. The guarantee never changes."""
        return self._guarantee

    @property
    def users(self) -> int:
        """Number of users submitted so far. It is public."""
        return self.channel.users(self)

    @property
    def _awaited(self) -> int:
        """Number of users of the open plan who have not been counted yet."""
        return max(0, self._until - self.users)

    @property
    def schedule(self) -> Schedule:
        """Public times of release."""
        return self._schedule

    @property
    def open_plan(self) -> Plan:
        """Open plan, with its number. Raises ``RuntimeError`` if none is open, or the session is closed."""
        super()._check_open()
        if self._plan is None or not self._awaited:
            raise RuntimeError("no plan is open: call begin first")
        return self._plan

    @property
    def open_encoder(self) -> Encoder:
        """Encoder of the open plan, for users of a restored session.

        Raises the errors of :attr:`open_plan`.
        """
        _ = self.open_plan
        return self.channel.encoder(self)

    @property
    def mechanism(self) -> Any:
        """Copy of the mechanism.

        The scales of the original determine the session's noise and must not change.
        """
        return replace(self._mechanism)

    @property
    def query(self) -> Any:
        """Copy of the query for the next user. Writing to the arrays of the copy changes no sum."""
        return self.channel.query_now(self).copy()

    @property
    def records(self) -> Any:
        """Privacy records from which the guarantee is computed; empty without privacy."""
        return self._mechanism.records

    @property
    def reports(self) -> Any:
        """Randomized responses that devices, or the server on their behalf, draw. None if there are none.

        Raises ``RuntimeError`` if batches have different randomized responses and no plan is open.
        """
        return self.channel.reports_now(self)

    @property
    def bits(self) -> bool:
        """True if rewards are rounded to bits: simulated sums must then be sums of bits."""
        return bool(getattr(self._mechanism, "bits", False))

    @property
    def number(self) -> int:
        """Number in [0, 2^64) that identifies this session in messages of devices. The number is not secret.

        Raises ``ValueError`` if messages contain no such number. A closed session may have no number.
        """
        if "session" not in self.state:
            raise ValueError("number: must be asked of an open session whose messages contain its number")
        return int(self.state["session"])

    @property
    def refused(self) -> Mapping[Any, int]:
        """Number of messages of a shuffle session that were rejected so far, by reason. Empty for other
        sessions.
        """
        return self.channel.refused(self.state)

    @property
    def plan_of_devices(self) -> Plan:
        """Open plan, with the number that messages of :attr:`device` contain.

        Raises ``RuntimeError`` if no plan is open.
        """
        return self.channel.plan_of_devices(self)

    @property
    def cut(self) -> float:
        """Clipping threshold C for users of the newest plan. 0 if the query has no clipped rewards.

        The value is infinite after the change to centred rewards.
        """
        return float(self.state.get("cut", 0.0))

    @property
    def device(self) -> Any:
        """Copy of the device program of the next users, with its parameters.

        A session publishes it once, and a shuffle session once for each batch. Raises ``ValueError`` if users
        send trajectories, and ``RuntimeError`` if it depends on the plan and no plan is open.
        """
        return self.channel.device(self)

    @property
    def open_randomizer(self) -> Encoder:
        """Randomizer that converts a trajectory of the open plan to a contribution to the sums.

        The randomizer is a pure and public function. On devices it is the encoder, and with a trusted server
        it is the function that the server runs on each trajectory. Audits use it. Raises ``RuntimeError`` if
        no plan is open.
        """
        _ = self.open_plan
        return self.channel.randomizer(self)

    @property
    def context(self) -> Mapping[str, Floats]:
        """Public arrays of the newest plan; empty without a plan."""
        return {} if self._plan is None else self._plan.context

    def laws_at(self, n: int) -> dict[str, NoiseDistribution]:
        """Return the noise distribution of every family in the sums after n users."""
        laws: dict[str, NoiseDistribution] = self._mechanism.laws_at(n)
        return laws

    # ------------------------------------------------------------------------------- users
    def begin(self, plan: Plan) -> Encoder:
        """Open a plan for its users and return the encoder for devices.

        The context is read only in this call.
        """
        with self._call():
            self._check_open()
            if self._awaited:
                raise RuntimeError(f"begin: users of the open plan not submitted yet: {self._awaited}")
            checks.exactly("plan", plan, Plan)
            self.channel.check_policy(self, plan)
            users = checks.integer("plan.users", plan.users, 1)
            before, limit = self.users, self._most_users
            if limit is not None and before + users > limit:
                raise ValueError(
                    f"plan.users = {users}: {before} of {limit} declared users have arrived, "
                    f"at most {limit - before} are left"
                )
            plan, changes = self.channel.admit(self, plan, users)
            self.state = self.state | changes  # still valid if an interrupt occurs here
            self._plans += 1
            # one statement without a function call, so that an interrupt cannot leave a plan without awaited
            # users
            self._plan, self._fresh, self._until = replace(plan, number=self._plans), False, before + users
            return self.channel.encoder(self)

    @staticmethod
    def _check_no_group(plan: Plan) -> None:
        if plan.group is not None or plan.return_share is not None or plan.forget:
            raise ValueError("plan.group, return_share, forget: are for queries with groups only")
        if plan.cut is not None:
            raise ValueError(f"plan.cut = {plan.cut!r}: must be None, it is for queries with a cut only")

    def _count(self, users: int) -> None:
        """Count users before any of their data is added, so that no record is ever added twice."""
        self._users += users

    def submit(self, message: Any) -> None:
        """Add one user's message. Raises ``ValueError`` (and adds nothing) if it is invalid or late.

        message : Message. If the server is trusted with raw data, the record of a user of the open plan is
            also allowed.
        """
        with self._call():
            self._check_open()
            if isinstance(message, self.channel.record) and self._guarantee.trust in ("none", "joint"):
                message = Message(self.open_plan.number, message)  # type: ignore[arg-type]
            if not isinstance(message, Message):
                raise ValueError(f"message is a {type(message).__name__}: must be {ON_DEVICE}")
            if message.trajectory is None or not self._awaited:
                self.channel.check_in_time(self, message)
            else:
                self._check_plan(message)
            self.channel.add(self, message)

    @property
    def _released_leaf(self) -> int:
        """Number of time steps of the last release."""
        return 0 if self._last is None else self._schedule.leaf_at(self._last.users, self._leaf)

    def _check_plan(self, message: Message) -> None:
        if message.plan != (number := self.open_plan.number):
            raise ValueError(f"message.plan = {message.plan}: must be {number}, the plan that is open")

    def _record(self, message: Message) -> Any:
        """Return the checked record in the message of a user who trusts the server."""
        if message.trajectory is None:
            raise ValueError("message.trajectory = None: this session takes trajectories")
        return self.channel.checked(self, message.trajectory)

    def absent(self, users: int = 1) -> None:
        """Count users who sent nothing.

        These users contribute zero, and the public number of users includes them.
        """
        with self._call():
            self._check_open()
            users = checks.integer("users", users, 1, self._awaited if self.open_plan else 0)
            self.channel.add_absent(self, users)

    def submit_many(self, trajectories: Trajectories, plan: int, late: bool = False) -> None:
        """Add the trajectories of many users of the open plan. The sums are the same as with single calls.

        Parameters
        ----------
        trajectories : Trajectories
            Raw records of n users: ``states (n, H + 1)``, ``actions (n, H)``, ``rewards (n, H)``.
        plan : int
            Number of the plan that these users followed (``open_plan.number`` while it was open).
        late : bool
            True if these are users whom an earlier batch counted as absent. The number of users does not
            change then, so a batch can contain more records than its plans have users. ``late`` requires
            separate noise for each batch.

        Raises
        ------
        ValueError
            If a record is invalid, ``plan`` is not the open plan, or there are more users than the plan
            allows. Nothing is added in these cases. If the session is local, because each device must
            randomize its own record.
        """
        with self._call():
            self._check_open()
            if plan != (number := self.open_plan.number):
                raise ValueError(f"plan = {plan!r}: must be {number}, the plan that is open")
            if (how := self._guarantee.trust) in ("local", "shuffle"):
                raise ValueError(f"submit_many: a {how} session takes randomized messages only, {ON_DEVICE}")
            if not isinstance(trajectories, kind := self.channel.records):
                raise ValueError(f"trajectories is a {type(trajectories).__name__}: must be {kind.__name__}")
            most = self._absent if late else self._awaited
            users = checks.integer("len(trajectories)", len(trajectories), 1, most)
            add = self.channel.add_late if late else self.channel.add_many
            add(self, self.channel.checked(self, trajectories, users))

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add many simulated users of the open plan in one call, from their exact sums.

        The sum of the devices' random draws is drawn from its exact distribution. This method is for
        simulation only. It raises ``ValueError`` under secure randomness, where each user's own record must
        pass the checks.
        """
        with self._call():
            self._check_open()
            if self._key is None:
                raise ValueError("submit_sum: must not be used with secure randomness (it is for simulation)")
            users = checks.integer("users", users, 1, self._awaited if self.open_plan else 0)
            self.channel.add_sum(self, sums, users, self._key)

    def submit_counted(self, counted: Any) -> None:
        """Add the output of a separate process that ran the shuffler of the open batch.

        Before this call, report the users of the batch as :meth:`absent`, because their messages did not
        arrive in this process.

        counted : output of the shuffler. Raises ``ValueError`` if this is not a shuffle session, if
            ``counted`` does not have the form of the batch, or if it has more users than were absent. Raises
            ``RuntimeError`` if the batch's plans still expect users, or if a message arrived in this process.
        """
        with self._call():
            self._check_open()
            self.channel.add_counted(self, counted)

    # ----------------------------------------------------------------------------- releases
    def release(self) -> Release:
        """Return noisy sums of all users so far. The arrays are read-only.

        If the last plan has ``last=False``, or if no user was added since the previous release, the previous
        release is returned again.
        """
        with self._call():
            self._check_open()
            if self._awaited:
                raise RuntimeError(f"release: users of the open plan not submitted yet: {self._awaited}")
            if self._last is not None and (self._fresh or (self._plan is not None and not self._plan.last)):
                return self._last
            n, schedule, most = self.users, self._schedule, self._schedule.max_releases
            if schedule.users is not None and n >= schedule.users + schedule.final > 0:
                raise RuntimeError(f"release: all {n} declared users have arrived, no user is left for it")
            if most is not None and n > 0 and self._number >= most:
                raise RuntimeError(f"release: the schedule has no more, all have been made: {most}")
            leaf = self._schedule.leaf_at(n, self._leaf)
            estimates, measurement, changes = self.channel.release(self, n, leaf)
            state = self.state | changes
            number = 0 if n == 0 else self._number + 1
            last = Release(estimates, n, number, self._guarantee, measurement)
            # no Python function is called here, so that the batch is closed at the moment when its release is
            # made
            vars(self).update(state=state, _last=last, _number=number, _fresh=True)
            return last

    @property
    def answer(self) -> Callable[[Any], Estimate]:
        """Function that answers new queries about offline data. Raises ``ValueError`` if no data are stored.

        Learners receive this function. It is not a bound method, because a bound method would give learners
        access to the session.
        """
        return self.channel.answer(self)

    def _answer(self, question: Any) -> Estimate:
        """Answer a query, in a separate thread.

        If the lock is held, this method raises ``RuntimeError`` instead of waiting. Otherwise a thread could
        wait for the answer while it holds the lock itself.
        """
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("answer: a call on this session is running: it must end first")
        self._lock.release()
        with self._call():
            self._check_open()
            return self.channel.answered(self, question)

    # -------------------------------------------------------------------------- simulation
    def hand_over(self) -> tuple[Channel, State]:
        """End a new session. Return its channel and state, for a simulation that draws the same noise.

        The session ends because two callers must not draw the same noise. Raises ``RuntimeError`` unless the
        session is unused and seeded, and K is known.
        """
        with self._call():
            self._check_open()
            if self._plans or self._number or self._key is None or self._schedule.users is None:
                raise RuntimeError(
                    "kernel: only a fresh, seeded session with a known number of users can be fused"
                )
            state = self.state
            self._drop()
            return self.channel, state
