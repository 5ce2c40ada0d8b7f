"""Sessions are opened by a mechanism and a source alone."""

import inspect

import pytest

from discreet.core.rng import Seeded
from discreet.mechanisms.batch_queries import BatchChannel
from discreet.mechanisms.open_session import session_of


def test_sessions_are_told_nothing_but_a_mechanism_and_a_source() -> None:
    assert list(inspect.signature(BatchChannel).parameters) == ["mechanism", "randomness"]


def test_other_mechanisms_are_refused() -> None:
    with pytest.raises(ValueError, match="mechanism = 3: must be one of CountMechanism"):
        session_of(3, Seeded(0))
