"""How long `discreet prepare` takes for records of many people, in any order.

    python benchmarks/prepare.py --people 400000

makes that many people's records (some 20 rows each, rows shuffled, one Parquet file) and prepares them.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import discreet as dr

DECLARATION = """
dataset = "made-up"
unit = "patient"
horizon = 12
reward = { outcomes = { discharged = 1.0, dead = 0.0 } }
[prepare]
user = "patient"
time = "charted"
step = "4 hours"
long = "cut"
[prepare.values.pressure]
column = "pressure"
within = "last"
ties = "later row"
carry = 2
missing = "category"
cuts = [65, 75]
[prepare.values.lactate]
column = "lactate"
within = "max"
carry = 6
missing = "category"
cuts = [2, 4]
[prepare.values.dose]
column = "dose"
within = "sum"
missing = { value = 0 }
cuts = [0.0, 5]
closed = "right"
[prepare.states]
product = ["pressure", "lactate"]
[prepare.actions]
product = ["dose"]
[prepare.end]
column = "outcome"
states = { home = "discharged", died = "dead" }
"""


def records(people: int, draw: np.random.Generator) -> pa.Table:
    """Rows of people, shuffled."""
    who = np.repeat(np.arange(people), draw.integers(10, 31, people))
    n = len(who)
    seconds = draw.integers(0, 365 * 86400, people)[who] + draw.integers(0, 48 * 3600, n)
    order = draw.permutation(n)

    def some(values: np.ndarray, share: float) -> np.ndarray:
        return np.where(draw.random(n) < share, values, np.nan)[order]

    return pa.table(
        {
            "patient": pa.array(np.char.add("P", who.astype(str))[order]),
            "charted": pa.array((1_704_067_200 + seconds[order]) * 1_000_000, pa.timestamp("us")),
            "pressure": some(draw.normal(75, 12, n), 0.7),
            "lactate": some(draw.gamma(2, 1, n), 0.4),
            "dose": some(draw.exponential(5, n), 0.2),
            "outcome": pa.array(np.where(draw.random(people) < 0.8, "home", "died")[who][order]),
        }
    )


def main() -> None:
    """Make, prepare, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=400_000)
    people = parser.parse_args().people
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        table = records(people, np.random.default_rng(0))
        parquet.write_table(table, path)
        rows = table.num_rows
        del table
        (Path(folder) / "P.toml").write_text(DECLARATION)
        dr.prepare(
            records(100, np.random.default_rng(1)), Path(folder) / "P.toml", Path(folder) / "warm"
        )  # kernels of the check at the end
        begin = time.perf_counter()
        made = dr.prepare(path, Path(folder) / "P.toml", Path(folder) / "out")
        took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{rows:,} rows of {made.people:,} people: {made.steps:,} steps in {took:.1f} s, peak {peak:.1f} GB"
    )


if __name__ == "__main__":
    main()
