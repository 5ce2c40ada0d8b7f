"""Shares of a budget: they sum to 1 over what one release holds."""

from typing import Any

import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.mechanisms.privatizers.base import checked_weights, shares_of

LAYOUT = Layout(3, 2, 4)


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({}, (1 / 3, 1 / 3, 1 / 3)),
        ({"visits": False}, (0.5, 0.5)),
        ({"reward_share": 0.2}, (0.4, 0.4, 0.2)),
        ({"visits": False, "pooled": "all", "pooled_share": 0.4}, (0.3, 0.3, 0.2, 0.2)),
        ({"visits": False, "groups": 2, "clip": 1.0, "return_share": 0.2}, (0.4, 0.4, 0.2)),
    ],
)
def test_shares_of_one_release_sum_to_one(options: dict[str, Any], shares: tuple[float, ...]) -> None:
    query = CountQuery(LAYOUT, **options)
    assert shares_of(query) == pytest.approx(shares)
    assert len(shares) == len(query.row_families)


def test_clipped_rewards_have_the_share_of_those_that_they_replace() -> None:
    shares = shares_of(CountQuery(LAYOUT, visits=False, center_rewards=True, cut=2.0))
    assert shares == pytest.approx((0.5, 0.5, 0.5))


def test_given_weights_replace_the_shares_and_must_fit() -> None:
    query = CountQuery(LAYOUT)
    assert shares_of(query, checked_weights([0.5, 0.25, 0.25])) == (0.5, 0.25, 0.25)
    with pytest.raises(ValueError, match="must have 3"):
        shares_of(query, (0.5, 0.5))
    for bad in ([0.5, 0.6], [1.5, -0.5], 1.0, [0.5, 0.0, 0.5]):
        with pytest.raises(ValueError, match="weights"):
            checked_weights(bad)
