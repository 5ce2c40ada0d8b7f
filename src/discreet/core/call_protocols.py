"""Protocol types of encoders and of randomized-response strategies, for type checkers only.

They are separate from :mod:`discreet.core.protocols` because they name plans and queries, which themselves
depend on that module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from discreet.core.count_query import CountQuery
    from discreet.core.protocols import Coins, NoiseDistribution, Record
    from discreet.core.releases import Message, Plan, Schedule
    from discreet.core.trajectories import Trajectory
    from discreet.mechanisms.local.randomized_response import StepReports

__all__ = ["Encoder", "ReportStrategy"]


class ReportStrategy(Protocol):
    """Strategy that releases randomized responses about a few steps of each user.

    The only one is :class:`discreet.mechanisms.local.randomized_response_strategy.Reported`.
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
    ) -> NoiseDistribution: ...


@runtime_checkable
class Encoder(Protocol):
    """Function that runs on the user's device: pure in its arguments; its message has the plan's number."""

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Encode one trajectory, recorded under ``plan``, as one message; ``coins`` are the device's own."""
        ...
