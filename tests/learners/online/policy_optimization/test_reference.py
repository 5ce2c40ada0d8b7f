"""Policy optimization against the paper's recursion in plain NumPy."""

import numpy as np
import pytest

from discreet.learners.online.policy_optimization import OPPO, PrivateUCBPO

from ..ucbvi.test_reference import reference

TIES = np.array([1, 2], np.uint64)


S, A, H, K = 4, 3, 4, 5000


def rows_of(problem):
    return problem.layout.rows


def left(h):
    return float(H - h + 1)


@pytest.mark.parametrize(
    ("constants", "post", "quiet"),
    [
        ("tight", "raw", False), ("tight", "lp", False), ("tight", "lp", True),
        ("published", "raw", False), ("published", "lp", False), ("published", "raw", True),
        ("efroni", "none", True),
    ],
)  # fmt: skip
def test_policy_optimization(made, constants, post, quiet):
    setting = made(seed=6)
    layout = setting.layout
    sat = rows_of(setting) * K * H
    outer, inner = {
        "tight": (max(1, np.sqrt(np.log(2 * sat / 0.05) / 2)), np.sqrt(2 * S * np.log(2 * sat / 0.05))),
        "published": (np.sqrt(2 * np.log(4 * sat / 0.05)), np.sqrt(4 * S * np.log(6 * sat / 0.05))),
        "efroni": (np.sqrt(2 * np.log(12 * sat / 0.05)), np.sqrt(4 * S * np.log(18 * sat / 0.05))),
    }[constants]
    stat, priv, eta = 0.01, 0.1, 0.02

    def bonus(h, at, m, v):
        g, d = (H - h if constants == "tight" else H), m.d[at]
        first = stat * outer / np.sqrt(d) + priv * m.lambda_r / d
        return first + g * (stat * inner / np.sqrt(d) + priv * m.lambda_p / d)

    options = {"preset": "theory", "constants": constants, "stat_scale": stat, "eta": eta}
    if constants == "efroni":
        learner = OPPO(**options, stationary=made.pooled)
    else:
        learner = PrivateUCBPO(**options, priv_scale=priv, post=post, stationary=made.pooled)
    allowed = np.ones((S, A), bool) if layout.mask is None else layout.mask
    logits = np.where(allowed, 0.0, -np.inf)[None].repeat(H, 0)
    state, before = learner.begin(setting.spec, TIES), 0
    q = np.zeros((H, S, A))
    for number, users in enumerate((0, 1, 2, 7)):  # the last release is read by five people at once
        release = setting.release(number=number, users=users, quiet=quiet or number == 0)
        if number == 0:
            zeros = {k: np.zeros_like(e.value) for k, e in release.estimates.items()}
            for name, estimate in release.estimates.items():
                object.__setattr__(estimate, "value", zeros[name])
        logits = logits + eta * (users - before) * np.nan_to_num(q)
        before = users
        policy = np.exp(logits - logits.max(axis=-1, keepdims=True))
        policy /= policy.sum(axis=-1, keepdims=True)
        plan_, state = learner.plan(state, release)
        np.testing.assert_allclose(plan_.policy, policy, rtol=1e-12, atol=1e-13)
        q, v = reference(setting, release, post=post, bonus=bonus, cap=left, policy=policy)
        got = layout.from_rows(state.q)
        np.testing.assert_allclose(got[:, allowed], q[:, allowed], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(state.values, v, rtol=1e-12, atol=1e-12)
