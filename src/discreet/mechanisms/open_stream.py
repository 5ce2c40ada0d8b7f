"""Sessions of single streams of sums, by mechanism.

A separate query for each batch is opened by :mod:`discreet.mechanisms.open_session`.
"""

from __future__ import annotations

from typing import Any

from discreet.core.rng import Randomness
from discreet.mechanisms.interfaces import Session

__all__ = ["stream_of"]


def stream_of(mechanism: Any, randomness: Randomness) -> Session:
    """Return a new session of one stream, with noise from ``randomness`` (Seeded or Secure).

    The guarantee of the session is that of the mechanism. Each channel checks that its mechanism has the
    exact class (a subclass could state another loss). Raises ``ValueError`` on an unknown kind of mechanism.
    """
    match type(mechanism).__name__:  # modules are imported on first use
        case "CountMechanism":
            return _counts(mechanism, randomness)
        case "LinearMechanism":
            from discreet.core.session import ChannelSession
            from discreet.mechanisms.linear.linear_session import LinearChannel

            return ChannelSession(LinearChannel(mechanism, randomness))
        case "FlipMechanism":
            from discreet.mechanisms.shuffle.shuffle_session import ShuffleSession

            return ShuffleSession(mechanism, randomness)
        case "AmplifiedMechanism":
            from discreet.mechanisms.shuffle.amplified_session import AmplifiedSession

            return AmplifiedSession(mechanism, randomness)
    raise ValueError(
        f"mechanism = {mechanism!r}: must be one of CountMechanism, LinearMechanism, FlipMechanism, "
        "AmplifiedMechanism, BatchMechanism"
    )


def _counts(mechanism: Any, randomness: Randomness) -> Session:
    """Return a new session of a mechanism of counts. The channel checks the class of the mechanism."""
    from discreet.core.count_channels import CorrelatedChannel, CountChannel, ExactChannel
    from discreet.core.session import ChannelSession

    channel: type[CountChannel]
    match mechanism.stream:
        case "decaying":
            from discreet.core.fresh_noise_channel import FreshNoiseChannel as channel
        case "local":
            from discreet.mechanisms.local.noisy_vector_session import NoisyVectorChannel as channel
        case "reports":
            from discreet.mechanisms.local.randomized_response_session import ReportChannel as channel
        case stream:
            channel = CorrelatedChannel if stream == "walk" else ExactChannel
    return ChannelSession(channel(mechanism, randomness))
