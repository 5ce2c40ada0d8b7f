"""Functions that open the session of a mechanism. The session draws the noise of the mechanism."""

from __future__ import annotations

from typing import Any

from discreet.core.releases import Schedule
from discreet.core.rng import Randomness
from discreet.mechanisms.interfaces import Mechanism, Session
from discreet.mechanisms.open_stream import stream_of

__all__ = ["Proposes", "session_of"]


def session_of(mechanism: Any, randomness: Randomness) -> Session:
    """Return a new session of a mechanism, with noise from ``randomness`` (Seeded or Secure).

    The session has the guarantee of the mechanism. Raises ``ValueError`` for an unknown kind of mechanism.
    """
    if type(mechanism).__name__ == "BatchMechanism":
        from discreet.core.session import ChannelSession
        from discreet.mechanisms.batch_queries import BatchChannel

        return ChannelSession(BatchChannel(mechanism, randomness))
    return stream_of(mechanism, randomness)


class Proposes:
    """Base class of privatizers that choose mechanisms and open only the sessions listed in this module."""

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Return the mechanism and its privacy guarantee, fixed before data are read."""
        raise TypeError(f"{type(self).__name__}: must have a method mechanism(query, schedule, randomness)")

    def start(self, query: Any, schedule: Schedule, randomness: Randomness) -> Session:
        """Return a session of :meth:`mechanism`. Raises the ``ValueError`` of :meth:`mechanism`."""
        return session_of(self.mechanism(query, schedule, randomness), randomness)
