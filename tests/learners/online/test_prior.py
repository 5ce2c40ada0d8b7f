"""Public priors: makers, refusals, files, and what a run with one promises."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.accounting.noise_distributions.distributions import GaussianSumLaw
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.envs.rollouts.rollout import batch_counts
from discreet.experiments.simulate import Setup
from discreet.learners.offline.release_files import ReleaseFacts, write_release
from discreet.learners.online.prior import Prior, read_pinned
from discreet.mechanisms.interfaces import Plan, ProblemSpec, Schedule, StepSums
from discreet.service.encoding import release_table
from discreet.utils.pinned_file import pinned
from discreet.utils.random_streams_kernels import run_key

CENTRAL = dr.Central(epsilon=1.0, delta=1e-6)
HEAD = "state,action,next,probability,reward\n"
ROWS, REWARDS = np.full((2, 2, 2), 0.5), np.full((2, 2), 0.3)


def world() -> dr.TabularMDP:
    return dr.make("random", states=4, actions=2, horizon=5, seed=3)


def changed(array: np.ndarray, place: Any, value: float) -> np.ndarray:
    new = np.array(array)
    new[place] = value
    return new


# --------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"model": 3}, "model = 3: must be a TabularMDP, or two arrays"),
        ({"model": (ROWS[:, :, :1], REWARDS)}, r"model: the first array has shape \(2, 2, 1\)"),
        ({"model": (ROWS, REWARDS[:1])}, r"model: the second array has shape \(1, 2\): must be \(2, 2\)"),
        ({"model": (changed(ROWS, (0, 1, 1), 0.6), REWARDS)}, "state 0, action 1 have the sum 1.1"),
        ({"model": (changed(ROWS, (1, 0), (1.5, -0.5)), REWARDS)}, "state 1, action 0 .* minimum -0.5"),
        ({"model": (changed(ROWS, (0, 0, 0), np.nan), REWARDS)}, "first array holds nan"),
        ({"model": (ROWS, changed(REWARDS, (1, 1), 1.1))}, "mean reward of state 1, action 1 is 1.1"),
        ({"model": (ROWS, changed(REWARDS, (1, 1), np.nan))}, "second array holds nan"),
        ({"strength": 1.9}, "strength = 1.9: must be a finite number of at least 2"),
        ({"strength": np.ones((1, 2))}, r"strength has shape \(1, 2\)"),
        ({"strength": changed(np.ones((2, 2)), (0, 0), -1.0)}, "strength holds -1"),
        (
            {"model": (changed(ROWS, (0, 1), 0.0), REWARDS), "strength": np.full((2, 2), 9.0)},
            r"strength\[0, 1\]: must be below 2",
        ),
        ({"transitions": 1}, "transitions = 1: must be true or false"),
        ({"transitions": False, "rewards": False}, "rewards = False: must be true"),
    ],
)
def test_refuses(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Prior(**{"model": (ROWS, REWARDS), **options})


def test_must_fit_the_layout() -> None:
    prior = Prior((ROWS, REWARDS))
    with pytest.raises(ValueError, match=r"prior has \(2, 2\) states and actions: must have \(3, 2\)"):
        prior.packed(Layout(3, 2, 4))
    with pytest.raises(
        ValueError, match="prior has a row for state 0, action 1: the action must be admissible"
    ):
        prior.packed(Layout(2, 2, 4, np.array([[True, False], [True, True]])))
    fits = Prior((changed(ROWS, (0, 1), 0.0), REWARDS))
    assert fits.packed(Layout(2, 2, 4, np.array([[True, False], [True, True]]))).size == 3 * (2 + 3)


def test_the_learner_refuses(tmp_path: Path) -> None:
    prior = Prior((ROWS, REWARDS))
    for options, match in (
        ({"prior": 3}, "prior = 3: must be a Prior or the path of a file"),
        ({"prior": prior, "shrink": False}, "shrink = False: must be true with a prior"),
        ({"prior": prior, "prior_strength": 10.0}, "prior_strength = 10: must be given with prior"),
        ({"prior_strength": 1.0}, "prior_strength = 1.0: must be a finite number of at least 2"),
        ({"prior": {"strength": 10.0}}, "must be a table of file and strength"),
        ({"prior": str(tmp_path / "none.csv")}, "must be a readable file"),
    ):
        with pytest.raises(ValueError, match=match):
            dr.NoiseAwareUCBVI(**options)
    with pytest.raises(ValueError, match="prior has"):
        Setup(world(), dr.NoiseAwareUCBVI(prior=prior), CENTRAL, 100)
    with pytest.raises(TypeError, match="prior: unknown option of DPUCBVI"):
        dr.DPUCBVI(prior=prior)


# --------------------------------------------------------------------------------------- privacy
@pytest.mark.parametrize("options", [{}, {"pooled": "all"}, {"stationary": True}, {"known_rewards": True}])
def test_query_and_guarantee_are_those_without(options: dict[str, Any]) -> None:
    mdp = world()
    plain = Setup(mdp, dr.NoiseAwareUCBVI(**options), CENTRAL, 1000)
    mine = Setup(mdp, dr.NoiseAwareUCBVI(prior=Prior(mdp), **options), CENTRAL, 1000)
    for field in dataclasses.fields(plain.query):
        assert getattr(mine.query, field.name) == getattr(plain.query, field.name)
    assert mine.guarantee == plain.guarantee
    np.testing.assert_array_equal(mine.times, plain.times)
    assert plain.privacy_note is None
    assert "taken as public" in str(mine.privacy_note)


def test_the_result_says_so() -> None:
    mdp = world()
    result = dr.simulate(mdp, dr.NoiseAwareUCBVI(prior=Prior(mdp)), CENTRAL, 200, by="batch", workers=1)
    note = "does not cover the people that the prior was made from"
    assert note in result.summary().statement
    assert note in result.to_json()["privacy_note"]
    assert note in str(result)
    assert note in result._repr_html_()
    plain = dr.simulate(mdp, dr.NoiseAwareUCBVI(), CENTRAL, 200, by="batch", workers=1)
    assert "privacy_note" not in plain.to_json()
    assert "privacy_note" not in plain.about.to_json()
    assert plain.summary().statement == plain.guarantee.statement


# --------------------------------------------------------------------------------------- learning
@pytest.mark.parametrize("options", [{}, {"stationary": True}, {"pooled": "all"}, {"known_rewards": True}])
def test_plans_one_by_one_and_in_the_loop(options: dict[str, Any]) -> None:
    mdp = world()
    learner = dr.NoiseAwareUCBVI(prior=Prior(mdp), **options)
    found = [
        dr.simulate(mdp, learner, CENTRAL, 300, seeds=2, by="batch", workers=1, stepwise=stepwise)
        for stepwise in (False, True)
    ]
    np.testing.assert_array_equal(found[0].regret, found[1].regret)


def test_the_first_users_follow_the_prior() -> None:
    mdp = world()
    spec = ProblemSpec(mdp.layout, 1000, budget=CENTRAL.budget)
    regrets = []
    for prior in (None, Prior(mdp, 1000.0)):
        result = dr.simulate(
            mdp, dr.NoiseAwareUCBVI(prior=prior), CENTRAL, 1000, seeds=4, seed=5, by="batch", workers=1
        )
        regrets.append(result.final_regret.mean())
    assert regrets[1] < 0.5 * regrets[0]
    assert dr.NoiseAwareUCBVI(prior=Prior(mdp)).kernel(spec).knobs.size > 8 * 4


def test_one_step() -> None:
    """A bandit has one slot, where data of a step must not be counted twice."""
    mdp = dr.make("bandit", actions=4, horizon=1, seed=1)
    learner = dr.NoiseAwareUCBVI(prior=Prior(mdp))
    result = dr.simulate(mdp, learner, dr.NoPrivacy(), 2000, seeds=2, by="batch", workers=1)
    assert np.isfinite(result.regret).all()
    assert result.late_share < 0.05


def test_permuted_states() -> None:
    """A learner with permuted states, data and prior has the permuted values."""
    mdp, draw = world(), np.random.default_rng(2)
    order, states = draw.permutation(4), 4
    table = mdp.transitions[0]
    counts = 50.0 * table[None] + draw.normal(0.0, 3.0, (5, 4, 2, states))
    sums = draw.normal(0.0, 5.0, (5, 4, 2))
    found = []
    for places in (np.arange(states), order):
        prior = Prior((table[places][:, :, places], mdp.rewards[0][places]), 20.0)
        learner = dr.NoiseAwareUCBVI(prior=prior, explore_share=0.0)
        spec = ProblemSpec(mdp.layout, 1000, budget=CENTRAL.budget)
        state = learner.begin(spec, run_key(0))
        errors = np.array([3.0, 3.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
        layout = mdp.layout
        policies = np.zeros((5, 4), np.int64)
        for number in range(3):
            state = learner.stepped(
                state, 100 * number, number, layout.to_rows(counts[:, places][:, :, :, places]),
                layout.to_rows(sums[:, places]), errors,
            )  # fmt: skip
            for action in range(2):
                state = learner._noted(state, policies + action, 50)
        found.append(state)
    np.testing.assert_allclose(found[1].values, found[0].values[:, order], rtol=1e-9)
    q = [layout.from_rows(state.q) for state in found]
    np.testing.assert_allclose(q[1], q[0][:, order], rtol=1e-9)


def test_parts_and_pairs_that_say_nothing() -> None:
    """Without any row, the learner is the one without a prior, but for where it looks."""
    mdp = world()
    for part in ("transitions", "rewards"):
        prior = Prior(mdp, **{part: False})
        packed = prior.packed(mdp.layout)
        first = 0 if part == "transitions" else 8
        assert not packed[first : first + 8].any()
        assert packed[8 - first : 16 - first].all()
    empty = Prior(mdp, np.zeros((4, 2)))
    results = [
        dr.simulate(mdp, dr.NoiseAwareUCBVI(prior=prior), CENTRAL, 500, seeds=2, by="batch", workers=1)
        for prior in (None, empty)
    ]
    np.testing.assert_allclose(results[0].regret, results[1].regret, rtol=1e-9)


# ----------------------------------------------------------------------------------------- makers
def lines(prior: Prior) -> dict[str, list[float]]:
    places = np.argwhere(prior.table > 0.0)
    return {
        "state": places[:, 0].tolist(), "action": places[:, 1].tolist(), "next": places[:, 2].tolist(),
        "probability": prior.table[prior.table > 0.0].tolist(),
        "reward": prior.means[places[:, 0], places[:, 1]].tolist(),
    }  # fmt: skip


def test_from_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    prior = Prior(world())
    frame = pandas.DataFrame(lines(prior))
    same = Prior.from_table(frame, states=4, actions=2)
    assert same.digest == prior.digest
    frame["visits"] = 7.0 + frame["state"]
    weighted = Prior.from_table(frame)
    np.testing.assert_array_equal(weighted.weights, np.repeat(7.0 + np.arange(4)[:, None], 2, axis=1))
    frame.to_csv(tmp_path / "prior.csv", index=False)
    assert Prior.from_file(tmp_path / "prior.csv").digest == weighted.digest
    few = Prior.from_table(frame[frame.state == 1], states=4, actions=2)
    assert (few.weights > 0.0).sum() == 2


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"reward": None}, "column 'reward': is missing"),
        ({"more": [1.0] * 4}, "column 'more': must be one of state"),
        ({"state": [0.5, 0, 1, 1]}, "column 'state' holds 0.5: must be an integer"),
        ({"next": [-1, 1, 0, 1]}, "column 'next' holds -1"),
        ({"next": [0, 0, 0, 1]}, "state 0, action 0, next 0 has 2 lines"),
        ({"probability": [0.5, 0.6, 0.5, 0.5]}, "the sum 1.1"),
        ({"reward": [0.1, 0.2, 0.0, 0.0]}, "column 'reward': the lines of state 0, action 0 differ"),
        ({"visits": [5, 6, 5, 5]}, "column 'visits': the lines of state 0, action 0 differ"),
        ({"probability": [0.5, np.nan, 0.5, 0.5]}, "column 'probability' holds nan"),
    ],
)
def test_tables_that_are_refused(change: dict[str, Any], match: str) -> None:
    table: dict[str, Any] = {
        "state": [0, 0, 1, 1], "action": [0, 0, 0, 0], "next": [0, 1, 0, 1], "probability": [0.5] * 4,
        "reward": [0.1] * 4, **change,
    }  # fmt: skip
    with pytest.raises(ValueError, match=match):
        Prior.from_table({name: value for name, value in table.items() if value is not None})


def test_empty_tables_and_small_sizes() -> None:
    names = ("state", "action", "next", "probability", "reward")
    with pytest.raises(ValueError, match="frame: must have at least one line"):
        Prior.from_table({name: [] for name in names})
    with pytest.raises(ValueError, match="states = 1: must be an integer of at least 2"):
        Prior.from_table({name: [1] for name in names}, states=1)


def test_from_simulator() -> None:
    mdp = world()
    prior = Prior.from_simulator(mdp, 20_000, 1)
    assert prior.weights.sum() == pytest.approx(20_000 * mdp.horizon, rel=0.01)
    seen = prior.weights > 1000.0
    assert np.abs(prior.table - mdp.transitions[0])[seen].max() < 0.05  # 1000 visits: 3.2 std of an entry
    assert prior == Prior.from_simulator(mdp, 20_000, 1)
    assert prior != Prior.from_simulator(mdp, 20_000, 2)
    for users, seed, name in ((0, 0, "users"), (10, -1, "seed")):
        with pytest.raises(ValueError, match=name):
            Prior.from_simulator(mdp, users, seed)
    with pytest.raises(ValueError, match="env = 3: must be a TabularMDP or a Gymnasium environment"):
        Prior.from_simulator(3)


def test_from_a_gymnasium_environment() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("FrozenLake-v1", map_name="4x4")
    prior = Prior.from_simulator(env, 300)
    assert prior.table.shape == (16, 4, 16)
    assert prior.weights[0].min() > 0.0
    cliff = gymnasium.make("CliffWalking-v1", max_episode_steps=20)
    with pytest.raises(ValueError, match="env: a reward = -1.0: must be a number in"):
        Prior.from_simulator(cliff, 1)


def released(path: Path, rewards: bool = True, std: float = 3.0) -> Path:
    mdp = world()
    law, noise = GaussianSumLaw(std, 1.0, 1, cells=160, rows=40, row_size=4), np.random.default_rng(4)
    names = ["transition_counts", *(["centered_reward_sums"] if rewards else [])]
    guarantee = Setup(mdp, dr.NoiseAwareUCBVI(), CENTRAL, 10).guarantee
    facts = ReleaseFacts(layout=mdp.layout, users=1000, guarantee=guarantee, laws=dict.fromkeys(names, law))
    rows = mdp.layout.to_rows(mdp.transitions)
    means = mdp.layout.to_rows(mdp.rewards)
    visits = np.array([0.0, 1.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4])
    steps = [
        StepSums(
            h,
            visits[:, None] * rows[h] + noise.normal(0.0, std, rows[h].shape),
            rewards=visits * (means[h] - 0.5) if rewards else None,
        )
        for h in range(mdp.horizon)
    ]
    write_release(path, steps, facts)
    return path


def test_from_release(tmp_path: Path) -> None:
    mdp, path = world(), released(tmp_path / "release.parquet")
    prior = Prior.from_release(path)
    weights = mdp.layout.to_rows(prior.weights[None])[0]
    total = 5.0 * np.array([30.0, 100.0, 300.0, 1e3])
    expected = np.minimum(1000.0, total**2 / (4 * 5 * 9.0 + total))
    np.testing.assert_allclose(weights[2:6], expected, rtol=0.3)
    assert weights[7] == 1000.0
    assert np.abs(prior.table - mdp.transitions[0]).reshape(8, 4)[5:].max() < 0.02
    assert np.abs(prior.means - mdp.rewards[0]).ravel()[5:].max() < 0.02
    assert "the two guarantees compose, and the ledger must add them" in prior.statement
    assert prior.guarantee.statement in prior.statement
    assert pickle.loads(pickle.dumps(prior)).statement == prior.statement
    found = dr.NoiseAwareUCBVI(prior=str(path))
    assert "ledger" in str(Setup(mdp, found, CENTRAL, 100).privacy_note)
    with pytest.raises(ValueError, match="strength = 50.0: must be 100, the default, for a release"):
        Prior.from_file(path, 50.0)


def test_a_release_without_rewards(tmp_path: Path) -> None:
    path = released(tmp_path / "release.parquet", rewards=False)
    with pytest.raises(ValueError, match="has no rewards: give rewards = False"):
        Prior.from_release(path)
    assert Prior.from_release(path, rewards=False).transitions


def test_release_of_an_online_study(tmp_path: Path) -> None:
    mdp = world()
    query = CountQuery(mdp.layout, visits=False, center_rewards=True)
    session = CENTRAL.start(query, Schedule(60_000, times=np.array([0, 30_000])), Seeded(3, 0))
    session.release()
    policy = dr.envs.uniform_policy(mdp)
    session.begin(Plan(policy, 30_000))
    counts = batch_counts(mdp, policy, 30_000, run_key(3))
    centred = counts["reward_sums"] - 0.5 * counts["visits"]
    session.submit_sum(
        {"transition_counts": counts["transition_counts"], "centered_reward_sums": centred}, 30_000
    )
    release = session.release()
    prior = Prior.from_release(release)
    assert prior.guarantee is release.guarantee
    assert "a release of" in prior.origin
    assert prior.weights.min() > 100.0
    assert np.abs(prior.table - mdp.transitions[0]).max() < 0.02
    assert np.abs(prior.means - mdp.rewards[0]).max() < 0.02
    answer = tmp_path / "release.json"
    answer.write_text(json.dumps(release_table(release, "2026-01-01T00:00:00Z")))
    stored = Prior.from_file(answer)
    assert (stored.digest, stored.guarantee) == (prior.digest, None)
    assert "privacy losses add up" in stored.statement  # an answer of a service contains no guarantee
    for text, match in (
        ("{}", "GET /releases/N"),
        ("[", "GET /releases/N"),
        ('{"sums": {}, "users": 3}', "must hold transition_counts"),
        (
            '{"sums": {"transition_counts": {"value": [1], "shape": [1], "noise_std": 1}}, "users": 3}',
            "shape",
        ),
    ):
        answer.write_text(text)
        with pytest.raises(ValueError, match=match):
            Prior.from_release(answer)


def test_a_prior_of_exact_sums_is_not_called_public() -> None:
    """Its statement was that of a public model."""
    layout = world().layout
    session = dr.NoPrivacy().start(CountQuery(layout), Schedule(10), Seeded(0))
    prior = Prior.from_release(session.release())
    assert "taken as public" not in prior.statement
    assert "No guarantee covers the people that the prior was made from" in prior.statement


# ------------------------------------------------------------------------------------------ files
def test_files_that_are_refused(tmp_path: Path) -> None:
    for name, text, match in (
        ("a.txt", "", "must be a .csv table, or the .parquet or .json file"),
        ("a.csv", "state,action\n1\n", "line 2: must have 2 values"),
        ("b.csv", f"{HEAD}0,0,0,one,1\n", "column 'probability': must hold numbers"),
        ("c.csv", "", "column 'state': is missing"),
        ("d.parquet", "no", "d.parquet"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=match):
            Prior.from_file(tmp_path / name)
    with pytest.raises(ValueError, match="must be a readable table"):
        Prior.from_file(tmp_path / "none.csv")


def written(path: Path, states: int = 2) -> Path:
    path.write_text(HEAD + "".join(f"{s},0,{s},1.0,0.5\n" for s in range(states)))
    return path


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "prior.csv")
    text = pinned("prior", str(path))
    assert pinned("prior", text) == text
    assert text.startswith(f"{path}#")
    learner = dr.NoiseAwareUCBVI(prior=str(path), prior_strength=30.0)
    assert learner.prior == text
    layout = Layout(3, 2, 4)
    prior = read_pinned(text, 30.0, layout)
    assert prior.weights.shape == (3, 2)  # larger than the table
    assert prior.weights.max() == 30.0
    assert dataclasses.replace(learner) == learner == dr.NoiseAwareUCBVI(prior={"file": text, "strength": 30})
    written(path, 1)
    with pytest.raises(ValueError, match="the file has changed"):
        dr.NoiseAwareUCBVI(prior=text)


def test_equality_and_text() -> None:
    one, other = Prior((ROWS, REWARDS)), Prior((ROWS, REWARDS), 50.0)
    assert one == Prior((ROWS, REWARDS))
    assert hash(one) == hash(Prior((ROWS, REWARDS)))
    assert one != other
    assert one != 3
    assert repr(one).startswith("Prior(a public model: 4 pairs, ")
    assert pickle.loads(pickle.dumps(other)).digest == other.digest


def test_texts_and_guarantees_of_a_prior_are_checked(tmp_path: Path) -> None:
    """Their sentences are in privacy statements."""
    model = (np.ones((1, 1, 1)), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="origin = 5: must be a text"):
        Prior(model, origin=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="guarantee = .*: must be a Guarantee"):
        Prior(model, guarantee="private")  # type: ignore[arg-type]
    columns = {"state": [1e300], "action": [0], "next": [0], "probability": [1.0], "reward": [0.0]}
    with pytest.raises(ValueError, match="column 'state' holds 1e.300: must be an integer"):
        Prior.from_table(columns)
    with pytest.raises(ValueError, match="states = 900001, actions = 1: a table has at most"):
        Prior.from_table({**columns, "state": [900_000]})
    with pytest.raises(ValueError, match="frame = None: must be a data frame"):
        Prior.from_table(None)  # type: ignore[arg-type]
    path = tmp_path / "twice.csv"
    path.write_text("state,action,next,probability,reward, reward\n0,0,0,1,0,1\n")
    with pytest.raises(ValueError, match="must name each column once"):
        Prior.from_file(path)
