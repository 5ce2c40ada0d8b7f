"""Evaluations of given policies and of plans: coverage of two estimators, and claims where nothing helps.

    python -m benchmarks.policy_evaluation [--worlds valid-random random-strong] [--users 10000 50000]
    [--epsilon 1 3 10] [--many 10] [--first 0] [--draws 4] [--seed 31]

One draw is one release of first visits of a world of ``benchmarks.studies.hidden_causes``, one rule that was
drawn without looking at it, and the plan of a world model of its training half. The rule's gain is estimated
by ``learn --compare`` (``policy_comparison.judge``) and by ``evaluate_policies`` from the same release; the
plan's by ``evaluate_policies`` from the held-out half. In worlds with a hidden cause (``random-strong``,
``random-weak``, ``persistent``) nothing helps, so every "shown" is false.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.studies.decision_points import World
from benchmarks.studies.hidden_causes import Releases, worlds
from benchmarks.studies.judging import drawn_rule
from benchmarks.world_model import release_of
from discreet.envs.mdp.planning import policy_value
from discreet.learners.ope.consistency_test import consistency_of
from discreet.learners.ope.count_estimates import ValueEstimate
from discreet.learners.ope.policy_comparison import judge, policy_of
from discreet.learners.ope.policy_gains import evaluate_policies, policy_steps
from discreet.learners.ope.policy_verdict import policy_verdict
from discreet.pipeline.world_model import world_model
from discreet.utils.markdown_table import markdown

_NOT = 1e-9


def true_gain(world: World, policy: np.ndarray) -> float:
    """True gain of (H, S) actions or (H, S, A) probabilities, -1 for as before, over what users did."""
    table = world.behaviour.copy()
    labels = np.arange(world.mdp.states) if world.labels is None else world.labels
    own = np.eye(table.shape[2])[policy] if policy.ndim == 2 else policy
    acts = (policy != -1) if policy.ndim == 2 else (policy != -1).any(axis=-1)
    table = np.where(acts[:, labels][..., None], own[:, labels], table)
    return policy_value(world.mdp, table) - policy_value(world.mdp, world.behaviour)


def row(releases: Releases, users: int, epsilon: float | None, draw: int) -> dict[str, Any]:
    """What is counted of one release."""
    told = releases.draw_release(users, epsilon, draw, draw)
    question, release, world = releases.question, release_of(told), releases.world
    spec, test = question.spec, consistency_of(told)
    table, named = drawn_rule(question, np.random.default_rng([releases.seed, users, draw, 78]))
    rule = np.repeat(np.where(named[:, None], table, -1.0)[None], spec.horizon, axis=0)
    plan = np.asarray(world_model(release, spec).plan())
    old = judge(told, policy_of(question, table, named)).gain
    new = evaluate_policies(release, {"rule": rule}, spec, made="outside").gains["rule"]
    planned = evaluate_policies(release, {"plan": plan}, spec).gains["plan"]
    found: dict[str, Any] = {"compared": old is not None, "known": new.known, "changes": (plan >= 0).any()}
    truth = {"rule": 0.0, "plan": 0.0}
    if isinstance(world, World):
        truth = {"rule": true_gain(world, rule), "plan": true_gain(world, plan)}
    if old is not None:
        found |= {
            "old held": old.low - _NOT <= truth["rule"] <= old.high + _NOT,
            "old width": old.high - old.low,
        }
    for name, policy, gain in (("rule", rule, new), ("plan", plan, planned)):
        found |= {
            f"{name} held": gain.low - _NOT <= truth[name] <= gain.high + _NOT,
            f"{name} width": gain.high - gain.low,
        }
        shown, above = claimed(told, policy_steps(name, policy, spec), gain, test)
        found |= {
            f"{name} shown": shown,
            f"{name} above": above,
            f"{name} false": shown and truth[name] <= _NOT,
        }
    return found


def claimed(told: Any, table: Any, gain: ValueEstimate, test: Any) -> tuple[bool, bool]:
    """Whether the verdict is "shown", and whether the interval alone is above 0."""
    above = gain.known and gain.low > 0.0
    return above and policy_verdict(told, table, gain, test).shown, above


def line(group: str, users: int, epsilon: str, rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """One line of the table."""

    def count(name: str) -> str:
        own = [one[name] for one in rows if name in one]
        return f"{sum(map(bool, own))} of {len(own)}"

    def mean(name: str) -> str:
        own = [one[name] for one in rows if name in one]
        return f"{np.mean(own):.3f}" if own else ""

    return (
        group, f"{users:,}", epsilon, count("old held"), mean("old width"), count("rule held"),
        mean("rule width"), count("plan held"), mean("plan width"), count("rule above"),
        count("rule shown"), count("plan above"), count("plan shown"),
        str(sum(one["rule false"] + one["plan false"] for one in rows)),
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", nargs="+", default=["valid-random", "random-strong"])
    parser.add_argument("--users", nargs="+", type=int, default=[10_000, 50_000])
    parser.add_argument("--epsilon", nargs="+", default=["1", "3", "10"])
    parser.add_argument("--many", type=int, default=10, help="random worlds of a group")
    parser.add_argument("--first", type=int, default=0, help="seed of the first random world")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--seed", type=int, default=31, help="of users, noise and rules, from 0")
    given = parser.parse_args(argv)
    lines: list[tuple[str, ...]] = [(
        "worlds", "users", "ε", "--compare: rule held", "width", "evaluate: rule held", "width", "plan held",
        "width", "rule: above 0", "shown", "plan: above 0", "shown", "false",
    )]  # fmt: skip
    for group in given.worlds:
        every = [
            Releases(name, world, given.seed)
            for name, world in worlds(group, given.first, given.many).items()
        ]
        for users in given.users:
            for epsilon in given.epsilon:
                own = None if epsilon == "none" else float(epsilon)
                rows = [row(one, users, own, draw) for one in every for draw in range(given.draws)]
                lines.append(line(group, users, epsilon, rows))
                print(*lines[-1], sep=" | ", flush=True)
    print(f"\n{given.many} worlds, {given.draws} draws, seed {given.seed}\n\n{markdown(lines)}")


if __name__ == "__main__":
    main()
