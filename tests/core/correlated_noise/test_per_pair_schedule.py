"""Clocks of rows: who is measured when, what one user can move, and that the silent are silent."""

import numpy as np
import pytest

import discreet as dr
from discreet.core.correlated_noise.per_pair_schedule import Clocks
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.trajectories import Trajectory
from discreet.experiments.simulate import Setup
from discreet.mechanisms.central.per_pair_session import played_rows
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import Central

LAYOUT = Layout(3, 2, 4)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
SCHEDULE = Schedule(64, times=np.arange(0, 64, 4), reads="measurements")


def life(rng, policy):
    """A user who follows the policy."""
    states = rng.integers(3, size=5)
    actions = policy[np.arange(4), states[:-1]]
    return Trajectory(states, actions, rng.integers(2, size=4).astype(float))


def outputs(privatizer, schedule, seed, exchanged, query=QUERY):
    """All measurements of one fixed run of policies, with user 17's trajectory as drawn or as exchanged."""
    rng, noise = np.random.default_rng(seed), Seeded(3)
    with privatizer.start(query, schedule, noise) as session:
        seen, user = [], 0
        for _ in range(schedule.releases + 1):
            release = session.release()
            tables = release.measurement.estimates
            seen.append(np.concatenate([e.value.ravel() for e in tables.values()]))
            policy = rng.integers(2, size=(4, 3))
            plan = Plan(policy, users=4)
            encoder = session.begin(plan)
            for _ in range(4):
                one, other = life(rng, policy), life(rng, policy)
                record = other if exchanged and user == 17 else one
                session.submit(encoder(record, plan, SecureRng()))
                user += 1
        mechanism = session.mechanism
    scales = np.concatenate(
        [np.full(e.value.size, s) for e, s in zip(tables.values(), mechanism.scales, strict=True)]
    )
    return np.array(seen), scales, session.guarantee


@pytest.mark.parametrize("growth", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("options", [{"delta": 1e-6, "release": "decaying"}, {"release": "batches"}], ids=str)
@pytest.mark.parametrize("pooled", [False, True])
def test_exchanging_a_user_moves_no_more_than_the_guarantee(growth, options, pooled):
    """Same noise, neighbouring users: the shift of everything released, in units of the noise."""
    privatizer = Central(epsilon=1.0, clocks="rows", clock_growth=growth, **options)
    query = CountQuery(LAYOUT, visits=False, center_rewards=True, stationary=pooled)
    worst = 0.0
    for seed in range(12):
        here, scales, guarantee = outputs(privatizer, SCHEDULE, seed, False, query)
        there, _, _ = outputs(privatizer, SCHEDULE, seed, True, query)
        shift = np.abs(here - there) / scales
        cost = shift.sum() if guarantee.mu is None else float(np.sqrt((shift**2).sum()))
        worst = max(worst, cost)
        assert cost <= (guarantee.mu or guarantee.epsilon) * (1 + 1e-9)
    assert worst > 0.2 * (guarantee.mu or guarantee.epsilon)  # somebody did move


@pytest.mark.parametrize("growth", [0.0, 0.5])
def test_rows_are_measured_when_their_assigned_users_have_grown(growth):
    privatizer = Central(epsilon=1.0, release="batches", clocks="rows", clock_growth=growth)
    rng = np.random.default_rng(1)
    pending, counted = np.zeros((4, 3, 2)), np.zeros((4, 3, 2))
    with privatizer.start(QUERY, SCHEDULE, Seeded(4)) as session:
        for i in range(16):
            release = session.release()
            due = (pending > 0) & (pending >= growth * counted)
            np.testing.assert_array_equal(release.measurement.fresh, due)
            counts = release.measurement.estimates["transition_counts"].value
            assert (counts[~due] == 0).all()  # silent: no data, and no noise
            assert (counts[due] != 0).all()
            assert not release.estimates  # there are no sums for learners that count
            counted[due] += pending[due]
            pending[due] = 0
            # every second plan may draw its action: what has positive probability counts as played
            policy = rng.integers(2, size=(4, 3))
            played = np.eye(2, dtype=bool)[policy]
            if i % 2:
                table = np.where(rng.random((4, 3, 1)) < 0.5, 0.5, np.eye(2)[policy])
                played, policy = table > 0, table
            pending += 4 * played
            plan = Plan(policy, users=4)
            session.begin(plan)
            session.absent(4)  # clocks count who was assigned, not who came


def test_a_record_that_the_policy_cannot_make_adds_nothing():
    privatizer = Central(epsilon=1e3, release="batches", clocks="rows")
    policy = np.zeros((4, 3), np.int64)
    strange = Trajectory(np.array([0, 1, 2, 0, 1]), np.array([0, 1, 0, 1]), np.ones(4))
    with privatizer.start(QUERY, SCHEDULE, Seeded(0)) as session:
        session.release()
        plan = Plan(policy, users=4)
        encoder = session.begin(plan)
        for _ in range(4):
            session.submit(encoder(strange, plan, SecureRng()))
        release = session.release()
        counts = release.measurement.estimates["transition_counts"].value
    assert counts[0, 0, 0, 1] == pytest.approx(4, abs=1)
    assert counts[2, 2, 0, 0] == pytest.approx(4, abs=1)
    assert (counts[:, :, 1] == 0).all()
    assert np.abs(counts[1]).max() < 1  # step 1 was not what the policy plays: nothing but noise
    assert np.abs(counts[3]).max() < 1


def test_sums_outside_the_policy_are_refused():
    privatizer = Central(epsilon=1.0, clocks="rows")
    sums = {name: np.zeros(shape) for name, shape in QUERY.families.items()}
    sums["transition_counts"][0, 0, 1, 0] = 4.0
    with privatizer.start(QUERY, SCHEDULE, Seeded(0)) as session:
        session.release()
        session.begin(Plan(np.zeros((4, 3), np.int64), users=4))
        with pytest.raises(ValueError, match="pairs that the plan's policy does not play"):
            session.submit_sum(sums, 4)


@pytest.mark.parametrize("options", [{}, {"delta": 1e-6}, {"delta": 1e-6, "clock_growth": 0.4}], ids=str)
@pytest.mark.parametrize("by", ["episode", "batch"])
def test_stepwise_and_fused_agree_bit_for_bit(options, by):
    mdp = dr.make("riverswim", rewards="bernoulli")
    setting = dr.NoiseAwareUCBVI(pooled="none"), Central(epsilon=1.0, clocks="rows", **options), 700, by
    stepwise = Setup(mdp, *setting, stepwise=True).run(5, 1)
    fused = Setup(mdp, *setting).run(5, 1)
    np.testing.assert_array_equal(stepwise.regret, fused.regret)


def test_noise_off_in_effect_equals_the_common_clock():
    """At growth 0 and decay 0 the learner weighs silent rows by 0 on the common clock too."""
    mdp = dr.make("riverswim", rewards="bernoulli")
    # counts are made consistent with the flow of people on the common clock only
    learner = dr.NoiseAwareUCBVI(pooled="none", consistent=False)
    runs = [
        Setup(mdp, learner, Central(epsilon=1.0, clocks=clocks), 3000).run(5, 1).regret
        for clocks in ("common", "rows")
    ]
    np.testing.assert_array_equal(*runs)


def test_secure_noise_has_clocks_too():
    privatizer = Central(epsilon=1.0, clocks="rows")
    with privatizer.start(QUERY, SCHEDULE, Secure()) as session:
        session.release()
        session.begin(Plan(np.zeros((4, 3), np.int64), users=4))
        session.absent(4)
        release = session.release()
    counts = release.measurement.estimates["transition_counts"].value
    assert (counts[:, :, 1] == 0).all()
    assert np.unique(counts[:, :, 0]).size > 5
    assert "own clock" in session.guarantee.statement


def test_bad_input():
    with pytest.raises(ValueError, match="clock_growth"):
        Clocks(-0.1)
    with pytest.raises(ValueError, match="not for a tree"):
        Central(epsilon=1.0, release="tree", clocks="rows")
    with pytest.raises(ValueError, match="this one reads sums"):
        Central(epsilon=1.0, clocks="rows").start(QUERY, Schedule(9), Seeded(0))
    with pytest.raises(ValueError, match=r"actions in \[0, 1\]"):
        played_rows(LAYOUT, np.full((4, 3), 2))
    masked = Layout(3, 2, 4, np.array([[True, False], [True, True], [True, True]]))
    with pytest.raises(ValueError, match="not admissible"):
        played_rows(masked, np.ones((4, 3), np.int64))
    with pytest.raises(ValueError, match="0 for actions that are not admissible"):
        played_rows(masked, np.full((4, 3, 2), 0.5))
