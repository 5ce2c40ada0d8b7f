"""Shuffle against a trusted server that adds noise of its own to each batch: ``python -m`` this module.

    python -m benchmarks.studies.shuffle_regret [--seeds 256] [--seed 2201] [--growth 1.3] [--users 20000]

One learner (noise-aware, the knobs that :func:`discreet.learners.online.noise_aware.defaults_for` has for the
shuffle model), one schedule, one budget, one world (RiverSwim with Bernoulli rewards), and the same noise:

- ``central, batches`` : what a trusted server can do and the shuffle model can too, sums of batches with
  noise of their own. Its shares divide the squared loss, to which a centred reward's sensitivity adds half as
  much as a transition's; those of the flips divide variances. A share w of rewards there is w / (2 - w) here
  (1/3 is .2): every cell gets the same noise;
- ``shuffle`` : coin flips, all knobs at their defaults;
- ``shuffle, amplified`` : reports of one random step in place of coin flips;
- ``central, default`` : the server's own best, with its own knobs and schedule. Its noise is correlated over
  time, which takes a party that keeps old sums without noise: nobody in the shuffle model does.

Seed by seed all meet people of the same public keys; regrets are almost independent all the same, since the
noise decides. The ratio of means has the interval of paired values
(:func:`discreet.experiments.statistics.ratio_interval`).
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.families import CENTERED_REWARDS, TRANSITIONS
from discreet.core.rng import Seeded
from discreet.envs import riverswim
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments import statistics
from discreet.experiments.simulate import Setup
from discreet.learners.online.noise_aware import NoiseAwareUCBVI, defaults_for
from discreet.mechanisms.interfaces import ProblemSpec, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.shuffle import Shuffle
from discreet.utils.markdown_table import markdown
from discreet.utils.system import processors

SEED = 2201  # no tuning used it

__all__ = ["Arm", "compare", "noise_per_cell", "setups", "table"]


@dataclass(frozen=True, eq=False)
class Arm:
    """One privatizer: (seeds,) final regret, and the std of a transition count and of a reward in a batch."""

    name: str
    regret: NDArray[np.float64]
    transitions: float
    rewards: float


def setups(
    world: TabularMDP, users: int, epsilon: float, delta: float, growth: float | None = None
) -> dict[str, Setup]:
    """What is compared, the trusted server's batches first. growth : None for the default under shuffle."""
    flips = Shuffle(epsilon=epsilon, delta=delta)
    knobs: dict[str, Any] = dict(defaults_for(ProblemSpec(world.layout, users, budget=flips.budget)))
    if growth is not None:
        knobs["replan_growth"] = growth
    learner = NoiseAwareUCBVI(**knobs)
    share = knobs["reward_share"]
    alike = NoiseAwareUCBVI(**{**knobs, "reward_share": share / (2.0 - share)})  # the same noise
    arms: dict[str, tuple[NoiseAwareUCBVI, Any]] = {
        "central, batches": (alike, Central(epsilon=epsilon, delta=delta, release="batches")),
        "shuffle": (learner, flips),
        "shuffle, amplified": (learner, Shuffle(epsilon=epsilon, delta=delta, randomizer="amplified")),
        "central, default": (NoiseAwareUCBVI(), Central(epsilon=epsilon, delta=delta)),
    }
    return {name: Setup(world, *arm, users, "batch") for name, arm in arms.items()}


def noise_per_cell(setup: Setup) -> tuple[float, float]:
    """Standard deviation of a transition count and of a centred reward in one batch, as large as the last."""
    times = setup.schedule.release_times
    last = int(times[-1] - times[-2])
    laws = setup.privatizer.mechanism(setup.query, Schedule.one_shot(last), Seeded(0)).laws_at(last)
    return laws[TRANSITIONS].std(), laws[CENTERED_REWARDS].std()


def compare(runs: dict[str, Setup], seed: int, seeds: int) -> list[Arm]:
    """Every arm on the same seeds."""
    found = []
    with ThreadPoolExecutor(processors()) as pool:
        for name, setup in runs.items():
            finals = pool.map(lambda run, s=setup: float(s.run(seed, run).regret[-1]), range(seeds))
            found.append(Arm(name, np.array(list(finals)), *noise_per_cell(setup)))
    return found


def table(measured: list[Arm]) -> str:
    """Markdown: regret, its ratio to the first arm's with its interval, noise of a cell."""
    head = ("privatizer", "regret, mean ± s.e.", "ratio to the first (95 %)", "noise: transitions, rewards")
    lines: list[tuple[str, ...]] = [head]
    base = measured[0]
    for arm in measured:
        error = float(arm.regret.std(ddof=1)) / arm.regret.size**0.5
        ratio = "1" if arm is base else str(statistics.ratio_interval(arm.regret, base.regret))
        noise = f"{arm.transitions:.1f}, {arm.rewards:.1f}"
        lines.append((arm.name, f"{arm.regret.mean():,.0f} ± {error:,.0f}", ratio, noise))
    return markdown(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--growth", type=float, default=None)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=256)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    args = parser.parse_args()
    world = riverswim(rewards="bernoulli")
    runs = setups(world, args.users, args.epsilon, args.delta, args.growth)
    growth = runs["shuffle"].compiled.replan_growth
    print(f"growth {growth:g}, {args.users} users, {args.seeds} seeds from seed {args.seed}")
    print(table(compare(runs, args.seed, args.seeds)))


if __name__ == "__main__":
    main()
