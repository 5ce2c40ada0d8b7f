"""How the defaults of the noise-aware learner were chosen: a declared grid on declared training worlds.

    python -m discreet.experiments.tuning [--kind pure] [--seeds 8] [--users 20000]

RiverSwim is not among the training worlds, nor is any world or seed that the documentation reports on.
Score of a setting at a budget: the geometric mean over the worlds of (mean regret) / (regret of the uniform
policy). One setting is chosen for all budgets of a kind, pure or approximate: the least geometric mean of the
scores.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from discreet.envs import random_mdp
from discreet.envs.switching_chain import switching_chain
from discreet.experiments.simulate import Setup, default_workers
from discreet.mdp.tabular import TabularMDP
from discreet.online.noise_aware import NoiseAwareUCBVI
from discreet.privacy.privatizers import Central

TRAINING_SEED = 31
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "approximate": {
        "replan_growth": (1.1, 1.25),
        "priv_scale": (0.125, 0.25, 0.5),
        "stat_scale": (0.1, 0.2),
        "excess": (1.0, 2.0, 5.0),
        "reward_share": (0.1, 0.2, 0.3),
    },
    "pure": {
        "replan_growth": (1.1, 1.2, 1.3),
        "priv_scale": (0.125, 0.25),
        "stat_scale": (0.1, 0.2),
        "excess": (3.0, 5.0, 8.0),
        "reward_share": (0.1, 0.2, 0.3),
    },
}


def training_worlds() -> dict[str, TabularMDP]:
    """Small random worlds, dense, sparse, larger and non-stationary, and one switching chain."""
    return {
        "dense 100": random_mdp(seed=100),
        "dense 101": random_mdp(seed=101),
        "sparse 102": random_mdp(seed=102, successors=2),
        "larger 103": random_mdp(seed=103, states=12, actions=3),
        "non-stationary 104": random_mdp(seed=104, stationary=False),
        "switching chain 101": switching_chain(seed=101),
    }


def budgets(kind: str) -> dict[str, Central]:
    """Joint privacy, approximate or pure."""
    if kind == "pure":
        return {"pure 1": Central(epsilon=1.0), "pure 10": Central(epsilon=10.0)}
    return {
        "(1, 1e-6)": Central(epsilon=1.0, delta=1e-6),
        "(10, 1e-6)": Central(epsilon=10.0, delta=1e-6),
    }


def settings(kind: str) -> Iterator[dict[str, Any]]:
    """Every point of the grid."""
    grid = GRIDS[kind]
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def relative_regret(
    world: TabularMDP, learner: Any, privatizer: Any, users: int, seeds: int, seed: int = TRAINING_SEED
) -> float:
    """Mean final regret over the uniform policy's, by batches."""
    setup = Setup(world, learner, privatizer, users, "batch")
    with ThreadPoolExecutor(default_workers()) as pool:
        finals = list(pool.map(lambda run: float(setup.run(seed, run).regret[-1]), range(seeds)))
    return float(np.mean(finals)) / (users * (setup.optimal_value - setup.uniform_value))


def main() -> None:
    """Print the score of every setting at every budget, and the chosen one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=sorted(GRIDS), default="pure")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--users", type=int, default=20_000)
    args = parser.parse_args()
    worlds = training_worlds()
    best: tuple[float, dict[str, Any]] = (np.inf, {})
    print(f"{'setting':110} " + " ".join(f"{name:>10}" for name in budgets(args.kind)) + f" {'all':>8}")
    for setting in settings(args.kind):
        scores = []
        for privatizer in budgets(args.kind).values():
            learner = NoiseAwareUCBVI(**setting)
            each = [relative_regret(w, learner, privatizer, args.users, args.seeds) for w in worlds.values()]
            scores.append(float(np.exp(np.mean(np.log(np.maximum(each, 1e-5))))))
        overall = float(np.exp(np.mean(np.log(scores))))
        best = min(best, (overall, setting), key=lambda pair: pair[0])
        print(f"{setting!s:110} " + " ".join(f"{s:10.4f}" for s in scores) + f" {overall:8.4f}", flush=True)
    print(f"chosen: {best[1]} ({best[0]:.4f})")


if __name__ == "__main__":
    main()
