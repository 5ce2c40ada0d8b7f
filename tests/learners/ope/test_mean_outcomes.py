"""The mean outcome of a state and action: a plain mean without noise, and its standard error."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from discreet.learners.ope.mean_outcomes import mean_outcome


def told(visits: float, returns: float, noise: float = 0.0) -> Any:
    """Return a release of one row: its first visits, and its returns less a half each."""
    return SimpleNamespace(
        visits=np.array([visits]), returns=np.array([returns]), question=SimpleNamespace(episodes=1),
        noise=SimpleNamespace(visits=noise, returns=noise),
    )  # fmt: skip


def test_without_noise_it_is_the_mean_with_its_standard_error() -> None:
    outcomes = np.random.default_rng(2).integers(2, size=400).astype(float)
    mean, deviation = mean_outcome(told(400, (outcomes - 0.5).sum()), 0)
    assert mean == pytest.approx(outcomes.mean())
    assert deviation == pytest.approx(math.sqrt(mean * (1 - mean) / 400))


def test_means_are_in_the_range_and_noise_widens_them() -> None:
    assert mean_outcome(told(10, 20), 0)[0] == 1.0
    assert mean_outcome(told(10, -20), 0)[0] == 0.0
    exact, noisy = (mean_outcome(told(400, 40.0, noise), 0) for noise in (0.0, 20.0))
    assert noisy[1] > exact[1]
    assert noisy[0] == pytest.approx(exact[0], abs=0.01)
