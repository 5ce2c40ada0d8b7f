"""`make bench`: microseconds per episode of every learner x privatizer, and where they go.

Every figure is a median of repeats in one process; compare ratios within a table, not tables of
different days. The floor is measured in the same run: the draws and projections that an episode
cannot avoid, at the cost of one draw and one projection measured alone.

    python benchmarks/run.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import discreet as dr
from discreet.envs.mdp import tabular_kernels as worlds
from discreet.experiments.simulate import Setup
from discreet.learners.estimation.model_kernels import project_table
from discreet.learners.online import tabular_planning_kernels as online
from discreet.mechanisms import seeded_noise_kernels as noise
from discreet.utils import random_streams_kernels as streams

LEARNERS = {
    "ucb-vi": (dr.learners.UCBVI, {}),
    "ucb-vi-bernstein": (dr.learners.UCBVI, {"bonus": "bernstein"}),
    "oppo": (dr.learners.OPPO, {}),
    "private-ucb-vi raw": (dr.learners.PrivateUCBVI, {"post": "raw"}),
    "private-ucb-vi lp": (dr.learners.PrivateUCBVI, {"post": "lp"}),
    "dp-ucbvi": (dr.DPUCBVI, {}),
    "private-ucb-po": (dr.learners.PrivateUCBPO, {}),
    "pucb": (dr.learners.PUCB, {}),
    "ldp-obi": (dr.learners.LDPOBI, {}),
}
# The papers' three families of counts: 1920 draws an episode at S=6, A=2, H=20, tree release each episode.
FAMILIES = {"derive_visits": False, "center_rewards": False, "replan_every": 1}
PRIVATIZERS = {
    "none": lambda: dr.NoPrivacy(),
    "central": lambda: dr.Central(epsilon=1.0, release="tree"),
    "local": lambda: dr.Local(epsilon=1.0),
}
IGNORES = ("ucb-vi", "ucb-vi-bernstein", "oppo")


def median_us(work: Callable[[], Any], calls: int, repeats: int) -> float:
    """Median over repeats of the mean time of one call, in microseconds of this thread's CPU."""
    work()
    times = []
    for _ in range(repeats):
        begin = time.thread_time()
        for _ in range(calls):
            work()
        times.append((time.thread_time() - begin) / calls * 1e6)
    return statistics.median(times)


def per_episode(setup: Setup, repeats: int) -> float:
    """Median CPU microseconds per episode of a whole fused run."""
    setup.run(0, 0)
    times = []
    for r in range(repeats):
        begin = time.thread_time()
        setup.run(1, r)
        times.append((time.thread_time() - begin) / setup.episodes * 1e6)
    return statistics.median(times)


def evaluation_us(mdp: dr.TabularMDP, repeats: int) -> float:
    """Microseconds of one exact policy value, the call from Python included."""
    world, layout = mdp.world, mdp.layout
    policy = np.zeros((layout.horizon, layout.states), np.int64) + layout.state_ptr[:-1]
    probabilities = np.zeros((layout.horizon, layout.rows))
    values = np.zeros((layout.horizon + 1, layout.states))
    return median_us(lambda: worlds.evaluate(world, False, policy, probabilities, values), 200, repeats)


def floor_costs(mdp: dr.TabularMDP, repeats: int) -> dict[str, float]:
    """Microseconds of one Laplace draw, one projection, one episode, one evaluation of a policy."""
    layout = mdp.layout
    h, r, s = layout.horizon, layout.rows, layout.states
    cells = h * r * (s + 2)
    key = streams.run_key(0)
    out, offsets, scales = np.empty(cells), np.array([0, cells]), np.ones(1)
    draw = median_us(lambda: noise.fill_noise(1, key, 1, 0, 1.0, offsets, scales, out), 50, repeats) / cells
    state = streams.open_at(key, streams.ROLE_AUDIT, 0, 0)
    single = median_us(lambda: streams.scalar_draws(state, 1.0, False, cells), 50, repeats) / cells
    rng = np.random.default_rng(0)
    many = max(h * r, 20_000 // s)  # rows enough to drown the cost of the call
    v = rng.normal(50 / s, 20.0, (many, s))
    w = v.sum(axis=1) + rng.normal(0, 20.0, many)
    tolerance, x, t = np.full(many, 20.0), np.empty_like(v), np.empty(many)
    project = median_us(lambda: project_table(v, w, tolerance, x, t), 20, repeats) / many
    policy = np.zeros((h, s), np.int64) + layout.state_ptr[:-1]
    probabilities = np.zeros((h, r))
    n = 2000
    states, rows, rewards = np.empty((n, h + 1), np.int64), np.empty((n, h), np.int64), np.empty((n, h))
    world = mdp.world
    episode = (
        median_us(
            lambda: worlds.episodes(world, False, policy, probabilities, key, 0, states, rows, rewards),
            3,
            repeats,
        )
        / n
    )
    evaluate = evaluation_us(mdp, repeats) - evaluation_us(
        dr.TabularMDP(np.ones((1, 1, 1)), np.ones((1, 1)), horizon=1), repeats
    )
    return {
        "draws": cells,
        "projections": h * r,
        "draw_us": draw,
        "single_draw_us": single,
        "projection_us": project,
        "episode_us": episode,
        "step_ns": episode / h * 1e3,
        "evaluate_us": evaluate,
    }


def plan_cost(setup: Setup, repeats: int) -> float:
    """Microseconds of one plan_step on counts of a typical release (estimation included)."""
    learner, spec, query, layout = setup.learner, setup.spec, setup.query, setup.mdp.layout
    rng = np.random.default_rng(1)
    transitions = rng.poisson(20.0, (query.slots, layout.rows, layout.states)).astype(float)
    visits = transitions.sum(axis=-1)
    rewards = visits * 0.3
    session = setup.privatizer.start(query, setup.schedule, dr.Seeded(0, 0))
    end, laws = session.mechanism.laws.steps()[-1]
    errors = np.asarray(learner.errors(laws, spec))
    lk, memory = learner.kernel(spec), np.array(learner.begin_memory(spec))
    values = np.zeros((layout.horizon + 1, layout.states))
    q, probabilities = np.zeros((layout.horizon, layout.rows)), np.zeros((layout.horizon, layout.rows))
    work, known = np.zeros(learner.work_size(spec)), np.zeros((0, 0))
    return median_us(
        lambda: online.plan_step(
            lk, layout.state_ptr, layout.horizon, end, 5, visits, transitions, rewards, known, errors, memory,
            values, q, probabilities, work,
        ),
        20,
        repeats,
    )  # fmt: skip


def table(size: str, mdp: dr.TabularMDP, episodes: int, repeats: int) -> list[dict[str, Any]]:
    """One row a pair, printed as it is measured."""
    costs = floor_costs(mdp, repeats)
    print(
        f"\n{size}: one Laplace draw {costs['draw_us'] * 1e3:.1f} ns in blocks (floor), "
        f"{costs['single_draw_us'] * 1e3:.1f} ns alone (bound), one projection "
        f"{costs['projection_us'] * 1e3:.0f} ns, simulation {costs['step_ns']:.1f} ns a step, "
        f"one exact policy value {costs['evaluate_us']:.2f} us"
    )
    head = f"{'learner':20} {'privatizer':10} {'us/episode':>10} {'plan':>7} {'noise':>7} {'world':>7}"
    print(head + f" {'floor':>8} {'x floor':>8} {'x bound':>8}")
    rows = []
    for name, (factory, options) in LEARNERS.items():
        for privatizer, make in PRIVATIZERS.items():
            if privatizer != "none" and name in IGNORES:
                continue
            setup = Setup(mdp, factory(**options, **FAMILIES), make(), episodes, "episode")
            total = per_episode(setup, repeats)
            plan = plan_cost(setup, repeats)
            noisy = privatizer != "none"
            noise_us = costs["draws"] * costs["draw_us"] if noisy else 0.0
            world = costs["episode_us"] + costs["evaluate_us"]
            projected = noisy and getattr(setup.learner, "post", "raw") == "lp"
            projection_us = costs["projections"] * costs["projection_us"] if projected else 0.0
            floor = noise_us + projection_us if noisy else plan + world
            bound = costs["draws"] * costs["single_draw_us"] + projection_us if noisy else floor
            row = {
                "size": size, "learner": name, "privatizer": privatizer, "us_per_episode": total,
                "plan_us": plan, "noise_us": noise_us, "projection_us": projection_us, "world_us": world,
                "floor_us": floor, "ratio": total / floor,
                "bound_us": bound, "bound_ratio": total / bound,
            }  # fmt: skip
            rows.append(row)
            print(
                f"{name:20} {privatizer:10} {total:10.2f} {plan / total:7.0%} {noise_us / total:7.0%} "
                f"{world / total:7.0%} {floor:8.2f} {row['ratio']:8.2f} {row['bound_ratio']:8.2f}"
            )
    return rows


def batches(repeats: int) -> list[dict[str, Any]]:
    """Whole runs by batches with scheduled updates, milliseconds."""
    print("\nscheduled updates by batches, S=6 A=2 H=20, whole runs, ms")
    rows = []
    mdp = dr.make("riverswim", rewards="bernoulli")
    gaussian = dr.Central(epsilon=1.0, delta=1e-6)
    for label, learner, privatizer in (
        ("plain", dr.learners.UCBVI(replan_growth=1.1), dr.NoPrivacy()),
        ("central", dr.learners.PrivateUCBVI(replan_growth=1.1), gaussian),
        ("noise-aware", dr.NoiseAwareUCBVI(), gaussian),
    ):
        for users in (10**6, 10**9):
            setup = Setup(mdp, learner, privatizer, users, "batch")
            ms = per_episode(setup, repeats) * users / 1e3
            rows.append({"privatizer": label, "users": users, "ms": ms, "releases": setup.times.size - 1})
            print(f"{label:12} K={users:<12} {ms:8.2f} ms  ({setup.times.size - 1} releases)")
    return rows


def secure(repeats: int) -> dict[str, Any]:
    """Scheduled updates with exact secure noise: every user simulated, checked and added, K = 2e5.

    Microseconds of CPU per episode, by what they are spent on: the world's (a service has real people), the
    checks and sums of whole trajectories, the release with its noise, the plan.
    """
    print("\nexact secure noise, scheduled updates, K=200000, S=6 A=2 H=20, every user's record checked")
    users, mdp = 200_000, dr.make("riverswim", rewards="bernoulli")
    spec = dr.mechanisms.ProblemSpec(mdp.layout, users, mdp.stationary)
    learner, privatizer = dr.NoiseAwareUCBVI(replan_growth=1.1), dr.Central(epsilon=1.0, delta=1e-6)
    parts = ("world", "checks and sums", "noise", "plan")
    times: list[list[float]] = []
    for r in range(repeats + 1):
        session = privatizer.start(learner.query(spec), learner.schedule(spec), dr.Secure())
        state = learner.begin(spec, np.array([1, r], np.uint64))
        spent = dict.fromkeys(parts, 0.0)
        while session.users < users:
            begin = time.thread_time()
            release = session.release()
            released = time.thread_time()
            plan, state = learner.plan(state, release, session.answer)
            planned = time.thread_time()
            trajectories = dr.envs.rollout_batch(mdp, plan.policy, plan.users, 0, r, session.users)
            played = time.thread_time()
            session.begin(plan)
            session.submit_many(trajectories, session.open_plan.number)
            spent["checks and sums"] += time.thread_time() - played
            spent["world"] += played - planned
            spent["noise"] += released - begin
            spent["plan"] += planned - released
        session.close()
        times.append([spent[part] / users * 1e6 for part in parts])
    median = np.median(times[1:], axis=0)  # the first run compiles
    row = {part: float(value) for part, value in zip(parts, median, strict=True)}
    row["us_per_episode"] = float(np.median(np.sum(times[1:], axis=1)))
    words = ", ".join(f"{part} {row[part]:.3f}" for part in parts)
    print(f"{row['us_per_episode']:.2f} us/episode: {words}")
    return row


def process(code: str) -> float:
    """Wall seconds of a fresh Python process, of modules that are compiled as installed ones are."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    """Measure, print, and write the figures as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and the small size only")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    repeats = 3 if args.quick else 7
    figures: dict[str, Any] = {"small": table("S=6 A=2 H=20", dr.make("riverswim"), 2000, repeats)}
    if not args.quick:
        large = dr.make("random", states=50, actions=5, horizon=20, stationary=False)
        figures["large"] = table("S=50 A=5 H=20", large, 60, 3)
    figures["batches"] = batches(repeats)
    figures["secure"] = secure(repeats)
    print("\nwhole processes, seconds (wall)")
    run = (
        "import discreet as dr\n"
        "learner, private = dr.learners.PrivateUCBVI(replan_every=1), dr.Central(epsilon=1.0)\n"
        "dr.simulate(dr.make('riverswim'), learner, private, {}, workers=1)"
    )
    codes = {
        "python": "pass",
        "import discreet": "import discreet",
        "one user": run.format(1),
        "20 000 users, tree": run.format(20_000),
        "discreet run, one user": "import sys\nfrom discreet.cli import main\n"
        "sys.argv = ['discreet', 'run', '--episodes', '1']\nmain()",
    }
    figures["process"] = {}
    for name, code in codes.items():
        process(code)
        figures["process"][name] = statistics.median(process(code) for _ in range(repeats))
        print(f"{name:22} {figures['process'][name]:6.2f}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
