"""Small files of stays with vital signs, and their schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from discreet.data.schema import Schema, parse_schema
from discreet.envs.vitals import VitalsWorld

VITALS = 4


def content(**changes: Any) -> dict[str, Any]:
    """Return the content of a schema file with contexts."""
    columns = {f"vital {i}": {"range": [-4.0, 4.0]} for i in range(VITALS)}
    return {
        "dataset": "icu", "unit": "patient", "horizon": 6, "actions": {"labels": ["none", "one", "two"]},
        "reward": {"low": 0.0, "high": 1.0}, "return_bound": 1.0, "context": {"columns": columns},
        "provenance": {"context": "literature"}, **changes,
    }  # fmt: skip


def schema(propensity: bool = False) -> Schema:
    """Return the schema. propensity : True if it names the column of probabilities."""
    made = content()
    if propensity:
        made["context"]["propensity"] = "chance"
    return parse_schema(made)


def frame(stays: int = 400, seed: int = 0, effect: float = 0.3) -> pd.DataFrame:
    """Return the rows of simulated stays, in a random order."""
    world = VitalsWorld(effect=effect, skill=0.0, vitals=VITALS, horizon=6, seed=1)
    found = world.play(stays, seed)
    last = np.r_[found.stay[1:] != found.stay[:-1], True]
    rows = pd.DataFrame({
        "user": [f"p{i}" for i in found.stay.tolist()], "episode": 0, "step": found.step,
        "action": np.array(["none", "one", "two"])[found.actions],
        "reward": np.where(last, found.returns[found.stay], 0.0), "chance": found.propensities,
        **{f"vital {i}": found.vitals[:, i] for i in range(VITALS)},
    })  # fmt: skip
    return rows.sample(frac=1, random_state=seed).reset_index(drop=True)


def write(path: Path, **options: Any) -> Path:
    """Write the rows of simulated stays to a Parquet file."""
    frame(**options).to_parquet(path)
    return path
