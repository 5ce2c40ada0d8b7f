"""Learning a policy from a data set with one private release.

A data set contains records of users (:class:`~discreet.core.trajectories.Trajectories`), or describes n
simulated users of a known MDP (:class:`SimulatedDataset`). The counts of simulated users are drawn from their
exact joint distribution (:func:`discreet.envs.rollouts.rollout.batch_counts`). With secure noise, the users
are simulated one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import checks
from discreet.core.count_channels import is_of_counts
from discreet.core.count_query import CountQuery
from discreet.core.rng import Randomness, SecureRng, Seeded
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import MOST_USERS, rollout_batch
from discreet.envs.rollouts.simulated_users import simulate_users
from discreet.learners.offline.apvi import OfflinePolicy
from discreet.learners.offline.decision_points import DecisionPoints, DecisionPolicy
from discreet.learners.offline.interface import OfflineLearner
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.mechanisms.argument_roles import check_role
from discreet.mechanisms.dataset.dataset_release import KeptRelease
from discreet.mechanisms.interfaces import Coins, Privatizer, ProblemSpec, Release, ReturnBounds, Schedule
from discreet.mechanisms.policy_rows import PolicyRows, anybody, policy_rows
from discreet.mechanisms.privatizers.central import Central
from discreet.mechanisms.privatizers.no_privacy import NoPrivacy
from discreet.mechanisms.seeded_rng import SeededRng

_CHUNK = 2**16  # number of users that are simulated together


@dataclass(frozen=True, eq=False)
class SimulatedDataset:
    """Data set of simulated users of an MDP under a behaviour policy.

    Parameters
    ----------
    mdp : TabularMDP
    behaviour : deterministic (H, S) or stochastic (H, S, A) policy that the users follow
    users : number of users, n, from 1 to 1e10
    seed, run : seed and index of the repetition, from which the users' random numbers are derived. The noise
        has independent random numbers

    Raises
    ------
    ValueError
        If the policy is not valid in this MDP, or ``users``, ``seed`` or ``run`` is out of its range.
    """

    __repr__ = brief

    mdp: TabularMDP
    behaviour: ArrayLike | PolicyRows
    users: int
    seed: int = 0
    run: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "behaviour", policy_rows(self.mdp.layout, self.behaviour))
        put(self, "users", checks.integer("users", self.users, 1, MOST_USERS))
        put(self, "seed", checks.integer("seed", self.seed, 0))
        put(self, "run", checks.integer("run", self.run, 0))

    def __len__(self) -> int:
        return self.users

    def chunks(self) -> Iterator[Trajectories]:
        """Yield the users' trajectories in chunks. The users are simulated one by one."""
        for first in range(0, self.users, _CHUNK):
            size = min(_CHUNK, self.users - first)
            yield rollout_batch(self.mdp, self.behaviour, size, self.seed, self.run, first)

    @property
    def key(self) -> NDArray[np.uint64]:
        """Random key from which the users' trajectories are drawn."""
        return Seeded(self.seed, self.run).keys.environment


def make_release(
    data: Trajectories | SimulatedDataset,
    query: CountQuery,
    schedule: Schedule,
    privatizer: Privatizer,
    randomness: Randomness,
) -> Release:
    """Submit all users of a data set to one session, and return the release after the last user.

    Parameters
    ----------
    data : Trajectories or SimulatedDataset
    query : CountQuery
        The sums to release.
    schedule : Schedule
        Schedule with one release, after all n users: ``Schedule.one_shot(n)``.
    privatizer : Central, Local or NoPrivacy
    randomness : Seeded (simulation) or Secure

    Raises
    ------
    ValueError
        If a record is invalid, the data do not fit the query's layout, or the privatizer does not support the
        query.
    """
    users = checks.integer("len(data)", len(data), 1)
    session = privatizer.start(query, schedule, randomness)
    if not is_of_counts(session):
        raise ValueError(f"privatizer = {privatizer!r}: must start a session of counts")
    with session:
        session.release()
        encoder = session.begin(anybody(query.layout, users))
        coins: Coins
        if isinstance(data, SimulatedDataset) and data.mdp.layout != query.layout:
            raise ValueError("data.mdp: must have the layout of the query")
        if isinstance(data, SimulatedDataset) and isinstance(randomness, Seeded):
            crowd = simulate_users(data.mdp, session, query, data.behaviour, users, data.key)
            session.submit_sum(crowd.sums, users)
            return session.release()
        user = 0
        for chunk in data.chunks() if isinstance(data, SimulatedDataset) else (data,):
            if privatizer.trust != "local":
                session.submit_many(chunk, session.open_plan.number)
                continue
            for trajectory in chunk:
                if isinstance(randomness, Seeded):
                    coins = SeededRng(randomness.keys.noise, user)
                else:
                    coins = SecureRng()
                session.submit(encoder(trajectory, session.open_plan, coins))
                user += 1
        return session.release()


def first_visits_of(
    data: Trajectories | SimulatedDataset,
    question: FirstVisits,
    privatizer: Privatizer,
    randomness: Randomness,
) -> KeptRelease:
    """Return one release of the first-visit sums of a data set.

    Parameters
    ----------
    data : trajectories, or simulated users, who are simulated one by one.
    question : query of first visits.
    privatizer : Central or NoPrivacy.
    randomness : Seeded (simulation) or Secure.

    Raises ``ValueError`` if a record is invalid, or the privatizer does not support stored data.
    """
    if not isinstance(privatizer, Central | NoPrivacy):
        raise ValueError(
            f"privatizer = {privatizer!r}: must be Central(...) or NoPrivacy(), for offline data"
        )
    done = 0
    with privatizer.stored(question.query(), randomness) as session:
        for chunk in data.chunks() if isinstance(data, SimulatedDataset) else (data,):
            session.submit_many(question.to_records(chunk), np.arange(done, done + len(chunk)))
            done += len(chunk)
        return session.release().keep()


@overload
def learn_offline(
    data: Trajectories | SimulatedDataset,
    learner: DecisionPoints,
    privatizer: Privatizer,
    randomness: Randomness,
    spec: ProblemSpec | None = None,
) -> DecisionPolicy: ...
@overload
def learn_offline(
    data: Trajectories | SimulatedDataset,
    learner: OfflineLearner,
    privatizer: Privatizer,
    randomness: Randomness,
    spec: ProblemSpec | None = None,
) -> OfflinePolicy: ...
def learn_offline(
    data: Trajectories | SimulatedDataset,
    learner: OfflineLearner | DecisionPoints,
    privatizer: Privatizer,
    randomness: Randomness,
    spec: ProblemSpec | None = None,
) -> OfflinePolicy | DecisionPolicy:
    """Learn a policy from a data set with an offline learner, through one private release.

    Parameters
    ----------
    data : Trajectories or SimulatedDataset
    learner : DPAPVI, APVI or DecisionPoints
    privatizer : Central, Local or NoPrivacy
        For DecisionPoints, the privatizer must be Central or NoPrivacy.
    randomness : Seeded (simulation) or Secure
    spec : ProblemSpec, optional
        Public description of the problem: the layout, known rewards, and bounds of returns. If None, the
        layout of the simulated MDP, with unknown rewards.

    Raises
    ------
    ValueError
        If ``data`` are trajectories and ``spec`` is None, if a record is invalid, or if the parts are
        incompatible.
    """
    check_role("learner", learner, "offline learner")
    check_role("privatizer", privatizer, "privatizer")
    if spec is None:
        if not isinstance(data, SimulatedDataset):
            raise ValueError("spec = None: must be given with trajectories, since sizes are public facts")
        mdp = data.mdp
        spec = ProblemSpec(mdp.layout, stationary=mdp.stationary, returns=ReturnBounds(terminal=mdp.terminal))
    if isinstance(learner, DecisionPoints):
        return learner.learn(first_visits_of(data, learner.question(spec), privatizer, randomness), spec)
    query, schedule = learner.query(spec), learner.schedule(len(data))
    return learner.learn(make_release(data, query, schedule, privatizer, randomness), spec)
