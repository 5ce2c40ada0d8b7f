"""UCRL-VTR on mixtures: regret by budget, targets, schedule and bonus (benchmarks/linear.md has the tables).

    python benchmarks/ucrl_vtr.py [--world linear-mixture] [--episodes 4000] [--seeds 10]
        [--instances 0,1,2,100] [--quick | --rewards]

Worlds: ``linear-mixture`` with S = 8, A = 4, H = 5, d = 5, or ``hypercube`` with S = 8, A = 16, H = 6, d = 5
(its rows: no privacy and central budgets, both learners, several bonuses). Of each row: mean regret at K / 4,
K / 2, K over all runs, the standard error of the last, its mean by instance, regret per user over the last
eighth of the users (interpolated where a batch is longer), seconds of CPU per run. Rows that plan for every
user take a third of the repetitions; ``--quick`` leaves them out.
``--rewards``: how unknown rewards are estimated, in mixtures whose rewards are mixtures of 5 tables. Run it
with OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import discreet as dr
from discreet.envs.mdp import planning
from discreet.experiments.simulate import simulate
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus

DELTA = 1e-5


def rows(quick: bool) -> Iterator[tuple[str, Any, Any]]:
    none = dr.NoPrivacy()
    joint = {e: dr.Central(epsilon=e, delta=DELTA) for e in (1.0, 10.0)}
    local = {e: dr.Local(epsilon=e, delta=DELTA) for e in (1.0, 10.0)}
    yield "none", UCRLVTR(), none
    for e in (10.0, 1.0):
        yield f"JDP {e:g}", UCRLVTR(), joint[e]
        yield f"JDP {e:g}, own sums", UCRLVTR(), dr.Central(epsilon=e, delta=DELTA, release="batches")
        yield f"JDP {e:g}, tree", UCRLVTR(), dr.Central(epsilon=e, delta=DELTA, release="tree")
        yield f"JDP {e:g}, first ties", UCRLVTR(tie_break="first"), joint[e]
        yield f"JDP {e:g}, ridge 1", UCRLVTR(ridge=1.0), joint[e]
        yield f"JDP {e:g}, bonus 0", UCRLVTR(bonus_scale=0.0), joint[e]
        yield f"JDP {e:g}, bonus .1", UCRLVTR(bonus_scale=0.1), joint[e]
        yield f"JDP {e:g}, bonus 1, ridge bound", UCRLVTR(bonus_scale=1.0, ridge="bound"), joint[e]
        yield f"JDP {e:g}, centred", UCRLVTR(targets="centred"), joint[e]
        yield f"JDP {e:g}, raw", UCRLVTR(targets="raw"), joint[e]
        yield f"JDP {e:g}, VTR+", UCRLVTRPlus(), joint[e]
        yield f"LDP {e:g}", UCRLVTR(), local[e]
        yield f"LDP {e:g}, ridge 2", UCRLVTR(ridge=2.0), local[e]
    yield "none, centred", UCRLVTR(targets="centred"), none
    yield "none, raw", UCRLVTR(targets="raw"), none
    yield "none, bonus 1", UCRLVTR(bonus_scale=1.0), none
    yield "none, VTR+", UCRLVTRPlus(), none
    yield "none, unknown rewards", UCRLVTR(known_rewards=False), none
    yield "JDP 10, unknown rewards", UCRLVTR(known_rewards=False), joint[10.0]
    if quick:
        return
    every = UCRLVTR(replan_every=1)
    yield "none, every", every, none
    yield "JDP 10, every", every, joint[10.0]
    yield "JDP 1, every", every, joint[1.0]
    determinant = UCRLVTR(replan_every=1, switching="determinant")
    yield "none, determinant", determinant, none
    yield "JDP 10, determinant", determinant, joint[10.0]
    yield "none, raw, every, bonus .1", UCRLVTR(targets="raw", replan_every=1), none
    for e in (1.0, 10.0):
        paper = dr.Central(epsilon=e, delta=DELTA, calibration="published")
        yield f"JDP {e:g} as printed", UCRLVTR(preset="paper"), paper
        yield f"JDP {e:g} as printed, bonus 0", UCRLVTR(preset="paper", bonus_scale=0.0), paper


def reward_rows(quick: bool) -> Iterator[tuple[str, Any, Any]]:
    budgets = [
        ("none", dr.NoPrivacy()),
        *((f"JDP {e:g}", dr.Central(epsilon=e, delta=DELTA)) for e in (10.0, 1.0)),
    ]
    for name, privatizer in [*budgets, ("LDP 10", dr.Local(epsilon=10.0, delta=DELTA))]:
        yield f"{name}, known rewards", UCRLVTR(), privatizer
        yield f"{name}, by features", UCRLVTR(known_rewards=False), privatizer
        yield f"{name}, by pairs", UCRLVTR(known_rewards=False, reward_form="tabular"), privatizer


def hypercube_rows(quick: bool) -> Iterator[tuple[str, Any, Any]]:
    """No privacy, central epsilon 10 and 1; a bonus from 0 to the theorem's."""
    privatizers = {"none": dr.NoPrivacy()} | {f"JDP {e}": dr.Central(epsilon=e, delta=DELTA) for e in (10, 1)}
    for name, privatizer in privatizers.items():
        for title, learner in (("VTR", UCRLVTR), ("VTR+", UCRLVTRPlus)):
            yield f"{name}, {title}", learner(), privatizer
            for scale in (0.0, 0.3, 1.0):
                ridge = "bound" if scale == 1.0 else None
                yield f"{name}, {title}, bonus {scale:g}", learner(bonus_scale=scale, ridge=ridge), privatizer
        yield f"{name}, VTR, growth 1.1", UCRLVTR(replan_growth=1.1), privatizer
        if not quick:
            yield f"{name}, VTR, every", UCRLVTR(replan_every=1), privatizer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--world", choices=("linear-mixture", "hypercube"), default="linear-mixture")
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--instances", default="0,1,2,100")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rewards", action="store_true")
    given = parser.parse_args()
    options = {"reward_models": 5} if given.rewards else {}
    worlds = [dr.make(given.world, seed=int(i), **options) for i in given.instances.split(",")]
    best = [float(w.initial @ planning.optimal_values(w)[0][0]) for w in worlds]
    gaps = [
        b - planning.policy_value(w, planning.uniform_policy(w)) for w, b in zip(worlds, best, strict=True)
    ]
    myopic = [
        b - planning.policy_value(w, w.rewards.argmax(axis=2)) for w, b in zip(worlds, best, strict=True)
    ]
    k = given.episodes
    uniform, greedy = k * np.mean(gaps), k * np.mean(myopic)
    print(f"regret of {k} users: uniform policy {uniform:.0f}, largest reward at once {greedy:.0f}")
    print(f"| | R({k // 4}) | R({k // 2}) | R({k}) | standard error | by instance | last slope | s a run |")
    print("|---|---|---|---|---|---|---|---|")
    table_rows = hypercube_rows if given.world == "hypercube" else reward_rows if given.rewards else rows
    for name, learner, privatizer in table_rows(given.quick):
        begin = time.process_time()
        every = learner.replan_every == 1
        seeds = max(1, given.seeds // 3) if every else given.seeds
        curves = []
        for world in worlds:
            found = simulate(world, learner, privatizer, k, seeds=seeds, workers=1)
            at = [k // 4, k // 2, k - k // 8, k]
            curves.append([np.interp(at, found.episodes, one) for one in found.regret])
        table = np.array(curves)  # (instances, seeds, 4)
        seconds = (time.process_time() - begin) / (len(worlds) * seeds)
        mean = table.mean(axis=(0, 1))
        error = table[:, :, 3].std(ddof=1) / np.sqrt(table[:, :, 3].size)
        slope = (mean[3] - mean[2]) / (k / 8)
        each = " ".join(f"{value:.0f}" for value in table[:, :, 3].mean(axis=1))
        print(
            f"| {name} | {mean[0]:.0f} | {mean[1]:.0f} | {mean[3]:.0f} | {error:.0f} | {each} | {slope:.3f} "
            f"| {seconds:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
