"""Messages a second through the policy service, over real HTTP on this machine.

``python benchmarks/service_load.py [--people 60000] [--trust central] [--connections 32] [--rate 2000]
[--contexts]``

One process serves (SQLite, ``synchronous = FULL``); this one sends, by open connections that each wait for
their answer, every message by a request of its own, S = 6, A = 2, H = 20 (``--contexts``: ten real-valued
columns, five actions). Places are taken before the clock runs (1 000 tickets a request), as people take them
before they act. With ``--rate`` requests begin on a fixed
clock and latency counts from when they were due; without, as fast as answers come. Printed: messages a
second, latency, the server's CPU time for a message, its memory at the end, and GET /plan. Batches below
1 000 people are left out: they end before there is any load.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

from discreet.core.rng import SecureRng
from discreet.device.http_client import Client, PlanReservation
from discreet.service.database import Store
from discreet.service.dry_run import promised_by
from discreet.service.study_config import study_of

SIZES = {"states": 6, "actions": 2, "horizon": 20}
COLUMNS = 10  # with --contexts
SERVER = """
import json, sys
from pathlib import Path
from discreet.service import server as running
from discreet.service.study_config import study_of
folder, port = Path(sys.argv[1]), int(sys.argv[2])
study = study_of(json.loads((folder / "study.json").read_text()), folder)
running.serve(study, str(folder / "study.sqlite"), "127.0.0.1", port)
"""


def cpu_and_memory(process: int) -> tuple[float, float]:
    """(seconds of CPU, MB resident)."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def request(port: int, method: str, path: str, body: bytes = b"") -> bytes:
    """The bytes of one request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def sent(
    port: int, requests: list[bytes], connections: int, rate: float | None, wanted: bytes
) -> tuple[float, list[float]]:
    """(seconds, latencies): all of them, over so many connections."""
    waiting = iter(enumerate(requests))
    took: list[float] = []
    gc.collect()
    gc.freeze()  # what is measured is the server
    begun = time.perf_counter()

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number, content in waiting:
            due = time.perf_counter() if rate is None else begun + number / rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            writer.write(content)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(wanted):
                raise RuntimeError(head.decode())
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            took.append(time.perf_counter() - due)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return time.perf_counter() - begun, took


def bodies(trust: str, places: list[PlanReservation]) -> list[bytes]:
    """Messages of people who did something, encoded as their devices would."""
    draw, found = np.random.default_rng(0), []
    for place in places:
        if place.features is not None:
            x = draw.uniform(-1, 1, COLUMNS).tolist()
            sent = place.message([x], [place.action(0, x)], [float(draw.integers(0, 2))])
            found.append(json.dumps(dict(sent.table)).encode())
            continue
        states = draw.integers(0, SIZES["states"], SIZES["horizon"] + 1).tolist()
        actions = [place.action(h, s) for h, s in enumerate(states[:-1])]
        rewards = draw.integers(0, 2, SIZES["horizon"]).astype(float)
        coins = SecureRng() if trust == "local" else None
        found.append(json.dumps(dict(place.message(states, actions, rewards, coins).table)).encode())
    return found


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=60_000)
    parser.add_argument("--trust", choices=("central", "local"), default="central")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--in-flight", type=int, default=100, help="least number of open places")
    parser.add_argument("--contexts", action="store_true", help="ten real-valued columns, five actions")
    parser.add_argument("--plans", type=int, default=20_000)
    given = parser.parse_args()
    budget = {"epsilon": 1.0, "delta": 1e-6} if given.trust == "central" else {"epsilon": 4.0}
    study = {
        "name": "load", "world": {**SIZES, "users": given.people}, "learner": {"name": "noise-aware"},
        "privatizer": {"name": given.trust, **budget}, "schedule": {"replan_growth": 2.0},
        "serving": {"in_flight_least": given.in_flight},
    }  # fmt: skip
    if given.contexts:
        study |= {
            "world": {"actions": 5, "users": given.people}, "schedule": {},
            "context": {"columns": {f"x{i}": {"range": [-1, 1]} for i in range(COLUMNS)}},
            "learner": {"name": "linear-bandit"},
        }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        (Path(folder) / "study.json").write_text(json.dumps(study))
        process = subprocess.Popen([sys.executable, "-c", SERVER, folder, str(port)])
        try:
            begun = time.perf_counter()
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/plan")
                    break
                except httpx.ConnectError:
                    time.sleep(0.01)
            cpu, memory = cpu_and_memory(process.pid)
            print(
                f"first plan after {time.perf_counter() - begun:.2f} s ({cpu:.2f} s of CPU), {memory:.0f} MB"
            )
            tickets = Store(Path(folder) / "study.sqlite").new_tickets(given.people)
            came, total, latencies, worked = 0, 0.0, list[float](), 0.0
            with Client(f"http://127.0.0.1:{port}", promised=promised_by(study_of(study))) as client:
                while came < given.people:
                    places: list[PlanReservation] = []
                    while came + len(places) < given.people:
                        at = came + len(places)
                        fresh = [
                            one
                            for one in client.places(tickets[at : at + 1000])
                            if isinstance(one, PlanReservation)
                        ]
                        places += fresh
                        if not fresh:
                            if places:
                                break
                            time.sleep(0.02)
                    requests = [
                        request(port, "POST", "/messages", one) for one in bodies(given.trust, places)
                    ]
                    before, _ = cpu_and_memory(process.pid)
                    seconds, took = asyncio.run(
                        sent(port, requests, given.connections, given.rate, b"HTTP/1.1 202")
                    )
                    after, memory = cpu_and_memory(process.pid)
                    came += len(places)
                    if len(places) >= 1000:
                        total, worked, latencies = total + seconds, worked + after - before, latencies + took
            each = 1e6 * worked / len(latencies)
            p50, p99 = 1e3 * np.quantile(latencies, [0.5, 0.99])
            print(
                f"{given.trust}: {len(latencies):,} messages, {len(latencies) / total:,.0f} a second, "
                f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {each:.0f} us of CPU each, {memory:.0f} MB"
            )
            before, _ = cpu_and_memory(process.pid)
            asked = [request(port, "GET", "/plan")] * given.plans
            seconds, took = asyncio.run(sent(port, asked, given.connections, None, b"HTTP/1.1 200"))
            after, memory = cpu_and_memory(process.pid)
            print(
                f"GET /plan: {len(took) / seconds:,.0f} a second, "
                f"p99 {1e3 * np.quantile(took, 0.99):.1f} ms, "
                f"{1e6 * (after - before) / len(took):.0f} us of CPU each"
            )
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
