"""The declared worlds: lists to report on, another to tune on, none in both.

Numbers that cannot be tuned to one chain: the regret of one frozen setting over the uniform policy's regret,
world by world. :data:`SUITE` has RiverSwim, a non-stationary control, and nine random MDPs of three kinds
(dense, sparse, deep exploration), S from 6 to 20, in all of which few pairs earn a reward; it is summed up
by a geometric mean. :data:`BROAD` adds every other kind of world that we could think of, where a learner is
judged by its worst one: all pairs rewarding, bandits, tiny gaps, gambles, deterministic worlds, episodes
that end early, rows or rewards that vary over steps, S = 50, Gymnasium's tables, ICU-Sepsis. Seeds are
public, were written down before any of these worlds was run, and are fixed: a test pins the arrays. Knobs are
chosen on :data:`TRAINING`, which has other seeds, no RiverSwim, and half of the kinds: what a learner does on
the others (:data:`UNTRAINED`) was never tuned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.envs import (
    bandit,
    combination_lock,
    from_gymnasium,
    gamble,
    icu_sepsis,
    random_mdp,
    riverswim,
    switching_chain,
)
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments import statistics
from discreet.experiments.simulate import Setup
from discreet.experiments.training_worlds import TRAINING_WORLDS
from discreet.utils.system import processors

KINDS = (
    "chain", "control", "dense", "sparse", "deep", "rewarding", "bandit", "varying rows", "episodic",
    "tiny gaps", "gamble", "deterministic", "varying rewards", "large", "gymnasium", "icu",
)  # fmt: skip
UNTRAINED = (
    "chain", "tiny gaps", "gamble", "deterministic", "varying rewards", "large", "gymnasium", "icu",
)  # fmt: skip
SUITE_SEED = 7000  # world i runs under seed SUITE_SEED + i: no two worlds share a draw
_FACTORIES: Mapping[str, Callable[..., TabularMDP]] = {
    "riverswim": riverswim,
    "switching-chain": switching_chain,
    "random": random_mdp,
    "combination-lock": combination_lock,
    "bandit": bandit,
    "gamble": gamble,
    "gym": from_gymnasium,
    "icu-sepsis": icu_sepsis,
}


@dataclass(frozen=True)
class World:
    """One declared world. name : for people; kind : see KINDS; env, options : as in the registry.

    pooled : too large for counts per step; learners pool the steps there (``stationary=True``).
    """

    name: str
    kind: str
    env: str
    options: Mapping[str, Any] = field(hash=False)
    pooled: bool = False

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

TRAINING: tuple[World, ...] = tuple(
    World(name, kind, env, options) for kind, name, env, options in TRAINING_WORLDS
)


def _named(kind: str, name: str, env: str, pooled: bool = False, **options: Any) -> World:
    return World(name, kind, env, options, pooled)


def _rewarding(states: int, actions: int, horizon: int, seed: int, **options: Any) -> World:
    """Every pair earns a reward."""
    name = f"rewarding {states}x{actions} #{seed}"
    return _named(
        "rewarding", name, "random", seed=seed, states=states, actions=actions, horizon=horizon,
        rewarding=states * actions, **options,
    )  # fmt: skip


def _bandit(kind: str, name: str, seed: int, **options: Any) -> World:
    return _named(kind, f"{name} #{seed}", "bandit", seed=seed, **options)


BROAD: tuple[World, ...] = (
    *SUITE,
    _rewarding(6, 3, 10, 1011),
    _rewarding(6, 3, 10, 1012),
    _rewarding(6, 3, 10, 1013),
    _rewarding(10, 4, 20, 1014),
    _rewarding(4, 2, 20, 1015),
    _bandit("bandit", "bandit A=10", 1016, actions=10),
    _bandit("bandit", "contextual S=6 A=4", 1017, contexts=6, actions=4),
    _bandit("tiny gaps", "tiny gaps A=5", 1018, actions=5, spread=0.1),
    _bandit("tiny gaps", "tiny gaps S=4 A=3", 1019, contexts=4, actions=3, spread=0.2),
    _named("gamble", "gamble A=3 #1020", "gamble", seed=1020),
    _named("gamble", "gamble A=6 #1021", "gamble", seed=1021, actions=6, horizon=20, chance=0.1),
    _named(
        "deterministic", "deterministic S=8 #1022", "random", seed=1022, states=8, actions=3, successors=1,
        rewarding=4, rewards="deterministic",
    ),
    _named(
        "deterministic", "deterministic S=10 #1023", "random", seed=1023, states=10, actions=2, successors=1,
        rewarding=20, horizon=10, rewards="deterministic",
    ),
    _named("episodic", "episodic S=8 #1024", "random", seed=1024, states=8, terminal=2, rewarding=4),
    _named(
        "episodic", "episodic S=10 #1025", "random", seed=1025, states=10, actions=3, successors=3,
        terminal=1, rewarding=30,
    ),
    _named(
        "varying rows", "varying rows S=6 #1026", "random", seed=1026, rewarding=12, stationary=False,
        varies="rows",
    ),
    _named("varying rows", "varying S=8 #1027", "random", seed=1027, states=8, stationary=False, rewarding=4),
    _named(
        "varying rewards", "varying rewards S=6 #1028", "random", seed=1028, rewarding=12, stationary=False,
        varies="rewards",
    ),
    _named(
        "varying rewards", "varying rewards S=4 #1029", "random", seed=1029, states=4, actions=3, horizon=10,
        rewarding=4, stationary=False, varies="rewards",
    ),
    _named(
        "large", "large S=50 #1030", "random", seed=1030, states=50, successors=3, rewarding=5, horizon=20
    ),
    _named(
        "large", "large S=50 A=4 #1031", "random", seed=1031, states=50, actions=4, successors=2,
        rewarding=100, horizon=10,
    ),
    _named("gymnasium", "FrozenLake", "gym", env_id="FrozenLake-v1", horizon=20),
    _named("gymnasium", "Taxi", "gym", True, env_id="Taxi-v4", horizon=20),
    _named("icu", "ICU-Sepsis H=20", "icu-sepsis", True, horizon=20),
    _named("icu", "ICU-Sepsis H=10", "icu-sepsis", True, horizon=10),
)  # fmt: skip

_LEAST_SHARE = 1e-5


def fingerprint(mdp: TabularMDP) -> str:
    """Sixteen hexadecimal digits of a world: transitions, mean rewards, initial law, horizon, law of rewards.

    Values are rounded to 12 digits, so that another build of NumPy gives the same.
    """
    digest = hashlib.sha256(f"{mdp.horizon} {mdp.reward_law}".encode())
    for array in (mdp.transitions, mdp.rewards, mdp.initial):
        digest.update(str(array.shape).encode())
        once = array[:1] if array.strides[0] == 0 else array  # steps that are alike lie in one place
        content = (np.round(np.ascontiguousarray(once, np.float64), 12) + 0.0).tobytes()
        for _ in range(len(array) // len(once)):
            digest.update(content)
    return digest.hexdigest()[:16]


def tuning_shares(setups: Iterable[Setup], seed: int, seeds: int) -> list[float]:
    """What a tuning scores: mean final regret over the uniform policy's, of each set-up.

    Shares below 1e-5 are alike. Seeds run side by side.
    """
    found = []
    with ThreadPoolExecutor(processors()) as pool:
        for setup in setups:
            finals = list(pool.map(lambda run, s=setup: s.run(seed, run).regret[-1], range(seeds)))
            lost = setup.episodes * (setup.optimal_value - setup.uniform_value)
            found.append(max(_LEAST_SHARE, float(np.mean(finals)) / lost))
    return found


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
