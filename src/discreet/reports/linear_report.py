"""Report on a policy that was learned from sums of features.

With ``judged = true``, the policy is learned from one half of the users. The gain of the policy over the
users' behaviour is then estimated from the other half (:mod:`~discreet.learners.ope.linear_gains`). Otherwise
the release contains only the sums that the planner queried for its value functions. These sums determine
neither the value of the behaviour nor the value of a policy. The report then contains the lower estimate that
the planner computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discreet.learners.offline.linear_pevi import LinearOfflinePolicy
from discreet.learners.ope.linear_gains import LinearGain
from discreet.reports.figures import number
from discreet.reports.policy_files import PolicyTable, Unsupported
from discreet.reports.report_files import ReportPage
from discreet.utils.document import Block, Bullets, Code, Heading, Paragraph, Table, Text, in_markdown


@dataclass(frozen=True, eq=False)
class LinearReport(ReportPage):
    """Report for a policy learned from linear sums."""

    table: PolicyTable
    learned: LinearOfflinePolicy
    unsupported: Unsupported
    judged: bool = False
    gain: LinearGain | None = None

    @property
    def verdict(self) -> str:
        """Sentence that states whether the policy is shown to be better than the users' behaviour."""
        return in_markdown(self._verdict(), plain=True)

    def _verdict(self) -> Text:
        if not self.judged:
            return _NOT_ASKED
        if self.gain is None:
            return _NOT_THIS_ONE
        gain, level = self.gain, f"{100 * self.gain.level:g} %"
        interval = f"{level} interval {number(gain.low)} to {number(gain.high)}"
        over = f"over what people did, {number(gain.usual)}"
        said = f"it gains {number(gain.estimate)} ({interval}) {over}"
        if gain.unseen:
            said = f"what it gains {over}, depends on what nobody is seen to have done ({interval})"
        if gain.shown:
            return (
                "If the world is linear in these features, and no unrecorded cause drives both action and "
                "outcome, which this release cannot test, the learned policy is better than what people did: "
                f"{said}."
            )
        return f"The learned policy is not shown to be better than what people did: {said}."

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a dictionary of plain values that JSON can represent."""
        first = self.table.values[0]
        return {
            "kind": "linear",
            "users": self.learned.users,
            "pessimistic_value_first_step": {
                "least": float(first.min()),
                "median": float(np.median(first)),
                "largest": float(first.max()),
            },
            "supported": float(self.table.supported.mean()),
            "supported_by_step": [float(share) for share in self.table.supported.mean(axis=1)],
            "unsupported": self.unsupported,
            "floored_eigenvalues": self.learned.floored,
            "heuristics": list(self.learned.heuristics),
            "verdict": self.verdict,
            "judged": self.judged,
            "gain": None if self.gain is None else self.gain.to_dict(),
        }

    def blocks(self) -> list[Block]:
        """Return all blocks of the report; the first block is the verdict."""
        facts = self.to_dict()
        first = facts["pessimistic_value_first_step"]
        items = [
            f"People in the release: {facts['users']:,}.",
            "Pessimistic value at the first step over states, in the units of the data: least "
            f"{first['least']:.4g}, median {first['median']:.4g}, largest {first['largest']:.4g}. It is a "
            "lower bound of the policy's value only as far as the constants below are the theory's.",
            f"Supported (step, state): {facts['supported']:.1%}; elsewhere the files say: "
            f"{_ELSEWHERE[self.unsupported]}.",
            f"Eigenvalues of noisy matrices that had to be raised: {facts['floored_eigenvalues']}.",
            *(f"Heuristic: {why}." for why in facts["heuristics"]),
        ]
        by_step = enumerate(facts["supported_by_step"], self.table.first_step)
        rows = tuple((str(h), f"{share:.1%}") for h, share in by_step)
        return [
            Paragraph(self._verdict()),
            Heading(1, "Report"),
            Bullets(tuple(items)),
            *self._gains(),
            Table("", ("step", "supported states"), rows),
        ]

    def _gains(self) -> list[Block]:
        gain = self.gain
        if gain is None:
            return []
        level = f"{100 * gain.level:g} %"
        head = ("", "estimate", f"{level} interval", "sd of privacy's noise", "sd of who was in the data")
        row = (
            "learned less what people did",
            "cannot be told" if gain.unseen else number(gain.estimate),
            f"{number(gain.low)} to {number(gain.high)}",
            number(gain.noise),
            f"{number(gain.sampling)} at most",
        )
        said = (
            f"About {gain.episodes:,.0f} episodes judged it, of people whom it was not learned from; the "
            "interval is two-sided, and in the units of the data's returns. Judged is the planner's own "
            "choice everywhere, also where the files abstain. Both ends were moved apart by "
            f"{number(gain.lacking)}, which is what features that nobody is seen to have had may be worth, "
            f"and by {number(gain.bent)}, which is what was taken off for the mean of noise in inverses"
            f"{': more than all else, so that no one number is given' if gain.unseen else ''}. "
            "Another policy that is planned from this release gets no judgement: it could be chosen for what "
            "this half says of it."
        )
        return [Heading(2, "What it gains"), Table("", head, (row,)), Paragraph(said)]

    def figures(self, folder: str | Path) -> list[Path]:
        """Return an empty list, because this report has no figures."""
        return []


_NOT_ASKED: Text = (
    "Whether this policy is better than what people did cannot be told from this release: it holds sums of "
    "features, no counts, and no half of the people was asked to judge it (",
    Code("--set judged=true"),
    ").",
)
_NOT_THIS_ONE = (
    "Whether this policy is better than what people did cannot be told from this release: too few people "
    "judge it, or they judge another policy, that of the first planning."
)

_ELSEWHERE = {
    "abstain": "nothing, the policy abstains",
    "behaviour": "what people mostly did",
    "policy": "the planner's own choice",
}
