"""Sessions: order of calls, the joint law of the noise, isolation, secure noise, no second copy."""

import numpy as np
import pytest
from scipy import stats

from discreet.accounting.noise_distributions.count_noise import report_grid
from discreet.core.correlated_noise.matrix_factorization import MatrixFactorization
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import rewards, visits
from discreet.core.layout import Layout
from discreet.core.noise.noises import AdditiveNoise
from discreet.core.protocols import Coins
from discreet.core.query import FamilyQuery
from discreet.core.rng import Secure, Seeded
from discreet.core.session import ChannelSession
from discreet.core.strategies import Batches
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.mechanisms.interfaces import Message, Plan, Release, Schedule
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.seeded_rng import SeededRng

LAYOUT = Layout(2, 2, 2)
QUERY = CountQuery(LAYOUT)
POLICY = np.zeros((2, 2), np.int64)
SE = 5.0  # combined standard errors, false alarm below 6e-7 a cell (tables are pooled into one test)


def user(i: int = 0) -> Trajectory:
    rng = np.random.default_rng(i)
    return Trajectory(rng.integers(2, size=3), rng.integers(2, size=2), rng.uniform(size=2))


def feed(session: ChannelSession, first: int, users: int, seed: Seeded | Secure | None = None) -> None:
    encoder = session.begin(Plan(POLICY, users=users))
    for i in range(first, first + users):
        coins = SeededRng(seed.keys.noise, i) if isinstance(seed, Seeded) else None
        session.submit(encoder(user(i), session.open_plan, coins))  # type: ignore[arg-type]


def noise_of(release: Release, users: int) -> np.ndarray:
    truth = [QUERY.contribution(user(i)) for i in range(users)]
    parts = [
        estimate.value - sum((t[name] for t in truth), np.zeros(estimate.value.shape))
        for name, estimate in release.estimates.items()
    ]
    return np.concatenate([part.ravel() for part in parts])


def noises(privatizer: object, users: int, at: list[int], runs: int) -> np.ndarray:
    """(runs, len(at), cells) noise of the releases after ``at`` users."""
    out = np.zeros((runs, len(at), QUERY.cells))
    truth = np.cumsum(
        [np.concatenate([t.ravel() for t in QUERY.contribution(user(i)).values()]) for i in range(at[-1])],
        axis=0,
    )
    for run in range(runs):
        seed = Seeded(11, run)
        with privatizer.start(QUERY, Schedule(users), seed) as session:  # type: ignore[attr-defined]
            session.release()
            done = 0
            for j, n in enumerate(at):
                feed(session, done, n - done, seed)
                done = n
                cells = np.concatenate([e.value.ravel() for e in session.release().estimates.values()])
                out[run, j] = cells - truth[n - 1]
    return out


# -------------------------------------------------------------------------------- the tree's law


def test_tree_noise_has_the_stated_std_at_every_release() -> None:
    privatizer = Central(release="tree", epsilon=1.0)
    at, runs = [1, 2, 3, 7, 8, 255, 256], 60
    out = noises(privatizer, 1000, at, runs)
    session = privatizer.start(QUERY, Schedule(1000), Seeded(0))
    scale = 6 * 2 * 10 / 1.0  # 6 H L / epsilon, H = 2, L = bit_length(999) = 10
    assert session.mechanism.scales == pytest.approx([scale] * 3)
    for j, n in enumerate(at):
        terms = n.bit_count()
        std = scale * np.sqrt(2 * terms)
        assert session.laws_at(n)["transition_counts"].std() == pytest.approx(std)
        ratio = out[:, j].var() / std**2
        kurtosis = 3 + 3 / terms
        assert abs(ratio - 1) < SE * np.sqrt((kurtosis - 1) / out[:, j].size)


def test_a_node_is_one_noise_in_every_release_that_holds_it() -> None:
    """Noise at 8, 9, 10, 12: Cov(9, 8) = Var(8); increments are single fresh nodes, or 8's own."""
    out = noises(Central(release="tree", epsilon=1.0), 1000, [8, 9, 10, 12, 16], 60)
    eight, nine, ten, twelve, sixteen = (out[:, j].ravel() for j in range(5))
    variance = 2 * 120.0**2
    n = eight.size
    for fresh in (nine - eight, ten - eight, twelve - eight):
        assert abs(fresh.var() / variance - 1) < SE * np.sqrt(5 / n)
        assert abs(np.corrcoef(fresh, eight)[0, 1]) < SE / np.sqrt(n)
    assert abs(np.corrcoef(nine - eight, ten - eight)[0, 1]) < SE / np.sqrt(n)
    assert abs(np.corrcoef(sixteen, twelve)[0, 1]) < SE / np.sqrt(n)


@pytest.mark.parametrize(
    "privatizer",
    [Central(release="tree", epsilon=1.0), Local(randomizer="laplace", epsilon=1.0)],
    ids=["tree", "local"],
)
def test_cells_families_and_users_have_independent_noise(privatizer: object) -> None:
    out = noises(privatizer, 100, [3], 800)[:, 0]
    correlation = np.corrcoef(out.T)[np.triu_indices(QUERY.cells, 1)]
    # 496 correlations as one test: the largest of them
    assert np.abs(correlation).max() < stats.norm.isf(1e-7 / correlation.size) / np.sqrt(len(out))
    scaled = np.sort(out[:, 0])
    assert np.unique(scaled).size == scaled.size


def test_tree_noise_is_a_sum_of_laplace_variables() -> None:
    out = noises(Central(release="tree", epsilon=1.0), 1000, [4, 5], 100)
    assert stats.kstest(out[:, 0].ravel(), stats.laplace(scale=120.0).cdf).pvalue > 1e-7
    direct = np.random.default_rng(0).laplace(scale=120.0, size=(2, 50_000)).sum(axis=0)
    assert stats.ks_2samp(out[:, 1].ravel(), direct).pvalue > 1e-7


def test_gaussian_tree() -> None:
    privatizer = Central(release="tree", epsilon=1.0, delta=1e-6, noise="gaussian")
    out = noises(privatizer, 1000, [4], 100)[:, 0].ravel()
    sigma = np.sqrt(6 * 2 * 10) * 4.2247
    assert stats.kstest(out, stats.norm(scale=sigma).cdf).pvalue > 1e-7


def test_open_ended_tree() -> None:
    privatizer = Central(release="tree", epsilon=1.0)
    session = privatizer.start(QUERY, Schedule(None), Seeded(1))
    session.release()
    feed(session, 0, 11, Seeded(1))
    release = session.release()
    assert session.guarantee.epsilon == pytest.approx(1.0)
    # 11 = 1 + 2 + 4 users in closed epochs (scales 12, 24, 36), then 4 of epoch 3 (one node, scale 48)
    law = release.estimates["visits"].law
    assert law.std() == pytest.approx(np.sqrt(2 * (12**2 + 24**2 + 36**2 + 48**2)))
    out = np.array([_open_noise(run) for run in range(400)])
    assert abs(out.var() / law.std() ** 2 - 1) < SE * np.sqrt(5 / out.size)


def _open_noise(run: int) -> np.ndarray:
    session = Central(release="tree", epsilon=1.0).start(QUERY, Schedule(None), Seeded(3, run))
    session.release()
    feed(session, 0, 11)
    return noise_of(session.release(), 11)


# -------------------------------------------------------------------------------------- secure


def test_secure_noise_is_discrete_exact_and_not_repeatable() -> None:
    releases = []
    for _ in range(2):
        session = Central(release="tree", epsilon=1.0).start(QUERY, Schedule(100), Secure())
        session.release()
        feed(session, 0, 5)
        releases.append(session.release())
        assert session.guarantee.randomness == "secure"
        assert session.guarantee.epsilon == pytest.approx(1.0)
    for release in releases:
        for name, estimate in release.estimates.items():
            grid = 1024 if name == "reward_sums" else 1
            assert (estimate.value * grid == np.round(estimate.value * grid)).all()
            assert estimate.law.family == "discrete_laplace"
    assert not np.array_equal(releases[0].estimates["visits"].value, releases[1].estimates["visits"].value)


def test_secure_tree_noise_has_its_std_and_is_reused() -> None:
    eight, nine = [], []
    for _ in range(150):
        session = Central(release="tree", epsilon=1.0).start(QUERY, Schedule(1000), Secure())
        session.release()
        feed(session, 0, 8)
        eight.append(noise_of(session.release(), 8)[:24])
        feed(session, 8, 1)
        nine.append(noise_of(session.release(), 9)[:24])
    before, after = np.array(eight).ravel(), np.array(nine).ravel()
    variance = 2 * 120.0**2
    for sample in (before, after - before):
        assert abs(sample.var() / variance - 1) < SE * np.sqrt(5 / sample.size)
    assert abs(np.corrcoef(before, after - before)[0, 1]) < SE / np.sqrt(before.size)


def test_secure_gaussian_with_unknown_users_is_calibrated_by_zcdp() -> None:
    """Epochs have growing scales, which no numerical accounting covers (else: test_calibration)."""
    privatizer = Central(release="tree", epsilon=1.0, delta=1e-6, noise="gaussian")
    secure = privatizer.start(QUERY, Schedule(None), Secure())
    seeded = privatizer.start(QUERY, Schedule(None), Seeded(0))
    assert secure.guarantee.mu is None
    assert secure.guarantee.rho is not None
    assert secure.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    ratio = secure.mechanism.scales[0] / seeded.mechanism.scales[0]
    assert ratio == pytest.approx(4.5309 / 4.2247, rel=1e-3)


# --------------------------------------------------------------------------------- order of calls


def fresh(users: int | None = 10) -> ChannelSession:
    return NoPrivacy().start(QUERY, Schedule(users), Seeded(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.array([0.5, 1.2])}, r"trajectory.rewards\[1\] = 1.2: must be in \[0, 1\]"),
        ({"rewards": np.array([np.nan, 0.0])}, r"trajectory.rewards\[0\] = nan"),
        ({"states": np.array([0, 2, 0])}, r"trajectory.states\[1\] = 2: must be an integer in \[0, 1\]"),
        ({"actions": np.array([-1, 0])}, r"trajectory.actions\[0\] = -1"),
        ({"actions": np.array([0.0, 1.0])}, r"trajectory.actions has dtype float64"),
        ({"rewards": np.zeros(3)}, r"trajectory.rewards has shape \(3,\): must be \(2,\)"),
    ],
)
def test_a_broken_record_adds_nothing(change: dict[str, np.ndarray], message: str) -> None:
    session = fresh()
    session.release()
    session.begin(Plan(POLICY))
    fields = {"states": np.zeros(3, int), "actions": np.zeros(2, int), "rewards": np.zeros(2)} | change
    with pytest.raises(ValueError, match=message):
        session.submit(Message(plan=1, trajectory=Trajectory(**fields)))
    session.absent()
    assert all((e.value == 0).all() for e in session.release().estimates.values())


def test_messages_of_the_wrong_kind_are_refused() -> None:
    session = Local(randomizer="laplace", epsilon=1.0).start(QUERY, Schedule(5), Seeded(0))
    session.begin(Plan(POLICY))
    with pytest.raises(
        ValueError, match=r"randomized messages only, what .* encoder = session.begin\(plan\)"
    ):
        session.submit(Message(plan=1, trajectory=user()))
    with pytest.raises(ValueError, match="must be finite"):
        session.submit(Message(plan=1, message=np.full(QUERY.cells, np.nan)))


# ------------------------------------------------------------------------------------- guarantees


@pytest.mark.parametrize("users", [2, 3, 4, 5, 1000, 1024, 20_000])
def test_true_epsilon_of_published_scales(users: int) -> None:
    query, horizon = CountQuery(Layout(6, 2, 20)), 20
    levels = (users - 1).bit_length()
    for base in (2.0, np.e):
        published = Central(release="tree", epsilon=1.0, calibration="published", log_base=base)
        session = published.start(query, Schedule(users), Seeded(0))
        log_users = np.log(users) / np.log(base)
        assert session.mechanism.scales == pytest.approx([3 * horizon * log_users] * 3)
        assert session.guarantee.epsilon == pytest.approx(2 * levels / log_users)
        assert session.guarantee.epsilon_nominal == 1.0
    exact = Central(release="tree", epsilon=1.0).start(query, Schedule(users), Seeded(0))
    assert exact.guarantee.epsilon == pytest.approx(1.0)
    assert exact.mechanism.scales == pytest.approx([6 * horizon * levels] * 3)
    local = Local(epsilon=1.0, calibration="published").start(query, Schedule(users), Seeded(0))
    assert local.guarantee.epsilon == pytest.approx(2.0)
    assert Local(randomizer="laplace", epsilon=1.0).start(
        query, Schedule(users), Seeded(0)
    ).mechanism.scales == pytest.approx([120.0] * 3)


def test_reference_scales_of_the_specification() -> None:
    query = CountQuery(Layout(6, 2, 20))
    gaussian = Central(release="tree", epsilon=1.0, delta=1e-6, noise="gaussian").start(
        query, Schedule(20_000), Seeded(0)
    )
    assert gaussian.mechanism.scales == pytest.approx([179.2] * 3, rel=1e-3)
    pooled = CountQuery(Layout(6, 2, 20), stationary=True)
    rho = 0.017469
    session = Central(release="tree", rho=rho).start(pooled, Schedule(20_000), Seeded(0))
    assert session.mechanism.scales == pytest.approx([1015] * 3, rel=1e-3)
    local = Local(rho=rho).start(query, Schedule(20_000), Seeded(0))
    assert local.mechanism.scales == pytest.approx([58.6] * 3, rel=1e-3)


def test_local_message_is_epsilon_indistinguishable_and_no_better() -> None:
    """Exact log-likelihood ratio of the message at extreme outputs: the sup over outputs is epsilon."""
    layout = Layout(2, 2, 3)
    query = CountQuery(layout)
    one = Trajectory(np.array([0, 0, 0, 0]), np.zeros(3, int), np.ones(3))
    other = Trajectory(np.array([1, 1, 1, 1]), np.ones(3, int), np.ones(3))
    for calibration, true in (("exact", 1.0), ("published", 2.0)):
        session = Local(epsilon=1.0, randomizer="laplace", calibration=calibration).start(
            query, Schedule(5), Seeded(0)
        )  # type: ignore[arg-type]
        scales = np.concatenate(
            [
                np.full(int(np.prod(shape)), b)
                for shape, b in zip(query.families.values(), session.mechanism.scales, strict=True)
            ]
        )
        x, y = (np.concatenate([t.ravel() for t in query.contribution(u).values()]) for u in (one, other))
        extreme = np.where(x > y, 1e3, -1e3)
        ratio = float(((np.abs(extreme - y) - np.abs(extreme - x)) / scales).sum())
        assert ratio == pytest.approx(true)
        outputs = np.random.default_rng(2).normal(scale=50, size=(2000, x.size))
        ratios = ((np.abs(outputs - y) - np.abs(outputs - x)) / scales).sum(axis=1)
        assert np.abs(ratios).max() <= true + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": float("inf")}, "none"),
        ({}, "exactly one of epsilon, rho and mu"),
        ({"epsilon": 1.0, "rho": 1.0}, "exactly one of epsilon, rho and mu"),
        ({"epsilon": 1.0, "delta": 1.5}, "delta"),
        ({"epsilon": 1.0, "noise": "gaussian"}, "delta = 0"),
        ({"epsilon": 1.0, "noise": "cauchy"}, "'laplace', 'gaussian', 'auto'"),
        ({"epsilon": 1.0, "calibration": "loose"}, "'exact', 'published'"),
        ({"rho": 1.0, "calibration": "published"}, "Laplace at a pure epsilon"),
        ({"epsilon": 1.0, "weights": (0.5, 0.6)}, "must sum to 1"),
        ({"epsilon": 1.0, "preset": "nice"}, "'default', 'paper'"),
    ],
)
@pytest.mark.parametrize("factory", [Central, Local])
def test_bad_budgets_are_refused(factory: type, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        factory(**options)


def test_auto_takes_the_smaller_noise() -> None:
    few, many = CountQuery(Layout(3, 2, 2)), CountQuery(Layout(3, 2, 20))
    schedule = Schedule(1000)
    for query in (few, many):
        stds = {}
        for noise in ("laplace", "gaussian", "auto"):
            session = Local(epsilon=1.0, delta=1e-6, noise=noise).start(query, schedule, Seeded(0))  # type: ignore[arg-type]
            stds[noise] = session.laws_at(1)["transition_counts"].std()
        assert stds["auto"] < min(stds["laplace"], stds["gaussian"])  # reports of one random step


def test_error_bounds_are_the_specifications() -> None:
    """Specification, table 4.5: RiverSwim, K = 20 000, epsilon 1, failure .01."""
    query, schedule = CountQuery(Layout(6, 2, 20)), Schedule(20_000)
    for privatizer, e1, e3 in (
        (Central(release="tree", epsilon=1.0), 72_035, 76_380),
        (Central(release="tree", epsilon=1.0, calibration="published"), 34_307, 36_376),
        (Local(randomizer="laplace", epsilon=1.0), 148_045, 154_709),
    ):
        session = privatizer.start(query, schedule, Seeded(0))
        laws = session.mechanism.laws.steps()[-1][1]
        assert laws["visits"].bound(0.01 / 3) == pytest.approx(e1, rel=1e-3)
        assert laws["transition_counts"].bound(0.01 / 3) == pytest.approx(e3, rel=1e-3)


def test_report_grid_rounds_up_by_at_most_five_percent() -> None:
    for n in [*range(1, 300), 19_999, 10**6]:
        point = report_grid(n, 10**7)
        assert n <= point <= max(n, 1.05 * n + 1)
    assert report_grid(19_999, 19_999) == 19_999


def test_error_events_are_rarer_than_stated() -> None:
    """Spec 10.12, fewer runs: S = A = H = 2, K = 64, failure .2, both families of privatizer."""
    for privatizer in (Central(release="tree", epsilon=1.0), Local(epsilon=1.0)):
        runs, broken = 60, 0
        session = privatizer.start(QUERY, Schedule(64), Seeded(0))
        bounds = [
            np.concatenate(
                [
                    np.full(int(np.prod(s)), session.laws_at(n)[f].bound(0.2 / 3))
                    for f, s in QUERY.families.items()
                ]
            )
            for n in range(1, 64)
        ]
        out = noises(privatizer, 64, list(range(1, 64)), runs)
        broken = int((np.abs(out) > np.array(bounds)[None]).any(axis=(1, 2)).sum())
        assert broken / runs <= 0.2 + SE * np.sqrt(0.2 * 0.8 / runs)


@pytest.mark.parametrize("privatizer", [NoPrivacy(), Central(epsilon=1.0)])
def test_a_trusted_server_takes_trajectories_as_they_are(privatizer: NoPrivacy | Central) -> None:
    ours, theirs = (privatizer.start(QUERY, Schedule(4), Seeded(5)) for _ in range(2))
    for session in (ours, theirs):
        session.release()
    with pytest.raises(RuntimeError, match="no plan is open: call begin first"):
        ours.submit(user(0))
    ours.begin(Plan(POLICY, users=3))
    feed(theirs, 0, 3)
    for i in range(3):
        ours.submit(user(i))
    mine, other = ours.release(), theirs.release()
    for name, estimate in mine.estimates.items():
        np.testing.assert_array_equal(estimate.value, other.estimates[name].value)
    with pytest.raises(RuntimeError, match="no plan is open: call begin first"):
        ours.submit(user(3))


MATRIX = MatrixFactorization(np.tril(np.ones((3, 3))))


@pytest.mark.parametrize("release", ["tree", MATRIX], ids=["tree", "matrix"])
def test_registers_that_do_not_fit_the_releases_are_refused(release: object) -> None:
    """Without them, noise of released time steps would be drawn again."""
    schedule = Schedule(8, times=np.array([0, 2, 4, 6]))
    session = Central(epsilon=1.0, release=release).start(QUERY, schedule, Seeded(0))  # type: ignore[arg-type]
    for first in (0, 2):
        session.release()
        feed(session, first, 2, Seeded(0))
    session.release()
    table = session._table
    label, noise = max(table["registers"].items())
    for registers, words in (
        ({}, "registers: "),
        ({**table["registers"], label: noise[:1]}, "has shape"),
        ({**table["registers"], label: noise * np.inf}, "finite"),
        ({**table["registers"], 40: noise}, "registers"),
    ):
        with pytest.raises(ValueError, match=words):
            session.channel.from_plain(session, {**table, "registers": registers})
    assert session.channel.from_plain(session, table) is table


class Widened(AdditiveNoise):
    """Laplace noise of a plug-in."""

    name, norm = "widened", "l1"

    def cost(self, shift: float, scale: float) -> float:
        return shift / scale

    def draw(self, coins: Coins, scale: float, size: int, grid: int | None) -> np.ndarray:
        return coins.laplace(scale, size, grid)

    def std(self, scale: float, grid: int | None) -> float:
        return 2.0**0.5 * scale


@pytest.mark.parametrize("source", [Seeded(3), Secure(1024)])
def test_families_of_ones_own_are_added_one_by_one_and_together(source: Seeded | Secure) -> None:
    """Rounding keeps rewards on the grid, so both ways and the exact sums agree."""
    query = FamilyQuery(LAYOUT, (visits(), rewards(0.5)))
    lives = [Trajectory(user(i).states, user(i).actions, np.array([0.25, 1.0])) for i in range(4)]
    found = []
    for together in (False, True):
        how = Central(epsilon=1.0, release="batches")
        session = how.start(query, Schedule(8, times=np.array([0, 4])), source)
        session.release()
        session.begin(Plan(POLICY, 4))
        if together:
            parts = (
                np.stack([getattr(life, name) for life in lives]) for name in ("states", "actions", "rewards")
            )
            session.submit_many(Trajectories(*parts), 1)
        else:
            for life in lives:
                session.submit(Message(plan=1, trajectory=life))
        found.append(session.state["cells"].copy())
    whole = [query.to_cells(query.contribution(life)) for life in lives]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], np.sum(whole, axis=0))


def test_seeded_draws_of_a_declared_noise_are_addressed() -> None:
    mechanism = CountMechanism(
        QUERY, Schedule(8, times=np.array([0, 4])), "seeded", Batches(), Widened(), np.full(3, 2.0)
    )
    session = session_of(mechanism, Seeded(3))
    first, again, other = (session.channel.node_noise(end, 1.0) for end in (4, 4, 5))
    assert np.array_equal(first, again)
    assert (first != other).all()
    wanted = [SeededRng(Seeded(3).keys.noise, 4, 0).laplace(2.0, size) for size in np.diff(QUERY.offsets)[:1]]
    assert np.array_equal(first[: QUERY.offsets[1]], wanted[0])
