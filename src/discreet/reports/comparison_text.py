"""Section of the report on decision points that compares the learned policy with rules given by the user.

Each claim that the learned policy is better than a rule states its condition in the same sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from discreet.core.short_repr import brief
from discreet.learners.ope.policy_comparison import PolicyComparison
from discreet.reports.figures import number, percent
from discreet.reports.verdict_text import condition
from discreet.utils.document import Block, Heading, Paragraph, Table, Text

_ROWS = 25  # largest number of states that the table of differences lists


@dataclass(frozen=True)
class Difference:
    """State in which a learned policy and a rule differ.

    Parameters
    ----------
    visits : number of users who visited the state (first visits)
    usual, usual_share : most frequent action of these users, and the share of users who took it
    learned, rule : actions that the policy and the rule select, as text; "as before" if the action of the
        users does not change
    """

    state: str
    visits: float
    usual: str
    usual_share: float
    learned: str
    rule: str


@dataclass(frozen=True, eq=False)
class Compared:
    """Comparison of one rule with the learned policy.

    Parameters
    ----------
    name : "your rule", with a number if the folder has several rules
    found : result of the comparison
    differences : states in which the rule and the learned policy differ
    verdict_kind : kind of the verdict on the learned policy
    ended : share of episodes that reached a terminal state
    level : confidence level of the intervals
    several : True if the folder has several rules
    """

    __repr__ = brief

    name: str
    found: PolicyComparison
    differences: tuple[Difference, ...]
    verdict_kind: str
    ended: float
    level: float
    several: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a dictionary of plain values that JSON can represent."""
        found, rule = self.found, self.found.rule
        return {
            "rule": self.name,
            "level": self.level,
            "better": found.shown,
            "kind": found.kind,
            "sentence": compared_sentence(self),
            "learned_less_rule": None if found.difference is None else asdict(found.difference),
            "rule_less_people": None if rule.gain is None else asdict(rule.gain),
            "value_of_rule": None if rule.value is None else asdict(rule.value),
            "lacking": rule.lacking,
            "effective": rule.effective,
            "hidden_cause": {"each_step": found.each_step, "lasting": found.lasting},
            "differences": [asdict(one) for one in self.differences],
        }


def compared_rows(one: Compared, cells: Any) -> list[tuple[Text, ...]]:
    """Return the rows about one rule for the table of gains.

    cells : function that returns the table cells for a gain.
    """
    rule, difference = one.found.rule, one.found.difference
    why = (
        f"your rule lacks support at {percent(rule.lacking)} of its decisions"
        if rule.gain is None
        else "nothing is changed: see the row below"
    )
    unknown = ("cannot be told", why, "", "")
    level = f" ({100.0 * one.level:.4g} %)" if one.several else ""
    return [
        (f"learned less {one.name}{level}", *(unknown if difference is None else cells(difference))),
        (f"{one.name} less what people did{level}", *(unknown if rule.gain is None else cells(rule.gain))),
    ]


def compared_sentence(one: Compared) -> str:
    """Return the sentence about the learned policy and one rule."""
    found, gain = one.found, one.found.difference
    if found.rule.gain is None:
        return (
            f"Learned policy and {one.name} cannot be compared: {percent(found.rule.lacking)} of the "
            "decisions of that rule ask for actions that too few people took."
        )
    if gain is None:
        return (
            f"Nothing is changed, so the learned policy is what people did; {one.name} is compared with that."
        )
    numbers = (
        f"the difference is {number(gain.estimate)} ({100 * gain.level:.4g} % interval {number(gain.low)} to "
        f"{number(gain.high)})"
    )
    if not found.differs.any():
        return f"The learned policy and {one.name} ask for the same everywhere."
    if one.verdict_kind != "shown":
        return (
            f"Nothing is claimed of the learned policy and {one.name}: the first line of this report does "
            f"not say that the policy is shown to gain. By the numbers alone {numbers}."
        )
    if gain.high < 0.0:
        return (
            f"Not shown to be better than {one.name}: the whole interval lies below 0, {numbers}. What a "
            "hidden cause could explain of that is not bounded here."
        )
    if found.shown:
        return (
            f"Shown to be better than {one.name}, "
            f"{condition(found.each_step, found.lasting, one.ended)}: {numbers}."
        )
    reason = {
        "not shown": "the interval of the difference reaches 0",
        "contradicted": "two readings of what actions do differ by too much for a difference this small",
        "state incomplete": "two readings of what states are worth differ by too much for a difference this "
        "small",
        "fragile": "a weaker unrecorded cause than the verdict asks for would be enough to explain the "
        "difference",
        "unchecked": "a hidden cause could not be tested for where the two differ",
    }[found.kind]
    return f"Not shown to be better than {one.name}: {reason}; {numbers}."


def compared_blocks(rules: Sequence[Compared], measured: str) -> list[Block]:
    """Return the section of the report about all rules.

    measured : data from which the gain of the policy is estimated, "transitions" or "returns".
    """
    if not rules:
        return []
    many = len(rules) > 1
    together = f" Intervals hold for all {len(rules)} rules together (Bonferroni)." if many else ""
    how = (
        "Both are judged in one model of where people went on to, by the half of the information that did "
        "not choose the changes; where both ask for the same, errors cancel."
        if measured == "transitions"
        else "What the policy gains over what people did is read off what people earned, the same of a rule "
        "off where they went on to. The interval of the difference is that of the one less that of the "
        "other, each at half of the failure probability."
    )
    return [
        Heading(2, "Compared with your rules" if many else "Compared with your rule"),
        *(Paragraph(compared_sentence(one), strong=True) for one in rules),
        Paragraph(f"{how} In states that a rule does not name people go on as before.{together}"),
        Paragraph(
            "This is post-processing of the release: no data were read and no budget was spent. Intervals "
            "hold for rules that were made without these records. They flatter a rule that was fitted to "
            "them, and no guarantee of this folder covers what such a rule tells of people."
        ),
        *(block for one in rules for block in _one(one)),
    ]


def _one(one: Compared) -> list[Block]:
    if not one.differences:
        return []
    rows = tuple(
        (
            each.state, f"{each.visits:,.0f}", f"{each.usual} ({percent(each.usual_share)})", each.learned,
            each.rule,
        )
        for each in one.differences[:_ROWS]
    )  # fmt: skip
    more, support = len(one.differences) - _ROWS, one.found.rule
    blocks: list[Block] = [
        Paragraph(f"States in which the learned policy and {one.name} differ ({len(one.differences)}):"),
        Table("", ("state", "people there", "usual action", "learned", one.name), rows),
    ]
    if more > 0:
        blocks.append(Paragraph(f"and {more} more."))
    if support.gain is not None:
        blocks.append(
            Paragraph(
                f"The gain of {one.name} over what people did rests on {support.effective:,.0f} effective "
                f"decisions; {percent(support.lacking)} of its decisions ask for actions that too few people "
                "took: the interval allows for any outcome of these."
            )
        )
    return blocks


def plain_comparisons(rules: Sequence[Compared]) -> Mapping[str, Any]:
    """Return the entries of ``report.json`` about rules. The result is empty if no rules are compared."""
    return {"compared": [one.to_dict() for one in rules]} if rules else {}
