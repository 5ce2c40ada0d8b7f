"""Regret and late regret of the default learner, and ratios to a version that was measured before.

    python -m benchmarks.late_tail --out now.json [--against before.json] [--suite reporting]
        [--users 20000 200000 2000000] [--epsilon 1] [--runs 8] [--only NAME]

Run this command in a checkout of another version with ``--out before.json`` first. Shares are of the uniform
policy's regret; late shares are those of the last quarter of the users. Budget (epsilon, 1e-6), or none with
``--epsilon 0``. Simulation by batches. The mean of ratios over environments is geometric. Cells that the file
holds are not run again. Rules were chosen on the suite ``training`` only (benchmarks/late_tail.md).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import discreet as dr
from benchmarks import hard_worlds, prior
from discreet.experiments.simulate import Setup


def change(arrive: float, serve: float) -> dict[int, float]:
    """Return the distribution of the change of one queue in one step."""
    up, down = arrive * (1.0 - serve), (1.0 - arrive) * serve
    return {1: up, 0: 1.0 - up - down, -1: down}


def two_queues(seed: int, most: int, horizon: int) -> dr.TabularMDP:
    """Return two queues that share one server; the reward depends on the state only."""
    draw, n = np.random.default_rng([seed, 21]), most + 1
    table, rewards = np.zeros((n * n, 3, n * n)), np.zeros((n * n, 3))
    arrive, speed = draw.uniform(0.2, 0.4, 2), draw.uniform(0.6, 0.9)
    for i, j in np.ndindex(n, n):
        rewards[i * n + j] = 1.0 - (i + j) / (2 * most)
        for a, (p, q) in enumerate(((speed, 0.0), (0.0, speed), (speed / 2, speed / 2))):
            for d, one in change(arrive[0], p).items():
                for e, other in change(arrive[1], q).items():
                    x, y = min(most, max(0, i + d)), min(most, max(0, j + e))
                    table[i * n + j, a, x * n + y] += one * other
    return dr.TabularMDP(table, rewards, n * n // 2, horizon=horizon, name="two queues")


def gambler(seed: int, most: int, horizon: int) -> dr.TabularMDP:
    """Return a gambler who chooses stakes; only the largest fortune has a reward."""
    draw, n, stakes = np.random.default_rng([seed, 22]), most + 1, 5
    win, table, rewards = draw.uniform(0.35, 0.55), np.zeros((n, stakes, n)), np.zeros((n, stakes))
    for s, a in np.ndindex(n, stakes):
        bet = min(a + 1, s, most - s)
        table[s, a, s + bet] += win
        table[s, a, s - bet] += 1.0 - win
    rewards[most] = 1.0
    first = int(draw.integers(3, most - 3))
    return dr.TabularMDP(table, rewards, first, horizon=horizon, reward_law="bernoulli", name="gambler")


def wage(seed: int, states: int, horizon: int, low: float) -> dr.TabularMDP:
    """Return a chain that has the reward ``low`` at every step, and 1 at its end."""
    draw, actions = np.random.default_rng([seed, 23]), 3
    table, rewards = np.zeros((states, actions, states)), np.full((states, actions), low)
    for s in range(states - 1):
        table[s, :, max(0, s - 1)] = 1.0
        right = int(draw.integers(actions))
        table[s, right] = 0.0
        table[s, right, s + 1] = 1.0
    table[-1, :, -1], rewards[-1] = 1.0, 1.0
    return dr.TabularMDP(table, rewards, 0, horizon=horizon, reward_law="bernoulli", name="wage")


def haystack(seed: int, states: int, actions: int, horizon: int) -> dr.TabularMDP:
    """Return an environment in which one pair has a reward, and actions do not change the state."""
    draw, rewards = np.random.default_rng([seed, 24]), np.zeros((states, actions))
    rewards[draw.integers(states), draw.integers(actions)] = 0.8
    table, start = np.full((states, actions, states), 1.0 / states), np.full(states, 1.0 / states)
    return dr.TabularMDP(table, rewards, start, horizon=horizon, reward_law="bernoulli", name="haystack")


def training() -> dict[str, dr.TabularMDP]:
    """Return the environments on which rules were chosen."""
    return {
        **prior.training(),
        "two queues": two_queues(1, 4, 15),
        "gambler": gambler(1, 12, 12),
        "wage .5": wage(1, 6, 14, 0.5),
        "wage .8": wage(2, 9, 25, 0.8),
        "haystack": haystack(1, 8, 12, 6),
        "bandit": dr.make("bandit", contexts=1, actions=15, seed=931),
        "gamble": dr.make("gamble", seed=932),
        "lock": dr.make("combination-lock", states=9, depth=6, actions=3, seed=933),
        "doors": hard_worlds.doors(7, 5, 0.8, 0.5),
        "corridor": hard_worlds.corridor(8, 14, 0.25),
        "turn": hard_worlds.turn(3, 3, 10),
        "window": hard_worlds.window(5, 12),
        "varying": dr.make("random", states=7, seed=934, rewarding=14, stationary=False, varies="rows"),
        "graph 9x2": hard_worlds.graph(9, 2, 10, 935, 1),
        "rewarding": dr.make("random", states=8, actions=3, horizon=15, rewarding=24, seed=936),
        "30 states": dr.make(
            "random", states=30, actions=3, successors=3, rewarding=10, horizon=12, seed=937
        ),
        "episodic": dr.make("random", states=9, terminal=2, rewarding=5, seed=938),
    }


def reporting() -> dict[str, dr.TabularMDP]:
    """Return the environments of the published figures."""
    return {
        **prior.reporting(),
        "two queues": two_queues(51, 3, 20),
        "gambler": gambler(51, 16, 16),
        "wage .6": wage(51, 7, 16, 0.6),
        "wage .9": wage(52, 8, 20, 0.9),
        "haystack": haystack(51, 10, 20, 8),
        "bandit": dr.make("bandit", contexts=1, actions=30, seed=5931),
        "gamble": dr.make("gamble", seed=5932),
        "lock": dr.make("combination-lock", states=8, depth=5, actions=4, seed=5933),
        "window": hard_worlds.window(6, 15),
        "varying": dr.make("random", states=6, seed=5934, rewarding=12, stationary=False, varies="rows"),
        "graph 10x2": hard_worlds.graph(10, 2, 12, 5935, 1),
        "rewarding": dr.make("random", states=10, actions=4, horizon=12, rewarding=40, seed=5936),
        "40 states": dr.make(
            "random", states=40, actions=3, successors=3, rewarding=12, horizon=15, seed=5937
        ),
        "episodic": dr.make("random", states=10, terminal=2, rewarding=6, seed=5938),
    }


def cliff() -> dict[str, dr.TabularMDP]:
    """Return Gymnasium's CliffWalking with 30 steps."""
    return {"CliffWalking": dr.from_gymnasium("CliffWalking-v1", horizon=30)}


SUITES = {"training": (training, 515), "reporting": (reporting, 6161), "cliff": (cliff, 6161)}
Cell = dict[str, list[float]]


def measured(mdp: dr.TabularMDP, epsilon: float, users: int, seed: int, runs: int) -> Cell:
    """Return the share and the late share of each run."""
    privatizer: Any = dr.Central(epsilon=epsilon, delta=1e-6) if epsilon > 0.0 else dr.NoPrivacy()
    setup = Setup(mdp, dr.NoiseAwareUCBVI(), privatizer, users, "batch")
    lost = users * (setup.optimal_value - setup.uniform_value)
    cell: Cell = {"share": [], "late": []}
    for i in range(runs):
        run = setup.run(seed, i)
        start = np.interp(0.75 * users, run.episodes, run.regret)
        cell["share"].append(float(run.regret[-1] / lost))
        cell["late"].append(float(4.0 * (run.regret[-1] - start) / lost))
    return cell


def lower_limit(now: list[float], before: list[float]) -> float:
    """Return the lower 95 % limit of the ratio of means, by a normal approximation of its logarithm."""
    both = [np.asarray(now), np.asarray(before)]
    error = float(np.sqrt(sum(x.var(ddof=1) / len(x) / x.mean() ** 2 for x in both)))
    return float(both[0].mean() / both[1].mean() * np.exp(-1.645 * error))


def compare(now: dict[str, Cell], before: dict[str, Cell]) -> str:
    """Return one line: mean ratio, worst ratio, and the median late share of both versions."""
    names = [name for name in now if name in before]
    ratios = {name: float(np.mean(now[name]["share"]) / np.mean(before[name]["share"])) for name in names}
    logs, worst = np.log(list(ratios.values())), max(ratios, key=ratios.__getitem__)
    error = logs.std(ddof=1) / len(logs) ** 0.5 if len(logs) > 1 else 0.0
    late = [100 * float(np.median([np.mean(x[name]["late"]) for name in names])) for x in (now, before)]
    least = lower_limit(now[worst]["share"], before[worst]["share"])
    return (
        f"{len(names)} environments: mean ratio {np.exp(logs.mean()):.3f} +- {error:.3f}, worst "
        f"{ratios[worst]:.2f} ({worst}, at least {least:.2f}), late {late[0]:.3f} %, was {late[1]:.3f}"
    )


def main() -> None:
    """Print the shares of each environment, and a line of ratios for each number of users."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--suite", default="reporting", choices=list(SUITES))
    parser.add_argument("--users", nargs="+", type=float, default=[2e4, 2e5, 2e6])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--only", default="", help="environments whose name begins so")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file, continued if it exists")
    parser.add_argument("--against", type=Path, help="such a file of another version")
    given = parser.parse_args()
    suite, seed = SUITES[given.suite]
    held: dict[str, Cell] = json.loads(given.out.read_text()) if given.out.exists() else {}
    before: dict[str, Cell] = json.loads(given.against.read_text()) if given.against else {}
    for users in map(int, given.users):
        cells, earlier = {}, {}
        for name, mdp in suite().items():
            if not name.startswith(given.only):
                continue
            key = f"{given.suite} {name} {given.epsilon:g} {users} {seed} {given.runs}"
            if key not in held:
                held[key] = measured(mdp, given.epsilon, users, seed, given.runs)
                given.out.write_text(json.dumps(held))
            cells[name] = held[key]
            share, late = (np.array(held[key][part]) for part in ("share", "late"))
            line = f"{name:20} {users:.0e} share {share.mean():.2%} late {late.mean():.4%}"
            line += f" (worst run {late.max():.2%})"
            if key in before:
                earlier[name] = before[key]
                line += f" ratio {share.mean() / np.mean(before[key]['share']):.2f}"
            print(line, flush=True)
        if earlier:
            print(f"{users:.0e}, {compare(cells, earlier)}", flush=True)


if __name__ == "__main__":
    main()
