"""Regret of the contextual learner in simulated worlds of contexts.

    python -m benchmarks.contexts [--users 10000] [--seeds 6] [--privacy central-1 ...]

A cell is mean regret as a share of the uniform policy's, ± its standard error over seeds, and the same share
over the last quarter of users, with the largest value of a run. Each seed has a world of its own. The tables
are in benchmarks/contexts.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

import discreet as dr
from discreet import envs
from discreet.experiments.context_runs import ContextSetup

FIRST_SEED = 5000
WORLDS: dict[str, Callable[[int], dr.envs.ContextWorld]] = {
    "shared d5 A5": lambda seed: envs.shared_contexts(5, 5, seed=seed),
    "shared d10 A2": lambda seed: envs.shared_contexts(10, 2, seed=seed),
    "shared d10 A5": lambda seed: envs.shared_contexts(10, 5, seed=seed),
    "per action p5 A5": lambda seed: envs.per_action_contexts(4, 5, seed=seed),
    "per action p10 A2": lambda seed: envs.per_action_contexts(9, 2, seed=seed),
    "per action p10 A5": lambda seed: envs.per_action_contexts(9, 5, seed=seed),
    "logit p5 A3": lambda seed: envs.per_action_contexts(4, 3, link="logit", seed=seed),
    "fixed arms d10 A20": lambda seed: envs.fixed_arms(10, 20, seed=seed),
}
PRIVACY = {
    "none": dr.NoPrivacy(),
    "central-10": dr.Central(epsilon=10.0, delta=1e-6),
    "central-1": dr.Central(epsilon=1.0, delta=1e-6),
    "shuffle-10": dr.Shuffle(epsilon=10.0, delta=1e-6),
    "shuffle-1": dr.Shuffle(epsilon=1.0, delta=1e-6),
    "local-10": dr.Local(epsilon=10.0, delta=1e-6),
}


def runs(world: str, privacy: str, users: int, seeds: int) -> np.ndarray:
    """Return (seeds, 2) shares of the uniform policy's regret in percent: all users, and the last quarter."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        setup = ContextSetup(WORLDS[world](seed), dr.learners.LinearBandit(), PRIVACY[privacy], users)
        run = setup.run(seed, 0)
        uniform = (setup.optimal_value - setup.uniform_value) * users
        begin = float(np.interp(0.75 * users, run.episodes, run.regret))
        last = float(run.regret[-1])
        found.append((last / uniform, (last - begin) / (uniform / 4)))
    return 100.0 * np.array(found)


def shares(world: str, privacy: str, users: int, seeds: int) -> tuple[float, float, float, float]:
    """Return mean share, its standard error, mean late share and largest late share, in percent."""
    whole, late = runs(world, privacy, users, seeds).T
    return whole.mean(), whole.std(ddof=1) / np.sqrt(seeds), late.mean(), late.max()


def ratio(world: str, privacy: str, users: int, seeds: int) -> str:
    """Return mean regrets under shuffle and central privacy, and their ratio ± its standard error."""
    own, other = (runs(world, f"{trust}-{privacy}", users, seeds)[:, 0] for trust in ("shuffle", "central"))
    found = own.mean() / other.mean()
    error = (own - found * other).std(ddof=1) / np.sqrt(seeds) / other.mean()
    return f"{own.mean():.2f} / {other.mean():.2f} = {found:.3f} ± {error:.3f}"


def main(argv: Sequence[str] | None = None) -> None:
    """Print one table: a row for each world, a column for each privacy setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--privacy", nargs="*", default=list(PRIVACY), choices=list(PRIVACY))
    parser.add_argument("--shuffle", nargs="*", choices=["1", "10"], help="compare with central at these ε")
    given = parser.parse_args(argv)
    if given.shuffle:
        print("| world | " + " | ".join(f"ε = {e}" for e in given.shuffle) + " |")
        print("|---" * (1 + len(given.shuffle)) + "|")
        for world in WORLDS:
            cells = [ratio(world, e, given.users, given.seeds) for e in given.shuffle]
            print(f"| {world} | " + " | ".join(cells) + " |", flush=True)
        return
    print("| world | " + " | ".join(given.privacy) + " |\n|---" + "|---" * len(given.privacy) + "|")
    for world in WORLDS:
        cells = []
        for privacy in given.privacy:
            mean, error, late, worst = shares(world, privacy, given.users, given.seeds)
            cells.append(f"{mean:.2f} ± {error:.2f} % (late {late:.2f}, worst {worst:.2f})")
        print(f"| {world} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
