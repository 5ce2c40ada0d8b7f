"""Forecasts: noise as the mechanism states it, and choices in the order of their errors."""

import math

import pytest

import discreet as dr
from discreet.experiments.estimate import estimate_run
from discreet.experiments.simulate import Setup


def test_the_noise_is_that_of_the_mechanism_halfway_and_at_the_end() -> None:
    setup = Setup(dr.make("riverswim", horizon=4), dr.DPUCBVI(), dr.Central(epsilon=1.0), 200, "auto")
    found = estimate_run(setup)
    assert (found.users, found.cells) == (200, setup.query.cells)
    assert found.at[0] >= 100 or found.at[0] == found.at[1]
    for name, stds in found.std.items():
        for users, std in zip(found.at, stds, strict=True):
            assert std == setup.mechanism.laws_at(users)[name].std()
    errors = [choice.error for choice in found.choices]
    assert errors == sorted(errors)
    assert found.choices[0].ratio == 1.0
    assert found.statement == setup.guarantee.statement


def test_twice_the_budget_halves_laplace_noise() -> None:
    one, two = (
        estimate_run(
            Setup(
                dr.make("riverswim", horizon=4), dr.DPUCBVI(),
                dr.Central(epsilon=epsilon, release="tree", noise="laplace"), 200, "auto",
            )
        )
        for epsilon in (1.0, 2.0)
    )  # fmt: skip
    for name, stds in one.std.items():
        assert two.std[name] == pytest.approx([std / 2 for std in stds])
        assert all(map(math.isfinite, stds))
