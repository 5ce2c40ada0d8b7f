r"""Computation of the plan of UCRL-VTR and UCRL-VTR+ from a public solution, on a server or a device.

The server solves the regression with the sums of a release. For each step, the solution contains w-hat, a
factor of Lambda^-1 and a confidence width, in total about H d^2 numbers. The remaining computation is
backward induction of optimistic values from V_H = 0. It needs only this solution and the public features, so
a device can do it (Luyo et al. 2021, local algorithms). The learner uses the same code;
:mod:`discreet.learners.online.ucrl_vtr` contains the formulas.

*Ties.* The server chooses at random among maximising actions, and publishes the result with the policy. A
device selects the first maximising action, or a random one (:func:`greedy_action`). Regret bounds hold for
each of these rules, and privacy does not depend on the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.device.linear_forms import FLAT_SPAN, MixtureForm

Floats = NDArray[np.float64]

__all__ = ["Optimistic", "Solution", "Solved", "Target", "greedy_action", "optimistic_action", "target_of"]


@dataclass(frozen=True, eq=False)
class Solved:
    """Regression estimates from one pair of statistics, at every step.

    Parameters
    ----------
    weights : (n, d) estimated coefficients w-hat.
    factor : (n, d, d) matrices F with F F^T = Lambda^-1.
    width : (n,) confidence widths beta, before they are multiplied by the factor of the bonuses.
    plain : (n,) confidence widths that are valid even if the weights do not bound the variances (UCRL-VTR+).
        For UCRL-VTR, they are equal to ``width``.
    """

    weights: Floats
    factor: Floats
    width: Floats
    plain: Floats


@dataclass(frozen=True, eq=False)
class Solution:
    """Solution of the regressions, from which a plan is computed. It is public, and a function of one
    release.

    Parameters
    ----------
    first : estimates for the values.
    rewards : (H, S, A) known rewards, or optimistic estimates of rewards.
    scale : factor by which the bonuses are multiplied.
    tops : (H,) upper bounds of Q at each step.
    second : estimates for the squares of the values (only UCRL-VTR+).
    variances : the smallest and the largest sigma^2 (only UCRL-VTR+).
    """

    first: Solved
    rewards: Floats
    scale: float
    tops: tuple[float, ...]
    second: Solved | None = None
    variances: tuple[float, float] = (1.0, 1.0)


class Optimistic(NamedTuple):
    """Optimistic value functions of a plan.

    Parameters
    ----------
    values : (H + 1, S) values V.
    q : (H, S, A) values Q, including inadmissible actions.
    weights : (H - 1, S, A) regression weights 1 / sigma^2 for UCRL-VTR+, or None.
    """

    values: Floats
    q: Floats
    weights: Floats | None

    @property
    def context(self) -> dict[str, Floats]:
        """Context of the plan: the arrays that the contributions of the plan's users need."""
        return {"values": self.values} | ({} if self.weights is None else {"weights": self.weights})


class Target(NamedTuple):
    """Regression target (V - c) / m that is computed from V = V_{h+1}.

    Parameters
    ----------
    centred : (S,) V - c.
    centre, scale : the numbers c and m.
    low, high : the smallest and largest possible value of (V - c) / m.
    """

    centred: Floats
    centre: float
    scale: float
    low: float
    high: float


def target_of(form: MixtureForm, values: Floats, h: int) -> Target:
    """Return the regression target that is computed from the values V_{h+1} (S,).

    Its centre and scale are the same as in :meth:`MixtureForm.prepared`.
    """
    b = form.bounds[h]
    if form.targets == "raw":
        return Target(values, 0.0, 1.0, 0.0, b)
    if form.targets == "centred":
        return Target(values - b / 2, b / 2, 1.0, -b / 2, b / 2)
    low, high = float(values.min()), float(values.max())
    span = high - low
    scale = span if span > FLAT_SPAN * b else b
    return Target(values - (low + high) / 2, (low + high) / 2, scale, -0.5, 0.5)


def optimistic_action(form: MixtureForm, solution: Solution) -> Optimistic:
    """Compute optimistic values by backward induction, as in :mod:`discreet.learners.online.ucrl_vtr`.

    ``form`` is the form of the device's session (``device.form``). ``solution`` is published by the server
    (``learner.solution(state)``). Returns V, Q (H, S, A), and the regression weights of UCRL-VTR+.
    """
    horizon, states, actions = form.horizon, form.states, form.actions
    values, q = np.zeros((horizon + 1, states)), np.empty((horizon, states, actions))
    weights = None if solution.second is None else np.empty((horizon - 1, states, actions))
    first = solution.first
    for h in reversed(range(horizon)):
        table = solution.rewards[h].copy()
        if h < horizon - 1:
            target = target_of(form, values[h + 1], h)
            phi = _features_of(form, target.centred)
            lengths = _lengths(phi, first.factor[h])
            table += target.centre + phi @ first.weights[h] + solution.scale * first.width[h] * lengths
            if weights is not None:
                weights[h] = 1.0 / _variances(form, solution, target, phi, lengths, h)
        q[h] = np.clip(table, 0.0, solution.tops[h])
        values[h] = (q[h] if form.mask is None else np.where(form.mask, q[h], -1.0)).max(axis=1)
    return Optimistic(values, q, weights)


def greedy_action(
    q: Floats, mask: NDArray[np.bool_] | None = None, below: Callable[[int], int] | None = None
) -> NDArray[np.int64]:
    """Return the (H, S) admissible actions with the largest Q.

    If several actions maximise Q, the first is returned, or a random one if ``below`` is given. The arguments
    are not checked. A device takes the arguments from the form of the session and from the server's
    publication.

    Parameters
    ----------
    q : (H, S, A) values Q, at least 0.
    mask : (S, A), True where an action is admissible; None if every action is admissible.
    below : function of n that draws a uniform integer in [0, n), or None.
    """
    table = q if mask is None else np.where(mask, q, -1.0)
    best = table == table.max(axis=2, keepdims=True)
    if below is None:
        return np.asarray(best.argmax(axis=2), np.int64)
    found = np.empty(q.shape[:2], np.int64)
    for h, s in np.ndindex(*q.shape[:2]):
        ties = np.flatnonzero(best[h, s])
        found[h, s] = ties[below(ties.size)] if ties.size > 1 else ties[0]
    return found


def _features_of(form: MixtureForm, values: Floats) -> Floats:
    """Return the (S, A, d) features phi_v of a value function v (S,)."""
    columns = form.columns
    return np.asarray((columns.reshape(-1, form.states) @ values).reshape(columns.shape[:3]))


def _lengths(phi: Floats, factor: Floats) -> Floats:
    """Return the (S, A) norms ||phi||_{Lambda^-1} of the features phi (S, A, d).

    ``factor`` : matrix F with F F^T = Lambda^-1.
    """
    turned = phi @ factor
    return np.asarray(np.sqrt(np.einsum("sad,sad->sa", turned, turned)))


def _variances(
    form: MixtureForm, solution: Solution, target: Target, phi: Floats, lengths: Floats, h: int
) -> Floats:
    """Return the (S, A) variance bounds sigma^2 of UCRL-VTR+ at step h, in the units of the target.

    The bounds are clip(Var + E, var_floor, var_max). Var is the estimated variance, and E bounds its error.
    """
    first, second, scale = solution.first, solution.second, solution.scale
    assert second is not None
    rho = max(-target.low, target.high)
    phi2 = _features_of(form, np.square(target.centred / target.scale))
    mean = np.clip(phi @ first.weights[h] / target.scale, target.low, target.high)
    found = np.clip(phi2 @ second.weights[h], 0.0, rho**2) - mean**2
    found += np.minimum(rho**2, 2 * rho * scale * first.plain[h] * lengths / target.scale)
    found += np.minimum(rho**2, scale * second.width[h] * _lengths(phi2, second.factor[h]))
    return np.asarray(np.clip(found, *solution.variances))
