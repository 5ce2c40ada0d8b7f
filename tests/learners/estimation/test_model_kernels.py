"""The projection against an LP solver, the closed form with a sort, and what it promises."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from projected import project_rows

UNIT_VECTORS = [
    ([3, -2, 1], 2, 0.5, [2, 0, 0], 2),
    ([5, 1, 0], 4, 0, [4, 0, 0], 1),
    ([-3], 1, 0.5, [0.5], 3.5),
    ([2, 2, 2], 3, 1, [4 / 3, 4 / 3, 4 / 3], 2 / 3),
    ([0.4, -1.2, 7, 3.3], 12, 0.6, [0.4 + 1.3 / 3, 0, 7 + 1.3 / 3, 3.3 + 1.3 / 3], 1.2),
    ([-5, -4], -9, 1, [0, 0], 5),
    ([0, 0, 0], 0, 0.5, [0, 0, 0], 0),
    ([0, 0, 0], 6, 0, [2, 2, 2], 2),
    ([7], 5, 1, [6], 1),
]


def by_sorting(v, w, c):
    """The specification's formula (5.2), literally."""
    u = np.sort(v)[::-1]
    prefix, j = np.cumsum(u), np.arange(1, v.size + 1)
    top, bottom = max(0.0, w + c), max(0.0, w - c)
    t = max(0.0, -v.min(), (bottom - v.sum()) / v.size, ((prefix - top) / j).max())
    low, high = np.maximum(v - t, 0).sum(), (v + t).sum()
    y = min(max(max(w, 0.0), low), high)
    active = np.flatnonzero(u > (prefix - y) / j)
    rho = active[-1] + 1 if active.size else 1
    return np.maximum(0.0, v - (prefix[rho - 1] - y) / rho), t


def random_row(generator, states):
    """A row of counts with noise of any size; also ties, integers, c = 0, and nothing feasible."""
    noise = 10.0 ** generator.uniform(-1, 6)
    total = 10.0 ** generator.uniform(0, 6)
    v = generator.dirichlet(np.full(states, 0.3)) * total
    kind = generator.integers(5)
    if kind == 0:
        v = np.full(states, float(generator.integers(-3, 10)))
    elif kind == 1:
        v = np.round(v)
    else:
        v = v + generator.laplace(0, noise, states)
    w = total + (0 if kind == 1 else generator.laplace(0, noise))
    return v, w, float(generator.choice([0.0, noise / 3, 4 * noise]))


@pytest.mark.parametrize(("v", "w", "c", "x", "t"), UNIT_VECTORS)
def test_unit_vectors(v, w, c, x, t):
    found, level = project_rows([v], [w], c)
    np.testing.assert_allclose(found[0], x, rtol=0, atol=1e-12)
    assert level[0] == pytest.approx(t, abs=1e-12)


def test_2000_random_rows_against_highs():
    # Rows are independent, so one sparse programme with one t per row solves many at once.
    generator = np.random.default_rng(7)
    feasible = infeasible = 0
    for states in (1, 2, 3, 4, 6, 10, 20, 50):
        rows = [random_row(generator, states) for _ in range(260)]
        v = np.array([row[0] for row in rows])
        w, c = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
        x, t = project_rows(v, w, c)
        nothing = w + c < 0
        infeasible += int(nothing.sum())
        assert (x[nothing] == 0).all()
        keep = np.flatnonzero(~nothing)
        feasible += keep.size
        unit = np.maximum(1.0, np.abs(v).max(axis=1) + np.abs(w) + c)  # rows are scaled to order 1
        a, b, level = v / unit[:, None], w / unit, c / unit
        n = keep.size
        eye, ones = scipy.sparse.eye(n * states), np.repeat(np.eye(1), states, 0)
        to_t = scipy.sparse.kron(scipy.sparse.eye(n), ones)
        sums = scipy.sparse.kron(scipy.sparse.eye(n), ones.T)
        none = scipy.sparse.csr_matrix((n, n))
        rows_of_a = scipy.sparse.bmat([[eye, -to_t], [-eye, -to_t], [sums, none], [-sums, none]]).tocsr()
        flat = a[keep].ravel()
        limits = np.concatenate([flat, -flat, b[keep] + level[keep], level[keep] - b[keep]])
        costs = np.concatenate([np.zeros(n * states), np.ones(n)])
        tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        solution = scipy.optimize.linprog(
            costs, rows_of_a, limits, bounds=(0, None), method="highs", options=tight
        )
        assert solution.status == 0
        best = solution.x[n * states :]
        np.testing.assert_allclose(t[keep] / unit[keep], best, rtol=0, atol=1e-9)
        assert (x >= 0).all()
        violation = np.abs(x[keep].sum(axis=1) - w[keep]) - c[keep]
        assert (violation <= 1e-12 * unit[keep] * states).all()
        moved = np.abs(x[keep] - v[keep]).max(axis=1)
        assert (moved <= t[keep] + 1e-12 * unit[keep]).all()
    assert feasible >= 1500
    assert infeasible >= 20


@pytest.mark.parametrize("states", [1, 2, 5, 6, 7, 33, 716])
def test_equals_the_closed_form_with_a_sort(states):
    generator = np.random.default_rng(states)
    rows = [random_row(generator, states) for _ in range(200)]
    x, t = project_rows([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])
    for (v, w, c), found, level in zip(rows, x, t, strict=True):
        expected, best = by_sorting(v, w, c)
        size = np.abs(v).max() + abs(w) + c
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * states * size)
        assert level == pytest.approx(best, abs=1e-13 * states * size)


def test_permutations_and_scales():
    generator = np.random.default_rng(3)
    for _ in range(100):
        v, w, c = random_row(generator, 9)
        x, t = project_rows([v], [w], c)
        order = generator.permutation(9)
        size = np.abs(v).max() + abs(w) + c
        swapped, level = project_rows([v[order]], [w], c)
        np.testing.assert_allclose(swapped[0], x[0][order], rtol=0, atol=1e-13 * size)
        assert level[0] == pytest.approx(t[0], abs=1e-13 * size)
        doubled, level = project_rows([4 * v], [4 * w], 4 * c)  # exact: a power of two
        np.testing.assert_array_equal(doubled, 4 * x)
        assert level[0] == 4 * t[0]
        scaled, level = project_rows([1.7 * v], [1.7 * w], 1.7 * c)
        np.testing.assert_allclose(scaled, 1.7 * x, rtol=0, atol=1e-12 * size)
        assert level[0] == pytest.approx(1.7 * t[0], abs=1e-12 * size)


def test_exact_counts_stay_as_they_are():
    v = np.random.default_rng(0).integers(0, 50, (40, 6)).astype(float)
    x, t = project_rows(v, v.sum(axis=1), 0.0)
    np.testing.assert_array_equal(x, v)
    assert (t == 0).all()


def test_good_event():
    # If no error exceeds E / 4 then N <= N~ <= N + E, abs(N3~ - N3) <= E and N3~ > 0.
    generator = np.random.default_rng(11)
    for states, error in ((2, 3.0), (6, 40.0), (30, 900.0)):
        n3 = generator.integers(0, 60, (300, states)) * (generator.random((300, states)) < 0.4)
        n = n3.sum(axis=1)
        noisy = n3 + generator.uniform(-error, error, n3.shape)
        x, _ = project_rows(noisy, n + generator.uniform(-error, error, n.shape), error)
        e = 4 * error
        positive = x + e / (2 * states)
        totals = x.sum(axis=1) + e / 2
        assert (totals >= n - 1e-9).all()
        assert (totals <= n + e + 1e-9).all()
        assert (np.abs(positive - n3) <= e + 1e-9).all()
        assert (positive > 0).all()
        np.testing.assert_allclose(totals, positive.sum(axis=1), rtol=1e-12)
