"""Session of randomized reports of a few steps of each user. The device or the server draws the reports.

The reports, their privacy and their sums are described in
:mod:`discreet.mechanisms.local.randomized_response`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from discreet.core.call_protocols import Encoder
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.count_sessions import MeasuredSession
from discreet.core.noise.seeded_rng import SeededRng
from discreet.core.raw_encoder import RawEncoder
from discreet.core.releases import Floats, Ints, Message, Plan
from discreet.core.rng import Key, Randomness, SecureRng
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.device.randomized_response_device import ReportDevice
from discreet.mechanisms.local import randomized_response as local_reports
from discreet.mechanisms.local import randomized_response_kernels as local_kernels
from discreet.mechanisms.local.message_inbox import FromDevices
from discreet.mechanisms.local.randomized_response import (
    ReportEncoder,
    StepReports,
    device_of,
    policy_table,
    reported_tables,
)

__all__ = ["ReportedSession", "report_arrays"]


class ReportedSession(FromDevices, MeasuredSession):
    """A :class:`~discreet.core.count_sessions.MeasuredSession` whose sums contain debiased reports.

    The reports are drawn on the device, or by a trusted server that stores no other data of a trajectory
    (``by`` of :class:`~discreet.mechanisms.local.randomized_response_strategy.Reported`).
    """

    _kind = "reported counts"
    _streams = ("reports",)
    _STATE = (*MeasuredSession._STATE, *FromDevices._SAVED, "_policy")
    _DERIVED = (*MeasuredSession._DERIVED, *FromDevices._OWN)

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        super().__init__(mechanism, randomness)
        self._take_no_messages_yet()
        self._policy = False, np.zeros((0, 0), np.int64)  # policy of the open plan: (stochastic, rows)

    @property
    def reports(self) -> StepReports:
        """Reports of users, either sent by them or drawn by the server on their behalf."""
        reports = self._mechanism.reports
        assert reports is not None
        return reports

    def _device_for(self, session: int) -> ReportDevice:
        return device_of(self._query.layout, self.reports, self._schedule.plans, session)

    def _read(self, plan: int, message: bytes) -> tuple[bytes, Any]:
        found: tuple[bytes, Any] = self._device.words(plan, message)
        return found

    def _admitted(self, plan: Plan, users: int) -> Plan:
        plan = super()._admitted(plan, users)
        self._policy = self._public_policy(plan)
        return plan

    def _encoder(self) -> Encoder:
        return self._randomizer(self._query.copy()) if self._trust == "local" else RawEncoder(self._plans)

    @property
    def open_randomizer(self) -> Encoder:
        """Randomizer that converts a trajectory of the open plan to a contribution to the sums.

        It is a pure and public function: the encoder of devices, or the function that a trusted server runs
        on each trajectory. Audits use it. Raises ``RuntimeError`` if no plan is open.
        """
        _ = self.open_plan
        return self._randomizer(self._query.copy())

    def _randomizer(self, query: CountQuery) -> Encoder:
        """Return the randomizer of trajectories of the newest plan. It has a reference to ``query``."""
        stochastic, rows = self._policy
        secure = self._key is None
        return ReportEncoder(query.layout, self.reports, stochastic, rows.copy(), self._plans, secure=secure)

    def _public_policy(self, plan: Plan) -> tuple[bool, Ints]:
        """Return the alphabet of the reports: (stochastic, rows).

        If the policy is stochastic, the alphabet covers all rows, otherwise the rows that the policy plays.
        """
        stochastic, rows = policy_table(plan, self._query.layout)
        rows = rows[self._query.counted]
        declared = self._schedule.plans
        if stochastic and declared == "deterministic":
            raise ValueError(
                "plan.policy is stochastic: must be deterministic, as schedule.plans declares, since the "
                "noise laws were computed for that"
            )
        if declared == "stochastic":  # the same alphabet for all plans
            return True, np.zeros_like(rows)
        return stochastic, rows

    def _add(self, message: Message) -> None:
        nonce = None
        if self._trust == "local":
            found, nonce = self._sent(message)
        else:  # a trusted server draws the report; the trajectory is not stored
            found = self._drawn(self._record(message), self._users)
        self._add_reports([found], nonce)

    def _add_many(self, records: Trajectories) -> None:
        self._add_reports([self._drawn(record, self._users + i) for i, record in enumerate(records)])

    def _drawn(self, record: Trajectory, user: int) -> Any:
        """Draw the message of one user, as a trusted server, with random bits that no other user shares.

        With a seed, the generator is that of the user's device in a local session. No part of a draw is
        visible before the user is counted, so an interrupted draw can be repeated.
        """
        coins = SecureRng() if self._key is None else SeededRng(self._key, user)
        return self._randomizer(self._query)(record, self.open_plan, coins).message

    def _add_reports(self, messages: Sequence[Any], nonce: bytes | None = None) -> None:
        """Add the debiased reports of users (one message each) to the cells.

        Either all messages are added or none.

        nonce : nonce of the message, if there is only one message.
        """
        reports = self.reports
        stochastic, policy_rows = self._policy
        found = [
            report for message in messages for report in local_reports.decode(reports, stochastic, message)
        ]
        codes, values = reports.arrays()
        layout, cells = self._query.layout, self._cells.copy()
        for step, about, marks in found:
            local_kernels.add_report(
                codes, values, about, step, stochastic, policy_rows, marks, layout.states, layout.rows,
                self._query.slots, self._begins, self._query.reward_shift, cells,
            )  # fmt: skip
        if nonce is None:
            self._count(len(messages))
        else:
            self._count_sender(nonce)
        self._cells = cells

    def submit_sum(self, sums: Mapping[str, Floats], users: int) -> None:
        """Add many simulated users, from counts of their reported elements.

        The noise has its exact distribution. For simulation only: raises ``ValueError`` with secure
        randomness.

        Parameters
        ----------
        sums : mapping
            ``reported_moves`` (H, S, A, S) and ``reported_bits`` (H, S, A, 2), from
            :func:`discreet.envs.rollouts.rollout.reported_counts`. Sums over all steps of users would not
            determine the joint distribution of reports.
        users : int
            Number of users.
        """
        super().submit_sum(sums, users)

    def _add_sum(self, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        reports = self.reports
        query, layout = self._query, self._query.layout
        tables = reported_tables(reports, layout, sums, users)
        stochastic, policy_rows = self._policy
        if not stochastic:
            for counts in tables:
                left = counts.copy()
                left[np.arange(reports.horizon)[:, None], policy_rows] = 0
                if left.any():
                    raise ValueError("sums hold records that the plan's policy does not lead to")
        arrays = report_arrays(reports, layout.rows, layout.states, stochastic)
        arrays.moves[:], arrays.bits[:] = tables
        cells = self._cells.copy()
        local_kernels.add_reported(
            arrays, stochastic, policy_rows, key, self._users, layout.states, layout.rows, query.slots,
            self._begins, query.reward_shift, cells,
        )  # fmt: skip
        self._count(users)
        self._cells = cells


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
