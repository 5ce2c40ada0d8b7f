"""Data that tests of the command line share."""

from pathlib import Path

import pytest
from commands import call


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    """(rows, schema) of 60 synthetic users."""
    rows = tmp_path / "people.parquet"
    options = ["--env-option", "states=3", "--env-option", "actions=2", "--env-option", "horizon=3"]
    call("simulate-data", "random", *options, "--users", 60, "--out", rows, "--dataset", "ward")
    return rows, rows.with_suffix(".toml")
