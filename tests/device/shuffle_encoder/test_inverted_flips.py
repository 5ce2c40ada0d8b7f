"""Many fair flips, drawn by their distribution function: an exact table, resolved ties, the law."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from simulated_coins import SimulatedCoins

from discreet.device import shuffle_encoder as encoders
from discreet.device.shuffle_payload import COIN, Family


@pytest.mark.parametrize("m", [1025, 1026, 1999])
def test_the_table_is_exact(m: int) -> None:
    table = encoders._distribution(m)
    assert table is not None
    first, floors = table
    sums = np.cumsum([0, *(math.comb(m, k) for k in range(m + 1))], dtype=object)[1:]
    exact = [(int(total) << 64) >> m for total in sums]
    assert exact[first - 1] == 0
    assert [int(floor) for floor in floors] == [
        min(one, 2**64 - 1) for one in exact[first : first + floors.size]
    ]
    assert exact[first + floors.size] >= 2**64 - 1


class Words:
    """Words that were fixed ahead."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, size: int) -> NDArray[np.uint64]:
        taken, self.left = self.left[:size], self.left[size:]
        return np.array(taken, np.uint64)


@pytest.mark.parametrize("away", [-1, 0, 1])
def test_a_tie_is_resolved_by_all_bits(away: int) -> None:
    """U is F(510) itself, one step of 2^-m below it, one above: known to the last bit only."""
    m, k = 1026, 510
    u = sum(math.comb(m, j) for j in range(k + 1)) + away
    tail = u & ((1 << (m - 64)) - 1)
    parts = [(tail >> (64 * i)) & (2**64 - 1) for i in range(-(-(m - 64) // 64))]
    coins = Words(u >> (m - 64), *parts)
    table = encoders._distribution(m)
    assert table is not None
    assert encoders._inverted(m, *table, 1, coins).tolist() == [k if away < 0 else k + 1]
    assert not coins.left


@pytest.mark.parametrize("m", [1026, 3001])
def test_the_law_is_binomial(m: int) -> None:
    """Chi-square over 60 bins of 80 000 draws; false alarm 1e-6, the seed is fixed."""
    ones = encoders.noise_ones(Family("transitions", m, COIN // 2), 80_000, SimulatedCoins(1))
    law = stats.binom(m, 0.5)
    edges = np.unique(law.ppf(np.linspace(0, 1, 61)[1:-1]))
    seen = np.bincount(np.searchsorted(edges, ones), minlength=edges.size + 1)
    chances = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    assert stats.chisquare(seen, chances * ones.size).pvalue > 1e-6
