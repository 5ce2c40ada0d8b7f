"""Runs of one seed agree where their numbers do, whatever time they took."""

from dataclasses import replace

import numpy as np

from discreet.experiments.seed_run import SeedRun


def test_runs_agree_in_their_numbers_to_the_bit_and_not_in_their_time() -> None:
    run = SeedRun(0, np.array([1, 10]), np.array([0.5, 2.0]), np.array([0.25, 1.0]), 3.0)
    assert run.agrees(replace(run, run=1, seconds=9.0))
    assert not run.agrees(replace(run, regret=np.nextafter(run.regret, 9.0)))
    assert not run.agrees(replace(run, gap_regret=run.gap_regret[:1]))
