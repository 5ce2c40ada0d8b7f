"""Costs and draws of noises."""

import numpy as np

from discreet.core.noise.noises import GAUSSIAN, LAPLACE, Laplace, is_declared
from discreet.core.rng import SecureRng, Seeded
from discreet.mechanisms.seeded_rng import SeededRng


def test_costs_are_losses_and_squared_losses() -> None:
    assert (LAPLACE.cost(3.0, 2.0), GAUSSIAN.cost(3.0, 2.0)) == (1.5, 2.25)
    assert [noise.record_name(grid) for noise in (LAPLACE, GAUSSIAN) for grid in (None, 8)] == [
        "laplace", "discrete_laplace", "gaussian", "discrete_gaussian",
    ]  # fmt: skip


def test_draws_are_those_of_the_generator() -> None:
    for noise, name in ((LAPLACE, "laplace"), (GAUSSIAN, "normal")):
        key = Seeded(3).keys.noise
        drawn = noise.draw(SeededRng(key, 1), 2.0, 5, None)
        assert np.array_equal(drawn, getattr(SeededRng(key, 1), name)(2.0, 5))
        exact = noise.draw(SecureRng(), 2.0, 5, 4) * 4
        assert np.array_equal(exact, np.rint(exact))


class Narrow(Laplace):
    """A subclass of a derived noise is declared."""


def test_a_subclass_of_a_derived_noise_is_declared() -> None:
    assert (is_declared(Narrow()), is_declared(LAPLACE), LAPLACE.rests_on) == (True, False, ())
    assert "declared distribution" in Narrow().rests_on[0]
