"""Compiled choice of actions: ties are uniform, and no coin is drawn without a tie."""

import numpy as np

from discreet.core.layout import Layout
from discreet.learners.online import tabular_planning_kernels as kernels
from discreet.utils.random_streams_kernels import open_at


def choose(q, layout, key=0, random=True):
    flags = np.zeros(kernels.FLAGS, np.int64)
    flags[kernels.RANDOM_TIES] = int(random)
    lk = kernels.LearnerKernel(0, flags, np.zeros(kernels.KNOBS))
    state = open_at(np.array([key, 9], np.uint64), 3, 0, 0)
    rows = np.empty((q.shape[0], layout.states), np.int64)
    kernels.choose(lk, layout.state_ptr, q.shape[0], q, state, rows)
    return rows, state


def test_choose_without_ties_spends_no_coin(mask):
    layout = Layout(4, 3, 2, mask)
    q = np.random.default_rng(0).random((2, layout.rows))
    rows, state = choose(q, layout)
    np.testing.assert_array_equal(state, open_at(np.array([0, 9], np.uint64), 3, 0, 0))
    for h in range(2):
        for s in range(4):
            own = np.arange(layout.state_ptr[s], layout.state_ptr[s + 1])
            assert rows[h, s] == own[q[h, own].argmax()]
    np.testing.assert_array_equal(rows, choose(q, layout, random=False)[0])


def test_ties_are_uniform_over_the_maximisers():
    layout = Layout(2, 4, 1)
    q = np.array([[1.0, 3.0, 3.0, 3.0, 2.0, 0.0, 2.0, 1.0]])
    n = 6000
    seen = np.array([choose(q, layout, key)[0][0] for key in range(n)])
    assert (choose(q, layout, random=False)[0] == [[1, 4]]).all()
    for column, among in ((seen[:, 0], (1, 2, 3)), (seen[:, 1], (4, 6))):
        assert set(column) == set(among)
        p = 1 / len(among)
        for row in among:  # 5 standard errors: false alarms below 6e-7 each
            assert abs((column == row).mean() - p) < 5 * np.sqrt(p * (1 - p) / n)
    both = (seen[:, 0] == 1) & (seen[:, 1] == 4)
    assert abs(both.mean() - 1 / 6) < 5 * np.sqrt(5 / 36 / n)  # independent coins
