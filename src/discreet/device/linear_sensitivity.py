"""Sensitivity formulas of linear statistics when one user is replaced, for devices and servers.

Statements and proofs: :mod:`discreet.mechanisms.linear.sensitivities` (lemmas 1 to 5), whose checked
functions call these.
"""

from __future__ import annotations

import math

__all__ = ["gram_l1", "model_mu", "pair_mu", "successor_l1", "tabular_loss", "vector_l1"]


def pair_mu(alpha: float, beta: float, target: str) -> float:
    """Return the exact mu of a Gram matrix and a vector together (lemma 3)."""
    if target == "raw":
        return math.sqrt((alpha + beta) ** 2 / alpha if beta <= alpha else 4 * beta)
    if target == "raw-nonneg":
        return math.sqrt(alpha + 2 * beta)
    return math.sqrt((4 * alpha + beta) ** 2 / (16 * alpha) if beta <= 4 * alpha else beta)


def model_mu(alpha: float, beta: float, gamma: float, states: int, nonneg: bool) -> float:
    """Return the exact mu of Gram matrix, next-state matrix and centred rewards together (lemma 5)."""
    rest, low = 1.0 - 1.0 / states, 0.0 if nonneg else -1.0
    # between the ends and the kink at 0 each branch is a downward parabola: alpha (1 - t^2) + slope t + const
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
    """Return a^2 + b^2, the l1 sensitivity of the upper triangle of the sum of phi phi^T."""
    return l1**2 + bound**2


def vector_l1(l1: float, span: float, target: str) -> float:
    """Return the l1 sensitivity of the sum of phi y: a c centred, 2 a c raw."""
    return (1.0 if target == "centred" else 2.0) * l1 * span


def successor_l1(l1: float, states: int) -> float:
    """Return 4 a (1 - 1/S), the l1 sensitivity of the sum of phi (e_{s'} - 1/S)^T."""
    return 4.0 * l1 * (1.0 - 1.0 / states)


def tabular_loss(visits: float, rewards: float, laplace: bool) -> float:
    """Return the privacy loss of counts and sums of r - 1/2 per pair, with noise of these scales, if one
    record is replaced.

    If the new record has another pair, two counts change by 1 and two sums change by at most 1/2. If it has
    the same pair, one sum changes by at most 1.
    """
    if laplace:
        return 2.0 / visits + 1.0 / rewards
    return math.sqrt(max(2.0 / visits**2 + 0.5 / rewards**2, 1.0 / rewards**2))
