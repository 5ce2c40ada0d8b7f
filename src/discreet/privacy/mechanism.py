"""What a privatizer fixes before data: where noise enters, of which family, at which scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from discreet.privacy.continual.clocks import Clocks
from discreet.privacy.continual.decaying import FINE, Decaying
from discreet.privacy.continual.walk import Walk
from discreet.privacy.counts import COUNTS
from discreet.privacy.local_reports import StepReports
from discreet.privacy.protocol import Floats, Schedule

__all__ = ["Mechanism", "Stream", "leaves_of", "report_grid"]

Stream = Literal["exact", "walk", "local", "decaying", "reports"]


@dataclass(frozen=True, eq=False)
class Mechanism:
    """What a privatizer has fixed before data: where noise enters, of which family, at which scale.

    stream : "exact" (no noise), "walk" (correlated noise on prefix sums), "local" (noise per user),
        "decaying" (noise per scheduled batch, on a decaying sum of batches), or "reports" (a few steps of
        each user, randomized one by one; ``reports`` are their parameters). Where that is done, on the
        device or by a trusted server, is the session's trust model.
    family : code of the noise (``kernels.NO_NOISE``, ``LAPLACE``, ``GAUSSIAN``).
    scales : (families,) Laplace scale or standard deviation of one draw, in the order of the query.
    reward_grid : None with seeded (continuous) noise; else rewards are multiples of 1 / reward_grid and
        all noise is discrete.
    leaf : of a walk: the users between two scheduled releases, or one user.
    decay : of a decaying stream; 0 is the batch alone.
    clocks : of a decaying stream whose rows are measured by clocks of their own; None: the common clock.
    walk : of a walk: a tree or another program of noise, on as many leaves as the schedule has.
    release_scales : (releases + 1, families) in place of ``scales`` at each release; (0, families): none.
    """

    stream: Stream
    family: int
    scales: Floats
    reward_grid: int | None = None
    leaf: Literal["batch", "user"] = "batch"
    decay: float = 0.0
    clocks: Clocks | None = None
    walk: Walk | None = None
    reports: StepReports | None = None
    release_scales: Floats | None = None

    def __post_init__(self) -> None:
        given = self.release_scales
        for name, value in (("scales", self.scales), ("release_scales", given)):
            own = np.zeros((0, np.size(self.scales))) if value is None else np.array(value, np.float64)
            own.flags.writeable = False
            object.__setattr__(self, name, own)

    def scales_at(self, release: int) -> Floats:
        """(families,) scales of the noise of a scheduled release (1 is the first)."""
        assert self.release_scales is not None
        return self.release_scales[release] if self.release_scales.size else self.scales

    @property
    def fixed_point(self) -> bool:
        """A decaying sum under exact noise: kept and noised in multiples of 2^-20."""
        return self.reward_grid is not None and self.decay > 0.0

    @property
    def noise_factor(self) -> float:
        """One draw's scale in units of ``scales``: in fixed point it is the noise that the gain enters."""
        return 1.0 / Decaying(self.decay).gain if self.fixed_point else 1.0

    def grid(self, name: str) -> int | None:
        """Values of this family are multiples of 1 / grid; None: continuous (seeded noise)."""
        if self.fixed_point:
            return FINE
        return self.reward_grid if self.reward_grid is None or name not in COUNTS else 1


def report_grid(n: int, last: int) -> int:
    """The smallest number of the grid 1, 2, 3, ... (growing by 5 %) that is at least n; at most last."""
    point = 1
    while point < n:
        point = max(point + 1, math.floor(point * 1.05))
    return min(point, last) if n > 0 else 0


def leaves_of(schedule: Schedule, leaf: Literal["batch", "user"]) -> int | None:
    """How many leaves a walk over a schedule has; None where the number of users is unknown."""
    if schedule.users is None:
        return None
    if leaf == "user":
        return schedule.users + schedule.final
    return int(schedule.release_times.size)
