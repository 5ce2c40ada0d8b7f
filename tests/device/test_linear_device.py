"""A local user of linear sums on a device of her own: one encoder, plans of her own, messages in bytes."""

import dataclasses
import random
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import discreet as dr
from discreet import envs
from discreet.core import families as counts
from discreet.core.rng import Secure, Seeded
from discreet.core.trajectories import Trajectory
from discreet.device.discrete_noise import ExactCoins
from discreet.device.linear_device import LinearDevice
from discreet.device.linear_forms import CENTERED_REWARDS, VISITS
from discreet.device.message_envelope import HEADER, TAIL, Envelope, MessageRejected
from discreet.envs.rollouts.rollout import rollout
from discreet.experiments.simulate import Setup
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.ucrl_vtr import UCRLVTR
from discreet.mechanisms.features import Features
from discreet.mechanisms.interfaces import Message, Plan, Schedule
from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery
from discreet.mechanisms.seeded_rng import SeededRng

WORLD = envs.linear_mixture(states=5, actions=3, horizon=4, models=3, seed=3, reward_models=2)
PHI = Features(np.random.default_rng(1).dirichlet(np.ones(3), (5, 3)), 1.0, nonneg=True)
MIXED = MixtureQuery(
    layout=WORLD.layout, features=WORLD.features, second=True, largest_weight=2.0,
    rewards=WORLD.features.rewards,
)  # fmt: skip
QUERIES = [
    MIXED,
    dataclasses.replace(MIXED, rewards="tabular", targets="raw"),
    GramQuery(layout=WORLD.layout, features=PHI),
]
CONTEXT = {
    "values": np.random.default_rng(2).uniform(size=(5, 5)) * np.arange(4, -1, -1)[:, None],
    "weights": np.full((3, 5, 3), 1.5),
}
PLAN = Plan(np.zeros((4, 5), np.int64), 3, CONTEXT)


def life(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 5, 5), rng.integers(0, 3, 4), rng.uniform(size=4)


def opened(query, privatizer, randomness=None):
    session = privatizer.start(query, Schedule(9), randomness or Secure())
    session.release()
    return session, session.begin(PLAN)


def test_names_are_those_of_counts():
    assert (VISITS, CENTERED_REWARDS) == (counts.VISITS, counts.CENTERED_REWARDS)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("privatizer", [dr.Local(rho=1.0), dr.Local(epsilon=5.0)])
def test_a_message_in_bytes_is_the_message_of_the_session(query, privatizer):
    """Equal coins: what the session's own encoder sends, what the device sends, and what is added up."""
    session, encoder = opened(query, privatizer)
    number = session.open_plan.number
    device = LinearDevice.from_bytes(session.device.to_bytes())
    assert device.digest == session.device.digest
    mine = encoder(Trajectory(*life(0)), session.open_plan, ExactCoins(random.Random(7).randrange))
    message = device(number, CONTEXT, *life(0), ExactCoins(random.Random(7).randrange))
    assert np.array_equal(device.read(number, message)[1], mine.message)
    session.submit(Message(number, message=message))
    session.submit(mine)
    session.submit(Message(number, message=device(number, CONTEXT, *life(1))))
    assert session.users == 3
    other, _ = opened(query, privatizer)
    for sent in (mine, mine, Message(number, message=device.read(number, message)[1].astype(float))):
        other.submit(Message(other.open_plan.number, message=np.asarray(sent.message)))
    assert len(message) < HEADER + TAIL + 8 * query.cells  # fewer bytes than floats


def test_seeded_coins_give_the_numbers_of_the_session():
    randomness = Seeded(3, 0)
    for query in QUERIES:
        session, encoder = opened(query, dr.Local(mu=1.0), randomness)
        user = life(4)
        device = session.device
        sent = encoder(Trajectory(*user), session.open_plan, SeededRng(randomness.keys.noise, 0)).message
        own = device.cells(device.form.prepared(CONTEXT), *user, SeededRng(randomness.keys.noise, 0))
        assert np.array_equal(sent, own)
        with pytest.raises(ValueError, match="grid"):
            device(1, CONTEXT, *user)


@pytest.mark.parametrize("query", QUERIES)
def test_every_block_of_every_message_has_noise_of_its_own(query):
    """Differences of two messages of one user, by block: chi-squared, a false alarm below 1e-7 for all."""
    session, _ = opened(query, dr.Local(rho=1.0))
    device, number, below = session.device, session.open_plan.number, random.Random(4).randrange
    user = (*life(0)[:2], np.array([0.0, 0.25, 0.5, 1.0]))  # rewards on the grid
    sent = [device.read(number, device(number, CONTEXT, *user, ExactCoins(below)))[1] for _ in range(60)]
    moved = (np.array(sent[::2]) - np.array(sent[1::2])) / np.sqrt(2.0)
    scales = (
        query.block_scales(session.mechanism.scales, session.mechanism.noise) / device.units
    )  # the record's
    for block, scale in zip(np.split(moved, device.offsets[1:-1], axis=1), scales, strict=True):
        total, n = float((block**2).sum()) / scale**2, block.size
        assert min(stats.chi2.cdf(total, n), stats.chi2.sf(total, n)) > 1e-9
    shape = np.corrcoef((moved / np.repeat(device.scales, np.diff(device.offsets))).T) - np.eye(query.cells)
    assert np.abs(shape).max() < 0.97  # of 30 pairs; normals are beyond with probability below 1e-16


def test_a_device_needs_numpy_alone():
    session, _ = opened(MIXED, dr.Local(rho=1.0))
    session.device.to_bytes()
    code = """
import sys, random
import numpy as np
from discreet.device.linear_device import LinearDevice
from discreet.device.discrete_noise import ExactCoins
device = LinearDevice.from_bytes(sys.stdin.buffer.read())
rng = np.random.default_rng(0)
states, actions, rewards = rng.integers(0, 5, 5), rng.integers(0, 3, 4), rng.uniform(size=4)
context = {"values": np.ones((5, 5)).cumsum(axis=1) / 9, "weights": np.ones((3, 5, 3))}
sys.stdout.buffer.write(device(1, context, states, actions, rewards, ExactCoins(random.Random(1).randrange)))
others = {m for m in sys.modules if m.startswith("discreet.") and not m.startswith("discreet.device")}
assert others == {"discreet.names", "discreet.wiring", "discreet.core", "discreet.core.registry"}
assert "numba" not in sys.modules and "scipy" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=session.device.to_bytes(), capture_output=True, check=True
    )
    context = {"values": np.ones((5, 5)).cumsum(axis=1) / 9, "weights": np.ones((3, 5, 3))}
    assert done.stdout == session.device(1, context, *life(0), ExactCoins(random.Random(1).randrange))


def test_broken_messages_and_forms_are_refused():
    session, _ = opened(MIXED, dr.Local(rho=1.0))
    number, device = session.open_plan.number, session.device
    good = device(number, CONTEXT, *life(0))
    first = device.offsets[1] - device.offsets[0]
    envelope = Envelope.from_bytes(good)

    def around(payload):
        return dataclasses.replace(envelope, payload=payload).to_bytes()

    body = envelope.payload
    wide = around(bytes([8]) + bytes(8 * int(first)) + body[1 + body[0] * int(first) :])
    stranger = opened(MIXED, dr.Local(rho=1.0))[0].device(number, CONTEXT, *life(0))
    for bad, reason in (
        (b"dsl", "malformed"), (good[:-1], "malformed"), (good + b"\0", "malformed"),
        (around(body[:-1]), "malformed"), (around(body + b"\0"), "malformed"),
        (around(b"\x09" + body[1:]), "malformed"), (wide, "malformed"), (b"dsb" + good[3:], "malformed"),
        (stranger, "foreign"), (device(number + 1, CONTEXT, *life(0)), "late"),
    ):  # fmt: skip
        with pytest.raises(MessageRejected) as refused:
            session.submit(Message(number, message=bad))
        assert refused.value.reason == reason
    assert session.users == 0
    published = device.to_bytes()
    for bad in (b"", published[:-8], published + bytes(8), published[:40], b"dsb\x01" + published[4:]):
        with pytest.raises(ValueError, match="published"):
            LinearDevice.from_bytes(bad)
    with pytest.raises(ValueError, match="weights"):
        device(1, {"values": CONTEXT["values"]}, *life(0))
    for states in (np.full(5, 5), np.zeros(4, int), np.full(5, -1)):
        with pytest.raises(ValueError, match="states"):
            device(1, CONTEXT, states, *life(0)[1:])
    with pytest.raises(ValueError, match="device"):
        _ = opened(MIXED, dr.Central(mu=1.0), Seeded(0, 0))[0].device


def test_the_published_form_moves_nothing_of_the_session():
    session, _ = opened(MIXED, dr.Local(rho=1.0))
    before, device = session.device.to_bytes(), session.device
    for array in (device.scales, device.offsets, device.form.columns):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert session.device.to_bytes() == before


# ---------------------------------------------------------------------------------- planning


def test_a_run_through_devices():
    """LSVI-UCB in the model form and UCRL-VTR, exact noise, all messages in bytes: releases are integers."""
    for made, mdp in ((LSVIUCB(), dr.make("linear-mdp")), (UCRLVTR(), WORLD)):
        setup = Setup(mdp, made, dr.Local(epsilon=20.0, delta=1e-5), 12)
        session = setup.privatizer.start(setup.query, setup.schedule, Secure())
        device, users = LinearDevice.from_bytes(session.device.to_bytes()), 0
        state = made.begin(setup.spec, np.zeros(2, np.uint64))
        while users < setup.episodes:
            plan, state = made.plan(state, session.release())
            session.begin(plan)
            number = session.open_plan.number
            for _ in range(plan.users):
                record = rollout(mdp, plan.policy, Seeded(0, 0).keys.environment, users)
                message = device(number, plan.context, record.states, record.actions, record.rewards)
                session.submit(Message(number, message=message))
                users += 1
        assert session.users == 12
        assert session.guarantee.epsilon <= 20.0 * (1 + 1e-6)
