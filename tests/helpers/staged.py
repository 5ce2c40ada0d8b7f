"""Runs of learners that explore in stages, with everything that they released and remembered."""

from contextlib import closing
from dataclasses import dataclass

from discreet.core.rng import Seeded
from discreet.envs.rollouts.simulated_users import simulate_users
from discreet.mechanisms.interfaces import Plan, Release
from discreet.mechanisms.policy_rows import policy_rows


@dataclass
class Seen:
    """One batch: the release before it, the learner's memory after reading it, the plans that followed."""

    release: Release
    memory: object
    plans: list[Plan]


def batches(setup, seed=0, run=0):
    """Every batch of one simulated run, by the flow of its users."""
    randomness, users, seen = Seeded(seed, run), 0, []
    state = setup.learner.begin(setup.spec, randomness.keys.ties)
    with closing(setup.start(randomness)) as session:
        while users < setup.episodes:
            release = session.release()
            plan, state = setup.learner.plan(state, release)
            if not seen or seen[-1].release.number != release.number:
                seen.append(Seen(release, state.memory, []))
            seen[-1].plans.append(plan)
            session.begin(plan)
            policy = policy_rows(setup.mdp.layout, plan.policy)
            crowd = simulate_users(
                setup.mdp,
                session,
                setup.query,
                policy,
                plan.users,
                randomness.keys.environment,
                users,
                plan.group,
            )
            sums = dict(crowd.sums)
            session.submit_sum(sums, plan.users)
            users += plan.users
    return seen
