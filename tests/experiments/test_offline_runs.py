"""Data sets through the one door: one by one, at once, and by their law; secure and local ones too."""

import numpy as np
import pytest

import discreet as dr
from discreet.experiments.offline_runs import SimulatedDataset, learn_offline, make_release
from discreet.learners.offline.apvi import APVI, DPAPVI

H = 3
MDP = dr.make("random", states=3, actions=2, horizon=H, seed=1)
UNIFORM = dr.envs.uniform_policy(MDP)
SPEC = dr.mechanisms.ProblemSpec(MDP.layout)


def test_records_and_simulated_people_give_the_same_release() -> None:
    """Played one by one under the same luck, the records of a data set add up to its counts' marginals."""
    data = SimulatedDataset(MDP, UNIFORM, 500, seed=3)
    (records,) = data.chunks()
    learner = DPAPVI()
    release = make_release(records, learner.query(SPEC), learner.schedule(500), dr.NoPrivacy(), dr.Seeded(0))
    moves = release.estimates["transition_counts"].value
    assert moves.sum() == 500 * H
    np.testing.assert_array_equal(moves[0].sum(axis=(1, 2)), [500, 0, 0])
    assert release.users == 500
    assert release.number == 1


def test_counts_of_ten_million_people_follow_their_law() -> None:
    """n = 1e7 at once; every cell within 6 standard deviations of its mean (rate < 1e-6 over 18 cells)."""
    n = 10**7
    learner = APVI()
    release = make_release(
        SimulatedDataset(MDP, UNIFORM, n),
        learner.query(SPEC),
        learner.schedule(n),
        dr.NoPrivacy(),
        dr.Seeded(0),
    )
    d = dr.envs.occupancy(MDP, UNIFORM)
    assert (np.abs(release.estimates["visits"].value - n * d) <= 6 * np.sqrt(n * d * (1 - d)) + 1e-9).all()


def test_secure_noise_is_for_records() -> None:
    """Simulated people under exact noise are played one by one; so are records."""
    data = SimulatedDataset(MDP, UNIFORM, 300)
    central = dr.Central(epsilon=2.0, delta=1e-6)
    learned = learn_offline(data, DPAPVI(), central, dr.Secure(), SPEC)
    assert learned.users == 300
    assert learned.guarantee.epsilon is not None
    assert learned.guarantee.epsilon <= 2.0 + 1e-9
    records = next(data.chunks())
    assert learn_offline(records, DPAPVI(), dr.Central(epsilon=2.0), dr.Secure(), SPEC).noise_error > 0


@pytest.mark.parametrize("mechanism", ["laplace", "subset"])
def test_devices_report_for_themselves(mechanism: str) -> None:
    data = SimulatedDataset(MDP, UNIFORM, 40, seed=2)
    local = dr.Local(epsilon=3.0, randomizer=mechanism)  # type: ignore[arg-type]
    by_law = learn_offline(data, DPAPVI(), local, dr.Seeded(0), SPEC)
    one_by_one = learn_offline(next(data.chunks()), DPAPVI(), local, dr.Seeded(0), SPEC)
    assert by_law.threshold == one_by_one.threshold > 0
    assert by_law.guarantee.trust == "local"


def test_equal_seeds_equal_policies() -> None:
    data = SimulatedDataset(MDP, UNIFORM, 1000, seed=5)
    first, again, other = (
        learn_offline(data, DPAPVI(), dr.Central(rho=0.1), dr.Seeded(seed)).q for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="spec"):
        learn_offline(
            next(SimulatedDataset(MDP, UNIFORM, 5).chunks()), DPAPVI(), dr.NoPrivacy(), dr.Seeded(0)
        )
    with pytest.raises(ValueError, match="users"):
        SimulatedDataset(MDP, UNIFORM, 0)
    other = dr.make("random", states=4, actions=2, horizon=H)
    with pytest.raises(ValueError, match="layout"):
        learn_offline(
            SimulatedDataset(other, dr.envs.uniform_policy(other), 5),
            DPAPVI(),
            dr.NoPrivacy(),
            dr.Seeded(0),
            SPEC,
        )
