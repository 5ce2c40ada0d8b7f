"""The seam to executors: nothing lost, nothing doubled, equal bits; deaths, strangers, who closes what."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from waiting import LIMIT

import discreet as dr
from discreet.experiments import engine as seam
from discreet.experiments.engine import Engine, EngineError, Job, open_engine, results


class Scripted(Executor):
    """Runs tasks here and now; dies of the items in ``deadly``, so often."""

    def __init__(self, deadly: Counter[int] | None = None, breaks: bool = False) -> None:
        self.deadly, self.breaks = deadly if deadly is not None else Counter(), breaks
        self.tasks: list[tuple[int, ...]] = []
        self.broken = self.closed = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.broken:
            raise BrokenExecutor("broken")
        items = tuple(item for _, own in args[0] for item in own)
        self.tasks.append(items)
        for item in items:
            if self.deadly[item]:
                self.deadly[item] -= 1
                self.broken = self.breaks
                future.set_exception(BrokenExecutor(f"died of {item}"))
                return future
        future.set_result(function(*args, **named))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.closed = True


def squares(items: Sequence[int]) -> list[tuple[int, int]]:
    return [(item, item * item) for item in items]


JOBS = [Job(squares, range(40)), Job(squares, range(100, 107))]
WANTED = sorted([(0, (i, i * i)) for i in range(40)] + [(1, (i, i * i)) for i in range(100, 107)])


def test_every_item_once_and_cheap_ones_together() -> None:
    executor = Scripted()
    engine = Engine.of(executor, 2)
    assert sorted(results(engine, JOBS)) == WANTED
    assert sorted(item for task in executor.tasks for item in task) == [*range(40), *range(100, 107)]
    assert len(executor.tasks) < 25  # not one each
    engine.close()
    assert not executor.closed  # its owner's


def test_cheap_jobs_of_one_item_travel_together_and_dear_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(seam.time, "perf_counter", lambda: clock[0])

    def call(items: Sequence[int]) -> Sequence[int]:
        clock[0] += sum(1.0 if item >= 100 else 0.01 for item in items)
        return items

    executor = Scripted()
    jobs = [Job(call, [item]) for item in (*range(60), *range(100, 106))]
    found = results(Engine("mine", executor, 2, ahead=1, together=0.5), jobs)
    assert sorted(item for _, item in found) == [*range(60), *range(100, 106)]
    assert [len(task) for task in executor.tasks[:4]] == [1, 1, 2, 2]  # of new ones as many as are known
    assert len([task for task in executor.tasks if min(task) < 60]) < 20
    assert all(len(task) == 1 for task in executor.tasks[-3:])  # dear, by then


def test_one_item_a_task_where_that_is_asked_and_all_at_once_for_queues() -> None:
    single, even = Scripted(), Scripted()
    assert sorted(results(Engine("one", single, 2, together=0.0), JOBS)) == WANTED
    assert {len(task) for task in single.tasks} == {1}
    assert sorted(results(Engine("queue", even, 4, ahead=1, even=True), JOBS)) == WANTED
    assert [len(task) for task in even.tasks] == [12, 12, 12, 11]


@pytest.mark.parametrize("breaks", [False, True])
def test_a_death_costs_a_try_and_nothing_else(breaks: bool) -> None:
    made: list[Scripted] = []
    deadly = Counter({3: 2, 17: 1, 105: 3})

    def opened() -> Scripted:
        made.append(Scripted(deadly, breaks))
        return made[-1]

    with Engine("mine", opened, 2) as engine:
        assert sorted(results(engine, JOBS)) == WANTED
    assert made[-1].closed
    assert not any(deadly.values())


def test_who_dies_of_one_run_again_and_again_is_told_which() -> None:
    with pytest.raises(EngineError, match=r"4 workers died of run 17 of this run"):
        list(results(Engine("mine", lambda: Scripted(Counter({17: 99})), 2), JOBS))
    with pytest.raises(EngineError, match=r"Scripted: a worker failed, and the executor cannot continue"):
        list(results(Engine.of(Scripted(Counter({3: 1}), breaks=True)), JOBS))


def test_an_engine_that_gives_up_is_told() -> None:
    class Gone(Scripted):
        def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with pytest.raises(EngineError, match="far: dropped a task .*scheduler"):
        list(results(Engine("far", Gone(), 2), JOBS))


def test_what_is_not_ours_is_left_out_and_asked_for_once() -> None:
    asked: list[tuple[int, int]] = []

    def odd(job: int, item: int) -> bool:
        asked.append((job, item))
        return item % 2 == 1

    engine = Engine("mine", partial(Scripted, Counter({5: 1, 105: 1})), 2)
    assert sorted(results(engine, JOBS, odd)) == [one for one in WANTED if one[1][0] % 2]
    assert sorted(asked) == sorted({*asked})
    assert list(results(engine, JOBS, lambda *_: False)) == []


def test_who_stops_reading_cancels_the_rest() -> None:
    begun: list[int] = []

    def slow(items: Sequence[int]) -> list[int]:
        begun.extend(items)
        return list(items)

    with ThreadPoolExecutor(1) as pool:
        found = results(Engine("pool", pool, 1, together=0.0), [Job(slow, range(1000))])
        next(found)
        found.close()
    assert len(begun) < 10


# ---------------------------------------------------------------------------------------- runs
ARGUMENTS = (dr.make("random", states=3, actions=2, horizon=3), dr.DPUCBVI(), dr.Central(epsilon=1.0), 60)


def test_equal_bits_on_any_executor() -> None:
    here = dr.simulate(*ARGUMENTS, seeds=5, workers=1)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        there = dr.simulate(*ARGUMENTS, seeds=5, executor=pool)
        again = dr.simulate(*ARGUMENTS, seeds=5, stepwise=True, executor=pool)  # whose owner keeps it open
    with ThreadPoolExecutor(3) as threads:
        heard: list[tuple[int, int]] = []
        third = dr.simulate(
            *ARGUMENTS, seeds=5, executor=threads, progress=lambda run, users: heard.append((run, users))
        )
    for found in (there, again, third):
        np.testing.assert_array_equal(found.regret, here.regret)
    assert sorted(heard) == [(run, 60) for run in range(5)]


def test_bad_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="workers = 0"):
        open_engine("slurm://cluster=local", 0)
    with pytest.raises(ValueError, match="executor = 3: must be a concurrent.futures.Executor"):
        dr.simulate(*ARGUMENTS, executor=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="engine = 'spark': must be local, dask://HOST:PORT"):
        open_engine("spark")
    monkeypatch.setitem(seam.ENGINES, "dask", ("discreet.experiments.engines.not_there", "dask"))
    with pytest.raises(EngineError, match=r"engine = 'dask://a:1': needs a package .*'discreet\[dask\]'"):
        open_engine("dask://a:1")


def test_workers_end_with_a_process_that_is_killed() -> None:
    """They hold the pipe that is read here, whose end comes with the last of them."""
    code = (
        "import os, time\n"
        "from discreet.experiments.engine import Job, results\n"
        "from discreet.experiments.worker import Made, processes\n"
        "with processes(1) as engine:\n"
        "    print([*results(engine, [Job(Made(os.getpid), (0,))])], flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdout is not None
        assert sender.stdout.readline().startswith("[(0, (0, ")
        sender.kill()
        sender.communicate(timeout=LIMIT)
