"""Shuffle sessions of sums over contexts: sums, absent users, states, guarantees, laws of the noise."""

import numpy as np
import pytest

import discreet as dr
from discreet import envs
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import SecureRng
from discreet.device.feature_map import FeatureMap
from discreet.device.linear_forms import GRAM, RESPONSE
from discreet.device.message_envelope import MessageRejected
from discreet.device.shuffle_encoder import SystemCoins
from discreet.experiments.context_runs import ContextSetup
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecord, ContextRecords
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.mechanisms.shuffle.shuffle_session import BatchTooSmall
from discreet.mechanisms.shuffle.skellam_session import BatchSum, SkellamChannel, SumShuffler, _loss, _targets

QUERY = ContextQuery(features=FeatureMap({"a": (-1, 1), "b": (-1, 1)}, 2))
POLICY = np.zeros((2, 3))
PRIVACY = dr.Shuffle(epsilon=2.0, delta=1e-6)
LITTLE = dr.Shuffle(epsilon=20.0, delta=1e-6)  # few draws for each message


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    return ContextRecords(
        rng.normal(size=(n, 1, 2)), rng.integers(0, 2, (n, 1)), rng.integers(0, 5, (n, 1)) / 4
    )


def opened(privatizer=PRIVACY, source=None, n=20):
    source = source or dr.Seeded(3)
    schedule = Schedule(n, times=np.array([0, n // 2, n]), final=True, reads="measurements")
    session = privatizer.start(QUERY, schedule, source)
    assert isinstance(session.channel, SkellamChannel)
    session.release()
    return session


def coins_of(session, user):
    return (
        SecureRng() if session.guarantee.randomness == "secure" else SeededRng(np.zeros(2, np.uint64), user)
    )


def fill(session, records):
    encoder = session.begin(Plan(POLICY, len(records)))
    for i, one in enumerate(records):
        session.submit(encoder(one, session.open_plan, coins_of(session, i)))


@pytest.mark.parametrize("source", [dr.Seeded(3), dr.Secure()])
def test_a_release_is_the_sum_of_the_messages(source):
    with opened(source=source) as session:
        encoder = session.begin(Plan(POLICY, 10))
        total = 0
        for i, one in enumerate(people(10)):
            message = encoder(one, session.open_plan, coins_of(session, i))
            total = total + session.device.read(1, message.message)[1]
            units = session.device.cell_units
            session.submit(message)
        release = session.release()
        expected = QUERY.from_cells(total * units)
        for name in (GRAM, RESPONSE):
            assert np.array_equal(release.estimates[name].value, expected[name])
            assert release.estimates[name].covers == 10
        std = release.estimates[RESPONSE].law.std(0)
        assert std == pytest.approx(session.mechanism.scale, rel=1e-6)
        assert session.guarantee.randomness == source.kind


def test_the_mechanism_is_calibrated_and_states_its_loss():
    with opened() as session:
        made = session.mechanism
        assert 1.99999 < session.guarantee.epsilon <= 2.0
        assert made.trust == "shuffle"
        central = dr.Central(epsilon=2.0, delta=1e-6).mechanism(QUERY, made.schedule, dr.Seeded(0))
        assert 1.0 < made.scale / central.scales[RESPONSE][0] < 1.1
        assert made.records[0].batches[0][0] == 10
        assert _loss(QUERY, _targets(QUERY, made.scale * 0.99)).epsilon(1e-6) > 2.0
    honest = dr.Shuffle(epsilon=2.0, delta=1e-6, dishonest=0.3)
    with opened(honest) as session:
        assert session.mechanism.honest == (7, 7)
        assert session.mechanism.variances(0)[0] == pytest.approx(10 / 7 * made.variances(0)[0], rel=1e-6)


def test_too_few_messages_release_nothing():
    with opened(LITTLE) as session:
        fill(session, people(9))
        session.begin(Plan(POLICY, 1))
        session.absent()
        with pytest.raises(BatchTooSmall, match="9 came, 10 must"):
            session.release()
        assert session.release().users == 0  # the batch is deleted
        fill(session, people(10, 1))
        assert session.release().estimates[GRAM].covers == 10
    with opened(dr.Shuffle(epsilon=20.0, delta=1e-6, dishonest=0.3)) as session:
        fill(session, people(7))
        session.begin(Plan(POLICY, 3))
        session.absent(3)
        assert session.release().estimates[GRAM].covers == 7


def test_messages_that_are_refused():
    with opened() as session:
        encoder = session.begin(Plan(POLICY, 10))
        record = people(1)[0]
        message = encoder(record, session.open_plan, coins_of(session, 0))
        session.submit(message)
        with pytest.raises(MessageRejected, match="came before"):
            session.submit(message)
        with pytest.raises(ValueError, match="not raw data"):
            session.submit(dr.mechanisms.Message(1, record))
        with pytest.raises(ValueError, match="no party|takes randomized|on a shuffle session"):
            session.submit_many(people(2), 1)
        with pytest.raises(ValueError, match="coins"):
            encoder(record, session.open_plan, object())
        with pytest.raises(ValueError, match="rewards"):
            encoder(
                ContextRecord(record.contexts, record.actions, np.array([2.0])),
                session.open_plan,
                SystemCoins(),
            )
        assert session.users == 1
        assert session.refused["replayed"] == 1
    with opened(source=dr.Secure()) as session:
        encoder = session.begin(Plan(POLICY, 10))
        with pytest.raises(ValueError, match="needs SecureRng"):
            encoder(record, session.open_plan, SeededRng(np.zeros(2, np.uint64), 0))
        with pytest.raises(ValueError, match="coefficients"):
            session.channel.check_policy(session, Plan(np.zeros((1, 3)), 1))


def test_a_saved_session_goes_on_with_the_same_sums(tmp_path):
    with opened(LITTLE) as session:
        encoder = session.begin(Plan(POLICY, 10))
        messages = [encoder(one, session.open_plan, coins_of(session, i)) for i, one in enumerate(people(10))]
        device, guarantee = session.device, session.guarantee
        total = sum(device.read(1, message.message)[1] for message in messages)
        for message in messages[:6]:
            session.submit(message)
        session.save(tmp_path / "state")
    with dr.mechanisms.restore(tmp_path / "state") as again:
        with pytest.raises(MessageRejected, match="came before"):
            again.submit(messages[0])
        for message in messages[6:]:
            again.submit(message)
        found = again.release().estimates
        for name, table in QUERY.from_cells(total * device.cell_units).items():
            assert np.array_equal(found[name].value, table)
        assert again.guarantee == guarantee


def test_sums_of_another_process():
    with opened() as session:
        session.begin(Plan(POLICY, 10))
        shuffler = SumShuffler.of_batch(session.mechanism, 0, session.number)
        shuffler.open(1, 10)
        device = shuffler.device
        made = [device(1, *QUERY.parts(one)) for one in people(10)]
        assert shuffler.receive_many([*made, made[0], b""]) == 10
        counted = shuffler.output()
        session.absent(10)
        with pytest.raises(ValueError, match="counted"):
            session.submit_counted(BatchSum(10, counted.cells * 10**6))
        session.submit_counted(counted)
        assert session.release().estimates[GRAM].covers == 10


def test_options_for_counts_are_refused():
    for options in ({"randomizer": "amplified"}, {"calibration": "basic"}, {"weights": (0.5, 0.5)}):
        with pytest.raises(ValueError, match="must be .* for sums over contexts"):
            opened(dr.Shuffle(epsilon=2.0, delta=1e-6, **options))
    with pytest.raises(ValueError, match="no noise scale"):
        opened(dr.Shuffle(epsilon=1e-7, delta=1e-6))


def test_stepwise_and_batched_simulation():
    """The first batch has the same plan, bit for bit, and both repeat with the seed."""
    world = envs.shared_contexts(3, 2, seed=1)
    setups = [
        ContextSetup(world, dr.learners.LinearBandit(first=60), LITTLE, 150, stepwise=stepwise)
        for stepwise in (False, True)
    ]
    assert setups[0].guarantee == setups[1].guarantee
    first, second = (setup.run(0, 0) for setup in setups)
    assert first.regret[0] == second.regret[0]
    assert np.array_equal(first.episodes, second.episodes)
    assert first.regret.tolist() == setups[0].run(0, 0).regret.tolist()


@pytest.mark.statistics
@pytest.mark.parametrize("stepwise", [False, True])
def test_law_of_the_noise_of_a_release(stepwise):
    """Mean and variance of 100 releases within 5.6 standard errors in each of 18 cells: alarm below 1e-6."""
    records, noise = people(10), []
    for run in range(100):
        with opened(LITTLE, dr.Seeded(9, run)) as session:
            encoder = session.begin(Plan(POLICY, 10))
            exact = QUERY.to_cells(session.device.sums(records))
            if stepwise:
                for i, one in enumerate(records):
                    session.submit(encoder(one, session.open_plan, SeededRng(session.channel.key, i)))
            else:
                session.submit_sum(session.device.sums(records), 10)
            variance = 10 * np.repeat(session.mechanism.variances(0), np.diff(QUERY.offsets)).astype(float)
            units = session.state["shufflers"][-1].device.cell_units
            summed = session.state["shufflers"][-1]._sums
            noise.append((summed - exact / units) / np.sqrt(variance))
    noise = np.array(noise)
    assert (np.abs(noise.mean(axis=0)) < 5.6 / np.sqrt(100)).all()
    assert (np.abs(noise.var(axis=0) - 1) < 5.6 * np.sqrt(2 / 100)).all()
