"""Exact sums of parts of the users, on the command line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import call

pytestmark = pytest.mark.usefixtures("figures_are_sketched", "own_ledger")


def test_parts_of_the_users_give_the_release_of_all(
    data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, schema = data
    frame = pd.read_parquet(rows)
    users = np.sort(frame["user"].unique())
    call("aggregate", "--new-key", "key")
    for name, part in (("a", users[:20]), ("b", users[20:])):
        frame[frame["user"].isin(part)].to_parquet(f"{name}.parquet")
        call("aggregate", f"{name}.parquet", "--schema", schema, "--key", "key", "--out", f"{name}.tally")
    learn = [
        "learn",
        "--schema",
        schema,
        "--epsilon",
        1,
        "--delta",
        "1e-6",
        "--no-ledger",
        "--seed",
        3,
        "--out",
    ]
    call(*learn, "parts", "a.tally", "b.tally")
    call(*learn, "all", rows)
    assert Path("parts/policy.csv").read_bytes() == Path("all/policy.csv").read_bytes()
    values = [pd.read_parquet(f"{one}/release.parquet")["value"] for one in ("parts", "all")]
    np.testing.assert_allclose(*values, rtol=1e-3)  # the noise of a sum on a grid has another scale


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--new-key", "other", "--key", "key"], "new-key: must be given alone"),
        (["--key", "key", "--out", "p.tally"], "files is missing"),
        (["{rows}", "--schema", "{schema}", "--key", "key"], "out is missing"),
        (["{rows}", "--schema", "{schema}", "--key", "key", "--out", "p.csv"], "must end in .tally"),
        (
            ["{rows}", "--schema", "{schema}", "--key", "key", "--out", "no/p.tally"],
            "in a folder that exists",
        ),
    ],
)
def test_bad_arguments(
    more: list[str], message: str, data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call("aggregate", "--new-key", "key")
    told = call("aggregate", *(one.format(rows=data[0], schema=data[1]) for one in more), code=2).stderr
    assert message in " ".join(told.split())
    assert not list(tmp_path.glob("*.tally"))
