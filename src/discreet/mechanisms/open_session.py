"""Functions that open the session of a mechanism. The session draws the noise of the mechanism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from discreet.core.releases import Schedule
from discreet.core.rng import Randomness
from discreet.mechanisms.interfaces import Mechanism, Session
from discreet.mechanisms.open_stream import stream_of


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


def mechanism_reused(start: Callable[..., Session]) -> Callable[..., Session]:
    """Return a function that opens the same sessions as ``start``, and chooses each mechanism once.

    The choice of a mechanism can take longer than a short session. It depends on the query, the schedule and
    the kind of randomness only. Calls with the same objects therefore open sessions of one mechanism, which
    is frozen. Other functions than :meth:`Proposes.start` are returned as they are.
    """
    privatizer = getattr(start, "__self__", None)
    if getattr(start, "__func__", None) is not Proposes.start or privatizer is None:
        return start
    chosen: dict[tuple[Any, ...], tuple[Any, Schedule, Mechanism]] = {}

    def begin(query: Any, schedule: Schedule, randomness: Randomness) -> Session:
        grid = getattr(randomness, "reward_grid", None)
        key = id(query), id(schedule), type(randomness), grid
        if key not in chosen:  # the entry keeps both objects, so their addresses name no others
            chosen[key] = query, schedule, privatizer.mechanism(query, schedule, randomness)
        return session_of(chosen[key][2], randomness)

    return begin
