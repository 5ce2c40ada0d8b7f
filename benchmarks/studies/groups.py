"""Groups of users: how often valid environments are rejected, how often intervals hold the truth, and what
the consistency test sees where the group is the hidden cause.

    python -m benchmarks.studies.groups --valid --users 1000 5000 20000 50000 --epsilon 1 3 10 none --draws 40
    --groups 3 python -m benchmarks.studies.groups --hidden frail "severity moves" --users 5000 --epsilon 1
    --draws 20

``--valid`` draws releases of seeded environments whose state suffices (``benchmarks.studies.hidden_causes``);
each group begins in states of its own. ``--hidden`` draws releases of environments in which a hidden severity
drives action and outcome, and no action helps: without groups, with the severity as the group, and with the
group of half of the users drawn at random.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.decision_points import World
from benchmarks.studies.hidden_causes import PERSISTENT, _scales, random_valid
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.trajectories import Trajectories
from discreet.learners.ope.consistency_test import consistency_of
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.group_gains import groups_of
from discreet.learners.ope.transition_gains import TransitionPath, path_of
from discreet.learners.ope.verdict import verdict_of
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.interfaces import ProblemSpec
from discreet.utils.markdown_table import markdown

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ENVIRONMENTS = 20  # seeded ones, taken in turn


def play(world: World, begins: Floats, users: int, draw: np.random.Generator) -> tuple[Ints, Trajectories]:
    """Return groups and trajectories. begins : (G, S) where each group begins; group g has share g + 1."""
    many = len(begins)
    group = draw.choice(many, users, p=np.arange(1, many + 1) / (many * (many + 1) / 2))
    at, mdp = np.zeros(users, int), world.mdp
    for g in range(many):
        own = group == g
        at[own] = draw.choice(mdp.states, own.sum(), p=begins[g])
    usual, moves = np.cumsum(world.behaviour[0], axis=1), np.cumsum(mdp.transitions[0], axis=2)
    states, actions = np.zeros((users, mdp.horizon + 1), int), np.zeros((users, mdp.horizon), int)
    for h in range(mdp.horizon):
        states[:, h] = at
        actions[:, h] = _drawn(usual[at], draw)
        at = _drawn(moves[at, actions[:, h]], draw)
    states[:, -1] = at
    return group, Trajectories(states, actions, np.zeros(actions.shape))


def _drawn(sums: Floats, draw: np.random.Generator) -> Ints:
    return np.asarray((draw.random(len(sums))[:, None] * sums[:, -1:] > sums).sum(axis=1))


def released(
    question: FirstVisits, group: Ints, people: Trajectories, epsilon: float | None, seed: int
) -> VisitSums:
    """Return one release, with Gaussian noise of ``epsilon``, or exact (None)."""
    tally = PartialAggregate(question.query(), None)
    tally.add(question.to_records(people, group if question.groups > 1 else None))
    cells, rows = tally.cells(), question.layout.rows
    names = (VISITS, TRANSITIONS, CENTERED_REWARDS)
    scales = dict.fromkeys(names, 0.0) if epsilon is None else _scales(question, epsilon)
    draw = np.random.default_rng([seed, 5])
    exact = (cells[:rows], cells[rows:-rows].reshape(rows, -1), cells[-rows:])
    visits, moves, returns = (
        table + scales[name] * draw.standard_normal(table.shape)
        for name, table in zip(names, exact, strict=True)
    )
    return question.sums_of(visits, moves, returns, *(scales[name] for name in names), people=len(people))


def worth(world: World, begin: Floats, policy: Floats) -> float:
    """Return the value of a policy (H, S, A) for users who begin at ``begin`` (S,)."""
    arrival = np.zeros(world.mdp.states)
    for state, paid in (world.returns.outcomes or {}).items():
        arrival[state] = paid
    value, ends = np.zeros(world.mdp.states), list(world.returns.terminal)
    for h in range(world.mdp.horizon - 1, -1, -1):
        q = world.mdp.transitions[0] @ (arrival + value)
        q[ends] = 0.0
        value = (policy[h] * q).sum(axis=1)
    return float(begin @ value)


def valid(users: int, epsilon: float | None, draws: int, groups: int) -> tuple[str, ...]:
    """Return one line: rejections, root mean square z of groups, and how often all gains are held."""
    rejected, held, judged = 0, 0, 0
    apart: list[float] = []
    for i in range(draws):
        world = random_valid(i % ENVIRONMENTS)
        mdp, draw = world.mdp, np.random.default_rng([i % ENVIRONMENTS, 3])
        live = mdp.states - 2
        begins = np.array([np.r_[draw.dirichlet(np.ones(live)), 0.0, 0.0] for _ in range(groups)])
        group, people = play(world, begins, users, np.random.default_rng([i, 9]))
        question = FirstVisits(ProblemSpec(mdp.layout, stationary=True, returns=world.returns, groups=groups))
        path = path_of(released(question, group, people, epsilon, i))
        found = consistency_of(path.sums)
        rejected += found.contrasts.rejects or found.levels.rejects
        results = groups_of(path, path.default, found)
        apart += [one.apart for one in results if not np.isnan(one.apart)]
        if not path.default or not isinstance(path, TransitionPath):
            continue
        policy, changed = world.behaviour.copy(), path.changed(path.default)[:-1]
        policy[:, changed] = np.eye(mdp.actions)[path.action[:-1][changed]]
        judged += 1
        held += all(
            one.gain_low <= worth(world, begins[one.group], policy)
            - worth(world, begins[one.group], world.behaviour) <= one.gain_high
            for one in results if not np.isnan(one.gain)
        )  # fmt: skip
    size = f"{np.sqrt(np.mean(np.square(apart))):.2f}" if apart else ""
    privacy = "none" if epsilon is None else f"{epsilon:g}"
    return f"{users:,}", privacy, str(groups), f"{rejected} of {draws}", size, f"{held} of {judged}"


def hidden(name: str, users: int, epsilon: float | None, draws: int) -> list[tuple[str, ...]]:
    """Return lines of one environment: levels that reject, and false verdicts, by what the group is."""
    rejected, shown = np.zeros(3, int), np.zeros(3, int)
    world = PERSISTENT[name]
    for i in range(draws):
        draw = np.random.default_rng([i, users, 7])
        severity = _severity(name, users, np.random.default_rng([i, users, 7]))
        states, actions = world.play(users, draw)
        half = np.random.default_rng(i).random(users) < 0.5
        mixed = np.where(half, severity, np.random.default_rng(i + 99).integers(0, 2, users))
        spec = world.question.spec
        for kind, group in enumerate((severity, severity, mixed)):
            question = FirstVisits(
                ProblemSpec(spec.layout, stationary=True, returns=spec.returns, groups=1 if kind == 0 else 2)
            )
            people = Trajectories(states, actions, np.zeros(actions.shape))
            path = path_of(released(question, group, people, epsilon, i))
            judged = verdict_of(path, path.default)
            rejected[kind] += judged.consistency.levels.rejects
            shown[kind] += judged.shown
    privacy = "none" if epsilon is None else f"{epsilon:g}"
    kinds = ("none", "the hidden severity", "the same, half of the users at random")
    return [
        (name, f"{users:,}", privacy, kinds[k], f"{rejected[k]} of {draws}", f"{shown[k]} of {draws}")
        for k in range(3)
    ]


def _severity(name: str, users: int, draw: np.random.Generator) -> Ints:
    """Return (n,) the hidden severity with which users begin: the first numbers that the play draws."""
    if name == "severity moves":
        return np.asarray(draw.integers(0, 4, users) >= 2).astype(np.int64)
    return (draw.random(users) < (0.5 if name == "frail" else 0.4)).astype(np.int64)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--valid", action="store_true")
    parser.add_argument(
        "--hidden", nargs="+", choices=("frail", "severity moves", "sick treated more"), default=[]
    )
    parser.add_argument("--users", nargs="+", type=int, default=[5_000])
    parser.add_argument("--epsilon", nargs="+", default=["1"])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--groups", type=int, default=3)
    given = parser.parse_args(argv)
    budgets = [None if one == "none" else float(one) for one in given.epsilon]
    if given.valid:
        head = (
            "people",
            "ε",
            "groups",
            "rejected",
            "root mean square z of groups",
            "gains of all groups held",
        )
        lines = [valid(n, e, given.draws, given.groups) for n in given.users for e in budgets]
        print(markdown([head, *lines]))
    rows = [
        row
        for name in given.hidden
        for n in given.users
        for e in budgets
        for row in hidden(name, n, e, given.draws)
    ]
    if rows:
        print(markdown([("environment", "people", "ε", "group", "levels reject", "falsely shown"), *rows]))


if __name__ == "__main__":
    main()
