"""Cells: one array of a column, times as text, and offences that name row and column."""

import pyarrow as pa

from discreet.data.cell_parsing import NEVER, Offences, flat, stamp
from discreet.data.near_duplicate_ids import JOINT


def test_columns_in_parts_and_in_codes_are_one_plain_array() -> None:
    coded = pa.chunked_array([pa.array(["a", None]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])
    found = flat(coded.unify_dictionaries())
    assert found.type == pa.large_string()
    assert found.to_pylist() == ["a", None, "b"]
    assert flat(pa.chunked_array([], pa.int64())).to_pylist() == []
    assert flat(pa.chunked_array([[1], [2]])).to_pylist() == [1, 2]


def test_times_are_written_out_and_their_absence_is_empty() -> None:
    assert stamp(0) == "1970-01-01 00:00:00"
    assert stamp(1_500_000) == "1970-01-01 00:00:01.500000"
    assert stamp(None) == stamp(NEVER) == ""
    assert stamp(2**62) == str(2**62)  # beyond the calendar


def test_offences_are_counted_and_cells_are_cut() -> None:
    offences = Offences()
    offences.add(
        "unreadable",
        [("f.csv", 3, f"A{JOINT}B", None, 0, "x", "n/a"), (None, None, None, None, None, "y", "z" * 999)],
    )
    assert offences.counts == {"unreadable": 2}
    assert offences.seen == {"unreadable": {"n/a"}}
    head, first, second = offences.text.getvalue().splitlines()
    assert head == "reason,file,row,user,episode,time,column,cell"
    assert first == "unreadable,f.csv,3,A / B,,1970-01-01 00:00:00,x,n/a"
    assert second == "unreadable,,,,,,y," + "z" * 300
