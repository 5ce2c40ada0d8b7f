"""Public names under the headings of the reference, each with the module that defines it.

Type checkers read this file. ``__init__.py`` imports a name from its module when the name is first used. Each
package has its own stub.
"""

from collections.abc import Callable
from typing import Any

# environments
from discreet.registry import make as make
from discreet.registry import register as register
from discreet.envs.mdp.tabular import TabularMDP as TabularMDP
from discreet.envs.mdp.linear import LinearMDP as LinearMDP
from discreet.mechanisms.features import Features as Features
from discreet.core.layout import Layout as Layout
from discreet.envs.from_gymnasium import from_gymnasium as from_gymnasium
from discreet.core.trajectories import Trajectories as Trajectories
from discreet.core.trajectories import Trajectory as Trajectory

# learners that meet users in turn
from discreet.learners.online.noise_aware import NoiseAwareUCBVI as NoiseAwareUCBVI
from discreet.learners.online.prior import Prior as Prior
from discreet.learners.online.joint_posterior import JointPosterior as JointPosterior
from discreet.learners.online.ucbvi import DPUCBVI as DPUCBVI
from discreet.learners.online.policy_elimination import SDPPE as SDPPE
from discreet.learners.online.lsvi_ucb import LSVIUCB as LSVIUCB
from discreet.learners.online.ucrl_vtr import UCRLVTRPlus as UCRLVTRPlus

# learners from stored trajectories
from discreet.learners.offline.decision_points import DecisionPoints as DecisionPoints
from discreet.learners.offline.apvi import DPAPVI as DPAPVI
from discreet.learners.offline.linear_pevi import DPPEVI as DPPEVI
from discreet.experiments.offline_runs import learn_offline as learn_offline

# privatizers, randomness, guarantees
from discreet.mechanisms.privatizers.central import Central as Central
from discreet.mechanisms.privatizers.local import Local as Local
from discreet.mechanisms.privatizers.shuffle import Shuffle as Shuffle
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy as NoPrivacy
from discreet.core.rng import Secure as Secure
from discreet.core.rng import Seeded as Seeded
from discreet.core.guarantee import Guarantee as Guarantee
from discreet.mechanisms.interfaces import Budget as Budget

# interfaces between learners and privatizers
from discreet.mechanisms.interfaces import Learner as Learner
from discreet.mechanisms.interfaces import Mechanism as Mechanism
from discreet.mechanisms.interfaces import Plan as Plan
from discreet.mechanisms.interfaces import Privatizer as Privatizer
from discreet.mechanisms.interfaces import Release as Release
from discreet.mechanisms.interfaces import Schedule as Schedule
from discreet.mechanisms.interfaces import Session as Session

# simulations
from discreet.experiments.simulate import simulate as simulate
from discreet.experiments.build_run import sweep as sweep
from discreet.experiments.sweep import compare as compare
from discreet.experiments.sweep import load_results as load_results
from discreet.experiments.results import Result as Result
from discreet.experiments.estimate import estimate_run as estimate_run

# stored trajectories: from files to a policy
from discreet.data.schema import Schema as Schema
from discreet.data.schema import read_schema as read_schema
from discreet.data.prepare import prepare as prepare
from discreet.pipeline.estimate import estimate_release as estimate_release
from discreet.pipeline.learn import learn as learn
from discreet.pipeline.learn import replan as replan
from discreet.reports.policy_files import PolicyTable as PolicyTable
from discreet.reports.policy_files import read_policy as read_policy
from discreet.reports.policy_files import write_policy as write_policy

# statements, signatures, ledger
from discreet.reports.statement import Statement as Statement
from discreet.pipeline.verify import verify as verify
from discreet.pipeline.approve import sign as sign
from discreet.ledger.signatures import new_key as new_key
from discreet.ledger.ledger import Ledger as Ledger

# audits
from discreet.audit.run import audit_privatizer as audit_privatizer
from discreet.audit.membership_inference import membership_attack as membership_attack
from discreet.audit.conformance import check_plugin as check_plugin

# packages
from discreet import accounting as accounting
from discreet import audit as audit
from discreet import data as data
from discreet import device as device
from discreet import envs as envs
from discreet import experiments as experiments
from discreet import learners as learners
from discreet import ledger as ledger
from discreet import mechanisms as mechanisms
from discreet import pipeline as pipeline
from discreet import reports as reports
from discreet import service as service

__version__: str
__all__: list[str]

def public_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]: ...
