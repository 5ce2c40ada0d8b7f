r"""Shuffle model with three parties. Only the user's own device sees raw data.

1. **The device** (:mod:`discreet.device`) converts a trajectory to bits: for every counter, the user's own
   bits and random bits (flips).
2. **The shuffler** (:class:`Shuffler`) removes data that identify a sender and rejects messages without the
   published form. For each counter it releases the number of ones and the number of bits. The output is
   equivalent to a uniform permutation of indistinguishable bits, because counts contain no information about
   the order. A batch with fewer messages than the privacy accounting assumes is not released, since absent
   users add no flips.
3. **The analyzer** (:class:`Analyzer`) subtracts the expected flips. The sums are unbiased, and their noise
   is binomial with an exactly known distribution.

:class:`FlipChannel` is both shuffler and analyzer for a learner. In a deployment, each party creates its
program from the same public :class:`~discreet.device.shuffle_payload.SessionConfig`.

Guarantee. For every batch, the output of the shuffler is (epsilon, delta)-indistinguishable if the trajectory
of one user is replaced. Batches have disjoint users, and policies are functions of earlier outputs. All
batches together therefore have the same guarantee (adaptive parallel composition).

The guarantee depends on three assumptions:

* the shuffler does not keep or leak single messages;
* the transport before the shuffler knows which users are in the plan and forwards one message of each user. A
  nonce detects a copy of a message, but not a second message of the same user. Each further message of a user
  replaces a message of another user, and the flips of that user are then missing;
* at most the stated share of a batch's users add no flips or disclose their flips.

Calibration uses only the flips of the other users. A user who deviates from the protocol can bias each count
by at most the number of bits per user in that counter.

Sensitivity. A trajectory has one bit in each counter (two for a centred reward).
:mod:`discreet.accounting.binomial_noise` lists the possible changes from replacing a trajectory, and accounts
for all counters jointly.

Source: Bai, Talebi, Zhao and Cheng 2024 (the printed protocol sends integers, for which no noise gives
privacy).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.noise_distributions.binomial import Components
from discreet.core import checks
from discreet.core.call_protocols import Encoder
from discreet.core.protocols import Coins
from discreet.core.raw_encoder import same_plan
from discreet.core.releases import (
    ON_DEVICE,
    Estimate,
    Floats,
    Ints,
    Measurement,
    Message,
    Plan,
    Release,
    read_only,
)
from discreet.core.rng import Key, Randomness, Seeded
from discreet.core.session import Channel, ChannelSession, Released, State
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device import shuffle_encoder as encoders
from discreet.device import shuffle_payload as messages
from discreet.device.message_envelope import NONCE, MessageRejected, Reason
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.shuffle_payload import SessionConfig
from discreet.mechanisms.local.message_inbox import session_number
from discreet.mechanisms.saved_state.state_file import made_of, whole_of
from discreet.mechanisms.shuffle.shuffle_mechanisms import FlipMechanism, ShuffledMechanism, flips_of, form_of

__all__ = [
    "Analyzer",
    "BatchTooSmall",
    "BitEncoder",
    "Counted",
    "FlipChannel",
    "ShuffledChannel",
    "Shuffler",
    "form_of",
]

_READ_AT_ONCE = 256  # number of messages that are decoded together


class BatchTooSmall(RuntimeError):
    """Error for a batch with too few messages. The shuffler deletes the batch and releases nothing about
    it.
    """


# -------------------------------------------------------------------------------- three parties


@dataclass(frozen=True, eq=False)
class BitEncoder:
    """Encoder of a device in a session. The encoder checks the trajectory and converts it to one message.

    secure : True if the session guarantees exact noise. Seeded random generators are then rejected.
    """

    __repr__ = brief

    device: encoders.ShuffleEncoder
    secure: bool

    @property
    def guarantee(self) -> MessageGuarantee:
        """Privacy guarantee of one message without the shuffler."""
        return self.device.guarantee

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Return the message of one trajectory.

        Raises ``ValueError`` for an invalid record or another plan. Nothing is sent in these cases.
        """
        number = same_plan(self.device.plan, plan)
        if self.secure and not coins.exact:
            raise ValueError(f"coins = {coins!r}: this session needs SecureRng()")
        if not isinstance(coins, encoders.BitCoins):
            raise ValueError(f"coins = {coins!r}: must draw words of random bits")
        message = self.device(trajectory.states, trajectory.actions, trajectory.rewards, coins)
        return Message(plan=number, message=message)


@dataclass(frozen=True, eq=False)
class Counted:
    """Output of the shuffler for a batch: the number of ones and the number of bits in each counter."""

    ones: Ints
    bits: Ints


class Inbox:
    """Base class of shufflers, with the rules for accepting messages of a batch.

    A message is accepted if it is for the open plan, is not a copy, and the plan still expects users.

    least : number of messages that the privacy accounting assumes. With fewer messages, nothing is released.
    """

    # A saved file contains the counts of a batch that is not yet released, but no message.
    _BOUND: ClassVar[tuple[str, ...]]
    _STATE: ClassVar[tuple[str, ...]] = ("_seen", "_plan", "_left", "_received", "_refused")

    def __init__(self, least: int) -> None:
        self.least = checks.integer("least", least, 1)
        self._nonces: set[bytes] = set()
        self._plan, self._left, self._received = -1, 0, 0
        self._refused: dict[Reason, int] = dict.fromkeys(get_args(Reason), 0)

    @property
    def received(self) -> int:
        """Number of accepted messages."""
        return self._received

    @property
    def refused(self) -> Mapping[Reason, int]:
        """Number of rejected messages, by reason. The numbers are public, because they do not depend on
        users' data.
        """
        return MappingProxyType(self._refused)

    @property
    def left(self) -> int:
        """Number of messages that the open plan still accepts."""
        return self._left

    def open(self, plan: int, users: int) -> None:
        """Accept at most ``users`` messages for this plan.

        After this call, messages for earlier plans are late.
        """
        self._plan, self._left = plan, checks.integer("users", users, 1)

    def shut(self) -> None:
        """Accept no further messages for the open plan. Each of its users has sent a message or is absent."""
        self._left = 0

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Public parameters as values that can be compared."""
        return tuple(getattr(self, name) for name in self._BOUND)

    def check_numbers(self, users: int, plans: int, awaited: int) -> None:
        """Raise ``ValueError`` if the numbers of messages cannot be those of a session.

        users, plans : largest numbers so far. awaited : number of users that the open plan still expects.
        """
        checks.integer("received", self._received, 0, users)
        checks.integer("plan", self._plan, -1, plans)
        checks.integer("left", self._left, 0, users + awaited)
        for reason, count in self._refused.items():
            checks.integer(f"refused[{reason!r}]", count, 0)

    def _check_new(self, nonce: bytes) -> None:
        """Raise ``MessageRejected`` if this message was received before, or the plan expects no user."""
        if nonce in self._nonces:
            raise MessageRejected("replayed", "came before")
        if not self._left:
            raise MessageRejected("full", "all users of the plan have come")

    def _check_enough(self, received: int) -> None:
        if received < self.least:
            raise BatchTooSmall(
                f"messages: {received} came, {self.least} must have come: this batch is not let out"
            )

    @property
    def _seen(self) -> tuple[NDArray[np.uint8]]:
        """(n, 16) nonces of received messages, in ascending order.

        Messages with these nonces are rejected.
        """
        return (np.frombuffer(b"".join(sorted(self._nonces)), np.uint8).reshape(-1, NONCE),)

    @_seen.setter
    def _seen(self, seen: tuple[NDArray[np.uint8]]) -> None:
        (rows,) = seen
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != NONCE:
            raise ValueError(f"_seen: must be rows of {NONCE} bytes")
        self._nonces = {row.tobytes() for row in rows}


class Shuffler(Inbox):
    """Shuffler that receives the messages of one batch and releases counts without senders.

    Parameters
    ----------
    form : SessionConfig
        Format of the batch's messages.
    least : int
        Number of messages that the privacy accounting assumes. With fewer messages, nothing is released.
    """

    _BOUND, _STATE = ("form", "least"), (*Inbox._STATE, "_ones")

    def __init__(self, form: SessionConfig, least: int) -> None:
        super().__init__(least)
        self.form = form
        self._ones = np.zeros(form.begins[-1], np.int64)

    def check_numbers(self, users: int, plans: int, awaited: int) -> None:
        """Raise ``ValueError`` if the numbers of messages and of ones cannot be those of a session."""
        super().check_numbers(users, plans, awaited)
        each = np.repeat([family.messages for family in self.form.families], self.form.counters)
        if (self._ones < 0).any() or (self._ones > self._received * each).any():
            raise ValueError(f"_ones: must be at least 0, and at most those of {self._received} users")

    @classmethod
    def of_batch(cls, mechanism: FlipMechanism, batch: int, session: int) -> Shuffler:
        """Return a new shuffler for a scheduled batch. session : number of the session."""
        noise = mechanism.noises[batch]
        return cls(form_of(mechanism.query, noise, session), noise[0][1].users)

    @property
    def device(self) -> SessionConfig:
        """Format of messages: the public parameters that devices need."""
        return self.form

    def receive(self, message: bytes) -> None:
        """Add one message, or count it as rejected and raise ``MessageRejected``."""
        try:
            nonce, ones = messages.read(self.form, self._plan, message)
            self._admit(nonce)
        except MessageRejected as refusal:
            self._refused[refusal.reason] += 1
            raise
        self._count(ones, 1)

    def _count(self, ones: Ints, users: int) -> None:
        # One statement without a call, so that no user is counted without the user's flips.
        self._ones, self._received = self._ones + ones, self._received + users

    def _admit(self, nonce: bytes) -> None:
        """Reserve one of the messages that the plan expects. The message is counted when its flips are
        added.

        After an interrupt between these steps, the batch has one user fewer. In the opposite order, the batch
        could be released without that user's flips.
        """
        self._check_new(nonce)
        self._nonces.add(nonce)
        self._left -= 1

    def receive_many(self, batch: Sequence[bytes]) -> int:
        """Add many messages and return the number of accepted messages.

        Invalid messages are counted as rejected.
        """
        before, form = self._received, self.form
        for begin in range(0, len(batch), _READ_AT_ONCE):
            parts = []
            for message in batch[begin : begin + _READ_AT_ONCE]:
                try:
                    parts.append(messages.payload(form, self._plan, message))
                except MessageRejected as refusal:
                    self._refused[refusal.reason] += 1
            packed = np.frombuffer(b"".join(payload for _, payload in parts), "<u8")
            ones, good = messages.unpack(form, packed.astype(np.uint64).reshape(len(parts), sum(form.words)))
            kept = np.zeros(len(parts), bool)
            for i, (nonce, _) in enumerate(parts):
                try:
                    if not good[i]:
                        raise MessageRejected("malformed", "a counter has more ones than a user has bits")
                    self._admit(nonce)
                    kept[i] = True
                except MessageRejected as refusal:
                    self._refused[refusal.reason] += 1
            self._count(ones[kept].sum(axis=0), int(kept.sum()))
        return self._received - before

    def add_simulated(self, ones: Ints, users: int) -> None:
        """Add the messages of many simulated users. ``ones`` is the number of their ones in each counter."""
        self._left -= users
        self._count(ones, users)

    def add_counted(self, counted: Counted, most: int) -> int:
        """Add the output of the same batch's shuffler in another process. Return the number of its users.

        Raises ``ValueError`` unless ``counted`` is a possible output for 1 to ``most`` users with messages of
        this form.
        """
        if type(counted) is not Counted:
            raise ValueError(f"counted is a {type(counted).__name__}: must be what a Shuffler lets out")
        size = self._ones.size
        for name in ("ones", "bits"):
            found = getattr(counted, name)
            if not isinstance(found, np.ndarray) or found.shape != (size,) or found.dtype.kind not in "iu":
                raise ValueError(f"counted.{name}: must be {size} integers")
        ones, bits = counted.ones.astype(np.int64), counted.bits.astype(np.int64)
        each = np.repeat([family.messages for family in self.form.families], self.form.counters)
        users = checks.integer("counted: users", int(bits[0]) // int(each[0]), 1, most)
        if (bits != users * each).any() or (ones < 0).any() or (ones > bits).any():
            raise ValueError(f"counted: must be of messages of this form, of {users} users")
        self._count(ones, users)
        return users

    def output(self) -> Counted:
        """Return the counts of the batch and delete them.

        The counts are also deleted if :class:`BatchTooSmall` is raised.
        """
        ones, received = self._ones, self._received
        self._ones, self._nonces, self._received, self._left = np.zeros_like(ones), set(), 0, 0
        self._check_enough(received)
        each = np.repeat([family.messages for family in self.form.families], self.form.counters)
        return Counted(ones, received * each)


@dataclass(frozen=True, eq=False)
class Analyzer:
    """Analyzer that converts counts to sums by subtracting the mean of the flips."""

    form: SessionConfig

    def users(self, counted: Counted) -> int:
        """Return the number of users whose messages were counted."""
        return int(counted.bits[0]) // self.form.families[0].messages

    def sums(self, counted: Counted) -> Floats:
        """Return (counters,) unbiased sums of indicators and of reward bits y (if centred: of y - 1/2)."""
        users, form = self.users(counted), self.form
        sums = np.empty(counted.ones.size)
        for i, family in enumerate(form.families):
            part = slice(form.begins[i], form.begins[i + 1])
            flips = users * family.mean
            sums[part] = (
                counted.ones[part] - flips if family.own == 1 else (counted.ones[part] - users - flips) / 2
            )
        return sums

    def components(self, counted: Counted, family: int) -> Components:
        """Return the flips in each counter of a family."""
        return flips_of(self.form.families[family], self.users(counted))


# ------------------------------------------------------------------------------------ channels


class ShuffledChannel(Channel):
    """Channel of counts under the shuffle model, with one shuffler for each batch.

    Base class of the two channels of the shuffle model. The first users of a plan are in the batch that is
    open when the plan begins. A plan can include several batches. If it extends beyond the open batch, it
    must end with the end of a batch.

    ``release`` raises :class:`BatchTooSmall` if the share of absent or rejected users in the batch exceeds
    the stated share. The messages of the batch are deleted, and the next call of ``release`` returns the last
    release again. Without an earlier release, it returns zeros for 0 users, with number 0. ``covers`` counts
    only users whose messages were released.

    An invalid or rejected message raises ``ValueError``. Nothing is added, and the message is counted as
    rejected.
    """

    shuffles: ClassVar[Any]  # class of the shufflers
    made_of: ClassVar[type[ShuffledMechanism]]  # class of the mechanism

    def __init__(self, mechanism: ShuffledMechanism, randomness: Randomness) -> None:
        checks.exactly("mechanism", mechanism, self.made_of)
        mechanism = replace(mechanism)  # checked again, and shares no array with the caller
        mechanism.check_source(randomness)
        self.mechanism: Any = mechanism  # an object of the class that was checked above
        self.query, self.randomness, self.ends = mechanism.query, randomness, mechanism.ends
        self.key: Key | None = randomness.keys.noise.copy() if isinstance(randomness, Seeded) else None

    @property
    def most_users(self) -> int:
        """Number of users in all batches."""
        return int(self.ends[-1])

    # ------------------------------------------------------------------------------- state
    def start(self) -> State:
        """Return the state before the first user.

        - session : number of the session in messages.
        - shufflers : shufflers of the batches since the last release.
        - batch : index of the batch of the last shuffler.
        - sums, components : sums of all released batches, and the components of their noise, by family.
        - refused : number of rejected messages, by reason, without those of ``shufflers``.
        """
        return {
            "session": session_number(self.key), "shufflers": [], "batch": -1,
            "sums": np.zeros(self.query.cells), "components": [() for _ in self.query.row_families],
            "refused": dict.fromkeys(get_args(Reason), 0),
        }  # fmt: skip

    def plain(self, state: State) -> State:
        """Return ``state`` in the form that a file contains.

        ``open_batches`` contains the counts of the batches since the last release. After restoring, the
        remaining users can send messages, and no user can send twice. Protect the counts like the messages:
        they can contain fewer messages than the privacy accounting assumes.
        """
        rest = {name: value for name, value in state.items() if name != "shufflers"}
        return rest | {"open_batches": [whole_of(shuffler) for shuffler in state["shufflers"]]}

    def from_plain(self, s: ChannelSession, state: State) -> State:
        """Return the state read from a file. Raises ``ValueError`` if the state is invalid.

        Open batches must have the public parameters of the mechanism. Other parameters would add less noise
        than the guarantee states.
        """
        last = checks.integer("batch", state["batch"], -1, len(self.ends) - 1)
        for reason, count in state["refused"].items():
            checks.integer(f"refused[{reason!r}]", count, 0)
        self.estimates(state["sums"], state["components"], 0)  # raises an error if the values do not fit
        shufflers = [made_of(self.shuffles, whole) for whole in state["open_batches"]]
        if bool(shufflers) != (last >= 0) or (s._awaited and not shufflers):
            raise ValueError("open_batches: must be those since the last release")
        batches = iter(range(last + 1))
        for i, found in enumerate(shufflers):  # in order; the last one belongs to batch ``last``
            newest = i + 1 == len(shufflers)
            if not any(
                found.parameters == self.shuffles.of_batch(self.mechanism, batch, state["session"]).parameters
                for batch in ([last] if newest else batches)
            ):
                raise ValueError("open_batches: must have the parameters of batches of the mechanism")
            found.check_numbers(s._users, s._plans, s._awaited if newest else 0)
        rest = {name: value for name, value in state.items() if name != "open_batches"}
        return rest | {"shufflers": shufflers}

    def drop(self, s: ChannelSession) -> State:
        """Keep only the number of the session and the numbers of rejected messages."""
        kept = {"session": s.state["session"]} if s.state else {}
        return kept | {"refused": dict(self.refused(s.state))}

    def refused(self, state: State) -> Mapping[Reason, int]:
        """Return the number of messages rejected so far, by reason."""
        now: dict[Reason, int] = dict(state.get("refused", {}))
        for shuffler in state.get("shufflers", ()):
            for reason, count in shuffler.refused.items():
                now[reason] += count
        return MappingProxyType(now)

    # ------------------------------------------------------------------------------- users
    def admit(self, s: ChannelSession, plan: Plan, users: int) -> tuple[Plan, State]:
        """Return the plan to store and the shuffler of its batch."""
        s._check_no_group(plan)
        after = s.users + users
        batch = int(np.searchsorted(self.ends, s.users, side="right"))
        if after > self.ends[batch] and after not in self.ends:
            raise ValueError(
                f"plan.users = {users}: ends inside a later batch, whose flips its users would not add; "
                f"users left in this one: {int(self.ends[batch]) - s.users}"
            )
        shufflers = s.state["shufflers"]
        if batch != s.state["batch"]:
            new = self.shuffles.of_batch(self.mechanism, batch, s.state["session"])
            shufflers = [*shufflers, new]
        shufflers[-1].open(s._plans + 1, users)
        return plan, {"shufflers": shufflers, "batch": batch}

    @abstractmethod
    def open_device(self, s: ChannelSession) -> Any:
        """Return the device program for the newest plan's users."""

    def device(self, s: ChannelSession) -> Any:
        """Return the device program for the open plan's users. The program is published again for each batch.

        Raises ``RuntimeError`` if no plan is open.
        """
        _ = s.open_plan
        return self.open_device(s)

    def check_in_time(self, s: ChannelSession, message: Message) -> None:
        """Reject a message that no open plan expects, and count it as late.

        The shuffler also checks the number of the plan in the bytes of the message.
        """
        shufflers, late = s.state["shufflers"], "was made for a batch that is over"
        if s._awaited:
            if message.plan == s._plans:
                return
            late = f"was made for plan {message.plan}, not {s._plans}"
        elif shufflers and isinstance(message.message, bytes):
            shufflers[-1].shut()  # messages of absent users are still not accepted
            return
        s.state["refused"]["late"] += 1
        if s._plan is None:
            raise RuntimeError("no plan is open: call begin first")
        raise MessageRejected("late", late)

    def add(self, s: ChannelSession, message: Message) -> None:
        """Pass one message to the shuffler and count its sender."""
        if message.trajectory is not None:
            raise ValueError(f"message.trajectory: must be None, not raw data but {ON_DEVICE}")
        if not isinstance(message.message, bytes):
            raise ValueError("message.message: must be the bytes that the device made")
        shuffler = s.state["shufflers"][-1]
        before = shuffler.left
        try:
            shuffler.receive(message.message)
        finally:  # after an interrupt, the sender of an admitted message must not be admitted again
            s._count(before - shuffler.left)

    def add_many(self, s: ChannelSession, records: Trajectories) -> None:
        """Raise ``ValueError``, because no party sees trajectories."""
        raise ValueError(f"submit_many: must not be called on a shuffle session, it takes {ON_DEVICE}")

    def add_counted(self, s: ChannelSession, counted: Any) -> None:
        """Add the output of a separate process that ran the shuffler of the open batch."""
        shufflers = s.state["shufflers"]
        if s._fresh or s._awaited or len(shufflers) != 1 or shufflers[0].received:
            raise RuntimeError("submit_counted: must follow one batch's users, all of them absent here")
        batch = s.state["batch"]
        before = int(self.ends[batch - 1]) if batch else 0
        came = shufflers[0].add_counted(counted, min(s._absent, s.users - before))
        s._absent -= came

    def add_sum(self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Count ``users`` simulated users and then add the total of their messages.

        The total is the exact ``sums`` plus the sum of the users' random bits. The sum of random bits is
        drawn from its exact distribution.
        """
        drawn = self.simulated(s, sums, users, key)
        s._count(users)
        s.state["shufflers"][-1].add_simulated(*drawn, users)

    @abstractmethod
    def simulated(
        self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key
    ) -> tuple[Any, ...]:
        """Draw the total of the messages of ``users`` simulated users, for the open batch's shuffler."""

    # ---------------------------------------------------------------------------- releases
    def release(self, s: ChannelSession, n: int, leaf: int) -> Released:
        """Release the batches since the last release."""
        state = s.state
        if s._last is None:  # returned for a deleted batch if nothing was released before
            nothing = self.estimates(state["sums"], state["components"], 0)
            s._last = Release(nothing, 0, 0, s.guarantee, Measurement(nothing, 0.0, 1.0))
        before = next(iter(s._last.estimates.values())).covers
        fresh, components, users = self.take_batch(s)
        sums, merged = state["sums"] + fresh, self.merged(state["components"], components)
        measured = self.estimates(fresh, components, users)
        # covers is the number of users whose messages were released: absent users and deleted batches add no
        # flips
        estimates = self.estimates(sums, merged, before + users)
        return estimates, Measurement(measured, 0.0, 1.0), {"sums": sums, "components": merged}

    def take_batch(self, s: ChannelSession) -> tuple[Floats, list[Any], int]:
        """Return sums, noise components and users of the batches since the last release, and delete the
        batches.

        The batches are also deleted if an exception is raised.
        """
        shufflers = s.state["shufflers"]
        empty = s.state | {"shufflers": [], "batch": -1, "refused": dict(self.refused(s.state))}
        s.state, s._fresh = empty, True  # one statement, so that no deleted batch is released again
        total, users = np.zeros(self.query.cells), 0
        parts: list[Any] = [() for _ in self.query.row_families]
        for shuffler in shufflers:
            sums, fresh, came = self.read_out(shuffler)
            total += sums
            parts, users = self.merged(parts, fresh), users + came
        return total, parts, users

    def merged(self, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
        """Return the noise components of a sum of two parts, by family."""
        return [self.mechanism.merged(*both) for both in zip(old, new, strict=True)]

    @abstractmethod
    def read_out(self, shuffler: Any) -> tuple[Floats, list[Any], int]:
        """Return (sums, noise components by family, users) of one batch and delete the batch."""

    def estimates(self, cells: Floats, components: Sequence[Any], users: int) -> dict[str, Estimate]:
        """Return the estimates of all families."""
        tables = read_only(self.query.from_cells(cells.copy()))
        return {
            name: Estimate(tables[name], self.mechanism.law(i, components[i]), "sum", users, float(users))
            for i, name in enumerate(self.query.row_families)
        }


class FlipChannel(ShuffledChannel):
    """Channel of counts from messages with random bits (flips) in every counter.

    In simulation, sums of rewards must be sums of rewards rounded to bits
    (:func:`discreet.envs.rollouts.rollout.reward_bits`). If rewards are centred, each sum is reduced by 1/2
    for each reward.
    """

    shuffles = Shuffler
    made_of = FlipMechanism

    def open_device(self, s: ChannelSession) -> encoders.ShuffleEncoder:
        """Return the device program for the newest plan's users."""
        return encoders.ShuffleEncoder(s.state["shufflers"][-1].form, s._plans)

    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices of the newest plan's users."""
        return BitEncoder(self.open_device(s), self.key is None)

    def simulated(
        self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key
    ) -> tuple[Any, ...]:
        """Draw the number of ones in each counter of ``users`` simulated users."""
        source = np.random.Generator(np.random.Philox(np.random.SeedSequence([*key.tolist(), s.users])))
        form = s.state["shufflers"][-1].form
        cells = self.query.to_cells(sums)
        ones = np.empty(cells.size, np.int64)
        for i, family in enumerate(form.families):
            part = slice(form.begins[i], form.begins[i + 1])
            own = cells[part] if family.own == 1 else users + 2 * cells[part]
            if (own != np.round(own)).any() or (own < 0).any() or (own > family.own * users).any():
                raise ValueError(
                    f"sums[{family.kind!r}]: must be sums of one bit a user (rewards rounded to bits, "
                    "discreet.envs.rollouts.rollout.reward_bits)"
                )
            noise = np.zeros(form.counters[i], np.int64)
            for j, (n, p) in enumerate(flips_of(family, users)):
                drawn = source.binomial(n, min(p, 1.0 - p), form.counters[i])
                noise += n - drawn if j else drawn  # paired flips: the second half is complementary
            ones[part] = own.astype(np.int64) + noise
        return (ones,)

    def read_out(self, shuffler: Any) -> tuple[Floats, list[Any], int]:
        """Return (sums, flips by family, users) of one batch and delete the batch."""
        counted, analyzer = shuffler.output(), Analyzer(shuffler.form)
        fresh = [analyzer.components(counted, i) for i in range(len(self.query.row_families))]
        return analyzer.sums(counted), fresh, analyzer.users(counted)
