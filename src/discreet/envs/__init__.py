"""Environments: functions that take keyword options and return a :class:`TabularMDP`."""

# ruff: noqa: F401 - some functions have the name of their module, so they must be imported here first
from discreet.envs.bandits import bandit, gamble
from discreet.envs.combination_lock import combination_lock
from discreet.envs.context_worlds import ContextWorld, fixed_arms, per_action_contexts, shared_contexts
from discreet.envs.from_gymnasium import from_gymnasium, to_gymnasium
from discreet.envs.heavy_tails import heavy_riverswim, heavy_tailed
from discreet.envs.icu_sepsis import expert_policy, icu_sepsis
from discreet.envs.linear_envs import (
    hypercube,
    hypercube_mdp,
    linear_mixture,
    linear_mixture_mdp,
    random_linear,
    random_linear_mdp,
    wide_linear,
    wide_linear_mdp,
)
from discreet.envs.random_mdps import random_mdp
from discreet.envs.riverswim import riverswim
from discreet.envs.switching_chain import switching_chain
from discreet.envs.synthetic_linear import (
    synthetic_linear,
    synthetic_linear_behaviour,
    synthetic_linear_mdp,
)
from discreet.names import public_names

__getattr__, __dir__, __all__ = public_names(__name__)
