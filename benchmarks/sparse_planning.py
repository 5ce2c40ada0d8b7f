"""CPU time of a release of the default learner, in this version and in an older one.

    python -m benchmarks.sparse_planning --old FOLDER [--runs 3] [--cases NAME ...]

FOLDER is a checkout of the older version. Every case is simulated by batches at (1, 1e-6), in turn by both
versions, each time in a new process. The CPU time is that of the second of two equal simulations, divided by
the number of releases; it includes the noise and the simulated users. Ratios are medians over runs of old /
new. Pairs have three successors, except in RiverSwim.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

# States, number of users, and whether the learner is told that steps are equal. Five actions, 20 steps.
CASES = {
    "riverswim, 1e6": (6, 10**6, False),
    "riverswim, 1e9": (6, 10**9, False),
    "50": (50, 20_000, False),
    "100": (100, 2_000, False),
    "200": (200, 500, False),
    "50, stationary": (50, 20_000, True),
    "100, stationary": (100, 20_000, True),
    "200, stationary": (200, 2_000, True),
    "500, stationary": (500, 500, True),
    "1000, stationary": (1000, 200, True),
}


def measure(name: str) -> tuple[float, float, int]:
    """Return the CPU time in seconds, the regret, and the number of releases of one simulation."""
    import discreet as dr
    from discreet.envs.random_mdps import random_mdp
    from discreet.mechanisms.interfaces import ProblemSpec

    states, users, told = CASES[name]
    world = dr.make("riverswim")
    if states > 6:
        world = random_mdp(states=states, actions=5, horizon=20, successors=3, seed=1, rewarding=states // 4)
    learner = dr.NoiseAwareUCBVI(stationary=True) if told else dr.NoiseAwareUCBVI()
    budget = dr.Central(epsilon=1.0, delta=1e-6)
    dr.simulate(world, learner, budget, min(users, 20), seed=5, by="batch", workers=1)  # compiles
    if users > 1_000:
        dr.simulate(world, learner, budget, users, seed=5, by="batch", workers=1)
    began = time.process_time()
    result = dr.simulate(world, learner, budget, users, seed=5, by="batch", workers=1)
    spent = time.process_time() - began
    spec = ProblemSpec(layout=world.layout, users=users, stationary=told, budget=budget.budget)
    return spent, float(result.regret[0, -1]), len(learner.schedule(spec).release_times)


def run(folder: Path, name: str) -> tuple[float, float, int]:
    """Return the result of :func:`measure` in a new process with the version in ``folder``."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", name]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    words = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout.split()
    return float(words[-3]), float(words[-2]), int(words[-1])


def main() -> None:
    """Print one line of a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--measure")
    options = parser.parse_args()
    if options.measure:
        print(*measure(options.measure))
        return
    here = Path(__file__).resolve().parent.parent
    print("| case | releases | old, ms | new, ms | old / new | same regret |")
    print("|---|---|---|---|---|---|")
    for name in options.cases:
        old, new = zip(*((run(options.old, name), run(here, name)) for _ in range(options.runs)), strict=True)
        releases, ratio = new[0][2], np.median([a[0] / b[0] for a, b in zip(old, new, strict=True)])
        times = [1e3 * np.median([one[0] for one in some]) / releases for some in (old, new)]
        print(
            f"| {name} | {releases} | {times[0]:.3g} | {times[1]:.3g} | {ratio:.2f} "
            f"| {'yes' if old[0][1] == new[0][1] else 'no'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
