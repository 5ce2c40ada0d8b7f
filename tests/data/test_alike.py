"""Names that may be one person are counted, and no name is told."""

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from discreet.data.alike import Alike, distinct, folded, hashed
from discreet.data.readers import open_source
from discreet.data.validate import check, partition_of


def test_folding() -> None:
    names = ["7", "007", " 7 ", "P0", "p00", "0", "000", "", "  ", "A 1", "Ä", "x0", "A-01-100", "10"]
    found = folded(pa.array(names)).to_pylist()
    assert found == ["7", "7", "7", "p0", "p0", "0", "0", "", "", "a 1", "ä", "x0", "a-1-100", "10"]


def slow(names: list[str]) -> int:
    def plain(name: str) -> str:
        parts = re.split(r"(\d+)", name.strip().lower())
        return "".join(str(int(part)) if part.isdigit() else part for part in parts)

    return len(names) - len({plain(name) for name in names})


@pytest.mark.parametrize("seed", range(20))
def test_counts_against_a_slow_count(seed: int) -> None:
    draw = np.random.default_rng(seed)
    every = sorted({"".join(draw.choice(list("0 aA1"), draw.integers(1, 5))) for _ in range(200)})
    alike = Alike()
    for begin in range(0, len(every), 37):
        alike.add(pa.array(every[begin : begin + 37]))
    assert alike.count == slow(every)


def test_compiled_folding_is_folding() -> None:
    draw = np.random.default_rng(0)
    letters = [chr(code) for code in range(128)] + list("00001aA ") * 16
    names = ["".join(draw.choice(letters, draw.integers(0, 9))) for _ in range(20_000)]
    for part in (pa.array(names), pa.array(names).slice(7, 500), pa.array(names[:0]), pa.array(["", "a"])):
        found, plain = Alike.looked_at(part), folded(part)
        assert (found.hashes == hashed(plain)).all()
        assert found.differ == (plain.to_pylist() != part.to_pylist())
    for name in names[:2000]:  # one by one: whether just this one was changed
        one = pa.array([name])
        assert Alike.looked_at(one).differ == (folded(one)[0].as_py() != name), repr(name)
    for name in ("é 1", "É1", "01é", " "):  # not ASCII: by Arrow, and the same hashes of the ASCII beside it
        both, plain = Alike.looked_at(pa.array([name, "P007"])), folded(pa.array([name, "P007"]))
        assert (both.hashes == hashed(plain)).all()
        assert both.differ
        assert both.hashes[1] == Alike.looked_at(pa.array(["p7"])).hashes[0]


def test_numbers_never_collide() -> None:
    alike = Alike()
    alike.add(pa.array([1, 10, 100]))
    assert alike.count == 0


@pytest.mark.parametrize("memory", [2**28, 500])
def test_the_warning_counts_and_names_nobody(schema: Any, make: Any, memory: int) -> None:
    rows = pd.DataFrame(make.people(30))
    rows["user"] = [f"P{user:03d}" for user in rows["user"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check(open_source(rows, schema), memory=memory).users == 30
    again = rows[rows["user"].isin(["P007", "P009"])].copy()
    again["user"] = again["user"].str.lower() + " "
    both = pd.concat([rows, again]).sample(frac=1.0, random_state=1)
    with pytest.warns(UserWarning, match="^2 of the names in 'user' differ") as caught:
        assert check(open_source(both, schema), memory=memory).users == 32
    assert "007" not in str(caught[0].message)
    assert "person counts as two" in str(caught[0].message)


def test_hashes_of_texts_tell_them_apart() -> None:
    names = pa.array([f"{i:x}" for i in range(50_000)] + ["", "a", "aa", "ä"], pa.large_string())
    found = hashed(names)
    assert (
        distinct(found)
        == distinct(hashed(names.take(pa.array(range(len(names)))[::-1])))
        == len(set(names.to_pylist()))
    )
    assert (hashed(names.slice(7, 100)) == found[7:107]).all()
    assert (hashed(names.cast(pa.string())) == found).all()
    assert distinct(found[:0]) == 0
    assert (hashed(pa.array([3, -1])) == np.array([3, -1]).view(np.uint64)).all()
    parts = np.bincount(partition_of(names, 7), minlength=7)
    assert parts.min() > 0.95 * len(names) / 7
    assert np.bincount(partition_of(pa.array(range(7000)), 7), minlength=7).min() > 900
