"""Days and regret of a served study whose users answer late, by the rule that closes batches.

    python -m benchmarks.serving [--seeds 40] [--first-seed 5000] [--users 20000]

The study is ``docs/examples/service/study.toml`` (RiverSwim, S 6, A 2, H 20, epsilon 1, delta 1e-6), with the
real session, learner and rule, and a simulated clock: as many users arrive as find a place, a user answers
after an exponential time of mean 4 hours, 2 % never answer, and a reservation ends after 24 hours. Rows with
the same seed have the same noise. ``behind`` is the mean number of releases that were made between a user's
place and their answer.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from discreet.core.releases import Message, Plan
from discreet.core.rng import Seeded
from discreet.envs.mdp import planning
from discreet.envs.rollouts.rollout import rollout
from discreet.mechanisms.interfaces import followed_release
from discreet.service.resolved_batches import ResolvedBatches
from discreet.service.study_config import Study, read_study
from discreet.utils.markdown_table import markdown

STUDY = Path(__file__).parents[1] / "docs" / "examples" / "service" / "study.toml"
RULES: dict[str, dict[str, Any]] = {
    "all, first batch 1": {"close": "all", "first": 1},
    "all, first batch 100": {"close": "all", "first": 100},
    "resolved, 100 or .1": {"close": "resolved", "first": 100, "share": 0.1},
    "resolved, 100 or .2": {"close": "resolved", "first": 100, "share": 0.2},
    "resolved, 100 or .1, 10 % never answer": {"close": "resolved", "first": 100, "share": 0.1, "never": 0.1},
}


def study_of(seed: int, users: int, first: int) -> Study:
    """The example study with seeded noise and a first batch of ``first`` users."""
    study = read_study(STUDY).for_dry_run(users)
    learner = replace(study.learner, replan_first=None if first == 1 else first)
    return replace(study, learner=learner, randomness=Seeded(seed))


class Run:
    """One study under one rule."""

    def __init__(
        self, seed: int, users: int, close: str, first: int, share: float = 0.1, never: float = 0.02
    ) -> None:
        self.study = study_of(seed, users, first)
        self.close, self.never = close, never
        self.rng = np.random.default_rng([seed, 77])
        self.rule = ResolvedBatches(tuple(map(int, self.study.times)), users, 100, share)
        world = self.study.world
        self.best = float(world.initial @ planning.optimal_values(world)[0][0])
        self.values: dict[bytes, float] = {}
        self.session = self.study.start()
        keys = self.study.randomness.keys  # type: ignore[union-attr]
        self.state, self.keys = self.study.learner.begin(self.study.spec, keys.ties), keys.environment
        self.resolved = self.given = self.behind = 0
        self.regret = 0.0
        self.turn = 0
        self._plan(())

    def _plan(self, followed: Sequence[tuple[Any, int]]) -> None:
        release = self.session.release()
        if self.close == "resolved":
            release = followed_release(release, followed)
        self.plans: list[Plan] = []
        while not self.plans or not self.plans[-1].last:
            plan, self.state = self.study.learner.plan(self.state, release)
            self.plans.append(plan)
            if release.users + sum(one.users for one in self.plans) >= self.study.users:
                break
        self.counts = [0] * len(self.plans)

    def _room(self) -> bool:
        if self.close == "all":
            return sum(self.counts) < sum(one.users for one in self.plans)
        open_now = self.given - self.resolved
        return self.given < self.study.users and open_now < self.rule.most_open(self.resolved)

    def _next(self) -> int:
        """The plan of the next place: filled one after the other, or in proportion."""
        sizes = [one.users for one in self.plans]
        if self.close == "all":
            return next(i for i, size in enumerate(sizes) if self.counts[i] < size)
        n, total = sum(self.counts) + 1, sum(sizes)
        return max(range(len(sizes)), key=lambda i: (n * sizes[i] - total * self.counts[i], -i))

    def _value(self, policy: Any) -> float:
        key = policy.tobytes()
        if key not in self.values:
            self.values[key] = planning.policy_value(self.study.world, policy)
        return self.values[key]

    def play(self) -> dict[str, float]:
        """Play the study until its last user is resolved."""
        heap: list[tuple[float, int, bool, Any, int]] = []
        batch: list[tuple[int, bool, Any]] = []
        now = 0.0
        while self.resolved < self.study.users:
            while self._room():
                at = self._next()
                self.counts[at] += 1
                late = np.inf if self.rng.random() < self.never else self.rng.exponential(4.0)
                policy = self.plans[at].policy
                heapq.heappush(heap, (now + min(late, 24.0), self.given, late <= 24.0, policy, self.turn))
                self.given += 1
                self.regret += self.best - self._value(policy)
            now, user, came, policy, turn = heapq.heappop(heap)
            self.resolved += 1
            self.behind += self.turn - turn
            batch.append((user, came, policy))
            whole = len(batch) == self.rule.size(self.turn)
            if whole and self.resolved < self.study.users:
                self._close(sorted(batch, key=lambda one: one[0]))
                batch = []
        self.session.close()
        users = self.study.users
        return {"days": now / 24, "releases": self.turn, "behind": self.behind / users, "regret": self.regret}

    def _close(self, batch: list[tuple[int, bool, Any]]) -> None:
        """Sum a batch, policy by policy, and plan from its release."""
        parts: dict[bytes, list[tuple[int, bool, Any]]] = {}
        for one in batch:
            parts.setdefault(one[2].tobytes(), []).append(one)
        for at, part in enumerate(parts.values(), 1):
            self.session.begin(Plan(part[0][2], len(part), last=at == len(parts)))
            number = self.session.open_plan.number  # type: ignore[attr-defined]
            for user, came, policy in part:
                if came:
                    record = rollout(self.study.world, policy, self.keys, user)
                    self.session.submit(Message(number, trajectory=record))
                else:
                    self.session.absent(1)
        self.turn += 1
        self._plan([(part[0][2], len(part)) for part in parts.values()])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=5000)
    parser.add_argument("--users", type=int, default=20_000)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    found = {name: [Run(seed, given.users, **rule).play() for seed in seeds] for name, rule in RULES.items()}
    base = np.array([one["regret"] for one in found["all, first batch 100"]])
    rows = []
    for name, runs in found.items():
        means = {key: float(np.mean([one[key] for one in runs])) for key in runs[0]}
        regret = np.array([one["regret"] for one in runs])
        ratio = regret.sum() / base.sum()
        parts = regret - ratio * base  # delta method for a ratio of means of paired runs
        error = float(np.std(parts, ddof=1) / np.sqrt(len(parts)) / base.mean()) if len(parts) > 1 else 0.0
        rows.append(
            [
                name, f"{means['days']:.1f}", f"{means['releases']:.0f}", f"{means['behind']:.2f}",
                f"{means['regret']:,.0f}", f"{ratio:.2f} ± {error:.2f}",
            ]
        )  # fmt: skip
    heads = ["rule", "days", "releases", "behind", "regret", "regret / all, first batch 100"]
    print(markdown([heads, *rows]))


if __name__ == "__main__":
    main()
