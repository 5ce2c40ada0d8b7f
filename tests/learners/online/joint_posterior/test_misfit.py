"""The misfit: how often a stationary world is left (hardly ever), how soon one that varies is."""

from typing import Any

import numpy as np
import pytest
from joint_runs import CENTRAL, DeclaredStationary, lived

import discreet as dr
from discreet.envs import combination_lock, random_mdp, switching_chain
from discreet.experiments.simulate import Setup
from discreet.learners.online import joint_posterior as joint

BUDGETS = {
    "approx": CENTRAL, "pure": dr.Central(epsilon=1.0), "rich": dr.Central(epsilon=10.0, delta=1e-6),
    "none": dr.NoPrivacy(),
}  # fmt: skip
WORLDS = {
    "dense": lambda: random_mdp(states=6, seed=120),
    "all pairs reward": lambda: random_mdp(states=6, rewarding=12, seed=121),
    "sparse": lambda: random_mdp(states=8, successors=2, seed=122),
    "lock": lambda: combination_lock(states=6, seed=123),
    "bandit": lambda: random_mdp(states=1, actions=4, rewarding=4, seed=124),
}


def misfits(setup: Setup, seed: int) -> np.ndarray:
    """Of every fit of a run that could have raised the alarm."""
    return np.array([s.misfit for s in lived(setup, seed)[2] if s.number >= joint._ALARM_RELEASES])


@pytest.mark.statistics
@pytest.mark.parametrize("budget", sorted(BUDGETS))
@pytest.mark.parametrize("world", sorted(WORLDS))
def test_stationary_worlds_are_not_left(world: str, budget: str) -> None:
    """Two runs of 3000 users each, and none comes within a standard deviation of the alarm.

    Cells' Z are near to standard normal, so their sum is at 4 with probability below 1e-4 at one release and
    below 1e-3 in a run; forty runs would cross 4 by chance with probability below .04, the alarm at 5 with
    probability below 1e-4. The seeds are fixed.
    """
    setup = Setup(WORLDS[world](), dr.JointPosterior(preset="committed"), BUDGETS[budget], 3000)
    assert max(misfits(setup, seed).max() for seed in (1, 2)) < joint._ALARM - 1.0


@pytest.mark.statistics
@pytest.mark.parametrize(
    ("budget", "users"), [("approx", 2600), ("pure", 6000), ("rich", 600), ("none", 700)]
)
def test_a_world_that_varies_is_left(budget: str, users: int) -> None:
    """Switching chains and a random world of fresh rows a step, declared stationary: left by then."""
    worlds: tuple[Any, ...] = (switching_chain(seed=131), random_mdp(stationary=False, seed=132))
    for world in worlds:
        states = lived(DeclaredStationary(world, dr.JointPosterior(), BUDGETS[budget], users))[2]
        assert states[-1].inner is not None


def test_a_committed_learner_stays() -> None:
    setup = DeclaredStationary(
        switching_chain(seed=131), dr.JointPosterior(preset="committed"), CENTRAL, 3000
    )
    states = lived(setup)[2]
    assert states[-1].inner is None
    assert states[-1].misfit > joint._ALARM
