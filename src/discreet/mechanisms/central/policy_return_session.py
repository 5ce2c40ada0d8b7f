"""Session of group returns: clipped returns summed over public groups of users, in addition to the counts.

The sensitivity of group returns is derived in :mod:`discreet.core.count_query`. The split of the budget
between group returns and counts is defined in :mod:`discreet.core.clipped_returns`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from discreet.core import checks
from discreet.core import clipped_returns as steered
from discreet.core.fresh_noise_session import DecayingSession
from discreet.core.releases import Floats, Plan
from discreet.core.trajectories import Trajectories, Trajectory

__all__ = ["GroupSession"]


class GroupSession(DecayingSession):
    """A :class:`~discreet.core.fresh_noise_session.DecayingSession` for a query with groups."""

    _kind = "group counts"
    _streams = ("exact", "decaying")
    _asks = "group"

    @property
    def open_group(self) -> int:
        """Group of the users of the newest plan."""
        return 0 if self._plan is None or self._plan.group is None else int(self._plan.group)

    def _plain(self, plan: Plan) -> Plan:
        share = plan.return_share
        if plan.cut is not None:
            raise ValueError(f"plan.cut = {plan.cut!r}: must be None, it is for queries with a cut only")
        group = checks.integer("plan.group", plan.group, 0, self._query.groups - 1)
        if share is not None:
            share = checks.real("plan.return_share", share, 0.0, 1.0, open_high=True)
        forget = checks.flag("plan.forget", plan.forget)
        return replace(plan, group=group, return_share=share, forget=forget)

    def _wanted_scales(self, scales: Floats) -> Floats:
        """Return the scales after the budget split that the last plan of the batch chose."""
        share = None if self._plan is None else self._plan.return_share
        return steered.at_share(self._mechanism, scales, share)

    @property
    def _cell(self) -> int:
        """Index of the cell that sums the returns of the newest plan's users."""
        return self._query.cells - self._query.groups + self.open_group

    def _put(self, record: Trajectory) -> None:
        super()._put(record)
        self._cells[self._cell] += steered.clipped_return(self._query, record)

    def _add_many(self, records: Trajectories) -> None:
        returns = np.minimum(records.rewards.sum(axis=1), self._query.clip).sum()
        super()._add_many(records)
        self._cells[self._cell] += returns
