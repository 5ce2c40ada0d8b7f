"""Interface of learners that compute a policy from one release of stored trajectories."""

from __future__ import annotations

from typing import Protocol

from discreet.core.count_query import CountQuery
from discreet.learners.offline.apvi import OfflinePolicy
from discreet.mechanisms.interfaces import ProblemSpec, Release, Schedule, StepwiseRelease


class OfflineLearner(Protocol):
    """Learner that computes a policy from one release, which answers a query to all users."""

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query for all users in the environment that ``spec`` describes."""

    def schedule(self, users: int) -> Schedule:
        """Return a schedule with one release, after all ``users`` users."""

    def learn(self, release: Release | StepwiseRelease, spec: ProblemSpec) -> OfflinePolicy:
        """Learn a policy from ``release`` for the environment that ``spec`` describes.

        Further calls with other options cost no privacy budget.
        """
