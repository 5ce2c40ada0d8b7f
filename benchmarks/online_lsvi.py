"""LSVI-UCB: regret and seconds on random linear MDPs and on the wide linear world.

    python benchmarks/online_lsvi.py small [--worlds 24] [--episodes 4000]
    python benchmarks/online_lsvi.py wide [--episodes 5000] [--instances 21,22,23,24] [--linear]

``small`` is a random linear MDP: S = 6, A = 3, H = 4, d = 4, delta = 1e-5; means over worlds
that chose no default (seeds from 300) with standard errors, simulated by batches. ``wide`` plays every
user, one run on each instance of the world of 2000 states, beside tabular learners with the same budget;
instances 21 to 24 chose no default either (0 did, and 11 to 13 checked it). Run it with
OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from discreet.envs import random_linear, wide_linear
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.simulate import Setup
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.learners.online.ucbvi import UCBVI
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

DELTA = 1e-5


def regret(worlds: list[TabularMDP], learner: Any, privatizer: Any, users: int, by: Any) -> str:
    begin, found, last = time.process_time(), [], 0.0
    for seed, mdp in enumerate(worlds):
        run = Setup(mdp, learner, privatizer, users, by=by).run(seed, 0)
        found.append(run.regret[-1])
        half = int(np.searchsorted(run.episodes, 0.75 * users))
        last += (run.regret[-1] - run.regret[half]) / (users - run.episodes[half]) / len(worlds)
    error = np.std(found) / np.sqrt(max(1, len(found) - 1))
    seconds = (time.process_time() - begin) / len(worlds)
    return f"{np.mean(found):8.0f} +- {error:4.0f}  last quarter {last:.3f} a user  {seconds:6.2f} s a run"


def small(count: int, users: int) -> None:
    worlds = [random_linear(seed=300 + i) for i in range(count)]
    uniform = [
        users * (s.optimal_value - s.uniform_value)
        for s in (Setup(w, LSVIUCB(), NoPrivacy(), 1) for w in worlds)
    ]
    print(f"uniform play loses {np.mean(uniform):.0f}")
    budgets = [NoPrivacy(), *(Central(epsilon=e, delta=DELTA) for e in (10.0, 1.0))]
    budgets += [Local(epsilon=e, delta=DELTA) for e in (50.0, 10.0)]
    for budget in budgets:
        name = f"{budget.budget.trust} {budget.budget.epsilon or ''}"
        print(f"{name:12} default       ", regret(worlds, LSVIUCB(), budget, users, "batch"), flush=True)
    for budget in budgets[:3]:
        name = f"{budget.budget.trust} {budget.budget.epsilon or ''}"
        print(
            f"{name:12} requery       ",
            regret(worlds, LSVIUCB(response="requery"), budget, users, "batch"),
            flush=True,
        )
    for batches in (10, 20, 40, 80):
        for epsilon in (None, 10.0, 1.0):
            for form in ("model", "requery"):
                budget = (
                    NoPrivacy()
                    if epsilon is None
                    else Central(epsilon=epsilon, delta=DELTA, release="batches")
                )
                learner = LSVIUCB(replan_every=-(-users // batches), response=form)
                print(
                    f"B = {batches:2} {form:8} epsilon {epsilon!s:5}",
                    regret(worlds, learner, budget, users, "batch"),
                    flush=True,
                )


def wide(users: int, linear: bool, instances: list[int]) -> None:
    worlds = [wide_linear(seed=seed) for seed in instances]
    uniform = [
        users * (s.optimal_value - s.uniform_value)
        for s in (Setup(w, LSVIUCB(), NoPrivacy(), 1) for w in worlds)
    ]
    print(f"uniform play loses {np.mean(uniform):.0f}")
    for epsilon in (None, 10.0, 1.0):
        budget = NoPrivacy() if epsilon is None else Central(epsilon=epsilon, delta=DELTA)
        for name, learner in (
            ("lsvi-ucb", LSVIUCB()),
            ("noise-aware, stationary", NoiseAwareUCBVI(stationary=True, replan_growth=1.1)),
            ("ucb-vi, stationary", UCBVI(stationary=True, replan_growth=1.1)),
        )[: 1 if linear else None]:
            print(
                f"epsilon {epsilon!s:5} {name:24}",
                regret(worlds, learner, budget, users, "episode"),
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=("small", "wide"))
    parser.add_argument("--worlds", type=int, default=24)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--instances", default="21,22,23,24")
    parser.add_argument("--linear", action="store_true", help="LSVI-UCB only")
    given = parser.parse_args()
    if given.which == "small":
        small(given.worlds, given.episodes or 4000)
    else:
        wide(given.episodes or 5000, given.linear, [int(i) for i in given.instances.split(",")])


if __name__ == "__main__":
    main()
