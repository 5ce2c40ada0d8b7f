"""Sums of randomized responses: Bernstein's bound against exact tails, and sums of sums."""

import math

import pytest
from scipy import stats

from discreet.accounting.noise_distributions.randomized_response import ReportLaw, joined


def signs(users: int, size: float = 1.0, cells: int = 1) -> ReportLaw:
    """Return the law of a sum of fair signs of this size."""
    square = size**2
    return ReportLaw(
        square, 0.0, square, 0.0, square, size, square, size, users, users, cells, cells
    )  # fmt: skip


@pytest.mark.parametrize("users", [1, 30, 1000])
@pytest.mark.parametrize("failure", [1e-6, 0.01, 0.3])
def test_the_bound_holds_for_sums_of_signs(users: int, failure: float) -> None:
    law = signs(users, 2.0)
    edge = law.bound(failure)
    ones = math.floor((users - edge / 2.0) / 2 - 1e-9)  # a sum below -edge has at most so many
    assert 2 * stats.binom.cdf(ones, users, 0.5) <= failure
    assert edge <= users * 2.0
    assert law.std() == law.std_bound() == pytest.approx(2.0 * math.sqrt(users))


def test_more_cells_and_smaller_shares_widen_the_bound() -> None:
    one, many = signs(1000), signs(1000, cells=50)
    assert one.bound(0.1 / 50) == pytest.approx(many.bound(0.1))
    with pytest.raises(ValueError, match="failure = "):
        one.bound(0.0)


def test_variances_of_users_add_up() -> None:
    first, second = signs(100, 1.0), signs(300, 3.0)
    both = joined([first, second])
    assert both.std() ** 2 == pytest.approx(first.std() ** 2 + second.std() ** 2)
    assert (both.terms, both.reach) == (400, 3.0)
    assert joined([first]) is first
    assert joined([signs(0, 1.0), signs(0, 3.0)]).worst == 9.0  # nobody came: the larger one
