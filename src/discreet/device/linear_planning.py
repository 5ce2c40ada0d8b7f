r"""Plan of UCRL-VTR and UCRL-VTR+ from a public solution, on the server or on a user's device.

The server solves the regression of a release (w-hat, a factor of Lambda^-1 and the width of each step: H d^2
numbers). The remaining computation, optimistic values backward from V_H = 0, needs only this solution and the
public features. Therefore a device can do this computation without further instructions from the server (Luyo
et al. 2021, local algorithms). The learner (:mod:`discreet.learners.online.ucrl_vtr`, which has the formulas)
uses the same code.

Ties. The server breaks ties by random draws that it publishes with the policy. A device takes the first
maximising action, or a random one (:func:`greedy_action`). Regret bounds hold for each of these rules, and
privacy does not depend on the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.device.linear_device import FLAT_SPAN, MixtureForm

Floats = NDArray[np.float64]

__all__ = ["Optimistic", "Solution", "Solved", "Target", "greedy_action", "optimistic_action", "target_of"]


@dataclass(frozen=True, eq=False)
class Solved:
    """Solution of the regression of one pair of statistics, at every step.

    Parameters
    ----------
    weights : (n, d) w-hat.
    factor : (n, d, d) F with F F^T = Lambda^-1.
    width : (n,) beta at scale 1.
    plain : (n,) width that holds even if the weights do not bound variances (UCRL-VTR+); otherwise equal to
        ``width``.
    """

    weights: Floats
    factor: Floats
    width: Floats
    plain: Floats


@dataclass(frozen=True, eq=False)
class Solution:
    """All inputs of a plan. They are public, and a function of one release.

    Parameters
    ----------
    rewards : (H, S, A) known, or optimistic estimates.
    scale : factor of the bonuses.
    tops : (H,) upper bounds of Q.
    second, variances : of UCRL-VTR+, the second moments and the least and largest sigma^2.
    """

    first: Solved
    rewards: Floats
    scale: float
    tops: tuple[float, ...]
    second: Solved | None = None
    variances: tuple[float, float] = (1.0, 1.0)


class Optimistic(NamedTuple):
    """Optimistic values.

    Parameters
    ----------
    values : (H + 1, S).
    q : (H, S, A), including inadmissible actions.
    weights : (H - 1, S, A) or None.
    """

    values: Floats
    q: Floats
    weights: Floats | None

    @property
    def context(self) -> dict[str, Floats]:
        """Return the data of the plan that users' contributions need."""
        return {"values": self.values} | ({} if self.weights is None else {"weights": self.weights})


class Target(NamedTuple):
    """Regression target made from V_{h+1}: (S,) V - c, the numbers c and m, and the smallest and largest
    possible (V - c) / m.
    """

    centred: Floats
    centre: float
    scale: float
    low: float
    high: float


def target_of(form: MixtureForm, values: Floats, h: int) -> Target:
    """Return V_{h+1} (S,) after centring and scaling as in :meth:`MixtureForm.prepared`."""
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
    """Compute optimistic values backward, by the formulas of :mod:`discreet.learners.online.ucrl_vtr`.

    ``form`` is the form of the device's session (``device.form``). ``solution`` is what the server publishes
    (``learner.solution(state)``). Returns Q (H, S, A) and the context that contributions need.
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
    """Return (H, S) best admissible actions.

    If several actions are best, take the first, or with ``below`` a random one.

    Arguments are not checked, because a device plans with the data in its session's form and in the server's
    publication.

    Parameters
    ----------
    q : (H, S, A), at least 0.
    mask : (S, A), True where an action is admissible; None: all are.
    below : uniform integers in [0, n).
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
    """Return phi_v (S, A, d) of values (S,)."""
    columns = form.columns
    return np.asarray((columns.reshape(-1, form.states) @ values).reshape(columns.shape[:3]))


def _lengths(phi: Floats, factor: Floats) -> Floats:
    """Return (S, A) ||phi||_{Lambda^-1} of phi (S, A, d)."""
    turned = phi @ factor
    return np.asarray(np.sqrt(np.einsum("sad,sad->sa", turned, turned)))


def _variances(
    form: MixtureForm, solution: Solution, target: Target, phi: Floats, lengths: Floats, h: int
) -> Floats:
    """Return (S, A) sigma^2 = clip(Var + E, var_floor, var_max), in the units of targets."""
    first, second, scale = solution.first, solution.second, solution.scale
    assert second is not None
    rho = max(-target.low, target.high)
    phi2 = _features_of(form, np.square(target.centred / target.scale))
    mean = np.clip(phi @ first.weights[h] / target.scale, target.low, target.high)
    found = np.clip(phi2 @ second.weights[h], 0.0, rho**2) - mean**2
    found += np.minimum(rho**2, 2 * rho * scale * first.plain[h] * lengths / target.scale)
    found += np.minimum(rho**2, scale * second.width[h] * _lengths(phi2, second.factor[h]))
    return np.asarray(np.clip(found, *solution.variances))
