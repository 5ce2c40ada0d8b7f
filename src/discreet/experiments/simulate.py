"""Simulation of the interaction between users and a learner, with three implementations of different speed.

* ``episode``, stepwise: a Python loop that simulates one user at a time, for any learner and any privatizer.
* ``episode``, fused: one compiled loop with bit for bit the same results.
* ``batch``: the counts of all users between two policy updates are drawn from their exact joint distribution.
  The results have the same distribution as with the other two implementations.

Regret is the exact sum over users of V*_0(s_0) - V^pi_0(s_0), where pi is the policy of the user, and the
values are those of the true MDP. Regret is not released, and the privacy guarantee does not protect it.
"""

from __future__ import annotations

import itertools
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.core import checks
from discreet.core.count_channels import is_of_counts
from discreet.core.count_mechanism import CountMechanism
from discreet.core.count_query import CountQuery
from discreet.core.query import FamilyQuery
from discreet.core.rng import Seeded
from discreet.core.session import ChannelSession
from discreet.core.short_repr import brief
from discreet.envs.context_worlds import ContextWorld
from discreet.envs.mdp import planning
from discreet.envs.mdp.tabular import RewardMap, TabularMDP
from discreet.envs.rollouts import fused_session as fused
from discreet.envs.rollouts.rollout import rollout
from discreet.envs.rollouts.simulated_users import reports_of, simulate_users
from discreet.experiments import timing
from discreet.experiments.engine import Engine, Job, results
from discreet.experiments.progress import Progress, shown
from discreet.experiments.run_config import By, check_label
from discreet.experiments.seed_run import Floats, Ints, SeedRun
from discreet.experiments.worker import NoWorkers, Play, packed, processes
from discreet.learners.online.tabular_base import GROWTH
from discreet.mechanisms.argument_roles import check_role
from discreet.mechanisms.interfaces import Learner, Mechanism, Privatizer, ProblemSpec, Schedule, Session
from discreet.mechanisms.open_session import Proposes, session_of
from discreet.mechanisms.policy_rows import policy_rows
from discreet.mechanisms.seeded_rng import SeededRng
from discreet.utils.system import processors

if TYPE_CHECKING:
    from discreet.core.guarantee import Guarantee
    from discreet.experiments.results import Result

MAX_RECORDED = 1000
# Largest number of transition counts in a batch (half a GB) if the query itself has no transition counts.
_MOST_FLOW = 2**26
# A run with this many releases, or this many cells over all releases, is timed first.
_MANY_RELEASES, _MANY_CELLS = 1000, 1e10
_LONG = 20.0  # A warning is issued if the expected duration in seconds exceeds this number.
# Runs are simulated in this process for this many seconds before worker processes are started. The start of
# worker processes takes about as long.
_PATIENCE = 2.0
# Largest number of transition probabilities of an MDP that is compared with its features.
_MOST_PROJECTED = 10**6
# At this mean number of users per batch, batch simulation is about as fast as user-by-user simulation.
_BATCH_PAYS = 50
_CHUNK_SECONDS = 0.2
_clock = time.perf_counter


def recorded(candidates: Ints, most: int = MAX_RECORDED) -> Ints:
    """Select at most ``most`` log-spaced values of ``candidates``, including the last value."""
    if candidates.size <= most:
        return candidates
    wanted = np.geomspace(1.0, float(candidates[-1]), most)
    chosen = np.unique(np.searchsorted(candidates, wanted))
    return candidates[np.minimum(chosen, candidates.size - 1)]


@dataclass(frozen=True, eq=False)
class Setup:
    """Experiment whose arguments were checked, with the true values for the regret.

    Parameters
    ----------
    mdp : TabularMDP
    learner, privatizer : frozen dataclass objects
    episodes : int
        K, the number of users.
    by : "auto", "episode" or "batch"
        ``auto`` simulates by batches if the learner's schedule has at least 50 users per batch on average.
        For sums of features, there must also be at most 2^26 transition counts H R S; ``batch`` raises
        ``ValueError`` if there are more. If the query contains first visits, returns of groups or clipped
        rewards, every user is simulated for every value of ``by``.
    stepwise : bool
        If True, use the stepwise Python loop even if the compiled loop supports the experiment.
    """

    __repr__ = brief

    mdp: TabularMDP
    learner: Learner
    privatizer: Privatizer
    episodes: int
    by: By = "auto"
    stepwise: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.mdp, TabularMDP):
            raise ValueError(f"mdp = {self.mdp!r}: must be a TabularMDP, such as discreet.make('riverswim')")
        check_role("learner", self.learner, "learner")
        check_role("privatizer", self.privatizer, "privatizer")
        object.__setattr__(self, "episodes", checks.integer("episodes", self.episodes, 1, 10**10))
        checks.choice("by", self.by, ("auto", "episode", "batch"))
        bound = getattr(self.learner, "truncates_at", None)
        if bound is not None and self.mdp.reward_map != RewardMap(1.0 / (2.0 * bound), 0.5):
            raise ValueError(
                f"learner.threshold = {bound:g}: must be the threshold at which the environment truncates "
                "rewards (discreet.envs.heavy_tailed)"
            )
        if self.by == "batch" and self._flow > _MOST_FLOW:
            raise ValueError(
                f"by = 'batch': a batch's flow would have {self._flow} transition counts (H R S), at most "
                f"{_MOST_FLOW} are allowed for sums of features; use 'episode' or 'auto'"
            )
        _ = self.guarantee  # this line raises ValueError if the parts are incompatible
        self._warn_of_misfit()

    def _warn_of_misfit(self) -> None:
        """Warn if a linear learner is used in an MDP that is not linear in the MDP's features."""
        features = self.mdp.features
        size = self.mdp.transition_slots * self.mdp.states**2 * self.mdp.actions
        if features is None or not hasattr(self.learner, "FEATURES") or size > _MOST_PROJECTED:
            return
        from discreet.experiments.features_fit import world_misfit

        found = world_misfit(self.mdp, features)
        if not found.fits:
            warnings.warn(f"{type(self.learner).__name__}: {found}", UserWarning, stacklevel=_caller())

    @cached_property
    def spec(self) -> ProblemSpec:
        """Public description of the problem that the learner receives."""
        known = self.mdp.rewards if getattr(self.learner, "known_rewards", False) else None
        budget = getattr(self.privatizer, "budget", None)
        initial = self.mdp.initial if getattr(self.learner, "known_initial", False) else None
        mdp = self.mdp
        return ProblemSpec(mdp.layout, self.episodes, mdp.stationary, known, budget, mdp.features, initial)

    @cached_property
    def schedule(self) -> Schedule:
        """Release times of the learner."""
        schedule: Schedule = self.learner.schedule(self.spec)
        return schedule

    @cached_property
    def query(self) -> CountQuery:
        """Sums that the learner reads."""
        query: CountQuery = self.learner.query(self.spec)
        return query

    @cached_property
    def times(self) -> Ints:
        """(releases + 1,) number of users before each release that is followed by users, and then K."""
        times = self.schedule.release_times
        return np.append(times[times < self.episodes], self.episodes)

    @property
    def compiled(self) -> Any:
        """Learner without a static type, for compiled loops."""
        return self.learner

    @cached_property
    def exploring(self) -> Ints:
        """(releases, E) number of users in each batch who follow each of the E exploring policies."""
        count = self.compiled._exploring
        batches = itertools.pairwise(self.times.tolist())
        sizes = [count(first, end - first, self.spec) for first, end in batches]
        return np.array(sizes, np.int64).reshape(len(sizes), self.compiled.explorers)

    @cached_property
    def batched(self) -> bool:
        """True if users are simulated by batches."""
        if any(getattr(q, "pooled", "none") == "first" for q in (self.query, *(self.schedule.queries or ()))):
            return False
        if isinstance(self.query, FamilyQuery):  # its sums need each user's trajectory
            return False
        if self.by == "auto" and self._flow > _MOST_FLOW:
            return False
        if self.by == "auto":
            return self.episodes >= _BATCH_PAYS * (self.times.size - 1)
        return self.by == "batch"

    @property
    def _flow(self) -> int:
        """Number of transition counts that a batch needs; 0 if the query consists of counts."""
        if not hasattr(self.query, "simulated"):
            return 0
        return self.mdp.horizon * self.mdp.layout.rows * self.mdp.states

    @cached_property
    def mechanism(self) -> Mechanism:
        """Mechanism that the privatizer makes for this learner."""
        mechanism: Mechanism = self.privatizer.mechanism(self.query, self.schedule, Seeded(0, 0))
        return mechanism

    @cached_property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee of the mechanism."""
        return self.mechanism.guarantee

    @property
    def privacy_note(self) -> str | None:
        """Text about data of the learner that the guarantee does not cover, such as a prior; or None."""
        note: str | None = getattr(self.learner, "privacy_note", lambda _: None)(self.spec)
        return note

    @cached_property
    def fused(self) -> bool:
        """True if the compiled loop runs this experiment."""
        if self.stepwise or not hasattr(self.learner, "kernel") or self.query.steered:
            return False
        if self.mdp.true_rewards is not None:
            return False  # compiled code computes regret from the rewards that it draws
        if not isinstance(self.mechanism, CountMechanism) or self.mechanism.declared:
            return False  # compiled code draws only noise from seeds, and calls no function that a user
            # defined
        if self.mechanism.walk is not None and self.mechanism.walk.code < 0:
            return False  # a matrix has no compiled program
        return isinstance(self.privatizer, Proposes) or is_of_counts(self.start(Seeded(0, 0)))

    @cached_property
    def error_steps(self) -> tuple[Ints, Floats]:
        """Error bounds of the learner, for the n intervals of the schedule in which the noise is constant.

        The value is the (n,) numbers of users at which the intervals end, and an array with one row of bounds
        per interval.
        """
        assert isinstance(self.mechanism, CountMechanism)
        laws = self.mechanism.laws
        steps = laws.measurements() if self.schedule.reads == "measurements" else laws.steps()
        ends, rows, last = np.array([end for end, _ in steps], np.int64), list[Floats](), None
        for _, found in steps:
            rows.append(rows[-1] if found is last else self.compiled.errors(found, self.spec))
            last = found
        return ends, np.array(rows)

    @cached_property
    def _optimal(self) -> tuple[Floats, Floats]:
        values, q, _ = planning.optimal_values(self.mdp.judge)
        return values, self.mdp.layout.to_rows(values[:-1, :, None] - q)

    @property
    def start_values(self) -> Floats:
        """(S,) V*_0."""
        return np.ascontiguousarray(self._optimal[0][0])

    @property
    def gaps(self) -> Floats:
        """(H, R) gaps V*_h(s) - Q*_h(s, a) of all admissible pairs."""
        return self._optimal[1]

    @cached_property
    def optimal_value(self) -> float:
        """Expected return of one user under the optimal policy."""
        return float(self.mdp.initial @ self.start_values)

    @cached_property
    def uniform_value(self) -> float:
        """Expected return of one user under the policy that selects actions uniformly at random."""
        return float(planning.policy_value(self.mdp.judge, planning.uniform_policy(self.mdp)))

    @cached_property
    def recorded(self) -> Ints:
        """(M,) numbers of users at which regret is recorded; M <= 1000, and the last number is K."""
        if self.batched:
            return recorded(self.times[1:])
        wanted = np.geomspace(1.0, float(self.episodes), min(MAX_RECORDED, self.episodes))
        return np.unique(np.round(wanted).astype(np.int64))

    def start(self, randomness: Seeded) -> Session:
        """Start a new session."""
        if isinstance(self.privatizer, Proposes):
            return session_of(self.mechanism, randomness)
        session: Session = self.privatizer.start(self.query, self.schedule, randomness)
        return session

    @property
    def label(self) -> str:
        """Name of the learner, with a remark if the learner ignores the noise."""
        name = type(self.learner).__name__
        ignores = getattr(self.learner, "ignores_noise", False) and self.guarantee.trust != "none"
        return f"{name} (ignores the noise law)" if ignores else name

    def run(self, seed: int, run: int, progress: Progress | None = None, stop: Any = None) -> SeedRun:
        """Simulate the repetition with index ``run`` under ``seed``.

        Parameters
        ----------
        progress : function that is called with (run, number of users simulated so far).
        stop : an event; when it is set, the run ends with ``InterruptedError``.
        """
        randomness = Seeded(seed, run)
        begin = time.perf_counter()

        def report(users: int) -> None:
            if stop is not None and stop.is_set():
                raise InterruptedError("the run was stopped")
            if progress is not None:
                progress(run, users)

        simulate_one = _run_fused if self.fused else _run_stepwise
        regret, gap = simulate_one(self, randomness, report)
        return SeedRun(run, self.recorded, regret, gap, time.perf_counter() - begin)


# ------------------------------------------------------------------------------- stepwise


def _run_stepwise(setup: Setup, randomness: Seeded, report: Callable[[int], None]) -> tuple[Floats, Floats]:
    keys = randomness.keys
    regret, gap_regret = np.zeros(setup.recorded.size), np.zeros(setup.recorded.size)
    running, running_gap, at, users = 0.0, 0.0, 0, 0
    waiting: dict[str, Floats] = {}  # sums of plans that will be submitted together
    several = 0  # number of users who followed these plans
    state = setup.learner.begin(setup.spec, keys.ties)
    with closing(setup.start(randomness)) as session:
        while users < setup.episodes:
            if not waiting:
                release = session.release()
            plan, state = setup.learner.plan(state, release, session.answer)
            if not waiting:
                encoder = session.begin(plan)
            policy = policy_rows(setup.mdp.layout, plan.policy)
            values = planning.evaluate_policy(setup.mdp.judge, policy)[0]
            if setup.batched:
                crowd = simulate_users(
                    setup.mdp, session, setup.query, policy, plan.users, keys.environment, users, plan.group
                )
                sums, starts, visits = crowd.sums, crowd.starts, crowd.visits
                users += plan.users
                if waiting:
                    for name, table in sums.items():
                        waiting[name] += table
                    several += plan.users
                    if plan.last or users == setup.episodes:
                        session.begin(replace(plan, users=several))
                        session.submit_sum(waiting, several)
                        waiting, several = {}, 0
                else:
                    together = not plan.last and _added_at_once(setup, session)
                    session.submit_sum(sums, plan.users)
                    if together:
                        waiting = {name: np.zeros_like(table) for name, table in sums.items()}
                lost = starts * (setup.start_values - values)
                running += _in_order(lost)
                running_gap += _in_order(visits * setup.gaps)
                at = _record(setup, at, users, running, running_gap, regret, gap_regret)
                report(users)
                continue
            for _ in range(plan.users):
                trajectory = rollout(setup.mdp, policy, keys.environment, users)
                session.submit(encoder(trajectory, plan, SeededRng(keys.noise, users)))
                users += 1
                start = trajectory.states[0]
                rows = setup.mdp.layout.row_index[trajectory.states[:-1], trajectory.actions]
                gap = 0.0
                for h, row in enumerate(rows.tolist()):
                    gap += float(setup.gaps[h, row])
                running += float(setup.start_values[start] - values[start])
                running_gap += gap
                at = _record(setup, at, users, running, running_gap, regret, gap_regret)
            report(users)
    return regret, gap_regret


def _in_order(terms: Floats) -> float:
    """Return the sum of the terms, added in the same order as in compiled code."""
    return float(np.cumsum(terms)[-1])


def _record(
    setup: Setup, at: int, users: int, running: float, gap: float, regret: Floats, gap_regret: Floats
) -> int:
    if at < setup.recorded.size and setup.recorded[at] == users:
        regret[at], gap_regret[at] = running, gap
        return at + 1
    return at


def _added_at_once(setup: Setup, session: Session) -> bool:
    """Return True if the sums of all further plans of a batch can be submitted together."""
    counted = isinstance(setup.query, CountQuery) and not setup.query.steered
    return counted and setup.privatizer.trust != "local" and reports_of(session) is None


# ---------------------------------------------------------------------------------- fused


def _run_fused(setup: Setup, randomness: Seeded, report: Callable[[int], None]) -> tuple[Floats, Floats]:
    from discreet.experiments import fused_driver_kernels as drivers

    session = setup.start(randomness)
    assert isinstance(session, ChannelSession)
    arrays = fused.handed_over(session)
    stream = drivers.Stream(
        arrays.stream, arrays.family, arrays.key, arrays.offsets, arrays.scales, arrays.by_user,
        arrays.begins, arrays.slots, arrays.reward_shift, arrays.cells, arrays.ends, arrays.stack,
        arrays.decay, arrays.gain, arrays.program, arrays.reports, arrays.release_scales,
    )  # fmt: skip
    side = _fused_side(setup, randomness)
    scratch = _fused_scratch(setup, arrays.stream)
    size = setup.recorded.size
    record = drivers.Record(
        setup.recorded, np.zeros(size), np.zeros(size), np.zeros(2), np.zeros(1, np.int64)
    )
    truth = drivers.Truth(setup.mdp.world, setup.start_values, setup.gaps)
    releases, done, chunk = setup.times.size - 1, 0, 8
    while done < releases:
        begin = time.perf_counter()
        until = min(releases, done + chunk)
        drivers.run_releases(
            truth, stream, side, scratch, record, randomness.keys.environment, done, until, setup.batched
        )
        done = until
        report(int(setup.times[done]))
        seconds = time.perf_counter() - begin
        chunk = max(1, min(4 * chunk, int(chunk * _CHUNK_SECONDS / max(seconds, 1e-6))))
    return record.regret, record.gap_regret


def _fused_side(setup: Setup, randomness: Seeded) -> Any:
    """Return the arguments of the compiled loop for the learner."""
    from discreet.experiments import fused_driver_kernels as drivers
    from discreet.learners.estimation.model_kernels import REWARD_ABSENT, REWARD_CENTERED, REWARD_SUMS

    learner, spec, query, layout = setup.compiled, setup.spec, setup.query, setup.mdp.layout
    horizon, rows, states = layout.horizon, layout.rows, layout.states
    family = (
        REWARD_ABSENT if query.known_rewards else REWARD_CENTERED if query.center_rewards else REWARD_SUMS
    )
    known = np.zeros((0, 0)) if spec.known_rewards is None else layout.to_rows(spec.known_rewards)
    error_ends, errors = setup.error_steps
    return drivers.Side(
        kernel=learner.kernel(spec),
        measures=setup.schedule.reads == "measurements",
        stochastic=bool(learner.stochastic),
        joined=bool(learner.joined),
        tie_batches=int(learner.tie_batches),
        state_ptr=layout.state_ptr,
        reward_family=family,
        known_rewards=known,
        error_ends=error_ends,
        error_table=errors,
        exploring=setup.exploring,
        trials=np.zeros((learner.explorers, horizon, rows)),
        times=setup.times,
        ties_key=randomness.keys.ties,
        memory=np.array(learner.begin_memory(spec)),
        values=np.zeros((horizon + 1, states)),
        q=np.zeros((horizon, rows)),
        policy_rows=np.zeros((horizon, states), np.int64),
        probabilities=np.zeros((horizon, rows)),
    )


def _fused_scratch(setup: Setup, stream: int) -> Any:
    """Return the work arrays of the compiled loop.

    stream : code of the noise stream, such as ``drivers.WALK``.
    """
    from discreet.envs.mdp.tabular_kernels import work_size
    from discreet.experiments import fused_driver_kernels as drivers

    query, layout = setup.query, setup.mdp.layout
    horizon, rows, states = layout.horizon, layout.rows, layout.states
    per_slot, cells = (query.slots, rows), query.cells
    parts = int(setup.compiled.tie_batches) + setup.compiled.explorers
    whole = setup.schedule.reads == "measurements" or stream in (drivers.WALK, drivers.DECAYING)
    return drivers.Scratch(
        released=np.zeros(cells if whole else 1),
        noise=np.zeros(cells if stream != drivers.EXACT else 1),
        visits=np.zeros(per_slot),
        transitions=np.zeros((*per_slot, states)),
        reward_sums=np.zeros(per_slot),
        plan=np.zeros(setup.compiled.work_size(setup.spec)),
        policies=np.zeros((parts, horizon, states), np.int64),
        sizes=np.zeros(parts, np.int64),
        before=np.full((horizon, states), -1, np.int64),
        policy_values=np.zeros((horizon + 1, states)),
        states=np.zeros(horizon + 1, np.int64),
        rows=np.zeros(horizon, np.int64),
        rewards=np.zeros(horizon),
        starts=np.zeros(states),
        step_visits=np.zeros((horizon, rows)),
        batch_visits=np.zeros(per_slot),
        batch_rewards=np.zeros(per_slot),
        batch_transitions=np.zeros((*per_slot, states) if query.pooled == "all" else (0, 0, 0)),
        pooled_transitions=np.zeros((0, 0, 0)),
        pooled_rewards=np.zeros((0, 0)),
        flow=np.zeros(work_size(setup.mdp.world), np.int64),
        errors=np.zeros(setup.error_steps[1].shape[1]),
    )


# --------------------------------------------------------------------------------- many seeds


@dataclass(frozen=True)
class _Here:
    """Task that simulates repetitions in a thread of this process."""

    setup: Setup
    seed: int
    progress: Progress | None
    stop: threading.Event

    def __call__(self, runs: Sequence[int]) -> list[SeedRun]:
        return [self.setup.run(self.seed, run, self.progress, self.stop) for run in runs]


def iterate_runs(
    setup: Setup,
    seed: int,
    runs: Sequence[int],
    workers: int | None = None,
    progress: Progress | None = None,
    executor: Executor | Engine | None = None,
    take: Callable[[int], bool] | None = None,
) -> Iterator[SeedRun]:
    """Simulate the listed repetitions, and yield the result of each when it is done.

    Fused runs are executed in threads of this process. Stepwise runs are executed in worker processes; if
    ``workers`` is None, they begin in this process. If ``executor`` is given, it executes all runs.
    ``progress(run, users)`` can be called from other threads. ``take(run)`` is called before each run; if the
    result is False, the run is left out.
    """
    checks.integer("seed", seed, 0)
    wanted = processors() if workers is None else checks.integer("workers", workers, 1)
    wanted = min(wanted, max(1, len(runs)))
    mine = cache(take or (lambda run: True))  # `take` is called once per run
    if not any(mine(run) for run in runs):
        return  # other processes have claimed all runs, so no preparation is needed
    if executor is None:
        _warn_of_time(setup, seed, -(-len(runs) // wanted))
    if wanted == 1 and executor is None:
        for run in runs:
            if mine(run):
                yield setup.run(seed, run, progress, threading.Event())
        return
    stop = threading.Event()
    if executor is None and not setup.fused:
        done: set[int] = set()
        for quick in _here_while_quick(setup, seed, runs, progress, mine) if workers is None else ():
            done.add(quick.run)
            yield quick
        left = [run for run in runs if run not in done]
        if any(mine(run) for run in left):
            yield from _in_processes(setup, seed, left, min(wanted, len(left)), progress, mine)
        return
    if executor is not None:
        engine = Engine.of(executor, workers)
        call: _Here | Play = Play(pickle.loads, packed(setup, engine.name), seed)
    else:
        engine = Engine("threads", partial(ThreadPoolExecutor, wanted), wanted, ahead=1, together=0.0)
        call = _Here(setup, seed, progress, stop)

    with ExitStack() as stack:
        if engine is not executor:
            stack.enter_context(engine)
        stack.callback(stop.set)
        job = Job(call, tuple(runs), setup.label)
        found = results(engine, [job], lambda _, run: mine(run))
        for _, result in stack.enter_context(closing(found)):
            if progress is not None and executor is not None:
                progress(result.run, setup.episodes)
            yield result


def _warn_of_time(setup: Setup, seed: int, turns: int) -> None:
    """Warn if a run plans often and is expected to take long.

    turns : number of runs that one worker simulates one after the other.
    """
    releases = setup.times.size - 1
    cells = float(getattr(setup.query, "cells", 0)) * releases
    if releases < _MANY_RELEASES and cells < _MANY_CELLS:
        return
    seen = timing.moments(lambda watch: setup.run(seed, 0, watch))
    expected = None if seen is None else seen.estimate(setup.times, setup.batched)
    if expected is None or expected * turns <= _LONG:
        return
    scheduled = Schedule(setup.episodes, growth=GROWTH).release_times.size
    faster = [
        ""
        if releases < _MANY_RELEASES
        else f"replan_growth={GROWTH:g} (policies change on a public schedule, {scheduled:,} times)",
        "stationary=True (pools the steps)" if _can_pool(setup) else "",
    ]
    advice = " and ".join(way for way in faster if way)
    warnings.warn(
        f"this is slow: about {timing.in_words(expected * turns)}, since the learner plans {releases:,} "
        f"times for {setup.episodes:,} users" + (f"; faster: {advice}" if advice else ""),
        UserWarning,
        stacklevel=_caller(),
    )


def _can_pool(setup: Setup) -> bool:
    """Return True if the option ``stationary`` of the learner would pool the counts of all steps."""
    if not setup.mdp.stationary or getattr(setup.learner, "stationary", True):
        return False
    query = replace(setup.learner, stationary=True).query(setup.spec)  # type: ignore[type-var]
    return bool(getattr(query, "stationary", False))


class _Outgrown(Exception):
    """Exception: runs in this process have taken longer than worker processes need to start."""


def _here_while_quick(
    setup: Setup, seed: int, runs: Sequence[int], progress: Progress | None, mine: Callable[[int], bool]
) -> Iterator[SeedRun]:
    """Simulate runs in this process until they have taken as long as worker processes need to start."""
    spent = 0.0
    for i, run in enumerate(runs):
        if not mine(run):
            continue
        left = np.inf if i == len(runs) - 1 else _PATIENCE - spent
        first: list[float] = []
        try:
            found = setup.run(seed, run, partial(_impatient, progress, setup.episodes, left, first))
        except _Outgrown:
            return
        spent += _clock() - first[0]
        yield found
        if spent > _PATIENCE:
            return


def _impatient(
    progress: Progress | None, episodes: int, left: float, first: list[float], run: int, users: int
) -> None:
    """Report progress, and raise ``_Outgrown`` ``left`` seconds after the first report of a run."""
    if not first:
        first.append(_clock())
    if _clock() - first[0] > left and users < episodes:
        raise _Outgrown
    if progress is not None:
        progress(run, users)


def _in_processes(
    setup: Setup,
    seed: int,
    runs: Sequence[int],
    workers: int,
    progress: Progress | None,
    mine: Callable[[int], bool],
) -> Iterator[SeedRun]:
    """Simulate runs in worker processes, or in this process with a warning if processes cannot be started."""
    sent = packed(setup, f"workers = {workers}")
    done: set[int] = set()
    try:
        with processes(workers, sent) as engine:
            job = Job(Play(pickle.loads, sent, seed), tuple(runs), setup.label)
            with closing(results(engine, [job], lambda _, run: mine(run))) as found:
                for _, result in found:
                    done.add(result.run)
                    if progress is not None:
                        progress(result.run, setup.episodes)
                    yield result
    except NoWorkers as reason:
        warnings.warn(
            f"the runs are done one after the other, since other processes cannot help: {reason}",
            RuntimeWarning,
            stacklevel=_caller(),
        )
        for run in runs:
            if run not in done and mine(run):
                yield setup.run(seed, run, progress, threading.Event())


def _caller() -> int:
    """Return the ``stacklevel`` with which a warning points to the code that called this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("discreet."):
        frame, level = frame.f_back, level + 1
    return level


def setup_of(mdp: Any) -> type[Any]:
    """Return the class that runs experiments in this environment."""
    if isinstance(mdp, ContextWorld):
        from discreet.experiments.context_runs import ContextSetup

        return ContextSetup
    return Setup


def simulate(
    mdp: TabularMDP | ContextWorld,
    learner: Learner,
    privatizer: Privatizer,
    episodes: int,
    seeds: int = 1,
    seed: int = 0,
    by: By = "auto",
    workers: int | None = None,
    stepwise: bool = False,
    progress: bool | Progress = False,
    executor: Executor | Engine | None = None,
    label: str | None = None,
) -> Result:
    """Simulate the interaction of a learner with ``episodes`` users under a privatizer, ``seeds`` times.

    Parameters
    ----------
    mdp : TabularMDP or ContextWorld. The environment, such as ``dr.make("riverswim")``.
    learner, privatizer : frozen dataclass objects
        The learner and the privatizer, such as ``dr.DPUCBVI()`` and ``dr.Central(epsilon=1.0)``.
    episodes : int. K, the number of users in one run, at most 1e10.
    seeds, seed : int
        Number of repetitions, and the seed from which the random keys of all repetitions are derived.
    by : "auto", "episode" or "batch"
        "episode" simulates each user. "batch" draws the counts of all users between two policy updates from
        their exact distribution. "auto" selects the faster mode.
    workers : int, optional
        Number of parallel runs (default: the number of processors). The results do not depend on ``workers``.
    stepwise : bool
        If True, use the stepwise Python loop. The results are bit for bit the same as with the compiled loop.
    progress : bool or callable
        If True, show a bar on standard error. A function is called with (run, number of users simulated so
        far), possibly from other threads.
    executor : concurrent.futures.Executor or Engine, optional
        Executes the runs instead of threads and processes of this machine. Examples are an executor of loky
        or mpi4py, Dask's ``client.get_executor()``, and ``dr.experiments.open_engine("ray")``. ``workers`` is
        then the number of parallel tasks. The caller must close the executor.
    label : name of the run in figures and tables; by default, the learner, its preset and its options

    Returns
    -------
    Result
        Regret curves of all repetitions in the environment's units of reward, and the guarantee.

    Raises
    ------
    ValueError
        If an argument is out of range, or if learner, privatizer and environment are incompatible.
    """
    from discreet.experiments.results import Result

    checks.integer("seeds", seeds, 1)
    if not (isinstance(progress, bool) or callable(progress)):
        raise ValueError(f"progress = {progress!r}: must be true, false, or a function of (run, users)")
    if label is not None:
        check_label(label)
    setup: Any = setup_of(mdp)(mdp, learner, privatizer, episodes, by, stepwise)
    with shown(progress, label or setup.label, seeds * setup.episodes) as report:
        runs = list(iterate_runs(setup, seed, range(seeds), workers, report, executor))
    return Result.from_runs(setup, seed, runs, label=label)
