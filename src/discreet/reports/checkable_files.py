"""Files in the folder of a release with which others can check the statement without this library.

``release.csv`` contains the numbers of ``release.parquet`` as text. ``ledger.jsonl`` contains the entries of
the dataset in the ledger, and only the hashes of other datasets' entries. The part ``query`` of a statement
describes the released sums, their grid and their bounds. :mod:`discreet.checker` reads these files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from discreet.learners.offline.release_files import StoredTables
from discreet.utils.atomic_file import write_aside

CSV_NAME, LEDGER_NAME = "release.csv", "ledger.jsonl"
_MOST_CELLS = 1_000_000  # a release with more cells has no release.csv
_CELL = 64  # upper bound on the bytes of one line of release.csv

_DERIVATIONS = {
    "counts": "One record per step and user: if one user's records are replaced, a step with different pairs "
    "(state, action) moves two cells of each family; a step with equal pairs moves the reward, and two "
    "transition counts if the next states differ. After different next states the pairs differ.",
    "first visits": "One record per user and visited state, at most min(states, steps) of them: a state that "
    "both records visit costs at most one step of counts, a state that only one visits half of different "
    "pairs.",
    "linear sums": "A user adds phi phi^T, phi y or phi (e_s - 1/S)^T to the sums of each question about "
    "their step. The worst cosine of two feature vectors within the bound gives a question's sensitivity.",
    "contexts": "A user adds phi phi^T and phi (y - 1/2) to the sums of an action, for each of at most m "
    "visits (m is given as episodes). The vector e_a (x) phi is as long as phi, so all actions together have "
    "the sensitivity of one action, and m visits have m times that of one.",
}


def stated_query(tables: StoredTables) -> dict[str, Any]:
    """Return the part ``query`` of a statement, which depends only on the metadata of the release."""
    facts, layout = tables.facts, tables.facts.layout
    kind = "linear sums" if facts.linear else "first visits" if facts.first_visits else "counts"
    questions = [dict(one["question"]) for one in facts.query.get("questions", ())] if facts.linear else None
    if facts.contexts:
        questions = [{"kind": "pair", "step": 0, "low": 0.0, "high": 1.0, "centre": True, "half": None}]
    families: dict[str, dict[str, Any]] = {}
    for name, _, shape in tables.shapes():
        unit = getattr(facts.laws.get(name), "unit", None)
        families.setdefault(name, {"grid": unit, "cells": 0})["cells"] += math.prod(shape)
    return {
        "kind": kind, "steps": layout.horizon, "states": layout.states, "actions": layout.actions,
        "pooled": False, "first": facts.first_visits, "start": None,
        "episodes": facts.query["visits"] if facts.contexts else facts.episodes,
        "families": families,
        "features": dict(facts.query["features"]) if facts.linear else None,
        "questions": questions,
        "derivation": _DERIVATIONS["contexts" if facts.contexts else kind],
    }  # fmt: skip


def _size(tables: StoredTables) -> int:
    return sum(math.prod(shape) for _, _, shape in tables.shapes())


def csv_room(size: int) -> int:
    """Return an upper bound on the bytes of ``release.csv`` for a release of this size.

    size : estimated bytes of ``release.parquet``, at least half a byte for each cell
    """
    return _CELL * min(2 * size, _MOST_CELLS)


def write_csv(tables: StoredTables, folder: Path) -> None:
    """Write ``release.csv``: the cells of a release in the order of ``release.parquet``.

    The first lines, ``# name=value``, repeat facts of the statement. No file is written for a release with
    more than a million cells.

    - tables : the release.
    - folder : folder of the file.
    """
    if _size(tables) <= _MOST_CELLS:
        write_aside(folder / CSV_NAME, "".join(_lines(tables)).encode())


def _lines(tables: StoredTables) -> Iterator[str]:
    facts = tables.facts
    said: Mapping[str, Any] = {
        "dataset": facts.dataset or "", "users": facts.users, "trust": facts.guarantee.trust,
        "randomness": facts.guarantee.randomness, "synthetic": json.dumps(facts.run.get("synthetic", False)),
    }  # fmt: skip
    yield from (f"# {name}={value}\n" for name, value in said.items())
    rows = [facts.layout.row_state, facts.layout.row_action]
    yield "family,step,i,j,value\n" if facts.linear else "family,step,state,action,next_state,value\n"
    for name, step, shape in tables.shapes():
        values = tables.table(name, step)
        for place, value in zip(np.ndindex(*shape), values.ravel().tolist(), strict=True):
            if facts.linear:
                index = [*place, "", ""][:2]
            else:
                index = [rows[0][place[0]], rows[1][place[0]], *place[1:], ""][:3]
            yield f"{name},{step},{','.join(map(str, index))},{value!r}\n"


def ledger_lines(entries: Any, dataset: str, number: int) -> str:
    """Return the text of ``ledger.jsonl``.

    - entries : all entries of the ledger, in order.
    - dataset, number : dataset, and number of the last entry.
    """
    return "".join(
        json.dumps({"hash": one.hash, **({"text": one.text} if one.dataset in ("", dataset) else {})}) + "\n"
        for one in entries
        if one.number <= number
    )
