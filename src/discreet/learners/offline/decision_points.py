"""Decision points: act as people did, but in the few states where another action is better by what the data
show.

Everything is post-processing of one release of first visits (:mod:`discreet.learners.ope.first_visit_query`);
what a change gains, how changes are chosen and how they are judged without flattery:
:mod:`discreet.learners.ope.deviation_gains` by what people earned,
:mod:`discreet.learners.ope.transition_gains` by where they went on to, whichever says more. The idea of
learning where to deviate rather than a policy: Simao, Laroche and Tachet des Combes 2019 (SPIBB); of single
decision points in intensive care: arXiv 2410.09361.
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
from discreet.core.short_repr import brief
from discreet.core.trajectories import Trajectories
from discreet.learners.ope.deviation_gains import CAUTION, Gain, Path
from discreet.learners.ope.first_visit_query import FirstVisits
from discreet.learners.ope.hidden_cause import LARGEST
from discreet.learners.ope.transition_gains import path_of
from discreet.learners.ope.verdict import ASKED, Verdict, verdict_of
from discreet.mechanisms.interfaces import Release, Schedule, Spec, StepwiseRelease
from discreet.utils.config import Knobs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

__all__ = ["DecisionPoints", "DecisionPolicy"]


@dataclass(frozen=True, eq=False)
class DecisionPolicy:
    """A policy that acts as people did but in some states, and what that gains.

    policy : (H, S) int, the same at every step: the new action in changed states, elsewhere what people did
    most.
    supported : (H, S) bool, the changed states. Everywhere else go on as before.
    q : (H, S, A) what an action earns from there on when people go on as before, in the user's units of
    return;
        -inf at inadmissible pairs, the state's own value where too few people took it. In a changed state
        that of the new action is one deviation below what is expected of it.
    behaviour : (H, S) int, what people did most often.
    changes : how many states are changed. gain : over what people did. path : all other points that could be
    taken.
    asked : strength of a hidden cause that the gain must survive to be shown.
    guarantee : of the release; it covers all of this.
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
        """Whether the gain is shown, and on which condition (:mod:`discreet.learners.ope.verdict`)."""
        return verdict_of(self.path, self.changes, self.asked)

    @cached_property
    def gain(self) -> Gain:
        """What the policy gains over what people did."""
        return self.path.gain(self.changes)

    @property
    def changed(self) -> Bools:
        """(S,) bool."""
        return np.asarray(self.supported[0])


@dataclass(frozen=True, kw_only=True)
class DecisionPoints(Knobs):
    """Few changes to what people did, each where the data show that it helps.

    Needs a world that is declared stationary, and stored people (``Central`` or ``NoPrivacy``).

    Parameters
    ----------
    caution : float
        How many deviations below its expected gain a policy is valued when the number of changes is chosen,
        at least 0: the larger, the fewer changes.
    most_changes : int, optional
        Change at most so many states, at least 1.
    hidden_cause : float
        Factor in [1, 50]. The report says that a gain is shown only if an unrecorded cause that changes the
        odds of an action by less than this cannot explain it (:mod:`discreet.learners.ope.hidden_cause`).

    The first two take a point of one path of policies, and what is said of a point holds for all of them
    together: plan again from the same release as often as you like.
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
    def question(spec: Spec) -> FirstVisits:
        """What is asked of people in the world of ``spec``, and how their episodes are told."""
        return FirstVisits(spec)

    def query(self, spec: Spec) -> CountQuery:
        """What is summed. Raises ``ValueError`` unless the world is declared stationary."""
        return self.question(spec).query()

    @staticmethod
    def schedule(users: int) -> Schedule:
        """One release, after all users, whose policy may have been any."""
        return Schedule.one_shot(users, plans="stochastic")

    def told(self, people: Trajectories, spec: Spec, group: Ints | None = None) -> Trajectories:
        """Episodes of ``people`` in the world of ``spec`` as the query counts them.

        group : (n,) integers in [0, G), where the spec has groups.
        """
        return self.question(spec).told(people, group)

    def learn(self, release: Release | StepwiseRelease, spec: Spec, level: float = 0.95) -> DecisionPolicy:
        """The policy from one release of first visits in the world of ``spec``.

        level : in (0, 1), of all intervals together.

        Raises ``ValueError`` on a release of another question.
        """
        if isinstance(release, Release):
            raise ValueError("release: must be that of stored people (privatizer.stored), of first visits")
        return self.of(release, self.question(spec), level)

    def of(self, release: StepwiseRelease, question: FirstVisits, level: float = 0.95) -> DecisionPolicy:
        """As :meth:`learn`, for a question whose people may have several episodes.

        release : of counts of first visits. question : what was asked (``FirstVisits``). level : coverage of
        the intervals, in (0, 1).
        """
        told = question.read(release)
        path = path_of(told, level)
        count = path.point(self.caution or 0.0)
        if self.most_changes is not None:
            count = path.at_most(min(count, self.most_changes))
        return _policy(path, count, question.spec, self.hidden_cause or ASKED, release.guarantee)


def _policy(path: Path, count: int, spec: Spec, asked: float, guarantee: Guarantee) -> DecisionPolicy:
    told, states = path.told, spec.states
    layout = told.layout
    least, most = told.question.bounds
    real = slice(None, -1), slice(None, spec.actions)  # less the start state and its groups
    visits = layout.from_rows(told.visits[None], fill=-np.inf)[0][real]
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
    q = np.where(np.isfinite(q), np.clip(q, 0.0, 1.0), value)  # of terminal states one action was counted
    q = np.where(admissible, least + (most - least) * q, -np.inf)

    def every_step(table: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(table[None], spec.horizon, axis=0)

    shape = (spec.horizon, states)
    return DecisionPolicy(
        every_step(action.astype(np.int64)).reshape(shape), every_step(changed), every_step(q),
        every_step(usual.astype(np.int64)), int(count), path, asked, guarantee,
    )  # fmt: skip
