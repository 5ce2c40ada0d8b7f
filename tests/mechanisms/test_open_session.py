"""Sessions are opened by a mechanism and a source alone."""

import inspect

import pytest

from discreet.mechanisms import open_session as sessions


@pytest.mark.parametrize("name", sessions._PLACES)
def test_sessions_are_told_nothing_but_a_mechanism_and_a_source(name: str) -> None:
    module, kind = sessions._PLACES[name]
    session = getattr(__import__(f"discreet.{module}", fromlist=[kind]), kind)
    assert list(inspect.signature(session).parameters) == ["mechanism", "randomness"]
