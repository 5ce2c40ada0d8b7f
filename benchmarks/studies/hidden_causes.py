"""How often decision points are shown where a hidden cause, and no action, makes the difference; and what the
conditions of the verdict cost where actions do help.

One draw is one release of n users of a known world. For each draw the numbers are written that a verdict
rests on: the gain and its interval, the consistency test, and both strengths of a hidden cause. ``--rules``
then counts verdicts.

    python -m benchmarks.studies.hidden_causes --worlds persistent --users 5000 20000 --draws 25 --out
    draws.jsonl

Worlds: ``persistent`` (six hand-made worlds in which a hidden severity drives treatment and outcome, no
action has an effect), ``random-strong`` and ``random-weak`` (the same, 20 seeded worlds each: 3 to 5
severities that stay or move, 2 to 4 actions; how strongly the action depends on the severity), ``steps`` (a
cause drawn anew at each step, odds 1.4 and 2.8 either way), ``bound`` (a cause at each step by which the
bound is attained, odds 1.5), ``no-cause`` (nothing helps and nothing is hidden), ``valid`` (worlds of
``benchmarks.studies.decision_points`` in which some actions help), ``valid-random`` (the same, seeded).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies.decision_points import WORLDS, Study
from benchmarks.studies.decision_points import World as Valid
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectories
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import KINDS, verdict_of
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.mechanisms.privatizers.central import Central
from discreet.utils.markdown_table import markdown

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DELTA = 1e-6
_CHUNK = 2**15


@dataclass(frozen=True)
class Confounded:
    """A world in which no action has an effect. States 0 .. k - 1 are readings; k is the good end, k + 1 the
    bad one.

    play : (users, generator) to states (n, H + 1) and actions (n, H).
    """

    readings: int
    actions: int
    horizon: int
    play: Callable[[int, np.random.Generator], tuple[Ints, Ints]]

    @property
    def question(self) -> FirstVisits:
        """What is asked of its users."""
        good, bad = self.readings, self.readings + 1
        layout = Layout(self.readings + 2, self.actions, self.horizon)
        returns = ReturnBounds(terminal=(good, bad), outcomes={good: 1.0, bad: 0.0})
        return FirstVisits(ProblemSpec(layout, stationary=True, returns=returns))


def _ended(states: Ints, last: Ints, end: Ints) -> Ints:
    """Put the end from step ``last`` on."""
    steps = np.arange(states.shape[1])
    return np.where(steps[None] >= last[:, None], end[:, None], states)


@dataclass(frozen=True)
class Sick:
    """Chances of users who are not sick, and of those who are: to be treated, of a bad reading, to die."""

    treat: tuple[float, float] = (0.2, 0.6)
    read: tuple[float, float] = (0.15, 0.7)
    dies: tuple[float, float] = (0.1, 0.6)


def two_kinds(
    n: int, draw: np.random.Generator, chances: Sick, horizon: int, rate: float | None = None
) -> tuple[Ints, Ints]:
    """Users are sick or not for ever. Episodes have a uniform length, or end at a constant rate."""
    sick = (draw.random(n) < 0.4).astype(int)
    last = draw.integers(2, horizon + 1, n) if rate is None else draw.geometric(rate, n)
    bad = draw.random(n) < np.array(chances.dies)[sick]
    states = (draw.random((n, horizon + 1)) < np.array(chances.read)[sick][:, None]).astype(int)
    actions = (draw.random((n, horizon)) >= np.array(chances.treat)[sick][:, None]).astype(int)
    return _ended(states, last, np.where(bad, 3, 2)), actions


def frail(n: int, draw: np.random.Generator) -> tuple[Ints, Ints]:
    """Half of the users are frail, are treated half as often, and come to the good end less often."""
    weak = draw.random(n) < 0.5
    actions = (draw.random((n, 6)) < np.where(weak, 0.25, 0.5)[:, None]).astype(int)
    states = draw.integers(0, 2, (n, 7))
    last = draw.geometric(0.4, n)
    good = draw.random(n) < np.where(weak, 0.4, 0.6)
    return _ended(states, last, np.where(good, 2, 3)), actions


def after_action(n: int, draw: np.random.Generator) -> tuple[Ints, Ints]:
    """The reading of a step is taken after the drug, which raises it."""
    sick = draw.random(n) < 0.4
    last = draw.integers(2, 8, n)
    bad = draw.random(n) < np.where(sick, 0.6, 0.1)
    before = draw.normal(np.where(sick, 58, 82)[:, None], 6, (n, 9))
    treated = draw.random((n, 9)) < np.where(before < 65, 0.6, 0.15)
    after = before + np.where(treated, 25, 0) + draw.normal(0, 3, (n, 9))
    states = _ended((after >= 65).astype(int), last, np.where(bad, 3, 2))
    return states, np.where(treated, 0, 1)[:, :8]


def moving(n: int, draw: np.random.Generator) -> tuple[Ints, Ints]:
    """Severity moves as a Markov chain, its reading is off by one half of the time; the treatment follows
    it.
    """
    horizon, levels = 8, 4
    x, over = draw.integers(0, levels, n), np.full(n, -1)
    states, actions = np.zeros((n, horizon + 1), int), np.zeros((n, horizon), int)
    for h in range(horizon + 1):
        read = np.clip(x + draw.choice([-1, 0, 1], n, p=[0.25, 0.5, 0.25]), 0, levels - 1)
        states[:, h] = np.where(over >= 0, over, read)
        if h == horizon:
            break
        odds = np.exp(np.stack([np.zeros(n), 0.5 * (x - 1.5), x - 1.5], axis=1))
        actions[:, h] = _chosen(odds, draw)
        u = draw.random(n)
        home, die = np.array([0.3, 0.2, 0.1, 0.05])[x], 0.02 + 0.05 * x
        end = np.where(u < home, levels, np.where(u < home + die, levels + 1, -1))
        over = np.where(over >= 0, over, end)
        x = np.clip(x + draw.choice([-1, 0, 1], n, p=[0.3, 0.5, 0.2]), 0, levels - 1)
    return states, actions


def by_step(n: int, draw: np.random.Generator, odds: float) -> tuple[Ints, Ints]:
    """A cause drawn anew at each step changes the odds of the action, and the next state."""
    horizon = 8
    at = draw.integers(0, 3, n)
    states, actions = np.zeros((n, horizon + 1), int), np.zeros((n, horizon), int)
    for h in range(horizon + 1):
        states[:, h] = at
        if h == horizon:
            break
        u = draw.random(n) < 0.5
        o = np.where(u, odds, 1.0 / odds)
        actions[:, h] = draw.random(n) < o / (1.0 + o)
        better, worse, v = 0.25 + 0.15 * u, 0.3 - 0.15 * u, draw.random(n)
        up, down = np.where(at == 0, 3, at - 1), np.where(at == 2, 4, at + 1)
        moved = np.where(v < better, up, np.where(v < better + worse, down, at))
        at = np.where(at >= 3, at, moved)
    return states, actions


def bound(n: int, draw: np.random.Generator, odds: float = 1.5) -> tuple[Ints, Ints]:
    """A cause at each step by which the bound of that strength is attained; nothing helps."""
    horizon = 8
    at = draw.integers(0, 2, n)
    states, actions = np.zeros((n, horizon + 1), int), np.zeros((n, horizon), int)
    for h in range(horizon + 1):
        states[:, h] = at
        if h == horizon:
            break
        act = draw.random(n) < 0.5
        actions[:, h] = act
        good = draw.random(n) < np.where(act, 0.6, 0.6 / odds)
        ends = draw.random(n) < 0.5
        at = np.where(at >= 2, at, np.where(ends, np.where(good, 2, 3), draw.integers(0, 2, n)))
    return states, actions


def _chosen(weights: Floats, draw: np.random.Generator) -> Ints:
    sums = np.cumsum(weights, axis=1)
    return np.asarray((draw.random(len(weights))[:, None] * sums[:, -1:] > sums).sum(axis=1))


def random_world(seed: int, strength: float) -> Confounded:
    """A seeded world: severity stays or moves, is read with noise, drives action and outcome; nothing helps.

    strength : standard deviation of the log odds of an action from one severity to the other end.
    """
    draw = np.random.default_rng([seed, 811])
    levels, actions = int(draw.integers(3, 6)), int(draw.integers(2, 5))
    horizon = int(draw.integers(6, 13))
    moves = float(draw.choice([0.0, 0.2, 0.5]))
    blur = draw.uniform(0.15, 0.6)
    centred = (np.arange(levels) - 0.5 * (levels - 1)) / (0.5 * (levels - 1))
    habit = draw.normal(0.0, 0.5, actions)[None] + strength * np.outer(
        centred, draw.normal(0.0, 1.0, actions)
    )
    ends = draw.uniform(0.15, 0.45) * np.ones(levels)
    good = np.clip(np.linspace(draw.uniform(0.7, 0.95), draw.uniform(0.1, 0.5), levels), 0.02, 0.98)

    def play(n: int, own: np.random.Generator) -> tuple[Ints, Ints]:
        x, over = own.integers(0, levels, n), np.full(n, -1)
        states, acts = np.zeros((n, horizon + 1), int), np.zeros((n, horizon), int)
        for h in range(horizon + 1):
            step = np.where(own.random(n) < blur, own.choice([-1, 1], n), 0)
            states[:, h] = np.where(over >= 0, over, np.clip(x + step, 0, levels - 1))
            if h == horizon:
                break
            acts[:, h] = _chosen(np.exp(habit[x]), own)
            done = own.random(n) < ends[x]
            end = np.where(own.random(n) < good[x], levels, levels + 1)
            over = np.where((over < 0) & done, end, over)
            walk = np.where(own.random(n) < moves, own.choice([-1, 1], n), 0)
            x = np.clip(x + walk, 0, levels - 1)
        return states, acts

    return Confounded(levels, actions, horizon, play)


def random_valid(seed: int) -> Valid:
    """A seeded world whose state suffices, and in which some actions help."""
    draw = np.random.default_rng([seed, 977])
    live, actions, horizon = int(draw.integers(4, 16)), int(draw.integers(2, 5)), int(draw.integers(8, 16))
    size, effect = live + 2, draw.uniform(0.05, 0.2)
    moves = np.zeros((size, actions, size))
    for s in range(live):
        usual = draw.dirichlet(np.full(live, 0.6))
        end, good = draw.uniform(0.1, 0.3), draw.uniform(0.2, 0.8)
        for a in range(actions):
            mine = float(np.clip(good + effect * draw.standard_normal(), 0.02, 0.98))
            moves[s, a, :live] = (1.0 - end) * (0.8 * usual + 0.2 * draw.dirichlet(np.ones(live)))
            moves[s, a, live], moves[s, a, live + 1] = end * (1.0 - mine), end * mine
    moves[-2, :, -2] = moves[-1, :, -1] = 1.0
    paid = np.zeros_like(moves)
    paid[:-2, :, -1] = 1.0
    initial = np.r_[draw.dirichlet(np.ones(live)), 0.0, 0.0]
    mdp = TabularMDP(moves, paid, initial, horizon=horizon, terminal=(live, live + 1), name=f"valid {seed}")
    behaviour = np.repeat(draw.dirichlet(np.full(actions, 3.0), size)[None], horizon, axis=0)
    return Valid(mdp, behaviour, ReturnBounds(terminal=(live, live + 1), outcomes={live + 1: 1.0}))


HEALTHY = Sick(treat=(0.6, 0.2))
PERSISTENT = {
    "sick treated more": Confounded(2, 2, 6, partial(two_kinds, chances=Sick(), horizon=6)),
    "healthy treated more": Confounded(2, 2, 6, partial(two_kinds, chances=HEALTHY, horizon=6)),
    "constant rate": Confounded(2, 2, 10, partial(two_kinds, chances=Sick(), horizon=10, rate=0.3)),
    "after the action": Confounded(2, 2, 8, after_action),
    "frail": Confounded(2, 2, 6, frail),
    "severity moves": Confounded(4, 3, 8, moving),
}  # fmt: skip


def worlds(group: str, first: int, many: int) -> dict[str, Confounded | Valid]:
    """Return the worlds of a group; first, many : seeds of random ones."""
    seeds = range(first, first + many)
    if group == "persistent":
        return dict(PERSISTENT)
    if group.startswith("random-"):
        strength = {"random-strong": 1.0, "random-weak": 0.35}[group]
        return {f"{group} {seed}": random_world(seed, strength) for seed in seeds}
    if group == "steps":
        return {
            f"steps {odds}": Confounded(3, 2, 8, partial(by_step, odds=float(np.sqrt(odds))))
            for odds in (2, 8)
        }
    if group == "bound":
        return {"bound 1.5": Confounded(2, 2, 8, bound)}
    if group == "no-cause":
        return {
            "none better": WORLDS["none better"](), "rare": WORLDS["rare"](),
            **{f"no cause {seed}": random_world(seed, 0.0) for seed in seeds},
        }  # fmt: skip
    if group == "valid":
        return {n: WORLDS[n]() for n in ("ward", "clinic", "gain 10", "cut off", "confused ward")}
    if group == "valid-random":
        return {f"valid {seed}": random_valid(seed) for seed in seeds}
    return {group: WORLDS[group]()}


@cache
def _scales(question: FirstVisits, epsilon: float) -> dict[str, float]:
    own = Central(epsilon=epsilon, delta=DELTA, noise="gaussian").stored_mechanism(question.query(), Seeded())
    return dict(zip(question.query().row_families, own.scales.tolist(), strict=True))


class Releases:
    """Releases of one world."""

    def __init__(self, name: str, world: Confounded | Valid, seed: int) -> None:
        self.name, self.world, self.seed = name, world, seed
        self.study = Study(world, seed=seed) if isinstance(world, Valid) else None
        self.question = world.question if isinstance(world, Confounded) else Study(world).question
        self._sums: dict[tuple[int, int], tuple[Floats, Floats, Floats]] = {}

    def sums(self, users: int, cohort: int) -> tuple[Floats, Floats, Floats]:
        """Return exact sums of played users."""
        if self.study is not None:
            return self.study._people(users, cohort)
        world = self.world
        assert isinstance(world, Confounded)
        if (users, cohort) not in self._sums:
            states, actions = world.play(users, np.random.default_rng([self.seed, users, cohort]))
            tally = PartialAggregate(self.question.query(), None)
            for begin in range(0, users, _CHUNK):
                part = slice(begin, begin + _CHUNK)
                people = Trajectories(states[part], actions[part], np.zeros(actions[part].shape))
                tally.add(self.question.to_records(people))
            cells, rows = tally.cells(), self.question.layout.rows
            self._sums = {(users, cohort): (cells[:rows], cells[rows:-rows].reshape(rows, -1), cells[-rows:])}
        return self._sums[users, cohort]

    def draw_release(self, users: int, epsilon: float | None, cohort: int, draw: int) -> VisitSums:
        """Return one release."""
        names = (VISITS, TRANSITIONS, CENTERED_REWARDS)
        scales = dict.fromkeys(names, 0.0) if epsilon is None else _scales(self.question, epsilon)
        noise = np.random.default_rng([self.seed, users, int(1000 * (epsilon or 0)), cohort, draw])
        visits, moves, returns = (
            table + scales[name] * noise.standard_normal(table.shape)
            for name, table in zip(names, self.sums(users, cohort), strict=True)
        )
        sizes = (scales[name] for name in names)
        return self.question.sums_of(visits, moves, returns, *sizes, people=users)

    def row(self, users: int, epsilon: float | None, cohort: int, draw: int) -> dict[str, Any]:
        """Return what a verdict rests on, of one release."""
        told = self.draw_release(users, epsilon, cohort, draw)
        path = path_of(told)
        count = path.default
        judged = verdict_of(path, count)
        gain, found, cause = judged.gain, judged.consistency, judged.cause
        return {
            "world": self.name, "users": users, "epsilon": epsilon, "cohort": cohort, "draw": draw,
            "true": self.study.gain(path, count) if self.study is not None else 0.0, "kind": judged.kind,
            "count": count, "measured": path.measured, "estimate": gain.estimate, "low": gain.low,
            "contrasts": [found.contrasts.largest, found.contrasts.squares, found.contrasts.size],
            "levels": [found.levels.largest, found.levels.squares, found.levels.size],
            "covered": judged.covered, "hinted": judged.hinted, "each": cause.each_step,
            "one": cause.one_decision, "recorded": cause.recorded,
        }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return verdicts by group of worlds, users and epsilon, in percent of draws, in Markdown."""
    head = ("worlds", "people", "ε", "draws", "interval above 0", *KINDS[2:])
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["group"], row["users"], row["epsilon"]), []).append(row)
    lines: list[tuple[str, ...]] = [head]
    for (group, users, epsilon), found in cells.items():
        shares = [sum(row["kind"] == kind for row in found) / len(found) for kind in KINDS[2:]]
        above = sum(row["count"] > 0 and row["low"] > 0.0 for row in found) / len(found)
        privacy = "none" if epsilon is None else f"{epsilon:g}"
        lines.append(
            (
                group,
                f"{users:,}",
                privacy,
                str(len(found)),
                *(f"{100 * one:.0f} %" for one in (above, *shares)),
            )
        )
    return markdown(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--worlds", nargs="+", default=["persistent"])
    parser.add_argument("--users", nargs="+", type=int, default=[5_000, 20_000])
    parser.add_argument("--epsilon", nargs="+", default=["1", "3"])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--cohorts", type=int, help="groups of users, each released several times (--draws)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first random world")
    parser.add_argument("--many", type=int, default=20, help="random worlds of a group")
    parser.add_argument("--seed", type=int, default=0, help="of users and noise, from 0")
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
                            cohort = draw * (given.cohorts or given.draws) // given.draws
                            found.append({"group": group, **releases.row(users, own, cohort, draw)})
                            file.write(json.dumps(found[-1]) + "\n")
                            file.flush()
    print(table(found))


if __name__ == "__main__":
    main()
