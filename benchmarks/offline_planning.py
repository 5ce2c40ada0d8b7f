"""Planning from a release in a file: seconds and peak memory, step by step.

    python benchmarks/offline_planning.py [--states 716] [--actions 25] [--horizon 20] [--pairs 2304]

``--pairs`` is how many pairs a random mask admits (0: all). The release is of discrete Gaussian noise around
counts of made-up behaviour; one step of it is made at a time. The default is ICU-Sepsis's size; with
``--pairs 0`` there are 2.6e8 cells. Each stage is a process of its own, so that its peak memory can be read.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from discreet.accounting.noise_distributions.distributions import GaussianSumLaw
from discreet.core.guarantee import no_guarantee
from discreet.core.layout import Layout
from discreet.learners.estimation import model_kernels as kernels
from discreet.learners.offline.apvi import DPAPVI
from discreet.learners.offline.release_files import ReleaseFacts, read_release, write_release
from discreet.mechanisms.interfaces import ProblemSpec, StepSums

USERS = 10_000_000


def layout_of(states: int, actions: int, horizon: int, pairs: int) -> Layout:
    if pairs == 0:
        return Layout(states, actions, horizon)
    draw = np.random.default_rng(0)
    mask = np.zeros((states, actions), bool)
    mask[np.arange(states), draw.integers(actions, size=states)] = True
    free = np.flatnonzero(~mask)
    mask.flat[draw.choice(free, pairs - states, replace=False)] = True
    return Layout(states, actions, horizon, mask)


def sums(layout: Layout, sigma: float) -> Iterator[StepSums]:
    rows, states = layout.rows, layout.states
    for h in range(layout.horizon):
        draw = np.random.default_rng(h)
        moves = draw.standard_normal((rows, states))
        moves *= sigma
        visits = draw.multinomial(USERS, draw.dirichlet(np.full(rows, 0.1)))
        after = draw.integers(states, size=(rows, 3))
        for k in range(3):  # three successors each
            moves[np.arange(rows), after[:, k]] += visits / 3
        np.rint(moves, out=moves)
        noisy = np.rint(visits + sigma * draw.standard_normal(rows))
        rewards = np.rint((0.1 * visits + sigma * draw.standard_normal(rows)) * 2**10) / 2**10
        yield StepSums(h, moves, noisy, rewards)


def peak() -> float:
    """GB, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def plan(path: str) -> None:
    release = read_release(path)
    known = np.zeros((release.layout.horizon, release.layout.states, release.layout.actions))
    known[-1, ::7] = 1.0
    learner = DPAPVI()
    warm = np.ones((4, 2))  # compiles, or loads what was compiled
    kernels.project_table(warm, warm[:, 0].copy(), warm[:, 1].copy(), warm, np.empty(4))
    for name, rewards in (("unknown", None), ("known", known)):
        begin, used, before = time.perf_counter(), time.process_time(), peak()
        with cProfile.Profile() as profile:
            learned = learner.learn(release, ProblemSpec(release.layout, known_rewards=rewards))
        took, used = time.perf_counter() - begin, time.process_time() - used
        print(f"{name} rewards: {took:.2f} s ({used:.2f} s of processors), peak {peak():.2f} GB "
              f"(before: {before:.2f} GB), supported {learned.supported.mean():.3f}, "
              f"V {learned.values[0].max():.3f}")  # fmt: skip
        table = pstats.Stats(profile)
        rows = sorted(table.stats.items(), key=lambda item: -item[1][2])[:9]  # type: ignore[attr-defined]
        for (file, _, function), (_, calls, own, *_rest) in rows:
            print(f"    {own:7.2f} s  {calls:6d} x  {Path(file).name}:{function}")


def write(path: str, layout: Layout, sigma: float) -> None:
    steps, rows, cells = layout.horizon, layout.rows, layout.rows * (layout.states + 2)
    sizes = {"visits": rows, "transition_counts": rows * layout.states, "centered_reward_sums": rows}
    laws = {
        name: GaussianSumLaw(sigma, 1.0, 1, steps * size, steps * rows, size // rows, 1.0,
                             2.0**-10 if name == "centered_reward_sums" else 1.0)
        for name, size in sizes.items()
    }  # fmt: skip
    facts = ReleaseFacts(layout=layout, users=USERS, guarantee=no_guarantee("seeded"), laws=laws)
    made, begin = 0.0, time.perf_counter()

    def timed() -> Iterator[StepSums]:
        nonlocal made
        source = sums(layout, sigma)
        while True:
            start = time.perf_counter()
            step = next(source, None)
            made += time.perf_counter() - start
            if step is None:
                return
            yield step

    write_release(path, timed(), facts)
    took, size = time.perf_counter() - begin - made, os.path.getsize(path)
    print(f"{steps * cells:.3g} cells; written in {took:.1f} s, peak {peak():.2f} GB (with their making); "
          f"{size / 1e6:.0f} MB, {size / cells / steps:.3f} bytes a cell")  # fmt: skip


def check(path: str) -> None:
    begin = time.perf_counter()
    read_release(path).check()
    print(f"checked in {time.perf_counter() - begin:.1f} s, peak {peak():.2f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("states", 716), ("actions", 25), ("horizon", 20), ("pairs", 2304)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--sigma", type=float, default=20.0)
    parser.add_argument("--stage", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage is None:
        with tempfile.TemporaryDirectory() as folder:
            for stage in ("write", "check", "plan"):
                file = os.path.join(folder, "release.parquet")
                subprocess.run([sys.executable, *sys.argv, "--stage", stage, file], check=True)
        return
    stage, path = options.stage
    if stage == "write":
        layout = layout_of(options.states, options.actions, options.horizon, options.pairs)
        write(path, layout, options.sigma)
    elif stage == "check":
        check(path)
    else:
        plan(path)


if __name__ == "__main__":
    main()
