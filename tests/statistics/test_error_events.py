"""Spec 10.12: how often any released cell is beyond its stated bound, over whole sessions.

S = A = H = 2, K = 64, a release after each user, failure 0.2 divided among three families. False alarm of a
check: 5 standard errors, 3e-7, for three privatizers 9e-7, if the bound were met with equality; in fact the
union bound leaves room. The check has power: bounds of half the noise fail in nearly every run.
"""

import numpy as np
import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.seeded_rng import SeededRng

RUNS, USERS, FAILURE = 2000, 64, 0.2
QUERY = CountQuery(Layout(2, 2, 2))


@pytest.mark.statistics
@pytest.mark.parametrize(
    "privatizer",
    [Central(epsilon=1.0, release="tree"), Central(epsilon=1.0), Local(epsilon=1.0, noise="laplace")],
    ids=["tree", "central", "local"],
)
def test_error_events_are_as_rare_as_stated(privatizer):
    rng = np.random.default_rng(5)
    people = [
        Trajectory(rng.integers(2, size=3), rng.integers(2, size=2), rng.random(2)) for _ in range(USERS)
    ]
    truth = np.cumsum([QUERY.to_cells(QUERY.contribution(person)) for person in people], axis=0)
    plan = Plan(np.zeros((2, 2), np.int64))
    with privatizer.start(QUERY, Schedule(USERS), Seeded(0)) as session:
        laws = [session.laws_at(n) for n in range(1, USERS)]
    sizes = np.diff(QUERY.offsets)
    bounds = np.array(
        [np.repeat([law[name].bound(FAILURE / 3) for name in QUERY.row_families], sizes) for law in laws]
    )
    broken = np.zeros(2, int)
    for run in range(RUNS):
        source = Seeded(1, run)
        released = np.empty((USERS - 1, QUERY.cells))
        with privatizer.start(QUERY, Schedule(USERS), source) as session:
            assert not any(e.value.any() for e in session.release().estimates.values())
            for n in range(1, USERS):
                encoder = session.begin(plan)
                coins = SeededRng(source.keys.noise, n)
                session.submit(encoder(people[n - 1], session.open_plan, coins))
                estimates = session.release().estimates.values()
                released[n - 1] = np.concatenate([e.value.ravel() for e in estimates])
        errors = np.abs(released - truth[:-1])
        broken += (errors > bounds).any(), (errors > bounds / 2).any()
    stated, halved = broken / RUNS
    assert stated <= FAILURE + 5 * np.sqrt(FAILURE * (1 - FAILURE) / RUNS)
    assert halved > 0.9
