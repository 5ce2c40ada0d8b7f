"""The table of noise is computed, and is the one in the documentation."""

from pathlib import Path

from papers.shuffle_noise import noise_table, page_table


def test_the_documented_table_is_the_computed_one():
    text = (Path(__file__).parents[2] / "benchmarks" / "shuffle.md").read_text("utf-8")
    rows = noise_table()
    for line in page_table(rows).splitlines():
        assert line in text
    joint = [row for row in rows if row.protocol.startswith("joint, transitions")]
    assert all(row.std["transition_counts"] < 27.0 for row in joint)
