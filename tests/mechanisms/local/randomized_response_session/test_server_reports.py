"""Reports that a trusted server draws itself: the law of Local's, joint privacy by enumeration, and auto."""

from __future__ import annotations

import dataclasses
import gc
import math
import weakref

import numpy as np
import pytest

import discreet as dr
from discreet.audit import local_output_law as audit_reports
from discreet.audit.black_box import black_box
from discreet.audit.white_box import white_box
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.raw_encoder import RawEncoder, add_records
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.experiments.estimate import estimate_run
from discreet.experiments.simulate import Setup
from discreet.learners.online.ucrl_vtr import UCRLVTR
from discreet.mechanisms.interfaces import Budget, Message, Plan, ProblemSpec, Schedule
from discreet.mechanisms.local import randomized_response_session as reported_session
from discreet.mechanisms.local.randomized_response import StepReports
from discreet.mechanisms.local.randomized_response_strategy import Reported
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.seeded_rng import SeededRng

LAYOUT = Layout(3, 2, 4)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
POLICY = np.zeros((4, 3), np.int64)
SIZE = Layout(6, 2, 20)  # RiverSwim's
REPORTS = Central(epsilon=2.0, release="reports")


def life_of(i, layout=LAYOUT):
    rng = np.random.default_rng(i)
    states = rng.integers(layout.states, size=layout.horizon + 1)
    actions = rng.integers(layout.actions, size=layout.horizon)
    return Trajectory(states, actions, rng.uniform(size=layout.horizon))


def numbers(release):
    """Every released array of numbers."""
    every = [*release.estimates.values(), *release.measurement.estimates.values()]
    return np.concatenate([one.value.ravel() for one in every])


# ------------------------------------------------------------------------------------ what is guaranteed
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
def test_guarantee_is_that_of_the_devices_reports_under_joint_privacy(epsilon):
    spec = CountQuery(SIZE, visits=False, center_rewards=True)
    server = Central(epsilon=epsilon, release="reports").start(spec, Schedule(100), Seeded(0))
    device = Local(epsilon=epsilon).start(spec, Schedule(100), Seeded(0))
    ours, theirs = server.guarantee, device.guarantee
    assert (ours.trust, theirs.trust) == ("joint", "local")
    assert ours.epsilon == theirs.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert ours.epsilon <= epsilon * (1 + 1e-14)
    assert (ours.delta, ours.rho, ours.mu) == (0.0, None, None)
    assert ours.composition == theirs.composition
    assert "The trusted server draws reports of" in ours.statement
    assert "once and with coins of their own" in ours.statement
    assert type(ours).from_dict(ours.to_dict()) == ours
    mine, hers = server.mechanism.reports, device.mechanism.reports
    assert (mine.moves, mine.rewards, mine.steps, mine.share) == (
        hers.moves, hers.rewards, hers.steps, hers.share,
    )  # fmt: skip
    assert repr(server.laws_at(50)) == repr(device.laws_at(50))
    assert server.mechanism.laws.steps() == device.mechanism.laws.steps()


@pytest.mark.parametrize(
    ("layout", "stochastic", "every"),
    [(Layout(2, 2, 1), False, 1), (Layout(2, 2, 1), True, 1), (Layout(2, 2, 2), False, 9)],
)
def test_no_release_tells_two_trajectories_apart_by_more_than_epsilon(layout, stochastic, every, monkeypatch):
    """The whole session on every outcome of its coins, also of users who left the policy: exact rationals."""
    epsilon = 1.25
    policy = np.full((layout.horizon, 2, 2), 0.5) if stochastic else np.zeros((layout.horizon, 2), int)
    plans = "stochastic" if stochastic else "deterministic"
    private, query = Central(epsilon=epsilon, release="reports"), CountQuery(layout)

    def through_the_session(life, plan, coins):
        monkeypatch.setattr(reported_session, "SeededRng", lambda key, user: coins)
        with private.start(query, Schedule(2, plans=plans), Seeded(0)) as one:
            one.release()
            encoder = one.begin(plan)
            one.submit(encoder(life, one.open_plan, None))
            return Message(plan=1, message=numbers(one.release()))

    lives = list(audit_reports.lives(layout))[::every]
    laws = [audit_reports.law_of(through_the_session, life, Plan(policy)) for life in lives]
    assert all(sum(law.values()) == 1 for law in laws)
    worst = max(
        max(law[out] for law in laws) / min(law.get(out, 0) for law in laws) for out in set().union(*laws)
    )
    assert worst <= math.exp(epsilon) * (1 + 1e-12)
    assert worst >= math.exp(epsilon) * (1 - 1e-9)  # and the budget is used


# ------------------------------------------------------------------------------------ one law, one code
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize(
    "query",
    [QUERY, CountQuery(LAYOUT), CountQuery(LAYOUT, stationary=True), CountQuery(LAYOUT, known_rewards=True)],
    ids=["centred", "all", "stationary", "moves"],
)
def test_sums_are_those_of_the_devices_bit_for_bit(query, stochastic):
    """One by one and all at once, with users who leave the policy and some who send nothing."""
    seeded, schedule = Seeded(3), Schedule(40, plans="stochastic" if stochastic else "deterministic")
    policy = np.full((4, 3, 2), 0.5) if stochastic else POLICY
    found = []
    for private, many in ((Local(epsilon=2.0), False), (REPORTS, False), (REPORTS, True)):
        with private.start(query, schedule, seeded) as one:
            one.release()
            encoder = one.begin(Plan(policy, users=12))
            one.absent(2)
            lives = [life_of(i) for i in range(10)]
            if many:
                stacked = (np.stack([getattr(x, n) for x in lives]) for n in ("states", "actions", "rewards"))
                one.submit_many(Trajectories(*stacked), one.open_plan.number)
            else:
                for i, life in enumerate(lives):
                    one.submit(encoder(life, one.open_plan, SeededRng(seeded.keys.noise, 2 + i)))
            found.append(numbers(one.release()))
    device, server, together = found
    assert device.any()
    assert device.tobytes() == server.tobytes() == together.tobytes()


@pytest.mark.parametrize(
    "learner",
    [dr.NoiseAwareUCBVI(), dr.DPUCBVI(replan_growth=1.3), dr.learners.PrivateUCBPO(replan_growth=1.5)],
    ids=lambda learner: type(learner).__name__,
)
@pytest.mark.parametrize("by", ["episode", "batch"])
def test_simulations_stepwise_fused_and_local_agree(learner, by):
    mdp = dr.make("riverswim", rewards="bernoulli", horizon=4)
    fused, slow, local = (
        dr.simulate(mdp, learner, private, 120, seeds=1, seed=4, by=by, stepwise=stepwise, workers=1).regret
        for private, stepwise in ((REPORTS, False), (REPORTS, True), (Local(epsilon=2.0), False))
    )
    assert fused.tobytes() == slow.tobytes() == local.tobytes()


def test_secure_sessions_draw_exact_coins_on_the_server(monkeypatch):
    flips = []

    class Watched(SecureRng):
        def flip(self, numerator):
            flips.append(numerator)
            return super().flip(numerator)

    def refuse(*_):
        raise AssertionError("seeded coins in a secure session")

    monkeypatch.setattr(reported_session, "SecureRng", Watched)
    monkeypatch.setattr(reported_session, "SeededRng", refuse)
    with REPORTS.start(QUERY, Schedule(9), Secure()) as one:
        assert one.guarantee.randomness == "secure"
        one.release()
        encoder = one.begin(Plan(POLICY, users=5))
        assert isinstance(encoder, RawEncoder)
        for i in range(3):
            one.submit(encoder(life_of(i), one.open_plan, SecureRng()))
        assert len(flips) >= 3
        with pytest.raises(ValueError, match="secure randomness"):
            one.submit_sum({}, 1)
        one.absent(2)
        release = one.release()
    assert release.users == 5
    assert release.estimates["transition_counts"].law.terms == 3


# ------------------------------------------------------------------------------------ what is kept
def test_no_trajectory_survives_its_report():
    """Not the user's, not a checked copy of it; in what the session reaches, and anywhere else."""
    gc.collect()
    kinds = Trajectory, Trajectories, Message  # by exact class: a dead weak proxy has none
    before = {id(x) for x in gc.get_objects() if type(x) in kinds}
    with REPORTS.start(QUERY, Schedule(9), Seeded(0)) as one:
        one.release()
        encoder = one.begin(Plan(POLICY, users=3))
        life = life_of(1)
        gone = weakref.ref(life)
        one.submit(encoder(life, one.open_plan, None))
        del life
        stacked = (getattr(life_of(2), n)[None] for n in ("states", "actions", "rewards"))
        one.submit_many(Trajectories(*stacked), 1)
        gc.collect()
        assert gone() is None
        alive = [x for x in gc.get_objects() if type(x) in kinds]
        assert not [x for x in alive if id(x) not in before]
        assert one.state["cells"].any()  # the debiased reports


def test_broken_records_and_foreign_reports_add_nothing():
    with REPORTS.start(QUERY, Schedule(9), Seeded(0)) as one:
        one.release()
        one.begin(Plan(POLICY, users=3))
        life = life_of(1)
        for bad, match in (
            (Message(1, message=np.array([0, 0, 1, 0])), "takes trajectories"),
            (Message(2, trajectory=life), "message.plan = 2"),
            (Message(1, trajectory=Trajectory(life.states, life.actions, life.rewards + 1)), "rewards"),
        ):
            with pytest.raises(ValueError, match=match):
                one.submit(bad)
        states = np.stack([life.states, np.full(5, 7)])
        two = Trajectories(states, np.stack([life.actions] * 2), np.stack([life.rewards] * 2))
        with pytest.raises(ValueError, match=r"trajectories\[1\]"):
            one.submit_many(two, 1)
        assert one.users == 0
        assert not one.state["cells"].any()
    with Local(epsilon=2.0).start(QUERY, Schedule(9), Seeded(0)) as one:
        one.begin(Plan(POLICY, users=3))
        with pytest.raises(ValueError, match="a local session takes randomized messages only"):
            one.submit_many(two, 1)


# ------------------------------------------------------------------------------------ audits
@pytest.mark.statistics
def test_audits_expose_a_server_that_randomizes_too_little_or_beside_the_truth():
    """False alarms of the honest server: at most 1e-6 each, as audits state."""

    def doubled(query, schedule, randomness):
        one = Central(epsilon=1.0, release="reports").start(query, schedule, randomness)
        old = one.reports
        twice = StepReports.of(query, old.kind, 2.0, old.steps, old.reward_share)
        strategy = Reported(twice, "server")
        one._mechanism = dataclasses.replace(one._mechanism, strategy=strategy)
        one.channel.mechanism, one.channel.reports = one._mechanism, twice
        return one

    class Leaks(reported_session.ReportChannel):
        def add(self, s, message):
            super().add(s, message)
            add_records(self.query, self.begins, Trajectories.of(message.trajectory), s.state["cells"])

    def leaking(query, schedule, randomness):
        one = Central(epsilon=1.0, release="reports").start(query, schedule, randomness)
        one.channel.__class__ = Leaks
        return one

    honest = Central(epsilon=1.0, release="reports").start
    name = "a message's exact law loses at most the claimed"
    for start, passes in ((honest, True), (doubled, False)):
        found = {one.name: one for one in white_box(start, layout=Layout(3, 2, 3), seed=1)}
        assert found[name].passed is passes, found[name]
    for start, passes in ((honest, True), (leaking, False)):
        assert black_box(start, runs=800).exceeded is not passes


# ------------------------------------------------------------------------------------ refusals


def test_queries_that_reports_cannot_answer_are_refused():
    measured = Schedule(40, reads="measurements")
    for query, message in (
        (
            CountQuery(LAYOUT, visits=False, pooled="all"),
            "pooled = 'all': must be 'none' with release = 'rep",
        ),
        (CountQuery(LAYOUT, visits=False, groups=2, clip=1.0), "groups"),
    ):
        with pytest.raises(ValueError, match=message):
            REPORTS.start(query, measured, Seeded(0))
    shares = Schedule(40, times=[0, 4], reads="measurements", pooled_shares=np.array([0.4, 0.6]))
    with pytest.raises(ValueError, match=r"schedule\.pooled_shares = .*must be None with release"):
        REPORTS.start(QUERY, shares, Seeded(0))
    with pytest.raises(ValueError, match="must be 'auto' or 'batches'"):
        REPORTS.stored(QUERY, Seeded(0))
    world = dr.envs.linear_mixture(states=3, actions=2, horizon=3, models=2)
    with pytest.raises(ValueError, match="release = 'reports': are of counts, not of linear sums"):
        dr.simulate(world, UCRLVTR(), REPORTS, 20, seeds=1, workers=1)


# ------------------------------------------------------------------------------------ auto's choice


def test_terms_say_whether_counts_come_as_reports():
    assert Central(epsilon=1.0).budget == Budget("joint", 1.0)
    assert Central(epsilon=1.0, release="reports").budget.reports is True
    for options in ({"release": "batches"}, {"noise": "laplace"}, {"delta": 1e-6}, {"weights": (0.5, 0.5)}):
        assert Central(epsilon=1.0, **options).budget.reports is False
    private = Central(epsilon=1.0, release="reports")  # always, so the learner asks what they can answer
    spec = ProblemSpec(SIZE, 2_000, budget=private.budget)
    assert dr.NoiseAwareUCBVI().query(spec).pooled == "none"
    forecast = estimate_run(Setup(dr.make("riverswim"), dr.NoiseAwareUCBVI(), private, 2_000))
    assert forecast.choices[0].release == "reports (1 random step)"
    assert "trusted server draws" in forecast.statement
