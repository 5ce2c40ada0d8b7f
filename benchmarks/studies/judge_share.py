"""Intervals of `discreet learn --judge-share`: how often do they hold the true gain, on known environments?

One draw: users of group A give one release of first visits, which gives a policy; users of group B answer one
question about it. Both groups have half of the users. Policies are those of the learner `decision-points` and
of the world model (``WorldModel.plan``). Gains over what users did are in hundredths of the range of returns.

    python -m benchmarks.studies.judge_share [--worlds ward clinic] [--users 25000 100000] [--epsilon 1 3 10]
    [--draws 100] [--seed 31] [--share 0.5]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.studies.decision_points import DELTA, WORLDS, Study, World
from benchmarks.world_model import gain, lanes, release_of
from discreet.core.guarantee import MechanismRecord
from discreet.core.rng import Seeded
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.ope.transition_gains import path_of
from discreet.mechanisms.dataset.clipped_sum import ClippedSum
from discreet.mechanisms.interfaces import ReturnBounds
from discreet.mechanisms.privatizers.central import Central
from discreet.pipeline.fixed_policy import kappa, policy_question
from discreet.pipeline.world_model import AS_BEFORE, world_model
from discreet.utils.markdown_table import markdown

_COHORTS = 10**6  # users of group B are other users than those of group A


def stairs() -> World:
    """Twelve levels; three actions that climb one to three of them. The best one depends on the level."""
    draw, levels, horizon = np.random.default_rng(2027), 12, 16
    size = levels + 2
    moves = np.zeros((size, 3, size))
    for s in range(levels):
        for a in range(3):
            up, down = draw.uniform(0.25, 0.4), draw.uniform(0.1, 0.2)
            moves[s, a, s + 1 + a if s + 1 + a < levels else size - 1] += up
            moves[s, a, levels if s < 2 else s - 2] += down
            moves[s, a, s] += 1.0 - up - down
    moves[levels, :, levels] = moves[levels + 1, :, levels + 1] = 1.0
    moves[:levels, :, levels] += 0.02
    moves[:levels] /= moves[:levels].sum(axis=2, keepdims=True)
    paid = np.zeros_like(moves)
    paid[:levels, :, levels + 1] = 1.0
    start = np.r_[np.full(6, 1.0 / 6.0), np.zeros(size - 6)]
    mdp = TabularMDP(moves, paid, start, horizon=horizon, terminal=(levels, levels + 1), name="stairs")
    behaviour = np.repeat(draw.dirichlet(np.full(3, 2.5), size)[None], horizon, axis=0)
    returns = ReturnBounds(terminal=(levels, levels + 1), outcomes={levels + 1: 1.0})
    return World(mdp, behaviour, returns)


def drawn(study: Study, users: int, epsilon: float, draw: int, share: float) -> dict[str, dict[str, Any]]:
    """Return what one draw says about each policy, and the true gains."""
    question, judging, draw = study.question, round(share * users), draw + 1000 * round(epsilon)
    told = study.released(users - judging, epsilon, draw, draw)
    release, spec = release_of(told), question.spec
    path = path_of(told)
    own = np.where(path.changed(path.default), path.action, AS_BEFORE)[: spec.states]
    tables = {
        "learner": np.repeat(own[None], spec.horizon, axis=0),
        "plan": world_model(release, spec, part="whole").plan(),
    }
    privatizer = Central(epsilon=epsilon, delta=DELTA, noise="gaussian")
    (record,) = privatizer.stored_mechanism(question.query(), Seeded()).records
    assert isinstance(record, MechanismRecord)
    query = ClippedSum.matching(record, 2)
    people = rollout_batch(study.world.mdp, study.rows, judging, _COHORTS + draw, study.seed, 0)
    found = {}
    for policy, table in tables.items():
        asked = policy_question(release, spec, table[None])
        clip = asked.clip(judging, query.multiplier)
        sums = query.release(asked.contributions(people, clip), kappa(False) * clip, Seeded(study.seed, draw))
        (answer,) = asked.read(sums, clip, judging, query.std)
        true = gain(study, table)
        found[policy] = {
            "true": true, "estimate": answer.estimate, "deviation": answer.deviation,
            "held": answer.low <= true <= answer.high, "above": answer.low > true, "shown": answer.shown,
            "false": answer.shown and true <= 1e-9, "model": answer.model, "noise": answer.noise,
        }  # fmt: skip
    return found


def rows(
    study: Study, name: str, users: int, epsilon: float, draws: int, share: float
) -> list[tuple[Any, ...]]:
    """Return the rows of the table for one setting, one for each policy."""
    every = [drawn(study, users, epsilon, draw, share) for draw in range(draws)]
    lines = []
    for policy in every[0]:
        found = [one[policy] for one in every]
        mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        error = np.array([one["estimate"] - one["true"] for one in found])
        lines.append((
            name, policy, f"{users:,}", f"{epsilon:g}", f"{100 * mean['true']:.1f}",
            f"{sum(one['held'] for one in found)} of {draws}", f"{sum(one['above'] for one in found)}",
            f"{100 * mean['shown']:.0f} %", f"{sum(one['false'] for one in found)}",
            f"{100 * error.mean():.2f}", f"{100 * error.std():.2f}", f"{100 * mean['deviation']:.2f}",
            f"{100 * mean['noise']:.2f}", f"{100 * mean['model']:.2f}",
        ))  # fmt: skip
    return lines


TITLES = (
    "environment", "policy", "users", "ε", "true gain", "interval holds it", "interval above it", "shown",
    "shown, but no gain", "mean error", "standard deviation of the error", "deviation stated", "of it noise",
    "of it model",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    own = {**WORLDS, "lanes": lanes, "stairs": stairs}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--worlds", nargs="+", choices=list(own), default=["ward", "clinic", "lanes", "stairs"]
    )
    parser.add_argument("--users", nargs="+", type=int, default=[25_000, 100_000])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 3.0, 10.0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=31, help="of users and noise, from 0")
    parser.add_argument("--share", type=float, default=0.5, help="share of users in group B")
    given = parser.parse_args(argv)
    lines = []
    for name in given.worlds:
        study = Study(own[name](), seed=given.seed)
        for users in given.users:
            for epsilon in given.epsilon:
                lines += rows(study, name, users, epsilon, given.draws, given.share)
                for line in lines[-2:]:
                    print(*line, sep=" | ", flush=True)
    print(markdown([TITLES, *lines]))


if __name__ == "__main__":
    main()
