r"""Per-pair schedules ("clocks" in code): which rows a scheduled release measures, from public facts alone.

On the common schedule every release measures every cell. With a clock per row (h, s, a), a release measures
only some rows. The *assigned* users of a row are those whose policy plays a at (h, s), whether or not they
reach s. A row is measured when their public number has grown enough since its last measurement:

    due at release i:   pending_i > 0   and   pending_i >= growth * counted,

where pending is the number of users assigned since the row's last measurement, and counted is that of all
users before. A row that no public policy plays is never measured: it contains nothing, carries no noise, and
releases nothing. Rows that are measured get one fresh noise on their own decaying sum
(:mod:`discreet.core.correlated_noise.decaying_sum`). The ticks of that sum are the row's, not the schedule's.

Privacy (:mod:`discreet.core.correlated_noise`). Fix everything public. The clocks are then fixed too: they
advance by assignments, never by visits or arrivals. One user's record is in at most one row per step, in the
one batch of that row that was open when the user was assigned. It moves the row's later measurements by the
column of the decaying stream. Replacing the user moves at most two rows a step, in each family, by the same
amounts as on the common schedule. The joint sensitivity over all steps and families is therefore unchanged,
and each coordinate's noise is fresh. As before, epsilon = Delta_1 / b for Laplace noise (decay 0), and mu =
Delta_2 / sigma for Gaussian noise. The proof needs the following conditions (enforced by the part in
brackets):

- the scale comes from the joint sensitivity, never from one row's (the privatizer);
- the policy of a user is fixed before the user starts, from earlier releases (order of calls of a session);
- a row that is not measured must contain nothing of the user. A record whose action the public policy could
  not play contributes 0 (the session drops it). Every action of positive probability counts as played;
- only replacement: the set of participants is public.
"""

from __future__ import annotations

from dataclasses import dataclass

from discreet.core import checks
from discreet.core.short_repr import brief

__all__ = ["Clocks"]


@dataclass(frozen=True)
class Clocks:
    """Schedule for each row (h, s, a): which rows a release measures, from public facts alone.

    growth : at least 0. A row is due when its assigned users have grown by this share since its last
    measurement. 0: at every release. Raises ``ValueError`` below 0.
    """

    __repr__ = brief

    growth: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "growth", checks.real("clock_growth", self.growth, 0.0))
