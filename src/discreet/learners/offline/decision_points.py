"""Decision points: policies that differ from the behaviour policy only in a few states.

The policies are computed from one release of first visits (:mod:`discreet.learners.ope.first_visit_query`).
Gains are estimated from returns (:mod:`discreet.learners.ope.deviation_gains`) or from next states
(:mod:`discreet.learners.ope.transition_gains`).

Sources: Simao, Laroche and Tachet des Combes 2019 (SPIBB) learn in which states to deviate instead of a whole
policy. arXiv 2410.09361 studies single decision points in intensive care.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.count_query import CountQuery
from discreet.core.guarantee import Guarantee
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.learners.ope.deviation_gains import CAUTION, Gain, Path
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.hidden_cause import LARGEST
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import ASKED, Verdict, verdict_of
from discreet.mechanisms.interfaces import ProblemSpec, Release, Schedule, StepwiseRelease
from discreet.utils.config import Knobs

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class DecisionPolicy:
    """Policy that follows the behaviour policy except in some states, with its gain.

    Attributes
    ----------
    policy : (H, S) int
        Actions, which are the same at every step. A changed state has the new action. All other states have
        the users' most frequent action.
    supported : (H, S) bool
        Mask of the changed states. In all other states, users continue to follow the behaviour policy.
    q : (H, S, A)
        Mean return, in the user's units, of the action at the first visit to the state. After this visit, the
        behaviour policy is followed. Inadmissible pairs have -inf. If too few users took the action, the
        entry is the value of the state. For the new action of a changed state, the entry is one standard
        deviation below the expected return.
    behaviour : (H, S) int
        The users' most frequent action.
    changes : int
        Number of changed states.
    path : Path
        Sequence of nested policies from which this policy was selected.
    asked : float
        Robustness to unobserved confounding that the verdict requires.
    guarantee : Guarantee
        Privacy guarantee of the release and of this policy.
    """

    __repr__ = brief

    policy: Ints
    supported: Bools
    q: Floats
    behaviour: Ints
    changes: int
    path: Path
    asked: float
    guarantee: Guarantee

    @cached_property
    def verdict(self) -> Verdict:
        """Return whether the data show the gain, and under which condition.

        See :mod:`discreet.learners.ope.verdict`.
        """
        return verdict_of(self.path, self.changes, self.asked)

    @cached_property
    def gain(self) -> Gain:
        """Return the gain of the policy over the behaviour policy."""
        return self.path.gain(self.changes)

    @property
    def changed(self) -> Bools:
        """Return an (S,) mask of the changed states."""
        return np.asarray(self.supported[0])


@dataclass(frozen=True, kw_only=True)
class DecisionPoints(Knobs):
    """Learner that changes the behaviour policy in a few states where the data show a gain.

    The environment must be declared stationary. The data must be stored trajectories, and the privatizer must
    be ``Central`` or ``NoPrivacy``. ``caution`` and ``most_changes`` can be changed after the release,
    because the intervals hold for all policies of the path together.

    Parameters
    ----------
    caution : float
        The number of changes maximises the expected gain minus this many standard deviations; at least 0.
    most_changes : int, optional
        Largest number of changed states, at least 1. None: no limit.
    hidden_cause : float
        Factor in [1, 50]. A confounder is weak if it changes the odds of an action by less than this factor.
        A gain counts as shown only if no weak unobserved confounder can explain the gain
        (:mod:`discreet.learners.ope.hidden_cause`).
    """

    caution: float | None = None
    most_changes: int | None = None
    hidden_cause: float | None = None

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {"caution": CAUTION, "hidden_cause": ASKED}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "caution", checks.real("caution", self.caution, 0.0))
        put(self, "hidden_cause", checks.real("hidden_cause", self.hidden_cause, 1.0, LARGEST))
        if self.most_changes is not None:
            put(self, "most_changes", checks.integer("most_changes", self.most_changes, 1))

    @staticmethod
    def question(spec: ProblemSpec) -> FirstVisits:
        """Return the first-visit query for the environment of ``spec``."""
        return FirstVisits(spec)

    def query(self, spec: ProblemSpec) -> CountQuery:
        """Return the count query for the environment of ``spec``.

        Raises ``ValueError`` unless the environment is declared stationary.
        """
        return self.question(spec).query()

    @staticmethod
    def schedule(users: int) -> Schedule:
        """Return a schedule with one release after all users."""
        return Schedule.one_shot(users, plans="stochastic")

    def to_records(self, people: Trajectories, spec: ProblemSpec, group: Ints | None = None) -> Trajectories:
        """Convert the episodes of ``people`` to records that the first-visit query counts.

        group : (n,) group of each episode, integers in [0, G), if ``spec`` has groups.
        """
        return self.question(spec).to_records(people, group)

    def learn(
        self, release: Release | StepwiseRelease, spec: ProblemSpec, level: float = 0.95
    ) -> DecisionPolicy:
        """Learn a policy from one release of first visits in the environment of ``spec``.

        level : joint confidence level of all intervals, in (0, 1).

        Raises ``ValueError`` if the release belongs to another query.
        """
        if isinstance(release, Release):
            raise ValueError("release: must be that of offline data (privatizer.stored), of first visits")
        return self.of(release, self.question(spec), level)

    def of(self, release: StepwiseRelease, question: FirstVisits, level: float = 0.95) -> DecisionPolicy:
        """Learn a policy from a release of first visits, for users who can have several episodes.

        release : release of counts of first visits. question : query of this release. level : joint
        confidence level of all intervals, in (0, 1).
        """
        path = self.path(release, question, level)
        count = self.count(path)
        if self.most_changes is not None:
            count = path.at_most(min(count, self.most_changes))
        return _policy(path, count, question.spec, self.hidden_cause or ASKED, release.guarantee)

    def count(self, path: Path) -> int:
        """Return the number of changes that maximises the expected gain minus ``caution`` deviations."""
        return path.point(self.caution or 0.0)

    def path(self, release: StepwiseRelease, question: FirstVisits, level: float = 0.95) -> Path:
        """Return the sequence of nested policies from which :meth:`of` selects one.

        release : release of first visits. question : its query. level : joint confidence level of the
        intervals.
        """
        return path_of(question.read(release), level)


def _policy(path: Path, count: int, spec: ProblemSpec, asked: float, guarantee: Guarantee) -> DecisionPolicy:
    sums, states = path.sums, spec.states
    layout = sums.layout
    least, most = sums.question.bounds
    real = (
        slice(None, -1),
        slice(None, spec.actions),
    )  # leaves out the start state and actions that are groups
    visits = layout.from_rows(sums.visits[None], fill=-np.inf)[0][real]
    usual = visits.argmax(axis=1)
    changed = path.changed(count)[:-1]
    action = np.where(changed, path.action[:-1], usual)
    known = np.where(path.supported, path.whole.q, path.whole.value[layout.row_state])
    q = layout.from_rows(known[None], fill=-np.inf)[0][real]
    expected = np.clip(path.whole.value + path.shrunk - path.spread, 0.0, 1.0)[:-1]
    own = np.flatnonzero(changed)
    q[own, action[own]] = expected[own]
    admissible = spec.layout.row_index >= 0
    value = np.clip(path.whole.value[:-1, None], 0.0, 1.0)
    q = np.where(np.isfinite(q), np.clip(q, 0.0, 1.0), value)  # the query has one action in terminal states
    q = np.where(admissible, least + (most - least) * q, -np.inf)

    def every_step(table: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(table[None], spec.horizon, axis=0)

    shape = (spec.horizon, states)
    return DecisionPolicy(
        every_step(action.astype(np.int64)).reshape(shape), every_step(changed), every_step(q),
        every_step(usual.astype(np.int64)), int(count), path, asked, guarantee,
    )  # fmt: skip
