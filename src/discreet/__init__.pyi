"""Public names, under the headings of the reference, each with the module that has it.

Type checkers read this file, and ``__init__.py`` loads a name from there when it is first used.
"""

# worlds
from discreet.registry import make as make
from discreet.registry import register as register
from discreet.registry import sweep as sweep
from discreet.mdp.tabular import TabularMDP as TabularMDP
from discreet.mdp.linear import LinearMDP as LinearMDP
from discreet.mdp.mixture import LinearMixtureMDP as LinearMixtureMDP
from discreet.linear.features import Features as Features
from discreet.linear.features import MixtureFeatures as MixtureFeatures
from discreet.experiments.features_fit import FeaturesFit as FeaturesFit
from discreet.experiments.features_fit import features_fit as features_fit
from discreet.core.layout import Layout as Layout
from discreet.envs import expert_policy as expert_policy
from discreet.envs import from_gymnasium as from_gymnasium
from discreet.envs import synthetic_linear_behaviour as synthetic_linear_behaviour
from discreet.envs import synthetic_linear_mdp as synthetic_linear_mdp
from discreet.envs import to_gymnasium as to_gymnasium

# exact planning, and people who follow a policy
from discreet.mdp.planning import evaluate as evaluate
from discreet.mdp.planning import occupancy as occupancy
from discreet.mdp.planning import optimal_values as optimal_values
from discreet.mdp.planning import uniform_policy as uniform_policy
from discreet.mdp.planning import value as value
from discreet.simulation.crowds import rollout as rollout
from discreet.simulation.crowds import rollouts as rollouts
from discreet.core.trajectories import Trajectories as Trajectories
from discreet.core.trajectories import Trajectory as Trajectory

# learners from people as they come
from discreet.online.optimistic import UCBVI as UCBVI
from discreet.online.optimistic import PrivateUCBVI as PrivateUCBVI
from discreet.online.optimistic import DPUCBVI as DPUCBVI
from discreet.online.psrl import PSRL as PSRL
from discreet.online.rlsvi import RLSVI as RLSVI
from discreet.online.policy_optimization import OPPO as OPPO
from discreet.online.policy_optimization import PrivateUCBPO as PrivateUCBPO
from discreet.online.pucb import PUCB as PUCB
from discreet.online.noise_aware import NoiseAwareUCBVI as NoiseAwareUCBVI
from discreet.online.noise_aware_sums import NoiseAwareOnSums as NoiseAwareOnSums
from discreet.online.joint import JointModel as JointModel
from discreet.online.ldp_obi import LDPOBI as LDPOBI
from discreet.online.elimination import APEVE as APEVE
from discreet.online.elimination import SDPPE as SDPPE
from discreet.online.occupancy import SDPPEOM as SDPPEOM
from discreet.online.lsvi import LSVIUCB as LSVIUCB
from discreet.online.vtr import UCRLVTR as UCRLVTR
from discreet.online.vtr import UCRLVTRPlus as UCRLVTRPlus

# learners from stored people
from discreet.offline.tabular import APVI as APVI
from discreet.offline.tabular import DPAPVI as DPAPVI
from discreet.offline.decision_points import DecisionPoints as DecisionPoints
from discreet.offline.decision_points import DecisionPolicy as DecisionPolicy
from discreet.offline.tabular import OfflinePolicy as OfflinePolicy
from discreet.offline.linear import DPPEVI as DPPEVI
from discreet.offline.linear import DPVAPVI as DPVAPVI
from discreet.offline.linear import PEVI as PEVI
from discreet.offline.linear import VAPVI as VAPVI
from discreet.offline.linear import learn_linear as learn_linear
from discreet.offline.linear import replan as replan

# privatizers, randomness, and what they promise
from discreet.privatizers.central import Central as Central
from discreet.privatizers.local import Local as Local
from discreet.privatizers.none import NoPrivacy as NoPrivacy
from discreet.privatizers.shuffle import Shuffle as Shuffle
from discreet.core.randomness import Secure as Secure
from discreet.core.randomness import SecureCoins as SecureCoins
from discreet.core.randomness import Seeded as Seeded
from discreet.core.noise.seeds import SeededCoins as SeededCoins
from discreet.core.guarantee import Guarantee as Guarantee

# the door between learners and privatizers
from discreet.protocol import Budget as Budget
from discreet.protocol import Encoder as Encoder
from discreet.protocol import Learner as Learner
from discreet.protocol import Mechanism as Mechanism
from discreet.protocol import Message as Message
from discreet.protocol import NoiseLaw as NoiseLaw
from discreet.protocol import Plan as Plan
from discreet.protocol import Privatizer as Privatizer
from discreet.protocol import Release as Release
from discreet.protocol import Response as Response
from discreet.protocol import Returns as Returns
from discreet.protocol import Schedule as Schedule
from discreet.protocol import Session as Session
from discreet.protocol import Spec as Spec
from discreet.core.counts import CountQuery as CountQuery
from discreet.linear.sums import GramQuery as GramQuery
from discreet.linear.sums import MixtureQuery as MixtureQuery
from discreet.linear.responses import Question as Question
from discreet.linear.responses import ResponseSession as ResponseSession

# mechanisms: what is done to people, and what it costs them
from discreet.core.mechanism import Batches as Batches
from discreet.core.mechanism import CountMechanism as CountMechanism
from discreet.core.mechanism import Exact as Exact
from discreet.core.mechanism import OnDevice as OnDevice
from discreet.core.mechanism import Prefixes as Prefixes
from discreet.local.reported import Reported as Reported
from discreet.core.mechanism import Stated as Stated
from discreet.core.continual.clocks import Clocks as Clocks
from discreet.core.continual.tree import Tree as Tree
from discreet.core.continual.optimal_tree import OptimalTree as OptimalTree
from discreet.core.continual.signed_digits import SignedDigits as SignedDigits
from discreet.core.continual.square_root import SquareRoot as SquareRoot
from discreet.local.reports import StepReports as StepReports
from discreet.linear.mechanism import LinearMechanism as LinearMechanism
from discreet.sessions.batch import BatchMechanism as BatchMechanism
from discreet.shuffle.mechanism import AmplifiedMechanism as AmplifiedMechanism
from discreet.shuffle.mechanism import FlipMechanism as FlipMechanism
from discreet.sessions.opening import Proposes as Proposes
from discreet.sessions.opening import session_of as session_of
from discreet.sessions.restoring import restore as restore
from discreet.sessions.tally import Tally as Tally

# on a person's device
from discreet.device.linear import LinearDevice as LinearDevice
from discreet.device.counts import CountDevice as CountDevice
from discreet.device.reports import ReportDevice as ReportDevice
from discreet.device.encoders import ShuffleEncoder as ShuffleEncoder
from discreet.device.envelope import Envelope as Envelope
from discreet.device.envelope import Refused as Refused
from discreet.device.guarantee import MessageGuarantee as MessageGuarantee
from discreet.device.planning import greedy as greedy
from discreet.device.planning import optimistic as optimistic

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
from discreet.experiments.forecast import Forecast as Forecast
from discreet.experiments.forecast import forecast_run as forecast_run
from discreet.audits.run import Audit as Audit
from discreet.audits.run import audit as audit

# files and records of people
from discreet.data.schema import Schema as Schema
from discreet.data.schema import read_schema as read_schema
from discreet.data.schema import write_schema as write_schema
from discreet.data.readers import open_source as open_source
from discreet.data.skeleton import skeleton as skeleton
from discreet.data.declaration import read_declaration as read_declaration
from discreet.data.prepare import prepare as prepare
from discreet.stored.codebook import fit_codebook as fit_codebook
from discreet.stored.codebook import forecast_codebook as forecast_codebook
from discreet.stored.codebook import verify_codebook as verify_codebook
from discreet.data.writers import write_trajectories as write_trajectories

# from stored people to a policy
from discreet.experiments.datasets import OfflineLearner as OfflineLearner
from discreet.experiments.datasets import Simulated as Simulated
from discreet.experiments.datasets import learn_from as learn_from
from discreet.experiments.datasets import release_of as release_of
from discreet.stored.learn import Outcome as Outcome
from discreet.stored.learn import Settings as Settings
from discreet.stored.learn import learn as learn
from discreet.stored.counted import Part as Part
from discreet.stored.counted import count_part as count_part
from discreet.stored.counted import merge_parts as merge_parts
from discreet.stored.counted import new_count_key as new_count_key
from discreet.stored.counted import read_count_key as read_count_key

# one policy for several sites that do not share data
from discreet.stored.sites import Site as Site
from discreet.stored.sites import SitePlan as SitePlan
from discreet.stored.sites import SiteSums as SiteSums
from discreet.stored.sites import read_site_plan as read_site_plan
from discreet.stored.flower import flower_client as flower_client
from discreet.stored.flower import flower_server as flower_server

# what can be shown, before anything is spent
from discreet.stored.power import GainForecast as GainForecast
from discreet.stored.power import PublicWorld as PublicWorld
from discreet.stored.power import epsilon_needed as epsilon_needed
from discreet.stored.power import forecast_gain as forecast_gain
from discreet.stored.power import made_up_world as made_up_world
from discreet.stored.power import people_needed as people_needed
from discreet.stored.linear_power import LinearForecast as LinearForecast
from discreet.stored.linear_power import forecast_linear as forecast_linear
from discreet.stored.linear_power import linear_epsilon_needed as linear_epsilon_needed
from discreet.stored.linear_power import linear_people_needed as linear_people_needed
from discreet.stored.linear_power import made_up_linear_world as made_up_linear_world
from discreet.stored.world_table import read_world as read_world

# planning again, policies, reports
from discreet.stored.learn import plan_again as plan_again
from discreet.stored.forecast import SchemaForecast as SchemaForecast
from discreet.stored.forecast import forecast_learn as forecast_learn
from discreet.offline.releases import read_release as read_release
from discreet.offline.policies import PolicyTable as PolicyTable
from discreet.offline.policies import read_policy as read_policy
from discreet.offline.policies import write_policy as write_policy
from discreet.stored.report import report_of as report_of
from discreet.offline.evaluation import Candidate as Candidate
from discreet.offline.evaluation import values_of as values_of

# statements, signatures, ledger, attacks
from discreet.stored.statement import Statement as Statement
from discreet.stored.verification import verify as verify
from discreet.stored.approval import sign as sign
from discreet.storage.signatures import new_key as new_key
from discreet.storage.signatures import read_private_key as read_private_key
from discreet.storage.signatures import read_public_key as read_public_key
from discreet.storage.owner_rules import require_ledger as require_ledger
from discreet.audits.membership import membership_attack as membership_attack
from discreet.storage.ledger import Ledger as Ledger

from discreet import conformance as conformance

__version__: str
_HOMES: dict[str, str]
_MODULES: tuple[str, ...]
__all__: list[str]
