"""DP-APVI against APVI on random MDPs: the tabular panel, which the paper does not have.

Suboptimality v* - v^pi of the learned policy on random MDPs (S = 5, A = 3, H = 5; a row and a mean for every
step, rows Dirichlet(0.3), 30 % of the rewards uniform on [0, 1] and the rest 0; behaviour Dirichlet(0.5)
per step and state; rewards known), by the number n of trajectories. Rows:

- the algorithms as printed, whose constants clip everything to 0 at every n and rho;
- smaller constants at several rho, and the threshold alone;
- the non-private baseline with those constants, and with the private learner's threshold as well: what
  the threshold does by itself is no merit of privacy noise;
- both learners' defaults (least-squares counts for the private one, known rewards as a floor for both).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.rng import Seeded
from discreet.envs.mdp.planning import optimal_values, policy_value
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.offline_runs import SimulatedDataset, learn_offline
from discreet.learners.offline.apvi import APVI, DPAPVI
from discreet.learners.offline.interface import OfflineLearner
from discreet.mechanisms.interfaces import Privatizer, ProblemSpec
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.utils.atomic_file import write_aside
from discreet.utils.random_streams_kernels import ROLE_MODEL, generator_at, run_key
from papers.page import standard_error
from papers.study import Job, Kept, file_name

STATES, ACTIONS, HORIZON = 5, 3, 5
USERS = (100, 300, 1000, 3000, 10_000, 30_000)

# Means over 12 instances of a second implementation; their standard errors are .02 to .06.
REFERENCE: dict[str, tuple[float, ...]] = {
    "APVI, theory": (1.31, 1.31, 1.01, 0.71, 0.49, 0.30),
    "APVI, c1=.2 c3=.02": (0.46, 0.30, 0.22, 0.15, 0.10, 0.06),
    "DP-APVI, theory, rho=1": (1.31,) * 6,
    "DP-APVI, c1=.2 c2=.0003 c3=.02, rho=0.1": (0.54, 0.41, 0.27, 0.16, 0.11, 0.05),
    "DP-APVI, c1=.2 c2=.0003 c3=.02, rho=1": (0.41, 0.27, 0.18, 0.12, 0.09, 0.04),
    "DP-APVI, c1=.2 c2=.0003 c3=.02, rho=10": (0.43, 0.24, 0.19, 0.12, 0.07, 0.02),
    "DP-APVI, threshold alone, rho=1": (0.39, 0.20, 0.15, 0.11, 0.07, 0.04),
}
REFERENCE_ERROR = 0.06
_SIGMA = math.sqrt(2 * HORIZON)  # of a count at rho = 1


@dataclass(frozen=True, eq=False)
class Instance:
    """One random MDP with its behaviour policy (H, S, A), public facts and v*."""

    mdp: TabularMDP
    behaviour: NDArray[np.float64]
    spec: ProblemSpec
    best: float


def instance(number: int, seed: int = 2023) -> Instance:
    """Instance ``number`` of the panel: a function of both arguments alone."""
    key = run_key(checks.integer("seed", seed, 0), checks.integer("number", number, 0))
    draw = generator_at(key, ROLE_MODEL)
    shape = (HORIZON, STATES, ACTIONS)
    rows = draw.dirichlet(np.full(STATES, 0.3), shape)
    means = draw.uniform(size=shape) * (draw.uniform(size=shape) < 0.3)
    behaviour = draw.dirichlet(np.full(ACTIONS, 0.5), shape[:2])
    mdp = TabularMDP(rows, means, horizon=HORIZON, name=f"offline-{number}")
    best = float(mdp.initial @ optimal_values(mdp)[0][0])
    return Instance(mdp, behaviour, ProblemSpec(mdp.layout, known_rewards=means), best)


def rows() -> dict[str, tuple[OfflineLearner, Privatizer]]:
    """Name to learner and privatizer."""
    plain: dict[str, Any] = {"visits": "released", "combine": False, "reward_floor": False}
    scaled = {**plain, "c2": 0.0003}
    table: dict[str, tuple[OfflineLearner, Privatizer]] = {
        "APVI, theory": (APVI(preset="paper"), NoPrivacy()),
        "APVI, c1=.2 c3=.02": (APVI(reward_floor=False), NoPrivacy()),
        "APVI, c1=.2 c3=.02, threshold of rho=1": (
            APVI(reward_floor=False, min_visits=_SIGMA), NoPrivacy(),
        ),
        "DP-APVI as printed, rho=1": (DPAPVI(preset="paper"), Central(rho=1.0)),
        "DP-APVI, theory, rho=1": (DPAPVI(preset="theory", **plain), Central(rho=1.0)),
    }  # fmt: skip
    for rho in (0.1, 1.0, 10.0):
        table[f"DP-APVI, c1=.2 c2=.0003 c3=.02, rho={rho:g}"] = DPAPVI(**scaled), Central(rho=rho)
    alone = DPAPVI(c1=0.0, c2=0.0, c3=0.0, **plain)
    table["DP-APVI, threshold alone, rho=1"] = alone, Central(rho=1.0)
    table["APVI, default"] = APVI(), NoPrivacy()
    for rho in (0.1, 1.0, 10.0):
        table[f"DP-APVI, default, rho={rho:g}"] = DPAPVI(), Central(rho=rho)
    return table


def cell(
    learner: OfflineLearner, privatizer: Privatizer, users: int, instances: Sequence[Instance], runs: int = 1
) -> tuple[float, float]:
    """(mean suboptimality, its standard error over the instances), ``runs`` data sets and noises each."""
    runs = checks.integer("runs", runs, 1)
    gaps = np.empty((len(instances), runs))
    for i, one in enumerate(instances):
        for run in range(runs):
            data = SimulatedDataset(one.mdp, one.behaviour, users, seed=i, run=run)
            policy = learn_offline(data, learner, privatizer, Seeded(i, run), one.spec).policy
            gaps[i, run] = one.best - policy_value(one.mdp, policy)
    each = gaps.mean(axis=1)
    return float(each.mean()), standard_error(each)


@lru_cache(2)
def _worlds(instances: int) -> list[Instance]:
    return [instance(i) for i in range(instances)]


def _row(name: str, users: Sequence[int], instances: int, runs: int) -> list[dict[str, float]]:
    cells = [cell(*rows()[name], n, _worlds(instances), runs) for n in users]
    return [{"mean": mean, "error": error} for mean, error in cells]


def tabular_panel(
    job: Job, instances: int = 12, runs: int = 3, users: Sequence[int] = USERS
) -> dict[str, Any]:
    """The whole table; also as ``tabular-panel.json`` in the job's folder.

    Returns
    -------
    dict
        ``users``, ``instances``, ``runs``, and ``rows``: name to {``mean``, ``error``, ``reference``
        (a second implementation's mean; None where it has no such cell)}.
    """
    checks.integer("instances", instances, 2)
    document: dict[str, Any] = {"users": list(users), "instances": instances, "runs": runs, "rows": {}}
    wanted = {}
    for name, made in rows().items():
        facts = {
            "users": list(users),
            "instances": instances,
            "runs": runs,
            "of": [repr(one) for one in made],
        }
        make = partial(_row, name, users, instances, runs)
        wanted[name] = Kept(job.folder / file_name("tabular", name), facts, make)
    for name, cells in job.tables(wanted).items():
        reference = REFERENCE.get(name)
        document["rows"][name] = {
            "mean": [one["mean"] for one in cells],
            "error": [one["error"] for one in cells],
            "reference": None
            if reference is None
            else [reference[USERS.index(n)] if n in USERS else None for n in users],
        }
        job.say(f"{name:45s} " + "  ".join(f"{one['mean']:.3f} ± {one['error']:.3f}" for one in cells))
    path = job.folder / "tabular-panel.json"
    write_aside(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
    return document
