"""Are gains shown where there are any, and only there? Decision points on made-up people, true values known.

One draw is one release of n people of a known world under a behaviour policy, the default policy of
``DecisionPoints``, the interval of its gain and its verdict. Counted are: how often the interval lies above
0, how often the whole verdict is ``shown`` (``verdict_of`` with the default strength of a hidden cause, the
consistency test included), how often the interval holds the true gain, how often it lies above 0 though the
policy is no better, and the true gain. The people of a world and an n are played a few times, each with fresh
noise for several draws.

    python -m benchmarks.studies.decision_points --worlds icu --users 100000 1000000 --epsilon 1 10 none
    --draws 40

Worlds: ``icu`` (ICU-Sepsis treated by its expert; constants of the planner were chosen on other cohorts of
it), and, seen by no choice: ``ward`` (four severities, dead, home; four treatments; 12 steps), ``confused
ward`` (its severity is seen through a noisy label, so that the state is not all that matters), ``clinic``
(30 states, 5 actions, 15 steps, seeded), ``cut off`` and ``paid by step`` (8 states, 3 actions, 6 steps, and
hardly an episode that is over by then). In two more every action does the same, so that whatever is shown
there is false: ``none better`` (the ward), ``rare`` (60 states; 3 in 100 come to the good end).
``gain 2``, ``gain 5`` and ``gain 10`` are the forecast's made-up world of 30 states, 4 actions and 20 steps
in which the best policy gains so many points.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectories
from discreet.data.schema import Schema
from discreet.envs.icu_sepsis import DEATH, END, SURVIVAL, expert_policy, icu_sepsis
from discreet.envs.mdp.planning import policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.ope.deviation_gains import Path as Points
from discreet.learners.ope.first_visit_query import FirstVisits, VisitSums
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import verdict_of, would_show
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
from discreet.mechanisms.interfaces import ProblemSpec, ReturnBounds
from discreet.mechanisms.policy_rows import policy_rows
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.pipeline.power_analysis import PublicMDP, synthetic_mdp
from discreet.utils.markdown_table import markdown
from discreet.utils.random_streams_kernels import ROLE_NOISE, generator_at, run_key

Floats = NDArray[np.float64]
DELTA = 1e-8
_CHUNK = 2**15


@dataclass(frozen=True, eq=False)
class World:
    """An MDP, what people did in it, its outcomes; labels : (S,) what is seen of each state, None: itself."""

    mdp: TabularMDP
    behaviour: Floats
    returns: ReturnBounds
    labels: NDArray[np.int64] | None = None


def icu() -> World:
    """ICU-Sepsis over 20 steps."""
    mdp = icu_sepsis()
    behaviour = expert_policy(horizon=mdp.horizon, inadmissible="renormalised")
    return World(mdp, behaviour, ReturnBounds(terminal=(DEATH, SURVIVAL, END), outcomes={SURVIVAL: 1.0}))


def ward(effect: float = 0.12) -> World:
    """Severities 0 .. 3, dead, home. The right treatment of severity s is s; each day people get better or
    worse.
    """
    moves = np.zeros((6, 4, 6))
    for s in range(4):
        for a in range(4):
            help_, fit = effect * (1.5 - abs(s - a)) / 1.5, 0.30
            better, worse, die = fit + help_, 0.28 - 0.5 * help_, 0.005 + 0.03 * s - 0.1 * help_ * (s > 1)
            row = moves[s, a]
            row[5 if s == 0 else s - 1] += 0.6 * better if s == 0 else better
            row[min(s + 1, 3)] += worse
            row[4] += max(die, 0.002)
            row[s] += 1.0 - row.sum()
    moves[4, :, 4] = moves[5, :, 5] = 1.0
    rewards = np.zeros((6, 4, 6))
    rewards[:4, :, 5] = 1.0
    mdp = TabularMDP(
        moves, rewards, np.array([0.1, 0.4, 0.3, 0.2, 0.0, 0.0]), horizon=12, terminal=(4, 5), name="ward"
    )
    habit = np.array(
        [[0.5, 0.3, 0.15, 0.05], [0.35, 0.3, 0.25, 0.1], [0.3, 0.3, 0.25, 0.15], [0.3, 0.3, 0.2, 0.2]]
    )
    rows = np.concatenate([habit, np.full((2, 4), 0.25)])
    return World(mdp, np.repeat(rows[None], 12, axis=0), ReturnBounds(terminal=(4, 5), outcomes={5: 1.0}))


def none_better() -> World:
    """The ward, where no treatment does anything."""
    return ward(effect=0.0)


def confused_ward() -> World:
    """The ward with severities that are seen through a label that is wrong for a fifth of the people for
    ever.
    """
    plain = ward()
    moves, rewards = plain.mdp.transitions[0], plain.mdp.successor_rewards
    if rewards is None:
        raise ValueError("ward: must have rewards on arrival")
    size = 4 * 2 + 2  # severity x whether the label is one too high
    big, paid = np.zeros((size, 4, size)), np.zeros((size, 4, size))
    for wrong in range(2):
        own = [2 * s + wrong for s in range(4)] + [8, 9]
        for s in range(4):
            big[own[s]][:, own] = moves[s]
            paid[own[s]][:, own] = rewards[0, s]
    big[8, :, 8] = big[9, :, 9] = 1.0
    initial = np.zeros(size)
    for s in range(4):
        initial[2 * s], initial[2 * s + 1] = 0.8 * plain.mdp.initial[s], 0.2 * plain.mdp.initial[s]
    mdp = TabularMDP(big, paid, initial, horizon=12, terminal=(8, 9), name="confused ward")
    labels = np.array([min(s + wrong, 3) for s in range(4) for wrong in range(2)] + [4, 5])
    behaviour = plain.behaviour[:, labels]
    return World(mdp, behaviour, ReturnBounds(terminal=(4, 5), outcomes={5: 1.0}), labels)


def clinic() -> World:
    """A seeded world of 28 states with an end that is good or bad."""
    draw = np.random.default_rng(4242)
    size, actions = 30, 5
    moves = np.zeros((size, actions, size))
    for s in range(size - 2):
        near = draw.choice(size - 2, 5, replace=False)
        for a in range(actions):
            end = 0.12 + 0.06 * draw.random()
            good = float(np.clip(0.35 + 0.5 * s / size + 0.12 * draw.standard_normal(), 0.03, 0.97))
            moves[s, a, near] += (1.0 - end) * draw.dirichlet(np.ones(5))
            moves[s, a, size - 2] += end * (1.0 - good)
            moves[s, a, size - 1] += end * good
    moves[-2, :, -2] = moves[-1, :, -1] = 1.0
    rewards = np.zeros_like(moves)
    rewards[:-2, :, -1] = 1.0
    initial = np.concatenate([np.full(size - 2, 1.0 / (size - 2)), [0.0, 0.0]])
    mdp = TabularMDP(moves, rewards, initial, horizon=15, terminal=(size - 2, size - 1), name="clinic")
    behaviour = np.repeat(draw.dirichlet(np.full(actions, 2.0), size)[None], 15, axis=0)
    return World(mdp, behaviour, ReturnBounds(terminal=(size - 2, size - 1), outcomes={size - 1: 1.0}))


def rare() -> World:
    """60 states, 4 actions that all do the same; of 100 people 3 come to the good end."""
    draw = np.random.default_rng(515)
    size, actions, chance = 62, 4, 0.03
    moves = np.zeros((size, actions, size))
    for s in range(size - 2):
        row = np.zeros(size)
        np.add.at(row, draw.choice(size - 2, 6, replace=False), 0.8 * draw.dirichlet(np.ones(6)))
        row[size - 2], row[size - 1] = 0.2 * (1.0 - chance), 0.2 * chance
        moves[s] = row
    moves[-2:] = 0.0
    moves[-2, :, -2] = moves[-1, :, -1] = 1.0
    rewards = np.zeros_like(moves)
    rewards[:-2, :, -1] = 1.0
    initial = np.concatenate([np.full(size - 2, 1.0 / (size - 2)), [0.0, 0.0]])
    mdp = TabularMDP(moves, rewards, initial, horizon=20, terminal=(size - 2, size - 1), name="rare")
    behaviour = np.repeat(draw.dirichlet(np.full(actions, 2.0), size)[None], 20, axis=0)
    return World(mdp, behaviour, ReturnBounds(terminal=(size - 2, size - 1), outcomes={size - 1: 1.0}))


def cut_off(by_step: bool, seed: int) -> World:
    """8 states, 3 actions and 6 steps, of which most episodes see the last one.

    by_step : each step pays, instead of a good end.
    """
    draw = np.random.default_rng(seed)
    size, actions, horizon = 10, 3, 6
    moves, paid = np.zeros((size, actions, size)), np.zeros((size, actions, size))
    for s in range(size - 2):
        for a in range(actions):
            end, good = 0.02 * draw.uniform(0.5, 1.5), draw.uniform(0.1, 0.9)
            moves[s, a, :-2] = (1.0 - end) * draw.dirichlet(np.full(size - 2, 0.5))
            moves[s, a, -2:] = end * (1.0 - good), end * good
    moves[-2, :, -2] = moves[-1, :, -1] = 1.0
    initial = np.r_[draw.dirichlet(np.ones(size - 2)), 0.0, 0.0]
    behaviour = np.repeat(draw.dirichlet(np.full(actions, 3.0), size)[None], horizon, axis=0)
    ends, outcomes = (size - 2, size - 1), {size - 1: 1.0}
    if by_step:
        paid[:-2] = draw.uniform(0.0, 1.0, (size - 2, actions, 1))
    else:
        paid[:-2, :, -1] = 1.0
    mdp = TabularMDP(moves, paid, initial, horizon=horizon, terminal=ends, name="cut off")
    return World(mdp, behaviour, ReturnBounds(terminal=ends, outcomes=None if by_step else outcomes))


def made_up(gain: float) -> World:
    """What `discreet power --target-gain` simulates, of 30 live states."""
    schema = Schema(
        "made up", "person", Layout(32, 4, 20), stationary=True, terminal=(30, 31), outcomes={31: 1.0}
    )
    world = synthetic_mdp(schema, gain, seed=77)
    return World(world.mdp, world.behaviour, world.returns)


WORLDS: dict[str, Callable[[], World]] = {
    "icu": icu,
    "ward": ward,
    "confused ward": confused_ward,
    "clinic": clinic,
    "none better": none_better,
    "rare": rare,
    "cut off": partial(cut_off, False, 0),
    "paid by step": partial(cut_off, True, 2),
    "gain 2": partial(made_up, 0.02),
    "gain 5": partial(made_up, 0.05),
    "gain 10": partial(made_up, 0.1),
}


class Study:
    """One world: exact sums of people, releases of them, and true gains."""

    def __init__(self, world: World, simulated: bool = False, seed: int = 0) -> None:
        if simulated and world.labels is not None:
            raise ValueError("simulated: needs a world whose states are seen as they are")
        self.world, self.seed = world, seed
        self.public = PublicMDP(world.mdp, world.behaviour, world.returns) if simulated else None
        mdp = world.mdp
        seen = mdp.layout
        if world.labels is not None:
            seen = Layout(int(world.labels.max()) + 1, mdp.actions, mdp.horizon)
        self.question = FirstVisits(ProblemSpec(seen, stationary=True, returns=world.returns))
        self.rows = policy_rows(mdp.layout, world.behaviour)
        self.usual = policy_value(mdp, self.rows)
        self._people = lru_cache(32)(self._counted)

    def _counted(self, users: int, cohort: int) -> tuple[Floats, Floats, Floats]:
        tally = PartialAggregate(self.question.query(), None)
        for begin in range(0, users, _CHUNK):
            size = min(_CHUNK, users - begin)
            played = rollout_batch(self.world.mdp, self.rows, size, 9000 + cohort, self.seed, begin)
            if self.world.labels is not None:
                played = Trajectories(self.world.labels[played.states], played.actions, played.rewards)
            tally.add(self.question.to_records(played))
        cells, rows = tally.cells(), self.question.layout.rows
        return cells[:rows], cells[rows:-rows].reshape(rows, -1), cells[-rows:]

    def released(self, users: int, epsilon: float | None, cohort: int, draw: int) -> VisitSums:
        """One release."""
        query = self.question.query()
        privatizer: Central | NoPrivacy = NoPrivacy()
        scales = dict.fromkeys(query.row_families, 0.0)
        if epsilon is not None:
            privatizer = Central(epsilon=epsilon, delta=DELTA, noise="gaussian")
            own = privatizer.stored_mechanism(query, Seeded()).scales
            scales = dict(zip(query.row_families, own.tolist(), strict=True))
        noise = generator_at(
            run_key(cohort + 2**32 * self.seed, draw), ROLE_NOISE, users, int(1000 * (epsilon or 0))
        )
        if self.public is not None:
            return self.public.draw_release(users, scales, noise)
        names = (VISITS, TRANSITIONS, CENTERED_REWARDS)
        visits, moves, returns = (
            table + scales[name] * noise.standard_normal(table.shape) if scales[name] else table.copy()
            for name, table in zip(names, self._people(users, cohort), strict=True)
        )
        sizes = (scales[name] for name in names)
        return self.question.sums_of(visits, moves, returns, *sizes, people=users)

    def gain(self, path: Points, count: int) -> float:
        """The true gain of a point of the path."""
        labels = np.arange(self.world.mdp.states) if self.world.labels is None else self.world.labels
        policy = self.world.behaviour.copy()
        changed = path.changed(count)[labels]
        policy[:, changed] = np.eye(policy.shape[2])[path.action[labels[changed]]]
        return policy_value(self.world.mdp, policy) - self.usual

    def row(self, users: int, epsilon: float | None, draws: int, cohorts: int) -> dict[str, Any]:
        """All draws of one n and epsilon."""
        found = []
        cohorts = draws if epsilon is None else cohorts  # without noise the same people give the same release
        for draw in range(draws):
            path = path_of(self.released(users, epsilon, draw % cohorts, draw))
            count = path.default
            gain, true = path.gain(count), self.gain(path, count)
            # a whole verdict takes a second: only where all of it but the consistency test says so
            shown = would_show(path, count) and verdict_of(path, count).shown
            found.append((count, true, gain.estimate, gain.low, gain.high, shown))
        changes, true, estimate, low, high, verdicts = np.array(found, np.float64).T
        return {
            "users": users, "epsilon": epsilon, "draws": draws,
            "changed": float(changes.mean()), "true": float(true.mean()), "least": float(true.min()),
            "better": float((true > 1e-9).mean()), "estimate": float(estimate.mean()),
            "width": float((high - low).mean()), "above": float((low > 0.0).mean()),
            "shown": float(verdicts.mean()), "falsely shown": int((verdicts[true <= 1e-9]).sum()),
            "covered": float(((low <= true) & (true <= high)).mean()), "too high": int((low > true).sum()),
            "false": int(((low > 0.0) & (true <= 1e-9)).sum()),
        }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """In Markdown, for the page."""
    lines: list[tuple[str, ...]] = [(
        "people", "ε", "states changed", "true gain, mean (least)", "better", "interval above 0", "shown",
        "interval's width", "holds the truth", "above it", "above 0, but no better", "shown, but no better",
    )]  # fmt: skip
    for row in rows:
        lines.append((
            f"{row['users']:,}",
            "none" if row["epsilon"] is None else f"{row['epsilon']:g}",
            f"{row['changed']:.0f}",
            f"{100 * row['true']:.2f} ({100 * row['least']:.2f})",
            f"{100 * row['better']:.0f} %",
            f"{100 * row['above']:.0f} %",
            f"**{100 * row['shown']:.0f} %**",
            f"{100 * row['width']:.1f}",
            f"{100 * row['covered']:.0f} %",
            f"{row['too high']} of {row['draws']}",
            f"{row['false']} of {row['draws']}",
            f"{row['falsely shown']} of {row['draws']}",
        ))  # fmt: skip
    return markdown(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--users", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--epsilon", nargs="+", default=["1", "10", "none"])
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--cohorts", type=int, default=8)
    parser.add_argument(
        "--simulated", action="store_true", help="draw releases as the forecast does: for millions of people"
    )
    parser.add_argument("--seed", type=int, default=0, help="of people and noise, from 0")
    parser.add_argument("--out", type=Path, help="a file for the rows, JSON a line")
    given = parser.parse_args(argv)
    for name in given.worlds:
        study, rows = Study(WORLDS[name](), given.simulated, given.seed), []
        print(f"## {name}: value of what people do {study.usual:.3f}\n", flush=True)
        for users in given.users:
            for epsilon in given.epsilon:
                own = None if epsilon == "none" else float(epsilon)
                rows.append(study.row(users, own, given.draws, given.cohorts))
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(json.dumps({"world": name, **rows[-1]}) + "\n")
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
