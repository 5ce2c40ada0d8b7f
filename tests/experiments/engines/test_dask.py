"""Engine on Dask, with a fake client: addresses, width, versions of workers, what is closed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, ClassVar

import fake_modules
import pytest

from discreet.experiments.engine import EngineError, Job, results
from discreet.experiments.run_config import made_by


class Client:
    """Client of a scheduler with two workers; ``there`` is what its workers answer to ``run``."""

    made: ClassVar[list[Client]] = []
    threads: ClassVar[dict[str, int]] = {"a": 2, "b": 3}
    error: Exception | None = None

    def __init__(self, address: str, timeout: float) -> None:
        if self.error is not None:
            raise self.error
        self.address, self.closed, self.there = address, False, dict.fromkeys(self.threads, made_by())
        self.scheduler = SimpleNamespace(address=address)
        self.made.append(self)

    def nthreads(self) -> dict[str, int]:
        return self.threads

    def get_executor(self, pure: bool) -> ThreadPoolExecutor:
        assert not pure  # equal calls are separate tasks
        return ThreadPoolExecutor(2)

    def run(self, function: Any, on_error: str) -> dict[str, Any]:
        assert on_error == "return"
        assert function() == made_by()
        return self.there

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> Any:
    errors = {name: type(name, (Exception,), {}) for name in ("KilledWorker", "CommClosedError")}
    monkeypatch.setattr(Client, "made", [])
    return fake_modules.load(
        monkeypatch, "discreet.experiments.engines.dask",
        fake_modules.module("distributed", Client=Client, KilledWorker=errors["KilledWorker"]),
        fake_modules.module("distributed.comm", CommClosedError=errors["CommClosedError"]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("address", "asked"), [("host:8786", "tcp://host:8786"), ("tls://host:1", "tls://host:1")]
)
def test_the_engine_has_the_address_and_the_threads_of_its_workers(
    dask: Any, address: str, asked: str
) -> None:
    with dask.open_engine(address, None) as engine:
        assert (Client.made[0].address, engine.width) == (asked, 5)
        engine.check(made_by())
        found = sorted(results(engine, [Job(lambda items: [2 * item for item in items], range(9))]))
    assert found == [(0, 2 * item) for item in range(9)]
    assert Client.made[0].closed
    assert dask.open_engine(address, 7).width == 7


def test_workers_with_other_code_or_without_the_package_are_named(dask: Any) -> None:
    engine = dask.open_engine("host:1", None)
    Client.made[0].there["b"] = {**made_by(), "discreet": "0.0.0"}
    with pytest.raises(EngineError, match=r"dask: the worker b has other code .*: discreet 0.0.0 there"):
        engine.check(made_by())
    Client.made[0].there["a"] = ModuleNotFoundError("No module named 'discreet'")
    with pytest.raises(EngineError, match="dask: the worker a cannot import discreet .No module named"):
        engine.check(made_by())


def test_no_address_no_scheduler_no_workers(dask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="engine = 'dask': must be dask://HOST:PORT"):
        dask.open_engine("", None)
    with monkeypatch.context() as patch:
        patch.setattr(Client, "threads", {})
        with pytest.raises(EngineError, match="tcp://host:1: the scheduler has no workers"):
            dask.open_engine("host:1", None)
        assert Client.made[0].closed
    monkeypatch.setattr(Client, "error", TimeoutError("timed out"))
    with pytest.raises(EngineError, match=r"engine = 'dask://host:1': no scheduler answers there \(timed"):
        dask.open_engine("host:1", None)


def test_the_death_of_a_worker_is_tried_again(dask: Any) -> None:
    tries: list[int] = []

    def dying(items: Any) -> Any:
        tries.append(len(items))
        if len(tries) < 3:
            raise dask.KilledWorker("the worker was killed") if len(tries) == 1 else dask.CommClosedError()
        return items

    with dask.open_engine("host:1", 1) as engine:
        assert list(results(engine, [Job(dying, [4])])) == [(0, 4)]
    assert tries == [1, 1, 1]
