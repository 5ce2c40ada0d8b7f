"""The policy service under a steady load, by Locust (``pip install locust``): every second the same number
of messages.

    python benchmarks/service_locust.py [--trust central] [--rate 2000] [--seconds 300] [--connections 64]
    python benchmarks/service_locust.py --plan-rate 5000 --seconds 60

One process serves (SQLite, ``synchronous = FULL``), with a shuffler beside it under shuffle trust, which is
then what is measured. Locust (``--senders`` processes of it) sends over HTTP on this machine, one message a
request, S = 6, A = 2, H = 20. People, their places and their messages are made before the clock runs, as
people take places before they act: ``rate`` x ``seconds`` of them, which may take some minutes. Printed at
the end: messages accepted a second (202; any other answer is a failure, and the script ends with 1),
latencies by Locust, the server's CPU time for a message, and its memory at the beginning and every ten
seconds. With ``--plan-rate`` GET /plan is asked as often as that instead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from discreet.ledger.signatures import new_key
from discreet.service.database import Store
from discreet.service.dry_run import promised_by
from discreet.service.server import shuffler_key_at
from discreet.service.study_config import study_of

SIZES = {"states": 6, "actions": 2, "horizon": 20}
PROCESS = """
import json, sys
from pathlib import Path
from discreet.service import server as running
from discreet.service.study_config import study_of
from discreet.ledger.signatures import read_public_key
part, folder, port, service = sys.argv[1:]
folder = Path(folder)
study = study_of(json.loads((folder / "study.json").read_text()), folder)
database = str(folder / f"{part}.sqlite")
if part == "service":
    running.serve(study, database, "127.0.0.1", int(port))
else:
    public = read_public_key(folder / "service.key.pub")
    key = running.shuffler_key_at(folder / "shuffler.key")
    running.serve_shuffler(study, database, key, service, public, "127.0.0.1", int(port))
"""
LOCUST = """
import itertools, os
from locust import FastHttpUser, constant_throughput, task

BODIES = iter(open(os.environ["BODIES"], "rb")) if os.environ.get("BODIES") else None
EACH = float(os.environ["EACH"])


class Person(FastHttpUser):
    wait_time = constant_throughput(EACH)

    @task
    def sends(self):
        if BODIES is None:
            self.client.get("/plan", name="GET /plan")
            return
        try:
            body = next(BODIES).rstrip()
        except StopIteration:
            self.environment.runner.quit()
            return
        headers = {"Content-Type": "application/json"}
        with self.client.post("/messages", data=body, headers=headers, catch_response=True) as answer:
            if answer.status_code != 202:
                answer.failure(f"answered {answer.status_code}")
"""


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def used(process: int) -> tuple[float, float]:
    """(seconds of CPU, MB resident)."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def prepared(url: str, study: Any, store: Store, people: int, files: list[Path]) -> None:
    """Places for everybody; their messages, line by line, one file a sender."""
    import numpy as np

    from discreet.device.http_client import Client, PlanReservation

    draw, opened = np.random.default_rng(0), [path.open("w") for path in files]
    tickets, shuffler = store.new_tickets(people), url if study.shuffled else None
    with Client(url, promised=promised_by(study), shuffler=shuffler) as client:
        while not client.plan()["plans"]:
            time.sleep(0.05)
        for first in range(0, people, 1000):
            for at, place in enumerate(client.places(tickets[first : first + 1000])):
                if not isinstance(place, PlanReservation):
                    raise RuntimeError(f"a place was refused: {place}")
                states = draw.integers(0, SIZES["states"], SIZES["horizon"] + 1).tolist()
                actions = [place.action(h, s) for h, s in enumerate(states[:-1])]
                rewards = draw.integers(0, 2, SIZES["horizon"]).astype(float)
                message = place.message(states, actions, rewards)
                opened[at % len(opened)].write(json.dumps(dict(message.table)) + "\n")
    for file in opened:
        file.close()


def main() -> int:
    """Run it; 1 where anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trust", choices=("central", "local", "shuffle"), default="central")
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--senders", type=int, default=1)
    parser.add_argument("--plan-rate", type=float, default=0.0)
    given = parser.parse_args()
    people = 1 if given.plan_rate else int(given.rate * given.seconds)
    budget = {"epsilon": 4.0} if given.trust == "local" else {"epsilon": 1.0, "delta": 1e-6}
    schedule = {"replan_every": people + 1}
    folder = Path(tempfile.mkdtemp(prefix="discreet-load-"))
    ports = {name: free_port() for name in ("service", "shuffler")}
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    new_key(folder / "service.key")
    table: dict[str, Any] = {
        "name": "load", "world": {**SIZES, "users": people + 1}, "learner": {"name": "noise-aware"},
        "privatizer": {"name": given.trust, **budget}, "schedule": schedule,
    }  # fmt: skip
    if given.trust == "shuffle":
        key = shuffler_key_at(folder / "shuffler.key").public
        table["shuffler"] = {"url": urls["shuffler"], "key": key}
    (folder / "study.json").write_text(json.dumps(table))
    study, front = study_of(table, folder), "shuffler" if given.trust == "shuffle" else "service"
    processes = {}
    try:
        for name in dict.fromkeys(["service", front]):
            command = [sys.executable, "-c", PROCESS, name, str(folder), str(ports[name]), urls["service"]]
            processes[name] = subprocess.Popen(command)
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if httpx.get(f"{urls[front]}/plan").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        files = [folder / f"bodies-{one}" for one in range(given.senders)]
        if not given.plan_rate:
            prepared(urls[front], study, Store(folder / f"{front}.sqlite"), people, files)
        return measured(given, urls[front], processes[front].pid, folder, files)
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait()
        shutil.rmtree(folder)


def measured(given: Any, url: str, process: int, folder: Path, files: list[Path]) -> int:
    """Let Locust run, and tell of the server."""
    rate = (given.plan_rate or given.rate) / given.senders / given.connections
    file = folder / "locustfile.py"
    file.write_text(LOCUST)
    before, at_first = used(process)
    memory, stop = [at_first], threading.Event()

    def watch() -> None:
        while not stop.wait(10.0):
            memory.append(used(process)[1])

    watching = threading.Thread(target=watch)
    watching.start()
    senders, results = [], []
    seconds = given.seconds if given.plan_rate else given.seconds + 30  # it ends when all is sent
    for number, bodies in enumerate(files):
        results.append(folder / f"result-{number}")
        environment = {**os.environ, "EACH": str(rate), "BODIES": "" if given.plan_rate else str(bodies)}
        command = [
            sys.executable, "-m", "locust", "-f", str(file), "--headless", "--host", url, "--only-summary",
            "--users", str(given.connections), "--spawn-rate", str(given.connections), "--run-time",
            f"{seconds:.0f}s", "--json-file", str(results[-1]),
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        senders.append(subprocess.Popen(command, env=environment, cwd=folder, stdout=quiet, stderr=quiet))
    for one in senders:
        one.wait()
    stop.set()
    watching.join()
    after, _ = used(process)
    answered, failed, took = 0, 0, 0.0
    times: dict[float, int] = {}
    for path in results:
        for row in json.loads(Path(f"{path}.json").read_text()):
            answered, failed = answered + row["num_requests"], failed + row["num_failures"]
            took = max(took, row["last_request_timestamp"] - row["start_time"])
            for milliseconds, count in row["response_times"].items():
                times[float(milliseconds)] = times.get(float(milliseconds), 0) + count
    shown = {share: quantile(times, share) for share in (0.5, 0.99, 0.999)}
    what = "GET /plan" if given.plan_rate else f"{given.trust} messages"
    good = answered - failed
    print(
        f"{what}: {good:,} accepted of {answered:,} in {took:.0f} s, {good / max(took, 1):,.0f} a second; "
        f"p50 {shown[0.5]:g} ms, p99 {shown[0.99]:g} ms, p99.9 {shown[0.999]:g} ms; "
        f"{1e3 * (after - before) / max(1, answered):.2f} ms of CPU each; memory "
        + ", ".join(f"{one:.0f}" for one in memory)
        + " MB"
    )
    return int(failed > 0)


def quantile(times: dict[float, int], share: float) -> float:
    """The latency below which so large a share of the requests was answered."""
    left = share * sum(times.values())
    for milliseconds in sorted(times):
        left -= times[milliseconds]
        if left <= 0:
            return milliseconds
    return max(times, default=float("nan"))


if __name__ == "__main__":
    sys.exit(main())
