"""What the core refuses at its doors: parts of another class, numbers that do not fit together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.accounting.binomial_noise import Flips
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.core import rng as randomness
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.count_channels import ExactChannel
from discreet.core.count_mechanism import FINEST_ACCOUNTED, CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.events import MechanismRecord
from discreet.core.families import rewards, visits
from discreet.core.guarantee import Guarantee, guarantee_of
from discreet.core.layout import Layout
from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise
from discreet.core.protocols import Coins
from discreet.core.query import FamilyQuery
from discreet.core.raw_encoder import RawEncoder
from discreet.core.releases import MOST_RELEASES, Message
from discreet.core.rng import SecureRng, Seeded
from discreet.core.strategies import Batches, Exact, Prefixes
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.open_session import session_of

LAYOUT = Layout(3, 2, 4)
QUERY = CountQuery(LAYOUT)
GROUPS = CountQuery(LAYOUT, visits=False, center_rewards=True, groups=2, clip=1.0)
CUT = CountQuery(LAYOUT, visits=False, center_rewards=True, cut=2.0)
SCHEDULE = Schedule(100, times=np.array([0, 10, 20, 40]))
STATED = Stated(1e-6, 1.0)
LISTED = MechanismRecord(
    "counts", "discrete_laplace", {"v": 2.0}, {"v": 1.0}, 0.5,
    exchanges=((("discrete_laplace", 2.0, 1.0, 1),),),
)  # fmt: skip
PLAIN = MechanismRecord("counts", "laplace", {"v": 2.0}, {"v": 1.0}, 0.5)
ONE_COIN = BinomialRecord("bits", ((("visits", Flips(1, 1, 2**31)),),), ((("visits", 1, 2),),))
POLICY = np.zeros((4, 3), np.int64)
LIFE = Trajectory(np.zeros(5, np.int64), np.zeros(4, np.int64), np.zeros(4))
GIVEN = guarantee_of("joint", (PLAIN,), randomness="seeded")


class AnotherQuery(CountQuery):
    """Could declare anything."""


class AnotherSchedule(Schedule):
    """Could change between two looks."""


class AnotherStated(Stated):
    """Could state anything."""


class AnotherTree(Tree):
    """Could run another program."""


class AnotherGuarantee(Guarantee):
    """Could promise anything."""


def batches(scales: Any = 3.0, query: CountQuery = QUERY, **more: Any) -> CountMechanism:
    """A mechanism of seeded Laplace noise, with parts exchanged."""
    how: dict[str, Any] = {"schedule": SCHEDULE, "strategy": Batches(), "stated": STATED}
    how |= {"source": "seeded", "noise": LAPLACE, **more}
    return CountMechanism(query, scales=np.full(len(query.row_families), scales), **how)


def rows(value: float, query: CountQuery = QUERY) -> Any:
    """Scales of all four releases."""
    return np.full((4, len(query.row_families)), value)


def submitted(message: Message) -> None:
    with session_of(CountMechanism(QUERY, SCHEDULE, "seeded", Exact()), Seeded(0)) as session:
        session.begin(Plan(np.zeros((4, 3), np.int64), 10))
        session.submit(message)


def too_many() -> None:
    """Whose sums would not be exact; the message says how many would be."""
    mechanism = CountMechanism(QUERY, Schedule(2**60, growth=2.0), "seeded", Exact())
    with session_of(mechanism, Seeded(0)) as session:
        session.begin(Plan(np.zeros((4, 3), np.int64), 2**50))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: CountQuery((3, 2, 4)), "layout = (3, 2, 4): must be a Layout"),  # type: ignore[arg-type]
        (lambda: batches(query=AnotherQuery(LAYOUT)), "must be a CountQuery or FamilyQuery, no subclass"),
        (lambda: batches(schedule=AnotherSchedule(100)), "must be a Schedule, no subclass"),
        (lambda: batches(stated=AnotherStated(1e-6, 1.0)), "must be a Stated, no subclass"),
        (lambda: QUERY.sensitivity("l1", {"visit": 1.0}), "weight['visit']: must be one of 'visits', "),
        (lambda: QUERY.to_cells({}), "sums lacks 'visits': must hold 'visits', "),
        (
            lambda: guarantee_of("joint", (LISTED, LISTED), delta=1e-6, randomness="secure"),
            "must be the only one",
        ),
        (
            lambda: replace(GIVEN, records=(), kinds=(("a", GIVEN), ("b", AnotherGuarantee(**vars(GIVEN))))),
            "must be a Guarantee, no subclass",
        ),
        (lambda: batches(query=CUT, release_scales=rows(3.0, CUT)), "release_scales: are for Batches"),
        (
            lambda: batches(
                noise=GAUSSIAN,
                strategy=Batches(0.5),
                reward_grid=1024,
                release_scales=rows(3.0),
                source="secure",
            ),
            "release_scales: rounding of a decaying sum is charged at one set of scales",
        ),
        (
            lambda: batches(
                stated=Stated(1e-6, None, True), reward_grid=2 * FINEST_ACCOUNTED, source="secure"
            ),
            f"reward_grid = {2 * FINEST_ACCOUNTED}: must be at most {FINEST_ACCOUNTED} here",
        ),
        (
            lambda: batches(strategy=Prefixes(AnotherTree(4))),
            "must be an OptimalTree or SignedDigits or SquareRoot or Tree",
        ),
        (
            lambda: batches(strategy=Prefixes(Tree(4), "leaf")),
            "strategy.leaf = 'leaf': must be one of 'batch'",
        ),
        (lambda: batches(strategy=Prefixes(Tree(4, 2))), "strategy.walk.gaussian = 2: must be true or false"),
        (lambda: batches(noise=1), "noise = 1: must be Laplace(), Gaussian()"),
        (lambda: batches(noise=None), "noise = None: must be LAPLACE or GAUSSIAN"),
        (lambda: batches(stored=1), "stored = 1: must be true or false"),
        (lambda: batches(source="urandom"), "source = 'urandom': must be one of 'seeded', 'secure'"),
        (lambda: batches(stated=Stated(1e-6, 1.0, 1)), "stated.numerical = 1: must be true or false"),
        (
            lambda: batches(strategy=Prefixes(SignedDigits(4, 3)), noise=GAUSSIAN),
            "has no finite l2 norm that prices it",
        ),
        (lambda: batches(stated=Stated(None, None, True)).guarantee, "delta"),
        (lambda: RawEncoder(2)(LIFE, Plan(POLICY, number=1), SecureRng()), "plan.number = 1: must be 2"),
        (
            lambda: guarantee_of("shuffle", (ONE_COIN,), delta=1e-9, randomness="secure"),
            "records: these batches give no epsilon at delta = 1e-09",
        ),
        (lambda: batches(release_scales=rows(3.0)[1:]), "release_scales has shape (3, 3): must be (4, 3)"),
        (lambda: batches(release_scales=rows(0.0)), "release_scales: must be positive"),
        (lambda: batches(release_scales=rows(-3.0)), "release_scales: must be positive"),
        (lambda: batches(release_scales=rows(2.9)), "release_scales[1]: must not cost more than scales, "),
        (
            lambda: CountMechanism(
                GROUPS, SCHEDULE, "secure", Batches(), GAUSSIAN, np.full(3, 9.0), 1024, stated=STATED
            ),
            "source = 'secure': group returns are released with seeded noise only",
        ),
        (
            lambda: ExactChannel(
                CountMechanism(QUERY, Schedule.one_shot(5), "seeded", Exact(), stored=True), Seeded(0)
            ),
            "mechanism.stored = True: offline data are for OneShotSession",
        ),
        (lambda: submitted(Message(1)), "message.trajectory = None: this session takes trajectories"),
        (lambda: submitted(Message(2)), "message.plan = 2: must be 1, the plan that is open"),
        (too_many, f"plan.users = {2**50}: sums of more than {2**51 // 4} users in all are not exact"),
        (lambda: Schedule(9, times=[1, 2]), "times must be ascending integers that start with 0"),
        (lambda: Schedule(9, times=[0, 2, 2]), "times must be ascending integers that start with 0"),
        (lambda: Schedule(None).release_times, "users = None: release times of an open-ended schedule"),
        (
            lambda: Schedule(MOST_RELEASES + 1).release_times,
            f"users = {MOST_RELEASES + 1}: must be at most {MOST_RELEASES} with a release after every user",
        ),
    ],
)
def test_what_does_not_fit_is_refused(made: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        made()


def test_scales_of_releases_at_their_ends() -> None:
    """As large as the mechanism's own they cost as much; the first row is of a release of nothing."""
    given = rows(3.0)
    given[0] = 1e-3
    assert batches(release_scales=given).guarantee == batches().guarantee


def test_exact_noise_beyond_what_adds_up_is_refused() -> None:
    """64 draws of 2^46 units and a sum below 2^51 are below 2^53."""
    whole = np.array([2**46, -(2**46)])
    assert (randomness._units(whole, 4) == whole / 4).all()
    for draw in (2**46 + 1, -(2**46) - 1):
        with pytest.raises(OverflowError, match=r"above 2\^46 grid units"):
            randomness._units(np.array([0, draw]), 4)


FAMILIES = FamilyQuery(LAYOUT, (visits(), rewards(0.3)))


class Widened(AdditiveNoise):
    """Laplace noise of a plug-in."""

    name, norm = "widened", "l1"

    def cost(self, shift: float, scale: float) -> float:
        return shift / scale

    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> np.ndarray:
        return coins.laplace(scale, size, grid)

    def std(self, scale: float, grid: int | None) -> float:
        return 2.0**0.5 * scale


def test_a_centre_off_the_grid_is_refused() -> None:
    many = {"source": "secure", "scales": 300.0}
    with pytest.raises(ValueError, match=r"family 'centered_reward_sums': center = 0.3: must be a multiple"):
        batches(query=FAMILIES, reward_grid=1024, **many)  # type: ignore[arg-type]
    on_grid = FamilyQuery(LAYOUT, (visits(), rewards(0.25)))
    assert batches(query=on_grid, reward_grid=1024, **many).reward_grid == 1024  # type: ignore[arg-type]


def test_a_column_that_is_not_priced_by_its_levels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prefixes, "column_norm", lambda strategy, norm: 7.0)
    with pytest.raises(ValueError, match=r"strategy = Prefixes\(.*its column norm is not that of its levels"):
        replace(batches(), strategy=Prefixes(Tree(4)))


def test_the_column_of_batches_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    (plain,) = batches().records
    monkeypatch.setattr(Batches, "column_norm", lambda strategy, norm: 2.0)
    (twice,) = batches().records
    assert twice.joint == pytest.approx(2.0 * plain.joint)


def test_only_counts_are_stored_and_have_the_options_of_counts() -> None:
    made = batches(query=FAMILIES)
    with pytest.raises(ValueError, match=r"query = .*: must be a CountQuery for Batches"):
        _ = made.counts
    with pytest.raises(ValueError, match=r"query = .*: must be a CountQuery"):
        replace(made, stored=True)
    assert isinstance(batches().counts, CountQuery)


def test_declared_noise_has_a_record_of_its_own_and_no_compiled_code() -> None:
    made = batches(noise=Widened(), scales=30.0)
    (record,) = made.records
    assert type(record).__name__ == "DeclaredRecord"
    with pytest.raises(ValueError, match="noise 'widened': has no compiled code, only its own draws"):
        _ = made.family
    assert (batches().family, batches(noise=GAUSSIAN).family) == (LAPLACE.code, GAUSSIAN.code)
    assert CountMechanism(QUERY, SCHEDULE, "seeded", Exact(), stated=STATED).family == 0
