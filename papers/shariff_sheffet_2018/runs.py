"""Shariff and Sheffet 2018, differentially private contextual linear bandits: the algorithm, measured.

The paper (NeurIPS 2018, arXiv 1810.00068) releases prefix sums of (x, y)(x, y)^T through a binary tree, with
GOE noise in every node (its second mechanism, Wishart noise, is not run here), and plays LinUCB with a
shifted regulariser. :func:`run` measures it with the printed noise and with noise that has exactly the stated
epsilon, with the printed regulariser and width and with tuned ones, beside the library's learner.

*Sensitivity of the printed release.* Neighbours differ in one user's whole record (x, y), which is replaced
by (x', y'). With v = (x, y), ||x|| <= 1 and y in [0, 1], ||v||^2 <= 2 = L^2. By lemma 1 of
:mod:`discreet.mechanisms.linear.sensitivities`, ||v v^T - v' v'^T||_F <= sqrt(2) L^2 (attained at x' = -x and
y = y' = 1), and GOE(s) on a node is (L^2 / s)-GDP. A user is in at most m nodes, so all nodes are mu-GDP
with mu = sqrt(m) L^2 / s. With the printed s = 4 sqrt(m) L^2 log(4 / delta) / epsilon this is

    mu = epsilon / (4 log(4 / delta)),                                                                    (1)

whatever m and the number of features are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from discreet.core.epsilon_conversions import gdp_epsilon
from discreet.envs import fixed_arms, per_action_contexts, shared_contexts
from discreet.envs.context_worlds import ContextWorld
from discreet.experiments.context_runs import ContextSetup
from discreet.learners.online.lin_ucb import LinUCB
from discreet.learners.online.linear_bandit import LinearBandit
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from papers.page import standard_error
from papers.study import Job, Kept, Lines, file_name

DELTA = 1e-6
FIRST_SEED = 7000
GROWTH = 1.02  # a plan when the users grew by this factor; the paper makes one after every user
WORLDS = ("shared d5 A5", "per action p5 A5", "fixed arms d10 A20")


@dataclass(frozen=True)
class Size:
    """How much is run: users, and instances of each environment, with one run each."""

    users: int
    instances: int


FULL = Size(10_000, 4)
QUICK = Size(500, 2)


@dataclass(frozen=True)
class Row:
    """A line of the tables. epsilon : what is stated, None without privacy. true : what the noise has."""

    name: str
    learner: Any
    privatizer: Any
    epsilon: float | None
    true: float | None


def printed_scale(epsilon: float, users: int) -> float:
    """The printed scale s of the noise of a node: 4 sqrt(m) L^2 log(4 / delta) / epsilon with L^2 = 2."""
    return 8.0 * math.sqrt(nodes(users)) * math.log(4.0 / DELTA) / epsilon


def nodes(users: int) -> int:
    """The paper's number m of nodes that contain a user."""
    return 1 + math.ceil(math.log2(users))


def true_epsilon(epsilon: float) -> float:
    """The epsilon of the printed release at ``DELTA``, from (1)."""
    return gdp_epsilon(epsilon / (4.0 * math.log(4.0 / DELTA)), DELTA)


def rows(users: int) -> list[Row]:
    """The lines of the table, in its order."""
    printed = LinUCB(preset="paper", growth=GROWTH)
    greedy = LinUCB(preset="paper", growth=GROWTH, bonus_scale=0.0)
    tuned = LinUCB(growth=GROWTH, bonus_scale=0.001753, ridge=6.475)
    found = [Row("no privacy, as printed", printed, NoPrivacy(), None, None)]
    for e in (10.0, 1.0):
        # our sums are centred: (5 / 4) sqrt(levels) / s is their mu at the printed scale
        levels = math.ceil(math.log2(users))
        mu = 1.25 * math.sqrt(levels) / printed_scale(e, users)
        noise = Central(mu=mu, release="tree", leaf="user")
        found.append(Row(f"ε = {e:g}, as printed", printed, noise, e, true_epsilon(e)))
        found.append(Row(f"ε = {e:g}, as printed, bonus 0", greedy, noise, e, true_epsilon(e)))
    for e in (10.0, 1.0):
        tree = Central(epsilon=e, delta=DELTA, release="tree", leaf="user")
        found.append(Row(f"ε = {e:g}, exact noise, printed width", printed, tree, e, e))
        found.append(Row(f"ε = {e:g}, exact noise, tuned", tuned, tree, e, e))
        own = Central(epsilon=e, delta=DELTA)
        found.append(Row(f"ε = {e:g}, `linear-bandit`", LinearBandit(), own, e, e))
    return found


def world(name: str, instance: int) -> ContextWorld:
    """An instance of an environment."""
    seed = FIRST_SEED + instance
    if name.startswith("shared"):
        return shared_contexts(5, 5, seed=seed)
    return per_action_contexts(4, 5, seed=seed) if name.startswith("per") else fixed_arms(10, 20, seed=seed)


def shares(name: str, row: Row, size: Size) -> Lines:
    """Regret as a share of the uniform policy's, of all users and of the last quarter, by instance."""
    found = []
    for instance in range(size.instances):
        setup = ContextSetup(world(name, instance), row.learner, row.privatizer, size.users)
        run = setup.run(FIRST_SEED + instance, 0)
        uniform = (setup.optimal_value - setup.uniform_value) * size.users
        whole = float(run.regret[-1])
        late = whole - float(np.interp(0.75 * size.users, run.episodes, run.regret))
        found.append({"share": whole / uniform, "late": 4.0 * late / uniform})
    return found


def run(job: Job) -> dict[str, Any]:
    """All rows in all environments.

    Returns
    -------
    dict
        ``users``, ``instances``, ``delta``, ``rows``: name, stated and true epsilon, and by environment the
        mean share, its standard error and the mean late share.
    """
    size = QUICK if job.quick else FULL
    every = rows(size.users)
    wanted = {
        (row.name, name): Kept(
            job.folder / file_name(row.name, name),
            {"of": [repr(row.learner), repr(row.privatizer)], "users": size.users, "n": size.instances},
            partial(shares, name, row, size),
        )
        for row in every for name in WORLDS
    }  # fmt: skip
    kept, table = job.tables(wanted), []
    for row in every:
        cells = {}
        for name in WORLDS:
            lines = kept[row.name, name]
            values = [line["share"] for line in lines]
            cells[name] = {
                "share": float(np.mean(values)), "error": standard_error(values),
                "late": float(np.mean([line["late"] for line in lines])), "shares": values,
            }  # fmt: skip
        table.append({"name": row.name, "epsilon": row.epsilon, "true": row.true, "cells": cells})
    return {
        "users": size.users, "instances": size.instances, "delta": DELTA, "growth": GROWTH,
        "nodes": nodes(size.users), "scale": printed_scale(1.0, size.users), "rows": table,
    }  # fmt: skip
