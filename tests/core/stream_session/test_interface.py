"""The interface of a stream of sums."""

from __future__ import annotations

import pytest

from discreet.core.stream_session import StreamSession


@pytest.mark.parametrize("name", sorted(StreamSession.__abstractmethods__))
def test_a_stream_of_sums_says_all_that_is_asked_of_it(name: str) -> None:
    """What a plan must fulfil, how a message is added, and how a release is made have no default."""
    assert set(StreamSession.__abstractmethods__) == {"_admitted", "_encoder", "_add", "_add_sum", "_made"}
    rest = {other: None for other in StreamSession.__abstractmethods__ if other != name}
    half = type("Half", (StreamSession,), rest)
    with pytest.raises(TypeError, match=f"abstract method '?{name}"):
        half()
