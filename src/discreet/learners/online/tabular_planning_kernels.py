"""Compiled planning that all tabular learners share. A flag selects the kind of bonus.

After a release, :mod:`discreet.learners.estimation.model_kernels` estimates a model. Optimistic backward
induction (value iteration) or optimistic policy evaluation (policy optimization) follows.

R is the number of admissible state-action pairs, and a row of a table belongs to one pair. T is 1 if the
counts of all steps are pooled, otherwise H. Every bonus has the form

    bonus_h(row) = outer(row) + range_h * inner(row) + a1 sqrt(Var / D) + a4 sqrt(correction / D)

Only Bernstein bonuses have the last two terms. The formulas are in :mod:`discreet.learners.online.bonuses`,
and the constants are passed in ``LearnerKernel.knobs``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel
from discreet.learners.estimation.model_kernels import (
    POST_NONE,
    POST_RAW,
    estimate,
    lp_width,
    reward_slack,
    transition_slack,
)
from discreet.utils.random_streams_kernels import below, log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class LearnerKernel(NamedTuple):
    """Constants of a learner for compiled code; ``learner.kernel(spec)`` builds them."""

    code: int  # VALUE_ITERATION or POLICY_OPTIMIZATION
    flags: Ints
    knobs: Floats


VALUE_ITERATION = 0
POLICY_OPTIMIZATION = 1

# Indices of ``LearnerKernel.flags``; FLAGS is their number.
(POST, WIDTH, RANGE, CAP, COST_FORM, MASS_OPTIMISTIC, MONOTONE, RANDOM_TIES, CLIP_NEGATIVE, GROWING_LOG,
 FLAGS) = range(11)  # fmt: skip

# Kinds of bonus, values of flags[WIDTH].
WIDTH_HOEFFDING = 0
WIDTH_BERNSTEIN = 1
WIDTH_PUCB = 2
WIDTH_OBI = 3

# Values of flags[RANGE]: the factor range_h of the inner width. Steps h start at 0.
RANGE_HORIZON = 0  # H
RANGE_FUTURE = 1  # H - h - 1, the range of V[h + 1]
RANGE_LEFT = 2  # H - h, the range of Q[h]

# Values of flags[CAP]: the upper limit of Q[h].
CAP_LEFT = 0  # H - h
CAP_HORIZON = 1  # H
CAP_NONE = 2  # no limit

# Indices of the constants in ``LearnerKernel.knobs``; the last name is their number. The constants already
# include the factors of all scale options.
(OUTER, INNER, PRIVACY, VARIANCE, CORRECTION, LOWER_NOISE, LOWER_FLOOR, FIRST, SECOND_NOISE, SECOND, ETA,
 ALPHA, LOG_START, KNOBS) = range(14)  # fmt: skip

# Indices of the noise bounds: for visits, reward sums, transition counts, and sums of the transition counts
# of one pair.
E_VISITS, E_REWARDS, E_TRANSITIONS, E_ROW = range(4)
ERRORS = 5  # length of the array of noise bounds; its last entry is not used

_SHORT = 16  # With fewer states than this, a simple loop is the fastest way to sum.
_LEAST_LOG_RATIO = -700.0  # exp(-700) is a normal float64, so every action keeps a positive probability


def work_size(slots: int, rows: int, states: int) -> int:
    """Return the number of floats of scratch space that ``plan_step`` needs for T slots, R rows, S states."""
    return slots * rows * (states + 6) + rows + states


@inlined
def _mean(masses: Floats, r: int, values: Floats, h: int) -> float:
    """Return sum_s masses[r, s] values[h, s]."""
    total = 0.0
    for s in range(masses.shape[1]):
        total += masses[r, s] * values[h, s]
    return total


@inlined
def _long_mean(masses: Floats, r: int, values: Floats, h: int) -> float:
    """Return sum_s masses[r, s] values[h, s], computed as four partial sums in a fixed order."""
    states = masses.shape[1]
    a = b = c = d = 0.0
    whole = states - states % 4
    for s in range(0, whole, 4):
        a += masses[r, s] * values[h, s]
        b += masses[r, s + 1] * values[h, s + 1]
        c += masses[r, s + 2] * values[h, s + 2]
        d += masses[r, s + 3] * values[h, s + 3]
    for s in range(whole, states):
        a += masses[r, s] * values[h, s]
    return (a + b) + (c + d)


@inlined
def _spread(masses: Floats, r: int, values: Floats, h: int, mean: float) -> float:
    """Return sum_s masses[r, s] (values[h, s] - mean)^2, at least 0."""
    total = 0.0
    for s in range(masses.shape[1]):
        x = values[h, s] - mean
        total += masses[r, s] * (x * x)
    return max(0.0, total)


@inlined
def _long_spread(masses: Floats, r: int, values: Floats, h: int, mean: float) -> float:
    """Return sum_s masses[r, s] (values[h, s] - mean)^2, at least 0, computed as four partial sums."""
    states = masses.shape[1]
    a = b = c = d = 0.0
    whole = states - states % 4
    for s in range(0, whole, 4):
        x = values[h, s] - mean
        y = values[h, s + 1] - mean
        z = values[h, s + 2] - mean
        w = values[h, s + 3] - mean
        a += masses[r, s] * (x * x)
        b += masses[r, s + 1] * (y * y)
        c += masses[r, s + 2] * (z * z)
        d += masses[r, s + 3] * (w * w)
    for s in range(whole, states):
        x = values[h, s] - mean
        a += masses[r, s] * (x * x)
    return max(0.0, (a + b) + (c + d))


@inlined
def _widths(
    lk: LearnerKernel,
    post: int,
    users: int,
    transitions: Floats,
    errors: Floats,
    known: bool,
    masses: Floats,
    counts: Floats,
    inverses: Floats,
    left: Floats,
    outer: Floats,
    inner: Floats,
) -> None:
    """Write the outer and inner bonus width of each row into ``outer`` and ``inner``, (T R,).

    An infinite outer width means that Q is the cap.
    """
    rows, states = transitions.shape
    kind = lk.flags[WIDTH]
    e1, e2, e3, e_row = errors[E_VISITS], errors[E_REWARDS], errors[E_TRANSITIONS], errors[E_ROW]
    scale_outer, scale_inner, privacy = lk.knobs[OUTER], lk.knobs[INNER], lk.knobs[PRIVACY]
    noise_outer = privacy * reward_slack(post, e1, e2, e3)
    noise_inner = privacy * transition_slack(post, states, e1, e3)
    if kind == WIDTH_BERNSTEIN:
        noise_outer = 0.0
        noise_inner = max(lk.knobs[LOWER_NOISE] * max(lp_width(e1, e3), e2), lk.knobs[LOWER_FLOOR])
    elif kind == WIDTH_OBI:
        if lk.flags[GROWING_LOG] == 1:
            scale = np.sqrt(lk.knobs[LOG_START] + 3.0 * log(users + 1.0))
            scale_outer *= scale
            scale_inner *= scale
        alpha = lk.knobs[ALPHA]
        noise_outer = privacy * ((alpha + 1.0) * e1 + e2)
        noise_inner = privacy * (states * e3 + (alpha + 1.0) * e_row)
    if known:
        scale_outer = noise_outer = 0.0

    if kind == WIDTH_PUCB:
        e = max(max(e1, e2), e3)
        for r in range(rows):
            ratio = e * inverses[r]
            slack = privacy * (3.0 * ratio + 2.0 * ratio * ratio)
            root = 1.0 / np.sqrt(max(1.0, counts[r] - e))
            outer[r] = 0.0 if known else scale_outer * root + slack
            inner[r] = scale_inner * root + states * slack
            if counts[r] < 2.0 * e:
                outer[r] = np.inf
    elif kind == WIDTH_OBI and post == POST_RAW:
        for r in range(rows):
            outer[r] = scale_outer * np.sqrt(inverses[r]) + noise_outer * inverses[r]
            total = 0.0
            positive = 0.0
            for s in range(states):
                total += transitions[r, s]
                positive += masses[r, s]
            inverses[r] = 1.0 / max(1.0, total + lk.knobs[ALPHA] * e_row)
            left[r] = 1.0 - positive * inverses[r]
            inner[r] = scale_inner * np.sqrt(inverses[r]) + noise_inner * inverses[r]
    else:
        for r in range(rows):
            root = np.sqrt(inverses[r])
            outer[r] = scale_outer * root + noise_outer * inverses[r]
            inner[r] = scale_inner * root + noise_inner * inverses[r]
    if post == POST_NONE or (post == POST_RAW and kind != WIDTH_PUCB):
        # Exact counts below 1 are 0. For raw counts, N <= N-hat + E1 < 1. So no user has visited the pair.
        for r in range(rows):
            if counts[r] < 1.0:
                outer[r] = np.inf


@inlined
def _softmax(logits: Floats, state_ptr: Ints, horizon: int, probabilities: Floats) -> None:
    """Write action probabilities (H, R), the softmax of flat logits (H * R,) over actions."""
    rows = probabilities.shape[1]
    for h in range(horizon):
        for s in range(state_ptr.shape[0] - 1):
            first, end = state_ptr[s], state_ptr[s + 1]
            top = logits[h * rows + first]
            for r in range(first + 1, end):
                top = max(top, logits[h * rows + r])
            total = 0.0
            for r in range(first, end):
                ratio = math.exp(max(_LEAST_LOG_RATIO, logits[h * rows + r] - top))
                probabilities[h, r] = ratio
                total += ratio
            scale = 1.0 / total
            for r in range(first, end):
                probabilities[h, r] *= scale


@inlined
def _corrections(
    lk: LearnerKernel,
    state_ptr: Ints,
    counts: Floats,
    later: int,
    second: float,
    range_left: float,
    horizon: int,
    corrections: Floats,
) -> None:
    """Write the correction min(first / N + second / N^2, range^2) of each successor state s'.

    N is the number of visits to s' at the next step. If N is 0, the correction is range^2.
    """
    reach = float(horizon) if lk.flags[RANGE] == RANGE_HORIZON else range_left
    most = reach * reach
    first = lk.knobs[FIRST]
    for s in range(corrections.shape[0]):
        n = 0.0
        for r in range(later + state_ptr[s], later + state_ptr[s + 1]):
            n += max(0.0, counts[r])
        corrections[s] = min(most, first / n + second / (n * n)) if n > 0.0 else most


@kernel
def plan_step(
    lk: LearnerKernel,
    state_ptr: Ints,
    horizon: int,
    users: int,
    number: int,
    visits: Floats,
    transitions: Floats,
    reward_sums: Floats,
    known_rewards: Floats,
    errors: Floats,
    memory: Floats,
    values: Floats,
    q: Floats,
    probabilities: Floats,
    work: Floats,
) -> None:
    """Process one release: estimate a model, compute optimistic Q and V, and update the learner's memory.

    Parameters
    ----------
    lk : constants of the learner.
    state_ptr : (S + 1,) indices; rows ``state_ptr[s]`` to ``state_ptr[s + 1] - 1`` belong to state s.
    horizon : number of steps H.
    users : number of users whose data the release contains.
    number : number of the release; these learners do not read it.
    visits (T, R), transitions (T, R, S), reward_sums (T, R) : released sums, where T is 1 (pooled) or H.
    known_rewards : (H, R) public mean rewards; (0, 0) if rewards are estimated from the release.
    errors : (5,) bounds of the noise in visits, in reward sums, in transition counts and in sums of the
        transition counts of one pair; the fifth entry is not used. All are 0 if there is no noise.
    memory : memory of the learner between releases, updated in place. Before the first release it must be
        ``learner.begin_memory(spec)``.
    values (H + 1, S), q (H, R) : overwritten with the optimistic V and Q.
    probabilities : (H, R) overwritten with the next users' policy (policy optimization only).
    work : at least ``work_size(T, R, S)`` floats of scratch space.
    """
    slots, rows, states = transitions.shape
    cells = slots * rows
    moves = transitions.reshape(cells, states)
    counts = work[:cells]
    inverses = work[cells : 2 * cells]
    rewards = work[2 * cells : 3 * cells]
    left = work[3 * cells : 4 * cells]
    outer = work[4 * cells : 5 * cells]
    inner = work[5 * cells : 6 * cells]
    at = 6 * cells
    means = work[at : at + rows]
    corrections = work[at + rows : at + rows + states]
    at += rows + states
    masses = work[at : at + cells * states].reshape(cells, states)

    e1, e2, e3 = errors[E_VISITS], errors[E_REWARDS], errors[E_TRANSITIONS]
    exact = e1 == 0.0 and e2 == 0.0 and e3 == 0.0
    post = POST_NONE if exact else lk.flags[POST]
    kind = lk.flags[WIDTH]
    cost_form = lk.flags[COST_FORM] == 1
    if post == POST_NONE:
        masses = moves
    lift = e1
    if kind == WIDTH_OBI:
        lift = lk.knobs[ALPHA] * e1
    elif kind == WIDTH_PUCB:
        lift = 0.0
    estimate(
        post, lk.flags[CLIP_NEGATIVE] == 1, cost_form, lift, e3, visits.reshape(cells), moves,
        reward_sums.reshape(cells), masses, counts, inverses, rewards, left,
    )  # fmt: skip
    known = known_rewards.shape[0] > 0
    _widths(lk, post, users, moves, errors, known, masses, counts, inverses, left, outer, inner)

    optimizing = lk.code == POLICY_OPTIMIZATION
    table = horizon * rows
    if optimizing:
        # All users since the last release followed the same policy, which has one Q. Each of these users
        # counts as one step of mirror descent.
        step = lk.knobs[ETA] * (users - memory[2 * table])
        for c in range(table):
            memory[c] += step * memory[table + c]
        memory[2 * table] = users
        _softmax(memory, state_ptr, horizon, probabilities)

    monotone = lk.flags[MONOTONE] == 1
    leaving = post == POST_RAW and (cost_form or lk.flags[MASS_OPTIMISTIC] == 1)
    bernstein = kind == WIDTH_BERNSTEIN
    correcting = bernstein and lk.knobs[CORRECTION] > 0.0
    variance, correction = lk.knobs[VARIANCE], lk.knobs[CORRECTION]
    short = states < _SHORT
    width = max(lp_width(e1, e3), e2)
    second = lk.knobs[SECOND] + lk.knobs[SECOND_NOISE] * width * width

    for s in range(states):
        values[horizon, s] = 0.0
    for h in range(horizon - 1, -1, -1):
        base = h * rows if slots > 1 else 0
        range_left = float(horizon - h)
        reach = range_left
        if lk.flags[RANGE] == RANGE_HORIZON:
            reach = float(horizon)
        elif lk.flags[RANGE] == RANGE_FUTURE:
            reach = range_left - 1.0
        if known:
            for r in range(rows):
                q[h, r] = known_rewards[h, r] + (outer[base + r] + reach * inner[base + r])
        else:
            for r in range(rows):
                q[h, r] = rewards[base + r] + (outer[base + r] + reach * inner[base + r])
        if h < horizon - 1:
            if correcting:
                later = (h + 1) * rows if slots > 1 else 0
                _corrections(lk, state_ptr, counts, later, second, range_left, horizon, corrections)
            if short:
                for r in range(rows):
                    means[r] = _mean(masses, base + r, values, h + 1) * inverses[base + r]
            else:
                for r in range(rows):
                    means[r] = _long_mean(masses, base + r, values, h + 1) * inverses[base + r]
            for r in range(rows):
                q[h, r] += means[r]
            if bernstein and short:
                for r in range(rows):
                    root = np.sqrt(_spread(masses, base + r, values, h + 1, means[r]))
                    q[h, r] += variance * (root * inverses[base + r])
            elif bernstein:
                for r in range(rows):
                    root = np.sqrt(_long_spread(masses, base + r, values, h + 1, means[r]))
                    q[h, r] += variance * (root * inverses[base + r])
            if correcting:
                for r in range(rows):
                    unsure = 0.0
                    for s in range(states):
                        unsure += masses[base + r, s] * corrections[s]
                    q[h, r] += correction * (np.sqrt(max(0.0, unsure)) * inverses[base + r])
            if leaving:
                for r in range(rows):
                    missing = left[base + r]
                    q[h, r] += (range_left - 1.0) * (missing if cost_form else max(0.0, missing))
        lower, upper = 0.0, range_left
        if lk.flags[CAP] == CAP_HORIZON:
            if cost_form:
                lower = -float(h)  # clipping costs to [0, H] clips rewards to [-h, H - h]
            else:
                upper = float(horizon)
        if lk.flags[CAP] == CAP_NONE:
            for r in range(rows):
                q[h, r] = range_left if q[h, r] == np.inf else q[h, r]
        else:
            for r in range(rows):
                q[h, r] = min(upper, max(lower, q[h, r]))
        here = h * rows
        if monotone:
            for r in range(rows):
                q[h, r] = min(q[h, r], memory[here + r])
                memory[here + r] = q[h, r]
        if optimizing:
            for r in range(rows):
                memory[table + here + r] = q[h, r]
            for s in range(states):
                average = 0.0
                for r in range(state_ptr[s], state_ptr[s + 1]):
                    average += probabilities[h, r] * q[h, r]
                values[h, s] = average
        else:
            for s in range(states):
                best = q[h, state_ptr[s]]
                for r in range(state_ptr[s] + 1, state_ptr[s + 1]):
                    best = q[h, r] if q[h, r] > best else best
                values[h, s] = best


@kernel
def choose(
    lk: LearnerKernel,
    state_ptr: Ints,
    horizon: int,
    q: Floats,
    tie_state: NDArray[np.uint64],
    policy_rows: Ints,
) -> None:
    """Write the row of the greedy action at each (h, s), computed from q (H, R), into policy_rows (H, S).

    If several actions have exactly the same maximal value, random ties choose one of them by one uniform draw
    from ``tie_state``; otherwise the action with the lowest index is chosen.
    """
    random = lk.flags[RANDOM_TIES] == 1
    for h in range(horizon):
        for s in range(state_ptr.shape[0] - 1):
            first, end = state_ptr[s], state_ptr[s + 1]
            chosen = first
            best = q[h, first]
            ties = 1
            for r in range(first + 1, end):
                value = q[h, r]
                if value > best:
                    best = value
                    chosen = r
                    ties = 1
                elif value == best:
                    ties += 1
            if random and ties > 1:
                left = below(tie_state, ties)
                chosen -= 1
                while left >= 0:
                    chosen += 1
                    if q[h, chosen] == best:
                        left -= 1
            policy_rows[h, s] = chosen


@kernel
def part_size(users: int, exploring: Ints, parts: int, part: int) -> int:
    """Return the number of users in sub-batch ``part`` of a batch of ``users`` users.

    The first ``parts`` sub-batches follow a greedy policy, and the last E sub-batches explore. ``exploring``
    (E,) holds the number of users of each exploring sub-batch. The greedy sub-batches share the remaining
    users as evenly as possible.
    """
    if part >= parts:
        return exploring[part - parts]
    rest = users - exploring.sum()
    return rest * (part + 1) // parts - rest * part // parts


def part_sizes(users: int, exploring: Ints, parts: int) -> list[int]:
    """Return the number of users in every sub-batch, first the greedy ones and then the exploring ones."""
    users = max(users, 0)
    return [part_size(users, exploring, parts, part) for part in range(parts + exploring.shape[0])]
