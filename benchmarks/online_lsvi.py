"""LSVI-UCB: regret and seconds on random linear MDPs and on the wide linear world.

    python benchmarks/online_lsvi.py small [--worlds 24] [--episodes 4000]
    python benchmarks/online_lsvi.py wide [--episodes 5000] [--instances 21,22,23,24] [--linear]
    python benchmarks/online_lsvi.py first [--worlds 16]
    python benchmarks/online_lsvi.py shared [--worlds 16]

``small`` is a random linear MDP: S = 6, A = 3, H = 4, d = 4, delta = 1e-5; means over worlds
that chose no default (seeds from 300) with standard errors, simulated by batches. ``wide`` plays every
user, one run on each instance of the world of 2000 states, beside tabular learners with the same budget;
instances 21 to 24 chose no default either (0 did, and 11 to 13 checked it). ``first`` compares the default
first batch with K / 32 users, and ``shared`` compares ``stationary=True`` with the default, both at delta =
1e-6 on worlds that chose nothing (seeds from 8000). Run it with OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from discreet.envs import random_linear, wide_linear
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.simulate import Setup
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.learners.online.ucbvi import UCBVI
from discreet.mechanisms.features import Features
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

DELTA = 1e-5


def regret(worlds: list[TabularMDP], learner: Any, privatizer: Any, users: int, by: Any) -> str:
    begin, found, last = time.process_time(), [], 0.0
    for seed, mdp in enumerate(worlds):
        run = Setup(mdp, learner, privatizer, users, by=by).run(seed, 0)
        found.append(run.regret[-1])
        half = min(int(np.searchsorted(run.episodes, 0.75 * users)), len(run.episodes) - 2)
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


def wide(users: int, alone: bool, instances: list[int]) -> None:
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
        )[: 1 if alone else None]:
            print(
                f"epsilon {epsilon!s:5} {name:24}",
                regret(worlds, learner, budget, users, "episode"),
                flush=True,
            )


def linear(d: int, states: int, horizon: int, seed: int, stationary: bool) -> TabularMDP:
    """Return a random linear MDP with five actions; contexts (H = 1) have a uniform first state."""
    draw = np.random.default_rng([seed, d, states, 5, horizon])
    slots = 1 if stationary else horizon
    phi = Features(draw.dirichlet(np.full(d, 0.3), (states, 5)), l1=1.0, nonneg=True)
    measures, weights = draw.dirichlet(np.full(states, 0.3), (slots, d)), draw.uniform(size=(slots, d))
    begin = np.full(states, 1 / states) if horizon == 1 else 0
    law = "bernoulli"
    return LinearMDP(phi, measures, weights, begin, reward_law=law, horizon=horizon).to_tabular()


def share(mdp: TabularMDP, learner: LSVIUCB, privatizer: Any, users: int, seed: int) -> tuple[float, int]:
    """Return regret in per cent of that of uniform play, and the size of the first batch."""
    setup = Setup(mdp, learner, privatizer, users, by="batch")
    lost = users * (setup.optimal_value - setup.uniform_value)
    return 100 * setup.run(seed, 0).regret[-1] / lost, int(learner.tuned(setup.spec).replan_first or 1)


def cells(which: str) -> Iterator[tuple[int, int, int, str, float, int]]:
    """Yield d, S, H, kind of budget, epsilon and K of each cell."""
    for d, states in ((10, 20), (30, 40)):
        for epsilon in (10.0, 1.0):
            for users in (10**5, 10**6, 10**7)[: 2 if which == "shared" else 3]:
                yield d, states, 6, "central", epsilon, users
    if which == "first":
        yield from ((12, 100, 1, "central", e, k) for e, k in ((10.0, 10**5), (1.0, 10**5), (1.0, 10**6)))
        yield from ((8, 20, 1, "central", e, k) for e, k in ((10.0, 10**5), (1.0, 10**6)))
        yield from ((10, 80, 6, "central", e, k) for e, k in ((10.0, 10**5), (10.0, 10**6), (1.0, 10**6)))
        yield from ((10, 20, 6, "pure", e, 10**6) for e in (10.0, 1.0))
        yield from ((10, 20, 6, "local", 10.0, k) for k in (10**6, 10**7))


def compared(which: str, worlds: int) -> None:
    """Print the share of K / 32 users at random, of the default and, for "shared", of shared steps."""
    ratios = []
    for d, states, horizon, kind, epsilon, users in cells(which):
        delta = None if kind == "pure" else 1e-6
        privatizer = (Local if kind == "local" else Central)(epsilon=epsilon, delta=delta)
        learners = [LSVIUCB(replan_first=math.ceil(users / 32)), LSVIUCB(), LSVIUCB(stationary=True)]
        found, first = [], 0
        for seed in range(8000, 8000 + worlds):
            mdp = linear(d, states, horizon, seed, which == "shared")
            runs = [share(mdp, one, privatizer, users, seed) for one in learners[: 2 + (which == "shared")]]
            found.append([one for one, _ in runs])
            first = runs[1][1]
        table = np.array(found)
        error = table.std(axis=0) / math.sqrt(max(1, worlds - 1))
        said = "  ".join(f"{m:6.3f} +- {e:5.3f}" for m, e in zip(table.mean(axis=0), error, strict=True))
        logs = np.log(table[:, -1] / table[:, -2])
        ratios.append(logs.mean())
        means = table.mean(axis=0)
        print(
            f"{kind:7} d {d} S {states} H {horizon} epsilon {epsilon:g} K {users:.0e} first {first:6}:",
            said,
            f" median {np.median(table[:, -1]):.3f}  ratio of means {means[-1] / means[-2]:.2f}",
            f" of logs {math.exp(logs.mean()):.2f}  worst {math.exp(logs.max()):.2f}",
            flush=True,
        )
    print(f"geometric mean of the cells {math.exp(np.mean(ratios)):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=("small", "wide", "first", "shared"))
    parser.add_argument("--worlds", type=int)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--instances", default="21,22,23,24")
    parser.add_argument("--linear", action="store_true", help="LSVI-UCB only")
    given = parser.parse_args()
    if given.which == "small":
        small(given.worlds or 24, given.episodes or 4000)
    elif given.which in ("first", "shared"):
        compared(given.which, given.worlds or 16)
    else:
        wide(given.episodes or 5000, given.linear, [int(i) for i in given.instances.split(",")])


if __name__ == "__main__":
    main()
