"""The likelihood of all releases: against a slow reference; gradient, fit, samples, misfit."""

import numpy as np
import pytest

from discreet.learners.online import joint_posterior as joint
from discreet.learners.online import joint_posterior_kernels as kernels
from discreet.learners.online.joint_posterior_kernels import Evidence, Scratch
from discreet.utils.random_streams_kernels import open_at, run_key

HORIZON, STATES, ROWS = 4, 3, 5
POINTERS = np.array([0, 2, 3, 5])


def drawn(
    rng: np.random.Generator, releases: int = 4, policies: int = 9, decay: float = 0.7, sigma: float = 2.0
) -> Evidence:
    """Random policies and measurements of any value: cut rewards first, then centred ones."""
    width = np.diff(POINTERS)
    rows = POINTERS[:-1] + np.floor(rng.random((policies, HORIZON, STATES)) * width).astype(np.int64)
    return Evidence(
        rows=rows,
        users=rng.integers(3, 60, policies).astype(float),
        batch=np.sort(np.arange(policies) % releases),
        cut=rng.uniform(1.0, 3.0, policies),
        decay=np.append(0.0, np.full(releases - 1, decay)),
        gain=np.full(releases, np.sqrt(1 - decay**2)),
        centered=(np.arange(releases) >= releases // 2).astype(np.int64),
        cuts=np.full(releases, 2.0),
        sigma_moves=np.full(releases, sigma),
        sigma_rewards=np.full(releases, 1.5 * sigma),
        tails=np.zeros(releases),
        moves=rng.normal(3.0, 5.0, (releases, HORIZON, ROWS, STATES)),
        rewards=rng.normal(1.0, 5.0, (releases, HORIZON, ROWS)),
    )


def room(evidence: Evidence) -> Scratch:
    return kernels.scratch(evidence.users.size, evidence.gain.size, HORIZON, ROWS, STATES)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def reference(theta: np.ndarray, prior: np.ndarray, precision: np.ndarray, e: Evidence) -> float:
    """The same by sums over all paths of a user and over all batches, without any recursion."""
    model = softmax(theta[: ROWS * STATES].reshape(ROWS, STATES))
    means = 1 / (1 + np.exp(-theta[ROWS * STATES : ROWS * STATES + ROWS]))
    start = softmax(theta[ROWS * STATES + ROWS :])
    visits = np.zeros((e.users.size, HORIZON, ROWS))
    for p, rows in enumerate(e.rows):
        for path in np.ndindex(*(STATES,) * HORIZON):
            weight = start[path[0]]
            for h in range(HORIZON - 1):
                weight *= model[rows[h, path[h]], path[h + 1]]
            for h in range(HORIZON):
                visits[p, h, rows[h, path[h]]] += weight
    earned = visits.sum(axis=1) @ means
    kept = (1 + (earned / e.cut) ** 3) ** (-1 / 3)
    total = 0.5 * float(precision @ (theta - prior) ** 2)

    def add(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
        return 0.5 * float(((y - mean) ** 2 / variance + np.log(variance)).sum())

    for i, a in enumerate(e.gain):
        weights = e.users * np.where(e.batch <= i, e.decay[1] ** np.maximum(0, i - e.batch), 0.0)
        seen = a * np.einsum("p,phr->hr", weights, visits)
        counted = a * np.einsum("p,pr->r", weights * kept, visits.sum(axis=1))
        active = seen > 0
        mean = seen[:, :, None] * model
        floor = 0.25 * a * a
        total += (
            add(e.moves[i], mean, e.sigma_moves[i] ** 2 + floor + 0.5 * mean)
            if active.all()
            else sum(
                add(e.moves[i, h, r], mean[h, r], e.sigma_moves[i] ** 2 + floor + 0.5 * mean[h, r])
                for h, r in np.argwhere(active)
            )
        )
        noise = e.sigma_rewards[i] ** 2 + floor
        if e.centered[i]:
            y, m = e.rewards[i][active], (seen * (means - 0.5))[active]
            total += add(y, m, noise + 0.125 * seen[active])
        else:
            y, m = e.rewards[i, 0][counted > 0], (counted * means)[counted > 0]
            total += add(y, m, noise + 0.3 * a * e.cuts[i] * m)
    return total


@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_the_likelihood_is_that_of_sums_over_paths(decay: float) -> None:
    rng = np.random.default_rng(0)
    evidence, n = drawn(rng, decay=decay), kernels.parameters(ROWS, STATES)
    theta, prior, precision = rng.normal(0, 1, n), rng.normal(0, 1, n), rng.uniform(0.05, 0.2, n)
    found = kernels.loss(theta, prior, precision, evidence, room(evidence), np.zeros(n))
    assert found == pytest.approx(reference(theta, prior, precision, evidence), rel=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_the_gradient_is_that_of_finite_differences(decay: float) -> None:
    rng = np.random.default_rng(1)
    evidence, n = drawn(rng, decay=decay), kernels.parameters(ROWS, STATES)
    theta, prior, precision = rng.normal(0, 1, n), rng.normal(0, 1, n), np.full(n, 0.1)
    work, slope, ignored = room(evidence), np.zeros(n), np.zeros(n)
    kernels.loss(theta, prior, precision, evidence, work, slope)
    for i in range(n):
        step = np.zeros(n)
        step[i] = 1e-5
        high = kernels.loss(theta + step, prior, precision, evidence, work, ignored)
        low = kernels.loss(theta - step, prior, precision, evidence, work, ignored)
        assert slope[i] == pytest.approx((high - low) / 2e-5, abs=1e-6 * np.abs(slope).max())


def expected(evidence: Evidence, theta: np.ndarray) -> Evidence:
    """The evidence whose measurements are exactly what the model of these logits predicts."""
    work = room(evidence)
    kernels.decode(theta, work)
    kernels.predict(evidence, work)
    moves = evidence.gain[0] * work.seen[..., None] * work.model
    rewards = evidence.gain[0] * work.seen * (work.means - 0.5)
    for i in np.flatnonzero(evidence.centered == 0):
        rewards[i] = 0.0
        rewards[i, 0] = evidence.gain[0] * work.counted[i] * work.means
    return evidence._replace(moves=moves, rewards=rewards)


def test_a_fit_without_noise_finds_the_model() -> None:
    rng = np.random.default_rng(2)
    n = kernels.parameters(ROWS, STATES)
    truth = rng.normal(0, 1, n)
    evidence = drawn(rng, releases=6, policies=36, sigma=0.0)
    evidence = expected(evidence._replace(users=evidence.users * 1000), truth)
    theta, work = np.zeros(n), room(evidence)
    kernels.fit(theta, np.zeros(n), np.full(n, 1e-3), evidence, work, 2000, 0.1)
    kernels.decode(theta, work)
    found = work.model.copy(), work.means.copy(), work.start.copy()
    kernels.decode(truth, work)
    for mine, true in zip(found, (work.model, work.means, work.start), strict=True):
        np.testing.assert_allclose(mine, true, atol=5e-3)
    kernels.predict(evidence, work)
    assert kernels.misfit(evidence, work) < 0.0  # residuals of nothing: every Z is 0


def test_a_fit_never_loses_what_the_last_one_found() -> None:
    """With a million users behind them Adam's first steps throw logits away; the careful fit does not."""
    rng = np.random.default_rng(8)
    n = kernels.parameters(ROWS, STATES)
    truth, slope = rng.normal(0, 1, n), np.zeros(n)
    evidence = drawn(rng, releases=6, policies=36, sigma=1.0)
    evidence = expected(evidence._replace(users=evidence.users * 30_000), truth)
    work, mean, precision = room(evidence), np.zeros(n), np.full(n, 1 / 9)
    lost = truth.copy()
    kernels.fit(lost, mean, precision, evidence, work, 5, 0.4)
    kept = joint._descended(truth, truth, mean, precision, evidence, work, 5, 0.4)
    losses = [kernels.loss(x, mean, precision, evidence, work, slope) for x in (kept, truth, lost)]
    assert losses[0] <= losses[1] < losses[2]


def test_moved_measurements_have_the_stated_spread() -> None:
    """Over 20 000 moved cells the mean square is within 5 standard errors of what is stated."""
    rng = np.random.default_rng(3)
    evidence, n = drawn(rng), kernels.parameters(ROWS, STATES)
    theta, work = rng.normal(0, 1, n), room(evidence)
    kernels.decode(theta, work)
    kernels.predict(evidence, work)
    moves, rewards = evidence.moves.copy(), evidence.rewards.copy()
    a, square, repeats = evidence.gain[0], 0.0, 100
    cells = work.seen > 0.0
    mean = a * work.seen[..., None] * work.model
    std = np.sqrt(evidence.sigma_moves[0] ** 2 + 0.25 * a * a + 0.5 * mean)[cells]
    for k in range(repeats):
        kernels.perturb(evidence, work, 0.3, open_at(run_key(4), 8, k, 0), moves, rewards)
        square += float(((((moves - evidence.moves)[cells]) / std) ** 2).mean()) / repeats
        np.testing.assert_array_equal(moves[~cells], evidence.moves[~cells])
        assert (
            rewards[evidence.centered == 0][:, 1:] == evidence.rewards[evidence.centered == 0][:, 1:]
        ).all()
    drawn_cells = repeats * std.size
    assert drawn_cells > 10_000
    assert square == pytest.approx(0.09, abs=5 * 0.09 * np.sqrt(2 / drawn_cells))


@pytest.mark.statistics
def test_samples_of_wide_data_have_the_law_of_the_laplace_approximation() -> None:
    """Spreads of 400 samples against the inverse Hessian's: standard error 3.5 %, 23 logits, within 25 %.

    Logits of one row (and of the start) are compared around their mean, which the likelihood does not see.
    """
    rng = np.random.default_rng(5)
    n = kernels.parameters(ROWS, STATES)
    truth = rng.normal(0, 0.5, n)
    evidence = drawn(rng, releases=3, policies=24, sigma=100.0)
    evidence = expected(evidence._replace(users=evidence.users * 200), truth)
    work, precision, mean = room(evidence), np.full(n, 1 / 9), np.zeros(n)
    theta = truth.copy()
    kernels.fit(theta, mean, precision, evidence, work, 3000, 0.02)
    hessian = np.zeros((n, n))
    for i in range(n):
        step, high, low = np.zeros(n), np.zeros(n), np.zeros(n)
        step[i] = 1e-4
        kernels.loss(theta + step, mean, precision, evidence, work, high)
        kernels.loss(theta - step, mean, precision, evidence, work, low)
        hessian[i] = (high - low) / 2e-4
    around = np.eye(n)
    blocks = [slice(r * STATES, (r + 1) * STATES) for r in range(ROWS)] + [slice(n - STATES, n)]
    for block in blocks:
        around[block, block] -= 1 / STATES
    covariance = around @ np.linalg.inv(0.5 * (hessian + hessian.T)) @ around
    fitted = room(evidence)
    kernels.decode(theta, fitted)
    kernels.predict(evidence, fitted)
    samples = np.zeros((400, n))
    moved = evidence._replace(moves=evidence.moves.copy(), rewards=evidence.rewards.copy())
    for k, sample in enumerate(samples):
        coins, draw = open_at(run_key(6), 8, k, 0), np.zeros(n)
        kernels.fill_normals(coins, draw)
        draw *= 3.0
        kernels.perturb(evidence, fitted, 1.0, coins, moved.moves, moved.rewards)
        sample[:] = theta
        kernels.fit(sample, draw, precision, moved, work, 600, 0.1)
    np.testing.assert_allclose((samples @ around).std(axis=0), np.sqrt(np.diag(covariance)), rtol=0.25)


def test_the_best_policy_is_that_of_enumeration() -> None:
    rng = np.random.default_rng(7)
    model, means = softmax(rng.normal(0, 1, (ROWS, STATES))), rng.random(ROWS)
    policy = np.zeros((HORIZON, STATES), np.int64)
    found = kernels.best_policy(model, means, POINTERS, HORIZON, policy)
    values = np.zeros(STATES)
    for h in range(HORIZON - 1, -1, -1):
        q = means + model @ values
        values = np.array([q[POINTERS[s] : POINTERS[s + 1]].max() for s in range(STATES)])
        np.testing.assert_allclose(q[policy[h]], values)
    assert found == pytest.approx(values.max())
