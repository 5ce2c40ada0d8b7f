"""Public names, under the headings of the reference, each with the module that has it.

Type checkers read this file, and ``__init__.py`` loads a name from there when it is first used.
"""

# worlds
from discreet.registry import make as make
from discreet.registry import register as register
from discreet.experiments.build_run import sweep as sweep
from discreet.envs.mdp.tabular import TabularMDP as TabularMDP
from discreet.envs.mdp.linear import LinearMDP as LinearMDP
from discreet.envs.mdp.linear_mixture import LinearMixtureMDP as LinearMixtureMDP
from discreet.mechanisms.features import Features as Features
from discreet.mechanisms.features import MixtureFeatures as MixtureFeatures
from discreet.experiments.features_fit import FeaturesFit as FeaturesFit
from discreet.experiments.features_fit import features_fit as features_fit
from discreet.core.layout import Layout as Layout
from discreet.envs import expert_policy as expert_policy
from discreet.envs import from_gymnasium
from discreet.envs import synthetic_linear_behaviour as synthetic_linear_behaviour
from discreet.envs import synthetic_linear_mdp as synthetic_linear_mdp
from discreet.envs import to_gymnasium

# exact planning, and people who follow a policy
from discreet.envs.mdp.planning import evaluate as evaluate
from discreet.envs.mdp.planning import occupancy as occupancy
from discreet.envs.mdp.planning import optimal_values as optimal_values
from discreet.envs.mdp.planning import uniform_policy as uniform_policy
from discreet.envs.mdp.planning import value as value
from discreet.envs.rollouts.rollout import rollout as rollout
from discreet.envs.rollouts.rollout import rollouts as rollouts
from discreet.core.trajectories import Trajectories as Trajectories
from discreet.core.trajectories import Trajectory as Trajectory

# learners from people as they come
from discreet.learners.online.ucbvi import UCBVI as UCBVI
from discreet.learners.online.ucbvi import PrivateUCBVI as PrivateUCBVI
from discreet.learners.online.ucbvi import DPUCBVI as DPUCBVI
from discreet.learners.online.psrl import PSRL as PSRL
from discreet.learners.online.rlsvi import RLSVI as RLSVI
from discreet.learners.online.policy_optimization import OPPO as OPPO
from discreet.learners.online.policy_optimization import PrivateUCBPO as PrivateUCBPO
from discreet.learners.online.pucb import PUCB as PUCB
from discreet.learners.online.noise_aware import NoiseAwareUCBVI as NoiseAwareUCBVI
from discreet.learners.online.noise_aware_sums import NoiseAwareOnSums as NoiseAwareOnSums
from discreet.learners.online.joint_posterior import JointModel as JointModel
from discreet.learners.online.ldp_obi import LDPOBI as LDPOBI
from discreet.learners.online.policy_elimination import APEVE as APEVE
from discreet.learners.online.policy_elimination import SDPPE as SDPPE
from discreet.learners.online.occupancy_elimination import SDPPEOM as SDPPEOM
from discreet.learners.online.lsvi_ucb import LSVIUCB as LSVIUCB
from discreet.learners.online.ucrl_vtr import UCRLVTR as UCRLVTR
from discreet.learners.online.ucrl_vtr import UCRLVTRPlus as UCRLVTRPlus

# learners from stored people
from discreet.learners.offline.apvi import APVI as APVI
from discreet.learners.offline.apvi import DPAPVI as DPAPVI
from discreet.learners.offline.decision_points import DecisionPoints as DecisionPoints
from discreet.learners.offline.decision_points import DecisionPolicy as DecisionPolicy
from discreet.learners.offline.apvi import OfflinePolicy as OfflinePolicy
from discreet.learners.offline.linear_pevi import DPPEVI as DPPEVI
from discreet.learners.offline.linear_pevi import DPVAPVI as DPVAPVI
from discreet.learners.offline.linear_pevi import PEVI as PEVI
from discreet.learners.offline.linear_pevi import VAPVI as VAPVI
from discreet.learners.offline.linear_pevi import learn_linear as learn_linear
from discreet.learners.offline.linear_pevi import replan as replan

# privatizers, randomness, and what they promise
from discreet.mechanisms.privatizers.central import Central as Central
from discreet.mechanisms.privatizers.local import Local as Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy as NoPrivacy
from discreet.mechanisms.privatizers.shuffle import Shuffle as Shuffle
from discreet.core.rng import Secure as Secure
from discreet.core.rng import SecureCoins as SecureCoins
from discreet.core.rng import Seeded as Seeded
from discreet.core.noise.seeded_rng import SeededCoins as SeededCoins
from discreet.core.guarantee import Guarantee as Guarantee

# the door between learners and privatizers
from discreet.mechanisms.interfaces import Budget as Budget
from discreet.mechanisms.interfaces import Encoder as Encoder
from discreet.mechanisms.interfaces import Learner as Learner
from discreet.mechanisms.interfaces import Mechanism as Mechanism
from discreet.mechanisms.interfaces import Message as Message
from discreet.mechanisms.interfaces import NoiseLaw as NoiseLaw
from discreet.mechanisms.interfaces import Plan as Plan
from discreet.mechanisms.interfaces import Privatizer as Privatizer
from discreet.mechanisms.interfaces import Release as Release
from discreet.mechanisms.interfaces import Response as Response
from discreet.mechanisms.interfaces import Returns as Returns
from discreet.mechanisms.interfaces import Schedule as Schedule
from discreet.mechanisms.interfaces import Session as Session
from discreet.mechanisms.interfaces import Spec as Spec
from discreet.core.count_query import CountQuery as CountQuery
from discreet.mechanisms.linear.linear_queries import GramQuery as GramQuery
from discreet.mechanisms.linear.linear_queries import MixtureQuery as MixtureQuery
from discreet.mechanisms.linear.adaptive_queries import Question as Question
from discreet.mechanisms.linear.adaptive_queries import ResponseSession as ResponseSession

# mechanisms: what is done to people, and what it costs them
from discreet.core.count_mechanism import Batches as Batches
from discreet.core.count_mechanism import CountMechanism as CountMechanism
from discreet.core.count_mechanism import Exact as Exact
from discreet.core.count_mechanism import OnDevice as OnDevice
from discreet.core.count_mechanism import Prefixes as Prefixes
from discreet.mechanisms.local.randomized_response_strategy import Reported as Reported
from discreet.core.count_mechanism import Stated as Stated
from discreet.core.correlated_noise.per_pair_schedule import Clocks as Clocks
from discreet.core.correlated_noise.binary_tree import Tree as Tree
from discreet.core.correlated_noise.optimal_tree import OptimalTree as OptimalTree
from discreet.core.correlated_noise.signed_digit_tree import SignedDigits as SignedDigits
from discreet.core.correlated_noise.square_root_toeplitz import SquareRoot as SquareRoot
from discreet.mechanisms.local.randomized_response import StepReports as StepReports
from discreet.mechanisms.linear.linear_mechanism import LinearMechanism as LinearMechanism
from discreet.mechanisms.batch_queries import BatchMechanism as BatchMechanism
from discreet.mechanisms.shuffle.shuffle_mechanisms import AmplifiedMechanism as AmplifiedMechanism
from discreet.mechanisms.shuffle.shuffle_mechanisms import FlipMechanism as FlipMechanism
from discreet.mechanisms.open_session import Proposes as Proposes
from discreet.mechanisms.open_session import session_of as session_of
from discreet.mechanisms.restore_session import restore as restore
from discreet.mechanisms.dataset.partial_aggregate import Tally as Tally

# on a person's device
from discreet.device.linear_device import LinearDevice as LinearDevice
from discreet.device.count_device import CountDevice as CountDevice
from discreet.device.randomized_response_device import ReportDevice as ReportDevice
from discreet.device.shuffle_encoder import ShuffleEncoder as ShuffleEncoder
from discreet.device.message_envelope import Envelope as Envelope
from discreet.device.message_envelope import Refused as Refused
from discreet.device.message_guarantee import MessageGuarantee as MessageGuarantee
from discreet.device.linear_planning import greedy as greedy
from discreet.device.linear_planning import optimistic as optimistic

# simulations
from discreet.experiments.simulate import Setup as Setup
from discreet.experiments.simulate import simulate as simulate
from discreet.experiments.results import Result as Result
from discreet.experiments.engine import Engine as Engine
from discreet.experiments.engine import EngineError as EngineError
from discreet.experiments.engine import open_engine as open_engine
from discreet.experiments.sweep import compare as compare
from discreet.experiments.sweep import load_results as load_results
from discreet.experiments.plots import regret_figure as regret_figure
from discreet.experiments.estimate import Forecast as Forecast
from discreet.experiments.estimate import forecast_run as forecast_run
from discreet.audit.run import Audit as Audit
from discreet.audit.run import audit as audit

# files and records of people
from discreet.data.schema import Schema as Schema
from discreet.data.schema import read_schema as read_schema
from discreet.data.schema import write_schema as write_schema
from discreet.data.row_batches import open_source as open_source
from discreet.data.config_template import skeleton as skeleton
from discreet.data.prepare_config import read_declaration as read_declaration
from discreet.data.prepare import prepare as prepare
from discreet.pipeline.state_codebook import fit_codebook as fit_codebook
from discreet.pipeline.state_codebook import forecast_codebook as forecast_codebook
from discreet.pipeline.state_codebook import verify_codebook as verify_codebook
from discreet.pipeline.trajectory_files import write_trajectories as write_trajectories

# from stored people to a policy
from discreet.learners.offline.interface import OfflineLearner as OfflineLearner
from discreet.experiments.offline_runs import Simulated as Simulated
from discreet.experiments.offline_runs import learn_from as learn_from
from discreet.experiments.offline_runs import release_of as release_of
from discreet.pipeline.learn import Outcome as Outcome
from discreet.pipeline.learn import Settings as Settings
from discreet.pipeline.learn import learn as learn
from discreet.pipeline.partial_aggregates import Part as Part
from discreet.pipeline.partial_aggregates import count_part as count_part
from discreet.pipeline.partial_aggregates import merge_parts as merge_parts
from discreet.pipeline.partial_aggregates import new_count_key as new_count_key
from discreet.pipeline.partial_aggregates import read_count_key as read_count_key

# one policy for several sites that do not share data
from discreet.pipeline.federated import Site as Site
from discreet.pipeline.federated import SitePlan as SitePlan
from discreet.pipeline.federated import SiteSums as SiteSums
from discreet.pipeline.federated import read_site_plan as read_site_plan
from discreet.pipeline.flower_app import flower_client as flower_client
from discreet.pipeline.flower_app import flower_server as flower_server

# what can be shown, before anything is spent
from discreet.pipeline.power_analysis import GainForecast as GainForecast
from discreet.pipeline.power_analysis import PublicWorld as PublicWorld
from discreet.pipeline.power_analysis import epsilon_needed as epsilon_needed
from discreet.pipeline.power_analysis import forecast_gain as forecast_gain
from discreet.pipeline.power_analysis import made_up_world as made_up_world
from discreet.pipeline.power_analysis import people_needed as people_needed
from discreet.pipeline.linear_power_analysis import LinearForecast as LinearForecast
from discreet.pipeline.linear_power_analysis import forecast_linear as forecast_linear
from discreet.pipeline.linear_power_analysis import linear_epsilon_needed as linear_epsilon_needed
from discreet.pipeline.linear_power_analysis import linear_people_needed as linear_people_needed
from discreet.pipeline.linear_power_analysis import made_up_linear_world as made_up_linear_world
from discreet.pipeline.environment_table import read_world as read_world

# planning again, policies, reports
from discreet.pipeline.learn import plan_again as plan_again
from discreet.pipeline.estimate import SchemaForecast as SchemaForecast
from discreet.pipeline.estimate import forecast_learn as forecast_learn
from discreet.learners.offline.release_files import read_release as read_release
from discreet.reports.policy_files import PolicyTable as PolicyTable
from discreet.reports.policy_files import read_policy as read_policy
from discreet.reports.policy_files import write_policy as write_policy
from discreet.reports.policy_report import report_of as report_of
from discreet.learners.ope.count_estimates import Candidate as Candidate
from discreet.learners.ope.count_estimates import values_of as values_of

# statements, signatures, ledger, attacks
from discreet.reports.statement import Statement as Statement
from discreet.pipeline.verify import verify as verify
from discreet.pipeline.approve import sign as sign
from discreet.ledger.signatures import new_key as new_key
from discreet.ledger.signatures import read_private_key as read_private_key
from discreet.ledger.signatures import read_public_key as read_public_key
from discreet.ledger.owner_rules import require_ledger as require_ledger
from discreet.audit.membership_inference import membership_attack as membership_attack
from discreet.ledger.ledger import Ledger as Ledger

from discreet.audit import conformance

__version__: str
_HOMES: dict[str, str]
_MODULES: tuple[str, ...]
__all__: list[str]
