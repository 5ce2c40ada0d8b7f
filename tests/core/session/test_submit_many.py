"""Many users at once: the sums of one by one, every check before anything is added."""

from typing import Any

import numpy as np
import pytest
from interrupts import interrupted

from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectories
from discreet.mechanisms.interfaces import Message, Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

MASK = np.array([[True, True, False], [True, False, True]])
LAYOUT = Layout(2, 3, 4, MASK)
POLICY = np.zeros((4, 2), np.int64)
N = 50


def people(n: int = N, seed: int = 0) -> Trajectories:
    rng = np.random.default_rng(seed)
    states = rng.integers(2, size=(n, 5))
    actions = np.where(rng.integers(2, size=(n, 4)) == 0, 0, 1 + states[:, :-1])
    return Trajectories(states, actions, rng.uniform(size=(n, 4)))


def start(
    privatizer: Any = None, query: CountQuery | None = None, randomness: Any = None, users: int = N
) -> ChannelSession:
    query = CountQuery(LAYOUT) if query is None else query
    schedule = Schedule(10 * users, times=np.array([0, users]))
    session = (privatizer or NoPrivacy()).start(query, schedule, randomness or Seeded(3))
    session.release()
    session.begin(Plan(POLICY, users=users))
    return session


@pytest.mark.parametrize(
    "query",
    [
        CountQuery(LAYOUT),
        CountQuery(LAYOUT, stationary=True),
        CountQuery(LAYOUT, visits=False, center_rewards=True),
        CountQuery(LAYOUT, known_rewards=True),
    ],
    ids=["raw", "pooled", "centred", "known"],
)
@pytest.mark.parametrize(
    "privatizer", [NoPrivacy(), Central(epsilon=1.0, release="tree"), Central(epsilon=1.0)]
)
def test_the_release_is_that_of_single_reports(query: CountQuery, privatizer: Any) -> None:
    many, single, mixed = (start(privatizer, query) for _ in range(3))
    records = people()
    many.submit_many(records, 1)
    for record in records:
        single.submit(Message(plan=1, trajectory=record))
    mixed.submit(Message(plan=1, trajectory=records[0]))
    mixed.submit_many(Trajectories(records.states[1:], records.actions[1:], records.rewards[1:]), plan=1)
    expected = single.release()
    for session in (many, mixed):
        release = session.release()
        assert release.users == N
        for name, estimate in release.estimates.items():
            np.testing.assert_array_equal(estimate.value, expected.estimates[name].value, strict=True)


def test_late_reports_local_sessions_and_closed_plans_are_refused() -> None:
    session = start()
    with pytest.raises(ValueError, match="plan = 2: must be 1, the plan that is open"):
        session.submit_many(people(), 2)
    session.submit_many(people(), 1)
    with pytest.raises(RuntimeError, match="no plan is open"):
        session.submit_many(people(), 1)
    with pytest.raises(ValueError, match="randomized messages only"):
        start(Local(epsilon=1.0)).submit_many(people(), 1)


def test_secure_sessions_round_rewards_to_the_grid_without_bias() -> None:
    session = start(Central(epsilon=1e6, release="batches"), CountQuery(LAYOUT), Secure(reward_grid=4), 5000)
    records = people(5000)
    records.rewards[:] = 0.3
    session.submit_many(records, 1)
    begin = int(session.channel.query.offsets[2])
    cells = session.state["cells"][begin:]
    assert (cells * 4 == np.round(cells * 4)).all()
    # 20 000 roundings with variance 0.2 x 0.8 / 16 each: six standard errors, false alarm 2e-9
    assert abs(cells.sum() - 6000) < 6 * np.sqrt(20_000 * 0.01)


def test_an_interrupt_never_adds_records_that_are_not_counted() -> None:
    records = people(4)
    for at in range(200):
        session = start(users=4)
        done = not interrupted(lambda s=session: s.submit_many(records, 1), at)
        added = (
            session.state["cells"][session.channel.query.offsets[1] : session.channel.query.offsets[2]].sum()
            / 4
        )
        assert added in (0, 4)
        assert added <= session.users
        if done:
            break
    assert 5 < at < 199
