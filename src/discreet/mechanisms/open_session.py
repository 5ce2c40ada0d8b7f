"""Functions that open the session of a mechanism. A session draws the noise of its mechanism."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from discreet.core.releases import Schedule
from discreet.core.rng import Randomness
from discreet.mechanisms.interfaces import Mechanism, Session

__all__ = ["Proposes", "session_of"]

_PLACES = {
    "LinearMechanism": ("mechanisms.linear.linear_session", "LinearSession"),
    "FlipMechanism": ("mechanisms.shuffle.shuffle_session", "ShuffleSession"),
    "AmplifiedMechanism": ("mechanisms.shuffle.amplified_session", "AmplifiedSession"),
    "BatchMechanism": ("mechanisms.batch_queries", "BatchSession"),
}
_COUNTS = {  # by CountMechanism.asks, otherwise by the strategy
    "group": ("mechanisms.central.policy_return_session", "GroupSession"),
    "cut": ("mechanisms.central.clipped_reward_session", "CutSession"),
    "exact": ("core.count_sessions", "MeasuredSession"),
    "walk": ("core.count_sessions", "WalkSession"),
    "decaying": ("core.fresh_noise_session", "DecayingSession"),
    "local": ("mechanisms.local.noisy_vector_session", "DeviceSession"),
    "reports": ("mechanisms.local.randomized_response_session", "ReportedSession"),
}


def session_of(mechanism: Any, randomness: Randomness) -> Session:
    """Return a new session of a mechanism, with noise from ``randomness`` (Seeded or Secure).

    The guarantee of the session is that of the mechanism. Each session checks that its mechanism has the
    exact class (a subclass could state another loss). Raises ``ValueError`` on an unknown kind of mechanism.
    """
    name = type(mechanism).__name__
    place = _PLACES.get(name)
    if name == "CountMechanism":
        place = _COUNTS.get(mechanism.asks, _COUNTS.get(mechanism.stream))
    if place is None:
        raise ValueError(f"mechanism = {mechanism!r}: must be one of CountMechanism, {', '.join(_PLACES)}")
    session: Session = getattr(import_module(f"discreet.{place[0]}"), place[1])(mechanism, randomness)
    return session


class Proposes:
    """Base class of privatizers that choose mechanisms and open only the sessions that this module lists."""

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Return the mechanism and its privacy guarantee, fixed before data."""
        raise TypeError(f"{type(self).__name__}: must have a method mechanism(query, schedule, randomness)")

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> Session:
        """Return a session of :meth:`mechanism`. Raises the ``ValueError`` of :meth:`mechanism`."""
        return session_of(self.mechanism(query, schedule, randomness), randomness)
