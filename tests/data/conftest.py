"""A small world with a mask, labels and a terminal state, and its rows as plain dictionaries."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from discreet.core.layout import Layout
from discreet.data.schema import Schema

H, S, A = 4, 5, 3
MASK = np.ones((S, A), bool)
MASK[1, 2] = False
NAMES = ("user", "episode", "step", "state", "action", "reward", "next_state")
Rows = list[dict[str, Any]]


@pytest.fixture
def schema() -> Schema:
    return Schema("test", "person", Layout(S, A, H, MASK), terminal=(4,), low=-1.0, high=3.0)


def people(users: int, seed: int = 0, each: int = 1, name: Any = int) -> Rows:
    """Random episodes of up to H steps; those that reach state 4 early may stop there."""
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for user in range(users):
        for episode in range(each):
            s = int(rng.integers(0, 4))
            for step in range(H):
                after = 4 if s == 4 else int(rng.integers(0, S))
                rows.append(
                    dict(
                        zip(
                            NAMES,
                            (
                                name(user), episode, step, s, 0 if s == 4 else int(rng.integers(0, 2)),
                                0.0 if s == 4 else float(rng.integers(-8, 25)) / 8, after,
                            ),
                            strict=True,
                        )
                    )
                )  # fmt: skip
                s = after
                if s == 4 and rng.random() < 0.5:
                    break
    return rows


def save(rows: Rows, path: Path) -> Path:
    """Write rows as they are."""
    if path.suffix == ".csv":
        lines = [",".join(NAMES)]
        lines += [",".join("" if row[name] is None else str(row[name]) for name in NAMES) for row in rows]
        path.write_text("\n".join(lines) + "\n")
    else:
        parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def shuffled(rows: Rows, seed: int = 0) -> Rows:
    return [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]


@pytest.fixture
def make() -> SimpleNamespace:
    return SimpleNamespace(people=people, save=save, shuffled=shuffled)
