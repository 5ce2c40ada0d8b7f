"""Noise-aware learner for releases without a separate measurement, such as those of trees.

At each release it discards the noise of older releases and reads the newest sums as one measurement of all
users so far (gain 1, decay 1). This is :class:`~discreet.learners.online.noise_aware.NoiseAwareUCBVI`
without generalised least squares over releases, which needs noise that no two releases share. It separates
the gain of the learner from the gain of the mechanism (``papers.price_of_privacy``). It
has no theorem and no compiled form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.short_repr import brief
from discreet.learners.online import noise_aware_kernels as noise_kernels
from discreet.learners.online.noise_aware import NoiseAwareUCBVI
from discreet.learners.online.tabular_base import LearnerState
from discreet.mechanisms.interfaces import Ask, Floats, Measurement, Plan, ProblemSpec, Release, Schedule


@dataclass(frozen=True, eq=False)
class SumsState:
    """State: ``inner`` is the state of the inner learner, ``assigned`` the sums of expected visits alone."""

    __repr__ = brief

    inner: LearnerState
    assigned: Floats


@dataclass(frozen=True, kw_only=True)
class NoiseAwareOnSums:
    """Noise-aware value iteration from the newest sums alone.

    Raises ``ValueError`` for an option out of its range.

    Attributes
    ----------
    stat_scale, priv_scale : float
        Factors of the bonuses for sampling and for noise, at least 0.
    shrink, derive_visits, center_rewards : bool
        As for :class:`~discreet.learners.online.noise_aware.NoiseAwareUCBVI`.
    replan_every : int
        Users between releases, at least 1.
    replan_growth : float
        Growth factor of the number of users, at least 1, instead of ``replan_every``. If neither is given,
        the value tuned for the budget is used.
    preset : "default"
        The only preset.
    """

    stat_scale: float | None = None
    priv_scale: float | None = None
    shrink: bool | None = None
    derive_visits: bool | None = None
    center_rewards: bool | None = None
    replan_every: int | None = None
    replan_growth: float | None = None
    inner: NoiseAwareUCBVI = field(init=False, repr=False)

    preset: str = "default"

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}

    def __post_init__(self) -> None:
        checks.choice("preset", self.preset, self.PRESETS)
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.init and f.name != "preset"}
        object.__setattr__(self, "inner", NoiseAwareUCBVI(**given, pooled="none"))

    def schedule(self, spec: ProblemSpec) -> Schedule:
        """Return the schedule of the inner learner; this learner reads sums."""
        return replace(self.inner.schedule(spec), reads="sums")

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the query of the inner learner."""
        return self.inner.query(spec)

    def begin(self, spec: ProblemSpec, ties: Any) -> SumsState:
        """Return the state before the first release; no user is assigned."""
        inner = self.inner.begin(spec, ties)
        return SumsState(inner, inner.memory.copy())

    def plan(self, state: SumsState, release: Release, ask: Ask | None = None) -> tuple[Plan, SumsState]:
        """Return the next users' policy from this release, and the state with all expected visits."""
        inner = state.inner
        if release.number != inner.number:
            inner = replace(inner, memory=state.assigned)
        whole = Measurement(release.estimates, decay=1.0, gain=1.0)
        plan, inner = self.inner.plan(inner, replace(release, measurement=whole), ask)
        layout = inner.spec.layout
        rows = np.ascontiguousarray(layout.row_index[np.arange(layout.states)[None, :], plan.policy])
        assigned = state.assigned.copy()
        slots = 1 if self.inner.stationary else layout.horizon
        size = noise_kernels.forecast_size(slots, layout.rows, layout.states)
        assigned[-size:] = inner.memory[-size:]
        noise_kernels.note_assignments(assigned, slots, layout.rows, False, rows, int(plan.users))
        return plan, SumsState(inner, assigned)

    def heuristics(self) -> Any:
        """Yield the heuristics of the inner learner."""
        return self.inner.heuristics()

    def summary(self) -> str:
        """Return the options as text."""
        return self.inner.summary()
