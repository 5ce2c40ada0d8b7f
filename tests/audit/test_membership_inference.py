"""Membership attacks: known cases in closed form, the bound kept by what is private and only by that."""

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.accounting import budget
from discreet.audit import membership_inference as membership
from discreet.audit.membership_inference import LEVELS, AttackResult, Point, Roc, Tradeoff, membership_attack
from discreet.core.guarantee import Guarantee, no_guarantee
from discreet.learners.offline.apvi import APVI, DPAPVI

WORLD = dr.make("random", states=5, actions=3, horizon=3, seed=1, stationary=False)
UNIFORM = dr.envs.uniform_policy(WORLD)


@cache
def guarantee(**options: Any) -> Guarantee:
    query = DPAPVI().query(dr.mechanisms.ProblemSpec(WORLD.layout))
    with dr.Central(**options).start(query, DPAPVI().schedule(50), dr.Seeded(0)) as session:
        return session.guarantee


@cache
def attack(kind: str) -> AttackResult:
    """The few attacks that tests share."""
    if kind == "private":
        return membership_attack(
            WORLD, DPAPVI(), dr.Central(mu=1.0), 50, target="canary", games=4, shadows=8, trials=160
        )
    if kind == "half":  # what a mechanism that draws half of its noise would show
        return membership_attack(
            WORLD, DPAPVI(), dr.Central(mu=2.0), 50, target="canary", games=4, shadows=1, trials=120,
            claim=guarantee(mu=1.0),
        )  # fmt: skip
    target = "canary" if kind == "canary" else "drawn"
    return membership_attack(WORLD, APVI(), dr.NoPrivacy(), 20, target=target, games=200)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- curves
def test_the_curve_of_gaussian_privacy_is_that_of_two_normals() -> None:
    """T = Phi(Phi^-1(a) + mu): power of the best test of N(0, 1) against N(mu, 1); AUC Phi(mu / sqrt 2)."""
    rates = np.array([0.0, 1e-6, 0.01, 0.3, 0.9, 1.0])
    expected = stats.norm.sf(stats.norm.isf(rates), loc=1.3)
    curve = Tradeoff(mu=1.3)
    np.testing.assert_allclose(curve(rates), expected, rtol=1e-12)
    grid = np.linspace(0, 1, 200_001)
    assert curve.auc == pytest.approx(np.trapezoid(curve(grid), grid), abs=1e-6)
    assert curve.advantage == pytest.approx((curve(grid) - grid).max(), abs=1e-9)


def test_the_curve_of_epsilon_and_delta() -> None:
    """By hand; at delta = 0 randomized response attains it: (1 - p, p) at epsilon = ln(p / (1 - p))."""
    curve = Tradeoff(pairs=((math.log(3.0), 0.0),))
    np.testing.assert_allclose(curve([0.0, 0.1, 0.25, 0.5, 1.0]), [0.0, 0.3, 0.75, 0.75 + 0.25 / 3, 1.0])
    assert curve.advantage == pytest.approx(0.5)
    assert curve.auc == pytest.approx(0.75, abs=1e-5)
    with_delta = Tradeoff(pairs=((math.log(3.0), 0.1),))
    grid = np.linspace(0, 1, 100_001)
    assert with_delta(0.0) == pytest.approx(0.1)
    assert with_delta.advantage == pytest.approx((with_delta(grid) - grid).max(), abs=1e-5)


def test_a_curve_is_symmetric_and_concave() -> None:
    """1 - f of f = f^-1: (a, t) and (1 - t, 1 - a) are both on it."""
    for curve in (Tradeoff(mu=0.7), Tradeoff(pairs=((0.5, 0.01), (1.0, 1e-4)))):
        a = np.linspace(0.001, 0.999, 999)
        np.testing.assert_allclose(curve(1 - curve(a)), 1 - a, atol=1e-9)
        assert (np.diff(curve(a), 2) <= 1e-12).all()


def test_curves_of_guarantees() -> None:
    assert Tradeoff.of(guarantee(mu=1.0)) == Tradeoff(mu=guarantee(mu=1.0).mu)
    laplace = guarantee(epsilon=1.0, noise="laplace")
    assert Tradeoff.of(laplace).pairs == ((laplace.epsilon, 0.0),)
    none = Tradeoff.of(no_guarantee("seeded"))
    assert none([0.0, 0.3]).tolist() == [1.0, 1.0]
    assert (none.auc, none.advantage) == (1.0, 1.0)


def test_zcdp_implies_many_pairs_and_less_than_gaussian_noise_of_its_rho() -> None:
    """Gaussian noise of mu has rho = mu^2 / 2, so the curve of that rho is above its exact one."""
    exact = Tradeoff(mu=1.0)
    discrete = Guarantee.from_dict(guarantee(mu=1.0).to_dict())
    pairs = tuple((budget.zcdp_epsilon(0.5, delta), delta) for delta in np.logspace(-10, -0.25, 40))
    a = np.logspace(-6, 0, 100)
    assert (Tradeoff(pairs=pairs)(a) >= exact(a)).all()
    assert discrete.rho == pytest.approx(0.5)


def test_numerical_curve_of_laplace_noise_is_attained_by_one_coordinate() -> None:
    """One coordinate moved by b: the likelihood ratio test of two Laplace variables, in closed form."""
    curve = Tradeoff.of_exchanges(((("laplace", 1.0, 1.0, 1),),))
    a = np.array([0.001, 0.01, 0.1])
    # best event: x > t; t beyond both modes, so the rates' quotient is e
    np.testing.assert_allclose(curve(a), math.e * a, rtol=0.02)
    assert (curve(a) >= math.e * a * (1 - 1e-9)).all()


# ------------------------------------------------------------------------------------------- judging
def test_points_and_area_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    one, zero = rng.integers(0, 5, 40).astype(float), rng.integers(0, 4, 30).astype(float)
    roc = Roc("policy", "", one, zero, ())
    wins = [(x > y) + 0.5 * (x == y) for x, y in itertools.product(one, zero)]
    assert roc.auc[0] == pytest.approx(np.mean(wins))
    false, true = roc.curve
    assert np.trapezoid(true, false) == pytest.approx(roc.auc[0])
    assert (false[0], true[0], false[-1], true[-1]) == (0.0, 0.0, 1.0, 1.0)


def test_standard_error_of_the_area_is_the_spread_over_repetitions() -> None:
    """2000 repetitions: a standard deviation is then known to 1.6 %; allowed are 5 of those (rate 1e-6)."""
    rng = np.random.default_rng(1)
    rocs = [Roc("policy", "", rng.normal(1, 1, 60), rng.normal(0, 1, 80), ()).auc for _ in range(2000)]
    areas, errors = np.array(rocs).T
    assert areas.std() == pytest.approx(errors.mean(), rel=0.08)


def test_intervals_are_clopper_pearsons_and_cover() -> None:
    point = Point(0.1, 37, 4, (50, 60))
    expected = stats.binomtest(37, 50).proportion_ci(0.95, "exact")
    assert point.true_positive == pytest.approx((0.74, expected.low, expected.high))
    assert Point(0.1, 0, 60, (50, 60)).true_positive.low == 0.0
    assert Point(0.1, 0, 60, (50, 60)).false_positive.high == 1.0
    # coverage of each n, p exactly, not by sampling: at least 95 %, of unlike coins too
    for p in (0.01, 0.3, 0.5):
        hits = np.arange(51)
        inside = [membership._rate(int(h), 50).low <= p <= membership._rate(int(h), 50).high for h in hits]
        assert stats.binom.pmf(hits, 50, p)[inside].sum() >= 0.95
        one = stats.binom.pmf(np.arange(26), 25, 0.5 * p)
        mixed = np.convolve(one, stats.binom.pmf(np.arange(26), 25, 1.5 * p))
        assert mixed[inside].sum() >= 0.95


def test_thresholds_let_no_more_pass_than_their_level() -> None:
    rng = np.random.default_rng(2)
    for scores in (rng.normal(size=97), rng.integers(0, 3, 97).astype(float), np.zeros(5)):
        for level in LEVELS:
            cut = membership._threshold(scores[:50] + 1, scores, level)
            assert (scores >= cut).mean() <= level
    assert membership._threshold(np.array([2.0, 3.0]), np.array([-1.0, 1.0]), 0.1) == 2.0


# --------------------------------------------------------------------------------------- trajectories
def test_rarest_and_likeliest_by_brute_force() -> None:
    world = dr.make("random", states=3, actions=2, horizon=2, seed=4, successors=2)
    policy = np.full((2, 3, 2), 0.5) + np.array([0.3, -0.3])

    def chance(states: tuple[int, ...], actions: tuple[int, ...]) -> float:
        p = world.initial[states[0]]
        for h, (s, a, after) in enumerate(zip(states, actions, states[1:], strict=False)):
            p *= policy[h, s, a] * world.transitions[h, s, a, after]
        return float(p)

    paths = [
        (s, a) for s in itertools.product(range(3), repeat=3) for a in itertools.product(range(2), repeat=2)
    ]
    possible = [chance(*path) for path in paths if chance(*path) > 0]
    rare, common = membership.rarest(world, policy), membership.most_likely(world, policy)
    found = [chance(tuple(life.states.tolist()), tuple(life.actions.tolist())) for life in (rare, common)]
    np.testing.assert_allclose(found, [min(possible), max(possible)], rtol=1e-12)
    apart = membership.most_likely(world, policy, common)
    assert ((apart.states[:-1] != common.states[:-1]) | (apart.actions != common.actions)).all()
    assert rare.rewards.tolist() == [1.0, 1.0]


def test_with_one_action_a_start_is_shared() -> None:
    """No trajectory avoids the canary's first pair: then the likeliest of all is taken."""
    world = dr.make("random", states=2, actions=1, horizon=2, seed=0)
    policy = dr.envs.uniform_policy(world)
    common = membership.most_likely(world, policy)
    again = membership.most_likely(world, policy, common)
    np.testing.assert_array_equal(again.states, common.states)


# -------------------------------------------------------------------------------------------- attacks
def test_the_release_attack_attains_gaussian_privacy() -> None:
    """A canary's exchange has all of the sensitivity: area Phi(mu / sqrt 2) within 5 errors (rate 6e-7)."""
    result = attack("private")
    assert result.realised == pytest.approx(1.0)
    area, error = result.roc("release").auc
    assert abs(area - stats.norm.cdf(1 / math.sqrt(2))) < 5 * error
    assert error < 0.03
    for point in result.roc("release").points:  # the law of the score is known at every threshold
        low, high = point.limits(1e-8)
        assert low <= Tradeoff(mu=1.0)(high)


def test_private_runs_stay_below_their_bound() -> None:
    """By a true claim this fails with probability 1e-6 (the attack's alarm)."""
    result = attack("private")
    assert not result.exceeded
    assert result.bound == Tradeoff(mu=result.claim.mu)
    for adversary in membership.ADVERSARIES:
        mu, epsilon = result.lower_bounds(adversary)
        assert mu <= 1.0
        assert epsilon <= (result.claim.epsilon or 0.0)
        area, error = result.roc(adversary).auc
        assert area <= result.bound.auc + 5 * error


def test_half_the_noise_is_exposed_by_its_release() -> None:
    """At mu = 2 held against 1: at level .1 power .76 against .39, 90 x 4 runs: z > 8."""
    result = attack("half")
    assert result.exceeds("release")
    assert result.exceeded
    assert result.lower_bounds("release")[0] > 1.0


def test_policies_without_privacy_tell_who_was_there() -> None:
    """20 people: pairs that one person alone played decide actions."""
    canary, drawn = attack("canary"), attack("drawn")
    for result, least in ((canary, 0.6), (drawn, 0.1)):
        assert result.roc("policy").advantage > least
        assert result.roc("policy").at(0.001).outside == 0
        assert result.roc("policy").at(0.001).inside > least * result.roc("policy").at(0.001).runs[0]
        assert result.roc("release").advantage == 1.0
        assert not result.exceeded  # nothing is claimed
        assert result.realised is None
    # beyond what a private policy could show: the one-sided limits hold with 1 - 1e-6
    assert drawn.lower_bounds("values")[0] > 1.0


def test_a_private_claim_for_exact_counts_is_refuted() -> None:
    result = membership_attack(
        WORLD, APVI(), dr.NoPrivacy(), 20, target="canary", games=200, claim=guarantee(mu=1.0)
    )
    assert result.exceeds("policy")
    assert result.exceeds("values")
    assert result.exceeds("release")


def test_unknown_others_hide_less_of_a_canary_than_of_a_draw() -> None:
    found = [
        membership_attack(
            WORLD,
            APVI(),
            dr.NoPrivacy(),
            20,
            target=target,
            knows="population",
            games=4,
            shadows=20,
            trials=40,
        )
        for target in ("drawn", "canary")
    ]
    drawn, canary = (one.roc("release").auc for one in found)
    assert canary[0] > 0.9
    assert drawn[0] > 0.5 + 2 * drawn[1]  # a fixed seed, no claim about other ones
    assert found[0].realised is None


def test_laplace_noise_is_read_too() -> None:
    result = membership_attack(
        WORLD, DPAPVI(), dr.Central(epsilon=2.0, noise="laplace"), 50, target="canary", games=4, shadows=1,
        trials=100, known_rewards=True,
    )  # fmt: skip
    assert result.realised == pytest.approx(2.0)
    assert not result.exceeded
    assert len(result.exchanges) >= 1


def test_equal_seeds_equal_results_and_plain_values() -> None:
    first, again = (
        membership_attack(WORLD, DPAPVI(), dr.Central(mu=1.0), 30, games=4, shadows=3, trials=8, seed=7)
        for _ in range(2)
    )
    assert first.to_dict() == again.to_dict()
    assert first.to_dict()["adversaries"][2]["adversary"] == "release"
    np.testing.assert_array_equal(first.roc("release").inside, again.roc("release").inside)


def test_what_is_refused() -> None:
    def run(**changed: Any) -> None:
        options: dict[str, Any] = {"users": 20, "games": 4, "shadows": 1, "trials": 1, **changed}
        privatizer = options.pop("privatizer", dr.NoPrivacy())
        membership_attack(options.pop("world", WORLD), APVI(), privatizer, **options)

    for changed, name in (
        ({"users": 1}, "users"),
        ({"games": 3}, "games"),
        ({"target": "somebody"}, "target"),
        ({"knows": "nothing"}, "knows"),
        ({"alarm": 0.0}, "alarm"),
        ({"seed": -1}, "seed"),
        ({"privatizer": dr.Local(epsilon=3.0, randomizer="subset")}, "privatizer"),
        ({"world": dr.make("random", states=40, actions=3, horizon=5)}, "world"),
    ):
        with pytest.raises(ValueError, match=name):
            run(**changed)
