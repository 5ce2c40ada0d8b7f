"""Seeds of the simulated service, and the planted faults that it finds.

    python -m benchmarks.service_simulation [--store dictionary] [--seeds 1000] [--first-seed 0] [--planted]

Each seed simulates a study of 12 reservations, with two processes of the service, users, a proxy, and faults
(``tests/helpers/service_simulation.py``). A line tells the seeds, their events, and how many violate an
invariant. With ``--planted``, each planted fault is simulated until it is found, ``--seeds`` times at most.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from discreet.utils.markdown_table import markdown

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))


def sweep(kind: str, first: int, seeds: int, told: int = 1000) -> list[str]:
    """Simulate seeds, and return a line of the table."""
    from service_simulation import simulate, stand_ins

    begun, totals, bad = time.process_time(), [0] * 6, list[str]()
    with stand_ins(kind):  # type: ignore[arg-type]
        for seed in range(first, first + seeds):
            world = simulate(seed, kind)  # type: ignore[arg-type]
            own = (
                world.loop.events,
                world.system.killed,
                world.draws,
                world.restores,
                world.aged,
                world.refusals,
            )
            totals = [total + one for total, one in zip(totals, own, strict=True)]
            if world.violation:
                bad.append(f"{seed}: {world.violation}")
                print(bad[-1], flush=True)
            done = seed + 1 - first
            if done % told == 0:
                spent = time.process_time() - begun
                copies = (
                    f"{totals[3]} copies put back, {totals[4]} of them after 2 s, {totals[5]} starts refused"
                )
                speed = f"{60 * done / spent:.0f} a minute"
                print(f"{first} to {seed}: {speed}, {copies}, {len(bad)} violations", flush=True)
    spent = time.process_time() - begun
    each = [*(f"{total / seeds:.1f}" for total in totals[:3]), *map(str, totals[3:])]
    return [kind, f"{first} to {first + seeds - 1}", *each, f"{60 * seeds / spent:.0f}", str(len(bad))]


def planted(kind: str, first: int, seeds: int) -> list[list[str]]:
    """Look for each planted fault, and return a line of the table for each."""
    from planted_service_faults import HARMLESS, PLANTED, REAL_ONLY, planted_fault
    from service_simulation import simulate, stand_ins

    lines = []
    absent = REAL_ONLY if kind == "dictionary" else set()  # faults of the real database only
    for name in (one for one in (*PLANTED, *HARMLESS) if one not in absent):
        begun, found = time.process_time(), ""
        with stand_ins(kind), planted_fault(name) as more:  # type: ignore[arg-type]
            for seed in range(first, first + seeds):
                found = simulate(seed, kind, **more).violation  # type: ignore[arg-type]
                if found:
                    break
        told = f"{seed + 1 - first}" if found else f"not in {seeds}"
        lines.append([name, told, f"{time.process_time() - begun:.0f}", found or "none"])
        print("; ".join(lines[-1]), flush=True)
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--store", choices=("dictionary", "sqlite"), default="dictionary")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--planted", action="store_true")
    given = parser.parse_args(arguments)
    # threads of a simulation take turns: on one core, a turn is short
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if given.planted:
        head = ["fault", "found after seeds", "CPU s", "violation"]
        print(markdown([head, *planted(given.store, given.first_seed, given.seeds)]))
        return
    restores = ["copies put back", "after 2 s", "starts refused"]
    head = ["store", "seeds", "events a seed", "kills", "draws", *restores, "seeds a minute", "violations"]
    print(markdown([head, sweep(given.store, given.first_seed, given.seeds)]))


if __name__ == "__main__":
    main()
