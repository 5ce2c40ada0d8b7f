"""Channel that measures each batch, or a decaying sum of all batches, with fresh noise.

Derivation: :mod:`discreet.core.correlated_noise.decaying_sum`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from discreet.core import clipped_returns as steered
from discreet.core import decaying_sum_kernels as kernels
from discreet.core.correlated_noise.decaying_sum import FINE, Decaying
from discreet.core.count_channels import ExactChannel
from discreet.core.releases import Floats, Measurement
from discreet.core.rng import checked_on_grid
from discreet.core.session import ChannelSession, State

if TYPE_CHECKING:
    from discreet.core.protocols import NoiseDistribution


class FreshNoiseChannel(ExactChannel):
    """Channel that measures batches, or a decaying sum, with fresh noise. Prefix sums follow from
    measurements.
    """

    streams: ClassVar[tuple[str, ...]] = ("decaying",)

    def start(self) -> State:
        """Return the state before the first user.

        - filtered : decaying sum at the last measurement.
        - measured, measurements : sum of all measurements, and their number.
        - forgotten : True if the last measurement closed the stream of all users before it.
        - draws : number of noise draws, also for interrupted calls.
        - weights : sum of the users' weights, and of their squares.
        - squares : (families,) sum of the squared scales of all draws, in units of ``scales``.
        """
        state = super().start()
        del state["before"]
        return state | {
            "filtered": np.zeros(self.query.cells), "measured": np.zeros(self.query.cells),
            "measurements": 0, "draws": 0, "squares": np.zeros(self.scales.size), "forgotten": False,
            "weights": (0.0, 0.0),
        }  # fmt: skip

    def terms(self, state: State) -> tuple[int, Floats | None]:
        """Return the number of measurements in the new sums, and the squared noise scales."""
        return state["measurements"], state["squares"]

    def described(
        self, s: ChannelSession, fresh: Floats, laws: Mapping[str, NoiseDistribution], n: int
    ) -> tuple[Measurement, State]:
        """Return the newest measurement, with its number of users and its effective sample size."""
        state, decaying = s.state, Decaying(self.mechanism.decay)
        batch, forgets = n - state["closed_users"], self.forgets(s, n)
        decay = 0.0 if state["forgotten"] else decaying.decay
        gain = 1.0 if forgets else decaying.gain
        old = state["weights"]
        weights = batch + decay * old[0], batch + decay * decay * old[1]
        effective = weights[0] ** 2 / weights[1] if weights[1] else 0.0
        covers = n if decay else batch
        estimand: Literal["sum", "weighted"] = "weighted" if decay else "sum"
        estimates = self.estimates(fresh, laws, estimand, covers, effective)
        return Measurement(estimates, decay, gain), {"forgotten": forgets, "weights": weights}

    def add_late(self, s: ChannelSession, records: Any) -> None:
        """Add checked records of users who were counted as absent.

        Each record is in one batch, so the privacy loss is that of a user who was not absent.
        """
        # one statement, as in add_absent; add_many counts the users again
        s._users, s._absent = s._users - len(records), s._absent - len(records)
        self.add_many(s, records)

    def forgets(self, s: ChannelSession, n: int) -> bool:
        """Return True if the release after n users closes the stream of all users so far."""
        return n > 0 and s._plan is not None and s._plan.forget

    def wanted_scales(self, s: ChannelSession, n: int) -> Floats:
        """Return the (families,) noise scales of this release. A family with an infinite scale is not
        released.
        """
        scales = self.mechanism.scales_at(s._schedule.leaf_at(n, self.mechanism.leaf))
        if not self.query.steered:
            return scales
        return steered.wanted_scales(self.mechanism, scales, s)

    def measure(self, s: ChannelSession, n: int) -> tuple[Floats, Floats, State]:
        """Return (sums over all users, newest measurement, changes that close the batch).

        An interrupt (Ctrl-C) during a release can waste a draw of noise but has no privacy cost. The index of
        a draw is marked as used before the noise is drawn, because the same noise on other data would reveal
        their difference. When the release is made, the sum of the batch is removed from the cells, and its
        measurement is added to the sums.
        """
        state = s.state
        cells, filtered, measured = state["cells"], state["filtered"], state["measured"]
        if n == 0:
            return cells.copy(), cells.copy(), {}
        decaying = Decaying(self.mechanism.decay)
        self.on_grid(cells)
        state["draws"] += 1
        fine = float(FINE) if self.mechanism.fixed_point else 0.0
        wanted = self.wanted_scales(s, n)
        finite = np.isfinite(wanted)
        scales = np.where(finite, wanted, self.scales)
        released = np.repeat(finite, np.diff(self.query.offsets))
        noise = self.node_noise(state["draws"], self.mechanism.noise_factor, 0, scales)
        squares = state["squares"] + np.where(finite, (scales / self.scales) ** 2, 0.0)
        gain = 1.0 if self.forgets(s, n) else decaying.gain
        held, fresh, sums = (np.empty_like(noise) for _ in range(3))
        kernels.decay_cells(
            cells, filtered, measured, noise, released, decaying.decay, gain, fine, held, fresh, sums
        )
        if fine:
            checked_on_grid(held + noise, FINE)  # everything below is computed from this sum
        else:
            self.on_grid(fresh)
        return sums, fresh, {
            "cells": np.zeros(self.query.cells), "measured": measured + fresh,
            "filtered": np.zeros(self.query.cells) if self.forgets(s, n) else held,
            "measurements": state["measurements"] + 1, "squares": squares,
        }  # fmt: skip
