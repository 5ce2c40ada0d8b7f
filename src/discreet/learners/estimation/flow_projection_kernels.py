r"""Least-squares projection of noisy transition counts onto the flow constraint, in closed form.

True transition counts x_h(s, a, s') of one group of users satisfy the flow equalities

    sum_{s, a} x_h(s, a, s') = sum_{a, s''} x_{h+1}(s', a, s''),

because every user who moves to s' at step h starts in s' at step h + 1. At every step, the counts sum to the
public number of users T. The orthogonal projection onto the counts that satisfy the equalities keeps the
estimates unbiased. On average over cells, the projection removes the share (number of equalities) / (number
of cells) of the noise variance. All cells must count the same users and have independent noise of the same
variance.

Let u_h(s) be the Lagrange multipliers of the flow from step h to step h + 1, with u_{H-1} = 0, and u_{-1} =
-tau for the total. A row is active if a user can have visited it. On active rows r, the projection is x_h(r,
s') - u_h(s') + u_{h-1}(s(r)), where s(r) is the state of row r. Let R_h be the number of active rows at step
h, a_h(s) the number of them in state s, and c_h(s) the imbalance of x at s after step h. Then

    (R_h + S a_{h+1}(s)) u_h(s) = c_h(s) + W_{h-1} + a_{h+1}(s) U_{h+1},
    U_h = sum_s u_h(s),   W_h = sum_s a_{h+1}(s) u_h(s):

The closed form was derived for this library.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.core.compile import inlined, kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def work_size(horizon: int, states: int) -> int:
    """Return the size of the float64 array that :func:`project_flow` needs as work space."""
    return horizon * (2 * states + 6)


@inlined
def project_flow(
    horizon: int, state_ptr: Ints, total: float, active: Floats, counts: Floats, work: Floats
) -> float:
    """Project ``counts`` in place onto the flow constraint, and set inactive rows to 0.

    Returns the share of the noise variance that remains after the projection. Every state must have an active
    row at each step.

    Parameters
    ----------
    state_ptr : (S + 1,)
        State s has the rows state_ptr[s] .. state_ptr[s + 1] - 1.
    total : float
        Number of users T.
    active : (H R,)
        Above 0 for active rows.
    counts : (H R, S)
        Noisy transition counts.
    work : (``work_size``,)
        Work space.
    """
    # In the comments on sums below, D is R_h + S a_{h+1}(s), a is a_{h+1}(s), and c is c_h(s).
    states = state_ptr.shape[0] - 1
    rows = state_ptr[states]
    many = work[: horizon * states]  # a_h(s)
    u = work[horizon * states : 2 * horizon * states]  # first the imbalances c_h(s), later the multipliers
    at = 2 * horizon * states
    size = work[at : at + horizon]  # R_h
    alpha = work[at + horizon : at + 2 * horizon]  # sum_s 1 / D
    beta = work[at + 2 * horizon : at + 3 * horizon]  # sum_s a / D
    gamma = work[at + 3 * horizon : at + 4 * horizon]  # sum_s a^2 / D
    plain = work[at + 4 * horizon : at + 5 * horizon]  # sum_s c / D
    weighted = work[at + 5 * horizon : at + 6 * horizon]  # sum_s a c / D
    for i in range(2 * horizon * states + 6 * horizon):
        work[i] = 0.0
    start = 0.0
    cells = 0.0
    for h in range(horizon):
        for s in range(states):
            for r in range(state_ptr[s], state_ptr[s + 1]):
                c = h * rows + r
                if active[c] <= 0.0:
                    for t in range(states):
                        counts[c, t] = 0.0
                    continue
                many[h * states + s] += 1.0
                size[h] += 1.0
                if h == 0:
                    for t in range(states):
                        start += counts[c, t]
                else:
                    leaving = u[(h - 1) * states + s]
                    for t in range(states):
                        leaving -= counts[c, t]
                    u[(h - 1) * states + s] = leaving
                if h < horizon - 1:
                    for t in range(states):
                        u[h * states + t] += counts[c, t]
        cells += size[h] * states
    for h in range(horizon - 1):
        for s in range(states):
            a = many[(h + 1) * states + s]
            inverse = 1.0 / (size[h] + states * a)
            c = u[h * states + s]
            alpha[h] += inverse
            beta[h] += a * inverse
            gamma[h] += a * a * inverse
            plain[h] += c * inverse
            weighted[h] += a * c * inverse
    # Backward sweep, with E_h = sum_s a c / D and U_h = p_h + q_h W_{h-1}:
    # W_h = (E_h + gamma_h p_{h+1} + beta_h W_{h-1}) / (1 - gamma_h q_{h+1}).
    p = 0.0
    q = 0.0
    for h in range(horizon - 2, -1, -1):
        scale = 1.0 / (1.0 - gamma[h] * q)
        constant = (weighted[h] + gamma[h] * p) * scale
        slope = beta[h] * scale
        next_p = plain[h] + beta[h] * (p + q * constant)
        next_q = alpha[h] + beta[h] * q * slope
        # Store the coefficients for the forward sweep: W_h = constant + slope W_{h-1} and U_{h+1} = p + q
        # W_h.
        weighted[h], gamma[h] = constant, slope
        plain[h], alpha[h] = p, q
        p, q = next_p, next_q
    # The total at step 0 gives -R_0 tau = W_{-1}, tau = (start - T - R_0 U_0) / (R_0 S) and U_0 = p + q
    # W_{-1}.
    before = (size[0] * p - (start - total)) / (states - size[0] * q)
    tau = -before / size[0]
    for h in range(horizon - 1):
        after = weighted[h] + gamma[h] * before
        following = plain[h] + alpha[h] * after
        for s in range(states):
            a = many[(h + 1) * states + s]
            u[h * states + s] = (u[h * states + s] + before + a * following) / (size[h] + states * a)
        before = after
    for h in range(horizon):
        for s in range(states):
            arriving = -tau if h == 0 else u[(h - 1) * states + s]
            for r in range(state_ptr[s], state_ptr[s + 1]):
                c = h * rows + r
                if active[c] > 0.0:
                    for t in range(states):
                        leaving = u[h * states + t] if h < horizon - 1 else 0.0
                        counts[c, t] += arriving - leaving
    return 1.0 - ((horizon - 1) * states + 1.0) / cells


@kernel
def consistent_counts(
    horizon: int, state_ptr: Ints, total: float, active: Floats, counts: Floats, work: Floats
) -> float:
    """Call :func:`project_flow` from Python."""
    return project_flow(horizon, state_ptr, total, active, counts, work)
