"""Signs of noise: copies and mirrored copies are found, independent ones are not."""

import numpy as np

from discreet.audit.white_box import agreeing


def test_pairs_that_share_a_draw_are_counted() -> None:
    signs = np.random.default_rng(9).choice([-1.0, 1.0], (6, 200))
    numbers = np.full((6, 6), 200)
    assert agreeing(signs @ signs.T, numbers, 1e-9) == 0
    signs[4], signs[5] = signs[0], -signs[1]
    assert agreeing(signs @ signs.T, numbers, 1e-9) == 2


def test_a_few_draws_prove_nothing() -> None:
    signs = np.ones((3, 5))
    assert agreeing(signs @ signs.T, np.full((3, 3), 5), 1e-9) == 0
    assert agreeing(signs @ signs.T, np.full((3, 3), 5), 0.1) == 3
