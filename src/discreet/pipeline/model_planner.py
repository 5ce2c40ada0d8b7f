"""Learner that plans in a model of half of a release and is evaluated with the other half.

:class:`ModelPlanner` reads the same release of first visits as
:class:`~discreet.learners.offline.decision_points.DecisionPoints`. It splits the release into two halves
(:mod:`discreet.learners.ope.release_split`). It plans in the model of the first half
(:mod:`discreet.pipeline.world_model`) and uses the second half only to estimate the gain. The policy acts in
the same way at every step. Path, verdict, report and comparisons are the same as for decision points. All
computations are post-processing of the release.

*Choice of the policy.* In some environments a model is misleading, for example if users nearly always act
optimally. The learner therefore also chooses decision points from the first half. For each of the two
candidates, it computes the expected gain in the model minus half of its standard deviation. It proposes the
plan if this number is larger for the plan. The choice depends only on the first half. Therefore the interval
from the second half needs no correction.

*Choice of the estimate.* As for decision points, the gain is estimated from returns or from transitions,
whichever has the smaller standard deviation. Both standard deviations are estimated from the first half.

*Two learners.* An interval holds for the policy of one learner. Suppose that both learners are applied to one
release and the better result is used. Then both reports need intervals at level 1 - failure / 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from discreet.core import checks
from discreet.learners.offline.decision_points import DecisionPoints
from discreet.learners.ope.deviation_gains import Path, ProposedChanges, SplitRelease, rows_in_use
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.release_split import split_release
from discreet.learners.ope.transition_gains import forecast, path_of, return_steps
from discreet.learners.ope.verdict import ASKED
from discreet.mechanisms.interfaces import StepwiseRelease
from discreet.pipeline.world_model import PENALTY, world_model

_SURER = 0.5  # A proposal is chosen by its expected gain minus this multiple of the standard deviation.
_LEAST_GAIN = 1e-4  # smallest expected gain of one decision, in units of the range of returns


@dataclass(frozen=True, kw_only=True)
class ModelPlanner(DecisionPoints):
    """Learner that plans in a private model of the environment, or falls back to decision points.

    Decision points change a state if this is expected to help while all other states keep the behaviour
    policy. A plan also takes changes in later states into account, and uses both transitions and returns. The
    schema must define rewards by outcomes, and the environment must be declared stationary.

    Parameters
    ----------
    caution : float
        Each changed action has a penalty, this multiple of the standard deviation of its value. At least 0.
        Larger values give fewer changes.
    most_changes : int, optional
        Largest number of changed states, at least 1. None: the whole plan.
    Bound on the effect of an unrecorded cause; see
        :class:`~discreet.learners.offline.decision_points.DecisionPoints`.
        Factor of :class:`~discreet.learners.offline.decision_points.DecisionPoints`.
    fall_back : bool
        True: decision points are proposed if the first half prefers them. False: the plan is always proposed.

    The intervals hold for all values of ``most_changes`` together. They do not hold jointly for several
    values of ``caution``, because another ``caution`` gives another plan.
    """

    fall_back: bool | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"caution": PENALTY, "hidden_cause": ASKED, "fall_back": True}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.flag("fall_back", self.fall_back)

    def count(self, path: Path) -> int:
        """Return the number of changes of the whole proposal."""
        return path.default

    def path(self, release: StepwiseRelease, question: FirstVisits, level: float = 0.95) -> Path:
        """Choose a policy from the first half of a release, and estimate its gain from the second half.

        - release : release of first visits.
        - question : its query.
        - level : joint confidence level of the intervals.

        Raises ``ValueError`` if no rule determines the rewards.
        """
        check_outcomes(question)
        whole = question.read(release)
        parts = split_release(release, 0.5, return_steps(whole))
        train, held_out = (question.read(part) for part in parts)
        layout, own = question.layout, question.spec.layout
        index = layout.row_index[own.row_state, own.row_action]  # terminal states have one row in the query
        model = world_model(parts[0], question.spec, part="train")
        plan = model.plan_by_state(self.caution or 0.0, (index >= 0) & rows_in_use(whole, train)[index])
        changed = np.flatnonzero(plan.row >= 0)
        rows = plan.row[changed]
        gain, spread = np.zeros((2, layout.states))
        action = np.zeros(layout.states, np.int64)
        gain[changed] = np.maximum(plan.advantage[rows], _LEAST_GAIN)
        spread[changed], action[changed] = model.deviation[0][rows], own.row_action[rows]
        surest = gain[changed] / (np.maximum(plan.visits[changed], 1e-12) * spread[changed] ** 2 + 1e-18)
        order = changed[np.argsort(-surest, kind="stable")]
        both = SplitRelease(train, held_out)
        planned = path_of(whole, level, both, ProposedChanges(order, action, gain, spread))
        if not self.fall_back:
            return planned
        plain = path_of(whole, level, both)
        (usual, usual_risk), risk = forecast(plain), forecast(planned)[1]
        return planned if plan.gain - _SURER * risk > usual - _SURER * usual_risk else plain


def check_outcomes(question: FirstVisits) -> None:
    """Raise ``ValueError`` unless a rule pays rewards that depend on the state in which an episode ends."""
    if question.returns.outcomes is None:
        raise ValueError(
            "learner = 'world-model': must be decision-points if no rule pays rewards by the state in which "
            "an episode ends (reward = { outcomes = ... } in the schema), because returns do not tell the "
            "rewards of steps"
        )
