r"""Compiled estimation of a model from released counts, with the projection onto consistent counts.

Sources: Qiao and Wang 2023 (the linear programme), Chowdhury and Zhou 2021 (raw counts).

**Projection of noisy counts onto consistent counts.** For a pair (s, a), let v = N3-hat(s, a, .) be the noisy
transition counts and w = N-hat(s, a) the noisy visits. Qiao and Wang 2023 (also Bai et al. 2024) post-process
them by a linear programme,

    minimise max_s |x_s - v_s|   over x >= 0,  |sum_s x_s - w| <= c,      c = E / 4,

and then set N3~ = x + E / (2 S), N~ = sum x + E / 2. Let E1 and E3 be the bounds on the noise of visits and
of transitions. If E >= 4 max(E1, E3), the true counts are feasible. Therefore N <= N~ <= N + E, |N3~ - N3| <=
E, N3~ > 0 and N~ = sum N3~.

**Closed form.** Let B = max(0, w + c) and A = max(0, w - c). Let u be v in decreasing order, with prefix sums
c_j. Then

    t* = max{0, -min v, (A - sum v) / S, max_j (c_j - B) / j}

is the optimal value. Let lo = sum (v_s - t*)_+, hi = sum (v_s + t*) and y = clip(max(w, 0), lo, hi). The
Euclidean projection x = (v - theta)_+ of v onto {x >= 0, sum x = y} attains the optimal value.

*Proof.* For a number t, consider all x with (v_s - t)_+ <= x_s <= v_s + t. Such x exist iff t >= -min v, and
their sums form the interval [lo(t), hi(t)]. Therefore t is feasible iff also lo(t) <= w + c and hi(t) >= w -
c. The condition on hi is t >= (w - c - sum v) / S. For the condition on lo, note that sum (v_s - t)_+ is the
maximum of sum_J (v_s - t) over subsets J, and that a prefix of u attains this maximum. Therefore lo(t) <= B
iff c_j - j t <= B for all j. All conditions, with t >= 0, are lower bounds on t, so t* is their maximum. The
interval [lo, hi] intersects [w - c, w + c], whose centre is w. Therefore the point of [lo, hi] that is
nearest to w is within c of w. The function mu -> sum (v_s + mu)_+ is increasing, and equals lo at mu = -t*
and hi at mu = t*. Because y is in [lo, hi], |theta| <= t*, and therefore |x_s - v_s| <= t*. QED

**Choice of the optimum.** Among the optimal solutions with the smallest |sum x - w|, the code uses the x with
the smallest Euclidean distance to v. If w + c < 0, no x is feasible, and x = 0 is used.

**Computation.** theta is the root of sum (v_s - theta)_+ = y, found exactly by Newton's method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

Floats = NDArray[np.float64]

# Kinds of reward sums in a release: R is the sum of rewards, N is the number of visits.
REWARD_SUMS = 0
REWARD_CENTERED = 1  # R - N / 2
REWARD_ABSENT = 2  # none, because rewards are public

# Codes of the post-processing rules (:mod:`discreet.learners.estimation.tabular_model`).
POST_NONE = 0
POST_RAW = 1
POST_LP = 2


@kernel
def assemble(
    cells: Floats,
    has_visits: bool,
    rewards: int,
    visits: Floats,
    transitions: Floats,
    reward_sums: Floats,
) -> None:
    """Convert the flat array ``cells`` of a release into three tables.

    ``cells`` contains visits (if they were released), transitions and rewards, in this order. The tables
    visits (T, R), transitions (T, R, S) and reward_sums (T, R) are overwritten. If visits were not released,
    they are sums of transitions over successors. Centred reward sums Rc are converted to R = Rc + N / 2.
    """
    slots, rows, states = transitions.shape
    at = 0
    if has_visits:
        for t in range(slots):
            for r in range(rows):
                visits[t, r] = cells[at]
                at += 1
    for t in range(slots):
        for r in range(rows):
            total = 0.0
            for s in range(states):
                value = cells[at]
                transitions[t, r, s] = value
                total += value
                at += 1
            if not has_visits:
                visits[t, r] = total
    for t in range(slots):
        for r in range(rows):
            if rewards == REWARD_ABSENT:
                reward_sums[t, r] = 0.0
            else:
                value = cells[at]
                at += 1
                reward_sums[t, r] = value + 0.5 * visits[t, r] if rewards == REWARD_CENTERED else value


# The functions below index v[r, s] and do not slice v[r], because making a slice takes half the time of a
# projection.


@inlined
def level(v: Floats, r: int, y: float, start: float) -> float:
    """Return the theta that solves sum_s max(0, v[r, s] - theta) = y, for y >= 0.

    ``start`` must be below the solution.
    """
    states = v.shape[1]
    theta = start
    before = states + 1
    while True:
        total = 0.0
        count = 0
        for s in range(states):
            above = v[r, s] > theta
            total += v[r, s] if above else 0.0
            count += 1 if above else 0
        if count == 0 or count >= before:
            return theta
        theta = (total - y) / count
        before = count


@inlined
def project_row(v: Floats, r: int, w: float, c: float, x: Floats) -> float:
    """Write to x[r] the minimiser of max|x - v[r]| over x >= 0, |sum x - w| <= c, and return the minimum t*.

    If there are several minimisers, the module docstring describes the choice. If w + c < 0, x[r] is set to
    0.
    """
    states = v.shape[1]
    low = v[r, 0]
    high = low
    total = 0.0
    for s in range(states):
        value = v[r, s]
        low = value if value < low else low
        high = value if value > high else high
        total += value
    mean = total / states
    most = max(0.0, w + c)
    t = max(max(0.0, -low), max(0.0, w - c) / states - mean)
    least = 0.0
    for s in range(states):
        excess = v[r, s] - t
        least += excess if excess > 0.0 else 0.0
    if least > most:
        # The constraint sum x <= w + c binds: lo(t*) = w + c, which is the possible sum that is nearest to w.
        t = level(v, r, most, max(high - most, mean - most / states))
        theta = t
    else:
        y = max(0.0, w)
        if y >= total + states * t:
            theta = -t
        elif y <= least:
            theta = t
        else:
            theta = level(v, r, y, max(high - y, mean - y / states))
    for s in range(states):
        excess = v[r, s] - theta
        x[r, s] = excess if excess > 0.0 else 0.0
    return t


@inlined
def lp_width(e1: float, e3: float) -> float:
    """Return E = 4 max(E1, E3), the constant of the projection.

    e1 and e3 are bounds on the noise of visits and of transition counts.
    """
    return 4.0 * max(e1, e3)


@inlined
def reward_slack(post: int, e1: float, e2: float, e3: float) -> float:
    """Return Lambda_r, the bound on the part of abs(r~ - r) that noise causes, multiplied by D.

    post : code of the post-processing rule.

    e1, e2, e3 : bounds on the noise of visits, rewards and transitions.
    """
    if post == POST_RAW:
        return 2.0 * e1 + e2
    if post == POST_LP:
        return lp_width(e1, e3) + e2
    return 0.0


@inlined
def transition_slack(post: int, states: int, e1: float, e3: float) -> float:
    """Return Lambda_p, the bound on the part of ||P~ - P||_1 that noise causes, multiplied by D.

    post : code of the post-processing rule.

    e1, e3 : bounds on the noise of visits and transitions.
    """
    if post == POST_RAW:
        return states * e3 + 2.0 * e1
    if post == POST_LP:
        return 0.5 * (states + 3) * lp_width(e1, e3)
    return 0.0


@inlined
def estimate(
    post: int,
    clip_negative: bool,
    cost_form: bool,
    e1: float,
    e3: float,
    visits: Floats,
    transitions: Floats,
    reward_sums: Floats,
    masses: Floats,
    counts: Floats,
    inverses: Floats,
    rewards: Floats,
    left: Floats,
) -> None:
    """Estimate the model of n rows (s, a) from released sums.

    The released sums are visits (n,), transitions (n, S) and reward_sums (n,). The results are written to
    masses (n, S) and to four arrays (n,). The transition probabilities are P~(s') = masses[r, s'] *
    inverses[r], where ``inverses`` is 1 / D. With POST_NONE, masses is not written, and P~(s') =
    transitions[r, s'] * inverses[r]. ``rewards`` is r~ in [0, 1]. ``counts`` is D before it is floored at 1;
    a pair with a count below 1 was certainly not visited. ``left`` is 1 - sum P~ with POST_RAW, and 0
    otherwise. With ``cost_form`` and POST_RAW, r~ = 1 - (N - R) / D.
    """
    rows, states = transitions.shape
    if post == POST_NONE:
        for r in range(rows):
            counts[r] = visits[r]
            inverses[r] = 1.0 / max(1.0, visits[r])
            left[r] = 0.0
    elif post == POST_RAW:
        for r in range(rows):
            counts[r] = visits[r] + e1
            inverses[r] = 1.0 / max(1.0, counts[r])
            total = 0.0
            for s in range(states):
                value = transitions[r, s]
                value = value if value > 0.0 or not clip_negative else 0.0
                masses[r, s] = value
                total += value
            left[r] = 1.0 - total * inverses[r]
    else:
        width = lp_width(e1, e3)
        share = width / (2.0 * states)
        for r in range(rows):
            project_row(transitions, r, visits[r], 0.25 * width, masses)
            total = 0.0
            for s in range(states):
                masses[r, s] += share
                total += masses[r, s]
            counts[r] = total
            inverses[r] = 1.0 / total
            left[r] = 0.0
    if cost_form and post == POST_RAW:
        for r in range(rows):
            rewards[r] = min(1.0, max(0.0, 1.0 - (visits[r] - reward_sums[r]) * inverses[r]))
    else:
        for r in range(rows):
            rewards[r] = min(1.0, max(0.0, reward_sums[r] * inverses[r]))


# ------------------------------------------------------------------- functions for Python


@kernel
def project_table(v: Floats, w: Floats, c: Floats, x: Floats, t: Floats) -> None:
    """Apply :func:`project_row` to n rows. v and x are (n, S); w, c and t are (n,)."""
    for i in range(v.shape[0]):
        t[i] = project_row(v, i, w[i], c[i], x)


@kernel
def estimate_table(
    post: int,
    clip_negative: bool,
    cost_form: bool,
    e1: float,
    e3: float,
    visits: Floats,
    transitions: Floats,
    reward_sums: Floats,
    masses: Floats,
    columns: Floats,
) -> None:
    """Call :func:`estimate` from Python.

    ``masses`` (n, S) is written with every rule. The rows of ``columns`` (4, n) are overwritten with counts,
    inverses, rewards and left.
    """
    if post == POST_NONE:
        masses[:] = transitions
    estimate(
        post, clip_negative, cost_form, e1, e3, visits, transitions, reward_sums, masses,
        columns[0], columns[1], columns[2], columns[3],
    )  # fmt: skip


@kernel
def slacks(post: int, states: int, e1: float, e2: float, e3: float) -> tuple[float, float]:
    """Return (Lambda_r, Lambda_p), the results of :func:`reward_slack` and :func:`transition_slack`."""
    return reward_slack(post, e1, e2, e3), transition_slack(post, states, e1, e3)
