"""Sums of all users stay below 2^51 units."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from discreet.core.count_mechanism import CountMechanism, Stated
from discreet.core.count_query import CountQuery
from discreet.core.layout import Layout
from discreet.core.noise.noises import GAUSSIAN, LAPLACE
from discreet.core.releases import Plan, Schedule
from discreet.core.rng import Secure, Seeded
from discreet.core.strategies import Batches, Exact
from discreet.mechanisms.open_session import session_of

LAYOUT = Layout(3, 2, 4)


def asked(**options: Any) -> CountQuery:
    return CountQuery(LAYOUT, **options)


@pytest.mark.parametrize(
    ("mechanism", "source", "units"),
    [
        (lambda s: CountMechanism(asked(), s, "seeded", Exact()), Seeded(0), 1),
        (
            lambda s: CountMechanism(
                asked(), s, "secure", Batches(), LAPLACE, np.full(3, 20.0), reward_grid=64
            ),
            Secure(64), 64,
        ),
        (
            lambda s: CountMechanism(
                asked(), s, "secure", Batches(0.5), GAUSSIAN, np.full(3, 20.0), reward_grid=64,
                stated=Stated(1e-6),
            ),
            Secure(64), 2**20,
        ),
    ],
    ids=["plain", "grid", "fixed point"],
)  # fmt: skip
@pytest.mark.parametrize("before", [0, 1])
def test_sums_of_all_users_stay_below_2_to_51_units(
    mechanism: Callable[[Schedule], CountMechanism], source: Any, units: int, before: int
) -> None:
    """H = 4 records of a user, each of up to so many units: in two plans, so that users before count too."""
    most = 2**51 // (4 * units)
    for more, fits in ((0, True), (1, False)):
        if units == 2**20 and not fits:
            break  # a schedule of so many users is refused before anybody comes: below
        schedule = Schedule(most + more, times=np.array([0, *[1] * before, most + more - 1]))
        with session_of(mechanism(schedule), source) as session:
            session.release()
            if before:
                session.begin(Plan(np.zeros((4, 3), np.int64), 1))
                session.absent()
                session.release()
            with nullcontext() if fits else pytest.raises(ValueError, match=f"more than {most} users in all"):
                session.begin(Plan(np.zeros((4, 3), np.int64), most + more - before))
    if units == 2**20:
        with pytest.raises(ValueError, match="do not stay exact in fixed point"):
            mechanism(Schedule(most + 1, times=np.array([0, 5])))
