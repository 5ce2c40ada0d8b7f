"""Environments, exact planning, and rollouts."""

from discreet.core.layout import Layout as Layout
from discreet.core.trajectories import Trajectories as Trajectories
from discreet.core.trajectories import Trajectory as Trajectory
from discreet.envs.bandits import bandit as bandit
from discreet.envs.bandits import gamble as gamble
from discreet.envs.combination_lock import combination_lock as combination_lock
from discreet.envs.context_worlds import ContextWorld as ContextWorld
from discreet.envs.context_worlds import fixed_arms as fixed_arms
from discreet.envs.context_worlds import per_action_contexts as per_action_contexts
from discreet.envs.context_worlds import shared_contexts as shared_contexts
from discreet.envs.from_gymnasium import from_gymnasium as from_gymnasium
from discreet.envs.from_gymnasium import to_gymnasium as to_gymnasium
from discreet.envs.heavy_tails import heavy_riverswim as heavy_riverswim
from discreet.envs.heavy_tails import heavy_tailed as heavy_tailed
from discreet.envs.icu_sepsis import expert_policy as expert_policy
from discreet.envs.icu_sepsis import icu_sepsis as icu_sepsis
from discreet.envs.linear_envs import hypercube as hypercube
from discreet.envs.linear_envs import hypercube_mdp as hypercube_mdp
from discreet.envs.linear_envs import linear_mixture as linear_mixture
from discreet.envs.linear_envs import linear_mixture_mdp as linear_mixture_mdp
from discreet.envs.linear_envs import random_linear as random_linear
from discreet.envs.linear_envs import random_linear_mdp as random_linear_mdp
from discreet.envs.linear_envs import wide_linear as wide_linear
from discreet.envs.linear_envs import wide_linear_mdp as wide_linear_mdp
from discreet.envs.mdp.linear import LinearMDP as LinearMDP
from discreet.envs.mdp.linear_mixture import LinearMixtureMDP as LinearMixtureMDP
from discreet.envs.mdp.planning import evaluate_policy as evaluate_policy
from discreet.envs.mdp.planning import occupancy as occupancy
from discreet.envs.mdp.planning import optimal_values as optimal_values
from discreet.envs.mdp.planning import policy_value as policy_value
from discreet.envs.mdp.planning import uniform_policy as uniform_policy
from discreet.envs.mdp.tabular import TabularMDP as TabularMDP
from discreet.envs.random_mdps import random_mdp as random_mdp
from discreet.envs.riverswim import riverswim as riverswim
from discreet.envs.rollouts.rollout import rollout as rollout
from discreet.envs.rollouts.rollout import rollout_batch as rollout_batch
from discreet.envs.switching_chain import switching_chain as switching_chain
from discreet.envs.synthetic_linear import synthetic_linear as synthetic_linear
from discreet.envs.synthetic_linear import synthetic_linear_behaviour as synthetic_linear_behaviour
from discreet.envs.synthetic_linear import synthetic_linear_mdp as synthetic_linear_mdp
from discreet.experiments.build_run import sweep as sweep
from discreet.registry import make as make
from discreet.registry import register as register

__all__: list[str]
