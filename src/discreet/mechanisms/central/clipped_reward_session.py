"""Session that releases clipped rewards (each user's rewards up to a total C) or centred rewards.

A release contains one of these two families, with a separate noise scale
(:mod:`discreet.core.clipped_returns`). Plans may raise C. Privacy requires that C never decreases and does
not change while a batch is open.
"""

from __future__ import annotations

import math
from dataclasses import replace

from discreet.core import checks
from discreet.core import clipped_returns as steered
from discreet.core.count_mechanism import CountMechanism
from discreet.core.families import CUT_REWARDS
from discreet.core.fresh_noise_session import DecayingSession
from discreet.core.releases import Floats, Plan
from discreet.core.rng import Randomness

__all__ = ["CutSession"]


class CutSession(DecayingSession):
    """A :class:`~discreet.core.fresh_noise_session.DecayingSession` for a query with clipped rewards."""

    _kind = "cut counts"
    _streams = ("exact", "decaying")
    _asks = "cut"
    _STATE = (*DecayingSession._STATE, "_cut")

    def __init__(self, mechanism: CountMechanism, randomness: Randomness) -> None:
        super().__init__(mechanism, randomness)
        self._cut = self._query.cut  # C of the newest batch; if infinite, centred rewards are released

    def _admitted(self, plan: Plan, users: int) -> Plan:
        plan = super()._admitted(plan, users)
        self._cut = self._cut if plan.cut is None else plan.cut  # still valid if an interrupt occurs here
        return plan

    def _plain(self, plan: Plan) -> Plan:
        return replace(super()._plain(replace(plan, cut=None)), cut=self._plain_cut(plan.cut))

    @property
    def cut(self) -> float:
        """Clipping threshold C of the rewards of the newest plan's users.

        Infinite after the change to centred rewards.
        """
        return self._cut

    def _wanted_scales(self, scales: Floats) -> Floats:
        """Return the scales, in which only the present reward family has a finite scale."""
        return steered.taking_turns(self._query, scales, self._cut)

    @property
    def _up_to(self) -> float:
        """Largest total of a user's rewards in the clipped family; 0 after the change to centred rewards."""
        return 0.0 if math.isinf(self._cut) else self._cut

    def _plain_cut(self, given: float | None) -> float | None:
        """Check a plan's C and return it as a plain number. Privacy requires that C never decreases."""
        if given is None:
            return None
        stands, cut = self._cut, math.inf
        if not (isinstance(given, float) and math.isinf(given) and given > 0.0):
            if math.isinf(stands):
                raise ValueError(
                    f"plan.cut = {checks.said(given)}: must be None or infinite, centred rewards have taken "
                    "the place of cut ones for good"
                )
            cut = checks.real("plan.cut", given, stands, float(self._query.layout.horizon))
            steered.check_on_grid("plan.cut", cut, self._mechanism.reward_grid)
        if cut != stands and not self._fresh:
            raise ValueError(
                f"plan.cut = {cut:g}: must be {stands:g} or None, as it stood when the first plan of this "
                "batch was begun"
            )
        return cut

    def _check_sums(self, cells: Floats, users: int) -> None:
        at = list(self._query.row_families).index(CUT_REWARDS)
        table, most = cells[self._query.offsets[at] : self._query.offsets[at + 1]], users * self._up_to
        if table.min() < 0.0 or table.sum() > most * (1.0 + 1e-9):
            raise ValueError(
                f"sums[{CUT_REWARDS!r}]: must be at least 0, and at most {most:g} in all, of {users} users "
                f"cut at {self._up_to:g}"
            )
