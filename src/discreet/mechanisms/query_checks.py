"""Checks of a query, a schedule and a source of randomness before a privatizer creates a mechanism."""

from __future__ import annotations

import dataclasses
from typing import Any

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.releases import Schedule
from discreet.core.rng import Secure, Seeded

_MOST_CELLS = 2 * 10**8  # largest number of cells of a session with many releases


def private_query(query: Any, cuts: bool = False) -> CountQuery:
    """Check a query of counts and return a copy. Later changes of the original then do not affect the noise.

    ``cuts`` : True if the caller can release clipped rewards. Raises ``ValueError`` unless the query is a
        :class:`CountQuery`. Also raises ``ValueError`` if the query clips rewards but ``cuts`` is False.
    """
    if type(query).__name__ in ("MixtureQuery", "GramQuery", "ContextQuery"):
        raise ValueError(
            f"privatizer: must be 'none', 'central' or 'local' for a learner of sums of features (ucrl-vtr, "
            f"ucrl-vtr-plus, lsvi-ucb, linear-bandit; their query is a {type(query).__name__}); this one "
            "answers counts"
        )
    if type(query).__name__ == "FamilyQuery":
        raise ValueError(
            "privatizer: must be 'central' (with release 'batches' or 'auto') or 'none' for a learner of a "
            "FamilyQuery, such as the vectors of dp-pg and dp-npg; this one answers a CountQuery"
        )
    if type(query) is not CountQuery:  # a subclass could declare another sensitivity
        raise ValueError(
            f"query is a {type(query).__name__}: this privatizer answers a CountQuery, and no subclass of it"
        )
    query = query.copy()  # copied before the checks, so that the checked object is the object that is used
    if query.cut and not cuts:
        raise ValueError(
            "privatizer: must be 'central' (with release 'batches', 'decaying' or 'auto') or 'none' for a "
            f"learner of clipped rewards (joint; its query.cut = {query.cut:g}); or use a learner without "
            "them, such as noise-aware"
        )
    return query


def check_cut(query: CountQuery, schedule: Schedule) -> None:
    """Raise ``ValueError`` if rewards are clipped and the learner reads sums instead of measurements."""
    if query.cut and schedule.reads == "sums":
        raise ValueError(
            "schedule.reads = 'sums': must be 'measurements' for a query with a cut, whose scales and "
            "families change from release to release"
        )


def continual_query(query: Any, cuts: bool = False) -> CountQuery:
    """Check a query for a session with many releases and return a copy.

    Raises ``ValueError`` if the query does not fit such a session.
    """
    query = private_query(query, cuts)
    if query.episodes > 1:
        raise ValueError(
            f"query.episodes = {query.episodes}: must be 1 in a session of plans and releases, where each "
            "user is one episode; several episodes of offline data are for the one-shot session, "
            "privatizer.stored(query, randomness)"
        )
    query.check_cells(_MOST_CELLS)
    return query


def private_schedule(schedule: Any) -> Schedule:
    """Return a copy of a schedule.

    Other code cannot change the copy. Raises ``ValueError`` for other types.
    """
    checks.exactly("schedule", schedule, Schedule)
    return dataclasses.replace(schedule)


def is_linear(query: Any) -> bool:
    """Return True if a query is for sums of features.

    The result is False for a subclass, because a subclass could declare another sensitivity.
    """
    if type(query) is CountQuery:
        return False  # returns here, so that the modules for feature sums are not imported
    from discreet.mechanisms.linear.context_query import ContextQuery
    from discreet.mechanisms.linear.linear_queries import GramQuery, MixtureQuery

    return checks.is_exactly(query, ContextQuery, GramQuery, MixtureQuery)


def has_batches(schedule: Any) -> bool:
    """Return True if a schedule has a separate query for each batch."""
    return getattr(schedule, "queries", None) is not None


def standing_batch(schedule: Schedule) -> Schedule:
    """Return the one-shot schedule of the last batch if batches have separate queries, else ``schedule``."""
    if not has_batches(schedule):
        return schedule
    times = private_schedule(schedule).release_times
    return Schedule.one_shot(int(times[-1] - times[-2]), schedule.plans)


def check_source(randomness: Any) -> None:
    """Raise ``ValueError`` unless noise can be drawn from ``randomness``."""
    if not checks.is_exactly(randomness, Seeded, Secure):  # a subclass could draw other noise
        raise ValueError(f"randomness = {randomness!r}: must be Seeded(...) or Secure(...)")


def check_queries(schedule: Schedule) -> None:
    """Raise ``ValueError`` if the queries of the batches do not fit the other fields of the schedule."""
    queries = schedule.queries or ()
    batches = 0 if schedule.times is None else schedule.times.size - 1
    if schedule.users is None or not queries or len(queries) != batches:
        raise ValueError(
            f"queries has {len(queries)} entries: must have {batches}, one for each batch between two of the "
            "times of release, with the number of users known"
        )
    for name in ("growth", "max_releases", "pooled_shares"):
        if getattr(schedule, name) is not None:
            raise ValueError(f"{name} = {getattr(schedule, name)!r}: must be None with queries")
    if schedule.answers:
        raise ValueError(f"answers = {schedule.answers}: must be 0 with queries")
