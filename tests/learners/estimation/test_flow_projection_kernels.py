"""The flow projection against dense least squares, and the variance that theory says is left."""

import itertools

import numpy as np
import pytest

from discreet.learners.estimation import flow_projection_kernels as consistency_kernels
from discreet.learners.estimation import flow_projection_kernels as flow

from ..online.test_noise_aware import feed, small_world


def equalities(horizon, row_state, states, active):
    """(A, b of total 1): every flow equality and the total, over the active cells."""
    rows = row_state.size
    lines = []
    for h in range(horizon - 1):
        for s in range(states):
            line = np.zeros((horizon, rows, states))
            line[h, :, s] += 1
            line[h + 1, row_state == s, :] -= 1
            lines.append((line * active[:, :, None]).ravel())
    line = np.zeros((horizon, rows, states))
    line[0] = 1
    lines.append((line * active[:, :, None]).ravel())
    return np.array(lines)


def projected(horizon, sizes, active, counts, total):
    pointers = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    out = counts.reshape(-1, counts.shape[-1]).copy()
    work = np.full(flow.work_size(horizon, len(sizes)), np.nan)
    left = flow.consistent_counts(
        horizon, pointers, float(total), active.astype(float).ravel().copy(), out, work
    )
    return out.reshape(counts.shape), left


def some_active(rng, horizon, sizes, all_rows):
    """Which rows are active: all, or at least one of each state."""
    active = np.ones((horizon, sum(sizes)), bool)
    if not all_rows:
        active = rng.random(active.shape) < 0.4
        ends = np.cumsum([0, *sizes])
        for h in range(horizon):
            for first, last in itertools.pairwise(ends):
                active[h, rng.integers(first, last)] = True
    return active


@pytest.mark.compiles
@pytest.mark.parametrize("horizon", [1, 2, 7])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 3, 2, 2)])
@pytest.mark.parametrize("all_rows", [True, False])
def test_equals_dense_least_squares(horizon, sizes, all_rows):
    rng = np.random.default_rng(horizon)
    states, rows = len(sizes), sum(sizes)
    row_state = np.repeat(np.arange(states), sizes)
    active = some_active(rng, horizon, sizes, all_rows)
    counts = rng.normal(size=(horizon, rows, states)) * 10 + 5
    a = equalities(horizon, row_state, states, active)
    b = np.zeros(len(a))
    b[-1] = 100.0
    x = (counts * active[:, :, None]).ravel()
    dense = x - a.T @ np.linalg.lstsq(a @ a.T, a @ x - b, rcond=None)[0]
    ours, left = projected(horizon, sizes, active, counts, 100.0)
    np.testing.assert_allclose(ours.ravel(), dense, atol=1e-9)
    np.testing.assert_allclose(a @ ours.ravel(), b, atol=1e-9)
    assert (ours[~active] == 0).all()
    # the mean share of variance that is left is 1 - rank / cells
    cells = int(active.sum()) * states
    assert left == pytest.approx(1 - np.linalg.matrix_rank(a) / cells)
    again, _ = projected(horizon, sizes, active, ours, 100.0)
    np.testing.assert_allclose(again, ours, atol=1e-9)


@pytest.mark.parametrize(("all_rows", "left"), [(True, 0.920), (False, 0.840)])
def test_share_of_variance_that_is_left(all_rows, left):
    """S=6, A=2, H=20. Section 2.3 has 0.917 and 0.833: it also knows the start state (5 equalities more)."""
    active = np.ones((20, 12), bool)
    if not all_rows:
        active[:, 1::2] = False
    found = projected(20, (2,) * 6, active, np.zeros((20, 12, 6)), 0.0)[1]
    assert found == pytest.approx(left, abs=1e-3)


def test_true_counts_are_left_alone():
    rng = np.random.default_rng(2)
    states, actions, horizon, users = 4, 2, 6, 50
    counts = np.zeros((horizon, states * actions, states))
    for _ in range(users):
        s = 0
        for h in range(horizon):
            a, after = rng.integers(actions), rng.integers(states)
            counts[h, s * actions + a, after] += 1
            s = after
    ours, _ = projected(
        horizon, (actions,) * states, np.ones((horizon, states * actions), bool), counts, users
    )
    np.testing.assert_allclose(ours, counts, atol=1e-9)


SLOTS, ROWS, STATES = 2, 4, 2


@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_consistent_measurements_are_the_projected_ones_with_less_noise(decay: float) -> None:
    """Projecting by hand first, and telling of so much less noise, gives the same counts and errors."""
    measurements, coming, behind = small_world(np.random.default_rng(4), decay)
    sigmas = np.full(6, 12.0)
    mine = feed(measurements, coming, sigmas, decay, consistent=True)
    gain, left = np.sqrt(1 - decay**2), np.zeros(6)
    by_hand = measurements.reshape(6, SLOTS * ROWS, STATES).copy()
    for i in range(6):
        left[i] = consistency_kernels.consistent_counts(
            SLOTS, np.array([0, 2, 4]), gain * behind[i], coming.sum(axis=0).ravel(), by_hand[i],
            np.zeros(consistency_kernels.work_size(SLOTS, STATES)),
        )  # fmt: skip
    assert (left < 0.9).all()
    projected = by_hand.reshape(measurements.shape)
    assert np.abs(projected - measurements).max() > 1.0
    np.testing.assert_allclose(projected.sum(axis=(2, 3)), np.tile(gain * behind[:, None], (1, 2)))
    again = feed(projected, coming, sigmas * np.sqrt(left), decay)
    for one, other in zip(mine, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
