"""Feature maps that fit are not refuted (false alarms: 1e-6 each, seeds fixed); maps that do not, are."""

import math

import numpy as np
import pytest

import discreet as dr

WORLD = dr.make("linear-mdp", states=5, actions=3, horizon=4, dimension=3)
OTHER = dr.Features(np.random.default_rng(0).dirichlet(np.ones(3), size=(5, 3)))


def released(users: int, privatizer: dr.Privatizer) -> dr.Release:
    people = dr.learners.SimulatedDataset(WORLD, dr.envs.uniform_policy(WORLD), users, 3)
    once = dr.Schedule(users, times=(0, users), final=True)
    return dr.learners.make_release(
        people, dr.mechanisms.CountQuery(WORLD.layout), once, privatizer, dr.Seeded(1)
    )


def test_a_known_world_is_projected() -> None:
    assert dr.experiments.check_features(WORLD).fits
    assert dr.experiments.check_features(dr.make("linear-mixture")).fits
    found = dr.experiments.check_features(WORLD, OTHER)
    assert not found.fits
    assert (found.failure, found.seen) == (0.0, 1.0)
    h, after = found.where or (-1, -1)
    design, target = OTHER.rows, WORLD.transitions[h].reshape(15, 5)
    normal = design @ np.linalg.solve(design.T @ design, design.T @ target)  # the normal equations
    assert np.abs(target - normal).max() == pytest.approx(found.transitions)
    assert np.abs(target - normal)[:, after].max() == pytest.approx(found.transitions)


@pytest.mark.parametrize("privatizer", [dr.NoPrivacy(), dr.Central(epsilon=1.0, delta=1e-6)])
def test_a_release_refutes_a_map_that_does_not_fit(privatizer: dr.Privatizer) -> None:
    release = released(20_000, privatizer)
    assert dr.experiments.check_features(release, WORLD.features).fits
    found = dr.experiments.check_features(release, OTHER)
    assert not found.fits
    assert found.failure == 1e-6
    assert 0.02 < found.transitions <= dr.experiments.check_features(WORLD, OTHER).transitions
    assert str(found).endswith("false alarm at most 1e-06")
    few = dr.experiments.check_features(released(20, privatizer), OTHER)
    assert few.fits
    assert "not refuted by 0% of the pairs" in str(few)


def test_one_hot_features_fit_every_world() -> None:
    tabular = dr.Features(np.eye(15).reshape(5, 3, 15))
    assert dr.experiments.check_features(released(20_000, dr.NoPrivacy()), tabular).fits


def test_a_simulation_says_that_the_features_do_not_fit() -> None:
    world = dr.TabularMDP(WORLD.transitions, WORLD.rewards, WORLD.initial, features=OTHER)
    with pytest.warns(UserWarning, match="LSVIUCB: the features do not fit: probabilities are off by 0.4"):
        dr.experiments.Setup(world, dr.LSVIUCB(), dr.NoPrivacy(), 100)
    dr.experiments.Setup(world, dr.DPUCBVI(), dr.NoPrivacy(), 100)  # reads no features


def test_what_cannot_be_tested_is_refused() -> None:
    with pytest.raises(ValueError, match="features = None: must be given, this world has none"):
        dr.experiments.check_features(dr.make("riverswim"))
    with pytest.raises(ValueError, match="source is a int: must be a TabularMDP or a Release"):
        dr.experiments.check_features(3)  # type: ignore[arg-type]
    release = released(20, dr.NoPrivacy())
    with pytest.raises(ValueError, match=r"features = None: must be Features\(table, bound\)"):
        dr.experiments.check_features(release)
    with pytest.raises(ValueError, match="features are of S = 2, A = 2: the release is of S = 5, A = 3"):
        dr.experiments.check_features(release, dr.Features(np.ones((2, 2, 1))))
    with pytest.raises(ValueError, match="failure"):
        dr.experiments.check_features(release, OTHER, math.nan)
