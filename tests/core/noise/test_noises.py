"""Costs and draws of noises."""

import numpy as np
import pytest

from discreet.core.noise.noises import GAUSSIAN, LAPLACE, Laplace, is_declared, price
from discreet.core.rng import SecureRng, Seeded
from discreet.mechanisms.seeded_rng import SeededRng


def test_costs_are_losses_and_squared_losses() -> None:
    assert (LAPLACE.cost(3.0, 2.0), GAUSSIAN.cost(3.0, 2.0)) == (1.5, 2.25)
    assert [noise.record_name(grid) for noise in (LAPLACE, GAUSSIAN) for grid in (None, 8)] == [
        "laplace", "discrete_laplace", "gaussian", "discrete_gaussian",
    ]  # fmt: skip
    assert price(LAPLACE, 2.0, 8)(3.0) == 1.5


def test_draws_are_those_of_the_generator() -> None:
    for noise, name in ((LAPLACE, "laplace"), (GAUSSIAN, "normal")):
        key = Seeded(3).keys.noise
        drawn = noise.draw(SeededRng(key, 1), 2.0, 5, None)
        assert np.array_equal(drawn, getattr(SeededRng(key, 1), name)(2.0, 5))
        exact = noise.draw(SecureRng(), 2.0, 5, 4) * 4
        assert np.array_equal(exact, np.rint(exact))


class Narrow(Laplace):
    """Doubled integer noise: shifts of one unit are seen with certainty."""

    homogeneous = False

    def cost(self, shift: float, scale: float) -> float:
        return shift / scale if shift % 2 == 0 else 50.0


def test_the_dearest_shift_prices_a_declared_noise() -> None:
    assert (is_declared(Narrow()), is_declared(LAPLACE), LAPLACE.rests_on) == (True, False, ())
    assert "declared distribution" in Narrow().rests_on[0]
    assert Narrow().cost(2.0, 1.0) == 2.0
    assert price(Narrow(), 1.0, 1)(2.0) == 50.0
    with pytest.raises(ValueError, match="at most 65536"):
        price(Narrow(), 1.0, 2**20)(1.0)


class Endless(Laplace):
    def cost(self, shift: float, scale: float) -> float:
        return float("inf")


def test_costs_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        price(Endless(), 1.0, 1)(1.0)
