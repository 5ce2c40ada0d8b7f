"""Names of mechanisms tell one noise strategy from another, and say what else holds."""

import pytest

import discreet as dr
from discreet.accounting.text.mechanism_names import name_of
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Schedule
from discreet.core.rng import Seeded

QUERY, SCHEDULE = CountQuery(Layout(2, 2, 3)), Schedule(20)
READING = Schedule(20, reads="measurements")


@pytest.mark.parametrize(
    ("release", "begin"),
    [("tree", "binary tree, a leaf is a batch"), ("batches", "one noisy sum for each scheduled batch")],
)
def test_a_name_is_that_of_the_strategy(release: str, begin: str) -> None:
    mechanism = dr.Central(epsilon=1.0, release=release).mechanism(QUERY, SCHEDULE, Seeded(0))
    assert name_of(mechanism).startswith(begin)
    assert name_of(mechanism) in str([record.mechanism for record in mechanism.records])


def test_streams_without_an_end_have_trees_that_grow() -> None:
    mechanism = dr.Central(epsilon=1.0).mechanism(QUERY, Schedule(None), Seeded(0))
    assert "epochs of 1, 2, 4, ... users" in name_of(mechanism)
    assert "e + 1 times the scales" in name_of(mechanism)


def test_groups_are_mentioned() -> None:
    query = CountQuery(Layout(2, 2, 3), groups=2, clip=1.5, return_share=0.2)
    mechanism = dr.Central(epsilon=1.0, delta=1e-6, release="batches").mechanism(query, READING, Seeded(0))
    assert "returns clipped at 1.5 are summed over public groups" in name_of(mechanism)
