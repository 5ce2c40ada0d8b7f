"""What a public schedule costs the papers' learners in regret, and what it saves: ``python -m`` this module.

    python -m benchmarks.studies.schedules [--seeds 16] [--users 20000] [--growth 1.02 1.1 1.2]

Learners of counts by the papers release and plan after every user there; by default they do so here when the
users have grown by :data:`discreet.learners.online.tabular_base.GROWTH`, or ``PLAIN_GROWTH`` without privacy.
Everything else is alike, row by row: the learner's other knobs (its ``default`` preset), the privatizer's
true budget, the world and the keys of its people. A row has both regrets as shares of the uniform policy's,
their ratio with the interval of paired values (:func:`discreet.experiments.statistics.ratio_interval`),
seconds of CPU a run, of one thread, and the largest standard deviation of the noise of one transition count
at any release.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.leaderboard.env_suites import SUITE
from discreet.core.count_mechanism import CountMechanism
from discreet.core.families import TRANSITIONS
from discreet.experiments import statistics
from discreet.experiments.simulate import Setup
from discreet.learners.online.ldp_obi import LDPOBI
from discreet.learners.online.policy_optimization import OPPO, PrivateUCBPO
from discreet.learners.online.pucb import PUCB
from discreet.learners.online.tabular_base import GROWTH, PLAIN_GROWTH
from discreet.learners.online.ucbvi import DPUCBVI, UCBVI, PrivateUCBVI
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils.markdown_table import markdown

SEED = 2311  # no tuning used it
WORLDS = ("RiverSwim", "dense S=6 #1001")
_PURE, _APPROXIMATE = Central(epsilon=1.0), Central(epsilon=1.0, delta=1e-6)
SIDES: tuple[tuple[str, Any, str, Any], ...] = (
    ("UCB-VI", UCBVI, "none", NoPrivacy()),
    ("OPPO", OPPO, "none", NoPrivacy()),
    ("Private-UCB-VI", PrivateUCBVI, "joint (1, 1e-6)", _APPROXIMATE),
    ("Private-UCB-PO", PrivateUCBPO, "joint (1, 1e-6)", _APPROXIMATE),
    ("DP-UCBVI", DPUCBVI, "joint (1, 1e-6)", _APPROXIMATE),
    ("DP-UCBVI", DPUCBVI, "joint (10, 1e-6)", Central(epsilon=10.0, delta=1e-6)),
    ("DP-UCBVI", DPUCBVI, "joint, pure 1", _PURE),
    ("PUCB", PUCB, "joint, pure 1", _PURE),
    ("LDP-OBI", LDPOBI, "local 3", Local(epsilon=3.0)),
)

__all__ = ["Arm", "Row", "measured", "noise", "rows", "table"]


@dataclass(frozen=True, eq=False)
class Arm:
    """One schedule: its plans, (seeds,) final regret over the uniform policy's, seconds a run, noise."""

    plans: int
    shares: NDArray[np.float64]
    seconds: float
    noise: float | None


@dataclass(frozen=True, eq=False)
class Row:
    """One learner under one privatizer on one world: every user, and by growth."""

    names: tuple[str, str, str]
    every: Arm
    growths: dict[float, Arm]


def noise(setup: Setup) -> float | None:
    """The largest standard deviation of one transition count's noise at any release; None: there is none."""
    if setup.guarantee.trust == "none":
        return None
    assert isinstance(setup.mechanism, CountMechanism)
    return max(laws[TRANSITIONS].std() for _, laws in setup.mechanism.laws.steps())


def measured(setup: Setup, seed: int, seeds: int) -> Arm:
    """Run all seeds here, one after the other."""
    begin = time.process_time()
    finals = [setup.run(seed, run).regret[-1] for run in range(seeds)]
    seconds = (time.process_time() - begin) / seeds
    never = (setup.optimal_value - setup.uniform_value) * setup.episodes
    return Arm(setup.times.size - 1, np.array(finals) / never, seconds, noise(setup))


def rows(
    worlds: Iterable[str], sides: Sequence[tuple[str, Any, str, Any]], users: int, seed: int, seeds: int,
    growths: Sequence[float] = (),
) -> Iterator[Row]:  # fmt: skip
    """Every side on every world. growths : None of them: the side's default."""
    built = {world.name: world.build() for world in SUITE if world.name in set(worlds)}
    for world, mdp in built.items():
        for name, learner, budget, privatizer in sides:
            tried = growths or [GROWTH if privatizer.budget.private else PLAIN_GROWTH]
            arms = []
            chosen: list[Any] = [learner(replan_every=1), *(learner(replan_growth=one) for one in tried)]
            for one in chosen:
                Setup(mdp, one, privatizer, 2).run(seed, 0)  # compiled
                arms.append(measured(Setup(mdp, one, privatizer, users), seed, seeds))
            yield Row((world, name, budget), arms[0], dict(zip(tried, arms[1:], strict=True)))


def table(found: Iterable[Row]) -> str:
    """Markdown: a line a row and growth."""
    head = (
        "world", "learner", "privacy", "growth", "plans", "regret: every user", "on the schedule",
        "ratio (95 %)", "seconds a run: every user", "on the schedule", "noise of a count: every user",
        "on the schedule",
    )  # fmt: skip
    lines: list[tuple[str, ...]] = [head]
    for row in found:
        for growth, arm in row.growths.items():
            ratio = str(statistics.ratio_interval(arm.shares, row.every.shares))
            shares = (f"{100 * one.shares.mean():.3g} %" for one in (row.every, arm))
            seconds = (f"{one.seconds:.2g}" for one in (row.every, arm))
            noises = ("-" if one.noise is None else f"{one.noise:,.0f}" for one in (row.every, arm))
            lines.append((*row.names, f"{growth:g}", f"{arm.plans}", *shares, ratio, *seconds, *noises))
    return markdown(lines)


def main() -> None:
    """Print the table, line by line as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--growth", type=float, nargs="*", default=[])
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    args = parser.parse_args()
    print(f"{args.users} users, {args.seeds} seeds from seed {args.seed}")
    for i, row in enumerate(rows(args.worlds, SIDES, args.users, args.seed, args.seeds, args.growth)):
        lines = table([row]).splitlines()
        print("\n".join(lines if i == 0 else lines[2:]), flush=True)


if __name__ == "__main__":
    main()
