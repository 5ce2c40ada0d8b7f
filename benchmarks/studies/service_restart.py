"""Messages that are sent while the service restarts behind nginx: how many are lost?

Use::

    python -m benchmarks.studies.service_restart [--people 1000] [--client python javascript]

The service (``discreet serve``) stands behind a real nginx with the limits that we ship
(``docs/examples/service/limits.conf``; ports, folders and the proxies' addresses are changed). Everybody
takes a place. Then the service is killed (``kill -9``), and all send at once: nginx answers 502. When
everybody has met a 502, the service starts again; it is killed a second time when half of the messages were
counted, and started again. A message is lost if its client gives it up. At the end the database must have
counted each person once. The JavaScript client needs Node.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from discreet.device.http_client import Client, NoAnswer, PlanReservation, Turned
from discreet.service.database import Store
from discreet.service.server import key_of
from discreet.service.study_config import read_study
from discreet.utils.toml_file import to_toml

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
NODE = os.environ.get("DISCREET_NODE") or shutil.which("node")
LIMITS = Path(__file__).parents[1] / "docs" / "examples" / "service" / "limits.conf"
MOST = 300.0  # seconds for anything to happen
CLIENTS = ("python", "javascript")


@dataclass(frozen=True)
class Outcome:
    """What became of the messages of so many people: those that met a 502, were counted, were lost.

    stored : how many the database counted. seconds : of the whole.
    """

    people: int
    met: int
    counted: int
    lost: int
    stored: int
    seconds: float


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + MOST
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: did not happen in {MOST:g} seconds")
        time.sleep(0.02)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def proxied(folder: Path, behind: int) -> Iterator[str]:
    """nginx with our limits before a port of this machine: its address."""
    port, text = free_port(), LIMITS.read_text()
    for before, after in (
        ("listen 8080;", f"listen 127.0.0.1:{port};"),
        ("behind:8080", f"127.0.0.1:{behind}"),
        ("/tmp/", f"{folder}/"),
        ("    set_real_ip_from 10.0.0.0/8;", "    set_real_ip_from 127.0.0.1;"),
    ):
        if before not in text:
            raise RuntimeError(f"limits.conf: {before!r} is missing")
        text = text.replace(before, after)
    (folder / "nginx.conf").write_text(text)
    running = subprocess.Popen([str(NGINX), "-c", folder / "nginx.conf", "-g", "daemon off;"])
    try:
        until(lambda: _listens(port), "nginx")
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait()


class Served:
    """``discreet serve`` at one port, started as often as it was killed."""

    def __init__(self, folder: Path, people: int) -> None:
        self.folder, self.port = folder, free_port()
        content = {
            "name": "restarted",
            "world": {"states": 3, "actions": 2, "horizon": 4, "users": 2 * people},
            "learner": {"name": "noise-aware"},
            "privatizer": {"name": "central", "epsilon": 1.0, "delta": 1e-6},
            "schedule": {"replan_every": people},
        }
        self.file, self.database = folder / "study.toml", folder / "study.sqlite"
        self.file.write_text(to_toml(content))
        self.key = key_of(read_study(self.file)).public
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        words = ["serve", self.file, "--port", self.port, "--database", self.database]
        with (self.folder / "log").open("ab") as log:
            self._running = subprocess.Popen(
                [sys.executable, "-c", "from discreet.cli import app; app()", *map(str, words)],
                stdout=log,
                stderr=log,
            )

        def answers() -> bool:
            if self._running is not None and self._running.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])
            return _listens(self.port)

        until(answers, "the service")

    def kill(self) -> None:
        """kill -9."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None


class Told:
    """What the people say: who met a 502, whose message was counted, whose is lost."""

    def __init__(self) -> None:
        self.met, self.counted, self.lost = set[bytes](), 0, list[str]()
        self.placed, self.ended = 0, False
        self.lock = threading.Lock()


@contextmanager
def in_python(url: str, key: str, tickets: list[str], told: Told) -> Iterator[Callable[[], None]]:
    """People of the Python client; what is given makes all of them send, each in a thread."""
    addresses = count()

    def sends(request: httpx.Request) -> None:
        n = next(addresses)  # each from an address of its own
        request.headers["X-Forwarded-For"] = f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"

    def came(answer: httpx.Response) -> None:
        if answer.status_code == 502:
            with told.lock:
                told.met.add(answer.request.content)

    with (
        httpx.Client(
            base_url=url, timeout=30.0, event_hooks={"request": [sends], "response": [came]},
            limits=httpx.Limits(max_connections=len(tickets)),
        ) as http,
        ThreadPoolExecutor(len(tickets)) as pool,
    ):  # fmt: skip
        client = Client(url, key, promised="central", http=http)
        places = [one for i in range(0, len(tickets), 100) for one in client.places(tickets[i : i + 100])]
        horizon = client.plan()["world"]["horizon"]
        messages = [
            one.message([0] * (horizon + 1), [0] * horizon, [0.0] * horizon)
            for one in places
            if isinstance(one, PlanReservation)
        ]
        told.placed = len(messages)

        def send(message: Any) -> None:
            try:
                client.send(message)
            except (NoAnswer, Turned) as error:
                told.lost.append(str(error))
            else:
                with told.lock:
                    told.counted += 1

        def everybody() -> None:
            list(pool.map(send, messages))
            told.ended = True

        thread = threading.Thread(target=everybody)
        yield thread.start
        thread.join(MOST)


@contextmanager
def in_javascript(url: str, key: str, tickets: list[str], told: Told) -> Iterator[Callable[[], None]]:
    """People of the JavaScript client, in Node; what is given makes all of them send."""
    script = Path(__file__).with_suffix(".mjs")
    running = subprocess.Popen(
        [str(NODE), str(script), url, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdin
    assert running.stdout
    output = running.stdout

    def listen() -> None:
        for line in output:
            said = json.loads(line)
            told.placed = said.get("placed", told.placed)
            told.counted = said.get("counted", told.counted)
            if "met" in said:
                told.met.add(b"%d" % said["met"])
            if "lost" in said:
                told.lost.append(said["lost"])
            told.ended |= "end" in said

    thread = threading.Thread(target=listen)
    thread.start()
    given = running.stdin

    def send() -> None:
        given.write("send\n")
        given.flush()

    try:
        given.write(json.dumps(tickets) + "\n")
        given.flush()
        until(lambda: told.placed > 0 or running.poll() is not None, "places")
        yield send
        until(lambda: told.ended or running.poll() is not None, "the end")
    finally:
        running.kill()
        running.wait()
        thread.join(MOST)
        given.close()
        output.close()


def trial(people: int, client: str, folder: Path) -> Outcome:
    """One study of so many people, whose service is killed twice while they send."""
    begun, told = time.monotonic(), Told()
    served = Served(folder, people)
    ways = {"python": in_python, "javascript": in_javascript}
    try:
        served.start()
        store = Store(served.database)
        tickets = store.new_tickets(people)
        with (
            proxied(folder, served.port) as url,
            ways[client](url, served.key, tickets, told) as send,
        ):
            if told.placed != people:
                raise RuntimeError(f"{told.placed} of {people} have a place")
            served.kill()
            send()
            until(lambda: len(told.met) == people or told.ended, "everybody meets a 502")
            served.start()
            until(lambda: 2 * told.counted >= people or told.ended, "half of the messages")
            served.kill()
            served.start()
            until(lambda: told.ended, "the last message")
        until(lambda: store.release(1) is not None or told.counted < people, "the release")
        found = store.release(1)
        stored = 0 if found is None else int(json.loads(found[0])["users"])
        store.close()
        with closing(sqlite3.connect(served.database)) as connection:
            (came,) = connection.execute("SELECT SUM(came) FROM plans WHERE turn = 0").fetchone()
        stored = min(stored, int(came))
    finally:
        served.kill()
    seconds = time.monotonic() - begun
    return Outcome(people, len(told.met), told.counted, people - told.counted, stored, seconds)


def main() -> None:
    """Print a row for each client."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--client", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    given = parser.parse_args()
    for client in given.client:
        with tempfile.TemporaryDirectory(prefix="discreet-restart-") as folder:
            one = trial(given.people, client, Path(folder))
        print(
            f"{client}: {one.people:,} messages, {one.met:,} met a 502, {one.counted:,} counted, "
            f"{one.lost:,} lost, {one.stored:,} in the database, {one.seconds:.0f} seconds",
            flush=True,
        )


if __name__ == "__main__":
    main()
