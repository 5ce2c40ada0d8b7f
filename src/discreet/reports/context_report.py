"""Report on a policy for real-valued contexts, and the file ``policy.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discreet.core.short_repr import brief
from discreet.learners.offline.linear_advantage import AdvantagePolicy
from discreet.mechanisms.linear.context_sums import ContextRelease
from discreet.reports.figures import number
from discreet.reports.report_files import ReportPage
from discreet.utils.document import Block, Bullets, Code, Heading, Paragraph, Table, Text, in_markdown

POLICY_JSON = "policy.json"
_FORMAT = "discreet policy of contexts"
_MOST = 12  # columns of the table of weights


@dataclass(frozen=True, eq=False)
class ContextReport(ReportPage):
    """Report for a policy of :class:`~discreet.learners.offline.linear_advantage.LinearAdvantage`.

    policy : the policy. release : the release from which it was learned. actions : names of the actions.
    unit : word for one user.
    """

    __repr__ = brief

    policy: AdvantagePolicy
    release: ContextRelease
    actions: tuple[str, ...]
    unit: str

    @property
    def verdict(self) -> str:
        """Return a sentence about what this release can show."""
        return in_markdown(self._verdict(), plain=True)

    def _verdict(self) -> Text:
        return (
            f"This release alone cannot show whether this policy is better than what {self.unit}s did. If "
            "the run had ",
            Code("--judge-share"),
            f", other {self.unit}s judged it: see judgement.md.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the results as a dictionary of plain values that JSON can represent."""
        release = self.release
        return {
            "kind": "contexts",
            "users": release.users,
            "visits": release.visits,
            "features": release.features.dimension,
            "noise": {"gram": release.gram_std, "response": release.response_std},
            "columns": list(release.features.columns),
            "slopes": self._slopes().tolist(),
            "verdict": self.verdict,
        }

    def _slopes(self) -> Any:
        """Return the (A, q) changes of each action's advantage from the middle to the top of a column's
        range.
        """
        features = self.release.features
        low, high = np.array(list(features.ranges.values())).T
        middle = low / 2 + high / 2
        rows = np.vstack([middle, np.where(np.eye(len(middle), dtype=bool), high, middle)])
        found = self.policy.advantages(rows)
        return (found[1:] - found[0]).T

    def blocks(self) -> list[Block]:
        """Return all blocks of the report; the first block is the verdict."""
        release, slopes = self.release, self._slopes()
        order = np.argsort(-np.abs(slopes).max(axis=0), kind="stable")[:_MOST]
        rows = tuple(
            (release.features.columns[i], *(f"{slopes[a, i]:+.3f}" for a in range(len(self.actions))))
            for i in order.tolist()
        )
        items = (
            f"People in the release: {release.users:,}, at most {release.visits} visits of each.",
            f"Features of a context: {release.features.dimension}. Standard deviation of the noise of an "
            f"entry: {number(release.gram_std)} in matrices, {number(release.response_std)} in responses.",
            "Target: the later return, as a share of the declared range. The policy changes one decision at "
            "a time; later decisions are assumed to be as before.",
            "Columns outside their range count as its end, missing ones as its middle.",
        )
        return [
            Paragraph(self._verdict()),
            Heading(1, "Report"),
            Bullets(items),
            Heading(2, "What the policy looks at"),
            Paragraph(
                "Change of an action's advantage if one column goes from the middle to the top of its range, "
                "with all others in the middle; the columns with the largest changes. The policy takes the "
                "action with the highest advantage."
            ),
            Table("", ("column", *self.actions), rows),
        ]

    def figures(self, folder: str | Path) -> list[Path]:
        """Return an empty list, because this report has no figures."""
        return []


def write_context_policy(folder: Path, policy: AdvantagePolicy, actions: tuple[str, ...], note: str) -> None:
    """Write ``policy.json``: the feature map and the coefficients of each action.

    folder : folder of the file. policy : the policy. actions : names of the actions. note : text about
    privacy.
    """
    content = {"format": _FORMAT, "version": 1, "privacy": note, "actions": list(actions), **policy.to_dict()}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / POLICY_JSON).write_text(text, "utf-8", newline="")


def read_context_policy(where: str | Path) -> AdvantagePolicy:
    """Return the policy in a file ``policy.json``.

    where : the file, or the folder that contains it.

    ``policy(contexts)`` returns an index of an action for each context, an array (n, columns) in the order of
    ``policy.features.columns``. Raises ``ValueError`` if the file does not exist or has another format.
    """
    path = Path(where)
    path = path / POLICY_JSON if path.is_dir() else path
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != _FORMAT or content["version"] != 1:
            raise ValueError("another format")
        return AdvantagePolicy.from_dict(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: must be a policy of contexts ({error})") from None
