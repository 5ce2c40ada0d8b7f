"""What stored people cost, beside what it should cost: the noise, errors, threads, many files, names, DuckDB.

    python benchmarks/stored_cost.py [--users 500000] [--repeats 5] [--only learn,errors]

Made-up patients of ICU-Sepsis (S = 716, A = 25, H = 20, some 8 rows each) in Parquet. Each figure is the
median of ``repeats`` ratios of two runs that follow each other, in processes of their own: of the seconds of
processor that they took, user and system, all threads together, which others on a shared machine hardly
move. Processors are about seconds on a clock: that ratio means something only where nobody else is at work,
and a loop that shares nothing says beside it what the machine had to give.

The same checks in DuckDB (`pip install 'discreet[sql]'`): cells, ranges, mask, steps, chain of states, ends
of episodes, one episode a user; then a group by, in one thread. It names no row and puts no episode together.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

COUNT = """
import os, sys, time
from discreet.core.count_query import CountQuery
from discreet.data.row_batches import open_source
from discreet.data.schema import read_schema
from discreet.data.validate import episodes
from discreet.mechanisms.dataset.partial_aggregate import PartialAggregate
schema, path, warm, workers = read_schema(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4])
if workers == 1 and sys.argv[5:]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
for file in (warm, path):
    begin = time.process_time(), time.perf_counter()
    tally = PartialAggregate(CountQuery(schema.layout, known_rewards=True))
    for part in episodes(open_source(file, schema), workers=workers):
        tally.add(part.trajectories, part.user)
print(time.process_time() - begin[0], time.perf_counter() - begin[1], tally.people, int(tally.cells().sum()))
"""

SQL = """
import sys, time
import duckdb, numpy as np
from discreet.data.schema import read_schema
schema, path = read_schema(sys.argv[1]), sys.argv[2]
begin = time.process_time(), time.perf_counter()
base = duckdb.connect()
base.execute("SET threads = 1; SET enable_progress_bar = false")
states, actions = np.nonzero(schema.layout.row_index >= 0)
mask = dict(state=states, action=actions)
import pyarrow as pa
base.register("mask", pa.table(mask))
ends = ", ".join(map(str, schema.terminal))
S, A, H = schema.layout.states, schema.layout.actions, schema.layout.horizon
base.execute(f"CREATE TABLE rows AS SELECT * FROM '{path}'")
wrong = base.execute(f\"\"\"
WITH told AS (
  SELECT *, lead(step) OVER w AS next_step, lead(state) OVER w AS later, row_number() OVER w AS place
  FROM rows WINDOW w AS (PARTITION BY "user", episode ORDER BY step))
SELECT count(*) FROM told WHERE "user" IS NULL OR episode IS NULL OR step IS NULL OR state IS NULL
  OR action IS NULL OR next_state IS NULL OR state NOT BETWEEN 0 AND {S - 1}
  OR next_state NOT BETWEEN 0 AND {S - 1} OR action NOT BETWEEN 0 AND {A - 1}
  OR step NOT BETWEEN 0 AND {H - 1} OR step <> place - 1 OR (later IS NOT NULL AND later <> next_state)
  OR (later IS NULL AND step < {H - 1} AND next_state NOT IN ({ends}))
  OR (state IN ({ends}) AND next_state <> state)\"\"\").fetchone()[0]
wrong += base.execute("SELECT count(*) FROM rows ANTI JOIN mask USING (state, action)").fetchone()[0]
twice = 'SELECT "user" FROM rows GROUP BY ALL HAVING count(DISTINCT episode) > 1'
wrong += base.execute(f"SELECT count(*) FROM ({twice})").fetchone()[0]
cells = base.execute("SELECT step, state, action, next_state, count(*) FROM rows GROUP BY ALL").fetchnumpy()
assert not wrong
print(time.process_time() - begin[0], time.perf_counter() - begin[1], int(cells["count_star()"].sum()))
"""


def discreet(*arguments: str) -> list[str]:
    """The command line, as a process."""
    start = "from discreet.cli import main; import sys; sys.argv[0] = 'discreet'; main()"
    return [sys.executable, "-c", start, *arguments]


def run(command: list[str], code: int = 0) -> tuple[float, list[str]]:
    """(seconds of processor from the process's start to its end, what it printed)."""
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode != code:
        raise RuntimeError(done.stderr)
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, done.stdout.split()


def ratio(one: Callable[[], float], other: Callable[[], float], repeats: int) -> tuple[float, float, float]:
    """Medians of the first, of the second, and of the ratios of runs that follow each other."""
    pairs = [(one(), other()) for _ in range(repeats)]
    return (
        statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )  # fmt: skip


def tell(what: str, found: float, target: str, note: str = "") -> None:
    print(f"{what:58} {found:7.2f}   to reach {target:8} {note}", flush=True)


class Bench:
    """Files, and what is measured on them."""

    def __init__(self, folder: Path, users: int, repeats: int) -> None:
        self.folder, self.repeats = folder, repeats
        for name, people in (("people", users), ("warm", 500)):
            out = str(folder / f"{name}.parquet")
            words = ("simulate-data", "icu-sepsis", "--policy", "expert", "--users", str(people))
            run(discreet(*words, "--out", out))
        self.schema = str(folder / "people.toml")
        self.table = parquet.read_table(folder / "people.parquet")

    def write(self, name: str, table: pa.Table) -> str:
        """A Parquet file."""
        parquet.write_table(table, self.folder / name)
        return str(self.folder / name)

    def count(
        self, path: str, workers: int = 1, *, clock: bool = False, warm: str = "warm.parquet"
    ) -> Callable[[], float]:
        """Seconds of reading, checking and counting, after a few rows alike."""
        warm = str(self.folder / warm)

        def once() -> float:
            _, said = run(
                [sys.executable, "-W", "ignore", "-c", COUNT, self.schema, path, warm, str(workers)]
                + ["alone"] * clock
            )
            return float(said[1 if clock else 0])

        return once

    def learn(self) -> None:
        """The noise for an epsilon, whatever the data."""

        def once(*budget: str) -> Callable[[], float]:
            def timed() -> float:
                with tempfile.TemporaryDirectory() as out:
                    return run(discreet(
                        "learn", str(self.folder / "people.parquet"), "--schema", self.schema, *budget,
                        "--learner", "dp-apvi", "--no-ledger", "--out", f"{out}/new",
                    ))[0]  # fmt: skip

            return timed

        for epsilon in ("1", "10"):
            a, b, found = ratio(
                once("--epsilon", epsilon, "--delta", "1e-7"), once("--rho", "0.5"), self.repeats
            )
            tell(f"learn --epsilon {epsilon} over learn --rho", found, "1.3", f"{a:.1f} s, {b:.1f} s")

    def errors(self) -> None:
        """From the process's start to the message."""
        lines = Path(self.schema).read_text()
        for name, old, new in (("bad", "horizon = 20", "horizon = -3"), ("named", '"state"', '"pulse"')):
            (self.folder / f"{name}.toml").write_text(lines.replace(old, new))
        typed = self.table.set_column(3, "state", self.table["state"].cast(pa.bool_()))
        people, good = str(self.folder / "people.parquet"), self.schema
        cases = {
            "a missing file": ("absent.parquet", good), "a missing schema": (people, "absent.toml"),
            "a bad schema": (people, str(self.folder / "bad.toml")),
            "a missing column": (people, str(self.folder / "named.toml")),
            "a column of a wrong type": (self.write("typed.parquet", typed), good),
        }  # fmt: skip
        for what, (file, schema) in cases.items():
            command = discreet("learn", file, "--schema", schema, "--epsilon", "1", "--out", f"{people}.out")
            times = [run(command, code=2)[0] for _ in range(self.repeats)]
            tell(f"{what}: seconds", statistics.median(times), ".5", f"least {min(times):.2f}")

    def threads(self) -> None:
        """Two processors beside one, by the clock: with two, one thread leaves reading and sums to both."""
        path = str(self.folder / "people.parquet")
        csv.write_csv(self.table, self.folder / "people.csv")
        for file in (path, str(self.folder / "people.csv")):
            a, b, found = ratio(
                self.count(file, 1, clock=True), self.count(file, 2, clock=True), self.repeats
            )
            ideal = statistics.median(idle() for _ in range(self.repeats))
            tell(f"{Path(file).suffix}: one processor over two, by the clock", found, "1.7",
                 f"{a:.2f} s, {b:.2f} s; a loop alone: {ideal:.2f}")  # fmt: skip

    def many(self) -> None:
        """A thousand files of the rows of one."""
        folder = self.folder / "many"
        folder.mkdir()
        begins = np.flatnonzero(np.diff(self.table["user"].to_numpy(), prepend=-1))
        cuts = [*begins[:: -(-len(begins) // 1000)].tolist(), self.table.num_rows]
        for i, (begin, end) in enumerate(itertools.pairwise(cuts)):
            parquet.write_table(self.table.slice(begin, end - begin), folder / f"{i:04}.parquet")
        one = self.count(str(self.folder / "people.parquet"))
        a, b, found = ratio(self.count(str(folder)), one, self.repeats)
        tell(f"{len(cuts) - 1} files over one", found, "1.3", f"{a:.2f} s, {b:.2f} s")

    def names(self) -> None:
        """Identifiers that are texts, in the order of the rows and in none."""
        user = self.table["user"].to_numpy()
        draw = np.random.default_rng(0)
        texts = np.array([f"P{one:08x}" for one in draw.permutation(int(user.max()) + 1)])
        named = self.table.set_column(0, "user", pa.array(texts[user]))
        mixed = pa.array(draw.permutation(len(user)))
        few = named.slice(0, 4000)
        self.write("few.parquet", few.filter(pc.not_equal(few["user"], few["user"][-1])))
        for what, one, other in (
            ("people together", named, self.table), ("shuffled", named.take(mixed), self.table.take(mixed))
        ):  # fmt: skip
            files = self.write("names.parquet", one), self.write("numbers.parquet", other)
            a, b, found = ratio(self.count(files[0], warm="few.parquet"), self.count(files[1]), self.repeats)
            tell(f"names over numbers, rows of {what}", found, "2", f"{a:.2f} s, {b:.2f} s")

    def duckdb(self) -> None:
        """The same checks in SQL."""
        path = str(self.folder / "people.parquet")

        def asked() -> float:
            return float(run([sys.executable, "-c", SQL, self.schema, path])[1][0])

        a, b, found = ratio(self.count(path), asked, self.repeats)
        tell("read, checked, counted, over DuckDB", found, "-", f"{a:.2f} s, {b:.2f} s")


def idle() -> float:
    """One thread over two, by the clock, of work that shares nothing: 2 where two processors are free."""
    work = np.linspace(0.0, 1.0, 2000)

    def loop() -> None:
        for _ in range(20_000):
            np.sin(work)

    begin = time.perf_counter()
    loop()
    loop()
    serial = time.perf_counter() - begin
    with ThreadPoolExecutor(2) as pool:
        begin = time.perf_counter()
        for one in [pool.submit(loop) for _ in range(2)]:
            one.result()
        return serial / (time.perf_counter() - begin)


def main() -> None:
    """Print every figure beside what is to be reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="learn,errors,threads,many,names,duckdb")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.users, given.repeats)
        print(f"{given.users:,} people, {bench.table.num_rows:,} rows; {given.repeats} pairs, medians")
        for part in given.only.split(","):
            getattr(bench, part)()


if __name__ == "__main__":
    main()
