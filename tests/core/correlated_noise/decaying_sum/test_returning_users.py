"""Users who return: norms of their columns by brute force, losses of real sessions, released noise."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet import registry
from discreet.accounting import budget, pld
from discreet.core import decaying_sum_kernels as decaying_kernels
from discreet.core.correlated_noise.decaying_sum import FINE, Decaying
from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.noise.noises import GAUSSIAN, LAPLACE
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Randomness, Secure, Seeded
from discreet.core.session import ChannelSession
from discreet.core.strategies import Batches
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.privatizers.central import Central
from tests.helpers.noise_laws import Piece, law_of, off

H, BATCHES = 2, 12
LAYOUT = Layout(2, 2, H)
QUERY = CountQuery(LAYOUT)
POLICY = np.zeros((H, 2), np.int64)
SCHEDULE = Schedule(100, times=np.arange(BATCHES + 1))  # one user a batch
# every cell differs: 2 H visits, 2 H transitions and H + H rewards of 1
ONE = Trajectory(np.array([0, 0, 0]), np.array([0, 0]), np.array([1.0, 1.0]))
OTHER = Trajectory(np.array([1, 1, 1]), np.array([1, 1]), np.array([1.0, 1.0]))
MIXED = Trajectory(np.array([0, 1, 0]), np.array([0, 1]), np.array([0.0, 1.0]))
STATED = Stated(1e-6)
DECAYS = (0.0, 0.5, 0.85, 0.95)


def index_sets(participations: int, separation: int) -> Iterator[tuple[int, ...]]:
    """Every set of at most so many batches, at least so far apart."""
    for m in range(1, participations + 1):
        for batches in itertools.combinations(range(BATCHES), m):
            if all(b - a >= separation for a, b in itertools.pairwise(batches)):
                yield batches


def measured(session: ChannelSession, records: dict[int, Trajectory]) -> np.ndarray:
    """(B, cells) measurements; batches without a record hold an absent user."""
    session.release()
    found = []
    for batch in range(BATCHES):
        session.begin(Plan(POLICY, users=1))
        if batch in records:
            session.submit(records[batch])
        else:
            session.absent(1)
        release = session.release()
        assert release.measurement is not None
        found.append(np.concatenate([e.value.ravel() for e in release.measurement.estimates.values()]))
    return np.array(found)


def changes(privatizer: Central, batches: tuple[int, ...]) -> np.ndarray:
    """(B, cells) change of a real session's measurements, if all these records of one user are replaced."""
    one, other = (
        measured(privatizer.start(QUERY, SCHEDULE, Seeded(4)), dict.fromkeys(batches, record))
        for record in (ONE, OTHER)
    )
    return one - other


def squared(m: int, s: int, decay: float) -> float:
    """F, by a sum over pairs."""
    return sum(decay ** (s * abs(i - j)) for i in range(m) for j in range(m))


@pytest.mark.parametrize("decay", DECAYS)
def test_no_index_set_of_a_real_session_exceeds_the_bound(decay: float) -> None:
    """Over all index sets with B = 12, m <= 3, s <= 4; reached for decay 0."""
    release = "decaying" if decay else "batches"
    given: dict[str, Any] = {"release": release, **({"decay": decay} if decay else {})}
    privatizer = Central(mu=1.0, **given)
    matrix = np.array([changes(privatizer, (b,)) for b in range(BATCHES)])
    unit = np.linalg.norm(
        np.concatenate([(QUERY.contribution(ONE)[n] - QUERY.contribution(OTHER)[n]).ravel()
                        for n in QUERY.row_families])
    )  # fmt: skip
    columns = matrix.reshape(BATCHES, -1) / unit
    gram = columns @ columns.T
    assert gram.min() >= -1e-12
    for m, s in itertools.product((1, 2, 3), (1, 2, 3, 4)):
        worst = max(gram[np.ix_(b, b)].sum() for b in index_sets(m, s))
        bound = Decaying(decay).norm_of_returning(m, s) ** 2
        assert bound == pytest.approx(squared(m, s, decay), rel=1e-12)
        assert worst <= bound * (1 + 1e-9)
        if decay == 0.0:
            assert worst == pytest.approx(m, rel=1e-9) == bound


@pytest.mark.parametrize("decay", [0.0, 0.85])
@pytest.mark.parametrize(("m", "s"), [(2, 1), (3, 1), (3, 4)])
def test_the_loss_of_a_real_session_is_at_most_the_stated_one(decay: float, m: int, s: int) -> None:
    """Squared shifts in units of the session's own noise scales, over all index sets, against mu^2."""
    release = "decaying" if decay else "batches"
    given: dict[str, Any] = {"release": release, **({"decay": decay} if decay else {})}
    privatizer = Central(mu=0.7, participations=m, separation=s, **given)
    mechanism = privatizer.start(QUERY, SCHEDULE, Seeded(4)).mechanism
    assert mechanism.guarantee.mu == pytest.approx(0.7, rel=1e-12)
    scales = np.repeat(mechanism.scales, np.diff(QUERY.offsets))
    sets = [b for b in index_sets(m, s) if len(b) == m]
    some = [sets[0], sets[-1], sets[len(sets) // 2]] if decay else sets[:3]
    worst = max(((changes(privatizer, b) / scales) ** 2).sum() for b in some)
    assert worst <= 0.49 * (1 + 1e-9)
    if decay == 0.0:
        assert worst == pytest.approx(0.49, rel=1e-9)
        assert mechanism.scales == pytest.approx(math.sqrt(m * 6 * H) / 0.7, rel=1e-12)


@pytest.mark.parametrize("given", [{"release": "batches"}, {"release": "decaying", "decay": 0.85}])
def test_scales_that_change_by_release_cost_no_more(given: dict[str, Any]) -> None:
    """Shifts in units of each release's own scales, for users in two batches."""
    query = CountQuery(LAYOUT, pooled="all")
    schedule = Schedule(100, times=np.arange(BATCHES + 1), pooled_shares=np.linspace(0.9, 0.1, BATCHES + 1))
    privatizer = Central(mu=0.7, participations=2, separation=1, **given)
    mechanism = privatizer.start(query, schedule, Seeded(4)).mechanism
    scales = np.array([np.repeat(row, np.diff(query.offsets)) for row in mechanism.release_scales[1:]])
    assert len(scales) == BATCHES
    found = []
    for records in ((ONE, OTHER), (ONE, MIXED)):
        for batches in ((0, 1), (0, 11), (10, 11), (5, 6)):
            one, other = (
                measured(privatizer.start(query, schedule, Seeded(4)), dict.fromkeys(batches, record))
                for record in records
            )
            found.append((((one - other) / scales) ** 2).sum())
    assert 0.2 < max(found) <= 0.49 * (1 + 1e-9)


def test_rounding_of_a_returning_user_stays_within_what_is_charged() -> None:
    """Fixed-point sums of two worlds in which a user's records of three batches differ, cell by cell."""
    rng, size = np.random.default_rng(0), 2000
    for decay in (0.5, 0.85, 0.95):
        stream, squares, main = Decaying(decay), np.zeros(size), np.zeros(size)
        a = b = d = np.zeros(size)
        for i in range(30):
            fresh = np.rint(rng.uniform(-1e6, 1e6, size) * FINE) / FINE
            change = rng.choice([-1.0, -0.5, 1 / 1024, 1.0], size) if i in (0, 4, 9) else np.zeros(size)
            held = []
            for batch, before in ((fresh, a), (fresh + change, b)):
                parts = [np.empty(size) for _ in range(3)]
                zero, told = np.zeros(size), np.ones(size, bool)
                decaying_kernels.decay_cells(
                    batch, before, zero, zero, told, decay, stream.gain, float(FINE), *parts
                )
                held.append(parts[0])
            (a, b), d = held, decay * d + change
            assert (np.abs(b - a - d) <= 1.25 / FINE / (1 - decay)).all()
            squares, main = squares + (b - a) ** 2, main + d**2
        one = stream.rounding(30, 1) / math.sqrt(2) / stream.gain  # of one touched cell
        assert (np.sqrt(squares) <= np.sqrt(main) + one).all()


@pytest.mark.parametrize("m", [2, 3])
def test_the_stated_loss_by_hand(m: int) -> None:
    """Independent of the records: raw counts of H steps, 6 H in l1, sqrt(6 H) in l2, and the rounding."""
    laplace = Central(epsilon=1.0, participations=m, release="batches").start(QUERY, SCHEDULE, Secure())
    assert laplace.mechanism.scales == pytest.approx(m * 6 * H, rel=1e-12)
    assert (laplace.guarantee.epsilon, laplace.guarantee.delta) == (pytest.approx(1.0), 0.0)
    gaussian = Central(
        epsilon=1.0, delta=1e-6, participations=m, release="decaying", decay=0.85, separation=2
    )
    for source in (Seeded(0), Secure()):
        mechanism = gaussian.start(QUERY, SCHEDULE, source).mechanism
        joint = math.sqrt(squared(m, 2, 0.85) * 6 * H) / mechanism.scales[0]
        if source.kind == "seeded":
            assert joint == pytest.approx(budget.gdp_mu(1.0, 1e-6), rel=1e-9)
            continue
        r = 1.25 / FINE * math.sqrt(2 * H * m * (BATCHES - 1) * 1.85 / 0.15)
        joint += r * math.sqrt(3) / mechanism.scales[0]
        assert joint == pytest.approx(math.sqrt(2 * budget.zcdp_rho(1.0, 1e-6)), rel=1e-6)
        assert mechanism.records[0].loss <= joint * (1 + 1e-12)


def test_numerical_accounting_is_not_used_for_several_records() -> None:
    """A user can replace records in different ways, so no listed exchange need be the worst."""
    alone = Central(epsilon=1.0, delta=1e-6, release="batches", noise="gaussian")
    several = Central(epsilon=1.0, delta=1e-6, release="batches", noise="gaussian", participations=2)
    assert alone.start(QUERY, SCHEDULE, Secure()).guarantee.records[0].numerical
    made = several.start(QUERY, SCHEDULE, Secure())
    assert not made.guarantee.records[0].numerical
    assert made.mechanism.scales == pytest.approx(
        math.sqrt(2 * 6 * H / 2 / budget.zcdp_rho(1.0, 1e-6)), rel=1e-9
    )


@pytest.mark.parametrize("source", [Seeded(7), Secure()], ids=["seeded", "secure"])
@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": 1.0, "release": "batches"},
        {"epsilon": 1.0, "delta": 1e-6, "release": "batches", "noise": "gaussian"},
        {"epsilon": 1.0, "delta": 1e-6, "release": "decaying", "decay": 0.85},
    ],
    ids=["laplace", "gaussian", "decaying"],
)
def test_released_noise_is_that_of_the_record(given: dict[str, Any], source: Randomness) -> None:
    privatizer = Central(**given, participations=3, separation=2)
    values = []
    for run in range(40):
        session = privatizer.start(QUERY, SCHEDULE, Seeded(7, run) if source.kind == "seeded" else source)
        values.append(measured(session, {}))  # nobody answers, so that all sums are zero
    mechanism = session.mechanism
    (record,) = mechanism.records
    gain = Decaying(mechanism.decay).gain if mechanism.fixed_point else 1.0
    unit = None if source.kind == "seeded" else 1.0 / FINE if mechanism.fixed_point else 1.0
    law = law_of(record.noise.endswith("laplace"), record.scales["visits"] / gain, unit)
    assert len(set(record.scales.values())) == 1
    if mechanism.decay:
        # by hand: a held sum is zero, so that a measurement is one draw
        assert (
            record.scales["visits"]
            > math.sqrt(squared(3, 2, 0.85) * 6 * H) / budget.gdp_mu(1.0, 1e-6) * 0.999
        )
    assert off(Piece("all families", np.concatenate([v.ravel() for v in values]) / gain, law)) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"participations": 0}, "participations = 0"),
        ({"participations": 101}, "participations = 101"),
        ({"participations": True}, "participations = True"),
        ({"separation": 2}, "separation = 2: must be 1 with participations = 1"),
        ({"participations": 2, "release": "tree"}, "participations = 2: must be 1 with release = 'tree'"),
        ({"participations": 2, "leaf": "user"}, "must be 1 with release = 'tree'"),
        ({"participations": 2, "preset": "paper", "delta": 0}, "release = 'tree'.*preset = 'paper'"),
        ({"participations": 2, "release": "reports", "delta": 0}, "must be 1 with release = 'reports'"),
    ],
)
def test_options_that_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Central(**{"epsilon": 1.0, "delta": 1e-6, **given})


def test_sessions_that_are_refused() -> None:
    twice = Central(epsilon=1.0, delta=1e-6, participations=4, separation=4)
    for call in (twice.mechanism, twice.choices):
        with pytest.raises(ValueError, match="need at least 16 releases .* the schedule has 12"):
            call(QUERY, SCHEDULE, Seeded(0))
        with pytest.raises(ValueError, match="the schedule has 0"):
            call(QUERY, Schedule(None), Seeded(0))
        with pytest.raises(ValueError, match="same query of counts"):
            call(CountQuery(LAYOUT, visits=False, center_rewards=True, cut=1.0), SCHEDULE, Seeded(0))
    with pytest.raises(ValueError, match="same query of counts"):
        twice.stored_mechanism(CountQuery(LAYOUT, visits=False, center_rewards=True), Seeded(0))
    for strategy, words in (
        (Batches(0.0, 0), "strategy.participations = 0"),
        (Batches(0.0, 2, 0), "strategy.separation = 0"),
    ):
        with pytest.raises(ValueError, match=words):
            CountMechanism(QUERY, SCHEDULE, "seeded", strategy, LAPLACE, np.full(3, 9.0))


def test_simulated_users_who_return() -> None:
    """The fast engine draws the noise of the real sessions."""
    mdp = registry.build("environment", "riverswim", None, {"states": 3, "horizon": 4})
    learner = registry.build("learner", "noise-aware", None, {"replan_growth": 1.5})
    twice = Central(epsilon=1.0, delta=1e-6, participations=2, separation=3)
    runs = [
        dr.simulate(mdp, learner, twice, episodes=200, seeds=2, workers=1, stepwise=step)
        for step in (False, True)
    ]
    assert (runs[0].regret == runs[1].regret).all()
    assert [one.guarantee.episodes for one in runs] == [2, 2]
    assert runs[0].guarantee.epsilon == pytest.approx(1.0, rel=1e-9)


def test_the_statement_says_how_often_and_how_far_apart() -> None:
    strategy = Batches(0.85, 3, 4)
    made = CountMechanism(QUERY, SCHEDULE, "seeded", strategy, GAUSSIAN, np.full(3, 9.0), stated=STATED)
    stated = session_of(made, Seeded(0)).guarantee
    assert "each user takes part at most 3 times, at least 4 releases apart" in stated.statement
    assert stated.episodes == 3
    assert "up to 3, are replaced by any others at the same times" in stated.neighbours
    assert Guarantee.from_dict(stated.to_dict()) == stated
    assert pld.verify(stated, stated.records) == pytest.approx(stated.epsilon, rel=1e-2)
    alone = CountMechanism(
        QUERY, SCHEDULE, "seeded", Batches(0.85), GAUSSIAN, np.full(3, 9.0), stated=STATED
    ).guarantee
    assert stated.mu is not None
    assert alone.mu is not None
    assert stated.mu / alone.mu == pytest.approx(math.sqrt(squared(3, 4, 0.85)), rel=1e-12)
