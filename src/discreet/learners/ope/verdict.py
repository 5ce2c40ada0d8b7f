"""Verdicts on a gain: whether the data show the gain, and the condition for this conclusion.

A gain with an interval above 0 is evidence for a real gain only if no unobserved confounder affects both
action and outcome. Such a confounder is called a hidden cause. A release cannot exclude hidden causes. A
verdict therefore tests four further conditions, in this order.

1. The released sums do not contradict each other (:mod:`discreet.learners.ope.consistency_test`).
2. The recorded state does not omit a variable whose effect is as large as the gain.
3. Only a strong hidden cause could explain the gain, among those that are drawn again at each step
   (:mod:`discreet.learners.ope.hidden_cause`).
4. In the changed states, the test in condition 1 could have detected a contradiction.

If all conditions hold, the report states that the gain is shown *if no unrecorded cause changes the odds of
an action by more than* two factors. One factor is for causes that are drawn again at each step. The other
factor is for lasting causes, which stay the same over the steps of an episode.

Causes that are drawn again at each step cannot be detected in a release. For them, the verdict only compares
their factor with ``asked``. The consistency test can detect lasting causes that act on later steps. If the
gain is computed from returns, the noise of transitions is large and the test has little power. In this case,
the claim is already rejected if p is below 0.05 for contrasts or for levels (a hint). Some lasting causes are
still not detected: docs/decision-points.md states how many, and in which environments
(``benchmarks/studies/hidden_causes.py``).

All computations are post-processing of one release, so they cost no privacy budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from discreet.core import checks
from discreet.core.short_repr import brief
from discreet.learners.ope.censored_share import CensoredShare, censored_share
from discreet.learners.ope.consistency_test import Consistency, consistency_of, covered, model_of, testable
from discreet.learners.ope.deviation_gains import Gain, Path
from discreet.learners.ope.hidden_cause import (
    LARGEST,
    HiddenCause,
    hidden_cause,
    largest_strength,
    loss_each_step,
)

ASKED = 1.1  # By default, a gain must stay above 0 under a hidden cause of this strength.
COVERED = 0.5  # The test must cover at least this share of the first visits to changed states.
_HINT = 0.05  # If the test has little power, p below this value is a hint of a contradiction.
_SIZES = 10.0  # A contradiction invalidates gains up to this multiple of the size of the contradiction.

KINDS = (
    "unchanged", "not shown", "contradicted", "state incomplete", "fragile", "unchecked", "shown",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class IntervalEstimate:
    """Estimate with its interval.

    Attributes
    ----------
    estimate, low, high : estimate and its interval.
    deviation : standard deviation of the estimate.
    sampling, noise : parts of the standard deviation, from the number of users and from the noise.
    """

    __repr__ = brief

    estimate: float
    low: float
    high: float
    deviation: float
    sampling: float
    noise: float

    @property
    def shown(self) -> bool:
        """True if the whole interval is above 0."""
        return self.low > 0.0


@dataclass(frozen=True, eq=False)
class PolicyAnswer(IntervalEstimate):
    """Estimate of a policy's gain over the behaviour policy, on data from which it was not learned.

    model : part of the standard deviation that is due to the models in the query.
    """

    model: float


@dataclass(frozen=True, eq=False)
class Verdict:
    """Verdict on a policy that changes the behaviour policy in some states.

    - kind : one of ``KINDS``.
    - gain : gain of the policy over the behaviour policy.
    - asked : strength of an unobserved confounder that is drawn again at each step. The gain must stay above
      0 under such a confounder.
    - cause : largest strengths of unobserved confounding under which the gain stays above 0.
    - consistency : result of the consistency test of the release.
    - covered : share of the first visits to changed states that the test covers.
    - hinted : True if the test has little power and gives a hint of a contradiction.
    - censored : upper bound on the share of episodes with unknown outcome; None if no episode can end
      censored. ``gain`` and ``cause`` allow for the worst outcomes.
    """

    __repr__ = brief

    kind: str
    gain: Gain
    asked: float
    cause: HiddenCause
    consistency: Consistency
    covered: float
    hinted: bool
    censored: CensoredShare | None = None

    @property
    def shown(self) -> bool:
        """Return True if the gain is shown for unobserved confounders not stronger than ``cause``."""
        return self.kind == "shown"


def verdict_of(path: Path, count: int, asked: float = ASKED, found: Consistency | None = None) -> Verdict:
    """Return the verdict on the policy that changes the first ``count`` states of a path.

    - asked : strength of an unobserved confounder, in [1, 50]. The gain must stay above 0 under such a
      confounder.
    - found : result of the consistency test of the same release. If it is None, the test is run.

    Raises ``ValueError`` if ``asked`` is out of range or ``count`` is not a point of the path.
    """
    asked = checks.real("hidden_cause", asked, 1.0, LARGEST)
    gain = path.gain(count)
    found = consistency_of(path.sums) if found is None else found
    cause = hidden_cause(path, count, gain, found)
    own = path.order[:count]
    share = found.covered(path.visits[own], path.sums.layout.row_index[own, path.action[own]])
    hinted = path.measured == "returns" and min(found.contrasts.hint, found.levels.hint) < _HINT
    kind = kind_of(
        count, gain, found, cause.each_step >= asked, found.tested and share >= COVERED and not hinted
    )
    return Verdict(kind, gain, asked, cause, found, share, hinted, censored_share(path.sums))


def would_show(path: Path, count: int, asked: float = ASKED) -> bool:
    """Return True if the gain is shown, provided that the consistency test finds no contradiction.

    The test is not run, because it takes most of the time of a verdict. Forecasts use this function: they
    simulate releases of an environment without unobserved confounders. In such releases, the test rejects at
    most once in a thousand times.
    """
    if not path.clear(count):
        return False
    sums, own = path.sums, path.order[:count]
    model = model_of(sums)
    rows = sums.layout.row_index[own, path.action[own]]
    if covered(testable(sums, model), path.visits[own], rows) < COVERED:
        return False
    gain = path.worst(count)
    return largest_strength(gain, sums, lambda s: loss_each_step(path, count, s, model), asked) >= asked


def kind_of(count: int, gain: Gain, found: Consistency, strong: bool, checked: bool) -> str:
    """Return the kind of a verdict.

    - count : number of changed states.
    - gain : gain of the policy.
    - found : result of the consistency test.
    - strong : True if the gain stays above 0 under an unobserved confounder of the required strength.
    - checked : True if a contradiction could have been detected.
    """
    if not count:
        return "unchanged"
    if not gain.shown:
        return "not shown"
    outweighs = _SIZES * found.scale
    if found.contrasts.rejects and gain.low <= outweighs * found.contrasts.size:
        return "contradicted"
    if found.levels.rejects and gain.low <= outweighs * found.levels.size:
        return "state incomplete"
    if not strong:
        return "fragile"
    return "shown" if checked else "unchecked"
