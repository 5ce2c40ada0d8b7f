r"""Tests of the noise in a session's releases: its distribution, its grid, and the independence of its draws.

Secure noise has no seed, so two sessions never have equal noise. With a trusted server, all users are marked
as absent, so that releases consist of noise only. :func:`noise_table` decomposes releases into single draws
by the mixing matrix that the mechanism claims (:mod:`discreet.audit.noise_model`). With local noise, the
draws are messages minus the contribution of the record.

The checks of draws in units of the claimed scale are:

- All draws are on their public grid.
- The draws have the discrete distribution of the claimed scale. The Kolmogorov-Smirnov test is applied to
  randomized probability integral transforms, which are then uniform.
- No two cells share noise, within or between families, releases and messages. Signs of independent draws
  agree as often as fair random bits do.
- No block shares noise with another block of the same size, cell by cell. A block is a family in one release
  or message.

The checks are made for the learner's query, and for a query whose families have equal sizes and scales.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from discreet.audit import linear_games as audit_linear
from discreet.audit.black_box import ALARM, Start, claimed_noise, reactive, uniform
from discreet.audit.noise_model import AuditQuery, expected, families_of, readings, whitened
from discreet.audit.white_box import Identity, agreeing
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Plan, Schedule
from discreet.core.rng import Randomness, Secure, SecureRng
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Budget, ProblemSpec
from discreet.mechanisms.linear.linear_queries import LinearQuery
from discreet.mechanisms.open_session import mechanism_reused
from discreet.mechanisms.seeded_rng import SeededRng

_LAYOUT = Layout(3, 2, 4)
# Grid spacing as a share of the noise scale. Tests cannot distinguish a finer grid from a continuous
# distribution.
_FINEST = 1e-4
_NO_DRAW = 1e-9  # Smallest draw as a share of the noise scale. A smaller value is 0 with a rounding error.


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """Single draws of noise, recovered from releases or messages.

    Parameters
    ----------
    draws : (runs, T, cells) draws in units of the claimed scale. T is the number of releases or messages
    due : (T, cells) mask of cells that have noise
    units : (cells,) grid spacing in the same units; 0 for continuous noise
    families, offsets : names and positions of the parts that have separate scales
    laplace : True for Laplace noise, False for Gaussian noise
    single : False if each entry is a sum of several draws. Such entries are only uncorrelated
    """

    draws: Floats
    due: NDArray[np.bool_]
    units: Floats
    families: tuple[str, ...]
    offsets: tuple[int, ...]
    laplace: bool
    single: bool


def _plan(query: AuditQuery, schedule: Schedule, users: int) -> Plan:
    layout = query.layout
    policy: Any = uniform(layout)
    if schedule.plans == "deterministic":
        policy = policy.argmax(axis=-1)
    if isinstance(query, LinearQuery):
        return Plan(policy, users, audit_linear.context_of(query, audit_linear.values_of(query)))
    return Plan(policy, users, group=0 if query.groups else None)


def _life(layout: Layout) -> Trajectory:
    action = 0 if layout.mask is None else int(np.flatnonzero(layout.mask[0])[0])
    h = layout.horizon
    return Trajectory(np.zeros(h + 1, np.int64), np.full(h, action), np.full(h, 0.25))


def _units(session: Any, query: AuditQuery, scales: Floats) -> Floats:
    """Return the (cells,) grid spacing of the noise in units of a draw's scale. 0 for continuous noise."""
    mechanism, walk = session.mechanism, getattr(session.mechanism, "walk", None)
    factor = 1.0 if walk is None else walk.draw_scale
    if isinstance(query, LinearQuery):
        found = (
            np.zeros(scales.size) if mechanism.grid is None else query.block_units(mechanism.grid) / scales
        )
    else:
        grids = [mechanism.grid(name) for name in query.row_families]
        found = np.array(
            [
                0.0 if g is None else 1.0 / (g * s * mechanism.noise_factor * factor)
                for g, s in zip(grids, scales, strict=True)
            ]
        )
    return np.repeat(np.where(found > _FINEST, found, 0.0), np.diff(query.offsets))


def noise_table(
    start: Start, query: AuditQuery, schedule: Schedule, source: Callable[[int], Randomness], runs: int
) -> NoiseTable | None:
    """Return the draws of noise in ``runs`` sessions. Session r has the random source ``source(r)``.

    The result is None if no noise of a known distribution is claimed. Raises ``ValueError`` if the privatizer
    rejects the query, the schedule or the source.
    """
    times, start = [int(time) for time in schedule.release_times if time > 0], mechanism_reused(start)
    session: Any = start(query, schedule, cast(Any, source(0)))
    local = session.guarantee.trust == "local"
    session.release()
    noise = claimed_noise(session, query, times)
    session.close()
    if noise is None or (noise.mixings is None and not noise.measured):
        return None
    take = _messages if local else _releases
    taken = [take(start, query, schedule, source(run), times, noise) for run in range(runs)]
    draws = np.array([draw for draw, _ in taken])
    return NoiseTable(
        draws, taken[0][1], _units(session, query, noise.scales), tuple(families_of(query)),
        tuple(query.offsets.tolist()), noise.laplace, local or noise.square or not noise.laplace,
    )  # fmt: skip


def _releases(
    start: Start, query: AuditQuery, schedule: Schedule, source: Any, times: Sequence[int], noise: Any
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return (draws, due) of the releases of one session in which all users are absent."""
    session, came, made = start(query, schedule, source), 0, []
    session.release()
    for time in times:
        session.begin(_plan(query, schedule, time - came))
        session.absent(time - came)
        came = time
        made.append(session.release())
    session.close()
    read = readings(query, made)
    empty = expected(read, np.zeros_like(read.values))
    if read.measured and not (isinstance(query, CountQuery) and query.steered):
        # The stated standard deviation does not give the scale, because a discrete distribution has a
        # slightly different one.
        scales = np.repeat(noise.scales, np.diff(query.offsets))
        return np.where(read.due, (read.values - empty) / scales, 0.0), read.due
    return whitened(noise, query, read, read.values - empty), read.due


def _messages(
    start: Start, query: AuditQuery, schedule: Schedule, source: Any, times: Sequence[int], noise: Any
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return (draws, due) of one session in which devices add the noise.

    The draws are the messages before the second release minus the contributions of their records.
    """
    session: Any = start(query, schedule, source)
    session.release()
    life, user, out = _life(query.layout), 0, []
    for time in times[:2]:
        encoder = session.begin(_plan(query, schedule, time - user))
        plan = session.open_plan
        for _ in range(time - user):
            secure = isinstance(source, Secure)
            report = encoder(life, plan, SecureRng() if secure else SeededRng(source.keys.noise, user))
            message = np.asarray(report.message, np.float64)
            if isinstance(query, LinearQuery):
                grid = session.mechanism.grid
                own = query.to_cells(query.user_tables(query.prepared(plan.context), life, grid))
                units = np.ones(noise.scales.size) if grid is None else query.block_units(grid)
            else:
                own, units = query.to_cells(query.contribution(life)), np.ones(noise.scales.size)
            out.append((message - own) * np.repeat(units / noise.scales, np.diff(query.offsets)))
            session.submit(report)
            user += 1
        session.release()
    session.close()
    return np.array(out), np.ones((len(out), query.cells), bool)


# ----------------------------------------------------------------------------------- tests of draws
def _lattice_law(laplace: bool, unit: float) -> tuple[Floats, Floats]:
    """Return integers k and the probabilities of k * ``unit`` under the discrete distribution of scale 1."""
    x = np.arange(-math.ceil(40 / unit), math.ceil(40 / unit) + 1) * unit
    weights = np.exp(-np.abs(x)) if laplace else np.exp(-0.5 * x**2)
    return np.round(x / unit), weights / weights.sum()


def law_of_draws(table: NoiseTable, seed: int) -> list[tuple[str, float, float, int]]:
    """Test whether the draws of each family have the claimed distribution.

    A result is (family, p-value, standard deviation divided by the claimed standard deviation, number of
    draws that are not on the grid).

    The p-value is that of the Kolmogorov-Smirnov test of randomized probability integral transforms.
    """
    luck, out = np.random.default_rng(seed), []
    law = stats.laplace() if table.laplace else stats.norm()
    for f, name in enumerate(table.families):
        part = slice(table.offsets[f], table.offsets[f + 1])
        drawn = table.draws[:, :, part][:, table.due[:, part]].ravel()
        if not drawn.size:
            continue
        unit, off = float(table.units[table.offsets[f]]), 0
        if unit:
            x = np.round(drawn / unit)
            off = int((np.abs(drawn - x * unit) > 1e-6 * unit + 1e-9 * np.abs(drawn)).sum())
            places, masses = _lattice_law(table.laplace, unit)
            below = np.concatenate([[0.0], np.cumsum(masses)])
            at = np.clip(x - places[0], 0, places.size - 1).astype(np.int64)
            uniforms = below[at] + luck.random(x.size) * masses[at]
        else:
            uniforms = law.cdf(drawn)
        p = float(stats.kstest(uniforms, "uniform").pvalue)
        out.append((name, p, float(drawn.std() / law.std()), off))
    return out


def sharing(table: NoiseTable, alarm: float) -> list[tuple[str, int, int]]:
    """Count the pairs of cells and the pairs of blocks that share noise.

    An entry of the result is (kind of pair, number of pairs that share noise, number of all pairs), over all
    releases or messages. Two cells share noise if their signs agree, or disagree, too often. Two blocks of
    equal size (a block is a family in one release or message) are compared cell by cell, which also detects
    partly shared noise. Each of the two tests gives a false alarm with probability at most alarm / 2. The
    result is empty if entries are sums of several draws.
    """
    runs, times, cells = table.draws.shape
    kept = table.due & (np.abs(table.draws) > _NO_DRAW)  # smaller values are draws of 0 with a rounding error
    signs = np.sign(np.where(kept, table.draws, 0.0)).astype(np.float32)
    if not table.single:
        return []
    flat = signs.reshape(runs, times * cells)
    shown = np.abs(flat)
    pairs = max(1, flat.shape[1] * (flat.shape[1] - 1) // 2)
    shared = agreeing(flat.T @ flat, shown.T @ shown, alarm / 4 / pairs)
    blocks = [
        signs[:, t, table.offsets[f] : table.offsets[f + 1]]
        for t in range(times)
        for f in range(len(table.families))
    ]
    alike = [(a, b) for a, b in itertools.combinations(blocks, 2) if a.shape == b.shape]
    found = 0
    for one, other in alike:
        product = one * other
        number = int(np.abs(product).sum())
        most = 2 * stats.binom.isf(alarm / 4 / len(alike), number, 0.5) - number
        found += bool(abs(float(product.sum())) > most)
    return [("pairs of cells", shared, pairs), ("pairs of blocks", found, len(alike))]


def enough_runs(cells: int, alarm: float) -> int:
    """Return the number of sessions needed to detect two cells with equal noise."""
    pairs = max(1.0, cells * (cells - 1) / 2)
    return math.ceil(1.3 * (1 + math.log2(4 * pairs / alarm))) + 4


# ---------------------------------------------------------------------------------------- the whole
def secure_box(
    start: Start,
    learner: Any = None,
    users: int = 4,
    seed: int = 1,
    alarm: float = ALARM,
    budget: Budget | None = None,
) -> list[Identity]:
    """Run the tests of secure noise that the module docstring lists, and return their results.

    The sizes are S = 3, A = 2 and H = 4. Linear learners are tested in the game of
    :mod:`discreet.audit.linear_games` with H = 2.

    Parameters
    ----------
    users : number of users in each session
    seed : seed of the random numbers in the tests. The noise has no seed
    alarm : probability of a false alarm in any of the tests
    budget : budget of the privatizer
    """
    learner = learner or reactive(start)
    linear = audit_linear.game_of(learner, users, budget)
    spec = ProblemSpec(_LAYOUT, users) if linear is None else linear.spec
    query, schedule = learner.query(spec), learner.schedule(spec)
    asked: list[tuple[str, AuditQuery]] = [("", query)]
    if isinstance(query, CountQuery) and not query.steered:
        full = dataclasses.replace(query, visits=True, center_rewards=False)
        asked.append((" (visits and rewards asked too)", full))
    out: list[Identity] = []
    for words, one in asked:
        if words and families_of(one) == families_of(query):
            continue
        out += _of_question(start, one, schedule, words, seed, alarm / len(asked))
    return out


def _of_question(
    start: Start, query: AuditQuery, schedule: Schedule, words: str, seed: int, alarm: float
) -> list[Identity]:
    name = f"exact noise is on its grid, has the claimed law and is shared by nothing{words}"
    number = max(1, len(schedule.release_times) - 1)
    try:
        cast(Any, start)(query, schedule, Secure()).close()
    except ValueError as error:
        return [Identity(name, None, f"refused: {error}")]
    runs = enough_runs(query.cells * number, alarm / 2)
    table = noise_table(start, query, schedule, lambda run: Secure(), runs)
    if table is None:
        return [Identity(name, None, "no noise of a known law is claimed under secure randomness")]
    wrong, worst = [], 1.0
    laws = law_of_draws(table, seed) if table.single else []
    for family, p, ratio, off in laws:
        worst = min(worst, p)
        if p <= alarm / (2 * len(laws)):
            wrong.append(f"{family}: std {ratio:.4f} of the claimed, p = {p:.2g}")
        if off:
            wrong.append(f"{family}: {off} draws off their grid")
    pairs = sharing(table, alarm / 2)
    wrong += [f"{shared} of {of} {what} share noise" for what, shared, of in pairs if shared]
    silent = int(((table.draws == 0).all(axis=0) & table.due).sum())
    if silent:
        wrong.append(f"{silent} cells were released without noise")
    said = ", ".join(f"{of} {what}" for what, _, of in pairs) or "sums of several draws, not compared"
    said = f"{table.draws.shape[0]} sessions, {said}, least p = {worst:.2g}"
    return [Identity(name, not wrong, "; ".join(wrong) or said)]
