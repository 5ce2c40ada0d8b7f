"""Rewards counted up to a cut: what one user can move, noise that follows the cut, two families in turn."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted
from scipy import stats

import discreet as dr
from discreet.accounting import pld_calibration as calibration
from discreet.audit.black_box import Reactive, black_box
from discreet.audit.conformance import worst_loss
from discreet.audit.run import saved_and_restored
from discreet.audit.white_box import white_box
from discreet.core import clipped_returns as steered
from discreet.core.clipped_returns import taking_turns
from discreet.core.count_query import CountQuery
from discreet.core.families import CENTERED_REWARDS, CUT_REWARDS, TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectories, Trajectory
from discreet.experiments.estimate import estimate_run
from discreet.experiments.simulate import Setup
from discreet.mechanisms import restore_session as restoring
from discreet.mechanisms.batch_queries import batch_mechanism
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.privatizers.shuffle import Shuffle

LAYOUT = Layout(3, 2, 4)
QUERY = CountQuery(LAYOUT, visits=False, center_rewards=True, reward_share=0.3, cut=1.5)
SCHEDULE = Schedule(40, times=np.arange(0, 40, 4), reads="measurements")
POLICY = np.zeros((4, 3), np.int64)
OPTIONS: list[dict[str, Any]] = [
    {"delta": 1e-6, "release": "decaying", "decay": 0.8}, {"delta": 1e-6, "release": "batches"},
    {"delta": 1e-6}, {}, {"delta": 1e-6, "noise": "laplace", "release": "batches"},
]  # fmt: skip


def asked(layout: Layout = LAYOUT, **options: Any) -> CountQuery:
    return CountQuery(layout, **{"visits": False, "center_rewards": True, "cut": 1.5, **options})


def life(rng: np.random.Generator, kind: int | None = None) -> Trajectory:
    """A random user, or one of a kind: stays in a pair of her own and earns everything or nothing there."""
    if kind is None:
        fine = rng.random() < 0.5  # (sixteenths: exact noise would round others at random)
        rewards = rng.integers(17, size=4) / 16 if fine else rng.integers(2, size=4).astype(float)
        return Trajectory(rng.integers(3, size=5), rng.integers(2, size=4), rewards)
    state, reward = kind % 3, float(kind < 6)
    return Trajectory(np.full(5, state), np.full(4, kind % 2), np.full(4, reward))


def estimates(release: Any) -> Any:
    return release.measurement.estimates


def ready(privatizer: Any = None, query: CountQuery = QUERY, source: Any = None) -> ChannelSession:
    privatizer = privatizer or Central(epsilon=1.0, **OPTIONS[0])
    out = privatizer.start(query, SCHEDULE, source or Seeded(0))
    out.release()
    assert isinstance(out, ChannelSession)
    return out


# ------------------------------------------------------------------------------ what one user moves


def every_life(layout: Layout, rewards: Any) -> list[Trajectory]:
    h = layout.horizon
    return [
        Trajectory(np.array(states), np.array(actions), np.array(earned))
        for states in itertools.product(range(layout.states), repeat=h + 1)
        for actions in itertools.product(range(layout.actions), repeat=h)
        for earned in itertools.product(rewards, repeat=h)
    ]


@pytest.mark.parametrize("cut", [0.4, 1.0, 1.3, 2.0])
def test_sensitivity_by_brute_force_over_all_trajectories(cut: float) -> None:
    """All pairs of 288 trajectories; both modes, both norms, families alone and together."""
    query = asked(Layout(2, 2, 2), cut=cut)
    lives = every_life(query.layout, (0.0, 0.3, 1.0))
    cells = np.array([query.to_cells(query.contribution(one)) for one in lives])
    parts = dict(zip(query.row_families, np.split(cells, query.offsets[1:-1], axis=1), strict=True))
    assert parts[CUT_REWARDS].min() >= 0
    assert parts[CUT_REWARDS].sum(axis=1).max() == pytest.approx(cut)
    rng = np.random.default_rng(0)
    for norm, power in (("l1", 1), ("l2", 2)):
        worst = {}
        for name, part in parts.items():
            worst[name] = np.array([(np.abs(part - row) ** power).sum(axis=1) for row in part])
        for reward in (CUT_REWARDS, CENTERED_REWARDS):
            attained = reward == CUT_REWARDS or norm == "l1"
            weights = [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), *rng.uniform(0.1, 3.0, (4, 2)).tolist()]
            for w_t, w_r in weights:
                moved = w_t**power * worst[TRANSITIONS] + w_r**power * worst[reward]
                found = float(moved.max()) ** (1 / power)
                bound = query.sensitivity(norm, {TRANSITIONS: w_t, reward: w_r})  # type: ignore[arg-type]
                assert found <= bound * (1 + 1e-12)
                if attained or not w_r:
                    assert found == pytest.approx(bound, rel=1e-12)
        alone = query.sensitivity(norm, {CUT_REWARDS: 1.0})  # type: ignore[arg-type]
        assert alone == pytest.approx(2 * cut if norm == "l1" else math.sqrt(2) * cut)
        # a release holds one of the two: together they are the costlier mode, not the sum
        both = {TRANSITIONS: 1.0, CUT_REWARDS: 0.7, CENTERED_REWARDS: 0.9}
        modes = [{name: w for name, w in both.items() if name != out} for out in both if out != TRANSITIONS]
        most = max(query.sensitivity(norm, mode) for mode in modes)  # type: ignore[arg-type]
        assert query.sensitivity(norm, both) == most  # type: ignore[arg-type]


def test_rewards_are_counted_in_the_order_of_time() -> None:
    record = Trajectory(np.array([0, 1, 2, 0, 1]), np.array([0, 1, 0, 1]), np.array([0.75, 0.5, 0.5, 1.0]))
    table = QUERY.contribution(record)[CUT_REWARDS]
    assert (table[0, 0, 0], table[0, 1, 1], table[0, 2, 0], table[0, 0, 1]) == (0.75, 0.5, 0.25, 0.0)
    assert QUERY.contribution(record, cut=3.0)[CUT_REWARDS].sum() == 2.75
    assert QUERY.contribution(record, cut=math.inf)[CUT_REWARDS].sum() == 0.0


# ------------------------------------------------------------------------------ scales


@pytest.mark.parametrize("share", [None, 0.25])
@pytest.mark.parametrize("laplace", [True, False])
def test_scales_are_those_of_the_formula_and_follow_the_cut(laplace: bool, share: float | None) -> None:
    """H = 4: transitions keep theirs, cut rewards go with C, centred ones get all of the rewards' share."""
    privatizer = Central(epsilon=2.0) if laplace else Central(mu=0.5, release="decaying", decay=0.6)
    s, h = share or 0.5, 4
    stds = []
    opened = ready(privatizer, asked(reward_share=share))
    for cut in (None, 1.5, 2.25, 4.0, math.inf, None):
        opened.begin(Plan(POLICY, 4, cut=cut))
        opened.absent(4)
        release = opened.release()
        stds.append({name: one.law.std() for name, one in estimates(release).items()})
        assert not release.estimates  # sums of measurements of unlike families are not offered
    if laplace:
        unit = math.sqrt(2) / 2.0
        moves, per_cut, centred = 2 * h / (1 - s) * unit, 2 / s * unit, h / s * unit
    else:
        moves, per_cut, centred = (
            math.sqrt(x) / 0.5 for x in (2 * h / (1 - s), 2 / s, h / s)
        )  # C sqrt(2 / s) / mu, sqrt(H / s) / mu
    expected = [{TRANSITIONS: moves, CUT_REWARDS: c * per_cut} for c in (1.5, 1.5, 2.25, 4.0)]
    expected += [{TRANSITIONS: moves, CENTERED_REWARDS: centred}] * 2
    assert [set(found) for found in stds] == [set(one) for one in expected]
    for found, one in zip(stds, expected, strict=True):
        assert found == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_release_costs_the_budget_and_no_more(options: dict[str, Any]) -> None:
    """Scales of any C and either family, put into the joint sensitivity at that C."""
    opened = ready(Central(epsilon=1.0, **options))
    claim, mechanism = opened.guarantee, opened.mechanism
    norm = "l1" if claim.mu is None else "l2"
    for cut in (1.5, 2.0, 3.999, 4.0, math.inf):
        scales = taking_turns(QUERY, mechanism.scales, cut)
        at = QUERY if math.isinf(cut) else dataclasses.replace(QUERY, cut=cut)
        told = {n: 1 / b for n, b in zip(QUERY.row_families, scales, strict=True) if math.isfinite(b)}
        assert len(told) == 2
        power = 1 if norm == "l1" else 2
        cost = at.sensitivity(norm, told) ** power  # type: ignore[arg-type]
        apart = [at.sensitivity(norm, {name: w}) ** power for name, w in told.items()]  # type: ignore[arg-type]
        budget = (claim.epsilon if claim.mu is None else claim.mu) ** power
        assert sum(apart) == pytest.approx(budget, rel=1e-9)
        rewards = sum(one for one, name in zip(apart, told, strict=True) if name != TRANSITIONS)
        assert rewards / sum(apart) == pytest.approx(0.3, rel=1e-9)
        # squares of centred rewards: pairs and successors take turns in differing, 4 steps cost 3 of 4 parts
        left = 0.25 * rewards if norm == "l2" and CENTERED_REWARDS in told else 0.0
        assert cost == pytest.approx(budget - left, rel=1e-9)
    assert calibration.shift_patterns(QUERY, 1) is None  # losses that do not add are not used
    assert "first and never decreases" in claim.statement


@pytest.mark.statistics
@pytest.mark.parametrize("options", [OPTIONS[0], {}], ids=str)
def test_noise_is_fresh_in_every_release_before_and_after_the_change(options: dict[str, Any]) -> None:
    """400 seeds of absent users: releases in units of their stated noise are independent, std 1.

    Three Kolmogorov tests at 1e-7 and one of products: alarms below 1e-6.
    """
    cuts, draws = (None, 2.0, math.inf, None), []
    for run in range(400):
        opened = ready(Central(epsilon=1.0, **options), source=Seeded(3, run))
        row: list[Any] = []
        for cut in cuts:
            opened.begin(Plan(POLICY, 4, cut=cut))
            opened.absent(4)
            found = estimates(opened.release())
            row.append([one.value.ravel() / one.law.std() for one in found.values()])
        assert [len(one) for one in row] == [2] * 4
        draws.append(np.concatenate([np.concatenate([moves[:24], *rewards]) for moves, *rewards in row]))
        opened.close()
    table = np.array(draws)  # (400, 4 releases x (24 moves, then 6 or 24 rewards))
    law = stats.norm() if options else stats.laplace(scale=1 / math.sqrt(2))
    sizes = [24, 6, 24, 6, 24, 24, 24, 24]
    for part in np.split(table, np.cumsum(sizes)[:-1], axis=1):
        assert stats.kstest(part.ravel(), law.cdf).pvalue > 1e-8
    correlations = np.corrcoef(table.T)
    np.fill_diagonal(correlations, 0.0)
    pairs = table.shape[1] ** 2 / 2
    assert np.abs(correlations).max() < stats.norm.isf(1e-7 / pairs) * 1.3 / math.sqrt(400)


# ------------------------------------------------------------------------------ neighbouring worlds


def play(privatizer: Any, trial: int, user: int, script: list[Any] | None, source: Any) -> Any:
    """One stream under random plans. Without a script, C follows what was released, as a learner would do.

    Returns measurements (value, std) by release, the script of plans, and the guarantee. ``user`` is the one
    whose trajectory is exchanged in the world with a script, of batches of 4 with absent people among them.
    """
    luck, rng = np.random.default_rng([1, trial]), np.random.default_rng(trial)
    opened = privatizer.start(QUERY, SCHEDULE, source)
    if isinstance(source, Secure):  # exact noise cannot be drawn twice: none, and the shift is what it is
        opened.channel.node_noise = lambda *_: np.zeros(QUERY.cells)
    seen, made, at, came = [], [], opened.release(), 0
    for batch in range(9):
        if script is None:
            rewards = estimates(at)
            chosen: float | None = math.inf
            if CUT_REWARDS in rewards and luck.random() > 0.05 * batch:
                value = 0.25 * round(abs(float(rewards[CUT_REWARDS].value.sum())))
                chosen = None if luck.random() < 0.7 else min(4.0, max(opened.cut, value))
            made.append((chosen, bool(luck.integers(2))))
        else:
            made.append(script[batch])
        chosen, several = made[-1]
        for users in (2, 2) if several else (4,):
            last = not several or came % 4 == 2
            plan = Plan(POLICY, users, cut=chosen, last=last)
            encoder = opened.begin(plan)
            for _ in range(users):
                kinds = rng.integers(12, size=2)
                one = life(rng, None if rng.random() < 0.5 else int(kinds[0]))
                other = life(rng, None if rng.random() < 0.2 else int(kinds[1]))
                gone = rng.random() < 0.1
                if gone and came != user:
                    opened.absent()
                else:
                    chosen_life = other if script is not None and came == user else one
                    opened.submit(encoder(chosen_life, plan, SecureRng()))
                came += 1
        at = opened.release()
        seen.append({name: (e.value.ravel(), e.law.std()) for name, e in estimates(at).items()})
    claim = opened.guarantee
    opened.close()
    return seen, made, claim


@pytest.mark.parametrize("options", [*OPTIONS, {"secure": True, **OPTIONS[0]}], ids=str)
def test_the_loss_of_a_whole_stream_is_at_most_the_guarantee(options: dict[str, Any]) -> None:
    """Two worlds, one transcript: C and the change of family follow what the first world released.

    Under one seed noise is the same, so what moves is the shift of the means, exactly; its loss over all
    releases and families, with the stds that the releases state, is Gaussian mu or Laplace epsilon.
    """
    options = dict(options)
    secure = options.pop("secure", False)
    privatizer, source = Central(epsilon=1.0, **options), Secure(16) if secure else Seeded(5)
    worst = 0.0
    rng = np.random.default_rng(9)
    modes = set()
    for trial in range(60):
        user = int(rng.integers(12))
        one, script, claim = play(privatizer, trial, user, None, source)
        other, _, _ = play(privatizer, trial, user, script, source)
        spent = 0.0
        for mine, hers in zip(one, other, strict=True):
            assert {n: std for n, (_, std) in mine.items()} == {n: std for n, (_, std) in hers.items()}
            assert len(mine) == 2
            modes.add(tuple(mine))
            for name, (value, std) in mine.items():
                shift = np.abs(value - hers[name][0])
                laplace = claim.rho is None
                spent += float((shift / std * math.sqrt(2)).sum() if laplace else ((shift / std) ** 2).sum())
        loss = spent if claim.rho is None else math.sqrt(spent)
        stated = claim.epsilon if claim.rho is None else math.sqrt(2 * claim.rho)
        assert loss <= stated * (1 + 1e-9)
        worst = max(worst, loss / stated)
    assert len(modes) == 2
    assert worst > 0.85  # random exchanges come near


@pytest.mark.parametrize("switch", [False, True])
def test_the_worst_exchange_attains_the_budget(switch: bool) -> None:
    """Who earns C in a pair of her own for who does so in another: mu, but for the end of the column."""
    ends, values = [0, 4], []
    for kind in ends:
        opened = ready(Central(mu=1.0, release="decaying", decay=0.5))
        cut: float | None = None
        for batch in range(9):
            encoder = opened.begin(Plan(POLICY, 4, cut=cut))
            record = life(np.random.default_rng(0), kind)
            if batch == 0:
                opened.submit(encoder(record, opened.open_plan, SecureRng()))
            opened.absent(4 - (batch == 0))
            found = estimates(opened.release())
            values.append([one.value.ravel() / one.law.std() for one in found.values()])
            cut = math.inf if switch and batch == 2 else None
    first, second = values[:9], values[9:]
    squares = [
        sum(float(((x - y) ** 2).sum()) for x, y in zip(one, other, strict=True))
        for one, other in zip(first, second, strict=True)
    ]
    decays = 0.75 * 0.25 ** np.arange(9)
    share = np.where(np.arange(9) < 3, 1.0, 0.7 + 0.3 / 2) if switch else np.ones(9)
    np.testing.assert_allclose(squares, decays * share, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------------------ sessions


def test_sums_are_those_of_the_declared_contributions() -> None:
    """One by one, at once, and as simulated sums; C changes from batch to batch, absent users add nothing."""
    rng = np.random.default_rng(3)
    users = [life(rng, None if i % 3 else i % 12) for i in range(16)]
    for way in ("submit", "submit_many", "submit_sum"):
        opened = ready(NoPrivacy())
        for batch, cut in enumerate((None, 2.5, math.inf, None)):
            mine = users[4 * batch : 4 * batch + 3]
            plan = Plan(POLICY, 4, cut=cut)
            encoder = opened.begin(plan)
            c = opened.cut
            assert c == (1.5, 2.5, math.inf, math.inf)[batch]
            opened.absent()
            adds = [QUERY.contribution(one, cut=c) for one in mine]
            sums = {name: np.sum([one[name] for one in adds], axis=0) for name in QUERY.families}
            if way == "submit":
                for one in mine:
                    opened.submit(encoder(one, plan, SecureRng()))
            elif way == "submit_many":
                many = Trajectories(*(np.array([getattr(one, x) for one in mine]) for x in _FIELDS))
                opened.submit_many(many, opened.open_plan.number)
            else:
                opened.submit_sum(sums, 3)
            found = estimates(opened.release())
            assert set(found) == {TRANSITIONS, CENTERED_REWARDS if math.isinf(c) else CUT_REWARDS}
            for name, one in found.items():
                np.testing.assert_allclose(one.value, sums[name], atol=1e-12)


_FIELDS = ("states", "actions", "rewards")


def test_inadmissible_pairs_have_no_cells() -> None:
    mask = np.ones((3, 2), bool)
    mask[1, 1] = False
    query = asked(Layout(3, 2, 4, mask))
    assert query.row_families[CUT_REWARDS] == (1, 5)
    opened = ready(Central(mu=1e7, release="batches"), query)
    encoder = opened.begin(Plan(POLICY, 4))
    record = Trajectory(np.array([0, 1, 2, 0, 1]), np.array([1, 0, 1, 0]), np.array([0.5, 0.5, 1.0, 1.0]))
    opened.submit(encoder(record, opened.open_plan, SecureRng()))
    opened.absent(3)
    value = estimates(opened.release())[CUT_REWARDS].value
    assert value.shape == (1, 3, 2)
    assert value[0, 1, 1] == 0.0
    np.testing.assert_allclose(value, [[[0.0, 0.5], [0.5, 0.0], [0.0, 0.5]]], atol=1e-4)


def test_simulated_sums_beyond_the_cut_are_refused() -> None:
    opened = ready()
    opened.begin(Plan(POLICY, 4))
    tables = {name: np.zeros(shape) for name, shape in QUERY.families.items()}
    for value in (6.001, -0.1):
        tables[CUT_REWARDS][0, 0, 0] = value
        with pytest.raises(ValueError, match="cut at 1.5"):
            opened.submit_sum(tables, 4)
    tables[CUT_REWARDS][0, 0, 0] = 6.0
    opened.submit_sum(tables, 4)


def test_what_is_checked_of_simulated_sums_is_what_is_added() -> None:
    class Sly(dict[str, Any]):
        """Holds more cut rewards at the first look than later."""

        looks = 0

        def __getitem__(self, name: str) -> Any:
            self.looks += name == CUT_REWARDS
            return super().__getitem__(name) * (1e6 if name == CUT_REWARDS and self.looks == 1 else 1.0)

    opened = ready()
    opened.begin(Plan(POLICY, 4))
    tables = Sly({name: np.full(shape, 0.1) for name, shape in QUERY.families.items()})
    with pytest.raises(ValueError, match="cut at 1.5"):
        opened.submit_sum(tables, 4)


def test_a_decaying_stream_holds_both_sums_all_the_time() -> None:
    """After the change centred rewards of earlier batches' users are in the sum with their decayed weight."""
    opened = ready(Central(mu=1e7, release="decaying", decay=0.5))
    rng, gain, held = np.random.default_rng(1), math.sqrt(0.75), 0.0
    for batch in range(4):
        plan = Plan(POLICY, 4, cut=math.inf if batch == 2 else None)
        encoder = opened.begin(plan)
        users = [life(rng) for _ in range(4)]
        for one in users:
            opened.submit(encoder(one, plan, SecureRng()))
        made = opened.release().measurement
        held = sum(QUERY.contribution(one)[CENTERED_REWARDS] for one in users) + 0.5 * held
        assert made is not None
        assert (made.decay, made.gain) == (0.5, gain)
        if batch >= 2:
            np.testing.assert_allclose(made.estimates[CENTERED_REWARDS].value, gain * held, atol=1e-5)


def test_exact_noise_stays_on_the_grid() -> None:
    for options in ({"delta": 1e-6, "release": "batches"}, {}, OPTIONS[0]):
        opened = ready(Central(epsilon=1.0, **options), source=Secure(64))
        rng = np.random.default_rng(2)
        for cut in (None, 2.0 + 1 / 64, math.inf):
            plan = Plan(POLICY, 4, cut=cut)
            encoder = opened.begin(plan)
            for _ in range(4):
                opened.submit(encoder(life(rng), plan, SecureRng()))
            made = opened.release().measurement
            assert made is not None
            grid = 2**20 if made.decay else 64
            for name, one in made.estimates.items():
                units = one.value / made.gain * (1 if name == TRANSITIONS and not made.decay else grid)
                np.testing.assert_allclose(units, np.round(units), rtol=0, atol=1e-5)
        opened.close()


# ------------------------------------------------------------------------------ attacks


@pytest.mark.parametrize("privatizer", [Central(epsilon=1.0, **OPTIONS[0]), NoPrivacy()], ids=str)
def test_a_cut_never_decreases_and_never_comes_back(privatizer: Any) -> None:
    class Sly(float):
        """Says another number whenever it is asked."""

        def __ge__(self, other: object) -> bool:
            return True

        __le__ = __ge__

    opened = ready(privatizer)
    for cut in (2.0, 3.0):
        opened.begin(Plan(POLICY, 4, cut=cut))
        opened.absent(4)
        opened.release()
        smaller: Any
        for smaller in (
            1.5,
            cut - 1e-9,
            0.0,
            -1.0,
            4.5,
            math.nan,
            -math.inf,
            Sly(0.1),
            True,
            "3",
            None.__class__,
        ):
            with pytest.raises(ValueError, match=r"plan\.cut"):
                opened.begin(Plan(POLICY, 4, cut=smaller))
        assert opened.cut == cut
    opened.begin(Plan(POLICY, 4, cut=Sly(3.5)))
    assert type(opened.open_plan.cut) is float
    opened.absent(4)
    opened.release()
    opened.begin(Plan(POLICY, 4, cut=np.float64(np.inf)))
    opened.absent(4)
    opened.release()
    for back in (3.5, 4.0, math.nan):
        with pytest.raises(ValueError, match="for good"):
            opened.begin(Plan(POLICY, 4, cut=back))
    assert opened.cut == math.inf
    opened.begin(Plan(POLICY, 4))
    opened.absent(4)
    assert CENTERED_REWARDS in estimates(opened.release())


@pytest.mark.parametrize("change", [2.0, math.inf])
def test_a_cut_does_not_change_within_a_batch(change: float) -> None:
    """Nor where a scheduled release was skipped, nor around a plan that is not the last of its batch."""
    opened = ready()
    opened.begin(Plan(POLICY, 2, last=False))
    opened.absent(2)
    assert opened.release().number == 0
    with pytest.raises(ValueError, match="this batch was begun"):
        opened.begin(Plan(POLICY, 2, cut=change))
    opened.begin(Plan(POLICY, 2, cut=1.5))
    opened.absent(2)  # a release is due here, and nobody asks for it
    with pytest.raises(ValueError, match="this batch was begun"):
        opened.begin(Plan(POLICY, 4, cut=change))
    opened.begin(Plan(POLICY, 4))
    opened.absent(4)
    opened.release()
    opened.begin(Plan(POLICY, 2, cut=change, last=False))
    opened.absent(2)
    with pytest.raises(ValueError, match="this batch was begun" if change == 2.0 else "for good"):
        opened.begin(Plan(POLICY, 2, cut=3.0))
    opened.begin(Plan(POLICY, 2, cut=change))
    opened.absent(2)
    assert opened.cut == change
    assert len(estimates(opened.release())) == 2


def test_a_plan_that_was_refused_changes_nothing() -> None:
    opened = ready()
    broken = [
        {"policy": np.zeros((3, 3), np.int64)}, {"users": 0}, {"users": 99}, {"group": 1},
        {"forget": True}, {"return_share": 0.5},
    ]  # fmt: skip
    for change in broken:
        plan = dataclasses.replace(Plan(POLICY, 4, cut=math.inf), **change)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="plan"):
            opened.begin(plan)
        assert opened.cut == 1.5
    opened.begin(Plan(POLICY, 4))
    with pytest.raises(RuntimeError, match="not submitted yet: "):
        opened.begin(Plan(POLICY, 4, cut=2.0))
    assert opened.cut == 1.5
    opened.absent(4)
    assert CUT_REWARDS in estimates(opened.release())


def test_interrupts_anywhere_leave_a_cut_that_noise_covers() -> None:
    """A plan is begun, or not; C stands where it stood or where the plan said; it goes no way back."""
    for at in range(400):
        opened = ready()
        more = interrupted(lambda opened=opened: opened.begin(Plan(POLICY, 4, cut=2.5)), at)  # type: ignore[misc]
        assert opened.cut in (1.5, 2.5)
        if not opened._awaited:
            if opened._fresh:
                with pytest.raises(ValueError, match=r"plan\.cut"):
                    opened.begin(Plan(POLICY, 4, cut=1.0))
            opened.begin(Plan(POLICY, 4))
        cut = opened.cut
        opened.absent(4)
        mu = opened.guarantee.mu
        assert mu is not None
        assert estimates(opened.release())[CUT_REWARDS].law.std() == pytest.approx(
            cut * math.sqrt(2 / 0.3) / mu
        )
        if not more:
            break
    assert 10 < at < 399


def test_after_an_interrupted_release_its_batch_keeps_its_cut() -> None:
    for at in range(400):
        opened = ready()
        encoder = opened.begin(Plan(POLICY, 4, cut=2.5))
        for kind in range(4):
            record = life(np.random.default_rng(0), kind)
            opened.submit(encoder(record, opened.open_plan, SecureRng()))
        more = interrupted(opened.release, at)
        if not opened._fresh:
            for change in (3.0, math.inf):
                with pytest.raises(ValueError, match="this batch was begun"):
                    opened.begin(Plan(POLICY, 4, cut=change))
        assert set(estimates(opened.release())) == {TRANSITIONS, CUT_REWARDS}
        opened.begin(Plan(POLICY, 4, cut=math.inf))
        opened.absent(4)
        assert set(estimates(opened.release())) == {TRANSITIONS, CENTERED_REWARDS}
        if not more:
            break
    assert 10 < at < 399


def test_saved_sessions_keep_the_cut_and_the_family(tmp_path: Any) -> None:
    for number, cut in enumerate((2.5, math.inf)):
        values = []
        for saved in (False, True):
            opened = ready()
            rng = np.random.default_rng(4)
            for batch in range(3):
                plan = Plan(POLICY, 4, cut=cut if batch == 1 else None)
                encoder = opened.begin(plan)
                for i in range(4):
                    if saved and (batch, i) == (1, 2):  # in mid-batch
                        opened.save(tmp_path / f"s{number}")
                        opened = restoring.restore(tmp_path / f"s{number}", tmp_path)  # type: ignore[assignment]
                        encoder = opened.open_encoder
                        assert opened.cut == cut
                    opened.submit(encoder(life(rng), plan, SecureRng()))
                values.append({n: e.value for n, e in estimates(opened.release()).items()})
            if saved:
                opened.save(tmp_path / f"t{number}")
                opened = restoring.restore(tmp_path / f"t{number}", tmp_path)  # type: ignore[assignment]
                with pytest.raises(ValueError, match=r"plan\.cut"):
                    opened.begin(Plan(POLICY, 4, cut=2.0))
            opened.close()
        for one, other in zip(values[:3], values[3:], strict=True):
            assert set(one) == set(other)
            assert all(np.array_equal(one[name], other[name]) for name in one)


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "change",
    [
        {"center_rewards": False}, {"visits": True}, {"stationary": True}, {"pooled": "all"},
        {"pooled": "first"}, {"groups": 2, "clip": 1.0}, {"episodes": 2}, {"step": 1}, {"cut": 4.1},
        {"cut": -0.5}, {"cut": math.nan}, {"cut": math.inf}, {"cut": 1e-9}, {"cut": "1"},
        {"known_rewards": True, "center_rewards": False},
    ],
    ids=str,
)  # fmt: skip
def test_queries_that_do_not_go_with_a_cut(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cut"):
        asked(**change)
    assert asked(cut=0.0).families.keys() == {TRANSITIONS, CENTERED_REWARDS}


def test_mechanisms_that_cannot_release_a_cut_refuse_it() -> None:
    own = Schedule(40, times=np.array([0, 4]), queries=(QUERY,))
    sums = Schedule(40, times=SCHEDULE.times)
    refused: list[tuple[Any, Any, Any, str]] = [
        (Local(epsilon=1.0), SCHEDULE, Seeded(0), "query.cut"),
        (Local(epsilon=1.0, randomizer="subset"), SCHEDULE, Seeded(0), "query.cut"),
        (Shuffle(epsilon=1.0), SCHEDULE, Seeded(0), "query.cut"),
        (Shuffle(epsilon=1.0, delta=1e-6, randomizer="amplified"), SCHEDULE, Seeded(0), "query.cut"),
        (Central(epsilon=1.0), sums, Seeded(0), "schedule.reads"),
        (NoPrivacy(), sums, Seeded(0), "schedule.reads"),
        (Central(epsilon=1.0, release="tree"), SCHEDULE, Seeded(0), "no measurements"),
        (Central(epsilon=1.0, release="tree"), sums, Seeded(0), "schedule.reads"),
        (Central(epsilon=1.0, preset="paper"), sums, Seeded(0), "query.cut"),
        (Central(epsilon=1.0, weights=(0.5, 0.25, 0.25)), SCHEDULE, Seeded(0), "weights"),
        (Central(epsilon=1.0), own, Seeded(0), "query.cut"),
        (NoPrivacy(), own, Seeded(0), "query.cut"),
        (Central(epsilon=1.0), Schedule(None, reads="measurements"), Seeded(0), "no such mechanism"),
    ]
    for privatizer, schedule, source, word in refused:
        with pytest.raises(ValueError, match=word):
            privatizer.start(QUERY, schedule, source)
    with pytest.raises(ValueError, match=r"queries\[0\].*cut"):
        batch_mechanism(Central(epsilon=1.0), dataclasses.replace(QUERY, cut=0.0), own, Seeded(0))
    for privatizer in (Central(epsilon=1.0), NoPrivacy()):
        with pytest.raises(ValueError, match=r"query\.cut"):
            privatizer.stored(QUERY, Seeded(0))

    class Sly(float):
        """A cut that is not there when it is asked for."""

        def __bool__(self) -> bool:
            return False

    sly = dataclasses.replace(QUERY, cut=0.0)
    object.__setattr__(sly, "cut", Sly(1.5))
    for stored in (Central(epsilon=1.0), NoPrivacy()):
        with pytest.raises(ValueError, match=r"query\.cut = 1\.5"):
            stored.stored(sly, Seeded(0))
    with pytest.raises(ValueError, match="multiple of 1 / 64"):
        Central(epsilon=1.0).start(asked(cut=1.51), SCHEDULE, Secure(64))
    with ready(Central(epsilon=1.0), source=Secure(64)) as opened, pytest.raises(ValueError, match="1 / 64"):
        opened.begin(Plan(POLICY, 4, cut=2.01))


@pytest.mark.parametrize(
    "query", [dataclasses.replace(QUERY, cut=0.0), CountQuery(LAYOUT, groups=2, clip=1.0)]
)
def test_plans_name_a_cut_only_where_there_is_one(query: CountQuery) -> None:
    opened = ready(Central(epsilon=1.0), query)
    for cut in (1.0, math.inf):
        with pytest.raises(ValueError, match=r"plan\.cut"):
            opened.begin(Plan(POLICY, 4, cut=cut, group=0 if query.groups else None))


# ------------------------------------------------------------------------------ audits


class Cuts(Reactive):
    """The question of a joint fit."""

    def query(self, spec: Any) -> CountQuery:
        return asked(spec.layout, reward_share=0.25, cut=spec.horizon / 2)

    def schedule(self, spec: Any) -> Schedule:
        return Schedule(spec.users, reads="measurements")


@pytest.mark.parametrize(
    "right", [Central(epsilon=1.0), Central(mu=1.0, release="decaying", decay=0.7)], ids=str
)
def test_the_audit_knows_both_families(right: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = white_box(right.start, Cuts(), LAYOUT, 8, restart=saved_and_restored)
    assert [str(one) for one in found if one.passed is False] == []
    (loss,) = (one for one in found if one.name.startswith("realised loss"))
    assert loss.passed
    turns = steered.taking_turns
    wrong = [
        lambda q, scales, cut: turns(q, scales, cut if math.isinf(cut) else q.cut),  # noise stays, C grows
        lambda q, scales, cut: turns(q, scales, cut) * (0.8 if math.isinf(cut) else 1.0),
    ]
    for broken in wrong:
        monkeypatch.setattr(steered, "taking_turns", broken)
        failed = [one.name for one in white_box(right.start, Cuts(), LAYOUT, 8) if one.passed is False]
        assert failed == [loss.name]


class Grows(Cuts):
    """C at every release, then centred rewards, when a noisy count says so: at H = 1 too."""

    def plan(self, state: Any, release: Any, ask: Any) -> Any:
        plan, state = super().plan(state, release, ask)
        found = release.measurement.estimates
        if CUT_REWARDS in found and release.users:
            told = float(found[CUT_REWARDS].value.sum())
            cut = math.inf if told > 1.0 else state.horizon * (0.5 + 0.1 * release.users)
            plan = dataclasses.replace(plan, cut=cut)
        return plan, state


@pytest.mark.parametrize(
    ("halved", "runs"),
    [
        (False, 300),
        (True, 700),
        pytest.param(False, 1500, marks=pytest.mark.statistics),
        pytest.param(True, 1500, marks=pytest.mark.statistics),
    ],
)
def test_the_black_box_reads_streams_whose_families_change(
    halved: bool, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact likelihoods at the C that stood: no bound above the claim; twice the loss is seen."""
    privatizer = Central(mu=2.0, release="decaying", decay=0.5)
    if halved:
        turns = steered.taking_turns
        monkeypatch.setattr(steered, "taking_turns", lambda q, scales, cut: 0.5 * turns(q, scales, cut))
    assert black_box(privatizer.start, Grows(), runs=runs).exceeded == halved


# ------------------------------------------------------------------------------ simulation


@dataclasses.dataclass(frozen=True)
class Joint:
    """Two plans a batch; C grows with what was released, then centred rewards."""

    switch: bool = True

    def schedule(self, spec: Any) -> Schedule:
        return Schedule(spec.users, times=np.arange(0, spec.users, 40), reads="measurements")

    def query(self, spec: Any) -> CountQuery:
        return asked(spec.layout, cut=1.0, reward_share=0.25)

    def begin(self, spec: Any, ties: Any) -> Any:
        return spec, 0

    def plan(self, state: Any, release: Any, ask: Any) -> Any:
        spec, planned = state
        found = release.measurement.estimates
        cut: float | None = None
        if planned % 40 == 0 and CUT_REWARDS in found:
            told = float(found[CUT_REWARDS].value.sum()) / 40
            cut = min(spec.horizon, max(1.0, 1.0 + planned / 80, told))
            cut = math.inf if self.switch and planned >= 120 else cut
        policy = np.full((spec.horizon, spec.states), (planned // 20) % 2)
        users = min(20, spec.users - planned)
        return Plan(policy, users, cut=cut, last=planned % 40 == 20), (spec, planned + users)


def sums_of(privatizer: Any, by: Any, run: int, switch: bool, users: int = 200) -> list[Any]:
    """What is measured in one simulated run."""
    out = []

    class Watched(Joint):
        def plan(self, state: Any, release: Any, ask: Any) -> Any:
            if state[1] % 40 == 0:
                out.append({n: e.value for n, e in release.measurement.estimates.items()})
            return super().plan(state, release, ask)

    setup = Setup(dr.make("riverswim", states=3, horizon=6), Watched(switch), privatizer, users, by=by)
    assert not setup.fused
    setup.run(2, run)
    return out


def test_batches_are_the_users_of_episodes_one_by_one() -> None:
    """Same people, same noise: what is measured is equal but for the order in which rewards are added."""
    privatizer = Central(epsilon=1.0, delta=1e-6)
    one, other, again = (sums_of(privatizer, by, 1, False) for by in ("batch", "episode", "batch"))
    for mine, hers, repeated in zip(one, other, again, strict=True):
        assert set(mine) == {TRANSITIONS, CUT_REWARDS}
        for name, value in mine.items():
            np.testing.assert_allclose(value, hers[name], atol=1e-9)
            assert np.array_equal(value, repeated[name])


@pytest.mark.statistics
def test_batches_and_episodes_are_equal_in_law_after_the_change() -> None:
    """Then batches are flows again: means of 300 runs each within 5.5 standard errors (36 + 18 cells)."""
    totals: dict[Any, Any] = {}
    for by in ("batch", "episode"):
        runs = [sums_of(NoPrivacy(), by, run + 1000 * (by == "batch"), True) for run in range(300)]
        for batch in (1, 4):
            for name in runs[0][batch]:
                totals[by, batch, name] = np.array([one[batch][name].ravel() for one in runs])
    for (by, batch, name), mine in totals.items():
        if by == "batch":
            hers = totals["episode", batch, name]
            error = np.sqrt((mine.var(axis=0) + hers.var(axis=0)) / 300) + 1e-9
            assert np.abs((mine.mean(axis=0) - hers.mean(axis=0)) / error).max() < 5.8
    assert ("batch", 4, CENTERED_REWARDS) in totals
    assert ("batch", 1, CUT_REWARDS) in totals


def test_a_forecast_names_both_families() -> None:
    world = dr.make("riverswim", states=3, horizon=6)
    forecast = estimate_run(Setup(world, Joint(), Central(epsilon=1.0, delta=1e-6), 200))
    assert set(forecast.std) == {TRANSITIONS, CUT_REWARDS, CENTERED_REWARDS}
    assert "up to a total of C, which is 1 at first" in forecast.statement


@pytest.mark.parametrize("privatizer", [Central(epsilon=1.0, delta=1e-6), Central(epsilon=1.0)], ids=str)
def test_the_conformance_check_recomputes_what_it_costs(privatizer: Any) -> None:
    world = dr.make("riverswim", states=3, horizon=6)
    setup = Setup(world, Joint(), privatizer, 200)
    loss, claim = worst_loss(setup), setup.guarantee
    assert loss.value == pytest.approx(claim.epsilon if loss.norm == "l1" else claim.mu, rel=1e-9)
