"""Compare the learner with one principle with the default learner, paired by seed.

    python -m benchmarks.studies.compare_one_principle --out FILE [--users 2e4 2e5] [--runs 8] [--budget 1]
        [--suite worlds] [--seed 39011]

The suites are those of ``ablate_default``; nothing was chosen on them. The learner was tuned on the suite
``late_tail.training`` with the seed 515. Users are simulated by batches. The command prints, for each number
of users, the ratio of mean regrets in each environment, and the geometric mean of these ratios. If the lower
95 % limit of an environment is above 1, it is run again with other seeds (``--again`` runs of each side). The
file keeps measured cells.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import discreet as dr
from benchmarks.late_tail import lower_limit, reporting, training
from benchmarks.studies.ablate_default import BUDGETS, SUITES
from benchmarks.studies.one_principle import OnePrinciple
from discreet.experiments.simulate import Setup


def shares(
    mdp: dr.TabularMDP, learner: Any, budget: str, users: int, seed: int, runs: int
) -> list[list[float]]:
    """Return the regret of each run, and that of its last quarter, as shares of the uniform policy's."""
    setup = Setup(mdp, learner, BUDGETS[budget], users, "batch")
    gap = setup.optimal_value - setup.uniform_value
    found = []
    for i in range(runs):
        run = setup.run(seed, i)
        at = [float(np.interp(n, run.episodes, run.regret)) for n in (0.75 * users, users)]
        found.append([at[1] / (users * gap), (at[1] - at[0]) / (0.25 * users * gap)])
    return found


def main(arguments: Sequence[str]) -> int:
    """Print one table for each number of users."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", nargs="+", type=float, default=[2e4, 2e5])
    parser.add_argument("--budget", default="1", choices=list(BUDGETS))
    parser.add_argument("--suite", default="worlds", choices=[*SUITES, "training", "reporting"])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--again", type=int, default=32)
    parser.add_argument("--seed", type=int, default=39_011)
    parser.add_argument("--only", default="", help="environments whose name begins so")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file, continued if it exists")
    given = parser.parse_args(arguments)
    cells: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    arms: dict[str, Any] = {"one": OnePrinciple(), "default": dr.NoiseAwareUCBVI()}

    def both(world: str, mdp: dr.TabularMDP, users: int, seed: int, runs: int) -> list[list[float]]:
        for arm, learner in arms.items():
            key = f"{arm} | {world} | {given.budget} | {users} | {seed}"
            if len(cells.get(key, [])) < runs:
                cells[key] = shares(mdp, learner, given.budget, users, seed, runs)
                given.out.write_text(json.dumps(cells))
        return [
            [x[k] for x in cells[f"{arm} | {world} | {given.budget} | {users} | {seed}"][:runs]]
            for k in (0, 1)
            for arm in arms
        ]

    suites = {**SUITES, "training": training, "reporting": reporting}
    chosen = suites[given.suite]()
    chosen = {name: mdp for name, mdp in chosen.items() if name.startswith(given.only)}
    for users in map(int, given.users):
        logs, late = [], []
        for world, mdp in chosen.items():
            one, default, one_late, default_late = both(world, mdp, users, given.seed, given.runs)
            ratio, least = np.mean(one) / np.mean(default), lower_limit(one, default)
            logs.append(float(np.log(ratio)))
            late.append([np.mean(one_late), np.mean(default_late)])
            row = f"| {world} | {users:.0e} | {np.mean(default):.2%} | {ratio:.2f} ({least:.2f}) |"
            row += f" {late[-1][1]:.3%} | {late[-1][0]:.3%} |"
            if given.again and least > 1.0:
                one, default, *_ = both(world, mdp, users, given.seed + 1, given.again)
                row += f" {np.mean(one) / np.mean(default):.2f} ({lower_limit(one, default):.2f}) |"
            print(row, flush=True)
        error = np.std(logs, ddof=1) / len(logs) ** 0.5 if len(logs) > 1 else 0.0
        middle = np.median(np.array(late), axis=0)
        print(
            f"{users:.0e}: mean {np.exp(np.mean(logs)):.3f} ± {error:.3f}, median late {middle}", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
