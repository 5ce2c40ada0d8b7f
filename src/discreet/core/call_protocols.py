"""Protocol type of encoders.

The type has a separate module because its signature uses plans. The module of plans imports
:mod:`discreet.core.protocols`, so :mod:`discreet.core.protocols` cannot import plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from discreet.core.protocols import Coins
    from discreet.core.releases import Message, Plan
    from discreet.core.trajectories import Trajectory


@runtime_checkable
class Encoder(Protocol):
    """Interface of a function that runs on the user's device and encodes a trajectory.

    The message depends only on the arguments. Each message contains the number of the plan.
    """

    def __call__(self, trajectory: Trajectory, plan: Plan, coins: Coins) -> Message:
        """Encode a trajectory recorded under ``plan`` as one message.

        ``coins`` is the device's random generator.
        """
        ...
