"""Nothing shares noise: cells, families, releases, people, blocks of one message; seeded and secure alike.

What is released is taken apart into single draws (:func:`discreet.audit.secure_noise.noise_table`) and each
pair of draws is compared in every run, by sign and by size. Each of at most 200 comparisons of tables gives a
false alarm with probability 5e-9 at most: 1e-6 in all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet.audit import linear_games as audit_linear
from discreet.audit import secure_noise as audit_secure
from discreet.audit.noise_model import expected_answer, scale_of
from discreet.audit.secure_noise import (
    NoiseTable,
    enough_runs,
    law_of_draws,
    noise_table,
    secure_box,
    sharing,
)
from discreet.core import count_channels as session
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.rng import Secure, SecureRng, Seeded
from discreet.device import count_device as counts
from discreet.device import linear_device as device
from discreet.learners.online.lsvi_ucb import LSVIUCB
from discreet.learners.online.ucrl_vtr import UCRLVTR, UCRLVTRPlus
from discreet.mechanisms.interfaces import Plan, Response, Schedule
from discreet.mechanisms.linear import linear_session
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.local import Local
from discreet.mechanisms.seeded_rng import SeededRng

ALARM = 5e-9
LAYOUT = Layout(2, 2, 2)
FULL = CountQuery(LAYOUT)  # visits, transitions, rewards: two families of one size and scale
SOURCES: dict[str, Callable[[int], Any]] = {
    "seeded": lambda run: Seeded(3, run),
    "secure": lambda run: Secure(),
}


def every_pair(table: NoiseTable) -> list[str]:
    """What shares noise, by sign (exact) and by size: |x| above its median agrees as nearly fair coins do."""
    assert table.single
    found = [f"{shared} {what}" for what, shared, _ in sharing(table, ALARM) if shared]
    # a lattice puts up to unit / 3 on the median: coins agree with probability 1/2 + 2 (unit / 6)^2 at most
    sizes = np.abs(table.draws)
    median = math.log(2) if table.laplace else float(stats.norm.isf(0.25))
    large = np.where(table.due, np.where(sizes > median, 1.0, -1.0), 0.0).reshape(len(sizes), -1)
    pairs = max(1, large.shape[1] * (large.shape[1] - 1) // 2)
    p = 0.5 + 2 * (float(table.units.max()) / 6) ** 2
    both = np.abs(large).T @ np.abs(large)
    agree = 0.5 * (both + np.abs(large.T @ large))  # as often alike, or unlike
    np.fill_diagonal(agree, 0.0)
    most = stats.binom.isf(ALARM / 2 / pairs, both.astype(int), p)
    if (agree > most).any():
        found.append(f"{int((agree > most).sum()) // 2} pairs of cells by size")
    return found


def table_of(privatizer: Any, query: Any, schedule: Any, source: str) -> NoiseTable:
    cells = query.cells * (3 if privatizer.trust == "local" else max(1, schedule.release_times.size - 1))
    made = noise_table(privatizer.start, query, schedule, SOURCES[source], enough_runs(cells, ALARM))
    assert made is not None
    return made


def honest(table: NoiseTable, cells: int, releases: int, discrete: bool) -> None:
    """All cells of all releases or messages are there, single draws, of their law, on their grid, apart."""
    assert table.draws.shape[1:] == (releases, cells)
    assert table.due.all()
    assert (table.units > 0).any() == discrete
    for _, p, _, off in law_of_draws(table, 1):
        assert p > ALARM / 4
        assert off == 0
    assert every_pair(table) == []


ANY = Schedule(4)
READS = Schedule(4, reads="measurements")
COUNTS = {
    "tree laplace": (Central(epsilon=0.5, release="tree"), ANY, "both"),
    "tree gaussian": (Central(mu=0.3, release="tree"), ANY, "both"),
    "optimal tree": (Central(mu=0.3, release="tree", tree_estimate="optimal"), ANY, "seeded"),
    "signed digits": (Central(epsilon=0.5, release="signed-digits", arity=3), ANY, "both"),
    "square root": (Central(mu=0.3, release="square-root"), ANY, "seeded"),
    "batches laplace": (Central(epsilon=0.5, release="batches"), ANY, "both"),
    "batches gaussian": (Central(mu=0.3, release="batches"), ANY, "both"),
    "decaying": (Central(mu=0.3, release="decaying"), ANY, "both"),
    "one release of stored people": (Central(mu=0.3), Schedule.one_shot(5), "both"),
    "local laplace": (Local(epsilon=0.5, randomizer="laplace"), ANY, "both"),
    "local gaussian": (Local(mu=0.3), ANY, "both"),
}
CASES = [(name, source) for name, (*_, of) in COUNTS.items() for source in SOURCES if of in ("both", source)]


@pytest.mark.parametrize(("name", "source"), CASES)
def test_counts_share_no_noise(name: str, source: str) -> None:
    privatizer, schedule, _ = COUNTS[name]
    table = table_of(privatizer, FULL, schedule, source)
    releases = 2 if privatizer.trust == "local" else schedule.release_times.size - 1
    # in fixed point the grid is 2^-20, too fine to be told
    honest(table, FULL.cells, releases, source == "secure" and "decaying" not in name)


@pytest.mark.parametrize("source", SOURCES)
def test_families_beside_the_steps_share_no_noise(source: str) -> None:
    """Counts pooled over steps, and rewards up to a cut."""
    pooled = CountQuery(LAYOUT, visits=False, center_rewards=True, pooled="first")
    privatizer = Central(mu=0.3, release="batches")
    honest(table_of(privatizer, pooled, READS, source), pooled.cells, 3, source == "secure")


def test_group_returns_share_no_noise() -> None:
    groups = CountQuery(LAYOUT, visits=False, center_rewards=True, groups=3, clip=2.0)
    honest(table_of(Central(mu=0.3, release="batches"), groups, READS, "seeded"), groups.cells, 3, False)


LINEAR = {
    "vtr": (UCRLVTR(known_rewards=False), Central(mu=0.3, release="batches")),
    "vtr, tree": (UCRLVTR(), Central(epsilon=0.5, release="tree")),
    "vtr+": (UCRLVTRPlus(), Central(mu=0.3, release="batches")),
    "lsvi": (LSVIUCB(), Central(mu=0.3, release="batches")),
    "vtr, local": (UCRLVTR(), Local(mu=0.3)),
    "vtr+, local laplace": (UCRLVTRPlus(), Local(epsilon=0.5)),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", LINEAR)
def test_linear_sums_and_messages_share_no_noise(name: str, source: str) -> None:
    """Gram matrices, responses, steps: the blocks of one release, and of one device's message."""
    learner, privatizer = LINEAR[name]
    game = audit_linear.game_of(learner, 4, privatizer.budget)
    assert game is not None
    query, schedule = learner.query(game.spec), learner.schedule(game.spec)
    table = table_of(privatizer, query, schedule, source)
    releases = table.draws.shape[1]
    assert releases >= 2
    honest(table, query.cells, releases, bool((table.units > 0).any()))


# ------------------------------------------------------------------- what has no table of its own
def as_table(draws: Any, laplace: bool, blocks: int = 1) -> NoiseTable:
    """(runs, T, cells) draws in units of their scale."""
    draws = np.asarray(draws)
    offsets = tuple(np.linspace(0, draws.shape[2], blocks + 1).astype(int).tolist())
    due, units = np.ones(draws.shape[1:], bool), np.zeros(draws.shape[2])
    return NoiseTable(draws, due, units, tuple(map(str, range(blocks))), offsets, laplace, True)


@pytest.mark.parametrize("source", SOURCES)
def test_steps_of_a_stored_release_share_no_noise(source: str) -> None:
    """Read step by step, each drawn when it is read."""
    rows, query = [], CountQuery(LAYOUT, center_rewards=True)
    for run in range(enough_runs(32, ALARM)):
        with Central(mu=0.3).stored(query, SOURCES[source](run)) as made:
            made.absent(3)
            visits, moves, rewards = made.mechanism.scales.tolist()
            steps: list[Any] = list(made.release())
        rows.append(
            [
                np.concatenate([s.visits / visits, s.transitions.ravel() / moves, s.rewards / rewards])
                for s in steps
            ]
        )
    table = as_table(rows, laplace=False)
    assert table.draws.shape[1:] == (2, 16)
    assert every_pair(dataclasses.replace(table, units=np.full(16, 0.2))) == []


@pytest.mark.parametrize("source", SOURCES)
def test_batches_with_their_own_questions_share_no_noise(source: str) -> None:
    schedule = Schedule(6, np.array([0, 2, 4, 6]), final=True, queries=(FULL,) * 3)
    rows = []
    for run in range(enough_runs(3 * FULL.cells, ALARM)):
        made: Any = Central(mu=0.3).start(FULL, schedule, SOURCES[source](run))
        made.release()
        out = []
        for _ in range(3):
            made.begin(Plan(np.zeros((2, 2), np.int64), 2))
            made.absent(2)
            estimates = made.release().estimates
            out.append(np.concatenate([e.value.ravel() / e.law.std() for e in estimates.values()]))
        made.close()
        rows.append(out)
    table = as_table(rows, laplace=False)
    assert every_pair(dataclasses.replace(table, units=np.full(FULL.cells, 0.2))) == []


@pytest.mark.parametrize("source", SOURCES)
def test_answers_share_no_noise_with_each_other_or_the_sums(source: str) -> None:
    """LSVI that asks stored people again: Gram matrices, and an answer for each step after each release."""
    learner, privatizer = LSVIUCB(response="requery"), Central(mu=0.3, release="batches")
    game = audit_linear.game_of(learner, 3, privatizer.budget)
    assert game is not None
    query, schedule = learner.query(game.spec), learner.schedule(game.spec)
    times = schedule.release_times[1:].tolist()
    values, rows = audit_linear.values_of(query), []
    for run in range(enough_runs(200, ALARM)):
        made: Any = privatizer.start(query, schedule, SOURCES[source](run))
        made.release()
        came, before, out = 0, np.zeros(query.cells), []
        for time in times:
            made.begin(audit_secure._plan(query, schedule, time - came))
            made.absent(time - came)
            came = time
            now = audit_secure.readings(query, [made.release()]).values[0]
            out.append(
                (now - before)
                / np.repeat(
                    query.block_scales(made.mechanism.scales, made.mechanism.noise), np.diff(query.offsets)
                )
            )
            before = now
            for h in reversed(range(query.steps)):
                high = float(query.layout.horizon - h - (not query.rewards))
                question = Response(h, values[h + 1], (0.0, high))
                answer = made.answer(question)
                assert not expected_answer(query, question, []).any()
                out.append(answer.value / scale_of(answer))
        made.close()
        rows.append(np.concatenate(out)[None])
    table = as_table(rows, laplace=False)
    assert table.draws.shape[2] > query.cells * len(times)
    assert every_pair(table) == []


# -------------------------------------------------------------------------------- shared noise is found
def twins(query: Any, mechanism: Any, factor: float, coins: Any, scales: Any = None) -> Any:
    """One secure vector for families of equal size and scale, as a cache by (scale, size) would have it."""
    scales, kept, parts = mechanism.scales if scales is None else scales, {}, []
    draw = coins.laplace if mechanism.family == 1 else coins.normal
    for name, scale, size in zip(query.row_families, scales, np.diff(query.offsets), strict=True):
        key = (float(scale), int(size))
        if key not in kept or not coins.exact:
            kept[key] = draw(factor * float(scale), int(size), mechanism.grid(name))
        parts.append(kept[key])
    return np.concatenate(parts)


def device_twins(family: str, scales: Any, offsets: Any, coins: Any, grids: Any, factor: float = 1.0) -> Any:
    """The same on a device."""
    kept: dict[Any, Any] = {}
    draw, parts = (coins.laplace if family == "laplace" else coins.normal), []
    for scale, size, grid in zip(scales, np.diff(offsets), grids, strict=True):
        key = (float(scale), int(size))
        if key not in kept or not coins.exact:
            kept[key] = draw(factor * float(scale), int(size), grid)
        parts.append(kept[key])
    return np.concatenate(parts)


def shared_by(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secure draws that are used again: by the next release, the next person, or by neighbouring cells."""
    kept: dict[Any, Any] = {}

    def again(fresh: Any, coins: Any) -> Any:
        if not coins.exact:
            return fresh
        if way == "half of a family":
            fresh[1:8:2] = -fresh[0:8:2]  # mirrored: their sizes agree, and their signs never do
            return fresh
        before = kept.pop(fresh.size, None)
        kept[fresh.size] = fresh if before is None else None
        return fresh if before is None else before

    of_server, of_device = session.noise_vector, counts.drawn
    monkeypatch.setattr(session, "noise_vector", lambda *given: again(of_server(*given), given[3]))
    monkeypatch.setattr(counts, "drawn", lambda *given: again(of_device(*given), given[3]))


SECURE = ["tree laplace", "batches gaussian", "signed digits", "local laplace", "local gaussian"]


@pytest.mark.parametrize("name", SECURE)
def test_twin_families_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the table of all draws, and by the audit, whose seeded noise is right."""
    monkeypatch.setattr(session, "noise_vector", twins)
    monkeypatch.setattr(counts, "drawn", device_twins)
    privatizer, schedule, _ = COUNTS[name]
    found = every_pair(table_of(privatizer, FULL, schedule, "secure"))
    assert any("pairs of cells" in one for one in found)
    assert any("pairs of blocks" in one for one in found)
    assert every_pair(table_of(privatizer, FULL, schedule, "seeded")) == []
    assert [one.passed for one in secure_box(privatizer.start)] == [True, False]


@pytest.mark.parametrize("way", ["two releases or people", "half of a family"])
@pytest.mark.parametrize("name", ["batches gaussian", "local laplace"])
def test_draws_that_are_used_again_are_found(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_by(way, monkeypatch)
    privatizer, schedule, _ = COUNTS[name]
    assert every_pair(table_of(privatizer, FULL, schedule, "secure"))
    assert {one.passed for one in secure_box(privatizer.start)} == {False}


@pytest.mark.parametrize("name", ["vtr", "vtr, local"])
def test_blocks_of_one_linear_message_that_share_noise_are_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = device.drawn

    def shared(family: Any, scales: Any, offsets: Any, coins: Any, *rest: Any) -> Any:
        noise = right(family, scales, offsets, coins, *rest)
        if getattr(coins, "exact", True):
            sizes = np.diff(offsets)
            for f in range(1, sizes.size):
                if sizes[f] == sizes[0]:
                    part = noise[offsets[0] : offsets[1]] * (scales[f] / scales[0])
                    noise[offsets[f] : offsets[f + 1]] = np.round(part)
        return noise

    for module in (device, linear_session):
        monkeypatch.setattr(module, "drawn", shared)
    learner, privatizer = LINEAR[name]
    found = secure_box(privatizer.start, learner, budget=privatizer.budget)
    assert [one.passed for one in found] == [False]


def test_half_the_secure_noise_and_a_lost_grid_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = session.noise_vector
    start = Central(mu=0.3, release="batches").start

    def wrong(*given: Any, share: float, off: float) -> Any:
        return np.round(share * right(*given)) + off

    monkeypatch.setattr(session, "noise_vector", partial(wrong, share=0.5, off=0.0))
    assert [one.passed for one in secure_box(start)] == [False, False]
    monkeypatch.setattr(session, "noise_vector", partial(wrong, share=1.0, off=1e-3))
    with pytest.raises(RuntimeError, match="a sum is not a multiple of 1 / "):
        secure_box(start)


def test_what_refuses_exact_noise_is_said() -> None:
    for one in secure_box(Central(mu=1.0, release="square-root").start):
        assert one.passed is None
        assert one.found.startswith("refused: release = 'square-root'")
    assert all(one.passed is None for one in secure_box(Local(epsilon=1.0, randomizer="subset").start))


def test_devices_in_bytes_draw_once_for_every_cell_of_every_message() -> None:
    """What a device of a local linear session writes by the system's own coins, two messages a run."""
    learner, privatizer = UCRLVTR(), Local(mu=0.3)
    game = audit_linear.game_of(learner, 4, privatizer.budget)
    assert game is not None
    query, rows = learner.query(game.spec), []
    plan = audit_secure._plan(query, learner.schedule(game.spec), 1)
    life = audit_secure._life(query.layout)
    for _ in range(enough_runs(2 * query.cells, ALARM)):
        made: Any = privatizer.start(query, learner.schedule(game.spec), Secure())
        made.release()
        out = []
        own = query.to_cells(query.user_tables(query.prepared(plan.context), life, made.mechanism.grid))
        for number in (1, 2):
            made.begin(plan)
            own_device = made.device
            data = own_device(number, plan.context, life.states, life.actions, life.rewards)
            _, noisy = own_device.read(number, data)
            out.append((noisy - own) / np.repeat(own_device.scales, np.diff(own_device.offsets)))
            made.absent()
            made.release()
        made.close()
        rows.append(out)
    assert every_pair(as_table(rows, laplace=False)) == []


def test_coins_of_two_devices_are_two_streams() -> None:
    """Of one run, users 0 and 1, and of one user, calls after another."""
    key, rows = Seeded(4).keys.noise, []
    for user in range(0, 120, 2):
        one, two = SeededRng(key, user), SeededRng(key, user + 1)
        rows.append([np.concatenate([c.normal(1.0, 8), c.laplace(1.0, 8)]) for c in (one, two)])
    assert every_pair(as_table(rows, laplace=False)) == []
    exact = [[np.concatenate([SecureRng().normal(9.0, 8, 1) for _ in range(2)]) / 9.0] for _ in range(60)]
    assert every_pair(dataclasses.replace(as_table(exact, False), units=np.full(16, 1 / 9))) == []
