"""Channel of linear sums over users with real-valued contexts, for contextual bandits.

The sums, noise and order of calls are those of
:class:`~discreet.mechanisms.linear.linear_session.LinearChannel`. Records are
:class:`~discreet.mechanisms.linear.context_query.ContextRecord`, and the policy of a plan is a table of
coefficients (blocks, p).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from discreet.core.releases import Plan
from discreet.core.rng import SecureRng, checked_on_grid
from discreet.core.session import ChannelSession
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecord, ContextRecords
from discreet.mechanisms.linear.linear_session import LinearChannel


class ContextChannel(LinearChannel):
    """Sums of one :class:`~discreet.mechanisms.linear.context_query.ContextQuery`."""

    record: ClassVar[type] = ContextRecord
    records: ClassVar[type] = ContextRecords
    query: ContextQuery

    def check_policy(self, s: ChannelSession, plan: Plan) -> None:
        """Raise ``ValueError`` unless the policy of a plan is a finite table of coefficients (blocks, p)."""
        self.query.check_coefficients(plan.policy)

    def add_many(self, s: ChannelSession, records: Any) -> None:
        """Count the users of checked records and then add the sum of the records at once.

        With exact noise, rewards are rounded first, and the sum consists of integers.
        """
        if self.grid is not None:
            rewards = checked_on_grid(SecureRng().rounded(records.rewards, self.grid), self.grid)
            records = replace(records, rewards=rewards)
        cells = self.on_grid(self.query.to_cells(self.query.sums_of(records, self.grid)))
        s._count(len(records))
        s.state["cells"] += cells

    def add_late(self, s: ChannelSession, records: Any) -> None:
        """Add checked records of users who were counted as absent.

        Each record is in one batch, so the privacy loss is that of a user who was not absent. Raises
        ``ValueError`` unless each batch has separate noise.
        """
        if self.mechanism.stream != "batches":
            return super().add_late(s, records)
        # one statement, as in add_absent; add_many counts the users again
        s._users, s._absent = s._users - len(records), s._absent - len(records)
        self.add_many(s, records)
