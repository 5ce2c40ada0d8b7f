"""Planner in a model of half of a release, for the reports of decision points.

:class:`ModelPlanner` reads the same release of first visits as
:class:`~discreet.learners.offline.decision_points.DecisionPoints`. It splits the release into two parts
(:mod:`discreet.learners.ope.release_split`). A policy is planned in a model of the training part
(:mod:`discreet.pipeline.world_model`), and its gain is estimated from the held-out part. The policy acts in the
same way at every step, so it is a path of changed states: verdict, report and comparisons are those of decision
points. All computations are post-processing of the release.

Decision points change a state if this is expected to help while all other states stay as before. A plan also
counts on later changes. It gains more with few users, and its interval is wider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.ope.deviation_gains import Path, ProposedChanges, rows_in_use
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.release_split import split_release
from discreet.learners.ope.transition_gains import path_of, return_steps
from discreet.learners.ope.verdict import ASKED
from discreet.mechanisms.interfaces import StepwiseRelease
from discreet.pipeline.world_model import PENALTY, world_model

__all__ = ["ModelPlanner"]

_LEAST_GAIN = 1e-4  # smallest expected gain of one decision, in units of the range of returns


@dataclass(frozen=True, kw_only=True)
class ModelPlanner(DecisionPoints):
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"caution": PENALTY, "hidden_cause": ASKED}
    }

    def path(self, release: StepwiseRelease, question: FirstVisits, level: float = 0.95) -> Path:
        whole = question.read(release)
        parts = split_release(release, 0.5, return_steps(whole))
        train, held_out = (question.read(part) for part in parts)
        layout, own = question.layout, question.spec.layout
        usable = rows_in_use(whole, train)[layout.row_index[own.row_state, own.row_action]]
        usable &= layout.row_index[own.row_state, own.row_action] >= 0
        model = world_model(parts[0], question.spec, part="train")
        plan = model.plan_by_state(self.caution or 0.0, usable)
        changed = np.flatnonzero(plan.row >= 0)
        rows = plan.row[changed]
        gain, spread, action = (
            np.zeros(layout.states),
            np.zeros(layout.states),
            np.zeros(layout.states, np.int64),
        )
        gain[changed] = np.maximum(plan.advantage[rows], _LEAST_GAIN)
        spread[changed], action[changed] = model.deviation[0][rows], own.row_action[rows]
        ratio = gain[changed] / (np.maximum(plan.visits[changed], 1e-12) * spread[changed] ** 2 + 1e-18)
        order = changed[np.argsort(-ratio, kind="stable")]
        return path_of(whole, level, ProposedChanges(train, held_out, order, action, gain, spread))
