"""Sessions are opened by a mechanism and a source alone."""

import inspect

import pytest

from discreet.core import session as core
from discreet.core.count_channels import CorrelatedChannel, ExactChannel
from discreet.core.fresh_noise_channel import FreshNoiseChannel
from discreet.core.rng import Seeded
from discreet.mechanisms.linear.linear_session import LinearChannel
from discreet.mechanisms.local.noisy_vector_session import NoisyVectorChannel
from discreet.mechanisms.local.randomized_response_session import ReportChannel
from discreet.mechanisms.open_stream import stream_of
from discreet.mechanisms.shuffle.amplified_session import AmplifiedChannel
from discreet.mechanisms.shuffle.shuffle_session import FlipChannel


@pytest.mark.parametrize(
    "kind",
    [
        CorrelatedChannel, ExactChannel, FreshNoiseChannel, NoisyVectorChannel, ReportChannel, LinearChannel,
        FlipChannel, AmplifiedChannel,
    ],
)  # fmt: skip
def test_sessions_are_told_nothing_but_a_mechanism_and_a_source(kind: type) -> None:
    assert list(inspect.signature(kind).parameters) == ["mechanism", "randomness"]


def test_a_session_is_told_nothing_but_its_channel() -> None:
    assert list(inspect.signature(core.ChannelSession).parameters) == ["channel"]


def test_other_mechanisms_are_refused() -> None:
    with pytest.raises(ValueError, match="mechanism = 3: must be one of CountMechanism"):
        stream_of(3, Seeded(0))
