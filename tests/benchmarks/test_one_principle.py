"""The learner with one principle: registration, its estimates, and the shares of explorers."""

import dataclasses
import math

import numpy as np
import pytest

import discreet as dr
from benchmarks.studies import compare_one_principle, one_principle
from discreet import registry
from discreet.experiments.simulate import Setup

WORLD = dr.make("random", states=4, actions=2, horizon=5, seed=7)


def test_the_registered_learner_learns_and_repeats_itself() -> None:
    learner = registry.build("learner", "one-principle")
    assert isinstance(learner, one_principle.OnePrinciple)
    setup = Setup(WORLD, learner, dr.Central(epsilon=10.0, delta=1e-6), 5000, "batch")
    first, again = (setup.run(3, 0).regret for _ in range(2))
    np.testing.assert_array_equal(first, again)
    uniform = 5000 * (setup.optimal_value - setup.uniform_value)
    assert first[-1] < 0.25 * uniform


def test_its_query_has_the_guarantee_of_the_default() -> None:
    spec = Setup(WORLD, dr.NoiseAwareUCBVI(), dr.Central(epsilon=1.0, delta=1e-6), 5000, "batch").spec
    queries = [learner.query(spec) for learner in (one_principle.OnePrinciple(), dr.NoiseAwareUCBVI())]
    mine, default = [
        {f.name: getattr(query, f.name) for f in dataclasses.fields(query) if f.name != "layout"}
        for query in queries
    ]
    assert mine == default


def test_blend_is_the_normal_posterior() -> None:
    mean, variance, weight = one_principle.blend(0.2, 0.5, 0.8, 0.25)
    precision = 1.0 / 0.5 + 1.0 / 0.25
    assert math.isclose(mean, (0.2 / 0.5 + 0.8 / 0.25) / precision)
    assert math.isclose(variance, 1.0 / precision)
    assert math.isclose(weight, (1.0 / 0.25) / precision)
    assert one_principle.blend(0.2, 0.5, math.nan, math.inf) == (0.2, 0.5, 0.0)


def test_mixed_has_the_fixed_point_of_em() -> None:
    logs = np.log(np.random.default_rng(5).dirichlet(np.ones(3), 40))
    first = np.array([0.5, 0.3, 0.2])
    shares, chances = one_principle.mixed(logs, first, 2.0)
    np.testing.assert_allclose(chances.sum(1), 1.0)
    np.testing.assert_allclose(shares, (2.0 * first + chances.sum(0)) / 42.0)
    np.testing.assert_allclose(shares.sum(), 1.0)


def test_a_step_keeps_its_own_data_only_where_steps_differ() -> None:
    errors = np.full((12, 2), 0.01)
    squares = np.stack([errors[:, 0], np.full(12, 0.3)], axis=1)
    own, spare = one_principle.scales(squares, errors, 2.0, 1.0)
    assert (own[:, 0] < 0.5).all()
    assert (own[:, 1] > 0.9).all()
    assert spare[0] < spare[1]


@pytest.mark.parametrize("row", [[0.2, 0.3, 0.5], [1.4, -0.2, -0.2], [-1.0, -1.0, -1.1]])
def test_simplex_is_the_nearest_distribution(row: list[float]) -> None:
    found = one_principle._simplex(np.array(row))
    grid = np.linspace(0.0, 1.0, 101)
    every = np.array([(a, b, 1.0 - a - b) for a in grid for b in grid if a + b <= 1.0 + 1e-12])
    best = ((every - row) ** 2).sum(1).min()
    assert ((found - row) ** 2).sum() <= best + 1e-9
    assert math.isclose(found.sum(), 1.0)
    assert found.min() >= 0.0


def test_the_comparison_prints_a_row(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "cells.json"
    arguments = [
        "--out",
        str(out),
        "--users",
        "300",
        "--runs",
        "2",
        "--only",
        "four pairs 3912",
        "--again",
        "0",
    ]
    assert compare_one_principle.main(arguments) == 0
    first = capsys.readouterr().out
    assert "| four pairs 3912 | 3e+02 |" in first
    assert compare_one_principle.main(arguments) == 0  # from the file
    assert capsys.readouterr().out == first
