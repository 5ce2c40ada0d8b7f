"""An optimal policy survives elimination by data as often as promised. Fixed seeds."""

import numpy as np
import pytest
from scipy.stats import binom
from staged import batches

import discreet as dr
from discreet import envs
from discreet.experiments.simulate import Setup
from discreet.learners.online.policy_elimination import SDPPE

pytestmark = pytest.mark.statistics

RUNS = 100


def lost(learner, privatizer, users):
    """In how many runs the best policy was eliminated, and how many sets shrank; one world a run."""
    gone = shrank = 0
    for seed in range(RUNS):
        mdp = envs.random_mdp(states=2, actions=2, horizon=2, seed=seed, rewards="bernoulli")
        setup = Setup(mdp, learner, privatizer, users, "batch")
        tables = (
            np.broadcast_to(table, (mdp.horizon, *table.shape[1:]))
            for table in (mdp.transitions, mdp.rewards)
        )
        values = learner.enumeration(setup.spec).values(*(mdp.layout.to_rows(table) for table in tables))
        active = batches(setup, seed)[-1].memory.active
        gone += not active[values == values.max()].any()
        shrank += not active.all()
    return gone, shrank


@pytest.mark.parametrize(
    ("privatizer", "users"),
    [
        (dr.NoPrivacy(), 30_000),
        (dr.Central(epsilon=5.0, delta=1e-6), 300_000),
        (dr.Local(epsilon=8.0), 1_000_000),
        (dr.Shuffle(epsilon=5.0, delta=1e-6), 300_000),
    ],
    ids=["none", "central", "local", "shuffle"],
)
def test_the_best_policy_survives(privatizer, users):
    """At most half of 100 runs may lose it (failure + noise_failure = .5): more than binom.isf is an alarm of
    probability below 1e-6. None does, the union bounds being wide; but sets do shrink.
    """
    learner = SDPPE(preset="theory", initial=40, failure=0.25, noise_failure=0.25)
    gone, shrank = lost(learner, privatizer, users)
    assert gone <= binom.isf(1e-6, RUNS, 0.5)
    assert shrank > RUNS / 4


def test_widths_that_are_too_small_lose_it():
    """The test above can fail: with next to no width the best policy is often gone."""
    learner = SDPPE(preset="theory", initial=2, width_scale=1e-4)
    assert lost(learner, dr.NoPrivacy(), 3000)[0] > RUNS / 20
