"""Functions that open the session of one stream of sums, by kind of mechanism.

Sessions with a separate query for each batch are opened by :mod:`discreet.mechanisms.open_session`.
"""

from __future__ import annotations

from typing import Any

from discreet.core.rng import Randomness
from discreet.core.session import Channel, ChannelSession


def stream_of(mechanism: Any, randomness: Randomness) -> ChannelSession:
    """Return a new session of one stream, with noise from ``randomness`` (Seeded or Secure).

    The session has the guarantee of the mechanism. Each channel checks that its mechanism has the exact class
    (a subclass could state another loss). Raises ``ValueError`` for an unknown kind of mechanism.
    """
    return ChannelSession(_channel_class(mechanism)(mechanism, randomness))


def _channel_class(mechanism: Any) -> Any:
    channel: type[Channel]
    match type(mechanism).__name__:  # modules are imported on first use
        case "CountMechanism":
            return _count_channel_class(mechanism.stream)
        case "LinearMechanism" if type(mechanism.query).__name__ == "ContextQuery":
            from discreet.mechanisms.linear.context_session import ContextChannel as channel
        case "LinearMechanism":
            from discreet.mechanisms.linear.linear_session import LinearChannel as channel
        case "FlipMechanism":
            from discreet.mechanisms.shuffle.shuffle_session import FlipChannel as channel
        case "AmplifiedMechanism":
            from discreet.mechanisms.shuffle.amplified_session import AmplifiedChannel as channel
        case "SkellamMechanism":
            from discreet.mechanisms.shuffle.skellam_session import SkellamChannel as channel
        case _:
            raise ValueError(
                f"mechanism = {mechanism!r}: must be one of CountMechanism, LinearMechanism, FlipMechanism, "
                "AmplifiedMechanism, SkellamMechanism, BatchMechanism"
            )
    return channel


def _count_channel_class(stream: str) -> Any:
    from discreet.core.count_channels import CorrelatedChannel, CountChannel, ExactChannel

    channel: type[CountChannel]
    match stream:
        case "decaying":
            from discreet.core.fresh_noise_channel import FreshNoiseChannel as channel
        case "local":
            from discreet.mechanisms.local.noisy_vector_session import NoisyVectorChannel as channel
        case "reports":
            from discreet.mechanisms.local.randomized_response_session import ReportChannel as channel
        case _:
            channel = CorrelatedChannel if stream == "walk" else ExactChannel
    return channel
