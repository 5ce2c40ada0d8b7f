"""Batches and decaying sums: column norms, covariance of the releases, calibration, the automatic choice."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.accounting.noise_distributions.prefix_variance import rate_std
from discreet.core.correlated_noise.decaying_sum import Decaying
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import DECAYS, Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(2, 2, 2)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
POLICY = np.zeros((2, 2), np.int64)
LIFE = Trajectory(np.array([0, 1, 0]), np.array([1, 0]), np.array([1.0, 0.25]))
TIMES = np.array([0, 2, 3, 7, 8, 12])
SCHEDULE = Schedule(20, times=TIMES)
SE = 5.0


def cells(estimates: object) -> np.ndarray:
    return np.concatenate([e.value.ravel() for e in estimates.values()])  # type: ignore[attr-defined]


def one_user() -> np.ndarray:
    return np.concatenate([t.ravel() for t in QUERY.contribution(LIFE).values()])


def played(session: ChannelSession) -> list[tuple[np.ndarray, np.ndarray]]:
    """(sums, measurement) of every scheduled release after the first."""
    out, users = [], 0
    session.release()
    for n in TIMES[1:]:
        encoder = session.begin(Plan(POLICY, users=int(n) - users))
        for _ in range(int(n) - users):
            session.submit(encoder(LIFE, Plan(POLICY), SecureRng()))
        users = int(n)
        release = session.release()
        assert release.measurement is not None
        out.append((cells(release.estimates), cells(release.measurement.estimates)))
    return out


def strategy(decay: float, releases: int) -> np.ndarray:
    """Rows of measurements in terms of batches: a lambda^(i - j), i >= j."""
    i, j = np.mgrid[:releases, :releases]
    return np.where(i >= j, np.sqrt(1 - decay**2) * decay ** np.maximum(i - j, 0), 0.0)


@pytest.mark.parametrize("decay", [0.0, *DECAYS[1::3]])
def test_every_column_has_norm_below_one(decay: float) -> None:
    columns = np.linalg.norm(strategy(decay, 200), axis=0)
    assert columns.max() <= 1 + 1e-12
    assert columns[0] == pytest.approx(math.sqrt(1.0 - decay**400))


@pytest.mark.parametrize(
    "decay", [0.0, 0.5, 0.99, math.nextafter(0.99, 1), 0.999, 1 - 3e-9, 1 - 2.0**-27, 1 - 2.0**-53]
)
def test_a_column_of_a_decaying_sum_has_norm_one_to_the_last_digits(decay: float) -> None:
    """gain^2 / (1 - decay^2), which was 4e-9 too large at 1 - 2^-27."""
    square = Fraction(Decaying(decay).gain) ** 2 / (1 - Fraction(decay) ** 2)
    assert abs(square - 1) < Fraction(1, 10**14)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_streaming_equals_the_matrix_form(decay: float) -> None:
    """Without noise (its difference to a run on other data): measurements are the strategy times batches."""
    privatizer = (
        Central(mu=1.0, release="decaying", decay=decay) if decay else Central(mu=1.0, release="batches")
    )
    noisy = played(privatizer.start(QUERY, SCHEDULE, Seeded(3)))
    quiet: list[tuple[np.ndarray, np.ndarray]] = []
    session = privatizer.start(QUERY, SCHEDULE, Seeded(3))
    session.release()
    for size in np.diff(TIMES):
        session.begin(Plan(POLICY, users=int(size)))
        session.absent(int(size))
        release = session.release()
        assert release.measurement is not None
        quiet.append((cells(release.estimates), cells(release.measurement.estimates)))
    batches = np.diff(TIMES)[:, None] * one_user()[None]
    measured = np.array([a[1] - b[1] for a, b in zip(noisy, quiet, strict=True)])
    np.testing.assert_allclose(measured, strategy(decay, batches.shape[0]) @ batches, atol=1e-9)
    sums = np.array([a[0] - b[0] for a, b in zip(noisy, quiet, strict=True)])
    np.testing.assert_allclose(sums, np.cumsum(batches, axis=0), atol=1e-8)


@pytest.mark.parametrize(
    "privatizer",
    [
        Central(epsilon=1.0, release="batches"),
        Central(epsilon=1.0, delta=1e-6, release="batches", noise="gaussian"),
        Central(epsilon=1.0, delta=1e-6, release="decaying", decay=0.8),
    ],
    ids=["laplace", "gaussian", "decaying"],
)
@pytest.mark.parametrize("runs", [400, pytest.param(1500, marks=pytest.mark.statistics)])
def test_covariance_of_the_releases(privatizer: Central, runs: int) -> None:
    """Measurements have independent noise of the stated std; sums the covariance that follows."""
    sums, fresh = [], []
    for run in range(runs):
        out = played(privatizer.start(QUERY, SCHEDULE, Seeded(5, run)))
        sums.append([s for s, _ in out])
        fresh.append([m for _, m in out])
    session = privatizer.start(QUERY, SCHEDULE, Seeded(0))
    scales = np.repeat(session.mechanism.scales, np.diff(QUERY.offsets))
    std = scales * (np.sqrt(2) if privatizer.delta is None else 1.0)
    decay = session.mechanism.decay
    kurtosis = 6.0 if privatizer.delta is None else 3.0
    noise = np.array(fresh) / std
    noise -= noise.mean(axis=0)
    releases = noise.shape[1]
    flat = noise.reshape(runs, -1)
    covariance = flat.T @ flat / (runs - 1)
    off = covariance[~np.eye(len(covariance), dtype=bool)]
    assert np.abs(off).max() < stats.norm.isf(1e-7 / off.size) / np.sqrt(runs)
    spread = SE * np.sqrt((kurtosis - 1) / runs)
    assert abs(np.diag(covariance).mean() - 1) < spread / np.sqrt(covariance.shape[0])
    # P_i = (y_i + (1 - lambda) sum_{j < i} y_j) / a
    weights = (np.tril(np.full((releases, releases), 1 - decay), -1) + np.eye(releases)) / np.sqrt(
        1 - decay**2
    )
    total = np.array(sums) / std
    total -= total.mean(axis=0)
    expected = weights @ weights.T
    measured = np.einsum("rik,rjk->ij", total, total) / (runs - 1) / total.shape[2]
    tolerance = (
        SE
        * np.sqrt(kurtosis / (runs * total.shape[2]))
        * np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
    )
    assert (np.abs(measured - expected) < tolerance).all()
    for i, n in enumerate(TIMES[1:]):
        law = session.laws_at(int(n))["transition_counts"]
        assert law.std() == pytest.approx(std[0] * np.sqrt(expected[i, i]))
        own = session.mechanism.laws.measurement(int(n), 1)
        assert own["transition_counts"].std() == pytest.approx(std[0])


def test_one_batch_costs_the_whole_budget_and_no_more() -> None:
    """b = (l1 of one user, jointly) / epsilon: no levels; sigma from the exact Gaussian curve."""
    laplace = Central(epsilon=0.5, release="batches").start(QUERY, SCHEDULE, Seeded(0))
    joint = QUERY.sensitivity("l1", dict(zip(QUERY.families, 1 / laplace.mechanism.scales, strict=True)))
    assert joint == pytest.approx(0.5)
    assert laplace.guarantee.epsilon == pytest.approx(0.5)
    gaussian = Central(epsilon=1.0, delta=1e-6, release="decaying").start(QUERY, SCHEDULE, Seeded(0))
    joint = QUERY.sensitivity("l2", dict(zip(QUERY.families, 1 / gaussian.mechanism.scales, strict=True)))
    assert joint == pytest.approx(1 / 4.2247, rel=1e-4)
    assert gaussian.guarantee.mu == pytest.approx(joint)
    assert gaussian.guarantee.epsilon == pytest.approx(1.0)


def test_noise_per_count_of_the_document() -> None:
    """privacy-mechanisms, section 1: u = 65.05 at H = 20, pure 1, small reward share; 28.02 at (1, 1e-6).

    There the document charges centred rewards at their worst at every step, which is 1/44 more of mu^2.
    """
    layout = Layout(6, 2, 20)
    schedule = Schedule(20_000, growth=1.5)
    for budget, share, u in (
        ({"delta": 1e-6}, 1 / 11, 28.02 * math.sqrt(1 - 1 / 44)),
        ({}, 0.3 / 2.3, 65.05),
    ):
        query = CountQuery(layout, visits=False, center_rewards=True, reward_share=share)
        session = Central(epsilon=1.0, release="batches", **budget).start(query, schedule, Seeded(0))
        law = session.mechanism.laws.measurement(1, 1)["transition_counts"]
        assert law.std() == pytest.approx(u, rel=1e-3)


def test_equivalent_count_does_not_grow_with_users() -> None:
    """Section 2.1: the decaying strategy's factor tends to (2 + c) / (1 + c), batches' to sqrt(1 + 2/c)."""
    for c in (0.1, 0.5, 1.0):
        for users in (10**4, 10**6):
            sizes = np.diff(Schedule(users, growth=1 + c).release_times)
            assert rate_std(Decaying(1 / (1 + c)), sizes) < 1.15 * (2 + c) / (1 + c)
            assert rate_std(Decaying(0.0), sizes) == pytest.approx(np.sqrt(1 + 2 / c), rel=0.1)


def test_auto_takes_the_least_error_and_offers_no_tree_to_readers_of_measurements() -> None:
    often, seldom = Schedule(5000), Schedule(5000, growth=1.1)
    pure, approximate = Central(epsilon=1.0), Central(epsilon=1.0, delta=1e-6)
    few = Schedule(5000, growth=2.0)
    assert pure.choices(QUERY, often, Seeded(0))[0].release == "signed-digits"
    assert pure.choices(QUERY, seldom, Seeded(0))[0].release == "signed-digits"
    assert pure.choices(QUERY, few, Seeded(0))[0].release == "batches"
    assert approximate.choices(QUERY, often, Seeded(0))[0].release == "square-root"
    for privatizer in (pure, approximate):
        for schedule in (often, seldom):
            found = privatizer.choices(QUERY, schedule, Seeded(0))
            assert [c.error for c in found] == sorted(c.error for c in found)
            reads = Schedule(5000, growth=schedule.growth, reads="measurements")
            assert all(c.walk is None for c in privatizer.choices(QUERY, reads, Seeded(0)))
    reads = Schedule(5000, growth=1.1, reads="measurements")
    seeded, secure = (approximate.choices(QUERY, reads, r)[0] for r in (Seeded(0), Secure()))
    assert (secure.release, secure.decay) == (seeded.release, seeded.decay)
    assert len({str(c) for c in approximate.choices(QUERY, seldom, Seeded(0))}) > 5


def test_secure_batches_are_integers_and_exact() -> None:
    out = played(Central(epsilon=1.0, release="batches").start(QUERY, SCHEDULE, Secure()))
    split = int(QUERY.offsets[1])
    for sums, fresh in out:
        for values in (sums, fresh):
            assert (values[:split] == np.round(values[:split])).all()
            assert (values[split:] * 1024 == np.round(values[split:] * 1024)).all()


def test_a_skipped_release_makes_two_batches_one() -> None:
    """Releases happen at scheduled times only; a skipped one merges batches: fewer noises, a smaller law."""
    session = Central(epsilon=1.0, release="batches").start(QUERY, SCHEDULE, Seeded(0))
    session.release()
    session.begin(Plan(POLICY, users=3))
    session.absent(3)
    law = session.release().estimates["transition_counts"].law
    assert law.std() == pytest.approx(np.sqrt(2) * session.mechanism.scales[0])
    assert law.std() < session.laws_at(3)["transition_counts"].std()
    session.begin(Plan(POLICY))
    session.absent()
    with pytest.raises(RuntimeError, match="4 users is not one of the scheduled times"):
        session.release()


@pytest.mark.parametrize(
    "privatizer", [NoPrivacy(), Local(randomizer="laplace", epsilon=1.0)], ids=["none", "local"]
)
def test_measurements_of_the_other_trust_models_are_differences(privatizer: object) -> None:
    session = privatizer.start(QUERY, SCHEDULE, Seeded(1))  # type: ignore[attr-defined]
    session.release()
    before, users = np.zeros(QUERY.cells), 0
    for n in TIMES[1:]:
        session.begin(Plan(POLICY, users=int(n) - users))
        session.submit_sum({k: v * (n - users) for k, v in QUERY.contribution(LIFE).items()}, int(n) - users)
        release = session.release()
        np.testing.assert_allclose(cells(release.measurement.estimates), cells(release.estimates) - before)
        assert (release.measurement.decay, release.measurement.gain) == (0.0, 1.0)
        law = release.measurement.estimates["transition_counts"].law
        b = session.mechanism.scales[0]
        assert law.std() == pytest.approx(b * np.sqrt(2 * (n - users)))
        before, users = cells(release.estimates), int(n)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"release": "forest"}, "'auto', 'tree', 'signed-digits', 'square-root', 'batches', 'decaying'"),
        ({"decay": 0.5}, "option of release = 'decaying'"),
        ({"release": "decaying", "decay": 1.0}, "decay = 1.0"),
        ({"release": "batches", "calibration": "published"}, "that of a tree"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Central(epsilon=1.0, **options)  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="its noise is Gaussian"):
        Central(epsilon=1.0, release="decaying").start(QUERY, SCHEDULE, Seeded(0))
    with pytest.raises(ValueError, match="needs a known number of users"):
        Central(epsilon=1.0, release="batches").start(QUERY, Schedule(None), Seeded(0))
    with pytest.raises(ValueError, match="gives no measurements|share noise"):
        Central(epsilon=1.0, release="tree").start(QUERY, SCHEDULE, Seeded(0)).mechanism.laws.measurements()


def test_a_measurement_says_what_it_estimates() -> None:
    """decay 0: the batch; else a weighted sum with effective size (sum w)^2 / sum w^2."""
    sizes = np.diff(TIMES)
    for privatizer, decay in (
        (Central(epsilon=1.0, release="batches"), 0.0),
        (Central(mu=1.0, release="decaying", decay=0.6), 0.6),
    ):
        session = privatizer.start(QUERY, SCHEDULE, Seeded(0))
        session.release()
        for i, size in enumerate(sizes):
            session.begin(Plan(POLICY, users=int(size)))
            session.absent(int(size))
            release = session.release()
            assert all(e.estimand == "sum" and e.covers == release.users for e in release.estimates.values())
            estimate = release.measurement.estimates["transition_counts"]  # type: ignore[union-attr]
            weight = np.repeat(decay ** np.arange(i, -1, -1.0), sizes[: i + 1])
            assert estimate.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
            assert estimate.estimand == ("weighted" if decay else "sum")
            assert estimate.covers == (release.users if decay else size)


@pytest.mark.parametrize("users", [2, 3, 7, 1000, 200_000])
def test_the_trees_expected_error_is_the_mean_over_its_releases(users: int) -> None:
    found = [c for c in Central(epsilon=1.0).choices(QUERY, Schedule(users), Seeded(0)) if c.name == "tree"]
    one = found[0].scales[0] * np.sqrt(2)
    mean = np.mean([n.bit_count() for n in range(1, users)])
    assert found[0].error == pytest.approx(one * np.sqrt(mean))


def test_open_ended_trees_are_compared_at_the_scales_of_their_epochs() -> None:
    """Laplace scales grow with an epoch's levels, Gaussian ones with their root: Gaussian wins late."""
    privatizer = Central(epsilon=1.0, delta=1e-7)
    found = {c.noise: c for c in privatizer.choices(QUERY, Schedule(None), Seeded(0))}
    session = {
        noise: Central(epsilon=1.0, delta=1e-7, noise=noise.lower()).start(QUERY, Schedule(None), Seeded(0))  # type: ignore[arg-type]
        for noise in found
    }
    for noise, choice in found.items():
        assert choice.error == pytest.approx(session[noise].laws_at(2**20)["transition_counts"].std())
    assert found["Laplace"].scales[0] * np.sqrt(2) < found["Gaussian"].scales[0]
    assert found["Gaussian"].error < found["Laplace"].error
    assert privatizer.start(QUERY, Schedule(None), Seeded(0)).guarantee.mu is not None
