"""Simulation of users with real-valued contexts, for contextual bandits.

Under local and shuffle privacy, the sum of the devices' messages is drawn from its distribution. With
``stepwise``, every device randomizes its own record. The regret of a user is the highest mean reward in the
user's context minus the mean reward of the user's action.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from discreet.core import checks
from discreet.core.releases import Plan
from discreet.core.rng import Seeded
from discreet.core.short_repr import brief
from discreet.envs.context_worlds import ContextWorld
from discreet.experiments.progress import Progress
from discreet.experiments.run_config import By
from discreet.experiments.seed_run import Ints, SeedRun
from discreet.mechanisms.argument_roles import check_role
from discreet.mechanisms.features import chosen_actions
from discreet.mechanisms.interfaces import Mechanism, ProblemSpec, Schedule
from discreet.mechanisms.linear.context_query import ContextQuery, ContextRecords
from discreet.mechanisms.open_session import session_of
from discreet.mechanisms.seeded_rng import SeededRng

_CHUNK = 20_000  # number of users that are simulated together
_VALUED = 200_000  # number of contexts from which values are estimated


@dataclass(frozen=True, eq=False)
class ContextSetup:
    """Experiment with contexts whose arguments were checked.

    Parameters
    ----------
    mdp : ContextWorld
    learner, privatizer : frozen dataclass objects
    episodes : int
        Number of users K.
    by : "auto", "episode" or "batch"
        Mode of simulation. Under local privacy, "episode" simulates each device.
    stepwise : bool
        If True, users' records are submitted one by one.

    Raises
    ------
    ValueError
        If the parts are incompatible.
    """

    __repr__ = brief

    mdp: ContextWorld
    learner: Any
    privatizer: Any
    episodes: int
    by: By = "auto"
    stepwise: bool = False

    def __post_init__(self) -> None:
        check_role("learner", self.learner, "learner")
        check_role("privatizer", self.privatizer, "privatizer")
        object.__setattr__(self, "episodes", checks.integer("episodes", self.episodes, 1, 10**9))
        checks.choice("by", self.by, ("auto", "episode", "batch"))
        if type(self.query) is not ContextQuery:
            raise ValueError(
                f"learner = {type(self.learner).__name__}: must read contexts, such as LinearBandit, in a "
                "world of contexts"
            )
        _ = self.guarantee  # raises ValueError if the parts are incompatible

    @cached_property
    def spec(self) -> ProblemSpec:
        """Public description of the problem that the learner receives."""
        budget = getattr(self.privatizer, "budget", None)
        return ProblemSpec(self.mdp.layout, self.episodes, budget=budget, features=self.mdp.features)

    @cached_property
    def schedule(self) -> Schedule:
        """Release times of the learner."""
        schedule: Schedule = self.learner.schedule(self.spec)
        return schedule

    @cached_property
    def query(self) -> ContextQuery:
        """Sums that the learner reads."""
        query: ContextQuery = self.learner.query(self.spec)
        return query

    @cached_property
    def mechanism(self) -> Mechanism:
        """Mechanism that the privatizer makes for this learner."""
        mechanism: Mechanism = self.privatizer.mechanism(self.query, self.schedule, Seeded(0, 0))
        return mechanism

    @cached_property
    def guarantee(self) -> Any:
        """Privacy guarantee of the mechanism."""
        return self.mechanism.guarantee

    @cached_property
    def times(self) -> Ints:
        """(releases + 1,) number of users before each release that is followed by users, and then K."""
        times = self.schedule.release_times
        return np.append(times[times < self.episodes], self.episodes)

    @property
    def batched(self) -> bool:
        """True if the messages of many users are added at once."""
        return not self.stepwise and self.by != "episode"

    @property
    def fused(self) -> bool:
        """False: no compiled loop runs this experiment."""
        return False

    @property
    def privacy_note(self) -> None:
        """None: the guarantee covers all data of the learner."""
        return None

    @property
    def label(self) -> str:
        """Name of the learner."""
        return type(self.learner).__name__

    @cached_property
    def _values(self) -> tuple[float, float]:
        rng = np.random.default_rng([0, 7])
        means = np.concatenate([self.mdp.means(self.mdp.draw(_CHUNK, rng)) for _ in range(_VALUED // _CHUNK)])
        return float(means.max(axis=1).mean()), float(means.mean())

    @property
    def optimal_value(self) -> float:
        """Expected reward of the best action, estimated from 200 000 contexts."""
        return self._values[0]

    @property
    def uniform_value(self) -> float:
        """Expected reward of a random action, estimated from 200 000 contexts."""
        return self._values[1]

    @cached_property
    def recorded(self) -> Ints:
        """(M,) numbers of users at which regret is recorded: the ends of batches."""
        return self.times[1:]

    def run(self, seed: int, run: int, progress: Progress | None = None, stop: Any = None) -> SeedRun:
        """Simulate the repetition with index ``run`` under ``seed``.

        - progress : function that is called with (run, number of users simulated so far).
        - stop : an event; when it is set, the run ends with ``InterruptedError``.
        """
        return self.study(seed, run, progress, stop)[0]

    def study(
        self, seed: int, run: int = 0, progress: Progress | None = None, stop: Any = None
    ) -> tuple[SeedRun, Any]:
        """Simulate like :meth:`run`. Returns the run, and the learner's state after its last release.

        seed, run : seed of the study, and number of the run.

        progress, stop : as in :meth:`run`. Raises ``InterruptedError`` if ``stop`` is set.
        """
        randomness, begin = Seeded(seed, run), time.perf_counter()
        keys = randomness.keys
        rng, public = (np.random.default_rng(list(map(int, k))) for k in (keys.environment, keys.ties))
        regret, total, at, users = np.zeros(self.recorded.size), 0.0, 0, 0
        state = self.learner.begin(self.spec, keys.ties)
        with closing(session_of(self.mechanism, randomness)) as session:
            while users < self.episodes:
                plan, state = self.learner.plan(state, session.release(), session.answer)
                encoder = session.begin(plan)
                for records, lost in self._played(plan, rng, public):
                    self._submit(session, records, encoder, plan, keys.noise, users)
                    users, total = users + len(records), total + lost
                    if stop is not None and stop.is_set():
                        raise InterruptedError("the run was stopped")
                    if progress is not None:
                        progress(run, users)
                if at < self.recorded.size and self.recorded[at] == users:
                    regret[at], at = total, at + 1
            if self.schedule.final:
                state = self.learner.read(state, session.release())
        seconds = time.perf_counter() - begin
        return SeedRun(run, self.recorded, regret, regret.copy(), seconds), state

    def _played(
        self, plan: Plan, rng: Generator, public: Generator
    ) -> Iterator[tuple[ContextRecords, float]]:
        """Yield the records of a plan's users in chunks, with the regret of each chunk."""
        features = self.mdp.features
        for first in range(0, plan.users, _CHUNK):
            n = min(_CHUNK, plan.users - first)
            contexts = np.asarray(self.mdp.draw(n, rng), np.float64)
            means, everyone = self.mdp.means(contexts), np.arange(n)
            shared = features.form == "shared"
            actions = chosen_actions(plan.policy, plan.context, features(contexts), shared, public)
            mine = means[everyone, actions]
            rewards = (rng.random(n) < mine).astype(np.float64)
            records = ContextRecords(contexts[:, None], actions[:, None], rewards[:, None])
            yield records, float((means.max(axis=1) - mine).sum())

    def _submit(
        self, session: Any, records: ContextRecords, encoder: Any, plan: Plan, key: Any, users: int
    ) -> None:
        trust = self.privatizer.trust
        if trust not in ("local", "shuffle"):
            if self.stepwise:
                for record in records:
                    session.submit(record)
            else:
                session.submit_many(records, session.open_plan.number)
        elif self.batched:
            whole = session.device.sums(records) if trust == "shuffle" else self.query.sums_of(records)
            session.submit_sum(whole, len(records))
        else:
            for i, record in enumerate(records):
                session.submit(encoder(record, session.open_plan, SeededRng(key, users + i)))
