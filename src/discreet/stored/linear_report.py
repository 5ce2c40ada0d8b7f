"""The report on a policy from linear sums: what a release about features can say.

Sums of features hold no counts, so that values of other policies, and of what people did, cannot be told with
an interval; a release of counts (``dp-apvi``) can. What is here is the planner's own lower estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discreet.offline.linear import Learned
from discreet.offline.policies import PolicyTable, Unsupported
from discreet.tables import markdown


@dataclass(frozen=True, eq=False)
class LinearReport:
    """Of a policy table, what its learner said, and what stands where it is not supported."""

    table: PolicyTable
    learned: Learned
    unsupported: Unsupported

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
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
        }

    def to_markdown(self) -> str:
        """One page."""
        facts = self.to_dict()
        first = facts["pessimistic_value_first_step"]
        lines = [
            "Whether this policy is better than what people did cannot be told from this release: it holds "
            "sums of features, no counts.",
            "",
            "# Report",
            "",
            f"* People in the release: {facts['users']:,}.",
            "* Pessimistic value at the first step over states, in the units of the data: least "
            f"{first['least']:.4g}, median {first['median']:.4g}, largest {first['largest']:.4g}. It is a "
            "lower bound of the policy's value only as far as the constants below are the theory's.",
            f"* Supported (step, state): {facts['supported']:.1%}; elsewhere the files say: "
            f"{_ELSEWHERE[self.unsupported]}.",
            f"* Eigenvalues of noisy matrices that had to be raised: {facts['floored_eigenvalues']}.",
        ]
        lines += [f"* Heuristic: {why}." for why in facts["heuristics"]]
        by_step = enumerate(facts["supported_by_step"], self.table.first_step)
        rows = [(str(h), f"{share:.1%}") for h, share in by_step]
        return "\n".join([*lines, "", markdown([("step", "supported states"), *rows])]) + "\n"

    def figures(self, folder: str | Path) -> list[Path]:
        """None: there is nothing to draw."""
        return []


_ELSEWHERE = {
    "abstain": "nothing, the policy abstains",
    "behaviour": "what people mostly did",
    "policy": "the planner's own choice",
}
