"""UCRL-VTR and UCRL-VTR+ against a slow plain reference, and what their widths promise."""

import dataclasses
import itertools
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from covering import pairwise

import discreet as dr
from discreet import envs
from discreet.accounting import pld as numerical
from discreet.accounting.noise_distributions.linear_noise import GoeLaw, VectorLaw
from discreet.core.rng import Seeded
from discreet.envs.mdp import planning
from discreet.envs.mdp.linear_mixture import LinearMixtureMDP
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments.simulate import Setup, simulate
from discreet.learners.estimation.linear_regression import factored
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Estimate, ProblemSpec, Release
from discreet.mechanisms.linear.linear_queries import MixtureQuery
from discreet.mechanisms.seeded_rng import SeededRng

SMALL = {"states": 5, "actions": 3, "horizon": 4, "models": 3}


@pytest.fixture(scope="module")
def world():
    return envs.linear_mixture(**SMALL, seed=3)


def played(setup, seed=1):
    """(plan, release, state, trajectories) of every batch of a run, users one by one."""
    randomness = Seeded(seed, 0)
    session = setup.start(randomness)
    state = setup.learner.begin(setup.spec, randomness.keys.ties)
    users, found = 0, []
    while users < setup.episodes:
        release = session.release()
        plan, state = setup.learner.plan(state, release, session.answer)
        encoder = session.begin(plan)
        people = []
        for _ in range(plan.users):
            life = rollout(setup.mdp, plan.policy, randomness.keys.environment, users)
            session.submit(encoder(life, plan, SeededRng(randomness.keys.noise, users)))
            people.append(life)
            users += 1
        found.append(SimpleNamespace(plan=plan, release=release, state=state, people=people))
    session.close()
    return found


# ------------------------------------------------------------------------------ the reference
class Plain:
    """UCRL-VTR as in the papers: explicit inverses, loops over everything, nothing shared with the code."""

    def __init__(self, mdp, targets, scale, failure, clip_horizon=False):
        self.phi, self.rewards = np.array(mdp.features.table), mdp.rewards
        self.c_w, (self.H, self.S, self.A) = mdp.features.weight_bound, mdp.rewards.shape
        self.targets, self.scale, self.p = targets, scale, failure
        self.d = self.phi.shape[-1]
        self.b = [float(self.H if clip_horizon else self.H - h) for h in range(self.H + 1)]
        half = 0.5 * mdp.features.signed_bound
        self.bound = [
            {"raw": self.b[h + 1] * mdp.features.bound, "centred": self.b[h + 1] * half, "span": half}[
                targets
            ]
            for h in range(self.H - 1)
        ]
        self.lam = [x * x for x in self.bound]
        self.gram = [np.zeros((self.d, self.d)) for _ in range(self.H - 1)]
        self.u = [np.zeros(self.d) for _ in range(self.H - 1)]
        self.users = 0

    def centre(self, h, v):
        if self.targets == "raw":
            return 0.0, 1.0
        if self.targets == "centred":
            return self.b[h + 1] / 2, 1.0
        return (v.max() + v.min()) / 2, v.max() - v.min()

    def plan(self):
        values = np.zeros((self.H + 1, self.S))
        for h in reversed(range(self.H)):
            q = np.array(self.rewards[h])
            for s in range(self.S):
                for a in range(self.A):
                    if h < self.H - 1:
                        q[s, a] += self.ahead(h, s, a, values[h + 1])
            values[h] = np.clip(q, 0.0, self.b[h]).max(axis=1)
        return values

    def ahead(self, h, s, a, v):
        c, _ = self.centre(h, v)
        full = self.gram[h] + self.lam[h] * np.eye(self.d)
        inverse = np.linalg.inv(full)
        x = sum(self.phi[s, a, t] * (v[t] - c) for t in range(self.S))
        span = 1.0 if self.targets == "span" else self.b[h + 1]
        log_det = np.linalg.slogdet(full / self.lam[h])[1]
        most = self.d * math.log(1 + self.users * self.bound[h] ** 2 / (self.d * self.lam[h]))
        beta = math.sqrt(self.lam[h]) * self.c_w
        beta += span / 2 * math.sqrt(2 * math.log(self.H / self.p) + min(log_det, most))
        return c + x @ inverse @ self.u[h] + self.scale * beta * math.sqrt(x @ inverse @ x)

    def add(self, values, life):
        self.users += 1
        for h in range(self.H - 1):
            v = values[h + 1]
            c, m = self.centre(h, v)
            if m <= 1e-9 * self.b[h + 1]:
                continue
            x = (v - c) @ self.phi[life.states[h], life.actions[h]] / m
            self.gram[h] += np.outer(x, x)
            self.u[h] += x * (v[life.states[h + 1]] - c) / m


@pytest.mark.parametrize("targets", ["raw", "centred", "span"])
@pytest.mark.parametrize("when", [{"replan_every": 1}, {"replan_every": 7}, {"replan_growth": 1.4}, {}])
def test_noise_off_is_the_plain_algorithm(world, targets, when):
    learner = UCRLVTR(targets=targets, bonus_scale=0.3, tie_break="first", **when)
    plain = Plain(world, targets, 0.3, learner.failure)
    for step in played(Setup(world, learner, dr.NoPrivacy(), 40)):
        values = plain.plan()
        assert np.allclose(step.plan.context["values"], values, rtol=0, atol=1e-10)
        for life in step.people:
            plain.add(values, life)


def test_batch_simulation_and_every_privatizer(world):
    for privatizer in (
        dr.NoPrivacy(),
        dr.Central(epsilon=5.0, delta=1e-5),
        dr.Central(epsilon=5.0),
        dr.Local(epsilon=5.0, delta=1e-5),
    ):
        for learner in (UCRLVTR(), UCRLVTRPlus(), UCRLVTR(known_rewards=False), UCRLVTRPlus(targets="raw")):
            for by in ("episode", "batch"):
                found = simulate(world, learner, privatizer, 30, by=by, workers=1)
                assert np.isfinite(found.regret).all()


# ------------------------------------------------------------------------------ invariances
def test_span_targets_do_not_see_the_scale_of_rewards(world):
    """Halved rewards: the same policies, weights and sums; halved values (no clip at b_h is active)."""
    half = dataclasses.replace(envs.linear_mixture_mdp(**SMALL, seed=3), rewards=world.rewards / 2)
    learner = UCRLVTR(bonus_scale=0.02)
    for privatizer in (dr.NoPrivacy(), dr.Central(epsilon=2.0, delta=1e-5)):
        runs = [played(Setup(mdp, learner, privatizer, 60)) for mdp in (world, half.to_tabular())]
        for one, two in zip(*runs, strict=True):
            assert np.array_equal(one.plan.policy, two.plan.policy)
            assert np.array_equal(one.state.fit.first.weights, two.state.fit.first.weights)
            assert np.array_equal(one.state.values / 2, two.state.values)


@pytest.mark.parametrize("targets", ["raw", "centred", "span"])
def test_the_unit_of_features_does_not_matter(world, targets):
    """phi times 2, C_w and the true weights halved: the same values (exact sums)."""
    own = world.features
    twice = MixtureFeatures(2 * own.table, own.weight_bound / 2)
    model = envs.linear_mixture_mdp(**SMALL, seed=3)
    other = LinearMixtureMDP(twice, model.weights / 2, model.rewards, model.initial).to_tabular()
    learner = UCRLVTR(targets=targets, bonus_scale=0.1)
    runs = [played(Setup(mdp, learner, dr.NoPrivacy(), 60)) for mdp in (world, other)]
    for one, two in zip(*runs, strict=True):
        assert np.allclose(one.state.values, two.state.values, rtol=0, atol=1e-9)


def test_equal_weights_are_no_weights(world):
    """UCRL-VTR+ whose variances are held at 1/4 is UCRL-VTR: weights of 4, a ridge four times as large."""
    plus = UCRLVTRPlus(var_floor=0.25, var_max=0.25, failure=0.15, bonus_scale=0.3, tie_break="first")
    plain = UCRLVTR(failure=0.05, bonus_scale=0.3, tie_break="first")
    runs = [played(Setup(world, learner, dr.NoPrivacy(), 60)) for learner in (plus, plain)]
    for one, two in zip(*runs, strict=True):
        assert np.allclose(one.state.values, two.state.values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("targets", ["raw", "centred", "span"])
def test_weights_of_vtr_plus_are_those_of_the_definition(world, targets):
    learner = UCRLVTRPlus(targets=targets, bonus_scale=0.02, clip="horizon")
    H, floor = world.horizon, 1 / world.features.dimension
    step = played(Setup(world, learner, dr.NoPrivacy(), 60))[-1]
    fit, values = step.state.fit, step.state.values
    for h in range(H - 1):
        v = values[h + 1]
        c, m = {"raw": (0, 1), "centred": (H / 2, 1), "span": ((v.max() + v.min()) / 2, np.ptp(v))}[targets]
        bar = (v - c) / m
        low, high = {"raw": (0, H), "centred": (-H / 2, H / 2), "span": (-0.5, 0.5)}[targets]
        inverse = [r.factor[h] @ r.factor[h].T for r in (fit.first, fit.second)]
        for s in range(world.states):
            for a in range(world.actions):
                x1, x2 = (w @ np.array(world.features.table)[s, a] for w in (bar, bar**2))
                var = np.clip(x2 @ fit.second.weights[h], 0, high**2)
                var -= np.clip(x1 @ fit.first.weights[h], low, high) ** 2
                var += min(high**2, 2 * high * 0.02 * fit.first.plain[h] * math.sqrt(x1 @ inverse[0] @ x1))
                var += min(high**2, 0.02 * fit.second.width[h] * math.sqrt(x2 @ inverse[1] @ x2))
                unit = 1.0 if targets == "span" else float(H**2)
                sigma = np.clip(var, floor * unit, unit)
                assert step.plan.context["weights"][h, s, a] == pytest.approx(1 / sigma, rel=1e-9)


def test_published_constants():
    """The width and the ridge as printed, at a release with noise of known scale."""
    mdp = envs.linear_mixture(**SMALL)
    learner = UCRLVTR(preset="paper")
    K, H, d, s = 100, mdp.horizon, 3, 5.0
    budget = dr.Central(epsilon=1.0, delta=1e-5).budget
    spec = ProblemSpec(mdp.layout, K, False, mdp.rewards, budget, mdp.features)
    release = made(mdp, learner.query(spec), s, users=10)
    fit = learner.plan(learner.begin(spec, np.zeros(2, np.uint64)), release)[1].fit
    tail = s * math.sqrt(math.ceil(math.log2(K) + 1)) * (4 * math.sqrt(d) + 2 * math.log(6 * K * H / 0.05))
    beta = 3 * (math.sqrt(d) + 1) * math.sqrt(H**2 + tail)
    beta += math.sqrt(2 * H**2 * math.log(3 * H * (1 + K * H) ** (d / 2) / 0.05))
    assert np.allclose(fit.first.width, beta)
    assert np.allclose(fit.first.log_det, d * math.log(H**2 + 2 * tail))


@pytest.mark.parametrize("ridge", [None, 3.0, "bound"])
def test_width_under_noise_is_that_of_section_1_5(world, ridge):
    """Zeros with noise of known scale: Lambda = L I, so that every term can be written down."""
    learner = UCRLVTR(ridge=ridge)
    K, H, d, s, p = 100, world.horizon, 3, 5.0, 0.05
    spec = ProblemSpec(world.layout, K, False, world.rewards, dr.Local(epsilon=1.0).budget, world.features)
    release = made(world, learner.query(spec), s, users=10)
    state = learner.begin(spec, np.zeros(2, np.uint64))
    fit = learner.plan(state, release)[1].fit
    part = 3 * H * (learner.schedule(spec).release_times.size - 1) / p
    tail = s * (2 * math.sqrt(d) + 2 * math.sqrt(math.log(4 * part)))
    edge = 2 * s * math.sqrt(d)
    level = 0.25 + (2 * tail if ridge == "bound" else (ridge or 4.0) * edge)
    low = max(0.25, level - tail)
    log_det = min(d * math.log(level / low), d * math.log(1 + 10 * 0.25 / (d * low)))
    beta = 0.5 * math.sqrt(2 * math.log(part) + log_det)
    beta += math.sqrt(d) * math.sqrt(level + 2 * s * math.sqrt(math.log(2 * part)))
    beta += s * (math.sqrt(d) + math.sqrt(2 * math.log(part))) / math.sqrt(low)
    assert np.allclose(fit.first.width, beta, rtol=1e-12)
    assert np.allclose(fit.first.log_det, d * math.log(level))


def made(mdp, query: MixtureQuery, scale, users=10):
    """A release of zeros whose law has this scale."""
    found = {}
    for name, shape in query.families.items():
        at = ((scale,) * shape[0], 1.0, 1.0, shape[-1], 9)
        law = GoeLaw(*at) if query.is_gram(name) else VectorLaw(*at, size=shape[-1])
        found[name] = Estimate(np.zeros(shape), law, "sum", users, float(users))
    return Release(found, users, 3, None)


# ---------------------------------------------------------------------------------- widths
def coverage(learner, privatizer, runs, users=60):
    """Runs with a weight vector outside its width, with a value below V*, with a matrix below its floor."""
    model = envs.linear_mixture_mdp(**SMALL, seed=3)
    mdp = model.to_tabular()
    best = planning.optimal_values(mdp)[0]
    outside = pessimistic = floored = 0
    for seed in range(runs):
        bad = low = raised = False
        for step in played(Setup(mdp, learner, privatizer, users), seed):
            first = step.state.fit.first
            for h in range(mdp.horizon - 1):
                error = np.linalg.solve(first.factor[h], first.weights[h] - model.weights[h])
                bad |= bool(np.linalg.norm(error) > first.width[h])
            low |= bool((step.state.values < best - 1e-9).any())
            raised |= first.floored > 0
        outside, pessimistic, floored = outside + bad, pessimistic + low, floored + raised
    return outside, pessimistic, floored


@pytest.mark.parametrize(
    ("learner", "privatizer", "targets"),
    pairwise(
        {"vtr": UCRLVTR, "vtr+": UCRLVTRPlus},
        {
            "none": dr.NoPrivacy(),
            "central": dr.Central(epsilon=2.0, delta=1e-5),
            "pure": dr.Central(epsilon=2.0),
            "local": dr.Local(epsilon=2.0, delta=1e-5),
        },
        ["raw", "span"],
    ),
)
def test_widths_cover_and_values_are_optimistic(learner, privatizer, targets):
    """At scale 1: a run fails with probability at most .05; more than 7 of 12: 2e-8."""
    exact = learner(bonus_scale=1.0, ridge="bound", targets=targets, tie_batches=1)
    assert max(coverage(exact, privatizer, 12)) <= 7


def test_unknown_rewards_are_optimistic(world):
    """At scale 1, with and without noise, rewards are within their width (more than 7 of 12: 2e-8)."""
    learner = UCRLVTR(bonus_scale=1.0, ridge="bound", known_rewards=False, tie_batches=1)
    for privatizer in (dr.NoPrivacy(), dr.Central(epsilon=2.0, delta=1e-5)):
        failed = 0
        for seed in range(12):
            steps = played(Setup(world, learner, privatizer, 40), seed)
            failed += any(
                (np.abs(s.state.fit.rewards - world.rewards) > s.state.fit.reward_bonus + 1e-12).any()
                for s in steps
            )
        assert failed <= 7


@pytest.fixture(scope="module", params=["sparse", "simplex"])
def rewarded(request):
    """A mixture whose rewards are linear in public features: without 1 in their span, and with it."""
    if request.param == "sparse":
        return envs.linear_mixture(**SMALL, seed=3, reward_models=2)
    model, draw = envs.linear_mixture_mdp(**SMALL, seed=3), np.random.default_rng(4)
    psi = Features(draw.dirichlet(np.ones(3), (5, 3)), 1.0, l1=1.0, nonneg=True)
    means = np.einsum("sap,hp->hsa", psi.table, draw.uniform(size=(4, 3)))
    own = MixtureFeatures(model.features.table, model.features.weight_bound, rewards=psi)
    return LinearMixtureMDP(own, model.weights, means, model.initial).to_tabular()


def test_rewards_by_features_are_a_ridge_regression(rewarded):
    """Without noise, against explicit inverses over the users' own records."""
    psi = rewarded.features.rewards
    learner = UCRLVTR(known_rewards=False, bonus_scale=0.3, tie_batches=1)
    steps = played(Setup(rewarded, learner, dr.NoPrivacy(), 40))
    grams = np.stack([psi.bound**2 * np.eye(psi.dimension)] * rewarded.horizon)
    sums, centre = np.zeros(grams.shape[:2]), 0.5 if psi.constant else 0.0
    for step in steps:
        fit = step.state.fit
        for h in range(rewarded.horizon):
            inverse = np.linalg.inv(grams[h])
            plain = np.clip(centre + psi.table @ inverse @ sums[h], 0, 1)
            assert np.allclose(fit.rewards[h], plain, rtol=0, atol=1e-10)
            lengths = np.sqrt(np.einsum("sai,ij,saj->sa", psi.table, inverse, psi.table))
            widest = np.unravel_index(lengths.argmax(), lengths.shape)
            width = fit.reward_bonus[h][widest] / lengths[widest]
            assert np.allclose(fit.reward_bonus[h], width * lengths)
        for life in step.people:
            for h in range(rewarded.horizon):
                x = psi.table[life.states[h], life.actions[h]]
                grams[h] += np.outer(x, x)
                sums[h] += x * (life.rewards[h] - centre)


def test_rewards_by_features_have_a_share_of_the_budget(rewarded):
    for privatizer in (dr.Central(mu=0.5), dr.Local(epsilon=5.0), dr.Central(epsilon=1.0, delta=1e-5)):
        for learner in (UCRLVTR(known_rewards=False, reward_share=0.2), UCRLVTRPlus(known_rewards=False)):
            setup = Setup(rewarded, learner, privatizer, 30)
            assert setup.spec.known_rewards is None
            session = setup.start(Seeded(0, 0))
            record = session.records[0]
            assert {"reward_gram[3]", "reward_response[3]"} <= set(record.scales)
            numerical.verify(session.guarantee, session.records)
            noise = "laplace" if record.noise == "laplace" else "goe"
            losses = np.array(session.query.losses(noise, session.mechanism.scales)) ** (
                1 if noise == "laplace" else 2
            )
            assert losses[-4:].sum() / losses.sum() == pytest.approx(learner.reward_share)
            for by in ("episode", "batch"):
                assert np.isfinite(simulate(rewarded, learner, privatizer, 30, by=by, workers=1).regret).all()


@pytest.mark.parametrize("learner", [UCRLVTR, UCRLVTRPlus])
def test_rewards_by_features_are_optimistic(rewarded, learner):
    """At scale 1 a run fails with probability at most .05; more than 7 of 12: 2e-8."""
    exact = learner(bonus_scale=1.0, ridge="bound", known_rewards=False, tie_batches=1)
    for privatizer in (dr.NoPrivacy(), dr.Central(epsilon=2.0, delta=1e-5), dr.Local(epsilon=2.0)):
        failed = 0
        for seed in range(12):
            steps = played(Setup(rewarded, exact, privatizer, 40), seed)
            failed += any(
                (np.abs(s.state.fit.rewards - rewarded.rewards) > s.state.fit.reward_bonus + 1e-12).any()
                for s in steps
            )
        assert failed <= 7


def test_forms_of_unknown_rewards(world, rewarded):
    spec = Setup(rewarded, UCRLVTR(known_rewards=False), dr.NoPrivacy(), 10).spec
    assert UCRLVTR(known_rewards=False).query(spec).rewards is rewarded.features.rewards
    assert UCRLVTR(known_rewards=False, reward_form="tabular").query(spec).rewards == "tabular"
    with pytest.raises(ValueError, match="reward_form"):
        Setup(world, UCRLVTR(known_rewards=False, reward_form="features"), dr.NoPrivacy(), 10)


# ----------------------------------------------------------------------------- linear algebra
def test_cholesky_and_eigenvalues_agree():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(3, 9, 4))
    grams = x.swapaxes(1, 2) @ x
    ridges, floors = np.array([0.5, 1.0, 2.0]), np.full(3, 0.5)
    found = factored(grams, ridges, floors)
    full = grams + ridges[:, None, None] * np.eye(4)
    assert found.floored == 0
    assert np.allclose(found.factor @ found.factor.swapaxes(1, 2), np.linalg.inv(full), rtol=1e-12)
    assert np.allclose(found.log_det, np.linalg.slogdet(full)[1])
    grams[1] -= 30 * np.outer(x[1, 0], x[1, 0])  # one step is no longer positive definite
    mixed = factored(grams, ridges, floors)
    assert mixed.floored >= 1
    whole = np.linalg.inv(mixed.factor @ mixed.factor.swapaxes(1, 2))
    assert np.linalg.eigvalsh(whole)[1].min() == pytest.approx(0.5)
    for i in (0, 2):
        assert np.allclose(whole[i], full[i])
    values, vectors = np.linalg.eigh(grams[1] + ridges[1] * np.eye(4))
    assert np.allclose(whole[1], (vectors * np.maximum(values, 0.5)) @ vectors.T)
    assert np.allclose(mixed.log_det, np.linalg.slogdet(whole)[1])


# -------------------------------------------------------------------------- schedule and state
def test_schedule_follows_the_dimension():
    for d, growth in ((2, 1.5), (5, 1.5), (50, 1.05)):
        mdp = envs.linear_mixture(models=d)
        spec = Setup(mdp, UCRLVTR(), dr.NoPrivacy(), 1000).spec
        assert UCRLVTR().schedule(spec).growth == pytest.approx(growth)
    assert UCRLVTR(preset="paper").schedule(spec).growth == 1.0
    assert UCRLVTR(preset="paper", replan_growth=1.2).schedule(spec).growth == 1.2


def test_determinant_schedule_changes_policies_rarely(world):
    learner = UCRLVTR(replan_every=1, switching="determinant", targets="raw")
    steps = played(Setup(world, learner, dr.NoPrivacy(), 120))
    changed = [s.state.changed for s in steps]
    assert 2 < len(set(changed)) < 60
    for before, after in itertools.pairwise(steps):
        if after.state.changed == before.state.changed:
            assert np.array_equal(after.plan.policy, before.plan.policy)
            assert np.array_equal(after.plan.context["values"], before.plan.context["values"])
        else:
            assert (after.state.log_dets - before.state.log_dets).max() >= math.log(2)
    capped = played(Setup(world, dataclasses.replace(learner, switches=2), dr.NoPrivacy(), 120))
    assert capped[-1].state.switches == 2


def test_a_stored_state_continues(world):
    """It is a function of releases: pickled between two releases, the plans are the same bits."""
    for learner in (UCRLVTR(), UCRLVTRPlus(switching="determinant", replan_every=3)):
        steps = played(Setup(world, learner, dr.Central(epsilon=3.0, delta=1e-5), 40))
        for before, after in itertools.pairwise(steps):
            plan, _ = learner.plan(pickle.loads(pickle.dumps(before.state)), after.release)
            assert np.array_equal(plan.policy, after.plan.policy)
            for name, table in after.plan.context.items():
                assert np.array_equal(plan.context[name], table)


def test_open_ended_schedule(world):
    """K unknown: without central noise the learner runs; the published constants need K."""
    learner = UCRLVTR()
    spec = ProblemSpec(world.layout, None, False, world.rewards, None, world.features)
    state = learner.begin(spec, np.zeros(2, np.uint64))
    release = made(world, learner.query(spec), 2.0)
    assert state.union(release) == 12
    assert learner.plan(state, release)[0].users == 1  # 5 in all, of which 4 tie-breaks, the first of one
    with pytest.raises(ValueError, match="constants"):
        UCRLVTR(preset="paper").begin(spec, np.zeros(2, np.uint64))


# -------------------------------------------------------------------------------- at the door
def test_what_does_not_fit_is_refused(world):
    chain = dr.make("riverswim")
    with pytest.raises(ValueError, match="spec.features = None: must be MixtureFeatures"):
        Setup(chain, UCRLVTR(), dr.NoPrivacy(), 10)
    with pytest.raises(ValueError, match="spec.features = Features: must be MixtureFeatures"):
        Setup(dr.make("linear-mdp"), UCRLVTR(), dr.NoPrivacy(), 10)
    with pytest.raises(ValueError, match="known_rewards = True"):
        UCRLVTR().query(ProblemSpec(world.layout, 10, features=world.features))
    with pytest.raises(ValueError, match="horizon"):
        Setup(envs.linear_mixture(**{**SMALL, "horizon": 1}), UCRLVTR(), dr.NoPrivacy(), 10)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("targets", "values"), ("clip", "b"), ("lam", 0.0), ("lam", "small"), ("ridge", -1.0),
        ("ridge", "edge"), ("constants", "theory"), ("over_steps", "b"), ("reward_share", 1.0),
        ("reward_form", "linear"),
        ("bonus_scale", -0.1), ("failure", 0.0), ("replan_growth", 0.9), ("replan_every", 0),
        ("switching", "never"), ("switches", 0), ("tie_break", "last"), ("tie_batches", 0),
        ("known_rewards", 1), ("var_floor", 2.0), ("var_max", 0.0), ("moment_share", 0.0),
    ],
)  # fmt: skip
def test_bad_options_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        UCRLVTRPlus(**{name: value})


def test_summary_says_what_the_theorem_needs():
    assert "bonus_scale" in UCRLVTR().summary()
    assert "does not cover" not in UCRLVTR(preset="paper").summary()
