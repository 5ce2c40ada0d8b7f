"""Schedules that end with a release after the last user: for stored data, never online."""

import math

import numpy as np
import pytest

import discreet as dr
from discreet.mechanisms.interfaces import Schedule

MDP = dr.make("random", states=3, actions=2, horizon=2, seed=1)
QUERY = dr.mechanisms.CountQuery(MDP.layout)
POLICY = np.zeros((2, 3), np.int64)


def run(privatizer: object, schedule: Schedule, randomness: object, users: int = 6) -> object:
    session = privatizer.start(QUERY, schedule, randomness)  # type: ignore[attr-defined]
    session.release()
    encoder = session.begin(dr.Plan(POLICY, users))
    for i, trajectory in enumerate(dr.envs.rollout_batch(MDP, POLICY, users)):
        from discreet.mechanisms.seeded_rng import SeededRng

        session.submit(encoder(trajectory, session.open_plan, SeededRng(dr.Seeded(0).keys.noise, i)))
    return session


def test_one_release_after_everybody() -> None:
    session = run(dr.NoPrivacy(), Schedule.one_shot(6), dr.Seeded(0))
    release = session.release()  # type: ignore[attr-defined]
    assert release.users == 6
    assert release.estimates["visits"].value.sum() == 12
    assert session.release() is release  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="at most 0 are left"):
        session.begin(dr.Plan(POLICY, 1))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "options", [{}, {"release": "tree"}, {"release": "tree", "leaf": "user"}, {"release": "batches"}]
)
def test_the_law_is_that_of_one_noise(options: dict[str, str]) -> None:
    """A lone release is one noisy sum, whatever the stream is called; the last leaf of a tree fits."""
    session = run(dr.Central(rho=0.5, **options), Schedule.one_shot(6), dr.Seeded(0))  # type: ignore[arg-type]
    release = session.release()  # type: ignore[attr-defined]
    levels = 3 if options.get("leaf") == "user" else 1
    law = release.estimates["visits"].law
    scale = math.sqrt(levels) * math.sqrt(6 * 2 / (2 * 0.5))
    assert session.mechanism.scales == pytest.approx(scale)  # type: ignore[attr-defined]
    assert law.std() == pytest.approx(scale * (math.sqrt(2) if levels == 3 else 1))
    assert law.bound(0.05) <= law.bound(0.01)


def test_auto_takes_one_batch() -> None:
    for randomness in (dr.Seeded(0), dr.Secure()):
        choices = dr.Central(epsilon=1.0, delta=1e-6).choices(QUERY, Schedule.one_shot(6), randomness)
        assert choices[0].release == "batches"
        assert {choice.walk for choice in choices} == {None}


@pytest.mark.parametrize("mechanism", ["laplace", "subset"])
def test_local_laws_count_the_last_user(mechanism: str) -> None:
    local = dr.Local(epsilon=1.0, randomizer=mechanism)  # type: ignore[arg-type]
    session = run(local, Schedule.one_shot(6), dr.Seeded(0))
    law = session.release().estimates["visits"].law  # type: ignore[attr-defined]
    assert law.std_bound() >= law.std() > 0
    if mechanism == "laplace":
        assert law.std() == pytest.approx(math.sqrt(6) * math.sqrt(2) * 6 * 2 / 1.0)


def test_online_schedules_stay_as_they_were() -> None:
    with pytest.raises(ValueError, match="must be below users = 5"):
        Schedule(5, np.array([0, 5]))
    with pytest.raises(ValueError, match="must be at most users = 5"):
        Schedule(5, np.array([0, 6]), final=True)
    for options in ({"users": 5}, {"users": None, "times": np.array([0, 5])}):
        with pytest.raises(ValueError, match="final"):
            Schedule(**options, final=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="users"):
        Schedule.one_shot(0)
    session = run(dr.NoPrivacy(), Schedule(6), dr.Seeded(0))
    with pytest.raises(RuntimeError, match="no user is left"):
        session.release()  # type: ignore[attr-defined]
