"""What is off its public grid leaves nowhere: rewards that nobody rounded, noise between two units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fixed_bytes import fixed_bytes

import discreet as dr
from discreet.core import count_channels
from discreet.core import rng as randomness
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, checked_on_grid
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.data.schema import Schema
from discreet.device import discrete_noise as device_noise
from discreet.mechanisms.dataset import dataset_release as one_shot
from discreet.mechanisms.dataset import partial_aggregate as tally
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.linear import adaptive_queries as responses
from discreet.mechanisms.linear import linear_session
from discreet.mechanisms.linear import per_user_means as person_sums
from discreet.mechanisms.linear.adaptive_queries import Question, ResponseSession
from discreet.mechanisms.linear.linear_queries import GramQuery
from discreet.pipeline import federated as sites
from discreet.pipeline.federated import FederatedSite, FederationPlan

LAYOUT = Layout(4, 2, 3)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
REFUSED = "exact noise would not"
LIFE = Trajectory(np.array([0, 1, 2, 3]), np.zeros(3, np.int64), np.array([1.0, 2.0**-20, 0.5]))
LIVES = Trajectories(LIFE.states[None], LIFE.actions[None], LIFE.rewards[None])
BUDGET = {"mu": 0.3}
PHI = Features(np.eye(8).reshape(4, 2, 8), 1.0, l1=1.0, nonneg=True)
MODEL = GramQuery(layout=LAYOUT, features=PHI)


# ------------------------------------------------------------------------------ the function


@pytest.mark.parametrize("check", [checked_on_grid, device_noise.checked_on_grid])
def test_multiples_up_to_2_to_the_52_pass_and_nothing_else(check: Callable[..., Any]) -> None:
    for values, grid in (
        (np.array([0.0, 1.0, -3.0]), 1),
        (np.array([[0.5, -1.0], [2.0**-10, 7.0]]), 1024),
        (np.array([2.0**42, -(2.0**42)]), 1024),
        (np.zeros(0), 1),
        (np.arange(200_000.0)[::2], 1),
    ):
        assert check(values, grid) is values
    for wrong, grid in (
        (2.0**-20, 1024),
        (0.5, 1),
        (2.0**42 + 2.0**-10, 1024),
        (-(2.0**53), 1),
        (np.nan, 1),
        (np.inf, 1),
        (-np.inf, 1),
    ):
        values = np.zeros(100_000)
        values[-1] = wrong
        with pytest.raises(RuntimeError, match=REFUSED):
            check(values, grid)


def test_integers_are_looked_at_for_their_size() -> None:
    assert checked_on_grid(np.array([2**52, -(2**52)]), 1).tolist() == [2**52, -(2**52)]
    checked_on_grid(np.array([2**61]), 1, 2**61)
    for wrong in (2**52 + 1, -(2**52) - 1, -(2**63)):
        with pytest.raises(RuntimeError, match=REFUSED):
            checked_on_grid(np.array([0, wrong]), 1)


# ------------------------------------------------------------------------------ every exit


def stream(privatizer: Any, query: Any = QUERY, reads: Any = "sums") -> None:
    """A release of two people; if it is refused, so is the next one."""
    schedule = Schedule(4, times=np.array([0, 2, 4]), final=True, reads=reads)
    with privatizer.start(query, schedule, Secure()) as session:
        session.release()
        session.begin(Plan(np.zeros((3, 4), np.int64), 2))
        session.submit(LIFE)
        session.submit(LIFE)
        try:
            session.release()
        except RuntimeError:
            with pytest.raises(RuntimeError, match=REFUSED):
                session.release()
            raise


def stored() -> None:
    with dr.Central(**BUDGET).stored(QUERY, Secure()) as session:
        session.submit_many(LIVES, [0])
        list(session.release())


def counted_elsewhere() -> None:
    here = PartialAggregate(QUERY)
    here.add(LIVES, [0])
    with dr.Central(**BUDGET).stored(QUERY, Secure()) as session:
        session.submit_tally(here)
        session.release()


def site(noise: str) -> None:
    schema = Schema("ward", "patient", LAYOUT, stationary=True)
    budget: Any = dr.Central(epsilon=1.0, delta=1e-6)
    plan = FederationPlan(schema, dr.DecisionPoints(), budget, 3, noise=noise)  # type: ignore[arg-type]
    here = PartialAggregate(plan.query, sites._GRID)
    life = Trajectory(np.array([0, 1, 2, 3, 0]), np.zeros(4, np.int64), np.array([1.0, 2.0**-21, 0.0, 0.0]))
    here.add(Trajectories(life.states[None], life.actions[None], life.rewards[None]), [0])
    one = object.__new__(FederatedSite)  # of these people, without files
    part = type("Part", (), {"tally": here, "rules": {}})()
    for name, value in (("plan", plan), ("part", part), ("ledger", None)):
        object.__setattr__(one, name, value)
    one.send()


def asked(kind: str) -> None:
    session = ResponseSession(LAYOUT, PHI, [Question(kind=kind, step=1, mu=0.3, high=3.0)], Secure())  # type: ignore[arg-type]
    session.submit_many(LIVES)
    try:
        session.model(1) if kind == "model" else session.response(1, np.zeros(4))
    finally:
        assert session.asked == 1  # spent, whatever came of it


def device(query: Any) -> None:
    with dr.Local(**BUDGET).start(query, Schedule(4), Secure()) as session:
        session.release()
        encoder = session.begin(Plan(np.zeros((3, 4), np.int64), 4))
        encoder(LIFE, session.open_plan, responses.SecureRng())


class Unrounded(SecureRng):
    """Coins that leave rewards as they are."""

    def rounded(self, rewards: Any, grid: int | None) -> Any:
        return rewards


class Between(SecureRng):
    """Coins whose noise lies between two multiples of the unit."""

    def laplace(self, scale: float, size: int, grid: int | None = None) -> Any:
        return super().laplace(scale, size, grid) + 0.5 / (grid or 1)

    def normal(self, scale: float, size: int, grid: int | None = None) -> Any:
        return super().normal(scale, size, grid) + 0.5 / (grid or 1)


EXITS: dict[str, tuple[Callable[[], Any], Any]] = {
    "batches": (lambda: stream(dr.Central(**BUDGET, release="batches")), count_channels),
    "decaying": (lambda: stream(dr.Central(**BUDGET, release="decaying")), count_channels),
    "tree": (lambda: stream(dr.Central(epsilon=0.5, release="tree", tree_estimate="plain")), count_channels),
    "signed digits": (
        lambda: stream(dr.Central(epsilon=0.5, release="signed-digits", arity=3)), count_channels,
    ),
    "linear batches": (lambda: stream(dr.Central(**BUDGET, release="batches"), MODEL), linear_session),
    "linear tree": (
        lambda: stream(dr.Central(**BUDGET, release="tree", tree_estimate="plain"), MODEL), linear_session,
    ),
    "stored": (stored, one_shot),
    "a tally": (counted_elsewhere, one_shot),
    "a site's share": (lambda: site("sites"), sites),
    "a response": (lambda: asked("response"), responses),
    "a model": (lambda: asked("model"), responses),
    "a device's counts": (lambda: device(QUERY), responses),
    "a device's linear sums": (lambda: device(MODEL), responses),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _same_bytes() -> Any:
    with fixed_bytes(1):
        yield


@pytest.mark.parametrize("name", EXITS)
def test_rewards_are_rounded_before_they_are_added(name: str) -> None:
    """2^-20 under a grid of 1 / 1024."""
    EXITS[name][0]()


@pytest.mark.parametrize("name", [*EXITS, "a site's sums"])
def test_rewards_that_nobody_rounded_leave_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for home in (count_channels, linear_session, responses):
        monkeypatch.setattr(home, "SecureRng", Unrounded)
    monkeypatch.setattr(tally.PartialAggregate, "_on_grid", lambda self, rewards: rewards)
    call = EXITS[name][0] if name in EXITS else lambda: site("analyst")
    with pytest.raises(RuntimeError, match=REFUSED):
        call()


@pytest.mark.parametrize("name", [name for name in EXITS if name != "a tally"])
def test_noise_that_is_off_the_grid_leaves_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, home = EXITS[name]
    monkeypatch.setattr(home, "SecureRng", Between)
    with pytest.raises(RuntimeError, match=REFUSED):
        call()


def test_a_fit_refuses_sums_that_no_float_holds() -> None:
    with pytest.raises(RuntimeError, match=REFUSED):
        person_sums.noisy(np.array([[2**52 + 1]]), 10, randomness.secrets.token_bytes)
