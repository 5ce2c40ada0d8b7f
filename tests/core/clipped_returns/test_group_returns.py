"""Group returns: what one user can move, budgets split anew at each release, streams that forget."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import discreet as dr
from discreet.core.clipped_returns import split_scales
from discreet.core.count_query import CountQuery
from discreet.core.families import GROUP_RETURNS
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(3, 2, 4)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True, groups=3, clip=1.5)
SCHEDULE = Schedule(40, times=np.arange(0, 40, 4), reads="measurements")
POLICY = np.zeros((4, 3), np.int64)
OPTIONS = [
    {"delta": 1e-6, "release": "decaying"}, {"delta": 1e-6, "release": "batches"}, {},
    {"delta": 1e-6, "noise": "laplace", "release": "batches"},
]  # fmt: skip


def life(rng, best=None):
    """A random user; ``best``: one who earns nothing (0) or all (1)."""
    rewards = rng.uniform(size=4) if best is None else np.full(4, float(best))
    return Trajectory(rng.integers(3, size=5), rng.integers(2, size=4), rewards)


def test_sensitivity_bounds_every_exchange_and_is_attained():
    rng = np.random.default_rng(0)
    for norm, power in (("l1", 1.0), ("l2", 2.0)):
        weight = {name: float(rng.uniform(0.2, 2.0)) for name in QUERY.row_families}
        bound, worst = QUERY.sensitivity(norm, weight), 0.0
        for _ in range(2000):
            group = int(rng.integers(3))
            a, b = (QUERY.contribution(life(rng, rng.choice([None, 0, 1])), group) for _ in range(2))
            moved = [np.abs(weight[n] * (a[n] - b[n])) ** power for n in a]
            worst = max(worst, sum(float(m.sum()) for m in moved) ** (1 / power))
        assert worst <= bound + 1e-9
        alone = QUERY.sensitivity(norm, {GROUP_RETURNS: 1.0})
        none, all_of_it = (QUERY.contribution(life(rng, x), 1)[GROUP_RETURNS] for x in (0, 1))
        assert alone == QUERY.clip == pytest.approx(np.abs(all_of_it - none).sum(), abs=1e-12)


@pytest.mark.parametrize("laplace", [True, False])
def test_any_share_costs_what_the_budget_allows(laplace):
    norm = "l1" if laplace else "l2"
    scales = np.array([3.0, 7.0, 11.0])
    names = list(QUERY.row_families)

    def loss(values):
        weight = {n: 1 / v for n, v in zip(names, values, strict=True) if math.isfinite(v)}
        return QUERY.sensitivity(norm, weight)

    for share in (0.0, 1e-6, 0.15, 0.5, 0.99):
        split = split_scales(QUERY, scales, share, laplace)
        assert loss(split) == pytest.approx(loss(scales), rel=1e-12)
        part = QUERY.sensitivity(norm, {GROUP_RETURNS: 1 / split[-1]}) / loss(scales)
        assert part ** (1 if laplace else 2) == pytest.approx(share, abs=1e-12)
        assert split[0] / split[1] == pytest.approx(scales[0] / scales[1])
    assert math.isinf(split_scales(QUERY, scales, 0.0, laplace)[-1])


@pytest.mark.parametrize("options", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}], ids=str)
def test_returns_and_pooled_counts_share_one_budget(options):
    """Both shares move from release to release: at each of them all families together cost what is stated."""
    query = replace(QUERY, pooled="all", pooled_share=0.9)
    falling = replace(SCHEDULE, pooled_shares=np.linspace(0.9, 0.1, SCHEDULE.release_times.size))
    with Central(**options, release="batches").start(query, falling, Seeded(0)) as session:
        norm = session.mechanism.norm
        target = session.guarantee.epsilon if norm == "l1" else session.guarantee.mu
        for release in range(1, SCHEDULE.release_times.size):
            for share in (None, 0.0, 0.3, 0.9):
                session.release()
                laws = session.mechanism.laws.measurement(4 * release, 4, share)
                unit = {name: getattr(law, "scale", law.std()) for name, law in laws.items()}
                loss = query.sensitivity(norm, {name: 1 / scale for name, scale in unit.items()})
                assert loss == pytest.approx(target, rel=1e-9)
                assert share is None or (GROUP_RETURNS in laws) == (share > 0.0)


def outputs(privatizer, shares, forgets, exchanged, user, seed=0):
    """Every measurement in units of its noise, with one user's trajectory as drawn or exchanged."""
    rng = np.random.default_rng(seed)
    with privatizer.start(QUERY, SCHEDULE, Seeded(5)) as session:
        seen, at = [], 0
        for share, forget in zip([*shares, None], [*forgets, False], strict=True):
            release = session.release()
            if release.users:
                found = release.measurement.estimates.values()
                seen += [e.value.ravel() / getattr(e.law, "scale", 1.0) for e in found]
            if release.users == 36:
                return np.concatenate(seen), session.guarantee, release
            plan = Plan(POLICY, 4, group=at % 3, return_share=share, forget=forget)
            encoder = session.begin(plan)
            for _ in range(4):
                one, other = life(rng), life(rng, int(rng.integers(2)))
                chosen = other if exchanged and at == user else one
                session.submit(encoder(chosen, plan, SecureRng()))
                at += 1
    raise AssertionError("the schedule has more releases")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_exchanging_a_user_moves_no_more_than_the_guarantee(options):
    """Same noise, neighbouring users, any shares, streams that forget: the shift in units of the noise."""
    privatizer = Central(epsilon=1.0, **options)
    rng = np.random.default_rng(1)
    worst = 0.0
    for trial in range(30):
        shares = rng.choice([0.0, 0.15, 0.5, 0.9], 9)
        forgets = (rng.random(9) < 0.3).tolist()
        user = int(rng.integers(32))
        a, guarantee, _ = outputs(privatizer, shares, forgets, False, user, trial)
        b, _, _ = outputs(privatizer, shares, forgets, True, user, trial)
        shift = np.abs(a - b)
        if guarantee.mu is None:
            assert shift.sum() <= guarantee.epsilon * (1 + 1e-9)
            worst = max(worst, shift.sum() / guarantee.epsilon)
        else:
            assert np.sqrt((shift**2).sum()) <= guarantee.mu * (1 + 1e-9)
            worst = max(worst, np.sqrt((shift**2).sum()) / guarantee.mu)
    assert worst > 0.4  # random exchanges come near


def test_a_stream_that_forgets_measures_the_batch_alone_and_starts_anew():
    """With next to no noise the values themselves: gain 1 at the end, nothing of it later."""
    privatizer = Central(mu=1e7, release="decaying", decay=0.9)
    gain, users, values = math.sqrt(1 - 0.81), [3, 4, 5], []
    schedule = Schedule(13, times=np.array([0, 3, 7, 12]), reads="measurements")
    with privatizer.start(QUERY, schedule, Seeded(0)) as session:
        for n, forget in zip(users, [False, True, False], strict=True):
            session.release()
            plan = Plan(POLICY, n, group=0, forget=forget)
            encoder = session.begin(plan)
            for _ in range(n):
                record = Trajectory(np.zeros(5, int), np.zeros(4, int), np.full(4, 0.25))
                session.submit(encoder(record, plan, SecureRng()))
            newest = session.release().measurement
            values.append((float(newest.estimates[GROUP_RETURNS].value[0]), newest.decay, newest.gain))
    expected = [(gain * 3, 0.9, gain), (4 + 0.9 * 3, 0.9, 1.0), (gain * 5, 0.0, gain)]
    np.testing.assert_allclose(values, expected, atol=1e-3)


def test_one_person_alone_can_be_the_last_of_a_stream():
    """With next to no noise: gain 1 for the one who ends it, and nothing of hers later."""
    privatizer = Central(mu=1e7, release="decaying", decay=0.9)
    schedule = Schedule(5, times=np.array([0, 1, 4]), reads="measurements")
    with privatizer.start(QUERY, schedule, Seeded(0)) as session:
        session.release()
        found = []
        for users, forget in ((1, True), (3, False)):
            encoder = session.begin(Plan(POLICY, users, group=0, forget=forget))
            for _ in range(users):
                record = Trajectory(np.zeros(5, int), np.zeros(4, int), np.full(4, 0.25))
                session.submit(encoder(record, session.open_plan, SecureRng()))
            newest = session.release().measurement
            found.append((float(newest.estimates[GROUP_RETURNS].value[0]), newest.decay, newest.gain))
    gain = math.sqrt(1 - 0.81)
    np.testing.assert_allclose(found, [(1.0, 0.9, 1.0), (gain * 3, 0.0, gain)], atol=1e-3)


def test_noise_follows_the_share_and_a_share_of_zero_says_nothing():
    """Chi-square of 300 released groups against the stated law; false alarms below 1e-6."""
    privatizer = Central(epsilon=1.0, delta=1e-6, release="batches")
    for share in (0.15, 0.9):
        total = 0.0
        for seed in range(100):
            with privatizer.start(QUERY, SCHEDULE, Seeded(seed)) as session:
                session.release()
                session.begin(Plan(POLICY, 4, group=0, return_share=share))
                session.absent(4)
                returns = session.release().measurement.estimates[GROUP_RETURNS]
            mu = session.guarantee.mu
            assert returns.law.std() == pytest.approx(QUERY.clip / (mu * math.sqrt(share)))
            total += float(((returns.value / returns.law.std()) ** 2).sum())
        assert 180 < total < 440  # chi-square with 300 degrees: 4e-10 and 1e-7
    with privatizer.start(QUERY, SCHEDULE, Seeded(0)) as session:
        session.release()
        session.begin(Plan(POLICY, 4, group=0, return_share=0.0))
        session.absent(4)
        release = session.release()
    assert GROUP_RETURNS not in release.measurement.estimates
    assert not release.estimates  # prefix sums are not offered: shares differ


def test_share_of_zero_leaves_counts_as_without_groups():
    plain = CountQuery(LAYOUT, visits=False, center_rewards=True)
    privatizer = Central(epsilon=1.0, delta=1e-6, release="batches")
    stds = []
    for query, extra in ((plain, {}), (QUERY, {"group": 1, "return_share": 0.0})):
        with privatizer.start(query, SCHEDULE, Seeded(0)) as session:
            session.release()
            session.begin(Plan(POLICY, 4, **extra))
            session.absent(4)
            stds.append([e.law.std() for e in session.release().measurement.estimates.values()])
            mu = session.guarantee.mu
        assert mu == pytest.approx(Central(epsilon=1.0, delta=1e-6)._target_mu(False))
    np.testing.assert_allclose(stds[0], stds[1])


def test_exact_sums_of_clipped_returns():
    rng = np.random.default_rng(3)
    users = [life(rng) for _ in range(8)]
    with NoPrivacy().start(QUERY, SCHEDULE, Seeded(0)) as session:
        for group in (2, 0):
            session.release()
            plan = Plan(POLICY, 4, group=group, return_share=0.5)
            encoder = session.begin(plan)
            mine = users[:4] if group == 2 else users[4:]
            for record in mine:
                session.submit(encoder(record, plan, SecureRng()))
            value = session.release().measurement.estimates[GROUP_RETURNS].value
            expected = np.zeros(3)
            expected[group] = sum(min(u.rewards.sum(), 1.5) for u in mine)
            np.testing.assert_allclose(value, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        ({}, "plan.group"),
        ({"group": 3}, "plan.group"),
        ({"group": 0, "return_share": 1.0}, "plan.return_share"),
        ({"group": 0, "forget": 2}, "plan.forget"),
    ],
)
def test_broken_plans_are_refused(plan, word):
    with Central(epsilon=1.0).start(QUERY, SCHEDULE, Seeded(0)) as session:
        session.release()
        with pytest.raises(ValueError, match=word):
            session.begin(Plan(POLICY, 4, **plan))


def test_groups_are_refused_where_they_do_not_fit():
    plain = CountQuery(LAYOUT)
    with Central(epsilon=1.0).start(plain, SCHEDULE, Seeded(0)) as session:
        session.release()
        with pytest.raises(ValueError, match="queries with groups"):
            session.begin(Plan(POLICY, 4, group=0))
    refused = [
        (Local(epsilon=1.0), Seeded(0)), (Central(epsilon=1.0, release="tree"), Seeded(0)),
        (Central(epsilon=1.0, calibration="published"), Seeded(0)), (Central(epsilon=1.0), Secure()),
    ]  # fmt: skip
    for privatizer, randomness in refused:
        with pytest.raises(ValueError, match="groups|no measurements"):
            privatizer.start(QUERY, SCHEDULE, randomness)
    with pytest.raises(ValueError, match="groups"):
        Central(epsilon=1.0).start(QUERY, Schedule(40), Seeded(0))
    for options, word in itertools.product(({"groups": 2}, {"clip": 1.0}), ("clip",)):
        with pytest.raises(ValueError, match=word):
            CountQuery(LAYOUT, **options)


def test_guarantee_names_the_groups():
    with dr.Central(epsilon=1.0, delta=1e-6).start(QUERY, SCHEDULE, Seeded(0)) as session:
        assert "clipped at 1.5" in session.guarantee.composition[0]


def test_returns_of_many_at_once_are_clipped_one_by_one() -> None:
    """Returns of 3 under a clip of 1.5, beside one of 0.5: without noise, as from one by one."""
    query = CountQuery(Layout(2, 2, 3), visits=False, center_rewards=True, groups=2, clip=1.5)
    people = Trajectories(
        np.zeros((3, 4), np.int64), np.zeros((3, 3), np.int64), np.array([[1.0] * 3, [1.0] * 3, [0.5, 0, 0]])
    )
    for at_once in (False, True):
        schedule = Schedule(3, times=np.array([0, 3]), final=True, reads="measurements")
        with dr.NoPrivacy().start(query, schedule, dr.Seeded(1)) as session:
            session.release()
            session.begin(Plan(np.zeros((3, 2), np.int64), 3, group=1))
            if at_once:
                session.submit_many(people, 1)
            else:
                for one in zip(people.states, people.actions, people.rewards, strict=True):
                    session.submit(Trajectory(*one))
            found = session.release().measurement.estimates["group_returns"].value
        assert found.tolist() == [0.0, 3.5]
