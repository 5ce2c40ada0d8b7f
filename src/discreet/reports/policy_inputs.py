"""Files of policies for an evaluation, with the origin of each policy.

- ``.csv``: columns ``state,action[,probability]`` (a rule) or ``step,state,action,...``. Also a
  ``policy.csv``, or a file of :func:`save_policy`.
- ``.npy``: an array in the format of :func:`discreet.learners.ope.policy_gains.evaluate_policies`.
- ``.parquet``: a file of :func:`save_policy`.
- ``.py``: a ``policy.py``, which is executed.
- A folder: its ``policy.csv``.

If a file does not name a state, or its action is empty, the behaviour policy acts there. The origin
(:mod:`discreet.learners.ope.policy_origin`) is in a comment line of a CSV file or in the metadata of a
Parquet file. Without such a line, a ``policy.csv`` or ``policy.py`` next to a ``release.parquet`` is
assumed to be computed from the whole release.
"""

from __future__ import annotations

import csv
import io
import json
import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from pyarrow import parquet

from discreet.core import checks
from discreet.core.short_repr import brief
from discreet.data.schema import Schema
from discreet.learners.offline.release_files import aside, read_release
from discreet.learners.ope.count_estimates import BEHAVIOUR
from discreet.learners.ope.policy_origin import PolicyArray, origin_of
from discreet.learners.ope.release_split import content_hash
from discreet.reports.rule_files import RuleReader

_MARK = "# discreet.made_from "
_KEY = b"discreet.made_from"
_SUFFIXES = (".csv", ".npy", ".parquet", ".py")


@dataclass(frozen=True, eq=False)
class GivenPolicy:
    """Policy from a file.

    Parameters
    ----------
    name : path of the file, as it was given
    policy : array in the format of :func:`discreet.learners.ope.policy_gains.evaluate_policies`, with its
        origin
    release : path of the release in the same folder from which the policy was computed; None without such a
        release
    """

    __repr__ = brief

    name: str
    policy: PolicyArray
    release: Path | None = None


def read_given_policy(path: str | Path, schema: Schema, run_code: bool = False) -> GivenPolicy:
    """Read a policy for the states and actions of a schema.

    Parameters
    ----------
    path : str or Path
        File or folder in one of the formats of the module docstring.
    schema : Schema
        Labels, sizes and the number of the first step.
    run_code : bool
        If True, a Python file may be executed.

    Raises
    ------
    ValueError
        If the file is missing, of another kind, or invalid, or if it is a Python file and ``run_code`` is
        False. The message states the file.
    """
    given, path = str(path), Path(path)
    given = f"./{given}" if given == BEHAVIOUR else given  # name of the behaviour policy
    if path.is_dir():
        path = path / "policy.csv"
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"{path}: must end in {', '.join(_SUFFIXES)}, or be a folder with a policy.csv")
    if path.suffix == ".py" and not checks.flag("run_code", run_code):
        raise ValueError(f"{path}: is a program, which is executed only with --run-code (run_code = True)")
    read = {".csv": _of_csv, ".npy": _of_array, ".parquet": _of_parquet, ".py": _of_program}[path.suffix]
    try:
        table, origin = read(path, schema)
        origin = None if origin is None else origin_of(origin)
    except (OSError, ValueError, KeyError, csv.Error, pa.ArrowException) as error:
        raise ValueError(f"{path}: {error}") from None
    beside = None
    if origin is None and path.name in ("policy.csv", "policy.py"):
        beside = path.with_name("release.parquet")
        origin, beside = _origin_beside(beside) if beside.is_file() else (None, None)
    return GivenPolicy(given, PolicyArray.of(table, origin), beside)


def _origin_beside(release: Path) -> tuple[dict[str, Any] | None, Path | None]:
    try:
        content = content_hash(read_release(release))
    except ValueError:  # sums of features cannot be evaluated like counts
        return None, None
    return {"release": content, "part": "whole", "share": 1.0}, release


_Found = tuple[NDArray[Any], Mapping[str, Any] | None]


def _of_csv(path: Path, schema: Schema) -> _Found:
    text, origin, marked = path.read_text(encoding="utf-8-sig"), None, False
    if text.startswith(_MARK):
        line, _, text = text.partition("\n")
        origin, marked = _parsed(line.removeprefix(_MARK)), True
    rows = RuleReader(schema, csv.DictReader(io.StringIO(text, newline=""), strict=True), int(marked))
    return _filled(*rows.steps(marked, 0 if marked else schema.first_step, schema.horizon)), origin


def _parsed(text: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] | None = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line 1: must have the origin of the policy as JSON ({error})") from None
    return found


def _filled(table: NDArray[np.float64], named: NDArray[np.bool_]) -> NDArray[Any]:
    """Return integers if every named state has one action, otherwise probabilities; -1 means the behaviour
    policy.
    """
    if (table[named].max(axis=-1) == 1.0).all():
        return np.where(named, table.argmax(axis=-1), -1)
    return np.where(named[..., None], table, -1.0)


def _of_array(path: Path, schema: Schema) -> _Found:
    return np.load(path, allow_pickle=False), None


def _of_parquet(path: Path, schema: Schema) -> _Found:
    stored = parquet.read_table(path)
    metadata = stored.schema.metadata or {}
    if _KEY not in metadata:
        raise ValueError(f"is not a policy: its metadata have no key {_KEY.decode()!r}")
    text = io.StringIO(newline="")
    out = csv.writer(text)
    out.writerow(stored.column_names)
    out.writerows(zip(*(column.to_pylist() for column in stored.columns), strict=True))
    text.seek(0)
    rows = RuleReader(schema, csv.DictReader(text, strict=True))
    return _filled(*rows.steps(True, 0, schema.horizon)), _parsed(metadata[_KEY].decode())


def _of_program(path: Path, schema: Schema) -> _Found:
    act = runpy.run_path(str(path)).get("act")
    if not callable(act):
        raise ValueError("must define act(step, state)")
    shape = schema.horizon, schema.layout.states
    found = np.full(shape, -1)
    labels = {label: i for i, label in enumerate(schema.action_labels or ())}
    for h, s in np.ndindex(*shape):
        try:
            action = act(h + schema.first_step, s)
        except Exception as error:  # the user supplied this program
            raise ValueError(f"act({h + schema.first_step}, {s}) failed: {error!r}") from None
        if action is not None:
            found[h, s] = checks.integer(
                f"act({h + schema.first_step}, {s})", labels.get(action, action), 0, schema.layout.actions - 1
            )
    return found, None


def save_policy(path: str | Path, policy: ArrayLike, made_from: Mapping[str, Any] | None = None) -> None:
    """Write a policy with its origin to a file, for `discreet evaluate`.

    The file has one row for each step, state and action with a positive probability. Steps, states and
    actions are indices from 0. States in which the behaviour policy acts have no row.

    Parameters
    ----------
    path : str or Path
        File that ends in .csv or .parquet. An existing file is replaced.
    policy : (H, S) integers or (H, S, A) probabilities
        -1 means the behaviour policy.
    made_from : mapping, optional
        Origin: ``release``, ``part`` and ``share``. If None, the origin of the array is used, as set by
        ``WorldModel.plan`` and ``WorldModel.policy_table``.

    Raises
    ------
    ValueError
        If the path has another ending, or a shape, an entry or the origin is invalid.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"path = {str(path)!r}: must end in .csv or .parquet")
    made_from = getattr(policy, "made_from", None) if made_from is None else made_from
    origin = json.dumps(None if made_from is None else origin_of(made_from))
    array = np.asarray(policy)
    if array.ndim == 2 and array.dtype.kind in "iu":
        if array.min(initial=0) < -1:
            raise ValueError(f"policy holds {array.min()}: must be actions, or -1 for as before")
        named = array >= 0
        table = np.zeros((*array.shape, int(array.max(initial=0)) + 1))
        table[np.nonzero(named)] = np.eye(table.shape[-1])[array[named]]
    elif array.ndim == 3 and array.dtype.kind == "f":
        named = ~(array == -1).all(axis=-1)
        table = np.where(named[..., None], array, 0.0)
        if not ((table >= 0.0).all() and (np.abs(table[named].sum(axis=-1) - 1.0) <= 1e-9).all()):
            raise ValueError("policy: must hold probabilities that sum to 1 within 1e-9, or rows of -1")
    else:
        raise ValueError(
            f"policy has shape {array.shape} and dtype {array.dtype}: must be (H, S) integers or (H, S, A) "
            "probabilities"
        )
    step, state, action = np.nonzero(table)
    columns = {"step": step, "state": state, "action": action, "probability": table[step, state, action]}
    if path.suffix == ".parquet":
        stored = pa.table(columns).replace_schema_metadata({_KEY: origin.encode()})
        with aside(path) as file:
            parquet.write_table(stored, file)
        return
    text = io.StringIO(newline="")
    text.write(f"{_MARK}{origin}\n")
    out = csv.writer(text, lineterminator="\n")
    out.writerow(columns)
    out.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    with aside(path) as file:
        file.write(text.getvalue().encode())
