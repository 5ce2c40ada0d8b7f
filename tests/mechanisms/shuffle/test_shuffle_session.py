"""The shuffle model's three parties and their session: order, refusals, laws, guarantee."""

import itertools
import math
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from interrupts import interrupted
from scipy.stats import binom
from simulated_coins import SimulatedCoins

import discreet as dr
from discreet.accounting.pld import verify
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.device.message_envelope import Envelope, MessageRejected
from discreet.device.shuffle_encoder import ShuffleEncoder
from discreet.device.shuffle_payload import COIN, Family, SessionConfig, read
from discreet.envs.rollouts.rollout import batch_counts, reward_bits, rollout
from discreet.mechanisms.interfaces import Message, Plan, Schedule
from discreet.mechanisms.privatizers.shuffle import Shuffle
from discreet.mechanisms.restore_session import brought_back
from discreet.mechanisms.saved_state.save import taken_out
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.mechanisms.shuffle.shuffle_session import Analyzer, BatchTooSmall, Counted, Shuffler

LAYOUT = Layout(2, 2, 3)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
POLICY = np.zeros((3, 2), np.int64)
LIFE = dr.Trajectory(np.array([0, 1, 1, 0]), np.zeros(3, np.int64), np.array([1.0, 0.0, 0.5]))
SHUFFLE = Shuffle(epsilon=1.0, delta=1e-4)


def started(privatizer=SHUFFLE, users=40, times=(0, 10, 20), source=None, query=QUERY):
    return privatizer.start(query, Schedule(users, times=np.array(times)), source or Seeded(5))


KEY = Seeded(5).keys.noise


def fill(session, users):
    encoder = session.begin(Plan(POLICY, users))
    first = session.users
    for user in range(first, first + users):
        session.submit(encoder(LIFE, session.open_plan, SeededRng(KEY, user)))


# --------------------------------------------------------------------------------- three parties
FORM = SessionConfig(
    2, 2, 3, (Family("transitions", 3, COIN // 2), Family("centered_rewards", 4, COIN // 5, True))
)


def permuted_reference(form, messages, rng):
    """A shuffler to the letter: every bit a message tagged by its counter, all of them permuted."""
    bits = []
    for message in messages:
        ones = read(form, 1, message)[1]
        for i, family in enumerate(form.families):
            for counter in range(form.begins[i], form.begins[i + 1]):
                bits += [(counter, int(j < ones[counter])) for j in range(family.messages)]
    return [bits[i] for i in rng.permutation(len(bits))]


def test_counts_are_what_a_permutation_leaves():
    messages = [ShuffleEncoder(FORM, 1)(LIFE.states, LIFE.actions, LIFE.rewards) for _ in range(7)]
    shuffler = Shuffler(FORM, 7)
    shuffler.open(1, 7)
    for message in messages[:3]:
        shuffler.receive(message)
    assert shuffler.receive_many(messages[3:]) == 4
    counted = shuffler.output()
    rng = np.random.default_rng(0)
    seen = Counter(permuted_reference(FORM, messages, rng))
    for counter in range(FORM.begins[-1]):
        assert seen[counter, 1] == counted.ones[counter]
        assert seen[counter, 0] + seen[counter, 1] == counted.bits[counter]
    assert Analyzer(FORM).users(counted) == 7


def test_analyzer_is_unbiased():
    """Exactly: the mean of ones put in gives the user's own contribution back."""
    users = 9
    ones = np.concatenate(
        [np.full(24, users * 1.5), np.full(12, users * (1 + 2.0))]  # nobody anywhere: half of a pair is 1
    )
    bits = np.repeat([users * 4, users * 6], [24, 12])
    assert np.array_equal(Analyzer(FORM).sums(Counted(ones, bits)), np.zeros(36))
    ones[0] += 4
    ones[24] += 2 * 3 - 5  # five visitors, three of them with reward bit 1
    sums = Analyzer(FORM).sums(Counted(ones, bits))
    assert sums[0] == 4
    assert sums[24] == 3 - 0.5 * 5


def test_bad_messages_are_counted_and_move_nothing():
    message = ShuffleEncoder(FORM, 1)(LIFE.states, LIFE.actions, LIFE.rewards)
    other = ShuffleEncoder(FORM, 1)(LIFE.states, LIFE.actions, LIFE.rewards)
    foreign = ShuffleEncoder(replace(FORM, session=3), 1)(LIFE.states, LIFE.actions, LIFE.rewards)
    late = ShuffleEncoder(FORM, 0)(LIFE.states, LIFE.actions, LIFE.rewards)
    whole = Envelope.from_bytes(message)
    broken = replace(whole, payload=b"\xff" * 8 + whole.payload[8:]).to_bytes()
    stream = [message, message[:-1], foreign, late, broken, message, other, b"", other]
    one_by_one, at_once = Shuffler(FORM, 1), Shuffler(FORM, 1)
    for shuffler in (one_by_one, at_once):
        shuffler.open(1, 2)
    for item in stream:
        try:
            one_by_one.receive(item)
        except ValueError:
            continue
    assert at_once.receive_many(stream) == 2
    assert one_by_one.refused == at_once.refused
    assert dict(at_once.refused) == {"malformed": 3, "foreign": 1, "late": 1, "replayed": 2, "full": 0}
    extra = ShuffleEncoder(FORM, 1)(LIFE.states, LIFE.actions, LIFE.rewards)
    assert at_once.receive_many([extra]) == 0
    assert at_once.refused["full"] == 1
    sums = [shuffler.output() for shuffler in (one_by_one, at_once)]
    assert np.array_equal(sums[0].ones, sums[1].ones)
    assert sums[0].bits[0] == 2 * 4


@pytest.mark.parametrize("way", ["receive", "receive_many"])
def test_an_interrupt_counts_nobody_whose_flips_are_not_there(way):
    """Ctrl-C at every line: with a lost message counted, too small a batch would be let out."""
    messages = [ShuffleEncoder(FORM, 1)(LIFE.states, LIFE.actions, LIFE.rewards) for _ in range(3)]
    bits = [int(read(FORM, 1, message)[1].sum()) for message in messages]
    at, stopped = 0, True
    while stopped:
        shuffler = Shuffler(FORM, 4)
        shuffler.open(1, 4)
        shuffler.receive(messages[0])
        arguments = {"receive": messages[1], "receive_many": messages[1:]}[way]
        stopped = interrupted(
            lambda s=shuffler, a=arguments: getattr(s, way)(a), at,
            files=("mechanisms/shuffle/shuffle_session.py",),
        )  # fmt: skip
        assert int(shuffler._ones.sum()) == sum(bits[: shuffler.received]), at
        for message in messages[: shuffler.received]:
            with pytest.raises(ValueError, match="came before"):
                shuffler.receive(message)
        at += 1
    assert at > 5


def test_a_batch_below_its_size_is_not_let_out_and_forgotten():
    shuffler = Shuffler(FORM, 2)
    shuffler.open(1, 5)
    shuffler.receive(ShuffleEncoder(FORM, 1)(LIFE.states, LIFE.actions, LIFE.rewards))
    with pytest.raises(BatchTooSmall, match="messages: 1 came, 2 must"):
        shuffler.output()
    assert shuffler.received == 0
    with pytest.raises(BatchTooSmall, match="messages: 0 came"):
        shuffler.output()


def test_integers_as_printed_are_not_private():
    """y + noise sent as one integer: the largest value tells who was there, at every epsilon.

    Two batches of n users that differ in one bit. If all bits are 0, no integer exceeds the m flips; if one
    is 1, some integer is m + 1 with probability 2^-m: a lower bound on delta for any epsilon. The counts of
    bits, with the same flips, have a delta below 1e-12 at epsilon = 1.
    """
    n, m = 100, 3
    law = binom.pmf(np.arange(m + 1), m, 0.5)
    tell_tale = law[m]  # the user with y = 1 drew all ones
    assert tell_tale == 2.0**-m
    rng = np.random.default_rng(1)
    zeros = rng.binomial(m, 0.5, (2000, n))
    ones = zeros + np.eye(1, n, dtype=int)
    assert (zeros.max(axis=1) <= m).all()
    seen = (ones.max(axis=1) > m).mean()
    assert abs(seen - tell_tale) < 5.6 * math.sqrt(tell_tale / 2000)
    # bits: only the sum is seen
    total = np.arange(n * m + 2)
    here, there = binom.pmf(total - 1, n * m, 0.5), binom.pmf(total, n * m, 0.5)
    for one, other in ((here, there), (there, here)):
        assert np.maximum(one - math.e * other, 0).sum() < 1e-12


# ------------------------------------------------------------------------------------- session
def test_order_of_calls():
    session = started()
    first = session.release()
    assert first.number == 0
    assert not any(estimate.value.any() for estimate in first.estimates.values())
    with pytest.raises(RuntimeError, match="no plan is open"):
        session.submit(Message(1, message=b""))
    with pytest.raises(RuntimeError, match="no plan"):
        session.absent()
    with pytest.raises(ValueError, match="later batch"):
        session.begin(Plan(POLICY, 15))
    with pytest.raises(ValueError, match="declared users"):
        session.begin(Plan(POLICY, 41))
    fill(session, 4)
    with pytest.raises(RuntimeError, match="not one of the scheduled"):
        session.release()
    encoder = session.begin(Plan(POLICY, 6, last=False))
    with pytest.raises(RuntimeError, match="not submitted yet: "):
        session.release()
    with pytest.raises(RuntimeError, match="not submitted yet: "):
        session.begin(Plan(POLICY, 1))
    for user in range(6):
        session.submit(encoder(LIFE, session.open_plan, SimulatedCoinsOf(user)))
    assert session.release() is first  # last=False: no release yet
    fill(session, 10)
    second = session.release()
    assert (second.users, second.number) == (20, 1)
    assert session.release() is second
    assert second.measurement is not None
    for name in (TRANSITIONS, CENTERED_REWARDS):
        assert second.measurement.estimates[name].covers == 20
        assert np.array_equal(second.measurement.estimates[name].value, second.estimates[name].value)
    with pytest.raises(ValueError, match="read-only"):
        second.estimates[TRANSITIONS].value[0] = 1
    fill(session, 20)
    with pytest.raises(RuntimeError, match="no user is left"):
        session.release()
    with pytest.raises(ValueError, match="no new question"):
        session.answer(None)
    with pytest.raises(TypeError, match="copied"):
        pickle.dumps(session)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.release()


class SimulatedCoinsOf(SimulatedCoins):
    """Seeded coins with what the protocol asks of coins."""

    exact = False

    def __init__(self, user):
        super().__init__(8, user)


def test_what_is_refused_moves_nothing_and_is_counted():
    session = started()
    session.release()
    encoder = session.begin(Plan(POLICY, 10))
    report = encoder(LIFE, session.open_plan, SimulatedCoinsOf(0))
    assert len(report.message) == len(encoder(LIFE, session.open_plan, SimulatedCoinsOf(1)).message)
    session.submit(report)
    for bad in (
        report,
        Message(1, message=report.message[:-1]),
        Message(1, message=bytes(len(report.message))),
    ):
        with pytest.raises(ValueError, match="message"):
            session.submit(bad)
    with pytest.raises(ValueError, match="raw data"):
        session.submit(Message(1, trajectory=LIFE))
    with pytest.raises(ValueError, match="bytes"):
        session.submit(Message(1, message=np.zeros(3)))
    with pytest.raises(ValueError, match="rewards"):
        encoder(
            dr.Trajectory(LIFE.states, LIFE.actions, LIFE.rewards + 1), session.open_plan, SimulatedCoinsOf(0)
        )
    with pytest.raises(ValueError, match="plan.number"):
        encoder(LIFE, Plan(POLICY, number=4), SimulatedCoinsOf(0))
    assert session.users == 1
    assert dict(session.refused) == {"malformed": 2, "foreign": 0, "late": 0, "replayed": 1, "full": 0}


def test_absent_users_and_a_stated_share():
    strict = started()
    strict.release()
    fill(strict, 9)
    strict.begin(Plan(POLICY, 1))
    strict.absent()
    with pytest.raises(BatchTooSmall, match="messages: 9 came, 10 must"):
        strict.release()
    assert strict.release().users == 0  # the last one that was made
    fill(strict, 10)
    assert strict.release().measurement.estimates[TRANSITIONS].covers == 10

    lenient = started(Shuffle(epsilon=1.0, delta=1e-4, dishonest=0.2))
    lenient.release()
    fill(lenient, 8)
    lenient.begin(Plan(POLICY, 2))
    lenient.absent(2)
    assert lenient.release().users == 10


def test_the_guarantee_is_that_of_the_worst_batch():
    session = started(times=(0, 10, 25), users=300)
    assert session.guarantee.trust == "shuffle"
    assert session.guarantee.delta == 1e-4
    assert 0.99 < session.guarantee.epsilon <= 1.0
    assert verify(session.guarantee, session.records) == pytest.approx(session.guarantee.epsilon, abs=2e-3)
    assert [users for users, _ in session.mechanism.batches] == [10, 15, 275]
    assert "shuffler" in session.guarantee.statement
    paper = Shuffle(epsilon=1.0, preset="paper").start(QUERY, Schedule.one_shot(1000), Seeded(0))
    assert paper.guarantee.epsilon < 0.2
    assert "less privacy loss" in paper.guarantee.statement


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, (60, 10, 160)),
        ({"calibration": "composed"}, (260, 360)),  # the same flips a user: the smaller hides less
        ({"randomizer": "amplified"}, (500, 900, 700)),
        ({"randomizer": "amplified", "dishonest": 0.2}, (900, 500)),
    ],
    ids=str,
)
def test_unequal_batches_have_the_guarantee_of_the_worst_one_alone(options, sizes):
    """A user is in one batch: parallel composition is the maximum over single batches, in any order."""
    privatizer = Shuffle(epsilon=1.0, delta=1e-4, **options)
    alone = {n: privatizer.start(QUERY, Schedule.one_shot(n), Seeded(0)).guarantee for n in sizes}
    worst = max(one.epsilon for one in alone.values())
    assert min(one.epsilon for one in alone.values()) < worst  # else it would not matter which one is kept
    for order in (sizes, sizes[::-1]):
        ends = np.cumsum(order)
        final = privatizer.start(QUERY, Schedule(int(ends[-1]), times=[0, *ends], final=True), Seeded(0))
        # people after the last release are a batch of their own
        open_ended = privatizer.start(QUERY, Schedule(int(ends[-1]), times=[0, *ends[:-1]]), Seeded(0))
        for session in (final, open_ended):
            assert [users for users, _ in session.mechanism.batches] == list(order)
            assert session.guarantee.epsilon == worst


def test_what_does_not_fit_is_refused():
    for wrong, match in (
        ({}, "epsilon"), ({"epsilon": -1.0}, "epsilon"), ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1e-11}, "delta"), ({"epsilon": 1.0, "calibration": "no"}, "calibration"),
        ({"epsilon": 1.0, "weights": (0.5, 0.6)}, "weights"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            Shuffle(**wrong)
    with pytest.raises(ValueError, match="entries"):
        started(Shuffle(epsilon=1.0, weights=(1.0,)))
    with pytest.raises(ValueError, match="size of every batch"):
        SHUFFLE.start(QUERY, Schedule(None, times=np.array([0, 10])), Seeded(0))
    with pytest.raises(ValueError, match="bits"):
        started(query=CountQuery(LAYOUT, stationary=True))
    with pytest.raises(ValueError, match="CountQuery"):
        started(query="counts")


def test_simulated_sums_must_be_of_bits():
    session = started()
    session.release()
    session.begin(Plan(POLICY, 10))
    sums = {name: np.zeros(shape) for name, shape in QUERY.families.items()}
    for name, value in (
        (TRANSITIONS, 0.5),
        (TRANSITIONS, 11),
        (CENTERED_REWARDS, 0.3),
        (CENTERED_REWARDS, 6.0),
    ):
        bad = {key: table.copy() for key, table in sums.items()}
        bad[name].flat[0] = value
        with pytest.raises(ValueError, match="one bit a user"):
            session.submit_sum(bad, 10)
    session.submit_sum(sums, 10)
    assert session.release().users == 10


def test_laws_of_a_release():
    session = started(times=(0, 10, 25), users=300)
    session.release()
    fill(session, 10)
    first = session.release()
    fill(session, 15)
    second = session.release()
    for name in (TRANSITIONS, CENTERED_REWARDS):
        one, both = (release.estimates[name].law for release in (first, second))
        newest = second.measurement.estimates[name].law
        assert both.std() == pytest.approx(math.hypot(one.std(), newest.std()))
        assert session.laws_at(25)[name].std() == pytest.approx(both.std())
        assert both.family == "binomial"
        size = LAYOUT.states if name == TRANSITIONS else 1
        rows = LAYOUT.horizon * LAYOUT.states * LAYOUT.actions
        assert (both.cells, both.rows, both.row_size) == (rows * size, rows, size)
        assert newest.bound(0.05) < both.bound(0.05) < 8 * both.std()
        flips = dict(session.mechanism.batches[0][1])[name]
        unit = 0.5 if name == CENTERED_REWARDS else 1.0
        assert one.std() == pytest.approx(unit * math.sqrt(flips.variance))


def test_bits_of_rewards_have_their_law():
    """Means over 400 batches of 200 users; false alarm 2e-8 a cell. Bernoulli rewards stay as they are."""
    rng = np.random.default_rng(3)
    transitions = rng.dirichlet(np.ones(3), (3, 2))
    for rewards in (rng.random((3, 2)), rng.random((3, 2, 3))):
        mdp = dr.TabularMDP(transitions, rewards, initial=np.ones(3) / 3, horizon=2)
        policy = np.full((2, 3, 2), 0.5)
        total, expected, variance = 0.0, 0.0, 1e-12
        for batch in range(400):
            counts = batch_counts(mdp, policy, 200, Seeded(1).keys.environment, batch)
            bits = reward_bits(mdp, counts, Seeded(1).keys.environment, batch)
            assert (bits == np.round(bits)).all()
            assert (bits <= counts["visits"]).all()
            total, expected = total + bits, expected + counts["reward_sums"]
            variance = variance + counts["visits"] / 4
        assert (np.abs(total - expected) < 5.6 * np.sqrt(variance)).all()
    coin = dr.TabularMDP(
        transitions, rng.random((3, 2)), initial=np.ones(3) / 3, horizon=2, reward_law="bernoulli"
    )
    counts = batch_counts(coin, policy, 50, Seeded(1).keys.environment, 0)
    assert reward_bits(coin, counts, Seeded(1).keys.environment) is counts["reward_sums"]


def test_learners_run_under_shuffle_by_episodes_and_batches():
    mdp = dr.make("random", states=3, actions=2, horizon=3, seed=1)
    for learner, by in itertools.product(
        (
            dr.NoiseAwareUCBVI(replan_growth=1.5),
            dr.DPUCBVI(replan_every=20),
            dr.learners.PrivateUCBPO(replan_every=20),
        ),
        ("episode", "batch"),
    ):
        result = dr.simulate(mdp, learner, dr.Shuffle(epsilon=2.0), episodes=60, seeds=1, by=by, workers=1)
        assert np.isfinite(result.final_regret).all()
        assert result.guarantee.trust == "shuffle"


def test_one_release_of_stored_people():
    """All rows of a batch at once: the estimate is the truth within the law's bound (false alarm 1e-7)."""
    mdp = dr.make("random", states=3, actions=2, horizon=3, seed=1)
    query = CountQuery(mdp.layout, visits=False, center_rewards=True)
    session = Shuffle(epsilon=3.0).start(query, Schedule.one_shot(300), Seeded(2))
    session.release()
    policy = np.zeros((3, 3), np.int64)
    encoder = session.begin(Plan(policy, 300))
    truth = np.zeros(query.families[TRANSITIONS])
    for user in range(300):
        life = rollout(mdp, policy, Seeded(2).keys.environment, user)
        truth += query.contribution(life)[TRANSITIONS]
        session.submit(encoder(life, session.open_plan, SeededRng(Seeded(2).keys.noise, user)))
    estimate = session.release().estimates[TRANSITIONS]
    error = np.abs(estimate.value - truth)
    assert error.max() <= estimate.law.bound(1e-7)
    assert error.mean() > 0.5 * estimate.law.std()  # there is noise


def test_every_cell_gets_noise_of_its_own():
    """Nobody is anywhere but in LIFE's cells: all cells vary, alike, and apart from each other.

    400 batches of 10: variances within 5.6 standard errors (sqrt(2 / 400)), correlations below 5.6 / 20.
    """
    session = started(users=4001, times=range(0, 4001, 10))
    session.release()
    values = []
    for _ in range(400):
        session.begin(Plan(POLICY, 10))
        sums = {
            name: 10 * table for name, table in QUERY.contribution(replace(LIFE, rewards=np.ones(3))).items()
        }
        session.submit_sum(sums, 10)
        newest = session.release().measurement.estimates
        values.append(np.concatenate([(e.value - sums[n]).ravel() / e.law.std() for n, e in newest.items()]))
    noise = np.array(values)
    assert (np.abs(noise.mean(axis=0)) < 5.6 / 20).all()
    assert (np.abs(noise.var(axis=0) - 1) < 5.6 * math.sqrt(2 / 400)).all()
    apart = np.corrcoef(noise.T) - np.eye(noise.shape[1])
    assert np.abs(apart).max() < 5.6 / 20


# ---------------------------------------------------------- what a lost batch leaves behind
def test_a_dropped_first_batch_leaves_the_release_of_nothing():
    """Not zeros without noise that claim to reflect everybody."""
    session = started()
    session.begin(Plan(POLICY, 10))
    session.absent(10)
    with pytest.raises(BatchTooSmall):
        session.release()
    nothing = session.release()
    assert (nothing.users, nothing.number) == (0, 0)
    for estimates in (nothing.estimates, nothing.measurement.estimates):
        assert all(not one.value.any() and one.covers == one.effective == 0 for one in estimates.values())
    assert session.release() is nothing
    fill(session, 10)
    assert (session.release().users, session.release().number) == (20, 1)


def test_covers_counts_those_whose_messages_were_let_out():
    strict = started(times=(0, 10, 20, 30))
    fill(strict, 10)
    assert {one.covers for one in strict.release().estimates.values()} == {10}
    strict.begin(Plan(POLICY, 10))
    strict.absent(10)
    with pytest.raises(BatchTooSmall):
        strict.release()
    fill(strict, 10)
    after = strict.release()
    assert after.users == 30
    assert {(one.covers, one.effective) for one in after.estimates.values()} == {(20, 20.0)}
    flips = dict(strict.mechanism.batches[0][1])[TRANSITIONS]
    assert sum(n for n, _ in after.estimates[TRANSITIONS].law.components) == 20 * flips.each

    lenient = started(Shuffle(epsilon=1.0, delta=1e-4, dishonest=0.2))
    fill(lenient, 8)
    lenient.begin(Plan(POLICY, 2))
    lenient.absent(2)
    release = lenient.release()
    assert release.users == 10
    assert {one.covers for one in release.estimates.values()} == {8}


# ------------------------------------------------------- a shuffler that is a process of its own
def test_what_another_process_let_out_is_the_batch():
    """The same release as of the messages themselves; nothing that could not be of the batch is taken."""
    near, far = started(), started()
    shuffler = Shuffler.of_batch(far.mechanism, 0, far.number)
    shuffler.open(1, 10)
    encoder = far.begin(Plan(POLICY, 10))
    sent = [encoder(LIFE, far.open_plan, SimulatedCoinsOf(user)).message for user in range(10)]
    with pytest.raises(RuntimeError, match="all of them absent"):
        far.submit_counted(Counted(np.zeros(1), np.zeros(1)))
    near.begin(Plan(POLICY, 10))
    for one in sent:
        near.submit(Message(1, message=one))
    far.absent(10)
    assert shuffler.receive_many([]) == shuffler.receive_many([b"junk"]) == 0
    assert shuffler.receive_many(sent) == 10
    counted = shuffler.output()
    wrong = [
        (Counted(counted.ones[:-1], counted.bits[:-1]), "integers"),
        (Counted(counted.ones.astype(float), counted.bits), "integers"),
        (Counted(counted.ones, counted.bits - 1), "of messages of this form"),
        (Counted(-counted.ones, counted.bits), "of messages of this form"),
        (Counted(counted.bits + 1, counted.bits), "of messages of this form"),
        (Counted(2 * counted.ones, 2 * counted.bits), "at most 10|in \\[1, 10\\]"),
        (Counted(0 * counted.ones, 0 * counted.bits), "users"),
        (None, "NoneType"),
    ]
    for table, words in wrong:
        with pytest.raises(ValueError, match=words):
            far.submit_counted(table)
    far.submit_counted(counted)
    with pytest.raises(RuntimeError, match="all of them absent"):
        far.submit_counted(counted)
    release, wanted = far.release(), near.release()
    assert (release.users, release.number) == (wanted.users, wanted.number) == (10, 1)
    for name, one in wanted.estimates.items():
        assert one.covers == release.estimates[name].covers == 10
        assert np.array_equal(one.value, release.estimates[name].value)
        assert one.law == release.estimates[name].law


class _Interrupted:
    """What cannot be added: the moment of Ctrl-C."""

    __array_ufunc__ = None

    def __radd__(self, other):
        raise KeyboardInterrupt

    def __getitem__(self, key):
        return self

    def sum(self, axis):
        return self


@pytest.mark.parametrize("many", [False, True])
def test_a_batch_without_the_flips_of_an_interrupted_message_is_not_let_out(many, monkeypatch):
    from discreet.device import shuffle_payload as messages

    sent = [ShuffleEncoder(FORM, 1)(LIFE.states, LIFE.actions, LIFE.rewards) for _ in range(3)]
    shuffler = Shuffler(FORM, 3)
    shuffler.open(1, 3)
    with monkeypatch.context() as patch:
        read, unpack = messages.read, messages.unpack
        patch.setattr(messages, "read", lambda *given: (read(*given)[0], _Interrupted()))
        patch.setattr(messages, "unpack", lambda *given: (_Interrupted(), unpack(*given)[1]))
        with pytest.raises(KeyboardInterrupt):
            _ = shuffler.receive_many(sent[:1]) if many else shuffler.receive(sent[0])
    assert (shuffler.received, shuffler.left) == (0, 2)
    with pytest.raises(ValueError, match="came before"):
        shuffler.receive(sent[0])
    assert shuffler.receive_many(sent[1:]) == 2
    with pytest.raises(BatchTooSmall, match="messages: 2 came, 3 must"):
        shuffler.output()


def test_the_user_of_an_interrupted_message_does_not_come_again(monkeypatch):
    from discreet.device import shuffle_payload as messages

    session = started()
    encoder = session.begin(Plan(POLICY, 10))
    with monkeypatch.context() as patch:
        read = messages.read
        patch.setattr(messages, "read", lambda *given: (read(*given)[0], _Interrupted()))
        with pytest.raises(KeyboardInterrupt):
            session.submit(encoder(LIFE, session.open_plan, SimulatedCoinsOf(0)))
    assert session.users == 1
    for user in range(1, 10):
        session.submit(encoder(LIFE, session.open_plan, SimulatedCoinsOf(user)))
    with pytest.raises(BatchTooSmall, match="messages: 9 came, 10 must"):
        session.release()


def test_noise_that_hides_everything_at_a_large_delta_has_a_guarantee():
    loud = Shuffle(epsilon=1.98, delta=0.18, calibration="basic")
    session = loud.start(CountQuery(Layout(2, 2, 1)), Schedule.one_shot(200), Seeded(0))
    assert 0 < session.guarantee.epsilon <= 1e-9
    assert verify(session.guarantee, session.records) == pytest.approx(0.0, abs=2e-3)


# ------------------------------------------------------------------------------ saved batches


def test_a_plan_over_several_batches_is_saved_and_continued():
    session = started(users=40, times=(0, 10, 20, 30))
    session.release()
    encoder = session.begin(Plan(POLICY, 30))
    for user in range(12):
        session.submit(encoder(LIFE, session.open_plan, SeededRng(KEY, user)))
    again = brought_back(taken_out(session))
    assert again.users == 12
    assert again.open_plan.users == 30


def test_batches_of_another_mechanism_are_refused():
    """Their devices add less noise than the guarantee states."""
    session, weak = started(), started(Shuffle(epsilon=8.0, delta=1e-4, dishonest=0.9))
    for one in (session, weak):
        one.release()
        fill(one, 3) if one is weak else one.begin(Plan(POLICY, 3))
    table = session._table
    forged = {
        "parameters of batches": {"open_batches": weak._table["open_batches"]},
        "since the last release": {"open_batches": []},
        "batch": {"batch": 3},
        "refused": {"refused": {**table["refused"], "late": -1}},
        "received": {"open_batches": [{**table["open_batches"][0], "_received": 9}]},
        "_ones": {
            "open_batches": [{**table["open_batches"][0], "_ones": table["open_batches"][0]["_ones"] - 1}]
        },
        "plan": {"open_batches": [{**table["open_batches"][0], "_plan": 77}]},
    }
    for name, change in forged.items():
        with pytest.raises(ValueError, match=name):
            session.channel.from_plain(session, {**table, **change})
    assert session.channel.from_plain(session, table)["batch"] == 0


def test_a_closed_session_keeps_its_public_numbers():
    session = started()
    session.release()
    session.begin(Plan(POLICY, 3))
    number, refused = session.number, dict(session.refused)
    session.close()
    assert (session.number, dict(session.refused)) == (number, refused)
    for fact in ("device", "open_encoder", "open_plan"):
        with pytest.raises(RuntimeError, match="closed"):
            getattr(session, fact)


def test_a_late_trajectory_counts_as_a_late_message():
    session = started()
    session.release()
    fill(session, 10)
    session.release()
    with pytest.raises(MessageRejected, match="batch that is over"):
        session.submit(Message(1, LIFE))
    assert session.refused["late"] == 1
