"""Say whether a gain is shown, and on which condition.

A gain whose interval lies above 0 is a claim about the world only if nothing that is not recorded drives both
action and outcome. No release can prove that. So a verdict asks four things more, in this order: do the
released sums contradict themselves (:mod:`discreet.offline.consistency`); does the recorded state leave out
something as large as the gain; how strong would a hidden cause have to be to explain the gain
(:mod:`discreet.offline.hidden_cause`); and could a contradiction have been seen where the policy changes
something. What is shown is shown *if no unrecorded cause changes the odds of an action by more than* a
printed factor.

Everything is computed from one release, without data and without budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from discreet.core import checks
from discreet.core.shown import brief
from discreet.offline.consistency import Consistency, consistency_of
from discreet.offline.deviations import Gain, Path
from discreet.offline.hidden_cause import LARGEST, HiddenCause, hidden_cause

__all__ = ["ASKED", "KINDS", "Verdict", "verdict_of"]

ASKED = 1.1  # L that a gain must survive by default
_COVERED = 0.5  # share of changed decisions whose contrast must be testable
_HINT = 0.05  # p below which a test that has little power is taken for a hint
_SIZES = 10.0  # a contradiction outweighs a gain of up to so many times its size

KINDS = (
    "unchanged", "not shown", "contradicted", "state incomplete", "fragile", "unchecked", "shown",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Verdict:
    """What can be said of the policy that changes some states.

    kind : one of ``KINDS``. gain : over what users did. asked : strength of a hidden cause that the gain must
    survive. strength : strength that it survives, by the bound that counts. cause : both bounds. consistency
    : the test of the release. covered : share of first visits to changed states at which the test looks.
    hinted : whether the test finds a hint of a contradiction. by_step : whether ``strength`` is that of a
    cause at each step.
    """

    __repr__ = brief

    kind: str
    gain: Gain
    asked: float
    strength: float
    cause: HiddenCause
    consistency: Consistency
    covered: float
    hinted: bool
    by_step: bool

    @property
    def shown(self) -> bool:
        """Whether the gain is shown, on the condition that ``strength`` names."""
        return self.kind == "shown"


def verdict_of(path: Path, count: int, asked: float = ASKED, found: Consistency | None = None) -> Verdict:
    """Judge the policy that changes the first ``count`` states of a path.

    asked : strength in [1, 50] of a hidden cause that the gain must survive. found : the consistency test of
    the same release, if it is at hand.

    Raises ``ValueError`` if ``asked`` is out of range or ``count`` is no point of the path.
    """
    asked = checks.real("hidden_cause", asked, 1.0, LARGEST)
    gain = path.gain(count)
    found = consistency_of(path.told) if found is None else found
    cause = hidden_cause(path, count, gain, found)
    own = path.order[:count]
    covered = found.covered(path.visits[own], path.told.layout.row_index[own, path.action[own]])
    by_step = path.measured == "transitions"
    strength = cause.each_step if by_step else cause.one_decision
    hinted = not by_step and min(found.contrasts.hint, found.levels.hint) < _HINT
    kind = _kind(count, gain, found, covered, asked=asked, strength=strength, hinted=hinted)
    return Verdict(kind, gain, asked, strength, cause, found, covered, hinted, by_step)


def _kind(
    count: int, gain: Gain, found: Consistency, covered: float, *, asked: float, strength: float, hinted: bool
) -> str:
    if not count:
        return "unchanged"
    if not gain.shown:
        return "not shown"
    outweighs = _SIZES * found.scale
    if found.contrasts.rejects and gain.low <= outweighs * found.contrasts.size:
        return "contradicted"
    if found.levels.rejects and gain.low <= outweighs * found.levels.size:
        return "state incomplete"
    if strength < asked:
        return "fragile"
    if not found.tested or covered < _COVERED or hinted:
        return "unchecked"
    return "shown"
