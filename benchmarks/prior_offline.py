"""Policies of ``dp-apvi`` from one private release, with and without a public prior.

    python -m benchmarks.prior_offline [--runs 24] [--users 1000 10000]

Users act uniformly at random. A figure is the lost value of the learned policy, as a share of the uniform
policy's: 0 is the best policy, 1 is uniform play. Budget (1, 1e-6). Priors are the true rows (averaged over
steps) mixed with random rows, as in benchmarks/prior.py. The table is in benchmarks/prior.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import discreet as dr
from discreet import envs
from discreet.core.rng import Seeded
from discreet.envs.rollouts.rollout import batch_counts
from discreet.learners.offline.apvi import DPAPVI
from discreet.mechanisms.interfaces import Plan, ProblemSpec
from discreet.utils.random_streams_kernels import run_key

# Weight of the random row, error of rewards, and strength.
KINDS = {"good": (0.05, 0.03, 1000.0), "middling": (0.2, 0.1, 100.0), "wrong": (1.0, 1.0, 100.0)}
WORLDS = {
    "riverswim": envs.riverswim(horizon=10),
    "random, S = 5": envs.random_mdp(states=5, actions=3, horizon=8, seed=14),
    "random, S = 10": envs.random_mdp(states=10, actions=2, horizon=10, seed=19),
    "random, S = 20": envs.random_mdp(states=20, actions=3, horizon=6, seed=20),
    "gamble": envs.gamble(seed=2),
    "combination lock": envs.combination_lock(seed=3),
    "bandit": envs.bandit(contexts=4, actions=5, horizon=4, seed=5),
}


def prior_of(mdp: dr.TabularMDP, kind: str, draw: np.random.Generator) -> dr.Prior:
    """Return a prior of the given kind."""
    random, error, strength = KINDS[kind]
    rows, means = mdp.transitions.mean(axis=0), mdp.rewards.mean(axis=0)
    rows = (1.0 - random) * rows + random * draw.dirichlet(np.ones(mdp.states), rows.shape[:2])
    wrong = means + error * draw.uniform(-1.0, 1.0, means.shape) if error < 1.0 else draw.random(means.shape)
    return dr.Prior((rows, np.clip(wrong, 0.0, 1.0)), strength)


def losses(mdp: dr.TabularMDP, users: int, runs: int) -> dict[str, float]:
    """Return the mean lost value without a prior and with each kind of prior."""
    learner, spec = DPAPVI(), ProblemSpec(mdp.layout, users, mdp.stationary)
    query, policy = learner.query(spec), envs.uniform_policy(mdp)
    best = float(mdp.initial @ envs.optimal_values(mdp)[0][0])
    span = best - envs.policy_value(mdp, policy)
    found: dict[str, list[float]] = {name: [] for name in ("none", *KINDS)}
    for run in range(runs):
        schedule = learner.schedule(users)
        session = dr.Central(epsilon=1.0, delta=1e-6).start(query, schedule, Seeded(run, 0))
        session.release()
        session.begin(Plan(policy, users))
        counts = batch_counts(mdp, policy, users, run_key(run))
        counts["centered_reward_sums"] = counts["reward_sums"] - 0.5 * counts["visits"]
        session.submit_sum({name: counts[name] for name in query.families}, users)
        release, draw = session.release(), np.random.default_rng([run, 31])
        for name in found:
            prior = None if name == "none" else prior_of(mdp, name, draw)
            learned = learner.learn(release, spec, prior)
            found[name].append((best - envs.policy_value(mdp, learned.policy)) / span)
    return {name: float(np.mean(values)) for name, values in found.items()}


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--users", type=int, nargs="*", default=[1000, 10_000])
    asked = parser.parse_args(given)
    print(f"| users | environment | none | {' | '.join(KINDS)} |\n|---|---|---|{'---|' * len(KINDS)}")
    for users in asked.users:
        ratios = []
        for name, mdp in WORLDS.items():
            lost = losses(mdp, users, asked.runs)
            ratios.append([lost[kind] / lost["none"] for kind in KINDS])
            print(f"| {users:,} | {name} | {' | '.join(f'{x:.3f}' for x in lost.values())} |", flush=True)
        means, worst = np.exp(np.log(ratios).mean(axis=0)), np.max(ratios, axis=0)
        cells = " | ".join(f"{m:.2f} ({w:.2f})" for m, w in zip(means, worst, strict=True))
        print(f"| {users:,} | ratio to none: geometric mean (worst) | 1 | {cells} |", flush=True)


if __name__ == "__main__":
    main()
