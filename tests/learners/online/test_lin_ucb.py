"""LinUCB, its batches and LinTS: plain references without noise, printed formulas, schedules, guarantees."""

import math

import numpy as np
import pytest

import discreet as dr
from discreet.accounting.budget import gdp_mu
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.envs import fixed_arms, per_action_contexts, shared_contexts
from discreet.experiments.context_runs import ContextSetup
from discreet.learners.online.lin_ucb import BatchedLinUCB, LinTS, LinUCB
from discreet.mechanisms.interfaces import ProblemSpec

CENTRAL = {"epsilon": 1.0, "delta": 1e-6}
WORLDS = (shared_contexts(3, 4, seed=1), per_action_contexts(2, 3, seed=1), fixed_arms(3, 5, seed=1))
TREE = dr.Central(release="tree", leaf="user", **CENTRAL)


def spec(world, users=500):
    return ProblemSpec(world.layout, users, features=world.features)


def plain_regret(world, times, users, width, scale):
    """Regret of LinUCB in the stated batches: one vector for all blocks, explicit inverses, user by user.

    The first batch is random. Draws are those of the runner, in its order.
    """
    shared, blocks, p = world.features.form == "shared", world.features.blocks, world.features.dimension
    d = blocks * p
    keys = Seeded(3, 0).keys
    rng, public = (np.random.default_rng(list(map(int, k))) for k in (keys.environment, keys.ties))
    gram, response, total, regrets = np.zeros((d, d)), np.zeros(d), 0.0, []
    for begin, end in zip(times, [*times[1:], users], strict=True):
        n = end - begin
        contexts = np.asarray(world.draw(n, rng), float)
        phi, means = world.features(contexts), world.means(contexts)
        each = np.stack(
            [phi[:, a] if shared else np.kron(np.eye(blocks)[a], phi) for a in range(world.actions)], axis=1
        )  # (n, A, d)
        if begin == 0:
            actions = public.integers(0, world.actions, n)
        else:
            v = gram + np.eye(d)
            theta = np.linalg.inv(v) @ response
            beta = width(v, d)
            actions = np.array(
                [
                    np.argmax([x @ theta + scale * beta * math.sqrt(x @ np.linalg.inv(v) @ x) for x in rows])
                    for rows in each
                ]
            )
        mine = means[np.arange(n), actions]
        rewards = (rng.random(n) < mine).astype(float)
        for x, r in zip(each[np.arange(n), actions], rewards, strict=True):
            gram += np.outer(x, x)
            response += x * (r - 0.5)
        total += float((means.max(axis=1) - mine).sum())
        regrets.append(total)
    return regrets


def oful(v, d):
    """Width of Abbasi-Yadkori et al. for rewards in [0, 1], lam = 1, ||theta|| <= 1, failure .05."""
    return 0.5 * math.sqrt(2 * math.log(2 / 0.05) + math.log(np.linalg.det(v))) + 1.0


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
@pytest.mark.parametrize(
    ("learner", "users"),
    [
        (LinUCB(preset="paper"), 60), (LinUCB(), 500), (LinUCB(bonus_scale=0.0), 500),
        (BatchedLinUCB(), 500), (BatchedLinUCB(batch=30, bonus_scale=1.0), 500),
    ],
)  # fmt: skip
def test_without_noise_runs_are_those_of_a_plain_lin_ucb(world, learner, users):
    setup = ContextSetup(world, learner, dr.NoPrivacy(), users)
    times = learner.schedule(setup.spec).release_times.tolist()
    expected = plain_regret(world, times, users, oful, learner.bonus_scale)
    assert setup.run(3, 0).regret == pytest.approx(expected, abs=1e-9)


def released(privatizer, learner, world, users=400, seen=300):
    """A release of the mechanism after ``seen`` users with random actions."""
    own = spec(world, users)
    session = privatizer.start(learner.query(own), learner.schedule(own), Seeded(5))
    rng, state = np.random.default_rng(0), learner.begin(own, np.zeros(2, np.uint64))
    runner = ContextSetup(world, learner, privatizer, users)
    while session.users < seen:
        plan, state = learner.plan(state, session.release())
        encoder = session.begin(plan)
        for records, _ in runner._played(plan, rng, rng):
            runner._submit(session, records, encoder, plan, Seeded(5).keys.noise, session.users)
    return session.release()


def test_the_shifted_regulariser_is_the_printed_one():
    """Shift 2 Upsilon, eigenvalues of the shifted noise in [Upsilon, 3 Upsilon], width (2), as printed."""
    world, users = WORLDS[0], 400
    learner = LinUCB(preset="paper", lam=1e-9)
    release = released(TREE, learner, world, users)
    gram, response = (release.estimates[name] for name in ("gram", "response"))
    theta, inverse, width = learner.fit(release, users)
    nodes = 9  # ceil(log2 400)
    sigma = gram.law.scales[0]
    assert sigma == pytest.approx(1.25 * math.sqrt(nodes) / gdp_mu(1.0, 1e-6), rel=1e-6)
    most = math.sqrt(gram.law.terms_bound)
    assert most <= math.sqrt(nodes)
    d, log = 3, math.log(2 * users / 0.05)
    upsilon = math.sqrt(2) * most * sigma * (4 * math.sqrt(d) + 2 * log)
    v = gram.value[0] + 2 * upsilon * np.eye(d)
    assert inverse[0] == pytest.approx(np.linalg.inv(v), rel=1e-6)
    assert theta[0] == pytest.approx(np.linalg.solve(v, response.value[0]), rel=1e-6)
    gamma = most * sigma * (math.sqrt(d) + math.sqrt(2 * log)) / math.sqrt(upsilon)
    printed = 0.5 * math.sqrt(2 * math.log(2 / 0.05) + np.linalg.slogdet(v)[1] - d * math.log(upsilon))
    assert width == pytest.approx(printed + math.sqrt(3 * upsilon) + gamma, rel=1e-6)


def test_a_small_ridge_leaves_eigenvalues_at_least_lam():
    release = released(TREE, LinUCB(), WORLDS[1])
    _, inverse, width = LinUCB(ridge=0.0, lam=2.0).fit(release, 400)
    assert np.linalg.eigvalsh(inverse).max() <= 0.5 + 1e-12
    assert math.isfinite(width)


@pytest.mark.parametrize(
    ("learner", "privatizer"),
    [
        (LinUCB(), TREE), (LinUCB(), dr.Central(**CENTRAL)), (BatchedLinUCB(), dr.Central(**CENTRAL)),
        (LinUCB(), dr.Local(epsilon=10.0, delta=1e-6)), (LinTS(), TREE), (LinUCB(preset="paper"), TREE),
    ],
)  # fmt: skip
def test_guarantees_are_the_stated_ones_and_runs_end(learner, privatizer):
    for world in WORLDS:
        setup = ContextSetup(world, learner, privatizer, 200)
        assert setup.guarantee.epsilon == pytest.approx(privatizer.epsilon, rel=1e-6)
        run = setup.run(0, 0)
        assert 0.0 <= run.regret[-1] <= 200.0


def test_a_user_is_in_as_many_nodes_as_the_noise_pays_for():
    """K = 64 users, one a leaf: the nodes of all prefixes before the last user, counted for each user."""
    setup = ContextSetup(WORLDS[0], LinUCB(growth=1.0), TREE, 64)
    used = set()
    for t in range(64):
        begin = 0
        for level in reversed(range(7)):
            if t >> level & 1:
                used.add((begin, begin + (1 << level)))
                begin += 1 << level
    most = max(sum(low <= user < high for low, high in used) for user in range(64))
    assert most == 6  # ceil(log2 K)
    scale = 1.25 * math.sqrt(most) / gdp_mu(1.0, 1e-6)
    assert setup.mechanism.scales["gram"][0] == pytest.approx(scale, rel=1e-6)


def test_draws_of_lin_ts_have_the_stated_covariance():
    learner = LinTS(thompson_scale=2.0)
    v = np.array([[[4.0, 1.0], [1.0, 3.0]]])
    root = learner.explored(np.linalg.inv(v), 7.0)["root"]
    assert root @ np.swapaxes(root, 1, 2) == pytest.approx(np.linalg.inv(v), abs=1e-12)


def test_schedules_are_public():
    world = WORLDS[0]
    assert LinUCB(growth=1.0).schedule(spec(world, 20)).release_times.tolist() == [*range(20)]
    grown = LinUCB(growth=1.5).schedule(spec(world, 20)).release_times.tolist()
    assert grown == [0, 1, 2, 3, 5, 8, 12, 18]
    fixed = BatchedLinUCB().schedule(spec(world, 1000))
    assert fixed.release_times.tolist() == [*range(0, 1000, math.ceil(1000**0.6))]
    assert fixed.reads == "measurements"
    assert LinUCB().schedule(spec(world, 1)).release_times.tolist() == [0]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (LinUCB, {"bonus_scale": -1.0}, "bonus_scale"), (LinUCB, {"ridge": -1.0}, "ridge"),
        (LinUCB, {"ridge": "edge"}, "ridge"), (LinUCB, {"lam": 0.0}, "lam"),
        (LinUCB, {"failure": 0.0}, "failure"), (LinUCB, {"growth": 0.9}, "growth"),
        (BatchedLinUCB, {"batch": 0}, "batch"), (BatchedLinUCB, {"growth": 1.5}, "growth = 1.5: must be 1"),
        (LinTS, {"bonus_scale": 0.1}, "bonus_scale = 0.1: must be 0"),
        (LinTS, {"thompson_scale": -0.1}, "thompson_scale"),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_other_problems_are_refused():
    table = ProblemSpec(Layout(1, 3, 1), 100)
    for call in (LinUCB().query, lambda own: LinUCB().begin(own, np.zeros(2, np.uint64))):
        with pytest.raises(ValueError, match="spec.features = NoneType: must be FeatureMap"):
            call(table)
    for learner in (LinUCB(), BatchedLinUCB()):
        with pytest.raises(ValueError, match="spec.users"):
            learner.schedule(spec(WORLDS[0], None))


def test_the_summary_says_what_is_printed():
    assert LinUCB(preset="paper").summary() == "LinUCB: as printed"
    assert LinUCB().summary() == "LinUCB: no regret theorem holds"
