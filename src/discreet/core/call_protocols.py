"""Protocol types of encoders and of randomized-response strategies, for type checkers only.

They are not in :mod:`discreet.core.protocols`, because their signatures use plans and queries, and the
modules of plans and queries import :mod:`discreet.core.protocols`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from discreet.core.count_query import CountQuery
    from discreet.core.protocols import Coins, NoiseDistribution, Record
    from discreet.core.releases import Message, Plan, Schedule
    from discreet.core.trajectories import Trajectory

__all__ = ["Encoder", "ReportStrategy"]


class ReportStrategy(Protocol):
    """Interface of a strategy that releases randomized responses about a few steps of each user.

    The only implementation is :class:`discreet.mechanisms.local.randomized_response_strategy.Reported`.
    """

    @property
    def reports(self) -> object: ...
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
    """Interface of a function that runs on the user's device and encodes a trajectory.

    Its result depends only on its arguments. Its message contains the number of the plan.
    """

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Encode a trajectory recorded under ``plan`` as one message.

        ``coins`` is the device's random generator.
        """
        ...
