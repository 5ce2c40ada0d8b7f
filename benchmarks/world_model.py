"""Policies planned in the model of one release: their true gain, on known environments.

    python -m benchmarks.world_model [--worlds ward clinic icu lanes] [--users 5000 25000] [--epsilon 1 3 10]
    [--draws 40] [--seed 12] [--coverage] [--speed]

One draw is one release of first visits. Gains over what users did are in hundredths of a return between 0 and
1. ``--coverage`` evaluates policies of the training half with the held-out half instead: how often 95 %
intervals hold the true gain. ``--speed`` measures steps a second of the vector environment.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.studies.decision_points import DELTA, WORLDS, Study, World
from discreet.accounting.noise_distributions.distributions import GaussianSumLaw, NoNoise
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import no_guarantee
from discreet.envs.mdp.planning import optimal_values, policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.learners.ope.first_visit_query import VisitSums
from discreet.learners.ope.policy_gains import evaluate_policies
from discreet.learners.ope.transition_gains import path_of
from discreet.mechanisms.dataset.dataset_release import KeptRelease
from discreet.mechanisms.interfaces import ReturnBounds, StepSums
from discreet.pipeline.world_model import AS_BEFORE, world_model
from discreet.utils.markdown_table import markdown


def lanes() -> World:
    """Ten levels in two lanes; in each lane another action helps, and a third one is safe but slow."""
    draw, levels, horizon = np.random.default_rng(99), 10, 20
    size = 2 * levels + 2
    lost, cured = size - 2, size - 1
    moves = np.zeros((size, 3, size))
    for lane in range(2):
        for level in range(levels):
            s = 2 * level + lane
            for a in range(3):
                up, die = (0.45, 0.03) if a == lane else (0.15, 0.05) if a < 2 else (0.25, 0.01)
                up, die = up * draw.uniform(0.8, 1.2), die * draw.uniform(0.5, 1.5)
                moves[s, a, cured if level == levels - 1 else s + 2] += up
                moves[s, a, lost] += die
                moves[s, a, max(s - 2, lane)] += 0.15
                moves[s, a, s ^ 1] += 0.1
                moves[s, a, s] += 1.0 - moves[s, a].sum()
    moves[lost, :, lost] = moves[cured, :, cured] = 1.0
    paid = np.zeros_like(moves)
    paid[: 2 * levels, :, cured] = 1.0
    start = np.zeros(size)
    start[4:12] = 1.0 / 8.0
    mdp = TabularMDP(moves, paid, start, horizon=horizon, terminal=(lost, cured), name="lanes")
    behaviour = np.repeat(draw.dirichlet(np.full(3, 3.0), size)[None], horizon, axis=0)
    return World(mdp, behaviour, ReturnBounds(terminal=(lost, cured), outcomes={cured: 1.0}))


def release_of(told: VisitSums) -> KeptRelease:
    """The sums of a study as a release in memory."""
    query, laws = told.question.query(), {}
    for name, table, noise in zip(
        (VISITS, TRANSITIONS, CENTERED_REWARDS),
        (told.visits, told.moves, told.returns),
        told.noise,
        strict=True,
    ):
        laws[name] = GaussianSumLaw(noise, 1.0, 1, table.size, query.layout.rows) if noise else NoNoise()
    sums = StepSums(0, told.moves, told.visits, told.returns)
    return KeptRelease(
        query, int(told.people), laws, no_guarantee("seeded", reason="the study states it"), (), (sums,)
    )


def gain(study: Study, policy: np.ndarray) -> float:
    """True gain of a policy table with -1 for as before."""
    table = study.world.behaviour.copy()
    h, s = np.nonzero(policy != AS_BEFORE)
    table[h, s] = np.eye(table.shape[2])[policy[h, s]]
    return policy_value(study.world.mdp, table) - study.usual


def rows(
    name: str, users: Sequence[int], epsilons: Sequence[str], draws: int, seed: int
) -> list[tuple[str, ...]]:
    """One row for each n and epsilon."""
    study = Study(lanes() if name == "lanes" else WORLDS[name](), seed=seed)
    best = study.world.mdp.initial @ optimal_values(study.world.mdp)[0][0] - study.usual
    found: list[tuple[str, ...]] = []
    for n in users:
        for epsilon in epsilons:
            gains = []
            for draw in range(draws):
                told = study.released(n, None if epsilon == "none" else float(epsilon), draw % 10, draw)
                release, spec = release_of(told), study.question.spec
                path = path_of(told)
                model = world_model(release, spec, part="whole")
                plain = world_model(release, spec, part="whole", returns=False)
                gains.append((
                    study.gain(path, path.default), gain(study, plain.plan()), gain(study, model.plan()),
                    gain(study, world_model(release, spec).plan()),
                    gain(study, model.plan(0.0)), gain(study, model.plan(1.0)),
                ))  # fmt: skip
            mean = 100 * np.mean(gains, axis=0)
            error = 100 * np.std(gains, axis=0)[2] / np.sqrt(draws)
            cells = [f"{x:.1f}" for x in mean]
            cells[2] = f"**{mean[2]:.1f}** ± {error:.1f}"
            found.append((f"{name} ({100 * best:.1f})", f"{n:,}", epsilon, *cells))
            print(*found[-1], sep=" | ", flush=True)
    return found


def coverage(
    name: str, users: Sequence[int], epsilons: Sequence[str], draws: int, seed: int
) -> list[tuple[str, ...]]:
    """One row for each n and epsilon: intervals of one policy, and of three policies together."""
    found: list[tuple[str, ...]] = []
    study = Study(lanes() if name == "lanes" else WORLDS[name](), seed=seed)
    spec = study.question.spec
    for n in users:
        for epsilon in epsilons:
            seen = []
            for draw in range(draws):
                own = None if epsilon == "none" else float(epsilon)
                release = release_of(study.released(n, own, draw, draw))  # new users in each draw
                policy = world_model(release, spec).plan()
                true, one = gain(study, policy), evaluate_policies(release, {"plan": policy}, spec)
                others = np.random.default_rng(draw).integers(
                    -1, spec.actions, (2, spec.horizon, spec.states)
                )
                others = np.where(spec.layout.row_index[np.arange(spec.states), others] < 0, -1, others)
                policies = {"plan": policy, "first": others[0], "second": others[1]}
                three = evaluate_policies(release, policies, spec).gains
                held = all(
                    three[key].low <= gain(study, table) <= three[key].high for key, table in policies.items()
                )
                x = one.gains["plan"]
                seen.append((
                    true, x.low <= true <= x.high, x.low > true, one.shown("plan"), x.high - x.low, x.lack,
                    held,
                ))  # fmt: skip
            mean = np.mean(np.array(seen, float), axis=0)
            found.append((
                name, f"{n:,}", epsilon, f"{100 * mean[0]:.1f}", f"{round(draws * mean[1])} of {draws}",
                f"{round(draws * mean[2])}", f"{100 * mean[3]:.0f} %", f"{100 * mean[4]:.1f}",
                f"{100 * mean[5]:.1f}", f"{round(draws * mean[6])} of {draws}",
            ))  # fmt: skip
            print(*found[-1], sep=" | ", flush=True)
    return found


def speed(name: str, environments: Sequence[int], readings: int, members: int) -> None:
    """Print millions of steps a second of one processor."""
    study = Study(lanes() if name == "lanes" else WORLDS[name](), seed=0)
    model = world_model(release_of(study.released(20_000, 3.0, 0, 0)), study.question.spec, part="whole")
    draw = np.random.default_rng(0)
    for n in environments:
        env = model.vector_env(
            n, members=members, observation=draw.random((study.question.spec.states, readings))
        )
        env.reset(seed=0)
        actions = draw.integers(env.single_action_space.n, size=(64, n))
        env.step(actions[0])
        steps, begin = 0, time.process_time()
        while time.process_time() - begin < 1.0:
            env.step(actions[steps % 64])
            steps += 1
        print(
            f"{name}: {n} environments, {steps * n / (time.process_time() - begin) / 1e6:.1f} M steps/s",
            flush=True,
        )


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--worlds", nargs="+", choices=[*WORLDS, "lanes"], default=["ward", "clinic", "lanes"]
    )
    parser.add_argument("--users", nargs="+", type=int, default=[5000, 25_000])
    parser.add_argument("--epsilon", nargs="+", default=["1", "3", "10"])
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--seed", type=int, default=12, help="of users and noise, from 0")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args(argv)
    if given.speed:
        for name in given.worlds:
            speed(name, (64, 1024, 4096), 8, 8)
        return
    titles: tuple[str, ...] = (
        "environment (best)", "users", "ε", "decision points", "transitions only", "model", "training half",
        "model, λ = 0", "model, λ = 1",
    )  # fmt: skip
    if given.coverage:
        titles = (
            "environment", "users", "ε", "true gain", "holds the truth", "above it", "shown", "width",
            "of it lack", "three policies together",
        )  # fmt: skip
    lines = [titles]
    for name in given.worlds:
        lines += (coverage if given.coverage else rows)(
            name, given.users, given.epsilon, given.draws, given.seed
        )
    print(f"\nδ = {DELTA:g}, {given.draws} draws, seed {given.seed}\n\n{markdown(lines)}")


if __name__ == "__main__":
    main()
