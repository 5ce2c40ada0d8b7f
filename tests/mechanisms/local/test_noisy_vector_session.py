"""The device of a local session: the session's query and loss, and one plan for each encoder."""

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.local.noisy_vector_session import NoisyVectorEncoder, device_of
from discreet.mechanisms.seeded_rng import SeededRng

LAYOUT = Layout(2, 2, 3)
QUERY = CountQuery(LAYOUT)
MECHANISM = dr.Local(epsilon=1.5, noise="laplace").mechanism(QUERY, Schedule(10), Seeded(1))
KEY = Seeded(1).keys.noise
RECORD = Trajectory(np.array([0, 1, 0, 1]), np.array([1, 0, 1]), np.array([0.5, 1.0, 0.0]))


def test_the_device_states_the_loss_of_the_session() -> None:
    device = device_of(QUERY, MECHANISM, 7)
    assert device.session == 7
    assert device.offsets.tolist() == QUERY.offsets.tolist()
    assert device.guarantee.epsilon == pytest.approx(MECHANISM.guarantee.epsilon)
    assert device.guarantee.epsilon == pytest.approx(1.5)


def test_an_encoder_checks_the_record_and_its_plan() -> None:
    encoder = NoisyVectorEncoder(QUERY, device_of(QUERY, MECHANISM, 7), 2)
    plan = Plan(np.zeros((3, 2), np.int64), 5)
    message = encoder(RECORD, plan, SeededRng(KEY, 0))
    assert message.plan == 2
    assert message.trajectory is None
    assert np.shape(message.message) == (QUERY.cells,)
    assert (message.message != 0).all()  # every cell has noise, visited or not
    with pytest.raises(ValueError, match=r"plan\.number = 1"):
        encoder(RECORD, Plan(plan.policy, 5, number=1), SeededRng(KEY, 0))
    with pytest.raises(ValueError, match="states"):
        encoder(Trajectory(np.array([0, 1, 0, 2]), RECORD.actions, RECORD.rewards), plan, SeededRng(KEY, 0))
