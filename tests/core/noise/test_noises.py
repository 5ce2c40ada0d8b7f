"""Costs and draws of noises."""

import numpy as np
import pytest

from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise, Laplace, is_declared
from discreet.core.protocols import Coins
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


class Coin(AdditiveNoise):
    """-scale or scale."""

    name = "coin"
    norm = "l1"

    def cost(self, shift: float, scale: float) -> float:
        return shift / scale

    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> np.ndarray:
        return np.full(size, scale)


class ListedCoin(Coin):
    def log_mass(self, values: np.ndarray, scale: float, grid: int) -> np.ndarray:
        return np.where(np.abs(values) == scale * grid, np.log(0.5), -np.inf)


def test_deviations_of_a_declared_noise_are_those_of_its_probabilities() -> None:
    assert ListedCoin().std(3.0, 8) == 3.0
    assert ListedCoin().std(1.0, None) == 1.0
    assert ListedCoin().std(500.0, 16) == 500.0  # behind the first 1024 units
    with pytest.raises(ValueError, match="noise 'coin': log_mass has mass beyond 16777216 units: define std"):
        ListedCoin().std(2.0**21, 16)


def test_what_a_declared_noise_need_not_say() -> None:
    with pytest.raises(NotImplementedError, match="noise 'coin' states no probabilities"):
        Coin().log_mass(np.arange(3), 1.0, 1)
    with pytest.raises(ValueError, match="noise 'coin': is not derived by this library"):
        Coin().record_name(None)


def test_deviations_of_continuous_noise() -> None:
    assert (LAPLACE.std(3.0, None), GAUSSIAN.std(3.0, None)) == (3.0 * 2**0.5, 3.0)
