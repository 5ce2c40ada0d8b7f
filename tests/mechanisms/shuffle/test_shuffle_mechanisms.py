"""Batches and flips of the shuffle protocol, in public numbers."""

import numpy as np
import pytest

from discreet.accounting.binomial_noise import COIN, Flips
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS
from discreet.core.layout import Layout
from discreet.core.releases import Schedule
from discreet.mechanisms.shuffle.shuffle_mechanisms import batch_ends, flips_of, form_of

QUERY = CountQuery(Layout(2, 2, 3), center_rewards=True)


def test_every_user_is_in_a_batch_also_after_the_last_release() -> None:
    assert batch_ends(Schedule(10, times=np.array([0, 4, 8]))).tolist() == [4, 8, 10]
    with pytest.raises(ValueError, match="size of every batch"):
        batch_ends(Schedule(None, times=np.array([0, 4])))


def test_flips_have_the_mean_and_variance_of_their_coins() -> None:
    noise = ("visits", Flips(10, 3, COIN // 4)), (CENTERED_REWARDS, Flips(10, 2, COIN // 8, True))
    form = form_of(QUERY, noise, 5)
    assert (form.session, len(form.families)) == (5, 2)
    plain, paired = (flips_of(family, 10) for family in form.families)
    assert plain == ((30, 0.25),)
    assert sum(n * p for n, p in paired) == pytest.approx(20 / 2)  # half of them are of the complement
    assert sum(n * p * (1 - p) for n, p in paired) == pytest.approx(20 * 7 / 64)
