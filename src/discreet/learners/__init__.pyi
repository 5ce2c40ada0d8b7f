"""Learners."""

from discreet.experiments.offline_runs import SimulatedDataset as SimulatedDataset
from discreet.experiments.offline_runs import learn_offline as learn_offline
from discreet.experiments.offline_runs import make_release as make_release
from discreet.learners import ope as ope
from discreet.learners.offline.apvi import APVI as APVI
from discreet.learners.offline.apvi import DPAPVI as DPAPVI
from discreet.learners.offline.apvi import OfflinePolicy as OfflinePolicy
from discreet.learners.offline.decision_points import DecisionPoints as DecisionPoints
from discreet.learners.offline.decision_points import DecisionPolicy as DecisionPolicy
from discreet.learners.offline.interface import OfflineLearner as OfflineLearner
from discreet.learners.offline.linear_pevi import DPPEVI as DPPEVI
from discreet.learners.offline.linear_pevi import DPVAPVI as DPVAPVI
from discreet.learners.offline.linear_pevi import PEVI as PEVI
from discreet.learners.offline.linear_pevi import VAPVI as VAPVI
from discreet.learners.offline.linear_pevi import learn_linear as learn_linear
from discreet.learners.offline.linear_pevi import replan_linear as replan_linear
from discreet.learners.offline.release_files import read_release as read_release
from discreet.learners.online.heavy_tails import HeavyUCBPO as HeavyUCBPO
from discreet.learners.online.heavy_tails import HeavyUCBVI as HeavyUCBVI
from discreet.learners.online.heavy_tails import balanced_threshold as balanced_threshold
from discreet.learners.online.heavy_tails import truncated as truncated
from discreet.learners.online.joint_posterior import JointPosterior as JointPosterior
from discreet.learners.online.ldp_obi import LDPOBI as LDPOBI
from discreet.learners.online.lsvi_ucb import LSVIUCB as LSVIUCB
from discreet.learners.online.noise_aware import NoiseAwareUCBVI as NoiseAwareUCBVI
from discreet.learners.online.occupancy_elimination import SDPPEOM as SDPPEOM
from discreet.learners.online.policy_elimination import APEVE as APEVE
from discreet.learners.online.policy_elimination import SDPPE as SDPPE
from discreet.learners.online.policy_gradient import DPNaturalPolicyGradient as DPNaturalPolicyGradient
from discreet.learners.online.policy_gradient import DPPolicyGradient as DPPolicyGradient
from discreet.learners.online.policy_optimization import OPPO as OPPO
from discreet.learners.online.policy_optimization import PrivateUCBPO as PrivateUCBPO
from discreet.learners.online.private_lsvi_ucb import PrivateLSVIUCB as PrivateLSVIUCB
from discreet.learners.online.psrl import PSRL as PSRL
from discreet.learners.online.pucb import PUCB as PUCB
from discreet.learners.online.rlsvi import RLSVI as RLSVI
from discreet.learners.online.ucbvi import DPUCBVI as DPUCBVI
from discreet.learners.online.ucbvi import UCBVI as UCBVI
from discreet.learners.online.ucbvi import PrivateUCBVI as PrivateUCBVI
from discreet.learners.online.ucrl_vtr import UCRLVTR as UCRLVTR
from discreet.learners.online.ucrl_vtr import UCRLVTRPlus as UCRLVTRPlus
from discreet.learners.ope.release_split import split_release as split_release
from discreet.pipeline.world_model import WorldModel as WorldModel
from discreet.pipeline.world_model import world_model as world_model

__all__: list[str]
