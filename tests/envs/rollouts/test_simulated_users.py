"""What crowds hand to sessions: tables that fit, the same people as one by one where that is promised."""

from typing import Any

import numpy as np
import pytest

import discreet as dr
from discreet.core.count_query import CountQuery
from discreet.core.rng import Seeded
from discreet.envs.rollouts.rollout import batch_counts, reported_counts, rollout_batch
from discreet.envs.rollouts.simulated_users import (
    SimulatedUsers,
    played_counts,
    reports_of,
    simulate_counts,
    simulate_users,
)
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.linear.linear_queries import GramQuery

MDP = dr.make("riverswim", states=3, horizon=4)
POLICY = np.ones((4, 3), np.int64)
KEY = Seeded(3, 1).keys.environment
SCHEDULE = Schedule(60, times=np.array([0, 50]), reads="measurements")
QUERIES = {
    "raw": CountQuery(MDP.layout),
    "centred": CountQuery(MDP.layout, visits=False, center_rewards=True),
    "known": CountQuery(MDP.layout, known_rewards=True),
    "alike": CountQuery(MDP.layout, stationary=True),
    "pooled": CountQuery(MDP.layout, pooled="all", center_rewards=True),
    "step": CountQuery(MDP.layout, step=2),
    "groups": CountQuery(MDP.layout, groups=2, clip=2.0),
    "cut": CountQuery(MDP.layout, visits=False, center_rewards=True, cut=1.5),
}
PRIVATIZERS = {
    "none": (dr.NoPrivacy(), QUERIES),
    "central": (dr.Central(mu=1.0, release="batches"), QUERIES),
    "vectors": (
        dr.Local(epsilon=3.0, randomizer="laplace"), ("raw", "centred", "known", "alike", "pooled", "step"),
    ),
    "reports": (dr.Local(epsilon=3.0, randomizer="subset"), ("raw", "centred", "known", "step")),
    "bits": (dr.Shuffle(epsilon=1.0, delta=1e-4), ("raw", "centred", "known", "step")),
    "amplified": (
        dr.Shuffle(epsilon=1.0, delta=1e-4, randomizer="amplified"), ("raw", "centred", "known", "step"),
    ),
}  # fmt: skip
PAIRS = [(privatizer, query) for privatizer, (_, queries) in PRIVATIZERS.items() for query in queries]


def opened(privatizer: str, query: str) -> Any:
    plan = Plan(POLICY, 50, group=1 if query == "groups" else None)
    session: Any = PRIVATIZERS[privatizer][0].start(QUERIES[query], SCHEDULE, Seeded(3, 1))
    session.release()
    session.begin(plan)
    return session


@pytest.mark.parametrize(("privatizer", "query"), PAIRS)
def test_a_session_takes_what_its_crowd_hands_over(privatizer: str, query: str) -> None:
    """Also that everybody is somewhere at every step, and began somewhere."""
    session = opened(privatizer, query)
    crowd = simulate_users(MDP, session, QUERIES[query], POLICY, 50, KEY, 7, 1)
    assert isinstance(crowd, SimulatedUsers)
    assert crowd.starts.sum() == 50
    assert crowd.visits.shape == (4, MDP.layout.rows)
    assert (crowd.visits.sum(axis=1) == 50).all()
    again = simulate_users(MDP, session, QUERIES[query], POLICY, 50, KEY, 7, 1)
    assert all(np.array_equal(again.sums[name], table) for name, table in crowd.sums.items())
    other = simulate_users(MDP, session, QUERIES[query], POLICY, 50, KEY, 8, 1)
    assert any(not np.array_equal(other.sums[name], table) for name, table in crowd.sums.items())
    session.submit_sum(crowd.sums, 50)
    assert session.release().users == 50


@pytest.mark.parametrize("query", ["groups", "cut"])
def test_what_counts_do_not_determine_is_of_people_who_were_played(query: str) -> None:
    """Exactly the sum of the contributions of users 7 .. 56 of the run."""
    session = opened("none", query)
    people = rollout_batch(MDP, POLICY, 50, 3, 1, first=7)
    wanted: dict[str, Any] = {}
    for life in people:
        for name, table in QUERIES[query].contribution(life, group=1).items():
            wanted[name] = wanted.get(name, 0.0) + table
    crowd = simulate_users(MDP, session, QUERIES[query], POLICY, 50, KEY, 7, 1)
    assert set(crowd.sums) == set(wanted)
    for name, table in wanted.items():
        assert crowd.sums[name] == pytest.approx(table, abs=1e-9)


def test_families_are_functions_of_the_counts_that_were_drawn() -> None:
    counts = batch_counts(MDP, POLICY, 50, KEY, 7)
    pooled = simulate_counts(MDP, QUERIES["pooled"], POLICY, 50, KEY, 7).sums
    centred = counts["reward_sums"] - 0.5 * counts["visits"]
    assert np.array_equal(pooled["centered_reward_sums"], centred)
    assert np.array_equal(pooled["pooled_reward_sums"], centred.sum(axis=0, keepdims=True))
    moves = counts["transition_counts"]
    assert np.array_equal(pooled["pooled_transition_counts"], moves.sum(axis=0, keepdims=True))
    assert np.array_equal(
        simulate_counts(MDP, QUERIES["step"], POLICY, 50, KEY, 7).sums["transition_counts"], moves[2:3]
    )
    alike = simulate_counts(MDP, QUERIES["alike"], POLICY, 50, KEY, 7).sums["visits"]
    assert alike.shape == (1, 3, 2)
    assert alike.sum() == 200
    played = played_counts(MDP, POLICY, 50, KEY, 7, cut=1.5)[0]
    assert np.array_equal(
        simulate_counts(MDP, QUERIES["cut"], POLICY, 50, KEY, 7).sums["cut_reward_sums"],
        played["cut_reward_sums"],
    )


def test_reports_are_drawn_before_their_sums() -> None:
    session = opened("reports", "raw")
    reports = reports_of(session)
    assert reports is session.mechanism.reports
    crowd = simulate_users(MDP, session, QUERIES["raw"], POLICY, 50, KEY, 7)
    drawn = reported_counts(MDP, POLICY, 50, reports.steps, reports.reward_share, KEY, 7)
    for name in ("reported_moves", "reported_bits"):
        assert np.array_equal(crowd.sums[name], drawn[name])
    assert reports_of(opened("vectors", "raw")) is None
    assert reports_of(opened("bits", "raw")) is None
    assert reports_of(opened("amplified", "raw")) is not None


def test_bits_are_whole_numbers() -> None:
    session = opened("bits", "centred")
    crowd = simulate_users(MDP, session, QUERIES["centred"], POLICY, 50, KEY, 7)
    twice = 2 * crowd.sums["centered_reward_sums"]
    assert np.array_equal(twice, np.rint(twice))


def test_linear_sums_are_made_of_counts() -> None:
    mdp = dr.make("linear-mdp")
    query = GramQuery(layout=mdp.layout, features=mdp.features)
    session: Any = dr.Central(mu=1.0).start(query, Schedule(60, times=np.array([0, 50])), Seeded(3, 1))
    session.release()
    policy = np.zeros((mdp.horizon, mdp.states), np.int64)
    session.begin(Plan(policy, 50))
    crowd = simulate_users(mdp, session, query, policy, 50, KEY, 7)
    assert set(crowd.sums) == set(query.simulated)
    session.submit_sum(crowd.sums, 50)
    assert session.users == 50
