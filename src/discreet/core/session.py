"""One session for all streams of sums. What differs between mechanisms is in its channel.

A privatizer fixes everything that determines the noise scale, then starts a session. The session enforces the
order of calls (:mod:`discreet.core.stream_session`), and its :class:`Channel` checks messages, adds them to
sums and draws the noise. A session cannot be copied, pickled, or continued in another process: a second copy
would draw the same noise again. Saving ends the session, and the file can be restored once
(:mod:`discreet.mechanisms.saved_state.state_file`).

All that a session computes during a run is in its attribute ``state``, a table of arrays and numbers by name.
A release puts its changes into a new table, and one statement replaces the table when the release is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from discreet.core import checks
from discreet.core.releases import ON_DEVICE, Estimate, Floats, Measurement, Message, Plan
from discreet.core.rng import Key, Randomness
from discreet.core.stream_session import StreamSession
from discreet.core.trajectories import Trajectories, checked

if TYPE_CHECKING:
    from discreet.core.call_protocols import Encoder
    from discreet.core.protocols import NoiseDistribution

__all__ = ["Channel", "Released", "ChannelSession", "State"]

State: TypeAlias = dict[str, Any]
"""Arrays and numbers by name: all that a session computes during a run."""

Released: TypeAlias = tuple[Mapping[str, Estimate], "Measurement | None", State]
"""Sums over all users, the newest measurement, and the changes of the state."""


class Channel(ABC):
    """Way from users' messages to releases, for one kind of mechanism.

    A channel has the public values of one mechanism, and no sum. Sums are in the state of the session.

    mechanism : checked and rebuilt, so that no other code can change it. randomness : source of the noise.
    """

    mechanism: Any
    randomness: Randomness

    @abstractmethod
    def start(self) -> State:
        """Return the state before the first user."""

    def plain(self, state: State) -> State:
        """Return a state in the form that a file contains."""
        return state

    def from_plain(self, s: ChannelSession, state: State) -> State:
        """Return the state of a file, the inverse of :meth:`plain`.

        Raises ``ValueError`` if it is invalid.
        """
        return state

    def drop(self, state: State) -> None:  # noqa: B027
        """Delete what a closed session's state holds besides arrays and numbers."""

    @abstractmethod
    def admit(self, s: ChannelSession, plan: Plan, users: int) -> tuple[Plan, State]:
        """Return the plan to store, and the changes of the state when the plan is opened.

        Raises ``ValueError`` if the plan does not fit.
        """

    @abstractmethod
    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices of the newest plan's users."""

    def randomizer(self, s: ChannelSession) -> Encoder:
        """Return the function from a trajectory of the newest plan to its part of the sums, for audits."""
        return self.encoder(s)

    def device(self, s: ChannelSession) -> Any:
        """Return a copy of the device program. Raises ``ValueError`` if users send trajectories."""
        raise ValueError("device: must be asked of a local session, users of others send trajectories")

    def check_in_time(self, s: ChannelSession, message: Message) -> None:
        """Raise ``ValueError`` if a message is for another plan than the open one."""
        StreamSession._check_in_time(s, message)

    @abstractmethod
    def add(self, s: ChannelSession, message: Message) -> None:
        """Check a message of the open plan, count its user, then add the message."""

    @abstractmethod
    def add_many(self, s: ChannelSession, records: Trajectories) -> None:
        """Count the users of checked records, then add all records."""

    def note_absent(self, s: ChannelSession, users: int) -> None:  # noqa: B027
        """Count users who sent nothing, after the session has counted them."""

    @abstractmethod
    def add_sum(self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Check simulated sums, count their users, then add them."""

    @abstractmethod
    def release(self, s: ChannelSession, n: int, leaf: int) -> Released:
        """Draw the noise and make the release after n users, who fill ``leaf`` time steps.

        The changes that close the batch are returned. The session applies them when the release is made, not
        before. (Otherwise an interrupt could leave a closed batch without a release, and the next measurement
        would contain no user.)
        """

    @abstractmethod
    def laws_at(self, n: int) -> dict[str, NoiseDistribution]:
        """Return the noise distribution of every family in the sums after n users."""

    def measurement_laws(
        self, n: int, senders: int, share: float | None, cut: float
    ) -> dict[str, NoiseDistribution]:
        """Return noise distributions of the newest measurement, per family."""
        raise ValueError("measurement_laws: this session releases no measurement")

    def answer(self, s: ChannelSession) -> Callable[[Any], Estimate] | None:
        """Return the function that answers queries about offline data, or None if it has no data."""
        return None

    def answered(self, s: ChannelSession, question: Any) -> Estimate:
        """Answer a query. The caller must hold the lock."""
        raise ValueError("answer: this session stores no users, so it answers no new question")


class ChannelSession(StreamSession):
    """Stream of releases of one mechanism, by way of its :class:`Channel`.

    :func:`discreet.mechanisms.open_session.session_of` opens the session of a mechanism. See
    :class:`~discreet.mechanisms.interfaces.Session` for the calls.

    Raises
    ------
    RuntimeError
        On calls in the wrong order, on calls after the session was closed, and on calls from another
        process than the one that started the session. Also if exact noise would not protect a sum
        (:func:`~discreet.core.rng.checked_on_grid`). Nothing is released in these cases.
    ValueError
        On an invalid record (nothing is added) and on more users than the schedule declares.
    """

    _kind = "stream"
    _STATE = (*StreamSession._STATE, "_table")
    _DERIVED = (*StreamSession._DERIVED, "channel", "state")

    def __init__(self, channel: Channel) -> None:
        mechanism, randomness = channel.mechanism, channel.randomness
        super().__init__(
            mechanism.query.layout, mechanism.schedule, randomness, mechanism.guarantee, mechanism.leaf
        )
        self._mechanism, self._randomness, self.channel = mechanism, randomness, channel
        self.state = channel.start()

    def _drop(self) -> None:
        super()._drop()
        state, self.state = self.state, {}
        self.channel.drop(state)

    @property
    def _table(self) -> State:
        """State in the form that a file contains."""
        return self.channel.plain(self.state)

    @_table.setter
    def _table(self, state: State) -> None:
        self.state = self.channel.from_plain(self, state)

    # -------------------------------------------------------------------------- public facts
    @property
    def mechanism(self) -> Any:
        """Copy of the mechanism.

        The session's noise uses the scales of the original, which must not change.
        """
        return replace(self._mechanism)

    @property
    def query(self) -> Any:
        """Copy of the query. Writing to the arrays of the copy changes no sum."""
        return self._mechanism.query.copy()

    @property
    def records(self) -> Any:
        """Privacy records from which the guarantee is computed; empty without privacy."""
        return self._mechanism.records

    @property
    def reports(self) -> Any:
        """Randomized responses of users or of the server on their behalf; None if there are none."""
        return getattr(self._mechanism, "reports", None)

    @property
    def cut(self) -> float:
        """Clipping threshold C for users of the newest plan; 0 if the query has no clipped rewards.

        Infinite after the change to centred rewards.
        """
        return float(self.state.get("cut", 0.0))

    @property
    def device(self) -> Any:
        """Copy of the device program of local users, with its parameters. It is published once.

        Raises ``ValueError`` unless the session is local.
        """
        return self.channel.device(self)

    @property
    def open_randomizer(self) -> Encoder:
        """Randomizer that converts a trajectory of the open plan to a contribution to the sums.

        It is a pure and public function: the encoder of devices, or the function that a trusted server runs
        on each trajectory. Audits use it. Raises ``RuntimeError`` if no plan is open.
        """
        _ = self.open_plan
        return self.channel.randomizer(self)

    @property
    def context(self) -> Mapping[str, Floats]:
        """Public arrays of the newest plan; empty without a plan."""
        return {} if self._plan is None else self._plan.context

    def laws_at(self, n: int) -> dict[str, NoiseDistribution]:
        """Return the noise distribution of every family in the sums after n users."""
        return self.channel.laws_at(n)

    def measurement_laws(
        self, n: int, senders: int, share: float | None = None
    ) -> dict[str, NoiseDistribution]:
        """Return noise distributions per family, at the current clipping threshold C."""
        return self.channel.measurement_laws(n, senders, share, self.cut)

    # ------------------------------------------------------------------------------- users
    def _admitted(self, plan: Plan, users: int) -> Plan:
        plan, changes = self.channel.admit(self, plan, users)
        self.state = self.state | changes  # still valid if an interrupt occurs here
        return plan

    def _encoder(self) -> Encoder:
        return self.channel.encoder(self)

    def _check_in_time(self, message: Message) -> None:
        if message.trajectory is None:
            self.channel.check_in_time(self, message)
        else:
            super()._check_in_time(message)

    def _add(self, message: Message) -> None:
        self.channel.add(self, message)

    def submit_many(self, trajectories: Trajectories, plan: int) -> None:
        """Add the trajectories of many users of the open plan. The sums are the same as with single calls.

        Parameters
        ----------
        trajectories : Trajectories
            Raw records of n users: ``states (n, H + 1)``, ``actions (n, H)``, ``rewards (n, H)``.
        plan : int
            Number of the plan that these users followed (``open_plan.number`` while it was open).

        Raises
        ------
        ValueError
            If a record is invalid, ``plan`` is not the open plan, or there are more users than the plan
            allows. Nothing is added in these cases. Also in a local session, where each device must
            randomize.
        """
        with self._call():
            self._check_open()
            number = self.open_plan.number
            if plan != number:
                raise ValueError(f"plan = {plan!r}: must be {number}, the plan that is open")
            if self._guarantee.trust == "local":
                raise ValueError(f"submit_many: a local session takes randomized messages only, {ON_DEVICE}")
            if not isinstance(trajectories, Trajectories):
                raise ValueError(f"trajectories is a {type(trajectories).__name__}: must be Trajectories")
            users = checks.integer("len(trajectories)", len(trajectories), 1, self._awaited)
            self.channel.add_many(self, checked(trajectories, self._layout, users))

    def _count_absent(self, users: int) -> None:
        super()._count_absent(users)
        self.channel.note_absent(self, users)

    def _add_sum(self, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        self.channel.add_sum(self, sums, users, key)

    # ----------------------------------------------------------------------------- releases
    def _made(self, n: int, leaf: int) -> tuple[Mapping[str, Estimate], Measurement | None]:
        estimates, measurement, changes = self.channel.release(self, n, leaf)
        self._next = {"state": self.state | changes}
        return estimates, measurement

    @property
    def answer(self) -> Callable[[Any], Estimate]:
        """Function that answers queries about offline data. Raises ``ValueError`` if no data are stored."""
        return self.channel.answer(self) or super().answer

    def _answer(self, question: Any) -> Estimate:
        """Answer a question, in a separate thread.

        If the lock is held, this method raises ``RuntimeError`` instead of waiting: the thread that waits for
        the answer may itself hold the lock.
        """
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("answer: a call on this session is running: it must end first")
        self._lock.release()
        with self._call():
            self._check_open()
            return self.channel.answered(self, question)

    # -------------------------------------------------------------------------- simulation
    def hand_over(self) -> tuple[Channel, State]:
        """End a new session. Returns its channel and state, for a simulation that draws the same noise.

        Two callers must not draw the same noise. Raises ``RuntimeError`` unless the session is unused and
        seeded, and K is known.
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
