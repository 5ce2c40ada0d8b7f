"""Sessions of contexts: order of calls, records, plans, saved states."""

import numpy as np
import pytest

import discreet as dr
from discreet.core.releases import Plan, Schedule
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM, GRID, RESPONSE
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecord, ContextRecords
from discreet.mechanisms.linear.context_session import ContextChannel

QUERY = ContextQuery(features=FeatureMap({"a": (-1, 1), "b": (-1, 1)}, 3))
PLAN = np.zeros((3, 3))
PRIVATIZERS = {
    "none": dr.NoPrivacy(),
    "central": dr.Central(epsilon=2.0, delta=1e-6),
    "pure": dr.Central(epsilon=2.0),
}


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    return ContextRecords(
        rng.normal(size=(n, 1, 2)), rng.integers(0, 3, (n, 1)), rng.integers(0, 5, (n, 1)) / 4
    )


def opened(privatizer, source, n=20):
    schedule = Schedule(n, times=np.array([0, n // 2, n]), final=True, reads="measurements")
    return privatizer.start(QUERY, schedule, source)


@pytest.mark.parametrize("name", ["central", "pure"])
def test_integer_sums_of_exact_noise_are_the_same_one_by_one_or_together(name):
    """Bit for bit; rewards are on the grid, so that rounding does not move them."""
    cells = []
    for together in (True, False):
        with opened(PRIVATIZERS[name], dr.Secure()) as session:
            session.release()
            session.begin(Plan(PLAN, 10))
            if together:
                session.submit_many(people(10), 1)
            else:
                for one in people(10):
                    session.submit(one)
            cells.append(session.state["cells"].copy())
    assert np.array_equal(cells[0], cells[1])
    assert np.array_equal(cells[0], np.rint(cells[0]))
    assert cells[0].any()


def test_rewards_of_records_together_are_rounded_without_bias():
    """10 000 rewards 0.3 / 1024 become 0 or 1 / 1024: their mean within six standard errors, 2e-9."""
    n = 10_000
    with opened(PRIVATIZERS["central"], dr.Secure(), 2 * n) as session:
        session.release()
        session.begin(Plan(PLAN, n))
        x = np.full((n, 1, 2), 1.0)
        session.submit_many(ContextRecords(x, np.zeros((n, 1), int), np.full((n, 1), 0.3 / 1024)), 1)
        phi = np.trunc(QUERY.features([1.0, 1.0]) / GRID)
        response = session.state["cells"][-9:-6]  # three blocks of three features; all users took action 0
    rounded = response / phi / n + 512
    assert session.channel.grid == 1024
    assert rounded == pytest.approx(np.full(3, rounded[0]))
    assert rounded[0] == pytest.approx(0.3, abs=6 * np.sqrt(0.3 * 0.7 / n))


@pytest.mark.parametrize("name", PRIVATIZERS)
def test_records_one_by_one_or_together_make_the_same_sums(name):
    releases = []
    for together in (True, False):
        with opened(PRIVATIZERS[name], dr.Seeded(3)) as session:
            assert isinstance(session.channel, ContextChannel)
            session.release()
            session.begin(Plan(PLAN, 10))
            records = people(10)
            if together:
                session.submit_many(records, 1)
            else:
                for one in records:
                    session.submit(one)
            releases.append(session.release().estimates)
    for family in (GRAM, RESPONSE):
        assert releases[0][family].value == pytest.approx(releases[1][family].value, abs=1e-12)


def test_exact_sums_without_privacy_are_the_contributions():
    with opened(dr.NoPrivacy(), dr.Secure()) as session:
        session.release()
        session.begin(Plan(PLAN, 10))
        session.submit_many(people(10), 1)
        found = session.release().estimates
    for family in (GRAM, RESPONSE):
        exact = sum(QUERY.contribution(one)[family] for one in people(10))
        assert found[family].value == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("source", [dr.Seeded(5), dr.Secure()])
def test_a_saved_state_goes_on_once(source, tmp_path):
    session = opened(dr.Central(epsilon=2.0, delta=1e-6), source)
    session.release()
    session.begin(Plan(PLAN, 10))
    session.submit_many(people(10), 1)
    session.release()
    session.save(tmp_path / "state")
    again = dr.mechanisms.restore(tmp_path / "state")
    again.begin(Plan(PLAN, 10))
    again.submit_many(people(10, 1), 2)
    last = again.release()
    again.close()
    assert last.users == 20
    if isinstance(source, dr.Seeded):
        with opened(dr.Central(epsilon=2.0, delta=1e-6), source) as other:
            other.release()
            for i in range(2):
                other.begin(Plan(PLAN, 10))
                other.submit_many(people(10, i), i + 1)
                whole = other.release()
        assert np.array_equal(whole.estimates[GRAM].value, last.estimates[GRAM].value)
    with pytest.raises(FileNotFoundError):
        dr.mechanisms.restore(tmp_path / "state")


def test_other_plans_and_records_are_refused():
    with opened(dr.Central(epsilon=2.0, delta=1e-6), dr.Seeded(1)) as session:
        session.release()
        for policy in (np.zeros((2, 3)), np.full((3, 3), np.nan), np.zeros((3, 3), bool)):
            with pytest.raises(ValueError, match=r"plan.policy has shape .* must be \(3, 3\) finite"):
                session.begin(Plan(policy, 10))
        session.begin(Plan(PLAN, 10))
        with pytest.raises(ValueError, match="message is a Trajectory"):
            session.submit(dr.Trajectory(np.zeros(2, int), np.zeros(1, int), np.zeros(1)))
        with pytest.raises(ValueError, match="trajectories is a ContextRecord: must be ContextRecords"):
            session.submit_many(next(iter(people(1))), 1)
        with pytest.raises(ValueError, match=r"records.actions\[1, 0\] = 9"):
            session.submit_many(
                ContextRecords(np.zeros((2, 1, 2)), np.array([[0], [9]]), np.zeros((2, 1))), 1
            )
        assert session.users == 0
        session.submit(ContextRecord(np.full((1, 2), np.nan), np.array([0]), np.array([1.0])))
        assert session.users == 1


def test_raw_records_never_reach_a_local_session():
    with opened(dr.Local(epsilon=2.0, delta=1e-6), dr.Seeded(1)) as session:
        session.release()
        session.begin(Plan(PLAN, 10))
        with pytest.raises(ValueError, match="local"):
            session.submit_many(people(10), 1)
        with pytest.raises(ValueError, match="must be"):
            session.submit(next(iter(people(1))))


@pytest.mark.parametrize("name", ["central", "none"])
def test_late_records_need_separate_noise_and_add_what_others_add(name):
    every, sums = people(15), []
    for late in (0, 5):
        with opened(PRIVATIZERS[name], dr.Seeded(3)) as session:
            session.release()
            session.begin(Plan(PLAN, 10))
            session.absent(10)
            session.release()
            before = session.state["cells"].copy()
            session.begin(Plan(PLAN, 10))
            parts = [ContextRecords(*(getattr(every, one)[at] for one in ("contexts", "actions", "rewards")))
                     for at in (slice(10, 15), slice(0, 10))]  # fmt: skip
            if late and name == "none":
                with pytest.raises(ValueError, match="late = True"):
                    session.submit_many(parts[0], 2, late=True)
            elif late:
                session.submit_many(parts[0], 2, late=True)
                with pytest.raises(ValueError, match="len"):
                    session.submit_many(people(6), 2, late=True)  # five are still absent
            session.submit_many(parts[1], 2)
            assert session.users == 20
            sums.append(session.state["cells"] - before)
    if name == "central":
        own = QUERY.to_cells(QUERY.sums_of(parts[0]))
        assert np.allclose(sums[1] - sums[0], own, atol=1e-12)
