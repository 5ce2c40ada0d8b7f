"""The audit's black box, end to end at H = 1: below every true claim, above every false one.

Confidence 1 - 1e-6 a bound. Bugs are those of tests/audit/test_black_box.py that a noise law or a fitted
score can see from outside.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

from discreet.audit.black_box import People, Reactive, black_box, half_scale_power
from discreet.core.count_query import CountQuery
from discreet.core.session import ChannelSession
from discreet.mechanisms.interfaces import ProblemSpec, Schedule
from discreet.mechanisms.local.randomized_response import ReportEncoder, StepReports
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.shuffle import Shuffle

pytestmark = pytest.mark.statistics


class Plain(Reactive):
    """Transitions alone: two changed cells, where a black box sees most."""

    def query(self, spec: Any) -> CountQuery:
        return CountQuery(spec.layout, visits=False, known_rewards=True)


def broken(privatizer: Any, change: Any) -> Any:
    def start(query: Any, schedule: Any, randomness: Any) -> Any:
        made = privatizer.start(query, schedule, randomness)
        change(made)
        return made

    return start


def halve(session: Any) -> None:
    draw = session.channel.node_noise
    session.channel.node_noise = lambda end, factor, *how: draw(end, factor / 2, *how)


PURE, GAUSS = Central(epsilon=1.0, release="batches"), Central(mu=1.0, release="decaying")
SUMS, MEASURED = Plain(), Plain(reads="measurements")
# (privatizer, learner, users): of walks enough users for more than one level
JOINT = {
    "batches": (PURE, SUMS, 2),
    "decaying": (GAUSS, SUMS, 2),
    "tree": (Central(epsilon=1.0, release="tree"), SUMS, 2),
    "optimal tree": (Central(mu=1.0, release="tree", tree_estimate="optimal"), SUMS, 4),
    "signed digits": (Central(epsilon=1.0, release="signed-digits", arity=3), SUMS, 2),
    "square root": (Central(mu=1.0, release="square-root"), SUMS, 2),
}
VECTORS = {"laplace": Local(epsilon=1.0, randomizer="laplace"), "gaussian": Local(mu=1.0)}
REPORTS = {
    "subset": Local(epsilon=1.0, randomizer="subset"),
    "oue": Local(epsilon=1.0, randomizer="oue"),
    "krr": Local(epsilon=1.0, randomizer="krr"),
}
LOCAL = {name: (right, SUMS, 2) for name, right in {**VECTORS, **REPORTS}.items()}


@pytest.mark.parametrize("name", ["decaying", "optimal tree", "signed digits", *LOCAL])
def test_bounds_stay_below_the_claim(name: str) -> None:
    privatizer, learner, users = {**JOINT, **LOCAL}[name]
    found = black_box(privatizer.start, learner, 1000 if name in JOINT else 5000, people=People(users))
    assert not found.exceeded
    assert found.bounds[0].statistic == "likelihood ratio"
    least = found.mu if found.guarantee.mu is not None else found.epsilon
    assert least > 0.1  # it does see the target: a bound of nothing would pass for ever


@pytest.mark.parametrize("name", [n for n in JOINT if n not in ("tree", "decaying")])
def test_half_the_noise_is_exposed(name: str) -> None:
    """With the power that is stated, 0.9 and more at these runs."""
    privatizer, learner, users = JOINT[name]
    runs = 1500 if privatizer.mu else 2500
    power = half_scale_power(privatizer.start, learner, People(users), runs, 1e-6, 30)
    assert power is not None
    assert power > 0.85
    assert black_box(broken(privatizer, halve), learner, runs, people=People(users)).exceeded


@pytest.mark.parametrize("name", REPORTS)
def test_reports_at_twice_the_epsilon_are_exposed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server and its claim know nothing of it."""
    right, learner, runs = REPORTS[name], Plain(), 4000
    power = half_scale_power(right.start, learner, People(2), runs, 1e-6, 50)
    assert power is not None
    assert power > 0.95
    encode = ReportEncoder.__call__

    def twice(self: Any, life: Any, plan: Any, coins: Any) -> Any:
        query = learner.query(ProblemSpec(self.layout, 2))
        reports = StepReports.of(query, self.reports.kind, 2.0, self.reports.steps, 0.15)
        return encode(dataclasses.replace(self, reports=reports), life, plan, coins)

    monkeypatch.setattr(ReportEncoder, "__call__", twice)
    found = black_box(right.start, learner, runs, people=People(2))
    assert found.exceeded
    assert found.epsilon < 2.0


def test_power_is_what_sessions_show() -> None:
    """Simulated power of (nearly) 1 at 5000 runs, and of nothing at 200."""
    for privatizer in (PURE, GAUSS):
        power = half_scale_power(privatizer.start, Plain(), People(2), 5000, 1e-6, 50)
        assert power is not None
        assert power > 0.95
    assert half_scale_power(PURE.start, Plain(), People(2), 200, 1e-6, 50) == 0.0


def shared(session: Any) -> None:
    draw = session.channel.node_noise

    def one(*how: Any) -> Any:
        noise = draw(*how)
        noise[:] = noise[0]
        return noise

    session.channel.node_noise = one


def visited_only(session: Any) -> None:
    noisy = session.channel.noisy
    session.channel.noisy = lambda s, leaf: np.where(s.state["cells"] == 0, 0.0, noisy(s, leaf))


def test_scores_without_a_noise_law_see_shared_draws_and_sparse_releases() -> None:
    """Differences of cells, and exact zeros, are plain to see: epsilon above 2 at a claim of 1."""
    tree = Central(epsilon=1.0, release="tree")
    for change, statistic in ((shared, "linear score"), (visited_only, "event counts")):
        found = black_box(broken(tree, change), None, 400, people=People(2))
        best = max(found.bounds, key=lambda bound: bound.epsilon)
        assert found.epsilon > 2
        assert statistic in {b.statistic for b in found.bounds if b.epsilon > 1}, best


def fresh_prefix(session: ChannelSession) -> None:
    """Batches whose every release is the exact prefix with one fresh noise."""
    channel: Any = session.channel
    measure, raw = channel.measure, np.zeros(session.query.cells)

    def cumulative(s: ChannelSession, n: int) -> Any:
        raw[:] += s.state["cells"]
        batch = s.state["cells"].copy()
        _, fresh, changes = measure(s, n)
        return raw + (fresh - batch), fresh, changes

    channel.measure = cumulative


def test_fresh_noise_on_a_cumulative_count_is_exposed() -> None:
    """The target stands in nine releases, each with noise for one: mu = 3 and more, claimed 1."""
    found = black_box(
        broken(Central(mu=1.0, release="batches"), fresh_prefix), Plain(), 700, people=People(10)
    )
    assert found.exceeded
    assert found.mu > 1.2


def raw_weights(session: Any) -> None:
    described = session.channel.described

    def leaking(s: Any, fresh: Any, laws: Any, n: int) -> Any:
        made, changes = described(s, fresh, laws, n)
        seen = 1.0 + abs(float(s.state["filtered"][:4].sum()))
        estimates = {k: dataclasses.replace(e, effective=seen) for k, e in made.estimates.items()}
        return dataclasses.replace(made, estimates=estimates), changes

    session.channel.described = leaking


def test_weights_and_plans_that_follow_raw_data_are_exposed() -> None:
    assert black_box(broken(PURE, raw_weights), None, 500, people=People(3)).epsilon > 2


# ------------------------------------------------------------------------------------------- shuffle
class Batch(Plain):
    """One batch of everybody but the last, who uses its release."""

    def schedule(self, spec: Any) -> Schedule:
        return Schedule(spec.users, times=np.array([0, spec.users - 1]))

    def plan(self, state: Any, release: Any, ask: Any) -> Any:
        plan, state = super().plan(state, release, ask)
        return dataclasses.replace(plan, users=1 if release.number else state.users - 1), state


class RewardBatch(Batch):
    """Rewards are counted too, in two bits a user."""

    def query(self, spec: Any) -> CountQuery:
        return CountQuery(spec.layout, visits=False, center_rewards=True)


def fewer_flips(session: Any) -> None:
    """Devices add half of the flips that were accounted for."""
    fewer = tuple(
        tuple((name, dataclasses.replace(flips, each=flips.each // 2)) for name, flips in noise)
        for noise in session._mechanism.noises
    )
    session.channel.mechanism = dataclasses.replace(session._mechanism, noises=fewer)


def test_shuffled_transcripts_of_neighbouring_batches_expose_half_the_flips() -> None:
    """Real messages of five users through a session: the exact ratio of what the shuffler lets out."""
    right, people, runs = Shuffle(epsilon=1.0, delta=0.2), People(6, bits=True), 2000
    flips = right.noise(Batch().query(people.spec), 5)[0][1]
    assert flips.each == 2  # ten flips a counter; then five
    power = half_scale_power(right.start, Batch(), people, runs, 1e-6, 50)
    assert power is not None
    assert power > 0.95
    honest = black_box(right.start, Batch(), 800, people=people)
    assert honest.bounds[0].statistic == "likelihood ratio"
    assert not honest.exceeded
    wrong = black_box(broken(right, fewer_flips), Batch(), runs, people=people)
    assert wrong.exceeded
    assert wrong.bounds[0].epsilon > wrong.guarantee.epsilon  # type: ignore[operator]


def test_shuffled_batches_with_rewards_stay_below_the_claim() -> None:
    right, people = Shuffle(epsilon=2.0, delta=0.1), People(4, bits=True)
    found = black_box(right.start, RewardBatch(), 1500, people=people)
    assert found.bounds[0].statistic == "likelihood ratio"
    assert found.bounds[0].epsilon > 0.1
    assert not found.exceeded
