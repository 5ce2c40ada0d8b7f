"""Reports of a few random steps: privacy by exact enumeration, debiasing, laws, messages, and choice."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import discreet as dr
from discreet.accounting import pld as numerical
from discreet.accounting.randomized_response_event import ReportRecord
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import guarantee_of
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Message, Plan, Schedule
from discreet.mechanisms.local import randomized_response_kernels as local_kernels
from discreet.mechanisms.local.choose_randomizer import best_reports
from discreet.mechanisms.local.randomized_response import (
    GRID,
    KINDS,
    ReportEncoder,
    StepReports,
    cut_to,
    decode,
    randomizer,
)
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.seeded_rng import SeededRng

LAYOUT = Layout(2, 2, 2)
POLICY = np.zeros((2, 2), np.int64)
SPEC = CountQuery(Layout(6, 2, 20), visits=False, center_rewards=True)
SPEC_MOVES = CountQuery(Layout(6, 2, 20), visits=False, known_rewards=True)


@cache
def uniform(n):
    return [(i, Fraction(1, n)) for i in range(n)]


@cache
def flips(numerator):
    p = Fraction(numerator, GRID)
    return [(value, chance) for value, chance in ((True, p), (False, 1 - p)) if chance > 0]


class AllCoins:
    """Coins that walk through every outcome: each call of ``walk`` runs the encoder on one more branch."""

    def __init__(self, script):
        self.script, self.at, self.next = script, 0, None
        self.over = self.under = 1  # the branch's probability, not reduced: that would take most of the time
        self.exact = True

    def _branch(self, options):
        if self.at == len(self.script):
            self.script.append(0)
        choice = self.script[self.at]
        value, p = options[choice]
        if choice + 1 < len(options):
            self.next = [*self.script[: self.at], choice + 1]
        self.at += 1
        self.over *= p.numerator
        self.under *= p.denominator
        return value

    def below(self, n):
        return self._branch(uniform(n))

    def flip(self, numerator):
        return self._branch(flips(numerator))


def law_of(encoder, trajectory, plan):
    """The exact law of the whole message: every branch of the coins."""
    found, script = defaultdict(Counter), []
    while script is not None:
        coins = AllCoins(script)
        message = encoder(trajectory, plan, coins).message
        found[tuple(message.tolist())][coins.under] += coins.over
        script = coins.next
    law = defaultdict(Fraction)
    for message, parts in found.items():
        law[message] = sum(Fraction(over, under) for under, over in parts.items())
    return law


def lives(layout, rewards):
    for states in itertools.product(range(layout.states), repeat=layout.horizon + 1):
        for actions in itertools.product(range(layout.actions), repeat=layout.horizon):
            for r in itertools.product(rewards, repeat=layout.horizon):
                yield Trajectory(np.array(states), np.array(actions), np.array(r))


def encoder_of(kind, epsilon, steps, share=0.25, layout=LAYOUT, stochastic=False, **options):
    reports = StepReports.of(CountQuery(layout, **options), kind, epsilon, steps, share)
    rows = layout.row_index[np.arange(layout.states)[None, :], POLICY[: layout.horizon]]
    return ReportEncoder(layout, reports, stochastic, rows, 1)


# ------------------------------------------------------------------------------------ privacy
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("steps", "stochastic"), [(1, False), (2, False), (1, True)])
def test_whole_message_is_epsilon_indistinguishable(kind, steps, stochastic):
    """Every output, every pair of trajectories (also of users who do not follow): exact rationals."""
    epsilon = Fraction(5, 4)
    if kind == "oue" and (stochastic or steps == 2):
        layout, people = Layout(1, 2, 2), None
    else:
        layout, people = LAYOUT, None
    encoder = encoder_of(kind, float(epsilon), steps, layout=layout, stochastic=stochastic)
    if layout is not LAYOUT:
        encoder = ReportEncoder(layout, encoder.reports, stochastic, np.zeros((2, 1), np.int64), 1)
    plan = Plan(POLICY)
    people = [life for life in lives(layout, (0.0, 1.0)) if steps == 1 or life.rewards[0] == 1.0]
    if steps == 2:
        people = people[::2]
    records = {}  # reports see single records: equal (kept) records have equal laws
    for life in people:
        record = life.states.tobytes() + life.actions.tobytes() + life.rewards.tobytes()
        if record not in records:
            records[record] = law_of(encoder, life, plan)
    laws = list(records.values())
    outputs = set().union(*laws)
    assert all(sum(law.values()) == 1 for law in laws)
    worst = Fraction(0)
    for output in outputs:
        probabilities = [law[output] for law in laws]
        assert min(probabilities) > 0  # no output rules anybody out
        worst = max(worst, max(probabilities) / min(probabilities))
    # worst <= e^epsilon, decided in rationals: ln by a lower bound of the exponential series
    series = sum(epsilon**k / math.factorial(k) for k in range(40))
    assert worst <= series
    if layout is LAYOUT:
        assert math.log(worst) == pytest.approx(float(epsilon), rel=1e-9)  # and the budget is used


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 3.0, 10.0, 60.0, 1e9])
@pytest.mark.parametrize("elements", [2, 3, 36, 1000])
def test_ratio_is_below_e_to_the_epsilon_in_integers(kind, epsilon, elements):
    one = randomizer(kind, Fraction(epsilon), elements)
    assert 0 < one.own < GRID
    loss = math.log(one.ratio.numerator) - math.log(one.ratio.denominator)
    assert loss <= epsilon * (1 + 1e-12) + 1e-15
    if epsilon <= 10:
        assert loss >= epsilon * (1 - 1e-6)
        if epsilon > 1e-3:  # the next number of the grid would cost more than epsilon
            nearer = type(one)(
                one.unary, elements, one.size, one.own + (not one.unary), one.other - one.unary
            )
            above = math.log(nearer.ratio) if nearer.ratio < 10**300 else math.inf
            assert above > epsilon - 1e-11


def test_sizes_are_the_best():
    """The chosen w has the least variance of all sizes; k-RR is w = 1."""
    for epsilon, elements in ((0.1, 36), (1.0, 36), (3.0, 36), (1.0, 7), (5.0, 12)):
        best = randomizer("subset", Fraction(epsilon), elements)
        for w in range(1, elements):
            e = math.exp(epsilon)
            p = w * e / (w * e + elements - w)
            q = (p * (w - 1) + (1 - p) * w) / (elements - 1)
            spread = ((elements - 1) * q * (1 - q) + p * (1 - p)) / (elements * (p - q) ** 2)
            assert best.spread <= spread * (1 + 1e-9)
    assert randomizer("krr", Fraction(1), 36).size == 1


def test_steps_and_types_are_drawn_without_the_data():
    """Equal coins give equal steps and types to everybody; whoever left the policy sends a report too."""
    key = Seeded(3).keys.noise
    for kind in KINDS:
        encoder = encoder_of(kind, 1.0, 1, share=0.5)
        heads = []
        for life in (life for life in lives(LAYOUT, (0.0, 0.4, 1.0))):
            message = encoder(life, Plan(POLICY), SeededRng(key, 9)).message
            heads.append(tuple(message[:2]))
            decode(encoder.reports, False, message)
        assert len(set(heads)) == 1


def test_out_of_alphabet_is_a_uniform_element():
    encoder, plan = encoder_of("subset", 1.0, 1, share=0.25), Plan(POLICY)
    stray = Trajectory(np.array([0, 1, 0]), np.array([1, 1]), np.zeros(2))
    law, mean = law_of(encoder, stray, plan), defaultdict(Fraction)
    followers = [law_of(encoder, life, plan) for life in lives(LAYOUT, (0.0, 1.0)) if not life.actions.any()]
    assert len(followers) == 32  # every pair of records, equally often
    for follower in followers:
        for output, p in follower.items():
            mean[output] += p / 32
    assert law == mean


@pytest.mark.parametrize(
    "message",
    [
        None,
        [0.5, 0, 1, 0],
        [[0, 0, 1, 0]],
        [2, 0, 1, 0],
        [-1, 0, 1, 0],
        [0, 2, 1, 0],
        [0, 0, 2, 0, 1],
        [0, 0, 1, 4],
        [0, 0, 1, -1],
        [0, 0, 1],
        [0, 0, -1],
        [0, 0],
        [],
        [0, 0, 1, 1, 7],
        [0, 0, 1, 0, 1, 0, 1, 0],
    ],
)
def test_messages_that_no_device_sends_are_refused(message):
    """Other steps, types, sizes, order, or anything more than the report: refused, and nothing is added."""
    session = Local(epsilon=1.0, randomizer="krr", steps=1).start(CountQuery(LAYOUT), Schedule(5), Seeded(0))
    session.release()
    session.begin(Plan(POLICY))
    with pytest.raises(ValueError, match="message"):
        session.submit(Message(1, message=None if message is None else np.array(message)))
    life = Trajectory(np.zeros(3, int), np.zeros(2, int), np.zeros(2))
    with pytest.raises(ValueError, match=r"must be None, not raw data|takes randomized"):
        session.submit(Message(1, trajectory=life))
    with pytest.raises(ValueError, match="must be None, not raw data"):
        session.submit(Message(1, trajectory=life, message=np.array([0, 0, 1, 0])))
    session.absent()
    assert not any(e.value.any() for e in session.release().estimates.values())


def test_absent_users_contribute_nothing_and_are_counted():
    session = Local(epsilon=1.0).start(CountQuery(LAYOUT), Schedule(9), Seeded(0))
    session.release()
    encoder = session.begin(Plan(POLICY, users=3))
    life = Trajectory(np.zeros(3, int), np.zeros(2, int), np.zeros(2))
    session.submit(encoder(life, Plan(POLICY), SeededRng(Seeded(0).keys.noise, 0)))
    session.absent(2)
    release = session.release()
    assert release.users == 3
    assert release.estimates["transition_counts"].law.terms == 1
    assert release.measurement.estimates["transition_counts"].law.terms == 1


# ------------------------------------------------------------------------------------ estimates
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"visits": False, "center_rewards": True}, {"stationary": True}, {"known_rewards": True}],
    ids=str,
)
@pytest.mark.parametrize("stochastic", [False, True])
def test_estimates_are_unbiased_exactly_and_the_law_holds(kind, options, stochastic):
    """E[decoded message] = contribution, by enumeration; variances against the law's constants."""
    if kind == "oue" and stochastic:
        layout = Layout(1, 2, 2)
    else:
        layout = LAYOUT
    query = CountQuery(layout, **options)
    privatizer = Local(epsilon=1.3, randomizer=kind, steps=1, reward_share=0.3)
    policy = np.zeros((2, layout.states), np.int64)
    plan = Plan(policy)
    if stochastic:
        plan = Plan(np.full((2, layout.states, 2), 0.5))
    plans = "stochastic" if stochastic else "deterministic"
    laws = privatizer.start(query, Schedule(5, plans=plans), Seeded(0)).mechanism.laws.measurement(1, 1)
    people = [p for p in lives(layout, (0.0, 0.25, 1.0)) if stochastic or not p.actions.any()]
    for life in people[::7]:
        session = privatizer.start(query, Schedule(5, plans=plans), Seeded(0))
        session.release()
        encoder = session.begin(plan)
        law = law_of(encoder, life, plan)
        codes, values = encoder.reports.arrays()
        mean, square = np.zeros(query.cells), np.zeros(query.cells)
        for message, p in law.items():
            cells = np.zeros(query.cells)
            for h, about, marks in decode(encoder.reports, stochastic, np.array(message, np.int64)):
                local_kernels.add_report(
                    codes, values, about, h, stochastic, encoder.policy_rows, marks, layout.states,
                    layout.rows, query.slots, session.channel.begins, query.reward_shift, cells,
                )  # fmt: skip
            mean += float(p) * cells
            square += float(p) * cells**2
            truth = query.to_cells(query.contribution(life))
            for f, name in enumerate(query.row_families):
                part = slice(query.offsets[f], query.offsets[f + 1])
                assert np.abs(cells - truth)[part].max() <= laws[name].reach * (1 + 1e-9)
        truth = query.to_cells(query.contribution(life))
        np.testing.assert_allclose(mean, truth, atol=1e-9)
        variance = square - mean**2
        for f, name in enumerate(query.row_families):
            part = variance[query.offsets[f] : query.offsets[f + 1]]
            assert part.max() <= laws[name].worst * (1 + 1e-9)
            if name == "transition_counts" and not query.stationary:
                table = part.reshape(2, layout.rows, layout.states)
                if not stochastic:
                    table = table[np.arange(2)[:, None], encoder.policy_rows]
                # the mean over a step's cells is the law's, whoever she is
                np.testing.assert_allclose(table.mean(axis=(1, 2)), laws[name].variance, rtol=1e-9)
                if not stochastic:
                    inside = table[np.arange(2), life.states[:-1], life.states[1:]]
                    np.testing.assert_allclose(inside, laws[name].idle + laws[name].visit, rtol=1e-9)


@pytest.mark.parametrize("kind", ["subset", "oue"])
def test_cells_of_a_row_share_the_noise_of_a_report(kind):
    """Against enumeration with the record spread evenly over the cells of a step."""
    query = CountQuery(LAYOUT, visits=False, known_rewards=True)
    privatizer = Local(epsilon=0.8, randomizer=kind, steps=1)
    session = privatizer.start(query, Schedule(5, plans="deterministic"), Seeded(0))
    law = session.mechanism.laws.measurement(1, 1)["transition_counts"]
    session.release()
    encoder = session.begin(Plan(POLICY))
    codes, values = encoder.reports.arrays()
    for direction in (np.array([1.0, 1.0]), np.array([0.3, -2.0]), np.array([0.0, 1.0])):
        total = 0.0
        for s, after in itertools.product(range(2), repeat=2):
            life = Trajectory(np.array([s, after, 0]), np.zeros(2, int), np.zeros(2))
            truth = query.to_cells(query.contribution(life))
            for message, p in law_of(encoder, life, Plan(POLICY)).items():
                cells = np.zeros(query.cells)
                for h, about, marks in decode(encoder.reports, False, np.array(message, np.int64)):
                    local_kernels.add_report(
                        codes, values, about, h, False, encoder.policy_rows, marks, 2, 4, 2,
                        session.channel.begins, 0.0, cells,
                    )  # fmt: skip
                row = (cells - truth).reshape(2, 4, 2)[0, encoder.policy_rows[0, 0]]
                total += float(p) * float(row @ direction) ** 2 / 4
        squares = float(direction @ direction)
        stated = law.variance * squares + law.cross * (float(direction.sum()) ** 2 - squares)
        assert stated == pytest.approx(total, rel=1e-9)


# ------------------------------------------------------------------------------------ numbers and choice
@pytest.mark.parametrize(
    ("epsilon", "kind", "expected", "share"),
    [
        (0.1, "subset", 86.9, 0.0), (1.0, "subset", 8.32, 0.0), (1.0, "oue", 8.61, 0.0),
        (0.1, "oue", 89.4, 0.0),
        (1.0, "krr", 15.95, 0.0), (0.1, "krr", 252, 0.0),
        (0.1, "subset", 94.3, 0.15), (1.0, "subset", 9.02, 0.15), (3.0, "subset", 2.10, 0.15),
        (10.0, "subset", 0.535, 0.15),
    ],
)  # fmt: skip
def test_table_of_the_specification(epsilon, kind, expected, share):
    """Section 4, at its rate of 1/72; ours is the mean over the 36 cells of a step, rate 1/36."""
    query = SPEC if share else SPEC_MOVES
    best = math.inf
    for steps in (1, 2, 3):
        reports = StepReports.of(query, kind, epsilon, steps, 0.15)
        one, factor = reports.randomizer(0, False), reports.factor(0)
        gap, own, other, *_ = one.moments
        at_rate = factor * (71 * other + own) / 72 / gap**2 + (factor - 1) / 72
        best = min(best, math.sqrt(at_rate))
        assert reports.unit_std() ** 2 == pytest.approx(
            factor * (35 * other + own) / 36 / gap**2 + (factor - 1) / 36
        )
    assert 0.985 * expected <= best <= 1.005 * expected


def test_auto_takes_the_least_noise_and_says_so():
    for epsilon in (0.1, 1.0, 3.0, 10.0):
        choices = Local(epsilon=epsilon, delta=1e-6).choices(SPEC, Schedule(1000), Seeded(0))
        assert [c.error for c in choices] == sorted(c.error for c in choices)
        assert {c.randomizer for c in choices} == {"laplace", "gaussian", "subset", "oue", "krr"}
        assert choices[0].randomizer == "subset"
        for choice in choices[1:]:
            if choice.steps:
                again = Local(epsilon=epsilon, randomizer=choice.randomizer, steps=choice.steps + 1)
                assert again.choices(SPEC, Schedule(1000), Seeded(0))[0].error >= choice.error
    assert Local(epsilon=1.0).choices(SPEC, Schedule(1000), Seeded(0))[0].error <= 9.1
    paper = Local(epsilon=1.0, preset="paper").start(SPEC, Schedule(1000), Seeded(0))
    assert paper.mechanism.stream == "local"
    stated = CountQuery(Layout(6, 2, 20), reward_share=0.07)
    for query, given, expected in ((SPEC, None, 0.15), (stated, None, 0.07), (stated, 0.4, 0.4)):
        session = Local(epsilon=1.0, reward_share=given).start(query, Schedule(9), Seeded(0))
        assert session.mechanism.reports.reward_share == pytest.approx(expected)


def test_one_state_has_nothing_to_hide_in_its_moves():
    session = Local(epsilon=1.0).start(CountQuery(Layout(1, 2, 3)), Schedule(9), Seeded(0))
    session.release()
    encoder = session.begin(Plan(np.zeros((3, 1), int), users=4))
    life = Trajectory(np.zeros(4, int), np.zeros(3, int), np.ones(3))
    for k in range(4):
        session.submit(encoder(life, Plan(np.zeros((3, 1), int)), SeededRng(Seeded(0).keys.noise, k)))
    assert np.isfinite(session.release().estimates["reward_sums"].value).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bandit_s_reports_are_weighed_by_rewards(kind):
    """By all messages about one step: half of the centred reward's two cells, each scaled to be unbiased."""
    query = CountQuery(Layout(1, 5, 10), center_rewards=True)
    errors = []
    for steps in (1, 2, 10):
        reports = StepReports.of(query, kind, 2.0, steps, 0.5)
        bit, factor = reports.randomizer(1, False), reports.factor(1)
        mean = square = 0.0
        for message in itertools.product((0, 1), repeat=2):
            if bit.unary:
                chances = [bit.p if message[1] else 1 - bit.p, bit.q if message[0] else 1 - bit.q]
                chance = math.prod(chances)
            else:
                chance = {(0, 1): bit.p, (1, 0): bit.q}.get(message, 0.0)  # of a paid step: bit 1 is true
            told = factor * (message[1] - message[0]) / 2 / (bit.p - bit.q)
            mean, square = mean + chance / factor * told, square + chance / factor * told**2
        assert mean == pytest.approx(0.5)
        errors.append(reports.unit_std())
        assert errors[-1] == pytest.approx(math.sqrt(square - mean**2))
    assert errors == sorted(errors)  # one report that says something beats ten that do not
    assert best_reports(query, 2.0, stochastic=False).steps == 1


def test_what_does_not_fit_is_refused_at_the_start_or_at_the_plan():
    with pytest.raises(ValueError, match="at most H = 2"):
        Local(epsilon=1.0, steps=3).start(CountQuery(LAYOUT), Schedule(5), Seeded(0))
    with pytest.raises(ValueError, match="epsilon = 1e-17"):
        Local(epsilon=1e-17, randomizer="subset").start(CountQuery(LAYOUT), Schedule(5), Seeded(0))
    session = Local(epsilon=1.0).start(CountQuery(LAYOUT), Schedule(5, plans="deterministic"), Seeded(0))
    with pytest.raises(ValueError, match="must be deterministic"):
        session.begin(Plan(np.full((2, 2, 2), 0.5)))
    for policy in (np.full((2, 2), 2), np.full((2, 2), -1), np.zeros((2, 2)), np.full((2, 2), 0.5)):
        with pytest.raises(ValueError, match=r"integer actions in \[0, 1\]"):
            session.begin(Plan(policy))
    masked = Layout(2, 2, 2, np.array([[True, False], [True, True]]))
    session = Local(epsilon=1.0).start(CountQuery(masked), Schedule(5), Seeded(0))
    with pytest.raises(ValueError, match="not admissible in state 0"):
        session.begin(Plan(np.ones((2, 2), int)))
    once = np.zeros((2, 2), int)
    once[1, 0] = 1
    with pytest.raises(ValueError, match=r"plan.policy\[1, 0\] = 1: is not admissible in state 0"):
        session.begin(Plan(once))
    session.begin(Plan(POLICY, users=2))
    with pytest.raises(ValueError, match="reported_moves"):
        session.submit_sum({"transition_counts": np.zeros((2, 2, 2, 2))}, 2)
    moves, bits = np.zeros((2, 2, 2, 2)), np.zeros((2, 2, 2, 2))
    with pytest.raises(ValueError, match="0 reports"):
        session.submit_sum({"reported_moves": moves, "reported_bits": bits}, 2)
    moves[0, 1, 1, 0] = 2
    with pytest.raises(ValueError, match="does not lead to"):
        session.submit_sum({"reported_moves": moves, "reported_bits": bits}, 2)
    moves[0, 1, 1, 0] = 3  # more than the users can have sent
    with pytest.raises(ValueError, match="3 reports: must be 1 of each of 2 users"):
        session.submit_sum({"reported_moves": moves, "reported_bits": bits}, 2)


def test_cells_that_no_policy_assigns_carry_no_noise():
    query = CountQuery(LAYOUT)
    session = Local(epsilon=1.0).start(query, Schedule(500), Seeded(0))
    session.release()
    encoder = session.begin(Plan(POLICY, users=200))
    life = Trajectory(np.array([0, 1, 0]), np.zeros(2, int), np.ones(2))
    for k in range(200):
        session.submit(encoder(life, Plan(POLICY), SeededRng(Seeded(0).keys.noise, k)))
    for estimate in session.release().estimates.values():
        assert not estimate.value[:, :, 1].any()
        assert estimate.value[:, :, 0].all()


# ------------------------------------------------------------------------------------ guarantee
@pytest.mark.parametrize("options", [{}, {"randomizer": "oue"}, {"randomizer": "krr", "steps": 3}])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
def test_guarantee_is_pure_and_recomputed(options, epsilon):
    session = Local(epsilon=epsilon, **options).start(SPEC, Schedule(100), Seeded(0))
    guarantee, reports = session.guarantee, session.mechanism.reports
    assert guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert guarantee.epsilon <= epsilon * (1 + 1e-14)
    assert (guarantee.delta, guarantee.rho, guarantee.mu) == (0.0, None, None)
    assert "without looking at the data" in guarantee.statement
    assert type(guarantee).from_dict(guarantee.to_dict()) == guarantee
    one = reports.randomizer(0, False)
    numbers = ("unary" if one.unary else "subset", one.elements, one.size, one.own, one.other)
    record = ReportRecord("reports", reports.steps, {"moves": numbers})
    found = numerical.verify(guarantee_of("local", [record], randomness="secure"), [record])
    assert found == pytest.approx(epsilon, rel=2e-3)
    cheaper = ReportRecord("reports", reports.steps + 1, {"moves": numbers})
    with pytest.raises(ValueError, match="is not what the noise gives"):
        numerical.verify(guarantee_of("local", [record], randomness="seeded"), [cheaper])


@pytest.mark.parametrize("kind", KINDS)
def test_secure_sessions_work_and_take_no_sums(kind):
    session = Local(epsilon=1.0, randomizer=kind).start(CountQuery(LAYOUT), Schedule(9), Secure())
    assert session.guarantee.randomness == "secure"
    session.release()
    encoder = session.begin(Plan(POLICY, users=3))
    life = Trajectory(np.array([0, 1, 1]), np.zeros(2, int), np.array([0.3, 1.0]))
    for _ in range(2):
        session.submit(encoder(life, Plan(POLICY), SecureRng()))
    with pytest.raises(ValueError, match="secure randomness"):
        session.submit_sum({}, 1)
    with pytest.raises(ValueError, match="must be exact"):
        encoder(life, Plan(POLICY), SeededRng(Seeded(0).keys.noise, 0))
    session.absent()
    assert session.release().users == 3


# ------------------------------------------------------------------------------------ runs
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "learner",
    [
        dr.NoiseAwareUCBVI(),
        dr.DPUCBVI(replan_growth=1.3),
        dr.learners.PrivateUCBVI(preset="paper", replan_growth=1.5),
        dr.learners.PrivateUCBPO(replan_growth=1.5),
        dr.learners.PrivateUCBVI(stationary=True, replan_growth=1.5),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_stepwise_equals_fused(kind, learner):
    mdp = dr.make("riverswim", rewards="bernoulli", horizon=4)
    for steps, by in ((1, "episode"), (2, "episode"), (1, "batch"), (3, "batch")):
        private = Local(epsilon=2.0, randomizer=kind, steps=steps)
        fused, slow = (
            dr.simulate(mdp, learner, private, 120, seeds=1, seed=4, by=by, stepwise=s, workers=1)
            for s in (False, True)
        )
        assert fused.regret.tobytes() == slow.regret.tobytes()


def test_forecast_names_the_choice_and_the_next_best():
    from discreet.experiments.estimate import estimate_run
    from discreet.experiments.simulate import Setup

    mdp = dr.make("riverswim")
    found = estimate_run(Setup(mdp, dr.NoiseAwareUCBVI(), Local(epsilon=1.0), 1000))
    assert (found.choices[0].release, found.choices[0].noise) == ("1 random step", "subset selection")
    assert found.choices[0].ratio == 1.0 < found.choices[1].ratio
    assert "square root of a user" in found.criterion


def test_a_query_of_one_step_counts_only_that_record() -> None:
    record = Trajectory(np.array([0, 1, 2, 0, 1]), np.array([0, 1, 0, 1]), np.array([0.1, 0.2, 0.3, 0.4]))
    assert cut_to(record, None) is record
    one = cut_to(record, 2)
    assert (one.states.tolist(), one.actions.tolist(), one.rewards.tolist()) == ([2, 0], [0], [0.3])
