"""Attacks on walks, splits, reports and numerical calibration that once worked: each must fail."""

from abc import ABCMeta
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from discreet.core.count_mechanism import CountMechanism as KernelMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import RecordFamily, transitions
from discreet.core.layout import Layout
from discreet.core.noise.noises import Gaussian, Laplace, is_declared
from discreet.core.query import FamilyQuery
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local

LAYOUT = Layout(2, 2, 3)
POLICY = np.zeros((3, 2), np.int64)
RICH = Trajectory(np.zeros(4, np.int64), np.zeros(3, np.int64), np.ones(3))
TIMES = np.arange(0, 20, 2)


def grouped(users: int = 40, reads: Any = "measurements") -> ChannelSession:
    privatizer = Central(epsilon=1.0, delta=1e-6, release="decaying", decay=0.9)
    query = CountQuery(LAYOUT, groups=2, clip=3.0)
    session = privatizer.start(query, Schedule(users, times=TIMES, reads=reads), Seeded(0))
    session.release()
    return session


# ------------------------------------------------------------------------------ plans that change


def test_a_plan_cannot_forget_and_remember_in_one_release() -> None:
    """Its gain was that of a stream which ends, its sum went on: 1.3 mu^2 after 9 releases at decay 0.9."""

    class Turncoat(Plan):
        pass

    session = grouped()
    with pytest.raises(ValueError, match="no subclass"):
        session.begin(Turncoat(POLICY, users=2, group=0, forget=True))


def test_a_group_is_the_number_that_was_checked() -> None:
    """A return of up to C = 3 went to a cell of rewards, whose noise hides changes of 1."""

    class Elsewhere(int):
        def __int__(self) -> int:
            return -1

    session = grouped()
    with pytest.raises(ValueError, match=r"plan\.group"):
        session.begin(Plan(POLICY, users=2, group=Elsewhere(0)))
    with pytest.raises(ValueError, match=r"plan\.users"):
        session.begin(Plan(POLICY, users=Elsewhere(2), group=0))

    class Share(float):
        def __rsub__(self, other: Any) -> Any:
            return 1e300

    session.begin(Plan(POLICY, users=2, group=0, return_share=Share(0.5)))
    assert type(session.open_plan.return_share) is float


def test_what_is_pooled_is_what_the_sensitivity_is_computed_for() -> None:
    """A text that compares as "first" to the sensitivity and as "all" to the sums: H visits for one."""

    class Both(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            return other in ("first", "all")

    query = CountQuery(Layout(2, 2, 6), pooled=Both("first"))  # type: ignore[arg-type]
    assert type(query.pooled) is str


# ------------------------------------------------------------------------------ scales in view


@pytest.mark.parametrize("pooled", ["none", "all"])
def test_scales_of_batches_cannot_be_changed_from_outside(pooled: Any) -> None:
    """Batches took their scales from the array that ``session.mechanism`` shows: released exact sums."""
    shares = None if pooled == "none" else np.full(TIMES.size, 0.4)
    schedule = Schedule(40, times=TIMES, reads="measurements", pooled_shares=shares)
    seen = []
    for attacked in (False, True):
        privatizer = Central(epsilon=1.0, release="batches")
        session = privatizer.start(CountQuery(LAYOUT, pooled=pooled), schedule, Seeded(0))
        session.release()
        if attacked:
            scales, by_release = session.mechanism.scales, session.mechanism.release_scales
            assert by_release is not None
            for array in (scales, by_release):
                array.flags.writeable = True
                array[:] = 1e-9
        encoder = session.begin(Plan(POLICY, users=2))
        for _ in range(2):
            session.submit(encoder(RICH, session.open_plan, SecureRng()))
        measurement = session.release().measurement
        assert measurement is not None
        seen.append(measurement.estimates["visits"].value)
    assert np.array_equal(*seen)


# ------------------------------------------------------------------------------ false laws


def test_reports_promise_no_pooled_counts() -> None:
    """Reports held none, so that the release said 0 with a law by which 0 was wrong by any bound."""
    query, schedule = CountQuery(LAYOUT, visits=False, pooled="all"), Schedule(8)
    for options in ({"randomizer": "subset"}, {"steps": 1}, {"reward_share": 0.2}):
        with pytest.raises(ValueError, match="pooled"):
            Local(epsilon=5.0, **options).start(query, schedule, Seeded(0))  # type: ignore[arg-type]
    assert Local(epsilon=5.0).start(query, schedule, Seeded(0)).mechanism.stream == "local"


# ------------------------------------------------------------------------------ budgets at the edge


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-12), (0.01, 0.1)])
def test_budgets_at_the_edge_of_numerical_accounting_are_met(epsilon: float, delta: float) -> None:
    """Below 1e-10 the closed form serves; where the search meets epsilon 0 it goes on."""
    privatizer = Central(epsilon=epsilon, delta=delta, noise="gaussian", release="batches")
    guarantee = privatizer.start(CountQuery(LAYOUT), Schedule(100, growth=2.0), Secure()).guarantee
    assert guarantee.epsilon is not None
    assert 0.95 * epsilon < guarantee.epsilon <= epsilon * (1 + 1e-9)


# ------------------------------------------------------------------- classes that claim to be others


class Equal(ABCMeta):
    """Metaclass of classes that compare equal to their base classes."""

    def __eq__(cls, other: object) -> bool:
        return cls is other or other in cls.__bases__

    __hash__ = ABCMeta.__hash__


def test_a_class_cannot_compare_equal_to_a_mechanism() -> None:
    """Its session stated epsilon 0.001 and drew the noise of epsilon 1."""

    class CountMechanism(KernelMechanism, metaclass=Equal):
        @property
        def guarantee(self) -> Any:
            return tree(0.001).guarantee

    mechanism = tree(1.0)
    values = {one.name: getattr(mechanism, one.name) for one in fields(mechanism) if one.init}
    lying = CountMechanism(**values)
    with pytest.raises(ValueError, match="no subclass"):
        session_of(lying, Seeded(0))


def tree(epsilon: float) -> Any:
    return Central(release="tree", epsilon=epsilon).mechanism(CountQuery(LAYOUT), Schedule(8), Seeded(0))


def test_a_class_cannot_compare_equal_to_laplace_noise() -> None:
    """Sums of real users were released without noise, under the guarantee of Laplace noise."""

    class Mute(Laplace, metaclass=Equal):
        def draw(self, coins: Any, scale: float, size: int, grid: int | None) -> Any:
            return np.zeros(size)

    assert is_declared(Mute())
    for noise in (Laplace(), Gaussian()):
        assert not is_declared(noise)


def test_randomness_and_families_cannot_compare_equal() -> None:
    class Still(Seeded, metaclass=Equal):
        pass

    class Cheap(RecordFamily, metaclass=Equal):
        pass

    with pytest.raises(ValueError, match="randomness"):
        Central(release="tree", epsilon=1.0).start(CountQuery(LAYOUT), Schedule(8), Still(0))
    family = FamilyQuery(LAYOUT, (transitions(),)).parts[0]
    cheap = Cheap(**{one.name: getattr(family, one.name) for one in fields(family) if one.init})
    with pytest.raises(ValueError, match="no subclass"):
        FamilyQuery(LAYOUT, (cheap,))
