"""A strategy matrix of a user's own: its price is derived here, whatever the matrix and its rounding."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import discreet as dr
from discreet.accounting.noise_distributions.distributions import (
    GaussianSumLaw,
    SubGaussianSumLaw,
    WeightedLaplaceLaw,
)
from discreet.accounting.noise_distributions.prefix_variance import noise_of
from discreet.audit.noise_matrix import noise_matrix
from discreet.core.correlated_noise import matrix_factorization
from discreet.core.correlated_noise.matrix_factorization import MOST_STEPS, MatrixFactorization
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot
from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.noise.noises import GAUSSIAN, LAPLACE
from discreet.core.rng import Secure, Seeded
from discreet.core.strategies import WALKS, Prefixes, registered
from discreet.core.trajectories import Trajectory
from discreet.envs.rollouts.fused_session import handed_over
from discreet.experiments.simulate import Setup
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import Central

Floats = NDArray[np.float64]
QUERY = CountQuery(Layout(2, 2, 2))
WHOLE = [[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0], [2.0, -1.0, 1.0]]  # B = [[1, 0, 0], [2, 1, 0], [1, 2, 1]]
PURE, DELTA = {"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}


def toeplitz(column: Any) -> Floats:
    """Return the lower triangular Toeplitz matrix of a column."""
    values, n = np.asarray(column, np.float64), np.arange(len(column))
    return np.where(n[:, None] >= n, values[n[:, None] - n], 0.0)


def prefixes(steps: int) -> Floats:
    """Return the lower triangular matrix of ones."""
    return toeplitz(np.ones(steps))


def root(steps: int) -> Floats:
    """Return the square root of the matrix of prefix sums."""
    return toeplitz(np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1.0, steps)))]))


def banded(steps: int, band: int) -> Floats:
    """Return the square root, cut after ``band`` diagonals."""
    return np.asarray(np.triu(root(steps), 1 - band))


def drawn(steps: int, seed: int, spread: float = 1.0) -> Floats:
    """Return a matrix of random entries with a diagonal between e^-spread and e^spread."""
    rng = np.random.default_rng(seed)
    return np.tril(rng.normal(size=(steps, steps)), -1) + np.diag(np.exp(rng.uniform(-spread, spread, steps)))


def true_columns(weights: Floats) -> list[list[Fraction]]:
    """Return the columns of S = B^{-1} A without rounding, for the computed B."""
    rows = [[Fraction(x) for x in row] for row in weights.tolist()]
    columns = []
    for first in range(len(rows)):
        column: list[Fraction] = []
        for n, row in enumerate(rows):
            rest = Fraction(n >= first) - sum((row[j] * x for j, x in enumerate(column)), Fraction(0))
            column.append(rest / row[n])
        columns.append(column)
    return columns


# ----------------------------------------------------------------------------------- what it costs
@pytest.mark.parametrize(
    "strategy",
    [
        *(drawn(steps, seed, spread) for steps in (1, 2, 5, 12) for seed in (0, 1) for spread in (0.1, 2.0)),
        root(16), banded(16, 4), 1e-30 * root(9), 1e30 * banded(9, 2), np.eye(7) / 3.0, np.array(WHOLE),
        drawn(14, 5) + np.tril(np.ones((14, 14)), -1),
    ],
    ids=lambda one: f"{len(one)} steps",
)  # fmt: skip
def test_no_column_of_the_true_strategy_is_above_the_bound(strategy: Floats) -> None:
    """By exact rational numbers, from the rounded B that sessions use; and the bound is tight to 1e-6."""
    for gaussian in (False, True):
        walk = MatrixFactorization(strategy, gaussian)
        columns = true_columns(walk.weights)
        assert all(not any(column[:first]) for first, column in enumerate(columns))  # no row looks ahead
        if gaussian:
            exact = max(sum((x * x for x in column), Fraction(0)) for column in columns)
            assert exact <= Fraction(walk.draw_scale) ** 2 <= exact * (1 + Fraction(1, 10**5))
        else:
            exact = max(sum((abs(x) for x in column), Fraction(0)) for column in columns)
            assert exact <= Fraction(walk.draw_scale) <= exact * (1 + Fraction(1, 10**5))
        assert walk.column_norm("l2" if gaussian else "l1") == 1.0
        assert math.isinf(walk.column_norm("l1" if gaussian else "l2"))


def test_the_bound_does_not_believe_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that is wrong by 1e-8 gives other noise, whose true price is still bounded."""
    solve, rng = np.linalg.solve, np.random.default_rng(0)

    def wrong(*arguments: Any) -> Floats:
        found = solve(*arguments)
        return np.asarray(found * (1 + 1e-8 * rng.uniform(-1, 1, found.shape)))

    monkeypatch.setattr(np.linalg, "solve", wrong)
    matrix_factorization._solved.cache_clear()
    walk = MatrixFactorization(root(12), True)
    matrix_factorization._solved.cache_clear()
    norms = [sum((x * x for x in column), Fraction(0)) for column in true_columns(walk.weights)]
    assert max(norms) <= Fraction(walk.draw_scale) ** 2
    assert walk.draw_scale > np.linalg.norm(root(12)[:, 0]) * (1 + 1e-8)


def test_known_matrices() -> None:
    """C = A: fresh noise at each release. C = I: draws add up. Toeplitz root: the square root's variances."""
    alone, summed = MatrixFactorization(prefixes(6), True), MatrixFactorization(np.eye(6), True)
    assert (alone.weights == np.eye(6)).all()
    assert alone.draw_scale == pytest.approx(math.sqrt(6))  # the first user is in all sums
    assert MatrixFactorization(prefixes(6)).draw_scale == pytest.approx(6)
    assert (summed.weights == prefixes(6)).all()
    assert summed.draw_scale == pytest.approx(1, abs=2e-9)
    by_hand = MatrixFactorization(root(40), True)
    np.testing.assert_allclose(by_hand.weights @ root(40), prefixes(40), atol=1e-12)
    np.testing.assert_allclose(by_hand.weights, root(40), atol=1e-12)  # both factors are the root
    ours, theirs = noise_of(by_hand), noise_of(SquareRoot(41))
    for n in range(1, 41):  # `SquareRoot` fits the root to 1 %
        assert ours.scale(n) ** 2 * ours.terms(n) == pytest.approx(theirs.terms(n), rel=0.02)
    covariances = [matrix @ matrix.T for matrix, _ in map(noise_matrix, (by_hand, SquareRoot(41)))]
    np.testing.assert_allclose(*covariances, rtol=0.02)
    assert ours.rms() == pytest.approx(theirs.rms(), rel=0.01)


@pytest.mark.parametrize(("budget", "gaussian"), [(PURE, False), (DELTA, True), ({"mu": 0.7}, True)])
def test_scales_and_guarantee_follow_from_the_columns(budget: dict[str, float], gaussian: bool) -> None:
    matrix, schedule = drawn(20, 3), Schedule(16)
    privatizer = Central(**budget, release=MatrixFactorization(matrix))
    mechanism = privatizer.mechanism(QUERY, schedule, Seeded(0))
    whole = Central(**budget, release="batches", noise="gaussian" if gaussian else "laplace")
    assert mechanism.guarantee.epsilon == pytest.approx(
        whole.mechanism(QUERY, schedule, Seeded(0)).guarantee.epsilon, rel=1e-9
    )
    walk = mechanism.walk
    assert walk == MatrixFactorization(matrix[:15, :15], gaussian)  # the first rows of a longer matrix
    norm = np.linalg.norm(matrix[:15, :15], 2 if gaussian else 1, axis=0).max()
    assert walk.draw_scale == pytest.approx(norm, rel=1e-6)
    words = (
        "a matrix of the operator's own over 15 time steps, a leaf is a batch (a user's column of the stra"
    )
    assert words in mechanism.guarantee.statement
    assert f"{'l2' if gaussian else 'l1'} norm at most 1" in mechanism.guarantee.statement
    (record,) = mechanism.guarantee.records
    assert (record.levels, record.numerical) == (1, False)


def test_half_the_noise_states_twice_the_price() -> None:
    made = Central(**PURE, release=MatrixFactorization(root(9))).mechanism(QUERY, Schedule(10), Seeded(0))
    half = replace(made, scales=made.scales / 2)
    assert half.guarantee.epsilon == pytest.approx(2.0)


def test_auto_noise_takes_the_smaller_error() -> None:
    for matrix in (np.eye(30), root(30)):
        found = Central(**DELTA, release=MatrixFactorization(matrix)).choices(QUERY, Schedule(31), Seeded(0))
        assert {choice.noise for choice in found} == {"Laplace", "Gaussian"}
        assert found[0].error <= found[1].error
        assert {choice.name for choice in found} == {"matrix"}
        for choice in found:
            variances = [
                noise_of(choice.walk).terms(n) * noise_of(choice.walk).scale(n) ** 2 for n in range(1, 31)
            ]
            one = choice.scales[0] * (math.sqrt(2) if choice.noise == "Laplace" else 1.0)
            assert choice.error == pytest.approx(one * math.sqrt(np.mean(variances)))


# ------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ([[1.0, 0.1], [0.0, 1.0]], "must be a lower triangular matrix"),
        ([[1.0, 0.0], [0.5, 0.0]], "positive diagonal"),
        ([[1.0, 0.0], [0.5, -1.0]], "positive diagonal"),
        ([[1.0, 0.0], [math.nan, 1.0]], "must be finite"),
        ([[1.0, 0.0], [math.inf, 1.0]], "must be finite"),
        ([[1.0, 0.0]], "has shape"),
        ([[1.0, 0.0], [1.0]], "strategy"),
        ([1.0, 1.0], "has shape"),
        (np.ones((2, 2, 2)), "has shape"),
        ([], "number of rows = 0"),
        (np.eye(MOST_STEPS + 1), "number of rows = 1025"),
        (5.0, "has shape"),
        (None, "strategy"),
        ("matrix", "strategy"),
        ([[1j]], "strategy"),
        (np.full((1, 1), 1e-300), "so that the privacy loss can be computed"),
        (np.full((1, 1), 1e300), "so that the privacy loss can be computed"),
        (np.diag([1.0, 1e-200]), "so that the privacy loss can be computed"),
        (np.eye(80) + 2 * np.tril(np.ones((80, 80)), -1) * np.sqrt(2), "privacy loss can be computed"),
    ],
)
def test_a_matrix_that_is_none_is_refused(strategy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MatrixFactorization(strategy)


def test_a_value_that_changes_later_changes_nothing() -> None:
    matrix = root(4)
    walk = MatrixFactorization(matrix)
    before = walk.weights.copy()
    matrix[:] = 7.0
    assert (walk.strategy == root(4)).all()
    assert (walk.weights == before).all()
    for one in (walk, copy.deepcopy(walk), pickle.loads(pickle.dumps(walk))):
        assert one == walk
        for array in (one.strategy, one.weights):
            with pytest.raises(ValueError, match="read-only"):
                array[0, 0] = 2.0
    assert walk == MatrixFactorization(root(4))
    assert hash(walk) == hash(MatrixFactorization(root(4)))
    assert walk != MatrixFactorization(root(4), True)
    assert walk != "matrix"
    assert repr(walk) == "MatrixFactorization(strategy=<float64 (4, 4)>)"
    with pytest.raises(ValueError, match="gaussian"):
        MatrixFactorization(root(4), 2)  # type: ignore[arg-type]


def test_forged_factorizations_are_refused() -> None:
    """A subclass, and a value whose derived parts were changed: both would cost less than stated."""

    class Cheap(MatrixFactorization):
        def __post_init__(self) -> None:
            super().__post_init__()
            object.__setattr__(self, "draw_scale", 1e-3)

    cheap = Cheap(root(9))
    with pytest.raises(ValueError, match="release = Cheap"):
        Central(epsilon=1.0, release=cheap)
    fits = Central(**PURE, release=MatrixFactorization(root(9))).mechanism(QUERY, Schedule(10), Seeded(0))
    with pytest.raises(ValueError, match=r"strategy\.walk = Cheap.*must be an .*MatrixFactorization"):
        replace(fits, strategy=Prefixes(cheap))
    forged = MatrixFactorization(root(9))
    object.__setattr__(forged, "draw_scale", 1e-3)
    object.__setattr__(forged, "weights", 1e-3 * forged.weights)
    again = replace(fits, strategy=Prefixes(forged)).walk
    assert again.draw_scale == fits.walk.draw_scale
    assert (again.weights == fits.walk.weights).all()
    with pytest.raises(ValueError, match="must be a class of this library"):
        registered(type("Own", (MatrixFactorization,), {"__module__": "my_module"}), WALKS)
    assert WALKS.count(MatrixFactorization) == 1


def test_a_matrix_and_its_schedule_and_noise_must_fit() -> None:
    short = Central(**DELTA, release=MatrixFactorization(root(8)))
    with pytest.raises(ValueError, match="strategy has 8 rows: must have at least 9"):
        short.mechanism(QUERY, Schedule(10), Seeded(0))
    with pytest.raises(ValueError, match="users = None"):
        short.mechanism(QUERY, Schedule(None), Seeded(0))
    made = short.mechanism(QUERY, Schedule(9), Seeded(0))
    assert made.noise == GAUSSIAN
    with pytest.raises(ValueError, match=r"strategy\.walk: has 8 leaves, not the 9"):
        replace(made, strategy=Prefixes(MatrixFactorization(root(7), True)))
    with pytest.raises(ValueError, match="no finite l1 norm"):
        replace(made, noise=LAPLACE)
    with pytest.raises(ValueError, match="no finite l2 norm"):
        replace(made, strategy=Prefixes(MatrixFactorization(root(8))))
    with pytest.raises(ValueError, match="stated.numerical"):
        replace(made, stated=Stated(1e-6, 1.0, True))
    with pytest.raises(ValueError, match="gives no measurements"):
        Setup(dr.make("riverswim"), dr.NoiseAwareUCBVI(), short, 100)
    with pytest.raises(ValueError, match="not of linear sums"):
        Setup(dr.make("linear-mdp"), dr.learners.LSVIUCB(), short, 5)
    with pytest.raises(ValueError, match="must be 'tree' with calibration 'published'"):
        Central(epsilon=1.0, release=MatrixFactorization(root(8)), calibration="published")
    with pytest.raises(ValueError, match="'batches', and 'exact'"):
        short.stored_mechanism(CountQuery(QUERY.layout, visits=False, center_rewards=True), Seeded(0))
    with pytest.raises(RuntimeError, match="MatrixFactorization has no compiled program"):
        handed_over(short.start(QUERY, Schedule(9), Seeded(0)))


def test_exact_noise_needs_integers_in_both_factors() -> None:
    """B = 2 I is an integer matrix, but then the remainder of a release modulo 2 is that of the data."""
    for matrix, integral in (
        (WHOLE, True), (np.eye(3), True), (prefixes(3), True), (prefixes(3) / 2, False),
        (2 * np.eye(3), False), (root(3), False), ([[1, 0, 0], [0.5, 1, 0], [0, 0, 1]], False),
    ):  # fmt: skip
        walk = MatrixFactorization(matrix)
        assert walk.integral == integral
        privatizer = Central(**PURE, release=walk)
        if integral:
            assert (walk.weights @ np.asarray(matrix) == prefixes(3)).all()
            assert (walk.weights == np.rint(walk.weights)).all()
            assert privatizer.mechanism(QUERY, Schedule(4), Secure()).source == "secure"
            continue
        with pytest.raises(ValueError, match="not integers, so exact noise is not available"):
            privatizer.mechanism(QUERY, Schedule(4), Secure())
        made = privatizer.mechanism(QUERY, Schedule(4), Seeded(0))
        with pytest.raises(ValueError, match="must be 'seeded' with"):
            replace(made, source="secure", reward_grid=1024)
    with pytest.raises(ValueError, match="exact noise of scale"):
        Central(epsilon=1e-9, release=MatrixFactorization(toeplitz([1.0, -3.0, *[0.0] * 14]))).mechanism(
            QUERY, Schedule(17), Secure()
        )


# ---------------------------------------------------------------------------------- what is released
def noises(privatizer: Central, steps: int, source: Any, query: CountQuery) -> Floats:
    """Return the (steps, cells) noise of releases after each of the first users."""
    one = Trajectory(np.zeros(3, np.int64), np.zeros(2, np.int64), np.array([0.5, 1.0]))
    policy = np.zeros((2, query.layout.states), np.int64)
    cells = query.to_cells(query.contribution(one))
    with privatizer.start(query, Schedule(steps + 1), source) as session:
        session.release()
        rows = []
        for n in range(1, steps + 1):
            session.begin(Plan(policy, 1))
            session.submit(one)
            values = query.to_cells({name: e.value for name, e in session.release().estimates.items()})
            rows.append(values - n * cells)
    return np.array(rows)


@pytest.mark.parametrize("budget", [PURE, {"mu": 0.5}], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("matrix", [banded(6, 3), drawn(6, 1), prefixes(6), np.eye(6)], ids=range(4))
def test_covariances_of_releases_are_those_of_the_matrix(budget: dict[str, float], matrix: Floats) -> None:
    """21 covariances within 4 standard errors; a seed that was not tried would fail with 21 * 6.4e-5."""
    query = CountQuery(Layout(2, 600, 2))
    privatizer = Central(**budget, release=MatrixFactorization(matrix))
    mechanism = privatizer.mechanism(query, Schedule(7), Seeded(0))
    scales = np.repeat(mechanism.scales, np.diff(query.offsets))
    found = np.concatenate([noises(privatizer, 6, Seeded(run), query) / scales for run in range(3)], axis=1)
    weights = np.linalg.solve(matrix.T, prefixes(6).T).T
    norm = np.linalg.norm(matrix, 1 if budget is PURE else 2, axis=0).max()
    variance = 2.0 if budget is PURE else 1.0
    claimed = variance * norm**2 * weights @ weights.T
    products = found[:, None] * found[None]
    errors = products.std(axis=2) / math.sqrt(found.shape[1])
    assert found.shape[1] > 20_000
    assert (np.abs(products.mean(axis=2) - claimed) < 4 * errors).all()
    stds = [mechanism.laws_at(n)["visits"].std() / mechanism.scales[0] for n in range(1, 7)]
    np.testing.assert_allclose(stds, np.sqrt(np.diag(claimed)), rtol=1e-6)


@pytest.mark.parametrize("budget", [PURE, DELTA], ids=["laplace", "gaussian"])
def test_secure_noise_stays_on_the_grid(budget: dict[str, float]) -> None:
    privatizer = Central(**budget, release=MatrixFactorization(WHOLE))
    mechanism = privatizer.mechanism(QUERY, Schedule(4), Secure(1024))
    found = noises(privatizer, 3, Secure(1024), QUERY)
    for f, name in enumerate(QUERY.row_families):
        units = found[:, QUERY.offsets[f] : QUERY.offsets[f + 1]] * (mechanism.grid(name) or 0)
        assert (units == np.rint(units)).all()
        # z = C noise is on the grid, and alone in its row
        draws = np.array(WHOLE) @ np.diff(units, axis=0, prepend=0.0)
        assert (draws == np.rint(draws)).all()
        assert len({tuple(row) for row in draws.tolist()}) == 3
    law = mechanism.laws_at(3)["visits"]
    assert type(law) is (WeightedLaplaceLaw if budget is PURE else SubGaussianSumLaw)
    one = mechanism.scales[0] * mechanism.walk.draw_scale * (math.sqrt(2) if budget is PURE else 1.0)
    assert law.std() == pytest.approx(one * math.sqrt(1 + 4 + 1))
    assert law.std_bound() >= law.std()


def test_bounds_hold_for_releases_with_less_noise_later() -> None:
    """A matrix whose noise falls: earlier releases bound later ones."""
    falling = np.diag([1.0, 10.0, 10.0, 10.0])
    mechanism = Central(**DELTA, release=MatrixFactorization(falling), noise="gaussian").mechanism(
        QUERY, Schedule(5), Seeded(0)
    )
    laws = [mechanism.laws_at(n)["visits"] for n in range(1, 5)]
    assert all(isinstance(law, GaussianSumLaw) for law in laws)
    assert [law.std_bound() for law in laws] == sorted(law.std_bound() for law in laws)
    assert mechanism.laws_at(0)["visits"].std() == 0.0
    assert [end for end, _ in mechanism.laws.steps()][-1] == 4


def test_a_saved_session_continues_with_the_same_noise(tmp_path: Path) -> None:
    one = Trajectory(np.zeros(3, np.int64), np.zeros(2, np.int64), np.array([0.5, 1.0]))

    def played(restart: bool) -> list[Floats]:
        session: Any = Central(**DELTA, release=MatrixFactorization(banded(9, 3))).start(
            QUERY, Schedule(10), Seeded(4)
        )
        out = []
        session.release()
        for n in range(9):
            session.begin(Plan(np.zeros((2, 2), np.int64), 1))
            session.submit(one)
            out.append(np.concatenate([e.value.ravel() for e in session.release().estimates.values()]))
            if restart and n in (0, 4):
                session.save(tmp_path / f"state{n}")
                session = dr.mechanisms.restore(tmp_path / f"state{n}", tmp_path / "table")
                assert session.mechanism.walk == MatrixFactorization(banded(9, 3), True)
        return out

    np.testing.assert_array_equal(played(True), played(False))


def test_simulations_take_the_stepwise_road() -> None:
    privatizer = Central(**DELTA, release=MatrixFactorization(banded(40, 5)))
    for by in ("episode", "batch"):
        setup = Setup(dr.make("riverswim", horizon=4), dr.DPUCBVI(replan_every=2), privatizer, 60, by)  # type: ignore[arg-type]
        assert not setup.fused
        assert np.isfinite(setup.run(1, 0).regret).all()
    found = dr.simulate(dr.make("riverswim", horizon=4), dr.DPUCBVI(), privatizer, 30, seeds=1)
    assert found.guarantee.epsilon == pytest.approx(1.0)


def test_a_matrix_can_be_given_to_a_mechanism_itself() -> None:
    schedule, walk = Schedule(5), MatrixFactorization(root(4), gaussian=True)
    scales = np.full(len(QUERY.row_families), 3.0)
    made = CountMechanism(
        QUERY, schedule, "seeded", Prefixes(walk, "user"), GAUSSIAN, scales, stated=Stated(1e-6)
    )
    joint = QUERY.sensitivity("l2", dict.fromkeys(QUERY.row_families, 1 / 3))
    assert made.guarantee.mu == pytest.approx(joint)
    assert "a leaf is a user" in made.guarantee.statement


def test_no_array_of_a_factorization_can_be_made_writeable() -> None:
    """All factorizations of one matrix share them, also those of later mechanisms."""
    walk = MatrixFactorization(np.tril(np.ones((3, 3))))
    for array in (walk.weights, walk.strategy):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
