"""Baseline without privacy: exact sums. Every output states that no guarantee holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from discreet.core.count_mechanism import CountMechanism
from discreet.core.query import FamilyQuery
from discreet.core.releases import Schedule, Trust
from discreet.core.rng import Randomness
from discreet.core.strategies import Exact
from discreet.mechanisms.interfaces import Budget, Mechanism
from discreet.mechanisms.open_session import Proposes
from discreet.mechanisms.query_checks import (
    check_cut,
    check_source,
    continual_query,
    has_batches,
    is_linear,
    private_query,
    private_schedule,
)
from discreet.utils.config import Knobs

if TYPE_CHECKING:
    from discreet.mechanisms.dataset.dataset_release import OneShotSession


@dataclass(frozen=True, kw_only=True)
class NoPrivacy(Knobs, Proposes):
    """Baseline privatizer: exact sums. Every output states that no guarantee holds.

    preset : "default" or "paper". Both have the same effect here. Other values raise ``ValueError``.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}, "paper": {}}

    @property
    def trust(self) -> Trust:
        """Trust model "none", which has no privacy guarantee."""
        return "none"

    @property
    def budget(self) -> Budget:
        """Stated budget, with trust model "none" and without a limit on the privacy loss."""
        return Budget("none")

    def mechanism(self, query: Any, schedule: Schedule, randomness: Randomness) -> Mechanism:
        """Return the mechanism that releases exact sums of ``query`` at the release times of ``schedule``.

        No noise is drawn from ``randomness``. Raises ``ValueError`` if the query has an unknown type.
        """
        check_source(randomness)
        if has_batches(schedule):
            from discreet.mechanisms.batch_queries import batch_mechanism

            return batch_mechanism(self, query, schedule, randomness)
        if is_linear(query):
            from discreet.mechanisms.privatizers.linear_sums import linear_none

            return linear_none(query, schedule, randomness)
        if type(query) is FamilyQuery:
            from discreet.mechanisms.privatizers.own_families import exact_mechanism

            return exact_mechanism(query, schedule, randomness)
        query, schedule = continual_query(query, cuts=True), private_schedule(schedule)
        check_cut(query, schedule)
        return CountMechanism(query, schedule, randomness.kind, Exact())

    def stored_mechanism(self, query: Any, randomness: Randomness) -> CountMechanism:
        """Return the mechanism that releases exact sums of ``query`` over an offline data set.

        No noise is drawn from ``randomness``.
        """
        check_source(randomness)
        return CountMechanism(
            private_query(query), Schedule.one_shot(1), randomness.kind, Exact(), stored=True
        )

    def stored(self, query: Any, randomness: Randomness) -> OneShotSession:
        """Return a session that releases exact sums of ``query`` over an offline data set, step by step.

        randomness : argument that all privatizers have. No noise is drawn from it here.
        """
        from discreet.mechanisms.dataset.dataset_release import OneShotSession

        return OneShotSession(self.stored_mechanism(query, randomness), randomness)
