"""Do intervals of brought rules, and of what a learned policy gains over them, hold the truth? Known worlds.

One draw is one release of n users of a world of ``studies.decision_points`` and one rule that was drawn
without looking at it: in every state, or in half of them, one action or a mixture. Counted are: how often the
interval of the rule's gain over what people did holds the truth, the same of "learned less your rule", how
often the latter lies above the truth, how often it lies above 0 though the learned policy is no better, and
how often the sentence "better than your rule" was written at all, and falsely.

    python -m studies.judging --worlds ward "none better" --users 5000 25000 --epsilon 1 3 --draws 100
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.mdp.planning import value
from discreet.offline.deviations import Path as Points
from discreet.offline.judging import compare, policy_of
from discreet.offline.transitions import path_of
from discreet.offline.verdict import verdict_of
from discreet.tables import markdown
from studies.decision_points import WORLDS, Study

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def drawn_rule(study: Study, draw: np.random.Generator) -> tuple[Floats, Bools]:
    """(S, A) probabilities by seen states, and (S,) the named ones."""
    index = study.question.spec.layout.row_index
    states, actions = index.shape
    named = draw.random(states) < draw.choice([0.5, 1.0])
    sharp = draw.choice([0.02, 1.0])
    table = draw.gamma(sharp, size=(states, actions)) + 1e-12
    table = np.where(index >= 0, table, 0.0)
    if draw.random() < 0.5:
        best = table.argmax(axis=1)
        table = np.eye(actions)[best]
    return table / table.sum(axis=1, keepdims=True), named


def true_values(study: Study, path: Points, count: int, table: Floats, named: Bools) -> tuple[float, float]:
    """What the rule truly gains over what people did, and the learned policy over the rule."""
    mdp, behaviour = study.world.mdp, study.world.behaviour
    labels = np.arange(mdp.states) if study.world.labels is None else study.world.labels
    rule = behaviour.copy()
    rule[:, named[labels]] = table[labels][named[labels]]
    gain = value(mdp, rule) - study.usual
    return gain, study.gain(path, count) - gain


def row(study: Study, users: int, epsilon: float | None, which: range, cohorts: int) -> dict[str, Any]:
    """All draws of one n and epsilon."""
    found = []
    for i in which:
        draw = np.random.default_rng([study.seed, i, 77])
        told = study.released(users, epsilon, i % cohorts, i)
        path = path_of(told)
        count = path.default
        table, named = drawn_rule(study, draw)
        policy = policy_of(study.question, table, named)
        verdict = verdict_of(path, count)
        one = compare(path, count, verdict, policy, path.level)
        gain, less = true_values(study, path, count, table, named)
        rule, difference = one.rule.gain, one.difference
        none = (np.nan,) * 3
        found.append((
            gain, less, *(none if rule is None else (rule.estimate, rule.low, rule.high)),
            *(none if difference is None else (difference.estimate, difference.low, difference.high)),
            one.shown, verdict.shown,
        ))  # fmt: skip
    gain, less, estimate, low, high, _, least, most, shown, verdict_shown = np.array(found, float).T
    told_rule, told_both = np.isfinite(low), np.isfinite(least)

    def share(what: Any, among: Any) -> float:
        return float(what[among].mean()) if among.any() else np.nan

    slack = 1e-9
    return {
        "users": users, "epsilon": epsilon, "draws": len(which), "told": float(told_rule.mean()),
        "rule covered": share((low <= gain + slack) & (gain - slack <= high), told_rule),
        "rule width": share(high - low, told_rule), "rule error": share(np.abs(estimate - gain), told_rule),
        "compared": float(told_both.mean()),
        "covered": share((least <= less + slack) & (less - slack <= most), told_both),
        "width": share(most - least, told_both),
        "too high": int((least[told_both] > less[told_both] + slack).sum()),
        "above 0": int((least[told_both] > 0.0).sum()),
        "false": int(((least > 0.0) & (less <= slack))[told_both].sum()),
        "said": int(shown.sum()), "said falsely": int((shown.astype(bool) & (less <= slack)).sum()),
        "verdict": float(verdict_shown.mean()),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=["ward", "none better"])
    parser.add_argument("--users", nargs="+", type=int, default=[5_000, 25_000])
    parser.add_argument("--epsilon", nargs="+", default=["1", "3"])
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cohorts", type=int, default=8)
    parser.add_argument("--simulated", action="store_true", help="draw releases as the forecast does")
    parser.add_argument("--seed", type=int, default=0, help="of people, noise and rules, from 0")
    parser.add_argument("--out", type=Path, help="a file for the rows, JSON a line")
    given = parser.parse_args(argv)
    for name in given.worlds:
        study, rows = Study(WORLDS[name](), given.simulated, given.seed), []
        for users in given.users:
            for epsilon in given.epsilon:
                own = None if epsilon == "none" else float(epsilon)
                which = range(given.first, given.first + given.draws)
                rows.append(row(study, users, own, which, given.cohorts))
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(json.dumps({"world": name, **rows[-1]}) + "\n")
        print(f"## {name}\n", flush=True)
        cells = [tuple(map(str, rows[0]))]
        cells += [tuple(f"{x:.3g}" if isinstance(x, float) else str(x) for x in one.values()) for one in rows]
        print(markdown(cells), flush=True)


if __name__ == "__main__":
    main()
