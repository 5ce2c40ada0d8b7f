r"""White-box audits: tests of identities that the sessions of every privatizer must satisfy.

An audit compares two sessions with the same seed whose data differ in one user's record. The noise of the two
sessions is equal, so their difference is the exact effect of the record. The matrix B_f maps
independent noise of scale 1 to the noise in the releases of family f (:mod:`discreet.audit.noise_model`). The
vector u_k is the effect of a unit change of user k's record on the releases. With Gaussian noise, the loss of
user k in family f is the change times the l2 norm of B_f^+ u_k. With Laplace noise, it is the change times
the least ||s||_1 with B_f s = u_k. The largest loss over users and changes must not exceed the claimed loss.
Whitened residuals B_f^-1 (release - sums) must have the claimed distribution, and must be independent across
cells and releases.

Devices with randomized response are run on all outcomes of their random bits at a small size
(:mod:`discreet.audit.local_output_law`), and on seeded random bits at full size.

An audit that passes has found no error of the kinds that its tests can detect. It is not a certificate.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from discreet.accounting import pld as numerical
from discreet.audit import linear_games as audit_linear
from discreet.audit import local_output_law as audit_reports
from discreet.audit.black_box import (  # fmt: skip
    ALARM,
    SLACK,
    Game,
    People,
    Restart,
    Start,
    claimed_noise,
    noisy_numbers,
    play,
    public_numbers,
    reactive,
    uniform,
)
from discreet.audit.noise_model import (  # fmt: skip
    AnsweredQuery,
    Noise,
    Readings,
    expected,
    expected_answer,
    families_of,
    readings,
    scale_of,
    stated_stds,
    summand,
    whitened,
)
from discreet.core import checks
from discreet.core.families import TRANSITIONS
from discreet.core.layout import Layout
from discreet.core.releases import Floats, Message, Plan, Release, Schedule
from discreet.core.rng import Seeded
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import Budget, ProblemSpec, Session
from discreet.mechanisms.linear.linear_queries import LinearQuery
from discreet.mechanisms.local import randomized_response as local_reports
from discreet.mechanisms.local.randomized_response import ReportEncoder
from discreet.mechanisms.open_session import mechanism_reused
from discreet.mechanisms.query_queue import Response
from discreet.mechanisms.seeded_rng import SeededRng


@dataclass(frozen=True)
class Identity:
    """Result of the test of one identity, with a text that states the measured and the allowed value.

    ``passed`` is None if the identity does not apply.
    """

    name: str
    passed: bool | None
    found: str

    def __str__(self) -> str:
        word = {True: "passed", False: "FAILED", None: "not applicable"}[self.passed]
        return f"{self.name}: {word} ({self.found})"


# ------------------------------------------------------------------------------- fixed trajectories
def _life(layout: Layout, states: Sequence[int], action: int, reward: Sequence[float]) -> Trajectory:
    """Return a trajectory that cycles through ``states`` and ``reward``.

    action : index of the action to take, among the admissible actions of each state.
    """
    path = np.resize(np.asarray(states, np.int64), layout.horizon + 1)
    actions = np.array([_nth(layout, s, action) for s in path[:-1].tolist()], np.int64)
    return Trajectory(path, actions, np.resize(np.asarray(reward, np.float64), layout.horizon))


def _nth(layout: Layout, state: int, action: int) -> int:
    """Return the admissible action with index ``action`` in a state, or the last one if there are fewer."""
    row = _admissible(layout, state)
    return int(row[min(action, len(row) - 1)])


def _admissible(layout: Layout, state: int) -> Any:
    return np.flatnonzero(np.ones(layout.actions) if layout.mask is None else layout.mask[state])


@lru_cache(maxsize=4)  # the same trajectories are used several times
def _random_lives(layout: Layout, seed: int, number: int) -> tuple[Trajectory, ...]:
    luck = np.random.default_rng(seed)
    return tuple(_random_life(layout, luck) for _ in range(number))


def _random_life(layout: Layout, luck: np.random.Generator) -> Trajectory:
    h = layout.horizon
    states = luck.integers(layout.states, size=h + 1)
    rewards = luck.random(h) if luck.random() < 0.5 else luck.integers(2, size=h).astype(np.float64)
    actions = np.array([luck.choice(_admissible(layout, s)) for s in states[:-1].tolist()], np.int64)
    return Trajectory(states, actions, rewards)


_EVERY, _FIRST, _LAST = None, 0, 10**6  # Policies of releases: uniform, first action, last action.
_CYCLE = (_EVERY, _FIRST, _LAST, _LAST)
_SHARES = (None, 0.3, 0.6)
_FORGETS = (2, 5)  # Releases of a query with groups. After these releases, earlier batches are forgotten.
# Values of C at successive releases, as shares of the range of C. Infinity means centred rewards.
_CUTS = (0.0, 0.5, 0.5, 1.0, math.inf)


@dataclass(frozen=True, eq=False)
class _PrivatizerBench:
    """Sessions of one privatizer with fixed trajectories and alternating policies."""

    start: Start
    query: Any
    schedule: Schedule
    seed: int

    @property
    def times(self) -> list[int]:
        return [int(time) for time in self.schedule.release_times if time > 0]

    def session(self, run: int = 0) -> Session:
        return self.start(self.query, self.schedule, Seeded(self.seed, run))

    def plan(self, release: int, users: int) -> Plan:
        """Return the plan for the users of the batch before the release with index ``release``."""
        layout, which = self.query.layout, _CYCLE[release % len(_CYCLE)]
        if which is None:
            policy: Any = uniform(layout)
        else:
            row = [_nth(layout, s, which) for s in range(layout.states)]
            policy = np.tile(np.array(row, np.int64), (layout.horizon, 1))
        if self.schedule.plans == "deterministic" and which is None:
            return dataclasses.replace(self.plan(release + 1, users), cut=self.cut(release))
        if self.schedule.plans == "stochastic" and which is not None:
            policy = np.eye(layout.actions)[policy]
        if getattr(self.query, "cut", 0.0):
            return Plan(policy, users=users, cut=self.cut(release))
        if not getattr(self.query, "groups", 0):
            return Plan(policy, users=users)
        share = _SHARES[release % len(_SHARES)]
        group, forget = release % self.query.groups, release in _FORGETS
        return Plan(policy, users=users, group=group, return_share=share, forget=forget)

    def life(self, release: int, states: Sequence[int], reward: Sequence[float]) -> Trajectory:
        """Return a trajectory through ``states`` that follows the policy of the given release."""
        return _life(self.query.layout, states, _CYCLE[release % len(_CYCLE)] or 0, reward)

    def batch(self, user: int) -> int:
        """Return the index of the first release that contains a user. Users are counted from 0."""
        return int(np.searchsorted(np.array(self.times), user, side="right"))

    def lives(self, moved: int | None = None) -> list[Trajectory]:
        """Return one trajectory per user. All users except user ``moved`` (from 0) stay in the same state."""
        return [self.moving(user) if user == moved else self.still(user) for user in range(self.times[-1])]

    def still(self, user: int) -> Trajectory:
        return self.life(self.batch(user), [0], [0.25])

    def moving(self, user: int) -> Trajectory:
        return self.life(self.batch(user), [self.query.layout.states - 1], [1.0])

    def releases(self, lives: Sequence[Trajectory], run: int = 0, before: Any = None) -> list[Release]:
        """Run a session on these trajectories, and return all releases except the first.

        ``before(session, encoder, plan)`` is called before the first user's record is submitted.
        """
        session, came, out = self.session(run), 0, []
        session.release()
        key = Seeded(self.seed, run).keys.noise
        for release, time in enumerate(self.times):
            plan = self.plan(release, time - came)
            encoder = session.begin(plan)
            plan = getattr(session, "open_plan", plan)
            for user in range(came, time):
                if before is not None and user == 0:
                    before(session, encoder, plan)
                session.submit(encoder(lives[user], plan, SeededRng(key, user)))
            came = time
            out.append(session.release())
        session.close()
        return out

    def cut(self, release: int) -> float | None:
        """Return the clipping threshold for the users before this release, or None without clipping.

        The threshold increases with the release. In the last releases it is infinite.
        """
        if not getattr(self.query, "cut", 0.0):
            return None
        first, share = self.query.cut, _CUTS[min(release, len(_CUTS) - 1)]
        return share if math.isinf(share) else float(first + share * (self.query.layout.horizon - first))

    def cells(self, life: Trajectory, release: int = 0) -> Floats:
        """Return the contribution of a trajectory that is submitted in the batch before this release."""
        group = release % max(1, self.query.groups)
        return self.query.to_cells(self.query.contribution(life, group, self.cut(release)))

    def sums(self) -> Floats:
        """Return the (T, cells) exact sums of each batch if all users stay in one state."""
        out = np.zeros((len(self.times), self.query.cells))
        for user in range(self.times[-1]):
            out[self.batch(user)] += self.cells(self.still(user), self.batch(user))
        return out

    def read(self, releases: Sequence[Release]) -> Readings:
        return readings(self.query, releases)

    def ends(self) -> list[tuple[Trajectory, Trajectory]]:
        """Return pairs of trajectories whose contributions differ by extreme amounts."""
        layout = self.query.layout
        last = layout.states - 1
        return [
            (_life(layout, a, x, r), _life(layout, b, y, q))
            for a, x, b, y in (
                ([0], 0, [last], 9),
                ([0], 0, [0], 9),
                ([0], 0, [0, last], 0),
                ([0, last], 0, [last, 0], 0),
            )
            for r, q in (([1.0], [1.0]), ([1.0], [0.0]), ([0.0], [1.0]), ([1.0, 0.0], [0.0, 1.0]))
        ]

    def pairs(self, number: int) -> list[tuple[Trajectory, Trajectory]]:
        """Return the extreme pairs of trajectories, followed by ``number`` random pairs."""
        lives = _random_lives(self.query.layout, self.seed, 2 * number)
        return [*self.ends(), *zip(lives[::2], lives[1::2], strict=True)]


@dataclass(frozen=True, eq=False)
class _LinearBench(_PrivatizerBench):
    """Sessions of a privatizer for linear sums. The first plan's context has the largest loss."""

    def context(self, release: int) -> dict[str, Floats]:
        values = audit_linear.values_of(self.query)
        found = audit_linear.context_of(self.query, values)
        if release:
            luck = np.random.default_rng([self.seed, release])
            top = values.max(axis=1, keepdims=True)
            found = {
                name: luck.random(array.shape) * (top if name == "values" else array)
                for name, array in found.items()
            }
        return found

    def plan(self, release: int, users: int) -> Plan:
        return dataclasses.replace(super().plan(release, users), context=self.context(release))

    def cells(self, life: Trajectory, release: int = 0) -> Floats:
        return summand(self.query, life, self.context(release))

    def ends(self) -> list[tuple[Trajectory, Trajectory]]:
        """Return pairs of trajectories whose contributions differ most at every step."""
        layout = self.query.layout
        return [
            (_life(layout, [a], 0, [r]), _life(layout, [b], 0, [q]))
            for a in range(layout.states)
            for b in range(a + 1)
            for r, q in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0))
        ]

    def asked(self, lives: Sequence[Trajectory], run: int = 0) -> tuple[list[Release], list[AnsweredQuery]]:
        """Run a session, and return its releases and the answers to queries with the largest loss."""
        query, session, came = self.query, self.session(run), 0
        values = audit_linear.values_of(query)
        releases: list[Release] = []
        found: list[AnsweredQuery] = []
        session.release()
        key = Seeded(self.seed, run).keys.noise
        for release, time in enumerate(self.times):
            encoder: Any = session.begin(self.plan(release, time - came))
            for user in range(came, time):
                session.submit(encoder(lives[user], session.open_plan, SeededRng(key, user)))  # type: ignore[attr-defined]
            came = time
            releases.append(session.release())
            if self.schedule.answers and release >= self.schedule.answers:
                continue
            for h in reversed(range(query.steps)):
                high = float(query.layout.horizon - h - (not query.rewards))
                question = Response(h, values[h + 1], (0.0, high))
                found.append(AnsweredQuery(question, time, session.answer(question)))
        session.close()
        return releases, found


def _changes(bench: _PrivatizerBench, pairs: int, release: int = 0) -> Floats:
    """Return the (n, cells) differences of contributions for extreme pairs and ``pairs`` random pairs."""
    return np.array(
        [bench.cells(one, release) - bench.cells(other, release) for one, other in bench.pairs(pairs)]
    )


# ------------------------------------------------------------------------------- effects of one user
def _responses(bench: _PrivatizerBench) -> tuple[Floats, list[str]]:
    """Return the (T, users) responses of the releases to a unit change of each user, and a list of faults."""
    users, times = bench.times[-1], np.array(bench.times)
    base = bench.releases(bench.lives())
    read, wrong = bench.read(base), []
    values, known = read.values, np.isfinite(read.scales)
    rounding = 1e-9 * (1 + float(np.abs(values).max()))
    matrix = np.zeros((len(times), users))
    for k in range(users):
        change = bench.cells(bench.moving(k), bench.batch(k)) - bench.cells(bench.still(k), bench.batch(k))
        touched = np.abs(change) > 1e-12
        other = bench.releases(bench.lives(k))
        moved = bench.read(other).values - values
        after = times > k
        if (moved[~after] != 0).any():
            wrong.append(f"user {k + 1} moves a release made before she came")
        if (np.abs(moved[:, ~touched]) > rounding).any():
            wrong.append(f"user {k + 1} moves cells that she does not touch")
        heard = known & touched  # cells are not compared if a release omits their family
        ratio = np.where(heard, moved / np.where(touched, change, 1.0), 0.0)
        mean = ratio.sum(axis=1) / np.maximum(1, heard.sum(axis=1))
        matrix[:, k] = np.where(after, mean, 0.0)
        if (np.abs(ratio - mean[:, None]) * heard > rounding / np.abs(change[touched]).min()).any():
            wrong.append(f"the cells of user {k + 1} move by different multiples of her change")
        if any(
            public_numbers(a).tobytes() != public_numbers(b).tobytes()
            for a, b in zip(base, other, strict=True)
        ):
            wrong.append(f"a weight, law or number of users depends on the data of user {k + 1}")
    return matrix, wrong


def _made_from(bench: _PrivatizerBench) -> Identity:
    """Check that sums are computed from measurements: P_i = (y_i + (1 - decay) sum_{j<i} y_j) / gain."""
    name = "sums are made from the measurements"
    before, off, largest = np.zeros(bench.query.cells), 0.0, 1.0
    for release in bench.releases(bench.lives()):
        made = release.measurement
        if made is None or not release.estimates:
            return Identity(name, None, "these releases do not hold both")
        fresh, sums = (
            bench.query.to_cells({n: e.value for n, e in part.items()})
            for part in (made.estimates, release.estimates)
        )
        expected = (fresh + (1.0 - made.decay) * before) / made.gain
        off, largest = max(off, float(np.abs(expected - sums).max())), max(largest, float(np.abs(sums).max()))
        before = before + fresh
    return Identity(name, off <= 1e-9 * largest, f"largest difference {off:.2g}")


def _least_l1(mixing: Floats, response: Floats) -> float:
    """Return the least ||s||_1 over all s with mixing @ s = response."""
    m = mixing.shape[1]
    found = optimize.linprog(
        np.ones(2 * m), A_eq=np.hstack([mixing, -mixing]), b_eq=response, bounds=(0, None)
    )
    return float(found.fun) if found.success else math.inf


def _column_norm(laplace: bool, mixing: Floats, response: Floats) -> float:
    """Return the loss per unit change of one user, where B is ``mixing`` and u is ``response``.

    With Gaussian noise, the loss is the l2 norm of B^+ u. With Laplace noise, the loss is the least ||s||_1
    with B s = u. The loss is infinite if u is not in the range of B.
    """
    shift, *_ = np.linalg.lstsq(mixing, response, rcond=None)
    if not np.allclose(mixing @ shift, response, atol=1e-7):
        return math.inf
    if not laplace:
        return float(np.linalg.norm(shift))
    if mixing.shape[0] == mixing.shape[1]:
        return float(np.abs(shift).sum())
    largest = float(np.abs(mixing).max())
    return _least_l1(mixing / largest, response) / largest


# ------------------------------------------------------------------------------- distribution of noise
def _noise_checks(
    draws: Floats, due: Any, noise: Noise, families: Sequence[str], offsets: Sequence[int], alarm: float
) -> list[Identity]:
    """Check the distribution and the independence of whitened residuals.

    Parameters
    ----------
    draws : (seeds, T, cells) residuals in units of the claimed scale.
    due : (T, cells) mask of the cells that have noise.
    families, offsets : names and positions of the parts that have separate scales.
    """
    square, laplace = noise.square, noise.laplace
    law = stats.laplace() if laplace else stats.norm()
    worst = ""
    chance = 1.0
    for f, name in enumerate(families):
        part = draws[:, :, offsets[f] : offsets[f + 1]]
        part = part[:, due[:, offsets[f] : offsets[f + 1]]]
        if not part.size:
            continue
        if square or not laplace:
            p = float(stats.kstest(part.ravel(), law.cdf).pvalue)
        else:  # sums of Laplace variables, whose kurtosis is at most that of one Laplace variable
            z = (float((part**2).mean()) - 2.0) / math.sqrt(20.0 / part.size)
            p = float(2 * stats.norm.sf(abs(z)))
        if p <= chance:
            chance, worst = p, f"{name}: std {part.std() / law.std():.4f} of the claimed, p = {p:.2g}"
    out = [Identity("noise has the claimed law and scale", chance > alarm / (2 * len(families)), worst)]

    seeds, times, cells = draws.shape
    signs = np.sign(draws).astype(np.float32)
    flat = signs.reshape(seeds * times, cells)
    shown = np.abs(flat)
    pairs = max(1, cells * (cells - 1) // 2)
    shared = agreeing(flat.T @ flat, shown.T @ shown, alarm / 8 / pairs)
    out.append(
        Identity(
            "noise is independent from cell to cell",
            shared == 0,
            f"{shared} of {pairs} pairs of cells share noise (signs agree, exact binomial test)",
        )
    )
    count = max(1, times * (times - 1) // 2)
    if square or not laplace:
        both = seeds * np.einsum("ic,jc->ij", due.astype(np.float64), due.astype(np.float64))
        mixed = agreeing(np.einsum("sic,sjc->ij", signs, signs), both, alarm / 8 / count)
    # entries are uncorrelated but not independent, so their products have mean 0 and an estimated variance
    else:
        products = np.einsum("sic,sjc->ij", draws, draws)
        squares = np.einsum("sic,sjc->ij", draws**2, draws**2)
        np.fill_diagonal(products, 0.0)
        mixed = int((np.abs(products) > stats.norm.isf(alarm / 8 / count) * np.sqrt(squares)).sum()) // 2
    out.append(
        Identity(
            "fresh noise is fresh, noise drawn once stays",
            mixed == 0,
            f"{mixed} of {count} pairs of releases mix noise otherwise",
        )
    )
    return out


def agreeing(sums: Any, numbers: Any, alarm: float) -> int:
    """Return the number of pairs whose signs are not independent.

    Parameters
    ----------
    sums : (n, n) sums of products of signs.
    numbers : (n, n) numbers of products that are not 0.
    alarm : probability of a false alarm for one pair.
    """
    sums, numbers = np.abs(np.asarray(sums, np.float64)), np.asarray(numbers, np.float64)
    sizes, place = np.unique(numbers, return_inverse=True)
    most = (2 * stats.binom.isf(alarm, sizes, 0.5) - sizes)[place].reshape(sums.shape)
    np.fill_diagonal(sums, 0.0)
    return int((sums > most).sum()) // 2


def _stated(bench: _PrivatizerBench, noise: Noise) -> Identity:
    """Check that the stated standard deviations of releases agree with the mixing matrix B."""
    name, worst = "stated laws have the noise's standard deviation", 0.0
    if noise.mixings is None:
        return Identity(
            name, None, "how noise is mixed is not known, or the stated scales are what is tested"
        )
    unit = math.sqrt(2.0) if noise.laplace else 1.0
    for i, release in enumerate(bench.releases(bench.lives())):
        for b, std in zip(noise.mixings, stated_stds(bench.query, release), strict=True):
            worst = max(worst, abs(std / (unit * float(np.linalg.norm(b[i]))) - 1.0))
    return Identity(name, worst <= SLACK, f"largest relative difference {worst:.2g}")


# ------------------------------------------------------------------------------- session calls
def _refusals(bench: _PrivatizerBench, still: Trajectory) -> Identity:
    """Check that records outside the declared ranges are rejected and have no effect."""
    layout = bench.query.layout
    worse: dict[str, Trajectory] = {}
    for value in (1.2, -0.1, math.nan, math.inf):
        rewards = still.rewards.copy()
        rewards[-1] = value
        worse[f"a reward of {value}"] = dataclasses.replace(still, rewards=rewards)
    for name, size in (("states", layout.states), ("actions", layout.actions)):
        indices = getattr(still, name).copy()
        indices[0] = size
        worse[f"{name}[0] = {size}"] = dataclasses.replace(still, **{name: indices})
    worse["a missing step"] = Trajectory(still.states[:-1], still.actions[:-1], still.rewards[:-1])
    accepted: list[str] = []

    def try_all(session: Session, encoder: Any, plan: Plan) -> None:
        for name, life in worse.items():
            try:
                message: Message = encoder(life, plan, SeededRng(Seeded(0).keys.noise, 0))
                session.submit(message)
                accepted.append(name)
                # the session accepted this as the record of the first user; one accepted record is enough
                return
            except (ValueError, IndexError):
                continue

    # The first batch has one user, so releases with and without the rejected records can be compared.
    if bench.times[0] == 1:
        lives = bench.lives()
        plain = bench.read(bench.releases(lives)).values
        try:
            tried = bench.read(bench.releases(lives, before=try_all)).values
            same = np.array_equal(plain, tried)
        except RuntimeError:  # raised if an accepted record was counted instead of the user's own record
            same = False
    else:
        session: Any = bench.session()
        session.release()
        encoder = session.begin(bench.plan(0, bench.times[0]))
        try_all(session, encoder, session.open_plan)
        same = not accepted
    found = (
        f"accepted: {', '.join(accepted)}" if accepted else f"{len(worse)} kinds of broken records refused"
    )
    return Identity("records out of range are refused", not accepted and same, found)


def _own_data(start: Start, learner: Any, seed: int, games: Sequence[Game]) -> Identity:
    """Check that no output before the target's record depends on the hypothesis."""
    wrong = 0
    for run, people in enumerate(games):
        both = [play(start, learner, people, world, Seeded(seed, run)) for world in (0, 1)]
        wrong += both[0].before.tobytes() != both[1].before.tobytes()
    return Identity(
        "nothing that a user is given depends on her own data",
        wrong == 0,
        f"{wrong} of 3 games differ before",
    )


def _repeats(start: Start, learner: Any, seed: int, restart: Restart | None, people: Game) -> Identity:
    """Check that a repeated request returns the same release, and that later releases do not change."""
    spec = people.spec
    query, schedule = learner.query(spec), learner.schedule(spec)
    schedule = dataclasses.replace(schedule, times=None, growth=1.0, pooled_shares=None)
    ways: list[list[Floats]] = []
    policy: Any = np.zeros((spec.horizon, spec.states), np.int64)
    if schedule.plans == "stochastic":
        policy = np.eye(spec.actions)[policy]
    context: dict[str, Floats] = {}
    if isinstance(query, LinearQuery):
        context = audit_linear.context_of(query, audit_linear.values_of(query))
    group = 0 if getattr(query, "groups", 0) else None
    for again in (False, True):
        session: Any = start(query, schedule, Seeded(seed))
        shown: list[Floats] = []
        for n in range(6):
            shown.append(noisy_numbers(session.release()))
            if again:
                shown.append(noisy_numbers(session.release()))
                if restart is not None and n in (1, 3):
                    session = restart(session)
                shown.append(noisy_numbers(session.release()))
            encoder = session.begin(Plan(policy, context=context, group=group))
            if again and restart is not None and n == 4:  # restart even while a plan is open
                session = restart(session)
            life = people.life(n + 1, 0, policy)
            session.submit(encoder(life, session.open_plan, SeededRng(Seeded(seed).keys.noise, n)))
        session.close()
        ways.append(shown)
    same = all(
        np.array_equal(one, other) for i, one in enumerate(ways[0]) for other in ways[1][3 * i : 3 * i + 3]
    )
    how = "asked for again" + (", saved and restored three times" if restart is not None else "")
    return Identity("a release is drawn once", same, f"{how}: {'the same noise' if same else 'other noise'}")


# --------------------------------------------------------------------------------------- the whole
def white_box(
    start: Start,
    learner: Any = None,
    layout: Layout | None = None,
    users: int = 16,
    seed: int = 1,
    alarm: float = ALARM,
    restart: Restart | None = None,
    budget: Budget | None = None,
) -> list[Identity]:
    """Test all identities that the module docstring describes, and return the results.

    Parameters
    ----------
    layout : size of the problem. None: S = 6, A = 2, H = 20. Linear learners have their own games
    budget : budget of the privatizer
    users : number of users in each session, 4 to 64
    alarm : probability of a false alarm in any statistical test (distribution, independence, frequency of
        true reports). All other tests are exact
    restart : function that saves a session and returns the restored session
    """
    users = checks.integer("users", users, 4, 64)
    learner, layout, start = learner or reactive(start), layout or Layout(6, 2, 20), mechanism_reused(start)
    linear = audit_linear.game_of(learner, users, budget, horizon=4)
    spec = ProblemSpec(layout, users) if linear is None else linear.spec
    kind = _PrivatizerBench if linear is None else _LinearBench
    bench = kind(start, learner.query(spec), learner.schedule(spec), seed)
    games: list[Game] = [People(target=target) for target in (1, 2, 4)]
    six: Game = People(6)
    if linear is not None:
        small = audit_linear.game_of(learner, 4, budget)
        assert small is not None
        games = [
            audit_linear.canary(start, learner, dataclasses.replace(small, target=t))[0] for t in (1, 2, 4)
        ]
        six = dataclasses.replace(small, spec=dataclasses.replace(small.spec, users=6))
    out = [
        _refusals(bench, bench.still(0)),
        _own_data(start, learner, seed, games),
        _repeats(start, learner, seed, restart, six),
    ]
    if linear is None:
        out += [_changed(bench), _made_from(bench)]
    session: Any = bench.session()
    session.release()
    noise = claimed_noise(session, bench.query, bench.times)
    if noise is not None and isinstance(bench, _LinearBench) and bench.query.requeries:
        out += _answers(bench)
    if noise is not None:
        return out + _noise_and_loss(bench, session.guarantee, noise, alarm)
    drawn = getattr(
        getattr(session, "mechanism", None), "reports", None
    )  # set if devices, or a trusted server, make randomized reports
    if session.guarantee.trust != "local" and drawn is None:
        return [*out, Identity("noise and realised loss", None, "no noise of a known law is claimed")]
    return out + _reports(start, learner, bench, seed, alarm)


def _changed(bench: _PrivatizerBench) -> Identity:
    """Check the largest number of cells of a count family that one user can change."""
    horizon, changes = bench.query.layout.horizon, _changes(bench, 500)
    counts = {
        name: int((part != 0).sum(axis=1).max())
        for name, part in zip(
            bench.query.row_families, np.split(changes, bench.query.offsets[1:-1], axis=1), strict=True
        )
    }
    found = ", ".join(f"{name} {count}" for name, count in counts.items())
    sure = bench.query.stationary or counts[TRANSITIONS] == 2 * horizon
    passed = max(counts.values()) <= 2 * horizon and sure
    return Identity(
        f"one user changes at most 2H = {2 * horizon} cells of a family", passed, f"most: {found}"
    )


def _noise_and_loss(bench: _PrivatizerBench, claim: Any, noise: Noise, alarm: float) -> list[Identity]:
    times, users, query = bench.times, bench.times[-1], bench.query
    batches = bench.sums()
    seeds = max(12, math.ceil(180 / len(times)))
    drawn = [bench.read(bench.releases(bench.lives(), run)) for run in range(seeds)]
    due = drawn[0].due
    residuals = np.array([read.values - expected(read, batches) for read in drawn])
    silent = int(((residuals == 0) & due).any(axis=(0, 1)).sum())
    out = [
        Identity(
            "every cell of the public support has noise",
            silent == 0,
            f"{silent} of {query.cells} cells were released without, where one trajectory is all data",
        )
    ]
    matrix, wrong = _responses(bench)
    said = wrong[0] if wrong else f"{users} users exchanged, one by one, under one seed"
    out.append(Identity("a user moves her own cells only, by public multiples", not wrong, said))
    slack = SLACK
    if not noise.measured and noise.mixings is None:
        if noise.laplace:
            return [*out, Identity("noise and realised loss", None, "how noise is mixed is not known")]
        # The mixing matrix is unknown, so the covariance is estimated from exchangeable samples. Cells are
        # such samples.
        many = np.moveaxis(residuals / np.repeat(noise.scales, np.diff(query.offsets)), 1, 0)
        many = many.reshape(len(times), -1)
        root = np.linalg.cholesky(many @ many.T / many.shape[1])
        noise = dataclasses.replace(noise, mixings=tuple(root * scale for scale in noise.scales))
        slack = 4 * math.sqrt((len(times) + 8) / many.shape[1])
    else:
        out.append(_stated(bench, noise))
    draws = np.array([whitened(noise, query, r, x) for r, x in zip(drawn, residuals, strict=True)])
    families, offsets = families_of(query), query.offsets.tolist()
    if isinstance(bench, _LinearBench) and query.requeries:
        answers = np.array([_answer_noise(bench, run) for run in range(seeds)])  # (seeds, T, cells)
        draws = np.concatenate([draws, answers], axis=2)
        due = np.concatenate([due, (answers != 0).any(axis=0)], axis=1)
        families, offsets = [*families, "answers"], [*offsets, draws.shape[2]]
    out += _noise_checks(draws, due, noise, families, offsets, alarm)
    out.append(_loss(bench, claim, noise, drawn[0], matrix, slack))
    return out


# --------------------------------------------------------------------- answers from offline data
def _answer_noise(bench: _LinearBench, run: int) -> Floats:
    """Return the (T, steps d) noise of every answer in units of its stated scale; 0 without a query."""
    query, lives = bench.query, bench.lives()
    _, asked = bench.asked(lives, run)
    out = np.zeros((len(bench.times), query.steps, query.features.dimension))
    for n, one in enumerate(asked):
        off = one.answer.value - expected_answer(query, one.question, lives[: one.users])
        out[n // query.steps, one.question.step] = off / scale_of(one.answer)
    return out.reshape(len(out), -1)


def _answers(bench: _LinearBench) -> list[Identity]:
    """Check that a user's record changes only later answers, and that unplanned queries fail."""
    query, users, wrong = bench.query, bench.times[-1], 0
    _, base = bench.asked(bench.lives())
    for k in range(users):
        _, other = bench.asked(bench.lives(k))
        for one, two in zip(base, other, strict=True):
            hers = [bench.moving(k)], [bench.still(k)]
            moved = [expected_answer(query, one.question, lives) for lives in hers]
            change = (moved[0] - moved[1]) * (one.users > k)
            wrong += bool((np.abs(two.answer.value - one.answer.value - change) > 1e-9 * users).any())
    session: Any = bench.session()
    session.release()
    encoder = session.begin(bench.plan(0, bench.times[0]))
    for user in range(bench.times[0]):
        session.submit(encoder(bench.still(user), session.open_plan, SeededRng(Seeded(0).keys.noise, user)))
    session.release()
    left = 0
    try:
        for _ in range(2 * (bench.schedule.answers or 1)):
            for h in reversed(range(query.steps)):
                values = audit_linear.values_of(query)[h + 1]
                session.answer(
                    Response(h, values, (0.0, float(query.layout.horizon - h - (not query.rewards))))
                )
                left += 1
    except RuntimeError:
        pass
    planned = query.steps * (bench.schedule.answers or 1)
    return [
        Identity(
            "a user moves the answers after her, by her own record",
            not wrong,
            f"{wrong} of {len(base) * users} answers moved otherwise",
        ),
        Identity(
            "questions past the plan are refused",
            left == planned,
            f"{left} questions were answered at the first release, {planned} are planned",
        ),
    ]


def _answer_losses(bench: _LinearBench, power: int, pairs: int) -> Floats:
    """Return the (users, pairs) losses if one trajectory of a pair replaces the other as a user's record.

    The loss sums |shift / noise scale| ** ``power`` over all answers after the user's record.
    """
    query = bench.query
    _, asked = bench.asked(bench.lives())
    both = bench.pairs(pairs)
    out = np.zeros((bench.times[-1], len(both)))
    for one in asked:
        own = [[expected_answer(query, one.question, [life]) for life in pair] for pair in both]
        shift = np.abs(np.array(own)[:, 0] - np.array(own)[:, 1]) / scale_of(one.answer)
        out[: one.users] += (shift**power).sum(axis=1)
    return out


def _mixings(bench: _PrivatizerBench, noise: Noise, read: Readings) -> list[Floats]:
    """Return the mixing matrix B_f of each family.

    For measurements, B_f is the diagonal matrix of the stated scales, with 1 for omitted families.
    """
    if noise.mixings is not None:
        return list(noise.mixings)
    return [np.diag(np.where(kept, scales, 1.0)) for kept, scales in _released_cells(bench, read)]


def _released_cells(bench: _PrivatizerBench, read: Readings) -> list[tuple[NDArray[np.bool_], Floats]]:
    """Return, for each family, a (T,) mask of the releases that contain it and their (T,) stated scales."""
    columns = [read.scales[:, at] for at in bench.query.offsets[:-1].tolist()]
    return [(np.isfinite(column), column) for column in columns]


def _loss(
    bench: _PrivatizerBench, claim: Any, noise: Noise, read: Readings, matrix: Floats, slack: float
) -> Identity:
    """Check that the largest loss over users and changes is at most the claimed loss.

    With Laplace noise, the losses of the families are added. With Gaussian noise, their squares are added.
    """
    name = "realised loss is at most the claimed"
    power = 1 if noise.laplace else 2
    ends = bench.query.offsets[1:-1]
    families = [family for family, _ in _released_cells(bench, read)]
    columns = np.array(
        [
            [_column_norm(noise.laplace, b, u * heard) ** power for u in matrix.T]
            for b, heard in zip(_mixings(bench, noise, read), families, strict=True)
        ]
    )  # (families, users)
    # A user's contribution can depend on the clipping threshold of the user's batch.
    cuts = [bench.cut(bench.batch(user)) for user in range(matrix.shape[1])]
    changes = {cut: _changes(bench, 500, bench.batch(cuts.index(cut))) for cut in dict.fromkeys(cuts)}
    moved = {
        cut: np.array([(np.abs(part) ** power).sum(axis=1) for part in np.split(change, ends, axis=1)])
        for cut, change in changes.items()
    }  # (families, n) each
    spent = np.array([columns[:, user] @ moved[cut] for user, cut in enumerate(cuts)])  # (users, n)
    if isinstance(bench, _LinearBench) and bench.query.requeries:
        spent += _answer_losses(bench, power, 500)
    losses = spent ** (1.0 / power)
    loss, symbol, stated = float(losses.max()), "epsilon" if noise.laplace else "mu", claim.mu
    if noise.laplace:
        stated = claim.epsilon
    if stated is None:
        return Identity(name, None, "the guarantee claims none")
    words = ""
    if noise.laplace and claim.delta and loss > stated:
        # If a privacy-loss distribution calibrated the noise, compute epsilon in the same way for the worst
        # exchanges.
        worst = sorted(zip(losses.max(axis=0).tolist(), range(losses.shape[1]), strict=True))[-8:]
        user = int(losses.max(axis=1).argmax())
        mixings, hers = _mixings(bench, noise, read), changes[cuts[user]]
        heard = [matrix[:, user] * family for family in families]
        loss = max(_numerical(bench, mixings, hers[n], heard, claim.delta) for _, n in worst)
        slack, words = 5e-3, f" at delta = {claim.delta:g}, by its privacy-loss distribution"
    found = f"{symbol} {loss:.6g} of {stated:.6g}{words}, for the worst of {matrix.shape[1]} users"
    return Identity(name, loss <= stated * (1 + slack), f"{found} and {losses.shape[1]} changes")


def _numerical(
    bench: _PrivatizerBench,
    mixings: Sequence[Floats],
    change: Floats,
    responses: Sequence[Floats],
    delta: float,
) -> float:
    """Return epsilon at ``delta`` from the privacy-loss distribution of one exchange under Laplace noise."""
    counts: dict[float, int] = {}
    parts = np.split(change, bench.query.offsets[1:-1])
    for part, b, response in zip(parts, mixings, responses, strict=True):
        shift = np.linalg.lstsq(b, response, rcond=None)[0]
        for one in np.abs(np.outer(part, shift)).ravel().tolist():
            if one > 1e-12:
                counts[round(one, 10)] = counts.get(round(one, 10), 0) + 1
    return numerical.composed_epsilon(tuple(("laplace", 1.0, c, n) for c, n in counts.items()), delta)


# ------------------------------------------------------------------------------- reports of a few steps
def _reports(start: Start, learner: Any, bench: _PrivatizerBench, seed: int, alarm: float) -> list[Identity]:
    """Check the exact distribution of reports at small sizes, and their frequencies at full size."""
    name, worst, claimed, ran = "a message's exact law loses at most the claimed", 0.0, 0.0, 0
    for horizon, most in ((1, 64), (2, 8)):
        spec = ProblemSpec(Layout(2, 2, horizon), 4)
        small = _PrivatizerBench(start, learner.query(spec), learner.schedule(spec), seed)
        for release in (0, 1):  # the first plan is stochastic, the second is deterministic
            session: Any = small.session()
            session.release()
            encoder = _randomizer(session, session.begin(small.plan(release, 1)))
            every = list(audit_reports.lives(spec.layout))
            every = every[:: max(1, math.ceil(len(every) / most))]
            laws = [audit_reports.law_of(encoder, life, session.open_plan) for life in every]
            known = [law for law in laws if law is not None]
            if len(known) < len(laws):
                none = "reports have no finite law, or one of too many outcomes; see the black box"
                return [Identity(name, None, none)]
            exact, claim = audit_reports.largest_ratio(known), float(session.guarantee.epsilon)
            if exact / claim > worst / claimed if claimed else True:
                worst, claimed = exact, claim
            ran += sum(len(law) for law in known)
    out = [
        Identity(
            name,
            worst <= claimed * (1 + 1e-12),
            f"epsilon {worst:.9g} of {claimed:.9g}: {ran} outcomes of its coins at H = 1 and 2, S = A = 2",
        )
    ]
    return [*out, _own_reports(bench, alarm)]


def _randomizer(session: Any, encoder: Any) -> Any:
    """Return the randomizer of the devices or, with a trusted server, that of the session."""
    return getattr(session, "open_randomizer", encoder)


def _own_reports(bench: _PrivatizerBench, alarm: float) -> Identity:
    """Check at full size how often reports contain the true record."""
    name = "own records are reported as often as stated"
    reports: Any = None
    tallies: dict[tuple[int, int], list[int]] = {}
    worst, chance = "", 1.0
    for release in (0, 1):
        session: Any = bench.session()
        session.release()
        encoder = _randomizer(session, session.begin(bench.plan(release, bench.times[0])))
        reports = getattr(getattr(session, "mechanism", None), "reports", None)
        if not isinstance(encoder, ReportEncoder) or reports is None:
            return Identity(name, None, "reports of an unknown form; see the black box")
        life = bench.life(release, [bench.query.layout.states - 1], [1.0])
        luck = Seeded(bench.seed, 1 + release).keys.noise
        for run in range(2000):
            message = encoder(life, session.open_plan, SeededRng(luck, run)).message
            for step, about, marks in local_reports.decode(reports, encoder.stochastic, message):
                s, after = int(life.states[step]), int(life.states[step + 1])
                row = bench.query.layout.row_index[s, life.actions[step]]
                group = int(row) if encoder.stochastic else s
                own = 2 * group + 1 if about else group * bench.query.layout.states + after
                tally = tallies.setdefault((about, release), [0, 0, 0, 0])
                tally[0] += int(marks[own])
                tally[1] += 1
                tally[2] += int(marks.sum() - marks[own])
                tally[3] += marks.size - 1
    for (about, release), (own, number, others, places) in tallies.items():
        one = reports.randomizer(about, release == 0)
        tests = [(own, number, float(one.p))]
        if one.unary:
            tests.append((others, places, float(one.q)))
        for hits, number_of, p in tests:
            found = float(stats.binomtest(hits, number_of, p).pvalue)
            if found <= chance:
                kind = "rewards" if about else "moves"
                chance, worst = found, f"{kind}: {hits / number_of:.4f} of stated {p:.4f}, p = {found:.2g}"
    return Identity(name, chance > alarm / 8, worst)
