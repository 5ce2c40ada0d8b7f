"""Session of local privacy in which the device adds noise to each of the user's counters.

The server sums messages. It sees no trajectory and draws no noise. A message has the privacy loss of one
noisy sum of one user (:class:`~discreet.core.count_mechanism.OnDevice`). Devices, in this process and on
users' own machines, run :class:`~discreet.device.count_device.CountDevice`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from discreet.core import count_kernels as kernels
from discreet.core.call_protocols import Encoder
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.count_sessions import MeasuredSession
from discreet.core.noise import seeded_noise_kernels as seeded_kernels
from discreet.core.protocols import Coins
from discreet.core.raw_encoder import same_plan
from discreet.core.releases import Floats, Message, Plan
from discreet.core.rng import Key, Randomness
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory, checked
from discreet.device.count_device import CountDevice
from discreet.device.message_guarantee import MessageGuarantee
from discreet.mechanisms.local.message_inbox import REACH, FromDevices, local_message

__all__ = ["DeviceSession", "NoisyVectorEncoder", "device_of"]


def device_of(query: CountQuery, mechanism: CountMechanism, session: int) -> CountDevice:
    """Return the device program for noisy counters, with its public parameters."""
    layout = query.layout
    return CountDevice(
        layout.states,
        layout.actions,
        layout.horizon,
        tuple(zip(query.row_families, mechanism.noise_scales.tolist(), strict=True)),
        "laplace" if mechanism.family == kernels.LAPLACE else "gaussian",
        grid=mechanism.reward_grid,
        rows=None if layout.mask is None else tuple(map(tuple, layout.row_index.tolist())),
        step=query.step,
        stationary=query.stationary,
        centered=query.center_rewards,
        pooled=query.pooled,
        session=session,
    )


@dataclass(frozen=True, eq=False)
class NoisyVectorEncoder:
    """Encoder of local privacy. A message contains the user's counters, each with independent noise.

    Every visit and transition counter gets noise, visited or not. The privacy loss between the message
    distributions of any two trajectories is at most the sensitivity over the scale: the local guarantee.
    """

    __repr__ = brief

    query: CountQuery
    device: CountDevice
    number: int

    @property
    def guarantee(self) -> MessageGuarantee:
        """Privacy guarantee of one message."""
        return self.device.guarantee

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Check and randomize one trajectory. An invalid record raises ``ValueError`` on the device."""
        number = same_plan(self.number, plan)
        record = checked(trajectory, self.query.layout)
        rows = self.device.row_table[record.states[:-1], record.actions]
        return Message(plan=number, message=self.device.cells(record.states, rows, record.rewards, coins))


class DeviceSession(FromDevices, MeasuredSession):
    """A :class:`~discreet.core.count_sessions.MeasuredSession` whose users send noisy counters."""

    _kind = "device counts"
    _streams = ("local",)
    _STATE = (*MeasuredSession._STATE, *FromDevices._SAVED)
    _DERIVED = (*MeasuredSession._DERIVED, *FromDevices._OWN, "_reach")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        super().__init__(mechanism, randomness)
        self._take_no_messages_yet()
        # bound on a user's cells; messages of honest devices are within it
        reach = self._query.layout.horizon + REACH * self._scales
        self._reach = np.repeat(reach, np.diff(self._query.offsets))

    def _device_for(self, session: int) -> CountDevice:
        return device_of(self._query, self._mechanism, session)

    def _encoder(self) -> Encoder:
        # copies, so that the encoder shares no array
        return NoisyVectorEncoder(self._query.copy(), replace(self._device), self._plans)

    def _add(self, message: Message) -> None:
        sent, nonce = self._sent(message)
        cells = local_message(sent, self._reach)
        self._count_sender(nonce)
        self._cells += cells

    def _add_sum(self, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        cells = self._query.to_cells(sums)
        noise = np.empty(self._query.cells)
        seeded_kernels.fill_noise_sum(
            self._mechanism.family, key, self._users, users, self._query.offsets, self._scales, noise
        )
        self._count(users)
        np.add(self._cells + cells, noise, out=self._cells)  # sums and noise are added in one step
