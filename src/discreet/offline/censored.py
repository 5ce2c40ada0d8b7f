"""Shares of episodes that end censored: of all episodes, and of those after a decision.

People whose outcome is not known end in the censored state (``Returns.censored``), and count as the middle of
the range of returns. What a policy gains over what people did is evaluated in
:mod:`discreet.offline.transitions` with the worst and the best outcomes for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.offline.first_visits import Told

Floats = NDArray[np.float64]

__all__ = ["CensoredShare", "censored_share", "ends_censored"]


class CensoredShare(NamedTuple):
    """Share of the episodes that end censored, as a release has it, and its deviation due to noise."""

    share: float
    deviation: float


def censored_share(told: Told) -> CensoredShare | None:
    """Return the share of censored episodes in a release; None where no end is censored."""
    end = told.question.returns.censored
    if end is None:
        return None
    share = float(np.clip(told.per_state(told.visits)[end] / told.episodes, 0.0, 1.0))
    deviation = told.noise.visits * math.hypot(1.0, share) / told.episodes
    return CensoredShare(share, min(deviation, 1.0))


def ends_censored(told: Told, moves: Floats, usual: Floats) -> Floats:
    """Return (R,) probabilities that an episode ends censored after a visit to a row.

    People go on as they did, with all steps of the horizon ahead. No visit has more steps ahead. If no end is
    censored, the result is 0.

    moves : (R, S + 1) laws of next states by row. usual : (S + 1, S + 1) by state, 0 in terminal states.
    """
    end = told.question.returns.censored
    if end is None:
        return np.zeros(told.layout.rows)
    arrives = np.eye(told.layout.states)[end]
    later = np.zeros(told.layout.states)
    for _ in range(told.layout.horizon - 1):
        later = usual @ (arrives + later)
    return np.asarray(np.clip(moves @ (arrives + later), 0.0, 1.0))
