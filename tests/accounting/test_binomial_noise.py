"""Joint accounting of flips: against brute force, dp-accounting, and the tables of the specification."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.stats import binom

from discreet.accounting import binomial_noise as accountant
from discreet.accounting.binomial_noise import Flips, curves, epsilon_of, fair_flips, misses, noise_of, ways
from discreet.accounting.binomial_noise_event import BinomialRecord
from discreet.accounting.pld import verify
from discreet.accounting.pld_calibration import extremes, shift_patterns
from discreet.accounting.randomized_response_event import composable_from_dict
from discreet.accounting.serialization import records_from_dict
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, REWARDS, TRANSITIONS, VISITS
from discreet.core.guarantee import Guarantee, guarantee_of
from discreet.core.layout import Layout
from discreet.device.shuffle_payload import COIN

DELTA = 1e-6
FAIR = COIN // 2


def delta_of(noise, found, epsilon, near):
    """A delta at this epsilon; ``near`` : its order of magnitude, which sets the accuracy."""
    return max(one.delta(epsilon) for one in curves(noise, found, near))


def query(horizon, visits=False, rewards="none"):
    return CountQuery(
        Layout(6, 2, horizon),
        visits=visits,
        known_rewards=rewards == "none",
        center_rewards=rewards == "centred",
    )


def coin(p):
    return math.ceil(p * COIN)


def masses(flips):
    """Exact law of one counter's noise, by convolving single bits."""
    p = flips.chance
    bits = [[1 - p, p]] * flips.number
    if flips.paired:
        bits = bits[: flips.number // 2] + [[p, 1 - p]] * (flips.number // 2)
    law = np.ones(1)
    for bit in bits:
        law = np.convolve(law, bit)
    return law


def brute_force(noise, way, epsilon):
    """delta(epsilon) of all outputs of the counters that move, in both orders: every output enumerated."""
    pairs = []
    for name, by, count in way:
        law = masses(dict(noise)[name])
        zero = np.concatenate([np.zeros(2), law, np.zeros(2)])
        pairs += [(np.roll(zero, by), zero)] * count
    worst = 0.0
    for sign in (0, 1):
        one, other = np.ones(1), np.ones(1)
        for pair in pairs:
            one = np.multiply.outer(one, pair[sign]).ravel()
            other = np.multiply.outer(other, pair[1 - sign]).ravel()
        worst = max(worst, float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum()))
    return worst


@pytest.mark.parametrize("p", [0.5, 0.31, 0.12])
@pytest.mark.parametrize("number", [2, 6, 10])
def test_accounting_equals_brute_force(p, number):
    noise = (
        (TRANSITIONS, Flips(number, 1, coin(p))),
        (CENTERED_REWARDS, Flips(number // 2, 2, coin(p), True)),
    )
    one_step = (
        ((TRANSITIONS, 1, 1), (TRANSITIONS, -1, 1), (CENTERED_REWARDS, 2, 1)),
        ((TRANSITIONS, 1, 1), (TRANSITIONS, -1, 1), (CENTERED_REWARDS, 1, 2)),
    )
    for way, epsilon in itertools.product(one_step, (0.1, 1.0, 2.5)):
        exact = brute_force(noise, way, epsilon)
        found = delta_of(noise, (way,), epsilon, 1e-6)
        assert exact * (1 - 1e-9) <= found <= exact * 1.01 + 3e-6
        # and the sign of a centred reward's move does not matter
        other = tuple((name, -by if name == CENTERED_REWARDS else by, count) for name, by, count in way)
        assert brute_force(noise, other, epsilon) == pytest.approx(exact, rel=1e-9)


def test_every_pair_of_lives_is_one_of_the_ways():
    """H = 1, S = A = 2: what moves between any two users' bits is dominated by a listed way."""
    small = CountQuery(Layout(2, 2, 1), center_rewards=True)
    listed = [
        {name: sorted(by for n, by, c in way for _ in range(c) if n == name) for name in small.row_families}
        for way in ways(small)
    ]

    def ones(state, action, after, bit):
        visits, moves, rewards = np.zeros((2, 2)), np.zeros((2, 2, 2)), np.ones((2, 2))
        visits[state, action], moves[state, action, after], rewards[state, action] = 1, 1, 2 * bit
        return {VISITS: visits, TRANSITIONS: moves, CENTERED_REWARDS: rewards}

    lives = [ones(*life) for life in itertools.product((0, 1), repeat=4)]
    for one, other in itertools.product(lives, lives):
        moved = {name: (one[name] - other[name]).ravel() for name in one}
        moved = {name: sorted(int(x) for x in table if x) for name, table in moved.items()}
        moved[CENTERED_REWARDS] = sorted(map(abs, moved[CENTERED_REWARDS]))  # its noise is symmetric
        assert any(
            all(moved[name] in ([], way[name]) for name in (VISITS, TRANSITIONS))
            and (moved[CENTERED_REWARDS] in ([], way[CENTERED_REWARDS]))
            for way in listed
        )


@pytest.mark.parametrize("horizon", [1, 2, 3, 8])
@pytest.mark.parametrize("visits", [False, True])
@pytest.mark.parametrize("rewards", ["none", "raw", "centred"])
def test_ways_are_those_of_a_trusted_servers_counts(horizon, visits, rewards):
    """The accountant of counts lists them too; tests/accounting tries all pairs of users of three steps."""
    asked = query(horizon, visits, rewards)

    def table(moves, unit):
        found = {}
        for name, by, count in moves:
            key = name, abs(by) * (unit if name == CENTERED_REWARDS else 1)
            found[key] = found.get(key, 0) + count
        return found

    patterns = [table(pattern, 2) for pattern in shift_patterns(asked, 1)]
    assert [table(way, 1) for way in ways(asked)] == patterns


@pytest.mark.parametrize("shares", [(0.95, 0.05), (0.8, 0.2), (0.5, 0.5), (0.1, 0.9)])
@pytest.mark.parametrize("horizon", [1, 4, 7])
def test_the_worst_way_is_an_extreme_one(horizon, shares):
    """What searches and dp-accounting look at is worth what all ways are."""
    asked = query(horizon, rewards="centred")
    found = ways(asked)
    noise = noise_of(asked, shares, "joint", 1.0, DELTA, 2000)
    assert len(extremes(found)) < len(found) or horizon == 1
    assert epsilon_of(noise, extremes(found), DELTA) == pytest.approx(
        epsilon_of(noise, found, DELTA), rel=1e-5
    )


@pytest.mark.parametrize(
    ("horizon", "epsilon", "tau"), [(5, 1.0, 2151), (5, 0.5, 7821), (10, 1.0, 4303), (20, 1.0, 8622)]
)
def test_composed_flips_are_those_of_the_specification(horizon, epsilon, tau):
    """Three raw families, 6 H changed counters: tabular.md 3.5, within 1 % (losses rounded up there)."""
    raw = query(horizon, visits=True, rewards="raw")
    assert accountant.unit_changes(raw) == 6 * horizon
    found = fair_flips(tuple(dict.fromkeys(raw.row_families, 1.0).items()), ways(raw), epsilon, DELTA)
    assert 0.985 * tau < found <= tau


def test_published_and_basic_flips():
    raw, shares = query(20, visits=True, rewards="raw"), (1 / 3,) * 3
    for calibration, deviation, epsilon in (("published", 1120, 0.033), ("basic", 2582, 0.0133)):
        noise = noise_of(raw, shares, calibration, 1.0, DELTA, 1000)
        assert all(math.sqrt(f.variance) == pytest.approx(deviation, rel=2e-3) for _, f in noise)
        assert all(f.coin == FAIR for _, f in noise)
        assert epsilon_of(noise, ways(raw), DELTA) == pytest.approx(epsilon, rel=0.02)
    with pytest.raises(ValueError, match="at most 60"):
        noise_of(raw, shares, "published", 61.0, DELTA, 1000)


@pytest.mark.parametrize("users", [100, 1000, 2857, 3000, 5000, 50_000])
def test_noise_reaches_its_targets(users):
    """(1, 1e-6), H = 20: 26.7 is the trusted server's Gaussian for transitions alone."""
    for rewards, shares, goals in (
        ("none", (1.0,), (27.0,)),
        ("centred", (0.5, 0.5), (33.0, 33.0)),
        ("centred", (0.8, 0.2), (28.5, 57.0)),
    ):
        asked = query(20, rewards=rewards)
        noise = noise_of(asked, shares, "joint", 1.0, DELTA, users)
        for (name, flips), goal in zip(noise, goals, strict=True):
            unit = 0.5 if name == CENTERED_REWARDS else 1.0
            assert unit * math.sqrt(flips.variance) <= goal
        assert 0.99 < epsilon_of(noise, ways(asked), DELTA) <= 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "changes"), [(5.0, 1e-6, 4), (8.0, 1e-9, 4), (8.0, 1e-9, 12), (1.0, 1e-6, 40)]
)
def test_calibrated_at_the_actual_number(epsilon, delta, changes):
    """In both orders at every size; tau / (2 n) carried over fails at large epsilon (tabular.md, test 29)."""
    found = (((TRANSITIONS, 1, changes // 2), (TRANSITIONS, -1, changes // 2)),)
    weights = ((TRANSITIONS, 1.0),)
    tau = fair_flips(weights, found, epsilon, delta)
    carried = []
    for users in (max(1, tau // 2), tau - 1, tau, tau + 1, 3 * tau // 2, 10 * tau, 200 * tau):
        for several in (True, False):
            noise = accountant.calibrated(weights, found, epsilon, delta, users, several)
            flips = noise[0][1]
            assert flips.users == users
            assert delta_of(noise, found, epsilon, delta) <= delta * (1 + 1e-6)
            for by in (1, -1):  # one coordinate's curve, exactly, is below the composed one
                z = np.arange(flips.number + 2) if flips.number < 10**6 else None
                if z is None:
                    continue
                here, there = (
                    binom.pmf(z - by, flips.number, flips.chance),
                    binom.pmf(z, flips.number, flips.chance),
                )
                assert np.maximum(here - math.exp(epsilon) * there, 0).sum() <= delta
        if users > tau:
            carried.append(
                delta_of(((TRANSITIONS, Flips(users, 1, coin(tau / (2 * users)))),), found, epsilon, delta)
            )
    if epsilon >= 5:
        assert max(carried) > delta
    if epsilon == 1.0:
        assert max(carried) <= delta


def test_record_and_guarantee_are_checked_by_dp_accounting():
    asked = query(20, rewards="centred")
    for users in (1000, 20_000):
        noise = noise_of(asked, (0.8, 0.2), "joint", 1.0, DELTA, users)
        record = BinomialRecord("bits", (noise,), ways(asked))
        assert BinomialRecord.from_dict(record.to_dict()) == record
        guarantee = guarantee_of("shuffle", [record], randomness="secure", delta=DELTA, epsilon_nominal=1.0)
        assert 0.999 < guarantee.epsilon <= 1.0
        assert guarantee.rho is None
        assert verify(guarantee, [record]) == pytest.approx(guarantee.epsilon, abs=2e-3)
        quarter = tuple((name, Flips(max(1, f.users // 4), f.each, f.coin, f.paired)) for name, f in noise)
        with pytest.raises(ValueError, match="is not what the noise gives"):
            verify(guarantee, [BinomialRecord("bits", (quarter,), ways(asked))])
    with pytest.raises(ValueError, match="only one"):
        guarantee_of("shuffle", [record, record], randomness="secure", delta=DELTA)
    with pytest.raises(ValueError, match="no noise"):
        BinomialRecord("bits", (noise,), (((VISITS, 1, 1),),))
    table = record.to_dict()
    for wrong in (
        {**table, "kind": "noise"}, {**table, "more": 1}, {**table, "ways": [[["x", 1.0, 1]]]},
        {**table, "ways": None}, {**table, "batches": [3]}, {**table, "batches": [[[1, 2, 3, 4, False]]]},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="record"):
            BinomialRecord.from_dict(wrong)
    assert records_from_dict(json.loads(json.dumps([table]))) == (record,)
    assert Guarantee.from_dict(json.loads(guarantee.to_json())) == guarantee
    with pytest.raises(ValueError, match="no ledger composes"):
        composable_from_dict([table])


def test_tiny_noise_promises_nothing():
    asked = query(2)
    bad = BinomialRecord("bits", (((TRANSITIONS, Flips(3, 1, FAIR)),),), ways(asked))
    with pytest.raises(ValueError, match="no epsilon"):
        guarantee_of("shuffle", [bad], randomness="seeded", delta=DELTA)


def test_bad_input_is_refused():
    asked = query(3)
    for name, args in (
        ("epsilon", ("joint", 0.0, DELTA, 10)), ("delta", ("joint", 1.0, 1e-12, 10)),
        ("users", ("joint", 1.0, DELTA, 0)), ("calibration", ("best", 1.0, DELTA, 10)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            noise_of(asked, (1.0,), *args)
    with pytest.raises(ValueError, match="bits"):
        ways(CountQuery(Layout(2, 2, 3), stationary=True))
    with pytest.raises(ValueError, match="bits"):
        ways(CountQuery(Layout(2, 2, 3), pooled="all"))
    assert {name for way in ways(query(3, True, "raw")) for name, _, _ in way} == {
        VISITS,
        TRANSITIONS,
        REWARDS,
    }
    with pytest.raises(ValueError, match="even"):
        Flips(10, 3, FAIR, True)


@pytest.mark.parametrize("rewards", ["none", "raw", "centred"])
def test_flips_that_miss_by_one_event_miss_by_their_law(rewards):
    """The chance of one event is a lower bound of delta: what it calls too few never meets the budget."""
    asked = query(2, visits=True, rewards=rewards)
    found, seen = ways(asked), set()
    for number in (1, 2, 5, 40, 300, 3000, 30_000):
        noise = tuple(
            (name, Flips(1, number + number % 2, FAIR, accountant.is_paired(name)))
            for name in asked.row_families
        )
        for epsilon in (0.01, 0.1, 1.0, 5.0):
            missed = misses(noise, found, epsilon, DELTA)
            assert not (missed and epsilon_of(noise, found, DELTA) <= epsilon)
            seen.add(missed)
            if missed:
                assert delta_of(noise, found, epsilon, DELTA) > DELTA
    assert seen == {True, False}


def test_the_fewest_flips_are_those_without_the_shortcut(monkeypatch):
    asked = query(2, rewards="raw")
    weights = tuple(dict.fromkeys(asked.row_families, 1.0).items())
    quick = fair_flips.__wrapped__(weights, ways(asked), 0.7, DELTA)
    monkeypatch.setattr(accountant, "misses", lambda *_: False)
    assert fair_flips.__wrapped__(weights, ways(asked), 0.7, DELTA) == quick


def test_more_coins_than_a_device_draws_are_refused_without_a_law_of_loss(monkeypatch):
    """A law of so many flips takes two seconds, and two dozen of them were looked at."""
    monkeypatch.setattr(accountant, "epsilon_of", None)
    asked = query(20, rewards="centred")
    weights = tuple(accountant.weights_of(asked, (0.5, 0.5), "joint").items())
    with pytest.raises(ValueError, match=r"epsilon = 0\.001: needs more than 268435456 coins .* of 1 honest"):
        fair_flips.__wrapped__(weights, ways(asked), 0.001, DELTA, 1)
