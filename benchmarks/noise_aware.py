"""What the noise-aware learner reaches, on worlds and seeds that tuning never saw.

    python benchmarks/noise_aware.py [--part riverswim] [--seeds 256]

``riverswim``: every budget, with the defaults and with knobs tuned on this task (``benchmarks.studies.tuning
--task``; those were chosen on other seeds). ``worlds``: seven others, defaults. ``returns``: exploration by
measured returns beside the plain learner. Final regret after 20 000 users, by batches: mean, standard error,
median, 10 to 90 %, share of what the uniform policy loses. benchmarks/default_learner.md shows the last.
``time``: milliseconds of CPU time that one run takes, a median.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

import discreet as dr
from benchmarks.leaderboard.env_suites import SUITE
from discreet.experiments.simulate import Setup
from discreet.utils.system import processors

USERS = 20_000
REPORTING_SEED = 901
PRIVATIZERS: dict[str, Any] = {
    "(1, 1e-6)": dr.Central(epsilon=1.0, delta=1e-6),
    "(10, 1e-6)": dr.Central(epsilon=10.0, delta=1e-6),
    "pure 1": dr.Central(epsilon=1.0),
    "pure 10": dr.Central(epsilon=10.0),
    "local 3": dr.Local(epsilon=3.0),
    "local 10": dr.Local(epsilon=10.0),
    "none": dr.NoPrivacy(),
}
# what ``python -m benchmarks.studies.tuning --task NAME --seeds 32`` chose
_START: dict[str, Any] = {"stat_scale": 0.1, "priv_scale": 0.25, "excess": 2.0, "reward_share": 0.2}
_PURE: dict[str, Any] = {**_START, "replan_growth": 1.2, "pooled_share": 0.9, "pooled_share_end": 0.1}
TUNED_ON_TASK: dict[str, dict[str, Any]] = {
    "(1, 1e-6)": {**_START, "replan_growth": 1.05, "stat_scale": 0.2},
    "(10, 1e-6)": {**_START, "replan_growth": 1.05, "priv_scale": 0.35, "reward_share": 0.1},
    "pure 1": {**_PURE, "excess": 5.0},
    "pure 10": {**_PURE, "excess": 8.0, "priv_scale": 0.35, "pooled_share_end": 0.3, "consistent": False},
    "local 3": {**_START, "replan_growth": 1.1, "reward_share": 0.3},
    "local 10": {**_START, "replan_growth": 1.05, "priv_scale": 0.15},
}


def final_regrets(setup: Setup, seeds: int) -> NDArray[np.float64]:
    """(seeds,) final regret."""
    with ThreadPoolExecutor(processors()) as pool:
        found = pool.map(lambda run: float(setup.run(REPORTING_SEED, run).regret[-1]), range(seeds))
        return np.array(list(found))


def spaced(value: float) -> str:
    """In whole units, thousands apart."""
    return f"{value:,.0f}".replace(",", " ")


def row(name: str, mdp: dr.TabularMDP, learner: Any, privatizer: Any, seeds: int, users: int = USERS) -> None:
    """Run one setting and print its line."""
    setup = Setup(mdp, learner, privatizer, users, "batch")
    values = final_regrets(setup, seeds)
    quantiles = np.quantile(values, [0.1, 0.5, 0.9])
    uniform = users * (setup.optimal_value - setup.uniform_value)
    mean, error, low, median, high = map(spaced, (values.mean(), values.std(ddof=1) / seeds**0.5, *quantiles))
    share = 100 * values.mean() / uniform
    print(f"| {name} | {mean} ± {error} | {median} | {low} to {high} | {share:.3g} % |", flush=True)


def on_riverswim(seeds: int) -> None:
    """Every budget, defaults and tuned; without sharing; more users."""
    riverswim, aware = dr.make("riverswim", rewards="bernoulli"), dr.NoiseAwareUCBVI()
    for name, privatizer in PRIVATIZERS.items():
        row(f"RiverSwim; {name}; defaults", riverswim, aware, privatizer, seeds)
        if name in TUNED_ON_TASK:
            tuned = dr.NoiseAwareUCBVI(**TUNED_ON_TASK[name])
            row(f"RiverSwim; {name}; tuned on the task", riverswim, tuned, privatizer, seeds)
    for name in ("(1, 1e-6)", "(10, 1e-6)"):
        unshared = dr.NoiseAwareUCBVI(preset="plain")
        row(f"RiverSwim; {name}; no sharing", riverswim, unshared, PRIVATIZERS[name], min(seeds, 64))
    for users in (200_000, 10_000_000):
        name = f"RiverSwim; (1, 1e-6); K = {users:.0e}".replace("e+0", "e")
        row(name, riverswim, aware, PRIVATIZERS["(1, 1e-6)"], min(seeds, 64), users)


def on_worlds(seeds: int) -> None:
    """Seven worlds that are neither training worlds nor in the suite."""
    worlds = {
        "dense 0": dr.make("random", seed=0),
        "dense 1": dr.make("random", seed=1),
        "dense 2": dr.make("random", seed=2),
        "sparse 3": dr.make("random", seed=3, successors=2),
        "S=20 A=3 5": dr.make("random", seed=5, states=20, actions=3, successors=3),
        "non-stationary 6": dr.make("random", seed=6, stationary=False),
        "switching chain 7": dr.make("switching-chain", seed=7),
    }
    for world, mdp in worlds.items():
        for name, privatizer in PRIVATIZERS.items():
            row(f"{world}; {name}", mdp, dr.NoiseAwareUCBVI(), privatizer, seeds)
        slow = dr.DPUCBVI(replan_growth=1.25)
        row(f"{world}; (1, 1e-6); dp-ucbvi", mdp, slow, PRIVATIZERS["(1, 1e-6)"], seeds)


def with_returns(seeds: int) -> None:
    """The suite, plain and by returns, on the same seeds."""
    for name in ("(1, 1e-6)", "(10, 1e-6)", "pure 1", "pure 10"):
        print(
            f"\n{name}, {seeds} seeds\n\n| world | plain | returns | median | 90 % | ratio |\n|{'---|' * 6}"
        )
        for world in SUITE:
            plain, by_returns = (
                final_regrets(
                    Setup(world.build(), dr.NoiseAwareUCBVI(explore=way), PRIVATIZERS[name], USERS, "batch"),
                    seeds,
                )
                for way in ("optimism", "returns")
            )
            means = [
                f"{spaced(x.mean())} ± {spaced(x.std(ddof=1) / seeds**0.5)}" for x in (plain, by_returns)
            ]
            median, high = map(spaced, np.quantile(by_returns, [0.5, 0.9]))
            ratio = by_returns.mean() / plain.mean()
            error = (by_returns - ratio * plain).std(ddof=1) / (seeds**0.5 * plain.mean())
            cells = (world.name, *means, median, high, f"{ratio:.2f} ± {error:.2f}")
            print(f"| {' | '.join(cells)} |", flush=True)


def in_time(seeds: int) -> None:
    """Milliseconds of one run by batches, its planning by the default learner included."""
    riverswim = dr.make("riverswim", rewards="bernoulli")
    large = dr.make("random", seed=5, states=20, actions=3, successors=3)
    print("\n| run | ms |\n|---|---|")
    for world, mdp in (("RiverSwim", riverswim), ("S=20 A=3 5", large)):
        for name in ("(1, 1e-6)", "pure 1", "local 10", "none"):
            for users in (20_000, 1_000_000):
                setup = Setup(mdp, dr.NoiseAwareUCBVI(), PRIVATIZERS[name], users, "batch")
                setup.run(REPORTING_SEED, 0)
                times = []
                for run in range(seeds):
                    begin = time.thread_time()
                    setup.run(REPORTING_SEED, run)
                    times.append(1e3 * (time.thread_time() - begin))
                print(f"| {world}; {name}; K = {users} | {statistics.median(times):.1f} |", flush=True)


def main() -> None:
    """Print the tables."""
    parts = {
        "riverswim": (on_riverswim, 256), "worlds": (on_worlds, 64), "returns": (with_returns, 48),
        "time": (in_time, 11),
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=sorted(parts))
    parser.add_argument("--seeds", type=int)
    args = parser.parse_args()
    for name, (part, seeds) in parts.items():
        if args.part in (None, name):
            if part is not with_returns:
                print("| setting | mean ± s.e. | median | 10 % to 90 % | share |\n|---|---|---|---|---|")
            part(args.seeds or seeds)


if __name__ == "__main__":
    main()
