"""Luyo et al. 2021, private exploration with linear representations: the algorithms, measured.

The paper ("Differentially Private Exploration in Reinforcement Learning with Linear Representation", arXiv
2112.01585) is about regret bounds; :func:`run` measures the algorithms on random worlds,
K = 4000 and delta = 1e-5:

- UCRL-VTR on linear mixtures without privacy, under joint and under local privacy, as printed (the paper's
  noise, ridge, bonus and a plan for every user) and by our defaults at a true epsilon; UCRL-VTR+ beside it;
- batched LSVI-UCB in model form on linear MDPs, by the number of batches.

In every panel stand policies that need no data: uniformly random play, the largest reward of the moment
("myopic"), and what the learner itself plays before the first user ("never learning"). Without them the
printed JDP would look as if it learned: its ridge is so large that its policy is hardly a function of data.

Growth exponents are slopes of log R(k) against log k over the second half of a run, of the mean over runs.
A bound R(K) = O(K^a) speaks about learners that know their K, and about all worlds: a fitted exponent
below the theory's contradicts nothing, one above it says that the asymptotics have not begun.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.envs import linear_mixture, random_linear
from discreet.experiments.simulate import Setup
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from papers.page import standard_error
from papers.references import mean_losses
from papers.study import Job, Kept, Lines, file_name

Floats = NDArray[np.float64]
DELTA = 1e-5
THEORY = {"none": 1 / 2, "joint": 1 / 2, "local": 3 / 4}  # of R(K); Luyo et al., corollaries 5 and 6
THEORY_BATCHED = 3 / 5  # of private LSVI-UCB with B as the paper sets it


@dataclass(frozen=True)
class Size:
    """How much is run: users, instances and seeds a row (``printed_seeds`` where every user gets a plan)."""

    users: int
    instances: tuple[int, ...]
    seeds: int
    printed_seeds: int
    worlds: int
    batches: tuple[int, ...]


FULL = Size(4000, (0, 1, 2, 100), 10, 3, 24, (10, 20, 40, 80))
QUICK = Size(500, (0, 1), 2, 1, 4, (5, 20))


@dataclass(frozen=True)
class Row:
    """A curve of the mixtures: ``group`` is "printed", "ours" or "plus"; epsilon None: no privacy."""

    name: str
    group: str
    learner: Any
    privatizer: Any
    epsilon: float | None

    @property
    def trust(self) -> str:
        """Trust model: "none", "joint" or "local"."""
        found: str = self.privatizer.budget.trust
        return found


def rows() -> list[Row]:
    """Curves of the mixtures, in the order of the tables."""
    none = NoPrivacy()
    paper, greedy = UCRLVTR(preset="paper"), UCRLVTR(preset="paper", bonus_scale=0.0)
    found = [Row("none, as printed", "printed", paper, none, None)]
    for e in (10.0, 1.0):
        noise = Central(epsilon=e, delta=DELTA, calibration="published")
        found.append(Row(f"JDP {e:g}, as printed", "printed", paper, noise, e))
        found.append(Row(f"JDP {e:g}, as printed, bonus 0", "printed", greedy, noise, e))
    for e in (10.0, 1.0):
        local = Local(epsilon=e, delta=DELTA, calibration="published")
        found.append(Row(f"LDP {e:g}, as printed", "printed", paper, local, e))
    found.append(Row("none", "ours", UCRLVTR(), none, None))
    for e in (10.0, 1.0):
        found.append(Row(f"JDP {e:g}", "ours", UCRLVTR(), Central(epsilon=e, delta=DELTA), e))
        tree = Central(epsilon=e, delta=DELTA, release="tree")
        found.append(Row(f"JDP {e:g}, tree", "ours", UCRLVTR(), tree, e))
    found += [Row(f"LDP {e:g}", "ours", UCRLVTR(), Local(epsilon=e, delta=DELTA), e) for e in (10.0, 1.0)]
    found.append(Row("none, VTR+", "plus", UCRLVTRPlus(), none, None))
    for e in (10.0, 1.0):
        found.append(Row(f"JDP {e:g}, VTR+", "plus", UCRLVTRPlus(), Central(epsilon=e, delta=DELTA), e))
    return found


def grid(users: int) -> NDArray[np.int64]:
    """Numbers of users at which curves are kept: even in the logarithm, then nine in the second half."""
    early = np.geomspace(1, users / 2, 24)
    return np.unique(np.round(np.append(early, np.linspace(users / 2, users, 9))).astype(np.int64))


def exponent(users: Sequence[float], regret: Sequence[float]) -> float:
    """Slope of log regret against log users over the second half."""
    k, r = np.array(users, float), np.array(regret, float)
    late = k >= k[-1] / 2
    return float(np.polyfit(np.log(k[late]), np.log(np.maximum(r[late], 1e-12)), 1)[0])


def _curves(setup: Setup, path: Path, facts: dict[str, Any], at: Floats, runs: Sequence[Any]) -> Kept:
    """(grid, runs) regret of (seed, run) pairs; between releases the mean grows evenly."""
    return Kept(path, facts, partial(_played, setup, at, runs))


def _played(setup: Setup, at: Floats, runs: Sequence[Any]) -> list[dict[str, float]]:
    found = [setup.run(seed, run) for seed, run in runs]
    curves = [np.interp(at, np.append(0, one.episodes), np.append(0.0, one.regret)) for one in found]
    return [{f"run {i}": float(v) for i, v in enumerate(line)} for line in zip(*curves, strict=True)]


def _runs(lines: Lines) -> Floats:
    """(runs, grid) of such a table."""
    return np.array([list(line.values()) for line in lines]).T


def _mixture(job: Job, size: Size) -> dict[str, Any]:
    worlds = {i: linear_mixture(seed=i) for i in size.instances}
    at = grid(size.users).astype(np.float64)
    facts = {"users": size.users, "delta": DELTA}
    wanted, setups = dict[tuple[str, int], Kept](), dict[str, Setup]()
    for row in rows():
        seeds = size.printed_seeds if row.learner.replan_every == 1 else size.seeds
        for i, mdp in worlds.items():
            setup = setups[row.name] = Setup(mdp, row.learner, row.privatizer, size.users)
            made = {**facts, "world": i, "seeds": seeds, "of": [repr(row.learner), repr(row.privatizer)]}
            runs = [(0, run) for run in range(seeds)]
            path = job.folder / file_name("mixture", row.name, i)
            wanted[row.name, i] = _curves(setup, path, made, at, runs)
    found, table, raw = job.tables(wanted), [], {}
    for row in rows():
        curves = np.array([_runs(found[row.name, i]) for i in worlds])  # (instances, seeds, grid)
        raw[row.name] = curves
        table.append(_summary(row, setups[row.name].guarantee, at, curves))
        job.say(f"{row.name:28s} R({size.users}) = {table[-1]['final']:.0f} ± {table[-1]['error']:.0f}")
    references = {}
    for group in ("printed", "ours"):  # before any data a learner plays the same at both epsilons
        first = next(row for row in rows() if row.trust == "joint" and row.group == group)
        references[group] = mean_losses(worlds.values(), first.learner, first.privatizer)
    pairs = ("JDP{}, as printed", "JDP{}, as printed, bonus 0", "LDP{}, as printed", "JDP{}")
    differences = {}  # of final regret, the largest of all runs: equal seeds have equal environments
    for name in pairs:
        one, other = (raw[name.format(f" {e:g}")][:, :, -1] for e in (1.0, 10.0))
        differences[name] = float(np.max(np.abs(one - other) / np.maximum(other, 1e-12)))
    return {
        "users": at.tolist(),
        "instances": list(size.instances),
        "rows": table,
        "references": references,
        "differences": differences,
    }


def _summary(row: Row, guarantee: Any, at: Floats, curves: Floats) -> dict[str, Any]:
    """What is said of the curves (instances, seeds, grid) of a row."""
    mean, last = curves.mean(axis=(0, 1)), curves[:, :, -1]
    eighth = np.interp(at[-1] * 7 / 8, at, mean)
    half = int(np.searchsorted(at, at[-1] / 2))
    return {
        "curve": row.name, "group": row.group, "trust": row.trust, "epsilon": row.epsilon,
        "epsilon_true": guarantee.epsilon, "seeds": curves.shape[1], "mean": mean.tolist(),
        "half": float(mean[half]), "final": float(mean[-1]),
        "error": standard_error(last) if last.size > 1 else 0.0,
        "finals": last.tolist(), "slope": float((mean[-1] - eighth) / (at[-1] / 8)),
        "exponent": exponent(at.tolist(), mean.tolist()),
        "exponents": [exponent(at.tolist(), one.mean(axis=0).tolist()) for one in curves],
        "theory": THEORY[row.trust],
    }  # fmt: skip


def _lsvi(job: Job, size: Size) -> dict[str, Any]:
    worlds = [random_linear(seed=300 + i) for i in range(size.worlds)]
    at = grid(size.users).astype(np.float64)
    wanted, setups = dict[tuple[str, int], Kept](), dict[str, Setup]()
    lines = []
    for epsilon, batches in itertools.product((None, 10.0, 1.0), size.batches):
        privatizer: Any = (
            NoPrivacy() if epsilon is None else Central(epsilon=epsilon, delta=DELTA, release="batches")
        )
        learner = LSVIUCB(replan_every=-(-size.users // batches), response="model")
        name = f"{'none' if epsilon is None else f'JDP {epsilon:g}'}, B = {batches}"
        lines.append((Row(name, "lsvi", learner, privatizer, epsilon), batches))
        for i, mdp in enumerate(worlds):
            setup = setups[name] = Setup(mdp, learner, privatizer, size.users, by="batch")
            made = {
                "users": size.users, "delta": DELTA, "world": 300 + i,
                "of": [repr(learner), repr(privatizer)],
            }  # fmt: skip
            path = job.folder / file_name("lsvi", name, i)
            wanted[name, i] = _curves(setup, path, made, at, [(i, 0)])
    kept, table = job.tables(wanted), []
    for row, batches in lines:
        curves = np.array([_runs(kept[row.name, i])[0] for i in range(size.worlds)])
        found = _summary(row, setups[row.name].guarantee, at, curves[:, None])
        theory = None if row.epsilon is None else THEORY_BATCHED
        table.append({**found, "batches": batches, "theory": theory})
        job.say(f"{row.name:28s} R({size.users}) = {found['final']:.0f} ± {found['error']:.0f}")
    return {
        "users": at.tolist(),
        "worlds": size.worlds,
        "batches": list(size.batches),
        "rows": table,
        "references": mean_losses(worlds, LSVIUCB(response="model"), NoPrivacy()),
    }


def run(job: Job) -> dict[str, Any]:
    """Both studies.

    Returns
    -------
    dict
        ``mixture``, ``lsvi`` (users, rows, references: regret per user of policies without data), ``delta``.
    """
    size = QUICK if job.quick else FULL
    return {"delta": DELTA, "lsvi": _lsvi(job, size), "mixture": _mixture(job, size)}
