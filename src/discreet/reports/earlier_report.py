"""Report on decision points in the format of earlier statement versions, used to verify old folders.

New reports do not use this format, because it has a defect. It states "shown to be better" for every gain
whose interval is above 0, even if an unrecorded cause could explain the gain. A report in this format
contains no test for such a cause.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from discreet.reports.decision_report import DecisionReport
from discreet.reports.figures import number, percent, save_figures
from discreet.reports.verdict_text import ENDED
from discreet.utils.document import Block

SINCE = 5
"""First version of the statement that contains a verdict on hidden causes."""
_LACKED = (
    "verdict_kind", "hidden_cause", "consistency", "covered", "hinted", "censored", "outcomes", "compared",
)  # fmt: skip


class EarlierReport(DecisionReport):
    """Report on decision points in the format that belongs to statements before version ``SINCE``."""

    supposed = (
        "the state holds all that matters for what follows (no hidden cause of both action and outcome): no "
        "release can test that"
    )
    cut_off = (
        "of the episodes came to an end; where many are cut off, and what people did changes with the time, "
        "gains can be shown that are none."
    )
    surer = (
        "that is surer than what people were seen to earn, and rests more on the states: what they do not "
        "tell of a person must not matter for where she goes on to."
    )

    again = "--from-release ... --option most_changes=N"
    made = "From the release of {people} alone; it costs no privacy."
    _mark = ""

    @classmethod
    def of(cls, report: DecisionReport) -> EarlierReport:
        """Convert a report in the present format to the earlier format, with the same numbers."""
        return cls(**{**vars(report), "verdict": _verdict(report)})

    @property
    def better(self) -> bool:
        """True if the whole interval of the gain is above 0."""
        return self.gain.shown

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a dictionary of plain values that JSON can represent."""
        plain = {name: value for name, value in super().to_dict().items() if name not in _LACKED}
        return {**plain, "version": 1}

    def blocks(self) -> list[Block]:
        """Return the blocks of the report; the first block is the verdict."""
        return [*self._head(), *self._change_blocks(), *self._tail()]

    def figures(self, folder: Path | str) -> tuple[Path, ...]:
        """Draw the gain against the number of changed states."""
        return save_figures(folder, {"gain": self._figure()})


def _verdict(report: DecisionReport) -> str:
    gain, changes = report.gain, report.states_changed
    if not changes:
        return "Nothing is changed: no change is expected to help by more than its error."
    said = (
        f"it gains {number(gain.estimate)} ({100 * gain.level:g} % interval {number(gain.low)} to "
        f"{number(gain.high)}) over what people did, {number(report.behaviour.estimate)}"
    )
    states = "state" if changes == 1 else "states"
    if gain.shown:
        shown = "is shown to be better than what people did"
        if report.ended < ENDED:
            shown += (
                ", if that depends on the state and not on the time "
                f"({percent(1.0 - report.ended)} of the episodes are cut off at the last step)"
            )
        return f"Changing what is done in {changes} {states} {shown}: {said}."
    return (
        f"Not shown to be better than what people did: changing what is done in {changes} {states}, {said}. "
        "More people or more budget can show it."
    )
