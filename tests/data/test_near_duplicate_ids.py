"""Names that may be one person are counted, and no name is told."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from discreet.data.near_duplicate_ids import Alike, _fold, alike, distinct, folded, hashed
from discreet.data.row_batches import open_source
from discreet.data.validate import check, partition_of

SAME = (  # names that are one for certain
    ["7", "007", " 7 ", "7.0", "7.", "7.00", "+7", "7\u00a0", "\u30007", "7\t"],
    ["7", "\uff17", "\u0667", "7\x00", "\ufeff7"],
    ["17", "1.7e1", "1.7E+01", "17.0000", "1\u200b7", "\u200e17\u200f", "\u206617\u2069"],
    ["100000", "1e+05", "1E+05", "1.0e5", "100000.0"],
    ["-17", "-017", "-17.0", "\u221217"],
    ["P0", "p00", "\uff300"],
    ["M\u00fc17", "Mu\u030817", "M\u00dc17", "m\u00fc\u00ad17", "Mu\u200d\u030817"],
    ["A-01-100", "a-1-100", "A\u20131\u2014100", "A\u20111-100"],
    ["Anna Maria", "anna  maria", "Anna\u00a0Maria", "Anna\tMaria"],
    ["Stra\u00dfe", "STRASSE"],
    ["O'Brien", "O\u2019Brien"],
    ["\ufb01n", "fin"],
    ["\uc815", "\u110c\u1165\u11bc"],
    ["0", "000", "0.0", "+0"],
    ["", "  ", "\u200b", "\u00ad"],
)  # fmt: skip
LIKE = (  # names that only the data's owner can tell apart
    ["A-17", "A17", "A 17", "a_17", "A.17", "A/17", "A17.0", "(A17)", "\u041017", "\u039117", "A#17"],
    ["17", "'17", '"17"', "#17", "17,0", "17.000", "17,00"],
    ["1-17", "1/17", "1_17", "1 17", "1.17", "1--17", "01-017"],
    ["100000", "1e5"],
    ["de la Cruz", "de-la-Cruz"],
    ["A\x1f17", "A\x1f17.0", "a\x1f'17"],
)
APART = (  # numbers of people at sites, codes, and signs
    "1-17", "117", "11-7", "17", "-17", "1.1", "1.10", "11.0.1", "A1", "A10", "1A", "A-1-1", "A11", "17.5",
    "175", "1e-3", "12e1000", "A\x1f1-7", "A1\x1f7", "A\x1f17", "x", "xx", "\u0639\u0644\u06cc",
    "\u0939\u0930\u093f", "\u0939\u0930", "1,234", "1234", "5e", "e5", "?", "--",
)  # fmt: skip


def one(name: str) -> str:
    return str(folded(pa.array([name]))[0].as_py())


def test_folding_makes_one_of_what_is_one_for_certain() -> None:
    for names in SAME:
        assert set(folded(pa.array(names)).to_pylist()) == {one(names[0])}, names
        assert {alike(name) for name in names} == {alike(names[0])}
    expected = ["a 1", "\u00e4", "x0", "a-1-100", "10", "0", None]
    assert folded(pa.array(["A 1", "\u00c4", "x0", "A-01-100", "10", "0", None])).to_pylist() == expected


def test_what_looks_alike_is_counted_and_not_merged() -> None:
    for names in LIKE:
        assert {alike(name) for name in names} == {alike(names[0])}, names
        found = Alike()
        found.add(pa.array(names))
        assert found.count == len(names) - 1, names
    for first, other in (
        ("A-17", "A17"),
        ("1-17", "1/17"),
        ("100000", "1e5"),
        ("17", "17.000"),
        ("A", "\u0410"),
    ):
        assert one(first) != one(other)


def test_names_of_people_at_sites_are_apart() -> None:
    found = Alike()
    found.add(pa.array(APART))
    assert found.count == 0
    assert len(set(folded(pa.array(APART)).to_pylist())) == len(APART)


def slow(names: list[str]) -> int:
    return len(names) - len({alike(name) for name in names})


@pytest.mark.parametrize("seed", range(20))
def test_counts_against_a_slow_count(seed: int) -> None:
    draw = np.random.default_rng(seed)
    every = sorted({"".join(draw.choice(list("0 aA1.-e\u200b"), draw.integers(1, 5))) for _ in range(200)})
    found = Alike()
    for begin in range(0, len(every), 37):
        found.add(pa.array(every[begin : begin + 37]))
    assert found.count == slow(every) > 0


def test_compiled_and_columnwise_forms_are_those_of_one_name() -> None:
    draw = np.random.default_rng(0)
    letters = (
        [chr(code) for code in range(128)] + list("00011aAeE.,+- -\x1f") * 24 + ["\u00e9", "\u200b"] * 20
    )
    names = ["".join(draw.choice(letters, draw.integers(0, 9))) for _ in range(20_000)]
    assert folded(pa.array(names)).to_pylist() == [_fold(name) for name in names]
    for part in (pa.array(names), pa.array(names).slice(7, 500), pa.array(names[:0]), pa.array(["", "a"])):
        words = [alike(name) for name in part.to_pylist()]
        found = Alike.looked_at(part)
        assert (found.hashes == hashed(pa.array(words, pa.large_string()))).all()
        assert found.differ == (words != part.to_pylist())
    for name in names[:2000]:  # one by one: whether just this one was changed
        assert Alike.looked_at(pa.array([name])).differ == (alike(name) != name), repr(name)


def test_numbers_never_collide() -> None:
    found = Alike()
    found.add(pa.array([1, 10, 100]))
    assert found.count == 0


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
    with pytest.warns(UserWarning, match="^2 of the names in 'user' look like") as caught:
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
