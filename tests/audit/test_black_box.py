"""The audit passes what is right and names what is wrong: ten bugs, each built where it would be made.

White-box identities are exact or have a false-alarm probability of 5e-7 a call.
"""

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from covering import by_turns, every_second
from scipy import stats

from discreet.audit import black_box as audit
from discreet.audit import local_output_law as audit_reports
from discreet.audit import noise_model as audit_noise
from discreet.audit import run as experiment
from discreet.audit.black_box import People, Reactive, black_box, play, respond
from discreet.audit.run import saved_and_restored
from discreet.audit.white_box import white_box
from discreet.core import clipped_returns as steered
from discreet.core import session as core_session
from discreet.core.count_channels import CountChannel
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Seeded
from discreet.core.session import ChannelSession
from discreet.device import count_device as counts
from discreet.learners.online.policy_elimination import SDPPE
from discreet.mechanisms import restore_session as restoring
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.local import noisy_vector_session as device_session
from discreet.mechanisms.local.message_inbox import DeviceMessages
from discreet.mechanisms.local.randomized_response import ReportEncoder, StepReports
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy

LAYOUT = Layout(3, 2, 4)

HEADS = {
    "refused": "records out of range are refused",
    "own": "nothing that a user is given depends on her own data",
    "once": "a release is drawn once",
    "support": "every cell of the public support has noise",
    "moves": "a user moves her own cells only, by public multiples",
    "law": "noise has the claimed law and scale",
    "cells": "noise is independent from cell to cell",
    "fresh": "fresh noise is fresh, noise drawn once stays",
    "loss": "realised loss is at most the claimed",
    "sums": "sums are made from the measurements",
    "stated": "stated laws have the noise's standard deviation",
    "unplayed": "what no policy plays holds nothing",
    "message": "a message's exact law loses at most the claimed",
    "reports": "own records are reported as often as stated",
    "2H": "one user changes at most 2H = 8 cells of a family",
}
WALKS = {
    "tree laplace": Central(epsilon=1.0, release="tree"),
    "tree gaussian": Central(mu=1.0, release="tree"),
    "paper": Central(epsilon=1.0, preset="paper"),
    "optimal tree laplace": Central(epsilon=1.0, release="tree", tree_estimate="optimal"),
    "optimal tree gaussian": Central(mu=1.0, release="tree", tree_estimate="optimal"),
    "signed digits": Central(epsilon=1.0, release="signed-digits", arity=3),
    "square root": Central(mu=1.0, release="square-root"),
    "square root, a leaf is a user": Central(mu=1.0, release="square-root", leaf="user"),
}
FRESH = {
    "batches laplace": Central(epsilon=1.0, release="batches"),
    "batches gaussian": Central(mu=1.0, release="batches"),
    "decaying": Central(mu=1.0, release="decaying"),
    "laplace at delta": Central(epsilon=1.0, delta=1e-6, noise="laplace", release="batches"),
}
VECTORS = {
    "local laplace": Local(epsilon=1.0, randomizer="laplace"),
    "local gaussian": Local(mu=1.0),
    "local paper": Local(epsilon=1.0, preset="paper"),
}
REPORTS = {
    "subset": Local(epsilon=1.0, randomizer="subset"),
    "oue": Local(epsilon=1.0, randomizer="oue"),
    "krr": Local(epsilon=1.0, randomizer="krr"),
}
ALWAYS = {"refused", "own", "once", "2H", "sums"}
ADDED = ALWAYS | {"support", "moves", "law", "cells", "fresh", "loss", "stated"}
IDENTITIES = {  # of each kind of session: which there are, and which do not apply
    **dict.fromkeys(WALKS, (ADDED, {"sums"})),
    **dict.fromkeys([*FRESH, *VECTORS], (ADDED, set())),
    **dict.fromkeys(REPORTS, (ALWAYS | {"message", "reports"}, set())),
}
RIGHT = {**WALKS, **FRESH, **VECTORS, **REPORTS}


def broken(privatizer: Any, kind: type[CountChannel]) -> Any:
    """``start`` of a privatizer whose sessions have a channel of another class."""

    def start(query: Any, schedule: Any, randomness: Any) -> Any:
        made = privatizer.start(query, schedule, randomness)
        channel = made.channel
        own = type(channel)
        if own.__mro__[1] is DeviceMessages:  # Python does not replace a class by one of another first base
            methods = {name: part for name, part in vars(kind).items() if callable(part)}
            channel.__class__ = type(kind.__name__, (own,), methods)
        else:
            channel.__class__ = type(kind.__name__, (kind, own), {})  # its own class still comes after
        if hasattr(channel, "__post__"):
            channel.__post__()
            made._mechanism = channel.mechanism
        return made

    return start


def failed(start: Any, learner: Any = None, **options: Any) -> set[str]:
    found = white_box(start, learner, LAYOUT, users=8, **options)
    shorts = {name: short for short, name in HEADS.items()}
    return {shorts[one.name] for one in found if one.passed is False}


@pytest.mark.parametrize("name", every_second([*RIGHT]))
def test_what_is_right_passes(name: str) -> None:
    """Restarts are real: saved to a file, and restored."""
    found = white_box(RIGHT[name].start, layout=LAYOUT, users=8, restart=saved_and_restored)
    assert [str(one) for one in found if one.passed is False] == []
    shorts = {full: short for short, full in HEADS.items()}
    there, idle = IDENTITIES[name]
    assert {shorts[one.name] for one in found} == there
    assert {shorts[one.name] for one in found if one.passed is None} == idle


@pytest.mark.parametrize("asked", [{}, {"visits": False, "center_rewards": True}, {"stationary": True}])
def test_other_questions_pass_too(asked: dict[str, bool]) -> None:
    learner = Reactive(CountQuery(LAYOUT, **asked))
    start = Central(mu=1.0, release="batches").start
    assert all(one.passed for one in white_box(start, Asks(asked), LAYOUT, 8))
    assert learner.query(None) is learner.asked  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, eq=False)
class Asks(Reactive):
    """A learner that asks for other families, at any size."""

    options: Any = None

    def __init__(self, options: Any) -> None:
        super().__init__()
        object.__setattr__(self, "options", options)

    def query(self, spec: Any) -> CountQuery:
        return CountQuery(spec.layout, **self.options)


def test_leaves_of_one_user_between_scheduled_releases() -> None:
    """More noises than releases: the least l1 norm of the papers' tree is a linear programme."""

    class Scheduled(Reactive):
        def schedule(self, spec: Any) -> Schedule:
            return Schedule(spec.users, np.array([t for t in (0, 1, 3, 5) if t < spec.users]))

        def plan(self, state: Any, release: Any, ask: Any) -> Any:
            plan, state = super().plan(state, release, ask)
            later = [t for t in (1, 3, 5, 8) if release.users < t < state.users]
            return dataclasses.replace(plan, users=[*later, state.users][0] - release.users), state

    found = white_box(Central(epsilon=1.0, release="tree", leaf="user").start, Scheduled(), LAYOUT, 8)
    assert [str(one) for one in found if one.passed is False] == []


class Pools(Reactive):
    """Counts pooled over steps too, whose share of the budget moves from release to release."""

    def query(self, spec: Any) -> CountQuery:
        return CountQuery(spec.layout, visits=False, center_rewards=True, pooled="first")

    def schedule(self, spec: Any) -> Schedule:
        shares = np.linspace(0.9, 0.1, spec.users)
        return Schedule(spec.users, reads="measurements", pooled_shares=shares)


class Groups(Reactive):
    """Clipped returns of public groups, whose share of the budget each plan names."""

    def query(self, spec: Any) -> CountQuery:
        horizon = float(spec.layout.horizon)
        return CountQuery(spec.layout, visits=False, center_rewards=True, groups=2, clip=horizon)

    def schedule(self, spec: Any) -> Schedule:
        return Schedule(spec.users, reads="measurements")

    def plan(self, state: Any, release: Any, ask: Any) -> Any:
        plan, state = super().plan(state, release, ask)
        return dataclasses.replace(plan, group=release.number % 2, return_share=0.3), state


@pytest.mark.parametrize("right", [Central(epsilon=1.0), Central(mu=1.0, release="decaying")], ids=str)
def test_scales_that_change_from_release_to_release(right: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pooled families and group returns: the loss is that of the worst user, over all her releases."""
    for learner in (Pools(), Groups()):
        found = white_box(right.start, learner, LAYOUT, 8, restart=saved_and_restored)
        assert [str(one) for one in found if one.passed is False] == []
    assert right.start(
        Pools().query(_Spec()), Pools().schedule(_Spec()), Seeded(1)
    ).mechanism.release_scales.size
    scales, split = CountMechanism.scales_at, steered.split_scales
    weights = np.array([1.0, 1.0, 0.5, 0.5])  # shares that sum to more than the budget
    monkeypatch.setattr(CountMechanism, "scales_at", lambda self, i: weights * scales(self, i))
    assert failed(right.start, Pools()) == {"loss"}
    monkeypatch.setattr(CountMechanism, "scales_at", scales)
    monkeypatch.setattr(steered, "split_scales", lambda q, s, x, laplace: 0.8 * split(q, s, x, laplace))
    assert failed(right.start, Groups()) == {"loss"}


class _Spec:
    layout, users = LAYOUT, 8


# ------------------------------------------------------------------------------------- ten bugs
class HalfScale(CountChannel):
    """1. Noise of half the scale that is claimed."""

    def node_noise(self, end: int, factor: float, level: int = 0, scales: Any = None) -> Any:
        return super().node_noise(end, factor / 2, level, scales)


@pytest.mark.parametrize("name", every_second([*WALKS, "batches laplace", "decaying"]))
def test_a_noise_scale_halved(name: str) -> None:
    assert "law" in failed(broken(RIGHT[name], HalfScale))


@pytest.mark.parametrize("name", VECTORS)
def test_a_device_that_adds_half_its_noise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = counts.drawn
    monkeypatch.setattr(counts, "drawn", lambda *given: drawn(*given, factor=0.5))
    assert failed(RIGHT[name].start) == {"law"}


class Underpriced(CountChannel):
    """1b. Noise, stated laws and mechanism agree on scales that the claim does not pay for."""

    def __post__(self) -> None:
        self.mechanism = dataclasses.replace(self.mechanism, scales=0.8 * self.mechanism.scales)
        self.scales, self.laws = self.mechanism.scales, self.mechanism.laws


@pytest.mark.parametrize(
    "name", every_second([*WALKS, "decaying", "laplace at delta", "local laplace"], first=1)
)
def test_a_level_left_out_of_the_composition(name: str) -> None:
    assert failed(broken(RIGHT[name], Underpriced)) == {"loss"}


def test_a_family_left_out_of_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    """2. The joint sensitivity forgets the rewards: noise and guarantee agree, and are wrong."""
    right = CountQuery.sensitivity

    def forgetful(self: CountQuery, norm: Any, weight: Any) -> float:
        several = len(weight) > 1
        return right(self, norm, {n: w for n, w in weight.items() if not (several and "reward" in n)})

    monkeypatch.setattr(CountQuery, "sensitivity", forgetful)
    assert failed(Central(epsilon=1.0, release="tree").start) == {"loss"}
    assert failed(Central(mu=1.0, release="batches").start) == {"loss"}
    assert failed(Central(epsilon=1.0, release="signed-digits", arity=3).start) == {"loss"}
    assert failed(Local(epsilon=1.0, randomizer="laplace").start) == {"loss"}


class SharedDraw(CountChannel):
    """3. One standard draw scaled for every cell of a family."""

    def node_noise(self, end: int, factor: float, level: int = 0, scales: Any = None) -> Any:
        noise = super().node_noise(end, factor, level, scales)
        for begin, stop in zip(self.query.offsets[:-1], self.query.offsets[1:], strict=True):
            noise[begin:stop] = noise[begin]
        return noise


class TwinFamilies(CountChannel):
    """3b. Two families take the same draws."""

    def node_noise(self, end: int, factor: float, level: int = 0, scales: Any = None) -> Any:
        noise = super().node_noise(end, factor, level, scales)
        last = self.query.offsets[-2]
        noise[last:] = noise[: noise.size - last] * (self.scales[-1] / self.scales[0])
        return noise


@pytest.mark.parametrize(
    ("name", "kind"),
    by_turns(
        ["tree laplace", "square root", "signed digits", "batches gaussian"],
        {"one draw": SharedDraw, "twins": TwinFamilies},
    ),
)
def test_one_draw_shared_among_cells(name: str, kind: type[CountChannel]) -> None:
    assert "cells" in failed(broken(RIGHT[name], kind))


class DrawnTwice(CountChannel):
    """4. The registers of running noises are forgotten, and all draws are made afresh for each release."""

    def noisy(self, s: Any, leaf: int) -> Any:
        s.state["held"][:], s.state["registers"] = 0, {}
        assert self.key is not None
        self.key = self.key + np.uint64(leaf)
        return super().noisy(s, leaf)  # type: ignore[misc]


@pytest.mark.parametrize("name", every_second([*WALKS]))
def test_a_node_drawn_twice(name: str) -> None:
    assert "fresh" in failed(broken(WALKS[name], DrawnTwice))


class FreshOnCumulative(CountChannel):
    """5. Every release is the sum over all users with noise for one batch."""

    def measure(self, s: Any, n: int) -> Any:
        before = getattr(self, "_raw", np.zeros(self.query.cells))
        batch = s.state["cells"].copy()
        _, fresh, changes = super().measure(s, n)  # type: ignore[misc]
        self._raw = before + batch
        return self._raw + (fresh - batch), fresh, changes


def test_fresh_noise_on_a_cumulative_count() -> None:
    for right in (FRESH["batches laplace"], FRESH["batches gaussian"]):
        assert failed(broken(right, FreshOnCumulative)) >= {"fresh", "sums"}


def test_fresh_noise_shows_where_the_mixing_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a noise matrix, the covariance of the releases is measured and its loss compared (Gaussian)."""
    monkeypatch.setattr(audit_noise, "noise_matrix", lambda *_: None)
    for right in (Central(mu=1.0, release="batches"), Central(mu=1.0, release="decaying")):
        assert failed(right.start) == set()
    assert failed(broken(Central(mu=1.0, release="batches"), FreshOnCumulative)) == {"loss", "sums"}
    assert failed(broken(Central(mu=1.0, release="tree"), HalfScale)) == {"loss"}


class VisitedOnly(CountChannel):
    """6. A sparse release: cells that nobody visited get no noise."""

    def noisy(self, s: Any, leaf: int) -> Any:
        return np.where(s.state["cells"] == 0, 0.0, super().noisy(s, leaf))  # type: ignore[misc]

    def measure(self, s: Any, n: int) -> Any:
        empty = s.state["cells"] + s.state["filtered"] == 0
        sums, fresh, changes = super().measure(s, n)  # type: ignore[misc]
        return np.where(empty, 0.0, sums), np.where(empty, 0.0, fresh), changes


@pytest.mark.parametrize("name", ["tree laplace", "signed digits", "square root", "batches gaussian"])
def test_noise_on_visited_cells_only(name: str) -> None:
    assert "support" in failed(broken(RIGHT[name], VisitedOnly))


@pytest.mark.parametrize("name", ["tree laplace", "signed digits", "decaying"])
def test_a_restart_that_draws_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """7. Restored from its sums, with new noise for what was released before."""
    revived = restoring._revived

    def forgetful(saved: Any) -> ChannelSession:
        new = revived(saved)
        new.channel.key = Seeded(1234).keys.noise  # type: ignore[misc]
        if "held" in new.state:  # registers of a walk
            new.state["held"] = np.zeros_like(new.state["held"])
        new._last = None
        return new

    monkeypatch.setattr(restoring, "_revived", forgetful)
    assert failed(RIGHT[name].start, restart=saved_and_restored) == {"once"}


class Peeks(Reactive):
    """8. The planner is told where the next person stands, and adapts her policy to it."""

    def plan(self, state: Any, release: Any, ask: Any) -> Any:
        plan, state = super().plan(state, release, ask)
        frame = __import__("sys")._getframe(1)  # what a service with one namespace would hand it
        people, world, user = (frame.f_locals[name] for name in ("people", "world", "user"))
        stands = respond(people, user, world, plan.policy).states[0]
        return Plan(np.full_like(plan.policy, stands)), state


def test_a_user_whose_own_data_reach_her_policy() -> None:
    found = {one.name: one.passed for one in white_box(Central(epsilon=1.0).start, Peeks(), LAYOUT, 8)}
    assert [name for name, passed in found.items() if passed is False] == [HEADS["own"]]


def test_a_reward_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """9. Rewards are not checked before they are added."""
    right = core_session.checked

    def lenient(trajectory: Any, layout: Any) -> Any:
        tame = right(dataclasses.replace(trajectory, rewards=np.zeros(layout.horizon)), layout)
        return dataclasses.replace(tame, rewards=np.asarray(trajectory.rewards, np.float64))

    for module in (core_session, device_session):
        monkeypatch.setattr(module, "checked", lenient)
    for one in (
        WALKS["signed digits"],
        FRESH["decaying"],
        VECTORS["local laplace"],
    ):
        assert "refused" in failed(one.start)
    monkeypatch.setattr("discreet.mechanisms.local.randomized_response.checked", lenient)
    assert "refused" in failed(REPORTS["subset"].start)


class RawWeights(CountChannel):
    """10. A batch's weight is how many people really came to the last state."""

    def described(self, s: Any, fresh: Any, laws: Any, n: int) -> Any:
        made, changes = super().described(s, fresh, laws, n)  # type: ignore[misc]
        seen = float((s.state["filtered"] + s.state["cells"])[self.query.offsets[-1] // 2 :].sum())
        estimates = {
            name: dataclasses.replace(one, effective=1.0 + max(0.0, seen))
            for name, one in made.estimates.items()
        }
        return dataclasses.replace(made, estimates=estimates), changes


class RawScaling(CountChannel):
    """10b. The sums themselves are reweighted by a raw count: cells move that the user never touched."""

    def measure(self, s: Any, n: int) -> Any:
        raw = float(s.state["cells"][0])
        sums, fresh, changes = super().measure(s, n)  # type: ignore[misc]
        return sums * (1.0 + 0.01 * raw), fresh, changes


def test_weights_that_depend_on_raw_data() -> None:
    assert failed(broken(Central(mu=1.0, release="batches"), RawWeights)) == {"moves"}
    assert failed(broken(Central(mu=1.0, release="decaying"), RawScaling)) >= {"moves", "sums"}


# ------------------------------------------------------------------------------- bugs of devices that report
def eager(own: float) -> Any:
    """StepReports whose own element is reported with a larger share of what is left to 1."""

    def changed(reports: StepReports) -> StepReports:
        def more(one: Any) -> Any:
            grown = int(one.own + own * (2**53 - one.own)) if one.elements > 1 else one.own
            return dataclasses.replace(one, own=grown)

        moves, rewards = (tuple(map(more, pair)) for pair in (reports.moves, reports.rewards))
        return dataclasses.replace(reports, moves=moves, rewards=rewards)

    return changed


def on_device(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    encode = ReportEncoder.__call__

    def broken(self: Any, life: Any, plan: Any, coins: Any) -> Any:
        return encode(dataclasses.replace(self, reports=change(self.reports)), life, plan, coins)

    monkeypatch.setattr(ReportEncoder, "__call__", broken)


@pytest.mark.parametrize("name", REPORTS)
def test_a_device_that_reports_its_own_record_too_often(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a hundredth of the rest: seen in the exact law; by three tenths: at full size too."""
    share, seen = {"oue": (0.01, {"message"})}.get(name, (0.3, {"message", "reports"}))
    on_device(monkeypatch, eager(share))
    assert failed(REPORTS[name].start) == seen


def test_devices_that_look_at_the_data_before_they_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a report is about, or whether it says anything, must not depend on the record."""
    encode = ReportEncoder.__call__

    def rewarding(self: Any, life: Any, plan: Any, coins: Any) -> Any:
        share = min(2**53 - 1, int(self.reports.share * (1 + (life.rewards == 1).sum())))
        reports = dataclasses.replace(self.reports, share=share)
        return encode(dataclasses.replace(self, reports=reports), life, plan, coins)

    def honest(self: Any, life: Any, plan: Any, coins: Any) -> Any:
        report = encode(self, life, plan, coins)
        on_policy = (
            self.stochastic
            or (
                self.layout.row_index[life.states[:-1], life.actions]
                == self.policy_rows[np.arange(self.layout.horizon), life.states[:-1]]
            ).all()
        )
        return report if on_policy else dataclasses.replace(report, message=report.message[:0])

    for broken_device in (rewarding, honest):
        monkeypatch.setattr(ReportEncoder, "__call__", broken_device)
        assert "message" in failed(REPORTS["subset"].start)


def test_the_law_of_a_device_is_exact() -> None:
    """Randomized response over 4 moves and 4 reward bits: chances are known fractions, and sum to 1."""
    right = Local(epsilon=1.0, randomizer="krr")
    made = right.start(CountQuery(Layout(2, 2, 1)), Schedule(4), Seeded(1))
    made.release()
    encoder = made.begin(Plan(np.zeros((1, 2), np.int64)))
    lives = list(audit_reports.lives(Layout(2, 2, 1)))
    assert len(lives) == 16
    laws = [audit_reports.law_of(encoder, life, made.open_plan) for life in lives]
    assert all(law is not None and sum(law.values()) == 1 for law in laws)
    reports = made.mechanism.reports
    assert reports is not None
    share, one = Fraction(reports.share, 2**53), reports.moves[0]
    followed = next(i for i, life in enumerate(lives) if life.actions[0] == 0)
    own = 2 * int(lives[followed].states[0]) + int(lives[followed].states[1])
    law = laws[followed]
    assert law is not None
    assert law[(0.0, 0.0, 1.0, float(own))] == (1 - share) * one.p
    assert law[(0.0, 0.0, 1.0, float((own + 1) % 4))] == (1 - share) * one.q
    stray = laws[next(i for i, life in enumerate(lives) if life.actions[0] == 1)]
    assert stray is not None
    mean = (one.p + 3 * one.q) / 4  # of a uniform element
    assert stray[(0.0, 0.0, 1.0, float(own))] == (1 - share) * mean
    assert audit_reports.largest_ratio([law, {(9.0,): Fraction(1)}]) == math.inf
    vector = Local(epsilon=1.0, randomizer="laplace").start(
        CountQuery(Layout(2, 2, 1)), Schedule(4), Seeded(1)
    )
    vector.release()
    device = vector.begin(Plan(np.zeros((1, 2), np.int64)))
    assert audit_reports.law_of(device, lives[0], vector.open_plan) is None


# --------------------------------------------------------------------------- black box: small pieces
def test_clopper_pearson_limits_are_the_binomial_tails() -> None:
    for hits, runs, alarm in ((3, 50, 1e-3), (50, 50, 1e-6), (0, 7, 0.01)):
        low, high = audit.rate_limits(hits, runs, alarm)
        if hits:
            assert stats.binom.sf(hits - 1, runs, low) == pytest.approx(alarm)
        if hits < runs:
            assert stats.binom.cdf(hits, runs, high) == pytest.approx(alarm)
    assert audit.rate_limits(0, 7, 0.01)[0] == 0.0
    assert audit.rate_limits(7, 7, 0.01)[1] == 1.0
    assert audit.epsilon_bound(0.5, 0.25) == pytest.approx(math.log(2))
    assert audit.epsilon_bound(0.5, 0.25, 0.5) == -math.inf
    assert audit.mu_bound(stats.norm.cdf(0.7), stats.norm.cdf(-0.4)) == pytest.approx(1.1)


def test_both_worlds_are_one_until_the_target_submits() -> None:
    for target in (1, 3):
        people = People(4, target)
        start = Central(epsilon=1.0, release="tree").start
        one, zero = (play(start, Reactive(), people, world, Seeded(3)) for world in (1, 0))
        assert one.before.tobytes() == zero.before.tobytes()
        assert not np.array_equal(one.releases, zero.releases)
        lives = [respond(people, target, world, one.plans[target - 1]) for world in (0, 1)]
        assert lives[0].states[0] != lives[1].states[0]


def test_exact_sums_are_seen_through_at_once() -> None:
    """ln(low / high) with all and none of 300 judged runs, the alarm shared: 2.5 and more."""
    found = black_box(NoPrivacy().start, runs=400, people=People(3))
    assert found.epsilon > 2.5
    assert not found.exceeded  # nothing is claimed
    assert [bound.statistic for bound in found.bounds] == ["linear score", "event counts"]


def test_a_finite_report_is_judged_by_its_exact_frequencies() -> None:
    """Randomized response, of which the audit knows no law: p / q = e^2 in numbers of reports."""
    luck = np.random.default_rng(0)
    rows = [
        np.where(luck.random((4000, 1)) < p, 1.0, 0.0)
        for p in (1 / (1 + math.e**2), math.e**2 / (1 + math.e**2))
    ]
    score = audit.fit_events(rows[1][:1000], rows[0][:1000])
    values = [score(part) for part in rows]
    bound = audit.bounds_of("", [v[1000:2000] for v in values], [v[2000:] for v in values], 0.0, 1e-6)
    assert 1.4 < bound.epsilon < 2.0


def test_values_out_of_range_are_refused() -> None:
    start = Central(epsilon=1.0).start
    with pytest.raises(ValueError, match="runs"):
        black_box(start, runs=10)
    with pytest.raises(ValueError, match="alarm"):
        black_box(start, runs=400, alarm=0.7)
    with pytest.raises(ValueError, match="must not explore in stages"):
        experiment.audit_privatizer(Central(epsilon=1.0), SDPPE())
    with pytest.raises(ValueError, match="users"):
        white_box(start, users=3)
    with pytest.raises(ValueError, match="target"):
        People(3, 4)
