"""Noise under shuffle rests on the honest alone."""

import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.mechanisms.privatizers.shuffle import Shuffle

LAYOUT = Layout(2, 2, 3)


QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)


def test_noise_rests_on_the_honest_alone():
    """With a share of 1/4 dishonest, what three quarters of the users add meets the budget by itself."""
    careful, plain = Shuffle(epsilon=1.0, dishonest=0.25), Shuffle(epsilon=1.0)
    for users in (10, 1000, 50_000):
        noise = dict(careful.noise(QUERY, users))
        assert {flips.users for flips in noise.values()} == {users - users // 4}
        assert noise == dict(plain.noise(QUERY, users - users // 4))
    assert [careful.honest(n) for n in (1, 3, 4, 100)] == [1, 3, 3, 75]
    with pytest.raises(ValueError, match="dishonest"):
        Shuffle(epsilon=1.0, dishonest=1.0)
