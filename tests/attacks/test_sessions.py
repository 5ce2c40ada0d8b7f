"""Attacks on the trusted core that once worked, or that somebody will try: each must fail."""

import dataclasses
import json
import math
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from discreet.accounting.noise_distributions.prefix_variance import tree_nodes
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.core.session import ChannelSession
from discreet.core.trajectories import Trajectory, checked
from discreet.mechanisms.interfaces import Plan, Schedule
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.seeded_rng import SeededRng

LAYOUT = Layout(2, 2, 2)
QUERY = CountQuery(LAYOUT)
POLICY = np.zeros((2, 2), np.int64)
LIFE = Trajectory(np.array([0, 1, 0]), np.array([1, 0]), np.array([0.25, 0.75]))


def come(session: ChannelSession, users: int) -> None:
    """Joint sessions: so many users with the same life."""
    encoder = session.begin(Plan(POLICY, users=users))
    for _ in range(users):
        session.submit(encoder(LIFE, session.open_plan, SecureRng()))


# ------------------------------------------------------------------------------ one noise per node


# ---------------------------------------------------------------- what was declared stays declared


def test_times_of_release_cannot_be_moved() -> None:
    """Who still held the array of times could release one node's noise on every user's data in turn."""
    times = np.array([0, 4])
    schedule = Schedule(10, times=times)
    session = Central(release="tree", epsilon=1.0).start(QUERY, schedule, Seeded(0))
    times[1] = 1
    with pytest.raises(ValueError, match="read-only"):
        schedule.release_times[1] = 1
    with pytest.raises(ValueError, match="read-only"):
        Schedule(10).release_times[1] = 3
    schedule.release_times.flags.writeable = True
    schedule.release_times[1] = 1
    session.release()
    come(session, 1)
    with pytest.raises(RuntimeError, match="not one of the scheduled times"):
        session.release()


def test_scales_query_and_keys_cannot_be_changed_from_outside() -> None:
    seed = Seeded(5)
    query, twin = (
        CountQuery(LAYOUT),
        Central(release="tree", epsilon=1.0).start(QUERY, Schedule(8), Seeded(5)),
    )
    session = Central(release="tree", epsilon=1.0).start(query, Schedule(8), seed)
    with pytest.raises(ValueError, match="read-only"):
        session.mechanism.scales[:] = 1e-9
    query.offsets[:] = query.cells  # every family empty: no cell would get noise
    LAYOUT_ROWS = query.layout.row_index
    LAYOUT_ROWS[:] = LAYOUT_ROWS[::-1, ::-1].copy()
    seed.keys.noise[:] = 0
    for s in (twin, session):
        s.release()
    LAYOUT_ROWS[:] = LAYOUT_ROWS[::-1, ::-1].copy()
    for s in (twin, session):
        come(s, 1)
    one, two = (s.release().estimates["transition_counts"].value for s in (twin, session))
    assert np.array_equal(one, two)


def test_a_learner_cannot_declare_its_own_sensitivity() -> None:
    class Cheap(CountQuery):
        def sensitivity(self, norm: Any, weight: Any) -> float:
            return 1e-6

    class Moving(Schedule):
        pass

    for privatizer in (Central(release="tree", epsilon=1.0), Local(epsilon=1.0), NoPrivacy()):
        with pytest.raises(ValueError, match="no subclass"):
            privatizer.start(Cheap(LAYOUT), Schedule(8), Seeded(0))
        with pytest.raises(ValueError, match="no subclass"):
            privatizer.start(QUERY, Moving(8), Seeded(0))
        with pytest.raises(ValueError, match="Seeded"):
            privatizer.start(QUERY, Schedule(8), np.random.default_rng(0))  # type: ignore[arg-type]


def test_a_schedule_that_declares_few_releases_keeps_to_them() -> None:
    """The error bounds divide the failure probability among the declared releases."""
    session = Central(release="tree", epsilon=1.0).start(QUERY, Schedule(None, max_releases=2), Seeded(0))
    session.release()
    for _ in range(2):
        come(session, 1)
        session.release()
    come(session, 1)
    with pytest.raises(RuntimeError, match="all have been made: 2"):
        session.release()


def test_what_is_added_is_what_was_checked() -> None:
    class Changing:
        calls = 0

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            self.calls += 1
            return np.array([0, 1, 0]) if self.calls == 1 else np.array([0, 10**6, 0])

    record = checked(dataclasses.replace(LIFE, states=Changing()), LAYOUT)  # type: ignore[arg-type]
    assert record.states.max() == 1
    own = dataclasses.replace(LIFE, rewards=LIFE.rewards.copy())
    record = checked(own, LAYOUT)
    own.rewards[:] = 9.0
    assert record.rewards.max() <= 1.0
    for rewards in (np.array(["0.5", "1"]), np.array([0.5 + 1j, 0.5]), np.array([0.5, None])):
        with pytest.raises(ValueError, match="must be real numbers"):
            checked(dataclasses.replace(LIFE, rewards=rewards), LAYOUT)


# --------------------------------------------------------------------- coins, keys, grids


def test_tie_keys_do_not_reveal_the_noise_key() -> None:
    """Words of one SeedSequence are invertible functions of the same four words of its pool."""
    keys = Seeded(7, 3).keys

    def constants() -> Any:
        constant = 0x8B51F9DD
        while True:
            following = constant * 0x58F38DED & 0xFFFFFFFF
            yield constant, following
            constant = following

    rounds = [pair for pair, _ in zip(constants(), range(12), strict=False)]
    ties = keys.ties.view(np.uint32).tolist()  # words 8 to 11 in the old derivation
    pool = []
    for word, (first, second) in zip(ties, rounds[8:], strict=True):
        value = word ^ (word >> 16)
        pool.append(value * pow(second, -1, 2**32) % 2**32 ^ first)
    guess = []
    for value, (first, second) in zip(pool, rounds[4:8], strict=True):
        mixed = (value ^ first) * second % 2**32
        guess.append(mixed ^ (mixed >> 16))
    assert guess != keys.noise.view(np.uint32).tolist()
    every = [Seeded(seed, run).keys for seed in range(30) for run in range(30)]
    words = {tuple(key.tolist()) for run in every for key in (run.environment, run.noise, run.ties)}
    assert len(words) == 3 * len(every)
    assert Seeded(1, 23).keys.noise.tolist() != Seeded(12, 3).keys.noise.tolist()


def test_exact_coins_without_a_grid_are_refused() -> None:
    """Integer noise on the device beside a reward of 0.3718: its digits would be plain to see."""
    session = Local(randomizer="laplace", epsilon=1.0).start(QUERY, Schedule(8), Seeded(0))
    encoder = session.begin(Plan(POLICY))
    with pytest.raises(ValueError, match="needs one"):
        encoder(LIFE, session.open_plan, SecureRng())
    gaussian = Local(mu=1.0).start(QUERY, Schedule(8), Seeded(0)).begin(Plan(POLICY))
    with pytest.raises(ValueError, match="needs one"):
        gaussian(LIFE, Plan(POLICY), SecureRng())
    with pytest.raises(ValueError, match="needs one"):
        SecureRng().rounded(LIFE.rewards, None)


@pytest.mark.parametrize(
    "options", [{"epsilon": 1e9}, {"epsilon": 1e-12}, {"epsilon": 1.0, "weights": (1e-14, 0.5, 0.5 - 1e-14)}]
)
def test_scales_that_no_exact_draw_can_have_are_refused_at_the_start(options: dict[str, Any]) -> None:
    for privatizer in (Central(**options, release="batches"), Local(**options, noise="laplace")):
        with pytest.raises(ValueError, match="grid units, must be in"):
            privatizer.start(QUERY, Schedule(8), Secure())
        privatizer.start(QUERY, Schedule(8), Seeded(0))


def test_sums_that_float64_would_round_are_refused() -> None:
    session = Central(release="tree", epsilon=1.0).start(QUERY, Schedule(None), Secure())
    session.begin(Plan(POLICY, users=2**40))
    session.absent(2**40)
    with pytest.raises(ValueError, match="exact in float64"):
        session.begin(Plan(POLICY, users=2**40))
    simulated = Central(release="tree", epsilon=1.0).start(QUERY, Schedule(None), Seeded(0))
    simulated.begin(Plan(POLICY, users=2**49))
    simulated.absent(2**49)
    assert simulated.release().users == 2**49


@pytest.mark.parametrize(
    "options",
    [{}, {"center_rewards": True}, {"stationary": True}, {"visits": False}, {"known_rewards": True}],
)
@pytest.mark.parametrize(
    "budget",
    [
        {"epsilon": 0.01, "delta": 1e-6, "noise": "laplace"},
        {"mu": 0.003},  # about the same, and its scales are known at once
    ],
    ids=["laplace", "gaussian"],
)
def test_every_cell_of_every_secure_release_is_noisy_and_on_its_grid(
    options: dict[str, bool], budget: dict[str, Any]
) -> None:
    mask = np.array([[True, True], [True, False]])
    query = CountQuery(Layout(2, 2, 2, mask), **options)
    life = dataclasses.replace(LIFE, rewards=np.array([0.3, 0.1]))
    inside = np.concatenate([query.support[name].ravel() for name in query.families])
    seen = []
    for _ in range(4):
        session = Central(release="tree", **budget).start(query, Schedule(4), Secure())
        session.release()
        for _ in range(1, 4):
            encoder = session.begin(Plan(POLICY))
            session.submit(encoder(life, session.open_plan, SecureRng()))
            release = session.release()
            for name, estimate in release.estimates.items():
                grid = 1024.0 if "reward" in name else 1.0
                assert (estimate.value * grid == np.round(estimate.value * grid)).all()
            seen.append(np.concatenate([e.value.ravel() for e in release.estimates.values()]))
    values = np.array(seen).reshape(4, 3, -1)
    assert not values[:, :, ~inside].any()
    # A noisy cell is the same in all four sessions with probability below (1 / 300)^3; about 100 cells.
    assert (np.ptp(values[:, :, inside], axis=0) > 0).all()
    # Releases 1 and 2 rest on different nodes: as above, over the four sessions.
    assert (values[:, 0, inside] != values[:, 1, inside]).any(axis=0).all()


# ----------------------------------------------------------------------------- reports, isolation


def test_late_reports_of_an_unnumbered_plan_are_refused() -> None:
    """The loop of the protocol hands the encoder the learner's plan, which bears no number yet."""
    for privatizer in (NoPrivacy(), Local(epsilon=1.0)):
        session = privatizer.start(QUERY, Schedule(8), Seeded(0))
        coins = SeededRng(Seeded(0).keys.noise, 0)
        plan = Plan(POLICY)
        encoder = session.begin(plan)
        late = encoder(LIFE, plan, coins)
        session.absent()
        session.begin(plan)
        for report in (late, dataclasses.replace(late, plan=0)):
            with pytest.raises(ValueError, match="must be 2, the plan that is open"):
                session.submit(report)
        with pytest.raises(ValueError, match="the plan of this encoder"):
            encoder(LIFE, session.open_plan, coins)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_no_local_message_drowns_the_others(mechanism: Any) -> None:
    local = Local(epsilon=1.0, delta=1e-6 if mechanism == "gaussian" else None, randomizer=mechanism)
    session = local.start(QUERY, Schedule(8), Seeded(0))
    encoder = session.begin(Plan(POLICY))
    report = encoder(LIFE, session.open_plan, SeededRng(Seeded(0).keys.noise, 0))
    for value in (1e308, -1e6 * session.mechanism.scales.max()):
        message = np.array(report.message)
        message[-1] = value
        with pytest.raises(ValueError, match="no device sends more"):
            session.submit(dataclasses.replace(report, message=message))
    most = LAYOUT.horizon + 40.0 * session.mechanism.scales[-1]  # a contribution and 40 scales of noise
    for sign in (-1.0, 1.0):
        message = np.array(report.message)
        message[-1] = sign * most * (1 + 1e-12)
        with pytest.raises(ValueError, match="no device sends more"):
            session.submit(dataclasses.replace(report, message=message))
    assert session.users == 0
    message[-1] = most
    session.submit(dataclasses.replace(report, message=message))
    assert session.users == 1


def test_what_a_learner_is_handed_does_not_lead_to_the_session() -> None:
    session = NoPrivacy().start(QUERY, Schedule(8), Seeded(0))
    assert not hasattr(session.answer, "__self__")
    assert session.answer.__closure__ is None
    encoder = session.begin(Plan(POLICY))
    assert not any(value is session for value in vars(encoder).values())


@pytest.mark.parametrize(
    "privatizer", [NoPrivacy(), Central(release="tree", epsilon=1.0), Local(epsilon=1.0)]
)
@pytest.mark.parametrize("mask", [None, np.array([[True, True], [True, False]])])
def test_releases_share_no_memory_with_private_sums_and_cannot_be_written(privatizer: Any, mask: Any) -> None:
    query = CountQuery(Layout(2, 2, 2, mask))
    session = privatizer.start(query, Schedule(8), Seeded(0))
    for n in range(3):
        release = session.release()
        for estimate in release.estimates.values():
            assert not np.shares_memory(estimate.value, session.state["cells"])
            assert not any(
                np.shares_memory(estimate.value, noise)
                for noise in getattr(session, "_registers", {}).values()
            )
            with pytest.raises(ValueError, match="read-only"):
                estimate.value[...] = 0.0
        encoder = session.begin(Plan(POLICY))
        session.submit(encoder(LIFE, session.open_plan, SeededRng(Seeded(0).keys.noise, n)))


def test_absent_people_add_no_local_noise_to_the_law() -> None:
    session = Local(epsilon=1.0).start(QUERY, Schedule(100), Seeded(0))
    session.release()
    encoder = session.begin(Plan(POLICY, users=64))
    session.submit(encoder(LIFE, session.open_plan, SeededRng(Seeded(0).keys.noise, 0)))
    session.absent(63)
    law = session.release().estimates["visits"].law
    assert law.std() == pytest.approx(session.laws_at(1)["visits"].std())
    assert law.bound(0.1) >= session.laws_at(1)["visits"].bound(0.1)


# ---------------------------------------------------------------------------------- guarantees


def guarantees() -> list[Guarantee]:
    privatizers = [
        Central(release="tree", epsilon=1.0),
        Central(release="tree", epsilon=1.0, delta=1e-6, noise="gaussian"),
        Local(rho=0.3),
        Central(release="tree", epsilon=1.0, calibration="published", log_base="e"),
        Local(mu=2.0),
        NoPrivacy(),
    ]
    return [
        privatizer.start(QUERY, Schedule(users), randomness).guarantee
        for privatizer in privatizers
        for randomness in (Seeded(0), Secure())
        for users in (2, 1000)
    ]


def test_a_guarantee_cannot_be_typed_in() -> None:
    for guarantee in guarantees():
        table = json.loads(guarantee.to_json())
        assert Guarantee.from_dict(table) == guarantee
        for name in ("epsilon", "rho", "mu", "delta"):
            if table[name]:
                with pytest.raises(ValueError, match="must be|is not|does not"):
                    Guarantee.from_dict({**table, name: 0.5 * table[name]})
        other = "local" if table["trust"] == "joint" else "joint"
        source = "secure" if table["randomness"] == "seeded" else "seeded"
        if guarantee.epsilon is None:
            changes: list[dict[str, Any]] = [{"epsilon": 1.0}, {"statement": "Private."}]
        else:
            changes = [
                {"composition": ()}, {"composition": table["composition"][1:]}, {"trust": other},
                {"randomness": source}, {"statement": "Private."}, {"unit": "one step"},
            ]  # fmt: skip
        for change in changes:
            with pytest.raises(ValueError, match="must|is not|typed in|does not"):
                Guarantee.from_dict({**table, **change})


def test_printed_numbers_are_never_below_the_truth() -> None:
    for users in (2, 3, 1000, 20_000):
        for options in (
            {"epsilon": 1.0, "calibration": "published", "log_base": "e"},
            {"mu": 0.123456},
            {"rho": 0.0333333},
        ):
            guarantee = Central(**options).start(QUERY, Schedule(users), Seeded(0)).guarantee  # type: ignore[arg-type]
            assert guarantee.epsilon is not None
            for symbol, true in (("ε", guarantee.epsilon), ("μ", guarantee.mu), ("ρ", guarantee.rho)):
                if true is not None:
                    told = re.search(rf"\(.*?{symbol} = ([0-9.e+-]+)[;, )]", guarantee.statement)
                    assert told is not None
                    assert true * (1 - 1e-8) <= float(told[1].rstrip(",")) <= true * 1.001
    exact = Central(release="tree", epsilon=1.0).start(QUERY, Schedule(1000), Seeded(0)).guarantee
    assert "at most e^1 = 2.72 times what it was before (ε = 1, δ = 0)" in exact.statement


def test_an_open_ended_guarantee_says_how_its_epochs_are_noised() -> None:
    session = Central(release="tree", epsilon=1.0).start(QUERY, Schedule(None), Seeded(0))
    assert "epoch e" in session.guarantee.statement
    assert "batch" not in session.guarantee.statement


@pytest.mark.parametrize("leaf", ["user", "batch"])
@pytest.mark.parametrize("users", [2, 3, 5, 8, 9, 33, None])
@pytest.mark.parametrize("growth", [1.0, 1.5, 3.0])
def test_the_loss_of_every_user_over_all_releases_is_the_stated_epsilon(
    leaf: Any, users: int | None, growth: float
) -> None:
    """From what is drawn alone: which draws enter which release, each at which scale, whose sums differ.

    A release is the first n users' sum plus draws. Two neighbouring streams that differ at user k give
    equal outputs if the draws absorb her change: she costs |change| / b of every node that ends at
    or after her and begins before her. The session's own draws are recorded, not computed anew.
    """
    if users is None and growth != 1.0:
        return
    session = Central(release="tree", epsilon=1.0, leaf=leaf).start(
        QUERY, Schedule(users, growth=growth), Seeded(0)
    )
    by_user = leaf == "user" or users is None
    nodes: dict[int, tuple[float, np.ndarray]] = {}
    draw = session.channel.node_noise

    def recorded(end: int, factor: float, level: int = 0) -> Any:
        noise = draw(end, factor, level)
        assert end not in nodes  # drawn once
        nodes[end] = (factor, noise)
        return noise

    session.channel.node_noise = recorded  # type: ignore[method-assign]
    times = [0] if users is None else session.schedule.release_times.tolist()
    times = list(range(40)) if users is None else times
    active: list[set[int]] = []
    for i, n in enumerate(times):
        release = session.release()
        cells = QUERY.to_cells({name: e.value for name, e in release.estimates.items()})
        noise = cells - n * QUERY.to_cells(QUERY.contribution(LIFE))
        ends = {end for end, _ in tree_nodes(session.mechanism.walk, n if by_user else i)}
        np.testing.assert_allclose(
            noise, sum((nodes[end][1] for end in ends), np.zeros(cells.size)), atol=1e-7
        )
        active.append(ends)
        if i + 1 < len(times):
            come(session, times[i + 1] - n)
    joint = 12.0 / session.mechanism.scales[0]  # 6 H records' change over the scale, all families alike
    bounds = times if not by_user else list(range(times[-1] + 1))
    losses = np.zeros(times[-1])
    for end, (factor, _) in nodes.items():
        begin = min(
            (sorted(ends)[sorted(ends).index(end) - 1] if min(ends) < end else 0)
            for ends in active
            if end in ends
        )
        losses[bounds[begin] : bounds[end]] += joint / factor
    assert session.guarantee.epsilon == pytest.approx(1.0)
    if losses.size:
        assert losses.max() <= 1.0 + 1e-9
        assert math.isclose(losses[0], 1.0) or (by_user and growth > 1.0)
    assert all(a < b for a, b in pairwise(times))
