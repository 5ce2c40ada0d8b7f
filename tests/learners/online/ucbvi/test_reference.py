"""Every learner's backward induction against a slow NumPy reference that reads like the papers."""

from dataclasses import replace

import numpy as np
import pytest
from projected import project_rows

from discreet.learners.online.ldp_obi import LDPOBI
from discreet.learners.online.pucb import PUCB
from discreet.learners.online.ucbvi import DPUCBVI, UCBVI, PrivateUCBVI

TIES = np.array([1, 2], np.uint64)
S, A, H, K = 4, 3, 4, 5000


def plan(learner, problem, release):
    state = learner.begin(problem.spec, TIES)
    return learner.plan(state, release)[1]


def reference(problem, release, *, post, bonus, cap, monotone_from=None, policy=None, alpha=1.0):
    """(q (H, S, A), values (H + 1, S)) by the skeleton of the specification, 7.1, pair by pair.

    bonus(h, s, a, model, v) with h from 1; cap(h); policy: evaluate it instead of maximising.
    """
    e1, e2, e3, e_row = problem.errors if release.number else (0, 0, 0, 0)
    value = {name: e.value for name, e in release.estimates.items()}
    if all(e.law.std() == 0 for e in release.estimates.values()):
        e1 = e2 = e3 = e_row = 0.0
        post = "none"
    allowed = np.ones((S, A), bool) if problem.layout.mask is None else problem.layout.mask
    q, v = np.full((H, S, A), np.nan), np.zeros((H + 1, S))
    slots = value["visits"].shape[0]
    model = Model(problem, value, post, (e1, e2, e3, e_row), alpha)
    lift = alpha * e1 if post == "raw" else 0.0
    for h in range(H, 0, -1):
        for s in range(S):
            for a in range(A):
                if not allowed[s, a]:
                    continue
                t = h - 1 if slots > 1 else 0
                unseen = model.n[t, s, a] + lift < 1
                if (post == "none" or (post == "raw" and alpha > 0)) and unseen:
                    q[h - 1, s, a] = cap(h)
                else:
                    b = bonus(h, (t, s, a), model, v)
                    p = model.p[t, s, a]
                    q[h - 1, s, a] = np.clip(model.r[t, s, a] + p @ v[h] + b, 0, cap(h))
                if monotone_from is not None:
                    q[h - 1, s, a] = min(q[h - 1, s, a], monotone_from[h - 1, s, a])
            row = q[h - 1, s, allowed[s]]
            v[h - 1, s] = row.max() if policy is None else row @ policy[h - 1, s, allowed[s]]
    return q, v


class Model:
    """Denominators, P~, r~, per (t, s, a)."""

    def __init__(self, problem, value, post, errors, alpha):
        self.n, n3, rewards = value["visits"], value["transition_counts"], value["reward_sums"]
        self.e1, self.e2, self.e3, self.e_row = errors
        self.e = 4 * max(self.e1, self.e3)
        self.post, self.n3 = post, n3
        slots = self.n.shape[0]
        if post == "none":
            self.d, mass = np.maximum(1, self.n), n3
        elif post == "raw":
            self.d, mass = np.maximum(1, self.n + alpha * self.e1), np.maximum(n3, 0)
        else:
            x, _ = project_rows(n3.reshape(-1, S), self.n.ravel(), self.e / 4)
            mass = x.reshape(slots, S, A, S) + self.e / (2 * S)
            self.d = x.reshape(slots, S, A, S).sum(axis=-1) + self.e / 2
        self.mass = mass
        self.p = mass / self.d[..., None]
        self.r = np.clip(rewards / self.d, 0, 1)
        self.lambda_r = {"none": 0, "raw": 2 * self.e1 + self.e2, "lp": self.e + self.e2}[post]
        self.lambda_p = {"none": 0, "raw": S * self.e3 + 2 * self.e1, "lp": (S + 3) * self.e / 2}[post]
        mask = problem.layout.mask
        pairs = np.ones((S, A), bool) if mask is None else mask
        self.count = self.n if post == "none" else self.d
        self.states = (np.maximum(self.count, 0) * pairs).sum(axis=-1)  # N_h(s)


def rows_of(problem):
    return problem.layout.rows


def check(learner, problem, release, expected):
    state = plan(learner, problem, release)
    q, v = expected
    allowed = np.ones((S, A), bool) if problem.layout.mask is None else problem.layout.mask
    got = problem.layout.from_rows(state.q)
    np.testing.assert_allclose(got[:, allowed], q[:, allowed], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.values, v, rtol=1e-12, atol=1e-12)


def left(h):
    return float(H - h + 1)


FAMILIES = {"derive_visits": False, "center_rewards": False}


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("post", ["raw", "lp"])
@pytest.mark.parametrize("constants", ["tight", "published"])
def test_hoeffding(made, quiet, post, constants):
    setting = made(seed=1)
    log = np.log
    sat = rows_of(setting) * K * H
    if constants == "tight":
        width = max(1, np.sqrt(log(2 * sat / 0.05) / 2))
    else:
        width = np.sqrt(2 * log(4 * sat / 0.05))
    stat, priv, scale = 0.02, 0.3, 0.9

    def bonus(h, at, m, v):
        g = H - h if constants == "tight" else H
        d = m.d[at]
        return scale * (
            stat * width / np.sqrt(d)
            + priv * m.lambda_r / d
            + g * (stat * width / np.sqrt(d) + priv * m.lambda_p / d)
        )

    learner = PrivateUCBVI(
        preset="theory", post=post, constants=constants, stat_scale=stat, priv_scale=priv, bonus_scale=scale,
        stationary=made.pooled,
    )  # fmt: skip
    release = setting.release(quiet=quiet)
    check(learner, setting, release, reference(setting, release, post=post, bonus=bonus, cap=left))
    if quiet:
        plain = UCBVI(
            preset="theory", constants=constants, stat_scale=stat, bonus_scale=scale, stationary=made.pooled
        )
        check(plain, setting, release, reference(setting, release, post="none", bonus=bonus, cap=left))


@pytest.mark.parametrize("quiet", [True, False])
@pytest.mark.parametrize("post", ["lp", "raw"])
def test_bernstein(made, quiet, post):
    setting = made(seed=2, most=1e6, errors=(0.4, 0.5, 0.3, 0.6))
    pairs = rows_of(setting)
    iota = np.log(30 * (1 if made.pooled else H) * pairs * K * H / 0.05)
    c, priv, corr, floor, stat, scale = 20.0, 0.01, 0.3, 0.02, 0.2, 0.8

    def bonus(h, at, m, v):
        p, d = m.p[at], m.d[at]
        error = max(m.e, m.e2)
        second = np.sqrt(max(0.0, p @ (v[h] - p @ v[h]) ** 2) * iota / d)
        third = 20 * H * S * max(priv * error, stat * floor) * iota / d
        fourth = 0.0
        if h < H:
            n = m.states[0 if made.pooled else h]
            limit = np.full(S, float(H**2))
            some = n > 0
            limit[some] = np.minimum(
                limit[some],
                c**2 * H**3 * pairs * iota**2 / n[some]
                + c**2 * H**4 * S**2 * pairs**2 * error**2 * iota**4 / n[some] ** 2
                + c**2 * H**6 * S**2 * pairs**2 * iota**4 / n[some] ** 2,
            )
            fourth = 4 * np.sqrt(iota) * np.sqrt(p @ limit / d)
        else:
            second = 0.0
        return scale * (stat * (2 * second + np.sqrt(2 * iota / d)) + third + corr * fourth)

    options = {
        "preset": "paper", "corr_const": c, "corr_scale": corr, "floor_scale": floor, "stat_scale": stat,
        "bonus_scale": scale, "stationary": made.pooled,
    }  # fmt: skip
    release = setting.release(quiet=quiet)
    top = np.full((H, S, A), float(H))
    expected = reference(setting, release, post=post, bonus=bonus, cap=lambda h: float(H), monotone_from=top)
    check(DPUCBVI(**options, priv_scale=priv, post=post), setting, release, expected)
    if quiet:
        plain = UCBVI(**{**options, "preset": "theory"}, bonus="bernstein", cap="H")
        check(plain, setting, release, expected)


@pytest.mark.parametrize("bonus_name", ["hoeffding", "bernstein"])
def test_azar(made, bonus_name):
    setting = made(seed=3, most=1e5)
    pairs = rows_of(setting)
    log = np.log(5 * (1 if made.pooled else H) * pairs * K * H / 0.05)
    scale = 0.05

    def bonus(h, at, m, v):
        n, p = m.n[at], m.p[at]
        reward = np.sqrt(log / (2 * n))
        if bonus_name == "hoeffding":
            return scale * (7 * H * log / np.sqrt(n) + reward)
        lower = 14 * H * log / (3 * n)
        if h == H:
            return scale * (lower + reward)
        seen = m.states[0 if made.pooled else h]
        limit = np.full(S, float(H**2))
        limit[seen > 0] = np.minimum(H**2, 100**2 * H**3 * S * pairs * log**2 / seen[seen > 0])
        variance = p @ (v[h] - p @ v[h]) ** 2
        return scale * (np.sqrt(8 * log * variance / n) + lower + np.sqrt(8 * (p @ limit) / n) + reward)

    learner = UCBVI(bonus=bonus_name, preset="paper", bonus_scale=scale, stationary=made.pooled)
    release = setting.release(quiet=True)
    top = np.full((H, S, A), float(H))
    expected = reference(
        setting, release, post="none", bonus=bonus, cap=lambda h: float(H), monotone_from=top
    )
    check(learner, setting, release, expected)


@pytest.mark.parametrize("cap", ["H-h+1", "H"])
@pytest.mark.parametrize("mode", ["raw", "lp", "quiet"])
def test_cost_form_is_the_papers_recursion_on_costs(made, mode, cap):
    """Q_c = min(cap, max(0, c~ + P~ V_c - b)), greedy by argmin; V_c = (H - h + 1) - V_r (section 8)."""
    setting = made(seed=8)
    release = setting.release(quiet=mode == "quiet")
    post = "none" if mode == "quiet" else mode
    errors = (0.0, 0.0, 0.0, 0.0) if mode == "quiet" else setting.errors
    value = {name: e.value for name, e in release.estimates.items()}
    model = Model(setting, value, post, errors, 1.0)
    allowed = np.ones((S, A), bool) if setting.layout.mask is None else setting.layout.mask
    stat, priv, given = 1.0, 0.05, 0.1
    if mode == "raw":
        cost = np.clip((model.n - value["reward_sums"]) / model.d, 0, 1)
    else:
        cost = 1 - model.r
    v = np.zeros((H + 1, S))
    q = np.zeros((H, S, A))
    slots = cost.shape[0]
    for h in range(H, 0, -1):
        t = h - 1 if slots > 1 else 0
        d = model.d[t]
        b = stat * given / np.sqrt(d) + priv * model.lambda_r / d
        b = b + (H - h) * (stat * given / np.sqrt(d) + priv * model.lambda_p / d)
        q[h - 1] = np.clip(cost[t] + model.p[t] @ v[h] - b, 0, left(h) if cap == "H-h+1" else H)
        if mode != "lp":
            q[h - 1][model.n[t] + errors[0] < 1] = 0.0  # never seen: no cost
        v[h - 1] = np.where(allowed, q[h - 1], np.inf).min(axis=1)
    options = {
        "preset": "default", **FAMILIES, "stat_const": given, "priv_scale": priv, "E_mode": "quantile",
        "post": "lp" if mode == "quiet" else mode, "cap": cap, "stationary": made.pooled,
        "tie_break": "first",
    }  # fmt: skip
    state = plan(PrivateUCBVI(**options, form="cost"), setting, release)
    got = setting.layout.from_rows(state.q)
    expected = np.arange(H, 0, -1)[:, None, None] - q
    np.testing.assert_allclose(got[:, allowed], expected[:, allowed], rtol=1e-12, atol=1e-12)
    # The same policy, also in the reward form but for raw counts.
    masked = np.where(allowed, q, np.inf)
    best = masked.min(axis=-1, keepdims=True)
    chosen = learner_policy(PrivateUCBVI(**options, form="cost"), setting, release)
    picked = np.take_along_axis(masked, chosen[..., None], axis=-1)
    assert (picked <= best + 1e-9).all()
    if mode != "raw" and cap == "H-h+1":
        reward_form = learner_policy(PrivateUCBVI(**options, form="reward"), setting, release)
        np.testing.assert_array_equal(reward_form, chosen)


def learner_policy(learner, problem, release):
    return learner.plan(learner.begin(problem.spec, TIES), release)[0].policy


def test_optimistic_missing_mass(problem):
    setting = problem(seed=9)
    release = setting.release()

    def bonus(h, at, m, v):
        return 0.1 / np.sqrt(m.d[at]) * (1 + H - h) + max(0.0, 1 - m.p[at].sum()) * (H - h)

    learner = PrivateUCBVI(
        **FAMILIES, stat_const=0.1, priv_scale=0.0, E_mode="quantile", post="raw", missing_mass="optimistic"
    )
    check(learner, setting, release, reference(setting, release, post="raw", bonus=bonus, cap=left))


def test_no_cap_and_unclipped_counts(problem):
    setting = problem(seed=10, most=30.0)
    release = setting.release()
    value = {name: e.value for name, e in release.estimates.items()}
    assert (value["transition_counts"] < 0).any()
    learner = PrivateUCBVI(
        **FAMILIES, stat_const=0.5, priv_scale=0.1, E_mode="quantile", post="raw", cap="none",
        clip_negative=False,
    )  # fmt: skip
    state = plan(learner, setting, release)
    m = Model(setting, value, "raw", setting.errors, 1.0)
    p = value["transition_counts"] / m.d[..., None]
    v = np.zeros((H + 1, S))
    for h in range(H, 0, -1):
        d = m.d[h - 1]
        b = 0.5 / np.sqrt(d) + 0.1 * m.lambda_r / d + (H - h) * (0.5 / np.sqrt(d) + 0.1 * m.lambda_p / d)
        q = m.r[h - 1] + p[h - 1] @ v[h] + b
        q = np.where(m.n[h - 1] + m.e1 < 1, left(h), q)
        np.testing.assert_allclose(setting.layout.from_rows(state.q)[h - 1], q, rtol=1e-12, atol=1e-12)
        v[h - 1] = q.max(axis=1)


def test_known_rewards(problem):
    setting = problem(seed=11)
    spec = replace(setting.spec, known_rewards=setting.rewards)
    release = setting.release(quiet=True)
    learner = UCBVI(known_rewards=True, center_rewards=False, stat_const=0.1, derive_visits=False)
    assert learner.query(spec).known_rewards
    del release.estimates["reward_sums"]
    state = learner.plan(learner.begin(spec, TIES), release)[1]
    v = np.zeros((H + 1, S))
    n = setting.visits
    for h in range(H, 0, -1):
        d = np.maximum(1, n[h - 1])
        q = setting.rewards[h - 1] + setting.transitions[h - 1] @ v[h] + (H - h) * 0.1 / np.sqrt(d)
        q = np.where(n[h - 1] > 0, np.clip(q, 0, left(h)), left(h))
        np.testing.assert_allclose(setting.layout.from_rows(state.q)[h - 1], q, rtol=1e-12, atol=1e-12)
        v[h - 1] = q.max(axis=1)


def test_bernstein_terms(problem):
    """Section 10, test 21: the bonus is at least each term, falls with N, and has no correction at h = H."""
    setting = problem(seed=12, most=1e6, errors=(0.4, 0.5, 0.3, 0.6))
    release = setting.release()
    free = {"preset": "paper", "monotone": False, "cap": "none"}

    def q(**options):
        return plan(DPUCBVI(**free, **options), setting, release).q

    parts = {"corr_scale": 0.0, "stat_scale": 0.0, "priv_scale": 0.0, "floor_scale": 0.0}
    whole = q()
    for on in ({"corr_scale": 1.0}, {"stat_scale": 1.0}, {"priv_scale": 1.0}):
        assert (whole >= q(**{**parts, **on}) - 1e-9).all()
    np.testing.assert_array_equal(whole[-1], q(corr_scale=0.0)[-1])
    assert (whole[:-1] > q(corr_scale=0.0)[:-1]).all()
    # At fixed rates, ten times the visits: a smaller Q everywhere.
    more = setting.release(quiet=True)
    few = plan(UCBVI(bonus="bernstein", preset="theory", monotone=False, cap="none"), setting, more).q
    for estimate in more.estimates.values():
        object.__setattr__(estimate, "value", 10 * estimate.value)
    many = plan(UCBVI(bonus="bernstein", preset="theory", monotone=False, cap="none"), setting, more).q
    seen = setting.layout.to_rows(setting.visits) > 0
    assert (many[seen] < few[seen]).all()


def test_first_release_is_finite_and_at_the_cap(made):
    setting = made(seed=13)
    release = setting.release(number=0, users=0, quiet=True)
    for estimate in release.estimates.values():
        object.__setattr__(estimate, "value", np.zeros_like(estimate.value))
    levels = np.arange(H, 0, -1.0)[:, None]
    for learner in (
        UCBVI(), UCBVI(bonus="bernstein"), PrivateUCBVI(), DPUCBVI(), DPUCBVI(preset="theory"), PUCB(),
        LDPOBI(), PrivateUCBVI(preset="theory", post="raw", cap="none"),
    ):  # fmt: skip
        state = plan(replace(learner, stationary=made.pooled), setting, release)
        np.testing.assert_array_equal(state.q, np.broadcast_to(levels, state.q.shape))
