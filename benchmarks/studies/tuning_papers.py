"""How both sides of the price of privacy were tuned alike: one grid, one score, the declared training worlds.

    python -m benchmarks.studies.tuning_papers [--seeds 4] [--users 20000]

A *side* is a learner on a mechanism: the papers' learners on the papers' mechanism and on ours, the
noise-aware learner on the papers', and the non-private baselines. Each gets a grid of 9 to 12 points over the
scale of what comes from sampling and the scale of what comes from noise, and one setting for all its
budgets. Score, as in :mod:`benchmarks.studies.tuning`: the geometric mean over budgets and worlds
(:data:`benchmarks.leaderboard.env_suites.TRAINING`, no RiverSwim) of (mean regret) / (regret of the uniform
policy). The noise-aware learner on our mechanism is not here: its setting is the library's default. The
winners stand in :data:`papers.price_of_privacy.runs.TUNED`.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.leaderboard.env_suites import TRAINING, tuning_shares
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.simulate import Setup
from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.learners.online.ucbvi import DPUCBVI, UCBVI, PrivateUCBVI
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from papers.price_of_privacy.noise_aware_sums import NoiseAwareOnSums

TUNING_SEED = 32
GROWTH = 1.1  # all replan alike
PAPER_FAMILIES: Mapping[str, Any] = {"derive_visits": False, "center_rewards": False}
PAPER_RELEASE: Mapping[str, Any] = {"release": "tree", "leaf": "user", "noise": "laplace"}
_BONUS = {"bonus_scale": (0.03, 0.1, 0.3, 1.0)}
_NOISY = {**_BONUS, "priv_scale": (0.0003, 0.003, 0.03)}
_AWARE = {"stat_scale": (0.05, 0.1, 0.2), "priv_scale": (0.06, 0.25, 1.0)}


@dataclass(frozen=True)
class Side:
    """A learner on a mechanism. fixed : options besides the grid's; budgets : (epsilon, delta), or none."""

    learner: Any
    fixed: Mapping[str, Any]
    grid: Mapping[str, Sequence[float]]
    release: Mapping[str, Any]
    budgets: tuple[tuple[float, float | None], ...]

    def privatizers(self) -> list[Any]:
        """One for each budget."""
        if not self.budgets:
            return [NoPrivacy()]
        return [Central(epsilon=e, delta=d, **self.release) for e, d in self.budgets]


_PURE: tuple[tuple[float, float | None], ...] = ((1.0, None), (10.0, None))
_OURS = ((1.0, 1e-6), (10.0, 1e-6), *_PURE)
_SLOW = {"replan_growth": GROWTH}
_FREE = {**_BONUS, "replan_growth": (1.02, 1.1, 1.25)}
SIDES: Mapping[str, Side] = {
    "dp-ucbvi, theirs": Side(DPUCBVI, {**_SLOW, **PAPER_FAMILIES}, _NOISY, PAPER_RELEASE, _PURE),
    "dp-ucbvi, ours": Side(DPUCBVI, _SLOW, _NOISY, {}, _OURS),
    "private-ucb-vi, theirs": Side(PrivateUCBVI, {**_SLOW, **PAPER_FAMILIES}, _NOISY, PAPER_RELEASE, _PURE),
    "private-ucb-vi, ours": Side(PrivateUCBVI, _SLOW, _NOISY, {}, _OURS),
    "noise-aware, theirs": Side(NoiseAwareOnSums, {**_SLOW, **PAPER_FAMILIES}, _AWARE, PAPER_RELEASE, _PURE),
    "ucb-vi-bernstein, none": Side(UCBVI, {"bonus": "bernstein"}, _FREE, {}, ()),
    "ucb-vi, none": Side(UCBVI, {}, _FREE, {}, ()),
    "noise-aware, none": Side(
        NoiseAwareUCBVI, {}, {"stat_scale": (0.05, 0.1, 0.2, 0.4), "replan_growth": (1.02, 1.1, 1.25)}, {}, ()
    ),
}


def score(
    side: Side, setting: Mapping[str, Any], worlds: Sequence[TabularMDP], users: int, seeds: int
) -> float:
    """Geometric mean over budgets and worlds of mean regret over the uniform policy's, by batches."""
    learner = side.learner(**{**side.fixed, **setting})
    setups = (
        Setup(world, learner, privatizer, users, "batch")
        for privatizer, world in itertools.product(side.privatizers(), worlds)
    )
    return float(np.exp(np.mean(np.log(tuning_shares(setups, TUNING_SEED, seeds)))))


def main() -> None:
    """Print the score of every setting of every side, and each side's winner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--users", type=int, default=20_000)
    args = parser.parse_args()
    worlds = [world.build() for world in TRAINING]
    for name, side in SIDES.items():
        found = []
        for values in itertools.product(*side.grid.values()):
            setting = dict(zip(side.grid, values, strict=True))
            found.append((score(side, setting, worlds, args.users, args.seeds), setting))
            print(f"{name:24} {setting!s:50} {found[-1][0]:8.4f}", flush=True)
        best = min(found, key=lambda pair: pair[0])
        print(f"{name}: {best[1]} ({best[0]:.4f})", flush=True)


if __name__ == "__main__":
    main()
