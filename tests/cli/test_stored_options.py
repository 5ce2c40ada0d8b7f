"""Options that the commands for stored trajectories share."""

from discreet.cli.stored_options import queried


def test_a_query_reads_the_database_or_the_given_files() -> None:
    assert queried(["a.csv", "b.csv"], None) == (["a.csv", "b.csv"], None)
    assert queried(["a.csv", "duckdb://"], "q") == (["duckdb://"], ["a.csv"])
    assert queried(["duckdb://a.db", "b.csv"], "q") == (["duckdb://a.db", "b.csv"], None)
    assert queried(None, "q") == (["duckdb://"], None)
