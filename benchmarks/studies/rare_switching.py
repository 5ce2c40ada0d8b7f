"""The learner of Ngo et al. (2022) beside LSVI-UCB, as printed and tuned with equal effort.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.studies.rare_switching [--trials 8] [--worlds 8]

Random linear MDPs (S = 6, A = 3, H = 4, d = 4), 2000 users, delta = 1e-5. Each learner is tuned for each
budget by ``discreet tune`` on two worlds (seeds 100 and 101), in the same ranges. Worlds from seed 300 are
reported: mean regret and its standard error over worlds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from discreet.envs import random_linear
from discreet.experiments.simulate import Setup
from discreet.experiments.tuning import tune
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.private_lsvi_ucb import PrivateLSVIUCB
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils.markdown_table import markdown

USERS, DELTA, FIRST = 2000, 1e-5, 300
LEARNERS: Mapping[str, LSVIUCB] = {
    "LSVI-UCB, default": LSVIUCB(),
    "LSVI-UCB, requery": LSVIUCB(response="requery"),
    "Private LSVI-UCB, default": PrivateLSVIUCB(),
    "Private LSVI-UCB, `paper`": PrivateLSVIUCB(preset="paper"),
}
SEARCH = {"bonus_scale": (1e-6, 3.0), "ridge": (0.01, 3.0), "lam": (0.1, 10.0)}


def cell(learner: LSVIUCB, privatizer: Any, worlds: int) -> str:
    """Mean regret and its standard error over worlds."""
    setups = [
        Setup(random_linear(seed=FIRST + i), learner, privatizer, USERS, by="batch") for i in range(worlds)
    ]
    found = np.array([setup.run(i, 0).regret[-1] for i, setup in enumerate(setups)])
    return f"{found.mean():.0f} ± {found.std(ddof=1) / np.sqrt(worlds):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--worlds", type=int, default=8)
    options = parser.parse_args()
    training = [{"env": "linear-mdp", "env_options": {"seed": seed}} for seed in (100, 101)]
    budgets = {f"ε = {epsilon:g}": Central(epsilon=epsilon, delta=DELTA) for epsilon in (10.0, 1.0)}
    setups = [
        Setup(random_linear(seed=FIRST + i), LSVIUCB(), NoPrivacy(), USERS) for i in range(options.worlds)
    ]
    uniform = np.mean([USERS * (setup.optimal_value - setup.uniform_value) for setup in setups])
    print(f"uniform play loses {uniform:.0f}")
    lines, chosen = [], []
    for name, learner in LEARNERS.items():
        plain, tuned = [], []
        for said, privatizer in budgets.items():
            plain.append(cell(learner, privatizer, options.worlds))
            found = tune(
                learner, privatizer, worlds=training, users=USERS, trials=options.trials, seeds=2, workers=1,
                search=SEARCH,
            )  # fmt: skip
            best = replace(learner, **found.best.options)
            tuned.append(cell(best, privatizer, options.worlds))
            chosen.append(f"{name}, {said}: {found.best.options}")
            print(name, said, plain[-1], tuned[-1], found.best.options, flush=True)
        lines += [[name, *plain], [f"{name}, tuned", *tuned]]
    print(markdown([["", *budgets], *lines]))
    print("\n".join(chosen))


if __name__ == "__main__":
    main()
