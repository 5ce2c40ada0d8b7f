"""Plans in a model of the release against decision points: true gains, gains shown, and false ones.

One draw is one release of first visits with new users. Every learner gets the same release, and its default
policy is judged by its own report: true gain, whether the gain is shown (``would_show``: interval, hidden
cause and coverage; the consistency test is left out), and whether the interval holds the true gain.

    python -m benchmarks.studies.model_plans [--worlds NAMES] [--users 5000 25000] [--epsilon 1 3 10]
    [--penalty 0 0.5 1] [--draws 40] [--seed 41]

The column ``world-model`` is the learner with its default options, which can fall back to decision points.
``plan, λ`` is the plan without this choice.

The worlds were written for this page, and no constant of the model was chosen on them. ``ladder``: twelve
levels, and a dose that is too high or too low for most of them. ``detour``: the better way begins with a step
that does not pay by itself. ``grid``: 5 x 5 fields with slippery steps, two ends. ``many actions``: ten
states, eight actions. ``sparse``: 60 states, of which a fifth has an action that matters. ``long``: eight
levels and 40 steps. ``near best``: what people do is nearly the best. ``gain 5``: the forecast's synthetic
world. In ``no effect`` and ``no effect, rare``, every action does the same, and all gains that are shown are
false.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.studies.decision_points import DELTA, WORLDS, Floats, Study, World
from benchmarks.world_model import release_of
from discreet.envs.mdp.planning import optimal_values
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.ope.deviation_gains import Path
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import would_show
from discreet.mechanisms.interfaces import ReturnBounds
from discreet.pipeline.model_planner import ModelPlanner
from discreet.utils.markdown_table import markdown


def _world(name: str, moves: Floats, start: Floats, horizon: int, behaviour: Floats) -> World:
    """The last two states are the bad end and the good end; the good end pays 1."""
    size = len(moves)
    moves[-2:] = 0.0
    moves[-2, :, -2] = moves[-1, :, -1] = 1.0
    paid = np.zeros_like(moves)
    paid[:-2, :, -1] = 1.0
    ends = (size - 2, size - 1)
    mdp = TabularMDP(moves, paid, np.r_[start, 0.0, 0.0], horizon=horizon, terminal=ends, name=name)
    return World(
        mdp,
        np.repeat(behaviour[None], horizon, axis=0),
        ReturnBounds(terminal=ends, outcomes={size - 1: 1.0}),
    )


def _habits(draw: np.random.Generator, size: int, actions: int, spread: float = 2.0) -> Floats:
    return draw.dirichlet(np.full(actions, spread), size)


def ladder() -> World:
    draw, levels, actions = np.random.default_rng(1201), 12, 4
    moves = np.zeros((levels + 2, actions, levels + 2))
    for s in range(levels):
        right = draw.uniform(0.0, 3.0)
        for a in range(actions):
            off = abs(a - right)
            up, down, die = 0.4 - 0.08 * off, 0.2 + 0.05 * off, 0.01 + 0.012 * max(a - right, 0.0)
            moves[s, a, s + 1 if s < levels - 1 else levels + 1] += up
            moves[s, a, max(s - 1, 0)] += down
            moves[s, a, levels] += die
            moves[s, a, s] += 1.0 - moves[s, a].sum()
    return _world("ladder", moves, np.full(levels, 1 / levels), 18, _habits(draw, levels + 2, actions))


def detour() -> World:
    """Action 1 leads from a room to its waiting room, from which action 2 alone leads to a good end."""
    draw, rooms = np.random.default_rng(1202), 8
    size = 2 * rooms + 2
    moves = np.zeros((size, 3, size))
    for s in range(rooms):
        for a in range(3):
            end, good = 0.15, 0.5 + 0.02 * draw.standard_normal()
            wait = 0.6 if a == 1 else 0.1
            near = draw.choice(rooms, 3, replace=False)
            moves[s, a, near] += (1.0 - wait - end) * draw.dirichlet(np.ones(3))
            moves[s, a, rooms + s] += wait
            moves[s, a, -2:] += end * (1.0 - good), end * good
            there, good = rooms + s, 0.85 if a == 2 else 0.42
            moves[there, a, -2:] += 0.5 * (1.0 - good), 0.5 * good
            moves[there, a, s] += 0.5
    start = np.r_[np.full(rooms, 1 / rooms), np.zeros(rooms)]
    return _world("detour", moves, start, 12, _habits(draw, size, 3, 3.0))


def grid() -> World:
    draw, side = np.random.default_rng(1203), 5
    fields = side * side
    moves = np.zeros((fields + 2, 4, fields + 2))
    ends = {4: 1, 12: 0, 20: 0, 24: 1}
    for s in range(fields):
        row, column = divmod(s, side)
        for a in range(4):
            for turn, chance in ((0, 0.7), (1, 0.1), (3, 0.1)):
                dr, dc = ((-1, 0), (0, 1), (1, 0), (0, -1))[(a + turn) % 4]
                to = min(max(row + dr, 0), side - 1) * side + min(max(column + dc, 0), side - 1)
                moves[s, a, fields + ends[to] if to in ends else to] += chance
            moves[s, a, s] += 0.1
    start = np.array([0.0 if s in ends else 1.0 for s in range(fields)])
    return _world("grid", moves, start / start.sum(), 25, _habits(draw, fields + 2, 4, 2.0))


def random_world(
    name: str, seed: int, states: int, actions: int, horizon: int, effect: float, matters: float = 1.0,
    spread: float = 2.0, greedy: float = 0.0, level: float = 0.45,
) -> World:  # fmt: skip
    """A seeded world; an action changes where people go and how they end, in a share of the states.

    greedy : share of the decisions that are the best ones already.
    """
    draw = np.random.default_rng(seed)
    moves = np.zeros((states + 2, actions, states + 2))
    for s in range(states):
        near = draw.choice(states, min(5, states), replace=False)
        law, end = draw.dirichlet(np.ones(near.size)), draw.uniform(0.05, 0.2)
        good, counts = level + 0.5 * (s / states - 0.5) * (effect > 0.0), draw.random() < matters
        for a in range(actions):
            own = law * np.exp(4.0 * effect * counts * draw.standard_normal(near.size))
            moves[s, a, near] += (1.0 - end) * own / own.sum()
            chance = float(np.clip(good + effect * counts * draw.standard_normal(), 0.002, 0.998))
            moves[s, a, -2:] += end * (1.0 - chance), end * chance
    habits = _habits(draw, states + 2, actions, spread)
    found = _world(name, moves, np.full(states, 1 / states), horizon, habits)
    if not greedy:
        return found
    value = optimal_values(found.mdp)[0]
    q = moves @ np.r_[value[1][:-1], 1.0 + value[1][-1]]
    best = np.eye(actions)[q.argmax(axis=1)]
    return _world(name, moves, np.full(states, 1 / states), horizon, greedy * best + (1.0 - greedy) * habits)


NEW: dict[str, Callable[[], World]] = {
    "ladder": ladder,
    "detour": detour,
    "grid": grid,
    "many actions": lambda: random_world("many actions", 1204, 10, 8, 12, 0.08),
    "sparse": lambda: random_world("sparse", 1205, 60, 4, 15, 0.15, matters=0.2),
    "long": lambda: random_world("long", 1206, 8, 3, 40, 0.06),
    "near best": lambda: random_world("near best", 1207, 20, 3, 15, 0.1, greedy=0.6),
    "gain 5": WORLDS["gain 5"],
}
FALSE: dict[str, Callable[[], World]] = {
    "no effect": lambda: random_world("no effect", 1208, 15, 4, 15, 0.0),
    "no effect, rare": lambda: random_world("no effect, rare", 1209, 40, 3, 20, 0.0, level=0.03),
}


def rows(
    name: str,
    users: Sequence[int],
    epsilons: Sequence[str],
    penalties: Sequence[float],
    draws: int,
    seed: int,
) -> list[tuple[str, ...]]:
    """One row for each n and epsilon."""
    study, found = Study((NEW | FALSE)[name](), seed=seed), []
    best = study.world.mdp.initial @ optimal_values(study.world.mdp)[0][0] - study.usual
    for n in users:
        for epsilon in epsilons:
            seen = []
            for draw in range(draws):
                told = study.released(n, None if epsilon == "none" else float(epsilon), draw, draw)
                release = release_of(told)
                paths: list[Path] = [path_of(told)]
                learners = [ModelPlanner(), *(ModelPlanner(caution=x, fall_back=False) for x in penalties)]
                paths += [learner.path(release, study.question) for learner in learners]
                seen.append([_judged(study, path) for path in paths])
            table = np.array(seen, float)
            mean, error = table.mean(axis=0), table[:, :, 0].std(axis=0) / np.sqrt(draws)
            less = (table[:, 1:, 0] - table[:, :1, 0]).std(axis=0) / np.sqrt(draws)
            gains = [f"{100 * x:.1f}" for x in mean[:, 0]]
            errors = [f"± {100 * error[0]:.1f}", *(f"(± {100 * x:.1f})" for x in less)]
            ends = [f"{100 * one[1]:.0f} % / {round(draws * one[2])}" for one in mean]
            cells = [f"{x} {y} / {z}" for x, y, z in zip(gains, errors, ends, strict=True)]
            found.append((f"{name} ({100 * best:.1f})", f"{n:,}", epsilon, *cells))
            print(*found[-1], sep=" | ", flush=True)
    return found


def _judged(study: Study, path: Path) -> tuple[float, bool, bool]:
    count = path.default
    gain, true = path.gain(count), study.gain(path, count)
    return true, would_show(path, count), gain.low - 1e-9 <= true <= gain.high + 1e-9


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--worlds", nargs="+", choices=[*NEW, *FALSE], default=list(NEW))
    parser.add_argument("--users", nargs="+", type=int, default=[5000, 25_000])
    parser.add_argument("--epsilon", nargs="+", default=["1", "3", "10"])
    parser.add_argument("--penalty", nargs="*", type=float, default=[0.0, 0.5, 1.0])
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--seed", type=int, default=41, help="of users and noise, from 0")
    given = parser.parse_args(argv)
    titles = ("environment (best)", "users", "ε", "decision points", "world-model")
    lines = [(*titles, *(f"plan, λ = {x:g}" for x in given.penalty))]
    for name in given.worlds:
        lines += rows(name, given.users, given.epsilon, given.penalty, given.draws, given.seed)
    print(f"\nδ = {DELTA:g}, {given.draws} draws, seed {given.seed}\n\n{markdown(lines)}")


if __name__ == "__main__":
    main()
