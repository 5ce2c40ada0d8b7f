"""Share of all episodes that end censored, and probability of a censored end after a decision.

Users whose outcome is not known end in the censored state (``Returns.censored``), and their return counts as
the middle of the range of returns. The gain of a policy over the behaviour policy is evaluated in
:mod:`discreet.learners.ope.transition_gains` with the censored outcomes that are worst for the policy, and
with those that are best for it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.learners.ope.first_visit_query import Told

Floats = NDArray[np.float64]

__all__ = ["CensoredShare", "censored_share", "ends_censored"]


class CensoredShare(NamedTuple):
    """Upper bound on the share of censored episodes, and the bound's standard deviation due to noise."""

    share: float
    deviation: float


def censored_share(told: Told) -> CensoredShare | None:
    """Return the share of a release's episodes that may be censored; None if no end is censored.

    A release counts the episodes that end in another terminal state before the last step. It does not
    distinguish censored episodes from those that reach the last step. The returned share includes both.
    """
    end = told.question.returns.censored
    if end is None:
        return None
    others = [state for state in told.question.returns.terminal if state != end]
    known = float(told.per_state(told.visits)[others].sum() / told.episodes)
    deviation = math.sqrt(len(others) + told.question.groups * known**2) * told.noise.visits / told.episodes
    return CensoredShare(float(np.clip(1.0 - known, 0.0, 1.0)), min(deviation, 1.0))


def ends_censored(told: Told, moves: Floats, usual: Floats) -> Floats:
    """Return (R,) probabilities that an episode ends censored after a visit to a row.

    The probabilities assume that users follow the behaviour policy and that all steps of the horizon remain,
    which is the largest possible number. If no end is censored, the result is 0.

    moves : (R, S + 1) distributions of next states by row. usual : (S + 1, S + 1) distributions of next
    states by state, 0 in terminal states.
    """
    end = told.question.returns.censored
    if end is None:
        return np.zeros(told.layout.rows)
    arrives = np.eye(told.layout.states)[end]
    later = np.zeros(told.layout.states)
    for _ in range(told.layout.horizon - 1):
        later = usual @ (arrives + later)
    return np.asarray(np.clip(moves @ (arrives + later), 0.0, 1.0))
