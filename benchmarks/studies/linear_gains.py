"""Are gains of linear policies shown where there are any, and only there? Made-up people, true values known.

One draw is one data set of n people of a linear world, learned from by one half and judged by the other
(``judged = true``), and the interval of its gain. Counted are: how often the gain is shown, how often the
interval holds the true gain, how often it is shown though the policy is no better, and the true gain.

    python -m benchmarks.studies.linear_gains --worlds "none better" clear --users 5000 --epsilon 1 none
    --draws 200

Worlds, all of seeded draws: ``clear`` (features in a simplex of 4, 4 steps: actions matter), ``broad`` (8
dimensions, 5 steps), ``far`` (as ``broad``, of people who hardly ever do anything but one action). In
three every action does the same, so that whatever is shown there is false: ``none better`` (8 dimensions,
half of them of the state alone), ``none better, rare`` (the same where a step pays .03), ``none better,
far`` (people hardly ever do anything but one action).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.rng import Seeded
from discreet.envs.linear_envs import random_linear_mdp
from discreet.envs.mdp.linear import LinearMDP
from discreet.envs.mdp.planning import optimal_values, policy_value
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.offline.linear_pevi import DPPEVI, PEVI, learn_linear
from discreet.mechanisms.features import Features, one_hot
from discreet.utils.markdown_table import markdown

Floats = NDArray[np.float64]
DELTA = 1e-6


@dataclass(frozen=True, eq=False)
class World:
    """A linear MDP and what people do in it, (H, S, A)."""

    mdp: LinearMDP
    behaviour: Floats


def _behaviour(actions: int, shape: tuple[int, int], spread: float, seed: int) -> Floats:
    return np.random.default_rng(seed).dirichlet(np.full(actions, spread), shape)


def better(states: int, actions: int, horizon: int, dimension: int, spread: float) -> World:
    """Actions matter."""
    mdp = random_linear_mdp(
        states=states, actions=actions, horizon=horizon, dimension=dimension, seed=11, rewards="bernoulli"
    )
    return World(mdp, _behaviour(actions, (horizon, states), spread, 12))


def none_better(spread: float, pays: float) -> World:
    """Half of the features are of the state, half of the pair; only the former do anything."""
    draw = np.random.default_rng(21)
    states, actions, horizon, half = 10, 4, 5, 4
    of_state = np.repeat(draw.dirichlet(np.full(half, 0.3), states)[:, None], actions, axis=1)
    of_pair = draw.dirichlet(np.full(half, 0.3), (states, actions))
    table = 0.5 * np.concatenate([of_state, of_pair], axis=2)
    measures = np.zeros((horizon, 2 * half, states))
    common = draw.dirichlet(np.full(states, 0.5), horizon)
    measures[:, :half] = draw.dirichlet(np.full(states, 0.3), (horizon, half))
    measures[:, half:] = common[:, None]
    weights = np.full((horizon, 2 * half), pays)
    weights[:, :half] = 2.0 * pays * draw.uniform(size=(horizon, half))
    mdp = LinearMDP(
        Features(table, l1=1.0, nonneg=True), measures, weights, reward_law="bernoulli", name="none better"
    )
    return World(mdp, _behaviour(actions, (horizon, states), spread, 22))


def paid_much(states: int, horizon: int) -> World:
    """One-hot features, nothing matters, and every pair pays .97: noise in inverses flatters every model."""
    measures = np.full((horizon, 2 * states, states), 1 / states)
    weights = np.full((horizon, 2 * states), 0.97)
    mdp = LinearMDP(one_hot(states, 2), measures, weights, reward_law="bernoulli", name="paid much")
    return World(mdp, np.full((horizon, states, 2), 0.5))


WORLDS: dict[str, Callable[[], World]] = {
    "clear": partial(better, 6, 3, 4, 4, 1.0),
    "broad": partial(better, 10, 4, 5, 8, 1.0),
    "far": partial(better, 10, 4, 5, 8, 0.05),
    "none better": partial(none_better, 1.0, 0.4),
    "none better, rare": partial(none_better, 1.0, 0.03),
    "none better, far": partial(none_better, 0.05, 0.4),
    "none better, paid much": partial(paid_much, 30, 5),
}


def row(world: World, users: int, epsilon: float | None, draws: int, seed: int) -> dict[str, Any]:
    """All draws of one n and epsilon."""
    table = world.mdp.to_tabular()
    usual = policy_value(table, world.behaviour)
    best = float(table.initial @ optimal_values(table)[0][0]) - usual
    learner: PEVI | DPPEVI = PEVI(judged=True)
    if epsilon is not None:
        learner = DPPEVI(epsilon=epsilon, delta=DELTA, judged=True)
    found = []
    for draw in range(draws):
        people = rollout_batch(table, world.behaviour, users, 7000 + seed, draw)
        learned = learn_linear(learner, world.mdp.layout, world.mdp.features, people, Seeded(seed, draw))
        gain, true = learned.gain, policy_value(table, learned.policy) - usual
        low, high, estimate = (-np.inf, np.inf, 0.0) if gain is None else (gain.low, gain.high, gain.estimate)
        found.append((true, estimate, low, high))
    true, estimate, low, high = np.array(found).T
    return {
        "users": users, "epsilon": epsilon, "draws": draws, "best": best,
        "true": float(true.mean()), "least": float(true.min()), "better": float((true > 1e-9).mean()),
        "estimate": float(estimate.mean()), "width": float(np.median(high - low)),
        "shown": float((low > 0.0).mean()), "covered": float(((low <= true) & (true <= high)).mean()),
        "too high": int((low > true).sum()), "false": int(((low > 0.0) & (true <= 1e-9)).sum()),
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """In Markdown, for the page."""
    lines: list[tuple[str, ...]] = [(
        "people", "ε", "true gain, mean (least)", "shown", "interval's width, median", "holds the truth",
        "above it", "shown, but no better",
    )]  # fmt: skip
    for one in rows:
        lines.append((
            f"{one['users']:,}",
            "none" if one["epsilon"] is None else f"{one['epsilon']:g}",
            f"{one['true']:.3f} ({one['least']:.3f})",
            f"**{100 * one['shown']:.0f} %**",
            f"{one['width']:.2f}",
            f"{100 * one['covered']:.0f} %",
            f"{one['too high']} of {one['draws']}",
            f"{one['false']} of {one['draws']}",
        ))  # fmt: skip
    return markdown(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--users", nargs="+", type=int, default=[5000, 20_000, 100_000])
    parser.add_argument("--epsilon", nargs="+", default=["1", "3", "none"])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of people and noise, from 0")
    parser.add_argument("--out", type=Path, help="a file for the rows, JSON a line")
    given = parser.parse_args(argv)
    for name in given.worlds:
        world, rows = WORLDS[name](), []
        for users in given.users:
            for epsilon in given.epsilon:
                own = None if epsilon == "none" else float(epsilon)
                rows.append(row(world, users, own, given.draws, given.seed))
                if given.out is not None:
                    with given.out.open("a") as file:
                        file.write(json.dumps({"world": name, **rows[-1]}) + "\n")
        print(f"## {name}: the best policy gains {rows[0]['best']:.3f}\n", flush=True)
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
