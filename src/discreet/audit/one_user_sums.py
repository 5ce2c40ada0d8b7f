"""Uncompiled implementation of one user's contribution to every family of sums.

Audits and tests compare the compiled sums of sessions (:mod:`discreet.core.count_kernels`), and the stated
sensitivities, with this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from discreet.core.count_query import CountQuery
from discreet.core.families import (
    CUT_REWARDS,
    GROUP_RETURNS,
    POOLED_REWARDS,
    POOLED_TRANSITIONS,
    TRANSITIONS,
    VISITS,
)
from discreet.core.releases import Floats
from discreet.core.trajectories import Trajectory


def summand(query: CountQuery, trajectory: Trajectory, group: int, cut: float | None) -> Mapping[str, Floats]:
    """Return the contribution of one user to each family; see :meth:`CountQuery.contribution`.

    The user's record must have been checked.
    """
    sums = {name: np.zeros(shape) for name, shape in query.families.items()}
    left = query.cut if cut is None else cut if math.isfinite(cut) else 0.0
    if query.groups:
        sums[GROUP_RETURNS][group] = min(float(trajectory.rewards.sum()), query.clip)
    for h in range(query.layout.horizon)[query.counted]:
        t = h if query.slots > 1 else 0
        s, a, after = trajectory.states[h], trajectory.actions[h], trajectory.states[h + 1]
        if query.first and s in trajectory.states[:h]:
            continue
        for name, table in sums.items():
            if name == GROUP_RETURNS:
                continue
            if name == CUT_REWARDS:
                counted = min(float(trajectory.rewards[h]), left)
                table[0, s, a] += counted
                left -= counted
            elif name in (POOLED_TRANSITIONS, POOLED_REWARDS):
                if query.pooled == "first" and s in trajectory.states[:h]:
                    continue
                if name == POOLED_TRANSITIONS:
                    table[0, s, a, after] += 1.0
                else:
                    table[0, s, a] += trajectory.rewards[h] - query.reward_shift
            elif name == VISITS:
                table[t, s, a] += 1.0
            elif name == TRANSITIONS:
                table[t, s, a, after] += 1.0
            else:
                table[t, s, a] += trajectory.rewards[h] - query.reward_shift
    return sums
