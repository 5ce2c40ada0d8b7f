r"""Audits: does a privatizer keep what its guarantee says, seen from outside and from inside?

Two parts, after privacy-mechanisms, section 7. Neither is a certificate: a pass says that errors of the
kinds that the tests have power for were not there.

**Black box**, at H = 1, S = A = 2 (at H = 20 the loss of a Laplace release concentrates far below its worst
case, and no black box sees an error). One person has two response trees that differ in every cell that she
touches; the others replay fixed responses to the action that they are asked for. Recorded is everything but
her own actions: releases with their public numbers, every plan; of a local privatizer her report and her
plan. Plans are public in this library, hers included, which is more than joint privacy asks for. With the
event of each statistic chosen on a separate quarter of the runs, and Clopper-Pearson limits p of its
probabilities in the two worlds from the rest, a true (epsilon, delta) is at least
ln((p1_low - delta) / p0_high), and a true mu at least Phi^-1(p1_low) - Phi^-1(p0_high) [#]_. The bounds hold
for any statistic, so three of them share the alarm probability: the exact log-likelihood ratio of the
known noise law, where there is one; a linear score; and counts of events (how often each recorded number
falls into each of its intervals), both fitted to the separate quarter. The last two need no noise law
and see what no law foresees: policies, clocks and weights that follow raw data.

**White box**, at full size, on the same session API. Two sessions under one seed differ by one person's
record only, so the noise cancels: what moves, and by how much, is exact. With B the matrix that
mixes independent noises into the releases and u_k the releases' response to a unit change of user k, her
loss is the joint norm of her change in units of the *measured* noise law, times the l1 (Laplace: the least
||s||_1 with B s = u_k) or l2 norm of B^+ u_k. Whitened residuals B^-1 (release - sums) are
tested against the claimed law, and their signs for independence over cells and releases.

.. [#] f-DP, Dong, Roth and Su 2022: a mu-GDP test of size a has power at most Phi(Phi^-1(a) + mu).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from discreet.mdp.layout import Layout
from discreet.mdp.trajectories import Trajectory
from discreet.numerics import checks
from discreet.privacy import kernels
from discreet.privacy.continual.decaying import Decaying
from discreet.privacy.continual.tree import Tree
from discreet.privacy.counts import TRANSITIONS, CountQuery
from discreet.privacy.guarantee import Guarantee
from discreet.privacy.protocol import Floats, Plan, Release, Report, Schedule, Session, Spec
from discreet.privacy.randomness import Seeded, SeededCoins
from discreet.privacy.session import NoisyVectorEncoder, leaves_of

__all__ = [
    "Bound", "Evidence", "Identity", "People", "Reactive", "black_box", "bounds_of", "epsilon_bound",
    "half_scale_power", "mu_bound", "noise_matrix", "play", "rate_limits", "respond", "white_box",
]  # fmt: skip

ALARM = 1e-6  # false alarms of one black box, of one white box
_SLACK = 1e-6  # relative: rounding of float64 sums and of closed forms

Start = Callable[[Any, Schedule, Seeded], Session]
Restart = Callable[[Any], Session]


# ------------------------------------------------------------------------------- statistics
def rate_limits(hits: int, runs: int, alarm: float) -> tuple[float, float]:
    """Clopper-Pearson limits of a probability, each wrong with probability ``alarm`` at most."""
    low = float(special.betaincinv(hits, runs - hits + 1, alarm)) if hits else 0.0
    high = float(special.betainccinv(hits + 1, runs - hits, alarm)) if hits < runs else 1.0
    return low, high


def epsilon_bound(low: float, high: float, delta: float = 0.0) -> float:
    """ln((low - delta) / high): what (epsilon, delta) must be at least; -inf if the event says nothing."""
    return math.log((low - delta) / high) if low > delta and high > 0 else -math.inf


def mu_bound(low: float, high: float) -> float:
    """Phi^-1(low) - Phi^-1(high): what mu of Gaussian DP must be at least."""
    return float(special.ndtri(low) - special.ndtri(high)) if low > 0 and high < 1 else -math.inf


@dataclass(frozen=True)
class Bound:
    """Lower bounds from one statistic: its event was seen so often in the world where it is likelier.

    epsilon, mu : lower bounds (-inf: none). hits : of the last kind's event, (in the likelier world, in the
    other). runs : judged, per world.
    """

    statistic: str
    epsilon: float
    mu: float
    hits: tuple[int, int]
    runs: int


def _bound(kind: str, hits: int, misses: int, ones: int, zeros: int, delta: float, alarm: float) -> float:
    """The bound of one event, seen so often in the two worlds; each limit is wrong with ``alarm``."""
    low, high = rate_limits(hits, ones, alarm)[0], rate_limits(misses, zeros, alarm)[1]
    return epsilon_bound(low, high, delta) if kind == "epsilon" else mu_bound(low, high)


def _best_threshold(one: Floats, zero: Floats, kind: str, delta: float, alarm: float) -> tuple[float, float]:
    """(threshold, bound) of the best event {statistic >= threshold} on one sample."""
    candidates = np.unique(np.concatenate([np.quantile(one, np.linspace(0.0, 0.999, 80)), [one.max()]]))
    one, zero = np.sort(one), np.sort(zero)
    found = (math.inf, -math.inf)
    for threshold in candidates.tolist():
        hits = int(one.size - np.searchsorted(one, threshold))
        misses = int(zero.size - np.searchsorted(zero, threshold))
        value = _bound(kind, hits, misses, one.size, zero.size, delta, alarm)
        if value > found[1]:
            found = (threshold, value)
    return found


def bounds_of(
    name: str,
    chosen: Sequence[Floats],
    judged: Sequence[Floats],
    delta: float,
    alarm: float,
    kinds: Sequence[Literal["epsilon", "mu"]] = ("epsilon",),
) -> Bound:
    """Bounds from samples of one statistic in worlds (0, 1).

    ``chosen`` picks direction and threshold, for each kind of bound apart; ``judged``, independent of it, is
    counted. All bounds hold together but with probability ``alarm``.
    """
    each = alarm / (2 * len(kinds))
    values, seen = {"epsilon": -math.inf, "mu": -math.inf}, (0, 0)
    for kind in kinds:
        best = (-math.inf, math.inf, 1)
        for likely in (1, 0):
            sign = 1.0 if likely else -1.0
            one, zero = sign * chosen[likely], sign * chosen[1 - likely]
            # the event is judged on more runs than choose it: strict limits here would prefer common events
            threshold, value = _best_threshold(one, zero, kind, delta, max(each, 0.01))
            if value > best[0]:
                best = (value, threshold, likely)
        _, threshold, likely = best
        sign = 1.0 if likely else -1.0
        ones, zeros = sign * judged[likely], sign * judged[1 - likely]
        hits, misses = int((ones >= threshold).sum()), int((zeros >= threshold).sum())
        values[kind] = _bound(kind, hits, misses, ones.size, zeros.size, delta, each)
        seen = (hits, misses)
    return Bound(name, values["epsilon"], values["mu"], seen, judged[0].size)


# ----------------------------------------------------------------------------- the game, H = 1
@dataclass(frozen=True, eq=False)
class People:
    """Who plays: ``users`` persons, the ``target``-th (from 1) with a response tree for each of two worlds.

    Everybody's responses are fixed tables, so a plan determines what happens but for the target.
    """

    users: int = 4
    target: int = 1
    seed: int = 8

    def __post_init__(self) -> None:
        checks.integer("users", self.users, 2)
        checks.integer("target", self.target, 1, self.users)
        luck = np.random.default_rng(self.seed)
        put = object.__setattr__
        put(self, "_starts", luck.integers(2, size=self.users))
        put(self, "_rewards", luck.random((self.users, 2, 2)))
        put(self, "_afters", luck.integers(2, size=(self.users, 2, 2)))
        put(self, "_coins", luck.random(self.users))

    layout = Layout(2, 2, 1)


def respond(people: People, user: int, world: int, policy: NDArray[Any]) -> Trajectory:
    """What the user (from 1) does under a policy; the target stands, and goes, where her world says.

    In both worlds her reward is 1: all her cells differ, by the most that they can.
    """
    tables: Any = people
    state = world if user == people.target else int(tables._starts[user - 1])
    row = np.asarray(policy)[0, state]
    action = (
        int(row) if np.ndim(row) == 0 else int(np.searchsorted(np.cumsum(row)[:-1], tables._coins[user - 1]))
    )
    reward, after = 1.0, world
    if user != people.target:
        reward = float(tables._rewards[user - 1, state, action])
        after = int(tables._afters[user - 1, state, action])
    return Trajectory(np.array([state, after]), np.array([action]), np.array([reward]))


@dataclass(frozen=True, eq=False)
class Reactive:
    """A learner for audits: a policy for each user, the action with the least noisy count in each state."""

    asked: CountQuery | None = None

    def query(self, spec: Spec) -> CountQuery:
        """Transitions and centred rewards, visits derived (the question of the default learner)."""
        return self.asked or CountQuery(spec.layout, visits=False, center_rewards=True)

    def schedule(self, spec: Spec) -> Schedule:
        """A release after each user."""
        return Schedule(spec.users)

    def begin(self, spec: Spec, ties: NDArray[np.uint64]) -> Spec:
        """The spec is all there is to remember."""
        return spec

    def plan(self, state: Spec, release: Release, ask: Any) -> tuple[Plan, Spec]:
        """Least counts first, whatever they are worth."""
        counts = release.estimates[TRANSITIONS].value.sum(axis=-1)
        policy = np.broadcast_to(counts.argmin(axis=-1), (state.horizon, state.states))
        return Plan(np.ascontiguousarray(policy, np.int64)), state


@dataclass(frozen=True, eq=False)
class Transcript:
    """All that is public of one run but what the target did.

    releases : (T, numbers) values; public : other numbers (laws, weights, users, plans), in a fixed order;
    before : all of it until the target's plan was made, which no record of hers can have touched; plans : the
    policy of each user; message : the target's report of a local privatizer, else empty.
    """

    releases: Floats
    public: Floats
    before: Floats
    plans: tuple[NDArray[Any], ...]
    message: Floats

    @property
    def numbers(self) -> Floats:
        """Everything in one row."""
        return np.concatenate([self.releases.ravel(), self.message, self.public])


def _numbers(thing: Any) -> Floats:
    """All numbers in a report, or in nested lists of arrays, in a fixed order."""
    if thing is None or isinstance(thing, str):
        return np.zeros(0)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        thing = [getattr(thing, item.name) for item in dataclasses.fields(thing)]
    elif isinstance(thing, Mapping):
        thing = [thing[name] for name in sorted(thing)]
    if isinstance(thing, list | tuple):
        return np.concatenate([np.zeros(0), *(_numbers(part) for part in thing)])
    return np.asarray(thing, np.float64).ravel()


def _values(release: Release) -> Floats:
    """Released sums and the newest measurement: what carries noise."""
    parts = [estimate.value.ravel() for estimate in release.estimates.values()]
    if release.measurement is not None:
        parts += [estimate.value.ravel() for estimate in release.measurement.estimates.values()]
    return np.concatenate(parts)


def _public(release: Release) -> Floats:
    """The numbers of a release that no noise covers: laws, weights, who is counted."""
    parts: list[Any] = [release.users, release.number]
    estimates = list(release.estimates.values())
    if release.measurement is not None:
        parts += [release.measurement.decay, release.measurement.gain]
        estimates += release.measurement.estimates.values()
    for estimate in estimates:
        parts += [estimate.law.std(), estimate.covers, estimate.effective]
    return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts])


def play(
    start: Start,
    learner: Any,
    people: People,
    world: int,
    randomness: Seeded,
    restart: Restart | None = None,
) -> Transcript:
    """One run of the only loop there is, at H = 1, in one world.

    ``restart`` gets the session after the release that first holds the target, and gives its successor, which
    is asked for the release again. The ties of learners are public coins, the same in every run.
    """
    spec = Spec(people.layout, people.users)
    session = start(learner.query(spec), learner.schedule(spec), randomness)
    state, user = learner.begin(spec, Seeded(0).keys.ties), 1
    values: list[Floats] = []
    public: list[Floats] = []
    plans: list[NDArray[Any]] = []
    message, before, due = np.zeros(0), np.zeros(0), restart
    while user <= people.users:
        release = session.release()
        if release.number and _is_new(public, release):
            values.append(_values(release))
        if release.number and due is not None and user > people.target:
            session, due = due(session), None
            values.append(_values(session.release()))
        public.append(_public(release))
        plan, state = learner.plan(state, release, session.answer)
        encoder = session.begin(plan)
        for _ in range(plan.users):
            plan = session.open_plan if hasattr(session, "open_plan") else plan
            life = respond(people, user, world, plan.policy)
            report = encoder(life, plan, SeededCoins(randomness.keys.noise, user - 1))
            plans.append(np.array(plan.policy))
            if user == people.target:
                message = _numbers(report.message)
                before = np.concatenate([_numbers(values), _numbers(public), _numbers(plans)])
            session.submit(report)
            user += 1
    shown = np.concatenate([_numbers(public), _numbers(plans)])
    return Transcript(np.array(values), shown, before, tuple(plans), message)


def _is_new(public: Sequence[Floats], release: Release) -> bool:
    """Is it another release than the last one (which a plan with last=False repeats)?"""
    return not public or public[-1][1] != release.number


# -------------------------------------------------------------------------------- what noise mixes
def noise_matrix(session: Any, times: Sequence[int]) -> Floats | None:
    """B (T, m): the noise of the release after times[i] users is B[i] z in every cell, z independent.

    Each z has the family's own scale. A session that mixes noise in a way of its own says so by a method
    ``noise_matrix(times)``; None where noise is not added to sums, or nothing is known.
    """
    own = getattr(session, "noise_matrix", None)
    if own is not None:
        return own(times)
    mechanism = getattr(session, "mechanism", None)
    stream = getattr(mechanism, "stream", None)
    n = len(times)
    if stream == "local":
        return (np.arange(1, times[-1] + 1)[None] <= np.asarray(times)[:, None]).astype(np.float64)
    if stream == "decaying":
        law = Decaying(mechanism.decay)  # type: ignore[union-attr]
        return (np.tril(np.full((n, n), 1.0 - law.decay), -1) + np.eye(n)) / law.gain
    schedule = getattr(session, "_schedule", None)
    if stream != "tree" or schedule is None or schedule.users is None:
        return None
    leaf = mechanism.leaf  # type: ignore[union-attr]
    tree, ends = Tree(leaves_of(schedule, leaf)), times if leaf == "user" else range(1, n + 1)
    nodes = [[end for end, _ in tree.nodes(int(prefix))] for prefix in ends]
    columns = {end: i for i, end in enumerate(sorted({end for row in nodes for end in row}))}
    matrix = np.zeros((n, len(columns)))
    for i, row in enumerate(nodes):
        matrix[i, [columns[end] for end in row]] = 1.0
    return matrix


def _per_cell(session: Any, query: CountQuery) -> tuple[int, Floats] | None:
    """(family of the noise, its claimed scale in each cell), if noise is added to the query's cells.

    Opens a plan of a local session, to see what devices get.
    """
    mechanism = getattr(session, "mechanism", None)
    scales = getattr(mechanism, "scales", None)
    if scales is None or np.size(scales) != len(query.row_families) or (np.asarray(scales) <= 0).any():
        return None
    if session.guarantee.trust == "local":
        layout = query.layout
        encoder = session.begin(Plan(_uniform(layout)))
        if not isinstance(encoder, NoisyVectorEncoder):
            return None
    return int(mechanism.family), np.repeat(scales, np.diff(query.offsets))  # type: ignore[union-attr]


def _uniform(layout: Layout) -> Floats:
    """(H, S, A) all admissible actions alike: everything may be played, so all clocks run."""
    mask = np.ones((layout.states, layout.actions)) if layout.mask is None else layout.mask.astype(np.float64)
    return np.broadcast_to(mask / mask.sum(axis=1, keepdims=True), (layout.horizon, *mask.shape)).copy()


def _ratio(family: int, zero: Floats, one: Floats) -> float:
    """ln P_1 / P_0 of whitened residuals in units of the claimed scale."""
    if family == kernels.LAPLACE:
        return float((np.abs(zero) - np.abs(one)).sum())
    return float(0.5 * (zero**2 - one**2).sum())


def _likelihood(session: Any, query: CountQuery, people: People) -> Callable[[Transcript], float] | None:
    """The exact log-likelihood ratio of a transcript, world 1 against 0, by the claimed noise law."""
    law = _per_cell(session, query)
    if law is None:
        return None
    family, scales = law
    spec_times = session_times(session)
    mixing = noise_matrix(session, spec_times)
    if mixing is None:
        return None
    whiten = np.linalg.inv(np.linalg.cholesky(mixing @ mixing.T))
    known: dict[tuple[int, bytes], list[Floats]] = {}

    def ratio(transcript: Transcript) -> float:
        def cells(user: int, plan: NDArray[Any]) -> list[Floats]:
            at = (user, plan.tobytes())
            if at not in known:
                lives = [respond(people, user, world, plan) for world in (0, 1)]
                known[at] = [query.to_cells(query.contribution(life)) for life in lives]
            return known[at]

        if transcript.message.size:
            hers = cells(people.target, transcript.plans[min(people.target, len(transcript.plans)) - 1])
            return _ratio(family, *((transcript.message - each) / scales for each in hers))
        lives = [cells(user, plan) for user, plan in enumerate(transcript.plans, 1)]
        sums = np.cumsum(lives, axis=0)[np.asarray(spec_times) - 1]  # (T, 2, cells)
        made = transcript.releases[: len(spec_times), : query.cells]
        return _ratio(family, *(whiten @ ((made - sums[:, w]) / scales) for w in (0, 1)))

    return ratio


def session_times(session: Any) -> list[int]:
    """Users at each release of a session but the first (which is before anybody came)."""
    schedule: Schedule = session._schedule
    return [int(time) for time in schedule.release_times if time > 0]


# -------------------------------------------------------------------------- statistics that are fitted
_BINS = 12


def _fit_linear(one: Floats, zero: Floats) -> Callable[[Floats], Floats]:
    """A linear score (Fisher's): sees what averages or differences of numbers give away."""
    both = np.concatenate([one, zero])
    centre, spread = both.mean(axis=0), both.std(axis=0)
    keep = spread > 1e-12 * (1 + np.abs(centre))
    if not keep.any():
        return lambda rows: np.zeros(len(rows))
    scale = np.where(keep, spread, 1.0)

    def standard(rows: Floats) -> Floats:
        return ((rows - centre) / scale)[:, keep]

    ones, zeros = standard(one), standard(zero)
    within = 0.5 * (np.cov(ones, rowvar=False) + np.cov(zeros, rowvar=False))
    # a ridge far below what sampling noise hides: a difference of cells without noise must stay visible
    within = np.atleast_2d(within) + 1e-9 * np.eye(int(keep.sum()))
    weights = np.linalg.solve(within, ones.mean(axis=0) - zeros.mean(axis=0))
    return lambda rows: standard(rows) @ weights


def _fit_events(one: Floats, zero: Floats) -> Callable[[Floats], Floats]:
    """Sums over the recorded numbers of ln(frequency in world 1 / in world 0) of the interval that it is in.

    Where few different rows exist, frequencies of whole rows: the exact likelihood ratio of finite reports.
    Whole numbers are events of their own: a released zero is noise that was not drawn.
    """
    both = np.concatenate([one, zero])
    rows, place = np.unique(both, axis=0, return_inverse=True)
    if len(rows) <= max(16, len(both) // 50):
        tallies = [np.bincount(part, minlength=len(rows)) for part in np.split(place.ravel(), [len(one)])]
        known = {row.tobytes(): i for i, row in enumerate(rows)}
        logs = np.log((tallies[0] + 0.5) / (tallies[1] + 0.5))
        return lambda rows: np.array(
            [logs[i] if (i := known.get(r.tobytes())) is not None else 0.0 for r in rows]
        )
    pieces = []
    for j in range(both.shape[1]):
        column = both[:, j]
        if np.ptp(column) == 0:
            continue
        values = np.unique(column)
        few = len(values) <= 2 * _BINS
        inner = (
            (values[1:] + values[:-1]) / 2 if few else np.quantile(column, np.linspace(0, 1, _BINS + 1)[1:-1])
        )
        edges = np.unique(inner)

        def bins(x: Floats, edges: Floats = edges) -> NDArray[np.int64]:
            return np.searchsorted(edges, x, side="right") + (len(edges) + 1) * (x == np.round(x))

        counts = [np.bincount(bins(x[:, j]), minlength=2 * len(edges) + 2) + 0.5 for x in (one, zero)]
        pieces.append((j, bins, np.log(counts[0] / counts[1])))
    return lambda rows: np.sum(
        [np.zeros(len(rows)), *(logs[bins(rows[:, j])] for j, bins, logs in pieces)], axis=0
    )


# ------------------------------------------------------------------------------------ the black box
@dataclass(frozen=True)
class Evidence:
    """What a black box found. ``bounds``: the best of each statistic; claims are the guarantee's."""

    guarantee: Guarantee
    runs: int
    alarm: float
    bounds: tuple[Bound, ...]

    @property
    def epsilon(self) -> float:
        """The greatest lower bound on epsilon at the guarantee's delta, at least 0."""
        return max(0.0, *(bound.epsilon for bound in self.bounds))

    @property
    def mu(self) -> float:
        """The greatest lower bound on mu, at least 0."""
        return max(0.0, *(bound.mu for bound in self.bounds))

    @property
    def exceeded(self) -> bool:
        """Is a bound above what is claimed? Never where nothing is claimed."""
        claim = self.guarantee
        return (claim.epsilon is not None and self.epsilon > claim.epsilon * (1 + _SLACK)) or (
            claim.mu is not None and self.mu > claim.mu * (1 + _SLACK)
        )


def sample(
    start: Start,
    learner: Any,
    people: People,
    runs: int,
    seed: int,
    restart: Restart | None = None,
) -> tuple[Guarantee, list[list[Transcript]], Callable[[Transcript], float] | None]:
    """(guarantee, transcripts of worlds 0 and 1, the known likelihood ratio or None)."""
    spec = Spec(people.layout, people.users)
    query = learner.query(spec)
    session = start(query, learner.schedule(spec), Seeded(seed))
    known = _likelihood(session, query, people)
    local = session.guarantee.trust == "local" and restart is None
    worlds: list[list[Transcript]] = []
    for world in (0, 1):
        if local:
            worlds.append(_reports(start, learner, people, world, runs, Seeded(seed, world)))
        else:
            worlds.append(
                [
                    play(start, learner, people, world, Seeded(seed, 2 * r + world), restart)
                    for r in range(runs)
                ]
            )
    return session.guarantee, worlds, known


def _reports(
    start: Start, learner: Any, people: People, world: int, runs: int, randomness: Seeded
) -> list[Transcript]:
    """The target's report again and again, as if she came first; what follows is post-processing of it."""
    spec = Spec(people.layout, people.users)
    session = start(learner.query(spec), learner.schedule(spec), randomness)
    first = session.release()
    plan, _ = learner.plan(learner.begin(spec, Seeded(0).keys.ties), first, session.answer)
    encoder = session.begin(plan)
    life = respond(people, people.target, world, plan.policy)
    plan = getattr(session, "open_plan", plan)
    public, plans = np.concatenate([_public(first), _numbers(plan.policy)]), (np.array(plan.policy),)
    out = []
    for run in range(runs):
        report = encoder(life, plan, SeededCoins(randomness.keys.noise, run))
        out.append(Transcript(np.zeros((0, 0)), public, public, plans, _numbers(report.message)))
    return out


def black_box(
    start: Start,
    learner: Any = None,
    runs: int = 8000,
    seed: int = 1,
    alarm: float = ALARM,
    people: People | None = None,
    restart: Restart | None = None,
) -> Evidence:
    """Lower bounds on epsilon and mu from ``runs`` runs in each of two worlds.

    Parameters
    ----------
    start : ``privatizer.start``, or anything that starts sessions.
    learner : any learner; by default one that asks for counts and reacts to them.
    runs : per world, from 200 on; a quarter chooses the events.
    seed : of all runs. alarm : in (0, 0.5), of a bound above the truth.
    people, restart : see :func:`play`.

    Raises ``ValueError`` on a value out of range.
    """
    runs = checks.integer("runs", runs, 200)
    alarm = checks.real("alarm", alarm, 0.0, 0.5, open_low=True)
    people, learner = people or People(), learner or Reactive()
    guarantee, worlds, known = sample(start, learner, people, runs, seed, restart)
    cut, delta = max(50, runs // 4), guarantee.delta
    kinds: tuple[Literal["epsilon", "mu"], ...] = ("epsilon",) if guarantee.mu is None else ("epsilon", "mu")
    rows = [np.array([t.numbers for t in world]) for world in worlds]
    scores: dict[str, list[Floats]] = {}
    if known is not None:
        scores["likelihood ratio"] = [np.array([known(t) for t in world]) for world in worlds]
    for name, fit in (("linear score", _fit_linear), ("event counts", _fit_events)):
        score = fit(rows[1][: cut // 2], rows[0][: cut // 2])
        scores[name] = [score(part) for part in rows]
    bounds: list[Bound] = []
    for name, (zero, one) in scores.items():
        seen = (
            0 if name == "likelihood ratio" else cut // 2
        )  # what a score was fitted to chooses no threshold
        chosen, judged = [zero[seen:cut], one[seen:cut]], [zero[cut:], one[cut:]]
        bounds.append(bounds_of(name, chosen, judged, delta, alarm / len(scores), kinds))
    return Evidence(guarantee, runs, alarm, tuple(bounds))


def half_scale_power(
    start: Start, learner: Any, people: People, runs: int, alarm: float, trials: int = 100, seed: int = 5
) -> float | None:
    """How often the likelihood ratio of :func:`black_box` exposes noise of half the claimed scale.

    Share of ``trials`` in which the bound exceeds the claim; of simulated whitened noise, for the plans that
    follow the release before anybody came. None where the noise law is not known, or nothing is claimed.
    """
    spec = Spec(people.layout, people.users)
    query = learner.query(spec)
    session: Any = start(query, learner.schedule(spec), Seeded(seed))
    first, claim = session.release(), session.guarantee
    plan, _ = learner.plan(learner.begin(spec, Seeded(0).keys.ties), first, session.answer)
    law, times = _per_cell(session, query), session_times(session)
    mixing = noise_matrix(session, times)
    if law is None or mixing is None or claim.epsilon is None:
        return None
    family, scales = law
    one, zero = (
        query.to_cells(query.contribution(respond(people, people.target, world, plan.policy)))
        for world in (1, 0)
    )
    moved = np.linalg.solve(
        np.linalg.cholesky(mixing @ mixing.T), (np.asarray(times) >= people.target).astype(np.float64)
    )
    if claim.trust == "local":
        moved = np.ones(1)
    shift = np.outer(moved, (one - zero) / scales)
    shift = shift[np.abs(shift) > 0]
    luck = np.random.default_rng(seed)
    draw = luck.laplace if family == kernels.LAPLACE else luck.normal
    kinds: tuple[Literal["epsilon", "mu"], ...] = ("epsilon",) if claim.mu is None else ("epsilon", "mu")
    found, cut = 0, max(50, runs // 4)
    for _ in range(trials):
        parts = []
        for world in (0, 1):
            noise = draw(0.0, 0.5, size=(runs, shift.size)) + world * shift
            if family == kernels.LAPLACE:
                parts.append((np.abs(noise) - np.abs(noise - shift)).sum(axis=1))
            else:
                parts.append(0.5 * (noise**2 - (noise - shift) ** 2).sum(axis=1))
        chosen, judged = [part[:cut] for part in parts], [part[cut:] for part in parts]
        bound = bounds_of("likelihood ratio", chosen, judged, claim.delta, alarm / 3, kinds)
        found += bound.epsilon > claim.epsilon or (claim.mu is not None and bound.mu > claim.mu)
    return found / trials


# ------------------------------------------------------------------------------------ the white box
@dataclass(frozen=True)
class Identity:
    """One identity: what was found, what is allowed, in words. ``passed`` is None where it does not apply."""

    name: str
    passed: bool | None
    found: str

    def __str__(self) -> str:
        word = {True: "passed", False: "FAILED", None: "not applicable"}[self.passed]
        return f"{self.name}: {word} ({self.found})"


@dataclass(frozen=True, eq=False)
class _Bench:
    """A privatizer on the bench: fixed lives under the uniform policy, sessions of one or many seeds."""

    start: Start
    query: CountQuery
    schedule: Schedule
    seed: int

    @property
    def times(self) -> list[int]:
        return [int(time) for time in self.schedule.release_times if time > 0]

    def session(self, run: int = 0) -> Session:
        return self.start(self.query, self.schedule, Seeded(self.seed, run))

    def releases(self, lives: Sequence[Trajectory], run: int = 0, before: Any = None) -> list[Release]:
        """All releases but the first; ``before(session, encoder, plan)`` is called before user 1 submits."""
        layout = self.query.layout
        policy = _uniform(layout)
        session, came, out = self.session(run), 0, []
        session.release()
        key = Seeded(self.seed, run).keys.noise
        for time in self.times:
            plan = Plan(policy, users=time - came)
            encoder = session.begin(plan)
            plan = getattr(session, "open_plan", plan)
            for user in range(came, time):
                if before is not None and user == 0:
                    before(session, encoder, plan)
                session.submit(encoder(lives[user], plan, SeededCoins(key, user)))
            came = time
            out.append(session.release())
        session.close()
        return out

    def cells(self, life: Trajectory) -> Floats:
        return self.query.to_cells(self.query.contribution(life))

    def values(self, releases: Iterable[Release]) -> Floats:
        """(T, cells) released sums."""
        return np.array([self.query.to_cells({n: e.value for n, e in r.estimates.items()}) for r in releases])


def _life(layout: Layout, states: Sequence[int], action: int, reward: Sequence[float]) -> Trajectory:
    """A trajectory that cycles through ``states`` and ``reward``; ``action`` counts the admissible ones."""
    h = layout.horizon
    path = np.resize(np.asarray(states, np.int64), h + 1)
    rows = [
        np.flatnonzero(np.ones(layout.actions) if layout.mask is None else layout.mask[s]) for s in path[:-1]
    ]
    actions = np.array([row[min(action, len(row) - 1)] for row in rows], np.int64)
    return Trajectory(path, actions, np.resize(np.asarray(reward, np.float64), h))


def _random_life(layout: Layout, luck: np.random.Generator) -> Trajectory:
    h = layout.horizon
    states = luck.integers(layout.states, size=h + 1)
    rows = [
        np.flatnonzero(np.ones(layout.actions) if layout.mask is None else layout.mask[s])
        for s in states[:-1]
    ]
    rewards = luck.random(h) if luck.random() < 0.5 else luck.integers(2, size=h).astype(np.float64)
    return Trajectory(states, np.array([luck.choice(row) for row in rows], np.int64), rewards)


def _changes(bench: _Bench, pairs: int) -> Floats:
    """(n, cells) changes over random pairs of trajectories and over pairs made to be extreme."""
    layout, luck = bench.query.layout, np.random.default_rng(bench.seed)
    last = layout.states - 1
    ends = [
        (_life(layout, a, x, r), _life(layout, b, y, q))
        for a, x, b, y in (
            ([0], 0, [last], 9),
            ([0], 0, [0], 9),
            ([0], 0, [0, last], 0),
            ([0, last], 0, [last, 0], 0),
        )
        for r, q in (([1.0], [1.0]), ([1.0], [0.0]), ([0.0], [1.0]), ([1.0, 0.0], [0.0, 1.0]))
    ]
    lives = [_random_life(layout, luck) for _ in range(2 * pairs)]
    everyone = [*ends, *zip(lives[::2], lives[1::2], strict=True)]
    return np.array([bench.cells(one) - bench.cells(other) for one, other in everyone])


def _responses(bench: _Bench, still: Trajectory, move: Trajectory) -> tuple[Floats, list[str]]:
    """(T, users) response of the releases to a unit change of each user, and what is wrong with it."""
    users, times = bench.times[-1], bench.times
    change = bench.cells(move) - bench.cells(still)
    touched = change != 0
    base = bench.releases([still] * users)
    values, wrong = bench.values(base), []
    rounding = 1e-9 * (1 + float(np.abs(values).max()))
    matrix = np.zeros((len(times), users))
    for k in range(users):
        lives = [still] * users
        lives[k] = move
        other = bench.releases(lives)
        moved = bench.values(other) - values
        after = np.array(times) > k
        if (moved[~after] != 0).any():
            wrong.append(f"user {k + 1} moves a release made before she came")
        if (np.abs(moved[:, ~touched]) > rounding).any():
            wrong.append(f"user {k + 1} moves cells that she does not touch")
        ratio = moved[:, touched] / change[touched]
        matrix[:, k] = np.where(after, ratio.mean(axis=1), 0.0)
        if (
            np.abs(ratio - ratio.mean(axis=1, keepdims=True)) > rounding / np.abs(change[touched]).min()
        ).any():
            wrong.append(f"the cells of user {k + 1} move by different multiples of her change")
        if any(_public(a).tobytes() != _public(b).tobytes() for a, b in zip(base, other, strict=True)):
            wrong.append(f"a weight, law or number of users depends on the data of user {k + 1}")
    return matrix, wrong


def _least_l1(mixing: Floats, response: Floats) -> float:
    """min ||s||_1 with mixing @ s = response."""
    m = mixing.shape[1]
    found = optimize.linprog(
        np.ones(2 * m), A_eq=np.hstack([mixing, -mixing]), b_eq=response, bounds=(0, None)
    )
    return float(found.fun) if found.success else math.inf


def _column_norm(family: int, mixing: Floats, response: Floats) -> float:
    """The norm of one user's column: l2 of B^+ u (Gaussian), least l1 (Laplace), inf if B cannot hide u."""
    shift, *_ = np.linalg.lstsq(mixing, response, rcond=None)
    if not np.allclose(mixing @ shift, response, atol=1e-7):
        return math.inf
    if family == kernels.GAUSSIAN:
        return float(np.linalg.norm(shift))
    return float(np.abs(shift).sum()) if mixing.shape[0] == mixing.shape[1] else _least_l1(mixing, response)


def _noise_checks(
    whitened: Floats, family: int, square: bool, query: CountQuery, alarm: float
) -> list[Identity]:
    """Law and independence of whitened residuals (seeds, T, cells), in units of the claimed scale."""
    laplace = family == kernels.LAPLACE
    law = stats.laplace() if laplace else stats.norm()
    parts = list(zip(query.row_families, np.split(whitened, query.offsets[1:-1], axis=2), strict=True))
    worst = ""
    chance = 1.0
    for name, part in parts:
        if square or not laplace:
            p = float(stats.kstest(part.ravel(), law.cdf).pvalue)
        else:  # sums of Laplace noises: fourth moments are at most a Laplace variable's
            z = (float((part**2).mean()) - 2.0) / math.sqrt(20.0 / part.size)
            p = float(2 * stats.norm.sf(abs(z)))
        if p <= chance:
            chance, worst = p, f"{name}: std {part.std() / law.std():.4f} of the claimed, p = {p:.2g}"
    out = [Identity("noise has the claimed law and scale", chance > alarm / (2 * len(parts)), worst)]

    seeds, times, cells = whitened.shape
    signs = np.sign(whitened).astype(np.float32)
    flat = signs.reshape(seeds * times, cells)
    across = np.abs(flat.T @ flat)
    np.fill_diagonal(across, 0.0)
    pairs = max(1, cells * (cells - 1) // 2)
    most = 2 * stats.binom.isf(alarm / 8 / pairs, seeds * times, 0.5) - seeds * times
    shared = int((across > most).sum()) // 2
    out.append(
        Identity(
            "noise is independent from cell to cell",
            shared == 0,
            f"{shared} of {pairs} pairs of cells share noise (signs agree, exact binomial test)",
        )
    )
    if square or not laplace:
        over = np.abs(np.einsum("sic,sjc->ij", signs, signs))
        np.fill_diagonal(over, 0.0)
        count = max(1, times * (times - 1) // 2)
        most = 2 * stats.binom.isf(alarm / 8 / count, seeds * cells, 0.5) - seeds * cells
        out.append(
            Identity(
                "fresh noise is fresh, noise drawn once stays",
                bool((over <= most).all()),
                f"{int((over > most).sum()) // 2} of {count} pairs of releases mix noise otherwise",
            )
        )
    return out


def _refusals(bench: _Bench, still: Trajectory) -> Identity:
    """Records outside the declared ranges: refused, and nothing of them is added."""
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
                report: Report = encoder(life, plan, SeededCoins(Seeded(0).keys.noise, 0))
                session.submit(report)
                accepted.append(name)
                return  # it counts as the user: one is enough
            except (ValueError, IndexError):
                continue

    if bench.times[0] == 1:  # or the count of users in the open batch would be short
        lives = [still] * bench.times[-1]
        plain = bench.values(bench.releases(lives))
        try:
            tried = bench.values(bench.releases(lives, before=try_all))
            same = np.array_equal(plain, tried)
        except RuntimeError:  # the accepted one took the user's place
            same = False
    else:
        session = bench.session()
        session.release()
        encoder = session.begin(Plan(_uniform(layout), users=bench.times[0]))
        try_all(session, encoder, session.open_plan)  # type: ignore[attr-defined]
        same = not accepted
    found = (
        f"accepted: {', '.join(accepted)}" if accepted else f"{len(worse)} kinds of broken records refused"
    )
    return Identity("records out of range are refused", not accepted and same, found)


def _own_data(start: Start, learner: Any, seed: int) -> Identity:
    """Until she submits, both worlds of the game are one: bit for bit, plan of hers included."""
    wrong = 0
    for run, target in enumerate((1, 2, 4)):
        people = People(target=target)
        both = [play(start, learner, people, world, Seeded(seed, run)) for world in (0, 1)]
        wrong += both[0].before.tobytes() != both[1].before.tobytes()
    return Identity(
        "nothing that a user is given depends on her own data",
        wrong == 0,
        f"{wrong} of 3 games differ before",
    )


def _repeats(start: Start, learner: Any, seed: int, restart: Restart | None) -> Identity:
    """A release asked for twice, and again after a restart, is the same one; so are all after it."""
    spec = Spec(People.layout, 6)
    ways: list[list[Floats]] = []
    policy = np.zeros((1, 2), np.int64)
    for again in (False, True):
        session: Any = start(learner.query(spec), Schedule(6), Seeded(seed))
        shown: list[Floats] = []
        for n in range(6):
            shown.append(_values(session.release()))
            if again:
                shown[-1] = np.maximum(shown[-1], _values(session.release()))
                if restart is not None and n == 3:
                    session = restart(session)
                    shown[-1] = np.maximum(shown[-1], _values(session.release()))
            encoder = session.begin(Plan(policy))
            life = respond(People(6), n + 1, 0, policy)
            session.submit(encoder(life, session.open_plan, SeededCoins(Seeded(seed).keys.noise, n)))
        ways.append(shown)
    same = all(np.array_equal(a, b) for a, b in zip(*ways, strict=True))
    how = "asked for twice" + (" and after a restart" if restart is not None else "")
    return Identity("a release is drawn once", same, f"{how}: {'the same noise' if same else 'other noise'}")


def white_box(
    start: Start,
    learner: Any = None,
    layout: Layout | None = None,
    users: int = 16,
    seed: int = 1,
    alarm: float = ALARM,
    restart: Restart | None = None,
) -> list[Identity]:
    """Identities at full size: see the module's head.

    layout : S = 6, A = 2, H = 20 by default. users : of each session, 4 to 64. alarm : probability of a false
    alarm by any of the statistical identities (law, independence); the others are exact.
    """
    users = checks.integer("users", users, 4, 64)
    learner, layout = learner or Reactive(), layout or Layout(6, 2, 20)
    spec = Spec(layout, users)
    bench = _Bench(start, learner.query(spec), learner.schedule(spec), seed)
    still, move = _life(layout, [0], 0, [0.25]), _life(layout, [layout.states - 1], 9, [1.0])
    out = [_refusals(bench, still), _own_data(start, learner, seed), _repeats(start, learner, seed, restart)]
    out += _changed(bench)
    session: Any = bench.session()
    law = _per_cell(session, bench.query)
    if law is None:
        none = "noise is not added to the cells of sums; see the black box"
        return [*out, Identity("noise, responses and realised loss", None, none)]
    return out + _noise_and_loss(bench, session, law, still, move, alarm)


def _changed(bench: _Bench) -> list[Identity]:
    """By brute force: how many cells of a count family one user changes."""
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
    return [
        Identity(f"one user changes at most 2H = {2 * horizon} cells of a family", passed, f"most: {found}")
    ]


def _noise_and_loss(
    bench: _Bench,
    session: Any,
    law: tuple[int, Floats],
    still: Trajectory,
    move: Trajectory,
    alarm: float,
) -> list[Identity]:
    family, scales = law
    times, users = bench.times, bench.times[-1]
    sums = np.asarray(times)[:, None] * bench.cells(still)
    seeds = max(12, math.ceil(180 / len(times)))
    drawn = np.array([bench.values(bench.releases([still] * users, run)) for run in range(seeds)])
    residuals = (drawn - sums) / scales
    silent = int((residuals == 0).any(axis=(0, 1)).sum())
    out = [
        Identity(
            "every cell of the public support has noise",
            silent == 0,
            f"{silent} of {bench.query.cells} cells were released without, where one trajectory is all data",
        )
    ]
    matrix, wrong = _responses(bench, still, move)
    said = wrong[0] if wrong else f"{users} users exchanged, one by one, under one seed"
    out.append(Identity("a user moves her own cells only, by public multiples", not wrong, said))
    known, slack = noise_matrix(session, times), _SLACK
    mixing: Any
    root: Any
    if known is not None:
        mixing, root = known, np.linalg.cholesky(known @ known.T)
        square = known.shape[0] == known.shape[1]
    elif family == kernels.GAUSSIAN:  # unknown mixing: its covariance is measured, cells being alike
        many = np.moveaxis(residuals, 1, 0).reshape(len(times), -1)
        mixing = root = np.linalg.cholesky(many @ many.T / many.shape[1])
        square, slack = True, 4 * math.sqrt((len(times) + 8) / many.shape[1])
    else:
        return [*out, Identity("noise and realised loss", None, "how noise is mixed is not known")]
    whitened = np.einsum("ij,sjc->sic", np.linalg.inv(root), residuals)
    out += _noise_checks(whitened, family, square, bench.query, alarm)
    changes = _changes(bench, 500) / scales
    unit = np.abs(changes).sum(axis=1) if family == kernels.LAPLACE else np.linalg.norm(changes, axis=1)
    column = max(_column_norm(family, mixing, matrix[:, k]) for k in range(users))
    loss = float(unit.max()) * column
    claim = session.guarantee.epsilon if family == kernels.LAPLACE else session.guarantee.mu
    symbol = "epsilon" if family == kernels.LAPLACE else "mu"
    if claim is None:
        return [*out, Identity("realised loss is at most the claimed", None, "the guarantee claims none")]
    found = (
        f"{symbol} {loss:.6g} of {claim:.6g}: joint change {unit.max():.6g} in units of the noise, times the "
        f"largest column norm {column:.6g}"
    )
    out.append(Identity("realised loss is at most the claimed", loss <= claim * (1 + slack), found))
    return out
