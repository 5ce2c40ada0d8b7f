"""From releases to models: families, posts, slacks, error bounds."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from discreet.accounting.noise_distributions.distributions import GaussianSumLaw, LaplaceSumLaw, NoNoise
from discreet.core.layout import Layout
from discreet.learners.estimation.tabular_model import ErrorBounds, PrivateModel, release_rows
from discreet.mechanisms.interfaces import Estimate, Release

NONE = NoNoise()


@dataclass(frozen=True)
class Bounded:
    """A law whose noise never exceeds ``most``, whose row sums never exceed 3 ``most``."""

    most: float
    family: str = "test"
    exact: bool = True

    def std(self):
        return self.most / 2

    def std_bound(self):
        return self.most / 2

    def bound(self, failure, rows=False):
        return self.most * (3.0 if rows else 1.0)


def release(tables, laws=None, users=50, number=3, estimand="sum"):
    laws = laws or {}
    estimates = {k: Estimate(v, laws.get(k, NONE), estimand) for k, v in tables.items()}
    return Release(estimates, users, number, SimpleNamespace())


def counts(layout, slots=None, seed=0, most=30):
    """Exact consistent counts by (state, action)."""
    g = np.random.default_rng(seed)
    shape = (slots or layout.horizon, layout.rows, layout.states)
    n3 = g.integers(0, most, shape) * (g.random(shape) < 0.5)
    n = n3.sum(axis=-1)
    r = n * g.random(n.shape)
    return tuple(layout.from_rows(x.astype(float)) for x in (n, n3, r))


MASK = np.array([[True, True, False], [True, False, False], [False, True, True], [True, True, True]])


@pytest.mark.parametrize("layout", [Layout(4, 3, 2), Layout(4, 3, 2, MASK)])
@pytest.mark.parametrize("slots", [1, 2])
def test_families_give_the_same_rows(layout, slots):
    n, n3, r = counts(layout, slots)
    full = release({"visits": n, "transition_counts": n3, "reward_sums": r})
    rows = release_rows(full, layout)
    np.testing.assert_array_equal(rows[0], layout.to_rows(n))
    np.testing.assert_array_equal(rows[1], layout.to_rows(n3))
    np.testing.assert_array_equal(rows[2], layout.to_rows(r))
    derived = release_rows(release({"transition_counts": n3, "reward_sums": r}), layout)
    for a, b in zip(rows, derived, strict=True):
        np.testing.assert_array_equal(a, b)
    centred = {"visits": n, "transition_counts": n3, "centered_reward_sums": r - n / 2}
    np.testing.assert_allclose(release_rows(release(centred), layout)[2], rows[2], rtol=1e-14, atol=1e-13)
    assert (release_rows(release({"visits": n, "transition_counts": n3}), layout)[2] == 0).all()
    by_rows = {"visits": rows[0], "transition_counts": rows[1], "reward_sums": rows[2]}
    for a, b in zip(rows, release_rows(release(by_rows), layout), strict=True):
        np.testing.assert_array_equal(a, b)


def test_releases_that_do_not_fit_are_refused():
    layout = Layout(3, 2, 4)
    n, n3, r = counts(layout)
    with pytest.raises(ValueError, match="must hold transition_counts"):
        release_rows(release({"visits": n}), layout)
    with pytest.raises(ValueError, match=r"release has 3 steps: must have 1 \(pooled\) or H = 4"):
        release_rows(release({"transition_counts": n3[:3]}), layout)
    with pytest.raises(ValueError, match="release.reward_sums has shape"):
        release_rows(release({"transition_counts": n3, "reward_sums": r[:1]}), layout)
    with pytest.raises(ValueError, match="weighted sum"):
        release_rows(release({"transition_counts": n3}, estimand="weighted"), layout)
    n3[0, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="finite"):
        release_rows(release({"transition_counts": n3}), layout)


def test_exact_model_is_the_empirical_one():
    layout = Layout(4, 3, 2, MASK)
    n, n3, r = counts(layout)
    tables = {"visits": n, "transition_counts": n3, "reward_sums": r}
    for post in ("none", "raw", "lp"):  # nothing to repair where there is no noise
        model = PrivateModel.from_release(release(tables), layout, post)
        assert model.post == "none"
        assert model.reward_slack == model.transition_slack == 0.0
        seen = n > 0
        np.testing.assert_allclose(model.transitions[seen], n3[seen] / n[seen][:, None], rtol=1e-15)
        np.testing.assert_allclose(model.rewards[seen], r[seen] / n[seen], rtol=1e-15)
        np.testing.assert_array_equal(model.denominators[seen], n[seen])
        assert (model.denominators[:, ~MASK] == 0).all()


@pytest.mark.parametrize("post", ["raw", "lp"])
def test_noisy_model_under_the_good_event(post):
    # No sampling error: N3 = N P and R = N r exactly; the slacks alone must cover the noise.
    layout, g = Layout(5, 2, 6), np.random.default_rng(4)
    e1, e2, e3 = 7.0, 11.0, 5.0
    p = g.dirichlet(np.full(5, 0.4), (6, 5, 2))
    reward = g.random((6, 5, 2))
    n = g.integers(0, 400, (6, 5, 2)).astype(float)
    tables = {
        "visits": n + g.uniform(-e1, e1, n.shape),
        "transition_counts": n[..., None] * p + g.uniform(-e3, e3, p.shape),
        "reward_sums": n * reward + g.uniform(-e2, e2, n.shape),
    }
    laws = {"visits": Bounded(e1), "transition_counts": Bounded(e3), "reward_sums": Bounded(e2)}
    model = PrivateModel.from_release(release(tables, laws), layout, post)
    np.testing.assert_array_equal(model.errors, [e1, e2, e3, 0, 0])
    e = 4 * max(e1, e3)
    assert model.reward_slack == (2 * e1 + e2 if post == "raw" else e + e2)
    assert model.transition_slack == (5 * e3 + 2 * e1 if post == "raw" else 4 * e)
    d = model.denominators
    assert (d >= np.maximum(n, 1) - 1e-9).all()  # private counts never underestimate
    assert (model.transitions >= 0).all()
    sums = model.transitions.sum(axis=-1)
    if post == "lp":
        np.testing.assert_allclose(sums, 1.0, rtol=0, atol=1e-12)
        assert (d <= n + e + 1e-9).all()
    else:
        assert (np.abs(sums - 1) > 1e-6).any()
    seen = n >= 1
    off = np.abs(model.transitions - p).sum(axis=-1)
    assert (off <= model.transition_slack / d + 1e-12)[seen].all()
    assert (np.abs(model.rewards - reward) <= model.reward_slack / d + 1e-12)[seen].all()
    assert ((model.rewards >= 0) & (model.rewards <= 1)).all()


def test_error_bounds_by_family_and_mode():
    layout = Layout(5, 2, 6)
    three = {"visits": Bounded(2.0), "transition_counts": Bounded(3.0), "reward_sums": Bounded(5.0)}
    np.testing.assert_array_equal(ErrorBounds().of(three, layout, 100), [2, 5, 3, 0, 0])
    np.testing.assert_array_equal(ErrorBounds(rows=True).of(three, layout, 100), [2, 5, 3, 9, 0])
    derived = {"transition_counts": Bounded(3.0), "centered_reward_sums": Bounded(5.0)}
    np.testing.assert_array_equal(ErrorBounds().of(derived, layout, 100), [9, 9.5, 3, 0, 0])
    known = {"transition_counts": Bounded(3.0)}
    np.testing.assert_array_equal(ErrorBounds().of(known, layout, 100), [9, 0, 3, 0, 0])
    sd = ErrorBounds("sd", z=0.5).of(three, layout, 100)
    np.testing.assert_allclose(sd, [0.5, 1.25, 0.75, 0, 0], rtol=1e-15)
    sd = ErrorBounds("sd", z=2.0, rows=True).of(derived, layout, 100)
    np.testing.assert_allclose(sd, [3 * 5**0.5, 5 + 1.5 * 5**0.5, 3, 3 * 5**0.5, 0], rtol=1e-15)
    silent = dict.fromkeys(three, NONE)
    for mode in ("quantile", "sd", "published"):
        assert not ErrorBounds(mode).of(silent, layout, 100).any()
    with pytest.raises(ValueError, match="must name transition_counts"):
        ErrorBounds().of({"visits": NONE}, layout, 100)
    with pytest.raises(ValueError, match="E_mode"):
        ErrorBounds("std")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="E_z"):
        ErrorBounds("sd", z=0.0)


def test_published_mode_is_the_papers_formula():
    # (3 H / epsilon) sqrt(8 log(K)^3 log(6 S A T / failure)): m = log K terms of scale 3 H log(K) / epsilon.
    layout, users, failure, b, m = Layout(6, 2, 20), 20_000, 0.05, 50.0, 14
    law = LaplaceSumLaw(b, m, m, cells=240, rows=240)
    three = {"visits": law, "reward_sums": law, "transition_counts": LaplaceSumLaw(b, m, m, 1440, 240, 6)}
    errors = ErrorBounds("published", failure).of(three, layout, users)
    sat = 6 * 2 * 20 * users
    assert errors[0] == errors[1] == pytest.approx(b * np.sqrt(8 * m * np.log(6 * sat / failure)))
    assert errors[2] == pytest.approx(b * np.sqrt(8 * m * np.log(6 * 6 * sat / failure)))


def test_quantile_mode_asks_the_law():
    layout = Layout(6, 2, 20)
    law = GaussianSumLaw(3.0, 4, 4, cells=1440, rows=240, row_size=6)
    errors = ErrorBounds(failure=0.03).of({"transition_counts": law}, layout, 10**10)
    assert errors[2] == law.bound(0.01)
    assert errors[0] == law.bound(0.01, rows=True)
    assert errors[0] > errors[2]


def test_unknown_post():
    layout = Layout(2, 2, 2)
    n, n3, _ = counts(layout)
    with pytest.raises(ValueError, match="post = 'LP': must be one of 'none', 'raw', 'lp'"):
        PrivateModel.from_release(release({"visits": n, "transition_counts": n3}), layout, "LP")
