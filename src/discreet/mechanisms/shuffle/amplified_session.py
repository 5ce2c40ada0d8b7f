r"""Shuffle privacy by amplification: shuffled, locally private reports of a few steps. No flips are used.

Each device sends one report that is epsilon0-locally private: a few random steps, randomized by subset
selection or unary encoding (:mod:`discreet.mechanisms.local.randomized_response`). The shuffler removes data
that identify a sender. The shuffler then releases the number of times that each report was sent. The output
is private at a much smaller epsilon, which decreases with the number of users
(:mod:`discreet.accounting.shuffle_amplification`).

- **One randomizer per batch.** Amplification requires that the reports of all users in a batch come from the
  same randomizer. A batch can contain several plans, so a report is about (s, a, s') over all admissible
  pairs, not only about the pairs that the policy plays. The report therefore does not depend on the plan, and
  the shuffler removes the plan's number together with the other fields of the header.
- **Calibration.** In a batch of n users, at most the stated share is dishonest. epsilon0 is the largest value
  at which the reports of the honest users meet (epsilon, delta) by the numerical bound. Small batches have no
  amplification. For these batches, epsilon0 = epsilon.
- **Output.** For each step and kind of report, the output contains the number of reports and, for each
  element, the number of reports that contain it. The output is a function of the histogram of reports. A
  batch is not released if it has fewer users than the accounting assumes.
- **Guarantee without the shuffler.** A message is epsilon0-locally private. The guarantee states the largest
  epsilon0.

A message is a report (:mod:`discreet.device.randomized_response_device`) in the common envelope of all
messages (:mod:`discreet.device.message_envelope`). The length of a message is a function of the report, so
the length reveals no more than the report.

Each user is in one batch, and later plans are functions of earlier outputs. Adaptive parallel composition
therefore applies, as for flips. The session works like the session of
:mod:`discreet.mechanisms.shuffle.shuffle_session`, except for the messages.

The noise of the sums is larger than that of the flips for every number of users (docs/shuffle.md), mainly
because a device reports one step in H. Flips are therefore the default. Reports have two advantages: a device
draws about ten random numbers instead of one for each counter, and a message has about 60 bytes.

Source: Feldman, McMillan and Talwar 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from discreet.accounting.shuffle_amplification import local_epsilon
from discreet.core import checks
from discreet.core.call_protocols import Encoder
from discreet.core.count_mechanism import Stated
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.protocols import Coins
from discreet.core.releases import Floats, Ints, Message, Plan, Schedule
from discreet.core.rng import Key, Randomness
from discreet.core.session import ChannelSession
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory
from discreet.device.message_envelope import MessageRejected, drawn_nonce
from discreet.device.message_guarantee import MessageGuarantee
from discreet.device.randomized_response_device import Found, ReportDevice
from discreet.device.shuffle_encoder import BitCoins
from discreet.mechanisms.local import randomized_response_kernels as local_kernels
from discreet.mechanisms.local.choose_randomizer import report_candidates
from discreet.mechanisms.local.randomized_response import (
    Kind,
    ReportEncoder,
    StepReports,
    device_of,
    reported_tables,
)
from discreet.mechanisms.shuffle.shuffle_mechanisms import AmplifiedMechanism
from discreet.mechanisms.shuffle.shuffle_session import Inbox, ShuffledChannel
from discreet.utils import random_streams_kernels as streams

__all__ = [
    "AmplifiedChannel", "AmplifiedEncoder", "AmplifiedMechanism", "Histogram", "ReportShuffler",
    "amplified_mechanism", "reports_of",
]  # fmt: skip

_KINDS: tuple[Kind, ...] = ("subset", "oue")  # "krr" is the same as "subset" with one element


# -------------------------------------------------------------------------------- calibration


def reports_of(query: CountQuery, epsilon0: float) -> StepReports:
    """Return the reports over all admissible pairs with the least noise in a transition count at epsilon0."""
    return _reports_of(epsilon0, _Asked(query))


@dataclass(frozen=True, eq=False)
class _Asked:
    """Cache key of a query. Queries with equal keys are answered by the same reports."""

    query: CountQuery

    def _key(self) -> tuple[Any, ...]:
        query = self.query
        layout = query.layout
        counted, share = query.counted_steps, query.reward_share
        return (
            layout.states,
            layout.rows,
            query.known_rewards,
            query.reward_shift,
            query.step,
            counted,
            share,
        )

    def __hash__(self) -> int:
        return hash(self._key())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self._key() == other._key()


@lru_cache(maxsize=4096)
def _reports_of(epsilon0: float, asked: _Asked) -> StepReports:
    every = [one for kind in _KINDS for one in report_candidates(asked.query, kind, epsilon0, True)]
    return min(every, key=lambda one: one.unit_std(True))


# -------------------------------------------------------------------------------- three parties


@dataclass(frozen=True, eq=False)
class AmplifiedEncoder:
    """Encoder of a device.

    A message has two parts: a header that does not depend on the trajectory, and a locally private report.
    """

    __repr__ = brief

    inner: ReportEncoder
    device: ReportDevice

    @property
    def guarantee(self) -> MessageGuarantee:
        """Privacy guarantee of one message without the shuffler."""
        return self.device.guarantee

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Return the message of one trajectory.

        Raises ``ValueError`` for an invalid record or another plan. Nothing is sent in these cases.
        """
        report = self.inner(trajectory, plan, coins)
        if not isinstance(coins, BitCoins):
            raise ValueError(f"coins = {coins!r}: must draw words of random bits")
        nonce = drawn_nonce(coins)
        return Message(report.plan, message=self.device.write(report.plan, np.asarray(report.message), nonce))


@dataclass(frozen=True, eq=False)
class Histogram:
    """Output of the shuffler for a batch. The first axis has length 1 instead of H if the query has one step.

    Attributes
    ----------
    users : int
        Number of users whose report arrived.
    reports : (H, 2)
        Number of reports about the move and the reward of each step.
    moves, bits : (H, R, S) and (H, R, 2)
        Number of reports that contain each element.
    """

    __repr__ = brief

    users: int
    reports: Ints
    moves: Ints
    bits: Ints


class ReportShuffler(Inbox):
    """Shuffler that receives the reports of one batch and releases a histogram without senders.

    Parameters
    ----------
    layout, reports, session : public parameters of the messages.
    least : number of users that the privacy accounting assumes. With fewer users, nothing is released.
    """

    _BOUND = ("layout", "reports", "session", "least")
    _STATE = (*Inbox._STATE, "_reports", "_moves", "_bits")

    def __init__(self, layout: Layout, reports: StepReports, session: int, least: int) -> None:
        super().__init__(least)
        self.layout, self.reports, self.session = layout, reports, session
        self.device = device_of(layout, reports, "stochastic", session, shuffled=True)
        self._forget()

    @property
    def parameters(self) -> tuple[Any, ...]:
        """Public parameters as values that can be compared."""
        return self.layout, astuple(self.reports), self.session, self.least

    @classmethod
    def of_batch(cls, mechanism: AmplifiedMechanism, batch: int, session: int) -> ReportShuffler:
        """Return a new shuffler of a scheduled batch, in any process. session : number of the session."""
        least, reports = mechanism.choices[batch]
        return cls(mechanism.query.layout, reports, session, least)

    def _forget(self) -> None:
        self._received = self._left = 0  # reset before the sums, so that no user is counted without a report
        shape = (self.reports.horizon, self.layout.rows)
        self._reports = np.zeros((self.reports.horizon, 2), np.int64)
        self._moves = np.zeros((*shape, self.layout.states), np.int64)
        self._bits = np.zeros((*shape, 2), np.int64)
        self._nonces = set()

    def receive(self, message: Any) -> None:
        """Add one message, or count it as rejected and raise ``MessageRejected``."""
        try:
            found, nonce = self._read(message)
        except MessageRejected as refusal:
            self._refused[refusal.reason] += 1
            raise
        reports, tables = self._reports.copy(), (self._moves.copy(), self._bits.copy())
        for step, about, marks in found:
            reports[step, about] += 1
            tables[about][step] += marks.reshape(tables[about][step].shape)
        self._nonces.add(nonce)  # an interrupt after this line loses a report, but no report is added twice
        self._left -= 1
        # One statement without a call: every user counted as received is in the sums.
        self._reports, (self._moves, self._bits), self._received = reports, tables, self._received + 1

    def _read(self, message: Any) -> tuple[Found, bytes]:
        nonce, found = self.device.read(self._plan, message, True)
        self._check_new(nonce)
        return found, nonce

    def receive_many(self, batch: Sequence[Any]) -> int:
        """Add many messages and return the number of accepted messages.

        Invalid messages are counted as rejected.
        """
        before = self._received
        for message in batch:
            with suppress(MessageRejected):
                self.receive(message)
        return self._received - before

    def add_simulated(self, reports: Ints, moves: Ints, bits: Ints, users: int) -> None:
        """Add the reports of simulated users, given as counts."""
        self._left, self._received = self._left - users, self._received + users
        self._reports, self._moves = self._reports + reports, self._moves + moves
        self._bits = self._bits + bits

    def add_counted(self, counted: Histogram, most: int) -> int:
        """Add the output of the same batch's shuffler in another process. Return the number of its users.

        The errors are those of :meth:`discreet.mechanisms.shuffle.shuffle_session.Shuffler.add_counted`.
        """
        if type(counted) is not Histogram:
            raise ValueError(f"counted is a {type(counted).__name__}: must be what a ReportShuffler lets out")
        tables = {"reports": self._reports, "moves": self._moves, "bits": self._bits}
        for name, own in tables.items():
            found = getattr(counted, name)
            if not isinstance(found, np.ndarray) or found.shape != own.shape or found.dtype.kind not in "iu":
                raise ValueError(f"counted.{name}: must be integers of shape {own.shape}")
        users = checks.integer("counted.users", counted.users, 1, most)
        number = counted.reports.astype(np.int64)
        moves, bits = counted.moves.astype(np.int64), counted.bits.astype(np.int64)
        if (number < 0).any() or number.sum() != users * self.reports.steps:
            raise ValueError(f"counted.reports: must be {self.reports.steps} of each of {users} users")
        for name, table, about in (("moves", moves, 0), ("bits", bits, 1)):
            if (table < 0).any() or (table > number[:, about, None, None]).any():
                raise ValueError(f"counted.{name}: must be in [0, the reports of the step]")
        self._reports, self._moves, self._bits, self._received = (
            self._reports + number, self._moves + moves, self._bits + bits, self._received + users,
        )  # fmt: skip
        return users

    def output(self) -> Histogram:
        """Return the histogram of the batch and delete it.

        The histogram is also deleted if :class:`BatchTooSmall` is raised.
        """
        found = Histogram(self._received, self._reports, self._moves, self._bits)
        self._forget()
        self._check_enough(found.users)
        return found


def estimated(query: CountQuery, reports: StepReports, histogram: Histogram) -> Floats:
    """Return (cells,) unbiased sums of the query's families, in the order of the query.

    The debiasing is the same as for one user's report. Derivation and variance are in
    :mod:`discreet.mechanisms.local.randomized_response`.
    """
    values = reports.arrays()[1].reshape(2, 2, 2)  # (about, policy, (gain, miss)); policy 1: all pairs
    tables = []
    for about, hits in enumerate((histogram.moves, histogram.bits)):
        gain, miss = values[about, 1]
        tables.append(miss * histogram.reports[:, about, None, None] + gain * hits)
    moves, bits = tables
    rewards = (1.0 - reports.shift) * bits[..., 1] - reports.shift * bits[..., 0]
    found = {VISITS: moves.sum(axis=-1), TRANSITIONS: moves}
    return np.concatenate([found.get(name, rewards).ravel() for name in query.row_families])


def amplified_mechanism(
    query: CountQuery,
    schedule: Schedule,
    randomness: Randomness,
    honest: Sequence[int],
    epsilon: float,
    delta: float,
) -> AmplifiedMechanism:
    """Return the mechanism of amplified reports for batches with the numbers ``honest`` of honest users.

    Raises ``ValueError`` if the query has counts that reports do not contain.
    """
    if query.stationary or query.pooled != "none" or query.groups:
        raise ValueError(
            "query: reports of random steps hold counts per step; counts pooled over steps (stationary, "
            "pooled) and group returns are not"
        )
    by_size = {n: reports_of(query, local_epsilon(epsilon, delta, n)) for n in dict.fromkeys(honest)}
    choices = tuple((n, by_size[n]) for n in honest)
    return AmplifiedMechanism(query, schedule, randomness.kind, Stated(delta, epsilon), choices)


# ------------------------------------------------------------------------------------- channel


class AmplifiedChannel(ShuffledChannel):
    """Channel of counts from shuffled reports.

    In simulation, ``submit_sum`` takes the counts of the elements that users report
    (:func:`discreet.envs.rollouts.rollout.reported_counts`, or ``reported_step`` if the query has one step).
    """

    shuffles = ReportShuffler
    made_of = AmplifiedMechanism

    def reports_now(self, s: ChannelSession) -> StepReports:
        """Return the report parameters of the open plan's users.

        Raises ``RuntimeError`` if no plan is open.
        """
        _ = s.open_plan
        return self._reports(s)

    def _reports(self, s: ChannelSession) -> StepReports:
        found: StepReports = self.mechanism.choices[s.state["batch"]][1]
        return found

    def open_device(self, s: ChannelSession) -> ReportDevice:
        """Return the device program for the newest plan's users."""
        device: ReportDevice = s.state["shufflers"][-1].device
        return device

    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices of the newest plan's users."""
        reports, layout = self._reports(s), self.query.copy().layout
        rows = np.zeros((reports.horizon, layout.states), np.int64)
        inner = ReportEncoder(layout, reports, True, rows, s._plans, self.key is None)
        return AmplifiedEncoder(inner, self.open_device(s))

    def simulated(
        self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key
    ) -> tuple[Any, ...]:
        """Draw (reports, moves, bits) of ``users`` users from their exact joint distribution."""
        reports, layout = self._reports(s), self.query.layout
        tables = reported_tables(reports, layout, sums, users)
        state = streams.open_at(key, streams.ROLE_NOISE, s.users, 1)
        number = np.stack([table.sum(axis=(1, 2)) for table in tables], axis=1)
        hits = [np.zeros_like(table) for table in tables]
        for step, about in zip(*np.nonzero(number), strict=True):
            one, held = reports.randomizer(int(about), True), tables[about][step]
            drawn = local_kernels.draw_sums(
                state, int(one.unary), one.elements, one.size, one.own, one.other, held.ravel(), 1, False
            )
            hits[about][step] = drawn.reshape(held.shape)
        return number, *hits

    def read_out(self, shuffler: Any) -> tuple[Floats, list[Any], int]:
        """Return (sums, noise distributions by family, users) of one batch and delete the batch."""
        histogram: Histogram = shuffler.output()
        sums = estimated(self.query, shuffler.reports, histogram)
        return sums, self.mechanism.parts(shuffler.reports, histogram.users), histogram.users
