"""The projection against an LP solver on 10 000 random rows; rows without a solution one by one.

Nothing here is left to chance: every row must agree, so there is no false alarm.
"""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sparse
from projected import project_rows

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def random_row(generator, states):
    """Noise from 1e-1 to 1e6 on totals from 1 to 1e6; ties, integers, c = 0, sums below any tolerance."""
    noise, total = 10.0 ** generator.uniform(-1, 6), 10.0 ** generator.uniform(0, 6)
    v = generator.dirichlet(np.full(states, 0.3)) * total
    kind = generator.integers(6)
    if kind == 0:
        v = np.full(states, np.round(generator.laplace(0, noise)))  # all tied, perhaps all negative
    elif kind == 1:
        v = np.round(v + generator.laplace(0, min(noise, 3.0), states))  # small integers tie
    elif kind > 2:
        v = v + generator.laplace(0, noise, states)
    w = total + generator.laplace(0, noise)
    return v, float(np.round(w) if kind == 1 else w), float(generator.choice([0.0, noise / 3, 4 * noise]))


def programme(v, w, c):
    """Rows of any lengths in one sparse programme: x >= 0 and one level t a row, block by block."""
    sizes = np.array([row.size for row in v])
    n, cells = sizes.size, int(sizes.sum())
    of_row = sparse.csr_matrix((np.ones(cells), (np.arange(cells), np.repeat(np.arange(n), sizes))))
    eye, none = sparse.eye(cells), sparse.csr_matrix((n, n))
    matrix = sparse.bmat([[eye, -of_row], [-eye, -of_row], [of_row.T, none], [-of_row.T, none]]).tocsr()
    flat = np.concatenate(v)
    limits = np.concatenate([flat, -flat, w + c, c - w])
    costs = np.concatenate([np.zeros(cells), np.ones(n)])
    found = scipy.optimize.linprog(costs, matrix, limits, bounds=(0, None), method="highs", options=TIGHT)
    return found.status, None if found.x is None else found.x[cells:]


@pytest.mark.statistics
def test_10_000_random_rows_against_highs():
    generator = np.random.default_rng(20261120)
    feasible, unsolvable = [], []
    for states in range(1, 51):
        rows = [random_row(generator, states) for _ in range(200)]
        v, w, c = (np.array(part) for part in zip(*rows, strict=True))
        x, t = project_rows(v, w, c)
        unit = np.maximum(1.0, np.abs(v).max(axis=1) + np.abs(w) + c)
        nothing = w + c < 0
        assert not x[nothing].any()
        assert (x >= 0).all()
        good = ~nothing
        assert (np.abs(x[good].sum(1) - w[good]) - c[good] <= 1e-12 * states * unit[good]).all()
        assert (np.abs(x - v).max(1)[good] <= t[good] + 1e-12 * unit[good]).all()
        # Of all optima the one whose sum is nearest to w, and then the Euclidean projection (v - theta)_+.
        low, high = np.maximum(v - t[:, None], 0).sum(1), (v + t[:, None]).sum(1)
        wanted = np.clip(np.maximum(w, 0), low, np.maximum(low, high))
        assert (np.abs(x.sum(1) - wanted)[good] <= 1e-12 * states * unit[good]).all()
        theta = np.max(np.where(x > 0, v - x, -np.inf), axis=1)
        some = good & np.isfinite(theta)
        shape = np.maximum(0.0, v - theta[:, None])
        assert (np.abs(shape - x).max(1)[some] <= 1e-12 * states * unit[some]).all()
        for i in range(200):
            (unsolvable if nothing[i] else feasible).append(
                (v[i] / unit[i], w[i] / unit[i], c[i] / unit[i], t[i] / unit[i])
            )
    assert len(feasible) + len(unsolvable) == 10_000
    assert len(unsolvable) > 300
    for i in range(0, len(feasible), 100):  # rows of unlike lengths in each programme
        v, w, c, t = zip(*feasible[i : i + 100], strict=True)
        status, best = programme(v, np.array(w), np.array(c))
        assert status == 0
        np.testing.assert_allclose(t, best, rtol=0, atol=1e-9)
    for v, w, c, _ in unsolvable:
        if w + c < -1e-8:  # HiGHS itself allows 1e-10
            assert programme([v], np.array([w]), np.array([c]))[0] == 2  # infeasible
