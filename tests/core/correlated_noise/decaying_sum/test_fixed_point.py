"""Decaying sums under exact noise: fixed point, its cost, its laws, and the stated guarantee."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet.accounting import budget
from discreet.accounting.noise_distributions import distributions as laws
from discreet.core import decaying_sum_kernels as decaying_kernels
from discreet.core.correlated_noise.decaying_sum import FINE, Decaying
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan, Release, Schedule
from discreet.core.rng import Secure, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.mechanisms.privatizers.central import DECAYS, Central
from discreet.mechanisms.restore_session import restore

LAYOUT = Layout(2, 2, 3)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
POLICY = np.zeros((3, 2), np.int64)
TIMES = np.array([0, 3, 5, 9, 10, 17, 20])
SCHEDULE = Schedule(30, times=TIMES, reads="measurements")
DECAYED = Central(epsilon=1.0, delta=1e-6, release="decaying", decay=0.7)


def people(n: int, seed: int) -> Trajectories:
    rng = np.random.default_rng(seed)
    return Trajectories(
        rng.integers(2, size=(n, 4)), rng.integers(2, size=(n, 3)), rng.integers(2, size=(n, 3)) / 2
    )


def play(session: ChannelSession, times: np.ndarray = TIMES) -> list[Release]:
    out = [session.release()]
    for i, n in enumerate(np.diff(times).tolist()):
        session.begin(Plan(POLICY, users=n))
        session.submit_many(people(n, i), session.open_plan.number)
        out.append(session.release())
    return out


def flat(estimates: Any) -> np.ndarray:
    return np.concatenate([e.value.ravel() for e in estimates.values()])


def exact_strategy(decay: float) -> list[np.ndarray]:
    """S_i in real numbers."""
    total, out = np.zeros(QUERY.cells), []
    for i, n in enumerate(np.diff(TIMES).tolist()):
        sums = np.zeros(QUERY.cells)
        for record in people(n, i):
            sums += np.concatenate([t.ravel() for t in QUERY.contribution(record).values()])
        total = sums + decay * total
        out.append(total)
    return out


def held_of(batch: np.ndarray, before: np.ndarray, stream: Decaying) -> np.ndarray:
    """The decaying sum that a session goes on with, in fixed point."""
    nothing, told = np.zeros(batch.size), np.ones(batch.size, bool)
    held, fresh, sums = (np.empty(batch.size) for _ in range(3))
    decaying_kernels.decay_cells(
        batch, before, nothing, nothing, told, stream.decay, stream.gain, float(FINE), held, fresh, sums
    )
    return held


@pytest.mark.parametrize("fine", [0.0, float(FINE)])
def test_a_release_of_a_decaying_sum_is_its_formula(fine: float) -> None:
    """One kernel for sessions and for the fused simulation: bit for bit what NumPy makes of the formulas."""
    rng = np.random.default_rng(2)
    for decay in DECAYS:
        stream = Decaying(decay)
        x, before, measured, noise = rng.normal(size=(4, 500)) * 100
        if fine:
            x, before, noise = (np.rint(part * fine) / fine for part in (x, before, noise))
        told = rng.uniform(size=500) < 0.8
        held, fresh, sums = (np.empty(500) for _ in range(3))
        decaying_kernels.decay_cells(
            x, before, measured, noise, told, decay, stream.gain, fine, held, fresh, sums
        )
        wanted = x + (np.rint(decay * (before * fine)) / fine if fine else decay * before)
        assert np.array_equal(held, wanted)
        said = stream.gain * (wanted + noise) if fine else stream.gain * wanted + noise
        assert np.array_equal(fresh, np.where(told, said, 0.0))
        assert np.array_equal(sums, (np.where(told, said, 0.0) + (1.0 - decay) * measured) / stream.gain)


def test_two_worlds_never_differ_by_more_than_is_charged() -> None:
    """D_i of single cells against d lambda^(i-j) plus 5/4 units a step, over random and extreme sums."""
    rng = np.random.default_rng(0)
    for decay in DECAYS[1:]:
        stream, size = Decaying(decay), 2000
        for most in (1e2, 1e6, 2.0**30):  # up to 2^50 units
            a = np.rint(rng.uniform(-most, most, size) * FINE) / FINE
            change = rng.choice([-1.0, -0.5, 0.0, 1 / 1024, 1.0, 2.0], size)
            b, d = a + change, change.copy()
            squares, main = np.zeros(size), np.zeros(size)
            releases = 60
            for i in range(releases):
                gap = b - a
                assert (gap[change == 0] == 0).all()
                assert (np.abs(gap - d) <= 1.25 / FINE / (1 - decay)).all()
                assert (a * FINE == np.rint(a * FINE)).all()
                squares, main = squares + gap**2, main + d**2
                fresh = np.rint(rng.uniform(-most, most, size) * (1 - decay) * FINE) / FINE
                a, b = (held_of(fresh, x, stream) for x in (a, b))
                d = decay * d
                if i == 0:
                    error = held_of(np.zeros_like(a), a, stream) - decay * a
                    assert np.abs(error).max() * FINE <= 0.625 + 2.0**-10
            # one touched cell: rounding(B, H) is for 2 H of them, and in units where the gain is taken out
            one = stream.rounding(releases, 1) / math.sqrt(2) / stream.gain
            touched = change != 0
            assert (np.sqrt(squares) <= np.sqrt(main) + one)[touched].all()


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("query", [QUERY, CountQuery(LAYOUT), CountQuery(LAYOUT, stationary=True)])
def test_the_guarantee_includes_the_rounding(decay: float, query: CountQuery) -> None:
    session = Central(epsilon=1.0, delta=1e-6, release="decaying", decay=decay).start(
        query, SCHEDULE, Secure()
    )
    guarantee, scales = session.guarantee, session.mechanism.scales
    assert guarantee.epsilon == pytest.approx(1.0, rel=1e-9)
    assert guarantee.mu is None
    seeded = Central(epsilon=1.0, delta=1e-6, release="decaying", decay=decay).start(
        query, SCHEDULE, Seeded(0)
    )
    rho = budget.zcdp_rho(1.0, 1e-6)
    plain = seeded.mechanism.scales * budget.gdp_mu(1.0, 1e-6) / math.sqrt(2 * rho)
    wider = scales / plain
    assert (wider > 1).all()
    # by hand: joint loss of the real change, plus (5/4) 2^-20 sqrt(2 H (B - 1) (1 + l) / (1 - l)) a family
    r = 1.25 * 2.0**-20 * math.sqrt(2 * 3 * (TIMES.size - 2) * (1 + decay) / (1 - decay))
    joint = query.sensitivity("l2", dict(zip(query.row_families, 1 / scales, strict=True)))
    most = joint + r * math.sqrt((1 / scales**2).sum())
    own = [query.sensitivity("l2", {name: 1.0}) + r for name in query.row_families]
    assert math.sqrt(2 * rho) == pytest.approx(min(most, math.hypot(*(own / scales))), rel=1e-12)
    assert wider.max() < 1 + 1e-3


def test_the_sums_are_the_strategy_and_exact() -> None:
    """Sums before noise lie on the grid, within rounding of the real ones; sums with noise too."""
    session = DECAYED.start(QUERY, SCHEDULE, Secure())
    drawn: list[np.ndarray] = []
    draw = session.channel.node_noise

    def noted(end: int, factor: float, *_: Any) -> np.ndarray:
        drawn.append(draw(end, factor))
        return drawn[-1]

    session.channel.node_noise = noted  # type: ignore[method-assign]
    stream, releases = Decaying(0.7), play(session)[1:]
    measured = np.zeros(QUERY.cells)
    for release, noise, exact in zip(releases, drawn, exact_strategy(0.7), strict=True):
        assert (noise * FINE == np.rint(noise * FINE)).all()
        assert release.measurement is not None
        y = flat(release.measurement.estimates)
        filtered = y / stream.gain - noise
        assert np.abs(filtered - exact).max() < 1e-4
        np.testing.assert_allclose(flat(release.estimates), (y + 0.3 * measured) / stream.gain, atol=1e-9)
        measured += y
    # the last: what the session holds is on the grid, and noise and sum add up without rounding
    held = session.state["filtered"]
    assert (held * FINE == np.rint(held * FINE)).all()
    np.testing.assert_array_equal(
        flat(releases[-1].measurement.estimates), 0.0 + stream.gain * (held + drawn[-1])
    )  # type: ignore[union-attr]


def test_noise_has_the_stated_laws() -> None:
    """Variance of measurements and of sums over 400 runs: five standard errors a table, 6e-7 each."""
    runs, times = 400, TIMES[:5]
    exact = exact_strategy(0.7)
    first: list[np.ndarray] = []
    sums: list[np.ndarray] = []
    users = np.sum([flat_contribution(r) for i, n in enumerate(np.diff(times)) for r in people(n, i)], axis=0)
    for _ in range(runs):
        session = DECAYED.start(QUERY, SCHEDULE, Secure())
        release = play(session, times)[-1]
        assert release.measurement is not None
        first.append(flat(release.measurement.estimates) - Decaying(0.7).gain * exact[3])
        sums.append(flat(release.estimates) - users)
    stds = [
        np.concatenate([np.full(e.value.size, e.law.std()) for e in estimates.values()])
        for estimates in (release.measurement.estimates, release.estimates)
    ]
    for noise, std in zip((np.array(first), np.array(sums)), stds, strict=True):
        scaled = noise / std
        assert abs(scaled.var() - 1) < 5 * math.sqrt(2 / scaled.size)
        assert stats.kstest(scaled.ravel(), stats.norm().cdf).pvalue > 1e-7
    for estimate in release.estimates.values():
        assert isinstance(estimate.law, laws.SubGaussianSumLaw)
        normal = estimate.law.std() * stats.norm.isf(0.5e-6 / estimate.law.cells * estimate.law.share)
        assert normal < estimate.law.bound(1e-6) < 1.2 * normal
    for estimate in release.measurement.estimates.values():
        assert isinstance(estimate.law, laws.GaussianSumLaw)
        assert estimate.law.family == "discrete_gaussian"


def flat_contribution(record: Trajectory) -> np.ndarray:
    return np.concatenate([t.ravel() for t in QUERY.contribution(record).values()])


def test_sums_too_large_for_fixed_point_are_refused_before_anybody_comes() -> None:
    many = Schedule(10**9, growth=1.5, reads="measurements")
    auto = Central(epsilon=1.0, delta=1e-6)
    assert auto.choices(QUERY, many, Secure())[0].release == "batches"
    assert auto.choices(QUERY, many, Seeded(0))[0].release == "decaying"
    with pytest.raises(ValueError, match="no such mechanism"):
        DECAYED.start(QUERY, many, Secure())
    tiny = Central(epsilon=1e-7, delta=1e-6, release="decaying")
    with pytest.raises(ValueError, match="no such mechanism"):
        tiny.start(QUERY, SCHEDULE, Secure())


def test_it_is_the_default_where_it_is_best() -> None:
    schedule = Schedule(20_000, growth=1.1, reads="measurements")
    auto = Central(epsilon=1.0, delta=1e-6)
    seeded, secure = (auto.choices(QUERY, schedule, r)[0] for r in (Seeded(0), Secure()))
    assert (secure.release, secure.decay) == ("decaying", seeded.decay)
    ratio = math.sqrt(2 * budget.zcdp_rho(1.0, 1e-6)) / budget.gdp_mu(1.0, 1e-6)
    assert secure.error == pytest.approx(seeded.error / ratio, rel=1e-3)


def test_it_can_be_saved(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCREET_STATE_DIR", str(tmp_path))
    session = DECAYED.start(QUERY, SCHEDULE, Secure())
    last = play(session, TIMES[:4])[-1]
    filtered, measured = session.state["filtered"], session.state["measured"]
    session.save(tmp_path / "a")
    again = restore(tmp_path / "a")
    np.testing.assert_array_equal(again.state["filtered"], filtered)
    np.testing.assert_array_equal(again.state["measured"], measured)
    np.testing.assert_array_equal(flat(again.release().estimates), flat(last.estimates))
    assert again.release().estimates["transition_counts"].law == last.estimates["transition_counts"].law


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.9, 0.999])
def test_what_fixed_point_adds_is_the_formula(decay: float) -> None:
    """(5/4) 2^-20 sqrt(2 H (B - 1) (1 + lambda) / (1 - lambda)); of one release nothing has been rounded."""
    for releases, horizon in ((2, 1), (5, 7), (100, 20)):
        squared = (5 / 4 / 2**20) ** 2 * 2 * horizon * (releases - 1) * (1 + decay) / (1 - decay)
        assert Decaying(decay).rounding(releases, horizon) == pytest.approx(math.sqrt(squared), rel=1e-12)
    assert Decaying(decay).rounding(1, 9) == Decaying(decay).rounding(0, 9) == 0.0
    assert FINE == 2**20
