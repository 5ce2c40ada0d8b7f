"""Real workers of real engines: equal bits, deaths, other code, nobody there (`make test-engines`)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dying import Dying, dividing

import discreet as dr
from discreet import registry
from discreet.experiments import sweep
from discreet.experiments.config import RunConfig, made_by
from discreet.experiments.engine import Engine, EngineError, Job, open_engine, results
from discreet.experiments.results import Result

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # theirs
]
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
        with pytest.raises(ZeroDivisionError if name != "slurm" else Exception, match="zero|Zero"):
            list(results(engine, [Job(dividing, [0])]))
    np.testing.assert_array_equal(there.regret, here.regret)
    assert found == [*range(1, 12)]
    assert sorted(path.name for path in flags.iterdir()) == ["10", "5"]


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_sweep_on_an_engine_is_the_sweep(name: str, tmp_path: Path) -> None:
    table = {"env": "random", "learner": "dp-ucbvi", "privatizer": ["central", "none"], "episodes": 200}
    runs = [registry.resolved(one) for one in sweep.grid({**table, "epsilon": 1.0, "seeds": 8})]
    made = [(registry.prepare(one), one, tmp_path / str(i)) for i, one in enumerate(runs)]
    heard: dict[int, int] = {}
    with ENGINES[name]() as engine:
        there = sweep.run_all(made, registry.prepare, engine, heard.__setitem__)
    assert len(heard) == 16
    for (setup, config, out), found in zip(made, there, strict=True):
        here = sweep.run(setup, config)
        np.testing.assert_array_equal(found.regret, here.regret)
        np.testing.assert_array_equal(Result.load(out).regret, here.regret)


def test_other_code_is_refused_before_anything_runs() -> None:
    with dask() as engine, pytest.raises(EngineError, match=r"dask: the worker .* other code .* discreet"):
        engine.check({**made_by(), "discreet": "0.0.0"})


@pytest.mark.parametrize(
    ("options", "said"), [("cluster=local,colour=1", "colour"), ("cluster", "must be KEY=VALUE")]
)
def test_options_that_are_none(options: str, said: str) -> None:
    pytest.importorskip("submitit")
    with pytest.raises(ValueError, match=f"engine = 'slurm://{options}': .*{said}"):
        open_engine(f"slurm://{options}", 2)


def test_nobody_there() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(EngineError, match="dask://127.0.0.1:9': no scheduler answers there"):
        open_engine("dask://127.0.0.1:9")


@pytest.mark.parametrize("trial", range(20))
def test_200_runs_survive_a_worker_that_is_killed_at_random(trial: int, tmp_path: Path) -> None:
    config = registry.resolved(
        RunConfig(env="random", learner="ucb-vi", episodes=400, seeds=200, seed=trial, privatizer="none")
    )
    setup = registry.prepare(config)
    here = sweep.run(setup, config)
    draw = random.Random(trial)
    distributed = pytest.importorskip("distributed")
    with cluster() as found, distributed.Client(found) as client:
        address = found.scheduler_address.replace("tcp://", "dask://")
        pids = list(client.run(os.getpid).values())
        killed: list[int] = []
        with open_engine(address) as engine:

            def kill(run: int, _: int) -> None:
                if not killed and run >= start:
                    killed.append(draw.choice(pids))
                    threading.Timer(draw.uniform(0.0, 0.05), os.kill, (killed[0], signal.SIGKILL)).start()

            start = draw.randrange(0, 150)
            (there,) = sweep.run_all([(setup, config, tmp_path / "out")], registry.prepare, engine, kill)
    assert killed
    np.testing.assert_array_equal(there.regret, here.regret)
    np.testing.assert_array_equal(Result.load(tmp_path / "out").regret, here.regret)
