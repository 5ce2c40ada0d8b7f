"""Regret of learners for contexts in simulated worlds of contexts, at the same true privacy loss.

    python -m benchmarks.contexts [--users 10000] [--seeds 6] [--cells "ours central-1" "tree central-1" ...]

A cell is mean regret as a share of the uniform policy's, ± its standard error over seeds, and the same share
over the last quarter of users, with the largest value of a run. Each seed has a world of its own. All rows of
a seed have the same world. The options of the other learners are those of ``discreet tune``. Learners called
"oracle" have the best of :data:`ORACLE` for each world, which nobody could know. The tables are in
benchmarks/contexts.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

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
PRIVACY: dict[str, dict[str, float]] = {
    "none": {},
    "central-10": {"epsilon": 10.0, "delta": 1e-6},
    "central-1": {"epsilon": 1.0, "delta": 1e-6},
    "shuffle-10": {"epsilon": 10.0, "delta": 1e-6},
    "shuffle-1": {"epsilon": 1.0, "delta": 1e-6},
    "local-10": {"epsilon": 10.0, "delta": 1e-6},
}
TUNED: dict[str, dict[str, float]] = {  # options of the best trial; see benchmarks/contexts.md
    "tree central-1": {"bonus_scale": 0.001753, "ridge": 6.475},
    "tree central-10": {"bonus_scale": 0.001753, "ridge": 6.475},
    "batches central-1": {"bonus_scale": 0.005641},
    "batches central-10": {"ridge": 3.048, "lam": 0.4617},
    "zheng local-10": {"ridge": 10.83},
}
CELLS = (
    "ours none", "lin-ucb none", "lin-ts none",
    *(
        f"{name} {privacy}"
        for privacy in ("central-10", "central-1")
        for name in ("ours", "tree", "tree-oracle", "batches")
    ),
    *(f"{name} local-10" for name in ("ours", "zheng", "zheng-oracle")),
)  # fmt: skip
ORACLE = tuple(product((0.0, 0.005, 0.02), (1.0, 6.0)))  # bonus_scale, ridge


def parts(cell: str) -> tuple[list[Any], Any]:
    """Return the learners of a cell, of which the best counts, and its privatizer."""
    name, privacy = cell.split()
    options = TUNED.get(cell, {})
    learners = dr.learners
    tree: dict[str, Any] = {"release": "tree", "leaf": "user"} if name.startswith("tree") else {}
    budget = PRIVACY[privacy]
    privatizer: Any = dr.NoPrivacy()
    if privacy.startswith("central"):
        privatizer = dr.Central(**budget, **tree)
    elif privacy.startswith("shuffle"):
        privatizer = dr.Shuffle(**budget)
    elif privacy.startswith("local"):
        privatizer = dr.Local(**budget)
    if name.endswith("-oracle"):
        return [learners.LinUCB(bonus_scale=bonus, ridge=ridge) for bonus, ridge in ORACLE], privatizer
    kinds: dict[str, Any] = {
        "ours": learners.LinearBandit, "batches": learners.BatchedLinUCB, "lin-ts": learners.LinTS,
    }  # fmt: skip
    return [kinds.get(name, learners.LinUCB)(**options)], privatizer


@cache
def instance(world: str, seed: int) -> tuple[dr.envs.ContextWorld, float]:
    """Return an environment and the regret of the uniform policy per user."""
    made = WORLDS[world](seed)
    setup = ContextSetup(made, dr.learners.LinearBandit(), dr.NoPrivacy(), 100)
    return made, setup.optimal_value - setup.uniform_value


def runs(world: str, learner: Any, privatizer: Any, users: int, seeds: int) -> np.ndarray:
    """Return (seeds, 2) shares of the uniform policy's regret, in percent: of all users, and of the last
    quarter.
    """
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        made, uniform = instance(world, seed)
        run = ContextSetup(made, learner, privatizer, users).run(seed, 0)
        begin = float(np.interp(0.75 * users, run.episodes, run.regret))
        last = float(run.regret[-1])
        found.append((last / (uniform * users), (last - begin) / (uniform * users / 4)))
    return 100.0 * np.array(found)


def shares(world: str, cell: str, users: int, seeds: int) -> tuple[float, float, float, float]:
    """Return mean share, its standard error, mean late share and largest late share, in percent."""
    learners, privatizer = parts(cell)
    found = []
    for learner in learners:
        whole, late = runs(world, learner, privatizer, users, seeds).T
        found.append((whole.mean(), whole.std(ddof=1) / np.sqrt(seeds), late.mean(), late.max()))
    return min(found)


def ratio(world: str, epsilon: str, users: int, seeds: int) -> str:
    """Return mean regrets under shuffle and central privacy, and their ratio with its standard error over
    seeds.
    """
    both = (parts(f"ours {trust}-{epsilon}") for trust in ("shuffle", "central"))
    own, other = (runs(world, learner, privatizer, users, seeds)[:, 0] for (learner,), privatizer in both)
    found = own.mean() / other.mean()
    error = (own - found * other).std(ddof=1) / np.sqrt(seeds) / other.mean()
    return f"{own.mean():.2f} / {other.mean():.2f} = {found:.3f} ± {error:.3f}"


def main(argv: Sequence[str] | None = None) -> None:
    """Print one table: a row for each world, a column for each cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=list(CELLS))
    parser.add_argument(
        "--shuffle", nargs="*", choices=["1", "10"], help="compare shuffle with central at these ε"
    )
    given = parser.parse_args(argv)
    if given.shuffle:
        print("| world | " + " | ".join(f"ε = {e}" for e in given.shuffle) + " |")
        print("|---" * (1 + len(given.shuffle)) + "|")
        for world in WORLDS:
            cells = [ratio(world, e, given.users, given.seeds) for e in given.shuffle]
            print(f"| {world} | " + " | ".join(cells) + " |", flush=True)
        return
    print("| world | " + " | ".join(given.cells) + " |\n|---" + "|---" * len(given.cells) + "|")
    for world in WORLDS:
        cells = []
        for cell in given.cells:
            mean, error, late, worst = shares(world, cell, given.users, given.seeds)
            cells.append(f"{mean:.2f} ± {error:.2f} (late {late:.2f}, worst {worst:.2f})")
        print(f"| {world} | " + " | ".join(cells) + " |", flush=True)
        instance.cache_clear()


if __name__ == "__main__":
    main()
