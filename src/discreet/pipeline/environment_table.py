"""Public MDP that is read from a table of transition probabilities and behaviour, both known or assumed.

Each row gives the probability that one state follows another under an action::

    state, action, next_state, probability, start, share

    mild,  A,      home,       0.3,         0.7,   0.6
    mild,  A,      ill,        0.7,         0.7,   0.6
    mild,  B,      home,       0.4,         0.7,   0.4
    ...

``start`` is the share of users whose first state is ``state``. ``share`` is the probability that users select
``action`` in ``state``. ``reward`` is the mean reward of the pair in the file's units (only if the schema has
neither outcomes nor known rewards). Values that belong to a state, or to a pair of state and action, are
repeated in each row of this state or pair. Default of ``start``: equal for all states that are not terminal.
Default of ``share``: equal for all admissible actions. The schema defines states, actions, terminal states,
horizon and rewards. Terminal states need no rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import checks
from discreet.data.schema import Schema, read_public_table
from discreet.envs.mdp.tabular import TabularMDP
from discreet.pipeline.power_analysis import PublicMDP

Floats = NDArray[np.float64]

__all__ = ["read_mdp"]

_NAME = "world"
_NEEDED = ("state", "action", "next_state", "probability")
_ONE = 1e-6  # tolerance for sums of shares and of probabilities, which must be 1


def read_mdp(path: str | Path, schema: Schema) -> PublicMDP:
    """Read a public MDP from a CSV or Parquet table, for
    :func:`~discreet.pipeline.power_analysis.gain_power`.

    Parameters
    ----------
    path : file with the columns above
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
    layout = schema.layout
    states, actions, horizon = layout.states, layout.actions, layout.horizon
    s, a = schema.named.pair(_NAME, rows)
    after = schema.named.index(_NAME, "next_state", rows["next_state"], states, schema.state_labels)
    ends = list(schema.terminal)
    live = np.setdiff1d(np.arange(states), ends)
    named = _Words(schema)

    moves = np.zeros((states, actions, states))
    seen = np.zeros(moves.shape, bool)
    if len(np.unique(np.ravel_multi_index((s, a, after), moves.shape))) < len(s):
        raise ValueError(f"{_NAME}: must have one row for each state, action and next state")
    moves[s, a, after], seen[s, a, after] = _numbers(rows, "probability", 0.0, 1.0), True
    if seen[ends].any():
        end = ends[int(seen[ends].any(axis=(1, 2)).argmax())]
        raise ValueError(f"{_NAME}: {named.state(end)} is an end: must have no rows")
    admissible = layout.row_index >= 0
    told = seen.any(axis=2)
    for wrong, said in ((told & ~admissible, "is not admissible"), (admissible & ~told, "has no rows")):
        bad = np.argwhere(wrong[live])
        if bad.size:
            raise ValueError(f"{_NAME}: {named.pair(int(live[bad[0, 0]]), int(bad[0, 1]))} {said}")
    moves[ends, :, ends] = 1.0
    total = moves.sum(axis=2)
    off = np.argwhere(admissible & (np.abs(total - 1.0) > _ONE))
    if off.size:
        at = int(off[0, 0]), int(off[0, 1])
        raise ValueError(f"{_NAME}: probabilities of {named.pair(*at)} add up to {total[at]:.6g}: must be 1")
    moves = np.where(admissible[:, :, None], moves / np.where(total > 0.0, total, 1.0)[:, :, None], 0.0)

    start = np.zeros(states)
    start[live] = 1.0
    if "start" in rows:
        start = _said_once(_numbers(rows, "start", 0.0, 1.0), (s,), (states,), "start", named.state)
    if abs(start.sum() - (1.0 if "start" in rows else len(live))) > _ONE:
        raise ValueError(f"{_NAME}: start adds up to {start.sum():.6g} over states: must be 1")
    share = admissible.astype(np.float64)
    if "share" in rows:
        share = _said_once(_numbers(rows, "share", 0.0, 1.0), (s, a), share.shape, "share", named.pair)
        share[ends] = admissible[ends]
        bad = live[np.abs(share[live].sum(axis=1) - 1.0) > _ONE]
        if bad.size:
            found = share[bad[0]].sum()
            raise ValueError(
                f"{_NAME}: share of {named.state(int(bad[0]))} adds up to {found:.6g}: must be 1"
            )
    share /= share.sum(axis=1, keepdims=True)

    width = schema.high - schema.low
    if schema.outcomes is not None:
        # a censored end has the middle of the range as its reward
        arrival, ends_pay = np.zeros(states), schema.returns.outcomes or {}
        arrival[list(ends_pay)] = list(ends_pay.values())
        paid = np.repeat(np.repeat(arrival[None, None], actions, axis=1), states, axis=0)
        paid[ends] = 0.0
        rewards = (paid[None] - schema.low) / width
    elif schema.known is not None:
        if len(schema.known) > 1 and (schema.known != schema.known[:1]).any():
            raise ValueError("reward.known: must be the same at every step, as the world is")
        rewards = schema.known[:1].copy()
        rewards[:, ends] = -schema.low / width
    else:
        value = _numbers(rows, "reward", schema.low, schema.high)
        paid = _said_once(value, (s, a), share.shape, "reward", named.pair)
        rewards = (np.where(admissible, paid, 0.0)[None] - schema.low) / width
        rewards[:, ~admissible] = 0.0
        rewards[:, ends] = -schema.low / width
    mdp = TabularMDP(
        moves, rewards, start / start.sum(), horizon=horizon, mask=layout.mask, terminal=schema.terminal,
        name=file.name,
    )  # fmt: skip
    return PublicMDP(mdp, np.repeat(share[None], horizon, axis=0), schema.returns, width)


class _Words:
    """Names of states and pairs, as in the schema."""

    def __init__(self, schema: Schema) -> None:
        self._labels = schema.state_labels, schema.action_labels

    def state(self, s: int) -> str:
        labels = self._labels[0]
        return f"state {s if labels is None else labels[s]}"

    def pair(self, s: int, a: int) -> str:
        labels = self._labels[1]
        return f"{self.state(s)}, action {a if labels is None else labels[a]}"


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
    """Return one value per state (or pair).

    Raises ``ValueError`` unless the value is equal in all of its rows.
    """
    out = np.zeros(shape)
    out[index] = values
    bad = np.flatnonzero(out[index] != values)
    if bad.size:
        where = named(*(int(one[bad[0]]) for one in index))
        raise ValueError(f"{_NAME}: {column} of {where} differs between rows: must be the same in each")
    return out
