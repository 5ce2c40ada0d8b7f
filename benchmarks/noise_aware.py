"""What the noise-aware learner reaches at its defaults, on worlds and seeds that tuning never saw.

    python benchmarks/noise_aware.py [--seeds 64]

Final regret after 20 000 users, by batches: mean, standard error, median, 10 to 90 %, and the share of
what the uniform policy loses. docs/tuning.md quotes its output.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import discreet as dr
from discreet.experiments.simulate import Setup, default_workers

USERS = 20_000
REPORTING_SEED = 900


def row(name: str, mdp: dr.TabularMDP, learner: Any, privatizer: Any, seeds: int, users: int = USERS) -> None:
    """Run one setting and print its line."""
    setup = Setup(mdp, learner, privatizer, users, "batch")
    with ThreadPoolExecutor(default_workers()) as pool:
        finals = list(pool.map(lambda run: float(setup.run(REPORTING_SEED, run).regret[-1]), range(seeds)))
    values = np.array(finals)
    low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
    uniform = users * (setup.optimal_value - setup.uniform_value)
    print(
        f"{name:44} {values.mean():9.0f} +- {values.std(ddof=1) / seeds**0.5:5.0f} {median:9.0f} "
        f"{low:9.0f} .. {high:9.0f} {values.mean() / uniform:8.4f}",
        flush=True,
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=64)
    seeds = parser.parse_args().seeds
    aware, plain = dr.NoiseAwareUCBVI(), dr.NoiseAwareUCBVI(preset="plain")
    riverswim = dr.make("riverswim", rewards="bernoulli")
    print(f"{'setting':44} {'mean':>9}    {'s.e.':>5} {'median':>9} {'10 % .. 90 %':>22} {'share':>8}")
    row("riverswim, no privacy", riverswim, aware, dr.NoPrivacy(), seeds)
    for epsilon in (1.0, 10.0):
        gaussian = dr.Central(epsilon=epsilon, delta=1e-6)
        row(f"riverswim, ({epsilon:g}, 1e-6)", riverswim, aware, gaussian, seeds)
        row(f"riverswim, ({epsilon:g}, 1e-6), no sharing", riverswim, plain, gaussian, seeds)
        row(f"riverswim, pure {epsilon:g}", riverswim, aware, dr.Central(epsilon=epsilon), seeds)
    for users in (200_000, 10_000_000):
        gaussian = dr.Central(epsilon=1.0, delta=1e-6)
        row(f"riverswim, (1, 1e-6), K = {users}", riverswim, aware, gaussian, seeds, users)
    row("riverswim, local pure 10", riverswim, aware, dr.Local(epsilon=10.0), seeds)
    worlds = {
        "dense 0": dr.make("random", seed=0),
        "dense 1": dr.make("random", seed=1),
        "dense 2": dr.make("random", seed=2),
        "sparse 3": dr.make("random", seed=3, successors=2),
        "S=20 A=3 5": dr.make("random", seed=5, states=20, actions=3, successors=3),
        "non-stationary 6": dr.make("random", seed=6, stationary=False),
        "switching chain 7": dr.make("switching-chain", seed=7),
    }
    for name, mdp in worlds.items():
        row(f"{name}, no privacy", mdp, aware, dr.NoPrivacy(), seeds)
        for epsilon in (1.0, 10.0):
            row(f"{name}, ({epsilon:g}, 1e-6)", mdp, aware, dr.Central(epsilon=epsilon, delta=1e-6), seeds)
        learner = dr.DPUCBVI(replan_growth=1.25)
        row(f"{name}, (1, 1e-6), dp-ucbvi", mdp, learner, dr.Central(epsilon=1.0, delta=1e-6), seeds)


if __name__ == "__main__":
    main()
