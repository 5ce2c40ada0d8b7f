"""The interface of a channel."""

from __future__ import annotations

import pytest

from discreet.core.session import Channel

NEEDED = {"start", "admit", "encoder", "add", "add_many", "add_sum", "release"}


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_channel_says_all_that_is_asked_of_it(name: str) -> None:
    """What a plan must fulfil, how a message is added, and how a release is made have no default."""
    assert Channel.__abstractmethods__ == NEEDED
    half = type("Half", (Channel,), {other: None for other in NEEDED if other != name})
    with pytest.raises(TypeError, match=f"abstract method '?{name}"):
        half()
