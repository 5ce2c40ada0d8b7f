"""World model: its limits with many users, its uncertainty, planning, and what it refuses."""

from __future__ import annotations

import itertools
import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet.core.layout import Layout
from discreet.core.trajectories import Trajectories
from discreet.envs.mdp.planning import optimal_values, policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.release_split import split_release
from discreet.mechanisms.dataset.dataset_release import KeptRelease
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.mechanisms.policy_rows import policy_rows
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.pipeline import world_model as models
from discreet.pipeline.world_model import AS_BEFORE, WorldModel, world_model

MASK = np.array([[1, 1, 1]] * 4 + [[1, 1, 0], [1, 1, 1], [0, 1, 1]], bool)
GOOD = ReturnBounds(terminal=(5, 6), outcomes={5: 1.0})


def environment(by_step: bool = False, horizon: int = 8) -> tuple[TabularMDP, np.ndarray]:
    """Five states, a good end and a bad one; three actions, of which one is not admissible in one state."""
    draw = np.random.default_rng(3)
    moves = np.zeros((7, 3, 7))
    for s in range(5):
        for a in range(3):
            good = draw.uniform(0.1, 0.9)
            moves[s, a, :5] = 0.7 * draw.dirichlet(np.ones(5))
            moves[s, a, 5:] = 0.3 * np.array([good, 1.0 - good])
    moves[5, :, 5] = moves[6, :, 6] = 1.0
    paid = np.zeros_like(moves)
    if by_step:
        paid[:5] = draw.uniform(size=(5, 3, 1))
    else:
        paid[:5, :, 5] = 1.0
    start = np.array([0.3, 0.1, 0.2, 0.2, 0.2, 0.0, 0.0])
    behaviour = np.where(MASK, draw.dirichlet(np.full(3, 4.0), 7), 0.0)
    behaviour /= behaviour.sum(axis=1, keepdims=True)
    mdp = TabularMDP(moves, paid, start, horizon=horizon, terminal=(5, 6), mask=MASK)
    return mdp, np.repeat(behaviour[None], horizon, axis=0)


def people(n: int, by_step: bool = False, seed: int = 0) -> Trajectories:
    mdp, behaviour = environment(by_step)
    return rollout_batch(mdp, policy_rows(mdp.layout, behaviour), n, 5 + seed, 0, 0)


def kept(query: Any, told: Trajectories, privatizer: Any = None) -> KeptRelease:
    with (privatizer or NoPrivacy()).stored(query, dr.Seeded(3)) as session:
        session.submit_many(told, np.arange(len(told)))
        return session.release().keep()


def spec_of(returns: ReturnBounds | None = GOOD, stationary: bool = True, **more: Any) -> ProblemSpec:
    return ProblemSpec(environment()[0].layout, stationary=stationary, returns=returns, **more)


def first_visits(
    n: int, returns: ReturnBounds | None = GOOD, privatizer: Any = None, by_step: bool = False, **more: Any
) -> tuple[KeptRelease, ProblemSpec]:
    question = FirstVisits(spec_of(returns, **more))
    return kept(question.query(), question.to_records(people(n, by_step)), privatizer), question.spec


def per_step(n: int, spec: ProblemSpec, privatizer: Any = None, by_step: bool = False) -> KeptRelease:
    return kept(dr.DPAPVI().query(spec), people(n, by_step), privatizer)


def valued(policy: np.ndarray, by_step: bool = False) -> float:
    """True value of a policy table with -1 for as before."""
    mdp, behaviour = environment(by_step)
    table = behaviour.copy()
    h, s = np.nonzero(policy != AS_BEFORE)
    table[h, s] = np.eye(3)[policy[h, s]]
    return policy_value(mdp, table)


@pytest.fixture(scope="module")
def many() -> WorldModel:
    release, spec = first_visits(400_000)
    return world_model(release, spec, part="whole")


def test_with_many_users_the_model_is_the_true_one(many: WorldModel) -> None:
    mdp, behaviour = environment()
    np.testing.assert_allclose(many.mean.transitions, mdp.transitions, atol=0.02)
    assert many.mean.initial == pytest.approx(mdp.initial, abs=0.003)
    np.testing.assert_allclose(many.behaviour[:, :5], behaviour[:, :5], atol=0.005)
    assert policy_value(many.mean, many.behaviour) == pytest.approx(policy_value(mdp, behaviour), abs=0.003)
    assert np.array_equal(many.mean.mask, mdp.mask)
    assert many.mean.terminal == mdp.terminal
    best = mdp.initial @ optimal_values(mdp)[0][0]
    assert valued(many.plan(0.0)) == pytest.approx(best, abs=1e-3)
    assert many.units == (1.0, 0.0)
    assert many.users == 400_000


def test_without_noise_and_with_endless_users_rows_are_the_counted_ones() -> None:
    """Counts times 1e9: nothing is left to shrink, and the returns of the release tilt nothing."""
    release, spec = first_visits(3000)
    large = replace(
        release,
        steps=tuple(
            replace(x, transitions=1e9 * x.transitions, visits=1e9 * x.visits, rewards=1e9 * x.rewards)
            for x in release
        ),
    )
    model = world_model(large, spec, part="whole", returns=False)
    question = FirstVisits(spec)
    moves = question.layout.from_rows(release.step(0).transitions[None])[0]
    for s, a in np.argwhere(MASK[:5]):
        row = moves[s, a, :7]
        np.testing.assert_allclose(model.mean.transitions[0, s, a], row / row.sum(), atol=1e-6)
    begun = moves[7, 0, :7]
    np.testing.assert_allclose(model.initial, begun / begun.sum(), atol=1e-6)


@pytest.mark.parametrize("budget", [
    {"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 5.0, "delta": 1e-6}, {"epsilon": 3.0, "noise": "laplace"},
])  # fmt: skip
def test_noisy_models_are_models(budget: dict[str, Any]) -> None:
    release, spec = first_visits(2000, privatizer=Central(**budget))
    model = world_model(release, spec)
    assert (model.probability >= 0).all()
    np.testing.assert_allclose(model.probability.sum(axis=-1), 1.0)
    np.testing.assert_allclose(model.behaviour.sum(axis=-1), 1.0)
    np.testing.assert_allclose(model.initial.sum(), 1.0)
    assert (model.behaviour[:, 4, 2] == 0).all()
    assert (model.alpha >= 0.5).all()
    assert (model.deviation >= 0).all()
    assert not model.acts[0][np.isin(model.layout.row_state, (5, 6))].any()
    policy = model.plan()
    assert policy.shape == (8, 7)
    assert (policy[:, 5:] == AS_BEFORE).all()
    assert (policy[model.layout.row_index[np.arange(7), policy] < 0] == AS_BEFORE).all()
    assert np.array_equal(policy, world_model(release, spec).plan())
    assert (model.plan(1e6) == AS_BEFORE).all()


def test_a_plan_by_state_is_the_best_of_all_such_plans(many: WorldModel) -> None:
    """All 4^5 policies of the five live states are evaluated in the model."""
    model = many
    layout, plan = model.layout, many.plan_by_state(0.0)
    share, moves, paid = model.share[0], model.probability[0], model._paid(model.probability)[0]
    begins = layout.state_ptr[:-1]

    def value(rows: tuple[int, ...]) -> float:
        law, earned = np.add.reduceat(share[:, None] * moves, begins), np.add.reduceat(share * paid, begins)
        for s, row in enumerate(rows):
            if row >= 0:
                law[s], earned[s] = moves[row], paid[row]
        v = np.zeros(layout.states)
        for _ in range(layout.horizon):
            v = earned + law @ v
        return float(model.initial @ v)

    choices = [
        [-1, *(r for r in range(layout.rows) if layout.row_state[r] == s and model.acts[0, r])]
        for s in range(5)
    ]
    best = max(value(rows) for rows in itertools.product(*choices))
    assert value(tuple(plan.row[:5].tolist())) == pytest.approx(best, abs=2e-3)
    assert (plan.row[5:] == -1).all()
    none = many.plan_by_state(0.0, np.zeros(layout.rows, bool))
    assert (none.row == -1).all()
    assert (many.plan_by_state(1e6).row == -1).all()
    with pytest.raises(ValueError, match="penalty = -1"):
        many.plan_by_state(-1.0)


def test_members_have_the_mean_and_the_variance_of_their_distribution(many: WorldModel) -> None:
    """4 000 draws; 5 standard errors of means, and total variances within 15 % (false alarm below 1e-4)."""
    release, spec = first_visits(1500, privatizer=Central(epsilon=3.0, delta=1e-6))
    model = world_model(release, spec, part="whole")
    draw = np.random.default_rng(0)
    drawn = np.array([model._drawn(draw)[0] for _ in range(4000)])
    mean, total = model.probability[0], drawn.var(axis=0).sum(axis=1)
    spread = np.sqrt(np.maximum(mean * (1 - mean) / (model.alpha[0][:, None] + 1), 1e-12) / 4000)
    assert (np.abs(drawn.mean(axis=0) - mean) <= 5.5 * spread + 1e-12).all()
    live = model.layout.row_state < 5
    expected = (1.0 - (mean**2).sum(axis=1)) / (model.alpha[0] + 1.0)
    np.testing.assert_allclose(total[live], expected[live], rtol=0.15)
    first, second = (list(model.members(2, 7)) for _ in range(2))
    assert np.array_equal(first[1].transitions, second[1].transitions)
    assert not np.array_equal(first[0].transitions, first[1].transitions)


def test_tilt_meets_its_target() -> None:
    draw = np.random.default_rng(1)
    rows, value = draw.dirichlet(np.ones(6), 40), draw.uniform(size=6)
    target = np.clip(rows @ value + 0.1 * draw.standard_normal(40), value.min() + 0.1, value.max() - 0.1)
    chosen = np.arange(40) != 7
    found = models._tilted(rows, value, target, chosen)
    np.testing.assert_allclose((found @ value)[chosen], target[chosen], atol=1e-9)
    assert np.array_equal(found[7], rows[7])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_returns_make_advantages_more_precise() -> None:
    """60 releases: errors of advantages with returns are smaller; their stated deviation is about right."""
    mdp, behaviour = environment()
    value = np.zeros((9, 7))
    for h in range(7, -1, -1):
        q = np.einsum("sat,t->sa", mdp.transitions[0], value[h + 1] + GOOD_PAY) * ~ENDED[:, None]
        value[h] = (behaviour[0] * q).sum(axis=1)
    later = value[1] + GOOD_PAY
    true = np.einsum("sat,t->sa", mdp.transitions[0], later)
    true = (true - (behaviour[0] * true).sum(axis=1, keepdims=True))[MASK]
    live = np.flatnonzero(np.nonzero(MASK)[0] < 5)
    question = FirstVisits(spec_of())
    told = question.to_records(people(4000))
    errors: dict[bool, list[np.ndarray]] = {True: [], False: []}
    stated = []
    for draw in range(60):
        with Central(epsilon=1.0, delta=1e-6).stored(question.query(), dr.Seeded(draw)) as session:
            session.submit_many(told, np.arange(4000))
            release = session.release().keep()
        for returns, found in errors.items():
            model = world_model(release, question.spec, part="whole", returns=returns)
            mean = model.probability[0] @ later
            usual = np.add.reduceat(model.share[0] * mean, model.layout.state_ptr[:-1])
            found.append((mean - usual[model.layout.row_state] - true)[live])
            if returns:
                stated.append(model.deviation[0][live])
    size = {returns: float(np.sqrt(np.mean(np.square(found)))) for returns, found in errors.items()}
    assert size[True] < 0.9 * size[False]
    assert 0.6 < float(np.sqrt(np.mean(np.square(stated)))) / size[True] < 1.6


GOOD_PAY = np.eye(7)[5]
ENDED = np.arange(7) >= 5


@pytest.mark.parametrize("returns", [
    ReturnBounds(terminal=(5, 6), outcomes={5: 2.0, 6: -1.0}),
    ReturnBounds(terminal=(5, 6), outcomes={6: -4.0}),
])  # fmt: skip
def test_values_convert_to_the_users_units(returns: ReturnBounds) -> None:
    """A rule with negative outcomes: no reward of the MDP is negative, and values convert exactly."""
    release, spec = first_visits(200_000, returns)
    model = world_model(release, spec, part="whole")
    assert model.mean.rewards.min() >= 0.0
    mdp, behaviour = environment()
    ends = behaviour_ends(mdp, behaviour)
    true = sum(reward * ends[state] for state, reward in (returns.outcomes or {}).items())
    scale, offset = model.units
    assert offset + scale * policy_value(model.mean, model.behaviour) == pytest.approx(true, abs=0.02)
    gains = [valued_by(mdp, model.plan(0.0), returns), valued_by(mdp, np.full((8, 7), AS_BEFORE), returns)]
    assert gains[0] > gains[1]
    member = next(model.members(1, 0))
    assert member.rewards.min() >= 0.0


def behaviour_ends(mdp: TabularMDP, policy: np.ndarray) -> np.ndarray:
    """Distribution of the last state."""
    mass = mdp.initial.copy()
    for h in range(8):
        mass = np.einsum("s,sa,sat->t", mass, policy[h], mdp.transitions[h])
    return mass


def valued_by(mdp: TabularMDP, policy: np.ndarray, returns: ReturnBounds) -> float:
    table = environment()[1].copy()
    h, s = np.nonzero(policy != AS_BEFORE)
    table[h, s] = np.eye(3)[policy[h, s]]
    ends = behaviour_ends(mdp, table)
    return float(sum(reward * ends[state] for state, reward in (returns.outcomes or {}).items()))


def test_first_visits_without_a_rule_are_refused() -> None:
    """Their returns do not determine the rewards of steps: the level would be lost."""
    release, spec = first_visits(200, ReturnBounds(terminal=(5, 6), low=-1.0, high=3.0), by_step=True)
    with pytest.raises(ValueError, match=r"release: must be of counts per step, or spec must have outcomes"):
        world_model(release, spec, part="whole")


def test_known_rewards_are_used() -> None:
    mdp, behaviour = environment(by_step=True)
    known = np.where(MASK, mdp.rewards, 0.0)
    release, spec = first_visits(200_000, None, by_step=True, known_rewards=known)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = world_model(release, spec, part="whole")
    np.testing.assert_allclose(model.mean.rewards, known)
    assert policy_value(model.mean, model.behaviour) == pytest.approx(policy_value(mdp, behaviour), abs=0.02)
    best = mdp.initial @ optimal_values(mdp)[0][0]
    assert valued(model.plan(0.0), True) == pytest.approx(best, abs=0.01)


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("kind", ["outcomes", "rewards", "known"])
def test_counts_per_step_give_a_model(stationary: bool, kind: str) -> None:
    by_step = kind != "outcomes"
    mdp, behaviour = environment(by_step)
    known = np.where(MASK, mdp.rewards, 0.0) if kind == "known" else None
    returns = GOOD if kind == "outcomes" else ReturnBounds(terminal=(5, 6))
    spec = spec_of(returns, stationary, known_rewards=known)
    release = per_step(400_000, spec, by_step=by_step)
    model = world_model(release, spec, part="whole")
    assert len(model.probability) == (1 if stationary else 8)
    reached = behaviour_reached(mdp, behaviour) > 0.02
    reached[:, 5:] = False
    error = np.abs(model.mean.transitions - mdp.transitions)[reached]
    assert error[np.broadcast_to(MASK, (8, 7, 3))[reached]].max() < 0.06
    assert model.initial == pytest.approx(mdp.initial, abs=0.005)
    assert policy_value(model.mean, model.behaviour) == pytest.approx(policy_value(mdp, behaviour), abs=0.02)
    best = mdp.initial @ optimal_values(mdp)[0][0]
    assert valued(model.plan(0.0), by_step) == pytest.approx(best, abs=0.02)
    private = per_step(20_000, spec, Central(epsilon=3.0, delta=1e-6), by_step)
    noisy = world_model(private, spec)
    np.testing.assert_allclose(noisy.probability.sum(axis=-1), 1.0)
    assert (noisy.deviation >= 0).all()
    assert noisy.users == 10_000
    gain = valued(noisy.plan(), by_step) - valued(np.full((8, 7), AS_BEFORE), by_step)
    assert gain > -0.02


def behaviour_reached(mdp: TabularMDP, policy: np.ndarray) -> np.ndarray:
    mass = [mdp.initial]
    for h in range(7):
        mass.append(np.einsum("s,sa,sat->t", mass[-1], policy[h], mdp.transitions[h]))
    return np.array(mass)


def test_environments_follow_the_mean_model(many: WorldModel) -> None:
    """Chi-squared tests of next states over 4e5 steps, level 1e-6 each; rewards are those of the rule."""
    env = many.vector_env(64, members=0, penalty=0.0)
    states, _ = env.reset(seed=5)
    draw = np.random.default_rng(0)
    counts = np.zeros((7, 4, 7))
    for _ in range(6000):
        actions = draw.integers(4, size=64)
        following, rewards, terminated, truncated, info = env.step(actions)
        last = np.where(terminated | truncated, info.get("final_obs", following), following)
        np.add.at(counts, (states, actions, last), 1)
        assert np.array_equal(rewards, (last == 5).astype(float))
        assert np.array_equal(terminated, last >= 5)
        states = following
    usual = np.einsum("sa,sat->st", many.behaviour[0], many.mean.transitions[0])
    for s, a in np.ndindex(5, 4):
        own = a < 3 and MASK[s, a]
        expected = many.mean.transitions[0, s, a] if own else usual[s]
        positive = expected > 0
        assert counts[s, a, ~positive].sum() == 0
        whole = counts[s, a].sum()
        assert stats.chisquare(counts[s, a, positive], whole * expected[positive]).pvalue > 1e-6


def test_environments_pay_the_penalty_and_draw_members() -> None:
    release, spec = first_visits(2000, privatizer=Central(epsilon=3.0, delta=1e-6))
    model = world_model(release, spec)
    env = model.vector_env(8, members=4, penalty=2.0)
    states, _ = env.reset(seed=1)
    row = model.layout.row_index[states, 0]
    _, rewards, *_ = env.step(np.zeros(8, np.int64))
    arrived = np.round(rewards + 2.0 * np.where(model.acts[0][row], model.deviation[0][row], 0.0), 9)
    assert set(arrived.tolist()) <= {0.0, 1.0}
    _, rewards, *_ = env.step(np.full(8, 3))
    assert set(rewards.tolist()) <= {0.0, 1.0}
    assert len(env.tables.cumulative) == 4 * len(env.tables.successor)
    assert env.made_from == model.made_from
    plain = model.vector_env(2, as_before=False)
    assert plain.single_action_space.n == 3
    single = model.env(observation="one-hot")
    assert single.spec is not None
    assert single.spec.kwargs["made_from"] == model.made_from


def test_rewards_of_environments_are_in_the_users_units() -> None:
    """Mean return of the action as before, times the unit, against the MDP: 5 standard errors."""
    returns = ReturnBounds(terminal=(5, 6), low=-1.0, high=3.0)
    spec = spec_of(returns, stationary=False)
    model = world_model(per_step(50_000, spec, by_step=True), spec, part="whole")
    env = model.vector_env(4096, members=0)
    env.reset(seed=2)
    whole, ended = np.zeros(4096), np.zeros(4096, bool)
    for _ in range(8):
        _, rewards, terminated, truncated, _ = env.step(np.full(4096, 3))
        whole += np.where(ended, 0.0, rewards)
        ended |= terminated | truncated
    scale, offset = model.units
    expected = offset + scale * policy_value(model.mean, model.behaviour)
    assert ended.all()
    assert scale * whole.mean() == pytest.approx(expected, abs=5 * scale * whole.std() / 64)


def test_agents_become_tables(many: WorldModel) -> None:
    plan = many.plan()
    acts = np.where(plan == AS_BEFORE, 3, plan)
    table = many.policy_table(lambda seen: acts[0][seen])
    assert np.array_equal(many.policy_table(lambda seen: (acts[0][seen], None)), table)
    assert np.array_equal(table, np.repeat(plan[:1], 8, axis=0))

    def timed(seen: np.ndarray) -> np.ndarray:
        assert seen.shape == (7, 8)
        return acts[round(8 * float(seen[0, -1]))]

    assert np.array_equal(many.policy_table(timed, "one-hot", True), plan)
    assert (many.policy_table(lambda seen: np.full(7, 2))[:, 4] == AS_BEFORE).all()  # not admissible there
    for wrong in (np.full(7, 4), np.zeros(6, int), np.zeros(7)):
        with pytest.raises(ValueError, match="act returns"):
            many.policy_table(lambda seen, wrong=wrong: wrong)


def test_unsupported_actions_can_end_the_episode(many: WorldModel) -> None:
    """They pay the lowest return; other actions are the same."""
    model = replace(many, acts=many.acts & (np.arange(many.layout.rows) != many.layout.row_index[0, 1]))
    env = model.vector_env(256, members=0, unsupported="end")
    states, _ = env.reset(seed=1)
    _, rewards, terminated, _, info = env.step(np.ones(256, np.int64))
    refused = states == 0
    assert 0 < refused.sum() < 256
    assert terminated[refused].all()
    assert (info["final_obs"][refused] == many.layout.states).all()
    assert np.unique(rewards[refused]).tolist() == [min(model.units[1] / model.units[0], 0.0)]
    plain = model.vector_env(256, members=0)
    plain.reset(seed=1)
    env.reset(seed=1)
    same = zip(plain.step(np.full(256, 3))[:4], env.step(np.full(256, 3))[:4], strict=True)
    assert all(np.array_equal(mine, theirs) for mine, theirs in same)
    shape = model.env(observation="one-hot", unsupported="end").observation_space.shape
    assert shape == (many.layout.states,)
    with pytest.raises(ValueError, match="unsupported = 'stop'"):
        model.env(unsupported="stop")


def test_environments_can_be_pickled(many: WorldModel) -> None:
    for env in (many.vector_env(4), many.env()):
        env.reset(seed=3)
        again = pickle.loads(pickle.dumps(env))
        action = np.zeros(4, np.int64) if env.spec is None else np.int64(0)
        assert np.array_equal(env.step(action)[0], again.step(action)[0])
        assert np.array_equal(env.reset(seed=4)[0], again.reset(seed=4)[0])


def test_parts_and_origin() -> None:
    release, spec = first_visits(3000, privatizer=Central(epsilon=3.0, delta=1e-6))
    train, held_out = split_release(release)
    one, other = world_model(release, spec), world_model(release, spec, part="held_out")
    assert one.made_from == train.made_from
    assert np.array_equal(world_model(train, spec).probability, one.probability)
    assert np.array_equal(world_model(held_out, spec, part="held_out").probability, other.probability)
    whole = world_model(release, spec, part="whole")
    assert whole.made_from == {"release": train.made_from["release"], "part": "whole", "share": 1.0}
    assert (one.users, whole.users) == (1500, 3000)
    assert whole.guarantee == release.guarantee
    given = np.eye(7)[2]
    assert np.array_equal(world_model(release, replace(spec, initial=given)).initial, given)
    with pytest.raises(ValueError, match="part = 'train': must be 'held_out'"):
        world_model(held_out, spec)
    with pytest.raises(ValueError, match="part = 'all'"):
        world_model(release, spec, part="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"release\.layout: must be spec\.layout"):
        world_model(release, replace(spec, stationary=False))
    known = per_step(100, spec_of(None, False, known_rewards=np.zeros((8, 7, 3))))
    with pytest.raises(ValueError, match="release has no rewards"):
        world_model(known, spec_of(None, False))
    with pytest.raises(ValueError, match="penalty"):
        whole.plan(-1.0)
    with pytest.raises(ValueError, match="k = 0"):
        whole.members(0, 1)
    with pytest.raises(ValueError, match="observation has shape"):
        whole.vector_env(2, observation=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="observation = 'pixels'"):
        whole.env(observation="pixels")


def test_states_without_visits_act_as_before() -> None:
    """Noise only: no row counts as an action, and every share is a probability."""
    returns = ReturnBounds(terminal=(2,), outcomes={2: 1.0})
    question = FirstVisits(ProblemSpec(Layout(3, 2, 4), stationary=True, returns=returns))
    told = Trajectories(np.zeros((50, 5), int), np.zeros((50, 4), int), np.zeros((50, 4)))
    release = kept(question.query(), question.to_records(told))
    model = world_model(release, question.spec, part="whole")
    np.testing.assert_allclose(model.behaviour.sum(axis=-1), 1.0)
    assert (model.plan(0.0) == AS_BEFORE).all()
    assert np.isfinite(model.probability).all()
    env = model.vector_env(4)
    env.reset(seed=0)
    for _ in range(10):
        assert np.isfinite(env.step(np.ones(4, int))[1]).all()
