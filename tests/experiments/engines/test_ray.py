"""Engine on Ray, with a fake cluster: addresses, errors of tasks, versions of nodes, what is cancelled."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from types import SimpleNamespace
from typing import Any

import fake_modules
import pytest
from waiting import LIMIT

from discreet.experiments.engine import EngineError, Job, results
from discreet.experiments.run_config import made_by


class RayError(Exception):
    """Base of the errors of Ray."""


class RaySystemError(RayError):
    """Error of the cluster."""


class RayTaskError(RayError):
    """Error of a task. cause : the error that the task raised."""

    def __init__(self, cause: Any) -> None:
        super().__init__("\n\n  a traceback of the worker  \nand more")
        self.cause = cause


class Crashed(RayError):
    """Death of a worker."""


class Cluster:
    """Cluster that executes tasks when they are submitted.

    It fails with ``errors`` first, one for each task, and never answers tasks if ``silent`` is True.
    """

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.cancelled: list[Any] = []
        self.options: list[Any] = []
        self.down = self.silent = False
        self.opened: Any = None
        self.init_error: Exception | None = None

    def remote(self, max_retries: int) -> Any:
        assert max_retries == 0  # otherwise Ray would try again, too
        return lambda function: SimpleNamespace(
            remote=lambda *args: self.task(function, *args),
            options=lambda **options: self.on(function, options),
        )

    def on(self, function: Any, options: Any) -> Any:
        self.options.append(options["scheduling_strategy"])
        return SimpleNamespace(remote=lambda *args: self.task(function, *args))

    def task(self, function: Any, *args: Any) -> Any:
        done: Future[Any] = Future()
        if self.errors:
            done.set_exception(self.errors.pop(0))
        elif not self.silent:
            try:
                done.set_result(function(*args))
            except Exception as error:
                done.set_exception(RayTaskError(error))
        return SimpleNamespace(future=lambda: done)

    def init(self, address: str | None, **options: Any) -> None:
        self.opened = (address, options["num_cpus"], options["include_dashboard"])
        if self.init_error is not None:
            raise self.init_error

    def shutdown(self) -> None:
        self.down = True

    def get(self, task: Any) -> Any:
        return task.future().result()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Any:
    deaths = ("WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError")
    nodes = [
        {"Alive": alive, "Resources": resources, "NodeManagerAddress": name, "NodeID": name}
        for alive, resources, name in (
            (True, {"CPU": 2}, "n1"),
            (True, {"CPU": 2}, "n2"),
            (False, {"CPU": 2}, "gone"),
            (True, {}, "head"),
        )
    ]
    return fake_modules.load(
        monkeypatch, "discreet.experiments.engines.ray",
        fake_modules.module(
            "ray", remote=cluster.remote, init=cluster.init, shutdown=cluster.shutdown, get=cluster.get,
            cancel=cluster.cancelled.append, nodes=lambda: nodes, cluster_resources=lambda: {"CPU": 4.0},
        ),
        fake_modules.module(
            "ray.exceptions", RayError=RayError, RaySystemError=RaySystemError, RayTaskError=RayTaskError,
            **{name: type(name, (Crashed,), {}) for name in deaths},
        ),
        fake_modules.module("ray.util"),
        fake_modules.module(
            "ray.util.scheduling_strategies", NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft)
        ),
    )  # fmt: skip


def test_addresses_and_width(ray: Any, cluster: Cluster) -> None:
    with ray.open_engine("", 3) as engine:
        assert (cluster.opened, engine.width) == ((None, 3, False), 3)  # a cluster on this machine
    assert cluster.down
    assert ray.open_engine("host:10001", None).width == 4  # the processors of the cluster
    assert cluster.opened == ("ray://host:10001", None, None)
    cluster.init_error = ConnectionError("refused")
    with pytest.raises(EngineError, match=r"engine = 'ray://host:1': no cluster answers there \(refused\)"):
        ray.open_engine("host:1", None)


def test_results_and_errors_are_those_of_the_task(ray: Any, cluster: Cluster) -> None:
    engine = ray.open_engine("", 1)
    assert list(results(engine, [Job(lambda items: [item + 1 for item in items], [4])])) == [(0, 5)]
    with pytest.raises(ZeroDivisionError):
        engine.submit(lambda: 1 // 0).result(LIMIT)
    cluster.errors = [RaySystemError("\n  the head is gone\nmore")]
    with pytest.raises(EngineError, match="^ray: the head is gone$"):
        engine.submit(int).result(LIMIT)
    with pytest.raises(ValueError, match="takes positional arguments only"):
        engine._executor.submit(int, base=2)


def test_deaths_are_tried_again(ray: Any, cluster: Cluster) -> None:
    cluster.errors = [kind() for kind in ray._DEATHS[:3]]
    assert list(results(ray.open_engine("", 1), [Job(lambda items: items, [4])])) == [(0, 4)]
    assert not cluster.errors


def test_a_cancelled_future_cancels_its_task(ray: Any, cluster: Cluster) -> None:
    cluster.silent = True
    future = ray.open_engine("", 1).submit(int)
    assert future.cancel()
    assert cluster.cancelled == [future._task]
    with pytest.raises(CancelledError):
        future.result(LIMIT)
    future._task.future().set_result(3)  # comes too late, and is ignored


def test_every_live_node_with_processors_is_asked_for_its_versions(ray: Any, cluster: Cluster) -> None:
    engine = ray.open_engine("", 1)
    engine.check(made_by())
    assert cluster.options == [("n1", False), ("n2", False)]
    with pytest.raises(EngineError, match=r"ray: the node n1 has other code .*: discreet .* there, 9 here"):
        engine.check({**made_by(), "discreet": "9"})
    cluster.errors = [RayTaskError(ImportError("No module named 'discreet'"))]
    with pytest.raises(EngineError, match="ray: the node n1 cannot import discreet .No module named"):
        engine.check(made_by())
    cluster.errors = [RaySystemError("the node is lost")]
    with pytest.raises(EngineError, match="ray: the node n1 cannot import discreet .the node is lost"):
        engine.check(made_by())
