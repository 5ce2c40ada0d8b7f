"""Processes that use one ledger at once, or are killed while they do; run by test_ledger.py as a script.

One process imports everything and forks the others, so that a kill costs milliseconds. It prints one
JSON object. Nothing here waits for the disk: what a process has handed to the system outlives it. (That
a ledger survives a power cut is for SQLite to show; a test of ours cannot.)
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from discreet.core.guarantee import MechanismRecord
from discreet.ledger import ledger as module
from discreet.ledger.ledger import BudgetError, Ledger

RECORD = MechanismRecord("counts", "discrete_laplace", {"v": 100.0}, {"v": 1.0}, 0.01)


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def told(folder: Path, hash: str) -> None:
    """The outside world has seen that this is reserved."""
    file = os.open(folder / "told", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, f"{hash}\n".encode())
    os.close(file)


def read_told(folder: Path) -> list[str]:
    return (folder / "told").read_text().split() if (folder / "told").exists() else []


def together(folder: Path, processes: int, each: int) -> dict[str, int]:
    """All create the ledger, and reserve in a dataset without a limit and in one with a limit."""

    def work() -> None:
        with Ledger.open(folder / "ledger.sqlite") as ledger:
            ledger.set_limit("small", 0.5)
            for _ in range(each):
                for dataset in ("large", "small"):
                    try:
                        told(folder, ledger.reserve(dataset, [RECORD]).hash)
                    except BudgetError:
                        continue

    children = [fork(work) for _ in range(processes)]
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    return {"failed": failed, "told": len(read_told(folder))}


def killed(folder: Path, kills: int, at_once: int, seed: int) -> dict[str, int]:
    """Kill processes at random moments, also while they create the ledger; each time it must be whole."""
    draw = random.Random(seed)
    done = rounds = 0
    while done < kills:
        if rounds % 8 == 0:  # a new one, so that creation is interrupted too
            here = folder / f"ledger-{rounds}"
            here.mkdir()

        def work(here: Path = here) -> None:
            with Ledger.open(here / "ledger.sqlite") as ledger:
                while True:
                    reservation = ledger.reserve("icu", [RECORD])
                    told(here, reservation.hash)
                    ledger.mark(reservation, {"release": "0" * 64})

        goal = 65 * (len(read_told(here)) + draw.randrange(4)) if rounds % 8 else 0  # bytes
        children = [fork(work) for _ in range(at_once)]
        while goal and (not (here / "told").exists() or (here / "told").stat().st_size < goal):
            time.sleep(5e-4)
        time.sleep(draw.uniform(0.0, 0.01))
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                raise AssertionError("a process ended before it was killed")
        done += at_once
        rounds += 1
        with Ledger.open(here / "ledger.sqlite") as ledger:
            hashes = {entry.hash for entry in ledger.entries("icu") if entry.kind == "reserve"}
            missing = set(read_told(here)) - hashes
            if missing:
                raise AssertionError(f"{len(missing)} reservations are lost")
    entries = unmarked = 0
    for path in folder.glob("*/ledger.sqlite"):
        with Ledger.open(path, create=False, readonly=True) as ledger:
            totals = ledger.totals("icu")
            entries, unmarked = entries + totals.reservations, unmarked + totals.unmarked
    return {"kills": done, "reservations": entries, "unmarked": unmarked}


if __name__ == "__main__":
    module._SYNCHRONOUS = "OFF"
    os.fsync = lambda file: None
    task, where, *numbers = sys.argv[1:]
    print(json.dumps({"together": together, "killed": killed}[task](Path(where), *map(int, numbers))))
