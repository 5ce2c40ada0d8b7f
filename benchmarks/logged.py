"""Coverage of the intervals of `discreet judge` for a policy on logged decisions, and false gains.

    python -m benchmarks.logged [--runs 500]

Each run draws a log, judges the policy, and compares the interval with the true value and the true gain over
the logging policy. The table is in benchmarks/contexts.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.core.rng import Seeded
from discreet.learners.ope.logged_values import LogQuestion
from discreet.mechanisms.dataset.clipped_sum import ClippedSum
from discreet.pipeline.state_codebook import budget_of

Floats = NDArray[np.float64]
DELTA = 1e-6
EPSILONS = (1.0, 3.0, 10.0)
KINDS = 12  # contexts of a world


@dataclass(frozen=True)
class World:
    """Contexts with equal probabilities, a logging policy, a policy to judge, and mean rewards.

    name : name in the table. units : number of decisions. rate : mean reward without effects. effect : range
    of effects, as a share of the rate. sharp : how uneven the logging policy is. least : smallest
    probability, which is declared if ``told``. cap : M. kind : "binary", or "graded" rewards between 0 and 1.
    uniform : True if the policy that is judged takes all actions alike; otherwise it takes the best one.
    """

    name: str
    units: int
    rate: float
    effect: float
    sharp: float
    least: float
    told: bool
    cap: float
    actions: int = 5
    kind: str = "binary"
    uniform: bool = False

    def tables(self, seed: int) -> tuple[Floats, Floats, Floats]:
        """Return (KINDS, A) probabilities of the log and of the policy, and mean rewards."""
        draw, shape = np.random.default_rng([seed, 1]), (KINDS, self.actions)
        logged = np.exp(self.sharp * draw.standard_normal(shape))
        logged = logged / logged.sum(axis=1, keepdims=True)
        logged = self.least + (1.0 - self.actions * self.least) * logged
        own = draw.uniform(-1.0, 1.0, shape)
        reward = self.rate * (1.0 + self.effect * own) * np.exp(0.3 * draw.standard_normal((KINDS, 1)))
        best = np.eye(self.actions)[own.argmax(axis=1)]
        policy = np.full(shape, 1.0 / self.actions) if self.uniform else best
        return logged, policy, np.clip(reward, 0.0, 0.95)


WORLDS = (
    World("dense, all weights declared", 5_000, 0.4, 0.4, 0.7, 0.05, True, 20.0),
    World("dense, capped", 5_000, 0.4, 0.4, 1.5, 0.002, False, 10.0),
    World("graded rewards", 5_000, 0.4, 0.4, 0.7, 0.05, True, 20.0, kind="graded"),
    World("graded, no effect", 5_000, 0.4, 0.0, 0.7, 0.05, True, 20.0, kind="graded"),
    World("dense, no effect", 5_000, 0.4, 0.0, 0.7, 0.05, True, 20.0),
    World("dense, no effect, capped", 5_000, 0.4, 0.0, 1.5, 0.002, False, 10.0),
    World("clicks 0.4 %, uniform policy", 10_000, 0.004, 0.8, 2.0, 0.0001, False, 10.0, 20, "binary", True),
    World("clicks 0.4 %, heavy weights", 20_000, 0.004, 0.8, 1.0, 0.01, True, 100.0),
    World("clicks 0.4 %, many", 200_000, 0.004, 0.8, 1.0, 0.01, True, 100.0),
    World("clicks 0.4 %, no effect", 200_000, 0.004, 0.0, 1.0, 0.01, True, 100.0),
    World("clicks 0.4 %, no effect, heavy", 20_000, 0.004, 0.0, 1.0, 0.01, True, 100.0),
)  # fmt: skip


def run(world: World, seed: int) -> list[tuple[float, ...]]:
    """Return, by epsilon: coverage of value and gain, a gain shown, widths, forecast."""
    logged, policy, mean = world.tables(seed % 20)
    draw, n = np.random.default_rng([seed, 2]), world.units
    x = draw.integers(KINDS, size=n)
    a = (draw.random((n, 1)) > np.cumsum(logged, axis=1)[x]).sum(axis=1).clip(max=world.actions - 1)
    m = mean[x, a]
    y = draw.beta(4.0 * m, 4.0 * (1.0 - m)) if world.kind == "graded" else (draw.random(n) < m).astype(float)
    value = float((policy * mean).sum() / KINDS)
    gain = value - float((logged * mean).sum() / KINDS)
    question = LogQuestion(world.cap, world.rate, world.least if world.told else None)
    vectors = question.vectors(question.weights(policy[x, a], logged[x, a]), y)
    found: list[tuple[float, ...]] = []
    for epsilon in EPSILONS:
        query = ClippedSum(
            question.SIZE, "gaussian", float(np.sqrt(2.0 / budget_of(epsilon, DELTA, None)[0]))
        )
        sums = query.release(vectors, question.clip, Seeded(seed, int(epsilon)))
        one, ahead = question.read(sums, n, query.std), question.forecast(n, query.std)
        found.append((
            one.value.low <= value <= one.value.high, one.gain.low <= gain <= one.gain.high, one.shown, gain,
            (one.gain.high - one.gain.low) / 2, ahead.least,
            np.nan if ahead.most is None else ahead.most, ahead.hopeless,
        ))  # fmt: skip
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    runs = parser.parse_args(argv).runs
    print(
        "| log | units | cap | ε | value in interval | gain in interval | gain shown | true gain | "
        "half width | "
        "forecast: least | forecast: most | hopeless |"
    )
    print("|---" * 12 + "|")
    for world in WORLDS:
        every = np.array([run(world, seed) for seed in range(runs)], float).mean(axis=0)
        for epsilon, (held, gained, shown, gain, half, noise, most, hopeless) in zip(
            EPSILONS, every, strict=True
        ):
            print(
                f"| {world.name} | {world.units:,} | {world.cap:g}{'' if world.told else ' (bites)'} "
                f"| {epsilon:g} | "
                f"{100 * held:.1f} % | {100 * gained:.1f} % | {100 * shown:.1f} % | {gain:.4f} | "
                f"{half:.4f} | "
                f"{noise:.4f} | {'-' if np.isnan(most) else f'{most:.4f}'} | {'yes' if hopeless else 'no'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
