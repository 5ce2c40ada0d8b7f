r"""Black-box audits: tests of a privatizer's guarantee that use only its outputs.

An audit that passes has found no error of the kinds that its tests can detect. It is not a certificate.

The two hypotheses are two neighbouring data sets, numbered 0 and 1 by ``world``. The game has one step, two
states and two actions, because the loss of a Laplace release at longer horizons concentrates far below its
worst case. Only the target user's responses depend on the hypothesis. The transcript contains all releases,
all plans and, for a local privatizer, the target's message. It does not contain the target's actions.

For each statistic, an event is chosen on a quarter of the runs. The other runs give Clopper-Pearson limits of
the event's probabilities p0 and p1 under the two hypotheses. The true epsilon at a given delta is at least
ln((p1_low - delta) / p0_high), and the true mu is at least Phi^-1(p1_low) - Phi^-1(p0_high) [#]_. The three
statistics are the exact log-likelihood ratio (if the noise distribution is known), a linear score of the
released numbers, and a score that counts in which intervals the released numbers lie.

.. [#] f-DP, Dong, Roth and Su 2022: a mu-GDP test of size a has power at most Phi(Phi^-1(a) + mu).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.noise_distributions.binomial import BinomialLaw
from discreet.audit import local_output_law as audit_reports
from discreet.audit import shuffle_likelihood as audit_shuffle
from discreet.audit.noise_model import (  # fmt: skip
    AnsweredQuery,
    AuditQuery,
    Noise,
    Readings,
    expected,
    expected_answer,
    noise_matrix,
    noise_of,
    readings,
    scale_of,
    summand,
    whitened,
)
from discreet.core import checks
from discreet.core.clipped_returns import taking_turns
from discreet.core.count_query import CountQuery
from discreet.core.families import TRANSITIONS
from discreet.core.guarantee import Guarantee
from discreet.core.layout import Layout
from discreet.core.releases import Estimate, Floats, Measurement, Plan, Release, Schedule
from discreet.core.rng import Seeded
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectory
from discreet.mechanisms.interfaces import ProblemSpec, Session
from discreet.mechanisms.linear.linear_queries import GramQuery, LinearQuery
from discreet.mechanisms.local.noisy_vector_session import NoisyVectorEncoder
from discreet.mechanisms.local.randomized_response import StepReports
from discreet.mechanisms.open_session import mechanism_reused
from discreet.mechanisms.query_queue import Response
from discreet.mechanisms.seeded_rng import SeededRng

__all__ = [
    "Bound", "BlackBoxEvidence", "Game", "People", "Reactive", "black_box", "bounds_of", "endless",
    "epsilon_bound",
    "fit_events", "fit_linear", "half_scale_power", "mu_bound", "noise_matrix", "play", "rate_limits",
    "reactive", "respond",
]  # fmt: skip

ALARM = 1e-6  # Probability of a false alarm in one black-box or white-box audit.
SLACK = 1e-6  # Relative tolerance for rounding errors of sums and of closed forms.

Start = Callable[[Any, Schedule, Seeded], Session]
Restart = Callable[[Any], Session]


# ------------------------------------------------------------------------------- statistics
def rate_limits(hits: int, runs: int, alarm: float) -> tuple[float, float]:
    """Return the lower and the upper Clopper-Pearson limit of an event's probability.

    Each limit is wrong with probability at most ``alarm``. hits : number of runs in which the event occurred.
    """
    low = float(special.betaincinv(hits, runs - hits + 1, alarm)) if hits else 0.0
    high = float(special.betainccinv(hits + 1, runs - hits, alarm)) if hits < runs else 1.0
    return low, high


def epsilon_bound(low: float, high: float, delta: float = 0.0) -> float:
    """Return the lower bound ln((low - delta) / high) on epsilon, or -inf if the event gives no bound."""
    return math.log((low - delta) / high) if low > delta and high > 0 else -math.inf


def mu_bound(low: float, high: float) -> float:
    """Return Phi^-1(low) - Phi^-1(high), a lower bound on mu of Gaussian DP."""
    return float(special.ndtri(low) - special.ndtri(high)) if low > 0 and high < 1 else -math.inf


@dataclass(frozen=True)
class Bound:
    """Lower bounds on epsilon and mu from one statistic.

    The bounds are computed from the frequencies of an event under both hypotheses.

    Parameters
    ----------
    epsilon, mu : lower bounds; -inf if the event gives no bound
    hits : numbers of runs with the event that gave the last bound. The first number is for the hypothesis
        that makes the event more likely
    runs : number of runs per hypothesis in which events are counted
    """

    statistic: str
    epsilon: float
    mu: float
    hits: tuple[int, int]
    runs: int


def _bound(kind: str, hits: int, misses: int, ones: int, zeros: int, delta: float, alarm: float) -> float:
    """Return the lower bound on epsilon or mu from one event's frequencies under both hypotheses.

    Each limit is wrong with probability ``alarm``.
    """
    low, high = rate_limits(hits, ones, alarm)[0], rate_limits(misses, zeros, alarm)[1]
    return epsilon_bound(low, high, delta) if kind == "epsilon" else mu_bound(low, high)


def _best_threshold(one: Floats, zero: Floats, kind: str, delta: float, alarm: float) -> tuple[float, float]:
    """Return the threshold t for which the event {statistic >= t} gives the largest bound, and this bound."""
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
    """Return bounds from samples of one statistic under hypotheses (0, 1).

    The sample ``chosen`` determines the event, and the independent sample ``judged`` determines its
    frequencies. All bounds hold simultaneously with probability at least 1 - ``alarm``.
    """
    each = alarm / (2 * len(kinds))
    values, seen = {"epsilon": -math.inf, "mu": -math.inf}, (0, 0)
    for kind in kinds:
        best = (-math.inf, math.inf, 1)
        for likely in (1, 0):
            sign = 1.0 if likely else -1.0
            one, zero = sign * chosen[likely], sign * chosen[1 - likely]
            # Fewer runs are used to choose the event than to evaluate it, so strict limits would favour
            # common events.
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
class Game(Protocol):
    """Game with ``users`` users, counted from 1. Only user ``target`` depends on the hypothesis."""

    @property
    def users(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def spec(self) -> ProblemSpec: ...
    def life(self, user: int, world: int, policy: NDArray[Any]) -> Trajectory:
        """Return a user's trajectory under a policy.

        Users are counted from 1. Only the target's trajectory depends on ``world``, the hypothesis.
        """


@dataclass(frozen=True, eq=False)
class People:
    """Users of the game. The target user has one table of responses for each hypothesis.

    The responses are deterministic: a plan and the hypothesis determine all trajectories.

    target : number of the target user, counted from 1
    bits : True if rewards are 0 or 1
    """

    users: int = 4
    target: int = 1
    seed: int = 8
    bits: bool = False

    def __post_init__(self) -> None:
        checks.integer("users", self.users, 2)
        checks.integer("target", self.target, 1, self.users)
        luck = np.random.default_rng(self.seed)
        put = object.__setattr__
        put(self, "_starts", luck.integers(2, size=self.users))
        rewards = luck.random((self.users, 2, 2))
        put(self, "_rewards", np.round(rewards) if self.bits else rewards)
        put(self, "_afters", luck.integers(2, size=(self.users, 2, 2)))
        put(self, "_coins", luck.random(self.users))

    layout = Layout(2, 2, 1)

    @property
    def spec(self) -> ProblemSpec:
        """Public facts of the game."""
        return ProblemSpec(self.layout, self.users)

    def life(self, user: int, world: int, policy: NDArray[Any]) -> Trajectory:
        """Return the trajectory of a user; see :func:`respond`."""
        return respond(self, user, world, policy)


def respond(people: People, user: int, world: int, policy: NDArray[Any]) -> Trajectory:
    """Return a user's trajectory under a policy. The target's states depend on the hypothesis ``world``.

    user : number of the user, counted from 1
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
    """Learner for audits. In each state, its policy takes the action with the smallest noisy count.

    Parameters
    ----------
    asked : query of the learner; None: transitions and centred rewards.
    reads : kind of released numbers that the learner reads.
    endless : True if the number of users is not stated, so that releases never end.
    """

    asked: CountQuery | None = None
    reads: Literal["sums", "measurements"] = "sums"
    endless: bool = False

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query. The default query is for transitions and centred rewards."""
        return self.asked or CountQuery(spec.layout, visits=False, center_rewards=True)

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule with one release after each user."""
        return Schedule(None if self.endless else spec.users, reads=self.reads)

    def begin(self, spec: ProblemSpec, ties: NDArray[np.uint64]) -> ProblemSpec:
        """Return the initial state of the learner, which is ``spec``."""
        return spec

    def plan(self, state: ProblemSpec, release: Release, ask: Any) -> tuple[Plan, ProblemSpec]:
        """Return a plan that takes the action with the smallest released count in each state."""
        shown = release.estimates
        if not shown and release.measurement is not None:
            shown = release.measurement.estimates
        counts = shown[TRANSITIONS].value.sum(axis=-1)
        policy = np.broadcast_to(counts.argmin(axis=-1), (state.horizon, state.states))
        return Plan(np.ascontiguousarray(policy, np.int64)), state


def reactive(start: Start) -> Reactive:
    """Return a learner that reads sums if the privatizer releases sums, and measurements otherwise."""
    spec = ProblemSpec(People.layout, 2)
    learner = Reactive()
    try:
        start(learner.query(spec), learner.schedule(spec), Seeded(0)).close()
    except ValueError:
        return Reactive(reads="measurements")
    return learner


def endless(start: Start) -> Reactive | str:
    """Return a learner for an unknown number of users, or the error text of a privatizer that rejects it."""
    spec, learner = ProblemSpec(People.layout, 2), Reactive(endless=True)
    try:
        start(learner.query(spec), learner.schedule(spec), Seeded(0)).close()
    except ValueError as error:
        return str(error)
    return learner


@dataclass(frozen=True, eq=False)
class Transcript:
    """Transcript of the public outputs of one run, without the target's actions.

    Parameters
    ----------
    releases : (T, n) noisy numbers: n numbers of each of T releases
    public : other public numbers (distributions, weights, numbers of users, plans), in a fixed order
    before : all numbers until the target's plan was made. The target's record must not affect them
    plans : policy of each user
    contexts, cuts : context and clipping threshold of each user's plan
    message : the target's message under a local privatizer; otherwise empty
    asked : queries about offline data, with their answers
    measured : measurement of the newest batch in each release
    read : numbers of the releases by cell; None if all noise is randomized response
    """

    releases: Floats
    public: Floats
    before: Floats
    plans: tuple[NDArray[Any], ...]
    message: Floats
    read: Readings | None = None
    asked: tuple[AnsweredQuery, ...] = ()
    measured: tuple[Measurement, ...] = ()
    contexts: tuple[Mapping[str, Any], ...] = ()
    cuts: tuple[float, ...] = ()

    @property
    def numbers(self) -> Floats:
        """All numbers of the transcript in one vector, with the target's message last."""
        answers = [one.answer.value for one in self.asked]
        return np.concatenate([self.releases.ravel(), self.public, *answers, self.message])


def _numbers(thing: Any) -> Floats:
    """Return all numbers of nested lists of arrays, in a fixed order."""
    if thing is None or isinstance(thing, str | bytes):  # bytes are messages that only a shuffler sees
        return np.zeros(0)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        thing = [getattr(thing, item.name) for item in dataclasses.fields(thing)]
    elif isinstance(thing, Mapping):
        thing = [thing[name] for name in sorted(thing)]
    if isinstance(thing, list | tuple):
        return np.concatenate([np.zeros(0), *(_numbers(part) for part in thing)])
    return np.asarray(thing, np.float64).ravel()


def noisy_numbers(release: Release, query: AuditQuery | None = None) -> Floats:
    """Return all numbers of a release that have noise: the sums and the newest measurement.

    Families that a measurement omits are filled with zeros.
    """
    parts = [estimate.value.ravel() for estimate in release.estimates.values()]
    if release.measurement is not None:
        made = release.measurement.estimates
        if isinstance(query, CountQuery) and query.steered:
            shapes = query.families.items()
            parts += [made[n].value.ravel() if n in made else np.zeros(math.prod(s)) for n, s in shapes]
        else:
            parts += [estimate.value.ravel() for estimate in made.values()]
    return np.concatenate(parts)


def public_numbers(release: Release) -> Floats:
    """Return the numbers of a release without noise: standard deviations, weights and numbers of users."""
    parts: list[Any] = [release.users, release.number]
    estimates = list(release.estimates.values())
    if release.measurement is not None:
        parts += [release.measurement.decay, release.measurement.gain]
        estimates += release.measurement.estimates.values()
    for estimate in estimates:
        parts += [estimate.law.std(), estimate.covers, estimate.effective]
    return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts])


def play(
    start: Start, learner: Any, people: Game, world: int, randomness: Seeded, restart: Restart | None = None
) -> Transcript:
    """Return the transcript of one run under the hypothesis ``world``.

    After the first release that contains the target, ``restart(session)`` must return a restored session.
    The run repeats this release with the restored session. The random bits for ties are equal in all runs.
    """
    spec = people.spec
    query = learner.query(spec)
    session = start(query, learner.schedule(spec), randomness)
    state, user = learner.begin(spec, Seeded(0).keys.ties), 1
    seen, due = _Seen(query), restart
    message, before = np.zeros(0), np.zeros(0)

    def ask(question: Response) -> Estimate:
        found = session.answer(question)
        seen.asked.append(AnsweredQuery(question, user - 1, found))
        return found

    while user <= people.users:
        release = session.release()
        seen.look_at(release)
        if release.number and due is not None and user > people.target:
            session, due = due(session), None
            seen.values.append(noisy_numbers(session.release(), query))
        seen.public.append(public_numbers(release))
        plan, state = learner.plan(state, release, ask)
        encoder = session.begin(plan)
        for _ in range(plan.users):
            plan = session.open_plan if hasattr(session, "open_plan") else plan
            life = people.life(user, world, plan.policy)
            report = encoder(life, plan, SeededRng(randomness.keys.noise, user - 1))
            seen.follow(plan, float(getattr(session, "cut", 0.0)))
            if user == people.target:
                message, before = _numbers(report.message), seen.everything()
            session.submit(report)
            user += 1
    return seen.transcript(message, before)


@dataclass(frozen=True)
class _Seen:
    """Collector of all outputs that an adversary has seen in one run."""

    query: AuditQuery
    values: list[Floats] = field(default_factory=list)
    public: list[Floats] = field(default_factory=list)
    plans: list[NDArray[Any]] = field(default_factory=list)
    contexts: list[Mapping[str, Any]] = field(default_factory=list)
    cuts: list[float] = field(default_factory=list)
    asked: list[AnsweredQuery] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)

    def look_at(self, release: Release) -> None:
        """Add the noisy numbers of a release, unless it repeats the previous release."""
        if release.number and _is_new(self.public, release):
            self.values.append(noisy_numbers(release, self.query))
            self.releases.append(release)

    def follow(self, plan: Any, cut: float) -> None:
        """Add a user's plan and clipping threshold."""
        self.plans.append(np.array(plan.policy))
        self.contexts.append({name: np.array(array) for name, array in plan.context.items()})
        self.cuts.append(cut)

    def everything(self) -> Floats:
        answers = _numbers([one.answer.value for one in self.asked])
        return np.concatenate([_numbers(self.values), *self._shown(), answers])

    def _shown(self) -> list[Floats]:
        return [_numbers(self.public), _numbers(self.plans), _numbers(self.contexts)]

    def transcript(self, message: Floats, before: Floats) -> Transcript:
        """Return the transcript of the run.

        before : all numbers that were seen before the target's message.
        """
        stds = [one.answer.law.std() for one in self.asked]
        shown = np.concatenate([*self._shown(), _numbers(stds)])
        measured = tuple(one.measurement for one in self.releases if one.measurement is not None)
        return Transcript(
            np.array(self.values), shown, before, tuple(self.plans), message,
            readings(self.query, self.releases), tuple(self.asked), measured, tuple(self.contexts),
            tuple(self.cuts),
        )  # fmt: skip


def _is_new(public: Sequence[Floats], release: Release) -> bool:
    """Return True if a release is not equal to the previous one."""
    return not public or public[-1][1] != release.number


# ------------------------------------------------------------------------- likelihoods of the known law
def claimed_noise(session: Any, query: AuditQuery, times: Sequence[int]) -> Noise | None:
    """Return the noise that a session claims to add to the query's cells, or None if it is unknown."""
    found = noise_of(session, query, times)
    if isinstance(query, LinearQuery):
        return found
    if found is not None and session.guarantee.trust == "local":
        encoder = session.begin(Plan(uniform(query.layout)))
        if not isinstance(encoder, NoisyVectorEncoder):
            return None
    return found


def uniform(layout: Layout) -> Floats:
    """Return the (H, S, A) policy that selects all admissible actions with equal probability."""
    mask = np.ones((layout.states, layout.actions)) if layout.mask is None else layout.mask.astype(np.float64)
    return np.broadcast_to(mask / mask.sum(axis=1, keepdims=True), (layout.horizon, *mask.shape)).copy()


def _ratio(noise: Noise, zero: Floats, one: Floats) -> float:
    """Return ln(P_1 / P_0) for the whitened residuals ``zero`` and ``one`` under hypotheses 0 and 1."""
    if noise.laplace:
        return float((np.abs(zero) - np.abs(one)).sum())
    return float(0.5 * (zero**2 - one**2).sum())


def _likelihood(
    begin: Callable[[], Session], query: AuditQuery, people: Game, learner: Any
) -> Callable[[Transcript], float] | None:
    """Return a function that computes a transcript's exact log-likelihood ratio, or None if it is unknown."""
    session: Any = begin()
    times = session_times(session)
    noise = claimed_noise(session, query, times)
    flips = isinstance(query, CountQuery) and _flips(session) is not None
    if noise is None and not flips:
        return _report_likelihood(begin(), people, learner)
    if noise is not None and not noise.measured and noise.mixings is None:
        return None
    scales = None if noise is None else np.repeat(noise.scales, np.diff(query.offsets))
    known: dict[tuple[int, bytes, float], list[tuple[Trajectory, Floats]]] = {}
    ends = np.asarray(times) - 1

    def records(
        user: int, plan: NDArray[Any], context: Mapping[str, Any], cut: float
    ) -> list[tuple[Trajectory, Floats]]:
        """Return, for hypotheses 0 and 1, the user's trajectory and its contribution."""
        at = user, b"".join([plan.tobytes(), *(context[name].tobytes() for name in sorted(context))]), cut
        if at not in known:
            lives = [people.life(user, world, plan) for world in (0, 1)]
            known[at] = [(life, summand(query, life, context, cut)) for life in lives]
        return known[at]

    def ratio(transcript: Transcript) -> float:
        plans = transcript.plans
        contexts = transcript.contexts or ({},) * len(plans)
        cuts = transcript.cuts or (0.0,) * len(plans)
        if noise is not None and scales is not None and transcript.message.size:
            at = min(people.target, len(plans)) - 1
            hers = records(people.target, plans[at], contexts[at], cuts[at])
            return _ratio(noise, *((transcript.message - each) / scales for _, each in hers))
        read = transcript.read
        assert read is not None
        played = zip(plans, contexts, cuts, strict=True)
        every = [records(user, *plan) for user, plan in enumerate(played, 1)]
        lives = np.array([[cells for _, cells in worlds] for worlds in every])
        batches = np.diff(np.cumsum(lives, axis=0)[ends], axis=0, prepend=0.0)  # (T, 2, cells)
        if noise is None:
            assert isinstance(query, CountQuery)
            return audit_shuffle.flips_ratio(query, transcript.measured, batches)
        off = (read.values - expected(read, batches[:, w]) for w in (0, 1))
        found = _ratio(noise, *(whitened(noise, query, read, each) for each in off))
        for more in _answer_ratios(noise, query, transcript, every):
            found += more
        return found

    return ratio


def _answer_ratios(
    noise: Any, query: AuditQuery, transcript: Transcript, every: Sequence[Any]
) -> Iterator[float]:
    """Yield the log-likelihood ratio of each answer to a query that the learner sent during the run.

    every : (trajectory, contribution) of each user under hypotheses 0 and 1.
    """
    for one in transcript.asked:
        assert isinstance(query, GramQuery)
        lives = ([worlds[w][0] for worlds in every[: one.users]] for w in (0, 1))
        off = (one.answer.value - expected_answer(query, one.question, each) for each in lives)
        yield _ratio(noise, *(each / scale_of(one.answer) for each in off))


def _flips(session: Any) -> list[BinomialLaw] | None:
    """Return the distributions of the first batch's counters, or None if the noise is not binomial."""
    if session.guarantee.trust != "shuffle":
        return None
    laws = list(session.laws_at(session_times(session)[0]).values())
    return laws if all(isinstance(law, BinomialLaw) for law in laws) else None


def _report_laws(
    session: Any, people: Game, learner: Any, reports: StepReports | None = None
) -> list[Any] | None:
    """Return the exact distributions of the target's first message under both hypotheses.

    The result is None if a message has infinitely many values.

    reports : randomizer of the device; None: that of the session
    """
    spec = people.spec
    first = session.release()
    plan, _ = learner.plan(learner.begin(spec, Seeded(0).keys.ties), first, session.answer)
    encoder = session.begin(plan)
    if reports is not None:
        encoder = dataclasses.replace(encoder, reports=reports)
    plan = getattr(session, "open_plan", plan)
    lives = [people.life(people.target, world, plan.policy) for world in (0, 1)]
    laws = [audit_reports.law_of(encoder, life, plan) for life in lives]
    return None if laws[0] is None or laws[1] is None else laws


def _report_likelihood(session: Any, people: Game, learner: Any) -> Callable[[Transcript], float] | None:
    """Return a function that computes the log-likelihood ratio of the target's message.

    The device's code is run on all random outcomes. The result is None if the privatizer is not local, or if
    a message has infinitely many values.
    """
    if session.guarantee.trust != "local":
        return None
    laws = _report_laws(session, people, learner)
    if laws is None:
        return None

    def ratio(transcript: Transcript) -> float:
        found = audit_reports.log_ratio(laws[1], laws[0], tuple(transcript.message.tolist()))
        return max(-50.0, min(50.0, found))

    return ratio


def session_times(session: Any) -> list[int]:
    """Return the number of users at each release after the first; empty if releases never end."""
    schedule: Schedule = session.schedule
    if schedule.users is None:
        return []
    return [int(time) for time in schedule.release_times if time > 0]


# -------------------------------------------------------------------------- statistics that are fitted
_BINS = 12


def fit_linear(one: Floats, zero: Floats) -> Callable[[Floats], Floats]:
    """Fit Fisher's linear discriminant of the two samples."""
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
    # The ridge is far below sampling noise, so that differences of cells without noise remain visible.
    within = np.atleast_2d(within) + 1e-9 * np.eye(int(keep.sum()))
    weights = np.linalg.solve(within, ones.mean(axis=0) - zeros.mean(axis=0))
    return lambda rows: standard(rows) @ weights


def fit_events(one: Floats, zero: Floats) -> Callable[[Floats], Floats]:
    """Fit a score that sums, over all numbers, the log-ratio of the frequencies of the number's interval.

    The numerator is the interval's frequency under hypothesis 1, and the denominator that under hypothesis 0.
    If the samples have few different rows, frequencies of whole rows replace those of intervals. Each integer
    is a separate interval, because a released integer shows that no noise was drawn.
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
class BlackBoxEvidence:
    """Results of a black-box audit: the tested guarantee and the bounds from each statistic."""

    __repr__ = brief

    guarantee: Guarantee
    runs: int
    alarm: float
    bounds: tuple[Bound, ...]

    @property
    def epsilon(self) -> float:
        """Largest lower bound on epsilon at the guarantee's delta, at least 0."""
        return max(0.0, *(bound.epsilon for bound in self.bounds))

    @property
    def mu(self) -> float:
        """Largest lower bound on mu, at least 0."""
        return max(0.0, *(bound.mu for bound in self.bounds))

    @property
    def exceeded(self) -> bool:
        """True if a bound exceeds the claimed guarantee; False if no guarantee is claimed."""
        claim = self.guarantee
        return (claim.epsilon is not None and self.epsilon > claim.epsilon * (1 + SLACK)) or (
            claim.mu is not None and self.mu > claim.mu * (1 + SLACK)
        )


def sample(
    start: Start, learner: Any, people: Game, runs: int, seed: int, restart: Restart | None = None
) -> tuple[Guarantee, list[list[Transcript]], Callable[[Transcript], float] | None]:
    """Run the game under both hypotheses.

    Returns the guarantee, the transcripts under hypotheses 0 and 1, and a function for the log-likelihood
    ratio (None if the ratio is unknown).
    """
    spec = people.spec
    query = learner.query(spec)
    schedule = learner.schedule(spec)
    begin = mechanism_reused(start)

    def start_again(_: Any, __: Schedule, randomness: Any) -> Session:
        return begin(query, schedule, randomness)  # the learner's query and schedule are the same in all runs

    session = start(query, schedule, Seeded(seed))
    known = _likelihood(lambda: start(query, schedule, Seeded(seed)), query, people, learner)
    local = session.guarantee.trust == "local" and restart is None
    worlds: list[list[Transcript]] = []
    for world in (0, 1):
        if local:
            worlds.append(_reports(start, learner, people, world, runs, Seeded(seed, world)))
        else:
            worlds.append(
                [
                    play(start_again, learner, people, world, Seeded(seed, 2 * r + world), restart)
                    for r in range(runs)
                ]
            )
    return session.guarantee, worlds, known


def _reports(
    start: Start, learner: Any, people: Game, world: int, runs: int, randomness: Seeded
) -> list[Transcript]:
    """Return transcripts that contain only the target's message under a local privatizer."""
    spec = people.spec
    session = start(learner.query(spec), learner.schedule(spec), randomness)
    first = session.release()
    plan, _ = learner.plan(learner.begin(spec, Seeded(0).keys.ties), first, session.answer)
    encoder = session.begin(plan)
    life = people.life(people.target, world, plan.policy)
    plan = getattr(session, "open_plan", plan)
    public, plans = np.concatenate([public_numbers(first), _numbers(plan.policy)]), (np.array(plan.policy),)
    contexts = (dict(plan.context),)
    out = []
    for run in range(runs):
        report = encoder(life, plan, SeededRng(randomness.keys.noise, run))
        message = _numbers(report.message)
        out.append(Transcript(np.zeros((0, 0)), public, public, plans, message, contexts=contexts))
    return out


def black_box(
    start: Start,
    learner: Any = None,
    runs: int = 8000,
    seed: int = 1,
    alarm: float = ALARM,
    people: Game | None = None,
    restart: Restart | None = None,
) -> BlackBoxEvidence:
    """Return lower bounds on epsilon and mu from ``runs`` runs under each of two hypotheses.

    Parameters
    ----------
    start : ``privatizer.start``, or any function that starts sessions
    learner : any learner. None: :func:`reactive`, which queries counts and reacts to them
    runs : number of runs per hypothesis, at least 200. The events are chosen on a quarter of the runs
    seed : seed of all runs
    alarm : probability in (0, 0.5) that a bound exceeds the true value
    people, restart : the game, and a function that restarts sessions; see :func:`play`

    Raises
    ------
    ValueError
        If a value is out of range.
    """
    runs = checks.integer("runs", runs, 200)
    alarm = checks.real("alarm", alarm, 0.0, 0.5, open_low=True)
    people, learner = people or People(), learner or reactive(start)
    guarantee, worlds, known = sample(start, learner, people, runs, seed, restart)
    cut, delta = max(50, runs // 4), guarantee.delta
    kinds: tuple[Literal["epsilon", "mu"], ...] = ("epsilon",) if guarantee.mu is None else ("epsilon", "mu")
    rows = _table(worlds)
    scores: dict[str, list[Floats]] = {}
    if known is not None:
        scores["likelihood ratio"] = [np.array([known(t) for t in world]) for world in worlds]
    for name, fit in (("linear score", fit_linear), ("event counts", fit_events)):
        score = fit(rows[1][: cut // 2], rows[0][: cut // 2])
        scores[name] = [score(part) for part in rows]
    bounds: list[Bound] = []
    for name, (zero, one) in scores.items():
        # thresholds and scores are fitted to different runs
        seen = 0 if name == "likelihood ratio" else cut // 2
        chosen, judged = [zero[seen:cut], one[seen:cut]], [zero[cut:], one[cut:]]
        bounds.append(bounds_of(name, chosen, judged, delta, alarm / len(scores), kinds))
    return BlackBoxEvidence(guarantee, runs, alarm, tuple(bounds))


def _table(worlds: Sequence[Sequence[Transcript]]) -> list[Floats]:
    """Return one array of shape (runs, numbers) for each hypothesis. Short messages are padded with -1."""
    most = max(t.numbers.size for world in worlds for t in world)
    out = [np.full((len(world), most), -1.0) for world in worlds]
    for table, world in zip(out, worlds, strict=True):
        for row, transcript in zip(table, world, strict=True):
            row[: transcript.numbers.size] = transcript.numbers
    return out


def half_scale_power(
    start: Start, learner: Any, people: Game, runs: int, alarm: float, trials: int = 100, seed: int = 5
) -> float | None:
    """Return the power of the likelihood-ratio test in :func:`black_box` for half the claimed noise scale.

    The power is the share of ``trials`` in which the bound exceeds the claimed guarantee. For randomized
    response, devices use twice the claimed epsilon. The result is None if the noise distribution is unknown,
    or if no guarantee is claimed.
    """
    spec = people.spec
    query = learner.query(spec)
    session: Any = start(query, learner.schedule(spec), Seeded(seed))
    claim, luck = session.guarantee, np.random.default_rng(seed)
    if claim.epsilon is None:
        return None
    draw = _broken_reports(start, learner, people) or _halved_noise(start, learner, people)
    if draw is None:
        return None
    kinds: tuple[Literal["epsilon", "mu"], ...] = ("epsilon",) if claim.mu is None else ("epsilon", "mu")
    found, cut = 0, max(50, runs // 4)
    for _ in range(trials):
        parts = [draw(world, runs, luck) for world in (0, 1)]
        chosen, judged = [part[:cut] for part in parts], [part[cut:] for part in parts]
        bound = bounds_of("likelihood ratio", chosen, judged, claim.delta, alarm / 3, kinds)
        found += bound.epsilon > claim.epsilon or (claim.mu is not None and bound.mu > claim.mu)
    return found / trials


_Draw = Callable[[int, int, np.random.Generator], Floats]


def _halved_noise(start: Start, learner: Any, people: Game) -> _Draw | None:
    """Return a sampler of the log-likelihood ratio for half the claimed noise scale, or half of the flips."""
    spec = people.spec
    query, schedule = learner.query(spec), learner.schedule(spec)
    session: Any = start(query, schedule, Seeded(0))
    times = session_times(session)
    laws = _flips(session) if isinstance(query, CountQuery) else None
    if laws is not None and len(times) == 1:
        plan, _ = learner.plan(learner.begin(spec, Seeded(0).keys.ties), session.release(), session.answer)
        both = [people.life(people.target, world, plan.policy) for world in (0, 1)]
        moved_by = summand(query, both[1], {}) - summand(query, both[0], {})
        return lambda world, runs, luck: audit_shuffle.half_flips(query, laws, moved_by, world, runs, luck)
    noise = claimed_noise(start(query, schedule, Seeded(0)), query, times)
    if noise is None or (noise.mixings is None and not (noise.measured and len(times) == 1)):
        return None
    first = session.release()
    plan, _ = learner.plan(learner.begin(spec, Seeded(0).keys.ties), first, session.answer)
    lives = [people.life(people.target, world, plan.policy) for world in (0, 1)]
    zero, one = (summand(query, life, plan.context, plan.cut) for life in lives)
    change = np.split(one - zero, query.offsets[1:-1])
    response = (np.asarray(times) >= people.target).astype(np.float64)[:, None]
    if session.guarantee.trust == "local":
        moved = [part[None] / scale for part, scale in zip(change, noise.scales, strict=True)]
    elif noise.mixings is None:  # the only release with users is a measurement
        gain = first.measurement.gain if first.measurement is not None else 1.0
        scales = noise.scales
        if getattr(query, "cut", 0.0):  # the release omits one of the two reward families
            scales = taking_turns(query, scales, plan.cut or query.cut)
        moved = [response * gain * part / scale for part, scale in zip(change, scales, strict=True)]
    else:
        roots = [np.linalg.cholesky(b @ b.T) for b in noise.mixings]
        moved = [np.linalg.solve(root, response) * part for root, part in zip(roots, change, strict=True)]
    if isinstance(query, GramQuery) and query.requeries:
        moved += [
            (
                expected_answer(query, each.question, lives[1:])
                - expected_answer(query, each.question, lives[:1])
            )
            / scale_of(each.answer)
            for each in play(start, learner, people, 0, Seeded(0)).asked
            if each.users >= people.target
        ]
    shift = np.concatenate([part.ravel() for part in moved])
    shift = shift[np.abs(shift) > 0]

    def draw(world: int, runs: int, luck: np.random.Generator) -> Floats:
        source = luck.laplace if noise.laplace else luck.normal
        drawn = source(0.0, 0.5, size=(runs, shift.size)) + world * shift
        if noise.laplace:
            return np.asarray((np.abs(drawn) - np.abs(drawn - shift)).sum(axis=1))
        return np.asarray(0.5 * (drawn**2 - (drawn - shift) ** 2).sum(axis=1))

    return draw


def _broken_reports(start: Start, learner: Any, people: Game) -> _Draw | None:
    """Return a sampler of the log-likelihood ratio for devices with twice the claimed epsilon."""
    spec = people.spec
    query, schedule = learner.query(spec), learner.schedule(spec)
    session: Any = start(query, schedule, Seeded(0))
    reports = getattr(getattr(session, "mechanism", None), "reports", None)
    if (
        reports is None or session.guarantee.trust != "local"
    ):  # without local trust, no adversary sees single messages
        return None
    twice = StepReports.of(
        query, reports.kind, 2 * session.guarantee.epsilon, reports.steps, reports.reward_share
    )
    laws = _report_laws(session, people, learner)
    broken = _report_laws(start(query, schedule, Seeded(0)), people, learner, twice)
    if laws is None or broken is None:
        return None
    messages = sorted({*broken[0], *broken[1]})
    # Messages that have probability 0 under the claim (another subset size) are scored by the actual
    # distribution.
    scores = np.empty(len(messages))
    for i, message in enumerate(messages):
        zero, one = laws if message in laws[0] else broken
        scores[i] = audit_reports.log_ratio(one, zero, message)
    chances = [np.array([float(law.get(m, 0)) for m in messages]) for law in broken]

    def draw(world: int, runs: int, luck: np.random.Generator) -> Floats:
        return np.asarray(scores[luck.choice(len(messages), runs, p=chances[world] / chances[world].sum())])

    return draw
