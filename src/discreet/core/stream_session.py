"""Stream of releases, with calls in the order release, begin, submit (once per user), release, ...

Common base class of every session of sums, for any sums and any noise. It decides which users are allowed to
submit, counts them (the number is public), decides when a release is due, and repeats the last release if no
user was added. Subclasses check a plan, add a message, and make a release.

The guarantee depends on two rules. First, only one call runs at a time (:mod:`discreet.core.lifecycle`),
because two simultaneous releases would draw two noises for one sum. Second, a user is counted before their
record is added. An interrupt (Ctrl-C) between these two steps loses the record. In the opposite order, a
record could be added outside all time steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

import numpy as np

from discreet.core import checks
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
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
    numbered,
)
from discreet.core.rng import Key, Randomness, Seeded
from discreet.core.trajectories import Trajectory, checked

if TYPE_CHECKING:
    from discreet.core.call_protocols import Encoder


class StreamSession(Saveable, ABC):
    """Stream of releases; see :class:`~discreet.mechanisms.interfaces.Session` for the calls."""

    _BOUND: ClassVar[tuple[str, ...]] = ("_mechanism", "_randomness")
    _STATE: ClassVar[tuple[str, ...]] = (
        "_users", "_absent", "_until", "_plan", "_plans", "_fresh", "_last", "_number",
    )  # fmt: skip
    _DERIVED: ClassVar[tuple[str, ...]] = (
        *Saveable._DERIVED, "_key", "_layout", "_schedule", "_guarantee", "_leaf", "_most_users", "_next",
    )  # fmt: skip

    def __init__(
        self,
        layout: Layout,
        schedule: Schedule,
        randomness: Randomness,
        guarantee: Guarantee,
        leaf: Literal["batch", "user"] = "batch",
    ) -> None:
        super().__init__()
        self._layout, self._schedule, self._guarantee = layout, schedule, guarantee
        self._leaf = leaf  # "user": a release after n users covers n time steps, instead of one per batch
        self._key: Key | None = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None
        self._most_users = schedule.users  # largest total number of users
        self._users = 0
        self._absent = 0
        self._until = 0  # number of users at which the open plan is complete
        self._plan: Plan | None = None
        self._plans = 0
        self._fresh = True  # True if no plan was opened since the last release
        self._last: Release | None = None
        self._number = 0
        self._next: dict[str, Any] = {}  # values of attributes after the release is made, by name

    def _drop(self) -> None:
        super()._drop()
        self._last, self._next = None, {}

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the session. It is known before any data and never changes."""
        return self._guarantee

    @property
    def users(self) -> int:
        """Users submitted so far (public)."""
        return self._users

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
        """Open plan, with its number. Raises ``RuntimeError`` if no plan is open."""
        if self._plan is None or not self._awaited:
            raise RuntimeError("no plan is open: call begin first")
        return self._plan

    @property
    def open_encoder(self) -> Encoder:
        """Encoder of the open plan, for users of a restored session.

        Raises the errors of :attr:`open_plan`.
        """
        _ = self.open_plan
        return self._encoder()

    # ------------------------------------------------------------------------------- users
    def begin(self, plan: Plan) -> Encoder:
        """Open a plan for its users and return the encoder for devices.

        The context is read only in this call.
        """
        with self._call():
            self._check_open()
            if self._awaited:
                raise RuntimeError(f"begin: users of the open plan not submitted yet: {self._awaited}")
            if type(plan) is not Plan:  # a subclass could change its group, share or forget between two reads
                raise ValueError(f"plan = {plan!r}: must be a Plan, and no subclass of it")
            shape = (self._layout.horizon, self._layout.states)
            if np.shape(plan.policy) not in (shape, (*shape, self._layout.actions)):
                raise ValueError(
                    f"plan.policy has shape {np.shape(plan.policy)}: must be {shape} or "
                    f"{(*shape, self._layout.actions)}"
                )
            users = checks.integer("plan.users", plan.users, 1)
            before, limit = self.users, self._most_users
            if limit is not None and before + users > limit:
                raise ValueError(
                    f"plan.users = {users}: {before} of {limit} declared users have come, "
                    f"at most {limit - before} are left"
                )
            if plan.query is not None:
                raise ValueError("plan.query: must be None, the schedule says what people are asked")
            plan = self._admitted(plan, users)
            self._plans += 1
            # one statement without a function call, so that an interrupt cannot leave a plan without awaited
            # users
            self._plan, self._fresh, self._until = numbered(plan, self._plans), False, before + users
            return self._encoder()

    @abstractmethod
    def _admitted(self, plan: Plan, users: int) -> Plan:
        """Return the plan to store, with number ``_plans + 1``.

        Raises ``ValueError`` if the plan does not fit.
        """

    @staticmethod
    def _check_no_group(plan: Plan) -> None:
        if plan.group is not None or plan.return_share is not None or plan.forget:
            raise ValueError("plan.group, return_share, forget: are for queries with groups only")
        if plan.cut is not None:
            raise ValueError(f"plan.cut = {plan.cut!r}: must be None, it is for queries with a cut only")

    @abstractmethod
    def _encoder(self) -> Encoder:
        """Return the encoder for devices of the newest plan's users."""

    def _count(self, users: int) -> None:
        """Count users before any of their data is added, so that no record is ever added twice."""
        self._users += users

    def submit(self, message: Message | Trajectory) -> None:
        """Add one user's message. Raises ``ValueError`` (and adds nothing) if it is invalid or late.

        If the server is trusted with raw data, the trajectory of a user of the open plan is also accepted.
        """
        with self._call():
            self._check_open()
            if isinstance(message, Trajectory) and self._guarantee.trust in ("none", "joint"):
                message = Message(self.open_plan.number, message)
            if not isinstance(message, Message):
                raise ValueError(f"message is a {type(message).__name__}: must be {ON_DEVICE}")
            self._check_in_time(message)
            self._add(message)

    def _check_in_time(self, message: Message) -> None:
        if message.plan != (number := self.open_plan.number):
            raise ValueError(f"message.plan = {message.plan}: must be {number}, the plan that is open")

    @abstractmethod
    def _add(self, message: Message) -> None:
        """Check a message of the open plan, count its user, then add the message."""

    def _record(self, message: Message) -> Trajectory:
        """Return the checked record that a user sent to a trusted server."""
        if message.trajectory is None:
            raise ValueError("message.trajectory = None: this session takes trajectories")
        return checked(message.trajectory, self._layout)

    def absent(self, users: int = 1) -> None:
        """Count users who sent nothing.

        They contribute zero and are included in the public number of users.
        """
        with self._call():
            self._check_open()
            self._count_absent(checks.integer("users", users, 1, self._awaited if self.open_plan else 0))

    def _count_absent(self, users: int) -> None:
        # One statement without a function call. After an interrupt between two statements, a counted absent
        # user would be described as having sent a message.
        self._users, self._absent = self._users + users, self._absent + users

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add many simulated users of the open plan in one call, from their exact sums.

        The sum of the devices' random draws is drawn from its exact distribution. For simulation only: raises
        ``ValueError`` under secure randomness, where each user's own record must pass the checks.
        """
        with self._call():
            self._check_open()
            if self._key is None:
                raise ValueError("submit_sum: must not be used with secure randomness (it is for simulation)")
            users = checks.integer("users", users, 1, self._awaited if self.open_plan else 0)
            self._add_sum(sums, users, self._key)

    @abstractmethod
    def _add_sum(self, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Check simulated sums, count their users, then add them."""

    # ----------------------------------------------------------------------------- releases
    def release(self) -> Release:
        """Return noisy sums of all users so far. The arrays are read-only.

        Returns the previous release again after a plan with ``last=False``, and if no user was added since
        that release.
        """
        with self._call():
            self._check_open()
            if self._awaited:
                raise RuntimeError(f"release: users of the open plan not submitted yet: {self._awaited}")
            if self._last is not None and (self._fresh or (self._plan is not None and not self._plan.last)):
                return self._last
            n, schedule, most = self.users, self._schedule, self._schedule.max_releases
            if schedule.users is not None and n >= schedule.users + schedule.final > 0:
                raise RuntimeError(f"release: all {n} declared users have come, nobody is left to use it")
            if most is not None and n > 0 and self._number >= most:
                raise RuntimeError(f"release: the schedule has no more, all have been made: {most}")
            self._next = {}
            estimates, measurement = self._made(n, self._schedule.leaf_at(n, self._leaf))
            number = 0 if n == 0 else self._number + 1
            last = Release(estimates, n, number, self._guarantee, measurement)
            # no Python function is called here, so that the batch is closed at the moment when its release is
            # made
            vars(self).update(self._next, _next={}, _last=last, _number=number, _fresh=True)
            return last

    @abstractmethod
    def _made(self, n: int, leaf: int) -> tuple[Mapping[str, Estimate], Measurement | None]:
        """Draw the noise and make the release after n users, who fill ``leaf`` time steps.

        New values of the attributes that close the batch are put into ``_next``. The attributes change when
        the release is made, not before. (Otherwise an interrupt could leave a closed batch without a release,
        and the next measurement would contain no user.)
        """

    @property
    def answer(self) -> Callable[[Any], Estimate]:
        """Function that answers new queries about offline data. Raises ``ValueError`` if no data are stored.

        It is not a bound method, because learners receive it and a bound method would give them access to the
        session.
        """
        return _no_answer


def _no_answer(question: Any) -> NoReturn:
    raise ValueError("answer: this session stores no users, so it answers no new question")


def read_only(tables: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """Make the arrays of a release read-only and return the mapping."""
    for table in tables.values():
        table.flags.writeable = False
    return tables
