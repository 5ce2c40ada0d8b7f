"""Rules for comparison with a learned policy: CSV files of states, actions and probabilities.

A rule selects actions with the same probabilities at every step. Its file has the columns ``state,action`` or
``state,action,probability``. The states and actions are labels of the schema or indices from 0. In states
that the rule does not name, the behaviour policy acts. The ``policy.csv`` of a folder can also be used as a
rule, if the policy selects the same action at every step. Rules are public: the folder of a comparison
contains them.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.core.short_repr import brief
from discreet.data.schema import Schema

_ONE = 1e-9
_MOST = 100  # largest number of rules in one report
_NEEDED, _ALLOWED = ("state", "action"), ("state", "state_label", "action", "action_label", "probability")


def rule_names(count: int) -> tuple[str, ...]:
    """Return the file names that ``count`` rules have in a folder."""
    count = checks.integer("compare", count, 0, _MOST)
    return tuple("rule.csv" if i == 0 else f"rule-{i + 1}.csv" for i in range(count))


@dataclass(frozen=True, eq=False)
class StationaryRule:
    """Rule: action probabilities for some states, the same at every step.

    Parameters
    ----------
    table : (S, A) probabilities of actions; 0 in states that the rule does not name
    named : (S,) bool, True for states that the rule names
    state_labels, action_labels : labels of the schema
    """

    __repr__ = brief

    table: NDArray[np.float64]
    named: NDArray[np.bool_]
    state_labels: tuple[str, ...] | None = None
    action_labels: tuple[str, ...] | None = None

    def text(self) -> str:
        """Return the rule as the text of a CSV file, from which :func:`read_rule` reads the same rule."""
        text = io.StringIO(newline="")
        out = csv.writer(text)
        states, actions = self.state_labels, self.action_labels
        absent = {"state_label": states is None, "action_label": actions is None}
        out.writerow([name for name in _ALLOWED if not absent.get(name)])
        for s in np.flatnonzero(self.named).tolist():
            for a in np.flatnonzero(self.table[s] > 0.0).tolist():
                row: list[object] = [s, *([] if states is None else [states[s]])]
                row += [a, *([] if actions is None else [actions[a]]), repr(float(self.table[s, a]))]
                out.writerow(row)
        return text.getvalue()


def read_rule(path: str | Path, schema: Schema) -> StationaryRule:
    """Read a rule for the states and actions of a schema.

    path : a CSV file, or a folder with a file ``policy.csv``.

    Raises
    ------
    ValueError
        If a label is unknown, a (state, action) pair is not admissible, the probabilities of a state do not
        sum to 1 within 1e-9, or an action depends on the step. The message states the file and the line.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "policy.csv"
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return RuleReader(schema, csv.DictReader(file, strict=True)).rule()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path}: {error}") from None


class RuleReader:
    """Reader of one file of states, actions and probabilities.

    - schema : schema with labels and sizes.
    - file : rows of the file.
    - skipped : number of lines before them.
    """

    _only_indices = False

    def __init__(self, schema: Schema, file: csv.DictReader[str], skipped: int = 0) -> None:
        self._schema, self._layout = schema, schema.layout
        self.columns = tuple(file.fieldnames or ())
        self.rows: list[dict[str, str]] = []
        self.lines: list[int] = []
        for row in file:
            if None in row or None in row.values():
                raise ValueError(f"line {file.line_num + skipped}: must have {len(self.columns)} cells")
            self.rows.append(row)
            self.lines.append(file.line_num + skipped)

    def rule(self) -> StationaryRule:
        """Return the rule that the file contains. Raises ``ValueError`` if the file is invalid."""
        stepped = self._check_columns()
        if stepped:
            self._take_one_step()
        self._leave_out_empty(stepped)
        if not self.rows:
            raise ValueError("must name a state, in all others the behaviour policy acts")
        return self._rule()

    def steps(self, indices: bool, first: int, horizon: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return a rule with one table per step: the (H, S, A) probabilities and the (H, S) mask of named
        states.

        - indices : True if states and actions are indices; False if they are labels, when all cells are
        labels.

        - first : number of the first step.
        - horizon : number of steps.

        Raises ``ValueError`` if the file is invalid.
        """
        layout = self._layout
        stepped = self._check_columns()
        self._only_indices = indices
        self._leave_out_empty(stepped)
        table, named = (
            np.zeros((horizon, layout.states, layout.actions)),
            np.zeros((horizon, layout.states), bool),
        )
        if not stepped:
            if self.rows:
                rule = self._rule()
                table[:], named[:] = rule.table, rule.named
            return table, named
        rows, lines, of_step = self.rows, self.lines, dict[int, list[int]]()
        for i, (row, line) in enumerate(zip(rows, lines, strict=True)):
            of_step.setdefault(
                self._index("step", row["step"].strip(), line, first + horizon, first), []
            ).append(i)
        for step, own in of_step.items():
            self.rows, self.lines = [rows[i] for i in own], [lines[i] for i in own]
            rule = self._rule()
            table[step - first], named[step - first] = rule.table, rule.named
        return table, named

    def _check_columns(self) -> bool:
        """Return True if the file has a column of steps. Raises ``ValueError`` if columns are wrong."""
        stepped = "step" in self.columns
        if not set(_NEEDED) <= set(self.columns) or not (stepped or set(self.columns) <= set(_ALLOWED)):
            raise ValueError(
                "line 1: columns must be state,action or state,action,probability; or those of a policy.csv"
            )
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("line 1: every column must occur once")
        return stepped

    def _leave_out_empty(self, stepped: bool) -> None:
        """Leave out the rows of a file for steps without an action."""
        kept = [i for i, row in enumerate(self.rows) if row["action"] != "" or not stepped]
        self.rows, self.lines = [self.rows[i] for i in kept], [self.lines[i] for i in kept]

    def _rule(self) -> StationaryRule:
        """Return the rule that the remaining rows define."""
        schema, layout = self._schema, self._layout
        states = self._indices("state", schema.state_labels, layout.states)
        actions = self._indices("action", schema.action_labels, layout.actions)
        chances = [self._chance(i) for i in range(len(self.rows))]
        table = np.zeros((layout.states, layout.actions))
        first: dict[int, int] = {}
        given = np.zeros(table.shape, bool)
        for line, s, a, chance in zip(self.lines, states, actions, chances, strict=True):
            first.setdefault(s, line)
            if given[s, a]:
                raise ValueError(f"line {line}: {self._said(s, a)} stands in an earlier line already")
            if layout.row_index[s, a] < 0:
                raise ValueError(f"line {line}: {self._said(s, a)} is not admissible")
            table[s, a], given[s, a] = chance, True
        for s, line in first.items():
            total = math.fsum(table[s])
            if abs(total - 1.0) > _ONE:
                raise ValueError(
                    f"line {line}: probabilities of state {self._name(s, schema.state_labels)} add up to "
                    f"{total:.12g}: must be 1 within {_ONE:g}"
                )
        named = np.asarray(given.any(axis=1))
        return StationaryRule(table, named, schema.state_labels, schema.action_labels)

    def _take_one_step(self) -> None:
        """Keep only the rows of the first step.

        Raises ``ValueError`` if a row of another step has another action in the same state.
        """
        asked: dict[str, str] = {}
        rows, lines = [], []
        first = self.rows[0]["step"] if self.rows else ""
        for row, line in zip(self.rows, self.lines, strict=True):
            state, action = row["state"], row["action"]
            if row["step"] == first:
                asked[state] = action
                rows.append(row)
                lines.append(line)
            elif asked.get(state) != action:
                raise ValueError(
                    f"line {line}: the action in state {checks.said(state)} differs between steps: the rule "
                    "must be the same at every step"
                )
        self.rows, self.lines = rows, lines

    def _indices(self, column: str, labels: Sequence[str] | None, count: int) -> list[int]:
        """Return the indices of the states or actions in a column.

        If all cells of the column are labels of the schema, they are read as labels. Otherwise, they are read
        as indices. Raises ``ValueError`` if some cells are labels and others are not.
        """
        cells = [row[column] if row[column] in (labels or ()) else row[column].strip() for row in self.rows]
        other = f"{column}_label"
        if other in self.columns or labels is None or self._only_indices:
            found = self._all(column, cells, count)
            if other in self.columns:
                self._check_labels(other, found, labels)
            return found
        index = {label: i for i, label in enumerate(labels)}
        if all(cell in index for cell in cells):
            return [index[cell] for cell in cells]
        if any(cell in index for cell in cells):
            bad = next(i for i, cell in enumerate(cells) if cell not in index)
            raise ValueError(f"line {self.lines[bad]}: {column} = {checks.said(cells[bad])}: is not a label")
        return self._all(column, cells, count)

    def _all(self, column: str, cells: Sequence[str], count: int) -> list[int]:
        return [self._index(column, cell, line, count) for cell, line in zip(cells, self.lines, strict=True)]

    def _check_labels(self, column: str, found: Sequence[int], labels: Sequence[str] | None) -> None:
        for row, line, i in zip(self.rows, self.lines, found, strict=True):
            if labels is None or row[column] != labels[i]:
                raise ValueError(
                    f"line {line}: {column} = {checks.said(row[column])}: must be that of index {i} in the "
                    "schema"
                )

    @staticmethod
    def _index(column: str, cell: str, line: int, count: int, least: int = 0) -> int:
        if not (cell.isascii() and cell.isdigit() and least <= int(cell) < count):
            label = "" if column == "step" else "a label of the schema or "
            raise ValueError(
                f"line {line}: {column} = {checks.said(cell)}: must be {label}an index in "
                f"[{least}, {count - 1}]"
            )
        return int(cell)

    def _chance(self, i: int) -> float:
        if "probability" not in self.columns:
            return 1.0
        cell = self.rows[i]["probability"]
        try:
            chance = float(cell)
        except ValueError:
            chance = math.nan
        if not 0.0 <= chance <= 1.0:
            raise ValueError(
                f"line {self.lines[i]}: probability = {checks.said(cell)}: must be a number in [0, 1]"
            )
        return chance

    def _said(self, s: int, a: int) -> str:
        schema = self._schema
        return f"state {self._name(s, schema.state_labels)}, action {self._name(a, schema.action_labels)}"

    @staticmethod
    def _name(index: int, labels: Sequence[str] | None) -> str:
        return str(index) if labels is None else f"'{labels[index]}'"
