"""The concrete worlds: their published numbers, their options, and what they refuse."""

import doctest
import importlib
import inspect
import sys

import numpy as np
import pytest

from discreet import envs
from discreet.core.noise.random_streams_kernels import run_key
from discreet.envs import combination_lock, expert_policy, icu_sepsis, random_mdp, riverswim, switching_chain
from discreet.envs.mdp.planning import evaluate_policy, optimal_values, policy_value, uniform_policy
from discreet.envs.rollouts.rollout import batch_counts, rollout_batch


@pytest.mark.parametrize(
    "factory", [riverswim, random_mdp, combination_lock, icu_sepsis, expert_policy, envs.from_gymnasium]
)
def test_options_are_typed_keywords(factory):
    for parameter in inspect.signature(factory).parameters.values():
        assert parameter.annotation is not parameter.empty
        assert parameter.kind is parameter.KEYWORD_ONLY or parameter.name == "env_id"


# ---------------------------------------------------------------------------- RiverSwim


def test_riverswim_is_the_table_of_the_spec():
    mdp = riverswim()
    assert (mdp.states, mdp.actions, mdp.horizon, mdp.stationary) == (6, 2, 20, True)
    assert mdp.reward_law == "deterministic"
    p = mdp.transitions[0]
    assert np.abs(p.sum(-1) - 1).max() < 1e-15
    for s in range(6):
        assert p[s, 0, max(0, s - 1)] == 1
    assert p[0, 1].tolist() == [0.4, 0.6, 0, 0, 0, 0]
    for s in range(1, 5):
        assert p[s, 1, s - 1 : s + 2].tolist() == [0.05, 0.6, 0.35]
    assert p[5, 1].tolist() == [0, 0, 0, 0, 0.4, 0.6]
    expected = np.zeros((6, 2))
    expected[0, 0], expected[5, 1] = 0.005, 1
    assert np.array_equal(mdp.rewards[7], expected)
    assert mdp.initial.tolist() == [1, 0, 0, 0, 0, 0]


def test_riverswim_options():
    assert riverswim(states=2).transitions[0, 1, 1].tolist() == [0.4, 0.6]
    assert riverswim(horizon=7).horizon == 7
    assert riverswim(rewards="bernoulli").reward_law == "bernoulli"
    for options, message in (
        ({"states": 1}, "states = 1"),
        ({"horizon": 0}, "horizon = 0"),
        ({"rewards": "normal"}, "rewards = 'normal': must be one of 'deterministic', 'bernoulli'"),
    ):
        with pytest.raises(ValueError, match=message):
            riverswim(**options)


def test_docstring_example():
    module = importlib.import_module("discreet.envs.riverswim")
    assert doctest.testmod(sys.modules[module.__name__]).failed == 0


# -------------------------------------------------------------------------- random MDPs


def test_random_mdp_is_a_function_of_its_seed():
    one, again, other = random_mdp(seed=5), random_mdp(seed=5), random_mdp(seed=6)
    assert np.array_equal(one.transitions, again.transitions)
    assert np.array_equal(one.rewards, again.rewards)
    assert not np.array_equal(one.transitions, other.transitions)


@pytest.mark.parametrize("seed", range(5))
def test_random_mdp_of_the_spec(seed):
    mdp = random_mdp(seed=seed)
    assert (mdp.states, mdp.actions, mdp.horizon, mdp.stationary) == (6, 2, 20, True)
    assert mdp.reward_law == "bernoulli"
    assert mdp.initial[0] == 1
    means = mdp.rewards[0][mdp.rewards[0] > 0]
    assert means.size == 2
    assert ((means >= 0.3) & (means <= 1)).all()


def test_random_mdp_options():
    mdp = random_mdp(states=8, actions=3, horizon=4, successors=2, rewarding=5, stationary=False, seed=1)
    assert mdp.transitions.shape == (4, 8, 3, 8)
    assert not mdp.stationary
    assert ((mdp.transitions > 0).sum(-1) == 2).all()
    assert ((mdp.rewards > 0).sum((1, 2)) == 5).all()
    assert (mdp.rewards[0] != mdp.rewards[1]).any()
    assert not np.array_equal(mdp.transitions[0], mdp.transitions[1])
    rows = random_mdp(states=50, actions=40, concentration=0.3, seed=0).transitions[0].reshape(-1, 50)
    # A Dirichlet(.3) row of 50: E sum p^2 = (.3 + 1) / (50 * .3 + 1) = .08125; 2000 rows.
    assert (rows**2).sum(-1).mean() == pytest.approx(0.08125, abs=0.005)
    for options, message in (
        ({"states": 0}, "states = 0"),
        ({"successors": 7}, r"successors = 7: must be an integer in \[1, 6\]"),
        ({"rewarding": 13}, r"rewarding = 13: must be an integer in \[0, 12\]"),
        ({"concentration": 0.0}, "concentration = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"rewards": "discrete"}, "rewards = 'discrete'"),
    ):
        with pytest.raises(ValueError, match=message):
            random_mdp(**options)


# --------------------------------------------------------------------------- ICU-Sepsis


@pytest.fixture(scope="module")
def icu():
    return icu_sepsis()


def test_icu_shape(icu):
    assert (icu.states, icu.actions, icu.horizon, icu.stationary) == (716, 25, 20, True)
    assert icu.layout.rows == 2313  # libraries.md; terminal states admit all 25 actions
    assert icu.terminal == (713, 714, 715)
    assert icu.reward_law == "deterministic"
    assert np.abs(icu.transitions[0].sum(-1)[icu.mask] - 1).max() < 1e-12
    assert icu.initial.sum() == pytest.approx(1, abs=1e-12)
    assert not icu.initial[713:].any()


@pytest.mark.parametrize(
    ("horizon", "uniform", "expert", "renormalised", "optimal"),
    [(20, 0.685447, 0.691983, 0.692467, 0.792216), (500, 0.780071, 0.781845, 0.782014, 0.875142)],
)
def test_icu_values(horizon, uniform, expert, renormalised, optimal):
    """libraries.md: .685, .692, .792 at H = 20 and .780, .782, .875 at H = 500."""
    mdp = icu_sepsis(horizon=horizon)
    assert policy_value(mdp, uniform_policy(mdp)) == pytest.approx(uniform, abs=1e-6)
    shipped = expert_policy(horizon=horizon)
    other = expert_policy(horizon=horizon, inadmissible="renormalised")
    assert policy_value(mdp, shipped) == pytest.approx(expert, abs=1e-6)
    assert policy_value(mdp, other) == pytest.approx(renormalised, abs=1e-6)
    assert mdp.initial @ optimal_values(mdp)[0][0] == pytest.approx(optimal, abs=1e-6)


def test_icu_expert_episodes_end(icu):
    """libraries.md: median 6 steps, 88.5 % of the expert's episodes end within 20."""
    states = rollout_batch(icu, expert_policy(), 20000).states
    ended = states >= 713
    assert ended[:, -1].mean() == pytest.approx(0.885, abs=0.012)
    assert np.median(np.where(ended[:, -1], ended.argmax(1), 21)) == 6


def test_icu_batch_flow(icu):
    """The closed form at 5 standard errors: survivors of a million patients, and their exact mean."""
    policy, n = uniform_policy(icu), 10**6
    counts = batch_counts(icu, policy, n, run_key(0), pooled=True)
    survival = policy_value(icu, policy)
    total = counts["reward_sums"].sum()
    assert abs(total - n * survival) < 5 * np.sqrt(n * survival * (1 - survival))
    assert counts["visits"].sum() == 20 * n
    assert counts["reward_sums"].sum() == counts["transition_counts"][0, :713, :, 714].sum()


def test_icu_refuses():
    with pytest.raises(ValueError, match="horizon = 0"):
        icu_sepsis(horizon=0)
    with pytest.raises(ValueError, match="inadmissible = 'drop'"):
        expert_policy(inadmissible="drop")


def test_icu_names_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.import_module("discreet.envs.icu_sepsis"), "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'discreet\[icu\]'"):
        icu_sepsis()


def test_optimal_is_at_least_every_policy(icu):
    values = optimal_values(icu)[0]
    assert (evaluate_policy(icu, expert_policy()) <= values + 1e-12).all()


def test_switching_chain_varies_and_swaps() -> None:
    mdp = switching_chain(seed=3)
    assert not mdp.stationary
    p = mdp.transitions
    assert (p[0, :-1, 0] == p[1, :-1, 0]).all()  # going left is certain and the same
    assert (p[2, :-1, 1] == p[0, :-1, 0]).all()  # swapped at every third step
    forward = np.array([p[h, 2, 0 if h % 3 == 2 else 1, 3] for h in range(20)])
    assert np.unique(forward).size == 20
    assert ((forward >= 0.1) & (forward <= 0.7)).all()
    assert switching_chain(seed=3).transitions.tolist() == p.tolist()
    with pytest.raises(ValueError, match="states = 1"):
        switching_chain(states=1)


@pytest.mark.parametrize("options", [{}, {"states": 12, "actions": 3, "depth": 7, "seed": 4}], ids=str)
def test_combination_lock_opens_by_one_sequence_only(options) -> None:
    mdp = combination_lock(**options)
    p, depth = mdp.transitions[0], options.get("depth", 8)
    assert mdp.stationary
    assert np.abs(p.sum(-1) - 1).max() < 1e-12
    for i in range(depth - 1):
        up = p[i, :, i + 1]
        right = int(np.argmax(up))
        assert 0.5 <= up[right] <= 0.9
        assert up[right] + p[i, right, i] == pytest.approx(1)
        assert (np.delete(up, right) == 0).all()  # every other action falls behind, or into a trap
        assert (np.delete(p[i], right, axis=0)[:, i + 1 : depth] == 0).all()
    assert (p[depth:, :, 1:depth] == 0).all()  # from a trap only the start leads back
    r = mdp.rewards[0]
    assert r.max() == r[depth - 1].max()
    assert 0.7 <= r.max() <= 1
    assert np.delete(r, depth - 1, axis=0).max() <= 0.02
    best, uniform = optimal_values(mdp)[0][0, 0], policy_value(mdp, uniform_policy(mdp))
    assert uniform < 0.1 * best
    again, other = combination_lock(**options), combination_lock(**{**options, "seed": 77})
    assert np.array_equal(p, again.transitions[0])
    assert not np.array_equal(p, other.transitions[0])


def test_combination_lock_refuses() -> None:
    for options, message in (
        ({"states": 1}, "states = 1"),
        ({"actions": 1}, "actions = 1"),
        ({"depth": 9}, "depth = 9"),
        ({"depth": 1}, "depth = 1"),
        ({"rewards": "normal"}, "rewards = 'normal'"),
    ):
        with pytest.raises(ValueError, match=message):
            combination_lock(**options)
