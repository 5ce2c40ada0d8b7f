"""Amplified reports: three parties, one randomizer for a batch, laws, the bound against exact divergences."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from interrupts import interrupted
from scipy.stats import binom

import discreet as dr
from discreet.accounting.pld import verify
from discreet.accounting.shuffle_amplification import amplified_delta, amplified_epsilon, local_epsilon
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.device.message_envelope import HEADER, Envelope, MessageRejected
from discreet.envs.rollouts.rollout import reported_counts, rollout
from discreet.mechanisms.interfaces import Message, Plan, Schedule
from discreet.mechanisms.local.randomized_response import StepReports
from discreet.mechanisms.local.randomized_response_strategy import Reported
from discreet.mechanisms.privatizers.shuffle import Shuffle
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.mechanisms.shuffle.amplified_session import (
    AmplifiedChannel,
    Histogram,
    ReportShuffler,
    reports_of,
)
from discreet.mechanisms.shuffle.shuffle_session import BatchTooSmall

LAYOUT = Layout(2, 2, 3)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
POLICY = np.zeros((3, 2), np.int64)
LIFE = dr.Trajectory(np.array([0, 1, 1, 0]), np.zeros(3, np.int64), np.array([1.0, 0.0, 0.5]))
AMPLIFIED = Shuffle(epsilon=1.0, delta=1e-4, randomizer="amplified")
KEY = Seeded(5).keys.noise


def started(privatizer=AMPLIFIED, users=40, times=(0, 10, 20), source=None, query=QUERY):
    return privatizer.start(query, Schedule(users, times=np.array(times)), source or Seeded(5))


def sent(session, users, policy=POLICY):
    """The messages of a new plan's users."""
    encoder, first = session.begin(Plan(policy, users)), session.users
    return [encoder(LIFE, session.open_plan, SeededRng(KEY, user)) for user in range(first, first + users)]


# ------------------------------------------------------------------------- the bound, independently
def histogram_law(rows):
    """Law of the histogram of independent reports, one row of probabilities each."""
    law = {(0,) * len(rows[0]): 1.0}
    for row in rows:
        new = {}
        for counts, mass in law.items():
            for j, p in enumerate(row):
                if p:
                    key = (*counts[:j], counts[j] + 1, *counts[j + 1 :])
                    new[key] = new.get(key, 0.0) + mass * p
        law = new
    return law


def divergence(one, other, epsilon):
    return sum(max(0.0, mass - math.exp(epsilon) * other.get(key, 0.0)) for key, mass in one.items())


@pytest.mark.parametrize("users", [2, 30, 400, 3_000])
def test_randomized_response_by_exact_enumeration(users):
    """Binary randomized response at the calibrated epsilon0: the number of ones, for every kind of crowd."""
    delta = 1e-4
    own = local_epsilon(1.0, delta, users)
    p = 1.0 / (math.exp(own) + 1.0)
    for ones in {0, (users - 1) // 3, (users - 1) // 2, users - 1}:
        crowd = np.convolve(
            binom.pmf(np.arange(ones + 1), ones, 1 - p),
            binom.pmf(np.arange(users - ones), users - 1 - ones, p),
        )
        one, zero = (np.convolve(crowd, [1 - q, q]) for q in (1 - p, p))
        for a, b in ((one, zero), (zero, one)):
            exact = float(np.maximum(a - math.e * b, 0.0).sum())
            assert exact <= delta * (1 + 1e-9)
            assert exact <= amplified_delta(own, users, 1.0) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("kind", ["subset", "oue"])
def test_reports_of_steps_by_exact_enumeration(kind):
    """The law of a whole message of H = 2 steps, histograms of 3 users: every crowd of a few trajectories."""
    layout, own = Layout(2, 1, 2), 1.5
    query = CountQuery(layout, visits=False, known_rewards=True)
    reports = StepReports.of(query, kind, own, 1, 0.15)
    one, size = reports.randomizer(0, True), 4
    symbols = [z for k in range(size + 1) for z in itertools.combinations(range(size), k)]

    def law(states):
        found = []
        for h in range(2):
            element = 2 * states[h] + states[h + 1]  # one action: the row is the state
            for z in symbols:
                if one.unary:
                    bits = [(one.own if e == element else one.other) / 2**53 for e in range(size)]
                    mass = math.prod(b if e in z else 1 - b for e, b in enumerate(bits))
                elif len(z) != one.size:
                    mass = 0.0
                elif element in z:
                    mass = float(one.p) / math.comb(size - 1, one.size - 1)
                else:
                    mass = float(1 - one.p) / math.comb(size - 1, one.size)
                found.append(0.5 * mass)
        assert sum(found) == pytest.approx(1.0)
        return found

    lives = [law(s) for s in ((0, 0, 0), (1, 1, 1), (0, 1, 0))]
    assert max(
        a / b for x, y in itertools.permutations(lives, 2) for a, b in zip(x, y, strict=True) if b
    ) <= (math.exp(own) * (1 + 1e-12))
    for crowd in itertools.combinations_with_replacement(lives, 2):
        laws = [histogram_law([x, *crowd]) for x in lives[:2]]
        for epsilon in (0.2, 0.7):
            assert divergence(*laws, epsilon) <= amplified_delta(own, 3, epsilon)


# --------------------------------------------------------------------------------- three parties
def test_one_randomizer_for_a_batch_whatever_the_plan():
    """The same coins and trajectory make the same report under any policy, followed or not."""
    session = started()
    session.release()
    headers = []
    for policy in (POLICY, 1 - POLICY, np.full((3, 2, 2), 0.5)):
        (report,) = sent(session, 1, policy)
        headers.append(Envelope.from_bytes(report.message).plan)
        session.submit(report)
    assert headers == [1, 2, 3]  # which the shuffler drops
    inner = session.begin(Plan(POLICY, 1)).inner
    with_other = type(inner)(LAYOUT, inner.reports, True, inner.policy_rows + 1, inner.number)
    for user in range(20):
        one = inner(LIFE, session.open_plan, SeededRng(KEY, user)).message
        other = with_other(LIFE, session.open_plan, SeededRng(KEY, user)).message
        assert (one == other).all()


def test_order_and_senders_leave_no_trace():
    session = started()
    session.release()
    messages = [report.message for report in sent(session, 10)]
    outputs = []
    for order in (range(10), np.random.default_rng(0).permutation(10)):
        shuffler = ReportShuffler(LAYOUT, session.reports, session.number, 10)
        shuffler.open(1, 10)
        for i in order:
            shuffler.receive(messages[i])
        outputs.append(shuffler.output())
    first, second = outputs
    assert isinstance(first, Histogram)
    assert first.users == second.users == 10
    for name in ("reports", "moves", "bits"):
        assert (getattr(first, name) == getattr(second, name)).all()


def test_sums_are_those_of_the_local_session():
    """Same reports, debiased one by one by the local session and together by the analyzer."""
    for query in (QUERY, CountQuery(LAYOUT), CountQuery(LAYOUT, visits=False, known_rewards=True)):
        session = started(query=query)
        session.release()
        reports = sent(session, 10)
        schedule = Schedule(40, times=np.array([0, 10]), plans="stochastic")
        mechanism = CountMechanism(query, schedule, "seeded", Reported(session.reports, "device"))
        local: object = dr.mechanisms.session_of(mechanism, Seeded(5))
        local.release()
        local.begin(Plan(np.full((3, 2, 2), 0.5), 10))
        for report in reports:
            session.submit(report)
            local.submit(
                Message(1, message=np.frombuffer(Envelope.from_bytes(report.message).payload, "<i4"))
            )
        ours, theirs = session.release(), local.release()
        assert set(ours.estimates) == set(theirs.estimates)
        for name, estimate in ours.estimates.items():
            assert estimate.value == pytest.approx(theirs.estimates[name].value, rel=1e-9, abs=1e-9)
            assert estimate.law.std() == pytest.approx(theirs.estimates[name].law.std())
            assert estimate.covers == 10


def test_bad_messages_are_counted_and_move_nothing():
    session = started()
    session.release()
    reports = sent(session, 10)
    good = reports[0].message
    session.submit(reports[0])
    whole = Envelope.from_bytes(good)
    body = np.frombuffer(whole.payload, "<i4")
    wrong = {
        "malformed": [
            good[:2], good[:-1], good[:HEADER], b"bits" + good[4:], good + bytes(4),
            replace(whole, payload=np.append(body[:-1], 99).astype("<i4").tobytes()).to_bytes(),
            replace(whole, payload=whole.payload[:-1]).to_bytes(), replace(whole, payload=b"").to_bytes(),
        ],
        "foreign": [replace(whole, form=bytes(16)).to_bytes(), replace(whole, kind="sums").to_bytes()],
        "late": [replace(whole, plan=2).to_bytes()],
        "replayed": [good],
    }  # fmt: skip
    for reason, many in wrong.items():
        for i, message in enumerate(many):
            with pytest.raises(ValueError):
                session.submit(Message(1, message=message))
            assert session.refused[reason] == i + 1
    for report, words in ((Message(1, trajectory=LIFE), "raw data"), (Message(1, message=body), "bytes")):
        with pytest.raises(ValueError, match=words):
            session.submit(report)
    for report in reports[1:]:
        session.submit(report)
    with pytest.raises(MessageRejected) as refusal:  # all have come, and she counts already
        session.submit(reports[0])
    assert refusal.value.reason == "replayed"
    clean = started()
    clean.release()
    for report in sent(clean, 10):
        clean.submit(report)
    one, other = session.release(), clean.release()
    for name in one.estimates:
        assert (one.estimates[name].value == other.estimates[name].value).all()


def test_more_users_than_the_plan_has_are_refused():
    session = started()
    session.release()
    messages = [report.message for report in sent(session, 3)]
    shuffler = ReportShuffler(LAYOUT, session.reports, session.number, 1)
    shuffler.open(1, 2)
    for message in messages[:2]:
        shuffler.receive(message)
    with pytest.raises(ValueError, match="all users"):
        shuffler.receive(messages[2])
    assert shuffler.refused["full"] == 1
    assert shuffler.received == 2


def test_a_batch_below_its_size_is_not_let_out_and_forgotten():
    session = started()
    session.release()
    for report in sent(session, 9):
        session.submit(report)
    session.begin(Plan(POLICY, 1))
    session.absent()
    with pytest.raises(BatchTooSmall, match="messages: 9 came, 10 must"):
        session.release()
    assert session.release().users == 0
    for report in sent(session, 10):
        session.submit(report)
    assert session.release().measurement.estimates[TRANSITIONS].covers == 10
    lenient = started(Shuffle(epsilon=1.0, delta=1e-4, dishonest=0.2, randomizer="amplified"))
    lenient.release()
    for report in sent(lenient, 8):
        lenient.submit(report)
    lenient.begin(Plan(POLICY, 2))
    lenient.absent(2)
    assert lenient.release().users == 10
    assert {users for users, _ in lenient.records[0].batches} == {8, 16}


# ------------------------------------------------------------------------------------- guarantee
def test_the_guarantee_is_that_of_the_worst_batch():
    session = started(users=2_000, times=(0, 1, 30, 1_000))
    guarantee, (record,) = session.guarantee, session.records
    assert guarantee.trust == "shuffle"
    assert 0.99 < guarantee.epsilon <= 1.0
    assert verify(guarantee, [record]) == pytest.approx(guarantee.epsilon, abs=2e-3)
    for users, own in record.batches:
        assert own <= local_epsilon(1.0, 1e-4, users) * (1 + 1e-12)
        assert amplified_epsilon(own, users, 1e-4) <= 1.0
    assert dict(record.batches)[1] <= 1.001  # nobody to hide among
    assert dict(record.batches)[1_000] > 2.0
    assert f"{record.local:.4g}"[:4] in guarantee.statement


def test_epsilon0_rises_with_the_batch_and_reports_keep_to_it():
    asked = CountQuery(Layout(6, 2, 20), visits=False, center_rewards=True, reward_share=0.2)
    errors = []
    for users in (10, 1_000, 100_000):
        own = local_epsilon(1.0, 1e-6, users)
        reports = reports_of(asked, own)
        errors.append(reports.unit_std(True))
        assert reports.reward_share == pytest.approx(0.2)
        for about in (0, 1):
            ratio = float(reports.randomizer(about, True).ratio)
            assert reports.steps * math.log(ratio) <= own * (1 + 1e-12)
    assert errors == sorted(errors, reverse=True)


def test_what_does_not_fit_is_refused():
    for wrong in (
        {"randomizer": "other"}, {"randomizer": "amplified", "weights": (0.5, 0.5)},
        {"randomizer": "amplified", "calibration": "basic"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(reversed(wrong))):
            Shuffle(epsilon=1.0, **wrong)
    for query in (
        CountQuery(LAYOUT, stationary=True), CountQuery(LAYOUT, visits=False, pooled="all"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="query"):
            started(query=query)
    with pytest.raises(ValueError, match="users = None"):
        AMPLIFIED.start(QUERY, Schedule(None, times=np.array([0, 5])), Seeded(0))


# ----------------------------------------------------------------------------- laws, simulation
def test_laws_of_a_release():
    session = started()
    zero = session.release()
    assert zero.estimates[TRANSITIONS].law.std() == 0.0
    assert zero.estimates[TRANSITIONS].law.bound(0.1) == 0.0
    for _ in range(2):
        for report in sent(session, 10):
            session.submit(report)
        last = session.release()
    for name, law in session.laws_at(20).items():
        now = last.estimates[name].law
        assert now == law
        newest = last.measurement.estimates[name].law
        assert newest.terms == 10
        assert now.std() == pytest.approx(math.sqrt(2) * newest.std())
        assert now.std_bound() >= now.std()
        assert now.bound(0.05) > 2 * now.std()
    assert session.mechanism.batches[0][1] is session.mechanism.batches[1][1]
    unlike = started(users=1_000, times=(0, 10, 900)).laws_at(900)[TRANSITIONS]
    parts = started(users=1_000, times=(0, 10, 900)).mechanism.scheduled
    variance = sum(parts(i, n)[0][0].std() ** 2 for i, n in ((0, 10), (1, 890)))
    assert unlike.std() == pytest.approx(math.sqrt(variance))
    assert unlike.reach == parts(0, 10)[0][0].reach  # the small batch's reports are the noisiest


@pytest.mark.parametrize("by_messages", [False, True])
def test_noise_has_its_law(by_messages):
    """Errors of 100 (400) batches of 40 users in a world without chance; false alarm below 1e-6 (6 s.e.)."""
    turn = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])  # from either state to the other
    world = dr.TabularMDP(turn, np.array([[1.0], [0.0]]), np.array([1.0, 0.0]), horizon=3)
    query, users, runs = CountQuery(world.layout), 40, 100 if by_messages else 400
    policy, keys = np.zeros((3, 2), np.int64), Seeded(9).keys
    life = rollout(world, policy, keys.environment, 0)
    truth = {name: users * value for name, value in query.contribution(life).items()}
    times = users * np.arange(runs + 1)
    session = AMPLIFIED.start(query, Schedule(users * runs + 1, times=times), Seeded(9))
    session.release()
    errors = {name: [] for name in truth}
    for run in range(runs):
        encoder, first = session.begin(Plan(policy, users)), users * run
        if by_messages:
            for user in range(first, first + users):
                session.submit(encoder(life, session.open_plan, SeededRng(keys.noise, user)))
        else:
            steps, share = session.reports.steps, session.reports.reward_share
            sums = reported_counts(world, policy, users, steps, share, keys.environment, first)
            session.submit_sum(sums, users)
        for name, estimate in session.release().measurement.estimates.items():
            errors[name].append(estimate.value - truth[name])
    for name, found in errors.items():
        law, table = session.laws_at(users)[name], np.array(found)
        assert (np.abs(table.mean(axis=0)) < 6 * math.sqrt(users * law.worst / runs)).all()
        spread = float((table**2).mean())
        if name == TRANSITIONS:  # the law's variance is the mean over the cells of a step, exactly
            assert spread == pytest.approx(law.std() ** 2, rel=6 * math.sqrt(2 / runs))
        assert spread <= users * law.worst * (1 + 6 * math.sqrt(2 / runs))
        assert np.abs(table).max() < law.bound(1e-6)


def test_learners_run_under_it_by_episodes_and_batches():
    world = dr.make("random", states=3, actions=2, horizon=3, seed=1)
    privatizer = Shuffle(epsilon=2.0, randomizer="amplified")
    for learner, by in itertools.product(
        (dr.NoiseAwareUCBVI(replan_growth=1.5), dr.DPUCBVI(replan_every=20)), ("episode", "batch")
    ):
        result = dr.simulate(world, learner, privatizer, episodes=60, seeds=1, by=by, workers=1)
        assert np.isfinite(result.final_regret).all()
        assert result.guarantee.trust == "shuffle"


def test_batches_with_questions_of_their_own():
    """One step alone, then all: by messages and by sums, each batch at its own epsilon0."""
    one, all_of_them = CountQuery(LAYOUT, visits=False, step=1), CountQuery(LAYOUT, visits=False)
    schedule = Schedule(200, times=np.array([0, 80, 160]), queries=(one, all_of_them))
    world = dr.make("random", states=2, actions=2, horizon=3, seed=1)
    session = AMPLIFIED.start(all_of_them, schedule, Seeded(5))
    assert "the one step" in session.guarantee.statement
    assert 0.99 < session.guarantee.epsilon <= 1.0
    session.release()
    encoder = session.begin(Plan(POLICY, 80))
    for user in range(80):
        session.submit(encoder(LIFE, session.open_plan, SeededRng(KEY, user)))
    first = session.release()
    assert first.estimates[TRANSITIONS].value.shape == (1, 2, 2, 2)
    errors = first.estimates[TRANSITIONS].value[0] - 80 * one.contribution(LIFE)[TRANSITIONS][0]
    law = first.estimates[TRANSITIONS].law
    assert 0 < np.abs(errors).max() < law.bound(1e-6)
    session.begin(Plan(POLICY, 80))
    reports = session.reports
    sums = reported_counts(world, POLICY, 80, reports.steps, reports.reward_share, KEY, 80)
    session.submit_sum(sums, 80)
    assert session.release().estimates[TRANSITIONS].value.shape == (3, 2, 2, 2)


def test_simulated_sums_must_be_of_reports():
    session = started()
    assert isinstance(session.channel, AmplifiedChannel)
    session.release()
    session.begin(Plan(POLICY, 10))
    moves, bits = np.zeros((3, 2, 2, 2)), np.zeros((3, 2, 2, 2))
    for wrong in ({}, {"reported_moves": moves}, {"reported_moves": moves - 1, "reported_bits": bits}):
        with pytest.raises(ValueError, match="reported_"):
            session.submit_sum(wrong, 10)
    with pytest.raises(ValueError, match="0 reports: must be 1 of each of 10"):
        session.submit_sum({"reported_moves": moves, "reported_bits": bits}, 10)


@pytest.mark.parametrize("way", ["receive", "output"])
def test_an_interrupt_counts_nobody_whose_report_is_not_there(way):
    """Ctrl-C at every line: with a lost report counted, too small a batch would be let out."""
    session = started()
    session.release()
    messages = [report.message for report in sent(session, 3)]
    at, stopped = 0, True
    while stopped:
        shuffler = ReportShuffler(LAYOUT, session.reports, session.number, 2)
        shuffler.open(1, 3)
        for message in messages[:2]:
            shuffler.receive(message)
        stopped = interrupted(
            (lambda s=shuffler: s.receive(messages[2])) if way == "receive" else shuffler.output, at,
            files=("mechanisms/shuffle/amplified_session.py",),
        )  # fmt: skip
        made = int(shuffler._reports.sum()), int(shuffler._moves.any() or shuffler._bits.any())
        assert shuffler.received * session.reports.steps <= made[0], at
        assert made[1] or not shuffler.received, at
        at += 1
    assert at > 5
