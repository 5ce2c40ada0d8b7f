"""Session that releases each row on its own schedule.

The derivation is in :mod:`discreet.core.correlated_noise.per_pair_schedule`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.count_mechanism import CountMechanism
from discreet.core.families import TRANSITIONS
from discreet.core.fresh_noise_session import DecayingSession
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Ints, Plan
from discreet.core.rng import Randomness
from discreet.mechanisms.central import per_pair_kernels as kernels

__all__ = ["ClockSession", "played_rows"]


class ClockSession(DecayingSession):
    """A :class:`~discreet.core.fresh_noise_session.DecayingSession` with a separate schedule per row."""

    _kind = "clocked counts"
    _streams = ("decaying",)
    _asks = "clocked"
    _STATE = (*DecayingSession._STATE, "_pending", "_counted", "_played")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        super().__init__(mechanism, randomness)
        rows = self._query.slots * self._query.layout.rows
        self._pending = np.zeros(rows)  # per row: users assigned since the last measurement of the row
        self._counted = np.zeros(rows)  # per row: users assigned before the last measurement of the row
        self._played: NDArray[np.bool_] | None = None  # rows that the open plan can visit

    def _admitted(self, plan: Plan, users: int) -> Plan:
        plan = super()._admitted(plan, users)
        self._assign(plan, users)
        return plan

    def _assign(self, plan: Plan, users: int) -> None:
        """Count the plan's users in every row that its policy can play.

        This is public and precedes all data.
        """
        played = played_rows(self._query.layout, plan.policy)
        played = played[self._query.counted]
        counts = users * (played if self._query.slots > 1 else played.sum(axis=0)).ravel()
        self._played, self._pending = played, self._pending + counts

    def _check_sums(self, cells: Floats, users: int) -> None:
        assert self._played is not None
        played = self._played if self._query.slots > 1 else self._played.any(axis=0, keepdims=True)
        if (cells[~played.ravel()[self._row_of()]] != 0).any():
            raise ValueError("sums: must be 0 at pairs that the plan's policy does not play")

    def _row_of(self) -> Ints:
        """Return the (cells,) row (step, pair) that each cell belongs to."""
        rows, states = self._query.slots * self._query.layout.rows, self._query.layout.states
        return np.concatenate(
            [
                np.repeat(np.arange(rows), states if name == TRANSITIONS else 1)
                for name in self._query.row_families
            ]
        )

    def _tick(self, n: int) -> Floats:
        clocks = self._mechanism.clocks
        assert clocks is not None
        due = np.zeros(self._pending.size)
        if n > 0:
            pending, counted = self._pending.copy(), self._counted.copy()
            kernels.tick(clocks.growth, pending, counted, due)
            self._next |= {"_pending": pending, "_counted": counted}
        return due

    def _closed_batch(
        self, due: Floats | None, fresh: Floats, filtered: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Close the batch for the rows that are due. Other rows keep their sums and are not released."""
        if due is None:
            return super()._closed_batch(due, fresh, filtered)
        told = due[self._row_of()] > 0
        return (
            np.where(told, fresh, 0.0),
            np.where(told, 0.0, self._cells),
            np.where(told, filtered, self._filtered),
        )


def played_rows(layout: Layout, policy: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (H, R) booleans: True if the policy can play the pair of the row.

    policy : (H, S) actions or (H, S, A) probabilities. Raises ``ValueError`` if the policy plays an action
        that does not exist or is not admissible.
    """
    given = np.asarray(policy)
    if given.ndim == 3:
        if not (given >= 0).all() or (layout.mask is not None and (given[:, ~layout.mask] > 0).any()):
            raise ValueError("plan.policy: must hold probabilities, 0 for actions that are not admissible")
        return np.asarray(layout.to_rows(np.asarray(given, np.float64)) > 0)
    if given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= layout.actions:
        raise ValueError(f"plan.policy: must hold actions in [0, {layout.actions - 1}]")
    rows = layout.row_index[np.arange(layout.states)[None, :], given]
    if rows.min() < 0:
        raise ValueError("plan.policy: plays an action that is not admissible")
    played = np.zeros((layout.horizon, layout.rows), bool)
    np.put_along_axis(played, rows, True, axis=1)
    return played
