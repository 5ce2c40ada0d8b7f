"""The core of re-evaluated sums: budget, order, doors, shift of neighbours, exact noise."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from discreet.accounting import budget
from discreet.accounting.noise_distributions import distributions as laws
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectories
from discreet.envs import random_mdp
from discreet.envs.mdp.planning import uniform_policy
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.mechanisms.features import Features, one_hot
from discreet.mechanisms.interfaces import Response
from discreet.mechanisms.linear import dataset_sums as stored
from discreet.mechanisms.linear import sensitivities as gram
from discreet.mechanisms.linear.adaptive_queries import Question, ResponseSession

S, A, H, D = 4, 3, 3, 5
LAYOUT = Layout(S, A, H)


def features(seed=0, nonneg=True):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(D, 0.4), (S, A)) if nonneg else rng.normal(size=(S, A, D)) / 5
    return Features(table, float(np.linalg.norm(table, axis=2).max()), nonneg=nonneg)


def people(n=200, seed=0):
    mdp = random_mdp(states=S, actions=A, horizon=H, seed=2)
    return rollout_batch(mdp, uniform_policy(mdp), n, seed)


def full_plan(mu):
    """Every kind of question, with and without centring."""
    return [
        Question(kind="gram", step=2, mu=mu),
        Question(kind="response", step=2, mu=mu, low=0, high=3),
        Question(kind="pair", step=1, mu=mu, low=0, high=3),
        Question(kind="pair", step=1, mu=mu, low=0, high=3, centre=False),
        Question(kind="response", step=1, mu=mu, low=-4, high=4, centre=False, reward=False),
        Question(kind="response", step=0, mu=mu, low=0, high=9, reward=False, span="declared"),
        Question(kind="model", step=0, mu=mu),
        Question(kind="start", step=0, mu=mu, reward=False),
    ]


VALUES = [np.array(v) for v in ([0.0, 1, 2, 0.5], [1, 1.2, 0.7, 0.1], [-1, 2, 0, 3.0], [0, 1, 4, 9.0])]
WEIGHTS = np.linspace(0.2, 1.0, S * A).reshape(S, A)


def ask_all(session):
    return [
        session.gram(2, WEIGHTS),
        session.response(2, VALUES[0]),
        session.pair(1, VALUES[1], WEIGHTS),
        session.pair(1, VALUES[1]),
        session.response(1, VALUES[2], WEIGHTS),
        session.response(0, VALUES[3]),
        session.model(0),
        session.start(),
    ]


def session_of(plan, data, phi=None, randomness=None):
    session = ResponseSession(LAYOUT, phi or features(), plan, randomness or Seeded(3))
    session.submit_many(data)
    return session


def test_exact_answers_are_the_sums_by_definition():
    data, phi = people(), features()
    answers = ask_all(session_of(full_plan(None), data))
    gram_sum, vector = np.zeros((D, D)), np.zeros(D)
    moved, rewards = np.zeros((D, S)), np.zeros(D)
    third, fourth = answers[2], answers[4]
    for user in data:
        x = phi.table[user.states[1], user.actions[1]]
        w = WEIGHTS[user.states[1], user.actions[1]]
        gram_sum += w * np.outer(x, x)
        vector += w * x * (user.rewards[1] + VALUES[1][user.states[2]] - third.centre)
        first = phi.table[user.states[0], user.actions[0]]
        moved += np.outer(first, np.eye(S)[user.states[1]] - 1 / S)
        rewards += first * (user.rewards[0] - 0.5)
    np.testing.assert_allclose(third.gram, gram_sum, atol=1e-10)
    np.testing.assert_allclose(third.vector, vector, atol=1e-10)
    assert third.centre == pytest.approx((0.1 + 2.2) / 2)
    assert fourth.centre == 0.0
    np.testing.assert_allclose(answers[6].successors, moved, atol=1e-10)
    np.testing.assert_allclose(answers[6].rewards, rewards, atol=1e-10)


def loss_of(question, one, other, states):
    """(mu of the noise on the shift between two exact answers), from the scales that are drawn."""
    squared = 0.0
    if one.gram is not None:
        squared += (np.linalg.norm(one.gram - other.gram) / (math.sqrt(2) * question.gram_scale)) ** 2
    for name in ("vector", "successors", "rewards"):
        a, b = getattr(one, name), getattr(other, name)
        if a is not None:
            squared += (np.linalg.norm(a - b) / getattr(question, f"{name}_scale")) ** 2
    return math.sqrt(squared)


@pytest.mark.parametrize("randomness", [Seeded(3), Secure()])
@pytest.mark.parametrize("nonneg", [True, False])
def test_no_neighbour_shifts_an_answer_by_more_than_its_mu(nonneg, randomness):
    """End to end (test 2 of the specification): 60 replaced users, all kinds of question."""
    phi, mu, data = features(1, nonneg), 0.4, people(30)
    scales = ask_all(session_of(full_plan(mu), data, phi, randomness))
    base = ask_all(session_of(full_plan(None), data, phi, randomness))
    rng, worst = np.random.default_rng(0), 0.0
    for trial in range(60):
        states, actions, rewards = data.states.copy(), data.actions.copy(), data.rewards.copy()
        at = rng.integers(30)
        states[at], actions[at] = rng.integers(S, size=H + 1), rng.integers(A, size=H)
        rewards[at] = rng.integers(2, size=H) if trial % 2 else rng.uniform(size=H)
        other = ask_all(session_of(full_plan(None), Trajectories(states, actions, rewards), phi, randomness))
        losses = [loss_of(*trio, S) for trio in zip(scales, base, other, strict=True)]
        worst = max(worst, *losses)
        assert max(losses) <= mu * (1 + 1e-9)
    assert worst > mu / 3


def test_guarantee_is_known_before_data_and_is_the_plan():
    plan = full_plan(0.2)
    session = ResponseSession(LAYOUT, features(), plan, Seeded(1), delta=1e-5)
    mu = 0.2 * math.sqrt(len(plan))
    assert session.guarantee.mu == pytest.approx(mu, rel=1e-12)
    assert session.guarantee.epsilon == pytest.approx(budget.gdp_epsilon(mu, 1e-5), rel=1e-9)
    assert session.budget_left() == pytest.approx(mu**2, rel=1e-12)
    before = session.guarantee
    session.submit_many(people())
    ask_all(session)
    assert session.guarantee is before
    assert session.budget_left() == 0.0


def test_halves_cost_once_and_hold_each_user_once():
    for heavier in (0, 1):
        asked = ((0.3, 1 - heavier), (0.4, heavier))
        plan = [Question(kind="gram", step=0, mu=mu, half=half) for mu, half in asked]
        assert ResponseSession(LAYOUT, features(), plan, Seeded(1)).guarantee.mu == pytest.approx(0.4)
    data = people(31)
    split = [Question(kind="gram", step=0, mu=None, half=half) for half in (0, 1, None)]
    session = ResponseSession(LAYOUT, features(), split, Seeded(1))
    for part in (slice(0, 10), slice(10, 31)):
        session.submit_many(Trajectories(data.states[part], data.actions[part], data.rewards[part]))
    even, odd, everybody = (session.gram(0).gram for _ in split)
    np.testing.assert_allclose(even + odd, everybody, atol=1e-12)
    one = Trajectories(data.states[::2], data.actions[::2], data.rewards[::2])
    np.testing.assert_allclose(even, session_of(split[2:], one).gram(0).gram, atol=1e-12)


def test_noise_follows_the_range_and_its_law():
    """300 answers of d = 5: the variance within 6 standard errors (false alarms below 1e-6)."""
    plan = [Question(kind="response", step=1, mu=0.5, low=0, high=9)] * 300
    session, exact = (
        session_of(plan, people()),
        session_of([Question(kind="response", step=1, mu=None, high=9)], people()),
    )
    truth = exact.response(1, VALUES[0]).vector
    draws = np.stack([session.response(1, VALUES[0]).vector - truth for _ in plan])
    std = gram.vector_sensitivity(features().bound, 3.0, "centred") / 0.5
    assert draws.var() == pytest.approx(std**2, rel=6 * math.sqrt(2 / draws.size))
    assert abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.35
    wide = session_of(plan, people()).response(1, VALUES[3] * 0.5)
    assert wide.vector_scale == pytest.approx(std * 5.5 / 3.0)


def test_equal_seeds_equal_noise_and_data_never_move_it():
    """Noise is a function of seed and question (test 5): two data sets differ by their exact sums only."""
    plan, exact = full_plan(0.3), full_plan(None)
    one, other = people(50, 1), people(50, 2)
    for a, b, c, d in zip(
        *(ask_all(session_of(p, x)) for p, x in ((plan, one), (exact, one), (plan, other), (exact, other))),
        strict=True,
    ):
        for name in ("gram", "vector", "successors", "rewards"):
            if getattr(a, name) is not None:
                noise = getattr(a, name) - getattr(b, name)
                np.testing.assert_allclose(noise, getattr(c, name) - getattr(d, name), atol=1e-9)


def test_only_the_planned_questions_in_their_order():
    session = session_of(full_plan(0.2), people())
    with pytest.raises(ValueError, match="must be gram of step 2, question 0"):
        session.response(2, VALUES[0])
    with pytest.raises(ValueError, match="must be gram of step 2"):
        session.gram(1)
    assert session.asked == 0
    ask_all(session)
    with pytest.raises(RuntimeError, match="all 8 planned questions are spent"):
        session.model(0)
    with pytest.raises(RuntimeError, match="questions were asked"):
        session.submit_many(people())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, 2, 2.5], r"must lie in \[0, 3\]|must lie in"),
        ([0, 1, 2, math.nan], "must be finite"),
        ([-0.1, 1, 2, 2], "must lie in"),
        ([0, 1, 2], "has shape"),
    ],
)
def test_public_arrays_are_checked_and_refusals_cost_nothing(values, message):
    session = session_of([Question(kind="response", step=0, mu=0.1, low=0, high=3)], people())
    with pytest.raises(ValueError, match=message):
        session.response(0, values)
    assert session.asked == 0


@pytest.mark.parametrize("weights", [np.zeros((S, A)), np.full((S, A), 1.1), np.full((S, A), math.nan)])
def test_weights_outside_their_contract_are_refused(weights):
    session = session_of([Question(kind="gram", step=0, mu=0.1)], people())
    with pytest.raises(ValueError, match="weights"):
        session.gram(0, weights)


def test_the_range_cannot_be_that_of_visited_states():
    """The range is read off all S values; there is no argument through which a narrower one could come."""
    data = people(20)
    data.states[:, 1:] = 0
    session = session_of([Question(kind="response", step=0, mu=0.1, low=0, high=9)], data)
    assert session.response(0, VALUES[3] * 0.8).span == pytest.approx(7.2 + 1)


def test_broken_records_are_refused_before_anything_is_stored():
    session = ResponseSession(LAYOUT, features(), full_plan(0.1), Seeded(0))
    for name, value in (("rewards", 1.5), ("states", S), ("actions", -1), ("rewards", math.nan)):
        data = people(10)
        getattr(data, name)[7, 1] = value
        with pytest.raises(ValueError, match=rf"trajectories\[7\]\.{name}\[1\]"):
            session.submit_many(data)
    assert session.users == 0


def test_what_is_no_trajectories_is_refused_by_its_name():
    session = ResponseSession(LAYOUT, features(), full_plan(1.0), Seeded(0))
    data = people(3)
    with pytest.raises(ValueError, match="trajectories is a SimpleNamespace: must be Trajectories"):
        session.submit_many(SimpleNamespace(states=data.states, actions=data.actions, rewards=data.rewards))
    assert session.users == 0


def test_exact_noise_keeps_sums_on_a_public_grid():
    for mu in (0.5, None):
        session = session_of(full_plan(mu), people(), randomness=Secure())
        for answer in ask_all(session):
            # u is 2^-10 of the power of two below the range; sqrt(w) on 2^-5, features on 2^-12
            fine = 2.0 ** min(0, math.floor(math.log2(answer.span))) if answer.span else 1
            for value, unit in (
                (answer.gram, 2.0**-24),
                (answer.vector, 2.0**-27 * fine),
                (answer.successors, 2.0**-12 / S),
                (answer.rewards, 2.0**-22),
            ):
                if value is not None:
                    units = value / unit
                    np.testing.assert_allclose(units, np.rint(units), atol=1e-6, rtol=1e-12)
    phi, data = features(), people()
    exact = ask_all(session_of(full_plan(None), data, phi, Secure()))[3]
    float_sums = ask_all(session_of(full_plan(None), data, phi))[3]
    assert np.abs(exact.vector - float_sums.vector).max() < 200 * 3 * 2.0**-9
    guarantee = session_of(full_plan(0.5), data, phi, Secure()).guarantee
    assert guarantee.mu is None
    assert guarantee.rho == pytest.approx(8 * 0.5**2 / 2)
    with pytest.raises(ValueError, match="exact noise of"):
        ResponseSession(LAYOUT, phi, full_plan(1e-9), Secure())


def test_answers_through_the_common_door():
    session = session_of([Question(kind="response", step=1, mu=0.3, low=0, high=3)] * 2, people())
    plain = session_of([Question(kind="response", step=1, mu=0.3, low=0, high=3)], people()).response(
        1, VALUES[0]
    )
    found = session.answer(Response(1, VALUES[0], (0.0, 3.0)))
    np.testing.assert_array_equal(found.value, plain.vector)
    assert isinstance(found.law, laws.GaussianSumLaw)
    assert found.law.std() == pytest.approx(plain.vector_scale)
    with pytest.raises(ValueError, match="must lie in"):
        session.answer(Response(1, VALUES[0], (0.0, 4.0)))
    with pytest.raises(ValueError, match=r"must lie in \[0.0, 2.0\]"):
        session.answer(Response(1, VALUES[0], (0.0, 2.0)))
    with pytest.raises(ValueError, match="ask session.pair"):
        session.answer(Response(1, VALUES[0], (0.0, 3.0), gram=True))


def test_one_hot_gram_is_the_visit_counts():
    data = people()
    session = ResponseSession(LAYOUT, one_hot(S, A), [Question(kind="gram", step=0, mu=None)], Seeded(0))
    session.submit_many(data)
    counts = np.bincount(data.states[:, 0] * A + data.actions[:, 0], minlength=S * A)
    np.testing.assert_array_equal(session.gram(0).gram, np.diag(counts))


def test_plans_are_checked():
    with pytest.raises(ValueError, match="in all questions or in none"):
        ResponseSession(LAYOUT, features(), [*full_plan(0.1), *full_plan(None)], Seeded(0))
    with pytest.raises(ValueError, match=r"plan\[0\].step = 3"):
        ResponseSession(LAYOUT, features(), [Question(kind="gram", step=3, mu=1.0)], Seeded(0))
    with pytest.raises(ValueError, match="high = 0"):
        Question(kind="response", step=0, mu=1.0, low=0.0, high=0.0)
    with pytest.raises(ValueError, match="must be of S = 4, A = 3"):
        ResponseSession(LAYOUT, one_hot(3, 3), full_plan(1.0), Seeded(0))


def test_what_was_declared_cannot_be_moved_later():
    plan, phi = full_plan(0.2), features()
    session = session_of(plan, people(), phi)
    for question in (plan[0], session.plan[0]):
        object.__setattr__(question, "mu", 1e9)
    phi.table.flags.writeable = True
    phi.table[:] = 100.0
    answer = session.gram(2)
    assert answer.gram_scale == pytest.approx(features().bound ** 2 / 0.2)
    assert np.abs(answer.gram).max() < 200 + 40 * answer.gram_scale


def part(data, rows):
    return Trajectories(data.states[rows], data.actions[rows], data.rewards[rows])


@pytest.mark.compiles
@pytest.mark.parametrize("randomness", [Seeded(3), Secure()])
def test_counts_and_records_give_the_same_sums(randomness, monkeypatch):
    """Whether tables of counts or records are kept (chosen by public sizes) changes no sum; halves too."""
    data = people(300)
    data.rewards[:] = np.rint(data.rewards * 8) / 8  # on every grid: nothing is rounded at random
    plan = full_plan(None)
    plan[2:5] = [dataclasses.replace(q, half=i % 2) for i, q in enumerate(plan[2:5])]
    answers = []
    monkeypatch.setattr(ResponseSession, "_halves", lambda self, n: (self.users + np.arange(n)) % 2)
    for most in (stored.MOST_CELLS, 0):
        monkeypatch.setattr(stored, "MOST_CELLS", most)
        session = ResponseSession(LAYOUT, features(), plan, randomness)
        for begin in (0, 1, 120):
            session.submit_many(part(data, slice(begin, {0: 1, 1: 120, 120: 300}[begin])))
        answers.append(ask_all(session))
    for one, other in zip(*answers, strict=True):
        for name in ("gram", "vector", "successors", "rewards"):
            if getattr(one, name) is not None:
                atol = 0 if isinstance(randomness, Secure) else 1e-11
                np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0, atol=atol)


@pytest.mark.parametrize("randomness", [Seeded(3), Secure()])
def test_a_person_of_m_episodes_costs_no_more_than_mu(randomness):
    """One person's 3 episodes are replaced: the joint shift stays below mu, and comes near it."""
    phi, mu, m, data = features(1, False), 0.4, 3, people(30)
    user = np.repeat(np.arange(10), m)

    def answers(plan, records):
        session = ResponseSession(LAYOUT, phi, plan, randomness, episodes=m)
        session.submit_many(records, user)
        assert session.users == 10
        return ask_all(session)

    scales, base = answers(full_plan(mu), data), answers(full_plan(None), data)
    assert scales[0].gram_scale == pytest.approx(m * phi.bound**2 / mu)
    rng, worst = np.random.default_rng(0), 0.0
    for trial in range(40):
        states, actions, rewards = data.states.copy(), data.actions.copy(), data.rewards.copy()
        at = 3 * rng.integers(10) + np.arange(m)
        same = trial % 2  # all m episodes alike: their changes add up
        size = 1 if same else m
        states[at] = rng.integers(S, size=(size, H + 1))
        actions[at] = rng.integers(A, size=(size, H))
        rewards[at] = rng.integers(2, size=(size, H))
        other = answers(full_plan(None), Trajectories(states, actions, rewards))
        losses = [loss_of(*trio, S) for trio in zip(scales, base, other, strict=True)]
        worst = max(worst, *losses)
        assert max(losses) <= mu * (1 + 1e-9)
    assert worst > mu / 4
    guarantee = ResponseSession(LAYOUT, phi, full_plan(mu), randomness, episodes=m).guarantee
    assert guarantee.rho == pytest.approx(8 * mu**2 / 2)


def test_people_come_in_order_with_at_most_m_episodes():
    data, plan = people(6), full_plan(0.1)
    session = ResponseSession(LAYOUT, features(), plan, Seeded(0), episodes=2)
    with pytest.raises(ValueError, match="user = None: must be given where a user may have 2 episodes"):
        session.submit_many(data)
    with pytest.raises(ValueError, match="user: 4 has 3 episodes or more, .* 2; users .* many: 1"):
        session.submit_many(data, [1, 1, 4, 4, 4, 9])
    with pytest.raises(ValueError, match=r"user\[2\] = 3: must not be below"):
        session.submit_many(data, [1, 4, 3, 4, 5, 9])
    with pytest.raises(ValueError, match="user has shape"):
        session.submit_many(data, [1.0, 4, 3, 4, 5, 9])
    assert session.users == 0
    session.submit_many(part(data, slice(0, 3)), [-5, 7, 7])
    with pytest.raises(ValueError, match="user: 7 has 3 episodes or more"):
        session.submit_many(part(data, slice(3, 6)), [7, 8, 9])
    with pytest.raises(ValueError, match=r"user\[0\] = 6: must not be below"):
        session.submit_many(part(data, slice(3, 6)), [6, 8, 9])
    session.submit_many(part(data, slice(3, 6)), [8, 9, 9])
    assert session.users == 4
    single = ResponseSession(LAYOUT, features(), plan, Seeded(0))
    single.submit_many(data)
    with pytest.raises(ValueError, match="in every call or in none"):
        single.submit_many(data, np.arange(6))
    other = ResponseSession(LAYOUT, features(), plan, Seeded(0))
    other.submit_many(data, np.arange(6))
    with pytest.raises(ValueError, match="in every call or in none"):
        other.submit_many(data)


def test_halves_are_of_people_and_the_absent_count():
    """A person who is split over two calls stays in one half, even with absent people in between."""
    plan = [Question(kind="gram", step=0, mu=None, half=half) for half in (0, 1)]
    data = people(5)
    session = ResponseSession(LAYOUT, one_hot(S, A), plan, Seeded(0), episodes=2)
    session.submit_many(part(data, slice(0, 3)), [10, 11, 12])
    session.absent()
    session.submit_many(part(data, slice(3, 5)), [12, 13])
    assert session.users == 5
    pair = data.states[:, 0] * A + data.actions[:, 0]
    for half, rows in enumerate(([0, 2, 3, 4], [1])):  # places 0, 1, 2, (absent) 3, 4
        counts = np.bincount(pair[rows], minlength=S * A)
        np.testing.assert_array_equal(np.diag(session.gram(0).gram), counts, err_msg=str(half))
    with pytest.raises(RuntimeError, match="questions were asked"):
        session.absent()


def test_under_exact_noise_nobodys_half_depends_on_others_or_on_the_order():
    """Halves by position would let one person's rows turn all others' halves round: each has a coin.

    40 sessions of 3 people, the second of whom comes in two calls: that one person's coins are all alike has
    probability 2^-39.
    """
    plan = [Question(kind="gram", step=0, mu=None, half=half) for half in (0, 1)]
    data = Trajectories(np.zeros((4, H + 1), np.int64), np.array([[0] * H, [1] * H, [1] * H, [2] * H]),
                        np.zeros((4, H)))  # fmt: skip
    seen = [set(), set(), set()]
    for _ in range(40):
        session = ResponseSession(LAYOUT, one_hot(S, A), plan, Secure(), episodes=2)
        session.submit_many(part(data, slice(0, 2)), [0, 1])
        session.submit_many(part(data, slice(2, 4)), [1, 2])
        halves = np.array([np.diag(session.gram(0).gram)[:3] for _ in plan])
        np.testing.assert_array_equal(halves.sum(axis=0), [1, 2, 1])
        assert set(halves[:, 1]) == {0, 2}  # whole people
        for person, half in enumerate(halves.argmax(axis=0)):
            seen[person].add(int(half))
    assert seen == [{0, 1}] * 3


def test_large_noise_coarsens_the_grid_of_rewards_and_stays_exact():
    """At H = 1000 and a small budget the units of rewards 1/1024 would leave 64 bits."""
    layout = Layout(2, 2, 1000)
    plan = [Question(kind="pair", step=h, mu=0.001, high=1000.0 - h) for h in (999, 0)]
    session = ResponseSession(layout, one_hot(2, 2), plan, Secure())
    rng = np.random.default_rng(0)
    session.submit_many(
        Trajectories(
            rng.integers(2, size=(20, 1001)), rng.integers(2, size=(20, 1000)), rng.uniform(size=(20, 1000))
        )
    )
    session.pair(999, np.zeros(2))
    answer = session.pair(0, np.array([0.0, 999.0]))
    assert answer.span == 1000.0
    assert 0 < np.abs(answer.vector).max() < 10 * answer.vector_scale
    model = [Question(kind="model", step=0, mu=3e-3)]
    session = ResponseSession(
        LAYOUT, features(), model, Secure(2**20)
    )  # rewards of a model on a coarser grid
    session.submit_many(people())
    answer = session.model(0)
    assert 0 < np.abs(answer.rewards).max() < 10 * answer.rewards_scale
    tiny = [Question(kind="pair", step=0, mu=3e-4, high=20.0)]
    session = ResponseSession(LAYOUT, features(), tiny, Secure())  # weights' roots on a coarser grid
    session.submit_many(people())
    answer = session.pair(0, np.array([0.0, 5.0, 19.0, 1.0]), np.full((S, A), 0.05))
    assert answer.span == 20.0
    assert 0 < np.abs(answer.vector).max() < 10 * answer.vector_scale


def test_the_table_of_features_cannot_be_reached_through_the_session():
    session = session_of(full_plan(0.2), people())
    handed = session.features.table
    handed.flags.writeable = True
    handed[:] = 100.0
    assert np.abs(session.gram(2).gram).max() < 200 + 40 * features().bound ** 2 / 0.2


@pytest.mark.parametrize("randomness", [Seeded(3), Secure()])
@pytest.mark.parametrize("episodes", [1, 3])
def test_pure_epsilon_bounds_every_neighbours_log_ratio(randomness, episodes):
    """Laplace: the log ratio of densities is at most sum |shift| / b, over the entries that are drawn."""
    rng = np.random.default_rng(5)
    table = rng.dirichlet(np.full(D, 0.2), (S, A)) * np.where(rng.uniform(size=(S, A, D)) < 0.5, -1, 1)
    phi, epsilon, data = Features(table, 1.0, l1=1.0), 0.7, people(30)
    user, upper = np.repeat(np.arange(30 // episodes), episodes), np.triu_indices(D)
    plan = [dataclasses.replace(q, mu=None, epsilon=epsilon) for q in full_plan(None)]

    def answers(plan, records):
        session = ResponseSession(LAYOUT, phi, plan, randomness, episodes=episodes)
        session.submit_many(records, user)
        return ask_all(session)

    scales, base = answers(plan, data), answers(full_plan(None), data)
    worst = 0.0
    for trial in range(40):
        states, actions, rewards = data.states.copy(), data.actions.copy(), data.rewards.copy()
        at = episodes * rng.integers(30 // episodes) + np.arange(episodes)
        size = 1 if trial % 2 else episodes
        states[at] = rng.integers(S, size=(size, H + 1))
        actions[at] = rng.integers(A, size=(size, H))
        rewards[at] = rng.integers(2, size=(size, H))
        for scale, one, other in zip(
            scales, base, answers(full_plan(None), Trajectories(states, actions, rewards)), strict=True
        ):
            loss = 0.0
            for name in ("gram", "vector", "successors", "rewards"):
                if getattr(one, name) is not None:
                    shift = np.abs(getattr(one, name) - getattr(other, name))
                    shift = shift[upper] if name == "gram" else shift
                    loss += shift.sum() / (getattr(scale, f"{name}_scale") / math.sqrt(2))
            worst = max(worst, loss)
            assert loss <= epsilon * (1 + 1e-9)
    assert worst > epsilon / 4
    guarantee = ResponseSession(LAYOUT, phi, plan, randomness, episodes=episodes).guarantee
    assert guarantee.epsilon == pytest.approx(8 * epsilon)
    assert guarantee.delta == 0.0


def test_budgets_of_two_kinds_do_not_mix():
    with pytest.raises(ValueError, match="in all questions or in none"):
        ResponseSession(
            LAYOUT,
            features(),
            [Question(kind="gram", step=0, mu=1.0), Question(kind="gram", step=0, mu=None, epsilon=1.0)],
            Seeded(0),
        )
    with pytest.raises(ValueError, match="must be None where mu is given"):
        Question(kind="gram", step=0, mu=1.0, epsilon=1.0)


def test_a_question_is_spent_before_its_noise_is_drawn(monkeypatch):
    """Killed inside the draw, the question is gone: no second noise for the same sum."""

    def killed(*_):
        raise KeyboardInterrupt

    session = session_of([Question(kind="gram", step=h, mu=0.1) for h in (1, 0)], people())
    monkeypatch.setattr(gram, "goe", killed)
    with pytest.raises(KeyboardInterrupt):
        session.gram(1)
    monkeypatch.undo()
    assert session.asked == 1
    with pytest.raises(ValueError, match="must be gram of step 0"):
        session.gram(1)
    assert session.gram(0).gram_scale > 0


def test_exact_targets_never_leave_their_range():
    """Flat values of any size (where 1 + v - v rounds), both ends of r: |units| stay within the range."""
    layout, phi = Layout(2, 1, 1), Features(np.ones((2, 1, 1)))
    for centre in (True, False):
        for value in (0.0, 0.1, 1 / 3, 0.7, 2.3, 5.1, 17.9):
            for reward in (0.0, 1.0):
                plan = [Question(kind="response", step=0, mu=None, high=20.0, centre=centre)]
                session = ResponseSession(layout, phi, plan, Secure())
                session.submit_many(Trajectories(np.zeros((1, 2), int), np.zeros((1, 1), int), [[reward]]))
                answer = session.response(0, [value, value])
                low = -answer.span / 2 if centre else 0.0
                assert low <= answer.vector[0] <= low + answer.span
                assert answer.vector[0] + answer.centre == pytest.approx(value + reward, abs=2**-10)
