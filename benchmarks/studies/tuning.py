r"""How the defaults of the noise-aware learner were chosen: a declared search on declared training worlds.

    python -m benchmarks.studies.tuning --kind local [--seeds 24] [--users 20000]
    python -m benchmarks.studies.tuning --kind local --task "local 10" --seeds 32

One setting is chosen for all budgets of a kind: approximate or pure joint privacy, local or shuffle
privacy, none.
Score of a setting: the geometric mean, over the kind's budgets and the worlds of
:data:`benchmarks.leaderboard.env_suites.TRAINING` (RiverSwim is not among them, nor any world of the suite),
of (mean final regret) / (regret of the uniform policy), by batches, on seeds that no report uses.

The search goes once through the knobs in the order of the grid, tries every value of one knob with all
others as they stand, and moves to the best if that lowers the score by more than ``LEAST_GAIN`` (less is
within noise here, although all settings meet the same seeds). Starts are informed: they are what earlier,
unrecorded searches on training worlds ended at. ``replan_growth`` comes last, as more releases take longer
to try; under joint privacy 1.05 is the least allowed, since each release costs a noise draw for every cell.
benchmarks/default_learner.md has the outcome; :func:`discreet.learners.online.noise_aware.defaults_for` holds it.

With ``--task`` the same search is made on RiverSwim itself, for one budget: what tuning on the task gives.
That is no default; benchmarks/noise_aware.py reports it beside the defaults, on fresh seeds. With ``--lakes``
five random maps of Gymnasium's frozen lake (:func:`lakes`) stand beside the training worlds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.leaderboard.env_suites import TRAINING, tuning_shares
from discreet.envs import from_gymnasium, riverswim
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.simulate import Setup
from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.privatizers.shuffle import Shuffle

TUNING_SEED = 31
LEAST_GAIN = 0.01
Setting = dict[str, Any]


@dataclass(frozen=True)
class Search:
    """budgets : privatizers by name; start : where the search begins; grid : values tried of each knob."""

    budgets: Mapping[str, Any]
    start: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]


_START = {"stat_scale": 0.1, "priv_scale": 0.25, "excess": 2.0, "reward_share": 0.2, "consistent": True}
SEARCHES: Mapping[str, Search] = {
    "approximate": Search(
        {f"({e:g}, 1e-6)": Central(epsilon=e, delta=1e-6) for e in (1.0, 10.0)},
        {**_START, "replan_growth": 1.05},
        {
            "priv_scale": (0.12, 0.18, 0.25, 0.35),
            "reward_share": (0.1, 0.2, 0.35, 0.5),
            "stat_scale": (0.05, 0.1, 0.2),
            "excess": (1.0, 2.0, 4.0, 5.0),
            "consistent": (False, True),
            "replan_growth": (1.05, 1.1, 1.2),
        },
    ),
    "pure": Search(
        {f"pure {e:g}": Central(epsilon=e, release="batches") for e in (1.0, 10.0)},
        {**_START, "excess": 5.0, "pooled_share": 0.9, "pooled_share_end": 0.1, "replan_growth": 1.2},
        {
            "priv_scale": (0.12, 0.18, 0.25, 0.35),
            "reward_share": (0.1, 0.2, 0.3),
            "stat_scale": (0.05, 0.1, 0.2),
            "excess": (2.0, 5.0, 8.0),
            "pooled_share": (0.8, 0.9),
            "pooled_share_end": (0.1, 0.3),
            "consistent": (False, True),
            "replan_growth": (1.1, 1.15, 1.2, 1.3),
        },
    ),
    "local": Search(
        {f"local {e:g}": Local(epsilon=e) for e in (3.0, 10.0)},
        {**_START, "replan_growth": 1.05},
        {
            "priv_scale": (0.06, 0.1, 0.15, 0.25),
            "reward_share": (0.1, 0.2, 0.3, 0.4),
            "stat_scale": (0.05, 0.1, 0.2),
            "excess": (1.0, 2.0, 4.0, 5.0),
            "replan_growth": (1.02, 1.05, 1.1),
        },
    ),
    "shuffle": Search(  # shares of 1 / 3 are the noise of a server's .2: they divide variances, not losses
        {f"shuffle ({e:g}, 1e-6)": Shuffle(epsilon=e, delta=1e-6) for e in (1.0, 10.0)},
        {**_START, "priv_scale": 0.12, "replan_growth": 1.3},
        {
            "priv_scale": (0.06, 0.12, 0.25),
            "reward_share": (0.1, 0.2, 1 / 3),
            "excess": (1.0, 2.0, 4.0, 5.0),
            "replan_growth": (1.1, 1.2, 1.3, 1.5),
        },
    ),
    "none": Search(
        {"none": NoPrivacy()},
        {**_START, "replan_growth": 1.05},
        {
            "stat_scale": (0.025, 0.05, 0.1, 0.2),
            "excess": (1.0, 2.0, 4.0, 5.0),
            "replan_growth": (1.02, 1.05, 1.1),
        },
    ),
}


def shares(
    setting: Mapping[str, Any], privatizer: Any, worlds: Sequence[TabularMDP], users: int, seeds: int
) -> list[float]:
    """Mean final regret over the uniform policy's in each world, by batches."""
    learner = NoiseAwareUCBVI(**setting)
    setups = (Setup(world, learner, privatizer, users, "batch") for world in worlds)
    return tuning_shares(setups, TUNING_SEED, seeds)


def lakes() -> list[TabularMDP]:
    """Five random maps of Gymnasium's frozen lake: four of 4 x 4 (20 steps), one of 5 x 5 (30 steps)."""
    import gymnasium
    from gymnasium.envs.toy_text.frozen_lake import generate_random_map

    maps = [(4, 0.75, seed, 20) for seed in (1, 2, 7, 9)] + [(5, 0.8, 5, 30)]
    return [
        from_gymnasium(
            gymnasium.make("FrozenLake-v1", desc=generate_random_map(size=size, p=p, seed=seed)),
            horizon=horizon,
        )
        for size, p, seed, horizon in maps
    ]


def descend(search: Search, score: Callable[[Setting], float]) -> tuple[Setting, float]:
    """The search of the module's docstring: the setting where it ends, and its score."""
    best = dict(search.start)
    least = score(best)
    for knob, values in search.grid.items():
        tried = [{**best, knob: value} for value in values if value != best[knob]]
        lowest, i = min((score(setting), i) for i, setting in enumerate(tried))
        if lowest < (1.0 - LEAST_GAIN) * least:
            best, least = tried[i], lowest
    return best, least


def main() -> None:
    """Print the scores of every setting that is tried, by budget, and the chosen one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=sorted(SEARCHES), required=True)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument(
        "--task", help="a budget of the kind, such as 'pure 10': tune on RiverSwim at it alone"
    )
    parser.add_argument("--lakes", action="store_true", help="five random lakes beside the training worlds")
    args = parser.parse_args()
    search, worlds = SEARCHES[args.kind], [world.build() for world in TRAINING]
    if args.lakes:
        worlds += lakes()
    if args.task is not None:
        if args.task not in search.budgets:
            parser.error(f"--task {args.task!r}: must be one of {', '.join(search.budgets)}")
        search = replace(search, budgets={args.task: search.budgets[args.task]})
        worlds = [riverswim(rewards="bernoulli")]
    known: dict[tuple[Any, ...], float] = {}

    def score(setting: Setting) -> float:
        key = tuple(setting.values())
        if key not in known:
            logs = [
                np.log(shares(setting, privatizer, worlds, args.users, args.seeds))
                for privatizer in search.budgets.values()
            ]
            known[key] = float(np.exp(np.mean(logs)))
            each = " ".join(
                f"{name} {np.exp(np.mean(log)):.4f}" for name, log in zip(search.budgets, logs, strict=True)
            )
            print(f"{known[key]:.4f}  {each}  {setting}", flush=True)
        return known[key]

    print(f"chosen, {args.kind}: {descend(search, score)}")


if __name__ == "__main__":
    main()
