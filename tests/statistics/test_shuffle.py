"""The shuffle protocol from its messages: laws, independence of the input, an audit, and learning."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binom, chi2
from simulated_coins import SimulatedCoins

import discreet as dr
from benchmarks.studies.shuffle_regret import compare, setups
from discreet.accounting.binomial_noise import pmf
from discreet.audit.black_box import bounds_of
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.device.shuffle_encoder import ShuffleEncoder, noise_ones
from discreet.device.shuffle_payload import Family
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.shuffle import Shuffle
from discreet.mechanisms.shuffle.shuffle_session import Shuffler, form_of

pytestmark = pytest.mark.statistics

LAYOUT = Layout(2, 2, 1)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True)
POLICY = np.zeros((1, 2), np.int64)
LIVES = [
    (np.array([0, 0]), np.array([0]), np.array([1.0])),
    (np.array([1, 1]), np.array([1]), np.array([0.0])),
]


def shuffled(form, lives, seed):
    """The ones of one batch, from real messages."""
    shuffler = Shuffler(form, len(lives))
    shuffler.open(1, len(lives))
    encoder = ShuffleEncoder(form, 1)
    shuffler.receive_many([encoder(*life, SimulatedCoins(seed, user)) for user, life in enumerate(lives)])
    return shuffler.output().ones


def surprise(values, low, law, alarm):
    """Chi-square of integers against a law on low, low + 1, ..; cells of less than 10 are joined."""
    expected = law * values.size
    observed = np.bincount(values - low, minlength=law.size)
    assert values.min() >= low
    assert observed.size == law.size
    groups = np.minimum(np.cumsum(expected) // 10, expected.sum() // 10 - 1).astype(int)
    expected, observed = np.bincount(groups, expected), np.bincount(groups, observed)
    kept = expected > 0
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    assert statistic < chi2.isf(alarm, kept.sum() - 1)


@pytest.mark.parametrize(("users", "delta"), [(3, 1e-2), (11, 1e-2), (30, 1e-2)])
def test_ones_have_their_law_whatever_the_input(users, delta):
    """Messages of a batch minus what its users put in: binomial, in every counter. False alarm 1e-8 each."""
    privatizer, runs = Shuffle(epsilon=2.0, delta=delta), 6000 // users
    noise = privatizer.noise(QUERY, users)
    form = form_of(QUERY, noise, 1)
    for mix in ([LIVES[0]] * users, [LIVES[i % 2] for i in range(users)]):
        put_in = np.zeros(form.begins[-1], int)
        put_in[form.begins[1] :] += users
        for (at, after), (act,), (reward,) in mix:
            row = 2 * at + act
            put_in[2 * row + after] += 1
            put_in[form.begins[1] + row] += int(2 * reward - 1)
        rows = np.array([shuffled(form, mix, seed) for seed in range(runs)]) - put_in
        for family, (_, flips) in enumerate(noise):
            low, law, _ = pmf(flips)
            for counter in range(form.begins[family], form.begins[family + 1]):
                surprise(rows[:, counter], low, law / law.sum(), 1e-8)


def test_batches_have_the_law_of_summed_messages():
    """4000 batches of simulated users against the exact law, and their tails. False alarm 1e-8 each."""
    users, runs = 25, 4000
    privatizer = Shuffle(epsilon=2.0, delta=1e-2)
    session = privatizer.start(
        QUERY, Schedule(users * runs + 1, times=users * np.arange(runs + 1)), Seeded(3)
    )
    noise = dict(privatizer.noise(QUERY, users))
    session.release()
    put_in = {name: np.zeros(shape) for name, shape in QUERY.families.items()}
    put_in[TRANSITIONS][0, 0, 0, 0] = users
    put_in[CENTERED_REWARDS][0, 0, 0] = users / 2 - 3  # three of them without reward
    seen = {name: [] for name in put_in}
    for _ in range(runs):
        session.begin(Plan(POLICY, users))
        session.submit_sum(put_in, users)
        for name, estimate in session.release().measurement.estimates.items():
            law, error = estimate.law, estimate.value - put_in[name]
            seen[name].append(error.ravel())
    for name, unit in ((TRANSITIONS, 1.0), (CENTERED_REWARDS, 0.5)):
        flips, errors = noise[name], np.array(seen[name])
        mean = flips.number * (0.5 if flips.paired else flips.chance)
        low, mass, _ = pmf(flips)
        for column in errors.T:
            values = np.round(column / unit + mean).astype(int)
            surprise(values, low, mass / mass.sum(), 1e-8)
        law = session.laws_at(users)[name]
        bound = dataclasses.replace(law, share=1.0).bound(0.02)
        outside = int((np.abs(errors) > bound).any(axis=1).sum())
        assert outside <= binom.isf(1e-8, runs, 0.02)


def audited(flips, name, users, delta, transcripts):
    """A lower bound on epsilon from transcripts(noise, world) -> (runs, 2) ones of the counters that move.

    In world 1 the exchanged user is in the first counter, in world 0 in the last, where all others are. The
    statistic is the exact log-likelihood ratio; its event is chosen on a quarter of the runs.
    """
    low, law, _ = pmf(flips)
    log = np.log(np.concatenate([[1e-300], law, [1e-300]]))
    worlds = []
    for world in (0, 1):
        ones = transcripts(flips, world)
        first, last = ones[:, 0], ones[:, 1] - (users - 1)
        at = [np.clip(z - low + 1, 0, log.size - 1) for z in (first - 1, last, first, last - 1)]
        worlds.append(log[at[0]] + log[at[1]] - log[at[2]] - log[at[3]])
    cut = len(worlds[0]) // 4
    return bounds_of(name, [w[:cut] for w in worlds], [w[cut:] for w in worlds], delta, 1e-7).epsilon


def test_audit_of_shuffled_messages():
    """Neighbouring batches of real messages: below epsilon, and above it with a quarter of the flips.

    False alarm 1e-7 a bound.
    """
    delta, users = 1e-2, 5
    query = CountQuery(LAYOUT, visits=False, known_rewards=True)
    name, flips = Shuffle(epsilon=1.0, delta=delta).noise(query, users)[0]

    def transcripts(noise, world):
        form = form_of(query, ((name, noise),), 1)
        lives = [LIVES[1 - world], *[LIVES[1]] * (users - 1)]
        return np.array([shuffled(form, lives, 10**6 * world + r)[[0, -1]] for r in range(3000)])

    assert 0.1 < audited(flips, "messages", users, delta, transcripts) <= 1.0
    quarter = dataclasses.replace(flips, each=flips.each // 4)
    assert quarter.each >= 1
    assert audited(quarter, "messages", users, delta, transcripts) > 1.0


def test_audit_finds_half_the_flips():
    """The device's noise alone, for many batches at once (a counter each). False alarm 1e-7 a bound."""
    delta, users, runs = 1e-2, 5, 100_000
    query = CountQuery(LAYOUT, visits=False, known_rewards=True)
    _, flips = Shuffle(epsilon=1.0, delta=delta).noise(query, users)[0]

    def transcripts(noise, world):
        family, ones = Family("transitions", noise.each, noise.coin), np.zeros((runs, 2), int)
        for user in range(users):
            ones += noise_ones(family, 2 * runs, SimulatedCoins(world, user)).reshape(runs, 2)
        return ones + np.array([world, users - world])

    assert 0.6 < audited(flips, "noise", users, delta, transcripts) <= 1.0
    half = dataclasses.replace(flips, each=flips.each // 2)
    assert audited(half, "noise", users, delta, transcripts) > 1.0


def test_noise_aware_learns_under_shuffle_as_under_central_batches():
    """Equal noise, learner, schedule, budget; final regrets of 48 seeds each within 5.6 standard errors."""
    n = 48
    runs = setups(dr.make("riverswim"), 20_000, 1.0, 1e-6, growth=1.3)
    arms = compare({name: runs[name] for name in ("central, batches", "shuffle")}, 0, n)
    finals = [arm.regret for arm in arms]
    mean = [final.mean() for final in finals]
    error = math.sqrt(sum(final.var() / n for final in finals))
    assert abs(mean[0] - mean[1]) < 5.6 * error
    assert mean[1] < 0.5 * 20_000 * 4.0  # playing at random loses about 4 a user
