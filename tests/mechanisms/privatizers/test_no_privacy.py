"""Without privacy nothing is promised."""

import numpy as np

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(3, 2, 4, np.array([[1, 1], [0, 1], [1, 1]], bool))


THREE = CountQuery(LAYOUT, center_rewards=True, episodes=3)


def test_no_privacy_promises_nothing() -> None:
    session = NoPrivacy().stored(THREE, Secure())
    assert session.guarantee.epsilon is None
    assert session.records == ()
    assert {law.std() for law in session.laws.values()} == {0.0}
