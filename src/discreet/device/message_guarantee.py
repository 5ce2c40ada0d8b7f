r"""Privacy loss of one message, computed by the device that sends the message.

Neighbouring relation: the user's whole trajectory of one episode is replaced by any other trajectory. The
observer sees the whole message, and knows the plan, the form, and everything that other users send. No party
is trusted except the user's device. In particular, no server and no shuffler is trusted.

The numbers are computed from the scales and probabilities in the form. A device does not copy a statement of
the server, but computes the privacy loss of the noise that it draws. The formulas are in the modules of the
messages: :mod:`discreet.device.count_device`, :mod:`discreet.device.randomized_response_device`,
:mod:`discreet.device.shuffle_payload`, :mod:`discreet.device.linear_device`.

For a given delta, epsilon is computed from mu by the exact curve of Gaussian noise (Balle and Wang 2018,
theorem 8). It is computed from rho by the best Renyi order of zCDP (Canonne, Kamath and Steinke 2020,
proposition 12). Bisection solves the first equation for epsilon and the second for t. The returned value is
never too small::

    delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
    ln(1/delta) = rho t^2 + ln(1 + t),      epsilon = (2 t + 1) rho - ln(1 + 1/t)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

__all__ = ["MessageGuarantee"]


@dataclass(frozen=True)
class MessageGuarantee:
    """Privacy loss of one message against any reader of the message.

    Exactly one of ``epsilon``, ``mu`` and ``rho`` is given.

    Parameters
    ----------
    epsilon : pure epsilon. The probabilities of any message under any two trajectories differ by a factor of
        at most e^epsilon. Infinity if there is no such bound.
    mu : parameter of Gaussian DP.
    rho : parameter of zCDP.
    shows : if epsilon is infinite, the largest probability of a message that rules out the other trajectory,
        over all pairs of trajectories. Such a message is impossible under the other trajectory. Otherwise 0.
    exact : True if the noise is discrete and has exactly its stated distribution; False if it is drawn in
        floating point, for simulation.
    shuffled : True if the message is intended for a shuffler. The stated loss also holds without a shuffler.

    Raises
    ------
    ValueError
        Unless exactly one of epsilon, mu and rho is given and is at least 0, and ``shows`` is allowed.
    """

    epsilon: float | None = None
    mu: float | None = None
    rho: float | None = None
    shows: float = 0.0
    exact: bool = True
    shuffled: bool = False

    def __post_init__(self) -> None:
        given = [value for value in (self.epsilon, self.mu, self.rho) if value is not None]
        if len(given) != 1 or not given[0] >= 0.0:
            raise ValueError("epsilon, mu, rho: exactly one of them must be given, a number of at least 0")
        if not 0.0 <= self.shows <= 1.0 or (self.shows > 0.0 and given[0] != math.inf):
            raise ValueError(f"shows = {self.shows!r}: must be in [0, 1], and 0 where there is an epsilon")

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest known epsilon at which the message is (epsilon, delta)-private.

        Raises ``ValueError`` unless 0 < delta < 1.
        """
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta = {delta!r}: must be above 0 and below 1")
        if self.epsilon is not None:
            return self.epsilon
        if self.mu is not None:
            return _of_mu(self.mu, delta)
        assert self.rho is not None
        return _of_rho(self.rho, delta)

    @property
    def statement(self) -> str:
        """Guarantee as text, with the unit of privacy."""
        return " ".join([*self._parts(), _UNIT])

    def __str__(self) -> str:
        return self.statement

    def _parts(self) -> list[str]:
        parts = []
        if self.shuffled:
            parts.append("Without the shuffler, for a reader of this message:")
        if self.epsilon == math.inf:
            parts.append(
                "no epsilon holds; the message is impossible under the other trajectory with probability up "
                f"to {_up(self.shows)}."
            )
        else:
            name = "epsilon" if self.epsilon is not None else "mu" if self.mu is not None else "rho"
            kind = {"epsilon": "pure local", "mu": "local Gaussian", "rho": "local zero-concentrated"}[name]
            parts.append(f"{kind} differential privacy, {name} = {_up(getattr(self, name))}.")
        if not self.exact:
            parts.append(
                "The noise is drawn in floating point from seeds: this is a simulation and protects no user."
            )
        return parts


_UNIT = (
    "This message protects one user's whole trajectory of one episode against replacement by any other. "
    "Other messages are not counted. Only the user's device is trusted."
)


def _up(x: float) -> str:
    """Format ``x`` with six digits, rounded up, so that no stated number is below the true value.

    A relative excess of up to 1e-9 can be a rounding error, so it is not rounded up.
    """
    if x == 0.0:
        return "0"
    exact = Decimal(x) * (1 - Decimal(10) ** -9)
    last_digit = Decimal(1).scaleb(exact.adjusted() - 5)
    return f"{float(exact.quantize(last_digit, ROUND_CEILING)):.6g}"


def _tail(x: float) -> float:
    """Return the probability that a standard normal variable is above x."""
    return 0.5 * math.erfc(x / math.sqrt(2.0))


def _least(holds: Callable[[float], bool], high: float) -> float:
    """Return an upper approximation of the smallest nonnegative number for which a monotone condition holds.

    ``high`` : first guess, which is doubled until the condition holds.
    """
    low = 0.0
    if holds(low):
        return low
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _of_mu(mu: float, delta: float) -> float:
    if mu == 0.0:
        return 0.0

    def holds(epsilon: float) -> bool:
        far = _tail(epsilon / mu + 0.5 * mu)
        lost = math.exp(epsilon + math.log(far)) if far > 0.0 else 0.0
        return _tail(epsilon / mu - 0.5 * mu) - lost <= delta

    return _least(holds, mu * (0.5 * mu + math.sqrt(-2.0 * math.log(delta))))


def _of_rho(rho: float, delta: float) -> float:
    if rho == 0.0:
        return 0.0
    target = -math.log(delta)
    t = _least(lambda t: rho * t * t + math.log1p(t) >= target, math.sqrt(target / rho))
    return max(0.0, (2 * t + 1) * rho - math.log1p(1 / t))
