r"""Per-pair schedules ("clocks" in code): public facts determine which rows a scheduled release measures.

On the common schedule every release measures every cell. With a clock per row (h, s, a), a release measures
only some rows. The *assigned* users of a row are those whose policy plays a at (h, s), whether or not they
reach s. A row is measured when the public number of its assigned users has grown enough since the last
measurement of the row:

    due at release i:   pending_i > 0   and   pending_i >= growth * counted,

where pending is the number of users assigned since the row's last measurement, and counted is the number of
users assigned before that measurement. A row that no public policy plays is never measured: it contains no
data, has no noise, and is not released. Each measured row gets one fresh noise on its own decaying sum
(:mod:`discreet.core.correlated_noise.decaying_sum`). That sum decays at each measurement of the row, not at
each scheduled release.

Privacy (:mod:`discreet.core.correlated_noise`). Fix everything public. The clocks are then fixed too: they
advance by assignments, never by visits or arrivals. One user's record is in at most one row per step. There
it is in the batch of that row that was open when the user was assigned. It changes the later measurements of
the row in proportion to the column of the decaying stream. Replacing the user moves at most two rows a step,
in each family, by the same amounts as on the common schedule. The joint sensitivity over all steps and
families is therefore unchanged, and each coordinate's noise is fresh. As before, epsilon = Delta_1 / b for
Laplace noise (decay 0), and mu = Delta_2 / sigma for Gaussian noise. The proof needs the following conditions
(brackets name the part that enforces each):

- the scale comes from the joint sensitivity, never from the sensitivity of one row (the privatizer);
- the policy of a user is fixed before the user starts, from earlier releases (order of calls of a session);
- a row that is not measured must contain no data of the user. A record whose action the public policy could
  not play contributes 0 (the session drops it). Every action of positive probability counts as an action that
  the policy plays;
- neighbours differ by replacement only: the set of participants is public.
"""

from __future__ import annotations

from dataclasses import dataclass

from discreet.core import checks
from discreet.core.short_repr import brief

__all__ = ["Clocks"]


@dataclass(frozen=True)
class Clocks:
    """Separate schedule for each row (h, s, a), determined only by public facts.

    growth : at least 0. A row is measured when the number of its assigned users has grown by this fraction
        since its last measurement. 0: at every release. Raises ``ValueError`` below 0.
    """

    __repr__ = brief

    growth: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "growth", checks.real("clock_growth", self.growth, 0.0))
