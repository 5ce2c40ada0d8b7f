"""Whole runs of the linear learners against the guarantee (specification linear-and-offline, section 12).

Test 2: one trajectory replaced, the same releases forced; what all noise must hide, together, is at most mu.
Test 5: equal releases, other people: equal bytes outside the core. Test 4: noise of answers. Test 8: the
number of questions. Then faults that were found by attack, each with what it did.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from interrupts import interrupted

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectory
from discreet.envs.linear_envs import linear_mixture, random_linear
from discreet.envs.rollouts.rollout import rollout
from discreet.envs.synthetic_linear import synthetic_linear_mdp
from discreet.experiments.simulate import Setup
from discreet.learners.offline.linear_pevi import DPVAPVI
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus
from discreet.mechanisms.features import Features, MixtureFeatures, one_hot
from discreet.mechanisms.interfaces import Plan, Response, Schedule
from discreet.mechanisms.linear import dataset_sums as stored
from discreet.mechanisms.linear.adaptive_queries import ResponseSession
from discreet.mechanisms.linear.linear_queries import GRAM, GramQuery, MixtureQuery
from discreet.mechanisms.linear.linear_session import LinearChannel
from discreet.mechanisms.seeded_rng import SeededRng

MU, USERS = 0.6, 30
MIXTURE = linear_mixture(states=4, actions=2, horizon=3, models=3, seed=1)
LINEAR = random_linear(states=4, actions=2, horizon=3, dimension=3, seed=1)
LEARNERS = [
    UCRLVTR(bonus_scale=0.1),
    UCRLVTR(targets="raw", clip="horizon", known_rewards=False),
    UCRLVTRPlus(targets="centred"),
    LSVIUCB(replan_every=6, response="model"),
    LSVIUCB(replan_every=6, response="requery"),
    LSVIUCB(replan_every=3, response="requery", centre=False, switching="determinant", switches=2),
]


def world_of(learner):
    return LINEAR if isinstance(learner, LSVIUCB) else MIXTURE


def random_user(rng, layout):
    """Half of them with rewards at the ends of their range."""
    rewards = rng.choice([0.0, 1.0, rng.uniform()], layout.horizon)
    states = rng.integers(layout.states, size=layout.horizon + 1)
    return Trajectory(states, rng.integers(layout.actions, size=layout.horizon), rewards)


def run(learner, session, setup, users=None, forced=None):
    """Plans, releases and (question, answer) by release; with ``forced`` the learner sees those instead."""
    world, spec = setup.mdp, setup.spec
    state, noise = learner.begin(spec, Seeded(1, 0).keys.ties), Seeded(1, 0).keys.noise
    environment = Seeded(1, 0).keys.environment
    plans, releases, asked, people = [], [], [], []
    while len(people) < setup.episodes:
        own = []

        def ask(question, own=own):
            at = len(own)
            found = session.answer(question)
            own.append((question, found))
            return found if forced is None else forced[1][len(releases) - 1][at][1]

        releases.append(session.release())
        shown = releases[-1] if forced is None else forced[0][len(releases) - 1]
        plan, state = learner.plan(state, shown, ask)
        asked.append(own)
        encoder = session.begin(plan)
        plans.append((session.open_plan, state))
        for _ in range(plan.users):
            k = len(people)
            user = rollout(world, plan.policy, environment, k) if users is None else users[k]
            session.submit(encoder(user, session.open_plan, SeededRng(noise, k)))
            people.append(user)
    return plans, releases, asked, people


def sums_of(setup, learner, users, plans, asked):
    """Pre-noise sums of all releases and answers of these users, under the plans and questions given."""
    session = dr.NoPrivacy().start(learner.query(setup.spec), learner.schedule(setup.spec), Seeded(1, 0))
    answers, at, cells = [], 0, []
    for (plan, _), questions in zip(plans, asked, strict=True):
        release = session.release()
        cells.append({name: np.asarray(one.value) for name, one in release.estimates.items()})
        answers += [session.answer(question).value for question, _ in questions]
        encoder = session.begin(dataclasses.replace(plan, number=0))
        for user in users[at : at + plan.users]:
            session.submit(encoder(user, session.open_plan, SeededRng(Seeded(1, 0).keys.noise, 0)))
        at += plan.users
    return cells, answers


def spent(session, one, other):
    """(mu of the running sums, mu of the answers) of two runs, from the scales of the noise that is drawn."""
    query, total = session.query, 0.0
    change = {name: other[0][-1][name] - one[0][-1][name] for name in query.families}
    for name, moved in change.items():
        per_step = np.square(moved).reshape(len(moved), -1).sum(axis=1)
        if query.is_gram(name):
            per_step /= 2.0  # GOE(s): the Frobenius norm over sqrt(2) s
        total += float((per_step / session.mechanism.scales[name] ** 2).sum())
    return math.sqrt(total * session.records[0].levels), change


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("release", ["batches", "tree"])
def test_a_replaced_user_moves_everything_that_is_released_by_at_most_mu(learner, release):
    setup = Setup(world_of(learner), learner, dr.Central(mu=MU, release=release), USERS)
    session = setup.privatizer.start(learner.query(setup.spec), learner.schedule(setup.spec), Seeded(1, 0))
    assert math.hypot(*(record.loss for record in session.records)) == pytest.approx(MU)
    plans, _, asked, users = run(learner, session, setup)
    assert any(asked) == (learner == LEARNERS[4] or learner == LEARNERS[5])
    base = sums_of(setup, learner, users, plans, asked)
    scales = [found.law.std() for questions in asked for _, found in questions]
    rng, worst = np.random.default_rng(0), 0.0
    for k in [0, 0, 0, 5, 11, 17] * 3:
        others = [*users[:k], random_user(rng, setup.mdp.layout), *users[k + 1 :]]
        found = sums_of(setup, learner, others, plans, asked)
        sums, final = spent(session, base, found)
        for before, after in zip(base[0], found[0], strict=True):  # one summand, in every later sum
            for name, moved in final.items():
                difference = after[name] - before[name]
                np.testing.assert_allclose(difference, moved if difference.any() else 0.0, atol=1e-9)
        parts = [
            float(np.linalg.norm(a - b)) / scale
            for a, b, scale in zip(base[1], found[1], scales, strict=True)
        ]
        worst = max(worst, math.hypot(sums, *parts))
    assert MU / 4 < worst <= MU * (1 + 1e-9)


def test_the_worst_user_spends_all_of_mu():
    """Span targets with |phi_v| one unit vector: through a session, batches; lemma 3 at its maximiser."""
    table = np.zeros((2, 2, 2, 2))
    table[:, 0, :, 0], table[:, 1, :, 0] = (0.5, -0.5), (-0.5, 0.5)
    query = MixtureQuery(layout=Layout(2, 2, 2), features=MixtureFeatures(table, 2.0))
    values, found = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), []
    for to in (0, 1):
        session = dr.Central(mu=MU, release="batches").start(
            query, Schedule(3, times=np.array([0, 1, 2])), Seeded(0, 0)
        )
        for k in range(2):
            session.release()
            encoder = session.begin(Plan(np.zeros((2, 2), int), 1, {"values": values}))
            user = Trajectory(np.array([0, to if k == 0 else 0, 0]), np.array([0, 0]), np.zeros(2))
            session.submit(encoder(user, session.open_plan, SeededRng(Seeded(0, 0).keys.noise, k)))
        found.append(session.release().estimates)
    moved = [
        np.linalg.norm(found[0][name].value - found[1][name].value) / session.mechanism.scales[name][0]
        for name in (GRAM, "response")
    ]
    assert math.hypot(moved[0] / math.sqrt(2), moved[1]) == pytest.approx(MU)


@pytest.mark.parametrize("learner", LEARNERS)
def test_equal_releases_give_equal_bytes_whoever_came(learner):
    setup = Setup(world_of(learner), learner, dr.Central(mu=MU), USERS)

    def session():
        return setup.privatizer.start(learner.query(setup.spec), learner.schedule(setup.spec), Seeded(1, 0))

    plans, releases, asked, _ = run(learner, session(), setup)
    rng = np.random.default_rng(3)
    people = [random_user(rng, setup.mdp.layout) for _ in range(USERS)]
    others, real, questions, _ = run(learner, session(), setup, people, (releases, asked))
    assert not np.array_equal(real[-1].estimates[GRAM].value, releases[-1].estimates[GRAM].value)
    for (plan, state), (plan_other, state_other) in zip(plans, others, strict=True):
        assert plan.policy.tobytes() == plan_other.policy.tobytes()
        assert plan.users == plan_other.users
        assert state.q.tobytes() == state_other.q.tobytes()
        assert {k: v.tobytes() for k, v in plan.context.items()} == {
            k: v.tobytes() for k, v in plan_other.context.items()
        }
    for one, other in zip(releases, real, strict=True):  # nor do laws, times and guarantees
        assert (one.users, one.number, one.guarantee) == (other.users, other.number, other.guarantee)
        assert all(one.estimates[name].law == other.estimates[name].law for name in one.estimates)
    for (one, a), (other, b) in zip(itertools.chain(*asked), itertools.chain(*questions), strict=True):
        assert one.values.tobytes() == other.values.tobytes()
        assert (one.step, one.interval, a.law) == (other.step, other.interval, b.law)


# ------------------------------------------------------------------------ noise and number of answers


def big_session(batches, **budget):
    d = 60
    phi = Features(np.eye(d).reshape(6, 10, d), 1.0)
    query = GramQuery(layout=Layout(6, 10, 3), features=phi, model=False)
    times = np.arange(batches)
    return dr.Central(**budget).start(query, Schedule(10**4, times=times), Seeded(4, 0))


def test_answers_have_noise_of_their_own_and_their_number_is_the_plan():
    """1080 draws of answers beside the Gram's diagonal: |r| < 5.5 / sqrt(1080), false alarms below 1e-6."""
    batches, horizon, d = 7, 3, 60
    session = big_session(batches, mu=1.0, release="batches")
    before, diagonal, drawn = np.zeros((horizon, d, d)), [], []
    session.release()
    guarantee = session.guarantee
    for _ in range(batches - 1):
        session.begin(Plan(np.zeros((horizon, 6), int), 1))
        session.absent()
        gram = session.release().estimates[GRAM].value
        for h in reversed(range(horizon)):
            span = 0.5 + 0.5 * h
            values = np.linspace(0, 0.5 * (horizon - 1 - h), 6)
            found = session.answer(Response(h, values, (0.0, float(horizon - h))))
            assert found.law.std() == pytest.approx((1 + values[-1]) * base(session, h), rel=1e-9), span
            drawn.append(found.value / found.law.std())
            diagonal.append(np.diag((gram - before)[h]) / (math.sqrt(2) * session.mechanism.scales[GRAM][h]))
        before = gram
    assert len(drawn) == (batches - 1) * horizon
    with pytest.raises(RuntimeError, match="spent"):
        session.answer(Response(horizon - 1, np.zeros(6), (0.0, 1.0)))
    assert session.guarantee == guarantee  # whatever the ranges were
    y, x = np.array(drawn), np.array(diagonal)
    limit = 5.5 / math.sqrt(y.size)
    assert y.var() == pytest.approx(1.0, abs=5.5 * math.sqrt(2 / y.size))
    assert x.var() == pytest.approx(1.0, abs=5.5 * math.sqrt(2 / y.size))
    for a, b in ((x, y), (y[:-1], y[1:]), (y[:-horizon], y[horizon:]), (x[:-horizon], x[horizon:])):
        assert abs((a * b).mean()) < limit * 1.2
    # no answer has the draws of any Gram matrix or other answer: 60 cells, beyond .8 with probability 1e-14
    assert np.abs(np.triu(np.corrcoef(np.vstack([x, y])), 1)).max() < 0.8


@pytest.mark.parametrize("randomness", [Seeded(0, 0), Secure()])
@pytest.mark.parametrize("release", ["batches", "tree", "square-root"])
def test_no_address_of_noise_is_drawn_twice(release, randomness, monkeypatch, tmp_path):
    """Exact noise has no address: drawn again, also after a restore, it is another noise on the same sum."""
    query = GramQuery(layout=Layout(3, 2, 3), features=one_hot(3, 2))
    session = dr.Central(rho=0.5, release=release).start(query, Schedule(17), randomness)
    drawn, draw = [], LinearChannel.draw

    def recorded(self, i, factor, j):
        drawn.append((i, j))
        return draw(self, i, factor, j)

    monkeypatch.setattr(LinearChannel, "draw", recorded)
    session.release()
    for n in range(16):
        session.begin(Plan(np.zeros((3, 3), int), 1))
        session.absent()
        if n in (7, 10):
            session.save(tmp_path / "state")
            session = dr.mechanisms.restore(tmp_path / "state", tmp_path / "table")
        session.release()
        session.release()
    assert len(drawn) == len(set(drawn)) >= 16


def base(session, step):
    """Standard deviation of an answer per unit of its range, by the records."""
    scales = session.records[1].scales
    return next(scale for name, scale in scales.items() if name.endswith(f"response[{step}]"))


def test_what_the_printed_noise_costs_on_the_papers_raw_features():
    """Test 3: 200 pairs enumerated, 23.18 rho, statistic by statistic; a contract states up to 40.38."""
    features = synthetic_linear_mdp(raw_features=True).features
    layout, phi = Layout(2, 100, 20), features.rows
    plan = DPVAPVI(rho=1.0, preset="figure-1").questions(layout, features)
    session = ResponseSession(layout, features, plan, Seeded(0))
    inner = phi @ phi.T
    lengths = np.diag(inner)
    matrix = (lengths[:, None] ** 2 + lengths[None] ** 2 - 2 * inner**2).max()  # ||x x^T - x' x'^T||_F^2
    vector = (lengths[:, None] + lengths[None] - 2 * inner).max()  # both targets at the top of their range
    assert (matrix, vector, lengths.max()) == pytest.approx((57, 9, 7))
    rho = 0.0
    for name, scale in session.records[0].scales.items():
        rho += (matrix / 4 if ".gram[" in name else max(vector, lengths.max()) / 2) / scale**2
    assert rho == pytest.approx(23.18, abs=0.01)
    assert rho <= session.guarantee.rho <= 40.38  # the features are declared nonnegative


# ------------------------------------------------------------------------------ found by attack

PHI = Features(np.full((3, 2, 2), 0.5), 1.0)
QUERY = GramQuery(layout=Layout(3, 2, 2), features=PHI, model=False)
POLICY = np.zeros((2, 3), int)


def test_a_release_that_was_skipped_brought_no_noise():
    # laws spoke of three noises where one was drawn
    query = dataclasses.replace(QUERY, model=True)
    schedule = Schedule(10, times=np.array([0, 1, 2, 4, 6]))
    session = dr.Central(mu=1.0, release="batches").start(query, schedule, Seeded(0, 0))
    session.release()
    for users, terms in ((4, 1.0), (2, 2.0)):
        session.begin(Plan(POLICY, users))
        session.absent(users)
        laws = [one.law for one in session.release().estimates.values()]
        assert {law.terms for law in laws} == {law.terms_bound for law in laws} == {terms}
    assert session.laws_at(6)[GRAM].terms == 4.0


def test_users_who_cannot_be_stored_are_refused_before_they_are_counted(monkeypatch):
    # they were counted as users, and then nothing of theirs was added
    monkeypatch.setattr(stored, "MOST_CELLS", 1)
    session = dr.Central(mu=1.0).start(QUERY, Schedule(8, times=np.array([0, 4])), Seeded(0, 0))
    session.release()
    session.begin(Plan(POLICY, 4))
    sums = {"visits": np.ones((2, 3, 2)), "reward_sums": np.zeros((2, 3, 2))}
    sums["transition_counts"] = np.ones((2, 3, 2, 3))
    with pytest.raises(ValueError, match="user by user"):
        session.submit_sum(sums, 3)
    assert session.users == 0
    session.absent(4)
    session.release()
    large = dr.Central(mu=1.0).start(QUERY, Schedule(10**10, times=np.array([0, 10**9])), Seeded(0, 0))
    large.release()
    with pytest.raises(ValueError, match="are not exact"):
        large.begin(Plan(POLICY, 10**9))
    secure = dr.Central(epsilon=1.0, delta=1e-6).start(QUERY, Schedule(4), Secure())
    secure.release()
    secure.begin(Plan(POLICY, 1))
    with pytest.raises(ValueError, match="secure"):
        secure.submit_sum(sums, 1)
    assert secure.users == 0


@pytest.mark.parametrize("size", [3e-81, 1e-81, 1e77])
def test_bounds_whose_powers_are_no_numbers_are_refused(size):
    # at 3e-81 the fourth power has one digit: a budget of mu = 1 gave noise of mu = 1.0009
    with pytest.raises(ValueError, match="bound = .*must be"):
        Features(np.full((3, 2, 1), size), size)
    table = np.full((3, 2, 3, 1), size)
    for bound in (None, 4 * size):
        with pytest.raises(ValueError, match="bound.* = .*must be"):
            MixtureFeatures(table, 1.0, bound=bound)
    features = MixtureFeatures(table / size, 1.0)
    with pytest.raises(ValueError, match="largest_weight"):
        MixtureQuery(layout=Layout(3, 2, 2), features=features, largest_weight=size)


@pytest.mark.parametrize("release", ["batches", "tree", "square-root"])
def test_an_interrupt_anywhere_loses_no_release_and_adds_nobody_twice(release):
    """Ctrl-C at every line: the next call goes on; a person is in a sum once at most, counted if she is."""
    rng, files = (
        np.random.default_rng(0),
        (
            "mechanisms/linear/linear_session.py",
            "core/session.py",
            "mechanisms/linear/adaptive_queries.py",
        ),
    )
    apart = ("_call", "_count")  # no calls within, so that Python handles no signal there
    users = [random_user(rng, QUERY.layout) for _ in range(6)]
    query = QUERY if release == "batches" else dataclasses.replace(QUERY, model=True)
    stopped, at = True, 0
    while stopped:
        session = dr.Central(mu=1.0, release=release).start(
            query, Schedule(9, times=np.array([0, 2, 3, 6])), Seeded(0, 0)
        )
        drawn = []

        def draw(key, i, j, factor=1.0, drawn=drawn, session=session):
            drawn.append((i, j))
            return np.zeros(session.channel.draws.offsets[-1])

        session.channel.draws.at = draw
        session.release()
        total, k, stopped = 0.0, 0, False
        for size in (2, 1, 3):
            encoder = session.begin(Plan(POLICY, size))
            for user in users[k : k + size]:
                before = session.users
                report = encoder(user, session.open_plan, SeededRng(Seeded(0, 0).keys.noise, k))
                cells = session.state["cells"].copy()
                again = k < 2 and interrupted(
                    lambda r=report, s=session: s.submit(r), at, files=files, besides=apart
                )
                stopped |= again
                if k >= 2:
                    session.submit(report)
                if again and session.users == before:
                    assert np.array_equal(session.state["cells"], cells)
                    session.submit(report)
                assert session.users == before + 1
                total = total + (session.state["cells"] - cells)
                k += 1
            if k == 3:
                stopped |= interrupted(session.release, at, files=files, besides=apart)
            found = session.release()
            law = found.estimates[GRAM].law
            assert law.terms == session.state["noises"] or release != "batches"
            mine = query.from_cells(total)
            for name in query.families:
                np.testing.assert_allclose(found.estimates[name].value, mine[name], atol=1e-12)
            assert release != "batches" or len(set(drawn)) == len(drawn)  # no noise for two sums
            if query is QUERY and k == 3:
                question = Response(1, np.zeros(3), (0.0, 1.0))
                spent = session.state["answers"].asked
                stopped |= interrupted(
                    lambda q=question, s=session: s.answer(q), at, files=files, besides=apart
                )
                assert session.state["answers"].asked in (spent, spent + 1)
        at += 1
    assert at > 30
