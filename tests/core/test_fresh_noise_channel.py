"""Batches with fresh noise: each is measured once, and its users move no other measurement."""

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan, Release, Schedule
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectories, Trajectory
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


def records(n: int, state: int) -> Trajectories:
    """Users who stay in one state."""
    return Trajectories(np.full((n, 4), state), np.zeros((n, 3), int), np.full((n, 3), 0.5))


@pytest.mark.parametrize("release", ["batches", "decaying"])
def test_a_late_user_counts_in_the_open_batch(release: str) -> None:
    """Absent in the first batch, counted in the second one, which then has more records than users."""
    options = {"decay": 0.7} if release == "decaying" else {}
    found = []
    for late in (False, True):
        session = dr.Central(epsilon=1.0, delta=1e-6, release=release, **options).start(
            QUERY, SCHEDULE, Seeded(3)
        )
        session.release()
        session.begin(Plan(PLAN, 4))
        session.submit_many(records(2, 0), 1)
        session.absent(2)
        one = session.release()
        session.begin(Plan(PLAN, 4))
        with pytest.raises(ValueError, match="trajectories"):
            session.submit_many(records(3, 1), 2, late=True)  # only two are absent
        with pytest.raises(ValueError, match="plan = 1"):
            session.submit_many(records(1, 1), 1, late=True)
        if late:
            session.submit_many(records(2, 1), 2, late=True)
        assert session.users == 4
        session.submit_many(records(4, 0), 2)
        found.append((one, session.release()))
        session.close()
    (first, second), (same, more) = found
    visits = "visits"
    assert np.array_equal(first.estimates[visits].value, same.estimates[visits].value)
    moved = more.measurement.estimates[visits].value - second.measurement.estimates[visits].value
    assert moved.sum() == pytest.approx(6.0 * (1.0 if release == "batches" else np.sqrt(1 - 0.7**2)))
    assert more.users == second.users == 8
    assert more.measurement.estimates[visits].covers == second.measurement.estimates[visits].covers


def test_late_users_need_separate_noise() -> None:
    session = dr.Central(epsilon=1.0, release="tree").start(QUERY, Schedule(13), Seeded(3))
    session.release()
    session.begin(Plan(PLAN, 1))
    session.absent()
    session.release()
    session.begin(Plan(PLAN, 1))
    with pytest.raises(ValueError, match="late = True"):
        session.submit_many(records(1, 0), 2, late=True)
    session.close()
