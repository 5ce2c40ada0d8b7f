"""Policies that need no data: what every panel and table of regret stands beside."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

import numpy as np

from discreet.core.rng import Seeded
from discreet.envs.mdp import planning
from discreet.envs.mdp.tabular import TabularMDP
from discreet.experiments.simulate import Setup

__all__ = ["REFERENCES", "losses", "mean_losses"]

REFERENCES = ("uniform", "myopic", "never learning")


def losses(mdp: TabularMDP, learner: Any, privatizer: Any) -> dict[str, float]:
    """Regret per user of uniform play, the largest reward of the moment, the learner before any user."""
    setup = Setup(mdp, learner, privatizer, 2)
    state = learner.begin(setup.spec, Seeded(0, 0).keys.ties)
    with closing(setup.start(Seeded(0, 0))) as session:
        policy = learner.plan(state, session.release(), session.answer)[0].policy
    played = (planning.uniform_policy(mdp), mdp.rewards.argmax(axis=2), policy)
    return {
        name: setup.optimal_value - float(planning.policy_value(mdp, one))
        for name, one in zip(REFERENCES, played, strict=True)
    }


def mean_losses(worlds: Iterable[TabularMDP], learner: Any, privatizer: Any) -> dict[str, float]:
    """Means of :func:`losses` over worlds."""
    each = [losses(mdp, learner, privatizer) for mdp in worlds]
    return {name: float(np.mean([one[name] for one in each])) for name in REFERENCES}
