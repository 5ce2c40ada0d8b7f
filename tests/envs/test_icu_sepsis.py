"""The concrete worlds: their published numbers, their options, and what they refuse."""

import doctest
import importlib
import inspect
import sys

import numpy as np
import pytest

from discreet import envs
from discreet.envs import combination_lock, expert_policy, icu_sepsis, random_mdp, riverswim
from discreet.envs.mdp.planning import evaluate_policy, optimal_values, policy_value, uniform_policy
from discreet.envs.rollouts.rollout import batch_counts, rollout_batch
from discreet.utils.random_streams_kernels import run_key


@pytest.mark.parametrize(
    "factory", [riverswim, random_mdp, combination_lock, icu_sepsis, expert_policy, envs.from_gymnasium]
)
def test_options_are_typed_keywords(factory):
    for parameter in inspect.signature(factory).parameters.values():
        assert parameter.annotation is not parameter.empty
        assert parameter.kind is parameter.KEYWORD_ONLY or parameter.name == "env_id"


# ---------------------------------------------------------------------------- RiverSwim


def test_docstring_example():
    module = importlib.import_module("discreet.envs.riverswim")
    assert doctest.testmod(sys.modules[module.__name__]).failed == 0


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
