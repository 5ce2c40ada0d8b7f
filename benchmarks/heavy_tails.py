"""Regret with heavy-tailed rewards: learners that truncate at B against the bounded learner that clips at 1.

    python -m benchmarks.heavy_tails [--seeds 8] [--cells central ...]

Regret is that of rewards without truncation, as a share of the uniform policy's. ``balanced`` is the
threshold of :func:`balanced_threshold` for K / (S A) visits and one standard deviation of the noise. Runs are
simulated by batches. The tables are in benchmarks/heavy_tails.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import discreet as dr
from discreet import envs
from discreet.core.families import CENTERED_REWARDS
from discreet.experiments.simulate import Setup
from discreet.learners.online.heavy_tails import balanced_threshold

World = Callable[[float], dr.TabularMDP]

SEED = 4242
THRESHOLDS = (1.0, 4.0, 16.0, 64.0)
# Declared (v, u): E|X|^(1 + v) <= u for every pair. Student, index 2.5: E X^2 <= 1 + 5. Pareto, index 2, mean
# at most 1: E X^1.8 <= Gamma(2.8) Gamma(0.2).
STUDENT, PARETO = {"order": 1.0, "moment": 6.0}, {"order": 0.8, "moment": 7.7}


def _gamble(bound: float) -> dr.TabularMDP:
    return envs.heavy_tailed(envs.gamble(), threshold=bound, tail="pareto", index=2.0)


WORLDS: dict[str, tuple[World, dict[str, float]]] = {
    "RiverSwim, Student": (lambda b: envs.heavy_riverswim(threshold=b), STUDENT),
    "RiverSwim, Pareto": (lambda b: envs.heavy_riverswim(threshold=b, tail="pareto", index=2.0), PARETO),
    "gamble, Pareto": (_gamble, PARETO),
}
CELLS: dict[str, tuple[Any, int]] = {
    "none": (dr.NoPrivacy(), 20_000),
    "central": (dr.Central(epsilon=1.0, delta=1e-6), 1_000_000),
    "central, long": (dr.Central(epsilon=1.0, delta=1e-6), 100_000_000),
    "local": (dr.Local(epsilon=10.0, delta=1e-6), 1_000_000_000),
}


def share(world: World, bound: float, learner: Any, cell: str, seeds: int) -> tuple[float, float]:
    """Return mean regret over the uniform policy's, and its standard error."""
    privatizer, users = CELLS[cell]
    setup = Setup(world(bound), learner, privatizer, users, "batch")
    finals = np.array([setup.run(SEED, run).regret[-1] for run in range(seeds)])
    finals /= users * (setup.optimal_value - setup.uniform_value)
    return float(finals.mean()), float(finals.std(ddof=1) / np.sqrt(seeds))


def balanced(world: World, tails: dict[str, float], cell: str) -> float:
    """Return the balanced threshold of a cell, between 1 and 1024."""
    privatizer, users = CELLS[cell]
    setup = Setup(world(1.0), dr.learners.PrivateUCBVI(), privatizer, users, "batch")
    laws = setup.mechanism.laws.steps()[-1][1]  # type: ignore[attr-defined]
    noise = max(1.0, float(laws[CENTERED_REWARDS].std_bound()))
    visits = users / setup.mdp.layout.rows
    return float(np.clip(balanced_threshold(tails["moment"], tails["order"], visits, noise), 1.0, 1024.0))


def rows(world: World, tails: dict[str, float], cell: str) -> list[tuple[str, float, Any]]:
    """Return (label, threshold, learner) of every line of the table."""
    vi, po = dr.learners.HeavyUCBVI, dr.learners.HeavyUCBPO
    fit = balanced(world, tails, cell)
    return [
        ("bounded, VI", 1.0, dr.learners.PrivateUCBVI()),
        *((f"heavy-ucb-vi, B = {b:g}", b, vi(threshold=b, **tails)) for b in THRESHOLDS),
        ("heavy-ucb-vi, balanced", fit, vi(threshold=fit, **tails)),
        ("bounded, PO", 1.0, dr.learners.PrivateUCBPO()),
        *((f"heavy-ucb-po, B = {b:g}", b, po(threshold=b, **tails)) for b in THRESHOLDS),
    ]


def main(given: Sequence[str] | None = None) -> None:
    """Print one table for each cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--cells", nargs="*", default=list(CELLS), choices=list(CELLS))
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), choices=list(WORLDS))
    asked = parser.parse_args(given)
    for cell in asked.cells:
        print(f"\n{cell}, K = {CELLS[cell][1]:,}\n\n| learner | {' | '.join(asked.worlds)} |", flush=True)
        print(f"|---|{'---|' * len(asked.worlds)}", flush=True)
        lines = zip(*(rows(*WORLDS[name], cell) for name in asked.worlds), strict=True)
        for line in lines:
            found = []
            for name, (label, bound, learner) in zip(asked.worlds, line, strict=True):
                mean, error = share(WORLDS[name][0], bound, learner, cell, asked.seeds)
                told = f" (B = {bound:.3g})" if label.endswith("balanced") else ""
                found.append(f"{100 * mean:.2f} ± {100 * error:.2f} %{told}")
            print(f"| {label} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
