"""Ways to replace a user: known only where each cell contains one record of a user."""

import numpy as np

from discreet.accounting.user_shifts import shifts, shifts_of
from discreet.core.count_query import CountQuery
from discreet.core.families import rewards, transitions, visits
from discreet.core.layout import Layout
from discreet.core.query import FamilyQuery
from discreet.core.vectors import BoundedVector

LAYOUT = Layout(2, 2, 2)


def test_one_way_suffices_if_other_changes_most() -> None:
    assert shifts(FamilyQuery(LAYOUT, (visits(), transitions()))) == (
        (("visits", 1.0, 4), ("transition_counts", 1.0, 4)),
    )


def test_centred_rewards_have_one_way_for_each_number_of_steps_in_other() -> None:
    found = shifts_of((transitions(), rewards(0.5)), 2)
    name = "centered_reward_sums"
    assert found == (
        (("transition_counts", 1.0, 2), (name, 1.0, 2)),
        (("transition_counts", 1.0, 4), (name, 0.5, 2), (name, 1.0, 1)),
        (("transition_counts", 1.0, 4), (name, 0.5, 4)),
    )


def test_the_worst_way_is_unknown_for_pooled_steps_several_episodes_and_own_bounds() -> None:
    vector = BoundedVector("x", 3, 1.0, np.sum)
    for query in (
        CountQuery(LAYOUT, pooled="first", groups=2, clip=2.0),
        FamilyQuery(LAYOUT, (visits(), transitions()), 3),
        FamilyQuery(LAYOUT, (visits(), vector)),
        CountQuery(LAYOUT, stationary=True),
    ):
        assert shifts(query) is None
