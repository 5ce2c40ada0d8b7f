"""Verdict on a gain: whether it is shown, and on which condition.

A gain whose interval lies above 0 is a claim about the world only if nothing that is not recorded drives both
action and outcome. No release can prove that. So a verdict asks four things more, in this order: do the
released sums contradict themselves (:mod:`discreet.learners.ope.consistency_test`); does the recorded state
leave out something as large as the gain; how strong would a cause that arises anew at each step have to be to
explain the gain (:mod:`discreet.learners.ope.hidden_cause`); and could a contradiction have been seen where
the policy changes something. What is shown is shown *if no unrecorded cause changes the odds of an action by
more than* printed factors, one for causes that arise anew at each step and one for causes that last.

Causes at each step leave no trace in a release: the factor is all that limits them, and ``asked`` is set
against it. Lasting causes that act on later steps leave a trace, which the consistency test looks for. If the
gain is read off returns, noise is large beside the transitions and the test has little power. Then a hint, p
below 0.05 of either comparison, is enough to claim nothing. Some lasting causes stay unseen even so:
docs/decision-points.md says how many, and in which environments (``studies/hidden_causes.py``).

Everything is computed from one release, without data and without budget.
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

__all__ = ["ASKED", "COVERED", "KINDS", "Verdict", "kind_of", "verdict_of", "would_show"]

ASKED = 1.1  # L that a gain must survive by default
COVERED = 0.5  # share of changed decisions whose contrast must be testable
_HINT = 0.05  # p below which a test that has little power is taken for a hint
_SIZES = 10.0  # a contradiction outweighs a gain of up to so many times its size

KINDS = (
    "unchanged", "not shown", "contradicted", "state incomplete", "fragile", "unchecked", "shown",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Verdict:
    """Verdict on the policy that changes some states.

    kind : one of ``KINDS``. gain : over what users did. asked : strength of a hidden cause at each step that
    the gain must survive. cause : strengths that it survives. consistency : the test of the release. covered
    : share of first visits to changed states at which the test looks. hinted : whether a test of little power
    finds a hint of a contradiction. censored : largest share of episodes whose outcome is not known, None
    where no end is censored; gain and cause allow for the worst.
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
        """Whether the gain is shown, on the conditions that ``cause`` names."""
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
    share = found.covered(path.visits[own], path.told.layout.row_index[own, path.action[own]])
    hinted = path.measured == "returns" and min(found.contrasts.hint, found.levels.hint) < _HINT
    kind = kind_of(
        count, gain, found, cause.each_step >= asked, found.tested and share >= COVERED and not hinted
    )
    return Verdict(kind, gain, asked, cause, found, share, hinted, censored_share(path.told))


def would_show(path: Path, count: int, asked: float = ASKED) -> bool:
    """Return whether the gain is shown if the release does not contradict itself.

    A forecast plays releases of a world without hidden causes, in which the test rejects one in a thousand
    times at most; so the test itself, which takes most of the time of a verdict, is left out.
    """
    if not path.clear(count):
        return False
    told, own = path.told, path.order[:count]
    model = model_of(told)
    rows = told.layout.row_index[own, path.action[own]]
    if covered(testable(told, model), path.visits[own], rows) < COVERED:
        return False
    gain = path.worst(count)
    return largest_strength(gain, path, lambda s: loss_each_step(path, count, s, model), asked) >= asked


def kind_of(count: int, gain: Gain, found: Consistency, strong: bool, checked: bool) -> str:
    """Return the kind of a verdict.

    count : states changed. strong : whether the gain survives a cause of the strength that is asked for.
    checked : whether a contradiction could have been seen.
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
