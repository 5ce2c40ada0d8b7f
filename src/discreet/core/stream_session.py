"""Stream of releases and its order of calls: release, begin, submit x plan.users, release, ...

Common base of every session of sums, for any sums and any noise. It decides which users may submit when,
counts them (public), decides when a release is due, and repeats the last release if no user was added.
Subclasses check a plan, add a message, and make a release.

The guarantee depends on two orders inside a call. One call runs at a time (:mod:`discreet.core.lifecycle`):
two releases at once would draw two noises for one sum. A user is counted before their record is added: an
interrupt (Ctrl-C) between the two loses a record. The other order would add a record outside all time steps.
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
        self._until = 0  # number of users when the open plan is done
        self._plan: Plan | None = None
        self._plans = 0
        self._fresh = True  # a release is due: nothing was submitted since the last batch closed
        self._last: Release | None = None
        self._number = 0
        self._next: dict[str, Any] = {}  # attributes by name, as they will be once the release is made

    def _drop(self) -> None:
        super()._drop()
        self._last, self._next = None, {}

    # -------------------------------------------------------------------------- public facts
    @property
    def guarantee(self) -> Guarantee:
        """Known before any data; never changes."""
        return self._guarantee

    @property
    def users(self) -> int:
        """Users submitted so far (public)."""
        return self._users

    @property
    def _awaited(self) -> int:
        """Number of users of the open plan who have not been submitted yet."""
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
        """Encoder of the open plan again, for users of a restored session. Raises as :attr:`open_plan`."""
        _ = self.open_plan
        return self._encoder()

    # ------------------------------------------------------------------------------- users
    def begin(self, plan: Plan) -> Encoder:
        """Open a plan for its users and return the encoder for devices. The context is read once, here."""
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
            # one statement, no call: with a plan but no awaited user, the last batch would be released again
            self._plan, self._fresh, self._until = numbered(plan, self._plans), False, before + users
            return self._encoder()

    @abstractmethod
    def _admitted(self, plan: Plan, users: int) -> Plan:
        """Return the plan to keep, with number ``_plans + 1``. Raises ``ValueError`` if it does not fit."""

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

        If the server is trusted with it, the trajectory of a user of the open plan is accepted directly.
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
        """Check a message of the open plan, count its user, then add it."""

    def _record(self, message: Message) -> Trajectory:
        """Return the checked record that a user sent to a trusted server."""
        if message.trajectory is None:
            raise ValueError("message.trajectory = None: this session takes trajectories")
        return checked(message.trajectory, self._layout)

    def absent(self, users: int = 1) -> None:
        """Count users who sent nothing: they contribute zero and remain among the public users."""
        with self._call():
            self._check_open()
            self._count_absent(checks.integer("users", users, 1, self._awaited if self.open_plan else 0))

    def _count_absent(self, users: int) -> None:
        # one statement, no call: a user who is counted and not absent would be described as having sent
        # something
        self._users, self._absent = self._users + users, self._absent + users

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add simulated users of the open plan at once, from their exact sums.

        The draws of their devices are made from the exact distribution of their sum. For simulation only:
        raises ``ValueError`` under secure randomness, where each user's own record must pass the checks.
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
        """Return noisy sums of all users so far; the arrays are read-only.

        Returns the previous release again after a plan with ``last=False``, and if no user was added since.
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
            # no call of a Python function: a batch is closed at the moment when its release is made
            vars(self).update(self._next, _next={}, _last=last, _number=number, _fresh=True)
            return last

    @abstractmethod
    def _made(self, n: int, leaf: int) -> tuple[Mapping[str, Estimate], Measurement | None]:
        """Make the release after n users, who fill ``leaf`` time steps: draws its noise.

        Attributes that close the batch are put into ``_next``: they change when the release is made, not
        before. (An interrupt in between would leave a closed batch that a measurement of no user would close
        again.)
        """

    @property
    def answer(self) -> Callable[[Any], Estimate]:
        """Function that answers new queries about offline data; ``ValueError`` if none are stored.

        It is not a method, because learners receive it: a bound method would give them the session.
        """
        return _no_answer


def _no_answer(question: Any) -> NoReturn:
    raise ValueError("answer: this session stores no users, so it answers no new question")


def read_only(tables: Mapping[str, Floats]) -> Mapping[str, Floats]:
    """Make the arrays of a release read-only and return them."""
    for table in tables.values():
        table.flags.writeable = False
    return tables
