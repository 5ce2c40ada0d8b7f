"""A sweep on an engine during which one of its workers is killed at a random moment."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from discreet.experiments import build_run, sweep
from discreet.experiments.engine import Engine
from discreet.experiments.results import Result
from discreet.experiments.run_config import RunConfig

RUNS = 200
_AIMING = 10.0  # seconds


def check_survival(engine: Engine, victims: Callable[[], Sequence[int]], trial: int, out: Path) -> None:
    """200 runs are those of this process, to the last bit, though one of the victims (pids) is killed."""
    config = build_run.resolved(
        RunConfig(env="random", learner="ucb-vi", episodes=200, seeds=RUNS, seed=trial, privatizer="none")
    )
    setup = build_run.prepare(config)
    here = sweep.run(setup, config)
    draw = random.Random(trial)
    start, delay = draw.randrange(0, 150), draw.uniform(0.0, 0.05)
    killed: list[int] = []

    def shoot() -> None:
        until = time.monotonic() + _AIMING
        while not killed and time.monotonic() < until:
            with suppress(IndexError, ProcessLookupError):  # nobody there at this moment, or gone of itself
                victim = draw.choice(sorted(victims()))
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

    timers: list[threading.Timer] = []

    def heard(run: int, _: int) -> None:
        if not timers and run >= start:
            timers.append(threading.Timer(delay, shoot))
            timers[0].start()

    (there,) = sweep.run_all([(setup, config, out)], build_run.prepare, engine, heard)
    timers[0].join()
    assert killed
    for found in (there, Result.load(out)):
        assert found.runs.tolist() == [*range(RUNS)]
        np.testing.assert_array_equal(found.regret, here.regret)
        np.testing.assert_array_equal(found.gap_regret, here.gap_regret)
