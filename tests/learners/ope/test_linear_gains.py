"""What a linear policy gains over what people did: exact in expectation, with the error that it says."""

import dataclasses
import math

import numpy as np
import pytest

from benchmarks.studies import linear_gains as study
from discreet.core.rng import Secure, Seeded
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.offline.linear_pevi import DPPEVI, DPVAPVI, PEVI, VAPVI, learn_linear, replan_linear
from discreet.learners.ope.linear_gains import _unbent, followed
from discreet.mechanisms.features import Features, one_hot
from discreet.mechanisms.linear.adaptive_queries import Answer

S, A, H, D, PEOPLE = 6, 3, 4, 4, 1e5
RNG = np.random.default_rng(4)
MDP = LinearMDP(
    Features(RNG.dirichlet(np.full(D, 0.4), (S, A)), l1=1.0, nonneg=True),
    RNG.dirichlet(np.full(S, 0.5), (H, D)), RNG.uniform(size=(H, D)), RNG.dirichlet(np.ones(S)),
    reward_law="bernoulli",
)  # fmt: skip
TABLE = MDP.to_tabular()
USUAL = RNG.dirichlet(np.ones(A), (H, S))
POLICY = RNG.integers(A, size=(H, S))
GAIN = policy_value(TABLE, POLICY) - policy_value(TABLE, USUAL)


def expected(behaviour=USUAL, scale=0.0):
    """What all people together say, without luck; ``scale`` of noise is stated, not drawn."""
    rows, chance, told = MDP.features.rows, TABLE.initial, []
    begun = Answer(vector=PEOPLE * chance, vector_scale=scale)
    for h in range(H):
        pairs = PEOPLE * (chance[:, None] * behaviour[h]).ravel()
        moves, rewards = TABLE.transitions[h].reshape(-1, S), TABLE.rewards[h].ravel()
        gram, reward = rows.T @ (pairs[:, None] * rows), rows.T @ (pairs * (rewards - 0.5))
        if h < H - 1:
            next_ = rows.T @ (pairs[:, None] * (moves - 1 / S))
            told.append(Answer(gram, None, next_, reward, scale, 0.0, scale, scale))
        else:
            told.append(Answer(gram, reward, None, None, scale, scale, centre=0.5))
        chance = pairs @ moves / PEOPLE
    return told, begun


def noisy(told, begun, draw, scale, pure):
    """The same with noise that a release would have."""

    def gram(table):
        noise = (draw.laplace(0, math.sqrt(0.5), (D, D)) if pure else draw.normal(size=(D, D))) * scale
        noise = np.triu(noise, 1)
        diagonal = draw.laplace(0, math.sqrt(0.5), D) if pure else math.sqrt(2) * draw.normal(size=D)
        return table + noise + noise.T + np.diag(scale * diagonal)

    def other(table):
        return None if table is None else table + scale * draw.normal(size=table.shape)

    return [
        dataclasses.replace(
            one, gram=gram(one.gram), vector=other(one.vector), successors=other(one.successors),
            rewards=other(one.rewards),
        )
        for one in told
    ], dataclasses.replace(begun, vector=other(begun.vector))  # fmt: skip


def test_without_luck_and_noise_the_gain_is_the_true_one():
    told, begun = expected()
    found = followed(MDP.layout, MDP.features, POLICY, told).gain(begun, 0.95, 1, False)
    assert found.estimate == pytest.approx(GAIN, abs=1e-9)
    assert found.usual == pytest.approx(policy_value(TABLE, USUAL), abs=1e-9)
    assert found.episodes == pytest.approx(PEOPLE)
    assert found.noise == 0.0
    assert found.lacking == pytest.approx(0.0, abs=1e-9)
    assert found.low < GAIN < found.high
    wide = found.at(0.999, H)
    assert wide.low < found.low < found.high < wide.high


@pytest.mark.parametrize("pure", [False, True])
def test_noise_moves_the_gain_as_much_as_is_said(pure):
    """600 draws: a standard deviation within 6 of its errors, 17 %; false alarm below 1e-6."""
    scale, draw = 60.0, np.random.default_rng(7)
    told, begun = expected(scale=scale)
    said = followed(MDP.layout, MDP.features, POLICY, told).gain(begun, 0.95, 1, pure).noise
    found = []
    for _ in range(600):
        heard, began = noisy(told, begun, draw, scale, pure)
        one = followed(MDP.layout, MDP.features, POLICY, heard).gain(began, 0.95, 1, pure)
        found.append((one.estimate, one.usual, one.usual_error))
    estimate, usual, _ = np.array(found).T
    assert np.std(estimate) == pytest.approx(said, rel=0.18 if not pure else 0.25)
    assert np.mean(estimate) == pytest.approx(GAIN, abs=6 * said / math.sqrt(600) + 0.05 * said)
    assert np.std(usual) < 1.2 * found[0][2]


@pytest.mark.parametrize("pays", [0.0, 1.0])
def test_what_nobody_did_may_be_worth_anything(pays):
    """Nobody takes the last action, whose feature is its own: the interval holds worthless and best."""
    table = np.zeros((2, 2, 4))
    table[[0, 0, 1, 1], [0, 1, 0, 1], range(4)] = 1.0
    weights = np.full((2, 4), 0.5)
    weights[:, [1, 3]] = pays
    mdp = LinearMDP(Features(table, l1=1.0, nonneg=True), np.full((2, 4, 2), 0.5), weights)
    world, first = mdp.to_tabular(), np.zeros((2, 2), np.int64)
    people = rollout_batch(world, first, 4000, 3)
    with PEVI(judged=True).open(mdp.layout, mdp.features, Seeded(0)) as session:
        session.submit_many(people)
        release, learned = PEVI(judged=True).ask(session)
    answers = [one.answer for one in release.asked if one.question.half == 1]
    found = followed(mdp.layout, mdp.features, first + 1, [answers[1], answers[0]])
    gain = found.gain(answers[2], 0.95, 1, False)
    assert gain.low <= 2 * (pays - 0.5) <= gain.high
    assert gain.lacking == pytest.approx(0.5 + 1.0)  # half of what is left at each step
    assert learned.gain.lacking == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    "learner",
    [
        DPPEVI(epsilon=3.0, delta=1e-6), DPPEVI(epsilon=3.0, delta=1e-6, response="model"), DPVAPVI(rho=1.0),
        DPPEVI(epsilon=20.0, noise="laplace"),
    ],
    ids=["pevi", "model", "vapvi", "laplace"],
)  # fmt: skip
@pytest.mark.parametrize("randomness", [Seeded(1), Secure()], ids=["seeded", "secure"])
def test_halves_have_the_whole_budget_each_and_a_release_judges_one_policy(learner, randomness):
    people = rollout_batch(TABLE, USUAL, 3000, 5)
    judged = dataclasses.replace(learner, judged=True)
    with judged.open(MDP.layout, MDP.features, randomness) as session:
        plain = learner.open(MDP.layout, MDP.features, randomness)
        assert session.guarantee.mu == pytest.approx(plain.guarantee.mu)
        assert session.guarantee.epsilon == pytest.approx(plain.guarantee.epsilon)
        session.submit_many(people)
        release, learned = judged.ask(session)
        assert session.budget_left() == 0.0
    assert abs(learned.gain.episodes - 1500) < 600
    again = replan_linear(judged, release, MDP.features)
    assert again.gain == learned.gain
    assert replan_linear(dataclasses.replace(judged, support=9.0), release, MDP.features).gain == learned.gain
    if isinstance(judged, DPPEVI) and judged.response == "model":
        other = replan_linear(dataclasses.replace(judged, C=3.0), release, MDP.features)
        assert (other.policy != learned.policy).any()
        assert other.gain is None


def test_what_cannot_be_judged_is_refused():
    for make, message in (
        (lambda: VAPVI(split=True, judged=True), "judged = True: must be False with split"),
        (
            lambda: DPVAPVI(rho=1.0, preset="figure-1", judged=True),
            "judged = True: must be False with the printed",
        ),
        (lambda: PEVI(judged=1), "judged = 1: must be true or false"),
        (
            lambda: PEVI(judged=True).questions(MDP.layout, MDP.features, known_rewards=True),
            "judged = True: must be False with known rewards",
        ),
        (
            lambda: PEVI(judged=True).questions(MDP.layout, Features(RNG.normal(size=(S, A, D)) / 9)),
            "judged = True: needs 1 in the span",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_too_few_people_judge_nothing():
    people = rollout_batch(TABLE, USUAL, 16, 5)
    found = learn_linear(PEVI(judged=True), MDP.layout, MDP.features, people, Seeded(0))
    assert found.gain is None


@pytest.mark.parametrize(("name", "epsilon"), [("clear", 3.0), ("none better", None)])
def test_gains_are_shown_where_there_are_any(name, epsilon):
    row = study.row(study.WORLDS[name](), 20_000, epsilon, 8, 5)
    assert row["shown"] == (name == "clear")
    assert row["covered"] == 1.0


@pytest.mark.parametrize("pure", [False, True])
def test_what_noise_adds_to_an_inverse_in_the_mean_is_taken_off(pure: bool) -> None:
    """40 000 noisy matrices: what is left is a tenth of it at most, 6 standard errors beside."""
    rng, scale, d = np.random.default_rng(7), 0.04, 4
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    truth = basis @ np.diag([1.0, 0.8, 0.6, 0.5]) @ basis.T
    draws = rng.laplace(0.0, scale / math.sqrt(2.0), (40_000, d, d)) if pure else None
    if draws is None:
        draws = scale * rng.standard_normal((40_000, d, d))
        draws[:, range(d), range(d)] *= math.sqrt(2.0)
    noise = np.triu(draws) + np.triu(draws, 1).transpose(0, 2, 1)
    inverses = np.linalg.inv(truth + noise)
    plain, taken = inverses.mean(axis=0), np.mean([_unbent(k, scale, pure) for k in inverses], axis=0)
    error = 6.0 * inverses.std(axis=0).max() / 200.0
    wrong = np.abs(plain - np.linalg.inv(truth)).max()
    assert wrong > 3.0 * error
    assert np.abs(taken - np.linalg.inv(truth)).max() < 0.1 * wrong + error


def test_nothing_is_gained_where_every_action_pays_the_same_and_much() -> None:
    """Noise in inverses inflates the model, not what people earned: 12 releases, 5 standard errors."""
    states, horizon = 30, 5
    rows = np.full((states, 2, states), 1 / states)
    world = TabularMDP(
        rows, np.full((states, 2), 0.97), rows[0, 0], horizon=horizon, name="alike", reward_law="bernoulli"
    )
    features, people = one_hot(states, 2), np.full((horizon, states, 2), 0.5)
    found = []
    for draw in range(12):
        played = rollout_batch(world, people, 40_000, 11, draw)
        learner = DPPEVI(epsilon=3.0, delta=1e-6, judged=True)
        gain = learn_linear(learner, world.layout, features, played, Seeded(3, draw)).gain
        assert gain is not None
        found.append((gain.estimate, math.hypot(gain.noise, gain.sampling), gain.bent))
    estimates, stds, bent = np.array(found).T
    assert abs(estimates.mean()) < 5.0 * stds.mean() / math.sqrt(12)
    assert bent.mean() > 5.0 * stds.mean() / math.sqrt(12)  # what was there
