"""Cells and declared texts: equal writing first, then equal meaning, if only one has it."""

import pyarrow as pa

from discreet.data.cell_texts import positions, usual


def found(texts: list[str | None], declared: list[str]) -> list[int]:
    return positions(pa.array(texts, pa.large_string()), declared).tolist()


def test_numbers_and_truth_values_have_a_usual_form_and_codes_do_not() -> None:
    assert [usual(text) for text in ("1.0", "1.", "-3.00", "TRUE", "False")] == [
        "1",
        "1",
        "-3",
        "true",
        "false",
    ]
    for text in ("01", "1.5", "1e3", " 1", "yes", "", "1.0.0"):
        assert usual(text) == text


def test_a_cell_matches_as_it_is_written_or_as_the_only_one_of_its_meaning() -> None:
    assert found(["1.0", "1", None, "True", "2", "01"], ["1", "true"]) == [0, 0, -1, 1, -1, -1]
    assert found(["1", "1.0", "1."], ["1", "1.0"]) == [0, 1, -1]  # which of both the last means is not known
    assert found([], ["1"]) == []
