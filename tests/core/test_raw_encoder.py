"""Raw records are added once, and an encoder is of one plan."""

from types import SimpleNamespace

import numpy as np
import pytest

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.noise.noises import Laplace
from discreet.core.protocols import Coins
from discreet.core.raw_encoder import RawEncoder, add_records, family_begins, noise_vector, same_plan
from discreet.core.releases import Plan
from discreet.core.rng import SecureRng
from discreet.core.trajectories import Trajectories, Trajectory

LAYOUT = Layout(2, 2, 3)
RECORD = Trajectory(np.array([0, 1, 0, 1]), np.array([1, 0, 1]), np.array([0.5, 1.0, 0.0]))


def test_a_record_adds_its_visits() -> None:
    query = CountQuery(LAYOUT)
    cells = np.zeros(query.cells)
    add_records(query, family_begins(query), Trajectories.of(RECORD), cells)
    visits = cells[query.offsets[0] : query.offsets[1]].reshape(3, -1)
    assert visits.sum(axis=1).tolist() == [1.0, 1.0, 1.0]


def test_families_begin_one_after_the_other_and_absent_ones_at_minus_one() -> None:
    query = CountQuery(LAYOUT, visits=False, known_rewards=True)
    assert family_begins(query).tolist() == [-1, 0, -1, -1, -1, 0, -1]
    assert family_begins(CountQuery(LAYOUT, stationary=True, first=True))[5] == 2


def test_an_encoder_makes_messages_to_its_own_plan() -> None:
    plan = Plan(np.zeros((3, 2), np.int64), 5)
    message = RawEncoder(4)(RECORD, plan, SecureRng())
    assert message.plan == 4
    assert message.trajectory is RECORD
    assert RawEncoder.guarantee is None
    with pytest.raises(ValueError, match=r"plan\.number = 3: must be 4"):
        same_plan(4, Plan(plan.policy, 5, number=3))


class Short(Laplace):
    """Draws one number too few."""

    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> np.ndarray:
        return np.zeros(size - 1)


class Endless(Laplace):
    """Draws no finite number."""

    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> np.ndarray:
        return np.full(size, np.inf)


@pytest.mark.parametrize("noise", [Short(), Endless()])
def test_draws_that_are_no_noise_are_refused(noise: Laplace) -> None:
    query = CountQuery(LAYOUT)
    given = SimpleNamespace(noise=noise, grid=lambda name: None)
    with pytest.raises(RuntimeError, match=r"noise 'laplace': drew \(\d+,\) values, must be \(12,\) finite"):
        noise_vector(query, given, 1.0, SecureRng(), np.ones(3))  # type: ignore[arg-type]
