"""Share of episodes that end censored, and the probability of a censored end after a decision.

An episode with unknown outcome ends in the censored state (``ReturnBounds.censored``). Its return is set to
the middle of the range of returns. :mod:`discreet.learners.ope.transition_gains` evaluates the gain of a
policy twice: with the unknown outcomes that are worst for the policy, and with those that are best.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from discreet.core.releases import Floats
from discreet.learners.ope.first_visit_query import VisitSums


class CensoredShare(NamedTuple):
    """Upper bound on the share of episodes that end censored, and the standard deviation of the bound.

    The standard deviation is due to privacy noise.
    """

    share: float
    deviation: float


def censored_share(sums: VisitSums) -> CensoredShare | None:
    """Return an upper bound on the share of episodes that end censored; None if no episode can end censored.

    A release counts the episodes that end in another terminal state before the last step. A release does not
    distinguish censored episodes from episodes that reach the last step. The returned share includes both.
    """
    end = sums.question.returns.censored
    if end is None:
        return None
    others = [state for state in sums.question.returns.terminal if state != end]
    known = float(sums.per_state(sums.visits)[others].sum() / sums.episodes)
    deviation = math.sqrt(len(others) + sums.question.groups * known**2) * sums.noise.visits / sums.episodes
    return CensoredShare(float(np.clip(1.0 - known, 0.0, 1.0)), min(deviation, 1.0))


def ends_censored(sums: VisitSums, moves: Floats, usual: Floats) -> Floats:
    """Return the (R,) probabilities that an episode ends censored after a visit to a row.

    The probabilities assume that users follow the behaviour policy after the visit. They also assume the
    largest possible number of remaining steps, which is the whole horizon. All entries are 0 if no episode
    can end censored.

    - moves : (R, S + 1) next-state distributions of rows.
    - usual : (S + 1, S + 1) next-state distributions of states, 0 for terminal states.
    """
    end = sums.question.returns.censored
    if end is None:
        return np.zeros(sums.layout.rows)
    arrives = np.eye(sums.layout.states)[end]
    later = np.zeros(sums.layout.states)
    for _ in range(sums.layout.horizon - 1):
        later = usual @ (arrives + later)
    return np.asarray(np.clip(moves @ (arrives + later), 0.0, 1.0))
