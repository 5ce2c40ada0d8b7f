"""PPO of Stable-Baselines3 in the model of one release, beside exact planning in the same model.

    python -m benchmarks.studies.agents [--worlds ward clinic] [--users 25000] [--epsilon 1 3] [--draws 4]
    [--seed 21] [--speed]

One draw is one release of first visits. Both policies come from its training half. Gains over what users did
are true gains, in hundredths of a return between 0 and 1; the held-out half evaluates both policies. Needs
the extra ``agents``. ``--speed`` measures steps a second instead, also of the environment that
Stable-Baselines3 sees.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.studies.decision_points import DELTA, WORLDS, Study
from benchmarks.world_model import gain, release_of
from discreet.learners.ope.policy_gains import evaluate_policies
from discreet.learners.ope.release_split import split_release
from discreet.pipeline.world_model import WorldModel, world_model
from discreet.utils.markdown_table import markdown

STEPS = {"ward": 400_000, "clinic": 800_000}
TITLES = (
    "environment", "users", "ε", "draw", "plan", "PPO", "seconds of CPU", "interval of PPO",
    "interval of plan",
)  # fmt: skip


def trained(model: WorldModel, steps: int, seed: int) -> tuple[np.ndarray, float]:
    """Return PPO's policy, and the seconds of CPU of its training. States are one-hot vectors."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    begin = time.process_time()
    env = model.vector_env(64, observation="one-hot", sb3=True)
    agent = PPO(
        "MlpPolicy", env, gamma=1.0, n_steps=64, batch_size=2048, learning_rate=lambda left: 0.003 * left,
        seed=seed, device="cpu",
    )  # fmt: skip
    agent.learn(steps)
    policy = model.policy_table(lambda seen: agent.predict(seen, deterministic=True), "one-hot")
    return policy, time.process_time() - begin


def rows(name: str, users: int, epsilon: float, draws: int, seed: int) -> list[tuple[str, ...]]:
    """One row for each draw, and one with the means."""
    study = Study(WORLDS[name](), seed=seed)
    spec, found, kept = study.question.spec, [], []
    for draw in range(draws):
        train, held_out = split_release(release_of(study.released(users, epsilon, draw, draw)))
        model = world_model(train, spec)
        policy, seconds = trained(model, STEPS[name], draw)
        plan = model.plan()
        judged = evaluate_policies(held_out, {"PPO": policy, "plan": plan}, spec).gains
        kept.append((100 * gain(study, plan), 100 * gain(study, policy), seconds))
        said = [f"{100 * judged[x].low:.1f} to {100 * judged[x].high:.1f}" for x in ("PPO", "plan")]
        found.append((name, f"{users:,}", f"{epsilon:g}", str(draw), *(f"{x:.1f}" for x in kept[-1]), *said))
        print(*found[-1], sep=" | ", flush=True)
    mean = (f"**{x:.1f}**" for x in np.mean(kept, axis=0))
    return [*found, (name, f"{users:,}", f"{epsilon:g}", "mean", *mean, "", "")]


def speed(name: str) -> None:
    """Print millions of steps a second of one processor, for 64 environments with 8 readings."""
    study = Study(WORLDS[name](), seed=0)
    model = world_model(release_of(study.released(20_000, 3.0, 0, 0)), study.question.spec)
    draw = np.random.default_rng(0)
    readings = draw.random((study.question.spec.states, 8))
    for sb3 in (False, True):
        env = model.vector_env(64, observation=readings, sb3=sb3)
        env.reset()
        actions = draw.integers(study.question.spec.actions + 1, size=(64, 64))
        env.step(actions[0])
        steps, begin = 0, time.process_time()
        while time.process_time() - begin < 2.0:
            env.step(actions[steps % 64])
            steps += 1
        rate = steps * 64 / (time.process_time() - begin) / 1e6
        print(f"{name}, {'Stable-Baselines3' if sb3 else 'Gymnasium'}: {rate:.1f} M steps/s", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--users", type=int, default=25_000)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 3.0])
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--seed", type=int, default=21, help="of users and noise, from 0")
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args(argv)
    lines: list[tuple[str, ...]] = [TITLES]
    for name in given.worlds:
        if given.speed:
            speed(name)
            continue
        for epsilon in given.epsilon:
            lines += rows(name, given.users, epsilon, given.draws, given.seed)
    if not given.speed:
        print(f"\nδ = {DELTA:g}, seed {given.seed}\n\n{markdown(lines)}")


if __name__ == "__main__":
    main()
