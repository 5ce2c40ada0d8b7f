"""Report on policies that were evaluated with a release, for the command `discreet evaluate`.

Sentences about gains from first visits are the same as in the verdict on a learned policy
(:mod:`discreet.reports.verdict_text`). Counts per step contain no returns of episodes. Therefore neither a
consistency test nor a bound for a hidden cause is possible. The sentence states this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from discreet.core.short_repr import brief
from discreet.learners.ope.count_estimates import ValueEstimate
from discreet.learners.ope.deviation_gains import Gain
from discreet.learners.ope.policy_gains import PolicyGains
from discreet.learners.ope.verdict import Verdict
from discreet.reports.decision_report import judged_numbers
from discreet.reports.figures import number
from discreet.reports.report_files import ReportPage
from discreet.reports.verdict_text import first_sentence, rests_on, times
from discreet.utils.document import Block, Bullets, Heading, Paragraph, Table

JUDGED = "judged.jsonl"  # record of the evaluations, in the folder of the release
_SAYS_WHY = ("contradicted", "state incomplete", "fragile", "unchecked", "shown")
_PARTS = {"whole": "the whole release", "held_out": "the held-out part", "train": "the training part"}


@dataclass(frozen=True, eq=False)
class EvaluatedPolicy:
    """Result for one policy.

    Parameters
    ----------
    name : path of the policy, as it was given
    gain : gain over the behaviour policy
    changes : number of states in which the policy differs from the behaviour policy at some step
    made_from : origin of the policy; None if unknown
    verdict : verdict; None for counts per step
    related : True if the policy was learned from another release of the same population
    """

    __repr__ = brief

    name: str
    gain: ValueEstimate
    changes: int
    made_from: Mapping[str, Any] | None
    verdict: Verdict | None
    related: bool = False

    @property
    def kind(self) -> str:
        """Kind of the verdict: "unknown" if the policy has no support, "untested" for counts per step."""
        if not self.changes:
            return "unchanged"
        if not self.gain.known:
            return "unknown"
        if self.verdict is not None:
            return self.verdict.kind
        return "untested" if self.gain.low > 0.0 else "not shown"


@dataclass(frozen=True, eq=False)
class EvaluationReport(ReportPage):
    """Report on one call of the command.

    Parameters
    ----------
    gains : estimated gains and differences
    policies : results of the policies
    behaviour : value of the behaviour policy; None for counts per step
    ended : share of episodes that reached a terminal state
    named : function that returns the labels of state and action for a row of the layout; None for counts per
        step
    share : share of the users in the training part
    made : origin of the policies, as stated by the user
    earlier : number of earlier calls with other policies on data of the same release
    users : number of users in the release
    guarantee : sentence about the guarantee of the release
    synthetic : True if the users of the release are synthetic
    """

    __repr__ = brief

    gains: PolicyGains
    policies: tuple[EvaluatedPolicy, ...]
    behaviour: Gain | None
    ended: float
    named: Callable[[int], tuple[str, str]] | None
    share: float
    made: str
    earlier: int
    users: int
    guarantee: str
    synthetic: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a dictionary of plain values that JSON can represent."""
        gains = self.gains
        tested = next((one.verdict for one in self.policies if one.verdict is not None), None)
        return {
            "version": 1,
            "release": gains.made_from["release"],
            "part": gains.made_from["part"],
            "share": gains.made_from["share"],
            "made": self.made,
            "level": gains.level,
            "users": self.users,
            "synthetic": self.synthetic,
            "earlier_calls": self.earlier,
            "warnings": self._warnings(),
            "behaviour": None if self.behaviour is None else self.behaviour.estimate,
            "consistency": None if tested is None else judged_numbers(tested)["consistency"],
            "policies": [self._plain(one) for one in self.policies],
            "against": gains.against,
            "differences": {name: one.to_dict() for name, one in gains.differences.items()},
            "guarantee": self.guarantee,
        }

    def _plain(self, one: EvaluatedPolicy) -> dict[str, Any]:
        numbers = None if one.verdict is None else judged_numbers(one.verdict)
        cause = one.verdict is not None and one.kind in ("fragile", "unchecked", "shown")
        return {
            "policy": one.name,
            "made_from": None if one.made_from is None else dict(one.made_from),
            "states_changed": one.changes,
            "kind": one.kind,
            "sentence": self.sentence(one),
            "gain": one.gain.to_dict(),
            "hidden_cause": numbers["hidden_cause"] if numbers is not None and cause else None,
            "covered": None if numbers is None else numbers["covered"],
        }

    def sentence(self, one: EvaluatedPolicy) -> str:
        """Return the sentence about one policy, including the condition of its claim."""
        gain = one.gain
        interval = f"{100 * gain.level:.4g} % interval {number(gain.low)} to {number(gain.high)}"
        if one.kind == "unchanged":
            return "It does what people did everywhere, so its gain is exactly 0."
        if one.kind == "unknown":
            return (
                "Its gain is not known: too few people took some of its actions. Whatever these actions "
                f"do, the gain is in the {interval}."
            )
        if one.verdict is not None and self.behaviour is not None and self.named is not None:
            return first_sentence(one.verdict, self.behaviour, one.changes, self.ended, self.named)
        if one.kind == "untested":
            return (
                "If no unrecorded cause drives both action and outcome, which this release cannot test, it "
                f"is better than what people did: it gains {number(gain.estimate)} ({interval})."
            )
        return (
            f"Not shown to be better than what people did: the estimated gain is {number(gain.estimate)} "
            f"({interval}), and may be none or a loss."
        )

    def blocks(self) -> list[Block]:
        """Return all blocks of the report."""
        made = [Paragraph("DRY RUN with synthetic users: nothing is shown about real users.")]
        found: list[Block] = [*(made if self.synthetic else ())]
        found += [Paragraph(f"{one.name}: {self.sentence(one)}", strong=True) for one in self.policies]
        found += [self._table(), *self._differences(), Bullets(tuple(self._notes()))]
        for one in self.policies:
            if one.verdict is not None and one.kind in _SAYS_WHY:
                rest = rests_on(one.verdict)[1:]
                found += [Heading(2, f"What the sentence on {one.name} rests on"), *rest]
        return found

    def _table(self) -> Table:
        rows = tuple(
            (
                one.name, _estimate(one.gain), f"{number(one.gain.low)} to {number(one.gain.high)}",
                number(one.gain.lack), one.kind, self._factor(one),
            )
            for one in self.policies
        )  # fmt: skip
        level = f"{100 * self.gains.level:.4g} % interval"
        head = ("policy", "gain over what people did", level, "of which lack of support", "verdict", "factor")
        return Table("", head, rows)

    @staticmethod
    def _factor(one: EvaluatedPolicy) -> str:
        """Return the largest odds factor of an unrecorded cause, at each step, up to which the gain holds."""
        if one.verdict is None or one.kind not in ("fragile", "unchecked", "shown"):
            return ""
        return times(one.verdict.cause.each_step)

    def _differences(self) -> list[Block]:
        against = self.gains.against
        rows = tuple(
            (f"{name} less {against}", _estimate(one), f"{number(one.low)} to {number(one.high)}")
            for name, one in self.gains.differences.items()
        )
        level = f"{100 * self.gains.level:.4g} % interval"
        return [Table("", ("difference of values", "estimate", level), rows)] if rows else []

    def _notes(self) -> list[str]:
        gains, count = self.gains, len(self.policies)
        read = _PARTS[gains.made_from["part"]]
        stated = {
            "train": f"{read} was read (share of the training part: {self.share:g}). It stands for "
            f"{100 * (1 - self.share):.4g} % of {self.users:,} users. The intervals hold if the policies "
            "were made from the training part alone.",
            "outside": f"{read} was read, {self.users:,} users. The intervals hold if the policies were made "
            "without the records of these users, and without any other release of them.",
            "release": f"{read} was read, {self.users:,} users. The intervals allow for the choice of the "
            "policy from the same release.",
        }[self.made]
        notes = [stated[0].upper() + stated[1:]]
        if count > 1:
            notes.append(f"The intervals hold together, for all {count} policies of this call.")
        notes.append(
            "Intervals hold for one call. A second call on the same part, after this result is known, is not "
            "corrected for: give all policies that you choose among in one call."
        )
        return [*notes, *self._warnings(), "No data were read and no budget was spent."]

    def _warnings(self) -> list[str]:
        """Return sentences about effects that the intervals of this call do not include."""
        found = [
            f"{one.name} was learned from another release of the same population: its interval is too "
            "favourable if the same people are in both."
            for one in self.policies
            if one.related
        ]
        if self.earlier:
            calls = "1 earlier call has" if self.earlier == 1 else f"{self.earlier} earlier calls have"
            found.append(
                f"{calls} read this release for other policies ({JUDGED}). If their results led to these "
                "policies, the intervals are too narrow."
            )
        return found


def _estimate(gain: ValueEstimate) -> str:
    return number(gain.estimate) if gain.known else "not known"
