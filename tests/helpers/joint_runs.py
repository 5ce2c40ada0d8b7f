"""Runs of the joint learner by batches, with all that was public on the way."""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import discreet as dr
from discreet.core.families import CENTERED_REWARDS
from discreet.core.rng import Seeded
from discreet.envs.rollouts.simulated_users import played_counts
from discreet.experiments.simulate import Setup
from discreet.mechanisms.interfaces import ProblemSpec

CENTRAL = dr.Central(epsilon=1.0, delta=1e-6)


class DeclaredStationary(Setup):
    """A world that is declared stationary, whatever it is."""

    @cached_property
    def spec(self) -> ProblemSpec:
        return replace(super().spec, stationary=True)


def lived(setup: Setup, seed: int = 0) -> tuple[list[Any], list[Any], list[Any]]:
    """(plans, the release before each, states after each) of a run by batches."""
    randomness = Seeded(seed, 0)
    session = setup.start(randomness)
    state = setup.learner.begin(setup.spec, randomness.keys.ties)
    plans, releases, states, users = [], [], [], 0
    while users < setup.episodes:
        release = session.release()
        plan, state = setup.learner.plan(state, release, session.answer)
        session.begin(plan)
        counts, _ = played_counts(
            setup.mdp, plan.policy, plan.users, randomness.keys.environment, users,
            cut=0.0 if math.isinf(session.cut) else session.cut,
        )  # fmt: skip
        counts[CENTERED_REWARDS] = counts["reward_sums"] - 0.5 * counts["visits"]
        session.submit_sum({name: counts[name] for name in setup.query.families}, plan.users)
        users += plan.users
        plans.append(plan)
        releases.append(release)
        states.append(state)
    session.close()
    return plans, releases, states
