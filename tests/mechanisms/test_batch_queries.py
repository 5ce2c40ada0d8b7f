"""Batches of other people, each with a query of its own: bit for bit one-shot sessions."""

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interrupts import interrupted
from scipy.stats import binom

import discreet as dr
from discreet.accounting import binomial_noise as accountant
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee, parallel
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.strategies import Exact
from discreet.core.trajectories import Trajectories
from discreet.device.message_envelope import MessageRejected
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.mechanisms.batch_queries import BatchChannel
from discreet.mechanisms.interfaces import Encoder, Message, Plan, Response, Schedule, Session
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.privatizers.shuffle import Shuffle
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.mechanisms.shuffle.shuffle_session import BatchTooSmall

MDP = dr.make("riverswim", states=3, horizon=4)
LAYOUT = MDP.layout
POLICY = np.ones((4, 3), np.int64)
FINE = CountQuery(LAYOUT)
CRUDE = tuple(CountQuery(LAYOUT, step=h, known_rewards=True) for h in range(2))
TIMES = np.array([0, 6, 12, 20])
SCHEDULE = Schedule(25, times=TIMES, queries=(*CRUDE, FINE), plans="deterministic")
SEEDED = Seeded(3, 1)

PRIVATIZERS = {
    "none": NoPrivacy(),
    "laplace": Central(epsilon=1.0),
    "gaussian": Central(mu=0.5),
    "mixed": Central(epsilon=1.0, delta=1e-6),
    "paper": Central(epsilon=1.0, preset="paper"),
    "vectors": Local(epsilon=1.0, randomizer="laplace"),
    "reports": Local(epsilon=1.0, randomizer="subset"),
    "shuffle": Shuffle(epsilon=1.0, delta=1e-6),
    "composed": Shuffle(epsilon=1.0, delta=1e-6, calibration="composed"),
}
ALL = pytest.mark.parametrize("privatizer", PRIVATIZERS.values(), ids=PRIVATIZERS)


def people(seed: int = 0, n: int = 25) -> Trajectories:
    return rollout_batch(MDP, POLICY, n, seed)


def fill(session: Session, who: Trajectories, first: int, users: int, coins: object = None) -> None:
    """Users first .. first + users - 1 follow one plan, and send what their devices make."""
    encoder = session.begin(Plan(POLICY, users))
    plan = session.open_plan  # type: ignore[attr-defined]
    for i in range(first, first + users):
        session.submit(encoder(who[i], plan, coins or SeededRng(SEEDED.keys.noise, i)))


def made_by(encoder: Encoder, session: ChannelSession, who: Trajectories, i: int) -> Message:
    """What the device of user i sends."""
    return encoder(who[i], session.open_plan, SeededRng(SEEDED.keys.noise, i))


def releases(session: ChannelSession, who: Trajectories, coins: object = None) -> list:
    found = [session.release()]
    for first, last in itertools.pairwise(TIMES.tolist()):
        fill(session, who, first, last - first, coins)
        found.append(session.release())
    return found


def same(a: object, b: object) -> bool:
    return set(a) == set(b) and all(np.array_equal(a[k].value, b[k].value) for k in a)  # type: ignore[attr-defined, index, call-overload]


# -------------------------------------------------------------------------- what a batch is


@ALL
def test_a_batch_is_the_privatizers_own_one_shot_session(privatizer: object) -> None:
    who = people()
    with privatizer.start(FINE, SCHEDULE, SEEDED) as session:  # type: ignore[attr-defined]
        found = releases(session, who)
        guarantee = session.guarantee
        assert session.users == 20
    assert [one.users for one in found] == [0, 6, 12, 20]
    assert [one.number for one in found] == [0, 1, 2, 3]
    assert all(one.guarantee == guarantee for one in found)
    assert all(not estimate.value.any() for estimate in found[0].estimates.values())
    for i, query in enumerate((*CRUDE, FINE)):
        first, size = int(TIMES[i]), int(TIMES[i + 1] - TIMES[i])
        one_shot = Schedule.one_shot(size, "deterministic")
        with privatizer.start(query, one_shot, SEEDED.of_batch(i)) as alone:  # type: ignore[attr-defined]
            fill(alone, who, first, size)
            release = alone.release()
        mine = found[i + 1]
        assert same(mine.estimates, release.estimates)
        assert same(mine.measurement.estimates, release.estimates)
        assert (mine.measurement.decay, mine.measurement.gain) == (0.0, 1.0)
        for name, estimate in mine.estimates.items():
            assert estimate.value.shape[0] == (1 if query.step is not None else 4)
            assert estimate.covers == size
            assert estimate.effective == size
            assert estimate.estimand == "sum"
            law, own = estimate.law, release.estimates[name].law
            assert law.std() == own.std()
            # bounds of all three batches hold together: each gets a third of the failure probability
            assert law.bound(0.3) == pytest.approx(own.bound(0.1), rel=1e-9)


def test_without_privacy_the_sums_are_those_of_the_asked_step() -> None:
    who = people()
    with NoPrivacy().start(FINE, SCHEDULE, SEEDED) as session:
        found = releases(session, who)
    for h in range(2):
        truth = sum(FINE.contribution(who[i])[TRANSITIONS][h] for i in range(6 * h, 6 * h + 6))
        assert np.array_equal(found[1 + h].estimates[TRANSITIONS].value, truth[None])
    truth = sum(FINE.contribution(who[i])[TRANSITIONS] for i in range(12, 20))
    assert np.array_equal(found[3].estimates[TRANSITIONS].value, truth)


@pytest.mark.parametrize("by_sum", [False, True])
@pytest.mark.parametrize("stochastic", [False, True])
def test_what_devices_send_is_about_the_asked_step(stochastic: bool, by_sum: bool) -> None:
    """At a large budget hardly any noise is left: what is told is that step itself, and no other one."""
    rng = np.random.default_rng(1)
    policy = np.full((4, 3, 2), 0.5) if stochastic else rng.integers(0, 2, (4, 3))
    who = rollout_batch(MDP, policy, 300, 8)
    query = CountQuery(LAYOUT, step=2, visits=False, known_rewards=True)
    schedule = Schedule(301, times=np.array([0, 300]), queries=(query,))
    truth = sum(query.contribution(who[i])[TRANSITIONS] for i in range(300))
    reported = {"reported_moves": truth, "reported_bits": np.zeros((1, 3, 2, 2))}
    for privatizer in (
        Local(epsilon=1e4, randomizer="laplace"), Local(epsilon=34.0, randomizer="subset"),
        Local(epsilon=34.0, randomizer="krr"), Shuffle(epsilon=15.0, delta=1e-6),
    ):  # fmt: skip
        with privatizer.start(query, schedule, SEEDED) as session:
            encoder = session.begin(Plan(policy, 300))
            if by_sum:
                session.submit_sum({TRANSITIONS: truth} if session.reports is None else reported, 300)
            else:
                for i in range(300):
                    session.submit(made_by(encoder, session, who, i))
            made = session.release().estimates[TRANSITIONS].value
        assert np.abs(made - truth).max() < (20.0 if privatizer.trust == "shuffle" else 0.1)


@ALL
def test_exchanging_a_user_changes_her_batch_alone(privatizer: object) -> None:
    who = people()
    states, rewards = who.states.copy(), who.rewards.copy()
    states[8, 1:] = (states[8, 1:] + 1) % 3
    other = Trajectories(states, who.actions, rewards)
    with privatizer.start(FINE, SCHEDULE, SEEDED) as session:  # type: ignore[attr-defined]
        here = releases(session, who)
    with privatizer.start(FINE, SCHEDULE, SEEDED) as session:  # type: ignore[attr-defined]
        there = releases(session, other)
    differ = [not same(a.estimates, b.estimates) for a, b in zip(here, there, strict=True)]
    assert differ == [False, False, True, False]


def test_a_crude_batch_sees_nothing_of_other_steps() -> None:
    """What leaves a device is a function of the asked step, bit for bit."""
    who = people()
    states, actions, rewards = who.states.copy(), who.actions.copy(), who.rewards.copy()
    states[:, 2:], actions[:, 2:], rewards[:] = 0, 0, 0.25  # all but (s_0, a_0, s_1) and s_1, a_1
    other = Trajectories(states, actions, rewards)
    for name in ("vectors", "reports", "shuffle", "composed"):
        sent = []
        for data in (who, other):
            with PRIVATIZERS[name].start(FINE, SCHEDULE, SEEDED) as session:
                encoder = session.begin(Plan(POLICY, 6))
                made = [made_by(encoder, session, data, i).message for i in range(6)]
            sent.append([m if isinstance(m, bytes) else m.tolist() for m in made])
        assert sent[0] == sent[1]


# ------------------------------------------------------------------------------- randomness


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_noise_of_batches_is_independent(name: str) -> None:
    """The same query in every batch: correlations of 2880 cells' signs within 5.5 deviations (21 x 4e-8)."""
    schedule = Schedule(40, times=np.arange(0, 36, 5), queries=(FINE,) * 7)
    noise = []
    for run in range(40):
        with PRIVATIZERS[name].start(FINE, schedule, Seeded(0, run)) as session:
            found = []
            for _ in range(7):
                session.begin(Plan(POLICY, 5))
                session.absent(5)
                found.append(session.release().estimates[TRANSITIONS].value.ravel())
        noise.append(found)
    cells = np.array(noise).transpose(1, 0, 2).reshape(7, -1)
    assert len(np.unique(cells)) == cells.size
    correlation = np.corrcoef(np.sign(cells))[np.triu_indices(7, 1)]
    assert np.abs(correlation).max() < 5.5 / np.sqrt(cells.shape[1])


def test_keys_of_batches_are_their_own() -> None:
    keys = [SEEDED, *(SEEDED.of_batch(i) for i in range(4)), Seeded(3, 2).of_batch(0)]
    assert len({one.keys.noise.tobytes() for one in keys}) == 6
    assert len({one.keys.environment.tobytes() for one in keys[:5]}) == 1
    assert len({one.keys.ties.tobytes() for one in keys[:5]}) == 1
    with pytest.raises(ValueError, match="batch = -1"):
        SEEDED.of_batch(-1)


@pytest.mark.parametrize("name", ["mixed", "vectors", "reports", "shuffle"])
def test_secure_noise_is_fresh(name: str) -> None:
    who = people()
    found = []
    for _ in range(2):
        with PRIVATIZERS[name].start(FINE, SCHEDULE, Secure()) as session:
            found.append(releases(session, who, SecureRng()))
            session.begin(Plan(POLICY, 5))
            with pytest.raises(ValueError, match="submit_sum"):
                session.submit_sum({}, 5)
    assert not same(found[0][3].estimates, found[1][3].estimates)


# ------------------------------------------------------------------------------ the guarantee


def test_central_and_local_guarantees_by_dp_accounting() -> None:
    from dp_accounting.pld import privacy_loss_distribution as losses

    with PRIVATIZERS["mixed"].start(FINE, SCHEDULE, SEEDED) as session:
        crude, fine = (session.laws_at(n) for n in (6, 20))
        stated = session.guarantee
    # a user of a crude batch moves two visits and two transitions by 1: Laplace noise, b = 4
    assert crude[TRANSITIONS].scale == crude[VISITS].scale == pytest.approx(4.0)
    one = losses.from_laplace_mechanism(4.0, value_discretization_interval=1e-4)
    assert one.self_compose(4).get_epsilon_for_delta(1e-9) == pytest.approx(1.0, rel=1e-3)
    # of the fine batch: 4 steps of 2 cells in each of 3 families, by 1
    sigma = fine[TRANSITIONS].scale
    assert all(law.scale == sigma for law in fine.values())
    gauss = losses.from_gaussian_mechanism(sigma / np.sqrt(24), value_discretization_interval=1e-4)
    assert gauss.get_epsilon_for_delta(1e-6) == pytest.approx(1.0, rel=1e-3)
    assert (stated.epsilon, stated.delta, stated.mu) == (pytest.approx(1.0), 1e-6, None)
    assert "Laplace" in stated.statement
    assert "Gaussian" in stated.statement
    with PRIVATIZERS["gaussian"].start(FINE, SCHEDULE, SEEDED) as session:
        assert session.guarantee.mu == pytest.approx(0.5)
        scales = [session.laws_at(n)[TRANSITIONS].scale for n in (6, 20)]
        assert scales == pytest.approx([4.0, 2 * np.sqrt(24)])
    with PRIVATIZERS["vectors"].start(FINE, SCHEDULE, SEEDED) as session:
        assert session.guarantee.epsilon == pytest.approx(1.0)
        assert session.guarantee.delta == 0.0
        assert [session.laws_at(n)[TRANSITIONS].scale for n in (6, 20)] == pytest.approx([4.0, 24.0])


def test_published_local_noise_is_what_its_worst_batch_gives() -> None:
    with Local(epsilon=1.0, preset="paper").start(FINE, SCHEDULE, SEEDED) as session:
        assert session.guarantee.epsilon == pytest.approx(
            2.0
        )  # 24 / (3 H) of the fine batch; 4 / 12 of a crude
        assert [kind.guarantee.epsilon for kind in session.mechanism.kinds] == pytest.approx([1 / 3, 2.0])
        assert [kind.batches for kind in session.mechanism.kinds] == [2, 1]
        assert "more privacy loss than the name says" in session.guarantee.statement


def _counter(flips: int, shift: int) -> dict[int, float]:
    z = np.arange(flips + 1)
    return dict(zip((z + shift).tolist(), binom.logpmf(z, flips, 0.5).tolist(), strict=True))


def test_crude_flips_are_those_of_the_specification() -> None:
    """Table of 3.5 at (1, 1e-6): tau = 289 for 4 unit changes, and 24400 by basic composition."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    assert [accountant.unit_changes(query) for query in (*CRUDE, FINE)] == [4, 4, 24]
    derived = CountQuery(LAYOUT, step=2, visits=False, known_rewards=True)
    assert accountant.unit_changes(derived) == 2
    privatizer = PRIVATIZERS["composed"]
    noise = dict(privatizer.noise(CRUDE[1], 1))  # one user: every flip of the counter is hers
    tau = noise[TRANSITIONS].number
    assert noise[VISITS].number == tau
    assert tau == pytest.approx(289, rel=0.01)
    up, down = (
        losses.from_two_probability_mass_functions(
            _counter(tau, 0), _counter(tau, by), value_discretization_interval=1e-4, symmetric=False
        )
        for by in (1, -1)
    )
    epsilon = up.self_compose(2).compose(down.self_compose(2)).get_epsilon_for_delta(1e-6)
    assert 0.985 < epsilon <= 1.001
    basic = Shuffle(epsilon=1.0, delta=1e-6, calibration="basic").noise(CRUDE[0], 1)
    assert basic[0][1].number == pytest.approx(2.44e4, rel=0.01)
    half = Shuffle(epsilon=0.5, delta=1e-6, calibration="composed").noise(CRUDE[0], 1)
    assert half[0][1].number == pytest.approx(1042, rel=0.01)


@pytest.mark.parametrize(("horizon", "tau"), [(5, 2151), (20, 8622)])
def test_fine_and_crude_batches_under_shuffle(horizon: int, tau: int) -> None:
    layout = Layout(2, 2, horizon)
    crude, fine = CountQuery(layout, step=0, known_rewards=True), CountQuery(layout)
    schedule = Schedule(9, times=np.array([0, 4, 8]), queries=(crude, fine))
    policy = np.zeros((horizon, 2), np.int64)
    for calibration, crude_tau, fine_tau in (
        ("composed", 289, tau),
        ("published", 96 * np.log(2e6) * (3 * horizon) ** 2, 96 * np.log(2e6) * (3 * horizon) ** 2),
    ):
        privatizer = Shuffle(epsilon=1.0, delta=1e-6, calibration=calibration)
        with privatizer.start(fine, schedule, SEEDED) as session:
            for n, number in ((4, crude_tau), (8, fine_tau)):
                variance = session.laws_at(n)[TRANSITIONS].std() ** 2
                assert 4 * variance == pytest.approx(number, rel=0.015)
            worst = session.guarantee.epsilon
            assert worst == max(kind.guarantee.epsilon for kind in session.mechanism.kinds) <= 1.0
            encoder = session.begin(Plan(policy, 4))
            form = encoder.inner.device.form
            assert form.step == 0
            assert form.begins[-1] == 4 + 8


def test_the_worst_kind_is_stated_and_checked() -> None:
    with PRIVATIZERS["mixed"].start(FINE, SCHEDULE, SEEDED) as session:
        stated, kinds = session.guarantee, session.mechanism.kinds
    assert Guarantee.from_dict(stated.to_dict()) == stated
    assert parallel([(kind.words, kind.guarantee) for kind in kinds]) == stated
    assert len(stated.composition) == 3
    for change in (
        {"epsilon": 0.5},
        {"delta": 1e-7},
        {"mu": 0.1, "rho": 0.005},
        {"kinds": stated.kinds[:1]},
        {"kinds": ()},
        {"records": stated.kinds[0][1].records},
    ):
        with pytest.raises(ValueError, match="which the mechanisms give|exactly one of them|kinds"):
            replace(stated, **change)
    table = stated.to_dict()
    for change in (
        {"composition": table["composition"][1:]},
        {"statement": table["statement"].replace("1e-06", "1e-07")},
        {"kinds": table["kinds"][1:]},
        {"kinds": [{**table["kinds"][0], "users": "nobody"}, *table["kinds"][1:]]},
        {"kinds": [{"users": "4 users"}]},
        {"kinds": None},
    ):
        with pytest.raises(ValueError, match="sentence|must be"):
            Guarantee.from_dict({**table, **change})
    with (
        PRIVATIZERS["vectors"].start(FINE, SCHEDULE, SEEDED) as local,
        pytest.raises(ValueError, match="trust"),
    ):
        parallel([("a", stated), ("b", local.guarantee)])
    with pytest.raises(ValueError, match="kinds is empty"):
        parallel([])
    crude_only = Schedule(25, times=TIMES, queries=(CRUDE[0], CRUDE[1], CRUDE[0]))
    with PRIVATIZERS["laplace"].start(FINE, crude_only, SEEDED) as session:
        # one kind of batch: its own guarantee, whichever step is asked for
        assert session.guarantee == session.mechanism.kinds[0].guarantee
        assert session.mechanism.kinds[0].batches == 3


# ---------------------------------------------------------------------------- order of calls


def session_of(name: str = "laplace", schedule: Schedule = SCHEDULE) -> ChannelSession:
    session = PRIVATIZERS[name].start(FINE, schedule, SEEDED)
    assert isinstance(session, ChannelSession)
    assert isinstance(session.channel, BatchChannel)
    assert isinstance(session, Session)
    return session


def test_order_of_calls() -> None:
    who = people()
    with session_of() as session:
        assert session.users == 0
        assert session.query.step == 0
        assert session.reports is None
        with pytest.raises(RuntimeError, match="no plan is open"):
            session.submit(Message(1, who[0]))
        with pytest.raises(ValueError, match=r"at most 6, what is left of batch 1; each user is in one"):
            session.begin(Plan(POLICY, 7))
        with pytest.raises(ValueError, match="plan.policy has shape"):
            session.begin(Plan(POLICY[:2], 2))
        with pytest.raises(ValueError, match="plan.group"):
            session.begin(Plan(POLICY, 2, group=0))
        with pytest.raises(ValueError, match="plan.last = False: this plan fills its batch"):
            session.begin(Plan(POLICY, 6, last=False))
        assert session.release().number == 0
        encoder = session.begin(Plan(POLICY, 4, last=False))
        with pytest.raises(RuntimeError, match="users of the open plan not submitted yet: 4"):
            session.begin(Plan(POLICY, 2))
        with pytest.raises(RuntimeError, match="users of the open plan not submitted yet: 4"):
            session.release()
        for i in range(4):
            session.submit(encoder(who[i], session.open_plan, SeededRng(SEEDED.keys.noise, i)))
        assert session.release().number == 0  # the batch goes on
        late = encoder(who[0], Plan(POLICY), SeededRng(SEEDED.keys.noise, 0))
        second = session.begin(Plan(POLICY, 2))
        with pytest.raises(ValueError, match=r"message.plan = 1: must be 2"):
            session.submit(late)
        with pytest.raises(ValueError, match=r"plan.number = 1"):
            second(who[0], Plan(POLICY, number=1), SeededRng(SEEDED.keys.noise, 0))
        with pytest.raises(ValueError, match="trajectory.states"):
            session.submit(Message(2, replace(who[0], states=who[0].states[:2])))
        assert session.users == 4
        session.submit_many(Trajectories(who.states[4:5], who.actions[4:5], who.rewards[4:5]), 2)
        with pytest.raises(ValueError, match="plan = 1: must be 2"):
            session.submit_many(who, 1)
        session.absent(1)
        with pytest.raises(RuntimeError, match="call release first"):
            session.begin(Plan(POLICY, 6))
        first = session.release()
        assert (first.number, first.users) == (1, 6)
        assert session.release() is first
        fill(session, who, 6, 3)
        with pytest.raises(RuntimeError, match="9 users is not one of the scheduled times"):
            session.release()
        fill(session, who, 9, 3)
        assert session.release().number == 2
        with pytest.raises(ValueError, match="stores no users"):
            session.answer(Response(0, np.zeros(3), (0.0, 1.0)))
    with pytest.raises(RuntimeError, match="closed"):
        session.release()


@ALL
def test_people_after_the_last_release_send_nothing(privatizer: object) -> None:
    who = people()
    with privatizer.start(FINE, SCHEDULE, SEEDED) as session:  # type: ignore[attr-defined]
        last = releases(session, who)[-1]
        assert session.release() is last
        assert session.query.step is None
        encoder = session.begin(Plan(POLICY, 3, last=False))
        report = encoder(who[20], session.open_plan, SeededRng(SEEDED.keys.noise, 20))
        assert report.trajectory is None
        assert report.message is None
        with pytest.raises(ValueError, match="must be empty"):
            session.submit(Message(report.plan, who[20]))
        for _ in range(2):
            session.submit(report)
        session.absent(1)
        assert session.release() is last
        assert session.users == 23
        session.begin(Plan(POLICY, 1))
        session.submit_sum({}, 1)
        with pytest.raises(RuntimeError, match="24 users is not one of the scheduled times"):
            session.release()
        with pytest.raises(ValueError, match="at most 1 are left"):
            session.begin(Plan(POLICY, 2))
        fill(session, who, 24, 1)
        with pytest.raises(RuntimeError, match="all 25 declared users have arrived"):
            session.release()


def test_the_last_user_may_be_in_the_last_batch() -> None:
    schedule = Schedule(20, times=TIMES, queries=SCHEDULE.queries, final=True)
    with session_of(schedule=schedule) as session:
        assert releases(session, people())[-1].users == 20


def test_a_lost_batch_is_not_opened_again() -> None:
    who = people()
    with session_of("shuffle") as session:
        fill(session, who, 0, 6)
        first = session.release()
        session.begin(Plan(POLICY, 6))
        session.absent(6)
        with pytest.raises(BatchTooSmall):
            session.release()
        assert session.release() is first
        assert session.users == 12
        fill(session, who, 12, 8)
        assert session.release().number == 3


@pytest.mark.parametrize("name", ["laplace", "shuffle"])
def test_a_batch_whose_opening_was_interrupted_is_not_opened_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its noise may have been drawn: people of this session meet no second drawing of it."""
    with session_of(name) as session:
        session.release()

        def interrupted(batch: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(session.channel, "started", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.begin(Plan(POLICY, 6))
        monkeypatch.undo()
        assert session.users == 0
        with pytest.raises(RuntimeError, match="batch 1 was interrupted, it is not opened again"):
            session.begin(Plan(POLICY, 6))


def test_messages_of_another_batch_are_refused() -> None:
    who = people()
    with session_of("shuffle") as session:
        encoder = session.begin(Plan(POLICY, 6))
        message = made_by(encoder, session, who, 0).message
        session.absent(1)
        for i in range(1, 6):
            session.submit(made_by(encoder, session, who, i))
        with pytest.raises(BatchTooSmall):  # one did not come
            session.release()
        session.begin(Plan(POLICY, 6))
        with pytest.raises(ValueError, match="another session or batch"):
            session.submit(Message(session.open_plan.number, message=message))


# -------------------------------------------------------------------------- what does not fit


class Sneaky(CountQuery):
    """A subclass, which could declare any sensitivity."""


def test_wrong_queries_are_refused_by_name() -> None:
    def start(*queries: object, privatizer: object = PRIVATIZERS["laplace"], query: object = FINE) -> None:
        schedule = Schedule(25, times=TIMES, queries=queries)  # type: ignore[arg-type]
        privatizer.start(query, schedule, SEEDED)  # type: ignore[attr-defined]

    with pytest.raises(ValueError, match=r"queries\[1\]: query is a Sneaky"):
        start(FINE, Sneaky(LAYOUT), FINE)
    with pytest.raises(ValueError, match=r"queries\[2\].layout"):
        start(FINE, FINE, CountQuery(Layout(3, 2, 5)))
    with pytest.raises(ValueError, match=r"queries\[0\].groups = 2"):
        start(CountQuery(LAYOUT, groups=2, clip=1.0), FINE, FINE)
    with pytest.raises(ValueError, match="query is a"):
        start(FINE, FINE, FINE, query=object())
    with pytest.raises(ValueError, match="queries has 2 entries: must have 3"):
        start(FINE, FINE)
    with pytest.raises(ValueError, match="counts pooled over steps"):
        start(FINE, CountQuery(LAYOUT, stationary=True), FINE, privatizer=PRIVATIZERS["shuffle"])
    with pytest.raises(ValueError, match="steps = 2: must be at most 1, only step 0 is counted"):
        start(*SCHEDULE.queries, privatizer=Local(epsilon=1.0, randomizer="subset", steps=2))
    with pytest.raises(ValueError, match="growth = 1.1: must be None with queries"):
        Schedule(25, times=TIMES, growth=1.1, queries=SCHEDULE.queries)
    with pytest.raises(ValueError, match="queries has 3 entries: must have 0"):
        Schedule(25, growth=1.1, queries=SCHEDULE.queries)
    with pytest.raises(ValueError, match="with the number of users known"):
        Schedule(None, times=TIMES, queries=SCHEDULE.queries)
    with pytest.raises(ValueError, match="step = 4"):
        CountQuery(LAYOUT, step=4)
    for options in ({"stationary": True}, {"pooled": "all"}, {"groups": 1, "clip": 1.0}):
        with pytest.raises(ValueError, match="step = 0: must be None with"):
            CountQuery(LAYOUT, step=0, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step = None"):
        Central(epsilon=1.0).stored(CountQuery(LAYOUT, step=1, known_rewards=True), SEEDED)


def test_a_privatizer_that_changed_changes_no_further_batch() -> None:
    privatizer = Central(epsilon=1.0)
    with privatizer.start(FINE, SCHEDULE, SEEDED) as session:
        fill(session, people(), 0, 6)
        session.release()
        object.__setattr__(privatizer, "epsilon", 5.0)
        session.begin(Plan(POLICY, 6))
        assert session.state["inner"].guarantee.epsilon == pytest.approx(1.0)


def test_parts_that_are_not_those_of_the_batches_are_refused() -> None:
    mechanism = Central(epsilon=1.0).mechanism(FINE, SCHEDULE, SEEDED)
    assert mechanism.guarantee == Central(epsilon=1.0).start(FINE, SCHEDULE, SEEDED).guarantee
    with pytest.raises(ValueError, match="parts has 1 entries"):
        dataclasses.replace(mechanism, parts=mechanism.parts[:1])
    with pytest.raises(ValueError, match="one release of all"):
        dataclasses.replace(mechanism, parts=mechanism.parts[::-1])

    class Told(CountMechanism):
        guarantee = mechanism.parts[0].guarantee  # type: ignore[assignment]

    fake = Told(FINE, mechanism.parts[0].schedule, "seeded", Exact())
    with pytest.raises(ValueError, match="no subclass"):
        dataclasses.replace(mechanism, parts=(fake, *mechanism.parts[1:]))


def test_choices_are_of_a_batch() -> None:
    found = Central(epsilon=1.0, delta=1e-6).choices(FINE, SCHEDULE, SEEDED)
    assert found[0].name == "batches"
    assert {one.levels for one in found} == {1}
    alone = Central(epsilon=1.0, delta=1e-6).choices(FINE, Schedule.one_shot(8, "deterministic"), SEEDED)
    assert [repr(one) for one in found] == [repr(one) for one in alone]  # the last batch has 8 users


def test_a_run_of_elimination_continued_is_the_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved and restored before every release, and amid every plan, on a learner's own schedule."""
    learner = dr.SDPPE()
    monkeypatch.setenv("DISCREET_STATE_DIR", str(tmp_path / "table"))
    world = dr.make("random", states=2, actions=2, horizon=2)
    spec = dr.mechanisms.ProblemSpec(
        world.layout, users=500, initial=world.initial, known_rewards=world.rewards
    )
    count = itertools.count()

    def again(session: ChannelSession) -> ChannelSession:
        path = tmp_path / f"{next(count)}"
        session.save(path)
        return dr.mechanisms.restore(path)  # type: ignore[return-value]

    def run(pause: Callable[[ChannelSession], ChannelSession]) -> list[np.ndarray]:
        session = NoPrivacy().start(learner.query(spec), learner.schedule(spec), SEEDED)
        found, state, at = [], learner.begin(spec, SEEDED.keys.ties), 0
        while at < 500:
            session = pause(session)
            release = session.release()
            found += [one.value for one in release.estimates.values()]
            plan, state = learner.plan(state, release, session.answer)
            found.append(plan.policy)
            encoder = session.begin(plan)
            for i in range(plan.users):
                if i == plan.users // 2:
                    session = pause(session)
                    encoder = session.open_encoder
                one = dr.envs.rollout(world, plan.policy, SEEDED.keys.environment, at)
                session.submit(encoder(one, session.open_plan, SeededRng(SEEDED.keys.noise, at)))
                at += 1
        return found

    whole, parts = run(lambda session: session), run(again)
    assert len(whole) == len(parts) > 4
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(a, b)
    assert next(count) > 6


@pytest.mark.parametrize("name", ["vectors", "reports", "shuffle"])
def test_devices_of_a_batch_send_bytes(name: str) -> None:
    """Its own session publishes the form; a message counts once, and only in its batch."""
    session = PRIVATIZERS[name].start(FINE, SCHEDULE, Secure(reward_grid=16))  # type: ignore[attr-defined]
    with session:
        session.release()
        with pytest.raises(RuntimeError, match="no batch is open"):
            _ = session.device
        life, late = people()[0], b""
        for users in (6, 6):
            encoder = session.begin(Plan(POLICY, users))
            number, device = session.plan_of_devices.number, session.device
            records = life.states, life.actions, life.rewards
            if name == "shuffle":
                message = device(*records)
            elif name == "reports":
                message = device(number, POLICY, *records)
            else:
                message = device(number, *records)
            assert encoder.guarantee == device.guarantee
            outer = session.open_plan.number
            if late:
                with pytest.raises(MessageRejected) as caught:
                    session.submit(Message(outer, message=late))
                assert caught.value.reason == "foreign"
            session.submit(Message(outer, message=message))
            with pytest.raises(MessageRejected) as caught:
                session.submit(Message(outer, message=message))
            assert caught.value.reason == "replayed"
            late = message
            session.absent(5)
            for data, reason in ((message, "replayed"), (message[:-1], "malformed")):  # all have come
                with pytest.raises(MessageRejected) as caught:
                    session.submit(Message(outer, message=data))
                assert caught.value.reason == reason
            if name == "shuffle":
                with pytest.raises(BatchTooSmall):
                    session.release()
                return
            session.release()
            with pytest.raises(MessageRejected) as caught:  # this batch is over
                session.submit(Message(outer, message=message))
            assert caught.value.reason == "late"
    with Central(mu=1.0).start(FINE, SCHEDULE, SEEDED) as trusted:
        trusted.release()
        encoder = trusted.begin(Plan(POLICY, 6))
        assert encoder.guarantee is None  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="device"):
            _ = trusted.device  # type: ignore[attr-defined]


def test_a_closed_session_keeps_the_number_of_its_users() -> None:
    """Also if the call that closes it is interrupted anywhere, and made again."""
    who, at, more = people(), 0, True
    while more:
        session = session_of()
        session.release()
        encoder = session.begin(Plan(POLICY, 6))
        for i in range(3):
            session.submit(made_by(encoder, session, who, i))
        inner = session.state["inner"]
        more = interrupted(session.close, at, files=("core/session.py", "mechanisms/batch_queries.py"))
        session.close()
        assert session.users == 3
        assert inner.state == session.state == {}
        at += 1


def test_the_randomizer_of_a_batch_sends_no_raw_data() -> None:
    """It is that of the batch's session: on the server, for reports that the server draws."""
    privatizer = dr.Central(epsilon=1.0, release="reports")
    session = privatizer.start(SCHEDULE.queries[0], SCHEDULE, Seeded(5))
    session.release()
    session.begin(Plan(POLICY, 6))
    who, coins = people(), SeededRng(Seeded(5).keys.noise, 0)
    trajectory = dr.Trajectory(who.states[0], who.actions[0], who.rewards[0])
    made = session.open_randomizer(trajectory, session.open_plan, coins)
    assert made.trajectory is None
    assert made.message is not None
