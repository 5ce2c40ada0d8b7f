"""Sensitivity formulas of linear statistics for replacing one user, for devices and servers.

The module :mod:`discreet.mechanisms.linear.sensitivities` states and proves these formulas (lemmas 1 to 5).
Its functions check arguments before they call the functions here.
"""

from __future__ import annotations

import math

__all__ = ["gram_l1", "model_mu", "pair_mu", "successor_l1", "tabular_loss", "vector_l1"]


def pair_mu(alpha: float, beta: float, target: str) -> float:
    """Return the exact mu of Gaussian noise on a Gram matrix and a vector together (lemma 3)."""
    if target == "raw":
        return math.sqrt((alpha + beta) ** 2 / alpha if beta <= alpha else 4 * beta)
    if target == "raw-nonneg":
        return math.sqrt(alpha + 2 * beta)
    return math.sqrt((4 * alpha + beta) ** 2 / (16 * alpha) if beta <= 4 * alpha else beta)


def model_mu(alpha: float, beta: float, gamma: float, states: int, nonneg: bool) -> float:
    """Return the exact mu of Gaussian noise on the Gram matrix, the next-state matrix and the centred rewards
    together (lemma 5).
    """
    rest, low = 1.0 - 1.0 / states, 0.0 if nonneg else -1.0
    # For each argument of the max in lemma 5 and each sign of t, the expression is a parabola alpha (1 - t^2)
    # + slope t + const. It is largest at its vertex or at an end of the interval.
    found = 0.0
    for same in (True, False):
        move = -2 * beta * rest if same else 2 * beta / states
        for sign, left, right in ((-1.0, -1.0, 0.0), (1.0, 0.0, 1.0)):
            if right <= low:
                continue
            slope = move + sign * gamma / 2
            top = slope / (2 * alpha) if alpha > 0 else math.copysign(math.inf, slope)
            t = min(max(top, left), right)
            squared = alpha * (1 - t * t) + gamma * (1 + abs(t)) / 2
            squared += 2 * beta * (rest * (1 - t) if same else rest + t / states)
            found = max(found, squared)
    return math.sqrt(found)


def gram_l1(bound: float, l1: float) -> float:
    """Return the l1 sensitivity a^2 + b^2 of the upper triangle of the sum of phi phi^T.

    ``bound`` is b, the bound of ||phi||_2, and ``l1`` is a, the bound of ||phi||_1.
    """
    return l1**2 + bound**2


def vector_l1(l1: float, span: float, target: str) -> float:
    """Return the l1 sensitivity of the sum of phi y: a c for centred targets, and 2 a c for others.

    ``l1`` is a, the bound of ||phi||_1, and ``span`` is c, the range of y.
    """
    return (1.0 if target == "centred" else 2.0) * l1 * span


def successor_l1(l1: float, states: int) -> float:
    """Return the l1 sensitivity 4 a (1 - 1/S) of the sum of phi (e_{s'} - 1/S)^T.

    ``l1`` is a, the bound of ||phi||_1.
    """
    return 4.0 * l1 * (1.0 - 1.0 / states)


def tabular_loss(visits: float, rewards: float, laplace: bool) -> float:
    """Return the privacy loss of noisy visits and sums of r - 1/2 per state-action pair, if one record is
    replaced.

    ``visits`` and ``rewards`` are the noise scales. The result is epsilon for Laplace noise, otherwise mu.
    If the new record has another pair, two counts change by 1 and two sums change by at most 1/2. If it has
    the same pair, one sum changes by at most 1.
    """
    if laplace:
        return 2.0 / visits + 1.0 / rewards
    return math.sqrt(max(2.0 / visits**2 + 0.5 / rewards**2, 1.0 / rewards**2))
