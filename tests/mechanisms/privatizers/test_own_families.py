"""Sessions of queries of any families: sums, noise, guarantee, and what is refused."""

from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.epsilon_conversions import gdp_epsilon
from discreet.core.exchange import EACH_STEP, FIRST_VISITS, OneStep
from discreet.core.families import rewards, transitions, visits
from discreet.core.layout import Layout
from discreet.core.query import FamilyQuery
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.core.vectors import BoundedVector
from discreet.mechanisms.open_session import session_of

LAYOUT = Layout(3, 2, 2)
SCHEDULE = Schedule(12, np.array([0, 4, 8]), reads="measurements")
POLICY = np.zeros((2, 3), np.int64)


def weighed(record: Trajectory, context: Any) -> np.ndarray:
    return context["w"] * record.rewards.sum()


VECTOR = BoundedVector("x", 3, 2.0, weighed)
QUERY = FamilyQuery(LAYOUT, (visits(), rewards(0.5, OneStep(1)), transitions(FIRST_VISITS, "first"), VECTOR))


def people(n: int) -> Trajectories:
    rng = np.random.default_rng(n)
    return Trajectories(rng.integers(3, size=(n, 3)), rng.integers(2, size=(n, 2)), rng.random((n, 2)))


def plan(users: int, weights: Any = (1.0, -1.0, 3.0)) -> Plan:
    return Plan(POLICY, users, context={"w": np.array(weights)})


@pytest.mark.parametrize("many", [False, True])
def test_without_noise_the_sums_are_those_of_the_definition(many: bool) -> None:
    who = people(4)
    with dr.NoPrivacy().start(QUERY, SCHEDULE, Seeded(0)) as session:
        session.release()
        session.begin(plan(4))
        if many:
            session.submit_many(who, 1)
        else:
            for one in who:
                session.submit(one)
        release = session.release()
    found = {name: estimate.value for name, estimate in release.estimates.items()}
    own = np.zeros(QUERY.cells)
    for one in who:
        QUERY.add(one, {"w": np.array([1.0, -1.0, 3.0])}, None, own)
    for name, table in QUERY.from_cells(own).items():
        assert np.array_equal(found[name], table)
    assert found["visits"].sum() == 8
    assert release.measurement is not None
    assert np.array_equal(release.measurement.estimates["x"].value, found["x"])


@pytest.mark.parametrize("source", [Seeded(3), Secure(64)], ids=["seeded", "secure"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_printed_guarantee_is_that_of_the_scales(source: Any, noise: str) -> None:
    private = dr.Central(epsilon=2.0, delta=None if noise == "laplace" else 1e-6, noise=noise)
    mechanism = private.mechanism(QUERY, SCHEDULE, source)
    norm = "l1" if noise == "laplace" else "l2"
    loss = mechanism.query.sensitivity(norm, dict(zip(QUERY.families, 1 / mechanism.scales, strict=True)))
    claim = mechanism.guarantee
    assert claim.epsilon == pytest.approx(2.0)
    if noise == "laplace":
        assert loss == pytest.approx(2.0)
    elif isinstance(source, Seeded):
        assert gdp_epsilon(loss, 1e-6) == pytest.approx(2.0)
    assert "keeps nothing between users" in claim.statement.split(".")[0]
    assert claim.rests_on == VECTOR.rests_on
    assert type(claim).from_dict(claim.to_dict()) == claim
    with session_of(mechanism, source) as session:
        session.release()
        session.begin(plan(4))
        session.submit_many(people(4), 1)
        release = session.release()
        for name, estimate in release.estimates.items():
            assert estimate.law.family.endswith(noise) or estimate.law.family == noise
            if isinstance(source, Secure):
                grid = 1 if QUERY.integral(name) else 64
                assert np.array_equal(estimate.value * grid, np.rint(estimate.value * grid))


def test_noise_of_each_family_has_its_scale() -> None:
    """4 000 sessions a case; the mean square is within 5.5 standard errors (false alarm 4e-8 a family)."""
    private = dr.Central(epsilon=2.0, delta=1e-6, noise="gaussian")
    query = FamilyQuery(LAYOUT, (visits(), BoundedVector("x", 40, 2.0, lambda record, context: np.zeros(40))))
    mechanism = private.mechanism(query, SCHEDULE, Seeded(0))
    squares: dict[str, list[np.ndarray]] = {"visits": [], "x": []}
    for run in range(220):
        with session_of(mechanism, Seeded(7, run)) as session:
            session.release()
            session.begin(Plan(POLICY, 4))
            session.absent(4)
            for name, estimate in session.release().estimates.items():
                squares[name].append((estimate.value.ravel() / estimate.law.std()) ** 2)
    for name, found in squares.items():
        values = np.concatenate(found)
        assert abs(values.mean() - 1.0) < 5.5 * np.sqrt(2.0 / values.size), name


def test_a_plan_is_public_before_its_users_act() -> None:
    weights = np.array([1.0, 2.0, 3.0])
    with dr.NoPrivacy().start(QUERY, SCHEDULE, Seeded(0)) as session:
        session.release()
        session.begin(Plan(POLICY, 4, context={"w": weights}))
        weights[:] = 100.0
        session.submit_many(people(4), 1)
        value = session.release().estimates["x"].value
    assert np.allclose(value / value[0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("privatizer", "query", "message"),
    [
        (dr.Central(epsilon=1.0, release="tree"), QUERY, "release = 'tree'"),
        (dr.Local(epsilon=1.0), QUERY, "CountQuery"),
        (dr.Shuffle(epsilon=1.0, delta=1e-6), QUERY, "CountQuery"),
        (dr.Central(epsilon=1.0), FamilyQuery(LAYOUT, (visits(),), 2), "episodes"),
    ],
    ids=["tree", "local", "shuffle", "episodes"],
)
def test_what_such_a_query_cannot_have_is_refused(privatizer: Any, query: FamilyQuery, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        privatizer.mechanism(query, SCHEDULE, Seeded(0))


def test_centers_lie_on_the_grid_of_exact_noise() -> None:
    """Otherwise data would decide whether a release is refused."""
    query = FamilyQuery(LAYOUT, (rewards(0.25),))
    with pytest.raises(ValueError, match=r"center = 0\.25: must be a multiple of 1 / 2"):
        dr.Central(epsilon=1.0).mechanism(query, SCHEDULE, Secure(2))
    assert dr.Central(epsilon=1.0).mechanism(query, SCHEDULE, Secure(4)).guarantee.epsilon == pytest.approx(
        1.0
    )


def test_counts_of_families_can_be_saved_and_vectors_cannot(tmp_path: Any) -> None:
    counts = FamilyQuery(LAYOUT, (visits(EACH_STEP), transitions(FIRST_VISITS, "first")))
    for query, fits in ((counts, True), (QUERY, False)):
        session = dr.Central(epsilon=1.0).start(query, SCHEDULE, Seeded(0))
        session.release()
        session.begin(plan(4))
        path = tmp_path / f"{fits}.state"
        if fits:
            session.save(path)
            session = dr.mechanisms.restore(path, tmp_path)
        else:
            with pytest.raises(ValueError, match="cannot be saved"):
                session.save(path)
        session.submit_many(people(4), 1)
        assert session.release().users == 4
        assert not path.exists()
