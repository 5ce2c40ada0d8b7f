"""Trajectory files (Parquet or CSV) with one row per step, written in chunks.

Writing in chunks allows cohorts that are larger than memory. A file is written under a temporary name,
readable only by its owner, and renamed when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from discreet.core import checks
from discreet.core.trajectories import Trajectories, checked
from discreet.data.row_batches import Progress
from discreet.data.schema import FACTS, Columns, Schema
from discreet.data.synthetic_mark import MARK, Facts, packed
from discreet.envs.mdp.tabular import TabularMDP
from discreet.envs.rollouts.rollout import rollout_batch
from discreet.mechanisms.policy_rows import policy_rows


class TrajectoryWriter:
    """Context manager that writes the trajectories of users 0, 1, .. to one file.

    If the ``with`` block raises an exception, the incomplete file is deleted.

    Parameters
    ----------
    path : path of the file, which ends in ``.parquet`` or ``.csv``
        An existing file is replaced when the new file is complete.
    schema : Schema
        Defines column names, labels, the number of the first step, and the range to which rewards in [0, 1]
        are scaled. If the schema has groups, users are assigned to the groups in turn.
    trim : bool
        If True, steps that begin in a terminal state of the schema are left out, except the first step of an
        episode.
    synthetic : mapping, optional
        Facts of synthetic users, which mark the file (:mod:`discreet.data.synthetic_mark`).
    readings : mapping of name to (S,) values, optional
        Additional columns, with one value for each state.
    """

    def __init__(
        self,
        path: str | Path,
        schema: Schema,
        *,
        trim: bool = False,
        synthetic: Facts | None = None,
        readings: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.schema, self.trim = Path(path), schema, checks.flag("trim", trim)
        self.synthetic, self.readings = synthetic, dict(readings or {})
        if self.path.suffix not in (".parquet", ".csv"):
            raise ValueError(f"path = {str(path)!r}: must end in .parquet or .csv")
        self.users = 0
        self._aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> TrajectoryWriter:
        self._file = os.fdopen(os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        try:
            layout = self._table(_nobody(self.schema.horizon), np.empty(0, np.int64)).schema
            kind = parquet.ParquetWriter if self.path.suffix == ".parquet" else arrow_csv.CSVWriter
            self._writer = kind(self._file, layout)
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._aside, self.path)
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        if self._writer is not None:
            # Closing can fail for the same reason as writing; the file is deleted even then.
            with suppress(Exception):
                self._writer.close()
        self._file.close()
        self._aside.unlink(missing_ok=True)

    def write(self, trajectories: Trajectories) -> None:
        """Append the episodes of more users to the file.

        Each user has m = ``episodes_per_user`` episodes, so n episodes belong to n / m users.

        Raises
        ------
        ValueError
            If n is not a multiple of m, or a record does not fit the layout of the schema.
        """
        each = self.schema.episodes_per_user
        if len(trajectories) % each:
            raise ValueError(
                f"{len(trajectories)} episodes: must be a multiple of episodes_per_user = {each}"
            )
        _check(trajectories, self.schema)
        number = self.users * each + np.arange(len(trajectories))
        self._writer.write_table(self._table(trajectories, number))
        self.users += len(trajectories) // each

    def _table(self, trajectories: Trajectories, number: NDArray[np.int64]) -> pa.Table:
        schema, names, horizon = self.schema, self.schema.columns, self.schema.horizon
        each = schema.episodes_per_user
        state, after = trajectories.states[:, :-1].ravel(), trajectories.states[:, 1:].ravel()
        table = pa.table(
            {
                names.user: np.repeat(number // each, horizon),
                names.episode: np.repeat(number % each, horizon),
                names.step: np.tile(np.arange(horizon) + schema.first_step, len(trajectories)),
                names.state: _named(state, schema.state_labels),
                names.action: _named(trajectories.actions.ravel(), schema.action_labels),
                names.reward: schema.low + trajectories.rewards.ravel() * (schema.high - schema.low),
                names.next_state: _named(after, schema.state_labels),
            }
        )
        if schema.groups is not None:  # users are assigned to the groups in turn
            labels = schema.groups.labels
            own = np.repeat(number // each % len(labels), horizon)
            table = table.append_column(schema.groups.column, _named(own, labels))
        for name, values in self.readings.items():
            table = table.append_column(name, pa.array(values).take(pa.array(state)))
        if self.synthetic is not None:
            text = packed(self.synthetic)
            cells = pa.nulls(table.num_rows, pa.string())
            if number.size and not number[0]:  # the first row of the file
                cells = pa.concat_arrays([pa.array([text]), cells[1:]])
            table = table.append_column(MARK, cells).replace_schema_metadata({MARK: text})
        if self.trim and schema.terminal:
            first = np.tile(np.arange(horizon) == 0, len(trajectories))
            table = table.filter(pa.array(first | ~np.isin(state, schema.terminal)))
        return table


def write_trajectories(
    trajectories: Trajectories, path: str | Path, schema: Schema, *, trim: bool = False
) -> None:
    """Write all trajectories to a single file.

    Parameters
    ----------
    path : path of the file, which ends in ``.parquet`` or ``.csv``. An existing file is replaced when the new
        file is complete
    trajectories : trajectories of users 0, 1, ..
    schema : defines column names, labels, the number of the first step, and the range to which rewards in
        [0, 1] are scaled
    trim : if True, steps that begin in a terminal state of the schema are left out, except the first step of
        an episode

    Raises
    ------
    ValueError
        If the file name has another ending, or the records do not fit the sizes in the schema.
    """
    with TrajectoryWriter(path, schema, trim=trim) as writer:
        writer.write(trajectories)


def cohort_schema(mdp: TabularMDP, dataset: str, *, episodes_per_user: int = 1) -> Schema:
    """Return the schema of data that are simulated in an MDP.

    The schema has the same terminal states as the MDP. If rewards occur only on arrival in terminal states
    and are deterministic, they are declared as outcomes.
    """
    return Schema(
        dataset=dataset,
        unit="person",
        layout=mdp.layout,
        columns=Columns(),
        episodes_per_user=episodes_per_user,
        stationary=mdp.stationary,
        terminal=mdp.terminal,
        provenance=dict.fromkeys(FACTS, "protocol"),
        outcomes=outcomes_of(mdp),
    )


def outcomes_of(mdp: TabularMDP) -> dict[int, float] | None:
    """Return the reward on arrival in each terminal state, by state.

    Returns None if the MDP has other rewards, or if the rewards are random.
    """
    earned = mdp.successor_rewards
    if earned is None or not mdp.stationary or mdp.reward_law != "deterministic" or not mdp.terminal:
        return None
    possible, paid, ends = mdp.transitions[0] > 0.0, earned[0], list(mdp.terminal)
    if paid[ends].any() or np.delete(paid, ends, axis=2).any():
        return None
    possible = np.delete(possible, ends, axis=0)
    paid = np.delete(paid, ends, axis=0)
    found = {}
    for state in ends:
        values = np.unique(paid[..., state][possible[..., state]])
        if values.size > 1:
            return None
        if values.size:
            found[state] = float(values[0])
    return found if any(found.values()) else None


def write_cohort(
    mdp: TabularMDP,
    policy: ArrayLike,
    users: int,
    path: str | Path,
    schema: Schema,
    *,
    seed: int = 0,
    run: int = 0,
    chunk: int = 2**14,
    trim: bool = False,
    progress: Progress | None = None,
) -> None:
    """Simulate users in an MDP and write their trajectories to a file, ``chunk`` users at a time.

    policy : behaviour policy of the users, (H, S) int or (H, S, A) probabilities. The same (seed, run) gives
        the same rows for any ``chunk``.

    Raises
    ------
    ValueError
        If the layout of the schema differs from that of the MDP, or a parameter is out of range.
    """
    users, chunk = checks.integer("users", users, 1), checks.integer("chunk", chunk, 1)
    if schema.layout != mdp.layout:
        raise ValueError("schema: must have the layout (states, actions, horizon, mask) of the world")
    each, played = schema.episodes_per_user, policy_rows(mdp.layout, policy)
    with TrajectoryWriter(path, schema, trim=trim) as writer:
        for first in range(0, users, chunk):
            n = min(chunk, users - first)
            writer.write(rollout_batch(mdp, played, n * each, seed, run, first * each))
            if progress is not None:
                progress("write", (first + n) * each * mdp.horizon, users * each * mdp.horizon)


def _nobody(horizon: int) -> Trajectories:
    none = np.empty((0, horizon))
    return Trajectories(np.empty((0, horizon + 1), np.int64), none.astype(np.int64), none)


def _named(index: NDArray[np.int64], labels: tuple[str, ...] | None) -> Any:
    return index if labels is None else pa.array(labels).take(pa.array(index))


def _check(trajectories: Trajectories, schema: Schema) -> None:
    """Raise ``ValueError`` if trajectories have wrong shapes or values outside the ranges of the schema.

    If the check of all arrays together fails, records are checked one by one, to name the invalid record.
    """
    states, actions, rewards = trajectories.states, trajectories.actions, trajectories.rewards
    layout, n = schema.layout, len(trajectories)
    fits = (
        (states.shape, actions.shape, rewards.shape)
        == ((n, layout.horizon + 1), (n, layout.horizon), (n, layout.horizon))
        and bool(((states >= 0) & (states < layout.states)).all())
        and bool(((actions >= 0) & (actions < layout.actions)).all())
        and bool((layout.row_index[states[:, :-1], actions] >= 0).all())
        and bool(((rewards >= 0) & (rewards <= 1)).all())
    )
    if not fits:
        for trajectory in trajectories:
            checked(trajectory, layout)
        raise ValueError("trajectories: states, actions and rewards must have as many users each")
