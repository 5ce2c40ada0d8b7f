r"""Compiled estimation: a release's cells to rows, the projection in closed form, one slot of a model.

Sources: Qiao and Wang 2023 (the linear programme), Chowdhury and Zhou 2021 (raw counts). The slacks are in
:mod:`discreet.learners.estimation.tabular_model`.

**Projection of noisy counts onto consistent ones.** Let v = N3-hat(s, a, .) be the noisy transition counts
and w = N-hat(s, a) the noisy visits of each pair. Qiao and Wang 2023 (also Bai et al. 2024) post-process them
by a linear programme,

    minimise max_s |x_s - v_s|   over x >= 0,  |sum_s x_s - w| <= c,      c = E / 4,

and then set N3~ = x + E / (2 S), N~ = sum x + E / 2. When E >= 4 max(E1, E3) bounds the noise, the
true counts are feasible. Therefore N <= N~ <= N + E, |N3~ - N3| <= E, N3~ > 0 and N~ = sum N3~.

**Closed form.** With B = max(0, w + c), A = max(0, w - c), u = v sorted downwards and c_j its prefix sums,

    t* = max{0, -min v, (A - sum v) / S, max_j (c_j - B) / j}

is the optimal value. Let lo = sum (v_s - t*)_+, hi = sum (v_s + t*) and y = clip(max(w, 0), lo, hi). The
Euclidean projection x = (v - theta)_+ of v onto {x >= 0, sum x = y} attains it.

*Proof.* At level t the box [(v_s - t)_+, v_s + t] is non-empty for all s iff t >= -min v, and the sums
reachable in it form [lo(t), hi(t)]. So t is feasible iff also lo(t) <= w + c and hi(t) >= w - c; the second
is t >= (w - c - sum v) / S. For the first, sum (v_s - t)_+ is the largest of sum_J (v_s - t) over subsets J,
attained at a prefix of u. Therefore lo(t) <= B iff c_j - j t <= B for all j. All four are lower bounds on t,
so t* is their maximum. The interval [lo, hi] meets [w - c, w + c], whose centre is w. Therefore the point of
[lo, hi] nearest to w is within c of w. The map mu -> sum (v_s + mu)_+ is increasing, lo at mu = -t*, hi at mu
= t*, and y lies between: |theta| <= t*, so |x_s - v_s| <= t*. QED

**Choice of the optimum.** The programme usually has many optima. This one has the smallest |sum x - w|, then
the smallest Euclidean distance to v, and is unique. If w + c < 0 nothing is feasible (possible only
outside the good event): x = 0.

**Computation.** theta is the root of sum (v_s - theta)_+ = y. No sort is needed: Newton's method
from below ends, exactly, after a few passes (:func:`project_row`). If the
bound lo(t) <= B is binding, t* is such a root too, with y = B, and theta = t*. Therefore at most one
root is computed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

Floats = NDArray[np.float64]

# Reward family of a release.
REWARD_SUMS = 0
REWARD_CENTERED = 1  # R - N / 2
REWARD_ABSENT = 2  # rewards are public

# Rules from counts to a model.
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
    """Convert flat cells of a release, visits | transitions | rewards, into three tables of rows.

    visits (T, R), transitions (T, R, S) and reward_sums (T, R) are overwritten. Without visits
    N(t, r) is the sum of its row of transitions; centred rewards become R = Rc + N / 2; absent ones 0.
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


# Rows are addressed as v[r], never sliced, because a view costs as much as half a projection.


@inlined
def _level(v: Floats, r: int, y: float, start: float) -> float:
    """Return the theta with sum_s max(0, v[r, s] - theta) = y >= 0, starting at any value below it.

    Newton's method on a convex piecewise linear function (Michelot 1986). From below it increases
    monotonically. It stops, exactly, when the set of entries above theta no longer shrinks.
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
    """Write to x[r] the canonical minimiser of max|x - v[r]| over x >= 0, |sum x - w| <= c.

    Returns that maximum, t*. If w + c < 0 nothing is feasible: x = 0.
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
        # The upper end of the sum binds: lo(t*) = w + c, and that end is the sum nearest to w.
        t = _level(v, r, most, max(high - most, mean - most / states))
        theta = t
    else:
        y = max(0.0, w)
        if y >= total + states * t:
            theta = -t
        elif y <= least:
            theta = t
        else:
            theta = _level(v, r, y, max(high - y, mean - y / states))
    for s in range(states):
        excess = v[r, s] - theta
        x[r, s] = excess if excess > 0.0 else 0.0
    return t


@inlined
def lp_width(e1: float, e3: float) -> float:
    """Return E of the projection: four times the larger error of visits and transition counts."""
    return 4.0 * max(e1, e3)


@inlined
def reward_slack(post: int, e1: float, e2: float, e3: float) -> float:
    """Return Lambda_r: the part of abs(r~ - r) due to noise, times D."""
    if post == POST_RAW:
        return 2.0 * e1 + e2
    if post == POST_LP:
        return lp_width(e1, e3) + e2
    return 0.0


@inlined
def transition_slack(post: int, states: int, e1: float, e3: float) -> float:
    """Return Lambda_p: the part of the l1 distance of P~ and P due to noise, times D."""
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
    """Estimate the model of n rows: P~(s') = masses[r, s'] * inverses[r].

    visits (n,), transitions (n, S), reward_sums (n,) are released sums. The results are masses (n, S) and
    four arrays (n,). ``inverses`` is 1 / D, and ``rewards`` is r~ in [0, 1]. ``counts`` is D before it is
    floored at 1 (below 1: certainly unvisited). ``left`` is 1 - sum P~ under POST_RAW, else 0. Without
    post-processing P~ is transitions * inverses and masses is not written. The cost form reads r~ = 1 - (N -
    R) / D under POST_RAW; otherwise both forms agree.
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
    """Apply ``project_row`` to n rows. v and x are (n, S), and w, c and t are (n,)."""
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
    """Apply ``estimate`` from Python; masses are always written.

    columns (4, n) = counts, inverses, rewards, left.
    """
    if post == POST_NONE:
        masses[:] = transitions
    estimate(
        post, clip_negative, cost_form, e1, e3, visits, transitions, reward_sums, masses,
        columns[0], columns[1], columns[2], columns[3],
    )  # fmt: skip


@kernel
def slacks(post: int, states: int, e1: float, e2: float, e3: float) -> tuple[float, float]:
    """Return (Lambda_r, Lambda_p), for Python."""
    return reward_slack(post, e1, e2, e3), transition_slack(post, states, e1, e3)
