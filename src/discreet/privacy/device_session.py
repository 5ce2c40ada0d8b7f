"""The session of local privacy in every counter: each user's own counters, with noise from her device.

The server adds up messages; it sees no trajectory and draws nothing. A message costs what one noisy sum of
one user does (:class:`~discreet.privacy.mechanism.OnDevice`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from discreet.privacy import seeded_kernels
from discreet.privacy.counts import CountQuery
from discreet.privacy.encoders import REACH, NoisyVectorEncoder, local_message
from discreet.privacy.mechanism import CountMechanism
from discreet.privacy.randomness import Key, Randomness
from discreet.privacy.releases import Encoder, Floats, Report
from discreet.privacy.session import MeasuredSession

__all__ = ["DeviceSession"]


class DeviceSession(MeasuredSession):
    """As :class:`~discreet.privacy.session.MeasuredSession`, but users send noisy counters."""

    _kind = "device counts"
    _streams = ("local",)
    _DERIVED = (*MeasuredSession._DERIVED, "_reach")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        super().__init__(mechanism, randomness)
        # of a user's cells: what an honest device sends is inside
        reach = self._query.layout.horizon + REACH * self._scales
        self._reach = np.repeat(reach, np.diff(self._query.offsets))

    def _randomizer(self, query: CountQuery) -> Encoder:
        return NoisyVectorEncoder(query, self.mechanism, self._begins.copy(), self._plans)

    def _add(self, report: Report) -> None:
        message = local_message(self._message(report), self._reach)
        self._count(1)
        self._cells += message

    def _add_sum(self, sums: Mapping[str, Floats], users: int, key: Key) -> None:
        cells = self._query.to_cells(sums)
        noise = np.empty(self._query.cells)
        seeded_kernels.fill_noise_sum(
            self._mechanism.family, key, self._users, users, self._query.offsets, self._scales, noise
        )
        self._count(users)
        np.add(self._cells + cells, noise, out=self._cells)  # sums never stand there without their noise
