"""``learn``, killed at random moments: of processes that sketch figures (for ``figures_are_sketched``)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from discreet.data.schema import Schema, write_schema
from discreet.learners.offline.release_files import read_tables
from discreet.ledger.ledger import Ledger
from discreet.pipeline.synthetic_data import write_made_up
from discreet.pipeline.verify import verify

SKETCHED = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from drawn import sketched
sketched(setattr)
"""

WORKER = """
import sys, itertools
from pathlib import Path
import discreet as dr
from discreet.data.row_batches import open_source
from discreet.data.schema import read_schema
from discreet.pipeline.learn import learn
from discreet.learners.offline.apvi import DPAPVI
from discreet.ledger.ledger import Ledger
folder, worker = Path(sys.argv[1]), sys.argv[2]
schema = read_schema(folder / "schema.toml")
print("ready", flush=True)
for i in itertools.count():
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        learn(open_source(folder / "people.parquet", schema), DPAPVI(), folder / f"out-{worker}-{i}",
              privatizer=dr.Central(epsilon=1.0, delta=1e-6), ledger=ledger)
    print(i, flush=True)
"""

KILLED_AT = """
import os, signal, sys
from pathlib import Path
import dp_accounting.pld.privacy_loss_distribution, scipy.stats  # once, not in every child
import discreet as dr
from discreet.data.row_batches import open_source
from discreet.data.schema import read_schema
from discreet.learners.offline.apvi import DPAPVI
from discreet.utils import atomic_folder as folders
from discreet.ledger.ledger import Ledger
from discreet.pipeline import learn as pipeline
from discreet.pipeline import learned_files as planning
folder, schema = Path(sys.argv[1]), read_schema(Path(sys.argv[1]) / "schema.toml")
STEPS = {
    "release": (planning._CountLearning, "release"), "policy": (planning, "write_policy"),
    "statement": (pipeline, "write_statement"), "name": (folders, "_sync"), "mark": (Ledger, "mark"),
}
for step in sys.argv[2:]:
    child = os.fork()
    if not child:
        setattr(*STEPS[step], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        with Ledger.open(folder / "ledger.sqlite") as ledger:
            pipeline.learn(
                open_source(folder / "people.parquet", schema), DPAPVI(), folder / f"out-{step}",
                privatizer=dr.Central(epsilon=1.0, delta=1e-6), ledger=ledger,
            )
        os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), step
"""


def kill_at(schema: Schema, folder: Path, *steps: str) -> None:
    """Runs into ``out-STEP`` that are killed just before a step: release, policy, statement, name, mark."""
    write_schema(schema, folder / "schema.toml")
    write_made_up(schema, 30, folder / "people.parquet", seed=1)
    done = subprocess.run(
        [sys.executable, "-c", SKETCHED + KILLED_AT, str(folder), *steps],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def kill_at_random(schema: Schema, folder: Path, kills: int, seed: int) -> int:
    """Kill a process that learns over and over, at random moments; how many folders there are in the end.

    The first process is killed when its first folder is there; the others within one and a half times as
    long, so that the moments lie in all parts of a run on any machine.
    """
    write_schema(schema, folder / "schema.toml")
    write_made_up(schema, 30, folder / "people.parquet", seed=1)
    draw, longest = np.random.default_rng(seed), 0.0
    for worker in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", SKETCHED + WORKER, str(folder), str(worker)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        if worker == 0:
            begin = time.perf_counter()
            assert process.stdout.readline() == "0\n", process.communicate()[1]
            longest = 1.5 * (time.perf_counter() - begin)
        else:
            time.sleep(float(draw.uniform(0.0, longest)))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -9, errors
    return check_after_kills(schema.dataset, folder)


def check_after_kills(dataset: str, folder: Path) -> int:
    """Every folder that has its name is whole and in the ledger; whatever is in no folder counts as spent.

    An empty folder was killed while it rehearsed the rename, before anything else; the next run takes it.
    """
    done = sorted(path for path in folder.glob("out-*") if any(path.iterdir()))
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        ledger.check()
        hashes = {entry.hash for entry in ledger.entries() if entry.kind == "reserve"}
        heads = []
        for path in done:
            assert [check for check in verify(path, ledger) if not check.ok] == []
            heads.append(json.loads((path / "statement.json").read_text())["ledger"]["head"])
        assert len(set(heads)) == len(heads)  # no reservation was drawn for twice
        assert set(heads) <= hashes
        left = folder.glob(".out-*/release.parquet")
        hidden = [read_tables(path).facts.run["ledger"]["head"] for path in left]
        assert not set(hidden) & set(heads)
        assert ledger.totals(dataset).unmarked == len(hashes) - sum(
            entry.kind == "mark" for entry in ledger.entries()
        )
    return len(done)
