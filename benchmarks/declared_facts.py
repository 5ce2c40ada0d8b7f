"""Regret of the default learner that is told true facts, over its regret without them.

    python -m benchmarks.declared_facts [--suite reporting] [--users 20000] [--runs 16] [--facts known both]

Facts: ``stationary=True``, ``known_rewards=True``, and both. Simulation by batches. Every arm has the same
seeds. Small environments have two or three times as many runs. The mean over environments is geometric, with
the standard error of the logarithm. Environments with nothing to learn but rewards are left out. Constants
were chosen on the suite ``training`` only, with the seed 6 (benchmarks/declared_facts.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import discreet as dr
from benchmarks import hard_worlds, late_tail, prior

FACTS: Mapping[str, Mapping[str, bool]] = {
    "untold": {},
    "stationary": {"stationary": True},
    "known": {"known_rewards": True},
    "both": {"stationary": True, "known_rewards": True},
}
BUDGETS: Mapping[str, Any] = {
    "1": dr.Central(epsilon=1.0, delta=1e-6),
    "10": dr.Central(epsilon=10.0, delta=1e-6),
    "pure 1": dr.Central(epsilon=1.0),
    "local 10": dr.Local(epsilon=10.0),
    "none": dr.NoPrivacy(),
}


def training() -> dict[str, dr.TabularMDP]:
    """Return the environments on which constants were chosen; most of them were bad for an older version."""
    suite = prior.training()
    names = (
        "two states 1",
        "two states 2",
        "two states 3",
        "machine",
        "delay",
        "stopping",
        "random",
        "queue",
    )
    made = {
        "machine 2": prior.machine(2, 8, 25),
        "machine 3": prior.machine(3, 9, 30),
        "deep": dr.make("combination-lock", states=12, depth=8, seed=107),
        "four pairs 0": prior.four_pairs(0),
        "episodic": dr.make("random", states=12, actions=3, successors=3, terminal=3, rewarding=20, seed=116),
        # The next four were environments of published figures until a change of the bonus made them worse.
        "two states 21": prior.two_states(21),
        "machine 23": prior.machine(23, 11, 30),
        "sparse": dr.make("random", states=14, actions=3, horizon=15, seed=932, successors=3),
        "star": hard_worlds.star(9, 5),
        "sparse 40": dr.make("random", states=12, actions=3, horizon=14, seed=940, successors=3),
        "star 7": hard_worlds.star(7, 4),
        "riverswim 5": dr.make("riverswim", states=5),
        "haystack": late_tail.haystack(1, 8, 12, 6),
    }
    return {**{name: suite[name] for name in names}, **made}


def reporting() -> dict[str, dr.TabularMDP]:
    """Return the environments of the published figures."""
    return {
        **{f"two states {seed}": prior.two_states(seed) for seed in (22, 23, 24)},
        **{f"four pairs {seed}": prior.four_pairs(seed) for seed in (200, 201, 202, 203)},
        "riverswim": dr.make("riverswim", rewards="bernoulli"),
        "queue": prior.queue(21, 9, 18),
        "grid": prior.grid(21, 4, 14),
        "machine 21": prior.machine(21, 9, 25),
        "machine 22": prior.machine(22, 8, 20),
        "machine 24": prior.machine(24, 10, 28),
        "random": dr.make("random", states=12, actions=3, horizon=12, seed=931),
        "sparse": dr.make("random", states=13, actions=3, horizon=16, seed=942, successors=3),
        "rewarding": dr.make("random", states=8, actions=3, horizon=10, rewarding=24, seed=933),
        "episodic": dr.make("random", states=11, actions=3, successors=3, terminal=2, rewarding=15, seed=934),
        "graph": hard_worlds.graph(8, 4, 12, 94),
        "doors": hard_worlds.doors(7, 8, 0.8, 0.4),
        "delay": hard_worlds.delay(5, 3, 12),
        "star": hard_worlds.star(8, 6),
        "corridor": hard_worlds.corridor(7, 12, 0.1),
        "stock": hard_worlds.stock(7, 4, 12),
        "stopping": hard_worlds.stopping(9, 18),
        "behind": hard_worlds.behind(0.85, 0.97, 14),
    }


SUITES = {"training": (training, 6), "reporting": (reporting, 9090)}


def shares(
    mdp: dr.TabularMDP, facts: Mapping[str, bool], budget: str, users: int, seed: int, runs: int
) -> NDArray[np.float64]:
    """Return the regret of each run as a share of the uniform policy's regret."""
    result = dr.simulate(
        mdp, dr.NoiseAwareUCBVI(**facts), BUDGETS[budget], users, seeds=runs, seed=seed, by="batch", workers=1
    )
    return np.asarray(result.regret[:, -1] / (users * (result.optimal_value - result.uniform_value)))


def more_runs(mdp: dr.TabularMDP) -> int:
    """Return how many times as many runs a small environment has; single runs of it differ more."""
    cells = mdp.layout.horizon * mdp.layout.rows * mdp.states
    return 3 if cells < 3_000 else 2 if cells < 7_000 else 1


def line(name: str, ratios: Iterable[float]) -> str:
    """Return one row of the table: mean, standard error of the logarithm, and worst ratio."""
    logs = np.log(np.array(list(ratios)))
    error = logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return f"{name:12} mean {np.exp(logs.mean()):.3f} +- {error:.3f}  worst {np.exp(logs.max()):.2f}"


def main() -> None:
    """Print one line for each environment, then the mean and the worst ratio of each fact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--suite", default="reporting", choices=list(SUITES))
    parser.add_argument("--facts", nargs="+", default=list(FACTS)[1:], choices=list(FACTS)[1:])
    parser.add_argument("--budget", default="1", choices=list(BUDGETS))
    parser.add_argument("--only", default="", help="environments whose name begins so")
    parser.add_argument("--seed", type=int, default=None)
    for name, value in (("users", 20_000), ("runs", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    suite, seed = SUITES[given.suite]
    seed = seed if given.seed is None else given.seed
    ratios: dict[str, list[float]] = {fact: [] for fact in given.facts}
    for name, mdp in suite().items():
        if not name.startswith(given.only):
            continue
        runs = given.runs * more_runs(mdp)
        base = shares(mdp, {}, given.budget, given.users, seed, runs)
        row = f"| {name:16} | {100 * base.mean():6.2f} ± {100 * base.std() / np.sqrt(len(base)):.2f} % |"
        for fact in given.facts:
            found = shares(mdp, FACTS[fact], given.budget, given.users, seed, runs).mean()
            ratios[fact].append(float(found / base.mean()))
            row += f" {ratios[fact][-1]:5.2f} |"
        print(row, flush=True)
    for fact, values in ratios.items():
        print(line(fact, values))


if __name__ == "__main__":
    main()
