"""Pipeline from a file of trajectories to a policy."""

from discreet.pipeline.approve import sign as sign
from discreet.pipeline.disclosures import crosswalk as crosswalk
from discreet.pipeline.disclosures import registry_record as registry_record
from discreet.pipeline.environment_table import read_mdp as read_mdp
from discreet.pipeline.estimate import SchemaForecast as SchemaForecast
from discreet.pipeline.estimate import estimate_release as estimate_release
from discreet.pipeline.federated import FederatedSite as FederatedSite
from discreet.pipeline.federated import FederatedSum as FederatedSum
from discreet.pipeline.federated import FederationPlan as FederationPlan
from discreet.pipeline.federated import read_site_plan as read_site_plan
from discreet.pipeline.flower_app import flower_client as flower_client
from discreet.pipeline.flower_app import flower_server as flower_server
from discreet.pipeline.learn import LearnConfig as LearnConfig
from discreet.pipeline.learn import LearnResult as LearnResult
from discreet.pipeline.learn import replan as replan
from discreet.pipeline.linear_power_analysis import LinearForecast as LinearForecast
from discreet.pipeline.linear_power_analysis import linear_gain_power as linear_gain_power
from discreet.pipeline.linear_power_analysis import linear_sample_size as linear_sample_size
from discreet.pipeline.linear_power_analysis import linear_smallest_epsilon as linear_smallest_epsilon
from discreet.pipeline.linear_power_analysis import (
    synthetic_linear_mdp_from_schema as synthetic_linear_mdp_from_schema,
)
from discreet.pipeline.log_judgement import forecast_log as forecast_log
from discreet.pipeline.log_judgement import judge_log as judge_log
from discreet.pipeline.log_judgement import verify_log as verify_log
from discreet.pipeline.model_planner import ModelPlanner as ModelPlanner
from discreet.pipeline.partial_aggregates import PartialAggregateFile as PartialAggregateFile
from discreet.pipeline.partial_aggregates import aggregate_part as aggregate_part
from discreet.pipeline.partial_aggregates import merge_aggregates as merge_aggregates
from discreet.pipeline.partial_aggregates import new_aggregate_key as new_aggregate_key
from discreet.pipeline.partial_aggregates import read_aggregate_key as read_aggregate_key
from discreet.pipeline.policy_evaluation import evaluate_with_release as evaluate_with_release
from discreet.pipeline.power_analysis import GainForecast as GainForecast
from discreet.pipeline.power_analysis import PublicMDP as PublicMDP
from discreet.pipeline.power_analysis import gain_power as gain_power
from discreet.pipeline.power_analysis import sample_size as sample_size
from discreet.pipeline.power_analysis import smallest_epsilon as smallest_epsilon
from discreet.pipeline.power_analysis import synthetic_mdp as synthetic_mdp
from discreet.pipeline.state_codebook import estimate_codebook as estimate_codebook
from discreet.pipeline.state_codebook import fit_codebook as fit_codebook
from discreet.pipeline.state_codebook import verify_codebook as verify_codebook
from discreet.pipeline.synthetic_users import SyntheticData as SyntheticData
from discreet.pipeline.synthetic_users import synthesize as synthesize
from discreet.pipeline.synthetic_utility import Utility as Utility
from discreet.pipeline.trajectory_files import write_trajectories as write_trajectories

__all__: list[str]
