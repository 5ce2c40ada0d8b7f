"""DP-APVI and APVI: one code, the projection against the programme, noise scales, pessimism, limits."""

import math

import numpy as np
import pytest
import scipy.optimize

import discreet as dr
from discreet.accounting.noise_distributions.distributions import GaussianSumLaw, LaplaceSumLaw, NoNoise
from discreet.envs.mdp.planning import evaluate_policy, occupancy, optimal_values, policy_value
from discreet.experiments.offline_runs import SimulatedDataset, learn_offline, make_release
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.mechanisms.interfaces import Estimate, Release, Schedule
from discreet.mechanisms.privatizers.base import shares_of

S, A, H = 5, 3, 4
MASK = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]], bool)


def world(
    seed: int = 0, masked: bool = False, states: int = S
) -> tuple[dr.TabularMDP, np.ndarray, dr.mechanisms.ProblemSpec]:
    draw = np.random.default_rng(seed)
    rows = draw.dirichlet(np.full(states, 0.5), (H, states, A))
    means = draw.uniform(size=(H, states, A))
    mask = MASK if masked else np.ones((states, A), bool)
    behaviour = draw.dirichlet(np.ones(A), (H, states)) * mask
    behaviour /= behaviour.sum(axis=-1, keepdims=True)
    mdp = dr.TabularMDP(rows, means, horizon=H, mask=mask)
    return mdp, behaviour, dr.mechanisms.ProblemSpec(mdp.layout, known_rewards=means * mask)


def release_with(release: Release, **laws: object) -> Release:
    """The same values under other laws."""
    estimates = {
        name: Estimate(estimate.value, laws.get(name, estimate.law))  # type: ignore[arg-type]
        for name, estimate in release.estimates.items()
    }
    return Release(estimates, release.users, release.number, release.guarantee)


def exact_release(data: SimulatedDataset, learner: object, spec: dr.mechanisms.ProblemSpec) -> Release:
    query, schedule = learner.query(spec), learner.schedule(len(data))  # type: ignore[attr-defined]
    return make_release(data, query, schedule, dr.NoPrivacy(), dr.Seeded(0))


# ----------------------------------------------------------------------- noise off, and the algebra
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("visits", ["released", "derived"])
@pytest.mark.parametrize("preset", ["default", "theory"])
def test_without_noise_it_is_apvi_bit_for_bit(masked: bool, known: bool, visits: str, preset: str) -> None:
    mdp, behaviour, spec = world(1, masked)
    spec = spec if known else dr.mechanisms.ProblemSpec(mdp.layout)
    data = SimulatedDataset(mdp, behaviour, 3000, seed=4)
    private = learn_offline(data, DPAPVI(preset=preset, visits=visits), dr.NoPrivacy(), dr.Seeded(0), spec)
    plain = learn_offline(data, APVI(preset=preset), dr.NoPrivacy(), dr.Seeded(0), spec)
    for name in ("policy", "q", "values", "supported", "visits"):
        np.testing.assert_array_equal(getattr(private, name), getattr(plain, name), err_msg=name)
    assert private.threshold == plain.threshold == 0.0
    assert plain.supported.any()


def test_exact_counts_by_the_formula() -> None:
    """Equation (1) cell by cell, in the plainest Python."""
    mdp, behaviour, spec = world(2, masked=True)
    learner = APVI(c1=0.7, c3=0.3, min_visits=5, reward_floor=False)
    release = exact_release(SimulatedDataset(mdp, behaviour, 400), learner, spec)
    learned = learner.learn(release, spec)
    n, moves = release.estimates["visits"].value, release.estimates["transition_counts"].value
    iota, after = math.log(H * S * A / 0.05), np.zeros(S)
    assert spec.known_rewards is not None
    for h in reversed(range(H)):
        q = np.full((S, A), -np.inf)
        for s, a in np.argwhere(MASK):
            q[s, a] = 0.0
            if n[h, s, a] > 5:
                p = moves[h, s, a] / n[h, s, a]
                variance = p @ (after - p @ after) ** 2
                penalty = 0.7 * math.sqrt(variance * iota / (n[h, s, a] - 5)) + 0.3 * H * iota / n[h, s, a]
                q[s, a] = min(max(spec.known_rewards[h, s, a] + p @ after - penalty, 0.0), H - h)
        np.testing.assert_allclose(learned.q[h], q, atol=1e-12)
        after = q.max(axis=-1)
        np.testing.assert_allclose(learned.values[h], after, atol=1e-12)
        np.testing.assert_array_equal(learned.policy[h], q.argmax(axis=-1))
        chosen = n[h, np.arange(S), learned.policy[h]]
        np.testing.assert_array_equal(learned.supported[h], chosen > 5)


@pytest.mark.parametrize("width", [0.5, 0.02, 0.0])
def test_the_projection_is_the_linear_programme(width: float) -> None:
    mdp, behaviour, spec = world(3)
    learner = DPAPVI(combine=False, visits="released", width=width)
    data = SimulatedDataset(mdp, behaviour, 200)
    release = make_release(
        data, learner.query(spec), learner.schedule(200), dr.Central(rho=0.5), dr.Seeded(5)
    )
    learned = learner.learn(release, spec)
    n = np.maximum(release.estimates["visits"].value, 0)
    moves = np.maximum(release.estimates["transition_counts"].value, 0)
    half = width * learned.noise_error
    for cell in np.ndindex(2, S, A):
        one, total_of = np.ones((S, 1)), np.r_[np.ones(S), 0]
        upper = np.vstack([np.c_[np.eye(S), -one], np.c_[-np.eye(S), -one], total_of, -total_of])
        bounds = np.r_[moves[cell], -moves[cell], n[cell] + half, half - n[cell]]
        found = scipy.optimize.linprog(np.r_[np.zeros(S), 1], upper, bounds)
        assert found.status == 0
        total = moves[cell].sum()
        low, high = max(n[cell] - half, 0), n[cell] + half
        assert learned.visits[cell] == pytest.approx(min(max(total, low), high), abs=1e-9)
        assert found.x[:S].sum() == pytest.approx(learned.visits[cell], abs=1e-6)


def test_one_hot_behaviour_is_supported_where_it_plays() -> None:
    mdp, _, spec = world(4)
    policy = np.random.default_rng(0).integers(A, size=(H, S))
    learned = learn_offline(SimulatedDataset(mdp, policy, 10_000), APVI(), dr.NoPrivacy(), dr.Seeded(0), spec)
    seen = occupancy(mdp, policy) > 0.01
    assert ((learned.visits > 0) & (occupancy(mdp, policy) == 0)).sum() == 0
    assert (learned.visits[seen] > 0).all()


def test_combination_is_least_squares() -> None:
    """Both counts are averaged by inverse variance; the result is consistent and less noisy."""
    mdp, behaviour, spec = world(5)
    data = SimulatedDataset(mdp, behaviour, 10**7)  # truncation never acts
    learner = DPAPVI(visits="released")
    errors, plain = [], []
    truth = exact_release(data, learner, spec).estimates["visits"].value
    for run in range(40):
        release = make_release(data, learner.query(spec), learner.schedule(len(data)), dr.Central(rho=1e-3),
                             dr.Seeded(1, run))  # fmt: skip
        learned = learner.learn(release, spec)
        big = truth > 1e5
        errors.append((learned.visits - truth)[big])
        plain.append((release.estimates["visits"].value - truth)[big])
        sigma = release.estimates["visits"].law.std()
    assert learned.threshold == pytest.approx(sigma * math.sqrt(S / (S + 1)))
    # 40 x 40 or more squares: a ratio of variances off by 0.25 is above 5 standard deviations (rate < 1e-6)
    assert np.var(errors) / np.var(plain) == pytest.approx(S / (S + 1), abs=0.25 * S / (S + 1))


# ----------------------------------------------------------------------------- noise and its bounds
def test_sensitivities_and_scales_are_the_papers() -> None:
    mdp, _, spec = world()
    query = DPAPVI(preset="paper").query(spec)
    assert query.sensitivity("l2", {"visits": 1.0}) == pytest.approx(math.sqrt(2 * H))
    assert query.sensitivity("l2", {"visits": 1.0, "transition_counts": 1.0}) == pytest.approx(
        math.sqrt(4 * H)
    )
    assert query.sensitivity("l1", {"visits": 1.0, "transition_counts": 1.0}) == pytest.approx(4 * H)
    schedule = DPAPVI.schedule(100)
    rho = 0.7
    session = dr.Central(rho=rho).start(query, schedule, dr.Seeded(0))
    assert session.mechanism.stream == "decaying"
    np.testing.assert_allclose(session.mechanism.scales, math.sqrt(2 * H / rho))
    assert session.guarantee.mu == pytest.approx(math.sqrt(2 * rho))
    session = dr.Central(epsilon=0.8, noise="laplace").start(query, schedule, dr.Seeded(0))
    np.testing.assert_allclose(session.mechanism.scales, 4 * H / 0.8)
    derived = DPAPVI(visits="derived").query(spec)
    session = dr.Central(rho=rho).start(derived, schedule, dr.Seeded(0))
    np.testing.assert_allclose(session.mechanism.scales, math.sqrt(H / rho))
    unknown = DPAPVI(preset="theory").query(dr.mechanisms.ProblemSpec(mdp.layout))
    assert shares_of(unknown) == pytest.approx((0.4, 0.4, 0.2))
    assert unknown.sensitivity("l1", {"centered_reward_sums": 1.0}) == pytest.approx(H)
    assert unknown.sensitivity("l2", {"centered_reward_sums": 1.0}) == pytest.approx(math.sqrt(H))


def test_published_errors_are_the_papers() -> None:
    mdp, behaviour, spec = world()
    data, p = SimulatedDataset(mdp, behaviour, 100), 0.05
    rho, epsilon = 0.7, 0.8
    learned = learn_offline(data, DPAPVI(preset="paper"), dr.Central(rho=rho), dr.Seeded(0), spec)
    assert learned.noise_error == pytest.approx(4 * math.sqrt(H * math.log(4 * H * S * S * A / p) / rho))
    assert learned.threshold == learned.noise_error
    laplace = dr.Central(epsilon=epsilon, noise="laplace")
    learned = learn_offline(data, DPAPVI(preset="paper"), laplace, dr.Seeded(0), spec)
    assert learned.noise_error == pytest.approx(8 * H / epsilon * math.log(2 * H * S * S * A / p))
    exact = learn_offline(data, DPAPVI(preset="theory", visits="released"), laplace, dr.Seeded(0), spec)
    assert exact.noise_error == pytest.approx(
        learned.noise_error
    )  # the paper's Laplace bound is the quantile
    gaussian = dr.Central(rho=rho)
    published, exact = (
        learn_offline(data, DPAPVI(preset=preset), gaussian, dr.Seeded(0), spec)
        for preset in ("paper", "theory")
    )
    assert 0.8 * published.noise_error < exact.noise_error < published.noise_error


def test_it_reads_the_release_alone() -> None:
    """Two data sets, one release: identical bytes (the release is all that learn takes)."""
    mdp, behaviour, spec = world()
    learner = DPAPVI()
    release = exact_release(SimulatedDataset(mdp, behaviour, 50), learner, spec)
    law = GaussianSumLaw(3.0, 1.0, 1, S * A * H, H * S * A, 1, 1.0, None)
    moves = LaplaceSumLaw(3.0, 1.0, 1, S * S * A * H, H * S * A, S, 1.0, None)
    noisy = release_with(release, visits=law, transition_counts=moves)
    one, two = learner.learn(noisy, spec), learner.learn(noisy, spec)
    assert one.q.tobytes() == two.q.tobytes()
    assert one.guarantee is release.guarantee
    assert isinstance(release.estimates["visits"].law, NoNoise)


# ------------------------------------------------------------------------------------- pessimism
@pytest.mark.parametrize("pessimism", ["bernstein", "hoeffding"])
@pytest.mark.parametrize("known", [False, True])
def test_values_are_lower_bounds_at_theory_constants(pessimism: str, known: bool) -> None:
    """Not vacuously: n is large. 40 data sets, none may fail: p = 0.05 each, and the bounds are wide."""
    mdp, behaviour, spec = world(6)
    spec = spec if known else dr.mechanisms.ProblemSpec(mdp.layout)
    learner = DPAPVI(preset="theory", pessimism=pessimism)
    best = optimal_values(mdp)[0]
    assert not tuple(learner.heuristics())
    for run in range(40):
        data = SimulatedDataset(mdp, behaviour, 10**7, seed=7, run=run)
        learned = learn_offline(data, learner, dr.Central(rho=1.0), dr.Seeded(7, run), spec)
        true = evaluate_policy(mdp, learned.policy)
        assert (learned.values <= true + 1e-9).all()
        assert (true <= best + 1e-9).all()
    assert learned.lower_bound(mdp.initial) > 0.5 * float(mdp.initial @ best[0])
    assert learned.supported[1:].all()  # everybody starts in state 0


def test_theory_constants_say_nothing_of_small_data() -> None:
    mdp, behaviour, spec = world(6)
    learner = DPAPVI(preset="paper")
    learned = learn_offline(
        SimulatedDataset(mdp, behaviour, 1000), learner, dr.Central(rho=1.0), dr.Seeded(0), spec
    )
    assert learned.values.max() < 1.0
    assert learned.heuristics == ("c3 = 0 is below 7/3",)
    assert DPAPVI().heuristics is not None
    assert len(tuple(DPAPVI().heuristics())) >= 4


def test_known_rewards_are_a_floor() -> None:
    mdp, behaviour, spec = world(8, masked=True)
    data = SimulatedDataset(mdp, behaviour, 20)
    assert spec.known_rewards is not None
    for learner in (APVI(), DPAPVI(), DPAPVI(preset="theory")):
        learned = learn_offline(data, learner, dr.Central(rho=1.0), dr.Seeded(0), spec)
        assert (learned.q[:, MASK] >= spec.known_rewards[:, MASK]).all()
        assert np.isneginf(learned.q[:, ~MASK]).all()
        assert MASK[np.arange(S), learned.policy].all()
        assert (learned.q[:, MASK] <= np.arange(H, 0, -1)[:, None]).all()


def test_more_data_and_more_budget_do_not_hurt_in_the_mean() -> None:
    """Paired over 30 instances, rewards unknown: each step down is most of the mean."""
    means = {}
    for rho in (0.1, 10.0):
        for users in (100, 3000, 100_000):
            gaps = []
            for seed in range(30):
                mdp, behaviour, _ = world(100 + seed)
                spec = dr.mechanisms.ProblemSpec(mdp.layout)
                data = SimulatedDataset(mdp, behaviour, users, seed=seed)
                learned = learn_offline(data, DPAPVI(), dr.Central(rho=rho), dr.Seeded(seed), spec)
                best = float(mdp.initial @ optimal_values(mdp)[0][0])
                gaps.append(best - policy_value(mdp, learned.policy))
            means[rho, users] = float(np.mean(gaps))
    for rho in (0.1, 10.0):
        assert means[rho, 100] > 2 * means[rho, 3000] > 4 * means[rho, 100_000]
    assert means[0.1, 3000] > 2 * means[10.0, 3000]


# -------------------------------------------------------------------------------- what is refused
def test_bad_options_and_releases() -> None:
    mdp, behaviour, spec = world()
    for options, words in (
        ({"c1": -1.0}, "c1 = -1"),
        ({"c2": math.nan}, "c2"),
        ({"threshold": "E"}, "threshold"),
        ({"threshold": -1.0}, "threshold"),
        ({"failure": 1.0}, "failure"),
        ({"pessimism": "no"}, "pessimism"),
        ({"visits": "both"}, "visits"),
        ({"reward_share": 1.0}, "reward_share"),
        ({"E_mode": "sd"}, "E_mode"),
        ({"preset": "none"}, "preset"),
    ):
        with pytest.raises(ValueError, match=words):
            DPAPVI(**options)  # type: ignore[arg-type]
    learner = DPAPVI()
    release = exact_release(SimulatedDataset(mdp, behaviour, 10), learner, spec)
    with pytest.raises(ValueError, match="no rewards"):
        learner.learn(release, dr.mechanisms.ProblemSpec(mdp.layout))
    with pytest.raises(ValueError, match="must be at least 1"):
        learner.learn(Release(release.estimates, 0, 0, release.guarantee), spec)
    pooled = make_release(
        SimulatedDataset(mdp, behaviour, 10), dr.mechanisms.CountQuery(mdp.layout),
        Schedule.one_shot(10), dr.NoPrivacy(), dr.Seeded(0),
    )  # fmt: skip
    table = {n: Estimate(e.value.sum(axis=0, keepdims=True), e.law) for n, e in pooled.estimates.items()}
    with pytest.raises(ValueError, match="pools"):
        learner.learn(Release(table, 10, 1, release.guarantee), spec)
    with pytest.raises(ValueError, match="initial"):
        learner.learn(release, spec).lower_bound(np.ones(S))


def test_support_is_read_without_the_projections_bias() -> None:
    """Nobody plays action 0: it is marked in at most a share 0.16 (a noise above 1 sigma), in many states."""
    states = 40
    mdp, _, _ = world(9, states=states)
    behaviour = np.zeros((H, states, A))
    behaviour[..., 1] = 1.0
    spec = dr.mechanisms.ProblemSpec(
        mdp.layout, known_rewards=np.broadcast_to([1.0, 0.0, 0.0], (H, states, A)).copy()
    )
    data = SimulatedDataset(mdp, behaviour, 1000)
    learned = learn_offline(data, DPAPVI(), dr.Central(rho=1.0), dr.Seeded(3), spec)
    never = learned.policy == 0
    assert never.mean() > 0.9  # its known reward is all that there is to win
    assert (learned.visits[..., 0] > learned.threshold).mean() > 0.9
    # 144 or more independent noises: five standard errors of their share are 0.16
    assert learned.supported[never].mean() < 0.16 + 0.16
