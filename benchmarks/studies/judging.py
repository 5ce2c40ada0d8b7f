"""Do intervals of brought rules, and of what a learned policy gains over them, hold the truth? Known worlds.

One draw is one release of n users of a world of ``benchmarks.studies.hidden_causes`` and one rule that was
drawn without looking at it: in every state, or in half of them, one action or a mixture. Counted are: how
often the interval of the rule's gain over what people did holds the truth, the same of "learned less your
rule", how often the latter lies above the truth, and above 0 though the learned policy is no better; how
often the report says "better than your rule", and how often falsely: the policy is no better, and the cause
that is hidden in the world is not stronger than the factor that the sentence allows. Where causes are hidden
nothing helps, and the intervals cannot hold the truth. Of values in changed states (``policy.csv``): their
error and how often their interval holds the truth.

    python -m benchmarks.studies.judging --worlds valid-random no-cause bound --users 5000 25000 --out
    rows.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.decision_points import World
from benchmarks.studies.hidden_causes import Releases, worlds
from discreet.envs.mdp.planning import policy_value
from discreet.learners.ope.deviation_gains import Path as Points
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.policy_comparison import compare, policy_of, state_values
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import verdict_of
from discreet.utils.markdown_table import markdown

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_NOT = 1e-9
_STRENGTHS = {"bound 1.5": 1.5, "steps 2": math.sqrt(2.0), "steps 8": math.sqrt(8.0)}


def drawn_rule(question: FirstVisits, draw: np.random.Generator) -> tuple[Floats, Bools]:
    """(S, A) probabilities by seen states, and (S,) the named ones."""
    index = question.spec.layout.row_index
    states, actions = index.shape
    named = draw.random(states) < draw.choice([0.5, 1.0])
    named[0] = True
    table = draw.gamma(draw.choice([0.1, 1.0]), size=(states, actions)) + 1e-9
    table = np.where(index >= 0, table, 0.0)
    if draw.random() < 0.5:
        table = np.eye(actions)[table.argmax(axis=1)]
    return table / table.sum(axis=1, keepdims=True), named


def true_gains(world: World, path: Points, count: int, table: Floats, named: Bools) -> tuple[float, float]:
    """What the rule truly gains over what people did, and the learned policy over the rule."""
    labels = np.arange(world.mdp.states) if world.labels is None else world.labels
    rule, learned = world.behaviour.copy(), world.behaviour.copy()
    rule[:, named[labels]] = table[labels][named[labels]]
    changed = path.changed(count)[labels]
    learned[:, changed] = np.eye(rule.shape[2])[path.action[labels[changed]]]
    usual, ours, theirs = (policy_value(world.mdp, policy) for policy in (world.behaviour, learned, rule))
    return theirs - usual, ours - theirs


def true_values(world: World, path: Points, count: int) -> Floats:
    """(S,) what is earned from first visits to changed states on, NaN elsewhere."""
    policy, changed = world.behaviour[0].copy(), path.changed(count)[:-1]
    policy[changed] = np.eye(policy.shape[1])[path.action[:-1][changed]]
    moves = np.einsum("sa,sat->st", policy, world.mdp.transitions[0])
    moves[list(world.returns.terminal)] = 0.0
    paid = np.zeros(len(moves))
    for state, reward in (world.returns.outcomes or {}).items():
        paid[state] = reward
    left = [np.zeros(len(moves))]
    for _ in range(world.mdp.horizon):
        left.append(moves @ (paid + left[-1]))
    found = np.full(len(moves), np.nan)
    for s in np.flatnonzero(changed):
        fresh, earned, visits = world.mdp.initial.copy(), 0.0, 0.0
        for worth in left[:0:-1]:
            earned, visits = earned + fresh[s] * worth[s], visits + fresh[s]
            fresh[s] = 0.0
            fresh = fresh @ moves
        found[s] = earned / visits
    return found


def row(releases: Releases, users: int, epsilon: float | None, draw: int) -> dict[str, Any]:
    """What is counted of one release and rule."""
    told = releases.draw_release(users, epsilon, draw, draw)
    path = path_of(told)
    count, world = path.default, releases.world
    table, named = drawn_rule(releases.question, np.random.default_rng([releases.seed, users, draw, 77]))
    policy = policy_of(releases.question, table, named)
    verdict = verdict_of(path, count)
    one = compare(path, count, verdict, policy, path.level)
    gain, less = (0.0, 0.0)
    known = isinstance(world, World)
    found = {"world": releases.name, "users": users, "epsilon": epsilon, "draw": draw}
    if isinstance(world, World):
        gain, less = true_gains(world, path, count, table, named)
        if world.labels is None:
            values = state_values(path, count)
            held = values.deviation[:-1] <= 0.05
            left = true_values(world, path, count)[held]
            inside = (values.low[:-1][held] <= left) & (left <= values.high[:-1][held])
            error = float(np.abs(values.value[:-1][held] - left).max(initial=0.0))
            found |= {"states": int(held.sum()), "states held": int(inside.sum()), "states error": error}
    cause = _STRENGTHS.get(releases.name, 1.0 if known else math.inf)
    for name, interval, truth in (("rule", one.rule.gain, gain), ("less", one.difference, less)):
        if interval is None:
            continue
        found |= {
            f"{name} held": bool(interval.low <= truth + _NOT and truth - _NOT <= interval.high),
            f"{name} width": interval.high - interval.low, f"{name} error": abs(interval.estimate - truth),
            f"{name} too high": bool(interval.low > truth + _NOT), f"{name} above": bool(interval.low > 0.0),
        }  # fmt: skip
    # a sentence whose condition does not hold in the world says nothing: causes that last are always allowed
    allowed = one.each_step if releases.name in _STRENGTHS or known else 0.0
    return found | {
        "better": bool(less > _NOT), "verdict": verdict.kind, "measured": path.measured, "said": one.shown,
        "kind": one.kind, "factor": one.each_step, "count": count,
        "false": bool(one.shown and less <= _NOT and (cause <= allowed or math.isinf(cause))),
    }  # fmt: skip


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """By group of worlds, users and epsilon, in Markdown."""
    head = (
        "worlds", "people", "ε", "draws", "rule: told", "holds the truth", "width", "learned less rule: told",
        "holds the truth", "width", "above the truth", "above 0, but no better", "said", "said falsely",
        "states' values: hold", "largest error",
    )  # fmt: skip
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in rows:
        cells.setdefault((one["group"], one["users"], one["epsilon"]), []).append(one)
    lines: list[tuple[str, ...]] = [head]
    for (group, users, epsilon), found in cells.items():

        def mean(name: str, found: Sequence[dict[str, Any]] = found, form: str = ".0%") -> str:
            values = [one[name] for one in found if name in one]
            return format(float(np.mean(values)), form) if values else ""

        told = sum("less held" in one for one in found)
        states = sum(one.get("states", 0) for one in found)
        lines.append((
            group, f"{users:,}", "none" if epsilon is None else f"{epsilon:g}", str(len(found)),
            f"{sum('rule held' in one for one in found) / len(found):.0%}", mean("rule held"),
            mean("rule width", form=".3f"), f"{told / len(found):.0%}", mean("less held"),
            mean("less width", form=".3f"), str(sum(one.get("less too high", False) for one in found)),
            str(sum(one.get("less above", False) and not one["better"] for one in found)),
            str(sum(one["said"] for one in found)), str(sum(one["false"] for one in found)),
            f"{sum(one.get('states held', 0) for one in found) / states:.1%}" if states else "",
            mean("states error", form=".3f"),
        ))  # fmt: skip
    return markdown(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--worlds", nargs="+", default=["valid-random", "no-cause", "bound"])
    parser.add_argument("--users", nargs="+", type=int, default=[5_000, 25_000])
    parser.add_argument("--epsilon", nargs="+", default=["1", "3"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first random world")
    parser.add_argument("--many", type=int, default=20, help="random worlds of a group")
    parser.add_argument("--seed", type=int, default=0, help="of users, noise and rules, from 0")
    parser.add_argument("--out", type=Path, required=True, help="a file for the draws, JSON a line")
    given = parser.parse_args(argv)
    found = []
    with given.out.open("a") as file:
        for group in given.worlds:
            for name, world in worlds(group, given.first, given.many).items():
                releases = Releases(name, world, given.seed)
                for users in given.users:
                    for draw in range(given.draws):
                        for epsilon in given.epsilon:
                            own = None if epsilon == "none" else float(epsilon)
                            found.append({"group": group, **row(releases, users, own, draw)})
                            file.write(json.dumps(found[-1]) + "\n")
                            file.flush()
    print(summary(found))


if __name__ == "__main__":
    main()
