"""Channel of randomized reports of a few steps of each user. The device or the server draws the reports.

The reports, their privacy and their sums are described in
:mod:`discreet.mechanisms.local.randomized_response`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from discreet.core.call_protocols import Encoder
from discreet.core.count_channels import ExactChannel
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.raw_encoder import RawEncoder
from discreet.core.releases import Floats, Ints, Message, Plan
from discreet.core.rng import Key, Randomness, SecureRng
from discreet.core.session import ChannelSession, State
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device.randomized_response_device import ReportDevice
from discreet.mechanisms.local import randomized_response as local_reports
from discreet.mechanisms.local import randomized_response_kernels as local_kernels
from discreet.mechanisms.local.message_inbox import DeviceMessages
from discreet.mechanisms.local.randomized_response import (
    ReportEncoder,
    StepReports,
    device_of,
    policy_table,
    reported_tables,
)
from discreet.mechanisms.local.randomized_response_strategy import reports_of
from discreet.mechanisms.seeded_rng import SeededRng


class ReportChannel(DeviceMessages, ExactChannel):
    """Channel with sums of debiased reports.

    The reports are drawn on the device or by a trusted server (``by`` of
    :class:`~discreet.mechanisms.local.randomized_response_strategy.Reported`). The server stores no other
    data of a trajectory.
    """

    streams = ("reports",)
    steers = False

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        ExactChannel.__init__(self, mechanism, randomness)
        DeviceMessages.__init__(self)
        reports = reports_of(self.mechanism)
        assert reports is not None
        self.reports = reports
        self.local = mechanism.trust == "local"

    def start(self) -> State:
        """Return the state before the first user.

        policy : policy of the open plan, (stochastic, rows).
        """
        return super().start() | self.start_messages() | {"policy": (False, np.zeros((0, 0), np.int64))}

    def plain(self, state: State) -> State:
        """Return ``state`` in the form that a file contains."""
        return self.plain_messages(state)

    def from_plain(self, s: ChannelSession, state: State) -> State:
        """Return the state read from a file. Raises ``ValueError`` if the state is invalid."""
        return self.messages_from_plain(s, state)

    def device_for(self, session: int) -> ReportDevice:
        """Return the device program for the session with the number ``session``."""
        return device_of(self.query.layout, self.reports, self.mechanism.schedule.plans, session)

    def read(self, s: ChannelSession, plan: int, message: bytes) -> tuple[bytes, Any]:
        """Return the nonce and the numbers in a message to the open plan."""
        found: tuple[bytes, Any] = self.own_device(s).words(plan, message)
        return found

    def admit(self, s: ChannelSession, plan: Plan, users: int) -> tuple[Plan, State]:
        """Return the plan to store, and its policy."""
        plan, changes = super().admit(s, plan, users)
        return plan, changes | {"policy": self._public_policy(plan)}

    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices of the newest plan's users."""
        return self.randomizer(s) if self.local else RawEncoder(s._plans)

    def randomizer(self, s: ChannelSession) -> Encoder:
        """Return the randomizer of trajectories of the newest plan."""
        return self._randomizer(s, self.mechanism.counts.copy())

    def _randomizer(self, s: ChannelSession, query: CountQuery) -> ReportEncoder:
        """Return the randomizer of trajectories of the newest plan. The result keeps a reference to
        ``query``.
        """
        stochastic, rows = s.state["policy"]
        secure = self.key is None
        return ReportEncoder(query.layout, self.reports, stochastic, rows.copy(), s._plans, secure=secure)

    def _public_policy(self, plan: Plan) -> tuple[bool, Ints]:
        """Return the alphabet of the reports: (stochastic, rows).

        For a stochastic policy, the alphabet covers all rows. For a deterministic policy, it covers the rows
        that the policy plays.
        """
        stochastic, rows = policy_table(plan, self.query.layout)
        rows = rows[self.mechanism.counts.counted]
        declared = self.mechanism.schedule.plans
        if stochastic and declared == "deterministic":
            raise ValueError(
                "plan.policy is stochastic: must be deterministic, as schedule.plans declares, since the "
                "noise laws were computed for that"
            )
        if declared == "stochastic":  # the same alphabet for all plans
            return True, np.zeros_like(rows)
        return stochastic, rows

    def add(self, s: ChannelSession, message: Message) -> None:
        """Check a message of the open plan, count its user, and then add its debiased reports."""
        nonce = None
        if self.local:
            found, nonce = self.sent(s, message)
        else:  # a trusted server draws the report; the trajectory is not stored
            found = self.drawn(s, s._record(message), s.users)
        self.add_reports(s, [found], nonce)

    def add_many(self, s: ChannelSession, records: Trajectories) -> None:
        """Count the users of checked records and then add their debiased reports."""
        self.add_reports(s, [self.drawn(s, record, s.users + i) for i, record in enumerate(records)])

    def drawn(self, s: ChannelSession, record: Trajectory, user: int) -> Any:
        """Draw the message of one user on a trusted server. No other user shares the random bits.

        With a seed, the generator is that of the user's device in a local session. No part of a draw is
        released before the user is counted, so an interrupted draw can be repeated.
        """
        coins = SecureRng() if self.key is None else SeededRng(self.key, user)
        return self._randomizer(s, self.mechanism.counts)(record, s.open_plan, coins).message

    def add_reports(self, s: ChannelSession, messages: Sequence[Any], nonce: bytes | None = None) -> None:
        """Add the debiased reports of users to the cells. Each user has one message.

        Either all messages are added or none.

        nonce : nonce of the message. The nonce is given only for a single message.
        """
        stochastic, policy_rows = s.state["policy"]
        found = [
            report
            for message in messages
            for report in local_reports.decode(self.reports, stochastic, message)
        ]
        codes, values = self.reports.arrays()
        query, cells = self.mechanism.counts, s.state["cells"].copy()
        layout = query.layout
        for step, about, marks in found:
            local_kernels.add_report(
                codes, values, about, step, stochastic, policy_rows, marks, layout.states, layout.rows,
                query.slots, self.begins, query.reward_shift, cells,
            )  # fmt: skip
        if nonce is None:
            s._count(len(messages))
        else:
            self.count_sender(s, nonce)
        s.state["cells"] = cells

    def add_sum(self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Count many simulated users and add their reports, from counts of their reported elements.

        The noise is drawn from its exact distribution. Counts of reported elements are needed, because sums
        over all steps of users would not determine the joint distribution of reports.

        ``sums`` is the result of :func:`discreet.envs.rollouts.rollout.reported_counts`.
        """
        reports = self.reports
        query, layout = self.mechanism.counts, self.query.layout
        tables = reported_tables(reports, layout, sums, users)
        stochastic, policy_rows = s.state["policy"]
        if not stochastic:
            for counts in tables:
                left = counts.copy()
                left[np.arange(reports.horizon)[:, None], policy_rows] = 0
                if left.any():
                    raise ValueError("sums hold records that the plan's policy does not lead to")
        arrays = report_arrays(reports, layout.rows, layout.states, stochastic)
        arrays.moves[:], arrays.bits[:] = tables
        cells = s.state["cells"].copy()
        local_kernels.add_reported(
            arrays, stochastic, policy_rows, key, s.users, layout.states, layout.rows, query.slots,
            self.begins, query.reward_shift, cells,
        )  # fmt: skip
        s._count(users)
        s.state["cells"] = cells


def report_arrays(
    reports: StepReports, rows: int, states: int, stochastic: bool
) -> local_kernels.ReportArrays:
    """Return parameters and scratch arrays of the compiled reports.

    If ``stochastic``, the arrays are large enough for the alphabet of a stochastic policy.
    """
    codes, values = reports.arrays()
    most = max(reports.randomizer(about, stochastic).elements for about in (0, 1))
    chosen, marks, hits, counts = (np.zeros(n, np.int64) for n in (reports.horizon, most + 1, most, most))
    moves = np.zeros((reports.horizon, rows, states), np.int64)
    bits = np.zeros((reports.horizon, rows, 2), np.int64)
    flow = np.zeros((2 * (reports.steps + 1) + 1) * states + rows, np.int64)
    return local_kernels.ReportArrays(codes, values, chosen, marks, hits, counts, moves, bits, flow)
