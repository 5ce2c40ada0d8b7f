"""PUCB: the published error and the paper's recursion."""

from types import SimpleNamespace

import numpy as np
import pytest

from discreet.core.layout import Layout
from discreet.learners.online.pucb import PUCB
from discreet.mechanisms.interfaces import ProblemSpec

from .ucbvi.test_reference import check, reference


def test_pucb_reads_the_published_error():
    # (3 / eps) H log((2 S A H + S^2 A H) / f') log(K)^(5/2) with log(K) nodes of scale 3 H log(K) / eps
    spec, eps = ProblemSpec(Layout(6, 2, 20), 20_000), 1.0
    log = np.log(20_000)
    std = 3 * 20 * log / eps * np.sqrt(2 * log)
    law = SimpleNamespace(std_bound=lambda: std)
    errors = PUCB(preset="paper").errors({"visits": law, "transition_counts": law}, spec)
    expected = 3 / eps * 20 * np.log((2 * 240 + 6 * 240) / (0.05 / 4)) * log**2.5
    np.testing.assert_allclose(errors[:3], expected, rtol=1e-12)


S, A, H, K = 4, 3, 4, 5000


def rows_of(problem):
    return problem.layout.rows


def left(h):
    return float(H - h + 1)


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("constants", ["tight", "published"])
def test_pucb(made, quiet, constants):
    setting = made(seed=4)
    share = 0.05 / 4
    tight = constants == "tight"
    width = np.sqrt(2 * np.log(K * (H * rows_of(setting) if tight else 1) / share))
    stat, priv = 0.05, 0.2
    e = 0.0 if quiet else max(setting.errors[:3])
    release = setting.release(quiet=quiet)
    n = release.estimates["visits"].value
    if not quiet:
        assert (n < 2 * e).any()
        assert (n > 2 * e).any()

    def bonus(h, at, m, v):
        if m.n[at] < 2 * e:
            return np.inf
        g = H - h if tight else H
        psi = (1 + S * g) * (3 * e / m.n[at] + 2 * e**2 / m.n[at] ** 2)
        return stat * (g + 1) * width / np.sqrt(max(m.n[at] - e, 1)) + priv * psi

    learner = PUCB(
        preset="theory", constants=constants, stat_scale=stat, priv_scale=priv, stationary=made.pooled
    )
    expected = reference(setting, release, post="raw", bonus=bonus, cap=left, alpha=0.0)
    check(learner, setting, release, expected)
