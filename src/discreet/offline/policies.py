"""Policies as files: ``policy.csv`` for people and programs, ``policy.py`` to act without this library.

``policy.csv`` has one row for each step and state, in this order:

==============  ==================================================================================
column          meaning
==============  ==================================================================================
step            in the numbering of the schema: from ``first_step`` (0 or 1)
state           index from 0
state_label     only if the schema has labels of states
action          index from 0; empty where the policy abstains
action_label    only if the schema has labels of actions; empty where the policy abstains
supported       1 or 0: whether there is enough data behind the planner's own action
value           pessimistic value of the planner's own action there
behaviour       index of the action that the noisy counts see most often; empty where not known
==============  ==================================================================================

What stands under ``action`` where a state is not supported is decided when the file is written
(``unsupported``): nothing (``abstain``), what people mostly did (``behaviour``), or the planner's own
choice (``policy``). Both files are post-processing of the release.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Unsupported = Literal["abstain", "behaviour", "policy"]

__all__ = ["PolicyTable", "Unsupported", "read_policy", "write_policy"]


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicyTable:
    """A deterministic policy, and how far it is supported.

    policy : (H, S) int, the planner's own action everywhere.
    supported : (H, S) bool.
    values : (H, S) pessimistic values of the planner's actions.
    behaviour : (H, S) int, optional; the most frequent action by the noisy counts.
    state_labels, action_labels : names of the indices, optional.
    first_step : 0 or 1.
    """

    policy: Ints
    supported: Bools
    values: Floats
    behaviour: Ints | None = None
    state_labels: tuple[str, ...] | None = None
    action_labels: tuple[str, ...] | None = None
    first_step: int = 0

    @classmethod
    def of(cls, learned: Any, schema: Any = None) -> PolicyTable:
        """From an :class:`~discreet.offline.tabular.OfflinePolicy`, labels and first step of a schema."""
        raise AssertionError

    def actions(self, unsupported: Unsupported) -> Ints:
        """(H, S) int: what stands in the file, -1 where the policy abstains."""
        raise AssertionError


def write_policy(
    folder: str | Path, table: PolicyTable, statement: str, unsupported: Unsupported = "abstain"
) -> None:
    """Write ``policy.csv`` and ``policy.py``; ``statement``: the sentence on privacy for its docstring."""
    raise AssertionError


def read_policy(folder: str | Path) -> tuple[Ints, Bools]:
    """(H, S) actions, -1 where the policy abstains, and (H, S) supported, of a folder's ``policy.csv``."""
    raise AssertionError
