"""Outcome and gain of public groups of users, from a release of first visits.

A group is an action in the start state (:mod:`discreet.learners.ope.first_visit_query`). Therefore a release
contains the number of users in each group, their first states, and the sum of their returns. This module
computes three results for each group g:

* the mean outcome q = 1/2 + G / N under the behaviour policy, with the interval of
  :mod:`discreet.learners.ope.mean_outcomes`;
* the same outcome, computed from the first states as sum_t P_g(t) y(t), with y of
  :mod:`discreet.learners.ope.consistency_test`. The difference of the two outcomes is the level of the group,
  which is tested in that module;
* the gain sum_t P_g(t) (V_pi(t) - V_b(t)) of a policy, where V is the value for all users. It is estimated
  from the half of the release that was not used to choose the policy
  (:mod:`discreet.learners.ope.transition_gains`). The gain of a group is wrong if an action has another
  effect in this group than in other groups. A consistent level of the group does not exclude this error.

The gain of a group is reported only if the gain of all users is estimated from transitions. A policy that was
chosen from returns depends on both halves of the transitions, so neither half can evaluate it without bias.

The intervals of outcomes hold for all groups together (Bonferroni). The intervals of gains also hold for all
groups together, for one policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from discreet.learners.ope.consistency_test import LEAST_USERS, STANDS_OUT, Consistency
from discreet.learners.ope.deviation_gains import Path
from discreet.learners.ope.mean_outcomes import mean_outcome
from discreet.learners.ope.transition_gains import TransitionPath, group_gains


class GroupResult(NamedTuple):
    """Results for one group. Outcomes and gains are in the user's units; NaN means that one is not reported.

    Attributes
    ----------
    group : int
        Index of the group.
    users, deviation : float
        Noisy number of episodes of the group, and the standard deviation of its noise.
    share : float
        Share of the group in all episodes.
    mean, low, high : float
        Mean outcome under the behaviour policy, with its interval.
    expected : float
        Mean outcome, computed from the first states of these users.
    apart : float
        Difference of ``mean`` and ``expected`` in standard errors (the level of the group).
    gain, gain_low, gain_high : float
        Gain of the policy for this group, with its interval.
    gain_noise : float
        Standard deviation of the gain due to privacy noise.
    """

    group: int
    users: float
    deviation: float
    share: float
    mean: float
    low: float
    high: float
    expected: float
    apart: float
    gain: float
    gain_low: float
    gain_high: float
    gain_noise: float


def groups_of(path: Path, count: int, found: Consistency) -> tuple[GroupResult, ...]:
    """Return the results of all groups for the policy that changes the first ``count`` states.

    The result is empty if there is only one group.

    path : path of nested policies from the release. The intervals of all groups hold together at the
    confidence level of the path.
    found : result of the consistency test of the release.
    """
    sums, many = path.sums, path.sums.question.groups
    if many == 1:
        return ()
    least, most = sums.question.bounds
    scale, width = most - least, -float(ndtri(0.5 * (1.0 - path.level) / many))
    begins = sums.begins
    known = sums.visits[begins] > max(STANDS_OUT * sums.noise.visits, LEAST_USERS)
    outcome, gain = np.full((many, 3), np.nan), np.full((many, 4), np.nan)
    estimated: list[int] = np.flatnonzero(known).tolist()
    for group in estimated:
        q, sd = mean_outcome(sums, int(begins[group]))
        outcome[group] = least + scale * np.clip([q, q - width * sd, q + width * sd], 0.0, 1.0)
    if count == 0:
        gain[:] = 0.0
    elif isinstance(path, TransitionPath) and sums.question.returns.censored is None:
        for group, one in zip(estimated, group_gains(path, count, begins[known]), strict=True):
            off = width * one.deviation
            ends = np.clip([one.estimate, one.estimate - off, one.estimate + off], -1.0, 1.0)
            gain[group] = scale * np.append(ends, one.noise)
    expected, apart = np.full((2, many), np.nan)
    levels = found.levels
    own = np.flatnonzero(found.of_groups)
    of = levels.where[own] - sums.layout.states
    expected[of] = outcome[of, 0] - scale * levels.value[own]
    apart[of] = levels.value[own] / levels.deviation[own]
    expected = np.clip(expected, least, most)
    return tuple(
        GroupResult(
            group=g,
            users=float(sums.visits[row]),
            deviation=sums.noise.visits,
            share=float(sums.visits[row] / sums.episodes),
            mean=float(outcome[g, 0]),
            low=float(outcome[g, 1]),
            high=float(outcome[g, 2]),
            expected=float(expected[g]),
            apart=float(apart[g]),
            gain=float(gain[g, 0]),
            gain_low=float(gain[g, 1]),
            gain_high=float(gain[g, 2]),
            gain_noise=float(gain[g, 3]),
        )
        for g, row in enumerate(begins.tolist())
    )
