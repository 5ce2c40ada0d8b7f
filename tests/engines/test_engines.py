"""Real workers of real engines: equal bits, deaths, other code, nobody there (`make test-engines`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dying import Dying, dividing
from one_killed import check_survival

import discreet as dr
import papers
from discreet.experiments import build_run, sweep
from discreet.experiments.engine import Engine, EngineError, Job, open_engine, results
from discreet.experiments.results import Result
from discreet.experiments.run_config import made_by
from discreet.experiments.worker import Play
from papers.chowdhury_zhou_2021 import figure as chowdhury
from papers.luyo_2021 import runs as luyo
from papers.price_of_privacy import runs as price
from papers.study import Job as Asked

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # theirs
]
TINY_PRICE = replace(
    price.QUICK,
    worlds=price.QUICK.worlds[:2],
    users=200,
    chain_users=(300,),
    long_users=400,
    seeds=2,
    chain_seeds=3,
)
HELPERS = str(Path(__file__).parents[1] / "helpers")


@contextlib.contextmanager
def cluster() -> Iterator[Any]:
    """Dask: a scheduler and two worker processes, whose nannies start them again."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as found:
        yield found


@contextlib.contextmanager
def dask() -> Iterator[Engine]:
    with cluster() as found, open_engine(found.scheduler_address.replace("tcp://", "dask://")) as engine:
        yield engine


@contextlib.contextmanager
def ray() -> Iterator[Engine]:
    pytest.importorskip("ray")
    with open_engine("ray", 2) as engine:
        yield engine


@contextlib.contextmanager
def slurm() -> Iterator[Engine]:
    pytest.importorskip("submitit")
    with open_engine("slurm://cluster=local,timeout_min=5", 2) as engine:
        yield engine


ENGINES = {"dask": dask, "ray": ray, "slurm": slurm}


@pytest.fixture(autouse=True)
def _workers_find_our_helpers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HELPERS, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ENGINES)
def test_equal_bits_and_deaths(name: str, tmp_path: Path) -> None:
    arguments = (dr.make("riverswim"), dr.DPUCBVI(), dr.Central(epsilon=1.0), 200)
    here = dr.simulate(*arguments, seeds=6)
    flags = tmp_path / "flags"
    flags.mkdir()
    with ENGINES[name]() as engine:
        engine.check(made_by())
        there = dr.simulate(*arguments, seeds=6, executor=engine)
        found = sorted(r for _, r in results(engine, [Job(Dying(flags), range(1, 12))]))
        with pytest.raises(ZeroDivisionError):
            list(results(engine, [Job(dividing, [0])]))
    np.testing.assert_array_equal(there.regret, here.regret)
    assert found == [*range(1, 12)]
    assert sorted(path.name for path in flags.iterdir()) == ["10", "5"]


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_sweep_on_an_engine_is_the_sweep(name: str, tmp_path: Path) -> None:
    table = {"env": "random", "learner": "dp-ucbvi", "privatizer": ["central", "none"], "episodes": 200}
    runs = [build_run.resolved(one) for one in sweep.grid({**table, "epsilon": 1.0, "seeds": 8})]
    made = [(build_run.prepare(one), one, tmp_path / str(i)) for i, one in enumerate(runs)]
    heard: dict[int, int] = {}
    with ENGINES[name]() as engine:
        there = sweep.run_all(made, build_run.prepare, engine, heard.__setitem__)
    assert len(heard) == 16
    for (setup, config, out), found in zip(made, there, strict=True):
        here = sweep.run(setup, config)
        np.testing.assert_array_equal(found.regret, here.regret)
        np.testing.assert_array_equal(Result.load(out).regret, here.regret)


@pytest.mark.parametrize(("name", "who"), [("dask", "dask: the worker"), ("ray", "ray: the node")])
def test_other_code_is_refused_before_anything_runs(name: str, who: str) -> None:
    with ENGINES[name]() as engine:
        with pytest.raises(EngineError, match=rf"{who} .* other code .* discreet"):
            engine.check({**made_by(), "discreet": "0.0.0"})
        with pytest.raises(EngineError, match=r"other code .*: discreet .* there, 9 here"):
            list(results(engine, [Job(Play(never, "what", 0, {"discreet": "9"}), [0])]))


def test_a_job_of_other_code_or_without_a_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with slurm() as engine:
        with pytest.raises(EngineError, match=r"other code .*: discreet .* there, 9 here"):
            list(results(engine, [Job(Play(never, "what", 0, {"discreet": "9"}), [0])]))
        monkeypatch.setenv("PYTHONPATH", os.environ["PYTHONPATH"].removeprefix(HELPERS))
        with pytest.raises(EngineError, match=r"failed before it ran anything \(ModuleNotFoundError.*dying"):
            list(results(engine, [Job(Dying(Path()), [1])]))


def never(_: Any) -> Any:
    raise AssertionError("was built")


@pytest.mark.parametrize(
    ("options", "said"), [("cluster=local,colour=1", "colour"), ("cluster", "must be KEY=VALUE")]
)
def test_options_that_are_none(options: str, said: str) -> None:
    pytest.importorskip("submitit")
    with pytest.raises(ValueError, match=f"engine = 'slurm://{options}': .*{said}"):
        open_engine(f"slurm://{options}", 2)


def test_a_queue_that_cannot_be_asked_is_an_error_and_no_wait() -> None:
    pytest.importorskip("submitit")
    from discreet.experiments.engines import slurm as module

    def done() -> bool:
        raise RuntimeError("the accounting database is gone")

    jobs = SimpleNamespace(submit=lambda *_: SimpleNamespace(done=done))
    with pytest.raises(RuntimeError, match="accounting database is gone"):
        module._SlurmExecutor(jobs).submit(never, ()).result(60)


def test_nobody_there() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(EngineError, match="dask://127.0.0.1:9': no scheduler answers there"):
        open_engine("dask://127.0.0.1:9")


@pytest.mark.parametrize("trial", range(20))
def test_200_runs_survive_a_worker_that_is_killed_at_random(trial: int, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with cluster() as found, distributed.Client(found) as client:
        pids = list(client.run(os.getpid).values())
        with open_engine(found.scheduler_address.replace("tcp://", "dask://")) as engine:
            check_survival(engine, lambda: pids, trial, tmp_path / "out")


# ------------------------------------------------------------------------------------- reproductions
@pytest.mark.parametrize("name", ["dask", "ray", "slurm"])
def test_a_reproduction_on_an_engine_is_the_reproduction(name: str, tmp_path: Path) -> None:
    study = papers.load("luyo-2021")
    size = luyo.Size(users=120, instances=(0, 1), seeds=2, printed_seeds=1, worlds=2, batches=(3, 6))
    found = {}
    with ENGINES[name]() as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(luyo, "QUICK", size)
        for there in (None, engine):
            job = Asked(tmp_path / str(there is None), quick=True, say=lambda _: None, engine=there)
            found[there] = study.run(job)
    assert found[None] == found[engine]


def test_studies_of_runs_on_dask_are_those_of_this_machine(tmp_path: Path) -> None:
    one = chowdhury.run(Asked(tmp_path, quick=True, say=lambda _: None))
    with dask() as engine:
        other = chowdhury.run(Asked(tmp_path, quick=True, say=lambda _: None, engine=engine))
        price.measured(tmp_path / "there", TINY_PRICE, engine=engine)
    assert {**one, "found": 0} == {**other, "found": 0}
    for panel, curves in one["found"].items():
        for a, b in zip(curves, other["found"][panel], strict=True):
            np.testing.assert_array_equal(a.regret, b.regret)
    here = price.measured(tmp_path / "here", TINY_PRICE, 1)
    there = price.measured(tmp_path / "there", TINY_PRICE, 1)
    assert here.to_json() == there.to_json()


# ------------------------------------------------------------- Ray's workers, with one head for all trials
@pytest.fixture(scope="module")
def head() -> Iterator[Engine]:
    """One head of Ray for many trials."""
    with ray() as engine:
        yield engine


@pytest.mark.parametrize("trial", range(20))
def test_200_runs_survive_a_worker_of_ray_that_is_killed_at_random(
    trial: int, head: Engine, tmp_path: Path
) -> None:
    psutil = pytest.importorskip("psutil")

    def workers() -> list[int]:
        """Those at a task, where there are any."""
        found: dict[int, str] = {}
        for one in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                found[one.pid] = "".join(one.cmdline())
        busy = [pid for pid, words in found.items() if words.startswith("ray::_called")]
        return busy or [pid for pid, words in found.items() if words.startswith("ray::")]

    check_survival(head, workers, trial, tmp_path / "out")
