"""LDP-OBI against the paper's recursion in plain NumPy."""

import numpy as np
import pytest

from discreet.learners.online.ldp_obi import LDPOBI

from .ucbvi.test_reference import check, reference

S, A, H, K = 4, 3, 4, 5000


def rows_of(problem):
    return problem.layout.rows


def left(h):
    return float(H - h + 1)


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("constants", ["tight", "published"])
def test_ldp_obi(made, quiet, constants):
    setting = made(seed=5)
    pairs, sat = rows_of(setting), rows_of(setting) * K * H
    users, alpha, stat, priv = 1000, 1.5, 0.03, 0.2
    if constants == "tight":
        outer = max(1, np.sqrt(np.log(2 * sat / 0.05) / 2))
        inner = np.sqrt(2 * S * np.log(2 * sat / 0.05))
    else:
        log = np.log(4 * np.pi**2 * pairs * H * (users + 1) ** 3 / 0.05)
        outer, inner = np.sqrt(2 * log), np.sqrt(14 * S * log)
    e1, e2, e3, e_row = (0, 0, 0, 0) if quiet else setting.errors
    release = setting.release(quiet=quiet, users=users)

    def bonus(h, at, m, v):
        d_r = max(1, m.n[at] + alpha * e1)
        d_p = max(1, m.n3[at].sum() + alpha * e_row)
        m.p[at] = m.mass[at] / d_p  # two denominators in this paper
        g = H - h if constants == "tight" else H
        b_r = stat * outer / np.sqrt(d_r) + priv * ((alpha + 1) * e1 + e2) / d_r
        b_p = stat * inner / np.sqrt(d_p) + priv * (S * e3 + (alpha + 1) * e_row) / d_p
        return b_r + g * b_p

    learner = LDPOBI(
        preset="theory", constants=constants, alpha=alpha, stat_scale=stat, priv_scale=priv,
        stationary=made.pooled,
    )  # fmt: skip
    expected = reference(setting, release, post="raw", bonus=bonus, cap=left, alpha=alpha)
    check(learner, setting, release, expected)
