"""Interface of learners that read one release of stored trajectories."""

from __future__ import annotations

from typing import Protocol

from discreet.core.count_query import CountQuery
from discreet.learners.offline.apvi import OfflinePolicy
from discreet.mechanisms.interfaces import ProblemSpec, Release, Schedule, StepwiseRelease

__all__ = ["OfflineLearner"]


class OfflineLearner(Protocol):
    """Learner that makes one query to all users, then learns from its single release."""

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query for all users in the environment that ``spec`` describes."""
        ...

    def schedule(self, users: int) -> Schedule:
        """Return the schedule of one release after the last of ``users`` users."""
        ...

    def learn(self, release: Release | StepwiseRelease, spec: ProblemSpec) -> OfflinePolicy:
        """Learn a policy for ``spec`` from the release; as post-processing, this can be repeated."""
        ...
