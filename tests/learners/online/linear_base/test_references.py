"""UCRL-VTR, UCRL-VTR+ and LSVI-UCB against slow references written from the specification, noise off and on.

Specification linear-and-offline, section 12, tests 9 to 11, 13, 15 and 22. A reference takes sums (its own,
user by user from trajectories; or those of a noisy release, with scales counted by hand) and plans in loops
over states and actions; it shares nothing with the learners.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tables_as_linear import as_mixture

import discreet as dr
from discreet import envs
from discreet.accounting.budget import gdp_mu
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectory
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.linear_mixture import LinearMixtureMDP
from discreet.envs.rollouts.rollout import rollout, rollout_batch
from discreet.experiments.simulate import Setup, simulate
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus
from discreet.mechanisms.features import MixtureFeatures
from discreet.mechanisms.interfaces import Plan, ProblemSpec, Schedule
from discreet.mechanisms.seeded_rng import SeededRng

DELTA = 1e-5
MIX = {"states": 5, "actions": 3, "horizon": 4, "models": 3}


@pytest.fixture(scope="module")
def mixture():
    return envs.linear_mixture(**MIX, seed=3)


@pytest.fixture(scope="module")
def linear():
    return envs.random_linear(states=4, actions=2, horizon=3, dimension=3, seed=1, rewards="bernoulli")


def run(learner, mdp, users, privatizer, seed=0):
    """Of every batch: the plan, the state after it, its release, its people, the answers (step, V, u)."""
    setup, randomness = Setup(mdp, learner, privatizer, users), Seeded(seed, 0)
    session, state = setup.start(randomness), learner.begin(setup.spec, randomness.keys.ties)
    found, came = [], 0
    while came < users:
        release, asked = session.release(), []

        def ask(question, asked=asked):
            estimate = session.answer(question)
            asked.append((question.step, question.values.copy(), estimate.value.copy(), estimate.law))
            return estimate

        plan, state = learner.plan(state, release, ask)
        encoder, people = session.begin(plan), []
        for _ in range(plan.users):
            life = rollout(mdp, plan.policy, randomness.keys.environment, came)
            session.submit(encoder(life, plan, SeededRng(randomness.keys.noise, came)))
            people.append(life)
            came += 1
        found.append(SimpleNamespace(plan=plan, state=state, release=release, people=people, asked=asked))
    found[0].scales, found[0].releases = session.mechanism.scales, release.number
    session.close()
    return found


def same_plan(step, q):
    """The learner's Q is the reference's, and its policy the first largest entry of it."""
    mine = step.state.q.reshape(q.shape)
    np.testing.assert_allclose(mine, q, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(step.plan.policy, mine.argmax(axis=-1))


# --------------------------------------------------- UCRL-VTR and VTR+, sections 1.4, 1.5, 3 to 5
class Mixture:
    """Both learners in loops.

    o : targets, horizon (clip at H), ridge, scale, p, plus, floor, cap, printed.
    """

    def __init__(self, mdp, **o):
        self.o = SimpleNamespace(**{"plus": False, "horizon": False, "ridge": None, "printed": False} | o)
        self.f, self.phi, self.r = mdp.features, np.array(mdp.features.table), mdp.rewards
        self.H, self.S, self.A = mdp.rewards.shape
        self.d = self.phi.shape[-1]
        self.b = [float(self.H if self.o.horizon else self.H - h) for h in range(self.H + 1)]
        unit = 1.0 if self.o.targets == "span" else self.b[1] ** 2
        self.floor, self.cap = self.o.floor * unit, self.o.cap * unit
        n, d = self.H - 1, self.d
        self.gram, self.u = np.zeros((n, d, d)), np.zeros((n, d))
        self.gram2, self.u2 = np.zeros((n, d, d)), np.zeros((n, d))
        self.users, self.std = 0, None  # std: of one cell, (4, H - 1)

    def centre(self, h, v):
        b = self.b[h + 1]
        return {"raw": (0, 1), "centred": (b / 2, 1), "span": ((v.max() + v.min()) / 2, np.ptp(v))}[
            self.o.targets
        ]

    def contract(self, h):
        """Bound of ||X||, range of y, of both pairs; rho = sup |V-bar|."""
        b, o = self.b[h + 1], self.o
        half = self.f.bound if o.targets == "raw" else self.f.signed_bound / 2
        size = 1.0 if o.targets == "span" else b
        x, y, rho = half * size, size, size if o.targets == "raw" else size / 2
        q = {"raw": b * b, "centred": b * b / 4, "span": 0.25}[o.targets]
        if o.plus:
            x, y = x / math.sqrt(self.floor), y / math.sqrt(self.floor)
        return (x, y), (q * self.f.bound, q), rho

    def solve(self, h, second, J, K):
        """w, Lambda^-1, beta, beta-check."""
        o, c_w, d = self.o, self.f.weight_bound, self.d
        gram, u = (self.gram2[h], self.u2[h]) if second else (self.gram[h], self.u[h])
        x, y = self.contract(h)[second]
        events = 3 if o.plus else 1
        lam = x * x
        if o.printed:
            lam = 1.0 if o.plus else (self.H * self.f.bound) ** 2
        if self.std is None:
            L = low = lam
            width, p1 = c_w * math.sqrt(lam), o.p / (events * self.H)
        else:
            sg, su = self.std[2 * second][h], self.std[2 * second + 1][h]
            p1 = o.p / (events * self.H * 3 * J)
            tail = sg * (2 * math.sqrt(d) + 2 * math.sqrt(math.log(2 / (p1 / 2))))
            L = lam + (2 * tail if o.ridge == "bound" else o.ridge * 2 * sg * math.sqrt(d))
            low = max(lam, L - tail)
            width = c_w * math.sqrt(L + 2 * sg * math.sqrt(math.log(2 / p1)))
            width += su * (math.sqrt(d) + math.sqrt(2 * math.log(1 / p1))) / math.sqrt(low)
        full = (gram + gram.T) / 2 + L * np.eye(d)
        e, q = np.linalg.eigh(full)
        e = np.maximum(e, lam)
        inverse = q @ np.diag(1 / e) @ q.T
        if o.printed:
            k = self.users + 1
            log = math.log((24 * k * k) * self.H / o.p)
            if not o.plus:
                hoeffding = math.sqrt(
                    2 * self.H**2 * (math.log(3 * self.H / o.p) + d / 2 * math.log(1 + K * self.H))
                )
                return inverse @ u, inverse, width + hoeffding, None
            if second:
                h4 = self.H**4
                beta = 8 * math.sqrt(d * h4 * math.log(1 + K * h4 / d) * log) + 4 * self.H**2 * log
                return inverse @ u, inverse, width + beta, None
            check = 8 * d * math.sqrt(math.log(1 + K) * log) + 4 * math.sqrt(d) * log
            beta = 8 * math.sqrt(d * math.log(1 + K) * log) + 4 * math.sqrt(d) * log
            return inverse @ u, inverse, width + beta, width + check
        growth = d * math.log(1 + self.users * x * x / (d * low))
        ratio = max(0.0, min(np.log(e).sum() - d * math.log(low), growth))
        beta = check = y / 2 * math.sqrt(2 * math.log(1 / p1) + ratio)
        if o.plus and not second:
            log = math.log(4 * max(1, self.users) ** 2 / p1)
            sigma = max(1.0, y * math.sqrt(self.floor) / 2 / math.sqrt(self.cap))
            beta = min(beta, 8 * sigma * math.sqrt(growth * log) + 4 * y * log)
        return inverse @ u, inverse, width + beta, width + check

    def plan(self, J=1, K=1):
        v, q = np.zeros((self.H + 1, self.S)), np.zeros((self.H, self.S, self.A))
        self.weights = np.ones((self.H - 1, self.S, self.A))
        for h in reversed(range(self.H)):
            if h < self.H - 1:
                c, m = self.centre(h, v[h + 1])
                one = self.solve(h, 0, J, K)
                two = self.solve(h, 1, J, K) if self.o.plus else None
            for s in range(self.S):
                for a in range(self.A):
                    q[h, s, a] = self.r[h, s, a]
                    if h < self.H - 1:
                        x = sum(self.phi[s, a, t] * (v[h + 1, t] - c) for t in range(self.S))
                        w, inverse, beta, _ = one
                        q[h, s, a] += c + x @ w + self.o.scale * beta * math.sqrt(x @ inverse @ x)
                        if two is not None:
                            bar = (v[h + 1] - c) / m
                            self.weights[h, s, a] = 1 / self.variance(h, s, a, bar, one, two)
            q[h] = np.clip(q[h], 0, self.b[h])
            v[h] = q[h].max(axis=1)
        return q, v

    def variance(self, h, s, a, bar, one, two):
        rho = self.contract(h)[2]
        low = 0.0 if self.o.targets == "raw" else -rho
        x1 = sum(self.phi[s, a, t] * bar[t] for t in range(self.S))
        x2 = sum(self.phi[s, a, t] * bar[t] ** 2 for t in range(self.S))
        var = np.clip(x2 @ two[0], 0, rho**2) - np.clip(x1 @ one[0], low, rho) ** 2
        var += min(rho**2, 2 * rho * self.o.scale * one[3] * math.sqrt(x1 @ one[1] @ x1))
        var += min(rho**2, self.o.scale * two[2] * math.sqrt(x2 @ two[1] @ x2))
        return min(max(var, self.floor), self.cap)

    def add(self, v, life):
        """One user's summand: h = 1 .. H - 1 of the paper."""
        self.users += 1
        for h in range(self.H - 1):
            c, m = self.centre(h, v[h + 1])
            if m <= 1e-9 * self.b[h + 1]:
                continue
            s, a, to = life.states[h], life.actions[h], life.states[h + 1]
            bar = (v[h + 1] - c) / m
            x, y = bar @ self.phi[s, a], bar[to]
            self.gram[h] += self.weights[h, s, a] * np.outer(x, x)
            self.u[h] += self.weights[h, s, a] * x * y
            x = bar**2 @ self.phi[s, a]
            self.gram2[h] += np.outer(x, x)
            self.u2[h] += x * bar[to] ** 2

    def take(self, release, std):
        """The noisy sums of a release instead of one's own."""
        value = {name: np.array(one.value) for name, one in release.estimates.items()}
        self.gram, self.u, self.users = value["gram"], value["response"], release.users
        if self.o.plus:
            self.gram2, self.u2 = value["second_gram"], value["second_response"]
        self.std = std


@pytest.mark.parametrize("targets", ["raw", "centred", "span"])
@pytest.mark.parametrize("when", [{"replan_every": 1}, {"replan_every": 9}, {"replan_growth": 1.4}])
@pytest.mark.parametrize("floor", [1 / 3, 0.01])
def test_noise_off_vtr_plus_is_the_plain_algorithm(mixture, targets, when, floor):
    learner = UCRLVTRPlus(targets=targets, bonus_scale=0.02, tie_break="first", var_floor=floor, **when)
    plain = Mixture(mixture, targets=targets, plus=True, scale=0.02, p=0.05, floor=floor, cap=1.0)
    adaptive = False
    for step in run(learner, mixture, 24, dr.NoPrivacy()):
        q, v = plain.plan()
        same_plan(step, q)
        np.testing.assert_allclose(step.plan.context["weights"], plain.weights, rtol=1e-9)
        adaptive |= len(np.unique(plain.weights)) > 5
        for life in step.people:
            plain.add(v, life)
    assert adaptive or floor == 1 / 3  # not every weight is at the floor or the cap


@pytest.mark.parametrize("cap", [3.0, 0.3, 0.1])
def test_a_cap_below_the_largest_variance_widens_the_bonus(mixture, cap):
    learner = UCRLVTRPlus(bonus_scale=0.02, var_floor=0.05, var_max=cap, tie_break="first", replan_every=9)
    plain = Mixture(mixture, targets="span", plus=True, scale=0.02, p=0.05, floor=0.05, cap=cap)
    for step in run(learner, mixture, 36, dr.NoPrivacy()):
        q, v = plain.plan()
        same_plan(step, q)
        for life in step.people:
            plain.add(v, life)


@pytest.mark.parametrize("plus", [False, True])
def test_noise_off_the_printed_constants_are_those_of_the_papers(mixture, plus):
    """Raw targets, clip at H, lambda = H^2 (1 for VTR+), a plan for everybody; the bonus does not clip."""
    learner = (UCRLVTRPlus if plus else UCRLVTR)(preset="paper", bonus_scale=0.002)
    plain = Mixture(
        mixture, targets="raw", horizon=True, plus=plus, scale=0.002, p=0.05, floor=1 / 3, cap=math.inf,
        printed=True,
    )  # fmt: skip
    inside = 0
    for step in run(learner, mixture, 30, dr.NoPrivacy()):
        q, v = plain.plan(K=30)
        same_plan(step, q)
        inside += int((q < MIX["horizon"]).sum())
        if plus:
            np.testing.assert_allclose(step.plan.context["weights"], plain.weights, rtol=1e-9)
        for life in step.people:
            plain.add(v, life)
    assert inside > 100


PRIVATE = [
    pytest.param(dr.Central(epsilon=10.0, delta=DELTA, release="batches"), id="central"),
    pytest.param(dr.Local(epsilon=10.0, delta=DELTA), id="local"),
]


@pytest.mark.parametrize("privatizer", PRIVATE)
@pytest.mark.parametrize("targets", ["raw", "centred", "span"])
@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("ridge", [0.5, "bound"])
def test_given_noisy_releases_it_is_the_plain_algorithm(mixture, privatizer, targets, plus, ridge):
    """Own sums: release j has j noises; local: a noise for each user. Scales, ridge, floor, width by hand."""
    more = {"var_floor": 0.2} if plus else {}
    learner = (UCRLVTRPlus if plus else UCRLVTR)(
        targets=targets, bonus_scale=0.03, ridge=ridge, tie_break="first", tie_batches=1, **more
    )
    plain = Mixture(mixture, targets=targets, plus=plus, scale=0.03, p=0.05, floor=0.2, cap=1.0, ridge=ridge)
    steps = run(learner, mixture, 150, privatizer)
    scales, J = steps[0].scales, steps[0].releases
    assert J == 12
    names = ("gram", "response", "second_gram", "second_response")[: 4 if plus else 2]
    floored = 0
    for j, step in enumerate(steps):
        terms = j if isinstance(privatizer, dr.Central) else step.release.users
        std = [scales[name] * math.sqrt(terms) for name in names]
        plain.take(step.release, std if j else None)
        q, v = plain.plan(J)
        same_plan(step, q)
        np.testing.assert_allclose(step.plan.context["values"], v, rtol=1e-10, atol=1e-10)
        if plus:
            np.testing.assert_allclose(step.plan.context["weights"], plain.weights, rtol=1e-8)
        floored += step.state.fit.first.floored
    if ridge == "bound":
        assert floored == 0


@pytest.mark.parametrize("learner", [UCRLVTR, UCRLVTRPlus])
@pytest.mark.parametrize("targets", ["raw", "span"])
def test_equal_noise_vanishes_with_the_budget(mixture, learner, targets):
    """Test 9: rho to infinity is no privacy, whatever adds the noise (greedy: widths unite other events)."""
    plain = learner(targets=targets, bonus_scale=0.0, tie_break="first")
    exact = [step.state.values for step in run(plain, mixture, 60, dr.NoPrivacy())]
    for privatizer in (
        *(dr.Central(rho=1e16, release=way) for way in ("batches", "tree", "square-root")),
        dr.Central(epsilon=1e9),
        dr.Local(rho=1e16),
    ):
        quiet = [step.state.values for step in run(plain, mixture, 60, privatizer)]
        np.testing.assert_allclose(quiet, exact, atol=1e-4)


def test_small_ridges_are_floored_in_that_test(mixture):
    """That the repair is compared too: with no ridge at all the floor acts."""
    privatizer = dr.Central(epsilon=3.0, delta=DELTA, release="batches")
    learner = UCRLVTR(ridge=0.0, bonus_scale=0.03, tie_break="first", tie_batches=1)
    plain = Mixture(mixture, targets="span", scale=0.03, p=0.05, floor=1, cap=1.0, ridge=0.0)
    steps, floored = run(learner, mixture, 500, privatizer), 0
    for j, step in enumerate(steps):
        plain.take(
            step.release, [steps[0].scales[n] * math.sqrt(j) for n in ("gram", "response")] if j else None
        )
        same_plan(step, plain.plan(15)[0])
        floored += step.state.fit.first.floored
    assert floored > 10


def test_the_shares_of_steps_follow_the_power_rule(mixture):
    """Section 1.2: s_h ~ b_{h+1}^{4/3} (raw, centred), flat (span); LSVI: shares ~ b_h^{2/3}."""
    H = MIX["horizon"]
    b = np.array([H - 1 - h for h in range(H - 1)], float)
    for targets, shape in (("raw", b ** (4 / 3)), ("centred", b ** (4 / 3)), ("span", np.ones(H - 1))):
        setup = Setup(mixture, UCRLVTR(targets=targets), dr.Central(rho=1.0, release="batches"), 500)
        scales = setup.start(Seeded(0)).mechanism.scales["gram"]
        np.testing.assert_allclose(scales / scales[0], shape / shape[0], rtol=1e-12)
    # span, F+- = 1, H - 1 steps, own sums: mu^2 = (H - 1) / (4 s^2)
    mu = math.sqrt(2.0)
    np.testing.assert_allclose(scales, math.sqrt(H - 1) / (2 * mu), rtol=1e-12)
    world = envs.random_linear(seed=0)
    query = LSVIUCB().query(Setup(world, LSVIUCB(), dr.NoPrivacy(), 10).spec)
    shares = np.array([unit.share for unit in query.units("goe")])
    expected = np.array([world.horizon - h for h in range(world.horizon)]) ** (2 / 3)
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=1e-12)


# ---------------------------------------------------------------------------- LSVI-UCB, sections 3 and 6
def inverted(gram, level, floor):
    e, q = np.linalg.eigh((gram + gram.T) / 2 + level * np.eye(len(gram)))
    return q @ np.diag(1 / np.maximum(e, floor)) @ q.T


def jin(mdp, gram, level, respond, beta, centre=lambda v: 0.0):
    """Q (H, S, A): respond(h, V) is the sum of phi (r + V(s') - c)."""
    phi, (H, S, A) = mdp.features.table, (mdp.horizon, mdp.states, mdp.actions)
    after, q = np.zeros(S), np.zeros((H, S, A))
    for h in reversed(range(H)):
        inverse, c = inverted(gram[h], level[h], 1.0), centre(after)
        w = inverse @ respond(h, after)
        for s in range(S):
            for a in range(A):
                x = phi[s, a]
                q[h, s, a] = c + x @ w + beta(h) * math.sqrt(x @ inverse @ x)
        q[h] = np.clip(q[h], 0, H - h)
        after = q[h].max(axis=1)
    return q


def summed(mdp, lives, h, v, c):
    x = [mdp.features.table[life.states[h], life.actions[h]] for life in lives]
    u = sum(
        (x_ * (life.rewards[h] + v[life.states[h + 1]] - c) for x_, life in zip(x, lives, strict=True)), 0.0
    )
    return sum((np.outer(x_, x_) for x_ in x), np.zeros((3, 3))), u * np.ones(3)


@pytest.mark.parametrize("when", [{"replan_every": 1}, {"replan_every": 12}, {"replan_growth": 1.5}])
@pytest.mark.parametrize("constants", ["range", "published"])
@pytest.mark.parametrize("centre", [False, True])
def test_noise_off_requery_is_batched_lsvi_ucb(linear, when, constants, centre):
    """B = K is LSVI-UCB. The published beta is d H sqrt(log(2 d K H / p)), at a scale that does not clip."""
    scale, K, H = (0.2 if constants == "range" else 0.02), 40, linear.horizon
    learner = LSVIUCB(
        response="requery", centre=centre, bonus_scale=scale, beta=constants, tie_break="first", **when
    )
    lives = []
    for step in run(learner, linear, K, dr.NoPrivacy()):
        middle = (lambda v: (v.min() + v.max() + 1) / 2) if centre else (lambda v: 0.0)
        gram = [summed(linear, lives, h, np.zeros(4), 0.0)[0] for h in range(H)]

        def respond(h, v, lives=tuple(lives), middle=middle):
            return summed(linear, lives, h, v, middle(v))[1]

        def beta(h):
            return scale * (
                (H - h) if constants == "range" else 3 * H * math.sqrt(math.log(2 * 3 * K * H / 0.05))
            )

        same_plan(step, jin(linear, gram, np.ones(H), respond, beta, middle))
        lives += step.people


@pytest.mark.parametrize("span", ["values", "declared"])
@pytest.mark.parametrize("ridge", [0.5, 2.0, "bound"])
@pytest.mark.parametrize("centre", [False, True])
def test_given_noisy_answers_requery_is_the_plain_algorithm(linear, span, ridge, centre):
    learner = LSVIUCB(
        response="requery", centre=centre, span=span, ridge=ridge, bonus_scale=0.1, tie_break="first",
        replan_first=20,
    )  # fmt: skip
    steps = run(learner, linear, 400, dr.Central(epsilon=5.0, delta=DELTA, release="batches"))
    J, H, d = steps[0].releases, linear.horizon, 3
    for j, step in enumerate(steps[1:], 1):
        s = steps[0].scales["gram"] * math.sqrt(j)
        if ridge == "bound":
            level = 1 + 2 * s * (2 * math.sqrt(d) + 2 * math.sqrt(math.log(2 * H * J / 0.05)))
        else:
            level = 1 + ridge * 2 * s * math.sqrt(d)
        answers, top = {h: (v, u) for h, v, u, _ in step.asked}, iter(reversed(range(H)))
        assert [one[0] for one in step.asked] == [2, 1, 0]

        def middle(v, top=top):
            low, high = (v.min(), v.max() + 1) if span == "values" else (0, H - next(top))
            return (low + high) / 2 if centre else 0.0

        def respond(h, v, answers=answers):
            np.testing.assert_allclose(answers[h][0], v, atol=1e-10)  # it asked about the V it had planned
            return answers[h][1]

        gram = np.array(step.release.estimates["gram"].value)
        same_plan(step, jin(linear, gram, level, respond, lambda h: 0.1 * (H - h), middle))
        for h, v, _, law in step.asked if centre else ():
            # section 6: half the budget, a J-th for each round, shares ~ b_h^{2/3}; noise follows the range
            shares = np.array([H - i for i in range(H)]) ** (2 / 3)
            mu = gdp_mu(5.0, DELTA) * math.sqrt(0.5 / J * shares[h] / shares.sum())
            size = (v.max() - v.min() + 1) if span == "values" else H - h
            assert law.std() == pytest.approx(linear.features.bound * size / mu, rel=1e-6)


def simplex(p):
    """The projection onto the simplex, by bisection."""
    low, high = p.min() - 1, p.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(p - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(p - low, 0)


@pytest.mark.parametrize("privatizer", [dr.NoPrivacy(), *PRIVATE])
@pytest.mark.parametrize("project", ["simplex", "range", "none"])
def test_the_model_form_is_the_plain_algorithm(linear, privatizer, project):
    """Section 6: P^ = proj(1/S + phi Lambda^-1 M), r^ = clip(1/2 + phi Lambda^-1 R); noise off and given."""
    exact = isinstance(privatizer, dr.NoPrivacy)
    learner = LSVIUCB(
        response="model", project=project, bonus_scale=0.1, tie_break="first", replan_first=20, ridge=1.5
    )
    steps, lives = run(learner, linear, 300, privatizer), []
    H, S, phi = linear.horizon, linear.states, linear.features.table
    for j, step in enumerate(steps):
        if exact:
            gram, moved, paid = np.zeros((H, 3, 3)), np.zeros((H - 1, 3, S)), np.zeros((H, 3))
            for life in lives:
                for h in range(H):
                    x = phi[life.states[h], life.actions[h]]
                    gram[h] += np.outer(x, x)
                    paid[h] += x * (life.rewards[h] - 0.5)
                    if h < H - 1:
                        moved[h] += np.outer(x, np.eye(S)[life.states[h + 1]] - 1 / S)
            level = np.ones(H)
        else:
            gram, moved, paid = (step.release.estimates[n].value for n in ("gram", "successors", "rewards"))
            terms = j if isinstance(privatizer, dr.Central) else step.release.users
            level = 1 + 1.5 * 2 * steps[0].scales["gram"] * math.sqrt(3 * terms)
        after, q = np.zeros(S), np.zeros((H, S, linear.actions))
        for h in reversed(range(H)):
            inverse = inverted(gram[h], level[h], 1.0)
            for s in range(S):
                for a in range(linear.actions):
                    x = phi[s, a]
                    q[h, s, a] = min(max(0.5 + x @ inverse @ paid[h], 0), 1)
                    if h < H - 1:
                        row = x @ inverse @ moved[h]
                        row = 1 / S + row - row.mean()
                        row = simplex(row) if project == "simplex" else row
                        ahead = row @ after
                        q[h, s, a] += (
                            np.clip(ahead, after.min(), after.max()) if project == "range" else ahead
                        )
                    q[h, s, a] += 0.1 * (H - h) * math.sqrt(x @ inverse @ x)
            q[h] = np.clip(q[h], 0, H - h)
            after = q[h].max(axis=1)
        if j or step.plan.policy.ndim == 2:
            same_plan(step, q)
        else:
            np.testing.assert_allclose(step.state.q.reshape(q.shape), q, atol=1e-10)
        lives += step.people


# --------------------------------------------------------------------- the determinant's schedule, section 3
@pytest.mark.parametrize("cap", [None, 3])
@pytest.mark.parametrize("privatizer", [dr.NoPrivacy(), PRIVATE[0].values[0]], ids=["none", "central"])
def test_determinant_switches_exactly_where_it_has_doubled(mixture, linear, privatizer, cap):
    """By determinants of the released matrices alone; the cap is steps times d log2(1 + K)."""
    exact = isinstance(privatizer, dr.NoPrivacy)
    for mdp, learner in ((mixture, UCRLVTR), (linear, LSVIUCB)):
        every = {"replan_every": 1, "replan_first": 1} if learner is LSVIUCB else {"replan_every": 1}
        chosen = learner(switching="determinant", switches=cap, ridge=1.0, **every)
        steps = run(chosen, mdp, 90, privatizer)
        lam = 0.25 if learner is UCRLVTR else 1.0
        old, switches, changed = None, 0, 0
        for j, step in enumerate(steps):
            gram = np.array(step.release.estimates["gram"].value)
            s = np.zeros(len(gram)) if exact else steps[0].scales["gram"] * math.sqrt(j)
            inverse = [inverted(g, lam + 2 * x * math.sqrt(3), lam) for g, x in zip(gram, s, strict=True)]
            new = np.array([-np.linalg.slogdet(one)[1] for one in inverse])
            most = cap or math.ceil(len(gram) * 3 * math.log2(91))
            if old is None or (switches < most and (new - old).max() >= math.log(2)):
                switches += old is not None
                old, changed = new, j
            assert (step.state.changed, step.state.switches) == (changed, switches)
        assert switches == 3 if cap else switches > 3


# ------------------------------------------------------------------------------- tests 10, 11, 13, 15, 22
def fixed(mdp, query, values, users, policy):
    """A session without noise, all of whose users follow one plan with these values."""
    session = dr.NoPrivacy().start(query, Schedule(users + 1, np.array([0, users])), Seeded(0))
    session.release()
    plan, lives, coins = Plan(policy, users, {"values": values}), [], SeededRng(Seeded(0).keys.noise, 0)
    encoder, people = session.begin(plan), rollout_batch(mdp, policy, users, 5)
    for row in zip(people.states, people.actions, people.rewards, strict=True):
        lives.append(Trajectory(*row))
        session.submit(encoder(lives[-1], plan, coins))
    return session, lives


def test_vtr_on_a_table_with_one_fixed_v_is_one_hot_regression():
    """Test 10: sum V(s'_i) / (n + lam S / ||V||^2), by the learner, from what a session releases."""
    table = dr.make("random", states=3, actions=2, horizon=3, seed=0)
    mdp, rng = as_mixture(table).to_tabular(), np.random.default_rng(1)
    learner = UCRLVTR(targets="raw", lam=0.7)
    spec = ProblemSpec(mdp.layout, 100, known_rewards=mdp.rewards, features=mdp.features)
    values = np.vstack([rng.uniform(0, 1, (3, 3)), np.zeros((1, 3))])
    policy = rng.dirichlet(np.ones(2), (3, 3))
    session, lives = fixed(mdp, learner.query(spec), values, 60, policy)
    fit, _ = learner.fitted(learner.begin(spec, np.zeros(2, np.uint64)), session.release())
    for h in range(2):
        v, n, total = values[h + 1], np.zeros((3, 2)), np.zeros((3, 2))
        for life in lives:
            n[life.states[h], life.actions[h]] += 1
            total[life.states[h], life.actions[h]] += v[life.states[h + 1]]
        found = mdp.features.values_features(v) @ fit.first.weights[h]
        np.testing.assert_allclose(found, total / (n + 0.7 * 3 / (v @ v)), atol=1e-10)


def test_model_form_is_the_core_s_answer(linear):
    """Test 11: one V whose mid-range is its mean, so that both are centred alike; the core answers one."""
    v = np.array([0.1, 0.9, 0.4, 0.6])  # mean and mid-range 1/2
    policy = np.full((3, 4, 2), 0.5)
    spec = ProblemSpec(linear.layout, 100, features=linear.features)
    forms = [LSVIUCB(response=form, project="none") for form in ("model", "requery")]
    both = [fixed(linear, form.query(spec), np.zeros((4, 4)), 80, policy)[0] for form in forms]
    release = [session.release() for session in both]
    phi = linear.features.rows
    for h in (2, 1, 0):
        inverse = np.linalg.inv(release[0].estimates["gram"].value[h] + np.eye(3))
        after = v if h < 2 else np.zeros(4)
        mine = forms[0].tuned(spec)._modelled(release[0], h, phi, inverse, after, None)
        theirs = forms[1].tuned(spec)._answered(release[1], h, phi, inverse, after, both[1].answer)
        np.testing.assert_allclose(mine, theirs, atol=1e-10)


def test_centred_and_raw_responses_agree_as_the_ridge_vanishes(linear):
    """Test 11, the second half, on data of full rank."""
    found = []
    for centre in (False, True):
        learner = LSVIUCB(
            response="requery", centre=centre, lam=1e-9, bonus_scale=0.0, replan_first=400, replan_growth=1.5
        )
        q = run(learner, linear, 401, dr.NoPrivacy())[-1].state.q
        found.append(np.concatenate([q[0, :2], q[1], q[2]]))  # everybody starts in state 0
    np.testing.assert_allclose(*found, atol=1e-5)


def test_ten_thousand_users_by_rank_one_updates():
    """Test 13: sums of a session, factored at once, against Sherman and Morrison user by user."""
    mdp, n = envs.linear_mixture(states=4, actions=2, horizon=2, models=4, seed=1), 10_000
    learner = UCRLVTR(targets="raw")
    spec = ProblemSpec(mdp.layout, n + 1, known_rewards=mdp.rewards, features=mdp.features)
    values = np.vstack([np.random.default_rng(0).uniform(0, 1, (2, 4)), np.zeros((1, 4))])
    session, lives = fixed(mdp, learner.query(spec), values, n, np.full((2, 4, 2), 0.5))
    release = session.release()
    fit, _ = learner.fitted(learner.begin(spec, np.zeros(2, np.uint64)), release)
    phi, lam = mdp.features.table, [1.0]
    for h in range(1):
        inverse, u, log_det = np.eye(4) / lam[h], np.zeros(4), 4 * math.log(lam[h])
        for life in lives:
            x = values[h + 1] @ phi[life.states[h], life.actions[h]]
            turned = inverse @ x
            inverse -= np.outer(turned, turned) / (1 + x @ turned)
            log_det += math.log1p(x @ turned)
            u += x * values[h + 1, life.states[h + 1]]
        np.testing.assert_allclose(
            fit.first.factor[h] @ fit.first.factor[h].T, inverse, rtol=1e-8, atol=1e-12
        )
        np.testing.assert_allclose(fit.first.weights[h], inverse @ u, rtol=1e-8)
        assert fit.first.log_det[h] == pytest.approx(log_det, rel=1e-8)


@pytest.mark.parametrize(
    "privatizer", [dr.NoPrivacy(), *(p.values[0] for p in PRIVATE), dr.Central(epsilon=5.0)]
)
def test_the_unit_of_features_does_not_matter(mixture, privatizer):
    """Test 15: phi -> c phi, noise (c^2, c): the same values and policies, with and without noise."""
    c = 4.0
    model, own = envs.linear_mixture_mdp(**MIX, seed=3), mixture.features
    other = LinearMixtureMDP(
        MixtureFeatures(c * own.table, own.weight_bound / c), model.weights / c, model.rewards, model.initial
    ).to_tabular()
    for learner in (UCRLVTR(), UCRLVTR(targets="raw", ridge="bound", bonus_scale=0.1), UCRLVTRPlus()):
        one, two = (run(learner, mdp, 80, privatizer) for mdp in (mixture, other))
        for a, b in zip(one, two, strict=True):
            np.testing.assert_allclose(a.state.values, b.state.values, atol=1e-9)
            np.testing.assert_array_equal(a.plan.policy, b.plan.policy)
        if one[0].scales:
            np.testing.assert_allclose(two[0].scales["gram"], c**2 * one[0].scales["gram"])
            np.testing.assert_allclose(two[0].scales["response"], c * one[0].scales["response"])


@pytest.mark.parametrize("response", ["model", "requery"])
def test_the_unit_of_features_of_pairs_does_not_matter(response):
    """Test 15 for LSVI-UCB: lam -> c^2 lam too, and the bonus beta ||phi||_{Lambda^-1} is the same."""
    c, model = 0.5, envs.random_linear_mdp(seed=2)
    assert isinstance(model, LinearMDP)
    worlds = [model.to_tabular(), model.scaled(c).to_tabular()]
    for privatizer in (
        dr.NoPrivacy(),
        dr.Central(epsilon=5.0, delta=DELTA),
        dr.Local(epsilon=9.0, delta=DELTA),
    ):
        if response == "requery" and isinstance(privatizer, dr.Local):
            continue
        found = [
            run(LSVIUCB(response=response, lam=lam), mdp, 80, privatizer)
            for mdp, lam in zip(worlds, (1.0, c * c), strict=True)
        ]
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a.state.q, b.state.q, atol=1e-9)
            np.testing.assert_array_equal(a.plan.policy, b.plan.policy)


@pytest.mark.parametrize("learner", [UCRLVTR(), UCRLVTRPlus(), LSVIUCB()], ids=["vtr", "vtr+", "lsvi"])
def test_a_run_is_one_run_however_it_is_made(mixture, linear, learner):
    """Test 22. These learners have no compiled face: a run that says stepwise is the same run."""
    world = linear if isinstance(learner, LSVIUCB) else mixture
    private = dr.Central(epsilon=5.0, delta=DELTA)
    for by in ("episode", "batch"):
        one = simulate(world, learner, private, 40, seeds=3, by=by, workers=1)
        slow = simulate(world, learner, private, 40, seeds=3, by=by, workers=1, stepwise=True)
        assert one.regret.tobytes() == slow.regret.tobytes()
        assert not Setup(world, learner, private, 40, by).fused
        last = Setup(world, learner, private, 40, by).run(0, 2)  # whatever ran before it
        assert one.regret[2].tobytes() == last.regret.tobytes()


def test_a_cap_without_determinants_is_refused():
    for learner in (UCRLVTR, LSVIUCB):
        with pytest.raises(ValueError, match="switches = 3: must be None unless switching = 'determinant'"):
            learner(switches=3)
    assert replace(UCRLVTR(switching="determinant"), switches=3).switches == 3
