"""Learner that plans in a model of half of a release, and is evaluated with the other half.

:class:`ModelPlanner` reads the same release of first visits as
:class:`~discreet.learners.offline.decision_points.DecisionPoints`. It splits the release into two halves
(:mod:`discreet.learners.ope.release_split`). It plans in the model of the first half
(:mod:`discreet.pipeline.world_model`) and uses the second half only to estimate the gain. The policy acts in
the same way at every step, so it changes some states, as decision points do: path, verdict, report and
comparisons are the same. All computations are post-processing of the release.

Choice of the policy. Some environments mislead a model, for example if users nearly always act in the best
way. The learner therefore also chooses decision points from the first half. It proposes the plan if its
expected gain in the model, minus half of its standard deviation, is larger than the same number for decision
points. Only the first half decides, so the interval from the second half needs no correction for the choice.

Choice of the estimate. As for decision points, the gain is estimated from returns or from transitions,
whichever has the smaller standard deviation. Both standard deviations are estimated from the first half.

Two learners. An interval holds for the policy of one learner. If both learners are applied to one release and
the better result is used, the interval must have the level 1 - failure / 2 in both reports.
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

__all__ = ["ModelPlanner"]

_SURER = 0.5  # A proposal is chosen by its expected gain minus this many standard deviations.
_LEAST_GAIN = 1e-4  # smallest expected gain of one decision, in units of the range of returns


@dataclass(frozen=True, kw_only=True)
class ModelPlanner(DecisionPoints):
    """Learner that plans in a private model of the environment, or falls back to decision points.

    Decision points change a state if this is expected to help while users act as before in all other states.
    A plan also counts on changes in later states, and uses transitions and returns together. The schema must
    define rewards by outcomes, and the environment must be declared stationary.

    Parameters
    ----------
    caution : float
        Every changed action costs this multiple of the standard deviation of its value, at least 0. Larger
        values give fewer changes.
    most_changes : int, optional
        Largest number of changed states, at least 1. None: the whole plan.
    hidden_cause : float
        As for :class:`~discreet.learners.offline.decision_points.DecisionPoints`.
    fall_back : bool
        True: decision points are proposed if their expected gain is surer. False: always the plan.

    The intervals hold for all values of ``most_changes`` together. Another ``caution`` gives another plan,
    for which they do not hold together with the first one.
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

        release : release of first visits. question : its query. level : joint confidence level of the
        intervals.

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
    """Raise ``ValueError`` if no rule pays rewards by the state in which an episode ends."""
    if question.returns.outcomes is None:
        raise ValueError(
            "learner = 'world-model': must be decision-points if no rule pays rewards by the state in which "
            "an episode ends (reward = { outcomes = ... } in the schema), because returns do not tell the "
            "rewards of steps"
        )
