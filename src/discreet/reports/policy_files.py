"""Policies as files: the table ``policy.csv``, and ``policy.py``, a program that runs without this library.

``policy.csv`` has one row for each step and state, in this order:

==============  ==================================================================================
column          meaning
==============  ==================================================================================
step            number of the step, as in the schema; the first is ``first_step`` (0 or 1)

state           index of the state, from 0
state_label     label of the state; only if the schema has labels of states
action          index of the action, from 0; empty if the policy abstains

action_label    label of the action; only if the schema has labels; empty if the policy abstains
supported       1 if enough data support the planner's own action, otherwise 0

value           pessimistic value of the planner's own action; empty if ``supported`` is 0
behaviour       index of the most frequent action in the noisy counts; empty if not known
==============  ==================================================================================

The table of the learner ``decision-points`` is different. There, ``value`` is the expected return after the
first visit to a changed state, if all changes are made. The additional columns ``value_low`` and
``value_high`` contain the interval of ``value``. These three columns are empty in states that are not
changed, or if the value is not known.

The option ``unsupported`` determines ``action`` at a step and state without support. The values are
``abstain`` (no action), ``behaviour`` (the users' most frequent action) and ``policy`` (the planner's own
action). Both files are post-processing of the release.
"""

from __future__ import annotations

import csv
import io
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.accounting.text.sentence_templates import VERSION
from discreet.core import checks
from discreet.core.releases import Floats, Ints
from discreet.core.short_repr import brief
from discreet.data.schema import Schema
from discreet.learners.offline.release_files import aside

if TYPE_CHECKING:
    from discreet.learners.offline.apvi import OfflinePolicy
    from discreet.learners.offline.decision_points import DecisionPolicy

Bools = NDArray[np.bool_]
Unsupported = Literal["abstain", "behaviour", "policy"]

_AS_BEFORE = 6  # since this version of the statement, files of decision points no longer contain "abstains"


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicyTable:
    """Table of a deterministic policy, its values and its support.

    Parameters
    ----------
    policy : (H, S) int, the planner's own action at every step and state, with or without support; -1 means
        the behaviour policy
    supported : (H, S) bool, True where enough data support the planner's own action
    values : (H, S) pessimistic values of the planner's actions. If ``intervals`` is given, the values are
        estimates instead, with NaN for unknown values
    intervals : (low, high), optional; each (H, S), with NaN where the value is not known
    behaviour : (H, S) int, optional; the most frequent action according to the noisy counts
    state_labels, action_labels : label of each state and of each action, optional; no label occurs twice
    first_step : number of the first step in the data, 0 or 1

    Raises
    ------
    ValueError
        If shapes differ, an action is below -1 or has no label, labels repeat, or a value is not finite.
    """

    __repr__ = brief

    policy: Ints
    supported: Bools
    values: Floats
    behaviour: Ints | None = None
    state_labels: tuple[str, ...] | None = None
    action_labels: tuple[str, ...] | None = None
    first_step: int = 0
    intervals: tuple[Floats, Floats] | None = None

    def __post_init__(self) -> None:
        put, shape = object.__setattr__, np.shape(self.policy)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"policy has shape {shape}: must be (H, S)")
        put(self, "first_step", checks.integer("first_step", self.first_step, 0, 1))
        for name in ("state_labels", "action_labels"):
            labels = getattr(self, name)
            if labels is not None:
                put(self, name, tuple(labels))
                if not all(isinstance(label, str) and label for label in labels):
                    raise ValueError(f"{name}: every label must be text, not empty")
                if len(set(labels)) < len(labels):
                    raise ValueError(f"{name}: every label must occur once")
        if self.state_labels is not None and len(self.state_labels) != shape[1]:
            raise ValueError(f"state_labels has {len(self.state_labels)} entries: must be {shape[1]}")
        most = None if self.action_labels is None else len(self.action_labels) - 1
        put(self, "policy", _actions("policy", self.policy, shape, most, -1))
        if self.intervals is None:
            put(self, "values", checks.floats("values", self.values, shape))
        else:
            tables = (self.values, *self.intervals)
            known = [np.isfinite(np.asarray(table, np.float64)) for table in tables]
            if not all(np.array_equal(one, known[0]) for one in known):
                raise ValueError("intervals: must be known where values are, and nowhere else")
            filled = [
                checks.floats(name, np.nan_to_num(np.asarray(table, np.float64)), shape)
                for name, table in zip(("values", "intervals[0]", "intervals[1]"), tables, strict=True)
            ]
            value, low, high = (np.where(known[0], table, np.nan) for table in filled)
            put(self, "values", value)
            put(self, "intervals", (low, high))
        supported = np.asarray(self.supported)
        if supported.dtype != np.bool_ or supported.shape != shape:
            raise ValueError(f"supported: must be (H, S) = {shape} of bool")
        if self.behaviour is not None:
            put(self, "behaviour", _actions("behaviour", self.behaviour, shape, most))

    @classmethod
    def of(cls, learned: OfflinePolicy | DecisionPolicy, schema: Schema | None = None) -> PolicyTable:
        """Build the table from the result of an offline learner.

        - learned : result of the learner.
        - schema : source of the labels and of the number of the first step.
        """
        policy = np.asarray(learned.policy)
        return cls(
            policy=policy,
            supported=learned.supported,
            values=np.take_along_axis(learned.q, policy[..., None], axis=-1)[..., 0],
            behaviour=learned.behaviour,
            state_labels=None if schema is None else schema.state_labels,
            action_labels=None if schema is None else schema.action_labels,
            first_step=0 if schema is None else schema.first_step,
        )

    def actions(self, unsupported: Unsupported = "abstain") -> Ints:
        """Return the actions that ``policy.csv`` contains, (H, S) int, with -1 where the policy abstains.

        Raises
        ------
        ValueError
            If ``unsupported`` is "behaviour" and the behaviour is not known.
        """
        checks.choice("unsupported", unsupported, get_args(Unsupported))
        if unsupported == "policy":
            return self.policy
        if unsupported == "abstain":
            return np.where(self.supported, self.policy, -1)
        if self.behaviour is None:
            raise ValueError("unsupported = 'behaviour': the release does not say what users did most often")
        return np.where(self.supported, self.policy, self.behaviour)


def _actions(name: str, value: ArrayLike, shape: tuple[int, ...], most: int | None, least: int = 0) -> Ints:
    table = np.asarray(value)
    if table.dtype.kind not in "iu" or table.shape != shape:
        raise ValueError(f"{name}: must be (H, S) = {shape} of integers")
    if table.min() < least or (most is not None and table.max() > most):
        allowed = (
            f"at least {least}" if most is None else f"in [{least}, {most}], the actions that have labels"
        )
        raise ValueError(f"{name} holds {table.min()} to {table.max()}: must be {allowed}")
    return table.astype(np.int64)


def write_policy(
    folder: str | Path, table: PolicyTable, statement: str, unsupported: Unsupported = "abstain",
    version: int = VERSION,
) -> None:  # fmt: skip
    """Write ``policy.csv`` and ``policy.py`` into an existing folder.

    Parameters
    ----------
    folder : str or Path
    table : PolicyTable
    statement : str
        Sentence about privacy, which is put into the docstring of ``policy.py``.
    unsupported : "abstain", "behaviour" or "policy"
        Content of the column ``action`` at steps and states where the planner's own action has no support.
    version : int
        Version of the privacy statement, which selects the sentences in ``policy.py``.
    """
    chosen = table.actions(unsupported)
    states, actions = table.state_labels, table.action_labels
    text = io.StringIO(newline="")
    out = csv.writer(text)
    names = [
        "step", "state", "state_label", "action", "action_label", "supported", "value", "value_low",
        "value_high", "behaviour",
    ]  # fmt: skip
    absent = {
        "state_label": states is None, "action_label": actions is None,
        **dict.fromkeys(("value_low", "value_high"), table.intervals is None),
    }  # fmt: skip
    out.writerow([name for name in names if not absent.get(name)])
    for (h, s), action in np.ndenumerate(chosen):
        row: list[object] = [h + table.first_step, s]
        row += [] if states is None else [states[s]]
        row.append("" if action < 0 else int(action))
        row += [] if actions is None else ["" if action < 0 else actions[action]]
        sure = bool(table.supported[h, s])
        row.append(int(sure))
        for numbers in (table.values, *(table.intervals or ())):
            number = float(numbers[h, s])
            row.append(repr(number) if sure and np.isfinite(number) else "")
        row.append("" if table.behaviour is None else int(table.behaviour[h, s]))
        out.writerow(row)
    folder = Path(folder)
    for name, content in (
        ("policy.csv", text.getvalue()),
        ("policy.py", _module(table, statement, unsupported, version)),
    ):
        with aside(folder / name) as file:
            file.write(content.encode())


def _module(table: PolicyTable, statement: str, unsupported: Unsupported, version: int) -> str:
    changes_little = version >= _AS_BEFORE and table.intervals is not None
    rule = {
        "abstain": "people continue as before" if changes_little else "the policy abstains",
        "behaviour": "the action is the one that people took most often, by the noisy counts",
        "policy": "the action is the planner's own all the same",
    }[unsupported]
    found, about = _TEMPLATE, " ".join(statement.split()).replace("\\", "\\\\").replace('"', '\\"')
    paragraphs = (
        "Acts by policy.csv, which must lie beside this file. Needs nothing but Python itself.",
        f"Privacy: {about}",
        f"{'Elsewhere than in changed states' if changes_little else 'Where there is too little data'} "
        f"(supported = 0), {rule}.",
    )
    filled = "\n\n".join(textwrap.fill(part, 100, break_long_words=False) for part in paragraphs)
    steps = f"{table.first_step} to {table.first_step + len(table.policy) - 1}"
    nothing = "people continue as before" if changes_little else "the policy abstains"
    for mark, text in (("@ABOUT@", filled), ("@STEPS@", steps), ("@NOTHING@", nothing)):
        found = found.replace(mark, text)
    return found


_TEMPLATE = '''"""@ABOUT@
"""

import csv
import pathlib

_ACTIONS = {}
_STATES = {}  # label to index
with open(pathlib.Path(__file__).with_name("policy.csv"), encoding="utf-8", newline="") as _file:
    for _row in csv.DictReader(_file):
        if "state_label" in _row:
            _STATES[_row["state_label"]] = int(_row["state"])
        if _row["action"] == "":
            _action = None
        else:
            _action = _row["action_label"] if "action_label" in _row else int(_row["action"])
        _ACTIONS[int(_row["step"]), int(_row["state"])] = _action


def act(step, state):
    """The action at a step (@STEPS@) in a state, or None where @NOTHING@.

    ``state`` is an index from 0, or a label where policy.csv has a column state_label; the action is
    a label where it has a column action_label, else an index. Anything else is a KeyError.
    """
    return _ACTIONS[step, _STATES[state] if isinstance(state, str) else state]
'''


def read_policy(folder: str | Path) -> tuple[Ints, Bools]:
    """Read ``policy.csv`` in a folder.

    Returns the actions, (H, S) int with -1 where the policy abstains, and the support, (H, S) bool.

    Raises
    ------
    ValueError
        If the file is missing, a row is missing or out of order, or a cell is invalid. The message names the
        file.
    """
    path = Path(folder) / "policy.csv"
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
        return _parsed(rows)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path}: {error}") from None


def _parsed(rows: list[dict[str, str]]) -> tuple[Ints, Bools]:
    if not rows or not {"step", "state", "action", "supported"} <= set(rows[0]):
        raise ValueError("must have rows, with columns step, state, action and supported")

    def whole(n: int, name: str, low: int, high: int | None = None) -> int:
        try:
            return checks.integer(name, int(rows[n][name]), low, high)
        except (TypeError, ValueError):
            raise ValueError(
                f"row {n + 1}: {name} = {checks.said(rows[n][name])}: must be an integer"
                + (f" of at least {low}" if high is None else f" in [{low}, {high}]")
            ) from None

    first = whole(0, "step", 0, 1)
    states = max(whole(n, "state", 0) for n in range(len(rows))) + 1
    steps, rest = divmod(len(rows), states)
    if rest:
        raise ValueError(f"has {len(rows)} rows: must be a multiple of its {states} states")
    actions, supported = np.full((steps, states), -1), np.zeros((steps, states), bool)
    for n in range(len(rows)):
        h, s = divmod(n, states)
        if (whole(n, "step", 0), whole(n, "state", 0)) != (h + first, s):
            raise ValueError(f"row {n + 1}: must be of step {h + first} and state {s}")
        actions[h, s] = -1 if rows[n]["action"] == "" else whole(n, "action", 0)
        supported[h, s] = whole(n, "supported", 0, 1) == 1
    return actions, supported
