"""Regret of the default learner with good, middling, bad and wrong public priors, over that without a prior.

    python -m benchmarks.prior [--suite reporting] [--users 20000] [--draws 4] [--runs 2]

Every prior has ``--draws`` random draws, and each draw has ``--runs`` runs; the run without a prior has
draws x runs runs. Budget (1, 1e-6), simulation by batches. Rows of a prior are mixtures of the true row
and a random row; rewards have a uniform error. The mean over environments is geometric. The worst
environment is that with the largest ratio of mean regrets. Constants were chosen on the suite ``training``
only (benchmarks/prior.md). The suite ``four pairs`` has 24 environments with four pairs and 100 steps, in
which the default learner often settles on a wrong policy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

import discreet as dr
from benchmarks import hard_worlds

Floats = NDArray[np.float64]
# Weight of the random row, error of rewards, and strength.
KINDS = {
    "good": (0.05, 0.03, 1000.0),
    "middling": (0.2, 0.1, 100.0),
    "bad": (0.5, 0.2, 100.0),
    "wrong": (1.0, 1.0, 100.0),
    "wrong, 1000": (1.0, 1.0, 1000.0),
    "shuffled": (0.0, 0.0, 100.0),
}


def two_states(seed: int, horizon: int = 100) -> dr.TabularMDP:
    """Return an environment with four pairs, in which states change rarely."""
    draw = np.random.default_rng([seed, 1])
    leave = draw.uniform(0.0, 0.2, (2, 2)) ** 1.5
    rows = np.stack([1.0 - leave, leave], axis=2)
    rows[1] = rows[1, :, ::-1]
    return dr.TabularMDP(
        rows,
        draw.uniform(0.0, 1.0, (2, 2)) ** 2,
        0,
        horizon=horizon,
        reward_law="bernoulli",
        name="two states",
    )


def four_pairs(seed: int) -> dr.TabularMDP:
    """Return one of four kinds of environments with two states, two actions and 100 steps."""
    draw, kind = np.random.default_rng([seed, 9]), seed % 4
    if kind == 0:  # states change rarely
        leave, rewards = draw.uniform(0, 0.05, (2, 2)), draw.uniform(0, 1, (2, 2))
    elif kind == 1:  # the reward is mainly that of the state
        leave = draw.uniform(0, 0.3, (2, 2))
        rewards = np.array([[0.2], [0.8]]) * draw.uniform(0.8, 1, (2, 2))
    elif kind == 2:  # a state that pays ten times as much, and is hard to reach
        leave = np.array([[0.0, draw.uniform(0.005, 0.05)], [draw.uniform(0.0, 0.1), 0.5]])
        rewards = np.array([[0.1, 0.0], [1.0, 0.2]]) * draw.uniform(0.5, 1)
    else:  # small differences
        leave, rewards = draw.uniform(0, 1, (2, 2)), draw.uniform(0.4, 0.6, (2, 2))
    rows = np.stack([1.0 - leave, leave], axis=2)
    rows[1] = rows[1, :, ::-1]
    return dr.TabularMDP(rows, rewards, 0, horizon=100, reward_law="bernoulli", name="four pairs")


def queue(seed: int, most: int = 8, horizon: int = 15) -> dr.TabularMDP:
    """Return a queue with three speeds of service, of which faster ones cost more."""
    draw = np.random.default_rng([seed, 2])
    arrive, speeds, costs = draw.uniform(0.3, 0.5), np.array([0.2, 0.45, 0.7]), np.array([0.0, 0.1, 0.25])
    table, rewards = np.zeros((most + 1, 3, most + 1)), np.zeros((most + 1, 3))
    for s in range(most + 1):
        for a in range(3):
            for came, left in ((0, 0), (0, 1), (1, 0), (1, 1)):
                chance = (arrive if came else 1 - arrive) * (speeds[a] if left else 1 - speeds[a])
                table[s, a, min(most, max(0, s + came - left))] += chance
            rewards[s, a] = max(0.0, 1.0 - s / most - costs[a])
    return dr.TabularMDP(table, rewards, most // 2, horizon=horizon, name="queue")


def grid(seed: int, side: int = 4, horizon: int = 12) -> dr.TabularMDP:
    """Return a grid with four moves that slip, one goal, and small rewards at random places."""
    draw = np.random.default_rng([seed, 3])
    states = side * side
    table, rewards = np.zeros((states, 4, states)), np.zeros((states, 4))
    moves = ((-1, 0), (1, 0), (0, -1), (0, 1))
    for s in range(states):
        for a in range(4):
            for b, chance in ((a, 0.8), ((a + 1) % 4, 0.1), ((a + 2) % 4, 0.1)):
                x = min(side - 1, max(0, s // side + moves[b][0]))
                y = min(side - 1, max(0, s % side + moves[b][1]))
                table[s, a, x * side + y] += chance
    rewards[draw.integers(1, states, 3)] = 0.15
    rewards[states - 1] = 1.0
    return dr.TabularMDP(table, rewards, 0, horizon=horizon, reward_law="bernoulli", name="grid")


def machine(seed: int, most: int = 7, horizon: int = 20) -> dr.TabularMDP:
    """Return a machine that wears out and can be repaired or replaced."""
    draw = np.random.default_rng([seed, 4])
    wear = draw.uniform(0.2, 0.5)
    table, rewards = np.zeros((most, 3, most)), np.zeros((most, 3))
    for s in range(most):
        table[s, 0, min(most - 1, s + 1)] += wear
        table[s, 0, s] += 1.0 - wear
        table[s, 1, max(0, s - 2)] = 1.0
        table[s, 2, 0] = 1.0
        rewards[s] = (1.0 - (s / (most - 1)) ** 2, 0.4, 0.1)
    return dr.TabularMDP(table, rewards, 0, horizon=horizon, reward_law="bernoulli", name="machine")


def contexts(seed: int, states: int = 12, actions: int = 4) -> dr.TabularMDP:
    """Return a contextual bandit with one step."""
    draw = np.random.default_rng([seed, 5])
    rows = np.full((states, actions, states), 1.0 / states)
    start = np.full(states, 1.0 / states)
    means = draw.beta(1.0, 2.0, (states, actions))
    return dr.TabularMDP(rows, means, start, horizon=1, reward_law="bernoulli", name="contexts")


def training() -> dict[str, dr.TabularMDP]:
    """Return the environments on which constants were chosen."""
    return {
        **{f"two states {seed}": two_states(seed) for seed in (1, 2, 3, 4)},
        "two states, H = 30": two_states(5, 30),
        "queue": queue(1),
        "grid": grid(1),
        "machine": machine(1),
        "contexts": contexts(1, 8, 3),
        "random": dr.make("random", states=8, actions=3, horizon=10, seed=901),
        "sparse": dr.make("random", states=10, actions=3, horizon=12, seed=902, successors=3),
        "graph": hard_worlds.graph(6, 3, 8, 90),
        "delay": hard_worlds.delay(4, 3, 10),
        "stopping": hard_worlds.stopping(7, 12),
    }


def reporting() -> dict[str, dr.TabularMDP]:
    """Return the environments of the published figures."""
    return {
        **{f"two states {seed}": two_states(seed) for seed in (11, 12, 13)},
        "riverswim": dr.make("riverswim", rewards="bernoulli"),
        "switching chain": dr.make("switching-chain"),
        "queue": queue(11, 10, 20),
        "grid": grid(11, 5, 16),
        "machine": machine(11, 9, 25),
        "contexts": contexts(11, 20, 5),
        "random": dr.make("random", states=12, actions=4, horizon=10, seed=911),
        "sparse": dr.make("random", states=15, actions=3, horizon=15, seed=912, successors=3),
        "graph": hard_worlds.graph(9, 4, 12, 91),
        "doors": hard_worlds.doors(8, 6, 0.8, 0.4),
        "star": hard_worlds.star(),
        "corridor": hard_worlds.corridor(8, 12, 0.1),
        "stock": hard_worlds.stock(),
        "turn": hard_worlds.turn(),
    }


def four() -> dict[str, dr.TabularMDP]:
    """Return 24 environments with four pairs, for reporting only."""
    return {f"four pairs {seed}": four_pairs(seed) for seed in range(100, 124)}


SUITES = {"training": (training, 31), "reporting": (reporting, 4242), "four pairs": (four, 4242)}


def made(mdp: dr.TabularMDP, kind: str, seed: int) -> dr.Prior:
    """Return a prior of one kind for an environment."""
    share, error, strength = KINDS[kind]
    draw = np.random.default_rng([seed, 77])
    table, means = mdp.transitions.mean(axis=0), mdp.rewards.mean(axis=0)
    known = mdp.mask
    if kind == "shuffled":  # true rows and rewards, of other pairs
        pairs = np.argwhere(known)
        order = draw.permutation(len(pairs))
        rows, rewards = np.array(table), np.array(means)
        rows[tuple(pairs.T)] = table[tuple(pairs[order].T)]
        rewards[tuple(pairs.T)] = means[tuple(pairs[order].T)]
        return dr.Prior((rows, rewards), strength)
    rows = (1.0 - share) * table + share * draw.dirichlet(np.full(mdp.states, 0.5), means.shape)
    rows /= rows.sum(axis=2, keepdims=True)
    rewards = np.clip(means + draw.uniform(-error, error, means.shape), 0.0, 1.0)
    if error == 1.0:
        rewards = draw.uniform(0.0, 1.0, means.shape)
    return dr.Prior((np.where(known[:, :, None], rows, 0.0), rewards), strength)


def regrets(mdp: dr.TabularMDP, prior: dr.Prior | None, users: int, seed: int, runs: int) -> Floats:
    """Return the regret of each run as a share of the uniform policy's regret."""
    result = dr.simulate(
        mdp, dr.NoiseAwareUCBVI(prior=prior), dr.Central(epsilon=1.0, delta=1e-6), users, seeds=runs,
        seed=seed, by="batch", workers=1,
    )  # fmt: skip
    uniform = users * (result.optimal_value - result.uniform_value)
    return np.asarray(result.regret[:, -1] / uniform)


def measured(
    worlds: dict[str, dr.TabularMDP], kinds: Sequence[str], users: int, draws: int, runs: int, seed: int,
    show: Callable[[str], None] = print,
) -> dict[str, list[float]]:  # fmt: skip
    """Return the ratios to the regret without a prior: kind -> one ratio for each environment."""
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    for name, mdp in worlds.items():
        base = regrets(mdp, None, users, seed, draws * runs).mean()
        line = f"{name:20} {100 * base:6.2f} %"
        for kind in kinds:
            shares = [
                regrets(mdp, made(mdp, kind, seed + 1000 * draw), users, seed + draw, runs)
                for draw in range(draws)
            ]
            ratios[kind].append(float(np.mean(shares) / base))
            line += f"  {kind} {ratios[kind][-1]:5.2f}"
        show(line)
    return ratios


def main() -> None:
    """Print one line for each environment, then the mean and the worst ratio of each kind of prior."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--suite", default="reporting", choices=list(SUITES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--only", default="", help="environments whose name begins so")
    parser.add_argument("--seed", type=int, default=None)
    for name, value in (("users", 20_000), ("draws", 4), ("runs", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    suite, seed = SUITES[given.suite]
    worlds = {name: mdp for name, mdp in suite().items() if name.startswith(given.only)}
    seed = seed if given.seed is None else given.seed
    ratios = measured(worlds, given.kinds, given.users, given.draws, given.runs, seed)
    for kind, values in ratios.items():
        logs = np.log(values)
        error = logs.std(ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else 0.0
        print(f"{kind:12} mean {np.exp(logs.mean()):.2f} +- {error:.2f}  worst {max(values):.2f}")


if __name__ == "__main__":
    main()
