"""What learners without privacy reach: the baselines that a comparison should be held against.

    python benchmarks/baselines.py [--users 20000 200000] [--seeds 6] [--learners noise-aware]
    python benchmarks/baselines.py --part tuning [--seeds 6]

``suite``: mean final regret of UCB-VI with either bonus, PSRL, RLSVI and the noise-aware learner, all under
``NoPrivacy`` ("pooled": told that all steps are alike, where they are, which noise-aware finds out itself),
on the worlds of ``benchmarks.leaderboard.env_suites.SUITE``, as a share of what the uniform policy loses (per
cent), and the geometric mean over worlds. Beside RLSVI stands the epsilon (delta = 1e-6) that arXiv
2606.01952 claims for it: that paper's number, no guarantee of this library
(``discreet.learners.online.rlsvi``).

``tuning``: how the knobs of PSRL and RLSVI were chosen, on ``TRAINING``, which has none of the suite's worlds
(8 seeds): once through the knobs in the order of the grid, every value of one with the others as they stand;
the best stays if it lowers the geometric mean of the shares by more than one per cent. ``replan_growth`` is
1.1 throughout: 1.05 lowers the shares of PSRL by a tenth and takes twice as long.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

import discreet as dr
from benchmarks.leaderboard.env_suites import SUITE, SUITE_SEED, TRAINING, geometric_mean
from discreet.experiments.simulate import Setup
from discreet.learners.online.rlsvi import claimed_epsilon

TUNING_SEED = 57
TUNING_USERS = 20_000
DELTA = 1e-6
LEARNERS: dict[str, Any] = {
    "ucb-vi": dr.learners.UCBVI(replan_growth=1.05),
    "ucb-vi-bernstein": dr.learners.UCBVI(bonus="bernstein", replan_growth=1.05),
    "psrl": dr.learners.PSRL(),
    "rlsvi": dr.learners.RLSVI(),
    "psrl, pooled": dr.learners.PSRL(stationary=True),
    "rlsvi, pooled": dr.learners.RLSVI(stationary=True),
    "rlsvi, theory": dr.learners.RLSVI(preset="theory", replan_growth=1.1),
    "noise-aware": dr.NoiseAwareUCBVI(),
}
GRIDS: dict[str, tuple[type, dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "psrl": (
        dr.learners.PSRL,
        {"prior_visits": 1.0, "prior_rewards": 1.0, "samples": 4, "replan_growth": 1.1},
        {
            "prior_visits": (0.03, 0.1, 0.3, 1.0, "S"),
            "prior_rewards": (0.03, 0.1, 0.3, 1.0),
            "samples": (1, 4, 8),
        },
    ),
    "rlsvi": (
        dr.learners.RLSVI,
        {"noise_const": 0.05, "prior_value": 1.0, "samples": 4, "replan_growth": 1.1},
        {
            "prior_value": (0.0, 0.3, 0.5, 0.7, 1.0),
            "noise_const": (0.003, 0.01, 0.02, 0.05, 0.1, 0.2),
            "samples": (1, 4, 8),
        },
    ),
}


def shares(mdp: dr.TabularMDP, learner: Any, users: int, seed: int, seeds: int) -> np.ndarray[Any, Any]:
    """(seeds,) final regret over that of the uniform policy."""
    setup = Setup(mdp, learner, dr.NoPrivacy(), users, "batch")
    finals = np.array([setup.run(seed, run).regret[-1] for run in range(seeds)])
    return finals / (users * (setup.optimal_value - setup.uniform_value))


def on_suite(users: int, seeds: int, learners: list[str]) -> None:
    """One table: a line for each world, a column for each of these learners."""
    print(f"\nK = {users}, {seeds} seeds: regret in per cent of the uniform policy's\n")
    print("| world | " + " | ".join(learners) + " | ε claimed for rlsvi |")
    print("|---|" + "---|" * (len(learners) + 1))
    found: dict[str, list[Any]] = {name: [] for name in learners}
    for number, world in enumerate(SUITE):
        mdp, cells = world.build(), []
        for name in learners:
            learner = LEARNERS[name]
            if getattr(learner, "stationary", False) and not mdp.stationary:
                learner = replace(learner, stationary=False)
            values = 100 * shares(mdp, learner, users, SUITE_SEED + number, seeds)
            found[name].append(values)
            cells.append(f"{values.mean():.3g} ± {values.std(ddof=1) / seeds**0.5:.2g}")
        claim = claimed_epsilon(mdp.horizon, mdp.states, mdp.layout.actions, users, DELTA)
        print(f"| {world.name} | " + " | ".join(cells) + f" | {claim:.3g} |", flush=True)
    means = (geometric_mean(values) for values in found.values())
    print("| geometric mean | " + " | ".join(str(mean) for mean in means) + " | |", flush=True)


def tune(seeds: int) -> None:
    """The search, setting by setting."""
    worlds = [world.build() for world in TRAINING]

    def score(kind: type, setting: dict[str, Any]) -> float:
        found = [shares(mdp, kind(**setting), TUNING_USERS, TUNING_SEED, seeds) for mdp in worlds]
        return geometric_mean(found).estimate

    for name, (kind, setting, grid) in GRIDS.items():
        best = score(kind, setting)
        print(f"{name}: start {setting} {100 * best:.3g} %", flush=True)
        for knob, values in grid.items():
            others = [value for value in values if value != setting[knob]]
            tried = {value: score(kind, {**setting, knob: value}) for value in others}
            found = ", ".join(f"{value}: {100 * share:.3g} %" for value, share in tried.items())
            print(f"{name}: {knob}: {found}", flush=True)
            winner = min(tried, key=lambda value: tried[value])
            if tried[winner] < 0.99 * best:
                setting, best = {**setting, knob: winner}, tried[winner]
        print(f"{name}: chosen {setting} {100 * best:.3g} %", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("suite", "tuning"), default="suite")
    parser.add_argument("--users", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--learners", nargs="+", choices=tuple(LEARNERS), default=list(LEARNERS))
    args = parser.parse_args()
    if args.part == "tuning":
        tune(args.seeds)
        return
    for users in args.users:
        on_suite(users, args.seeds, args.learners)


if __name__ == "__main__":
    main()
