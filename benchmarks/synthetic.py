"""Synthetic users of a release's model: their distance from people, and a learner that takes them for people.

    python -m benchmarks.synthetic [--worlds ward clinic lanes] [--users 5000 25000] [--epsilon 1 3 10]
    [--draws 40] [--seed 18] [--made 200000]

One draw is one release of first visits. Distances are total variations, in hundredths. The last columns are
about the learner ``decision-points`` on exact sums of the synthetic users, as if they were people.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.studies.decision_points import DELTA, WORLDS, Study, World
from benchmarks.world_model import lanes, release_of
from discreet.learners.ope.transition_gains import path_of
from discreet.mechanisms.dataset.dataset_release import KeptRelease
from discreet.pipeline.synthetic_utility import Measured, Utility, utility_of
from discreet.pipeline.trajectory_files import cohort_schema, write_cohort
from discreet.pipeline.world_model import WorldModel, world_model
from discreet.utils.markdown_table import markdown

PARTS = ("states", "pairs", "transitions")


def distances(people: KeptRelease, drawn: KeptRelease, states: int) -> np.ndarray:
    """Total variations of two tables of exact sums, by their definition."""
    moves = [next(iter(release)).transitions for release in (people, drawn)]
    state = people.layout.row_state
    rows = [x.sum(axis=1) for x in moves]
    share = [np.where(state < states, row, 0.0) for row in rows]
    share = [x / x.sum() for x in share]
    of_states = [np.bincount(state, x, minlength=states + 1) for x in share]
    laws = [x / np.maximum(row, 1.0)[:, None] for x, row in zip(moves, rows, strict=True)]
    own = rows[0] / rows[0].sum() @ np.abs(laws[0] - laws[1]).sum(axis=1)
    return 0.5 * np.array([np.abs(of_states[0] - of_states[1]).sum(), np.abs(share[0] - share[1]).sum(), own])


def rows(
    name: str, users: Sequence[int], epsilons: Sequence[str], draws: int, seed: int, made: int
) -> list[tuple[str, ...]]:
    """One row for each n and epsilon."""
    study = Study(lanes() if name == "lanes" else WORLDS[name](), seed=seed)
    spec, returns = study.question.spec, study.world.returns
    people = release_of(study.released(1_000_000, None, 999, 0))

    def synthetic(model: WorldModel, draw: int) -> Study:
        return Study(World(model.mean, model.behaviour, returns), seed=seed + 1000 + draw)

    found = []
    for n in users:
        for epsilon in epsilons:
            seen = []
            for draw in range(draws):
                release = release_of(study.released(n, float(epsilon), draw, draw))
                model, whole = world_model(release, spec), world_model(release, spec, part="whole")
                half = release_of(synthetic(model, draw).released(made, None, 0, 0))
                told = synthetic(whole, draw).released(made, None, 0, 0)
                utility = utility_of(release, half, model, [model.mean])
                true = distances(people, half, spec.states)
                path = path_of(told)
                gain, real = path.gain(path.default), study.gain(path, path.default)
                seen.append((
                    *true, distances(people, release_of(told), spec.states)[0], *held(utility, true),
                    gain.low > 0.0, gain.low <= real <= gain.high, gain.estimate - real,
                ))  # fmt: skip
            mean = np.nanmean(np.array(seen, float), axis=0)
            found.append((
                name, f"{n:,}", epsilon, *(f"{100 * x:.1f}" for x in mean[:4]),
                *("unknown" if np.isnan(x) else f"{100 * x:.0f} %" for x in mean[4:7]),
                f"{100 * mean[7]:.0f} %", f"{100 * mean[8]:.0f} %", f"{100 * mean[9]:.1f}",
            ))  # fmt: skip
            print(*found[-1], sep=" | ", flush=True)
    return found


def held(utility: Utility, true: np.ndarray) -> list[float]:
    """1 where the interval of a distance holds the true one, 0 elsewhere, NaN where there is none."""
    parts: list[Measured | None] = [getattr(utility, name) for name in PARTS]
    return [
        np.nan if one is None else float(one.low <= x <= one.high) for one, x in zip(parts, true, strict=True)
    ]


def speed(users: int) -> None:
    """Print seconds and bytes of one file of synthetic users of ward."""
    world = WORLDS["ward"]()
    schema = cohort_schema(world.mdp, "ward")
    study = Study(world, seed=0)
    model = world_model(release_of(study.released(25_000, 3.0, 0, 0)), study.question.spec)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s.parquet"
        for _ in range(2):  # the first pass compiles
            begin = time.perf_counter()
            write_cohort(model.mean, model.behaviour, users, path, schema, trim=True)
            seconds = time.perf_counter() - begin
        print(f"{users:,} synthetic users of ward: {seconds:.2f} s, {path.stat().st_size / 1e6:.1f} MB")


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
    parser.add_argument("--seed", type=int, default=18, help="of users and noise, from 0")
    parser.add_argument("--made", type=int, default=200_000, help="synthetic users of each release")
    given = parser.parse_args(argv)
    speed(100_000)
    lines: list[tuple[str, ...]] = [(
        "environment", "users", "ε", "states", "pairs", "transitions", "states, whole release",
        "interval of states holds", "of pairs", "of transitions", "gain above 0", "holds the true gain",
        "estimate too high by",
    )]  # fmt: skip
    for name in given.worlds:
        lines += rows(name, given.users, given.epsilon, given.draws, given.seed, given.made)
    print(f"\nδ = {DELTA:g}, {given.draws} draws, seed {given.seed}\n\n{markdown(lines)}")


if __name__ == "__main__":
    main()
