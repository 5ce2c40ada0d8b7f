"""The declared suite: one list of worlds to report on, another to tune on, none in both.

A number that cannot be tuned to one chain: the regret of one frozen setting over the uniform policy's
regret, on every world of :data:`SUITE` and as their geometric mean. RiverSwim, the non-stationary
control, and nine random MDPs of three kinds (dense, sparse, deep exploration), S from 6 to 20. Seeds are
public, were written down before any of these worlds was run, and are fixed: a test pins the arrays.
Knobs are chosen on :data:`TRAINING`, which has the same kinds, other seeds, and no RiverSwim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from discreet.envs import combination_lock, random_mdp, riverswim, switching_chain
from discreet.experiments import statistics
from discreet.mdp.tabular import TabularMDP
from discreet.numerics import checks

KINDS = ("chain", "control", "dense", "sparse", "deep")
SUITE_SEED = 7000  # world i runs under seed SUITE_SEED + i: no two worlds share a draw
_FACTORIES: Mapping[str, Callable[..., TabularMDP]] = {
    "riverswim": riverswim,
    "switching-chain": switching_chain,
    "random": random_mdp,
    "combination-lock": combination_lock,
}


@dataclass(frozen=True)
class World:
    """One declared world. name : for people; kind : see KINDS; env, options : as in the registry."""

    name: str
    kind: str
    env: str
    options: Mapping[str, Any] = field(hash=False)

    def build(self) -> TabularMDP:
        """The MDP."""
        return _FACTORIES[self.env](**self.options)


def _world(kind: str, env: str, **options: Any) -> World:
    size = f" S={options['states']}" if "states" in options else ""
    seed = f" #{options['seed']}" if "seed" in options else ""
    words = {"riverswim": "RiverSwim", "switching-chain": "switching chain"}
    name = words.get(env, "non-stationary" if kind == "control" else kind)
    return World(f"{name}{size}{seed}", kind, env, options)


SUITE: tuple[World, ...] = (
    _world("chain", "riverswim", rewards="bernoulli"),
    _world("control", "switching-chain", seed=1000),
    _world("dense", "random", states=6, seed=1001),
    _world("dense", "random", states=10, actions=3, rewarding=3, seed=1002),
    _world("dense", "random", states=16, seed=1003),
    _world("sparse", "random", states=8, successors=2, seed=1004),
    _world("sparse", "random", states=12, actions=3, successors=2, seed=1005),
    _world("sparse", "random", states=20, successors=3, rewarding=3, seed=1006),
    _world("deep", "combination-lock", states=6, seed=1007),
    _world("deep", "combination-lock", states=10, depth=7, actions=3, seed=1008),
    _world("deep", "combination-lock", states=20, depth=10, seed=1009),
)

TRAINING: tuple[World, ...] = (
    _world("dense", "random", states=6, seed=100),
    _world("dense", "random", states=12, actions=3, seed=103),
    _world("sparse", "random", states=6, successors=2, seed=102),
    _world("sparse", "random", states=16, successors=3, seed=105),
    _world("deep", "combination-lock", states=6, seed=106),
    _world("deep", "combination-lock", states=12, depth=8, seed=107),
    _world("control", "random", states=6, stationary=False, seed=104),
    _world("control", "switching-chain", seed=101),
)


def fingerprint(mdp: TabularMDP) -> str:
    """Sixteen hexadecimal digits of a world: transitions, mean rewards, initial law, horizon, law of rewards.

    Values are rounded to 12 digits, so that another build of NumPy gives the same.
    """
    digest = hashlib.sha256(f"{mdp.horizon} {mdp.reward_law}".encode())
    for array in (mdp.transitions, mdp.rewards, mdp.initial):
        digest.update(str(array.shape).encode())
        digest.update((np.round(np.ascontiguousarray(array, np.float64), 12) + 0.0).tobytes())
    return digest.hexdigest()[:16]


def geometric_mean(
    shares: Sequence[Sequence[float] | np.ndarray[Any, Any]], level: float = statistics.LEVEL
) -> statistics.Interval:
    """Geometric mean over worlds of mean shares, with an interval over seeds.

    shares : for each world, the shares (final regret over the uniform policy's) of its own seeds. The
    worlds are fixed and their seeds independent, so the logarithm of the geometric mean has the variance
    sum_w (s_w / m_w)^2 / W^2 (delta method; m_w and s_w: mean and its standard error). The interval is
    normal on that scale; there is none if a world has one seed. A mean of 0 or below raises
    ``ValueError``: it has no logarithm.
    """
    checks.real("level", level, 0.0, 1.0, open_low=True, open_high=True)
    if not len(shares):
        raise ValueError("shares = []: must hold at least one world")
    logs, variances, least = [], [], np.inf
    for values in shares:
        array = np.asarray(values, np.float64)
        mean = float(array.mean())
        if not mean > 0.0:
            raise ValueError(f"shares: a world's mean is {mean:g}, must be above 0")
        logs.append(np.log(mean))
        least = min(least, array.size)
        if array.size > 1:
            variances.append(float(array.var(ddof=1)) / array.size / mean**2)
    centre = float(np.mean(logs))
    if least < 2:
        return statistics.Interval(float(np.exp(centre)), None, None, level, "normal, on logarithms", 1)
    from scipy.special import ndtri

    half = float(ndtri(0.5 + level / 2)) * float(np.sqrt(np.sum(variances))) / len(shares)
    low, high = float(np.exp(centre - half)), float(np.exp(centre + half))
    return statistics.Interval(float(np.exp(centre)), low, high, level, "normal, on logarithms", int(least))
