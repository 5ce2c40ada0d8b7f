"""Channel of linear sums over users with real-valued contexts, for contextual bandits.

The sums, noise and order of calls are those of
:class:`~discreet.mechanisms.linear.linear_session.LinearChannel`. Records are
:class:`~discreet.mechanisms.linear.context_query.ContextRecord`, and the policy of a plan is a table of
coefficients (blocks, p).
"""

from __future__ import annotations

from typing import Any, ClassVar

from discreet.core.releases import Message, Plan
from discreet.core.session import ChannelSession
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecord, ContextRecords
from discreet.mechanisms.linear.linear_session import LinearChannel

__all__ = ["ContextChannel"]


class ContextChannel(LinearChannel):
    """Sums of one :class:`~discreet.mechanisms.linear.context_query.ContextQuery`."""

    record: ClassVar[type] = ContextRecord
    records: ClassVar[type] = ContextRecords
    query: ContextQuery

    def check_policy(self, s: ChannelSession, plan: Plan) -> None:
        """Raise ``ValueError`` unless the policy of a plan is a finite table of coefficients (blocks, p)."""
        self.query.check_coefficients(plan.policy)

    def add_many(self, s: ChannelSession, records: Any) -> None:
        """Count the users of checked records and then add the records.

        With exact noise each record is rounded separately. Otherwise the sum of the batch is added at once.
        """
        if self.grid is not None:
            for record in records:
                self.add(s, Message(s._plans, record))
            return
        cells = self.query.to_cells(self.query.sums_of(records))
        s._count(len(records))
        s.state["cells"] += cells
