"""The service calls the system only through one object."""

from __future__ import annotations

import ast
import asyncio
import base64
import stat
from pathlib import Path

import pytest
from serving import a_study

from discreet.service import system_io
from discreet.service.database import Store
from discreet.service.system_io import SYSTEM, Io

SERVICE = Path(system_io.__file__).parent
MODULES = {"time", "secrets", "uuid", "random", "concurrent", "sched", "tempfile"}
CALLS = {
    *("asyncio.sleep", "asyncio.to_thread", "datetime.now", "datetime.utcnow", "date.today", "os.urandom"),
    *("os.fsync", "threading.Lock", "threading.RLock", "httpx.Client()", "httpx.AsyncClient()"),
}
# a dry run makes a folder and nothing else; it is a program that uses the service
FREE = {"dry_run.py": {"tempfile"}}


def _calls(path: Path) -> list[str]:
    """Modules that a file imports, names with a point that it uses, and what it calls, with ()."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name.partition(".")[0] for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module or "").partition(".")[0])
            found += [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Call):
            found.append(f"{ast.unparse(node.func)}()")
        elif isinstance(node, ast.Attribute):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", sorted(SERVICE.glob("*.py")), ids=lambda path: path.name)
def test_no_module_of_the_service_calls_the_system_itself(path: Path) -> None:
    if path.name != "system_io.py":
        assert not (MODULES | CALLS).intersection(_calls(path)) - FREE.get(path.name, set())


def test_what_is_searched_for_is_found() -> None:
    assert {"time", "secrets", "threading.Lock", "asyncio.sleep", "httpx.Client()"} <= set(
        _calls(SERVICE / "system_io.py")
    )


class Fixed(Io):
    """A system whose random bytes are known."""

    def random_bytes(self, size: int) -> bytes:
        return bytes(size)


def test_tickets_and_tokens_are_random_bytes_of_the_system(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db", Fixed())
    study = a_study()
    from discreet.service.release_worker import begin_study

    begin_study(study, store, io=Fixed())
    assert store.new_tickets(1) == ["A" * 22]
    assert store.new_token() == "A" * 43
    assert bytes(store.about()["ties"]) == bytes(16)


def test_random_text_decodes_to_the_bytes() -> None:
    class Known(Io):
        def random_bytes(self, size: int) -> bytes:
            return bytes(range(250, 250 + size))

    assert base64.urlsafe_b64decode(Known().random_text(6)) == bytes(range(250, 256))
    assert len({SYSTEM.random_text(16) for _ in range(100)}) == 100


def test_appended_lines_stay_and_are_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "head"
    SYSTEM.append(path, b"1\n")
    SYSTEM.append(path, b"2\n")
    assert SYSTEM.read(path, 9) == b"1\n2\n"
    assert SYSTEM.read(path, 3) == b"1\n2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_worker_calls_one_after_the_other() -> None:
    async def run() -> list[int]:
        worker, running, most = SYSTEM.worker("one"), [], []

        def call() -> int:
            running.append(1)
            SYSTEM.pause(0.001)
            most.append(len(running))
            running.pop()
            return most[-1]

        found = await asyncio.gather(*(SYSTEM.in_thread(call, worker=worker) for _ in range(20)))
        worker.shutdown()
        await SYSTEM.sleep(0.0)
        return list(found)

    assert asyncio.run(run()) == [1] * 20
