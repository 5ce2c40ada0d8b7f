"""Gains and verdicts of linear-advantage in simulated worlds of vital signs.

    python -m benchmarks.vitals gains [--seeds 6]
    python -m benchmarks.vitals verdicts [--runs 500]
    python -m benchmarks.vitals none [--runs 500]

``gains``: true gain of the policy over what clinicians did, learned from all stays; one world for each seed.
``verdicts``: how often the 95 % interval of the other half holds the true gain of one decision in H.
``none``: how often a gain is shown in worlds in which no treatment matters. The tables are in
benchmarks/contexts.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import discreet as dr
from discreet.core.rng import Seeded
from discreet.data.context_visits import StoredVisits
from discreet.envs.vitals import Stays, VitalsWorld
from discreet.learners.offline.linear_advantage import AdvantagePolicy, LinearAdvantage
from discreet.learners.ope.advantage_verdict import AdvantageQuestion, AdvantageVerdict
from discreet.mechanisms.dataset.clipped_sum import ClippedSum
from discreet.mechanisms.linear.context_sums import Visits

DELTA = 1e-6
MANY = 30_000  # stays that give a true gain
GAINS = (("linear", 5_000, None), ("linear", 5_000, 3.0), ("linear", 5_000, 1.0), ("linear", 20_000, 1.0),
         ("nonlinear", 20_000, None), ("nonlinear", 20_000, 3.0), ("nonlinear", 20_000, 1.0))  # fmt: skip
JUDGED = ((1.0, True), (1.0, False), (3.0, True), (3.0, False))  # epsilon, logged probabilities


def stored(stays: Stays) -> StoredVisits:
    """Return the visits of simulated stays."""
    visits = Visits(stays.stay, stays.vitals, stays.actions, stays.returns[stays.stay])
    return StoredVisits(visits, stays.propensities, tuple(range(len(stays.returns))))


def learned(world: VitalsWorld, people: StoredVisits, epsilon: float | None, seed: int) -> Any:
    """Return the session's record (None without noise), the release and the policy."""
    learner = LinearAdvantage()
    privatizer = dr.NoPrivacy() if epsilon is None else dr.Central(epsilon=epsilon, delta=DELTA)
    session = learner.open(world.features, privatizer, Seeded(seed, 0))
    session.submit_many(people.some(session.visits, Seeded(seed, 1)), len(people.names))
    records = session.records
    release = session.release()
    return (records[0] if records else None), release, learner.learn(release)


def judged(
    world: VitalsWorld, stays: Stays, epsilon: float, logged: bool, seed: int
) -> tuple[AdvantagePolicy, AdvantageVerdict]:
    """Return the policy that was learned from one half of the stays, and the verdict of the other half."""
    half = np.random.default_rng([seed, 2]).random(len(stays.returns)) < 0.5
    people = stored(stays)
    record, release, policy = learned(world, people.of(half), epsilon, seed)
    question, query = (
        AdvantageQuestion(policy, release, world.horizon),
        ClippedSum.matching(record, AdvantageQuestion.SIZE),
    )
    others = people.of(~half)
    users = len(others.names)
    answers = question.answers(others.visits, users, others.propensities if logged else None)
    clip = question.clip(users, query.multiplier)
    sums = query.release(question.vectors(answers, clip), clip, Seeded(seed, 3))
    return policy, question.read(sums, clip, users, query.std, logged=logged)


def print_gains(seeds: int) -> None:
    """Print the true gains, a row for each setting."""
    print(
        "| readings | stays | ε | mean gain ± standard error | least | largest |\n|---|---|---|---|---|---|"
    )
    for readings, users, epsilon in GAINS:
        gains = []
        for seed in range(seeds):
            world = VitalsWorld(readings, seed=seed)  # type: ignore[arg-type]
            policy = learned(world, stored(world.play(users, 100 + seed)), epsilon, seed)[2]
            gains.append(world.play(20_000, 1, policy).returns.mean() - world.play(20_000, 1).returns.mean())
        error = np.std(gains, ddof=1) / np.sqrt(seeds)
        said = "none" if epsilon is None else f"{epsilon:g}"
        print(
            f"| {readings} | {users:,} | {said} | {np.mean(gains):.3f} ± {error:.3f} | {min(gains):.3f} | "
            f"{max(gains):.3f} |",
            flush=True,
        )


def print_verdicts(runs: int, effect: float) -> None:
    """Print shares of runs in which a gain is shown and, with an effect, in which the interval is right."""
    print("| ε | probabilities | interval holds the gain | shown | mean gain | mean deviation |")
    print("|---" * 6 + "|")
    found: dict[tuple[float, bool], list[tuple[float, ...]]] = {cell: [] for cell in JUDGED}
    for seed in range(runs):
        world = VitalsWorld(effect=effect, skill=0.0, swayed=0.3, vitals=10, horizon=6, seed=seed % 20)
        stays, usual = (
            world.play(5_000, 1000 + seed),
            world.play(MANY, seed).returns.mean() if effect else 0.0,
        )
        for epsilon, logged in JUDGED:
            policy, one = judged(world, stays, epsilon, logged, seed)
            gain = world.play(MANY, seed, policy, once=True).returns.mean() - usual if effect else 0.0
            found[epsilon, logged].append((one.low <= gain <= one.high, one.shown, gain, one.deviation))
    for (epsilon, logged), rows in found.items():
        holds, shown, gain, deviation = np.mean(np.array(rows, float), axis=0)
        said = "logged" if logged else "estimated"
        print(
            f"| {epsilon:g} | {said} | {100 * holds:.1f} % | {100 * shown:.1f} % | {gain:.4f} | "
            f"{deviation:.4f} |",
            flush=True,
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("gains", "verdicts", "none"))
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--runs", type=int, default=500)
    given = parser.parse_args(argv)
    if given.what == "gains":
        print_gains(given.seeds)
    else:
        print_verdicts(given.runs, 0.07 if given.what == "verdicts" else 0.0)


if __name__ == "__main__":
    main()
