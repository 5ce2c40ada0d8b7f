"""Mechanisms of a :class:`~discreet.core.query.FamilyQuery`: fresh noise in every batch.

The families of a query can be any combination of visits, transitions, sums of rewards and user-defined
vectors (:class:`~discreet.core.vectors.BoundedVector`). Every family uses its share of the budget. The shares
are equal by default. Otherwise they are the privatizer's ``weights``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.core.count_mechanism import CountMechanism, Stated, grid_of
from discreet.core.noise.noises import GAUSSIAN, LAPLACE, AdditiveNoise
from discreet.core.query import FamilyQuery
from discreet.core.releases import Schedule
from discreet.core.rng import Randomness
from discreet.core.strategies import Batches, Exact
from discreet.mechanisms.query_checks import private_schedule

if TYPE_CHECKING:
    from discreet.mechanisms.privatizers.central import Central

_MOST_CELLS = 2 * 10**8


def central_mechanism(
    privatizer: Central, query: FamilyQuery, schedule: Schedule, randomness: Randomness
) -> CountMechanism:
    """Return the mechanism with the least noise that meets the privatizer's budget.

    The choice is the noise with the smaller standard deviation, on average over the families.

    Raises
    ------
    ValueError
        If an option is for counts only, K is unknown, or no noise meets the budget.
    """
    query, schedule = _checked(query), private_schedule(schedule)
    if privatizer.release not in ("auto", "batches") or privatizer.calibration == "published":
        raise ValueError(
            f"release = {privatizer.release!r}, calibration = {privatizer.calibration!r}"
            f"{privatizer._by_preset('release')}: must be 'auto' or 'batches', and 'exact', for a FamilyQuery"
        )
    if schedule.users is None:
        raise ValueError("users = None: a FamilyQuery needs a known number of users")
    options: list[tuple[AdditiveNoise, np.ndarray, float]] = []
    mu = privatizer._target_mu(randomness.kind == "secure")
    if privatizer.noise in ("laplace", "auto") and privatizer.epsilon is not None:
        scales = privatizer._laplace(query, 1)
        options.append((LAPLACE, scales, float(np.sqrt(2) * scales.mean())))
    if privatizer.noise in ("gaussian", "auto") and mu is not None:
        scales = privatizer._gaussian(query, 1, mu)
        options.append((GAUSSIAN, scales, float(scales.mean())))
    if not options:
        raise ValueError(f"noise = {privatizer.noise!r}: does not meet this budget")
    noise, scales, _ = min(options, key=lambda option: option[2])
    stated = Stated(privatizer.stated_delta, privatizer.epsilon)
    return CountMechanism(
        query, schedule, randomness.kind, Batches(), noise, scales, grid_of(randomness), stated=stated
    )


def exact_mechanism(query: FamilyQuery, schedule: Schedule, randomness: Randomness) -> CountMechanism:
    """Return the mechanism without noise and without a guarantee."""
    return CountMechanism(_checked(query), private_schedule(schedule), randomness.kind, Exact())


def _checked(query: FamilyQuery) -> FamilyQuery:
    """Return a copy of a query that one session can answer. Raises ``ValueError`` otherwise."""
    query = query.copy()
    if query.episodes > 1:
        raise ValueError(f"query.episodes = {query.episodes}: must be 1 in a session of plans and releases")
    if query.cells > _MOST_CELLS:
        raise ValueError(f"query has {query.cells:.3g} cells: at most {_MOST_CELLS:.3g} are allowed")
    return query
