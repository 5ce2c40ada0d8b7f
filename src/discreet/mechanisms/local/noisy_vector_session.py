"""Channel of local privacy. The user's device adds noise to each of the user's counters.

The server sums messages. The server sees no trajectory and draws no noise. The privacy loss of a message is
that of one noisy sum over one user (:class:`~discreet.core.count_mechanism.OnDevice`). Devices run
:class:`~discreet.device.count_device.CountDevice`, both in this process and on users' own machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from discreet.core import count_kernels as kernels
from discreet.core.call_protocols import Encoder
from discreet.core.count_channels import ExactChannel
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.protocols import Coins
from discreet.core.raw_encoder import same_plan
from discreet.core.releases import Floats, Message, Plan
from discreet.core.rng import Key, Randomness
from discreet.core.session import ChannelSession, State
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory, checked
from discreet.device.count_device import CountDevice
from discreet.device.message_guarantee import MessageGuarantee
from discreet.mechanisms import seeded_noise_kernels as seeded_kernels
from discreet.mechanisms.local.message_inbox import REACH, DeviceMessages, local_message


def device_of(query: CountQuery, mechanism: CountMechanism, session: int) -> CountDevice:
    """Return the device program for noisy counters, with its public parameters."""
    layout = query.layout
    return CountDevice(
        layout.states,
        layout.actions,
        layout.horizon,
        tuple(zip(query.row_families, mechanism.scales.tolist(), strict=True)),
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

    Every visit and transition counter gets noise, including counters of pairs that the user did not visit.
    For any two trajectories, the privacy loss between the distributions of their messages is at most the
    sensitivity divided by the scale. This bound is the local guarantee.
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


class NoisyVectorChannel(DeviceMessages, ExactChannel):
    """Sums of users' noisy counters. The session draws no noise."""

    streams = ("local",)
    steers = False

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        ExactChannel.__init__(self, mechanism, randomness)
        DeviceMessages.__init__(self)
        # bound on a user's cells; messages of honest devices satisfy it
        reach = self.query.layout.horizon + REACH * self.scales
        self.reach = np.repeat(reach, np.diff(self.query.offsets))

    def start(self) -> State:
        """Return the state before the first user."""
        return super().start() | self.start_messages()

    def plain(self, state: State) -> State:
        """Return ``state`` in the form that a file contains."""
        return self.plain_messages(state)

    def from_plain(self, s: ChannelSession, state: State) -> State:
        """Return the state read from a file. Raises ``ValueError`` if the state is invalid."""
        return self.messages_from_plain(s, state)

    def device_for(self, session: int) -> CountDevice:
        """Return the device program for the session with the number ``session``."""
        return device_of(self.mechanism.counts, self.mechanism, session)

    def encoder(self, s: ChannelSession) -> Encoder:
        """Return the encoder for devices of the newest plan's users. The encoder shares no array with the
        session.
        """
        return NoisyVectorEncoder(self.mechanism.counts.copy(), replace(self.own_device(s)), s._plans)

    def add(self, s: ChannelSession, message: Message) -> None:
        """Check a message of the open plan, count its user, and then add the message."""
        sent, nonce = self.sent(s, message)
        cells = local_message(sent, self.reach)
        self.count_sender(s, nonce)
        s.state["cells"] += cells

    def add_sum(self, s: ChannelSession, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        """Check simulated sums, count their users, and then add them and the sum of the devices' noise."""
        cells = self.query.to_cells(sums)
        noise = np.empty(self.query.cells)
        seeded_kernels.fill_noise_sum(
            self.mechanism.family, key, s.users, users, self.query.offsets, self.scales, noise
        )
        s._count(users)
        own = s.state["cells"]
        np.add(own + cells, noise, out=own)  # sums and noise are added in one step
