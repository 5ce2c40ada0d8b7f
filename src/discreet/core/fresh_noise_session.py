"""Session that measures each batch, or a decaying sum of all batches, with fresh noise.

Derivation: :mod:`discreet.core.correlated_noise.decaying_sum`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from discreet.core import decaying_sum_kernels as kernels
from discreet.core.correlated_noise.decaying_sum import FINE, Decaying
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_sessions import MeasuredSession
from discreet.core.releases import Floats, Measurement
from discreet.core.rng import Randomness, checked_on_grid

if TYPE_CHECKING:
    from discreet.core.protocols import NoiseDistribution

__all__ = ["DecayingSession"]


class DecayingSession(MeasuredSession):
    """Session that measures each batch or a decaying sum with fresh noise.

    Sums are computed from measurements.
    """

    _kind = "decaying counts"
    _streams: ClassVar[tuple[str, ...]] = ("decaying",)
    _STATE = (
        *MeasuredSession._STATE,
        "_measured", "_measurements", "_draws", "_scales_now", "_squares", "_forgotten", "_weights",
    )  # fmt: skip
    _DERIVED = (*MeasuredSession._DERIVED, "_decaying")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        super().__init__(mechanism, randomness)
        self._decaying = Decaying(mechanism.decay)
        self._measured = np.zeros(self._query.cells)  # sum of all measurements so far
        self._measurements = 0  # number of measurements so far.
        self._forgotten = False  # True if the last measurement closed the stream of all users before it.
        self._draws = 0  # Noise draws requested, also by interrupted calls.
        self._weights = (0.0, 0.0)  # Sum of the users' weights, and sum of their squares.
        self._scales_now = self._scales  # scales of the next noise
        self._squares = np.zeros(self._scales.size)  # squared scales, in units of ``scales``

    def _drop(self) -> None:
        super()._drop()
        self._measured = np.zeros(0)

    @property
    def _drawn_scales(self) -> Floats:
        return self._scales_now

    def _wanted_scales(self, scales: Floats) -> Floats:
        """Return the (families,) scales of this release, computed from the scheduled ones.

        Infinite: not released.
        """
        return scales

    def _terms(self) -> tuple[int, Floats]:
        number, squares = (self._next.get(name, vars(self)[name]) for name in ("_measurements", "_squares"))
        return number, squares

    def _described(self, fresh: Floats, laws: Mapping[str, NoiseDistribution], n: int) -> Measurement:
        if self._mechanism.stream != "decaying":  # exact, where plans set more than a policy
            return super()._described(fresh, laws, n)
        decay, batch = self._decaying.decay, n - self._closed_users
        gain = self._decaying.gain
        if self._forgotten:
            decay = 0.0
        forgets = self._forgets(n)
        gain = 1.0 if forgets else gain
        weights = batch + decay * self._weights[0], batch + decay * decay * self._weights[1]
        self._next |= {"_forgotten": forgets, "_closed_users": n, "_weights": weights}
        effective = weights[0] ** 2 / weights[1] if weights[1] else 0.0
        covers, estimand = (n, "weighted") if decay else (batch, "sum")
        estimates = self._estimates(fresh, laws, estimand, covers, effective)  # type: ignore[arg-type]
        return Measurement(estimates, decay, gain)

    def _forgets(self, n: int) -> bool:
        """Return whether the release after n users closes the stream of all users so far."""
        return n > 0 and self._plan is not None and self._plan.forget

    def _measure(self, n: int, reports: int) -> tuple[Floats, Floats]:
        """Return (sums over all users, newest measurement) and close the batch since the last release.

        An interrupt (Ctrl-C) during a release can waste a draw of noise but never costs privacy. The index of
        a noise is marked as used before the noise is drawn, because the same noise on other data would reveal
        their difference. The batch leaves the cells, and its measurement enters the sums, at the moment when
        the release is made.
        """
        if self._mechanism.stream != "decaying":
            return super()._measure(n, reports)
        if n == 0:
            return self._cells.copy(), self._cells.copy()
        decay, gain = self._decaying.decay, self._decaying.gain
        self._on_grid(self._cells)
        self._draws += 1
        fine = float(FINE) if self._mechanism.fixed_point else 0.0
        wanted = self._wanted_scales(self._mechanism.scales_at(self._schedule.leaf_at(n, self._leaf)))
        finite = np.isfinite(wanted)
        self._scales_now = np.where(finite, wanted, self._scales)
        told = np.repeat(finite, np.diff(self._query.offsets))
        noise = self._node_noise(self._draws, self._mechanism.noise_factor)
        squares = self._squares + np.where(finite, (self._scales_now / self._scales) ** 2, 0.0)
        gain = 1.0 if self._forgets(n) else gain
        filtered, fresh, sums = (np.empty_like(noise) for _ in range(3))
        kernels.decay_cells(
            self._cells, self._filtered, self._measured, noise, told, decay, gain, fine, filtered, fresh, sums
        )
        if fine:
            checked_on_grid(filtered + noise, FINE)  # everything below is computed from this sum
        else:
            self._on_grid(fresh)
        measured, made = self._measured + fresh, self._measurements + 1
        filtered = np.zeros(self._query.cells) if self._forgets(n) else filtered
        self._next |= {
            "_cells": np.zeros(self._query.cells), "_filtered": filtered, "_measured": measured,
            "_measurements": made, "_squares": squares,
        }  # fmt: skip
        return sums, fresh
