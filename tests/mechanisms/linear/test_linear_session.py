"""Sessions of linear sums: noise where it belongs, budgets as they are printed, users as they are counted."""

import math
import random
from dataclasses import dataclass

import numpy as np
import pytest

import discreet as dr
from discreet.accounting import budget
from discreet.accounting import pld as numerical
from discreet.accounting.noise_distributions.prefix_variance import noise_of
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.trajectories import Trajectory
from discreet.device.discrete_noise import ExactCoins
from discreet.envs.linear_envs import linear_mixture
from discreet.experiments.estimate import estimate_run
from discreet.experiments.simulate import Setup
from discreet.mechanisms.features import Features, MixtureFeatures
from discreet.mechanisms.interfaces import Message, Plan, Response, Schedule
from discreet.mechanisms.linear.linear_queries import (
    CENTERED_REWARDS,
    GRAM,
    RESPONSE,
    REWARD_GRAM,
    SECOND_GRAM,
    SUCCESSORS,
    VISITS,
    GramQuery,
    MixtureQuery,
)
from discreet.mechanisms.linear.linear_session import LinearChannel
from discreet.mechanisms.seeded_rng import SeededRng

S, A, H, D = 4, 2, 4, 3
LAYOUT = Layout(S, A, H)
RNG = np.random.default_rng(5)
MIXED = MixtureFeatures(RNG.uniform(-1, 1, (S, A, S, D)) / 4, 2.0)
PSI = Features(RNG.dirichlet(np.ones(2), (S, A)), 1.0, l1=1.0)
PHI = Features(RNG.dirichlet(np.ones(D), (S, A)), 1.0, l1=1.0, nonneg=True)
POLICY = np.zeros((H, S), np.int64)
VALUES = np.array([RNG.uniform(0, H - h, S) for h in range(H + 1)])
SPAN = MixtureQuery(layout=LAYOUT, features=MIXED)
FULL = MixtureQuery(layout=LAYOUT, features=MIXED, second=True, rewards="tabular", largest_weight=2.0)
LINEAR = MixtureQuery(layout=LAYOUT, features=MIXED, rewards=PSI, targets="centred")
MODEL = GramQuery(layout=LAYOUT, features=PHI)
REQUERY = GramQuery(layout=LAYOUT, features=PHI, model=False)
CONTEXT = {"values": VALUES, "weights": np.full((H - 1, S, A), 1.5)}


def trajectory(rng):
    return Trajectory(rng.integers(0, S, H + 1), rng.integers(0, A, H), rng.uniform(size=H))


def coins_of(randomness, user):
    return SeededRng(randomness.keys.noise, user) if isinstance(randomness, Seeded) else SecureRng()


def play(session, users, sizes, randomness, context=CONTEXT):
    """Release, plan, submit ...: all releases."""
    releases, users = [session.release()], iter(enumerate(users))
    for size in sizes:
        encoder = session.begin(Plan(POLICY, size, dict(context)))
        for _ in range(size):
            at, user = next(users)
            session.submit(encoder(user, session.open_plan, coins_of(randomness, at)))
        releases.append(session.release())
    return releases


def cells(session, release):
    """The flat vector of a release."""
    query, found = session.query, []
    for name in query.families:
        value = release.estimates[name].value
        if query.is_gram(name):
            d = value.shape[-1]
            above = np.triu_indices(d, 1)
            value = np.concatenate([value[:, range(d), range(d)], value[:, above[0], above[1]]], axis=1)
        found.append(value.ravel())
    return np.concatenate(found)


# ------------------------------------------------------------------------------ neighbours


@pytest.mark.parametrize("query", [SPAN, FULL, LINEAR, MODEL])
@pytest.mark.parametrize("release", ["batches", "tree", "square-root", "auto"])
def test_neighbouring_streams_differ_by_one_users_change_within_the_budget(query, release):
    # equal noise (equal seeds) and equal plans: what differs is what noise must hide
    sizes, schedule = (1, 2, 3, 4), Schedule(20, times=np.array([0, 1, 3, 6, 10]))
    rng = np.random.default_rng(0)
    for context in (CONTEXT, {**CONTEXT, "values": VALUES * 1e9 - 3}):
        users = [trajectory(rng) for _ in range(10)]
        for changed in (0, 2, 9):
            other = [trajectory(rng) if i == changed else user for i, user in enumerate(users)]
            found = []
            for stream in (users, other):
                randomness = Seeded(3, 1)
                session = dr.Central(mu=0.5, release=release).start(query, schedule, randomness)
                releases = play(session, stream, sizes, randomness, context)
                found.append(np.array([cells(session, one) for one in releases]))
            shift = found[0] - found[1]
            first = int(np.searchsorted(np.cumsum(sizes), changed + 1)) + 1
            assert not shift[:first].any()
            np.testing.assert_allclose(
                shift[first:], np.broadcast_to(shift[first], shift[first:].shape), atol=1e-9
            )
            scales = session._mechanism.scales
            unit = np.repeat(query.block_scales(scales, "goe"), np.diff(query.offsets))
            levels = session.records[0].levels
            assert math.sqrt(levels) * np.linalg.norm(shift[first] / unit) <= 0.5 * (1 + 1e-9)


def test_a_changed_context_or_table_moves_nothing_after_begin():
    randomness, rng = Seeded(0, 0), np.random.default_rng(1)
    user, found = trajectory(rng), []
    for tamper in (False, True):
        table = np.array(MIXED.table)
        features = MixtureFeatures(table, 2.0)
        query = MixtureQuery(layout=LAYOUT, features=features)
        session = dr.Central(mu=1.0).start(query, Schedule(5), randomness)
        session.release()
        context = {"values": VALUES.copy()}
        encoder = session.begin(Plan(POLICY, 1, context))
        if tamper:
            context["values"][:] = 1e6
            features.columns.flags.writeable = True
            features.columns[:] = 1e6
            session.query.features.columns.flags.writeable = True
            scales = session.mechanism.scales[GRAM]
            scales.flags.writeable = True
            scales[:] = 0.0
        session.submit(encoder(user, session.open_plan, coins_of(randomness, 0)))
        found.append(cells(session, session.release()))
    np.testing.assert_array_equal(*found)


def test_noise_and_laws_depend_on_no_data():
    # the guarantee, the scales and every law are equal for any two streams; so are releases before anybody
    rng = np.random.default_rng(2)
    told = []
    for _ in range(2):
        session = dr.Central(epsilon=1.0, delta=1e-6).start(SPAN, Schedule(20, growth=2.0), Seeded(1, 1))
        releases = play(session, [trajectory(rng) for _ in range(15)], (1, 1, 2, 4), Seeded(1, 1))
        told.append(
            (session.guarantee, [[one.law for one in release.estimates.values()] for release in releases])
        )
    assert told[0] == told[1]


# ---------------------------------------------------------------------------------- noise


@pytest.mark.parametrize("release", ["batches", "tree", "square-root"])
def test_noise_has_the_variance_that_its_law_states(release):
    # nobody sends anything, so that a release is its noise: 780 entries above the diagonal in 5 steps; the
    # sample variance's relative std is sqrt(2 / 3900) = 2.3 % there, sqrt(2 / 200) = 10 % on the diagonal:
    # 5.5 of them are false alarms with probability below 1e-7
    d = 40
    phi = Features(np.eye(d)[:20].reshape(4, 5, d), 1.0)
    query = GramQuery(layout=Layout(4, 5, 5), features=phi, over_steps="noise")
    schedule = Schedule(9)
    session = dr.Central(mu=1.0, release=release, tree_estimate="plain").start(query, schedule, Seeded(7, 0))
    session.release()
    before, steps = np.zeros((5, d, d)), []
    scale = session.mechanism.scales[GRAM][0]
    for k in range(1, 9):
        session.begin(Plan(np.zeros((5, 4), int), 1))
        session.absent()
        found = session.release().estimates[GRAM]
        np.testing.assert_array_equal(found.value, np.swapaxes(found.value, 1, 2))
        above = found.value[:, *np.triu_indices(d, 1)]
        diagonal = found.value[:, range(d), range(d)]
        terms = {"batches": k, "tree": k.bit_count()}.get(release, found.law.terms)
        assert found.law.terms == pytest.approx(terms)
        assert found.law.std(0) == pytest.approx(scale * math.sqrt(terms))
        assert above[:-1].var() == pytest.approx(terms * scale**2, rel=0.13)
        assert diagonal[:-1].var() == pytest.approx(2 * terms * scale**2, rel=0.6)
        assert np.linalg.norm(found.value[0], 2) <= found.law.operator_norm_bound(1e-7, 0)
        assert np.abs(found.value).max() <= found.law.bound(1e-7)
        steps.append((found.value - before)[:, *np.triu_indices(d, 1)][:-1].ravel())
        before = found.value
    if release == "batches":  # fresh at each: increments are uncorrelated, |r| <= 5.5 / sqrt(3120)
        off = np.corrcoef(steps) - np.eye(8)
        assert np.abs(off).max() < 0.1


@pytest.mark.parametrize("randomness", [Secure(), Seeded(3, 0)])
@pytest.mark.parametrize("query", [FULL, SPAN, MODEL])
def test_no_device_moves_a_cell_by_more_than_noise_does(query, randomness):
    """A hostile message is refused, nothing is added; what anybody's record is at most is inside."""
    session = dr.Local(epsilon=1.0).start(query, Schedule(9), randomness)
    session.release()
    session.begin(Plan(POLICY, 9, dict(CONTEXT)))
    reach, rng = session.channel.reach, np.random.default_rng(0)
    scales = np.repeat(session.channel.draws.scales, np.diff(query.offsets))
    own = np.abs(
        [
            query.to_cells(query.user_tables(query.prepared(CONTEXT), trajectory(rng), session.channel.grid))
            for _ in range(50)
        ]
    ).max(axis=0)
    assert (reach >= own + 40 * scales).all()
    for at, value in ((0, 1e308), (-1, -1e308), (0, 1.01 * reach[0]), (-1, -1.01 * reach[-1])):
        message = np.zeros(query.cells)
        message[at] = value
        with pytest.raises(ValueError, match=r"message.message\[\d+\] = .* no device sends more"):
            session.submit(Message(1, message=message))
    assert session.users == 0
    assert not session.state["cells"].any()
    session.submit(Message(1, message=reach))


def test_local_noise_grows_with_the_messages():
    session = dr.Local(mu=1.0).start(MODEL, Schedule(None), Seeded(2, 0))
    session.release()
    encoder = session.begin(Plan(POLICY, 3))
    rng = np.random.default_rng(0)
    sent = []
    for user in range(2):
        report = encoder(trajectory(rng), session.open_plan, coins_of(Seeded(2, 0), user))
        assert report.trajectory is None
        sent.append(report.message)
        session.submit(report)
    with pytest.raises(ValueError, match="trajectory"):
        session.submit(Message(session.open_plan.number, trajectory(rng), sent[0]))
    session.absent()
    release = session.release()
    assert release.users == 3
    assert release.estimates[GRAM].law.terms == 2.0
    np.testing.assert_allclose(cells(session, release), sent[0] + sent[1])
    assert session.guarantee.trust == "local"
    assert session.guarantee.mu == pytest.approx(1.0)
    with pytest.raises(ValueError, match="model"):
        dr.Local(mu=1.0).start(REQUERY, Schedule(10), Seeded(0, 0))


@pytest.mark.parametrize("privatizer", [dr.Local(mu=1.0), dr.Local(epsilon=1.0)])
def test_simulated_users_bring_a_noise_each(privatizer):
    """Empty sums of 50 users in 64 runs: of over 3000 cells, variances have a relative std below 3 %, six of
    which are allowed: a false alarm has a probability below 1e-7.
    """
    tables = {"visits": (H, S, A), "transition_counts": (H, S, A, S), "reward_sums": (H, S, A)}
    nobody = {name: np.zeros(shape) for name, shape in tables.items()}
    found = []
    for seed in range(64):
        session = privatizer.start(LINEAR, Schedule(60), Seeded(seed))
        session.release()
        session.begin(Plan(POLICY, 50, dict(CONTEXT)))
        session.submit_sum(nobody, 40)
        session.submit_sum(nobody, 10)
        scales = session.channel.draws.scales * (
            1.0 if session.mechanism.noise != "laplace" else np.sqrt(2.0)
        )
        one = np.repeat(scales, np.diff(LINEAR.offsets))
        release = session.release()
        assert all(estimate.law.terms == 50.0 for estimate in release.estimates.values())
        found.append(cells(session, release) / one)
    assert np.size(found) > 3000
    assert np.var(found) == pytest.approx(50.0, rel=0.18)


@pytest.mark.parametrize("query", [SPAN, FULL, LINEAR, MODEL])
@pytest.mark.parametrize(
    "privatizer",
    [dr.Central(epsilon=1.0, delta=1e-5, release="tree"), dr.Local(rho=1.0), dr.Local(epsilon=5.0)],
)
def test_exact_noise_sums_integers(query, privatizer):
    rng, schedule = np.random.default_rng(1), Schedule(8, times=np.array([0, 2, 5]))
    session = privatizer.start(query, schedule, Secure())
    releases = play(session, [trajectory(rng) for _ in range(5)], (2, 3), Secure())
    units = np.repeat(session.channel.draws.units, np.diff(query.offsets))
    found = cells(session, releases[-1]) / units
    assert (found == np.round(found)).all()
    law = releases[-1].estimates[next(iter(query.families))].law
    assert law.family.startswith("discrete_")
    assert session.guarantee.mu is None
    session.begin(Plan(POLICY, 1, CONTEXT))
    with pytest.raises(ValueError, match="submit_sum"):
        session.submit_sum({}, 1)
    numerical.verify(session.guarantee, session.records)


# ------------------------------------------------------------------------------------ budgets

BENCH = MixtureFeatures(RNG.uniform(-1, 1, (3, 2, 3, 4)), 1.0)
ONE = MixtureFeatures(BENCH.table / BENCH.signed_bound, 1.0, bound=1.0, signed_bound=1.0)
EXAMPLE = {"layout": Layout(3, 2, 5), "features": ONE, "over_steps": "noise"}
STATED = {"epsilon": 1.0, "delta": 1e-5}


@pytest.mark.parametrize(
    ("privatizer", "options", "growth", "scale"),
    [
        (dr.Central(**STATED, release="tree"), {"targets": "raw", "clip": "horizon"}, None, None),
        (dr.Central(**STATED, release="tree"), {"targets": "raw"}, None, 525),
        (dr.Central(**STATED, release="tree"), {"targets": "centred"}, None, 131),
        (dr.Central(**STATED, release="tree"), {"targets": "span"}, None, 13.96),
        (dr.Central(**STATED, release="batches"), {"targets": "raw"}, 1.5, 140),
        (dr.Central(**STATED, release="batches"), {"targets": "centred"}, 1.5, 35),
        (dr.Central(**STATED, release="batches"), {"targets": "span"}, 1.5, 3.73),
        (dr.Local(**STATED), {"targets": "raw"}, None, 140),
        (dr.Local(**STATED), {"targets": "centred"}, None, 35),
        (dr.Local(**STATED), {"targets": "span"}, None, 3.73),
    ],
)
def test_noise_of_the_specifications_table(privatizer, options, growth, scale):
    # section 4: H = 5, K = 10^4, epsilon = 1, delta = 1e-5, F01 = F+- = 1
    session = privatizer.start(
        MixtureQuery(**EXAMPLE, **options), Schedule(10**4, growth=growth), Seeded(0, 0)
    )
    found = session.mechanism.scales
    if scale is None:  # printed for H steps: sqrt(5/4) of ours
        assert found[GRAM] * math.sqrt(5 / 4) == pytest.approx([1561] * 4, rel=1e-3)
    else:
        assert found[GRAM] == pytest.approx([scale] * 4, rel=5e-3)
    np.testing.assert_array_equal(found[GRAM], found[RESPONSE])
    assert session.guarantee.epsilon == pytest.approx(1.0, rel=1e-6)
    assert numerical.verify(session.guarantee, session.records) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("privatizer", "std", "true"), [(dr.Central, 591800, 0.0012), (dr.Local, 2693, 0.123)]
)
def test_published_noise_says_what_it_buys(privatizer, std, true):
    query = MixtureQuery(**EXAMPLE, targets="raw", clip="horizon")
    session = privatizer(**STATED, calibration="published").start(query, Schedule(10**4), Seeded(0, 0))
    assert session.mechanism.scales[GRAM] == pytest.approx([std] * 4, rel=1e-3)
    nodes = 14 if privatizer is dr.Central else 1
    mu = math.sqrt(nodes * 4 * 4.5) * 25 / session.mechanism.scales[GRAM][0]
    assert session.guarantee.mu == pytest.approx(mu, rel=1e-9)
    assert session.guarantee.epsilon == pytest.approx(true, rel=0.05)
    assert session.guarantee.epsilon == pytest.approx(budget.gdp_epsilon(mu, 1e-5))
    assert session.guarantee.epsilon_nominal == 1.0
    assert "calibration gives" in session.guarantee.statement
    session.release()
    session.begin(Plan(np.zeros((5, 3), int), 1, {"values": np.zeros((6, 3))}))
    with pytest.raises(ValueError, match="published"):
        privatizer(epsilon=1.0, calibration="published").start(query, Schedule(10**4), Seeded(0, 0))


@pytest.mark.parametrize(
    ("batches", "nodes_std", "std"), [(8, 6.5e5, 1.6e6), (19, 1.4e6, 2.8e6), (46, 2.6e6, 4.9e6)]
)
def test_published_noise_of_batched_lsvi(batches, nodes_std, std):
    # section 6 at H = 5, epsilon = 1, delta = 1e-5
    phi = Features(np.full((3, 2, 4), 0.5), 1.0)
    query = GramQuery(layout=Layout(3, 2, 5), features=phi, model=False, centre=False, span="declared")
    schedule = Schedule(10**6, times=np.arange(batches))
    session = dr.Central(**STATED, calibration="published").start(query, schedule, Seeded(0, 0))
    assert session.mechanism.scales[GRAM] == pytest.approx([nodes_std] * 5, rel=0.05)
    assert session.guarantee.epsilon < 0.01
    response = session.records[1]
    assert response.scales["0.response[4]"] == pytest.approx(std, rel=0.05)


def test_published_noise_of_second_moments():
    d, horizon = 4, 5
    query = MixtureQuery(**EXAMPLE, targets="raw", clip="horizon", second=True, largest_weight=d / horizon**2)
    central = dr.Central(**STATED, calibration="published").start(query, Schedule(10**4), Seeded(0, 0))
    local = dr.Local(**STATED, calibration="published").start(query, Schedule(10**4), Seeded(0, 0))
    scales = central.mechanism.scales
    assert scales[SECOND_GRAM][0] / scales[GRAM][0] == pytest.approx(horizon**4 / d)
    root = math.sqrt(2 * math.log(8 * horizon / 1e-5))
    assert local.mechanism.scales[GRAM][0] == pytest.approx(8 * d * horizon * root)
    assert local.guarantee.epsilon < 0.2


def test_pure_noise_follows_l1():
    session = dr.Central(epsilon=2.0, release="batches").start(SPAN, Schedule(100, growth=2.0), Seeded(0, 0))
    a, b = MIXED.signed_l1 / 2, MIXED.signed_bound / 2
    unit = MIXED.signed_bound  # of the matrix's scale, in the vector's
    np.testing.assert_allclose(session.mechanism.scales[GRAM], (a**2 + b**2 + unit * a) * (H - 1) / 2.0)
    assert session.guarantee.epsilon == pytest.approx(2.0)
    assert session.guarantee.delta == 0
    numerical.verify(session.guarantee, session.records)
    local = dr.Local(epsilon=2.0).start(MODEL, Schedule(100), Seeded(0, 0))
    assert local.guarantee.epsilon == pytest.approx(2.0)
    assert local.records[0].noise == "laplace"


def test_the_budget_is_spent_exactly_whatever_the_query():
    for query in (SPAN, FULL, LINEAR, MODEL, REQUERY):
        for privatizer in (dr.Central(epsilon=1.0, delta=1e-6), dr.Central(epsilon=0.7, release="tree")):
            session = privatizer.start(query, Schedule(50, growth=1.5), Seeded(0, 0))
            assert session.guarantee.epsilon == pytest.approx(privatizer.epsilon, rel=1e-9)
    assert set(FULL.families) >= {SECOND_GRAM, VISITS, CENTERED_REWARDS}
    assert REWARD_GRAM in LINEAR.families
    assert SUCCESSORS in MODEL.families


# ---------------------------------------------------------------------------------- questions


def test_answers_follow_the_plan_and_see_everybody_so_far():
    rng, sizes = np.random.default_rng(4), (2, 3)
    users = [trajectory(rng) for _ in range(5)]
    schedule = Schedule(8, times=np.array([0, 2, 5]))
    session = dr.NoPrivacy().start(REQUERY, schedule, Seeded(0, 0))
    private = dr.Central(mu=1.0).start(REQUERY, schedule, Seeded(0, 0))
    assert math.hypot(*(record.loss for record in private.records)) == pytest.approx(1.0)
    assert private.records[1].loss ** 2 == pytest.approx(0.5)
    come = iter(users)
    for one in (session, private):
        one.release()
        with pytest.raises(RuntimeError, match="due"):
            one.answer(Response(H - 1, VALUES[H] * 0, (0.0, 1.0)))
    count = 0
    for size in sizes:
        batch = [next(come) for _ in range(size)]
        for one in (session, private):
            encoder = one.begin(Plan(POLICY, size))
            with pytest.raises(RuntimeError, match="due"):
                one.answer(Response(H - 1, VALUES[H] * 0, (0.0, 1.0)))
            for user in batch:
                one.submit(encoder(user, one.open_plan, SeededRng(Seeded(0, 0).keys.noise, 0)))
            one.release()
        count += size
        with pytest.raises(ValueError, match="must be response of step 3"):
            session.answer(Response(0, np.zeros(S), (0.0, 1.0)))
        for h in reversed(range(H)):
            values = np.minimum(VALUES[h + 1], H - h - 1)
            question = Response(h, values, (0.0, float(H - h)))
            noisy = private.answer(question)
            centre = (values.min() + values.max() + 1) / 2
            expected = sum(
                PHI.table[u.states[h], u.actions[h]] * (u.rewards[h] + values[u.states[h + 1]] - centre)
                for u in users[:count]
            )
            np.testing.assert_allclose(session.answer(question).value, expected, atol=1e-12)
            span = values.max() - values.min() + 1
            mu = math.sqrt(0.5 / 2 * {unit.step: unit.share for unit in REQUERY.units("goe")}[h])
            assert noisy.law.std() == pytest.approx(span / mu)
            assert noisy.covers == count
        with pytest.raises(RuntimeError, match="spent"):
            session.answer(Response(H - 1, np.zeros(S), (0.0, 1.0)))


def test_capped_rounds_of_answers_are_asked_when_the_learner_likes():
    schedule, rng = Schedule(6, answers=2), np.random.default_rng(0)
    session = dr.Central(mu=1.0).start(REQUERY, schedule, Seeded(0, 0))
    every = dr.Central(mu=1.0).start(REQUERY, Schedule(6), Seeded(0, 0))
    assert session.records[1].loss == pytest.approx(every.records[1].loss)
    assert len(every.records[1].scales) == 5 * H
    assert len(session.records[1].scales) == 2 * H
    play(session, [trajectory(rng)], (1,), Seeded(0, 0))
    for k in range(1, 6):
        if k in (2, 5):
            for h in reversed(range(H)):
                session.answer(Response(h, np.zeros(S), (0.0, float(H - h))))
        if k < 5:
            encoder = session.begin(Plan(POLICY, 1))
            session.submit(encoder(trajectory(rng), session.open_plan, SecureRng()))
            session.release()
    with pytest.raises(RuntimeError, match="spent"):
        session.answer(Response(H - 1, np.zeros(S), (0.0, 1.0)))


@pytest.mark.parametrize(("batches", "node", "response"), [(8, 20.4, 104), (19, 26.4, 166), (46, 28.9, 262)])
def test_noise_of_batched_lsvi(batches, node, response):
    # section 6 at H = 5, epsilon = 1, delta = 1e-5: halves to each, one scale over steps
    phi = Features(np.full((3, 2, 4), 0.5), 1.0)
    layout, schedule = Layout(3, 2, 5), Schedule(10**6, times=np.arange(batches))
    shares = tuple(b**2 / 55 for b in (5, 4, 3, 2, 1))
    for over, name, expected in (("flat", GRAM, node), (shares, "response", response)):
        query = GramQuery(layout=layout, features=phi, model=False, over_steps=over)
        session = dr.Central(**STATED, release="tree").start(query, schedule, Seeded(0, 0))
        if name == GRAM:
            assert session.mechanism.scales[GRAM] == pytest.approx([expected] * 5, rel=0.01)
        else:
            found = [session.records[1].scales[f"{4 - h}.response[{h}]"] * (5 - h) for h in range(5)]
            assert found == pytest.approx([expected] * 5, rel=0.01)
        assert session.guarantee.epsilon == pytest.approx(1.0)


def test_answers_under_exact_noise_and_in_simulation():
    schedule = Schedule(8, times=np.array([0, 2, 5]))
    rng = np.random.default_rng(0)
    session = dr.Central(epsilon=1.0, delta=1e-6).start(REQUERY, schedule, Secure())
    play(session, [trajectory(rng), trajectory(rng)], (2,), Secure())
    assert session.answer(Response(H - 1, np.zeros(S), (0.0, 1.0))).law.family == "discrete_gaussian"
    other = dr.NoPrivacy().start(MODEL, schedule, Seeded(0, 0))
    with pytest.raises(ValueError, match="stores no users"):
        other.answer(Response(0, np.zeros(S), (0.0, 1.0)))


# ------------------------------------------------------------------------------------- the door


@dataclass(frozen=True)
class Still:
    """A learner that plays one policy and keeps what it was told."""

    query_: object
    growth: float | None = None
    asks: bool = False

    def schedule(self, spec):
        return Schedule(spec.users, growth=self.growth)

    def query(self, spec):
        return self.query_

    def begin(self, spec, ties):
        return {"schedule": self.schedule(spec), "horizon": spec.horizon, "states": spec.states, "seen": []}

    def plan(self, state, release, ask):
        times = np.append(state["schedule"].release_times, state["schedule"].users)
        at = int(np.searchsorted(times, release.users))
        if self.asks and release.number:
            for h in reversed(range(state["horizon"])):
                high = float(state["horizon"] - h)
                ask(Response(h, np.linspace(0, high - 1, state["states"]), (0.0, high)))
        values = np.zeros((state["horizon"] + 1, state["states"]))
        values[: state["horizon"]] = np.linspace(0, 1, state["states"])
        policy = np.zeros((state["horizon"], state["states"]), np.int64)
        KEPT.append(release)
        return Plan(policy, int(times[at + 1] - times[at]), {"values": values}), state


KEPT: list = []


@pytest.mark.parametrize("by", ["episode", "batch"])
@pytest.mark.parametrize("kind", ["mixture", "model", "requery"])
def test_simulations_need_no_special_case(by, kind):
    world = linear_mixture(states=4, actions=2, horizon=3)
    phi = Features(np.full((4, 2, 2), 0.5), 1.0)
    query = {
        "mixture": MixtureQuery(layout=world.layout, features=world.features, rewards="tabular"),
        "model": GramQuery(layout=world.layout, features=phi),
        "requery": GramQuery(layout=world.layout, features=phi, model=False),
    }[kind]
    learner = Still(query, 2.0, kind == "requery")
    privatizers = [dr.NoPrivacy(), dr.Central(epsilon=1.0, delta=1e-6)]
    if kind != "requery":
        privatizers.append(dr.Local(epsilon=1.0, delta=1e-6))
    for privatizer in privatizers:
        KEPT.clear()
        result = dr.simulate(world, learner, privatizer, 60, seeds=1, by=by, workers=1)
        told = estimate_run(Setup(world, learner, privatizer, 60, by))
        assert told.cells == query.cells
        assert told.per == "noise of one sum"
        assert np.isfinite(result.regret).all()
        release = KEPT[-1]
        if privatizer == dr.NoPrivacy() and kind != "mixture":  # every user adds phi phi^T = 1/4 each step
            np.testing.assert_allclose(release.estimates[GRAM].value, np.full((3, 2, 2), release.users / 4))


@pytest.mark.parametrize("query", [SPAN, MODEL])
@pytest.mark.parametrize(
    "privatizer", [dr.Central(mu=1.0), dr.Central(mu=1.0, release="batches"), dr.Local(mu=1.0)]
)
def test_laws_are_known_before_anybody_comes(query, privatizer):
    schedule, rng = Schedule(20, growth=2.0), np.random.default_rng(0)
    session = privatizer.start(query, schedule, Seeded(0, 0))
    releases = play(session, [trajectory(rng) for _ in range(16)], (1, 1, 2, 4, 8), Seeded(0, 0))
    for release in releases[1:]:
        before = privatizer.start(query, schedule, Seeded(0, 0)).laws_at(release.users)
        assert before == {name: one.law for name, one in release.estimates.items()}
    options = privatizer.choices(query, schedule, Seeded(0, 0))
    assert [one.error for one in options] == sorted(one.error for one in options)
    assert all(one.name and one.noise == "Gaussian" for one in options)


@pytest.mark.parametrize(
    ("privatizer", "schedule", "message"),
    [
        (dr.Central(mu=1.0, weights=(0.5, 0.5)), Schedule(9), "weights"),
        (dr.Central(mu=1.0, release="decaying"), Schedule(9), "release"),
        (dr.Central(epsilon=1.0, release="signed-digits"), Schedule(9), "release"),
        (dr.Central(mu=1.0), Schedule(None), "users"),
        (dr.Central(mu=1.0), Schedule(9, reads="measurements"), "reads"),
        (dr.Local(epsilon=1.0, randomizer="subset"), Schedule(9), "randomizer"),
    ],
)
def test_options_that_do_not_fit_are_refused(privatizer, schedule, message):
    with pytest.raises(ValueError, match=message):
        privatizer.start(SPAN, schedule, Seeded(0, 0))


# ------------------------------------------------------------------- exact noise, square-root walk


@pytest.mark.parametrize("query", [FULL, MODEL])
def test_exact_square_root_without_its_noise_is_the_exact_sum(query, monkeypatch):
    """Also where a release was not asked for."""
    rng, schedule = np.random.default_rng(3), Schedule(12, times=np.array([0, 2, 5, 6, 9]))
    users = [trajectory(rng) for _ in range(9)]
    monkeypatch.setattr(LinearChannel, "draw", lambda self, i, factor, j: np.zeros(self.query.cells))
    sums = []
    for asked in (True, False):
        session = dr.Central(rho=0.5, release="square-root").start(query, schedule, Secure())
        session.release()
        at = 0
        for size in (2, 3, 1, 3):
            encoder = session.begin(Plan(POLICY, size, dict(CONTEXT)))
            for _ in range(size):
                session.submit(encoder(users[at], session.open_plan, SecureRng()))
                at += 1
            if asked or at in (2, 9):
                release = session.release()
        sums.append(cells(session, release))
    scale = np.repeat(session.channel.draws.units, np.diff(query.offsets))
    exact = sum(query.to_cells(query.user_tables(query.prepared(CONTEXT), user)) for user in users)
    for found in sums:
        np.testing.assert_allclose(found, exact, atol=9 * 2.0**-9)
    rounding = np.abs(sums[0] - sums[1]) / scale  # rewards are rounded at random: times x, 2^12 units
    assert rounding.max() <= 9 * 2.0**12


@pytest.mark.parametrize("query", [FULL, SPAN, MODEL])
def test_exact_square_root_readings_lose_at_most_rho_whoever_is_exchanged(query, monkeypatch):
    """All measurements, in integers, at the scales at which noise is drawn; releases are skipped at will."""
    rng, schedule = np.random.default_rng(8), Schedule(9, times=np.array([0, 2, 3, 6, 8]))
    scales = []

    def silent(self, coins, factor=1.0):
        scales.append(factor * self.scales)
        return np.zeros(self.offsets[-1])

    monkeypatch.setattr("discreet.mechanisms.linear.linear_session.NoiseDraws.from_coins", silent)
    worst = 0.0
    for _ in range(12):
        users, who, asked = [trajectory(rng) for _ in range(8)], int(rng.integers(8)), rng.random(3) < 0.6
        readings = []
        for world in range(2):
            if world:
                users[who] = trajectory(rng)
            session = dr.Central(rho=0.5, release="square-root").start(query, schedule, Secure())
            session.release()
            for begin, end, due in zip((0, 2, 3, 6), (2, 3, 6, 8), (*asked, True), strict=True):
                encoder = session.begin(Plan(POLICY, end - begin, dict(CONTEXT)))
                for user in users[begin:end]:
                    session.submit(encoder(user, session.open_plan, SecureRng()))
                if due:
                    session.release()
            readings.append(session.state["root"][2])
        assert readings[0].shape[0] == 4
        sigma = np.repeat(scales[-1], np.diff(query.offsets))
        assert all(np.array_equal(one, scales[-1]) for one in scales)
        worst = max(worst, float((((readings[1] - readings[0]) / sigma) ** 2).sum()) / 2)
    assert 0.01 < worst <= session.guarantee.rho * (1 + 1e-9)


def test_exact_square_root_noise_is_what_its_law_and_record_say(monkeypatch):
    """Nobody sends anything: variances over 1100 cells, relative std 4.3 %; 5.5 of them, below 1e-7 each."""
    source = random.Random(5).randrange
    monkeypatch.setattr("discreet.mechanisms.linear.linear_session.SecureRng", lambda: ExactCoins(source))
    phi = Features(np.eye(20).reshape(4, 5, 20), 1.0, l1=1.0, nonneg=True)
    query = GramQuery(layout=Layout(4, 5, 6), features=phi, over_steps="noise", model=True, rewards=False)
    privatizer = dr.Central(rho=0.5, release="square-root")
    session = privatizer.start(query, Schedule(6), Secure())
    assert session.records[0].noise == "discrete_gaussian"
    numerical.verify(session.guarantee, session.records)
    assert session.guarantee.rho == pytest.approx(0.5)
    assert "square root" in session.guarantee.statement
    session.release()
    last = np.zeros((5, 190))
    for n in range(1, 6):
        session.begin(Plan(np.zeros((6, 4), int), 1))
        session.absent()
        found = session.release().estimates[GRAM]
        assert found.law.family == "discrete_gaussian"
        above = found.value[:, *np.triu_indices(20, 1)]
        assert above.var() == pytest.approx(found.law.std(0) ** 2, rel=0.3)
        assert found.law.terms == pytest.approx(noise_of(session._mechanism.walk).terms(n))
        assert n == 1 or np.corrcoef(above.ravel(), last.ravel())[0, 1] > 0.3  # noise is carried on
        last = above
    with pytest.raises(ValueError, match="leaf"):
        dr.Central(rho=0.5, release="square-root", leaf="user").start(query, Schedule(6), Secure())


def test_auto_takes_the_square_root_with_exact_noise_too():
    for randomness in (Secure(), Seeded(0, 0)):
        found = dr.Central(epsilon=1.0, delta=1e-5).choices(SPAN, Schedule(2000, growth=1.2), randomness)
        assert found[0].name == "square-root"
    assert "square-root" not in {
        c.name for c in dr.Central(epsilon=1.0).choices(SPAN, Schedule(99), Secure())
    }
