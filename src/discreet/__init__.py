"""Discreet: differentially private reinforcement learning.

Policies are learned from people's trajectories with a guarantee that can be checked::

    import discreet as dr

    mdp = dr.make("riverswim")
    result = dr.simulate(mdp, dr.DPUCBVI(), dr.Central(epsilon=1.0), episodes=20_000, seeds=10)
    print(result.guarantee, result.final_regret.mean())

Names are loaded when they are first used (PEP 562): importing the package imports nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.experiments.results import Result as Result
    from discreet.experiments.simulate import simulate as simulate
    from discreet.mdp.layout import Layout as Layout
    from discreet.mdp.planning import evaluate as evaluate
    from discreet.mdp.planning import occupancy as occupancy
    from discreet.mdp.planning import optimal_values as optimal_values
    from discreet.mdp.planning import uniform_policy as uniform_policy
    from discreet.mdp.simulation import rollout as rollout
    from discreet.mdp.simulation import rollouts as rollouts
    from discreet.mdp.tabular import TabularMDP as TabularMDP
    from discreet.mdp.trajectories import Trajectories as Trajectories
    from discreet.mdp.trajectories import Trajectory as Trajectory
    from discreet.offline.datasets import Simulated as Simulated
    from discreet.offline.datasets import learn_from as learn_from
    from discreet.offline.datasets import release_of as release_of
    from discreet.offline.tabular import APVI as APVI
    from discreet.offline.tabular import DPAPVI as DPAPVI
    from discreet.offline.tabular import OfflinePolicy as OfflinePolicy
    from discreet.online.elimination import APEVE as APEVE
    from discreet.online.elimination import SDPPE as SDPPE
    from discreet.online.joint import JointModel as JointModel
    from discreet.online.ldp_obi import LDPOBI as LDPOBI
    from discreet.online.lsvi import LSVIUCB as LSVIUCB
    from discreet.online.noise_aware import NoiseAwareUCBVI as NoiseAwareUCBVI
    from discreet.online.occupancy import SDPPEOM as SDPPEOM
    from discreet.online.optimistic import DPUCBVI as DPUCBVI
    from discreet.online.optimistic import UCBVI as UCBVI
    from discreet.online.optimistic import PrivateUCBVI as PrivateUCBVI
    from discreet.online.policy_optimization import OPPO as OPPO
    from discreet.online.policy_optimization import PrivateUCBPO as PrivateUCBPO
    from discreet.online.psrl import PSRL as PSRL
    from discreet.online.pucb import PUCB as PUCB
    from discreet.online.rlsvi import RLSVI as RLSVI
    from discreet.privacy.counts import CountQuery as CountQuery
    from discreet.privacy.guarantee import Guarantee as Guarantee
    from discreet.privacy.privatizers import Central as Central
    from discreet.privacy.privatizers import Local as Local
    from discreet.privacy.privatizers import NoPrivacy as NoPrivacy
    from discreet.privacy.protocol import Plan as Plan
    from discreet.privacy.protocol import Release as Release
    from discreet.privacy.protocol import Schedule as Schedule
    from discreet.privacy.protocol import Spec as Spec
    from discreet.privacy.randomness import Secure as Secure
    from discreet.privacy.randomness import Seeded as Seeded
    from discreet.privacy.restoring import restore as restore
    from discreet.privacy.shuffle import Shuffle as Shuffle
    from discreet.registry import make as make
    from discreet.registry import register as register

__version__ = "0.1.0"

_HOMES = {
    "make": "registry",
    "register": "registry",
    "simulate": "experiments.simulate",
    "Result": "experiments.results",
    "NoiseAwareUCBVI": "online.noise_aware",
    "JointModel": "online.joint",
    "UCBVI": "online.optimistic",
    "PrivateUCBVI": "online.optimistic",
    "DPUCBVI": "online.optimistic",
    "OPPO": "online.policy_optimization",
    "PrivateUCBPO": "online.policy_optimization",
    "PSRL": "online.psrl",
    "PUCB": "online.pucb",
    "RLSVI": "online.rlsvi",
    "LDPOBI": "online.ldp_obi",
    "SDPPE": "online.elimination",
    "APEVE": "online.elimination",
    "SDPPEOM": "online.occupancy",
    "LSVIUCB": "online.lsvi",
    "APVI": "offline.tabular",
    "DPAPVI": "offline.tabular",
    "OfflinePolicy": "offline.tabular",
    "Simulated": "offline.datasets",
    "learn_from": "offline.datasets",
    "release_of": "offline.datasets",
    "NoPrivacy": "privacy.privatizers",
    "Central": "privacy.privatizers",
    "Local": "privacy.privatizers",
    "Shuffle": "privacy.shuffle",
    "Guarantee": "privacy.guarantee",
    "Seeded": "privacy.randomness",
    "Secure": "privacy.randomness",
    "restore": "privacy.restoring",
    "CountQuery": "privacy.counts",
    "Plan": "privacy.protocol",
    "Release": "privacy.protocol",
    "Schedule": "privacy.protocol",
    "Spec": "privacy.protocol",
    "TabularMDP": "mdp.tabular",
    "Layout": "mdp.layout",
    "Trajectory": "mdp.trajectories",
    "Trajectories": "mdp.trajectories",
    "optimal_values": "mdp.planning",
    "evaluate": "mdp.planning",
    "occupancy": "mdp.planning",
    "uniform_policy": "mdp.planning",
    "rollout": "mdp.simulation",
    "rollouts": "mdp.simulation",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'discreet' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"discreet.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
