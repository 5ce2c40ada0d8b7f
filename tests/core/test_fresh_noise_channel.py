"""Batches with fresh noise: each is measured once, and its users move no other measurement."""

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan, Release, Schedule
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.seeded_rng import SeededRng

QUERY = CountQuery(Layout(2, 2, 3))
PLAN = np.zeros((3, 2), np.int64)
SCHEDULE = Schedule(13, times=np.array([0, 4, 8, 12]), reads="measurements")


def releases(privatizer: dr.Central, states: np.ndarray) -> list[Release]:
    """Return all releases of a run whose users have these states (12, 4)."""
    session, found = privatizer.start(QUERY, SCHEDULE, Seeded(3)), []
    for n, path in enumerate(states):
        if n % 4 == 0:
            found.append(session.release())
            plan = Plan(PLAN, 4)
            encoder = session.begin(plan)
        record = Trajectory(path, np.zeros(3, np.int64), np.full(3, 0.5))
        session.submit(encoder(record, plan, SeededRng(Seeded(3).keys.noise, n)))
    return [*found, session.release()]


@pytest.mark.parametrize("release", ["batches", "decaying"])
def test_a_user_moves_the_measurement_of_their_batch_by_their_records_alone(release: str) -> None:
    options = {"decay": 0.7} if release == "decaying" else {}
    privatizer = dr.Central(epsilon=1.0, delta=1e-6, release=release, **options)
    states = np.random.default_rng(1).integers(2, size=(12, 4))
    other = states.copy()
    other[5] = 1 - states[5]  # in the second batch
    one, two = (releases(privatizer, table) for table in (states, other))
    moved = []
    for a, b in zip(one, two, strict=True):
        assert (a.measurement is None) == (b.measurement is None)
        if a.measurement is not None and b.measurement is not None:
            values = (x.measurement.estimates["visits"].value for x in (a, b))
            moved.append(float(np.abs(np.subtract(*values)).sum()))
    assert len(moved) >= 3
    assert moved[-3] == 0.0  # before they came
    assert 0.0 < moved[-2] <= 6.0 + 1e-9  # three visits elsewhere
    if release == "batches":
        assert moved[-2] == pytest.approx(6.0)
        assert moved[-1] == pytest.approx(0.0, abs=1e-9)  # closed: not counted again


def test_equal_batches_have_noise_of_their_own() -> None:
    privatizer = dr.Central(epsilon=1.0, delta=1e-6, release="batches")
    found = releases(privatizer, np.zeros((12, 4), np.int64))
    values = [one.measurement.estimates["visits"].value for one in found[-3:] if one.measurement]
    assert len(values) == 3
    assert (values[0] != values[1]).all()
    assert (values[1] != values[2]).all()
