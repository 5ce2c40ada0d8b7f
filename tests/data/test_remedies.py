"""Remedies: offences are counted, and told apart."""

from __future__ import annotations

import math
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from discreet.data.prepare import Refused, prepare
from discreet.data.remedies import remedy

from .test_prepare import SMALL

pytestmark = pytest.mark.filterwarnings(  # random records have readings at any time
    "ignore:readings taken after the action form states:UserWarning"
)


def write(tmp_path: Path, text: str, rows: Any, name: str = "out", **how: Any) -> Path:
    (tmp_path / "P.toml").write_text(text)
    prepare(pd.DataFrame(rows), tmp_path / "P.toml", tmp_path / name, **how)
    return tmp_path / name


ROWS = {"who": ["1"] * 3, "when": [0.0, 1.0, 2.0], "x": [-1.0, 1.0, 1.0], "a": ["go", "", "go"]}


def changed(**columns: Any) -> dict[str, Any]:
    return {**ROWS, **columns}


OFFENCES: list[tuple[dict[str, Any], dict[str, int]]] = [
    (
        changed(who=["1", None, " "]),
        {"user without a name": 2, "episode that ends before the horizon, without an end": 1},
    ),
    (changed(when=["0", "x", "2"]), {"time that cannot be read": 1}),
    (changed(when=["0", "", None]), {"time that cannot be read": 2}),
    (changed(when=["0", "inf", "1e300"]), {"time that cannot be read": 2}),
    (changed(x=["-1", "1,5", "?"]), {"x: number that cannot be read": 2}),
    (changed(x=[-1.0, math.inf, 1.0]), {"x: number that cannot be read": 1}),
    (changed(x=[math.nan, 1.0, math.nan]), {"x: missing": 2}),
    (changed(a=["go", "GO", "run"]), {"a: unknown category": 2}),
    (
        {**ROWS, "who": ["1"] * 4, "when": [0, 1, 1, 2], "x": [1, 1, -1, 1], "a": ["go"] * 4},
        {"x: two values at one time": 1},
    ),
    (changed(when=[0.0, 1.0, 1.5]), {"episode that ends before the horizon, without an end": 1}),
]


def test_remedies_are_told_apart_in_one_paragraph_too() -> None:
    said = " ".join(str(Refused({"x: missing": 1, "x: two values at one time": 2}, Path("o.csv"))).split())
    assert f"what helps: x: missing: {remedy('x: missing')}; x: two values at one time: " in said


@pytest.mark.parametrize(("rows", "counts"), OFFENCES, ids=[next(iter(c)) for _, c in OFFENCES])
def test_offences_are_counted_and_all_of_them_are_kept(tmp_path: Path, rows: Any, counts: Any) -> None:
    with pytest.raises(Refused) as error:
        write(tmp_path, SMALL, rows)
    assert error.value.counts == counts
    for reason in counts:
        assert f"  {reason}: {remedy(reason)}" in str(error.value)
        assert remedy(reason)
    private = tmp_path / "out.offending.csv"
    assert error.value.path == private
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    listed = pd.read_csv(private)
    assert listed["reason"].value_counts().to_dict() == counts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["P.toml", "out.offending.csv"]
