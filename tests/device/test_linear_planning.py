"""A device plans what the server plans; ties and masks."""

import random

import numpy as np
import pytest

import discreet as dr
from discreet import envs
from discreet.core.rng import Seeded
from discreet.device.linear_device import LinearDevice
from discreet.device.linear_planning import greedy_action, optimistic_action
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments.simulate import Setup
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus
from discreet.mechanisms.seeded_rng import SeededRng

WORLD = envs.linear_mixture(states=5, actions=3, horizon=4, models=3, seed=3, reward_models=2)


@pytest.mark.parametrize("rewards", [True, False])
@pytest.mark.parametrize("learner", [UCRLVTR, UCRLVTRPlus])
def test_a_device_plans_what_the_server_plans(learner, rewards):
    """From the published form and a public solution: the same values, context and policy, bit for bit."""
    made = learner(known_rewards=rewards, tie_break="first")
    randomness, setup = Seeded(5, 0), Setup(WORLD, made, dr.Local(epsilon=20.0, delta=1e-5), 30)
    session = setup.start(randomness)
    state, users = made.begin(setup.spec, randomness.keys.ties), 0
    with pytest.raises(ValueError, match="release"):
        made.solution(state)
    while users < setup.episodes:
        plan, state = made.plan(state, session.release())
        form = LinearDevice.from_bytes(session.device.to_bytes()).form
        own = optimistic_action(form, made.solution(state))
        assert np.array_equal(own.values, plan.context["values"])
        assert set(own.context) == set(plan.context)
        assert all(np.array_equal(own.context[name], plan.context[name]) for name in plan.context)
        assert np.array_equal(greedy_action(own.q, form.mask), plan.policy)
        encoder = session.begin(plan)
        for _ in range(plan.users):
            record = rollout(WORLD, plan.policy, randomness.keys.environment, users)
            session.submit(encoder(record, plan, SeededRng(randomness.keys.noise, users)))
            users += 1


def test_ties_and_masks():
    q = np.array([[[0.5, 0.5, 0.1], [0.2, 0.1, 0.9]]])
    assert greedy_action(q).tolist() == [[0, 2]]
    mask = np.array([[True, True, True], [True, True, False]])
    assert greedy_action(q, mask).tolist() == [[0, 0]]
    below = random.Random(0).randrange
    drawn = [greedy_action(q, mask, below)[0] for _ in range(200)]
    assert {row[0] for row in drawn} == {0, 1}
    assert {row[1] for row in drawn} == {0}


def test_a_world_with_a_mask_is_planned_alike():
    mask = np.ones((5, 3), bool)
    mask[1, 0] = mask[2, 1:] = False
    masked = TabularMDP(WORLD.transitions, WORLD.rewards, WORLD.initial, mask=mask, features=WORLD.features)
    made = UCRLVTR(tie_break="first")
    setup = Setup(masked, made, dr.Local(epsilon=20.0), 20)
    session = setup.start(Seeded(0, 0))
    plan, state = made.plan(made.begin(setup.spec, np.zeros(2, np.uint64)), session.release())
    form = session.device.form
    own = optimistic_action(form, made.solution(state))
    assert np.array_equal(greedy_action(own.q, form.mask), plan.policy)
    assert np.array_equal(own.values, state.values)
