"""Reader of a public MDP from a table of transition probabilities and action probabilities.

Each row of the table gives the probability of a next state after a state and an action::

    state, action, next_state, probability, start, share

    mild,  A,      home,       0.3,         0.7,   0.6
    mild,  A,      ill,        0.7,         0.7,   0.6
    mild,  B,      home,       0.4,         0.7,   0.4
    ...

``start`` is the share of users whose first state is ``state``. ``share`` is the probability that users select
``action`` in ``state``. ``reward`` is the mean reward of the pair in the file's units. The column ``reward``
is required only if the schema has neither outcomes nor known rewards. Some values belong to a state, or to a
pair of state and action. Such a value is repeated in each row of the state or pair. By default, ``start`` is
equal for all states that are not terminal, and ``share`` is equal for all admissible actions. The schema
defines states, actions, terminal states, horizon and rewards. Terminal states have no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from discreet.core import checks
from discreet.core.releases import Floats
from discreet.data.schema import Schema, read_public_table
from discreet.envs.mdp.tabular import TabularMDP
from discreet.pipeline.power_analysis import PublicMDP

_NAME = "world"
_NEEDED = ("state", "action", "next_state", "probability")
_ONE = 1e-6  # tolerance for sums of shares and of probabilities, which must be 1


def read_mdp(path: str | Path, schema: Schema) -> PublicMDP:
    """Read a public MDP from a CSV or Parquet table, for
    :func:`~discreet.pipeline.power_analysis.gain_power`.

    Parameters
    ----------
    path : CSV or Parquet file with the columns that the docstring of the module describes
    schema : Schema
        Defines the names of states, actions and terminal states, the admissible actions, and the rewards.

    Raises
    ------
    ValueError
        If the table is invalid. The message names the column, the value or the state, and the accepted
        values.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{_NAME} = {str(path)!r}: must be an environment or a file (.csv, .parquet)")
    reads = schema.outcomes is None and schema.known is None
    allowed = (*_NEEDED, "start", "share", *(["reward"] if reads else []))
    rows = read_public_table(_NAME, file, allowed, (*_NEEDED, *(["reward"] if reads else [])))
    table = _ParsedTable(schema, rows)
    moves, start, share = table.transitions(), table.starts(), table.shares()
    layout = schema.layout
    mdp = TabularMDP(
        moves, table.rewards(), start / start.sum(), horizon=layout.horizon, mask=layout.mask,
        terminal=schema.terminal, name=file.name,
    )  # fmt: skip
    behaviour = np.repeat(share[None], layout.horizon, axis=0)
    return PublicMDP(mdp, behaviour, schema.returns, schema.high - schema.low)


class _ParsedTable:
    """Rows of the file, with the indices of their states and actions in the schema."""

    def __init__(self, schema: Schema, rows: Mapping[str, Any]) -> None:
        layout = schema.layout
        self._schema, self._rows = schema, rows
        self._s, self._a = schema.named.pair(_NAME, rows)
        self._after = schema.named.index(
            _NAME, "next_state", rows["next_state"], layout.states, schema.state_labels
        )
        self._ends = list(schema.terminal)
        self._live = np.setdiff1d(np.arange(layout.states), self._ends)
        self._admissible = layout.row_index >= 0

    def transitions(self) -> Floats:
        """Return the (S, A, S) transition probabilities.

        They are scaled so that the probabilities of each admissible pair sum to 1. Raises ``ValueError`` if
        the sum of a pair in the file is not 1.
        """
        states, actions = self._admissible.shape
        moves = np.zeros((states, actions, states))
        cells = (self._s, self._a, self._after)
        if len(np.unique(np.ravel_multi_index(cells, moves.shape))) < len(self._s):
            raise ValueError(f"{_NAME}: must have one row for each state, action and next state")
        seen = np.zeros(moves.shape, bool)
        moves[cells], seen[cells] = _numbers(self._rows, "probability", 0.0, 1.0), True
        self._check_pairs(seen.any(axis=2))
        moves[self._ends, :, self._ends] = 1.0
        total = moves.sum(axis=2)
        off = np.argwhere(self._admissible & (np.abs(total - 1.0) > _ONE))
        if off.size:
            at = int(off[0, 0]), int(off[0, 1])
            raise ValueError(
                f"{_NAME}: probabilities of {self._pair(*at)} add up to {total[at]:.6g}: must be 1"
            )
        scaled = moves / np.where(total > 0.0, total, 1.0)[:, :, None]
        return np.where(self._admissible[:, :, None], scaled, 0.0)

    def _check_pairs(self, given: Any) -> None:
        """Raise ``ValueError`` unless exactly the admissible pairs of non-terminal states have rows.

        given : (S, A) bool, True for pairs that have rows.
        """
        if given[self._ends].any():
            end = self._ends[int(given[self._ends].any(axis=1).argmax())]
            raise ValueError(f"{_NAME}: {self._state(end)} is an end: must have no rows")
        admissible = self._admissible
        for wrong, said in ((given & ~admissible, "is not admissible"), (admissible & ~given, "has no rows")):
            bad = np.argwhere(wrong[self._live])
            if bad.size:
                pair = self._pair(int(self._live[bad[0, 0]]), int(bad[0, 1]))
                raise ValueError(f"{_NAME}: {pair} {said}")

    def starts(self) -> Floats:
        """Return the (S,) shares of users that begin in each state, not scaled to the sum 1.

        Without a column ``start``, the value is 1 for each state that is not terminal.
        """
        start = np.zeros(len(self._admissible))
        start[self._live] = 1.0
        if "start" in self._rows:
            value = _numbers(self._rows, "start", 0.0, 1.0)
            start = _said_once(value, (self._s,), start.shape, "start", self._state)
        if abs(start.sum() - (1.0 if "start" in self._rows else len(self._live))) > _ONE:
            raise ValueError(f"{_NAME}: start adds up to {start.sum():.6g} over states: must be 1")
        return start

    def shares(self) -> Floats:
        """Return the behaviour policy as (S, A) probabilities of actions."""
        share = self._admissible.astype(np.float64)
        if "share" in self._rows:
            value = _numbers(self._rows, "share", 0.0, 1.0)
            share = _said_once(value, (self._s, self._a), share.shape, "share", self._pair)
            share[self._ends] = self._admissible[self._ends]
            bad = self._live[np.abs(share[self._live].sum(axis=1) - 1.0) > _ONE]
            if bad.size:
                found = share[bad[0]].sum()
                raise ValueError(
                    f"{_NAME}: share of {self._state(int(bad[0]))} adds up to {found:.6g}: must be 1"
                )
        share /= share.sum(axis=1, keepdims=True)
        return share

    def rewards(self) -> Floats:
        """Return the rewards, scaled to [0, 1].

        Terminal states have a reward of 0 in the units of the file.
        """
        schema, (states, actions) = self._schema, self._admissible.shape
        width = schema.high - schema.low
        if schema.outcomes is not None:
            # the outcome of a censored end is the middle of the range of outcomes
            arrival, ends_pay = np.zeros(states), schema.returns.outcomes or {}
            arrival[list(ends_pay)] = list(ends_pay.values())
            paid = np.repeat(np.repeat(arrival[None, None], actions, axis=1), states, axis=0)
            paid[self._ends] = 0.0
            rewards: Floats = (paid[None] - schema.low) / width
            return rewards
        if schema.known is not None:
            if len(schema.known) > 1 and (schema.known != schema.known[:1]).any():
                raise ValueError("reward.known: must be the same at every step, as the world is")
            rewards = schema.known[:1].copy()
        else:
            value = _numbers(self._rows, "reward", schema.low, schema.high)
            paid = _said_once(value, (self._s, self._a), (states, actions), "reward", self._pair)
            rewards = (np.where(self._admissible, paid, 0.0)[None] - schema.low) / width
            rewards[:, ~self._admissible] = 0.0
        rewards[:, self._ends] = -schema.low / width
        return rewards

    def _state(self, s: int) -> str:
        labels = self._schema.state_labels
        return f"state {s if labels is None else labels[s]}"

    def _pair(self, s: int, a: int) -> str:
        labels = self._schema.action_labels
        return f"{self._state(s)}, action {a if labels is None else labels[a]}"


def _numbers(rows: Mapping[str, Any], column: str, low: float, high: float) -> Floats:
    values = np.asarray(rows[column])
    if values.dtype.kind not in "iuf":
        raise ValueError(f"{_NAME}: column {column!r} must hold numbers without gaps")
    values = values.astype(np.float64)
    bad = np.flatnonzero(~((values >= low) & (values <= high)))
    if bad.size:
        said = checks.said(values[bad[0]])
        raise ValueError(f"{_NAME}: {column} = {said} in row {bad[0]}: must be in [{low:g}, {high:g}]")
    return values


def _said_once(values: Floats, index: Any, shape: tuple[int, ...], column: str, named: Any) -> Floats:
    """Return an array of the given shape, with one value per state or per pair of state and action.

    Raises ``ValueError`` if two rows of the same state or pair have different values.
    """
    out = np.zeros(shape)
    out[index] = values
    bad = np.flatnonzero(out[index] != values)
    if bad.size:
        where = named(*(int(one[bad[0]]) for one in index))
        raise ValueError(f"{_NAME}: {column} of {where} differs between rows: must be the same in each")
    return out
