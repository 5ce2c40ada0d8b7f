"""Engine on SLURM, with fake jobs: options, results and errors of jobs, the shares, what is cancelled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fake_modules
import pytest
from waiting import LIMIT, wait_until

from discreet.experiments.engine import EngineError, Job, results


class UncompletedJobError(Exception):
    """Error of submitit: the job has no result."""


class FailedJobError(UncompletedJobError):
    """Error of submitit: the job failed."""


class FakeJob:
    """Job that has ended, except if ``call`` is None. call : function that returns its result."""

    job_id = "17"
    paths = SimpleNamespace(stderr="discreet-jobs/17_log.err")

    def __init__(self, call: Any) -> None:
        self.call, self.cancelled = call, False

    def done(self) -> bool:
        return self.call is not None

    def result(self) -> Any:
        return self.call()

    def cancel(self) -> None:
        self.cancelled = True


class AutoExecutor:
    """Executor of submitit, whose jobs fail with ``errors`` first, one for each job."""

    made: ClassVar[list[AutoExecutor]] = []

    def __init__(self, folder: Path, cluster: str) -> None:
        if cluster == "nowhere":
            raise RuntimeError("sbatch was not found")
        self.place, self.parameters = (folder, cluster), dict[str, Any]()
        self.jobs: list[FakeJob] = []
        self.errors: list[Exception] = []
        self.waiting = False
        self.made.append(self)

    def update_parameters(self, **given: Any) -> None:
        if "colour" in given:
            raise NameError("Unknown argument colour\nsee the documentation")
        self.parameters = given

    def submit(self, function: Any, *args: Any) -> FakeJob:
        def failed() -> Any:
            raise self.errors.pop(0)

        call = failed if self.errors else lambda: function(*args)
        self.jobs.append(FakeJob(None if self.waiting else call))
        return self.jobs[-1]


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(AutoExecutor, "made", [])
    errors = {"FailedJobError": FailedJobError, "UncompletedJobError": UncompletedJobError}
    found = fake_modules.load(
        monkeypatch, "discreet.experiments.engines.slurm",
        fake_modules.module("submitit", AutoExecutor=AutoExecutor, Job=FakeJob),
        fake_modules.module("submitit.core"), fake_modules.module("submitit.core.utils", **errors),
    )  # fmt: skip
    monkeypatch.setattr(found, "_POLL", 0.001)
    return found


def test_options_become_parameters_of_the_jobs(slurm: Any) -> None:
    engine = slurm.open_engine("cluster=local,partition=short,timeout_min=60", None)
    (jobs,) = AutoExecutor.made
    assert jobs.place == (Path("discreet-jobs"), "local")
    assert jobs.parameters == {
        "name": "discreet", "cpus_per_task": 1, "partition": "short", "timeout_min": 60
    }  # fmt: skip
    assert (engine.width, engine.ahead, engine.even) == (16, 1, True)
    assert slurm.open_engine("name=mine", 3).width == 3
    assert AutoExecutor.made[1].place[1] == "slurm"
    assert AutoExecutor.made[1].parameters["name"] == "mine"


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ("cluster=local,fast", ValueError, "'fast' must be KEY=VALUE"),
        ("colour=1", ValueError, "Unknown argument colour$"),
        ("cluster=nowhere", EngineError, "sbatch was not found"),
    ],
)
def test_bad_options_are_refused(slurm: Any, options: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=f"^engine = 'slurm://{options}': .*{said}"):
        slurm.open_engine(options, 2)


def test_all_runs_are_divided_into_one_job_for_each_worker(slurm: Any) -> None:
    with slurm.open_engine("cluster=local", 3) as engine:
        found = list(results(engine, [Job(lambda items: [item * item for item in items], range(10))]))
    assert sorted(found) == [(0, item * item) for item in range(10)]
    assert len(AutoExecutor.made[0].jobs) == 3


def test_errors_of_a_job(slurm: Any) -> None:
    engine = slurm.open_engine("cluster=local", 1)
    (jobs,) = AutoExecutor.made
    with pytest.raises(ZeroDivisionError):  # the error itself, not its text
        engine.submit(lambda: 1 // 0).result(LIMIT)
    jobs.errors = [FailedJobError("ModuleNotFoundError: No module named 'x'\n----\nYou can check the log")]
    with pytest.raises(EngineError, match=r"job 17 failed .*\(ModuleNotFoundError.*\): discreet-jobs/17_log"):
        engine.submit(int).result(LIMIT)
    jobs.errors = [FailedJobError("Traceback\nUncompletedJobError: timed out")]
    with pytest.raises(UncompletedJobError, match="job 17 exceeded its time limit"):
        engine.submit(int).result(LIMIT)


def test_a_killed_job_is_submitted_again(slurm: Any) -> None:
    with slurm.open_engine("cluster=local", 1) as engine:
        AutoExecutor.made[0].errors = [UncompletedJobError("killed"), UncompletedJobError("killed")]
        assert list(results(engine, [Job(lambda items: items, [4])])) == [(0, 4)]
    assert len(AutoExecutor.made[0].jobs) == 3


def test_jobs_that_wait_are_cancelled_with_their_futures_and_at_the_end(slurm: Any) -> None:
    engine = slurm.open_engine("cluster=local", 1)
    (jobs,) = AutoExecutor.made
    jobs.waiting = True
    one, other = engine.submit(int), engine.submit(int)
    assert one.cancel()
    assert [job.cancelled for job in jobs.jobs] == [True, False]
    engine.close()
    assert [job.cancelled for job in jobs.jobs] == [True, True]
    assert other.cancelled()
    wait_until(lambda: engine._executor._watcher is None)  # no thread polls when no job is open
