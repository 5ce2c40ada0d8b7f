r"""Clocks: which rows a scheduled release measures, from public facts alone.

On the common clock every release measures every cell. With a clock per row (h, s, a), a release measures
the rows whose public number of *assigned* users (those whose policy plays a at (h, s), whether they come
to s or not) has grown enough since the row was measured last:

    due at release i:   pending_i > 0   and   pending_i >= growth * counted,

pending the users assigned since the row's last measurement, counted all before. A row that no public
policy plays is never measured: it holds nothing, carries no noise, and says nothing. Rows that are
measured get one fresh noise on their own decaying sum (:mod:`discreet.core.correlated_noise.decaying_sum`),
whose ticks are then the row's, not the schedule's.

Privacy (:mod:`discreet.core.correlated_noise`). Fix everything public. The clocks are then fixed too: they
move by assignments, never by visits or arrivals. One user's record is in at most one row per step, in the one
batch of that row that was open when she was assigned, and moves the row's later measurements by the column of
the decaying stream. Exchanging her moves at most two rows a step, in each family, by the same amounts as on
the common clock, so the joint sensitivity over all steps and families is unchanged, and each coordinate's
noise is fresh: epsilon = Delta_1 / b for Laplace noise (decay 0), mu = Delta_2 / sigma for Gaussian noise, as
before. What the proof needs, and where it is kept:

- the scale comes from the joint sensitivity, never from one row's (the privatizer);
- the policy of a user is fixed before she starts, from earlier releases (order of calls of a session);
- a row that is not measured must hold nothing of hers: a record whose action the public policy could not
  play contributes 0 (the session drops it); every action of positive probability counts as played;
- only replacement: who takes part is public.
"""

from __future__ import annotations

from dataclasses import dataclass

from discreet.core import checks
from discreet.core.short_repr import brief

__all__ = ["Clocks"]


@dataclass(frozen=True)
class Clocks:
    """A clock for each row (h, s, a): which rows a release measures, from public facts alone.

    growth : at least 0; a row is due when its assigned users have grown by this share since it was measured
    last. 0: at every release. Raises ``ValueError`` below 0.
    """

    __repr__ = brief

    growth: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "growth", checks.real("clock_growth", self.growth, 0.0))
