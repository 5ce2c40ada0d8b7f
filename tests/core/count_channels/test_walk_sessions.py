"""Walks in sessions: what is released, what it costs, secure noise, interrupts, stepwise against fused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted
from scipy import optimize

import discreet as dr
from discreet.accounting.noise_distributions.distributions import (
    GaussianSumLaw,
    LaplaceSumLaw,
    WeightedLaplaceLaw,
)
from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise.binary_tree import Tree
from discreet.core.correlated_noise.matrix_factorization import MatrixFactorization
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.noise.noises import GAUSSIAN, LAPLACE
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.strategies import Exact, Prefixes
from discreet.core.trajectories import Trajectory
from discreet.experiments.simulate import Setup
from discreet.mechanisms.interfaces import Plan, Release, Schedule
from discreet.mechanisms.privatizers import central
from discreet.mechanisms.privatizers.central import Central

QUERY = CountQuery(Layout(2, 2, 2))
POLICY = np.zeros((2, 2), np.int64)
LIFE = Trajectory(np.array([0, 1, 0]), np.array([1, 0]), np.array([1.0, 0.25]))
ONE = np.concatenate([t.ravel() for t in QUERY.contribution(LIFE).values()])

TREE = Central(epsilon=1.0, release="tree")
OPTIMAL = Central(epsilon=1.0, release="tree", tree_estimate="optimal")
OPTIMAL_GAUSSIAN = Central(epsilon=1.0, delta=1e-6, noise="gaussian", release="tree", tree_estimate="optimal")
DIGITS = Central(epsilon=1.0, release="signed-digits", arity=3)
ROOT = Central(epsilon=1.0, delta=1e-6, release="square-root")
BANDED = MatrixFactorization(np.tril(np.triu(np.ones((80, 80)), -3) / np.arange(1.0, 81.0)[:, None]))
MATRIX = Central(epsilon=1.0, release=BANDED)
MATRIX_GAUSSIAN = Central(epsilon=1.0, delta=1e-6, noise="gaussian", release=BANDED)
ALL = {
    "tree": TREE, "optimal": OPTIMAL, "optimal-gaussian": OPTIMAL_GAUSSIAN, "digits": DIGITS, "root": ROOT,
    "matrix": MATRIX, "matrix-gaussian": MATRIX_GAUSSIAN,
}  # fmt: skip
every_walk = pytest.mark.parametrize("privatizer", ALL.values(), ids=ALL)


WHOLE = Central(epsilon=1.0, release=MatrixFactorization(np.eye(30) - np.eye(30, k=-2)))


@pytest.fixture
def deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three levels, where the best for so few leaves has one: bases, early blocks and all."""
    monkeypatch.setattr(
        central, "best_digits", lambda leaves, arity=None: SignedDigits(leaves, arity or 3, 3)
    )


def come(session: ChannelSession, users: int) -> None:
    encoder = session.begin(Plan(POLICY, users=users))
    for _ in range(users):
        session.submit(encoder(LIFE, session.open_plan, SecureRng()))


def noise_of(release: Release) -> np.ndarray:
    values = np.concatenate([e.value.ravel() for e in release.estimates.values()])
    return values - release.users * ONE


def recorded(session: ChannelSession) -> dict[tuple[int, int], np.ndarray]:
    """The latest draw at each address in units of the base scale, filled while the session runs."""
    draws: dict[tuple[int, int], np.ndarray] = {}
    draw = session.channel.node_noise

    def noted(end: int, factor: float, level: int = 0) -> np.ndarray:
        drawn = draw(end, factor, level)
        draws[end, level] = drawn / factor
        return drawn

    session.channel.node_noise = noted  # type: ignore[method-assign]
    return draws


# ----------------------------------------------------------------------------- what is released
@pytest.mark.usefixtures("deep")
@every_walk
@pytest.mark.parametrize("leaf", ["batch", "user"])
@pytest.mark.parametrize("skip", [False, True])
def test_releases_are_exact_sums_plus_the_matrix_times_the_draws(
    privatizer: Central, leaf: str, skip: bool
) -> None:
    """Every scheduled release, or some left out; leaves of one user or of a batch: B z, each draw once."""
    schedule = Schedule(60, growth=1.3)
    privatizer = Central(**{**privatizer.options(), "leaf": leaf})
    session = privatizer.start(QUERY, schedule, Seeded(0))
    walk = session.mechanism.walk
    assert walk is not None
    matrix, addresses = noise_matrix(walk)
    draws = recorded(session)
    session.release()
    times, done = schedule.release_times.tolist(), 0
    for i, n in enumerate(times):
        if n == 0 or (skip and i % 3 == 1):
            continue
        come(session, n - done)
        done = n
        noise = noise_of(session.release())
        row = matrix[(n if leaf == "user" else i) - 1]
        made = np.array([draws.get(address, np.full(ONE.size, np.nan)) for address in addresses])
        np.testing.assert_allclose(noise, row[row != 0] @ made[row != 0], atol=1e-9)
    assert set(draws) <= set(addresses)


@pytest.mark.usefixtures("deep")
@every_walk
def test_laws_state_the_exact_std_and_bounds_that_hold(privatizer: Central) -> None:
    session = privatizer.start(QUERY, Schedule(50), Seeded(0))
    matrix, _ = noise_matrix(session.mechanism.walk)  # type: ignore[arg-type]
    variances = (matrix**2).sum(axis=1)
    laplace = session.guarantee.mu is None
    one = session.mechanism.scales[0] * (np.sqrt(2) if laplace else 1.0)
    steps = session.mechanism.laws.steps()
    for n in range(1, 50):
        law = session.laws_at(n)["transition_counts"]
        assert law.std() == pytest.approx(one * np.sqrt(variances[n - 1]))
        assert law.std_bound() >= one * np.sqrt(variances[:n].max()) * (1 - 1e-12)
        held = next(laws for end, laws in steps if end >= n)["transition_counts"]
        assert held.std_bound() == law.std_bound()
        assert held.bound(0.1) == law.bound(0.1)
    if not laplace:
        assert isinstance(law, GaussianSumLaw)
        assert law.std_bound() < 1.04 * one * np.sqrt(variances.max())
    elif session.mechanism.walk.weighted:  # type: ignore[union-attr]
        assert isinstance(law, WeightedLaplaceLaw)
    else:
        assert type(law) is LaplaceSumLaw


def test_the_bound_of_weighted_laplace_sums_holds() -> None:
    """Against the exact tail at distinct weights: sum_i A_i e^{-y/w_i}, A_i = prod w_i^2/(w_i^2 - w_j^2)."""
    weights = np.array([1.0, 0.9, 0.75, 0.5, 0.3, 0.11])
    terms = float((weights**2).sum())
    law = WeightedLaplaceLaw(2.0, terms, int(np.ceil(terms)), cells=1, rows=1)
    squares = weights**2
    parts = [np.prod([w / (w - v) for j, v in enumerate(squares) if j != i]) for i, w in enumerate(squares)]
    for p in (1e-2, 1e-4, 1e-8):

        def tail(y: float) -> float:
            return float(sum(a * np.exp(-y / w) for a, w in zip(parts, weights, strict=True)))

        quantile = optimize.brentq(lambda y, p=p: tail(y) - p, 0.0, 100.0)
        assert quantile <= law.bound(p) / 2.0 < 1.6 * quantile
    with pytest.raises(ValueError, match="unit"):
        WeightedLaplaceLaw(1.0, 1.0, 1, cells=1, rows=1, unit=1.0)


# --------------------------------------------------------------------------------- what it costs
def test_scales_and_guarantees_follow_from_the_columns() -> None:
    """Raw families, H = 2: b = 6 H L / epsilon; sigma = sqrt(6 H L) * 4.2247 at (1, 1e-6)."""
    schedule = Schedule(1000)
    digits = Central(epsilon=1.0, release="signed-digits", arity=12).start(QUERY, schedule, Seeded(0))
    levels = digits.mechanism.walk.levels  # type: ignore[union-attr]
    assert levels == 3
    assert digits.mechanism.scales == pytest.approx([12.0 * levels] * 3)
    assert digits.guarantee.epsilon == pytest.approx(1.0)
    assert digits.guarantee.delta == 0
    assert "signed-digit trees of arity 12" in digits.guarantee.statement
    root = ROOT.start(QUERY, schedule, Seeded(0))
    assert root.mechanism.scales == pytest.approx([np.sqrt(12.0) * 4.2247] * 3, rel=1e-4)
    assert root.guarantee.epsilon == pytest.approx(1.0)
    assert "Toeplitz" in root.guarantee.statement
    for estimate in ("plain", "optimal"):
        tree = Central(epsilon=1.0, release="tree", tree_estimate=estimate).start(  # type: ignore[arg-type]
            QUERY, schedule, Seeded(0)
        )
        assert tree.mechanism.scales == pytest.approx([12.0 * 10] * 3)
        assert ("least-squares" in tree.guarantee.statement) == (estimate == "optimal")


def test_a_delta_does_not_weaken_signed_digits() -> None:
    session = Central(epsilon=1.0, delta=1e-6, release="signed-digits").start(QUERY, Schedule(99), Seeded(0))
    assert session.guarantee.delta == 0
    assert session.guarantee.epsilon == pytest.approx(1.0)


def test_published_scales_take_the_optimal_estimate_too() -> None:
    plain, optimal = (
        Central(epsilon=1.0, preset="paper", tree_estimate=estimate).start(QUERY, Schedule(99), Seeded(0))  # type: ignore[arg-type]
        for estimate in ("plain", "optimal")
    )
    assert plain.guarantee.epsilon == optimal.guarantee.epsilon
    assert (plain.mechanism.scales == optimal.mechanism.scales).all()
    assert optimal.laws_at(98)["visits"].std() < plain.laws_at(98)["visits"].std()


def test_choices_hold_every_walk_and_their_exact_error() -> None:
    """Root mean square over the releases of the std that the laws state."""
    schedule = Schedule(300, growth=1.05)
    times = schedule.release_times[1:].tolist()
    found = Central(epsilon=1.0, delta=1e-6).choices(QUERY, schedule, Seeded(0))
    assert {c.name.split(" (arity")[0] for c in found if c.walk} == {
        "tree", "tree (optimal estimate)", "signed-digits", "square-root",
    }  # fmt: skip
    for choice in (c for c in found if c.walk):
        assert not (choice.release == "signed-digits" and choice.noise == "Gaussian")
        assert not (choice.release == "square-root" and choice.noise == "Laplace")
        options = {
            "release": choice.release,
            "tree_estimate": "optimal" if "optimal" in choice.name else "plain",
        }
        # asked for by name, Laplace noise at a delta is set by its privacy-loss distribution; auto's is pure
        delta = 1e-6 if choice.noise == "Gaussian" else None
        session = Central(epsilon=1.0, delta=delta, noise=choice.noise.lower(), **options).start(  # type: ignore[arg-type]
            QUERY, schedule, Seeded(0)
        )
        stds = [session.laws_at(n)["transition_counts"].std() for n in times]
        assert choice.error == pytest.approx(np.sqrt(np.mean(np.square(stds))))


def test_open_ended_streams_have_plain_trees_only() -> None:
    for privatizer, words in (
        (DIGITS, "release = 'signed-digits'"), (ROOT, "release = 'square-root'"),
        (OPTIMAL, "tree_estimate = 'optimal'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"users = None: {words} needs a known number of users"):
            privatizer.start(QUERY, Schedule(None), Seeded(0))
    found = Central(epsilon=1.0, delta=1e-6).choices(QUERY, Schedule(None), Seeded(0))
    assert {c.name for c in found} == {"tree"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"release": "signed-digits", "epsilon": 1.0, "delta": 1e-6, "noise": "gaussian"}, "pure epsilon"),
        ({"release": "signed-digits", "mu": 1.0}, "pure epsilon"),
        ({"release": "square-root", "epsilon": 1.0}, "its noise is Gaussian"),
        ({"release": "square-root", "epsilon": 1.0, "delta": 1e-6, "noise": "laplace"}, "is Gaussian"),
        ({"epsilon": 1.0, "arity": 3}, "option of release = 'signed-digits'"),
        ({"epsilon": 1.0, "release": "signed-digits", "arity": 1}, "arity = 1"),
        ({"epsilon": 1.0, "tree_estimate": "optimal"}, "option of release = 'tree'"),
        ({"epsilon": 1.0, "tree_estimate": "best"}, "'plain', 'optimal'"),
        ({"epsilon": 1.0, "release": "signed-digits", "calibration": "published"}, "that of a tree"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Central(**options)


def test_a_mechanism_and_its_walk_must_fit() -> None:
    fits = TREE.mechanism(QUERY, Schedule(10), Seeded(0))
    for walk in (SignedDigits(11, 3, 2), Tree(9), Tree(None)):
        with pytest.raises(ValueError, match=r"strategy\.walk: has .* leaves"):
            replace(fits, strategy=Prefixes(walk))
    with pytest.raises(ValueError, match="has no noise in sums"):
        replace(fits, strategy=Exact())
    with pytest.raises(ValueError, match="no finite l2 norm"):
        replace(fits, strategy=Prefixes(SignedDigits(10, 3, 2)), noise=GAUSSIAN)
    with pytest.raises(ValueError, match="no finite l1 norm"):
        replace(fits, strategy=Prefixes(SquareRoot(10)), noise=LAPLACE)


@every_walk
def test_walks_give_no_measurements(privatizer: Central) -> None:
    with pytest.raises(ValueError, match="gives no measurements"):
        Setup(dr.make("riverswim"), dr.NoiseAwareUCBVI(), privatizer, 100)
    with pytest.raises(ValueError, match="gives no measurements"):
        privatizer.start(QUERY, Schedule(9), Seeded(0)).mechanism.laws.measurement(1, 1)


# ----------------------------------------------------------------------------- secure randomness
@pytest.mark.usefixtures("deep")
def test_secure_signed_digits_are_integers_and_consistent() -> None:
    """Draws that cannot be repeated: later releases still hold the early noise of blocks."""
    session = DIGITS.start(QUERY, Schedule(40), Secure())
    matrix, addresses = noise_matrix(session.mechanism.walk)  # type: ignore[arg-type]
    draws = recorded(session)
    session.release()
    split, ahead = int(QUERY.offsets[2]), 0
    for n in range(1, 40):
        come(session, 1)
        release = session.release()
        values = np.concatenate([e.value.ravel() for e in release.estimates.values()])
        assert (values[:split] == np.round(values[:split])).all()
        assert (values[split:] * 1024 == np.round(values[split:] * 1024)).all()
        made = np.array([draws.get(address, np.zeros(ONE.size)) for address in addresses])
        np.testing.assert_array_equal(noise_of(release), matrix[n - 1] @ made)
        ahead += max(end * 3**level for end, level in draws) > n
    assert ahead > 10  # releases that hold noise of blocks whose data do not exist yet


def test_noise_that_is_no_integer_is_refused_under_secure_randomness() -> None:
    for privatizer in (OPTIMAL, OPTIMAL_GAUSSIAN, ROOT):
        with pytest.raises(ValueError, match="not integers"):
            privatizer.start(QUERY, Schedule(40), Secure())
    found = Central(epsilon=1.0, delta=1e-6).choices(QUERY, Schedule(5000), Secure())
    assert {c.name.split(" (")[0] for c in found} == {"tree", "signed-digits", "batches", "decaying"}
    assert not any("optimal" in c.name for c in found)


# ------------------------------------------------------------------------------------ interrupts
@pytest.mark.usefixtures("deep")
@pytest.mark.parametrize(
    ("privatizer", "randomness"),
    [
        (OPTIMAL, Seeded(0)),
        (ROOT, Seeded(0)),
        (DIGITS, Seeded(0)),
        (DIGITS, Secure()),
        (TREE, Secure()),
        (MATRIX, Seeded(0)),
        (WHOLE, Secure()),
    ],
    ids=["optimal", "root", "digits", "digits-secure", "tree-secure", "matrix", "matrix-secure"],
)
def test_an_interrupted_release_leaves_one_noise_for_each_draw(privatizer: Central, randomness: Any) -> None:
    """Ctrl-C at any line of a release that draws ahead and moves registers: later ones are B z for one z."""
    for at in range(0, 400, 5):
        session = privatizer.start(QUERY, Schedule(20), randomness)
        matrix, addresses = noise_matrix(session.mechanism.walk)  # type: ignore[arg-type]
        draws = recorded(session)
        session.release()
        for _ in range(4):
            come(session, 1)
            session.release()
        come(session, 1)  # leaf 5 = 9 - 3 - 1 in base 3: blocks ahead are drawn
        shown = dict(draws)
        more = interrupted(session.release, at)
        for n in range(5, 15):
            if n > 5:
                come(session, 1)
            noise = noise_of(session.release())
            made = np.array([draws.get(address, np.zeros(ONE.size)) for address in addresses])
            np.testing.assert_allclose(noise, matrix[n - 1] @ made, atol=1e-9)
        assert all(draws[address] is value for address, value in shown.items())  # none of these drawn again
        if not more:
            break
    assert 10 < at < 399


# ------------------------------------------------------------------------------ stepwise is fused
@pytest.mark.usefixtures("deep")
@pytest.mark.parametrize("by", ["episode", "batch"])
@pytest.mark.parametrize("leaf", ["batch", "user"])
@every_walk
def test_stepwise_and_fused_runs_are_equal_bit_for_bit(privatizer: Central, leaf: str, by: str) -> None:
    mdp = dr.make("riverswim", horizon=4)
    privatizer = Central(**{**privatizer.options(), "leaf": leaf, "weights": None})
    for learner in (
        dr.DPUCBVI(replan_every=3),
        dr.learners.PrivateUCBVI(post="raw"),
        dr.learners.PrivateUCBPO(),
    ):
        if leaf == "user" and not isinstance(learner, dr.DPUCBVI):
            continue  # they release after every user: the leaves are the same
        runs = [
            Setup(mdp, learner, privatizer, 70, by, stepwise).run(1, 0)  # type: ignore[arg-type]
            for stepwise in (False, True)
        ]
        assert (runs[0].regret == runs[1].regret).all()
        assert (runs[0].gap_regret == runs[1].gap_regret).all()


def test_auto_takes_walks_for_learners_that_read_sums() -> None:
    mdp = dr.make("riverswim", horizon=4)
    # of noise in sums; reports, which share none, are weighed by test_server_reports.py
    for options, words in (({"noise": "laplace"}, "signed-digit"), ({"delta": 1e-6}, "Toeplitz")):
        privatizer = Central(epsilon=1.0, **options)  # type: ignore[arg-type]
        setup = Setup(mdp, dr.DPUCBVI(), privatizer, 2000)
        assert words in setup.guarantee.statement
        assert "walk" not in Setup(mdp, dr.NoiseAwareUCBVI(), privatizer, 2000).guarantee.statement
