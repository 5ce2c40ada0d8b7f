"""Types of encoders and of strategies of reports: declarations for type checkers, of which nothing runs.

Apart from :mod:`discreet.core.protocols`, since they name plans and queries, which are made of what stands
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from discreet.core.count_query import CountQuery
    from discreet.core.protocols import Coins, NoiseLaw, Record
    from discreet.core.releases import Message, Plan, Schedule
    from discreet.core.trajectories import Trajectory
    from discreet.mechanisms.local.randomized_response import StepReports

__all__ = ["Encoder", "ReportStrategy"]


class ReportStrategy(Protocol):
    """Randomized reports of a few steps of each user.

    Only :class:`discreet.mechanisms.local.randomized_response_strategy.Reported` is one.
    """

    @property
    def reports(self) -> StepReports: ...
    @property
    def by(self) -> Literal["device", "server"]: ...
    def plain(self) -> ReportStrategy: ...
    def check(self, query: CountQuery) -> None: ...
    def record(self, schedule: Schedule) -> Record: ...
    def law(
        self, query: CountQuery, name: str, plans: str, terms: int, terms_bound: int, share: float
    ) -> NoiseLaw: ...


@runtime_checkable
class Encoder(Protocol):
    """Runs on the person's device: a pure function of its arguments, tagged with the plan's number."""

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """One trajectory, under the plan that was followed, with the device's own coins, to one message."""
        ...
