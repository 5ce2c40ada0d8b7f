"""Qiao and Wang 2023, Figure 1: PEVI, VAPVI and DP-VAPVI on the synthetic linear MDP, and better estimators.

Both panels of the figure show v* - v^pi against the number K of episodes, from 5 to 1000, H = 20: panel (a)
PEVI, VAPVI and DP-VAPVI at rho = 1 and 25, panel (b) VAPVI and DP-VAPVI at rho = 0.1, 1, 5, 25. Here they are
one table of curves:

- PEVI and VAPVI with several constants;
- DP-VAPVI with the noise that the paper states, on features in the unit ball, where the stated rho is right,
  and on the features as printed, whose norms are up to sqrt(7);
- the latter with all noise divided by 100 (drawn as for 10^4 rho): where the published shape appears;
- our estimators at a true rho;
- every algorithm with the constant that is best on instances that no other curve uses: the baselines too.

Instances and seeds are not those of :data:`REFERENCE`, a second implementation's means: a check from outside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.envs import synthetic_linear_behaviour, synthetic_linear_mdp
from discreet.envs.mdp.planning import optimal_values, policy_value
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.learners.offline.linear_pevi import DPPEVI, DPVAPVI, PEVI, VAPVI, Linear, learn_linear
from discreet.mechanisms.features import Features
from discreet.mechanisms.linear.sensitivities import gram_mu, vector_sensitivity
from discreet.mechanisms.policy_rows import policy_rows
from papers.page import standard_error
from papers.study import Job, Kept, file_name

Floats = NDArray[np.float64]

USERS = (5, 10, 25, 50, 100, 250, 500, 1000, 3000)
RHOS = (0.1, 1.0, 5.0, 25.0)
FIRST_INSTANCE, FIRST_TUNING = 7000, 9000  # of the curves, and of the choice of constants
GRID = (0.0, 0.001, 0.002, 0.005, 0.01, 0.03, 0.1, 0.3)  # of c and of C
_DIVIDED = 100.0


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of the table.

    raw : on the features as printed. divided : what all noise is divided by (the budget is then no
    guarantee that anybody stated). reference : a second implementation's means at USERS, if it has them.
    """

    name: str
    learner: Linear
    raw: bool = False
    divided: float = 1.0
    reference: tuple[float, ...] | None = None

    @property
    def family(self) -> str:
        """The algorithm, for the choice of its constant."""
        return self.name.split(",")[0]


# Means over 10 instances with 2 or 4 data sets each, of other codes.
REFERENCE: Mapping[str, tuple[float, ...]] = {
    "PEVI, c = 0.005": (8.77, 8.23, 2.56, 0.89, 0.42, 0.10, 0.04, 0.02, 0.02),
    "PEVI, c = 0.01": (8.88, 8.88, 8.88, 8.40, 2.25, 0.74, 0.35, 0.17, 0.05),
    "PEVI, c = 0.02": (8.88, 8.88, 8.88, 8.88, 8.88, 7.28, 1.50, 0.77, 0.27),
    "VAPVI, C = 0.01": (3.68, 2.02, 1.95, 1.47, 0.52, 0.10, 0.04, 0.02, 0.01),
    "VAPVI, C = 0.1": (3.78, 2.14, 1.40, 0.86, 0.37, 0.08, 0.03, 0.02, 0.01),
    "DP-VAPVI as printed, ρ = 0.1": (7.26, 7.26, 7.27, 7.26, 7.22, 7.10, 7.07, 7.03, 6.89),
    "DP-VAPVI as printed, ρ = 1": (7.27, 7.24, 7.20, 7.21, 7.07, 7.01, 7.06, 6.90, 6.58),
    "DP-VAPVI as printed, ρ = 5": (7.23, 7.20, 7.13, 7.05, 7.04, 7.02, 6.85, 6.58, 6.38),
    "DP-VAPVI as printed, ρ = 25": (7.10, 7.17, 7.05, 6.95, 7.03, 6.79, 6.56, 6.30, 5.94),
    "DP-VAPVI, printed features, ρ = 25": (7.99, 7.95, 8.00, 8.01, 7.86, 7.70, 7.42, 6.82, 4.05),
    "DP-VAPVI, printed features, noise ÷ 100, ρ = 0.1": (
        7.91, 7.99, 7.96, 7.69, 7.50, 6.08, 3.49, 1.34, 0.14,
    ),
    "DP-VAPVI, printed features, noise ÷ 100, ρ = 1": (
        7.69, 7.73, 7.77, 7.20, 5.87, 1.73, 0.61, 0.13, 0.02,
    ),
    "DP-VAPVI, printed features, noise ÷ 100, ρ = 5": (
        7.33, 7.53, 7.50, 5.67, 2.42, 0.52, 0.12, 0.03, 0.01,
    ),
    "DP-VAPVI, printed features, noise ÷ 100, ρ = 25": (
        6.87, 7.06, 6.11, 2.77, 0.86, 0.13, 0.04, 0.02, 0.01,
    ),
    "DP-PEVI, declared range, ρ = 1": (5.01, 4.96, 4.86, 4.73, 4.42, 3.83, 3.08, 2.32, 1.75),
    "DP-PEVI, declared range, ρ = 25": (4.93, 4.82, 4.31, 3.94, 3.32, 2.27, 1.87, 1.34, 0.61),
    "DP-PEVI, ρ = 0.1": (5.32, 5.27, 5.39, 5.08, 4.96, 4.31, 3.73, 2.87, 1.42),
    "DP-PEVI, ρ = 1": (5.28, 5.51, 5.23, 4.87, 4.25, 3.27, 2.25, 1.45, 0.48),
    "DP-PEVI, ρ = 5": (5.81, 5.30, 5.00, 4.49, 3.50, 2.18, 1.40, 0.74, 0.14),
    "DP-PEVI, ρ = 25": (5.87, 5.39, 4.50, 3.50, 2.50, 1.33, 0.67, 0.26, 0.03),
    "model form, ρ = 1": (5.92, 5.75, 5.56, 5.08, 4.78, 3.81, 2.62, 1.57, 0.49),
}  # fmt: skip


def curves() -> tuple[Curve, ...]:
    """The table's lines with constants that were not chosen here."""
    found: list[tuple[str, Linear, bool, float]] = [
        (f"PEVI, c = {c:g}", PEVI(c=c), False, 1.0) for c in (0.005, 0.01, 0.02)
    ]
    found += [(f"VAPVI, C = {c:g}", VAPVI(C=c), False, 1.0) for c in (0.01, 0.1)]
    for rho in RHOS:
        printed = DPVAPVI(rho=rho, preset="figure-1")
        smaller = DPVAPVI(rho=rho * _DIVIDED**2, preset="figure-1")
        found += [
            (f"DP-VAPVI as printed, ρ = {rho:g}", printed, False, 1.0),
            (f"DP-VAPVI, printed features, ρ = {rho:g}", printed, True, 1.0),
            (f"DP-VAPVI, printed features, noise ÷ 100, ρ = {rho:g}", smaller, True, _DIVIDED),
            (f"DP-PEVI, ρ = {rho:g}", DPPEVI(rho=rho), False, 1.0),
            (f"model form, ρ = {rho:g}", DPPEVI(rho=rho, response="model"), False, 1.0),
        ]
    for rho in (1.0, 25.0):
        separate = DPPEVI(rho=rho, range="declared", joint=False)
        found.append((f"DP-PEVI, declared range, ρ = {rho:g}", separate, False, 1.0))
    return tuple(Curve(*line, REFERENCE.get(line[0])) for line in found)


def tunable() -> tuple[Curve, ...]:
    """What the constants are chosen for, each at one rho: PEVI's c, everybody else's C."""
    found = [Curve("PEVI, own best c", PEVI()), Curve("VAPVI, own best C", VAPVI())]
    for rho in RHOS:
        found += [
            Curve(f"DP-VAPVI as printed, own best C, ρ = {rho:g}", DPVAPVI(rho=rho, preset="figure-1")),
            Curve(f"DP-PEVI, own best C, ρ = {rho:g}", DPPEVI(rho=rho)),
            Curve(f"model form, own best C, ρ = {rho:g}", DPPEVI(rho=rho, response="model")),
        ]
    return tuple(found)


def with_constant(curve: Curve, constant: float) -> Curve:
    """The curve at another constant."""
    name = "c" if isinstance(curve.learner, PEVI) else "C"
    learner = replace(curve.learner, **{name: constant})  # type: ignore[arg-type]
    return replace(curve, learner=learner)


class Worlds:
    """Instances with their behaviour policy and v*; printed and normalised features are one MDP."""

    def __init__(self, first: int, number: int) -> None:
        self.first, self.number = first, checks.integer("instances", number, 2)
        self._made: dict[int, Any] = {}

    def __getitem__(self, i: int) -> Any:
        if i not in self._made:
            one = synthetic_linear_mdp(seed=self.first + i)
            table = one.to_tabular()
            behaviour = policy_rows(table.layout, synthetic_linear_behaviour())
            best = float(table.initial @ optimal_values(table)[0][0])
            raw = synthetic_linear_mdp(seed=self.first + i, raw_features=True)
            self._made[i] = table, behaviour, best, {False: one.features, True: raw.features}
        return self._made[i]


def gaps(curve: Curve, users: int, worlds: Worlds, runs: int) -> tuple[Floats, float | None, float | None]:
    """(instances, runs) suboptimality v* - v^pi, and the true rho and epsilon at delta = 1e-6 (None: none).

    All curves meet the same people at an (instance, run, users), and fresh noise.
    """
    found = np.empty((worlds.number, checks.integer("runs", runs, 1)))
    rho = epsilon = None
    for i, run in itertools.product(range(worlds.number), range(runs)):
        table, behaviour, best, features = worlds[i]
        data = rollout_batch(table, behaviour, users, worlds.first + i, run)
        noise = Seeded((worlds.first + i) * 10_000 + users, run)
        learned = learn_linear(curve.learner, table.layout, features[curve.raw], data, noise)
        found[i, run] = best - policy_value(table, learned.policy)
        if learned.guarantee is not None:
            rho, epsilon = learned.guarantee.rho, learned.guarantee.epsilon
    return found, rho, epsilon


def error(found: Floats) -> float:
    """Standard error over the instances, each the mean of its runs."""
    return standard_error(found.mean(axis=1))


def reference_error(found: Floats) -> float:
    """That of the reference's mean, from our spread: 10 instances of 2 runs, printed to .01."""
    runs = found.shape[1]
    within = float(found.var(axis=1, ddof=1).mean()) if runs > 1 else 0.0
    between = max(float(found.mean(axis=1).var(ddof=1)) - within / runs, 0.0)
    return math.sqrt((between + within / 2) / 10 + 0.01**2 / 12)


def enumerated_rho(learner: DPVAPVI, layout: Layout, features: Features) -> float:
    """What the printed noise costs if the public table of features is all that a person can have.

    A smaller number than the guarantee's, which knows the bound of the norms only. For y in [0, c],
    ||x y - x' y'|| is convex in (y, y') and hence largest at c ||x|| or c ||x - x'||.
    """
    x = np.unique(features.rows, axis=0)
    squares, inner = (x**2).sum(axis=1), x @ x.T
    gram = math.sqrt(float((squares[:, None] ** 2 + squares**2 - 2 * inner**2).max()))
    apart = math.sqrt(float(max((squares[:, None] + squares - 2 * inner).max(), squares.max())))
    row: Any = "raw-nonneg" if features.nonneg else "raw"
    shares = {
        "gram": gram / math.sqrt(2) / gram_mu(features.bound, 1.0),
        "response": apart / vector_sensitivity(features.bound, 1.0, row),
    }
    total = sum((float(q.mu or 0.0) * shares[q.kind]) ** 2 for q in learner.questions(layout, features))
    return total / 2


@dataclass(frozen=True)
class Size:
    """What is run: instances and data sets of each, for the table and for the choice of constants."""

    users: tuple[int, ...] = USERS
    instances: int = 20
    runs: int = 2
    tuning_instances: int = 5
    tuning_runs: int = 2
    grid: tuple[float, ...] = GRID


FULL = Size()
QUICK = Size((25, 250, 1000), instances=4, runs=1, tuning_instances=2, tuning_runs=1, grid=(0.005, 0.1))


def measured(folder: Path, curve: Curve, worlds: Worlds, users: Sequence[int], runs: int) -> Kept:
    """A line each user number, instance and run: the gap, and the curve's true rho and epsilon."""
    facts = {
        "curve": curve.name, "learner": repr(curve.learner), "raw": curve.raw, "users": list(users),
        "first": worlds.first, "instances": worlds.number, "runs": runs,
    }  # fmt: skip
    make = partial(_measured, curve, worlds, users, runs)
    return Kept(folder / file_name("linear", curve.name), facts, make)


def _measured(curve: Curve, worlds: Worlds, users: Sequence[int], runs: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for n in users:
        found, rho, epsilon = gaps(curve, n, worlds, runs)
        lines += [
            {"users": n, "instance": i, "run": run, "gap": float(gap), "rho": rho, "epsilon": epsilon}
            for (i, run), gap in np.ndenumerate(found)
        ]
    return lines


def chosen_constants(job: Job, tuned: Sequence[Curve], worlds: Worlds, size: Size) -> list[float]:
    """The constant of each with the least mean gap over all K, on ``worlds`` that no curve shows."""
    wanted = {}
    for curve, constant in itertools.product(tuned, size.grid):
        one = replace(with_constant(curve, constant), name=f"tuning {curve.name}, {constant:g}")
        wanted[curve.name, constant] = measured(job.folder, one, worlds, size.users, size.tuning_runs)
    means = {
        key: float(np.array([line["gap"] for line in lines]).mean())
        for key, lines in job.tables(wanted).items()
    }
    return [min(size.grid, key=lambda c: means[curve.name, c]) for curve in tuned]


def run(job: Job, size: Size = FULL) -> dict[str, Any]:
    """The whole table, resumable: a Parquet file a curve in the job's folder, and all of it as plain values.

    Returns
    -------
    dict
        ``users``, ``instances``, ``runs``; ``enumerated_rho``: of the printed noise at rho = 1, by features;
        ``rows``: curve, family, constant (chosen or None), divided, rho and epsilon (true ones, at
        delta = 1e-6; None: not private), mean, error, reference and z (None where there is none).
    """
    worlds = Worlds(FIRST_INSTANCE, size.instances)
    apart, tuned = Worlds(FIRST_TUNING, size.tuning_instances), tunable()
    lines: list[tuple[Curve, float | None]] = [(curve, None) for curve in curves()]
    for curve, best in zip(tuned, chosen_constants(job, tuned, apart, size), strict=True):
        lines.append((with_constant(curve, best), best))
    job.say("reproduce: Figure 1: constants chosen")
    kept = job.tables(
        {curve.name: measured(job.folder, curve, worlds, size.users, size.runs) for curve, _ in lines}
    )
    shape = len(size.users), worlds.number, size.runs
    rows = []
    for curve, constant in lines:
        found = kept[curve.name]
        gaps_found = np.array([line["gap"] for line in found]).reshape(shape)
        means = [float(table.mean()) for table in gaps_found]
        wanted = zs = None
        if curve.reference is not None:
            wanted = [curve.reference[USERS.index(n)] for n in size.users]
            zs = [
                (mean - want) / math.hypot(error(table), reference_error(table))
                for mean, want, table in zip(means, wanted, gaps_found, strict=True)
            ]
        rows.append(
            {
                "curve": curve.name, "family": curve.family, "constant": constant, "divided": curve.divided,
                "rho": found[0]["rho"], "epsilon": found[0]["epsilon"], "mean": means,
                "error": [error(table) for table in gaps_found], "reference": wanted, "z": zs,
            }
        )  # fmt: skip
        job.say(f"reproduce: Figure 1, {curve.name}: " + ", ".join(f"{mean:.2f}" for mean in means))
    layout = worlds[0][0].layout
    printed = DPVAPVI(rho=1.0, preset="figure-1")
    enumerated = {
        name: enumerated_rho(printed, layout, worlds[0][3][raw])
        for name, raw in (("unit ball", False), ("as printed", True))
    }
    return {
        "users": list(size.users), "instances": size.instances, "runs": size.runs,
        "enumerated_rho": enumerated, "rows": rows,
    }  # fmt: skip
