"""Checks of queries of batches."""

from dataclasses import replace

import numpy as np

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.mechanisms.interfaces import Schedule
from discreet.mechanisms.query_checks import standing_batch

MDP = dr.make("riverswim", states=3, horizon=4)


LAYOUT = MDP.layout


FINE = CountQuery(LAYOUT)


def test_the_standing_batch_is_as_large_as_the_last_one() -> None:
    """Reports are weighed against sums at its size."""
    schedule = Schedule(20, times=np.array([0, 6, 20]), final=True, plans="deterministic")
    assert standing_batch(schedule) is schedule
    last = standing_batch(replace(schedule, queries=(FINE, FINE)))
    assert last.release_times.tolist() == Schedule.one_shot(14).release_times.tolist()
    assert last.plans == "deterministic"
