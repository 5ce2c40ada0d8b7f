"""Regret curve of one seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief

__all__ = ["SeedRun"]


@dataclass(frozen=True, eq=False)
class SeedRun:
    """Cumulative regret of one repetition, recorded at several numbers of users.

    Parameters
    ----------
    run : index of the repetition.
    episodes : (M,) int64, log-spaced numbers of users; the last number is K.
    regret : (M,) float64, cumulative pseudo-regret after each number of users.
    gap_regret : (M,) float64, cumulative sum of the gaps V*_h(s) - Q*_h(s, a) along the simulated
        trajectories.
    seconds : duration of this repetition in seconds.
    """

    __repr__ = brief

    run: int
    episodes: Ints
    regret: Floats
    gap_regret: Floats
    seconds: float

    def agrees(self, other: SeedRun) -> bool:
        """Return True if the curves of the other repetition are equal to those of this repetition, bit for
        bit.
        """
        mine, theirs = ((one.episodes, one.regret, one.gap_regret) for one in (self, other))
        return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
